"""What `tune` returns: each setting with its gain and a verdict, and what to use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dask_diag.analysis.findings import Finding
from dask_diag.columns import Categorical
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.tuning.rows import Row, best_of
from dask_diag.tuning.settings import Setting
from dask_diag.tuning.summary import tune_summary
from dask_diag.views.text import Summary

__all__ = ["TuneResult"]

_NAN = float("nan")


@dataclass(frozen=True)
class TuneResult:
    """What was tried on a program, and what it gained.

    Attributes
    ----------
    rows : tuple of Row
        The baseline first, then the settings, the fastest first.
    recording : Recording
        Of the baseline.
    findings : tuple of (Finding, float)
        The findings of that recording, with the gain that was measured of the setting which
        answers them; NaN if none does. Of those that have one, `seconds_lost` is measured, too.
    notes : tuple of str
        What a reader must know beside the numbers.
    is_interrupted : bool
        Whether Ctrl-C ended the trials.
    """

    rows: tuple[Row, ...]
    recording: Recording
    findings: tuple[tuple[Finding, float], ...] = ()
    notes: tuple[str, ...] = ()
    is_interrupted: bool = False

    @property
    def best(self) -> Setting | None:
        """The setting to use; None if none is faster beyond chance, with the same result."""
        best = best_of(self.rows)
        return best.setting if best is not None else None

    @property
    def table(self) -> Table:
        """A row per setting.

        ``setting``, ``runs``, ``median`` (s), ``gain`` (2 is half the time) with its 95% interval
        ``low`` to ``high``, ``predicted`` and ``verdict``; what is not known is NaN.
        """
        gains = [row.gain for row in self.rows]
        return Table(
            {
                "setting": Categorical.of(row.setting.name for row in self.rows),
                "runs": np.array([len(row.walls) for row in self.rows]),
                "median": np.array([row.median for row in self.rows], float),
                "gain": np.array([gain.estimate if gain else _NAN for gain in gains], float),
                "low": np.array([gain.low if gain else _NAN for gain in gains], float),
                "high": np.array([gain.high if gain else _NAN for gain in gains], float),
                "predicted": np.array([row.predicted for row in self.rows], float),
                "verdict": Categorical.of(row.verdict for row in self.rows),
            }
        )

    def summary(self) -> Summary:
        """The table and the settings to use, for a terminal or a notebook."""
        return tune_summary(self.rows, self.findings, self.notes)

    def page(self, title: str = "Settings tried") -> str:
        """The same, and each run, as a page of HTML that needs no network."""
        from dask_diag.tuning.page import tune_page

        return tune_page(self.rows, self.summary(), title)

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()
