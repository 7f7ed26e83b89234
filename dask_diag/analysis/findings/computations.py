"""Rules on many computations: of the same work, and of too little work for a computation each."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import (
    MOST_NAMED,
    WORTH_NAMING,
    Diagnosis,
    Evidence,
    Gain,
    evidence,
    in_words,
    largest,
    rule,
    severity_of,
    where_of_intervals,
    where_of_tasks,
)
from dask_diag.analysis.groups import counts_by
from dask_diag.analysis.intervals import Intervals
from dask_diag.analysis.task_times import call_times
from dask_diag.columns import BoolArray, FloatArray, IntArray
from dask_diag.model.codes import Outcome
from dask_diag.model.recording import Recording

REPEATED = 0.05
"""Least share of the time in computations that repeated work takes."""
_TOKEN = re.compile(r"-(?:[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?![0-9a-f])")
"""The end of a name that dask gave to work. The user may give a name to other work, too."""


@rule("repeated-work")
def repeated_work(analysis: Analysis) -> Diagnosis | None:
    """Computations did work that an earlier computation had done."""
    recording, computations = analysis.recording, analysis.computations
    repeats = _repeats(recording)
    if not repeats.is_repeat.any():
        return None
    seconds = analysis.task_seconds * repeats.is_repeat
    # A computation is shorter by the share that repeats have of its tasks' time.
    called, names = call_times(computations), computations.computation.tolist()
    of_all, of_repeats = (
        dict(zip(recording.tasks.computation.values, sums.tolist(), strict=False))
        for sums in (
            np.bincount(recording.tasks.computation.codes, each)
            for each in (analysis.task_seconds, seconds)
        )
    )
    shares = np.array([of_repeats.get(name, 0.0) / (of_all.get(name) or 1.0) for name in names])
    first = np.where(shares < 1, np.fmax(computations.prepared, computations.start), called)
    walls = np.fmax(computations.stop - first, 0.0) * shares
    lost = _passed(analysis, walls, called)
    if lost < REPEATED * analysis.computing:
        return None
    where = where_of_tasks(analysis, seconds)
    function = where.functions[0]
    is_of_function = recording.tasks.function.eq(function) & repeats.is_counted
    is_repeat = is_of_function & repeats.is_repeat
    sites = largest(computations.call_site, walls, MOST_NAMED, WORTH_NAMING)
    return Diagnosis(
        severity_of(lost / analysis.computing),
        Gain(lost),
        evidence(
            "{repeats:count} of {runs:count} runs of {function} repeat earlier ones: "
            "{keys:different key} in {computations:computation}. All repeated work took "
            "{took:seconds} of task time{sites}{others}",
            repeats=is_repeat.sum(),
            runs=is_of_function.sum(),
            function=function,
            keys=(is_of_function & ~repeats.is_repeat).sum(),
            computations=(counts_by(recording.tasks.computation[is_of_function]) > 0).sum(),
            took=seconds.sum(),
            sites=f", called at {in_words(sites)}" if any(sites) else "",
            others=_others(where.functions[1:]),
        ),
        "compute results that share work together, dask.compute(a, b); or compute the shared part "
        "once and keep it in memory, x = x.persist(), if it fits",
        where,
    )


def _others(functions: tuple[str, ...]) -> Evidence:
    return evidence(". Repeated, too: {functions}" * bool(functions), functions=functions)


class _Repeats(NamedTuple):
    """Masks of tasks: the first run of each key in a computation, and repeats of earlier ones."""

    is_counted: BoolArray
    is_repeat: BoolArray


def _repeats(recording: Recording) -> _Repeats:
    """Tasks whose keys ran in an earlier computation of the same program.

    A key that a computation runs again, since its result was released or lost, counts once.
    """
    tasks, computations = recording.tasks, recording.tasks.computation
    is_counted, is_repeat = (np.zeros(len(tasks), bool) for _ in range(2))
    rows = np.flatnonzero(_is_of_several(tasks.key.heads.codes, computations.codes))
    rows = rows[tasks.outcome[rows].eq(Outcome.OK)]
    rows = rows[np.argsort(tasks.start[rows], kind="stable")]
    runs = [name.rpartition("-")[0] for name in computations.values]
    seen: set[tuple[str, str]] = set()
    ran: set[tuple[str, int]] = set()
    keys, codes = tasks.key[rows].tolist(), computations.codes[rows].tolist()
    for row, key, code in zip(rows.tolist(), keys, codes, strict=True):
        if (key, code) in ran or not _TOKEN.search(key):
            continue
        ran.add((key, code))
        is_counted[row] = True
        is_repeat[row] = (key, runs[code]) in seen
        seen.add((key, runs[code]))
    return _Repeats(is_counted, is_repeat)


def _is_of_several(heads: IntArray, computations: IntArray) -> BoolArray:
    """Select the tasks whose keys begin as those of tasks of other computations."""
    if not len(heads):
        return np.zeros(0, bool)
    pairs = np.unique(np.stack([heads, computations]).astype(np.int64), axis=1)
    return (np.bincount(pairs[0]) > 1)[heads]


def _passed(analysis: Analysis, seconds: FloatArray, called: FloatArray) -> float:
    """Wall seconds of these seconds of computations, some of which overlap."""
    ran = Intervals(called, analysis.computations.stop)
    return float(seconds.sum()) * ran.union().seconds / (ran.seconds or 1.0)


FEW_TASKS = 20
"""Most tasks of a small computation."""
FEWEST_COMPUTATIONS = 100
"""Least number of small computations."""
MOSTLY_WORK = 0.5
"""Largest share of their time in which a task runs."""
WORTH_REPORTING = 0.15
"""Least share of the time since the first call that is lost."""


@rule("small-computations", unless=("repeated-work",))
def small_computations(analysis: Analysis) -> Diagnosis | None:
    """Thousands of computations of few short tasks: to compute takes longer than the tasks."""
    recording, computations = analysis.recording, analysis.computations
    counts = dict(
        zip(
            recording.tasks.computation.values,
            counts_by(recording.tasks.computation).tolist(),
            strict=True,
        )
    )
    tasks = np.array([counts.get(name, 0) for name in computations.computation.tolist()])
    is_small = (tasks > 0) & (tasks <= FEW_TASKS) & ~computations.scheduler.eq("distributed")
    small = computations.filter(is_small)
    if len(small) < FEWEST_COMPUTATIONS:
        return None
    called = call_times(small)
    took = np.fmax(small.stop - called, 0.0)
    is_of_small = recording.tasks.computation.is_in(small.computation.tolist())
    start, stop = recording.tasks.start[is_of_small], recording.tasks.stop[is_of_small]
    work = Intervals(start, stop).union().seconds
    ran = Intervals(called, small.stop).union().seconds
    own = np.nansum([small.cpu_ends, small.cpu_hooks])
    lost = max(ran - work - own * ran / took.sum(), 0.0)
    lasted = float(computations.stop.max() - call_times(computations).min())
    if work > MOSTLY_WORK * ran or lost < WORTH_REPORTING * lasted:
        return None
    few, most = tasks[is_small].min(), tasks[is_small].max()
    sites = largest(small.call_site, took, MOST_NAMED, WORTH_NAMING)
    return Diagnosis(
        severity_of(lost / lasted),
        Gain(lost),
        evidence(
            "{computations:count} computations of "
            + "{fewest:count} to " * bool(few < most)
            + "{most:task} took {each:seconds} each, of which tasks ran for {work:seconds}{sites}",
            computations=len(small),
            fewest=few,
            most=most,
            each=took.mean(),
            work=work / len(small) * took.sum() / ran,
            sites=f". Called at {in_words(sites)}" if any(sites) else "",
        ),
        "compute many results in one call, dask.compute(*results); or read small parts from the "
        "source itself, without dask",
        where_of_intervals(called, small.stop),
    )
