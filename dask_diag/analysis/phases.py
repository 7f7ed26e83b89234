"""Phases of the wall time; imports and profilers in the time before tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.groups import distinct_pairs
from dask_diag.analysis.intervals import Intervals
from dask_diag.analysis.lines import imports_and_profilers, late_samples
from dask_diag.analysis.task_times import call_times, prepared_times, ran_before
from dask_diag.columns import BoolArray, Categorical, FloatArray
from dask_diag.model.codes import PHASES, Root
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table


def phases(recording: Recording) -> Table:
    """Divide the wall time of a recording among phases.

    The seconds sum to ``recording.stop - recording.start``. Where computations overlap, time is
    `preparing` only while none of them ran tasks.

    Parameters
    ----------
    recording : Recording

    Returns
    -------
    Table
        A row per phase of `dask_diag.model.codes.PHASES`, in that order: columns ``phase`` and
        ``seconds``.
    """
    seconds = [times.seconds for times in times_of_phases(recording).values()]
    return Table({"phase": Categorical.of(PHASES), "seconds": np.array(seconds)})


def times_of_phases(recording: Recording) -> dict[str, Intervals]:
    """The intervals of time of each phase, of all phases in order."""
    intervals = phase_intervals(recording)
    times, phase = Intervals(intervals["start"], intervals["stop"]), intervals["phase"]
    return {name: times.filter(phase.eq(name)) for name in PHASES}


def phase_intervals(recording: Recording) -> Table:
    """The intervals of time of each phase, in order and without gaps.

    Parameters
    ----------
    recording : Recording

    Returns
    -------
    Table
        Columns ``phase``, ``start`` and ``stop``, seconds as in the recording's tables.
    """
    computations = recording.computations
    # A graph that has arrived at a cluster is prepared, whatever its first task waits for; and so
    # is that of a computation that was joined.
    is_prepared = ~computations.cluster.eq("") | ran_before(recording)
    started = np.where(is_prepared, computations.start, first_starts(recording))
    called, first, stop, ended, returned = (
        np.clip(times, recording.start, recording.stop)
        for times in (call_times(computations), started, computations.stop, *_ends(recording))
    )
    ends = [recording.start, recording.stop]
    edges = np.unique(np.concatenate([ends, called, first, stop, returned]))
    starts, stops = edges[:-1], edges[1:]
    in_tasks = Intervals(first, stop).open_at(starts) > 0
    preparing = Intervals(called, first).open_at(starts) > 0
    finishing = Intervals(ended, returned).open_at(starts) > 0
    before = stops <= called.min(initial=np.inf)
    after = starts >= stop.max(initial=-np.inf)
    # Without a computation all is before the first.
    phase = np.select(
        [in_tasks, preparing, finishing, before, after],
        ["tasks", "preparing", "finishing", "before", "after"],
        "between",
    )
    change = np.append(True, phase[1:] != phase[:-1])[: len(phase)]
    last = np.append(change[1:], True)[: len(phase)]
    return Table(
        {
            "phase": Categorical.of(phase[change].tolist()),
            "start": starts[change],
            "stop": stops[last],
        }
    )


def _ends(recording: Recording) -> tuple[FloatArray, FloatArray]:
    """The stop of the last computation in each call of dask, and the return of the call.

    A local computation knows its call. One of a cluster is in all that go on as it stops.
    """
    computations, calls = recording.computations, recording.calls
    is_local = computations.cluster.eq("")
    stops = np.append(-np.inf, np.sort(computations.stop[~is_local]))
    last = stops[np.searchsorted(stops, calls.returned, side="right") - 1]
    last = np.where(last > calls.called, last, -np.inf)
    called, call = np.unique(calls.called, return_inverse=True)
    position = np.searchsorted(called, computations.called[is_local])
    is_of_call = np.append(called, np.nan)[position] == computations.called[is_local]
    of_calls = np.full(len(called), -np.inf)
    np.maximum.at(of_calls, position[is_of_call], computations.stop[is_local][is_of_call])
    last = np.fmax(last, of_calls[call])
    has_computed = np.isfinite(last)
    return last[has_computed], calls.returned[has_computed]


def first_starts(recording: Recording) -> FloatArray:
    """Times of the first task of each computation, or of the stop without a task.

    Where tasks were not recorded, they started when the graph was in order.
    """
    computations, tasks = recording.computations, recording.tasks
    if not len(tasks):
        return np.fmin(prepared_times(computations), computations.stop)
    labels = tasks.computation
    of_label = np.full(len(labels.values) + 1, np.inf)
    np.fmin.at(of_label, labels.codes, tasks.start)
    # The last place is that of computations without tasks.
    place_of = {name: place for place, name in enumerate(labels.values)}
    places = [place_of.get(name, -1) for name in computations.computation.tolist()]
    return np.asarray(np.fmin(computations.stop, of_label[places]))


_SHORT = 0.05
"""Seconds: a graph that took less had ended before a sample could be taken."""


class NotOfGraphs(NamedTuple):
    """Intervals of imports before the tasks of a computation, and of profilers."""

    imports: Intervals
    profilers: Intervals


def not_of_graphs(recording: Recording) -> BoolArray:
    """Select the samples of imports and starting profilers among dask's preparations.

    dask imports modules when it is first called. What could not be sampled is one call that keeps
    the GIL, as where a library is loaded: Python gives it up every few milliseconds.
    """
    imports, profilers, not_seen = _kinds_of_samples(recording)
    return imports | profilers | not_seen


def _kinds_of_samples(recording: Recording) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Whether each sample of dask's preparations is of imports, of profilers, or saw nothing."""
    samples = recording.samples
    in_calls = samples.root.eq(Root.GRAPH)
    imports, own = imports_and_profilers(recording)
    is_seen = (samples.node >= 0) & ~late_samples(recording)
    return in_calls & imports, in_calls & own, in_calls & ~imports & ~own & ~is_seen


