"""Times of another process's clock: the offset is added, and clocks drift evenly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_diag.cluster.workers_table import bounds_in_microseconds, error_of, to_other_clock

pytestmark = pytest.mark.once

NAN = float("nan")


@pytest.mark.parametrize(
    ("times", "readings", "added"),
    [
        ([1.0, 2.5], [], [0.0, 0.0]),
        # One comparison, and two at one time, say one offset and no drift.
        ([0.0, 5.0, 9.0], [(5.0, 2.0, 0.1)], [2.0] * 3),
        ([0.0, 5.0, 9.0], [(5.0, 2.0, 0.1), (5.0, 2.0, 0.2)], [2.0] * 3),
        # In any order: between two by these two, before and after all by the first and the last.
        (
            [6.0, 15.0, 25.0, 34.0],
            [(30.0, 3.5, 0.1), (10.0, 1.0, 0.1), (20.0, 3.0, 0.1)],
            [0.5, 2.0, 3.25, 4.0],
        ),
        ([0.0, 25.0], [(5.0, 2.0, 0.1), (5.0, 2.0, 0.2), (15.0, 4.0, 0.1)], [1.0, 6.0]),
    ],
)
def test_clocks_drift_evenly_between_comparisons_and_beyond_them(times, readings, added):
    mapped = to_other_clock(np.array(times), readings)
    assert mapped.dtype == np.float64
    assert (mapped - times).tolist() == pytest.approx(added, abs=1e-12)


@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.floats(-1e-3, 1e-3)), min_size=2, max_size=20),
    st.floats(0, 5),
)
def test_times_are_within_the_error_whenever_they_are_mapped(stretches, after):
    """From one reading to the next the other clock drifts in another way."""
    lengths, drifts = np.array(stretches).T
    at = np.concatenate([[0.0], np.cumsum(lengths)])
    offsets = np.concatenate([[7.0], 7.0 + np.cumsum(lengths * drifts)])
    readings = [(time, offset, 1e-4) for time, offset in zip(at, offsets, strict=True)]
    bound = error_of(readings, at[-1])
    assert bound >= 1e-4
    for count in range(1, len(readings)):
        # The last time that is mapped before the next reading comes.
        (mapped,) = to_other_clock(np.array([at[count]]), readings[:count])
        assert abs(mapped - at[count] - offsets[count]) <= bound
    drift = (offsets[-1] - offsets[0]) / at[-1]
    assert error_of(readings, at[-1] + after) == pytest.approx(bound + abs(drift) * after)


def test_the_error_of_one_reading_grows_as_clocks_do_that_are_set():
    assert error_of([], 100.0) == 0.0
    assert error_of([(10.0, 5.0, 0.1)], 5.0) == 0.1
    assert error_of([(10.0, 5.0, 0.1)], 20.0) == pytest.approx(0.1 + 10 * 5e-4)


@given(st.lists(st.tuples(st.integers(0, 10**15), st.integers(0, 10**10)), min_size=1, max_size=50))
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
    unknown = bounds_in_microseconds(np.array([NAN, 1.0]), np.array([2.0, NAN]))
    assert np.isnan(unknown).tolist() == [[True, False], [True, True]]
