"""The base of all profilers: when they are active, their computations, and clusters."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, Any, ParamSpec

from dask.callbacks import Callback

from dask_diag.capture.computation import (
    STATE_KEY,
    Computation,
    ComputationSnapshot,
    Readings,
    begin,
)
from dask_diag.capture.keys import PlannedTasks, tasks_not_submitted
from dask_diag.capture.session import Session, count_end, finish
from dask_diag.cluster.recorder import ClusterRecorder
from dask_diag.errors import NotRegisteredError
from dask_diag.formatting import counted, seconds
from dask_diag.hooks.callbacks import distributed_client, hold, release, sees_overlapping_computes
from dask_diag.hooks.stack import Graph, SchedulerState, is_on_stack, scheduler_frame
from dask_diag.system.periodic import take_cpu_of_own_threads

if TYPE_CHECKING:
    from typing_extensions import Self

    from dask_diag.cluster.log import ClusterLog
    from dask_diag.cluster.wire import Wants
    from dask_diag.model.recording import Recording
    from dask_diag.model.table import Table
    from dask_diag.views.text import Summary


def short_text(
    owner: object, session: Session, *, is_active: bool = False, series: int | None = None
) -> str:
    """Class, amount and duration of a recording, in a line; never raises, and builds no table.

    Parameters
    ----------
    owner : object
        The profiler.
    session : Session
        Captured computations. Tasks of a cluster are not counted.
    is_active : bool, optional
        Whether its time goes on.
    series : int, optional
        Number of series of a sampler of memory.
    """
    name = type(owner).__name__
    try:
        facts = [counted(series, "series", "series")] if series is not None else _computed(session)
        if session.start is None:
            facts.append("not started")
        else:
            stop = perf_counter() if is_active or session.stop is None else session.stop
            facts.append(seconds(stop - session.start))
    except Exception:
        # A computation ends, and releases what it has, while it is read.
        facts = ["recording"]
    return f"<{name}: {', '.join(facts)}>"


def _computed(session: Session) -> list[str]:
    computations = tuple(session.computations)
    if not computations:
        return []
    tasks = sum(computation.tasks_done()[0] for computation in computations)
    return [f"{counted(tasks, 'task')} in {counted(len(computations), 'computation')}"]


P = ParamSpec("P")


class Diagnostic(Callback):
    """A callback that may be entered, registered, or both, any number of times over.

    While it is active, it joins every client of distributed in this process.

    Attributes
    ----------
    clusters : ClusterRecorder
    start_time, end_time : float or None
        Start and last end of profiling, in seconds of ``time.perf_counter()``.
    """

    is_dask_diag = True
    draws = "tasks"

    def __init__(self) -> None:
        self.session = Session()
        self.clusters = ClusterRecorder(self._fault, self._received)
        self.followers: list[Diagnostic] = []
        self._leader: Diagnostic | None = None
        self._results: list[Any] = []
        self._numbers_in_results: set[int] = set()
        self._entered = 0
        self._registered = False
        self._hooks: dict[str, float] = {}
        self._open: dict[int, Computation] = {}
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return short_text(self, self.session, is_active=self.is_active)

    @property
    def start_time(self) -> float | None:
        """Start of profiling, in seconds of ``time.perf_counter()``."""
        return self.session.start

    @start_time.setter
    def start_time(self, time: float | None) -> None:
        self.session.start = time

    @property
    def end_time(self) -> float | None:
        """Last end of profiling, in seconds of ``time.perf_counter()``."""
        return self.session.stop

    @end_time.setter
    def end_time(self, time: float | None) -> None:
        self.session.stop = time

    def __enter__(self) -> Self:
        with self._lock:
            if not self.is_active:
                self.clear()
                self._activate()
            self._entered += 1
        return self

    def __exit__(self, *args: object) -> None:
        try:
            self._end_those_left(_is_over)
        finally:
            with self._lock:
                self._entered -= 1
                if not self.is_active:
                    self._deactivate()
                self.session.stop = perf_counter()

    async def __aenter__(self) -> Self:
        """Enter on the event loop of an asynchronous client."""
        self.__enter__()
        await self.clusters.joined()
        return self

    async def __aexit__(self, *args: object) -> None:
        """Leave, and wait until all is pulled from clusters."""
        self.__exit__(*args)
        await self.clusters.finish()

    def register(self) -> None:
        """Profile every computation of this process until `unregister`."""
        with self._lock:
            if not self.is_active:
                self._activate()
            self._registered = True

    def unregister(self) -> None:
        """End what `register` started. A block entered with ``with`` goes on.

        Raises
        ------
        NotRegisteredError
            If it is not registered. It is a KeyError, too.
        """
        self._end_those_left(_is_over)
        with self._lock:
            if not self._registered:
                name = type(self).__name__
                raise NotRegisteredError(f"this {name} is not registered; call register() first")
            self._registered = False
            if not self.is_active:
                self._deactivate()
                self.session.stop = perf_counter()

    def clear(self) -> None:
        """Forget all records except those of running computations."""
        with self._lock:
            self.session.clear(perf_counter() if self.is_active else None)
            self._results = []
            self._numbers_in_results = set()
        if self._leader is None:
            self.clusters.clear()

    @property
    def results(self) -> list[Any]:
        """List of a namedtuple for each record, including computations that have ended.

        It is made when asked for, from the recorded columns.
        """
        with self._lock:
            for computation in self.session.computations:
                snapshot = computation.finished
                if snapshot is None or computation.number in self._numbers_in_results:
                    continue
                results = self._results_of(snapshot)
                if results is not None:
                    self._results.extend(results)
                    self._numbers_in_results.add(computation.number)
            return self._results

    def _results_of(self, computation: ComputationSnapshot) -> list[Any] | None:
        """Results of a computation that has ended; None if they are incomplete."""
        return None

    @property
    def recording(self) -> Recording:
        """All measurements so far, as a frozen `Recording`."""
        raise NotImplementedError

    def summary(self) -> Summary:
        """Table of the measurements, by function, for a terminal or a notebook.

        See Also
        --------
        dask_diag.summary : the same for several diagnostics over one block.
        """
        from dask_diag.views.summary import summary

        return summary(self)

    def visualize(self, **kwargs: Any) -> Any:
        """Draw the measurements with bokeh; the arguments are those of `dask_diag.visualize`."""
        from dask_diag.views.visualize import visualize

        return visualize(self, **kwargs)

    @property
    def is_active(self) -> bool:
        """Whether the profiler is entered or registered now."""
        return self._registered or self._entered > 0

    def _activate(self) -> None:
        if self.session.start is None:
            self.session.start = perf_counter()
        self.session.anchor()
        self._guarded("to calibrate its hooks", self._calibrate)
        if hold(self._callback):
            # What they used before is no cost of what is measured from now on.
            take_cpu_of_own_threads()
        if self._leader is None:
            self._guarded("to join clusters", self._join_clusters)

    def _deactivate(self) -> None:
        if self._leader is None:
            self.leave_clusters()
        release(self._callback)

    def _fault(self, doing: str, error: BaseException) -> None:
        """Note an error of the diagnostic itself; the user's computation goes on."""
        text = f"{type(self).__name__} failed {doing}: {type(error).__name__}: {error}"
        self.session.fault(text)

    def notices(self) -> list[str]:
        """Remarks for a reader of the numbers."""
        notices = list(self.session.faults)
        client = distributed_client()
        if not self.session.computations and client and not self.clusters.logs:
            notices.append(
                f"no computation was seen on this process's schedulers: they ran on {client}, "
                "which was not recorded"
            )
        if not sees_overlapping_computes():
            notices.append(
                "this dask lets only the first of several overlapping computations be seen: use a "
                "version that dask_diag supports to see all"
            )
        logs = self.clusters.logs if self._leader is None else ()
        return notices + [text for log in logs for text in log.notices()]

    def _guarded(
        self, doing: str, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        try:
            work(*args, **kwargs)
        except Exception as error:
            self._fault(doing, error)

    def _start(self, dsk: Graph) -> None:
        self._guarded("at the start of a computation", self._begin, dsk, Readings.now())

    def _begin(self, dsk: Graph, began: Readings) -> None:
        self._end_those_left(partial(_is_before, dsk))
        try:
            computation = begin(dsk)
            computation.own.begin(began)
            computation.open_for.add(id(self))
            computation.hooks.update(self._hooks)
            with self._lock:
                # In one step: readers, and `clear`, find what a subclass has of it, too.
                self.session.computations.append(computation)
                self._open[computation.number] = computation
                self._began(computation)
            computation.own.end(is_before_tasks=True)
        except Exception:
            raise
        except BaseException:
            # Interrupted: dask calls `_finish` of a callback only if it could start.
            self._end_of(begin(dsk), failed=True)
            raise

    def _start_state(self, dsk: Graph, state: SchedulerState) -> None:
        began = Readings.now()
        self._guarded("at the start of a computation", self._meet_state, dsk, state)
        self._guarded("at the start of a computation", self._met_state, state, began)

    def _met_state(self, state: SchedulerState, began: Readings) -> None:
        computation = state[STATE_KEY]
        computation.own.begin(began)
        computation.own.end(is_before_tasks=True)
        # Tasks can be submitted from here on: no time of profilers looks like the scheduler's.
        computation.prepared = perf_counter()

    def _meet_state(self, dsk: Graph, state: SchedulerState) -> None:
        computation = state.get(STATE_KEY)
        if computation is None:
            computation = state[STATE_KEY] = begin(dsk)
            computation.state = state
            computation.planned = PlannedTasks(tasks_not_submitted(state))

    def _finish(self, dsk: Graph, state: SchedulerState, failed: bool) -> None:
        self._guarded("at the end of a computation", self._end, dsk, state, failed, Readings.now())

    def _end(self, dsk: Graph, state: SchedulerState, failed: bool, began: Readings) -> None:
        computation = state.get(STATE_KEY)
        if computation is None:
            # It failed before it had a state: all diagnostics are to end the same one.
            computation = state[STATE_KEY] = begin(dsk)
        self._end_of(computation, failed, began)

    def _end_of(
        self, computation: Computation, failed: bool, began: Readings | None = None
    ) -> None:
        """End a computation for this profiler; if interrupted, it stays open."""
        doing = "at the end of a computation"
        computation.own.begin(began or Readings.now())
        if computation.number in self._open:
            self._guarded(doing, self._ended, computation, failed)
        self._guarded(doing, finish, computation, failed)
        self._guarded(doing, count_end, computation)
        computation.open_for.discard(id(self))
        self._open.pop(computation.number, None)

    def scheduler_returns(self) -> None:
        """End the open computation of dask's scheduler that returns on this thread.

        That is where another callback, of which dask calls all in turn, raised before `_finish`.
        """
        self._end_those_left(_is_of_caller)

    def _end_those_left(self, is_left: Callable[[Computation], bool]) -> None:
        """End, as failed, the open computations whose schedulers have returned."""
        for computation in tuple(self._open.values()):
            if is_left(computation):
                self._end_of(computation, failed=True)

    def _calibrate(self) -> None:
        """Measure the cost of a subclass's hooks for a task, by name, into `_hooks`."""

    def _began(self, computation: Computation) -> None:
        """Start measuring a computation; the lock is held."""

    def _ended(self, computation: Computation, failed: bool) -> None:
        """Stop measuring a computation.

        Where it was interrupted, as by Ctrl-C, it is called again.
        """

    def follow(self, leader: Diagnostic, hooks: bool = False) -> None:
        """Leave clusters, and hooks that are called for each task, to a leader.

        The leader is active whenever this profiler is. It pulls each row of a cluster once for all,
        and does for each task what its followers need, without a call of each.

        Parameters
        ----------
        leader : Diagnostic
        hooks : bool, optional
            Whether dask still calls the hooks of this profiler for each task.
        """
        self.clusters = leader.clusters
        leader.followers.append(self)
        self._leader = leader
        if not hooks:
            # Of each callback dask calls what is not None.
            self._pretask = self._posttask = None

    def _wants(self) -> Wants:
        """Return the measurements to make on clusters."""
        return {}

    def _received(self, log: ClusterLog) -> None:
        """Handle pulled rows, on the event loop of a client."""

    def _join_clusters(self) -> None:
        wants = self._wants()
        for follower in self.followers:
            wants.update(follower._wants())
        self.clusters.start(wants)

    def leave_clusters(self) -> None:
        """Pull new rows and leave all clusters."""
        self._guarded("to leave clusters", self.clusters.stop)

    def _with_clusters(self, recording: Recording) -> Recording:
        """Add the rows of clusters to a recording of this process."""
        if not self.clusters.logs:
            return recording
        from dask_diag.cluster.tables import with_clusters

        self.clusters.pull()
        logs = self.clusters.logs
        return with_clusters(recording, logs, self._sampled_on_clusters(logs))

    def _sampled_on_clusters(self, logs: Sequence[ClusterLog]) -> dict[str, Table] | None:
        """Tables of samples from clusters; None if tasks are recorded there."""
        return None


def _is_of_caller(computation: Computation) -> bool:
    """Whether a computation belongs to the calling scheduler of dask."""
    return computation.thread == get_ident() and computation.frame == scheduler_frame() != 0


def _is_before(dsk: Graph, computation: Computation) -> bool:
    """Whether a computation on this thread belongs to an earlier scheduler than that of `dsk`."""
    if computation.thread != get_ident() or computation.dsk is dsk:
        return False
    # Frames have no other names than addresses, which are used again.
    is_reused = computation.frame == scheduler_frame() != 0
    return (is_reused and computation.pid == os.getpid()) or _is_over(computation)


def _is_over(computation: Computation) -> bool:
    """Whether the scheduler of a computation has left the stack of its thread."""
    if computation.pid != os.getpid():
        return False
    frame, thread = computation.frame, computation.thread
    return frame != 0 and not is_on_stack(frame, thread)
