"""Damaged files: what is loaded is as it was written, and what is missing is reported."""

from __future__ import annotations

import contextlib
import json
import random
import tracemalloc
import zlib
from dataclasses import replace

import numpy as np
import pytest

from dask_diag import Recording
from dask_diag.errors import DiagnosticError, RecordingFileError
from dask_diag.model.tables import Dependencies
from dask_diag.storage import container
from dask_diag.storage.chunks import encode_chunk
from dask_diag.storage.codec import ByteReader, ByteWriter
from dask_diag.storage.read import load
from dask_diag.storage.write import Writer, save

from .recordings import NOTHING, assert_same, chunks_of_example, example

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]
MUTATIONS = 300
ROWS = np.arange(9)


def written(path, chunks):
    """The bytes of a closed file, and by number of rows the recordings that its first chunks are."""
    prefixes = {}
    with Writer(path) as writer:
        for chunk in chunks:
            writer.append(chunk)
            loaded = load(path)
            prefixes[len(loaded.dependencies)] = loaded
    return path.read_bytes(), prefixes


@pytest.fixture
def original(tmp_path):
    """Four chunks with all kinds of columns."""
    return written(tmp_path / "run.diag", chunks_of_example(40))


@pytest.fixture
def small(tmp_path):
    """Two small chunks: every byte of them is damaged once."""
    chunks = [Dependencies({"task": ROWS + n, "depends_on": ROWS}) for n in range(2)]
    return written(tmp_path / "run.diag", [replace(NOTHING, dependencies=c) for c in chunks])


def outcome(path, data, prefixes):
    """The state of the recording that a damaged file is loaded as; it must be what was written."""
    path.write_bytes(data)
    try:
        recording = load(path)
    except RecordingFileError:
        return "refused"
    reasons = [text for text in recording.notices if f" is {recording.state}: " in text]
    assert bool(reasons) == (not recording.is_complete)
    expected = replace(prefixes[len(recording.dependencies)], notices=(), state=recording.state)
    assert_same(replace(recording, notices=()), expected)
    return recording.state


def test_a_byte_that_is_flipped_anywhere_is_noticed(small, tmp_path):
    data, prefixes = small
    rng = random.Random(0)
    states = set()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << rng.randrange(8)
        state = outcome(tmp_path / "damaged", flipped, prefixes)
        assert state != "complete", position
        states.add(state)
    assert states == {"refused", "damaged"}


def test_a_file_that_is_cut_anywhere_is_truncated(small, tmp_path):
    data, prefixes = small
    states = [outcome(tmp_path / "cut", data[:size], prefixes) for size in range(len(data))]
    assert set(states) == {"refused", "truncated"}
    # What can be loaded from the front only grows.
    assert states == sorted(states)
    assert outcome(tmp_path / "cut", data, prefixes) == "complete"


def mutated(data, rng):
    """One of the things that happen to files."""
    data = bytearray(data)
    kind = rng.randrange(4)
    position, other = rng.randrange(len(data)), rng.randrange(len(data))
    size = rng.choice([1, 2, 16, 64, 512])
    if kind == 0:
        data[position : position + size], data[other : other + size] = (
            data[other : other + size],
            data[position : position + size],
        )
    elif kind == 1:
        data[position : position + size] = bytes(len(data[position : position + size]))
    elif kind == 2:
        data[position:position] = rng.randbytes(size)
    else:
        del data[position : position + size]
    return bytes(data)


def test_of_a_mutated_file_no_number_is_wrong(original, tmp_path):
    data, prefixes = original
    rng = random.Random(1)
    states = []
    for _ in range(MUTATIONS):
        changed = mutated(data, rng)
        states.append(outcome(tmp_path / "damaged", changed, prefixes))
        assert (states[-1] == "complete") == (changed == data)
    assert states.count("refused") > MUTATIONS / 10
    assert states.count("damaged") + states.count("truncated") > MUTATIONS / 10


# Files whose checksums are right, but which no Writer wrote.


def write_forged(path, payload):
    first, about = container.entry(container.ABOUT, container.about(), 0)
    second, entry = container.entry("chunk-00000000", payload, len(first))
    body = first + second
    path.write_bytes(body + container.directory([about, entry], len(body)))


def chunk_of(head, columns=b""):
    text = json.dumps(head).encode()
    out = ByteWriter()
    out.append_planes(columns)
    return out.getvalue(len(text).to_bytes(8, "little") + text, 1)


