"""Lines of code and the seconds of samples: computing, waiting, importing."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from math import inf, nan
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.call_tree import (
    ALL_SAMPLES,
    Selection,
    hottest_lines,
    innermost,
    is_own_code,
    is_standard_library,
    lines_of_frames,
    measures,
    numbered,
    package_of,
    short_path,
    table_of_lines,
)
from dask_diag.analysis.groups import sums_by
from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray
from dask_diag.model.codes import Root
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table

_IMPORT_SYSTEM = re.compile(r"^<frozen importlib|/importlib/_bootstrap")
_LATE = 0.3
"""Seconds that one sample represents from which on it does not say where they passed."""
_COMPUTED = 0.2
"""Share of its seconds from which on a thread computed, or waited for a CPU and nothing else."""
_SEVERAL = 4
"""Samples of a line from which on all its seconds are its own."""
OWN_CALLS = "(dask_diag)"
"""The line of a stack that represents this package's own calls."""
_OUTSIDE = -1
_LINEAR_ALGEBRA = re.compile(r"(?:numpy|scipy)/linalg/")
CLIENT = "distributed/client.py"
QUEUES = "distributed/queues.py"
"""File of queues, each call of which goes to the scheduler and back."""
_COMPUTES = re.compile(r"(?:^|\.)(?:compute|persist)$")
"""The functions of dask that compute; Python 3.10 has no names of classes."""
_SUBMITS = re.compile(r"(?:^|\.)(?:submit|map|compute|persist|get)$")
"""The functions of a client that make a graph; Python 3.10 has no names of classes."""
_SCHEDULERS = ("dask", "distributed")
_LOCKS_OF_CLUSTERS = re.compile(r"distributed/(?:lock|semaphore|queues|variable)\.py$")
"""Files of distributed whose calls wait for the scheduler to let one task after another go on."""
_THREADING = re.compile(r"/(?:threading|concurrent/futures/_base)\.py$")
_WAITS_FOR_THREADS = frozenset(
    {"Event.wait", "Barrier.wait", "Thread.join", "Future.result", "Future.exception"}
    | {"join", "result", "exception"}
)
"""Calls that end when another thread has done something, not when one releases a lock.

Python 3.10 has no names of classes: of ``wait`` it is not known then what is waited for.
"""


class ProgramLine(NamedTuple):
    """A line of code, the seconds of samples in and below the line, and the part of imports."""

    name: str
    file: str
    line: int
    seconds: float
    importing: float

    def __str__(self) -> str:
        return _location(self.name, self.file, self.line)

    def by_name_of_file(self) -> ProgramLine:
        """The same without the folder of an own file: the reader knows where that is."""
        folder, name = os.path.split(self.file)
        # Of packages the file's name says nothing.
        if name == "__init__.py":
            name = os.path.join(os.path.basename(folder), name)
        return self._replace(file=name)


def _location(name: str, file: str, line: int) -> str:
    return f"{name} ({numbered(short_path(file), line)})" if file else name


def program_lines(recording: Recording, weights: FloatArray) -> list[ProgramLine]:
    """The lines of the program with samples, the largest weight first.

    Parameters
    ----------
    recording : Recording
    weights : array of float
        Seconds of each row of `Recording.samples`; those of samples without a stack are left out.
    """
    return _sorted_lines(recording, weights, *_lines_of_program(recording))


def lines_outside_dask(recording: Recording, weights: FloatArray) -> list[ProgramLine]:
    """`program_lines` without the lines of dask and distributed: those of their callers."""
    frame, importing = _lines_of_program(recording, besides=_SCHEDULERS)
    return _sorted_lines(recording, weights, frame, importing)


def _sorted_lines(
    recording: Recording, weights: FloatArray, frame: IntArray, importing: BoolArray
) -> list[ProgramLine]:
    """Sums of the weights of samples by the frame of each node, the largest first."""
    node = recording.samples.node
    chosen = (node >= 0) & (weights > 0) & (np.append(frame, _OUTSIDE)[node] != _OUTSIDE)
    node, weights = node[chosen], weights[chosen]
    lines = lines_of_frames(recording)
    line, count = lines.codes[frame[node]], len(lines.values)
    seconds = np.bincount(line, weights, count).tolist()
    of_imports = np.bincount(line, weights * importing[node], count).tolist()
    present = dict.fromkeys(line.tolist())
    made = [
        ProgramLine(name, file, number, seconds[n], of_imports[n])
        for n in present
        for name, file, number in [lines.values[n]]
    ]
    return sorted(made, key=lambda line: -line.seconds)


