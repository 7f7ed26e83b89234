"""Views of a flame graph: by function, in time order, as a sandwich, and with libraries folded."""

import numpy as np
import pytest

from dask_diag.analysis.call_tree import (
    STANDARD_LIBRARY,
    call_tree,
    folded_tree,
    library_of,
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
    texts_of,
)

from .javascript import needs_node, run_javascript
from .recordings import CORE, LEAF, MAIN, known_stacks, recording_of_stacks, with_tables

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
        # Recursion counts once.
        ((0.0, 1.0), "g", [QUICK, SHARED, SHARED], 0.25, 0.25),
    ]
    below = [call for call in Page(recording_of_stacks(rows)).sandwich("shared") if call[0] >= 0]
    assert below == [
        (0, "shared", 0.0, 3.25),
        (1, "main", 0.0, 2.0),
        (1, "encode", 2.0, 3.0),
        (1, "shared", 3.0, 3.25),
    ]


@needs_node
def test_the_functions_offered_have_their_seconds_by_all_callers():
    """A function of tasks is no call of the same name."""
    page = Page(
        recording_of_stacks(
            [
                ((0.0, 1.0), "sum", [("sum", "", 0, 0)], 1.0, 1.0),
                ((0.0, 1.0), "f", [("sum", "", 0, 0)], 2.0, 1.0),
                ((0.0, 1.0), "f", [SLOW, SHARED], 0.5, 1.0),
            ]
        )
    )
    own_and_total = page.nodes["wall"], page.nodes["total_wall"]
    functions = run("sandwich.js", "functions_below", page.tree, *own_and_total, 0)
    names = page.nodes["name"].tolist()
    seconds = sorted((names[f["node"]], f["own"], f["total"]) for f in functions)
    of_some = [row for row in seconds if row[0] in ("sum", "slow", "shared")]
    assert of_some == [("shared", 0.5, 0.5), ("slow", 0, 0.5), ("sum", 0, 1.0), ("sum", 3.0, 3.0)]


def libraries():
    rows = [
        ((0.0, 1.0), "f", [MAIN, PANDAS, PANDAS_TOO, NUMPY], 1.0, 1.0),
        ((0.0, 1.0), "f", [MAIN, PANDAS], 0.5, 0.5),
        ((0.0, 1.0), "f", [MAIN, PANDAS, PANDAS_TOO, SLOW], 0.25, 0.25),
        ((0.0, 1.0), "f", [MAIN, PANDAS_TOO, SLOW, LOCK], 4.0, 0.0),
        ((1.0, 2.0), Root.SCHEDULER, None, 0.125, 0.0),
    ]
    return recording_of_stacks(rows)


@needs_node
def test_the_page_folds_as_the_analysis_does():
    page = Page(libraries(), fold=True)
    expected = columns_of(page.nodes)
    for name in ("parent", "depth", "end", "name", "file", "first_line", "color", "missing"):
        assert page.tree[name] == expected[name].tolist(), name
    assert page.tree["frames"] == page.nodes["frames"].tolist()


@pytest.mark.parametrize("recording", [known_stacks(), libraries(), called_from_two()])
def test_a_folded_tree_adds_up_to_the_unfolded_one(recording):
    nodes = call_tree(recording)
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


def test_where_there_are_many_cells_neighbouring_cycles_merge(monkeypatch):
    """All seconds are there; each number is as exact as one reads it; keys are those of most time."""
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
    assert Page(recording_of_stacks(rows, keys=["", *"ababab"])).keys == ["a", "b"]


@needs_node
def test_the_detail_of_a_call_has_the_line_with_most_of_its_time_and_its_code():
    main, later = ("main", "/home/x/program.py", 5, 4), (*SLOW[:2], 15, SLOW[3])
    rows = [
        ((0.0, 1.0), "f", [main, SLOW], 1.0, 0.0),
        ((0.0, 1.0), "f", [main, later, SHARED], 2.0, 0.0),
        ((0.0, 1.0), "f", None, 4.0, 0.0),
    ]
    recording = with_code(recording_of_stacks(rows), "program.py", "a\nb\nc\nd\n    f(1)")
    nodes = call_tree(recording)
    lines = lines_of_nodes(recording, nodes)
    code, texts = code_of_lines(recording, nodes, lines)
    tree_of_page = {**columns_of(nodes), "line": lines, "code": code}
    view = run("tree.js", "by_function", tree_of_page, nodes["wall"], 0)
    texts_of_page = {**texts_of(nodes, Options()), "code": texts}
    graph = {"tree": tree_of_page, "texts": texts_of_page, "view": view}
    details = [run("rectangles.js", "description_of", graph, i) for i in range(len(nodes))]
    of_nobody = dict.fromkeys(("all", "tasks", "f", "(not sampled)"), "")
    assert {detail["name"]: detail["line"] for detail in details} == of_nobody | {
        "main": "most time at line 5: f(1)",
        "slow": "most time at line 15",
        "shared": "most time at line 32",
    }


def with_code(recording, location, text):
    row = {"section": ["calling code"], "name": [location], "value": [text]}
    return with_tables(recording, environment=row)


@pytest.mark.parametrize(
    ("location", "text", "expected"),
    [
        ("program.py", "a\nb\nc\nd\n    f(1)  # five", {"/x/program.py": "    f(1)  # five"}),
        ("program.py:4, in main", "def main():\n    f(1)", {"/x/program.py": "    f(1)"}),
        ("program.py:6, in main", "f(1)", {}),
        ("other.py", "a\nb\nc\nd\ne", {}),
        ("as given", "a\nb\nc\nd\ne", {}),
        # Of two files of one name no line is claimed.
        ("twice.py", "a\nb\nc\nd\ne", {}),
    ],
)
def test_lines_have_the_code_that_was_recorded(location, text, expected):
    frames = [("main", file, 5, 4) for file in ("/x/program.py", "/x/twice.py", "/y/twice.py")]
    recording = recording_of_stacks([((0.0, 1.0), "f", frames, 1.0, 0.0)])
    lines = recorded_lines(with_code(recording, location, text))
    assert {file: code for (file, line), code in lines.items() if line == 5} == expected
