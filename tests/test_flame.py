"""Stacks: what is added up, reported and exported of recordings whose content is known."""

import json
import math
import time
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_diag import DiagnosticError, Recording, SamplingProfiler, visualize
from dask_diag.analysis.call_tree import (
    Selection,
    call_tree,
    hottest_lines,
    not_sampled,
    seconds_over_time,
    short_path,
)
from dask_diag.columns import Categorical
from dask_diag.model.codes import Root
from dask_diag.views.exports.stacks import export_stacks
from dask_diag.views.hottest import flame_summary

from .recordings import (
    BUILT_IN,
    CORE,
    LEAF,
    MAIN,
    NAN,
    known_stacks,
    recording_of_stacks,
    with_tables,
)
from .test_views import HOSTILE, recording_of

pytestmark = [pytest.mark.once, pytest.mark.leaves_files]
SCHEMAS = json.loads(Path(__file__).with_name("schemas.json").read_text())
BEFORE = ["before computations"]
"""The outermost call of what was sampled before computations."""


def as_text(nodes):
    """The tree as indented lines: name, its own and total wall seconds."""
    return [
        f"{'  ' * row['depth']}{row['name']} {row['wall']:g} {row['total_wall']:g}"
        for row in nodes.to_dicts()
    ]


def test_lines_of_a_function_are_one_node_and_callees_go_from_large_to_small():
    assert as_text(call_tree(known_stacks())) == [
        "all 0 7.5",
        "  tasks 0 7.5",
        "    sum 0 4",
        "      main 0 2",
        "        sorted 2 2",
        "      encode 1 1",
        "      (not sampled) 1 1",
        "    load 0 3.5",
        "      main 0.5 3.5",
        "        Array.sum 2.5 3",
        "          encode 0.5 0.5",
    ]


def test_what_was_sampled_outside_tasks_is_below_its_root(tmp_path):
    rows = [
        ((0.0, 1.0), Root.BEFORE, [MAIN, CORE], 1.0, 0.5),
        ((1.0, 2.0), Root.SCHEDULER, [MAIN, LEAF], 0.5, 0.5),
        ((1.0, 2.0), Root.SCHEDULER, None, 0.25, NAN),
        # A function of tasks may be called like a root, and one that it calls, too.
        ((1.0, 2.0), "load", [MAIN], 2.0, 0.5),
    ]
    recording = recording_of_stacks(rows)
    assert as_text(call_tree(recording)) == [
        "all 0 3.75",
        "  tasks 0 2",
        "    load 0 2",
        "      main 2 2",
        "  before computations 0 1",
        "    main 0 1",
        "      Array.sum 1 1",
        "  scheduler 0 0.75",
        "    main 0 0.5",
        "      encode 0.5 0.5",
        "    (not sampled) 0.25 0.25",
    ]
    before = Selection(root=Root.BEFORE)
    assert as_text(call_tree(recording, before))[:2] == ["all 0 1", "  before computations 0 1"]
    # A function, or a key, is one of tasks.
    for selection in (Selection(function="load"), Selection(key="")):
        assert call_tree(recording, selection)["total_wall"][0] == 2.0
    assert not_sampled(recording, Selection(root=Root.SCHEDULER)) == 0.25
    assert "2.00 s of tasks" in flame_summary(recording)
    assert "1.00 s of before computations" in flame_summary(recording, selection=before)
    spans = seconds_over_time(recording)
    of_roots = set(zip(spans["root"].tolist(), spans["function"].tolist(), strict=True))
    assert of_roots == {(Root.BEFORE, ""), (Root.SCHEDULER, ""), (Root.TASKS, "load")}
    profiles, _ = speedscope_of(recording, tmp_path)
    assert profiles["load"] == [(["tasks", "main"], 2.0)]
    assert [stack for stack, _ in profiles[Root.BEFORE]] == [[*BEFORE, "main", "Array.sum"]]
    weights = collapsed_of(recording, tmp_path)
    assert weights["tasks;load;main (~/code/main.py:1)"] == 2_000_000
    assert set(speedscope_of(recording, tmp_path, root=Root.BEFORE)[0]) == {Root.BEFORE}


