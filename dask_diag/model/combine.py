"""One recording made from several."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import starmap
from math import inf, isnan
from typing import Any, NamedTuple, TypeVar

import numpy as np
from toolz import valmap

from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray, Values
from dask_diag.formatting import counted
from dask_diag.model.codes import STATES
from dask_diag.model.measurements import Measurements
from dask_diag.model.table import NO_ROWS, Table, stack
from dask_diag.model.tables import REFERENCES, TABLES

Mask = BoolArray
Repeats = dict[str, set[int]]
"""The computations of which several parts have rows, and which parts these are."""


def combined(parts: Sequence[Measurements]) -> dict[str, Any]:
    """The fields of the recording that `Recording.combine` makes of these."""
    parts, other_clocks = on_one_clock(parts)
    parts, workers = with_one_name(parts)
    parts = without_tasks_of_parts(parts)
    repeats: Repeats = {}
    tasks, references = _combined_tasks(parts, repeats)
    cache, (metric, unit), other_metrics = _combined_cache(parts, repeats)
    frames, stacks, samples = _combined_samples(parts, repeats)
    memory, allocations = combined_memory(parts)
    resources, processes, left_out = combined_resources(parts)
    environment, other_environments = _combined_environment(parts)
    notices = (
        *(text for part in parts for text in part.notices),
        *_notices_on_repeats(repeats),
        *other_metrics,
        *left_out,
        *other_environments,
        *other_clocks,
    )
    return dict(
        start=min(part.start for part in parts),
        stop=max(part.stop for part in parts),
        epoch=parts[0].epoch,
        # All diagnostics over a block list its computations and their threads: no repetition.
        computations=_once(parts, [part.computations for part in parts], {}),
        pools=_once(parts, [part.pools for part in parts], {}),
        planned=_once(parts, [part.planned for part in parts], {}),
        progress=_once(parts, [part.progress for part in parts], {}),
        workers=stack([_workers_here(parts), combined_workers(parts, workers)]),
        other_tasks=combined_rows_of_clusters(parts, "other_tasks"),
        worker_events=combined_rows_of_clusters(parts, "worker_events"),
        threads=_once(parts, [part.threads for part in parts], {}),
        tasks=tasks,
        resources=resources,
        processes=processes,
        memory=memory,
        allocations=allocations,
        cached_results=cache,
        frames=frames,
        call_tree=stacks,
        samples=samples,
        environment=environment,
        metric=metric,
        metric_unit=unit,
        notices=tuple(dict.fromkeys(notices)),
        run_id=",".join(dict.fromkeys(run for part in parts for run in runs_of(part))),
        state=worst_state(part.state for part in parts),
        **references,
    )


def _workers_here(parts: Sequence[Measurements]) -> Table:
    """The workers of local schedulers."""
    tables = [part.workers.rows(~is_of_a_cluster(part.workers)) for part in parts]
    return _once(parts, tables, {})


def _once(parts: Sequence[Measurements], tables: Sequence[Table], repeats: Repeats) -> Table:
    """The rows of all tables, of which each computation's are those of one part."""
    masks = _masks_of_computations(parts, tables, repeats)
    return stack([table.rows(mask) for table, mask in zip(tables, masks, strict=True)])


def _masks_of_computations(
    parts: Sequence[Measurements], tables: Sequence[Table], repeats: Repeats
) -> list[Mask]:
    """Which rows of each part's table to take: each computation's from the part with most.

    One that was still running when it was recorded, or whose file was truncated, may have fewer
    rows in one part than in another; of equally many those that were recorded last are taken.
    """
    best: dict[str, tuple[int, float]] = {}
    part_with: dict[str, int] = {}
    for index, (part, table) in enumerate(zip(parts, tables, strict=True)):
        # Two profilers over one block have its computations both: rows are taken from one of them,
        # never from each a few, as positions refer to whole tables.
        for name, count in _rows_of_computations(table).items():
            if name in part_with:
                repeats.setdefault(name, set()).update((part_with[name], index))
            if name not in best or (count, part.stop) > best[name]:
                best[name], part_with[name] = (count, part.stop), index
    masks = []
    for index, table in enumerate(tables):
        column = table["computation"] if len(table) else Categorical([], [])
        chosen = [part_with.get(name) == index for name in column.values]
        masks.append(np.array(chosen, dtype=bool)[column.codes])
    return masks


