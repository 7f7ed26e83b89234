"""Files and folders that views write: they appear when they are complete, or not at all."""

from __future__ import annotations

import gzip
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from dask_diag.errors import DiagnosticError

__all__ = [
    "check_writable",
    "checked_path",
    "opened",
    "path_of",
    "whole_file",
    "whole_folder",
    "write_text",
]

_COMPRESSION = 1
"""Traces are written for their size once; more takes twice as long for a tenth."""


def path_of(given: object, name: str = "filename") -> Path:
    """What is given as a path; `name` is what the user knows it by.

    Raises
    ------
    DiagnosticError
        If it is none.
    """
    path = os.fspath(given) if isinstance(given, (str, os.PathLike)) else None
    if not isinstance(path, str):
        raise DiagnosticError(f"{name}: expected a path, found {type(given).__name__}")
    return Path(path)


def checked_path(path: Path) -> Path:
    """The path, if a file can be there.

    Raises
    ------
    DiagnosticError
        If it is a folder, or in one that does not exist; or a device or a pipe, which would be
        replaced.
    """
    if _exists(path) and not path.is_file():
        found = "the folder" if path.is_dir() else "what is no ordinary file:"
        raise DiagnosticError(f"filename: expected a file to write, found {found} {str(path)!r}")
    _check_parent(path)
    return path


def check_writable(path: Path) -> None:
    """Say now what would keep a file from being written later.

    Raises
    ------
    DiagnosticError
        If it cannot be written.
    """
    probe = _beside(checked_path(path))
    with _told_of(path):
        probe.touch()
        probe.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a file, or leave what was there as it was."""
    with whole_file(checked_path(path), overwrite=True) as unfinished:
        unfinished.write_text(text, encoding="utf-8", errors="backslashreplace")


@contextmanager
def whole_file(path: Path, overwrite: bool) -> Iterator[Path]:
    """Where to write what will be `path`; it is put there at the end, if nothing failed."""
    checked_path(path)
    _check_free(path, overwrite)
    unfinished = _beside(path)
    try:
        with _told_of(path):
            yield unfinished
            _check_free(path, overwrite)
            unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path, overwrite: bool) -> Iterator[Path]:
    """A folder to write files into; they are put into `path` at the end, if nothing failed.

    What else is there stays.
    """
    if _exists(path) and not path.is_dir():
        raise DiagnosticError(f"filename: expected a folder, found the file {str(path)!r}")
    _check_parent(path)
    with _told_of(path):
        is_in_use = path.is_dir() and any(path.iterdir())
    if is_in_use:
        _check_free(path, overwrite)
    unfinished = _beside(path)
    try:
        with _told_of(path):
            unfinished.mkdir()
            yield unfinished
            path.mkdir(exist_ok=True)
            for file in sorted(unfinished.iterdir()):
                file.replace(path / file.name)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def opened(path: Path, compressed: bool, newline: str | None = "\n") -> Iterator[TextIO]:
    """A file to write text into; what UTF-8 has no bytes for is spelled out."""
    if compressed:
        with gzip.open(
            path, "wt", _COMPRESSION, encoding="utf-8", errors="backslashreplace", newline=newline
        ) as packed:
            yield packed
    else:
        with path.open("w", encoding="utf-8", errors="backslashreplace", newline=newline) as stream:
            yield stream


def _beside(path: Path) -> Path:
    # The folders "." and "/" have no name that another could take the place of.
    folder = path.parent if path.name else path
    return folder / f".dask_diag-{os.getpid()}-{secrets.token_hex(4)}"


def _exists(path: Path) -> bool:
    """Whether something is there; an error if nothing can be."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise _cannot(path, error) from error
    return True


def _check_parent(path: Path) -> None:
    if not path.parent.is_dir():
        raise DiagnosticError(
            f"filename: expected to write into a folder that exists, found {str(path)!r}; "
            f"create {str(path.parent)!r} first"
        )


def _check_free(path: Path, overwrite: bool) -> None:
    if not overwrite and _exists(path):
        what = "files in the folder" if path.is_dir() else "the file"
        raise DiagnosticError(
            f"filename: {what} {str(path)!r} would be overwritten; choose another, or pass "
            "overwrite=True"
        )


@contextmanager
def _told_of(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _cannot(path, error) from error


def _cannot(path: Path, error: Exception) -> DiagnosticError:
    # Without the name that the system tells, which may be a temporary one.
    why = getattr(error, "strerror", None) or str(error)
    return DiagnosticError(f"filename: cannot write {str(path)!r}: {why}")
