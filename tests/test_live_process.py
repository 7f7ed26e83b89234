"""A viewer that a program starts: a process of its own, without which all is as with it."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import dask
import pytest

from dask_diag import load, record
from dask_diag.profilers.record import LiveViewer
from dask_diag.storage.follow import FollowState

from .commands import COMMAND, Command
from .viewers import asked

pytestmark = [
    pytest.mark.leaves_files,
    pytest.mark.skipif(not os.path.exists("/proc/locks"), reason="needs Linux"),
]


def viewers_of(path):
    """The processes that view a file."""
    viewers = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--child" in arguments and os.path.abspath(path).encode() in arguments:
            viewers.append(int(folder.name))
    return viewers


def end_viewers(path):
    for pid in viewers_of(path):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 10
    while viewers_of(path) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not viewers_of(path)


@pytest.fixture(autouse=True)
def no_viewer_left(tmp_path):
    yield
    end_viewers(tmp_path / "run.diag")


@pytest.mark.once
def test_a_recording_starts_its_viewer(capfd):
    with record("run.diag", live=True) as run:
        dask.compute(*[dask.delayed(sum)([n, 1]) for n in range(20)], scheduler="threads")
        run.viewer.wait_for_address(20)
    (pid,) = viewers_of("run.diag")
    assert capfd.readouterr().err.strip() == run.viewer.addresses
    # It is no child that the program would have to wait for, nor of its session.
    assert os.getsid(pid) != os.getsid(0)
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    assert os.getpriority(os.PRIO_PROCESS, pid) >= min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
    deadline = time.monotonic() + 20
    while (answer := asked(run.viewer.addresses))["kind"] != "complete":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert answer["functions"][0][2] == "20"
    recording = load("run.diag")
    assert len(recording.tasks) == 20
    token = re.search(r"token=(\S+)", run.viewer.addresses)[1]
    tables = [table.to_dicts() for table in recording.tables().values()]
    assert "processors" in repr(tables)
    assert token not in repr([tables, recording.notices])


@pytest.mark.once
def test_the_address_of_the_shortest_block_is_printed():
    """Nobody waits in the program itself."""
    program = "import dask_diag\nwith dask_diag.record('run.diag', live=True):\n    pass"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r"live: http://127\.0\.0\.1:\d+/\?token=\S+\n", done.stderr)


@pytest.mark.once
def test_a_viewer_that_cannot_start_is_a_line_and_nothing_else(monkeypatch, capfd):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with record("run.diag", live=True) as run:
        run.viewer.wait_for_address(20)
    assert "could not be started" in capfd.readouterr().err
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with record("other.diag", live=True) as run:
        pass
    assert "no/such/python" in run.recording.notices[-1]
    assert load("other.diag").is_complete


SCRIPT = """
import os, sys, time, dask
print("out")
print(dask.delayed(sum)([1, 2]).compute(scheduler="threads"))
if "wait" in sys.argv:
    open("printed", "w").close()
    time.sleep(100)
sys.exit(7)
"""


LIVE = ("--live", "--no-browser")


def run_live(*arguments, options=LIVE, **settings):
    Path("script.py").write_text(SCRIPT)
    command = [*COMMAND, "run", *options, "-o", "run.diag"]
    return Command(
        [*command, "script.py", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )


def test_run_ends_as_the_program_does_and_its_streams_with_it():
    process = run_live()
    # Both streams end, though the viewer goes on.
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (7, "out\n3\n")
    assert len(viewers_of("run.diag")) == 1
    assert err.count("live: http://127.0.0.1:") == 1
    deadline = time.monotonic() + 20
    while (answer := asked(err))["kind"] != "complete":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert answer["functions"]


STOPPED = 2.0
"""Seconds: more than two writes of the file. Thirty were tried by hand and are the same."""


@pytest.mark.once
@pytest.mark.parametrize("harm", ["none", "killed", "stopped", "stopped until after the end"])
def test_a_viewer_that_is_killed_or_stopped_changes_nothing(harm):
    """The program's result, status, stdout and recording; nor is a writer refused because of it."""
    process, viewer = run_live("wait"), None
    try:
        address = process.stderr.readline()
        (viewer,) = viewers_of("run.diag")
        while asked(address)["kind"] != FollowState.GROWING:
            time.sleep(0.05)
        if harm == "killed":
            os.kill(viewer, signal.SIGKILL)
        elif harm != "none":
            os.kill(viewer, signal.SIGSTOP)
        size, began = os.path.getsize("run.diag"), time.monotonic()
        while os.path.getsize("run.diag") == size or time.monotonic() - began < STOPPED:
            assert time.monotonic() - began < 20
            time.sleep(0.05)
        if harm == "stopped":
            os.kill(viewer, signal.SIGCONT)
            assert asked(address)["functions"][0][2] == "1"
        assert Path("printed").exists()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
        assert (process.returncode, out) == (-signal.SIGINT, "out\n3\n")
        recording = load("run.diag")
        assert recording.is_complete
        assert len(recording.tasks) == 1
        assert not [notice for notice in recording.notices if "live" in notice]
        record_file().close()
    finally:
        process.kill()
        process.communicate()
        if harm.startswith("stopped"):
            os.kill(viewer, signal.SIGCONT)


def record_file():
    from dask_diag.storage.write import Writer

    return Writer("run.diag", overwrite=True)


@pytest.mark.truth
def test_a_killed_writer_is_said_within_four_seconds(retried):
    def measure():
        viewer = None
        Path("run.diag").unlink(missing_ok=True)
        process = run_live("wait")
        try:
            viewer = process.stderr.readline()
            while asked(viewer)["kind"] != FollowState.GROWING:
                time.sleep(0.05)
            process.kill()
            process.wait()
            began = time.monotonic()
            while asked(viewer)["kind"] != FollowState.TRUNCATED:
                time.sleep(0.05)
            assert time.monotonic() - began < 4
        finally:
            process.kill()
            process.communicate()
            end_viewers("run.diag")

    retried(measure)


@pytest.mark.once
def test_a_viewer_of_a_path_with_a_leading_dash_is_of_that_file():
    viewer = LiveViewer("./-x.diag")
    viewer.wait_for_address(20)
    assert "live: http" in viewer.addresses
    end_viewers("-x.diag")
