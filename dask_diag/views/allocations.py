"""In words, what allocated the memory that was in use near the peak."""

from __future__ import annotations

from collections.abc import Iterator

from dask_diag.analysis.allocations import PeakSnapshot, peak_allocations, peak_snapshots
from dask_diag.analysis.source_paths import short_path
from dask_diag.formatting import percent, size
from dask_diag.model.recording import Recording
from dask_diag.views.escaping import shown
from dask_diag.views.text import Record

__all__ = ["TRACING_COST", "allocation_lines", "allocation_place", "nearness", "point_of"]

TRACING_COST = "tracemalloc was on: code that makes many small objects ran 2 to 12 times slower"
_SHOWN = 3
_SMALLEST_SHARE = 0.01
_AT_PEAK = 0.9
"""Share of the peak from which on a snapshot is said to be of it."""


def allocation_lines(recording: Recording) -> Iterator[tuple[str, str]]:
    """A labelled line for each block, and one that says what tracing costs."""
    rows = peak_allocations(recording, by="line").to_dicts()
    snapshots = list(peak_snapshots(recording))
    for snapshot in snapshots:
        largest = [
            f"{size(row['bytes'])} {allocation_place(row)}"
            for row in rows
            if row["label"] == snapshot.label and row["bytes"] >= _SMALLEST_SHARE * snapshot.traced
        ]
        block = f" in {shown(snapshot.label, 24)}" if snapshot.label else ""
        more = ", …" if len(largest) > _SHOWN else ""
        yield (
            f"Allocated at {point_of(snapshot)}{block}",
            f"{', '.join(largest[:_SHOWN])}{more}; {nearness(snapshot)}",
        )
    if snapshots:
        yield "Tracing", TRACING_COST


def point_of(snapshot: PeakSnapshot) -> str:
    """The peak, or what share of it a snapshot was taken at, at least."""
    return "peak" if snapshot.near >= _AT_PEAK else f"{percent(snapshot.near)} of peak"


def allocation_place(row: Record) -> str:
    """The function and line of a row of `peak_allocations`."""
    name = shown(row["function"] or "unknown function", 40)
    path = shown(short_path(row["file"]), 40)
    return f"{name} ({path}:{row['line']})" if path else name


def nearness(snapshot: PeakSnapshot) -> str:
    """How near the peak a snapshot was taken, and how much of the memory was traced."""
    return (
        f"{size(snapshot.traced)} traced, at least {percent(snapshot.near)} of the peak of what is "
        "traced"
    )
