"""compare: a change is told from chance, and what cannot be told is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dask_diag import Recording
from dask_diag.analysis.compare import compare
from dask_diag.analysis.spread import Sum, interval, quantile_of_t
from dask_diag.columns import Labels
from dask_diag.table import Table
from dask_diag.views.compare import comparison_page, comparison_summary

pytestmark = pytest.mark.once

EMPTY = Table({})
NOTHING = Recording(0.0, 1.0, 0.0, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY)


def recording(cpu=0.5, memory=None, held=None, **durations):
    """Tasks of these durations by function, with a share of CPU time in each."""
    names = [name for name, took in durations.items() for _ in took]
    took = np.array([each for took in durations.values() for each in took], dtype=float)
    start = np.arange(len(took), dtype=float) * 10
    stop = np.array([np.nansum(took)])
    computes = Table({"compute": Labels.of(["1-1"]), "start": np.array([0.0]), "stop": stop})
    tasks = Table(
        {
            "function": Labels.of(names),
            "start": start,
            "stop": start + took,
            "thread_cpu": took * cpu,
            "submitted": start,
            "compute": Labels.of(["1-1"] * len(took)),
            "pid": Labels.of([1] * len(took)),
        }
    )
    made = replace(NOTHING, computes=computes, tasks=tasks)
    if memory is not None:
        # One sample in each of the first tasks.
        columns = {
            "time": np.arange(len(memory)) * 10 + 0.5,
            "memory": np.array(memory),
            "memory_children": np.zeros(len(memory)),
        }
        made = replace(made, resources=Table(columns))
    if held is not None:
        rows = [(name, count) for name, count in held.items() for _ in range(count)]
        columns = {
            "function": Labels.of(name for name, _ in rows),
            "metric": np.ones(len(rows)),
            "start": np.zeros(len(rows)),
            "stop": np.ones(len(rows)),
        }
        made = replace(made, cache=Table(columns), metric="count")
    return made


def around(mean, spread, count, seed=0):
    return np.random.default_rng(seed).normal(mean, spread, count)


def rows_of(found):
    return {row["function"]: row for row in found.functions.to_dicts()}


def test_a_slower_function_is_told_and_another_is_not():
    before = recording(load=around(1.0, 0.1, 100, 1), add=around(1.0, 0.1, 100, 2))
    after = recording(load=around(1.3, 0.1, 100, 3), add=around(1.0, 0.1, 100, 4))
    found = compare(before, after)
    rows = rows_of(found)
    assert rows["load"]["verdict"] == "slower"
    assert rows["add"]["verdict"] == "same"
    assert rows["load"]["change"] == pytest.approx(30, abs=5)
    assert found.functions["function"].tolist() == ["load", "add"]
    assert found.rising(0.1) == ["total", "load"]
    assert found.rising(0.2) == ["load"]
    assert found.rising(0.5) == []
    back = compare(after, before)
    assert rows_of(back)["load"]["verdict"] == "faster"
    assert back.rising(0.0) == []


def test_a_change_within_the_spread_never_fails():
    before = recording(load=around(1.0, 0.9, 10, 1))
    after = recording(load=around(1.0, 0.9, 10, 1) + 0.4)
    found = compare(before, after)
    assert rows_of(found)["load"]["change"] == pytest.approx(4.0)
    assert rows_of(found)["load"]["verdict"] == "same"
    assert found.rising(0.1) == []


def test_chance_alone_is_called_a_change_as_seldom_as_is_said():
    rng = np.random.default_rng(7)
    verdicts = [
        rows_of(compare(recording(f=rng.exponential(1, 40)), recording(f=rng.exponential(1, 40))))
        for _ in range(1000)
    ]
    wrong = sum(rows["f"]["verdict"] != "same" for rows in verdicts)
    # Of 1000, 10 are expected at a confidence of 99%; durations are skewed.
    assert 1 <= wrong <= 25


def test_counts_count():
    found = compare(recording(f=[1.0] * 10), recording(f=[1.0] * 20))
    row = rows_of(found)["f"]
    assert (row["tasks_before"], row["tasks_after"]) == (10, 20)
    assert (row["change"], row["spread"], row["verdict"]) == (10.0, 0.0, "slower")


def test_too_few_tasks_are_not_judged():
    found = compare(recording(f=[1.0] * 4, g=[1.0] * 5), recording(f=[9.0] * 40, g=[1.0] * 5))
    row = rows_of(found)["f"]
    assert row["verdict"] == "few"
    assert np.isnan(row["spread"])
    assert found.total["seconds_before"] == 9.0
    assert found.rising(0.1) == ["total"]
    assert "judged in the total alone: 1 function" in comparison_summary(found, "a", "b").replace(
        "\n  ", " "
    )


def test_what_is_new_or_gone_is_told_and_counts_in_the_total():
    found = compare(recording(f=[1.0] * 9, old=[1.0]), recording(f=[1.0] * 9, new=[2.0] * 9))
    rows = rows_of(found)
    assert rows["new"]["verdict"] == "new"
    assert rows["old"]["verdict"] == "gone"
    assert found.rising(0.1) == ["total"]


def test_cpu_memory_and_what_is_held():
    before = recording(f=[1.0] * 5, cpu=0.9, memory=[1e9, 2e9], held={"f": 3})
    after = recording(
        f=[1.0] * 5, g=[1.0] * 5, cpu=0.4, memory=[3e9] + [1e9] * 5, held={"f": 7, "g": 1}
    )
    found = compare(before, after)
    row = rows_of(found)["f"]
    assert (row["cpu_before"], row["cpu_after"]) == (pytest.approx(0.9), pytest.approx(0.4))
    assert (row["held_before"], row["held_after"]) == (3.0, 7.0)
    assert (found.total["memory_before"], found.total["memory_after"]) == (2e9, 3e9)
    assert (row["memory_before"], row["memory_after"]) == (2e9, 3e9)
    assert rows_of(found)["g"]["memory_after"] == 1e9
    text = comparison_summary(found, "before.diag", "after.diag").replace("\n  ", " ")
    assert "90→40" in text
    assert (
        "resident memory at most 2.00 GB → 3.00 GB; while tasks of one function ran: f 2.00 GB → 3.00 GB"
        in text
    )
    assert "f 3 → 7" in text


def test_unknown_durations_are_left_out():
    found = compare(recording(f=[1.0, np.nan] * 5), recording(f=[1.0] * 5))
    row = rows_of(found)["f"]
    assert (row["tasks_before"], row["seconds_before"], row["verdict"]) == (10, 5.0, "same")


def test_empty_recordings_compare():
    found = compare(NOTHING, NOTHING)
    assert len(found.functions) == 0
    assert found.rising(0.0) == []
    assert "elapsed" in comparison_summary(found, "a", "b")
    assert "slower" not in comparison_page(found, "a", "b").split("<body>")[1]


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(4, 4.604), (5, 4.032), (10, 3.169), (30, 2.750), (120, 2.617)],
)
def test_quantiles_are_those_of_the_tables(freedom, expected):
    assert quantile_of_t(0.995, freedom) == pytest.approx(expected, rel=0.003)


def test_an_interval_is_that_of_welch():
    # Two sums over 10 tasks of variance 4: standard error sqrt(80), 18 degrees of freedom.
    assert interval([Sum(10, 4.0), Sum(10, 4.0)]) == pytest.approx(2.878 * np.sqrt(80), rel=1e-3)


def test_text_is_80_columns_wide_whatever_names_are():
    durations = {f"function-{n}\x1b[2J<b>" + "x" * 90: [1.0 + n / 10] * 6 for n in range(40)}
    slower = {name: [9.0 * each for each in took] for name, took in durations.items()}
    found = compare(recording(**durations), recording(**slower))
    text = comparison_summary(found, "b" * 200, "a" * 200)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert "10 functions that changed less" in text
    page = comparison_page(found, "<script>", "&")
    assert "<script>" not in page
    assert "<b>" not in page
    assert page.count('<tr class="slower">') == 31
