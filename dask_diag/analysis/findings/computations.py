"""Rules on many small computations, and on computations inside of tasks."""

from __future__ import annotations

import os
import re

import numpy as np

from dask_diag.analysis.cpu import cpus_of_others
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import (
    MOST_NAMED,
    WORTH_NAMING,
    Diagnosis,
    Evidence,
    Gain,
    at_line,
    evidence,
    in_words,
    largest,
    rule,
    severity_of,
    sums_of_tasks,
    where_of_intervals,
    where_of_tasks,
)
from dask_diag.analysis.groups import rows_by, totals_by
from dask_diag.analysis.intervals import Intervals
from dask_diag.analysis.lines import (
    own_lines,
    samples_below,
    samples_in_files,
)
from dask_diag.analysis.task_times import call_times
from dask_diag.columns import FloatArray
from dask_diag.model.codes import (
    COMPUTATIONS,
    IN_TASKS,
    REPEATS,
    Activity,
    Outcome,
    Root,
)

FEW_TASKS = 20
"""Most tasks of a small computation."""
FEWEST_COMPUTATIONS = 100
"""Least number of small computations."""
MOSTLY_WORK = 0.5
"""Largest share of their time in which a task runs."""
WORTH_REPORTING = 0.15
"""Least share of the time since the first call that is lost."""
OVERLAPPING = 0.05
"""Share of the time of computations on a cluster that may overlap."""
MUCH_MOVED = 1e6
"""Mean bytes to and from a cluster from which on these take the time of a computation."""


@rule("small-computations", unless=("repeated-work",))
def small_computations(analysis: Analysis) -> Diagnosis | None:
    """Thousands of computations of few short tasks: to compute takes longer than the tasks."""
    combining = _combining_files(analysis)
    if combining is not None:
        return combining
    recording, computations = analysis.recording, analysis.computations
    rows_of = rows_by(recording.tasks.computation)
    tasks = np.array([len(rows_of.get(name, ())) for name in computations.computation.tolist()])
    on_cluster = analysis.schedulers == {"distributed"}
    is_small = (tasks > 0) & (tasks <= FEW_TASKS)
    if not on_cluster:
        is_small &= ~computations.scheduler.eq("distributed")
    small = computations.filter(is_small)
    if len(small) < FEWEST_COMPUTATIONS:
        return None
    called = call_times(small)
    took = np.fmax(small.stop - called, 0.0)
    is_of_small = recording.tasks.computation.is_in({*small.computation.tolist()})
    start, stop = recording.tasks.start[is_of_small], recording.tasks.stop[is_of_small]
    work = Intervals(start, stop).union().seconds
    ran = Intervals(called, small.stop).union().seconds
    own = np.nansum([small.cpu_ends, small.cpu_hooks])
    sites = [site for site in largest(small.call_site, took, MOST_NAMED, WORTH_NAMING) if site]
    if on_cluster:
        moved = np.nansum(small.graph_bytes) + np.nansum(recording.tasks.nbytes[is_of_small])
        if ran < took.sum() * (1 - OVERLAPPING) or moved > MUCH_MOVED * len(small):
            return None
        # The program makes a graph, sends it, and waits for the result after its computation.
        client = analysis.client_times
        trips = float(client.sending.sum() + client.bringing.sum())
        ran, took = ran + trips, took + trips / len(small)
        sites = [str(line) for line in own_lines(recording, client.waiting)[:1]]
    lasted = float(computations.stop.max() - call_times(computations).min())
    lost = max(min(ran, lasted) - work - float(own * ran / took.sum()), 0.0)
    if work > MOSTLY_WORK * ran or lost < WORTH_REPORTING * lasted:
        return None
    few, most = tasks[is_small].min(), tasks[is_small].max()
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
            sites=f". Called at {in_words(sites)}" if sites else "",
        ),
        "compute many results in one call, dask.compute(*results); or "
        + (
            "compute such small results in the program itself"
            if on_cluster
            else "read small parts from the source itself, without dask"
        ),
        where_of_intervals(called, small.stop),
    )


COMBINES = re.compile(r"/xarray/(?:core|structure)/(?:combine|concat|merge)\.py$")
"""Files of xarray that compute coordinates of each of many files, to compare them."""
FEWEST_COMPARED = 20
"""Least number of computations in which xarray compares."""


def _combining_files(analysis: Analysis) -> Diagnosis | None:
    """Computations of xarray, which compares the coordinates of files as it combines these."""
    recording, computations = analysis.recording, analysis.computations
    weights = recording.samples.seconds * ~recording.samples.root.eq(Root.TASKS)
    lines = own_lines(recording, weights * samples_in_files(recording, COMBINES.search))
    if not lines:
        return None
    site = f"{os.path.basename(lines[0].file)}:{lines[0].line}"
    called = call_times(computations)
    order = np.argsort(called, kind="stable")
    is_here = computations.call_site.eq(site)[order]
    # From one to the next there it combines what it has computed.
    ends = np.append(called[order][1:], np.inf)
    follows = np.append(is_here[1:], False)
    stop = np.where(follows, ends, computations.stop[order])[is_here]
    start = called[order][is_here]
    lasted = float(computations.stop.max() - called.min())
    lost = Intervals(start, stop).union().seconds
    if is_here.sum() < FEWEST_COMPARED or lost < WORTH_REPORTING * lasted:
        return None
    return Diagnosis(
        severity_of(lost / lasted),
        Gain(lost),
        evidence(
            "xarray computed {computations:count} times as it combined files or datasets, to "
            "compare their coordinates: {lost:seconds} at {site}",
            computations=is_here.sum(),
            lost=lost,
            site=str(lines[0]),
        ),
        "if these are the same in all files, let it compare none: xarray.open_mfdataset(..., "
        "combine='nested', concat_dim='time', coords='minimal', data_vars='minimal', "
        "compat='override'); the same arguments of xarray.concat",
        where_of_intervals(start, stop),
    )