def own_lines(recording: Recording, weights: FloatArray) -> list[ProgramLine]:
    """The lines of the program's own code, the largest weight of samples first.

    Neither Python's standard library nor installed packages are own code. A sample belongs to the
    innermost own line on its stack.
    """
    frame = _own_frames(recording)
    return _sorted_lines(recording, weights, frame, np.zeros(len(frame), bool))


def _own_frames(recording: Recording) -> IntArray:
    """The innermost own frame for each node of the call tree."""
    tree = recording.call_tree
    node = innermost(tree.parent, files_of_nodes(recording, is_own_code))
    return np.where(node >= 0, np.append(tree.frame, _OUTSIDE)[node], _OUTSIDE)


class LineOfIO(NamedTuple):
    """Calls of tasks at a line of the program that load data, or are repeated in a loop.

    `chosen` selects the samples in them; `runs` and `repeats` are those of `io_calls`.
    """

    call: str
    place: str
    chosen: BoolArray
    runs: int
    repeats: int


def lines_of_io(recording: Recording) -> list[LineOfIO]:
    """Lines of the program at which tasks load data, or repeat a call in a loop."""
    table, lines = recording.io_calls, lines_of_frames(recording)
    tree = recording.call_tree
    found = []
    for line, name in dict.fromkeys(
        zip(lines.codes[table.frame].tolist(), table.call.tolist(), strict=True)
    ):
        rows = table.filter((lines.codes[table.frame] == line) & table.call.eq(name))
        place = _location(*lines.values[line])
        is_in = _with_calls(recording, np.isin(tree.frame, rows.frame))
        chosen = _samples_in(recording, is_in) & recording.samples.root.eq(Root.TASKS)
        found.append(LineOfIO(name, place, chosen, rows.runs.sum(), rows.repeats.sum()))
    return found


class CallInTasks(NamedTuple):
    """Calls of library functions in tasks.

    `name` is the function that the program calls most of the time, and `place` the line that does;
    empty if no line of the program does. `chosen` selects the samples in all of them.
    """

    name: str
    place: str
    chosen: BoolArray
    seconds: float


def call_in_tasks(
    recording: Recording, functions: str, by_libraries: bool = True
) -> CallInTasks | None:
    """Calls of functions by a pattern of ``file:function``.

    Libraries call functions of the standard library for reasons of their own: only `by_libraries`
    these count.
    """
    tree, samples = recording.call_tree, recording.samples
    is_called = _called(recording, functions)
    if not is_called.any():
        return None
    if not by_libraries:
        is_called &= _called_by_program(recording)
    parent = tree.parent.tolist()
    outermost: list[int] = []
    for node, (above, is_one) in enumerate(zip(parent, is_called.tolist(), strict=True)):
        outermost.append(
            outermost[above] if above >= 0 and outermost[above] >= 0 else node if is_one else -1
        )
    call = np.append(np.array(outermost, np.int64), -1)[samples.node]
    chosen = samples.root.eq(Root.TASKS) & (call >= 0)
    if not chosen.any():
        return None
    of_calls = np.bincount(call[chosen], samples.seconds[chosen], len(parent))
    own = innermost(tree.parent, files_of_nodes(recording, is_own_code))
    is_local = nodes_named(recording, lambda name: "<locals>" in name).tolist()
    seconds: dict[tuple[str, str], float] = {}
    lines = lines_of_frames(recording)
    for node in np.flatnonzero(of_calls).tolist():
        caller, called = int(own[parent[node]]) if parent[node] >= 0 else -1, node
        # Wrappers around functions have no names of their own.
        while caller >= 0 and parent[called] != caller and not is_local[parent[called]]:
            called = parent[called]
        name, file, _ = lines.values[lines.codes[tree.frame[called]]]
        place = _location(*lines.values[lines.codes[tree.frame[caller]]]) if caller >= 0 else ""
        known = _public_name(name, file), place
        seconds[known] = seconds.get(known, 0.0) + float(of_calls[node])
    name, place = max(seconds, key=lambda one: seconds[one])
    return CallInTasks(name, place, chosen, float(of_calls.sum()))


