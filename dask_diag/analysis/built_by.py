"""Seconds of work by the line of the user's program that built it.

A collection of dask is built on one line and computed on another, and dask names a fused task after
some of its steps. `Recording.steps` has the steps of each kind of tasks (group) with the line of
each. A group's measured seconds are divided among its steps as these were timed, so that the
seconds of all lines are the seconds of all tasks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.call_tree import innermost
from dask_diag.analysis.groups import distinct_pairs, table_of
from dask_diag.analysis.simulation.schedulers import result_sizes
from dask_diag.analysis.waits import cpu_and_noncpu
from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray
from dask_diag.errors import DiagnosticError
from dask_diag.model.codes import LineSource, Root
from dask_diag.model.recording import Recording, Sources, recording_of
from dask_diag.model.table import Table
from dask_diag.model.tables import Lines, Steps

BY = ("line", "script")
_FUNCTIONS_NAMED = 3
_BUILDING = (Root.BEFORE, Root.GRAPH, Root.BETWEEN)


class Place(NamedTuple):
    """A line of the user's program; without a number, work whose line is unknown."""

    file: str
    line: int
    text: str

    @property
    def name(self) -> str:
        """Such as ``analysis.py:12``, or the text of work whose line is unknown."""
        # The reader knows where the own files are.
        return f"{os.path.basename(self.file)}:{self.line}" if self.line else self.text

    @property
    def in_words(self) -> str:
        """The name, and the text of a line."""
        return f"{self.name}  {self.text}" if self.line else self.text


BUILT_BEFORE = Place("", 0, "(built before the recording)")
UNKNOWN = Place("", 0, "(line unknown)")
HOW_TO_RECORD_BUILDING = (
    "start recording before the collections are built: around the whole program (dask-diag run, "
    "%%diag), or `with record(...)` from the first line that uses dask"
)


