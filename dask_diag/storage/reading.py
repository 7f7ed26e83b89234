"""Files into recordings: nothing that they hold is executed, and nothing is guessed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dask_diag._version import __version__
from dask_diag.errors import RecordingFileError
from dask_diag.model.combine import worst_state
from dask_diag.model.recording import Recording
from dask_diag.storage import container
from dask_diag.storage.container import ABOUT, FORMAT, PART, SCHEMA_VERSION, SO_FAR, Entry
from dask_diag.storage.parts import Part, decode_part, joined
from dask_diag.storage.paths import read_from

__all__ = ["load"]

_EXPECTED = f"expected a {FORMAT} of version {SCHEMA_VERSION}"
_WHAT_TO_DO = "make it anew, or get another copy"


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
        If there is nothing to be read, or it is not such a file, or of a newer version.
    """
    data = memoryview(read_from(path, container.BEGINS, container.LARGEST + (1 << 24)))
    found = container.entries(data)
    first = _checked(path, data, next(found, None))
    reading = _Reading(first, found)
    if not reading.parts:
        raise RecordingFileError(
            f"cannot read {path}: it is damaged or was cut short within its first part, "
            f"after {len(data):,} bytes; {_WHAT_TO_DO}"
        )
    state, notices = reading.state(path, data)
    try:
        recording = joined(reading.parts, notices)
        return replace(recording, state=worst_state((recording.state, state)))
    except Exception as error:
        # Every part is as it was written, and yet they do not fit: it was not us who wrote it.
        raise RecordingFileError(
            f"cannot read {path}: its parts do not fit together ({error}); {_WHAT_TO_DO}"
        ) from error


def _checked(path: Any, data: memoryview, first: tuple[Entry, memoryview] | None) -> Entry:
    """The first entry of a recording; what is not ours to understand is refused."""
    if first is None and bytes(data[30 : 30 + len(ABOUT)]) == ABOUT.encode():
        raise RecordingFileError(f"cannot read {path}: its beginning is damaged; {_WHAT_TO_DO}")
    if first is None or first[0].name != ABOUT:
        kind = "a zip archive" if data[:4] == container.BEGINS else _as_told(bytes(data[:16]))
        raise RecordingFileError(
            f"cannot read {path}: found {kind}, {_EXPECTED}; such files are made by "
            "Recording.save or dask_diag.record"
        )
    version = _version(bytes(first[1]))
    if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
        raise RecordingFileError(
            f"cannot read {path}: found a {FORMAT} of version {version}, {_EXPECTED} or older; "
            f"upgrade dask_diag, which is {__version__} here"
        )
    return first[0]


def _as_told(begins: bytes) -> str:
    return f"a file that begins with {begins!r}" if begins else "an empty file"


def _version(about: bytes) -> Any:
    try:
        told = json.loads(about)
        return told["version"] if told["format"] == FORMAT else told["format"]
    except Exception:
        return "that is not told"


class _Reading:
    """The parts at the front of a file, as far as they are as they were written."""

    def __init__(self, first: Entry, found: Iterator[tuple[Entry, memoryview]]) -> None:
        self.parts: list[Part] = []
        self._stop = 0
        self._entries = [first]
        for told, payload in found:
            number = len(self.parts)
            if told.name not in (f"{PART}{number:08}", f"{SO_FAR}{number - 1:08}"):
                break
            try:
                self.parts.append(decode_part(payload, number))
            except Exception:
                # Its checksum is right: another program wrote it, and what it meant is not clear.
                break
            self._entries.append(told)
            self._stop = told.stop
            if told.name.startswith(SO_FAR):
                break

    def state(self, path: Any, data: memoryview) -> tuple[str, list[str]]:
        """The state of the recording as far as the file goes, and the notices that say why."""
        rest = data[self._stop :]
        if rest == container.directory(self._entries, self._stop):
            return "complete", []
        name = os.path.basename(os.fsdecode(path))
        if container.has_end(data):
            return "damaged", [
                f"{name} is damaged: it has changed since it was closed, from byte "
                f"{self._stop:,} on; the last {len(rest):,} bytes cannot be read. Everything up to "
                "there was loaded; get another copy for the rest."
            ]
        lost = f" The last {len(rest):,} bytes cannot be read." if len(rest) else ""
        return "truncated", [
            f"{name} is truncated: the writing process did not close it (killed?). Everything up "
            f"to the last complete chunk was loaded.{lost}"
        ]
