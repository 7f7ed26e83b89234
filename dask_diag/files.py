"""Files and folders that appear when they are complete, or not at all."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TextIO

from dask_diag.errors import DiagnosticError

MANIFEST = ".dask_diag-files.json"
"""The list of files that `atomic_folder` wrote; it never removes other files."""

_COMPRESSION = 1
"""Level of compressed text; a higher one takes twice as long for a tenth less."""

Error = type[DiagnosticError]


def as_path(value: object, argument: str = "path", error: Error = DiagnosticError) -> Path:
    """The value of an argument as a path.

    Raises
    ------
    DiagnosticError
        Or the class `error`, here and below: if the value is no path.
    """
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise error(f"{argument}: expected a path, found {type(value).__name__}")
    if not text:
        raise error(f"{argument}: expected the name of a file, found ''")
    if "\0" in text:
        raise error(f"{argument}: expected a path, found one with a null byte: {text!r}")
    return Path(text)


def check_target(
    path: str | os.PathLike[str], overwrite: bool, error: Error = DiagnosticError
) -> Path:
    """The path with links followed, if a file can be written there.

    Raises
    ------
    DiagnosticError
        If a file exists and must not be replaced; if the path is a directory, a device or a pipe;
        or if its directory does not exist.
    """
    target, mode = _resolved(as_path(path, error=error), error)
    names_a_folder = os.fspath(path).endswith(("/", os.sep))
    if names_a_folder or (mode is not None and stat.S_ISDIR(mode)):
        raise error(f"cannot write {_shown(path)}: it is a directory; name a file in it")
    if mode is not None and not stat.S_ISREG(mode):
        raise error(f"cannot write {_shown(path)}: it is not a regular file")
    if mode is not None and not overwrite:
        raise already_there(path, error)
    return target


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise now the error that would keep a file from being written later."""
    target = check_target(path, overwrite=True)
    probe = _beside(target)
    with os_errors_as("write", path):
        try:
            probe.touch()
        finally:
            probe.unlink(missing_ok=True)


@contextmanager
def atomic_file(
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    error: Error = DiagnosticError,
    while_replacing: Callable[[Path], AbstractContextManager[object]] = contextlib.nullcontext,
) -> Iterator[Path]:
    """A temporary path to write to, which becomes `path` at the end of the block.

    Parameters
    ----------
    path : str or os.PathLike
        Links are followed.
    overwrite : bool, optional
        Whether an existing file may be replaced, or one that appears while the block runs.
    error : type, optional
        The class that errors of the operating system are raised as.
    while_replacing : callable, optional
        A context manager of the target's path, entered while the file is replaced.
    """
    target = check_target(path, overwrite, error)
    temporary = _beside(target)
    with os_errors_as("write", path, error):
        try:
            yield temporary
            _sync(temporary, os.O_RDWR)
            if overwrite:
                with while_replacing(target):
                    os.replace(temporary, target)
            elif not _placed(temporary, target):
                raise already_there(path, error)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
    # On systems that allow it, the name, too, survives a loss of power.
    with contextlib.suppress(OSError):
        _sync(target.parent, os.O_RDONLY)


