"""Imports at dask's first call are no part of the graph, where stacks were sampled."""

from __future__ import annotations

import numpy as np
import pytest

from dask_diag import summary
from dask_diag.analysis.activities import activities
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.headline import headline
from dask_diag.analysis.lines import OWN_CALLS
from dask_diag.analysis.phases import phases, seconds_not_of_graphs
from dask_diag.analysis.wall_time import wall_time

from .recordings import CORE, MAIN, columns_of, with_columns, with_stacks, with_tables
from .test_headline import recording

pytestmark = pytest.mark.once

BOOTSTRAP = ("_find_and_load", "<frozen importlib._bootstrap>", 1176, 1165)
IMPORTS, GRAPH, PROFILER = [MAIN, CORE, BOOTSTRAP], [MAIN, CORE], [MAIN, (OWN_CALLS, "", 0, 0)]
# Called at 1, in order at 4, two tasks on two workers from 4 to 5; the end is at 6.
TASKS = [(4, 4, 5, 1.0, "thread-0"), (4, 4, 5, 1.0, "thread-1")]


def sampled(rows, **computed):
    """With samples of the calling thread: a row is when a cycle started, a path and seconds."""
    stacks = [((start, start + 1.0), "graph", path, took, took) for start, path, took in rows]
    return with_stacks(recording(TASKS, 5, end=6, **computed), stacks)


def seconds_of(table, name, value):
    return dict(zip(table[name].tolist(), table[value].tolist(), strict=True))


# 1.75 s of imports, 0.25 s of a profiler, 1 s of the graph itself.
ROWS = [(1, IMPORTS, 1.0), (2, IMPORTS, 0.75), (2, PROFILER, 0.25), (3, GRAPH, 1.0)]


def test_imports_are_startup_and_profilers_have_a_name_and_all_adds_up():
    measured = sampled(ROWS)
    by_activity = seconds_of(activities(measured), "activity", "value")
    expected = {"startup": 2 * 1.75, "profilers": 2 * 0.25, "graph": 2 * 1.0}
    expected |= {"thread-cpu": 2.0, "thread-noncpu": 0.0}
    assert by_activity == pytest.approx(expected)
    assert sum(by_activity.values()) == pytest.approx(2 * 4.0, rel=1e-9)
    by_part = seconds_of(wall_time(measured), "part", "seconds")
    assert by_part["preparing"] == pytest.approx(1.0)
    assert by_part["startup"] == pytest.approx(1.75)
    assert by_part["profilers"] == pytest.approx(0.25)
    assert sum(by_part.values()) == pytest.approx(6.0, rel=1e-9)
    # Phases are of time, whatever it was spent on.
    assert seconds_of(phases(measured), "phase", "seconds")["preparing"] == pytest.approx(3.0)
    assert seconds_not_of_graphs(measured).tolist() == pytest.approx([2.0])


def test_the_headline_names_imports_and_a_summary_says_how_much_they_took():
    measured = sampled(ROWS)
    expected = "importing modules, 1.75 s (29%)"
    assert headline(Analysis(measured)).endswith(expected)
    text = " ".join(summary(measured, verbose=True).split())
    assert "preparing 3.00 s (2.00 s of it imports and profilers)" in text


def test_without_imports_the_graph_is_named_alone():
    measured = sampled([(start, GRAPH, 1.0) for start in (1, 2, 3)])
    assert headline(Analysis(measured)).endswith("preparing the graph of 2 tasks, 3.00 s (50%)")
    assert "startup" not in activities(measured)["activity"].tolist()


@pytest.mark.parametrize("rows", [[], [(1, None, 1.0), (2, None, 1.0)]], ids=["none", "not seen"])
def test_what_is_not_known_is_said(rows):
    measured = sampled(rows)
    expected = "preparing the graph of 2 tasks, imports included, 3.00 s (50%)"
    assert headline(Analysis(measured)).endswith(expected)
    assert "preparing 3.00 s (with imports)" in summary(measured, verbose=True)
    by_activity = seconds_of(activities(measured), "activity", "value")
    assert by_activity["graph"] == pytest.approx(2 * 3.0)


def test_of_a_graph_that_arrives_at_a_cluster_nothing_is_said():
    measured = sampled([])
    on_cluster = {"cluster": ["scheduler"], "scheduler": ["distributed"]}
    measured = with_columns(measured, "computations", **on_cluster)
    assert "imports" not in summary(measured, verbose=True)


def test_a_part_of_a_cycle_that_was_not_preparing_has_no_imports():
    # The cycle began half a second before dask was called, and its sample is of that call.
    measured = sampled([(0.5, IMPORTS, 0.5), (1.5, GRAPH, 1.0), (2.5, GRAPH, 1.0)])
    by_activity = seconds_of(activities(measured), "activity", "value")
    assert by_activity["startup"] == pytest.approx(2 * 0.5)
    assert by_activity["graph"] == pytest.approx(2 * 2.5)


def test_what_is_not_seen_is_a_library_that_is_loaded_unless_the_graph_was_short():
    measured = sampled([(1, None, 0.5), (1, GRAPH, 0.5), (2, GRAPH, 1.0), (3, GRAPH, 1.0)])
    assert seconds_not_of_graphs(measured) == pytest.approx([0.5])
    # Prepared within 40 ms, it was over before a sample could be taken.
    measured = sampled([(1, None, 0.03), (1, IMPORTS, 0.01)])
    measured = with_columns(measured, "computations", prepared=[1.04])
    assert seconds_not_of_graphs(measured) == pytest.approx([0.01])


def test_computations_that_share_a_cycle_share_its_imports():
    computations = columns_of(
        "computation called start prepared stop workers",
        ("a", 0.0, 0.0, 0.3, 0.4, 1),
        ("b", 0.5, 0.5, 0.6, 1.0, 1),
    )
    measured = sampled([(0, IMPORTS, 0.2), (0, GRAPH, 0.2)])
    measured = with_tables(measured, computations=computations)
    assert seconds_not_of_graphs(measured) == pytest.approx(np.array([0.15, 0.05]))


def test_processes_that_start_are_no_preparation_of_a_graph():
    measured = recording(TASKS, 5, end=6, scheduler="processes")
    measured = with_columns(measured, "tasks", pid=["7", "8"], submitted=[2.0, 2.0])
    measured = with_columns(measured, "computations", prepared=[2.0])
    workers = {"computation": ["c"] * 2, "pid": ["7", "8"], "joined": [3.5, 3.5]}
    measured = with_tables(measured, workers=workers)
    by_part = seconds_of(wall_time(measured), "part", "seconds")
    assert (by_part["preparing"], by_part["startup"]) == pytest.approx((1.0, 2.0))
    assert sum(by_part.values()) == pytest.approx(6.0, rel=1e-9)
    assert headline(Analysis(measured)).endswith("starting worker processes, 2.00 s (33%)")
