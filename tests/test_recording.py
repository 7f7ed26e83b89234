"""The model: columns keep what they are given, combine, and hold nothing of the user's."""

from __future__ import annotations

import gc
import time
import types
from dataclasses import replace
from enum import IntEnum
from operator import add

import dask.local
import dask.threaded
import numpy as np
import pytest
from dask._task_spec import GraphNode
from hypothesis import given
from hypothesis import strategies as st

from dask_diag import CacheProfiler, DiagnosticError, Profiler, Recording
from dask_diag.columns import Categorical, PrefixStrings, concatenate
from dask_diag.model.table import Table

from .tables import filled_table

COLUMNS = [
    "key",
    "function",
    "start",
    "stop",
    "thread_cpu",
    "thread_noncpu",
    "submitted",
    "collected",
    "worker",
    "pid",
    "thread",
    "computation",
    "span",
    "outcome",
    "error",
    "error_message",
    "error_location",
    "attempt",
    "host",
    "nbytes",
    "queued",
    "stolen",
    "client",
    "seceded",
    "seceded_cpu",
]
DSK = {"a": 1, ("b", 0): (add, "a", 1), ("c", 0): (add, ("b", 0), 1)}


def recorded(*diagnostics, get=dask.threaded.get):
    import contextlib

    with contextlib.ExitStack() as stack:
        for diagnostic in diagnostics:
            stack.enter_context(diagnostic)
        get(DSK, ("c", 0))
    return [diagnostic.recording for diagnostic in diagnostics]


@given(st.lists(st.text()))
def test_texts_come_back_as_they_were(texts):
    column = PrefixStrings.of(texts)
    assert column.tolist() == texts
    assert len(column) == len(texts)


@given(st.lists(st.tuples(st.text(max_size=5), st.integers())))
def test_keys_come_back_as_text(keys):
    assert PrefixStrings.of(map(str, keys)).tolist() == [str(key) for key in keys]


@given(st.lists(st.one_of(st.text(), st.integers())))
def test_labels_come_back_as_they_were(items):
    assert Categorical.of(items).tolist() == items


@given(
    st.lists(st.lists(st.text(max_size=3)), min_size=1),
    st.sampled_from([Categorical.of, PrefixStrings.of]),
)
def test_columns_are_put_end_to_end(parts, of):
    assert concatenate([of(part) for part in parts]).tolist() == sum(parts, [])


@given(st.lists(st.text(), min_size=1), st.data())
def test_rows_are_chosen_alike_in_every_kind_of_column(texts, data):
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts))))
    table = Table(
        {"a": PrefixStrings.of(texts), "b": Categorical.of(texts), "c": np.arange(len(texts))}
    )
    chosen = table.rows(mask)
    expected = [text for text, selected in zip(texts, mask) if selected]
    assert chosen["a"].tolist() == chosen["b"].tolist() == expected
    assert chosen["c"].tolist() == np.flatnonzero(mask).tolist()


def test_a_column_prints_its_length_and_first_values():
    texts = PrefixStrings.of(["x-1", "x-2\n\x1b[2J", "x-3", "x-4"])
    assert repr(texts) == "<PrefixStrings of 4 rows: 'x-1', 'x-2\\n\\x1b[2J', 'x-3', ...>"
    assert repr(texts[2:]) == "<PrefixStrings of 2 rows: 'x-3', 'x-4'>"
    assert repr(PrefixStrings.of([])) == "<PrefixStrings of 0 rows: >"
    assert repr(Categorical.of(["a", "a", 2])) == "<Categorical of 3 rows: 'a', 'a', 2>"
    assert len(repr(PrefixStrings.of(["k" * 10_000] * 9))) < 200
    assert repr(Table({"key": texts}).rows(slice(2))["key"]).startswith(
        "<PrefixStrings of 2 rows: 'x-1'"
    )


def test_the_task_table_has_the_columns_it_promises():
    (recording,) = recorded(Profiler())
    assert list(recording.tasks.columns) == COLUMNS
    row = recording.tasks.to_dicts()[0]
    assert list(row) == COLUMNS
    assert [type(row[name]) for name in ("key", "start", "pid", "error")] == [str, float, int, str]
    frame = recording.tasks.to_dataframe()
    assert list(frame.columns) == COLUMNS
    assert repr(frame.to_dict("records")) == repr(recording.tasks.to_dicts())


