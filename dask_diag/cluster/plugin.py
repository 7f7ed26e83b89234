"""The scheduler's side of capture on a cluster: it collects rows of tasks until clients pull them.

It is shipped as source text, since the scheduler may lack this package or run another Python, with
the modules that it imports of this package: `shipping` has the list. They import nothing else of
it.
"""

from __future__ import annotations

import asyncio
import os
import struct
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from math import isnan
from time import perf_counter, process_time, thread_time
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from dask.utils import funcname
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.metrics import time

from dask_diag.cluster.wire import (
    NAME,
    PROCESS,
    RESULT,
    SCHEDULER,
    WORKER_ROW,
    Sampled,
    forget_handlers,
    host_id,
)

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState

    from dask_diag.cluster.messages import Interval, Wants


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


class Cached(NamedTuple):
    """A result in distributed memory. Its task may be in a later graph, too."""

    computation: Computation
    nbytes: float
    start: float
    function: str


class Task:
    """What is known of a task beside what the scheduler knows, and of its current run."""

    __slots__ = (
        *("attempt", "cached", "computation", "counted_in", "is_done", "is_out"),
        *("queued", "queued_at"),
        *("row", "sent", "span", "worker"),
    )

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self.attempt = 0
        self.queued = 0.0
        self.queued_at: float | None = None
        self.row = -1
        self.sent = 0.0
        self.worker = ""
        self.is_out = False
        self.cached: Cached | None = None
        self.counted_in: Computation | None = None
        self.is_done = False
        self.span = computation.span

    def copy(self) -> Task:
        """The same, of a run that no one waits for, while the task may be run again."""
        copy = Task(self.computation)
        for name in self.__slots__:
            setattr(copy, name, getattr(self, name))
        return copy


def name_of_plain(key: Hashable, state: TaskState | None) -> str:
    """The name of a task's function where its key has none, as ``"c"`` and ``7``; else empty."""
    if type(key) is tuple or (type(key) is str and "-" in key):
        return ""
    try:
        function = getattr(state.run_spec, "func", None) if state is not None else None
        return "" if function is None else str(funcname(function))
    except Exception:
        # Whatever the user made of it: the key has to do.
        return ""


SECONDS_TO_SETTLE = 1.0
SECONDS_TO_FLUSH = 2.0
SECONDS_TO_FIRST_SAMPLE = 0.01
MOST_READINGS = 64
"""Of one worker's clock: each client is sent all of them with every new one, each five seconds.
These are 1.8 kB at most, which are packed in 0.05 ms and unpacked in 0.02 ms."""
RECENT_READINGS = 16


def thinned(readings: list[object]) -> list[object]:
    """Readings of a clock, of which the older ones are fewer where there are many.

    Between those that remain it is taken to drift evenly, as between any two.
    """
    if len(readings) <= MOST_READINGS:
        return readings
    older, recent = readings[:-RECENT_READINGS], readings[-RECENT_READINGS:]
    return older[::2] + recent


class ProcessUsage:
    """The CPU and the memory of this process, from one sample to the next."""

    def __init__(self) -> None:
        # A requirement of distributed.
        import psutil

        self.process = psutil.Process()
        self.cpu, self.time = process_time(), perf_counter()

    def sample(self) -> bytes:
        """A sample as numbers: see `PROCESS`."""
        cpu, time = process_time(), perf_counter()
        percent = 100 * (cpu - self.cpu) / max(time - self.time, 1e-9)
        self.cpu, self.time = cpu, time
        return PROCESS.pack(time, os.getpid(), 0, self.process.memory_info().rss, percent)


