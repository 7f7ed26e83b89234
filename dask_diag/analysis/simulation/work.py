"""Tasks and costs of a computation, and the prediction for a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_diag.columns import Categorical, FloatArray, IntArray
from dask_diag.model.table import Table

Row = dict[str, Any]
"""A row of a table, by column."""
Columns = Row
"""Some of the columns of `Work`, by name."""


@dataclass(frozen=True)
class Simulation:
    """Predicted wall time of a recorded program.

    Attributes
    ----------
    seconds : float
        Predicted wall time of the whole recording.
    measured : float
        Measured wall time.
    outside : float
        Seconds before, between and after computations, which are not simulated.
    computations : Table
        A row per computation that ran tasks: ``computation``, ``workers``, and in seconds
        ``measured``, ``seconds`` (predicted), ``preparing``, ``scheduling``, ``work``.
    """

    seconds: float
    measured: float
    outside: float
    computations: Table

    @property
    def error(self) -> float:
        """Predicted minus measured seconds: the error of a simulation without changes."""
        return self.seconds - self.measured

    @property
    def preparing(self) -> float:
        """Seconds of computations before their first tasks and after their last."""
        return self._sum("preparing")

    @property
    def scheduling(self) -> float:
        """Seconds in which schedulers' threads submit tasks and collect results."""
        return self._sum("scheduling")

    @property
    def work(self) -> float:
        """Task time, in seconds."""
        return self._sum("work")

    def _sum(self, column: str) -> float:
        return float(self.computations[column].sum()) if len(self.computations) else 0.0


def table_of(rows: Sequence[Row]) -> Table:
    """Table with the rows."""
    if not rows:
        return Table({})
    names = Categorical.of(row["computation"] for row in rows)
    numbers = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return Table({**numbers, "computation": names})


STEPS = ("prepare", "wake", "gap", "collect", "deliver", "notice")
"""Steps of the scheduler for each task: columns of `Work`, in seconds."""


@dataclass(frozen=True)
class Cluster:
    """Facts of a computation on a cluster, in addition to those of `Work`.

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
    """Tasks of one computation and costs of its scheduler; arrays have a value per task.

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
    cpu_scheduler : float
        CPU seconds of the scheduler's thread, which need the GIL, too.
    pool_cpu : float
        CPU seconds of other threads that tasks use: native pools, and Python's.
    cpu_children : float
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
    cpu_scheduler: float
    pool_cpu: float
    cpu_children: float
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
