"""The critical path: against brute force on small graphs, and against work of known duration."""

import time
from dataclasses import replace
from importlib import import_module

import dask.threaded
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_diag import DiagnosticError, Profiler, critical_path, simulate, summary
from dask_diag.model.table import NO_ROWS

from .recordings import NAN, Task, in_rounds, run, with_columns, with_tables, with_waits

pytestmark = pytest.mark.once


def made(seconds, dependencies, computations=None, scheduler="threads", cpu=None, **columns):
    """A recording of tasks that took these seconds, and need each other so."""
    needs = {}
    for task, need in dependencies:
        needs.setdefault(task, []).append(need)
    tasks = [
        Task(0.0, took, cpu and cpu[n], f"f{n % 3}", depends_on=needs.get(n, ()))
        for n, took in enumerate(seconds)
    ]
    recording = run(tasks, stop=100.0, scheduler=scheduler, **columns)
    if computations is None:
        return recording
    names = list(dict.fromkeys(computations))
    recording = with_columns(recording, "computations", len(names), computation=names)
    return with_columns(recording, "tasks", computation=computations)


DIAMOND = [1, 5, 2, 1], [(1, 0), (2, 0), (3, 1), (3, 2)]


def test_the_longer_arm_of_a_diamond():
    path = critical_path(made(*DIAMOND))
    assert path.tasks["task"].tolist() == [0, 1, 3]
    assert path.length == 7
    assert path.slack.tolist() == [0, 0, 3, 0]
    assert path.computations.to_dicts()[0] == {
        "computation": "c",
        "wall": 100.0,
        "length": 7.0,
        "cpu_scheduler": 0.0,
        "max_speedup": pytest.approx(100 / 7),
        "bound": "critical path",
        "work": 9.0,
        "workers": 2,
    }
    assert path.functions.to_dicts()[0]["function"] == "f1"
    assert path.functions["seconds"].sum() == pytest.approx(7)


def test_unlimited_workers_are_no_faster_than_the_scheduler():
    recording = made(*DIAMOND, cpu_scheduler=25.0)
    path = critical_path(recording)
    row = path.computations.to_dicts()[0]
    assert (row["bound"], row["cpu_scheduler"], row["length"]) == ("scheduler", 25, 7)
    assert row["max_speedup"] == path.max_speedup == 4
    line = " ".join(summary(recording).split())
    assert "at most 4× faster with unlimited workers (bound by 25.0 s of scheduler CPU)" in line


def test_each_computation_has_its_wall_its_path_and_its_scheduler_wherever_it_starts():
    # A scheduler that runs the tasks itself has their CPU, too, and not those of the other.
    arguments = [1, 2, 4], [(1, 0)], ["a", "a", "b"], "synchronous", [1.0, 2.0, 0.25]
    recording = made(*arguments, cpu_scheduler=3.5)
    times = {"start": [10.0, 60.0], "stop": [50.0, 100.0]}
    recording = with_columns(recording, "computations", **times)
    later = np.array([10.0, 11.0, 60.0])
    times = {name: recording.tasks[name] + later for name in ("start", "stop")}
    path = critical_path(with_columns(recording, "tasks", **times))
    rows = path.computations
    assert rows["wall"].tolist() == [40.0, 40.0]
    assert rows["length"].tolist() == [3.0, 4.0]
    assert rows["cpu_scheduler"].tolist() == [0.5, 3.25]
    assert rows["bound"].tolist() == ["critical path", "critical path"]
    assert path.tasks["task"].tolist() == [0, 1, 2]
    assert (path.cpu_scheduler, path.length) == (3.75, 7)
    assert path.slack.tolist() == [0, 0, 0]
    path = critical_path(made([1, 2, 30], [(1, 0)], ["a", "a", "b"], cpu_scheduler=10.0))
    assert path.computations["bound"].tolist() == ["scheduler", "critical path"]
    assert path.max_speedup == pytest.approx(200 / 40)


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


def test_results_of_an_earlier_computation_are_no_part_of_a_path():
    path = critical_path(made([1, 2, 3, 4], [(1, 0), (2, 1), (3, 2)], ["a", "a", "b", "b"]))
    assert path.computations["length"].tolist() == [3, 7]
    assert path.tasks["task"].tolist() == [0, 1, 2, 3]
    assert path.length == 10


def test_a_simulation_leaves_out_results_of_an_earlier_computation():
    """Each of two computations has two tasks of a second, at once; the later ones use the earlier."""
    tasks = [Task(n // 2, n // 2 + 1, 1.0, worker=n % 2) for n in range(4)]
    later = [task._replace(depends_on=(n - 2,)) if n > 1 else task for n, task in enumerate(tasks)]
    seconds = []
    for rows in (tasks, later):
        names = {"computation": ["a", "b"], "start": [0.0, 1.0], "stop": [1.0, 2.0]}
        recording = with_columns(run(rows), "computations", 2, **names)
        recording = with_columns(recording, "tasks", computation=["a", "a", "b", "b"])
        seconds.append(simulate(recording, workers=1).seconds)
    assert seconds == pytest.approx([4.0, 4.0], abs=0.01)


def test_what_is_not_known_is_not_slack():
    path = critical_path(made([1, NAN, 2], [(2, 1)]))
    assert np.isnan(path.slack[1])
    assert path.length == 2


def test_nothing_and_cycles():
    recording = made([1, 1], [(1, 0), (0, 1)])
    with pytest.raises(DiagnosticError, match="without cycles"):
        critical_path(recording)
    empty = replace(recording, tasks=NO_ROWS, dependencies=NO_ROWS)
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
        dsk = {("chain", n): (pause, ("chain", n - 1) if n else None, 0.1) for n in range(4)}
        dsk |= {("short", n): (pause, None, 0.05) for n in range(4)}
        with Profiler() as prof:
            dask.threaded.get(dsk, list(dsk), num_workers=5)
        path = critical_path(prof.recording)
        assert path.length == pytest.approx(0.4, abs=0.05)
        assert path.tasks["function"].tolist() == ["chain"] * 4
        assert path.computations["max_speedup"][0] == pytest.approx(1.0, abs=0.15)
        short = prof.recording.tasks["function"].eq("short")
        assert path.slack[short] == pytest.approx(np.full(4, 0.35), abs=0.05)

    retried(measure)


@pytest.mark.once
def test_a_million_tasks_in_seconds(retried):
    rows = 1_000_000
    edges = np.arange(1, rows)
    dependencies = {"task": edges, "depends_on": edges - 1 - (edges % 7 == 0)}
    recording = with_tables(made(np.ones(rows), []), dependencies=dependencies)

    def measure():
        started = time.perf_counter()
        critical_path(recording)
        assert time.perf_counter() - started < 10

    retried(measure)


def test_threads_are_bound_by_the_cpu_time_that_needs_the_gil():
    """Two at once, of which one waits for the GIL: they cannot be faster, though no chain is long."""
    recording = in_rounds(40, 2, 0.5)
    chain = {"task": [1], "depends_on": [0]}
    plain = with_tables(with_waits(recording, "sleep"), dependencies=chain)
    held = with_tables(with_waits(recording, "gil-wait"), dependencies=chain)
    said = [" ".join(str(summary(each)).split()) for each in (plain, held)]
    assert "at most 10× faster with unlimited workers" in said[0]
    assert (
        "at most 1× faster with unlimited workers (bound by 20.0 s of CPU time that needs"
        in said[1]
    )
