"""Files and folders appear when they are complete, or not at all."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import stat
from pathlib import Path

import pytest

from dask_diag.errors import DiagnosticError, RecordingFileError
from dask_diag.files import (
    MANIFEST,
    atomic_file,
    atomic_folder,
    check_writable,
    open_text,
    write_text,
)

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]


def disk_full(*args):
    raise OSError(28, "No space left on device")


def write(path, text, **options):
    with atomic_file(path, **options) as temporary:
        temporary.write_text(text)


def write_folder(path, *names, text="new", **options):
    with atomic_folder(path, **options) as folder:
        for name in names:
            (folder / name).write_text(text)


def content():
    """What is in the working directory."""
    return {
        path.name: sorted(os.listdir(path)) if path.is_dir() else path.read_text()
        for path in Path().iterdir()
        if path.is_dir() or path.is_file()
    }


def test_nothing_is_there_until_the_file_is_complete(monkeypatch):
    synced, fsync = [], os.fsync

    def noted(file):
        kind = "folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "file"
        synced.append((kind, os.path.exists("page.html")))
        fsync(file)

    monkeypatch.setattr(os, "fsync", noted)
    with atomic_file("page.html") as temporary:
        temporary.write_text("all of it")
        assert os.listdir() == [temporary.name]
    assert content() == {"page.html": "all of it"}
    assert synced == [("file", False), ("folder", True)]
    Path("other").write_text("")
    assert os.stat("page.html").st_mode == os.stat("other").st_mode
    with atomic_folder("folder") as temporary:
        (temporary / "a.csv").write_text("a")
        assert not os.path.exists("folder")
    assert content()["folder"] == [MANIFEST, "a.csv"]


def test_a_file_is_replaced_only_with_overwrite():
    guarded = []

    @contextlib.contextmanager
    def guard(path):
        guarded.append((path.name, path.read_text()))
        yield
        guarded.append((path.name, path.read_text()))

    write("page.html", "old")
    for error in (DiagnosticError, RecordingFileError):
        with pytest.raises(
            error, match=r"^will not overwrite page.html; pass overwrite=True to replace it, or"
        ):
            write("page.html", "new", error=error)
    assert content() == {"page.html": "old"}
    write("page.html", "new", overwrite=True, while_replacing=guard)
    assert guarded == [("page.html", "old"), ("page.html", "new")]


@pytest.mark.parametrize("has_links", [True, False])
def test_a_file_that_appears_meanwhile_is_not_replaced(has_links, monkeypatch):
    if not has_links:
        monkeypatch.setattr(os, "link", disk_full)
    with pytest.raises(DiagnosticError, match="will not overwrite"):
        with atomic_file("page.html") as temporary:
            temporary.write_text("new")
            Path("page.html").write_text("other")
    write("other.html", "new")
    assert content() == {"page.html": "other", "other.html": "new"}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("step", ["fsync", "replace", "rename"])
def test_nothing_is_left_of_what_cannot_be_written(step, overwrite, monkeypatch):
    Path("page.html").write_text("old")
    if overwrite:
        os.mkdir("folder")
    before = content()
    for failing in {step, "link", *(["replace"] if step == "rename" else [])}:
        monkeypatch.setattr(os, failing, disk_full)
    if step != "rename":
        with pytest.raises(DiagnosticError, match=r"^cannot write (page|new).html: No space left"):
            write("page.html" if overwrite else "new.html", "new", overwrite=overwrite)
    else:
        with pytest.raises(DiagnosticError, match=r"^cannot write folder: No space left"):
            write_folder("folder", "a.csv")
    assert content() == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ZeroDivisionError])
def test_nothing_is_left_of_a_block_that_fails(error, monkeypatch):
    for make, name in ((atomic_file, ""), (atomic_folder, "a.csv")):
        with pytest.raises(error), make("new") as temporary:
            (temporary / name if name else temporary).write_text("half")
            raise error
    monkeypatch.setattr(os, "fsync", lambda file: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        write("page.html", "new")
    assert content() == {}


def test_links_are_followed():
    os.mkdir("there")
    os.symlink("there/page.html", "link")
    write("link", "new")
    write("link", "newer", overwrite=True)
    assert os.path.islink("link")
    assert Path("there/page.html").read_text() == "newer"
    os.symlink("missing", "folder")
    write_folder("folder", "a.csv")
    assert sorted(os.listdir("missing")) == [MANIFEST, "a.csv"]


ODD_TARGETS = {
    "folder": "it is a directory; name a file in it$",
    ".": "it is a directory",
    "/": "it is a directory",
    "new/": "it is a directory",
    "pipe": "it is not a regular file$",
    "/dev/null": "it is not a regular file$",
    "no/page.html": r"No such file or directory; make the directory no first$",
    "file/page.html": "Not a directory$",
    "loop": "Too many levels of symbolic links$",
    "x" * 300: "File name too long$",
    "a\nb\x1b/page.html": r"'a\\nb\\x1b'",
}


@pytest.mark.parametrize("check", [check_writable, lambda path: write(path, "x", overwrite=True)])
def test_what_no_file_can_be_written_to_is_refused(check):
    os.mkdir("folder")
    os.mkfifo("pipe")
    os.symlink("loop", "loop")
    Path("file").write_text("")
    before = sorted(os.listdir())
    for path, reason in ODD_TARGETS.items():
        with pytest.raises(DiagnosticError, match=reason) as caught:
            check(path)
        assert len(str(caught.value).splitlines()) == 1
        assert ".tmp" not in str(caught.value)
        assert str(caught.value).startswith("cannot write ")
    check_writable("page.html")
    check_writable("file")
    assert sorted(os.listdir()) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_must_not_be_written_is_refused_before_anything_runs():
    os.mkdir("closed", 0o500)
    with pytest.raises(DiagnosticError, match=r"; choose a file that you may write$"):
        check_writable("closed/page.html")


def test_text_that_has_no_utf_8_is_escaped():
    write_text("page.html", "a\ud800b\n")
    assert Path("page.html").read_bytes() == b"a\\ud800b\n"
    with open_text(Path("x.gz"), compressed=True) as stream:
        stream.write("a\ud800b\n")
    assert gzip.decompress(Path("x.gz").read_bytes()) == b"a\\ud800b\n"


def test_only_what_an_earlier_call_wrote_is_removed():
    write_folder("folder", "a.csv", "b.csv", "c.csv", "d.csv", text="old")
    Path("folder/own.csv").write_text("own")
    for name in "cd":
        Path(f"folder/{name}.csv").unlink()
    os.mkdir("folder/c.csv")
    os.symlink("a.csv", "folder/d.csv")
    # A folder of a file's name stops it before anything is moved.
    with pytest.raises(DiagnosticError, match=r"c\.csv: it is a directory$"):
        write_folder("folder", "a.csv", "c.csv", overwrite=True)
    assert Path("folder/a.csv").read_text() == "old"
    write_folder("folder", "a.csv", overwrite=True)
    assert content() == {"folder": [MANIFEST, "a.csv", "c.csv", "d.csv", "own.csv"]}
    assert [Path(f"folder/{n}.csv").read_text() for n in ("a", "own")] == ["new", "own"]
    assert os.path.islink("folder/d.csv")


@pytest.mark.parametrize(
    "manifest",
    ["[", "7", "{}", "null", "[7]", '["../file", "/etc/hostname", "", ".", "..", "sub/file"]'],
)
def test_a_manifest_leads_to_no_other_file(manifest):
    Path("file").write_text("own")
    os.makedirs("folder/sub")
    Path("folder/sub/file").write_text("own")
    Path(f"folder/{MANIFEST}").write_text(manifest)
    write_folder("folder", "a.csv", overwrite=True)
    assert content() == {"file": "own", "folder": [MANIFEST, "a.csv", "sub"]}
    assert os.path.exists("folder/sub/file")
    assert json.loads(Path(f"folder/{MANIFEST}").read_text()) == ["a.csv"]


def test_a_folder_in_use_is_refused_without_overwrite():
    os.mkdir("folder")
    write_folder("folder", "a.csv")
    Path("file").write_text("own")
    for path, overwrite, reason in (
        ("folder", False, "^will not overwrite the files in folder; pass overwrite=True to repl"),
        ("file", True, "file: expected a directory, found a file"),
        ("no/folder", False, "make the directory no first"),
        ("/", False, "will not overwrite the files in /;"),
    ):
        with pytest.raises(DiagnosticError, match=reason):
            write_folder(path, "b.csv", overwrite=overwrite)
    assert content() == {"file": "own", "folder": [MANIFEST, "a.csv"]}
    write_folder(".", "a.csv", overwrite=True)
    assert sorted(os.listdir()) == [MANIFEST, "a.csv", "file", "folder"]
