"""The stacks of tasks as one tree, and for how long each was seen, cycle by cycle.

Memory grows with the distinct stacks and with the cycles in which they were sampled, not with the
samples or the tasks: only tasks that last for a good part of a cycle are tracked individually.
Where there are too many cycles every two neighbours become one.
"""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple
from weakref import WeakSet

from dask_diag.capture.sampling.bins import (
    LONG,
    NO_NODE,
    Cells,
    Group,
    Packed,
    Run,
    add_to,
    spread,
    take_from,
)
from dask_diag.capture.sampling.stack_sample import Line, StackSample
from dask_diag.capture.sampling.stack_walker import Stack
from dask_diag.capture.tasks.keys import text_of_key

__all__ = ["Snapshot", "Stacks"]

MOST_CYCLES = 300
"""As many as a timeline shows well; all of them are written again whenever a recording is."""
MOST_CELLS = 400_000
FEWEST_CYCLES = 16
"""Cycles that are never merged, however many cells they have."""
MOST_NODES = 100_000
"""Nodes of the tree; beyond, calls count to the innermost caller that has one."""
_OPEN_CYCLES = 4


class Snapshot(NamedTuple):
    """All that was sampled: `cycles` are numbers, which times `cycle` are when they start."""

    lines: list[Line]
    parents: array[int]
    line_of_node: array[int]
    cycle: float
    cycles: dict[int, Packed]


