"""Samples of a thread that gives up the GIL for many short calls, and the interval that they take."""

import os
import subprocess
import sys
import time
from pathlib import Path

import dask
import pytest

from dask_diag import SamplingProfiler, hottest_lines
from dask_diag.sampling.sampler import SHORTEST, SwitchInterval
from dask_diag.system.periodic import take_cpu_of_own_threads

USUAL = 0.005


@pytest.fixture(autouse=True)
def usual():
    before = sys.getswitchinterval()
    sys.setswitchinterval(USUAL)
    yield
    assert sys.getswitchinterval() == pytest.approx(USUAL)
    sys.setswitchinterval(before)


def short_calls(count):
    """Each gives up the GIL for a moment."""
    for _ in range(count):
        os.stat("/")


def python_code(count):
    total = 0
    for number in range(count):
        total += number
    return total


def both(seconds):
    """Alternate every two milliseconds, and measure both."""
    took = [0.0, 0.0]
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop:
        start = time.perf_counter()
        python_code(40_000)
        middle = time.perf_counter()
        short_calls(130)
        took[0] += middle - start
        took[1] += time.perf_counter() - middle
    return took


def share_of_python_code(recording):
    rows = hottest_lines(recording, 50).to_dicts()
    seconds = {"python_code": 0.0, "short_calls": 0.0}
    for row in rows:
        name = row["name"].rpartition(".")[2]
        if name in seconds:
            seconds[name] += row["wall"]
    return seconds["python_code"] / sum(seconds.values())


def test_samples_fall_where_the_time_passes(retried):
    def measure():
        with SamplingProfiler(interval=0.005) as prof:
            ((python, calls),) = dask.compute(dask.delayed(both)(1.5), scheduler="sync")
        expected = python / (python + calls)
        assert share_of_python_code(prof.recording) == pytest.approx(expected, abs=0.15)

    retried(measure)


def seen_interval(seconds=0.1):
    """The intervals in force while this computes."""
    seen = set()
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop:
        python_code(100)
        seen.add(round(sys.getswitchinterval(), 6))
    return seen


ALONE = """
import dask
from dask_diag import SamplingProfiler
from tests.test_switches import seen_interval
with SamplingProfiler(interval=0.003):
    print(min(dask.compute(dask.delayed(seen_interval)(), scheduler="sync")[0]))
"""


def test_the_interval_is_short_for_a_single_thread():
    # Where tests run beside each other, their process has a second thread.
    path = str(Path(__file__).parent.parent)
    command = [sys.executable, "-c", ALONE]
    ran = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True)
    assert float(ran.stdout) < USUAL / 2


def test_the_interval_stays_while_several_threads_run():
    def last_interval():
        seen_interval(0.5)
        return sys.getswitchinterval()

    # Before the threads of a pool have started, there is one.
    lazy = [dask.delayed(last_interval)() for _ in range(2)]
    with SamplingProfiler(interval=0.003):
        last = dask.compute(*lazy, scheduler="threads", num_workers=2)
    assert last == pytest.approx([USUAL] * 2)


def test_worker_processes_have_one_thread_and_keep_their_interval():
    lazy = [dask.delayed(seen_interval)() for _ in range(4)]
    with SamplingProfiler(interval=0.003):
        parts = dask.compute(*lazy, scheduler="processes", num_workers=2)
    assert min(set().union(*parts)) < USUAL / 2


def test_a_child_of_a_fork_has_the_usual_interval():
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")

    def forks():
        seen_interval()
        child = os.fork()
        if not child:
            os._exit(int(round(1e6 * sys.getswitchinterval()) != round(1e6 * USUAL)))
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    with SamplingProfiler(interval=0.003):
        assert dask.compute(dask.delayed(forks)(), scheduler="sync") == (0,)


def test_an_interval_that_the_program_sets_stays():
    def sets():
        seen_interval()
        sys.setswitchinterval(0.02)
        return seen_interval()

    with SamplingProfiler(interval=0.003):
        (seen,) = dask.compute(dask.delayed(sets)(), scheduler="sync")
    assert seen == {0.02}
    assert sys.getswitchinterval() == pytest.approx(0.02)
    sys.setswitchinterval(USUAL)


def test_the_interval_is_the_usual_one_while_several_threads_run():
    switches = SwitchInterval()
    for others, waiting, expected in [
        (1, 0.0, USUAL / 4),
        (2, 0.0, USUAL),
        (1, 0.0, USUAL / 4),
        *[(1, 0.0, None)] * 5,
        (1, 0.0, SHORTEST),
        # A call keeps the GIL.
        (1, 0.05, 4 * SHORTEST),
        *[(1, 0.05, None)] * 5,
        (1, 0.05, USUAL),
    ]:
        switches.of_cycle(others, waiting)
        assert expected is None or sys.getswitchinterval() == pytest.approx(expected, abs=1e-6)
    switches.restore()


def test_a_call_that_keeps_the_gil_is_not_asked_all_the_time():
    """The thread of the sampler waits, and hardly computes."""
    numbers = list(range(600_000, 0, -1))

    def long_calls():
        stop = time.perf_counter() + 2.0
        while time.perf_counter() < stop:
            sorted(map(str, numbers))

    with SamplingProfiler(interval=0.005):
        take_cpu_of_own_threads()
        dask.compute(dask.delayed(long_calls)(), scheduler="sync")
        assert take_cpu_of_own_threads() < 0.04 * 2.0
