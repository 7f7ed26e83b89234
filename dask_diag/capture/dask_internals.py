"""Everything of dask's internals that this package touches, in one place.

Dask's local schedulers call callbacks with too little; what they lack is read here.

- ``dask.local.local_callbacks`` empties the process-wide set of callbacks while a computation runs,
  so that a computation nested inside a task does not report. A computation that merely overlaps, in
  another thread, goes unseen too, and the callbacks can be lost for good. `shared_callbacks` takes
  its place while a diagnostic is active: nesting is read off the stack, nothing is swapped.
- The number of workers is a local variable of ``dask.local.get_async``, where `scheduler_locals`
  reads it.
- Its graph has lost what ``dask.annotate`` said; `annotations_of_graph` finds that in the
  functions of dask that called it.
- A computation begins, for its user, with the call of ``dask.compute``; callbacks hear of it when
  its graph is made. While a diagnostic is active, the function that it calls first notes the time
  (`_noting`).
- What a worker process was sent, and what it sent back, are local variables of
  ``execute_task`` and ``get_async``: `bytes_of_task` and `bytes_of_result` read their sizes.
- Between a task and the user's function lie calls of dask's own, which `is_machinery` knows;
  a function that is not written in Python has no frame, and `called_from` finds it in them.

Each is guarded: where dask has changed, the diagnostics go on with what dask offers.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import wraps
from time import perf_counter
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypedDict

import dask._task_spec
import dask.base
import dask.core
import dask.local
import dask.optimization
import dask.utils
from dask._task_spec import GraphNode, Task
from dask.callbacks import Callback
from dask.highlevelgraph import HighLevelGraph

_Expression: Any = None
"""What carries annotations in a dask that has it; in an older one high-level graphs do."""
with suppress(ImportError):
    from dask._expr import Expr

    _Expression = Expr

__all__ = [
    "DaskCalls",
    "Graph",
    "GraphNode",
    "SchedulerState",
    "Task",
    "annotations_of_graph",
    "bytes_of_result",
    "bytes_of_task",
    "called_from",
    "calls_of_threads",
    "codes_of_dask_calls",
    "hold",
    "is_machinery",
    "release",
    "runs_nothing",
    "scheduler_locals",
    "sees_overlapping_computes",
    "when_called",
]

Graph = dict[Hashable, Any]
"""A graph as the scheduler has it: nodes, data and, while tasks run, their wrappers, by key."""


class SchedulerState(TypedDict, total=False):
    """What the scheduler knows of a computation; see ``dask.local.start_state_from_dask``."""

    dependencies: Mapping[Hashable, Collection[Hashable]]
    finished: Collection[Hashable]
    ready: Collection[Hashable]
    released: Collection[Hashable]
    running: Collection[Hashable]
    waiting: Collection[Hashable]
    dask_diag: Any


CallbackTuple = tuple[Callable[..., object] | None, ...]

_NAME = "local_callbacks"
_lock = threading.Lock()
_dasks_own: Callable[..., object] | None = getattr(dask.local, _NAME, None)
_activations: dict[CallbackTuple, set[CallbackTuple]] = {}
_measured_computations = 0
_in_use_elsewhere: set[CallbackTuple] = set()


class DaskCalls(NamedTuple):
    """A thread that called dask: when, by the id of the frame of the function of dask."""

    native_id: int
    times: dict[int, float]


calls_of_threads: dict[int, DaskCalls] = {}
"""The threads that called dask to compute, outside tasks, by ident; calls may have ended since."""
_called = threading.local()
_CALLED_FIRST = {
    "compute": "unpack_collections",
    "persist": "unpack_collections",
    "compute_as_if_collection": "get_scheduler",
}
"""Of the functions of ``dask.base`` that run computations, what each calls before all else."""

_GET_ASYNC = dask.local.get_async.__code__
_EXECUTE_TASK = dask.local.execute_task.__code__
_CALL_TASK = Task.__call__.__code__
_MACHINERY_FILES = {
    module.__file__ for module in (dask._task_spec, dask.core, dask.local, dask.optimization)
}
_MACHINERY = {dask.utils.apply.__code__}


def sees_overlapping_computes() -> bool:
    """Whether this dask lets computations that overlap in several threads all be seen."""
    return _dasks_own is not None


def hold(callback: CallbackTuple) -> None:
    """Make a diagnostic's callback active for every computation that starts from now on."""
    with _lock:
        _install()
        Callback.active.add(callback)
        _activations[callback] = Callback.active


