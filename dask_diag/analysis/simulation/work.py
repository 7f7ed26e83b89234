"""What the scheduler's thread did, step by step: it submitted tasks and collected results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dask_diag.analysis.task_times import computation_stops, transfer_times
from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray
from dask_diag.model.codes import Activity, Outcome
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table

Row = dict[str, Any]
"""A row of a table, by column."""


@dataclass(frozen=True)
class Simulation:
    """What a recorded program would take.

    Attributes
    ----------
    seconds : float
        Predicted wall time of all that was recorded.
    measured : float
        The wall time that was measured.
    outside : float
        Seconds before, between and after computations.
    computations : Table
        A row per computation that ran tasks: ``computation``, ``workers``, ``measured``,
        ``seconds``, ``preparing``, ``scheduling``, ``work``.
    """

    seconds: float
    measured: float
    outside: float
    computations: Table

    @property
    def error(self) -> float:
        """Seconds by which the replay is longer than what was measured, if nothing is changed."""
        return self.seconds - self.measured

    @property
    def preparing(self) -> float:
        """Seconds of computations before their first and after their last tasks."""
        return self._sum("preparing")

    @property
    def scheduling(self) -> float:
        """Seconds in which the schedulers' threads hand tasks out and collect results."""
        return self._sum("scheduling")

    @property
    def work(self) -> float:
        """Worker-seconds of tasks."""
        return self._sum("work")

    def _sum(self, column: str) -> float:
        return float(self.computations[column].sum()) if len(self.computations) else 0.0


def table_of(rows: Sequence[Row]) -> Table:
    """The table of these rows."""
    if not rows:
        return Table({})
    names = Categorical.of(row["computation"] for row in rows)
    numbers = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return Table({**numbers, "computation": names})


STEPS = ("prepare", "wake", "gap", "collect", "deliver", "notice")
"""What is done for each task between tasks: columns of `Work`, in seconds."""


@dataclass(frozen=True)
class Cluster:
    """What a cluster's computation has that one of a local scheduler has not.

    Attributes
    ----------
    threads : int
        Of each worker.
    hosts : int
    cpus : float
        Of all hosts; infinite if not known.
    is_one_process : bool
        Whether all workers are in one process, and share its GIL.
    delay : array of float
        From when a task's inputs were there, or the first task was sent, until the client had
        submitted it.
    nbytes : array of float
        The size of each result.
    latency, bytes_a_second : float
        Seconds until a small result of another worker is there, and how fast large ones come.
    """

    threads: int
    hosts: int
    cpus: float
    is_one_process: bool
    delay: FloatArray
    nbytes: FloatArray
    latency: float
    bytes_a_second: float


