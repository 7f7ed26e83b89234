"""What conftest does after every test and for every truth, on tests that leak or fail."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

LEAKS = """
import multiprocessing, threading, time
from pathlib import Path

import dask.local
import pytest
from dask.callbacks import Callback

LEFT = []


def test_measured_again(retried):
    attempts = []

    def measure():
        attempts.append(1)
        raise AssertionError("spoilt")

    with pytest.raises(AssertionError, match="spoilt"):
        retried(measure)
    assert len(attempts) == 3


def test_nothing():
    Path("file").write_text("gone at the end")
    Path("file").unlink()


@pytest.mark.leaves_files
def test_handle(tmp_path):
    LEFT.append(open(tmp_path / "file", "w"))


@pytest.mark.leaves_files
def test_handle_in_a_cycle_is_closed_by_the_collector(tmp_path):
    cycle = [open(tmp_path / "file", "w")]
    cycle.append(cycle)


def test_file():
    Path("file").write_text("left")


def test_thread():
    end = threading.Event()
    LEFT.append(end)
    threading.Thread(target=end.wait, name="dask_diag-left", daemon=True).start()


def test_process():
    LEFT[-1].set()
    time.sleep(0.05)
    child = multiprocessing.Process(target=time.sleep, args=(1,), daemon=True)
    LEFT.append(child)
    child.start()


def test_patch():
    LEFT.append(dask.local.local_callbacks)
    dask.local.local_callbacks = lambda callbacks=None: None


def test_callback():
    dask.local.local_callbacks = LEFT[-1]
    Callback().register()
"""


@pytest.mark.once
def test_each_leak_is_an_error_and_a_truth_is_measured_three_times_at_most(tmp_path):
    path = tmp_path / "test_leaks.py"
    path.write_text(textwrap.dedent(LEAKS))
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.conftest", "-c", root / "setup.cfg",
         "--rootdir", tmp_path, path],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=100,
    )  # fmt: skip
    path.unlink()
    errors = set(re.findall(r"^ERROR .*::test_(\w+)", done.stdout, re.M))
    assert errors == {"handle", "file", "thread", "process", "patch", "callback"}, done.stdout
    assert "9 passed" in done.stdout
    assert "measured again (1)" in done.stdout
