"""The bar: on a terminal, in a file, in a notebook, and on a stream that breaks."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor
from operator import add

import dask.local
import dask.threaded
import pytest

from dask_diag import Profiler, ProgressBar


class Terminal(io.StringIO):
    def isatty(self):
        return True


def spin(cpu_seconds):
    started = time.thread_time()
    while time.thread_time() - started < cpu_seconds:
        pass


def steps(count, work=time.sleep, seconds=0.02):
    dsk = {("step", n): (work, seconds) for n in range(count)}
    return dsk, list(dsk)


def test_a_terminal_gets_one_line_drawn_over():
    out = Terminal()
    with ProgressBar(dt=0.01, out=out, width=10):
        dask.local.get_sync(*steps(10))
    text = out.getvalue()
    assert text.count("\n") == 1
    assert text.endswith("\n")
    lines = text.strip().split("\r")
    assert len(lines) > 4
    assert lines[-1].startswith("[##########] | 100% Completed | ")
    shares = [line.count("#") for line in lines if line]
    assert shares == sorted(shares)


@pytest.mark.skipif(sys.platform == "win32", reason="no terminal that moves its cursor")
@pytest.mark.parametrize("error", [None, ZeroDivisionError, KeyboardInterrupt])
def test_by_function_a_line_each_is_drawn_below_what_tasks_print(error, monkeypatch):
    from .screen import Screen

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLUMNS", raising=False)
    out = Terminal()

    def load(n):
        time.sleep(0.02)
        print("loaded", n, file=out)
        return n

    checked = []

    def check(n):
        if error and len(checked) == 3:
            raise error
        checked.append(n)

    keys = [("check", n) for n in range(6)]
    # These keys do not name the function: its name is that of the task, which may be in flight.
    dsk = {f"load{n}": (load, n) for n in range(6)}
    dsk |= {key: (check, f"load{key[1]}") for key in keys}
    raises = contextlib.nullcontext() if error is None else pytest.raises(error)
    with ProgressBar(dt=0.01, out=out, width=10, by="function") as pbar, raises:
        dask.local.get_sync(dsk, keys)
    screen = Screen(rows=8)
    screen.feed(out.getvalue().replace("\n", "\r\n"))
    *printed, bar, first, second = screen.lines
    assert len(printed) == int(re.search(r"(\d)/6 load", first + second)[1])
    assert len({re.match(r"loaded \d", line)[0] for line in printed}) == len(printed)
    assert bar.endswith("failed") == (error is not None)
    assert screen.row == len(screen.lines) - len(screen.gone)
    done = 6 if error is None else 3
    assert f"{done}/6 check" in first + second
    # It was drawn meanwhile, too.
    assert re.search(r"\] 1/6 load", out.getvalue())
    assert pbar.recording.notices == ()
    plain = io.StringIO()
    with ProgressBar(out=plain, by="function"):
        dask.local.get_sync(*steps(2))
    assert plain.getvalue().count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
@pytest.mark.parametrize("columns", [50, 20])
def test_a_line_that_is_drawn_over_is_no_longer_than_the_terminal(monkeypatch, columns):
    import fcntl
    import pty
    import struct
    import termios

    monkeypatch.delenv("COLUMNS", raising=False)
    reader, writer = pty.openpty()
    with os.fdopen(reader, "rb", 0) as screen, os.fdopen(writer, "w") as out:
        fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        with ProgressBar(dt=0.01, out=out, width=40):
            dask.local.get_sync(*steps(10))
        # All was written by now; a read may bring a part of it.
        os.set_blocking(reader, False)
        text = b"".join(iter(lambda: screen.read(65_536), None)).decode()
    lines = text.strip().split("\r")
    assert len(lines) > 4
    *drawn_over, last = lines
    assert max(map(len, drawn_over)) < columns
    assert "100% Completed" in last
    assert last.endswith("cpu)")


def test_anything_else_gets_whole_lines_and_not_many():
    out = io.StringIO()
    with ProgressBar(dt=0.01, out=out, label="load\n\rthe data"):
        dask.local.get_sync(*steps(60, seconds=0.025))
    lines = out.getvalue().splitlines()
    assert "\r" not in out.getvalue()
    assert 2 <= len(lines) <= 11
    assert lines[0].startswith("load the data [#")
    percents = [int(re.search(r"(\d+)%", line)[1]) for line in lines]
    assert percents == sorted(set(percents))
    assert percents[-1] == 100
    # Of short computes one line each, that says which.
    out = io.StringIO()
    pbar = ProgressBar(dt=0.01, out=out)
    pbar.register()
    try:
        for _ in range(2):
            dask.local.get_sync(*steps(20, seconds=0.005))
    finally:
        pbar.unregister()
    first, second = out.getvalue().splitlines()
    assert first.endswith("computation 1")
    assert second.endswith("computation 2")


def test_the_stream_is_looked_up_when_drawing_and_may_be_missing(monkeypatch):
    pbar, later = ProgressBar(), io.StringIO()
    monkeypatch.setattr("sys.stdout", later)
    with pbar:
        dask.local.get_sync(*steps(1))
    assert "100% Completed" in later.getvalue()
    monkeypatch.setattr("sys.stdout", None)
    with pbar:
        dask.local.get_sync(*steps(1))
    # Nothing is shown of a compute below the minimum.
    out = io.StringIO()
    with ProgressBar(minimum=10, out=out) as pbar:
        dask.local.get_sync(*steps(1))
    assert out.getvalue() == ""
    assert pbar.last_duration > 0.02


@pytest.mark.parametrize("work", [spin, time.sleep])
def test_the_last_field_shows_the_cpu_share(work, retried):
    """The tasks read the clocks, too: beside busy processes even one that spins has little."""
    spent = []

    def clocked(seconds):
        wall, cpu = time.perf_counter(), time.thread_time()
        work(seconds)
        spent.append((time.perf_counter() - wall, time.thread_time() - cpu))

    def measure():
        spent.clear()
        out = io.StringIO()
        with ProgressBar(out=out):
            dask.local.get_sync(*steps(5, clocked, 0.05))
        last_field = out.getvalue().strip().split("|")[-1]
        share = int(last_field.split("(")[1].split("% cpu)")[0])
        wall, cpu = map(sum, zip(*spent, strict=True))
        assert share == pytest.approx(100 * cpu / wall, abs=3)

    retried(measure)
    assert sum(cpu for _, cpu in spent) > 0.25 or work is not spin


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_overlapping_computes_each_get_their_last_line(stream):
    out, barrier = stream(), threading.Barrier(2)

    def run(_):
        barrier.wait(10)
        dask.threaded.get(*steps(4), num_workers=1)

    with ProgressBar(dt=0.01, out=out), ThreadPoolExecutor(2) as callers:
        list(callers.map(run, range(2)))
    assert out.getvalue().count("100% Completed") == 2
    assert out.getvalue().count("computation 2") >= 1


class Broken(io.StringIO):
    def write(self, text):
        raise OSError("no space left on device")


def closed():
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize(
    "wrong",
    [
        *({"dt": "x"}, {"dt": -1}, {"minimum": "x"}, {"minimum": -1}, {"width": 0}, {"out": 3}),
        {"by": "line"},
    ],
)
def test_wrong_arguments_are_reported(wrong):
    with pytest.raises((TypeError, ValueError), match=f"{next(iter(wrong))}: expected"):
        ProgressBar(**wrong)


@pytest.mark.parametrize("stream", [Broken, closed])
def test_a_broken_stream_never_reaches_the_compute(stream):
    dsk = {("a", 0): (add, 1, 2), ("b", 0): (lambda a: time.sleep(0.05) or a, ("a", 0))}
    with ProgressBar(dt=0.001, out=stream()) as pbar:
        assert dask.local.get_sync(dsk, ("b", 0)) == 3
    assert any("to write the bar" in notice for notice in pbar.recording.notices)


@pytest.mark.parametrize("by", [None, "function"])
def test_in_a_notebook_one_output_is_replaced(by, monkeypatch):
    outputs = []

    def show(data, raw, display_id=None):
        assert raw
        if display_id:
            outputs.append(None)
        outputs[-1] = data["text/plain"]
        assert ("step</" in data.get("text/html", "").replace(": ", "</")) == (by is not None)
        return types.SimpleNamespace(update=show)

    module = types.SimpleNamespace(display=show)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(display=module))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    out = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    with ProgressBar(dt=0.01, out=out, by=by) as pbar:
        for _ in range(2):
            dask.local.get_sync(*steps(5))
    assert [output.count("100% Completed") for output in outputs] == [1, 1]
    assert [output.count("5/5 step") for output in outputs] == [by is not None] * 2
    assert out.getvalue() == ""
    assert pbar.recording.notices == ()


def test_a_failing_compute_stops_where_it_was():
    out = io.StringIO()
    dsk = {("a", 0): (add, 1, 2), ("b", 0): (lambda x: 1 / 0, ("a", 0))}
    with Profiler(), ProgressBar(out=out), Profiler(), pytest.raises(ZeroDivisionError):
        dask.local.get_sync(dsk, ("b", 0))
    assert "50% Completed" in out.getvalue()
    assert out.getvalue().endswith(" failed\n")
