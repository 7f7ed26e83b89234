"""The arithmetic of ``benchmarks.live``, of pieces of work whose times are made up."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("playwright")

from benchmarks.live import NOTHING, Window, interval, ratios_of, seconds_of_a_piece


def pieces_of(rates, until=100.0):
    """The times of pieces on two threads; a piece takes what `rates` says at its begin."""
    rows = []
    for begin in (0.0, 0.003):
        while begin < until:
            rows.append((begin, begin + rates(begin)))
            begin = rows[-1][1]
    return np.array(rows)


def windows_of(seconds=10.0):
    """Nothing and a page in turn; the first two seconds of a page are catching up."""
    windows = []
    for n in range(9):
        start = n * seconds
        if n % 2:
            windows.append(Window("a page", start, start + 2, start + seconds))
        else:
            windows.append(Window(NOTHING, start, start, start + seconds))
    return windows


def is_with_page(moment):
    return moment // 10 % 2 == 1


def test_a_piece_takes_its_length_over_the_number_of_threads():
    pieces = pieces_of(lambda moment: 0.02)
    assert seconds_of_a_piece(pieces, 3.005, 17.013) == pytest.approx(0.01, rel=1e-9)


def test_the_ratio_is_that_of_the_pieces_and_drift_does_not_change_it():
    def rates(moment):
        return 0.016 * (1 + moment / 500) * (1.02 if is_with_page(moment) else 1.0)

    ratios = ratios_of(windows_of(), pieces_of(rates), "a page", with_catching_up=False)
    assert len(ratios) == 4
    # What drifts is in the middle of a window, and the catching up is not part of it.
    assert ratios == pytest.approx([1.02] * 4, abs=0.003)
    nothing = ratios_of(windows_of(), pieces_of(rates), NOTHING, with_catching_up=False)
    assert nothing == pytest.approx([1.0] * 2, abs=0.003)


def test_catching_up_is_in_the_whole_and_not_in_what_counts():
    def rates(moment):
        return 0.016 * (1.5 if is_with_page(moment) and moment % 10 < 2 else 1.0)

    pieces = pieces_of(rates)
    assert ratios_of(windows_of(), pieces, "a page", with_catching_up=False) == pytest.approx(
        [1.0] * 4, abs=0.003
    )
    # Two of ten seconds have two thirds of the pieces.
    expected = 10 / (8 + 2 / 1.5)
    assert ratios_of(windows_of(), pieces, "a page", with_catching_up=True) == pytest.approx(
        [expected] * 4, abs=0.003
    )


def test_the_interval_of_a_median_has_it_and_narrows():
    values = np.random.default_rng(1).normal(1.01, 0.02, 400)
    low, high = interval(list(values))
    assert low < np.median(values) < high
    assert high - low < 0.01
    few = interval(list(values[:10]))
    assert few[1] - few[0] > high - low
