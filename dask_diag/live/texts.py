"""What a live view says in words: the same in a terminal, in a page and in a notebook."""

from __future__ import annotations

import math

from dask_diag.formatting import count, counted, seconds
from dask_diag.live.model import ComputationProgress, LiveModel, seconds_left
from dask_diag.model.codes import ProgressPhase
from dask_diag.storage.follow import FollowState
from dask_diag.views.escaping import shown

_QUIET = 5.0
"""Seconds without anything written from which on it is said."""
_NOTICED = 0.05
"""Seconds before the first task below which nobody asks what they were."""
_LONG, _MOST_LONG = 60.0, 3
"""Seconds from which on a running task is named first of all, and how many are."""
_PREPOSITIONS = ("for ", "after ")


def duration(value: float) -> str:
    """How long something has taken so far, to the second."""
    seconds = max(0, int(value))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02} min"


def _to_a_digit(value: float) -> str:
    """Of a few seconds, tenths: a second is the first thing that a reader waits for."""
    return f"{max(0.0, value):.1f} s" if value < 9.95 else duration(value)


def about(value: float) -> str:
    """An estimate, of not more digits than it deserves."""
    if value < 10:
        return "less than 10 s"
    if value < 55:
        return f"about {5 * math.ceil(value / 5)} s"
    if value < 3300:
        return f"about {math.ceil(value / 60)} min"
    return f"about {value / 3600:.1f} h"


def percent_done(progress: ComputationProgress) -> str:
    """It is 100% when all is done, and not before."""
    return f"{int(100 * progress.share)}%"


def state_line(model: LiveModel, name: str, now: float) -> str:
    """What the recording is, and since when, in one line."""
    word, state = state_parts(model, name, now)
    between = " " if state.startswith(_PREPOSITIONS) else ": "
    return f"{word}{between}{state}"


def state_parts(model: LiveModel, name: str, now: float) -> tuple[str, str]:
    """What the recording is, in a word; and since when.

    Parameters
    ----------
    model : LiveModel
    name : str
        Of the file.
    now : float
        In the recording's seconds.
    """
    lasted = seconds(model.stop - model.start)
    if model.state == FollowState.WAITING:
        return "waiting", f"{name} is gone" if model.has_rows else f"for {name}"
    if model.state == FollowState.NOT_A_RECORDING:
        return "not a recording", model.problem
    if model.state == FollowState.COMPLETE:
        return "complete", lasted
    if model.state == FollowState.DAMAGED:
        return "damaged", "the file has changed since it was closed"
    if model.state == FollowState.TRUNCATED:
        return "truncated", f"after {lasted}: its program ended early"
    quiet = f", nothing written for {duration(model.quiet)}" if model.quiet >= _QUIET else ""
    if model.problem:
        quiet = f", but the file is {model.problem}: nothing after {lasted} can be read"
    return _activity(model), f"for {duration(now - model.start)}{quiet}"


def _activity(model: LiveModel) -> str:
    phases = {progress.phase for progress in model.progress.running.values()}
    if ProgressPhase.TASKS in phases or not phases:
        return "running"
    return "preparing"


def progress_lines(model: LiveModel, now: float) -> list[str]:
    """What each computation that runs does; what there is else to say, if none does."""
    lines = [
        _progress_line(progress, now, is_growing=model.state == FollowState.GROWING)
        for progress in model.progress.running.values()
    ]
    if lines or not model.has_rows:
        return lines
    ended = model.progress.ended
    done = counted(model.recorded, "task")
    if model.failed:
        done += f", {count(model.failed)} failed"
    if model.state == FollowState.GROWING:
        return [
            f"no computation runs now; {count(ended)} ended, {done}"
            if ended
            else "no computation has started yet"
        ]
    if model.recorded and not ended:
        # Of one that was cut short.
        return [done]
    return [f"{done} of {counted(ended, 'computation')}"]


def preparation_line(model: LiveModel) -> str:
    """What dask did before the first task; nothing if that was quick."""
    graph, ordering, computations = model.preparation
    several = computations > 1
    parts = ((f"making {'graphs' if several else 'the graph'}", graph), ("ordering", ordering))
    named = [f"{what} {seconds(took)}" for what, took in parts if took >= _NOTICED]
    if not named:
        return ""
    whose = f"tasks of {count(computations)} computations" if several else "task"
    return f"before the first {whose}: {', '.join(named)}"


def long_running_line(model: LiveModel, now: float) -> str:
    """The tasks that have run for long, which is where to look if nothing seems to happen."""
    if model.state != FollowState.GROWING:
        return ""
    tasks = [task for task in model.running if now - task.start >= _LONG]
    named = [
        f"{shown(task.key, 40)} for {duration(now - task.start)}" for task in tasks[:_MOST_LONG]
    ]
    if len(tasks) > _MOST_LONG:
        named.append(f"and {count(len(tasks) - _MOST_LONG)} more")
    return f"Running for more than a minute: {', '.join(named)}" if named else ""


def running_title(model: LiveModel) -> str:
    """What the tasks are that had no end when the file was written last."""
    return "running at the end" if model.is_over else "running longest"


def _progress_line(progress: ComputationProgress, now: float, *, is_growing: bool) -> str:
    so_far = f"{_to_a_digit(now - progress.since)} so far"
    if progress.phase == ProgressPhase.GRAPH:
        return f"dask makes a graph, {so_far}"
    if progress.phase == ProgressPhase.ORDERING:
        return f"ordering {counted(progress.total, 'task')}, {so_far}"
    # Of a program that was killed no time is left, however much was planned.
    seconds = seconds_left(progress, now) if is_growing else None
    remaining = "" if seconds is None else f", {about(seconds)} left"
    done, total = count(progress.finished), count(progress.total)
    return f"{done} of {total} tasks, {percent_done(progress)}{remaining}"
