"""Local variables of dask's functions, read from the stack, and what dask hands to callbacks."""

from __future__ import annotations

import itertools
import multiprocessing.pool
import sys
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from itertools import takewhile
from math import nan
from threading import get_ident
from types import CodeType, FrameType, GeneratorType, MappingProxyType, TracebackType
from typing import Any, Final, NamedTuple, TypedDict

import dask._task_spec
import dask.core
import dask.local
import dask.multiprocessing
import dask.optimization
import dask.threaded
import dask.utils
from dask._task_spec import DataNode as DataNode
from dask._task_spec import GraphNode as GraphNode
from dask._task_spec import Task as Task
from dask.highlevelgraph import HighLevelGraph

from dask_diag.system.code import current_frames
from dask_diag.system.interpreter import has_gil

Graph = dict[Hashable, Any]
"""A graph as the scheduler has it: nodes, data and, while tasks run, their wrappers, by key."""


class SchedulerState(TypedDict, total=False):
    """State of a computation in the scheduler; see ``dask.local.start_state_from_dask``."""

    cache: Mapping[Hashable, object]
    dependencies: Mapping[Hashable, Collection[Hashable]]
    dependents: Mapping[Hashable, Collection[Hashable]]
    finished: Collection[Hashable]
    ready: Collection[Hashable]
    released: Collection[Hashable]
    running: Collection[Hashable]
    waiting: Collection[Hashable]
    dask_diag: Any


CallbackTuple = tuple[Callable[..., object] | None, ...]
"""A callback as dask has it: the functions for the start, each task and the end."""


def is_node(value: object) -> bool:
    """Whether a value is a node of a graph: a task, data, or a reference."""
    # An `isinstance` would ask the value itself, which may be any object.
    return is_node_type(type(value))


def is_node_type(kind: type) -> bool:
    """Whether a type is a type of nodes."""
    return issubclass(kind, GraphNode)


def contents_of_node(node: object) -> tuple[object, ...]:
    """Contents of a task or of data: a function and its arguments, or a value."""
    if isinstance(node, Task):
        return (node.func, *node.args, *node.kwargs.values())
    return (node.value,) if isinstance(node, DataNode) else ()


execute_subgraph: Any = getattr(dask._task_spec, "_execute_subgraph", None)
"""The function of a fused task, whose first argument has the steps by key; None in another dask."""


_LAZY = {map, filter, zip, itertools.chain, GeneratorType}


def is_lazy(result: object) -> bool:
    """Whether a result is a plain iterator, whose items are made where they are asked for."""
    kind = type(result)
    return kind in _LAZY or kind.__name__ == "_MapChunk"


_SAY_WHO: Final = {
    id(getattr(dask.threaded, "_thread_get_id", None)): "threads",
    id(getattr(dask.multiprocessing, "_process_get_id", None)): "processes",
}
"""Ids of functions by which a scheduler of dask asks a worker who it is, and what kind it is."""
_SYNCHRONOUS: type | tuple[()] = getattr(dask.local, "SynchronousExecutor", ())
_OF_A_POOL: type | tuple[()] = getattr(dask.local, "MultiprocessingPoolExecutor", ())


class SchedulerKind(NamedTuple):
    """Facts about a scheduler before the first task has run.

    Attributes
    ----------
    name : str
        ``processes``, ``threads`` or ``synchronous``. Of an executor that is none of Python's or
        dask's it is likely: where tasks run shows what it is.
    workers : int
        How many tasks may run at once; 0 if not known.
    says_who : bool
        Whether dask says to callbacks which thread ran a task, or it is the caller; if not,
        tasks have to note it.
    """

    name: str
    workers: int
    says_who: bool


def scheduler_kind(frame: FrameType | None) -> SchedulerKind:
    """Kind of the scheduler with this frame; None, if it is not one of dask's."""
    variables: Mapping[str, Any] = {} if frame is None else frame.f_locals
    executor = getattr(variables.get("submit"), "__self__", None)
    if isinstance(executor, _OF_A_POOL):
        executor = getattr(executor, "pool", None)
    try:
        workers = int(variables.get("num_workers") or 0)
    except (TypeError, ValueError):
        workers = 0
    who = variables.get("get_id")
    said = _SAY_WHO.get(id(who)) if who else None
    name = _kind_of(executor) or said or ("threads" if variables else "synchronous")
    is_called = isinstance(executor, _SYNCHRONOUS)
    # Without a GIL the thread of a running task cannot be read from its frame: the task notes it.
    says_who = is_called or (said == name == "threads" and has_gil())
    kind = SchedulerKind(name, workers, says_who)
    # One object for all computations that are alike.
    return _kinds.setdefault(kind, kind)