def _rows_of_computations(table: Table) -> dict[str, int]:
    """How many rows each computation has that has any."""
    if not len(table):
        return {}
    column: Categorical = table["computation"]
    counts = np.bincount(column.codes, minlength=len(column.values)).tolist()
    rows: dict[str, int] = {}
    for name, count in zip(column.values, counts, strict=False):
        if count:
            rows[name] = rows.get(name, 0) + count
    return rows


def _notices_on_repeats(repeats: Repeats) -> Iterable[str]:
    if repeats:
        parts = len(set().union(*repeats.values()))
        what = "computation; it is" if len(repeats) == 1 else "computations; they are"
        yield f"{parts} recordings recorded the same {len(repeats):,} {what} counted once"


def _combined_tasks(
    parts: Sequence[Measurements], repeats: Repeats
) -> tuple[Table, dict[str, Table]]:
    """The tasks of all parts, and the tables that refer to them."""
    tables: list[Table] = []
    references: dict[str, list[Table]] = {name: [] for name in REFERENCES}
    before = 0
    masks = _masks_of_computations(parts, [part.tasks for part in parts], repeats)
    for part, mask in zip(parts, masks, strict=True):
        tables.append(part.tasks.rows(mask))
        # Where each task that stays comes to be; what refers to the others is left out with them.
        position = np.cumsum(mask) - 1 + before
        for name, columns in REFERENCES.items():
            references[name].append(_moved(getattr(part, name), columns, mask, position))
        before += int(mask.sum())
    together = valmap(stack, references)
    together["transfers"] = combined_transfers(together["transfers"])
    return stack(tables), together


def _moved(table: Table, columns: tuple[str, ...], mask: Mask, position: IntArray) -> Table:
    """The rows that refer to tasks in the mask, with the tasks' new positions."""
    if not len(table):
        return table
    # Where there is a row more, -1 refers to it: to no task, which stays.
    mask, position = np.append(mask, True), np.append(position, -1)
    rows = table.rows(np.logical_and.reduce([mask[table[name]] for name in columns]))
    return Table(
        {name: position[rows[name]] if name in columns else rows[name] for name in rows.columns}
    )


def _combined_cache(
    parts: Sequence[Measurements], repeats: Repeats
) -> tuple[Table, tuple[str, str], list[str]]:
    """The cached results of one metric, its name and unit, and notices that name the others."""
    filled = [part for part in parts if len(part.cached_results)]
    measured = next((part for part in filled or parts if filled or part.metric), parts[0])
    metric = measured.metric
    tables = [
        part.cached_results if part.metric == metric else part.cached_results.rows(slice(0))
        for part in parts
    ]
    others: dict[str, int] = {}
    for part in filled:
        if part.metric != metric:
            others[part.metric] = others.get(part.metric, 0) + len(part.cached_results)
    notices = [
        f"{rows:,} cached results measured as {other or 'nameless'} are left out: a combination "
        f"has one metric, here {metric or 'a nameless one'}; show the recording with "
        f"{other or 'the other'} separately"
        for other, rows in others.items()
    ]
    return _once(parts, tables, repeats), (metric, measured.metric_unit), notices


def _combined_samples(
    parts: Sequence[Measurements], repeats: Repeats
) -> tuple[Table, Table, Table]:
    """The frames, stacks and samples of all parts, without time that an earlier part sampled."""
    frames, stacks, samples = [], [], []
    frames_before = stacks_before = 0
    for part, mask in zip(parts, _masks_of_samples(parts, repeats), strict=True):
        frames.append(part.frames)
        stacks.append(_shifted(part.call_tree, {"parent": stacks_before, "frame": frames_before}))
        samples.append(_shifted(part.samples.rows(mask), {"node": stacks_before}))
        frames_before += len(part.frames)
        stacks_before += len(part.call_tree)
    return stack(frames), stack(stacks), stack(samples)


