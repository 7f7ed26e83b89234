"""What the scheduler's side of capture has of workers and of runs of tasks.

This module is shipped: see `scheduler_plugin`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from distributed.metrics import time

from dask_diag.capture.cluster.formats import (
    WORKER_ROW,
    Sampled,
)

if TYPE_CHECKING:
    from dask_diag.capture.cluster.messages import Interval

__all__ = [
    "ACTIVE",
    "CANCELLED",
    "FAILED",
    "NAN",
    "NOT_STARTED",
    "NO_SAMPLES",
    "OK",
    "PAUSED",
    "QUEUED",
    "RESCHEDULED",
    "RUN",
    "RUN_ID",
    "RUN_ID_AT",
    "UNFINISHED",
    "End",
    "RunDetails",
    "Worker",
    "reason_of",
    "span_name",
    "unmeasured_row",
]

RUN_ID = struct.Struct("<q")
RUN_ID_AT = WORKER_ROW.size - RUN_ID.size
RUN = struct.Struct("<dddd" + "iiiii" + "BBB")
"""What follows a worker's row: submitted, collected, queued, nbytes; worker, computation, attempt,
client, dependencies; outcome, stolen, measured."""
OK, FAILED, UNFINISHED, CANCELLED, RESCHEDULED = range(5)
ACTIVE = frozenset(("waiting", "processing", "queued", "no-worker"))
PAUSED = "paused"
QUEUED = "queued"
NAN = float("nan")


class Worker:
    """A worker, from when it was there until it left."""

    __slots__ = (
        *("address", "clock", "facts", "host", "joined", "left"),
        *("name", "number", "paused_at", "reason", "threads"),
    )

    def __init__(self, number: int, address: str, name: str, host: str, threads: int) -> None:
        self.number, self.address, self.name = number, address, name
        self.host, self.threads = host, threads
        self.joined = perf_counter()
        self.left: float | None = None
        self.paused_at: float | None = None
        self.reason = ""
        self.facts: dict[str, object] = {}
        self.clock: list[object] = []

    def described(self) -> tuple[object, ...]:
        """What clients are sent."""
        where = (self.number, self.name, self.address, self.host, self.threads)
        facts = {**self.facts, "clock": self.clock} if self.facts else {}
        return (*where, self.joined, self.left, self.reason, facts)


NO_SAMPLES: Sampled = (), b""
"""What a run has that was not sampled: no waits, no stacks."""


class End(NamedTuple):
    """How a run ended that brought no result."""

    outcome: int
    worker: str
    time: float
    measured: int = 1
    error: str = ""
    metrics: Sequence[object] = ()
    sampled: Sampled = NO_SAMPLES


RunDetails = tuple[str, Sequence[object], str, Sequence[tuple[str, float, int, str]], bytes]
"""What most runs have not: the type of an exception, what was metered, the span, what was waited
for, and stacks."""


NOT_STARTED = WORKER_ROW.pack(NAN, NAN, NAN, NAN, NAN, 0, 0)


def unmeasured_row(startstops: Iterable[Interval] | None) -> bytes:
    """The row of a run that was not measured, with distributed's own times."""
    to_clock = perf_counter() - time()
    for interval in startstops or ():
        if interval["action"] == "compute":
            start, stop = interval["start"] + to_clock, interval["stop"] + to_clock
            return WORKER_ROW.pack(start, stop, NAN, NAN, NAN, 0, 0)
    return NOT_STARTED


def span_name(span: Mapping[str, Sequence[str]]) -> str:
    """The name of a span and of those around it."""
    return "/".join(map(str, span.get("name", ())))


def reason_of(stimulus: str) -> str:
    """Why a worker left, without the time that the scheduler appends."""
    words = stimulus.split("-")
    while words and words[-1].replace(".", "").isdigit():
        words.pop()
    return "-".join(words)
