"""State of a growing recording: sums and arrays, updated by each chunk of the file.

A Recording would have to be made again of all chunks at each poll. Here the cost of a chunk does
not depend on the number of chunks before.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.built_by import BuiltBy, SourceLine
from dask_diag.columns import Array, Categorical, FloatArray, IntArray
from dask_diag.errors import RecordingFileError
from dask_diag.model import tables
from dask_diag.model.codes import Outcome, ProgressPhase
from dask_diag.model.table import Table
from dask_diag.model.tables import TABLES
from dask_diag.storage.chunks import Chunk, Columns
from dask_diag.storage.follow import Follower, FollowState, Update
from dask_diag.views.colors import FunctionColors

PERIOD = 1.0
"""Seconds between polls: a little more than between writes of `record`, as each poll that finds
something has to decode it."""

_TIMES = ("called", "start", "prepared", "stop")
_COMPUTATIONS = ("computation", *_TIMES, "workers")
_PLANNED = ("computation", "function", "tasks")
_RESOURCES = ("time", "cpu", "cpu_other_processes", "memory", "memory_children")
_SUMMED = ("thread_cpu", "outcome", "group")
_LINES = {name: tuple(TABLES[name].schema) for name in ("lines", "steps")}
COLUMNS: Columns = {
    "computations": _COMPUTATIONS,
    "planned": _PLANNED,
    "tasks": ("computation", "function", "worker", "start", "stop", *_SUMMED),
    **_LINES,
    "resources": _RESOURCES,
    "environment": ("name", "value"),
}
"""Columns to decode of rows that stay in the file."""
PROVISIONAL_COLUMNS: Columns = {
    "computations": _COMPUTATIONS,
    "planned": _PLANNED,
    "progress": ("computation", "phase", "since", "total", "finished"),
    "tasks": ("key", "function", "worker", "start", "stop"),
    "cached_results": ("metric",),
    **_LINES,
}
"""Columns to decode of rows that the next write replaces."""

LEAST_SHARE, LEAST_SECONDS = 0.05, 10.0
"""Progress of a computation below which the remaining time is not estimated."""
_POWERS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def check_file(path: str) -> None:
    """Refuse an unreadable file or another format; a missing or empty file may become a recording.

    Raises
    ------
    RecordingFileError
    """
    update = Follower(path, columns={}, provisional_columns={}).poll()
    if update.state == FollowState.NOT_A_RECORDING:
        raise RecordingFileError(update.problem)


class GrowingTable:
    """Numeric columns with amortized appends: the arrays double when full.

    Provisional rows come last, until others are appended.

    Parameters
    ----------
    **dtypes : str
        The type of each column.
    """

    def __init__(self, **dtypes: str) -> None:
        self._kept = self._length = 0
        self._columns: dict[str, Array] = {
            name: np.zeros(1024, dtype) for name, dtype in dtypes.items()
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self._columns)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, name: str) -> Array:
        return self._columns[name][: self._length]

    def extend(self, rows: Mapping[str, Array] | Table, *, provisional: bool = False) -> None:
        """Append rows in place of provisional rows; further columns are ignored."""
        before = self._kept
        self._length = before + len(rows[next(iter(self._columns))])
        self._kept = before if provisional else self._length
        for name, column in self._columns.items():
            if self._length > len(column):
                more = np.zeros(max(self._length - len(column), len(column)), column.dtype)
                self._columns[name] = np.concatenate([column, more])
            self._columns[name][before : self._length] = rows[name]


class LabelCodes(dict[str, int]):
    """Codes of the labels in all chunks, numbered by first appearance."""

    def codes(self, column: Categorical) -> IntArray:
        """Return the code of each row of a chunk's column."""
        table = np.zeros(len(column.values), np.int64)
        # A chunk may list values that no row has.
        for code in np.unique(column.codes).tolist():
            table[code] = self.setdefault(str(column.values[code]), len(self))
        return np.asarray(table[column.codes])


