"""Sections of a report that are plots: tasks, resources, memory, cached results, stacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import ClassVar

from dask_diag.analysis.call_tree import short_path
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.memory import peak_allocations, peak_snapshots
from dask_diag.formatting import amount, count, counted, percent, seconds, size
from dask_diag.model.recording import Recording
from dask_diag.views.colors import FunctionColors
from dask_diag.views.hottest import flame_summary_parts
from dask_diag.views.lines import TRACING_COST, memory_growth, nearness, point_of
from dask_diag.views.names import names_of_computations
from dask_diag.views.plots.layers import Layer, layers_of_cpu
from dask_diag.views.plots.lines import LIMIT, measured
from dask_diag.views.plots.tasks import MOST_RECTANGLES, marks_in_lanes
from dask_diag.views.report.components import (
    Fold,
    Grid,
    Key,
    Lanes,
    Part,
    Pinned,
    Text,
    Wide,
    not_there,
    of_first,
    safe,
)
from dask_diag.views.report.figures import Figures, with_one_axis
from dask_diag.views.text import Record

_CHAIN = 200


@dataclass(frozen=True)
class CriticalPath(Part):
    """The switch that outlines the critical path among the tasks."""

    text: str
    paths: Sequence[Sequence[int]] = field(repr=False)
    """Of each computation the numbers of its tasks in the page, in order."""
    is_on: bool
    """Whether it is outlined when the page opens."""
    kind: ClassVar[str] = "critical-path"


def path_switch(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """The switch that outlines it, if it is known and short enough to be in the page."""
    if not len(analysis.recording.dependencies):
        return
    paths = figures.critical_paths()
    tasks = sum(map(len, paths))
    if 0 < tasks <= MOST_RECTANGLES:
        text = f"{seconds(analysis.critical_path.length)} in {counted(tasks, 'task')}"
        yield CriticalPath(text, paths, len(analysis.recording.tasks) <= MOST_RECTANGLES)


def longest_chains(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """The critical path."""
    if not len(analysis.recording.dependencies):
        yield Text(["No dependencies between tasks were recorded."])
        return
    path, recording = analysis.critical_path, analysis.recording
    computations = recording.computations.computation.tolist()
    names = dict(zip(computations, names_of_computations(recording), strict=True))
    yield Grid(
        "Critical path of each computation",
        (
            *("computation", "wall", "critical path", "scheduler CPU", "all tasks", "workers"),
            "max speedup",
        ),
        [
            (
                safe(names.get(row["computation"], "computation"), 40),
                seconds(row["wall"]),
                seconds(row["length"]),
                seconds(row["scheduler_cpu"]),
                seconds(row["work"]),
                str(row["workers"]),
                f"{amount(row['max_speedup'])}×",
            )
            for row in path.computations.to_dicts()
        ],
    )
    yield Grid(
        "Functions on it",
        ("function", "tasks", "time", "share"),
        [
            (
                safe(row["function"], 60),
                count(row["tasks"]),
                seconds(row["seconds"]),
                percent(row["share"]),
            )
            for row in path.functions.to_dicts()
        ],
    )
    yield Fold(
        f"Task by task ({counted(len(path.tasks), 'task')})",
        [
            Grid(
                "In order" + of_first(len(path.tasks), _CHAIN),
                ("key", "function", "time"),
                [
                    (safe(row["key"]), safe(row["function"], 60), seconds(row["seconds"]))
                    for row in path.tasks.rows(slice(_CHAIN)).to_dicts()
                ],
                texts=2,
            )
        ],
    )


_FUNCTIONS = 20
_LANES = (
    "Above: the workers, by what they did; empty is idle. Below: a lane for each worker, of a "
    "cluster for each of its threads"
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
_MEANING_OF_MARKS = (
    "≤ is an upper bound: other tasks ran in that process meanwhile, or before. "
    "Without it the amount is exact."
)


def timeline(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """What workers did, each task, and CPU and memory, over one time axis."""
    tasks, cpu, memory = figures.tasks(), figures.cpu(), figures.memory()
    below = [figure for figure in (tasks, cpu, memory) if figure is not None]
    if tasks is None:
        yield not_there("tasks", "Profiler", analysis.recording)
        above = []
    else:
        above = [figures.overview(), figures.shaded_workers()]
    if above or below:
        with_one_axis([*above[1:], *below])
    yield from above
    yield Wide([Lanes([figure]) if figure is tasks else figure for figure in below])
    if tasks is not None:
        yield _key_of_layers("Workers", figures.layers)
    yield Wide([*_marks(analysis), *_keys_of_resources(analysis.recording, figures)])
    if tasks is not None:
        yield Wide(
            [
                *path_switch(analysis, figures),
                Text([_about_timeline(len(analysis.recording.tasks))]),
            ]
        )
        yield Pinned()


def _about_timeline(tasks: int) -> str:
    """How to read what the page draws as it opens: rectangles, or pixels of many tasks."""
    drawn = _RECTANGLES if tasks <= MOST_RECTANGLES else _PIXELS.format(most=count(MOST_RECTANGLES))
    return f"{_LANES}, {drawn} {_POINTING}"


def _marks(analysis: Analysis) -> Iterator[Part]:
    marks = marks_in_lanes(analysis.recording)
    if marks:
        yield Key("Marks in lanes", marks)


def _keys_of_resources(recording: Recording, figures: Figures) -> Iterator[Part]:
    """The names of the colours of CPU and memory."""
    if figures.cpu_layers is None or not len(figures.process_memory.samples):
        yield not_there("samples of CPU and memory", "ResourceProfiler", recording)
        return
    limit = (LIMIT, "dashed: the number of CPUs")
    yield _key_of_layers("CPU", layers_of_cpu(figures.cpu_layers), limit)
    yield Key("Memory", list(figures.process_memory.key()))


def _key_of_layers(caption: str, layers: Sequence[Layer], *more: tuple[str, str]) -> Key:
    """The names of layers, which look as they are drawn."""
    items = [*((layer.color, layer.name) for layer in layers), *more]
    return Key(caption, items, hatches={layer.name: layer.hatch for layer in layers})


def memory(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """Series, extremes, and what functions took."""
    recording = analysis.recording
    plot = figures.over_time("memory")
    if plot is not None:
        yield plot
        series = list(dict.fromkeys(recording.memory["label"].tolist()))
        colors = FunctionColors(series)
        items = [(colors[name], safe(name, 40)) for name in series]
        yield Key("Series", items[:_FUNCTIONS], max(0, len(items) - _FUNCTIONS))
    yield from allocated(recording)
    samples = recording.resources
    if not len(samples):
        if plot is None and not len(recording.allocations):
            yield not_there("samples of memory", "ResourceProfiler", recording)
        return
    own, children = samples["memory"], samples["memory_children"]
    rows = [
        (name, *map(size, (values[0], values.max(), values[-1])))
        for name, values in (
            ("this process", own),
            ("its descendants", children),
            ("together", own + children),
        )
    ]
    yield Grid("Resident memory", ("of", "first", "peak", "last"), rows)
    usage = memory_growth(analysis)
    if usage:
        yield Grid(
            "Growth while tasks ran" + of_first(len(usage), _FUNCTIONS),
            ("function", "tasks", "seen", "largest", "mean"),
            [
                (
                    safe(row["function"], 60),
                    count(row["tasks"]),
                    count(row["sampled"]),
                    *(bounded(row["bound"], row[name]) for name in ("peak_growth", "mean_growth")),
                )
                for row in usage[:_FUNCTIONS]
            ],
        )
        yield Text([_MEANING_OF_MARKS])


def allocated(recording: Recording) -> Iterator[Part]:
    """Who allocated what was in use near the peak of each block, by function and by line."""
    functions = peak_allocations(recording).to_dicts()
    lines = peak_allocations(recording, by="line").to_dicts()
    for snapshot in peak_snapshots(recording):
        block = f" in {safe(snapshot.label, 40)}" if snapshot.label else ""
        of_block = [row for row in functions if row["label"] == snapshot.label]
        yield Grid(
            f"Allocated at {point_of(snapshot)}{block}" + of_first(len(of_block), _FUNCTIONS),
            ("function", "file", "bytes", "blocks"),
            [
                (safe(row["function"], 60), _file(row), size(row["bytes"]), count(row["blocks"]))
                for row in of_block[:_FUNCTIONS]
            ],
            texts=2,
        )
        rows = [
            (
                safe(row["function"], 60),
                f"{_file(row)}:{row['line']}" if row["line"] else "",
                safe(row["code"], 120),
                size(row["bytes"]),
                count(row["blocks"]),
            )
            for row in lines
            if row["label"] == snapshot.label
        ]
        columns = ("function", "line", "code", "bytes", "blocks")
        yield Fold("The same by line", [Grid(f"By line{block}", columns, rows, texts=3)])
        yield Text([f"{nearness(snapshot)}; {TRACING_COST}."])


def _file(row: Record) -> str:
    return safe(short_path(row["file"]), 60)


def bounded(bound: str, growth: float) -> str:
    """A growth of memory as text, marked where it is an upper bound."""
    return f"≤ {size(growth)}" if bound == "upper" and not isnan(growth) else size(growth)


def cache(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """The results that the scheduler cached, over time."""
    recording = analysis.recording
    plot = figures.over_time("cache")
    if plot is None:
        yield not_there("cached results", "CacheProfiler", recording)
        return
    metric = safe(measured(recording), 40)
    # Outside a report the axis has the name that dask gave it.
    plot.model.yaxis.axis_label = f"Cached results ({metric})"
    yield Text(
        [
            f"Results that the scheduler cached for other tasks ({metric}), "
            "by function; dashed: total."
        ]
    )
    yield plot
    names = list(dict.fromkeys(recording.cached_results["function"].tolist()))
    yield _functions_key(names, figures.colors)


def flame(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """The flame graph and the hottest lines."""
    recording = analysis.recording
    plot = figures.flame()
    if plot is None:
        yield not_there("stack samples", "SamplingProfiler", recording)
        return
    yield Text(
        [
            "By function: each call below its caller, as wide as it took. Time order: calls from "
            "left to right as they were made. Sandwich: all callers of one function above it, and "
            "what it called below. Click a call to zoom; what is counted is the time that the "
            "plots above show."
        ]
    )
    yield plot
    heading, columns, rows, notes = flame_summary_parts(recording)
    yield Fold(
        "The hottest lines",
        [Grid(heading, columns, rows), Text(notes, listed=True)],
    )


def _functions_key(names: list[str], colors: FunctionColors) -> Key:
    first = names[:_FUNCTIONS]
    items = [(colors[name], safe(name, 40)) for name in first]
    return Key("Functions", items, len(names) - len(first))
