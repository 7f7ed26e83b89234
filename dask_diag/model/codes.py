"""The fixed words in tables and their meanings: activities, outcomes, phases, findings."""

from __future__ import annotations

THREAD_KINDS = {
    "tasks": "Threads that ran tasks; for a thread that also ran the scheduler, only its tasks.",
    "scheduler": "The thread that called the scheduler, without its tasks.",
    "dask_diag": "The profilers' own threads.",
    "python": "Other threads that Python code started.",
    "native": "Threads that a native library, such as BLAS, started.",
    "ended": "Threads of any kind that ended during the computation.",
}
"""Kinds of threads, into which the CPU of the computing process is divided; of worker processes,
the CPU of threads that run no tasks."""


COLLECTED = "objects"
"""Unit of what a collection of garbage found."""
FULL_COLLECTION = "full collections"
"""Unit of the collections that looked through objects of all ages."""
IN_TASKS, COMPUTATIONS, REPEATS = "computations in tasks", "computations", "repeats of "
"""Label of the seconds in which tasks ran dask inside, the unit of the number of times, and the
begin of the unit of the number of those that only ran steps of that name again."""
STORED_CHUNKS = "(chunks of a stored array)"
"""What stands in place of a step's calls where reads of stored chunks are counted."""
COMMITS = frozenset({"commit", "fsync", "fdatasync"})
"""Functions that wait until data is on a disk."""
GROWS = frozenset({"append", "concat", "concatenate", "hstack", "insert", "vstack"})
"""Functions that copy a table or an array to add to it."""
QUERIES = frozenset({"execute"})
"""Functions that ask a database."""
NO_GIL, GIL_ON = ", free-threaded, GIL off", ", free-threaded, GIL on"
"""What the environment says behind the version of Python, of builds that can run without a GIL."""
SENT_CODE = "<dynamic-code>"
"""The file of functions of the main module in other processes, as cloudpickle names it."""
ATTACHED = "attached"
"""The section of the environment that says to which program a recording was attached."""
UNKNOWN_WORKER = "unknown"
"""The worker of tasks whose worker is not known."""


class ProgressPhase:
    """Phases of a running computation; `PROGRESS_PHASES` has their meanings."""

    GRAPH = "graph"
    ORDERING = "ordering"
    TASKS = "tasks"


class State:
    """States of a recording; `STATES` has their meanings."""

    COMPLETE = "complete"
    TRUNCATED = "truncated"
    DAMAGED = "damaged"


class Outcome:
    """Outcomes of a task; `OUTCOMES` has their meanings."""

    OK = "ok"
    FAILED = "failed"
    UNFINISHED = "unfinished"
    CANCELLED = "cancelled"
    RESCHEDULED = "rescheduled"


class Activity:
    """Names of activities; `ACTIVITIES` has their meanings."""

    CPU = "thread-cpu"
    NONCPU = "thread-noncpu"
    GC = "gc"
    CPU_WAIT = "cpu-wait"
    GIL_WAIT = "gil-wait"
    LOCK_WAIT = "lock-wait"
    THREAD_WAIT = "thread-wait"
    IO_WAIT = "io-wait"
    CHILD_WAIT = "child-wait"
    SLEEP = "sleep"
    DEVICE_WAIT = "device-wait"
    PAGE_FAULT = "page-fault"
    UNEXPLAINED = "unexplained"
    DESERIALIZE = "deserialize"
    SERIALIZE = "serialize"
    FAILED = "failed"
    UNFINISHED = "unfinished"
    CANCELLED = "cancelled"
    RESCHEDULED = "rescheduled"
    TRANSFER = "transfer"
    SPILL = "spill"
    EVENT_LOOP = "event-loop"
    GRAPH = "graph"
    STARTUP = "startup"
    PROFILERS = "profilers"
    OVERHEAD = "overhead"
    OTHER = "other"
    IDLE = "idle"


