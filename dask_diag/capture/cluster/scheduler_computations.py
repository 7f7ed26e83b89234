"""What the scheduler's side of capture learns of computations.

This module is shipped: see `scheduler_plugin`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from time import thread_time
from typing import TYPE_CHECKING

from dask_diag.capture.cluster.scheduler_records import ACTIVE, span_name
from dask_diag.capture.cluster.scheduler_sessions import Computation, Session
from dask_diag.capture.cluster.scheduler_tasks import Task
from dask_diag.capture.cluster.scheduler_workers import WorkerCollector

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler

__all__ = ["CLIENTS_OF_WORKERS", "NESTED", "ComputationCollector"]

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
