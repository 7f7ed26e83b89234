"""The finding on graphs that take long to be made, optimized and put in order."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.findings.finding import AT_MOST, Finding, severity_of_share
from dask_diag.analysis.findings.lines import lines_sampled, named, seconds_sampled
from dask_diag.analysis.findings.where import during
from dask_diag.analysis.intervals import intervals, join, outside, union
from dask_diag.analysis.preparing import not_of_graphs
from dask_diag.analysis.program_lines import (
    ProgramLine,
    graphs_made_before,
    late_samples,
)
from dask_diag.analysis.source_paths import short_path
from dask_diag.analysis.task_times import call_times, prepared_times
from dask_diag.formatting import count, counted, seconds
from dask_diag.model.recording import Recording
from dask_diag.schema import Activity, Root

__all__ = ["graph_preparation"]

SLOW_PREPARATION = 0.25
"""Least share of the time of computations in which graphs were prepared."""
LONG_PREPARATION = 0.1
"""Least seconds in which graphs were prepared."""
LONGER_THAN_IMPORTS = 0.5
"""The same where stacks were not sampled: dask imports modules when it is first called."""
PREPARED_PER_TASK = 0.001
"""Seconds for each task that the first graph may take where stacks were not sampled."""
ONE_CAUSE = 0.4
"""Share of these seconds in some files of dask from which on the advice is about what they do: of
calls on large lists they had 54%, of thousands of calls 12%."""


def graph_preparation(analysis: Analysis) -> Finding | None:
    """Graphs that take long to be made, optimized and put in order."""
    recording, computations = analysis.recording, analysis.recording.computations
    if not len(computations):
        return None
    called, prepared = call_times(computations), prepared_times(computations)
    in_calls = recording.samples.root.where(Root.GRAPH)
    before = graphs_made_before(recording)
    took = _seconds_preparing(recording, is_sampled=bool(in_calls.any()))
    in_calls &= ~late_samples(recording)
    lines = lines_sampled(recording, in_calls)
    built = seconds_sampled(recording, before)
    if not lines:
        took -= _may_be_imports(recording)
    # Samples are not exact, and calls that computed on a cluster have no time of preparing there.
    took = max(took, 0.0)
    if took + built < (LONG_PREPARATION if lines or built else LONGER_THAN_IMPORTS):
        return None
    lost = built + float(np.fmin(took, analysis.seconds_saved(remove={Activity.GRAPH})))
    wall = built + analysis.called
    if lost < SLOW_PREPARATION * wall:
        return None
    # In calls that compute on a cluster, most of the time is that of waiting for it.
    lines = lines_sampled(recording, before if analysis.on_cluster else in_calls | before)
    # On a cluster the calls that made the others are not known.
    number = 1 if analysis.schedulers == {"distributed"} else len(computations)
    which = "first " * (number < len(computations))
    several = f" of {count(number)} computations" if number > 1 else ""
    together = (
        "compute results together, dask.compute(a, b), so that what they have in common is "
        "prepared once; "
        if number > 1
        else ""
    )
    return Finding(
        "graph-preparation",
        severity_of_share(lost / wall),
        lost,
        f"Making, optimizing and ordering the {which}graph{'s' * (number > 1)}{several} took "
        f"{seconds(took + built)} of {seconds(wall)} "
        f"({counted(len(recording.tasks), 'task')} ran)"
        f"{named([line for line in lines if not line.importing])}",
        f"{together}{_less_to_prepare(lines)}",
        kind=AT_MOST,
        where=during(
            np.append(called, recording.samples.start[before]),
            np.append(prepared, np.fmin(recording.samples.stop[before], called.min())),
        ),
    )


def _seconds_preparing(recording: Recording, is_sampled: bool) -> float:
    """Seconds in which any graph was prepared, without imports and profilers.

    A call may compute something else first, as ``set_index`` of dask.dataframe has its quantiles:
    all of that computation lies in the preparation of the other, and is no part of it.
    """
    computations = recording.computations
    called, prepared = call_times(computations), prepared_times(computations)
    preparing = []
    for start, end in zip(called.tolist(), prepared.tolist(), strict=True):
        is_inside = (called >= start) & (computations.stop <= end)
        within = union(intervals(called[is_inside], computations.stop[is_inside]))
        preparing.append(outside(start, end, within))
    of_all = join(preparing).seconds
    # Threads are sampled one by one: of graphs that are prepared at once, each has its samples.
    others = (
        seconds_sampled(recording, not_of_graphs(recording))
        if is_sampled
        else float(np.nansum(computations.own_seconds))
    )
    share = 1 - others / of_all if of_all else 0.0
    return union(join(preparing)).seconds * share


def _less_to_prepare(lines: list[ProgramLine]) -> str:
    """What to do about graphs that take long to be made, by what dask did in that time."""
    total = sum(line.seconds for line in lines)

    def mostly(*starts: str) -> bool:
        files = [(short_path(line.file), line.seconds) for line in lines]
        return sum(took for file, took in files if file.startswith(starts)) > ONE_CAUSE * total

    if mostly("dask/hashing.py", "dask/tokenize.py"):
        return (
            "dask names tasks by hashing the data that they are given: make it a delayed object "
            "once, data = dask.delayed(data), or give it a name (from_array(..., name='...'))"
        )
    if mostly("dask/delayed.py"):
        return (
            "dask looks for delayed objects in all lists and dicts that it is given: make large "
            "ones in a task, or pass dask.delayed(data, traverse=False); else make fewer calls, "
            "each on several items"
        )
    if mostly("pandas/", "dask/dataframe/io/"):
        return (
            "dask looks at the data of a table to divide it, however few chunks there are: read it "
            "in tasks (dask.dataframe.read_parquet), or leave it in its order, "
            "from_pandas(..., sort=False)"
        )
    return (
        "make fewer and larger chunks; select data before other steps; keep what is used again "
        "with persist()"
    )


def _may_be_imports(recording: Recording) -> float:
    """Seconds of preparing the first graph that its size does not explain.

    dask imports modules when it is first called; only stacks distinguish these from graphs.
    """
    computations = recording.computations
    called = call_times(computations)
    first = int(called.argmin())
    tasks = int(recording.tasks.computation.where(computations.computation[first]).sum())
    took = float(prepared_times(computations)[first] - called[first])
    return max(0.0, took - PREPARED_PER_TASK * tasks)
