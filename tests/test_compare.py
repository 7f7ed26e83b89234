"""compare: changes are separated from chance, and what cannot be judged is reported so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dask_diag import Recording
from dask_diag.analysis.compare import (
    CONFIDENCE,
    MIN_TASKS,
    Variation,
    compare,
    half_width,
    paired_seconds,
    t_quantile,
    timed_tasks,
)
from dask_diag.analysis.compare_runs import compare_measures, measures_of
from dask_diag.cli.compare import compare as compare_command
from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.errors import DiagnosticError
from dask_diag.model.table import Table
from dask_diag.views.compare import comparison_summary, run_comparison_summary
from dask_diag.views.comparison import comparison_page

from .tables import filled_table

pytestmark = pytest.mark.once

EMPTY = Table({})
NOTHING = Recording(0.0, 1.0, 0.0, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY)


def recording(cpu=0.5, memory=None, held=None, token="1a2b", **durations):
    """Tasks of these durations by function, with a share of CPU time in each."""
    names = [name for name, took in durations.items() for _ in took]
    keys = [
        f"('{name}-{token}', {n})" for name, took in durations.items() for n in range(len(took))
    ]
    took = np.array([seconds for took in durations.values() for seconds in took], dtype=float)
    start = np.arange(len(took), dtype=float) * 10
    stop = np.array([np.nansum(took)])
    computations = filled_table(
        "computations",
        {"computation": Categorical.of(["1-1"]), "start": np.array([0.0]), "stop": stop},
    )
    tasks = filled_table(
        "tasks",
        {
            "key": PrefixStrings.of(keys),
            "function": Categorical.of(names),
            "start": start,
            "stop": start + took,
            "thread_cpu": took * cpu,
            "submitted": start,
            "computation": Categorical.of(["1-1"] * len(took)),
            "pid": Categorical.of([1] * len(took)),
        },
    )
    made = replace(NOTHING, computations=computations, tasks=tasks)
    if memory is not None:
        # One sample in each of the first tasks.
        columns = {
            "time": np.arange(len(memory)) * 10 + 0.5,
            "memory": np.array(memory),
            "memory_children": np.zeros(len(memory)),
        }
        made = replace(made, resources=filled_table("resources", columns))
    if held is not None:
        rows = [(name, count) for name, count in held.items() for _ in range(count)]
        columns = {
            "function": Categorical.of(name for name, _ in rows),
            "metric": np.ones(len(rows)),
            "start": np.zeros(len(rows)),
            "stop": np.ones(len(rows)),
        }
        made = replace(made, cached_results=filled_table("cached_results", columns), metric="count")
    return made


def around(mean, spread, count, seed=0):
    return np.random.default_rng(seed).normal(mean, spread, count)


def rows_of(comparison):
    return {row["function"]: row for row in comparison.functions.to_dicts()}


def test_a_slower_function_is_reported_and_another_is_not():
    before = recording(load=around(1.0, 0.1, 100, 1), add=around(1.0, 0.1, 100, 2))
    after = recording(load=around(1.3, 0.1, 100, 3), add=around(1.0, 0.1, 100, 4))
    comparison = compare(before, after)
    rows = rows_of(comparison)
    assert rows["load"]["verdict"] == "slower"
    assert rows["add"]["verdict"] == "unchanged"
    assert rows["load"]["change"] == pytest.approx(30, abs=5)
    assert comparison.functions["function"].tolist() == ["load", "add"]
    assert comparison.regressions(0.1) == ["total", "load"]
    assert comparison.regressions(0.2) == ["load"]
    assert comparison.regressions(0.5) == []
    opposite = compare(after, before)
    assert rows_of(opposite)["load"]["verdict"] == "faster"
    assert opposite.regressions(0.0) == []


def test_a_change_within_the_spread_never_fails():
    before = recording(load=around(1.0, 0.9, 10, 1))
    after = recording(load=around(1.0, 0.9, 10, 1)[::-1] + 0.3)
    comparison = compare(before, after)
    assert rows_of(comparison)["load"]["change"] == pytest.approx(3.0)
    assert rows_of(comparison)["load"]["verdict"] == "unchanged"
    assert comparison.regressions(0.1) == []


def test_a_regression_is_more_than_the_share():
    comparison = compare(recording(f=[1.0] * 8), recording(f=[1.25] * 8))
    assert comparison.regressions(0.25) == []
    assert comparison.regressions(0.24) == ["total", "f"]


@pytest.mark.parametrize("token", ["1a2b", "3c4d"])
def test_tasks_of_different_sizes_are_compared_one_by_one(token):
    sizes = np.geomspace(0.1, 10.0, 20)
    before = recording(load=sizes * around(1.0, 0.03, 20, 1))
    slower = recording(load=sizes * around(1.2, 0.03, 20, 2), token=token)
    same = recording(load=sizes * around(1.0, 0.03, 20, 3), token=token)
    assert compare(before, slower).regressions(0.1) == ["total", "load"]
    assert compare(before, same).regressions(0.0) == []
    # As samples of one distribution they would vary by more than all of the change.
    variations = [Variation.of(sizes), Variation.of(1.2 * sizes)]
    assert half_width(variations, 0.01) > 3 * rows_of(compare(before, slower))["load"]["change"]


SIZES = [4.6, 0.2, 0.15, 0.1, 0.1, 0.1]


@pytest.mark.parametrize("token", ["1a2b", "3c4d"])
def test_all_tasks_several_times_as_slow_are_found_whatever_their_sizes(token):
    # 5.25 s in tasks of which one has nearly all: their differences vary as much as their sizes.
    before = recording(load=SIZES)
    slower = recording(load=np.array(SIZES) * around(4.65, 0.2, 6, 1), token=token)
    comparison = compare(before, slower)
    assert rows_of(comparison)["load"]["verdict"] == "slower"
    assert comparison.regressions(0.1) == ["total", "load"]
    assert rows_of(compare(slower, before))["load"]["verdict"] == "faster"


def test_one_slow_task_of_many_may_be_chance():
    for slow in (0, 3):
        took = np.array(SIZES)
        took[slow] *= 30
        assert compare(recording(load=SIZES), recording(load=took)).regressions(0.1) == []


def test_small_tasks_that_are_slower_are_no_change_where_a_large_one_varies():
    took = np.array(SIZES) * [0.9, 1.2, 1.2, 1.2, 1.2, 1.2]
    row = rows_of(compare(recording(load=SIZES), recording(load=took)))["load"]
    assert row["verdict"] == "unchanged"


def paired(before_keys, after_keys, before=(1.0, 2.0, 4.0), after=(1.0, 2.0, 4.0), order=None):
    """The differences between tasks of these keys and durations, which start in this order."""

    def timed(keys, seconds, start):
        columns = {"start": np.array(start, float), "stop": np.array(start, float) + seconds}
        return timed_tasks(filled_table("tasks", {"key": keys, **columns}))

    order = order or range(len(after_keys))
    pairs = paired_seconds(
        timed(before_keys, np.array(before), range(len(before_keys))),
        timed(after_keys, np.array(after), order),
    )
    return None if pairs is None else sorted((pairs[1] - pairs[0]).tolist())


def test_tasks_are_paired_by_key_else_by_position_else_by_the_order_in_which_they_started():
    later_first = {"after": (4.5, 1.0, 2.0), "order": [9, 8, 7]}
    assert paired(["f-a", "f-b", "f-c"], ["f-c", "f-a", "f-b"], **later_first) == [0.0, 0.0, 0.5]
    before = ["('f-11', 0)", "('f-11', 1)", "('f-11', 2)"]
    after = ["('f-22', 2)", "('f-22', 0)", "('f-22', 1)"]
    assert paired(before, after, **later_first) == [0.0, 0.0, 0.5]
    # A position may have several numbers; those of the first dimension count, too.
    before = ["('f-11', 1, 0)", "('f-11', 0, 0)", "('f-11', 2, 0)"]
    after = ["('f-22', 2, 0)", "('f-22', 1, 0)", "('f-22', 0, 0)"]
    in_blocks = {"before": (1.0, 2.0, 4.0), "after": (4.5, 1.0, 2.0), "order": [9, 8, 7]}
    assert paired(before, after, **in_blocks) == [0.0, 0.0, 0.5]
    # What has a comma and is no tuple has no position.
    assert paired(["f 1, 0", "f 1, 1"], ["f 2, 1", "f 2, 0"], (1.0, 2.0), (1.0, 2.5)) == [0.0, 0.5]
    # Of two layers of one function the positions are alike.
    after = ["('f-22', 0)", "('f-33', 0)", "('f-33', 1)"]
    before = ["('f-88', 1)", "('f-99', 0)", "('f-88', 0)"]
    swapped = {"before": (4.0, 1.0, 2.0), "after": (1.0, 2.0, 4.5)}
    assert paired(before, after, **swapped) == [0.0, 0.0, 0.5]
    tokens_alone = {"after": (4.5, 2.0, 1.0), "order": [9, 8, 7]}
    assert paired(["f-a", "f-b", "f-c"], ["f-d", "f-e", "f-f"], **tokens_alone) == [0.0, 0.0, 0.5]
    assert paired(["f-a", "f-b", "f-c"], ["f-a", "f-b"], after=(1.0, 2.0)) is None


def test_a_different_count_of_tasks_is_a_change():
    comparison = compare(recording(f=[1.0] * 10), recording(f=[1.0] * 20))
    row = rows_of(comparison)["f"]
    assert (row["tasks_before"], row["tasks_after"]) == (10, 20)
    assert (row["change"], row["spread"], row["verdict"]) == (10.0, 0.0, "slower")


def test_too_few_tasks_are_not_judged_not_even_in_the_total():
    before = recording(f=[1.0] * 4, g=[1.0] * 5, h=[1.0] * 4)
    comparison = compare(before, recording(f=[9.0] * 40, g=[1.0] * 5, h=[9.0] * 4))
    for name in ("f", "h"):
        row = rows_of(comparison)[name]
        assert row["verdict"] == "too few tasks"
        assert np.isnan(row["spread"])
    assert comparison.total["seconds_before"] == 13.0
    assert comparison.total["verdict"] == "unchanged"
    assert comparison.regressions(0.1) == []
    text = comparison_summary(comparison, "a", "b").replace("\n  ", " ")
    assert "not judged: 2 functions with fewer than 5 tasks in a recording" in text


def test_with_too_few_tasks_in_all_the_total_is_not_judged():
    comparison = compare(recording(f=[1.0], g=[1.0] * 3), recording(f=[9.0], g=[9.0] * 3))
    assert comparison.total["verdict"] == "too few tasks"
    assert np.isnan(comparison.total["spread"])
    assert comparison.regressions(0.0) == []


@pytest.mark.parametrize(("share", "fails"), [(0.3, False), (0.88, True), (1.0, True)])
def test_a_program_that_takes_less_time_does_not_fail_as_its_tasks_take_longer(share, fails):
    """As with more threads: each of 100 tasks of 1 s takes 1.3 s, and more of them run at once."""
    before = recording(load=around(1.0, 0.1, 100, 1))
    after = recording(load=around(1.3, 0.1, 100, 3))
    # They start at 0.
    stop = share * before.computations.stop
    columns = {name: after.computations[name] for name in after.computations.columns}
    after = replace(after, computations=filled_table("computations", {**columns, "stop": stop}))
    comparison = compare(before, after)
    assert rows_of(comparison)["load"]["verdict"] == "slower"
    assert comparison.regressions(0.1) == (["total", "load"] if fails else [])
    text = str(comparison_summary(comparison, "a", "b"))
    assert ("tasks that took longer are no regression" in text) == (share < 0.9)
    assert ("of which computing 99.3 s → 99.3 s (0%)" in text) == (share == 1.0)


def test_what_was_added_or_removed_is_reported_and_counts_in_the_total():
    before = recording(f=[1.0] * 9, old=[1.0])
    comparison = compare(before, recording(f=[1.0] * 9, new=[2.0] * 9))
    rows = rows_of(comparison)
    assert rows["new"]["verdict"] == "added"
    assert rows["old"]["verdict"] == "removed"
    assert comparison.total["spread"] == pytest.approx(1.0)
    assert comparison.regressions(0.1) == ["total"]
    # How long a single added task takes by chance is not known.
    assert compare(before, recording(f=[1.0] * 9, new=[50.0])).regressions(0.1) == []


def test_recordings_that_have_no_function_in_common_are_said_to_be_of_different_programs():
    warning = "no function ran in both: these seem to be recordings of different programs"
    others = {"g": recording(g=[1.0] * 9), "both": recording(f=[1.0] * 9, g=[1.0] * 9)}
    said = {
        name: warning in " ".join(comparison_summary(compare(one, other), "a", "b").split())
        for one in [recording(f=[1.0] * 9)]
        for name, other in {**others, "nothing": NOTHING}.items()
    }
    assert said == {"g": True, "both": False, "nothing": False}
    runs = [[recording(**{name: [1.0] * 9}) for _ in range(2)] for name in "fg"]
    for sides, is_said in ((runs, True), ([runs[0], runs[0]], False)):
        text = run_comparison_summary(compare_measures(*[list(map(measures_of, s)) for s in sides]))
        assert (warning in " ".join(text.split())) == is_said


def test_the_more_functions_are_judged_the_more_each_has_to_change():
    one = rows_of(compare(recording(f=around(1, 0.1, 20, 1)), recording(f=around(1, 0.1, 20, 2))))
    others = {f"g{n}": around(1, 0.1, 20, n) for n in range(9)}
    ten = rows_of(
        compare(
            recording(f=around(1, 0.1, 20, 1), **others),
            recording(f=around(1, 0.1, 20, 2), **others),
        )
    )
    # Student's with 19 degrees of freedom, of 1% and of an eleventh of it.
    assert ten["f"]["spread"] / one["f"]["spread"] == pytest.approx(3.622 / 2.539, rel=1e-3)
    before = recording(f=around(1, 0.1, 20, 1), old=[1.0] * 9)
    two = rows_of(compare(before, recording(f=around(1, 0.1, 20, 2), new=[1.0] * 9)))
    # What was added or removed is not judged: besides `f` only the total is, at half of the risk.
    assert two["f"]["spread"] / one["f"]["spread"] == pytest.approx(2.861 / 2.539, rel=1e-3)


def test_cpu_memory_and_what_is_held():
    before = recording(f=[1.0] * 5, cpu=0.9, memory=[1e9, 2e9], held={"f": 3})
    after = recording(
        f=[1.0] * 5, g=[1.0] * 5, cpu=0.4, memory=[3e9] + [1e9] * 5, held={"f": 7, "g": 1}
    )
    comparison = compare(before, after)
    row = rows_of(comparison)["f"]
    assert (row["cpu_before"], row["cpu_after"]) == (pytest.approx(0.9), pytest.approx(0.4))
    assert (row["cached_before"], row["cached_after"]) == (3.0, 7.0)
    unknown = compare(recording(f=[1.0] * 5), recording(f=[1.0] * 5)).total
    assert np.isnan([unknown["cached_before"], unknown["cached_after"]]).all()
    assert [comparison.total[f"cpu_{when}"] for when in ("before", "after")] == [0.9, 0.4]
    assert (comparison.total["memory_before"], comparison.total["memory_after"]) == (2e9, 3e9)
    assert (row["memory_before"], row["memory_after"]) == (2e9, 3e9)
    assert rows_of(comparison)["g"]["memory_after"] == 1e9
    text = comparison_summary(comparison, "before.diag", "after.diag").replace("\n  ", " ")
    assert "90→40" in text
    assert "peak resident memory 2.00 GB → 3.00 GB; during tasks of f 2.00 GB → 3.00 GB" in text
    assert "cached results: peak 3 → 8; f 3 → 7" in text
    assert "± is the 99% confidence interval from task-to-task variation" in text
    assert "machine-wide slowdowns are not covered" in text


def test_unknown_durations_are_left_out():
    comparison = compare(recording(f=[1.0, np.nan] * 5), recording(f=[1.0] * 5))
    row = rows_of(comparison)["f"]
    assert (row["tasks_before"], row["seconds_before"], row["verdict"]) == (10, 5.0, "unchanged")


@pytest.mark.parametrize(
    ("of_f", "of_g", "share_of_f", "share_of_g", "of_all"),
    [
        ([0.5, 0.5], [3.0], 0.5, 0.75, 4 / 6),
        # Of a task that failed in its process it is not known.
        ([0.5, np.nan], [3.0], 0.5, 0.75, 4 / 6),
        ([np.nan, np.nan], [3.0], np.nan, 0.75, 0.75),
        ([np.nan, np.nan], [np.nan], np.nan, np.nan, np.nan),
    ],
)
def test_the_share_of_cpu_is_that_of_tasks_of_which_it_is_known(
    of_f, of_g, share_of_f, share_of_g, of_all
):
    one = recording(f=[1.0, 1.0], g=[4.0])
    columns = {name: one.tasks[name] for name in one.tasks.columns}
    tasks = filled_table("tasks", {**columns, "thread_cpu": [*of_f, *of_g]})
    comparison = compare(replace(one, tasks=tasks), one)
    rows = rows_of(comparison)
    shares = [rows["f"]["cpu_before"], rows["g"]["cpu_before"], comparison.total["cpu_before"]]
    assert shares == pytest.approx([share_of_f, share_of_g, of_all], nan_ok=True)
    if np.isnan(share_of_f):
        assert "?→50" in comparison_summary(comparison, "a", "b")


def test_what_is_no_recording_is_refused():
    for pair in ((NOTHING, "a.diag"), ("a.diag", NOTHING)):
        with pytest.raises(DiagnosticError, match="expected a Recording"):
            compare(*pair)


def test_empty_recordings_compare():
    comparison = compare(NOTHING, NOTHING)
    assert len(comparison.functions) == 0
    assert comparison.regressions(0.0) == []
    assert "computing" in comparison_summary(comparison, "a", "b")
    page = comparison_page(NOTHING, NOTHING, ("a", "b")).split("<body")[1]
    assert "slower" not in page
    assert "could not be made" not in page


@pytest.mark.parametrize(
    ("risk", "freedom", "expected"),
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


def test_the_documentation_states_the_constants():
    page = (Path(__file__).parent.parent / "docs" / "command_line.rst").read_text()
    text = " ".join(page.split())
    assert f"Fewer than {MIN_TASKS} tasks in a recording" in text
    assert f"and have fewer than {MIN_TASKS}, is added" in text
    assert f"The confidence, {CONFIDENCE:.0%}, holds" in text
    assert f"fewer than {MIN_TASKS} tasks never fail" in " ".join(compare_command.help.split())


def test_text_is_80_columns_wide_whatever_names_are():
    durations = {f"function-{n}\x1b[2J<b>" + "x" * 90: [1.0 + n / 10] * 6 for n in range(40)}
    slower = {name: [9.0 * seconds for seconds in took] for name, took in durations.items()}
    before, after = recording(**durations), recording(**slower)
    text = comparison_summary(compare(before, after), "b" * 200, "a" * 200)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert "10 functions that changed less" in text
    page = comparison_page(before, after, ("<img>", "&"))
    assert "<img>" not in page
    assert "x<b>" not in page
    assert "could not be made" not in page
    assert page.count('<tr class="slower">') == 31
