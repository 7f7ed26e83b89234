"""Comparison of two recordings, function by function, and statistics of comparisons."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import exp, isnan, lgamma, log, log1p, nan, pi, sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from dask_diag.analysis.built_by import changes_of_lines
from dask_diag.analysis.cpu import share_of_others
from dask_diag.analysis.groups import lookup, rows_by, table_of
from dask_diag.analysis.memory import cached_levels, task_memory
from dask_diag.analysis.task_times import seconds_computing
from dask_diag.columns import FloatArray
from dask_diag.formatting import seconds
from dask_diag.model.recording import Recording
from dask_diag.model.table import NO_ROWS, Table
from dask_diag.model.tables import Tasks, seconds_of_tasks

CONFIDENCE = 0.99
"""Of unchanged programs, the share in which nothing is called slower; the same for faster."""
MIN_TASKS = 5
"""Of fewer tasks it is not known how much they vary, so that any change may be chance."""
_FEW = 2
"""Values of which Welch's test does not hold beside more of others."""
_LARGEST_FREEDOM = 1e6


class Variation(NamedTuple):
    """The number of values of a sum, and the variance between values (s²)."""

    size: int
    variance: float

    @classmethod
    def of(cls, values: FloatArray) -> Variation:
        """The variation of values; of fewer than two the variance is NaN."""
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
    """Half the interval of a mean, or of a difference of means; NaN if nothing repeats.

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
    """Half the interval of the sum of the differences between paired values.

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
    """Half the interval of a sum of independent parts, by the variance and freedom of each."""
    variance = sum(part for part, _ in parts)
    if variance <= 0:
        return 0.0
    # Welch and Satterthwaite. Never the normal quantile: with 10 tasks it is exceeded by chance
    # three times as often as a risk of 0.5% says.
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    return t_quantile(risk, freedom) * sqrt(variance)