@pytest.mark.parametrize(
    ("asked", "reported"),
    [
        ({"function": "none"}, "function: expected one of .*'load'.*, found 'none'"),
        ({"function": ""}, "function: expected one of 'load', 'sum', found ''"),
        ({"function": 5}, "function: expected one of .*, found 5"),
        ({"root": "none"}, r"root: expected one of .*graph.*, found 'none'"),
        ({"start": "a"}, "start: expected a time in seconds of the recording, found 'a'"),
        ({"stop": True}, "stop: expected a time in seconds of the recording, found True"),
        ({"start": math.nan}, "start: expected a time in seconds of the recording, found nan"),
        ({"start": 2, "stop": 1.5}, "stop: expected a time at or after start, 2 s, found 1.5 s"),
    ],
)
def test_what_cannot_be_asked_for_is_reported(asked, reported):
    for ask in (call_tree, hottest_lines):
        with pytest.raises(DiagnosticError, match=reported):
            ask(known_stacks(), selection=Selection(**asked))


def test_selections_are_equal_if_they_select_the_same():
    assert Selection(1, 2, "load", ("x", 0)) == Selection(1.0, 2.0, "load", "('x', 0)")
    assert hash(Selection(1, key=("x", 0))) == hash(Selection(1.0, key="('x', 0)"))
    assert Selection(key="") != Selection()
    assert Selection(start=0) != Selection()
    assert Selection(1.0, 1.0) != Selection(1.0)


def test_a_cycle_that_is_partly_in_the_range_counts_by_that_part():
    for start, stop, seconds in [
        (2.5, 3.0, 1.0),
        (0.5, 2.0, 2.75),
        (None, 1.0, 1.5),
        (4.5, None, 0),
    ]:
        nodes = call_tree(known_stacks(), Selection(start=start, stop=stop))
        assert nodes["total_wall"][0] == pytest.approx(seconds)
    assert not_sampled(known_stacks(), Selection(start=3.0)) == pytest.approx(0.5)
    # A cycle without length counts where it is.
    recording = recording_of_stacks([((1.0, 1.0), "f", [MAIN], 0.5, 0.5)])
    assert call_tree(recording, Selection(0.5, 1.5))["total_wall"][0] == 0.5
    assert call_tree(recording, Selection(1.5, 2.0))["total_wall"][0] == 0.0
    assert len(seconds_over_time(recording)) == 0


def test_functions_that_differ_in_their_file_or_first_line_are_different():
    paths = [[("f", "a.py", 3, 1)], [("f", "b.py", 3, 1)], [("f", "a.py", 9, 8)]]
    rows = [((0.0, 1.0), "t", path, 1.0, 1.0) for path in paths]
    assert call_tree(recording_of_stacks(rows))["depth"].tolist() == [0, 1, 2, 3, 3, 3]


def test_nothing_sampled_is_a_tree_of_one_node():
    empty = recording_of_stacks([])
    assert as_text(call_tree(empty)) == ["all 0 0"]
    assert len(hottest_lines(empty)) == 0
    assert hottest_lines(empty).columns == hottest_lines(known_stacks()).columns
    assert len(seconds_over_time(empty)) == 0
    only_lost = recording_of_stacks([((0.0, 1.0), "t", None, 1.0, NAN)])
    assert as_text(call_tree(only_lost)) == [
        "all 0 1",
        "  tasks 0 1",
        "    t 0 1",
        "      (not sampled) 1 1",
    ]
    assert len(hottest_lines(only_lost)) == 0


def test_deep_recursion_is_added_up_and_exported(tmp_path):
    again = ("fall", "f.py", 2, 1)
    depth = 1500
    rows = [((0.0, 1.0), "t", [again] * depth + [LEAF], 2.0, 1.0)]
    recording = recording_of_stacks([*rows, ((0.0, 1.0), "t", [again] * 10, 1.0, 1.0)])
    nodes = call_tree(recording)
    assert nodes["depth"].max() == depth + 3
    assert nodes["total_wall"].tolist() == [3.0] * 13 + [2.0] * (depth - 9)
    lines = hottest_lines(recording).to_dicts()
    assert [(row["name"], row["wall"], row["total_wall"]) for row in lines] == [
        ("encode", 2.0, 2.0),
        ("fall", 1.0, 3.0),
    ]
    profiles, _ = speedscope_of(recording, tmp_path)
    assert max(len(stack) for stack, _ in profiles["t"]) == depth + 2


