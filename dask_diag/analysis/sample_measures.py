"""What samples of stacks represent: seconds of CPU and of waiting, and when they were taken."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.selection import ALL_SAMPLES, Selection
from dask_diag.columns import Categorical, FloatArray
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.model.tables import Samples

__all__ = ["MEASURES", "measures", "not_sampled", "seconds_over_time", "totals"]

MEASURES = ("wall", "cpu", "waiting", "count")
"""The columns of `measures`. Wall seconds that are neither CPU nor waiting may be either."""


def measures(samples: Samples, share: FloatArray) -> FloatArray:
    """The `MEASURES` of each sample, a column each, times its share."""
    wall, cpu = samples.seconds, samples.cpu_seconds
    columns = wall, np.nan_to_num(cpu), np.nan_to_num(wall - cpu), samples.count
    return np.stack(columns, axis=1).astype(float) * share[:, np.newaxis]


def totals(recording: Recording, selection: Selection = ALL_SAMPLES) -> dict[str, float]:
    """The `MEASURES` of all samples together."""
    samples = recording.samples
    sums = measures(samples, selection.shares(samples)).sum(axis=0)
    return dict(zip(MEASURES, sums.tolist(), strict=True))


def not_sampled(recording: Recording, selection: Selection = ALL_SAMPLES) -> float:
    """Seconds of tasks in which no stack could be read."""
    samples = recording.samples
    seconds = samples.seconds * selection.shares(samples)
    return float(seconds[samples.node < 0].sum())


def seconds_over_time(recording: Recording) -> Table:
    """What the samples represent in each stretch of time between the edges of cycles.

    Returns
    -------
    Table
        ``start`` and ``stop`` (seconds), in order and without overlap; ``root``; ``function`` (of
        tasks);
        ``cpu``, ``waiting`` and ``unknown``: seconds per second, that is, how many threads at once.
    """
    samples = recording.samples
    edges = np.unique(np.concatenate([samples.start, samples.stop]))
    roots, functions = samples.root, samples.function
    stretches = max(len(edges) - 1, 0)
    length = samples.stop - samples.start
    lasting = length > 0
    rate = _by_kind(samples)[lasting] / length[lasting, np.newaxis]
    # A number for each root and function.
    count = max(len(functions.values), 1)
    codes = (roots.codes.astype(np.int64) * count + functions.codes)[lasting]
    # Each sample raises the rate where its cycle starts and lowers it where that stops.
    changes = np.zeros((stretches + 1, max(len(roots.values), 1) * count, 3))
    np.add.at(changes, (np.searchsorted(edges, samples.start[lasting]), codes), rate)
    np.add.at(changes, (np.searchsorted(edges, samples.stop[lasting]), codes), -rate)
    # What rounding leaves after the last cycle is not a thread.
    level = np.round(np.cumsum(changes, axis=0)[:stretches], 9)
    stretch, code = np.nonzero(level.any(axis=2))
    kinds = enumerate(("cpu", "waiting", "unknown"))
    return Table(
        {
            "start": edges[stretch],
            "stop": edges[stretch + 1] if stretches else edges[stretch],
            "root": Categorical(code // count, roots.values),
            "function": Categorical(code % count, functions.values),
            **{name: level[stretch, code, n] for n, name in kinds},
        }
    )


def _by_kind(samples: Samples) -> FloatArray:
    """CPU seconds, seconds of waiting, and seconds that may be either."""
    wall, cpu = samples.seconds, samples.cpu_seconds
    unknown = np.isnan(cpu)
    return np.stack(
        [np.where(unknown, 0, cpu), np.where(unknown, 0, wall - cpu), np.where(unknown, wall, 0)],
        axis=1,
    )
