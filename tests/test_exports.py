"""Exports: what is written is what was measured, in formats that others describe."""

import csv
import gzip
import json
import math
import os
import sys
import threading
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import dask
import dask.local
import dask.multiprocessing
import dask.threaded
import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_diag import (
    CacheProfiler,
    DiagnosticError,
    MemorySampler,
    Profiler,
    Recording,
    ResourceProfiler,
    export,
    span,
)
from dask_diag.analysis.intervals import StepFunction
from dask_diag.errors import MissingDependencyError
from dask_diag.files import MANIFEST
from dask_diag.model.table import NO_ROWS
from dask_diag.views.exports.stacks import export_stacks

from .recordings import recording_of_stacks, with_columns, with_tables

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]
NAN = float("nan")
SCHEMAS = json.loads(Path(__file__).with_name("schemas.json").read_text())
"""What the Trace Event Format and speedscope say of files, as far as they are used."""


def nap(*_):
    time.sleep(0.01)


def fail(*_):
    raise ValueError("own")


def graph(count=6):
    dsk = {("nap", n): (nap,) for n in range(count)}
    dsk |= {("more", n): (nap, ("nap", n), ("nap", (n + 1) % count)) for n in range(count)}
    dsk["all", 0] = (nap, [("more", n) for n in range(count)])
    return dsk


def recorded(get=dask.threaded.get, **kwargs):
    sampler = MemorySampler()
    with (
        Profiler() as prof,
        ResourceProfiler(dt=0.01) as rprof,
        CacheProfiler() as cprof,
        sampler.sample("all", interval=0.01),
    ):
        with span("first"):
            get(graph(), ("all", 0), **kwargs)
        get(graph(3), ("all", 0), **kwargs)
    return Recording.combine([prof.recording, rprof.recording, cprof.recording, sampler.recording])


@pytest.fixture(scope="module")
def recording():
    return recorded()


def in_flight():
    """Tasks that still ran when their computation had failed."""
    since = threading.Barrier(3)
    end = threading.Event()

    def wait():
        since.wait(30)
        end.wait(30)

    def fail_beside():
        since.wait(30)
        raise ValueError("own")

    with Profiler() as prof, pytest.raises(ValueError, match="own"):
        dsk = {("wait", n): (wait,) for n in range(2)} | {("fail", 0): (fail_beside,)}
        dask.threaded.get(dsk, list(dsk), num_workers=3)
    recording = prof.recording
    end.set()
    return recording


def trace_of(recording, tmp_path, name="x.perfetto.json"):
    path = export(recording, tmp_path / name, overwrite=True)
    text = gzip.open(path, "rt").read() if name.endswith(".gz") else path.read_text()
    trace = json.loads(text, parse_constant=pytest.fail)
    jsonschema.validate(trace, SCHEMAS["trace"])
    return trace["traceEvents"]


SCHEDULERS = [
    (dask.local.get_sync, {}),
    (dask.threaded.get, {"num_workers": 3}),
    (dask.multiprocessing.get, {"num_workers": 2, "chunksize": 2}),
]


@pytest.mark.parametrize(("get", "kwargs"), SCHEDULERS)
def test_a_trace_has_each_task_on_its_workers_track_and_an_arrow_for_each_need(
    get, kwargs, tmp_path
):
    recording = recorded(get, **kwargs)
    tasks = recording.tasks
    events = trace_of(recording, tmp_path)
    slices = {e["args"]["task"]: e for e in events if e["ph"] == "X"}
    assert sorted(slices) == list(range(len(tasks)))
    tracks = [e for e in events if e["name"] == "thread_name"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in tracks}
    assert len(names) == len({*zip(tasks["pid"].tolist(), tasks["thread"].tolist())})
    # No thread has the number of a process.
    assert not {e["tid"] for e in events if e["ph"] in "Xsf"} & {e["pid"] for e in events}
    for row, task in enumerate(tasks.to_dicts()):
        drawn, reported = slices[row], slices[row]["args"]
        assert drawn["name"] == task["function"]
        assert names[drawn["pid"], drawn["tid"]] == task["worker"]
        assert drawn["pid"] == task["pid"]
        assert drawn["ts"] == pytest.approx(1e6 * (task["start"] - recording.start), abs=1e-3)
        assert drawn["dur"] == pytest.approx(1e6 * (task["stop"] - task["start"]), abs=2e-3)
        for name in ("key", "function", "computation", "span", "outcome", "error"):
            assert reported[name] == task[name]
        assert reported["thread_cpu (s)"] == task["thread_cpu"]
    # To which tasks the arrows lead is asked of Perfetto: see test_perfetto.py.
    arrows = [e["id"] for e in events if e["ph"] == "s"]
    assert sorted(arrows) == sorted(e["id"] for e in events if e["ph"] == "f")
    assert len(set(arrows)) == len(recording.dependencies) == 6 * 3 + 3 * 3