def test_the_hottest_lines_have_their_own_time_and_that_of_what_they_called():
    rows = hottest_lines(known_stacks()).to_dicts()
    assert [(r["name"], r["line"], r["wall"], r["total_wall"]) for r in rows] == [
        ("Array.sum", 120, 2.5, 3.0),
        ("sorted", 0, 2.0, 2.0),
        ("encode", 7, 1.5, 1.5),
        ("main", 5, 0.5, 4.0),
        ("main", 9, 0.0, 1.5),
    ]
    assert rows[0]["file"] == CORE[1]
    assert len(hottest_lines(known_stacks(), 2)) == 2
    only = hottest_lines(known_stacks(), selection=Selection(function="load", start=1.0))
    assert only["name"].tolist() == ["Array.sum", "main", "main"]
    assert only["total_wall"].tolist() == [1.5, 0.5, 1.5]


paths = st.lists(
    st.sampled_from([MAIN, CORE, LEAF, BUILT_IN, ("main", MAIN[1], 9, 1)]), min_size=1, max_size=6
)
samples = st.tuples(
    st.sampled_from([(0.0, 1.0), (0.5, 2.0), (2.0, 2.5)]),
    st.sampled_from(["a", "b", Root.GRAPH, Root.BETWEEN]),
    st.one_of(st.none(), paths),
    st.floats(0.125, 4.0),
    st.sampled_from([0.0, 0.125, NAN]),
)


@given(st.lists(samples, max_size=20))
def test_own_seconds_sum_to_all_and_totals_to_those_of_their_parts(rows):
    recording = recording_of_stacks(rows)
    nodes = call_tree(recording)
    assert nodes["wall"].sum() == pytest.approx(recording.samples["seconds"].sum())
    parent, end = nodes["parent"], nodes["end"]
    for node in range(len(nodes)):
        assert parent[node] < node < end[node]
        inside = nodes["wall"][node : end[node]].sum()
        assert nodes["total_wall"][node] == pytest.approx(inside)
    spans = seconds_over_time(recording)
    in_time = sum(
        (spans["stop"] - spans["start"]) * (spans["cpu"] + spans["waiting"] + spans["unknown"])
    )
    assert in_time == pytest.approx(recording.samples["seconds"].sum())


@given(st.lists(samples, max_size=20))
def test_totals_of_lines_are_those_of_a_count_stack_by_stack(rows):
    own, total = {}, {}
    for _, _, path, wall, _ in rows:
        for frame in set(path or ()):
            total[frame[:3]] = total.get(frame[:3], 0.0) + wall
        if path:
            own[path[-1][:3]] = own.get(path[-1][:3], 0.0) + wall
    for row in hottest_lines(recording_of_stacks(rows), 100).to_dicts():
        line = (row["name"], row["file"], row["line"])
        assert row["total_wall"] == pytest.approx(total.pop(line))
        assert row["wall"] == pytest.approx(own.get(line, 0.0))
    assert total == {}


def test_seconds_over_time_overlap_where_processes_cut_their_cycles_differently():
    rows = [
        ((0.0, 1.0), "t", [MAIN], 1.0, 0.5),
        ((0.5, 1.5), "t", [MAIN], 0.5, NAN),
    ]
    spans = seconds_over_time(recording_of_stacks(rows))
    assert spans["start"].tolist() == [0.0, 0.5, 1.0]
    assert spans["stop"].tolist() == [0.5, 1.0, 1.5]
    assert spans["cpu"].tolist() == [0.5, 0.5, 0.0]
    assert spans["unknown"].tolist() == [0.0, 0.5, 0.5]


