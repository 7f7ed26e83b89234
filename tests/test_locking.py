"""Of two writers of one file the second is refused; a reader is not."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import dask
import pytest

from dask_diag import Profiler, load, record
from dask_diag.errors import RecordingFileError
from dask_diag.storage import write
from dask_diag.storage.write import save

from .commands import run

pytestmark = pytest.mark.leaves_files

RECORDS = r"""
import os, sys, time, dask, dask_diag

with dask_diag.record("run.diag"):
    dask.delayed(abs)(1).compute(scheduler="sync")
    if "fork" in sys.argv and os.fork() == 0:
        os.write(1, f"{os.getpid()}\n".encode())
        time.sleep(100)
    os.write(1, b"records\n")
    sys.stdin.read()
"""


@pytest.fixture
def other():
    """Start another process that records into run.diag until its stdin ends."""
    started = []

    def start(*arguments):
        child = subprocess.Popen(
            [sys.executable, "-c", RECORDS, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(child)
        reported = [child.stdout.readline() for _ in range(1 + len(arguments))]
        assert "records\n" in reported
        return child, [int(line) for line in reported if line != "records\n"]

    yield start
    for child in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def measured():
    with Profiler() as prof:
        dask.delayed(abs)(2).compute(scheduler="sync")
        dask.delayed(abs)(3).compute(scheduler="sync")
    return prof.recording


def test_another_process_is_separate_and_readers_are_not(other):
    child, _ = other()
    one_line = r"cannot write [^\n]*run\.diag: another process is writing it; choose another[^\n]*$"
    with pytest.raises(RecordingFileError, match=one_line), record("run.diag", overwrite=True):
        raise AssertionError("it must not be entered")
    with pytest.raises(RecordingFileError, match=one_line):
        save(measured(), "run.diag", overwrite=True)
    # A program is not run whose recording another writes.
    done = run("run", "-f", "-o", "run.diag", "-c", "print('ran')", text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "another process is writing it" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert load("run.diag").state == "truncated"
    child.communicate()
    assert (len(load("run.diag").tasks), load("run.diag").notices) == (1, ())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_a_killed_process_keeps_nobody_out_though_its_children_live(other):
    child, (grandchild,) = other("fork")
    child.kill()
    child.wait()
    os.kill(grandchild, 0)
    with record("run.diag", overwrite=True):
        measured()
    assert len(load("run.diag").tasks) == 2


def test_a_file_that_was_replaced_before_it_was_locked_is_let_go(monkeypatch):
    save(measured(), "run.diag")
    lock = write.lock
    calls = []

    def late(file, path):
        if not calls:
            calls.append(path)
            os.replace("run.diag", "elsewhere.diag")
        lock(file, path)

    monkeypatch.setattr("dask_diag.storage.write.lock", late)
    with record("run.diag", overwrite=True):
        pass
    assert calls
    assert len(load("elsewhere.diag").tasks) == 2
    assert len(load("run.diag").tasks) == 0


def test_without_locks_a_recording_is_written_all_the_same(monkeypatch):
    def unsupported(file):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(write, "_lock", unsupported)
    with record("run.diag", overwrite=True):
        measured()
    save(measured(), "run.diag", overwrite=True)
    assert len(load("run.diag").tasks) == 2


def test_two_blocks_of_one_process_are_separate():
    one = measured()
    with record("run.diag"):
        dask.delayed(abs)(1).compute(scheduler="sync")
        with pytest.raises(RecordingFileError, match=r"run\.diag: this process is writing it"):
            with record("run.diag", overwrite=True):
                raise AssertionError("it must not be entered")
        with pytest.raises(RecordingFileError, match="this process is writing it"):
            save(one, "run.diag", overwrite=True)
        assert load("run.diag").state == "truncated"
    assert (len(load("run.diag").tasks), load("run.diag").notices) == (1, ())
    with record("run.diag", overwrite=True):
        pass
    save(one, "run.diag", overwrite=True)
    assert len(load("run.diag").tasks) == 2
    assert os.listdir() == ["run.diag"]