class WorkerCollector:
    """Collects what happens to workers; has all that is collected.

    Attributes
    ----------
    scheduler : Scheduler
        Of distributed.
    """

    scheduler: Scheduler
    _sampling: asyncio.Task[None]

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.tasks: dict[Hashable, Task] = {}
        self.orphans: dict[tuple[Hashable, int], Task] = {}
        self.attempts: dict[Hashable, int] = {}
        self.running: dict[Hashable, tuple[bytes, Sampled, float]] = {}
        self.stimulus = ""
        self.seen_span: object = None
        self.now = 0.0
        self.open: dict[str, Computation] = {}
        self.name_of_run = os.urandom(4).hex()
        self.count = 0
        self.row = 0
        self.workers: dict[str, Worker] = {}
        self.numbers: dict[str, int] = {}
        self.worker_count = 0
        self.clients: dict[str, int] = {}
        self.workers_of_clients: dict[str, set[str]] = {}
        self.faults: dict[str, int] = {}
        self.shows_progress = self.records_results = self.is_shared = False
        self.settings: dict[str, object] = {"number": 0}
        self.usage: ProcessUsage | None = None

    def fault(self, doing: str, error: BaseException) -> None:
        """Count a fault of this plugin: the scheduler would log it where no one looks."""
        self._count_fault(f"{doing}: {type(error).__name__}: {error}")

    def _count_fault(self, text: str) -> None:
        self.faults[text] = self.faults.get(text, 0) + 1

    async def _ask_workers(
        self, message: Mapping[str, object], seconds: float, doing: str
    ) -> dict[str, Sequence[Sequence[object]]]:
        """What each worker that measures answers; who does not answer is left out."""
        measuring = [w.address for w in self.workers.values() if w.facts.get("measured")]
        if not measuring:
            return {}
        replies: dict[str, Sequence[Sequence[object]]] = {}
        asked = {
            address: asyncio.ensure_future(self._ask(address, message)) for address in measuring
        }
        await asyncio.wait(asked.values(), timeout=seconds)
        for address, request in asked.items():
            if not request.done():
                request.cancel()
                self._count_fault(f"{doing}: no answer from {address} in {seconds:g} s")
            elif request.exception() is not None:
                if address in self.workers:
                    self._count_fault(f"{doing}: {request.exception()!r}")
            elif isinstance(request.result(), (list, tuple)):
                replies[address] = request.result()
        return replies

    async def _flush_workers(self) -> Iterable[Sequence[Sequence[object]]]:
        """What workers have not sent yet."""
        doing = "asking the workers for what they have not sent"
        return (await self._ask_workers({"op": f"{NAME}_flush"}, SECONDS_TO_FLUSH, doing)).values()

    async def _ask(self, worker: str, message: Mapping[str, object]) -> Sequence[Sequence[object]]:
        reply = await self.scheduler.broadcast(msg=message, workers=[worker])
        return cast("Sequence[Sequence[object]]", reply[worker])

    async def _settle(self) -> None:
        """Have measured what the sessions want: as often as the one that wants it most often."""
        wanted = [session.wants for session in self.sessions.values()]
        processes = min(
            (wants["processes"] for wants in wanted if wants.get("processes")), default=0
        )
        stacks = [wants["stacks"] for wants in wanted if wants.get("stacks")]
        settings: dict[str, object] = {
            "processes": processes,
            "stacks": [min(seconds) for seconds in zip(*stacks)],  # noqa: B905
            "waits": any(wants.get("waits") for wants in wanted),
        }
        number = cast("int", self.settings["number"])
        if {**settings, "number": number} == self.settings:
            return
        self.settings = {**settings, "number": number + 1}
        self._stop_usage()
        if processes:
            try:
                self.usage = ProcessUsage()
                self._sampling = asyncio.ensure_future(self._sample_regularly(processes))
            except Exception as error:
                self.fault("sampling the scheduler's process", error)
        message = {"op": f"{NAME}_settings", "settings": self.settings}
        await self._ask_workers(message, SECONDS_TO_SETTLE, "changing what the workers measure")

    def _sampled_processes(self, worker: str, samples: bytes) -> None:
        """Samples of the CPU and memory of a worker's process and of those that it started."""
        number = self.numbers.get(worker, SCHEDULER)
        for session in self.sessions.values():
            if session.wants.get("processes") and session.has_room(len(samples)):
                session.processes.append((number, samples))

    async def _sample_regularly(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, SECONDS_TO_FIRST_SAMPLE))
        while True:
            self._sample_usage()
            await asyncio.sleep(seconds)

    def _sample_usage(self) -> None:
        """Sample the scheduler's own process."""
        if self.usage is None:
            return
        try:
            self._sampled_processes("", self.usage.sample())
        except Exception as error:
            self.fault("sampling the scheduler's process", error)

    def _stop_usage(self) -> None:
        if self.usage is not None:
            self.usage = None
            self._sampling.cancel()

    def _join(self, address: str) -> Worker:
        if address not in self.workers:
            state = self.scheduler.workers.get(address)
            name, host = getattr(state, "name", address), getattr(state, "host", "")
            threads = getattr(state, "nthreads", 0)
            worker = Worker(self.worker_count, address, str(name), host, threads)
            if getattr(getattr(state, "status", None), "name", "") == PAUSED:
                worker.paused_at = worker.joined
            self.worker_count += 1
            self.workers[address] = worker
            self.numbers[address] = worker.number
            self._announce(worker)
            for computation in self.open.values():
                if computation.active:
                    threads = self.scheduler.total_nthreads
                    computation.workers = max(computation.workers, threads)
        return self.workers[address]

    def _worker_said(self, worker: Worker, msg: object) -> None:
        """The scheduler has logged something about a worker: it may have paused, or gone on."""
        if not isinstance(msg, dict) or msg.get("action") != "worker-status-change":
            return
        try:
            if msg.get("status") == PAUSED:
                worker.paused_at = perf_counter()
            else:
                self._record_pause(worker, self.sessions.values())
                worker.paused_at = None
        except Exception as error:
            self.fault("a worker's status", error)

    def _record_pause(self, worker: Worker, sessions: Iterable[Session]) -> None:
        if worker.paused_at is not None:
            pause = (worker.number, PAUSED, worker.paused_at, perf_counter(), NAN)
            for session in sessions:
                if session.wants.get("tasks") and session.has_room(BYTES_PER_KEY):
                    session.events.append(pause)

    def _moved_to_disk(self, address: str, *event: object) -> None:
        """A worker wrote results to its disk, or read them back."""
        for session in self.sessions.values():
            if session.wants.get("tasks") and session.has_room(BYTES_PER_KEY):
                session.events.append((self.numbers.get(address, -1), *event))

    def _time_of_joining(self, address: str) -> float:
        """When a worker that was there before this plugin joined: the scheduler has logged it."""
        now = perf_counter()
        try:
            for when, message in reversed(self._events_of(address)):
                # The last one: a worker may come back at the address of one that left.
                if message.get("action") == "add-worker":
                    return min(now, float(when + now - time()))
        except (AttributeError, LookupError, TypeError, ValueError):
            # The log is not as it was, or is no more.
            return now
        return now

    def _events_of(self, topic: str) -> Sequence[tuple[float, Mapping[str, object]]]:
        """What the scheduler has logged under a topic."""
        return tuple(getattr(self.scheduler, "get_events", lambda _: ())(topic))

    def _announce(self, worker: Worker) -> None:
        for session in self.sessions.values():
            session.workers[worker.number] = worker


NESTED = "Client-worker-"
"""How the ids of clients begin that workers have for their tasks."""
CLIENTS_OF_WORKERS = "worker-get-client"
"""The topic under which workers log that they have one."""
UNRECORDED = "unrecorded"
SAME_COMPUTATION_SECONDS = 0.1
"""If tasks are run again so soon after a computation was done, they belong to it."""


