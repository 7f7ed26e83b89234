"""compare: what chance explains of the total, calculated by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dask_diag.analysis.compare import CONFIDENCE, Variation, compare, half_width

from .tables import filled_table
from .test_compare import recording

pytestmark = pytest.mark.once

BEFORE = [1.0, 1.1] * 5
AFTER = [1.0, 1.2] * 6


def risk(tests):
    return (1 - CONFIDENCE) / tests


@pytest.mark.parametrize("step", [1.0, -0.5])
def test_a_change_of_few_tasks_may_all_be_chance(step):
    few = [3.0, 2.0, 4.0]
    total = compare(
        recording(few=few, many=BEFORE),
        recording(few=[seconds + step for seconds in few], many=AFTER),
    ).total
    # `many` cannot be paired, task by task: both sides vary, each as its own tasks do.
    varies = half_width([Variation(10, 0.05**2 * 10 / 9), Variation(12, 0.1**2 * 12 / 11)], risk(2))
    assert total["spread"] == pytest.approx(varies + abs(3 * step))


def test_paired_tasks_of_all_functions_are_one_sample_of_differences():
    before = {"f": [1.0, 2.0, 3.0], "g": [5.0, 4.0]}
    after = {"f": [1.1, 2.0, 3.2], "g": [5.0, 4.3]}
    total = compare(recording(**before), recording(**after)).total
    # Neither has enough tasks of its own; together they differ by 0.1, 0, 0.2, 0 and 0.3.
    variance = (0.14 - 0.6**2 / 5) / 4
    assert total["spread"] == pytest.approx(half_width([Variation(5, variance)], risk(1)))
    assert total["change"] == pytest.approx(0.6)


def test_each_function_has_its_part_in_the_spread_of_the_total():
    before = {"paired": [2.0, 2.0] * 3, "u": BEFORE, "v": BEFORE, "few": [9.0], "old": BEFORE}
    after = {"paired": [2.5, 2.0] * 3, "u": AFTER, "v": AFTER, "few": [7.0], "once": [0.5]}
    total = compare(recording(**before), recording(**after)).total
    ten, twelve = Variation(10, 0.05**2 * 10 / 9), Variation(12, 0.1**2 * 12 / 11)
    # The paired tasks and `few` differ by 0.5 or not at all, and by -2: they are one sample.
    differences = Variation(7, (3 * 0.5**2 + 2**2 - 0.5**2 / 7) / 6)
    parts = [differences, ten, twelve, ten, twelve, ten]
    # Judged are `paired`, `u`, `v` and the total; of one added task nothing is known.
    assert total["spread"] == pytest.approx(half_width(parts, risk(4)) + 0.5)
    assert total["change"] == pytest.approx(1.5 + 2 * (13.2 - 10.5) - 2 - 10.5 + 0.5)


def test_one_function_that_was_added_has_its_own_spread():
    total = compare(recording(few=[9.0]), recording(few=[7.0], new=AFTER)).total
    added = Variation(12, 0.1**2 * 12 / 11)
    assert total["spread"] == pytest.approx(half_width([added], risk(1)) + 2.0)


def test_five_tasks_are_enough_where_all_are_slower_by_a_factor():
    sizes = [4.6, 0.2, 0.15, 0.1, 0.1]
    total = compare(recording(f=sizes), recording(f=[4 * size for size in sizes])).total
    assert total["verdict"] == "slower"


def test_the_largest_change_comes_first():
    before = {"a": [1.0], "b": [9.0], "c": [5.0]}
    comparison = compare(recording(**before), recording(a=[2.0], b=[4.0], c=[8.0]))
    assert comparison.functions["function"].tolist() == ["b", "c", "a"]
    assert comparison.functions["change"].tolist() == [-5.0, 3.0, 1.0]


def test_memory_is_that_of_child_processes_too():
    columns = {"time": [0.5, 1.5], "memory": [3e9, 2e9], "memory_children": [0.0, 4e9]}
    table = filled_table("resources", columns)
    total = compare(replace(recording(f=[1.0]), resources=table), recording(f=[1.0])).total
    assert total["memory_before"] == 6e9
    assert np.isnan(total["memory_after"])
