"""The table of waits: seconds of tasks off the CPU by cause, computed from samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import hypot, sqrt
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.groups import (
    MANY,
    distinct_pairs,
    rows_by_code,
    sums_by,
    table_of,
    totals_by,
)
from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray
from dask_diag.errors import DiagnosticError
from dask_diag.model.codes import Activity, Outcome
from dask_diag.model.recording import Recording, Sources, recording_of
from dask_diag.model.table import Table
from dask_diag.model.tables import Metrics, Waits


def without_metered(
    recording: Recording, mask: BoolArray, with_labels: bool = True
) -> tuple[FloatArray, FloatArray, Metrics]:
    """CPU and off-CPU seconds of tasks without metered code, and metered rows of the masked.

    Without labels only the collection of garbage counts as metered: what users call code is left
    out. So are the seconds of coroutines on their event loop.

    None of the masked tasks' is negative, and with what a task metered they sum to what it took.
    What it metered by a clock of its own, or only reported, is limited to that.
    """
    metrics = recording.metrics
    cpu, noncpu = seconds_of_workers(recording)
    chosen = metrics.unit.eq("seconds") & mask[metrics.task]
    chosen &= ~metrics.activity.eq(Activity.EVENT_LOOP)
    metered = metrics.filter(chosen if with_labels else chosen & metrics.activity.eq(Activity.GC))
    measured = ~np.isnan(metered.cpu)
    task, seconds, of_cpu = metered.task, np.array(metered.value), metered.cpu
    _limit(seconds, task, measured, cpu + noncpu)
    np.subtract.at(cpu, task[measured], of_cpu[measured])
    np.subtract.at(noncpu, task[measured], (seconds - of_cpu)[measured])
    _settle(recording, mask & ~np.isnan(cpu), cpu, noncpu)
    reported = _limit(seconds, task, ~measured, cpu + noncpu)
    # Whether reported seconds were CPU is not known: they are off-CPU while there is off-CPU time.
    from_noncpu = np.clip(reported, 0, np.maximum(noncpu, 0))
    # Of a task that reported all its seconds they may be more by rounding.
    from_cpu = np.fmin(reported - from_noncpu, np.maximum(cpu, 0))
    return cpu - from_cpu, noncpu - from_noncpu, metered.replacing({"value": seconds})


def _limit(seconds: FloatArray, task: IntArray, chosen: BoolArray, took: FloatArray) -> FloatArray:
    """Reduce metered seconds to the duration of the task; return the sum of each task."""
    sums, took = np.bincount(task[chosen], seconds[chosen], minlength=len(took)), np.fmax(took, 0)
    share = np.divide(took, sums, out=np.ones(len(took)), where=sums > took)
    seconds[chosen] *= share[task[chosen]]
    return np.asarray(sums * share)


def _settle(recording: Recording, known: BoolArray, cpu: FloatArray, noncpu: FloatArray) -> None:
    """Make neither CPU nor other seconds negative, if known; keep the sum of each task.

    A thread's CPU is read from another clock than the time. One may run faster, or in steps of
    milliseconds, and a task then has more CPU than time. Other tasks of its function in the same
    computation have that much less CPU, if they have time without it: their sum is true.
    """
    if not (known & ((cpu < 0) | (noncpu < 0))).any():
        return
    pool = _pool_codes(recording)[known]
    # Of a task that metered all its seconds what is left may be less than none by rounding.
    took = np.maximum((cpu + noncpu)[known], 0.0)
    of_known = _not_negative(cpu[known], pool)
    of_known = _not_negative(took - of_known, pool)
    noncpu[known], cpu[known] = of_known, took - of_known


def _not_negative(amounts: FloatArray, pool: IntArray) -> FloatArray:
    """Replace negative amounts by 0; other amounts of the pool make up for the difference."""
    positive = np.maximum(amounts, 0.0)
    has, lacks = np.bincount(pool, positive), np.bincount(pool, positive - amounts)
    left = np.divide(has - lacks, has, out=np.zeros(len(has)), where=has > lacks)
    return np.asarray(positive * left[pool])


def cpu_and_noncpu(
    recording: Recording, until_seceded: bool = False
) -> tuple[FloatArray, FloatArray]:
    """CPU and off-CPU seconds of tasks, neither negative; NaN if unknown.

    They are those of the table but for what clocks differ (see `_settle`), and without the waiting
    of tasks that have seceded; `until_seceded` leaves out their CPU seconds, too.
    """
    tasks = recording.tasks
    cpu, noncpu = np.array(tasks.thread_cpu), np.array(tasks.thread_noncpu)
    seceded = ~np.isnan(tasks.seceded)
    if seceded.any():
        cpu_after = np.nan_to_num(tasks.seceded_cpu[seceded])
        if until_seceded:
            cpu[seceded] -= cpu_after
        noncpu[seceded] -= tasks.stop[seceded] - tasks.seceded[seceded] - cpu_after
    _settle(recording, ~np.isnan(cpu) & ~np.isnan(noncpu), cpu, noncpu)
    return cpu, noncpu


def seconds_of_workers(recording: Recording) -> tuple[FloatArray, FloatArray]:
    """CPU and off-CPU seconds of tasks until secession, neither negative."""
    return cpu_and_noncpu(recording, until_seceded=True)


def metered_amounts(recording: Recording) -> dict[tuple[str, str], float]:
    """Metered amounts of all tasks together, by activity and unit."""
    metrics = recording.metrics
    names = zip(metrics.activity.tolist(), metrics.unit.tolist(), strict=True)
    return totals_by(Categorical.of(names), metrics.value)


def metered_cpu(recording: Recording) -> dict[str, float]:
    """CPU seconds of each label's metered code, if measured of all tasks."""
    metrics = recording.metrics
    rows = metrics.filter(metrics.unit.eq("seconds"))
    sums = sums_by(rows.activity, rows.cpu).tolist()
    return {
        name: cpu for name, cpu in zip(rows.activity.values, sums, strict=True) if not np.isnan(cpu)
    }


