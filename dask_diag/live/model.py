"""What a live view knows: sums and arrays, brought up to date by each chunk.

It is no Recording: that would have to be made again of all chunks each time. What a chunk costs
does not depend on how many came before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dask_diag.columns import FloatArray
from dask_diag.live.arrays import Growing, TaskArrays
from dask_diag.live.preparation import Preparation, preparation_of
from dask_diag.live.progress import Progress
from dask_diag.live.rows import LiveRows, rows_of
from dask_diag.schema import Outcome, ProgressPhase
from dask_diag.storage.chunks import Chunk
from dask_diag.storage.follow import FollowState, Update
from dask_diag.views.theme.colors import FunctionColors

__all__ = ["FunctionSums", "LiveModel", "Machine", "RunningTask", "WorkerTime"]

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
