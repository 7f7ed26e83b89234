"""The tables of a recording: every column with type, unit and meaning, declared once.

Checks of columns and all lists of tables and columns (in files, exports, combined recordings and
the documentation) follow from the classes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

import numpy as np

from dask_diag.columns import Categorical, FloatArray, IntArray, PrefixStrings, Values
from dask_diag.errors import SchemaError
from dask_diag.model.table import Table

if TYPE_CHECKING:
    from typing_extensions import Self

ColumnValues = TypeVar("ColumnValues")


class Column(Generic[ColumnValues]):
    """A column of a table; the attribute of a table has the values.

    Attributes
    ----------
    name : str
    kind : {"float", "integer", "category", "text"}
        The type of the values: numbers or text. A category has few distinct values, a text many.
    unit : str
        ``s``, ``bytes``, ``%``, or empty for counts, positions and text.
    meaning : str
        One sentence.
    is_time : bool
        Whether the values are times, in seconds of a clock with an arbitrary start.
    refers_to : str
        The table with the rows (-1: no row) or workers referred to, or `GROUPS`; or empty.
    """

    def __init__(
        self, kind: str, unit: str, meaning: str, is_time: bool = False, refers_to: str = ""
    ) -> None:
        self.name = ""
        self.kind = kind
        self.unit = unit
        self.meaning = meaning
        self.is_time = is_time
        self.refers_to = refers_to

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, table: None, owner: type) -> Column[ColumnValues]: ...

    @overload
    def __get__(self, table: Table, owner: type) -> ColumnValues: ...

    def __get__(self, table: Table | None, owner: type) -> Column[ColumnValues] | ColumnValues:
        if table is None:
            return self
        values: ColumnValues = table[self.name]
        return values

    def values_of(self, values: Sequence[Any]) -> Values:
        """Values as a column of its kind."""
        if self.kind == "text":
            return PrefixStrings.of(values)
        if self.kind == "category":
            return Categorical.of(values)
        return np.array(values, float if self.kind == "float" else np.int64)

    def fits(self, values: object) -> bool:
        """Whether values are of the column's kind."""
        if self.kind in _TEXTS:
            return isinstance(values, _TEXTS[self.kind])
        if not isinstance(values, np.ndarray):
            return False
        return values.ndim == 1 and values.dtype.kind in _NUMBERS[self.kind]


_NUMBERS = {"float": "f", "integer": "biu"}
_TEXTS = {"category": Categorical, "text": PrefixStrings}


duration = partial(Column[FloatArray], "float", "s")
"""A column of seconds."""
time = partial(Column[FloatArray], "float", "s", is_time=True)
"""A column of times, in seconds of the recording's clock."""
number = partial(Column[FloatArray], "float")
"""A column of numbers with a unit."""
integer = partial(Column[IntArray], "integer", "")
"""A column of counts."""
GROUPS = "groups"
"""What columns with the number of a kind of tasks refer to; files before kinds lack them."""
task_row, frame_row, node_row, line_row, group_number = (
    partial(Column[IntArray], "integer", "", refers_to=table)
    for table in ("tasks", "frames", "call_tree", "lines", GROUPS)
)
"""Columns of rows of a table, and of groups."""
category = partial(Column[Categorical], "category", "")
"""A column of texts, few of them distinct."""
worker_name = partial(Column[Categorical], "category", "", refers_to="workers")
"""A column of names of workers of the table `workers`."""
text = partial(Column[PrefixStrings], "text", "")
"""A column of texts, many of them distinct."""


TABLES: dict[str, type[RecordingTable]] = {}
"""The tables of a `Recording`, by the names of its attributes."""


