"""From a snapshot of tracemalloc to the lines of the user's code that allocated.

Millions of blocks are common. So little is done for each: blocks of a line share their traceback,
and of many small ones a sample is read, which is scaled to the bytes of all.
"""

from __future__ import annotations

import random
import tracemalloc
from operator import itemgetter
from typing import NamedTuple

from dask_diag.capture.system.source_files import OF_DASK, OWN, USER, owner_of_file

__all__ = ["ANY_LINE_OF_DASK", "ANY_OWN_LINE", "AllocatedLine", "LineSums"]

_LARGE = 4096
"""Bytes from which on each block is counted."""
_MOST_SMALL = 100_000

Traceback = tuple[tuple[str, int], ...]
"""Files and lines, the innermost call first."""
Trace = tuple[int, int, Traceback, int]
"""Domain, bytes, traceback, and how many frames there were."""


class AllocatedLine(NamedTuple):
    """A line of code, or in place of all lines of dask or this package a name without a file."""

    file: str
    line: int
    name: str = ""


ANY_OWN_LINE = AllocatedLine("", 0, "(dask_diag)")
ANY_LINE_OF_DASK = AllocatedLine("", 0, "(dask itself)")


class LineSums:
    """Sums the blocks of a snapshot by the line of the user's code that allocated them.

    That is the innermost line that is neither dask's nor this package's, nor of a library, if there
    is one among the calls that were traced; else the innermost line of a library.
    """

    def read(self, snapshot: tracemalloc.Snapshot) -> dict[AllocatedLine, tuple[int, int]]:
        """Bytes and blocks by line."""
        traces = _traces_of(snapshot)
        large = [trace for trace in traces if trace[1] >= _LARGE]
        small = [trace for trace in traces if trace[1] < _LARGE]
        sums: dict[AllocatedLine, tuple[int, int]] = {}
        self._add(sums, large)
        if len(small) <= _MOST_SMALL:
            self._add(sums, small)
        else:
            # Its own generator: a seed of the user's program means the same as without it.
            self._add(sums, random.Random(0).choices(small, k=_MOST_SMALL), small)
        return sums

    def _add(
        self,
        sums: dict[AllocatedLine, tuple[int, int]],
        traces: list[Trace],
        of: list[Trace] | None = None,
    ) -> None:
        """Add blocks to `sums`; with `of` as a sample of these."""
        by_traceback: dict[int, list[int]] = {}
        tracebacks: dict[int, Traceback] = {}
        for _, size, traceback, *_ in traces:
            # Equal ones are one object in a snapshot: no hash of its files is needed.
            number = id(traceback)
            total = by_traceback.get(number)
            if total is None:
                by_traceback[number], tracebacks[number] = [size, 1], traceback
            else:
                total[0] += size
                total[1] += 1
        of_bytes = of_blocks = 1.0
        if of is not None:
            of_bytes = sum(map(itemgetter(1), of)) / sum(map(itemgetter(1), traces))
            of_blocks = len(of) / len(traces)
        for number, (size, blocks) in by_traceback.items():
            line = self.line_of(tracebacks[number])
            before = sums.get(line, (0, 0))
            sums[line] = before[0] + round(size * of_bytes), before[1] + round(blocks * of_blocks)

    def line_of(self, traceback: Traceback) -> AllocatedLine:
        """The line of the user's code that allocated."""
        best, best_owner = ANY_OWN_LINE, OWN
        for file, line in traceback:
            owner = owner_of_file(file)
            if owner < best_owner:
                best = ANY_LINE_OF_DASK if owner == OF_DASK else AllocatedLine(file, line)
                best_owner = owner
            if owner == USER or (owner == OWN and best_owner == OWN):
                # What this package allocates when the user's code calls it is its own.
                break
        return best


def _traces_of(snapshot: tracemalloc.Snapshot) -> list[Trace]:
    """Its traces as they are; the objects that it makes of them take longer than all else."""
    traces: list[Trace] | None = getattr(snapshot.traces, "_traces", None)
    if traces is not None:
        return traces
    return [
        (0, trace.size, tuple((frame.filename, frame.lineno) for frame in trace.traceback)[::-1], 0)
        for trace in snapshot.traces
    ]
