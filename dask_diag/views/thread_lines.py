"""The lines of a summary on CPU outside tasks: by thread, where that is known."""

from __future__ import annotations

from collections.abc import Iterator

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.thread_groups import ThreadGroup
from dask_diag.formatting import counted, seconds
from dask_diag.views.escaping import shown

__all__ = ["thread_lines"]

_OTHER_THREADS = ("python", "native", "ended")
_LARGE_SHARE = 0.1
"""The share of the CPU from which on CPU outside tasks is shown."""
_SMALLEST_SHARE = 0.01
_SMALLEST_SHOWN = 1e-3
"""Seconds of CPU between tasks, on the workers' threads."""
_GROUPS_SHOWN = 6


def thread_lines(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """A label and a text for other threads and for the scheduler, if they used much."""
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
    """CPU of each group, those with most first."""
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
