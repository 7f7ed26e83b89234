"""A file that can never be a recording is refused in one line, in place of being waited for."""

import errno
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dask_diag import save
from dask_diag.cli.main import main
from dask_diag.live import command, screen
from dask_diag.storage import follow
from dask_diag.storage.write import Writer

from .recordings import example

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]


@pytest.fixture(autouse=True)
def nothing_is_waited_for(monkeypatch):
    served = []
    monkeypatch.setattr(command, "serve", lambda path, *args, **kwargs: served.append(path))
    monkeypatch.setattr(screen, "show_last_frame", lambda path, *args: served.append(path))
    return served


def assert_refused(kind, name, why, served):
    result = CliRunner().invoke(main, [kind, name])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert f"cannot read {name}: {why}" in result.stderr
    assert not served


@pytest.mark.parametrize("kind", ["live", "top"])
def test_what_is_no_recording_is_one_line_and_status_2(kind, nothing_is_waited_for):
    Path("folder").mkdir()
    Path("text").write_text("made by another program " * 20)
    assert_refused(kind, "folder", "it is not a regular file", nothing_is_waited_for)
    assert_refused(kind, "text", "it is no recording", nothing_is_waited_for)


@pytest.mark.parametrize("kind", ["live", "top"])
def test_a_file_of_another_user_is_one_line_and_status_2(kind, monkeypatch, nothing_is_waited_for):
    def refuse(*args):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(follow, "open_without_blocking", refuse)
    why = os.strerror(errno.EACCES)
    assert_refused(kind, "run.diag", why, nothing_is_waited_for)


@pytest.mark.parametrize("kind", ["live", "top"])
def test_what_may_become_a_recording_is_shown(kind, nothing_is_waited_for):
    Path("empty").touch()
    save(example(3), "complete.diag")
    with Writer("growing.diag") as writer:
        writer.append(example(3))
        names = ["none-yet", "empty", "complete.diag", "growing.diag"]
        for name in names:
            assert CliRunner().invoke(main, [kind, name]).exit_code == 0
    assert nothing_is_waited_for == names


def test_the_viewer_of_a_run_refuses_nothing(nothing_is_waited_for, monkeypatch):
    # The run that started it is about to write the file.
    monkeypatch.setattr(sys.modules["dask_diag.cli.look"], "_leave_parent", lambda: None)
    Path("text").write_text("made by another program " * 20)
    assert CliRunner().invoke(main, ["live", "--child", "text"]).exit_code == 0
    assert nothing_is_waited_for == ["text"]
