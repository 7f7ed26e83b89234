"""What the scheduler's side of capture learns of each run of a task.

This is done for every task of the cluster, on the scheduler's event loop: numbers are packed. This
module is shipped: see `scheduler_plugin`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import isnan
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from dask_diag.capture.cluster.formats import (
    NAME,
    WORKER_ROW,
    Sampled,
)
from dask_diag.capture.cluster.scheduler_records import (
    ACTIVE,
    CANCELLED,
    FAILED,
    NAN,
    NOT_SAMPLED,
    NOT_STARTED,
    OK,
    RUN,
    RUN_ID,
    RUN_ID_AT,
    UNFINISHED,
    End,
    RunDetails,
    unmeasured_row,
)
from dask_diag.capture.cluster.scheduler_results import ResultCollector
from dask_diag.capture.cluster.scheduler_sessions import BYTES_PER_KEY, Computation, Session
from dask_diag.capture.cluster.scheduler_tasks import Task, name_of_plain

if TYPE_CHECKING:
    from distributed.scheduler import TaskState

__all__ = ["MOST_ORPHANS", "RunCollector"]

MOST_ORPHANS = 10_000
"""Runs that were cancelled and of whose end nothing was heard; each takes about half a kilobyte."""
UNHEARD = "cancelled"
"""By what those beyond them are counted, for a notice."""


class RunCollector(ResultCollector):
    """Collects the rows of runs, by client."""

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
                self._count(task, True, ts.state, now)
            for other in ts.dependencies:
                if other.state in ACTIVE and other not in seen:
                    seen.add(other)
                    active.append(other)

    def _sent(self, key: Hashable, task: Task, now: float) -> None:
        ts = self.scheduler.tasks[key]
        task.attempt += 1
        task.sent = now
        task.queued = 0.0 if task.queued_at is None else now - task.queued_at
        task.queued_at = None
        task.worker = ts.processing_on.address if ts.processing_on else ""
        task.is_out = True

    def _came_back(  # noqa: C901 - as for `transition`
        self, key: Hashable, task: Task, finish: str, now: float, facts: Mapping[str, Any]
    ) -> None:
        """A task was done, or failed, or its worker has left, or no one wants it any more."""
        ts = self.scheduler.tasks[key]
        metadata, packed = ts.metadata, b""
        metrics: Sequence[object] = ()
        sampled = NOT_SAMPLED
        if metadata and NAME in metadata:
            packed = metadata.pop(NAME)
            if not metadata:
                ts.metadata = None
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
            elif self.shows_progress:
                self._add_seconds(task.computation, packed)
            details = None
            if metrics or sampled is not NOT_SAMPLED or task.span != task.computation.span:
                # Most have nothing but their numbers.
                details = "", metrics, task.span, *sampled
            end = OK, worker, now, measured, facts.get("nbytes") or 0
            self._add(key, task, packed, end, details)
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

    def _add_seconds(self, computation: Computation, row: bytes) -> None:
        """Add up what tasks took, for progress bars."""
        start, stop, cpu, *_ = WORKER_ROW.unpack(row)
        computation.seconds += stop - start
        computation.cpu_of_tasks += cpu

    def _await_end(self, key: Hashable, run: int, task: Task) -> None:
        """Hold a run that was cancelled until its worker says how it ended: not all workers do."""
        if not (task.computation.recorders or self.is_shared):
            return
        self.orphans[key, run] = task.copy()
        if len(self.orphans) > MOST_ORPHANS:
            # The oldest: if its worker says something now, it is not heard.
            name, oldest = next(iter(self.orphans.items()))
            self._record_orphans([(name, oldest)])
            for session in oldest.computation.recorders:
                session.unmeasured[UNHEARD] = session.unmeasured.get(UNHEARD, 0) + 1

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
        sampled = cast("Sampled", measured[3:] or NOT_SAMPLED)
        task = self.orphans.pop((key, run_id), None)
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

    def _record(self, key: Hashable, task: Task, row: bytes, end: End) -> None:
        """Record a run that ended in another way than with its result."""
        outcome, worker, time, measured, error, metrics, sampled = end
        has_details = error or metrics or any(sampled) or task.span != task.computation.span
        details = (error, metrics, task.span, *sampled) if has_details else None
        self._add(key, task, row, (outcome, worker, time, measured, 0.0), details)

    def _add(
        self,
        key: Hashable,
        task: Task,
        row: bytes,
        end: tuple[int, str, float, int, float],
        details: RunDetails | None,
    ) -> None:
        """Pack a run for every session of its client: how it ended, and what most have not."""
        number = self.row = self.row + 1
        # A plain tuple, unlike a named one, takes no time.
        outcome, worker, time, measured, nbytes = end
        if outcome == OK:
            task.row = number
        computation = task.computation
        recorders = computation.recorders
        if self.is_shared or not recorders:
            self._record_for_others(row, worker, recorders)
            if not recorders:
                return
        if computation.client_number < 0:
            # Of its first run: the ids of clients of whom nothing is recorded are not sent.
            known = self.clients
            computation.client_number = known.setdefault(computation.client, len(known))
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

    def _record_for_others(self, row: bytes, worker: str, recorders: Sequence[Session]) -> None:
        """A task that a program does not record: when its worker was busy, and nothing else."""
        start, stop, _, seceded, *_ = WORKER_ROW.unpack(row)
        stop = stop if isnan(seceded) else seceded
        programs = {session.wants.get("program") for session in recorders}
        for session in self.sessions.values():
            is_known = session.wants.get("program") in programs
            if is_known or not session.wants.get("tasks") or isnan(start + stop):
                continue
            if session.has_room(3 * 8):
                session.others.extend((self.numbers.get(worker, -1), start, stop))

    def _rows_of(self, dependencies: Iterable[TaskState]) -> list[int]:
        known = (self.tasks.get(other.key) for other in dependencies)
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
                end = End(UNFINISHED, task.worker, NAN, int(bool(row)), "", (), sampled)
                self._record(key, task, row or NOT_STARTED, end)
        for computation in session.computations.values():
            if computation.active:
                computation.stop = now
        return running

    def _record_orphans(self, orphans: Sequence[tuple[tuple[Hashable, int], Task]]) -> None:
        """Record runs that were cancelled and of whose end nothing was heard."""
        for (key, run), task in orphans:
            del self.orphans[key, run]
            self._record(key, task, NOT_STARTED, End(CANCELLED, task.worker, NAN, 0))

    def _is_running(
        self, key: Hashable, run: int, start: float, thread: int, *sampled: object
    ) -> None:
        row = WORKER_ROW.pack(start, NAN, NAN, NAN, NAN, thread, run)
        self.running[key] = row, cast("Sampled", sampled or NOT_SAMPLED)

    def _transferred(self, key: Hashable, source: str, worker: str, *measured: float) -> None:
        task = self.tasks.get(key)
        if task is None or task.row < 0:
            for session in self._recorders_of_dependents(key):
                count, nbytes = session.unattributed
                session.unattributed = count + 1, nbytes + measured[-1]
            return
        source_number, number = self.numbers.get(source, -1), self.numbers.get(worker, -1)
        for session in task.computation.recorders:
            if session.has_room(BYTES_PER_KEY):
                session.transfers.append((task.row, source_number, number, *measured))

    def _is_unmeasured(self, key: Hashable, kind: str) -> None:
        """A worker runs something that it cannot measure, or that has parts which are no tasks."""
        task = self.tasks.get(key)
        for session in () if task is None else task.computation.sessions:
            session.unmeasured[kind] = session.unmeasured.get(kind, 0) + 1