def _shifted(table: Table, columns: Mapping[str, int]) -> Table:
    """The table with some of its positions moved on; -1 refers to nothing and stays."""
    if not len(table):
        return table
    return Table(
        {
            name: np.where(table[name] < 0, -1, table[name].astype(np.int64) + columns[name])
            if name in columns
            else table[name]
            for name in table.columns
        }
    )


def _masks_of_samples(parts: Sequence[Measurements], repeats: Repeats) -> list[Mask]:
    """Which stack samples to take: not those of time that an earlier part has."""
    masks: list[Mask] = []
    earlier: list[tuple[int, set[str], float, float]] = []
    for index, part in enumerate(parts):
        samples = part.samples
        masks.append(np.ones(len(samples), dtype=bool))
        if not len(samples):
            continue
        names = set(part.computations["computation"].values) if len(part.computations) else set()
        middle = (samples["start"] + samples["stop"]) / 2
        for other, names_of_other, start, stop in earlier:
            shared = names & names_of_other
            repeated = (start <= middle) & (middle <= stop)
            if shared and repeated.any():
                masks[-1] &= ~repeated
                for name in shared:
                    repeats.setdefault(name, set()).update((other, index))
        earlier.append((index, names, samples["start"].min(), samples["stop"].max()))
    return masks


def _combined_environment(parts: Sequence[Measurements]) -> tuple[Table, list[str]]:
    """Where the first part was made that says so, and a notice if others were made elsewhere."""
    tables = [part.environment for part in parts if len(part.environment)]
    facts = [{tuple(row.values()) for row in table.to_dicts()} for table in tables]
    differing = sorted({fact[0] for others in facts[1:] for fact in others ^ facts[0]})
    notices = [
        f"environment: that of the first recording; in others differ: {', '.join(differing)}"
    ]
    return tables[0] if tables else NO_ROWS, notices if differing else []


def worst_state(states: Iterable[str]) -> str:
    """The one that is furthest from complete."""
    return max(states, key=tuple(STATES).index)


M = TypeVar("M", bound=Measurements)

_ADJUSTED = 60.0
"""Seconds by which the time of day may have been set while one clock went on."""


def on_one_clock(parts: Sequence[M]) -> tuple[list[M], list[str]]:
    """The parts with times of the first one's clock, and a notice if any had another."""
    first = parts[0]
    moved = [_later(part, _offset(first, part)) for part in parts]
    others = sum(part is not other for part, other in zip(parts, moved, strict=True))
    notice = (
        f"{others} of {len(parts)} recordings have another clock, as after a restart of the "
        "machine; their times are placed by the time of day"
    )
    return moved, [notice] if others else []


def _offset(first: Measurements, part: Measurements) -> float:
    """Seconds to add to the times of a part; 0 if it has the same clock, or none is known."""
    # A time of day less a time of the clock is an epoch, so two epochs differ by what one clock is
    # ahead of the other.
    offset = part.epoch - first.epoch
    is_known = bool(first.epoch and part.epoch)
    is_same_run = bool(runs_of(part)) and runs_of(part) == runs_of(first)
    return offset if is_known and not is_same_run and abs(offset) > _ADJUSTED else 0.0


def _later(part: M, seconds: float) -> M:
    if not seconds:
        return part
    tables: dict[str, Any] = {}
    for name, kind in TABLES.items():
        table = getattr(part, name)
        columns = {column: table[column] for column in table.columns}
        # The schema says which columns are times: durations, in seconds as well, stay.
        times = [column for column, facts in kind.schema.items() if facts.is_time]
        tables[name] = kind(columns | {column: table[column] + seconds for column in times})
    return replace(
        part,
        start=part.start + seconds,
        stop=part.stop + seconds,
        epoch=part.epoch - seconds,
        **tables,
    )


Block = tuple[str, float]
"""The label of a block, and when it started."""