READ = Activity.CPU_WAIT
"""What is read of some tasks, to which the others of their function are assumed to be alike."""
REMAINDER = Activity.GIL_WAIT
"""What explains seconds that no sample represents, if the tasks were seen to wait for it at all.

The sampler needs the GIL itself, so it is late where tasks wait for it."""
NOT_KNOWN = Activity.UNEXPLAINED
_ROUNDING = 1e-12


class _WaitPool(NamedTuple):
    """The tasks of a function in a computation, assumed to wait alike.

    A task has few samples or none, so those of all tasks of a pool divide the seconds of each.

    Attributes
    ----------
    tasks : array of int
        Positions in `Recording.tasks`.
    shares : dict of str to float
        How the seconds that tasks were blocked divide among activities; they sum to 1.
    waits : list of (str, float, int, float)
        Activity, seconds, samples, and the standard error of the seconds: from sampling or, of
        waits for a CPU, from reading some.
    """

    tasks: IntArray
    shares: Mapping[str, float]
    waits: list[tuple[str, float, int, float]]


def waits(source: Sources, by: str = "function") -> Table:
    """Off-CPU time of tasks by reason, recorded with ``waits=True``.

    Parameters
    ----------
    source : Recording, profiler, or list of these
        Measurements. Several are combined.
    by : {"function", "activity"}, default "function"
        Sum by function and activity, or by activity only.

    Returns
    -------
    Table
        The largest number of seconds first:

        * ``function`` (not for ``"activity"``); ``activity``, such as ``gil-wait``.
        * ``seconds``. Those of a function sum to its ``thread-noncpu``, metered code included: a
          label names the purpose of code, not its waits.
        * ``samples`` with that wait. For ``cpu-wait``, the number of tasks whose wait was read from
          the kernel (nearly all tasks longer than 10 ms).
        * ``error``: standard error of the seconds due to sampling. For ``cpu-wait`` it covers the
          remaining tasks.

    Raises
    ------
    DiagnosticError
        If `by` is unknown.

    Notes
    -----
    A sample represents the time since the previous one. Seconds that no sample represents count as
    ``gil-wait`` if a sample shows that the task waited for the GIL, otherwise as ``unexplained``.

    Examples
    --------
    >>> import time
    >>> import dask
    >>> from dask_diag import Profiler, waits
    >>> with Profiler(waits=True) as prof:
    ...     dask.compute(dask.delayed(time.sleep)(0.1))
    (None,)
    >>> waits(prof).columns
    ('function', 'activity', 'seconds', 'samples', 'error')
    """
    recording = recording_of(source)
    if by not in ("function", "activity"):
        raise DiagnosticError(f"by: expected 'function' or 'activity', found {by!r}")
    totals = _totals(recording, by == "function")
    rows = sorted(totals.items(), key=lambda item: -item[1][0])
    waited = ((*group, seconds, samples, error**0.5) for group, (seconds, samples, error) in rows)
    labels: dict[str, type] = {"function": str} if by == "function" else {}
    types = {**labels, "activity": str, "seconds": float, "samples": np.int64, "error": float}
    return table_of(waited, **types).in_units(seconds="s", error="s")


