"""The engine: one set of hooks for a computation, for all profilers that are active in it.

What is done here is done for every task: it is counted in instructions (``make bench``).
"""

from __future__ import annotations

import os
import sys
import weakref
from array import array
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property, partial
from math import nan
from struct import error as NotANumberError  # noqa: N812
from threading import get_ident
from time import perf_counter, sleep, thread_time
from types import FrameType
from typing import TYPE_CHECKING, Any

from dask.callbacks import Callback

from dask_diag.capture.computation import Computation, JoinedAt, Readings, start_running
from dask_diag.capture.keys import PlannedTasks, tasks_not_submitted
from dask_diag.capture.lines.steps import TaskKinds
from dask_diag.capture.log import dependents_of
from dask_diag.capture.results import bytes_in_graph
from dask_diag.capture.session import count_end, finish
from dask_diag.capture.task import ThreadNotingTask, TimedTask, pack_row
from dask_diag.hooks.callbacks import claim_running, disclaim
from dask_diag.hooks.lines import capturing
from dask_diag.hooks.stack import (
    CallbackTuple,
    Graph,
    SchedulerState,
    is_on_stack,
    scheduler_frame,
)
from dask_diag.system.code import tracers
from dask_diag.system.interpreter import growing_array

if TYPE_CHECKING:
    from dask_diag.capture.results import ResultSizes
    from dask_diag.hooks.joining import RunningScheduler, Variables
    from dask_diag.sampling.probes import Probe


_LONGEST_HOOK, _SHORT = 1.0, 0.001
"""Seconds to wait for a hook that a scheduler has called, and between two looks at it."""
_HOOKS = "_start", "_start_state", "_pretask", "_posttask", "_finish"
SizeOf = Callable[[object], float]

