"""Views of a flame graph: by function, in time order, as a sandwich, and with libraries folded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bokeh.models import RadioButtonGroup

from dask_diag.analysis.call_tree import (
    STANDARD_LIBRARY,
    folded_tree,
    library_of,
    tree,
    tree_and_nodes,
)
from dask_diag.analysis.lines import lines_of_nodes
from dask_diag.model.codes import Root
from dask_diag.views.names import recorded_lines
from dask_diag.views.plots.figures import Options
from dask_diag.views.plots.flame import (
    boxes_of,
    cells_of,
    code_of_lines,
    columns_of,
    differential_panel,
    flame_panel,
    texts_of,
)

from .javascript import needs_node, run_javascript
from .stacks import CORE, LEAF, MAIN, known_stacks, recording_of_stacks
from .tables import filled_table
from .test_flame import as_text

pytestmark = pytest.mark.once

SLOW = ("slow", "/home/someone/code/work.py", 12, 10)
QUICK = ("quick", "/home/someone/code/work.py", 22, 20)
SHARED = ("shared", "/home/someone/code/work.py", 32, 30)
PANDAS = ("merge", "/env/lib/python3.11/site-packages/pandas/core/merge.py", 50, 40)
PANDAS_TOO = ("take", "/env/lib/python3.11/site-packages/pandas/core/take.py", 60, 55)
NUMPY = ("take", "/env/lib/python3.11/site-packages/numpy/core/fromnumeric.py", 70, 65)
LOCK = ("Condition.wait", "/usr/lib/python3.11/threading.py", 320, 288)


def called_from_two():
    """`shared` for 0.5 s by `slow`, then by `quick`; `slow` itself for 0.5 s between them."""
    return recording_of_stacks(
        [
            ((0.0, 1.0), "f", [MAIN, SLOW, SHARED], 0.5, 0.5),
            ((1.0, 2.0), "f", [MAIN, SLOW], 0.5, 0.25),
            ((2.0, 3.0), "f", [MAIN, QUICK, SHARED], 0.5, 0.5),
        ]
    )


class Page:
    """What the page's script is given of a recording."""

    def __init__(self, recording, fold=False):
        nodes, of_sample = tree_and_nodes(recording)
        (starts, stops), self.cells, self.keys = cells_of(recording, of_sample)
        self.cycles = {"start": starts, "stop": stops}
        self.nodes, self.node_of = folded_tree(nodes) if fold else (nodes, None)
        self.tree = columns_of(nodes)
        if fold:
            self.tree |= {"folded": self.node_of, "line": np.zeros(len(nodes))}
            self.tree["code"] = self.tree["line"]
            self.tree = run("folded.js", "folded_tree", self.tree, boxes_of(self.nodes))

    def weights(self, within=None):
        return run("tree.js", "shares_of", self.cycles, within)

    def in_time_order(self, measure="wall", base=0):
        weights = run("tree.js", "weights_of", self.cells, self.weights(), None)
        args = self.tree, self.cells, weights, measure, base, self.node_of
        return self.named(run("time_order.js", "in_time_order", *args))

    def sandwich(self, name, base=0):
        own, total = self.nodes["wall"], self.nodes["total_wall"]
        chosen = self.nodes["name"].tolist().index(name)
        return self.named(run("sandwich.js", "sandwich_of", self.tree, own, total, base, chosen))

    def named(self, view):
        """Each rectangle as its row, name, and where it starts and stops."""
        return [
            (row, self.nodes["name"][int(node)], round(left, 6), round(left + total, 6))
            for row, node, left, total in zip(
                view["row"], view["node"], view["left"], view["total"], strict=True
            )
        ]


def run(module, function, *arguments):
    (result,) = run_javascript(f"plots/flame/{module}", function, list(arguments))
    return result


