"""What a computation consists of, for the simulator: seconds of its tasks, and of handing them out.

Tasks are numbered in the order in which the scheduler submitted them, which is the order in which
it prefers them.
"""

from __future__ import annotations

from dataclasses import dataclass

from dask_diag.columns import FloatArray, IntArray

__all__ = ["STEPS", "Cluster", "Work"]

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