@dataclass(frozen=True)
class Work:
    """The tasks of one computation and the costs of its scheduler; arrays have a value per task.

    Attributes
    ----------
    rows : array of int
        Their rows in `Recording.tasks`; of merged tasks, the first one's.
    seconds : array of float
        How long it occupies a worker.
    cpu, gil : array of float
        Seconds among them in which it needs a CPU, and in which it needs the GIL.
    switching : float
        CPU seconds of its worker before and after each task, which need the GIL, too.
    prepare : array of float
        Scheduler: from the step before to the task's submission.
    wake : array of float
        From its submission to its start, if it is the first one that its worker was sent.
    gap : array of float
        From the end of the task before to its start, if it was sent together with others.
    collect : array of float
        Scheduler: from the step before to the task's collection, if its result was waiting.
    deliver : array of float
        From its end to its result being in the scheduler's queue.
    notice : array of float
        From there to its collection, if the scheduler was waiting for it.
    submit : float
        Scheduler: what sending tasks to a worker takes.
    scheduler_cpu : float
        CPU seconds of the scheduler's thread, which need the GIL, too.
    pool_cpu : float
        CPU seconds of other threads that tasks use: native pools, and Python's.
    children_cpu : float
        CPU seconds of programs that tasks start.
    others : float
        How many CPUs other programs had, on average.
    startup : tuple of float
        What the first tasks that a worker is sent take longer to start, worker by worker.
    graph : float
        Seconds in which the graph was made, optimized and put in order.
    before, after : float
        Seconds from then to the first submission, and after the last collection.
    workers : int
    batch : int
        How many tasks a worker is sent at once, at most: dask's ``chunksize``.
    graph_bytes : float
        Bytes of data that the graph gives to tasks, each time that one is given it; 0 if not known.
    task, depends_on : array of int
        A dependency each: numbers of tasks.
    sleeps : bool
        Whether tasks, as they were recorded, wanted no CPU most of the time.
    imports : float
        Seconds before the graph was in order in which modules were imported and profilers started:
        they pass whatever the graph.
    cluster : Cluster or None
        None if a local scheduler ran them. Else `wake` is from the arrival of a task and its inputs
        to its start on a free thread, `gap` from the end of the task before on a thread that was
        not, `collect` what a task costs the scheduler in all, and `startup` when each thread was
        there.
    """

    rows: IntArray
    seconds: FloatArray
    cpu: FloatArray
    gil: FloatArray
    switching: float
    prepare: FloatArray
    wake: FloatArray
    gap: FloatArray
    collect: FloatArray
    deliver: FloatArray
    notice: FloatArray
    submit: float
    scheduler_cpu: float
    pool_cpu: float
    children_cpu: float
    others: float
    startup: tuple[float, ...]
    graph: float
    before: float
    after: float
    workers: int
    batch: int
    task: IntArray
    depends_on: IntArray
    graph_bytes: float = 0.0
    sleeps: bool = False
    imports: float = 0.0
    cluster: Cluster | None = None

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Recorded:
    """What was recorded of one computation, its tasks in the order in which they were submitted."""

    computation: dict[str, Any]
    rows: IntArray
    workers: IntArray
    cpu: FloatArray
    worker_cpu: float
    pool_cpu: float
    moments: Moments

    @property
    def in_processes(self) -> bool:
        """Whether other processes ran the tasks."""
        return bool(self.computation["scheduler"] == "processes")

    @property
    def on_cluster(self) -> bool:
        """Whether the workers of a cluster ran the tasks."""
        return bool(self.computation["scheduler"] == "distributed")

    @property
    def switching_cpu(self) -> float:
        """CPU seconds of worker threads outside tasks; 0 if not known, as in other processes."""
        return max(self.worker_cpu - float(self.cpu.sum()), 0.0)

    @property
    def scheduler_cpu(self) -> float:
        """CPU seconds of the scheduler's thread, without those of tasks; 0 if not known."""
        cpu = float(np.nan_to_num(self.computation["scheduler_cpu"]))
        is_in_tasks = self.computation["scheduler"] == "synchronous"
        return max(cpu - float(self.cpu.sum()), 0.0) if is_in_tasks else cpu

    @property
    def others(self) -> float:
        """CPUs that other programs had, on average; 0 if that is not known."""
        lasted = float(self.computation["stop"] - self.computation["start"])
        used = float(np.nan_to_num(self.computation["others_cpu"]))
        return used / lasted if lasted > 0 else 0.0

    @property
    def children_cpu(self) -> float:
        """CPU seconds of programs that tasks start; 0 if not known, as in worker processes."""
        cpu = float(np.nan_to_num(self.computation["children_cpu"]))
        return 0.0 if self.in_processes else cpu

    @property
    def ordered(self) -> float:
        """When the graph was in order; if that is not known, when the first task was submitted."""
        first = float(self.moments.submitted[0])
        return float(np.fmin(self.computation["prepared"], first))


@dataclass(frozen=True)
class Moments:
    """Times of tasks.

    Attributes
    ----------
    submitted : array of float
        When the scheduler had the task ready to be sent.
    start, stop : array of float
        From when to when it occupied a worker, transfers included.
    received : array of float
        When the scheduler had its result from another process; NaN in the same process.
    collected : array of float
    """

    submitted: FloatArray
    start: FloatArray
    stop: FloatArray
    received: FloatArray
    collected: FloatArray

    def rows(self, rows: IntArray) -> Moments:
        """Those of some of the tasks."""
        return Moments(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True)
