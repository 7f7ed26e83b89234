"""Blocks that begin and end while others go on, on one cluster."""

from __future__ import annotations

import time
from io import StringIO
from threading import Event

import pytest

pytest.importorskip("distributed")

from dask_diag import Profiler, ProgressBar, ResourceProfiler

from .clusters import assert_adds_up, cluster, rows

STARTED, GO_ON = Event(), Event()


@pytest.fixture(autouse=True)
def events():
    STARTED.clear()
    GO_ON.clear()
    yield
    GO_ON.set()


def waits(n):
    STARTED.set()
    GO_ON.wait(30)
    return n


def nowhere():
    return ProgressBar(out=StringIO())


@pytest.mark.parametrize("inner", [Profiler, nowhere, ResourceProfiler])
def test_a_block_that_ends_inside_another_adds_nothing_to_it(inner):
    with cluster(workers=1) as client, Profiler() as outer:
        future = client.submit(waits, 1)
        assert STARTED.wait(10)
        with inner() as ended:
            time.sleep(0.05)
        GO_ON.set()
        future.result()
    (row,) = rows(outer.recording, "waits")
    assert row["outcome"] == "ok"
    assert outer.recording.notices == ()
    assert_adds_up(outer.recording)
    if inner is Profiler:
        (row,) = rows(ended.recording, "waits")
        assert row["outcome"] == "unfinished"
        assert row["start"] < ended.recording.stop


def test_a_cancelled_run_is_a_row_of_each_block_that_ends():
    with cluster(workers=1) as client, Profiler() as outer:
        future = client.submit(waits, 2)
        assert STARTED.wait(10)
        with Profiler() as inner:
            future.cancel()
            time.sleep(0.1)
        GO_ON.set()
        client.submit(time.sleep, 0).result()
    for prof in (inner, outer):
        (row,) = rows(prof.recording, "waits")
        assert row["outcome"] == "cancelled"
    # The inner one ended before the worker said how long it took.
    assert row["thread_cpu"] >= 0
    assert not rows(inner.recording, "waits")[0]["thread_cpu"] >= 0
