"""The hooks that measure tasks: the hot path.

What is done here is done for every task: it is counted in instructions (``make bench``).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable
from struct import error as NotANumberError  # noqa: N812
from time import perf_counter, thread_time
from typing import TYPE_CHECKING

from dask_diag.capture.computation import STATE_KEY, Computation
from dask_diag.capture.log import dependents_of
from dask_diag.capture.task import ThreadNotingTask, pack_row
from dask_diag.hooks.stack import Graph, SchedulerState
from dask_diag.profilers.base import Diagnostic

if TYPE_CHECKING:
    from dask_diag.capture.computation import Computation
    from dask_diag.sampling.probes import Probe


Hook = Callable[..., None]

_TASKS = 50
_REPEATS = 4
"""The quickest repeat counts: the first one fills the caches."""

_measured: dict[str, float] = {}


def seconds_per_task(name: str, rehearse: Callable[[], Callable[[int], object]]) -> float:
    """CPU seconds of the hooks of a name for one task.

    Parameters
    ----------
    name : str
        Purpose of the hooks, which are measured once for each name.
    rehearse : callable
        Returns a function of a number that does what is done for one task.
    """
    if name not in _measured:
        work = rehearse()
        _measured[name] = min(_repeat(work) for _ in range(_REPEATS))
    return _measured[name]


def _repeat(work: Callable[[int], object]) -> float:
    start = thread_time()
    for number in range(_TASKS):
        work(number)
    return (thread_time() - start) / _TASKS


def rehearse_tasks(
    measured_key: str, pretask: Hook, posttask: Hook, probe: Probe | None = None
) -> Callable[[int], None]:
    """Return a function that does the work of a `TaskDiagnostic` for a task."""
    dsk: Graph = {}
    computation = Computation(dsk)
    state = {STATE_KEY: computation, measured_key: computation}
    if probe is not None:
        from dask_diag.sampling.probes import attach_probe

        attach_probe(computation, probe, _ignore)

    def work(number: int) -> None:
        key = "task", number
        dsk[key] = _no_task
        pretask(key, dsk, state)
        dsk[key](())
        posttask(key, None, dsk, state, 0)

    # Wrappers and their computation keep each other, and the files of the probe open.
    weakref.finalize(work, computation.wrappers.clear)
    weakref.finalize(work, computation.free.clear)
    return work


def rehearse_results(began: Hook, meet_state: Hook, posttask: Hook) -> Callable[[int], None]:
    """Return a function that does the work of a profiler of results for a task."""
    computation = Computation({})
    computation.requested = frozenset()
    tasks = range(_TASKS)
    state: SchedulerState = {
        STATE_KEY: computation,
        "dependencies": {number: (number - 1,) if number else () for number in tasks},
        "dependents": {number: (number + 1,) for number in tasks},
    }
    began(computation)
    meet_state({}, state)

    def work(number: int) -> None:
        posttask(number, None, {}, state, 0)
        if number == tasks[-1]:
            dependents_of(tasks, state, ())

    return work


def _ignore(error: Exception) -> None:
    """No task of a user is sampled here."""


def _no_task(values: object) -> None:
    """Do nothing: only the hooks around a task are measured."""


class TaskDiagnostic(Diagnostic):
    """A profiler that measures each task on the thread that runs it.

    If several are active in one computation, the first measures for all.

    Attributes
    ----------
    measured_key : str
        Where the scheduler's state has the computation, if this is the one that measures; else
        None. So the hooks find both out in one step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.measured_key = f"{STATE_KEY} {id(self)}"

    def _calibrate(self) -> None:
        self._hooks["tasks"] = seconds_per_task("tasks", rehearsal)

    def _calibrate_probe(self, name: str, probe: Probe) -> None:
        """Measure the cost of a probe for each task."""
        probed = seconds_per_task(name, lambda: rehearsal(probe))
        self._hooks[name] = max(0.0, probed - self._hooks["tasks"])

    def _meet_state(self, dsk: Graph, state: SchedulerState) -> None:
        super()._meet_state(dsk, state)
        computation = state[STATE_KEY]
        is_first = not computation.is_measured and self._pretask is not None
        if is_first:
            computation.is_measured, computation.keeper = True, self
            if not computation.kind.says_who:
                computation.wrapper_type = ThreadNotingTask
        state[self.measured_key] = computation if is_first else None  # type: ignore[literal-required]
        if is_first:
            self._guarded("to measure the data of a graph", self._measure_graph, computation)

    def _measure_graph(self, computation: Computation) -> None:
        from dask_diag.capture.results import bytes_in_graph

        computation.graph_bytes = bytes_in_graph(computation.dsk, computation.state)

    def _pretask(self, key: Hashable, dsk: Graph, state: SchedulerState) -> None:
        try:
            computation = state[self.measured_key]  # type: ignore[literal-required]
            if computation is None:
                return
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
            self._fault("to measure a task", error)

    def _posttask(
        self, key: Hashable, value: object, dsk: Graph, state: SchedulerState, worker_id: object
    ) -> None:
        try:
            computation = state[self.measured_key]  # type: ignore[literal-required]
            if computation is None:
                return
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
            if wrapper.metered is None:
                computation.keys.append(key)
            else:
                computation.add_metered_key(key, wrapper)
            wrapper.task = None
            computation.free.append(wrapper)
            between_tasks = computation.between_tasks
            if between_tasks and not state.get("running", True):
                _call_each(between_tasks)
        except Exception as error:
            self._fault("to record a task", error)


def _call_each(functions: Iterable[Callable[[], None]]) -> None:
    for function in functions:
        function()


def rehearsal(probe: Probe | None = None) -> Callable[[int], None]:
    """Return a function of a number that does the work for a task."""
    diagnostic = TaskDiagnostic()
    return rehearse_tasks(diagnostic.measured_key, diagnostic._pretask, diagnostic._posttask, probe)
