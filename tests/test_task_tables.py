"""Tables of tasks, from what was captured: all at once, or in parts while computations run."""

from __future__ import annotations

import threading
from array import array
from operator import add
from types import SimpleNamespace

import dask.local
import numpy as np
import pytest

from dask_diag import CacheProfiler, Profiler, context_meter
from dask_diag.capture import tasks_table
from dask_diag.capture.computation import ComputationSnapshot, TaskRows
from dask_diag.capture.failures import Failure
from dask_diag.capture.increments import TaskTables
from dask_diag.capture.log import Metrics, Transfers, Waits, spans_of_tasks
from dask_diag.capture.metrics import Wait
from dask_diag.capture.task import Exceptional, Transfer, pack_row
from dask_diag.capture.tasks_table import (
    keys_columns,
    log_tables,
    tasks_of,
    times_of_tasks,
    with_workers_named,
)
from dask_diag.capture.workers_table import this_host
from dask_diag.model.tables import Tasks

pytestmark = pytest.mark.once


def nothing(*_):
    return None


def keys_of(tables):
    return Tasks.of(tables["tasks"])["key"].tolist()


def rows_of(table, *columns):
    """The values of these columns, row by row; a table without rows may have no columns."""
    return [tuple(row[name] for name in columns) for row in table.to_dicts()]


def edges_of(tables):
    return sorted(rows_of(tables["dependencies"], "task", "depends_on"))


def test_what_was_read_while_a_computation_ran_is_not_read_again():
    parts = []

    def read(*_):
        context_meter.digest_metric("read", len(parts), "bytes")
        parts.append(incremental.take())

    def fail(*_):
        read()
        raise ValueError("no")

    dsk = {"a-1": (nothing,), "b-1": (read, "a-1"), "c-1": (nothing, "b-1")}
    dsk |= {"d": (read, "c-1", "a-1"), "e": (fail, "d")}
    with Profiler() as prof:
        incremental = TaskTables(prof.session)
        with pytest.raises(ValueError, match="no"):
            dask.local.get_sync(dsk, "e")
        parts += [incremental.take(), incremental.take()]
    new, provisional = zip(*parts, strict=True)
    assert [*map(keys_of, new)] == [["a-1"], ["b-1", "c-1"], ["d"], ["e"], []]
    assert [*map(keys_of, provisional)] == [["b-1"], ["d"], ["e"], [], []]
    # Of what runs, too, it is known which rows it needed.
    assert [*map(edges_of, new)] == [[], [(1, 0), (2, 1)], [(3, 0), (3, 2)], [(4, 3)], []]
    assert [*map(edges_of, provisional)] == [[(1, 0)], [(3, 0), (3, 2)], [(4, 3)], [], []]
    metered = [rows_of(part["metrics"], "task", "value") for part in new]
    assert metered == [[], [(1, 0.0)], [(3, 1.0)], [(4, 2.0)], []]
    columns = ("function", "outcome")
    assert [row for part in new for row in rows_of(Tasks.of(part["tasks"]), *columns)] == [
        ("a", "ok"),
        ("b", "ok"),
        ("c", "ok"),
        ("read", "ok"),
        ("fail", "failed"),
    ]
    assert [len(part["computations"]) for part in new] == [0, 0, 0, 1, 0]


def test_tasks_of_several_computations_and_of_a_cluster_have_a_row_each():
    pytest.importorskip("distributed")
    from .test_cluster_many_tasks import Driver

    driver, ends = Driver(), threading.Event()

    def compute(name, runs):
        def wait(_):
            context_meter.digest_metric("read", ord(name), "bytes")
            runs.set()
            assert ends.wait(60)

        dsk = {f"{name}-0": (nothing,), f"{name}-1": (wait, f"{name}-0")}
        dask.local.get_sync(dsk, f"{name}-1")

    with Profiler() as prof:
        incremental = TaskTables(prof.session, lambda: [driver.log])
        threads = []
        for name in ("x", "y"):
            runs = threading.Event()
            threads.append(threading.Thread(target=compute, args=(name, runs)))
            threads[-1].start()
            assert runs.wait(60)
        driver.run(0, 2)
        driver.pull()
        new, provisional = incremental.take()
        ends.set()
        for thread in threads:
            thread.join()
        driver.run(2, 1)
        driver.pull()
        after, none = incremental.take()
    assert keys_of(new) == ["x-0", "y-0", "no_op-0", "no_op-1"]
    assert keys_of(provisional) == ["x-1", "y-1"]
    assert edges_of(provisional) == [(4, 0), (5, 1)]
    assert keys_of(after) == ["x-1", "y-1", "no_op-2"]
    assert edges_of(after) == [(4, 0), (5, 1)]
    assert rows_of(after["metrics"], "task", "value") == [(4, ord("x")), (5, ord("y"))]
    assert keys_of(none) == []
    # All at once they are in the order of submission, and with them what refers to them.
    tables = prof.recording
    assert tables.tasks["key"].tolist() == ["x-0", "x-1", "y-0", "y-1"]
    assert edges_of({"dependencies": tables.dependencies}) == [(1, 0), (3, 2)]
    assert rows_of(tables.metrics, "task", "value") == [(1, ord("x")), (3, ord("y"))]