watches: dict[int, Watch] = {}
"""Open computations of this process, by number."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=watches.clear)


class Watch:
    """The hooks of one computation, for all profilers that are active in it.

    An error of a hook goes into the notices of the profilers, and not into the user's computation.

    Parameters
    ----------
    profilers : sequence of Observer, optional

    Attributes
    ----------
    profilers : list of Observer
    computation : Computation
        From the start on.
    measures_tasks : bool
        Whether a profiler wants the times of tasks.
    measured : list of (callable, callable, array of float)
        For each profiler of results: the function that appends a size, the function that returns
        the size of a result, and the sizes, one for each row.
    """

    computation: Computation

    def __init__(self, profilers: Sequence[Observer] = ()) -> None:
        self.profilers = list(profilers)
        self.measures_tasks = True in [profiler.measures_tasks for profiler in profilers]
        self.measured: list[tuple[Callable[[float], None], SizeOf, array[float]]] = []
        self._claims: list[frozenset[CallbackTuple]] = []

    @property
    def driver(self) -> Observer:
        """The profiler that works for all, where dask calls each: the first without own hooks."""
        plain = (profiler for profiler in self.profilers if not profiler.has_own_hooks)
        return next(plain, self.profilers[0])

    @property
    def callback(self) -> CallbackTuple:
        """The hooks as dask calls them; None for those that no profiler needs."""
        start, start_state, finish = self.start, self.start_state, self.finish
        if self.measures_tasks:
            return start, start_state, self.pretask, self.posttask, finish
        collect: Callable[..., None] | None = None
        if any(profiler.measures_results for profiler in self.profilers):
            collect = self.posttask_of_result
        elif any(profiler.notes_pauses for profiler in self.profilers):
            collect = self.posttask_of_pause
        return start, start_state, None, collect, finish

    def start(self, dsk: Graph) -> None:
        """Begin to watch the computation of a graph."""
        began = Readings.now()
        try:
            self._open(dsk)
            self._begin(self.profilers, began)
        except Exception as error:
            self.fault("at the start of a computation", error)
        except BaseException:
            # Interrupted: dask calls `finish` of a callback only if it could start.
            self.end(failed=True)
            raise

    def join(self, profiler: Observer) -> None:
        """Begin the computation for another profiler, before the scheduler has a state."""
        self.profilers.append(profiler)
        self.measures_tasks |= profiler.measures_tasks
        self._begin([profiler], Readings.now())

    def _open(self, dsk: Graph) -> None:
        """Make the computation, after the end of those whose schedulers have returned."""
        end_left(partial(_is_before, dsk))
        self._follow(Computation(dsk))

    def _follow(self, computation: Computation) -> None:
        self.computation = computation
        watches[computation.number] = self
        start_running(computation.number, computation)

    def _begin(self, profilers: Sequence[Observer], began: Readings) -> None:
        self.computation.own.begin(began)
        traced = tracers()
        for profiler in profilers:
            try:
                for name in traced:
                    profiler.note(f"{name} was on: durations include its cost")
                profiler.computation_starts(self.computation)
            except Exception as error:
                profiler.fault("at the start of a computation", error)
        self.computation.own.end(is_before_tasks=True)

    def start_state(self, dsk: Graph, state: SchedulerState, is_running: bool = False) -> None:
        """Note the state of dask's scheduler, just before tasks are submitted, or later."""
        began = Readings.now()
        try:
            computation = self.computation
            computation.own.begin(began)
            computation.state = state
            computation.planned = PlannedTasks(tasks_not_submitted(state))
            if self.measures_tasks and not computation.kind.says_who:
                computation.wrapper_type = ThreadNotingTask
            for profiler in self.profilers:
                try:
                    profiler.tasks_start(self)
                except Exception as error:
                    profiler.fault("at the start of a computation", error)
            if computation.probes:
                from dask_diag.sampling.probes import prepare_probes

                prepare_probes(computation)
            if self.measures_tasks:
                self._measure_graph()
                self._find_lines(None if is_running else sys._getframe())
            computation.own.end(is_before_tasks=True)
            # Tasks can be submitted from here on: no time of profilers looks like the scheduler's.
            computation.prepared = perf_counter()
        except Exception as error:
            self.fault("at the start of a computation", error)

    def pretask(self, key: Any, dsk: Graph, state: SchedulerState) -> None:
        """Put a wrapper around a task that is submitted."""
        try:
            computation = self.computation
            try:
                wrapper = computation.free.pop()
            except IndexError:
                wrapper = computation.new_wrapper()
            wrapper.key = key
            wrapper.start = wrapper.stop = None
            wrapper.submitted = perf_counter()
            # With a task in it, it is in flight for readers: all else has to be there.
            wrapper.task = dsk[key]
            dsk[key] = wrapper
        except Exception as error:
            self.fault("to measure a task", error)

    def posttask(
        self, key: Hashable, value: object, dsk: Graph, state: SchedulerState, worker_id: object
    ) -> None:
        """Add the row of a measured task, and use its wrapper again."""
        try:
            computation = self.computation
            wrapper = dsk[key]
            try:
                dsk[key] = wrapper.task
            except AttributeError:
                # It is the task itself: its wrapper was set aside.
                wrapper = computation.take_set_aside(key)
                if wrapper is None:
                    return
                worker_id = wrapper.thread
            try:
                # To lengthen the bytes of all rows would take longer than to pack one.
                computation.rows.append(
                    pack_row(
                        wrapper.submitted,
                        wrapper.start,
                        wrapper.stop,
                        wrapper.cpu,
                        # A scheduler that asks no worker who it is says None.
                        worker_id or 0,
                        perf_counter(),
                    )
                )
            except NotANumberError:
                # Schedulers of others may name their workers as they like.
                times = wrapper.submitted, wrapper.start, wrapper.stop, wrapper.cpu
                computation.rows.append(pack_row(*times, 0, perf_counter()))
                computation.worker_id = worker_id
            result_sizes = computation.result_sizes
            if result_sizes is not None:
                size = wrapper.size
                # No NaN is equal to itself.
                if size is None or size != size:  # noqa: PLR0124
                    size = result_sizes.measured_or_counted(size, value)
                result_sizes.add(size)
            for append, size_of, _ in self.measured:
                append(size_of(value))
            if wrapper.metered is None:
                computation.keys.append(key)
            else:
                computation.add_metered_key(key, wrapper)
            wrapper.task = None
            computation.free.append(wrapper)
            if computation.between_tasks and not state.get("running", True):
                self.posttask_of_pause(key, value, dsk, state, worker_id)
        except Exception as error:
            self._task_failed("to record a task", error)

    def posttask_of_result(
        self, key: Hashable, value: object, dsk: Graph, state: SchedulerState, worker_id: object
    ) -> None:
        """Add the row of a task that is not measured, for its result."""
        try:
            computation = self.computation
            # Who ran it is left out: without tasks' CPU all of a worker's would be scheduling.
            computation.rows.append(pack_row(nan, nan, nan, nan, 0, perf_counter()))
            for append, size_of, _ in self.measured:
                append(size_of(value))
            computation.keys.append(key)
            if computation.between_tasks:
                self.posttask_of_pause(key, value, dsk, state, worker_id)
        except Exception as error:
            self._task_failed("to record a result", error)

    def posttask_of_pause(
        self, key: Hashable, value: object, dsk: Graph, state: SchedulerState, worker_id: object
    ) -> None:
        """Call the profilers that note pauses, if no task runs."""
        if not state.get("running", True):
            for note in self.computation.between_tasks:
                note()

    def join_running(self, scheduler: RunningScheduler, variables: Variables) -> None:
        """Watch a computation that runs in another thread, from its next task on.

        Tasks that run now get a row without times when they are collected.
        """
        dsk, state = variables.dsk, variables.state
        began = Readings.now()
        computation = Computation(dsk, scheduler)
        computation.requested = variables.results
        self._follow(computation)
        self._claims.append(claim_running())
        self._begin(self.profilers, began)
        self.start_state(dsk, state, is_running=True)
        # What ran a task is said to hooks that are not reached: each notes it.
        computation.wrapper_type = ThreadNotingTask
        computation.begin_now()
        variables.put_in(self.pretask_of_running, self.posttask_of_running, self.finish)
        running = 0
        for key in set(state["running"]):
            # It may start, or end, meanwhile.
            if isinstance(dsk[key], TimedTask) or not computation.add_running(key, dsk[key]):
                continue
            if key in state["finished"] or isinstance(dsk[key], TimedTask):
                computation.drop_running(key)
            else:
                running += 1
        finished = len(state["finished"])
        computation.joined = JoinedAt(finished, running)
        computation.planned = PlannedTasks(tasks_not_submitted(state), finished + running)
        if not variables.goes_on:
            # It may have called the hooks of its end before these were there.
            self.leave_running(variables)

    def pretask_of_running(self, key: Hashable, dsk: Graph, state: SchedulerState) -> None:
        """Put a wrapper around a task of a computation that was joined."""
        self.computation.drop_running(key)
        self.pretask(key, dsk, state)

    def posttask_of_running(self, key: Hashable) -> None:
        """Add the row of a task of a computation that was joined."""
        dsk, state = self.computation.dsk, self.computation.state
        self.posttask(key, state.get("cache", {}).get(key), dsk, state, 0)

    def leave_running(self, variables: Variables) -> None:
        """End a computation that goes on in another thread, as if it had not been watched."""
        from dask_diag.hooks import joining

        computation = self.computation
        dsk = computation.dsk
        # The next scheduler on its thread, whose frame may have its address, ends those before it.
        watches.pop(computation.number, None)
        variables.take_out([self, *self.profilers])
        deadline = perf_counter() + _LONGEST_HOOK
        hooks = {__file__, joining.__file__}
        while joining.is_in(computation.thread, hooks) and perf_counter() < deadline:
            sleep(_SHORT)
        for wrapper in tuple(computation.wrappers):
            task = wrapper.task
            if task is not None and dsk.get(wrapper.key) is wrapper:
                dsk[wrapper.key] = task
        self.end(failed=False)

    def _measure_graph(self) -> None:
        computation = self.computation
        try:
            computation.graph_bytes = bytes_in_graph(computation.dsk, computation.state)
        except Exception as error:
            self.fault("to measure the data of a graph", error)

    def _find_lines(self, frame: FrameType | None) -> None:
        """Find the lines that built its tasks; some fused tasks are replaced by timed copies."""
        capture, computation = capturing(), self.computation
        if capture is None:
            return
        try:
            kinds = TaskKinds(capture)
            kinds.read(computation.dsk, computation.state.get("dependents", {}), frame)
            computation.kinds = kinds
        except Exception as error:
            self.fault("to find the lines that built tasks", error)

    def measure_results(self, sizes: array[float], size_of: SizeOf) -> None:
        """Append the size of each result to `sizes`, in the order of the rows of tasks."""
        self.measured.append((sizes.append, size_of, sizes))

    def finish(self, dsk: Graph, state: SchedulerState, failed: bool) -> None:
        """End the computation."""
        try:
            self.end(failed, Readings.now())
        except Exception as error:
            self.fault("at the end of a computation", error)

    def end(self, failed: bool, began: Readings | None = None) -> None:
        """End the computation for all profilers, once; if interrupted, it stays open."""
        computation = getattr(self, "computation", None)
        if computation is None or computation.is_closed:
            return
        computation.own.begin(began or Readings.now())
        for profiler in self.profilers:
            try:
                profiler.computation_ends(computation, failed)
            except Exception as error:
                profiler.fault("at the end of a computation", error)
        try:
            finish(computation, failed)
        except Exception as error:
            self.fault("at the end of a computation", error)
        count_end(computation)
        computation.is_closed = True
        if self._claims:
            disclaim([], self._claims.pop())
        watches.pop(computation.number, None)
        for profiler in self.profilers:
            profiler.computation_ended(computation)

    def _task_failed(self, doing: str, error: Exception) -> None:
        """Note an error, and go on with a size for each row."""
        rows = len(self.computation.rows)
        for _, _, sizes in self.measured:
            sizes.extend([nan] * (rows - len(sizes)))
        self.fault(doing, error)

    def fault(self, doing: str, error: Exception) -> None:
        """Note an error for every profiler."""
        for profiler in self.profilers:
            profiler.fault(doing, error)


