"""How far computations are, and what they are to run: in the file before the first task is done."""

from __future__ import annotations

import threading
from collections import Counter

import dask
import dask.local
import dask.multiprocessing
import dask.threaded
import pytest
from dask.delayed import delayed
from hypothesis import given
from hypothesis import strategies as st

from dask_diag import Profiler, load, record
from dask_diag.capture import session
from dask_diag.capture.increments import TaskTables
from dask_diag.capture.keys import count_functions, names_of_plain_keys
from dask_diag.capture.tasks_table import keys_columns
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


def test_a_running_computation_says_how_far_it_is():
    seen = []
    with Profiler() as profiler:
        progress = TaskTables(profiler.session)

        def look(value):
            seen.append(progress.take())
            return value

        dask.local.get_sync(graph(look), "c")
        lasting, provisional = progress.take()
    (meanwhile,) = seen
    assert len(meanwhile[0]["planned"]) == 0
    assert functions_of(meanwhile[1]["planned"]) == PLANNED
    (row,) = meanwhile[1]["progress"].to_dicts()
    assert row["phase"] == ProgressPhase.TASKS
    assert (row["total"], row["running"]) == (21, 1)
    assert row["finished"] + row["ready"] + row["waiting"] + row["running"] == 21
    # It has ended: for good, and once.
    assert functions_of(lasting["planned"]) == PLANNED
    assert len(provisional["planned"]) == len(provisional["progress"]) == 0
    assert len(progress.take()[0]["planned"]) == 0


def test_tasks_that_are_put_in_order_are_counted_before_the_first(monkeypatch):
    seen = []
    with Profiler() as profiler:
        progress = TaskTables(profiler.session)
        order = dask.local.order
        monkeypatch.setattr(
            dask.local, "order", lambda dsk: seen.append(progress.take()[1]) or order(dsk)
        )
        dask.local.get_sync(graph(int), "c")
    (row,) = seen[0]["progress"].to_dicts()
    # Data are among them: they look like tasks before that.
    assert (row["phase"], row["total"], row["finished"]) == (ProgressPhase.ORDERING, 22, 0)
    assert row["since"] == profiler.recording.computations.start[0]


def test_a_graph_that_is_made_is_seen_before_the_scheduler_has_it(monkeypatch):
    seen = []
    with Profiler() as profiler:
        progress = TaskTables(profiler.session)
        optimize = (
            dask.base.collections_to_expr if hasattr(dask.base, "collections_to_expr") else None
        )
        if optimize is None:
            pytest.skip("this dask has no function to hook into")

        def look(*args, **kwargs):
            seen.append(progress.take()[1])
            return optimize(*args, **kwargs)

        monkeypatch.setattr(dask.base, "collections_to_expr", look)
        dask.compute(delayed(int)(3), scheduler="synchronous")
        after = progress.take()[1]["progress"]
    (row,) = seen[0]["progress"].to_dicts()
    assert (row["computation"], row["phase"], row["total"]) == ("", ProgressPhase.GRAPH, 0)
    assert row["since"] == profiler.recording.computations.called[0]
    assert len(after) == 0


@pytest.mark.leaves_files
def test_a_file_has_them_while_the_computation_runs(monkeypatch):
    monkeypatch.setattr(record_module, "_PERIOD", 0.005)
    monkeypatch.setattr(record_module, "_SHORTEST_PAUSE", 0.005)
    loaded, written = [], threading.Event()

    def wait(value):
        for _ in range(2000):
            recording = load("run.diag")
            # Functions are counted a moment later than tasks.
            if len(recording.progress) and len(recording.planned):
                loaded.append(recording)
                break
            written.wait(0.01)
        return value

    with record("run.diag") as run:
        dask.local.get_sync(graph(wait), "c")
    assert functions_of(loaded[0].planned) == PLANNED
    assert loaded[0].progress.total.tolist() == [21]
    complete = load("run.diag")
    assert functions_of(complete.planned) == functions_of(run.recording.planned) == PLANNED
    assert len(complete.progress) == 0


def test_what_is_read_while_a_computation_ends_is_left_out(monkeypatch):
    with Profiler() as profiler:
        dask.local.get_sync(graph(int), "c")
    (computation,) = profiler.session.computations
    assert session.progress_of(computation) is None
    assert computation.planned is None


plain = st.text(max_size=8) | st.integers() | st.binary(max_size=4)


@given(
    st.lists(
        st.text("ab-1", max_size=8)
        | st.integers()
        | st.binary(max_size=3)
        | st.tuples(plain, st.integers())
        | st.just(()),
        unique=True,
    )
)
def test_functions_are_counted_as_tasks_name_them(keys):
    functions = keys_columns(keys, dict(names_of_plain_keys(keys, {})))[1]
    assert count_functions(keys, {}) == Counter(functions.tolist())
