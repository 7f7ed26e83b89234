"""Findings on failures, and on measurements that are less reliable than they look."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.findings.facts import Facts, in_words
from dask_diag.analysis.findings.finding import Finding, severity_of_share
from dask_diag.formatting import count, seconds

__all__ = ["failed_tasks", "late_samples"]

LATE = 0.25
"""Seconds by which a sample may be late without a finding."""


def failed_tasks(facts: Facts) -> Finding | None:
    """Tasks that raised, and workers that died."""
    tasks = facts.recording.tasks
    failed = np.flatnonzero(tasks["outcome"].where("failed")) if len(tasks) else np.zeros(0, int)
    if not len(failed):
        return _broken_pool(facts)
    first = tasks.rows(slice(int(failed[0]), int(failed[0]) + 1)).to_dicts()[0]
    took = tasks["stop"][failed] - tasks["start"][failed]
    is_known = not np.isnan(took).any()
    lasted = float(took.sum()) if is_known else float("nan")
    number = "1 task" if len(failed) == 1 else f"{count(len(failed))} tasks"
    when = f"after {seconds(lasted)}" if is_known else "after an unknown time"
    return Finding(
        "failed-tasks",
        "high",
        lasted / facts.workers,
        f"{number} failed {when}. First: {first['key']} of {first['function']} with "
        f"{first['error']}",
        "debug that task alone with scheduler='synchronous'",
    )


def _broken_pool(facts: Facts) -> Finding | None:
    """A worker process that died, or whose result could not be unpickled: no task has failed."""
    recording = facts.recording
    computations = recording.computations
    if not len(computations):
        return None
    broken = computations.rows(computations["error"].where("BrokenProcessPool"))
    if not len(broken):
        return None
    unfinished = ""
    tasks = recording.tasks
    if len(tasks):
        computation = tasks["computation"]
        broken_codes = np.flatnonzero(np.isin(computation.values, broken["computation"].tolist()))
        in_broken = np.isin(computation.codes, broken_codes)
        was_running = tasks["outcome"].where("unfinished") & in_broken
        names = facts.top_functions(was_running.astype(float))
        running = int(was_running.sum())
        unfinished = f" during {count(running)} task{'s' * (running != 1)} of {in_words(names)}"
    return Finding(
        "failed-tasks",
        "high",
        float("nan"),
        f"A worker process died or was killed (BrokenProcessPool){unfinished}",
        "look for the out-of-memory killer in the system log, and use fewer workers or smaller "
        "chunks; else debug these tasks alone with scheduler='synchronous'",
    )


def late_samples(facts: Facts) -> Finding | None:
    """Resource samples that were taken late: what happened in between is not known."""
    samples = facts.recording.resources
    if not len(samples):
        return None
    delay = np.nan_to_num(samples["delay"])
    delayed = delay > LATE
    if not delayed.any():
        return None
    return Finding(
        "late-samples",
        severity_of_share(float(delayed.mean()) / 2),
        float("nan"),
        f"{count(delayed.sum())} of {count(len(samples))} resource samples were late, by up to "
        f"{seconds(delay.max())}. A task held the GIL, or the machine was overloaded; peaks "
        "between samples are missing",
        "do not rely on memory and CPU between late samples; find the tasks that ran then in the "
        "task plot: code that holds the GIL that long stops all other threads, too",
    )
