"""The scheduler's side of capture on a cluster: it collects rows of tasks until clients pull them.

It is shipped as source text, since the scheduler may lack this package or run another Python: it
imports nothing of the package. What is done here is done for every task of the cluster, on the
scheduler's event loop: numbers are packed, and an object per task lives only as long as the
scheduler's own.
"""

from __future__ import annotations

import asyncio
import struct
from array import array
from time import perf_counter
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

NAME = "dask_diag"
"""Of the plugins, of the topic, and of the entry in a task's metadata."""
OPERATIONS = ("attach", "pull", "detach", "clock", "worker")
LIMIT_BYTES = 64_000_000
"""What is collected for one client at most, until it pulls."""
BYTES_PER_KEY = 100
SECONDS_TO_STOP_WORKERS = 5.0

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

    __slots__ = ("active", "client", "index", "name", "root", "span", "start", "stop", "workers")

    def __init__(self, index: int, name: str, client: str, root: str, span: str) -> None:
        self.index, self.name, self.client, self.root, self.span = index, name, client, root, span
        self.start = self.stop = perf_counter()
        self.active = 0
        self.workers = 0

    def described(self) -> list[Any]:
        stop = None if self.active else self.stop
        return [self.index, self.name, self.client, self.span, self.start, stop, self.workers]


class Task:
    """What is known of a task beside what the scheduler knows, and of its current run."""

    __slots__ = ("attempt", "computation", "is_out", "queued", "queued_at", "row", "sent", "worker")

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self.attempt = 0
        self.queued = 0.0
        self.queued_at: float | None = None
        self.row = -1
        self.sent = 0.0
        self.worker = ""
        self.is_out = False


class Session:
    """What was collected for one client and not yet pulled."""

    def __init__(self, client: str) -> None:
        self.client = client
        self.number = 0
        self.sealed: list[dict[str, Any]] = []
        self.sealed_bytes = 0
        self.dropped = 0
        self.computations: dict[int, Computation] = {}
        self.workers: dict[int, list[Any]] = {}
        self.clear()

    def clear(self) -> None:
        self.ids, self.rows, self.depends_on = array("q"), bytearray(), array("q")
        self.keys: list[Any] = []
        self.details: dict[int, list[Any]] = {}
        self.transfers: list[Any] = []

    def is_full(self) -> bool:
        size = len(self.rows) + BYTES_PER_KEY * len(self.keys) + 8 * len(self.depends_on)
        return self.sealed_bytes + size > LIMIT_BYTES

    def seal(self) -> None:
        """What was collected is a batch, which is there until it is acknowledged."""
        self.number += 1
        batch = {
            "number": self.number,
            "ids": self.ids.tobytes(),
            "rows": bytes(self.rows),
            "keys": self.keys,
            "depends_on": self.depends_on.tobytes(),
            "details": list(self.details.items()),
            "transfers": self.transfers,
            "computations": [each.described() for each in self.computations.values()],
            "workers": list(self.workers.values()),
        }
        self.sealed.append(batch)
        self.sealed_bytes += len(self.rows) + BYTES_PER_KEY * len(self.keys)
        self.workers = {}
        # What still runs will have another stop.
        self.computations = {k: c for k, c in self.computations.items() if c.active}
        self.clear()

    def acknowledge(self, number: int) -> None:
        self.sealed = [batch for batch in self.sealed if batch["number"] > number]
        self.sealed_bytes = sum(
            len(batch["rows"]) + BYTES_PER_KEY * len(batch["keys"]) for batch in self.sealed
        )


