"""What a live view knows: sums and arrays, brought up to date by each chunk.

It is no Recording: that would have to be made again of all chunks each time. What a chunk costs
does not depend on how many came before.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
from toolz import merge_with

from dask_diag.columns import Array, Categorical, FloatArray, IntArray
from dask_diag.model import tables
from dask_diag.model.codes import Outcome, ProgressPhase
from dask_diag.model.tables import Computations, RecordingTable, Tasks
from dask_diag.storage.chunks import Chunk, Columns
from dask_diag.storage.follow import FollowState, Update
from dask_diag.views.colors import FunctionColors

_COMPUTATIONS = frozenset({"computation", "called", "start", "prepared", "stop", "workers"})
_PLANNED = frozenset({"computation", "function", "tasks"})
COLUMNS: Columns = {
    "computations": _COMPUTATIONS,
    "planned": _PLANNED,
    "tasks": frozenset(
        {"computation", "function", "worker", "start", "stop", "thread_cpu", "outcome"}
    ),
    "resources": frozenset({"time", "cpu", "cpu_others", "memory", "memory_children"}),
    "environment": frozenset({"name", "value"}),
}
"""Of rows that stay."""
PROVISIONAL_COLUMNS: Columns = {
    "computations": _COMPUTATIONS,
    "planned": _PLANNED,
    "progress": frozenset(tables.Progress.schema),
    "tasks": frozenset({"key", "function", "worker", "start", "stop"}),
    "cached_results": frozenset({"metric"}),
}
"""Of rows that are true for now."""
_SHOWN: Mapping[str, set[str]] = {
    name: {*COLUMNS.get(name, ()), *PROVISIONAL_COLUMNS.get(name, ())}
    for name in COLUMNS.keys() | PROVISIONAL_COLUMNS.keys()
}
Kind = TypeVar("Kind", bound=RecordingTable)


class LiveRows(NamedTuple):
    """What of a chunk is shown; tables have at least the columns that are."""

    start: float
    stop: float
    epoch: float
    notices: tuple[str, ...]
    computations: Computations
    planned: tables.Planned
    progress: tables.Progress
    tasks: Tasks
    resources: tables.Resources
    cached_results: tables.CachedResults
    environment: tables.Environment


def rows_of(chunk: Chunk) -> LiveRows:
    """The rows of a chunk; one that is not as a recording is some error."""
    start, stop, epoch = (float(chunk.values[name]) for name in ("start", "stop", "epoch"))
    return LiveRows(
        start,
        stop,
        epoch,
        notices=tuple(map(str, chunk.values.get("notices", ()))),
        computations=_some(Computations, "computations", chunk),
        planned=_some(tables.Planned, "planned", chunk),
        progress=_some(tables.Progress, "progress", chunk),
        tasks=_some(Tasks, "tasks", chunk),
        resources=_some(tables.Resources, "resources", chunk),
        cached_results=_some(tables.CachedResults, "cached_results", chunk),
        environment=_some(tables.Environment, "environment", chunk),
    )


def _some(kind: type[Kind], name: str, chunk: Chunk) -> Kind:
    table = chunk.tables.get(name) or kind.empty()
    return kind({column: table[column] for column in table.columns if column in _SHOWN[name]})


_COLUMNS: Mapping[str, str] = {
    "start": "f8",
    "stop": "f8",
    "cpu": "f8",
    "function": "i4",
    "worker": "i4",
}


class Growing:
    """A column to which rows are added: each is copied a few times at most, however many come.

    Parameters
    ----------
    dtype : str
    """

    def __init__(self, dtype: str) -> None:
        self._array = np.zeros(1024, dtype)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def values(self) -> Array:
        """All rows."""
        return self._array[: self._length]

    def extend(self, values: Array) -> None:
        """Add rows."""
        length = self._length + len(values)
        if length > len(self._array):
            larger = np.zeros(max(length, 2 * len(self._array)), self._array.dtype)
            larger[: self._length] = self.values
            self._array = larger
        self._array[self._length : length] = values
        self._length = length


class Names:
    """Labels of all chunks, each with one code."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def names(self) -> list[str]:
        """By their codes."""
        return list(self.codes)

    def of(self, column: Categorical) -> IntArray:
        """The codes of a chunk's rows."""
        used = np.unique(column.codes).tolist()
        table = np.zeros(len(column.values) + 1, np.int64)
        for code in used:
            name = str(column.values[code])
            table[code] = self.codes.setdefault(name, len(self.codes))
        return table[column.codes]