@dataclass
class FunctionSums:
    """Number of recorded tasks of a function, with their wall and CPU seconds."""

    tasks: int = 0
    seconds: float = 0.0
    cpu: float = 0.0

    def add(self, tasks: int, seconds: float, cpu: float) -> None:
        """Add the sums of a chunk."""
        self.tasks += tasks
        self.seconds += seconds
        self.cpu += cpu


@dataclass
class ComputationProgress:
    """Progress of a computation that runs.

    Attributes
    ----------
    phase : str
        One of `ProgressPhase`.
    since : float
        Time when the phase started.
    total, finished : int
        Numbers of tasks.
    planned : dict
        Number of tasks by function.
    recorded : dict
        Sums of the recorded tasks by function.
    """

    phase: str = ProgressPhase.TASKS
    since: float = 0.0
    total: int = 0
    finished: int = 0
    planned: dict[str, int] = field(default_factory=dict)
    recorded: dict[str, FunctionSums] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """Share of finished tasks."""
        return min(1.0, self.finished / self.total) if self.total else 0.0

    def seconds_left(self, now: float) -> float | None:
        """Estimate the remaining seconds; None while an estimate would be a guess.

        Remaining tasks are assumed to take as long as recorded tasks of the same function, and to
        share workers as the recorded tasks did, including the scheduler's time between tasks.
        """
        elapsed = now - self.since
        worked = sum(sums.seconds for sums in self.recorded.values())
        is_known = self.phase == ProgressPhase.TASKS and self.share >= LEAST_SHARE
        if not is_known or elapsed < LEAST_SECONDS or worked <= 0:
            return None
        mean = worked / sum(sums.tasks for sums in self.recorded.values())
        left = 0.0
        for function, tasks in self.planned.items():
            sums = self.recorded.get(function, FunctionSums())
            each = sums.seconds / sums.tasks if sums.tasks else mean
            left += max(0, tasks - sums.tasks) * each
        return left * elapsed / worked


class TaskNow(NamedTuple):
    """A task that ran at the time of the last write."""

    key: str
    function: str
    worker: str
    start: float


class Preparation(NamedTuple):
    """Seconds before the first task, summed over computations; the number of these computations."""

    graph: float
    ordering: float
    computations: int


class WorkerTime(NamedTuple):
    """Worker-seconds while tasks could run, by state of the worker."""

    cpu: float
    waiting: float
    running: float
    no_task: float


class Machine(NamedTuple):
    """Number of CPUs and bytes of memory; 0 if unknown."""

    cpus: int
    memory: float


