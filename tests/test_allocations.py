"""Who allocated at the peak, against allocations of known size."""

from __future__ import annotations

import linecache
import re
import sys
import threading
import time
import tracemalloc
from functools import partial
from pathlib import Path

import dask.threaded
import numpy as np
import pytest

import dask_diag
from dask_diag import (
    DiagnosticError,
    MemorySampler,
    Recording,
    load,
    peak_allocations,
    record,
    report,
    save,
)
from dask_diag.analysis.memory import series_of
from dask_diag.system import allocations
from dask_diag.system.allocations import ANY_LINE_OF_DASK, ANY_OWN_LINE, AllocatedLine, LineSums

from .commands import run

pytestmark = [pytest.mark.once, pytest.mark.leaves_files]

MB = 1_000_000
THIS_FILE = __file__


def fifty():
    return np.ones(50 * MB // 8)


def twenty():
    return bytearray(b".") * (20 * MB)


def small(count):
    return [object() for _ in range(count)]


def work():
    """Both are in use at once, and are released before it stops."""
    retained = fifty(), twenty()
    time.sleep(0.15)
    del retained
    time.sleep(0.05)


def sampled(function=work, **settings):
    sampler = MemorySampler(trace=True, **settings)
    with sampler.sample("block"):
        function()
    return sampler


def by_function(recording):
    return {row["function"]: row for row in peak_allocations(recording).to_dicts()}


@pytest.fixture(scope="module")
def sampler():
    return sampled()


def test_functions_and_lines_have_the_bytes_that_they_keep_at_the_peak(sampler, tmp_path):
    rows = by_function(sampler.recording)
    assert list(rows)[:2] == ["fifty", "twenty"]
    assert rows["fifty"]["bytes"] == pytest.approx(50 * MB, rel=0.01)
    assert rows["twenty"]["bytes"] == pytest.approx(20 * MB, rel=0.01)
    assert rows["fifty"]["near"] > 0.95
    assert sum(row["bytes"] for row in rows.values()) == pytest.approx(70 * MB, rel=0.02)
    first, second = peak_allocations(sampler.recording, by="line").to_dicts()[:2]
    assert second["code"] == 'return bytearray(b".") * (20 * MB)'
    assert (
        first["code"]
        == linecache.getline(THIS_FILE, first["line"]).strip()
        == "return np.ones(50 * MB // 8)"
    )
    assert 1 <= second["blocks"] <= 4
    # Those of numpy and dask are left out.
    table = sampler.recording.allocations
    assert set(table.filter(table.bytes > MB).file.tolist()) == {THIS_FILE}
    with pytest.raises(DiagnosticError, match="by: expected 'function' or 'line'"):
        peak_allocations(sampler.recording, by="file")
    # The summary, the plot and the report.
    text = " ".join(sampler.summary().split())
    assert "Allocated at peak in block 50.0 MB fifty" in text
    assert re.search(r"at least (9[5-9]|100)% of the peak of what is traced", text)
    page = report(sampler.recording, tmp_path / "page.html").read_text()
    for expected in ("Allocated at peak in block", first["code"], "tracemalloc was on"):
        assert expected in page
    figure = sampler.plot()
    (diamond,) = [r for r in figure.renderers if getattr(r.glyph, "marker", "") == "diamond"]
    assert "50.0 MB fifty, 20.0 MB twenty" in diamond.name
    ((_, times, sizes),) = series_of(sampler.recording)
    (at,), (y,) = (diamond.data_source.data[name] for name in ("time", "memory"))
    # On the line of the series.
    assert y == pytest.approx(np.interp(at, times - sampler.recording.start, sizes / 1e6))


def in_two_tasks(retained):
    def run(make):
        block = make()
        barrier.wait()
        time.sleep(0.15)
        return len(block)

    barrier = threading.Barrier(2)
    dask.threaded.get({"a": (run, fifty), "b": (run, twenty)}, ["a", "b"], num_workers=2)


def at_the_end(retained):
    retained.append(twenty())
    time.sleep(0.2)
    retained.append(fifty())


def soon_after_a_snapshot(retained):
    retained.append(twenty())
    time.sleep(0.2)
    more = fifty()
    time.sleep(0.2)
    del more


def after_another_was_released(retained):
    block = twenty()
    time.sleep(0.1)
    del block
    retained.append(fifty())
    time.sleep(0.15)


def beside_many_blocks(retained):
    """The process retains the memory of their traces, too."""
    blocks = fifty(), small(500_000)
    time.sleep(1.0)
    del blocks
    time.sleep(0.1)


@pytest.mark.parametrize(
    ("function", "functions", "is_slow"),
    [
        (in_two_tasks, {"fifty", "twenty"}, False),
        # What is read first takes so long that the next snapshot has to wait.
        (at_the_end, {"fifty", "twenty"}, True),
        (soon_after_a_snapshot, {"fifty", "twenty"}, True),
        (after_another_was_released, {"fifty"}, False),
        (beside_many_blocks, {"fifty", "small"}, False),
    ],
)
def test_what_is_in_use_at_the_peak_is_seen(function, functions, is_slow, monkeypatch):
    retained = []
    if is_slow:
        monkeypatch.setattr(allocations, "_SHARE_OF_TIME", 1e-9)
    rows = by_function(sampled(partial(function, retained)).recording)
    assert rows.keys() & {"fifty", "twenty", "small"} == functions
    assert rows["fifty"]["bytes"] == pytest.approx(50 * MB, rel=0.01)
    assert rows["fifty"]["near"] > 0.95 or "small" in functions
    if "twenty" in functions:
        assert rows["twenty"]["bytes"] == pytest.approx(20 * MB, rel=0.02)


def test_many_small_blocks_are_estimated(monkeypatch):
    monkeypatch.setattr(allocations, "_MOST_SMALL", 20_000)
    retained = []

    def run():
        retained.append(small(300_000))
        time.sleep(0.3)

    row = by_function(sampled(run).recording)["small"]
    assert row["blocks"] == pytest.approx(300_000, rel=0.05)
    assert row["bytes"] == pytest.approx(300_000 * (sys.getsizeof(object()) + 8), rel=0.2)


def test_a_peak_that_no_snapshot_saw_is_known(monkeypatch):
    """Then none is said to be near it."""
    monkeypatch.setattr(allocations, "_LONGEST_INTERVAL", 30.0)
    retained, sampler = [], MemorySampler(trace=True)
    with sampler.sample("block", interval=30.0):
        retained.append(twenty())
        fifty()
    rows = by_function(sampler.recording)
    assert "fifty" not in rows
    assert rows["twenty"]["bytes"] == pytest.approx(20 * MB, rel=0.01)
    assert rows["twenty"]["near"] == pytest.approx(20 / 70, rel=0.05)
    text = " ".join(sampler.summary().split())
    assert re.search(r"Allocated at (2[789]|30)% of peak in block 20.0 MB twenty", text)


def test_tracing_stops_if_the_recording_started_it():
    assert not tracemalloc.is_tracing()
    outer, inner = MemorySampler(trace=True), MemorySampler(trace=True)
    with outer.sample():
        with inner.sample():
            assert tracemalloc.is_tracing()
        assert tracemalloc.is_tracing()
    assert not tracemalloc.is_tracing()
    with pytest.raises(ZeroDivisionError), outer.sample():
        1 / 0
    assert not tracemalloc.is_tracing()


def test_tracing_of_others_goes_on_and_may_be_stopped():
    tracemalloc.start(7)
    try:
        sampled()
        assert tracemalloc.get_traceback_limit() == 7
    finally:
        tracemalloc.stop()
    assert sampled(lambda: (tracemalloc.stop(), work())).recording.notices == ()
    sampler = MemorySampler()
    with sampler.sample("block"):
        assert not tracemalloc.is_tracing()
    assert len(sampler.recording.allocations) == 0
    assert "tracemalloc" not in sampler.summary()


def test_secrets_are_masked_in_lines(tmp_path, monkeypatch):
    script = tmp_path / "secretive.py"
    script.write_text(
        "def keep():\n"
        "    return login(password='hunter2horse', data=bytearray(b'.') * 30_000_000)\n"
        "def login(password, data):\n"
        "    return data\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import secretive

    def run():
        retained = secretive.keep()
        time.sleep(0.15)
        return retained

    recording = sampled(run).recording
    codes = recording.allocations.code.tolist()
    assert any("30_000_000" in code for code in codes)
    assert not any("hunter2horse" in code for code in codes)
    # Code may be left out.
    without = sampled(run, code=False).recording.allocations
    assert set(without.code.tolist()) == {""}
    assert "keep" in without.function.tolist()


def test_saved_loaded_and_combined(sampler, tmp_path):
    recording = sampler.recording
    save(recording, tmp_path / "run.diag")
    loaded = load(tmp_path / "run.diag")
    assert loaded.allocations.to_dicts() == recording.allocations.to_dicts()
    again = Recording.combine([recording, loaded])
    assert again.allocations.to_dicts() == recording.allocations.to_dicts()
    other = sampled().recording
    both = Recording.combine([recording, other]).allocations
    assert list(both.label.values) == ["block", "block (2)"]
    assert len(both) == len(recording.allocations) + len(other.allocations)


def test_record_has_it_too(tmp_path):
    with record(tmp_path / "run.diag", trace_memory=True) as run:
        work()
    rows = by_function(run.recording)
    assert rows["fifty"]["bytes"] == pytest.approx(50 * MB, rel=0.01)
    assert by_function(load(tmp_path / "run.diag")).keys() == rows.keys()
    assert not tracemalloc.is_tracing()


def test_a_program_that_is_killed_leaves_it(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, time\n"
        "def keep():\n"
        "    return bytearray(b'.') * 40_000_000\n"
        "retained = keep()\n"
        "time.sleep(2.5)\n"
        "os._exit(9)\n"
    )
    path = tmp_path / "run.diag"
    run("run", "--trace-memory", "-o", path, program, cwd=tmp_path)
    recording = load(path)
    assert recording.state == "truncated"
    assert by_function(recording)["keep"]["bytes"] == pytest.approx(40 * MB, rel=0.01)


PACKAGE = str(Path(dask_diag.__file__).parent / "capture" / "x.py")
DASK = str(Path(dask.__file__).parent / "local.py")
NUMPY = "/venv/lib/python3.11/site-packages/numpy/_core/numeric.py"
STANDARD = str(Path(linecache.__file__))


@pytest.mark.parametrize(
    ("traceback", "line"),
    [
        ([("user.py", 3)], AllocatedLine("user.py", 3)),
        ([(NUMPY, 1), ("user.py", 3), ("user.py", 9)], AllocatedLine("user.py", 3)),
        ([(STANDARD, 1), (NUMPY, 2), (DASK, 7)], AllocatedLine(NUMPY, 2)),
        ([(DASK, 7), (DASK, 8), ("user.py", 3)], AllocatedLine("user.py", 3)),
        ([(DASK, 7), (PACKAGE, 8)], ANY_LINE_OF_DASK),
        ([(PACKAGE, 8), ("user.py", 3)], ANY_OWN_LINE),
        ([(STANDARD, 8)], AllocatedLine(STANDARD, 8)),
    ],
)
def test_the_line_is_the_innermost_of_the_users_code(traceback, line):
    assert LineSums().line_of(tuple(traceback)) == line
