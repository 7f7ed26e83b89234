"""Seconds of work by the line of the user's program that built it.

A collection of dask is built on one line and computed on another, and dask names a fused task after
some of its steps. `Recording.steps` has the steps of each kind of tasks (group) with the line of
each. A group's measured seconds are divided among its steps as these were timed, so that the
seconds of all lines are the seconds of all tasks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

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
from dask_diag.model.tables import Lines, Steps, seconds_of_tasks

BY = ("line", "script")
SECONDS, CPU, WAITS, _ALL = "seconds", "cpu", "waits", "all"
_FUNCTIONS_NAMED = 3
_BUILDING = (Root.BEFORE, Root.GRAPH, Root.BETWEEN)


class SourceLine(NamedTuple):
    """A line of the user's program; without a number, work whose line is unknown."""

    file: str
    line: int
    text: str

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> SourceLine:
        """The line of a row of the table of `lines`."""
        return cls(row["file"], row["line"], row["text"])

    @property
    def name(self) -> str:
        """Such as ``analysis.py:12``, or the text of work whose line is unknown."""
        # The reader knows where the own files are.
        return f"{os.path.basename(self.file)}:{self.line}" if self.line else self.text

    @property
    def in_words(self) -> str:
        """The name, and the text of a line."""
        return f"{self.name}  {self.text}" if self.line else self.text


