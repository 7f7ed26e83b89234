"""Scheduler plugin: collects rows of tasks, results and workers until clients pull the rows.

`shipping` sends the text of this module and of those of the package that it imports, as the
scheduler may lack this package or run another version of Python. They import only Python, dask and
distributed.

The plugin has the handlers for clients and workers, and owns these parts:

* `SessionRegistry`: sessions of clients, each with rows to pull
* `WorkerMonitor`: workers, settings of their measurements, and samples of processes
* `ComputationTracker`: computations of graphs and tasks
* `ResultCollector`: results in distributed memory
* `RunCollector`: tasks, and a row for each run of a task

Everything runs on the thread of the scheduler's event loop. A hook of the scheduler never raises:
an error is counted in `SessionRegistry.faults`, for clients to pull.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from itertools import islice
from math import isfinite, isnan, nan
from time import perf_counter, process_time, thread_time
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
from dask.sizeof import sizeof
from dask.utils import funcname
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.metrics import time

from dask_diag.capture.repeated import chunks_read_again, steps_again
from dask_diag.cluster.wire import (
    CANCELLED,
    EVENTS,
    FAILED,
    FLUSH,
    NAME,
    OK,
    OTHER_TASK,
    PROCESS,
    RESULT,
    SCHEDULER,
    SCHEDULER_ROW,
    SETTINGS,
    TRANSFER,
    UNFINISHED,
    WORKER_EVENT,
    WORKER_ROW,
    Batch,
    ClusterComputation,
    ClusterWorker,
    Fault,
    ProcessSamples,
    Received,
    RunDetails,
    RunEnded,
    RunMeasurements,
    Running,
    Spilled,
    Unmeasured,
    forget_handlers,
    host_id,
)
from dask_diag.model.graph import name_of_key, names_of_steps

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from dask_diag.capture.repeated import RepeatedStep
    from dask_diag.cluster.wire import (
        AttachReply,
        HelloReply,
        PullReply,
        SentBatch,
        Settings,
        Wants,
        WorkerFacts,
    )

    Interval = Mapping[str, Any]
    """Work of a worker on a task: `action`, and `start` and `stop` by the time of day."""
    Supply = Mapping[str, Mapping[str, float]]
    """Amounts of a resource, by its name and the address of the worker."""


ACTIVE = frozenset(("waiting", "processing", "queued", "no-worker"))
"""States of a task that is to be run."""
KILLED_WORKER = "KilledWorker"
"""Error of a task with which several workers died."""
PAUSED = "paused"
QUEUED = "queued"
NOT_STARTED = WORKER_ROW.pack(*[nan] * 5, 0, 0)
run_id_of = struct.Struct(f"<{WORKER_ROW.size - 8}xq").unpack
"""Reads the last field of a worker's row."""

LIMIT_BYTES = 64_000_000
"""Most bytes that are collected for one client until it pulls."""
BYTES_PER_KEY = 100
BYTES_PER_RUN = WORKER_ROW.size + SCHEDULER_ROW.size + BYTES_PER_KEY
PACKED_AT_ONCE = 200
"""Runs that are packed together. Between two messages of the scheduler, neither the code nor the
data of packing would be in the processor's cache: each run would take several times as long."""
MOST_NAMES, MOST_DEPENDENTS = 200, 4
"""Names of tasks of one function that are sent, and names of dependents of each."""
MISSING_DETAILS, MISSING_ROWS, NOT_HEARD_OF = "details", "rows", "cancelled"
"""Kinds by which missing rows are counted for notices."""

Run = tuple[int, Hashable, bytes, Sequence[int], tuple[float, ...]]
"""Number, key and worker's row of a run, numbers of the runs of its inputs, and the fields of
`SCHEDULER_ROW` after the first."""


class RecordedSession:
    """Rows of one client, up to its acknowledgement.

    Each pull seals a batch, which is sent again until the client acknowledges the batch.
    """

    def __init__(self, client: str, wants: Wants) -> None:
        self.client, self.wants = client, wants
        self.news = asyncio.Event()
        self.is_ending = False
        self.last_reply: asyncio.Future[PullReply] | None = None
        self.start = perf_counter()
        self.number = 0
        self.sealed: list[tuple[int, SentBatch]] = []
        self.sealed_size = self.dropped = self.running = 0
        self.ended: list[Run] = []
        self.unmeasured: Counter[str] = Counter()
        self.computations: dict[int, RecordedComputation] = {}
        self.workers: dict[int, RecordedWorker] = {}
        self.batch, self.size = Batch(), 0
        self.names: set[Hashable] = set()
        self.counts: Counter[str] = Counter()
        self.seen: set[int] = set()

    def has_room(self, size: int = BYTES_PER_KEY) -> bool:
        """Reserve bytes for a row, or count the row as missing if the client has not pulled."""
        if self.size + self.sealed_size + size > LIMIT_BYTES:
            self.unmeasured[MISSING_ROWS] += 1
            return False
        self.size += size
        return True

    def add_run(self, run: Run, details: RunDetails | None, function: str) -> None:
        """Add a run, whose numbers are packed later; a run without room is dropped."""
        number, key, depends_on = run[0], run[1], run[3]
        size = BYTES_PER_RUN
        if type(key) is not str or len(key) > BYTES_PER_KEY:
            size += size_of(key)
        if depends_on:
            size += 8 * len(depends_on)
        free = LIMIT_BYTES - self.size - self.sealed_size - size
        if free < 0:
            self.dropped += 1
            return
        ended = self.ended
        ended.append(run)
        if details is not None or function or len(ended) >= PACKED_AT_ONCE:
            self.pack()
        if details is not None:
            details, more = self.wanted_of(details, free)
            self.batch.details[number] = details
            size += more
        if function:
            self.batch.functions[number] = function
            size += BYTES_PER_KEY
        self.size += size

    def wanted_of(self, details: RunDetails, free: int) -> tuple[RunDetails, int]:
        """Return the wanted details within the free bytes, and their size."""
        waits = details.waits if self.wants.get("waits") else ()
        stacks = details.stacks if self.wants.get("stacks") else b""
        steps = details.steps if self.wants.get("lines") else b""
        parts = details.metrics, waits, details.chunk, *details.chunk[6:7]
        size = len(stacks) + len(steps) + BYTES_PER_KEY * sum(map(len, parts))
        if size > free:
            # The times of the run are recorded, and the error of a run that failed.
            self.unmeasured[MISSING_DETAILS] += 1
            return RunDetails(details.error, span=details.span), 0
        return details._replace(waits=waits, stacks=stacks, steps=steps), size

    def pack(self) -> None:
        """Pack the runs since the previous call."""
        ended, self.ended = iter(self.ended), []
        batch = self.batch
        try:
            for number, key, row, depends_on, numbers in ended:
                batch.rows += row + SCHEDULER_ROW.pack(len(depends_on), *numbers)
                batch.ids.append(number)
                batch.keys.append(key)
                batch.depends_on.extend(depends_on)
        finally:
            # One run that cannot be packed takes no other run with it.
            self.ended = [*ended, *self.ended]

    def seal(self) -> None:
        """End the batch, and keep the batch until its acknowledgement."""
        self.pack()
        self.number += 1
        computations = self.computations.values()
        sent: SentBatch = {
            "number": self.number,
            "rows": self.batch.sent(),
            "computations": [computation.described() for computation in computations],
            "workers": [worker.described() for worker in self.workers.values()],
        }
        self.sealed.append((self.size, sent))
        self.sealed_size += self.size
        self.workers = {}
        # A computation that runs will have another stop.
        self.computations = {c.number: c for c in computations if c.active}
        self.batch, self.size = Batch(), 0

    def acknowledge(self, number: int) -> None:
        """Forget batches up to a number."""
        self.sealed = [batch for batch in self.sealed if batch[1]["number"] > number]
        self.sealed_size = sum(size for size, _ in self.sealed)


