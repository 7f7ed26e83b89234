"""How much sums of task durations differ by chance, judged from how much the tasks vary."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import exp, isnan, lgamma, log, log1p, nan, pi, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from dask_diag.columns import FloatArray

__all__ = [
    "CONFIDENCE",
    "MIN_TASKS",
    "Variation",
    "half_width",
    "half_width_of_means",
    "half_width_of_pairs",
    "t_quantile",
]

CONFIDENCE = 0.99
"""Of unchanged programs, the share in which nothing is called slower; the same for faster."""
MIN_TASKS = 5
"""Of fewer tasks it is not known how much they vary, so that any change may be chance."""
_FEW = 2
"""Values of which Welch's test does not hold beside more of others."""
_LARGEST_FREEDOM = 1e6


class Variation(NamedTuple):
    """How many values a sum has, and the variance between them (s²)."""

    size: int
    variance: float

    @classmethod
    def of(cls, values: FloatArray) -> Variation:
        """The variation of some values; of fewer than two the variance is NaN."""
        return cls(len(values), float(values.var(ddof=1)) if len(values) > 1 else nan)


def half_width(sums: Iterable[Variation], risk: float) -> float:
    """Half the confidence interval of a sum, or difference, of independent sums of values.

    Student's for one sum, Welch's for several.

    Parameters
    ----------
    sums : iterable of Variation
        Of two values or more each.
    risk : float
        The probability that chance alone exceeds it on one side.
    """
    return _welch(
        [(variation.size * variation.variance, variation.size - 1) for variation in sums], risk
    )


def half_width_of_means(means: Iterable[Variation], risk: float) -> float:
    """The same of a mean, or of the difference of independent means; NaN if nothing repeats.

    Of a mean of one value the variance is taken to be that of the others; of one of two values, if
    there are more of others, that of all. Two values are often as good as equal by chance, and
    Welch's test would then take their mean for certain: with two values beside ten it was exceeded
    in 4% of draws where the risk was 2%.
    """
    samples = list(means)
    repeated = [sample for sample in samples if sample.size > 1]
    if not repeated:
        return nan
    freedom = sum(sample.size - 1 for sample in repeated)
    pooled = sum((sample.size - 1) * sample.variance for sample in repeated) / freedom
    sizes = {sample.size for sample in samples}
    if len(repeated) < len(samples) or (min(sizes) == _FEW and len(sizes) > 1):
        # Student's: what is known of the variance has the degrees of freedom of those that repeat.
        variance = sum(pooled / sample.size for sample in samples)
        return t_quantile(risk, freedom) * sqrt(variance)
    return _welch([(sample.variance / sample.size, sample.size - 1) for sample in samples], risk)


def half_width_of_pairs(before: FloatArray, after: FloatArray, risk: float) -> float:
    """The same of the sum of the differences between paired values.

    It is Student's of the differences, which makes no assumption about sizes. Where values are of
    very different sizes, nearly all of the sum is that of one pair, and nothing looks certain. If
    all values changed by about the same factor, that is known from their ratios: their variation,
    times the sizes, is the spread of the sum. It is used only if the ratios show the same change
    beyond chance, so that no single value, however large, makes a change of its own.
    """
    width = half_width([Variation.of(after - before)], risk)
    if not ((before > 0).all() and (after > 0).all()):
        return width
    logs = np.log(after / before)
    error, quantile = float(logs.std(ddof=1)), t_quantile(risk, len(logs) - 1)
    mean, change = float(logs.mean()), float((after - before).sum())
    if abs(mean) <= quantile * error / sqrt(len(logs)) or mean * change <= 0:
        return width
    # The size of a pair is the geometric mean of its values: their ratio is as far on either side.
    return min(width, quantile * error * sqrt(float((before * after).sum())))


def _welch(parts: list[tuple[float, int]], risk: float) -> float:
    """Half the interval of what has these independent parts: their variance and freedom."""
    variance = sum(part for part, _ in parts)
    if variance <= 0:
        return 0.0
    # Welch and Satterthwaite. Never the normal quantile: with 10 tasks it is exceeded by chance
    # three times as often as a risk of 0.5% says.
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    return t_quantile(risk, freedom) * sqrt(variance)


@lru_cache(maxsize=4096)
def t_quantile(risk: float, freedom: float) -> float:
    """What Student's t exceeds with a probability of `risk`, which is at most 0.5.

    Expansions of the quantile fail where few degrees of freedom meet the small risks that are left
    when one is divided among many functions, so the exact tail is solved for it.
    """
    if isnan(risk + freedom):
        return nan
    freedom = min(freedom, _LARGEST_FREEDOM)
    low, high = 0.0, max(1.0, -NormalDist().inv_cdf(risk))
    while _t_tail(high, freedom) > risk:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _t_tail(middle, freedom) > risk else (low, middle)
    return high


def _t_tail(value: float, freedom: float) -> float:
    """The probability that Student's t exceeds a value."""
    # With t = sqrt(freedom) / tan(x) the tail is an integral of sin(x)^(freedom - 1) from 0 on;
    # in v, the share of sin(x)^freedom, its integrand is smooth however small the tail is.
    log_sine = -0.5 * log1p(value**2 / freedom)
    nodes, weights = _quadrature()
    cosines = np.sqrt(-np.expm1(2 * (log_sine + np.log(nodes) / freedom)))
    scale = lgamma((freedom + 1) / 2) - lgamma(freedom / 2) - log(pi) / 2 + freedom * log_sine
    return exp(scale) / freedom * float((weights / cosines).sum())


@lru_cache(maxsize=1)
def _quadrature() -> tuple[FloatArray, FloatArray]:
    """The nodes and weights of Gauss and Legendre, from 0 to 1."""
    nodes, weights = np.polynomial.legendre.leggauss(64)
    return (nodes + 1) / 2, weights / 2
