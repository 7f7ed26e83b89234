"""Exports: what is written is what was measured, in formats that others describe."""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
import subprocess
import sys
import threading
import time
import tracemalloc
from dataclasses import fields, replace
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
from dask_diag.analysis.occupancy import ready_tasks
from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.errors import MissingDependencyError
from dask_diag.files import MANIFEST
from dask_diag.model.table import NO_ROWS, Table
from dask_diag.views.exports import perfetto
from dask_diag.views.exports import tables as tables_module
from dask_diag.views.exports.stacks import export_stacks

from .stacks import recording_of_stacks
from .tables import filled_table

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]
NAN = float("nan")
EMPTY = Table({})


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


def failed():
    with Profiler() as prof, pytest.raises(ValueError, match="own"):
        dsk = {("nap", n): (nap,) for n in range(3)} | {("fail", 0): (fail, ("nap", 0))}
        dask.threaded.get(dsk, list(dsk), num_workers=2)
    return prof.recording


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


# What the Trace Event Format says of the kinds of events that are used.
COMMON = {
    "name": {"type": "string", "minLength": 1},
    "cat": {"type": "string"},
    "pid": {"type": "integer", "minimum": 1, "maximum": 2**32 - 1},
    "tid": {"type": "integer", "minimum": 1, "maximum": 2**32 - 1},
    "ts": {"type": "number", "minimum": 0},
    "args": {"type": "object"},
}


def event(phase, required, **more):
    properties = {**COMMON, "ph": {"const": phase}, **more}
    return {
        "type": "object",
        "properties": properties,
        "required": ["ph", "name", "pid", "tid", *required],
        "additionalProperties": False,
    }


IDENTITY = {"type": "integer", "minimum": 1}
LOCAL = {
    "type": "object",
    "properties": {"local": {"type": "string"}},
    "required": ["local"],
    "additionalProperties": False,
}
NUMBERS = {"type": "object", "minProperties": 1, "additionalProperties": {"type": "number"}}
TRACE = {
    "type": "object",
    "required": ["traceEvents"],
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "otherData": {"type": "object"},
        "traceEvents": {
            "type": "array",
            "items": {
                "oneOf": [
                    event("X", ["ts", "dur", "cat"], dur={"type": "number", "minimum": 0}),
                    event("s", ["ts", "id", "cat"], id=IDENTITY),
                    event("f", ["ts", "id", "cat", "bp"], id=IDENTITY, bp={"const": "e"}),
                    event("b", ["ts", "id2", "cat"], id2=LOCAL),
                    event("e", ["ts", "id2", "cat"], id2=LOCAL),
                    event("C", ["ts", "args"], args=NUMBERS),
                    event(
                        "M",
                        ["args"],
                        name={
                            "enum": [
                                "process_name",
                                "process_sort_index",
                                "thread_name",
                                "thread_sort_index",
                            ]
                        },
                    ),
                ]
            },
        },
    },
    "additionalProperties": False,
}


def trace_of(recording, tmp_path, name="x.perfetto.json"):
    path = export(recording, tmp_path / name, overwrite=True)
    text = gzip.open(path, "rt").read() if name.endswith(".gz") else path.read_text()

    def no_constant(text):
        raise AssertionError(f"{text} is not JSON")

    trace = json.loads(text, parse_constant=no_constant)
    jsonschema.validate(trace, TRACE)
    return trace["traceEvents"]


