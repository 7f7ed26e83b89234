"""Times of another process's clock: the offset is added, and clocks drift evenly."""

from __future__ import annotations

import numpy as np
import pytest

from dask_diag.builders.clocks import to_other_clock


def moved(times, readings):
    """How much is added to each time."""
    times = np.array(times, float)
    result = to_other_clock(times, readings)
    assert result.dtype == np.float64
    return (result - times).tolist()


def test_without_a_comparison_times_stay_as_they_are():
    assert moved([1.0, 2.5], []) == [0.0, 0.0]


def test_one_comparison_says_one_offset_for_all_times():
    assert moved([0.0, 5.0, 9.0], [(5.0, 2.0, 0.1)]) == [2.0, 2.0, 2.0]


def test_comparisons_at_one_time_say_no_drift():
    assert moved([0.0, 5.0, 9.0], [(5.0, 2.0, 0.1), (5.0, 2.0, 0.2)]) == [2.0, 2.0, 2.0]


def test_between_comparisons_and_beyond_them_clocks_drift_evenly():
    readings = [(10.0, 1.0, 0.1), (20.0, 3.0, 0.1)]
    added = moved([0.0, 10.0, 15.0, 20.0, 25.0], readings)
    assert added == pytest.approx([-1.0, 1.0, 2.0, 3.0, 4.0])


def test_comparisons_may_be_given_in_any_order():
    readings = [(30.0, 3.5, 0.1), (10.0, 1.0, 0.1), (20.0, 3.0, 0.1)]
    # Between two of them by these two; before and after all by the first and the last.
    added = moved([6.0, 15.0, 25.0, 34.0], readings)
    assert added == pytest.approx([0.5, 2.0, 3.25, 4.0])
