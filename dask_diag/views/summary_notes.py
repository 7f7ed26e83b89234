"""What is told beside the table of a summary, a sentence for each thing worth knowing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np

from dask_diag.analysis.activities import activities
from dask_diag.analysis.call_tree import hottest_lines
from dask_diag.analysis.cpu_accounting import cpu_of_scheduler, cpu_outside_tasks
from dask_diag.analysis.critical_path import critical_path
from dask_diag.analysis.levels import levels_held
from dask_diag.analysis.memory import memory_usage
from dask_diag.analysis.memory_series import series_of
from dask_diag.analysis.metering import metered_amounts
from dask_diag.analysis.source_paths import short_path
from dask_diag.analysis.waits import waits
from dask_diag.formatting import amount, count, percent, quantity, seconds, size
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.views.escaping import shown
from dask_diag.views.text import counted

__all__ = ["notes_on"]

_Key = TypeVar("_Key")

_WORTH_TELLING = 0.1
_GROWTH_TOLD = 1e6
_SERIES_SHOWN = 8
_METERED_SHOWN = 8
_SHORTEST_FOR_CPU = 0.05
"""Seconds: the kernel counts what other processors do when its clock ticks, each 4 or 10 ms."""


def notes_on(recording: Recording) -> Iterator[str]:
    """What is worth telling of a recording, and what a reader of its numbers must know."""
    yield from _notes_on_activities(recording)
    yield from _notes_on_metered(recording)
    yield from _notes_on_waits(recording)
    yield from _notes_on_critical_path(recording)
    yield from _notes_on_outcomes(recording.tasks)
    yield from _notes_on_computes(recording.computations)
    yield from _notes_on_cpu_outside_tasks(recording)
    yield from _notes_on_stacks(recording)
    yield from _notes_on_resources(recording)
    yield from _notes_on_memory(recording)
    yield from _notes_on_cache(recording)
    yield from (shown(notice, 400) for notice in recording.notices)


def _notes_on_activities(recording: Recording) -> Iterator[str]:
    """How the worker-seconds divide, in shares of a hundredth or more."""
    if not len(recording.tasks):
        return
    rows = activities(recording).to_dicts()
    total = sum(row["value"] for row in rows)
    shares = [
        f"{shown(row['activity'], 24)} {percent(row['value'] / total)}"
        for row in rows
        if row["value"] >= 0.01 * total
    ]
    yield f"of {seconds(total)} of worker time: {', '.join(shares)}"


def _notes_on_metered(recording: Recording) -> Iterator[str]:
    """What tasks metered beside seconds, which are among the activities."""
    amounts = {
        (activity, unit): value
        for (activity, unit), value in metered_amounts(recording).items()
        if unit != "seconds"
    }
    parts = [
        f"{shown(activity, 24)} {quantity(value, shown(unit, 24))}"
        for (activity, unit), value in _first(amounts, _METERED_SHOWN)
    ]
    if len(amounts) > len(parts):
        parts.append(f"and {count(len(amounts) - len(parts))} more")
    if parts:
        yield f"Metered by tasks: {', '.join(parts)}"


def _notes_on_waits(recording: Recording) -> Iterator[str]:
    """What tasks waited for, with the standard error of what was sampled."""
    rows = waits(recording, by="activity").to_dicts()
    total = sum(row["seconds"] for row in rows)
    if total <= 0:
        return
    parts = [
        f"{row['activity']} {seconds(row['seconds'])}"
        + (f" ± {seconds(row['error'])}" if row["error"] else "")
        + (f" ({counted(row['samples'], 'sample')})" if row["samples"] else "")
        for row in rows
        if row["seconds"] >= 0.01 * total
    ]
    metrics = recording.metrics
    metered = len(metrics) and metrics["unit"].where("seconds").any()
    beside = " beside what they metered" if metered else ""
    yield f"{seconds(total)} of tasks without CPU time{beside}: {', '.join(parts)}"


def _notes_on_critical_path(recording: Recording) -> Iterator[str]:
    if not len(recording.dependencies):
        return
    path = critical_path(recording)
    wall = float(path.computations["wall"].sum())
    if path.length:
        names = [shown(name, 24) for name in path.functions["function"].tolist()[:3]]
        times = amount(wall / path.length)
        yield (
            f"longest chain of tasks: {seconds(path.length)} of {seconds(wall)}; workers without "
            f"end would be at most {times} times as fast; on it {', '.join(names)}"
        )


def _notes_on_outcomes(tasks: Table) -> Iterator[str]:
    if not len(tasks):
        return
    failed = tasks.rows(tasks["outcome"].where("failed"))
    if len(failed):
        first = failed.rows(slice(1)).to_dicts()[0]
        yield (
            f"failed: {counted(len(failed), 'task')}, first {shown(first['key'])} with "
            f"{shown(first['error'])}"
        )
    unfinished = tasks.rows(tasks["outcome"].where("unfinished"))
    if len(unfinished):
        begun = int((~np.isnan(unfinished["start"])).sum())
        yield (
            f"unfinished: {counted(len(unfinished), 'task')}, of which {begun} "
            f"{'is' if begun == 1 else 'are'} known to have started"
        )


def _notes_on_computes(computations: Table) -> Iterator[str]:
    if not len(computations):
        return
    errors = [error for error in computations["error"].tolist() if error]
    if errors:
        names = ", ".join(shown(name) for name in dict.fromkeys(errors))
        yield f"ended by an error: {counted(len(errors), 'computation')} ({names})"
    order = np.argsort(computations["start"])
    reached = np.maximum.accumulate(computations["stop"][order])
    overlapping = int((computations["start"][order][1:] < reached[:-1]).sum())
    if overlapping:
        yield f"overlapping in time with an earlier one: {counted(overlapping, 'computation')}"


def _notes_on_cpu_outside_tasks(recording: Recording) -> Iterator[str]:
    if not len(recording.computations):
        return
    outside = cpu_outside_tasks(recording)
    in_tasks = float(np.nansum(recording.tasks["thread_cpu"])) if len(recording.tasks) else 0.0
    if outside > _WORTH_TELLING * (outside + in_tasks):
        pools = recording.pools.to_dicts()
        named = {
            f"{shown(row['library'], 24)} ({row['threads']} threads)"
            if row["library"]
            else "not known without threadpoolctl"
            for row in pools
        }
        yield (
            f"{seconds(outside)} of CPU time on threads beside the tasks' own and the scheduler's"
            + (f"; pools of libraries: {', '.join(sorted(named))}" if named else "")
        )
    scheduling = cpu_of_scheduler(recording)
    if scheduling > _WORTH_TELLING * (outside + in_tasks + scheduling):
        yield f"{seconds(scheduling)} of CPU time of the scheduler itself"


def _notes_on_stacks(recording: Recording) -> Iterator[str]:
    for line in hottest_lines(recording, 1).to_dicts():
        path = short_path(line["file"])
        place = f" ({shown(path, 40)}:{line['line']})" if path else ""
        yield (
            f"hottest line: {shown(line['name'], 40)}{place}, {seconds(line['wall'])} of its own "
            f"in {seconds(float(recording.samples['seconds'].sum()))} of tasks"
        )


def _cpu_told(recording: Recording) -> str:
    """Per cent of a core; a sample stands for the time since the one before."""
    cpu = recording.resources["cpu"]
    lasted = np.diff(recording.resources["time"], prepend=recording.start)
    # Between computations nothing is sampled.
    lasted = np.clip(lasted, 0.0, 2 * float(np.median(lasted[1:])) if len(cpu) > 1 else None)
    if lasted.sum() < _SHORTEST_FOR_CPU:
        return "not known of so short a time"
    told = f"{percent(np.average(cpu, weights=lasted) / 100)} on average"
    long = lasted >= _SHORTEST_FOR_CPU
    return f"{told}, at most {percent(cpu[long].max() / 100)}" if long.any() else told


def _notes_on_resources(recording: Recording) -> Iterator[str]:
    resources = recording.resources
    if not len(resources):
        return
    memory = resources["memory"] + resources["memory_children"]
    yield (
        f"resources: CPU {_cpu_told(recording)}; memory at most {size(memory.max())}, of it "
        f"{size(resources['memory_children'][memory.argmax()])} in child processes "
        f"({counted(len(resources), 'sample')}, the most delayed by "
        f"{seconds(_most_delayed(resources))})"
    )


def _notes_on_memory(recording: Recording) -> Iterator[str]:
    """What functions took while they ran, and the series of memory samplers."""
    grown = [
        row for row in memory_usage(recording).to_dicts() if row["peak_growth"] >= _GROWTH_TOLD
    ]
    if grown:
        told = ", ".join(
            f"{shown(row['function'], 24)} {'' if row['bound'] == 'exact' else 'at most '}"
            f"{size(row['peak_growth'])}"
            for row in grown[:3]
        )
        yield f"memory that one task took while it ran, as far as samples saw it: {told}"
    series = [(label, sizes) for label, _, sizes in series_of(recording) if len(sizes)]
    for label, sizes in series[:_SERIES_SHOWN]:
        yield (
            f"memory in {shown(label, 24)}: {size(sizes[0])} at first, at most "
            f"{size(sizes.max())}, {size(sizes[-1])} at last"
        )
    if len(series) > _SERIES_SHOWN:
        yield f"memory was sampled in {count(len(series) - _SERIES_SHOWN)} more parts"


def _most_delayed(resources: Table) -> float:
    late = resources["delay"]
    return float(np.nanmax(late)) if not np.isnan(late).all() else float("nan")


def _notes_on_cache(recording: Recording) -> Iterator[str]:
    levels, total = levels_held(recording)
    if not levels:
        return
    unit = shown(recording.metric_unit, 24)
    top = ", ".join(
        f"{shown(name, 24)} {quantity(level.peak, unit)}" for name, level in _first(levels, 3)
    )
    metric = shown(recording.metric, 24)
    yield (
        f"held by the scheduler ({metric}): at most {quantity(total.peak, unit)}; by function {top}"
    )


def _first(mapping: dict[_Key, Any], count: int) -> list[tuple[_Key, Any]]:
    return list(mapping.items())[:count]