class WorkerEvent:
    """Events of a worker of a cluster; `WORKER_EVENTS` has their meanings."""

    PAUSED = "paused"
    DISK_WRITE = "disk-write"
    DISK_READ = "disk-read"


class Root:
    """Roots of stack samples; `ROOTS` has their meanings."""

    BEFORE = "before computations"
    GRAPH = "graph"
    SCHEDULER = "scheduler"
    BETWEEN = "between computations"
    TASKS = "tasks"
    THREADS = "other threads"


class LineSource:
    """How the line that built a step is known; `LINE_SOURCES` has the meanings."""

    NAME = "name"
    TOKEN = "token"
    DEPENDENTS = "dependents"
    BEFORE = "built before"
    COMPUTED = "computed at"


STATES = {
    State.COMPLETE: "The writing process closed the file, and its content is unchanged.",
    State.TRUNCATED: "The writing process did not close the file, or its end is lost.",
    State.DAMAGED: "The content of the file has changed since it was written.",
}
"""States of a recording, from good to bad."""

OUTCOMES = {
    Outcome.OK: "It returned a result.",
    Outcome.FAILED: "It raised an exception.",
    Outcome.UNFINISHED: "It was submitted, but had no result when its computation stopped.",
    Outcome.CANCELLED: "Its result was no longer requested.",
    Outcome.RESCHEDULED: "It asked to run again, possibly on another worker.",
}
"""Outcomes of a task."""

PROGRESS_PHASES = {
    ProgressPhase.GRAPH: "Dask constructs and optimizes the graph.",
    ProgressPhase.ORDERING: "The scheduler orders the tasks of the graph.",
    ProgressPhase.TASKS: "Tasks can run.",
}
"""Phases of a running computation."""

WAITS = {
    Activity.CPU_WAIT: "The thread could run but had no CPU (read from the kernel).",
    Activity.GIL_WAIT: "The thread waited for the GIL.",
    Activity.LOCK_WAIT: "The thread waited for another lock.",
    Activity.THREAD_WAIT: "The thread waited for another thread of the program: for a result, an "
    "event, its end, or a computation started in the task. On a cluster, `lock-wait`.",
    Activity.IO_WAIT: "The thread waited for files, sockets or pipes.",
    Activity.CHILD_WAIT: "The thread waited for another program, for its end or at its pipe.",
    Activity.SLEEP: "The thread slept.",
    Activity.DEVICE_WAIT: "The thread waited for a device.",
    Activity.PAGE_FAULT: "The thread waited for memory from the kernel.",
    Activity.UNEXPLAINED: "The thread was off the CPU, and no sample shows why.",
}
"""Waits of a task; `thread-noncpu` is divided into these where waits are recorded."""

TASK_ACTIVITIES = {
    Activity.CPU: "A task's thread had a CPU, outside metered code.",
    Activity.NONCPU: "A task's thread was off the CPU, outside metered code.",
    **WAITS,
    Activity.GC: "A task's thread collected garbage, in collections of at least 0.2 ms; no other "
    "thread runs Python code meanwhile.",
    Activity.DESERIALIZE: "A worker process deserialized a task's inputs; or a free worker waited "
    "while the scheduler deserialized a result.",
    Activity.SERIALIZE: "A worker process serialized a result; or a free worker waited while the "
    "scheduler serialized a task.",
    Activity.FAILED: "All time of tasks that raised an exception.",
    Activity.UNFINISHED: "All time of tasks that had no result when their computation stopped.",
    Activity.CANCELLED: "All time of tasks whose results were no longer requested.",
    Activity.RESCHEDULED: "All time of tasks that asked to run again.",
}
"""Activities of a worker that has a task, besides those that tasks metered."""