class Observer(Callback):
    """A profiler as the engine knows it.

    Attributes
    ----------
    measures_tasks, measures_results, notes_pauses : bool
        Whether the class needs the times of tasks; the results of tasks; or a call when no task
        runs, which is then in `Computation.between_tasks`.
    """

    is_dask_diag = True
    measures_tasks = measures_results = notes_pauses = False

    def computation_starts(self, computation: Computation) -> None:
        """Begin a computation."""

    def tasks_start(self, watch: Watch) -> None:
        """Prepare for the first task: dask's scheduler has its state."""

    def computation_ends(self, computation: Computation, failed: bool) -> None:
        """Stop measuring a computation.

        Where it was interrupted, as by Ctrl-C, it is called again.
        """

    def computation_ended(self, computation: Computation) -> None:
        """Keep what a computation has published, which has ended for all profilers."""

    def note(self, text: str) -> None:
        """Show a sentence to the user."""

    def fault(self, doing: str, error: BaseException) -> None:
        """Note an error of the profiler itself; the user's computation goes on."""

    def share(self, callbacks: Sequence[CallbackTuple]) -> Sequence[CallbackTuple]:
        """Return the callbacks of one computation for the profilers that these callbacks are of.

        A profiler of a user's class, with hooks of its own, gets calls of each.
        """
        profilers: list[Observer] = [callback[0].__self__ for callback in callbacks]  # type: ignore[union-attr]
        if True in [profiler.has_own_hooks for profiler in profilers]:
            return callbacks
        return [Watch(profilers).callback]

    @cached_property
    def has_own_hooks(self) -> bool:
        """Whether the class of a user has replaced hooks that dask calls."""
        return any(getattr(type(self), hook) is not getattr(Observer, hook) for hook in _HOOKS)

    def scheduler_returns(self) -> None:
        """End, as failed, the open computation of dask's scheduler that returns on this thread.

        Dask calls one callback after the other, until one raises: ours may not have heard of the
        end.
        """
        end_left(_is_of_caller)

    # Dask calls these where a computation is given callbacks of its own, or a profiler has hooks
    # of its own. One profiler works for all: the watch's driver.

    def _start(self, dsk: Graph) -> None:
        watch = watch_of(dsk)
        if watch is None:
            Watch([self]).start(dsk)
        else:
            watch.join(self)

    def _start_state(self, dsk: Graph, state: SchedulerState) -> None:
        watch = watch_of(dsk)
        if watch is not None and watch.driver is self:
            state["dask_diag"] = watch
            watch.start_state(dsk, state)

    def _pretask(self, key: Hashable, dsk: Graph, state: SchedulerState) -> None:
        self._call(2, state, key, dsk, state)

    def _posttask(
        self, key: Hashable, value: object, dsk: Graph, state: SchedulerState, worker_id: object
    ) -> None:
        self._call(3, state, key, value, dsk, state, worker_id)

    def _finish(self, dsk: Graph, state: SchedulerState, failed: bool) -> None:
        # It may have failed before it had a state.
        watch = state.get("dask_diag") or watch_of(dsk)
        if watch is not None:
            watch.finish(dsk, state, failed)

    def _call(self, hook: int, state: SchedulerState, *args: object) -> None:
        """Call a hook for all profilers of a computation, if this one is the driver."""
        watch = state.get("dask_diag")
        work = watch.callback[hook] if watch is not None and watch.driver is self else None
        if work is not None:
            work(*args)