@needs_node
def test_calls_in_time_order_stand_where_they_were():
    assert Page(called_from_two()).in_time_order() == [
        (0, "all", 0.0, 1.5),
        (1, "tasks", 0.0, 1.5),
        (2, "f", 0.0, 1.5),
        (3, "main", 0.0, 1.5),
        (4, "slow", 0.0, 1.0),
        (5, "shared", 0.0, 0.5),
        (4, "quick", 1.0, 1.5),
        (5, "shared", 1.0, 1.5),
    ]


@needs_node
def test_a_call_that_was_left_and_made_again_stands_twice_in_time_order():
    recording = recording_of_stacks(
        [
            ((0.0, 1.0), "f", [SLOW], 0.5, 0.5),
            ((1.0, 2.0), "f", [QUICK], 0.5, 0.5),
            ((2.0, 3.0), "f", [SLOW], 0.5, 0.5),
        ]
    )
    calls = [call for call in Page(recording).in_time_order() if call[0] == 3]
    assert calls == [(3, "slow", 0, 0.5), (3, "quick", 0.5, 1.0), (3, "slow", 1.0, 1.5)]


@needs_node
def test_calls_that_go_on_from_one_cycle_to_the_next_are_one():
    both = [((n, n + 1.0), "f", [call], 0.5, 0.5) for n in range(4) for call in (SLOW, QUICK)]
    calls = [call for call in Page(recording_of_stacks(both)).in_time_order() if call[0] == 3]
    assert calls == [
        (3, "slow", 0.0, 0.5),
        (3, "quick", 0.5, 1.5),
        (3, "slow", 1.5, 2.5),
        (3, "quick", 2.5, 3.5),
        (3, "slow", 3.5, 4.0),
    ]


@needs_node
@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize("measure", ["wall", "cpu", "waiting"])
def test_time_order_adds_up_to_the_seconds_of_each_function(measure, fold):
    page = Page(known_stacks(), fold)
    seconds = {}
    for _, name, left, right in page.in_time_order(measure):
        seconds[name] = seconds.get(name, 0.0) + right - left
    totals = zip(page.nodes["name"].tolist(), page.nodes[f"total_{measure}"], strict=True)
    expected = {}
    for name, total in totals:
        expected[name] = expected.get(name, 0.0) + total
    assert seconds == pytest.approx({name: total for name, total in expected.items() if total})


@needs_node
def test_a_function_of_two_callers_has_the_seconds_of_each_above():
    assert Page(called_from_two()).sandwich("shared") == [
        (0, "shared", 0.0, 1.0),
        (-1, "slow", 0.0, 0.5),
        (-2, "main", 0.0, 0.5),
        (-3, "f", 0.0, 0.5),
        (-4, "tasks", 0.0, 0.5),
        (-5, "all", 0.0, 0.5),
        (-1, "quick", 0.5, 1.0),
        (-2, "main", 0.5, 1.0),
        (-3, "f", 0.5, 1.0),
        (-4, "tasks", 0.5, 1.0),
        (-5, "all", 0.5, 1.0),
    ]


@needs_node
def test_what_a_function_called_by_several_callers_is_merged_below():
    rows = [
        ((0.0, 1.0), "f", [SLOW, SHARED, LEAF], 0.5, 0.5),
        ((0.0, 1.0), "f", [QUICK, SHARED, LEAF], 0.5, 0.5),
        ((0.0, 1.0), "f", [QUICK, SHARED, MAIN], 2.0, 0.5),
        ((0.0, 1.0), "g", [QUICK, SHARED], 0.25, 0.25),
    ]
    below = [call for call in Page(recording_of_stacks(rows)).sandwich("shared") if call[0] >= 0]
    assert below == [
        (0, "shared", 0.0, 3.25),
        (1, "main", 0.0, 2.0),
        (1, "encode", 2.0, 3.0),
    ]


