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
        The table with the rows (-1: no row) or workers referred to; or empty.
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
task_row, frame_row, node_row = (
    partial(Column[IntArray], "integer", "", refers_to=table)
    for table in ("tasks", "frames", "call_tree")
)
"""Columns of rows of a table."""
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
    called = time("When `dask.compute` was called; `start` where it was not, or not seen.")
    start = time("When the scheduler started, with a graph that was made.")
    prepared = time("When the graph was in order and its first task could be submitted.")
    stop = time("When it returned or raised; of one that still runs, now.")
    workers = integer("How many tasks could run at once; 0 if not known.")
    cpu_process = duration("CPU of the computing process meanwhile, all threads.")
    cpu_scheduler = duration("CPU of the thread that called the scheduler.")
    cpu_children = duration(
        "CPU of the descendants of the process meanwhile: programs that tasks start, and worker "
        "processes; NaN if not known."
    )
    cpu_other_processes = duration(
        "CPU of other programs meanwhile, on the CPUs that the process may use; NaN if not known."
    )
    cpu_hooks = duration(
        "CPU of the profilers' hooks for its tasks, about: calibrated per task; NaN if not known."
    )
    cpu_ends = duration(
        "CPU of the profilers' hooks as it started and ended, measured; NaN if not known."
    )
    cpu_own_threads = duration(
        "CPU of the profilers' own threads since the computation before it ended; NaN if not known."
    )
    own_seconds = duration(
        "Of the time from `called` to `prepared`, that of the profilers' hooks; NaN if not known."
    )
    voluntary_switches = number("", "How often a thread of the process gave its CPU up to wait.")
    involuntary_switches = number("", "How often one lost its CPU though it could have run.")
    cpus = integer("How many CPUs the process may use.")
    memory_limit = number("bytes", "Memory that the process may use; NaN if not known.")
    graph_bytes = number(
        "bytes",
        "Size of the data that the graph gives to its tasks, counted for each of them; NaN if not "
        "known.",
    )
    span = category("The span in which it started; empty without one.")
    scheduler = category("`threads`, `processes`, `synchronous` or `distributed`.")
    cluster = category("The id of the cluster that ran it; empty on a local scheduler.")
    call_site = category(
        "The line of the user's code that called dask, as `file.py:12`; empty if not known, as on "
        "a cluster."
    )
    error = category("The type of the exception that ended it, or `unknown`; empty if none did.")
    pool_end = category(
        "How the worker process ended that broke the pool: `exit 1`, `SIGKILL`; `unguarded` where "
        "it could not start because it came to the same computation, for lack of "
        "`if __name__ == '__main__'`. Empty if none did, or if it is not known."
    )


class Planned(RecordingTable):
    """A row per computation and function: how many of its tasks the scheduler was to run."""

    __slots__ = ()
    computation = category("The computation.")
    function = category("The function, as in `tasks`.")
    tasks = integer("How many of its tasks; those that were not run are among them.")


class Progress(RecordingTable):
    """A row per computation that runs, as it was when the recording was read or written last."""

    __slots__ = ()
    computation = category("The computation; empty while its graph is made.")
    phase = category("`graph`, `ordering` or `tasks`: see the phases of a running computation.")
    since = time("When this phase started.")
    total = integer("How many tasks it has; while they are put in order, data are among them.")
    finished = integer("How many the scheduler has finished.")
    ready = integer("How many could run, and wait for a worker.")
    waiting = integer("How many wait for others.")
    running = integer("How many were handed to workers and not collected.")


class Tasks(RecordingTable):
    """A row per task that was submitted."""

    __slots__ = ()
    key = text("Its key, as text.")
    function = category("The prefix of the key; without one, the name of the function called.")
    start = time("When it started, read on the thread that ran it.")
    stop = time("When it stopped, read there too.")
    thread_cpu = duration("CPU of that thread between the two.")
    thread_noncpu = duration("The rest of the time between the two.")
    submitted = time("When the scheduler submitted it.")
    collected = time("When the scheduler collected its result; NaN if it did not.")
    worker = worker_name("The thread or process that ran it: `thread-0`, `process-3`, `caller`.")
    pid = category("The process that ran it; 0 if not known.")
    thread = category("The ident of the thread that ran it; 0 if not known.")
    computation = category("The computation it belongs to.")
    span = category("The span it was annotated with, else its computation's.")
    outcome = category("`ok`, `failed`, `unfinished`, `cancelled` or `rescheduled`.")
    error = category("The exception's type; empty if there was none.")
    error_message = category(
        "What it says, cut, and without what looks like a secret; empty on a cluster."
    )
    error_location = category(
        "File, line and function of the program's innermost line; empty on a cluster."
    )
    attempt = integer("1 for its first run, 2 for the second, …; each run is a row.")
    host = category("The host that ran it; empty if not known.")
    nbytes = number("bytes", "The size of its result, if measured in bytes; else NaN.")
    queued = duration(
        "How long a cluster's scheduler had it ready and did not send it; NaN elsewhere."
    )
    stolen = integer("1 if another worker ran it than it was first sent to, else 0.")
    client = category("The client of a cluster that asked for it; empty elsewhere.")
    seceded = time("When it gave its worker's thread back though it went on; NaN if never.")
    seceded_cpu = duration("Of `thread_cpu`, what it used after that; NaN if it did not.")


