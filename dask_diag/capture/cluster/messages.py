"""The messages between the processes of a cluster, as the type checker has them.

Nothing imports this as it runs: to make these classes would be half of the time that a scheduler
takes to make its plugin.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from dask_diag.capture.tasks.metered import Metric

__all__ = [
    "Facts",
    "Interval",
    "Joined",
    "Reply",
    "SentBatch",
    "Settings",
    "Wants",
    "Welcome",
]


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