class SessionRegistry:
    """Sessions by name, their wishes together, and faults to report."""

    def __init__(self) -> None:
        self.by_name: dict[str, RecordedSession] = {}
        self.faults: Counter[str] = Counter()
        self.clients: dict[str, int] = {}
        self.refresh()

    def fault(self, doing: str, error: BaseException) -> None:
        """Count an error: the scheduler would log it where nobody looks."""
        self.faults[f"{doing}: {type(error).__name__}: {error}"] += 1

    @contextmanager
    def reporting(self, doing: str) -> Iterator[None]:
        """Count an error of a block, and go on after the block."""
        try:
            yield
        except Exception as error:
            self.fault(doing, error)

    def fault_of_worker(self, fault: Fault) -> None:
        """Count an error of a worker."""
        self.faults[fault.text] += 1

    def refresh(self) -> None:
        """Sum up the wishes of the sessions, after a session has come or gone."""
        wanted = [session.wants for session in self.by_name.values()]
        self.shows_progress = any(wants.get("progress") for wants in wanted)
        self.records_results = any(wants.get("results") for wants in wanted)
        # The tasks that one program records are tasks of another client to the other program.
        self.is_shared = len({wants.get("program") for wants in wanted if wants.get("tasks")}) > 1

    def of_client(self, client: str) -> list[RecordedSession]:
        """Sessions of a client."""
        return [session for session in self.by_name.values() if session.client == client]

    def of_blocks(self, kind: str = "tasks") -> Iterable[RecordedSession]:
        """A session with a wish for a kind of rows for each block, which makes one recording."""
        session_of: dict[object, RecordedSession] = {}
        for session in self.by_name.values():
            if session.wants.get(kind):
                session_of.setdefault(session.wants.get("block", session), session)
        return session_of.values()

    def program_of(self, client: str) -> object:
        """The program of a recorded client; `UNRECORDED` for other clients."""
        sessions = self.of_client(client)
        return sessions[0].wants.get("program") if sessions else UNRECORDED


SECONDS_TO_SETTLE = 1.0
SECONDS_TO_FLUSH = 2.0
SECONDS_TO_FIRST_SAMPLE = 0.01
MOST_READINGS = 64
"""Readings of one worker's clock. Each client is sent all of them with every new reading, each five
seconds: 1.8 kB at most, which are packed in 0.05 ms and unpacked in 0.02 ms."""
RECENT_READINGS = 16


class RecordedWorker:
    """A worker, from when it joined until it left."""

    def __init__(self, number: int, address: str, state: object) -> None:
        self.number, self.address = number, address
        self.id = getattr(state, "server_id", address)
        self.name, self.host = str(getattr(state, "name", address)), getattr(state, "host", "")
        self.threads = getattr(state, "nthreads", 0)
        self.joined = perf_counter()
        self.left: float | None = None
        is_paused = getattr(getattr(state, "status", None), "name", "") == PAUSED
        self.paused_at = self.joined if is_paused else None
        self.reason = ""
        self.facts: WorkerFacts = {}
        self.clock: list[Sequence[float]] = []

    def described(self) -> ClusterWorker:
        """Make the message for clients."""
        facts: WorkerFacts = {**self.facts, "clock": self.clock} if self.facts else {}
        where = self.number, self.id, self.name, self.address, self.host, self.threads
        return ClusterWorker(*where, self.joined, self.left, self.reason, facts)

    def add_readings(self, readings: Sequence[Sequence[float]]) -> None:
        """Add readings of the clock; of many readings, every second older reading is dropped.

        Between readings, the clock is taken to drift evenly.
        """
        self.clock = [*self.clock, *readings]
        if len(self.clock) > MOST_READINGS:
            self.clock = self.clock[:-RECENT_READINGS:2] + self.clock[-RECENT_READINGS:]


class WorkerMonitor:
    """Present workers by address, and the settings of their measurements.

    Attributes
    ----------
    numbers : dict of str to int
        Number of the last worker at each address, also after the worker has left: messages may be
        late.
    sampled : tuple of float
        Time and CPU seconds of this process at its last sample.
    """

    def __init__(self, scheduler: Scheduler, sessions: SessionRegistry) -> None:
        self.scheduler, self.sessions = scheduler, sessions
        self.host = host_id()
        self.present: dict[str, RecordedWorker] = {}
        self.numbers: dict[str, int] = {}
        self.count = 0
        self.settings: Settings = {"number": 0}
        self.sampling: asyncio.Task[None] | None = None
        self.process, self.sampled = psutil.Process(), (0.0, 0.0)

    def join(self, address: str) -> RecordedWorker:
        """Return the worker at an address; an unknown worker joins now."""
        worker = self.present.get(address)
        if worker is None:
            worker = RecordedWorker(self.count, address, self.scheduler.workers.get(address))
            self.count += 1
            self.present[address] = worker
            self.numbers[address] = worker.number
            self.announce(worker)
        return worker

    def join_earlier(self, address: str) -> None:
        """Add a worker from before this plugin, at the time in the scheduler's log."""
        worker = self.join(address)
        # The last event: a worker may come back at the address of a worker that left.
        with suppress(AttributeError, LookupError, TypeError, ValueError):
            for when, message in reversed(self.scheduler.get_events(address)):
                if message.get("action") == "add-worker":
                    worker.joined = min(worker.joined, float(when + perf_counter() - time()))
                    return

    def leave(self, address: str, stimulus: str) -> None:
        """Remove a worker; the scheduler ends the stimulus with the time."""
        worker = self.present.pop(address, None)
        if worker is None:
            return
        self.record_pause(worker)
        worker.left = perf_counter()
        words = stimulus.split("-")
        while words and words[-1].replace(".", "").isdigit():
            words.pop()
        worker.reason = "-".join(words)
        self.announce(worker)

    def announce(self, worker: RecordedWorker) -> None:
        """Send a worker with the next pull of each session."""
        for session in self.sessions.by_name.values():
            session.workers[worker.number] = worker

    def changed_status(self, worker: RecordedWorker, event: object) -> None:
        """Note that a worker pauses or goes on, if the event says so."""
        if not isinstance(event, dict) or event.get("action") != "worker-status-change":
            return
        self.record_pause(worker)
        worker.paused_at = perf_counter() if event.get("status") == PAUSED else None

    def record_pause(self, worker: RecordedWorker) -> None:
        """Add the pause of a paused worker, up to now; the worker may stay paused."""
        if worker.paused_at is not None:
            paused, worker.paused_at = worker.paused_at, perf_counter()
            self.spilled(Spilled(worker.address, PAUSED, paused, worker.paused_at, nan))

    def spilled(self, message: Spilled) -> None:
        """Add a worker's use of its disk, or a pause."""
        worker, event, *measured = message
        row = WORKER_EVENT.pack(self.numbers.get(worker, -1), EVENTS.index(event), *measured)
        for session in self.sessions.of_blocks():
            if session.has_room():
                session.batch.events += row

    def add_samples(self, message: ProcessSamples) -> None:
        """Add samples of processes."""
        number = self.numbers.get(message.worker, SCHEDULER)
        for session in self.sessions.of_blocks("processes"):
            if session.has_room(len(message.rows)):
                session.batch.processes.append((number, message.rows))

    async def ask(self, message: Mapping[str, object], seconds: float, doing: str) -> list[Any]:
        """Ask the measuring workers; return answers within some seconds."""
        requests = {
            worker.address: asyncio.ensure_future(
                self.scheduler.broadcast(msg=message, workers=[worker.address])
            )
            for worker in self.present.values()
            if worker.facts.get("measured")
        }
        if requests:
            await asyncio.wait(requests.values(), timeout=seconds)
        answers = []
        for address, request in requests.items():
            if not request.done():
                request.cancel()
                self.sessions.faults[f"{doing}: no answer from {address} in {seconds:g} s"] += 1
            elif request.exception() is None:
                answers.append(request.result()[address])
            elif address in self.present:
                self.sessions.faults[f"{doing}: {request.exception()!r}"] += 1
        return answers

    async def settle(self) -> None:
        """Send new settings to the workers, by the wish of the most demanding session."""
        wanted = [session.wants for session in self.sessions.by_name.values()]
        stacks = [wants["stacks"] for wants in wanted if wants.get("stacks")]
        number = self.settings["number"]
        settings: Settings = {
            "number": number,
            "processes": min((w["processes"] for w in wanted if w.get("processes")), default=0),
            "stacks": [min(seconds) for seconds in zip(*stacks)],  # noqa: B905
            "waits": any(wants.get("waits") for wants in wanted),
            "steps": any(wants.get("lines") for wants in wanted),
        }
        if settings == self.settings:
            return
        self.settings = {**settings, "number": number + 1}
        self.stop()
        if settings["processes"]:
            self.sampled = perf_counter(), process_time()
            self.sampling = asyncio.ensure_future(self.sample_regularly(settings["processes"]))
        message = {"op": SETTINGS, "settings": self.settings}
        await self.ask(message, SECONDS_TO_SETTLE, "changing what the workers measure")

    async def sample_regularly(self, seconds: float) -> None:
        """Sample the scheduler's process, until cancelled."""
        await asyncio.sleep(min(seconds, SECONDS_TO_FIRST_SAMPLE))
        while True:
            self.sample()
            await asyncio.sleep(seconds)

    def sample(self) -> None:
        """Sample the scheduler's process, if a session wants samples."""
        if self.sampling is None:
            return
        with self.sessions.reporting("sampling the scheduler's process"):
            (time, cpu), self.sampled = self.sampled, (perf_counter(), process_time())
            percent = 100 * (self.sampled[1] - cpu) / max(self.sampled[0] - time, 1e-9)
            memory = self.process.memory_info().rss
            row = PROCESS.pack(self.sampled[0], os.getpid(), 0, memory, percent)
            self.add_samples(ProcessSamples("", row))

    def stop(self) -> None:
        """Stop sampling the scheduler's process."""
        if self.sampling is not None:
            self.sampling.cancel()
            self.sampling = None