class ComputationCollector(WorkerCollector):
    """Finds the computation that tasks belong to, and the sessions that it belongs to."""

    def _computation_of(self, client: str, span: str) -> Computation:
        """The computation that a graph of a client belongs to, which may start with it."""
        if client.startswith(NESTED):
            # Submitted by a task: it belongs to what that belongs to.
            parent = self._parent_of(client)
            if parent is not None:
                return parent
        current = self.open.get(client)
        if current is not None and current.active:
            return current
        self.count += 1
        name = f"{self.scheduler.id}-{self.name_of_run}-{self.count}"
        new = self.open[client] = Computation(self.count, name, client, span)
        new.workers = self.scheduler.total_nthreads
        new.set_sessions(self._sessions_of(client))
        return new

    def _parent_of(self, client: str) -> Computation | None:
        """The computation of the task that submits with a worker's client.

        Which task that is no one says: of several programs it is one that has a task at a worker
        of that client. None if it is not known: another program is not sent these keys.
        """
        running = [computation for computation in self.open.values() if computation.active]
        active = [
            computation for computation in running if not computation.client.startswith(NESTED)
        ]
        clients = [
            *getattr(self.scheduler, "client_comms", ()),
            *(computation.client for computation in active),
        ]
        programs = {self._program_of(name) for name in clients if not name.startswith(NESTED)}
        if len(programs) > 1:
            addresses = self.workers_of_clients.get(client, ())
            workers = [self.scheduler.workers.get(address) for address in addresses]
            keys = [ts.key for worker in workers for ts in getattr(worker, "processing", ())]
            processing = [self.tasks[key].computation for key in keys if key in self.tasks]
            active = [computation for computation in active if computation in processing]
            programs = {self._program_of(computation.client) for computation in active}
        return (
            max(active, key=lambda computation: computation.start) if len(programs) == 1 else None
        )

    def _program_of(self, client: str) -> object:
        """The program of a client that is recorded: all others are as one."""
        sessions = self._sessions_of(client)
        return sessions[0].wants.get("program") if sessions else UNRECORDED

    def _worker_has_client(self, msg: object) -> None:
        """The scheduler has logged that a task on a worker asked for a client."""
        try:
            if isinstance(msg, dict) and str(msg["client"]).startswith(NESTED):
                self._uses_client(msg["client"], msg["worker"])
        except Exception as error:
            self.fault("a worker's client", error)

    def _uses_client(self, client: str, worker: str) -> None:
        """A worker has a client for its tasks, which may have submitted some by now."""
        self.workers_of_clients.setdefault(client, set()).add(worker)
        nested = self.open.get(client)
        parent = self._parent_of(client) if nested is not None and nested.active else None
        if nested is None or parent is None:
            return
        for task in self.tasks.values():
            if task.computation is nested:
                task.computation = parent
            if task.counted_in is nested:
                task.counted_in = parent
        for name in ("active", "total", "done", "failed"):
            setattr(parent, name, getattr(parent, name) + getattr(nested, name))
            setattr(nested, name, 0)

    def update_graph(
        self,
        scheduler: Scheduler,
        *,
        client: str,
        tasks: Iterable[Hashable],
        annotations: Mapping[str, Mapping[Hashable, Mapping[str, Sequence[str]]]],
        **kwargs: object,
    ) -> None:
        """Tasks were submitted."""
        try:
            spans = self._spans_of(tasks, annotations.get("span", {}))
            computation = self._computation_of(client, next(iter(spans.values()), ""))
            for key in tasks:
                task = self.tasks.get(key)
                if task is None:
                    task = self.tasks[key] = Task(computation)
                    task.span = spans.get(key, "")
                elif not task.computation.active:
                    task.computation = computation
        except Exception as error:
            self.fault("update_graph", error)

    def _spans_of(
        self, tasks: Iterable[Hashable], assigned: Mapping[Hashable, Mapping[str, Sequence[str]]]
    ) -> dict[Hashable, str]:
        """The spans of the tasks of a graph that has just arrived.

        The scheduler has one span for all tasks of a group, as those that are submitted of one
        function: the first one's. Where a group is older than the graph, the graph's is right.
        """
        own = self._span_of_graph()
        if not own and not assigned:
            return {}
        groups = {key: self.scheduler.tasks[key].group for key in tasks}
        arrived = Counter(group.name for group in groups.values())
        is_older = {
            group.name: sum(group.states.values()) > arrived[group.name]
            for group in {group.name: group for group in groups.values()}.values()
        }
        return {
            key: own if is_older[group.name] else span_name(assigned.get(key, {}))
            for key, group in groups.items()
        }

    def _span_of_graph(self) -> str:
        """The name of the span that the last graph was submitted in; empty if there is none."""
        computations = getattr(self.scheduler, "computations", ())
        latest = computations[-1].annotations if computations else {}
        span = latest.get("span")
        if not isinstance(span, dict) or span is self.seen_span:
            return ""
        # It stays there until a graph brings another one: an equal copy shows that it was seen.
        self.seen_span = latest["span"] = dict(span)
        return span_name(span)

    def _count(self, task: Task, is_active: bool, finish: str, now: float) -> None:
        """One more or less of the tasks of a computation has to be run."""
        computation = task.computation
        if is_active:
            if not computation.active:
                computation = self._started(task, now)
            computation.active += 1
        elif computation.active > 1:
            computation.active -= 1
        else:
            computation.active = 0
            computation.cpu = thread_time() - computation.cpu_at_start
        computation.stop = now
        if self.shows_progress:
            self._count_done(task, finish)

    def _started(self, task: Task, now: float) -> Computation:
        """The computation of a task that is to be run, where none of it was to be."""
        computation = task.computation
        is_done = computation.stop != computation.start
        is_latest = self.open.get(computation.client) is computation
        if not is_latest or (is_done and now - computation.stop > SAME_COMPUTATION_SECONDS):
            # Its result was lost, or is asked for again: those of one client never overlap.
            computation = task.computation = self._computation_of(computation.client, "")
        computation.workers = max(computation.workers, self.scheduler.total_nthreads)
        if not computation.active:
            computation.set_sessions(self._sessions_of(computation.client))
            for session in computation.sessions:
                session.computations[computation.number] = computation
        return computation

    def _count_done(self, task: Task, finish: str) -> None:
        """A task is to be run, or is not any more: its result may be there, or it has failed."""
        computation = task.computation
        if finish in ACTIVE:
            if task.counted_in is not computation:
                task.counted_in = computation
                computation.total += 1
            elif task.is_done:
                computation.done -= 1
            task.is_done = False
            return
        if finish == "memory":
            computation.done += 1
            task.is_done = True
        elif finish == "erred":
            computation.failed += 1
        if not computation.active:
            for session in computation.sessions:
                session.news.set()

    def _sessions_of(self, client: str) -> list[Session]:
        return [session for session in self.sessions.values() if session.client == client]

    def _renew_sessions(self) -> None:
        """Sessions have come or gone."""
        wanted = [session.wants for session in self.sessions.values()]
        self.shows_progress = any(wants.get("progress") for wants in wanted)
        self.records_results = any(wants.get("results") for wants in wanted)
        # Tasks that one program records are those of another client to the next one.
        self.is_shared = len({wants.get("program") for wants in wanted if wants.get("tasks")}) > 1
        clients = {session.client for session in self.sessions.values()}
        self.orphans = {
            run: task
            for run, task in self.orphans.items()
            # Where a program is shown what others run, it may be a run of one that has gone.
            if self.is_shared or task.computation.client in clients
        }
        self.attempts = {key: self.attempts.get(key, 0) for key, _ in self.orphans}
        for computation in self.open.values():
            computation.set_sessions(self._sessions_of(computation.client))
            for session in computation.sessions if computation.active else ():
                session.computations[computation.number] = computation


