"""Recordings of many tasks, made without a computation: of any size, the same each time."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_diag.capture.workers_table import on_local_schedulers
from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table

FUNCTIONS = ("ones", "add", "sum", "sum-aggregate", "getitem", "rechunk-merge", "mean_chunk", "dot")


def many_tasks(
    count: int, workers: int = 16, mean: float = 2e-3, alike: bool = True, seed: int = 0
) -> Recording:
    """Tasks one after the other on each worker, in layers of one function after the other.

    `mean` is of their durations in seconds. Keys are `alike` as those of dask's collections, or
    else each has a random identifier. A few tasks failed.
    """
    random = np.random.default_rng(seed)
    per_worker = count // workers
    count = per_worker * workers
    durations = random.exponential(mean, (workers, per_worker)) + 5e-6
    stop = np.cumsum(durations + random.exponential(3e-5, (workers, per_worker)) + 1e-5, axis=1)
    start, stop = (stop - durations).ravel(), stop.ravel()
    worker = np.repeat(np.arange(workers), per_worker)
    rank = np.empty(count, int)
    rank[np.argsort(start, kind="stable")] = np.arange(count)
    layer = (rank * len(FUNCTIONS) // count + random.integers(0, 2, count)) % len(FUNCTIONS)
    failed = np.zeros(count, int)
    failed[random.integers(0, count, 20)] = 1
    cpu = durations.ravel() * random.random(count)
    one = np.zeros(count, int)
    columns = {
        "key": _keys(layer, rank, alike, random),
        "function": Categorical(layer, FUNCTIONS),
        "start": start,
        "stop": stop,
        "thread_cpu": cpu,
        "thread_noncpu": durations.ravel() - cpu,
        "submitted": start - 1e-4,
        "collected": stop + 1e-4,
        "worker": Categorical(worker, [f"thread-{n}" for n in range(workers)]),
        "pid": Categorical(one, [1]),
        "thread": Categorical(worker, range(workers)),
        "computation": Categorical(one, ["c-1"]),
        "span": Categorical(one, [""]),
        "outcome": Categorical(failed, ["ok", "failed"]),
        "error": Categorical(failed, ["", "ValueError"]),
        "error_message": Categorical(failed, ["", "expected a number"]),
        "error_location": Categorical(failed, ["", "program.py:3 in f"]),
        **on_local_schedulers(count),
    }
    # As capture has them: in the order in which tasks ended.
    ended = np.argsort(stop, kind="stable")
    return recording_of(Table({name: column[ended] for name, column in columns.items()}), workers)


def recording_of(tasks: Table, workers: int) -> Recording:
    """A recording of one computation."""
    stop = float(tasks["stop"].max(initial=0.0)) + 0.1
    zero = np.zeros(1)
    computation = {
        "computation": Categorical.of(["c-1"]),
        "called": zero,
        "start": zero,
        "prepared": zero,
        "stop": np.array([stop]),
        "workers": np.array([workers]),
        "cpu_process": np.array([float(tasks["thread_cpu"].sum())]),
        "cpu_scheduler": zero,
        "cpu_children": zero,
        "cpu_other_processes": zero,
        "cpu_hooks": zero,
        "cpu_ends": zero,
        "cpu_own_threads": zero,
        "own_seconds": zero,
        "voluntary_switches": zero,
        "involuntary_switches": zero,
        "cpus": np.array([workers]),
        "memory_limit": np.array([np.nan]),
        "graph_bytes": zero,
        "span": Categorical.of([""]),
        "scheduler": Categorical.of(["threads"]),
        "cluster": Categorical.of([""]),
        "call_site": Categorical.of([""]),
        "error": Categorical.of([""]),
        "pool_end": Categorical.of([""]),
    }
    none = Table({})
    return Recording(
        start=0.0,
        stop=stop,
        epoch=1.7e9,
        computations=Table(computation),
        tasks=tasks,
        dependencies=none,
        metrics=none,
        resources=none,
        cached_results=none,
    )


def _keys(layer: Any, rank: Any, alike: bool, random: np.random.Generator) -> PrefixStrings:
    """A key for each task: of chunks in two dimensions, counted in the order of their starts."""
    if not alike:
        digits = random.bytes(16 * len(layer)).hex()
        heads = [f"{name}-" for name in FUNCTIONS]
        tails = (digits[at : at + 32] for at in range(0, len(digits), 32))
        return PrefixStrings(
            Categorical(layer, heads), [f"{t[:8]}-{t[8:12]}-{t[12:16]}-{t[16:]}" for t in tails]
        )
    heads = [f"('{name}-{random.bytes(16).hex()}', " for name in FUNCTIONS]
    index = np.empty(len(layer), int)
    for code in range(len(FUNCTIONS)):
        rows = np.flatnonzero(layer == code)
        index[rows[np.argsort(rank[rows])]] = np.arange(len(rows))
    tails = [f"{n // 1000}, {n % 1000})" for n in index.tolist()]
    return PrefixStrings(Categorical(layer, heads), tails)
