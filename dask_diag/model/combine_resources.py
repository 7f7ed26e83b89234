"""Resource samples of several recordings as one series: in order of time, no time twice.

All resource profilers of a run sample the same tree of processes. So time that one has sampled is
not taken from another; those of different runs have nothing to do with each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray, Values
from dask_diag.formatting import counted
from dask_diag.model.measurements import Measurements
from dask_diag.model.table import Table, stack

__all__ = ["combined_resources", "runs_of"]

T = TypeVar("T", bound=Table)

_PAUSE = 2.0
"""Between samples that are so many times the usual interval apart nothing was sampled."""


def combined_resources(parts: Sequence[Measurements]) -> tuple[Table, Table, list[str]]:
    """`Recording.resources` and `Recording.processes` of all parts, and notices."""
    covers: list[_Cover] = []
    runs = [set(runs_of(part)) for part in parts]
    resources, processes = [], []
    for index, part in enumerate(parts):
        own = _Cover.of(part)
        earlier = [
            covers[other]
            for other in range(index)
            if covers[other].overlaps(own) and not runs[index].isdisjoint(runs[other])
        ]
        of_samples, of_processes = _sampled_before(part, own, earlier)
        resources.append(part.resources.rows(~of_samples))
        processes.append(part.processes.rows(~of_processes))
        covers.append(own.without(part.resources["time"][of_samples]) if earlier else own)
    resources, processes = _without_copies(resources), _without_copies(processes)
    notices = [
        *_notices_on_rows_left_out(parts, resources, processes),
        *_notices_on_different_runs(parts, resources),
    ]
    return _in_order(stack(resources)), _in_order(stack(processes)), notices


def runs_of(part: Measurements) -> tuple[str, ...]:
    """The ids of the runs that a recording is of; none if that is not known."""
    return tuple(filter(None, part.run_id.split(",")))


class _Cover(NamedTuple):
    """The stretches of time that samples represent: each the time since the one before it."""

    starts: FloatArray
    stops: FloatArray

    @classmethod
    def of(cls, part: Measurements) -> _Cover:
        times = np.sort(part.resources["time"]) if len(part.resources) else np.zeros(0)
        readings = np.sort(part.processes["time"]) if len(part.processes) else np.zeros(0)
        before = np.append(-np.inf, times[:-1]) if len(times) else times
        lasted = times - before
        # Before the first one there was a pause, whatever is usual.
        usual = np.median(lasted[1:]) if len(times) > 1 else 0.0
        # Whenever sampling begins, the processes are read at once.
        resumed = np.append(readings, np.inf)[np.searchsorted(readings, before, "right")]
        starts = np.where(lasted > _PAUSE * usual, np.minimum(resumed, times), before)
        return cls(starts, times)

    def without(self, times: FloatArray) -> _Cover:
        """The same without the samples of these times."""
        stay = ~np.isin(self.stops, times)
        return _Cover(self.starts[stay], self.stops[stay])

    def overlaps(self, other: _Cover) -> bool:
        """Whether the two have any time in common, pauses included."""
        return bool(
            len(self.stops)
            and len(other.stops)
            and self.starts[0] <= other.stops[-1]
            and other.starts[0] <= self.stops[-1]
        )

    def has(self, moments: FloatArray) -> BoolArray:
        """Whether each moment is in one of the stretches."""
        index = np.searchsorted(self.stops, moments)
        starts = np.append(self.starts, np.inf)
        return starts[index] <= moments


def _sampled_before(
    part: Measurements, own: _Cover, others: Sequence[_Cover]
) -> tuple[BoolArray, BoolArray]:
    """Which rows of a part's resources, and which of its processes, are of time that others have.

    The memory of processes goes with the sample in whose stretch of time it was read; after the
    last sample, with that one.
    """
    samples = np.zeros(len(part.resources), dtype=bool)
    processes = np.zeros(len(part.processes), dtype=bool)
    if not others:
        return samples, processes
    times = part.resources["time"]
    middle = (own.starts[np.searchsorted(own.stops, times)] + times) / 2
    samples = np.logical_or.reduce([other.has(middle) for other in others])
    if len(processes):
        # Where there are others, this part has samples: see `_Cover.overlaps`.
        order = np.argsort(times)
        index = np.searchsorted(times[order], part.processes["time"])
        processes = samples[order[np.minimum(index, len(times) - 1)]]
    return samples, processes


def _without_copies(tables: Sequence[T]) -> list[T]:
    """The tables without the rows that an earlier one has, as of a file that was copied.

    So nothing is counted twice of runs that are not known either, nor of a child that was forked
    with the samples of its parent.
    """
    filled = [table for table in tables if len(table)]
    times = np.concatenate([np.zeros(0), *(table["time"] for table in filled)])
    part = np.repeat(np.arange(len(filled)), [len(table) for table in filled])
    order = np.lexsort((part, times))
    at_once = (np.diff(times[order]) == 0) & (np.diff(part[order]) != 0)
    if not at_once.any():
        return list(tables)
    together = stack(filled)
    bits = [_bits_of(together[name]) for name in together.columns]
    order = np.lexsort((part, *bits))
    ordered = [column[order] for column in bits]
    changes = np.logical_or.reduce([column[1:] != column[:-1] for column in ordered])
    new = np.append(True, changes)
    first_part = part[order][new][np.cumsum(new) - 1]
    copied = np.empty(len(part), dtype=bool)
    copied[order] = part[order] != first_part
    masks = iter(np.split(~copied, np.cumsum([len(table) for table in filled])[:-1]))
    return [table.rows(next(masks)) if len(table) else table for table in tables]


def _bits_of(column: Values) -> IntArray:
    """Numbers that are equal where the values are the same, those that are not known too."""
    if isinstance(column, Categorical):
        return column.codes.astype(np.int64)
    return np.asarray(column, float).view(np.int64)


def _in_order(table: T) -> T:
    if not len(table) or (np.diff(table["time"]) >= 0).all():
        return table
    return table.rows(np.argsort(table["time"], kind="stable"))


def _notices_on_rows_left_out(
    parts: Sequence[Measurements], resources: Sequence[Table], processes: Sequence[Table]
) -> Iterator[str]:
    left_out = (
        (sum(len(part.resources) for part in parts) - sum(map(len, resources)), "resource"),
        (sum(len(part.processes) for part in parts) - sum(map(len, processes)), "process"),
    )
    counts = [counted(number, f"{kind} sample") for number, kind in left_out if number]
    if counts:
        yield f"left out {' and '.join(counts)}: another recording has samples of that time"


def _notices_on_different_runs(
    parts: Sequence[Measurements], resources: Sequence[Table]
) -> Iterator[str]:
    stops: dict[tuple[str, ...], float] = {}
    for start, stop, runs in sorted(
        (float(table["time"].min()), float(table["time"].max()), runs_of(part))
        for part, table in zip(parts, resources, strict=True)
        if len(table)
    ):
        if any(end > start and set(runs).isdisjoint(others) for others, end in stops.items()):
            yield (
                "resource samples of different runs overlap in time: each row is of one run, not "
                "of all together"
            )
            return
        stops[runs] = max(stop, stops.get(runs, stop))