ROOTS = {
    Root.BEFORE: "The profiled thread before the first computation: imports, reading data.",
    Root.GRAPH: "A thread that called dask: graph construction, optimization and ordering.",
    Root.SCHEDULER: "Dask's scheduler, on the thread that called it, without tasks.",
    Root.BETWEEN: "The profiled thread between and after computations, and while it computes "
    "futures.",
    Root.TASKS: "Tasks, on the threads that ran them.",
    Root.THREADS: "Other Python threads of the process while tasks ran, only while these had a CPU "
    "or waited for one. Linux only.",
}
"""Roots of stack samples, in the order of time."""

LINE_SOURCES = {
    LineSource.NAME: "The line named the layer or made the expression.",
    LineSource.TOKEN: "The name contains the token of a name that the line made.",
    LineSource.DEPENDENTS: "Dask invented the name; the line is that of the tasks that depend on "
    "it.",
    LineSource.BEFORE: "The work was built before recording started: the line is unknown.",
    LineSource.COMPUTED: "A graph without collections: the line is that of the computation.",
}
"""How the line that built a step is known."""

PHASES = {
    "before": "Before the first computation.",
    "preparing": "Construction, optimization and ordering of a graph, with the imports for it, up "
    "to the start of its first task; on a cluster, up to its arrival there.",
    "tasks": "From the start of a computation's first task to the stop of the computation; on a "
    "cluster, from the arrival of its graph.",
    "finishing": "From the stop of a computation until `dask.compute` returned: results are put "
    "together, or gathered from a cluster, and a pool of worker processes ends.",
    "between": "Between computations.",
    "after": "After the last computation.",
}
"""Phases of the wall time of a recording."""

WORKER_ACTIVITIES = {
    Activity.GRAPH: "No task yet: graph construction, optimization and ordering; also imports, if "
    "stacks were not sampled.",
    Activity.STARTUP: "No task yet: dask imported modules before graph construction; or a worker "
    "process had not started its first task, although a task could have run. As a part of wall "
    "time also: a cluster had no worker.",
    Activity.PROFILERS: "No task yet: the profilers started with a computation.",
    Activity.TRANSFER: "A free worker of a cluster waited for results from other workers.",
    Activity.SPILL: "A free worker of a cluster waited while it spilled or unspilled results.",
    Activity.EVENT_LOOP: "A free worker of a cluster waited while a coroutine computed or blocked "
    "on its event loop.",
    Activity.OVERHEAD: "A worker was free while a task was ready or a result waited to be "
    "collected.",
    Activity.OTHER: "A worker may have been busy: a task of unknown running time was in flight. Or "
    "a worker of a cluster ran tasks of other clients.",
    Activity.IDLE: "A worker was free, and no task was ready.",
}
"""Activities of a worker without a task."""

WORKER_EVENTS = {
    WorkerEvent.PAUSED: "The worker started no tasks: its process was close to its memory limit.",
    WorkerEvent.DISK_WRITE: "The worker spilled results: wrote them to disk to free memory.",
    WorkerEvent.DISK_READ: "The worker unspilled results: read them back from disk.",
}
"""Events of a worker of a cluster, besides its tasks."""

PROFILING = "profiling: "
"""The start of notices about the quality of profiling, which change no number."""

ACTIVITIES = {**TASK_ACTIVITIES, **WORKER_ACTIVITIES}
"""Activities of a worker; their times sum to wall time times workers."""

