"""Ctrl-C while something closes: noted, and delivered when that is done, however it ended."""

from __future__ import annotations

import contextlib
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


def test_an_own_handler_is_called_once_and_the_blocks_exception_goes_on(own_handler):
    with pytest.raises(ValueError), DeferredInterrupts():
        press()
        press()
        assert own_handler == []
        raise ValueError
    assert len(own_handler) == 1


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


class Stop(Exception):
    """Raised by a handler of the program's own."""


def stop(number, frame):
    raise Stop


@pytest.mark.parametrize("handler", [signal.default_int_handler, stop])
@pytest.mark.parametrize("other", [None, ValueError, SystemExit, RecordingFileError])
def test_it_is_raised_when_the_block_has_ended_however_it_ends(handler, other):
    signal.signal(signal.SIGINT, handler)
    done = []
    with pytest.raises((KeyboardInterrupt, Stop)) as raised, DeferredInterrupts():
        press()
        press()
        done.append(1)
        if other is not None:
            raise other("the block's own")
    assert done == [1]
    assert (raised.type is Stop) == (handler is stop)
    assert isinstance(raised.value.__context__, other or type(None))
    assert raised.value.__cause__ is None
    assert not raised.value.__suppress_context__


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
    # Without Ctrl-C the block's exception goes on as it is.
    with pytest.raises(ValueError) as raised, DeferredInterrupts(ended_by):
        raise ValueError
    assert raised.value.__context__ is None


@pytest.mark.parametrize("owns", [False, True])
def test_who_insists_interrupts_the_block(owns, request):
    heard = request.getfixturevalue("own_handler") if owns else None
    done, expected = [], contextlib.nullcontext() if owns else pytest.raises(KeyboardInterrupt)
    with expected as raised, DeferredInterrupts() as interrupts:
        interrupts.most = 2
        press()
        done.append(heard and len(heard))
        press()
        done.append(2)
    assert len(done) == 1
    assert interrupts.noted == 2
    assert raised is None or raised.value.__context__ is None
    # An own handler is all that hears.
    assert not owns or len(heard) == 1


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


@pytest.mark.parametrize("owns", [False, True])
def test_ctrl_c_while_a_file_is_opened_or_a_page_written_is_not_lost(owns, request, monkeypatch):
    heard = request.getfixturevalue("own_handler") if owns else [1, 1]

    def refuse(*args, **kwargs):
        press()
        raise RecordingFileError("cannot write")

    monkeypatch.setattr("dask_diag.storage.write.Writer", refuse)
    with pytest.raises((KeyboardInterrupt, RecordingFileError)) as raised, record("run.diag"):
        raise AssertionError("it must not be entered")
    assert type(raised.value if owns else raised.value.__context__) is RecordingFileError
    monkeypatch.setattr(
        "dask_diag.views.report.page.report", lambda *args, **kwargs: (press(), press())
    )
    interrupted = contextlib.nullcontext() if owns else pytest.raises(KeyboardInterrupt)
    with pytest.warns(RuntimeWarning, match="not written: interrupted"), interrupted:
        with performance_report("page.html"):
            pass
    assert len(heard) == 2
