"""Dask's own scheduler on a clock that only tasks move, or tasks and costs that are known."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from heapq import heappop, heappush
from unittest import mock

import dask.local
import numpy as np
from dask.callbacks import Callback

from dask_diag.model.recording import Recording

from .recordings import with_columns, with_tables


class VirtualWorkers:
    """Runs tasks in no time, and delivers each result when its seconds are over."""

    def __init__(self, seconds):
        self.seconds, self.now, self.sent = seconds, 0.0, 0
        self.results, self.rows = [], {}

    def submit(self, function, batch):
        future = Future()
        self.sent += 1
        for key, *_ in batch:
            stop = self.now + self.seconds[key]
            self.rows[key] = [self.now, stop, None]
        heappush(self.results, (stop, self.sent, future, function(batch)))
        return future

    def get(self, queue):
        self.now, _, future, result = heappop(self.results)
        future.set_result(result)
        for key, *_ in result:
            self.rows[key][2] = self.now
        return queue.get_nowait()


def run_virtually(dsk, seconds, workers):
    """The recording of a graph whose tasks take these seconds."""
    pool = VirtualWorkers(seconds)
    dependencies = {}
    keep = Callback(start_state=lambda _, state: dependencies.update(state["dependencies"]))
    with mock.patch("dask.local.queue_get", pool.get), keep:
        dask.local.get_async(pool.submit, workers, dsk, list(dsk))
    return recording_of(pool.rows, dependencies, pool.now, workers)


def recording_of(rows, dependencies, stop, workers, cpu=0.0):
    """What a profiler would have recorded of such rows, whose CPU share is `cpu`."""
    keys = list(rows)
    number = {key: row for row, key in enumerate(keys)}
    edges = [(number[key], number[need]) for key in keys for need in dependencies[key]]
    start, stops, collected = (np.array(column) for column in zip(*rows.values(), strict=True))
    task, depends_on = zip(*edges, strict=True) if edges else ((), ())
    computation = {"computation": "c", "start": 0.0, "stop": stop, "workers": workers}
    computation |= {"cpus": 4, "scheduler": "threads"}
    return with_tables(
        Recording(start=0.0, stop=stop, epoch=0.0),
        computations={name: [value] for name, value in computation.items()},
        tasks={
            "key": list(map(str, keys)),
            "function": [str(key[0]) for key in keys],
            "computation": ["c"] * len(keys),
            "outcome": ["ok"] * len(keys),
            "submitted": start,
            "start": start,
            "stop": stops,
            "collected": collected,
            "thread_cpu": cpu * (stops - start),
            "thread_noncpu": (1 - cpu) * (stops - start),
        },
        dependencies={"task": task, "depends_on": depends_on},
    )


@dataclass(frozen=True)
class Costs:
    """Seconds: those of `Work` in `dask_diag.analysis.simulation.work`, the same for each task."""

    prepare: float
    submit: float
    wake: float
    gap: float
    deliver: float
    notice: float
    collect: float
    startup: tuple[float, ...]
    graph: float
    after: float


class CostlyWorkers:
    """Workers and the scheduler's thread, which take their time for what is between tasks."""

    def __init__(self, seconds, workers, costs):
        self.seconds, self.costs, self.now = seconds, costs, costs.graph
        self.results, self.rows, self.arrived, self.worker_of = [], {}, {}, {}
        self.free, self.startup = list(range(workers)), list(costs.startup)

    def pretask(self, key, dsk, state):
        self.now += self.costs.prepare
        self.rows[key] = [self.now]

    def submit(self, function, batch):
        self.now += self.costs.submit
        worker, future = heappop(self.free), Future()
        moment = self.now + self.costs.wake
        moment += self.startup.pop(0) if self.startup else 0.0
        for position, (key, *_) in enumerate(batch):
            moment += self.costs.gap if position else 0.0
            self.rows[key] += [moment, moment + self.seconds[key]]
            moment += self.seconds[key]
            self.worker_of[key] = f"worker-{worker}"
        moment += self.costs.deliver
        heappush(self.results, (moment, worker, future, function(batch)))
        return future

    def get(self, queue):
        arrived, worker, future, result = heappop(self.results)
        heappush(self.free, worker)
        self.arrived |= {key: arrived for key, *_ in result}
        future.set_result(result)
        return queue.get_nowait()

    def posttask(self, key, value, dsk, state, worker):
        """It was busy and collects what waits for it; or it waited, and notices what arrives."""
        noticed = self.arrived[key] + self.costs.notice
        self.now = max(self.now + self.costs.collect, noticed)
        self.rows[key].append(self.now)


def run_with_costs(dsk, seconds, workers, costs, scheduler="threads", chunksize=1):
    """The recording of a graph whose tasks take these seconds, and scheduling them the costs."""
    pool, dependencies = CostlyWorkers(seconds, workers, costs), {}
    counting = Callback(
        start_state=lambda _, state: dependencies.update(state["dependencies"]),
        pretask=pool.pretask,
        posttask=pool.posttask,
    )
    with mock.patch("dask.local.queue_get", pool.get), counting:
        dask.local.get_async(pool.submit, workers, dsk, list(dsk), chunksize=chunksize)
    submitted = np.array([row[0] for row in pool.rows.values()])
    measured = {key: row[1:] for key, row in pool.rows.items()}
    recording = recording_of(measured, dependencies, pool.now + costs.after, workers)
    workers = [pool.worker_of[key] for key in pool.rows]
    recording = with_columns(recording, "tasks", submitted=submitted, worker=workers)
    changed = {"prepared": [costs.graph], "scheduler": [scheduler]}
    recording = with_columns(recording, "computations", **changed)
    if scheduler != "processes":
        return recording
    # The result is rebuilt from what came; the worker's own part of that takes no time.
    received = recording.tasks.collected - costs.collect
    count = len(submitted)
    moves = {
        "task": [*range(count)] * 2,
        "side": ["scheduler"] * 2 * count,
        "activity": ["serialize"] * count + ["deserialize"] * count,
        "start": [*(submitted - costs.prepare), *received],
        "stop": [*submitted, *recording.tasks.collected],
        "bytes": [10.0] * 2 * count,
    }
    return with_tables(recording, transfers=moves)
