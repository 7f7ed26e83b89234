"""Planted programs after public reports of programs that were slow."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import numpy as np
from dask import delayed

from tests.diagnosis.program import PROCESSES, SLEEPING, STARTUP, Program
from tests.diagnosis.work_field import (
    CompressedArray,
    Held,
    Kernel,
    Model,
    Source,
    lengths,
    load_frame,
    load_lines,
    number_of,
    part_of_table,
    range_of,
    rest,
    sleepy,
    slow_mean,
    smoothed,
    sorted_often,
    sorted_random,
    sorted_window,
)

FRAMES = 16


def frames() -> Any:
    return da.map_blocks(load_frame, chunks=((1,) * FRAMES, (200,), (200,)), dtype=float)


def shown_one_by_one(_: None, remedied: bool) -> float:
    """Each frame is divided by the maximum of all."""
    array = frames()
    scaled = array / (array.max().compute() if remedied else array.max())
    return round(float(sum(scaled[n].compute().sum() for n in range(FRAMES))), 3)


def statistics_of_a_bag(_: None, remedied: bool) -> tuple[int, ...]:
    """Several results of one bag, computed one by one."""
    lines = db.from_sequence(range(12), npartitions=12).map(load_lines)
    wanted = [lines.count(), lines.sum(), lines.max(), lines.min()]
    results = dask.compute(*wanted) if remedied else [one.compute() for one in wanted]
    return tuple(map(int, results))


def spread(number: int, chunk: int, size: int = 300) -> Any:
    array = da.from_array(np.random.default_rng(number).random((size, size)), chunks=chunk)
    return ((array - array.mean()) ** 2).sum()


def spreads_inside(_: None, remedied: bool) -> float:
    """Tasks that compute a small array each, with dask."""
    if remedied:
        results = dask.compute(*(spread(n, 300) for n in range(30)))
    else:
        results = dask.compute(*(delayed(lambda n: spread(n, 30).compute())(n) for n in range(30)))
    return round(float(sum(results)), 3)


def healthy_inside(_: None, remedied: bool) -> float:
    """Tasks that compute a large array each, with dask, on all CPUs."""
    results = (delayed(lambda n: spread(n, 1000, 4000).compute())(n) for n in range(12))
    return round(float(sum(dask.compute(*results))), 3)


def healthy_frames(_: None, remedied: bool) -> float:
    """Frames that are shown one by one, and need only themselves."""
    array = frames() * 2
    return round(float(sum(array[n].compute().sum() for n in range(FRAMES))), 3)


def windows(_: None, remedied: bool) -> int:
    """Small windows of an image, one after the other."""
    source = Source()
    image = da.from_array(source, chunks=500, inline_array=True)
    read = source if remedied else image
    total = 0
    for row in range(0, 3600, 100):
        for column in range(0, 3600, 130):
            window = read[row : row + 120, column : column + 120]
            total += int(np.asarray(window).sum())
    return total


def small_calls(_: None, remedied: bool) -> int:
    """Delayed calls, computed one by one."""
    calls = [delayed(pow)(n, 2, pure=False) for n in range(700)]
    return sum(dask.compute(*calls) if remedied else [call.compute() for call in calls])


def healthy_windows(_: None, remedied: bool) -> float:
    """Many computations with work enough for one each."""
    tasks = (delayed(sorted_window)(n) + delayed(sorted_window)(-n) for n in range(1, 120))
    return round(float(sum(task.compute() for task in tasks)), 3)


def branches(_: None, remedied: bool) -> int:
    """Three branches after a common first step."""
    start = delayed(rest)(0.0)
    parts = [delayed(rest)(1.0, start) for _ in range(3)]
    return int(delayed(rest)(0.0, *parts).compute() + 1)


def long_partitions(_: None, remedied: bool) -> int:
    """A bag with as many partitions as processes."""
    numbers = db.from_sequence(range(2), npartitions=2)
    return int(numbers.map(load_lines, 48_000_000).sum().compute())


def healthy_batches(_: None, remedied: bool) -> int:
    """Batches of six for each process."""
    numbers = db.from_sequence(range(24), npartitions=24)
    return int(numbers.map(load_lines, 1_000_000).sum().compute())


SMALL: frozenset[str] = frozenset({"graph-preparation", "tasks-too-small", "scheduler-bound"})


def groups_of(partitions: int) -> float:
    import dask.dataframe as dd
    import pandas as pd

    table = pd.DataFrame({"key": np.arange(1000) % 4, "value": 1.0})
    lazy = dd.from_pandas(table, npartitions=partitions)
    return float(lazy.groupby("key").apply(slow_mean, meta=("value", "f8")).compute().sum())


def one_partition(_: None, remedied: bool) -> float:
    """Groups of a dataframe of one partition."""
    return groups_of(4 if remedied else 1)


def one_bag_partition(_: None, remedied: bool) -> int:
    """A bag of one partition."""
    numbers = db.from_sequence(range(12), npartitions=12 if remedied else 1)
    return int(numbers.map(sleepy).sum().compute())


def healthy_groups(_: None, remedied: bool) -> float:
    return groups_of(4)


def hashed_objects(_: None, remedied: bool) -> int:
    """An array of objects, which dask pickles for a name."""
    values = np.array([{"key": n, "value": [n]} for n in range(200_000)], dtype=object)
    array = da.from_array(values, chunks=20_000, **({"name": False} if remedied else {}))
    return int(array.map_blocks(lengths, chunks=(1,), dtype=int).sum().compute())


def hashed_arguments(_: None, remedied: bool) -> int:
    """A list of objects in each delayed call that is pure."""
    table = [{"key": n} for n in range(120_000)]
    calls = [delayed(number_of, pure=not remedied)(n, Held(table)) for n in range(4)]
    return sum(dask.compute(*calls))


def healthy_arrays(_: None, remedied: bool) -> float:
    """An array of numbers, which is hashed quickly."""
    values = np.arange(400_000.0)
    array = da.from_array(values, chunks=40_000).map_blocks(sorted_often)
    return float(array.sum().compute())


def compiled_once(_: None, remedied: bool) -> float:
    """A kernel that compiles in its first call, under a lock."""
    kernel = Kernel()
    if remedied:
        kernel.compiled = True
    return round(sum(dask.compute(*(delayed(kernel.run)(n) for n in range(20)))), 3)


def model_in_a_bag(_: None, remedied: bool) -> int:
    """A model that is loaded in the first call."""
    model = Model()
    if remedied:
        model.table = [0] * 7
    numbers = db.from_sequence(range(24), npartitions=24)
    return int(numbers.map(model.predict).sum().compute())


def healthy_first(_: None, remedied: bool) -> float:
    """First tasks that simply have more data."""
    sizes = [4_000_000, 4_000_000, *[400_000] * 22]
    return round(float(sum(dask.compute(*(delayed(sorted_random)(size) for size in sizes)))), 3)


def days(_: None, remedied: bool) -> float:
    """An anomaly by month, for which each day becomes a chunk of its own."""
    values = da.ones((1200, 40, 40), chunks=(120, 40, 40))
    month = np.arange(1200) // 30 % 12
    means = np.arange(12.0)[month][:, None, None]
    if not remedied:
        values = values.rechunk({0: 1})
        means = da.from_array(means, chunks=(1, 1, 1))
    return round(float((values - means).std(axis=0).mean().compute()), 6)


HOLDING: frozenset[str] = frozenset({"gil-bound"})
ONE_BY_ONE: frozenset[str] = frozenset({"too-few-threads", "chunks-too-large"})
"""Frames that are loaded one by one could be loaded at once."""


def merged_tables(_: None, remedied: bool) -> float:
    """Two tables with a common key, neither of them sorted."""
    import dask.dataframe as dd

    numbers = (range(32), range(32, 64))
    left, right = (dd.from_map(part_of_table, each, keys=500_000, text=False) for each in numbers)
    merged = left.merge(right, on="key")
    return round(float((merged.x_x * merged.x_y).sum().compute()), 3)


def places_of_keys(_: None, remedied: bool) -> float:
    """A table with a key, merged with a small one that has what belongs to each key."""
    import dask.dataframe as dd
    import pandas as pd

    table = dd.from_map(part_of_table, range(32), rows=60_000, keys=1_000, text=False)
    places = pd.DataFrame({"key": range(1_000), "place": np.arange(1_000) % 13})
    merged = table.merge(dd.from_pandas(places, npartitions=1 if remedied else 32), on="key")
    return round(float(merged.groupby("place").x.mean().sum().compute()), 6)


def ranges_of_groups(_: None, remedied: bool) -> float:
    """A function of each group of a table that is not sorted by it."""
    import dask.dataframe as dd

    table = dd.from_map(part_of_table, range(24), rows=60_000)
    table = table.assign(group=table.key // 200)
    groups = table.groupby("group").apply(range_of, meta=("x", float))
    return round(float(groups.sum().compute()), 3)


def healthy_merge(_: None, remedied: bool) -> float:
    """A merge after long work on each part."""
    import dask.dataframe as dd

    table = dd.from_map(part_of_table, range(16)).map_partitions(smoothed)
    means = table.groupby("key").x.mean().reset_index()
    return round(float(table.merge(means, on="key").x_y.sum().compute()), 3)


@contextlib.contextmanager
def text_files() -> Iterator[str]:
    """A table in several files of text."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(6):
            table = part_of_table(number, 60_000).drop(columns="name")
            table.assign(y=table.x**2, z=-table.x).to_csv(f"{folder}/{number}.csv", index=False)
        yield folder


