"""Findings on what is not time: failures, and numbers that are worse than they look."""

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
    known = not np.isnan(took).any()
    lasted = float(took.sum()) if known else float("nan")
    several = "1 task" if len(failed) == 1 else f"{count(len(failed))} tasks"
    when = f"after {seconds(lasted)}" if known else "after a time that is unknown"
    return Finding(
        "failed-tasks",
        "high",
        lasted / facts.workers,
        f"{several} failed {when}, the first {first['key']} of {first['function']} with "
        f"{first['error']}",
        "run that task alone to see why: compute with scheduler='synchronous' and a debugger",
    )


def _broken_pool(facts: Facts) -> Finding | None:
    """A worker process that died, or that sent what could not be rebuilt: no task tells of it."""
    recording = facts.recording
    computations = recording.computations
    if not len(computations):
        return None
    broken = computations.rows(computations["error"].where("BrokenProcessPool"))
    if not len(broken):
        return None
    under_way = ""
    tasks = recording.tasks
    if len(tasks):
        computation = tasks["computation"]
        broken_codes = np.flatnonzero(np.isin(computation.values, broken["computation"].tolist()))
        mine = tasks["outcome"].where("unfinished") & np.isin(computation.codes, broken_codes)
        names = facts.top_functions(mine.astype(float))
        running = int(mine.sum())
        under_way = f" while {count(running)} task{'s' * (running != 1)} of {in_words(names)} "
        under_way += "was under way" if running == 1 else "were under way"
    return Finding(
        "failed-tasks",
        "high",
        float("nan"),
        f"a worker process died or was killed (BrokenProcessPool){under_way}",
        "see whether memory ran out: the system's out-of-memory killer is a usual cause (its log "
        "tells; fewer workers or smaller chunks need less); else run these tasks alone with "
        "scheduler='synchronous' to see what ends the process",
    )


def late_samples(facts: Facts) -> Finding | None:
    """Samples of resources that came late, between which anything may have happened."""
    samples = facts.recording.resources
    if not len(samples):
        return None
    late = np.nan_to_num(samples["delay"])
    delayed = late > LATE
    if not delayed.any():
        return None
    return Finding(
        "late-samples",
        severity_of_share(float(delayed.mean()) / 2),
        float("nan"),
        f"{count(delayed.sum())} of {count(len(samples))} samples of resources were late, the "
        f"worst by {seconds(late.max())}: a task kept the interpreter's lock (GIL) all that time, "
        "or the machine was too busy; peaks between samples are not seen",
        "take memory and CPU between late samples with care; see which tasks ran then in the task "
        "plot: code that keeps the lock for so long also stops all other threads",
    )
