"""Sections of a report that are plots: tasks, resources, memory, cached results, stacks."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan

from dask_diag.analysis.analysis import Analysis
from dask_diag.formatting import count, size
from dask_diag.model.recording import Recording
from dask_diag.views.drawings import plot_of
from dask_diag.views.plots.cache import measured
from dask_diag.views.plots.figures import Options
from dask_diag.views.plots.flame.summary import flame_summary_parts
from dask_diag.views.plots.resources import CPU, MEMORY, MEMORY_CHILDREN
from dask_diag.views.report.components import (
    Figure,
    Fold,
    Grid,
    Key,
    Part,
    Text,
    not_there,
    of_first,
    safe,
)
from dask_diag.views.summary_lines import memory_growth
from dask_diag.views.theme.colors import color_of

__all__ = ["cache", "flame", "memory", "resources", "tasks"]

_FUNCTIONS = 20
_MEANING_OF_MARKS = (
    "≤ is an upper bound: other tasks ran in that process meanwhile, or before. "
    "Without it the amount is exact."
)


def tasks(analysis: Analysis) -> Iterator[Part]:
    """The task stream."""
    recording = analysis.recording
    plot = _figure("tasks", recording)
    if plot is None:
        yield not_there("tasks", "Profiler")
        return
    yield Text(
        [
            "A lane for each worker, a rectangle for each task; the filled part is its share of "
            "CPU time. Point at a task for details; drag to move, turn the wheel to zoom."
        ]
    )
    yield plot
    names = analysis.functions["function"].tolist()
    yield _functions_key(names)


def resources(analysis: Analysis) -> Iterator[Part]:
    """CPU and memory over time."""
    recording = analysis.recording
    plot = _figure("resources", recording)
    if plot is None:
        yield not_there("samples of CPU and memory", "ResourceProfiler")
        return
    yield plot
    lines = [(CPU, "CPU, %"), (MEMORY, "memory, MB, on the right")]
    if recording.resources["memory_children"].any():
        lines.append((MEMORY_CHILDREN, "dashed: that of descendants"))
    yield Key("Lines", lines)


def memory(analysis: Analysis) -> Iterator[Part]:
    """Series, extremes, and what functions took."""
    recording = analysis.recording
    plot = _figure("memory", recording)
    if plot is not None:
        yield plot
        series = list(dict.fromkeys(recording.memory["label"].tolist()))
        items = [(color_of(name), safe(name, 40)) for name in series]
        yield Key("Series", items[:_FUNCTIONS], max(0, len(items) - _FUNCTIONS))
    samples = recording.resources
    if not len(samples):
        if plot is None:
            yield not_there("samples of memory", "ResourceProfiler")
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
    yield Grid("Resident memory", ("", "first", "peak", "last"), rows)
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


def bounded(bound: str, growth: float) -> str:
    return f"≤ {size(growth)}" if bound == "upper" and not isnan(growth) else size(growth)


def cache(analysis: Analysis) -> Iterator[Part]:
    """The results that the scheduler cached, over time."""
    recording = analysis.recording
    plot = _figure("cache", recording)
    if plot is None:
        yield not_there("cached results", "CacheProfiler")
        return
    yield Text(
        [
            f"Results that the scheduler cached for other tasks ({safe(measured(recording), 40)}), "
            "by function; dashed: total."
        ]
    )
    yield plot
    names = list(dict.fromkeys(recording.cached_results["function"].tolist()))
    yield _functions_key(names)


def flame(analysis: Analysis) -> Iterator[Part]:
    """The flame graph and the hottest lines."""
    recording = analysis.recording
    plot = plot_of("flame", recording, Options())
    if plot is None:
        yield not_there("stack samples", "SamplingProfiler")
        return
    yield Text(["Functions of tasks at the top, below each what it called, as wide as it took."])
    yield Figure("flame", plot, "Flame graph")
    heading, columns, rows, notes = flame_summary_parts(recording)
    yield Fold(
        "The hottest lines",
        [Grid(heading, columns, rows), Text(notes, listed=True)],
    )


def _figure(name: str, recording: Recording) -> Figure | None:
    """A plot over time, as wide as the page, without a legend."""
    options = Options(
        sizing_mode="stretch_width",
        title=None,
    )
    plot = plot_of(name, recording, options)
    if plot is None:
        return None
    for legend in plot.legend:
        legend.visible = False
    return Figure(name, plot, f"Plot of {name} over time")


def _functions_key(names: list[str]) -> Key:
    first = names[:_FUNCTIONS]
    items = [(color_of(name), safe(name, 40)) for name in first]
    return Key("Functions", items, len(names) - len(first))