def many_stacks(count=100_000, distinct=10_000):
    """A large tree, of `distinct` lines of code."""
    rng = np.random.default_rng(0)
    parent = np.array([-1] + [rng.integers(max(0, n - 300), n) for n in range(1, count)])
    frame, cycle = np.arange(distinct), np.arange(count) * 20 // count
    files = [f"/p/site-packages/p{n % 9}/{n}.py" for n in range(300)]
    frames = {
        "name": Categorical(frame % 8000, [f"function_{n}" for n in range(8000)]),
        "file": Categorical(frame % 300, files),
        "line": frame + 2,
        "first_line": frame + 1,
    }
    samples = {
        "start": cycle,
        "stop": cycle + 1.0,
        "root": Categorical(np.zeros(count), [Root.TASKS]),
        "function": Categorical(np.arange(count) * 5 // count, list("abcde")),
        "node": np.arange(count),
        "seconds": rng.random(count) ** 4 * 1e-3,
        "cpu_seconds": np.zeros(count),
        "count": np.ones(count),
    }
    calls = {"parent": parent, "frame": np.arange(count) % distinct}
    empty = Recording(start=0.0, stop=20.0, epoch=0.0)
    return with_tables(empty, frames=frames, call_tree=calls, samples=samples)


def test_a_hundred_thousand_stacks_are_added_up_quickly(retried):
    recording = many_stacks()

    def measure():
        started = time.process_time()
        call_tree(recording)
        hottest_lines(recording)
        assert time.process_time() - started < 3

    retried(measure)


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/opt/e/lib/python3.11/site-packages/dask/array/core.py", "dask/array/core.py"),
        ("/usr/lib/python3/dist-packages/numpy/__init__.py", "numpy/__init__.py"),
        ("C:\\Users\\me\\env\\Lib\\site-packages\\dask\\core.py", "dask/core.py"),
        ("/usr/lib/python3.12/json/encoder.py", "json/encoder.py"),
        ("/home/me/code/a.py", "~/code/a.py"),
        ("/Users/me/a.py", "~/a.py"),
        ("C:\\Users\\me\\a.py", "~/a.py"),
        ("/mnt/people/me/a.py", "~/a.py"),
        ("/mnt/people/meg/a.py", "/mnt/people/meg/a.py"),
        ("/srv/home/me/a.py", "/srv/home/me/a.py"),
        ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
        ("/x/site-packages/", "/x/site-packages/"),
        ("", ""),
    ],
)
def test_paths_are_as_imports_name_them_and_homes_are_short(file, shown, monkeypatch):
    monkeypatch.setenv("HOME", "/mnt/people/me")
    assert short_path(file) == shown


def test_the_summary_shows_the_hottest_lines_and_what_is_not_known():
    text = flame_summary(known_stacks())
    assert all(len(line) <= 80 for line in text.splitlines())
    for shown in (
        "7.50 s of tasks, 60 samples of their stacks",
        "dask/array/core.py:120 Array.sum 1.75 s 23% 3.00 s 40%",
        "(waiting) 2.50 s 33%",
        "- waited 2.25 s (30%): ~/code/main.py:5 main in sorted",
        "(all else) 1.00 s 13%",
        "total 7.50 s 100%",
        "- CPU 53%, waiting 33%, not known to be either 13%",
        "- could not be sampled: 1.00 s, 13%",
    ):
        assert shown in " ".join(text.split())


def speedscope_of(recording, folder, **selection):
    """What is in the file, as names instead of positions; and it is as the schema says."""
    path = folder / "x.speedscope.json"
    export_stacks(recording, path, Selection(**selection), overwrite=True)
    content = json.loads(path.read_text())
    jsonschema.validate(content, SCHEMAS["speedscope"])
    frames = content["shared"]["frames"]
    profiles = {}
    for profile in content["profiles"]:
        assert profile["endValue"] == pytest.approx(sum(profile["weights"]))
        assert profile["unit"] == "seconds"
        profiles[profile["name"]] = [
            ([frames[frame]["name"] for frame in stack], weight)
            for stack, weight in zip(profile["samples"], profile["weights"], strict=True)
        ]
    return profiles, frames


def test_speedscope_gets_a_profile_for_each_function_in_order_of_time(tmp_path):
    profiles, frames = speedscope_of(known_stacks(), tmp_path)
    assert profiles == {
        "sum": [
            (["tasks", "main", "sorted"], 2.0),
            (["tasks", "encode"], 1.0),
            (["tasks", "(not sampled)"], 1.0),
        ],
        "load": [
            (["tasks", "main", "Array.sum"], 1.0),
            (["tasks", "main", "Array.sum", "encode"], 0.5),
            (["tasks", "main"], 0.5),
            (["tasks", "main", "Array.sum"], 1.5),
        ],
    }
    assert {"name": "main", "file": "~/code/main.py", "line": 1} in frames
    assert {"name": "sorted"} in frames


def test_weights_below_a_microsecond_are_not_lost(tmp_path):
    rows = [((0.0, 1.0), "t", [(f"f{n}", "a.py", 1, 1)], 0.4e-6, 0.0) for n in range(100)]
    assert sum(collapsed_of(recording_of_stacks(rows), tmp_path).values()) == 40


def test_both_exports_take_the_selection_that_the_tree_takes(tmp_path):
    chosen = {"start": 1.5, "stop": 3.0, "function": "load"}
    profiles, _ = speedscope_of(known_stacks(), tmp_path, **chosen)
    assert profiles == {"load": [(["tasks", "main"], 0.25), (["tasks", "main", "Array.sum"], 0.75)]}
    assert collapsed_of(known_stacks(), tmp_path, **chosen) == {
        "tasks;load;main (~/code/main.py:1)": 250_000,
        "tasks;load;main (~/code/main.py:1);Array.sum (dask/array/core.py:100)": 750_000,
    }