class BuiltBy:
    """Which share of the tasks of each group each line built.

    Parameters
    ----------
    lines, steps : Lines, Steps
        Of a recording.
    groups : array of int
        The group of each task.
    by : {"line", "script"}
        The innermost line of the user's, or the outermost: that of the script or the cell, which
        called helpers.

    Attributes
    ----------
    heads : array of int
        For each row of `Recording.lines` the row of the line that has its work.
    builders : array of int
        Rows of `Recording.lines` that called dask.
    places : list of Place
        Lines, and then `BUILT_BEFORE` and `UNKNOWN`.
    place_of_row : array of int
        The place of each row of `Recording.lines`; that of unknown lines at the end.
    """

    def __init__(self, lines: Lines, steps: Steps, groups: IntArray, by: str = "line") -> None:
        self._groups_of_tasks = groups
        self.heads = _heads(lines) if by == "script" else np.arange(len(lines))
        places = [
            Place(cell or file, line, text.strip())
            for file, cell, line, text in lines.tuples("file", "cell", "line", "text")
        ]
        rows = [places[head] for head in self.heads.tolist()]
        self.places = [*dict.fromkeys(rows), BUILT_BEFORE, UNKNOWN]
        number = {place: n for n, place in enumerate(self.places)}
        self.place_of_row = np.array([number[place] for place in (*rows, UNKNOWN)], np.int64)
        self._steps = steps = _summed(steps)
        known = (steps.line >= -1) & (steps.line < len(rows))
        self._place = self.place_of_row[np.where(known, steps.line, -1)]
        self._place[steps.how.eq(LineSource.BEFORE) & (steps.line < 0)] = number[BUILT_BEFORE]
        # A name such as `wrapper` is no name of a function that was called.
        of_steps = np.isin(np.arange(len(rows)), steps.line)
        self.builders = np.flatnonzero(of_steps | ~lines.called.eq(""))
        self._group = steps.group
        self._has_steps = np.isin(groups, self._group)
        self._groups = 1 + int(self._group.max(initial=-1))
        self._shares = _shares(self._group, steps.seconds)
        waiting = np.maximum(steps.seconds - steps.cpu_seconds, 0.0)
        self._cpu_shares = _shares(self._group, steps.cpu_seconds, self._shares)
        self._wait_shares = _shares(self._group, waiting, self._shares)

    @classmethod
    def of(cls, recording: Recording, by: str = "line") -> BuiltBy:
        """The lines of a recording."""
        return cls(recording.lines, recording.steps, recording.tasks.group, by)

    def sums(self, amounts: FloatArray | BoolArray) -> FloatArray:
        """The part of the sum of amounts of tasks that each line has; NaN counts as 0."""
        return self._sums(amounts, self._shares)

    def cpu_sums(self, cpu: FloatArray) -> FloatArray:
        """The same of CPU seconds, divided by the CPU seconds of steps; NaN where none is known."""
        return self._known_sums(cpu, self._cpu_shares)

    def wait_sums(self, waits: FloatArray) -> FloatArray:
        """The same of seconds off the CPU."""
        return self._known_sums(waits, self._wait_shares)

    def known_sums(self, amounts: FloatArray) -> FloatArray:
        """The same as `sums`; NaN where no amount is known."""
        return self._known_sums(amounts, self._shares)

    def counts(self) -> IntArray:
        """The number of tasks with a step of each line."""
        group, place, _ = distinct_pairs(self._group, self._place)
        tasks = np.bincount(self._groups_of_tasks[self._has_steps], minlength=self._groups)
        counts = np.bincount(place, tasks[group], len(self.places)).astype(np.int64)
        counts[-1] += int((~self._has_steps).sum())
        return counts

    def steps_of(self, place: int, seconds: FloatArray) -> list[tuple[str, float]]:
        """The functions of the steps of a place, and their seconds, the longest first."""
        of_place = np.flatnonzero(self._place == place)
        of_group = self._by_group(seconds)
        names = self._steps.function[of_place]
        parts = of_group[self._group[of_place]] * self._shares[of_place]
        sums = np.bincount(names.codes, parts, len(names.values))
        present = dict.fromkeys(names.codes[np.argsort(-sums[names.codes], kind="stable")].tolist())
        return [(names.values[code], float(sums[code])) for code in present]

    def groups_of(self, place: int, seconds: FloatArray) -> list[int]:
        """The groups with a step of a place, that with most seconds of the place first."""
        of_place = np.flatnonzero(self._place == place)
        parts = self._by_group(seconds)[self._group[of_place]] * self._shares[of_place]
        order = of_place[np.argsort(-parts, kind="stable")]
        return list(dict.fromkeys(self._group[order].tolist()))

    def main_lines(self) -> Categorical:
        """For each task the name of the line with most of its seconds; empty if unknown."""
        group, place, row = distinct_pairs(self._group, self._place)
        order = np.argsort(np.bincount(row, self._shares, len(group)), kind="stable")
        largest = np.full(self._groups + 1, len(self.places) - 1)
        # The last one of a group stays.
        largest[group[order]] = place[order]
        of_tasks = np.where(self._has_steps, self._groups_of_tasks, -1)
        names = Categorical.of(place.name if place.line else "" for place in self.places)
        return Categorical(names.codes[largest[of_tasks]], names.values)

    def _by_group(self, amounts: FloatArray | BoolArray) -> FloatArray:
        known = self._has_steps
        groups, filled = self._groups_of_tasks[known], np.nan_to_num(amounts[known])
        return np.bincount(groups, filled, self._groups).astype(float)

    def _sums(self, amounts: FloatArray | BoolArray, shares: FloatArray) -> FloatArray:
        parts = self._by_group(amounts)[self._group] * shares
        sums = np.bincount(self._place, parts, len(self.places)).astype(float)
        sums[-1] += float(np.nansum(amounts[~self._has_steps]))
        return sums

    def _known_sums(self, amounts: FloatArray, shares: FloatArray) -> FloatArray:
        known = self._sums(~np.isnan(amounts), np.ones(len(self._group)))
        return np.where(known > 0, self._sums(amounts, shares), np.nan)


