"""The scheduler's side of capture on a cluster: it collects rows of tasks until clients pull them.

It is shipped as source text, since the scheduler may lack this package or run another Python: it
imports nothing of the package. What is done here is done for every task of the cluster, on the
scheduler's event loop: numbers are packed, and an object per task lives only as long as the
scheduler's own.
"""

from __future__ import annotations

import asyncio
import os
import struct
from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from math import isnan
from time import perf_counter, process_time, thread_time
from typing import TYPE_CHECKING, NamedTuple, TypedDict, cast

from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.metrics import time

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler

__all__ = ["DaskDiagSchedulerPlugin"]

NAME = "dask_diag"
"""Of the plugins, of the topic, and of the entry in a task's metadata."""
OPERATIONS = ("attach", "pull", "detach", "clock", "worker")
LIMIT_BYTES = 64_000_000
"""What is collected for one client at most, until it pulls."""
BYTES_PER_KEY = 100
SECONDS_TO_STOP_WORKERS = 5.0
SECONDS_TO_FLUSH = 5.0
SECONDS_TO_SETTLE = 5.0

WORKER_ROW = struct.Struct("<dddddqq")
"""Start, stop, cpu, seceded, CPU after seceding, thread, run id; clock of the worker."""
RUN_ID = struct.Struct("<q")
RUN_ID_AT = WORKER_ROW.size - RUN_ID.size
RUN = struct.Struct("<dddd" + "iiiii" + "BBB")
"""What follows a worker's row: submitted, collected, queued, nbytes; worker, computation, attempt,
client, dependencies; outcome, stolen, measured."""
PROCESS = struct.Struct("<ddddd")
"""A sample of a process: time, pid, whether it is a child of a worker; memory, % CPU of a core."""
SCHEDULER = -1
"""In place of a worker's number."""
SECONDS_TO_FIRST_SAMPLE = 0.01
OUTCOMES = ("ok", "failed", "unfinished", "cancelled", "rescheduled")
OK, FAILED, UNFINISHED, CANCELLED, RESCHEDULED = range(5)
ACTIVE = frozenset(("waiting", "processing", "queued", "no-worker"))
PAUSED = "paused"
QUEUES = frozenset(("queued", "no-worker"))
SAME_COMPUTATION_SECONDS = 0.1
"""If tasks are run again so soon after a computation was done, they belong to it."""
_NAN = float("nan")