def watch_of(dsk: Graph) -> Watch | None:
    """The open watch of the computation of a graph."""
    for watch in watches.copy().values():
        if watch.computation.dsk is dsk:
            return watch
    return None


def watch_of_frame(scheduler: RunningScheduler) -> Watch | None:
    """The open watch of a scheduler that runs in another thread."""
    for watch in watches.copy().values():
        computation = watch.computation
        if (computation.thread, computation.frame) == (scheduler.ident, id(scheduler.frame)):
            return watch
    return None


def end_left(is_left: Callable[[Computation], bool]) -> None:
    """End, as failed, the open computations whose schedulers have returned."""
    for watch in watches.copy().values():
        if is_left(watch.computation):
            watch.end(failed=True)


def _is_of_caller(computation: Computation) -> bool:
    """Whether a computation belongs to the calling scheduler of dask."""
    return computation.thread == get_ident() and computation.frame == scheduler_frame() != 0


def _is_before(dsk: Graph, computation: Computation) -> bool:
    """Whether a computation on this thread belongs to an earlier scheduler than that of `dsk`."""
    if computation.thread != get_ident() or computation.dsk is dsk:
        return False
    # Frames have no other names than addresses, which are used again.
    return computation.frame == scheduler_frame() != 0 or is_over(computation)


