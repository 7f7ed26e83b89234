"""The stacks of one task in few bytes, as they are sent through the scheduler, which reads none."""

from __future__ import annotations

import json
import zlib
from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypedDict

from dask_diag.capture.keys import Keys
from dask_diag.capture.metrics import Metric
from dask_diag.capture.task import Line, StackSample


class Wants(TypedDict, total=False):
    """What a session collects: numbers are seconds between samples; of stacks, and of a cycle.

    Sessions of one `program` record each the tasks of another client; those of one `block` are
    one recording.
    """

    program: str
    block: str
    tasks: bool
    results: bool
    waits: bool
    stacks: Sequence[float]
    progress: bool
    processes: float


class Settings(TypedDict, total=False):
    """What workers are to measure; of two, that with the higher number counts."""

    number: int
    processes: float
    stacks: Sequence[float]
    waits: bool


class Welcome(TypedDict):
    """What the scheduler answers a worker: what it is to measure, and whose clock is its own."""

    settings: Settings
    host: str


class Joined(TypedDict):
    """What the scheduler says of itself to a new session."""

    scheduler: str
    plugin: str
    address: str
    host: str
    pid: int


class Facts(TypedDict, total=False):
    """What a worker says of itself; `clock` has time, offset and error of each comparison.

    `clock_host` is the same in all processes that share a clock.
    """

    version: str
    reason: str
    measured: int
    pid: int
    clock_host: str
    cpus: int
    memory_limit: float
    clock: Sequence[Sequence[float]]


SentComputation = tuple[
    int, str, str, str, float, float | None, int, float, int, int, int, float, float
]


class SentBatch(TypedDict):
    """What the scheduler collected from one pull to the next."""

    number: int
    ids: bytes
    rows: bytes
    keys: Sequence[Hashable]
    depends_on: bytes
    details: Sequence[
        tuple[int, tuple[str, Sequence[Metric], str, Sequence[tuple[str, float, int, str]], bytes]]
    ]
    functions: Sequence[tuple[int, str]]
    transfers: Sequence[tuple[int, int, int, float, float, int]]
    others: bytes
    processes: Sequence[tuple[int, bytes]]
    result_keys: Sequence[Hashable]
    results: bytes
    result_functions: Sequence[tuple[int, str]]
    events: Sequence[tuple[int, str, float, float, float]]
    computations: Sequence[SentComputation]
    workers: Sequence[tuple[int, str, str, str, int, float, float | None, str, Facts]]


class Reply(TypedDict, total=False):
    """What a pull brings."""

    status: str
    closing: bool
    batches: Sequence[SentBatch]
    clients: Sequence[str]
    dropped: int
    unmeasured: dict[str, int]
    running: int
    faults: dict[str, int]


class Interval(TypedDict):
    """What a worker did from one time of day to another."""

    action: str
    start: float
    stop: float


class RunDetails(NamedTuple):
    """The type of an exception, what was metered, the span, what was waited for, and stacks."""

    error: str
    metrics: Sequence[Metric]
    span: str
    waits: Sequence[tuple[str, float, int, str]]
    stacks: bytes


class Batch(NamedTuple):
    """Runs of tasks, in the order in which the scheduler knew of their end.

    Attributes
    ----------
    ids : bytes
        A number for each run, ascending over all batches, as 64-bit integers.
    rows : bytes
        The numbers of each run: see `formats.RUN_FIELDS`.
    keys : Keys
    depends_on : bytes
        The ids of the runs that each depends on, one after the other.
    details : mapping
        By id, of the runs that have more than others.
    transfers : sequence
        Of each: the id of the run whose result was sent (-1 if that is not recorded), the numbers
        of the workers that it went from and to, start, stop, and bytes.
    others : bytes
        Of each task of a client that is not recorded: the number of its worker, start and stop, as
        64-bit floats.
    processes : sequence
        The number of a worker, and samples of its processes: see `formats.PROCESS`.
    result_keys, results : Keys, bytes
        Of each result that was in memory, its key and numbers: see `formats.RESULT`.
    events : sequence
        Of each time that a worker paused, or moved results to disk or back: its number, which of
        these, start, stop, and bytes.
    functions, result_functions : mapping
        The names of the functions of those whose keys have none: of runs by id, of results by
        position.
    """

    ids: bytes
    rows: bytes
    keys: Keys
    depends_on: bytes
    details: Mapping[int, RunDetails]
    transfers: Sequence[tuple[int, int, int, float, float, int]]
    others: bytes
    processes: Sequence[tuple[int, bytes]]
    result_keys: Keys
    results: bytes
    events: Sequence[tuple[int, str, float, float, float]]
    functions: Mapping[int, str] = MappingProxyType({})
    result_functions: Mapping[int, str] = MappingProxyType({})


class ClusterComputation(NamedTuple):
    """A computation, as the scheduler described it last; times are the scheduler's.

    Of its `total` tasks those are `done` whose result is there; `seconds`, and `cpu` of them, are
    what these took. They are counted where someone shows them.
    """

    number: int
    name: str
    client: str
    span: str
    start: float
    stop: float | None
    workers: int
    scheduler_cpu: float
    total: int
    done: int
    failed: int
    seconds: float
    cpu: float


class ClusterWorker(NamedTuple):
    """A worker, as the scheduler described it last; times are the scheduler's."""

    number: int
    name: str
    address: str
    host: str
    threads: int
    joined: float
    left: float | None
    reason: str
    facts: Facts


def batch_of(sent: SentBatch) -> Batch:
    """A batch as it was sent."""
    return Batch(
        sent["ids"],
        sent["rows"],
        Keys(list(sent["keys"])),
        sent["depends_on"],
        {row: RunDetails(*details) for row, details in sent["details"]},
        sent["transfers"],
        sent["others"],
        sent["processes"],
        Keys(list(sent["result_keys"])),
        sent["results"],
        sent["events"],
        dict(sent["functions"]),
        dict(sent["result_functions"]),
    )


def packed_stacks(samples: Sequence[StackSample]) -> bytes:
    """Samples as bytes, in which each line of code is once."""
    if not samples:
        return b""
    lines: dict[Line, int] = {}
    rows = [
        (time, [lines.setdefault(line, len(lines)) for line in stack], seconds, cpu, count)
        for time, stack, seconds, cpu, count in samples
    ]
    return zlib.compress(json.dumps([list(lines), rows]).encode(), 1)


def unpacked_stacks(data: bytes) -> list[StackSample]:
    """What was packed."""
    if not data:
        return []
    texts, rows = json.loads(zlib.decompress(data))
    lines = [Line(*text) for text in texts]
    return [
        (time, tuple(lines[line] for line in stack), seconds, cpu, count)
        for time, stack, seconds, cpu, count in rows
    ]
