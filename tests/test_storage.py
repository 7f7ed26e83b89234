"""Files: what is saved is what is loaded; what is not a recording is refused, never guessed."""

from __future__ import annotations

import io
import json
import os
import pickle
import signal
import zipfile
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import dask_diag
from dask_diag import DiagnosticError
from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.errors import RecordingFileError
from dask_diag.model.tables import TABLES, Dependencies
from dask_diag.storage import container
from dask_diag.storage import write as write_module
from dask_diag.storage.chunks import decode_chunk, encode_chunk, joined
from dask_diag.storage.codec import EarlierChunks
from dask_diag.storage.read import load
from dask_diag.storage.write import Writer, save

from .recordings import NOTHING, assert_same, chunks_of_example, example, filled_table
from .test_encoding import DTYPES, any_label, any_text, float_columns

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]


@st.composite
def recording_tables(draw, name):
    """Any table of that name: columns of the schema's kinds, and any values."""
    rows = draw(st.integers(0, 12))

    def of_types(kinds):
        dtypes = st.sampled_from([dtype for dtype in DTYPES if np.dtype(dtype).kind in kinds])
        return dtypes.flatmap(lambda dtype: hnp.arrays(np.dtype(dtype), rows))

    values = {
        "float": st.one_of(float_columns(rows), of_types("f")),
        "integer": of_types("biu"),
        "text": st.lists(any_text, min_size=rows, max_size=rows).map(PrefixStrings.of),
        "category": st.lists(any_label, min_size=rows, max_size=rows).map(Categorical.of),
    }
    kind = TABLES[name]
    return kind({name: draw(values[column.kind]) for name, column in kind.schema.items()})


@st.composite
def recordings(draw):
    some = draw(st.lists(st.sampled_from(list(TABLES)), max_size=3, unique=True))
    return replace(
        NOTHING,
        start=draw(st.floats()),
        stop=draw(st.floats()),
        epoch=draw(st.floats()),
        metric=draw(any_text),
        notices=tuple(draw(st.lists(any_text, max_size=3))),
        **{name: draw(recording_tables(name)) for name in some},
    )


@settings(suppress_health_check=list(HealthCheck), max_examples=50)
@given(recordings())
def test_what_is_saved_is_loaded_to_the_bit(tmp_path, recording):
    path = tmp_path / "any.diag"
    save(recording, path, overwrite=True)
    assert_same(load(path), recording)
    assert os.listdir(tmp_path) == ["any.diag"]


@settings(suppress_health_check=list(HealthCheck), max_examples=25)
@given(recording_tables("tasks"), st.lists(st.integers(0, 12), max_size=4))
def test_what_is_written_in_chunks_is_loaded_as_one(tmp_path, table, stops):
    path = tmp_path / "any.diag"
    bounds = [0, *sorted(stops), len(table)]
    with Writer(path, overwrite=True) as writer:
        for start, stop in zip(bounds, bounds[1:]):
            writer.append(replace(NOTHING, tasks=table.filter(slice(start, stop))))
    loaded = load(path).tasks
    assert loaded.columns == table.columns
    for name in table.columns:
        a, b = table[name], loaded[name]
        if isinstance(a, np.ndarray):
            # Chunks are put together in the byte order of the machine.
            a, b = (x.astype(x.dtype.newbyteorder("=")).tobytes() for x in (a, b))
            assert a == b
        else:
            assert repr(a.tolist()) == repr(b.tolist())


@settings(suppress_health_check=list(HealthCheck), max_examples=25)
@given(st.lists(recordings(), min_size=1, max_size=4), st.data())
def test_chunks_come_back_whatever_is_in_those_before(parts, data):
    writing, reading = EarlierChunks(), EarlierChunks()
    for part in parts:
        payload = encode_chunk(part, 1, writing)
        if data.draw(st.booleans(), label="another one fails to be read first"):
            with pytest.raises((ValueError, zlib.error)):
                decode_chunk(memoryview(payload[:30]), reading)
        assert_same(joined([decode_chunk(memoryview(payload), reading)], []), part)


@pytest.mark.parametrize("tasks", [0, 1, 257, 100_000])
def test_a_recording_takes_at_most_15_bytes_a_task_and_comes_back(tasks, tmp_path):
    recording = example(tasks)
    save(recording, tmp_path / "run.diag")
    assert_same(load(tmp_path / "run.diag"), recording)
    assert (tmp_path / "run.diag").stat().st_size <= 15 * tasks + 10_000


