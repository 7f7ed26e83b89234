"""Dask's own scheduler on a clock that only tasks move: what a graph takes without any overhead."""

from __future__ import annotations

from concurrent.futures import Future
from heapq import heappop, heappush
from unittest import mock

import dask.local
import numpy as np
from dask.callbacks import Callback

from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.model.recording import Recording

from .tables import filled_table


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
    return Recording(
        start=0.0,
        stop=stop,
        epoch=0.0,
        computations=filled_table(
            "computations",
            {
                "computation": ["c"],
                "start": [0.0],
                "stop": [stop],
                "workers": [workers],
                "cpus": [4],
                "scheduler": ["threads"],
            },
        ),
        tasks=filled_table(
            "tasks",
            {
                "key": PrefixStrings.of(map(str, keys)),
                "function": Categorical.of(key[0] for key in keys),
                "computation": Categorical.of(["c"] * len(keys)),
                "outcome": Categorical.of(["ok"] * len(keys)),
                "submitted": start,
                "start": start,
                "stop": stops,
                "collected": collected,
                "thread_cpu": cpu * (stops - start),
                "thread_noncpu": (1 - cpu) * (stops - start),
            },
        ),
        dependencies=filled_table("dependencies", {"task": task, "depends_on": depends_on}),
    )
