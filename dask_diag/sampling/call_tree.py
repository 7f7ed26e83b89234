"""Stacks of tasks as one tree, with the seconds sampled in each cycle.

Memory grows with the distinct stacks and with the cycles in which they were sampled, not with the
samples or the tasks: only tasks that last for a good part of a cycle are tracked individually.
Where there are too many cycles every two neighbours become one.
"""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Container, Hashable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeVar
from weakref import WeakSet

from dask_diag.capture.keys import text_of_key
from dask_diag.capture.task import Line, StackSample
from dask_diag.model.codes import SENT_CODE, Root
from dask_diag.sampling.walker import Stack
from dask_diag.system.code import file_of_sent_code

NO_NODE = -1
"""In place of a node, for time in which no stack was read."""

LONG = 0.25
"""The part of a cycle from which on a task is tracked individually, by its key.

So a thread has at most five such tasks in a cycle, two of them at its ends, and what is kept stays
bounded by stacks and cycles, however many tasks there are.
"""
LOADED = "(loaded)"
"""Name of a last line with the hash of what is loaded; `first` is where the line is that loads.

`call` is the start of the task: a sample may be in several cycles.
"""
MOST_LOADED = 10_000
"""Loads that are remembered of a line."""
Location = TypeVar("Location")

_NOTHING = 1e-9
"""Seconds that rounding may leave where all that was added has been taken out again."""


class Group(NamedTuple):
    """Tasks whose samples are summed together; the key is empty for several short tasks.

    Samples of a thread outside tasks have a root of their own, and neither function nor key.
    """

    function: str
    key: str
    root: str = Root.TASKS


@lru_cache(maxsize=1000)
def _function_group(function: str) -> Group:
    return Group(function, "")


Cells = dict[tuple[Group, int], list[float]]
"""Seconds, CPU seconds and number of samples, by group of tasks and node."""


class Run:
    """A run of a task: its samples count to its function, and to its key once it is long.

    What was counted to the function is moved to the key when the task becomes long. So all samples
    of a long task are under its key at any time, in a live snapshot too.

    Attributes
    ----------
    group : Group
        To which its samples are counted now.
    seconds : float
        For how long it was sampled.
    counted : dict or None
        What was counted to the group of its function, by the number of a cycle and a node. None
        once it is long.
    """

    __slots__ = ("_key", "counted", "group", "seconds")

    def __init__(self, function: str, key: Hashable) -> None:
        self.group = _function_group(function)
        self._key = key
        self.seconds = 0.0
        self.counted: dict[tuple[int, int], list[float]] | None = {}

    @classmethod
    def outside_tasks(cls, root: str) -> Run:
        """Return a run for samples of a thread outside tasks."""
        run = cls("", "")
        run.group, run.counted = Group("", "", root), None
        return run

    def track_individually(self) -> None:
        """Count further samples to the key."""
        self.group = Group(self.group.function, text_of_key(self._key))
        self.counted = None