class Dependencies(RecordingTable):
    """A row per dependency of a task on another task's result."""

    __slots__ = ()
    task = task_row("Row of the task in `tasks`.")
    depends_on = task_row("Row in `tasks` of the task whose result it takes.")


class Metrics(RecordingTable):
    """A row per metric that a task reported through `context_meter`."""

    __slots__ = ()
    task = task_row("Row of the task in `tasks`.")
    activity = category("The label it was reported under.")
    unit = category("Its unit, `seconds`, `bytes` or any other.")
    value = number("its unit", "How much.")
    cpu = duration("Of seconds, how many were CPU seconds; NaN if not known.")


class Resources(RecordingTable):
    """A row per sample of a `ResourceProfiler`."""

    __slots__ = ()
    time = time("When it was taken.")
    cpu = number("%", "CPU since the sample before, of one core, of all processes together.")
    memory = number("bytes", "Resident memory of the computing process.")
    memory_children = number(
        "bytes", "Resident memory of its descendants, and of a cluster's processes elsewhere."
    )
    read = number("bytes", "Bytes read from storage since the first sample.")
    written = number("bytes", "Bytes written to storage since the first sample.")
    threads = number("", "Threads of all processes.")
    delay = duration("How long after it was due the sample was taken.")
    cpu_other_processes = number(
        "%", "CPU of other programs since the sample before, of one core; NaN if not known."
    )


class Processes(RecordingTable):
    """A row per process and sample of `resources`, and more from between tasks.

    Processes of a cluster that the computing process did not start have times of their own.
    """

    __slots__ = ()
    time = time("When it was read.")
    pid = integer("The process.")
    is_child = integer("0 for the computing process, 1 for its descendants and others.")
    memory = number("bytes", "Its resident memory.")
    cpu = number("%", "CPU since the sample before, of one core; NaN between samples.")
    host = category("The host it runs on, as in `tasks`.")
    worker = worker_name(
        "What it is of a cluster: `client`, `scheduler`, a worker as in `workers`, or several."
    )


class Memory(RecordingTable):
    """A row per sample of a `MemorySampler`, over this process and its descendants."""

    __slots__ = ()
    label = category("The series it belongs to, a block of the program.")
    time = time("When it was taken.")
    rss = number("bytes", "Resident memory; pages that processes share count in each.")
    pss = number("bytes", "Proportional memory: shared pages are divided; NaN if not read.")
    uss = number("bytes", "Memory of one process alone, summed; NaN if not read.")
    processes = number("", "How many processes.")
    delay = duration("How long after it was due the sample was taken.")


class Allocations(RecordingTable):
    """A row per line of code that allocated memory which was in use near the peak of a block.

    It is of the last snapshot that tracemalloc took in the block, of this process, with what was
    allocated since tracing started. The rows of a block sum to all that was traced.
    """

    __slots__ = ()
    label = category("The block, as in `memory`; empty of a whole recording.")
    time = time("When the snapshot was taken.")
    function = category(
        "The qualified name of its function; in brackets what is no single line of the program."
    )
    file = category("The source file; empty of what is no single line.")
    line = integer("The line; 0 of what is no single line.")
    code = category("The line's code, where it is recorded; what looks secret is masked.")
    bytes = number("bytes", "Size of its blocks that were in use.")
    blocks = integer("How many blocks; of more than 100,000 below 4 kB an estimate.")
    memory = number("bytes", "What was in use then, of all that is traced.")
    peak = number("bytes", "The most of it that was in use; snapshots count, too.")


class CachedResults(RecordingTable):
    """A row per result that the scheduler cached for the tasks that depend on it."""

    __slots__ = ()
    key = text("The key of its task.")
    function = category("The function of its task.")
    computation = category("The computation it belongs to.")
    metric = number(
        "of the recording's `metric_unit`", "Its size, as the metric measures it, or NaN."
    )
    start = time("When the scheduler got it.")
    stop = time("When the scheduler released it.")


class Transfers(RecordingTable):
    """A row each time that a task, a result or other data was moved between processes."""

    __slots__ = ()
    task = task_row(
        "Row of the task in `tasks`; -1 of data that no recorded task made, as scattered data.",
    )
    activity = category("`serialize` or `deserialize`; `transfer` between workers of a cluster.")
    side = category("Where it was done: `scheduler` or `worker`; `network` of a transfer.")
    start = time("When it started.")
    stop = time("When it stopped.")
    bytes = number("bytes", "Size of what was pickled or sent.")
    source = worker_name("The worker of a cluster that it was sent from; else empty.")
    destination = worker_name("The worker that it was sent to; else empty.")


class Waits(RecordingTable):
    """A row per thing that a task waited for."""

    __slots__ = ()
    task = task_row("Row of the task in `tasks`.")
    activity = category("What it waited for: `cpu-wait`, `gil-wait`, `io-wait`, …")
    seconds = duration("For how long: read for `cpu-wait`, else what its samples represent.")
    samples = integer(
        "In how many samples it was seen; of `cpu-wait` 1 if it was read for all of it, else 0."
    )
    label = category(
        "The label of the metered code in which it was seen; empty outside of such code, and of "
        "`cpu-wait`, which is read for the whole task."
    )


