"""The sections of a report: each takes a recording and gives what stands in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isnan
from typing import Any, NamedTuple

import numpy as np

from dask_diag.analysis.activities import activities, cells
from dask_diag.analysis.critical_path import critical_path
from dask_diag.analysis.findings import CODES, findings
from dask_diag.analysis.functions import by_function
from dask_diag.analysis.memory import memory_usage
from dask_diag.recording import Recording, Table
from dask_diag.views.activities import plot_activities
from dask_diag.views.colors import color_of, color_of_activity, stacking_order
from dask_diag.views.figures import Options
from dask_diag.views.flame_summary import flame_summary_parts
from dask_diag.views.names import seconds
from dask_diag.views.page import plot_of
from dask_diag.views.report_parts import (
    Bars,
    Code,
    Figure,
    Findings,
    Fold,
    Grid,
    Key,
    Part,
    Text,
    safe,
)
from dask_diag.views.resources import CPU, MEMORY, MEMORY_CHILDREN
from dask_diag.views.summary import summary_parts
from dask_diag.views.text import counted

__all__ = ["SECTIONS", "Section"]

_FUNCTIONS = 20
_CHAIN = 200
_CODE = 20_000
_BOUNDS = {"exact": "exact", "upper": "upper bound", "": ""}


class Section(NamedTuple):
    """A part of the page with a heading of its own."""

    name: str
    title: str
    parts: Callable[[Recording], Iterator[Part]]


def _findings(recording: Recording) -> Iterator[Part]:
    found = findings(recording)
    if found:
        yield Findings(
            [
                {
                    "code": finding.code,
                    "severity": finding.severity,
                    "lost": ""
                    if isnan(finding.seconds_lost)
                    else f"about {seconds(finding.seconds_lost)} lost",
                    "evidence": safe(finding.evidence, 600),
                    "advice": safe(finding.advice, 400),
                }
                for finding in found
            ]
        )
    else:
        yield Text([f"Nothing stood out. Looked for: {', '.join(CODES)}."])


def _summary(recording: Recording) -> Iterator[Part]:
    heading, columns, rows, notes = summary_parts(recording)
    yield Text([f"{heading}."])
    if rows:
        yield Grid("Time by function", columns, rows)
    yield Text(notes, listed=True)


def _tasks(recording: Recording) -> Iterator[Part]:
    plot = _figure("tasks", recording)
    if plot is None:
        yield _not_there("tasks", "Profiler")
        return
    yield Text(
        [
            "A lane for each worker, a rectangle for each task, filled as far as its time was CPU "
            "time. Point at a task to see what it was; drag to move, turn the wheel to zoom."
        ]
    )
    yield plot
    names = by_function(recording)["function"].tolist()
    yield _functions_key(names)


def _activities(recording: Recording) -> Iterator[Part]:
    if not len(recording.tasks):
        yield _not_there("tasks", "Profiler")
        return
    whole = activities(recording).to_dicts()
    total = sum(row["value"] for row in whole)
    yield Text([f"{seconds(total)} of worker time: wall time of the computes times their workers."])
    shares = [(row["activity"], row["value"], row["value"] / total) for row in whole if total]
    yield Bars("Share of each activity", [("all", seconds(total), _pieces(shares))])
    yield Key(
        "Activities",
        [
            (color_of_activity(name), f"{safe(name, 40)} {seconds(value)}, {share:.1%}")
            for name, value, share in shares
            if value > 0
        ],
    )
    yield Bars("Time of tasks by function", list(_bars_by_function(recording)))
    figure = plot_activities(recording, Options(width=980))
    yield Fold(
        "With a choice of functions and of the unit, and by worker",
        [Figure("activities", figure, "Where worker time went", wide=True)],
    )


def _bars_by_function(recording: Recording) -> Iterator[tuple[str, str, Any]]:
    functions: dict[str, dict[str, float]] = {}
    for row in cells(recording).to_dicts():
        if row["function"] is not None and row["unit"] == "seconds":
            of_function = functions.setdefault(row["function"], {})
            of_function[row["activity"]] = of_function.get(row["activity"], 0.0) + row["value"]
    sums = {name: sum(parts.values()) for name, parts in functions.items()}
    order = sorted(sums, key=lambda name: -sums[name])
    longest = max(sums.values(), default=0.0)
    for name in order[:_FUNCTIONS]:
        shares = [(kind, value, value / longest) for kind, value in functions[name].items()]
        yield safe(name, 40), seconds(sums[name]), _pieces(shares)
    rest = order[_FUNCTIONS:]
    if rest:
        told = seconds(sum(sums[name] for name in rest))
        yield f"({counted(len(rest), 'more function')})", told, []


def _pieces(shares: list[tuple[str, float, float]]) -> list[tuple[str, float, str]]:
    return [
        (color_of_activity(name), 100 * share, f"{safe(name, 40)}: {seconds(value)}")
        for name, value, share in sorted(shares, key=lambda item: stacking_order(item[0]))
    ]


def _resources(recording: Recording) -> Iterator[Part]:
    plot = _figure("resources", recording)
    if plot is None:
        yield _not_there("samples of CPU and memory", "ResourceProfiler")
        return
    yield plot
    lines = [(CPU, "CPU, %"), (MEMORY, "memory, MB, on the right")]
    if recording.resources["memory_children"].any():
        lines.append((MEMORY_CHILDREN, "dashed: that of descendants"))
    yield Key("Lines", lines)


def _memory(recording: Recording) -> Iterator[Part]:
    plot = _figure("memory", recording)
    if plot is not None:
        yield plot
        series = list(dict.fromkeys(recording.memory["label"].tolist()))
        items = [(color_of(name), safe(name, 40)) for name in series]
        yield Key("Series", items[:_FUNCTIONS], max(0, len(items) - _FUNCTIONS))
    samples = recording.resources
    if not len(samples):
        if plot is None:
            yield _not_there("samples of memory", "ResourceProfiler")
        return
    own, children = samples["memory"] / 1e6, samples["memory_children"] / 1e6
    rows = [
        (name, *(f"{of(values):,.0f}" for of in (_first, np.max, _last)))
        for name, values in (
            ("this process", own),
            ("its descendants", children),
            ("together", own + children),
        )
    ]
    yield Grid("Resident memory, MB", ("", "at the start", "at most", "at the end"), rows)
    usage = [row for row in memory_usage(recording).to_dicts() if row["sampled"]]
    if usage:
        yield Grid(
            "Growth while tasks ran, MB" + _of_first(len(usage), _FUNCTIONS),
            ("function", "tasks", "seen", "at most", "on average", ""),
            [
                (
                    safe(row["function"], 60),
                    f"{row['tasks']:,}",
                    f"{row['sampled']:,}",
                    f"{row['peak_growth'] / 1e6:,.1f}",
                    f"{row['mean_growth'] / 1e6:,.1f}",
                    _BOUNDS[row["bound"]],
                )
                for row in usage[:_FUNCTIONS]
            ],
        )


def _first(values: Any) -> float:
    return float(values[0])


def _last(values: Any) -> float:
    return float(values[-1])


def _cache(recording: Recording) -> Iterator[Part]:
    plot = _figure("cache", recording)
    if plot is None:
        yield _not_there("results held by the scheduler", "CacheProfiler")
        return
    yield Text(
        [
            f"What the scheduler held ({safe(recording.metric or 'count', 40)}), by function; "
            "dashed: all together."
        ]
    )
    yield plot
    names = list(dict.fromkeys(recording.cache["function"].tolist()))
    yield _functions_key(names)


def _flame(recording: Recording) -> Iterator[Part]:
    plot = plot_of("flame", recording, Options())
    if plot is None:
        yield _not_there("stacks", "a sampling profiler")
        return
    yield Text(["Functions of tasks at the top, below each what it called, as wide as it took."])
    yield Figure("flame", plot, "Flame graph", wide=True)
    heading, columns, rows, notes = flame_summary_parts(recording)
    yield Fold(
        "The hottest lines",
        [Grid(heading, columns, rows), Text(notes, listed=True)],
    )


def _critical_path(recording: Recording) -> Iterator[Part]:
    if not len(recording.needs):
        yield Text(["No task needed another one, or that was not recorded."])
        return
    path = critical_path(recording)
    yield Grid(
        "Longest chain of each compute",
        ("compute", "wall", "longest chain", "all tasks", "workers", "at most faster by"),
        [
            (
                safe(row["compute"], 30),
                seconds(row["wall"]),
                seconds(row["length"]),
                seconds(row["work"]),
                str(row["workers"]),
                f"{row['speed_up']:.2g} times",
            )
            for row in path.computes.to_dicts()
        ],
    )
    yield Grid(
        "Functions on it",
        ("function", "tasks", "time", "share"),
        [
            (
                safe(row["function"], 60),
                f"{row['tasks']:,}",
                seconds(row["seconds"]),
                f"{row['share']:.0%}",
            )
            for row in path.functions.to_dicts()
        ],
    )
    yield Fold(
        f"Task by task ({counted(len(path.tasks), 'task')})",
        [
            Grid(
                "In order" + _of_first(len(path.tasks), _CHAIN),
                ("key", "function", "time"),
                [
                    (safe(row["key"]), safe(row["function"], 60), seconds(row["seconds"]))
                    for row in path.tasks.rows(slice(_CHAIN)).to_dicts()
                ],
                texts=2,
            )
        ],
    )


def _calling_code(recording: Recording) -> Iterator[Part]:
    rows = _facts(recording, "calling code")
    if not rows:
        yield Text(["The code that computed was not recorded, or its source is not there."])
    for place, text in rows:
        yield Code(safe(place), _lines(text))


def _lines(text: str) -> str:
    """The user's code, what cannot be printed spelled out."""
    lines = [safe(line.expandtabs(), 500) for line in text[:_CODE].split("\n")]
    return "\n".join(lines) + ("\n…" if len(text) > _CODE else "")


