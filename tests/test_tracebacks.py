"""The user's errors have the frames that they have without us: each file, line and name."""

from __future__ import annotations

import gc
import sys
import traceback
import weakref
from concurrent.futures import ThreadPoolExecutor

import dask
import dask.multiprocessing
import dask.threaded
import numpy as np
import pytest
from dask.local import get_sync

from dask_diag import Profiler

from .profilers import PROFILERS

pytestmark = pytest.mark.leaves_files


class Immutable(Exception):
    """It refuses whatever may be refused."""

    __slots__ = ()

    def __setattr__(self, name, value):
        raise AttributeError(name)

    def with_traceback(self, traceback):
        raise TypeError

    @property
    def __traceback__(self):
        raise TypeError


ONE = ValueError("the same each time")


def fail():
    raise ValueError("deep")


def plain():
    fail()


def chained():
    try:
        fail()
    except ValueError as error:
        raise KeyError("chained") from error


def in_handler():
    try:
        fail()
    except ValueError:
        plain()


def from_none():
    try:
        fail()
    except ValueError:
        raise KeyError("alone") from None


def group():
    try:
        fail()
    except ValueError as error:
        raise ExceptionGroup("several", [error, KeyError("never raised")]) from error  # noqa: F821


def interrupted():
    raise KeyboardInterrupt


def exits():
    sys.exit(3)


def immutable():
    raise Immutable


def the_same_object():
    raise ONE


def recursive(depth=100):
    if depth:
        recursive(depth - 1)
    fail()


RAISING = [plain, chained, in_handler, from_none, interrupted, exits, immutable, recursive]
RAISING += [group] if sys.version_info >= (3, 11) else []


def frames_of(error, seen=()):
    """Of an error and all that are chained to it: the file, line and name of each frame."""
    if error is None or error in seen:
        return None
    entries = BaseException.__traceback__.__get__(error)
    seen = (*seen, error)
    return (
        type(error).__name__,
        repr(error.args),
        [(f.filename, f.lineno, f.name) for f in traceback.extract_tb(entries)],
        # Of a worker process it has the frames as text.
        getattr(error, "traceback", None) or getattr(error, "tb", None),
        getattr(error, "__notes__", None),
        error.__suppress_context__,
        frames_of(error.__cause__, seen),
        frames_of(error.__context__, seen),
        [frames_of(part, seen) for part in getattr(error, "exceptions", ())],
    )


def frames_raised(compute):
    try:
        compute()
    except BaseException as error:
        return frames_of(error)
    raise AssertionError("it was to fail")


def computation(function, **how):
    return lambda: dask.delayed(function, pure=True)(dask_key_name="x").compute(**how)


def assert_the_same(compute, profiler):
    without = frames_raised(compute)
    assert without[2], "there are frames to compare"
    with profiler:
        assert frames_raised(compute) == without


@pytest.mark.parametrize("profiler", PROFILERS)
@pytest.mark.parametrize("how", ["threads", "sync", "executor"])
def test_the_frames_are_those_without_us(how, profiler, tmp_path):
    with ThreadPoolExecutor(1) as executor:
        scheduler = executor if how == "executor" else how
        assert_the_same(computation(in_handler, scheduler=scheduler), PROFILERS[profiler]())


@pytest.mark.parametrize("scheduler", ["threads", "sync"])
@pytest.mark.parametrize("function", RAISING)
def test_the_frames_of_whatever_is_raised_are_those_without_us(function, scheduler):
    if (function, scheduler) == (immutable, "sync"):
        pytest.skip("contextlib fails to set its traceback, in a function that dask_diag replaces")
    # That of dask's which shortens tracebacks sets attributes of the error: it is not asked here.
    get = {"threads": dask.threaded.get, "sync": get_sync}[scheduler]
    assert_the_same(lambda: get({"x": (function,)}, "x"), Profiler())


def without_tblib():
    """As where it is not installed: frames come as text."""
    dask.multiprocessing._pack_traceback = lambda tb: "".join(traceback.format_tb(tb))


@pytest.mark.parametrize(("context", "as_text"), [("Profiler", True), ("waits", False)])
def test_the_frames_of_worker_processes_are_those_without_us(context, as_text, monkeypatch):
    if as_text:
        monkeypatch.setattr(dask.multiprocessing, "reraise", raise_text)

    def compute_all():
        # In one pool, as it takes long to start; errors of several tasks, one after the other.
        start = without_tblib if as_text else None
        with dask.multiprocessing.get_context().Pool(1, start) as pool:
            return [
                frames_raised(computation(function, scheduler="processes", pool=pool))
                for function in RAISING
                # As text no group can be raised, with or without us.
                if function is not immutable and not (as_text and function.__name__ == "group")
            ]

    without = compute_all()
    assert all(frames for _, _, frames, *_ in without)
    assert not as_text or "in fail" in without[0][3]
    with PROFILERS[context]():
        assert compute_all() == without


def test_an_object_that_several_tasks_raise_has_the_frames_of_each():
    def compute():
        ONE.__traceback__ = None
        frames_raised(computation(the_same_object, scheduler="threads"))
        frames_raised(computation(the_same_object, scheduler="sync"))
        computation(the_same_object, scheduler="threads")()

    assert_the_same(compute, Profiler())
    # So has what a call of dask refuses, and an error that a task handles.
    assert_the_same(computation(plain, scheduler="nonsense"), Profiler())
    texts = []

    def handles():
        try:
            fail()
        except ValueError:
            texts.append(traceback.format_exc())

    with Profiler():
        computation(handles, scheduler="sync")()
    computation(handles, scheduler="sync")()
    assert texts[0] == texts[1]


def raise_text(error, text):
    raise dask.multiprocessing.remote_exception(error, text)


@pytest.mark.parametrize("name", ["Profiler", "waits", "record"])
@pytest.mark.parametrize("scheduler", ["threads", "sync", "executor"])
def test_the_arrays_of_a_failed_task_are_freed_with_its_error(name, scheduler, tmp_path):
    arrays = []

    def make():
        array = np.zeros(1000)
        arrays.append(weakref.ref(array))
        return array

    def use(array):
        local = array + 1
        arrays.append(weakref.ref(local))
        fail()

    with ThreadPoolExecutor(1) as executor, PROFILERS[name]():
        how = executor if scheduler == "executor" else scheduler
        made = dask.delayed(make)()
        with pytest.raises(ValueError, match="deep"):
            dask.delayed(use)(made).compute(scheduler=how, optimize_graph=False)
        # Dask itself leaves its graph in a circle with the error.
        gc.collect()
        assert len(arrays) == 2
        assert [array() for array in arrays] == [None, None]