NESTED = "Client-worker-"
"""Prefix of the ids of workers' clients for tasks."""
CLIENTS_OF_WORKERS = "worker-get-client"
"""Topic under which workers log that they have a client."""
UNRECORDED = "unrecorded"
SAME_COMPUTATION_SECONDS = 0.1
"""Tasks that are run again so soon after a computation was done belong to it."""


class RecordedComputation:
    """Graphs of one client, from the first task to run until all tasks are done.

    `active` is the number of tasks to run, `recorders` the `sessions` that want rows of tasks.
    `functions` has the tasks with a result and all tasks of each function; `seconds` and
    `cpu_of_tasks` are sums of those with a result. `needs` has the amounts of resources that tasks
    need, by function and resource; `supply` what the workers have at present, by resource.
    """

    def __init__(self, number: int, name: str, client: str, span: str, supply: Supply) -> None:
        self.number, self.name, self.client, self.span = number, name, client, span
        self.set_sessions([])
        self.start = self.stop = perf_counter()
        self.cpu_at_start, self.cpu = thread_time(), 0.0
        self.client_number = -1
        self.active = self.workers = self.failed = 0
        self.functions: dict[str, list[int]] = {}
        self.seconds = self.cpu_of_tasks = self.graph_bytes = 0.0
        self.again: list[RepeatedStep] = []
        self.needs: dict[tuple[str, str], float] = {}
        self.supply = supply

    def set_sessions(self, sessions: list[RecordedSession]) -> None:
        """Set the sessions of the client."""
        self.sessions = sessions
        self.recorders = [session for session in sessions if session.wants.get("tasks")]

    def described(self) -> ClusterComputation:
        """Make the message for clients."""
        cpu = thread_time() - self.cpu_at_start if self.active else self.cpu
        graph = self.number, self.name, self.client, self.span
        bounds = self.start, None if self.active else self.stop
        functions = [(name, done, total) for name, (done, total) in self.functions.items()]
        tasks, sums = (functions, self.failed), (self.seconds, self.cpu_of_tasks, self.graph_bytes)
        found = self.again, self.limits()
        return ClusterComputation(*graph, *bounds, self.workers, cpu, *tasks, *sums, *found)

    def add_needs(self, key: Hashable, ts: TaskState, amounts: Mapping[str, float]) -> None:
        """Note the resources that a task needs."""
        for resource, amount in amounts.items():
            function = function_of(key, ts) or ts.prefix.name
            self.needs[function, resource] = max(amount, self.needs.get((function, resource), 0.0))

    def limits(self) -> list[tuple[str, str, int]]:
        """Rows of `ResourceLimits`."""
        most = {name: max(amounts.values(), default=0.0) for name, amounts in self.supply.items()}
        # An amount may be infinite: then it limits nothing.
        return [
            (function, resource, int(most.get(resource, 0.0) // amount))
            for (function, resource), amount in self.needs.items()
            if amount > 0 and isfinite(most.get(resource, 0.0))
        ]

    def count_of(self, function: str, done: int, total: int) -> None:
        """Add to the counts of a function; of many functions the first have counts of their own."""
        if function not in self.functions and len(self.functions) >= MOST_NAMES:
            function = "others"
        counts = self.functions.setdefault(function, [0, 0])
        counts[0] += done
        counts[1] += total


class RecordedTask:
    """A task and its current run.

    `run` is the number of the row with the result, `counted_in` the computation that counts the
    task as progress.
    """

    __slots__ = (
        *("attempt", "computation", "counted_in", "is_done", "is_out"),
        *("queued", "queued_at", "run", "sent", "span", "worker", "worker_state"),
    )

    def __init__(self, computation: RecordedComputation) -> None:
        self.computation = computation
        self.span = computation.span
        self.attempt = 0
        self.queued = self.sent = 0.0
        self.queued_at: float | None = None
        self.run = -1
        self.worker = ""
        self.worker_state: WorkerState | None = None
        self.is_out = self.is_done = False
        self.counted_in: RecordedComputation | None = None


class ComputationTracker:
    """The current computation of each client.

    Attributes
    ----------
    name : str
        Part of the names of computations, different for each plugin of a scheduler.
    tasks : dict
        The tasks of `RunCollector`.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        sessions: SessionRegistry,
        tasks: dict[Hashable, RecordedTask],
    ) -> None:
        self.scheduler, self.sessions, self.tasks = scheduler, sessions, tasks
        self.open: dict[str, RecordedComputation] = {}
        self.workers_of_clients: dict[str, set[str]] = {}
        self.name = os.urandom(4).hex()
        self.count = 0
        self.seen_span: object = None

    def of_client(self, client: str, span: str = "") -> RecordedComputation:
        """The computation of a graph of a client, which may be a new computation."""
        if client.startswith(NESTED):
            # A task has submitted the graph: it belongs to the computation of that task.
            parent = self.parent_of(client)
            if parent is not None:
                return parent
        current = self.open.get(client)
        if current is not None and current.active:
            return current
        self.count += 1
        name = f"{self.scheduler.id}-{self.name}-{self.count}"
        supply = getattr(self.scheduler, "resources", {})
        new = self.open[client] = RecordedComputation(self.count, name, client, span, supply)
        new.workers = self.scheduler.total_nthreads
        new.set_sessions(self.sessions.of_client(client))
        return new

    def parent_of(self, client: str) -> RecordedComputation | None:
        """The computation of the task with a worker's client, or None if unknown.

        Distributed does not tell the task. With several programs, the client is taken to be one
        of the program with a task at a worker of the client. Otherwise no program gets the keys.
        """
        active = [c for c in self.open.values() if c.active and not c.client.startswith(NESTED)]
        clients = [*getattr(self.scheduler, "client_comms", ()), *(c.client for c in active)]
        program_of = self.sessions.program_of
        programs = {program_of(name) for name in clients if not name.startswith(NESTED)}
        if len(programs) > 1:
            addresses = self.workers_of_clients.get(client, ())
            workers = [self.scheduler.workers.get(address) for address in addresses]
            keys = [ts.key for worker in workers for ts in getattr(worker, "processing", ())]
            processing = [self.tasks[key].computation for key in keys if key in self.tasks]
            active = [computation for computation in active if computation in processing]
            programs = {program_of(computation.client) for computation in active}
        if len(programs) != 1:
            return None
        return max(active, key=lambda computation: computation.start)

    def worker_has_client(self, event: object) -> None:
        """Note that a worker has a client for its tasks.

        Tasks of the client from before are moved to the computation of the submitting task.
        """
        if not isinstance(event, dict) or not str(event["client"]).startswith(NESTED):
            return
        client = event["client"]
        self.workers_of_clients.setdefault(client, set()).add(event["worker"])
        nested = self.open.get(client)
        parent = self.parent_of(client) if nested is not None and nested.active else None
        if nested is None or parent is None:
            return
        for task in self.tasks.values():
            if task.computation is nested:
                task.computation = parent
            if task.counted_in is nested:
                task.counted_in = parent
        for function, counts in nested.functions.items():
            parent.count_of(function, *counts)
        nested.functions = {}
        for name in ("active", "failed"):
            setattr(parent, name, getattr(parent, name) + getattr(nested, name))
            setattr(nested, name, 0)

    def spans_of(
        self, tasks: Iterable[Hashable], assigned: Mapping[Hashable, Mapping[str, Sequence[str]]]
    ) -> dict[Hashable, str]:
        """Names of the spans of the tasks of a new graph.

        The scheduler has one span for all tasks of a group, such as the calls of one function: the
        span of the first task. In a group older than the graph, tasks have the span of the graph.
        """
        own = self.span_of_graph()
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

    def span_of_graph(self) -> str:
        """The name of the span of the last graph; empty without a span."""
        computations = getattr(self.scheduler, "computations", ())
        latest = computations[-1].annotations if computations else {}
        span = latest.get("span")
        if not isinstance(span, dict) or span is self.seen_span:
            return ""
        # The span stays there until a graph brings another one: an equal copy marks it as seen.
        self.seen_span = latest["span"] = dict(span)
        return span_name(span)

    def count_task(
        self, key: Hashable, task: RecordedTask, is_active: bool, finish: str, now: float
    ) -> None:
        """Count a task as active or not."""
        computation = task.computation
        if is_active:
            if not computation.active:
                computation = self.activate(task, now)
            computation.active += 1
        elif computation.active > 1:
            computation.active -= 1
        else:
            computation.active = 0
            computation.cpu = thread_time() - computation.cpu_at_start
        computation.stop = now
        if self.sessions.shows_progress:
            self.count_progress(key, task, finish)

    def activate(self, task: RecordedTask, now: float) -> RecordedComputation:
        """The computation of a task that makes its computation active."""
        computation = task.computation
        is_done = computation.stop != computation.start
        is_latest = self.open.get(computation.client) is computation
        if not is_latest or (is_done and now - computation.stop > SAME_COMPUTATION_SECONDS):
            # A result was lost, or is asked for again. Computations of one client do not overlap.
            computation = task.computation = self.of_client(computation.client)
        computation.workers = max(computation.workers, self.scheduler.total_nthreads)
        if not computation.active:
            computation.set_sessions(self.sessions.of_client(computation.client))
            for session in computation.sessions:
                session.computations[computation.number] = computation
        return computation

    def count_progress(self, key: Hashable, task: RecordedTask, finish: str) -> None:
        """Count a task for progress bars."""
        computation, is_new = task.computation, task.counted_in is not task.computation
        if finish in ACTIVE or finish == "memory":
            ts = self.scheduler.tasks[key]
            was_done, task.is_done = task.is_done and not is_new, finish == "memory"
            task.counted_in = computation
            function = function_of(key, ts) or ts.prefix.name
            computation.count_of(function, task.is_done - was_done, is_new)
        elif finish == "erred":
            computation.failed += 1
        if not computation.active:
            for session in computation.sessions:
                session.news.set()

    def worker_joined(self) -> None:
        """Note the largest number of threads in active computations."""
        for computation in self.open.values():
            if computation.active:
                computation.workers = max(computation.workers, self.scheduler.total_nthreads)

    def refresh(self) -> None:
        """Find the sessions of each computation, after a session has come or gone."""
        for computation in self.open.values():
            computation.set_sessions(self.sessions.of_client(computation.client))
            for session in computation.sessions if computation.active else ():
                session.computations[computation.number] = computation


class MemoryResult(NamedTuple):
    """A result in distributed memory."""

    computation: RecordedComputation
    nbytes: float
    start: float
    function: str


class ResultCollector:
    """Results in distributed memory, with a row for each released result."""

    def __init__(self, scheduler: Scheduler, sessions: SessionRegistry) -> None:
        self.scheduler, self.sessions = scheduler, sessions
        self.results: dict[Hashable, MemoryResult] = {}

    def transition(self, key: Hashable, task: RecordedTask, finish: str) -> None:
        """Note a result in memory, or record a released result."""
        now = perf_counter()
        if finish == "memory":
            state = self.scheduler.tasks[key]
            nbytes, function = float(state.get_nbytes()), function_of(key, state)
            self.results[key] = MemoryResult(task.computation, nbytes, now, function)
            return
        result = self.results.pop(key, None)
        if result is not None:
            for session in result.computation.sessions:
                self.record(session, key, result, now)

    def record(
        self, session: RecordedSession, key: Hashable, result: MemoryResult, stop: float
    ) -> None:
        """Add the row of a result."""
        size = RESULT.size + BYTES_PER_KEY + size_of(key)
        if not session.wants.get("results") or not session.has_room(size):
            return
        if result.function:
            session.batch.result_functions[len(session.batch.result_keys)] = result.function
        session.batch.result_keys.append(key)
        start = max(result.start, session.start)
        session.batch.results += RESULT.pack(result.computation.number, result.nbytes, start, stop)

    def record_present(self, session: RecordedSession) -> None:
        """Add the results in memory, up to now."""
        now = perf_counter()
        for key, result in self.results.items():
            if session in result.computation.sessions:
                self.record(session, key, result, now)


MOST_ORPHANS = 10_000
"""Cancelled runs with unknown ends; each takes about half a kilobyte."""


class RunCollector:
    """Tasks of the scheduler, with a row for each run.

    Attributes
    ----------
    tasks : dict
        Tasks by key.
    orphans : dict
        Cancelled runs without a message on their end, by key and id of the run.
    attempts : dict
        Last attempt of the tasks of orphans, also after the scheduler has forgotten the task.
    running : dict
        Messages of workers on current runs, by key.
    """

    def __init__(
        self, scheduler: Scheduler, sessions: SessionRegistry, workers: WorkerMonitor
    ) -> None:
        self.scheduler, self.sessions, self.workers = scheduler, sessions, workers
        self.tasks: dict[Hashable, RecordedTask] = {}
        self.computations = ComputationTracker(scheduler, sessions, self.tasks)
        self.results = ResultCollector(scheduler, sessions)
        self.orphans: dict[tuple[Hashable, int], RecordedTask] = {}
        self.attempts: dict[Hashable, int] = {}
        self.running: dict[Hashable, Running] = {}
        self.count = 0
        self.stimulus, self.now = "", 0.0

    def add_graph(
        self,
        client: str,
        keys: Iterable[Hashable],
        annotations: Mapping[str, Mapping[Hashable, Mapping[str, Any]]],
    ) -> None:
        """Add the tasks of a graph."""
        spans = self.computations.spans_of(keys, annotations.get("span", {}))
        computation = self.computations.of_client(client, next(iter(spans.values()), ""))
        if computation.recorders:
            states = [state for state in map(self.scheduler.tasks.get, keys) if state]
            computation.graph_bytes += bytes_of_arguments(states)
            with self.sessions.reporting("looking at a graph"):
                if "resources" in annotations:
                    for key, amounts in annotations["resources"].items():
                        computation.add_needs(key, self.scheduler.tasks[key], amounts)
                graph = {state.key: state.run_spec for state in states}
                seen = computation.recorders[0].seen
                computation.again += steps_again(graph.items(), seen)
                computation.again += chunks_read_again(graph)
        for key in keys:
            task = self.tasks.get(key)
            if task is None:
                task = self.tasks[key] = RecordedTask(computation)
                task.span = spans.get(key, "")
            elif not task.computation.active:
                task.computation = computation
        for session in computation.sessions:
            if session.wants.get("lines"):
                self.add_names(session, keys)

    def add_names(self, session: RecordedSession, keys: Iterable[Hashable]) -> None:
        """Send the steps of tasks with names that the session does not know, and dependents.

        The client knows the lines of steps. Where dask has made up a name, the client goes by those
        of the dependents. Of tasks with names of their own, such as futures, some are sent.
        """
        names, counts, states = session.names, session.counts, self.scheduler.tasks
        for key in keys:
            name = name_of_key(key)
            if name in names or type(name) is not str:
                continue
            ts = states[key]
            prefix = getattr(ts.prefix, "name", "")
            counts[prefix] += 1
            if counts[prefix] > MOST_NAMES or not session.has_room():
                continue
            names.add(name)
            dependents = islice(ts.dependents, MOST_DEPENDENTS)
            after = {name_of_key(other.key) for other in dependents}
            session.batch.names[name] = names_of_steps(ts.run_spec), list(after)

    def adopt(self) -> None:
        """Add the active tasks from before a session, of all clients: workers are busy with them.

        Tasks that other tasks submitted come last, when these are known.
        """

        def is_nested(ts: TaskState) -> bool:
            return any(wanter.client_key.startswith(NESTED) for wanter in ts.who_wants or ())

        active = [ts for ts in self.scheduler.tasks.values() if ts.state in ACTIVE]
        for ts in sorted(active, key=is_nested):
            if ts.key not in self.tasks:
                self.add_with_dependents(ts, ts.state)

    def add_with_dependents(self, ts: TaskState, state: str) -> None:
        """Add a task without a known graph, for the client of a dependent."""
        path, client = [ts], ""
        while not path[-1].who_wants:
            after = next((other for other in path[-1].dependents if other.state in ACTIVE), None)
            if after is None:
                break
            if after.key in self.tasks:
                client = self.tasks[after.key].computation.client
                break
            path.append(after)
        else:
            clients = [wanter.client_key for wanter in path[-1].who_wants or ()]
            client = next((name for name in clients if self.sessions.of_client(name)), clients[0])
        for dependent in path[1:]:
            # The search for the client of the next task ends there.
            self.add(dependent, client, dependent.state)
        self.add(ts, client, state)

    def add(self, ts: TaskState, client: str, state: str) -> None:
        """Add a task in its state."""
        task = self.tasks[ts.key] = RecordedTask(self.computations.of_client(client))
        now = perf_counter()
        if state == "processing":
            self.send(ts.key, task, now)
        elif state == QUEUED:
            task.queued_at = now
        if state in ACTIVE:
            self.computations.count_task(ts.key, task, True, state, now)

    def transition(  # noqa: C901 - a call more would take longer than most of its branches
        self,
        key: Hashable,
        start: str,
        finish: str,
        *args: object,
        stimulus_id: str = "",
        worker: str = "",
        nbytes: int | None = None,
        startstops: Iterable[Interval] | None = None,
        **kwargs: object,
    ) -> None:
        """Note a change of a task's state: the scheduler calls this several times for each task."""
        sessions = self.sessions
        if start == "memory" and not sessions.records_results:
            # A result that is forgotten is no news of a run.
            if finish == "forgotten":
                self.tasks.pop(key, None)
            return
        try:
            if stimulus_id != self.stimulus:
                # The clock is read once for all changes that follow from one message.
                self.stimulus, self.now = stimulus_id, perf_counter()
            now = self.now
            task = self.tasks.get(key)
            if task is None:
                if finish not in ACTIVE:
                    return
                self.add_with_dependents(self.scheduler.tasks[key], start)
                task = self.tasks[key]
            if finish == "processing":
                self.send(key, task, now)
            elif start == "processing":
                self.came_back(key, task, finish, worker, nbytes or 0, startstops=startstops)
            elif finish == "forgotten":
                del self.tasks[key]
            else:
                # A task that no worker can run is not queued.
                task.queued_at = now if finish == QUEUED else None
            if sessions.records_results:
                self.results.transition(key, task, finish)
            is_active = finish in ACTIVE
            if is_active is not (start in ACTIVE):
                self.computations.count_task(key, task, is_active, finish, now)
        except Exception as error:
            sessions.fault("transition", error)

    def send(self, key: Hashable, task: RecordedTask, now: float) -> None:
        """Note the sending of a task to a worker."""
        ts = self.scheduler.tasks[key]
        task.attempt = (task.attempt or self.attempts.get(key, 0)) + 1
        task.sent = now
        task.queued = 0.0 if task.queued_at is None else now - task.queued_at
        task.queued_at = None
        task.worker_state = ts.processing_on
        task.worker = ts.processing_on.address if ts.processing_on else ""
        task.is_out = True

    def came_back(
        self,
        key: Hashable,
        task: RecordedTask,
        finish: str,
        worker: str,
        nbytes: int,
        *,
        startstops: Iterable[Interval] | None,
    ) -> None:
        """Record a run, or await the end of a cancelled run."""
        ts = self.scheduler.tasks[key]
        metadata = ts.metadata
        measured: Any = metadata.pop(NAME, b"") if metadata else b""
        if measured and not metadata:
            ts.metadata = None
        if not task.is_out:
            return
        task.is_out = False
        worker = worker or task.worker
        if finish == "memory":
            outcome = OK
            # Most runs have only a row.
            row = measured if type(measured) is bytes else measured[0]
            if not row or run_id_of(row)[0] != ts.run_id:
                # The row is of a run before this one, or there is none.
                measured = b""
            elif self.sessions.shows_progress:
                start, stop, cpu, *_ = WORKER_ROW.unpack(row)
                task.computation.seconds += stop - start
                task.computation.cpu_of_tasks += cpu
        elif worker not in self.scheduler.workers:
            # The last of several workers that died with a task makes it fail.
            outcome = FAILED if finish == "erred" else UNFINISHED
            measured = RunMeasurements(b"", KILLED_WORKER * (finish == "erred"))
            startstops = last_heard_of(task.worker_state, ts)
        elif finish == "erred":
            outcome, measured = FAILED, b""
        else:
            # It may still run there: the worker says how it ends.
            if task.computation.recorders or self.sessions.is_shared:
                self.await_end(key, ts.run_id, task)
            return
        self.record(
            key,
            task,
            outcome,
            worker,
            measured,
            collected=self.now,
            startstops=startstops,
            nbytes=nbytes,
        )

    def record(
        self,
        key: Hashable,
        task: RecordedTask,
        outcome: int,
        worker: str,
        measured: Any = b"",
        *,
        collected: float = nan,
        startstops: Iterable[Interval] | None = None,
        nbytes: int = 0,
        recorders: Sequence[RecordedSession] | None = None,
    ) -> None:
        """Add a run to the sessions of its client, or to `recorders`.

        Parameters
        ----------
        measured : bytes or RunMeasurements
            Row of the worker, or all its measurements; empty if the worker did not measure the run.
        collected : float
            Time when the scheduler knew of the end.
        startstops : iterable of Interval, optional
            Times of distributed, for a run without a row.
        """
        number = self.count = self.count + 1
        if outcome == OK:
            task.run = number
        row, *more = (measured,) if type(measured) is bytes else measured
        is_measured = bool(row)
        if not is_measured:
            row = distributed_row(startstops)
        computation = task.computation
        if recorders is None:
            recorders = computation.recorders
        if self.sessions.is_shared or not recorders:
            self.record_for_others(computation, row, worker, recorders, is_measured)
            if not recorders:
                return
        if computation.client_number < 0:
            # Ids of clients of which nothing is recorded are not sent.
            clients = self.sessions.clients
            computation.client_number = clients.setdefault(computation.client, len(clients))
        state = self.scheduler.tasks.get(key)
        depends_on = self.runs_of(state.dependencies) if state and state.dependencies else ()
        details = None
        if (more and any(more)) or task.span != computation.span:
            _, error, metrics, waits, stacks, chunk, steps = RunMeasurements(b"", *more)
            details = RunDetails(error, metrics, task.span, waits, stacks, chunk, steps)
        run = (
            number,
            key,
            row,
            depends_on,
            (
                task.sent,
                collected,
                task.queued,
                nbytes,
                self.workers.numbers.get(worker, -1),
                computation.number,
                task.attempt,
                computation.client_number,
                outcome,
                worker != task.worker,
                is_measured,
            ),
        )
        # Most keys have a name: no call is made for these.
        is_named = type(key) is tuple or (type(key) is str and "-" in key)
        function = "" if is_named else function_of(key, state)
        for session in recorders:
            session.add_run(run, details, function)

    def runs_of(self, dependencies: Iterable[TaskState]) -> list[int]:
        """Numbers of the recorded runs of tasks."""
        tasks = (self.tasks.get(other.key) for other in dependencies)
        return [task.run for task in tasks if task is not None and task.run >= 0]

    def await_end(self, key: Hashable, run: int, task: RecordedTask) -> None:
        """Keep a cancelled run until a message on its end."""
        # The task may be run again meanwhile.
        self.orphans[key, run] = copy(task)
        self.attempts[key] = task.attempt
        if len(self.orphans) > MOST_ORPHANS:
            oldest = next(iter(self.orphans))
            orphan = self.pop_orphan(*oldest)
            if orphan is not None:
                self.record(oldest[0], orphan, CANCELLED, orphan.worker)
                for session in orphan.computation.recorders:
                    session.unmeasured[NOT_HEARD_OF] += 1

    def pop_orphan(self, key: Hashable, run: int) -> RecordedTask | None:
        """Remove and return a cancelled run."""
        task = self.orphans.pop((key, run), None)
        if task is not None and self.attempts.get(key) == task.attempt:
            del self.attempts[key]
        return task

    def run_ended(self, message: RunEnded) -> None:
        """Record a run without a result."""
        key, run, worker, outcome, sent = message
        task = self.pop_orphan(key, run)
        if task is None:
            task = self.tasks.get(key)
            # A task that is stolen is released, too, and runs elsewhere.
            if task is None or not task.is_out or outcome == CANCELLED:
                return
            state = self.scheduler.tasks.get(key)
            if state is not None and run != state.run_id:
                # The end of an earlier run is known.
                return
        task.is_out = False
        self.record(key, task, outcome, worker, sent, collected=perf_counter())

    def is_running(self, message: Running) -> None:
        """Note a current run."""
        self.running[message.key] = message

    def record_running(self, session: RecordedSession) -> int:
        """Record the current runs of a session at its end; return their number."""
        client, running = session.client, 0
        ending = [session] if session.wants.get("tasks") else []
        self.record_orphans(client, ending)
        for key, task in self.tasks.items():
            if task.is_out and task.computation.client == client:
                running += 1
                said, measured = self.running.get(key), RunMeasurements(b"")
                if said is not None:
                    row = WORKER_ROW.pack(said.start, *[nan] * 4, said.thread, said.run)
                    measured = RunMeasurements(row, stacks=said.stacks)
                self.record(key, task, UNFINISHED, task.worker, measured, recorders=ending)
        if ending:
            self.record_others_running(session)
        # The next session that ends asks the workers again.
        self.running.clear()
        for computation in session.computations.values():
            if computation.active:
                computation.stop = perf_counter()
        return running

    def record_orphans(
        self, client: str | None = None, recorders: Sequence[RecordedSession] | None = None
    ) -> None:
        """Record the cancelled runs of a client, or of all clients, with unknown ends."""
        for (key, _), task in list(self.orphans.items()):
            if client is None or task.computation.client == client:
                self.record(key, task, CANCELLED, task.worker, recorders=recorders)

    def received(self, message: Received) -> None:
        """Add a transfer to the sessions of the task, or of a dependent."""
        key, source, destination, *measured = message
        task = self.tasks.get(key)
        run = -1 if task is None else task.run
        recorders = () if task is None else task.computation.recorders
        if run < 0 and not recorders:
            # The result was there before, or was scattered.
            state = self.scheduler.tasks.get(key)
            dependents = state.dependents if state is not None else ()
            tasks = (self.tasks.get(dependent.key) for dependent in dependents)
            recording = (task.computation.recorders for task in tasks if task is not None)
            recorders = next(filter(None, recording), ())
        numbers = self.workers.numbers
        workers = numbers.get(source, -1), numbers.get(destination, -1)
        for session in recorders:
            if session.has_room():
                session.batch.transfers += TRANSFER.pack(run, *workers, *measured)

    def is_unmeasured(self, message: Unmeasured) -> None:
        """Count a task without measurements."""
        task = self.tasks.get(message.key)
        for session in () if task is None else task.computation.sessions:
            session.unmeasured[message.kind] += 1

    def record_for_others(
        self,
        computation: RecordedComputation,
        row: bytes,
        worker: str,
        recorders: Sequence[RecordedSession],
        is_measured: bool,
    ) -> None:
        """Add the time of a run to the programs without rows of the run."""
        if computation.client.startswith(NESTED):
            for session in self.sessions.of_blocks():
                session.unmeasured[NESTED] += 1
        start, stop, _, seceded, *_ = WORKER_ROW.unpack(row)
        stop = stop if isnan(seceded) else seceded
        if isnan(start + stop):
            return
        if not is_measured:
            start, stop = self.at_worker(worker, start), self.at_worker(worker, stop)
        programs = {session.wants.get("program") for session in recorders}
        for session in self.sessions.of_blocks():
            if session.wants.get("program") not in programs:
                self.add_other(session, worker, start, stop)

    def record_others_running(self, session: RecordedSession) -> None:
        """Add the current runs of other programs at the end of a session."""
        block, program = session.wants.get("block"), session.wants.get("program")
        sessions = self.sessions.by_name.values()
        if block and sum(other.wants.get("block") == block for other in sessions) > 1:
            # The last session of the block has them.
            return
        now = perf_counter()
        for key, task in self.tasks.items():
            recorders = task.computation.recorders
            if not task.is_out or any(s.wants.get("program") == program for s in recorders):
                continue
            said = self.running.get(key)
            if said is not None:
                self.add_other(session, task.worker, said.start, said.until)
            elif self.is_executing(key, task.worker):
                # The task ran before its worker measured.
                start, until = (self.at_worker(task.worker, t) for t in (task.sent, now))
                self.add_other(session, task.worker, start, until)

    def add_other(self, session: RecordedSession, worker: str, start: float, stop: float) -> None:
        """Add the time of a task of an unrecorded client."""
        if session.has_room(OTHER_TASK.size):
            number = self.workers.numbers.get(worker, -1)
            session.batch.others += OTHER_TASK.pack(number, start, stop)

    def is_executing(self, key: Hashable, worker: str) -> bool:
        """Return whether a worker runs a task, by its report of each second."""
        state = self.scheduler.workers.get(worker)
        return self.scheduler.tasks[key] in getattr(state, "executing", ())

    def at_worker(self, address: str, time: float) -> float:
        """Convert a time from the scheduler's clock to a worker's."""
        worker = self.workers.present.get(address)
        return time - worker.clock[-1][1] if worker and worker.clock else time

    def refresh(self) -> None:
        """Forget rows without a session, after a session has come or gone."""
        self.computations.refresh()
        if not self.sessions.records_results:
            self.results.results.clear()
        clients = {session.client for session in self.sessions.by_name.values()}
        self.orphans = {
            run: task
            for run, task in self.orphans.items()
            # A program may be shown the runs of a client that has gone.
            if self.sessions.is_shared or task.computation.client in clients
        }
        self.attempts = {key: self.attempts.get(key, 0) for key, _ in self.orphans}

    def restart(self) -> None:
        """Forget all tasks and results."""
        for computation in self.computations.open.values():
            computation.active, computation.stop = 0, perf_counter()
        self.record_orphans()
        self.orphans.clear()
        self.attempts.clear()
        for session in self.sessions.by_name.values():
            self.results.record_present(session)
        self.results.results.clear()
        self.tasks.clear()

    def forget_rows(self) -> None:
        """Remove measurements from the scheduler's tasks."""
        for ts in self.scheduler.tasks.values():
            if ts.metadata and NAME in ts.metadata:
                del ts.metadata[NAME]
                ts.metadata = ts.metadata or None


OPERATIONS = ("attach", "ready", "pull", "detach", "left", "clock", "worker")
SECONDS_TO_STOP_WORKERS = 1.0
SECONDS_TO_LEAVE = 1.0
SECONDS_TO_REPLY = 0.05
SECONDS_TO_BE_READY = 1.0


class DaskDiagSchedulerPlugin(SchedulerPlugin):
    """Handlers for clients and workers, and hooks of the scheduler.

    Attributes
    ----------
    removing : asyncio.Lock
        Held while plugins are removed: a new session waits.
    leaving : dict
        Ended sessions without confirmation of the last reply, by name.
    is_closing : bool
        Whether the scheduler closes.
    """

    name = NAME
    idempotent = True

    async def start(self, scheduler: Scheduler) -> None:
        """Add the handlers, and the present workers and their clients."""
        self.scheduler = scheduler
        self.removing = asyncio.Lock()
        self.leaving: dict[str, RecordedSession] = {}
        self.is_closing = False
        self.sessions = SessionRegistry()
        self.workers = WorkerMonitor(scheduler, self.sessions)
        self.runs = RunCollector(scheduler, self.sessions, self.workers)
        # Called several times for each task: a detour would cost more than the work.
        self.transition = self.runs.transition
        self.receivers: dict[object, tuple[type, Callable[[Any], None]]] = {
            message.__name__: (message, receive)
            for message, receive in (
                (RunEnded, self.runs.run_ended),
                (Running, self.runs.is_running),
                (Received, self.runs.received),
                (Unmeasured, self.runs.is_unmeasured),
                (Spilled, self.workers.spilled),
                (ProcessSamples, self.workers.add_samples),
                (Fault, self.sessions.fault_of_worker),
            )
        }
        for name in OPERATIONS:
            scheduler.handlers[f"{NAME}_{name}"] = getattr(self, f"handle_{name}")
        for address in scheduler.workers:
            with self.sessions.reporting("start"):
                self.workers.join_earlier(address)
        with self.sessions.reporting("start"):
            for _, event in scheduler.get_events(CLIENTS_OF_WORKERS):
                self.runs.computations.worker_has_client(event)

    async def handle_attach(self, session: str, client: str, wants: Wants) -> AttachReply:
        """Begin to collect for a client, with its active tasks."""
        new = self.sessions.by_name[session] = RecordedSession(client, wants)
        async with self.removing:
            # The plugins of the last session are not removed from under this session.
            self.refresh()
        new.workers = {worker.number: worker for worker in self.workers.present.values()}
        with self.sessions.reporting("adopting tasks"):
            self.runs.adopt()
        await self.workers.settle()
        return {
            "scheduler": self.scheduler.id,
            "address": self.scheduler.address,
            "host": self.workers.host,
            "pid": os.getpid(),
        }

    def refresh(self) -> None:
        """Adapt to a session that has come or gone."""
        self.sessions.refresh()
        self.runs.refresh()

    async def handle_ready(self) -> None:
        """Answer after the first report of all workers, or after a second."""
        start = perf_counter()
        while not all(worker.facts for worker in self.workers.present.values()):
            if perf_counter() - start > SECONDS_TO_BE_READY:
                return
            await asyncio.sleep(0.005)

    async def handle_pull(self, session: str, received: int, wait: float = 0.0) -> PullReply:
        """Return new batches; wait up to `wait` seconds for the end of a computation."""
        collected = self.sessions.by_name.get(session)
        if collected is None:
            return {"status": "unknown"}
        if wait and not self.is_closing:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(collected.news.wait(), wait)
            if collected.is_ending:
                # The client may have stopped to wait: leaving brings the rows.
                return {"status": "OK"}
        collected.news.clear()
        collected.acknowledge(received)
        collected.seal()
        return {
            "status": "OK",
            "closing": self.is_closing,
            "batches": [batch for _, batch in collected.sealed],
            "clients": list(self.sessions.clients),
            "dropped": collected.dropped,
            "unmeasured": collected.unmeasured,
            "faults": self.sessions.faults,
        }

    async def handle_detach(self, session: str, received: int) -> PullReply:
        """End a session and return its last batches, again after a lost reply."""
        ending = self.leaving.get(session) or self.sessions.by_name.get(session)
        if ending is None:
            return {"status": "unknown"}
        self.leaving[session], last = ending, ending.last_reply
        if last is None or (last.done() and last.exception()):
            last = asyncio.ensure_future(self.last_reply(session, ending, received))
            ending.last_reply = last
        return await asyncio.shield(last)

    async def last_reply(self, name: str, session: RecordedSession, received: int) -> PullReply:
        """Collect current runs, and end the session despite errors."""
        if not session.is_ending:
            session.is_ending = True
            session.news.set()
            with self.sessions.reporting("recording what still runs"):
                self.workers.sample()
                doing = "asking the workers for what they have not sent"
                for messages in await self.workers.ask({"op": FLUSH}, SECONDS_TO_FLUSH, doing):
                    self.log_event(NAME, messages)
                session.running = self.runs.record_running(session)
                self.runs.results.record_present(session)
                for worker in self.workers.present.values():
                    self.workers.record_pause(worker)
        reply = await self.handle_pull(name, received)
        self.sessions.by_name.pop(name, None)
        with self.sessions.reporting("ending a session"):
            self.refresh()
            if self.sessions.by_name:
                await self.workers.settle()
        return {**reply, "running": session.running}

    async def handle_left(self, session: str) -> None:
        """Note that a client has its last batches; remove the plugins after the last session."""
        self.leaving.pop(session, None)
        if not self.is_closing:
            await self.remove_plugins()

    async def handle_clock(self) -> float:
        """Return the time of the scheduler's clock."""
        return perf_counter()

    async def handle_worker(self, address: str, facts: WorkerFacts) -> HelloReply:
        """Note facts of a worker; return the settings."""
        worker = self.workers.join(address)
        clock = facts.pop("clock", None)
        if isinstance(clock, (list, tuple)):
            worker.add_readings(clock)
        worker.facts.update(facts)
        self.workers.announce(worker)
        return {"settings": self.workers.settings, "host": self.workers.host}

    def update_graph(
        self,
        scheduler: Scheduler,
        *,
        client: str,
        tasks: Iterable[Hashable],
        annotations: Mapping[str, Mapping[Hashable, Mapping[str, Any]]],
        **kwargs: object,
    ) -> None:
        """Note a new graph."""
        with self.sessions.reporting("update_graph"):
            self.runs.add_graph(client, tasks, annotations)

    def log_event(self, topic: str, msg: Sequence[Sequence[object]]) -> None:
        """Receive an event: messages of our workers, or events of distributed on workers."""
        with self.sessions.reporting("log_event"):
            if topic in self.workers.present:
                self.workers.changed_status(self.workers.present[topic], msg)
            elif topic == CLIENTS_OF_WORKERS:
                self.runs.computations.worker_has_client(msg)
            for kind, *values in msg if topic == NAME else ():
                message, receive = self.receivers[kind]
                receive(message(*values))
        if topic == NAME:
            # The scheduler would remember 100,000 messages.
            truncate = getattr(getattr(self.scheduler, "_broker", None), "truncate", None)
            if truncate is not None:
                truncate(NAME)

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Note that a worker has joined."""
        with self.sessions.reporting("add_worker"):
            self.workers.join(worker)
            self.runs.computations.worker_joined()

    def remove_worker(self, scheduler: Scheduler, worker: str, **kwargs: object) -> None:
        """Note that a worker has left or is lost."""
        with self.sessions.reporting("remove_worker"):
            self.workers.leave(worker, str(kwargs.get("stimulus_id", "")))

    def restart(self, scheduler: Scheduler) -> None:
        """Forget all tasks, as the scheduler does."""
        self.runs.restart()

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """End the sessions of a client that goes without leaving, such as a killed client."""
        self.runs.computations.workers_of_clients.pop(client, None)
        sessions, leaving = self.sessions.by_name, self.leaving
        known = {**sessions, **leaving}
        ended = [name for name, session in known.items() if session.client == client]
        for name in ended:
            sessions.pop(name, None)
            leaving.pop(name, None)
        self.refresh()
        if ended:
            change = self.workers.settle() if sessions else self.remove_plugins()
            self._change = asyncio.ensure_future(change)

    async def before_close(self) -> None:
        """Let clients pull the last rows and leave."""
        self.is_closing = True
        for session in self.sessions.by_name.values():
            session.news.set()
        start = perf_counter()
        while self.sessions.by_name and perf_counter() - start < SECONDS_TO_LEAVE:
            await asyncio.sleep(SECONDS_TO_REPLY / 5)
        await asyncio.sleep(SECONDS_TO_REPLY)

    async def close(self) -> None:
        """Stop, also with clients left."""
        self.stop()

    def stop(self) -> None:
        """Remove the handlers, and stop sampling."""
        for name in OPERATIONS:
            self.scheduler.handlers.pop(f"{NAME}_{name}", None)
        forget_handlers()
        self.workers.stop()

    async def remove_plugins(self) -> None:
        """Remove all plugins from the cluster, unless there is a new session."""
        scheduler = self.scheduler
        async with self.removing:
            is_other = scheduler.plugins.get(NAME) is not self
            if is_other or self.sessions.by_name or self.leaving:
                return
            await self.remove_plugins_of_workers()
            if self.sessions.by_name or self.leaving:
                return
            # No session can come from here on: nothing is awaited.
            with self.sessions.reporting("stopping"):
                self.stop()
            scheduler.remove_plugin(NAME)
            getattr(getattr(scheduler, "_broker", None), "_topics", {}).pop(NAME, None)
            # Tasks of other clients, and tasks that ended meanwhile, have rows.
            self.runs.forget_rows()

    async def remove_plugins_of_workers(self) -> None:
        """Have the scheduler remove the plugins of workers; wait a second at most."""
        scheduler = self.scheduler
        if NAME not in scheduler.worker_plugins:
            return
        self._removal = asyncio.ensure_future(scheduler.unregister_worker_plugin(None, NAME))
        with (
            self.sessions.reporting("removing the workers' plugins"),
            # A worker that does not answer now removes its plugin when it does.
            suppress(asyncio.TimeoutError),
        ):
            await asyncio.wait_for(asyncio.shield(self._removal), SECONDS_TO_STOP_WORKERS)
        for worker in self.workers.present.values():
            # The worker measures no more, until it says so again.
            worker.facts = {}


def size_of(key: Hashable) -> int:
    """The number of letters and bytes of a key, of any length if made by users."""
    kind = type(key)
    if kind is str or kind is bytes:
        return len(key)  # type: ignore[arg-type]
    return sum(map(size_of, key)) if kind is tuple else 0  # type: ignore[call-overload]


TASKS_LOOKED_AT = 10
"""Tasks of a graph whose arguments are measured, about."""
SMALL_ARGUMENT = 1000
"""Bytes below which an argument does not count: a number or a name."""


def bytes_of_arguments(states: Sequence[TaskState]) -> float:
    """Bytes of the data that the tasks of a graph are given, estimated from a few tasks."""
    few = states[:: max(1, len(states) // TASKS_LOOKED_AT)]
    total = 0
    for state in few:
        spec = state.run_spec
        values = *getattr(spec, "args", ()), *getattr(spec, "kwargs", {}).values()
        for value in (*values, getattr(spec, "value", None)):
            size = sizeof(value)
            if size >= SMALL_ARGUMENT:
                total += size
    return total * len(states) / len(few) if few else 0.0


def distributed_row(startstops: Iterable[Interval] | None) -> bytes:
    """The row of a run without measurements, with distributed's times."""
    to_clock = perf_counter() - time()
    for interval in startstops or ():
        if interval["action"] == "compute":
            start, stop = interval["start"] + to_clock, interval["stop"] + to_clock
            return WORKER_ROW.pack(start, stop, nan, nan, nan, 0, 0)
    return NOT_STARTED


def last_heard_of(worker: WorkerState | None, state: TaskState) -> Sequence[Interval]:
    """The start of a run without an end, if a worker that died has reported the run."""
    lasted = getattr(worker, "executing", {}).get(state)
    if worker is None or lasted is None:
        return ()
    return ({"action": "compute", "start": worker.last_seen - lasted, "stop": nan},)


def span_name(span: Mapping[str, Sequence[str]]) -> str:
    """The name of a span, with the spans around it."""
    return "/".join(map(str, span.get("name", ())))


def function_of(key: Hashable, state: TaskState | None) -> str:
    """The name of a task's function for a key without one, like ``"c"`` and ``7``; else empty."""
    if type(key) is tuple or (type(key) is str and "-" in key):
        return ""
    try:
        function = getattr(state.run_spec, "func", None) if state is not None else None
        return "" if function is None else str(funcname(function))
    except Exception:
        # The user may have made anything of it: the key has to do.
        return ""
