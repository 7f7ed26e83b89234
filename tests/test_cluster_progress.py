"""ProgressBar on a client of distributed: what is drawn of computations whose course is known."""

from __future__ import annotations

import asyncio
import io
import threading
import time

import pytest

pytest.importorskip("distributed")

import dask

from dask_diag import Profiler, ProgressBar

from .clusters import asynchronous_client, cluster, spin, until
from .clusters import client as client
from .clusters import two_workers as two_workers

GO_ON = threading.Event()
STARTED = threading.Event()


@pytest.fixture(autouse=True)
def events():
    GO_ON.clear()
    yield
    GO_ON.set()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def wait_for(n):
    GO_ON.wait(60)
    return n


def start(n):
    STARTED.set()
    return wait_for(n)


def wait_until_started(n):
    STARTED.wait(60)
    return n


def increment(n):
    return n + 1


def divide_later(n):
    GO_ON.wait(60)
    return 1 / n


def last_line(out):
    return out.getvalue().strip().split("\n")[-1].split("\r")[-1].strip()


def completed(out):
    """The last line of each computation: in between are some of those that take a second."""
    return [line for line in out.getvalue().splitlines() if " Completed | " in line]


def drawn(out, text):
    """Wait until something is drawn."""
    until(lambda: text in out.getvalue(), 60)


def test_a_collections_bar_goes_on_while_tasks_are_done_and_ends_at_all_of_them(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    out, by_function = Terminal(), Terminal()
    threads = set(threading.enumerate())
    with (
        cluster(workers=1, threads=6) as client,
        ProgressBar(out=out, width=10),
        ProgressBar(out=by_function, width=10, by="function"),
    ):
        done = [dask.delayed(increment)(n) for n in range(5)]
        open_ = [dask.delayed(wait_for)(n) for n in range(5)]
        futures = client.compute(done + open_)
        # Half of the ten.
        drawn(out, "[#####     ] 50% | 5/10 | ")
        drawn(by_function, "[##########] 5/5 increment")
        drawn(by_function, "[          ] 0/5 wait_for")
        assert "100%" not in out.getvalue()
        assert not [t for t in set(threading.enumerate()) - threads if "dask_diag" in t.name]
        GO_ON.set()
        client.gather(futures)
        drawn(out, "\n")
    assert out.getvalue().count("\n") == 1
    assert last_line(out).startswith("[##########] | 100% Completed | ")
    drawn(by_function, "% Completed")
    *_, first, second = by_function.getvalue().splitlines()
    assert {first, second} == {f"[##########] 5/5 {name}" for name in ("increment", "wait_for")}


def test_a_burst_of_submits_has_one_bar_and_the_next_another(client):
    out = io.StringIO()
    with ProgressBar(out=out):
        first = client.map(wait_for, range(4))
        second = client.submit(sum, first)
        # What is submitted when all else is done would be a burst of its own.
        until(lambda: second.key in client.cluster.scheduler.tasks)
        GO_ON.set()
        assert second.result() == 6
        drawn(out, "\n")
        assert client.submit(increment, 1).result() == 2
    lines = completed(out)
    assert len(lines) == 2
    assert all("100% Completed" in line for line in lines)
    assert lines[1].endswith("computation 2")


def test_a_failure_is_said_with_how_far_it_was(client):
    out = io.StringIO()
    with ProgressBar(out=out, width=10):
        good = client.map(increment, range(3))
        client.gather(good)
        bad = [dask.delayed(increment)(n) for n in (-10, -11, -1)]
        failing = dask.delayed(divide_later)(bad[2])
        total = client.compute(dask.delayed(sum)([failing, *bad[:2]]))
        tasks = client.cluster.scheduler.tasks
        until(
            lambda: all(
                future.key in tasks and tasks[future.key].state == "memory" for future in bad
            )
        )
        GO_ON.set()
        with pytest.raises(ZeroDivisionError):
            total.result()
    first, second = completed(out)
    assert "100% Completed" in first
    # Three of five: one has failed, and one depends on it.
    assert "| 60% Completed" in second
    assert second.endswith("failed")


@pytest.mark.parametrize("end", ["cancelled", "not finished"])
def test_what_does_not_come_to_an_end_is_said(end, client):
    out = io.StringIO()
    with ProgressBar(out=out, width=10):
        # It ends when another has started: else it could be a computation of its own.
        STARTED.clear()
        done = client.submit(wait_until_started, 1)
        futures = client.map(start, range(3))
        assert done.result() == 1
        if end == "cancelled":
            client.cancel(futures)
            drawn(out, "\n")
    GO_ON.set()
    assert last_line(out).startswith("[##        ] | 25% Completed"), out.getvalue()
    assert end in last_line(out)


def test_a_task_that_is_tried_again_counts_once_and_short_computations_are_left_out(client):
    out, short = io.StringIO(), io.StringIO()
    tries = []

    def fails_twice(n):
        tries.append(n)
        if len(tries) < 3:
            raise RuntimeError
        return n

    with ProgressBar(out=out), ProgressBar(minimum=60, out=short):
        assert client.submit(fails_twice, 1, retries=2).result() == 1
    assert short.getvalue() == ""
    assert "100% Completed" in out.getvalue()
    assert "failed" not in out.getvalue()


def test_the_cpu_share_is_that_of_the_tasks(client):
    out = io.StringIO()
    with Profiler() as prof, ProgressBar(out=out) as bar:
        # One graph: what is submitted later may be a computation of its own.
        client.gather(client.compute([dask.delayed(spin)(0.1), dask.delayed(time.sleep)(0.1)]))
    tasks, (computation,) = prof.recording.tasks, prof.recording.computations.to_dicts()
    share = 100 * tasks.thread_cpu.sum() / (tasks.stop - tasks.start).sum()
    assert int(out.getvalue().split("(")[1].split("%")[0]) == pytest.approx(share, abs=1)
    # A recording has the microseconds in which a computation began and ended.
    took = computation["stop"] - computation["start"]
    assert took - 2e-6 <= bar.last_duration <= took


def test_asynchronous_clients():
    out = io.StringIO()

    async def main():
        async with asynchronous_client() as client, ProgressBar(out=out):
            assert await client.submit(increment, 1) == 2

    asyncio.run(main())
    assert out.getvalue().count("100% Completed") == 1