def combined_memory(parts: Sequence[Measurements]) -> tuple[Table, Table]:
    """`Recording.memory` and `Recording.allocations` of all parts."""
    series: dict[Block, Table] = {}
    allocations: dict[Block, Table] = {}
    for part in parts:
        starts = {}
        for label, rows in _by_label(part.memory):
            starts[label] = float(rows["time"][0])
            block = label, starts[label]
            series[block] = max(series.get(block, NO_ROWS), rows, key=len)
        for label, rows in _by_label(part.allocations):
            # A whole recording has no series.
            block = label, starts.get(label, part.start)
            before = allocations.get(block, rows)
            allocations[block] = max(before, rows, key=lambda table: float(table["time"][0]))
    labels: dict[Block, str] = {}
    for block in dict.fromkeys((*series, *allocations)):
        labels[block] = _unused(block[0], labels.values())
    return _joined(series, labels), _joined(allocations, labels)


def _joined(tables: Mapping[Block, Table], labels: Mapping[Block, str]) -> Table:
    return stack([*(_labelled(labels[block], rows) for block, rows in tables.items()), NO_ROWS])


def _by_label(table: Table) -> Iterator[tuple[str, Table]]:
    if not len(table):
        return
    for code, label in enumerate(table["label"].values):
        rows = table.rows(table["label"].codes == code)
        if len(rows):
            yield label, rows


def _labelled(label: str, rows: Table) -> Table:
    columns = {name: rows[name] for name in rows.columns}
    return Table({**columns, "label": Categorical(np.zeros(len(rows), np.uint8), [label])})


def _unused(label: str, used: Container[str]) -> str:
    """The label, with a number added if it is among those used."""
    name, count = label, 1
    while name in used:
        count += 1
        name = f"{label} ({count})".strip()
    return name


T = TypeVar("T", bound=Table)

_PAUSE = 2.0
"""Between samples that are so many times the usual interval apart nothing was sampled."""


def combined_resources(parts: Sequence[Measurements]) -> tuple[Table, Table, list[str]]:
    """`Recording.resources` and `Recording.processes` of all parts, and notices."""
    covers: list[_Cover] = []
    runs = [set(runs_of(part)) for part in parts]
    resources, processes = [], []
    for index, part in enumerate(parts):
        own = _Cover.of(part)
        earlier = [
            covers[other]
            for other in range(index)
            if covers[other].overlaps(own) and not runs[index].isdisjoint(runs[other])
        ]
        of_samples, of_processes = _sampled_before(part, own, earlier)
        resources.append(part.resources.rows(~of_samples))
        processes.append(part.processes.rows(~of_processes))
        covers.append(own.without(part.resources["time"][of_samples]) if earlier else own)
    resources, processes = _without_copies(resources), _without_copies(processes)
    notices = [
        *_notices_on_rows_left_out(parts, resources, processes),
        *_notices_on_different_runs(parts, resources),
    ]
    return _in_order(stack(resources)), _in_order(stack(processes)), notices


def runs_of(part: Measurements) -> tuple[str, ...]:
    """The ids of the runs that a recording is of; none if that is not known."""
    return tuple(filter(None, part.run_id.split(",")))


class _Cover(NamedTuple):
    """The stretches of time that samples represent: each the time since the one before it."""

    starts: FloatArray
    stops: FloatArray

    @classmethod
    def of(cls, part: Measurements) -> _Cover:
        times = np.sort(part.resources["time"]) if len(part.resources) else np.zeros(0)
        readings = np.sort(part.processes["time"]) if len(part.processes) else np.zeros(0)
        before = np.append(-np.inf, times[:-1]) if len(times) else times
        lasted = times - before
        # Before the first one there was a pause, whatever is usual.
        usual = np.median(lasted[1:]) if len(times) > 1 else 0.0
        # Whenever sampling begins, the processes are read at once.
        resumed = np.append(readings, np.inf)[np.searchsorted(readings, before, "right")]
        starts = np.where(lasted > _PAUSE * usual, np.minimum(resumed, times), before)
        return cls(starts, times)

    def without(self, times: FloatArray) -> _Cover:
        """The same without the samples of these times."""
        stay = ~np.isin(self.stops, times)
        return _Cover(self.starts[stay], self.stops[stay])

    def overlaps(self, other: _Cover) -> bool:
        """Whether the two have any time in common, pauses included."""
        return bool(
            len(self.stops)
            and len(other.stops)
            and self.starts[0] <= other.stops[-1]
            and other.starts[0] <= self.stops[-1]
        )

    def has(self, moments: FloatArray) -> BoolArray:
        """Whether each moment is in one of the stretches."""
        index = np.searchsorted(self.stops, moments)
        starts = np.append(self.starts, np.inf)
        return starts[index] <= moments


