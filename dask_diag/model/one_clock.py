"""Recordings of several runs on the clock of the first.

The clock of a recording starts with the machine, as a rule. So that of another machine, or of the
same one started again, counts from another moment: what ties both together is the time of day.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from dask_diag.model.combine_resources import runs_of
from dask_diag.model.measurements import Measurements
from dask_diag.model.tables import TABLES

__all__ = ["on_one_clock"]

M = TypeVar("M", bound=Measurements)

_ADJUSTED = 60.0
"""Seconds by which the time of day may have been set while one clock went on."""


def on_one_clock(parts: Sequence[M]) -> tuple[list[M], list[str]]:
    """The parts with times of the first one's clock, and a notice if any had another."""
    first = parts[0]
    moved = [_later(part, _offset(first, part)) for part in parts]
    others = sum(part is not other for part, other in zip(parts, moved, strict=True))
    notice = (
        f"{others} of {len(parts)} recordings have another clock, as after a restart of the "
        "machine; their times are placed by the time of day"
    )
    return moved, [notice] if others else []


def _offset(first: Measurements, part: Measurements) -> float:
    """Seconds to add to the times of a part; 0 if it has the same clock, or none is known."""
    # A time of day less a time of the clock is an epoch, so two epochs differ by what one clock is
    # ahead of the other.
    offset = part.epoch - first.epoch
    is_known = bool(first.epoch and part.epoch)
    is_same_run = bool(runs_of(part)) and runs_of(part) == runs_of(first)
    return offset if is_known and not is_same_run and abs(offset) > _ADJUSTED else 0.0


def _later(part: M, seconds: float) -> M:
    if not seconds:
        return part
    tables: dict[str, Any] = {}
    for name, kind in TABLES.items():
        table = getattr(part, name)
        columns = {column: table[column] for column in table.columns}
        # The schema says which columns are times: durations, in seconds as well, stay.
        times = [column for column, facts in kind.schema.items() if facts.is_time]
        tables[name] = kind(columns | {column: table[column] + seconds for column in times})
    return replace(
        part,
        start=part.start + seconds,
        stop=part.stop + seconds,
        epoch=part.epoch - seconds,
        **tables,
    )