def release(callback: CallbackTuple) -> None:
    """Undo `hold`; dask is as it was once nothing is held and no measured computation runs."""
    with _lock:
        Callback.active.discard(callback)
        home = _activations.pop(callback, None)
        if home is not None:
            home.discard(callback)
        _uninstall_if_unused()


def _install() -> None:
    if _dasks_own is not None:
        setattr(dask.local, _NAME, shared_callbacks)
    for name, (original, noting) in _replaced.items():
        if getattr(dask.base, name) is original:
            setattr(dask.base, name, noting)


def _uninstall_if_unused() -> None:
    if _activations or _measured_computations:
        return
    calls_of_threads.clear()
    if _dasks_own is not None:
        setattr(dask.local, _NAME, _dasks_own)
    for name, (original, noting) in _replaced.items():
        if getattr(dask.base, name) is noting:
            setattr(dask.base, name, original)


@contextmanager
def shared_callbacks(
    callbacks: Iterable[CallbackTuple] | None = None,
) -> Iterator[tuple[CallbackTuple, ...]]:
    """The callbacks of the computation that starts here, for ``dask.local.local_callbacks``.

    A callback that is not dask_diag's gets one computation at a time, as dask has it: many keep
    state that a second computation would destroy. Those of dask_diag come last, so that the others
    get the graph before it is touched.
    """
    if callbacks is not None:
        yield tuple(sorted(callbacks, key=_is_dask_diags))
        return
    if _inside_a_compute():
        yield ()
        return
    own, others = _claim()
    try:
        yield (*others, *own)
    finally:
        _disclaim(others)


def _claim() -> tuple[list[CallbackTuple], list[CallbackTuple]]:
    global _measured_computations
    with _lock:
        _measured_computations += 1
        active = Callback.active
        for callback, home in _activations.items():
            # A computation that started before we were active puts back, at its end, a set without
            # us.
            if home is not active and callback not in active:
                active.add(callback)
                _activations[callback] = active
        # Copied in one step: others add to it without our lock.
        everyone = tuple(active)
        own = [cb for cb in everyone if _is_dask_diags(cb)]
        others = [cb for cb in everyone if not _is_dask_diags(cb) and cb not in _in_use_elsewhere]
        _in_use_elsewhere.update(others)
    return own, others


def _disclaim(others: list[CallbackTuple]) -> None:
    global _measured_computations
    with _lock:
        _measured_computations -= 1
        _in_use_elsewhere.difference_update(others)
        _uninstall_if_unused()


def _is_dask_diags(callback: CallbackTuple) -> bool:
    start = callback[0] if isinstance(callback, tuple) and callback else None
    return getattr(getattr(start, "__self__", None), "is_dask_diag", False) is True


def _inside_a_compute() -> bool:
    """Whether the computation that starts here was called from a task or a computation."""
    computations = 0
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _EXECUTE_TASK:
            return True
        computations += frame.f_code is _GET_ASYNC
        frame = frame.f_back
    return computations > 1


def when_called() -> float | None:
    """When the function of dask was called that runs this computation, ``perf_counter`` seconds.

    None where the scheduler was called without one, as ``dask.get`` is, or before a diagnostic was
    active.
    """
    times = _times_of_calls()
    for frame in _frames_from(sys._getframe(1)) if times else ():
        if id(frame) in times and frame.f_code in _CALLERS:
            return times[id(frame)]
    return None


def _times_of_calls() -> dict[int, float]:
    """When functions of dask were called that this thread is in, by the ids of their frames."""
    times: dict[int, float] = _called.__dict__.setdefault("times", {})
    return times


def _note_call(caller: FrameType) -> None:
    """Note the time for a function of dask that has just been called.

    It goes by the id of its frame: to hold the frame would keep the user's arrays. Ids of frames
    that are not on the stack any more may be used again.
    """
    times = _times_of_calls()
    in_task = any(frame.f_code is _EXECUTE_TASK for frame in _frames_from(caller))
    for frame in set(times).difference(map(id, _frames_from(caller))):
        del times[frame]
    times[id(caller)] = perf_counter()
    if not in_task:
        calls_of_threads[threading.get_ident()] = DaskCalls(threading.get_native_id(), times)