def collapsed_of(recording, folder, ending="collapsed", **selection):
    path = folder / f"x.{ending}"
    export_stacks(recording, path, Selection(**selection), overwrite=True)
    pairs = [line.rpartition(" ")[::2] for line in path.read_text("utf-8").splitlines()]
    weights = {stack: int(weight) for stack, weight in pairs}
    assert len(weights) == len(pairs)
    return weights


@pytest.mark.parametrize("ending", ["collapsed", "folded"])
def test_collapsed_stacks_have_a_line_each_and_whole_microseconds(tmp_path, ending):
    weights = collapsed_of(known_stacks(), tmp_path, ending)
    assert sum(weights.values()) == 7_500_000
    assert weights["tasks;sum;(not sampled)"] == 1_000_000
    assert (
        weights["tasks;load;main (~/code/main.py:1);Array.sum (dask/array/core.py:100)"]
        == 2_500_000
    )
    assert weights["tasks;sum;main (~/code/main.py:1);sorted"] == 2_000_000


@pytest.mark.parametrize("name", ["x.speedscope.json", "x.collapsed"])
def test_nothing_sampled_is_reported_and_no_empty_profile_is_written(name, tmp_path):
    with pytest.raises(DiagnosticError, match=r"no stack samples .* record with SamplingProfiler"):
        SamplingProfiler().export(tmp_path / name)
    for asked in ({"stop": -1e9}, {"start": 1e9}):
        with pytest.raises(DiagnosticError, match=r"no stack samples match: leave out function"):
            export_stacks(known_stacks(), tmp_path / name, Selection(**asked))
    with pytest.raises(DiagnosticError, match=r"\.speedscope\.json, \.collapsed or \.folded"):
        export_stacks(known_stacks(), tmp_path / f"{name}.txt")
    assert list(tmp_path.iterdir()) == []


def hostile_stacks():
    paths = [[(name, name, 3, 1), (f"{name};a b", f"/home/me/{name}", 4, 2)] for name in HOSTILE]
    rows = [((0.0, 1.0), name, path, 1.0, 0.5) for name, path in zip(HOSTILE, paths)]
    return recording_of_stacks(rows, notices=[HOSTILE[0]])


def test_hostile_names_are_text_in_every_export_and_in_the_summary(tmp_path):
    profiles, _ = speedscope_of(hostile_stacks(), tmp_path)
    assert len(profiles) == len(HOSTILE)
    weights = collapsed_of(hostile_stacks(), tmp_path)
    assert len(weights) == len(HOSTILE)
    assert all(stack.count(";") == 3 and stack.isprintable() for stack in weights)
    text = flame_summary(hostile_stacks())
    assert all(len(line) <= 80 and line.isprintable() for line in text.splitlines())
    assert "<script" not in text._repr_html_()
    visualize(hostile_stacks(), filename=tmp_path / "page.html", show=False)
    page = (tmp_path / "page.html").read_text(errors="surrogatepass")
    assert "<script>window.pwned" not in page
    assert "<img src=x" not in page
    (tmp_path / "page.html").unlink()


def test_the_flame_graph_is_below_the_plots_over_time_and_counts_from_the_same_origin():
    tasks = recording_of([("load", -2.0, 3.0, 1.0, "thread-0")])
    both = replace(
        known_stacks(), start=-2.0, tasks=tasks.tasks, computations=tasks.computations, stop=4.0
    )
    plot, panel = visualize(both, show=False, save=False).children
    assert plot.yaxis[0].axis_label == "Worker"
    assert panel.children[-1].x_range.start == 0
    starts = [s for s in panel.references() if getattr(s, "data", {}).keys() == {"start", "stop"}]
    assert starts[0].data["start"].tolist() == [2.0, 3.0, 4.0]


def test_a_line_without_a_known_number_is_its_file():
    # CPython knows none while it enters a function.
    entering = ("main", "/home/ada/run.py", 0, 0)
    recording = recording_of_stacks([((0.0, 1.0), "load", [entering], 1.0, 1.0)])
    text = str(flame_summary(recording))
    assert "run.py" in text
    assert "run.py:0" not in text