def _public_name(name: str, file: str) -> str:
    """Such as "DataFrame.apply", or with its package: "gzip.compress"."""
    return name if "." in name else f"{package_of(short_path(file)).removesuffix('.py')}.{name}"


def _called(recording: Recording, functions: str) -> BoolArray:
    """Select the nodes of the call tree by a pattern of ``file:function``."""
    matches = re.compile(functions).fullmatch
    names, files = recording.frames.name, recording.frames.file
    count = max(len(files.values), 1)
    pairs, pair = np.unique(_function_codes(recording), return_inverse=True)
    # Python 3.10 has no names of what a function is defined in.
    functions_of = [name.rpartition(".")[2] for name in names.values]
    paths = [short_path(file) for file in files.values]
    is_match = [bool(matches(f"{paths[n % count]}:{functions_of[n // count]}")) for n in pairs]
    return np.array(is_match, bool)[pair.reshape(-1)][recording.call_tree.frame]


def _function_codes(recording: Recording) -> IntArray:
    """A number for the function of each frame, by its name and file."""
    names, files = recording.frames.name, recording.frames.file
    return names.codes.astype(np.int64) * max(len(files.values), 1) + files.codes


def _called_by_program(recording: Recording) -> BoolArray:
    """Select the nodes that are no call of the standard library by a library."""
    parent = recording.call_tree.parent
    is_standard = files_of_nodes(recording, is_standard_library)
    caller = innermost(parent, ~is_standard)
    is_own = np.append(files_of_nodes(recording, is_own_code), True)
    return np.asarray(~is_standard | is_own[caller])


def share_in_other_packages(recording: Recording, call: CallInTasks) -> float:
    """Share of the time in calls in which other packages than those of tables do the work."""
    frame, _ = _lines_of_program(recording)
    files = [
        "" if is_own_code(file) else package_of(short_path(file))
        for file in recording.frames.file.values
    ]
    samples = recording.samples
    is_other = [bool(name) and name not in _OF_TABLES for name in files]
    codes = np.append(recording.frames.file.codes, len(files))
    # A stack without a line of the program is in no package.
    is_in = np.append(is_other, False)[codes[frame]]
    return float(samples.seconds[call.chosen & _samples_in(recording, is_in)].sum()) / call.seconds


_OF_TABLES = frozenset({"dask", "distributed", "numpy", "pandas", "pyarrow", "xarray"})
"""Packages whose calls run a function for each row or element, and the ones around them."""


def samples_in_files(recording: Recording, matches: Callable[[str], object]) -> BoolArray:
    """Select the samples with a file on the stack whose path, with slashes, matches."""
    is_in = files_of_nodes(recording, matches)
    return _samples_in(recording, _with_calls(recording, is_in))


def samples_below(recording: Recording, file: str, function: str = "") -> BoolArray:
    """Select the samples in and below a file, a short path, or a function of the file."""
    is_in = nodes_in_file(recording, file)
    if function:
        # Python 3.10 has no names of what a function is defined in.
        is_in &= nodes_named(recording, lambda name: name.rpartition(".")[2] == function)
    return _samples_in(recording, _with_calls(recording, is_in))


def line_of_samples(recording: Recording, line: ProgramLine) -> BoolArray:
    """Whether a line is the innermost line of each sample outside the standard library."""
    is_line = lines_of_frames(recording).eq((line.name, line.file, line.line))
    frame, _ = _lines_of_program(recording)
    return _samples_in(recording, np.append(is_line, False)[frame])


_WRITERS = re.compile(r"_*(?:dump|save|write)\w*")
"""Names of functions of the program that write files, and of libraries."""
_WRITES = re.compile(
    r"to_(?:csv|excel|feather|hdf|json|netcdf|orc|parquet|pickle|sql|textfiles|xml|zarr)"
    r"|(?:imsave|imwrite)\w*|create_dataset"
)
"""Names of others of libraries."""


