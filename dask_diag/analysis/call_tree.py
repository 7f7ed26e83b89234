"""Where in the code the time went, of tasks and of what is between: by call, and by line."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.grouping import distinct_pairs
from dask_diag.analysis.sample_measures import MEASURES, measures
from dask_diag.analysis.selection import ALL_SAMPLES, Selection
from dask_diag.analysis.tree_arrays import depths, preorder, sums_below
from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.model.tables import CallTree, Frames, Samples
from dask_diag.schema import Root

__all__ = [
    "NOT_SAMPLED",
    "are_functions",
    "distinct_frames",
    "hottest_lines",
    "tree",
    "tree_and_nodes",
]

NOT_SAMPLED = "(not sampled)"
"""The name of the node that represents time in which no stack could be read."""
EVERYTHING = "all"
_ROOT = -1


def tree(recording: Recording, selection: Selection = ALL_SAMPLES) -> Table:
    """The calls that were sampled, as a tree: a node per function and chain of callers.

    Lines of one function are one node. A cycle that is partly in the range counts by that part.

    Parameters
    ----------
    recording : Recording
    selection : Selection, optional

    Returns
    -------
    Table
        A row per node, each after its caller and before its caller's next callee. The first is
        all that was sampled. Below it are the roots, `dask_diag.schema.ROOTS`, and below the root
        ``tasks`` the functions of tasks. ``parent`` (position, -1 of the first),
        ``depth``, ``end`` (position after all that it called), ``name``, ``file``, ``first_line``
        (where the function starts), ``wall``, ``cpu``, ``waiting`` (seconds of self time) and
        ``count`` (samples), and with what it called ``total_wall``, ``total_cpu``,
        ``total_waiting``, ``total_count``. Callees are in order of their ``total_wall``.

    Raises
    ------
    DiagnosticError
        If no sample has the key or is of the function that is selected.

    See Also
    --------
    dask_diag.schema.ROOTS : what each root means.
    """
    return tree_and_nodes(recording, selection)[0]


def tree_and_nodes(
    recording: Recording, selection: Selection = ALL_SAMPLES
) -> tuple[Table, IntArray]:
    """The tree, and for each row of `Recording.samples` its node (-1: not selected)."""
    samples = recording.samples
    share = selection.shares(samples)
    selected = np.flatnonzero(share > 0)
    kind_of_frame, frame_of_kind = distinct_frames(recording.frames, ("name", "file", "first_line"))
    parent, kind, node_of_selected = _grown(recording, samples.rows(selected), kind_of_frame)
    own = np.zeros((len(parent), len(MEASURES)))
    np.add.at(own, node_of_selected, measures(samples, share)[selected])
    depth = depths(parent.tolist())
    totals = sums_below(parent, depth, own)
    # Among the callees of a function of tasks, time that was not sampled comes last.
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
    node[selected] = position[node_of_selected]
    return nodes, node


def are_functions(nodes: Table) -> BoolArray:
    """Which nodes of a tree are functions of tasks, and no calls."""
    of_tasks = np.flatnonzero((nodes["depth"] == 1) & nodes["name"].where(Root.TASKS))
    return np.isin(nodes["parent"], of_tasks)


def hottest_lines(
    recording: Recording, count: int = 10, selection: Selection = ALL_SAMPLES
) -> Table:
    """The lines of code with most self time, the hottest first.

    Parameters
    ----------
    recording : Recording
    count : int
        How many at most.
    selection : Selection, optional

    Returns
    -------
    Table
        ``name`` (function), ``file``, ``line``; ``wall``, ``cpu``, ``waiting`` (seconds of self
        time) and ``count`` (samples); ``total_wall``, ``total_cpu``, ``total_waiting``,
        ``total_count`` with what it called, in which a line that is on a stack several times counts
        once.

    Raises
    ------
    DiagnosticError
        If no sample has the key or is of the function that is selected.
    """
    samples = recording.samples
    share = selection.shares(samples)
    sampled = samples.node >= 0
    line_of_frame, frame_of_line = distinct_frames(recording.frames, ("name", "file", "line"))
    own, totals = _by_line(
        recording.call_tree, line_of_frame, samples.rows(sampled), share[sampled]
    )
    hottest = np.argsort(-own[:, 0], kind="stable")[:count]
    hottest = hottest[totals[hottest, 3] > 0] if len(hottest) else hottest
    frames = recording.frames.rows(frame_of_line[hottest])
    if not len(frames):
        return Table({})
    location = {name: frames[name] for name in ("name", "file", "line")}
    return Table({**location, **_columns(own[hottest], totals[hottest])})


def _by_line(
    stacks: CallTree, line_of_frame: IntArray, sampled: Samples, share: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The measures of each line: self, and totals."""
    lines = line_of_frame.max(initial=-1) + 1
    own, totals = np.zeros((2, lines, len(MEASURES)))
    if not len(sampled):
        return own, totals
    parent, line = stacks.parent, line_of_frame[stacks.frame]
    of_stack = np.zeros((len(stacks), len(MEASURES)))
    np.add.at(of_stack, sampled.node, measures(sampled, share))
    depth = depths(parent.tolist())
    np.add.at(own, line, of_stack)
    # In recursion a line is below itself: only its outermost call counts, which has all the others.
    outermost = _outermost(line, *preorder(parent, depth))
    np.add.at(totals, line[outermost], sums_below(parent, depth, of_stack)[outermost])
    return own, totals


