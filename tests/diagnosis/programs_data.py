"""Planted programs on processes, memory, and what happens before the first computation."""

from __future__ import annotations

import contextlib
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

from tests.diagnosis.program import PROCESSES, STARTUP, Program
from tests.diagnosis.programs_tasks import computed, get
from tests.diagnosis.work import (
    compute,
    keep,
    loop,
    make_array,
    read_csv,
    release,
    sum_of_array,
    total,
)

ROWS = 2_400_000
LARGE = 4_000_000
CACHED = 40
"""Arrays of 32 MB that a program's scheduler caches at once."""


def large_results(_: None, remedied: bool) -> float:
    make = sum_of_array if remedied else make_array
    dsk = {("make", n): (make, LARGE) for n in range(8)}
    # Two tasks use each: else dask would make one task of it and what it depends on.
    uses = {("use", n): (total, ("make", n // 2)) for n in range(16)}
    return float(sum(get({**dsk, **uses}, list(uses))))


def short_computation(_: None, remedied: bool) -> int:
    return computed({("work", n): (compute, 0.02) for n in range(8)})


def healthy_processes(_: None, remedied: bool) -> int:
    return computed({("work", n): (loop, 0.25) for n in range(24)})


def growing(_: None, remedied: bool) -> float:
    task = release if remedied else keep
    dsk = {("keep", n): (task, 2_500_000, *([("keep", n - 1)] if n else [])) for n in range(30)}
    return computed(dsk)


@contextlib.contextmanager
def text_and_binary() -> Iterator[tuple[Path, Path]]:
    """The same numbers as text and as an array."""
    with tempfile.TemporaryDirectory() as folder:
        text, binary = Path(folder, "numbers.csv"), Path(folder, "numbers.npy")
        values = np.random.default_rng(0).integers(0, 1000, ROWS).astype(float)
        np.save(binary, values)
        text.write_text("".join(f"{n},{value}\n" for n, value in enumerate(values)))
        yield text, binary


def reading_first(paths: tuple[Path, Path], remedied: bool) -> float:
    text, binary = paths
    read = float(np.load(binary).sum()) if remedied else read_csv(str(text))
    return read + computed({("work", n): (compute, 0.03) for n in range(10)})


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """The process may have little more memory than the program caches."""
    now = psutil.Process().memory_info().vms
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + 8 * LARGE * CACHED * 14 // 10, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def cached(_: None, remedied: bool) -> float:
    if remedied:
        return float(computed({("use", n): (sum_of_array, LARGE) for n in range(CACHED)}))
    dsk = {("make", n): (make_array, LARGE) for n in range(CACHED)}
    dsk["all"] = (sum_of, list(dsk))
    return float(get(dsk, "all"))


def sum_of(arrays: list[np.ndarray]) -> float:
    return sum(map(total, arrays))


PROGRAMS = (
    Program(
        "large results between processes",
        large_results,
        "serialization-bound",
        settings=PROCESSES,
        true=STARTUP,
        remaining=STARTUP,
    ),
    Program(
        "processes for a short computation",
        short_computation,
        "pool-startup",
        settings=PROCESSES,
        remedy={"scheduler": "threads"},
    ),
    Program(
        "tasks that keep memory",
        growing,
        "memory-growth",
        true=frozenset({"serial-chain"}),
        remaining=frozenset({"serial-chain"}),
        gains=False,
    ),
    Program("reading text first", reading_first, "slow-start", prepare=text_and_binary),
    Program(
        "many large cached results",
        cached,
        "cache-pressure",
        # One task adds up all results.
        true=frozenset({"chunks-too-large"}),
        prepare=limited_memory,
        gains=False,
    ),
    Program(
        "healthy: processes",
        healthy_processes,
        settings={**PROCESSES, "chunksize": 1},
        true=STARTUP,
    ),
)
