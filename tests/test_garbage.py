"""Garbage that tasks collect: an activity of its own on all schedulers, and a finding."""

import gc
from time import perf_counter, sleep

import dask
import pytest

from dask_diag import Profiler, activities
from dask_diag.capture import metrics

from .recordings import MAIN, by_code, check, in_rounds, with_columns, with_stacks, with_tables

STAYS = [[n] for n in range(200_000)]


def collecting(number):
    """Seconds that some collections took, by the clock of the task itself."""
    gc.disable()
    try:
        start = perf_counter()
        for _ in range(2):
            gc.collect()
        took = perf_counter() - start
    finally:
        gc.enable()
    sleep(0.01)
    return took


@pytest.mark.parametrize("scheduler", ["threads", "processes", "synchronous"])
def test_seconds_of_collections_are_an_activity_and_all_seconds_still_sum(scheduler, retried):
    def measure():
        callbacks = gc.callbacks[:]
        with Profiler() as prof:
            took = sum(
                dask.compute(
                    *(dask.delayed(collecting)(n) for n in range(2)),
                    scheduler=scheduler,
                    num_workers=1,
                )
            )
        seconds = {row["activity"]: row["value"] for row in activities(prof).to_dicts()}
        (computation,) = prof.recording.computations.to_dicts()
        wall = computation["stop"] - computation["called"]
        assert sum(seconds.values()) == pytest.approx(wall * computation["workers"])
        assert min(seconds.values()) >= 0
        assert gc.callbacks == callbacks
        # Other threads may run between two collections, which the task's clock includes.
        assert seconds["gc"] == pytest.approx(took, rel=0.1)

    retried(measure)


def test_collections_in_metered_code_are_taken_off_its_label(retried):
    from dask_diag import context_meter

    def task():
        with context_meter.meter("work"):
            return collecting(0)

    def measure():
        with Profiler() as prof:
            (took,) = dask.compute(dask.delayed(task)(), scheduler="synchronous")
        seconds = {row["activity"]: row["value"] for row in activities(prof).to_dicts()}
        assert seconds["gc"] == pytest.approx(took, rel=0.1)
        assert seconds["work"] < 0.1

    retried(measure)


def test_nothing_is_metered_outside_tasks_nor_after_an_error_of_the_clock(monkeypatch):
    with Profiler() as prof:
        gc.collect()
        dask.compute(dask.delayed(sum)([1]), scheduler="synchronous")
        monkeypatch.setattr(metrics, "perf_counter", None)
        dask.compute(dask.delayed(gc.collect)(), scheduler="synchronous")
    assert not len(prof.recording.metrics)


def collected(share, found=0.0, at_once=1, for_gil=0.0, full=3):
    """Tasks of a second each, of which this share is collections that found so many objects."""
    recording = in_rounds(10 * at_once, at_once, 1.0 - for_gil)
    tasks = list(range(10 * at_once))
    collections = {
        "task": [*tasks * 2, 0],
        "activity": ["gc"] * (2 * len(tasks) + 1),
        "unit": ["seconds"] * len(tasks) + ["objects"] * len(tasks) + ["full collections"],
        "value": [share] * len(tasks) + [found] * len(tasks) + [full],
        "cpu": [share] * len(tasks) + [float("nan")] * (len(tasks) + 1),
    }
    waits = {
        "task": tasks * 2,
        "activity": ["cpu-wait"] * len(tasks) + ["gil-wait"] * len(tasks),
        "seconds": [0.0] * len(tasks) + [for_gil] * len(tasks),
        "samples": [1] * len(tasks) + [int(100 * for_gil)] * len(tasks),
    }
    return with_tables(recording, metrics=collections, waits=waits if for_gil else {})


def test_collections_that_find_little_are_found():
    cases = {
        # All seconds are lost, and with two threads also those in which the other one waits.
        (0.4,): ("estimate", "high", 4.0, "gc.freeze()", "gc.set_threshold(100_000", "40%"),
        (0.15,): ("estimate", "medium", 1.5, {"found": (0.0, "object")}),
        (0.05,): None,
        # One of all objects comes in any program, in whichever task runs then.
        (0.15, 0.0, 1, 0.0, 2): None,
        # What is found has to be freed: 0.4 µs each.
        (0.4, 1e6): None,
        (0.4, 5e5): ("estimate", "medium", 2.0, {"found": (5e6, "object")}),
        (0.3, 0.0, 2, 0.3): ("estimate", "high", 6.0),
    }
    check("garbage-collection", collected, cases)


def test_who_waits_for_the_collector_does_not_wait_for_code_of_tasks():
    """Two threads wait for the GIL for 45% of the time; a task that collects has it for a share."""
    cases = {(0.2, 0.0, 2, 0.45): True, (0.43, 0.0, 2, 0.45): True, (0.45, 0.0, 2, 0.45): None}
    check("gil-bound", collected, cases)


@pytest.mark.parametrize(("grows", "first"), [(0.0, "call gc.freeze()"), (0.05, "collect less")])
def test_what_tasks_make_is_looked_for_less_often(grows, first):
    recording = in_rounds(10, 1)
    seconds = [0.2 + grows * n for n in range(10)]
    metrics = {
        "task": [*range(10)] * 2,
        "activity": ["gc"] * 20,
        "unit": ["seconds"] * 10 + ["full collections"] * 10,
        "value": [*seconds, *[1.0] * 10],
        "cpu": [*seconds, *[float("nan")] * 10],
    }
    found = by_code(with_tables(recording, metrics=metrics))["garbage-collection"]
    assert found.advice.startswith(first)


def test_advice_on_collections_fits_who_asks_for_them():
    asked = "do not call gc.collect(), at main (~/code/main.py:5); or call gc.freeze()"
    made = with_stacks(collected(0.4, at_once=2), [((0.0, 2.0), "work", [MAIN], 2.0, 2.0)])
    assert "gc.collect()" not in by_code(made)["garbage-collection"].advice
    full = made.metrics.to_dicts()
    rows = [{**row, "task": n, "value": 1.0} for n in range(20) for row in full[-1:]]
    columns = {name: [row[name] for row in [*full[:-1], *rows]] for name in full[0]}
    often = with_tables(made, metrics=columns)
    assert by_code(often)["garbage-collection"].advice.startswith(asked)
    # What a worker process looks through, its tasks have made.
    made = with_columns(made, "computations", scheduler=["processes"])
    assert by_code(made)["garbage-collection"].advice.startswith("collect less often")