@needs_node
def test_recursion_counts_once_in_a_sandwich():
    rows = [((0.0, 1.0), "f", [SLOW, SHARED, SLOW, SHARED], 1.0, 1.0)]
    rectangles = Page(recording_of_stacks(rows)).sandwich("shared")
    assert (0, "shared", 0.0, 1.0) in rectangles
    assert (2, "shared", 0.0, 1.0) in rectangles
    assert max(right for *_, right in rectangles) == 1.0


@needs_node
def test_a_function_of_tasks_is_no_call_of_the_same_name():
    rows = [
        ((0.0, 1.0), "sum", [("sum", "", 0, 0)], 1.0, 1.0),
        ((0.0, 1.0), "f", [("sum", "", 0, 0)], 2.0, 1.0),
    ]
    page = Page(recording_of_stacks(rows))
    functions = run(
        "sandwich.js",
        "functions_below",
        *(page.tree, page.nodes["wall"], page.nodes["total_wall"], 0),
    )
    of_sum = [f["total"] for f in functions if page.nodes["name"][f["node"]] == "sum"]
    assert sorted(of_sum) == [1.0, 3.0]


@needs_node
def test_the_functions_offered_have_their_seconds_by_all_callers():
    page = Page(called_from_two())
    functions = run(
        "sandwich.js",
        "functions_below",
        *(page.tree, page.nodes["wall"], page.nodes["total_wall"], 0),
    )
    by_name = {page.nodes["name"][f["node"]]: (f["own"], f["total"]) for f in functions}
    assert by_name["shared"] == (1.0, 1.0)
    assert by_name["slow"] == (0.5, 1.0)
    assert by_name["main"] == (0.0, 1.5)


def libraries():
    return recording_of_stacks(
        [
            ((0.0, 1.0), "f", [MAIN, PANDAS, PANDAS_TOO, NUMPY], 1.0, 1.0),
            ((0.0, 1.0), "f", [MAIN, PANDAS], 0.5, 0.5),
            ((0.0, 1.0), "f", [MAIN, PANDAS, PANDAS_TOO, SLOW], 0.25, 0.25),
            ((0.0, 1.0), "f", [MAIN, PANDAS_TOO, SLOW, LOCK], 4.0, 0.0),
            ((1.0, 2.0), Root.SCHEDULER, None, 0.125, 0.0),
        ]
    )


def test_libraries_are_folded_and_the_program_is_not():
    nodes, folded = folded_tree(tree(libraries()))
    assert as_text(nodes) == [
        "all 0 5.875",
        "  tasks 0 5.75",
        "    f 0 5.75",
        "      main 0 5.75",
        "        pandas (2 frames) 0.5 5.75",
        "          slow 0.25 4.25",
        "            Condition.wait 4 4",
        "          take 1 1",
        "  scheduler 0 0.125",
        "    (not sampled) 0.125 0.125",
    ]
    assert nodes["frames"].tolist() == [1, 1, 1, 1, 2, 1, 1, 1, 1, 1]
    assert len(folded) == len(tree(libraries()))


@needs_node
def test_the_page_folds_as_the_analysis_does():
    page = Page(libraries(), fold=True)
    expected = columns_of(page.nodes)
    for name in ("parent", "depth", "end", "name", "file", "first_line", "color", "missing"):
        assert page.tree[name] == expected[name].tolist(), name
    assert page.tree["frames"] == page.nodes["frames"].tolist()


@pytest.mark.parametrize("recording", [known_stacks(), libraries(), called_from_two()])
def test_a_folded_tree_adds_up_to_the_unfolded_one(recording):
    nodes = tree(recording)
    small, folded = folded_tree(nodes)
    for measure in ("wall", "cpu", "waiting", "count"):
        sums = np.bincount(folded, weights=nodes[measure], minlength=len(small))
        assert small[measure].tolist() == pytest.approx(sums.tolist())
        assert small[f"total_{measure}"][0] == pytest.approx(nodes[f"total_{measure}"][0])
    for row, node in enumerate(folded.tolist()):
        above = nodes["parent"][row]
        if above >= 0:
            assert folded[above] in (node, small["parent"][node])
        if not library_of(nodes["file"][row]):
            assert small["name"][node] == nodes["name"][row]