class Computation:
    """The graphs of one client, from when it had nothing to do until then again.

    `recorders` are those of its `sessions` that want rows of tasks. Of its `total` tasks those are
    `done` whose result is there; `seconds` and `cpu_of_tasks` are what these took.
    """

    __slots__ = (
        *("active", "client", "cpu", "cpu_at_start", "cpu_of_tasks", "done", "failed"),
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


class Wants(TypedDict, total=False):
    """What a session collects: numbers are seconds between samples; of stacks, and of a cycle."""

    tasks: bool
    waits: bool
    stacks: Sequence[float]
    progress: bool
    processes: float


class Interval(TypedDict):
    """What a worker did from one time of day to another."""

    action: str
    start: float
    stop: float


class Transition(TypedDict, total=False):
    """Of what the scheduler says of a change of state, what is used here."""

    worker: str
    nbytes: int
    startstops: Sequence[Interval]


Sampled = tuple[Sequence[object], bytes]
"""What a run waited for, and its stacks."""
NOT_SAMPLED: Sampled = (), b""


class End(NamedTuple):
    """How a run ended."""

    outcome: int
    worker: str
    time: float
    measured: int = 1
    nbytes: float = 0.0
    error: str = ""
    metrics: Sequence[object] = ()
    sampled: Sampled = NOT_SAMPLED


class Task:
    """What is known of a task beside what the scheduler knows, and of its current run."""

    __slots__ = (
        *("attempt", "computation", "counted_in", "is_done", "is_out", "queued", "queued_at"),
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
        self.counted_in: Computation | None = None
        self.is_done = False
        self.span = computation.span

    def copy(self) -> Task:
        """The same, of a run that no one waits for, while the task may be run again."""
        copy = Task(self.computation)
        for name in self.__slots__:
            setattr(copy, name, getattr(self, name))
        return copy


class Batch(NamedTuple):
    """What was collected up to a pull."""

    number: int
    size: int
    content: dict[str, object]


class Session:
    """What was collected for one client and not yet pulled."""

    def __init__(self, client: str, wants: Wants) -> None:
        self.client = client
        self.wants = wants
        self.news = asyncio.Event()
        self.number = 0
        self.sealed: list[Batch] = []
        self.sealed_size = 0
        self.dropped = 0
        self.unmeasured: dict[str, int] = {}
        self.computations: dict[int, Computation] = {}
        self.workers: dict[int, Worker] = {}
        self.clear()

    def clear(self) -> None:
        """Start a batch."""
        self.ids, self.rows, self.depends_on = array("q"), bytearray(), array("q")
        self.keys: list[Hashable] = []
        self.details: dict[int, tuple[object, ...]] = {}
        self.transfers: list[tuple[object, ...]] = []
        self.others = array("d")
        self.processes: list[tuple[int, bytes]] = []
        self.events: list[tuple[object, ...]] = []
        self.size = 0

    def has_room(self, size: int) -> bool:
        """Whether so many bytes fit in; they do not if the client does not pull."""
        if self.size + self.sealed_size + size > LIMIT_BYTES:
            return False
        self.size += size
        return True

    def seal(self) -> None:
        """What was collected is a batch, which is there until it is acknowledged."""
        self.number += 1
        content = {
            "ids": self.ids.tobytes(),
            "rows": bytes(self.rows),
            "keys": self.keys,
            "depends_on": self.depends_on.tobytes(),
            "details": list(self.details.items()),
            "transfers": self.transfers,
            "others": self.others.tobytes(),
            "processes": self.processes,
            "events": self.events,
            "computations": [each.described() for each in self.computations.values()],
            "workers": [worker.described() for worker in self.workers.values()],
        }
        self.sealed.append(Batch(self.number, self.size, {"number": self.number, **content}))
        self.sealed_size += self.size
        self.workers = {}
        # What still runs will have another stop.
        self.computations = {n: each for n, each in self.computations.items() if each.active}
        self.clear()

    def acknowledge(self, number: int) -> None:
        """Forget the batches that the client has."""
        self.sealed = [batch for batch in self.sealed if batch.number > number]
        self.sealed_size = sum(batch.size for batch in self.sealed)


class DaskDiagSchedulerPlugin(SchedulerPlugin):
    """Collects the rows of tasks, by client."""

    name = NAME
    idempotent = True

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.tasks: dict[Hashable, Task] = {}
        self.orphans: dict[tuple[Hashable, int], Task] = {}
        self.running: dict[Hashable, tuple[bytes, Sampled]] = {}
        self.stimulus = ""
        self.now = 0.0
        self.open: dict[str, Computation] = {}
        self.name_of_run = os.urandom(4).hex()
        self.count = 0
        self.row = 0
        self.workers: dict[str, Worker] = {}
        self.numbers: dict[str, int] = {}
        self.worker_count = 0
        self.clients: dict[str, int] = {}
        self.faults: dict[str, int] = {}
        self.unattributed = 0
        self.shows_progress = False
        self.settings: dict[str, object] = {"number": 0}
        self.usage: ProcessUsage | None = None
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
            self._join(address).joined = self._time_of_joining(address)

    def stop(self) -> None:
        """Undo `start`."""
        self._stop_usage()
        for name in OPERATIONS:
            self.scheduler.handlers.pop(f"{NAME}_{name}", None)

    def fault(self, doing: str, error: BaseException) -> None:
        """Count a fault of this plugin: the scheduler would log it where no one looks."""
        self._count_fault(f"{doing}: {type(error).__name__}: {error}")

    def _count_fault(self, text: str) -> None:
        self.faults[text] = self.faults.get(text, 0) + 1

    # What clients and workers ask for.

    async def handle_attach(self, session: str, client: str, wants: Wants) -> dict[str, object]:
        """Start to collect the tasks of a client, those included that it has submitted already."""
        new = self.sessions[session] = Session(client, wants)
        self._renew_sessions()
        new.workers = {worker.number: worker for worker in self.workers.values()}
        try:
            self._adopt(client)
        except Exception as error:
            self.fault("adopting tasks", error)
        await self._settle()
        return {
            "scheduler": self.scheduler.id,
            "address": self.scheduler.address,
            "host": self.host,
            "pid": os.getpid(),
            "time": perf_counter(),
        }

    async def handle_pull(
        self, session: str, received: int, wait: float = 0.0
    ) -> dict[str, object]:
        """All batches after the last one that the client has received.

        It waits so many seconds, unless a computation ends before.
        """
        collected = self.sessions.get(session)
        if collected is None:
            return {"status": "unknown"}
        if wait:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(collected.news.wait(), wait)
        collected.news.clear()
        collected.acknowledge(received)
        collected.seal()
        return {
            "status": "OK",
            "batches": [batch.content for batch in collected.sealed],
            "clients": list(self.clients),
            "dropped": collected.dropped,
            "unmeasured": collected.unmeasured,
            "unattributed": self.unattributed,
            "faults": self.faults,
            "now": perf_counter(),
        }

    async def handle_detach(self, session: str, received: int) -> dict[str, object]:
        """The last batches, with what still runs; the last session takes the plugins with it."""
        running = 0
        if session in self.sessions:
            # Who waits for news need not wait any more.
            self.sessions[session].news.set()
            self._sample_usage()
            await self._flush_workers()
            try:
                running = self._record_running(self.sessions[session])
                for worker in self.workers.values():
                    self._record_pause(worker, [self.sessions[session]])
            except Exception as error:
                self.fault("recording what still runs", error)
        reply = await self.handle_pull(session, received)
        self.sessions.pop(session, None)
        self._renew_sessions()
        if self.sessions:
            await self._settle()
        else:
            await self._remove_plugins()
        return {**reply, "running": running}

    async def handle_clock(self) -> dict[str, object]:
        """What time it is here."""
        return {"host": self.host, "time": perf_counter()}

    async def handle_worker(self, address: str, facts: dict[str, object]) -> dict[str, object]:
        """What a worker says of itself; it is answered what to measure."""
        worker = self.workers.get(address) or self._join(address)
        clock = facts.pop("clock", None)
        worker.clock = [*worker.clock, *(clock if isinstance(clock, (list, tuple)) else ())]
        worker.facts.update(facts)
        self._announce(worker)
        return self.settings

    async def _flush_workers(self) -> None:
        """Get what workers have not sent yet."""
        doing = "asking the workers for what they have not sent"
        replies = await self._ask_workers({"op": f"{NAME}_flush"}, SECONDS_TO_FLUSH, doing)
        for messages in replies.values():
            self.log_event(NAME, messages)

    async def _ask_workers(
        self, message: Mapping[str, object], seconds: float, doing: str
    ) -> dict[str, Sequence[Sequence[object]]]:
        """What each worker that measures answers."""
        measuring = [w.address for w in self.workers.values() if w.facts.get("measured")]
        if not measuring:
            return {}
        request = self.scheduler.broadcast(msg=message, workers=measuring, on_error="ignore")
        try:
            replies = await asyncio.wait_for(request, seconds)
        except Exception as error:
            self.fault(doing, error)
            return {}
        return {name: reply for name, reply in replies.items() if isinstance(reply, (list, tuple))}

    async def _settle(self) -> None:
        """Have measured what the sessions want: as often as the one that wants it most often."""
        wanted = [session.wants for session in self.sessions.values()]
        processes = min((each["processes"] for each in wanted if each.get("processes")), default=0)
        stacks = [each["stacks"] for each in wanted if each.get("stacks")]
        settings: dict[str, object] = {
            "processes": processes,
            "stacks": [min(seconds) for seconds in zip(*stacks)],  # noqa: B905
            "waits": any(each.get("waits") for each in wanted),
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

    async def _remove_plugins(self) -> None:
        self.stop()
        scheduler = self.scheduler
        if NAME in scheduler.plugins:
            scheduler.remove_plugin(NAME)
        if NAME in scheduler.worker_plugins:
            try:
                await asyncio.wait_for(
                    scheduler.unregister_worker_plugin(None, NAME), SECONDS_TO_STOP_WORKERS
                )
            except Exception as error:
                self.fault("removing the workers' plugins", error)
        getattr(getattr(scheduler, "_broker", None), "_topics", {}).pop(NAME, None)

    # What the scheduler reports.

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
            spans = {key: span_name(span) for key, span in annotations.get("span", {}).items()}
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

    def transition(
        self,
        key: Hashable,
        start: str,
        finish: str,
        *args: object,
        stimulus_id: str = "",
        **kwargs: object,
    ) -> None:
        """The state of a task has changed. This is called several times for each task."""
        if start == "memory" and finish == "released":
            # The scheduler forgets a result, which is no news of a run.
            return
        try:
            if stimulus_id != self.stimulus:
                # What follows from one message happens when that has arrived.
                self.stimulus, self.now = stimulus_id, perf_counter()
            now = self.now
            task = self.tasks.get(key) or self._task_of_others(key, finish)
            if task is None:
                return
            if finish == "processing":
                self._sent(key, task, now)
            elif start == "processing":
                self._came_back(key, task, finish, now, cast("Transition", kwargs))
            elif finish == "forgotten":
                del self.tasks[key]
            elif finish in QUEUES:
                task.queued_at = now
            if (start in ACTIVE) is not (finish in ACTIVE):
                self._count(task, finish, now)
        except Exception as error:
            self.fault("transition", error)

    def _task_of_others(self, key: Hashable, finish: str) -> Task | None:
        """A task of which no graph was seen, if it has to be run."""
        if finish not in ACTIVE:
            return None
        task = self.tasks[key] = Task(self._computation_of("", ""))
        return task

    def log_event(self, topic: str, msg: Sequence[Sequence[object]]) -> None:
        """Something was logged: by a worker, if it is about our topic."""
        if topic in self.workers:
            self._worker_said(self.workers[topic], msg)
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

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """A client that goes without a word, as one that was killed, ends its sessions."""
        ended = [name for name, session in self.sessions.items() if session.client == client]
        for name in ended:
            del self.sessions[name]
        self._renew_sessions()
        if ended:
            change = self._settle() if self.sessions else self._remove_plugins()
            self._change = asyncio.ensure_future(change)

    def restart(self, scheduler: Scheduler) -> None:
        """All tasks are forgotten, and all workers replaced."""
        now = perf_counter()
        for computation in list(self.open.values()):
            computation.active, computation.stop = 0, now
        self._record_orphans(list(self.orphans.items()))
        self.tasks.clear()

    # Computations.

    def _computation_of(self, client: str, span: str) -> Computation:
        """The computation that a graph of a client belongs to, which may start with it."""
        if client.startswith("Client-worker-") or not client:
            # Submitted by a task, or found running: it belongs to what runs.
            running = [each for each in self.open.values() if each.active]
            if running:
                return max(running, key=lambda each: each.start)
        current = self.open.get(client)
        if current is not None and current.active:
            return current
        self.count += 1
        name = f"{self.scheduler.id}-{self.name_of_run}-{self.count}"
        new = self.open[client] = Computation(self.count, name, client, span)
        new.workers = self.scheduler.total_nthreads
        new.set_sessions(self._sessions_of(client))
        return new

    def _count(self, task: Task, finish: str, now: float) -> None:
        """One more or less of the tasks of a computation has to be run."""
        computation, change = task.computation, 1 if finish in ACTIVE else -1
        is_done = not computation.active and computation.stop != computation.start
        if change > 0 and is_done and now - computation.stop > SAME_COMPUTATION_SECONDS:
            # Its result was lost, or is asked for again.
            computation = task.computation = self._computation_of(computation.client, "")
        if change > 0 and not computation.active:
            computation.set_sessions(self._sessions_of(computation.client))
            for session in computation.sessions:
                session.computations[computation.number] = computation
        computation.active = max(0, computation.active + change)
        computation.stop = now
        if not computation.active:
            computation.cpu = thread_time() - computation.cpu_at_start
        threads = self.scheduler.total_nthreads
        computation.workers = max(computation.workers, threads)
        if self.shows_progress:
            self._count_done(task, finish)

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
        self.shows_progress = any(each.get("progress") for each in wanted)
        for computation in self.open.values():
            computation.set_sessions(self._sessions_of(computation.client))
            for session in computation.sessions if computation.active else ():
                session.computations[computation.number] = computation

    def _adopt(self, client: str) -> None:
        """Tasks that a client submitted before its session, and that have still to be run."""
        state = self.scheduler.clients.get(client)
        active = [ts for ts in getattr(state, "wants_what", ()) if ts.state in ACTIVE]
        seen = set(active)
        while active:
            ts = active.pop()
            if ts.key not in self.tasks:
                task = self.tasks[ts.key] = Task(self._computation_of(client, ""))
                now = perf_counter()
                if ts.state == "processing":
                    self._sent(ts.key, task, now)
                elif ts.state in ("queued", "no-worker"):
                    task.queued_at = now
                self._count(task, ts.state, now)
            for other in ts.dependencies:
                if other.state in ACTIVE and other not in seen:
                    seen.add(other)
                    active.append(other)

    # Runs of tasks.

    def _sent(self, key: Hashable, task: Task, now: float) -> None:
        ts = self.scheduler.tasks[key]
        task.attempt += 1
        task.sent = now
        task.queued = 0.0 if task.queued_at is None else now - task.queued_at
        task.queued_at = None
        task.worker = ts.processing_on.address if ts.processing_on else ""
        task.is_out = True

    def _came_back(
        self, key: Hashable, task: Task, finish: str, now: float, facts: Transition
    ) -> None:
        """A task was done, or failed, or its worker has left, or no one wants it any more."""
        ts = self.scheduler.tasks[key]
        packed, metrics = b"", ()
        sampled = NOT_SAMPLED
        if ts.metadata and NAME in ts.metadata:
            packed = ts.metadata.pop(NAME)
            ts.metadata = ts.metadata or None
            if type(packed) is not bytes:
                packed, metrics, *more = packed
                sampled = cast("Sampled", more or NOT_SAMPLED)
        if not task.is_out:
            return
        worker = facts.get("worker") or task.worker
        if finish == "memory":
            measured = 1
            if not packed or RUN_ID.unpack_from(packed, RUN_ID_AT)[0] != ts.run_id:
                # Of a run before this one, or of one that was not measured.
                packed, metrics, measured = unmeasured_row(facts.get("startstops")), (), 0
                sampled = NOT_SAMPLED
            end = End(OK, worker, now, measured, facts.get("nbytes") or 0, "", metrics, sampled)
            if measured and self.shows_progress:
                start, stop, cpu, *_ = WORKER_ROW.unpack(packed)
                task.computation.seconds += stop - start
                task.computation.cpu_of_tasks += cpu
            self._record(key, task, packed, end)
        elif finish == "erred":
            row = unmeasured_row(facts.get("startstops"))
            outcome = FAILED if worker in self.scheduler.workers else UNFINISHED
            self._record(key, task, row, End(outcome, worker, now, 0))
        elif worker not in self.scheduler.workers:
            self._record(key, task, NOT_STARTED, End(UNFINISHED, worker, now, 0))
        else:
            # It may still run there: the worker says how it ends.
            self.orphans[key, ts.run_id] = task.copy()
        task.is_out = False

    def _ended_elsewhere(
        self, key: Hashable, run_id: int, worker: str, outcome: int, *measured: object
    ) -> None:
        """A run that brought no result: it failed, was rescheduled or was cancelled."""
        packed, error, metrics = cast("tuple[bytes, str, Sequence[object]]", measured[:3])
        sampled = cast("Sampled", measured[3:] or NOT_SAMPLED)
        task = self.orphans.pop((key, run_id), None)
        if task is None:
            task = self.tasks.get(key)
            # A task that is stolen is released, too, and runs elsewhere.
            if task is None or not task.is_out or outcome == CANCELLED:
                return
        is_measured = int(bool(packed))
        end = End(outcome, worker, perf_counter(), is_measured, 0.0, error, metrics, sampled)
        self._record(key, task, packed or NOT_STARTED, end)
        task.is_out = False

    def _record(self, key: Hashable, task: Task, row: bytes, end: End) -> None:
        """Pack a run for every session of its client."""
        self.row += 1
        outcome, worker, time, measured, nbytes, error, metrics, (waits, stacks) = end
        if outcome == OK:
            task.row = self.row
        computation = task.computation
        if not computation.recorders:
            self._record_for_others(row, end)
            return
        depends_on = self._rows_of_dependencies(key)
        # Spelled out, as all arguments of this are: to unpack tuples of them takes longer.
        packed = row + RUN.pack(
            task.sent,
            time,
            task.queued,
            nbytes,
            self.numbers.get(worker, -1),
            computation.number,
            task.attempt,
            self.clients.setdefault(computation.client, len(self.clients)),
            len(depends_on),
            outcome,
            worker != task.worker,
            measured,
        )
        for session in computation.recorders:
            wants = session.wants
            sampled: Sampled = (
                waits if waits and wants.get("waits") else (),
                stacks if stacks and wants.get("stacks") else b"",
            )
            size = len(packed) + BYTES_PER_KEY + 8 * len(depends_on) + len(sampled[1])
            if not session.has_room(size):
                session.dropped += 1
                continue
            session.ids.append(self.row)
            session.rows += packed
            session.keys.append(key)
            if depends_on:
                session.depends_on.extend(depends_on)
            if error or metrics or task.span != computation.span or any(sampled):
                session.details[self.row] = (error, metrics, task.span, *sampled)

    def _record_for_others(self, row: bytes, end: End) -> None:
        """A task of a client that no one records: when its worker was busy, and nothing else."""
        start, stop, _, seceded, *_ = WORKER_ROW.unpack(row)
        stop = stop if isnan(seceded) else seceded
        for session in self.sessions.values():
            if not session.wants.get("tasks") or isnan(start):
                continue
            if session.has_room(3 * 8):
                session.others.extend((self.numbers.get(end.worker, -1), start, stop))

    def _rows_of_dependencies(self, key: Hashable) -> list[int]:
        state = self.scheduler.tasks.get(key)
        if state is None or not state.dependencies:
            return []
        known = (self.tasks.get(other.key) for other in state.dependencies)
        return [task.row for task in known if task is not None and task.row >= 0]

    def _record_running(self, session: Session) -> int:
        """Record the tasks of a session that are out; how many these are."""
        now, running = perf_counter(), 0
        self._record_orphans(
            [
                (name, task)
                for name, task in self.orphans.items()
                if task.computation.client == session.client
            ]
        )
        for key, task in self.tasks.items():
            if task.is_out and task.computation.client == session.client:
                running += 1
                row, sampled = self.running.pop(key, (b"", NOT_SAMPLED))
                end = End(UNFINISHED, task.worker, _NAN, int(bool(row)), 0.0, "", (), sampled)
                self._record(key, task, row or NOT_STARTED, end)
        for computation in session.computations.values():
            if computation.active:
                computation.stop = now
        return running

    def _record_orphans(self, orphans: Sequence[tuple[tuple[Hashable, int], Task]]) -> None:
        """Record runs that were cancelled and of whose end nothing was heard."""
        for (key, run), task in orphans:
            del self.orphans[key, run]
            self._record(key, task, NOT_STARTED, End(CANCELLED, task.worker, _NAN, 0))

    def _is_running(
        self, key: Hashable, run: int, start: float, thread: int, *sampled: object
    ) -> None:
        row = WORKER_ROW.pack(start, _NAN, _NAN, _NAN, _NAN, thread, run)
        self.running[key] = row, cast("Sampled", sampled or NOT_SAMPLED)

    def _transferred(self, key: Hashable, source: str, worker: str, *measured: float) -> None:
        task = self.tasks.get(key)
        if task is None or task.row < 0:
            self.unattributed += 1
            return
        source_number, number = self.numbers.get(source, -1), self.numbers.get(worker, -1)
        for session in task.computation.recorders:
            session.transfers.append((task.row, source_number, number, *measured))

    # Processes.

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

    # Workers.

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
            pause = (worker.number, PAUSED, worker.paused_at, perf_counter(), _NAN)
            for session in sessions:
                if session.wants.get("tasks"):
                    session.events.append(pause)

    def _is_unmeasured(self, key: Hashable, kind: str) -> None:
        """A worker runs something that it cannot measure, or that has parts which are no tasks."""
        task = self.tasks.get(key)
        for session in () if task is None else task.computation.sessions:
            session.unmeasured[kind] = session.unmeasured.get(kind, 0) + 1

    def _moved_to_disk(self, address: str, *event: object) -> None:
        """A worker wrote results to its disk, or read them back."""
        for session in self.sessions.values():
            if session.wants.get("tasks") and session.has_room(BYTES_PER_KEY):
                session.events.append((self.numbers.get(address, -1), *event))

    def _time_of_joining(self, address: str) -> float:
        """When a worker that was there before this plugin joined: the scheduler has logged it."""
        now = perf_counter()
        try:
            when, message = self.scheduler.get_events(address)[0]
            if message["action"] == "add-worker":
                return min(now, float(when + now - time()))
        except (AttributeError, LookupError, TypeError, ValueError):
            # The log is not as it was, or is no more.
            return now
        return now

    def _announce(self, worker: Worker) -> None:
        for session in self.sessions.values():
            session.workers[worker.number] = worker


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


NOT_STARTED = WORKER_ROW.pack(_NAN, _NAN, _NAN, _NAN, _NAN, 0, 0)


def unmeasured_row(startstops: Iterable[Interval] | None) -> bytes:
    """The row of a run that was not measured, with distributed's own times."""
    to_clock = perf_counter() - time()
    for interval in startstops or ():
        if interval["action"] == "compute":
            start, stop = interval["start"] + to_clock, interval["stop"] + to_clock
            return WORKER_ROW.pack(start, stop, _NAN, _NAN, _NAN, 0, 0)
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


def host_id() -> str:
    """The same text in all processes that share a monotonic clock; empty if that is not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip() + os.readlink("/proc/self/ns/time")
    except OSError:
        return ""