def _sampled_before(
    part: Measurements, own: _Cover, others: Sequence[_Cover]
) -> tuple[BoolArray, BoolArray]:
    """Which rows of a part's resources, and which of its processes, are of time that others have.

    The memory of processes goes with the sample in whose stretch of time it was read; after the
    last sample, with that one.
    """
    samples = np.zeros(len(part.resources), dtype=bool)
    processes = np.zeros(len(part.processes), dtype=bool)
    if not others:
        return samples, processes
    times = part.resources["time"]
    middle = (own.starts[np.searchsorted(own.stops, times)] + times) / 2
    samples = np.logical_or.reduce([other.has(middle) for other in others])
    if len(processes):
        # Where there are others, this part has samples: see `_Cover.overlaps`.
        order = np.argsort(times)
        index = np.searchsorted(times[order], part.processes["time"])
        processes = samples[order[np.minimum(index, len(times) - 1)]]
    return samples, processes


def _without_copies(tables: Sequence[T]) -> list[T]:
    """The tables without the rows that an earlier one has, as of a file that was copied.

    So nothing is counted twice of runs that are not known either, nor of a child that was forked
    with the samples of its parent.
    """
    filled = [table for table in tables if len(table)]
    times = np.concatenate([np.zeros(0), *(table["time"] for table in filled)])
    part = np.repeat(np.arange(len(filled)), [len(table) for table in filled])
    order = np.lexsort((part, times))
    at_once = (np.diff(times[order]) == 0) & (np.diff(part[order]) != 0)
    if not at_once.any():
        return list(tables)
    together = stack(filled)
    bits = [_bits_of(together[name]) for name in together.columns]
    order = np.lexsort((part, *bits))
    ordered = [column[order] for column in bits]
    changes = np.logical_or.reduce([column[1:] != column[:-1] for column in ordered])
    new = np.append(True, changes)
    first_part = part[order][new][np.cumsum(new) - 1]
    copied = np.empty(len(part), dtype=bool)
    copied[order] = part[order] != first_part
    masks = iter(np.split(~copied, np.cumsum([len(table) for table in filled])[:-1]))
    return [table.rows(next(masks)) if len(table) else table for table in tables]


def _bits_of(column: Values) -> IntArray:
    """Numbers that are equal where the values are the same, those that are not known too."""
    if isinstance(column, Categorical):
        return column.codes.astype(np.int64)
    return np.asarray(column, float).view(np.int64)


def _in_order(table: T) -> T:
    if not len(table) or (np.diff(table["time"]) >= 0).all():
        return table
    return table.rows(np.argsort(table["time"], kind="stable"))


def _notices_on_rows_left_out(
    parts: Sequence[Measurements], resources: Sequence[Table], processes: Sequence[Table]
) -> Iterator[str]:
    left_out = (
        (sum(len(part.resources) for part in parts) - sum(map(len, resources)), "resource"),
        (sum(len(part.processes) for part in parts) - sum(map(len, processes)), "process"),
    )
    counts = [counted(number, f"{kind} sample") for number, kind in left_out if number]
    if counts:
        yield f"left out {' and '.join(counts)}: another recording has samples of that time"


