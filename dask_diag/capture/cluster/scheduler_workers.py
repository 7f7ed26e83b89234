"""What the scheduler's side of capture learns of workers, and of processes.

This module is shipped: see `scheduler_plugin`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from time import perf_counter, process_time
from typing import TYPE_CHECKING, cast

from distributed.metrics import time

from dask_diag.capture.cluster.formats import (
    NAME,
    PROCESS,
    SCHEDULER,
    Sampled,
)
from dask_diag.capture.cluster.scheduler_records import NAN, PAUSED, Worker
from dask_diag.capture.cluster.scheduler_sessions import BYTES_PER_KEY, Computation, Session
from dask_diag.capture.cluster.scheduler_tasks import Task

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler


__all__ = ["MOST_READINGS", "ProcessUsage", "WorkerCollector", "thinned"]

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
