"""record: what the file holds is what the profilers measured, whatever happens to the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from operator import add
from pathlib import Path

import dask
import dask.local
import dask.multiprocessing
import dask.threaded
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_diag import (
    Profiler,
    ProgressBar,
    Recording,
    context_meter,
    load,
    record,
)
from dask_diag.capture import session
from dask_diag.capture.build import ChunkBuilder
from dask_diag.capture.keys import function_of_key
from dask_diag.capture.tasks_table import keys_columns
from dask_diag.errors import RecordingFileError
from dask_diag.model.table import Table
from dask_diag.model.tables import REFERENCES
from dask_diag.profilers import record as record_module

from .recordings import assert_values_are_distinct

pytestmark = pytest.mark.leaves_files

SCHEDULERS = {
    "synchronous": dask.local.get_sync,
    "threads": dask.threaded.get,
    "processes": dask.multiprocessing.get,
}


@pytest.fixture
def often(monkeypatch):
    """Write much more often than is needed, so that there are many parts."""
    monkeypatch.setattr(record_module, "_PERIOD", 0.005)
    monkeypatch.setattr(record_module, "_SHORTEST_PAUSE", 0.005)


def metered(value, *others):
    context_meter.digest_metric("apples", 2, "count")
    time.sleep(0.0005)
    return value


def graph(n=40):
    dsk = {("a-1", i): (metered, i) for i in range(n)}
    dsk |= {("b-1", i, 0): (metered, ("a-1", i), ("a-1", 0)) for i in range(n)}
    dsk["c"] = (metered, 1, [("b-1", i, 0) for i in range(n)])
    return dsk


def rows(table):
    return sorted(map(repr, table.to_dicts()))


def needs_by_key(recording):
    names = list(
        zip(recording.tasks["key"].tolist(), recording.tasks["computation"].tolist(), strict=True)
    )
    return sorted(
        (names[row["task"]], names[row["depends_on"]]) for row in recording.dependencies.to_dicts()
    )


def reported_by_key(recording, table):
    keys = recording.tasks["key"].tolist()
    reported = getattr(recording, table).to_dicts()
    return sorted((keys[row["task"]], repr(row | {"task": 0})) for row in reported)


def assert_same_tasks(loaded, recorded):
    """Workers are numbered as their tasks come, which may be in another order while they run."""
    one, other = (
        {(row["key"], row["computation"]): row for row in t.to_dicts()} for t in (loaded, recorded)
    )
    assert one.keys() == other.keys()
    pairs = {(row["worker"], other[key]["worker"]) for key, row in one.items()}
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
    for key, row in one.items():
        # As text, since NaN is not equal to itself.
        assert repr(row | {"worker": ""}) == repr(other[key] | {"worker": ""})


def assert_alike(loaded, recording):
    """Equal, but for the order of rows."""
    assert_values_are_distinct(recording)
    assert loaded.notices == recording.notices
    assert loaded.tasks.columns == recording.tasks.columns
    for field in fields(Recording):
        table = getattr(loaded, field.name)
        if not isinstance(table, Table):
            continue
        if field.name == "tasks":
            assert_same_tasks(table, recording.tasks)
        elif field.name not in REFERENCES:
            assert rows(table) == rows(getattr(recording, field.name)), field.name
        elif field.name != "dependencies":
            assert reported_by_key(loaded, field.name) == reported_by_key(recording, field.name)
    assert needs_by_key(loaded) == needs_by_key(recording)
    assert (loaded.metric, loaded.epoch) == (recording.metric, recording.epoch)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_file_has_what_was_measured(scheduler, often, monkeypatch):
    monkeypatch.setattr(session, "WORTH_LISTING_POOLS", 0)
    with record("run.diag", resource_interval=0.01, waits=sys.platform == "linux") as run:
        for _ in range(2):
            SCHEDULERS[scheduler](graph(), "c")
    recording, loaded = run.recording, load("run.diag")
    assert len(recording.tasks) == 162
    assert len(recording.dependencies) == 2 * (40 + 39 + 40)
    # Garbage of the process may be collected in a task.
    assert np.count_nonzero(~recording.metrics["activity"].eq("gc")) == 162
    assert len(recording.transfers) == (162 * 4 if scheduler == "processes" else 0)
    # Of each computation one at least: tasks that did not wait have none.
    assert sys.platform != "linux" or len(recording.waits) >= 2
    assert [reported for reported in recording.notices if "was late" not in reported] == []
    assert recording.pools.columns
    assert_alike(loaded, recording)


def test_spans_and_failures_are_there(often):
    @dask.delayed
    def fail(value):
        time.sleep(0.05)
        raise ZeroDivisionError

    with dask.annotate(span="slow"):
        failing = fail(1)
    with record("run.diag") as run, pytest.raises(ZeroDivisionError):
        failing.compute(scheduler="threads")
    loaded = load("run.diag")
    assert_alike(loaded, run.recording)
    assert loaded.tasks["outcome"].tolist() == ["failed"]
    assert loaded.computations["error"].tolist() == ["ZeroDivisionError"]
    assert loaded.tasks["span"].tolist() == ["slow"]


def test_a_full_disk_is_reported_and_never_raised(often, monkeypatch):
    real = os.write

    def write(file, data):
        if threading.current_thread().name == "dask_diag-record":
            raise OSError(28, "No space left on device")
        return real(file, data)

    monkeypatch.setattr(os, "write", write)
    with record("run.diag") as run:
        assert dask.threaded.get(graph(), "c") == 1
        time.sleep(0.05)
    assert "No space left" in run.recording.notices[-1]
    # When the block ended there was space again.
    assert_alike(load("run.diag"), run.recording)


@pytest.mark.parametrize("with_folder", [False, True])
def test_a_file_that_was_removed_is_written_again_or_reported(with_folder, tmp_path):
    path = tmp_path / "folder" / "run.diag"
    path.parent.mkdir()
    with record(path) as run:
        assert dask.threaded.get(graph(), "c") == 1
        path.unlink()
        if with_folder:
            path.parent.rmdir()
    assert "it was removed meanwhile" in run.recording.notices[-1 - with_folder]
    if with_folder:
        assert "No such file or directory" in run.recording.notices[-1]
    else:
        assert_alike(load(path), run.recording)


def test_what_fails_is_saved_where_the_block_was_entered(often, monkeypatch, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    other = tmp_path / "elsewhere" / "run.diag"
    other.write_text("the user's")
    monkeypatch.setattr(ChunkBuilder, "take", own_fault)
    monkeypatch.chdir(tmp_path)
    with record("run.diag") as run:
        os.chdir("elsewhere")
        assert dask.threaded.get(graph(), "c") == 1
        time.sleep(0.02)
    assert "own" in run.recording.notices[-1]
    assert_alike(load(tmp_path / "run.diag"), run.recording)
    assert other.read_text() == "the user's"


def test_a_fault_that_is_none_of_writing_leaves_the_file_growing(often, monkeypatch):
    monkeypatch.setattr(record, "_note_environment", own_fault)
    with record("run.diag") as run:
        assert dask.threaded.get(graph(), "c") == 1
        deadline = time.monotonic() + 30
        while len(load("run.diag").tasks) < 81:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert "record: some measurements are missing: own" in load("run.diag").notices
    assert_alike(load("run.diag"), run.recording)


any_key = st.one_of(
    st.tuples(st.text(), st.integers(), st.integers()),
    st.tuples(st.sampled_from(["x", "x-1", "(", "a, b", "'", "é"]), st.integers()),
    st.tuples(st.text(max_size=2)),
    st.tuples(st.text(max_size=2), st.one_of(st.booleans(), st.floats(), st.tuples(st.integers()))),
    st.tuples(st.text(max_size=2), st.integers().map(lambda n: np.int64(n % 9))),
    st.text(),
    st.text(alphabet="ab0-_('\n é", max_size=12),
    st.from_regex(r"[a-f]{1,3}(-[a-f0-9]{1,9}){0,4}", fullmatch=True),
    st.integers(),
    st.just(()),
    st.binary(max_size=2),
)


@settings(max_examples=60)
@given(
    st.one_of(st.lists(any_key, max_size=5), any_key.flatmap(lambda k: st.just([k] * 3))),
    st.data(),
)
def test_keys_are_written_as_str_writes_them_and_functions_are_prefixes_or_reported(keys, data):
    rows = data.draw(st.lists(st.sampled_from(range(len(keys))), unique=True)) if keys else []
    named = {row: data.draw(st.sampled_from(["f", "g", "x"])) for row in rows}
    texts, functions = keys_columns(keys, named)
    assert texts.tolist() == list(map(str, keys))
    expected = [named.get(row) or function_of_key(key) for row, key in enumerate(keys)]
    assert functions.tolist() == expected
    assert set(functions.values) == set(expected)


INTERRUPTED = """
import os, signal, sys, threading, dask_diag