def _notices_on_different_runs(
    parts: Sequence[Measurements], resources: Sequence[Table]
) -> Iterator[str]:
    stops: dict[tuple[str, ...], float] = {}
    for start, stop, runs in sorted(
        (float(table["time"].min()), float(table["time"].max()), runs_of(part))
        for part, table in zip(parts, resources, strict=True)
        if len(table)
    ):
        if any(end > start and set(runs).isdisjoint(others) for others, end in stops.items()):
            yield (
                "resource samples of different runs overlap in time: each row is of one run, not "
                "of all together"
            )
            return
        stops[runs] = max(stop, stops.get(runs, stop))


_OF_WORKERS = ("other_tasks", "worker_events", "processes", "samples", "workers")
_NUMBERED = re.compile(r" \(\d+\)$")


class _Row(NamedTuple):
    """A worker, as one part has it."""

    computation: str
    address: str
    worker: str
    joined: float
    left: float
    pid: int


class _Worker:
    """One worker, as several parts know it; `left` is NaN as long as none knows when it left."""

    def __init__(self, cluster: str, label: str) -> None:
        self.cluster, self.label = cluster, label
        self.joined, self.left, self.until = inf, np.nan, -inf
        self.rows: dict[int, int] = {}
        """Its row in the table of each part that knows it."""
        self.best = (False, False, -inf), -1

    def add(self, index: int, row: int, facts: _Row, stop: float) -> None:
        """What another part knows of it."""
        self.rows[index] = row
        self.joined = min(self.joined, facts.joined)
        if not isnan(facts.left):
            self.left = facts.left
        self.until = max(self.until, stop if isnan(self.left) else self.left)
        self.best = max(self.best, ((not isnan(facts.left), facts.pid != 0, stop), index))

    def is_there(self, joined: float, until: float) -> bool:
        """Whether it is one that was there from then until then: at its address there is one."""
        return joined < self.until and self.joined < until


def is_of_a_cluster(workers: Table) -> BoolArray:
    """The rows of workers of clusters; those of local schedulers have no address."""
    addresses: Categorical = workers["address"]
    return np.array([bool(value) for value in addresses.values], bool)[addresses.codes]


def with_one_name(parts: Sequence[M]) -> tuple[list[M], list[_Worker]]:
    """The parts with a name for each worker that no other one has, and the workers."""
    workers: dict[tuple[str, str], list[_Worker]] = {}
    names: list[dict[str, _Worker]] = [{} for _ in parts]
    for index, part in enumerate(parts):
        columns = [part.workers[name].tolist() for name in _Row._fields]
        for row, facts in enumerate(starmap(_Row, zip(*columns, strict=True))):
            if not facts.address:
                continue
            at_address = workers.setdefault((facts.computation, facts.address), [])
            until = part.stop if isnan(facts.left) else facts.left
            # An address is used again by a worker that comes later: only lives that overlap are one
            # worker's.
            worker = next(
                (candidate for candidate in at_address if candidate.is_there(facts.joined, until)),
                None,
            )
            # Two rows of one part are two workers, however their times overlap.
            if worker is None or index in worker.rows:
                worker = _Worker(facts.computation, facts.worker)
                at_address.append(worker)
            worker.add(index, row, facts, part.stop)
            names[index][facts.worker] = worker
    all_workers = [worker for at_address in workers.values() for worker in at_address]
    labels: set[str] = set()
    for worker in all_workers:
        worker.label = _free(worker.label, labels)
        labels.add(worker.label)
        if isnan(worker.left):
            worker.left = _left_between(worker, parts, all_workers)
    return [
        _renamed(part, of_part) for part, of_part in zip(parts, names, strict=True)
    ], all_workers


def _free(label: str, labels: set[str]) -> str:
    usual, number = _NUMBERED.sub("", label), 1
    while label in labels:
        number += 1
        label = f"{usual} ({number})"
    return label