def bound_flows(events):
    """What a reader binds flows to: events by time, those of one time in the file's order."""
    open_slices, since, bound, dropped = {}, {}, [], 0
    for event in sorted((e for e in events if "ts" in e), key=lambda e: e["ts"]):
        track = event["pid"], event["tid"]
        stack = open_slices.setdefault(track, [])
        if event["ph"] == "X":
            while stack and stack[-1]["ts"] + stack[-1]["dur"] <= event["ts"] + 1e-4:
                stack.pop()
            dropped += bool(stack)
            stack.append(event)
        elif event["ph"] == "s":
            since[event["id"]] = stack[-1]["args"]["task"]
        elif event["ph"] == "f":
            bound.append((since.pop(event["id"]), stack[-1]["args"]["task"]))
    assert not since
    assert not dropped, "slices that overlap on a track are dropped"
    return bound


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
    names = {
        (e["pid"], e["tid"]): e["args"]["name"]
        for e in events
        if e["ph"] == "M" and e["name"] == "thread_name"
    }
    assert len(names) == len({*zip(tasks["pid"].tolist(), tasks["thread"].tolist())})
    for row, task in enumerate(tasks.to_dicts()):
        drawn = slices[row]
        assert drawn["name"] == task["function"] == drawn["args"]["function"]
        assert names[drawn["pid"], drawn["tid"]] == task["worker"]
        assert drawn["pid"] == task["pid"]
        assert drawn["ts"] == pytest.approx(1e6 * (task["start"] - recording.start), abs=1e-3)
        assert drawn["dur"] == pytest.approx(1e6 * (task["stop"] - task["start"]), abs=2e-3)
        reported = drawn["args"]
        assert (
            reported["key"],
            reported["computation"],
            reported["span"],
            reported["outcome"],
            reported["error"],
        ) == (
            task["key"],
            task["computation"],
            task["span"],
            "ok",
            "",
        )
        assert reported["thread_cpu (s)"] == task["thread_cpu"]
    needs = zip(
        recording.dependencies["depends_on"].tolist(), recording.dependencies["task"].tolist()
    )
    assert sorted(bound_flows(events)) == sorted(needs)
    assert len(recording.dependencies) == 6 * 3 + 3 * 3


def test_no_thread_has_the_number_of_a_process(recording, tmp_path):
    events = trace_of(recording, tmp_path)
    on_tracks = [e for e in events if e["ph"] in "Xsf"]
    assert not {e["tid"] for e in on_tracks} & {e["pid"] for e in events}


def test_computes_and_spans_are_there_from_start_to_stop(recording, tmp_path):
    events = trace_of(recording, tmp_path)
    since = {e["id2"]["local"]: e for e in events if e["ph"] == "b"}
    ended = {e["id2"]["local"]: e for e in events if e["ph"] == "e"}
    assert set(since) == set(ended)
    computations = [n for n, e in since.items() if e["cat"] == "computation"]
    for identity, row in zip(computations, recording.computations.to_dicts(), strict=True):
        assert since[identity]["args"]["computation"] == row["computation"]
        lasted = ended[identity]["ts"] - since[identity]["ts"]
        assert lasted == pytest.approx(1e6 * (row["stop"] - row["start"]), abs=2e-3)
    (first,) = [n for n, e in since.items() if e["cat"] == "span"]
    assert since[first]["name"] == "first"
    assert since[first]["args"]["tasks"] == 13


def test_counters_are_the_samples(recording, tmp_path):
    events = trace_of(recording, tmp_path)
    samples = recording.resources
    memory = [e for e in events if e["ph"] == "C" and e["name"] == "memory"]
    assert [e["args"]["this process (MB)"] for e in memory] == (samples["memory"] / 1e6).tolist()
    cpu = [e for e in events if e["ph"] == "C" and e["name"] == "CPU"]
    assert [e["args"]["%"] for e in cpu] == samples["cpu"].tolist()
    # A share of CPU is drawn from the sample before on, as it is that of the interval.
    assert cpu[1]["ts"] == memory[0]["ts"]
    (rss,) = {e["name"] for e in events if e["ph"] == "C" and "rss (MB)" in e["args"]}
    assert rss == "memory in all"
    ready = [e for e in events if e["ph"] == "C" and e["name"] == "tasks"]
    level = ready_tasks(recording)
    assert [e["args"]["ready"] for e in ready] == level.amounts.tolist()
    assert ready[-1]["args"]["ready"] == 0


