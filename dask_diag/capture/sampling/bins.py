"""For how long each stack was sampled in a cycle, by the tasks that had it."""

from __future__ import annotations

from array import array
from collections.abc import Container, Hashable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeVar

from dask_diag.capture.tasks.keys import text_of_key
from dask_diag.schema import Root

__all__ = [
    "LONG",
    "NO_NODE",
    "Cells",
    "Group",
    "Packed",
    "Run",
    "add_to",
    "spread",
    "take_from",
]

NO_NODE = -1
"""In place of a node, for time in which no stack was read."""

LONG = 0.25
"""The part of a cycle from which on a task is tracked individually, by its key.

So a thread has at most five such tasks in a cycle, two of them at its ends, and what is kept stays
bounded by stacks and cycles, however many tasks there are.
"""
Location = TypeVar("Location")

_NOTHING = 1e-9
"""Seconds that rounding may leave where all that was added has been taken out again."""


class Group(NamedTuple):
    """The tasks whose samples go together; the key is text, and empty of several short ones.

    Samples of a thread outside tasks have a root of their own, and neither function nor key.
    """

    function: str
    key: str
    root: str = Root.TASKS


@lru_cache(maxsize=1000)
def _of_function(function: str) -> Group:
    return Group(function, "")


Cells = dict[tuple[Group, int], list[float]]
"""By group of tasks and node: seconds, CPU seconds, and how often it was seen."""


class Run:
    """One run of a task: its samples count to its function, and to its key once it is long.

    What was counted to the function is moved to the key when the task becomes long. So all samples
    of a long task are under its key at any time, in a live snapshot too.

    Attributes
    ----------
    group : Group
        To which its samples are counted now.
    seconds : float
        For how long it was sampled.
    so_far : dict or None
        What was counted to the group of its function, by the number of a cycle and a node. None
        once it is long.
    """

    __slots__ = ("_key", "group", "seconds", "so_far")

    def __init__(self, function: str, key: Hashable) -> None:
        self.group = _of_function(function)
        self._key = key
        self.seconds = 0.0
        self.so_far: dict[tuple[int, int], list[float]] | None = {}

    @classmethod
    def outside_tasks(cls, root: str) -> Run:
        """In place of a task, for samples of a thread that runs none."""
        run = cls("", "")
        run.group, run.so_far = Group("", "", root), None
        return run

    def track_individually(self) -> None:
        """Be a group of its own."""
        self.group = Group(self.group.function, text_of_key(self._key))
        self.so_far = None


def spread(time: float, seconds: float, cycle: float) -> list[tuple[float, float]]:
    """A time in each cycle among which the `seconds` up to `time` are, and the share of each.

    The last comes first; a small part of a cycle is not divided.
    """
    first, last = int((time - seconds) // cycle), int(time // cycle)
    if first == last or seconds < LONG * cycle:
        return [(time, 1.0)]
    edges = [time, *(number * cycle for number in range(last, first, -1)), time - seconds]
    return [((end + begin) / 2, (end - begin) / seconds) for end, begin in pairwise(edges)]


def add_to(cells: dict[Location, list[float]], location: Location, values: Sequence[float]) -> None:
    """Add seconds, CPU seconds and a number of samples to those at a location."""
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
    """Undo `add_to`; False if there is nothing, as it was forgotten."""
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


class Packed:
    """The cells of a cycle that is over, in little memory; `groups` are positions in `distinct`."""

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
        """What it was made of."""
        locations = zip(map(self.distinct.__getitem__, self.groups), self.nodes, strict=True)
        values = map(list, zip(self.seconds, self.cpu, self.counts, strict=True))
        return dict(zip(locations, values, strict=True))

    def seconds_by_key(self) -> dict[Group, float]:
        """The seconds of each group that is a task."""
        sums = [0.0] * len(self.distinct)
        for group, seconds in zip(self.groups, self.seconds, strict=True):
            sums[group] += seconds
        return {group: total for group, total in zip(self.distinct, sums, strict=True) if group.key}

    def without_keys(self, groups: Container[Group]) -> Packed:
        """The same, where what these groups have goes to that of their function."""
        cells: Cells = {}
        for (group, node), values in self.cells().items():
            add_to(cells, (group._replace(key="") if group in groups else group, node), values)
        return Packed(cells)
