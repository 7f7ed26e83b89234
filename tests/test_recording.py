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

from dask_diag import (
    CacheProfiler,
    DiagnosticError,
    Profiler,
    Recording,
    activities,
    critical_path,
    findings,
    summary,
    task_memory,
    waits,
)
from dask_diag.columns import Categorical, PrefixStrings, concatenate
from dask_diag.model.table import Table
from dask_diag.model.tables import TABLES

from .recordings import NOTHING, with_tables


@given(st.lists(st.text(), min_size=1), st.data())
def test_rows_are_chosen_alike_in_every_kind_of_column(texts, data):
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts))))
    table = Table(
        {"a": PrefixStrings.of(texts), "b": Categorical.of(texts), "c": np.arange(len(texts))}
    )
    chosen = table.filter(mask)
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
    assert repr(Table({"key": texts}).filter(slice(2))["key"]).startswith(
        "<PrefixStrings of 2 rows: 'x-1'"
    )


class Key(tuple):
    """A key that no builtin writes."""


class Name(str):
    """A text that no builtin writes."""


class Number(IntEnum):
    """A number that no builtin writes."""

    ONE = 1


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

    dsk = {("f", 0): (lambda x: Argument(), Argument()), ("g", 0): (lambda x: x, ("f", 0))}
    with Profiler() as prof, CacheProfiler() as cprof:
        result = dask.threaded.get(dsk, ("g", 0))
    assert isinstance(result, Argument)
    for root in (prof.recording, cprof.recording, prof, cprof):
        for item in reachable(root):
            assert not isinstance(item, (Argument, GraphNode))
            assert item is not dsk


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
        keys = prof.recording.tasks["key"].tolist()
        rows = prof.recording.dependencies.to_dicts()
        assert {(keys[row["task"]], keys[row["depends_on"]]) for row in rows} == true


def test_samples_are_combined_with_their_stacks_and_frames():
    def sampled(name, start, computation):
        return with_tables(
            replace(NOTHING, start=start, stop=start + 1),
            computations={"computation": [computation]},
            frames={"name": ["outer", name], "file": ["a.py", "b.py"], "line": [1, 2]},
            call_tree={"parent": [-1, 0], "frame": [0, 1]},
            samples={"start": [start] * 2, "stop": [start + 1] * 2, "node": [1, -1]},
        )

    f, g = sampled("f", 0.0, "c-1"), sampled("g", 5.0, "c-2")
    plain = with_tables(NOTHING, computations={"computation": ["c-3"]})
    both = Recording.combine([plain, f, g])
    assert both.call_tree["parent"].tolist() == [-1, 0, -1, 2]
    leaf = both.call_tree["frame"][both.samples["node"][::2]]
    assert [both.frames["name"][frame] for frame in leaf.tolist()] == ["f", "g"]
    assert both.samples["node"].tolist()[1::2] == [-1, -1]
    assert both.samples["start"].tolist() == [0.0, 0.0, 5.0, 5.0]
    # Time that two recordings sampled is counted once.
    assert Recording.combine([f, f, plain]).samples["start"].tolist() == [0.0, 0.0]


def test_analysis_says_what_it_expects():
    for analysis in (activities, critical_path, findings, task_memory, waits):
        with pytest.raises(DiagnosticError, match=r"expected a Recording, .*load a file with"):
            analysis("run.diag")
        with pytest.raises(DiagnosticError, match=r"of these, found int"):
            analysis([NOTHING, 3])
        assert str(analysis([Profiler()])) == str(analysis(Profiler().recording))


@pytest.mark.leaves_files
def test_a_recording_has_the_common_views_as_methods(tmp_path):
    with Profiler() as prof:
        dask.local.get_sync({"a": (add, 1, 2)}, "a")
    recording = prof.recording
    assert recording.summary(verbose=True) == summary(recording, verbose=True)
    assert recording.findings() == findings(recording)
    assert recording.report(tmp_path / "x.html") == tmp_path / "x.html"
    with pytest.raises(DiagnosticError, match="overwrite"):
        recording.report(tmp_path / "x.html")


