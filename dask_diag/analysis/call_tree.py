"""Trees of sampled calls: selected, sorted, folded by library, and merged from two recordings."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dask_diag.analysis.functions import expect_functions
from dask_diag.analysis.groups import distinct_pairs
from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray, Values
from dask_diag.errors import DiagnosticError
from dask_diag.model.codes import ROOTS, Root
from dask_diag.model.recording import Recording, Sources, recording_of
from dask_diag.model.table import Table
from dask_diag.model.tables import Samples

Key = TypeVar("Key", bound=Hashable)
Function = tuple[int, int, int]
"""Codes of name and file, and the first line."""
_Nodes = dict[tuple[int, Function], int]
"""The nodes of a growing tree by parent and key, each after its parent."""

_LIBRARY = re.compile(
    r"(?<=/)(?:site-packages|dist-packages|lib(?:64)?/python3[.\w]*)/", re.IGNORECASE
)
_HOME = re.compile(r"(?:/home/[^/]+|/Users/[^/]+|/root|[A-Za-z]:/Users/[^/]+)(?=/)")
_STANDARD_LIBRARY = re.compile(
    r"^<frozen |(?:/lib(?:64)?/python3[.\w]*|/python3?\d*/lib|^[a-z]:/.*/lib)/"
    r"(?!.*(?:site|dist)-packages/)",
    re.IGNORECASE,
)


def is_standard_library(file: str) -> bool:
    """Whether a source file belongs to Python; functions without a file do, too."""
    return not file or bool(_STANDARD_LIBRARY.search(file.replace("\\", "/")))


def numbered(path: str, line: int) -> str:
    """Path and line, as ``path:12``; the path alone where the line is not known (0)."""
    return f"{path}:{line}" if line else path


def short_path(file: str) -> str:
    """The path of a source file as in imports, or from the home directory on."""
    path = file.replace("\\", "/")
    libraries = list(_LIBRARY.finditer(path))
    if libraries and libraries[-1].end() < len(path):
        return path[libraries[-1].end() :]
    own_home = os.path.expanduser("~").replace("\\", "/").rstrip("/")
    if own_home and path.startswith(own_home + "/"):
        return "~" + path[len(own_home) :]
    return _HOME.sub("~", path, count=1) if _HOME.match(path) else path


def package_of(path: str) -> str:
    """The package of a library's file, by the short path; of another file, the file."""
    first, slash, _ = path.partition("/")
    return first if slash and first not in ("", "~", ".", "..") else path


def depths(parent: Sequence[int]) -> IntArray:
    """The number of nodes above each node; `parent` is -1 for a root, else an earlier position."""
    depth = [0] * len(parent)
    for node, above in enumerate(parent):
        if above >= 0:
            depth[node] = depth[above] + 1
    return np.array(depth, dtype=np.int64)


def innermost(parent: IntArray, mask: BoolArray) -> IntArray:
    """For each node the innermost node of the mask, the node itself or a caller, or -1."""
    chosen: list[int] = []
    # A node comes after its caller.
    for node, (above, is_in_mask) in enumerate(zip(parent.tolist(), mask.tolist(), strict=True)):
        chosen.append(node if is_in_mask else chosen[above] if above >= 0 else -1)
    return np.array(chosen, dtype=np.int64)


def sums_below(parent: IntArray, depth: IntArray, values: FloatArray) -> FloatArray:
    """For each node the sum over the node and all descendants, column by column."""
    sums = values.astype(float)
    # A level that is added to its parents has the sums of its own descendants already.
    for level in _deepest_first(depth):
        if depth[level[0]] > 0:
            np.add.at(sums, parent[level], sums[level])
    return sums


