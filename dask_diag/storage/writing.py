"""Recordings into files: at once, or as they are made."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dask_diag.errors import RecordingFileError
from dask_diag.storage import container
from dask_diag.storage.columns import NotStorableError
from dask_diag.storage.container import ABOUT, PART, SO_FAR, Entry
from dask_diag.storage.locking import close
from dask_diag.storage.parts import encode_part
from dask_diag.storage.paths import create, place, target, telling

if TYPE_CHECKING:
    from typing_extensions import Self

    from dask_diag.model.recording import Recording

__all__ = ["Writer", "save"]

_FAST, _SMALL = 1, 6


def save(recording: Recording, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a recording to a file: all of it, or nothing.

    Parameters
    ----------
    recording : Recording
    path : str or os.PathLike
    overwrite : bool, optional
        Whether a file that is there may be replaced.

    Raises
    ------
    RecordingFileError
        If it cannot be written.
    """
    final = target(path, overwrite)
    temporary = final.with_name(f".{final.name[:80]}.{secrets.token_hex(8)}.tmp")
    try:
        with Writer(temporary, called=final, level=_SMALL) as writer:
            writer.append(recording)
        with telling("write", final):
            place(temporary, final, overwrite)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


class Writer:
    """Writes a recording to a file part by part.

    What has been appended can be loaded even if this process is killed; a file that was not closed
    says so when it is loaded.

    Parameters
    ----------
    path : str or os.PathLike
    overwrite : bool, optional
        Whether a file that is there may be replaced.
    called : str or os.PathLike, optional
        What errors call the file, if not by its path.
    level : int, optional
        How hard to compress, from 1 to 9. By default fast, so as not to hold up what is recorded.

    Raises
    ------
    RecordingFileError
        If it cannot be written, as when another writes it; so does every other method.

    Notes
    -----
    Not for several threads at once. It holds no buffer: what is appended is the operating system's
    from then on, but is not safe from a loss of power before the file is closed. After an error,
    nothing more can be appended; the parts before stay.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        called: str | os.PathLike[str] | None = None,
        level: int = _FAST,
    ) -> None:
        self._path = target(path, overwrite)
        self._called = Path(called or self._path)
        self._level = level
        self._entries: list[Entry] = []
        self._choices: dict[Any, Any] = {}
        self._end = 0
        with telling("write", self._called):
            self._file: int | None = create(self._path, overwrite)
        try:
            with self._closed_if_it_fails():
                self._put([(ABOUT, container.about())])
        except RecordingFileError:
            with contextlib.suppress(OSError):
                self._path.unlink()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def append(self, part: Recording, so_far: Recording | None = None) -> None:
        """Add what follows on the parts before.

        Parameters
        ----------
        part : Recording
            The rows that are new. Positions of tasks count from the first part on. What is no
            table takes the place of what the parts before had.
        so_far : Recording, optional
            Rows that follow on those of `part` only as long as nothing else does: tasks that run
            now, computations that have not ended. The next part takes their place.
        """
        if self._file is None:
            raise RecordingFileError(f"cannot write {self._called}: it has been closed")
        number = len(self._entries) - 1
        with self._closed_if_it_fails():
            new = [(f"{PART}{number:08}", self._encoded(part, number))]
            if so_far is not None:
                new.append((f"{SO_FAR}{number:08}", self._encoded(so_far, number + 1)))
            self._put(new)

    def _encoded(self, part: Recording, number: int) -> bytes:
        return encode_part(part, number, self._level, self._choices)

    def close(self) -> None:
        """Say in the file that it is whole, and close it. It may be called again."""
        if self._file is None:
            return
        with self._closed_if_it_fails():
            self._write(container.directory(self._entries, self._end))
            os.fsync(self._file)
            file, self._file = self._file, None
            close(file)

    def abandon(self) -> None:
        """Close it as it is; when it is loaded, its state is ``truncated``."""
        self._close_after_the_last_part()

    def _put(self, named: list[tuple[str, bytes]]) -> None:
        """Write entries, of which only the first stays when the next are written."""
        written, told, at = [], [], self._end
        for name, payload in named:
            data, entry = container.entry(name, payload, at)
            written.append(data)
            told.append(entry)
            at += len(data)
        if at > container.LARGEST:
            raise RecordingFileError(
                f"cannot write {self._called}: a file holds at most {container.LARGEST:,} bytes; "
                "record less in one"
            )
        self._write(b"".join(written))
        self._entries.append(told[0])
        self._end += len(written[0])

    def _write(self, data: bytes) -> None:
        """Let the file end with this, in place of what followed on the parts."""
        assert self._file is not None
        os.lseek(self._file, self._end, os.SEEK_SET)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        os.ftruncate(self._file, self._end + len(data))

    @contextlib.contextmanager
    def _closed_if_it_fails(self) -> Iterator[None]:
        try:
            with telling("write", self._called):
                yield
        except NotStorableError as error:
            self._close_after_the_last_part()
            raise RecordingFileError(f"cannot write {self._called}: {error}") from None
        except BaseException:
            self._close_after_the_last_part()
            raise

    def _close_after_the_last_part(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(file, self._end)
            with contextlib.suppress(OSError):
                close(file)
