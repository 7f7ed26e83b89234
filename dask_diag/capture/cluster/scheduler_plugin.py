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
from time import perf_counter
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
SECONDS_TO_FLUSH = 2.0

WORKER_ROW = struct.Struct("<dddddqq")
"""Start, stop, cpu, seceded, CPU after seceding, thread, run id; clock of the worker."""
RUN = struct.Struct("<ddddddddd" + "qq" + "iiiii" + "BBB")
"""Submitted, the first five of a worker's row, collected, queued, nbytes; thread, run; worker,
computation, attempt, client, dependencies; outcome, stolen, measured."""
OUTCOMES = ("ok", "failed", "unfinished", "cancelled", "rescheduled")
OK, FAILED, UNFINISHED, CANCELLED, RESCHEDULED = range(5)
ACTIVE = frozenset(("waiting", "processing", "queued", "no-worker"))
SAME_COMPUTATION_SECONDS = 0.1
"""If tasks are run again so soon after a computation was done, they belong to it."""
_NAN = float("nan")


class Computation:
    """The graphs of one client, from when it had nothing to do until then again."""

    __slots__ = ("active", "client", "name", "number", "span", "start", "stop", "workers")

    def __init__(self, number: int, name: str, client: str, span: str) -> None:
        self.number, self.name, self.client, self.span = number, name, client, span
        self.start = self.stop = perf_counter()
        self.active = 0
        self.workers = 0

    def described(self) -> tuple[object, ...]:
        """What clients are sent."""
        stop = None if self.active else self.stop
        return (self.number, self.name, self.client, self.span, self.start, stop, self.workers)


class Worker:
    """A worker, from when it was there until it left."""

    __slots__ = (
        *("address", "clock", "facts", "host", "joined", "left"),
        *("name", "number", "reason", "threads"),
    )

    def __init__(self, number: int, address: str, name: str, host: str, threads: int) -> None:
        self.number, self.address, self.name = number, address, name
        self.host, self.threads = host, threads
        self.joined = perf_counter()
        self.left: float | None = None
        self.reason = ""
        self.facts: dict[str, object] = {}
        self.clock: list[object] = []

    def described(self) -> tuple[object, ...]:
        """What clients are sent."""
        where = (self.number, self.name, self.address, self.host, self.threads)
        facts = {**self.facts, "clock": self.clock} if self.facts else {}
        return (*where, self.joined, self.left, self.reason, facts)


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


class Row(NamedTuple):
    """What is known of one run, as the worker measured it; by its clock."""

    start: float
    stop: float
    cpu: float
    seceded: float
    seceded_cpu: float
    thread: int
    run: int
    measured: int


class End(NamedTuple):
    """How a run ended."""

    outcome: int
    worker: str
    time: float
    nbytes: float = 0.0
    error: str = ""
    metrics: Sequence[object] = ()


class Task:
    """What is known of a task beside what the scheduler knows, and of its current run."""

    __slots__ = (
        *("attempt", "computation", "is_out", "queued", "queued_at"),
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

    def __init__(self, client: str) -> None:
        self.client = client
        self.number = 0
        self.sealed: list[Batch] = []
        self.dropped = 0
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

    def is_full(self) -> bool:
        """Whether the client does not pull what is collected for it."""
        return self.size() + sum(batch.size for batch in self.sealed) > LIMIT_BYTES

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
            "computations": [each.described() for each in self.computations.values()],
            "workers": [worker.described() for worker in self.workers.values()],
        }
        self.sealed.append(Batch(self.number, self.size(), {"number": self.number, **content}))
        self.workers = {}
        # What still runs will have another stop.
        self.computations = {n: each for n, each in self.computations.items() if each.active}
        self.clear()

    def size(self) -> int:
        """Bytes of what was collected since it was last sealed, about."""
        rows = len(self.rows) + 8 * len(self.depends_on) + 8 * len(self.others)
        return rows + BYTES_PER_KEY * len(self.keys)

    def acknowledge(self, number: int) -> None:
        """Forget the batches that the client has."""
        self.sealed = [batch for batch in self.sealed if batch.number > number]