def is_known_what_was_imported(recording: Recording) -> bool:
    """Whether a stack was seen while dask prepared graphs: only stacks show imports.

    A graph that arrives at a cluster is made: nothing is imported for it there.
    """
    samples = recording.samples
    is_seen = samples.root.eq(Root.GRAPH) & (samples.node >= 0)
    return bool(is_seen.any() or not recording.computations.cluster.eq("").any())


def times_not_of_graphs(recording: Recording) -> list[NotOfGraphs]:
    """Intervals of imports and profilers while dask prepared graphs, by computation.

    Profilers measure how long they took; that is put just before the first task, where most of it
    was. Where that is not known, samples say it. The samples of a cycle are put at its
    beginning, as dask imports modules before it uses them. No imports where no stack was seen: what
    was one is not known then.
    """
    computations = recording.computations
    called, prepared = call_times(computations), prepared_times(computations)
    # On a busy machine a hook may have lasted while another computation was prepared.
    own = np.minimum(np.nan_to_num(computations.own_seconds), prepared - called)
    is_measured, prepared_without = ~np.isnan(computations.own_seconds), prepared - own
    is_long = prepared_without - called > _SHORT
    bounds = [(called, called, prepared_without, prepared)]
    cycles = _cycles(recording) if is_known_what_was_imported(recording) else ()
    for start, stop, imported, of_profilers, not_seen in cycles:
        first = np.maximum(called, start)
        lasted = np.maximum(np.minimum(prepared_without, stop) - first, 0.0)
        # Of several computations that were prepared in one cycle each has its part.
        shared = max(float(lasted.sum()), imported + of_profilers + not_seen)
        went_on = first + lasted * (imported + not_seen * is_long) / shared
        ended = went_on + np.where(is_measured, 0.0, lasted * of_profilers / shared)
        bounds.append((first, went_on, went_on, ended))
    return [
        NotOfGraphs(Intervals(*times[:2]).lasting(), Intervals(*times[2:]).lasting())
        for times in np.moveaxis(np.array(bounds), 2, 0).swapaxes(1, 2)
    ]


def seconds_not_of_graphs(recording: Recording) -> FloatArray:
    """Seconds of imports and profilers while dask prepared graphs, by computation."""
    times = times_not_of_graphs(recording)
    return np.array([sum(kind.seconds for kind in kinds) for kinds in times], dtype=float)


def not_of_graphs_while_preparing(recording: Recording) -> float:
    """Seconds of imports and profilers in the phase `preparing`."""
    times = [kind for kinds in times_not_of_graphs(recording) for kind in kinds]
    return times_of_phases(recording)["preparing"].intersection(Intervals.join(times)).seconds


def _cycles(recording: Recording) -> Iterator[tuple[float, float, float, float, float]]:
    """Cycles with samples not of graphs: start, stop, and the seconds of each kind of sample."""
    samples, kinds = recording.samples, _kinds_of_samples(recording)
    rows = np.flatnonzero(np.any(kinds, axis=0) & (samples.seconds > 0))
    starts, stops, cycle = distinct_pairs(samples.start[rows], samples.stop[rows])
    seconds = [
        np.bincount(cycle, samples.seconds[rows] * kind[rows], len(starts)).tolist()
        for kind in kinds
    ]
    yield from zip(starts.tolist(), stops.tolist(), *seconds, strict=True)
