"""Where the time of a cluster's threads went, of recordings that are written by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dask_diag import Recording
from dask_diag.analysis.activities import seconds_by_activity
from dask_diag.analysis.occupancy import occupancies

from .tables import filled_table

pytestmark = pytest.mark.once

NAN = float("nan")


def recording(tasks, workers, stop=10.0, **tables):
    """One computation of a cluster from 0 on; times of tasks are in seconds."""
    columns = {
        "worker": [task[0] for task in tasks],
        **{
            name: [task[position] for task in tasks]
            for position, name in enumerate(("submitted", "start", "stop", "collected"), 1)
        },
        "queued": [task[5] if len(task) > 5 else 0.0 for task in tasks],
        "seceded": [task[6] if len(task) > 6 else NAN for task in tasks],
        "key": [f"f-{n}" for n in range(len(tasks))],
        "function": ["f"] * len(tasks),
        "outcome": ["ok"] * len(tasks),
        "computation": ["c"] * len(tasks),
    }
    took = np.array(columns["stop"], float) - np.array(columns["start"], float)
    cpu = {"thread_cpu": np.zeros(len(tasks)), "thread_noncpu": took}
    names, threads, joined, left = zip(*workers, strict=True)
    return Recording(
        start=0.0,
        stop=stop,
        epoch=0.0,
        computations=filled_table(
            "computations",
            {
                "computation": ["c"],
                "cluster": ["s"],
                "scheduler": ["distributed"],
                **{name: [0.0] for name in ("called", "start", "prepared")},
                "stop": [stop],
                "workers": [sum(threads)],
            },
        ),
        tasks=filled_table("tasks", {**columns, **cpu}),
        workers=filled_table(
            "workers",
            {
                "computation": ["s"] * len(workers),
                "worker": names,
                "threads": threads,
                "joined": joined,
                "left": left,
            },
        ),
        **{name: filled_table(name, table) for name, table in tables.items()},
    )


def seconds(made):
    amounts = {name: amount for name, amount in seconds_by_activity(made).items() if amount}
    return {name: round(amount, 9) for name, amount in amounts.items()}


def test_a_free_thread_cannot_take_what_was_sent_to_another_worker():
    # While a runs its task, its second one waits; b is free all the time.
    tasks = [("a/0", 0.0, 0.0, 4.0, 4.0), ("a/0", 0.0, 4.0, 6.0, 6.0)]
    made = recording(tasks, [("a", 1, 0.0, NAN), ("b", 1, 0.0, NAN)])
    assert seconds(made) == {"thread-noncpu": 6.0, "idle": 14.0}


def test_what_is_on_the_way_is_overhead_of_its_worker():
    tasks = [("a/0", 1.0, 2.0, 5.0, 7.0)]
    made = recording(tasks, [("a", 1, 0.0, NAN)])
    assert seconds(made) == {"thread-noncpu": 3.0, "overhead": 3.0, "idle": 4.0}


def test_a_cluster_may_have_one_thread():
    made = recording([("a/0", 1.0, 2.0, 5.0, 7.0)], [("a", 1, 0.0, NAN)])
    (occupancy,) = occupancies(made)
    assert (occupancy.workers, occupancy.worker_seconds) == (1, 10.0)


def test_a_worker_that_is_not_known_counts_while_it_runs_tasks():
    tasks = [("a/0", 0.0, 0.0, 4.0, 4.0), ("unknown/0", 1.0, 2.0, 5.0, 7.0)]
    made = recording(tasks, [("a", 1, 0.0, NAN)])
    assert seconds(made) == {"thread-noncpu": 7.0, "idle": 6.0}


def test_one_task_on_the_way_blocks_one_of_several_threads():
    tasks = [("a/0", 0.0, 0.0, 10.0, 10.0), ("a/1", 2.0, 5.0, 6.0, 6.0)]
    made = recording(tasks, [("a", 2, 0.0, NAN)])
    assert seconds(made) == {"thread-noncpu": 11.0, "overhead": 3.0, "idle": 6.0}


def test_queued_tasks_block_threads_that_are_free():
    # Queued from 1 to 4, while both threads are free.
    tasks = [("a/0", 4.0, 4.0, 10.0, 10.0, 3.0)]
    made = recording(tasks, [("a", 1, 0.0, NAN), ("b", 1, 0.0, NAN)])
    assert seconds(made) == {"thread-noncpu": 6.0, "overhead": 3.0, "idle": 11.0}


def test_workers_count_while_they_are_there():
    tasks = [("a/0", 0.0, 0.0, 2.0, 2.0)]
    made = recording(tasks, [("a", 1, -5.0, 3.0), ("b", 4, 8.0, NAN), ("late", 9, 11.0, NAN)])
    assert seconds(made) == {"thread-noncpu": 2.0, "idle": 1.0 + 4 * 2.0}
    (occupancy,) = occupancies(made)
    assert (occupancy.workers, occupancy.worker_seconds) == (4, 11.0)


def test_a_task_that_seceded_leaves_its_thread_to_others():
    tasks = [("a/0", 0.0, 0.0, 10.0, 10.0, 0.0, 4.0), ("a/1", 4.0, 4.0, 9.0, 9.0)]
    made = recording(tasks, [("a", 1, 0.0, NAN)])
    assert seconds(made) == {"thread-noncpu": 9.0, "idle": 1.0}


def test_what_a_lost_worker_did_is_not_known():
    tasks = [("a/unknown", 1.0, NAN, NAN, 6.0)]
    made = recording(tasks, [("a", 1, 0.0, 6.0)])
    assert seconds(made) == {"other": 5.0, "idle": 1.0}


def test_tasks_of_other_clients_are_other():
    tasks = [("a/0", 0.0, 0.0, 4.0, 4.0)]
    others = {"computation": ["s"], "worker": ["a"], "start": [2.0], "stop": [7.0]}
    made = recording(tasks, [("a", 2, 0.0, NAN)], other_tasks=others)
    assert seconds(made) == {"thread-noncpu": 4.0, "other": 5.0, "idle": 11.0}


@pytest.mark.parametrize(("destination", "moved"), [("a", 2.0), ("b", 0.0)])
def test_waiting_for_a_result_of_another_worker_is_transfer(destination, moved):
    tasks = [("a/0", 1.0, 5.0, 6.0, 6.0)]
    transfer = {
        "task": [0],
        "activity": ["transfer"],
        "side": ["network"],
        "start": [2.0],
        "stop": [4.0],
        "bytes": [100.0],
        "source": ["b"],
        "destination": [destination],
    }
    made = recording(tasks, [("a", 1, 0.0, NAN)], transfers=transfer)
    by_activity = seconds(made)
    assert by_activity.get("transfer", 0.0) == moved
    assert by_activity["overhead"] == 4.0 - moved
    assert sum(by_activity.values()) == 10.0


@pytest.mark.parametrize(("start", "cancelled"), [(4.0, 6.0), (12.0, 0.0)])
def test_a_task_that_is_cancelled_counts_until_its_computation_stopped(start, cancelled):
    """It may run on then, or start only then, while the word of it is on the way."""
    made = recording([("a/0", 1.0, start, start + 9.0, start + 9.0)], [("a", 1, 0.0, NAN)])
    of_task = {"outcome": ["cancelled"], "thread_cpu": [NAN], "thread_noncpu": [NAN]}
    tasks = {name: made.tasks[name] for name in made.tasks.columns} | of_task
    made = dataclasses.replace(made, tasks=filled_table("tasks", tasks))
    by_activity = seconds(made)
    assert sum(by_activity.values()) == 10.0
    assert by_activity.get("cancelled", 0.0) == cancelled
    assert by_activity["overhead"] == min(start, 10.0) - 1.0