@pytest.mark.parametrize("version", [9, 10**30, "7", None, True, [1], 7.0, 6, 1, 0, -1])
def test_another_version_is_refused_by_what_was_found_and_expected(version, tmp_path, monkeypatch):
    about = json.dumps({"format": "dask_diag recording", "version": version}).encode()
    monkeypatch.setattr(container, "about", lambda: about)
    save(example(3), tmp_path / "other.diag")
    message = refusal(tmp_path / "other.diag")
    assert f"found version {version}, expected a dask_diag recording of version 8" in message
    if type(version) is int and version < 8:
        assert message.endswith("; record it again")
    else:
        assert f"upgrade dask_diag, which is {dask_diag.__version__} here" in message


def test_a_chunk_like_the_one_before_says_little_of_how_it_is_stored():
    chunks = [replace(chunk, stop=7.0) for chunk in chunks_of_example(400)]
    preceding = EarlierChunks()
    sizes = [len(encode_chunk(chunk, 1, preceding)) for chunk in chunks]
    alone = [len(encode_chunk(chunk, 1)) for chunk in chunks]
    assert sizes[0] == alone[0]
    assert all(b - a > 300 for a, b in zip(sizes[1:], alone[1:], strict=True))


# The zip archive.


def test_a_file_is_a_zip_archive_that_other_programs_can_check(tmp_path):
    save(example(), tmp_path / "run.diag")
    with zipfile.ZipFile(tmp_path / "run.diag") as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["dask_diag.json", "chunk-00000000"]
        about = json.loads(archive.read("dask_diag.json"))
    assert about == {"format": "dask_diag recording", "version": 8}


def test_an_archive_may_have_more_chunks_than_a_plain_zip_archive_has_entries():
    entries = [container.entry(f"chunk-{n:08}", b"", n * 44)[1] for n in range(65_600)]
    data = b"".join(entry.header() for entry in entries)
    with zipfile.ZipFile(io.BytesIO(data + container.directory(entries, len(data)))) as archive:
        assert len(archive.namelist()) == 65_600


# Files that are refused.


def refusal(path):
    with pytest.raises(RecordingFileError) as caught:
        load(path)
    assert isinstance(caught.value, DiagnosticError)
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_what_cannot_be_opened_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    assert "No such file" in refusal(tmp_path / "missing.diag")
    assert refusal(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "it is not a regular file" in refusal(tmp_path / "pipe")
    # A pickle is never executed.
    (tmp_path / "evil.diag").write_bytes(pickle.dumps(Evil()))
    refusal(tmp_path / "evil.diag")
    assert not (tmp_path / "executed").exists()
    for path in ("a\0b", 7, None, b"run.diag", ""):
        with pytest.raises(RecordingFileError):
            load(path)


@pytest.mark.parametrize("step", ["write", "fsync", "replace", "ftruncate", "interrupt"])
def test_nothing_is_left_when_saving_fails_or_is_refused(step, tmp_path, monkeypatch):
    path = tmp_path / "run.diag"
    save(example(3), path)
    before = path.read_bytes()
    for write in (lambda path: save(example(5), path), Writer):
        with pytest.raises(RecordingFileError, match=r"will not overwrite .*overwrite=True"):
            write(path)

    def fail(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        if step == "interrupt":
            patch.setattr(os, "fsync", lambda file: signal.raise_signal(signal.SIGINT))
        else:
            patch.setattr(os, step, fail)
        with pytest.raises((KeyboardInterrupt, RecordingFileError)) as caught:
            save(example(5), path, overwrite=True)
    assert step == "interrupt" or "No space left" in str(caught.value)
    assert ".tmp" not in str(caught.value)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["run.diag"]
    save(example(5), path, overwrite=True)
    assert len(load(path).tasks) == 5


# Saving.


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        (
            "frames",
            filled_table("frames", {"name": Categorical([0], [b"x"])}),
            "expected labels that are text or num",
        ),
        ("metric", object(), "metric: expected text"),
        pytest.param("metric", 10**5000, "digits", id="digits"),
    ],
)
def test_what_a_file_cannot_hold_is_refused(field, value, reason, tmp_path):
    with pytest.raises(RecordingFileError, match=reason):
        save(replace(NOTHING, **{field: value}), tmp_path / "run.diag")
    assert os.listdir(tmp_path) == []


