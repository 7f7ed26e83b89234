"""What processes used, and which workers and threads there were."""

from __future__ import annotations

from dask_diag.schema import column
from dask_diag.schema.column import Schema

__all__ = [
    "Allocations",
    "Memory",
    "OtherTasks",
    "Pools",
    "Processes",
    "Resources",
    "Threads",
    "WorkerEvents",
    "Workers",
]


class Resources(Schema):
    """A row per sample of a `ResourceProfiler`."""

    time = column.time("When it was taken.")
    cpu = column.number("%", "CPU since the sample before, of one core, of all processes together.")
    memory = column.number("bytes", "Resident memory of the computing process.")
    memory_children = column.number(
        "bytes", "Resident memory of its descendants, and of a cluster's processes elsewhere."
    )
    read = column.number("bytes", "Bytes read from storage since the first sample.")
    written = column.number("bytes", "Bytes written to storage since the first sample.")
    threads = column.number("", "Threads of all processes.")
    delay = column.seconds("How long after it was due the sample was taken.")
    cpu_others = column.number(
        "%", "CPU of other programs since the sample before, of one core; NaN if not known."
    )


class Processes(Schema):
    """A row per process and sample of `resources`, and more from between tasks.

    Processes of a cluster that the computing process did not start have times of their own.
    """

    time = column.time("When it was read.")
    pid = column.integer("The process.")
    is_child = column.integer("0 for the computing process, 1 for its descendants and others.")
    memory = column.number("bytes", "Its resident memory.")
    cpu = column.number("%", "CPU since the sample before, of one core; NaN between samples.")
    host = column.category("The host it runs on, as in `tasks`.")
    worker = column.category(
        "What it is of a cluster: `client`, `scheduler`, a worker as in `workers`, or several."
    )


class Memory(Schema):
    """A row per sample of a `MemorySampler`, over this process and its descendants."""

    label = column.category("The series it belongs to, a block of the program.")
    time = column.time("When it was taken.")
    rss = column.number("bytes", "Resident memory; pages that processes share count in each.")
    pss = column.number("bytes", "Proportional memory: shared pages are divided; NaN if not read.")
    uss = column.number("bytes", "Memory of one process alone, summed; NaN if not read.")
    processes = column.number("", "How many processes.")
    delay = column.seconds("How long after it was due the sample was taken.")


class Allocations(Schema):
    """A row per line of code that allocated memory which was in use near the peak of a block.

    It is of the last snapshot that tracemalloc took in the block, of this process, with what was
    allocated since tracing started. The rows of a block sum to all that was traced.
    """

    label = column.category("The block, as in `memory`; empty of a whole recording.")
    time = column.time("When the snapshot was taken.")
    function = column.category(
        "The qualified name of its function; in brackets what is no single line of the program."
    )
    file = column.category("The source file; empty of what is no single line.")
    line = column.integer("The line; 0 of what is no single line.")
    code = column.category("The line's code, where it is recorded; what looks secret is masked.")
    bytes = column.number("bytes", "Size of its blocks that were in use.")
    blocks = column.integer("How many blocks; of more than 100,000 below 4 kB an estimate.")
    memory = column.number("bytes", "What was in use then, of all that is traced.")
    peak = column.number("bytes", "The most of it that was in use; snapshots count, too.")


class Pools(Schema):
    """A row per native thread pool (BLAS, OpenMP) at the end of a computation."""

    computation = column.category("The computation.")
    library = column.category("The library, as threadpoolctl names it; empty if not known.")
    threads = column.integer("How many threads it has; 0 if not known.")
    known = column.integer(
        "0 in the one row of a computation whose pools could not be listed, else 1."
    )


class Threads(Schema):
    """A row per computation, process and group of threads that used CPU.

    Those of the computing process sum to its CPU. A very short computation has none: reading the
    clocks would take too long a part of it. Of worker processes there are threads besides the one
    that runs tasks, if they used 0.05 s or more.
    """

    computation = column.category("The computation.")
    pid = column.integer("The process.")
    is_child = column.integer("0 for the computing process, 1 for its worker processes.")
    kind = column.category("What the threads are: see the kinds of threads.")
    name = column.category(
        "Of Python's threads their name without its number, of native ones the library that "
        "runs them; empty if not known."
    )
    threads = column.integer("How many threads; 0 if not known.")
    cpu_seconds = column.seconds("CPU of these threads meanwhile.")


class Workers(Schema):
    """A row per worker of a cluster, or computation and worker process that ran its tasks."""

    computation = column.category("The computation; of a worker of a cluster, the cluster.")
    pid = column.category("The process; 0 if not known.")
    joined = column.time("When it could first run tasks: before its computation or in it.")
    worker = column.category("Its name, with which `tasks.worker` starts; empty elsewhere.")
    address = column.category("Its address; empty if it is no worker of a cluster.")
    host = column.category("The host it runs on.")
    threads = column.integer("How many tasks it can run at once.")
    left = column.time("When it left the cluster; NaN if it did not.")
    reason = column.category("Why it left, as distributed's scheduler says.")
    clock_offset = column.seconds("What was added to its times; 0 where processes share a clock.")
    clock_error = column.seconds("How wrong that may be.")
    cpus = column.integer("How many CPUs its process may use; 0 if not known.")
    memory_limit = column.number("bytes", "Memory that it may use; NaN if not known.")
    version = column.category("The version of dask_diag that it has; empty if none.")
    measured = column.integer(
        "1 if its tasks were measured there, 0 if distributed's times are used."
    )


class OtherTasks(Schema):
    """A row per task of a client that was not recorded, on a worker of a cluster that was."""

    computation = column.category("The cluster.")
    worker = column.category("The worker, as in `workers`.")
    start = column.time("When it started.")
    stop = column.time("When it stopped or seceded.")


class WorkerEvents(Schema):
    """A row each time that a worker of a cluster was paused, or moved results to disk or back."""

    computation = column.category("The cluster.")
    worker = column.category("The worker, as in `workers`.")
    event = column.category("`paused`, `disk-write` or `disk-read`.")
    start = column.time("When it started.")
    stop = column.time("When it stopped; of a pause that lasted, when recording stopped.")
    bytes = column.number("bytes", "Size of what was written or read, pickled; NaN of a pause.")
