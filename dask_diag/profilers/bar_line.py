"""The line of a progress bar: how far a computation is, how long it still takes, its CPU share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dask.utils import format_time

from dask_diag.formatting import seconds

__all__ = ["Bar", "bar_line", "fitted"]

_LEAST_DONE = 0.05
"""Share of the tasks below which nothing is said of the time that is left."""
_LEAST_PASSED = 1.0
"""Seconds before which nothing is said of the time that is left."""


class Bar(NamedTuple):
    """How far a computation is.

    Attributes
    ----------
    done, total : int
        Tasks.
    elapsed : float
        Seconds.
    share : float or None
        The CPU share of the tasks that are done, from 0 to 1.
    """

    done: int
    total: int
    elapsed: float
    share: float | None

    @property
    def part(self) -> float:
        """How much is done, from 0 to 1."""
        return min(self.done / self.total, 1.0) if self.total else 0.0


def bar_line(bar: Bar, width: int, has_ended: bool) -> str:
    """The line; of what has ended as dask's own progress bar writes it."""
    drawn = f"[{'#' * int(width * bar.part):<{width}}]"
    percent = f"{int(100 * bar.part)}%"
    if has_ended:
        cpu = f" ({bar.share:.0%} cpu)" if bar.share is not None else ""
        return f"{drawn} | {percent} Completed | {format_time(bar.elapsed)}{cpu}"
    cpu = f" | {bar.share:.0%} CPU" if bar.share is not None else ""
    return (
        f"{drawn} {percent} | {bar.done:,}/{bar.total:,} | "
        f"{seconds(bar.elapsed)}{_time_left(bar)}{cpu}"
    )


def fitted(line: Callable[[int], str], width: int, columns: int) -> str:
    """The line with a bar of this width, or of less where a terminal has too few columns for it."""
    surplus = len(line(width)) - columns + 1
    return line(max(0, width - max(0, surplus)))


def _time_left(bar: Bar) -> str:
    """As long again for each task as for those that are done; nothing while these are too few."""
    if bar.part < _LEAST_DONE or bar.elapsed < _LEAST_PASSED or bar.done >= bar.total:
        return ""
    return f", about {seconds(bar.elapsed * (bar.total - bar.done) / bar.done)} left"