@lru_cache(maxsize=4096)
def t_quantile(risk: float, freedom: float) -> float:
    """The value exceeded by Student's t with a probability of `risk`, at most 0.5.

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


TIME, CPU = "time", "cpu"
"""Compared seconds of tasks: their durations, or their CPU time."""


def timed_tasks(tasks: Tasks, of: str = TIME) -> Table:
    """Seconds, starts and keys of tasks, a row for each row of `Recording.tasks`.

    ``seconds`` are durations, or CPU times; NaN if not known. ``key`` and ``position`` are hashes:
    of the whole key, and of what follows the first element of a key such as ``('x-token', 0, 1)``,
    which is the same in each run of a program whose tokens are not. Where two hashes collide, a
    task is paired with another of its function: `paired_seconds` says why that does no harm.
    """
    keys = tasks.key.tolist()
    positions = (key.partition(", ")[2] if key.startswith("(") else "" for key in keys)
    return Table(
        {
            "seconds": tasks.thread_cpu if of == CPU else seconds_of_tasks(tasks),
            "start": tasks.start,
            "key": np.fromiter(map(hash, keys), np.int64, len(keys)),
            "position": np.fromiter(map(hash, positions), np.int64, len(keys)),
        }
    )


def paired_seconds(before: Table, after: Table) -> tuple[FloatArray, FloatArray] | None:
    """The durations of each task of a function and of the counterpart.

    Tasks of one function may be meant to differ in size, so they are no sample of one distribution.
    The durations of one task in two runs are: if nothing changed, their difference is as likely to
    be positive as negative, whatever the size of the task. Student's test holds for such
    differences, and even errs on the safe side where they vary unequally, as one large task then
    dominates the change and the standard error alike (Efron 1969, Benjamini 1983).

    To pair the wrong tasks of a function does no harm either, as long as their durations do not
    decide it: the sum of the differences is the same, and they only vary more. So tasks are paired
    by key if the keys are the same in both runs, else by position, and what is then still alike
    by the order in which it started.

    Returns
    -------
    pair of arrays or None
        None if one recording has more tasks than the other.
    """
    if len(before) != len(after):
        return None
    sides = before, after
    for name in ("key", "position"):
        orders = [np.lexsort((side["start"], side[name])) for side in sides]
        if np.array_equal(before[name][orders[0]], after[name][orders[1]]):
            break
    else:
        orders = [np.argsort(side["start"], kind="stable") for side in sides]
    return before["seconds"][orders[0]], after["seconds"][orders[1]]


Totals = dict[str, Any]
"""Numbers by their names, and the verdict on them."""


class Comparison(NamedTuple):
    """Changes from one recording to another; unknown numbers are NaN.

    Attributes
    ----------
    functions : Table
        A row per function, the largest change of task time first. Columns:

        * ``function``.
        * Twice, as ``_before`` and ``_after``: ``tasks`` (count), ``seconds`` (task time), ``cpu``
          (CPU time as a share of task time, 0 to 1), ``memory`` (maximum of the bytes sampled while
          a task ran, see `task_memory`) and ``cached`` (peak of the cached results of the function,
          in the recording's metric).
        * ``change`` of the seconds; ``spread``, the seconds that variation between tasks explains.
        * ``verdict``: ``slower`` or ``faster`` if the change exceeds the spread, otherwise
          ``unchanged``; ``too few tasks`` if the spread is unknown; ``added`` or ``removed``.
    total : dict
        The same numbers for all functions together, and, before and after, ``wall`` (seconds of the
        recorded block), ``elapsed`` (seconds in which a computation ran) and ``others`` (share of
        the CPUs that other processes used in that time, 0 to 1; 0 if unknown).
    metrics, units : tuple of str
        Metric of cached results and its unit, before and after.
    of : {"time", "cpu"}
        Whether ``seconds`` are durations of tasks, or their CPU time.
    lines : Table
        A row per line of the program that built tasks, by the name of its file and its text, as
        lines move; in cells by the text, as cells are numbered anew: ``file``, ``line`` (the later
        one), ``text``, ``seconds_before`` and ``seconds_after`` (task time); the largest change
        first.
    """

    functions: Table
    total: Totals
    metrics: tuple[str, str]
    units: tuple[str, str]
    of: str = TIME
    lines: Table = NO_ROWS

    def __repr__(self) -> str:
        walls = f"{seconds(self.total['wall_before'])} → {seconds(self.total['wall_after'])}"
        return f"<Comparison: {walls}, {len(self.functions)} functions>"

    def regressions(self, above: float) -> list[str]:
        """Names of functions that are slower by more than a share.

        Parameters
        ----------
        above : float
            Share of the task time before: 0.1 is 10%.

        Returns
        -------
        list of str
            Functions with the verdict ``slower`` whose change exceeds the share; ``"total"`` first,
            if that holds for all functions together. Empty if `is_quicker` by that share: with more
            tasks at once, each task may take longer while the program takes less time.
        """
        if self.is_quicker(above):
            return []
        rows = [{"function": "total", **self.total}, *self.functions.to_dicts()]
        return [
            row["function"]
            for row in rows
            if row["verdict"] == "slower" and row["change"] > above * row["seconds_before"]
        ]

    def is_quicker(self, by: float) -> bool:
        """Whether the time in computations fell by more than a share, beyond chance."""
        total = self.total
        # With more tasks at once, computations take less time, but their tasks no less CPU time.
        if not total["seconds_before"] or self.of == CPU:
            return False
        # The time in computations varies no more than that of their tasks.
        share = by + total["spread"] / total["seconds_before"]
        return bool(total["elapsed_after"] < (1 - share) * total["elapsed_before"])


class _Side(NamedTuple):
    """Numbers of a function in a recording."""

    tasks: int = 0
    seconds: float = 0.0
    lasted: float = 0.0
    cpu: float = nan
    memory: float = nan
    cached: float = nan
    timed: Table = timed_tasks(Tasks.empty())


_MEASURES = ("tasks", "seconds", "cpu", "memory", "cached")


class _FunctionChange(NamedTuple):
    """A function in both recordings.

    Attributes
    ----------
    function : str
    before, after : _Side
    change : float
        Seconds.
    pairs : pair of arrays or None
        The seconds of each task before and after; None if tasks cannot be paired.
    variations : list of Variation
        Variations of the tasks before and after.
    """

    function: str
    before: _Side
    after: _Side
    change: float
    pairs: tuple[FloatArray, FloatArray] | None
    variations: list[Variation]

    @classmethod
    def of(cls, name: str, before: _Side, after: _Side) -> _FunctionChange:
        """Pair the tasks of a function."""
        pairs = paired_seconds(before.timed, after.timed)
        sides = [side for side in (before, after) if side.tasks]
        variations = [Variation.of(side.timed["seconds"]) for side in sides]
        return cls(name, before, after, after.seconds - before.seconds, pairs, variations)

    @property
    def has_known_variation(self) -> bool:
        return all(variation.size >= MIN_TASKS for variation in self.variations)

    def spread(self, risk: float) -> float:
        if not self.has_known_variation:
            return nan
        if self.pairs is not None:
            return half_width_of_pairs(*self.pairs, risk)
        return half_width(self.variations, risk)

    def verdict(self, risk: float) -> str:
        if not self.before.tasks:
            return "added"
        return verdict_of(self.change, self.spread(risk)) if self.after.tasks else "removed"


def compare_recordings(before: Recording, after: Recording, of: str = TIME) -> Comparison:
    """Compare two recordings, function by function: durations, or CPU time."""
    sides = _sides_of_functions(before, of), _sides_of_functions(after, of)
    names = dict.fromkeys((*sides[0], *sides[1]))
    changes = [
        _FunctionChange.of(name, *(side.get(name, _Side()) for side in sides)) for name in names
    ]
    changes.sort(key=lambda change: -abs(change.change))
    # A build fails if any of them is slower: each may err by chance only so rarely that all of
    # them together keep the confidence (Bonferroni). The total of one function is no other test.
    is_judged = (len(row.variations) > 1 and row.has_known_variation for row in changes)
    tests = sum(is_judged) + (len(changes) > 1)
    risk = (1 - CONFIDENCE) / max(1, tests)
    total = _total(changes, before, after, risk)
    metrics = before.metric, after.metric
    units = before.metric_unit, after.metric_unit
    lines = changes_of_lines(before, after)
    return Comparison(_table(changes, risk), total, metrics, units, of, lines)


def _sides_of_functions(recording: Recording, of: str) -> dict[str, _Side]:
    """Numbers of the functions of a recording, by name."""
    tasks = recording.tasks
    levels, _ = cached_levels(recording)
    memory = {}
    if len(recording.resources) or len(recording.processes):
        usage = task_memory(recording)
        memory = lookup(usage["function"], usage["max_memory"])
    timed, lasted = timed_tasks(tasks, of), seconds_of_tasks(tasks)
    sides = {}
    for name, rows in rows_by(tasks.function).items():
        timed_rows = rows[~np.isnan(timed["seconds"][rows])]
        of_function = timed.filter(timed_rows)
        sides[name] = _Side(
            tasks=len(rows),
            seconds=float(of_function["seconds"].sum()),
            lasted=float(np.nansum(lasted[timed_rows])),
            cpu=_share(tasks.thread_cpu[timed_rows], lasted[timed_rows]),
            memory=memory.get(name, nan),
            cached=levels[name].peak if name in levels else nan,
            timed=of_function,
        )
    return sides


def _share(parts: FloatArray, wholes: FloatArray) -> float:
    """The share of known parts in the sum of the wholes; NaN if no part is known."""
    is_known = ~np.isnan(parts)
    total = float(wholes[is_known].sum())
    return float(parts[is_known].sum()) / total if total else nan


def _table(changes: list[_FunctionChange], risk: float) -> Table:
    rows = (
        (
            row.function,
            *(getattr(side, name) for name in _MEASURES for side in (row.before, row.after)),
            *(row.change, row.spread(risk), row.verdict(risk)),
        )
        for row in changes
    )
    measures = {f"{name}_{when}": float for name in _MEASURES for when in ("before", "after")}
    table = table_of(rows, function=str, **measures, change=float, spread=float, verdict=str)
    units = {"seconds": "s", "cpu": "share", "memory": "bytes"}
    of_measures = {f"{name}_{when}": units[name] for name in units for when in ("before", "after")}
    return table.in_units(**of_measures, change="s", spread="s")


def _total(
    changes: list[_FunctionChange], before: Recording, after: Recording, risk: float
) -> Totals:
    total: Totals = {}
    for when, recording in (("before", before), ("after", after)):
        sides = [getattr(row, when) for row in changes]
        seconds = np.array([side.seconds for side in sides])
        lasted = np.array([side.lasted for side in sides])
        cpu = np.array([side.cpu for side in sides]) * lasted
        total[f"tasks_{when}"] = sum(side.tasks for side in sides)
        total[f"seconds_{when}"] = float(seconds.sum())
        total[f"cpu_{when}"] = _share(cpu, lasted)
        total[f"cached_{when}"] = (
            cached_levels(recording)[1].peak if len(recording.cached_results) else nan
        )
        total[f"wall_{when}"] = recording.stop - recording.start
        total[f"elapsed_{when}"] = seconds_computing(recording.computations)
        total[f"others_{when}"] = share_of_others(recording)
        resources = recording.resources
        memory = resources.memory + resources.memory_children
        total[f"memory_{when}"] = float(memory.max()) if len(memory) else nan
    total["change"] = total["seconds_after"] - total["seconds_before"]
    total["spread"] = _spread_of_total(changes, risk)
    total["verdict"] = verdict_of(total["change"], total["spread"])
    return total


def _spread_of_total(changes: list[_FunctionChange], risk: float) -> float:
    """The part of the total change explained by chance, in seconds; NaN if unknown.

    The differences of all paired tasks are judged as those of one function: one of which there is
    a single task counts with what it differs by, so that it never makes a change of the total
    that is more than its own share of the standard error.
    """
    paired = [row.pairs for row in changes if row.pairs is not None]
    before, after = np.concatenate([np.zeros((2, 0)), *map(np.array, paired)], axis=1)
    variations = [Variation.of(after - before)] if len(before) >= MIN_TASKS else []
    # Where the noise is not known, all of the change may be noise.
    unknown = 0.0 if variations else abs(float((after - before).sum()))
    for row in changes:
        if row.pairs is None:
            variations += row.variations if row.has_known_variation else []
            unknown += 0.0 if row.has_known_variation else abs(row.change)
    if len(before) >= MIN_TASKS and len(variations) == 1:
        return half_width_of_pairs(before, after, risk) + unknown
    return half_width(variations, risk) + unknown if variations else nan


def verdict_of(
    change: float,
    spread: float,
    more: str = "slower",
    less: str = "faster",
    unknown: str = "too few tasks",
) -> str:
    """Judge a change by the spread, NaN if unknown."""
    if isnan(spread):
        return unknown
    if abs(change) <= spread:
        return "unchanged"
    return more if change > 0 else less
