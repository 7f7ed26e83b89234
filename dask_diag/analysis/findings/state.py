"""Findings on failures, and on measurements that are less reliable than they look."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.call_tree import short_path
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import (
    MEASURED,
    NOWHERE,
    Finding,
    during,
    in_words,
    severity_of_share,
    top_functions,
    where_of_tasks,
)
from dask_diag.analysis.task_times import call_times
from dask_diag.columns import BoolArray, FloatArray
from dask_diag.formatting import count, counted, seconds
from dask_diag.model.codes import Outcome
from dask_diag.model.recording import Recording
from dask_diag.model.tables import Tasks

LATE = 0.25
"""Largest delay of a sample, in seconds, without a finding."""


def failed_tasks(analysis: Analysis) -> Finding | None:
    """Tasks that raised, and workers that died."""
    tasks = analysis.recording.tasks
    failed = np.flatnonzero(tasks.outcome.where(Outcome.FAILED))
    if not len(failed):
        return _broken_pool(analysis)
    first = int(failed[0])
    took = tasks.stop[failed] - tasks.start[failed]
    is_known = not np.isnan(took).any()
    lasted = float(took.sum()) if is_known else float("nan")
    number = counted(len(failed), "task")
    when = f"after {seconds(lasted)}" if is_known else "after an unknown time"
    return Finding(
        "failed-tasks",
        "high",
        # What is lost is the result, with all that was done for it: no seconds of this task say it.
        float("nan"),
        f"{number} failed {when}. First: {tasks.key[first]} of {tasks.function[first]} with "
        f"{_exception(tasks, first)}",
        "run that task again in this process with client.recreate_error_locally(future)"
        if _is_of_cluster(analysis, first)
        else "debug that task alone with scheduler='synchronous'",
        kind=MEASURED,
        where=where_of_tasks(analysis.recording, tasks.outcome.where(Outcome.FAILED)),
    )


def _exception(tasks: Tasks, row: int) -> str:
    """The exception of a task, and where it was raised, of what was recorded."""
    text = ": ".join(filter(None, (tasks.error[row], tasks.error_message[row])))
    location = tasks.error_location[row]
    if not location:
        return text
    # A path may have a colon in it, too.
    path, colon, line = location.rpartition(":")
    return f"{text}, at {short_path(path)}{colon}{line}"


def _is_of_cluster(analysis: Analysis, task: int) -> bool:
    computations = analysis.recording.computations
    name = analysis.recording.tasks.computation[task]
    return name in computations.computation[computations.scheduler.where("distributed")].tolist()


def _broken_pool(analysis: Analysis) -> Finding | None:
    """A worker process that ended, or whose result could not be unpickled: no task has failed."""
    computations, tasks = analysis.recording.computations, analysis.recording.tasks
    broken = computations.rows(computations.error.where("BrokenProcessPool"))
    if not len(broken):
        return None
    in_broken = tasks.computation.is_in(broken.computation.tolist())
    unfinished = tasks.outcome.where(Outcome.UNFINISHED) & in_broken
    in_flight = int(unfinished.sum())
    of_functions = in_words(top_functions(analysis.recording, unfinished.astype(float)))
    tasks_in_flight = f"{counted(in_flight, 'task')} of {of_functions}" if in_flight else "no task"
    # A task has a start once its result is here; of those that a dead process ran there is none.
    has_started = bool((in_broken & ~np.isnan(tasks.start)).any())
    what, advice = _end_of_worker(broken.pool_end.tolist()[0], has_started)
    when = f"with {tasks_in_flight} in flight"
    if not has_started:
        when += ", none of which is known to have started"
    return Finding(
        "failed-tasks",
        "high",
        float("nan"),
        f"{what} (BrokenProcessPool), {when}",
        advice,
        kind=MEASURED,
        where=where_of_tasks(analysis.recording, unfinished) if in_flight else NOWHERE,
    )


def _end_of_worker(end: str, has_started: bool) -> tuple[str, str]:
    """How a worker process ended, and what to do."""
    status = end.removeprefix("exit ")
    alone = "debug these tasks alone with scheduler='synchronous'"
    if end == "unguarded":
        return (
            "Worker processes ended while they started: each runs the program's file again, and "
            "came to this computation",
            "put what the program does under if __name__ == '__main__':, below its functions; its "
            "stderr has the error",
        )
    if end == "SIGKILL":
        return (
            "A worker process was killed by SIGKILL",
            "look for the out-of-memory killer in the system log, and use fewer workers or smaller "
            f"chunks; else {alone}",
        )
    if end.startswith("SIG"):
        return (
            f"A worker process died by {end}",
            f"{alone}: their compiled code may have failed",
        )
    if end in ("exit 0", "exit 1") and not has_started:
        return (
            f"A worker process ended with status {status}, as one does that cannot start",
            "read the program's stderr, which shows a module that cannot be imported or an "
            "initializer of the pool that fails; else look for a task that calls os._exit",
        )
    if end.startswith("exit "):
        return (
            f"A worker process ended with status {status}",
            f"look for what ends the process in these tasks, as os._exit does; {alone}",
        )
    return (
        "A worker process ended, and how is not known",
        "read the program's stderr; if it says nothing, look for the out-of-memory killer in the "
        f"system log; else {alone}"
        if has_started
        else "read the program's stderr: as far as is known, worker processes could not start",
    )


def late_samples(analysis: Analysis) -> Finding | None:
    """Resource samples that were taken late: what happened in between is not known."""
    samples = analysis.recording.resources
    if not len(samples):
        return None
    delay = np.nan_to_num(samples.delay)
    delayed = (delay > LATE) & _while_computing(analysis.recording, samples.time - delay, delay)
    if not delayed.any():
        return None
    longest = float(delay[delayed].max())
    return Finding(
        "late-samples",
        severity_of_share(float(delayed.mean()) / 2),
        float("nan"),
        f"{count(delayed.sum())} of {count(len(samples))} resource samples were late, by up to "
        f"{seconds(longest)}. A task held the GIL, or the machine was overloaded; peaks "
        "between samples are missing",
        "do not rely on memory and CPU between late samples; find the tasks that ran then in the "
        "task plot: code that holds the GIL that long stops all other threads, too",
        kind=MEASURED,
        where=during((samples.time - delay)[delayed], samples.time[delayed]),
    )


def _while_computing(recording: Recording, due: FloatArray, delay: FloatArray) -> BoolArray:
    """Which of these intervals overlap any computation; all of them if none was recorded."""
    if not len(recording.computations):
        return np.ones(len(due), bool)
    starts = np.sort(call_times(recording.computations))
    stops = np.sort(recording.computations.stop)
    started = np.searchsorted(starts, due + delay)
    return np.asarray(started > np.searchsorted(stops, due, "right"))
