"""Files that views write."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from dask_diag.errors import DiagnosticError

__all__ = ["checked_path", "write_text"]


def checked_path(path: Path) -> Path:
    """The path, if a file can be there.

    Raises
    ------
    DiagnosticError
        If it is a folder, or in one that does not exist.
    """
    if path.is_dir():
        raise DiagnosticError(f"filename: expected a file to write, found the folder {str(path)!r}")
    if not path.parent.is_dir():
        raise DiagnosticError(
            f"filename: expected a file in a folder that exists, found {str(path)!r}; "
            f"create {str(path.parent)!r} first"
        )
    return path


def write_text(path: Path, text: str) -> None:
    """Write a file as a whole, or leave what was there as it was."""
    handle, name = tempfile.mkstemp(dir=checked_path(path).parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        # As files are made elsewhere: what the user's mask allows, not for the owner alone.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