def samples_of_writers(recording: Recording, chosen: BoolArray, least: float) -> BoolArray:
    """Select the chosen samples of functions of the program that write files.

    A function counts as a whole if its name says that it writes, or at least this share of its time
    is in calls of libraries that do: it makes what it writes. Of other functions, and of the code
    of a module, only these calls count.
    """
    tree = recording.call_tree
    is_own = files_of_nodes(recording, is_own_code)

    def named(names: re.Pattern[str]) -> BoolArray:
        return nodes_named(recording, lambda name: names.fullmatch(name.rpartition(".")[2]))

    selected = named(_WRITERS)
    writes = (selected | named(_WRITES)) & ~is_own & np.append(is_own, False)[tree.parent]
    selected = selected & is_own | writes
    function = _function_codes(recording)[tree.frame]
    is_module = nodes_named(recording, "<module>".__eq__)
    callers = np.unique(function[tree.parent[writes & ~np.append(is_module, False)[tree.parent]]])

    def below(nodes: BoolArray) -> BoolArray:
        return chosen & _samples_in(recording, _with_calls(recording, nodes))

    def seconds(nodes: BoolArray) -> float:
        return float(recording.samples.seconds[below(nodes)].sum())

    for caller in callers.tolist():
        is_caller = function == caller
        called = writes & np.append(is_caller, False)[tree.parent]
        if seconds(called) >= least * seconds(is_caller):
            selected |= is_caller
    return below(selected)


def seconds_of_profilers(recording: Recording, chosen: BoolArray) -> float:
    """The seconds of this package's own calls among chosen samples."""
    return float(recording.samples.seconds[chosen & _own_calls(recording)].sum())


def imports_and_profilers(recording: Recording) -> tuple[BoolArray, BoolArray]:
    """Select the samples of imports, and the samples of dask_diag's own calls."""
    own, (_, importing) = _own_calls(recording), _lines_of_program(recording)
    return _samples_in(recording, importing) & ~own, own


def packages_imported(recording: Recording) -> Categorical:
    """For each sample the library that the program imported then; empty for other samples.

    Of a library that imports others it is the library itself.
    """
    tree, files = recording.call_tree, recording.frames.file
    _, importing = _lines_of_program(recording)
    packages = [
        ""
        if not file or is_standard_library(file) or is_own_code(file)
        else package_of(short_path(file))
        for file in files.values
    ]
    own = [packages[code] for code in files.codes[tree.frame].tolist()]
    names: list[str] = []
    for package, above, is_import in zip(
        own, tree.parent.tolist(), importing.tolist(), strict=True
    ):
        names.append((names[above] if above >= 0 else "") or (package if is_import else ""))
    of_nodes: Categorical = Categorical.of([*names, ""])
    made: Categorical = of_nodes[recording.samples.node]
    return made


def packages_seen(recording: Recording, chosen: BoolArray) -> set[str]:
    """The libraries in the stacks of the chosen samples."""
    tree = recording.call_tree
    is_seen = np.zeros(len(tree), bool)
    is_seen[recording.samples.node[chosen & (recording.samples.node >= 0)]] = True
    # A node comes after its caller.
    for node in range(len(tree) - 1, -1, -1):
        if is_seen[node] and tree.parent[node] >= 0:
            is_seen[tree.parent[node]] = True
    files = recording.frames.file[tree.frame[is_seen]]
    return {package_of(short_path(file)) for file in set(files.tolist()) if file}


def _own_calls(recording: Recording) -> BoolArray:
    is_own = recording.frames.name.eq(OWN_CALLS)
    return _samples_in(recording, is_own[recording.call_tree.frame])


def graphs_made_before(recording: Recording) -> BoolArray:
    """Select the samples of dask making graphs before the first computation, without imports.

    These are calls of collections, of delayed functions and of a client, and what they called. A
    computation of a cluster starts when its graph arrives there: the call that makes it is before.
    """
    submits = nodes_in_file(recording, CLIENT) & nodes_named(recording, _SUBMITS.search)
    is_before = recording.samples.root.eq(Root.BEFORE) | _before_a_cluster(recording)
    return is_before & _made(recording, _in_packages(recording, ("dask",)) | submits)


