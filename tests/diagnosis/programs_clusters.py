"""Planted programs on clusters: what the program's thread does beside the workers, and workers that lack."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np

from tests.diagnosis.program import Program, nothing, threads
from tests.diagnosis.work import compute, pause
from tests.diagnosis.work_field import part_of_table

ON_CLUSTER = {"scheduler": None, "distributed.worker.memory.terminate": False}
NEARBY = frozenset({"late-samples", "slow-start"})


@contextlib.contextmanager
def cluster(workers: int = 2, threads: int = 1, **kwargs: Any) -> Iterator[Any]:
    """A client of worker processes."""
    from distributed import Client

    with Client(
        n_workers=workers, threads_per_worker=threads, dashboard_address=":0", **kwargs
    ) as client:
        yield client


@contextlib.contextmanager
def adapting() -> Iterator[Any]:
    """A client whose cluster stops its workers when there is nothing to do."""
    with cluster(0) as client:
        client.cluster.adapt(minimum=0, maximum=2, interval="100ms", wait_count=2)
        yield client


def planted(
    name: str, body: Callable[[Any, bool], Any], code: str = "", true: str = "", **kwargs: Any
) -> Program:
    kwargs = {"prepare": cluster, "settings": ON_CLUSTER, **kwargs}
    remaining = frozenset(kwargs.pop("remaining", "").split())
    return Program(
        name,
        body,
        code,
        true=frozenset(true.split()) | NEARBY,
        remaining=remaining | NEARBY,
        **kwargs,
    )


def look_up(table: Any, n: int) -> float:
    return float(table[1][n::97].sum()) + len(table[0][n])


def a_table(stations: int = 200_000) -> tuple[list[str], np.ndarray]:
    return [f"station {n}" for n in range(stations)], np.arange(3_000_000.0)


def given_table(client: Any, remedied: bool) -> float:
    table = a_table()
    if remedied:
        (table,) = client.scatter([table], broadcast=True)
    futures = [client.submit(look_up, table, n, pure=False) for n in range(15)]
    return float(sum(client.gather(futures)))


def given_array(client: Any, remedied: bool) -> float:
    """An array among the arguments of delayed calls, each computed alone."""
    array = np.arange(6_000_000.0)
    if remedied:
        (array,) = client.scatter([array], broadcast=True)
    total = dask.delayed(np.sum)
    return float(sum(total(array, initial=n).compute() for n in range(12)))


def given_numbers(client: Any, remedied: bool) -> int:
    return sum(client.gather(client.map(compute, [0.1 + n / 1e6 for n in range(40)])))


def one_by_one(client: Any, remedied: bool) -> int:
    seconds = [0.06 + n / 1e6 for n in range(60)]
    if remedied:
        return sum(client.gather(client.map(pause, seconds)))
    return sum(client.submit(pause, each).result() for each in seconds)


def computed_one_by_one(client: Any, remedied: bool) -> int:
    each = [dask.delayed(pause)(0.1, n) for n in range(40)]
    return sum(dask.compute(*each) if remedied else [one.compute() for one in each])


def tiny_one_by_one(client: Any, remedied: bool) -> int:
    """Numbers that a service asks for one at a time."""
    calls = [dask.delayed(pow)(n, 2, pure=False) for n in range(400)]
    return sum(dask.compute(*calls) if remedied else [call.compute() for call in calls])


def full_rounds(client: Any, remedied: bool) -> int:
    """Each computation needs the one before, and has enough for all workers."""
    total = 0
    for n in range(8):
        total += sum(client.gather(client.map(compute, [0.1 + k / 1e6 for k in range(8)], [n] * 8)))
    return total


def noted(client: Any, remedied: bool) -> int:
    """Each result is looked at for as long as it takes to make the next."""
    from distributed import as_completed

    seconds = [0.05 + n / 1e6 for n in range(50)]
    if remedied:
        return sum(compute(0.05) for _ in as_completed(client.map(pause, seconds)))
    return sum(compute(0.05 * client.submit(pause, each).result()) for each in seconds)


def noted_locally(_: None, remedied: bool) -> int:
    """The same with threads: what is between computations could be in tasks."""
    tasks = [dask.delayed(pause)(0.05, n) for n in range(16)]
    if remedied:
        return sum(dask.compute(*[dask.delayed(compute)(0.15, task) for task in tasks]))
    return sum(compute(0.15, *dask.compute(task)) for task in tasks)


def brought(client: Any, remedied: bool) -> float:
    x = da.random.default_rng(0).random((8_000, 8_000), chunks=(1_000, 1_000))
    return round(
        float(x.mean(axis=0).max().compute() if remedied else x.compute().mean(axis=0).max()), 9
    )


def gathered(client: Any, remedied: bool) -> float:
    """Results of submitted functions, of which one number is needed."""

    def make(n: int) -> Any:
        made = np.full(10_000_000, float(n))
        return made.mean() if remedied else made

    return float(sum(np.mean(one) for one in client.gather(client.map(make, range(6)))))


def piece(n: int, m: int) -> int:
    return (n * m) % 11


def tasks_in_tasks(client: Any, remedied: bool) -> int:
    def chapter(n: int) -> int:
        from distributed import worker_client

        if remedied:
            return sum(piece(n, m) for m in range(100))
        parts = [dask.delayed(piece)(n, m) for m in range(100)]
        with worker_client():
            return sum(dask.compute(*parts))

    return sum(client.gather(client.map(chapter, range(10))))


def long_tasks_in_tasks(client: Any, remedied: bool) -> int:
    def chapter(n: int) -> int:
        from distributed import worker_client

        with worker_client():
            return sum(dask.compute(*[dask.delayed(compute)(0.2, n, m) for m in range(4)]))

    return sum(client.gather(client.map(chapter, range(4))))


def steps(client: Any, remedied: bool) -> int:
    """Between steps, the workers of a cluster that adapts are stopped."""
    if remedied:
        client.cluster.adapt(minimum=2, maximum=2)
        client.wait_for_workers(2)
    total = 0
    for step in range(3):
        total += sum(client.gather(client.map(compute, [0.15 + step / 1e6] * 8, range(8))))
        time.sleep(0.8)
    return total


def with_lock(client: Any, remedied: bool) -> int:
    from distributed import Lock

    def save(n: int) -> int:
        with contextlib.nullcontext() if remedied else Lock("file"):
            return pause(0.2)

    return sum(client.gather(client.map(save, range(16))))


def with_semaphore(client: Any, remedied: bool) -> int:
    from distributed import Semaphore

    leases = contextlib.nullcontext() if remedied else Semaphore(max_leases=1, name="connections")

    def ask(n: int, leases: Any) -> int:
        with leases:
            return pause(0.2)

    return sum(client.gather(client.map(ask, range(16), leases=leases)))


def with_short_lock(client: Any, remedied: bool) -> int:
    from distributed import Lock

    def save(n: int) -> int:
        with Lock("file"):
            n += 1
        return compute(0.3)

    return sum(client.gather(client.map(save, range(12))))


def with_resource(client: Any, remedied: bool) -> int:
    """Only what writes to the file needs it."""
    file = {"file": 1}
    seconds = [0.2 + n / 1e6 for n in range(20)]
    found = client.map(pause, seconds, resources=None if remedied else file)
    saved = client.map(pause, [0.005] * 20, found, resources=file)
    return sum(client.gather(saved))


def with_short_resource(client: Any, remedied: bool) -> int:
    return with_resource(client, True)


class Point:
    """A small object."""

    def __init__(self, x: float) -> None:
        self.x = x


def small_objects(client: Any, remedied: bool) -> float:
    def make(n: int) -> Any:
        return np.arange(40_000.0) if remedied else [Point(float(x)) for x in range(40_000)]

    def use(*parts: Any) -> float:
        return float(sum(part.sum() if remedied else sum(p.x for p in part) for part in parts))

    made = client.map(make, range(6))
    pairs = [client.submit(use, made[n], made[(n + 1) % 6]) for n in range(6)]
    return float(sum(client.gather(pairs)))


def too_much_at_once(client: Any, remedied: bool) -> float:
    def simulate(n: int) -> float:
        field = np.ones(22_000_000, dtype="f4" if remedied else "f8")
        time.sleep(0.5)
        return float(field[::1_000].sum())

    return float(sum(client.gather(client.map(simulate, range(40)))))


def kills(client: Any, remedied: bool) -> int:
    """A part ends its worker, again and again."""

    def part(n: int) -> int:
        time.sleep(0.3)
        if n == 3 and not remedied:
            os.kill(os.getpid(), signal.SIGKILL)
        return 1

    try:
        return sum(client.gather(client.map(part, range(6))))
    except Exception:
        return 6


FOUR = partial(cluster, 4)


def places_of_keys(client: Any, remedied: bool) -> float:
    """A table with a key, merged with a small one that has what belongs to each key."""
    import dask.dataframe as dd
    import pandas as pd

    table = dd.from_map(part_of_table, range(32), rows=40_000, keys=1_000, text=False)
    places = pd.DataFrame({"key": range(1_000), "place": np.arange(1_000) % 13})
    merged = table.merge(dd.from_pandas(places, npartitions=1 if remedied else 32), on="key")
    return round(float(merged.groupby("place").x.mean().sum().compute()), 6)


class Sums:
    """An actor that computes."""

    def __init__(self, seed: int) -> None:
        self.numbers = np.random.default_rng(seed).random(400_000)

    def step(self, factor: float) -> float:
        for _ in range(8):
            factor = 0.25 + float(np.sort(self.numbers * factor)[::1000].mean())
        return factor


def actors(client: Any, remedied: bool) -> float:
    """Each step asks all actors at the same time, and needs what they say."""
    workers = client.run(os.getpid)
    sums = [client.submit(Sums, 1, actor=True, workers=[one]).result() for one in workers]
    factor = 0.5
    for _ in range(24):
        results = [one.step(factor) for one in sums]
        factor = sum(result.result() for result in results) / 2
    return round(factor, 6)


PROGRAMS = [
    planted(
        "cluster: a small table in many parts, merged",
        places_of_keys,
        "disk-shuffle",
        "tasks-too-small",
        remaining="tasks-too-small",
    ),
    planted("healthy: actors that compute", actors),
    planted("cluster: a table given to each task", given_table, "large-arguments"),
    planted(
        "cluster: an array given to delayed calls",
        given_array,
        "large-arguments",
        "serial-computations",
        remaining="serial-computations",
    ),
    planted("healthy: numbers given to each task", given_numbers),
    planted(
        "cluster: each result before the next",
        one_by_one,
        "serial-computations",
        prepare=FOUR,
        remaining="too-few-threads",
    ),
    planted(
        "cluster: computed in a loop",
        computed_one_by_one,
        "serial-computations",
        prepare=FOUR,
        remaining="too-few-threads",
    ),
    planted(
        "cluster: tiny calls one by one",
        tiny_one_by_one,
        "small-computations",
        remaining="tasks-too-small scheduler-bound graph-preparation",
    ),
    planted("healthy: computations that need each other", full_rounds),
    planted(
        "cluster: results are noted one by one",
        noted,
        "client-bound",
        "serial-computations",
        remaining="client-bound too-few-threads",
    ),
    planted(
        "threads: results are noted one by one",
        noted_locally,
        "client-bound",
        "chunks-too-large serial-chain",
        prepare=nothing,
        settings=threads(2),
    ),
    planted(
        "cluster: a large array is brought",
        brought,
        "large-results",
        # Chunks of 32 MB in place of 8 MB take half of the time.
        remaining="tasks-too-small",
    ),
    planted("cluster: large results are gathered", gathered, "large-results"),
    planted("cluster: small tasks in tasks", tasks_in_tasks, "tasks-too-small", "scheduler-bound"),
    planted("healthy: long tasks in tasks", long_tasks_in_tasks),
    planted(
        "cluster: workers stop between steps",
        steps,
        "pool-startup",
        "client-bound",
        remaining="client-bound",
        prepare=adapting,
    ),
    planted(
        "cluster: one lock for all",
        with_lock,
        "lock-bound",
        # What is done in the lock is a sleep.
        remaining="too-few-threads imbalance",
        prepare=partial(cluster, 2, 2),
    ),
    planted(
        "cluster: one connection for all",
        with_semaphore,
        "lock-bound",
        remaining="too-few-threads imbalance",
        prepare=partial(cluster, 2, 2),
    ),
    planted(
        "cluster: all tasks need one resource",
        with_resource,
        "unbalanced-workers",
        # What needs the resource is a sleep.
        remaining="too-few-threads imbalance",
        prepare=partial(cluster, 2, 2, resources={"file": 1}),
    ),
    planted(
        "healthy: few tasks need a resource",
        with_short_resource,
        true="too-few-threads imbalance",
        prepare=partial(cluster, 2, 2, resources={"file": 1}),
    ),
    planted(
        "healthy: a lock that is held shortly", with_short_lock, prepare=partial(cluster, 2, 2)
    ),
    planted(
        "cluster: lists of small objects", small_objects, "serialization-bound", "transfer-bound"
    ),
    planted(
        "cluster: workers pause",
        too_much_at_once,
        "memory-pressure",
        prepare=partial(cluster, 2, 4, memory_limit="900MB"),
        remaining="too-few-threads memory-pressure",
    ),
    planted(
        "cluster: a part kills its worker",
        kills,
        "failed-tasks",
        remaining="too-few-threads",
        gains=False,
    ),
]