class LiveModel:
    """State of a recording that is followed.

    Parameters
    ----------
    path : str or os.PathLike
    clock : callable, optional
        Seconds.
    follower : Follower, optional

    Attributes
    ----------
    name : str
        The name of the file.
    state, problem, quiet
        As in the last `Update`.
    start, stop, epoch : float
        As in a `Recording`; `stop` is the time of the last write.
    revision, generation : int
        Numbers of changes, and of recordings that replaced each other.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], float] = monotonic,
        follower: Follower | None = None,
    ) -> None:
        self._clock = clock
        self._follower = follower or Follower(
            path, clock=clock, columns=COLUMNS, provisional_columns=PROVISIONAL_COLUMNS
        )
        self.name = self._follower.path.name
        self.state = FollowState.WAITING
        self.problem = ""
        self.quiet = 0.0
        self.revision = self.generation = 0
        self._fits = True
        self._seen = (0.0, clock())
        self._forget()

    def _forget(self) -> None:
        self.start = self.stop = self.epoch = 0.0
        self.notices: tuple[str, ...] = ()
        self.tasks = GrowingTable(start="f8", stop="f8", share="f8", function="i4", worker="i4")
        self.function_codes, self.worker_codes = LabelCodes(), LabelCodes()
        self.functions: dict[str, FunctionSums] = {}
        self.recorded = self.failed = self.ended = 0
        self.computations: dict[str, ComputationProgress] = {}
        # Tasks of a computation may be recorded before, and between, the rows on its progress.
        self._unended: defaultdict[str, ComputationProgress] = defaultdict(ComputationProgress)
        self._planned_ended: Counter[str] = Counter()
        self.running: list[TaskNow] = []
        self._seconds_of_groups: Counter[int] = Counter()
        self._lines, self._steps = tables.Lines.empty(), tables.Steps.empty()
        self.cached_bytes = 0.0
        self.machine = Machine(0, 0.0)
        self.resources = GrowingTable(**dict.fromkeys(_RESOURCES, "f8"))
        self._times = GrowingTable(**dict.fromkeys(_TIMES, "f8"), workers="i8")
        self._colored: dict[str, None] = {}
        self.has_rows = False
        self._provisional: Chunk | None = None

    def poll(self) -> None:
        """Read from the file until nothing is new."""
        is_behind = True
        while is_behind:
            update = self._follower.poll()
            is_behind = update.behind
            self._fits |= update.fresh
            if not self._fits and update.state != FollowState.WAITING:
                # Chunks after one that does not fit do not fit either.
                return
            try:
                self.apply(update)
            except Exception as error:
                # Chunks have valid checksums: another program wrote them.
                self._fits = False
                self.revision += 1
                self.state = FollowState.NOT_A_RECORDING
                self.problem = f"its chunks are inconsistent ({error})"
                return
        if self.stop != self._seen[0]:
            self._seen = (self.stop, self._clock())

    def apply(self, update: Update) -> None:
        """Add the rows of an update."""
        # The last state of a file that is gone stays in view.
        is_readable = update.state not in (FollowState.WAITING, FollowState.NOT_A_RECORDING)
        is_new = is_readable and update.provisional is not self._provisional
        has_rows = update.fresh or bool(update.chunks)
        if has_rows or is_new or (update.state, update.problem) != (self.state, self.problem):
            self.revision += 1
        self.state, self.problem, self.quiet = update.state, update.problem, update.quiet
        if update.fresh:
            self.generation += 1
            self._forget()
        for chunk in update.chunks:
            self._add(chunk)
        if is_readable and (has_rows or is_new):
            self._show(update.provisional)

    def _add(self, chunk: Chunk) -> None:
        self.has_rows = True
        self._take_lines(chunk)
        values = chunk.values
        self.start, self.stop = float(values["start"]), float(values["stop"])
        self.epoch = float(values["epoch"])
        self.notices = tuple(map(str, values.get("notices", ())))
        self._add_tasks(_rows(chunk, "tasks"))
        for row in _rows(chunk, "planned").to_dicts():
            self._planned_ended[str(row["function"])] += row["tasks"]
        computations = _rows(chunk, "computations")
        for name in computations["computation"].tolist():
            self.ended += 1
            self._unended.pop(str(name), None)
        self._times.extend(computations)
        self.resources.extend(_rows(chunk, "resources"))
        if len(environment := _rows(chunk, "environment")):
            self.machine = _machine_of(environment)

    def _add_tasks(self, tasks: Table) -> None:
        if not len(tasks):
            return
        lasted, cpu = tasks["stop"] - tasks["start"], tasks["thread_cpu"]
        names, functions = tasks["computation"], tasks["function"]
        pairs = names.codes.astype(np.int64) * len(functions.values) + functions.codes
        counts, known = np.bincount(pairs), np.bincount(pairs, ~np.isnan(lasted))
        seconds, cpu_seconds = (
            np.bincount(pairs, np.nan_to_num(amounts)).tolist() for amounts in (lasted, cpu)
        )
        for pair in np.flatnonzero(counts).tolist():
            computation, code = divmod(pair, len(functions.values))
            function = str(functions.values[code])
            progress = self._unended[str(names.values[computation])]
            # What ran before the recording is in no estimate: how long it took is unknown.
            for sums, number in ((self.functions, counts), (progress.recorded, known)):
                sums.setdefault(function, FunctionSums()).add(
                    int(number[pair]), seconds[pair], cpu_seconds[pair]
                )
        if "group" in tasks.columns:
            groups, of_group = np.unique(tasks["group"], return_inverse=True)
            took = np.bincount(of_group, np.nan_to_num(lasted)).tolist()
            self._seconds_of_groups.update(dict(zip(groups.tolist(), took, strict=True)))
        self.recorded += len(tasks)
        self.failed += int(np.count_nonzero(tasks["outcome"].eq(Outcome.FAILED)))
        ran = np.flatnonzero(~np.isnan(lasted))
        # Unknown CPU time counts as all of the task, as in a report.
        share = np.where(np.isnan(cpu), 1.0, cpu / np.maximum(lasted, 1e-9))
        columns = self._columns_of(tasks, ran)
        self.tasks.extend({**columns, "share": np.clip(share[ran], 0.0, 1.0)})

    def _columns_of(self, tasks: Table, rows: IntArray) -> dict[str, Array]:
        return {
            "start": tasks["start"][rows],
            "stop": tasks["stop"][rows],
            "function": self.function_codes.codes(tasks["function"][rows]),
            "worker": self.worker_codes.codes(tasks["worker"][rows]),
        }

    def _show(self, provisional: Chunk | None) -> None:
        """Replace the provisional rows."""
        self._provisional = provisional
        now = provisional or Chunk({}, {})
        self._take_lines(now)
        self.computations = {}
        for row in _rows(now, "progress").to_dicts():
            name = str(row["computation"])
            # A graph that is being made has no computation yet.
            progress = self._unended[name] if name else ComputationProgress()
            progress.phase, progress.since = str(row["phase"]), float(row["since"])
            progress.total = int(row["total"])
            # Rows may have been read in another order than they were counted.
            progress.finished = max(progress.finished, int(row["finished"]))
            progress.planned = {}
            self.computations[name] = progress
        for row in _rows(now, "planned").to_dicts():
            if (name := str(row["computation"])) in self.computations:
                self.computations[name].planned[str(row["function"])] = int(row["tasks"])
        self.cached_bytes = float(np.nansum(_rows(now, "cached_results")["metric"]))
        self._show_tasks(_rows(now, "tasks"))
        computations = _rows(now, "computations")
        is_ordered = [
            name in self.computations and self.computations[name].phase == ProgressPhase.ORDERING
            for name in computations["computation"].tolist()
        ]
        times = {name: computations[name] for name in (*_TIMES, "workers")}
        times["prepared"] = np.where(is_ordered, np.nan, times["prepared"])
        self._times.extend(times, provisional=True)

    def _show_tasks(self, tasks: Table) -> None:
        """Replace the tasks that run: without a stop, the longest first."""
        rows = np.flatnonzero(~np.isnan(tasks["start"]) & np.isnan(tasks["stop"]))
        rows = rows[np.argsort(tasks["start"][rows], kind="stable")]
        self.running = [TaskNow(*row) for row in tasks.filter(rows).tuples(*TaskNow._fields)]
        until_now, unknown = np.full(len(rows), self.stop), np.full(len(rows), np.nan)
        columns = self._columns_of(tasks, rows)
        self.tasks.extend({**columns, "stop": until_now, "share": unknown}, provisional=True)

    def _take_lines(self, chunk: Chunk) -> None:
        """Each write has all lines so far, in its provisional rows or at last."""
        if "steps" in chunk.tables:
            self._lines = tables.Lines.of(_rows(chunk, "lines"))
            self._steps = tables.Steps.of(chunk.tables["steps"])

    def lines_by_time(self) -> list[tuple[SourceLine, float]]:
        """Lines that built recorded tasks, and the seconds of these, the longest first."""
        groups = np.array([*self._seconds_of_groups], np.int64)
        seconds = np.array([*self._seconds_of_groups.values()])
        built = BuiltBy(self._lines, self._steps, groups)
        sums = zip(built.places, built.sums(seconds).tolist(), strict=True)
        lines = [line for line in sums if line[1] > 0 and len(self._steps)]
        return sorted(lines, key=lambda line: -line[1])

    @property
    def now(self) -> float:
        """The present in the recording's seconds: the last write, and the time since."""
        stop, seen = self._seen
        return stop + (self._clock() - seen if self.is_growing else 0.0)

    @property
    def is_growing(self) -> bool:
        """Whether more is to come."""
        return self.state == FollowState.GROWING

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come, unless another recording replaces the file."""
        return self.state in (FollowState.COMPLETE, FollowState.TRUNCATED, FollowState.DAMAGED)

    @property
    def share(self) -> float | None:
        """Share of finished tasks of the first computation that runs tasks."""
        running = (progress.share for progress in self.computations.values() if progress.total)
        return next(running, None)

    @property
    def memory(self) -> FloatArray:
        """Bytes of the process and its children at each sample."""
        return np.asarray(self.resources["memory"] + self.resources["memory_children"])

    def planned(self) -> Mapping[str, int]:
        """Number of planned tasks by function, of all computations."""
        planned = self._planned_ended.copy()
        for progress in self.computations.values():
            planned.update(progress.planned)
        return planned

    def functions_by_time(self) -> list[str]:
        """Names of recorded and planned functions, the longest first."""
        seconds = {name: sums.seconds for name, sums in self.functions.items()}
        names = {**seconds, **self.planned()}
        return sorted(names, key=lambda name: -seconds.get(name, 0.0))

    def colors(self) -> FunctionColors:
        """Colors of functions: a function keeps its color when others appear."""
        self._colored.update(dict.fromkeys(self.functions_by_time()))
        return FunctionColors(self._colored)

    def tasks_between(self, start: float, stop: float) -> dict[str, Array]:
        """Columns of the tasks in an interval.

        Tasks that still run stop at the time of the last write, and their share of CPU is NaN.
        """
        tasks = self.tasks
        inside = (tasks["stop"] >= start) & (tasks["start"] <= stop)
        inside[len(inside) - len(self.running) :] = True
        rows = np.flatnonzero(inside)
        return {name: tasks[name][rows] for name in tasks.names}

    @property
    def preparation(self) -> Preparation:
        """Seconds of dask before the first task of each computation."""
        times = self._times
        graph = np.nan_to_num(np.maximum(times["start"] - times["called"], 0.0))
        ordering = np.nan_to_num(np.maximum(times["prepared"] - times["start"], 0.0))
        computations = int(np.count_nonzero(graph + ordering))
        return Preparation(float(graph.sum()), float(ordering.sum()), computations)

    def worker_time(self) -> WorkerTime:
        """Worker-seconds so far."""
        times = self._times
        lasted = np.nan_to_num(np.maximum(times["stop"] - times["prepared"], 0.0))
        available = float((lasted * np.maximum(times["workers"], 1)).sum())
        seconds = sum(sums.seconds for sums in self.functions.values())
        cpu = min(sum(sums.cpu for sums in self.functions.values()), seconds)
        running = sum(max(0.0, self.stop - task.start) for task in self.running)
        return WorkerTime(cpu, seconds - cpu, running, max(0.0, available - seconds - running))


def _rows(chunk: Chunk, name: str) -> Table:
    return chunk.tables.get(name) or TABLES[name].empty()


def _machine_of(environment: Table) -> Machine:
    facts = {name: str(value) for name, value in environment.tuples("name", "value")}
    cpus = re.search(r"(\d+)\D*$", facts.get("processors", ""))
    memory = re.fullmatch(r"([\d.,]+) (\w+)", facts.get("memory", ""))
    size = 0.0
    if memory and memory[2] in _POWERS:
        size = float(memory[1].replace(",", "")) * _POWERS[memory[2]]
    return Machine(int(cpus[1]) if cpus else 0, size)