def _left_between(
    worker: _Worker, parts: Sequence[Measurements], workers: Sequence[_Worker]
) -> float:
    """When a worker left of which no part says so: a later part of its cluster lacks it."""
    # A cluster lists its workers in each part, so one that a later part lacks had left by then.
    of_cluster = {
        index for other in workers if other.cluster == worker.cluster for index in other.rows
    }
    is_lacking = any(parts[index].start >= worker.until for index in of_cluster)
    return worker.until if is_lacking else np.nan


def _renamed(part: M, workers: Mapping[str, _Worker]) -> M:
    names = {name: worker.label for name, worker in workers.items() if worker.label != name}
    if not names:
        return part
    columns = [(table, "worker") for table in _OF_WORKERS]
    columns += [("transfers", "source"), ("transfers", "destination"), ("tasks", "worker")]
    tables: dict[str, Table] = {}
    for name, column in columns:
        table = tables.get(name, getattr(part, name))
        labels: Categorical = table[column]
        values = [_renamed_label(value, names) for value in labels.values]
        changed = {column: Categorical(labels.codes, values)}
        tables[name] = type(table)({column: table[column] for column in table.columns} | changed)
    return replace(part, **tables)  # type: ignore[arg-type]


def _renamed_label(label: str, names: Mapping[str, str]) -> str:
    """The label of a worker, of one of its threads, or of several workers in a process."""
    worker, slash, thread = label.rpartition("/")
    if label not in names and worker in names:
        return f"{names[worker]}{slash}{thread}"
    return ", ".join(names.get(name, name) for name in label.split(", "))


def combined_workers(parts: Sequence[Measurements], workers: Sequence[_Worker]) -> Table:
    """A row for each worker, of the part that knows most of it."""
    workers = sorted(workers, key=lambda worker: worker.best[1])
    chosen = stack(
        [
            part.workers.rows(
                np.array([w.rows[index] for w in workers if w.best[1] == index], np.int64)
            )
            for index, part in enumerate(parts)
        ]
    )
    times = {
        "joined": np.array([worker.joined for worker in workers], float),
        "left": np.array([worker.left for worker in workers], float),
    }
    return type(chosen)({name: times.get(name, chosen[name]) for name in chosen.columns})


def combined_rows_of_clusters(parts: Sequence[Measurements], name: str) -> Table:
    """What happened on workers, from all parts; what a part has of the time of another one, once.

    A part has what has ended while it was recorded. What went on at its end may be there longer in
    another one.
    """
    tables: list[Table] = [getattr(part, name) for part in parts]
    filled = [part for part, table in zip(parts, tables, strict=True) if len(table)]
    if len(filled) < 2:
        return stack(tables)
    tables = []
    covers: list[tuple[set[str], float, float]] = []
    for part in filled:
        table = getattr(part, name)
        clusters = table["computation"].tolist()
        is_new = np.ones(len(table), bool)
        for clusters_before, start, stop in covers:
            # A part that recorded the time in which a row lies has the row, too: it would count
            # twice.
            is_shared = np.array([cluster in clusters_before for cluster in clusters], bool)
            is_new &= ~(is_shared & (start <= table["stop"]) & (table["stop"] <= stop))
        tables.append(table.rows(is_new))
        covers.append((set(clusters), part.start, part.stop))
    together = stack(tables)
    columns = [
        column
        for column in ("computation", "worker", "event", "start")
        if column in together.columns
    ]
    keys = zip(*(together[column].tolist() for column in columns), strict=True)
    stops = together["stop"].tolist()
    # What went on when a part ended is in both, and longer in the one that went on.
    longest: dict[tuple[object, ...], int] = {}
    for row, key in enumerate(keys):
        if stops[row] > stops[longest.setdefault(key, row)]:
            longest[key] = row
    return together.rows(np.array(sorted(longest.values()), np.int64))


def combined_transfers(transfers: Table) -> Table:
    """The transfers, of which each that no task made is there once, though several parts have it.

    What a task of another part made has that task.
    """
    if not len(transfers) or (transfers["task"] >= 0).all():
        return transfers
    columns = ("source", "destination", "start", "stop")
    made = transfers["task"] >= 0
    once: dict[tuple[object, ...], int] = {}
    moves = list(zip(*(transfers[name].tolist() for name in columns), strict=True))
    for row in (*np.flatnonzero(made).tolist(), *np.flatnonzero(~made).tolist()):
        once.setdefault(moves[row], row)
    chosen = made.copy()
    chosen[list(once.values())] = True
    return transfers.rows(chosen)


