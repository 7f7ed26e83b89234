"""The head of a page: one sentence, facts, and the wall time as one bar."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

import numpy as np

from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rules import find
from dask_diag.analysis.groups import environment_rows
from dask_diag.analysis.memory import peak_allocations, peak_snapshots, series_of
from dask_diag.formatting import count, counted, percent, seconds, size
from dask_diag.model.codes import PHASES, Activity
from dask_diag.model.recording import Recording
from dask_diag.views.colors import look_of, stacking_order
from dask_diag.views.escaping import shown
from dask_diag.views.lines import allocation_place, point_of
from dask_diag.views.page import Head
from dask_diag.views.report.components import WallBar, WallPart
from dask_diag.views.summary import outcome, sentence

_LEAST = 0.0005
"""Share of the wall time of the smallest part in the bar."""
_IN_ORDER = list(PHASES)
_CELL = "In["


def head(analysis: Analysis) -> Head:
    """Head of the page of a recording; if that fails, with the error."""
    try:
        return Head(f"{sentence(analysis, find(analysis))}.", _facts(analysis), wall_bar(analysis))
    except Exception as error:
        message = shown(f"{type(error).__name__}: {error}", 600)
        return Head("Dask report", f"The head could not be made. {message}")


def head_of_memory(recording: Recording) -> Head | None:
    """Head of a page of memory alone: the peak, and the largest allocation in it."""
    series = [line for line in series_of(recording) if len(line[1])]
    if not series:
        return None
    name, times, sizes = max(series, key=lambda line: float(line[2].max()))
    at = int(sizes.argmax())
    title = f"Peak {size(sizes[at])} at {seconds(times[at] - recording.start)} in {shown(name, 40)}"
    near = [one.label for one in peak_snapshots(recording) if point_of(one) == "peak"]
    rows = [
        row for row in peak_allocations(recording, by="line").to_dicts() if row["label"] == name
    ]
    if name in near and rows:
        title += f": {size(rows[0]['bytes'])} allocated by {allocation_place(rows[0])}"
    return Head(f"{title}.", f"{counted(len(series), 'series', 'series')} · {when(recording)}")


def _facts(analysis: Analysis) -> str:
    """The script, the outcome, CPUs, the start, and the line that called dask."""
    recording = analysis.recording
    # The CPUs of a cluster's workers are not known.
    number = int(recording.computations.cpus.max(initial=0))
    cpus = [counted(number, "CPU")] if number else []
    return " · ".join(
        [*_script(recording), outcome(analysis), *cpus, when(recording), *_call_sites(recording)]
    )


def when(recording: Recording) -> str:
    """Start of a recording."""
    start = datetime.fromtimestamp(recording.epoch + recording.start, timezone.utc)
    return start.strftime("%Y-%m-%d %H:%M:%S UTC")


def _script(recording: Recording) -> Iterator[str]:
    """The first location that computed, if recorded."""
    for name, _ in environment_rows(recording, "calling code")[:1]:
        # A notebook's cell is named by the line in it that called dask.
        if not name.startswith(("as given", _CELL)):
            yield shown(name, 80)


def _call_sites(recording: Recording) -> Iterator[str]:
    """The line that called dask first, and the number of other lines."""
    computations = recording.computations
    by_time = computations.filter(np.argsort(computations.called, kind="stable"))
    sites = [site for site in dict.fromkeys(by_time.call_site.tolist()) if site]
    if sites:
        others = f" and {count(len(sites) - 1)} more" if sites[1:] else ""
        yield f"called {_place(sites[0])}{others}"


def _place(site: str) -> str:
    """A line that called dask: of a file, or of a notebook's cell."""
    cell, _, line = site.rpartition(":")
    if cell.startswith(_CELL):
        return f"in a notebook, {shown(cell, 20)}, line {shown(line, 20)}"
    return f"at {shown(site, 80)}"


def wall_bar(analysis: Analysis) -> WallBar | None:
    """The wall time as one bar; None if no time passed."""
    rows = {row["part"]: row["seconds"] for row in analysis.wall_time.to_dicts()}
    wall = sum(rows.values())
    if not wall:
        return None
    parts = [_part(name, rows[name], wall) for name in sorted(rows, key=_position)]
    return WallBar([part for part in parts if part.share > _LEAST])


def _position(part: str) -> tuple[int, tuple[int, str]]:
    """Sorting key of parts: phases by time, activities in place of the phase of tasks."""
    if part in PHASES:
        return _IN_ORDER.index(part), (0, part)
    if part in (Activity.STARTUP, Activity.PROFILERS):
        # Nearly all of their time is before the first task.
        return _IN_ORDER.index("preparing"), (-1, part)
    return _IN_ORDER.index("tasks"), stacking_order(part)


def _part(name: str, duration: float, wall: float) -> WallPart:
    share = duration / wall
    return WallPart(look_of(name), seconds(duration), percent(share), share)
