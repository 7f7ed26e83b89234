"""What is sent between the processes of a cluster, as `scheduler_plugin` packs it.

This module is shipped with that one.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Final, TypedDict

if TYPE_CHECKING:
    from dask_diag.capture.tasks.metered import Metric

__all__ = [
    "COROUTINE",
    "NAME",
    "OUTCOMES",
    "PROCESS",
    "RESULT",
    "RUN_FIELDS",
    "SCHEDULER",
    "SENT_OUTCOMES",
    "WORKER_ROW",
    "Facts",
    "Joined",
    "Reply",
    "Sampled",
    "SentBatch",
    "Settings",
    "Wants",
    "Welcome",
]

NAME: Final = "dask_diag"
"""Of the plugins, of the topic, and of the entry in a task's metadata."""

WORKER_ROW = struct.Struct("<dddddqq")
"""Start, stop, cpu, seceded, CPU after seceding; thread, run id."""

PROCESS = struct.Struct("<ddddd")
"""A sample of a process: time, pid, whether it is a child of a worker; memory, % CPU of a core."""

RESULT = struct.Struct("<dddd")
"""A result that was in memory: its computation, bytes, from when, until when."""

Sampled = tuple[Sequence[tuple[str, float, int]], bytes]
"""What a task waited for, as in `Wait`; and its stacks: see `packed_stacks`."""

COROUTINE: Final = b"coroutine"
"""In place of stacks: a coroutine has none of its own."""

SCHEDULER: Final = -1
"""The number of the scheduler, among those of workers."""

RUN_FIELDS = (
    *((name, "<f8") for name in ("start", "stop", "cpu", "seceded", "seceded_cpu")),
    *((name, "<i8") for name in ("thread", "run")),
    *((name, "<f8") for name in ("submitted", "collected", "queued", "nbytes")),
    *((name, "<i4") for name in ("worker", "computation", "attempt", "client", "dependencies")),
    *((name, "u1") for name in ("outcome", "stolen", "measured")),
)
"""Name and type of each field of a run, as numpy has them."""

OUTCOMES = ("ok", "failed", "unfinished", "cancelled", "rescheduled")
"""The outcomes of runs, by the code that is sent."""
SENT_OUTCOMES = {name: code for code, name in enumerate(OUTCOMES)}


class Wants(TypedDict, total=False):
    """What a session collects: numbers are seconds between samples; of stacks, and of a cycle.

    Sessions of one `program` record each the tasks of another client.
    """

    program: str
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
    address: str
    host: str
    pid: int
    time: float


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
        tuple[int, tuple[str, Sequence[Metric], str, Sequence[tuple[str, float, int]], bytes]]
    ]
    transfers: Sequence[tuple[int, int, int, float, float, int]]
    others: bytes
    processes: Sequence[tuple[int, bytes]]
    result_keys: Sequence[Hashable]
    results: bytes
    events: Sequence[tuple[int, str, float, float, float]]
    computations: Sequence[SentComputation]
    workers: Sequence[tuple[int, str, str, str, int, float, float | None, str, Facts]]


class Reply(TypedDict, total=False):
    """What a pull brings."""

    status: str
    batches: Sequence[SentBatch]
    clients: Sequence[str]
    dropped: int
    unmeasured: dict[str, int]
    unattributed: int
    running: int
    faults: dict[str, int]