def lines(source: Sources, by: str = "line") -> Table:
    """Seconds of tasks by the line of your program that built them.

    Parameters
    ----------
    source : Recording, profiler, or list of these
        Measurements of a `Profiler`. Several are combined.
    by : {"line", "script"}, default "line"
        One row per line that called dask; or per line of the script or cell, with all that it
        called: the lines of helpers are folded into their callers.

    Returns
    -------
    Table
        The largest ``seconds`` first; without rows if no lines were recorded.

        * ``file``; ``line``: 0 if unknown; ``text``: source of the line, or why it is unknown, such
          as "(built before the recording)".
        * ``tasks``: number of tasks with work of the line; a fused task counts for each.
        * ``seconds``, ``cpu_seconds`` and ``waits`` (seconds off the CPU) of tasks. Those of a
          fused task are divided among its steps in proportion to the measured times of the steps,
          so that lines sum to all tasks.
        * ``built_seconds``: seconds in which the line itself ran, to build or optimize a graph;
          NaN without stack samples.
        * ``bytes``: bytes of results; NaN if not measured.
        * ``functions``: the line's largest functions.

    Raises
    ------
    DiagnosticError
        If `by` is unknown.

    See Also
    --------
    hottest_lines : Lines of code that ran, from samples of stacks.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_diag import Profiler, lines
    >>> with Profiler() as prof:
    ...     total = da.ones((500, 500), chunks=(250, 250)).sum().compute()
    >>> lines(prof).columns[:5]
    ('file', 'line', 'text', 'tasks', 'seconds')
    """
    if by not in BY:
        raise DiagnosticError(f"by: expected 'line' or 'script', found {by!r}")
    recording = recording_of(source)
    return table_of_lines(recording, BuiltBy.of(recording, by), result_sizes(recording))


def table_of_lines(recording: Recording, built: BuiltBy, sizes: FloatArray | None = None) -> Table:
    """The table of `lines`; bytes are unknown without the `sizes` of results."""
    tasks = recording.tasks
    wall = tasks.stop - tasks.start
    cpu, noncpu = cpu_and_noncpu(recording)
    seconds, counts = built.sums(wall), built.counts()
    building = seconds_building(recording, built)
    unmeasured = np.full(len(tasks), np.nan)
    # Without steps no line is known: a table of one unknown line would say nothing.
    is_present = ((counts > 0) | (np.nan_to_num(building) > 0)) & (len(recording.steps) > 0)
    order = np.argsort(-(seconds + np.nan_to_num(building) * 1e-9), kind="stable")
    order = order[is_present[order]]
    places = [built.places[n] for n in order.tolist()]
    table = Table(
        {
            "file": Categorical.of(place.file for place in places),
            "line": np.array([place.line for place in places], np.int64),
            "text": Categorical.of(place.text for place in places),
            "tasks": counts[order],
            "seconds": seconds[order],
            "cpu_seconds": built.cpu_sums(cpu)[order],
            "built_seconds": building[order],
            "bytes": built.known_sums(unmeasured if sizes is None else sizes)[order],
            "waits": built.wait_sums(noncpu)[order],
            "functions": Categorical.of(
                named(name for name, _ in built.steps_of(n, wall)) for n in order.tolist()
            ),
        }
    )
    units = dict.fromkeys(("seconds", "cpu_seconds", "built_seconds", "waits"), "s")
    return table.in_units(**units, bytes="bytes")


def changes_of_lines(before: Recording, after: Recording) -> Table:
    """Seconds of lines in two recordings, the largest change first.

    Lines move when a program is edited: a line is the same by the name of its file and its text.
    """
    both: dict[tuple[str, str], list[float]] = {}
    places: dict[tuple[str, str], Place] = {}
    for side, recording in enumerate((before, after)):
        rows = table_of_lines(recording, BuiltBy.of(recording))
        for file, line, text, seconds in rows.tuples("file", "line", "text", "seconds"):
            same = os.path.basename(file), text
            places[same] = Place(file, line, text)
            both.setdefault(same, [0.0, 0.0])[side] += seconds
    order = sorted(both, key=lambda same: -abs(both[same][1] - both[same][0]))
    return table_of(
        [(*places[same], *both[same]) for same in order],
        file=str,
        line=int,
        text=str,
        seconds_before=float,
        seconds_after=float,
    )


