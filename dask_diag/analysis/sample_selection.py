"""Which samples are asked for, what they stand for, and when they were taken."""

from __future__ import annotations

from numbers import Real

import numpy as np

from dask_diag.analysis.functions import expect_functions
from dask_diag.columns import Array, Categorical
from dask_diag.errors import DiagnosticError
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.model.tables import Samples

__all__ = [
    "MEASURES",
    "distinct_pairs",
    "measures",
    "not_sampled",
    "samples_of",
    "seconds_over_time",
    "shares",
]

MEASURES = ("wall", "cpu", "waiting", "count")
"""What is told of samples. Seconds that are neither CPU nor waiting are not known to be either."""


def samples_of(recording: Recording) -> Samples:
    """The samples of a recording."""
    return recording.samples


def shares(
    samples: Table,
    start: float | None = None,
    stop: float | None = None,
    function: str | None = None,
    key: object = None,
) -> Array:
    """How much of each sample is asked for, from 0 to 1: as its cycle is in the range.

    Raises
    ------
    DiagnosticError
        If no sample has that key, or is of that function, or a time is no number.
    """
    for name, time in (("start", start), ("stop", stop)):
        if time is not None and (isinstance(time, bool) or not isinstance(time, Real)):
            raise DiagnosticError(
                f"{name}: expected a time in seconds of the recording, found {time!r}"
            )
    begin = samples["start"] if start is None else np.maximum(samples["start"], start)
    end = samples["stop"] if stop is None else np.minimum(samples["stop"], stop)
    length = samples["stop"] - samples["start"]
    inside = np.where(length > 0, (end - begin) / np.where(length > 0, length, 1.0), end >= begin)
    share: Array = np.clip(inside, 0.0, 1.0)
    if function is not None:
        expect_functions([function], samples["function"], "function")
        share = share * samples["function"].where(function)
    return share if key is None else share * _of_key(samples, str(key))


def _of_key(samples: Table, key: str) -> Array:
    """Which samples have that key."""
    has_it: Array = samples["key"].where(key)
    if not has_it.any():
        raise DiagnosticError(
            f"key: no sample has {key!r}. Only tasks longer than a quarter of the cycle are "
            "attributed individually; shorten it with SamplingProfiler(cycle=...)"
        )
    return has_it


def distinct_pairs(first: Array, second: Array) -> tuple[Array, Array, Array]:
    """The pairs that occur, in order, as two arrays, and which of them each row is."""
    # One number for a pair sorts ten times as fast as rows of two.
    left, left_code = np.unique(first, return_inverse=True)
    right, right_code = np.unique(second, return_inverse=True)
    base = max(len(right), 1)
    codes, row = np.unique(left_code * base + right_code, return_inverse=True)
    return left[codes // base], right[codes % base], row


def measures(samples: Table, share: Array) -> Array:
    """The `MEASURES` of each sample, a column each, times its share."""
    wall, cpu = samples["seconds"], samples["cpu_seconds"]
    columns = wall, np.nan_to_num(cpu), np.nan_to_num(wall - cpu), samples["count"]
    return np.stack(columns, axis=1).astype(float) * share[:, np.newaxis]


def not_sampled(
    recording: Recording,
    start: float | None = None,
    stop: float | None = None,
    function: str | None = None,
    key: object = None,
) -> float:
    """Seconds of tasks in which no stack could be read."""
    samples = samples_of(recording)
    share = shares(samples, start, stop, function, key)
    return float(np.sum((samples["seconds"] * share)[samples["node"] < 0]))


def seconds_over_time(recording: Recording) -> Table:
    """What the samples stand for in each stretch of time between the edges of cycles.

    Returns
    -------
    Table
        ``start`` and ``stop`` (seconds), in order and without overlap; ``function`` (of tasks);
        ``cpu``, ``waiting`` and ``unknown``: seconds per second, that is, how many threads at once.
    """
    samples = samples_of(recording)
    edges = np.unique(np.concatenate([samples["start"], samples["stop"]]))
    functions: Categorical = samples["function"]
    stretches, kinds = max(len(edges) - 1, 0), len(functions.values)
    rates = np.zeros((stretches + 1, kinds, 3))
    length = samples["stop"] - samples["start"]
    lasting = length > 0
    rate = _by_kind(samples)[lasting] / length[lasting, np.newaxis]
    codes = functions.codes[lasting]
    np.add.at(rates, (np.searchsorted(edges, samples["start"][lasting]), codes), rate)
    np.add.at(rates, (np.searchsorted(edges, samples["stop"][lasting]), codes), -rate)
    # What rounding leaves over where all ends is not a thread.
    level = np.round(np.cumsum(rates, axis=0)[:stretches], 9)
    where, who = np.nonzero(level.any(axis=2))
    return Table(
        {
            "start": edges[where],
            "stop": edges[where + 1] if stretches else edges[where],
            "function": Categorical(who, functions.values),
            **{name: level[where, who, n] for n, name in enumerate(("cpu", "waiting", "unknown"))},
        }
    )


def _by_kind(samples: Table) -> Array:
    """CPU seconds, seconds of waiting, and seconds that may be either."""
    wall, cpu = samples["seconds"], samples["cpu_seconds"]
    unknown = np.isnan(cpu)
    return np.stack(
        [np.where(unknown, 0, cpu), np.where(unknown, 0, wall - cpu), np.where(unknown, wall, 0)],
        axis=1,
    )
