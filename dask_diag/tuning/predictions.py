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
        scheduler = setting.config.get("scheduler")
        try:
            if changes == {"dask num_workers"} and setting.workers is not None:
                return self._as_it_was - self._simulator.simulate(workers=setting.workers).seconds
            if scheduler in COSTS and changes <= {"dask scheduler", "dask num_workers"}:
                simulated = self._simulator.simulate(scheduler=scheduler, workers=setting.workers)
                return self._as_it_was - simulated.seconds
        except DiagnosticError:
            return _NAN
        finding = self._findings.get(setting.reason)
        return finding.seconds_lost if finding is not None else _NAN
