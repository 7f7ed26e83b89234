"""Records and messages between the client, the scheduler and the workers of a cluster.

Each record is defined here once. `shipping` sends the text of this module to the scheduler in front
of the text of `plugin`, so the module imports no other module of this package at run time.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from array import array
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, TypeVar

if TYPE_CHECKING:
    from dask_diag.capture.metrics import Metric
    from dask_diag.capture.task import StackSample

NAME: Final = "dask_diag"
"""Name of the plugins, of the topic of events, and of the entry in a task's metadata."""
FLUSH, SETTINGS = f"{NAME}_flush", f"{NAME}_settings"
"""Handlers of workers."""


class Record:
    """A row of numbers: names of fields, each with the letter of its type in `struct` and numpy."""

    def __init__(self, **fields: str) -> None:
        self.fields = fields
        self.dtype = [(name, f"<{letter}") for name, letter in fields.items()]
        layout = struct.Struct("<" + "".join(fields.values()))
        self.size, self.pack, self.unpack = layout.size, layout.pack, layout.unpack


WORKER_ROW = Record(
    **dict.fromkeys(("start", "stop", "cpu", "seceded", "seceded_cpu"), "d"), thread="q", run="q"
)
"""Measurements of one run of a task on a worker."""
SCHEDULER_ROW = Record(
    dependencies="i",
    **dict.fromkeys(("submitted", "collected", "queued", "nbytes"), "d"),
    **dict.fromkeys(("worker", "computation", "attempt", "client"), "i"),
    **dict.fromkeys(("outcome", "stolen", "measured"), "B"),
)
"""Facts of the scheduler on a run."""
RUN = Record(**WORKER_ROW.fields, **SCHEDULER_ROW.fields)
OTHER_TASK = Record(worker="i", start="d", stop="d")
"""Time in which a worker ran a task of a client that is not recorded."""
PROCESS = Record(time="d", pid="d", is_child="d", memory="d", cpu="d")
"""A sample of a process; `is_child` is 1 for a child process of a worker, `cpu` is % of a core."""
RESULT = Record(computation="i", nbytes="d", start="d", stop="d")
"""Time in which a result was in memory."""
TRANSFER = Record(run="q", source="i", destination="i", start="d", stop="d", nbytes="d")
"""A transfer between two workers, by number; `run` is -1 if the run is not recorded."""
WORKER_EVENT = Record(worker="i", event="i", start="d", stop="d", nbytes="d")
"""A pause of a worker, or use of its disk; `event` is the position in `EVENTS`."""

OUTCOMES = ("ok", "failed", "unfinished", "cancelled", "rescheduled")
OK, FAILED, UNFINISHED, CANCELLED, RESCHEDULED = range(len(OUTCOMES))

EVENTS = ("paused", "disk-write", "disk-read")

COROUTINE: Final = b"coroutine"
"""Sent in place of stacks: a coroutine has no stack of its own."""
SCHEDULER: Final = -1
"""Number of the scheduler among the numbers of workers."""

Waits = Sequence[tuple[str, float, int, str]]
"""Activity, seconds, number of samples and label of each wait of a task."""


class BranchSizes(NamedTuple):
    """Bytes of a branch in a file, or of its `branches` in all, without a name.

    `unused` is 1 if a chunk read the branch in advance, and did not use it.
    """

    name: str
    branches: int
    compressed: int
    uncompressed: int
    unused: int


class ChunkOfEvents(NamedTuple):
    """Entries of a file that a run of a task processed, as coffea describes them.

    `bytes` were requested from the file, NaN if unknown. `branches` begins with all of the file.
    `error` is the type and the message of the original exception.
    """

    dataset: str
    file: str
    tree: str
    first: int
    last: int
    bytes: float
    branches: Sequence[BranchSizes] = ()
    error: str = ""


