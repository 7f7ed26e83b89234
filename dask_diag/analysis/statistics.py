"""By how much sums over tasks differ by chance, if tasks vary as those that were seen do."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

__all__ = ["CONFIDENCE", "FEWEST", "Sum", "interval"]

CONFIDENCE = 0.99
"""That the interval holds the difference, if it came by chance alone."""
FEWEST = 5
"""Tasks from which on their spread is taken to be known."""


class Sum(NamedTuple):
    """The sum of the durations of some tasks: how many, and the variance between them (s²)."""

    tasks: int
    variance: float


def interval(sums: Iterable[Sum]) -> float:
    """Half of Welch's interval, in seconds, around a sum or difference of independent sums."""
    parts = [(each.tasks * each.variance, each.tasks - 1) for each in sums]
    variance = sum(part for part, _ in parts)
    if variance <= 0:
        return 0.0
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    return quantile_of_t((1 + CONFIDENCE) / 2, freedom) * sqrt(variance)


def quantile_of_t(share: float, freedom: float) -> float:
    """A quantile of Student's distribution; to 0.3% of it for four degrees of freedom or more."""
    z = NormalDist().inv_cdf(share)
    # The expansion of Cornish and Fisher (Abramowitz and Stegun, 26.7.5).
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return float(sum(term / freedom**power for power, term in enumerate(terms)))