class RecordingTable(Table):
    """A table with columns declared by the class, all of them in a recording.

    Parameters
    ----------
    columns : mapping of str to array, Categorical or PrefixStrings
        Columns of the schema and of the right kinds; all, or a part in a view of a file.

    Raises
    ------
    SchemaError
        If a column is not of the schema, or of another kind.
    """

    __slots__ = ()
    schema: ClassVar[Mapping[str, Column[Any]]]

    def __init_subclass__(cls) -> None:
        cls.schema = {name: c for name, c in vars(cls).items() if isinstance(c, Column)}
        TABLES[re.sub(r"\B(?=[A-Z])", "_", cls.__name__).lower()] = cls

    def __init__(self, columns: Mapping[str, Values]) -> None:
        for name, values in columns.items():
            column = self.schema.get(name)
            if column is None:
                raise self._not_as_declared(columns)
            if not column.fits(values):
                given = getattr(values, "dtype", type(values).__name__)
                raise SchemaError(
                    f"table {type(self).__name__}, column {name}: expected {column.kind}, "
                    f"found {given}"
                )
        super().__init__(columns)

    @classmethod
    @cache
    def empty(cls) -> Self:
        """The table without rows, a single one, as no table changes."""
        return cls({name: column.values_of(()) for name, column in cls.schema.items()})

    @classmethod
    def of_rows(cls, rows: Iterable[Mapping[str, object] | Sequence[object]]) -> Self:
        """A table of rows: mappings with all columns, or values in the order of the schema."""
        listed = [
            tuple(map(row.__getitem__, cls.schema)) if isinstance(row, Mapping) else row
            for row in rows
        ]
        if not listed:
            return cls.empty()
        return cls(
            {
                name: column.values_of(values)
                for (name, column), values in zip(
                    cls.schema.items(), zip(*listed, strict=True), strict=True
                )
            }
        )

    @classmethod
    def of(cls, table: Table) -> Self:
        """A plain table with every column as a table of the class; the empty one without columns.

        Raises
        ------
        SchemaError
            If a column is missing, not of the schema, or of another kind.
        """
        if not table.columns:
            return cls.empty()
        if len(table.columns) < len(cls.schema):
            raise cls._not_as_declared(table.columns)
        return (
            table if isinstance(table, cls) else cls({name: table[name] for name in table.columns})
        )

    @classmethod
    def _not_as_declared(cls, columns: Iterable[str]) -> SchemaError:
        expected, found = cls.schema, list(columns)
        missing = ", ".join(name for name in expected if name not in found) or "none"
        unknown = ", ".join(name for name in found if name not in expected) or "none"
        return SchemaError(
            f"table {cls.__name__}: expected the columns {', '.join(expected)}; "
            f"missing: {missing}; unknown: {unknown}"
        )

    def _repr_html_(self) -> str:
        """Show times from the first time on, as the start of the clock is arbitrary."""
        times = [name for name in self.columns if self.schema[name].is_time]
        readings = np.concatenate([np.zeros(0), *(self[name] for name in times)])
        readings = readings[np.isfinite(readings)]
        if not len(readings):
            return super()._repr_html_()
        first = readings.min()
        columns = {name: self[name] for name in self.columns}
        columns |= {name: self[name] - first for name in times}
        units = {name: self.unit_of(name) for name in self.columns} | dict.fromkeys(times, "time")
        return (
            f"{Table(columns).in_units(**units)._repr_html_()}<p>{', '.join(times)}: seconds since "
            f"the first of these times, which is {first:.9g} s of the clock</p>"
        )

    def unit_of(self, column: str) -> str:
        """The unit of a column, by the schema."""
        return self.schema[column].unit


