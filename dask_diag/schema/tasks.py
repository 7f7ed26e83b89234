"""Computations, their tasks, and what tasks did."""

from __future__ import annotations

from dask_diag.schema import column
from dask_diag.schema.column import Schema

__all__ = [
    "CachedResults",
    "Computations",
    "Dependencies",
    "Metrics",
    "Planned",
    "Progress",
    "Tasks",
    "Transfers",
    "Waits",
]


class Computations(Schema):
    """A row per computation: one graph that a scheduler ran."""

    computation = column.category("Its id, unique among all runs.")
    called = column.time("When `dask.compute` was called; `start` where it was not, or not seen.")
    start = column.time("When the scheduler started, with a graph that was made.")
    prepared = column.time("When the graph was in order and its first task could be submitted.")
    stop = column.time("When it returned or raised; of one that still runs, now.")
    workers = column.integer("How many tasks could run at once; 0 if not known.")
    process_cpu = column.seconds("CPU of the computing process meanwhile, all threads.")
    scheduler_cpu = column.seconds("CPU of the thread that called the scheduler.")
    children_cpu = column.seconds(
        "CPU of the descendants of the process meanwhile: programs that tasks start, and worker "
        "processes; NaN if not known."
    )
    others_cpu = column.seconds(
        "CPU of other programs meanwhile, on the CPUs that the process may use; NaN if not known."
    )
    hooks_cpu = column.seconds(
        "CPU of the profilers' hooks for its tasks, about: calibrated per task; NaN if not known."
    )
    ends_cpu = column.seconds(
        "CPU of the profilers' hooks as it started and ended, measured; NaN if not known."
    )
    own_threads_cpu = column.seconds(
        "CPU of the profilers' own threads since the computation before it ended; NaN if not known."
    )
    own_seconds = column.seconds(
        "Of the time from `called` to `prepared`, that of the profilers' hooks; NaN if not known."
    )
    voluntary_switches = column.number(
        "", "How often a thread of the process gave its CPU up to wait."
    )
    involuntary_switches = column.number("", "How often one lost its CPU though it could have run.")
    cpus = column.integer("How many CPUs the process may use.")
    memory_limit = column.number("bytes", "Memory that the process may use; NaN if not known.")
    graph_bytes = column.number(
        "bytes",
        "Size of the data that the graph gives to its tasks, counted for each of them; NaN if not "
        "known.",
    )
    span = column.category("The span in which it started; empty without one.")
    scheduler = column.category("`threads`, `processes`, `synchronous` or `distributed`.")
    cluster = column.category("The id of the cluster that ran it; empty on a local scheduler.")
    call_site = column.category(
        "The line of the user's code that called dask, as `file.py:12`; empty if not known, as on "
        "a cluster."
    )
    error = column.category(
        "The type of the exception that ended it, or `unknown`; empty if none did."
    )
    pool_end = column.category(
        "How the worker process ended that broke the pool: `exit 1`, `SIGKILL`; `unguarded` where "
        "it could not start because it came to the same computation, for lack of "
        "`if __name__ == '__main__'`. Empty if none did, or if it is not known."
    )


class Planned(Schema):
    """A row per computation and function: how many of its tasks the scheduler was to run."""

    computation = column.category("The computation.")
    function = column.category("The function, as in `tasks`.")
    tasks = column.integer("How many of its tasks; those that were not run are among them.")


class Progress(Schema):
    """A row per computation that runs, as it was when the recording was read or written last."""

    computation = column.category("The computation; empty while its graph is made.")
    phase = column.category(
        "`graph`, `ordering` or `tasks`: see the phases of a running computation."
    )
    since = column.time("When this phase started.")
    total = column.integer(
        "How many tasks it has; while they are put in order, data are among them."
    )
    finished = column.integer("How many the scheduler has finished.")
    ready = column.integer("How many could run, and wait for a worker.")
    waiting = column.integer("How many wait for others.")
    running = column.integer("How many were handed to workers and not collected.")