def _totals(
    recording: Recording, by_function: bool
) -> dict[tuple[str, ...], tuple[float, int, float]]:
    """Seconds, samples and variance of each wait, by activity, or by function and activity."""
    totals: dict[tuple[str, ...], tuple[float, int, float]] = {}
    ok = recording.tasks.outcome.eq(Outcome.OK)
    noncpu = np.nan_to_num(seconds_of_workers(recording)[1])
    for pool in _explained(recording, noncpu, ok)[1]:
        function = (recording.tasks.function[int(pool.tasks[0])],) if by_function else ()
        for activity, seconds, samples, error in pool.waits:
            before = totals.get((*function, activity), (0.0, 0, 0.0))
            sums = before[0] + seconds, before[1] + samples, before[2] + error**2
            totals[(*function, activity)] = sums
    return totals


def divided(
    recording: Recording,
    noncpu: FloatArray,
    mask: BoolArray,
    unmetered: FloatArray | None = None,
    with_labels: bool = True,
) -> Iterator[tuple[str, FloatArray, BoolArray]]:
    """The off-CPU seconds of the tasks in the mask, divided among activities.

    With each activity come the seconds of all tasks, and which of the tasks have any of it. Those
    of tasks that were not sampled stay ``thread-noncpu``. If `unmetered` is given, only these of
    the off-CPU seconds are divided: those outside of metered code. Without labels, the code that a
    wait was sampled in does not matter.
    """
    undivided = mask.copy()
    dividend = noncpu if unmetered is None else unmetered
    for_cpu, pools = _explained(recording, noncpu, mask, unmetered, with_labels)
    parts: dict[str, FloatArray] = {READ: for_cpu} if pools else {}
    for pool in pools:
        blocked = dividend[pool.tasks] - for_cpu[pool.tasks]
        for activity, share in pool.shares.items():
            part = parts.setdefault(activity, np.zeros(len(dividend)))
            part[pool.tasks] = share * blocked
        undivided[pool.tasks] = False
    for activity, seconds in parts.items():
        yield activity, seconds, seconds != 0
    yield Activity.NONCPU, dividend, undivided


def _explained(
    recording: Recording,
    noncpu: FloatArray,
    mask: BoolArray,
    unmetered: FloatArray | None = None,
    with_labels: bool = True,
) -> tuple[FloatArray, list[_WaitPool]]:
    """Seconds of each task's waits for a CPU, and pools with shares of the other seconds."""
    if not len(recording.waits):
        return np.zeros(len(noncpu)), []
    dividend = noncpu if unmetered is None else unmetered
    table = recording.waits.filter(mask[recording.waits.task])
    if not with_labels:
        table = table.replacing({"label": Categorical(np.zeros(len(table), np.int64), [""])})
    is_read = table.activity.eq(READ)
    for_cpu, is_reading = _read_of(table.filter(is_read), noncpu)
    share_of_all = _share_for_cpu(noncpu[is_reading], for_cpu[is_reading])
    probed = np.flatnonzero(mask & _probed(recording) & np.isfinite(noncpu))
    sampled = table.filter(~is_read)
    pool_of = _pool_codes(recording)
    rows_of = rows_by_code(pool_of[sampled.task])
    wall = recording.tasks.stop - recording.tasks.start
    pools = []
    for code, positions in rows_by_code(pool_of[probed]).items():
        tasks = probed[positions]
        readings = tasks[is_reading[tasks]]
        # A pool without any reading is taken to be like all the others together.
        share, error = share_of_all
        if len(readings):
            share, error = _share_for_cpu(noncpu[readings], for_cpu[readings])
        # Of most short tasks it is not read how long they waited for a CPU: they are taken to be
        # like those of their pool that were read.
        unread = tasks[np.isnan(for_cpu[tasks])]
        for_cpu[unread] = share * noncpu[unread]
        rows = sampled.filter(rows_of.get(code, slice(0)))
        if unmetered is not None:
            for_cpu[tasks] = _for_cpu_unmetered(
                for_cpu[tasks], noncpu[tasks], unmetered[tasks], rows
            )
            rows = rows.filter(rows.label.eq(""))
        seconds = float(for_cpu[tasks].sum())
        blocked = float(dividend[tasks].sum()) - seconds
        counts = totals_by(rows.activity, rows.samples)
        shares, errors = _shares(blocked, float(np.nansum(wall[tasks])), rows, counts)
        error *= float(noncpu[unread].sum())
        waits = [(READ, seconds, len(readings), error)]
        for name, share in shares.items():
            number = int(counts.get(name, 0))
            waits.append((name, share * blocked, number, errors.get(name, 0.0) * blocked))
        pools.append(_WaitPool(tasks, shares, waits))
    return np.nan_to_num(for_cpu), pools


