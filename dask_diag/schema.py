"""Every table and column of a `Recording`, and the fixed words in them, named once.

Tables are typed from it (`dask_diag.model.tables`), builders fill what it names, storage writes it,
and the documentation's page of columns is made of it. It imports nothing that takes time, so that
what runs beside the user's tasks can use its words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

if TYPE_CHECKING:
    from dask_diag.columns import Categorical, FloatArray, IntArray, PrefixStrings

__all__ = [
    "ACTIVITIES",
    "FINDINGS",
    "OUTCOMES",
    "PHASES",
    "PROGRESS_PHASES",
    "REFERENCES",
    "STATES",
    "TABLES",
    "TASK_ACTIVITIES",
    "THREAD_KINDS",
    "WAITS",
    "WORKER_ACTIVITIES",
    "Activity",
    "Column",
    "Outcome",
    "ProgressPhase",
    "Schema",
    "State",
]

Values = TypeVar("Values")


class Column(Generic[Values]):
    """One column of a table.

    Attributes
    ----------
    name : str
    kind : {"float", "integer", "category", "text"}
        What it is stored as: numbers, or text. A category has few distinct values; a text has many.
    unit : str
        ``s``, ``bytes``, ``%``, or empty for counts, positions and text.
    meaning : str
        One sentence.
    """

    def __init__(self, kind: str, unit: str, meaning: str) -> None:
        self.name = ""
        self.kind = kind
        self.unit = unit
        self.meaning = meaning

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, table: None, owner: type) -> Column[Values]: ...

    @overload
    def __get__(self, table: Schema, owner: type) -> Values: ...

    def __get__(self, table: Schema | None, owner: type) -> Column[Values] | Values:
        if table is None:
            return self
        values: Values = table[self.name]
        return values


class Schema:
    """A table's columns, as class attributes; an instance has the values, by the same names."""

    schema: ClassVar[Mapping[str, Column[Any]]] = {}

    def __init_subclass__(cls) -> None:
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Column)}
        cls.schema = {**cls.schema, **own}

    def __getitem__(self, name: str) -> Any:
        raise NotImplementedError


def _seconds(meaning: str) -> Column[FloatArray]:
    return Column("float", "s", meaning)


def _number(unit: str, meaning: str) -> Column[FloatArray]:
    return Column("float", unit, meaning)


def _integer(meaning: str) -> Column[IntArray]:
    return Column("integer", "", meaning)


def _category(meaning: str) -> Column[Categorical]:
    return Column("category", "", meaning)


def _text(meaning: str) -> Column[PrefixStrings]:
    return Column("text", "", meaning)


class Computations(Schema):
    """A row per computation: one graph that a scheduler ran."""

    computation = _category("Its id, unique among all runs.")
    called = _seconds("When `dask.compute` was called; `start` where it was not, or not seen.")
    start = _seconds("When the scheduler started, with a graph that was made.")
    prepared = _seconds("When the graph was in order and its first task could be submitted.")
    stop = _seconds("When it returned or raised; of one that still runs, now.")
    workers = _integer("How many tasks could run at once; 0 if not known.")
    process_cpu = _seconds("CPU of the computing process meanwhile, all threads.")
    scheduler_cpu = _seconds("CPU of the thread that called the scheduler.")
    others_cpu = _seconds(
        "CPU of other programs meanwhile, on the CPUs that the process may use; NaN if not known."
    )
    hooks_cpu = _seconds(
        "CPU of the profilers' hooks meanwhile, about: calibrated per task; NaN if not known."
    )
    voluntary_switches = _number("", "How often a thread of the process gave its CPU up to wait.")
    involuntary_switches = _number("", "How often one lost its CPU though it could have run.")
    cpus = _integer("How many CPUs the process may use.")
    memory_limit = _number("bytes", "Memory that the process may use; NaN if not known.")
    span = _category("The span in which it started; empty without one.")
    scheduler = _category("`threads`, `processes`, `synchronous` or `distributed`.")
    cluster = _category("The id of the cluster that ran it; empty on a local scheduler.")
    error = _category("The exception's type; empty if there was none.")


class Planned(Schema):
    """A row per computation and function: how many of its tasks the scheduler was to run."""

    computation = _category("The computation.")
    function = _category("The function, as in `tasks`.")
    tasks = _integer("How many of its tasks; those that were not run are among them.")


