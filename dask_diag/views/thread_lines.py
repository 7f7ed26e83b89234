"""The lines of a summary on CPU outside tasks: by thread, where that is known."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dask_diag.analysis.cpu_accounting import cpu_of_scheduler, cpu_outside_tasks
from dask_diag.analysis.thread_groups import ThreadGroup, thread_groups
from dask_diag.formatting import seconds
from dask_diag.model.recording import Recording
from dask_diag.views.escaping import shown
from dask_diag.views.text import counted

__all__ = ["thread_lines"]

_LARGE_SHARE = 0.1
"""The share of the CPU from which on CPU outside tasks is shown."""
_SMALLEST_SHARE = 0.01
_GROUPS_SHOWN = 6


def thread_lines(recording: Recording) -> Iterator[tuple[str, str]]:
    """A label and a text for other threads and for the scheduler, if they used much."""
    if not len(recording.computations):
        return
    in_tasks = float(np.nansum(recording.tasks.thread_cpu))
    outside = float(np.nan_to_num(cpu_outside_tasks(recording)))
    groups = [g for g in thread_groups(recording) if g.kind in ("python", "native", "ended")]
    if groups:
        outside = sum(group.cpu for group in groups)
    if outside > _LARGE_SHARE * (outside + in_tasks):
        yield "Other threads", _by_group(groups) or f"{seconds(outside)} of CPU"
    scheduling = cpu_of_scheduler(recording)
    if scheduling > _LARGE_SHARE * (outside + in_tasks + scheduling):
        yield "Scheduler", f"{seconds(scheduling)} of CPU"


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
    return f"{counted(group.threads, f'{kind} thread')} {name}"
