"""Findings with the seconds that their remedy was measured to save, in place of predicted ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dask_diag.analysis.findings import Finding
from dask_diag.analysis.findings.finding import MEASURED
from dask_diag.tuning.candidates import codes_answered
from dask_diag.tuning.rows import Row

__all__ = ["with_measured_gains"]


def with_measured_gains(
    findings: Iterable[Finding], rows: Sequence[Row]
) -> tuple[tuple[Finding, float], ...]:
    """The findings, each with the gain of the best setting that answers it, or NaN.

    `rows` has the baseline first. A setting that fails, or gives another result, is no remedy.
    """
    baseline = rows[0].median
    gains: dict[str, float] = {}
    for row in rows[1:]:
        if row.gain is None or not row.is_right:
            continue
        for code in codes_answered(row.setting.reason):
            gains[code] = max(row.gain.estimate, gains.get(code, 0.0))
    return tuple(_measured(finding, gains, baseline) for finding in findings)


def _measured(finding: Finding, gains: dict[str, float], baseline: float) -> tuple[Finding, float]:
    gain = gains.get(finding.code)
    if gain is None:
        return finding, float("nan")
    saved = max(0.0, baseline * (1 - 1 / gain))
    return replace(finding, seconds_lost=saved, kind=MEASURED), gain