class Interrupted(dask_diag.record):
    def _start_thread(self):
        if where == "entered":
            os.kill(os.getpid(), signal.SIGINT)
        super()._start_thread()

    def _end(self):
        if where == "left":
            os.kill(os.getpid(), signal.SIGINT)
        super()._end()
        print("closed")

for where, raises in (("entered", False), ("left", False), ("left", True)):
    try:
        with Interrupted("run.diag", overwrite=True):
            print("in the block")
            if raises:
                raise KeyboardInterrupt
    except KeyboardInterrupt as error:
        print("raised", error.__context__)
    assert [thread.name for thread in threading.enumerate()] == ["MainThread"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert where == "entered" or dask_diag.load("run.diag").is_complete
signal.signal(signal.SIGINT, lambda *reported: print("heard", type(reported[0])))
with Interrupted("run.diag", overwrite=True):
    pass
"""


def test_ctrl_c_is_delivered_when_the_block_is_left_or_its_file_closed(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    left = ["in the block", "closed", "raised None"]
    assert done.stdout.splitlines()[-8:] == [*left, *left, "closed", "heard <class 'int'>"]
    assert done.stdout.splitlines()[0] == "raised None"


KILLED = """
import sys, time, dask.threaded, dask.multiprocessing, dask.local
from dask_diag import record

def slow(*args):
    time.sleep(0.02)
    return 1

def very_slow(*args):
    print("running", flush=True)
    time.sleep(100)

if __name__ == "__main__":
    get = {"synchronous": dask.local.get_sync, "threads": dask.threaded.get,
           "processes": dask.multiprocessing.get}[sys.argv[2]]
    dsk = {("slow-1", n): (slow,) for n in range(50)}
    dsk["wait-1"] = (very_slow, [("slow-1", n) for n in range(50)])
    with record(sys.argv[1]):
        get(dsk, "wait-1")
"""


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_killed_process_leaves_all_but_the_last_second(scheduler, tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(textwrap.dedent(KILLED))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    child = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "run.diag"), scheduler],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    assert child.stdout.readline() == b"running\n"
    time.sleep(1.2)
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
    loaded = load(tmp_path / "run.diag")
    assert loaded.state == "truncated"
    outcome = dict(zip(loaded.tasks["key"].tolist(), loaded.tasks["outcome"].tolist(), strict=True))
    assert outcome == {f"('slow-1', {n})": "ok" for n in range(50)} | {"wait-1": "unfinished"}
    assert len(loaded.dependencies) == 50
    held = loaded.cached_results["key"].tolist()
    assert sorted(held) == sorted(f"('slow-1', {n})" for n in range(50))
    assert len(loaded.computations) == 1
    assert loaded.stop - np.nanmax(loaded.tasks["start"]) > 0.1


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_leaves_the_file_to_its_parent():
    with record("run.diag") as run:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                run.__exit__(None, None, None)
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        dask.local.get_sync(graph(2), "c")
    assert_alike(load("run.diag"), run.recording)


def test_dask_calls_one_callback_for_all_profilers(tmp_path):
    with record(tmp_path / "run.diag"), Profiler(), ProgressBar(minimum=9):
        with dask.local.local_callbacks() as callbacks:
            assert len(callbacks) == 1
        dask.get({"a": (abs, -1)}, "a")
    assert len(load(tmp_path / "run.diag").tasks) == 1


def test_computes_that_overlap_or_are_short_are_all_there(often):
    with record("run.diag") as run:
        with ThreadPoolExecutor(4) as callers:
            for _ in range(4):
                callers.submit(dask.local.get_sync, graph(20), "c")
        for n in range(60):
            dask.local.get_sync({"x": (add, n, 1), "y": (add, "x", 1)}, "y")
    assert len(run.recording.computations) == 64
    assert_alike(load("run.diag"), run.recording)


def test_a_block_may_be_entered_again_and_fail():
    Path("own").write_text("own")
    with pytest.raises(RecordingFileError, match="overwrite=True"), record("own"):
        raise AssertionError
    assert Path("own").read_text() == "own"
    run = record("run.diag", overwrite=True)
    for n in (2, 3):
        with pytest.raises(KeyboardInterrupt), run:
            dask.local.get_sync(graph(n), "c")
            raise KeyboardInterrupt
        loaded = load("run.diag")
        assert_alike(loaded, run.recording)
        assert (len(loaded.tasks), loaded.state) == (2 * n + 1, "complete")


def test_a_recording_stops_with_its_block():
    with record("run.diag") as run:
        dask.local.get_sync(graph(2), "c")
        before = run.recording.stop
    stop = run.recording.stop
    assert before < stop < time.perf_counter()
    # Looked at later, it is the same, and so are its times in the file.
    assert run.recording.stop == load("run.diag").stop == stop


def test_a_disk_that_stays_full_leaves_what_was_written_and_what_the_block_raises(
    often, monkeypatch
):
    full, real = threading.Event(), os.write

    def write(file, data):
        if full.is_set():
            raise OSError(28, "No space left on device")
        return real(file, data)

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(ZeroDivisionError) as raised, record("run.diag") as run:
        dask.threaded.get(graph(), "c")
        deadline = time.monotonic() + 30
        while len(load("run.diag").tasks) < 81:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        full.set()
        dask.threaded.get(graph(), "c")
        1 / 0
    full.clear()
    assert raised.value.__context__ is None
    assert "No space left" in run.recording.notices[-1]
    loaded = load("run.diag")
    assert 81 <= len(loaded.tasks) <= 162
    assert loaded.state == "truncated"
    assert os.listdir() == ["run.diag"]


def own_fault(*_):
    raise RuntimeError("own")