def is_over(computation: Computation) -> bool:
    """Whether the scheduler of a computation has left the stack of its thread."""
    frame, thread = computation.frame, computation.thread
    return frame != 0 and not is_on_stack(frame, thread)


_TASKS = 50
_REPEATS = 4
"""The quickest repeat counts: the first one fills the caches."""

_costs: dict[str, float] = {}


def seconds_per_task(name: str, rehearse: Callable[[], Callable[[int], object]]) -> float:
    """CPU seconds of hooks for one task, measured once for each name.

    Parameters
    ----------
    name : str
        Purpose of the hooks.
    rehearse : callable
        Returns a function of a number that does what is done for one task.
    """
    if name not in _costs:
        work = rehearse()
        _costs[name] = min(_repeat(work) for _ in range(_REPEATS))
    return _costs[name]


def _repeat(work: Callable[[int], object]) -> float:
    start = thread_time()
    for number in range(_TASKS):
        work(number)
    return (thread_time() - start) / _TASKS


def rehearsal(
    probe: Probe | None = None, result_sizes: ResultSizes | None = None
) -> Callable[[int], None]:
    """Return a function of a number that does the work of the hooks for a measured task."""
    dsk: Graph = {}
    watch = Watch()
    watch.computation = computation = Computation(dsk)
    computation.result_sizes = result_sizes
    if probe is not None:
        from dask_diag.sampling.probes import attach_probe, prepare_probes

        attach_probe(computation, probe, _ignore)
        prepare_probes(computation)

    def work(number: int) -> None:
        key = "task", number
        dsk[key] = _no_task
        watch.pretask(key, dsk, {})
        dsk[key](())
        watch.posttask(key, None, dsk, {}, 0)

    # Wrappers and their computation keep each other, and the files of the probe open.
    weakref.finalize(work, computation.wrappers.clear)
    weakref.finalize(work, computation.free.clear)
    return work


def rehearsal_of_results(size_of: SizeOf) -> Callable[[int], None]:
    """Return a function of a number that does the work of the hooks for a result."""
    watch = Watch()
    watch.computation = Computation({})
    watch.measure_results(growing_array("d"), size_of)
    tasks = range(_TASKS)
    state: SchedulerState = {
        "dependencies": {number: (number - 1,) if number else () for number in tasks},
        "dependents": {number: (number + 1,) for number in tasks},
    }

    def work(number: int) -> None:
        watch.posttask_of_result(number, None, {}, state, 0)
        if number == tasks[-1]:
            dependents_of(tasks, state, ())

    return work


def _ignore(error: Exception) -> None:
    """No task of a user is sampled here."""


def _no_task(values: object) -> None:
    """Do nothing: only the hooks around a task are measured."""
