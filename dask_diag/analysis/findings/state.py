"""Rules on failures, and on measurements that are less reliable than expected."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from dask_diag.analysis.call_tree import short_path
from dask_diag.analysis.chunks import chunk_name
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.cluster import KILLED_WORKER
from dask_diag.analysis.findings.rule import (
    NO_GAIN,
    NOWHERE,
    Diagnosis,
    Evidence,
    FindingLocation,
    Gain,
    evidence,
    rule,
    severity_of,
    where_of_intervals,
    where_of_tasks,
)
from dask_diag.analysis.task_times import call_times
from dask_diag.columns import BoolArray, FloatArray
from dask_diag.model.codes import Outcome
from dask_diag.model.recording import Recording
from dask_diag.model.tables import Tasks

LATE = 0.25
"""Largest delay of a sample, in seconds, without a finding."""


@rule("failed-tasks", needs_tasks=False)
def failed_tasks(analysis: Analysis) -> Diagnosis | None:
    """Tasks raised, or workers died."""
    recording, tasks = analysis.recording, analysis.tasks
    is_failed = tasks.outcome.eq(Outcome.FAILED)
    if not is_failed.any():
        return _broken_pool(analysis)
    first = int(is_failed.argmax())
    exception, chunk = _exception(tasks, first), _failed_chunk(analysis, first)
    is_killed = tasks.error[first] == KILLED_WORKER
    lasted = float((tasks.stop - tasks.start)[is_failed].sum())
    failed = int(is_failed.sum())
    runs = list(zip(tasks.key.tolist(), tasks.computation.tolist(), strict=True))
    of_failed = {runs[row] for row in np.flatnonzero(is_failed)}
    distinct = len(of_failed)
    has_ended_well = of_failed <= {
        runs[row] for row in np.flatnonzero(tasks.outcome.eq(Outcome.OK))
    }
    is_retried = failed >= OFTEN_RETRIED * distinct and not has_ended_well
    computations = recording.computations.filter(
        recording.computations.computation.eq(tasks.computation[first])
    )
    is_on_cluster = "distributed" in computations.scheduler.tolist()
    advice = _advice_on_failure(tasks.error[first], is_on_cluster) + RETRY_LESS * is_retried
    if chunk.text and not is_killed:
        advice = RUN_CHUNK_ALONE
    elif has_ended_well:
        advice = RETRY_A_PART
    # Else the result is lost, with all that was done for it: no seconds of this task say it.
    gain, severity = NO_GAIN, "high"
    if has_ended_well and lasted > 0:
        lost = min(analysis.wall_of_tasks(lasted), analysis.computing)
        gain, severity = Gain(lost), severity_of(lost / analysis.computing)
    return Diagnosis(
        severity,
        gain,
        evidence(
            "{chunk}{failed:task} failed "
            + ("after an unknown time" if np.isnan(lasted) else "after {lasted:seconds}")
            + (". The first was" if failed > 1 else ". It was")
            + " {key} of {function}{exception}"
            + ". {distinct:task} failed again and again, {runs:mean} times each" * is_retried
            + ". Run again, {distinct:task} ended well" * has_ended_well
            + ". {died:worker} died with it" * is_killed,
            chunk=chunk,
            failed=failed,
            lasted=lasted,
            distinct=distinct,
            runs=failed / distinct,
            key=tasks.key[first],
            function=tasks.function[first],
            exception=f": {exception}" if exception and not chunk.text else "",
            died=tasks.attempt[first],
        ),
        advice,
        _where_failed(analysis, is_failed),
    )


def _where_failed(analysis: Analysis, is_failed: BoolArray) -> FindingLocation:
    """Place of failed tasks; of those that are fused, the line of the step that raised."""
    where, tasks = where_of_tasks(analysis, is_failed), analysis.tasks
    steps = analysis.recording.steps
    raised = {
        (int(tasks.group[row]), re.split(r" in |\.", tasks.error_location[row])[-1])
        for row in np.flatnonzero(is_failed).tolist()
    }
    rows = list(zip(steps.group.tolist(), steps.function.tolist(), strict=True))
    is_step = np.array([row in raised for row in rows], bool) & (steps.line >= 0)
    lines = dict.fromkeys(analysis.built_by.place_of_row[steps.line[is_step]].tolist())
    if len(raised) != len({rows[row] for row in np.flatnonzero(is_step)}):
        # Which step of some tasks failed is not known.
        return where
    return replace(where, lines=tuple(analysis.built_by.places[place].name for place in lines))


OFTEN_RETRIED = 3
"""Least times that a task ran and failed, of retries that are mentioned."""
RETRY_LESS = (
    "; retry (retries=) only what may succeed the next time, such as a request, and not errors "
    "that the data cause: catch these in the task"
)
RETRY_A_PART = (
    "do what may fail, such as a request, in a task of its own, or try it again within the task: "
    "each retry does all that comes before it again"
)


def _advice_on_failure(error: str, is_on_cluster: bool) -> str:
    if error == KILLED_WORKER:
        return (
            "give workers more memory, or this task less data, if memory ran out; "
            "otherwise look for compiled code that crashes. The logs of the workers' nannies show "
            "how they ended"
        )
    if is_on_cluster:
        return "run this task again in this process with client.recreate_error_locally(future)"
    return "debug this task alone with scheduler='synchronous'"


RUN_CHUNK_ALONE = (
    "run the processor on this file in this process: Runner(IterativeExecutor(), ...); "
    "skipbadfiles=True leaves out files that cannot be opened"
)


def _failed_chunk(analysis: Analysis, task: int) -> Evidence:
    """Sentence on the chunk of coffea that a failed task processed; empty without one."""
    recording = analysis.recording
    rows = np.flatnonzero(recording.chunks.task == task)
    if not len(rows):
        return Evidence()
    chunks, row = recording.chunks, int(rows[0])
    is_same = chunks.file.eq(chunks.file[row]) & (chunks.first == chunks.first[row])
    failed = analysis.tasks.outcome.eq(Outcome.FAILED)[chunks.task]
    return evidence(
        "Chunk {chunk} failed {times:time}: {error}. In all, ",
        chunk=chunk_name(recording, row),
        times=(is_same & failed).sum(),
        error=chunks.error[row],
    )


def _exception(tasks: Tasks, row: int) -> str:
    """Exception of a task, and the line that raised it, as far as recorded."""
    text = ": ".join(filter(None, (tasks.error[row], tasks.error_message[row])))
    location = tasks.error_location[row]
    if not location:
        return text
    # A path may have a colon in it, too.
    path, colon, line = location.rpartition(":")
    return f"{text}, at {short_path(path)}{colon}{line}"


def _broken_pool(analysis: Analysis) -> Diagnosis | None:
    """A worker process ended, or its result could not be unpickled: no task has failed."""
    computations, tasks = analysis.computations, analysis.tasks
    broken = computations.filter(computations.error.eq("BrokenProcessPool"))
    if not len(broken):
        return _error_of_scheduler(analysis)
    in_broken = tasks.computation.is_in(broken.computation.tolist())
    unfinished = tasks.outcome.eq(Outcome.UNFINISHED) & in_broken
    where = where_of_tasks(analysis, unfinished) if unfinished.any() else NOWHERE
    # A task has a start once its result is here; of those that a dead process ran there is none.
    has_started = bool((in_broken & ~np.isnan(tasks.start)).any())
    end, advice = _end_of_worker(broken.pool_end.tolist()[0], has_started)
    return Diagnosis(
        "high",
        NO_GAIN,
        evidence(
            "{end} (BrokenProcessPool), with "
            + ("{in_flight:task} of {functions}" if unfinished.any() else "no task")
            + " in flight"
            + "; none is known to have started" * (not has_started),
            end=end,
            in_flight=unfinished.sum(),
            functions=where.functions,
        ),
        advice,
        where,
    )


def _error_of_scheduler(analysis: Analysis) -> Diagnosis | None:
    """A computation ended by an error of Dask's scheduler, as for a wrong argument."""
    errors = [
        error
        for error in analysis.computations.error.tolist()
        if error not in ("", "unknown", "KeyboardInterrupt", "SystemExit")
    ]
    # On a cluster an error is that of a task, whose run may not be recorded.
    if not errors or analysis.on_cluster:
        return None
    return Diagnosis(
        "high",
        NO_GAIN,
        evidence(
            "{error} ended {ended:computation}, raised by Dask's scheduler: no task failed",
            error=errors[0],
            ended=len(errors),
        ),
        "read the program's traceback; check the arguments of compute, such as chunksize and "
        "num_workers",
    )


