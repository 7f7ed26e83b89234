"""Rules on the program's own thread: what it gives to a cluster, waits for and gets back."""

from __future__ import annotations

from math import nan

import numpy as np

from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import (
    Diagnosis,
    Gain,
    at_line,
    evidence,
    line_clause,
    rule,
    severity_of,
    top_functions,
    where_of_intervals,
)
from dask_diag.analysis.intervals import Intervals
from dask_diag.analysis.lines import CLIENT, QUEUES, own_lines, samples_below
from dask_diag.analysis.task_times import call_times, running_computations
from dask_diag.columns import IntArray
from dask_diag.model.codes import Activity, Outcome

WORTH_REPORTING = 0.15
"""Least share of the time that is reported."""
LONG = 0.1
"""Least seconds that are reported: the tasks of these computations may take less."""
LARGE_ARGUMENT = 1e6
"""Least mean bytes that each task was given."""
MUCH_GIVEN = 20e6
"""Least bytes that all tasks were given."""


@rule("large-arguments", needs_tasks=False)
def large_arguments(analysis: Analysis) -> Diagnosis | None:
    """Tasks of a cluster were given large data: each is sent through client and scheduler."""
    computations = analysis.computations.filter(~analysis.computations.cluster.eq(""))
    given = float(np.nansum(computations.graph_bytes))
    tasks = int((analysis.tasks.attempt <= 1).sum())
    if not tasks or given < max(MUCH_GIVEN, LARGE_ARGUMENT * tasks):
        return None
    recording, sending = analysis.recording, analysis.client_times.sending
    overhead = analysis.wall_of_workers(analysis.spent(Activity.OVERHEAD))
    sent_before = float(sending[recording.samples.stop <= computations.start.min()].sum())
    # Some is sent while workers wait for it.
    lost = min(float(sending.sum()) + overhead, sent_before + analysis.called - analysis.busy_wall)
    wall = sent_before + analysis.called
    if lost < max(WORTH_REPORTING * wall, LONG):
        return None
    return Diagnosis(
        severity_of(lost / wall),
        Gain(lost),
        evidence(
            "The program gave {given:bytes} of data to {tasks:task} of {functions}, {each:bytes} "
            "each{line}. It went through the client and the scheduler once for each task",
            given=given,
            tasks=tasks,
            functions=top_functions(analysis, np.ones(len(analysis.tasks))),
            each=given / tasks,
            line=at_line(analysis, sending),
        ),
        "send it once, data = client.scatter(data, broadcast=True), and give the future to these "
        "tasks; or load the data in tasks",
        where_of_intervals(computations.start, computations.stop),
    )


FEWEST_COMPUTATIONS = 5
"""Computations of which it is said that they ran one after the other."""
AT_ONE_LINE = 0.7
"""Least share of the program's waits for results at one line."""
OVERLAPPING = 0.05
"""Share of the time of computations that may overlap: the scheduler learns late of the end."""
FULL = 0.75
"""Share of the workers that a computation keeps busy, from which on its tasks are enough."""


@rule("serial-computations", unless=("small-computations",))
def serial_computations(analysis: Analysis) -> Diagnosis | None:
    """The program waited for each result before it submitted the next tasks."""
    computations, tasks = analysis.computations, analysis.tasks
    if analysis.schedulers != {"distributed"} or len(computations) < FEWEST_COMPUTATIONS:
        return None
    each = len(tasks) / len(computations)
    ran = Intervals(computations.start, computations.stop)
    if each > FULL * analysis.workers or ran.union().seconds < ran.seconds * (1 - OVERLAPPING):
        return None
    waiting = analysis.client_times.waiting
    lines = own_lines(analysis.recording, waiting)
    if not lines or lines[0].seconds < AT_ONE_LINE * float(waiting.sum()):
        return None
    longest = float(analysis.task_seconds.max())
    cpu = analysis.cpu_in_tasks / analysis.cpus_for_tasks
    lost = analysis.computing - max(analysis.in_tasks / analysis.workers, cpu, longest)
    if lost < WORTH_REPORTING * analysis.computing:
        return None
    return Diagnosis(
        severity_of(lost / analysis.computing),
        Gain(lost),
        evidence(
            "{number:computation} with {tasks:task} in all ran one after the other, on "
            "{workers:mean} worker threads: the program waited for each result before it submitted "
            "the next tasks, at {line}",
            number=len(computations),
            tasks=len(tasks),
            workers=analysis.workers,
            line=str(lines[0]),
        ),
        "unless each needs the result before it, submit all tasks first (client.map, or "
        "client.submit in a loop), and then wait for all results: client.gather(futures)",
        where_of_intervals(*ran),
    )


MUCH_BROUGHT = 10e6
"""Least bytes of results that were brought to the program."""
FEWEST_RESULTS = 20
"""Least results that were brought one after the other, whatever their size."""
SMALL = 0.1e6
"""Least bytes of results that are slow to unpickle."""
SLOW_TO_UNPICKLE = 0.2e6
"""Largest bytes per second at which such results come."""
ONE_BY_ONE = 0.5
"""Least share of the waits that were for the result of a single future."""


