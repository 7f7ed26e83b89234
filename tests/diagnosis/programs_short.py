"""Planted programs in which rules were wrong: delayed calls, and short or healthy programs."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
from dask import delayed

from tests.diagnosis.program import PROCESSES, SLEEPING, STARTUP, Program, threads
from tests.diagnosis.programs_typical import BUSY, data_frame
from tests.diagnosis.work import add, pause
from tests.diagnosis.work_typical import spectrum


def tree_of_calls(_: None, remedied: bool) -> int:
    """A sum of thousands of numbers, by a delayed call for each few of them."""
    size = 400 if remedied else 4
    values: list[Any] = list(range(8000))
    while len(values) > 1:
        values = [delayed(add)(*values[n : n + size]) for n in range(0, len(values), size)]
    return int(values[0].compute())


def sleeping_processes(_: None, remedied: bool) -> int:
    """Tasks that wait, in processes."""
    return int(sum(dask.compute(*(delayed(pause)(0.15) for _ in range(32)))))


def large_list(_: None, remedied: bool) -> int:
    """A list that dask searches for delayed objects."""
    rows = [[n, n / 2] for n in range(60_000)]
    return int(delayed(len)(delayed(rows, traverse=False) if remedied else rows).compute())


def hashed_again(_: None, remedied: bool) -> float:
    """An array that is given to dask for each part that is computed."""
    table = np.ones(6_000_000)
    once = da.from_array(table, chunks=1_000_000)
    parts = [
        (once if remedied else da.from_array(table, chunks=1_000_000))[n * 100 : n * 100 + 50]
        for n in range(12)
    ]
    return float(sum(dask.compute(*(part.sum() for part in parts))))


def healthy_spectra(_: None, remedied: bool) -> float:
    return round(float(sum(dask.compute(*(delayed(spectrum)(n, 2**19) for n in range(32))))), 3)


def healthy_expression(frame: Any, remedied: bool) -> float:
    return float((frame.value * 2 + frame.key).sum().compute())


PROGRAMS = (
    Program("a tree of delayed calls", tree_of_calls, "tasks-too-small", true=BUSY),
    Program("a large list in a call", large_list, "graph-preparation"),
    Program(
        "an array that is hashed again",
        hashed_again,
        "graph-preparation",
        # It is made before, and hashed once.
        true=frozenset({"slow-start"}),
        remaining=frozenset({"graph-preparation", "slow-start"}),
    ),
    Program(
        "sleeping tasks in processes",
        sleeping_processes,
        "too-few-threads",
        true=STARTUP,
        settings=PROCESSES,
        remedy=threads(8),
        remaining=SLEEPING,
    ),
    Program(
        "healthy: spectra",
        healthy_spectra,
        settings=threads(4),
    ),
    Program("healthy: expression on a table", healthy_expression, prepare=data_frame),
)