class Pools(RecordingTable):
    """A row per native thread pool (BLAS, OpenMP) at the end of a computation."""

    __slots__ = ()
    computation = category("The computation.")
    library = category("The library, as threadpoolctl names it; empty if not known.")
    threads = integer("How many threads it has; 0 if not known.")
    known = integer("0 in the one row of a computation whose pools could not be listed, else 1.")


class Workers(RecordingTable):
    """A row per worker of a cluster, or computation and worker process that ran its tasks."""

    __slots__ = ()
    computation = category("The computation; of a worker of a cluster, the cluster.")
    pid = category("The process; 0 if not known.")
    joined = time("When it could first run tasks: before its computation or in it.")
    worker = worker_name("Its name, with which `tasks.worker` starts; empty elsewhere.")
    address = category("Its address; empty if it is no worker of a cluster.")
    host = category("The host it runs on.")
    threads = integer("How many tasks it can run at once.")
    left = time("When it left the cluster; NaN if it did not.")
    reason = category("Why it left, as distributed's scheduler says.")
    clock_offset = duration("What was added to its times; 0 where processes share a clock.")
    clock_error = duration("How wrong that may be.")
    cpus = integer("How many CPUs its process may use; 0 if not known.")
    memory_limit = number("bytes", "Memory that it may use; NaN if not known.")
    version = category("The version of dask_diag that it has; empty if none.")
    measured = integer("1 if its tasks were measured there, 0 if distributed's times are used.")


class OtherTasks(RecordingTable):
    """A row per task of a client that was not recorded, on a worker of a cluster that was."""

    __slots__ = ()
    computation = category("The cluster.")
    worker = worker_name("The worker, as in `workers`.")
    start = time("When it started.")
    stop = time("When it stopped or seceded.")


class WorkerEvents(RecordingTable):
    """A row each time that a worker of a cluster was paused, or moved results to disk or back."""

    __slots__ = ()
    computation = category("The cluster.")
    worker = worker_name("The worker, as in `workers`.")
    event = category("`paused`, `disk-write` or `disk-read`.")
    start = time("When it started.")
    stop = time("When it stopped; of a pause that lasted, when recording stopped.")
    bytes = number("bytes", "Size of what was written or read, pickled; NaN of a pause.")


class Threads(RecordingTable):
    """A row per computation, process and group of threads that used CPU.

    Those of the computing process sum to its CPU. A very short computation has none: reading the
    clocks would take too long a part of it. Of worker processes there are threads besides the one
    that runs tasks, if they used 0.05 s or more.
    """

    __slots__ = ()
    computation = category("The computation.")
    pid = integer("The process.")
    is_child = integer("0 for the computing process, 1 for its worker processes.")
    kind = category("What the threads are: see the kinds of threads.")
    name = category(
        "Of Python's threads their name without its number, of native ones the library that "
        "runs them; empty if not known."
    )
    threads = integer("How many threads; 0 if not known.")
    cpu_seconds = duration("CPU of these threads meanwhile.")


class Frames(RecordingTable):
    """A row per line of code that was seen running."""

    __slots__ = ()
    name = category("The qualified name of its function.")
    file = category("The source file; empty for functions not written in Python.")
    line = integer("The line.")
    first_line = integer("The line where the function starts; 0 if not known.")


class CallTree(RecordingTable):
    """A row per node of the tree of calls."""

    __slots__ = ()
    parent = node_row("Row of its caller in `call_tree`, an earlier one; -1 of an outermost call.")
    frame = frame_row("Row of its line in `frames`.")


class Samples(RecordingTable):
    """A row per cycle, root, function, key and call stack."""

    __slots__ = ()
    start = time("When the cycle started.")
    stop = time("When the cycle stopped.")
    root = category("What the time belongs to, such as `tasks` or `scheduler`.")
    function = category("The function of the tasks that were sampled; empty outside tasks.")
    key = category("The task's key, of tasks longer than a quarter of a cycle; else empty.")
    worker = worker_name("The worker of a cluster that ran the tasks; empty elsewhere.")
    node = node_row("Row of the innermost call in `call_tree`; -1 for time not sampled.")
    seconds = duration("Self time: the seconds that the samples represent.")
    cpu_seconds = duration("How many of these were CPU seconds.")
    count = integer("How many samples.")


class Environment(RecordingTable):
    """A row per fact about where the recording was made."""

    __slots__ = ()
    section = category("`versions`, `machine`, `configuration` or `calling code`.")
    name = text("What it is.")
    value = text("Its value, as text; what looks like a secret is masked.")


REFERENCES: Mapping[str, tuple[str, ...]] = {
    name: columns
    for name, kind in TABLES.items()
    if (columns := tuple(c.name for c in kind.schema.values() if c.refers_to == "tasks"))
}
"""The tables that refer to tasks, and which of their columns are rows of `tasks`."""
