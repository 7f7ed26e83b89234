"""``dask-diag top``: a frame at the end, or a terminal that is left as it was."""

import os
import re
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner
from rich.console import Console

from dask_diag import save
from dask_diag.cli.main import main
from dask_diag.live import screen
from dask_diag.storage.write import Writer

from .commands import COMMAND, Command
from .recordings import example

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]


def test_without_a_terminal_one_frame_is_printed():
    save(example(200), "run.diag")
    result = CliRunner().invoke(main, ["top", "run.diag"])
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[0].startswith("complete")
    assert "200 tasks" in lines[1]
    assert "\x1b" not in result.stdout
    assert len([line for line in lines if line.startswith("complete")]) == 1


def test_the_frame_is_printed_when_the_recording_is_over(capsys):
    waits = []
    writer = Writer("run.diag")

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 1:
            writer.append(example(7))
        elif len(waits) == 3:
            writer.close()

    screen.show_last_frame("run.diag", Console(file=sys.stdout, width=80), wait)
    out = capsys.readouterr().out
    assert len(waits) == 3
    assert "7 tasks" in out
    assert out.count("complete") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize("leaves_by", ["q", "ctrl-c"])
def test_in_a_terminal_it_is_left_and_the_writer_goes_on(leaves_by):
    import pty
    import termios

    with Writer("run.diag") as writer:
        writer.append(example(50))
        controller, terminal = pty.openpty()
        before = termios.tcgetattr(terminal)
        process = Command(
            [*COMMAND, "top", "run.diag"],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"},
        )
        try:
            seen = b""
            while b"function" not in seen:
                seen += os.read(controller, 65536)
            if leaves_by == "q":
                os.write(controller, b"q")
            else:
                process.send_signal(signal.SIGINT)
            while b"\x1b[?1049l" not in seen:
                seen += os.read(controller, 65536)
            assert process.wait(20) == 0
            assert termios.tcgetattr(terminal) == before
        finally:
            process.kill()
            process.wait()
            os.close(controller)
            os.close(terminal)
        writer.append(example(3))
    text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", seen).decode()
    assert "running for" in text
    assert "Traceback" not in text


def test_a_terminal_that_cannot_move_its_cursor_gets_one_frame(monkeypatch):
    save(example(200), "run.diag")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(screen, "show_in_terminal", lambda *args: pytest.fail("it cannot be drawn"))
    result = CliRunner().invoke(main, ["top", "run.diag"])
    assert result.stdout.startswith("complete")


@pytest.mark.parametrize("command", [("top",), ("live", "--no-browser")])
def test_who_waits_for_a_file_is_told_at_once(command):
    process = Command([*COMMAND, *command, "none.diag"], stderr=subprocess.PIPE)
    try:
        said = b""
        while b"none.diag does not exist yet: waiting for it; Ctrl-C ends" not in said:
            said = process.stderr.readline()
            assert said
    finally:
        process.kill()
        process.wait()