class Computations(RecordingTable):
    """A row per computation: one graph that a scheduler ran."""

    __slots__ = ()
    computation = category("Its id, unique among all runs.")
    called = time("When `dask.compute` was called; equal to `start` if that call was not seen.")
    start = time("When the scheduler started, after graph construction.")
    prepared = time("When the graph was ordered and its first task could be submitted.")
    stop = time("When it returned or raised; while it runs, the time of reading.")
    workers = integer("Number of tasks that could run at once; 0 if unknown.")
    cpu_process = duration("CPU time of the main process during the computation, all threads.")
    cpu_scheduler = duration("CPU time of the thread that called the scheduler.")
    cpu_children = duration(
        "CPU time of child processes during the computation: programs that tasks start, and worker "
        "processes; NaN if unknown."
    )
    cpu_other_processes = duration(
        "CPU time of other processes during the computation, on the CPUs that the process may use; "
        "NaN if unknown."
    )
    cpu_hooks = duration(
        "Estimated CPU time of the profilers' hooks for its tasks, calibrated per task; NaN if "
        "unknown."
    )
    cpu_ends = duration(
        "Measured CPU time of the profilers' hooks at its start and end; NaN if unknown."
    )
    cpu_own_threads = duration(
        "CPU time of the profilers' own threads since the end of the previous computation; NaN if "
        "unknown."
    )
    own_seconds = duration(
        "Time of the profilers' hooks between `called` and `prepared`; NaN if unknown."
    )
    voluntary_switches = number("", "How often a thread of the process gave up its CPU to wait.")
    involuntary_switches = number("", "How often a runnable thread of the process lost its CPU.")
    cpus = integer("Number of CPUs that the process may use.")
    memory_limit = number("bytes", "Memory that the process may use; NaN if unknown.")
    graph_bytes = number(
        "bytes",
        "Size of the data in the graph, counted once per task that uses it; NaN if unknown.",
    )
    span = category("The span in which it started; empty without a span.")
    scheduler = category("`threads`, `processes`, `synchronous` or `distributed`.")
    cluster = category("The id of the cluster that ran it; empty on a local scheduler.")
    call_site = category(
        "Call site: the line of the user's code that called dask, such as `file.py:12`; empty if "
        "unknown, and on a cluster."
    )
    error = category("Type of the exception that ended it, or `unknown`; empty without any.")
    pool_end = category(
        "How the worker process that broke the pool ended: `exit 1`, `SIGKILL`; `unguarded` if it "
        "started the same computation again, because the script lacks "
        "`if __name__ == '__main__'`. Empty if the pool did not break, or if unknown."
    )


class Calls(RecordingTable):
    """A row per call of `dask.compute` or `dask.persist` that has returned, without an error."""

    __slots__ = ()
    called = time("When it was called.")
    returned = time(
        "When it returned: after the last task, results are put together, and a pool of worker "
        "processes ends."
    )


class Planned(RecordingTable):
    """A row per computation and function: the number of tasks that the scheduler was to run."""

    __slots__ = ()
    computation = category("The computation.")
    function = category("The function, as in `tasks`.")
    tasks = integer("Number of tasks, including those that were not run.")


class RepeatedSteps(RecordingTable):
    """A row per computation, function and step of its fused tasks, if steps of them ran before."""

    __slots__ = ()
    computation = category("The computation.")
    function = category("The function of the fused tasks, as in `tasks`.")
    step = category("The prefix of the step's key.")
    calls = category(
        "Names of the functions that the step calls, separated by spaces; or "
        "`(chunks of a stored array)`."
    )
    runs = integer("Number of steps; of a stored array, of chunks that tasks read.")
    repeats = integer(
        "Number of these steps that ran in an earlier computation, by key; of a stored array, of "
        "reads of a chunk after the first."
    )


class ResourceLimits(RecordingTable):
    """A row per computation on a cluster, function and resource that its tasks need."""

    __slots__ = ()
    computation = category("The computation.")
    function = category("The function, as in `tasks`.")
    resource = category("The resource of workers, as in `annotate(resources={'GPU': 1})`.")
    at_once = integer(
        "Number of such tasks for which the worker that has most of it has enough; 0 if no worker "
        "had any when the computation ended."
    )


class Joined(RecordingTable):
    """A row per computation that ran already when its program was attached to."""

    __slots__ = ()
    computation = category("The computation.")
    time = time("When it was joined: its `called`, `start` and `prepared`.")
    finished = integer("Number of its tasks that had ended: they are in no other table.")
    running = integer("Number of its tasks that ran: their times are unknown.")


class Progress(RecordingTable):
    """A row per running computation, at the time when the recording was last read or written."""

    __slots__ = ()
    computation = category("The computation; empty during graph construction.")
    phase = category("`graph`, `ordering` or `tasks`: see the phases of a running computation.")
    since = time("When this phase started.")
    total = integer("Number of its tasks; while the graph is ordered, data nodes are included.")
    finished = integer("Number of finished tasks.")
    ready = integer("Number of tasks that could run and wait for a worker.")
    waiting = integer("Number of tasks that wait for other tasks.")
    running = integer("Number of tasks in flight: sent to workers and not collected.")


