"""The critical path: against brute force on small graphs, and against work of known duration."""

from __future__ import annotations

import dataclasses
import time
from importlib import import_module

import dask.threaded
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_diag import DiagnosticError, Profiler, critical_path, summary
from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.model.recording import Recording
from dask_diag.model.table import NO_ROWS

from .tables import filled_table

pytestmark = pytest.mark.once


def made(seconds, dependencies, computations=None):
    """A recording of tasks that took these seconds, and need each other so."""
    rows = len(seconds)
    computations = computations or ["c"] * rows
    names = list(dict.fromkeys(computations)) or ["c"]
    stop = np.array(seconds, dtype=float)
    start = np.where(np.isnan(stop), np.nan, 0.0)
    return Recording(
        start=0.0,
        stop=100.0,
        epoch=0.0,
        computations=filled_table(
            "computations",
            {
                "computation": Categorical.of(names),
                "start": np.zeros(len(names)),
                "stop": np.full(len(names), 100.0),
                "workers": np.full(len(names), 2),
            },
        ),
        tasks=filled_table(
            "tasks",
            {
                "key": PrefixStrings.of(map(str, range(rows))),
                "function": Categorical.of(f"f{n % 3}" for n in range(rows)),
                "start": start,
                "stop": stop,
                "computation": Categorical.of(computations),
            },
        ),
        dependencies=filled_table(
            "dependencies",
            {
                "task": np.array([task for task, _ in dependencies], dtype=np.int64),
                "depends_on": np.array([need for _, need in dependencies], dtype=np.int64),
            },
        ),
        metrics=NO_ROWS,
        resources=NO_ROWS,
        cached_results=NO_ROWS,
    )


def test_the_longer_arm_of_a_diamond():
    path = critical_path(made([1, 5, 2, 1], [(1, 0), (2, 0), (3, 1), (3, 2)]))
    assert path.tasks["task"].tolist() == [0, 1, 3]
    assert path.length == 7
    assert path.slack.tolist() == [0, 0, 3, 0]
    assert path.computations.to_dicts()[0] == {
        "computation": "c",
        "wall": 100.0,
        "length": 7.0,
        "scheduler_cpu": 0.0,
        "max_speedup": pytest.approx(100 / 7),
        "bound": "critical path",
        "work": 9.0,
        "workers": 2,
    }
    assert path.functions.to_dicts()[0]["function"] == "f1"
    assert path.functions["seconds"].sum() == pytest.approx(7)


def with_scheduler(recording, cpu, scheduler="threads"):
    table = recording.computations
    columns = {name: table[name] for name in table.columns}
    columns["scheduler_cpu"] = np.full(len(table), float(cpu))
    columns["scheduler"] = Categorical.of([scheduler] * len(table))
    return dataclasses.replace(recording, computations=type(table)(columns))


def test_unlimited_workers_are_no_faster_than_the_scheduler():
    recording = with_scheduler(made([1, 5, 2, 1], [(1, 0), (2, 0), (3, 1), (3, 2)]), 25)
    path = critical_path(recording)
    row = path.computations.to_dicts()[0]
    assert (row["bound"], row["scheduler_cpu"], row["length"]) == ("scheduler", 25, 7)
    assert row["max_speedup"] == path.max_speedup == 4
    line = " ".join(summary(recording).split())
    assert "at most 4× faster with unlimited workers (bound by 25.0 s of scheduler CPU)" in line


def test_a_scheduler_that_runs_the_tasks_itself_has_their_cpu_too():
    recording = with_scheduler(made([1, 5], [(1, 0)]), 6.5, "synchronous")
    tasks = {name: recording.tasks[name] for name in recording.tasks.columns}
    tasks["thread_cpu"] = np.array([1.0, 5.0])
    path = critical_path(dataclasses.replace(recording, tasks=type(recording.tasks)(tasks)))
    assert path.scheduler_cpu == 0.5
    assert path.computations["bound"].tolist() == ["critical path"]


def test_computations_are_bound_each_by_its_own():
    recording = with_scheduler(made([1, 2, 30], [(1, 0)], ["a", "a", "b"]), 10)
    path = critical_path(recording)
    assert path.computations["bound"].tolist() == ["scheduler", "critical path"]
    assert path.max_speedup == pytest.approx(200 / 40)


