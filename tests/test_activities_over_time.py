"""Activities in bins: they add up to the activities, and each bin to what tasks did in it."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_diag import load
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.over_time import NO_TASK, activities_over_time
from dask_diag.model.codes import Activity, Outcome

from .recordings import with_columns
from .test_worker_layers import recording_of as recording_of_cpu

STORIES = Path(__file__).parent.parent / "docs" / "stories"
pytestmark = pytest.mark.once


def recording_of(tasks, workers, stop):
    recording = recording_of_cpu(tasks, workers, stop)
    _, start, stop, cpu = (np.array(column) for column in zip(*tasks, strict=True))
    return with_columns(recording, "tasks", thread_noncpu=stop - start - cpu)


def made_of(recording, functions, bins):
    return activities_over_time(recording, Analysis(recording).occupancies, functions, bins)


def test_each_bin_by_hand():
    # Two workers for four seconds: a computes for one, b for half of its two, c is not named.
    tasks = [("a", 0.0, 1.0, 1.0), ("b", 0.0, 2.0, 1.0), ("c", 2.0, 4.0, 2.0)]
    made = made_of(recording_of(tasks, 2, 4.0), ["a", "b"], 5)
    assert made.edges.tolist() == [-1, 0, 1, 2, 3, 4]
    assert {kind: sums.tolist() for kind, sums in made.seconds.items()} == {
        (0, Activity.CPU): [0, 1, 0, 0, 0],
        (1, Activity.CPU): [0, 0.5, 0.5, 0, 0],
        (1, Activity.NONCPU): [0, 0.5, 0.5, 0, 0],
        (2, Activity.CPU): [0, 0, 0, 1, 1],
        # c could have run from the start on.
        (NO_TASK, Activity.OVERHEAD): [0, 0, 1, 0, 0],
        (NO_TASK, Activity.IDLE): [0, 0, 0, 1, 1],
    }
    assert made.cpu.tolist() == [[0, 1, 0, 0, 0], [0, 0.5, 0.5, 0, 0], [0, 0, 0, 1, 1]]
    assert made.tasks.tolist() == [[0, 1, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 1, 0]]
    assert made.longest.tolist() == [[0, 1, 0, 0, 0], [0, 2, 0, 0, 0], [0, 0, 0, 2, 0]]


def test_a_failed_task_has_its_cpu_and_its_seconds_are_lost():
    recording = recording_of([("a", 0.0, 2.0, 0.5), ("b", 2.0, 4.0, np.nan)], 1, 4.0)
    outcome = [Outcome.FAILED, Outcome.OK]
    made = made_of(with_columns(recording, "tasks", outcome=outcome), ["a", "b"], 5)
    assert made.seconds[0, Outcome.FAILED].tolist() == [0, 1, 1, 0, 0]
    assert made.cpu[0].tolist() == [0, 0.25, 0.25, 0, 0]
    # The CPU of b was not measured.
    assert made.seconds[1, Activity.OTHER].tolist() == [0, 0, 0, 1, 1]
    assert np.isnan(made.cpu[1]).all()


def test_a_task_without_length_is_counted():
    made = made_of(recording_of([("a", 1.0, 1.0, 1e-3), ("a", 1.5, 2.0, 0.5)], 1, 4.0), ["a"], 5)
    assert made.tasks[0].tolist() == [0, 0, 2, 0, 0]
    assert made.cpu[0].tolist() == pytest.approx([0, 0, 0.501, 0, 0])


def seconds_of_cells(recording, functions):
    """What all bins together have, from the table of activities."""
    totals = Counter()
    row_of = {None: NO_TASK, **{name: row for row, name in enumerate(functions)}}
    for cell in Analysis(recording).cells.to_dicts():
        if cell["unit"] == "seconds":
            row = row_of.get(cell["function"], len(functions))
            totals[row, cell["activity"]] += cell["value"]
    return {kind: pytest.approx(value, abs=1e-8) for kind, value in totals.items() if value}


@pytest.mark.parametrize("story", ["climatology", "qr", "word_count", "download"])
def test_bins_of_a_recording_sum_to_its_activities(story):
    """Of threads and processes, with waits, and pickling of worker and scheduler."""
    recording = load(STORIES / f"{story}.diag")
    functions = Analysis(recording).functions["function"].tolist()[:3]
    made = made_of(recording, functions, 600)
    sums = {kind: float(values.sum()) for kind, values in made.seconds.items()}
    assert sums == seconds_of_cells(recording, functions)


times = st.floats(0, 9).map(lambda value: round(value, 3))


@given(
    tasks=st.lists(
        st.tuples(st.sampled_from("abc"), times, st.floats(0, 1), st.floats(0, 1)), min_size=1
    ),
    bins=st.integers(1, 40),
)
@settings(max_examples=50, deadline=None)
def test_each_bin_has_the_part_of_each_task_that_is_in_it(tasks, bins):
    rows = [(name, start, start + took, took * share) for name, start, took, share in tasks]
    made = made_of(recording_of(rows, 3, 10.0), ["a", "b"], bins)
    edges = made.edges
    for row, names in enumerate(["a", "b", "c"]):
        of_row = [task for task in rows if task[0] in names]
        for n in range(bins):
            inside = [
                (max(0.0, min(stop, edges[n + 1]) - max(start, edges[n])), cpu / (stop - start))
                for _, start, stop, cpu in of_row
                if stop > start
            ]
            cpu = sum(part * share for part, share in inside)
            off_cpu = sum(part * (1 - share) for part, share in inside)
            nothing = np.zeros(bins)
            assert made.seconds.get((row, Activity.CPU), nothing)[n] == pytest.approx(cpu, abs=1e-6)
            sums = made.seconds.get((row, Activity.NONCPU), nothing)
            assert sums[n] == pytest.approx(off_cpu, abs=1e-6)
