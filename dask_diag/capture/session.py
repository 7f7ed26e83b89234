"""What one diagnostic has captured: when it was active, in which computations, what failed."""

from __future__ import annotations

from time import perf_counter, time

from dask_diag.capture.computation import Computation
from dask_diag.capture.computation_reader import snapshot_of
from dask_diag.capture.snapshot import ComputationSnapshot

__all__ = ["Session"]


class Session:
    """What builders read of a diagnostic, beside its own samples.

    Attributes
    ----------
    start, stop : float or None
        When the diagnostic became active and when it last ended, in seconds of
        ``time.perf_counter()``.
    epoch : float
        What to add to these to get seconds since 1970.
    computations : list of Computation
        Those that the diagnostic took part in since it was cleared.
    faults : list of str
        Errors of the diagnostic itself, each once. They are shown to the user and never raised.
    """

    def __init__(self) -> None:
        self.start: float | None = None
        self.stop: float | None = None
        self.epoch = 0.0
        self.computations: list[Computation] = []
        self.faults: list[str] = []
        self.anchor()

    def anchor(self) -> None:
        """Tie the clock of the times to the time of day, as it is now."""
        self.epoch = time() - perf_counter()

    def clear(self, start: float | None) -> None:
        """Forget all but the computations that run now, and start again."""
        self.computations = [
            computation for computation in self.computations if computation.finished is None
        ]
        self.faults = []
        self.start = start
        self.stop = None

    def fault(self, text: str) -> None:
        """Note an error of the diagnostic itself."""
        if text not in self.faults:
            self.faults.append(text)

    def snapshots(self) -> list[ComputationSnapshot]:
        """The computations, as they are now."""
        return [snapshot_of(computation) for computation in tuple(self.computations)]
