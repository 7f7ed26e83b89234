"""Reading of recordings: no content of a file is executed, and no number is guessed."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace

from dask_diag._version import __version__
from dask_diag.errors import RecordingFileError
from dask_diag.files import as_path, os_errors_as
from dask_diag.formatting import counted
from dask_diag.model.codes import State
from dask_diag.model.recording import Recording, worst_state
from dask_diag.storage import container
from dask_diag.storage.chunks import Chunk, Columns, decode_chunk, joined
from dask_diag.storage.codec import EarlierChunks
from dask_diag.storage.container import (
    ABOUT,
    CHUNK,
    FORMAT,
    PROVISIONAL,
    READ_VERSIONS,
    SCHEMA_VERSION,
    Entry,
)

_EXPECTED = f"expected a {FORMAT} of version {SCHEMA_VERSION}"
_ADVICE = "record it again, or get another copy"
_MAX_SIZE = container.MAX_SIZE + (1 << 24)


def load(path: str | os.PathLike[str]) -> Recording:
    """Read a recording from a file. No content of the file is executed.

    Parameters
    ----------
    path : str or os.PathLike
        Recording file, written by `record`, `save` or ``dask-diag run``.

    Returns
    -------
    Recording
        If the file is truncated or damaged, the part before; `state` and a notice say so.

    Raises
    ------
    RecordingFileError
        If the file cannot be read, is not a recording, or has an unsupported version.

    Examples
    --------
    >>> from dask_diag import Profiler, load, save
    >>> with Profiler() as prof:
    ...     pass
    >>> save(prof.recording, "run.diag")
    >>> load("run.diag").state
    'complete'
    """
    data = memoryview(_content(path))
    first = next(container.read_entries(data), None)
    scan = ChunkScan(check_first_entry(path, data, first))
    chunks = scan.read(data[scan.end :])
    if scan.provisional is not None:
        chunks.append(scan.provisional)
    if not chunks:
        raise RecordingFileError(
            f"cannot read {path}: it is damaged or truncated within its first chunk, "
            f"after {len(data):,} bytes; {_ADVICE}"
        )
    state, notices = _state_of(path, data, scan.entries)
    try:
        recording = joined(chunks, notices)
        # The recording that was saved may have been truncated.
        return replace(recording, state=worst_state((recording.state, state)))
    except Exception as error:
        # Each chunk is as written: another program wrote them.
        raise RecordingFileError(
            f"cannot read {path}: its chunks are inconsistent ({error}); {_ADVICE}"
        ) from error


def is_recording(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as a recording of any version does."""
    try:
        with open(path, "rb", opener=open_without_blocking) as file:
            head = file.read(64)
    except (OSError, ValueError):
        return False
    return head.startswith(container.SIGNATURE) and head[30:].startswith(ABOUT.encode())


def calling_code_in(path: str | os.PathLike[str]) -> list[tuple[str, str]] | None:
    """Name and text of the code in a recording; None if its first chunk cannot be read.

    The other tables are not decoded.
    """
    try:
        data = memoryview(_content(path))
        entries = container.read_entries(data)
        check_first_entry(path, data, next(entries, None))
        _, payload = next(entries)
        columns = {"environment": ("section", "name", "value")}
        rows = decode_chunk(payload, columns=columns).tables["environment"].to_dicts()
    except Exception:
        return None
    return [(row["name"], row["value"]) for row in rows if row["section"] == "calling code"]


