"""compare: changes are separated from chance, and what cannot be judged is reported so; its page."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bokeh.models import Plot

from dask_diag import Recording, compare, load
from dask_diag.analysis.call_tree import call_tree, merged_tree
from dask_diag.analysis.compare import (
    CONFIDENCE,
    Variation,
    half_width,
    paired_seconds,
    t_quantile,
    timed_tasks,
)
from dask_diag.analysis.facts import Analysis
from dask_diag.columns import Categorical
from dask_diag.errors import DiagnosticError
from dask_diag.formatting import seconds
from dask_diag.views.compare import comparison_summary, run_comparison_summary
from dask_diag.views.comparison import Sides, comparison_page, flame, functions, timelines, wall
from dask_diag.views.report.components import Figure, Key

from .recordings import filled_table, known_stacks, with_columns, with_tables

pytestmark = pytest.mark.once

NOTHING = Recording(0.0, 1.0, 0.0)


def recording(cpu=0.5, memory=None, held=None, token="1a2b", **durations):
    """Tasks of these durations by function, with a share of CPU time in each."""
    names = [name for name, took in durations.items() for _ in took]
    positions = [n for took in durations.values() for n in range(len(took))]
    took = np.array([seconds for took in durations.values() for seconds in took], dtype=float)
    start = np.arange(len(took), dtype=float) * 10
    made = with_tables(
        NOTHING,
        computations={"computation": ["1-1"], "start": [0.0], "stop": [np.nansum(took)]},
        tasks={
            "key": [f"('{name}-{token}', {n})" for name, n in zip(names, positions, strict=True)],
            "function": names,
            "start": start,
            "stop": start + took,
            "thread_cpu": took * cpu,
            "submitted": start,
            "computation": ["1-1"] * len(took),
            "pid": [1] * len(took),
        },
    )
    if memory is not None:
        # One sample in each of the first tasks.
        times = np.arange(len(memory)) * 10 + 0.5
        resources = {"time": times, "memory": memory, "memory_children": 0 * times}
        made = with_tables(made, resources=resources)
    if held is not None:
        rows = [name for name, count in held.items() for _ in range(count)]
        ones = np.ones(len(rows))
        cached = {"function": rows, "metric": ones, "start": 0 * ones, "stop": ones}
        made = replace(with_tables(made, cached_results=cached), metric="count")
    return made


def around(mean, spread, count, seed=0):
    return np.random.default_rng(seed).normal(mean, spread, count)


def compared(before, after):
    return compare(recording(**before), recording(**after))


def rows_of(comparison):
    return {row["function"]: row for row in comparison.functions.to_dicts()}


def text_of(comparison):
    return " ".join(comparison_summary(comparison, "a.diag", "b.diag").split())


SIZES = np.array([4.6, 0.2, 0.15, 0.1, 0.1, 0.1])
MIXED = np.geomspace(0.1, 10.0, 20)
OTHER_TOKEN = {"token": "3c4d"}


@pytest.mark.parametrize(
    "before, after, verdicts, regressions",
    [
        (
            {"load": around(1.0, 0.1, 100, 1), "add": around(1.0, 0.1, 100, 2)},
            {"load": around(1.3, 0.1, 100, 3), "add": around(1.0, 0.1, 100, 4)},
            {"load": "slower", "add": "unchanged"},
            {0.1: ["total", "load"], 0.2: ["load"], 0.5: []},
        ),
        (
            {"load": around(1.3, 0.1, 100, 3)},
            {"load": around(1.0, 0.1, 100, 1)},
            {"load": "faster"},
            {0.0: []},
        ),
        # A change within the spread never fails.
        (
            {"load": around(1.0, 0.9, 10, 1)},
            {"load": around(1.0, 0.9, 10, 1)[::-1] + 0.3},
            {"load": "unchanged"},
            {0.1: []},
        ),
        # A regression is more than the share.
        ({"f": [1.0] * 8}, {"f": [1.25] * 8}, {"f": "slower"}, {0.25: [], 0.24: ["total", "f"]}),
        # Tasks of different sizes are compared one by one, whatever their tokens.
        *(
            (
                {"load": MIXED * around(1.0, 0.03, 20, 1)},
                {"load": MIXED * around(mean, 0.03, 20, seed), **token},
                {},
                {0.1 * (mean > 1): expected},
            )
            for mean, seed, expected in ((1.2, 2, ["total", "load"]), (1.0, 3, []))
            for token in ({}, OTHER_TOKEN)
        ),
        # All tasks several times as slow are found whatever their sizes: 5.25 s in tasks of which
        # one has nearly all. One slow task of many may be chance, and small ones are no change
        # where a large one varies.
        *(
            (
                {"load": SIZES},
                {"load": SIZES * around(4.65, 0.2, 6, 1), **token},
                {"load": "slower"},
                {0.1: ["total", "load"]},
            )
            for token in ({}, OTHER_TOKEN)
        ),
        ({"load": SIZES * around(4.65, 0.2, 6, 1)}, {"load": SIZES}, {"load": "faster"}, {}),
        *(
            (
                {"load": SIZES},
                {"load": SIZES * np.where(np.arange(6) == slow, 30, 1)},
                {},
                {0.1: []},
            )
            for slow in (0, 3)
        ),
        ({"load": SIZES}, {"load": SIZES * [0.9, *[1.2] * 5]}, {"load": "unchanged"}, {}),
        # Too few tasks are not judged, not even in the total.
        (
            {"f": [1.0] * 4, "g": [1.0] * 5, "h": [1.0] * 4},
            {"f": [9.0] * 40, "g": [1.0] * 5, "h": [9.0] * 4},
            {"f": "too few tasks", "g": "unchanged", "h": "too few tasks", "total": "unchanged"},
            {0.1: []},
        ),
        (
            {"f": [1.0], "g": [1.0] * 3},
            {"f": [9.0], "g": [9.0] * 3},
            {"total": "too few tasks"},
            {0.0: []},
        ),
        # What was added or removed counts in the total.
        (
            {"f": [1.0] * 9, "old": [1.0]},
            {"f": [1.0] * 9, "new": [2.0] * 9},
            {"new": "added", "old": "removed"},
            {0.1: ["total"]},
        ),
        # How long a single added task takes by chance is not known.
        ({"f": [1.0] * 9, "old": [1.0]}, {"f": [1.0] * 9, "new": [50.0]}, {}, {0.1: []}),
        # A different count of tasks is a change; unknown durations are left out.
        ({"f": [1.0] * 10}, {"f": [1.0] * 20}, {"f": "slower"}, {}),
        ({"f": [1.0, np.nan] * 5}, {"f": [1.0] * 5}, {"f": "unchanged"}, {}),
        # Five tasks are enough where all are slower by a factor.
        ({"f": SIZES[:5]}, {"f": 4 * SIZES[:5]}, {"total": "slower"}, {}),
        ({}, {}, {}, {0.0: []}),
    ],
)
def test_verdicts_and_regressions(before, after, verdicts, regressions):
    comparison = compared(before, after)
    rows = {**rows_of(comparison), "total": comparison.total}
    assert {name: rows[name]["verdict"] for name in verdicts} == verdicts
    for share, expected in regressions.items():
        assert comparison.regressions(share) == expected


def paired(before_keys, after_keys, before=(1.0, 2.0, 4.0), after=(4.5, 1.0, 2.0), order=(9, 8, 7)):
    """The differences between tasks of these keys and durations, which start in this order."""

    def timed(keys, seconds, start):
        columns = {"start": np.array(start, float), "stop": np.array(start, float) + seconds}
        return timed_tasks(filled_table("tasks", {"key": keys, **columns}))

    pairs = paired_seconds(
        timed(before_keys, np.array(before), range(len(before_keys))),
        timed(after_keys, np.array(after), order),
    )
    return None if pairs is None else sorted((pairs[1] - pairs[0]).tolist())


@pytest.mark.parametrize(
    "arguments",
    [
        # By key, else by position, of which there may be several numbers.
        (["f-a", "f-b", "f-c"], ["f-c", "f-a", "f-b"]),
        (["('f-1', 0)", "('f-1', 1)", "('f-1', 2)"], ["('f-2', 2)", "('f-2', 0)", "('f-2', 1)"]),
        (
            ["('f-1', 1, 0)", "('f-1', 0, 0)", "('f-1', 2, 0)"],
            ["('f-2', 2, 0)", "('f-2', 1, 0)", "('f-2', 0, 0)"],
        ),
        # Else by the order in which they started: what has a comma and is no tuple has no
        # position, and of two layers of one function the positions are alike.
        (["f 1, 0", "f 1, 1"], ["f 2, 1", "f 2, 0"], (1.0, 2.0), (1.0, 2.5), (0, 1)),
        (
            ["('f-88', 1)", "('f-99', 0)", "('f-88', 0)"],
            ["('f-22', 0)", "('f-33', 0)", "('f-33', 1)"],
            *((4.0, 1.0, 2.0), (1.0, 2.0, 4.5), (0, 1, 2)),
        ),
        (["f-a", "f-b", "f-c"], ["f-d", "f-e", "f-f"], (1.0, 2.0, 4.0), (4.5, 2.0, 1.0)),
    ],
)
def test_tasks_are_paired(arguments):
    differences = paired(*arguments)
    assert differences == [0.0] * (len(arguments[0]) - 1) + [0.5]
    assert paired(["f-a", "f-b", "f-c"], ["f-a", "f-b"], after=(1.0, 2.0), order=(0, 1)) is None


@pytest.mark.parametrize("share, fails", [(0.3, False), (0.88, True), (1.0, True)])
def test_a_program_that_takes_less_time_does_not_fail_as_its_tasks_take_longer(share, fails):
    """As with more threads: each of 100 tasks of 1 s takes 1.3 s, and more of them run at once."""
    before = recording(load=around(1.0, 0.1, 100, 1))
    after = recording(load=around(1.3, 0.1, 100, 3))
    # They start at 0.
    stop = share * before.computations.stop
    comparison = compare(before, with_columns(after, "computations", stop=stop))
    assert rows_of(comparison)["load"]["verdict"] == "slower"
    assert comparison.regressions(0.1) == (["total", "load"] if fails else [])
    text = text_of(comparison)
    assert ("tasks that took longer are no regression" in text) == (share < 0.9)
    assert ("in computations 99.3 s → 99.3 s (0%)" in text) == (share == 1.0)


def risk(tests):
    return (1 - CONFIDENCE) / tests


BEFORE, AFTER = [1.0, 1.1] * 5, [1.0, 1.2] * 6
TEN, TWELVE = Variation(10, 0.05**2 * 10 / 9), Variation(12, 0.1**2 * 12 / 11)


@pytest.mark.parametrize(
    "before, after, change, parts, tests, chance",
    [
        # A change of few tasks may all be chance. `many` cannot be paired, task by task: both
        # sides vary, each as its own tasks do.
        *(
            (
                {"few": [3.0, 2.0, 4.0], "many": BEFORE},
                {"few": [3.0 + step, 2.0 + step, 4.0 + step], "many": AFTER},
                *(3 * step + 2.7, [TEN, TWELVE], 2, abs(3 * step)),
            )
            for step in (1.0, -0.5)
        ),
        # Neither has enough tasks of its own; together they are one sample: they differ by 0.1, 0,
        # 0.2, 0 and 0.3.
        (
            {"f": [1.0, 2.0, 3.0], "g": [5.0, 4.0]},
            {"f": [1.1, 2.0, 3.2], "g": [5.0, 4.3]},
            *(0.6, [Variation(5, (0.14 - 0.6**2 / 5) / 4)], 1, 0.0),
        ),
        # The paired tasks and `few` differ by 0.5 or not at all, and by -2. Judged are `paired`,
        # `u`, `v` and the total; of one added task nothing is known.
        (
            {"paired": [2.0, 2.0] * 3, "u": BEFORE, "v": BEFORE, "few": [9.0], "old": BEFORE},
            {"paired": [2.5, 2.0] * 3, "u": AFTER, "v": AFTER, "few": [7.0], "once": [0.5]},
            1.5 + 2 * (13.2 - 10.5) - 2 - 10.5 + 0.5,
            [Variation(7, (3 * 0.5**2 + 2**2 - 0.5**2 / 7) / 6), *[TEN, TWELVE] * 2, TEN],
            *(4, 0.5),
        ),
        ({"few": [9.0]}, {"few": [7.0], "new": AFTER}, 13.2 - 2, [TWELVE], 1, 2.0),
    ],
)
def test_what_chance_explains_of_the_total(before, after, change, parts, tests, chance):
    total = compared(before, after).total
    assert total["change"] == pytest.approx(change)
    assert total["spread"] == pytest.approx(half_width(parts, risk(tests)) + chance)


def test_the_more_functions_are_judged_the_more_each_has_to_change():
    others = {f"g{n}": around(1, 0.1, 20, n) for n in range(9)}
    f, changed = around(1, 0.1, 20, 1), around(1, 0.1, 20, 2)
    one, ten, two = (
        rows_of(compared({"f": f, **before}, {"f": changed, **after}))["f"]["spread"]
        for before, after in (({}, {}), (others, others), ({"old": [1.0] * 9}, {"new": [1.0] * 9}))
    )
    # Student's with 19 degrees of freedom, of 1% and of an eleventh of it. What was added or
    # removed is not judged: besides `f` only the total is, at half of the risk.
    assert ten / one == pytest.approx(3.622 / 2.539, rel=1e-3)
    assert two / one == pytest.approx(2.861 / 2.539, rel=1e-3)


def test_the_largest_change_comes_first():
    functions = compared(
        {"a": [1.0], "b": [9.0], "c": [5.0]}, {"a": [2.0], "b": [4.0], "c": [8.0]}
    ).functions
    assert functions["function"].tolist() == ["b", "c", "a"]
    assert functions["change"].tolist() == [-5.0, 3.0, 1.0]


def test_cpu_memory_and_what_is_held():
    before = recording(f=[1.0] * 5, cpu=0.9, memory=[1e9, 2e9], held={"f": 3})
    after = recording(
        f=[1.0] * 5, g=[1.0] * 5, cpu=0.4, memory=[3e9] + [1e9] * 5, held={"f": 7, "g": 1}
    )
    comparison = compare(before, after)
    expected = {"cpu": (0.9, 0.4), "memory": (2e9, 3e9), "cached": (3.0, 7.0)}
    rows = rows_of(comparison)
    for row, shown in ((rows["f"], expected), (comparison.total, {**expected, "cached": (3, 8)})):
        for name, pair in shown.items():
            assert (row[f"{name}_before"], row[f"{name}_after"]) == pytest.approx(pair), name
    assert rows["g"]["memory_after"] == 1e9
    unknown = compared({"f": [1.0] * 5}, {"f": [1.0] * 5}).total
    assert np.isnan([unknown["cached_before"], unknown["memory_after"]]).all()
    text = text_of(comparison)
    assert "90→40" in text
    assert "peak resident memory 2.00 GB → 3.00 GB; during tasks of f 2.00 GB → 3.00 GB" in text
    assert "cached results: peak 3 → 8; f 3 → 7" in text
    # Memory is that of child processes, too.
    columns = {"time": [0.5, 1.5], "memory": [3e9, 2e9], "memory_children": [0.0, 4e9]}
    assert compare(with_tables(before, resources=columns), before).total["memory_before"] == 6e9


@pytest.mark.parametrize(
    "of_f, of_g, shares",
    [
        ([0.5, 0.5], 3.0, [0.5, 0.75, 4 / 6]),
        # Of a task that failed in its process it is not known.
        ([0.5, np.nan], 3.0, [0.5, 0.75, 4 / 6]),
        ([np.nan, np.nan], 3.0, [np.nan, 0.75, 0.75]),
        ([np.nan, np.nan], np.nan, [np.nan, np.nan, np.nan]),
    ],
)
def test_the_share_of_cpu_is_that_of_tasks_of_which_it_is_known(of_f, of_g, shares):
    one = recording(f=[1.0, 1.0], g=[4.0])
    comparison = compare(with_columns(one, "tasks", thread_cpu=[*of_f, of_g]), one)
    rows = rows_of(comparison)
    rows = rows["f"], rows["g"], comparison.total
    assert [row["cpu_before"] for row in rows] == pytest.approx(shares, nan_ok=True)
    assert ("?→50" in text_of(comparison)) == np.isnan(shares[0])


def test_what_is_no_recording_is_refused():
    for pair in ((NOTHING, "a.diag"), ("a.diag", NOTHING)):
        with pytest.raises(DiagnosticError, match="expected a Recording"):
            compare(*pair)


@pytest.mark.parametrize(
    "risk, freedom, expected",
    [
        *[(0.005, 1, 63.657), (0.005, 2, 9.925), (0.005, 4, 4.604), (0.005, 10, 3.169)],
        *[(0.005, 120, 2.617), (0.0005, 4, 8.610), (0.0005, 19, 3.883), (0.0001, 2, 70.700)],
        *[(0.01, 1e9, 2.3263), (1e-6, 1e9, 4.7534), (0.25, 3, 0.7649)],
    ],
)
def test_quantiles_are_those_of_the_tables(risk, freedom, expected):
    assert t_quantile(risk, freedom) == pytest.approx(expected, rel=2e-4)


def test_an_interval_is_that_of_welch():
    # Two sums over 10 tasks of variance 4: standard error sqrt(80), 18 degrees of freedom.
    width = half_width([Variation(10, 4.0), Variation(10, 4.0)], 0.005)
    assert width == pytest.approx(2.878 * np.sqrt(80), rel=1e-3)


def test_recordings_without_a_function_in_common_are_said_to_be_of_different_programs():
    warning = "no function ran in both: these seem to be recordings of different programs"
    for others, is_said in (
        ({"g": [1.0] * 9}, True),
        ({"f": [1.0], "g": [1.0]}, False),
        ({}, False),
    ):
        assert (warning in text_of(compared({"f": [1.0] * 9}, others))) == is_said


def test_text_and_page_are_safe_whatever_names_are():
    durations = {f"function-{n}\x1b[2J<b>" + "x" * 90: [1.0 + n / 10] * 6 for n in range(40)}
    slower = {name: [9.0 * seconds for seconds in took] for name, took in durations.items()}
    before, after = recording(**durations), recording(**slower)
    text = comparison_summary(compare(before, after), "b" * 200, "a" * 200)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert "10 functions that changed less" in text
    page = comparison_page(before, after, ("<img>", "&"))
    assert not [name for name in ("<img>", "x<b>", "could not be made") if name in page]
    assert page.count('<tr class="slower">') == 31
    assert "could not be made" not in comparison_page(NOTHING, NOTHING, ("a", "b"))


STORIES = Path(__file__).parent.parent / "docs" / "stories"
SIDES = [recording(f=[1.0] * 8, g=[2.0] * 6), recording(f=[2.0] * 8, g=[2.0] * 6)]


def sides_of(before, after):
    return Sides(compare(before, after), (Analysis(before), Analysis(after)), ("a", "b"))


def test_both_walls_are_bars_on_one_scale_and_each_function_has_two():
    before, after = SIDES
    after = replace(after, stop=after.start + 3 * (before.stop - before.start))
    first, second, table = wall(sides_of(before, after))
    assert (first.scale, second.scale) == (pytest.approx(1 / 3), 1.0)
    assert any(row[3].startswith("+") for row in table.rows)
    bars = next(iter(functions(sides_of(*SIDES))))
    assert [(name, when) for name, when, _, _ in bars.rows] == [
        ("f", "before"),
        ("", "after"),
        ("g", "before"),
        ("", "after"),
    ]
    lengths = [sum(piece.percent for piece in pieces) for *_, pieces in bars.rows]
    assert lengths == pytest.approx([50, 100, 75, 75])


def test_both_timelines_have_one_axis():
    plots = [part.model for part in timelines(sides_of(*SIDES)) if isinstance(part, Figure)]
    assert len(plots) == 2
    assert plots[0].x_range is plots[1].x_range
    assert plots[0].y_range.end == plots[1].y_range.end
    assert plots[0].x_range.bounds[1] == max(side.stop - side.start for side in SIDES)


def test_the_key_is_hatched_as_the_plots_are_and_calls_are_as_wide_as_the_page():
    sides = sides_of(*(load(STORIES / f"climatology{name}.diag") for name in ("", "_after")))
    (key,) = (part for part in timelines(sides) if isinstance(part, Key))
    styles = {look.name: look.style for look in key.looks}
    assert styles["scheduling overhead"] == "hatch-up"
    assert styles["tasks waiting for the GIL"] == ""
    (calls,) = (part.model for part in flame(sides) if isinstance(part, Figure))
    graphs = [graph for graph in calls.select({"type": Plot}) if graph.visible]
    assert {graph.sizing_mode for graph in graphs} == {"stretch_width"}


def test_calls_of_both_are_one_tree_that_has_the_seconds_of_each():
    before = known_stacks()
    after = with_columns(before, "samples", seconds=3 * before.samples.seconds)
    one, nodes = call_tree(before), merged_tree(before, after)
    assert len(nodes) == len(one)
    np.testing.assert_allclose(nodes["total_before"][0], one["total_wall"][0])
    np.testing.assert_allclose(nodes["total_after"], 3 * nodes["total_before"])
    ends, parents = nodes["end"], nodes["parent"]
    assert all(parents[node] < node < ends[parents[node]] for node in range(1, len(nodes)))
    nodes = merged_tree(before, replace(before, samples=before.samples.filter(slice(0))))
    assert (nodes["total_after"].any(), len(nodes)) == (False, len(one))


def script_of_another_name(recording, name):
    """The same recording, made by a script of this name."""
    files = [name if file == "climatology.py" else file for file in recording.frames.file.values]
    columns = {column: recording.frames[column] for column in recording.frames.columns}
    columns["file"] = Categorical(recording.frames.file.codes, files)
    code = recording.environment
    names = [name if cell == "climatology.py" else cell for cell in code.name.tolist()]
    return replace(
        recording,
        frames=type(recording.frames)(columns),
        environment=with_columns(recording, "environment", name=names).environment,
    )


@pytest.mark.parametrize("name", ["faster.py", "elsewhere/climatology.py"])
def test_calls_of_scripts_of_two_names_are_one_tree(name):
    before = load(STORIES / "climatology.diag")
    assert len(merged_tree(before, script_of_another_name(before, name))) == len(call_tree(before))


def test_bars_are_as_long_as_the_table_says_and_the_key_has_their_colours():
    sides = sides_of(*(load(STORIES / f"word_count{name}.diag") for name in ("", "_after")))
    bars, key, *_ = functions(sides)
    table = {row["function"]: row for row in sides.comparison.functions.to_dicts()}
    names = [name for name, *_ in bars.rows if name]
    expected = [
        seconds(table[name][f"seconds_{when}"]) for name in names for when in ("before", "after")
    ]
    assert [text for _, _, text, _ in bars.rows] == expected
    assert {piece.look for *_, pieces in bars.rows for piece in pieces} == set(key.looks)


@pytest.mark.parametrize(
    "walls, heading, below",
    [
        (None, "tasks took 8.00 s longer", "f is slower by 8.00 s"),
        ((50, 150), "50.0 s → 150 s; largest change: ", "s more (after the last computation)"),
    ],
)
def test_the_first_sentence_says_what_changed(walls, heading, below):
    sides = SIDES
    if walls:
        sides = [replace(side, stop=side.start + took) for side, took in zip(SIDES, walls)]
    page = comparison_page(*sides, ("a.diag", "b.diag"))
    first = page.split("<h1>")[1].split("</p>")[0]
    assert heading in first.split("</h1>")[0]
    assert below in first


@pytest.mark.parametrize(
    "others, lasted, warning",
    [
        (
            (1.66, 0.0),
            1.0,
            "Other processes used 83% of the CPUs before and 0% after: do not trust",
        ),
        ((0.1, 0.5), 1.0, "Other processes used 5% of the CPUs before and 25% after: do not trust"),
        ((0.1, 0.15), 1.0, ""),
        ((np.nan, np.nan), 1.0, ""),
        # The kernel counts in steps: of so short a time little is known.
        ((0.2, 0.0), 0.1, ""),
    ],
)
def test_what_other_processes_used_comes_first(others, lasted, warning):
    sides = [
        with_columns(
            replace(recording(f=[lasted]), run_id=name),
            "computations",
            cpu_other_processes=[cpu],
            cpus=[2],
            computation=[name],
        )
        for name, cpu in zip("ab", others, strict=True)
    ]
    of_tasks = comparison_summary(compare(*sides), "a.diag", "b.diag")
    of_runs = run_comparison_summary(compare(*([side] for side in sides)))
    for text in (of_tasks, of_runs):
        assert text.startswith(warning or ("a.diag" if text is of_tasks else "1 run"))
    page = comparison_page(*sides, ("a.diag", "b.diag"))
    assert bool(warning) == ("Other processes used" in page)


def test_cpu_time_is_compared_alone():
    # As much CPU time; tasks took twice as long, as on a busy machine. Then the same time, of which
    # a CPU was needed all the time.
    before = recording(f=around(1.0, 0.02, 50), cpu=0.5)
    busy = recording(f=2 * around(1.0, 0.02, 50), cpu=0.25)
    costly = recording(f=around(1.0, 0.02, 50), cpu=1.0)
    assert compare(before, busy).regressions(0.1) == ["total", "f"]
    assert compare(before, busy, of="cpu").regressions(0.1) == []
    assert compare(before, costly).regressions(0.1) == []
    of_cpu = compare(before, costly, of="cpu")
    assert of_cpu.regressions(0.1) == ["total", "f"]
    row = rows_of(of_cpu)["f"]
    assert (row["cpu_before"], row["cpu_after"]) == (pytest.approx(0.5), pytest.approx(1.0))
    assert of_cpu.total["cpu_after"] == pytest.approx(1.0)
    assert "before and after are the CPU time of tasks" in text_of(of_cpu)
    # A program that takes less time by more workers needs as much CPU.
    quicker = with_columns(costly, "computations", stop=[1.0])
    assert compare(before, quicker, of="cpu").regressions(0.1) == ["total", "f"]
