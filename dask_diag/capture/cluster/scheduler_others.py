"""What the scheduler's side of capture learns of tasks whose graph it has not seen, and of others'.

This module is shipped: see `scheduler_plugin`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from math import isnan
from time import perf_counter
from typing import TYPE_CHECKING, cast

from dask_diag.capture.cluster.formats import WORKER_ROW
from dask_diag.capture.cluster.scheduler_computations import NESTED
from dask_diag.capture.cluster.scheduler_records import ACTIVE, QUEUED
from dask_diag.capture.cluster.scheduler_results import ResultCollector
from dask_diag.capture.cluster.scheduler_sessions import Session
from dask_diag.capture.cluster.scheduler_tasks import Task

if TYPE_CHECKING:
    from distributed.scheduler import TaskState

__all__ = ["OthersCollector"]


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