@pytest.mark.parametrize(
    ("file", "library"),
    [
        (MAIN[1], ""),
        (CORE[1], "dask"),
        (LEAF[1], STANDARD_LIBRARY),
        ("<frozen importlib._bootstrap>", STANDARD_LIBRARY),
        ("/usr/lib/python3/dist-packages/six.py", "six"),
        (r"C:\Python311\Lib\threading.py", STANDARD_LIBRARY),
        (r"C:\Python311\Lib\site-packages\numpy\core\a.py", "numpy"),
        ("", ""),
        ("/tmp/ipykernel_5/123.py", ""),
    ],
)
def test_the_library_of_a_file(file, library):
    assert library_of(file) == library


def test_cells_have_the_keys_of_tasks_with_most_time():
    rows = [((0.0, 1.0), "f", [MAIN], seconds, 0.0) for seconds in (1.0, 2.0, 4.0, 0.5)]
    recording = recording_of_stacks(rows, keys=["('f', 0)", "('f', 1)", "", "('f', 0)"])
    page = Page(recording)
    assert page.keys == ["('f', 1)", "('f', 0)"]
    wall = sum(page.cells[name].astype(float) for name in ("cpu", "waiting", "unknown"))
    by_key = dict(zip(page.cells["key"].tolist(), wall.tolist(), strict=True))
    assert by_key == {0: 4.0, 1: 2.0, 2: 1.5}


def test_where_there_are_many_cells_neighbouring_cycles_merge(monkeypatch):
    """All seconds are there; each number is as exact as one reads it."""
    monkeypatch.setattr("dask_diag.views.plots.flame._MOST_CELLS", 3)
    cpu = np.random.default_rng(1).random(7)
    rows = [((float(n), n + 1.0), "f", [MAIN], 1.0, share) for n, share in enumerate(cpu)]
    page = Page(recording_of_stacks(rows))
    assert page.cycles["start"].tolist() == [0.0, 4.0]
    assert page.cycles["stop"].tolist() == [4.0, 7.0]
    assert page.cells["cycle"].tolist() == [0, 1]
    expected = np.array([cpu[:4].sum(), cpu[4:].sum()])
    assert page.cells["cpu"] == pytest.approx(expected, rel=1 / 16_000)
    assert page.cells["waiting"] == pytest.approx([4, 3] - expected, rel=1 / 16_000)
    assert page.cells["unknown"].tolist() == [0, 0]


def test_each_function_has_the_line_with_most_of_its_time():
    later = (*SLOW[:2], 15, SLOW[3])
    rows = [
        ((0.0, 1.0), "f", [MAIN, SLOW], 1.0, 0.0),
        ((0.0, 1.0), "f", [MAIN, later, SHARED], 2.0, 0.0),
        ((0.0, 1.0), "f", None, 4.0, 0.0),
    ]
    recording = recording_of_stacks(rows)
    nodes = tree(recording)
    lines = dict(
        zip(nodes["name"].tolist(), lines_of_nodes(recording, nodes).tolist(), strict=True)
    )
    assert lines == {
        "all": 0,
        "tasks": 0,
        "f": 0,
        "(not sampled)": 0,
        "main": 5,
        "slow": 15,
        "shared": 32,
    }