FINDINGS = {
    "repeated-work": "Computations repeated work of earlier ones.",
    "small-computations": "Computations took long compared with their few tasks.",
    "nested-computations": "Tasks computed with Dask inside.",
    "gil-bound": "Tasks waited for the GIL.",
    "thread-oversubscription": "Native threads and tasks competed for the CPUs.",
    "tasks-too-small": "Tasks were short compared with their overhead.",
    "disk-shuffle": "A dataframe or a bag was shuffled through files.",
    "serial-chain": "A chain of dependent tasks took most of the time.",
    "straggler": "Workers were idle while one task ran.",
    "imbalance": "Workers ran out of tasks at different times.",
    "io-bound": "Tasks waited for files or sockets.",
    "serialization-bound": "Moving data between processes took long.",
    "overlapping-computations": "Computations competed for the CPUs.",
    "garbage-collection": "Tasks collected garbage for long.",
    "memory-growth": "Memory grew and was not released.",
    "failed-tasks": "Tasks raised exceptions, or worker processes died.",
    "cpu-quota": "A limit of CPU time held the program back.",
    "busy-machine": "Other processes used CPUs that tasks waited for.",
    "slow-start": "Much time passed before the first computation.",
    "graph-preparation": "Graphs took long to construct, optimize and order.",
    "first-call": "First runs of a function compiled or loaded something.",
    "pool-startup": "Worker processes took long to start.",
    "scheduler-bound": "Workers waited for the scheduler's thread.",
    "lock-bound": "Tasks waited for a lock.",
    "busy-thread": "Tasks waited for one thread that was busy.",
    "slow-call": "Tasks mostly ran in a call with a faster alternative.",
    "too-few-threads": "Too few tasks ran at once, while CPUs were idle.",
    "short-programs": "Tasks started programs that ran for a short time.",
    "batched-tasks": "Tasks of a batch waited while processes were idle.",
    "chunks-too-large": "Fewer tasks than workers did most of the work.",
    "cache-pressure": "Cached results came near the memory limit.",
    "large-arguments": "Tasks of a cluster were given large data.",
    "large-results": "Large or many results were brought to the program.",
    "serial-computations": "Tasks were submitted one by one, after each result.",
    "client-bound": "The program ran its own code between computations.",
    "transfer-bound": "Workers waited for results of other workers.",
    "unbalanced-workers": "Workers were idle while tasks waited.",
    "spilling": "Workers spilled results to disk.",
    "memory-pressure": "Workers paused because memory was nearly used up.",
    "worker-lost": "Workers left with tasks or results that were needed.",
    "late-samples": "Samples of CPU and memory were taken late.",
}
"""The codes of findings; each has a page in the documentation."""
CAUSES = {
    "repeated-work": "work that was done before",
    "small-computations": "the cost of a computation for few tasks",
    "nested-computations": "computations inside of tasks",
    "gil-bound": "tasks waiting for the GIL",
    "thread-oversubscription": "native threads competing for the CPUs",
    "tasks-too-small": "scheduling overhead of small tasks",
    "disk-shuffle": "shuffling through files",
    "serial-chain": "a chain of dependent tasks",
    "straggler": "tasks much longer than the others",
    "imbalance": "workers that ran out of tasks early",
    "io-bound": "tasks waiting for files or sockets",
    "serialization-bound": "moving tasks and results between processes",
    "overlapping-computations": "computations competing for the CPUs",
    "garbage-collection": "collecting garbage",
    "failed-tasks": "tasks that failed",
    "cpu-quota": "the limit of CPU time",
    "busy-machine": "other processes on the CPUs",
    "slow-start": "time before the first computation",
    "graph-preparation": "graph preparation",
    "first-call": "first runs that compile or load something",
    "pool-startup": "starting worker processes",
    "scheduler-bound": "the scheduler's thread",
    "lock-bound": "tasks waiting for a lock",
    "busy-thread": "tasks waiting for one busy thread",
    "slow-call": "a call with a faster alternative",
    "too-few-threads": "too few tasks at once",
    "short-programs": "short programs that tasks start",
    "batched-tasks": "batches of tasks for one process",
    "chunks-too-large": "fewer tasks than workers",
    "large-arguments": "data sent with each task",
    "large-results": "results on their way to the program",
    "serial-computations": "tasks submitted one by one",
    "client-bound": "the program's own code between computations",
    "transfer-bound": "workers waiting for results of other workers",
    "unbalanced-workers": "threads idle while tasks waited elsewhere or for a resource",
    "spilling": "workers moving results to disk or back",
    "memory-pressure": "workers paused for want of memory",
    "worker-lost": "workers that left the cluster",
}
"""Name of the cause of each finding that states seconds."""
