"""Planted programs as users of dask write them: the usual mistakes, and programs without any."""

from __future__ import annotations

import contextlib
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import numpy as np
from dask import delayed

from tests.diagnosis.program import PROCESSES, SLEEPING, STARTUP, Program, threads
from tests.diagnosis.work_typical import (
    PART,
    count_words,
    look_up,
    look_up_quickly,
    merge,
    own_scaled_sum,
    poll,
    scaled_sum,
    shell_out,
    slow_statistics,
    sorted_freely,
    sorted_under_a_lock,
    statistics_in_parts,
    text_length,
    with_pandas,
)


def large_argument(_: None, remedied: bool) -> float:
    """A large array is part of each task."""
    if remedied:
        return float(sum(dask.compute(*(delayed(own_scaled_sum)(2_500_000, n) for n in range(24)))))
    table = np.arange(2_500_000, dtype=float)
    return float(sum(dask.compute(*(delayed(scaled_sum)(table, n) for n in range(24)))))


def tiny_items(_: None, remedied: bool) -> int:
    """A bag with a partition for each item."""
    items = db.from_sequence(range(4000), npartitions=8 if remedied else 4000)
    return int(items.map(text_length).sum().compute())


def small_blocks(_: None, remedied: bool) -> float:
    """An image in far too small blocks."""
    chunks = 600 if remedied else 40
    image = da.ones((2400, 2400), chunks=(chunks, chunks))
    return float(image.map_blocks(np.sqrt).map_blocks(np.cos).sum().compute())


def one_block(_: None, remedied: bool) -> float:
    """An array in a single chunk."""
    values = da.arange(6_000_000.0, chunks=500_000 if remedied else -1)
    result = (da.sin(values) ** 2 + da.cos(values) ** 2 + da.log1p(values)).sum()
    return round(float(result.compute()), 3)


def locked_library(_: None, remedied: bool) -> float:
    """A lock around most of the work, as of HDF5."""
    task = delayed(sorted_freely if remedied else sorted_under_a_lock)
    return round(float(sum(dask.compute(*(task(n, 400_000) for n in range(16))))), 3)


def words_in_threads(_: None, remedied: bool) -> int:
    """Text in threads."""
    return int(sum(dask.compute(*(delayed(count_words)(n, 700_000) for n in range(16)))))


def polling(_: None, remedied: bool) -> int:
    """Tasks that ask a service whether it is ready."""
    return int(sum(dask.compute(*(delayed(poll)(0.08) for _ in range(20)))))


def uneven_partitions(_: None, remedied: bool) -> int:
    """One of the partitions is far larger, and comes last."""
    sizes = [2 * PART] * 30 if remedied else [PART] * 20 + [40 * PART]
    # Whole large arrays would take a different time in each run: the kernel has to find memory.
    tasks = [delayed(statistics_in_parts)(delayed(np.ones)(size, np.float32)) for size in sizes]
    return round(sum(dask.compute(*tasks)) / sum(sizes))


