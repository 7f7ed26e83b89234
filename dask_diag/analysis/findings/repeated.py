"""A rule on work that is done again: by a later computation, or by other tasks."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.call_tree import innermost
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
    seconds_sampled,
    severity_of,
    where_of_samples,
    where_of_tasks,
)
from dask_diag.analysis.groups import counts_by, rows_by, sums_by, totals_by
from dask_diag.analysis.intervals import Intervals
from dask_diag.analysis.lines import samples_below, samples_of_tasks
from dask_diag.analysis.task_times import call_times
from dask_diag.columns import BoolArray, FloatArray, IntArray, ratio
from dask_diag.model.codes import STORED_CHUNKS, Outcome
from dask_diag.model.graph import NAMED_BY_DASK
from dask_diag.model.recording import Recording

WORTH_REPORTING = 0.15
"""Least share of the time in computations that tasks take which do the same again."""
REPEATED = 0.05
"""Least share of the time in computations that repeated work takes."""
WORKED = 0.02
"""Least share of it of the tasks alone: the rest is the cost of tasks and computations."""
FEWEST_SAMPLES = 10
"""Samples of fused tasks; with fewer it is not known which step takes the time."""


@rule("repeated-work")
def repeated_work(analysis: Analysis) -> Diagnosis | None:
    """Computations did work that an earlier computation had done, or tasks read the same again."""
    ways = _work_of_earlier, chunks_read_again, _loads_again, _borders_again
    found = [one for way in ways if (one := way(analysis))]
    return max(found, key=lambda one: one.gain.seconds, default=None)


AGAIN = 0.4
"""Least share of sampled loads with the same input as an earlier task on the same thread."""
FEWEST_LOADS = 4
"""Least number of sampled loads."""


def _loads_again(analysis: Analysis) -> Diagnosis | None:
    """Tasks loaded the same file, or parsed the same text, as earlier tasks on their thread.

    A function that keeps what it loads does so once on each thread at most.
    """
    recording = analysis.recording
    again = [
        (seconds_sampled(recording, line.chosen), line)
        for line in analysis.lines_of_io
        if line.runs >= FEWEST_LOADS and line.repeats >= AGAIN * line.runs
    ]
    took, line = max(again, key=lambda pair: pair[0], default=(0.0, None))
    if line is None:
        return None
    lost = min(analysis.wall_of_tasks(took), analysis.computing)
    if lost < WORTH_REPORTING * analysis.computing:
        return None
    return Diagnosis(
        severity_of(lost / analysis.computing),
        Gain(lost),
        evidence(
            "Tasks loaded the same data again: {call} at {place} took {took:seconds} of task time "
            "({share:share}). {repeats:count} of {runs:count} loads that were sampled had the same "
            "input as one of an earlier task on the same thread",
            call=line.call,
            place=line.place,
            took=took,
            share=took / analysis.in_tasks,
            repeats=line.repeats,
            runs=line.runs,
        ),
        "load once in each process, in a function with @functools.cache"
        + " of a module that tasks import" * ("processes" in analysis.schedulers)
        + "; or once for many rows (map_partitions), or for all that needs it in one task; or pass "
        "the loaded object to the tasks, if it is small",
        where_of_samples(analysis, line.chosen),
    )


OF_BORDERS = 0.5
"""Least share of borders in the data of chunks that overlap."""


def _borders_again(analysis: Analysis) -> Diagnosis | None:
    """Chunks overlap so much that tasks mostly compute borders, as other tasks do."""
    recording, tasks = analysis.recording, analysis.tasks
    steps = recording.steps
    overlap = np.isin(tasks.group, steps.group[steps.function.eq("overlap")])
    if not overlap.any():
        return None
    # A chunk comes in parts: itself, and borders, which are smaller.
    task, needed = recording.dependencies.task, recording.dependencies.depends_on
    sizes = np.bincount(task, tasks.nbytes[needed], len(tasks))
    largest_part = np.zeros(len(tasks))
    np.maximum.at(largest_part, task, np.nan_to_num(tasks.nbytes[needed]))
    share = (1 - ratio(largest_part, sizes, 1.0)) * overlap
    again = analysis.task_seconds * share
    took, data = float(analysis.task_seconds[overlap].sum()), sizes[overlap].sum()
    lost = min(analysis.wall_of_tasks(float(again.sum())), analysis.computing)
    of_borders = float(share[overlap].mean())
    if of_borders < OF_BORDERS or lost < WORTH_REPORTING * analysis.computing:
        return None
    where = where_of_tasks(analysis, again)
    return Diagnosis(
        severity_of(lost / analysis.computing),
        Gain(lost),
        evidence(
            "Tasks computed borders of chunks that other tasks have, too: {borders:share} of "
            "{data:bytes} that {tasks:task} of map_overlap were given. They took {took:seconds} "
            "({share:share} of the time of all tasks)",
            borders=of_borders,
            data=data,
            tasks=overlap.sum(),
            took=took,
            share=took / analysis.in_tasks,
        ),
        "give the depth for each axis, and 0 where the function needs no neighbors: "
        "depth={0: 0, 1: 8, 2: 8}; or make chunks larger along axes with borders",
        where,
    )


def chunks_read_again(analysis: Analysis) -> Diagnosis | None:
    """Tasks read chunks of a stored array again, as the borders of their own chunks cross them."""
    recording, tasks = analysis.recording, analysis.tasks
    table = recording.repeated_steps
    table = table.filter(table.calls.eq(STORED_CHUNKS))
    if not len(table) or not analysis.in_tasks:
        return None
    of_tasks = samples_of_tasks(recording)
    reads = [samples_below(recording, "dask/array/core.py", name) for name in READING]
    is_reading = of_tasks & np.logical_or.reduce(reads)
    reading, again = np.zeros((2, len(tasks)))
    for row in table.to_dicts():
        of_function = of_tasks & recording.samples.function.eq(row["function"])
        sampled = seconds_sampled(recording, of_function)
        chosen = tasks.function.eq(row["function"]) & tasks.computation.eq(row["computation"])
        if sampled:
            share = seconds_sampled(recording, of_function & is_reading) / sampled
            reading[chosen] = analysis.task_seconds[chosen] * share
            again[chosen] = reading[chosen] * row["repeats"] / row["runs"]
    lost = min(analysis.wall_of_tasks(float(again.sum())), analysis.computing)
    if lost < WORTH_REPORTING * analysis.computing:
        return None
    worst = max(table.to_dicts(), key=lambda row: row["repeats"])
    chunks = worst["runs"] - worst["repeats"]
    return Diagnosis(
        severity_of(lost / analysis.computing),
        Gain(lost),
        evidence(
            "Tasks of {function} read {chunks:chunk} of a stored array {times:mean} times each, "
            "because the borders of the array's chunks ({name}) cross the stored ones. Reading "
            "took {took:seconds} of task time ({share:share})",
            function=analysis.named([worst["function"]]),
            chunks=chunks,
            times=worst["runs"] / chunks,
            name=worst["step"],
            took=reading.sum(),
            share=reading.sum() / analysis.in_tasks,
        ),
        "choose chunks that are multiples of the stored ones (chunks={} of xarray.open_zarr, no "
        "chunks= of from_zarr), and rechunk after reading; or store the array in chunks like those "
        "of the computation",
        where_of_tasks(analysis, again),
    )


READING = ("getter", "getter_nofancy", "getter_inline")
"""Functions of dask by which tasks read a part of an array."""


def _work_of_earlier(analysis: Analysis) -> Diagnosis | None:
    """Tasks, or steps in fused tasks, had run in an earlier computation."""
    recording, computations = analysis.recording, analysis.computations
    whole = repeats(recording)
    steps = _repeated_steps(recording, whole.is_repeat)
    seconds = analysis.task_seconds * np.where(whole.is_repeat, 1.0, steps.shares)
    if not seconds.any():
        return None
    # A computation is shorter by the share that repeats have of its tasks' time.
    called, names = call_times(computations), computations.computation.tolist()
    of_all, of_repeats = (
        totals_by(recording.tasks.computation, each) for each in (analysis.task_seconds, seconds)
    )
    shares = np.array([of_repeats.get(name, 0.0) / (of_all.get(name) or 1.0) for name in names])
    first = np.where(shares < 1, np.fmax(computations.prepared, computations.start), called)
    # Processes start whatever they compute.
    starting = {
        one.computation: one.seconds(one.startup) / max(one.workers, 1)
        for one in analysis.occupancies
    }
    started = np.array([starting.get(name, 0.0) for name in names])
    walls = np.fmax(computations.stop - first - started, 0.0) * shares
    lost = _passed(analysis, walls, called)
    worked = analysis.wall_of_workers(float(seconds.sum()))
    if lost < REPEATED * analysis.computing or worked < WORKED * analysis.computing:
        return None
    where = where_of_tasks(analysis, seconds)
    sites = largest(computations.call_site, walls, MOST_NAMED, WORTH_NAMING)
    return Diagnosis(
        severity_of(lost / analysis.computing),
        Gain(lost),
        evidence(
            "{what}. All repeated work took {took:seconds} of task time{sites}{others}",
            what=_most_repeated(analysis, whole, steps),
            took=seconds.sum(),
            sites=f", called at {in_words(sites)}" if any(sites) else "",
            others=_others(where.functions[1:]),
        ),
        "compute results that share work together, dask.compute(a, b); or compute the shared part "
        "once and keep it in memory, x = x.persist(), if it fits",
        where,
    )


def _most_repeated(analysis: Analysis, whole: _Repeats, steps: _RepeatedSteps) -> Evidence:
    """Clause on the function, or step in fused tasks, whose repeats took most time."""
    tasks = analysis.tasks
    sums = sums_by(tasks.function, analysis.task_seconds * whole.is_repeat)
    step, seconds = max(steps.seconds.items(), key=lambda pair: pair[1], default=("", 0.0))
    if seconds > sums.max(initial=0.0):
        return evidence(
            "{repeats:run} of {step} parsed parts of files again, for other columns"
            if step in steps.parsing
            else "{repeats:run} of {step}, a step in fused tasks, repeated earlier ones",
            repeats=steps.repeats[step],
            step=step,
        )
    function = tasks.function.values[int(sums.argmax())]
    is_of_function = tasks.function.eq(function) & whole.is_counted
    return evidence(
        "{repeats:count} of {runs:count} runs of {function} repeat earlier ones: "
        "{keys:different key} in {computations:computation}",
        repeats=(is_of_function & whole.is_repeat).sum(),
        runs=is_of_function.sum(),
        function=analysis.named([function]),
        keys=(is_of_function & ~whole.is_repeat).sum(),
        computations=(counts_by(tasks.computation[is_of_function]) > 0).sum(),
    )


class _RepeatedSteps(NamedTuple):
    """Steps in fused tasks that ran in an earlier computation.

    Attributes
    ----------
    shares : array of float
        Share of each task's time in such steps; 0 for tasks that are repeats as a whole.
    seconds : dict of str to float
        Seconds of repeated steps of each name, without those tasks.
    repeats : dict of str to int
        Number of repeats of the steps of each name.
    parsing : set of str
        Names of whole tasks that parse a part of a file which an earlier task parsed.
    """

    shares: FloatArray
    seconds: dict[str, float]
    repeats: dict[str, int]
    parsing: set[str]


def _repeated_steps(recording: Recording, is_repeat: BoolArray) -> _RepeatedSteps:
    """Repeated steps, with their times by samples of stacks: without samples these are not known.

    Parameters
    ----------
    recording : Recording
    is_repeat : array of bool
        Mask of the tasks that are repeats as a whole.
    """
    tasks, table = recording.tasks, recording.repeated_steps
    table = table.filter(~table.calls.eq(STORED_CHUNKS))
    shares = np.zeros(len(tasks))
    seconds: dict[str, float] = {}
    repeats: dict[str, int] = {}
    took = np.nan_to_num(tasks.stop - tasks.start)
    rows_of = rows_by(tasks.computation)
    of_steps = {
        function: _shares_of_steps(recording, function) for function in table.function.values
    }
    for row in table.to_dicts():
        step, runs, again = row["step"], row["runs"], row["repeats"]
        repeats[step] = repeats.get(step, 0) + again
        share = of_steps[row["function"]].get((step, row["calls"]), 0.0)
        if not share or row["computation"] not in rows_of:
            continue
        here = rows_of[row["computation"]]
        here = here[tasks.function[here].eq(row["function"])]
        # Tasks that are repeats as a whole have these steps, too.
        whole = float(is_repeat[here].mean()) if len(here) else 1.0
        rest = max(again / runs - whole, 0.0) / (1 - whole) if whole < 1 else 0.0
        here = here[~is_repeat[here]]
        shares[here] += share * rest
        seconds[step] = seconds.get(step, 0.0) + float(took[here].sum()) * share * rest
    # Fused tasks have several steps, and one may have the name of all.
    pairs = {*zip(table.function.tolist(), table.step.tolist(), strict=True)}
    number = Counter(function for function, _ in pairs)
    parsing = {step for function, step in pairs if step == function and number[step] == 1}
    return _RepeatedSteps(np.minimum(shares, 1.0), seconds, repeats, parsing)


def _shares_of_steps(recording: Recording, function: str) -> dict[tuple[str, str], float]:
    """Share of the sampled time of fused tasks that passed in each step, by the step's functions.

    A sample is of the innermost function on its stack that a single step calls.
    """
    table, samples, tree = recording.repeated_steps, recording.samples, recording.call_tree
    rows = table.filter(table.function.eq(function) & ~table.calls.eq(STORED_CHUNKS))
    steps = list(dict.fromkeys(zip(rows.step.tolist(), rows.calls.tolist(), strict=True)))
    of_names: dict[str, set[int]] = {}
    for number, (_, calls) in enumerate(steps):
        for name in calls.split():
            of_names.setdefault(name, set()).add(number)
    chosen = samples_of_tasks(recording) & samples.function.eq(function)
    if samples.count[chosen].sum() < FEWEST_SAMPLES:
        return {}
    names = [name.rpartition(".")[2] for name in recording.frames.name.values]
    known = [of_names.get(name, set()) for name in names]
    # -1: no step, -2: several.
    codes = np.array([-1 if not one else min(one) if len(one) == 1 else -2 for one in known])
    step_of_node = codes[recording.frames.name.codes[tree.frame]]
    inner = innermost(tree.parent, step_of_node != -1)[samples.node[chosen]]
    step = np.where(inner >= 0, step_of_node[inner], -1)
    seconds = samples.seconds[chosen]
    total = float(seconds.sum())
    return {pair: float(seconds[step == n].sum()) / total for n, pair in enumerate(steps)}


def _others(functions: tuple[str, ...]) -> Evidence:
    return evidence(". Repeated, too: {functions}" * bool(functions), functions=functions)


class _Repeats(NamedTuple):
    """Masks of tasks: the first run of each key in a computation, and repeats of earlier ones."""

    is_counted: BoolArray
    is_repeat: BoolArray


def repeats(recording: Recording) -> _Repeats:
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
        if (key, code) in ran or not NAMED_BY_DASK.search(key):
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