def preorder(
    parent: IntArray, depth: IntArray, *keys: npt.NDArray[np.generic]
) -> tuple[IntArray, IntArray]:
    """The position of each node before all descendants, and the end of the subtree.

    Siblings are in the order of `keys`, the first of them most important, then in their own.
    """
    size = sums_below(parent, depth, np.ones(len(parent))).astype(np.int64)
    order = np.lexsort((*reversed(keys), parent))
    # A node starts after its parent and the subtrees of its earlier siblings.
    before = np.cumsum(size[order]) - size[order]
    # The running sum goes on from one family to the next: less its value at the first sibling.
    first = np.concatenate([[True], np.diff(parent[order]) != 0])
    of_earlier_siblings = np.empty(len(parent), dtype=np.int64)
    of_earlier_siblings[order] = before - before[first][np.cumsum(first) - 1]
    position = of_earlier_siblings
    for level in reversed(list(_deepest_first(depth))):
        if depth[level[0]] > 0:
            position[level] += position[parent[level]] + 1
    return position, position + size


def _deepest_first(depth: IntArray) -> Iterator[IntArray]:
    """The nodes of each depth, the deepest first."""
    order = np.argsort(-depth, kind="stable")
    cuts = np.flatnonzero(np.diff(depth[order])) + 1
    return (level for level in np.split(order, cuts) if len(level))


def sorted_tree(
    parent: IntArray,
    labels: Mapping[str, Values],
    own: Mapping[str, FloatArray],
    *,
    by: Collection[str],
    totals: Collection[str],
    last: BoolArray | None = None,
) -> tuple[Table, IntArray]:
    """Make a table of a tree, and return the row of each node.

    Parameters
    ----------
    parent : array of int
        -1 for the root, which is the first node, else an earlier position.
    labels : mapping of str to column
        Descriptions of nodes.
    own : mapping of str to array of float
        Amounts of nodes without their descendants.
    by, totals : collection of str
        Amounts whose sum, descendants included, sorts siblings, the largest first; and amounts
        that have another column, descendants included.
    last : array of bool, optional
        Nodes that come after their siblings.
    """
    depth = depths(parent.tolist())
    with_descendants = sums_below(parent, depth, np.stack(list(own.values()), axis=1))
    sums = dict(zip(own, with_descendants.T, strict=True))
    largest_first = -sum(sums[name] for name in by)
    position, end = preorder(
        parent, depth, np.zeros(len(depth)) if last is None else last, largest_first
    )
    order = np.argsort(position)
    columns = {
        "parent": np.append(-1, position[parent[order][1:]]),
        "depth": depth[order],
        "end": end[order],
        **{name: column[order] for name, column in {**labels, **own}.items()},
        **{f"{_TOTAL}{name}": sums[name][order] for name in totals},
    }
    return Table(columns), position


def _child(nodes: dict[tuple[int, Key], int], parent: int, key: Key) -> int:
    """Find or add the child of a node with a key; -1 is above the root."""
    return nodes.setdefault((parent, key), len(nodes))