@contextmanager
def atomic_folder(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder to write files into, which are moved to the folder `path` at the end.

    A new folder appears with all files at once. With `overwrite`, files of an earlier call that are
    not written again are removed, so that no table of another recording stays beside the new ones:
    each call leaves a manifest of its files. Files that are not in the manifest stay, unless a file
    of the same name is written.

    Raises
    ------
    DiagnosticError
        If `path` is not a folder, or not an empty one and `overwrite` is false.
    """
    target, mode = _resolved(as_path(path), DiagnosticError)
    if mode is not None and not stat.S_ISDIR(mode):
        raise DiagnosticError(f"cannot write {_shown(path)}: expected a directory, found a file")
    temporary = _beside(target)
    with os_errors_as("write", path):
        if mode is not None and not overwrite and os.listdir(target):
            raise already_there(path)
        try:
            temporary.mkdir()
            yield temporary
            names = sorted(os.listdir(temporary))
            (temporary / MANIFEST).write_text(json.dumps(names), encoding="utf-8")
            if mode is None:
                os.rename(temporary, target)
            else:
                _move_files([*names, MANIFEST], temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _move_files(names: list[str], source: Path, target: Path) -> None:
    # Checked first, as a folder would end the loop halfway.
    for name in names:
        if (target / name).is_dir():
            raise DiagnosticError(f"cannot write {_shown(target / name)}: it is a directory")
    for name in _listed(target / MANIFEST) - set(names):
        stale = target / name
        if stale.is_file() and not stale.is_symlink():
            stale.unlink()
    for name in names:
        os.replace(source / name, target / name)


def _listed(manifest: Path) -> set[str]:
    """The names in a manifest that are names of files in its folder."""
    try:
        names = json.loads(manifest.read_text(encoding="utf-8"))
        return {name for name in names if os.path.basename(name) == name and "\0" not in name}
    except (OSError, ValueError, TypeError, RecursionError):
        return set()


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file, or replace an existing one."""
    with atomic_file(path, overwrite=True) as temporary, open_text(temporary) as stream:
        stream.write(text)


def open_text(path: Path, *, compressed: bool = False, newline: str | None = "\n") -> TextIO:
    """Open a file for text; characters without bytes in UTF-8 are escaped."""
    if compressed:
        return gzip.open(
            path, "wt", _COMPRESSION, encoding="utf-8", errors="backslashreplace", newline=newline
        )
    return path.open("w", encoding="utf-8", errors="backslashreplace", newline=newline)


@contextmanager
def os_errors_as(
    action: str, path: str | os.PathLike[str], error: Error = DiagnosticError
) -> Iterator[None]:
    """Raise errors of the operating system on a path as one line with advice."""
    try:
        yield
    except (OSError, UnicodeError) as reason:
        # Characters that file names cannot have are errors of encoding.
        raise _cannot(action, path, reason, error) from reason


def already_there(path: str | os.PathLike[str], error: Error = DiagnosticError) -> DiagnosticError:
    """The error for a path that exists and must not be replaced."""
    what = "the files in " if os.path.isdir(path) else ""
    return error(
        f"will not overwrite {what}{_shown(path)}; pass overwrite=True to replace "
        f"{'them' if what else 'it'}, or choose another name"
    )


def _resolved(path: Path, error: Error) -> tuple[Path, int | None]:
    """The target of a path with its links followed, and the mode of an existing target."""
    try:
        target = Path(os.path.realpath(path))
        with contextlib.suppress(FileNotFoundError):
            return target, target.stat().st_mode
        target.parent.stat()
    except (OSError, ValueError) as reason:
        raise _cannot("write", path, reason, error) from reason
    return target, None


def _beside(target: Path) -> Path:
    """An unused name in the folder of the target, to be renamed to the target."""
    # The root has no name and no parent.
    folder = target.parent if target.name else target
    return folder / f".{target.name[:80]}.{secrets.token_hex(8)}.tmp"


def _sync(path: Path, flags: int) -> None:
    file = os.open(path, flags)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _placed(temporary: Path, target: Path) -> bool:
    """Rename a file unless the target exists; return whether the file was renamed."""
    try:
        # Atomic with the check, unlike renaming, which replaces an existing file.
        os.link(temporary, target)
    except FileExistsError:
        return False
    except OSError:
        # A file system without links.
        if target.exists():
            return False
        os.replace(temporary, target)
    return True


def _cannot(
    action: str, path: str | os.PathLike[str], reason: Exception, error: Error
) -> DiagnosticError:
    # Without the file name in the reason, which may be a temporary one.
    why = getattr(reason, "strerror", None) or str(reason)
    return error(f"cannot {action} {_shown(path)}: {why}{_advice(action, path, reason)}")


def _advice(action: str, path: str | os.PathLike[str], reason: Exception) -> str:
    if isinstance(reason, IsADirectoryError):
        return "; name a file in it"
    if isinstance(reason, PermissionError):
        return f"; choose a file that you may {action}"
    if not isinstance(reason, FileNotFoundError):
        return ""
    if action == "write":
        return f"; make the directory {_shown(Path(path).parent)} first"
    return "; dask-diag run SCRIPT writes a recording" * (action == "read")


def not_yet(path: str | os.PathLike[str]) -> str:
    """A line on a file that does not exist and is waited for; empty if it exists."""
    if os.path.exists(path):
        return ""
    return f"{_shown(path)} does not exist yet: waiting for it; Ctrl-C ends"


def _shown(path: str | os.PathLike[str]) -> str:
    """A path on one line."""
    text = os.fsdecode(path)
    return text if text.isprintable() else ascii(text)