class Progress(Schema):
    """A row per computation that runs, as it was when the recording was read or written last."""

    computation = _category("The computation; empty while its graph is made.")
    phase = _category("`graph`, `ordering` or `tasks`: see the phases of a running computation.")
    since = _seconds("When this phase started.")
    total = _integer("How many tasks it has; while they are put in order, data are among them.")
    finished = _integer("How many the scheduler has finished.")
    ready = _integer("How many could run, and wait for a worker.")
    waiting = _integer("How many wait for others.")
    running = _integer("How many were handed to workers and not collected.")


class Tasks(Schema):
    """A row per task that was submitted."""

    key = _text("Its key, as text.")
    function = _category("The prefix of the key; without one, the name of the function called.")
    start = _seconds("When it started, read on the thread that ran it.")
    stop = _seconds("When it stopped, read there too.")
    thread_cpu = _seconds("CPU of that thread between the two.")
    thread_noncpu = _seconds("The rest of the time between the two.")
    submitted = _seconds("When the scheduler submitted it.")
    collected = _seconds("When the scheduler collected its result; NaN if it did not.")
    worker = _category("The thread or process that ran it: `thread-0`, `process-3`, `caller`.")
    pid = _category("The process that ran it; 0 if not known.")
    thread = _category("The ident of the thread that ran it; 0 if not known.")
    computation = _category("The computation it belongs to.")
    span = _category("The span it was annotated with, else its computation's.")
    outcome = _category("`ok`, `failed`, `unfinished`, `cancelled` or `rescheduled`.")
    error = _category("The exception's type; empty if there was none.")
    error_message = _category(
        "What it says, cut, and without what looks like a secret; empty on a cluster."
    )
    error_location = _category(
        "File, line and function of the program's innermost line; empty on a cluster."
    )
    attempt = _integer("1 for its first run, 2 for the second, …; each run is a row.")
    host = _category("The host that ran it; empty if not known.")
    nbytes = _number("bytes", "The size of its result, as distributed measures it; else NaN.")
    queued = _seconds(
        "How long a cluster's scheduler had it ready and did not send it; NaN elsewhere."
    )
    stolen = _integer("1 if another worker ran it than it was first sent to, else 0.")
    client = _category("The client of a cluster that asked for it; empty elsewhere.")
    seceded = _seconds("When it gave its worker's thread back though it went on; NaN if never.")
    seceded_cpu = _seconds("Of `thread_cpu`, what it used after that; NaN if it did not.")


class Dependencies(Schema):
    """A row per dependency of a task on another task's result."""

    task = _integer("Row of the task in `tasks`.")
    depends_on = _integer("Row in `tasks` of the task whose result it takes.")


class Metrics(Schema):
    """A row per metric that a task reported through `context_meter`."""

    task = _integer("Row of the task in `tasks`.")
    activity = _category("The label it was reported under.")
    unit = _category("Its unit, `seconds`, `bytes` or any other.")
    value = _number("its unit", "How much.")
    cpu = _seconds("Of seconds, how many were CPU seconds; NaN if not known.")


class Resources(Schema):
    """A row per sample of a `ResourceProfiler`."""

    time = _seconds("When it was taken.")
    cpu = _number("%", "CPU since the sample before, of one core, of all processes together.")
    memory = _number("bytes", "Resident memory of the computing process.")
    memory_children = _number("bytes", "Resident memory of its descendants.")
    read = _number("bytes", "Bytes read from storage since the first sample.")
    written = _number("bytes", "Bytes written to storage since the first sample.")
    threads = _number("", "Threads of all processes.")
    delay = _seconds("How long after it was due the sample was taken.")
    cpu_others = _number(
        "%", "CPU of other programs since the sample before, of one core; NaN if not known."
    )


class Processes(Schema):
    """A row per process and sample of `resources`, and more from between tasks."""

    time = _seconds("When it was read.")
    pid = _integer("The process.")
    is_child = _integer("0 for the computing process, 1 for its descendants.")
    memory = _number("bytes", "Its resident memory.")


class Memory(Schema):
    """A row per sample of a `MemorySampler`, over this process and its descendants."""

    label = _category("The series it belongs to, a block of the program.")
    time = _seconds("When it was taken.")
    rss = _number("bytes", "Resident memory; pages that processes share count in each.")
    pss = _number("bytes", "Proportional memory: shared pages are divided; NaN if not read.")
    uss = _number("bytes", "Memory of one process alone, summed; NaN if not read.")
    processes = _number("", "How many processes.")
    delay = _seconds("How long after it was due the sample was taken.")


