"""The line of each function in which most of its time passed."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.call_tree import hottest_lines
from dask_diag.columns import IntArray
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table

__all__ = ["lines_of_nodes"]


def lines_of_nodes(recording: Recording, nodes: Table) -> IntArray:
    """For each node of a tree the line of its function with most time, with what it called.

    Parameters
    ----------
    recording : Recording
    nodes : Table
        As `dask_diag.analysis.call_tree.tree` returns them.

    Returns
    -------
    array of int
        0 where no line is recorded. All calls of a function have the same one.
    """
    frames = recording.frames
    starts = {
        (row["name"], row["file"], row["line"]): row["first_line"] for row in frames.to_dicts()
    }
    longest: dict[tuple[str, str, int], int] = {}
    rows = hottest_lines(recording, len(frames)).to_dicts()
    for row in sorted(rows, key=lambda row: -row["total_wall"]):
        name, file, line = row["name"], row["file"], row["line"]
        longest.setdefault((name, file, starts[name, file, line]), line)
    columns = (nodes[name].tolist() for name in ("name", "file", "first_line"))
    lines = [longest.get(function, 0) for function in zip(*columns, strict=True)]
    return np.array(lines, dtype=np.int64)