class Stacks:
    """The samples of one profiler.

    Parameters
    ----------
    cycle : float
        Seconds of which samples are summed up.

    Attributes
    ----------
    finest : float
        The seconds of a cycle before any were merged.
    late : int
        How many samples came far too late.
    longest_gap : float
        The longest time, in seconds, since the sample before.
    cut : int
        How many samples had calls that the tree had no space for.
    """

    def __init__(self, cycle: float) -> None:
        self.cycle = cycle
        self.finest = cycle
        self.late = 0
        self.longest_gap = 0.0
        self._late_at = 0.0
        self.cut = 0
        self._lock = threading.Lock()
        self._lines: dict[Line, int] = {}
        self._children: dict[int, int] = {}
        self._parents = array("i")
        self._line_of_node = array("I")
        self._open: dict[int, Cells] = {}
        self._closed: dict[int, Packed] = {}
        self._packed_cells = 0
        _all.add(self)

    def renew_lock(self) -> None:
        """Free it in the child of a fork, which lacks the thread that may have had it."""
        self._lock = threading.Lock()

    def see(self, time: float, run: Run, stack: Stack, seconds: float, cpu: float) -> None:
        """Count a sample of a task that represents so many seconds, `cpu` of them CPU seconds."""
        with self._lock:
            node = stack.nodes.get(self)
            if node is None:
                node = stack.nodes[self] = self._node_of(stack.lines)
            self._count(time, run, node, (seconds, cpu, 1))

    def miss(self, time: float, run: Run, seconds: float) -> None:
        """Count seconds of a task that ended before it was sampled again."""
        with self._lock:
            self._count(time, run, NO_NODE, (seconds, 0.0, 0))

    def take(self, function: str, key: Hashable, samples: Sequence[StackSample]) -> None:
        """Count the samples that a worker process took of a task, from its start to its stop.

        It has divided them among cycles: each is of the cycle that its time is in.
        """
        with self._lock:
            is_long = sum(seconds for _, _, seconds, _, _ in samples) >= LONG * self.cycle
            group = Group(function, text_of_key(key) if is_long else "")
            for time, lines, seconds, cpu, count in samples:
                location = group, self._node_of(lines)
                add_to(self._cells_at(time), location, (seconds, cpu, count))

    def note_late(self, time: float, seconds: float) -> None:
        """Count a sample taken so long after the one before; at one time there is only one."""
        with self._lock:
            self.late += time != self._late_at
            self._late_at = time
            self.longest_gap = max(self.longest_gap, seconds)

    def forget(self, before: float) -> None:
        """Forget the cycles that ended before a time."""
        with self._lock:
            self._close_all()
            number = int(before // self.cycle)
            self._closed = {n: packed for n, packed in self._closed.items() if n >= number}
            self._packed_cells = sum(map(len, self._closed.values()))

    def snapshot(self) -> Snapshot:
        """A copy, to be read while more is sampled."""
        with self._lock:
            self._close_all()
            return Snapshot(
                list(self._lines),
                self._parents[:],
                self._line_of_node[:],
                self.cycle,
                dict(self._closed),
            )

    def _node_of(self, lines: Iterable[Line]) -> int:
        node = NO_NODE
        for line in lines:
            number = self._lines.setdefault(line, len(self._lines))
            # Parent and line in one integer: a dict of integers takes less memory than one of
            # pairs. Parents start at -1, so one is added.
            edge = (node + 1 << 32) + number
            below = self._children.get(edge)
            if below is None:
                below = len(self._parents)
                if below >= MOST_NODES:
                    self.cut += 1
                    break
                self._children[edge] = below
                self._parents.append(node)
                self._line_of_node.append(number)
            node = below
        return node

    def _count(self, time: float, run: Run, node: int, values: Sequence[float]) -> None:
        seconds = values[0]
        run.seconds += seconds
        if run.so_far is not None:
            if run.seconds < LONG * self.cycle:
                # Cycles may merge meanwhile: the finest are parts of whatever they are by then.
                add_to(run.so_far, (int(time // self.finest), node), values)
            else:
                self._track_individually(run)
        group = run.group
        cells = self._open.get(int(time // self.cycle))
        cell = None if cells is None else cells.get((group, node))
        if cell is None or seconds >= LONG * self.cycle:
            self._add(time, group, node, values)
        else:
            cell[0] += seconds
            cell[1] += values[1]
            cell[2] += values[2]

    def _track_individually(self, run: Run) -> None:
        """Move what was seen of a task, in parts too small to be spread, to a group of its own."""
        # What was counted before to the function has to follow: else a long task's first quarter of
        # a cycle would look like that of many short ones.
        before, so_far = run.group, run.so_far or {}
        run.track_individually()
        for (number, node), values in so_far.items():
            cells = self._cells_at((number + 0.5) * self.finest)
            if take_from(cells, (before, node), values):
                add_to(cells, (run.group, node), values)

    def _add(self, time: float, group: Group, node: int, values: Sequence[float]) -> None:
        seconds, cpu, count = values
        for then, share in spread(time, seconds, self.cycle):
            add_to(self._cells_at(then), (group, node), (share * seconds, share * cpu, count))
            count = 0

    def _cells_at(self, time: float) -> Cells:
        cells = self._open.get(int(time // self.cycle))
        return self._open_cycle_of(time) if cells is None else cells

    def _open_cycle_of(self, time: float) -> Cells:
        if len(self._open) >= _OPEN_CYCLES:
            self._close(next(iter(self._open)))
        # Checked only where a cycle is opened, so that most samples pay nothing for it.
        while self._are_too_many():
            self._merge_neighbours()
        number = int(time // self.cycle)
        packed = self._closed.pop(number, None)
        if packed is None:
            return self._open.setdefault(number, {})
        self._packed_cells -= len(packed)
        cells = self._open[number] = packed.cells()
        return cells

    def _close(self, number: int) -> None:
        packed = self._closed[number] = Packed(self._open.pop(number))
        self._packed_cells += len(packed)

    def _close_all(self) -> None:
        for number in tuple(self._open):
            self._close(number)

    def _are_too_many(self) -> bool:
        cycles = len(self._closed) + len(self._open)
        return cycles >= MOST_CYCLES or (self._packed_cells > MOST_CELLS and cycles > FEWEST_CYCLES)

    def _merge_neighbours(self) -> None:
        self._close_all()
        # Cycles twice as long need half the memory: a long computation loses resolution in time,
        # never seconds.
        self.cycle *= 2
        merged: dict[int, Packed] = {}
        for number in sorted(self._closed):
            packed = self._closed.pop(number)
            other = merged.get(number // 2)
            if other is not None:
                cells = other.cells()
                for location, values in packed.cells().items():
                    add_to(cells, location, values)
                packed = Packed(cells)
            merged[number // 2] = packed
        self._closed = self._without_short_tasks(merged)
        self._packed_cells = sum(map(len, self._closed.values()))

    def _without_short_tasks(self, cycles: dict[int, Packed]) -> dict[int, Packed]:
        """The cycles, in which tasks that have become short are no longer tracked individually.

        A task that goes on in the cycle before or after has what it was seen there as well. The
        last two cycles stay, as their tasks may still run.
        """
        seconds = {number: packed.seconds_by_key() for number, packed in cycles.items()}
        remaining = dict(cycles)
        for number in sorted(cycles)[:-2]:
            near = [seconds.get(beside, {}) for beside in (number - 1, number, number + 1)]
            short = {
                group
                for group in seconds[number]
                if sum(seconds_of.get(group, 0.0) for seconds_of in near) < LONG * self.cycle
            }
            if short:
                remaining[number] = cycles[number].without_keys(short)
        return remaining


_all: WeakSet[Stacks] = WeakSet()


def _renew_locks() -> None:
    for stacks in tuple(_all):
        stacks.renew_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
