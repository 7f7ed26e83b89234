"""Texts and rows of a live view, which a terminal, a page and a notebook share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from dask_diag.formatting import count, counted, percent, seconds
from dask_diag.live.model import ComputationProgress, LiveModel
from dask_diag.model.codes import ProgressPhase
from dask_diag.storage.follow import FollowState
from dask_diag.views.escaping import shown

_QUIET = 5.0
"""Seconds without a write that a reader is told of."""
_NOTICEABLE = 0.05
"""Seconds before the first task that a reader is told of."""
_LONG, _MOST_LONG = 60.0, 3
"""Seconds of a running task that a reader is told of, and how many such tasks are named."""
_PREPOSITIONS = ("for ", "after ")


def duration(value: float) -> str:
    """A duration in whole seconds, minutes or hours."""
    seconds = max(0, int(value))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02} min"


def about(value: float) -> str:
    """An estimated duration, with few digits."""
    if value < 10:
        return "less than 10 s"
    if value < 55:
        return f"about {5 * math.ceil(value / 5)} s"
    if value < 3300:
        return f"about {math.ceil(value / 60)} min"
    return f"about {value / 3600:.1f} h"


def state_line(model: LiveModel, limit: int = 60) -> str:
    """State of the recording in one line, with at most `limit` characters of the file's name."""
    word, state = state_parts(model, limit)
    return f"{word}{' ' if state.startswith(_PREPOSITIONS) else ': '}{state}"


def state_parts(model: LiveModel, limit: int = 60) -> tuple[str, str]:
    """State of the recording as a word, and its duration or what is wrong."""
    name, lasted = shown(model.name, limit), seconds(model.stop - model.start)
    if model.state == FollowState.GROWING:
        phases = {progress.phase for progress in model.computations.values()}
        word = "preparing" if phases and ProgressPhase.TASKS not in phases else "running"
        quiet = f", nothing written for {duration(model.quiet)}" if model.quiet >= _QUIET else ""
        if model.problem:
            quiet = f", but the file is {model.problem}: nothing after {lasted} can be read"
        return word, f"for {duration(model.now - model.start)}{quiet}"
    return model.state, {
        FollowState.WAITING: f"{name} is gone" if model.has_rows else f"for {name}",
        FollowState.NOT_A_RECORDING: model.problem,
        FollowState.COMPLETE: lasted,
        FollowState.DAMAGED: "the file has changed since it was closed",
        FollowState.TRUNCATED: f"after {lasted}: its program ended early",
    }[model.state]


def progress_lines(model: LiveModel) -> list[str]:
    """A line for each computation that runs; without one, a line on the whole recording."""
    if model.computations or not model.has_rows:
        return [_progress_line(model, progress) for progress in model.computations.values()]
    done = counted(model.recorded, "task")
    if model.failed:
        done += f", {count(model.failed)} failed"
    if model.is_growing and not model.ended:
        return ["no computation has started yet"]
    if model.is_growing:
        return [f"no computation runs now; {count(model.ended)} ended, {done}"]
    if model.recorded and not model.ended:
        # The computation was cut short.
        return [done]
    return [f"{done} of {counted(model.ended, 'computation')}"]


def _progress_line(model: LiveModel, progress: ComputationProgress) -> str:
    took = max(0.0, model.now - progress.since)
    so_far = f"{f'{took:.1f} s' if took < 9.95 else duration(took)} so far"
    if progress.phase == ProgressPhase.GRAPH:
        return f"dask makes a graph, {so_far}"
    if progress.phase == ProgressPhase.ORDERING:
        return f"ordering {counted(progress.total, 'task')}, {so_far}"
    # A program that was killed has no time left, however much was planned.
    left = progress.seconds_left(model.now) if model.is_growing else None
    remaining = "" if left is None else f", {about(left)} left"
    done, total = count(progress.finished), count(progress.total)
    # 100% is shown when all is done, and not before.
    return f"{done} of {total} tasks, {int(100 * progress.share)}%{remaining}"


def preparation_line(model: LiveModel) -> str:
    """Seconds that dask took before the first task; empty if they are few."""
    graph, ordering, computations = model.preparation
    several = computations > 1
    parts = ((f"making {'graphs' if several else 'the graph'}", graph), ("ordering", ordering))
    named = [f"{what} {seconds(took)}" for what, took in parts if took >= _NOTICEABLE]
    tasks = f"tasks of {count(computations)} computations" if several else "task"
    return f"before the first {tasks}: {', '.join(named)}" if named else ""


def long_running_line(model: LiveModel) -> str:
    """Tasks that have run for more than a minute: where to look if nothing seems to happen."""
    if not model.is_growing:
        return ""
    tasks = [task for task in model.running if model.now - task.start >= _LONG]
    named = [
        f"{shown(task.key, 40)} for {duration(model.now - task.start)}"
        for task in tasks[:_MOST_LONG]
    ]
    if len(tasks) > _MOST_LONG:
        named.append(f"and {count(len(tasks) - _MOST_LONG)} more")
    return f"Running for more than a minute: {', '.join(named)}" if named else ""


def running_title(model: LiveModel) -> str:
    """Title of the tasks that had no stop at the last write."""
    return "running at the end" if model.is_over else "running longest"


class FunctionTexts(NamedTuple):
    """Texts about a function; its seconds, and the finished share of its planned tasks."""

    name: str
    color: str
    done: str
    planned: str
    time: str
    cpu: str
    seconds: float
    share: float


def function_rows(model: LiveModel) -> Iterator[FunctionTexts]:
    """A row for each function, the longest first."""
    planned, colors = model.planned(), model.colors()
    for name in model.functions_by_time():
        sums = model.functions.get(name)
        yield FunctionTexts(
            shown(name),
            colors[name],
            count(sums.tasks if sums else 0),
            count(planned[name]) if name in planned else "",
            seconds(sums.seconds) if sums else "",
            percent(sums.cpu / sums.seconds) if sums and sums.seconds else "",
            sums.seconds if sums else 0.0,
            min(1.0, sums.tasks / planned[name]) if sums and planned.get(name) else 0.0,
        )


def line_rows(model: LiveModel, most: int) -> Iterator[tuple[str, str, str]]:
    """Name, share and seconds of the lines that built most task time."""
    lines = model.lines_by_time()
    total = sum(took for _, took in lines)
    for place, took in lines[:most]:
        yield shown(place.in_words, 100), percent(took / total), seconds(took)
