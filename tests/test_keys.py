"""Keys that move the time axis: within its bounds, and never to nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .javascript import needs_node, run_javascript

pytestmark = [pytest.mark.once, needs_node]


def moved(start, end, *keys, bounds=(0, 100), min_interval=1e-6):
    view = {"start": start, "end": end, "bounds": list(bounds), "min_interval": min_interval}
    return run_javascript("theme/keys.js", "moved", *([view, key] for key in keys))


def test_keys_zoom_move_and_show_all_again():
    nearer, farther, left, right, zero, escape = moved(
        40, 70, "+", "-", "ArrowLeft", "ArrowRight", "0", "Escape"
    )
    assert nearer == {"start": 45, "end": 65}
    assert farther == {"start": 32.5, "end": 77.5}
    assert left == {"start": 32.5, "end": 62.5}
    assert right == {"start": 47.5, "end": 77.5}
    assert zero == escape == {"start": 0, "end": 100}


def test_other_keys_are_left_to_the_page():
    assert moved(0, 100, "a", "Tab", "ArrowDown", " ") == [None] * 4


def test_at_an_edge_the_length_stays():
    assert moved(90, 100, "ArrowRight") == [{"start": 90, "end": 100}]
    assert moved(1, 11, "ArrowLeft") == [{"start": 0, "end": 10}]


@settings(max_examples=5, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0, 50), st.floats(1e-5, 50), st.sampled_from(["+", "-", "ArrowLeft", "0"])
        ),
        min_size=1,
        max_size=100,
    )
)
def test_no_key_leaves_the_bounds_or_zooms_in_to_nothing(calls):
    views = run_javascript(
        "theme/keys.js",
        "moved",
        *(
            [{"start": a, "end": a + n, "bounds": [0, 100], "min_interval": 1e-5}, key]
            for a, n, key in calls
        ),
    )
    for view in views:
        assert 0 <= view["start"] < view["end"] <= 100 + 1e-9
        assert view["end"] - view["start"] >= 1e-5 * 0.999


def test_a_zoom_stops_where_the_range_says():
    assert moved(10, 11, "+", min_interval=1) == [pytest.approx({"start": 10, "end": 11})]