@pytest.mark.parametrize("order", [1, -1], ids=["row first", "size first"])
def test_a_result_whose_size_is_being_measured_comes_with_it_in_the_next_part(order):
    parts = []

    def size(result):
        if result == 2:
            parts.append(incremental.take())
        return 10 * result

    cache = CacheProfiler(metric=size, unit="bytes")
    prof = Profiler()
    incremental = TaskTables(prof.session)
    callbacks = [profiler._callback for profiler in (prof, cache)][::order]
    dask.local.get_sync({"b-1": (abs, 1), "c-1": (add, "b-1", 1)}, "c-1", callbacks=callbacks)
    parts.append(incremental.take())
    sizes = [rows_of(Tasks.of(part["tasks"]), "key", "nbytes") for part, _ in parts]
    assert sizes == [[("b-1", 10.0)], [("c-1", 20.0)]]
    assert [edges_of(part) for part, _ in parts] == [[], [(1, 0)]]


def test_of_nothing_there_are_all_columns_and_no_rows():
    tasks = Profiler().recording.tasks
    assert len(tasks) == 0
    assert set(tasks.columns) == set(Tasks.schema)
    for name, column in Tasks.schema.items():
        assert type(tasks[name]) is type(Tasks.empty()[name]), column


ON_TWO_THREADS = SimpleNamespace(
    stop=9.0, name="c", span="", scheduler="threads", workers=2, pid=3, thread=1, remote_workers={}
)
NO_LOGS = {
    "first": 0,
    "dependencies": ([], []),
    "metrics": Metrics(),
    "transfers": Transfers(),
    "waits": Waits(),
}


def test_tasks_are_as_they_were_captured():
    """Three tasks on two threads, of which two raised; the first result has a known size."""
    captured = TaskRows(
        final=3,
        # Submitted, start, stop, CPU, thread, collected.
        rows=pack_row(0, 1, 3, 0.5, 7, 4)
        + pack_row(0, 2, 6, 4.0, 9, 7)
        + pack_row(4, 5, 6, 0.0, 7, 8),
        keys=["f-1", "g-1", "g-2"],
        names=[(2, "h")],
        exceptional={
            1: Exceptional("failed", "ValueError", Failure("no", "here")),
            2: Exceptional("failed", "ValueError"),
        },
        spans=spans_of_tasks(["f-1", "g-1", "g-2"], {"g-1": "loading"}),
        sizes=array("d", [16.0]),
        dependents=array("I"),
        **NO_LOGS,
    )
    table = tasks_of(ON_TWO_THREADS, captured, workers := {})
    tasks = Tasks.of(with_workers_named(table, workers))
    assert rows_of(tasks, "key", "function", "outcome", "error", "error_message", "span") == [
        ("f-1", "f", "ok", "", "", ""),
        ("g-1", "g", "failed", "ValueError", "no", "loading"),
        ("g-2", "h", "failed", "ValueError", "", ""),
    ]
    # Each text is there once, however many tasks have it.
    assert (tasks.outcome.values, tasks.outcome.codes.dtype) == (("ok", "failed"), np.uint8)
    assert rows_of(tasks, "submitted", "start", "stop", "collected") == [
        (0, 1, 3, 4),
        (0, 2, 6, 7),
        (4, 5, 6, 8),
    ]
    assert rows_of(tasks, "thread_cpu", "thread_noncpu") == [(0.5, 1.5), (4, 0), (0, 1)]
    assert rows_of(tasks, "worker", "pid", "thread") == [
        ("thread-0", 3, 7),
        ("thread-1", 3, 9),
        ("thread-0", 3, 7),
    ]
    assert (tasks.nbytes[0], np.isnan(tasks.nbytes[1:]).all()) == (16, True)
    same = rows_of(tasks, "computation", "host", "attempt", "stolen", "client")
    assert same == [("c", this_host(), 1, 0, "")] * 3
    for name in ("queued", "seceded", "seceded_cpu"):
        assert np.isnan(tasks[name]).all(), name
    times = times_of_tasks([ComputationSnapshot(ON_TWO_THREADS, captured)])
    assert rows_of(times, *times.columns) == rows_of(tasks, *times.columns)
    assert set(times.columns) == {"function", "start", "stop", "thread_cpu", "computation"}


