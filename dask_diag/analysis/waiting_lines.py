"""The lines of code that computed longest, and those that waited longest: a wait is not hot."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.call_tree import distinct_frames, hottest_lines
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
    frames, stacks = recording.frames, recording.call_tree
    node, waited = samples.node[rows], seconds[rows]
    line_of_frame, frame_of_line = distinct_frames(frames, ("name", "file", "line"))
    line = line_of_frame[stacks.frame[_callers_outside(recording)[node]]]
    inner = frames.name.codes[stacks.frame[node]]
    of_line = np.bincount(line, waited, len(frame_of_line))
    longest = np.argsort(-of_line, kind="stable")[:count]
    longest = longest[of_line[longest] > 0]
    # One line may wait in several ways: the one with most seconds is named.
    of_inner = (np.bincount(inner[line == one], waited[line == one]) for one in longest)
    shown = frames.rows(frame_of_line[longest])
    return Table(
        {
            **{name: shown[name] for name in ("name", "file", "line")},
            "waiting": of_line[longest],
            "inner": Categorical([sums.argmax() for sums in of_inner], frames.name.values),
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