def _outermost(line: IntArray, position: IntArray, end: IntArray) -> BoolArray:
    """Which nodes have no caller of the same line."""
    order = np.lexsort((position, line))
    # One running maximum serves all lines: the offset of a line is beyond all ends before it.
    offset = line[order] * (len(line) + 1)
    reached = np.maximum.accumulate(offset + end[order])
    nested = np.concatenate([[False], offset[1:] + position[order][1:] < reached[:-1]])
    outermost = np.empty(len(line), dtype=bool)
    outermost[order] = ~nested
    return outermost


def distinct_frames(frames: Frames, columns: tuple[str, str, str]) -> tuple[IntArray, IntArray]:
    """A number for each frame, the same for those alike in `columns`; a frame of each number."""
    if not len(frames):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    values = [_numbers(frames[name]) for name in columns]
    _, frame, number = np.unique(
        np.stack(values, axis=1), axis=0, return_index=True, return_inverse=True
    )
    return number.reshape(-1), frame


def _numbers(column: Categorical | IntArray) -> IntArray:
    codes = column.codes if isinstance(column, Categorical) else column
    return np.asarray(codes, dtype=np.int64)


def _grown(
    recording: Recording, samples: Samples, kind_of_frame: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """The tree as the parent and kind of each node, and the node of each sample.

    Kinds are first those of frames, then what is not sampled, then functions of tasks, then roots.
    """
    kinds = int(kind_of_frame.max(initial=-1)) + 1
    stacks = recording.call_tree
    caller, kind_of_stack = stacks.parent.tolist(), kind_of_frame[stacks.frame].tolist()
    functions, roots = samples.function.values, samples.root.values
    group = _numbers(samples.root) * (len(functions) + 1) + _numbers(samples.function)
    # The same stack may be in several groups, and in many samples of each.
    groups, tops, pair = distinct_pairs(group, _numbers(samples.node))
    nodes = _Nodes()
    # The node of each stack that was reached, so that stacks with common callers share the way up.
    reached: dict[tuple[int, int], int] = {}

    def top_of(group: int) -> int:
        root, function = divmod(group, len(functions) + 1)
        of_root = nodes.child(0, kinds + 1 + len(functions) + root)
        is_task = roots[root] == Root.TASKS
        return nodes.child(of_root, kinds + 1 + function) if is_task else of_root

    def node_of(group: int, stack: int) -> int:
        top = top_of(group)
        if stack < 0:
            return nodes.child(top, kinds)
        path = []
        while stack >= 0 and (group, stack) not in reached:
            path.append(stack)
            stack = caller[stack]
        node = reached[group, stack] if stack >= 0 else top
        for callee in reversed(path):
            node = reached[group, callee] = nodes.child(node, kind_of_stack[callee])
        return node

    node_of_pair = [*map(node_of, groups.tolist(), tops.tolist())]
    node_of_sample = np.array(node_of_pair, dtype=np.int64)[pair]
    return np.array(nodes.parents), np.array(nodes.kinds), node_of_sample


class _Nodes:
    """The nodes of a tree that grows: the parent and the kind of each."""

    def __init__(self) -> None:
        self.parents, self.kinds = [_ROOT], [_ROOT]
        self._children: dict[tuple[int, int], int] = {}

    def child(self, node: int, kind: int) -> int:
        """The child of that kind; it is added where there is none."""
        index = self._children.setdefault((node, kind), len(self.parents))
        if index == len(self.parents):
            self.parents.append(node)
            self.kinds.append(kind)
        return index


def _described(
    recording: Recording, kind: IntArray, frame_of_kind: IntArray
) -> tuple[Categorical, Categorical, IntArray]:
    """The name, file and first line of each node."""
    frames, samples = recording.frames, recording.samples
    kinds = len(frame_of_kind)
    is_frame = (kind >= 0) & (kind < kinds)
    frame = frame_of_kind[kind[is_frame]]
    names, files = frames.name.values, frames.file.values
    # The names of frames, then of everything, of what was not sampled, and of functions of tasks.
    name = len(names) + np.maximum(kind - kinds, -1) + 1
    file = np.full(len(kind), len(files))
    first = np.zeros(len(kind), dtype=np.int64)
    name[is_frame] = frames.name.codes[frame]
    file[is_frame] = frames.file.codes[frame]
    first[is_frame] = frames.first_line[frame]
    names = (*names, EVERYTHING, NOT_SAMPLED, *samples.function.values, *samples.root.values)
    return Categorical(name, names), Categorical(file, (*files, "")), first


def _columns(own: FloatArray, totals: FloatArray) -> dict[str, FloatArray]:
    return {
        **{name: own[:, n] for n, name in enumerate(MEASURES)},
        **{f"total_{name}": totals[:, n] for n, name in enumerate(MEASURES)},
    }
