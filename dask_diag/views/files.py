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

__all__ = ["checked_path", "opened", "whole_file", "whole_folder", "write_text"]

_COMPRESSION = 1
"""Traces are written for their size once; more takes twice as long for a tenth."""


def checked_path(path: Path) -> Path:
    """The path, if a file can be there.

    Raises
    ------
    DiagnosticError
        If it is a folder, or in one that does not exist.
    """
    if path.is_dir():
        raise DiagnosticError(f"filename: expected a file to write, found the folder {str(path)!r}")
    _check_parent(path)
    return path


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
    if path.exists() and not path.is_dir():
        raise DiagnosticError(f"filename: expected a folder, found the file {str(path)!r}")
    _check_parent(path)
    if path.is_dir() and any(path.iterdir()):
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
    return path.with_name(f".dask_diag-{os.getpid()}-{secrets.token_hex(4)}")


def _check_parent(path: Path) -> None:
    if not path.parent.is_dir():
        raise DiagnosticError(
            f"filename: expected to write into a folder that exists, found {str(path)!r}; "
            f"create {str(path.parent)!r} first"
        )


def _check_free(path: Path, overwrite: bool) -> None:
    if path.exists() and not overwrite:
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
        raise DiagnosticError(f"filename: cannot write {str(path)!r}: {error}") from error