class ResultCollector(ComputationCollector):
    """Collects for how long results were in memory, by client."""

    def _result_came_or_went(self, key: Hashable, task: Task, finish: str) -> None:
        now = perf_counter()
        if finish == "memory":
            state = self.scheduler.tasks[key]
            nbytes, function = float(state.get_nbytes()), name_of_plain(key, state)
            task.cached = Cached(task.computation, nbytes, now, function)
        elif task.cached is not None:
            for session in task.cached.computation.sessions:
                self._record_result(session, key, task.cached, now)
            task.cached = None

    def _record_result(self, session: Session, key: Hashable, cached: Cached, stop: float) -> None:
        """A result was in distributed memory from when it came to `stop`."""
        if not session.wants.get("results"):
            return
        if not session.has_room(RESULT.size + BYTES_PER_KEY + size_of(key)):
            return
        if cached.function:
            session.result_functions[len(session.result_keys)] = cached.function
        session.result_keys.append(key)
        start = max(cached.start, session.start)
        session.results += RESULT.pack(cached.computation.number, cached.nbytes, start, stop)

    def _record_results(self, session: Session) -> None:
        """The results that are there until now."""
        now = perf_counter()
        for key, task in self.tasks.items():
            if task.cached is not None and session in task.cached.computation.sessions:
                self._record_result(session, key, task.cached, now)

    def _recorders_of_dependents(self, key: Hashable) -> Sequence[Session]:
        """Those of the first recorded task that takes a result, which no recorded task made."""
        state = self.scheduler.tasks.get(key)
        for dependent in state.dependents if state is not None else ():
            task = self.tasks.get(dependent.key)
            if task is not None and task.computation.recorders:
                return task.computation.recorders
        return ()


class OthersCollector(ResultCollector):
    """Finds whose tasks are that were submitted before, and collects the times of others."""

    def _adopt(self, client: str) -> None:
        """Tasks that a client submitted before its session, and that have still to be run."""
        state = self.scheduler.clients.get(client)
        active = [ts for ts in getattr(state, "wants_what", ()) if ts.state in ACTIVE]
        seen = set(active)
        while active:
            ts = active.pop()
            if ts.key not in self.tasks:
                self._adopt_one(ts, client, ts.state)
            for other in ts.dependencies:
                if other.state in ACTIVE and other not in seen:
                    seen.add(other)
                    active.append(other)

    def _adopt_running(self) -> None:
        """What workers run for other clients: it takes their time."""
        nested = []
        for worker in self.scheduler.workers.values():
            for ts in list(getattr(worker, "processing", ())):
                if any(wanter.client_key.startswith(NESTED) for wanter in ts.who_wants or ()):
                    nested.append(ts)
                elif ts.key not in self.tasks:
                    self._adopt_with_dependents(ts, ts.state)
        # When the tasks are known that may have submitted them.
        for ts in nested:
            if ts.key not in self.tasks:
                self._adopt_with_dependents(ts, ts.state)

    def _task_of_others(self, key: Hashable, start: str, finish: str) -> Task | None:
        """A task of which no graph was seen, if it has to be run."""
        if finish not in ACTIVE:
            return None
        self._adopt_with_dependents(self.scheduler.tasks[key], start)
        return self.tasks[key]

    def _adopt_with_dependents(self, ts: TaskState, state: str) -> None:
        """A task of the client that waits for it, or for what needs it."""
        path, client = [ts], ""
        while not path[-1].who_wants:
            after = next(
                (dependent for dependent in path[-1].dependents if dependent.state in ACTIVE), None
            )
            if after is None:
                break
            if after.key in self.tasks:
                client = self.tasks[after.key].computation.client
                break
            path.append(after)
        else:
            clients = [wanter.client_key for wanter in path[-1].who_wants or ()]
            client = next((name for name in clients if self._sessions_of(name)), clients[0])
        for task in path[1:]:
            # Known from now on: the next task has not to look as far.
            self._adopt_one(task, client, task.state)
        self._adopt_one(ts, client, state)

    def _adopt_one(self, ts: TaskState, client: str, state: str) -> None:
        task = self.tasks[ts.key] = Task(self._computation_of(client, ""))
        now = perf_counter()
        if state == "processing":
            self._sent(ts.key, task, now)
        elif state == QUEUED:
            task.queued_at = now
        if state in ACTIVE:
            self._count(task, True, state, now)

    def _sent(self, key: Hashable, task: Task, now: float) -> None:
        ts = self.scheduler.tasks[key]
        # The scheduler may have forgotten the task of a run that goes on.
        task.attempt = (task.attempt or self.attempts.get(key, 0)) + 1
        task.sent = now
        task.queued = 0.0 if task.queued_at is None else now - task.queued_at
        task.queued_at = None
        task.worker = ts.processing_on.address if ts.processing_on else ""
        task.is_out = True

    def _record_for_others(
        self, row: bytes, worker: str, recorders: Sequence[Session], measured: int
    ) -> None:
        """A task that a program does not record: when its worker was busy, and nothing else."""
        start, stop, _, seceded, *_ = WORKER_ROW.unpack(row)
        stop = stop if isnan(seceded) else seceded
        if isnan(start + stop):
            return
        if not measured:
            start, stop = self._at_worker(worker, start), self._at_worker(worker, stop)
        programs = {session.wants.get("program") for session in recorders}
        for session in self._one_of_each_block():
            if session.wants.get("program") not in programs:
                self._add_to_others(session, worker, start, stop)

    def _record_others_running(self, session: Session) -> None:
        """What workers run for other programs as a session ends."""
        block = session.wants.get("block")
        if block and sum(other.wants.get("block") == block for other in self.sessions.values()) > 1:
            # The last session of the block will say so.
            return
        now, program = perf_counter(), session.wants.get("program")
        for key, task in self.tasks.items():
            recorders = task.computation.recorders
            if not task.is_out or any(
                recorder.wants.get("program") == program for recorder in recorders
            ):
                continue
            if key in self.running:
                row, _, until = self.running[key]
                start = WORKER_ROW.unpack(row)[0]
            elif self._is_executing(key, task.worker):
                # It ran before its worker measured.
                start, until = (self._at_worker(task.worker, time) for time in (task.sent, now))
            else:
                continue
            self._add_to_others(session, task.worker, start, until)

    def _add_to_others(self, session: Session, worker: str, start: float, stop: float) -> None:
        if session.has_room(3 * 8):
            session.others.extend((self.numbers.get(worker, -1), start, stop))

    def _leave_out_nested(self) -> None:
        """A task has ended that one of several programs submitted from a task."""
        for session in self._one_of_each_block():
            session.unmeasured[NESTED] = session.unmeasured.get(NESTED, 0) + 1

    def _one_of_each_block(self) -> Iterable[Session]:
        """Sessions that want tasks: what of others concerns a block is in its recording once."""
        session_of: dict[object, Session] = {}
        for session in self.sessions.values():
            if session.wants.get("tasks"):
                session_of.setdefault(session.wants.get("block", session), session)
        return session_of.values()

    def _is_executing(self, key: Hashable, worker: str) -> bool:
        """Whether a worker has said, as it does about once a second, that it runs a task."""
        state = self.scheduler.workers.get(worker)
        return self.scheduler.tasks[key] in getattr(state, "executing", ())

    def _at_worker(self, worker: str, time: float) -> float:
        """A time of this process's clock by a worker's, as those are that workers measure."""
        state = self.workers.get(worker)
        if state is None or not state.clock:
            return time
        _, offset, _ = cast("Sequence[float]", state.clock[-1])
        return time - offset


