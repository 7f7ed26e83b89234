"""Sums over tasks by activity, and by any columns of tasks beside it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dask_diag.analysis.grouping import distinct_pairs
from dask_diag.columns import BoolArray, Categorical
from dask_diag.model.recording import Recording

__all__ = ["Division", "Group", "Sum", "added_up", "sums_of_groups"]

Group = tuple[Hashable, ...]
"""A value for each column that is divided by."""
Sum = tuple[Group, str, float]
"""A group, an activity, and an amount. One group and activity may come several times."""


@dataclass(frozen=True)
class Division:
    """What amounts are divided by, and whose are counted.

    Parameters
    ----------
    recording : Recording
    by : tuple of str
        Columns of `Recording.tasks`.
    functions : collection of str, optional
        Only tasks of these functions are counted; what no task had is then left out.
    with_labels : bool
        Whether seconds of metered code go by its label. If not, they are divided by what tasks did
        in them, as all others are.
    """

    recording: Recording
    by: tuple[str, ...] = ()
    functions: Collection[str] | None = None
    with_labels: bool = True

    @cached_property
    def groups(self) -> Categorical:
        """The group of each task."""
        tasks = self.recording.tasks
        codes: npt.NDArray[np.integer] = np.zeros(len(tasks), dtype=np.int64)
        values: list[Group] = [()]
        for name in self.by:
            labels: Categorical = tasks[name]
            # Only the pairs that occur: most of many functions and workers may not.
            groups, label, codes = distinct_pairs(codes, labels.codes)
            pairs = zip(groups.tolist(), label.tolist(), strict=True)
            values = [(*values[group], labels.values[code]) for group, code in pairs]
        return Categorical(codes, values)

    @cached_property
    def counted(self) -> BoolArray:
        """Which tasks are counted: those known to have started, of the functions."""
        tasks = self.recording.tasks
        started = ~np.isnan(tasks.start)
        if self.functions is None:
            return started
        return started & tasks.function.is_in(self.functions)


def sums_of_groups(
    groups: Categorical, amounts: npt.NDArray[np.floating], activity: str
) -> Iterator[Sum]:
    """The sum of the amounts, for each group that has any."""
    sums = np.bincount(groups.codes, amounts)
    for code in np.unique(groups.codes).tolist():
        yield groups.values[code], activity, float(sums[code])


def added_up(sums: Iterable[Sum]) -> dict[tuple[Group, str], float]:
    """One amount for each group and activity."""
    totals: dict[tuple[Group, str], float] = {}
    for group, activity, amount in sums:
        totals[group, activity] = totals.get((group, activity), 0.0) + amount
    return totals
