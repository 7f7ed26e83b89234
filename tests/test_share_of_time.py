"""Pauses in proportion to what something takes, and to nothing else."""

import gc
import threading

import pytest

from dask_diag.system import periodic
from dask_diag.system.periodic import ShareOfTime


@pytest.fixture
def clock(monkeypatch):
    """The CPU seconds of the thread, as a list of one."""
    seconds = [7.0]
    monkeypatch.setattr(periodic, "thread_time", lambda: seconds[0])
    return seconds


@pytest.fixture
def no_garbage_is_collected():
    gc.disable()
    yield
    gc.enable()


def takes(work, clock, seconds, collects=False):
    with work:
        clock[0] += seconds
        if collects:
            gc.collect()


@pytest.mark.usefixtures("no_garbage_is_collected")
def test_the_pause_is_that_of_the_last_time(clock):
    work = ShareOfTime(0.02, 0.1)
    assert work.pause == pytest.approx(5.0)
    for seconds in (0.01, 0.0, 0.003):
        takes(work, clock, seconds)
        assert work.seconds == pytest.approx(seconds)
        assert work.pause == pytest.approx(seconds / 0.02)


@pytest.mark.usefixtures("no_garbage_is_collected")
@pytest.mark.parametrize("before", [1, 2], ids=["after a younger one", "after another full one"])
def test_a_full_collection_in_it_says_nothing_of_the_next_time(before, clock):
    work = ShareOfTime(0.02)
    takes(work, clock, 0.001)
    gc.collect(before)
    takes(work, clock, 0.5, collects=True)
    assert work.pause == pytest.approx(0.05)
    takes(work, clock, 0.002)
    assert work.pause == pytest.approx(0.1)


@pytest.mark.usefixtures("no_garbage_is_collected")
def test_a_single_long_time_is_made_up_for_by_several_pauses(clock):
    work = ShareOfTime(0.02, blocks=8)
    pauses = []
    for seconds in (0.01, *[0.0001] * 40):
        takes(work, clock, seconds)
        pauses.append(work.pause)
    assert max(pauses) == pytest.approx(0.01 / 8 / 0.02)
    # In all it is the share.
    assert sum(pauses) == pytest.approx((0.01 + 40 * 0.0001) / 0.02, rel=0.1)


@pytest.mark.usefixtures("no_garbage_is_collected")
def test_two_threads_at_once_are_not_confused(clock):
    """Each thread has a clock of its own."""
    work = ShareOfTime(0.02)
    takes(work, clock, 0.003)
    other = threading.Thread(target=takes, args=(work, [0.0], 0.0))
    with work:
        other.start()
        other.join()
        clock[0] += 20.0
    assert work.seconds == pytest.approx(0.0)


@pytest.mark.usefixtures("no_garbage_is_collected")
def test_what_raises_has_taken_its_time(clock):
    work = ShareOfTime(0.5)
    with pytest.raises(ZeroDivisionError), work:
        clock[0] += 1.0
        1 / 0
    assert work.pause == pytest.approx(2.0)
