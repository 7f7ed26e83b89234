"""The stacks of tasks as one tree, and for how long each was seen, cycle by cycle.

What is kept grows with the distinct stacks and with the cycles in which they were seen, not with
the samples. Where there are too many cycles every two neighbours become one.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from dask_diag.capture.watching.walker import Line, Stack

__all__ = ["NOT_SAMPLED", "Seen", "Snapshot", "Stacks"]

NOT_SAMPLED = -1
"""In place of a node, for time in which no stack was read."""

MOST_CYCLES = 1000
MOST_CELLS = 400_000
FEWEST_CYCLES = 16
"""Cycles that are never merged, however many cells they have."""
MOST_NODES = 100_000
"""Nodes of the tree; beyond, calls count to the innermost caller that has one."""
_OPEN_CYCLES = 4

Cells = dict[tuple[int, int], list[float]]
"""By function of tasks and node: seconds, CPU seconds, and how often it was seen."""


class Seen(NamedTuple):
    """What a worker process tells of a task: when, where (no lines: not seen), and for how long."""

    time: float
    lines: tuple[Line, ...]
    seconds: float
    cpu: float
    looks: float


def spread(time: float, seconds: float, cycle: float) -> list[tuple[float, float]]:
    """A time in each cycle among which the `seconds` up to `time` are, and the share of each.

    The last comes first; a small part of a cycle is not divided.
    """
    first, last = int((time - seconds) // cycle), int(time // cycle)
    if first == last or seconds <= cycle / 4:
        return [(time, 1.0)]
    edges = [time, *(number * cycle for number in range(last, first, -1)), time - seconds]
    return [((end + begin) / 2, (end - begin) / seconds) for end, begin in pairwise(edges)]


class Packed:
    """The cells of a cycle that is over, in little memory."""

    __slots__ = ("counts", "cpu", "functions", "nodes", "seconds")

    def __init__(self, cells: Cells) -> None:
        self.functions = array("I", (function for function, _ in cells))
        self.nodes = array("i", (node for _, node in cells))
        self.seconds = array("d", (seconds for seconds, _, _ in cells.values()))
        self.cpu = array("d", (cpu for _, cpu, _ in cells.values()))
        self.counts = array("I", (int(count) for _, _, count in cells.values()))

    def __len__(self) -> int:
        return len(self.nodes)

    def cells(self) -> Cells:
        """What it was made of."""
        places = zip(self.functions, self.nodes, strict=True)
        values = map(list, zip(self.seconds, self.cpu, self.counts, strict=True))
        return dict(zip(places, values, strict=True))


class Snapshot(NamedTuple):
    """All that was kept: `cycles` are numbers, which times `cycle` are when they start."""

    lines: list[Line]
    parents: array[int]
    line_of_node: array[int]
    functions: list[str]
    cycle: float
    cycles: dict[int, Packed]


class Stacks:
    """What was seen by one profiler.

    Parameters
    ----------
    cycle : float
        Seconds of which what was seen is taken together.

    Attributes
    ----------
    late : int
        How many looks came far too late.
    latest : float
        The longest time, in seconds, since the look before.
    cut : int
        How many looks saw calls for which there was no room.
    """

    def __init__(self, cycle: float) -> None:
        self.cycle = cycle
        self.late = 0
        self.latest = 0.0
        self._late_at = 0.0
        self.cut = 0
        self._lock = threading.Lock()
        self._lines: dict[Line, int] = {}
        self._children: dict[int, int] = {}
        self._parents = array("i")
        self._line_of_node = array("I")
        self._functions: dict[str, int] = {}
        self._open: dict[int, Cells] = {}
        self._closed: dict[int, Packed] = {}
        self._packed = 0

    def see(self, time: float, function: str, stack: Stack, seconds: float, cpu: float) -> None:
        """Count a look at a task that stands for so many seconds, `cpu` of them CPU seconds."""
        with self._lock:
            node = stack.nodes.get(self)
            if node is None:
                node = stack.nodes[self] = self._node_of(stack.lines)
            cells = self._open.get(int(time // self.cycle))
            cell = None if cells is None else cells.get((self._functions.get(function, -1), node))
            if cell is None or seconds > self.cycle / 4:
                self._add(time, function, node, (seconds, cpu, 1))
            else:
                cell[0] += seconds
                cell[1] += cpu
                cell[2] += 1

    def miss(self, time: float, function: str, seconds: float) -> None:
        """Count seconds of a task that ended before it was looked at again."""
        with self._lock:
            self._add(time, function, NOT_SAMPLED, (seconds, 0.0, 0))

    def take(self, function: str, seen: Iterable[Seen]) -> None:
        """Count what a worker process saw of a task."""
        with self._lock:
            for time, lines, seconds, cpu, looks in seen:
                node = self._node_of(lines)
                self._add(time, function, node, (seconds, cpu, looks))

    def tell_late(self, time: float, seconds: float) -> None:
        """Count a look that came so long after the one before; at one time there is only one."""
        with self._lock:
            self.late += time != self._late_at
            self._late_at = time
            self.latest = max(self.latest, seconds)

    def forget(self, before: float) -> None:
        """Forget the cycles that ended before a time."""
        with self._lock:
            self._close_all()
            number = int(before // self.cycle)
            self._closed = {n: packed for n, packed in self._closed.items() if n >= number}
            self._packed = sum(map(len, self._closed.values()))

    def snapshot(self) -> Snapshot:
        """A copy, to be read while more is seen."""
        with self._lock:
            self._close_all()
            return Snapshot(
                list(self._lines),
                self._parents[:],
                self._line_of_node[:],
                list(self._functions),
                self.cycle,
                dict(self._closed),
            )

    def _node_of(self, lines: Iterable[Line]) -> int:
        node = NOT_SAMPLED
        for line in lines:
            number = self._lines.setdefault(line, len(self._lines))
            place = (node + 1 << 32) + number
            below = self._children.get(place)
            if below is None:
                below = len(self._parents)
                if below >= MOST_NODES:
                    self.cut += 1
                    break
                self._children[place] = below
                self._parents.append(node)
                self._line_of_node.append(number)
            node = below
        return node

    def _add(self, time: float, function: str, node: int, values: Sequence[float]) -> None:
        seconds, cpu, looks = values
        code = self._functions.setdefault(function, len(self._functions))
        for then, share in spread(time, seconds, self.cycle):
            cells = self._open.get(int(then // self.cycle))
            if cells is None:
                cells = self._open_cycle_of(then)
            _add_to(cells, (code, node), (share * seconds, share * cpu, looks))
            looks = 0

    def _open_cycle_of(self, time: float) -> Cells:
        if len(self._open) >= _OPEN_CYCLES:
            self._close(next(iter(self._open)))
        while self._are_too_many():
            self._merge_neighbours()
        number = int(time // self.cycle)
        packed = self._closed.pop(number, None)
        if packed is None:
            return self._open.setdefault(number, {})
        self._packed -= len(packed)
        cells = self._open[number] = packed.cells()
        return cells

    def _close(self, number: int) -> None:
        packed = self._closed[number] = Packed(self._open.pop(number))
        self._packed += len(packed)

    def _close_all(self) -> None:
        for number in tuple(self._open):
            self._close(number)

    def _are_too_many(self) -> bool:
        cycles = len(self._closed) + len(self._open)
        return cycles >= MOST_CYCLES or (self._packed > MOST_CELLS and cycles > FEWEST_CYCLES)

    def _merge_neighbours(self) -> None:
        self._close_all()
        self.cycle *= 2
        merged: dict[int, Packed] = {}
        for number in sorted(self._closed):
            packed = self._closed.pop(number)
            other = merged.get(number // 2)
            if other is not None:
                cells = other.cells()
                for place, values in packed.cells().items():
                    _add_to(cells, place, values)
                packed = Packed(cells)
            merged[number // 2] = packed
        self._closed = merged
        self._packed = sum(map(len, merged.values()))


def _add_to(cells: Cells, place: tuple[int, int], values: Sequence[float]) -> None:
    cell = cells.get(place)
    if cell is None:
        cells[place] = list(values)
    else:
        cell[0] += values[0]
        cell[1] += values[1]
        cell[2] += values[2]
