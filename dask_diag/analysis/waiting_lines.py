"""The lines of code that computed longest, and those that waited longest: a wait is not hot."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.call_tree import hottest_lines
from dask_diag.analysis.sample_measures import measures
from dask_diag.analysis.selection import ALL_SAMPLES, Selection
from dask_diag.analysis.source_paths import is_standard_library
from dask_diag.columns import BoolArray, Categorical, IntArray
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table

__all__ = ["computing_lines", "waiting_lines"]

_WAITING = 2
_ROUNDING = 1e-9


def computing_lines(
    recording: Recording, count: int = 10, selection: Selection = ALL_SAMPLES
) -> Table:
    """The lines with most self time that was not spent waiting, the hottest first.

    The columns are those of `dask_diag.analysis.call_tree.hottest_lines`. Where it is not known
    whether a line waited, it counts as computing.
    """
    lines = hottest_lines(recording, len(recording.frames), selection)
    if not len(lines):
        return lines
    hot = lines["wall"] - lines["waiting"]
    order = np.argsort(-hot, kind="stable")[:count]
    return lines.rows(order[hot[order] > _ROUNDING * lines["wall"].sum()])


def waiting_lines(
    recording: Recording, count: int = 10, selection: Selection = ALL_SAMPLES
) -> Table:
    """The lines that waited longest, the longest first.

    A wait is in ``Condition.wait`` or the like, whatever it is for: it is named by the innermost
    line outside Python's standard library.

    Parameters
    ----------
    recording : Recording
    count : int
        How many at most.
    selection : Selection, optional

    Returns
    -------
    Table
        ``name`` (function), ``file``, ``line``; ``waiting`` (seconds) and ``inner``, the name of
        the innermost call in which most of them passed.
    """
    samples = recording.samples
    seconds = measures(samples, selection.shares(samples))[:, _WAITING]
    rows = np.flatnonzero((samples.node >= 0) & (seconds > 0))
    if not len(rows):
        return Table({})
    caller = _callers_outside(recording)
    frames, stacks = recording.frames, recording.call_tree
    sums: dict[tuple[str, str, int], dict[str, float]] = {}
    for node, waited in zip(samples.node[rows].tolist(), seconds[rows].tolist(), strict=True):
        frame, inner = int(stacks.frame[caller[node]]), int(stacks.frame[node])
        line = frames.name[frame], frames.file[frame], int(frames.line[frame])
        of_line = sums.setdefault(line, {})
        name = frames.name[inner]
        of_line[name] = of_line.get(name, 0.0) + waited
    longest = sorted(sums, key=lambda line: -sum(sums[line].values()))[:count]
    columns = zip(*longest, strict=True)
    names, files, lines = (list(column) for column in columns)
    return Table(
        {
            "name": Categorical.of(names),
            "file": Categorical.of(files),
            "line": np.array(lines, dtype=np.int64),
            "waiting": np.array([sum(sums[line].values()) for line in longest]),
            "inner": Categorical.of(
                max(sums[line], key=sums[line].__getitem__) for line in longest
            ),
        }
    )


def _callers_outside(recording: Recording) -> IntArray:
    """Of each node the innermost at or above it that is outside the standard library, or itself."""
    frames, stacks = recording.frames, recording.call_tree
    standard: BoolArray = np.array(
        [is_standard_library(file) for file in frames.file.values], dtype=bool
    )[frames.file.codes]
    is_inside = standard[stacks.frame].tolist()
    chosen: list[int] = []
    for node, above in enumerate(stacks.parent.tolist()):
        chosen.append(chosen[above] if is_inside[node] and above >= 0 else -1)
        if not is_inside[node]:
            chosen[node] = node
    nodes = np.array(chosen, dtype=np.int64)
    return np.where(nodes < 0, np.arange(len(nodes)), nodes)