def test_failed_tasks_and_those_that_are_not_known_are_there(tmp_path):
    recording = failed()
    tasks = recording.tasks
    started = np.array([0.0, NAN, 0.0, NAN])[: len(tasks)]
    columns = {name: tasks[name] for name in tasks.columns}
    for name in ("start", "stop", "thread_cpu", "collected"):
        columns[name] = np.where(np.isnan(started), NAN, tasks[name])
    hidden = replace(recording, tasks=filled_table("tasks", columns))
    for exported in (recording, hidden, in_flight()):
        events = trace_of(exported, tmp_path)
        reported = [e["args"] for e in events if e["ph"] in "Xb" and "task" in e.get("args", ())]
        assert sorted(args["task"] for args in reported) == list(range(len(exported.tasks)))
        rows = exported.tasks.to_dicts()
        for args in reported:
            assert args["outcome"] == rows[args["task"]]["outcome"]
            assert args["error"] == rows[args["task"]]["error"]
        aside = [
            e["args"]["task"]
            for e in events
            if e["ph"] == "b" and e["name"].startswith("not placed: ")
        ]
        nowhere = np.isnan(exported.tasks["start"]) | (
            np.array(exported.tasks["pid"].tolist()) == 0
        )
        assert aside == np.flatnonzero(nowhere).tolist()
        bound_flows(events)


def test_a_packed_trace_is_the_same(recording, tmp_path):
    plain = trace_of(recording, tmp_path, "x.trace.json")
    assert trace_of(recording, tmp_path, "x.trace.json.gz") == plain


def by_hand(keys, functions=None, spans=None):
    """A recording of one worker; every task needs the one before."""
    count = len(keys)
    starts = np.arange(count, dtype=float)
    code = np.zeros(count, np.uint8)
    tasks = filled_table(
        "tasks",
        {
            "key": PrefixStrings.of(keys),
            "function": Categorical.of(functions or ["f"] * count),
            "start": starts,
            "stop": starts + 0.5,
            "thread_cpu": np.where(starts % 3 == 2, NAN, 0.25),
            "thread_noncpu": np.full(count, -1e-7),
            "submitted": starts - 0.25,
            "collected": starts + 0.75,
            "worker": Categorical(code, ["caller"]),
            "pid": Categorical(code, [7]),
            "thread": Categorical(code, [140_000_000_000_001]),
            "computation": Categorical(code, ["7-1"]),
            "span": Categorical.of(spans or [""] * count),
            "outcome": Categorical(code, ["ok"]),
            "error": Categorical(code, [""]),
        },
    )
    computations = filled_table(
        "computations",
        {
            "computation": Categorical.of(["7-1"]),
            "start": np.array([-0.5]),
            "stop": np.array([count + 1.0]),
            "workers": np.array([1]),
            "span": Categorical.of([""]),
        },
    )
    needs = {"task": np.arange(1, count), "depends_on": np.arange(count - 1)}
    return Recording(
        start=-0.5,
        stop=count + 1.0,
        epoch=1e9,
        computations=computations,
        tasks=tasks,
        dependencies=filled_table("dependencies", needs) if count > 1 else EMPTY,
        metrics=EMPTY,
        resources=EMPTY,
        cached_results=EMPTY,
        notices=("a notice",),
    )


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
    st.characters(
        exclude_categories=() if sys.version_info >= (3, 11) else ("Cs",),
        exclude_characters="" if sys.version_info >= (3, 11) else "\0",
    )
    if sys.version_info >= (3, 11)
    else st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"),
    max_size=12,
)