def columns_of_text(folder: str, remedied: bool) -> float:
    """Numbers of several columns of a table in files of text, computed one by one."""
    import dask.dataframe as dd

    table = dd.read_csv(f"{folder}/*.csv")
    wanted = [table.x.mean(), table.y.sum(), table.z.min(), table.key.max()]
    results = dask.compute(*wanted) if remedied else [each.compute() for each in wanted]
    return round(float(sum(results)), 3)


SHUFFLES = {"remedy": {"dataframe.shuffle.method": "tasks"}}
"""Shuffle in memory."""


def smooth_frames(frames: Any) -> Any:
    """Each frame by itself, along its last axis."""
    for _ in range(12):
        frames = (frames + np.roll(frames, 1, axis=2) + np.roll(frames, -1, axis=2)) / 3
    return frames


def frames_with_borders(_: None, remedied: bool) -> float:
    """Chunks of a few frames overlap in all directions; no frame needs the others."""
    frames = da.arange(96 * 160 * 160, chunks=6 * 160 * 160).reshape((96, 160, 160))
    depth = {0: 0, 1: 0, 2: 12} if remedied else 12
    smooth = (frames % 1009.0).map_overlap(
        smooth_frames, depth=depth, boundary="reflect", dtype=float, allow_rechunk=True
    )
    return round(float(smooth.std().compute()), 3)


