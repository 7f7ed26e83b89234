"""Recordings into files: at once, or chunk by chunk while they are made."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dask_diag.atomic_files import atomic_file, check_target, os_errors_as
from dask_diag.errors import RecordingFileError
from dask_diag.storage import zip_stream
from dask_diag.storage.chunks import encode_chunk
from dask_diag.storage.encoding import NotStorableError
from dask_diag.storage.locking import close, create_locked, locked
from dask_diag.storage.preceding import Preceding
from dask_diag.storage.zip_stream import ABOUT, CHUNK, PROVISIONAL, Entry

if TYPE_CHECKING:
    from typing_extensions import Self

    from dask_diag.model.recording import Recording

__all__ = ["Writer", "save"]

_FAST, _SMALL = 1, 4
"""Levels of zlib; from 5 on, it takes twice as long for two hundredths."""


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
        If it cannot be written; a file that is there stays as it is.
    """
    with (
        atomic_file(
            path, overwrite=overwrite, error=RecordingFileError, while_replacing=locked
        ) as temporary,
        Writer(temporary, shown_as=path, level=_SMALL) as writer,
    ):
        writer.append(recording)


class Writer:
    """Writes a recording to a file chunk by chunk.

    What has been appended can be loaded even if this process is killed; a file that was not closed
    is found to be truncated.

    Parameters
    ----------
    path : str or os.PathLike
    overwrite : bool, optional
        Whether a file that is there may be replaced.
    shown_as : str or os.PathLike, optional
        What errors call the file, if not by its path.
    level : int, optional
        How hard to compress, from 1 to 9. By default fast, so as not to slow the computation down.

    Raises
    ------
    RecordingFileError
        If it cannot be written, as when another writer has it open; so does every other method.

    Notes
    -----
    Not thread-safe. There is no buffer: what is appended is handed to the operating system at once,
    but may be lost with power before the file is closed. After an error nothing more can be
    appended; the chunks before stay.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        shown_as: str | os.PathLike[str] | None = None,
        level: int = _FAST,
    ) -> None:
        self._path = check_target(path, overwrite, RecordingFileError)
        self._shown_as = Path(os.fsdecode(shown_as or self._path))
        self._level = level
        self._preceding = Preceding()
        self._entries: list[Entry] = []
        self._end = 0
        with os_errors_as("write", self._shown_as, RecordingFileError):
            self._file: int | None = create_locked(self._path, overwrite)
        try:
            with self._closed_on_error():
                self._put([(ABOUT, zip_stream.about())])
        except RecordingFileError:
            with contextlib.suppress(OSError):
                self._path.unlink()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def append(self, chunk: Recording, provisional: Recording | None = None) -> None:
        """Add the rows that follow on the chunks before.

        Parameters
        ----------
        chunk : Recording
            The new rows. Indices of tasks count from the first chunk on. What is not a table takes
            the place of what the chunks before had.
        provisional : Recording, optional
            Rows that are true for now: running tasks, computations that have not ended. The next
            chunk takes their place.
        """
        if self._file is None:
            raise RecordingFileError(f"cannot write {self._shown_as}: it has been closed")
        number = len(self._entries) - 1
        with self._closed_on_error():
            payload = encode_chunk(chunk, self._level, self._preceding)
            new = [(f"{CHUNK}{number:08}", payload)]
            if provisional is not None:
                content = encode_chunk(provisional, self._level)
                new.append((f"{PROVISIONAL}{number:08}", content))
            self._put(new)

    def close(self) -> None:
        """Mark the file as complete, and close it. It may be called again."""
        if self._file is None:
            return
        with self._closed_on_error():
            self._write(zip_stream.directory(self._entries, self._end))
            os.fsync(self._file)
            file, self._file = self._file, None
            close(file)

    def abandon(self) -> None:
        """Close it as it is; when it is loaded, it is truncated."""
        self._close_after_last_chunk()

    def _put(self, named: list[tuple[str, bytes]]) -> None:
        """Write entries, of which only the first stays when the next are written."""
        data, start = [], self._end
        entries = []
        for name, payload in named:
            content, entry = zip_stream.entry(name, payload, start)
            data.append(content)
            entries.append(entry)
            start = entry.stop
        if start > zip_stream.MAX_SIZE:
            raise RecordingFileError(
                f"cannot write {self._shown_as}: a file holds at most {zip_stream.MAX_SIZE:,} "
                "bytes; record less in one"
            )
        self._write(b"".join(data))
        self._entries.append(entries[0])
        self._end = entries[0].stop

    def _write(self, data: bytes) -> None:
        """Let the file end with this, in place of what followed on the chunks."""
        assert self._file is not None
        os.lseek(self._file, self._end, os.SEEK_SET)
        unwritten = memoryview(data)
        while unwritten:
            unwritten = unwritten[os.write(self._file, unwritten) :]
        os.ftruncate(self._file, self._end + len(data))

    @contextlib.contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            with os_errors_as("write", self._shown_as, RecordingFileError):
                yield
        except (NotStorableError, ValueError) as error:
            # A ValueError is json's, of a whole number with too many digits.
            self._close_after_last_chunk()
            raise RecordingFileError(f"cannot write {self._shown_as}: {error}") from None
        except BaseException:
            self._close_after_last_chunk()
            raise

    def _close_after_last_chunk(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(file, self._end)
            with contextlib.suppress(OSError):
                close(file)