class Tasks(RecordingTable):
    """A row per task that was submitted."""

    __slots__ = ()
    key = text("Its key, as text.")
    function = category("The prefix of the key; without one, the name of the function called.")
    start = time("When it started, read on the thread that ran it.")
    stop = time("When it stopped, read on the same thread.")
    thread_cpu = duration("CPU time of that thread between `start` and `stop`.")
    thread_noncpu = duration("Off-CPU time: the rest of the time between `start` and `stop`.")
    submitted = time("When the scheduler submitted it.")
    collected = time("When the scheduler collected its result; NaN if it did not.")
    worker = worker_name("The thread or process that ran it: `thread-0`, `process-3`, `caller`.")
    pid = category("The process that ran it; 0 if unknown.")
    thread = category("The ident of the thread that ran it; 0 if unknown.")
    computation = category("The computation it belongs to.")
    span = category("The span of its annotation, otherwise that of its computation.")
    outcome = category("`ok`, `failed`, `unfinished`, `cancelled` or `rescheduled`.")
    error = category("Type of its exception; empty without an exception.")
    error_message = category(
        "Message of the exception, shortened, with secrets masked; empty on a cluster."
    )
    error_location = category(
        "File, line and function of the innermost line of the program in the traceback; empty on a "
        "cluster."
    )
    attempt = integer("1 for its first run, 2 for the second, …; each run is a row.")
    host = category("The host that ran it; empty if unknown.")
    nbytes = number("bytes", "Size of its result; NaN if not measured in bytes.")
    queued = duration(
        "Time that it was ready in the queue of a cluster's scheduler; NaN elsewhere."
    )
    stolen = integer("1 if work stealing moved it to a different worker, otherwise 0.")
    client = category("Client of the cluster that requested it; empty on local schedulers.")
    seceded = time("When it seceded: left its worker's thread pool and went on; NaN if it did not.")
    seceded_cpu = duration("Part of `thread_cpu` after it seceded; NaN if it did not.")
    group = group_number("The kind of its steps, as in `steps`; -1 if unknown.")


def seconds_of_tasks(tasks: Table) -> FloatArray:
    """Task time; NaN if unknown. After a task seceded its CPU seconds count: the rest is waiting.

    The tasks for which it waits have the threads, and task times of their own.
    """
    lasted = np.fmin(tasks["stop"], tasks["seceded"]) - tasks["start"]
    return np.asarray(lasted + np.nan_to_num(tasks["seceded_cpu"]))


class Dependencies(RecordingTable):
    """A row per dependency of a task on another task's result."""

    __slots__ = ()
    task = task_row("Row of the task in `tasks`.")
    depends_on = task_row("Row in `tasks` of the task whose result it needs.")


class Metrics(RecordingTable):
    """A row per metric that a task reported through `context_meter`."""

    __slots__ = ()
    task = task_row("Row of the task in `tasks`.")
    activity = category("The label under which it was reported.")
    unit = category("Its unit, `seconds`, `bytes` or any other.")
    value = number("its unit", "The amount.")
    cpu = duration("CPU seconds among the seconds; NaN if unknown, and for other units.")


class Resources(RecordingTable):
    """A row per sample of a `ResourceProfiler`."""

    __slots__ = ()
    time = time("When the sample was taken.")
    cpu = number("%", "CPU of all processes since the previous sample; 100% is one CPU.")
    memory = number("bytes", "Resident memory of the main process.")
    memory_children = number(
        "bytes", "Resident memory of child processes, and of the cluster's other processes."
    )
    read = number("bytes", "Bytes read from storage since the first sample.")
    written = number("bytes", "Bytes written to storage since the first sample.")
    threads = number("", "Number of threads of all processes.")
    delay = duration("How long after it was due the sample was taken.")
    cpu_other_processes = number(
        "%", "CPU of other processes since the previous sample; 100% is one CPU; NaN if unknown."
    )