BUILT_BEFORE = SourceLine("", 0, "(built before the recording)")
UNKNOWN = SourceLine("", 0, "(line unknown)")
HOW_TO_RECORD_BUILDING = (
    "start recording before the collections are built: around the whole program (dask-diag run, "
    "%%diag), or `with record(...)` from the first line that uses dask; for cells of a notebook "
    "set diag.lines.capture to always"
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
    places : list of SourceLine
        Lines, and then `BUILT_BEFORE` and `UNKNOWN`.
    place_of_row : array of int
        The place of each row of `Recording.lines`; that of unknown lines at the end.
    """

    def __init__(self, lines: Lines, steps: Steps, groups: IntArray, by: str = "line") -> None:
        self._groups_of_tasks = groups
        self.heads = _heads(lines) if by == "script" else np.arange(len(lines))
        places = [
            SourceLine(cell or file, line, text.strip())
            for file, cell, line, text in lines.tuples("file", "cell", "line", "text")
        ]
        rows = [places[head] for head in self.heads.tolist()]
        self.places = [*dict.fromkeys(rows), BUILT_BEFORE, UNKNOWN]
        number = {place: n for n, place in enumerate(self.places)}
        self.place_of_row = np.array([number[place] for place in (*rows, UNKNOWN)], np.int64)
        # A name such as `wrapper` is no name of a function that was called.
        of_steps = np.isin(np.arange(len(rows)), steps.line)
        self.builders = np.flatnonzero(of_steps | ~lines.called.eq(""))
        # Of work that was planned and did not run there is no task.
        self._steps = steps = steps.filter(np.isin(steps.group, groups[groups >= 0]))
        known = (steps.line >= -1) & (steps.line < len(rows))
        self._place = self.place_of_row[np.where(known, steps.line, -1)]
        self._place[steps.how.eq(LineSource.BEFORE) & (steps.line < 0)] = number[BUILT_BEFORE]
        self._group = steps.group
        self._has_steps = np.isin(groups, self._group)
        self._groups = 1 + int(self._group.max(initial=-1))
        shares = _shares(self._group, steps.seconds)
        waits = np.maximum(steps.seconds - steps.cpu_seconds, 0.0)
        self._shares = {
            SECONDS: shares,
            CPU: _shares(self._group, steps.cpu_seconds, shares),
            WAITS: _shares(self._group, waits, shares),
            _ALL: np.ones(len(shares)),
        }

    @classmethod
    def of(cls, recording: Recording, by: str = "line") -> BuiltBy:
        """The lines of a recording."""
        return cls(recording.lines, recording.steps, recording.tasks.group, by)

    def sums(self, amounts: FloatArray | BoolArray, by: str = SECONDS) -> FloatArray:
        """The part of the sum of amounts of tasks that each line has; NaN counts as 0.

        Amounts of a fused task are divided in proportion to the seconds, `CPU` seconds or `WAITS`
        of its steps.
        """
        parts = self._by_group(amounts)[self._group] * self._shares[by]
        sums = np.bincount(self._place, parts, len(self.places)).astype(float)
        sums[-1] += float(np.nansum(amounts[~self._has_steps]))
        return sums

    def known_sums(self, amounts: FloatArray, by: str = SECONDS) -> FloatArray:
        """The same; NaN where no amount is known."""
        return np.where(self.sums(~np.isnan(amounts), _ALL) > 0, self.sums(amounts, by), np.nan)

    def counts(self) -> IntArray:
        """The number of tasks with a step of each line."""
        group, place, _ = distinct_pairs(self._group, self._place)
        tasks = np.bincount(self._groups_of_tasks[self._has_steps], minlength=self._groups)
        counts = np.bincount(place, tasks[group], len(self.places)).astype(np.int64)
        counts[-1] += int((~self._has_steps).sum())
        return counts

    def works(self, seconds: FloatArray) -> list[tuple[list[str], list[int]]]:
        """Functions and groups of the steps of each place, those with most of its seconds first."""
        parts = self._by_group(seconds)[self._group] * self._shares[SECONDS]
        order = np.argsort(-parts, kind="stable")
        places, groups = self._place[order].tolist(), self._group[order].tolist()
        works: list[tuple[dict[str, None], dict[int, None]]] = [({}, {}) for _ in self.places]
        functions = self._steps.function[order].tolist()
        for place, function, group in zip(places, functions, groups, strict=True):
            works[place][0][function] = works[place][1][group] = None
        return [(list(functions), list(groups)) for functions, groups in works]

    def main_lines(self) -> Categorical:
        """For each task the name of the line with most of its seconds; empty if unknown."""
        group, place, row = distinct_pairs(self._group, self._place)
        order = np.argsort(np.bincount(row, self._shares[SECONDS], len(group)), kind="stable")
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
    wall = seconds_of_tasks(tasks)
    cpu, noncpu = cpu_and_noncpu(recording)
    seconds, counts = built.sums(wall), built.counts()
    building = seconds_building(recording, built)
    unmeasured = np.full(len(tasks), np.nan)
    # Without steps no line is known: a table of one unknown line would say nothing.
    is_present = ((counts > 0) | (np.nan_to_num(building) > 0)) & (len(recording.steps) > 0)
    order = np.argsort(-seconds, kind="stable")
    order = order[is_present[order]]
    places, works = [built.places[n] for n in order.tolist()], built.works(wall)
    table = Table(
        {
            "file": Categorical.of(place.file for place in places),
            "line": np.array([place.line for place in places], np.int64),
            "text": Categorical.of(place.text for place in places),
            "tasks": counts[order],
            "seconds": seconds[order],
            "cpu_seconds": built.known_sums(cpu, CPU)[order],
            "built_seconds": building[order],
            "bytes": built.known_sums(unmeasured if sizes is None else sizes)[order],
            "waits": built.known_sums(noncpu, WAITS)[order],
            "functions": Categorical.of(
                ", ".join(works[n][0][:_FUNCTIONS_NAMED]) for n in order.tolist()
            ),
        }
    )
    units = dict.fromkeys(("seconds", "cpu_seconds", "built_seconds", "waits"), "s")
    return table.in_units(**units, bytes="bytes")


def seconds_by_text(
    recording: Recording, of: str = "seconds"
) -> dict[str, tuple[SourceLine, float]]:
    """The last line, and the seconds of all, by the names of files and the text; cells by the text.

    `of` is a column of `lines`.
    """
    found: dict[str, tuple[SourceLine, float]] = {}
    rows = table_of_lines(recording, BuiltBy.of(recording))
    # A cell has another name each time that it runs.
    cells = {*recording.lines.cell.values} - {""}
    for file, line, text, seconds in rows.tuples("file", "line", "text", of):
        same = f"{os.path.basename(file)}: {text}" if line and file not in cells else text
        _, before = found.get(same, (UNKNOWN, 0.0))
        found[same] = SourceLine(file, line, text), before + float(np.nan_to_num(seconds))
    return found


def changes_of_lines(before: Recording, after: Recording) -> Table:
    """Seconds of lines in two recordings, the largest change first.

    Lines move when a program is edited: a line is the same by the name of its file and its text. A
    cell has another name each time that it runs: a line of a cell is the same by its text.
    """
    was, now = seconds_by_text(before), seconds_by_text(after)
    last, nowhere = was | now, (UNKNOWN, 0.0)
    both = {name: (was.get(name, nowhere)[1], now.get(name, nowhere)[1]) for name in last}
    order = sorted(both, key=lambda name: -abs(both[name][1] - both[name][0]))
    return table_of(
        [(*last[name][0], *both[name]) for name in order],
        file=str,
        line=int,
        text=str,
        seconds_before=float,
        seconds_after=float,
    )


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
    at, sampled = ([*table.tuples("file", "line")] for table in (recording.lines, frames))
    place_at = {at[head]: built.place_of_row[head] for head in built.heads[built.builders]}
    building_at = {at[row] for row in built.builders}
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
