"""The tree of calls with the functions of libraries folded: what is left is the user's own code."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np
import numpy.typing as npt

from dask_diag.analysis.functions import expect_functions
from dask_diag.analysis.groups import distinct_pairs
from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray
from dask_diag.errors import DiagnosticError
from dask_diag.model.codes import ROOTS, Root
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.model.tables import CallTree, Frames, Samples

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


def short_path(file: str) -> str:
    """The path of a source file as imports name it, or from the home directory on."""
    path = file.replace("\\", "/")
    libraries = list(_LIBRARY.finditer(path))
    if libraries and libraries[-1].end() < len(path):
        return path[libraries[-1].end() :]
    own_home = os.path.expanduser("~").replace("\\", "/").rstrip("/")
    if own_home and path.startswith(own_home + "/"):
        return "~" + path[len(own_home) :]
    return _HOME.sub("~", path, count=1) if _HOME.match(path) else path


def package_of(path: str) -> str:
    """The package that a file of a library is in, by its short path; of another file, the file."""
    first, slash, _ = path.partition("/")
    return first if slash and first not in ("", "~", ".", "..") else path


def depths(parent: Sequence[int]) -> IntArray:
    """How many nodes are above each; `parent` is -1 for a root, else an earlier position."""
    depth = [0] * len(parent)
    for node, above in enumerate(parent):
        if above >= 0:
            depth[node] = depth[above] + 1
    return np.array(depth, dtype=np.int64)


def sums_below(parent: IntArray, depth: IntArray, values: FloatArray) -> FloatArray:
    """For each node the sum over it and all that is below it, column by column."""
    sums = values.astype(float)
    # When a level is added to its parents, it has the sums of all below it already.
    for level in _deepest_first(depth):
        if depth[level[0]] > 0:
            np.add.at(sums, parent[level], sums[level])
    return sums


def preorder(
    parent: IntArray, depth: IntArray, *keys: npt.NDArray[np.generic]
) -> tuple[IntArray, IntArray]:
    """The position of each node when it comes before its descendants, and where its subtree ends.

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