@given(st.lists(st.one_of(st.text(), st.integers())), st.lists(st.text(max_size=3)))
def test_columns_come_back_as_they_were_and_are_put_end_to_end(items, others):
    assert Categorical.of(items).tolist() == items
    for of, values in ((Categorical.of, items), (PrefixStrings.of, [*map(str, items)])):
        assert concatenate([of(values), of(others), of([])]).tolist() == [*values, *others]
        assert len(of(values)) == len(values)


def test_a_recording_says_what_it_is_and_is_frozen():
    with Profiler() as prof:
        dask.local.get_sync({"a": (add, 1, 2)}, "a")
    recording = prof.recording
    assert recording.tasks.columns == tuple(TABLES["tasks"].schema)
    row = recording.tasks.to_dicts()[0]
    assert [type(row[name]) for name in ("key", "start", "pid", "error")] == [str, float, int, str]
    frame = recording.tasks.to_pandas()
    assert repr(frame.to_dict("records")) == repr(recording.tasks.to_dicts())
    with pytest.raises(AttributeError):
        recording.tasks = None
    with pytest.raises(ValueError, match="read-only"):
        recording.tasks["start"][0] = 0
    with pytest.raises(KeyError, match="no column 'stat'; there are start, stop"):
        Table({"start": np.zeros(1), "stop": np.zeros(1)})["stat"]
    with pytest.raises(DiagnosticError, match="one length"):
        Table({"a": np.zeros(1), "b": np.zeros(2)})
    hour = Recording(0.0, 3_600.0, 0.0)
    assert repr(hour).startswith("<Recording of 3,600 s; ")
    assert "3,600 s without a computation" in hour._repr_html_()
    with Profiler() as prof:
        pass
    assert prof.recording.tasks.to_dicts() == []
    assert "without a computation" in prof.summary()


@pytest.mark.parametrize(
    ("keys", "functions"),
    [
        (["plain"], ["add"]),
        (["total-0d5f6a"], ["total"]),
        ([7, 2.5, b"bytes"], ["add"] * 3),
        ([("sum-aggregate-0123456789abcdef0123456789abcdef", 1)], ["sum-aggregate"]),
        ([("t", 1), ("t", 1, 2), "total"], ["t", "t", "add"]),
        ([("t", 1), ("t", 1, 2), ("t", (1, "x"))], ["t"] * 3),
        ([("t", 1), ("t", 1, np.int64(3)), ("t", True, None, b"bytes")], ["t"] * 3),
        ([("t", 1), Name("x"), ("t", np.str_("x"), 2.5)], ["t", "add", "t"]),
        ([("t", Name("x")), ("t", Number.ONE)], ["t", "t"]),
        # dask remembers the names that it makes of keys; a key may equal a tuple and be none.
        ([Key(("remembered",)), ("remembered", 0)], [None, "remembered"]),
    ],
    ids=str,
)
def test_any_key_comes_back_as_it_was(keys, functions):
    with Profiler() as prof, CacheProfiler() as cprof:
        for key in keys:
            dask.local.get_sync({key: (add, 1, 2)}, key)
        dask.local.get_sync(dict.fromkeys(keys, (add, 1, 2)), keys)
    assert prof.recording.notices == cprof.recording.notices == ()
    tasks, held = prof.recording.tasks, cprof.recording.cached_results
    names = dict(zip(map(str, keys), functions, strict=True))
    for table in (tasks, held):
        for text, function in zip(table["key"].tolist(), table["function"].tolist(), strict=True):
            assert names[text] in (function, None)
    key_of = {str(key): key for key in keys}
    for profiler in (prof, cprof):
        assert sorted(str(result.key) for result in profiler.results) == sorted([*key_of] * 2)
        for result in profiler.results:
            key = key_of[str(result.key)]
            assert result.key == key
            assert type(result.key) is type(key)
            if type(key) is tuple:
                assert [*map(type, result.key)] == [*map(type, key)]