def spelled(value):
    """What a text is where UTF-8 is written."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def columns_of(table):
    return {name: table[name].tolist() for name in table.columns}


def same(written, measured):
    assert len(written) == len(measured)
    for value, expected in zip(written, measured, strict=True):
        both_unknown = isinstance(expected, float) and math.isnan(expected)
        assert (value is None or value != value) if both_unknown else value == expected


def read_csv(path, table):
    """The columns of a file, by what documentation says of it."""
    opened = gzip.open if path.name.endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8", newline="") as stream:
        names, *rows = csv.reader(stream)
    columns = dict(zip(names, zip(*rows, strict=True) if rows else [()] * len(names)))
    for name in table.columns:
        first = next(iter(table[name].tolist()), "")
        if isinstance(first, str):
            columns[name] = [cell[1:] if cell[:1] == "'" else cell for cell in columns[name]]
        else:
            columns[name] = [type(first)(cell) if cell else None for cell in columns[name]]
    return columns


def assert_csv(path, table):
    columns = read_csv(path, table)
    for name, measured in columns_of(table).items():
        same(columns[name], [spelled(value) for value in measured])


def filled(recording):
    tables = [(f.name, getattr(recording, f.name)) for f in fields(recording)]
    return {name: table for name, table in tables if isinstance(table, Table) and len(table)}


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
def test_csv_has_the_tasks_as_they_were(recording, name, tmp_path):
    for exported in (recording, by_hand(HOSTILE, HOSTILE[::-1], HOSTILE)):
        path = export(exported, tmp_path / name, overwrite=True)
        assert_csv(path, exported.tasks)


def test_nothing_in_csv_starts_a_formula(tmp_path):
    path = export(by_hand(HOSTILE, HOSTILE[::-1], HOSTILE), tmp_path / "x.csv")
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    tables_module = [row[name] for row in rows for name in ("key", "function", "span")]
    assert len(rows) == len(HOSTILE)
    assert not [cell for cell in tables_module if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]


@settings(max_examples=40)
@given(st.lists(st.tuples(TEXT, TEXT, TEXT), min_size=1, max_size=8))
def test_any_text_comes_back_from_csv_and_json(tmp_path_factory, rows):
    keys, functions, spans = map(list, zip(*rows))
    exported = by_hand(keys, functions, spans)
    folder = tmp_path_factory.mktemp("x")
    assert_csv(export(exported, folder / "x.csv"), exported.tasks)
    assert_json(export(exported, folder / "x.json"), exported)
    events = trace_of(exported, folder)
    assert len(bound_flows(events)) == len(keys) - 1


def test_a_folder_has_a_file_for_each_table(recording, tmp_path):
    path = export(recording, tmp_path / "folder", format="csv")
    tables = filled(recording)
    assert {file.name for file in path.iterdir()} == {
        MANIFEST,
        "recording.json",
        *(f"{name}.csv" for name in tables),
    }
    for name, table in tables.items():
        assert_csv(path / f"{name}.csv", table)
    about = json.loads((path / "recording.json").read_text())
    assert about["epoch"] == recording.epoch
    assert about["metric"] == recording.metric


def assert_json(path, recording):
    opened = gzip.open if path.name.endswith(".gz") else open
    with opened(path, "rt", encoding="ascii") as stream:
        document = json.load(stream, parse_constant=lambda text: pytest.fail(text))
    for name in ("start", "stop", "epoch", "metric"):
        assert document[name] == getattr(recording, name)
    assert tuple(document["notices"]) == recording.notices
    assert set(document["tables"]) == set(filled(recording))
    for name, table in filled(recording).items():
        columns = document["tables"][name]
        for column, measured in columns_of(table).items():
            same(columns[column], measured)


@pytest.mark.parametrize("name", ["x.json", "x.json.gz"])
def test_json_has_all_tables_as_they_were(recording, name, tmp_path):
    for exported in (recording, by_hand(HOSTILE, HOSTILE[::-1], HOSTILE)):
        assert_json(export(exported, tmp_path / name, overwrite=True), exported)


def test_json_has_more_rows_than_are_written_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("dask_diag.views.exports.tables.chunks.__defaults__", (3,))
    exported = by_hand(HOSTILE)
    assert_json(export(exported, tmp_path / "x.json"), exported)
    assert_csv(export(exported, tmp_path / "x.csv"), exported.tasks)
    assert len(bound_flows(trace_of(exported, tmp_path))) == len(HOSTILE) - 1


def test_parquet_has_all_tables_as_they_were(recording, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    hostile = by_hand(HOSTILE, HOSTILE[::-1], HOSTILE)
    for exported, name in ((recording, "one"), (hostile, "two")):
        folder = export(exported, tmp_path / name, format="parquet")
        assert {file.stem for file in folder.glob("*.*")} == {
            *filled(exported),
            Path(MANIFEST).stem,
        }
        for name, table in filled(exported).items():
            read = parquet.read_table(folder / f"{name}.parquet")
            for column, measured in columns_of(table).items():
                same(read[column].to_pylist(), [spelled(value) for value in measured])
        about = json.loads(read.schema.metadata[b"dask_diag"])
        assert about["epoch"] == exported.epoch
    read = parquet.read_table(export(hostile, tmp_path / "x.parquet"))
    assert read["task"].to_pylist() == list(range(len(HOSTILE)))


def test_without_pyarrow_the_line_is_reported_that_installs_it(recording, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match="pip install pyarrow"):
        export(recording, tmp_path / "x.parquet")
    with pytest.raises(MissingDependencyError, match="pip install pyarrow"):
        export(recording, tmp_path / "folder", format="parquet")
    assert list(tmp_path.iterdir()) == []


def known_stacks():
    outer = ("outer", "/a/b.py", 3, 1)
    return recording_of_stacks([((0.0, 1.0), "load", [outer], 1.0, 0.5)])


def test_stacks_are_exported_by_the_same_function(tmp_path):
    content = json.loads(export(known_stacks(), tmp_path / "x.speedscope.json").read_text())
    assert content["profiles"][0]["name"] == "load"
    assert export(known_stacks(), tmp_path / "x.folded").read_text().startswith("tasks;load;outer")
    named = export(known_stacks(), tmp_path / "stacks.txt", format="collapsed")
    assert named.read_text() == (tmp_path / "x.folded").read_text()


@pytest.mark.parametrize(
    ("name", "chosen", "reported"),
    [
        ("x", None, r"\.perfetto\.json or .*'perfetto', 'speedscope'.*'parquet'"),
        ("x.txt", None, "expected an ending that says the format"),
        ("x.json", "trace", "format: expected one of 'perfetto'.* found 'trace'"),
        ("missing/x.json", None, "make the directory .*missing first"),
        ("x.parquet.gz", None, "compressed by itself"),
        ("a\0b.json", None, "expected a path, found one with a null byte"),
        ("a\0b", "csv", "expected a path, found one with a null byte"),
        ("x" * 300 + ".json", None, "^cannot write .*: File name too long$"),
        ("x" * 300, "csv", "^cannot write .*: File name too long$"),
    ],
)
def test_what_cannot_be_written_is_reported(recording, name, chosen, reported, tmp_path):
    with pytest.raises(DiagnosticError, match=reported):
        export(recording, tmp_path / name, chosen)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", [None, 5, b"x.json"])
def test_what_is_no_path_is_reported(recording, path):
    kind = type(path).__name__
    with pytest.raises(DiagnosticError, match=f"^path: expected a path, found {kind}$"):
        export(recording, path)
    with pytest.raises(DiagnosticError, match=f"^path: expected a path, found {kind}$"):
        export_stacks(known_stacks(), path)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="there is no /proc")
def test_names_of_unfinished_files_are_reported_to_nobody(recording):
    with pytest.raises(DiagnosticError) as reported:
        export(recording, "/proc/x.json")
    assert str(reported.value).startswith("cannot write /proc/x.json: ")
    assert ".tmp" not in str(reported.value)


@pytest.mark.parametrize("name", ["x.csv", "x.parquet", "x.collapsed", "x.speedscope.json"])
def test_what_was_not_measured_is_reported_and_no_empty_file_is_written(name, tmp_path):
    with pytest.raises(DiagnosticError, match=r"no tasks were recorded|no stack samples to write"):
        export(ResourceProfiler(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_the_ending_says_the_format(recording, tmp_path):
    for name, begins in (
        ("x.perfetto.json", '{"displayTimeUnit"'),
        ("x.TRACE.JSON", '{"displayTimeUnit"'),
        ("x.speedscope.json", '{"$schema"'),
        ("x.json", '{"format":"dask_diag recording"'),
        ("x.csv", "task,key,function"),
    ):
        source = known_stacks() if "speedscope" in name else recording
        assert export(source, tmp_path / name).read_text().startswith(begins), name
    named = export(recording, tmp_path / "y.json", "perfetto")
    assert named.read_text().startswith('{"displayTimeUnit"')


def test_files_that_are_there_are_not_overwritten_without_being_reported(recording, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("own")
    with pytest.raises(DiagnosticError, match="overwrite=True") as reported:
        export(recording, path)
    stacks = tmp_path / "x.folded"
    stacks.write_text("own")
    with pytest.raises(DiagnosticError) as reported_of_stacks:
        export_stacks(known_stacks(), stacks)
    assert str(reported_of_stacks.value) == str(reported.value).replace("x.csv", "x.folded")
    assert stacks.read_text() == "own"
    export_stacks(known_stacks(), stacks, overwrite=True)
    assert stacks.read_text().startswith("tasks;load;outer")
    assert path.read_text() == "own"
    export(recording, path, overwrite=True)
    assert path.read_text() != "own"
    folder = tmp_path / "folder"
    folder.mkdir()
    export(recording, folder, "csv")
    (folder / "notes.txt").write_text("own")
    with pytest.raises(DiagnosticError, match="overwrite=True"):
        export(recording, folder, "csv")
    export(recording, folder, "csv", overwrite=True)
    assert (folder / "notes.txt").read_text() == "own"
    with pytest.raises(DiagnosticError, match="it is a directory; name a file in it"):
        export(recording, folder, "json", overwrite=True)
    with pytest.raises(DiagnosticError, match="expected a folder, found a file"):
        export(recording, path.rename(tmp_path / "file"), "csv", overwrite=True)


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
    events = json.loads(export([prof, rprof], tmp_path / "x.trace.json").read_text())
    assert {"X", "C", "s"} <= {e["ph"] for e in events["traceEvents"]}
    nothing = json.loads(export(Profiler(), tmp_path / "y.trace.json").read_text())
    assert {e["ph"] for e in nothing["traceEvents"]} == {"M"}
    with pytest.raises(DiagnosticError, match="expected a profiler"):
        export(3, tmp_path / "z.json")


def test_memory_does_not_grow_with_the_tasks(tmp_path, monkeypatch):
    # What is in memory at a time, a fifth of what it is for users.
    monkeypatch.setattr(tables_module.chunks, "__defaults__", (4_000,))
    for module in (perfetto, perfetto):
        monkeypatch.setattr(module, "ROWS", 4_000)

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


def test_exporting_loads_no_bokeh(tmp_path):
    code = f"""
