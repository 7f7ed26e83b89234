"""The labelled lines of a summary: a short line for each thing worth knowing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.memory_series import series_of
from dask_diag.analysis.metering import metered_amounts, metered_cpu
from dask_diag.analysis.preparing import (
    is_known_what_was_imported,
    not_of_graphs_while_preparing,
)
from dask_diag.analysis.selection import SAMPLES_OF_TASKS
from dask_diag.analysis.source_paths import short_path
from dask_diag.analysis.step_functions import overlap
from dask_diag.analysis.waiting_lines import computing_lines, waiting_lines
from dask_diag.formatting import amount, count, counted, percent, quantity, seconds, size
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.schema import Outcome, Root
from dask_diag.views.allocations import allocation_lines
from dask_diag.views.escaping import shown
from dask_diag.views.text import Record
from dask_diag.views.thread_lines import thread_lines
from dask_diag.views.throughput import throughput_line

__all__ = ["labelled_lines", "memory_growth", "shares_of_worker_time"]

Line = tuple[str, str]
"""A label and a text."""

_SMALLEST_SHARE = 0.01
_LONG_WAIT = 0.05
"""Of what was sampled: the longest wait is named if it is longer."""
_LARGE_GROWTH = 1e6
_ALIKE = 0.1
"""Of the largest: upper bounds that differ by less are all of the same memory."""
_ENOUGH_SAMPLED = 5
"""Tasks of a function that samples fell into."""
_SERIES_SHOWN = 8
_METERED_SHOWN = 8
_SHORTEST_FOR_CPU = 0.05
"""Seconds: the kernel counts what other processors do when its clock ticks, each 4 or 10 ms."""

_OWN = "in dask's scheduler: no task failed"
_ENDS_FROM_OUTSIDE = {"BrokenProcessPool", "KeyboardInterrupt", "SystemExit"}
"""Errors that are no task's, and not the scheduler's either."""


def labelled_lines(analysis: Analysis) -> Iterator[Line]:
    """What is worth knowing of a recording besides its findings and its table."""
    recording = analysis.recording
    yield from _phases(analysis)
    yield from _critical_path(analysis)
    yield from _off_cpu(analysis)
    yield from _resources(recording)
    yield from _memory(analysis)
    yield from allocation_lines(recording)
    yield from _cached_results(analysis)
    yield from _hottest_line(recording)
    yield from _metered(recording)
    yield from throughput_line(recording)
    yield from thread_lines(analysis)
    yield from _outcomes(recording.tasks)
    yield from _computations(recording)


def shares_of_worker_time(analysis: Analysis) -> tuple[float, list[tuple[str, float]]]:
    """The worker-seconds, and the share of each activity that has a hundredth or more.

    Metered code is divided by what tasks did in it; the line "Metered" has its labels.
    """
    if not len(analysis.recording.tasks):
        return 0.0, []
    total = sum(analysis.activities.values())
    return total, [
        (shown(activity, 24), amount / total)
        for activity, amount in analysis.activities.items()
        if amount >= _SMALLEST_SHARE * total > 0
    ]


def _phases(analysis: Analysis) -> Iterator[Line]:
    """What there was beside tasks."""
    recording = analysis.recording
    if not len(recording.computations):
        return
    rows = analysis.phases.to_dicts()
    wall = recording.stop - recording.start
    parts = [
        f"{row['phase']} {seconds(row['seconds'])}"
        + (_imports(analysis) if row["phase"] == "preparing" else "")
        for row in rows
        if row["phase"] == "tasks" or row["seconds"] >= _SMALLEST_SHARE * wall
    ]
    if len(parts) > 1:
        yield "Phases", f"{', '.join(parts)}; in all {seconds(wall)}"


def _imports(analysis: Analysis) -> str:
    """How much of the time of preparing was that of imports, if that is known."""
    if not is_known_what_was_imported(analysis.recording):
        return " (with imports)"
    imported = not_of_graphs_while_preparing(analysis.recording)
    return f" ({seconds(imported)} of it imports and profilers)" if imported else ""


def _metered(recording: Recording) -> Iterator[Line]:
    """What tasks metered: seconds, with the share of them on a CPU, and other amounts."""
    amounts = metered_amounts(recording)
    cpu = metered_cpu(recording)
    parts = [
        f"{shown(activity, 24)} {seconds(value)} ({percent(cpu[activity] / value)} on a CPU)"
        if unit == "seconds" and value and activity in cpu
        else f"{shown(activity, 24)} {quantity(value, shown(unit, 24))}"
        for (activity, unit), value in list(amounts.items())[:_METERED_SHOWN]
    ]
    if len(amounts) > len(parts):
        parts.append(f"and {count(len(amounts) - len(parts))} more")
    if parts:
        yield "Metered", ", ".join(parts)


def _off_cpu(analysis: Analysis) -> Iterator[Line]:
    """What tasks waited for, with the standard error of what was sampled."""
    rows = analysis.waits.to_dicts()
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
    yield "Off-CPU", f"{seconds(total)} of tasks: {', '.join(parts)}"


def _critical_path(analysis: Analysis) -> Iterator[Line]:
    if not len(analysis.recording.dependencies):
        return
    path = analysis.critical_path
    wall = float(path.computations["wall"].sum())
    if path.length:
        names = [shown(name, 24) for name in path.functions["function"].tolist()[:3]]
        more = ", …" if len(path.functions) > len(names) else ""
        is_serial = path.scheduler_cpu > path.length
        cause = f" (bound by {seconds(path.scheduler_cpu)} of scheduler CPU)" if is_serial else ""
        yield (
            "Critical path",
            f"{seconds(path.length)} of {seconds(wall)}{analysis.added_up} "
            f"({', '.join(names)}{more}); at most "
            f"{amount(path.max_speedup)}× faster with unlimited workers{cause}",
        )


def _outcomes(tasks: Table) -> Iterator[Line]:
    if not len(tasks):
        return
    failed = tasks.rows(tasks["outcome"].where(Outcome.FAILED))
    if len(failed):
        first = failed.rows(slice(1)).to_dicts()[0]
        message = first["error_message"]
        yield (
            "Failed",
            f"{counted(len(failed), 'task')}, first {shown(first['key'])} with "
            f"{shown(first['error'])}" + (f": {shown(message, 200)}" if message else ""),
        )
    unfinished = tasks.rows(tasks["outcome"].where(Outcome.UNFINISHED))
    if len(unfinished):
        started = int((~np.isnan(unfinished["start"])).sum())
        yield (
            "Unfinished",
            f"{counted(len(unfinished), 'task')}, of which {started} "
            f"{'is' if started == 1 else 'are'} known to have started",
        )


def _computations(recording: Recording) -> Iterator[Line]:
    computations, tasks = recording.computations, recording.tasks
    if not len(computations):
        return
    failed = set(tasks.computation[tasks.outcome.where(Outcome.FAILED)].tolist())
    # Of a computation without tasks it is not known whether one failed.
    without_failure = set(tasks.computation.tolist()) - failed
    rows = zip(computations.computation.tolist(), computations.error.tolist(), strict=True)
    errors = [
        f"{shown(error)} {_OWN}"
        if name in without_failure and error not in _ENDS_FROM_OUTSIDE
        else shown(error)
        for name, error in rows
        if error
    ]
    if errors:
        names = ", ".join(dict.fromkeys(errors))
        yield "Ended by an error", f"{counted(len(errors), 'computation')} ({names})"
    if overlapping := int(overlap(computations).sum()):
        yield "Overlapping", f"{counted(overlapping, 'computation')} started before another stopped"


def _hottest_line(recording: Recording) -> Iterator[Line]:
    """The line that computed longest, and the one that waited longest."""
    samples = recording.samples
    sampled = float(samples.seconds[samples.root.where(Root.TASKS)].sum())

    def share(part: float, of: str) -> str:
        return f"{seconds(part)} {of} ({percent(part / sampled)} of {seconds(sampled)} sampled)"

    waits = {
        _location(line): share(line["waiting"], "waiting")
        for line in waiting_lines(recording, 1, SAMPLES_OF_TASKS).to_dicts()
        if line["waiting"] > _LONG_WAIT * sampled
    }
    for line in computing_lines(recording, 1, SAMPLES_OF_TASKS).to_dicts():
        location = _location(line)
        hot = share(line["wall"] - line["waiting"], "self time")
        # One line may be both.
        wait = waits.pop(location, "")
        yield (
            "Hottest line",
            f"{location}, {hot}" + (f"; longest wait, too: {wait}" if wait else ""),
        )
    for location, wait in waits.items():
        yield "Longest wait", f"{location}, {wait}"


def _location(line: Record) -> str:
    path = short_path(line["file"])
    location = f"{shown(path, 40)}:{line['line']} in " if path else ""
    return f"{location}{shown(line['name'], 40)}"


def _cpu_of_resources(recording: Recording) -> str:
    """Per cent of a core; a sample represents the time since the one before."""
    cpu = recording.resources["cpu"]
    lasted = np.diff(recording.resources["time"], prepend=recording.start)
    # Between computations nothing is sampled.
    lasted = np.clip(lasted, 0.0, 2 * float(np.median(lasted[1:])) if len(cpu) > 1 else None)
    if lasted.sum() < _SHORTEST_FOR_CPU:
        return "unknown (too short a time)"
    average = float(np.average(cpu, weights=lasted))
    text = f"{percent(average / 100)} on average"
    peak = float(cpu[lasted >= _SHORTEST_FOR_CPU].max(initial=0.0))
    # Where all but a few samples are too short, the peak of those few is no peak.
    return f"{text}, peak {percent(peak / 100)}" if peak >= average else text


def _resources(recording: Recording) -> Iterator[Line]:
    resources = recording.resources
    if not len(resources):
        return
    memory = resources["memory"] + resources["memory_children"]
    yield (
        "Peak memory",
        f"{size(memory.max())} (child processes "
        f"{size(resources.memory_children[memory.argmax()])}; "
        f"{counted(len(resources), 'sample')})",
    )
    yield "CPU", _cpu_of_resources(recording)


def _memory(analysis: Analysis) -> Iterator[Line]:
    """What functions took while they ran, and the series of memory samplers."""
    grown = [row for row in memory_growth(analysis) if row["peak_growth"] >= _LARGE_GROWTH]
    if grown:
        largest = ", ".join(
            f"{shown(row['function'], 24)}{' ' if row['bound'] == 'exact' else ' ≤ '}"
            f"{size(row['peak_growth'])}"
            for row in grown[:3]
        )
        yield "Memory growth", f"{largest} (largest during a task, sampled)"
    series = [(label, sizes) for label, _, sizes in series_of(analysis.recording) if len(sizes)]
    for label, sizes in series[:_SERIES_SHOWN]:
        yield (
            f"Memory in {shown(label, 24)}",
            f"{size(sizes[0])} at first, peak {size(sizes.max())}, {size(sizes[-1])} at last",
        )
    if len(series) > _SERIES_SHOWN:
        yield "Memory", f"{count(len(series) - _SERIES_SHOWN)} more series"


def memory_growth(analysis: Analysis) -> list[Record]:
    """By how much memory grew during tasks, by function, where that differs.

    An upper bound of few samples, or one like those of all others, is little but the memory of the
    process, which is the same for all functions.
    """
    rows: list[Record] = [row for row in analysis.memory_usage.to_dicts() if row["sampled"]]
    rows = [row for row in rows if row["bound"] == "exact" or row["sampled"] >= _ENOUGH_SAMPLED]
    bounds = [row["peak_growth"] for row in rows if row["bound"] != "exact"]
    if len(bounds) > 1 and min(bounds) > (1 - _ALIKE) * max(bounds):
        return [row for row in rows if row["bound"] == "exact"]
    return rows


def _cached_results(analysis: Analysis) -> Iterator[Line]:
    recording = analysis.recording
    levels, total = analysis.cached_levels
    if not levels:
        return
    unit = shown(recording.metric_unit, 24)
    largest = list(levels.items())[:3]
    top = ", ".join(f"{shown(name, 24)} {quantity(level.peak, unit)}" for name, level in largest)
    metric = shown(recording.metric, 24)
    measured = "" if (metric, unit) == ("nbytes", "bytes") else f" ({metric})"
    yield "Cached results", f"peak {quantity(total.peak, unit)}{measured}: {top}"