def test_a_trace_has_computations_spans_and_samples(recording, tmp_path):
    events = trace_of(recording, tmp_path)
    assert trace_of(recording, tmp_path, "x.trace.json.gz") == events
    since, ended = ({e["id2"]["local"]: e for e in events if e["ph"] == ph} for ph in "be")
    assert set(since) == set(ended)
    computations = [n for n, e in since.items() if e["cat"] == "computation"]
    for identity, row in zip(computations, recording.computations.to_dicts(), strict=True):
        assert since[identity]["args"]["computation"] == row["computation"]
        lasted = ended[identity]["ts"] - since[identity]["ts"]
        assert lasted == pytest.approx(1e6 * (row["stop"] - row["start"]), abs=2e-3)
    (first,) = [e for e in since.values() if e["cat"] == "span"]
    assert (first["name"], first["args"]["tasks"]) == ("first", 13)
    counters = [e for e in events if e["ph"] == "C"]
    memory, cpu = ([e for e in counters if e["name"] == name] for name in ("memory", "CPU"))
    samples = recording.resources
    assert [e["args"]["this process (MB)"] for e in memory] == (samples["memory"] / 1e6).tolist()
    assert [e["args"]["%"] for e in cpu] == samples["cpu"].tolist()
    # A share of CPU is drawn from the sample before on, as it is that of the interval.
    assert cpu[1]["ts"] == memory[0]["ts"]
    assert {e["name"] for e in counters if "rss (MB)" in e["args"]} == {"memory in all"}


def test_a_task_is_ready_from_when_its_needs_were_collected_until_it_starts(tmp_path):
    def ready(recording):
        tasks = [e for e in trace_of(recording, tmp_path) if e["name"] == "tasks"]
        return [(e["ts"] / 1e6, e["args"]["ready"]) for e in tasks]

    recording = by_hand(["a", "b", "c"])
    assert ready(recording) == [(0, 1), (0.5, 0), (1.25, 1), (1.5, 0), (2.25, 1), (2.5, 0)]
    unknown = with_columns(recording, "tasks", start=[0.0, 1.0, NAN])
    assert ready(unknown)[-2:] == [(2.25, 1), (4.5, 0)]


def test_failed_tasks_and_those_that_are_not_known_are_there(tmp_path):
    times = {name: [0.0, NAN, 0.0, NAN] for name in ("start", "stop", "thread_cpu", "collected")}
    hidden = with_columns(by_hand(list("abcd")), "tasks", **times)
    for exported in (hidden, in_flight()):
        events = trace_of(exported, tmp_path)
        reported = [e["args"] for e in events if e["ph"] in "Xb" and "task" in e.get("args", ())]
        rows = exported.tasks.to_dicts()
        assert sorted(args["task"] for args in reported) == list(range(len(rows)))
        for args in reported:
            row = rows[args["task"]]
            assert (args["outcome"], args["error"]) == (row["outcome"], row["error"])
        aside = [e for e in events if e["ph"] == "b" and e["name"].startswith("not placed: ")]
        nowhere = [
            n for n, row in enumerate(rows) if row["start"] != row["start"] or not row["pid"]
        ]
        assert [e["args"]["task"] for e in aside] == nowhere


