"""What the scheduler's side of capture has for each client: its computations, and what it pulls.

This module is shipped: see `scheduler_plugin`.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Hashable, Sequence
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, NamedTuple

from dask_diag.capture.cluster.formats import WORKER_ROW
from dask_diag.capture.cluster.scheduler_records import OK, RUN, RunDetails, Worker

if TYPE_CHECKING:
    from dask_diag.capture.cluster.messages import Wants

__all__ = [
    "BYTES_PER_KEY",
    "LIMIT_BYTES",
    "PACKED_AT_ONCE",
    "Batch",
    "Computation",
    "Session",
    "size_of",
]

LIMIT_BYTES = 64_000_000
"""What is collected for one client at most, until it pulls."""
BYTES_PER_KEY = 100
DETAILS, OTHER_ROWS = "details", "rows"
"""By what is counted, for a notice, where only the numbers of a run fitted in; and what is no
run and did not."""
BYTES_PER_RUN = WORKER_ROW.size + RUN.size + BYTES_PER_KEY
PACKED_AT_ONCE = 200
"""Runs that are packed together: between two messages of the scheduler, neither code nor data of
this would be in the processor's cache, and each would take several times as long."""


def size_of(key: Hashable) -> int:
    """How many letters and bytes a key has: it may be long, where users make their own."""
    kind = type(key)
    if kind is str or kind is bytes:
        return len(key)  # type: ignore[arg-type]
    return sum(map(size_of, key)) if kind is tuple else 0  # type: ignore[call-overload]


class Computation:
    """The graphs of one client, from when it had nothing to do until then again.

    `recorders` are those of its `sessions` that want rows of tasks. Of its `total` tasks those are
    `done` whose result is there; `seconds` and `cpu_of_tasks` are what these took.
    """

    __slots__ = (
        *("active", "client", "client_number"),
        *("cpu", "cpu_at_start", "cpu_of_tasks", "done", "failed"),
        *("name", "number", "recorders", "seconds", "sessions", "span"),
        *("start", "stop", "total", "workers"),
    )

    def __init__(self, number: int, name: str, client: str, span: str) -> None:
        self.set_sessions([])
        self.number, self.name, self.client, self.span = number, name, client, span
        self.start = self.stop = perf_counter()
        # Of the thread of the scheduler's event loop, on which all of this runs.
        self.cpu_at_start, self.cpu = thread_time(), 0.0
        self.active = 0
        self.client_number = -1
        self.workers = 0
        self.total = self.done = self.failed = 0
        self.seconds = self.cpu_of_tasks = 0.0

    def set_sessions(self, sessions: list[Session]) -> None:
        """Those of its client."""
        self.sessions = sessions
        self.recorders = [session for session in sessions if session.wants.get("tasks")]

    def described(self) -> tuple[object, ...]:
        """What clients are sent."""
        stop = None if self.active else self.stop
        cpu = thread_time() - self.cpu_at_start if self.active else self.cpu
        return (
            *(self.number, self.name, self.client, self.span, self.start, stop, self.workers, cpu),
            *(self.total, self.done, self.failed, self.seconds, self.cpu_of_tasks),
        )


class Batch(NamedTuple):
    """What was collected up to a pull."""

    number: int
    size: int
    content: dict[str, object]


Ended = tuple[
    int, Hashable, bytes, float, float, float, float, int, int, int, int, bool, Sequence[int]
]
"""A run that brought its result: its number, key and worker's row; submitted, collected, queued,
nbytes; worker, computation, attempt, client, stolen, and the runs that it depends on."""


