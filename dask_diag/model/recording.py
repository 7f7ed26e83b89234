"""Recordings: measurements in frozen columns, without user data; and several recordings as one.

Combining has two steps. First the recordings get one clock, one name for each worker, and one label
for each block with samples of memory. Then rows of an earlier recording are left out of each table,
and references between tables get the new positions, by the schema.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import getattr_static
from itertools import combinations
from math import inf, isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast

import numpy as np

from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray
from dask_diag.errors import DiagnosticError
from dask_diag.formatting import counted, seconds
from dask_diag.model import codes
from dask_diag.model.table import NO_ROWS, stack
from dask_diag.model.tables import (
    GROUPS,
    TABLES,
    Allocations,
    Branches,
    CachedResults,
    Calls,
    CallTree,
    Chunks,
    Computations,
    Dependencies,
    Environment,
    Frames,
    IoCalls,
    Joined,
    Lines,
    Memory,
    Metrics,
    OtherTasks,
    Planned,
    Pools,
    Processes,
    Progress,
    Quotas,
    RecordingTable,
    RepeatedSteps,
    ResourceLimits,
    Resources,
    Samples,
    Steps,
    Tasks,
    Threads,
    Transfers,
    Waits,
    WorkerEvents,
    Workers,
)

if TYPE_CHECKING:
    # The methods that call public functions are the one way from the model up.
    import dask_diag

STATES = tuple(codes.STATES)
"""States of a recording, from good to bad."""


_NO_ROWS: Any = NO_ROWS
"""In place of the empty table of any kind."""


@dataclass(frozen=True, repr=False, eq=False)
class Recording:
    """Measurements of one block, or of one profiler since it was cleared; frozen.

    Each attribute that is a table has a row for each thing measured, and no rows if nothing was
    measured. The page *Tables and columns* of the documentation lists all columns with units. Times
    are seconds of ``time.perf_counter()``; add `epoch` for seconds since 1970. An unknown number is
    NaN.

    Get one from `load`, from the attribute ``recording`` of a profiler or of `record`, or from
    `combine`.

    Attributes
    ----------
    start, stop : float
        Start and stop of the recorded block.
    epoch : float
        Seconds to add to times for seconds since 1970.
    computations : Table
        A row per computation.
    planned : Table
        A row per computation and function: the number of tasks that the scheduler was to run.
    progress : Table
        A row per computation that was still running: how many tasks had finished.
    calls : Table
        A row per call of `dask.compute` or `dask.persist` that returned, without an error.
    joined : Table
        A row per computation that ran already when `dask-diag attach` came to its program.
    repeated_steps : Table
        A row per computation, function and step of its fused tasks, if steps of them ran before.
    resource_limits : Table
        A row per computation on a cluster, function and resource that its tasks need: how many of
        them a worker runs at once.
    tasks : Table
        A row per task that was submitted.
    dependencies : Table
        A row per dependency of a task on another task's result.
    metrics : Table
        A row per metric that a task reported through `context_meter`.
    resources : Table
        A row per sample of a `ResourceProfiler`.
    processes : Table
        A row per process and sample of `resources`, and for samples of memory between tasks.
    memory : Table
        A row per sample of a `MemorySampler`.
    allocations : Table
        A row per line of code that allocated memory in use near the peak, with
        ``MemorySampler(trace=True)`` or ``record(trace_memory=True)``.
    cached_results : Table
        A row per result that the scheduler cached.
    transfers : Table
        A row per serialization or deserialization of a task or result, and per transfer between
        workers of a cluster.
    pools : Table
        A row per native thread pool at the end of a computation. Without threadpoolctl, one row
        without a name and with 0 threads.
    quotas : Table
        A row per computation of a process whose CPU time is limited, as in a container.
    workers : Table
        A row per worker of a cluster, or per computation and worker process.
    other_tasks : Table
        A row per task of a client that was not recorded, on a worker of the recorded cluster.
    worker_events : Table
        A row per pause of a worker of a cluster, and per spill or unspill of results.
    threads : Table
        A row per computation, process and group of threads that used CPU.
    waits : Table
        A row per reason why a task was off the CPU, with ``Profiler(waits=True)``. The seconds of
        ``cpu-wait`` are exact, and 0 for a task without a row in a computation that has such rows.
        Other seconds are those that the samples represent. A sample of a task that waits for the
        GIL represents nothing if the task ran shortly before: the sampler itself may have taken the
        GIL.
    frames : Table
        A row per sampled line of code.
    io_calls : Table
        A row per sampled line of the program's code that loads data, or commits in a loop.
    call_tree : Table
        A row per node of the tree of calls.
    samples : Table
        A row per cycle, root, function, key and call stack. A task has rows of its own if at least
        a quarter of a cycle of the task was sampled; shorter tasks are summed under an empty key.
    lines : Table
        A row per line of the user's code that built work of dask, and per line that called it.
        `dask_diag.lines` sums up the tasks of each line.
    steps : Table
        A row per kind of tasks and step of them, with the line that built it.
    environment : Table
        A row per fact about the environment. Configuration entries that look like secrets are
        omitted; in values and in the calling code, text that looks like a secret is masked
        (``'…'``).
    chunks : Table
        A row per run of a task that processed a chunk of events of coffea's ``Runner``.
    branches : Table
        A row per file of these chunks and branch that was read, and per file as a whole.
    metric : str
        Name of the metric in ``cached_results.metric``.
    metric_unit : str
        Unit of that metric, such as ``bytes``; empty for a number without a unit.
    notices : tuple of str
        Sentences that a reader of the numbers should know.
    run_id : str
        Random id of the recording process, the same for all recordings of one run; several ids,
        separated by commas, in a combination of several runs.
    state : {"complete", "truncated", "damaged"}
        ``truncated`` if the file was not closed, because its process was killed or still writes it;
        ``damaged`` if bytes of the file changed. Either way the rest of the data is missing. A
        combination has the worst state of its parts.

    Raises
    ------
    SchemaError
        If a table does not have the columns of the schema.
    DiagnosticError
        If the state is unknown.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_diag import Profiler
    >>> with Profiler() as prof:
    ...     total = da.ones((400, 400), chunks=(200, 200)).sum().compute()
    >>> recording = prof.recording
    >>> len(recording.computations), set(recording.tasks.outcome.tolist())
    (1, {'ok'})
    """

    start: float
    stop: float
    epoch: float
    computations: Computations = _NO_ROWS
    tasks: Tasks = _NO_ROWS
    dependencies: Dependencies = _NO_ROWS
    metrics: Metrics = _NO_ROWS
    resources: Resources = _NO_ROWS
    cached_results: CachedResults = _NO_ROWS
    processes: Processes = _NO_ROWS
    memory: Memory = _NO_ROWS
    allocations: Allocations = _NO_ROWS
    transfers: Transfers = _NO_ROWS
    waits: Waits = _NO_ROWS
    pools: Pools = _NO_ROWS
    quotas: Quotas = _NO_ROWS
    workers: Workers = _NO_ROWS
    other_tasks: OtherTasks = _NO_ROWS
    worker_events: WorkerEvents = _NO_ROWS
    threads: Threads = _NO_ROWS
    frames: Frames = _NO_ROWS
    io_calls: IoCalls = _NO_ROWS
    call_tree: CallTree = _NO_ROWS
    samples: Samples = _NO_ROWS
    lines: Lines = _NO_ROWS
    steps: Steps = _NO_ROWS
    planned: Planned = _NO_ROWS
    progress: Progress = _NO_ROWS
    calls: Calls = _NO_ROWS
    joined: Joined = _NO_ROWS
    repeated_steps: RepeatedSteps = _NO_ROWS
    resource_limits: ResourceLimits = _NO_ROWS
    environment: Environment = _NO_ROWS
    chunks: Chunks = _NO_ROWS
    branches: Branches = _NO_ROWS
    metric: str = ""
    metric_unit: str = ""
    notices: tuple[str, ...] = ()
    run_id: str = ""
    state: str = STATES[0]

    def __post_init__(self) -> None:
        for name, kind in TABLES.items():
            object.__setattr__(self, name, kind.of(getattr(self, name)))
        if self.state not in STATES:
            raise DiagnosticError(f"state: expected one of {STATES}, found {self.state!r}")

    @classmethod
    def combine(cls, sources: Iterable[Source]) -> Recording:
        """Combine several recordings: see `dask_diag.combine`."""
        return combine(sources)

    def summary(self, *, verbose: bool = False, by: str = "function") -> str:
        """Table of the measurements by function or line: see `dask_diag.summary`."""
        import dask_diag

        return dask_diag.summary(self, verbose=verbose, by=by)

    def findings(self) -> list[dask_diag.Finding]:
        """Causes of lost time, the worst first: see `dask_diag.findings`."""
        import dask_diag

        return dask_diag.findings(self)

    def report(
        self,
        path: str | os.PathLike[str] = "dask-report.html",
        mode: str | None = None,
        *,
        overwrite: bool = False,
    ) -> Path:
        """Write a report about the recording: see `dask_diag.report`."""
        import dask_diag

        return dask_diag.report(self, path, mode, overwrite=overwrite)

    @property
    def is_complete(self) -> bool:
        """Whether the recording has all measurements: its `state` is ``complete``."""
        return self.state == STATES[0]

    def __repr__(self) -> str:
        tables = self.tables().items()
        counts = ", ".join(f"{name}: {len(table):,}" for name, table in tables if len(table))
        state = "" if self.is_complete else f", {self.state}"
        return f"<Recording of {seconds(self.stop - self.start)}{state}; {counts or 'no rows'}>"

    def _repr_html_(self) -> str:
        import dask_diag

        return dask_diag.summary(self)._repr_html_()

    def tables(self) -> dict[str, RecordingTable]:
        """All tables by name, empty ones included."""
        return {name: getattr(self, name) for name in TABLES}


def combine(sources: Iterable[Source]) -> Recording:
    """Combine recordings of the same block, or of successive blocks, into one.

    Computations and memory series that occur in several recordings are included once; different
    series with the same label are numbered (``"load (2)"``). Notices name the rows that are left
    out. Times are converted to the clock of the first recording; a recording with another clock is
    placed by the time of day.

    Parameters
    ----------
    sources : iterable of Recording or profiler
        At least one.

    Returns
    -------
    Recording

    Raises
    ------
    DiagnosticError
        If `sources` is empty, or contains anything else than recordings and profilers.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_diag import Profiler, ResourceProfiler, combine
    >>> with Profiler() as prof, ResourceProfiler(dt=0.1) as rprof:
    ...     total = da.ones((500, 500), chunks=(250, 250)).sum().compute()
    >>> both = combine([prof, rprof])
    >>> len(both.tasks) > 0 and len(both.resources) > 0
    True
    """
    several, notices_on_clocks = _align_clocks(recordings_of(sources))
    several, metric, unit, notices_on_metrics = _select_metric(several)
    several, known_best = _name_workers(_label_blocks(several))
    repeats: _Repeats = {}
    masks = {name: [np.ones(len(r.tables()[name]), bool) for r in several] for name in TABLES}
    for name, is_repeated in _TABLES_BY_COMPUTATION.items():
        masks[name] = _masks_per_computation(several, name, repeats if is_repeated else {})
    masks["samples"] = _stack_masks(several, repeats)
    masks[GROUPS] = [_mask_of_groups(*part) for part in zip(several, masks["tasks"], strict=True)]
    masks["resources"], masks["processes"] = _resource_masks(several)
    masks["workers"] = known_best
    masks["other_tasks"] = _event_masks(several, "other_tasks")
    masks["worker_events"] = _event_masks(several, "worker_events")
    masks["calls"] = _call_masks(several)
    masks["environment"], notices_on_environments = _environment_masks(several)
    notices = (
        *(text for recording in several for text in recording.notices),
        *_notices_on_repeats(repeats),
        *notices_on_metrics,
        *_notices_on_resources(several, masks),
        *_notices_on_programs(several),
        *notices_on_environments,
        *notices_on_clocks,
    )
    return Recording(
        start=min(recording.start for recording in several),
        stop=max(recording.stop for recording in several),
        epoch=several[0].epoch,
        metric=metric,
        metric_unit=unit,
        notices=tuple(dict.fromkeys(notices)),
        run_id=",".join(dict.fromkeys(run for recording in several for run in _runs_of(recording))),
        state=worst_state(recording.state for recording in several),
        **_joined(several, masks),  # type: ignore[arg-type]
    )


_Masks = list[BoolArray]
"""For each recording, which rows of one of its tables are kept."""
_Repeats = dict[str, set[int]]
"""The computations that several recordings have, and which recordings these are."""

T = TypeVar("T", bound=RecordingTable)

# All profilers have the computations of a block and their threads: no repetition.
_TABLES_BY_COMPUTATION = {
    **dict.fromkeys(("computations", "planned", "progress", "pools", "quotas"), False),
    **dict.fromkeys(("joined", "repeated_steps", "resource_limits", "threads"), False),
    **dict.fromkeys(("tasks", "cached_results"), True),
    **dict.fromkeys(("memory", "allocations"), False),
}
"""Tables of rows of a computation or label, and whether it tells of repetitions."""
_DROPPED = -2
"""The new position of a row that is left out; -1 refers to no row, before and after."""


def _joined(
    recordings: Sequence[Recording], masks: Mapping[str, _Masks]
) -> dict[str, RecordingTable]:
    """The kept rows of all recordings, with new positions in references."""
    kept: dict[str, list[RecordingTable]] = {name: [] for name in TABLES}
    counts = dict.fromkeys(("tasks", "frames", "call_tree", "lines", GROUPS), 0)
    for index, recording in enumerate(recordings):
        positions = {}
        for name, before in counts.items():
            mask = masks[name][index]
            position = np.where(mask, np.cumsum(mask) - 1 + before, _DROPPED)
            positions[name] = np.append(position, -1)
            counts[name] += int(mask.sum())
        for name, table in recording.tables().items():
            mask = masks[name][index]
            rows = table if mask.all() else table.filter(mask)
            kept[name].append(_reindexed(rows, positions))
    tables = {name: stack(rows) for name, rows in kept.items()}
    tables["transfers"] = _drop_repeated_transfers(tables["transfers"])
    return tables | {name: _sorted_by_time(tables[name]) for name in ("resources", "processes")}


def _mask_of_groups(recording: Recording, kept_tasks: BoolArray) -> BoolArray:
    """Leave out groups without a task that is kept."""
    groups = recording.tasks.group
    most = max(int(column.max(initial=-1)) for column in (groups, recording.steps.group))
    return np.isin(np.arange(most + 1), groups[kept_tasks])


def _reindexed(table: T, positions: Mapping[str, IntArray]) -> T:
    """The rows with references to kept rows only, with new positions."""
    columns = {
        column.name: positions[column.refers_to][table[column.name]]
        for column in table.schema.values()
        if column.refers_to in positions
    }
    if not columns:
        return table
    kept = np.logical_and.reduce([values != _DROPPED for values in columns.values()])
    return table.filter(kept).replacing({name: values[kept] for name, values in columns.items()})


def _sorted_by_time(table: RecordingTable) -> RecordingTable:
    if (np.diff(table["time"]) >= 0).all():
        return table
    return table.filter(np.argsort(table["time"], kind="stable"))


def worst_state(states: Iterable[str]) -> str:
    """The worst of several states."""
    return max(states, key=STATES.index)


def _runs_of(recording: Recording) -> list[str]:
    return [run for run in recording.run_id.split(",") if run]


def _share_a_run(one: Recording, two: Recording) -> bool:
    return not set(_runs_of(one)).isdisjoint(_runs_of(two))


def _masks_per_computation(recordings: Sequence[Recording], name: str, repeats: _Repeats) -> _Masks:
    """Masks that keep the rows of a computation, or of a label, in the recording with most rows.

    A computation that still ran when it was recorded, or whose file was truncated, may have fewer
    rows in one recording than in another. Of recordings with equally many rows, and of allocations
    (one snapshot in each recording), the recording that stopped last counts. Positions refer to
    whole tables, so that a computation's rows are those of one recording.
    """
    tables = [recording.tables()[name] for recording in recordings]
    by = "label" if "label" in TABLES[name].schema else "computation"
    found: dict[str, dict[int, tuple[int, float, int]]] = {}
    for index, (recording, table) in enumerate(zip(recordings, tables, strict=True)):
        column: Categorical = table[by]
        for code, count in enumerate(np.bincount(column.codes).tolist()):
            if count:
                rank = (1 if name == "allocations" else count, recording.stop, -index)
                found.setdefault(column.values[code], {})[index] = rank
    recording_with = {label: max(ranks, key=ranks.__getitem__) for label, ranks in found.items()}
    for label, ranks in found.items():
        if len(ranks) > 1:
            repeats.setdefault(label, set()).update(ranks)
    return [
        table[by].is_in({label for label, best in recording_with.items() if best == index})
        for index, table in enumerate(tables)
    ]


def _notices_on_repeats(repeats: _Repeats) -> Iterator[str]:
    if repeats:
        recordings = len(set().union(*repeats.values()))
        what = "computation; it is" if len(repeats) == 1 else "computations; they are"
        yield f"{recordings} recordings recorded the same {len(repeats):,} {what} counted once"


_CLOCK_SET = 60.0
"""Seconds by which the time of day may have been set while one clock went on."""


def _align_clocks(recordings: Sequence[Recording]) -> tuple[list[Recording], list[str]]:
    """The recordings on the clock of the first, and a notice on different clocks."""
    offsets = [_clock_offset(recordings[0], recording) for recording in recordings]
    others = sum(map(bool, offsets))
    notice = (
        f"{others} of {len(recordings)} recordings {'has' if others == 1 else 'have'} another "
        "clock, such as after a restart of the machine; times are placed by the time of day"
    )
    shifted = [
        _shifted(recording, offset) for recording, offset in zip(recordings, offsets, strict=True)
    ]
    return shifted, [notice] if others else []


def _clock_offset(first: Recording, recording: Recording) -> float:
    """Seconds to add to the times of a recording; 0 for an equal or unknown clock."""
    # An epoch is the time of day minus the time of the clock: two epochs differ by as much as
    # their clocks.
    offset = recording.epoch - first.epoch
    is_known = bool(first.epoch and recording.epoch)
    is_same_run = bool(_runs_of(recording)) and _runs_of(recording) == _runs_of(first)
    return offset if is_known and not is_same_run and abs(offset) > _CLOCK_SET else 0.0


def _shifted(recording: Recording, offset: float) -> Recording:
    if not offset:
        return recording
    tables = {
        name: table.replacing(
            {c.name: table[c.name] + offset for c in table.schema.values() if c.is_time}
        )
        for name, table in recording.tables().items()
    }
    return replace(
        recording,
        start=recording.start + offset,
        stop=recording.stop + offset,
        epoch=recording.epoch - offset,
        **tables,  # type: ignore[arg-type]
    )


def _select_metric(
    recordings: Sequence[Recording],
) -> tuple[list[Recording], str, str, list[str]]:
    """The recordings with results of a single metric, the metric and unit, and notices."""
    filled = [recording for recording in recordings if len(recording.cached_results)]
    first = next(
        (recording for recording in filled or recordings if filled or recording.metric),
        recordings[0],
    )
    metric = first.metric
    left_out: Counter[str] = Counter()
    for recording in filled:
        if recording.metric != metric:
            left_out[recording.metric] += len(recording.cached_results)
    notices = [
        f"left out {counted(rows, 'cached result')} measured as {other or 'nameless'}: a "
        f"combination has one metric, here {metric or 'a nameless one'}; look at the recording "
        f"with {other or 'the other'} separately"
        for other, rows in left_out.items()
    ]
    with_one = [
        recording if recording.metric == metric else replace(recording, cached_results=_NO_ROWS)
        for recording in recordings
    ]
    return with_one, metric, first.metric_unit, notices


def _environment_masks(recordings: Sequence[Recording]) -> tuple[_Masks, list[str]]:
    """Masks of the first environment, and a notice on differences."""
    filled = [index for index, recording in enumerate(recordings) if len(recording.environment)]
    masks = [
        np.full(len(recording.environment), [index] == filled[:1])
        for index, recording in enumerate(recordings)
    ]
    facts = [{tuple(row.values()) for row in recordings[i].environment.to_dicts()} for i in filled]
    differing = sorted({fact[0] for others in facts[1:] for fact in others ^ facts[0]})
    names = ", ".join(differing)
    notice = f"the environment is that of the first recording; others differ in {names}"
    return masks, [notice] if differing else []


def _label_blocks(recordings: Sequence[Recording]) -> list[Recording]:
    """The recordings with a unique label for each block with samples of memory.

    Blocks are identified by label and first sample; a whole recording by the start.
    """
    labels: dict[tuple[str, float], str] = {}
    starts: list[dict[str, float]] = [{} for _ in recordings]
    tables: list[dict[str, RecordingTable]] = [{} for _ in recordings]
    for name in ("memory", "allocations"):
        for recording, start_of, renamed in zip(recordings, starts, tables, strict=True):
            table = recording.tables()[name]
            column: Categorical = table["label"]
            values = list(column.values)
            for code in np.unique(column.codes).tolist():
                label = values[code]
                if name == "memory":
                    start_of[label] = float(table["time"][np.argmax(column.codes == code)])
                block = label, start_of.get(label, recording.start)
                if block not in labels:
                    labels[block] = _unused(label, labels.values())
                values[code] = labels[block]
            renamed[name] = table.replacing({"label": Categorical(column.codes, values)})
    return [replace(recording, **new) for recording, new in zip(recordings, tables, strict=True)]  # type: ignore[arg-type]


_NUMBERED = re.compile(r" \(\d+\)$")


def _unused(name: str, used: Container[str]) -> str:
    """The name, with a number added to a used name."""
    base, count = name, 1
    while name in used:
        count += 1
        name = f"{_NUMBERED.sub('', base)} ({count})".strip()
    return name


def _stack_masks(recordings: Sequence[Recording], repeats: _Repeats) -> _Masks:
    """Masks of stack samples, without times sampled by an earlier recording."""
    masks: _Masks = []
    earlier: list[tuple[int, set[str], float, float]] = []
    for index, recording in enumerate(recordings):
        samples, names = recording.samples, set(recording.computations.computation.values)
        masks.append(np.ones(len(samples), bool))
        if not len(samples):
            continue
        middle = (samples.start + samples.stop) / 2
        for other, other_names, start, stop in earlier:
            repeated = (start <= middle) & (middle <= stop)
            if not names.isdisjoint(other_names) and repeated.any():
                masks[-1] &= ~repeated
                for name in names & other_names:
                    repeats.setdefault(name, set()).update((other, index))
        earlier.append((index, names, float(samples.start.min()), float(samples.stop.max())))
    return masks


_PAUSE = 2.0
"""Times the usual interval between samples, from which on sampling had paused."""


def _resource_masks(recordings: Sequence[Recording]) -> tuple[_Masks, _Masks]:
    """Masks of the samples of resources and of processes.

    Samples of time that an earlier recording of the same run sampled are left out. Memory of a
    process goes with the sample in whose time it was read, or with the last sample.
    """
    sample_masks: _Masks = []
    process_masks: _Masks = []
    sampled: list[tuple[FloatArray, FloatArray]] = []
    for recording in recordings:
        times, read = np.sort(recording.resources.time), recording.processes.time
        starts = _starts_of_samples(times, np.sort(read))
        middle = (starts + times) / 2
        repeated, read_before = np.zeros(len(times), bool), np.zeros(len(read), bool)
        for other, (other_starts, other_stops) in zip(recordings, sampled, strict=False):
            if _share_a_run(recording, other):
                next_stop = np.searchsorted(other_stops, middle)
                repeated |= np.append(other_starts, inf)[next_stop] <= middle
                read_before |= np.isin(read, other.processes.time)
        sampled.append((starts[~repeated], times[~repeated]))
        sample_masks.append(~repeated[np.searchsorted(times, recording.resources.time)])
        if len(times):
            sample = np.minimum(np.searchsorted(times, read), len(times) - 1)
            read_before |= repeated[sample]
        process_masks.append(~read_before)
    return sample_masks, process_masks


def _starts_of_samples(times: FloatArray, read: FloatArray) -> FloatArray:
    """Starts of the time represented by each sample: the sample before, or the end of a pause."""
    before = np.append(-inf, times[:-1])[: len(times)]
    lasted = times - before
    # Before the first sample there was a pause.
    usual = np.median(lasted[1:]) if len(times) > 1 else 0.0
    # Processes are read at once when sampling begins.
    resumed = np.append(read, inf)[np.searchsorted(read, before, "right")]
    return np.where(lasted > _PAUSE * usual, np.minimum(resumed, times), before)


def _notices_on_resources(
    recordings: Sequence[Recording], masks: Mapping[str, _Masks]
) -> Iterator[str]:
    left_out = [
        counted(number, f"{kind} sample")
        for name, kind in (("resources", "resource"), ("processes", "process"))
        if (number := sum(int((~mask).sum()) for mask in masks[name]))
    ]
    if left_out:
        yield f"left out {' and '.join(left_out)}: another recording has samples of the same time"
    kept = [
        (recording, recording.resources.time[mask])
        for recording, mask in zip(recordings, masks["resources"], strict=True)
        if mask.any()
    ]
    if any(
        not _share_a_run(one, two) and a.min() < b.max() and b.min() < a.max()
        for (one, a), (two, b) in combinations(kept, 2)
    ):
        yield (
            "resource samples of different runs overlap in time: each row is of one run; do not "
            "add rows up"
        )


class _Worker:
    """A worker of a cluster in several recordings.

    Attributes
    ----------
    left : float
        NaN as long as no recording knows when the worker left.
    until : float
        Time when a recording had the worker last.
    rows : dict of int to int
        The row of the worker in the table of each recording, by the index of the recording.
    """

    def __init__(self, cluster: str, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.joined, self.left, self.until = inf, nan, -inf
        self.rows: dict[int, int] = {}
        self._ranks: dict[int, tuple[bool, bool, float]] = {}

    def add(self, index: int, row: int, facts: Mapping[str, float], stop: float) -> None:
        """Add the row of another recording."""
        self.rows[index] = row
        self.joined = min(self.joined, facts["joined"])
        has_left = not isnan(facts["left"])
        if has_left:
            self.left = facts["left"]
        self.until = max(self.until, stop if isnan(self.left) else self.left)
        self._ranks[index] = (has_left, facts["pid"] != 0, stop)

    def was_present(self, joined: float, until: float) -> bool:
        """Whether the worker was present in [joined, until)."""
        return joined < self.until and self.joined < until

    @property
    def best(self) -> int:
        """The index of the recording that knows most about the worker."""
        return max(self._ranks, key=lambda index: (self._ranks[index], index))


def _name_workers(recordings: Sequence[Recording]) -> tuple[list[Recording], _Masks]:
    """The recordings with a unique name for each worker of a cluster, and masks of workers.

    Workers of local schedulers have no address, and rows for each computation.
    """
    at: dict[tuple[str, str], list[_Worker]] = {}
    names: list[dict[str, _Worker]] = [{} for _ in recordings]
    for index, recording in enumerate(recordings):
        for row, facts in enumerate(recording.workers.to_dicts()):
            if not facts["address"]:
                continue
            until = recording.stop if isnan(facts["left"]) else facts["left"]
            at_address = at.setdefault((facts["computation"], facts["address"]), [])
            # At most one worker uses an address at a time; two rows of a recording are two workers.
            worker = next(
                (
                    candidate
                    for candidate in at_address
                    if index not in candidate.rows and candidate.was_present(facts["joined"], until)
                ),
                None,
            )
            if worker is None:
                worker = _Worker(facts["computation"], facts["worker"])
                at_address.append(worker)
            worker.add(index, row, facts, recording.stop)
            names[index][facts["worker"]] = worker
    workers = [worker for at_address in at.values() for worker in at_address]
    used: set[str] = set()
    for worker in workers:
        worker.name = _unused(worker.name, used)
        used.add(worker.name)
        # A recording has all workers of a cluster: a worker that a later one lacks had left before.
        of_cluster = {i for other in workers if other.cluster == worker.cluster for i in other.rows}
        if isnan(worker.left) and any(recordings[i].start >= worker.until for i in of_cluster):
            worker.left = worker.until
    masks = _masks_per_computation(recordings, "workers", {})
    renamed = []
    for index, recording in enumerate(recordings):
        joined, left = recording.workers.joined.copy(), recording.workers.left.copy()
        for worker in workers:
            if (known := worker.rows.get(index)) is not None:
                masks[index][known] = worker.best == index
                joined[known], left[known] = worker.joined, worker.left
        table = recording.workers.replacing({"joined": joined, "left": left})
        renamed.append(_renamed(replace(recording, workers=table), names[index]))
    return renamed, masks


def _renamed(recording: Recording, workers: Mapping[str, _Worker]) -> Recording:
    """The recording with the unique names of workers."""
    names = {name: worker.name for name, worker in workers.items() if worker.name != name}
    if not names:
        return recording
    tables = {}
    for name, table in recording.tables().items():
        columns = {}
        for column in table.schema.values():
            if column.refers_to == "workers":
                labels: Categorical = table[column.name]
                values = [_renamed_label(value, names) for value in labels.values]
                columns[column.name] = Categorical(labels.codes, values)
        tables[name] = table.replacing(columns)
    return replace(recording, **tables)  # type: ignore[arg-type]


def _renamed_label(label: str, names: Mapping[str, str]) -> str:
    """The label of a worker, of one of its threads, or of several workers in a process."""
    worker, slash, thread = label.rpartition("/")
    if label not in names and worker in names:
        return f"{names[worker]}{slash}{thread}"
    return ", ".join(names.get(name, name) for name in label.split(", "))


def _call_masks(recordings: Sequence[Recording]) -> _Masks:
    """Masks of calls of dask, without those of earlier recordings."""
    times = [recording.calls.called for recording in recordings]
    return [
        ~np.isin(called, np.concatenate([np.zeros(0), *times[:index]]))
        for index, called in enumerate(times)
    ]


def _event_masks(recordings: Sequence[Recording], name: str) -> _Masks:
    """Masks of events on workers of clusters, without events of earlier recordings.

    An event ends before the end of a recording, or is cut there, and longer in another recording.
    """
    masks: _Masks = []
    longest: dict[tuple[object, ...], tuple[float, int, int]] = {}
    for index, recording in enumerate(recordings):
        table = recording.tables()[name]
        stops: FloatArray = table["stop"]
        mask = np.ones(len(table), bool)
        for other in recordings[:index]:
            is_shared = table["computation"].is_in(other.tables()[name]["computation"].values)
            mask &= ~(is_shared & (other.start <= stops) & (stops <= other.stop))
        masks.append(mask)
        by = [
            column
            for column in ("computation", "worker", "event", "start")
            if column in table.columns
        ]
        keys = list(zip(*(table[column].tolist() for column in by), strict=True))
        for row in np.flatnonzero(mask).tolist():
            stop, other_index, other_row = longest.get(keys[row], (-inf, index, row))
            if stops[row] > stop:
                masks[other_index][other_row] = other_index == index
                longest[keys[row]] = stops[row], index, row
            elif other_index != index:
                mask[row] = False
    return masks


def _notices_on_programs(recordings: Sequence[Recording]) -> Iterator[str]:
    """A notice if programs were recorded on one cluster, with tasks of each other."""
    if any(
        not _share_a_run(one, two)
        and one.start < two.stop
        and two.start < one.stop
        and (len(one.other_tasks) or len(two.other_tasks))
        and not set(one.computations.cluster.tolist()).isdisjoint(
            {*two.computations.cluster.tolist()} - {""}
        )
        for one, two in combinations(recordings, 2)
    ):
        yield (
            "several programs were recorded on one cluster at the same time: the tasks of each "
            "count again as other programs' tasks; look at each recording separately"
        )


def _drop_repeated_transfers(transfers: RecordingTable) -> RecordingTable:
    """Drop repeated transfers without a task."""
    made = transfers["task"] >= 0
    if made.all():
        return transfers
    columns = ("source", "destination", "start", "stop")
    moves = list(zip(*(transfers[name].tolist() for name in columns), strict=True))
    once: dict[tuple[object, ...], int] = {}
    for row in (*np.flatnonzero(made).tolist(), *np.flatnonzero(~made).tolist()):
        once.setdefault(moves[row], row)
    kept = made.copy()
    kept[list(once.values())] = True
    return transfers.filter(kept)


class HasRecording(Protocol):
    """A profiler of dask_diag."""

    draws: str
    """Name of the profiler's plot."""

    @property
    def recording(self) -> Recording:
        """Recording of the measurements so far."""