class RunPacker(OthersCollector):
    """Packs rows of runs."""

    def _record(
        self,
        key: Hashable,
        task: Task,
        row: bytes,
        end: End,
        recorders: Sequence[Session] | None = None,
    ) -> None:
        """Record a run that ended in another way than with its result, for some sessions or all."""
        outcome, worker, time, measured, error, metrics, sampled = end
        has_details = error or metrics or any(sampled) or task.span != task.computation.span
        details = (error, metrics, task.span, *sampled) if has_details else None
        self._add(
            key, task, row, (outcome, worker, time, measured, 0.0), details, recorders=recorders
        )

    def _add(
        self,
        key: Hashable,
        task: Task,
        row: bytes,
        end: tuple[int, str, float, int, float],
        details: RunDetails | None,
        *,
        recorders: Sequence[Session] | None = None,
    ) -> None:
        """Pack a run for every session of its client, or for `recorders`, with how it ended."""
        number = self.row = self.row + 1
        outcome, worker, time, measured, nbytes = end  # Unlike a named one it takes no time.
        if outcome == OK:
            task.row = number
        computation = task.computation
        if recorders is None:
            recorders = computation.recorders
        if self.is_shared or not recorders:
            self._record_for_others(row, worker, recorders, measured)
            if computation.client.startswith(NESTED):
                self._leave_out_nested()
            if not recorders:
                return
        if computation.client_number < 0:
            self._number_client(computation)
        state = self.scheduler.tasks.get(key)
        depends_on = self._rows_of(state.dependencies) if state and state.dependencies else ()
        packed = row + RUN.pack(
            task.sent,
            time,
            task.queued,
            nbytes,
            self.numbers.get(worker, -1),
            computation.number,
            task.attempt,
            computation.client_number,
            len(depends_on),
            outcome,
            worker != task.worker,
            measured,
        )
        for session in recorders:
            session.add_run(number, key, packed, depends_on, details)
        function = name_of_plain(key, state)
        for session in recorders if function else ():
            session.add_function(number, function)

    def _number_client(self, computation: Computation) -> None:
        """Of its first run: the ids of clients of whom nothing is recorded are not sent."""
        numbers = self.clients
        computation.client_number = numbers.setdefault(computation.client, len(numbers))

    def _rows_of(self, dependencies: Iterable[TaskState]) -> list[int]:
        tasks = (self.tasks.get(other.key) for other in dependencies)
        return [task.row for task in tasks if task is not None and task.row >= 0]

    def _add_seconds(self, computation: Computation, row: bytes) -> None:
        """Add up what tasks took, for progress bars."""
        start, stop, cpu, *_ = WORKER_ROW.unpack(row)
        computation.seconds += stop - start
        computation.cpu_of_tasks += cpu


MOST_ORPHANS = 10_000
"""Runs that were cancelled and of whose end nothing was heard; each takes about half a kilobyte."""
NO_ROW = -1
"""In place of the number of a run, of what none that is recorded made."""
UNHEARD = "cancelled"
"""By what those beyond them are counted, for a notice."""