_kinds: dict[SchedulerKind, SchedulerKind] = {}


def _kind_of(executor: object) -> str | None:
    """The kind of an executor, or pool, of Python or dask; else None."""
    if isinstance(executor, _SYNCHRONOUS):
        return "synchronous"
    if isinstance(executor, (ThreadPoolExecutor, multiprocessing.pool.ThreadPool)):
        return "threads"
    if isinstance(executor, (ProcessPoolExecutor, multiprocessing.pool.Pool)):
        return "processes"
    return None


_Expression: Any = None
"""What carries annotations in a dask that has it; in an older one high-level graphs do."""
with suppress(ImportError):
    from dask._expr import Expr

    _Expression = Expr


WAITS_FOR_TASKS: CodeType | None = getattr(getattr(dask.local, "queue_get", None), "__code__", None)
"""Code of the function in which a scheduler waits for tasks, on other threads."""
_GET_ASYNC = dask.local.get_async.__code__
_EXECUTE_TASK = dask.local.execute_task.__code__
_CALL_TASK = Task.__call__.__code__
machinery_files = {
    module.__file__ for module in (dask._task_spec, dask.core, dask.local, dask.optimization)
}
"""Files with the code around tasks; this package adds its own."""
clocks_around_steps: set[str] = set()
"""Files of this package between dask's functions and the user's, of which stacks say nothing."""
_MACHINERY = {dask.utils.apply.__code__}
_NEAR = 12
"""So many frames away, at most, is the function of dask that calls a callback or a task."""


