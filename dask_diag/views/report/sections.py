"""Sections of a report: each is a function from a recording to its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isnan
from typing import Any

import numpy as np

from dask_diag.analysis.call_tree import short_path
from dask_diag.analysis.chunks import branches, chunks, rates_over_time
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import Finding
from dask_diag.analysis.findings.rules import CODES, find
from dask_diag.analysis.groups import (
    environment_rows,
    rows_of_workers,
    worker_order,
    workers_of_clusters,
)
from dask_diag.analysis.memory import GROWTHS, peak_allocations, peak_snapshots
from dask_diag.analysis.task_times import stop_times, worker_stop_times
from dask_diag.analysis.what_if import predictions as table_of
from dask_diag.formatting import amount, count, counted, percent, seconds, size
from dask_diag.model.codes import Outcome
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.views.colors import LIMIT, OTHER, FunctionColors, Look
from dask_diag.views.escaping import short_key, shown
from dask_diag.views.findings import (
    EXPLAIN,
    address_of_page,
    fix,
    folded,
    location,
    no_findings,
    saving,
    savings_overlap,
)
from dask_diag.views.hottest import flame_summary_parts
from dask_diag.views.lines import (
    TRACING_COST,
    bounded,
    labelled_lines,
    memory_growth,
    nearness,
    point_of,
)
from dask_diag.views.names import computing_lines, first_line, names_of_computations
from dask_diag.views.page import Section
from dask_diag.views.plots.flame import LOOKS_OF_THREADS, looks_of_calls
from dask_diag.views.plots.layers import layers_of_cpu
from dask_diag.views.plots.lines import measured
from dask_diag.views.plots.tasks import MOST_RECTANGLES, marks_in_lanes
from dask_diag.views.report.components import (
    Bars,
    Code,
    Findings,
    Fold,
    Grid,
    Key,
    Part,
    PathSwitch,
    Piece,
    Pinned,
    ScrolledFigures,
    ShownFinding,
    Text,
    Wide,
    not_there,
    of_first,
)
from dask_diag.views.report.figures import Figures, with_one_axis
from dask_diag.views.report.functions import functions
from dask_diag.views.report.lines import lines
from dask_diag.views.summary import notice_text, profiling_lines
from dask_diag.views.text import Record
from dask_diag.views.what_if import HEADINGS, notes, prediction_rows

_FUNCTIONS = 20
_SHOWN = 10
"""Rows of a table of tasks that are shown until the reader asks for all."""


def findings(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """Findings, or the reason why there are none."""
    found = [_shown(finding, analysis.recording) for finding in find(analysis)]
    overlap = savings_overlap(find(analysis), analysis)
    if overlap:
        yield Text([overlap])
    if found:
        first, low, title = folded(found)
        yield Findings(first)
        if low:
            yield Fold([Findings(low)], title)
    else:
        yield Text([no_findings(analysis)])
        title = f"The {counted(len(CODES), 'rule')} that were tried"
        yield Fold([Text([", ".join(CODES)])], title)


def _shown(finding: Finding, recording: Recording) -> ShownFinding:
    start = recording.start
    return ShownFinding(
        code=finding.code,
        severity=finding.severity,
        saving=saving(finding),
        evidence=shown(finding.evidence, 600),
        advice=shown(fix(finding.advice), 400),
        where=location(finding, recording),
        intervals=[(left - start, right - start) for left, right in finding.where.intervals],
        command=f"{EXPLAIN} {finding.code}",
        address=address_of_page(finding),
    )


_LANES = (
    "Top: activity of the workers. Bottom: one lane per worker, or per worker thread on a cluster"
)
_RECTANGLES = (
    "a rectangle for each task; the solid part is its share of CPU time, the striped one the rest."
)
_PIXELS = (
    "by what that did, since there are too many tasks to draw each. Zoom in below {most} "
    "tasks for a rectangle each; the solid part is then its share of CPU time."
)
_POINTING = (
    "Point at a task for details, click to pin them; drag to move, Ctrl and wheel to zoom. All "
    "plots move together."
)


def timeline(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """States of workers, each task, and CPU and memory, over one time axis."""
    recording = analysis.recording
    tasks, cpu, memory = figures.tasks(), figures.cpu(), figures.memory()
    below = [figure for figure in (tasks, cpu, memory) if figure is not None]
    above = []
    if tasks is None:
        yield not_there("tasks", "Profiler", recording)
    else:
        above = [figures.overview(), figures.workers(is_shaded=True)]
    if above or below:
        with_one_axis([*above[1:], *below])
    yield from above
    yield Wide([ScrolledFigures([figure]) if figure is tasks else figure for figure in below])
    if tasks is not None:
        yield Key("Workers", [layer.look for layer in figures.layers])
    marks = marks_in_lanes(recording)
    keys: list[Part] = [Key("Lanes", marks)] if marks else []
    if figures.cpu_layers is None or not len(figures.process_memory.samples):
        keys.append(not_there("samples of CPU and memory", "ResourceProfiler", recording))
    else:
        layers = [layer.look for layer in layers_of_cpu(figures.cpu_layers)]
        limit = LIMIT._replace(name=f"{LIMIT.name} {counted(figures.cpus, 'CPU')}")
        keys.append(Key("CPU", [*layers, limit] if figures.cpus else layers))
        keys.append(Key("Memory", list(figures.process_memory.key())))
    yield Wide(keys)
    if tasks is not None:
        is_binned = len(recording.tasks) > MOST_RECTANGLES
        drawn = _PIXELS.format(most=count(MOST_RECTANGLES)) if is_binned else _RECTANGLES
        text = Text([f"{_LANES}, {drawn} {_POINTING}"])
        yield Wide([*_critical_path_switch(analysis, figures), text])
        yield Pinned()


def _critical_path_switch(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """Switch that outlines the critical path, if the page can have the path."""
    if not len(analysis.recording.dependencies):
        return
    paths = figures.critical_paths()
    tasks = sum(map(len, paths))
    if 0 < tasks <= MOST_RECTANGLES:
        text = f"{seconds(analysis.critical_path.length)} in {counted(tasks, 'task')}"
        yield PathSwitch(text, paths, len(analysis.recording.tasks) <= MOST_RECTANGLES)


def summary(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """The summary, and notices."""
    yield Text(["Covers the whole run, whatever range the plots show."])
    lines = [*labelled_lines(analysis), *profiling_lines(analysis, verbose=True)]
    yield Text([f"{label}: {text}" for label, text in lines], listed=True)
    yield Text([notice_text(notice) for notice in analysis.recording.notices], listed=True)


_WORKERS = 200
_COLUMNS_OF_WORKERS = (
    *("worker", "host", "address", "version", "left because of", "joined", "left", "pid"),
    *("threads", "clock offset", "tasks", "CPU", "busy"),
)


def workers(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """Each worker of a cluster: its place, its times, and its tasks."""
    recording = analysis.recording
    rows = workers_of_clusters(recording).to_dicts()
    if not rows:
        return
    rows.sort(key=lambda row: (row["host"], worker_order(row["worker"])))
    lanes = recording.tasks.worker
    tasks_of = rows_of_workers(lanes)
    took = np.nan_to_num(worker_stop_times(recording) - recording.tasks.start)
    cpu = recording.tasks.thread_cpu

    def cells(row: Mapping[str, float]) -> tuple[str, ...]:
        tasks = tasks_of.get(str(row["worker"]), np.zeros(0, np.int64))
        left = recording.stop if isnan(row["left"]) else row["left"]
        present = row["threads"] * max(left - max(row["joined"], recording.start), 0.0)
        has_cpu = not len(tasks) or not np.isnan(cpu[tasks]).all()
        offset, error = row["clock_offset"], row["clock_error"]
        joined = row["joined"] - recording.start
        measured = row["version"] if row["measured"] else f"{row['version']} (did not measure)"
        return (
            shown(row["worker"], 60),
            shown(row["host"], 60),
            shown(row["address"], 60),
            shown(str(measured).strip(), 60),
            shown(row["reason"], 60),
            seconds(joined) if joined > 0 else "before",
            "" if isnan(row["left"]) else seconds(row["left"] - recording.start),
            str(row["pid"] or ""),
            count(int(row["threads"])),
            f"{seconds(offset)} ± {seconds(error)}" if offset or error else "same clock",
            count(len(tasks)),
            seconds(float(np.nansum(cpu[tasks]))) if has_cpu else "not known",
            percent(float(took[tasks].sum()) / present) if present else "",
        )

    caption = "Workers of clusters" + of_first(len(rows), _WORKERS)
    yield Grid(caption, _COLUMNS_OF_WORKERS, [cells(row) for row in rows[:_WORKERS]], texts=5)


def chunks_of_events(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """Chunks of coffea: runtime against events, rates, the longest, by dataset and by file."""
    recording = analysis.recording
    if not len(recording.chunks):
        return
    table = chunks(recording)
    datasets = list(dict.fromkeys(table["dataset"].tolist()))
    colors = FunctionColors(datasets)
    runtimes, rates = figures.chunks(table, colors)
    yield runtimes
    yield _key_of_names("Datasets", datasets, colors)
    unit = rates_over_time(recording)[0]
    yield Text([f"{unit.capitalize()} read per second over time, by the tasks that read them:"])
    yield rates
    for by in ("dataset", "file"):
        yield _grid(f"By {by}", chunks(recording, by=by))
    yield _grid("Longest chunks", table, texts=2)
    read = branches(recording)
    if len(read):
        yield _grid("Branches that were read", read)


_ROWS = 100
_UNITS: Mapping[str, Callable[[float], str]] = {"s": seconds, "bytes": size, "share": percent}


def _grid(caption: str, table: Table, texts: int = 1) -> Grid:
    """The first rows of a table, each number in its unit."""

    def cell(name: str, value: Any) -> str:
        if isinstance(value, str):
            return shown(short_path(value), 100)
        text = count if isinstance(value, int) else _UNITS.get(table.unit_of(name), amount)
        return "" if isnan(value) else text(value)

    rows = [[cell(*item) for item in row.items()] for row in table.filter(slice(_ROWS)).to_dicts()]
    headings = [name.replace("_", " ") for name in table.columns]
    return Grid(caption + of_first(len(table), _ROWS), headings, rows, texts=texts, few=_SHOWN)


def memory(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """Series, extremes, and the growth by function."""
    recording = analysis.recording
    plot = figures.over_time("memory")
    if plot is not None:
        yield plot
        series = list(dict.fromkeys(recording.memory["label"].tolist()))
        yield _key_of_names("Series", series, FunctionColors(series))
    yield from allocated(recording)
    samples = recording.resources
    if not len(samples):
        if plot is None and not len(recording.allocations):
            yield not_there("samples of memory", "ResourceProfiler", recording)
        return
    own, children = samples["memory"], samples["memory_children"]
    measures = {"main process": own, "child processes": children, "together": own + children}
    rows = [
        (name, *map(size, (values[0], values.max(), values[-1])))
        for name, values in measures.items()
    ]
    yield Grid("Resident memory", ("of", "first", "peak", "last"), rows)
    usage = memory_growth(analysis)
    if usage:
        yield from _growth(usage, figures.colors)


def _growth(usage: Sequence[Record], colors: FunctionColors) -> Iterator[Part]:
    """The growth of memory in tasks of each function: median, 90% and largest."""
    most = max(row["peak_growth"] for row in usage) or 1.0
    names = ("median", "90% of tasks", "largest")
    styles = ("", "-", "/")

    def pieces(row: Record) -> Iterator[Piece]:
        before, color = 0.0, colors[row["function"]]
        for name, hatch, column in zip(names, styles, GROWTHS, strict=True):
            value = row[column]
            text = f"{name}: {bounded(row['bound'], value)}"
            yield Piece(Look(name, color, hatch), 100 * (value - before) / most, text)
            before = value

    yield Bars(
        "Growth while tasks ran" + of_first(len(usage), _FUNCTIONS),
        [
            (
                shown(row["function"], 60),
                f"{counted(row['tasks'], 'task')}, {count(row['sampled'])} seen",
                ", ".join(
                    f"{name} {bounded(row['bound'], row[column])}"
                    for name, column in zip(names, GROWTHS, strict=True)
                ),
                list(pieces(row)),
            )
            for row in usage[:_FUNCTIONS]
        ],
    )
    yield Key("Memory", [Look(*look) for look in zip(names, [OTHER] * 3, styles, strict=True)])
    yield Text(
        [
            "≤ marks an upper bound: other tasks also ran in that process. Values without it are "
            "exact."
        ]
    )


def _key_of_names(caption: str, names: list[str], colors: FunctionColors) -> Key:
    looks = [Look(shown(name, 40), colors[name]) for name in names[:_FUNCTIONS]]
    return Key(caption, looks, len(names) - len(looks))


def allocated(recording: Recording) -> Iterator[Part]:
    """Allocations in use near the peak of each block, by function and by line."""
    functions = peak_allocations(recording).to_dicts()
    lines = peak_allocations(recording, by="line").to_dicts()

    def file(row: Record) -> str:
        return shown(short_path(row["file"]), 60)

    for snapshot in peak_snapshots(recording):
        block = f" in {shown(snapshot.label, 40)}" if snapshot.label else ""
        of_block = [row for row in functions if row["label"] == snapshot.label]
        yield Grid(
            f"Allocated at {point_of(snapshot)}{block}" + of_first(len(of_block), _FUNCTIONS),
            ("function", "file", "bytes", "blocks"),
            [
                (shown(row["function"], 60), file(row), size(row["bytes"]), count(row["blocks"]))
                for row in of_block[:_FUNCTIONS]
            ],
            texts=2,
        )
        rows = [
            (
                shown(row["function"], 60),
                f"{file(row)}:{row['line']}" if row["line"] else "",
                shown(row["code"], 120),
                size(row["bytes"]),
                count(row["blocks"]),
            )
            for row in lines
            if row["label"] == snapshot.label
        ]
        columns = ("function", "line", "code", "bytes", "blocks")
        yield Fold([Grid(f"By line{block}", columns, rows, texts=3)], "The same by line")
        yield Text([f"{nearness(snapshot)}; {TRACING_COST}."])


_SEEN = 0.002
"""Share of the limit of memory of the fewest cached results whose plot is not folded."""


def cache(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """Results that the scheduler cached, over time."""
    recording = analysis.recording
    plot = figures.over_time("cache")
    if plot is None:
        yield not_there("cached results", "CacheProfiler", recording)
        return
    metric = shown(measured(recording), 40)
    # Outside a report the axis has the name that dask gave it.
    plot.model.yaxis.axis_label = f"Cached results ({metric})"
    text = (
        f"Results that the scheduler cached for other tasks ({metric}), by function; dashed: total."
    )
    names = list(dict.fromkeys(recording.cached_results["function"].tolist()))
    parts = [Text([text]), plot, _key_of_names("Functions", names, figures.colors)]
    memory = figures.process_memory
    if memory.cached is None or not memory.cached.peak < _SEEN * memory.limit:
        yield from parts
        return
    title = f"At most {size(memory.cached.peak)} of {size(memory.limit)}"
    yield Fold(parts, title)


def flame(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """The flame graph and the hottest lines."""
    plot = figures.flame()
    if plot is None:
        yield not_there("stack samples", "SamplingProfiler", analysis.recording)
        return
    text = (
        "By function: each call below its caller, as wide as it took. Time order: calls from "
        "left to right as they were made. Sandwich: all callers of one function above it, and "
        "what it called below. Click a call to zoom; what is counted is the time that the "
        "plots above show."
    )
    yield Text([text])
    yield plot
    yield Key("Calls, by package", looks_of_calls(analysis.recording))
    yield Key("Threads", LOOKS_OF_THREADS)
    heading, columns, rows, remarks = flame_summary_parts(analysis.recording)
    yield Fold([Grid(heading, columns, rows), Text(remarks, listed=True)], "The hottest lines")


_TASKS = 50


def tasks(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """Tasks that failed and the longest tasks; a button of each shows it in the timeline."""
    recording = analysis.recording
    tasks, stop = recording.tasks, stop_times(recording)
    failed = np.flatnonzero(tasks.outcome.eq(Outcome.FAILED))
    if len(failed):
        rows = failed[:_TASKS]
        known = np.where(np.isnan(tasks.start), tasks.submitted, tasks.start)[rows]
        left = known - recording.start
        right = left + np.nan_to_num(stop[rows] - recording.start - left)
        yield Grid(
            "Tasks that failed" + of_first(len(failed), _TASKS),
            ("key", "function", "exception", "message", "raised at"),
            [
                (
                    shown(short_key(row["key"]), 120),
                    shown(row["function"], 40),
                    shown(row["error"], 60),
                    shown(row["error_message"], 300),
                    shown(row["error_location"], 400),
                )
                for row in tasks.filter(rows).to_dicts()
            ],
            texts=5,
            few=_SHOWN,
            intervals=list(zip(left.tolist(), right.tolist(), strict=True)),
            tasks=figures.task_numbers[rows].tolist(),
        )
    took = np.nan_to_num(stop - tasks.start, nan=-1.0)
    rows = np.argsort(-took, kind="stable")[:_TASKS]
    rows = rows[took[rows] >= 0]
    if not len(tasks):
        yield not_there("tasks", "Profiler", recording)
    elif not len(rows):
        yield Text(["No task is known to have started."])
    else:
        pinning = "Click a task to pin it and to zoom the timeline to it"
        yield Text([f"{pinning}; click again to show the whole run."])
        left = tasks.start[rows] - recording.start
        times = zip(left.tolist(), took[rows].tolist(), strict=True)
        yield Grid(
            f"The longest {count(len(rows))} of {count(len(tasks))} tasks of the whole run",
            ("key", "function", "worker", "outcome", "started", "took", "CPU"),
            [
                (
                    shown(short_key(row["key"]), 120),
                    shown(row["function"], 40),
                    shown(row["worker"], 40),
                    row["outcome"],
                    seconds(began),
                    seconds(length),
                    percent(row["thread_cpu"] / length) if length else "",
                )
                for row, (began, length) in zip(tasks.filter(rows).to_dicts(), times, strict=True)
            ],
            texts=4,
            few=_SHOWN,
            follows="longest-tasks",
            intervals=list(zip(left.tolist(), (left + took[rows]).tolist(), strict=True)),
            tasks=figures.task_numbers[rows].tolist(),
        )


_CHAIN = 200
_COLUMNS_OF_PATHS = (
    *("computation", "wall", "critical path", "scheduler CPU", "all tasks", "workers"),
    "max speedup",
)


_MOST_PATHS = 100
"""Computations whose critical paths are listed."""


def critical_path(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """The critical path of each computation, by function, and task by task."""
    recording = analysis.recording
    if not len(recording.dependencies):
        yield Text(["No dependencies between tasks were recorded."])
        return
    path = analysis.critical_path
    computations = recording.computations.computation.tolist()
    names = dict(zip(computations, names_of_computations(recording), strict=True))
    longest = path.computations
    caption = "Critical path of each computation"
    if len(longest) > _MOST_PATHS:
        caption += f", the {count(_MOST_PATHS)} longest of {count(len(longest))}"
        of_most = np.argsort(-longest["wall"], kind="stable")[:_MOST_PATHS]
        longest = longest.filter(np.sort(of_most))
    yield Grid(
        caption,
        _COLUMNS_OF_PATHS,
        [
            (
                shown(names.get(row["computation"], "computation"), 40),
                *(seconds(row[name]) for name in ("wall", "length", "cpu_scheduler", "work")),
                str(row["workers"]),
                f"{amount(row['max_speedup'])}×",
            )
            for row in longest.to_dicts()
        ],
    )
    yield Grid(
        "Functions on it",
        ("function", "tasks", "time", "share"),
        [
            (
                shown(row["function"], 60),
                count(row["tasks"]),
                seconds(row["seconds"]),
                percent(row["share"]),
            )
            for row in path.functions.to_dicts()
        ],
    )
    rows = [
        (shown(row["key"], 120), shown(row["function"], 60), seconds(row["seconds"]))
        for row in path.tasks.filter(slice(_CHAIN)).to_dicts()
    ]
    caption = "In order" + of_first(len(path.tasks), _CHAIN)
    yield Fold(
        [Grid(caption, ("key", "function", "time"), rows, texts=2)],
        f"Task by task ({counted(len(path.tasks), 'task')})",
    )


_TASKS_SIMULATED = 100_000
"""Number of tasks whose dozen replays by the simulator take a few seconds."""


def predictions(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """The wall time with more workers, quicker functions, and without waits."""
    tasks = len(analysis.recording.tasks)
    if not tasks:
        yield not_there("tasks", "Profiler", analysis.recording)
        return
    if tasks > _TASKS_SIMULATED:
        yield Text([f"Too many tasks to simulate here ({count(tasks)}): run dask-diag what-if."])
        return
    table = table_of(analysis.simulator)
    rows = [tuple(shown(cell, 120) for cell in row) for row in prediction_rows(table)]
    yield Grid("Predicted wall time", HEADINGS, rows)
    for note in notes(analysis.recording, table):
        yield Text([note])


_CODE = 20_000


def calling_code(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """The code that computed; characters that cannot be printed are spelled out."""
    rows = environment_rows(analysis.recording, "calling code")
    if not rows:
        yield Text(["The calling code was not recorded, or its source file was not found."])
    for path, text in rows:
        lines = [shown(line.expandtabs(), 500) for line in text[:_CODE].split("\n")]
        code = "\n".join(lines) + ("\n…" if len(text) > _CODE else "")
        yield Code(
            shown(path, 120), code, first_line(path), computing_lines(analysis.recording, path)
        )


def environment(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """Versions, machine, and configuration."""
    recording = analysis.recording
    if not len(recording.environment):
        yield Text(["This recording has no information on its environment."])
        return

    def grid(section: str, columns: tuple[str, str] = ("", "")) -> Grid:
        rows = [
            (shown(name, 120), shown(value, 300))
            for name, value in environment_rows(recording, section)
        ]
        return Grid(section.capitalize(), columns, rows, texts=2)

    yield grid("versions")
    yield grid("machine")
    configuration = grid("configuration", ("name", "value"))
    entries = counted(len(configuration.rows), "entry", "entries")
    yield Fold([configuration], f"dask's configuration ({entries})")


FINDINGS = Section("findings", "Findings", findings, is_on_top=True)
SECTIONS = (
    FINDINGS,
    Section("timeline", "Timeline", timeline, is_on_top=True),
    Section("lines", "By line of the program", lines, is_optional=True, entry="Lines"),
    Section("functions", "By function", functions, entry="Functions"),
    Section("summary", "Summary", summary, is_folded=True, entry="Functions"),
    Section("workers", "Workers", workers, is_optional=True, entry="Functions"),
    Section("chunks", "Chunks", chunks_of_events, is_optional=True, entry="Functions"),
    Section("memory", "Memory", memory, entry="Memory"),
    Section("cache", "Cached results", cache, entry="Memory"),
    Section("flame", "Flame graph", flame),
    Section("tasks", "Tasks", tasks, entry="Details"),
    Section("critical-path", "Critical path", critical_path, is_folded=True, entry="Details"),
    Section("what-if", "What if", predictions, is_folded=True, entry="Details"),
    Section("code", "Calling code", calling_code, is_folded=True, entry="Details"),
    Section("environment", "Environment", environment, is_folded=True, entry="Details"),
)
