"""By how much a setting is faster than the baseline, and whether chance explains that.

In each round every setting runs once, so that what slows the machine for a while slows all of them.
What is compared are the two runs of a round, as the logarithm of their ratio: noise of a program is
in proportion to its time. How much that varies from round to round is judged from all settings
together, since three rounds say little about one; a setting that varies more than the others is
judged by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, sqrt
from typing import TypeVar

import numpy as np

from dask_diag.analysis.statistics import t_quantile
from dask_diag.columns import FloatArray

__all__ = ["LOOKS", "MIN_RUNS", "Gain", "gains"]

Identity = TypeVar("Identity")

MIN_RUNS = 3
LOOKS = (3, 4, 5, 7, 10)
"""Numbers of runs after which a setting may be decided; the last is the most that there are."""
SHOWN_RISK = 0.025
"""On either side of the interval that is shown, which has 95%."""
RISK_OF_FALSE_WINNER = 0.002
"""That anything is called faster where no setting changes anything: over all settings and looks."""
SMALLEST_GAIN = 1.02
"""Less is not worth a setting."""


@dataclass(frozen=True)
class Gain:
    """How many times as fast a setting is: 2 means half the time.

    Attributes
    ----------
    estimate : float
        The geometric mean of the rounds' ratios.
    low, high : float
        Its interval of 95%, for this setting alone.
    is_proven : bool
        Whether it is faster beyond what chance explains, though many settings were tried, and
        looked at several times.
    """

    estimate: float
    low: float
    high: float
    is_proven: bool

    @property
    def is_hopeless(self) -> bool:
        """Whether more runs would not make a winner of it."""
        return self.high < SMALLEST_GAIN


def gains(
    baseline: Mapping[int, float], settings: Mapping[Identity, Mapping[int, float]]
) -> dict[Identity, Gain]:
    """The gain of each setting with at least `MIN_RUNS` rounds beside the baseline.

    Parameters
    ----------
    baseline : mapping of int to float
        The wall time in each round.
    settings : mapping
        The same of each setting, by whatever identifies it.
    """
    logs = {
        name: np.log([baseline[n] / walls[n] for n in sorted(walls) if n in baseline])
        for name, walls in settings.items()
    }
    logs = {name: values for name, values in logs.items() if len(values) >= MIN_RUNS}
    if not logs:
        return {}
    variance, freedom = _pooled(list(logs.values()))
    risk = RISK_OF_FALSE_WINNER / (len(settings) * (len(LOOKS) + 1))
    return {name: _gain(values, variance, freedom, risk) for name, values in logs.items()}


def _gain(logs: FloatArray, pooled: float, freedom: float, risk: float) -> Gain:
    own, count = float(logs.var(ddof=1)), len(logs)
    if own > pooled:
        pooled, freedom = own, count - 1
    error = sqrt(pooled / count)
    mean = float(logs.mean())
    width = t_quantile(SHOWN_RISK, freedom) * error
    estimate = exp(mean)
    is_proven = estimate >= SMALLEST_GAIN and mean > t_quantile(risk, freedom) * error
    return Gain(estimate, exp(mean - width), exp(mean + width), is_proven)


def _pooled(samples: list[FloatArray]) -> tuple[float, float]:
    """The variance of a ratio, from all settings, and its degrees of freedom."""
    degrees = sum(len(values) - 1 for values in samples)
    variance = sum(float(values.var(ddof=1)) * (len(values) - 1) for values in samples) / degrees
    # All ratios have the baseline's noise in common, so that they are not independent samples. If
    # all walls vary alike, the mean of k variances has this many (Satterthwaite 1946), from n - 1
    # for one setting to 4 (n - 1) for very many.
    k = len(samples)
    return variance, degrees / k * 4 * k / (k + 3)