class RunMeasurements(NamedTuple):
    """Measurements of a run in a task's metadata; `row` is empty if the task did not run.

    `steps` has the seconds of each name of `names_of_steps`, then the CPU seconds, if measured.
    """

    row: bytes
    error: str = ""
    metrics: Sequence[Metric] = ()
    waits: Waits = ()
    stacks: bytes = b""
    chunk: ChunkOfEvents | Sequence[Any] = ()
    steps: bytes = b""


# Messages of workers, on the topic `NAME`.


class RunEnded(NamedTuple):
    """End of a run without a result."""

    key: Hashable
    run: int
    worker: str
    outcome: int
    measured: RunMeasurements


class Running(NamedTuple):
    """A current run; `until` is the time when the thread seceded, or now."""

    key: Hashable
    run: int
    start: float
    until: float
    thread: int
    stacks: bytes = b""


class Received(NamedTuple):
    """Transfer of a result to a worker."""

    key: Hashable
    source: str
    destination: str
    start: float
    stop: float
    nbytes: int


class Spilled(NamedTuple):
    """Write or read of results on a worker's disk."""

    worker: str
    event: str
    start: float
    stop: float
    nbytes: float


class ProcessSamples(NamedTuple):
    """Rows of `PROCESS` of a worker and its child processes."""

    worker: str
    rows: bytes


class Unmeasured(NamedTuple):
    """A task without full measurements: of a shuffle, an actor, or an unknown executor."""

    key: Hashable
    kind: str


class Fault(NamedTuple):
    """An error of dask_diag on a worker."""

    text: str


# Messages of the scheduler to clients.


class RunDetails(NamedTuple):
    """Rare facts of a run; `error` is the type of the exception."""

    error: str = ""
    metrics: Sequence[Metric] = ()
    span: str = ""
    waits: Waits = ()
    stacks: bytes = b""
    chunk: ChunkOfEvents | Sequence[Any] = ()
    steps: bytes = b""


class Batch:
    """Rows from one pull to the next; arrays are sent as bytes.

    Attributes
    ----------
    ids : array of int
        A number for each run, ascending over all batches.
    rows : bytearray
        Rows of `RUN`, in the order in which the scheduler saw the runs end.
    keys, result_keys : list of Hashable, or Keys at the client
    depends_on : array of int
        Ids of the runs of each run's inputs, run by run.
    details, functions : dict
        By id. Functions are here if keys do not name them.
    others, transfers, events, results : bytearray
        Rows of `OTHER_TASK`, `TRANSFER`, `WORKER_EVENT` and `RESULT`.
    processes : list
        Numbers of workers, each with rows of `PROCESS`.
    result_functions : dict
        Functions of results by position, if keys do not name them.
    names : dict
        For new names of tasks: the names of the steps of a fused task, and of dependents.
    groups : bytes
        At the client, the kind of each run's task.
    """

    def __init__(self, **sent: object) -> None:
        self.ids, self.depends_on = array("q"), array("q")
        self.rows, self.others, self.results = bytearray(), bytearray(), bytearray()
        self.transfers, self.events = bytearray(), bytearray()
        self.keys: Any = []
        self.result_keys: Any = []
        self.details: dict[int, RunDetails] = {}
        self.functions: dict[int, str] = {}
        self.result_functions: dict[int, str] = {}
        self.processes: list[tuple[int, bytes]] = []
        self.names: dict[Hashable, tuple[Sequence[Hashable], Sequence[Hashable]]] = {}
        self.groups = b""
        vars(self).update(sent)

    def sent(self) -> dict[str, object]:
        """Return the attributes as they are sent."""
        arrays = (array, bytearray)
        return {
            name: bytes(value) if isinstance(value, arrays) else value
            for name, value in vars(self).items()
        }