def merged_in_turn(_: None, remedied: bool) -> float:
    """Results are combined one after the other."""
    parts = [delayed(np.full)(1000, float(n)) for n in range(32)]
    if remedied:
        while len(parts) > 1:
            parts = [delayed(merge)(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
        return float(parts[0].compute().sum())
    total = parts[0]
    for part in parts[1:]:
        total = delayed(merge)(total, part)
    return float(total.compute().sum())


def other_programs(_: None, remedied: bool) -> int:
    """Each task runs a command."""
    return int(sum(dask.compute(*(delayed(shell_out)(0.12) for _ in range(20)))))


def imports_in_processes(_: None, remedied: bool) -> int:
    """Worker processes that import a library for hardly any work."""
    return int(sum(dask.compute(*(delayed(with_pandas)(n) for n in range(12)))))


def rechunk_storm(_: None, remedied: bool) -> float:
    """From thin columns to thin rows."""
    wide, narrow = (2000, 1000) if remedied else (2000, 20)
    values = da.ones((2000, 2000), chunks=(wide, narrow))
    # Without this, dask makes one chunk of all in between, as that fits into memory.
    values = values.rechunk((narrow, wide), threshold=1_000_000)
    return float(values.sum(axis=0).max().compute())


def computed_in_a_loop(_: None, remedied: bool) -> float:
    """``compute()`` in a loop over independent results."""
    lazy = [delayed(slow_statistics)(delayed(np.ones)(500_000)) for n in range(24)]
    if remedied:
        return round(float(sum(dask.compute(*lazy))), 3)
    return round(float(sum(one.compute() for one in lazy)), 3)


def matrix_blocks(_: None, remedied: bool) -> float:
    """Products of blocks, whose library has threads of its own."""
    values = da.ones((3200, 3200), chunks=(800, 800))
    return float((values @ values @ values).sum().compute())


def input_first(_: None, remedied: bool) -> float:
    """The main program makes all input before the first computation."""
    if remedied:
        table = np.arange(4_000_000) % 1_000
    else:
        table = np.array([int(str(n)[-3:]) for n in range(4_000_000)])
    return float(da.from_array(table, chunks=800_000).sum().compute())


def healthy_random(_: None, remedied: bool) -> bool:
    values = da.random.default_rng(0).normal(size=(5000, 5000), chunks=(1000, 1000))
    return bool(values.std().compute() > 0)


def healthy_transpose(_: None, remedied: bool) -> float:
    values = da.ones((6000, 6000), chunks=(1000, 1000))
    return float((values + values.T).mean(axis=0).sum().compute())


def healthy_short(_: None, remedied: bool) -> float:
    return float(da.ones(200_000, chunks=50_000).sum().compute())


@contextlib.contextmanager
def data_frame() -> Iterator[Any]:
    """A lazy table; libraries are imported and used once."""
    import dask.dataframe as dd
    import pandas as pd

    chance = np.random.default_rng(0)
    frame = pd.DataFrame({"key": chance.integers(0, 50, 4_000_000), "value": 1})
    lazy = dd.from_pandas(frame, npartitions=8)
    lazy.head().groupby("key").value.sum()
    yield lazy


def healthy_groupby(frame: Any, remedied: bool) -> int:
    return int(frame.groupby("key").value.sum().compute().sum())


def healthy_mixed(_: None, remedied: bool) -> float:
    # Where waits are most of the time of tasks, two threads are too few.
    sums = [delayed(slow_statistics)(delayed(np.ones)(800_000)) for _ in range(16)]
    waits = [delayed(poll)(0.01) for _ in range(4)]
    return round(float(sum(dask.compute(*sums, *waits))), 3)


def healthy_sorting(_: None, remedied: bool) -> float:
    lazy = (delayed(sorted_freely)(n, 400_000) for n in range(24))
    return round(float(sum(dask.compute(*lazy))), 3)


def healthy_words(_: None, remedied: bool) -> int:
    return int(sum(dask.compute(*(delayed(count_words)(n, 1_000_000) for n in range(16)))))


@contextlib.contextmanager
def files_of_words() -> Iterator[list[str]]:
    """Files with the same words."""
    words = {f"word {n}": n for n in range(400_000)}
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{n}.pickle") for n in range(16)]
        for file in files:
            file.write_bytes(pickle.dumps(words))
        yield [*map(str, files)]


def loaded_in_each_task(files: list[str], remedied: bool) -> int:
    function = delayed(look_up_quickly if remedied else look_up)
    return int(sum(dask.compute(*(function(files[0], n) for n in range(16)))))


def healthy_files(files: list[str], remedied: bool) -> int:
    return int(sum(dask.compute(*map(delayed(look_up), files, range(16)))))


BUSY: frozenset[str] = frozenset({"tasks-too-small", "scheduler-bound", "graph-preparation"})
"""What too many tasks may have, all of it."""

_MANY: dict[str, Any] = {"true": BUSY, "remaining": frozenset({"graph-preparation"})}

PROGRAMS = (
    Program(
        "a large array in each task",
        large_argument,
        "serialization-bound",
        settings=PROCESSES,
        true=STARTUP,
        remaining=STARTUP,
    ),
    Program(
        "a bag of tiny partitions",
        tiny_items,
        "tasks-too-small",
        settings=PROCESSES,
        true=BUSY | STARTUP | {"serialization-bound"},
        remaining=STARTUP,
    ),
    Program("far too small blocks", small_blocks, "tasks-too-small", **_MANY),
    Program("an array in one chunk", one_block, "chunks-too-large"),
    Program("a lock around sorting", locked_library, "lock-bound"),
    Program(
        "words counted in threads",
        words_in_threads,
        "gil-bound",
        remedy={"scheduler": "processes", "chunksize": 1},
        remaining=STARTUP,
    ),
    Program(
        "polling on two threads",
        polling,
        "too-few-threads",
        remedy={"num_workers": 10},
        remaining=SLEEPING,
    ),
    Program("one large partition", uneven_partitions, "straggler"),
    Program(
        "results merged in turn",
        merged_in_turn,
        "serial-chain",
        remaining=frozenset({"serial-chain"}) | SLEEPING,
    ),
    Program(
        "a command in each task",
        other_programs,
        "too-few-threads",
        # As many as run 20 tasks in even rounds.
        remedy={"num_workers": 10},
        remaining=SLEEPING,
    ),
    Program(
        "imports in worker processes",
        imports_in_processes,
        "pool-startup",
        settings=PROCESSES,
        true=frozenset({"first-call"}),
        remedy={"scheduler": "threads"},
        remaining=frozenset({"gil-bound", "first-call"}),
    ),
    Program("a rechunk storm", rechunk_storm, "tasks-too-small", **_MANY),
    Program(
        "compute in a loop",
        computed_in_a_loop,
        "chunks-too-large",
        true=frozenset({"serial-chain"}),
    ),
    Program(
        "products of blocks",
        matrix_blocks,
        "thread-oversubscription",
        settings=threads(4),
        variables={"OPENBLAS_NUM_THREADS": "1"},
    ),
    Program(
        "input made first",
        input_first,
        "slow-start",
        # It is copied, too.
        true=frozenset({"graph-preparation"}),
        remaining=frozenset({"slow-start", "graph-preparation"}),
    ),
    Program(
        "words loaded in each task",
        loaded_in_each_task,
        "repeated-work",
        true=frozenset({"gil-bound", "garbage-collection"}),
        # To look words up needs the GIL.
        remaining=frozenset({"gil-bound"}),
        prepare=files_of_words,
    ),
    Program(
        "healthy: files of their own",
        healthy_files,
        true=frozenset({"gil-bound", "garbage-collection"}),
        prepare=files_of_words,
    ),
    Program("healthy: random numbers", healthy_random),
    Program("healthy: transposed", healthy_transpose),
    Program("healthy: short", healthy_short),
    Program("healthy: groupby", healthy_groupby, prepare=data_frame),
    Program("healthy: mixed", healthy_mixed),
    Program(
        "healthy: more threads than processors",
        healthy_sorting,
        settings=threads(6),
    ),
    Program(
        "healthy: words in processes",
        healthy_words,
        settings={**PROCESSES, "chunksize": 1},
        true=STARTUP,
    ),
)