def by_hand(keys, functions=None, spans=None):
    """A recording of one worker; every task needs the one before."""
    count = len(keys)
    starts = np.arange(count, dtype=float)
    alike = {"worker": "caller", "pid": 7, "thread": 140_000_000_000_001, "computation": "7-1"}
    alike |= {"outcome": "ok", "error": "", "function": "f", "span": ""}
    tasks = {name: [value] * count for name, value in alike.items()}
    tasks |= {"key": keys, "start": starts, "stop": starts + 0.5}
    tasks |= {"submitted": starts - 0.25, "collected": starts + 0.75}
    tasks |= {"thread_cpu": np.where(starts % 3 == 2, NAN, 0.25)}
    tasks |= {"thread_noncpu": np.full(count, -1e-7)}
    given = {"function": functions, "span": spans}
    tasks |= {name: values for name, values in given.items() if values}
    computation = {"computation": ["7-1"], "start": [-0.5], "stop": [count + 1.0], "workers": [1]}
    needs = {"task": np.arange(1, count), "depends_on": np.arange(count - 1)}
    empty = Recording(start=-0.5, stop=count + 1.0, epoch=1e9, notices=("a notice",))
    return with_tables(empty, computations=computation, tasks=tasks, dependencies=needs)


HOSTILE = [
    "('x', 0)",
    "=cmd|' /C calc'!A0",
    "'=1+1",
    "+1",
    "-2",
    "@sum",
    "\t=1",
    "a,b\"c'd",
    "line\nbreak\r\nand\rmore",
    "</script><script>alert(1)</script>",
    "\x1b[2J\x7f\u202e\u2028",
    "nul\0here" if sys.version_info >= (3, 11) else "no nul",
    "\ud800 alone",
    "\U0001f600",
    "x" * 10_000,
    "",
    " ",
    "nan",
    "None",
    "1.5",
]
TEXT = st.text(
    st.characters(exclude_categories=())
    if sys.version_info >= (3, 11)
    else st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"),
    max_size=12,
)


def opened(path):
    return (gzip.open if path.name.endswith(".gz") else open)(
        path, "rt", encoding="utf-8", newline=""
    )


def read_csv(path):
    with opened(path) as stream:
        names, *rows = csv.reader(stream)
    return dict(zip(names, zip(*rows, strict=True)))


def assert_csv(path, table):
    """Texts begin with an apostrophe where they would be a formula."""
    columns = read_csv(path)
    for name in table.columns:
        measured = table[name].tolist()
        kind = type(next(iter(measured), ""))
        if kind is str:
            columns[name] = [cell[1:] if cell[:1] == "'" else cell for cell in columns[name]]
            assert columns[name] == [without_controls(spelled(text)) for text in measured]
        else:
            same([kind(cell) if cell else None for cell in columns[name]], measured)


def without_controls(text):
    """No byte of a cell is for a terminal, but ends of lines and tabs."""
    is_control = {c: ascii(chr(c))[1:-1] for c in (*range(32), *range(127, 160))}
    return text.translate({c: t for c, t in is_control.items() if chr(c) not in "\t\n\r"})