@dataclass(frozen=True)
class Selection:
    """Selection of stack samples by time, root, function of tasks, or key of a task.

    Parameters that are None, the default, do not restrict the selection. Two selections are equal if they select
    the same samples.

    Parameters
    ----------
    start, stop : float, optional
        Range of time, in seconds of the recording's clock. A cycle that is partly in the range
        counts by that part.
    function : str, optional
        Only tasks of this function.
    key : object, optional
        Only the task with this key, given as it is or as text; ``""`` for tasks that were not
        tracked by key.
    root : str, optional
        Only samples of this root, one of `dask_diag.model.codes.ROOTS`. With `function` or `key`,
        only tasks are selected.

    Raises
    ------
    DiagnosticError
        If a time is not a number, the range stops before it starts, or the root is unknown.

    Examples
    --------
    >>> from dask_diag import Selection
    >>> Selection(root="scheduler") == Selection(root="scheduler", function=None)
    True
    """

    start: float | None = None
    stop: float | None = None
    function: str | None = None
    key: object = None
    root: str | None = None

    def __post_init__(self) -> None:
        if self.root is not None and self.root not in ROOTS:
            raise DiagnosticError(f"root: expected one of {', '.join(ROOTS)}, found {self.root!r}")
        for name, time in (("start", self.start), ("stop", self.stop)):
            if time is not None and not _is_time(time):
                raise DiagnosticError(
                    f"{name}: expected a time in seconds of the recording, found {time!r}"
                )
        if self.start is not None and self.stop is not None and self.stop < self.start:
            raise DiagnosticError(
                f"stop: expected a time at or after start, {self.start} s, found {self.stop} s"
            )
        if (self.function is not None or self.key is not None) and self.root is None:
            object.__setattr__(self, "root", Root.TASKS)
        if self.key is not None:
            # Recordings have keys as text, so ("x", 0) and "('x', 0)" select the same task.
            object.__setattr__(self, "key", str(self.key))

    def shares(self, samples: Samples) -> FloatArray:
        """The selected share of each sample, from 0 to 1: the part of the cycle in the range.

        Raises
        ------
        DiagnosticError
            If no sample is of that function, or has that key.
        """
        share = self._shares_of_time(samples)
        if self.root is not None:
            share = share * samples.root.eq(self.root)
        if self.function is not None:
            of_tasks = samples.function[samples.root.eq(Root.TASKS)]
            expect_functions([self.function], of_tasks, "function")
            share = share * samples.function.eq(self.function)
        return share if self.key is None else share * self._has_key(samples)

    def _shares_of_time(self, samples: Samples) -> FloatArray:
        start = samples.start if self.start is None else np.maximum(samples.start, self.start)
        stop = samples.stop if self.stop is None else np.minimum(samples.stop, self.stop)
        length = samples.stop - samples.start
        # A cycle without length is in the range or not.
        inside = np.divide(stop - start, length, out=1.0 * (stop >= start), where=length > 0)
        return np.asarray(np.clip(inside, 0.0, 1.0))

    def _has_key(self, samples: Samples) -> BoolArray:
        has_key: BoolArray = samples.key.eq(self.key)
        if not has_key.any():
            raise DiagnosticError(
                f"key: no sample has {self.key!r}. Only tasks longer than a quarter of the cycle "
                "are tracked by key; shorten it with SamplingProfiler(cycle=...)"
            )
        return has_key