def _content(path: str | os.PathLike[str]) -> bytes:
    """The content of a file, or only its first bytes if it cannot be a recording."""
    name = as_path(path, error=RecordingFileError)
    with (
        os_errors_as("read", name, RecordingFileError),
        # The path unchanged: with a slash at its end it names no file.
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
    """Open a file, without waiting for the writer of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def check_first_entry(
    path: str | os.PathLike[str], data: memoryview, first: tuple[Entry, memoryview] | None
) -> Entry:
    """Return the first entry of a recording; refuse every other file.

    Raises
    ------
    RecordingFileError
        If the file is of another kind or version, or its beginning is damaged.
    """
    if first is None and bytes(data[30 : 30 + len(ABOUT)]) == ABOUT.encode():
        raise RecordingFileError(f"cannot read {path}: its beginning is damaged; {_ADVICE}")
    if first is None or first[0].name != ABOUT:
        raise RecordingFileError(
            f"cannot read {path}: it is no recording of dask_diag ({_kind_of(data)}); "
            f"{_how_to_record(path)}"
        )
    version = _version(bytes(first[1]))
    if type(version) is not int or version not in READ_VERSIONS:
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
    if not begin:
        return "an empty file"
    return f"it begins with {begin.decode('latin-1')!r}"


def _how_to_record(path: str | os.PathLike[str]) -> str:
    program = os.fsdecode(path)
    if program.endswith((".py", ".ipynb")):
        is_script = program.endswith(".py")
        how = f"with dask-diag run {program}" if is_script else "with %%diag in a cell"
        return f"record this program {how}"
    return "dask-diag run SCRIPT writes one, and so does dask_diag.record"


def _version(about: bytes) -> object:
    try:
        content = json.loads(about)
        return content["version"] if content["format"] == FORMAT else content["format"]
    except Exception:
        return "(none)"


class ChunkScan:
    """Decodes the chunks of a file from its front, up to the first damaged one.

    Parameters
    ----------
    first : Entry
        The first entry of the file, which is no chunk.
    columns, provisional_columns : mapping, optional
        The columns of each table to decode, of rows that stay and of provisional rows; all by
        default.

    Attributes
    ----------
    provisional : Chunk or None
        The provisional rows after the last chunk that stays.
    """

    def __init__(
        self,
        first: Entry,
        columns: Columns | None = None,
        provisional_columns: Columns | None = None,
    ) -> None:
        self._columns, self._provisional_columns = columns, provisional_columns
        self._entries = [first]
        self._earlier = EarlierChunks()
        self._last: Entry | None = None
        self._decoded: tuple[bytes, Chunk] | None = None
        self.provisional: Chunk | None = None

    @property
    def end(self) -> int:
        """The position in the file after the last chunk that stays."""
        return self._entries[-1].stop

    @property
    def entries(self) -> list[Entry]:
        """The entries that were read, the provisional one last."""
        return self._entries if self._last is None else [*self._entries, self._last]

    def read(self, data: memoryview) -> list[Chunk]:
        """Decode chunks from `end` on, of which `data` has the next bytes."""
        chunks: list[Chunk] = []
        self._last = self.provisional = None
        for entry, payload in container.read_entries(data, self.end):
            number = len(self._entries) - 1
            try:
                if entry.name == f"{PROVISIONAL}{number - 1:08}":
                    self.provisional, self._last = self._provisional_of(payload), entry
                    # No chunk that stays follows: the next one takes the place of this one.
                    break
                if entry.name != f"{CHUNK}{number:08}":
                    break
                chunks.append(decode_chunk(payload, self._earlier, self._columns))
            except Exception:
                # The checksum is right: another program wrote this chunk.
                break
            self._entries.append(entry)
        return chunks

    def _provisional_of(self, payload: memoryview) -> Chunk:
        # A poll often reads the same bytes again.
        if self._decoded is None or payload != self._decoded[0]:
            chunk = decode_chunk(payload, columns=self._provisional_columns)
            self._decoded = bytes(payload), chunk
        return self._decoded[1]


def _state_of(
    path: str | os.PathLike[str], data: memoryview, entries: list[Entry]
) -> tuple[str, list[str]]:
    """The state of the file, and the notices that say why."""
    stop = entries[-1].stop
    end = data[stop:]
    if end == container.directory(entries, stop):
        return State.COMPLETE, []
    name = os.path.basename(os.fsdecode(path))
    is_closed = container.ends_with_directory(data)
    if is_closed or container.goes_on(entries, stop, end):
        how = "has changed since it was closed" if is_closed else "differs from what was written"
        return State.DAMAGED, [
            f"{name} is damaged: it {how}, from byte {stop:,} on; the last "
            f"{counted(len(end), 'byte')} cannot be read. Everything up to there was loaded; "
            "get another copy for the rest."
        ]
    lost = f" The last {counted(len(end), 'byte')} cannot be read." if len(end) else ""
    return State.TRUNCATED, [
        f"{name} is truncated: the writing process did not close it (killed?). Everything up "
        f"to the last complete chunk was loaded.{lost}"
    ]