@needs_node
def test_arrow_keys_walk_from_call_to_call():
    page = Page(called_from_two())
    own, total = page.nodes["wall"], page.nodes["total_wall"]
    names = page.nodes["name"].tolist()
    view = run("tree.js", "by_function", page.tree, own, 0)

    def walk(view, start, *keys):
        for key in keys:
            start = run("keyboard.js", "next_rectangle", view, start, f"Arrow{key}")
        return names[view["node"][start]]

    down = ["Down"] * 4
    assert [walk(view, 0, *down[:n]) for n in range(5)] == ["all", "tasks", "f", "main", "slow"]
    assert walk(view, 0, *down, "Right") == "quick"
    assert walk(view, 0, *down, "Right", "Right", "Left") == "slow"
    assert walk(view, 0, *down, "Down", "Down", "Up", "Up") == "main"
    assert walk(view, 0, "Up", "Left", "Right") == "all"
    chosen = names.index("shared")
    sandwich = run("sandwich.js", "sandwich_of", page.tree, own, total, 0, chosen)
    assert walk(sandwich, 0, "Up") == "slow"
    assert walk(sandwich, 0, "Up", "Right") == "quick"
    assert walk(sandwich, 0, "Up", "Up", "Down", "Down") == "shared"
    assert walk(sandwich, 0, "Down") == "shared"


def test_a_comparison_has_the_one_view_in_which_each_call_has_its_own_change():
    panel = differential_panel(called_from_two(), libraries(), Options())
    order, mode = panel.select({"type": RadioButtonGroup})
    if order.labels[0] == "Both":
        order, mode = mode, order
    assert (order.labels, order.visible) == (["By function"], False)
    assert (mode.labels, mode.visible) == (["Both", "Before", "After"], True)
    everything = flame_panel(called_from_two(), Options()).select({"type": RadioButtonGroup})
    assert all(group.visible and len(group.labels) == 3 for group in everything)


def with_code(recording, location, text):
    row = {"section": ["calling code"], "name": [location], "value": [text]}
    return replace(recording, environment=filled_table("environment", row))


@pytest.mark.parametrize(
    ("location", "text", "expected"),
    [
        ("program.py", "a\nb\nc\nd\n    f(1)  # five", "f(1)  # five"),
        ("program.py:4, in main", "def main():\n    f(1)", "f(1)"),
        ("program.py:6, in main", "f(1)", None),
        ("other.py", "a\nb\nc\nd\ne", None),
        ("as given", "a\nb\nc\nd\ne", None),
    ],
)
def test_lines_have_the_code_that_was_recorded(location, text, expected):
    main = ("main", "/home/x/program.py", 5, 4)
    recording = recording_of_stacks([((0.0, 1.0), "f", [main], 1.0, 0.0)])
    assert recorded_lines(with_code(recording, location, text)).get((main[1], 5)) == expected


def test_of_two_files_of_one_name_no_line_is_claimed():
    frames = [("main", f"/home/{folder}/program.py", 5, 4) for folder in "xy"]
    recording = recording_of_stacks([((0.0, 1.0), "f", frames, 1.0, 0.0)])
    assert recorded_lines(with_code(recording, "program.py", "a\nb\nc\nd\ne")) == {}


@needs_node
def test_the_detail_of_a_call_has_the_code_of_its_line():
    main = ("main", "/home/x/program.py", 5, 4)
    recording = recording_of_stacks([((0.0, 1.0), "f", [main, SHARED], 1.0, 0.0)])
    recording = with_code(recording, "program.py", "a\nb\nc\nd\n    f(1)")
    nodes = tree(recording)
    lines = lines_of_nodes(recording, nodes)
    code, texts = code_of_lines(recording, nodes, lines)
    tree_of_page = {**columns_of(nodes), "line": lines, "code": code}
    view = run("tree.js", "by_function", tree_of_page, nodes["wall"], 0)
    texts_of_page = {**texts_of(nodes, Options()), "code": texts}
    graph = {"tree": tree_of_page, "texts": texts_of_page, "view": view}
    details = {
        detail["name"]: detail["line"]
        for i in range(len(nodes))
        for detail in [run("rectangles.js", "description_of", graph, i)]
    }
    assert details["main"] == "most time at line 5: f(1)"
    assert details["shared"] == "most time at line 32"
    assert details["f"] == ""