class TaskArrays:
    """The tasks that have been collected and are known to have run.

    They come in the order of collection, which is nearly that of time: chunk by chunk it is known
    which have to be looked at for an interval.
    """

    def __init__(self) -> None:
        self.functions = Names()
        self.workers = Names()
        self._columns = {name: Growing(dtype) for name, dtype in _COLUMNS.items()}
        self._chunks = {name: Growing("f8") for name in ("first", "rows", "start", "stop")}

    def __len__(self) -> int:
        return len(self._columns["start"])

    def __getitem__(self, name: str) -> Array:
        return self._columns[name].values

    def extend(self, tasks: Tasks) -> None:
        """Add a chunk's tasks."""
        ran = ~(np.isnan(tasks.start) | np.isnan(tasks.stop))
        start, stop = tasks.start[ran], tasks.stop[ran]
        if not len(start):
            return
        columns: Mapping[str, Array] = {
            "start": start,
            "stop": stop,
            "cpu": tasks.thread_cpu[ran],
            "function": self.functions.of(tasks.function)[ran],
            "worker": self.workers.of(tasks.worker)[ran],
        }
        chunk = (len(self), len(start), start.min(), stop.max())
        for column, number in zip(self._chunks.values(), chunk, strict=True):
            column.extend(np.array([number]))
        for name, values in columns.items():
            self._columns[name].extend(values)

    def between(self, start: float, stop: float) -> dict[str, Array]:
        """The tasks that ran in an interval, at any time."""
        chunks = {name: column.values for name, column in self._chunks.items()}
        touched = np.flatnonzero((chunks["stop"] >= start) & (chunks["start"] <= stop))
        if not len(touched):
            return {name: column.values[:0] for name, column in self._columns.items()}
        # Chunks that are looked at lie next to each other, but for a few long tasks.
        low = int(chunks["first"][touched[0]])
        high = int(chunks["first"][touched[-1]] + chunks["rows"][touched[-1]])
        inside = (self["stop"][low:high] >= start) & (self["start"][low:high] <= stop)
        return {name: self[name][low:high][inside] for name in self._columns}


class Preparation(NamedTuple):
    """Of some computations, together.

    Attributes
    ----------
    graph, ordering : float
        Seconds.
    computations : int
        That took any.
    """

    graph: float = 0.0
    ordering: float = 0.0
    computations: int = 0

    def plus(self, other: Preparation) -> Preparation:
        """Of these and others."""
        return Preparation(
            self.graph + other.graph,
            self.ordering + other.ordering,
            self.computations + other.computations,
        )


def preparation_of(computations: Computations, still_ordered: Collection[str] = ()) -> Preparation:
    """The seconds before their first task.

    Parameters
    ----------
    computations : Computations
    still_ordered : collection of str
        Those whose tasks are put in order now: of these only the graph is made.
    """
    graph = np.nan_to_num(np.maximum(computations.start - computations.called, 0.0))
    ordering = np.nan_to_num(np.maximum(computations.prepared - computations.start, 0.0))
    names = computations.computation.tolist()
    ordering[[name in still_ordered for name in names]] = 0.0
    return Preparation(
        float(graph.sum()), float(ordering.sum()), int(np.count_nonzero(graph + ordering))
    )


LEAST_SHARE, LEAST_SECONDS = 0.05, 10.0
"""Of a computation, before there is an estimate."""


@dataclass
class ComputationProgress:
    """How far one computation is.

    Attributes
    ----------
    phase : str
        One of `ProgressPhase`.
    since : float
        When the phase started.
    total, finished, ready, waiting, running : int
        Of its tasks.
    planned : dict
        Tasks by function.
    done, seconds : dict
        Tasks that were recorded, and their seconds, by function.
    """

    phase: str = ProgressPhase.TASKS
    since: float = 0.0
    total: int = 0
    finished: int = 0
    ready: int = 0
    waiting: int = 0
    running: int = 0
    planned: dict[str, int] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return min(1.0, self.finished / self.total) if self.total else 0.0