import sys
from dask_diag import Profiler, export
export(Profiler(), {str(tmp_path / "x.json")!r})
print([m for m in ("bokeh", "pandas", "pyarrow", "rich") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_tasks_are_ready_from_when_their_needs_were_collected():
    recording = by_hand(["a", "b", "c"])
    # The first could begin with the computation, the others when the one before was collected.
    times, amounts = ready_tasks(recording)
    assert times.tolist() == [-0.5, 0.0, 0.75, 1.0, 1.75, 2.0]
    assert amounts.tolist() == [1, 0, 1, 0, 1, 0]
    assert len(ready_tasks(replace(recording, tasks=EMPTY, dependencies=EMPTY)).times) == 0
    started = {name: recording.tasks[name] for name in recording.tasks.columns}
    started["start"] = np.array([0.0, 1.0, NAN])
    times, amounts = ready_tasks(replace(recording, tasks=filled_table("tasks", started)))
    assert (times[-1], amounts[-1], amounts[-2]) == (4.0, 0, 1)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 50), min_size=2, max_size=300), st.integers(2, 40))
def test_thinning_keeps_the_highest_of_each_part_and_the_end(amounts, steps):
    level = StepFunction(np.arange(len(amounts)) ** 1.5, np.array(amounts))
    thin = level.thinned(steps)
    assert len(thin.times) <= max(steps, 2) + 2
    assert (np.diff(thin.times) > 0).all()
    assert thin.amounts.max() == max(amounts)
    assert (thin.times[-1], thin.amounts[-1]) == (level.times[-1], amounts[-1])
    position = np.searchsorted(level.times, thin.times)
    assert (level.amounts[position] == thin.amounts).all()
    if len(amounts) <= steps:
        assert thin is level


@given(st.lists(st.text(), max_size=20), st.integers(1, 7))
def test_texts_come_in_chunks(texts, rows):
    chunks = list(PrefixStrings.of(texts).chunks(rows))
    assert sum(chunks, []) == texts
    assert all(len(chunk) == rows for chunk in chunks[:-1])
