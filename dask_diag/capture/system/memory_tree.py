"""What this process and all its descendants have of memory, with shared pages counted once."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple, TypeVar

from dask_diag.capture.system.process_tree import Descendants
from dask_diag.capture.system.processes import Memory, NoSuchProcess, process_reader
from dask_diag.capture.system.share_of_time import ShareOfTime

__all__ = ["MemoryTree", "Reading"]

T = TypeVar("T")

_NAN = float("nan")
_SHARE_OF_TIME = 0.02
_LONGEST_WAIT = 0.05
_SECONDS_A_BYTE = 40e-12
"""What it took to read a byte in small pages, on a slow machine."""


class Reading(NamedTuple):
    """Bytes at `time`, summed over `processes`; `pss` and `uss` are NaN if they were not read."""

    time: float
    rss: float
    pss: float
    uss: float
    processes: float


class MemoryTree:
    """Reads the memory of this process and its descendants, however they come and go.

    Notes
    -----
    To find which pages are shared the kernel reads each, and meanwhile the process cannot map
    others. So that is read for at most a fiftieth of the time; what is resident is always read.
    """

    def __init__(self) -> None:
        self._reader = process_reader()
        self._pid = os.getpid()
        self._descendants = Descendants(self._reader, self._pid)
        self._children: dict[int, None] = {}
        self._list()
        self._next_shares = 0.0
        expected = _SECONDS_A_BYTE * self._resident(perf_counter()).rss
        self._shares = ShareOfTime(_SHARE_OF_TIME, expected)

    def read(self, waited_for: bool = False) -> Reading:
        """What they have now, and if it is time for that, how much of it is shared.

        If someone waits for the reading, what is shared is always read, unless that takes long.
        """
        self._list()
        time = perf_counter()
        is_time = self._shares.seconds < _LONGEST_WAIT if waited_for else time >= self._next_shares
        if is_time:
            return self._with_shares(time)
        return self._resident(time)

    def _list(self) -> None:
        self._children.update(dict.fromkeys(self._descendants.listed()))

    def _resident(self, time: float) -> Reading:
        memories = [Memory(rss, _NAN, _NAN) for rss in self._of_processes(self._reader.resident)]
        return _summed(time, memories)

    def _with_shares(self, time: float) -> Reading:
        with self._shares:
            memories = self._of_processes(self._reader.memory)
        self._next_shares = time + self._shares.pause
        return _summed(time, memories)

    def _of_processes(self, read: Callable[[int], T]) -> list[T]:
        results = [read(self._pid)]
        for pid in list(self._children):
            try:
                results.append(read(pid))
            except NoSuchProcess:
                del self._children[pid]
        return results


def _summed(time: float, memories: list[Memory]) -> Reading:
    rss, pss, uss = map(sum, zip(*memories, strict=True))
    return Reading(time, rss, pss, uss, len(memories))