def spelled(value):
    """What a text is where UTF-8 is written."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def same(written, measured):
    for value, expected in zip(written, measured, strict=True):
        both_unknown = isinstance(expected, float) and math.isnan(expected)
        assert (value is None or value != value) if both_unknown else value == expected


def assert_json(path, recording):
    with opened(path) as stream:
        document = json.load(stream, parse_constant=pytest.fail)
    for name in ("start", "stop", "epoch", "metric"):
        assert document[name] == getattr(recording, name)
    assert tuple(document["notices"]) == recording.notices
    assert set(document["tables"]) == set(filled(recording))
    for name, table in filled(recording).items():
        for column in table.columns:
            same(document["tables"][name][column], table[column].tolist())


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_folder_has_a_file_for_each_table(recording, kind, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet") if kind == "parquet" else None
    hostile = by_hand(HOSTILE, HOSTILE[::-1], HOSTILE)
    for exported, name in ((recording, "one"), (hostile, "two")):
        folder, tables = export(exported, tmp_path / name, format=kind), filled(exported)
        about = {"recording.json"} if kind == "csv" else set()
        assert set(os.listdir(folder)) == {MANIFEST, *about, *(f"{n}.{kind}" for n in tables)}
        for name, table in tables.items():
            if kind == "csv":
                assert_csv(folder / f"{name}.csv", table)
                about = json.loads((folder / "recording.json").read_text())
            else:
                read = parquet.read_table(folder / f"{name}.parquet")
                for column in table.columns:
                    same(read[column].to_pylist(), map(spelled, table[column].tolist()))
                about = json.loads(read.schema.metadata[b"dask_diag"])
            assert (about["epoch"], about["metric"]) == (exported.epoch, exported.metric)
    if kind == "parquet":
        read = parquet.read_table(export(hostile, tmp_path / "x.parquet"))
        assert read["task"].to_pylist() == list(range(len(HOSTILE)))


def filled(recording):
    return {name: table for name, table in recording.tables().items() if len(table)}


@pytest.mark.parametrize("rows_at_once", [3, None])
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_csv_has_the_tasks_and_json_all_tables_as_they_were(
    recording, packed, rows_at_once, tmp_path, monkeypatch
):
    if rows_at_once:
        chunks = "dask_diag.views.exports.tables.chunks.__defaults__"
        monkeypatch.setattr(chunks, (rows_at_once,))
    for exported in (recording, by_hand(HOSTILE, HOSTILE[::-1], HOSTILE)):
        path = export(exported, tmp_path / f"x.csv{packed}", overwrite=True)
        assert_csv(path, exported.tasks)
        assert_json(export(exported, tmp_path / f"x.json{packed}", overwrite=True), exported)
        assert trace_of(exported, tmp_path)
    columns = read_csv(path)
    cells = [*columns["key"], *columns["function"], *columns["span"]]
    assert len(cells) == 3 * len(HOSTILE)
    # Nothing in CSV starts a formula.
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]


@settings(max_examples=40)
@given(st.lists(st.tuples(TEXT, TEXT, TEXT), min_size=1, max_size=8))
def test_any_text_comes_back_from_csv_and_json(tmp_path_factory, rows):
    exported, folder = by_hand(*map(list, zip(*rows))), tmp_path_factory.mktemp("x")
    assert_csv(export(exported, folder / "x.csv"), exported.tasks)
    assert_json(export(exported, folder / "x.json"), exported)
    trace_of(exported, folder)


@pytest.mark.parametrize("target", [("x.parquet",), ("folder", "parquet")])
def test_without_pyarrow_the_line_is_reported_that_installs_it(
    recording, tmp_path, monkeypatch, target
):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match="pip install pyarrow"):
        export(recording, tmp_path / target[0], *target[1:])
    assert list(tmp_path.iterdir()) == []


def known_stacks():
    outer = ("outer", "/a/b.py", 3, 1)
    return recording_of_stacks([((0.0, 1.0), "load", [outer], 1.0, 0.5)])


@pytest.mark.parametrize(
    ("name", "chosen", "reported"),
    [
        ("x", None, r"\.perfetto\.json or .*'perfetto', 'speedscope'.*'parquet'"),
        ("x.txt", None, "expected the ending of a format"),
        ("x.json", "trace", "format: expected one of 'perfetto'.* found 'trace'"),
        ("missing/x.json", None, "make the directory .*missing first"),
        ("x.parquet.gz", None, "already compressed"),
        ("a\0b.json", None, "expected a path, found one with a null byte"),
        ("a\0b", "csv", "expected a path, found one with a null byte"),
        ("x" * 300, "csv", "^cannot write .*: File name too long$"),
        # The name of the unfinished file is of no use to anybody.
        ("/proc/x.json", None, r"^cannot write /proc/x\.json: (?!.*\.tmp)"),
        *((path, None, "^path: expected a path, found ") for path in (None, 5, b"x.json")),
    ],
)
def test_what_cannot_be_written_is_reported(recording, name, chosen, reported, tmp_path):
    with pytest.raises(DiagnosticError, match=reported):
        export(recording, tmp_path / name if isinstance(name, str) else name, chosen)
    if not isinstance(name, str):
        with pytest.raises(DiagnosticError, match=reported):
            export_stacks(known_stacks(), name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x.csv", "x.parquet", "x.collapsed", "x.speedscope.json"])
def test_what_was_not_measured_is_reported_and_no_empty_file_is_written(name, tmp_path):
    with pytest.raises(DiagnosticError, match=r"no tasks were recorded|no stack samples to write"):
        export(ResourceProfiler(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x.csv", "x.folded"])
def test_files_that_are_there_are_not_overwritten_without_being_reported(recording, name, tmp_path):
    path, source = tmp_path / name, known_stacks() if name == "x.folded" else recording
    path.write_text("own")
    with pytest.raises(DiagnosticError, match="overwrite=True"):
        export(source, path)
    assert path.read_text() == "own"
    export(source, path, overwrite=True)
    assert path.read_text() != "own"
    with pytest.raises(DiagnosticError, match="expected a directory, found a file"):
        export(recording, path.rename(tmp_path / "file"), "csv", overwrite=True)
    with pytest.raises(DiagnosticError, match="it is a directory; name a file in it"):
        export(recording, tmp_path, "json", overwrite=True)


@pytest.mark.parametrize("first", ["csv", "parquet"])
def test_no_table_of_an_earlier_export_stays_beside_the_new_ones(recording, first, tmp_path):
    earlier = replace(recording, memory=NO_ROWS)
    folder = export(earlier, tmp_path / "folder", first)
    (folder / "memory.csv").write_text("own")
    (folder / "notes.txt").write_text("own")
    later = replace(earlier, resources=NO_ROWS, processes=NO_ROWS)
    with pytest.raises(DiagnosticError, match=r"will not overwrite the files in .*overwrite=True"):
        export(later, folder, "csv")
    assert f"resources.{first}" in os.listdir(folder)
    export(later, folder, "csv", overwrite=True)
    written = {f"{name}.csv" for name in filled(later)} | {"recording.json", MANIFEST}
    assert "memory.csv" not in written
    assert set(os.listdir(folder)) == written | {"memory.csv", "notes.txt"}
    assert (folder / "memory.csv").read_text() == "own"
    assert (folder / "notes.txt").read_text() == "own"


@pytest.mark.parametrize("chosen", ["perfetto", "csv", "json"])
def test_what_fails_leaves_everything_as_it_was(recording, chosen, tmp_path, monkeypatch):
    path = tmp_path / "there"
    path.mkdir() if chosen == "csv" else path.write_text("own")

    def broken(*args, **kwargs):
        raise OSError("no space left")
        yield

    for module in ("tables", "perfetto"):
        monkeypatch.setattr(f"dask_diag.views.exports.{module}.chunks", broken)
    with pytest.raises(DiagnosticError, match=r"cannot write .*no space left"):
        export(recording, path, chosen, overwrite=True)
    assert [file.name for file in tmp_path.iterdir()] == ["there"]
    assert list(path.iterdir()) == [] if chosen == "csv" else path.read_text() == "own"


def test_profilers_are_taken_as_they_are(tmp_path):
    with Profiler() as prof, ResourceProfiler(dt=0.01) as rprof:
        dask.local.get_sync(graph(2), ("all", 0))
    assert {"X", "C", "s"} <= {event["ph"] for event in trace_of([prof, rprof], tmp_path)}
    assert {event["ph"] for event in trace_of(Profiler(), tmp_path)} == {"M"}
    with pytest.raises(DiagnosticError, match="expected a Recording, a profiler"):
        export(3, tmp_path / "z.json")


def test_memory_does_not_grow_with_the_tasks(tmp_path, monkeypatch):
    # What is in memory at a time, a fifth of what it is for users.
    monkeypatch.setattr("dask_diag.views.exports.tables.chunks.__defaults__", (4_000,))
    monkeypatch.setattr("dask_diag.views.exports.perfetto.ROWS", 4_000)

    def most(count):
        exported = by_hand([f"('x', {n})" for n in range(count)])
        tracemalloc.start()
        try:
            export(exported, tmp_path / "x.perfetto.json", overwrite=True)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # Some numbers for each task; the text of a task and its arrow is more.
    assert most(8_000) - most(4_000) < 400 * 4_000
    assert (tmp_path / "x.perfetto.json").stat().st_size > 500 * 4_000


@settings(max_examples=50)
@given(st.lists(st.integers(0, 50), min_size=2, max_size=300), st.integers(2, 40))
def test_thinning_keeps_the_highest_of_each_part_and_the_end(amounts, steps):
    level = StepFunction(np.arange(len(amounts)) ** 1.5, np.array(amounts))
    thin = level.thinned(steps)
    assert len(thin.times) <= max(steps, 2) + 2
    assert (np.diff(thin.times) > 0).all()
    kept = dict(zip(level.times.tolist(), amounts))
    assert thin.amounts.tolist() == [kept[time] for time in thin.times.tolist()]
    assert (max(thin.amounts), thin.times[-1]) == (max(amounts), level.times[-1])
    assert len(amounts) > steps or thin is level
