"""Lines of code that took time: of the program, of its packages, and of waiting."""

from __future__ import annotations

import math
import re
from math import inf
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.call_tree import (
    ALL_SAMPLES,
    Selection,
    distinct_frames,
    hottest_lines,
    is_standard_library,
    measures,
    package_of,
    short_path,
)
from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray
from dask_diag.model.codes import Root
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table

_IMPORT_SYSTEM = re.compile(r"^<frozen importlib|/importlib/_bootstrap")
_LATE = 0.3
"""Seconds that one sample represents from which on it does not say where they passed."""
OWN_CALLS = "(dask_diag)"
"""The line of a stack that represents this package's own calls."""
_OUTSIDE = -1
_LINEAR_ALGEBRA = re.compile(r"(?:numpy|scipy)/linalg/")
_CLIENT = "distributed/client.py"
_SUBMITS = re.compile(r"(?:^|\.)(?:submit|map|compute|persist|get)$")
"""The functions of a client that make a graph; Python 3.10 has no names of classes."""
_THREADING = re.compile(r"/(?:threading|concurrent/futures/_base)\.py$")
_WAITS_FOR_THREADS = frozenset(
    {"Event.wait", "Barrier.wait", "Thread.join", "Future.result", "Future.exception"}
    | {"join", "result", "exception"}
)
"""Calls that end when another thread has done something, not when one releases a lock.

Python 3.10 has no names of classes: of ``wait`` it is not known then what is waited for.
"""


class ProgramLine(NamedTuple):
    """A line of code, what the samples in and below it represent, and how much of it imports."""

    name: str
    file: str
    line: int
    seconds: float
    importing: float

    def __str__(self) -> str:
        location = f" ({short_path(self.file)}:{self.line})" if self.file else ""
        return f"{self.name}{location}"


def program_lines(recording: Recording, weights: FloatArray) -> list[ProgramLine]:
    """The lines that have most of the samples' weights, the first one first.

    Parameters
    ----------
    recording : Recording
    weights : array of float
        Seconds of each row of `Recording.samples`; those of samples without a stack are left out.
    """
    frames = recording.frames
    frame_of_node, is_import = _frames_of_nodes(recording)
    chosen = (recording.samples.node >= 0) & (weights > 0)
    nodes = recording.samples.node[chosen]
    frame, importing = frame_of_node[nodes], is_import[nodes]
    seconds, of_program = weights[chosen], frame_of_node[nodes] != _OUTSIDE
    sums: dict[tuple[str, str, int], list[float]] = {}
    for row, took, imports in zip(
        frame[of_program].tolist(),
        seconds[of_program].tolist(),
        importing[of_program].tolist(),
        strict=True,
    ):
        line = frames.name[row], frames.file[row], int(frames.line[row])
        total = sums.setdefault(line, [0.0, 0.0])
        total[0] += took
        total[1] += took * imports
    lines = [ProgramLine(*line, *total) for line, total in sums.items()]
    return sorted(lines, key=lambda line: -line.seconds)


def line_of_samples(recording: Recording, line: ProgramLine) -> BoolArray:
    """Which samples have a line as their innermost one outside the standard library."""
    frames, samples = recording.frames, recording.samples
    is_line = (frames.line == line.line) & frames.file.where(line.file)
    is_line &= frames.name.where(line.name)
    frame_of_node, _ = _frames_of_nodes(recording)
    has_line = np.zeros(len(samples), bool)
    sampled = samples.node >= 0
    frame = frame_of_node[samples.node[sampled]]
    has_line[sampled] = (frame != _OUTSIDE) & is_line[frame]
    return has_line


def seconds_of_profilers(recording: Recording, chosen: BoolArray) -> float:
    """The seconds of some samples in which this package's own calls ran."""
    samples, frames = recording.samples, recording.frames
    rows = samples.rows(chosen & (samples.node >= 0))
    is_own = frames.name.where(OWN_CALLS)[recording.call_tree.frame]
    return float(rows.seconds[is_own[rows.node]].sum())


def imports_and_profilers(recording: Recording) -> tuple[BoolArray, BoolArray]:
    """Which samples are of modules that were imported, and which of this package's own calls."""
    samples, tree = recording.samples, recording.call_tree
    _, importing = _frames_of_nodes(recording)
    is_own = recording.frames.name.where(OWN_CALLS)[tree.frame]
    has_stack = samples.node >= 0
    imports, own = np.zeros(len(samples), bool), np.zeros(len(samples), bool)
    own[has_stack] = is_own[samples.node[has_stack]]
    imports[has_stack] = importing[samples.node[has_stack]]
    return imports & ~own, own