@rule("large-results", needs_tasks=False)
def large_results(analysis: Analysis) -> Diagnosis | None:
    """Results of a cluster took long to come to the program."""
    recording, bringing = analysis.recording, analysis.client_times.bringing
    lost = float(bringing.sum())
    wall = recording.stop - recording.start
    rows = _results_at_the_end(analysis)
    size = float(np.nansum(analysis.tasks.nbytes[rows]))
    of_one = bringing[samples_below(recording, CLIENT, "result")].sum() >= ONE_BY_ONE * lost
    one_by_one = bool(of_one) and len(rows) >= FEWEST_RESULTS
    is_slow = SMALL <= size < SLOW_TO_UNPICKLE * lost
    if lost < max(WORTH_REPORTING * wall, LONG):
        return None
    if size < MUCH_BROUGHT and not one_by_one and not is_slow:
        return None
    weights = np.zeros(len(analysis.tasks))
    weights[rows] = np.nan_to_num(analysis.tasks.nbytes[rows])
    return Diagnosis(
        severity_of(lost / wall),
        Gain(lost),
        evidence(
            "The program waited {lost:seconds} of {wall:seconds} for results that were computed "
            "already: up to {size:bytes}, of {functions}, came from the workers"
            + ", {results:result} one after the other" * one_by_one
            + ", at {rate:bytes}/s: pickling took the time" * is_slow
            + "{line}",
            rate=size / lost,
            results=len(rows),
            lost=lost,
            wall=wall,
            size=size,
            functions=top_functions(analysis, weights),
            line=at_line(analysis, bringing),
        ),
        "bring all in one call, client.gather(futures), in place of future.result(); or "
        * one_by_one
        + "return arrays or tables in place of lists and dicts of many small objects; or " * is_slow
        + "reduce results in tasks, before they are brought: x.mean().compute(), not "
        "x.compute().mean(); or write large results in tasks (to_zarr, to_parquet)",
        where_of_intervals(*analysis.client_times.between),
    )


def _results_at_the_end(analysis: Analysis) -> IntArray:
    """Tasks of clusters with results that no other task takes."""
    is_last = analysis.tasks.outcome.eq(Outcome.OK)
    is_last &= ~analysis.tasks.client.eq("")
    is_last[analysis.recording.dependencies.depends_on] = False
    return np.flatnonzero(is_last)


MUCH_OWN = 0.3
"""Least share of the time since the first computation in which the program ran its own code between
computations."""
LONG_OWN = 0.5
"""Least seconds of it."""
HARDLY_ANY_CPU = 0.1
"""Largest share of CPU in these seconds, if the program slept."""
ACTORS = "distributed/actor.py"
"""File of the calls of actors, which wait for their results."""


@rule("client-bound", needs=("computations",), needs_tasks=False)
def client_bound(analysis: Analysis) -> Diagnosis | None:
    """The program ran code of its own between computations, while workers ran no task."""
    recording, own = analysis.recording, analysis.client_times.own
    lost = float(own.sum())
    # What passes before, as while a cluster starts, is another finding's.
    wall = recording.stop - float(call_times(analysis.computations).min())
    is_for_actors = bool(own[samples_below(recording, ACTORS)].sum() > lost / 2)
    used = _cpus_used_between(analysis) if is_for_actors else nan
    if used > 0:
        lost *= max(0.0, 1 - used / min(analysis.cpus_for_tasks, analysis.workers))
    if lost < max(MUCH_OWN * wall, LONG_OWN):
        return None
    what, advice = _FOR_ACTORS if is_for_actors else _what_it_did(analysis)
    return Diagnosis(
        severity_of(lost / wall),
        Gain(lost),
        evidence(
            "The program {what} for {lost:seconds} of {wall:seconds} between and after "
            "computations, while workers ran no task"
            + ", and their processes used {used:mean} CPUs" * (used > 0)
            + "{lines}",
            what=what,
            lost=own.sum(),
            used=used,
            wall=wall,
            lines=line_clause(own_lines(recording, own)),
        ),
        advice,
        where_of_intervals(*analysis.client_times.between),
    )


def _cpus_used_between(analysis: Analysis) -> float:
    """CPUs that the processes of workers used between and after computations; NaN if not known."""
    processes, computations = analysis.recording.processes, analysis.computations
    chosen = running_computations(computations, processes.time) == 0
    chosen &= (processes.time > computations.stop.min()) & ~np.isnan(processes.cpu)
    used = [
        float(processes.cpu[rows].mean()) / 100
        for pid in set(analysis.recording.workers.pid.tolist())
        if (rows := chosen & (processes.pid == pid)).any()
    ]
    return sum(used) if used else nan


_FOR_ACTORS = (
    "waited for calls of actors",
    "give each call of an actor many items; or make calls of several actors before waiting for "
    "their results",
)


def _what_it_did(analysis: Analysis) -> tuple[str, str]:
    """What the program did between computations, and what helps."""
    recording, own = analysis.recording, analysis.client_times.own
    lost = float(own.sum())
    if own[samples_below(recording, QUEUES)].sum() > lost / 2:
        return "waited for calls of a queue, one at a time,", (
            "have tasks return what they put there, and collect it with client.gather(futures); or "
            "put lists of many items"
        )
    if float(np.nansum(recording.samples.cpu_seconds[own > 0])) < HARDLY_ANY_CPU * lost:
        return "slept or waited", (
            "wait for results themselves, without sleeping (on a cluster: client.gather, "
            "distributed.wait, as_completed), or do this while tasks run"
        )
    return "ran its own code", (
        "do this work in tasks, or while tasks run: submit the next tasks before the results of "
        "the last ones are used (on a cluster: distributed.as_completed)"
    )