class Steps:
    """What the scheduler had done before it submitted, and before it collected, each task.

    Attributes
    ----------
    before_submission, before_collection : array of float
        When it had done the step before.
    round : array of int
        How many collections came before the submission: tasks of a round are submitted together.
    last_of_round : array of float
        When the last task of the round was submitted.
    submissions : array of int
        How many submissions came before the collection.
    """

    before_submission: FloatArray
    before_collection: FloatArray
    round: IntArray
    last_of_round: FloatArray
    submissions: IntArray


def moments_of(recording: Recording) -> Moments:
    """Of all tasks; what was not measured follows from what was."""
    tasks, moves = recording.tasks, transfer_times(recording)
    submitted = np.where(np.isnan(tasks.submitted), tasks.start, tasks.submitted)
    submitted = np.where(np.isnan(submitted), recording.start, submitted)
    received = np.full(len(tasks), np.nan)
    if moves.scheduler:
        submitted = np.fmax(submitted, moves.scheduler[Activity.SERIALIZE][1])
        received = moves.scheduler[Activity.DESERIALIZE][0]
    start = np.fmax(np.fmin(tasks.start, moves.worker_start), submitted)
    start = np.where(np.isnan(start), submitted, start)
    stop = np.fmax(np.fmax(tasks.stop, moves.worker_stop), start)
    unfinished = np.isnan(tasks.stop) & ~tasks.outcome.where(Outcome.OK)
    stop = np.where(unfinished, np.fmax(computation_stops(recording), start), stop)
    return Moments(
        submitted=submitted,
        start=start,
        stop=stop,
        received=np.maximum(received, stop),
        collected=np.fmax(tasks.collected, stop),
    )


def steps_of(moments: Moments) -> Steps:
    """The steps of a computation, its tasks in the order in which they were submitted."""
    count = len(moments.submitted)
    # At the same moment a task is collected first, which lets another one be submitted.
    times = np.concatenate([moments.collected, moments.submitted])
    order = np.argsort(times, kind="stable")
    position = np.empty(2 * count, np.int64)
    position[order] = np.arange(2 * count)
    collection, submission = position[:count], position[count:]
    is_collection = order < count
    collections: IntArray = np.cumsum(is_collection) - is_collection
    before = np.concatenate([[moments.submitted[0]], times[order][:-1]])
    rounds: IntArray = collections[submission]
    latest = np.zeros(count + 1)
    np.maximum.at(latest, rounds, moments.submitted)
    return Steps(
        before_submission=before[submission],
        before_collection=before[collection],
        round=rounds,
        last_of_round=latest[rounds],
        submissions=collection - collections[collection],
    )


def batches_of(steps: Steps, workers: IntArray, in_processes: bool) -> IntArray:
    """The number of the batch of each task: what a worker was sent at once.

    Tasks that were sent together were submitted in one round, ran on one worker, and were collected
    without a submission between. Threads are sent one task at a time.
    """
    if not in_processes:
        return np.arange(len(workers))
    alike = [np.diff(values) == 0 for values in (steps.round, workers, steps.submissions)]
    new: BoolArray = ~np.concatenate([[False], np.logical_and.reduce(alike)])
    return np.asarray(np.cumsum(new) - 1)


def ordinals(groups: IntArray) -> IntArray:
    """The place of each in its group; the members of a group stand together."""
    new = np.concatenate([[True], np.diff(groups) != 0])
    return np.asarray(np.arange(len(groups)) - np.flatnonzero(new)[np.cumsum(new) - 1])


def sends_before(moments: Moments, steps: Steps, is_first: BoolArray) -> IntArray:
    """How often workers were sent tasks between the collection before and that of each task."""
    sent = np.concatenate([[0], np.cumsum(is_first)])[steps.submissions]
    order = np.argsort(moments.collected, kind="stable")
    sends = np.empty(len(order), np.int64)
    sends[order] = np.diff(sent[order], prepend=0)
    return sends


def measured_or_typical(values: FloatArray, measured: BoolArray) -> FloatArray:
    """The values that were measured, and their median in place of the others."""
    typical = float(np.median(values[measured])) if measured.any() else 0.0
    return np.where(measured, values, typical)