Source: TypeAlias = "Recording | HasRecording"
Sources: TypeAlias = "Source | Iterable[Source]"


def is_source(item: object) -> bool:
    """Whether an item is a recording or has one. `hasattr` would make a profiler's recording."""
    if isinstance(item, type):
        return False
    return isinstance(item, Recording) or getattr_static(item, "recording", None) is not None


def listed(source: Sources) -> list[Source]:
    """The items of a recording, a profiler, or an iterable of these.

    Raises
    ------
    DiagnosticError
        If there is none, or an item has no recording.
    """
    is_one = is_source(source) or not isinstance(source, Iterable) or isinstance(source, str)
    items: list[object] = [source] if is_one else list(cast("Iterable[object]", source))
    if not items:
        raise DiagnosticError(f"expected {_A_SOURCE}, found an empty list")
    for item in items:
        if not is_source(item):
            kind = type(item)
            found = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
            is_path = isinstance(item, str | os.PathLike)
            advice = "; load a file with dask_diag.load(path)" if is_path else ""
            raise DiagnosticError(f"expected {_A_SOURCE}, found {found}{advice}")
    return cast("list[Source]", items)


def recordings_of(source: Sources) -> list[Recording]:
    """The recording of each item of `listed`."""
    return [item if isinstance(item, Recording) else item.recording for item in listed(source)]


def recording_of(source: Sources) -> Recording:
    """One recording of a recording, a profiler, or several of these, combined."""
    recordings = recordings_of(source)
    return recordings[0] if len(recordings) == 1 else combine(recordings)


_A_SOURCE = "a Recording, a profiler of dask_diag, or a list of these"
