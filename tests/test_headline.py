"""The sentence that a recording begins with, and the division of the wall time behind it."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dask_diag import Finding, Recording
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.headline import headline
from dask_diag.analysis.wall_time import wall_time
from dask_diag.columns import Categorical
from dask_diag.model.codes import ACTIVITIES, CAUSES, FINDINGS, PHASES, Activity
from dask_diag.model.table import Table
from dask_diag.views.findings import savings_overlap

from .recordings import Task, run, with_columns

pytestmark = pytest.mark.once
SAID, TASKS = "10.0 s of wall time,", "of it computing in tasks. Largest other part"
OF_FOUR = TASKS.replace(".", " (average over 4 workers).")
OF_TWO = TASKS.replace(".", " (average over 2 workers).")


def recording(tasks, stop, *, called=1.0, workers=2, start=0.0, end=None, scheduler="threads"):
    """One computation; a task is (ready, start, stop, CPU seconds, worker)."""
    ready = [task[0] for task in tasks]
    rows = [Task(*task[1:4], "f", task[4]) for task in tasks]
    columns = {"called": called, "start": called, "prepared": min(ready, default=called)}
    made = run(rows, stop, workers, scheduler=scheduler, **columns)
    made = replace(made, start=start, stop=stop if end is None else end)
    return with_columns(made, "tasks", submitted=ready) if tasks else made


def parts_of(measured):
    table = wall_time(measured)
    return dict(zip(table["part"].tolist(), table["seconds"].tolist(), strict=True))


@pytest.mark.parametrize(
    "measured, sentence",
    [
        (
            replace(Recording(start=0.0, stop=2.0, epoch=0.0)),
            "2.00 s without a computation",
        ),
        # Of no length, as one that is written by hand.
        (
            recording([(4, 4, 4, 0, 0)], 0, called=4, workers=1),
            "0 s of wall time",
        ),
        # One worker computes from 4 to 10.
        (
            recording([(4, 4, 10, 6, 0)], 10, called=4, workers=1),
            "10.0 s of wall time, 60% of it computing in tasks",
        ),
        (
            recording([(7, 7, 10, 3, 0)], 10, called=7, workers=1),
            f"{SAID} 30% {TASKS}: time before the first computation, 7.00 s (70%)",
        ),
        (
            recording([(7, 7, 10, 3, 0)], 10, called=1, workers=1),
            f"{SAID} 30% {TASKS}: preparing the graph of 1 task, imports included, 6.00 s (60%)",
        ),
        (
            recording([(1, 1, 3, 2, 0)], 3, called=1, workers=1, end=10),
            f"{SAID} 20% {TASKS}: time after the last computation, 7.00 s (70%)",
        ),
        (
            recording([(0, 0, 10, 3, 0)], 10, called=0, workers=1),
            f"{SAID} 30% {TASKS}: tasks off the CPU, 7.00 s (70%)",
        ),
        (
            recording([(0, 0, 10, 10, 0)], 10, called=0, workers=4),
            f"{SAID} 25% {OF_FOUR}: workers without a task, 7.50 s (75%)",
        ),
    ],
)
def test_the_headline_says_where_most_time_went(measured, sentence):
    assert headline(Analysis(measured)) == sentence


def test_the_headline_names_the_largest_loss():
    analysis = Analysis(recording([(0, 0, 10, 10, 0)], 10, called=0, workers=4))
    found = [
        Finding(code, "high", lost, "", "", certainty=kind)
        for code, lost, kind in (
            ("memory-growth", np.nan, "unknown"),
            ("imbalance", 1.0, "estimate"),
            ("gil-bound", 2.5, "upper_bound"),
        )
    ]
    said = "10.0 s of wall time, 25% of it computing in tasks (average over 4 workers)"
    loss = "Largest loss: tasks waiting for the GIL, at most 2.50 s"
    assert headline(analysis, found) == f"{said}. {loss}"
    # A loss that is small compared with what passed outside of computations is not all that is said.
    later = Analysis(recording([(0, 0, 10, 10, 0)], 10, called=0, workers=4, end=40))
    assert headline(later, found).endswith(
        f"{loss}. Largest other part: time after the last computation, 30.0 s (75%)"
    )
    # Without seconds there is no largest loss.
    assert headline(analysis, found[:1]) == headline(analysis)
    assert CAUSES.keys() < FINDINGS.keys()


REASONS = {
    "before": "time before the first computation",
    "preparing": "preparing the graph of 2 tasks, imports included",
    "overhead": "scheduling overhead of 2 tasks that took 250 ms on average",
    "idle": "workers without a task",
}


def test_each_part_of_the_wall_time_has_a_sentence():
    # Two tasks of 0.25 s; of 10 s tasks computed for 2 and 1 is of a smaller part.
    tasks, said = [(0, 0, 0.25, 0.25, 0), (0, 0, 0.25, 0.25, 1)], {}
    for part in {*PHASES, *ACTIVITIES} - {Activity.CPU}:
        analysis = Analysis(recording(tasks, 10, called=0))
        seconds = {"thread-cpu": 2.0, "idle" if part != "idle" else "after": 1.0, part: 7.0}
        analysis.__dict__["wall_time"] = Table(
            {"part": Categorical.of(seconds), "seconds": np.array([*seconds.values()])}
        )
        said[part] = headline(analysis).removeprefix(f"{SAID} 20% {OF_TWO}: ")
    assert all(sentence.endswith(", 7.00 s (70%)") for sentence in said.values())
    named = {part: said[part].removesuffix(", 7.00 s (70%)") for part in REASONS}
    assert named == REASONS
    assert len(set(said.values())) == len(said)


def test_of_what_recorded_no_tasks_only_the_time_is_said():
    assert headline(Analysis(recording([], 4, called=0))) == "4.00 s; tasks were not recorded"


def test_the_wall_time_is_divided_among_phases_and_activities():
    # Two workers; the graph is made from 1 to 2, the first task starts at 2.5. From there to 8 one
    # worker runs tasks for 5.5 s of which it has a CPU for 2.75, the other none; the end is at 9.
    measured = recording([(2, 2.5, 8, 2.75, 0)], 8, called=1, end=9)
    expected = {"before": 1.0, "preparing": 1.5, "idle": 2.75, "after": 1.0}
    expected |= {"thread-cpu": 1.375, "thread-noncpu": 1.375, "between": 0.0, "finishing": 0.0}
    assert parts_of(measured) == pytest.approx(expected)


# One worker of two runs a task, 1 s with a CPU and 3 s without; the other is free for 4 s.
ONE_OF_TWO = [(0, 0, 4, 1, 0)]


def test_activities_come_in_place_of_tasks_the_largest_first():
    measured = recording(ONE_OF_TWO, 4, called=0, start=-1.0, end=5.0)
    parts = parts_of(measured)
    assert list(parts)[:2] == ["before", "preparing"]
    activities = [part for part in parts if part in ("idle", "thread-cpu", "thread-noncpu")]
    assert activities == ["idle", "thread-noncpu", "thread-cpu"]
    assert list(parts)[-1] == "after"


def test_of_tasks_none_of_which_started_all_time_is_preparing():
    nan = np.nan
    parts = parts_of(recording([(0, nan, nan, nan, 0)], 4, called=0))
    assert parts == pytest.approx(dict.fromkeys(parts, 0.0) | {"preparing": 4.0})
    assert "idle" not in parts


@pytest.mark.parametrize(
    "workers, average",
    [
        ([1], ""),
        ([4], " (average over 4 workers)"),
        ([4, 4], " (average over 4 workers)"),
        ([1, 4], " (average over the workers)"),
    ],
)
def test_the_headline_says_over_how_many_workers_it_averages(workers, average):
    analysis = Analysis(recording([(0, 0, 10, 10, 0)], 10, called=0, workers=1))
    analysis.occupancies = [SimpleNamespace(workers=number) for number in workers]
    analysis.wall_time = Table(
        {"part": Categorical.of(["thread-cpu", "idle"]), "seconds": np.array([9.0, 1.0])}
    )
    assert headline(analysis) == f"10.0 s of wall time, 90% of it computing in tasks{average}"


LONGEST_WAITS = ("gil-bound", "lock-bound")


def test_findings_that_claim_more_than_the_run_took_are_said_to_overlap():
    # The one task computes for nine of ten seconds, which no fix takes away.
    measured = Analysis(recording([(0, 0, 10, 10, 0)], 10, called=0, workers=1))
    measured.cpu_in_tasks, measured.cpus_for_tasks = 9.0, 1
    claimed = [
        Finding("a", "high", lost, "", "", certainty="estimate") for lost in (6.0, np.nan, 4.5)
    ]
    assert savings_overlap(claimed, measured) == (
        "These savings overlap: 10.5 s in sum, together at most 6.00 s of 10.0 s. Fix one, and "
        "record again."
    )
    assert savings_overlap(claimed[:2], measured) == ""
    waits = [Finding(code, "high", 6.0, "", "", certainty="estimate") for code in LONGEST_WAITS]
    assert "together at most 6.00 s" in savings_overlap(waits, measured)
