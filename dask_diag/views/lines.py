"""Labelled lines of a summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isnan

import numpy as np

from dask_diag.analysis.call_tree import SAMPLES_OF_TASKS, numbered, short_path
from dask_diag.analysis.chunks import branches, chunk_name, chunks, slow_files
from dask_diag.analysis.cpu import ThreadGroup
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import largest
from dask_diag.analysis.groups import totals_by
from dask_diag.analysis.lines import computing_lines, own_lines, waiting_lines
from dask_diag.analysis.memory import PeakSnapshot, peak_allocations, peak_snapshots, series_of
from dask_diag.analysis.phases import is_known_what_was_imported, not_of_graphs_while_preparing
from dask_diag.analysis.task_times import overlap, seconds_computing
from dask_diag.analysis.throughput import COFFEA, throughput
from dask_diag.analysis.waits import cpu_and_noncpu, metered_amounts, metered_cpu
from dask_diag.formatting import amount, count, counted, percent, quantity, seconds, size
from dask_diag.model.codes import COMPUTATIONS, IN_TASKS, SENT_CODE, Activity, Outcome, Root
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.views.cell import make_summary
from dask_diag.views.colors import Look, look_of
from dask_diag.views.escaping import shown
from dask_diag.views.text import Record, Summary, SummaryParts

TRACING_COST = "tracemalloc was on: code that makes many small objects ran 2 to 12 times slower"
_SHOWN = 3
_SMALLEST_SHARE = 0.01
_AT_PEAK = 0.9
"""Least share of the peak of a snapshot that is called one of the peak."""


def allocation_lines(recording: Recording) -> Iterator[tuple[str, str]]:
    """A line for each block, and a line on the cost of tracing."""
    rows = peak_allocations(recording, by="line").to_dicts()
    snapshots = list(peak_snapshots(recording))
    for snapshot in snapshots:
        largest = [
            f"{size(row['bytes'])} {allocation_place(row)}"
            for row in rows
            if row["label"] == snapshot.label and row["bytes"] >= _SMALLEST_SHARE * snapshot.traced
        ]
        block = f" in {shown(snapshot.label, 24)}" if snapshot.label else ""
        more = ", …" if len(largest) > _SHOWN else ""
        yield (
            f"Allocated at {point_of(snapshot)}{block}",
            f"{', '.join(largest[:_SHOWN])}{more}; {nearness(snapshot)}",
        )
    if snapshots:
        yield "Tracing", TRACING_COST


def point_of(snapshot: PeakSnapshot) -> str:
    """The peak, or the least share of the peak at which a snapshot was taken."""
    return "peak" if snapshot.near >= _AT_PEAK else f"{percent(snapshot.near)} of peak"


def allocation_place(row: Record) -> str:
    """The function and line of a row of `peak_allocations`."""
    name = shown(row["function"] or "unknown function", 40)
    path = shown(short_path(row["file"]), 40)
    return f"{name} ({numbered(path, row['line'])})" if path else name


def nearness(snapshot: PeakSnapshot) -> str:
    """Bytes traced by a snapshot, and the least share of their peak."""
    return (
        f"{size(snapshot.traced)} traced, at least {percent(snapshot.near)} of the peak of what is "
        "traced"
    )


_OTHER_THREADS = ("python", "native", "ended")
_LARGE_SHARE = 0.1
"""Least share of the CPU for which CPU outside tasks is shown."""
_SMALLEST_SHOWN = 1e-3
"""Seconds of CPU between tasks, on the workers' threads."""
_GROUPS_SHOWN = 6