def graphs_made_between(recording: Recording) -> BoolArray:
    """Select the samples of dask making graphs between computations, without imports.

    What `compute` and schedulers do after the tasks is to collect results, and to end pools.
    """
    computes = nodes_in_file(recording, "dask/base.py") & nodes_named(recording, _COMPUTES.search)
    is_between = recording.samples.root.eq(Root.BETWEEN) & ~_samples_in(
        recording, _with_calls(recording, computes)
    )
    is_between &= ~_in_schedulers(recording)
    return is_between & _made(recording, _in_packages(recording, ("dask",)))


def graphs_made_by_task(recording: Recording) -> BoolArray:
    """Select samples of dask making graphs outside of computations, which fewer tasks would save.

    To hash data, or to search lists for delayed objects, takes its time by what is passed.
    """
    made = graphs_made_before(recording) | graphs_made_between(recording)
    by_data = samples_below(recording, "dask/tokenize.py")
    return made & ~by_data & ~samples_below(recording, "dask/delayed.py", "unpack_collections")


def _made(recording: Recording, makes: BoolArray) -> BoolArray:
    """Select samples below nodes that make graphs, without imports."""
    _, importing = _lines_of_program(recording)
    in_dask = _with_calls(recording, makes)
    return _samples_in(recording, in_dask & ~importing) & ~late_samples(recording)


def _before_a_cluster(recording: Recording) -> BoolArray:
    """Select the samples of the call for the first graph to arrive at a cluster."""
    computations, samples = recording.computations, recording.samples
    start = float(computations.start.min(initial=inf))
    is_first = computations.start == start
    on_cluster = bool((is_first & computations.scheduler.eq("distributed")).any())
    return np.asarray(samples.root.eq(Root.GRAPH) & (samples.stop <= start) & on_cluster)


def late_samples(recording: Recording) -> BoolArray:
    """Select the samples with time that passed before the sampled stack.

    Where the same line was sampled several times under the same root, a late sample may be of it:
    on a busy machine many are late. A thread that computed in one call, which kept the GIL, gives
    it up where it called: only at the begin of a function it has gone on since.
    """
    samples, frames, frame = recording.samples, recording.frames, recording.call_tree.frame
    is_known = samples.node >= 0
    # A line of the scheduler, say, is no line of the time before the first computation.
    line = np.where(is_known, np.append(frame, -1)[samples.node], -1) * len(samples.root.values)
    _, line = np.unique(line + samples.root.codes, return_inverse=True)
    # After a call that kept the GIL one sample represents its time, and is of what came next. The
    # time may be in several cycles, the sample in the last one.
    seconds, counts = np.bincount(line, samples.seconds), np.bincount(line, samples.count)
    computed = np.bincount(line, np.nan_to_num(samples.cpu_seconds)) >= _COMPUTED * seconds
    begins = np.append(frames.line == frames.first_line, True)[np.append(frame, -1)[samples.node]]
    is_late = (counts < _SEVERAL) & (seconds > _LATE * counts)
    is_late &= ~computed | (np.bincount(line, begins) > 0)
    # A computation that runs is none before the first one.
    runs = _in_schedulers(recording) & samples.root.eq(Root.BEFORE)
    return np.asarray((is_known & is_late[line]) | runs)


_FILES_OF_SCHEDULERS = re.compile(r"(?:^|/)dask/(?:local|multiprocessing|threaded)\.py$")


def _in_schedulers(recording: Recording) -> BoolArray:
    """Select the samples in a local scheduler, which after its tasks ends a pool, too."""
    in_files = files_of_nodes(recording, _FILES_OF_SCHEDULERS.search)
    runs = in_files & nodes_named(recording, lambda name: name in ("get", "get_async", "get_sync"))
    return _samples_in(recording, _with_calls(recording, runs))


def samples_in_callbacks(recording: Recording) -> BoolArray:
    """Select the samples of callbacks, other than Dask's, that a local scheduler calls."""
    tree = recording.call_tree
    in_scheduler = np.append(nodes_in_file(recording, "dask/local.py"), False)
    # The file of named tuples says nothing.
    known = files_of_nodes(recording, lambda file: file not in ("", "<string>"))
    is_other = known & ~files_of_nodes(recording, is_standard_library)
    # It pickles tasks, too.
    is_other &= ~_in_packages(recording, (*_SCHEDULERS, "cloudpickle"))
    calls = _with_calls(recording, is_other & in_scheduler[tree.parent])
    return _samples_in(recording, calls) & recording.samples.root.eq(Root.SCHEDULER)


