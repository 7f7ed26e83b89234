"""The sentence that a recording begins with, and the division of the wall time behind it."""

from dataclasses import replace

import numpy as np
import pytest

from dask_diag import Recording
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.headline import headline
from dask_diag.analysis.wall_time import wall_time
from dask_diag.columns import Categorical
from dask_diag.model.codes import ACTIVITIES, PHASES, Activity
from dask_diag.model.table import Table
from tests.tables import filled_table

pytestmark = pytest.mark.once


def recording(tasks, stop, *, called=1.0, workers=2, start=0.0, end=None, scheduler="threads"):
    """One computation; a task is (ready, start, stop, CPU seconds, worker)."""
    of_tasks = [list(column) for column in zip(*tasks, strict=True)] or [[]] * 5
    submitted, starts, stops, cpu, worker = of_tasks
    number = len(tasks)
    return replace(
        Recording(start=start, stop=stop if end is None else end, epoch=0.0),
        computations=filled_table(
            "computations",
            {
                "computation": ["c"],
                "called": [called],
                "start": [called],
                "prepared": [min(submitted, default=called)],
                "stop": [stop],
                "workers": [workers],
                "scheduler": [scheduler],
            },
        ),
        tasks=filled_table(
            "tasks",
            {
                "key": [f"f-{index}" for index in range(number)],
                "function": ["f"] * number,
                "computation": ["c"] * number,
                "submitted": submitted,
                "start": starts,
                "stop": stops,
                "collected": stops,
                "thread_cpu": cpu,
                "thread_noncpu": np.subtract(np.subtract(stops, starts), cpu),
                "worker": worker,
                "outcome": ["ok"] * number,
            },
        ),
    )


def parts_of(measured):
    table = wall_time(measured)
    return dict(zip(table["part"].tolist(), table["seconds"].tolist(), strict=True))


@pytest.mark.parametrize(
    ("measured", "sentence"),
    [
        (
            replace(Recording(start=0.0, stop=2.0, epoch=0.0)),
            "2.00 s without a computation",
        ),
        # Of no length, as one that is written by hand.
        (
            recording([(4, 4, 4, 0, "thread-0")], 0, called=4, workers=1),
            "0 s, of which tasks computed for 0 s",
        ),
        # One worker computes from 4 to 10.
        (
            recording([(4, 4, 10, 6, "thread-0")], 10, called=4, workers=1),
            "10.0 s, of which tasks computed for 6.00 s: 60% of the time",
        ),
        (
            recording([(7, 7, 10, 3, "thread-0")], 10, called=7, workers=1),
            "10.0 s, of which tasks computed for 3.00 s: 7.00 s (70%) passed before the first "
            "computation",
        ),
        (
            recording([(7, 7, 10, 3, "thread-0")], 10, called=1, workers=1),
            "10.0 s, of which tasks computed for 3.00 s: for 6.00 s (60%) dask prepared the graph "
            "of 1 task, imports included",
        ),
        (
            recording([(1, 1, 3, 2, "thread-0")], 3, called=1, workers=1, end=10),
            "10.0 s, of which tasks computed for 2.00 s: 7.00 s (70%) passed after the last "
            "computation",
        ),
        (
            recording([(0, 0, 10, 3, "thread-0")], 10, called=0, workers=1),
            "10.0 s, of which tasks computed for 3.00 s: for 7.00 s (70%) tasks were off the CPU",
        ),
        (
            recording([(0, 0, 10, 10, "thread-0")], 10, called=0, workers=4),
            "10.0 s, of which tasks computed for 2.50 s: for 7.50 s (75%) workers had no task to "
            "run",
        ),
    ],
)
def test_the_headline_says_where_most_time_went(measured, sentence):
    assert headline(Analysis(measured)) == sentence