def test_a_missing_pandas_is_reported_with_the_line_that_installs_it(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        Table({}).to_dataframe()


def test_a_recording_of_an_hour_says_its_seconds():
    hour = Recording(0.0, 3_600.0, 0.0)
    assert repr(hour).startswith("<Recording of 3,600 s; ")
    assert "<p>Recording of 3,600 s; " in hour._repr_html_()


def test_an_unknown_column_is_reported_with_those_there_are():
    with pytest.raises(KeyError, match="no column 'stat'; there are start, stop"):
        Table({"start": np.zeros(1), "stop": np.zeros(1)})["stat"]


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(DiagnosticError, match="one length"):
        Table({"a": np.zeros(1), "b": np.zeros(2)})


def test_a_recording_is_frozen():
    (recording,) = recorded(Profiler())
    with pytest.raises(AttributeError):
        recording.tasks = None
    with pytest.raises(ValueError, match="read-only"):
        recording.tasks["start"][0] = 0


def test_combining_nothing_is_refused():
    with pytest.raises(DiagnosticError, match="at least one"):
        Recording.combine([])


def test_an_empty_recording_is_a_recording():
    with Profiler() as prof:
        pass
    assert len(prof.recording.tasks) == 0
    assert prof.recording.tasks.to_dicts() == []
    assert list(prof.recording.tasks.columns) == COLUMNS
    assert "without a computation" in prof.summary()
    prof.recording._repr_html_()


class Key(tuple):
    """A key that no builtin writes."""


class Name(str):
    """A text that no builtin writes."""


class Number(IntEnum):
    """A number that no builtin writes."""

    ONE = 1


@pytest.mark.parametrize(
    "key",
    [
        "plain",
        "with-dash",
        ("t", 1),
        ("t", (1, "x")),
        7,
        2.5,
        b"bytes",
        ("t", np.int64(3)),
        ("t", np.str_("x")),
        ("t", Name("x")),
        ("t", Number.ONE),
        Key("k"),
    ],
)
def test_any_key(key):
    with Profiler() as prof, CacheProfiler() as cprof:
        dask.local.get_sync({key: (add, 1, 2)}, key)
    assert [result.key for result in prof.results] == [key]
    assert [result.key for result in cprof.results] == [key]
    assert prof.recording.tasks["key"].tolist() == [str(key)]
    assert prof.recording.notices == cprof.recording.notices == ()


@pytest.mark.parametrize(
    "others",
    [
        [],
        ["total"],
        [("t", (1, "x"))],
        [("t", 1, np.int64(3))],
        [("t", True, None, b"bytes")],
        [Name("x"), ("t", np.str_("x"), 2.5)],
    ],
    ids=str,
)
def test_keys_of_several_lengths_and_types_come_back_as_they_were(others):
    keys = [("x", 1), ("x", 1, 2), *others]
    with Profiler() as prof:
        dask.local.get_sync(dict.fromkeys(keys, (add, 1, 2)), keys)
    key_of = {str(key): key for key in keys}
    assert {result.key for result in prof.results} == {*keys}
    for result in prof.results:
        key = key_of[str(result.key)]
        assert type(result.key) is type(key)
        if type(key) is tuple:
            assert [*map(type, result.key)] == [*map(type, key)]


@pytest.mark.parametrize(
    ("key", "function"),
    [
        ("c", "add"),
        (7, "add"),
        ("total-0d5f6a", "total"),
        (("sum-aggregate-0123456789abcdef0123456789abcdef", 1), "sum-aggregate"),
        (("x", 1), "x"),
    ],
)
def test_functions_are_named_by_prefix_or_by_the_function(key, function):
    with Profiler() as prof, CacheProfiler() as cprof:
        dask.local.get_sync({key: (add, 1, 2)}, key)
    assert prof.recording.tasks["function"].tolist() == [function]
    assert cprof.recording.cached_results["function"].tolist() == [function]


def test_a_key_of_a_type_of_its_own_renames_no_functions():
    """dask remembers the names that it makes of keys, and a key may equal a tuple and be none."""
    with Profiler() as prof:
        dask.local.get_sync({Key(("remembered",)): (add, 1, 2)}, Key(("remembered",)))
        dask.local.get_sync({("remembered", 0): (add, 1, 2)}, ("remembered", 0))
    assert prof.recording.tasks["function"].tolist()[1] == "remembered"


def reachable(root):
    seen, todo = set(), [root]
    while todo:
        item = todo.pop()
        if id(item) in seen or isinstance(item, (type, types.ModuleType, types.FunctionType)):
            continue
        seen.add(id(item))
        yield item
        todo.extend(gc.get_referents(item))


def test_no_task_result_or_argument_is_reachable_from_a_recording():
    class Argument:
        pass

    argument = Argument()
    dsk = {("f", 0): (lambda x: Argument(), argument), ("g", 0): (lambda x: x, ("f", 0))}
    with Profiler() as prof, CacheProfiler() as cprof:
        result = dask.threaded.get(dsk, ("g", 0))
    for root in (prof.recording, cprof.recording, prof, cprof):
        of_user = [
            item
            for item in reachable(root)
            if isinstance(item, (Argument, GraphNode)) or item is dsk
        ]
        assert of_user == []
    assert isinstance(result, Argument)


def test_memory_retained_per_task_is_small():
    import tracemalloc
    import uuid

    with Profiler():
        # A computation that is not short imports threadpoolctl, once.
        dask.local.get_sync({("sleep", 0): (time.sleep, 0.11)}, [("sleep", 0)])
    for keys in (
        [("x-abc", n) for n in range(4000)],
        [f"inc-{uuid.uuid4()}" for _ in range(4000)],
    ):
        prof = Profiler()
        tracemalloc.start()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        dsk = {(k if isinstance(k, tuple) else str(k)): (int,) for k in keys}
        with prof:
            dask.local.get_sync(dsk, list(dsk))
        del dsk
        gc.collect()
        retained = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert retained / 4000 <= 100


def needs_of(recording):
    keys = recording.tasks["key"].tolist()
    return {
        (keys[row["task"]], keys[row["depends_on"]]) for row in recording.dependencies.to_dicts()
    }


def test_which_task_needs_which_is_recorded_on_every_scheduler():
    import dask.multiprocessing

    dsk = {
        ("a", 0): (add, 1, 2),
        ("b", 0): (add, ("a", 0), 1),
        ("c", 0): (add, ("a", 0), ("b", 0)),
        "lone-1": (add, 1, 1),
    }
    true = {("('b', 0)", "('a', 0)"), ("('c', 0)", "('a', 0)"), ("('c', 0)", "('b', 0)")}
    for get in (dask.local.get_sync, dask.threaded.get, dask.multiprocessing.get):
        with Profiler() as prof:
            get(dsk, [("a", 0), ("c", 0), "lone-1", ("b", 0)])
        assert needs_of(prof.recording) == true


def test_needs_are_retained_when_recordings_combine():
    (one,), (two,) = recorded(Profiler()), recorded(Profiler())
    both = Recording.combine([one, two, one])
    assert len(both.tasks) == 4
    assert [tuple(row.values()) for row in both.dependencies.to_dicts()] == [(1, 0), (3, 2)]
    assert needs_of(both) == needs_of(one)


def sampled(name, start, computation="c-1"):
    """A recording of one computation, in which one function was sampled for a second."""
    return Recording(
        start=start,
        stop=start + 1,
        epoch=0.0,
        computations=filled_table("computations", {"computation": Categorical.of([computation])}),
        frames=filled_table(
            "frames",
            {
                "name": Categorical.of(["outer", name]),
                "file": Categorical.of(["a.py", "b.py"]),
                "line": np.array([1, 2]),
                "first_line": np.array([1, 2]),
            },
        ),
        call_tree=filled_table(
            "call_tree", {"parent": np.array([-1, 0]), "frame": np.array([0, 1])}
        ),
        samples=filled_table(
            "samples",
            {
                "start": np.array([start, start]),
                "stop": np.array([start + 1, start + 1]),
                "function": Categorical.of(["task", "task"]),
                "key": Categorical.of(["", "('task', 0)"]),
                "node": np.array([1, -1]),
                "seconds": np.array([0.75, 0.25]),
                "cpu_seconds": np.array([0.5, np.nan]),
                "count": np.array([75, 0]),
            },
        ),
    )


def leaves(recording):
    """The function's name of each sample's innermost frame."""
    names, frame = recording.frames["name"], recording.call_tree["frame"]
    return [names[int(frame[s])] if s >= 0 else "-" for s in recording.samples["node"].tolist()]


def test_samples_are_combined_with_their_stacks_and_frames():
    both = Recording.combine([sampled("f", 0.0), sampled("g", 5.0, "c-2")])
    assert leaves(both) == ["f", "-", "g", "-"]
    assert both.call_tree["parent"].tolist() == [-1, 0, -1, 2]
    assert both.samples["start"].tolist() == [0.0, 0.0, 5.0, 5.0]


def test_time_that_two_recordings_sampled_is_counted_once():
    both = Recording.combine([sampled("f", 0.0), sampled("f", 0.0), sampled("f", 3.0)])
    assert both.samples["start"].tolist() == [0.0, 0.0, 3.0, 3.0]
    assert leaves(both) == ["f", "-", "f", "-"]


def test_recordings_without_samples_combine_with_one_that_has_some():
    empty = Table({})
    plain = replace(sampled("f", 0.0, "c-2"), frames=empty, call_tree=empty, samples=empty)
    both = Recording.combine([plain, sampled("f", 0.0), plain])
    assert leaves(both) == ["f", "-"]
    assert len(Recording.combine([plain, plain]).samples) == 0


def test_analysis_says_what_it_expects():
    from dask_diag import activities, critical_path, findings, memory_usage, waits

    for analysis in (activities, critical_path, findings, memory_usage, waits):
        with pytest.raises(DiagnosticError, match=r"expected a Recording, .*its \.recording"):
            analysis(Profiler())