def seconds_waiting_for_threads(recording: Recording) -> float:
    """Seconds without CPU of tasks in calls that wait for another thread.

    What was not sampled of tasks is divided as the rest is.
    """
    frames, tree, samples = recording.frames, recording.call_tree, recording.samples
    is_wait = frames.name.is_in(_WAITS_FOR_THREADS)[tree.frame]
    is_wait &= files_of_nodes(recording, _THREADING.search)
    locks = files_of_nodes(recording, lambda file: _LOCKS_OF_CLUSTERS.match(short_path(file)))
    is_wait = _with_calls(recording, is_wait) & ~_with_calls(recording, locks)
    waits = _samples_in(recording, is_wait)
    of_tasks = samples.root.eq(Root.TASKS)
    sampled = samples.seconds[of_tasks & (samples.node >= 0)].sum()
    without_cpu = np.maximum(np.nan_to_num(samples.seconds - samples.cpu_seconds), 0.0)
    waited = without_cpu[of_tasks & waits].sum()
    return float(waited / sampled * samples.seconds[of_tasks].sum()) if sampled else 0.0


def waits_for_own_threads(recording: Recording) -> BoolArray:
    """Select samples of calls that wait for a thread of the program, and not of a library."""
    frames, tree = recording.frames, recording.call_tree
    is_wait = frames.name.is_in(_WAITS_FOR_THREADS)[tree.frame]
    is_wait &= files_of_nodes(recording, _THREADING.search)
    callers = innermost(
        tree.parent, files_of_nodes(recording, lambda f: not is_standard_library(f))
    )
    own = files_of_nodes(recording, is_own_code)
    is_waiting = innermost(tree.parent, is_wait) > callers
    return _samples_in(recording, is_waiting & np.append(own, False)[callers])


class BusyThread(NamedTuple):
    """A Python thread that ran no task: its name, and seconds in which it had or wanted a CPU."""

    name: str
    seconds: float
    lines: list[ProgramLine]


def busiest_thread(recording: Recording) -> BusyThread | None:
    """The other thread that was busy for longest while tasks ran, if any was sampled."""
    samples, parent = recording.samples, recording.call_tree.parent
    rows = np.flatnonzero(samples.root.eq(Root.THREADS) & (samples.node >= 0))
    if not len(rows):
        return None
    outermost = np.arange(len(parent))
    for node in np.flatnonzero(parent >= 0).tolist():
        outermost[node] = outermost[parent[node]]
    names = recording.frames.name[recording.call_tree.frame[outermost[samples.node]]]
    seconds = np.zeros(len(samples))
    seconds[rows] = samples.seconds[rows]
    longest = int(sums_by(names, seconds).argmax())
    seconds[names.codes != longest] = 0.0
    name = names.values[longest].removeprefix("(thread ").removesuffix(")")
    return BusyThread(name, float(seconds.sum()), program_lines(recording, seconds))


def cpu_share_of_linear_algebra(recording: Recording) -> float:
    """The share of the tasks' CPU seconds in calls of LAPACK by NumPy or SciPy; NaN if unknown.

    A native function is not on the stack: its caller's line is.
    """
    samples = recording.samples
    is_call = files_of_nodes(recording, lambda file: _LINEAR_ALGEBRA.match(short_path(file)))
    cpu = np.nan_to_num(samples.cpu_seconds) * samples_of_tasks(recording)
    return float(cpu[_samples_in(recording, is_call)].sum() / cpu.sum()) if cpu.sum() else nan


def files_of_nodes(recording: Recording, matches: Callable[[str], object]) -> BoolArray:
    """Select the nodes of the call tree by file, a path with slashes."""
    return _nodes(recording, recording.frames.file, lambda file: matches(file.replace("\\", "/")))


def nodes_in_file(recording: Recording, file: str) -> BoolArray:
    """Select the nodes of the call tree in a file, a short path."""
    return files_of_nodes(recording, lambda path: short_path(path) == file)


def nodes_named(recording: Recording, matches: Callable[[str], object]) -> BoolArray:
    """Select the nodes of the call tree by the name of the function."""
    return _nodes(recording, recording.frames.name, matches)