class CachedResults(Schema):
    """A row per result that the scheduler cached for the tasks that depend on it."""

    key = _text("The key of its task.")
    function = _category("The function of its task.")
    computation = _category("The computation it belongs to.")
    metric = _number("of the recording's `metric_unit`", "Its size, as the metric measures it.")
    start = _seconds("When the scheduler got it.")
    stop = _seconds("When the scheduler released it.")


class Transfers(Schema):
    """A row each time that a task or a result was moved between processes."""

    task = _integer("Row of the task in `tasks`.")
    activity = _category("`serialize` or `deserialize`; `transfer` between workers of a cluster.")
    side = _category("Where it was done: `scheduler` or `worker`; `network` of a transfer.")
    start = _seconds("When it started.")
    stop = _seconds("When it stopped.")
    bytes = _number("bytes", "Size of what was pickled or sent.")
    source = _category("The worker of a cluster that it was sent from; else empty.")
    destination = _category("The worker that it was sent to; else empty.")


class Pools(Schema):
    """A row per native thread pool (BLAS, OpenMP) at the end of a computation."""

    computation = _category("The computation.")
    library = _category("The library, as threadpoolctl names it; empty if not known.")
    threads = _integer("How many threads it has; 0 if not known.")
    known = _integer("0 in the one row of a computation whose pools could not be listed, else 1.")


class Workers(Schema):
    """A row per worker of a cluster, or computation and worker process that ran its tasks."""

    computation = _category("The computation; of a worker of a cluster, the cluster.")
    pid = _category("The process; 0 if not known.")
    joined = _seconds("When it could first run tasks: before its computation or in it.")
    worker = _category("Its name, with which `tasks.worker` starts; empty elsewhere.")
    address = _category("Its address; empty if it is no worker of a cluster.")
    host = _category("The host it runs on.")
    threads = _integer("How many tasks it can run at once.")
    left = _seconds("When it left the cluster; NaN if it did not.")
    reason = _category("Why it left, as distributed's scheduler says.")
    clock_offset = _seconds("What was added to its times; 0 where processes share a clock.")
    clock_error = _seconds("How wrong that may be.")
    version = _category("The version of dask_diag that it has; empty if none.")
    measured = _integer("1 if its tasks were measured there, 0 if distributed's times are used.")


class OtherTasks(Schema):
    """A row per task of a client that was not recorded, on a worker of a cluster that was."""

    computation = _category("The cluster.")
    worker = _category("The worker, as in `workers`.")
    start = _seconds("When it started.")
    stop = _seconds("When it stopped or seceded.")


class Threads(Schema):
    """A row per computation and group of threads of the computing process that used CPU.

    They sum to the CPU of that process. A very short computation has none: reading the clocks would
    take too long a part of it.
    """

    computation = _category("The computation.")
    kind = _category("What the threads are: see the kinds of threads.")
    name = _category(
        "Of Python's threads their name without its number, of native ones the library that "
        "runs them; empty if not known."
    )
    threads = _integer("How many threads; 0 if not known.")
    cpu_seconds = _seconds("CPU of these threads meanwhile.")


class Waits(Schema):
    """A row per thing that a task waited for."""

    task = _integer("Row of the task in `tasks`.")
    activity = _category("What it waited for: `cpu-wait`, `gil-wait`, `io-wait`, …")
    seconds = _seconds("For how long: exact for `cpu-wait`, else what its samples represent.")
    samples = _integer("In how many samples it was seen; 0 for `cpu-wait`, which is exact.")


class Frames(Schema):
    """A row per line of code that was seen running."""

    name = _category("The qualified name of its function.")
    file = _category("The source file; empty for functions not written in Python.")
    line = _integer("The line.")
    first_line = _integer("The line where the function starts; 0 if not known.")


class CallTree(Schema):
    """A row per node of the tree of calls."""

    parent = _integer("Row of its caller in `call_tree`, an earlier one; -1 of an outermost call.")
    frame = _integer("Row of its line in `frames`.")


class Samples(Schema):
    """A row per cycle, root, function, key and call stack."""

    start = _seconds("When the cycle started.")
    stop = _seconds("When the cycle stopped.")
    root = _category("What the time belongs to, such as `tasks` or `scheduler`.")
    function = _category("The function of the tasks that were sampled; empty outside tasks.")
    key = _category("The task's key, of tasks longer than a quarter of a cycle; else empty.")
    node = _integer("Row of the innermost call in `call_tree`; -1 for time not sampled.")
    seconds = _seconds("Self time: the seconds that the samples represent.")
    cpu_seconds = _seconds("How many of these were CPU seconds.")
    count = _integer("How many samples.")


