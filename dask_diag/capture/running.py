"""Which computations run in this process: their tasks may meter, and results may land."""

from __future__ import annotations

import os
import threading

from dask_diag.capture.tasks.metering import (
    hear_distributed,
    hearing,
    listening,
    stop_hearing_distributed,
)
from dask_diag.capture.tasks.remote_task import Receiver, running

__all__ = ["running", "start_listening", "start_running", "stop_listening", "stop_running"]

_lock = threading.Lock()


def start_running(number: int, computation: Receiver) -> None:
    """From here on the computation of that number runs."""
    # Distributed's meter is heard while any computation runs: also one that starts at the moment at
    # which the last one ends.
    with _lock:
        running[number] = computation
    start_listening(number)


def stop_running(number: int) -> None:
    """Undo `start_running`."""
    with _lock:
        running.pop(number, None)
    stop_listening(number)


def start_listening(listener: object, everywhere: bool = True) -> None:
    """From here on what tasks meter is recorded.

    Parameters
    ----------
    listener : object
    everywhere : bool, optional
        Whether distributed's meter is heard in any thread, or only in tasks that ask for it.
    """
    with _lock:
        if everywhere:
            hear_distributed()
            hearing.add(listener)
        listening.add(listener)


def stop_listening(listener: object) -> None:
    """Undo `start_listening`."""
    with _lock:
        listening.discard(listener)
        hearing.discard(listener)
        if not hearing:
            stop_hearing_distributed()


def _after_fork() -> None:
    """Start anew in the child of a fork, where no computation of its parent runs.

    The old lock may be held by a thread that the child does not have.
    """
    global _lock
    _lock = threading.Lock()
    running.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
