"""Planted programs after public reports: collectors of garbage, one busy thread, parsers of text."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import dask
from dask import delayed

from tests.diagnosis.program import PROCESSES, SLEEPING, Program, threads
from tests.diagnosis.work_threads import (
    hash_of,
    parse_in_cycles,
    read,
    read_hash,
    read_records,
    times_of,
)

SYNC = {"scheduler": "sync"}
TEXTS = [
    f"{n % 28 + 1}.{n % 12 + 1}.20{n % 20:02d} {n % 24}:{n % 60}:{n % 59}" for n in range(2500)
]


@contextlib.contextmanager
def objects() -> Iterator[list[Any]]:
    """The program's own data, in many small objects."""
    yield [{"a": [number], "b": (number, str(number))} for number in range(800_000)]


def cycles(_: list[Any], remedied: bool) -> int:
    """Parsers that make cycles beside data that stays."""
    if remedied:
        gc.freeze()
    return int(sum(dask.compute(*(delayed(parse_in_cycles)(60_000) for _ in range(40)))))


def frozen_cycles(held: list[Any], remedied: bool) -> int:
    """The same, frozen in any case: what is collected has to be freed."""
    return cycles(held, True)


def records(_: list[Any], remedied: bool) -> int:
    """Readers of records in threads, and no cycles."""
    if remedied:
        gc.freeze()
    read_all = (delayed(len)(delayed(read_records)(60_000)) for _ in range(40))
    return int(sum(dask.compute(*read_all)))


def full_loop(_: None, remedied: bool) -> int:
    """An event loop that parses what eight threads read."""
    return int(sum(dask.compute(*(delayed(read)(0.002, 400_000) for _ in range(500)))))


def hashing_loop(_: None, remedied: bool) -> str:
    """An event loop that hashes what eight threads read; or these do."""
    parts = (delayed(read_hash)(number, remedied) for number in range(60))
    return hash_of("".join(dask.compute(*parts)).encode())


def half_loop(_: None, remedied: bool) -> int:
    """An event loop that mostly waits: more threads help."""
    return int(sum(dask.compute(*(delayed(read)(0.1, 60_000) for _ in range(96)))))


def mixed_times(_: None, remedied: bool) -> int:
    """Times in many formats, found by Python code."""
    form = "%d.%m.%Y %H:%M:%S" if remedied else "mixed"
    return int(sum(dask.compute(*(delayed(times_of)(TEXTS, form) for _ in range(12)))))


PROGRAMS = (
    Program(
        "cycles beside many objects",
        cycles,
        "garbage-collection",
        # One task at a time leaves a CPU idle.
        true=SLEEPING,
        remaining=SLEEPING,
        settings=SYNC,
        prepare=objects,
    ),
    Program(
        "records in threads beside many objects",
        records,
        "garbage-collection",
        true=frozenset({"gil-bound"}),
        remaining=frozenset({"garbage-collection", "gil-bound"}),
        prepare=objects,
    ),
    Program(
        "healthy: cycles beside frozen objects",
        frozen_cycles,
        true=SLEEPING,
        settings=SYNC,
        prepare=objects,
    ),
    Program(
        "one event loop that parses",
        full_loop,
        "busy-thread",
        settings=threads(8),
        remedy=PROCESSES,
        remaining=frozenset({"too-few-threads"}),
    ),
    Program(
        # Processes would only start in this second.
        "one event loop that hashes",
        hashing_loop,
        "busy-thread",
        settings=threads(8),
    ),
    Program(
        "one event loop that waits",
        half_loop,
        "too-few-threads",
        settings=threads(4),
        remedy={"num_workers": 12},
        remaining=SLEEPING,
    ),
    Program(
        "times of mixed formats in threads",
        mixed_times,
        # The lock of a cache, which code with the GIL holds: one thread is quicker than four.
        "lock-bound",
        settings=threads(4),
        # pandas is imported in the first task; dask looks through the list of texts for each task.
        remaining=frozenset({"slow-start", "first-call", "graph-preparation"}),
    ),
)