MOSTLY_INSIDE = 0.5
"""Least share of the tasks' time in computations inside of tasks."""
FEWEST_INSIDE = 10
"""Least computations inside of tasks."""
IDLE_CPUS = 0.3
"""Least share of the CPUs that neither the program nor others used meanwhile."""
LEFT_BY_OTHERS = 1 / 3
"""Share of the CPUs that other programs are taken to leave if this one needs them."""
WAITED_FOR = 0.25
"""Least share of their time in which tasks waited for other threads, if waits were recorded."""
MOSTLY_AGAIN = 0.5
"""Least share of them whose inputs an earlier one had: these are lost on busy CPUs, too."""
_COMPUTES = "dask/base.py"


@rule("nested-computations")
def nested_computations(analysis: Analysis) -> Diagnosis | None:
    """Tasks computed with dask inside: CPUs were idle meanwhile, or the inputs were the same."""
    return _metered_inside(analysis) or _tasks_of_tasks(analysis)


def _metered_inside(analysis: Analysis) -> Diagnosis | None:
    """Computations on the threads of tasks, or on threads that these started."""
    metrics = analysis.recording.metrics
    rows = metrics.filter(metrics.activity.eq(IN_TASKS))
    sums = totals_by(rows.unit, rows.value)
    spent, number = sums.get("seconds", 0.0), sums.get(COMPUTATIONS, 0.0)
    if number < FEWEST_INSIDE or spent < MOSTLY_INSIDE * analysis.in_tasks:
        return None
    repeated = ((n, unit.removeprefix(REPEATS)) for unit, n in sums.items() if REPEATS in unit)
    again, step = max(repeated, default=(0.0, ""))
    is_again = again >= MOSTLY_AGAIN * number
    cpu = analysis.cpu_in_tasks + analysis.known_cpu_outside_tasks + analysis.cpu_of_children
    free = analysis.cpus * analysis.busy_wall
    others = cpus_of_others(analysis.recording) * analysis.busy_wall
    is_idle = free and cpu + max(others - LEFT_BY_OTHERS * free, 0.0) <= (1 - IDLE_CPUS) * free
    # Those of the synchronous scheduler are the task's own work.
    waited = analysis.waited(Activity.THREAD_WAIT, Activity.LOCK_WAIT)
    is_idle = is_idle and (not analysis.has_waits or waited >= WAITED_FOR * spent)
    if not is_idle and not is_again:
        return None
    took = sums_of_tasks(analysis.recording, rows.task, rows.value * rows.unit.eq("seconds"))
    return _diagnosis(
        analysis,
        took,
        evidence(
            "ran {number:computation} inside{line}, for {spent:seconds} ({share:share} of the time "
            "of all tasks)"
            + (
                "; {again:count} of these had the inputs of an earlier one ({step})"
                if is_again
                else ". The program used {cpu:seconds} of CPU meanwhile, on {cpus:CPU}"
            ),
            number=number,
            line=at_line(analysis, _computing(analysis)),
            spent=spent,
            share=min(spent / analysis.in_tasks, 1.0),
            again=again,
            step=step,
            cpu=cpu,
            cpus=analysis.cpus,
        ),
        is_again,
    )


def _tasks_of_tasks(analysis: Analysis) -> Diagnosis | None:
    """Computations by the cluster whose tasks run: tasks that another one ran before."""
    tasks, computing = analysis.tasks, _computing(analysis)
    waited = np.nan_to_num(tasks.stop - tasks.seceded)
    if not waited.any() or not computing.any():
        return None
    again = np.where(tasks.outcome.eq(Outcome.OK), analysis.task_seconds, 0.0)
    order = np.argsort(tasks.start, kind="stable")
    _, first = np.unique(tasks.key[order].tolist(), return_index=True)
    again[order[first]] = 0.0
    functions = largest(tasks.function, again, 1)
    if not functions or again.sum() < WORTH_REPORTING * analysis.in_tasks:
        return None
    is_step = tasks.function.eq(functions[0])
    return _diagnosis(
        analysis,
        waited,
        evidence(
            "computed with dask inside{line}, and waited for it: {again:count} of {runs:count} "
            "runs of {step} repeated earlier ones",
            line=at_line(analysis, computing),
            again=(is_step & (again > 0)).sum(),
            runs=is_step.sum(),
            step=analysis.named(functions),
        ),
        True,
    )


def _computing(analysis: Analysis) -> FloatArray:
    """Seconds of the samples of tasks in a call of dask to compute."""
    recording = analysis.recording
    in_tasks = recording.samples.root.eq(Root.TASKS)
    return recording.samples.seconds * (in_tasks & samples_below(recording, _COMPUTES))


def _diagnosis(analysis: Analysis, took: FloatArray, said: Evidence, is_again: bool) -> Diagnosis:
    """Diagnosis of computations inside, with their seconds in each task."""
    where = where_of_tasks(analysis, took)
    lost = min(analysis.wall_of_tasks(took.sum()), analysis.computing)
    return Diagnosis(
        severity_of(lost / analysis.computing),
        Gain(lost),
        evidence(
            "{tasks:task} of {functions} {said}",
            tasks=(took > 0).sum(),
            functions=where.functions,
            said=said,
        ),
        "build one graph of all results outside of tasks and compute it once, "
        "dask.compute(*results): it runs once what they share"
        if is_again
        else "return collections from these functions, and compute all in one call; or call the "
        "same code without dask in them (NumPy, pandas), or with scheduler='sync'",
        where,
    )