Key = tuple[str, str]
"""A cluster and one of its workers."""
Times = tuple[FloatArray, FloatArray]
"""Starts, ascending, and stops."""

_ROUNDING = 3e-6
"""Seconds: the times of tasks are rounded to microseconds, away from each other."""


def without_tasks_of_parts(parts: Sequence[M]) -> list[M]:
    """The parts, of whose other tasks those are left out that are tasks of another part."""
    if not any(len(part.other_tasks) for part in parts):
        return list(parts)
    tasks_of_parts = [dict(_tasks_of(part)) for part in parts]
    made = []
    for index, part in enumerate(parts):
        is_task = np.zeros(len(part.other_tasks), bool)
        for other, tasks in enumerate(tasks_of_parts):
            if other != index:
                is_task |= _are_among(part, tasks, _ROUNDING + _error(part) + _error(parts[other]))
        made.append(replace(part, other_tasks=part.other_tasks.rows(~is_task)))
    return made


def _error(part: Measurements) -> float:
    """By how much the clocks of workers may be wrong."""
    errors: FloatArray = part.workers["clock_error"]
    return float(np.nan_to_num(errors).max(initial=0.0))


def _tasks_of(part: Measurements) -> Iterator[tuple[Key, Times]]:
    """When tasks occupied threads, by worker."""
    tasks, computations = part.tasks, part.computations
    names = zip(computations["computation"].tolist(), computations["cluster"].tolist(), strict=True)
    cluster_of = dict(names)
    lanes: Categorical = tasks["worker"]
    workers = Categorical(lanes.codes, [str(lane).rpartition("/")[0] for lane in lanes.values])
    clusters: Categorical = tasks["computation"]
    clusters = Categorical(clusters.codes, [cluster_of.get(c, "") for c in clusters.values])
    # One that did not end occupied its thread to the end.
    stops = np.fmin(np.nan_to_num(tasks["stop"], nan=np.inf), tasks["seceded"])
    started = ~np.isnan(tasks["start"])
    for cluster in set(clusters.values) - {""}:
        for worker in set(workers.values):
            rows = np.flatnonzero(clusters.where(cluster) & workers.where(worker) & started)
            if len(rows):
                rows = rows[np.argsort(tasks["start"][rows], kind="stable")]
                yield (cluster, worker), (tasks["start"][rows], stops[rows])


def _are_among(part: Measurements, tasks: dict[Key, Times], error: float) -> BoolArray:
    """Which other tasks of a part are among tasks, of which the part may have an end only."""
    others = part.other_tasks
    is_task = np.zeros(len(others), bool)
    clusters: Categorical = others["computation"]
    workers: Categorical = others["worker"]
    for (cluster, worker), (starts, stops) in tasks.items():
        rows = np.flatnonzero(clusters.where(cluster) & workers.where(worker))
        start, stop = others["start"][rows], others["stop"][rows]
        by_stop = np.argsort(stops, kind="stable")
        is_task[rows] = _is_near(starts, stops, start, stop, error)
        # The same with time reversed.
        is_task[rows] |= _is_near(
            -stops[by_stop][::-1], -starts[by_stop][::-1], -stop, -start, error
        )
    return is_task


def _is_near(
    starts: FloatArray, stops: FloatArray, start: FloatArray, stop: FloatArray, error: float
) -> BoolArray:
    """Whether one of the tasks that start when another does lasts at least as long."""
    first = np.searchsorted(starts, start - error)
    behind = np.searchsorted(starts, start + error, side="right")
    near = np.zeros(len(start), bool)
    for row in np.flatnonzero(first < behind).tolist():
        near[row] = bool((stops[first[row] : behind[row]] >= stop[row] - error).any())
    return near