class RunCollector(RunPacker):
    """Collects the rows of runs, by client."""

    def _came_back(
        self, key: Hashable, task: Task, finish: str, now: float, facts: Mapping[str, Any]
    ) -> None:
        """A task was done, or failed, or its worker has left, or no one wants it any more."""
        ts = self.scheduler.tasks[key]
        metadata = ts.metadata
        packed = metadata.pop(NAME, b"") if metadata else b""
        if packed and not metadata:
            ts.metadata = None
        if not task.is_out:
            return
        worker = facts.get("worker") or task.worker
        computation = task.computation
        if (
            finish == "memory"
            and type(packed) is bytes
            and packed
            and RUN_ID.unpack_from(packed, RUN_ID_AT)[0] == ts.run_id
            and computation.recorders
            and not self.is_shared
            and task.span == computation.span
            # As `name_of_plain` has it: its key names its function.
            and (type(key) is tuple or (type(key) is str and "-" in key))
        ):
            # Most have nothing but their numbers, which are packed later.
            self.row = task.row = number = self.row + 1
            if computation.client_number < 0:
                self._number_client(computation)
            if self.shows_progress:
                self._add_seconds(computation, packed)
            depends_on = self._rows_of(ts.dependencies) if ts.dependencies else ()
            run = (
                number,
                key,
                packed,
                task.sent,
                now,
                task.queued,
                facts.get("nbytes") or 0,
                self.numbers.get(worker, -1),
                computation.number,
                task.attempt,
                computation.client_number,
                worker != task.worker,
                depends_on,
            )
            for session in computation.recorders:
                session.add_ended(run)
        elif finish == "memory":
            self._add_result(key, task, packed, now, facts)
        elif finish == "erred":
            row = unmeasured_row(facts.get("startstops"))
            outcome = FAILED if worker in self.scheduler.workers else UNFINISHED
            self._record(key, task, row, End(outcome, worker, now, 0))
        elif worker not in self.scheduler.workers:
            self._record(key, task, NOT_STARTED, End(UNFINISHED, worker, now, 0))
        else:
            # It may still run there: the worker says how it ends.
            self._await_end(key, ts.run_id, task)
        task.is_out = False

    def _add_result(
        self, key: Hashable, task: Task, sent: Any, now: float, facts: Mapping[str, Any]
    ) -> None:
        """Add a run that brought its result, and has more than its numbers, or was not measured."""
        metrics: Sequence[object] = ()
        sampled, measured, packed = NO_SAMPLES, 1, sent
        if type(sent) is not bytes:
            packed, metrics, *more = sent
            sampled = cast("Sampled", more or NO_SAMPLES)
        run_id = self.scheduler.tasks[key].run_id
        if not packed or RUN_ID.unpack_from(packed, RUN_ID_AT)[0] != run_id:
            # Of a run before this one, or of one that was not measured.
            packed, metrics, measured = unmeasured_row(facts.get("startstops")), (), 0
            sampled = NO_SAMPLES
        elif self.shows_progress:
            self._add_seconds(task.computation, packed)
        details = None
        if metrics or sampled is not NO_SAMPLES or task.span != task.computation.span:
            details = "", metrics, task.span, *sampled
        worker = facts.get("worker") or task.worker
        end = OK, worker, now, measured, facts.get("nbytes") or 0
        self._add(key, task, packed, end, details)

    def _await_end(self, key: Hashable, run: int, task: Task) -> None:
        """Hold a run that was cancelled until its worker says how it ended: not all workers do."""
        if not (task.computation.recorders or self.is_shared):
            return
        self.orphans[key, run] = task.copy()
        self.attempts[key] = task.attempt
        if len(self.orphans) > MOST_ORPHANS:
            # The oldest: if its worker says something now, it is not heard.
            name, oldest = next(iter(self.orphans.items()))
            self._orphan(*name)
            self._record_orphans([(name, oldest)])
            for session in oldest.computation.recorders:
                session.unmeasured[UNHEARD] = session.unmeasured.get(UNHEARD, 0) + 1

    def _orphan(self, key: Hashable, run: int) -> Task | None:
        """Take out a run that was cancelled, if its end was not heard."""
        task = self.orphans.pop((key, run), None)
        if task is not None and self.attempts.get(key) == task.attempt:
            del self.attempts[key]
        return task

    def _forget_rows(self) -> None:
        """Take out of the scheduler's state what was measured of tasks that are no session's."""
        for ts in self.scheduler.tasks.values():
            if ts.metadata and NAME in ts.metadata:
                del ts.metadata[NAME]
                ts.metadata = ts.metadata or None

    def _ended_elsewhere(
        self, key: Hashable, run_id: int, worker: str, outcome: int, *measured: object
    ) -> None:
        """A run that brought no result: it failed, was rescheduled or was cancelled."""
        packed, error, metrics = cast("tuple[bytes, str, Sequence[object]]", measured[:3])
        sampled = cast("Sampled", measured[3:] or NO_SAMPLES)
        task = self._orphan(key, run_id)
        if task is None:
            task = self.tasks.get(key)
            # A task that is stolen is released, too, and runs elsewhere.
            if task is None or not task.is_out or outcome == CANCELLED:
                return
            state = self.scheduler.tasks.get(key)
            if state is not None and run_id != state.run_id:
                # Of a run before this one, whose end is known.
                return
        is_measured = int(bool(packed))
        end = End(outcome, worker, perf_counter(), is_measured, error, metrics, sampled)
        self._record(key, task, packed or NOT_STARTED, end)
        task.is_out = False

    def _record_running(self, session: Session) -> int:
        """Record the tasks of a session that ends, and that are out; how many these are.

        Other sessions of its client go on: they will have these runs when these end.
        """
        now, running = perf_counter(), 0
        ending = [session] if session.wants.get("tasks") else []
        client = session.client
        of_client = [
            orphan for orphan in self.orphans.items() if orphan[1].computation.client == client
        ]
        self._record_orphans(of_client, ending)
        for key, task in self.tasks.items():
            if task.is_out and task.computation.client == client:
                running += 1
                row, sampled, _ = self.running.get(key, (b"", NO_SAMPLES, NAN))
                end = End(UNFINISHED, task.worker, NAN, int(bool(row)), "", (), sampled)
                self._record(key, task, row or NOT_STARTED, end, ending)
        if ending:
            self._record_others_running(session)
        # The next session that ends asks the workers again.
        self.running.clear()
        for computation in session.computations.values():
            if computation.active:
                computation.stop = now
        return running

    def _record_orphans(
        self,
        orphans: Iterable[tuple[tuple[Hashable, int], Task]],
        recorders: Sequence[Session] | None = None,
    ) -> None:
        """Record runs that were cancelled and of whose end nothing was heard."""
        for (key, _), task in orphans:
            self._record(key, task, NOT_STARTED, End(CANCELLED, task.worker, NAN, 0), recorders)

    def _is_running(
        self, key: Hashable, run: int, bounds: Sequence[float], thread: int, *sampled: object
    ) -> None:
        start, until = bounds
        row = WORKER_ROW.pack(start, NAN, NAN, NAN, NAN, thread, run)
        self.running[key] = row, cast("Sampled", sampled or NO_SAMPLES), until

    def _transferred(self, key: Hashable, source: str, worker: str, *measured: float) -> None:
        task = self.tasks.get(key)
        row = NO_ROW if task is None else task.row
        sessions: Sequence[Session] = () if task is None else task.computation.recorders
        if row < 0 and not sessions:
            # It was there before, or was scattered.
            sessions = self._recorders_of_dependents(key)
        source_number, number = self.numbers.get(source, -1), self.numbers.get(worker, -1)
        for session in sessions:
            if session.has_room(BYTES_PER_KEY):
                session.transfers.append((row, source_number, number, *measured))

    def _is_unmeasured(self, key: Hashable, kind: str) -> None:
        """A worker runs something that it cannot measure, or that has parts which are no tasks."""
        task = self.tasks.get(key)
        for session in () if task is None else task.computation.sessions:
            session.unmeasured[kind] = session.unmeasured.get(kind, 0) + 1