def _versions(recording: Recording) -> Iterator[Part]:
    if not len(recording.environment):
        yield Text(["Where this was recorded is not in the recording."])
        return
    for section in ("versions", "machine"):
        yield Grid(section.capitalize(), ("", ""), _told(recording, section), texts=2)
    configuration = _told(recording, "configuration")
    yield Fold(
        f"dask's configuration ({counted(len(configuration), 'entry', 'entries')})",
        [Grid("Configuration", ("name", "value"), configuration, texts=2)],
    )


def _told(recording: Recording, section: str) -> list[tuple[str, str]]:
    return [(safe(name), safe(value, 300)) for name, value in _facts(recording, section)]


def _facts(recording: Recording, section: str) -> list[tuple[str, str]]:
    table: Table = recording.environment
    if not len(table):
        return []
    rows = table.rows(table["section"].where(section))
    return list(zip(rows["name"].tolist(), rows["value"].tolist(), strict=True))


def _figure(name: str, recording: Recording) -> Figure | None:
    """A plot over time, as wide as there is room, on the paper of the page, without a legend."""
    options = Options(
        sizing_mode="stretch_width",
        title=None,
        background_fill_color=None,
        border_fill_color=None,
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


def _not_there(what: str, profiler: str) -> Text:
    return Text([f"No {what} were recorded ({profiler} does that)."])


def _of_first(count: int, most: int) -> str:
    return f", the first {most:,} of {count:,}" if count > most else ""


SECTIONS = (
    Section("findings", "Findings", _findings),
    Section("summary", "Summary", _summary),
    Section("tasks", "Task stream", _tasks),
    Section("activities", "Activities", _activities),
    Section("resources", "Resources", _resources),
    Section("memory", "Memory", _memory),
    Section("cache", "Results held", _cache),
    Section("flame", "Flame graph", _flame),
    Section("critical-path", "Critical path", _critical_path),
    Section("code", "Calling code", _calling_code),
    Section("environment", "Versions, machine, configuration", _versions),
)