def peak_of_loading(path):
    """Bytes that were allocated at most; the file is refused, or has no tasks."""
    tracemalloc.start()
    try:
        with contextlib.suppress(RecordingFileError):
            assert len(load(path).tasks) == 0
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_changed_chunk_with_the_right_checksum_is_a_recording_or_refused(tmp_path):
    rng = random.Random(2)
    source = ByteReader(memoryview(encode_chunk(example(40), 4)))
    data, planes = bytes(source._data), bytes(source._planes)
    refused = 0
    for _ in range(MUTATIONS):
        out = ByteWriter()
        out.append_planes(planes)
        write_forged(tmp_path / "forged", out.getvalue(mutated(data, rng), 1))
        try:
            recording = load(tmp_path / "forged")
        except RecordingFileError:
            refused += 1
        else:
            assert isinstance(recording, Recording)
            repr(recording.tasks.to_dicts())
    assert MUTATIONS / 10 < refused < MUTATIONS


TIMES = {"start": 0.0, "stop": 1.0, "epoch": 2.0}
HUGE = 2**50
ONE_PLANE = {"base": "", "least": 0, "planes": 1}
ZEROS = {**ONE_PLANE, "planes": 0}
LABELS = {"kind": "labels", "values": ["a"], "integers": {"codes": ONE_PLANE}}
FLOATS = {"kind": "numbers", "dtype": "<f8"}
SCALED = {**FLOATS, "scale": 1, "integers": {"count": ONE_PLANE, "error": ONE_PLANE}}
DIFFERENCE = {**FLOATS, "sources": ["c0"], "integers": {"error": ONE_PLANE}}
ZERO = {**FLOATS, "scale": 1, "integers": {"count": ZEROS, "error": ZEROS}}


def integers(dtype="<i8", **changes):
    return {**FLOATS, "dtype": dtype, "integers": {"bits": {**ONE_PLANE, **changes}}}


def texts(tails, values=("a",), **lengths):
    parts = {"heads": ONE_PLANE, "lengths": {**ONE_PLANE, **lengths}}
    return {"kind": "texts", "values": values, "integers": parts, "tails": tails}


def tokens(*halves):
    parts = dict.fromkeys(("heads", *halves), ONE_PLANE)
    return {"kind": "texts", "values": ["a"], "integers": parts}


def table(rows, *columns):
    return {"rows": rows, "columns": {f"c{n}": column for n, column in enumerate(columns)}}


FORGED_TABLES = {
    "rows without columns": table(HUGE),
    "more rows than bytes": table(HUGE, integers()),
    "more rows than fit": table(2**70, integers()),
    "rows below zero": table(-1, integers()),
    "rows that are text": table("3", integers()),
    "a constant of no bytes": table(HUGE, integers(planes=0)),
    "a large constant": table(3, integers(planes=0, least=2**70)),
    "nine planes": table(0, integers(planes=9)),
    "planes that are not there": table(3, integers(planes=4)),
    "planes below zero": table(3, integers(planes=-1)),
    "no integers": table(HUGE, {**LABELS, "integers": {}}),
    "no array of numbers": table(3, integers("O")),
    "an unknown base": table(3, integers(base="b")),
    "a base of another unit": table(3, LABELS, integers(base="c0")),
    "a large number": table(3, integers(least=2**70)),
    "unknown sources": table(3, {**DIFFERENCE, "sources": ["stop", "start"]}),
    "no sources": table(3, {**DIFFERENCE, "sources": []}),
    "a scale of 7": table(3, {**SCALED, "scale": 7}),
    "floats of two bytes": table(3, {**SCALED, "dtype": "<f2"}),
    "an unknown kind": table(3, {"kind": "eval", "values": "1"}),
    "codes without labels": table(3, {**LABELS, "values": []}),
    "labels that are lists": table(3, {**LABELS, "values": [[]]}),
    "texts longer than they are": table(1, texts(0, least=9)),
    "texts of less than nothing": table(1, texts(0, least=-1)),
    "texts of bytes that are not there": table(1, texts(9, least=9)),
    "tokens without their other half": table(1, tokens("low")),
    "tokens that are not there": table(9, tokens("low", "high")),
    "rows of tasks": table(1, {"kind": "tasks", "integers": {"rows": ONE_PLANE}}),
    "a number": 7,
}


@pytest.mark.parametrize("forged", FORGED_TABLES.values(), ids=FORGED_TABLES)
def test_a_forged_table_is_refused_and_allocates_little(forged, tmp_path):
    head = {"values": TIMES, "tables": {"tasks": forged}}
    write_forged(tmp_path / "forged", chunk_of(head, bytes(9)))
    assert peak_of_loading(tmp_path / "forged") < 20e6


