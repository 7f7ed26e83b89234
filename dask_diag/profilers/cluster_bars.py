"""The bars of computations on clusters, as clients pull how far they are."""

from __future__ import annotations

import threading
from time import perf_counter
from typing import NamedTuple

from dask_diag.capture.cluster.batch import ClusterComputation
from dask_diag.capture.cluster.log import ClusterLog
from dask_diag.profilers.bar_line import Bar

__all__ = ["ClusterBars", "ClusterProgress"]


class ClusterProgress(NamedTuple):
    """How far one computation is.

    Attributes
    ----------
    number : int
        Which of all computations that were shown.
    bar : Bar
    ending : str or None
        How it ended, empty if all is well; None while it runs.
    """

    number: int
    bar: Bar
    ending: str | None


class ClusterBars:
    """Which computations of clusters have a bar, and which have been shown for the last time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[tuple[str, str], int] = {}
        self._ended: set[tuple[str, str]] = set()

    def update(self, log: ClusterLog, count: int) -> list[ClusterProgress]:
        """What is to be shown of a log, what has ended first.

        `count` is how many computations were seen before those of clusters.
        """
        now = perf_counter() + log.offset
        progress = []
        with self._lock:
            for computation in list(log.computations.values()):
                name = log.scheduler, computation.name
                if name in self._ended:
                    continue
                number = self._numbers.setdefault(name, count + len(self._numbers) + 1)
                ending = _ending_of(computation, log.has_ended)
                if ending is not None:
                    self._ended.add(name)
                progress.append(_progress_of(computation, number, now, ending))
        return sorted(
            progress, key=lambda computation: (computation.ending is None, computation.number)
        )


def _ending_of(computation: ClusterComputation, is_last: bool) -> str | None:
    if computation.stop is None:
        return "not finished" if is_last else None
    if computation.failed:
        return "failed"
    return "" if computation.done >= computation.total else "cancelled"


def _progress_of(
    computation: ClusterComputation, number: int, now: float, ending: str | None
) -> ClusterProgress:
    total, took = computation.total, computation.seconds
    stop = now if computation.stop is None else computation.stop
    return ClusterProgress(
        number,
        Bar(
            min(computation.done, total),
            total,
            max(stop - computation.start, 0.0),
            computation.cpu / took if took > 0 else None,
        ),
        ending,
    )
