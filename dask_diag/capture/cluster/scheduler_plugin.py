"""The scheduler's side of capture on a cluster: it collects rows of tasks until clients pull them.

It is shipped as source text, since the scheduler may lack this package or run another Python, with
the modules that it imports of this package: `shipping` has the list. They import nothing else of
it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import SchedulerPlugin

from dask_diag.capture.cluster.formats import NAME
from dask_diag.capture.cluster.host import host_id
from dask_diag.capture.cluster.scheduler_computations import CLIENTS_OF_WORKERS
from dask_diag.capture.cluster.scheduler_leaving import OPERATIONS, Leaving, LeavingCollector
from dask_diag.capture.cluster.scheduler_records import ACTIVE, QUEUED, reason_of
from dask_diag.capture.cluster.scheduler_sessions import Session
from dask_diag.capture.cluster.scheduler_workers import thinned

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler

    from dask_diag.capture.cluster.messages import Wants

__all__ = ["DaskDiagSchedulerPlugin"]

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
