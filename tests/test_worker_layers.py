"""The layers of the picture of workers over time: they add up, and to what is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_diag import Recording, load
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.over_time import OTHER_FUNCTIONS, worker_layers
from dask_diag.model.codes import WAITS, Activity

from .recordings import columns_of, with_tables

pytestmark = pytest.mark.once

STORIES = Path(__file__).parents[1] / "docs" / "stories"


def recording_of(tasks, workers, stop):
    """One computation from 0 to `stop`; a task is its function, start, stop and CPU seconds."""
    rows = (
        (str(n), *task, task[2] - task[1] - task[3], *task[1:3], f"thread-{n % workers}", "c", "ok")
        for n, task in enumerate(tasks)
    )
    names = "key function start stop thread_cpu thread_noncpu submitted collected worker computation outcome"
    computation = ("c", 0.0, stop, workers, "threads")
    return with_tables(
        Recording(start=-1.0, stop=stop, epoch=0.0),
        computations=columns_of("computation start stop workers scheduler", computation),
        tasks=columns_of(names, *rows),
    )


def layers_of(recording, functions, bins):
    return worker_layers(recording, Analysis(recording).occupancies, functions, bins)


def test_each_layer_by_hand():
    # Two workers for four seconds: a computes for one, b sleeps for half of two, c is not named.
    tasks = [("a", 0.0, 1.0, 1.0), ("b", 0.0, 2.0, 1.0), ("c", 2.0, 4.0, 2.0)]
    layers = layers_of(recording_of(tasks, 2, 4.0), ["a", "b"], 5)
    assert layers.edges.tolist() == [-1, 0, 1, 2, 3, 4]
    assert layers.functions["a"].tolist() == [0, 1, 0, 0, 0]
    assert layers.functions["b"].tolist() == [0, 0.5, 0.5, 0, 0]
    assert layers.functions[OTHER_FUNCTIONS].tolist() == [0, 0, 0, 1, 1]
    assert layers.of_tasks[Activity.NONCPU].tolist() == [0, 0.5, 0.5, 0, 0]
    assert layers.moving == {}
    # c could have run from the start on.
    assert layers.free[Activity.OVERHEAD].tolist() == [0, 0, 1, 0, 0]
    assert layers.free[Activity.IDLE].tolist() == [0, 0, 0, 1, 1]
    # A task of unknown CPU time computes, and is not said to be off the CPU.
    layers = layers_of(recording_of([("a", 0.0, 2.0, np.nan)], 1, 2.0), ["a"], 3)
    assert layers.functions["a"].tolist() == [0, 1, 1]
    assert layers.of_tasks == {}
    # A bin has the mean of what is in it.
    layers = layers_of(recording_of([("a", 0.25, 0.75, 0.5)], 1, 1.0), ["a"], 2)
    assert layers.functions["a"].tolist() == [0, 0.5]
    assert layers.free[Activity.OVERHEAD].tolist() == [0, 0.25]
    assert layers.free[Activity.IDLE].tolist() == [0, 0.25]


times = st.floats(0.0, 10.0)
some_tasks = st.lists(
    st.tuples(st.sampled_from("abcd"), times, st.floats(0.0, 3.0), st.floats(0.0, 1.0)),
    min_size=1,
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(some_tasks, st.integers(1, 5), st.integers(1, 50))
def test_layers_sum_to_the_workers_and_to_the_activities(rows, workers, bins):
    tasks = [(name, start, start + length, share * length) for name, start, length, share in rows]
    recording = recording_of(tasks, workers, max(stop for _, _, stop, _ in tasks) + 1.0)
    analysis = Analysis(recording)
    layers = worker_layers(recording, analysis.occupancies, ["a", "b"], bins)
    width = layers.edges[1] - layers.edges[0]
    free = {name: float(values.sum() * width) for name, values in layers.free.items()}
    computed = width * sum(float(values.sum()) for values in layers.functions.values())
    of_tasks = [*layers.of_tasks.values(), *layers.moving.values()]
    total = computed + width * sum(float(part.sum()) for part in of_tasks) + sum(free.values())
    assert total == pytest.approx(analysis.available, abs=1e-6)
    assert computed == pytest.approx(sum(cpu for *_, cpu in tasks), abs=1e-6)
    for activity, expected in analysis.activities.items():
        if activity in free:
            assert free[activity] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("story", ["climatology", "download", "groupby"])
def test_off_cpu_time_is_divided_as_the_activities_are(story):
    analysis = Analysis(load(STORIES / f"{story}.diag"))
    layers = worker_layers(analysis.recording, analysis.occupancies, [], 600)
    width = layers.edges[1] - layers.edges[0]
    waits = {name: float(values.sum() * width) for name, values in layers.of_tasks.items()}
    assert len([name for name in waits if name in WAITS]) > 1
    for activity in WAITS:
        expected = analysis.activities.get(activity, 0.0)
        assert waits.get(activity, 0.0) == pytest.approx(expected, rel=1e-6, abs=1e-9), activity
