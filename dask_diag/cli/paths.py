"""Paths that the command line is given: what can be seen of them before any work is done."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from dask_diag.cli.output import Failure, one_line

__all__ = ["FilePath", "beside", "check_free", "check_page", "distinct_names", "reason"]


class FilePath(click.Path):
    """A path as it is given, which shells complete; what is wrong with it is found by opening it.

    click looks at files itself, and knows nothing of names that no file can have.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Take any but the empty one as it is."""
        if value == "":
            self.fail("expected the name of a file, found ''", param, ctx)
        return value


def beside(file: str, ending: str) -> str:
    """The name of a file with another ending.

    Raises
    ------
    Failure
        If it cannot be that of a file.
    """
    try:
        return str(Path(file).with_suffix(ending))
    except ValueError:
        raise Failure(f"cannot read {one_line(repr(file))}: name a file") from None


def check_free(
    path: str | None, force: bool, *others: str | None, folder_too: bool = False
) -> None:
    """Refuse to write over what is there, unless forced to, and where nothing can be written.

    Over one of the `others`, which are read, or written too, nothing is ever written.

    Raises
    ------
    Failure, DiagnosticError
        If it is refused.
    """
    from dask_diag.atomic_files import check_target

    if path is None:
        return
    if not folder_too or not (os.path.isdir(path) or path.endswith(("/", os.sep))):
        check_target(path, overwrite=True)
    if any(other is not None and _are_the_same(path, other) for other in others):
        raise Failure(
            f"will not write over {one_line(path)}, which is also read or written; choose another "
            "name"
        )
    if not force and os.path.lexists(path):
        raise Failure(
            f"will not overwrite {one_line(path)}; pass --force to replace it, or choose another "
            "name"
        )


def check_page(path: str | None, force: bool, *others: str | None) -> None:
    """Refuse, as `check_free` does, a page that could not be written when it has been made.

    Raises
    ------
    Failure, DiagnosticError
        If it is refused.
    """
    from dask_diag.atomic_files import check_writable

    check_free(path, force, *others)
    if path is not None:
        check_writable(Path(path))


def distinct_names(one: str, other: str) -> tuple[str, str]:
    """The shortest ends of two paths that differ: names of files, with their folders if need be."""
    parts = [Path(path).parts for path in (one, other)]
    for count in range(1, max(map(len, parts)) + 1):
        first, second = (os.path.join(*part[-count:]) for part in parts)
        if first != second:
            return first, second
    return one, other


def reason(error: Exception) -> str:
    """What an error says, without the name of the file."""
    return one_line(getattr(error, "strerror", None) or error)


def _are_the_same(path: str, other: str) -> bool:
    try:
        return os.path.realpath(path) == os.path.realpath(other)
    except (OSError, ValueError):
        # No file can be at one of them: opening it fails with the reason.
        return False
