"""Callbacks for every computation, also for overlapping computations.

``dask.local.local_callbacks`` empties the process-wide set of callbacks while a computation runs,
so that a computation nested inside a task does not report. A computation that merely overlaps, in
another thread, goes unseen too, and the callbacks can be lost for good. `shared_callbacks` takes
its place while a diagnostic is active: nesting is read off the stack, nothing is swapped.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import thread_time

from dask.callbacks import Callback

from dask_diag.capture.worker_starts import runs_main_again
from dask_diag.hooks import inside
from dask_diag.hooks.calls import spend_on_noting, start_noting_calls, stop_noting_calls
from dask_diag.hooks.lines import start_capturing, stop_capturing
from dask_diag.hooks.stack import CallbackTuple, is_in_computation

_lock = threading.Lock()
_activations: dict[CallbackTuple, set[CallbackTuple]] = {}
_active_at_start: list[frozenset[CallbackTuple]] = []
"""The callbacks that were active when they started, of the computations that run."""
_in_use_elsewhere: set[CallbackTuple] = set()


def sees_overlapping_computes() -> bool:
    """Whether with this dask all overlapping computations can be seen."""
    return inside.dasks_own is not None


def hold(callback: CallbackTuple) -> bool:
    """Make a diagnostic's callback active for every computation that starts from now on.

    Returns whether none was held before. In a worker process that only runs the main module again,
    it is not held.
    """
    if runs_main_again():
        return False
    with _lock:
        is_first = not _activations
        _install()
        Callback.active.add(callback)
        _activations[callback] = Callback.active
        return is_first


def release(callback: CallbackTuple) -> None:
    """Undo `hold`; dask is as it was once nothing is held and no measured computation runs."""
    with _lock:
        Callback.active.discard(callback)
        home = _activations.pop(callback, None)
        if home is not None:
            home.discard(callback)
        _uninstall_if_unused()


def is_held() -> bool:
    """Whether a diagnostic is active."""
    return bool(_activations)


def _install() -> None:
    inside.replace_callbacks(shared_callbacks)
    start_noting_calls()
    start_capturing()


def _uninstall_if_unused() -> None:
    if _activations or _active_at_start:
        return
    inside.restore_callbacks()
    stop_noting_calls()
    stop_capturing()


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
        given = tuple(sorted(callbacks, key=_is_dask_diags))
        try:
            yield given
        finally:
            _scheduler_returns(given)
        return
    began = thread_time()
    is_nested = is_in_computation()
    own, others, active = _claim(is_nested)
    try:
        watching = own[0][0].__self__.share(own) if own else ()  # type: ignore[union-attr]
        spend_on_noting(began)
        if is_nested:
            with inside.counted((*others, *watching)) as heard:
                yield heard
        else:
            yield (*others, *watching)
    finally:
        try:
            _scheduler_returns(own)
        finally:
            disclaim(others, active)


def _scheduler_returns(callbacks: Iterable[CallbackTuple]) -> None:
    """Say so to dask_diag's profilers: they may not have heard of the end.

    Dask calls one callback after the other, until one raises.
    """
    first = next(filter(_is_dask_diags, callbacks), None)
    if first is not None:
        first[0].__self__.scheduler_returns()  # type: ignore[union-attr]


def _claim(
    is_nested: bool,
) -> tuple[list[CallbackTuple], list[CallbackTuple], frozenset[CallbackTuple]]:
    """For a starting computation: our callbacks, callbacks of others, and all active callbacks.

    One that is nested inside a task has those that were entered there: what was active before is
    for the computation around it.
    """
    with _lock:
        active = Callback.active
        for callback, home in _activations.items():
            # A computation that started before we were active puts back, at its end, a set without
            # us.
            if home is not active and callback not in active:
                active.add(callback)
                _activations[callback] = active
        # Copied in one step, also without a GIL: others add to it without our lock.
        now_active = everyone = frozenset(active.copy())
        if is_nested:
            everyone = now_active.difference(*_active_at_start)
        _active_at_start.append(now_active)
        # In the order of activation.
        own = [cb for cb in _activations if cb in everyone]
        others = []
        if len(own) < len(everyone):
            rest = everyone.difference(own)
            own += filter(_is_dask_diags, rest)
            others = [cb for cb in rest - _in_use_elsewhere if not _is_dask_diags(cb)]
            _in_use_elsewhere.update(others)
    return own, others, now_active


def claim_running() -> frozenset[CallbackTuple]:
    """Claim the active callbacks for a computation that runs already, and not for those inside."""
    with _lock:
        active = frozenset(_activations)
        _active_at_start.append(active)
    return active


def disclaim(others: list[CallbackTuple], active: frozenset[CallbackTuple]) -> None:
    """Undo a claim at the end of a computation."""
    with _lock:
        _active_at_start.remove(active)
        _in_use_elsewhere.difference_update(others)
        _uninstall_if_unused()


def _is_dask_diags(callback: CallbackTuple) -> bool:
    start = callback[0] if isinstance(callback, tuple) and callback else None
    return getattr(getattr(start, "__self__", None), "is_dask_diag", False) is True


def distributed_client(closed_before: int) -> str:
    """Name of a client of distributed, which runs computations in our place; empty without one.

    A client that is closed counts if it was not closed before, as `closed_clients` says.
    """
    name = _open_client()
    if name or closed_clients() <= closed_before:
        return name
    return "a client of distributed that is closed by now"


def closed_clients() -> int:
    """Number of clients of distributed that were made in this process, without one that is open."""
    made = getattr(sys.modules.get("distributed.client"), "_global_client_index", [0])
    return int(made[0]) - bool(_open_client())


def _open_client() -> str:
    distributed = sys.modules.get("distributed")
    try:
        return "" if distributed is None else repr(distributed.default_client())
    except (ValueError, AttributeError):
        return ""