def thread_lines(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """Lines on other threads and on the scheduler, if they used much CPU."""
    if not len(analysis.recording.computations):
        return
    in_tasks, outside = analysis.cpu_in_tasks, analysis.known_cpu_outside_tasks
    groups = [group for group in analysis.thread_groups if group.kind in _OTHER_THREADS]
    between = 0.0
    if analysis.thread_groups:
        outside = sum(group.cpu for group in groups)
        on_workers = sum(g.cpu for g in analysis.thread_groups if g.kind == "tasks")
        between = max(0.0, on_workers - in_tasks)
    if outside > _LARGE_SHARE * (outside + in_tasks):
        yield "Other threads", _by_group(groups) or f"{seconds(outside)} of CPU"
    scheduling = analysis.cpu_of_scheduler
    if scheduling + between > _LARGE_SHARE * (outside + in_tasks + scheduling + between):
        workers = (
            f", and {seconds(between)} on the workers' threads"
            if between >= _SMALLEST_SHOWN
            else ""
        )
        yield "Scheduler", f"{seconds(scheduling)} of CPU{workers}"


def _by_group(groups: list[ThreadGroup]) -> str:
    """CPU of each group, the largest first."""
    total = sum(group.cpu for group in groups)
    large = [group for group in groups if group.cpu >= _SMALLEST_SHARE * total]
    parts = [f"{_name(group)} {seconds(group.cpu)}" for group in large[:_GROUPS_SHOWN]]
    others = total - sum(group.cpu for group in large[:_GROUPS_SHOWN])
    if len(large) > _GROUPS_SHOWN:
        parts.append(f"others {seconds(others)}")
    return f"{seconds(total)} of CPU: {', '.join(parts)}" if parts else ""


def _name(group: ThreadGroup) -> str:
    if group.kind == "ended":
        return "ended threads"
    name = shown(group.name, 32) or "unnamed"
    kind = "Python" if group.kind == "python" else "native"
    where = f" in each of {group.processes} worker processes" if group.processes > 1 else ""
    return f"{counted(group.threads, f'{kind} thread')} {name}{where}"


_HEADINGS = ("tasks", "threads", "CPU", "efficiency")
_ROWS_SHOWN = 20
_HOW_TO_METER = (
    "no events or bytes are known: pass totals (--events N, --bytes N), or let tasks meter them, "
    'as with context_meter.digest_metric("events", len(part), "events")'
)


def throughput_summary(recording: Recording, total: Table, parts: Table, by: str) -> Summary:
    """Result of `dask_diag.throughput` for all tasks of a recording, and by function or worker."""
    (all_tasks,) = total.to_dicts()
    known = [unit for unit in ("events", "bytes") if not isnan(all_tasks[unit])]
    # A total that was passed is that of no function.
    metered = [unit for unit in known if not np.isnan(parts[unit]).all()]
    rows = [_row(shown(row[by]), row, metered) for row in parts.to_dicts()[:_ROWS_SHOWN]]
    more = len(parts) - len(rows)
    notices = [f"{counted(more, f'more {by}')} not shown"] if more else []
    return make_summary(
        SummaryParts(
            headline=f"{counted(all_tasks['tasks'], 'task')} done in {seconds(all_tasks['wall'])}",
            columns=(by, *_HEADINGS, *(f"{unit}/s" for unit in metered)),
            rows=[*rows, _row("total", all_tasks, metered)],
            lines=[("Wall", _wall(recording, all_tasks)), *_lines(all_tasks)],
            notices=notices if known else [*notices, _HOW_TO_METER],
        )
    )


def throughput_line(recording: Recording) -> Iterator[tuple[str, str]]:
    """The rates of events and bytes, where tasks metered them or coffea counted them."""
    has_totals = len(recording.chunks) or COFFEA in recording.environment.section.values
    if not (has_totals or {"events", "bytes"} & set(recording.metrics.unit.tolist())):
        return
    (row,) = throughput(recording).to_dicts()
    rates = [text for unit in ("events", "bytes") for text in _rates(row, unit)]
    if rates:
        efficiency = row["core_efficiency"]
        if not isnan(efficiency):
            rates.append(f"core efficiency {percent(efficiency)}")
        yield "Throughput", "; ".join(rates)


def _wall(recording: Recording, row: Record) -> str:
    """Wall time of the rates, and the times that a summary has."""
    computing = seconds_computing(recording.computations)
    return (
        f"{seconds(row['wall'])} in calls of dask and computations, {seconds(computing)} in "
        f"computations alone; the recording is of {seconds(recording.stop - recording.start)}"
    )


def _lines(row: Record) -> Iterator[tuple[str, str]]:
    if row["tasks"]:
        yield from _lines_of_workers(row)
    for unit in ("events", "bytes"):
        for text in _rates(row, unit):
            yield unit.capitalize(), f"{quantity(row[unit], unit)}: {text}"


def _lines_of_workers(row: Record) -> Iterator[tuple[str, str]]:
    yield "Workers", f"{amount(row['workers'])} on average, peak {count(row['peak_workers'])}"
    yield "Threads", f"{amount(row['threads'])} on average, peak {count(row['peak_threads'])}"
    efficiency = percent(row["core_efficiency"])
    yield "Core efficiency", f"{efficiency}: {seconds(row['cpu'])} of CPU / (threads × wall)"
    if row["cpu_unknown"]:
        yield "CPU not known", f"of {seconds(row['cpu_unknown'])} of tasks, which are not in it"


def _rates(row: Record, unit: str) -> Iterator[str]:
    if isnan(row[unit]):
        return
    rates = {
        "/s in computations": f"{unit}_per_second",
        "/s of the elapsed time": f"{unit}_per_elapsed_second",
        "/s per core": f"{unit}_per_core",
        " per CPU second": f"{unit}_per_cpu_second",
    }
    yield ", ".join(
        f"{quantity(row[name], unit)}{text}" for text, name in rates.items() if not isnan(row[name])
    )


def _row(name: str, row: Record, metered: Sequence[str]) -> tuple[str, ...]:
    texts = {"events": amount, "bytes": size}
    rates = ((texts[unit], row[f"{unit}_per_second"]) for unit in metered)
    return (
        name,
        count(row["tasks"]),
        amount(row["threads"]),
        seconds(row["cpu"]),
        percent(row["core_efficiency"]),
        *("" if isnan(rate) else text(rate) for text, rate in rates),
    )


Line = tuple[str, str]
"""A label and a text."""

_LARGE_OWN = 0.05
"""Least share of the sampled time of a line of the program's own code that is named."""
_MOSTLY = 0.5
"""Least share of task time with known stacks, to say where it was spent."""
_LONG_WAIT = 0.05
"""Least share of the sampled time of a wait that is named."""
_LARGE_GROWTH = 1e6
_ALIKE = 0.1
"""Share of the largest upper bound by which bounds differ that show the same memory."""
_ENOUGH_SAMPLED = 5
"""Least number of sampled tasks of a function."""
_SERIES_SHOWN = 8
_METERED_SHOWN = 8
_SHORTEST_FOR_CPU = 0.05
"""Seconds: the kernel counts other processors when its clock ticks, each 4 or 10 ms."""

_OWN = "in dask's scheduler: no task failed"
_ENDS_FROM_OUTSIDE = {"BrokenProcessPool", "KeyboardInterrupt", "SystemExit"}
"""Errors raised neither by tasks nor by the scheduler."""


def labelled_lines(analysis: Analysis, verbose: bool = True) -> Iterator[Line]:
    """Facts of a recording besides its findings and its table; without `verbose`, the main ones."""
    recording = analysis.recording
    if verbose:
        yield from _phases(analysis)
    yield from _own_code(recording)
    if verbose:
        yield from _hottest_line(recording)
    yield from _critical_path(analysis, verbose)
    if verbose:
        yield from _off_cpu(analysis)
    yield from _resources(recording, verbose)
    if verbose:
        yield from _memory_growth(analysis)
    yield from _memory_series(recording)
    yield from allocation_lines(recording)
    yield from _cached_results(analysis, verbose)
    yield from _metered(recording)
    yield from _in_tasks(recording)
    yield from throughput_line(recording)
    if verbose:
        yield from thread_lines(analysis)
    yield from _coffea(analysis, verbose)
    yield from _outcomes(recording)
    yield from _computations(recording)


def shares_of_wall_time(analysis: Analysis) -> tuple[float, list[tuple[Look, float]]]:
    """Wall seconds, and the share of each part above a hundredth, the largest first."""
    if not len(analysis.recording.tasks):
        return 0.0, []
    return _shares({row["part"]: row["seconds"] for row in analysis.wall_time.to_dicts()})


def worker_time_line(analysis: Analysis) -> Iterator[Line]:
    """Worker-seconds, and the share of each activity above a hundredth.

    Metered code is divided by activity; the line "Metered" has the labels.
    """
    total, shares = _shares(analysis.activities)
    if shares:
        parts = ", ".join(f"{look.name} {percent(share)}" for look, share in shares)
        yield "Worker time", f"{seconds(total)}: {parts}"


def _shares(amounts: Mapping[str, float]) -> tuple[float, list[tuple[Look, float]]]:
    total = sum(amounts.values())
    shares = [
        (look_of(name), amount / total)
        for name, amount in amounts.items()
        if amount >= _SMALLEST_SHARE * total > 0
    ]
    return total, sorted(shares, key=lambda item: -item[1])


def _phases(analysis: Analysis) -> Iterator[Line]:
    """Seconds of each phase."""
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
    """Seconds of imports while preparing, if known."""
    if not is_known_what_was_imported(analysis.recording):
        return " (with imports)"
    imported = not_of_graphs_while_preparing(analysis.recording)
    return f" ({seconds(imported)} of it imports and profilers)" if imported else ""


def _metered(recording: Recording) -> Iterator[Line]:
    """Amounts that tasks metered; for seconds also the share on a CPU."""
    amounts = {
        of: value
        for of, value in metered_amounts(recording).items()
        if of[0] not in (Activity.GC, Activity.EVENT_LOOP, IN_TASKS)
    }
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


def _in_tasks(recording: Recording) -> Iterator[Line]:
    """Computations that tasks ran inside, by function."""
    metrics = recording.metrics
    rows = metrics.filter(metrics.activity.eq(IN_TASKS))
    functions = recording.tasks.function[rows.task]
    is_count, is_time = rows.unit.eq(COMPUTATIONS), rows.unit.eq("seconds")
    for name in largest(functions, rows.value * is_time):
        of_name = functions.eq(name)
        computations = rows.value[of_name & is_count].sum()
        tasks = counted(len(np.unique(rows.task[of_name])), "task")
        lasted = seconds(rows.value[of_name & is_time].sum())
        said = f"{counted(int(computations), 'computation')} in {tasks} of {shown(name, 24)}"
        yield "Inside tasks", f"{said}: {lasted}"


def _off_cpu(analysis: Analysis) -> Iterator[Line]:
    """Causes of waits in tasks, with the standard error of sampled ones."""
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


def _critical_path(analysis: Analysis, verbose: bool) -> Iterator[Line]:
    if not len(analysis.recording.dependencies):
        return
    path = analysis.critical_path
    wall = float(path.computations["wall"].sum())
    if path.length:
        longest = analysis.named(path.functions["function"].tolist()[:3])
        names = [shown(name, 24) for name in longest]
        more = ", …" if len(path.functions) > len(names) else ""
        functions = f" ({', '.join(names)}{more})" if verbose else ""
        is_serial = path.cpu_scheduler > path.length
        cause = f" (bound by {seconds(path.cpu_scheduler)} of scheduler CPU)" if is_serial else ""
        fastest, with_gil = path.max_speedup, analysis.seconds_with_gil
        if with_gil and wall < fastest * with_gil:
            fastest = max(wall / with_gil, 1.0)
            cause = f" (bound by {seconds(with_gil)} of CPU time that needs the GIL)"
        yield (
            "Critical path",
            f"{seconds(path.length)} of {seconds(wall)}{analysis.added_up}{functions}; at most "
            f"{amount(fastest)}× faster with unlimited workers{cause}",
        )


def _coffea(analysis: Analysis, verbose: bool) -> Iterator[Line]:
    """Chunks of coffea, time in the processor and in other tasks, and branches that were read."""
    recording = analysis.recording
    if not len(recording.chunks):
        return
    files = chunks(recording, by="file")
    done, events = int(files["chunks"].sum()), float(files["events"].sum())
    datasets = len(totals_by(recording.chunks.dataset, recording.chunks.first))
    longest = int(np.nan_to_num(analysis.task_seconds[recording.chunks.task]).argmax())
    took = seconds(float(analysis.task_seconds[recording.chunks.task[longest]]))
    yield (
        "Chunks",
        f"{count(done)} with {amount(events)} events, of {counted(datasets, 'dataset')} in "
        f"{counted(len(files), 'file')}; the longest took {took}: "
        f"{shown(chunk_name(recording, longest), 80)}",
    )
    if slow := slow_files(recording):
        worst, factor = slow[0]
        more = f" and {count(len(slow) - 1)} more" if len(slow) > 1 else ""
        yield (
            "Slow files",
            f"{shown(short_path(worst), 60)}{more}: an event takes {amount(factor)} times as long "
            "as in the median file",
        )
    if not verbose:
        return
    cpu, off_cpu = cpu_and_noncpu(recording)
    of_chunks = np.zeros(len(cpu), bool)
    of_chunks[recording.chunks.task] = True
    for label, chosen in (("Processor", of_chunks), ("Overhead", ~of_chunks)):
        on, off = float(np.nansum(cpu[chosen])), float(np.nansum(off_cpu[chosen]))
        share = f" ({percent(on / (on + off))} on a CPU)" if on + off else ""
        what = "chunks" if label == "Processor" else "other tasks"
        yield label, f"{seconds(on)} of CPU and {seconds(off)} off a CPU in {what}{share}"
    rows = branches(recording).to_dicts()
    if rows:
        *read, whole = rows
        share = percent(sum(row["share"] for row in read))
        unused = [row["branch"] for row in read if row["unused"] == row["files"]]
        yield (
            "Branches",
            f"{len(read)} of {count(whole['branches'])} read, with {share} of the bytes of the "
            f"files; compressed {amount(whole['ratio'])} times"
            + f"; preloaded and not used: {shown(', '.join(unused), 60)}"
            * bool(unused),
        )


def _outcomes(recording: Recording) -> Iterator[Line]:
    tasks = recording.tasks
    if not len(tasks):
        return
    failed = tasks.filter(tasks["outcome"].eq(Outcome.FAILED))
    if len(failed):
        first = failed.filter(slice(1)).to_dicts()[0]
        message = first["error_message"]
        yield (
            "Failed",
            f"{counted(len(failed), 'task')}, first {shown(first['key'])} with "
            f"{shown(first['error'])}" + (f": {shown(message, 200)}" if message else ""),
        )
    unfinished = tasks.filter(tasks["outcome"].eq(Outcome.UNFINISHED))
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
    failed = set(tasks.computation[tasks.outcome.eq(Outcome.FAILED)].tolist())
    # Of a computation without tasks it is not known whether one failed.
    without_failure = set(tasks.computation.tolist()) - failed
    errors = [
        f"{shown(error)} {_OWN}"
        if name in without_failure and error not in _ENDS_FROM_OUTSIDE
        else shown(error)
        for name, error in computations.tuples("computation", "error")
        if error
    ]
    if errors:
        names = ", ".join(dict.fromkeys(errors))
        yield "Ended by an error", f"{counted(len(errors), 'computation')} ({names})"
    if overlapping := int(overlap(computations).sum()):
        yield "Overlapping", f"{counted(overlapping, 'computation')} started before another stopped"


def _own_code(recording: Recording) -> Iterator[Line]:
    """The line of the program's own code with most task time, or the line that computed longest.

    Time in libraries is that of the own line that called them.
    """
    samples = recording.samples
    # Without Dask, the calling thread did the work.
    root = Root.TASKS if len(recording.computations) else Root.BEFORE
    in_tasks = samples.root.eq(root)
    sampled = float(samples.seconds[in_tasks].sum())
    # Of the rest no stack is known.
    known = float(samples.seconds[in_tasks & (samples.node >= 0)].sum())
    if not sampled:
        return
    own = own_lines(recording, samples.seconds * in_tasks)
    if own and own[0].seconds >= _LARGE_OWN * known:
        time, share = seconds(own[0].seconds), percent(own[0].seconds / sampled)
        place = _location(own[0].by_name_of_file()._asdict())
        of = "task time" if root == Root.TASKS else "the sampled time"
        yield "Your code", f"{place}: {time} with calls, {share} of {of}"
        return
    computations = recording.computations
    sites = totals_by(computations.call_site, computations.stop - computations.start)
    site = max(sites, key=lambda name: sites[name], default="")
    # Lines that built the tasks have a table of their own, with the line that computes.
    if site and not len(recording.steps):
        computes = f"{shown(site, 40)} computes ({seconds(sites[site])})"
        if known >= _MOSTLY * sampled:
            share = percent(1 - sum(line.seconds for line in own) / known)
            computes = f"{computes}; tasks spend {share} of their time in libraries"
        yield "Your code", computes


def _hottest_line(recording: Recording) -> Iterator[Line]:
    """The lines that computed and waited longest."""
    samples = recording.samples
    sampled = float(samples.seconds[samples.root.eq(Root.TASKS)].sum())

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
    if line["file"] == SENT_CODE:
        return f"line {line['line']} in {shown(line['name'], 40)}"
    path = short_path(line["file"])
    location = f"{numbered(shown(path, 40), line['line'])} in " if path else ""
    return f"{location}{shown(line['name'], 40)}"


def _cpu_of_resources(recording: Recording) -> str:
    """Per cent of a core; a sample represents the time since the sample before."""
    cpu = recording.resources["cpu"]
    lasted = np.diff(recording.resources["time"], prepend=recording.start)
    # Between computations nothing is sampled.
    lasted = np.clip(lasted, 0.0, 2 * float(np.median(lasted[1:])) if len(cpu) > 1 else None)
    if lasted.sum() < _SHORTEST_FOR_CPU:
        return "unknown (too short a time)"
    average = float(np.average(cpu, weights=lasted))
    text = f"{percent(average / 100)} on average"
    peak = float(cpu[lasted >= _SHORTEST_FOR_CPU].max(initial=0.0))
    # Where all but a few samples are too short, the others have no peak.
    return f"{text}, peak {percent(peak / 100)}" if peak >= average else text


def _resources(recording: Recording, verbose: bool) -> Iterator[Line]:
    resources = recording.resources
    if not len(resources):
        return
    memory = resources["memory"] + resources["memory_children"]
    children = float(resources.memory_children[memory.argmax()])
    parts = [f"child processes {size(children)}"] * (verbose or children > 0)
    parts += [counted(len(resources), "sample")] * verbose
    more = f" ({'; '.join(parts)})" if parts else ""
    yield "Peak memory", f"{size(memory.max())}{more}"
    yield "CPU", _cpu_of_resources(recording)


def _memory_growth(analysis: Analysis) -> Iterator[Line]:
    """Growth of memory during tasks."""
    grown = [row for row in memory_growth(analysis) if row["peak_growth"] >= _LARGE_GROWTH]
    if grown:
        largest = ", ".join(
            f"{shown(row['function'], 24)}{' ' if row['bound'] == 'exact' else ' ≤ '}"
            f"{size(row['peak_growth'])} (median {size(row['median_growth'])}, 90% of tasks "
            f"{size(row['p90_growth'])})"
            for row in grown[:3]
        )
        yield "Memory growth", f"{largest}; largest during a task, sampled"


def _memory_series(recording: Recording) -> Iterator[Line]:
    """The series of memory samplers."""
    series = [(label, sizes) for label, _, sizes in series_of(recording) if len(sizes)]
    for label, sizes in series[:_SERIES_SHOWN]:
        yield (
            f"Memory in {shown(label, 24)}",
            f"{size(sizes[0])} at first, peak {size(sizes.max())}, {size(sizes[-1])} at last",
        )
    if len(series) > _SERIES_SHOWN:
        yield "Memory", f"{count(len(series) - _SERIES_SHOWN)} more series"


def bounded(bound: str, growth: float) -> str:
    """A growth of memory as text, marked if it is an upper bound."""
    return f"≤ {size(growth)}" if bound == "upper" and not isnan(growth) else size(growth)


def memory_growth(analysis: Analysis) -> list[Record]:
    """Growth of memory during tasks by function, where functions differ.

    An upper bound of few samples, or bounds that are alike, show little but the memory of the
    process, which is the same for all functions.
    """
    rows: list[Record] = [row for row in analysis.task_memory.to_dicts() if row["sampled"]]
    rows = [row for row in rows if row["bound"] == "exact" or row["sampled"] >= _ENOUGH_SAMPLED]
    bounds = [row["peak_growth"] for row in rows if row["bound"] != "exact"]
    if len(bounds) > 1 and min(bounds) > (1 - _ALIKE) * max(bounds):
        return [row for row in rows if row["bound"] == "exact"]
    return rows


def _cached_results(analysis: Analysis, verbose: bool) -> Iterator[Line]:
    """Peaks of cached results; without `verbose` if a profiler or a metric was chosen for them."""
    recording = analysis.recording
    levels, total = analysis.cached_levels
    is_default = len(recording.environment) > 0 and recording.metric == "nbytes"
    if not levels or (is_default and not verbose):
        return
    unit = shown(recording.metric_unit, 24)
    largest = list(levels.items())[:3]
    top = ", ".join(f"{shown(name, 24)} {quantity(level.peak, unit)}" for name, level in largest)
    metric = shown(recording.metric, 24)
    measured = "" if (metric, unit) == ("nbytes", "bytes") else f" ({metric})"
    yield "Cached results", f"peak {quantity(total.peak, unit)}{measured}: {top}"