class ClusterComputation(NamedTuple):
    """A computation, by the scheduler's clock; `stop` is None while tasks are active.

    `functions` to `cpu` are counted if a session shows progress: name, tasks done and all tasks of
    each function, tasks failed, and seconds and CPU seconds of the tasks done. `graph_bytes` is the
    size of the data in its graphs, if a session wants tasks; `again` what `repeated` found
    in them; `limits` are rows of `ResourceLimits`.
    """

    number: int
    name: str
    client: str
    span: str
    start: float
    stop: float | None
    workers: int
    cpu_scheduler: float
    functions: Sequence[tuple[str, int, int]]
    failed: int
    seconds: float
    cpu: float
    graph_bytes: float
    again: Sequence[Sequence[Any]]
    limits: Sequence[tuple[str, str, int]]


class ClusterWorker(NamedTuple):
    """A worker, by the scheduler's clock; no other worker has its `id`."""

    number: int
    id: str
    name: str
    address: str
    host: str
    threads: int
    joined: float
    left: float | None
    reason: str
    facts: WorkerFacts


class Wants(TypedDict, total=False):
    """Kinds of rows for a session.

    `processes` is the number of seconds between samples, `stacks` has the seconds between samples
    and of a cycle. Each session of a `program` records tasks of another client. The sessions of a
    `block` make one recording.
    """

    program: str
    block: str
    tasks: bool
    results: bool
    waits: bool
    stacks: Sequence[float]
    progress: bool
    processes: float
    lines: bool


class Settings(TypedDict, total=False):
    """Kinds of measurements on workers; the settings with the highest number count."""

    number: int
    processes: float
    stacks: Sequence[float]
    waits: bool
    steps: bool


class WorkerFacts(TypedDict, total=False):
    """Facts on a worker; `clock` has time, offset and error of each comparison.

    Processes with the same `clock_host` share a clock.
    """

    version: str
    reason: str
    measured: int
    pid: int
    clock_host: str
    cpus: int
    memory_limit: float
    clock: Sequence[Sequence[float]]


class HelloReply(TypedDict):
    """Reply of the scheduler to the facts of a worker."""

    settings: Settings
    host: str


class AttachReply(TypedDict):
    """Reply of the scheduler to a new session."""

    scheduler: str
    address: str
    host: str
    pid: int


class SentBatch(TypedDict):
    """A batch with its number, and changed computations and workers."""

    number: int
    rows: dict[str, object]
    computations: Sequence[ClusterComputation]
    workers: Sequence[ClusterWorker]


class PullReply(TypedDict, total=False):
    """Reply of the scheduler to a pull."""

    status: str
    closing: bool
    batches: Sequence[SentBatch]
    clients: Sequence[str]
    dropped: int
    unmeasured: dict[str, int]
    running: int
    faults: dict[str, int]


LineT = TypeVar("LineT")


def packed_stacks(samples: Sequence[StackSample]) -> bytes:
    """Pack samples of stacks, with each line of code once."""
    if not samples:
        return b""
    lines: dict[tuple[object, ...], int] = {}
    rows = [
        (time, [lines.setdefault(line, len(lines)) for line in stack], *numbers)
        for time, stack, *numbers in samples
    ]
    return zlib.compress(json.dumps([list(lines), rows]).encode(), 1)


def unpacked_stacks(
    data: bytes, line: Callable[..., LineT]
) -> list[tuple[float, tuple[LineT, ...], float, float, float]]:
    """Unpack samples of stacks; `line` makes a line of code of its values."""
    if not data:
        return []
    texts, rows = json.loads(zlib.decompress(data))
    lines = [line(*text) for text in texts]
    return [(time, tuple(lines[n] for n in stack), *numbers) for time, stack, *numbers in rows]


def forget_handlers() -> None:
    """Clear distributed's cache of called handlers.

    The cache would keep each handler and its object alive as long as the process.
    """
    import distributed.core

    remembered = getattr(distributed.core, "_expects_comm", None)
    forget = getattr(remembered, "cache_clear", None)
    if forget is not None:
        forget()


@lru_cache(maxsize=1)
def host_id() -> str:
    """Name of the monotonic clock, equal in processes with a common clock; empty if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        return boot.strip() + os.readlink("/proc/self/ns/time")
    except OSError:
        return ""
