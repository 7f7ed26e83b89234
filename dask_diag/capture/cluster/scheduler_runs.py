"""What the scheduler's side of capture learns of each run of a task.

This is done for every task of the cluster, on the scheduler's event loop: numbers are packed. This
module is shipped: see `scheduler_plugin`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any, cast

from dask_diag.capture.cluster.formats import (
    NAME,
    WORKER_ROW,
    Sampled,
)
from dask_diag.capture.cluster.scheduler_packing import RunPacker
from dask_diag.capture.cluster.scheduler_records import (
    CANCELLED,
    FAILED,
    NAN,
    NO_SAMPLES,
    NOT_STARTED,
    OK,
    RUN_ID,
    RUN_ID_AT,
    UNFINISHED,
    End,
    unmeasured_row,
)
from dask_diag.capture.cluster.scheduler_sessions import BYTES_PER_KEY, Session
from dask_diag.capture.cluster.scheduler_tasks import Task

__all__ = ["MOST_ORPHANS", "RunCollector"]

MOST_ORPHANS = 10_000
"""Runs that were cancelled and of whose end nothing was heard; each takes about half a kilobyte."""
NO_ROW = -1
"""In place of the number of a run, of what none that is recorded made."""
UNHEARD = "cancelled"
"""By what those beyond them are counted, for a notice."""


class RunCollector(RunPacker):
    """Collects the rows of runs, by client."""

    def _came_back(
        self, key: Hashable, task: Task, finish: str, now: float, facts: Mapping[str, Any]
    ) -> None:
        """A task was done, or failed, or its worker has left, or no one wants it any more."""
        ts = self.scheduler.tasks[key]
        metadata = ts.metadata
        packed = metadata.pop(NAME, b"") if metadata else b""
        if packed and not metadata:
            ts.metadata = None
        if not task.is_out:
            return
        worker = facts.get("worker") or task.worker
        computation = task.computation
        if (
            finish == "memory"
            and type(packed) is bytes
            and packed
            and RUN_ID.unpack_from(packed, RUN_ID_AT)[0] == ts.run_id
            and computation.recorders
            and not self.is_shared
            and task.span == computation.span
            # As `name_of_plain` has it: its key names its function.
            and (type(key) is tuple or (type(key) is str and "-" in key))
        ):
            # Most have nothing but their numbers, which are packed later.
            self.row = task.row = number = self.row + 1
            if computation.client_number < 0:
                self._number_client(computation)
            if self.shows_progress:
                self._add_seconds(computation, packed)
            depends_on = self._rows_of(ts.dependencies) if ts.dependencies else ()
            run = (
                number,
                key,
                packed,
                task.sent,
                now,
                task.queued,
                facts.get("nbytes") or 0,
                self.numbers.get(worker, -1),
                computation.number,
                task.attempt,
                computation.client_number,
                worker != task.worker,
                depends_on,
            )
            for session in computation.recorders:
                session.add_ended(run)
        elif finish == "memory":
            self._add_result(key, task, packed, now, facts)
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

    def _add_result(
        self, key: Hashable, task: Task, sent: Any, now: float, facts: Mapping[str, Any]
    ) -> None:
        """Add a run that brought its result, and has more than its numbers, or was not measured."""
        metrics: Sequence[object] = ()
        sampled, measured, packed = NO_SAMPLES, 1, sent
        if type(sent) is not bytes:
            packed, metrics, *more = sent
            sampled = cast("Sampled", more or NO_SAMPLES)
        run_id = self.scheduler.tasks[key].run_id
        if not packed or RUN_ID.unpack_from(packed, RUN_ID_AT)[0] != run_id:
            # Of a run before this one, or of one that was not measured.
            packed, metrics, measured = unmeasured_row(facts.get("startstops")), (), 0
            sampled = NO_SAMPLES
        elif self.shows_progress:
            self._add_seconds(task.computation, packed)
        details = None
        if metrics or sampled is not NO_SAMPLES or task.span != task.computation.span:
            details = "", metrics, task.span, *sampled
        worker = facts.get("worker") or task.worker
        end = OK, worker, now, measured, facts.get("nbytes") or 0
        self._add(key, task, packed, end, details)

    def _await_end(self, key: Hashable, run: int, task: Task) -> None:
        """Hold a run that was cancelled until its worker says how it ended: not all workers do."""
        if not (task.computation.recorders or self.is_shared):
            return
        self.orphans[key, run] = task.copy()
        self.attempts[key] = task.attempt
        if len(self.orphans) > MOST_ORPHANS:
            # The oldest: if its worker says something now, it is not heard.
            name, oldest = next(iter(self.orphans.items()))
            self._orphan(*name)
            self._record_orphans([(name, oldest)])
            for session in oldest.computation.recorders:
                session.unmeasured[UNHEARD] = session.unmeasured.get(UNHEARD, 0) + 1

    def _orphan(self, key: Hashable, run: int) -> Task | None:
        """Take out a run that was cancelled, if its end was not heard."""
        task = self.orphans.pop((key, run), None)
        if task is not None and self.attempts.get(key) == task.attempt:
            del self.attempts[key]
        return task

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
        sampled = cast("Sampled", measured[3:] or NO_SAMPLES)
        task = self._orphan(key, run_id)
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

    def _record_running(self, session: Session) -> int:
        """Record the tasks of a session that ends, and that are out; how many these are.

        Other sessions of its client go on: they will have these runs when these end.
        """
        now, running = perf_counter(), 0
        ending = [session] if session.wants.get("tasks") else []
        client = session.client
        of_client = [
            orphan for orphan in self.orphans.items() if orphan[1].computation.client == client
        ]
        self._record_orphans(of_client, ending)
        for key, task in self.tasks.items():
            if task.is_out and task.computation.client == client:
                running += 1
                row, sampled, _ = self.running.get(key, (b"", NO_SAMPLES, NAN))
                end = End(UNFINISHED, task.worker, NAN, int(bool(row)), "", (), sampled)
                self._record(key, task, row or NOT_STARTED, end, ending)
        if ending:
            self._record_others_running(session)
        # The next session that ends asks the workers again.
        self.running.clear()
        for computation in session.computations.values():
            if computation.active:
                computation.stop = now
        return running

    def _record_orphans(
        self,
        orphans: Iterable[tuple[tuple[Hashable, int], Task]],
        recorders: Sequence[Session] | None = None,
    ) -> None:
        """Record runs that were cancelled and of whose end nothing was heard."""
        for (key, _), task in orphans:
            self._record(key, task, NOT_STARTED, End(CANCELLED, task.worker, NAN, 0), recorders)

    def _is_running(
        self, key: Hashable, run: int, bounds: Sequence[float], thread: int, *sampled: object
    ) -> None:
        start, until = bounds
        row = WORKER_ROW.pack(start, NAN, NAN, NAN, NAN, thread, run)
        self.running[key] = row, cast("Sampled", sampled or NO_SAMPLES), until

    def _transferred(self, key: Hashable, source: str, worker: str, *measured: float) -> None:
        task = self.tasks.get(key)
        row = NO_ROW if task is None else task.row
        sessions: Sequence[Session] = () if task is None else task.computation.recorders
        if row < 0 and not sessions:
            # It was there before, or was scattered.
            sessions = self._recorders_of_dependents(key)
        source_number, number = self.numbers.get(source, -1), self.numbers.get(worker, -1)
        for session in sessions:
            if session.has_room(BYTES_PER_KEY):
                session.transfers.append((row, source_number, number, *measured))

    def _is_unmeasured(self, key: Hashable, kind: str) -> None:
        """A worker runs something that it cannot measure, or that has parts which are no tasks."""
        task = self.tasks.get(key)
        for session in () if task is None else task.computation.sessions:
            session.unmeasured[kind] = session.unmeasured.get(kind, 0) + 1