def spread(time: float, seconds: float, cycle: float) -> list[tuple[float, float]]:
    """Divide the `seconds` up to `time` among cycles: a time in each cycle, and its share.

    The last comes first; a small part of a cycle is not divided.
    """
    first, last = int((time - seconds) // cycle), int(time // cycle)
    if first == last or seconds < LONG * cycle:
        return [(time, 1.0)]
    edges = [time, *(number * cycle for number in range(last, first, -1)), time - seconds]
    return [((end + begin) / 2, (end - begin) / seconds) for end, begin in pairwise(edges)]


def add_to(cells: dict[Location, list[float]], location: Location, values: Sequence[float]) -> None:
    """Add seconds, CPU seconds and a number of samples to the cell at a location."""
    cell = cells.get(location)
    if cell is None:
        cells[location] = list(values)
    else:
        cell[0] += values[0]
        cell[1] += values[1]
        cell[2] += values[2]


def take_from(
    cells: dict[Location, list[float]], location: Location, values: Sequence[float]
) -> bool:
    """Undo `add_to`; False if the cell was forgotten."""
    cell = cells.get(location)
    if cell is None:
        return False
    # What was added in one order is taken out in another: rounding may leave less than nothing.
    cell[0] = max(cell[0] - values[0], 0.0)
    cell[1] = max(cell[1] - values[1], 0.0)
    cell[2] -= values[2]
    if cell[2] < 1 and cell[0] < _NOTHING:
        del cells[location]
    return True


class PackedCycle:
    """Cells of a closed cycle, packed into arrays; `groups` are positions in `distinct`."""

    __slots__ = ("counts", "cpu", "distinct", "groups", "nodes", "seconds")

    def __init__(self, cells: Cells) -> None:
        position = {group: n for n, group in enumerate(dict.fromkeys(group for group, _ in cells))}
        self.distinct = tuple(position)
        self.groups = array("I", (position[group] for group, _ in cells))
        self.nodes = array("i", (node for _, node in cells))
        self.seconds = array("d", (seconds for seconds, _, _ in cells.values()))
        self.cpu = array("d", (cpu for _, cpu, _ in cells.values()))
        self.counts = array("I", (int(count) for _, _, count in cells.values()))

    def __len__(self) -> int:
        return len(self.nodes)

    def cells(self) -> Cells:
        """Return the cells as a dict."""
        locations = zip(map(self.distinct.__getitem__, self.groups), self.nodes, strict=True)
        values = map(list, zip(self.seconds, self.cpu, self.counts, strict=True))
        return dict(zip(locations, values, strict=True))

    def seconds_by_key(self) -> dict[Group, float]:
        """Seconds of each group with a key."""
        sums = [0.0] * len(self.distinct)
        for group, seconds in zip(self.groups, self.seconds, strict=True):
            sums[group] += seconds
        return {group: total for group, total in zip(self.distinct, sums, strict=True) if group.key}

    def without_keys(self, groups: Container[Group]) -> PackedCycle:
        """Merge the cells of these groups into the groups of their functions."""
        cells: Cells = {}
        for (group, node), values in self.cells().items():
            add_to(cells, (group._replace(key="") if group in groups else group, node), values)
        return PackedCycle(cells)


MOST_CYCLES = 300
"""As many as a timeline shows well; all of them are written again whenever a recording is."""
MOST_CELLS = 400_000
FEWEST_CYCLES = 16
"""Cycles that are never merged, however many cells they have."""
MOST_NODES = 100_000
"""Nodes of the tree; beyond, calls count to the innermost caller that has one."""
_OPEN_CYCLES = 4


class Snapshot(NamedTuple):
    """A copy of all samples; a cycle starts at its number times `cycle`."""

    lines: list[Line]
    parents: array[int]
    line_of_node: array[int]
    cycle: float
    cycles: dict[int, PackedCycle]
    calls: list[tuple[int, str, int, int]]
    """Rows of `IoCalls`."""


def _known_here(line: Line) -> Line:
    """A line of code that was pickled, with the file that the program has here."""
    if line.file != SENT_CODE:
        return line
    return line._replace(file=file_of_sent_code(line.name, line.first))


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
        Number of late samples.
    longest_gap : float
        The longest time, in seconds, since the sample before.
    cut : int
        Number of samples with calls that exceed the limit of the tree.
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
        self._loads: dict[Line, set[Line]] = {}
        self._children: dict[int, int] = {}
        self._parents = array("i")
        self._line_of_node = array("I")
        self._open: dict[int, Cells] = {}
        self._closed: dict[int, PackedCycle] = {}
        self._packed_cells = 0
        _all.add(self)

    def renew_lock(self) -> None:
        """Replace the lock in the child of a fork, where its owner may be missing."""
        self._lock = threading.Lock()

    def see(self, time: float, run: Run, stack: Stack, seconds: float, cpu: float) -> None:
        """Count a sample of a task: its seconds, and how many of them are CPU seconds."""
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
        """Count the samples that a worker process took of a task.

        It has divided them among cycles: each is of the cycle that its time is in.
        """
        with self._lock:
            is_long = sum(seconds for _, _, seconds, _, _ in samples) >= LONG * self.cycle
            group = Group(function, text_of_key(key) if is_long else "")
            for time, lines, seconds, cpu, count in samples:
                location = group, self._node_of(lines)
                add_to(self._cells_at(time), location, (seconds, cpu, count))

    def note_late(self, time: float, seconds: float) -> None:
        """Count a late sample, `seconds` after the one before; once for each time."""
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
                [*map(_known_here, self._lines)],
                self._parents[:],
                self._line_of_node[:],
                self.cycle,
                dict(self._closed),
                [
                    (number, line.call, len(known), len(known) - len({one.line for one in known}))
                    for line, number in self._lines.items()
                    if line.call
                    for known in [self._loads.get(line, ())]
                ],
            )

    def _node_of(self, lines: Sequence[Line]) -> int:
        node = NO_NODE
        for line in lines:
            if line.name == LOADED:
                known = self._loads.setdefault(lines[line.first], set())
                if len(known) < MOST_LOADED:
                    known.add(line)
                break
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
        if run.counted is not None:
            if run.seconds < LONG * self.cycle:
                # Cycles may merge meanwhile: the finest are parts of whatever they are by then.
                add_to(run.counted, (int(time // self.finest), node), values)
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
        """Move the samples of a run from its function to its key."""
        # What was counted before to the function has to follow: else a long task's first quarter of
        # a cycle would look like that of many short ones.
        before, counted = run.group, run.counted or {}
        run.track_individually()
        for (number, node), values in counted.items():
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
        packed = self._closed[number] = PackedCycle(self._open.pop(number))
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
        merged: dict[int, PackedCycle] = {}
        for number in sorted(self._closed):
            packed = self._closed.pop(number)
            other = merged.get(number // 2)
            if other is not None:
                cells = other.cells()
                for location, values in packed.cells().items():
                    add_to(cells, location, values)
                packed = PackedCycle(cells)
            merged[number // 2] = packed
        self._closed = self._without_short_tasks(merged)
        self._packed_cells = sum(map(len, self._closed.values()))

    def _without_short_tasks(self, cycles: dict[int, PackedCycle]) -> dict[int, PackedCycle]:
        """Count tasks that are short in longer cycles to their functions.

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
