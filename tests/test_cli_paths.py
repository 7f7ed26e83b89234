"""Paths that no command can read or write: a line on stderr and status 2, and nothing is touched."""

import os
import re
import shutil
import stat
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import dask
import pytest
from click.testing import CliRunner

import dask_diag
from dask_diag.cli.main import main
from dask_diag.cli.run import run
from dask_diag.cli.runner import ProgramRunner
from dask_diag.files import MANIFEST

pytestmark = [
    pytest.mark.once,
    pytest.mark.leaves_files,
    pytest.mark.skipif(sys.platform == "win32", reason="names and modes are those of POSIX"),
]

TOO_LONG = "n" * 300
FORMATS = ("perfetto", "speedscope", "collapsed", "json", "csv", "parquet")
FOLDERS = ("csv", "parquet")

READERS = {
    "summary": "summary PATH",
    "report": "report PATH",
    "report --html": "report PATH --html new.html",
    **{f"export {name}": f"export PATH --format {name}" for name in FORMATS},
    "export -o": "export PATH -o new.json",
    "compare before": "compare PATH run.diag",
    "compare after": "compare run.diag PATH --fail-above 10%",
}
WRITERS = {
    "report": "report run.diag --html PATH",
    **{f"export {name}": f"export run.diag --format {name} -o PATH" for name in FORMATS},
    "export": "export run.diag -o PATH",
    "compare": "compare run.diag run.diag --html PATH",
    "run": "run -o PATH -c 1",
    "run --html": "run -o new.diag --html PATH -c 1",
}
UNREADABLE = {
    "": "name",
    ".": "cannot read",
    "..": "irectory",
    "/": "cannot read",
    "folder": "Is a directory",
    "folder/": "Is a directory",
    "missing": "No such file",
    "missing/run.diag": "",
    "nul\0byte": "nul\\x00byte",
    "text": "begins with 'hello",
    "text/run.diag": "Not a directory",
    "run.diag/": "Not a directory",
    "empty": "an empty file",
    "fifo": "it is not a regular file",
    "/dev/null": "",
    "/dev/full": "",
    "gone": "No such file",
    "circle": "symbolic links",
    TOO_LONG: "File name too long",
    "long/" * 2000: "File name too long",
    "no-such-\udcff-bytes": "No such file",
    "no-\ud800-bytes": "surrogates not allowed",
}
UNWRITABLE = {
    "": "expected the name of a file",
    "missing/new": "make the directory",
    "new/": "name a file in it",
    "nul\0byte": "null byte",
    "nul\0byte/": "null byte",
    "text/new": "Not a directory",
    "fifo": "not a regular file",
    "circle": "symbolic links",
    TOO_LONG: "File name too long",
    "no-\ud800-bytes": "surrogates not allowed",
    "/proc/new": "cannot write",
}
UNRUNNABLE = {
    "": "there is no such file",
    ".": "it is a directory without __main__.py",
    "folder": "it is a directory without __main__.py",
    "missing": "there is no such file",
    "text/x.py": "Not a directory",
    "nul\0byte": "null",
    "fifo": "not a regular file",
    "circle": "symbolic links",
    TOO_LONG: "File name too long",
    "no-\ud800-bytes": "surrogates not allowed",
}


@pytest.fixture(scope="module")
def run_diag(tmp_path_factory):
    """A recording, as bytes."""
    path = tmp_path_factory.mktemp("recording") / "run.diag"
    with dask_diag.record(path):
        dask.delayed(sum)([1, 2]).compute(scheduler="sync")
    return path.read_bytes()


@pytest.fixture(autouse=True)
def files(run_diag):
    Path("run.diag").write_bytes(run_diag)
    Path("text").write_text("hello")
    Path("empty").touch()
    Path("folder").mkdir()
    Path("folder/own").write_text("own")
    os.mkfifo("fifo")
    os.symlink("circle", "circle")
    os.symlink("missing", "gone")