# Writing chunk by chunk.


def test_what_was_written_can_be_read_while_more_is_written(tmp_path):
    chunks = list(chunks_of_example())
    writer = Writer(tmp_path / "run.diag")
    for count, chunk in enumerate(chunks, start=1):
        writer.append(chunk, provisional=replace(chunks[0], stop=99.0))
        loaded = load(tmp_path / "run.diag")
        assert (loaded.state, loaded.stop) == ("truncated", 99.0)
        assert len(loaded.tasks) == 75 * count + 75
    writer.close()
    writer.close()
    loaded, expected = load(tmp_path / "run.diag"), example(300)
    assert repr(loaded.tasks.to_dicts()) == repr(expected.tasks.to_dicts())
    assert loaded.dependencies.to_dicts() == expected.dependencies.to_dicts()
    assert (loaded.state, loaded.stop) == ("complete", chunks[-1].stop)
    assert loaded.notices == expected.notices
    with pytest.raises(RecordingFileError, match="has been closed"):
        writer.append(chunks[0])


def test_chunks_stay_when_the_disk_is_full(tmp_path, monkeypatch):
    first, second, *_ = chunks_of_example()
    writer = Writer(tmp_path / "run.diag")
    writer.append(first)
    write = os.write
    full = [False]

    def write_ten(file, data):
        if full[0]:
            raise OSError(28, "No space left on device")
        full[0] = True
        return write(file, data[:10])

    monkeypatch.setattr(os, "write", write_ten)
    with pytest.raises(RecordingFileError, match="No space left"):
        writer.append(second)
    with pytest.raises(RecordingFileError, match="has been closed"):
        writer.append(second)
    writer.close()
    loaded = load(tmp_path / "run.diag")
    assert (loaded.state, len(loaded.tasks)) == ("truncated", 75)


def test_a_writer_that_is_killed_at_any_byte_leaves_what_it_had_appended(tmp_path, monkeypatch):
    """At each byte that it writes, and before what was there is cut off."""
    path, killed, write, cut = tmp_path / "run.diag", tmp_path / "killed", os.write, os.ftruncate
    appended, states = [], set()

    def rows_of(content):
        killed.write_bytes(content)
        recording = load(killed)
        states.add(recording.state)
        return recording.dependencies.task.tolist()

    def write_slowly(file, data):
        before, position = path.read_bytes(), os.lseek(file, 0, os.SEEK_CUR)
        for count in range(len(data) + 1):
            written = before[:position] + data[:count]
            for content in {written, written + before[len(written) :]}:
                found = rows_of(content)
                assert found[: len(appended)] == appended
                assert found == list(range(len(found)))
        return write(file, data)

    def cut_off(file, size):
        rows_of(path.read_bytes())
        cut(file, size)

    def chunk(first, count):
        task = np.arange(first, first + count)
        return replace(NOTHING, dependencies=Dependencies({"task": task, "depends_on": task}))

    with Writer(path) as writer:
        writer.append(chunk(0, 2), provisional=chunk(2, 120))
        appended += [0, 1]
        monkeypatch.setattr(os, "write", write_slowly)
        monkeypatch.setattr(os, "ftruncate", cut_off)
        for first, provisional in ((2, chunk(3, 1)), (3, chunk(4, 120))):
            writer.append(chunk(first, 1), provisional)
            appended.append(first)
    # The last byte of the directory completes the file.
    assert states == {"truncated", "complete"}
    assert load(path).state == "complete"


@pytest.mark.parametrize("name", ["ftruncate", "close"])
def test_a_file_that_cannot_be_closed_is_given_up_in_silence(name, tmp_path, monkeypatch):
    chunk, *_ = chunks_of_example()
    writer = Writer(tmp_path / "run.diag")
    writer.append(chunk)
    module = os if name == "ftruncate" else write_module
    real = getattr(module, name)

    def fails(file, *args):
        real(file, *args)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(module, name, fails)
    writer.abandon()
    with pytest.raises(RecordingFileError, match="has been closed"):
        writer.append(chunk)
    assert load(tmp_path / "run.diag").state == "truncated"
