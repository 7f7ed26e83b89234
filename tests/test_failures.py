"""What is recorded of an exception: its type, message and line, without secrets, cut, and safe."""

from __future__ import annotations

import re

import dask
import dask.threaded
import numpy as np
import pytest

import dask_diag
from dask_diag import Profiler, summary
from dask_diag.capture.failures import Failure, failure_of

SECRET = "hunter2-hunter2"


def load(path):
    raise OSError(f"cannot read {path}: password={SECRET}")


@pytest.mark.parametrize("scheduler", ["threads", "sync", "processes"])
def test_a_failed_task_has_its_exception_and_the_line_of_the_program(scheduler, tmp_path):
    good = dask.delayed(sum)([1, 2])
    with Profiler() as prof, pytest.raises(OSError, match="cannot read"):
        good.compute(scheduler=scheduler)
        dask.delayed(call)("day-3.nc").compute(scheduler=scheduler, num_workers=1)
    tasks = prof.recording.tasks
    assert tasks.error.tolist() == ["", "OSError"]
    none, message = tasks.error_message.tolist()
    assert message.startswith("cannot read day-3.nc")
    assert SECRET not in message
    assert none == tasks.error_location.tolist()[0] == ""
    assert re.search(r"test_failures\.py:\d+ in load$", tasks.error_location.tolist()[1])
    text = " ".join(summary(prof).split())
    assert "with OSError: cannot read day-3.nc" in text
    assert re.search(r", at \S*test_failures\.py:\d+ in load", text)
    if scheduler == "threads":
        page = dask_diag.report(prof, tmp_path / "page.html").read_text()
        (tmp_path / "page.html").unlink()
        assert "Tasks that failed" in page
        assert page.count("cannot read day-3.nc") >= 2
        assert SECRET not in page


def raises(error):
    raise error


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: raises(Silent()), ""),
        (lambda: raises(ValueError("x y " * 100_000)), "x y "),
        # The line is the innermost that is of no library.
        (lambda: np.reshape(np.zeros(3), (2, 2)), "cannot reshape"),
    ],
)
def test_any_exception_has_a_message_and_a_line(work, message):
    with Profiler() as prof, pytest.raises((Silent, ValueError)):
        dask.threaded.get({"x": (work,)}, "x")
    (row,) = prof.recording.tasks.to_dicts()
    text = row["error_message"]
    assert text.startswith(message)
    assert len(text) <= 300
    assert text.endswith("…") == (message == "x y ")
    assert re.search(r"test_failures\.py:\d+ in (raises|<lambda>)$", row["error_location"])
    assert failure_of(KeyError("never raised")) == Failure("'never raised'", "")


class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def call(path):
    return load(path)