def _for_cpu_unmetered(
    for_cpu: FloatArray, noncpu: FloatArray, unmetered: FloatArray, sampled: Waits
) -> FloatArray:
    """Seconds of waits for a CPU outside of metered code, of the tasks of a pool.

    Seconds are read for whole tasks. So they are divided between metered code and the rest as the
    seconds are in which no sample saw a task blocked.
    """
    metered = noncpu - unmetered
    is_outside = sampled.label.eq("")
    unseen_outside = max(float(unmetered.sum() - sampled.seconds[is_outside].sum()), 0.0)
    unseen_inside = max(float(metered.sum() - sampled.seconds[~is_outside].sum()), 0.0)
    unseen = unseen_outside + unseen_inside
    share = unseen_outside / unseen if unseen else 0.5
    # No part is longer than the time off the CPU that it had.
    least = np.maximum(for_cpu - np.maximum(metered, 0.0), 0.0)
    most = np.minimum(for_cpu, np.maximum(unmetered, 0.0))
    return np.clip(share * for_cpu, least, most)


def _read_of(table: Waits, noncpu: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Seconds of each task's waits for a CPU, NaN if not read; and whether read as a whole."""
    for_cpu = np.full(len(noncpu), np.nan)
    for_cpu[table.task] = 0.0
    np.add.at(for_cpu, table.task, table.seconds)
    # It is read a little before and after the task is timed, so it may be longer than the time that
    # there was.
    for_cpu = np.clip(for_cpu, 0.0, np.fmax(noncpu, 0.0))
    is_reading = np.zeros(len(noncpu), dtype=bool)
    is_reading[table.task[table.samples > 0]] = True
    return for_cpu, is_reading & np.isfinite(for_cpu)


def _share_for_cpu(noncpu: FloatArray, for_cpu: FloatArray) -> tuple[float, float]:
    """The share of waits for a CPU in the time off the CPU, and the standard error."""
    off, count = float(noncpu.sum()), len(noncpu)
    if off <= 0:
        return 0.0, 0.0
    share = float(for_cpu.sum()) / off
    if count == 1:
        return share, share
    # The error of a ratio of sums: what is left of each task when the common ratio is taken off.
    residuals = for_cpu - share * noncpu
    return share, float(np.sqrt((residuals**2).sum() * count / (count - 1)) / off)


def _probed(recording: Recording) -> BoolArray:
    """Select the tasks with known waits: all of a computation, or no task.

    Tasks that were not sampled have no row; the first one of a computation always has.
    """
    waits, computation = recording.waits, recording.tasks.computation
    codes = np.unique(computation.codes[waits.task[waits.activity.eq(READ)]])
    return np.isin(computation.codes, codes)


def _pool_codes(recording: Recording) -> IntArray:
    """A number for each task, equal within a function of a computation.

    Of many computations those of one line are taken together: each has few tasks.
    """
    tasks, computations = recording.tasks, recording.computations
    codes = tasks.computation.codes
    if len(computations) > MANY:
        lines = zip(computations.computation.tolist(), computations.call_site.codes, strict=True)
        line_of = {name: int(line) for name, line in lines}
        of_values = [line_of.get(name, -1) for name in tasks.computation.values]
        codes = np.array(of_values, np.int64)[codes]
    return distinct_pairs(tasks.function.codes, codes)[2]


def _shares(
    blocked: float, wall: float, sampled: Waits, samples: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, float]]:
    """Shares of activities in a pool's blocked seconds, and standard errors of the shares.

    Errors are those of independent samples. What explains the remainder has the error of all else
    together.
    """
    if blocked <= 0:
        return {NOT_KNOWN: 1.0}, {}
    seconds = totals_by(sampled.activity, sampled.seconds)
    # Samples may represent more than was measured: then their proportions count.
    total = max(sum(seconds.values()), blocked)
    shares = {name: value / total for name, value in seconds.items()}
    remainder = 1.0 - sum(shares.values())
    if remainder > _ROUNDING:
        name = REMAINDER if samples.get(REMAINDER) else NOT_KNOWN
        shares[name] = shares.get(name, 0.0) + remainder
    errors = {}
    for name, value in seconds.items():
        if name != REMAINDER and samples[name]:
            # The share of samples with this answer is binomial; the fewer, the larger its error.
            frequency = min(value / wall, 1.0) if wall else 1.0
            errors[name] = min(value / blocked, 1.0) * sqrt((1 - frequency) / samples[name])
    of_remainder = hypot(*errors.values())
    return shares, {**errors, REMAINDER: of_remainder, NOT_KNOWN: of_remainder}