class Processes(RecordingTable):
    """A row per process and sample of `resources`, and per sample of memory between tasks.

    Processes of a cluster that the main process did not start are sampled at times of their own.
    """

    __slots__ = ()
    time = time("When the sample was taken.")
    pid = integer("The process.")
    is_child = integer("0 for the main process, 1 for its child processes and others.")
    memory = number("bytes", "Resident memory of the process.")
    cpu = number("%", "CPU since the previous sample; 100% is one CPU; NaN between samples.")
    host = category("The host it runs on, as in `tasks`.")
    worker = worker_name(
        "Its role in a cluster: `client`, `scheduler`, a worker as in `workers`, or several."
    )


class Memory(RecordingTable):
    """A row per sample of a `MemorySampler`, over the main process and its child processes."""

    __slots__ = ()
    label = category("The series it belongs to, a block of the program.")
    time = time("When the sample was taken.")
    rss = number("bytes", "Resident memory (RSS); shared pages count once per process.")
    pss = number("bytes", "Proportional memory (PSS): shared pages are divided; NaN if not read.")
    uss = number("bytes", "Unique memory (USS), without shared pages; NaN if not read.")
    processes = number("", "Number of processes.")
    delay = duration("How long after it was due the sample was taken.")


class Allocations(RecordingTable):
    """A row per line of code that allocated memory which was in use near the peak of a block.

    The rows are from the last snapshot that tracemalloc took in the block. They cover memory that
    this process allocated since tracing started, and sum to all traced memory.
    """

    __slots__ = ()
    label = category("The block, as in `memory`; empty for a whole recording.")
    time = time("When the snapshot was taken.")
    function = category(
        "Qualified name of the function; in brackets if it is not a single line of the program."
    )
    file = category("The source file; empty if not a single line.")
    line = integer("The line; 0 if not a single line.")
    code = category("Source of the line, if recorded, with secrets masked.")
    bytes = number("bytes", "Size of the blocks in use that the line allocated.")
    blocks = integer("Number of blocks; an estimate above 100,000 blocks smaller than 4 kB.")
    memory = number("bytes", "Traced memory in use at that time.")
    peak = number("bytes", "Peak of traced memory, including that of the snapshots.")


class CachedResults(RecordingTable):
    """A row per result that the scheduler cached for the tasks that depend on it."""

    __slots__ = ()
    key = text("The key of its task.")
    function = category("The function of its task.")
    computation = category("The computation it belongs to.")
    metric = number(
        "of the recording's `metric_unit`", "Size of the result by the metric; NaN if unknown."
    )
    start = time("When the scheduler received it.")
    stop = time("When the scheduler released it.")


class Transfers(RecordingTable):
    """A row each time that a task, a result or other data passed between processes."""

    __slots__ = ()
    task = task_row(
        "Row of the task in `tasks`; -1 for data of no recorded task, such as scattered data.",
    )
    activity = category("`serialize` or `deserialize`; `transfer` between workers of a cluster.")
    side = category("Where it happened: `scheduler` or `worker`; `network` for a transfer.")
    start = time("When it started.")
    stop = time("When it stopped.")
    bytes = number("bytes", "Serialized size.")
    source = worker_name("The worker of a cluster that sent it; otherwise empty.")
    destination = worker_name("The worker of a cluster that received it; otherwise empty.")


class Waits(RecordingTable):
    """A row per reason why a task was off the CPU."""

    __slots__ = ()
    task = task_row("Row of the task in `tasks`.")
    activity = category("The reason: `cpu-wait`, `gil-wait`, `io-wait`, …")
    seconds = duration("Duration: read from the kernel for `cpu-wait`, otherwise from samples.")
    samples = integer(
        "Number of samples; for `cpu-wait`, 1 if it was read for the whole task, otherwise 0."
    )
    label = category(
        "Label of the metered code that waited; empty outside of such code, and for `cpu-wait`, "
        "which is read for the whole task."
    )


class Pools(RecordingTable):
    """A row per native thread pool (BLAS, OpenMP) at the end of a computation."""

    __slots__ = ()
    computation = category("The computation.")
    library = category("The library, as threadpoolctl names it; empty if unknown.")
    threads = integer("Number of its threads; 0 if unknown.")
    known = integer("0 in the one row of a computation with unknown pools, otherwise 1.")