class Progress:
    """The computations that run, by name; those that have ended are only counted."""

    def __init__(self) -> None:
        self.running: dict[str, ComputationProgress] = {}
        self.planned: dict[str, int] = {}
        self.ended = 0
        self._live: dict[str, ComputationProgress] = {}

    def add(self, chunk: LiveRows) -> None:
        """Rows that stay: tasks that were recorded, computations that have ended."""
        tasks = chunk.tasks
        if len(tasks):
            self._add_tasks(chunk)
        for row in chunk.planned.to_dicts():
            function = str(row["function"])
            self.planned[function] = self.planned.get(function, 0) + row["tasks"]
        for name in chunk.computations.computation.tolist():
            self.ended += 1
            self._live.pop(str(name), None)

    def _add_tasks(self, chunk: LiveRows) -> None:
        tasks = chunk.tasks
        names, functions = tasks.computation.values, tasks.function.values
        pairs = tasks.computation.codes.astype(np.int64) * len(functions) + tasks.function.codes
        counts = np.bincount(pairs)
        seconds = np.bincount(pairs, np.nan_to_num(tasks.stop - tasks.start))
        for pair in np.flatnonzero(counts).tolist():
            computation, function = divmod(pair, len(functions))
            live = self._live.setdefault(str(names[computation]), ComputationProgress())
            name = str(functions[function])
            live.done[name] = live.done.get(name, 0) + int(counts[pair])
            live.seconds[name] = live.seconds.get(name, 0.0) + float(seconds[pair])

    def show(self, provisional: LiveRows) -> None:
        """Rows that are true for now."""
        self.running = {}
        for row in provisional.progress.to_dicts():
            name = str(row["computation"])
            live = self._live.setdefault(name, ComputationProgress()) if name else None
            live = live or ComputationProgress()
            live.phase, live.since = str(row["phase"]), float(row["since"])
            live.total = int(row["total"])
            # It never falls, whenever what was read.
            live.finished = max(live.finished, int(row["finished"]))
            live.ready, live.waiting = int(row["ready"]), int(row["waiting"])
            live.running = int(row["running"])
            live.planned = {}
            self.running[name] = live
        for row in provisional.planned.to_dicts():
            name = str(row["computation"])
            if name in self.running:
                self.running[name].planned[str(row["function"])] = int(row["tasks"])

    def planned_by_function(self) -> Mapping[str, int]:
        """Tasks of all computations, those that have ended included."""
        running = (live.planned for live in self.running.values())
        planned: Mapping[str, int] = merge_with(sum, self.planned, *running)
        return planned


def seconds_left(progress: ComputationProgress, now: float) -> float | None:
    """About how long it still takes; None as long as that is a guess.

    The tasks that are left take as long as others of their function did. They are divided among
    workers as the tasks so far were: what the scheduler takes between tasks is so included.
    """
    elapsed = now - progress.since
    worked = sum(progress.seconds.values())
    if (
        progress.phase != ProgressPhase.TASKS
        or progress.share < LEAST_SHARE
        or elapsed < LEAST_SECONDS
        or worked <= 0
    ):
        return None
    usual = worked / sum(progress.done.values())
    seconds = 0.0
    for function, tasks in progress.planned.items():
        done = progress.done.get(function, 0)
        seconds_per_task = progress.seconds[function] / done if done else usual
        seconds += max(0, tasks - done) * seconds_per_task
    return seconds * elapsed / worked


RESOURCES = ("time", "cpu", "cpu_others", "memory", "memory_children")
_POWERS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass
class FunctionSums:
    """What the tasks of a function took so far."""

    tasks: int = 0
    seconds: float = 0.0
    cpu: float = 0.0


class RunningTask(NamedTuple):
    """A task that ran when the file was written last."""

    key: str
    function: str
    worker: str
    start: float


class WorkerTime(NamedTuple):
    """The worker-seconds of tasks' phases so far."""

    cpu: float
    waiting: float
    running: float
    no_task: float


class Machine(NamedTuple):
    """Its limits; 0 if they are not known."""

    cpus: int
    memory: float


