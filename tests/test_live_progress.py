"""How far computations are, and what they are to run: in the file before the first task is done."""

import time
from collections import Counter

import dask
import dask.local
import dask.multiprocessing
import dask.threaded
import pytest
from dask.delayed import delayed

from dask_diag import Profiler, load, record
from dask_diag.model.codes import ProgressPhase
from dask_diag.profilers import record as record_module

SCHEDULERS = {
    "synchronous": dask.local.get_sync,
    "threads": dask.threaded.get,
    "processes": dask.multiprocessing.get,
}


def graph(first, count=10):
    dsk = {("a-1", 0): (first, 0)}
    dsk |= {("a-1", n): (int, n) for n in range(1, count)}
    dsk |= {f"b-{n}": (int, ("a-1", n)) for n in range(count)}
    dsk["data"] = 7
    dsk["c"] = (sum, [f"b-{n}" for n in range(count)])
    return dsk


def functions_of(table):
    return {row["function"]: row["tasks"] for row in table.to_dicts()}


PLANNED = {"a": 10, "b": 10, "sum": 1}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_planned_are_the_tasks_of_each_function(scheduler):
    with Profiler() as profiler:
        SCHEDULERS[scheduler](graph(int), "c")
    recording = profiler.recording
    planned = functions_of(recording.planned)
    assert scheduler == "processes" or planned == PLANNED
    assert planned == Counter(recording.tasks.function.tolist())
    assert set(recording.planned.computation.tolist()) == {
        recording.computations.computation.tolist()[0]
    }
    assert len(recording.progress) == 0


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_tasks_that_a_failure_prevents_were_planned(scheduler):
    def fail(value):
        raise ValueError(value)

    with Profiler() as profiler, pytest.raises(ValueError, match="0"):
        SCHEDULERS[scheduler](graph(fail), "c")
    planned = functions_of(profiler.recording.planned)
    assert len(profiler.recording.tasks) < sum(planned.values())
    # The scheduler of processes fuses tasks, which changes names.
    assert sum(planned.values()) == 21
    assert scheduler == "processes" or planned == PLANNED


def in_the_file(phase):
    """What a file that is written has of a phase, as soon as it has it, and of the functions."""
    for _ in range(2000):
        recording = load("run.diag")
        for row in recording.progress.to_dicts():
            own = [
                r for r in recording.planned.to_dicts() if r["computation"] == row["computation"]
            ]
            # Functions are counted, and the first task runs, a moment after the phase begins.
            has_begun = (own and row["running"]) or phase != ProgressPhase.TASKS
            if row["phase"] == phase and has_begun:
                return row, {r["function"]: r["tasks"] for r in own}
        time.sleep(0.005)
    raise AssertionError(f"the file never had the phase {phase}")


@pytest.mark.leaves_files
def test_a_file_has_each_phase_while_the_computation_is_in_it(monkeypatch):
    monkeypatch.setattr(record_module, "_PERIOD", 0.005)
    monkeypatch.setattr(record_module, "_SHORTEST_PAUSE", 0.005)
    seen = {}

    def looks(phase, function):
        def look(*args, **kwargs):
            if phase not in seen:
                seen[phase] = in_the_file(phase)
            return function(*args, **kwargs)

        return look

    order = looks(ProgressPhase.ORDERING, dask.local.order)
    monkeypatch.setattr(dask.local, "order", order)
    if hasattr(dask.base, "collections_to_expr"):
        made = looks(ProgressPhase.GRAPH, dask.base.collections_to_expr)
        monkeypatch.setattr(dask.base, "collections_to_expr", made)
    with record("run.diag") as run:
        dask.local.get_sync(graph(looks(ProgressPhase.TASKS, int)), "c")
        dask.compute(delayed(int)(3), scheduler="synchronous")
    computations = run.recording.computations
    row, planned = seen[ProgressPhase.TASKS]
    assert planned == PLANNED
    assert (row["total"], row["running"]) == (21, 1)
    assert row["finished"] + row["ready"] + row["waiting"] + row["running"] == 21
    # Data are among them: they look like tasks before that.
    row, _ = seen[ProgressPhase.ORDERING]
    assert (row["total"], row["finished"], row["since"]) == (22, 0, computations.start[0])
    if ProgressPhase.GRAPH in seen:
        row, _ = seen[ProgressPhase.GRAPH]
        assert (row["computation"], row["total"]) == ("", 0)
        assert row["since"] == computations.called[1]
    complete = load("run.diag")
    assert len(complete.progress) == 0
    planned = Counter(PLANNED) + Counter(run.recording.tasks.function.tolist()[-1:])
    assert Counter(functions_of(complete.planned)) == planned
