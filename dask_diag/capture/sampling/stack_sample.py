"""A sample of a task's stack, as it is sent between processes: text and numbers only."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Line", "StackSample"]


class Line(NamedTuple):
    """A line of code; `first` is where its function starts. Functions in C have only a name."""

    name: str
    file: str = ""
    line: int = 0
    first: int = 0


StackSample = tuple[float, tuple[Line, ...], float, float, float]
"""When, which lines (none: not sampled), seconds, CPU seconds, and the number of samples."""