def _end_of_worker(end: str, has_started: bool) -> tuple[str, str]:
    """How a worker process ended, and what to do."""
    status = end.removeprefix("exit ")
    alone = "debug these tasks alone with scheduler='synchronous'"
    if end == "unguarded":
        return (
            "Worker processes ended while they started: each runs the program's file again, and "
            "came to this computation",
            "put the program's top-level code under if __name__ == '__main__':, below its "
            "functions; the program's stderr shows the error",
        )
    if end == "SIGKILL":
        return (
            "A worker process was killed by SIGKILL",
            "look for the out-of-memory killer in the system log, and use fewer workers or smaller "
            f"chunks; otherwise {alone}",
        )
    if end.startswith("SIG"):
        return (
            f"A worker process was killed by {end}",
            f"{alone}: their compiled code may have crashed",
        )
    if end in ("exit 0", "exit 1") and not has_started:
        return (
            f"A worker process ended with status {status}, like a process that cannot start",
            "read the program's stderr, which shows a module that cannot be imported or an "
            "initializer of the pool that fails; otherwise look for a task that calls os._exit",
        )
    if end.startswith("exit "):
        return (
            f"A worker process ended with status {status}",
            f"look for calls in these tasks that end the process, such as os._exit; {alone}",
        )
    return (
        "A worker process ended for an unknown reason",
        "read the program's stderr; if it is empty, look for the out-of-memory killer in the "
        f"system log; otherwise {alone}"
        if has_started
        else "read the program's stderr: probably worker processes could not start",
    )


