"""Small computations like those that people run, for ``benchmarks.simulate``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["WORKLOADS"]


def qr() -> Any:
    """The documentation's example: QR of a tall matrix, and the product."""
    import dask.array as da

    q, r = da.linalg.qr(da.random.random((8_000, 400), chunks=(1_000, 400)))
    return q.dot(r).sum()


def groupby() -> Any:
    """Mean and standard deviation of groups of a table."""
    import dask.dataframe as dd
    import pandas as pd

    keys = np.arange(2_000_000) % 1_000
    table = pd.DataFrame({"key": keys, "value": np.random.default_rng(0).random(len(keys))})
    return dd.from_pandas(table, npartitions=40).groupby("key").value.agg(["mean", "std"])


def events() -> Any:
    """A histogram of jagged events, like those of NanoAOD files, added up in a tree."""
    from dask import delayed

    parts = [delayed(_histogram)(seed) for seed in range(120)]
    while len(parts) > 1:
        parts = [delayed(sum)(parts[n : n + 8]) for n in range(0, len(parts), 8)]
    return parts[0]


def _histogram(seed: int) -> Any:
    chance = np.random.default_rng(seed)
    counts = chance.poisson(3, 40_000)
    momenta = chance.exponential(30, counts.sum() + 1)
    leading = np.maximum.reduceat(momenta, np.concatenate([[0], np.cumsum(counts)[:-1]]))
    return np.histogram(leading[leading > 20], bins=100, range=(0, 300))[0]


def image() -> Any:
    """Three filters of an image, whose chunks overlap."""
    import dask.array as da

    pixels = da.random.random((3_000, 3_000), chunks=(250, 250))
    for _ in range(3):
        pixels = pixels.map_overlap(_smooth, depth=2)
    return pixels.mean()


def _smooth(block: Any) -> Any:
    neighbours = (np.roll(block, shift, axis) for shift in (1, -1) for axis in (0, 1))
    return (block + sum(neighbours)) / 5


def wide() -> Any:
    """Many chunks, of which each is used twice."""
    import dask.array as da

    numbers = da.random.random((2_000, 1_000), chunks=(50, 50))
    return ((numbers + 1) * 2 - numbers.mean(axis=0)).std(axis=1)


def many() -> Any:
    """20,000 tasks that do next to nothing."""
    from dask.delayed import Delayed

    graph: dict[Any, Any] = {("task", n): (abs, n) for n in range(20_000)}
    return Delayed("total", {**graph, "total": (len, list(graph))})


def climatology() -> Any:
    """The mean of each month, of years of a grid."""
    import dask.array as da

    grid = da.random.random((1_460, 90, 180), chunks=(20, 30, 60))
    return da.stack([grid[month::12].mean(axis=0) for month in range(12)])


WORKLOADS: dict[str, Callable[[], Any]] = {
    function.__name__: function
    for function in (qr, groupby, events, image, wide, many, climatology)
}