def graphs_made_before(recording: Recording) -> BoolArray:
    """Which samples before the first computation are of dask making graphs, and not of imports.

    These are calls of collections, of delayed functions and of a client, and what they called.
    After a computation dask may as well collect its results. A computation of a cluster starts when
    its graph arrives there: the call that makes it is before.
    """
    tree, samples = recording.call_tree, recording.samples
    _, importing = _frames_of_nodes(recording)
    files, names = recording.frames.file, recording.frames.name
    paths = [short_path(file) for file in files.values]
    is_dasks = np.array([package_of(path) == "dask" for path in paths], bool)[files.codes]
    of_client = np.array([path == _CLIENT for path in paths], bool)[files.codes]
    submits = np.array([bool(_SUBMITS.search(name)) for name in names.values], bool)[names.codes]
    in_dask = _in_or_below(tree.parent, (is_dasks | of_client & submits)[tree.frame])
    has_stack = samples.node >= 0
    chosen = np.zeros(len(samples), bool)
    nodes = samples.node[has_stack]
    chosen[has_stack] = in_dask[nodes] & ~importing[nodes]
    is_before = samples.root.where(Root.BEFORE) | _before_a_cluster(recording)
    return chosen & ~late_samples(recording) & is_before


def _before_a_cluster(recording: Recording) -> BoolArray:
    """Which samples are of the call whose graph was the first to arrive at a cluster."""
    computations, samples = recording.computations, recording.samples
    start = float(computations.start.min(initial=inf))
    is_first = computations.start == start
    if not (is_first & computations.scheduler.where("distributed")).any():
        return np.zeros(len(samples), bool)
    return np.asarray(samples.root.where(Root.GRAPH) & (samples.stop <= start))


def late_samples(recording: Recording) -> BoolArray:
    """Which samples do not say where their time passed: it was before what they show.

    Where the same line was sampled in time, too, a late sample may be of it: on a busy machine many
    are late.
    """
    samples, tree = recording.samples, recording.call_tree
    is_late, has_stack = _is_late(recording), samples.node >= 0
    seen = np.zeros(len(recording.frames), bool)
    seen[tree.frame[samples.node[has_stack & ~is_late]]] = True
    late = np.zeros(len(samples), bool)
    rows = np.flatnonzero(has_stack & is_late)
    late[rows] = ~seen[tree.frame[samples.node[rows]]]
    return late


def _is_late(recording: Recording) -> BoolArray:
    """After a call that kept the GIL one sample represents its time, and is of what came next."""
    return np.asarray(recording.samples.seconds > _LATE * recording.samples.count)


def seconds_waiting_for_threads(recording: Recording) -> float:
    """Seconds without CPU in which tasks were in calls that wait for what another thread does.

    What was not sampled of tasks is divided as the rest is.
    """
    frames, tree, samples = recording.frames, recording.call_tree, recording.samples
    files = np.array([bool(_THREADING.search(_posix(file))) for file in frames.file.values], bool)
    is_wait = files[frames.file.codes] & frames.name.is_in(_WAITS_FOR_THREADS)
    waits = _in_or_below(tree.parent, is_wait[tree.frame])
    of_tasks = samples.rows(samples.root.where(Root.TASKS))
    rows = of_tasks.rows(of_tasks.node >= 0)
    sampled = rows.seconds.sum()
    if not sampled:
        return 0.0
    without_cpu = np.maximum(np.nan_to_num(rows.seconds - rows.cpu_seconds), 0.0)
    return float(without_cpu[waits[rows.node]].sum() / sampled * of_tasks.seconds.sum())


def cpu_share_of_linear_algebra(recording: Recording) -> float:
    """The share of the tasks' CPU seconds in calls of LAPACK by NumPy or SciPy; NaN if unknown.

    A native function is not on the stack: its caller's line is.
    """
    frames, tree, samples = recording.frames, recording.call_tree, recording.samples
    paths = [short_path(file) for file in frames.file.values]
    of_libraries = np.array([bool(_LINEAR_ALGEBRA.match(path)) for path in paths], bool)
    is_call = of_libraries[frames.file.codes][tree.frame]
    rows = samples.rows(samples.root.where(Root.TASKS) & (samples.node >= 0))
    cpu = np.nan_to_num(rows.cpu_seconds)
    return float(cpu[is_call[rows.node]].sum() / cpu.sum()) if cpu.sum() else math.nan


def _in_or_below(parent: IntArray, nodes: BoolArray) -> BoolArray:
    """Which nodes of the call tree are these, or were called by these."""
    within = nodes.copy()
    # A node comes after its caller.
    for node, above in enumerate(parent.tolist()):
        within[node] |= above >= 0 and within[above]
    return within


def _frames_of_nodes(recording: Recording) -> tuple[np.ndarray, np.ndarray]:
    """Of each node of the call tree its line of the program, and whether that line imports."""
    files = recording.frames.file
    of_library = np.array([is_standard_library(file) for file in files.values], dtype=bool)
    of_imports = np.array([bool(_IMPORT_SYSTEM.search(_posix(file))) for file in files.values])
    tree = recording.call_tree
    frame = np.full(len(tree), _OUTSIDE, np.int64)
    importing = np.zeros(len(tree), bool)
    # A node comes after its caller.
    for node, (parent, row) in enumerate(
        zip(tree.parent.tolist(), tree.frame.tolist(), strict=True)
    ):
        above = frame[parent] if parent >= 0 else _OUTSIDE
        code = files.codes[row]
        inherits = parent >= 0 and importing[parent]
        importing[node] = inherits or of_imports[code]
        frame[node] = above if importing[node] or of_library[code] else row
    return frame, importing


def _posix(file: str) -> str:
    return file.replace("\\", "/")


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