class Session:
    """What was collected for one client and not yet pulled."""

    def __init__(self, client: str, wants: Wants) -> None:
        self.client = client
        self.wants = wants
        self.news = asyncio.Event()
        self.is_ending = False
        self.start = perf_counter()
        self.number = 0
        self.sealed: list[Batch] = []
        self.sealed_size = 0
        self.dropped = self.running = 0
        self.ended: list[Ended] = []
        self.unmeasured: dict[str, int] = {}
        self.computations: dict[int, Computation] = {}
        self.workers: dict[int, Worker] = {}
        self.clear()

    def clear(self) -> None:
        """Start a batch."""
        self.ids, self.rows, self.depends_on = array("q"), bytearray(), array("q")
        self.keys: list[Hashable] = []
        self.details: dict[int, RunDetails] = {}
        self.functions: dict[int, str] = {}
        self.transfers: list[tuple[object, ...]] = []
        self.others = array("d")
        self.processes: list[tuple[int, bytes]] = []
        self.result_keys: list[Hashable] = []
        self.results = bytearray()
        self.result_functions: dict[int, str] = {}
        self.events: list[tuple[object, ...]] = []
        self.size = 0

    def has_room(self, size: int) -> bool:
        """Whether so many bytes fit in; they do not if the client does not pull."""
        if self.size + self.sealed_size + size > LIMIT_BYTES:
            self.unmeasured[OTHER_ROWS] = self.unmeasured.get(OTHER_ROWS, 0) + 1
            return False
        self.size += size
        return True

    def add_ended(self, run: Ended) -> None:
        """Add a run that has nothing but its numbers, which are packed later."""
        key, depends_on = run[1], run[-1]
        size = self.size + BYTES_PER_RUN
        if type(key) is not str or len(key) > BYTES_PER_KEY:
            size += size_of(key)
        if depends_on:
            size += 8 * len(depends_on)
        # As `has_room` has it: this is done for every task.
        if size + self.sealed_size > LIMIT_BYTES:
            self.dropped += 1
            return
        self.size = size
        ended = self.ended
        ended.append(run)
        if len(ended) >= PACKED_AT_ONCE:
            self.pack_ended()

    def pack_ended(self) -> None:
        """Pack the runs that were added since the last time."""
        ended, self.ended = iter(self.ended), []
        try:
            for number, key, row, *numbers, stolen, depends_on in ended:
                self.rows += row + RUN.pack(*numbers, len(depends_on), OK, stolen, 1)
                self.ids.append(number)
                self.keys.append(key)
                self.depends_on.extend(depends_on)
        finally:
            # If one has failed, the others have not.
            self.ended = [*ended, *self.ended]

    def add_run(
        self,
        number: int,
        key: Hashable,
        row: bytes,
        depends_on: Sequence[int],
        details: RunDetails | None,
    ) -> None:
        """Add a run of a task, with what it has of `details` that is wanted."""
        if self.ended:
            self.pack_ended()
        size = BYTES_PER_RUN
        if type(key) is not str or len(key) > BYTES_PER_KEY:
            size += size_of(key)
        if depends_on:
            size += 8 * len(depends_on)
        if details is not None:
            error, metrics, span, waits, stacks = details
            wants = self.wants
            waits = waits if wants.get("waits") else ()
            stacks = stacks if wants.get("stacks") else b""
            details = error, metrics, span, waits, stacks
            more = len(stacks) + BYTES_PER_KEY * (len(metrics) + len(waits))
            free = LIMIT_BYTES - self.size - self.sealed_size - size
            if 0 <= free < more:
                # Its times are there, and the end of a run that failed.
                self.unmeasured[DETAILS] = self.unmeasured.get(DETAILS, 0) + 1
                details, more = (error, (), span, (), b""), 0
            size += more
        size += self.size
        if size + self.sealed_size > LIMIT_BYTES:
            self.dropped += 1
            return
        self.size = size
        self.ids.append(number)
        self.rows += row
        self.keys.append(key)
        self.depends_on.extend(depends_on)
        if details is not None:
            self.details[number] = details

    def add_function(self, number: int, name: str) -> None:
        """Add the name of the function of the last run, which may have been dropped."""
        if self.ids and self.ids[-1] == number:
            self.functions[number] = name
            self.size += BYTES_PER_KEY

    def seal(self) -> None:
        """What was collected is a batch, which is there until it is acknowledged."""
        self.pack_ended()
        self.number += 1
        content = {
            "ids": self.ids.tobytes(),
            "rows": bytes(self.rows),
            "keys": self.keys,
            "depends_on": self.depends_on.tobytes(),
            "details": list(self.details.items()),
            "functions": list(self.functions.items()),
            "transfers": self.transfers,
            "others": self.others.tobytes(),
            "processes": self.processes,
            "result_keys": self.result_keys,
            "results": bytes(self.results),
            "result_functions": list(self.result_functions.items()),
            "events": self.events,
            "computations": [computation.described() for computation in self.computations.values()],
            "workers": [worker.described() for worker in self.workers.values()],
        }
        self.sealed.append(Batch(self.number, self.size, {"number": self.number, **content}))
        self.sealed_size += self.size
        self.workers = {}
        # What still runs will have another stop.
        self.computations = {
            n: computation for n, computation in self.computations.items() if computation.active
        }
        self.clear()

    def acknowledge(self, number: int) -> None:
        """Forget the batches that the client has."""
        self.sealed = [batch for batch in self.sealed if batch.number > number]
        self.sealed_size = sum(batch.size for batch in self.sealed)
