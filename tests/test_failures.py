"""What is recorded of an exception: its type, message and line, without secrets, cut, and safe."""

from __future__ import annotations

import re

import dask
import dask.threaded
import numpy as np
import pytest

import dask_diag
from dask_diag import Profiler, summary
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.state import failed_tasks
from dask_diag.capture.failures import Failure, failure_of

SECRET = "hunter2-hunter2"


def load(path):
    raise OSError(f"cannot read {path}: password={SECRET}")


def call(path):
    return load(path)


def failed(profiler, scheduler):
    with profiler, pytest.raises(OSError, match="cannot read"):
        dask.delayed(call)("day-3.nc").compute(scheduler=scheduler, num_workers=1)
    tasks = profiler.recording.tasks
    return tasks.rows(tasks.outcome.where("failed"))


@pytest.mark.parametrize("scheduler", ["threads", "sync", "processes"])
def test_a_failed_task_has_its_exception_and_the_line_of_the_program(scheduler):
    tasks = failed(Profiler(), scheduler)
    assert tasks.error.tolist() == ["OSError"]
    (message,) = tasks.error_message.tolist()
    assert message.startswith("cannot read day-3.nc")
    assert SECRET not in message
    (location,) = tasks.error_location.tolist()
    assert re.search(r"test_failures\.py:\d+ in load$", location)


def test_tasks_that_did_not_fail_have_none():
    prof = Profiler()
    with prof:
        dask.delayed(sum)([1, 2]).compute(scheduler="sync")
    assert set(prof.recording.tasks.error_message.tolist()) == {""}
    assert set(prof.recording.tasks.error_location.tolist()) == {""}


@pytest.mark.once
def test_the_finding_the_summary_and_the_report_say_what_it_was(tmp_path):
    prof = Profiler()
    failed(prof, "threads")
    evidence = failed_tasks(Analysis(prof.recording)).evidence
    assert "with OSError: cannot read day-3.nc" in evidence
    assert re.search(r", at \S*test_failures\.py:\d+ in load$", evidence)
    text = " ".join(summary(prof).split())
    assert "with OSError: cannot read day-3.nc" in text
    page = dask_diag.report(prof, tmp_path / "page.html").read_text()
    assert "Tasks that failed" in page
    assert page.count("cannot read day-3.nc") >= 2
    assert "test_failures.py:" in page
    assert SECRET not in page
    (tmp_path / "page.html").unlink()


class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def raised(error):
    try:
        raise error
    except BaseException as caught:
        return failure_of(caught)


def test_an_exception_whose_text_fails_is_recorded_without_it():
    failure = raised(Silent())
    assert failure.message == ""
    assert " in raised" in failure.location


def test_a_message_is_cut():
    failure = raised(ValueError("x y " * 100_000))
    assert len(failure.message) <= 300
    assert failure.message.endswith("…")


def test_the_line_is_the_innermost_that_is_of_no_library():
    def through_numpy():
        return np.reshape(np.zeros(3), (2, 2))

    with pytest.raises(ValueError, match="cannot reshape") as caught:
        through_numpy()
    assert failure_of(caught.value).location.endswith(" in through_numpy")


def test_an_exception_that_was_never_raised_has_no_line():
    assert failure_of(KeyError("key")) == Failure("'key'", "")


def test_nothing_of_the_exception_stays_alive():
    """Its traceback holds the arguments of the task."""
    import gc
    import weakref

    class Large:
        pass

    large = Large()
    reference = weakref.ref(large)

    def use(argument):
        raise OSError("cannot read")

    failure_of_task = Profiler()
    with failure_of_task, pytest.raises(OSError, match="cannot read"):
        dask.threaded.get({"x": (use, large)}, "x")
    del large
    gc.collect()
    assert reference() is None
