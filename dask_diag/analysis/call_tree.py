"""Where in the code the tasks' time went: as a tree of calls, and line by line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dask_diag.analysis.sample_selection import (
    MEASURES,
    distinct_pairs,
    measures,
    samples_of,
    shares,
)
from dask_diag.analysis.tree_arrays import depths, preorder, sums_below
from dask_diag.columns import Array, Categorical
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table

__all__ = ["NOT_SAMPLED", "hottest_lines", "placed", "tree"]

NOT_SAMPLED = "(not sampled)"
"""The name of what stands for time in which no stack could be read."""
EVERYTHING = "all tasks"
_ROOT = -1


def tree(
    recording: Recording,
    start: float | None = None,
    stop: float | None = None,
    function: str | None = None,
    key: object = None,
) -> Table:
    """The calls that were seen, as a tree: a node per function and chain of callers.

    Lines of one function are one node. A cycle that is partly in the range counts by that part.

    Parameters
    ----------
    recording : Recording
    start, stop : float, optional
        The range of time, in the recording's seconds.
    function : str, optional
        Only tasks of this function.
    key : object, optional
        Only the task of this key, as it is or as text; ``""`` for those not told apart.

    Returns
    -------
    Table
        A row per node, each after its caller and before its caller's next callee; the first is
        all tasks, below it are the functions of tasks. ``parent`` (position, -1 of the first),
        ``depth``, ``end`` (position after all that it called), ``name``, ``file``, ``first``
        (line where it starts), ``wall``, ``cpu``, ``waiting`` (seconds of its own) and ``count``
        (samples), and with what it called ``total_wall``, ``total_cpu``, ``total_waiting``,
        ``total_count``. Callees are in order of their ``total_wall``.
    """
    return placed(recording, start, stop, function, key)[0]


def placed(
    recording: Recording,
    start: float | None = None,
    stop: float | None = None,
    function: str | None = None,
    key: object = None,
) -> tuple[Table, Array]:
    """The tree, and for each row of `Recording.samples` its node (-1: not asked for)."""
    samples = samples_of(recording)
    share = shares(samples, start, stop, function, key)
    asked = np.flatnonzero(share > 0)
    kind_of_frame, frame_of_kind = _distinct(recording.frames, ("name", "file", "first_line"))
    parent, kind, node_of_asked = _grown(recording, samples.rows(asked), kind_of_frame)
    own = np.zeros((len(parent), len(MEASURES)))
    np.add.at(own, node_of_asked, measures(samples, share)[asked])
    depth = depths(parent.tolist())
    totals = sums_below(parent, depth, own)
    last = kind == len(frame_of_kind)
    position, end = preorder(parent, depth, last, -totals[:, 0])
    order = np.argsort(position)
    names, files, first = _described(recording, kind[order], frame_of_kind)
    nodes = Table(
        {
            "parent": np.concatenate([[_ROOT], position[parent[order][1:]]]),
            "depth": depth[order],
            "end": end[order],
            "name": names,
            "file": files,
            "first_line": first,
            **_columns(own[order], totals[order]),
        }
    )
    node = np.full(len(samples), -1, dtype=np.int64)
    node[asked] = position[node_of_asked]
    return nodes, node


def hottest_lines(
    recording: Recording,
    count: int = 10,
    start: float | None = None,
    stop: float | None = None,
    function: str | None = None,
    *,
    key: object = None,
) -> Table:
    """The lines of code that had most time of their own, the hottest first.

    Parameters
    ----------
    recording : Recording
    count : int
        How many at most.
    start, stop : float, optional
        The range of time, in the recording's seconds.
    function : str, optional
        Only tasks of this function.
    key : object, optional
        Only the task of this key, as it is or as text; ``""`` for those not told apart.

    Returns
    -------
    Table
        ``name`` (function), ``file``, ``line``; ``wall``, ``cpu``, ``waiting`` (seconds of its own)
        and ``count`` (samples); ``total_wall``, ``total_cpu``, ``total_waiting``, ``total_count``
        with what it called, in which a line that is on a stack several times counts once.

    Raises
    ------
    DiagnosticError
        If no sample has that key or is of that function, or a time is no number.
    """
    samples = samples_of(recording)
    share = shares(samples, start, stop, function, key)
    seen = samples["node"] >= 0
    line_of_frame, frame_of_line = _distinct(recording.frames, ("name", "file", "line"))
    own, totals = _by_line(recording.call_tree, line_of_frame, samples.rows(seen), share[seen])
    hottest = np.argsort(-own[:, 0], kind="stable")[:count]
    hottest = hottest[totals[hottest, 3] > 0] if len(hottest) else hottest
    frames = recording.frames.rows(frame_of_line[hottest])
    if not len(frames):
        return Table({})
    where = {name: frames[name] for name in ("name", "file", "line")}
    return Table({**where, **_columns(own[hottest], totals[hottest])})


def _by_line(stacks: Table, line_of_frame: Array, sampled: Table, share: Array) -> Any:
    """The measures of each line: its own, and its totals."""
    lines = line_of_frame.max(initial=-1) + 1
    own, totals = np.zeros((2, lines, len(MEASURES)))
    if not len(sampled):
        return own, totals
    parent, line = stacks["parent"], line_of_frame[stacks["frame"]]
    of_stack = np.zeros((len(stacks), len(MEASURES)))
    np.add.at(of_stack, sampled["node"], measures(sampled, share))
    depth = depths(parent.tolist())
    np.add.at(own, line, of_stack)
    outermost = _outermost(line, *preorder(parent, depth))
    np.add.at(totals, line[outermost], sums_below(parent, depth, of_stack)[outermost])
    return own, totals


def _outermost(line: Array, position: Array, end: Array) -> Array:
    """Which nodes have no caller of the same line."""
    order = np.lexsort((position, line))
    # Counted on from line to line, what an earlier line reached ends before the next one begins.
    offset = line[order] * (len(line) + 1)
    reached = np.maximum.accumulate(offset + end[order])
    nested = np.concatenate([[False], offset[1:] + position[order][1:] < reached[:-1]])
    outermost = np.empty(len(line), dtype=bool)
    outermost[order] = ~nested
    return outermost


def _distinct(frames: Table, columns: tuple[str, str, str]) -> tuple[Array, Array]:
    """A number for each frame, the same for those alike in `columns`; a frame of each number."""
    if not len(frames):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    values = [_numbers(frames[name]) for name in columns]
    _, frame, number = np.unique(
        np.stack(values, axis=1), axis=0, return_index=True, return_inverse=True
    )
    return number.reshape(-1), frame


def _numbers(column: Any) -> Array:
    codes = column.codes if isinstance(column, Categorical) else column
    return np.asarray(codes, dtype=np.int64)


def _grown(
    recording: Recording, samples: Table, kind_of_frame: Array
) -> tuple[Array, Array, Array]:
    """The tree as the parent and kind of each node, and the node of each sample.

    Kinds are first those of frames, then what is not sampled, then functions of tasks.
    """
    kinds = int(kind_of_frame.max(initial=-1)) + 1
    stacks = recording.call_tree
    caller = stacks["parent"].tolist() if len(stacks) else []
    kind_of_stack = kind_of_frame[stacks["frame"]].tolist() if len(stacks) else []
    functions, tops, pair = distinct_pairs(_numbers(samples["function"]), _numbers(samples["node"]))
    parents, kind_of_node = [_ROOT], [_ROOT]
    children: dict[tuple[int, int], int] = {}
    known: dict[tuple[int, int], int] = {}

    def child(node: int, kind: int) -> int:
        found = children.setdefault((node, kind), len(parents))
        if found == len(parents):
            parents.append(node)
            kind_of_node.append(kind)
        return found

    def node_of(function: int, stack: int) -> int:
        of_function = child(0, kinds + 1 + function)
        if stack < 0:
            return child(of_function, kinds)
        path = []
        while stack >= 0 and (function, stack) not in known:
            path.append(stack)
            stack = caller[stack]
        node = known[function, stack] if stack >= 0 else of_function
        for below in reversed(path):
            node = known[function, below] = child(node, kind_of_stack[below])
        return node

    nodes = [*map(node_of, functions.tolist(), tops.tolist())]
    node_of_sample = np.array(nodes, dtype=np.int64)[pair]
    return np.array(parents), np.array(kind_of_node), node_of_sample


def _described(
    recording: Recording, kind: Array, frame_of_kind: Array
) -> tuple[Categorical, Categorical, Array]:
    """The name, file and first line of each node."""
    frames, functions = recording.frames, samples_of(recording)["function"].values
    kinds = len(frame_of_kind)
    is_frame = (kind >= 0) & (kind < kinds)
    frame = frame_of_kind[kind[is_frame]]
    names: tuple[str, ...] = frames["name"].values if kinds else ()
    files: tuple[str, ...] = frames["file"].values if kinds else ()
    name = len(names) + np.maximum(kind - kinds, -1) + 1
    file = np.full(len(kind), len(files))
    first = np.zeros(len(kind), dtype=np.int64)
    if kinds:
        name[is_frame] = frames["name"].codes[frame]
        file[is_frame] = frames["file"].codes[frame]
        first[is_frame] = frames["first_line"][frame]
    every_name: Sequence[str] = (*names, EVERYTHING, NOT_SAMPLED, *functions)
    return Categorical(name, every_name), Categorical(file, (*files, "")), first


def _columns(own: Array, totals: Array) -> dict[str, Array]:
    return {
        **{name: own[:, n] for n, name in enumerate(MEASURES)},
        **{f"total_{name}": totals[:, n] for n, name in enumerate(MEASURES)},
    }
