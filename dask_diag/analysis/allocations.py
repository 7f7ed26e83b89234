"""Who allocated the memory that was in use near the peak of a block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.grouping import rows_by
from dask_diag.errors import DiagnosticError
from dask_diag.model.recording import Recording, expect_recording
from dask_diag.model.table import Table
from dask_diag.model.tables import Allocations

__all__ = ["PeakSnapshot", "peak_allocations", "peak_snapshots"]


def peak_allocations(recording: Recording, by: str = "function") -> Table:
    """What allocated the memory that was in use near the peak, most bytes first.

    Parameters
    ----------
    recording : Recording
        Of ``MemorySampler(trace=True)`` or ``record(trace_memory=True)``.
    by : {"function", "line"}, optional

    Returns
    -------
    Table
        ``label`` (the block; empty of a whole recording), ``function``, ``file``; by line also
        ``line`` and ``code``; ``bytes``, ``blocks``, and ``near``: what was in use when this was
        read, as a share of the peak of what is traced.

    Raises
    ------
    DiagnosticError
        If `by` is none of these.
    """
    expect_recording(recording)
    if by not in ("function", "line"):
        raise DiagnosticError(f"by: expected 'function' or 'line', found {by!r}")
    table = recording.allocations
    names = ("label", "function", "file", *(("line", "code") if by == "line" else ()))
    sums: dict[tuple[object, ...], list[int]] = {}
    for index, group in enumerate(zip(*(table[name].tolist() for name in names), strict=True)):
        sums.setdefault(group, []).append(index)
    rows = list(sums.values())
    first = np.array([group[0] for group in rows], dtype=np.int64)
    size = np.array([table.bytes[group].sum() for group in rows], dtype=float)
    blocks = np.array([table.blocks[group].sum() for group in rows], dtype=np.int64)
    order = np.lexsort((-size, table.label.codes[first])) if rows else first
    chosen = table.rows(first[order])
    columns = {name: chosen[name] for name in names}
    near = chosen.memory / chosen.peak
    return Table({**columns, "bytes": size[order], "blocks": blocks[order], "near": near})


class PeakSnapshot(NamedTuple):
    """The snapshot of one block: when it was taken, how near the peak, and what was traced."""

    label: str
    time: float
    memory: float
    peak: float
    traced: float

    @property
    def near(self) -> float:
        """What was in use then as a share of the peak."""
        return self.memory / self.peak


def peak_snapshots(recording: Recording) -> Iterator[PeakSnapshot]:
    """That of each block."""
    table: Allocations = recording.allocations
    for label, rows in rows_by(table.label).items():
        part = table.rows(rows)
        yield PeakSnapshot(
            label,
            float(part.time[0]),
            float(part.memory[0]),
            float(part.peak[0]),
            float(part.bytes.sum()),
        )