# A collection keeps the GIL from the sampler.
@rule("late-samples", needs=("resources",), unless=("garbage-collection",), needs_tasks=False)
def late_samples(analysis: Analysis) -> Diagnosis | None:
    """Resource samples were taken late: events between the samples are not known."""
    samples = analysis.recording.resources
    delay = np.nan_to_num(samples.delay)
    is_late = (delay > LATE) & _overlap_computations(
        analysis.recording, samples.time - delay, delay
    )
    if not is_late.any():
        return None
    return Diagnosis(
        severity_of(float(is_late.mean()) / 2),
        NO_GAIN,
        evidence(
            "{late:count} of {samples:count} samples of CPU and memory were late, by up to "
            "{longest:seconds}. A task "
            + ("held the GIL" if analysis.has_gil else "ran code that others cannot stop")
            + ", or the machine was overloaded; peaks between samples are missing",
            late=is_late.sum(),
            samples=len(samples),
            longest=delay[is_late].max(),
        ),
        "find the tasks that ran at these times in the task plot"
        + ": code that holds the GIL for long also blocks all other threads" * analysis.has_gil
        + "; do not rely on CPU and memory between late samples",
        where_of_intervals((samples.time - delay)[is_late], samples.time[is_late]),
    )


def _overlap_computations(recording: Recording, due: FloatArray, delay: FloatArray) -> BoolArray:
    """Mask of intervals that overlap any computation; all intervals without computations."""
    if not len(recording.computations):
        return np.ones(len(due), bool)
    starts = np.sort(call_times(recording.computations))
    stops = np.sort(recording.computations.stop)
    started = np.searchsorted(starts, due + delay)
    return np.asarray(started > np.searchsorted(stops, due, "right"))