REASONS = {
    "before": "7.00 s (70%) passed before the first computation",
    "preparing": "for 7.00 s (70%) dask prepared the graph of 2 tasks, imports included",
    "tasks": "for 7.00 s (70%) workers may have run tasks",
    "between": "7.00 s (70%) passed between computations",
    "after": "7.00 s (70%) passed after the last computation",
    "cpu-wait": "for 7.00 s (70%) tasks could run and had no CPU",
    "gil-wait": "for 7.00 s (70%) tasks waited for the GIL",
    "lock-wait": "for 7.00 s (70%) tasks waited for locks",
    "io-wait": "for 7.00 s (70%) tasks waited for files or sockets",
    "child-wait": "for 7.00 s (70%) tasks waited for programs that they started",
    "sleep": "for 7.00 s (70%) tasks slept",
    "device-wait": "for 7.00 s (70%) tasks waited for a device",
    "page-fault": "for 7.00 s (70%) tasks waited for memory",
    "unexplained": "for 7.00 s (70%) tasks were off the CPU, and no sample says why",
    "thread-noncpu": "for 7.00 s (70%) tasks were off the CPU",
    "serialize": "for 7.00 s (70%) tasks and results were pickled",
    "deserialize": "for 7.00 s (70%) tasks and results were unpickled",
    "failed": "for 7.00 s (70%) workers ran tasks that failed",
    "unfinished": "for 7.00 s (70%) workers ran tasks that did not finish",
    "cancelled": "for 7.00 s (70%) workers ran tasks whose results no one asked for any more",
    "rescheduled": "for 7.00 s (70%) workers ran tasks that asked to be run again",
    "graph": "for 7.00 s (70%) workers had no task while dask prepared a graph",
    "startup": "for 7.00 s (70%) worker processes started",
    "profilers": "for 7.00 s (70%) profilers had work to do as computations started",
    "transfer": "for 7.00 s (70%) workers waited for results of other workers",
    "spill": "for 7.00 s (70%) workers moved results to disk or back",
    "overhead": "for 7.00 s (70%) the scheduler handed out 2 tasks of 250 ms",
    "idle": "for 7.00 s (70%) workers had no task to run",
    "other": "for 7.00 s (70%) workers ran tasks of which the times are not known",
}


@pytest.mark.parametrize("part", [*PHASES, *ACTIVITIES])
def test_each_part_of_the_wall_time_has_a_sentence(part):
    # Two tasks of 0.25 s; of 10 s tasks computed for 2 and 1 is of a smaller part.
    tasks = [(0, 0, 0.25, 0.25, "thread-0"), (0, 0, 0.25, 0.25, "thread-1")]
    analysis = Analysis(recording(tasks, 10, called=0))
    smaller = "idle" if part != "idle" else "after"
    seconds = {"thread-cpu": 2.0, smaller: 1.0, part: 7.0}
    analysis.__dict__["wall_time"] = Table(
        {"part": Categorical.of(seconds), "seconds": np.array([*seconds.values()])}
    )
    if part == Activity.CPU:
        expected = "10.0 s, of which tasks computed for 7.00 s: 70% of the time"
    else:
        expected = f"10.0 s, of which tasks computed for 2.00 s: {REASONS[part]}"
    assert headline(analysis) == expected


def test_of_what_recorded_no_tasks_only_the_time_is_said():
    assert headline(Analysis(recording([], 4, called=0))) == "4.00 s; tasks were not recorded"


def test_the_wall_time_is_divided_among_phases_and_activities():
    # Two workers; the graph is made from 1 to 2, the first task starts at 2.5. From there to 8 one
    # worker runs tasks for 5.5 s of which it has a CPU for 2.75, the other none; the end is at 9.
    measured = recording([(2, 2.5, 8, 2.75, "thread-0")], 8, called=1, end=9)
    expected = {"before": 1.0, "preparing": 1.5, "idle": 2.75, "after": 1.0}
    expected |= {"thread-cpu": 1.375, "thread-noncpu": 1.375, "between": 0.0}
    assert parts_of(measured) == pytest.approx(expected)


def test_the_longest_headline_fits_three_lines_of_a_terminal():
    tasks = [(n, n + 1e-4, n + 1.0, 1e-9, "thread-0") for n in range(10)]
    assert len(headline(Analysis(recording(tasks, 1e5, workers=100)))) < 3 * 80


# One worker of two runs a task, 1 s with a CPU and 3 s without; the other is free for 4 s.
ONE_OF_TWO = [(0, 0, 4, 1, "thread-0")]


def test_activities_come_in_place_of_tasks_the_largest_first():
    measured = recording(ONE_OF_TWO, 4, called=0, start=-1.0, end=5.0)
    parts = parts_of(measured)
    assert list(parts)[:2] == ["before", "preparing"]
    activities = [part for part in parts if part in ("idle", "thread-cpu", "thread-noncpu")]
    assert activities == ["idle", "thread-noncpu", "thread-cpu"]
    assert list(parts)[-1] == "after"


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e6])
def test_the_division_does_not_depend_on_how_long_it_took(scale):
    ready, start, stop, cpu, worker = ONE_OF_TWO[0]
    task = (ready, start, stop * scale, cpu * scale, worker)
    parts = parts_of(recording([task], 4 * scale, called=0))
    expected = {"idle": 2.0, "thread-cpu": 0.5, "thread-noncpu": 1.5}
    assert {name: parts[name] / scale for name in expected} == pytest.approx(expected)


def test_of_tasks_none_of_which_started_all_time_is_preparing():
    nan = np.nan
    parts = parts_of(recording([(0, nan, nan, nan, "")], 4, called=0))
    assert parts == pytest.approx(dict.fromkeys(parts, 0.0) | {"preparing": 4.0})
    assert "idle" not in parts
