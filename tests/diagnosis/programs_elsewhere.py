"""Planted programs whose tasks wait for what computes elsewhere: other threads and programs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator

import dask
import numpy as np
from dask import delayed

from tests.diagnosis.program import SLEEPING, Program, threads
from tests.diagnosis.programs_tasks import computed
from tests.diagnosis.work import (
    ask_loop,
    ask_loop_and_wait,
    checksums,
    compute,
    compute_elsewhere,
    loop,
    pause,
)
from tests.diagnosis.work_typical import shell_out


@contextlib.contextmanager
def event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread, as libraries for remote files have."""
    running = asyncio.new_event_loop()
    thread = threading.Thread(target=running.run_forever)
    thread.start()
    try:
        yield running
    finally:
        running.call_soon_threadsafe(running.stop)
        thread.join()
        running.close()


def asynchronous(running: asyncio.AbstractEventLoop, remedied: bool) -> int:
    return computed({("work", n): (ask_loop, running, 0.15) for n in range(24)})


def fetches(running: asyncio.AbstractEventLoop, remedied: bool) -> int:
    return computed({("work", n): (ask_loop_and_wait, running, 0.15, 0.05) for n in range(64)})


def healthy_fetches(running: asyncio.AbstractEventLoop, remedied: bool) -> int:
    return computed({("work", n): (ask_loop_and_wait, running, 0.4, 0.2) for n in range(16)})


def other_programs(_: None, remedied: bool) -> int:
    return computed({("work", n): (compute_elsewhere, 0.15) for n in range(8)})


def program_for_each_task(_: None, remedied: bool) -> int:
    return computed({("work", n): (checksums, [f"text {n}"], not remedied) for n in range(48)})


def programs_that_wait(_: None, remedied: bool) -> int:
    return computed({("work", n): (shell_out, 0.2) for n in range(2)})


def loops_on_many_threads(_: None, remedied: bool) -> int:
    return computed({("work", n): (compute if remedied else loop, 0.05) for n in range(32)})


def with_closure(work: Callable[[float], int], table: np.ndarray) -> Callable[[int], float]:
    def scaled(n: int) -> float:
        return work(0.25) * float(table[n])

    return scaled


def loops_with_closure(_: None, remedied: bool) -> float:
    # In processes, each task would be sent the table.
    task = delayed(with_closure(compute if remedied else loop, np.ones(3_000_000)))
    return float(sum(dask.compute(*(task(n) for n in range(24)))))


def steps_of_one_function(_: None, remedied: bool) -> int:
    """The second step takes longer than those of the first, as in a decomposition."""
    dsk = {("work", n): (pause, 0.05) for n in range(24)}
    return computed({**dsk, ("work", 24): (pause, 0.3, *[[key] for key in dsk])})


PROGRAMS = (
    Program(
        "tasks that wait for an event loop",
        asynchronous,
        "too-few-threads",
        remedy={"num_workers": 8},
        remaining=SLEEPING,
        prepare=event_loop,
    ),
    # Eight threads wait for a part of their time, as for a lock that is held by two at a time.
    Program(
        "fetches on eight threads",
        fetches,
        "too-few-threads",
        settings=threads(8),
        remedy={"num_workers": 32},
        remaining=SLEEPING,
        prepare=event_loop,
    ),
    Program(
        "healthy: a thread for each fetch",
        healthy_fetches,
        settings=threads(16),
        prepare=event_loop,
    ),
    Program(
        "programs that compute, one at a time",
        other_programs,
        "too-few-threads",
        settings=threads(1),
        remedy={"num_workers": 2},
    ),
    Program("healthy: programs that compute", other_programs),
    Program("a short program for each task", program_for_each_task, "short-programs"),
    Program("healthy: a program for each thread", programs_that_wait),
    Program(
        "Python loops on eight threads",
        loops_on_many_threads,
        "gil-bound",
        settings=threads(8),
    ),
    Program("Python loops with a large closure", loops_with_closure, "gil-bound"),
    Program(
        "healthy: a second step of the same function",
        steps_of_one_function,
        true=SLEEPING,
        remaining=SLEEPING,
    ),
)
