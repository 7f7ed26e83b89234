"""One recording of several: each computation once, and positions that refer to the right rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from toolz import valmap

from dask_diag.columns import BoolArray, Categorical, IntArray
from dask_diag.model.combine_clusters import (
    combined_rows_of_clusters,
    combined_transfers,
    combined_workers,
    is_of_a_cluster,
    with_one_name,
)
from dask_diag.model.combine_memory import combined_memory
from dask_diag.model.combine_other_tasks import without_tasks_of_parts
from dask_diag.model.combine_resources import combined_resources, runs_of
from dask_diag.model.measurements import Measurements
from dask_diag.model.one_clock import on_one_clock
from dask_diag.model.table import NO_ROWS, Table, stack
from dask_diag.schema import REFERENCES, STATES

__all__ = ["combined", "worst_state"]

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