@dataclass(frozen=True)
class Selection:
    """Samples in a range of time, of a root, of the tasks of a function, of the task of a key.

    What is None is not restricted. Two selections are equal if they select the same.

    Parameters
    ----------
    start, stop : float, optional
        The range of time, in the recording's seconds.
    function : str, optional
        Only tasks of this function.
    key : object, optional
        Only the task of this key, as it is or as text; ``""`` for tasks that were not tracked
        individually.
    root : str, optional
        Only samples of this root, one of `dask_diag.model.codes.ROOTS`. With `function` or `key`
        only tasks are selected.

    Raises
    ------
    DiagnosticError
        If a time is no number, the range stops before it starts, or there is no such root.
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
        """How much of each sample is selected, from 0 to 1: the share of its cycle in the range.

        Raises
        ------
        DiagnosticError
            If no sample is of that function, or has that key.
        """
        share = self._shares_of_time(samples)
        if self.root is not None:
            share = share * samples.root.where(self.root)
        if self.function is not None:
            of_tasks = samples.function[samples.root.where(Root.TASKS)]
            expect_functions([self.function], of_tasks, "function")
            share = share * samples.function.where(self.function)
        return share if self.key is None else share * self._has_key(samples)

    def _shares_of_time(self, samples: Samples) -> FloatArray:
        start = samples.start if self.start is None else np.maximum(samples.start, self.start)
        stop = samples.stop if self.stop is None else np.minimum(samples.stop, self.stop)
        length = samples.stop - samples.start
        # A cycle without length is in the range or not.
        inside = np.where(
            length > 0, (stop - start) / np.where(length > 0, length, 1.0), stop >= start
        )
        return np.clip(inside, 0.0, 1.0)

    def _has_key(self, samples: Samples) -> BoolArray:
        has_key: BoolArray = samples.key.where(self.key)
        if not has_key.any():
            raise DiagnosticError(
                f"key: no sample has {self.key!r}. Only tasks longer than a quarter of the cycle "
                "are attributed individually; shorten it with SamplingProfiler(cycle=...)"
            )
        return has_key


def _is_time(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and float(value) == value


ALL_SAMPLES = Selection()
SAMPLES_OF_TASKS = Selection(root=Root.TASKS)


MEASURES = ("wall", "cpu", "waiting", "count")
"""The columns of `measures`. Wall seconds that are neither CPU nor waiting may be either."""


def measures(samples: Samples, share: FloatArray) -> FloatArray:
    """The `MEASURES` of each sample, a column each, times its share."""
    wall, cpu = samples.seconds, samples.cpu_seconds
    columns = wall, np.nan_to_num(cpu), np.nan_to_num(wall - cpu), samples.count
    return np.stack(columns, axis=1).astype(float) * share[:, np.newaxis]


def totals(recording: Recording, selection: Selection = ALL_SAMPLES) -> dict[str, float]:
    """The `MEASURES` of all samples together."""
    samples = recording.samples
    sums = measures(samples, selection.shares(samples)).sum(axis=0)
    return dict(zip(MEASURES, sums.tolist(), strict=True))


def not_sampled(recording: Recording, selection: Selection = ALL_SAMPLES) -> float:
    """Seconds of tasks in which no stack could be read."""
    samples = recording.samples
    seconds = samples.seconds * selection.shares(samples)
    return float(seconds[samples.node < 0].sum())


def seconds_over_time(recording: Recording) -> Table:
    """What the samples represent in each stretch of time between the edges of cycles.

    Returns
    -------
    Table
        ``start`` and ``stop`` (seconds), in order and without overlap; ``root``; ``function`` (of
        tasks);
        ``cpu``, ``waiting`` and ``unknown``: seconds per second, that is, how many threads at once.
    """
    samples = recording.samples
    edges = np.unique(np.concatenate([samples.start, samples.stop]))
    roots, functions = samples.root, samples.function
    stretches = max(len(edges) - 1, 0)
    length = samples.stop - samples.start
    lasting = length > 0
    rate = _by_kind(samples)[lasting] / length[lasting, np.newaxis]
    # A number for each root and function.
    count = max(len(functions.values), 1)
    codes = (roots.codes.astype(np.int64) * count + functions.codes)[lasting]
    # Each sample raises the rate where its cycle starts and lowers it where that stops.
    changes = np.zeros((stretches + 1, max(len(roots.values), 1) * count, 3))
    np.add.at(changes, (np.searchsorted(edges, samples.start[lasting]), codes), rate)
    np.add.at(changes, (np.searchsorted(edges, samples.stop[lasting]), codes), -rate)
    # What rounding leaves after the last cycle is not a thread.
    level = np.round(np.cumsum(changes, axis=0)[:stretches], 9)
    stretch, code = np.nonzero(level.any(axis=2))
    kinds = enumerate(("cpu", "waiting", "unknown"))
    return Table(
        {
            "start": edges[stretch],
            "stop": edges[stretch + 1] if stretches else edges[stretch],
            "root": Categorical(code // count, roots.values),
            "function": Categorical(code % count, functions.values),
            **{name: level[stretch, code, n] for n, name in kinds},
        }
    )


def _by_kind(samples: Samples) -> FloatArray:
    """CPU seconds, seconds of waiting, and seconds that may be either."""
    wall, cpu = samples.seconds, samples.cpu_seconds
    unknown = np.isnan(cpu)
    return np.stack(
        [np.where(unknown, 0, cpu), np.where(unknown, 0, wall - cpu), np.where(unknown, wall, 0)],
        axis=1,
    )


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
        all that was sampled. Below it are the roots, `dask_diag.model.codes.ROOTS`, and below the
        root ``tasks`` the functions of tasks. ``parent`` (position, -1 of the first),
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
    dask_diag.model.codes.ROOTS : what each root means.
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


STANDARD_LIBRARY = "standard library"
_FOLDERS_OF_PACKAGES = ("/site-packages/", "/dist-packages/")
_STRUCTURE = ("parent", "depth", "end", "name", "file", "first_line")
_TOTAL = "total_"
Function = tuple[int, int, int]
"""Codes of its name and file, and its first line."""


def library_of(file: str) -> str:
    """The package that a source file was installed with; empty for the user's own code.

    Functions without a file are in no package: the user's code calls them by name.
    """
    path = file.replace("\\", "/")
    if any(folder in path for folder in _FOLDERS_OF_PACKAGES):
        return package_of(short_path(file)).removesuffix(".py")
    return STANDARD_LIBRARY if file and is_standard_library(file) else ""


def folded_tree(nodes: Table) -> tuple[Table, IntArray]:
    """Make each chain of calls within one library a single node.

    Parameters
    ----------
    nodes : Table
        As `dask_diag.analysis.call_tree.tree` returns them.

    Returns
    -------
    nodes : Table
        The same columns, and ``frames``: how many functions a node represents. One that represents
        several is called by the library and their number.
    folded : array of int
        For each row of the old table its row in the new one.
    """
    folding = _Folding(nodes)
    parent = np.array(folding.parents, dtype=np.int64)
    depth = depths(folding.parents)
    own = [name for name in nodes.columns if name not in _STRUCTURE and _TOTAL not in name]
    sums = np.zeros((len(parent), len(own)))
    np.add.at(sums, folding.folded, np.stack([nodes[name] for name in own], axis=1))
    totals = sums_below(parent, depth, sums)
    with_total = [name for name in own if _TOTAL + name in nodes.columns]
    seconds = totals[:, [own.index(name) for name in with_total if name in _WALL]].sum(axis=1)
    name = folding.names()
    last = name.where(NOT_SAMPLED) & nodes["file"][folding.first].where("")
    position, end = preorder(parent, depth, last, -seconds)
    order = np.argsort(position)
    first = folding.first[order]
    return Table(
        {
            "parent": np.concatenate([[-1], position[parent[order][1:]]]),
            "depth": depth[order],
            "end": end[order],
            "name": name[order],
            "file": nodes["file"][first],
            "first_line": nodes["first_line"][first],
            "frames": folding.frames()[order],
            **{column: sums[order, own.index(column)] for column in own},
            **{_TOTAL + column: totals[order, own.index(column)] for column in with_total},
        }
    ), position[folding.folded]


_WALL = ("wall", "before", "after")
"""The columns by which callees are sorted: of one recording, or of two."""


class _Folding:
    """Each node's folded one: `folded` has its number, `parents` the tree of those numbers."""

    def __init__(self, nodes: Table) -> None:
        self._nodes = nodes
        self.parents: list[int] = []
        self._libraries: list[str] = []
        self._functions: list[set[Function]] = []
        numbers: dict[tuple[int, object], int] = {}
        folded: list[int] = []
        first: list[int] = []
        for node, (above, library, function) in enumerate(self._rows()):
            parent = folded[above] if above >= 0 else -1
            # A call into the same library stays in its caller's node; a way out of it and back
            # starts another one.
            if library and self._libraries[parent] == library:
                number = parent
            else:
                # Siblings of one library become one node, whatever functions of it were called.
                number = numbers.setdefault((parent, library or function), len(self.parents))
            if number == len(self.parents):
                self.parents.append(parent)
                self._libraries.append(library)
                self._functions.append(set())
                first.append(node)
            self._functions[number].add(function)
            folded.append(number)
        self.folded = np.array(folded, dtype=np.int64)
        self.first = np.array(first, dtype=np.int64)

    def _rows(self) -> Iterator[tuple[int, str, Function]]:
        """Of each node its parent, its library, and what it is a call of."""
        nodes = self._nodes
        is_call = (nodes["depth"] > 1) & ~are_functions(nodes)
        libraries = [library_of(file) for file in nodes["file"].values]
        codes = nodes["file"].codes.tolist()
        columns = nodes["name"].codes.tolist(), codes, nodes["first_line"].tolist()
        functions = zip(*columns, strict=True)
        for above, call, code, function in zip(
            nodes["parent"].tolist(), is_call.tolist(), codes, functions, strict=True
        ):
            yield above, libraries[code] if call else "", function

    def frames(self) -> IntArray:
        """How many functions each node represents."""
        return np.array([len(functions) for functions in self._functions], dtype=np.int64)

    def names(self) -> Categorical:
        """The name of each; those of the unfolded nodes have their old codes."""
        old = self._nodes["name"]
        codes, names = old.codes[self.first].astype(np.int64), list(old.values)
        boxes: dict[str, int] = {}
        for number, functions in enumerate(self._functions):
            if len(functions) > 1:
                box = f"{self._libraries[number]} ({len(functions)} frames)"
                codes[number] = boxes.setdefault(box, len(names) + len(boxes))
        return Categorical(codes, [*names, *boxes])
