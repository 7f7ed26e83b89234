"""What a viewer writes to disk: nothing; one file, of this user alone, if it opens a browser."""

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import dask
import pytest

from dask_diag import load, record
from dask_diag.storage.follow import FollowState

from .commands import COMMAND, Command
from .programs import SEARCHED
from .test_live_process import run_live
from .viewers import asked, report_at

pytestmark = [
    pytest.mark.once,
    pytest.mark.leaves_files,
    pytest.mark.skipif(not os.path.exists("/proc/locks"), reason="needs Linux"),
]


def on_a_full_disk():
    """In a child before it becomes a program: no file that it writes may have a byte."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


@contextlib.contextmanager
def viewer_of_run(*options, **settings):
    """A viewer, and what it prints; it ends by Ctrl-C and prints no traceback."""
    process = Command(
        [*COMMAND, "live", *options, "run.diag"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **settings,
    )
    try:
        yield process
        process.send_signal(signal.SIGINT)
        assert "Traceback" not in process.communicate(timeout=30)[0]
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_viewer_whose_disk_is_full_shows_the_run_and_changes_nothing():
    program = run_live("wait", options=())
    try:
        wait_until(lambda: Path("printed").exists())
        with viewer_of_run("--no-browser", preexec_fn=on_a_full_disk) as viewer:
            line = viewer.stdout.readline()
            wait_until(lambda: asked(line)["functions"])
            assert asked(line)["kind"] == FollowState.GROWING
            program.send_signal(signal.SIGINT)
            out, _ = program.communicate(timeout=30)
            assert (program.returncode, out) == (-signal.SIGINT, "out\n3\n")
            wait_until(lambda: asked(line)["kind"] == FollowState.COMPLETE)
            assert "<h1>" in report_at(line)
    finally:
        program.kill()
        program.communicate()
    recording = load("run.diag")
    assert recording.is_complete
    assert len(recording.tasks) == 1


def record_one_task():
    with record("run.diag"):
        dask.delayed(int)(1).compute(scheduler="sync")


def test_without_room_for_the_file_that_leads_there_the_user_opens_the_address():
    record_one_task()
    environment = {**os.environ, "DISPLAY": ":0", "BROWSER": "false %s"}
    environment.pop("SSH_CONNECTION", None)
    with viewer_of_run(env=environment, preexec_fn=on_a_full_disk) as viewer:
        line = viewer.stdout.readline()
        assert viewer.stdout.readline().startswith("open the address yourself: ")
        assert asked(line)["kind"] == FollowState.COMPLETE


AUDIT = """
import os, sys
os.umask(0o022)
log = os.open(os.environ["AUDIT_LOG"], os.O_WRONLY | os.O_APPEND)
CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

def note(event, args):
    if event == "open" and isinstance(args[2], int) and args[2] & CHANGES:
        os.write(log, f"{os.fsdecode(args[0])}\\n".encode())

sys.addaudithook(note)
"""
BROWSER = """#!/bin/sh
tr '\\0' '\\n' < /proc/$$/cmdline > arguments
cp "${1#file://}" page
"""


@pytest.fixture
def audited(tmp_path):
    """An environment whose Pythons note which files they open to write; and what was noted."""
    folder, log = tmp_path / "audit", tmp_path / "opened"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(AUDIT)
    log.touch()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), SEARCHED]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "AUDIT_LOG": str(log),
        "DISPLAY": ":0",
        "BROWSER": f"{tmp_path}/browser %s",
    }
    environment.pop("SSH_CONNECTION", None)
    (tmp_path / "browser").write_text(BROWSER)
    (tmp_path / "browser").chmod(0o700)
    return environment, lambda: set(log.read_text().split("\n")) - {"", os.devnull}


def test_a_viewer_opens_no_file_to_write(audited):
    environment, opened = audited
    record_one_task()
    subprocess.run([sys.executable, "-c", "open('any', 'w')"], env=environment, check=True)
    assert opened() == {"any"}
    with viewer_of_run("--no-browser", env=environment) as viewer:
        line = viewer.stdout.readline()
        assert asked(line)["kind"] == FollowState.COMPLETE
        assert "<h1>" in report_at(line)
    assert opened() == {"any"}


def test_a_browser_gets_a_file_and_never_the_token(audited, tmp_path):
    environment, opened = audited
    record_one_task()
    with viewer_of_run(env=environment) as viewer:
        token = re.search(r"token=(\S+)", viewer.stdout.readline())[1]
        wait_until(Path("page").exists)
        wait_until(lambda: token in Path("page").read_text())
        arguments = Path("arguments").read_text()
        assert "file://" in arguments
        assert token not in arguments
        # Python looks first whether a file can be written in a folder, and removes that.
        (file,) = filter(os.path.exists, opened())
        assert os.stat(file).st_mode & 0o777 == 0o600
        assert token not in Path(f"/proc/{viewer.pid}/cmdline").read_text()
    assert not os.path.exists(file)