def test_of_a_transfer_each_step_whose_times_are_known_is_a_row():
    complete, lost = Transfer(1.0), Transfer(11.0)
    complete.packed, complete.opened, complete.start, complete.stop = 2.0, 3.0, 4.0, 5.0
    complete.closed, complete.landing, complete.landed = 6.0, 7.0, 8.0
    complete.bytes_in, complete.bytes_out = 100, 200
    # Nothing was heard of the worker that it was sent to.
    lost.packed, lost.bytes_in, lost.landing = 12.0, 300, 13.0
    transfers = Transfers()
    transfers.add(4, complete)
    transfers.add(5, lost)
    tables = log_tables(SimpleNamespace(**{**NO_LOGS, "transfers": transfers}))
    columns = ("task", "side", "activity", "start", "stop", "bytes")
    assert sorted(rows_of(tables["transfers"], *columns)) == [
        (4, "scheduler", "deserialize", 7, 8, 200),
        (4, "scheduler", "serialize", 1, 2, 100),
        (4, "worker", "deserialize", 3, 4, 100),
        (4, "worker", "serialize", 5, 6, 200),
        (5, "scheduler", "serialize", 11, 12, 300),
    ]
    assert rows_of(tables["transfers"], "source", "destination") == [("", "")] * 5
    assert len(tables["metrics"]) == len(tables["waits"]) == 0


def test_what_tasks_waited_for_is_logged_by_row():
    waits = Waits()
    waits.add(3, [Wait("io-wait", 0.5, 9), Wait("cpu-wait", 0.25, 0)])
    waits.add(7, [Wait("io-wait", 1.5, 30)])
    table = log_tables(SimpleNamespace(**{**NO_LOGS, "waits": waits}))["waits"]
    assert rows_of(table, "task", "activity", "seconds", "samples") == [
        (3, "io-wait", 0.5, 9),
        (3, "cpu-wait", 0.25, 0),
        (7, "io-wait", 1.5, 30),
    ]


@pytest.mark.parametrize(
    ("of_a_kind", "functions"),
    [
        ([("sum-a-b1", n, -n) for n in range(9)] + [("x", 3)], ["sum-a"] * 9 + ["x"]),
        ([("sum-b1", 0), ("sum-c2", 0), ("x", 1), ("sum-b1", 2)], ["sum", "sum", "x", "sum"]),
        ([f"mean-b{n}c" for n in range(9)] + ["a-b-3"], ["mean"] * 9 + ["a-b"]),
    ],
)
def test_usual_keys_are_not_made_text_one_by_one(of_a_kind, functions, monkeypatch):
    def refuse(key):
        raise AssertionError(key)

    monkeypatch.setattr(tasks_table, "text_of_key", refuse)
    texts, names = keys_columns(of_a_kind, {})
    assert (texts.tolist(), names.tolist()) == ([*map(str, of_a_kind)], functions)


def test_keys_of_odd_shapes_are_written_as_python_writes_them():
    odd = [("x",), ("x", 1), ("x", True), ("x", 2.0), ("x", "1"), "a\nb-1", "é-1", (1, "x"), ()]
    for key in odd:
        for others in ([], [("x", 1)], ["y-1"], [("x", 1), "y-1", 7]):
            texts, _ = keys_columns([*others, key, key], {})
            assert texts.tolist() == [*map(str, others), str(key), str(key)]
