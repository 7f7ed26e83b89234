"""What a user reads of a file that cannot be read, word by word; and how little of it is read."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

import dask_diag
from dask_diag import load, save
from dask_diag.errors import RecordingFileError
from dask_diag.storage import container
from dask_diag.storage.write import Writer

from .recordings import assert_same_table, chunks_of_example, example

pytestmark = [pytest.mark.once, pytest.mark.leaves_files]

EXPECTED = f"expected a dask_diag recording of version {container.SCHEMA_VERSION}"
ADVICE = "record it again, or get another copy"


def refusal(path="run.diag"):
    with pytest.raises(RecordingFileError) as caught:
        load(path)
    return str(caught.value)


def with_entries(entries):
    """A closed archive of these names and contents."""
    content, listed = b"", []
    for name, payload in entries:
        added, entry = container.entry(name, payload, len(content))
        content += added
        listed.append(entry)
    return content + container.directory(listed, len(content))


def about(text):
    return with_entries([("dask_diag.json", text)])


def entries_of(path):
    read = container.read_entries(memoryview(Path(path).read_bytes()))
    return [(entry.name, bytes(payload)) for entry, payload in read]


def small():
    save(example(3), "small.diag")
    return Path("small.diag").read_bytes()


def changed(content, index):
    content = bytearray(content)
    content[index] ^= 1
    return bytes(content)


NO_RECORDING = "it is no recording of dask_diag"
WRITES = "dask-diag run SCRIPT writes one, and so does dask_diag.record"
UPGRADE = f"{EXPECTED}; upgrade dask_diag, which is {dask_diag.__version__} here"
REFUSED = {
    "empty": (lambda: b"", f"{NO_RECORDING} (an empty file); {WRITES}"),
    "a database": (
        lambda: b"SQLite format 3\0" + bytes(4000),
        rf"{NO_RECORDING} (it begins with 'SQLite format 3\x00'); {WRITES}",
    ),
    "the signature alone": (lambda: b"PK\3\4", f"{NO_RECORDING} (a zip archive); {WRITES}"),
    "of something else": (
        lambda: with_entries([("a.txt", b"a")]),
        f"{NO_RECORDING} (a zip archive); {WRITES}",
    ),
    # Its first entry is called as that of a recording, and its bytes are others.
    "begins with damage": (
        lambda: changed(small(), 50),
        f"its beginning is damaged; {ADVICE}",
    ),
    "without a name": (lambda: changed(small(), 31), f"{NO_RECORDING} (a zip archive); {WRITES}"),
    "no json": (lambda: about(b"?"), f"found version (none), {UPGRADE}"),
    "of another format": (
        lambda: about(json.dumps({"format": "photographs", "version": 5}).encode()),
        f"found version photographs, {UPGRADE}",
    ),
    "cut": (
        lambda: small()[:300],
        f"it is damaged or truncated within its first chunk, after 300 bytes; {ADVICE}",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_it_is_said_what_was_found(kind):
    make, reason = REFUSED[kind]
    with open("run.diag", "wb") as file:
        file.write(make())
    assert refusal() == f"cannot read run.diag: {reason}"


def test_a_program_is_to_be_recorded_first():
    Path("main.py").write_text("print(1)")
    with pytest.raises(RecordingFileError, match=r"with dask-diag run main\.py$"):
        dask_diag.load("main.py")


# A terabyte of nothing takes no space on most file systems.
@pytest.mark.parametrize("begin", [b"text", b"PK\3\4"])
def test_of_a_large_file_that_cannot_be_a_recording_little_is_read(begin):
    with open("run.diag", "wb") as file:
        file.write(begin)
        try:
            file.truncate(1 << 40)
        except OSError:
            pytest.skip("the file system has no such files")
    tracemalloc.start()
    try:
        assert NO_RECORDING in refusal()
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("swapped", [False, True])
def test_chunks_are_read_in_the_order_in_which_they_were_written(swapped):
    """All bytes are right, and one chunk is missing, or two are exchanged."""
    with Writer("run.diag") as writer:
        for chunk in chunks_of_example():
            writer.append(chunk)
    about, first, second, third, *others = entries_of("run.diag")
    chunks = [first, third, second] if swapped else [first, third]
    Path("run.diag").write_bytes(with_entries([about, *chunks, *others]))
    Path("first.diag").write_bytes(with_entries([about, first]))
    loaded, expected = load("run.diag"), load("first.diag")
    assert (expected.state, loaded.state) == ("complete", "damaged")
    assert_same_table(loaded.tasks, expected.tasks)
    assert len(loaded.tasks) > 0


def test_a_notice_says_from_where_on_bytes_are_lost():
    with Writer("run.diag") as writer:
        for chunk in chunks_of_example():
            writer.append(chunk)
    content = Path("run.diag").read_bytes()
    *_, last = container.read_entries(memoryview(content))
    start = last[0].start
    assert start > 1000
    killed = (
        "run.diag is truncated: the writing process did not close it (killed?). Everything up "
        "to the last complete chunk was loaded."
    )
    for content, notice in (
        (
            changed(content, start + 100),
            f"run.diag is damaged: it has changed since it was closed, from byte {start:,} on; the "
            f"last {len(content) - start:,} bytes cannot be read. Everything up to there was "
            "loaded; get another copy for the rest.",
        ),
        (content[: start + 100], f"{killed} The last 100 bytes cannot be read."),
        (content[:start], killed),
    ):
        Path("run.diag").write_bytes(content)
        assert load("run.diag").notices[-1] == notice