def _nodes(
    recording: Recording, labels: Categorical, matches: Callable[[str], object]
) -> BoolArray:
    mask = np.array([bool(matches(label)) for label in labels.values], bool)
    return mask[labels.codes][recording.call_tree.frame]


def _in_packages(recording: Recording, packages: Collection[str]) -> BoolArray:
    return files_of_nodes(recording, lambda file: package_of(short_path(file)) in packages)


def samples_of_tasks(recording: Recording) -> BoolArray:
    """Select the samples of tasks that have a stack."""
    return recording.samples.root.eq(Root.TASKS) & (recording.samples.node >= 0)


def _with_calls(recording: Recording, nodes: BoolArray) -> BoolArray:
    """Select nodes of the call tree and all that they called."""
    return innermost(recording.call_tree.parent, nodes) >= 0


def _samples_in(recording: Recording, nodes: BoolArray) -> BoolArray:
    """Select the samples with a stack that ends in one of the nodes."""
    return np.append(nodes, False)[recording.samples.node]


def _lines_of_program(
    recording: Recording, besides: Collection[str] = ()
) -> tuple[IntArray, BoolArray]:
    """The program's frame for each node of the call tree, and whether the line imports.

    Frames of the standard library, and of the packages `besides`, are not the program's.
    """
    tree = recording.call_tree
    imports = files_of_nodes(recording, _IMPORT_SYSTEM.search)
    importing = _with_calls(recording, imports)
    is_library = files_of_nodes(recording, is_standard_library) | _in_packages(recording, besides)
    node = innermost(tree.parent, ~importing & ~is_library)
    return np.where(node >= 0, np.append(tree.frame, _OUTSIDE)[node], _OUTSIDE), importing


def lines_of_nodes(recording: Recording, nodes: Table) -> IntArray:
    """For each node of a tree the line of the function with most time, calls included.

    Parameters
    ----------
    recording : Recording
    nodes : Table
        Nodes returned by `dask_diag.call_tree`.

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
    """The lines with most self time without waiting, the hottest first.

    The columns are those of `dask_diag.hottest_lines`. Where it is not known
    whether a line waited, it counts as computing.
    """
    lines = hottest_lines(recording, len(recording.frames), selection)
    if not len(lines):
        return lines
    hot = lines["wall"] - lines["waiting"]
    order = np.argsort(-hot, kind="stable")[:count]
    return lines.filter(order[hot[order] > _ROUNDING * lines["wall"].sum()])


def waiting_lines(
    recording: Recording, count: int = 10, selection: Selection = ALL_SAMPLES
) -> Table:
    """The lines with the longest waits, the longest first.

    A wait is in ``Condition.wait`` or the like, whatever it is for: it is named by the innermost
    line outside Python's standard library, dask and distributed.

    Parameters
    ----------
    recording : Recording
    count : int
        Largest number of lines.
    selection : Selection, optional

    Returns
    -------
    Table
        ``name`` (function), ``file``, ``line``; ``waiting`` (seconds) and ``inner``, the name of
        the innermost call in which most of them passed.
    """
    samples, stacks = recording.samples, recording.call_tree
    seconds = measures(samples, selection.shares(samples))[:, _WAITING]
    rows = np.flatnonzero((samples.node >= 0) & (seconds > 0))
    if not len(rows):
        return Table({})
    node, waited = samples.node[rows], seconds[rows]
    inside = files_of_nodes(recording, is_standard_library) | _in_packages(recording, _SCHEDULERS)
    outside = innermost(stacks.parent, ~inside)[node]
    lines, names = lines_of_frames(recording), recording.frames.name
    line = lines.codes[stacks.frame[np.where(outside < 0, node, outside)]]
    inner = names.codes[stacks.frame[node]]
    of_line = np.bincount(line, waited, len(lines.values))
    longest = np.argsort(-of_line, kind="stable")[:count]
    longest = longest[of_line[longest] > 0]
    # One line may wait in several ways: the one with most seconds is named.
    of_inner = (np.bincount(inner[line == one], waited[line == one]) for one in longest)
    return table_of_lines(
        Categorical(longest, lines.values),
        {
            "waiting": of_line[longest],
            "inner": Categorical([sums.argmax() for sums in of_inner], names.values),
        },
    )
