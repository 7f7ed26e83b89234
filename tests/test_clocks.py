"""Times of another process's clock: the offset is added, and clocks drift evenly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_diag.cluster.workers_table import bounds_in_microseconds, to_other_clock

pytestmark = pytest.mark.once


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


def test_two_comparisons_at_once_before_another_hide_no_drift():
    readings = [(5.0, 2.0, 0.1), (5.0, 2.0, 0.2), (15.0, 4.0, 0.1)]
    assert moved([0.0, 25.0], readings) == pytest.approx([1.0, 6.0])


nanoseconds = st.integers(0, 10**15)
durations = st.integers(0, 10**10)


@given(st.lists(st.tuples(nanoseconds, durations), min_size=1, max_size=50))
def test_in_microseconds_durations_are_rounded_once_and_no_bound_is_crossed(spans):
    first, lasted = np.array(spans).T
    start, stop = first / 1e9, (first + lasted) / 1e9
    started, stopped = bounds_in_microseconds(start, stop)
    for times in (started, stopped):
        assert (np.rint(times * 1e6) / 1e6 == times).all()
    # A float of ten digits has a rounding error of its own.
    error = 1e-6 * 0.5 + np.spacing(stop) * 2
    assert (np.abs((stopped - started) - (stop - start)) <= error).all()
    # The whole microseconds before and after, which are those of submission and collection.
    assert (started >= np.floor(first / 1e3) / 1e6 - 1e-6 - np.spacing(stop)).all()
    assert (started <= start + np.spacing(stop)).all()
    assert (stopped <= np.ceil((first + lasted) / 1e3) / 1e6 + np.spacing(stop)).all()


def test_what_is_not_known_stays_so_in_microseconds():
    started, stopped = bounds_in_microseconds(np.array([np.nan, 1.0]), np.array([2.0, np.nan]))
    assert np.isnan(started).tolist() == [True, False]
    assert np.isnan(stopped).all()
