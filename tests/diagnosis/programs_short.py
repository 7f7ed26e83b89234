"""Planted programs in which rules were wrong: delayed calls, and short or healthy programs."""

from __future__ import annotations

from typing import Any

import dask
from dask import delayed

from tests.diagnosis.program import Program
from tests.diagnosis.programs_typical import BUSY, PROCESSES, SLEEPING, STARTUP, data_frame
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


def healthy_spectra(_: None, remedied: bool) -> float:
    return round(float(sum(dask.compute(*(delayed(spectrum)(n, 2**19) for n in range(32))))), 3)


def healthy_expression(frame: Any, remedied: bool) -> float:
    return float((frame.value * 2 + frame.key).sum().compute())


PROGRAMS = (
    Program("a tree of delayed calls", tree_of_calls, "tasks-too-small", true=BUSY),
    Program(
        "sleeping tasks in processes",
        sleeping_processes,
        "too-few-threads",
        true=STARTUP,
        settings=PROCESSES,
        remedy={"scheduler": "threads", "num_workers": 8},
        remaining=SLEEPING,
    ),
    Program(
        "healthy: spectra",
        healthy_spectra,
        settings={"scheduler": "threads", "num_workers": 4},
    ),
    Program("healthy: expression on a table", healthy_expression, prepare=data_frame),
)