class DaskDiagSchedulerPlugin(SchedulerPlugin):
    """Collects the rows of tasks, by client."""

    name = NAME
    idempotent = True

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.tasks: dict[Hashable, Task] = {}
        self.orphans: dict[tuple[Hashable, int], Task] = {}
        self.running: dict[Hashable, Row] = {}
        self.open: dict[str, Computation] = {}
        self.count = 0
        self.row = 0
        self.workers: dict[str, Worker] = {}
        self.numbers: dict[str, int] = {}
        self.worker_count = 0
        self.clients: dict[str, int] = {}
        self.faults: dict[str, int] = {}
        self.unattributed = 0
        self.messages: dict[object, Callable[..., None]] = {
            "run": self._ended_elsewhere,
            "transfer": self._transferred,
            "fault": self._count_fault,
            "running": self._is_running,
        }

    async def start(self, scheduler: Scheduler) -> None:
        """Be there for clients and workers."""
        self.scheduler = scheduler
        self.host = host_id()
        for name in OPERATIONS:
            scheduler.handlers[f"{NAME}_{name}"] = getattr(self, f"handle_{name}")
        for address in scheduler.workers:
            self._join(address)

    def stop(self) -> None:
        """Undo `start`."""
        for name in OPERATIONS:
            self.scheduler.handlers.pop(f"{NAME}_{name}", None)

    def fault(self, doing: str, error: BaseException) -> None:
        """Count a fault of this plugin: the scheduler would log it where no one looks."""
        self._count_fault(f"{doing}: {type(error).__name__}: {error}")

    def _count_fault(self, text: str) -> None:
        self.faults[text] = self.faults.get(text, 0) + 1

    # What clients and workers ask for.

    async def handle_attach(self, session: str, client: str) -> dict[str, object]:
        """Start to collect the tasks of a client, those included that it has submitted already."""
        new = self.sessions[session] = Session(client)
        new.workers = {worker.number: worker for worker in self.workers.values()}
        try:
            self._adopt(client)
        except Exception as error:
            self.fault("adopting tasks", error)
        return {"scheduler": self.scheduler.id, "host": self.host, "time": perf_counter()}

    async def handle_pull(self, session: str, received: int) -> dict[str, object]:
        """All batches after the last one that the client has received."""
        collected = self.sessions.get(session)
        if collected is None:
            return {"status": "unknown"}
        collected.acknowledge(received)
        collected.seal()
        return {
            "status": "OK",
            "batches": [batch.content for batch in collected.sealed],
            "clients": list(self.clients),
            "dropped": collected.dropped,
            "unattributed": self.unattributed,
            "faults": self.faults,
            "now": perf_counter(),
        }

    async def handle_detach(self, session: str, received: int) -> dict[str, object]:
        """The last batches, with what still runs; the last session takes the plugins with it."""
        running = 0
        if session in self.sessions:
            await self._flush_workers()
            try:
                running = self._record_running(self.sessions[session])
            except Exception as error:
                self.fault("recording what still runs", error)
        reply = await self.handle_pull(session, received)
        self.sessions.pop(session, None)
        if not self.sessions:
            await self._remove_plugins()
        return {**reply, "running": running}

    async def handle_clock(self) -> dict[str, object]:
        """What time it is here."""
        return {"host": self.host, "time": perf_counter()}

    async def handle_worker(self, address: str, facts: dict[str, object]) -> None:
        """What a worker says of itself."""
        worker = self.workers.get(address) or self._join(address)
        clock = facts.pop("clock", None)
        worker.clock = [*worker.clock, *(clock if isinstance(clock, (list, tuple)) else ())]
        worker.facts.update(facts)
        self._announce(worker)

    async def _flush_workers(self) -> None:
        """Get what workers have not sent yet."""
        measuring = [w.address for w in self.workers.values() if w.facts.get("measured")]
        request = self.scheduler.broadcast(
            msg={"op": f"{NAME}_flush"}, workers=measuring, on_error="ignore"
        )
        try:
            replies = await asyncio.wait_for(request, SECONDS_TO_FLUSH)
        except Exception as error:
            self.fault("asking the workers for what they have not sent", error)
            return
        for messages in replies.values():
            self.log_event(NAME, messages)

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
        self, key: Hashable, start: str, finish: str, *args: object, **kwargs: object
    ) -> None:
        """The state of a task has changed."""
        try:
            now = perf_counter()
            task = self.tasks.get(key)
            if task is None:
                if finish not in ACTIVE:
                    return
                task = self.tasks[key] = Task(self._computation_of("", ""))
            if finish == "processing":
                self._sent(key, task, now)
            elif start == "processing":
                self._came_back(key, task, finish, now, cast("Transition", kwargs))
            elif finish in ("queued", "no-worker"):
                task.queued_at = now
            if (start in ACTIVE) != (finish in ACTIVE):
                self._count(task, 1 if finish in ACTIVE else -1, now)
            if finish == "forgotten":
                del self.tasks[key]
        except Exception as error:
            self.fault("transition", error)

    def log_event(self, topic: str, msg: Sequence[Sequence[object]]) -> None:
        """Something was logged: by a worker, if it is about our topic."""
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
        if ended and not self.sessions:
            self._removal = asyncio.ensure_future(self._remove_plugins())

    def restart(self, scheduler: Scheduler) -> None:
        """All tasks are forgotten, and all workers replaced."""
        now = perf_counter()
        for computation in list(self.open.values()):
            computation.active, computation.stop = 0, now
        self.tasks.clear()
        self.orphans.clear()

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
        name = f"{self.scheduler.id}-{self.count}"
        new = self.open[client] = Computation(self.count, name, client, span)
        new.workers = self.scheduler.total_nthreads
        return new

    def _count(self, task: Task, change: int, now: float) -> None:
        """One more or less of the tasks of a computation has to be run."""
        computation = task.computation
        is_done = not computation.active and computation.stop != computation.start
        if change > 0 and is_done and now - computation.stop > SAME_COMPUTATION_SECONDS:
            # Its result was lost, or is asked for again.
            computation = task.computation = self._computation_of(computation.client, "")
        computation.active = max(0, computation.active + change)
        computation.stop = now
        computation.workers = max(computation.workers, self.scheduler.total_nthreads)
        for session in self._sessions_of(computation):
            session.computations[computation.number] = computation

    def _sessions_of(self, computation: Computation) -> list[Session]:
        sessions = self.sessions.values()
        return [session for session in sessions if session.client == computation.client]

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
                self._count(task, 1, now)
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
        if ts.metadata and NAME in ts.metadata:
            packed, metrics = ts.metadata.pop(NAME)
            ts.metadata = ts.metadata or None
        if not task.is_out:
            return
        worker = facts.get("worker") or task.worker
        is_there = worker in self.scheduler.workers
        if finish == "memory":
            if not packed or WORKER_ROW.unpack(packed)[-1] != ts.run_id:
                # Of a run before this one, or of one that was not measured.
                packed, metrics = b"", ()
            end = End(OK, worker, now, float(facts.get("nbytes") or 0), "", metrics)
            self._record(key, task, row_of(packed, facts.get("startstops")), end)
        elif finish == "erred":
            row = row_of(b"", facts.get("startstops"))
            self._record(key, task, row, End(FAILED if is_there else UNFINISHED, worker, now))
        elif not is_there:
            self._record(key, task, NOT_STARTED, End(UNFINISHED, worker, now))
        else:
            # It may still run there: the worker says how it ends.
            self.orphans[key, ts.run_id] = task.copy()
        task.is_out = False

    def _ended_elsewhere(
        self, key: Hashable, run_id: int, worker: str, outcome: int, *measured: object
    ) -> None:
        """A run that brought no result: it failed, was rescheduled or was cancelled."""
        packed, error, metrics = cast("tuple[bytes, str, Sequence[object]]", measured)
        task = self.orphans.pop((key, run_id), None)
        if task is None:
            task = self.tasks.get(key)
            # A task that is stolen is released, too, and runs elsewhere.
            if task is None or not task.is_out or outcome == CANCELLED:
                return
        end = End(outcome, worker, perf_counter(), 0.0, error, metrics)
        self._record(key, task, row_of(packed, ()), end)
        task.is_out = False

    def _record(self, key: Hashable, task: Task, row: Row, end: End) -> None:
        """Pack a run for every session of its client."""
        self.row += 1
        if end.outcome == OK:
            task.row = self.row
        sessions = self._sessions_of(task.computation)
        if not sessions:
            self._record_for_others(row, end)
            return
        depends_on = self._rows_of_dependencies(key)
        client = self.clients.setdefault(task.computation.client, len(self.clients))
        packed = RUN.pack(
            *(task.sent, *row[:5], end.time, task.queued, end.nbytes, row.thread, row.run),
            *(self.numbers.get(end.worker, -1), task.computation.number, task.attempt, client),
            *(len(depends_on), end.outcome, end.worker != task.worker, row.measured),
        )
        for session in sessions:
            if session.is_full():
                session.dropped += 1
                continue
            session.ids.append(self.row)
            session.rows += packed
            session.keys.append(key)
            session.depends_on.extend(depends_on)
            if end.error or end.metrics or task.span != task.computation.span:
                session.details[self.row] = (end.error, end.metrics, task.span)

    def _record_for_others(self, row: Row, end: End) -> None:
        """A task of a client that no one records: when its worker was busy, and nothing else."""
        stop = row.seceded if row.seceded == row.seceded else row.stop
        for session in self.sessions.values():
            if row.start == row.start and not session.is_full():
                session.others.extend((self.numbers.get(end.worker, -1), row.start, stop))

    def _rows_of_dependencies(self, key: Hashable) -> list[int]:
        state = self.scheduler.tasks.get(key)
        known = (self.tasks.get(other.key) for other in (state.dependencies if state else ()))
        return [task.row for task in known if task is not None and task.row >= 0]

    def _record_running(self, session: Session) -> int:
        """Record the tasks of a session that are out; how many these are."""
        now, running = perf_counter(), 0
        for (key, _), task in list(self.orphans.items()):
            if task.computation.client == session.client:
                self._record(key, task, NOT_STARTED, End(CANCELLED, task.worker, _NAN))
        for key, task in self.tasks.items():
            if task.is_out and task.computation.client == session.client:
                running += 1
                row = self.running.pop(key, NOT_STARTED)
                self._record(key, task, row, End(UNFINISHED, task.worker, _NAN))
        for computation in session.computations.values():
            if computation.active:
                computation.stop = now
        return running

    def _is_running(self, key: Hashable, run: int, start: float, thread: int) -> None:
        self.running[key] = NOT_STARTED._replace(start=start, thread=thread, run=run, measured=1)

    def _transferred(self, key: Hashable, source: str, worker: str, *measured: float) -> None:
        task = self.tasks.get(key)
        if task is None or task.row < 0:
            self.unattributed += 1
            return
        source_number, number = self.numbers.get(source, -1), self.numbers.get(worker, -1)
        for session in self._sessions_of(task.computation):
            session.transfers.append((task.row, source_number, number, *measured))

    # Workers.

    def _join(self, address: str) -> Worker:
        if address not in self.workers:
            state = self.scheduler.workers.get(address)
            name, host = getattr(state, "name", address), getattr(state, "host", "")
            threads = getattr(state, "nthreads", 0)
            worker = Worker(self.worker_count, address, str(name), host, threads)
            self.worker_count += 1
            self.workers[address] = worker
            self.numbers[address] = worker.number
            self._announce(worker)
        return self.workers[address]

    def _announce(self, worker: Worker) -> None:
        for session in self.sessions.values():
            session.workers[worker.number] = worker


NOT_STARTED = Row(_NAN, _NAN, _NAN, _NAN, _NAN, 0, 0, 0)


def row_of(packed: bytes, startstops: Iterable[Interval] | None) -> Row:
    """A worker's row; of a run that was not measured, with distributed's own times."""
    if packed:
        return Row._make((*WORKER_ROW.unpack(packed), 1))
    to_clock = perf_counter() - time()
    for interval in startstops or ():
        if interval["action"] == "compute":
            start, stop = interval["start"] + to_clock, interval["stop"] + to_clock
            return NOT_STARTED._replace(start=start, stop=stop)
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