class Environment(Schema):
    """A row per fact about where the recording was made."""

    section = _category("`versions`, `machine`, `configuration` or `calling code`.")
    name = _text("What it is.")
    value = _text("Its value, as text; what looks like a secret is masked.")


TABLES: Mapping[str, type[Schema]] = {
    "computations": Computations,
    "planned": Planned,
    "progress": Progress,
    "tasks": Tasks,
    "dependencies": Dependencies,
    "metrics": Metrics,
    "resources": Resources,
    "processes": Processes,
    "memory": Memory,
    "cached_results": CachedResults,
    "transfers": Transfers,
    "waits": Waits,
    "pools": Pools,
    "workers": Workers,
    "other_tasks": OtherTasks,
    "threads": Threads,
    "frames": Frames,
    "call_tree": CallTree,
    "samples": Samples,
    "environment": Environment,
}
"""The tables of a `Recording`, by the names of its attributes."""

REFERENCES: Mapping[str, tuple[str, ...]] = {
    "dependencies": ("task", "depends_on"),
    "metrics": ("task",),
    "transfers": ("task",),
    "waits": ("task",),
}
"""The tables that refer to tasks, and which of their columns are rows of `tasks`."""

THREAD_KINDS = {
    "tasks": "Threads that ran tasks; of a thread that also ran the scheduler, the tasks' part.",
    "scheduler": "The thread that called the scheduler, without tasks.",
    "dask_diag": "The profilers' own threads.",
    "python": "Other threads that Python code started.",
    "native": "Threads that a native library started, such as BLAS.",
    "ended": "Threads that ended meanwhile, of whatever kind.",
}
"""What a thread of the computing process can be; the CPU of that process is divided into these."""


class ProgressPhase:
    """What a computation that runs does; `PROGRESS_PHASES` says what that means."""

    GRAPH = "graph"
    ORDERING = "ordering"
    TASKS = "tasks"


class State:
    """What the data of a recording can be; `STATES` says what that means."""

    COMPLETE = "complete"
    TRUNCATED = "truncated"
    DAMAGED = "damaged"


class Outcome:
    """How a task can end; `OUTCOMES` says what that means."""

    OK = "ok"
    FAILED = "failed"
    UNFINISHED = "unfinished"
    CANCELLED = "cancelled"
    RESCHEDULED = "rescheduled"


class Activity:
    """The names of activities; `ACTIVITIES` says what they are."""

    CPU = "thread-cpu"
    NONCPU = "thread-noncpu"
    CPU_WAIT = "cpu-wait"
    GIL_WAIT = "gil-wait"
    LOCK_WAIT = "lock-wait"
    IO_WAIT = "io-wait"
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
    GRAPH = "graph"
    STARTUP = "startup"
    OVERHEAD = "overhead"
    OTHER = "other"
    IDLE = "idle"


class Root:
    """What the time of a stack sample belongs to; `ROOTS` says what that means."""

    BEFORE = "before computations"
    GRAPH = "graph"
    SCHEDULER = "scheduler"
    BETWEEN = "between computations"
    TASKS = "tasks"


STATES = {
    State.COMPLETE: "The writing process closed the file, and it reads as it was written.",
    State.TRUNCATED: "The writing process did not close the file, or its end is lost.",
    State.DAMAGED: "The file was closed, and is no longer as it was written.",
}
"""What `Recording.state` can be; the worst of its parts last."""

OUTCOMES = {
    Outcome.OK: "It returned a result.",
    Outcome.FAILED: "It raised an exception.",
    Outcome.UNFINISHED: "It was submitted and had no result when its computation stopped.",
    Outcome.CANCELLED: "No one asked for its result any more.",
    Outcome.RESCHEDULED: "It asked to be run again, perhaps on another worker.",
}
"""How a task can end."""

PROGRESS_PHASES = {
    ProgressPhase.GRAPH: "Dask was called, and makes and optimizes the graph.",
    ProgressPhase.ORDERING: "The scheduler has the graph and puts its tasks in order.",
    ProgressPhase.TASKS: "Tasks can run.",
}
"""What a computation that runs can do."""