def test_each_computation_has_its_wall_its_path_and_its_scheduler_wherever_it_starts():
    recording = with_scheduler(made([1, 2, 4], [(1, 0)], ["a", "a", "b"]), 3.5, "synchronous")
    tasks = {name: recording.tasks[name] for name in recording.tasks.columns}
    tasks["thread_cpu"] = np.array([1.0, 2.0, 0.25])
    computations = {n: recording.computations[n] for n in recording.computations.columns}
    later = {"start": np.array([10.0, 60.0]), "stop": np.array([50.0, 100.0])}
    moved = {name: tasks[name] + np.array([10.0, 11.0, 60.0]) for name in ("start", "stop")}
    path = critical_path(
        dataclasses.replace(
            recording,
            tasks=type(recording.tasks)({**tasks, **moved}),
            computations=type(recording.computations)({**computations, **later}),
        )
    )
    assert path.computations["wall"].tolist() == [40.0, 40.0]
    assert path.computations["length"].tolist() == [3.0, 4.0]
    # What its own tasks took is not the scheduler's; those of the other are no matter.
    assert path.computations["scheduler_cpu"].tolist() == [0.5, 3.25]
    assert path.tasks["task"].tolist() == [0, 1, 2]


@st.composite
def graphs(draw):
    """Tasks in any order of numbers, acyclic."""
    rows = draw(st.integers(1, 9))
    names = draw(st.permutations(range(rows)))
    pairs = [(b, a) for a in range(rows) for b in range(a + 1, rows)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    seconds = draw(st.lists(st.integers(0, 9), min_size=rows, max_size=rows))
    return seconds, [(names[task], names[need]) for task, need in edges]


@given(graphs())
@settings(max_examples=200)
def test_it_is_the_longest_of_all_chains(graph):
    seconds, edges = graph
    dependencies = {task: [need for t, need in edges if t == task] for task in range(len(seconds))}
    dependents = {need: [t for t, n in edges if n == need] for need in range(len(seconds))}

    def longest(task, neighbours):
        return seconds[task] + max((longest(n, neighbours) for n in neighbours[task]), default=0)

    through = [
        longest(task, dependencies) + longest(task, dependents) - seconds[task]
        for task in range(len(seconds))
    ]
    path = critical_path(made(seconds, edges))
    assert path.length == max(through)
    assert path.slack.tolist() == [max(through) - one for one in through]
    chain = path.tasks["task"].tolist()
    assert sum(seconds[task] for task in chain) == path.length
    assert all(need in dependencies[task] for need, task in zip(chain, chain[1:]))


def test_each_compute_has_its_own():
    path = critical_path(made([1, 2, 3], [(1, 0)], ["a", "a", "b"]))
    assert path.computations["length"].tolist() == [3, 3]
    assert path.length == 6
    assert path.slack.tolist() == [0, 0, 0]


def test_what_is_not_known_is_not_slack():
    path = critical_path(made([1, float("nan"), 2], [(2, 1)]))
    assert np.isnan(path.slack[1])
    assert path.length == 2


def test_nothing_and_cycles():
    recording = made([1, 1], [(1, 0), (0, 1)])
    with pytest.raises(DiagnosticError, match="without cycles"):
        critical_path(recording)
    empty = dataclasses.replace(recording, tasks=NO_ROWS, dependencies=NO_ROWS)
    assert critical_path(empty).length == 0.0
    assert str(critical_path(made([1], [])))


def test_dependencies_are_followed_beyond_those_that_are_read_at_once(monkeypatch):
    monkeypatch.setattr(import_module("dask_diag.analysis.critical_path"), "_EDGES", 2)
    tasks = range(8)
    path = critical_path(made([1] * 8, [(task, task - 1) for task in tasks[1:]]))
    assert path.length == 8
    assert path.tasks["task"].tolist() == list(tasks)
    assert path.slack.tolist() == [0] * 8


def pause(_, seconds):
    time.sleep(seconds)


def test_a_chain_beside_short_tasks(retried):
    def measure():
        dsk = {("chain", 0): (pause, None, 0.1)}
        dsk.update({("chain", n): (pause, ("chain", n - 1), 0.1) for n in range(1, 4)})
        dsk.update({("short", n): (pause, None, 0.05) for n in range(4)})
        with Profiler() as prof:
            dask.threaded.get(dsk, list(dsk), num_workers=5)
        path = critical_path(prof.recording)
        assert path.length == pytest.approx(0.4, abs=0.05)
        assert path.tasks["function"].tolist() == ["chain"] * 4
        assert path.computations["max_speedup"][0] == pytest.approx(1.0, abs=0.15)
        short = prof.recording.tasks["function"].where("short")
        assert path.slack[short] == pytest.approx(np.full(4, 0.35), abs=0.05)

    retried(measure)


@pytest.mark.once
def test_a_million_tasks_in_seconds(retried):
    rows = 1_000_000
    edges = np.arange(1, rows)
    recording = made(np.ones(rows), [])
    recording = dataclasses.replace(
        recording,
        dependencies=filled_table(
            "dependencies", {"task": edges, "depends_on": edges - 1 - (edges % 7 == 0)}
        ),
    )

    def measure():
        started = time.perf_counter()
        critical_path(recording)
        assert time.perf_counter() - started < 10

    retried(measure)