@pytest.mark.parametrize("tables", [[], None, {f"t{n}": table(0) for n in range(2000)}])
def test_forged_tables_are_refused(tables, tmp_path):
    refuse_forged(tmp_path / "forged", chunk_of({"values": TIMES, "tables": tables}))


def refuse_forged(path, payload):
    write_forged(path, payload)
    with pytest.raises(RecordingFileError):
        load(path)


UNCORRECTED = {**DIFFERENCE, "integers": {}}


@pytest.mark.parametrize(
    "columns", [[LABELS, integers(), DIFFERENCE], [ZERO, UNCORRECTED], [ZERO], [UNCORRECTED]]
)
def test_endless_columns_of_few_bytes_are_refused(columns, tmp_path):
    """Rows that are there once cannot be taken out for every column that a head lists."""
    head = {"values": TIMES, "tables": {"tasks": table(10**5, ZERO, *columns * 1000)}}
    write_forged(tmp_path / "forged", chunk_of(head, bytes(10**5)))
    assert peak_of_loading(tmp_path / "forged") < 20e6


@pytest.mark.parametrize("size", [0, 3, 10**9, HUGE])
@pytest.mark.parametrize("stored", [0, 11, HUGE])
@pytest.mark.parametrize(
    "block", [b"", b"abc", zlib.compress(bytes(3)), zlib.compress(bytes(10**6))]
)
def test_a_forged_block_is_refused_and_allocates_little(block, stored, size, tmp_path):
    sizes = size.to_bytes(8, "little") + stored.to_bytes(8, "little")
    refuse_forged(tmp_path / "forged", sizes + block)
    assert peak_of_loading(tmp_path / "forged") < 20e6


@pytest.mark.parametrize("off", [-1, 1])
def test_a_block_of_another_size_is_refused(off, tmp_path):
    payload = bytearray(encode_chunk(example(40), 4))
    payload[0] = (payload[0] + off) % 256
    refuse_forged(tmp_path / "forged", payload)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"start": "x", "stop": 1, "epoch": 1},
        {**TIMES, "tasks": 7},
        {**TIMES, "notices": 7},
        {**TIMES, "state": "fine"},
        7,
    ],
)
def test_forged_values_are_refused(values, tmp_path):
    refuse_forged(tmp_path / "forged", chunk_of({"values": values, "tables": {}}))


def test_fields_that_a_later_version_added_are_left_out_and_named(tmp_path):
    head = {"values": {**TIMES, "mood": "good"}, "tables": {"moons": table(0)}}
    write_forged(tmp_path / "forged", chunk_of(head))
    recording = load(tmp_path / "forged")
    assert recording.notices == (
        "left out mood, moons: unknown to this version of dask_diag; upgrade it",
    )
    assert len(recording.tasks) == 0


def test_damaged_and_truncated_are_two_states(tmp_path):
    path = tmp_path / "run.diag"
    notices = ("the metric failed: chunk is damaged", "it is truncated")
    with Writer(path) as writer:
        for chunk in chunks_of_example():
            writer.append(replace(chunk, notices=notices))
    complete = path.read_bytes()
    without_end = complete[:-22]
    flipped = [bytearray(complete) for _ in range(2)]
    flipped[0][len(complete) // 2] ^= 4
    flipped[1][-30] ^= 4
    for data, state, begins in (
        # A notice does not make a recording incomplete.
        (complete, "complete", notices[-1]),
        *((data, "damaged", "run.diag is damaged: ") for data in flipped),
        *(
            (data, "damaged", "run.diag is damaged: it differs from what was written")
            for data in (complete + b"more", without_end + bytes(22), without_end[:-9] + bytes(9))
        ),
        (complete[:-30], "truncated", "run.diag is truncated: "),
    ):
        path.write_bytes(data)
        loaded = load(path)
        assert (loaded.state, loaded.is_complete) == (state, state == "complete")
        assert loaded.notices[-1].startswith(begins)
        assert ("killed?" in loaded.notices[-1]) == (state == "truncated")
    # What is loaded in part and saved again stays incomplete.
    save(loaded, tmp_path / "again.diag")
    assert load(tmp_path / "again.diag").state == "truncated"
    with pytest.raises(DiagnosticError, match=r"state: expected one of .*, found 'fine'"):
        replace(example(), state="fine")