def _is_time(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and float(value) == value


ALL_SAMPLES = Selection()
SAMPLES_OF_TASKS = Selection(root=Root.TASKS)


MEASURES = ("wall", "cpu", "waiting", "count")
"""The columns of `measures`. Wall seconds that are neither CPU nor waiting may be either."""


def measures(samples: Samples, share: FloatArray) -> FloatArray:
    """The `MEASURES` of each sample, a column each, times the selected share."""
    wall, cpu = samples.seconds, samples.cpu_seconds
    columns = wall, np.nan_to_num(cpu), np.nan_to_num(wall - cpu), samples.count
    return np.stack(columns, axis=1).astype(float) * share[:, np.newaxis]


def totals(recording: Recording, selection: Selection = ALL_SAMPLES) -> dict[str, float]:
    """The `MEASURES` of all samples together."""
    samples = recording.samples
    sums = measures(samples, selection.shares(samples)).sum(axis=0)
    return dict(zip(MEASURES, sums.tolist(), strict=True))


def not_sampled(recording: Recording, selection: Selection = ALL_SAMPLES) -> float:
    """Seconds of tasks without a stack."""
    samples = recording.samples
    seconds = samples.seconds * selection.shares(samples)
    return float(seconds[samples.node < 0].sum())


def seconds_over_time(recording: Recording) -> Table:
    """Seconds of samples per second, between the edges of cycles.

    Returns
    -------
    Table
        ``start`` and ``stop`` (seconds), in order and without overlap; ``root``; ``function`` (of
        tasks);
        ``cpu``, ``waiting`` and ``unknown``: seconds per second, that is, how many threads at once.
    """
    samples = recording.samples
    samples = samples.filter(samples.stop > samples.start)
    edges = np.unique(np.append(samples.start, samples.stop))
    wall, cpu = samples.seconds, samples.cpu_seconds
    kinds = {
        "cpu": np.nan_to_num(cpu),
        "waiting": np.nan_to_num(wall - cpu),
        "unknown": np.where(np.isnan(cpu), wall, 0.0),
    }
    rate = np.stack(list(kinds.values()), axis=1) / (samples.stop - samples.start)[:, np.newaxis]
    roots, functions, code = distinct_pairs(samples.root.codes, samples.function.codes)
    # Each sample raises the rate where its cycle starts and lowers it where that stops.
    changes = np.zeros((len(edges), len(roots), len(kinds)))
    np.add.at(changes, (np.searchsorted(edges, samples.start), code), rate)
    np.add.at(changes, (np.searchsorted(edges, samples.stop), code), -rate)
    # What rounding leaves after the last cycle is not a thread.
    level = np.round(np.cumsum(changes, axis=0)[:-1], 9)
    stretch, pair = np.nonzero(level.any(axis=2))
    return Table(
        {
            "start": edges[stretch],
            "stop": edges[stretch + 1],
            "root": Categorical(roots[pair], samples.root.values),
            "function": Categorical(functions[pair], samples.function.values),
            **{name: level[stretch, pair, n] for n, name in enumerate(kinds)},
        }
    )


NOT_SAMPLED = "(not sampled)"
"""The name of the node that represents time in which no stack could be read."""
EVERYTHING = "all"
_TOTAL = "total_"


def call_tree(source: Sources, selection: Selection = ALL_SAMPLES) -> Table:
    """Tree of sampled calls: a node per function and chain of callers.

    Parameters
    ----------
    source : Recording, profiler, or list of these
        Measurements with stack samples. Several are combined.
    selection : Selection, optional
        Samples to use. Default: all.

    Returns
    -------
    Table
        One row per node, each after its caller and before its caller's next callee, callees in
        order of ``total_wall``. The first row is the sum of all samples, the next level the roots,
        `dask_diag.model.codes.ROOTS`, and below the root ``tasks`` the functions of tasks. Columns:

        * ``parent`` (position, -1 for the first row), ``depth``, ``end`` (position after the last
          descendant).
        * ``name``, ``file``, ``first_line`` (where the function starts). Lines of one function are
          one node.
        * ``wall``, ``cpu``, ``waiting`` (seconds of self time) and ``count`` (samples).
        * ``total_wall``, ``total_cpu``, ``total_waiting``, ``total_count``: the same including
          callees.

    Raises
    ------
    DiagnosticError
        If no sample has the selected key or function.

    See Also
    --------
    hottest_lines : The lines with the most self time.

    Examples
    --------
    >>> from dask.threaded import get
    >>> from dask_diag import SamplingProfiler, call_tree
    >>> with SamplingProfiler(interval="1ms") as sprof:
    ...     total = get({"total": (sum, range(2_000_000))}, "total")
    >>> call_tree(sprof)["name"].tolist()[0]
    'all'
    """
    return tree_and_nodes(recording_of(source), selection)[0]


def tree_and_nodes(
    recording: Recording, selection: Selection = ALL_SAMPLES
) -> tuple[Table, IntArray]:
    """The tree, and the node of each row of `Recording.samples` (-1: not selected)."""
    samples = recording.samples
    share = selection.shares(samples)
    selected = np.flatnonzero(share > 0)
    nodes, node_of_selected = _grown(recording, samples.filter(selected))
    own = np.zeros((len(nodes), len(MEASURES)))
    np.add.at(own, node_of_selected, measures(samples, share)[selected])
    frames = recording.frames
    parents, functions = zip(*nodes, strict=True)
    names, files, first = np.array(functions).T
    texts = (
        *frames.name.values,
        EVERYTHING,
        NOT_SAMPLED,
        *samples.function.values,
        *samples.root.values,
    )
    labels: dict[str, Values] = {
        "name": Categorical(names, texts),
        "file": Categorical(files, (*frames.file.values, "")),
        "first_line": first,
    }
    # Among the callees of a function of tasks, time that was not sampled comes last.
    last = names == len(frames.name.values) + 1
    table, position = sorted_tree(
        np.array(parents),
        labels,
        dict(zip(MEASURES, own.T, strict=True)),
        by=("wall",),
        totals=MEASURES,
        last=last,
    )
    node = np.full(len(samples), -1, dtype=np.int64)
    node[selected] = position[node_of_selected]
    return table, node


def _grown(recording: Recording, samples: Samples) -> tuple[_Nodes, IntArray]:
    """The nodes of sampled calls, with functions as keys, and the node of each sample.

    A name without a frame is all, what is not sampled, a function of tasks, or a root.
    """
    frames, stacks = recording.frames, recording.call_tree
    columns = frames.name.codes.tolist(), frames.file.codes.tolist(), frames.first_line.tolist()
    functions = list(zip(*columns, strict=True))
    caller, frame = stacks.parent.tolist(), stacks.frame.tolist()
    roots, tasks = samples.root.values, len(samples.function.values)
    nodes: _Nodes = {}

    def child(parent: int, name: int) -> int:
        key = len(frames.name.values) + name, len(frames.file.values), 0
        return _child(nodes, parent, key)

    everything = child(-1, 0)
    # The node of each stack that was reached, so that stacks with common callers share the way up.
    reached: dict[tuple[int, int], int] = {}

    def node_of(root: int, function: int, stack: int) -> int:
        top = child(everything, 2 + tasks + root)
        if roots[root] == Root.TASKS:
            top = child(top, 2 + function)
        if stack < 0:
            return child(top, 1)
        path = []
        while stack >= 0 and (top, stack) not in reached:
            path.append(stack)
            stack = caller[stack]
        node = reached[top, stack] if stack >= 0 else top
        for callee in reversed(path):
            node = reached[top, callee] = _child(nodes, node, functions[frame[callee]])
        return node

    # The same stack may be in many samples.
    root, function, of_pair = distinct_pairs(samples.root.codes, samples.function.codes)
    pairs, tops, index = distinct_pairs(of_pair, samples.node)
    chosen = zip(root[pairs].tolist(), function[pairs].tolist(), tops.tolist(), strict=True)
    return nodes, np.array([node_of(*pair) for pair in chosen], dtype=np.int64)[index]


def are_functions(nodes: Table) -> BoolArray:
    """Whether each node of a tree is a function of tasks, and no call."""
    of_tasks = np.flatnonzero((nodes["depth"] == 1) & nodes["name"].eq(Root.TASKS))
    return np.isin(nodes["parent"], of_tasks)


def hottest_lines(source: Sources, count: int = 10, selection: Selection = ALL_SAMPLES) -> Table:
    """Lines of code with the most self time, the hottest first.

    Parameters
    ----------
    source : Recording, profiler, or list of these
        Measurements with stack samples. Several are combined.
    count : int, default 10
        Maximum number of lines.
    selection : Selection, optional
        Samples to use. Default: all.

    Returns
    -------
    Table
        ``name`` (function), ``file``, ``line``; ``wall``, ``cpu``, ``waiting`` (seconds of self
        time) and ``count`` (samples); ``total_wall``, ``total_cpu``, ``total_waiting``,
        ``total_count`` including callees. A line that is on a stack several times counts once.

    Raises
    ------
    DiagnosticError
        If no sample has the selected key or function.

    See Also
    --------
    call_tree : All sampled calls.

    Examples
    --------
    >>> from dask.threaded import get
    >>> from dask_diag import SamplingProfiler, Selection, hottest_lines
    >>> with SamplingProfiler(interval="1ms") as sprof:
    ...     total = get({"total": (sum, range(2_000_000))}, "total")
    >>> lines = hottest_lines(sprof, count=5, selection=Selection(root="tasks"))
    >>> lines.columns[:4]
    ('name', 'file', 'line', 'wall')
    """
    recording = recording_of(source)
    samples, stacks = recording.samples, recording.call_tree
    lines = lines_of_frames(recording)
    own, totals = np.zeros((2, len(lines.values), len(MEASURES)))
    share, sampled = selection.shares(samples), samples.node >= 0
    if sampled.any():
        parent, line = stacks.parent, lines.codes[stacks.frame].astype(np.int64)
        of_stack = np.zeros((len(stacks), len(MEASURES)))
        np.add.at(of_stack, samples.node[sampled], measures(samples, share)[sampled])
        depth = depths(parent.tolist())
        np.add.at(own, line, of_stack)
        # In recursion a line is below itself: only its outermost call counts, which has all others.
        outermost = _outermost(line, *preorder(parent, depth))
        np.add.at(totals, line[outermost], sums_below(parent, depth, of_stack)[outermost])
    hottest = np.argsort(-own[:, 0], kind="stable")[:count]
    hottest = hottest[totals[hottest, 3] > 0]
    if not len(hottest):
        return Table({})
    numbers = {
        f"{prefix}{name}": values[hottest, n]
        for prefix, values in (("", own), (_TOTAL, totals))
        for n, name in enumerate(MEASURES)
    }
    return table_of_lines(Categorical(hottest, lines.values), numbers)


def lines_of_frames(recording: Recording) -> Categorical:
    """The function, file and line of each frame."""
    frames = recording.frames
    names, files = frames.name, frames.file
    columns = np.stack([names.codes, files.codes, frames.line], axis=1)
    lines, code = np.unique(columns, axis=0, return_inverse=True)
    values = [(names.values[name], files.values[file], line) for name, file, line in lines.tolist()]
    return Categorical(code.reshape(-1), values)


def table_of_lines(lines: Categorical, columns: Mapping[str, Values]) -> Table:
    """A table of lines of code, with more columns."""
    names, files, numbers = zip(*lines.tolist(), strict=True)
    located = {"name": Categorical.of(names), "file": Categorical.of(files)}
    return Table({**located, "line": np.array(numbers, np.int64), **columns})


def _outermost(line: IntArray, position: IntArray, end: IntArray) -> BoolArray:
    """Select the nodes without a caller of the same line."""
    order = np.lexsort((position, line))
    # One running maximum serves all lines: the offset of a line is beyond all ends before it.
    offset = line[order] * (len(line) + 1)
    reached = np.maximum.accumulate(offset + end[order])
    nested = np.concatenate([[False], offset[1:] + position[order][1:] < reached[:-1]])
    outermost = np.empty(len(line), dtype=bool)
    outermost[order] = ~nested
    return outermost


STANDARD_LIBRARY = "standard library"
_FOLDERS_OF_PACKAGES = ("/site-packages/", "/dist-packages/")
_SORTED_BY = ("wall", "before", "after")
"""Columns by which callees are sorted: of one recording, or of two."""


def library_of(file: str) -> str:
    """The package of an installed source file; empty for the user's own code.

    Functions without a file are in no package: the user's code calls them by name.
    """
    path = file.replace("\\", "/")
    if any(folder in path for folder in _FOLDERS_OF_PACKAGES):
        return package_of(short_path(file)).removesuffix(".py")
    return STANDARD_LIBRARY if file and is_standard_library(file) else ""


def folded_tree(nodes: Table) -> tuple[Table, IntArray]:
    """Make each chain of calls within a library a single node.

    Parameters
    ----------
    nodes : Table
        Nodes returned by `dask_diag.call_tree`.

    Returns
    -------
    nodes : Table
        The same columns, and ``frames``: how many functions a node represents. One that represents
        several is called by the library and their number.
    folded : array of int
        For each row of the old table its row in the new one.
    """
    is_call = (nodes["depth"] > 1) & ~are_functions(nodes)
    names, files = nodes["name"], nodes["file"]
    library_of_file = [library_of(file) for file in files.values]
    calls = zip(
        *(nodes["parent"].tolist(), is_call.tolist()),
        *(names.codes.tolist(), files.codes.tolist(), nodes["first_line"].tolist()),
        strict=True,
    )
    tree: dict[tuple[int, str | Function], int] = {}
    folded: list[int] = []
    first: list[int] = []
    libraries: list[str] = []
    functions: list[set[Function]] = []
    for node, (above, call, *function) in enumerate(calls):
        parent = folded[above] if above >= 0 else -1
        library = library_of_file[function[1]] if call else ""
        # A call into the same library stays in its caller's node; a way out of it and back starts
        # another node. Siblings of one library become one node, whatever functions were called.
        called = function[0], function[1], function[2]
        if library and libraries[parent] == library:
            number = parent
        else:
            number = _child(tree, parent, library or called)
        if number == len(first):
            first.append(node)
            libraries.append(library)
            functions.append(set())
        functions[number].add(called)
        folded.append(number)
    # Nodes of one function keep the codes of their names.
    codes = names.codes[first].astype(np.int64)
    boxes: dict[str, int] = {}
    for number, of_node in enumerate(functions):
        if len(of_node) > 1:
            box = f"{libraries[number]} ({len(of_node)} frames)"
            codes[number] = boxes.setdefault(box, len(names.values) + len(boxes))
    labels: dict[str, Values] = {
        "name": Categorical(codes, [*names.values, *boxes]),
        "file": files[first],
        "first_line": nodes["first_line"][first],
        "frames": np.array([len(of_node) for of_node in functions], dtype=np.int64),
    }
    amounts = [name for name in nodes.columns if f"{_TOTAL}{name}" in nodes.columns]
    own = {
        name: np.bincount(folded, nodes[name]).astype(float)
        for name in dict.fromkeys([*amounts, "count"])
    }
    table, position = sorted_tree(
        np.array([parent for parent, _ in tree], dtype=np.int64),
        labels,
        own,
        by=[name for name in amounts if name in _SORTED_BY],
        totals=amounts,
        last=names[first].eq(NOT_SAMPLED) & files[first].eq(""),
    )
    return table, position[folded]


def merged_tree(before: Recording, after: Recording) -> Table:
    """A node for each chain of calls of either recording.

    Returns
    -------
    Table
        ``parent``, ``depth``, ``end``, ``name``, ``file``, ``first_line`` as in `tree`; of
        ``before`` and ``after`` the seconds of self time, and as ``total_before`` and
        ``total_after`` with what it called; ``count`` (samples of both). Callees are in order of
        the sum of both.
    """
    nodes: dict[tuple[int, tuple[str, str]], int] = {}
    first_lines: list[int] = []
    tables = [call_tree(recording) for recording in (before, after)]
    chosen: list[list[int]] = [[], []]
    for table, of_rows in zip(tables, chosen, strict=True):
        for row in table.to_dicts():
            above = of_rows[row["parent"]] if row["parent"] >= 0 else -1
            # Code may move in its file: a call is known by its name and file.
            of_rows.append(_child(nodes, above, (row["name"], row["file"])))
            if of_rows[-1] == len(first_lines):
                first_lines.append(row["first_line"])
    sums = [
        np.bincount(of_rows, table[name], len(first_lines)).astype(float)
        for name in ("wall", "count")
        for table, of_rows in zip(tables, chosen, strict=True)
    ]
    labels: dict[str, Values] = {
        "name": Categorical.of(name for _, (name, _) in nodes),
        "file": Categorical.of(file for _, (_, file) in nodes),
        "first_line": np.array(first_lines, dtype=np.int64),
    }
    sides, parents = ("before", "after"), np.array([parent for parent, _ in nodes])
    own = {"count": sums[2] + sums[3], "before": sums[0], "after": sums[1]}
    return sorted_tree(parents, labels, own, by=sides, totals=sides)[0]