class LiveModel:
    """The state of one recording.

    Attributes
    ----------
    state : str
        One of `FollowState`.
    start, stop, epoch : float
        As a `Recording` has them; `stop` is when the file was written last.
    generation : int
        It grows with each recording that takes the place of another.
    """

    def __init__(self) -> None:
        self.state = FollowState.WAITING
        self.problem = ""
        self.quiet = 0.0
        self.revision = 0
        self.generation = 0
        self._forget()

    def _forget(self) -> None:
        self.start = self.stop = self.epoch = 0.0
        self.notices: tuple[str, ...] = ()
        self.tasks = TaskArrays()
        self.functions: dict[str, FunctionSums] = {}
        self._seen: dict[str, None] = {}
        self.recorded = self.failed = 0
        self.progress = Progress()
        self.running: list[RunningTask] = []
        self.cached_bytes = 0.0
        self.machine = Machine(0, 0.0)
        self._resources = {name: Growing("f8") for name in RESOURCES}
        self._ended_worker_seconds = self._live_worker_seconds = 0.0
        self._ended_preparation = self._live_preparation = Preparation()
        self.has_rows = False
        self._shown: Chunk | None = None

    def apply(self, update: Update) -> None:
        """Take what a follower has read."""
        changed = (update.state, update.problem) != (self.state, self.problem)
        changed |= update.fresh or bool(update.chunks) or update.provisional is not self._shown
        self.state, self.problem, self.quiet = update.state, update.problem, update.quiet
        if update.fresh:
            self.generation += 1
            self._forget()
        for chunk in update.chunks:
            self._add(rows_of(chunk))
        # Of a file that is gone, the last state is shown on.
        if changed and update.state not in (FollowState.WAITING, FollowState.NOT_A_RECORDING):
            self._show(update.provisional)
        self.revision += changed

    def _add(self, chunk: LiveRows) -> None:
        self.has_rows = True
        self.start, self.stop, self.epoch = chunk.start, chunk.stop, chunk.epoch
        self.notices = chunk.notices
        self.progress.add(chunk)
        self.tasks.extend(chunk.tasks)
        self._add_sums(chunk)
        for name in RESOURCES:
            self._resources[name].extend(chunk.resources[name])
        self._ended_worker_seconds += _worker_seconds(chunk)
        self._ended_preparation = self._ended_preparation.plus(preparation_of(chunk.computations))
        if len(chunk.environment):
            self.machine = _machine_of(chunk)

    def _add_sums(self, chunk: LiveRows) -> None:
        tasks = chunk.tasks
        if not len(tasks):
            return
        codes, names = tasks.function.codes, tasks.function.values
        counts = np.bincount(codes, minlength=len(names))
        seconds = np.bincount(codes, np.nan_to_num(tasks.stop - tasks.start), len(names))
        cpu = np.bincount(codes, np.nan_to_num(tasks.thread_cpu), len(names))
        for code in np.flatnonzero(counts).tolist():
            sums = self.functions.setdefault(str(names[code]), FunctionSums())
            sums.tasks += int(counts[code])
            sums.seconds += float(seconds[code])
            sums.cpu += float(cpu[code])
        self.recorded += len(tasks)
        self.failed += int(np.count_nonzero(tasks.outcome.where(Outcome.FAILED)))

    def functions_by_time(self) -> list[str]:
        """Those planned and those recorded, the longest first."""
        seconds = {name: sums.seconds for name, sums in self.functions.items()}
        names = {**seconds, **self.progress.planned_by_function()}
        return sorted(names, key=lambda name: -seconds.get(name, 0.0))

    def colors(self) -> FunctionColors:
        """The colours of functions: one that has a colour does not lose it to a later one."""
        self._seen.update(dict.fromkeys(self.functions_by_time()))
        return FunctionColors(self._seen)

    def _show(self, provisional: Chunk | None) -> None:
        """What is true for now."""
        self._shown = provisional
        if provisional is None:
            self.progress.running, self.running = {}, []
            self.cached_bytes = self._live_worker_seconds = 0.0
            self._live_preparation = Preparation()
            return
        now = rows_of(provisional)
        self.progress.show(now)
        self.running = _running_tasks(now)
        self.cached_bytes = float(np.nansum(now.cached_results.metric))
        self._live_worker_seconds = _worker_seconds(now)
        progress = self.progress.running.items()
        ordered = {
            name for name, computation in progress if computation.phase == ProgressPhase.ORDERING
        }
        self._live_preparation = preparation_of(now.computations, ordered)

    def resources(self, name: str) -> FloatArray:
        """A column of the samples of resources."""
        return self._resources[name].values

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come, unless another recording takes its place."""
        return self.state in (FollowState.COMPLETE, FollowState.TRUNCATED, FollowState.DAMAGED)

    @property
    def preparation(self) -> Preparation:
        """What went before the first task of each computation so far."""
        return self._ended_preparation.plus(self._live_preparation)

    def worker_time(self) -> WorkerTime:
        """What workers did while tasks could run, in worker-seconds."""
        seconds = sum(sums.seconds for sums in self.functions.values())
        cpu = min(sum(sums.cpu for sums in self.functions.values()), seconds)
        running = sum(max(0.0, self.stop - task.start) for task in self.running)
        available = self._ended_worker_seconds + self._live_worker_seconds
        return WorkerTime(cpu, seconds - cpu, running, max(0.0, available - seconds - running))


def _worker_seconds(chunk: LiveRows) -> float:
    computations = chunk.computations
    lasted = np.maximum(computations.stop - computations.prepared, 0.0)
    return float((lasted * np.maximum(computations.workers, 1)).sum())


def _running_tasks(now: LiveRows) -> list[RunningTask]:
    tasks = now.tasks
    rows = np.flatnonzero(~np.isnan(tasks.start) & np.isnan(tasks.stop))
    rows = rows[np.argsort(tasks.start[rows], kind="stable")]
    columns = (tasks.key, tasks.function, tasks.worker, tasks.start)
    return [
        RunningTask(str(key), str(function), str(worker), float(start))
        for key, function, worker, start in zip(*(c[rows].tolist() for c in columns), strict=True)
    ]


def _machine_of(chunk: LiveRows) -> Machine:
    facts = {row["name"]: str(row["value"]) for row in chunk.environment.to_dicts()}
    cpus = re.search(r"(\d+)\D*$", facts.get("processors", ""))
    memory = re.fullmatch(r"([\d.,]+) (\w+)", facts.get("memory", ""))
    size = 0.0
    if memory and memory[2] in _POWERS:
        size = float(memory[1].replace(",", "")) * _POWERS[memory[2]]
    return Machine(int(cpus[1]) if cpus else 0, size)