@pytest.fixture(autouse=True)
def _no_program_runs(monkeypatch):
    """Let `run`, where it is wrong, do no harm to this process."""
    for name in ("argv", "path"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    monkeypatch.setattr(ProgramRunner, "run", lambda self: pytest.fail("it ran"))
    # Not by name: `dask_diag.cli.run` is the command.
    monkeypatch.setattr(sys.modules[run.callback.__module__], "wait_for_threads", lambda _: None)


def contents(folder="."):
    """What is in a folder: names, kinds and bytes."""
    entries = {}
    for path in sorted(Path(folder).rglob("*")):
        mode = path.lstat().st_mode
        entries[str(path)] = stat.S_IFMT(mode), path.read_bytes() if stat.S_ISREG(mode) else None
    return entries


def refused(command, path, why=""):
    """Assert that a command ends in one line; that is handed back."""
    before = contents()
    given = [path if word == "PATH" else word for word in command.split()]
    done = CliRunner().invoke(main, given)
    assert done.exit_code == 2, (given, done.exception, done.output)
    (line,) = done.stderr.splitlines()
    assert re.fullmatch("Error: .{10,}", line), (given, line)
    assert line.isprintable(), (given, line)
    assert why in line, (given, line)
    assert contents() == before, given
    return line


@pytest.mark.parametrize("command", READERS)
def test_what_cannot_be_read(command):
    for path, why in UNREADABLE.items():
        refused(READERS[command], path, why)


@pytest.mark.parametrize("command", WRITERS)
def test_what_cannot_be_written(command):
    for path, why in UNWRITABLE.items():
        if path.endswith("new/") and command.split()[-1] in FOLDERS:
            continue
        if command == "export" and path in ("new/", "/proc/new"):
            why = "expected the ending of a format"
        for options in ("", " --force"):
            refused(WRITERS[command].replace(" ", f"{options} ", 1), path, why)


@pytest.mark.parametrize("command", WRITERS)
def test_what_is_there_is_not_replaced_unasked(command):
    for path in ("text", "gone"):
        refused(WRITERS[command], path, "will not overwrite")


@pytest.mark.parametrize("command", [name for name in WRITERS if name.split()[-1] not in FOLDERS])
def test_a_directory_is_not_written_as_a_file(command):
    for path in (".", "..", "/", "folder"):
        why = "expected the ending of a format" if command == "export" else "directory"
        refused(WRITERS[command].replace(" ", " --force ", 1), path, why)
        refused(WRITERS[command], path)


@pytest.mark.parametrize("command", ["report", "export json", "compare"])
def test_what_is_read_is_not_written(command):
    for path in ("run.diag", "./run.diag", "folder/../run.diag"):
        refused(WRITERS[command].replace(" ", " --force ", 1), path, "also reads or writes it")


def test_tables_are_put_beside_what_is_in_a_folder(monkeypatch):
    monkeypatch.chdir("folder")
    done = CliRunner().invoke(main, ["export", "../run.diag", "--format", "csv", "-o", ".", "-f"])
    assert done.exit_code == 0, done.output
    assert Path("own").read_text() == "own"
    assert "tasks.csv" in os.listdir()
    assert [name for name in os.listdir() if name.startswith(".")] == [MANIFEST]


@contextmanager
def nobody():
    """Without the rights of root, who may read and write everything."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.fixture(scope="module")
def _imported(run_diag, tmp_path_factory):
    """What commands import they import as root: the package may not be nobody's to read."""
    path = str(tmp_path_factory.mktemp("imported") / "run.diag")
    Path(path).write_bytes(run_diag)
    for options in (["summary"], ["report"], *(["export", "--format", name] for name in FORMATS)):
        assert CliRunner().invoke(main, [*options, path]).exit_code == 0
    assert CliRunner().invoke(main, ["compare", path, path]).exit_code == 0


@pytest.fixture
def locked(_imported, monkeypatch):
    """A folder that everyone can reach, with a file and a folder that nobody may open."""
    folder = Path(tempfile.mkdtemp(prefix="dask_diag-test-"))
    folder.chmod(0o755)
    shutil.copy("run.diag", folder)
    (folder / "secret").write_text("print('ran')")
    (folder / "closed").mkdir(mode=0o500)
    (folder / "dark").mkdir(mode=0o000)
    (folder / "secret").chmod(0o000)
    monkeypatch.chdir(folder)
    yield folder
    for name in ("closed", "dark"):
        (folder / name).chmod(0o700)
    shutil.rmtree(folder)


FORBIDDEN = {
    **{name: (command, ["secret", "dark/run.diag"]) for name, command in READERS.items()},
    **{name: (command, ["closed/new.json", "dark/new.json"]) for name, command in WRITERS.items()},
    "run a program": ("run -o new.diag PATH", ["secret"]),
}


@pytest.mark.parametrize("command", FORBIDDEN)
def test_what_may_not_be_read_or_written(command, locked):
    arguments, paths = FORBIDDEN[command]
    for path in paths:
        line = refused_to_nobody(arguments, path)
        assert "Permission denied" in line or command == "run --html"
    assert not Path("new.diag").exists()


def refused_to_nobody(command, path):
    """The line of a command that must fail; root might replace what it must not."""
    with nobody():
        given = [path if word == "PATH" else word for word in command.split()]
        done = CliRunner().invoke(main, given)
    assert done.exit_code == 2, repr(done.exception)
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize("command", WRITERS)
def test_a_device_is_never_replaced(command, locked):
    forced = WRITERS[command].replace(" ", " --force ", 1)
    for device in filter(os.path.exists, ("/dev/null", "/dev/full", "/dev/zero")):
        assert "not a regular file" in refused_to_nobody(forced, device)
        assert stat.S_ISCHR(os.stat(device).st_mode)


def test_a_program_that_cannot_be_run():
    for path, why in UNRUNNABLE.items():
        assert "cannot run" in refused("run -o new.diag PATH", path, why)
        refused("run -m PATH", path)


def test_a_folder_that_was_removed_while_one_is_in_it(monkeypatch):
    path = os.path.abspath("run.diag")
    os.mkdir("removed")
    monkeypatch.chdir("removed")
    os.rmdir("../removed")
    assert CliRunner().invoke(main, ["summary", path]).exit_code == 0
    for arguments in (["report", path, "--html", "x.html"], ["summary", "run.diag"]):
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 2, repr(done.exception)
        (line,) = done.stderr.splitlines()
        assert "No such file" in line
