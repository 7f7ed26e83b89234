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
"""Lists the files that `atomic_folder` wrote, which are the only ones that it ever removes."""

_COMPRESSION = 1
"""Of text, which is written once for its size; more takes twice as long for a tenth."""

Error = type[DiagnosticError]


def as_path(value: object, argument: str = "path", error: Error = DiagnosticError) -> Path:
    """The value of an argument as a path.

    Raises
    ------
    DiagnosticError
        Or the class `error`, here and below: if it is none.
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
        If a file is there and must not be replaced; if something else is there: a directory, a
        device, a pipe; or if its directory does not exist.
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
    """Raise now what would keep a file from being written later."""
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
        Whether a file that is there may be replaced. If not, not even one that appears while the
        block runs is.
    error : type, optional
        What errors of the operating system are raised as.
    while_replacing : callable, optional
        Entered with the target's path while the file there is replaced.
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
    # The name, too, is to survive a loss of power, on systems that can promise that.
    with contextlib.suppress(OSError):
        _sync(target.parent, os.O_RDONLY)


@contextmanager
def atomic_folder(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder to write files into, which are moved to the folder `path` at the end.

    A folder that does not exist yet appears with all its files at once. With `overwrite`, files of
    an earlier call that are not written again are removed, so that no table of another recording
    stays beside the new ones; which they are is read from a manifest that each call leaves in the
    folder. Files that are not in the manifest stay, unless one is written that has their name.

    Raises
    ------
    DiagnosticError
        If `path` is not a folder, or if there is anything in it and `overwrite` is false.
    """
    target, mode = _resolved(as_path(path), DiagnosticError)
    if mode is not None and not stat.S_ISDIR(mode):
        raise DiagnosticError(f"cannot write {_shown(path)}: expected a folder, found a file")
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
    # Checked first, as a folder would stop it halfway.
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
    """The names in a manifest, none of which leads out of its folder."""
    try:
        names = json.loads(manifest.read_text(encoding="utf-8"))
        return {name for name in names if os.path.basename(name) == name and "\0" not in name}
    except (OSError, ValueError, TypeError, RecursionError):
        return set()


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file, in place of one that may be there."""
    with atomic_file(path, overwrite=True) as temporary, open_text(temporary) as stream:
        stream.write(text)


def open_text(path: Path, *, compressed: bool = False, newline: str | None = "\n") -> TextIO:
    """A file to write text into; what UTF-8 has no bytes for is escaped."""
    if compressed:
        return gzip.open(
            path, "wt", _COMPRESSION, encoding="utf-8", errors="backslashreplace", newline=newline
        )
    return path.open("w", encoding="utf-8", errors="backslashreplace", newline=newline)


@contextmanager
def os_errors_as(
    action: str, path: str | os.PathLike[str], error: Error = DiagnosticError
) -> Iterator[None]:
    """Raise what the operating system reports of a path as one line that says what to do."""
    try:
        yield
    except (OSError, UnicodeError) as reason:
        # A name with characters that file names cannot have is an error of encoding.
        raise _cannot(action, path, reason, error) from reason


def already_there(path: str | os.PathLike[str], error: Error = DiagnosticError) -> DiagnosticError:
    """The error that refuses to replace what is at a path."""
    what = "the files in " if os.path.isdir(path) else ""
    return error(
        f"will not overwrite {what}{_shown(path)}; pass overwrite=True to replace "
        f"{'them' if what else 'it'}, or choose another name"
    )


def _resolved(path: Path, error: Error) -> tuple[Path, int | None]:
    """Where a path leads, and the mode of what is there, if anything is."""
    try:
        target = Path(os.path.realpath(path))
        with contextlib.suppress(FileNotFoundError):
            return target, target.stat().st_mode
        target.parent.stat()
    except (OSError, ValueError) as reason:
        raise _cannot("write", path, reason, error) from reason
    return target, None


def _beside(target: Path) -> Path:
    """A name that nothing has, in the folder of the target, so that it can be renamed to it."""
    # The root has no name, and no folder that it is in.
    folder = target.parent if target.name else target
    return folder / f".{target.name[:80]}.{secrets.token_hex(8)}.tmp"


def _sync(path: Path, flags: int) -> None:
    file = os.open(path, flags)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _placed(temporary: Path, target: Path) -> bool:
    """Give a file its name, unless something has it; whether it has it now."""
    try:
        # One step with the check, unlike renaming, which replaces what is there.
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
    # Without the name in the reason, which may be a temporary one.
    why = getattr(reason, "strerror", None) or str(reason)
    return error(f"cannot {action} {_shown(path)}: {why}{_advice(action, path, reason)}")


def _advice(action: str, path: str | os.PathLike[str], reason: Exception) -> str:
    if isinstance(reason, IsADirectoryError):
        return "; name a file in it"
    if isinstance(reason, PermissionError):
        return f"; choose a file that you may {action}"
    if action == "write" and isinstance(reason, FileNotFoundError):
        return f"; make the directory {_shown(Path(path).parent)} first"
    return ""


def _shown(path: str | os.PathLike[str]) -> str:
    """A path on one line."""
    text = os.fsdecode(path)
    return text if text.isprintable() else ascii(text)