def frames_from(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and its callers, from the inside out."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def is_in_task(frame: FrameType | None) -> bool:
    """Whether a task called the function of this frame."""
    while frame is not None:
        if frame.f_code is _EXECUTE_TASK:
            return True
        frame = frame.f_back
    return False


def is_in_computation() -> bool:
    """Whether the computation that starts here was called from a task or a computation."""
    computations = 0
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code is _EXECUTE_TASK:
            return True
        # The scheduler that is starting is on the stack, too: only a second one means that it is
        # nested.
        if code is _GET_ASYNC:
            computations += 1
        frame = frame.f_back
    return computations > 1


def outermost_scheduler(innermost: FrameType | None) -> FrameType | None:
    """The frame of the scheduler that a thread runs, and no task called; None without one."""
    found = None
    for frame in frames_from(innermost):
        if frame.f_code is _GET_ASYNC:
            found = frame
        elif frame.f_code is _EXECUTE_TASK:
            found = None
    return found


def key_of_task(innermost: FrameType | None) -> Hashable:
    """The key of the task that a thread runs; None without one, and where it may not be read."""
    found = None
    for frame in frames_from(innermost) if has_gil() else ():
        if frame.f_code is _EXECUTE_TASK:
            variables = frame.f_locals
            found = variables.get("key")
            clear_copy(variables)
    return found


def scheduler_locals() -> Mapping[str, Any]:
    """The local variables of the calling scheduler of dask, or an empty mapping.

    Only to be called from a callback; what is returned must not be kept.
    """
    frame = _nearest(_GET_ASYNC, sys._getframe(1))
    return {} if frame is None else frame.f_locals


def nearest_scheduler() -> FrameType | None:
    """The frame of the calling scheduler of dask, or None; it must not be kept."""
    return _nearest(_GET_ASYNC, sys._getframe(1))


def scheduler_frame() -> int:
    """The ``id()`` of the frame of the calling scheduler of dask, or 0.

    It is the scheduler's as long as that is on the stack; then it may be another one's.
    """
    frame = _nearest(_GET_ASYNC, sys._getframe(1))
    return 0 if frame is None else id(frame)


def is_on_stack(frame: int, thread: int) -> bool:
    """Whether a frame, given by ``id()``, is on the stack of a thread."""
    if thread == get_ident():
        return any(id(caller) == frame for caller in frames_from(sys._getframe(1)))
    frames = current_frames()
    try:
        return any(id(caller) == frame for caller in frames_from(frames.get(thread)))
    finally:
        # The frame of this call is among them, and would keep all alive in a circle.
        frames.clear()


def requested_keys() -> Collection[Hashable]:
    """The keys requested of the calling scheduler of dask; else empty."""
    keys: Collection[Hashable] = scheduler_locals().get("results", ())
    return keys


def bytes_of_task() -> float:
    """The size of the task and the inputs, as sent to this worker process; NaN if not known.

    Only to be called while that task runs.
    """
    return _size_of("task_info", _nearest(_EXECUTE_TASK, sys._getframe(1)))


def bytes_of_result() -> float:
    """The size of the result that the scheduler is unpickling; NaN if not known."""
    return _size_of("res_info", _nearest(_GET_ASYNC, sys._getframe(1)))


def _nearest(code: CodeType, frame: FrameType) -> FrameType | None:
    """The innermost frame of a function, if near; else None."""
    caller: FrameType | None = frame
    for _ in range(_NEAR):
        if caller is None or caller.f_code is code:
            return caller
        caller = caller.f_back
    return None


def _size_of(name: str, frame: FrameType | None) -> float:
    if frame is None:
        return nan
    variables = frame.f_locals
    # The pickled task or result is a local variable of dask's function: its length costs nothing,
    # where pickling it again would cost as much as sending it.
    size = len(variables.get(name, ()))
    clear_copy(variables)
    return float(size) or nan


def clear_copy(variables: Mapping[str, Any]) -> None:
    """Release what is a copy of a frame's local variables."""
    if type(variables) is dict:
        variables.clear()


def annotations_of_graph(name: str, scheduler: FrameType | None) -> Mapping[Hashable, object]:
    """Annotations with `name`, by key, of the computation that is starting in a scheduler's frame.

    The scheduler itself has but a plain graph; what carried the annotations is a local variable of
    the functions of dask that called it.
    """
    # Only dask's own frames, up to the user's: a graph in a variable of the user's may be another
    # one.
    callers = frames_from(None if scheduler is None else scheduler.f_back)
    for frame in takewhile(_is_of_dask, callers):
        for value in list(frame.f_locals.values()):
            # Of a graph, `isinstance` would look through the classes that are registered as
            # mappings: that takes as long as all else here.
            kinds = type(value).__mro__
            if HighLevelGraph in kinds:
                return _annotations_of_layers(value, name)
            if _Expression in kinds:
                annotations: Mapping[str, Mapping[Hashable, object]]
                annotations = getattr(value, "__dask_annotations__", dict)()
                return annotations.get(name) or _NO_ANNOTATIONS
    return _NO_ANNOTATIONS


_NO_ANNOTATIONS: Mapping[Hashable, object] = MappingProxyType({})


def _is_of_dask(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith("dask.")


def _annotations_of_layers(graph: HighLevelGraph, name: str) -> dict[Hashable, object]:
    annotations: dict[Hashable, object] = {}
    for layer in graph.layers.values():
        value = (layer.annotations or {}).get(name)
        if value is not None:
            annotations.update({key: value(key) if callable(value) else value for key in layer})
    return annotations


def is_machinery(code: CodeType) -> bool:
    """Whether code belongs to dask's calls of tasks."""
    return code.co_filename in machinery_files or code in _MACHINERY


def called_from(frame: FrameType | None) -> object:
    """The function of the innermost task among dask's own calls, or None."""
    while frame is not None and is_machinery(frame.f_code):
        if frame.f_code is _CALL_TASK:
            variables = frame.f_locals
            task = variables.get("self")
            clear_copy(variables)
            return getattr(task, "func", None)
        frame = frame.f_back
    return None


def keys_of_calls(traceback: TracebackType | None) -> list[Hashable]:
    """The keys of the task, and of the steps of a fused one, in whose calls an error was raised.

    They are empty for an error of another process. Tasks of a computation inside the task are not
    among them.
    """
    keys: list[Hashable] = []
    executed: FrameType | None = None
    while traceback is not None:
        frame = traceback.tb_frame
        if frame.f_code is _EXECUTE_TASK:
            # An error that was raised again has its frame twice.
            if executed not in (None, frame):
                break
            executed = frame
        if frame.f_code is _CALL_TASK and executed is not None:
            variables = frame.f_locals
            keys.append(getattr(variables.get("self"), "key", None))
            clear_copy(variables)
        traceback = traceback.tb_next
    return keys