WAITS = {
    Activity.CPU_WAIT: "The thread could run and had no CPU (exact, from the kernel).",
    Activity.GIL_WAIT: "It waited for the GIL.",
    Activity.LOCK_WAIT: "It waited for another lock.",
    Activity.IO_WAIT: "It waited for files, sockets, pipes or other processes.",
    Activity.SLEEP: "It waited for the end of a sleep.",
    Activity.DEVICE_WAIT: "It waited for a device.",
    Activity.PAGE_FAULT: "It waited for memory from the kernel.",
    Activity.UNEXPLAINED: "It was off the CPU, and no sample says why.",
}
"""What a task can wait for; `thread-noncpu` is divided into these where waits are recorded."""

TASK_ACTIVITIES = {
    Activity.CPU: "A task's thread had a CPU, outside metered code.",
    Activity.NONCPU: "A task's thread had none, outside metered code.",
    **WAITS,
    Activity.DESERIALIZE: "A worker process rebuilt a task's inputs; or a free worker waited while "
    "the scheduler rebuilt a result.",
    Activity.SERIALIZE: "A worker process pickled a result; or a free worker waited while the "
    "scheduler pickled a task.",
    Activity.FAILED: "Tasks that raised an exception, whatever they did.",
    Activity.UNFINISHED: "Tasks that had no result when their computation stopped.",
    Activity.CANCELLED: "Tasks whose result no one asked for any more, whatever they did.",
    Activity.RESCHEDULED: "Tasks that asked to be run again, whatever they did.",
}
"""What the seconds of a worker that has a task are divided into, beside what tasks metered."""

ROOTS = {
    Root.BEFORE: "The profiled thread before the first computation: imports, reading.",
    Root.GRAPH: "A thread that called dask, until the graph was made, optimized and in order.",
    Root.SCHEDULER: "Dask's scheduler on the thread that called it, without tasks.",
    Root.BETWEEN: "The profiled thread between and after computations.",
    Root.TASKS: "Tasks, on the threads that ran them.",
}
"""What the seconds of stack samples are divided into, in the order of time."""

PHASES = {
    "before": "Before the first computation.",
    "preparing": "A graph was made and put in order, or its first task waited for the workers.",
    "tasks": "From the start of the first task of a computation to its stop.",
    "between": "Between computations.",
    "after": "After the last computation.",
}
"""What the wall time of a recording is divided into."""

WORKER_ACTIVITIES = {
    Activity.GRAPH: "A computation's graph was made, optimized and put in order.",
    Activity.STARTUP: "A worker process had not started its first task, though one could have run.",
    Activity.TRANSFER: "A free worker of a cluster waited for results from other workers.",
    Activity.OVERHEAD: "A worker was free while a task could have run or a result waited for the "
    "scheduler.",
    Activity.OTHER: "A worker may have been busy: a task was out and it is not known when it ran. "
    "Or one of a cluster ran tasks of clients that are not of the computation.",
    Activity.IDLE: "A worker was free and there was nothing to run.",
}
"""What the seconds of a worker without a task are divided into."""

ACTIVITIES = {**TASK_ACTIVITIES, **WORKER_ACTIVITIES}
"""What worker time is divided into; it sums to wall time times workers."""

FINDINGS = {
    "gil-bound": "Tasks waited for the GIL.",
    "thread-oversubscription": "Native thread pools and workers competed for the CPUs.",
    "tasks-too-small": "Handing tasks out took longer than running them.",
    "serial-chain": "A chain of dependent tasks took most of the time.",
    "straggler": "Workers were idle while one last task ran.",
    "imbalance": "Workers ran out of tasks at different times.",
    "io-bound": "Tasks waited for files or sockets.",
    "serialization-bound": "Moving tasks and results between processes took the time.",
    "overlapping-computations": "Computations competed for the workers.",
    "memory-growth": "Memory grew from computation to computation.",
    "failed-tasks": "Tasks raised exceptions.",
    "busy-machine": "Other programs took CPUs that tasks waited for.",
    "slow-start": "Much time passed before the first computation.",
    "graph-preparation": "Making, optimizing and ordering graphs took long.",
    "pool-startup": "Worker processes took long to start.",
    "scheduler-bound": "The scheduler's thread could not hand out tasks fast enough.",
    "lock-bound": "Tasks waited for a lock.",
    "too-few-threads": "Tasks slept or waited for I/O while CPUs were idle.",
    "chunks-too-large": "Fewer tasks than workers had the work.",
    "cache-pressure": "Cached results came near the limit of memory.",
    "late-samples": "Samples were taken too late to be relied on.",
}
"""The codes of findings; each has a page in the documentation."""
