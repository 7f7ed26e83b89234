"""From what capture collected to the frozen tables of a Recording.

What is about tasks is in `tasks`, what is about stacks in `stacks`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from threading import get_ident
from time import perf_counter
from typing import Any

import numpy as np

from dask_diag.builders.keys import keys_columns
from dask_diag.capture.computation import Compute
from dask_diag.capture.system.usage import processors
from dask_diag.columns import Labels, Texts
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table, stack
from dask_diag.profilers.cache import Holdings
from dask_diag.profilers.memory import MEMORY_COLUMNS
from dask_diag.profilers.resources import PROCESS_COLUMNS, SAMPLE_COLUMNS

__all__ = [
    "cache_table",
    "compute_name",
    "computes_table",
    "environment_table",
    "holdings_of",
    "memory_table",
    "pools_table",
    "processes_table",
    "record",
    "resources_table",
]


def record(diagnostic: Any, **tables: Any) -> Recording:
    """A Recording of a diagnostic: its times, its computes, and the tables it gives."""
    computes = list(diagnostic._computes)
    starts = [diagnostic.start_time, *(compute.start for compute in computes)]
    now = perf_counter()
    stops = [diagnostic.end_time, *(compute.stop or now for compute in computes)]
    start = min((time for time in starts if time is not None), default=now)
    empty = Table({})
    return Recording(
        start=start,
        stop=max((time for time in stops if time is not None), default=now),
        epoch=diagnostic._epoch,
        computes=computes_table(computes, now),
        notices=tuple(diagnostic._notices()),
        **{
            "tasks": empty,
            "needs": empty,
            "metrics": empty,
            "resources": empty,
            "cache": empty,
            "pools": pools_table(computes),
            **tables,
        },
    )


def compute_name(compute: Compute) -> str:
    """The name of a compute, unique among all that a process and its children run."""
    return f"{compute.pid}-{compute.number & 0xFFFFFFFF}"


def computes_table(computes: Sequence[Compute], now: float) -> Table:
    """`Recording.computes`; a compute that still runs stops `now`."""
    return Table(
        {
            "compute": Labels.of(compute_name(compute) for compute in computes),
            "start": np.array([compute.start for compute in computes], dtype=float),
            "stop": np.array([compute.stop or now for compute in computes], dtype=float),
            "workers": np.array([compute.workers for compute in computes], dtype=np.int64),
            **_usage_columns(computes),
            "processors": np.full(len(computes), processors(), dtype=np.int64),
            "span": Labels.of(compute.span for compute in computes),
            "scheduler": Labels.of(compute.scheduler for compute in computes),
            "error": Labels.of(compute.error for compute in computes),
        }
    )


def cache_table(holdings: Iterable[tuple[Compute, Holdings]]) -> Table:
    """`Recording.cache`, in the order in which results were let go."""
    tables = [
        holdings_of(compute, bytes(held.rows), *keys_columns(list(held.keys), dict(held.names)))
        for compute, held in holdings
    ]
    return stack([*tables, Table({})])


def holdings_of(compute: Compute, rows: bytes, keys: Texts, functions: Labels) -> Table:
    """`Recording.cache` of results that one compute held."""
    numbers = np.frombuffer(rows, dtype=float).reshape(-1, 3)
    return Table(
        {
            "key": keys,
            "function": functions,
            "compute": Labels(np.zeros(len(keys), np.uint8), [compute_name(compute)]),
            "metric": numbers[:, 0].copy(),
            "start": numbers[:, 1].copy(),
            "stop": numbers[:, 2].copy(),
        }
    )


def _usage_columns(computes: Sequence[Compute]) -> dict[str, Any]:
    finished = [compute.usage for compute in computes]
    usages = [
        usage or compute.usage_before.until_now()
        for usage, compute in zip(finished, computes, strict=True)
    ]
    on_its_thread = [
        usage is not None or compute.thread == get_ident()
        for usage, compute in zip(finished, computes, strict=True)
    ]
    return {
        "process_cpu": np.array([usage.process_cpu for usage in usages], dtype=float),
        "scheduler_cpu": np.array(
            [
                usage.thread_cpu if known else np.nan
                for usage, known in zip(usages, on_its_thread, strict=True)
            ],
            dtype=float,
        ),
        "blocked": np.array([usage.blocked for usage in usages], dtype=float),
        "preempted": np.array([usage.preempted for usage in usages], dtype=float),
    }


def pools_table(computes: Iterable[Compute]) -> Table:
    """`Recording.pools`."""
    pools = [(compute, pool) for compute in computes for pool in compute.pools]
    return Table(
        {
            "compute": Labels.of(compute_name(compute) for compute, _ in pools),
            "library": Labels.of(pool.library for _, pool in pools),
            "threads": np.array([pool.threads for _, pool in pools], dtype=np.int64),
        }
    )


def resources_table(samples: array[float]) -> Table:
    """`Recording.resources`, in order of time."""
    numbers = np.array(samples, dtype=float).reshape(-1, len(SAMPLE_COLUMNS))
    return Table({name: numbers[:, n].copy() for n, name in enumerate(SAMPLE_COLUMNS)})


def processes_table(samples: array[float]) -> Table:
    """`Recording.processes`, in order of time."""
    numbers = np.array(samples, dtype=float).reshape(-1, len(PROCESS_COLUMNS))
    columns = {name: numbers[:, n].copy() for n, name in enumerate(PROCESS_COLUMNS)}
    whole = {name: columns[name].astype(np.int64) for name in ("pid", "descendant")}
    return Table({**columns, **whole})


def memory_table(series: Mapping[str, array[float]]) -> Table:
    """`Recording.memory`, series by series."""
    lengths = [len(rows) // len(MEMORY_COLUMNS) for rows in series.values()]
    joined = [np.array(rows, dtype=float) for rows in series.values()]
    numbers = np.concatenate([np.zeros(0), *joined]).reshape(-1, len(MEMORY_COLUMNS))
    columns = {name: numbers[:, n].copy() for n, name in enumerate(MEMORY_COLUMNS)}
    labels = Labels(np.repeat(np.arange(len(lengths)), lengths), list(series))
    return Table({"label": labels, **columns})


def environment_table(rows: Sequence[tuple[str, str, str]]) -> Table:
    """Of section, name and value."""
    if not rows:
        return Table({})
    sections, names, values = zip(*rows, strict=True)
    return Table(
        {
            "section": Labels.of(sections),
            "name": Texts(Labels([0] * len(rows), [""]), names),
            "value": Texts(Labels([0] * len(rows), [""]), values),
        }
    )