def named(functions: Iterable[str]) -> str:
    """The first functions, in one text."""
    listed = list(functions)
    return ", ".join(listed[:_FUNCTIONS_NAMED] + ["…"] * (len(listed) > _FUNCTIONS_NAMED))


def seconds_building(
    recording: Recording, built: BuiltBy, chosen: BoolArray | None = None
) -> FloatArray:
    """Seconds in which each line built or optimized a graph; NaN without stack samples.

    A sample outside tasks is of the innermost of these lines on its stack, whatever that called:
    dask may call the user's function to learn the type of its result. `chosen` are the samples, by
    default all outside tasks and the scheduler.
    """
    samples, tree, frames = recording.samples, recording.call_tree, recording.frames
    if not len(samples):
        return np.full(len(built.places), np.nan)
    lines = recording.lines
    builders = built.builders
    heads = built.heads[builders]
    at = list(lines.tuples("file", "line"))
    place_at = {
        at[head]: place for head, place in zip(heads, built.place_of_row[heads], strict=True)
    }
    building_at = {at[row] for row in builders}
    sampled = list(frames.tuples("file", "line"))
    places = np.array([place_at.get(line, -1) for line in sampled], np.int64)
    is_builder = np.array([line in building_at for line in sampled], bool)
    building = innermost(tree.parent, is_builder[tree.frame])
    head = np.append(innermost(tree.parent, places[tree.frame] >= 0), -1)[building]
    place = np.append(np.append(places[tree.frame], -1)[head], -1)[samples.node]
    chosen = (samples.root.is_in(_BUILDING) if chosen is None else chosen) & (place >= 0)
    weights = samples.seconds[chosen]
    return np.bincount(place[chosen], weights, len(built.places)).astype(float)


def _heads(lines: Lines) -> IntArray:
    """The outermost caller of each row of `Recording.lines`."""
    heads: list[int] = []
    for row, caller in enumerate(lines.caller.tolist()):
        # A line comes after its caller.
        heads.append(heads[caller] if 0 <= caller < row else row)
    return np.array(heads, np.int64)


def _summed(steps: Steps) -> Steps:
    """A row per group, function, line and source: several rows of a step count together."""
    steps = steps.filter(steps.group >= 0)
    kinds = Categorical.of(steps.tuples("group", "function", "line", "how"))
    values = list(zip(*kinds.values, strict=True)) or [()] * 4
    sums = {}
    for name in ("seconds", "cpu_seconds"):
        known = ~np.isnan(steps[name])
        amounts = np.bincount(kinds.codes[known], steps[name][known], len(kinds.values))
        is_known = np.bincount(kinds.codes, known, len(kinds.values)) > 0
        sums[name] = np.where(is_known, amounts, np.nan)
    return Steps(
        {
            "group": np.array(values[0], np.int64),
            "function": Categorical.of(values[1]),
            "line": np.array(values[2], np.int64),
            "how": Categorical.of(values[3]),
            **sums,
            "timed": np.bincount(kinds.codes, steps.timed, len(kinds.values)).astype(np.int64),
        }
    )


def _shares(group: IntArray, amounts: FloatArray, instead: FloatArray | None = None) -> FloatArray:
    """The share that each step has of its group: by amounts.

    Where amounts are unknown, or all 0, it is the share in `instead`, or all steps are equal.
    """
    groups = 1 + int(group.max(initial=-1))
    unknown = np.bincount(group, np.isnan(amounts), groups) > 0
    totals = np.bincount(group, np.nan_to_num(amounts), groups)
    if instead is None:
        instead = 1.0 / np.bincount(group, minlength=groups)[group]
    measured = (~unknown & (totals > 0))[group]
    return np.where(measured, amounts / np.where(totals > 0, totals, 1.0)[group], instead)