def _noting(name: str) -> tuple[Callable[..., object], Callable[..., object]]:
    """A function of ``dask.base``, and its like that notes when the function was called first."""
    original: Callable[..., object] = getattr(dask.base, name)

    @wraps(original)
    def noting(*args: object, **kwargs: object) -> object:
        caller = sys._getframe(1)
        if _CALLERS.get(caller.f_code) == name:
            _note_call(caller)
        return original(*args, **kwargs)

    return original, noting


_CALLERS: dict[CodeType, str] = {
    getattr(dask.base, caller).__code__: first
    for caller, first in _CALLED_FIRST.items()
    if hasattr(dask.base, caller) and hasattr(dask.base, first)
}
codes_of_dask_calls = frozenset(map(id, _CALLERS))
"""The ids of the code of functions of dask that run computations."""
_replaced = {name: _noting(name) for name in set(_CALLERS.values())}


def _frames_from(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and its callers, from the inside out."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def scheduler_locals() -> Mapping[str, Any]:
    """The local variables of the scheduler that is calling, or nothing if it is not dask's.

    Only to be called from a callback; what is returned must not be kept.
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(12):
        if frame is None:
            break
        if frame.f_code is _GET_ASYNC:
            return frame.f_locals
        frame = frame.f_back
    return {}


def runs_nothing(state: SchedulerState) -> bool:
    """Whether a computation has no task out just now; it is the scheduler that asks."""
    return not state.get("running", True)


def bytes_of_task() -> float:
    """The size of the task, with its inputs, that this worker process was sent; NaN if not known.

    Only to be called while that task runs.
    """
    return _size_of("task_info", _EXECUTE_TASK)


def bytes_of_result() -> float:
    """The size of the result that the scheduler is unpickling; NaN if not known."""
    return _size_of("res_info", _GET_ASYNC)


def _size_of(name: str, code: CodeType) -> float:
    frame: FrameType | None = sys._getframe(2)
    for _ in range(12):
        if frame is None:
            break
        if frame.f_code is code:
            variables = frame.f_locals
            size = len(variables.get(name, ()))
            if type(variables) is dict:
                # Before Python 3.13 it is a copy, which would keep results alive.
                variables.clear()
            return float(size) or float("nan")
        frame = frame.f_back
    return float("nan")


def annotations_of_graph(name: str) -> Mapping[Hashable, object]:
    """What ``dask.annotate`` said under `name` of the computation that is starting, by key.

    The scheduler itself has but a plain graph; what carried the annotations is a local variable of
    the functions of dask that called it.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not _GET_ASYNC:
        frame = frame.f_back
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("dask."):
        for value in list(frame.f_locals.values()):
            if isinstance(value, HighLevelGraph):
                return _annotations_of_layers(value, name)
            if _Expression is not None and isinstance(value, _Expression):
                annotations: Mapping[str, Mapping[Hashable, object]]
                annotations = getattr(value, "__dask_annotations__", dict)()
                return dict(annotations.get(name, {}))
        frame = frame.f_back
    return {}


def _annotations_of_layers(graph: HighLevelGraph, name: str) -> dict[Hashable, object]:
    found: dict[Hashable, object] = {}
    for layer in graph.layers.values():
        value = (layer.annotations or {}).get(name)
        if value is not None:
            found.update({key: value(key) if callable(value) else value for key in layer})
    return found


def distributed_client() -> str:
    """What takes computations away from us, if a client of distributed is there or has been."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return ""
    try:
        return repr(distributed.default_client())
    except (ValueError, AttributeError):
        made = getattr(sys.modules.get("distributed.client"), "_global_client_index", [0])
        return "a client of distributed that is closed by now" if made[0] else ""


def is_machinery(code: CodeType) -> bool:
    """Whether it is a function of dask's that calls tasks, or what tasks are made of."""
    return code.co_filename in _MACHINERY_FILES or code in _MACHINERY


def called_from(frame: FrameType | None) -> object:
    """The function that the innermost task among dask's own calls has called, or None."""
    while frame is not None and is_machinery(frame.f_code):
        if frame.f_code is _CALL_TASK:
            variables = frame.f_locals
            task = variables.get("self")
            if type(variables) is dict:
                # Before Python 3.13 it is a copy, which would keep inputs alive.
                variables.clear()
            return getattr(task, "func", None)
        frame = frame.f_back
    return None
