"""Files: what is saved comes back bit by bit; what is damaged or not ours is told, never guessed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import tracemalloc
import zipfile
from dataclasses import fields, replace
from pathlib import Path

import dask.threaded
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import dask_diag
from dask_diag import CacheProfiler, DiagnosticError, Profiler, Recording, ResourceProfiler
from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.errors import RecordingFileError
from dask_diag.model.table import Table
from dask_diag.storage import Writer, container, load, save
from dask_diag.storage.streams import DEFLATED, RAW, StreamWriter, pack_block

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]

EMPTY = Table({})
NOTHING = Recording(
    start=0.5,
    stop=1.5,
    epoch=1e9,
    computations=EMPTY,
    tasks=EMPTY,
    dependencies=EMPTY,
    metrics=EMPTY,
    resources=EMPTY,
    cached_results=EMPTY,
)
MUTATIONS = 10_000


def assert_same(one, other):
    """Bit by bit, types and dtypes included."""
    for field in fields(Recording):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, Table):
            assert a.columns == b.columns, field.name
            assert len(a) == len(b)
            for name in a.columns:
                assert_same_column(a[name], b[name])
        else:
            assert type(a) is type(b)
            assert a == b or (a != a and b != b)


def assert_same_column(a, b):
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()
        assert not b.flags.writeable
        return
    assert repr(a.tolist()) == repr(b.tolist())
    if isinstance(a, Categorical):
        assert (a.codes.dtype, a.codes.tolist()) == (b.codes.dtype, b.codes.tolist())
        assert repr(a.values) == repr(b.values)


def example(tasks=200, seed=0):
    """What a profiler records, about, without the waiting."""
    rng = np.random.default_rng(seed)
    submitted = np.sort(rng.integers(10**12, 10**12 + 10**9, tasks)) / 1e9
    start = submitted + rng.integers(10**3, 10**5, tasks) / 1e9
    stop = start + rng.integers(10**3, 10**6, tasks) / 1e9
    cpu = rng.integers(10**3, 10**6, tasks) / 1e9
    stop[rng.random(tasks) < 0.02] = np.nan
    task = np.arange(1, tasks) if tasks else np.zeros(0, np.int64)
    return replace(
        NOTHING,
        tasks=Table(
            {
                "key": PrefixStrings.of(
                    f"('sum-{n % 3:032x}', {n // 9}, {n % 9})" if n % 7 else f"lone-{n}"
                    for n in range(tasks)
                ),
                "function": Categorical.of("sum" if n % 7 else "lone" for n in range(tasks)),
                "start": start,
                "stop": stop,
                "thread_cpu": cpu,
                "thread_noncpu": stop - start - cpu,
                "submitted": submitted,
                "worker": Categorical.of(f"thread-{n % 4}" for n in range(tasks)),
                "thread": Categorical.of(140313448924864 + n % 4 for n in range(tasks)),
            }
        ),
        dependencies=Table({"task": task, "depends_on": task - 1}),
        resources=Table({"time": np.arange(9) / 7, "memory": np.arange(9) * 1e6 + 0.5}),
        notices=("the ☃ melted",),
        metric="count",
    )


any_text = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)
any_label = st.one_of(any_text, st.integers(), st.floats(), st.booleans(), st.none())
DTYPES = ["?", "i1", "u1", "<i2", ">i4", "u4", "<i8", "u8", "f2", "f4", "<f8", ">f8"]


def arrays(rows):
    like_clocks = st.integers(0, 2**52).map(lambda n: n / 1e9)
    odd = st.sampled_from([np.nan, np.inf, -np.inf, -0.0, 5e-324, 1.8e308, 2.0**53, 0.1 + 0.2])
    numbers = st.one_of(like_clocks, st.integers(-(2**53), 2**53).map(float), odd, st.floats())
    of_clocks = st.lists(numbers, min_size=rows, max_size=rows).map(lambda v: np.array(v, float))
    return st.one_of(
        of_clocks, st.sampled_from(DTYPES).flatmap(lambda d: hnp.arrays(np.dtype(d), rows))
    )


@st.composite
def tables(draw):
    rows = draw(st.integers(0, 12))
    names = draw(st.lists(any_text, max_size=5, unique=True))
    texts = st.lists(any_text, min_size=rows, max_size=rows)
    labels = st.lists(any_label, min_size=rows, max_size=rows)
    kinds = st.one_of(arrays(rows), texts.map(PrefixStrings.of), labels.map(Categorical.of))
    return Table({name: draw(kinds) for name in names})


@st.composite
def recordings(draw):
    values = {}
    for field in fields(Recording):
        if field.type == "Table":
            values[field.name] = draw(tables())
    return Recording(
        start=draw(st.floats()),
        stop=draw(st.floats()),
        epoch=draw(st.floats()),
        metric=draw(any_text),
        notices=tuple(draw(st.lists(any_text, max_size=3))),
        **values,
    )


@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(recordings())
def test_what_is_saved_comes_back_bit_by_bit(tmp_path, recording):
    path = tmp_path / "any.diag"
    recording.save(path, overwrite=True)
    assert_same(load(path), recording)
    assert sorted(os.listdir(tmp_path)) == ["any.diag"]


@pytest.mark.parametrize("rows", [0, 1, 2, 257, 5000])
def test_tables_of_any_length_come_back(rows, tmp_path):
    recording = example(rows)
    recording.save(tmp_path / "run.diag")
    assert_same(load(tmp_path / "run.diag"), recording)


def test_what_profilers_record_comes_back(tmp_path):
    with Profiler() as prof, CacheProfiler() as cprof, ResourceProfiler(0.01) as rprof:
        dask.threaded.get({("a", n): (time.sleep, 0.001) for n in range(20)}, [("a", 3)])
    recording = Recording.combine([prof.recording, cprof.recording, rprof.recording])
    recording.save(str(tmp_path / "run.diag"))
    loaded = dask_diag.load(str(tmp_path / "run.diag"))
    assert_same(loaded, recording)
    assert str(dask_diag.summary(loaded)) == str(dask_diag.summary(recording))


def test_differences_that_are_not_exact_are_stored_in_full(tmp_path):
    table = dict(
        zip(example().tasks.columns, map(example().tasks.__getitem__, example().tasks.columns))
    )
    table["thread_noncpu"] = np.nextafter(table["thread_noncpu"], np.inf)
    recording = replace(NOTHING, tasks=Table(table))
    recording.save(tmp_path / "run.diag")
    assert_same(load(tmp_path / "run.diag"), recording)


def test_a_file_is_a_zip_archive_that_other_programs_can_check(tmp_path):
    example().save(tmp_path / "run.diag")
    with zipfile.ZipFile(tmp_path / "run.diag") as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["dask_diag.json", "part-00000000"]
        about = json.loads(archive.read("dask_diag.json"))
    assert about == {"format": "dask_diag recording", "version": container.SCHEMA_VERSION}


def test_more_parts_than_a_plain_zip_archive_has_entries():
    told = [container.Entry.of(f"part-{n:08}", b"", n * 43) for n in range(70_000)]
    entries = b"".join(container.entry(each.name, b"", each.start)[0] for each in told)
    import io

    with zipfile.ZipFile(io.BytesIO(entries + container.directory(told, len(entries)))) as archive:
        assert len(archive.namelist()) == 70_000


# Files that are refused.


def refusal(path):
    with pytest.raises(RecordingFileError) as caught:
        load(path)
    assert isinstance(caught.value, DiagnosticError)
    assert str(path) in str(caught.value)
    return str(caught.value)


def write_as_version(path, version, monkeypatch):
    about = json.dumps({"format": "dask_diag recording", "version": version}).encode()
    monkeypatch.setattr(container, "about", lambda: about)
    example().save(path)


@pytest.mark.parametrize("version", [2, 10**30, "2", None, 0, -1, True, [1]])
def test_another_version_is_refused_by_what_was_found_and_expected(version, tmp_path, monkeypatch):
    write_as_version(tmp_path / "new.diag", version, monkeypatch)
    told = refusal(tmp_path / "new.diag")
    assert f"of version {version}" in told
    assert "expected a dask_diag recording of version 1 or older" in told
    assert "upgrade dask_diag" in told


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "an empty file"),
        (b"SQLite format 3\0" + bytes(4000), "SQLite format 3"),
        (b"PK\3\4", "zip archive"),
        (b"\x80\x04\x95", "begins with"),
        (b"<html>", "<html>"),
    ],
)
def test_a_foreign_file_is_refused(content, told, tmp_path):
    (tmp_path / "other").write_bytes(content)
    message = refusal(tmp_path / "other")
    assert told in message
    assert "expected a dask_diag recording of version 1" in message


def test_a_zip_archive_of_something_else_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("hello.txt", "hello")
    assert "a zip archive" in refusal(tmp_path / "other.zip")


def test_what_cannot_be_opened_is_told(tmp_path):
    assert "No such file" in refusal(tmp_path / "missing.diag")
    refusal(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "no ordinary file" in refusal(tmp_path / "pipe")
    for path in ("a\0b", 7, None):
        with pytest.raises(RecordingFileError):
            load(path)
    with pytest.raises(RecordingFileError, match=r"^cannot read '': expected the name of a file$"):
        load("")


def test_a_pickle_is_never_executed(tmp_path):
    import pickle

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    (tmp_path / "evil.diag").write_bytes(pickle.dumps(Evil()))
    refusal(tmp_path / "evil.diag")
    assert not (tmp_path / "executed").exists()


# Damage.


def mutate(data, rng):
    """One of the things that happen to files."""
    data = bytearray(data)
    kind = rng.randrange(5)
    at = rng.randrange(len(data))
    size = min(rng.choice([1, 2, 16, 64, 512]), len(data) // 4)
    if kind == 0:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        other = rng.randrange(len(data) - size)
        at = min(at, len(data) - size)
        data[at : at + size], data[other : other + size] = (
            data[other : other + size],
            data[at : at + size],
        )
    elif kind == 3:
        data[at : at + size] = bytes(len(data[at : at + size]))
    else:
        data[at:at] = rng.randbytes(size)
    return bytes(data)


def streamed_parts():
    whole = example(300)
    for n in range(4):
        rows = slice(n * 75, n * 75 + 75)
        yield replace(
            whole,
            stop=2.0 + n,
            tasks=whole.tasks.rows(rows),
            dependencies=whole.dependencies.rows(rows),
            resources=whole.resources.rows(slice(n, n + 1)),
        )


def loads_as(path):
    recording = load(path)
    return recording, [
        len(getattr(recording, field.name))
        for field in fields(Recording)
        if isinstance(getattr(recording, field.name), Table)
    ]


def test_damaged_files_are_told_and_no_number_is_wrong(tmp_path):
    streamed, saved, damaged = (tmp_path / name for name in ("streamed", "saved", "damaged"))
    with Writer(streamed) as writer:
        truths = []
        for part in streamed_parts():
            writer.append(part)
            (tmp_path / "so_far").write_bytes(streamed.read_bytes())
            truths.append(load(tmp_path / "so_far"))
    example().save(saved)
    truths = {len(truth.tasks): truth for truth in (*truths, load(saved))}
    rng = random.Random(0)
    outcomes = {"refused": 0, "in part": 0, "whole": 0}
    originals = [path.read_bytes() for path in (streamed, saved)]
    for n in range(MUTATIONS):
        original = originals[n % 2]
        data = mutate(original, rng)
        damaged.write_bytes(data)
        try:
            recording = load(damaged)
        except RecordingFileError:
            outcomes["refused"] += 1
            continue
        outcomes["whole" if data == original else "in part"] += 1
        said = [text for text in recording.notices if f"is {recording.state}: " in text]
        assert bool(said) == (data != original)
        assert recording.is_complete == (data == original)
        truth = replace(truths[len(recording.tasks)], notices=(), state=recording.state)
        assert_same(replace(recording, notices=()), truth)
    assert outcomes["refused"] > MUTATIONS / 10
    assert outcomes["in part"] > MUTATIONS / 10


def test_damaged_and_truncated_are_two_states(tmp_path):
    path = tmp_path / "run.diag"
    with Writer(path) as writer:
        for part in streamed_parts():
            writer.append(part)
    whole = path.read_bytes()
    for at in (len(whole) // 2, len(whole) - 30):
        flipped = bytearray(whole)
        flipped[at] ^= 4
        path.write_bytes(flipped)
        recording = load(path)
        assert (recording.state, recording.is_complete) == ("damaged", False)
        assert recording.notices[-1].startswith("run.diag is damaged: ")
        assert "killed" not in recording.notices[-1]
    for cut in (whole[: len(whole) // 2], whole[:-30], whole + b"more"):
        path.write_bytes(cut)
        recording = load(path)
        assert (recording.state, recording.is_complete) == ("truncated", False)
        assert recording.notices[-1].startswith(
            "run.diag is truncated: the writing process did not close it (killed?). Everything up "
            "to the last complete chunk was loaded."
        )


def test_what_is_loaded_in_part_and_saved_again_stays_incomplete(tmp_path):
    original = tmp_path / "run.diag"
    example().save(original)
    original.write_bytes(original.read_bytes()[:-30])
    load(original).save(tmp_path / "again.diag")
    assert load(tmp_path / "again.diag").state == "truncated"


def test_a_notice_does_not_make_a_recording_incomplete(tmp_path):
    notices = ("the metric failed: chunk is damaged", "it is truncated", "it was cut short")
    replace(example(), notices=notices).save(tmp_path / "run.diag")
    loaded = load(tmp_path / "run.diag")
    assert (loaded.state, loaded.is_complete, loaded.notices) == ("complete", True, notices)


def test_a_state_that_is_none_is_refused():
    with pytest.raises(DiagnosticError, match=r"state: expected one of .*, found 'fine'"):
        replace(example(), state="fine")


def forged(path, told, streams=None):
    """A file whose checksums are right and whose content is not ours."""
    head = pack_block(json.dumps(told).encode(), DEFLATED, 1)
    part = head + (StreamWriter().getvalue() if streams is None else streams)
    first, about = container.entry(container.ABOUT, container.about(), 0)
    second, entry = container.entry("part-00000000", part, len(first))
    body = first + second
    path.write_bytes(body + container.directory([about, entry], len(body)))


TIMES = {"start": 0.0, "stop": 1.0, "epoch": 2.0}
HUGE = 2**50


@pytest.mark.parametrize(
    "tables",
    [
        {"tasks": [HUGE, []]},
        {"tasks": [HUGE, [["a", "numbers", "<f8", [0, ["", 0, [[0, 0]]]]]]]},
        {"tasks": [HUGE, [["a", "numbers", "<f8", [0, ["", 0, [[0, HUGE]]]]]]]},
        {"tasks": [HUGE, [["a", "numbers", "<i8", ["", 0, []]]]]},
        {"tasks": [HUGE, [["a", "labels", None, [0, 2]]]]},
        {"tasks": [10**6, [[f"{n}", "labels", None, [0, 0]] for n in range(100)]]},
        {"tasks": [HUGE, [["a", "numbers", "<i8", ["", 0, [[0, 3]]]]]]},
        {"tasks": [-1, [["a", "numbers", "<i8", ["", 0, [[0, 3]]]]]]},
        {"tasks": [3, [["a", "numbers", "O", ["", 0, [[0, 3]]]]]]},
        {"tasks": [3, [["a", "numbers", "V8", ["", 0, [[0, 3]]]]]]},
        {"tasks": [3, [["a", "numbers", "<i8", ["=b", 0, [[0, 3]]]]]]},
        {"tasks": [3, [["a", "numbers", "<i8", ["", 2**70, [[0, 3]]]]]]},
        {"tasks": [3, [["thread_noncpu", "difference"]]]},
        {"tasks": [3, [["a", "eval", "1"]]]},
        {"tasks": [3, [["a", "labels", ["", 0, [[0, 3]]], [0, 2]]]]},
        {"tasks": 7},
        [],
        None,
    ],
)
def test_a_forged_file_is_refused_and_allocates_little(tables, tmp_path):
    streams = pack_block(bytes(3), RAW, 1) + 2 * pack_block(b"", RAW, 1)
    forged(tmp_path / "forged", {"part": 0, "values": TIMES, "tables": tables}, streams)
    tracemalloc.start()
    with contextlib.suppress(RecordingFileError):
        assert len(load(tmp_path / "forged").tasks) == 0
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


@pytest.mark.parametrize("how", [RAW, DEFLATED])
@pytest.mark.parametrize("size", [0, 10**6, HUGE])
@pytest.mark.parametrize("stored", [3, HUGE])
def test_a_forged_block_is_refused_and_allocates_little(how, size, stored, tmp_path):
    block = how.to_bytes(1, "little") + size.to_bytes(8, "little") + stored.to_bytes(8, "little")
    forged(tmp_path / "forged", {"part": 0, "values": TIMES, "tables": {}}, block + b"abc")
    tracemalloc.start()
    refusal(tmp_path / "forged")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"start": "x", "stop": 1, "epoch": 1},
        {**TIMES, "tasks": 7},
        {**TIMES, "notices": 7},
        {**TIMES, "state": 7},
        {**TIMES, "state": "fine"},
        7,
    ],
)
def test_forged_values_are_refused(values, tmp_path):
    forged(tmp_path / "forged", {"part": 0, "values": values, "tables": {}})
    refusal(tmp_path / "forged")


def test_what_a_later_version_added_is_left_out_and_told(tmp_path):
    told = {"part": 0, "values": {**TIMES, "mood": "good"}, "tables": {"moons": [0, []]}}
    forged(tmp_path / "forged", told)
    recording = load(tmp_path / "forged")
    assert recording.notices == ("this dask_diag does not know mood, moons: left out",)
    assert len(recording.tasks) == 0


# Writing.


def test_a_file_is_not_overwritten_without_being_told(tmp_path):
    path = tmp_path / "run.diag"
    example(3).save(path)
    before = path.read_bytes()
    for write in (example(5).save, Writer):
        with pytest.raises(RecordingFileError, match=r"will not overwrite .*overwrite=True"):
            write(path)
    assert path.read_bytes() == before
    example(5).save(path, overwrite=True)
    assert len(load(path).tasks) == 5


def test_a_file_that_appears_while_saving_is_not_overwritten(tmp_path, monkeypatch):
    path = tmp_path / "run.diag"
    original = os.fsync

    def fsync(file):
        path.write_text("theirs")
        original(file)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(RecordingFileError, match="will not overwrite"):
        example().save(path)
    assert path.read_text() == "theirs"
    assert os.listdir(tmp_path) == ["run.diag"]


@pytest.mark.parametrize("step", ["write", "fsync", "replace", "ftruncate"])
def test_nothing_is_left_when_saving_fails(step, tmp_path, monkeypatch):
    path = tmp_path / "run.diag"
    example(3).save(path)
    before = path.read_bytes()

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(RecordingFileError, match="No space left"):
        example(5).save(path, overwrite=True)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["run.diag"]


def test_an_interrupted_save_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        example().save(tmp_path / "run.diag")
    assert os.listdir(tmp_path) == []


def test_places_where_nothing_can_be_written_are_told(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "closed").mkdir(mode=0o500)
    places = {
        tmp_path: "it is a directory; name a file in it",
        tmp_path / "missing" / "run.diag": "make the directory .*missing first",
        tmp_path / "file" / "run.diag": "Not a directory",
        "": "expected the name of a file",
        str(tmp_path / "new") + "/": "expected the name of a file",
        "/dev/null": "no ordinary file",
        "/nosuch/run.diag": "^cannot write /nosuch/run.diag: .*; make the directory /nosuch first$",
        "a\0b": "null",
        7: "expected a path",
        tmp_path / ("x" * 300): "too long",
    }
    if os.getuid():
        places[tmp_path / "closed" / "run.diag"] = "may write"
    for path, told in places.items():
        with pytest.raises(RecordingFileError, match=told):
            example().save(path)
    assert sorted(os.listdir(tmp_path)) == ["closed", "file"]


def test_a_link_is_followed(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "run.diag")
    example().save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert_same(load(tmp_path / "there" / "run.diag"), example())


def test_files_are_as_readable_as_others(tmp_path):
    example().save(tmp_path / "run.diag")
    (tmp_path / "other").write_text("")
    assert (tmp_path / "run.diag").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize(
    "column",
    [np.zeros(2, object), np.zeros((2, 2)), np.zeros(2, complex), np.zeros(2, "U3"), [1, 2]],
)
def test_columns_that_a_file_cannot_hold_are_told(column, tmp_path):
    with pytest.raises(RecordingFileError, match=r"tasks: column 'a': expected a flat array"):
        replace(NOTHING, tasks=Table({"a": column})).save(tmp_path / "run.diag")
    with pytest.raises(RecordingFileError, match="expected labels"):
        replace(NOTHING, tasks=Table({"a": Categorical([0], [b"x"])})).save(tmp_path / "run.diag")
    with pytest.raises(RecordingFileError, match="metric: expected text"):
        replace(NOTHING, metric=object()).save(tmp_path / "run.diag")
    assert os.listdir(tmp_path) == []


# Writing as it goes.


def test_parts_are_put_together(tmp_path):
    parts = list(streamed_parts())
    with Writer(tmp_path / "run.diag") as writer:
        for part in parts:
            writer.append(part)
    loaded, whole = load(tmp_path / "run.diag"), example(300)
    assert loaded.tasks.to_dicts().__repr__() == whole.tasks.to_dicts().__repr__()
    assert loaded.dependencies.to_dicts() == whole.dependencies.to_dicts()
    assert loaded.stop == parts[-1].stop
    assert loaded.notices == whole.notices


def test_what_was_written_can_be_read_while_more_is_written(tmp_path):
    parts = list(streamed_parts())
    writer = Writer(tmp_path / "run.diag")
    for count, part in enumerate(parts, start=1):
        writer.append(part, so_far=replace(parts[0], stop=99.0))
        loaded = load(tmp_path / "run.diag")
        assert len(loaded.tasks) == 75 * count + 75
        assert loaded.stop == 99.0
        assert loaded.state == "truncated"
    writer.close()
    writer.close()
    loaded = load(tmp_path / "run.diag")
    assert len(loaded.tasks) == 300
    assert loaded.stop == parts[-1].stop
    with pytest.raises(RecordingFileError, match="has been closed"):
        writer.append(parts[0])


def test_parts_stay_when_the_disk_is_full(tmp_path, monkeypatch):
    first, second, *_ = streamed_parts()
    writer = Writer(tmp_path / "run.diag")
    writer.append(first)
    real = os.write
    full = [False]

    def write(file, data):
        if full[0]:
            raise OSError(28, "No space left on device")
        full[0] = True
        return real(file, data[:10])

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(RecordingFileError, match="No space left"):
        writer.append(second)
    with pytest.raises(RecordingFileError, match="has been closed"):
        writer.append(second)
    writer.close()
    loaded = load(tmp_path / "run.diag")
    assert len(loaded.tasks) == 75
    assert loaded.state == "truncated"


KILLED = """
import sys, time
sys.path.insert(0, sys.argv[2])
from tests.test_storage import streamed_parts
from dask_diag.storage import Writer
writer = Writer(sys.argv[1])
first, *_ = streamed_parts()
for _ in range(10_000):
    writer.append(first, so_far=first)
    print("appended", flush=True)
"""


def test_a_killed_writer_leaves_a_file_that_opens(tmp_path):
    path = tmp_path / "run.diag"
    root = str(Path(__file__).parent.parent)
    for after in (1, 7, 40):
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(path), root], stdout=subprocess.PIPE
        )
        for _ in range(after):
            assert child.stdout.readline() == b"appended\n"
        child.send_signal(signal.SIGKILL)
        rest = child.communicate()[0].count(b"appended\n")
        loaded = load(path)
        assert len(loaded.tasks) % 75 == 0
        assert len(loaded.tasks) >= 75 * (after + rest)
        assert loaded.state == "truncated"
        path.unlink()


def test_save_is_the_function_that_recordings_call(tmp_path):
    save(example(), tmp_path / "run.diag")
    assert_same(load(tmp_path / "run.diag"), example())
