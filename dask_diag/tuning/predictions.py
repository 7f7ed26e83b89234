"""What the recording of the baseline lets expect of a setting, before it is tried."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from dask_diag.analysis.findings import Finding
from dask_diag.analysis.simulation import Simulator
from dask_diag.analysis.simulation.schedulers import COSTS
from dask_diag.errors import DiagnosticError
from dask_diag.model.recording import Recording
from dask_diag.tuning.settings import Setting

__all__ = ["Predictions"]

_NAN = float("nan")
_SIMULATED = frozenset({"dask scheduler", "dask num_workers", "dask chunksize"})
"""What the simulator changes. The findings that advise such a setting say what is lost to a cause,
which other remedies may take out better."""


class Predictions:
    """Seconds that settings are to save, by what was recorded without them.

    Parameters
    ----------
    recording : Recording
    findings : sequence of Finding
        Of that recording.
    """

    def __init__(self, recording: Recording, findings: Sequence[Finding]) -> None:
        self._recording = recording
        self._findings = {finding.code: finding for finding in findings}

    @cached_property
    def _simulator(self) -> Simulator:
        return Simulator(self._recording)

    @cached_property
    def _as_it_was(self) -> float:
        # Not what was measured: what the simulator misses is then missing in both.
        return self._simulator.simulate().seconds

    def gain(self, setting: Setting, wall: float) -> float:
        """How many times as fast a program is to be that takes `wall`; NaN if nothing says so."""
        saved = self._seconds_saved(setting)
        return wall / (wall - saved) if saved < wall else _NAN

    def _seconds_saved(self, setting: Setting) -> float:
        changes = set(setting.changes)
        if not changes & _SIMULATED:
            finding = self._findings.get(setting.reason)
            return finding.seconds_lost if finding is not None else _NAN
        if changes - _SIMULATED or not self._is_known(setting):
            return _NAN
        chunksize = setting.config.get("chunksize")
        try:
            simulated = self._simulator.simulate(
                scheduler=setting.config.get("scheduler"),
                workers=setting.workers,
                chunksize=None if chunksize is None else int(chunksize),
            )
        except DiagnosticError:
            return _NAN
        return self._as_it_was - simulated.seconds

    def _is_known(self, setting: Setting) -> bool:
        """Whether the simulator knows what the setting makes of this program."""
        config = setting.config
        scheduler, chunksize = config.get("scheduler"), config.get("chunksize")
        if scheduler is not None and scheduler not in COSTS:
            return False
        # Threads are sent one task at a time, whatever it is.
        used = {scheduler} if scheduler else set(self._recording.computations.scheduler.tolist())
        if chunksize is not None and not (chunksize.isdecimal() and used == {"processes"}):
            return False
        return "num_workers" not in config or setting.workers is not None