class Tasks(Schema):
    """A row per task that was submitted."""

    key = column.text("Its key, as text.")
    function = column.category(
        "The prefix of the key; without one, the name of the function called."
    )
    start = column.time("When it started, read on the thread that ran it.")
    stop = column.time("When it stopped, read there too.")
    thread_cpu = column.seconds("CPU of that thread between the two.")
    thread_noncpu = column.seconds("The rest of the time between the two.")
    submitted = column.time("When the scheduler submitted it.")
    collected = column.time("When the scheduler collected its result; NaN if it did not.")
    worker = column.category(
        "The thread or process that ran it: `thread-0`, `process-3`, `caller`."
    )
    pid = column.category("The process that ran it; 0 if not known.")
    thread = column.category("The ident of the thread that ran it; 0 if not known.")
    computation = column.category("The computation it belongs to.")
    span = column.category("The span it was annotated with, else its computation's.")
    outcome = column.category("`ok`, `failed`, `unfinished`, `cancelled` or `rescheduled`.")
    error = column.category("The exception's type; empty if there was none.")
    error_message = column.category(
        "What it says, cut, and without what looks like a secret; empty on a cluster."
    )
    error_location = column.category(
        "File, line and function of the program's innermost line; empty on a cluster."
    )
    attempt = column.integer("1 for its first run, 2 for the second, …; each run is a row.")
    host = column.category("The host that ran it; empty if not known.")
    nbytes = column.number("bytes", "The size of its result, if measured in bytes; else NaN.")
    queued = column.seconds(
        "How long a cluster's scheduler had it ready and did not send it; NaN elsewhere."
    )
    stolen = column.integer("1 if another worker ran it than it was first sent to, else 0.")
    client = column.category("The client of a cluster that asked for it; empty elsewhere.")
    seceded = column.time("When it gave its worker's thread back though it went on; NaN if never.")
    seceded_cpu = column.seconds("Of `thread_cpu`, what it used after that; NaN if it did not.")


class Dependencies(Schema):
    """A row per dependency of a task on another task's result."""

    task = column.integer("Row of the task in `tasks`.")
    depends_on = column.integer("Row in `tasks` of the task whose result it takes.")


class Metrics(Schema):
    """A row per metric that a task reported through `context_meter`."""

    task = column.integer("Row of the task in `tasks`.")
    activity = column.category("The label it was reported under.")
    unit = column.category("Its unit, `seconds`, `bytes` or any other.")
    value = column.number("its unit", "How much.")
    cpu = column.seconds("Of seconds, how many were CPU seconds; NaN if not known.")


class Transfers(Schema):
    """A row each time that a task, a result or other data was moved between processes."""

    task = column.integer(
        "Row of the task in `tasks`; -1 of data that no recorded task made, as scattered data."
    )
    activity = column.category(
        "`serialize` or `deserialize`; `transfer` between workers of a cluster."
    )
    side = column.category("Where it was done: `scheduler` or `worker`; `network` of a transfer.")
    start = column.time("When it started.")
    stop = column.time("When it stopped.")
    bytes = column.number("bytes", "Size of what was pickled or sent.")
    source = column.category("The worker of a cluster that it was sent from; else empty.")
    destination = column.category("The worker that it was sent to; else empty.")


class Waits(Schema):
    """A row per thing that a task waited for."""

    task = column.integer("Row of the task in `tasks`.")
    activity = column.category("What it waited for: `cpu-wait`, `gil-wait`, `io-wait`, …")
    seconds = column.seconds("For how long: read for `cpu-wait`, else what its samples represent.")
    samples = column.integer(
        "In how many samples it was seen; of `cpu-wait` 1 if it was read for all of it, else 0."
    )
    label = column.category(
        "The label of the metered code in which it was seen; empty outside of such code, and of "
        "`cpu-wait`, which is read for the whole task."
    )


class CachedResults(Schema):
    """A row per result that the scheduler cached for the tasks that depend on it."""

    key = column.text("The key of its task.")
    function = column.category("The function of its task.")
    computation = column.category("The computation it belongs to.")
    metric = column.number(
        "of the recording's `metric_unit`", "Its size, as the metric measures it, or NaN."
    )
    start = column.time("When the scheduler got it.")
    stop = column.time("When the scheduler released it.")
