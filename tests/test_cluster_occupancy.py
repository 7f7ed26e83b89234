"""Where the time of a cluster's threads went, of recordings that are written by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dask_diag import Recording
from dask_diag.analysis.activities import seconds_by_activity
from dask_diag.analysis.occupancy import occupancies

from .recordings import columns_of, filled_table, with_columns

pytestmark = pytest.mark.once

NAN = float("nan")
ONE, TWO = ("a", 1, 0.0, NAN), ("b", 1, 0.0, NAN)
"""Workers: name, threads, joined and left."""
MOVES = "task activity side start stop bytes source destination"
EVENTS = "computation worker event start stop bytes"


def recording(tasks, workers=(ONE, TWO), stop=10.0, **tables):
    """One computation of a cluster from 0 on; a task is its lane and times, in seconds.

    They are those of submission, start, stop and collection, then how long it was queued, and
    when it seceded.
    """
    rows = [(*task, 0.0, NAN)[:7] if len(task) == 5 else (*task, NAN)[:7] for task in tasks]
    columns = columns_of("worker submitted start stop collected queued seceded", *rows)
    took = np.array(columns["stop"], float) - np.array(columns["start"], float)
    count = len(tasks)
    columns |= {
        "key": [f"f-{n}" for n in range(count)],
        "function": ["f"] * count,
        "outcome": ["ok"] * count,
        "computation": ["c"] * count,
        "thread_cpu": np.zeros(count),
        "thread_noncpu": took,
    }
    tables = {
        "tasks": columns,
        "computations": columns_of(
            "computation cluster scheduler called start prepared stop workers",
            ("c", "s", "distributed", 0.0, 0.0, 0.0, stop, sum(worker[1] for worker in workers)),
        ),
        "workers": columns_of(
            "computation worker threads joined left", *(("s", *worker) for worker in workers)
        ),
        **tables,
    }
    filled = {name: filled_table(name, table) for name, table in tables.items()}
    return Recording(start=0.0, stop=stop, epoch=0.0, **filled)


def on_loop(*rows, cpu=0.0):
    """Seconds of tasks that are coroutines on the event loops of their workers."""
    rows = [(task, "event-loop", "seconds", value, cpu) for task, value in rows]
    return columns_of("task activity unit value cpu", *rows)


def moved(*moves):
    """Results on their way; a move is a task, when it starts and stops, bytes, from and to."""
    return columns_of(MOVES, *((task, "transfer", "network", *move) for task, *move in moves))


def seconds(made):
    amounts = seconds_by_activity(made)
    return {name: round(amount, 9) for name, amount in amounts.items() if amount}


OTHER = columns_of("computation worker start stop", ("s", "a", 2.0, 7.0))
TO_A, TO_B = (moved((0, 2.0, 4.0, 100.0, "b", name)) for name in "ab")
READ = columns_of(EVENTS, ("s", "a", "disk-read", 1.0, 3.0, NAN))


@pytest.mark.parametrize(
    ("tasks", "workers", "tables", "expected"),
    [
        # While a runs its task, its second one waits; b is free all the time.
        (
            [("a/0", 0, 0, 4, 4), ("a/0", 0, 4, 6, 6)],
            [ONE, TWO],
            {},
            {"thread-noncpu": 6.0, "idle": 14.0},
        ),
        # On its way to a worker and back.
        ([("a/0", 1, 2, 5, 7)], [ONE], {}, {"thread-noncpu": 3.0, "overhead": 3.0, "idle": 4.0}),
        # A worker that is not known counts while it runs tasks.
        (
            [("a/0", 0, 0, 4, 4), ("unknown/0", 1, 2, 5, 7)],
            [ONE],
            {},
            {"thread-noncpu": 7.0, "idle": 6.0},
        ),
        # One task on its way blocks one of several threads.
        (
            [("a/0", 0, 0, 10, 10), ("a/1", 2, 5, 6, 6)],
            [("a", 2, 0.0, NAN)],
            {},
            {"thread-noncpu": 11.0, "overhead": 3.0, "idle": 6.0},
        ),
        # Queued from 1 to 4, while both threads are free.
        (
            [("a/0", 4, 4, 10, 10, 3)],
            [ONE, TWO],
            {},
            {"thread-noncpu": 6.0, "overhead": 3.0, "idle": 11.0},
        ),
        # What seceded leaves its thread to others.
        (
            [("a/0", 0, 0, 10, 10, 0, 4), ("a/1", 4, 4, 9, 9)],
            [ONE],
            {},
            {"thread-noncpu": 9.0, "idle": 1.0},
        ),
        # What a lost worker did is not known.
        (
            [("a/unknown", 1, NAN, NAN, 6)],
            [("a", 1, 0.0, 6.0)],
            {},
            {"other": 5.0, "idle": 1.0},
        ),
        # Tasks of other clients.
        (
            [("a/0", 0, 0, 4, 4)],
            [("a", 2, 0.0, NAN)],
            {"other_tasks": OTHER},
            {"thread-noncpu": 4.0, "other": 5.0, "idle": 11.0},
        ),
        # A result comes to the worker whose task waits, or to another one.
        (
            [("a/0", 1, 5, 6, 6)],
            [ONE],
            {"transfers": TO_A},
            {"thread-noncpu": 1.0, "transfer": 2.0, "overhead": 2.0, "idle": 5.0},
        ),
        (
            [("a/0", 1, 5, 6, 6)],
            [ONE],
            {"transfers": TO_B},
            {"thread-noncpu": 1.0, "overhead": 4.0, "idle": 5.0},
        ),
        # Time of spilling is not the scheduler's.
        (
            [("a/0", 0, 4, 10, 10)],
            [ONE],
            {"worker_events": READ},
            {"thread-noncpu": 6.0, "overhead": 2.0, "spill": 2.0},
        ),
        # One of two threads waits while a coroutine has the event loop, for four of five seconds.
        (
            [("a/0", 0, 0, 5, 5), ("a/1", 0, 5, 10, 10)],
            [("a", 2, 0.0, NAN)],
            {"metrics": on_loop((0, 4.0))},
            {"thread-noncpu": 10.0, "event-loop": 4.0, "overhead": 1.0, "idle": 5.0},
        ),
    ],
)
def test_seconds_of_threads(tasks, workers, tables, expected):
    assert seconds(recording(tasks, workers, **tables)) == expected


def test_workers_count_while_they_are_there():
    workers = [("a", 1, -5.0, 3.0), ("b", 4, 8.0, NAN), ("late", 9, 11.0, NAN)]
    made = recording([("a/0", 0, 0, 2, 2)], workers)
    assert seconds(made) == {"thread-noncpu": 2.0, "idle": 1.0 + 4 * 2.0}
    (occupancy,) = occupancies(made)
    assert (occupancy.workers, occupancy.worker_seconds) == (4, 11.0)
    (occupancy,) = occupancies(recording([("a/0", 1, 2, 5, 7)], [ONE]))
    assert (occupancy.workers, occupancy.worker_seconds) == (1, 10.0)


@pytest.mark.parametrize(("start", "cancelled"), [(4.0, 6.0), (12.0, 0.0)])
def test_a_task_that_is_cancelled_counts_until_its_computation_stopped(start, cancelled):
    """It may run on then, or start only then, while the word of it is on the way."""
    made = recording([("a/0", 1.0, start, start + 9.0, start + 9.0)], [ONE])
    unknown = {"thread_cpu": [NAN], "thread_noncpu": [NAN]}
    by_activity = seconds(with_columns(made, "tasks", outcome=["cancelled"], **unknown))
    assert sum(by_activity.values()) == 10.0
    assert by_activity.get("cancelled", 0.0) == cancelled
    assert by_activity["overhead"] == min(start, 10.0) - 1.0
