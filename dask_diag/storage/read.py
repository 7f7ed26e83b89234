"""Recordings from files: nothing in them is executed, and nothing is guessed."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import replace

from dask_diag._version import __version__
from dask_diag.errors import RecordingFileError
from dask_diag.files import as_path, os_errors_as
from dask_diag.model.codes import State
from dask_diag.model.combine import worst_state
from dask_diag.model.recording import Recording
from dask_diag.storage import container
from dask_diag.storage.chunks import Chunk, decode_chunk, joined
from dask_diag.storage.codec import Preceding
from dask_diag.storage.container import ABOUT, CHUNK, FORMAT, PROVISIONAL, SCHEMA_VERSION, Entry

_EXPECTED = f"expected a {FORMAT} of version {SCHEMA_VERSION}"
_ADVICE = "record it again, or get another copy"
_MAX_SIZE = container.MAX_SIZE + (1 << 24)


def load(path: str | os.PathLike[str]) -> Recording:
    """Read the recording in a file. Nothing in it is executed.

    Parameters
    ----------
    path : str or os.PathLike

    Returns
    -------
    Recording
        Of a file that is truncated or damaged, what comes before; its `state` and a notice say so.

    Raises
    ------
    RecordingFileError
        If the file cannot be read, is not a recording, or is of another version.
    """
    data = memoryview(_content(path))
    entries = container.read_entries(data)
    first = check_first_entry(path, data, next(entries, None))
    reading = _Reading(first, entries)
    if not reading.chunks:
        raise RecordingFileError(
            f"cannot read {path}: it is damaged or truncated within its first chunk, "
            f"after {len(data):,} bytes; {_ADVICE}"
        )
    state, notices = reading.state(path, data)
    try:
        recording = joined(reading.chunks, notices)
        # What was saved may have been truncated itself.
        return replace(recording, state=worst_state((recording.state, state)))
    except Exception as error:
        # Every chunk is as it was written: another program wrote them.
        raise RecordingFileError(
            f"cannot read {path}: its chunks do not fit together ({error}); {_ADVICE}"
        ) from error


def _content(path: str | os.PathLike[str]) -> bytes:
    """What is in a file, or only its first bytes, if it cannot be a recording."""
    name = as_path(path, error=RecordingFileError)
    with (
        os_errors_as("read", name, RecordingFileError),
        # As it was given: with a slash at its end it is no file.
        open(path, "rb", opener=open_without_blocking) as file,
    ):
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise RecordingFileError(f"cannot read {name}: it is not a regular file")
        head = file.read(64)
        if not head.startswith(container.SIGNATURE) or status.st_size > _MAX_SIZE:
            return head
        return head + file.read(max(0, status.st_size - len(head)))


def open_without_blocking(path: str, flags: int) -> int:
    """Open a pipe, too, without waiting for its writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def check_first_entry(
    path: str | os.PathLike[str], data: memoryview, first: tuple[Entry, memoryview] | None
) -> Entry:
    """The first entry of a recording; every other file is refused.

    Raises
    ------
    RecordingFileError
        If it is of another kind, of another version, or its beginning is damaged.
    """
    if first is None and bytes(data[30 : 30 + len(ABOUT)]) == ABOUT.encode():
        raise RecordingFileError(f"cannot read {path}: its beginning is damaged; {_ADVICE}")
    if first is None or first[0].name != ABOUT:
        raise RecordingFileError(
            f"cannot read {path}: found {_kind_of(data)}, {_EXPECTED}; such files are made by "
            "dask_diag.save or dask_diag.record"
        )
    version = _version(bytes(first[1]))
    if type(version) is not int or version != SCHEMA_VERSION:
        is_older = type(version) is int and version < SCHEMA_VERSION
        advice = (
            "record it again" if is_older else f"upgrade dask_diag, which is {__version__} here"
        )
        raise RecordingFileError(
            f"cannot read {path}: found version {version}, {_EXPECTED}; {advice}"
        )
    return first[0]


def _kind_of(data: memoryview) -> str:
    begin = bytes(data[:16])
    if begin.startswith(container.SIGNATURE):
        return "a zip archive"
    return f"a file that begins with {begin!r}" if begin else "an empty file"


def _version(about: bytes) -> object:
    try:
        content = json.loads(about)
        return content["version"] if content["format"] == FORMAT else content["format"]
    except Exception:
        return "(none)"


class _Reading:
    """The chunks at the front of a file, up to the first that is not as it was written."""

    def __init__(self, first: Entry, entries: Iterator[tuple[Entry, memoryview]]) -> None:
        self.chunks: list[Chunk] = []
        self._entries = [first]
        preceding = Preceding()
        for entry, payload in entries:
            number = len(self.chunks)
            if entry.name not in (f"{CHUNK}{number:08}", f"{PROVISIONAL}{number - 1:08}"):
                break
            try:
                stays = entry.name.startswith(CHUNK)
                self.chunks.append(decode_chunk(payload, preceding if stays else None))
            except Exception:
                # Its checksum is right: another program wrote it, and what it means is not clear.
                break
            self._entries.append(entry)

    def state(self, path: str | os.PathLike[str], data: memoryview) -> tuple[str, list[str]]:
        """The state of the file, and the notices that say why."""
        stop = self._entries[-1].stop
        end = data[stop:]
        if end == container.directory(self._entries, stop):
            return State.COMPLETE, []
        name = os.path.basename(os.fsdecode(path))
        is_closed = container.ends_with_directory(data)
        if is_closed or container.goes_on(self._entries, stop, end):
            how = "has changed since it was closed" if is_closed else "is not as it was written"
            return State.DAMAGED, [
                f"{name} is damaged: it {how}, from byte {stop:,} on; the last {len(end):,} bytes "
                "cannot be read. Everything up to there was loaded; get another copy for the rest."
            ]
        lost = f" The last {len(end):,} bytes cannot be read." if len(end) else ""
        return State.TRUNCATED, [
            f"{name} is truncated: the writing process did not close it (killed?). Everything up "
            f"to the last complete chunk was loaded.{lost}"
        ]
