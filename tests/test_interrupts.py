"""Ctrl-C while something closes: noted, and delivered when that is done, however it ended."""

from __future__ import annotations

import signal

import pytest

from dask_diag import performance_report, record
from dask_diag.errors import RecordingFileError
from dask_diag.profilers.interrupts import DeferredInterrupts

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "raise_signal"), reason="no signals can be raised here"
)


def press():
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def default_handler():
    """Ctrl-C raises KeyboardInterrupt, also where tests are started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    after = signal.signal(signal.SIGINT, before)
    assert not isinstance(getattr(after, "__self__", None), DeferredInterrupts), (
        "it was left installed"
    )


@pytest.fixture
def own_handler():
    """A program's handler that raises nothing; what it was called with."""
    calls = []

    def handler(number, frame):
        calls.append((type(number), number, frame.f_code.co_filename))

    signal.signal(signal.SIGINT, handler)
    yield calls
    assert signal.getsignal(signal.SIGINT) is handler
    assert [call[:2] for call in calls] == [(int, int(signal.SIGINT))] * len(calls)


def test_it_is_raised_when_the_block_has_ended():
    done = []
    with pytest.raises(KeyboardInterrupt), DeferredInterrupts():
        press()
        press()
        done.append(1)
    assert done == [1]


@pytest.mark.parametrize("other", [ValueError, SystemExit, RecordingFileError])
def test_it_is_raised_although_the_block_ends_by_another_exception(other):
    with pytest.raises(KeyboardInterrupt) as raised, DeferredInterrupts():
        press()
        raise other("the block's own")
    assert type(raised.value.__context__) is other
    assert raised.value.__cause__ is None
    assert not raised.value.__suppress_context__


def test_without_ctrl_c_the_blocks_exception_goes_on_as_it_is():
    with pytest.raises(ValueError) as raised, DeferredInterrupts():
        raise ValueError
    assert raised.value.__context__ is None


def test_an_own_handler_is_called_once_and_the_blocks_exception_goes_on(own_handler):
    with pytest.raises(ValueError), DeferredInterrupts():
        press()
        press()
        assert own_handler == []
        raise ValueError
    assert len(own_handler) == 1


def test_what_an_own_handler_raises_is_chained_to_the_blocks_exception():
    class Stop(Exception):
        pass

    def stop(number, frame):
        raise Stop

    signal.signal(signal.SIGINT, stop)
    with pytest.raises(Stop) as raised, DeferredInterrupts():
        press()
        raise ValueError
    assert type(raised.value.__context__) is ValueError


@pytest.mark.parametrize("ended_by", [None, KeyboardInterrupt])
def test_a_keyboard_interrupt_that_is_on_its_way_is_not_raised_twice(ended_by):
    with pytest.raises(KeyboardInterrupt) as raised:
        try:
            raise KeyboardInterrupt("first")
        except KeyboardInterrupt:
            with DeferredInterrupts(ended_by):
                press()
                if ended_by is None:
                    raise
            raise
    assert raised.value.args == ("first",)


@pytest.mark.parametrize("ended_by", [None, KeyboardInterrupt])
def test_an_own_handler_hears_of_it_also_while_a_keyboard_interrupt_is_on_its_way(
    ended_by, own_handler
):
    with pytest.raises(KeyboardInterrupt):
        with DeferredInterrupts(ended_by):
            press()
            if ended_by is None:
                raise KeyboardInterrupt
        raise KeyboardInterrupt
    assert len(own_handler) == 1


def test_who_insists_interrupts_the_block():
    done = []
    with pytest.raises(KeyboardInterrupt) as raised, DeferredInterrupts() as interrupts:
        interrupts.most = 2
        press()
        done.append(1)
        press()
        done.append(2)
    assert done == [1]
    assert raised.value.__context__ is None


def test_who_insists_interrupts_the_block_and_an_own_handler_is_all_that_hears(own_handler):
    done = []
    with DeferredInterrupts() as interrupts:
        interrupts.most = 2
        press()
        done.append(len(own_handler))
        press()
        done.append(2)
    assert done == [0]
    assert len(own_handler) == 1
    assert interrupts.noted == 2


def test_one_that_comes_just_as_the_handler_is_given_back_is_delivered(monkeypatch, own_handler):
    install, pressed = signal.signal, []

    def interrupted(number, handler):
        if not pressed:
            pressed.append(press())
        return install(number, handler)

    with DeferredInterrupts() as interrupts:
        interrupts.most = 1
        monkeypatch.setattr(signal, "signal", interrupted)
    monkeypatch.undo()
    assert pressed == [None]
    assert len(own_handler) == 1


def test_blocks_may_be_nested():
    order = []
    with pytest.raises(KeyboardInterrupt) as raised:
        with DeferredInterrupts():
            with pytest.raises(ValueError), DeferredInterrupts():
                press()
                raise ValueError
            order.append("outer goes on")
        order.append("never")
    assert order == ["outer goes on"]
    assert raised.value.__context__ is None


def test_ctrl_c_while_a_recording_cannot_be_opened_is_not_lost(monkeypatch):
    from dask_diag.storage import write as write_module

    def refuse(*args, **kwargs):
        press()
        raise RecordingFileError("cannot write")

    monkeypatch.setattr(write_module, "Writer", refuse)
    with pytest.raises(KeyboardInterrupt) as raised, record("run.diag"):
        raise AssertionError("it must not be entered")
    assert type(raised.value.__context__) is RecordingFileError


@pytest.fixture
def page_that_is_interrupted(monkeypatch):
    """Ctrl-C twice while performance_report writes its page."""

    def write(*args, **kwargs):
        press()
        press()

    monkeypatch.setattr("dask_diag.views.report.page.report", write)


@pytest.mark.usefixtures("page_that_is_interrupted")
def test_a_page_that_was_interrupted_is_said_not_to_be_written():
    with pytest.warns(RuntimeWarning, match="not written: interrupted"):
        with pytest.raises(KeyboardInterrupt), performance_report("page.html"):
            pass


@pytest.mark.usefixtures("page_that_is_interrupted")
def test_a_page_that_was_interrupted_is_said_not_to_be_written_to_an_own_handler(own_handler):
    with pytest.warns(RuntimeWarning, match="not written: interrupted"):
        with performance_report("page.html"):
            pass
    assert len(own_handler) == 1