def across_stored_chunks(_: None, remedied: bool) -> float:
    stored = CompressedArray(200, 4_000)
    array = da.from_array(stored, chunks=stored.chunks if remedied else (1_600, 250), asarray=False)
    return float(array.sum().compute())


PROGRAMS = (
    Program("chunks across those that are stored", across_stored_chunks, "repeated-work"),
    Program(
        "frames shown one by one",
        shown_one_by_one,
        "repeated-work",
        true=SLEEPING,
        remaining=ONE_BY_ONE,
    ),
    Program(
        "statistics of a bag one by one",
        statistics_of_a_bag,
        "repeated-work",
        # One task at a time leaves a CPU idle.
        true=SLEEPING,
        remaining=SLEEPING,
        settings={"scheduler": "sync"},
    ),
    Program("healthy: frames of their own", healthy_frames, true=ONE_BY_ONE),
    Program(
        "arrays computed inside of tasks",
        spreads_inside,
        "nested-computations",
        # What is computed inside is small.
        remaining=frozenset({"tasks-too-small", "graph-preparation", "gil-bound"}),
    ),
    Program("healthy: large arrays inside of tasks", healthy_inside),
    Program(
        "columns of text read one by one",
        columns_of_text,
        "repeated-work",
        true=ONE_BY_ONE | {"gil-bound"},
        remaining=ONE_BY_ONE | {"gil-bound"},
        prepare=text_files,
    ),
    Program(
        "tables merged through files",
        merged_tables,
        "disk-shuffle",
        true=frozenset({"gil-bound"}),
        remaining=frozenset({"gil-bound", "tasks-too-small"}),
        **SHUFFLES,
    ),
    Program("frames with borders", frames_with_borders, "repeated-work"),
    Program(
        "a small table in many parts, merged",
        places_of_keys,
        "disk-shuffle",
        true=frozenset({"gil-bound"}),
        remaining=frozenset({"tasks-too-small"}),
    ),
    Program(
        "groups shuffled through files",
        ranges_of_groups,
        "disk-shuffle",
        true=frozenset({"gil-bound"}),
        remaining=frozenset({"gil-bound", "tasks-too-small"}),
        **SHUFFLES,
    ),
    Program("healthy: a merge after long work", healthy_merge, true=frozenset({"gil-bound"})),
    Program("windows of an image", windows, "small-computations"),
    Program("delayed calls one by one", small_calls, "small-computations", remaining=SMALL),
    Program("healthy: many computations", healthy_windows),
    Program(
        "branches in one batch",
        branches,
        "batched-tasks",
        # Threads have no batches, and need not start.
        true=frozenset({"too-few-threads", "pool-startup"}),
        settings={"scheduler": "processes", "num_workers": 3},
        remedy={"chunksize": 1},
        remaining=STARTUP | ONE_BY_ONE,
    ),
    Program(
        "two partitions in one batch",
        long_partitions,
        "batched-tasks",
        settings=PROCESSES,
        remedy={"chunksize": 1},
        remaining=STARTUP,
    ),
    Program("groups in one partition", one_partition, "chunks-too-large", remaining=SLEEPING),
    Program("a bag in one partition", one_bag_partition, "chunks-too-large", remaining=SLEEPING),
    Program("healthy: groups in partitions", healthy_groups, true=SLEEPING),
    Program(
        "an array of objects",
        hashed_objects,
        "graph-preparation",
        # The program makes the objects first.
        true=frozenset({"slow-start"}),
        remaining=frozenset({"slow-start"}),
    ),
    Program("objects in pure calls", hashed_arguments, "graph-preparation"),
    Program("healthy: an array of numbers", healthy_arrays),
    Program(
        "an anomaly with a chunk for each day",
        days,
        "tasks-too-small",
        true=frozenset({"graph-preparation", "scheduler-bound"}),
    ),
    Program("a kernel that compiles", compiled_once, "first-call"),
    Program("a model loaded first", model_in_a_bag, "first-call", true=HOLDING, remaining=HOLDING),
    # Two large tasks at first leave nobody idle.
    Program("healthy: first tasks with more data", healthy_first),
    Program("healthy: full batches", healthy_batches, settings=PROCESSES, true=STARTUP),
)