class Quotas(RecordingTable):
    """A row per computation of a process whose CPU time a control group limits: a container."""

    __slots__ = ()
    computation = category("The computation.")
    cpus = number("", "CPU seconds per second that the limit allows.")
    throttled = duration(
        "Time in which the limit held CPUs back, summed over these; NaN if unknown."
    )


class Workers(RecordingTable):
    """A row per worker of a cluster; on a local scheduler, per computation and worker process."""

    __slots__ = ()
    computation = category("The computation; for a worker of a cluster, the cluster.")
    pid = category("The process; 0 if unknown.")
    joined = time("When it could first run tasks, before its computation or during it.")
    worker = worker_name("Its name, the beginning of `tasks.worker`; empty on local schedulers.")
    address = category("Its address; empty on local schedulers.")
    host = category("The host it runs on.")
    threads = integer("Number of tasks that it can run at once.")
    left = time("When it left the cluster; NaN if it did not.")
    reason = category("Why it left, in the words of distributed's scheduler.")
    clock_offset = duration("Offset added to its times; 0 if processes share a clock.")
    clock_error = duration("Maximum error of `clock_offset`.")
    cpus = integer("Number of CPUs that its process may use; 0 if unknown.")
    memory_limit = number("bytes", "Memory that it may use; NaN if unknown.")
    version = category("Its version of dask_diag; empty without dask_diag.")
    measured = integer("1 if dask_diag measured its tasks, 0 if distributed's times are used.")


class OtherTasks(RecordingTable):
    """A row per task of a client that was not recorded, on a worker of the recorded cluster."""

    __slots__ = ()
    computation = category("The cluster.")
    worker = worker_name("The worker, as in `workers`.")
    start = time("When it started.")
    stop = time("When it stopped or seceded.")


class WorkerEvents(RecordingTable):
    """A row per pause of a worker of a cluster, and per spill or unspill of results."""

    __slots__ = ()
    computation = category("The cluster.")
    worker = worker_name("The worker, as in `workers`.")
    event = category("`paused`, `disk-write` or `disk-read`.")
    start = time("When it started.")
    stop = time("When it stopped; if the pause had not ended, when recording stopped.")
    bytes = number("bytes", "Serialized size of the results; NaN for a pause.")


class Threads(RecordingTable):
    """A row per computation, process and group of threads that used CPU.

    The rows of the main process sum to its CPU time. A very short computation has none, because
    reading the clocks would take too large a part of it. Worker processes have rows for threads
    that do not run tasks, if these threads used at least 0.05 s.
    """

    __slots__ = ()
    computation = category("The computation.")
    pid = integer("The process.")
    is_child = integer("0 for the main process, 1 for its worker processes.")
    kind = category("Kind of the threads: see *Kinds of threads*.")
    name = category(
        "Name of Python threads without their number, or the library of native threads; empty if "
        "unknown."
    )
    threads = integer("Number of threads; 0 if unknown.")
    cpu_seconds = duration("CPU time of these threads during the computation.")


class Frames(RecordingTable):
    """A row per sampled line of code."""

    __slots__ = ()
    name = category("Qualified name of its function.")
    file = category("The source file; empty for functions not written in Python.")
    line = integer("The line.")
    first_line = integer("The line where the function starts; 0 if unknown.")


class IoCalls(RecordingTable):
    """A row per sampled line of the program's code that loads, or repeats what it should not."""

    __slots__ = ()
    frame = frame_row("Row of its line in `frames`.")
    call = category("The call, such as `pickle.load`.")
    runs = integer("Tasks sampled in it, once for each of their inputs; 0 if inputs are unknown.")
    repeats = integer("Of these, those whose input an earlier task on the same thread had.")


class CallTree(RecordingTable):
    """A row per node of the tree of calls."""

    __slots__ = ()
    parent = node_row("Row of its caller in `call_tree`, above this row; -1 for an outermost call.")
    frame = frame_row("Row of its line in `frames`.")


