"""From what capture collected to a Recording; see `tasks` and `stacks` for their tables."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from dask_diag.capture.computation import ComputationInfo, ComputationSnapshot, run_id
from dask_diag.capture.session import Session
from dask_diag.capture.workers_table import constant, task_threads, threads_table, workers_table
from dask_diag.cluster.log import ClusterLog
from dask_diag.cluster.workers_table import with_places
from dask_diag.columns import Categorical, FloatArray, PrefixStrings
from dask_diag.model import tables
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.system.processes import memory_limit
from dask_diag.system.samplers import MEMORY_COLUMNS, PROCESS_COLUMNS, SAMPLE_COLUMNS
from dask_diag.system.usage import NOT_LISTED, processors


def build_recording(
    session: Session,
    computations: Sequence[ComputationSnapshot],
    notices: Sequence[str],
    **fields: Any,
) -> Recording:
    """A Recording of what one diagnostic captured: its times, its computations, and its tables."""
    infos = [computation.info for computation in computations]
    now = perf_counter()
    starts = [session.start, *(info.called for info in infos)]
    stops = [session.stop, *(info.stop or now for info in infos)]
    start = min((time for time in starts if time is not None), default=now)
    return Recording(
        start=start,
        stop=max((time for time in stops if time is not None), default=now),
        epoch=session.epoch,
        computations=computations_table(infos, now),
        notices=tuple(notices),
        run_id=run_id(),
        pools=pools_table(infos),
        workers=workers_table(computation.info for computation in computations),
        threads=threads_table(
            (computation.info, task_threads(computation.tasks.rows)) for computation in computations
        ),
        **fields,
    )


def computations_table(computations: Sequence[ComputationInfo], now: float) -> tables.Computations:
    """`Recording.computations`; a computation that still runs stops `now`."""
    if not computations:
        return tables.Computations.empty()
    return tables.Computations(
        {
            "computation": Categorical.of(computation.name for computation in computations),
            "called": np.array([computation.called for computation in computations], dtype=float),
            "start": np.array([computation.start for computation in computations], dtype=float),
            "prepared": np.array(
                [computation.prepared or computation.stop or now for computation in computations],
                dtype=float,
            ),
            "stop": np.array(
                [computation.stop or now for computation in computations], dtype=float
            ),
            "workers": np.array(
                [computation.workers for computation in computations], dtype=np.int64
            ),
            **_usage_columns(computations),
            "cpus": np.full(len(computations), processors(), dtype=np.int64),
            "memory_limit": np.full(len(computations), memory_limit(), dtype=float),
            "graph_bytes": np.array([info.graph_bytes for info in computations], dtype=float),
            "span": Categorical.of(computation.span for computation in computations),
            "scheduler": Categorical.of(computation.scheduler for computation in computations),
            "cluster": constant("", len(computations)),
            "call_site": Categorical.of(computation.call_site for computation in computations),
            "error": Categorical.of(computation.error for computation in computations),
            "pool_end": Categorical.of(computation.pool_end for computation in computations),
        }
    )


def _usage_columns(computations: Sequence[ComputationInfo]) -> dict[str, FloatArray]:
    usages = [computation.usage for computation in computations]
    return {
        "process_cpu": np.array([usage.process_cpu for usage in usages], dtype=float),
        "scheduler_cpu": np.array([usage.thread_cpu for usage in usages], dtype=float),
        "children_cpu": np.array([usage.children_cpu for usage in usages], dtype=float),
        "others_cpu": np.array([usage.others_cpu for usage in usages], dtype=float),
        **{
            name: np.array([getattr(info, name) for info in computations], dtype=float)
            for name in ("hooks_cpu", "ends_cpu", "own_threads_cpu", "own_seconds")
        },
        "voluntary_switches": np.array([usage.voluntary for usage in usages], dtype=float),
        "involuntary_switches": np.array([usage.involuntary for usage in usages], dtype=float),
    }


def pools_table(computations: Iterable[ComputationInfo]) -> tables.Pools:
    """`Recording.pools`."""
    pools = [(computation, pool) for computation in computations for pool in computation.pools]
    if not pools:
        return tables.Pools.empty()
    return tables.Pools(
        {
            "computation": Categorical.of(computation.name for computation, _ in pools),
            "library": Categorical.of(pool.library for _, pool in pools),
            "threads": np.array([pool.threads for _, pool in pools], dtype=np.int64),
            "known": np.array([pool != NOT_LISTED for _, pool in pools], dtype=np.int64),
        }
    )


def resources_table(samples: array[float]) -> tables.Resources:
    """`Recording.resources`, in order of time."""
    if not samples:
        return tables.Resources.empty()
    numbers = np.array(samples, dtype=float).reshape(-1, len(SAMPLE_COLUMNS))
    return tables.Resources({name: numbers[:, n].copy() for n, name in enumerate(SAMPLE_COLUMNS)})


def processes_table(samples: array[float], logs: Sequence[ClusterLog] = ()) -> tables.Processes:
    """`Recording.processes` of this process and its descendants, in order of time."""
    if not samples:
        return tables.Processes.empty()
    numbers = np.array(samples, dtype=float).reshape(-1, len(PROCESS_COLUMNS))
    columns = {name: numbers[:, n].copy() for n, name in enumerate(PROCESS_COLUMNS)}
    integers = {name: columns[name].astype(np.int64) for name in ("pid", "is_child")}
    return with_places(Table({**columns, **integers}), logs)


def memory_table(series: Mapping[str, array[float]]) -> tables.Memory:
    """`Recording.memory`, series by series."""
    lengths = [len(rows) // len(MEMORY_COLUMNS) for rows in series.values()]
    joined = [np.array(rows, dtype=float) for rows in series.values()]
    numbers = np.concatenate([np.zeros(0), *joined]).reshape(-1, len(MEMORY_COLUMNS))
    columns = {name: numbers[:, n].copy() for n, name in enumerate(MEMORY_COLUMNS)}
    labels = Categorical(np.repeat(np.arange(len(lengths)), lengths), list(series))
    return tables.Memory({"label": labels, **columns})


def environment_table(rows: Sequence[tuple[str, str, str]]) -> tables.Environment:
    """Of section, name and value."""
    if not rows:
        return tables.Environment.empty()
    sections, names, values = zip(*rows, strict=True)
    return tables.Environment(
        {
            "section": Categorical.of(sections),
            "name": PrefixStrings(Categorical([0] * len(rows), [""]), names),
            "value": PrefixStrings(Categorical([0] * len(rows), [""]), values),
        }
    )