class DaskDiagSchedulerPlugin(SchedulerPlugin):
    """Collects the rows of tasks, by client."""

    name = NAME
    idempotent = True

    def __init__(self, host: str = "") -> None:
        self.host = host
        self.sessions: dict[str, Session] = {}
        self.tasks: dict[Any, Task] = {}
        self.orphans: dict[tuple[Any, int], Task] = {}
        self.open: dict[str, Computation] = {}
        self.count = 0
        self.row = 0
        self.workers: dict[str, list[Any]] = {}
        self.indices: dict[str, int] = {}
        self.worker_count = 0
        self.clients: dict[str, int] = {}
        self.faults: dict[str, int] = {}
        self.unattributed = 0

    async def start(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.host = host_id()
        for name in OPERATIONS:
            scheduler.handlers[f"{NAME}_{name}"] = getattr(self, f"handle_{name}")
        for address in scheduler.workers:
            self._join(address)

    def stop(self) -> None:
        for name in OPERATIONS:
            self.scheduler.handlers.pop(f"{NAME}_{name}", None)

    def fault(self, doing: str, error: BaseException) -> None:
        """Count a fault of this plugin: the scheduler would log it where no one looks."""
        text = f"{doing}: {type(error).__name__}: {error}"
        self.faults[text] = self.faults.get(text, 0) + 1

    # What clients and workers ask for.

    async def handle_attach(self, session: str, client: str) -> dict[str, Any]:
        """Start to collect the tasks of a client, those included that it has submitted already."""
        new = self.sessions[session] = Session(client)
        new.workers = {worker[0]: worker for worker in self.workers.values()}
        try:
            self._adopt(client)
        except Exception as error:
            self.fault("adopting tasks", error)
        return {"scheduler": self.scheduler.id, "host": self.host, "time": perf_counter()}

    async def handle_pull(self, session: str, received: int) -> dict[str, Any]:
        """All batches after the last one that the client has received."""
        ours = self.sessions.get(session)
        if ours is None:
            return {"status": "unknown"}
        ours.acknowledge(received)
        ours.seal()
        return {
            "status": "OK",
            "batches": ours.sealed,
            "clients": list(self.clients),
            "dropped": ours.dropped,
            "unattributed": self.unattributed,
            "faults": self.faults,
            "now": perf_counter(),
        }

    async def handle_detach(self, session: str, received: int) -> dict[str, Any]:
        """The last batches, with what still runs; the last session takes the plugins with it."""
        running = 0
        if session in self.sessions:
            try:
                running = self._record_running(self.sessions[session])
            except Exception as error:
                self.fault("recording what still runs", error)
        reply = await self.handle_pull(session, received)
        self.sessions.pop(session, None)
        if not self.sessions:
            await self._remove_plugins()
        return {**reply, "running": running}

    async def handle_clock(self) -> dict[str, Any]:
        return {"host": self.host, "time": perf_counter()}

    async def handle_worker(self, address: str, facts: dict[str, Any]) -> None:
        """What a worker says of itself."""
        worker = self.workers.get(address)
        if worker is None:
            self._join(address)
            worker = self.workers[address]
        worker[-1] = {**worker[-1], **facts, "clock": worker[-1].get("clock", []) + facts["clock"]}
        self._announce(worker)

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
        truncate = getattr(getattr(scheduler, "_broker", None), "_topics", {})
        truncate.pop(NAME, None)

    # What the scheduler reports.

    def update_graph(
        self, scheduler: Any, *, client: str, tasks: Any, annotations: Any, **kwargs: Any
    ) -> None:
        try:
            span = next(iter(annotations.get("span", {}).values()), None) or {}
            computation = self._computation_of(client, "/".join(map(str, span.get("name", ()))))
            for key in tasks:
                task = self.tasks.get(key)
                if task is None:
                    self.tasks[key] = Task(computation)
                elif not task.computation.active:
                    task.computation = computation
        except Exception as error:
            self.fault("update_graph", error)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
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
                self._came_back(key, task, finish, now, kwargs)
            elif finish in ("queued", "no-worker"):
                task.queued_at = now
            if (start in ACTIVE) != (finish in ACTIVE):
                self._count(task, 1 if finish in ACTIVE else -1, now)
            if finish == "forgotten":
                del self.tasks[key]
        except Exception as error:
            self.fault("transition", error)

    def log_event(self, topic: str, msg: Any) -> None:
        if topic != NAME:
            return
        try:
            for kind, *values in msg:
                if kind == "run":
                    self._ended_elsewhere(*values)
                elif kind == "transfer":
                    self._transferred(*values)
                elif kind == "fault":
                    self.faults[values[0]] = self.faults.get(values[0], 0) + 1
        except Exception as error:
            self.fault("log_event", error)
        broker = getattr(self.scheduler, "_broker", None)
        if hasattr(broker, "truncate"):
            # The scheduler would remember 100,000 messages.
            broker.truncate(NAME)

    def add_worker(self, scheduler: Any, worker: str) -> None:
        try:
            self._join(worker)
        except Exception as error:
            self.fault("add_worker", error)

    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        try:
            gone = self.workers.pop(worker, None)
            if gone is not None:
                gone[6] = perf_counter()
                gone[7] = reason_of(str(kwargs.get("stimulus_id", "")))
                self._announce(gone)
        except Exception as error:
            self.fault("remove_worker", error)

    def remove_client(self, scheduler: Any, client: str) -> None:
        """A client that goes without a word, as one that was killed, ends its sessions."""
        ended = [name for name, session in self.sessions.items() if session.client == client]
        for name in ended:
            del self.sessions[name]
        if ended and not self.sessions:
            self._removal = asyncio.ensure_future(self._remove_plugins())

    def restart(self, scheduler: Any) -> None:
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
        new = self.open[client] = Computation(self.count, name, client, client, span)
        new.workers = self.scheduler.total_nthreads
        return new

    def _count(self, task: Task, change: int, now: float) -> None:
        """One more or less of the tasks of a computation has to be run."""
        computation = task.computation
        if change > 0 and not computation.active and computation.stop != computation.start:
            if now - computation.stop > SAME_COMPUTATION_SECONDS:
                # Its result was lost, or is asked for again.
                computation = task.computation = self._computation_of(computation.client, "")
        computation.active = max(0, computation.active + change)
        computation.stop = now
        computation.workers = max(computation.workers, self.scheduler.total_nthreads)
        for session in self._sessions_of(computation):
            session.computations[computation.index] = computation

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

    def _sent(self, key: Any, task: Task, now: float) -> None:
        ts = self.scheduler.tasks[key]
        task.attempt += 1
        task.sent = now
        task.queued = 0.0 if task.queued_at is None else now - task.queued_at
        task.queued_at = None
        task.worker = ts.processing_on.address if ts.processing_on else ""
        task.is_out = True

    def _came_back(self, key: Any, task: Task, finish: str, now: float, kwargs: Any) -> None:
        """A task was done, or failed, or its worker has left, or no one wants it any more."""
        ts = self.scheduler.tasks[key]
        packed, metrics = b"", ()
        if ts.metadata and NAME in ts.metadata:
            packed, metrics = ts.metadata.pop(NAME)
            ts.metadata = ts.metadata or None
        if not task.is_out:
            return
        worker = kwargs.get("worker") or task.worker
        if finish == "memory":
            if not packed or WORKER_ROW.unpack(packed)[-1] != ts.run_id:
                packed, metrics = b"", ()
            row = self._row_of(packed, worker, kwargs.get("startstops"))
            nbytes = kwargs.get("nbytes")
            self._record(key, task, row, OK, worker, now, float(nbytes or 0), metrics)
        elif finish == "erred":
            row = self._row_of(b"", worker, kwargs.get("startstops"))
            outcome = FAILED if worker in self.workers else UNFINISHED
            self._record(key, task, row, outcome, worker, now)
        elif worker not in self.scheduler.workers:
            self._record(key, task, NOT_STARTED, UNFINISHED, worker, now)
        else:
            # It may still run there: the worker says how it ends.
            self.orphans[key, ts.run_id] = task
            return
        task.is_out = False

    def _row_of(self, packed: bytes, worker: str, startstops: Any) -> tuple[Any, ...]:
        """A worker's row; of a run that was not measured, with distributed's own times."""
        if packed:
            return (*WORKER_ROW.unpack(packed), 1)
        for interval in startstops or ():
            if interval["action"] == "compute":
                to_clock = perf_counter() - epoch()
                return (interval["start"] + to_clock, interval["stop"] + to_clock) + UNMEASURED
        return NOT_STARTED

    def _ended_elsewhere(
        self, key: Any, run_id: int, worker: str, outcome: int, packed: bytes, *more: Any
    ) -> None:
        """A run that brought no result: it failed, was rescheduled or was cancelled."""
        error, metrics = more
        task = self.orphans.pop((key, run_id), None)
        if task is None:
            task = self.tasks.get(key)
            # A task that is stolen is released, too, and runs elsewhere.
            if task is None or not task.is_out or outcome == CANCELLED:
                return
        row = self._row_of(packed, worker, None)
        self._record(key, task, row, outcome, worker, perf_counter(), 0.0, metrics, error)
        task.is_out = False

    def _record(
        self,
        key: Any,
        task: Task,
        row: tuple[Any, ...],
        outcome: int,
        worker: str,
        now: float,
        nbytes: float = 0.0,
        metrics: Any = (),
        error: str = "",
    ) -> None:
        """Pack a run for every session of its client."""
        sessions = self._sessions_of(task.computation)
        self.row += 1
        if outcome == OK:
            task.row = self.row
        if not sessions:
            return
        ts = self.scheduler.tasks.get(key)
        depends_on = [
            self.tasks[other.key].row
            for other in (ts.dependencies if ts is not None else ())
            if other.key in self.tasks and self.tasks[other.key].row >= 0
        ]
        start, stop, cpu, seceded, seceded_cpu, thread, run, measured = row
        client = self.clients.setdefault(task.computation.client, len(self.clients))
        index = self.indices.get(worker, -1)
        packed = RUN.pack(
            *(task.sent, start, stop, cpu, seceded, seceded_cpu, now, task.queued, nbytes),
            *(thread, run, index, task.computation.index, task.attempt, client, len(depends_on)),
            *(outcome, worker != task.worker, measured),
        )
        for session in sessions:
            if session.is_full():
                session.dropped += 1
                continue
            session.ids.append(self.row)
            session.rows += packed
            session.keys.append(key)
            session.depends_on.extend(depends_on)
            if error or metrics:
                session.details[self.row] = [error, metrics]

    def _record_running(self, session: Session) -> int:
        """Record the tasks of a session that are out; how many these are."""
        now, running = perf_counter(), 0
        for (key, _), task in list(self.orphans.items()):
            if task.computation.client == session.client:
                self._record(key, task, NOT_STARTED, CANCELLED, task.worker, _NAN)
        for key, task in self.tasks.items():
            if task.is_out and task.computation.client == session.client:
                running += 1
                self._record(key, task, NOT_STARTED, UNFINISHED, task.worker, _NAN)
        for computation in session.computations.values():
            computation.stop = now
        return running

    def _transferred(
        self, key: Any, source: str, worker: str, start: float, stop: float, nbytes: int
    ) -> None:
        task = self.tasks.get(key)
        if task is None or task.row < 0:
            self.unattributed += 1
            return
        origin, to = self.indices.get(source, -1), self.indices.get(worker, -1)
        for session in self._sessions_of(task.computation):
            session.transfers.append([task.row, origin, to, start, stop, nbytes])

    # Workers: index, name, address, host, threads, joined, left, reason, facts.

    def _join(self, address: str) -> None:
        if address in self.workers:
            return
        ws = self.scheduler.workers.get(address)
        worker = [
            *(self.worker_count, str(getattr(ws, "name", address)), address),
            *(getattr(ws, "host", ""), getattr(ws, "nthreads", 0), perf_counter(), None, ""),
            {},
        ]
        self.worker_count += 1
        self.workers[address] = worker
        self.indices[address] = worker[0]
        self._announce(worker)

    def _announce(self, worker: list[Any]) -> None:
        for session in self.sessions.values():
            session.workers[worker[0]] = worker


UNMEASURED = (_NAN, _NAN, _NAN, 0, 0, 0)
NOT_STARTED = (_NAN, _NAN, *UNMEASURED)


def reason_of(stimulus: str) -> str:
    """Why a worker left, without the time that the scheduler appends."""
    words = stimulus.split("-")
    while words and words[-1].replace(".", "").isdigit():
        words.pop()
    return "-".join(words)


def epoch() -> float:
    """The time of day by the clock of distributed's own measurements."""
    from distributed.metrics import time

    return time()


def host_id() -> str:
    """The same text in all processes that share a monotonic clock; empty if that is not known."""
    import os

    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip() + os.readlink("/proc/self/ns/time")
    except OSError:
        return ""