class Samples(RecordingTable):
    """A row per cycle, root, function, key and call stack."""

    __slots__ = ()
    start = time("When the cycle started.")
    stop = time("When the cycle stopped.")
    root = category("Context of the stack, such as `tasks`: see *Roots of stack samples*.")
    function = category("The function of the tasks that were sampled; empty outside tasks.")
    key = category("Key of the task, for tasks longer than a quarter of a cycle; otherwise empty.")
    worker = worker_name("The worker of a cluster that ran the tasks; empty on local schedulers.")
    node = node_row("Row of the innermost call in `call_tree`; -1 for time not sampled.")
    seconds = duration("Self time: the seconds that the samples represent.")
    cpu_seconds = duration("CPU seconds among these seconds.")
    count = integer("Number of samples.")


class Lines(RecordingTable):
    """A row per line of the user's code that built work of dask, and per line that called it."""

    __slots__ = ()
    caller = line_row("Row in `lines` of the line that called it, above this row; -1 if outermost.")
    file = category("The source file, as in `frames`.")
    cell = category("The cell of a notebook, as IPython names it; empty outside notebooks.")
    line = integer("The line where the expression starts.")
    end_line = integer("The line where the expression ends; 0 if unknown.")
    column = integer(
        "The character of `text` where the expression starts, counted from 1; 0 if unknown, and if "
        "a secret is masked."
    )
    end_column = integer("The character after its end, in the line `end_line`; 0 if unknown.")
    function = category("Qualified name of the user's function, or `<module>`.")
    called = category("The function of dask that the line called; empty if it called others only.")
    text = category(
        "Source of the line with its indentation, shortened, with secrets masked; empty if not "
        "recorded."
    )


class Steps(RecordingTable):
    """A row per kind of tasks (group) and step of them; a task that is not fused is one step."""

    __slots__ = ()
    group = group_number("The kind of tasks: of one name, or with the same steps and lines.")
    function = category("The function of the step: its prefix before fusion.")
    line = line_row("Row in `lines` of the line that built it; -1 if unknown.")
    how = category("How the line is known: see *Sources of lines*.")
    seconds = duration(
        "Time of the step in the timed tasks; NaN if the tasks' time is divided equally."
    )
    cpu_seconds = duration(
        "CPU time of the step in the timed tasks; NaN if the tasks' time is divided equally."
    )
    timed = integer("Number of tasks whose steps were timed.")


class Environment(RecordingTable):
    """A row per fact about the environment of the recording."""

    __slots__ = ()
    section = category("`versions`, `machine`, `configuration` or `calling code`.")
    name = text("Name of the fact.")
    value = text("Its value as text, with secrets masked.")


class Chunks(RecordingTable):
    """A row per run of a task that processed a chunk of coffea: entries of a file."""

    __slots__ = ()
    task = task_row("Row of the task in `tasks`.")
    dataset = category("The dataset.")
    file = category("The file.")
    tree = category("The tree in the file.")
    first = integer("The first entry.")
    last = integer("The entry after the last one.")
    bytes = number("bytes", "Bytes requested from the file; NaN if unknown.")
    error = category(
        "Type and message of the exception that the processor raised, shortened, with secrets "
        "masked; empty without an exception."
    )


class Branches(RecordingTable):
    """Rows of each file of `chunks` for the branches that were read, and of the file as a whole."""

    __slots__ = ()
    file = category("The file.")
    tree = category("The tree in the file.")
    branch = category("Its name; empty for all branches of the tree together.")
    branches = integer("Number of branches with data: 1, or all of the tree.")
    compressed = number("bytes", "Size in the whole file.")
    uncompressed = number("bytes", "Size in the whole file before compression.")
    unused = integer("1 where a chunk read it in advance and did not use it, otherwise 0.")


REFERENCES: Mapping[str, tuple[str, ...]] = {
    name: columns
    for name, kind in TABLES.items()
    if (columns := tuple(c.name for c in kind.schema.values() if c.refers_to == "tasks"))
}
"""The tables that refer to tasks, and which of their columns are rows of `tasks`."""
