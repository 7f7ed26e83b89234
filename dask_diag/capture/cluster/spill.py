"""What a worker of a cluster writes to its disk for want of memory, and reads back.

The worker's buffer of results adds up how much and how long. It is asked at each change of a task's
state: writing and reading block the worker's event loop, so that nothing else happens in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from dask_diag.schema import Activity, WorkerEvent

__all__ = ["READS", "WRITES", "Spill", "SpillCounters"]

_LABELS = {
    WorkerEvent.DISK_WRITE: (WorkerEvent.DISK_WRITE, Activity.SERIALIZE, "compress"),
    WorkerEvent.DISK_READ: (WorkerEvent.DISK_READ, Activity.DESERIALIZE, "decompress"),
}
"""As distributed names what takes the time; the first also has the bytes."""
WRITES, READS = ((label, "count") for label in _LABELS)
"""Which of the worker's counters say how often."""

Counters = Mapping[tuple[str, str], float]


class Spill(NamedTuple):
    """What went to disk or came back."""

    event: str
    start: float
    stop: float
    bytes: float


class SpillCounters:
    """Says what has changed since it was asked last.

    Who asks compares `count` of `WRITES` and of `READS` with `writes` and `reads`: this is done
    several times for each task, where a call is dear.

    Parameters
    ----------
    data : mapping
        A worker's results. If it does not count, as third-party buffers may not, nothing changes.
    clock : callable
    """

    def __init__(self, data: object, clock: Callable[[], float]) -> None:
        counters = getattr(data, "cumulative_metrics", None)
        self._counters: Counters = counters if isinstance(counters, Mapping) else {}
        self._clock = clock
        self._asked_at = clock()
        self._before = dict(self._counters)
        self.count = self._counters.get
        self.writes, self.reads = self.count(WRITES), self.count(READS)

    def changes(self, read_until: float) -> list[Spill]:
        """What went to disk or came back since the last time.

        Parameters
        ----------
        read_until : float
            When what was read was there at the latest, if that is since the last time: a task that
            takes it started then.
        """
        now = self._clock()
        spills = []
        for event, labels in _LABELS.items():
            moved = self._since((labels[0], "bytes"))
            seconds = sum(self._since((label, "seconds")) for label in labels)
            stop = now
            if event == WorkerEvent.DISK_READ and read_until - seconds >= self._asked_at:
                stop = min(now, read_until)
            if moved:
                start = max(stop - seconds, min(self._asked_at, stop))
                spills.append(Spill(event, start, stop, moved))
        self._asked_at, self._before = now, dict(self._counters)
        self.writes, self.reads = self.count(WRITES), self.count(READS)
        return spills

    def _since(self, label: tuple[str, str]) -> float:
        return self._counters.get(label, 0.0) - self._before.get(label, 0.0)
