"""The scheduler's side of capture on a cluster: it collects rows of tasks until clients pull them.

It is shipped as source text, since the scheduler may lack this package or run another Python, with
the modules that it imports of this package: `shipping` has the list. They import nothing else of
it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import SchedulerPlugin

from dask_diag.capture.cluster.formats import NAME
from dask_diag.capture.cluster.handlers import forget_handlers
from dask_diag.capture.cluster.host import host_id
from dask_diag.capture.cluster.scheduler_records import ACTIVE, QUEUES, reason_of
from dask_diag.capture.cluster.scheduler_runs import RunCollector
from dask_diag.capture.cluster.scheduler_sessions import Session
from dask_diag.capture.cluster.scheduler_tasks import Task
from dask_diag.capture.cluster.scheduler_workers import thinned

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler

    from dask_diag.capture.cluster.messages import Wants

__all__ = ["DaskDiagSchedulerPlugin"]

OPERATIONS = ("attach", "pull", "detach", "clock", "worker")
SECONDS_TO_STOP_WORKERS = 1.0


class DaskDiagSchedulerPlugin(RunCollector, SchedulerPlugin):
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

    def stop(self) -> None:
        """Undo `start`."""
        for name in OPERATIONS:
            self.scheduler.handlers.pop(f"{NAME}_{name}", None)
        forget_handlers()
        self._stop_usage()

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
        where = {"address": self.scheduler.address, "host": self.host, "pid": os.getpid()}
        return {"scheduler": self.scheduler.id, "plugin": self.name_of_run, **where}

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
            "unattributed": collected.unattributed,
            "faults": self.faults,
        }

    async def handle_detach(self, session: str, received: int) -> dict[str, object]:
        """The last batches, with what still runs; the last session takes the plugins with it."""
        running = 0
        if session in self.sessions:
            # Who waits for news need not wait any more.
            self.sessions[session].news.set()
            try:
                self._sample_usage()
                for messages in await self._flush_workers():
                    self.log_event(NAME, messages)
                running = self._record_running(self.sessions[session])
                self._record_results(self.sessions[session])
                for worker in self.workers.values():
                    self._record_pause(worker, [self.sessions[session]])
            except Exception as error:
                self.fault("recording what still runs", error)
        try:
            reply = await self.handle_pull(session, received)
        finally:
            await self._end_session(session)
        return {**reply, "running": running}

    async def _end_session(self, name: str) -> None:
        """Forget a session, whatever fails; the last one takes the plugins with it."""
        self.sessions.pop(name, None)
        try:
            self._renew_sessions()
            if self.sessions:
                await self._settle()
        except Exception as error:
            self.fault("ending a session", error)
        if not self.sessions:
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

    async def _remove_plugins(self) -> None:
        try:
            self.stop()
        except Exception as error:
            self.fault("stopping", error)
        scheduler = self.scheduler
        if NAME in scheduler.plugins:
            scheduler.remove_plugin(NAME)
        if NAME in scheduler.worker_plugins:
            removal = asyncio.ensure_future(scheduler.unregister_worker_plugin(None, NAME))
            removal.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._change = removal
            # Where one does not answer it goes on: the worker removes it when it does.
            await asyncio.wait([removal], timeout=SECONDS_TO_STOP_WORKERS)
            if removal.done() and removal.exception() is not None:
                self._count_fault(f"removing the workers' plugins: {removal.exception()!r}")
        if NAME not in scheduler.plugins:
            getattr(getattr(scheduler, "_broker", None), "_topics", {}).pop(NAME, None)
            # Of tasks of others, and those done while the workers' plugins were removed.
            self._forget_rows()

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
            task = self.tasks.get(key) or self._task_of_others(key, finish)
            if task is None:
                return
            if finish == "processing":
                self._sent(key, task, now)
            elif start == "processing":
                self._came_back(key, task, finish, now, kwargs)
            elif finish == "forgotten":
                del self.tasks[key]
            elif finish in QUEUES:
                task.queued_at = now
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
        for session in self.sessions.values():
            self._record_results(session)
        self.tasks.clear()