OPERATIONS = ("attach", "ready", "pull", "detach", "left", "clock", "worker")
SECONDS_TO_STOP_WORKERS = 1.0
SECONDS_TO_LEAVE = 1.0
SECONDS_TO_REPLY = 0.05


class Leaving(NamedTuple):
    """The client of a session that has ended, and the last reply to it."""

    client: str
    reply: asyncio.Future[dict[str, object]]


class LeavingCollector(RunCollector):
    """Ends sessions, and removes the plugins.

    Attributes
    ----------
    removing : asyncio.Lock
        Held while plugins are removed: a session that comes meanwhile waits for that.
    leaving : dict
        The sessions that have ended and have not said that they got their last reply.
    is_closing : bool
        Whether the scheduler closes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.removing = asyncio.Lock()
        self.leaving: dict[str, Leaving] = {}
        self.is_closing = False

    def stop(self) -> None:
        """Be there for clients and workers no more."""
        for name in OPERATIONS:
            self.scheduler.handlers.pop(f"{NAME}_{name}", None)
        forget_handlers()
        self._stop_usage()

    async def before_close(self) -> None:
        """The scheduler closes: clients get the last rows, and leave, if they ask in time."""
        self.is_closing = True
        for session in self.sessions.values():
            session.news.set()
        start = perf_counter()
        while self.sessions and perf_counter() - start < SECONDS_TO_LEAVE:
            await asyncio.sleep(SECONDS_TO_REPLY / 5)
        await asyncio.sleep(SECONDS_TO_REPLY)

    async def close(self) -> None:
        """The scheduler closes, with what is there still."""
        self.stop()

    async def _end_session(self, name: str) -> None:
        """Forget a session, whatever fails."""
        self.sessions.pop(name, None)
        try:
            self._renew_sessions()
            if self.sessions:
                await self._settle()
        except Exception as error:
            self.fault("ending a session", error)

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """A client that goes without a word, as one that was killed, ends its sessions."""
        self.workers_of_clients.pop(client, None)
        ended = [name for name, session in self.sessions.items() if session.client == client]
        for name in ended:
            del self.sessions[name]
        unheard = [name for name, leaving in self.leaving.items() if leaving.client == client]
        for name in unheard:
            del self.leaving[name]
        self._renew_sessions()
        if ended or unheard:
            change = self._settle() if self.sessions else self._remove_plugins()
            self._change = asyncio.ensure_future(change)

    async def _remove_plugins(self) -> None:
        """Take all off the cluster, unless a session has come meanwhile."""
        scheduler = self.scheduler
        async with self.removing:
            if scheduler.plugins.get(NAME) is not self or self.sessions or self.leaving:
                return
            await self._remove_plugins_of_workers()
            if self.sessions or self.leaving:
                return
            # Nothing comes between these.
            try:
                self.stop()
            except Exception as error:
                self.fault("stopping", error)
            scheduler.remove_plugin(NAME)
            getattr(getattr(scheduler, "_broker", None), "_topics", {}).pop(NAME, None)
            # Of tasks of others, and those done while the workers' plugins were removed.
            self._forget_rows()

    async def _remove_plugins_of_workers(self) -> None:
        scheduler = self.scheduler
        if NAME not in scheduler.worker_plugins:
            return
        removal = asyncio.ensure_future(scheduler.unregister_worker_plugin(None, NAME))
        removal.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._removal = removal
        # Where one does not answer it goes on: the worker removes it when it does.
        await asyncio.wait([removal], timeout=SECONDS_TO_STOP_WORKERS)
        error = removal.exception() if removal.done() and not removal.cancelled() else None
        if isinstance(error, Exception):
            self.fault("removing the workers' plugins", error)
        for worker in self.workers.values():
            # It measures no more, until it says so again.
            worker.facts = {}


SECONDS_TO_BE_READY = 1.0


class DaskDiagSchedulerPlugin(LeavingCollector, SchedulerPlugin):
    """What clients and workers ask for, and what the scheduler reports."""

    name = NAME
    idempotent = True

    def __init__(self) -> None:
        super().__init__()
        self.messages: dict[object, Callable[..., None]] = {
            "run": self._ended_elsewhere,
            "transfer": self._transferred,
            "fault": self._count_fault,
            "running": self._is_running,
            "processes": self._sampled_processes,
            "disk": self._moved_to_disk,
            "unmeasured": self._is_unmeasured,
        }

    async def start(self, scheduler: Scheduler) -> None:
        """Be there for clients and workers."""
        self.scheduler = scheduler
        self.host = host_id()
        for name in OPERATIONS:
            scheduler.handlers[f"{NAME}_{name}"] = getattr(self, f"handle_{name}")
        for address in scheduler.workers:
            try:
                self._join(address).joined = self._time_of_joining(address)
            except Exception as error:
                self.fault("start", error)
        try:
            for _, message in self._events_of(CLIENTS_OF_WORKERS):
                self._worker_has_client(message)
        except Exception as error:
            self.fault("start", error)

    async def handle_attach(self, session: str, client: str, wants: Wants) -> dict[str, object]:
        """Start to collect the tasks of a client, those included that it has submitted already."""
        new = self.sessions[session] = Session(client, wants)
        async with self.removing:
            # The plugins of the last session are not removed in the time of this one.
            self._renew_sessions()
        new.workers = {worker.number: worker for worker in self.workers.values()}
        try:
            self._adopt(client)
            self._adopt_running()
        except Exception as error:
            self.fault("adopting tasks", error)
        await self._settle()
        where = {"address": self.scheduler.address, "host": self.host, "pid": os.getpid()}
        return {"scheduler": self.scheduler.id, "plugin": self.name_of_run, **where}

    async def handle_ready(self) -> None:
        """Answered when workers have said whether they measure: another client may have asked."""
        start = perf_counter()
        while not all(worker.facts for worker in self.workers.values()):
            if perf_counter() - start > SECONDS_TO_BE_READY:
                return
            await asyncio.sleep(0.005)

    async def handle_pull(
        self, session: str, received: int, wait: float = 0.0
    ) -> dict[str, object]:
        """All batches after the last one that the client has received.

        It waits so many seconds, unless a computation ends before.
        """
        collected = self.sessions.get(session)
        if collected is None:
            return {"status": "unknown"}
        if wait and not self.is_closing:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(collected.news.wait(), wait)
            if collected.is_ending:
                # Who asked may not wait any more: leaving brings what there is.
                return {"status": "OK"}
        collected.news.clear()
        collected.acknowledge(received)
        collected.seal()
        return {
            "status": "OK",
            "closing": self.is_closing,
            "batches": [batch.content for batch in collected.sealed],
            "clients": list(self.clients),
            "dropped": collected.dropped,
            "unmeasured": collected.unmeasured,
            "faults": self.faults,
        }

    async def handle_detach(self, session: str, received: int) -> dict[str, object]:
        """The last batches, with what still runs; who does not get them may ask again."""
        last = self.leaving.get(session)
        if last is None or (last.reply.done() and last.reply.exception()):
            client = self.sessions[session].client if session in self.sessions else ""
            reply = asyncio.ensure_future(self._last_of(session, received))
            last = self.leaving[session] = Leaving(client, reply)
        return await asyncio.shield(last.reply)

    async def _last_of(self, name: str, received: int) -> dict[str, object]:
        session = self.sessions.get(name)
        if session is not None and not session.is_ending:
            session.is_ending = True
            session.news.set()
            try:
                self._sample_usage()
                for messages in await self._flush_workers():
                    self.log_event(NAME, messages)
                session.running = self._record_running(session)
                self._record_results(session)
                for worker in self.workers.values():
                    self._record_pause(worker, [session])
            except Exception as error:
                self.fault("recording what still runs", error)
        reply = await self.handle_pull(name, received)
        await self._end_session(name)
        return {**reply, "running": session.running if session else 0}

    async def handle_left(self, session: str) -> None:
        """A client has its last batches; the last session takes the plugins with it."""
        self.leaving.pop(session, None)
        if not self.is_closing:
            await self._remove_plugins()

    async def handle_clock(self) -> dict[str, object]:
        """What time it is here."""
        return {"host": self.host, "time": perf_counter()}

    async def handle_worker(self, address: str, facts: dict[str, object]) -> dict[str, object]:
        """What a worker says of itself; it is answered what to measure."""
        worker = self.workers.get(address) or self._join(address)
        clock = facts.pop("clock", None)
        worker.clock = thinned(
            [*worker.clock, *(clock if isinstance(clock, (list, tuple)) else ())]
        )
        worker.facts.update(facts)
        self._announce(worker)
        return {"settings": self.settings, "host": self.host}

    def transition(  # noqa: C901 - a call more would take longer than most of its branches
        self,
        key: Hashable,
        start: str,
        finish: str,
        *args: object,
        stimulus_id: str = "",
        **kwargs: Any,
    ) -> None:
        """The state of a task has changed. This is called several times for each task."""
        if start == "memory" and not self.records_results:
            # The scheduler forgets a result, which is no news of a run.
            if finish == "forgotten":
                self.tasks.pop(key, None)
            return
        try:
            if stimulus_id != self.stimulus:
                # What follows from one message happens when that has arrived.
                self.stimulus, self.now = stimulus_id, perf_counter()
            now = self.now
            task = self.tasks.get(key) or self._task_of_others(key, start, finish)
            if task is None:
                return
            if finish == "processing":
                self._sent(key, task, now)
            elif start == "processing":
                self._came_back(key, task, finish, now, kwargs)
            elif finish == "forgotten":
                del self.tasks[key]
            else:
                # Where no worker can run it, it could not have been sent.
                task.queued_at = now if finish == QUEUED else None
            if self.records_results:
                self._result_came_or_went(key, task, finish)
            is_active = finish in ACTIVE
            if is_active is not (start in ACTIVE):
                self._count(task, is_active, finish, now)
        except Exception as error:
            self.fault("transition", error)

    def log_event(self, topic: str, msg: Sequence[Sequence[object]]) -> None:
        """Something was logged: by a worker, if it is about our topic."""
        if topic in self.workers:
            self._worker_said(self.workers[topic], msg)
        elif topic == CLIENTS_OF_WORKERS:
            self._worker_has_client(msg)
        if topic != NAME:
            return
        try:
            for kind, *values in msg:
                self.messages[kind](*values)
        except Exception as error:
            self.fault("log_event", error)
        # The scheduler would remember 100,000 messages.
        truncate = getattr(getattr(self.scheduler, "_broker", None), "truncate", None)
        if truncate is not None:
            truncate(NAME)

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """A worker has joined."""
        try:
            self._join(worker)
        except Exception as error:
            self.fault("add_worker", error)

    def remove_worker(self, scheduler: Scheduler, worker: str, **kwargs: object) -> None:
        """A worker has left, or is lost."""
        try:
            gone = self.workers.pop(worker, None)
            if gone is not None:
                self._record_pause(gone, self.sessions.values())
                gone.left = perf_counter()
                gone.reason = reason_of(str(kwargs.get("stimulus_id", "")))
                self._announce(gone)
        except Exception as error:
            self.fault("remove_worker", error)

    def restart(self, scheduler: Scheduler) -> None:
        """All tasks are forgotten, and all workers replaced."""
        for computation in self.open.values():
            computation.active, computation.stop = 0, perf_counter()
        self._record_orphans(self.orphans.items())
        self.orphans.clear()
        self.attempts.clear()
        for session in self.sessions.values():
            self._record_results(session)
        self.tasks.clear()
