"""What tasks waited for when they had no CPU time: exact seconds divided by what was sampled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_diag.analysis.grouping import rows_by_code
from dask_diag.analysis.metering import without_metered
from dask_diag.columns import Array, Categorical
from dask_diag.errors import DiagnosticError
from dask_diag.model.recording import Recording, expect_recording
from dask_diag.model.table import Table

__all__ = ["divided", "waits"]

EXACT = "cpu-wait"
THE_REST = "gil-wait"
"""What explains seconds that no sample stands for, where a task was seen to wait for it at all."""
NOT_KNOWN = "unexplained"


@dataclass(frozen=True)
class _Pool:
    """The tasks of one function in one computation: they are taken to wait alike.

    Attributes
    ----------
    tasks : array of int
        Positions in `Recording.tasks`.
    shares : dict of str to float
        How the seconds that tasks were blocked divide among activities; they sum to 1.
    samples : dict of str to int
    errors : dict of str to float
        The standard error of each share from sampling.
    """

    tasks: Array
    shares: dict[str, float]
    samples: dict[str, int]
    errors: dict[str, float]


def waits(recording: Recording, by: str = "function") -> Table:
    """What the tasks of a profiler with ``waits=True`` waited for when they had no CPU time.

    Parameters
    ----------
    recording : Recording
    by : {"function", "activity"}
        Whether to divide by function, too.

    Returns
    -------
    Table
        ``function`` (not for ``"activity"``), ``activity``, ``seconds``, ``samples`` in which it
        was seen, and ``error``, the standard error of the seconds that comes from sampling; it is 0
        for ``cpu-wait``, which is exact. The largest first. The seconds of a function sum to its
        ``thread-noncpu`` without what was metered.

    Raises
    ------
    DiagnosticError
        If `by` is neither.

    Notes
    -----
    A sample stands for the time since the one before. Seconds that no sample stands for are those
    of ``gil-wait``, where the task was seen to wait for the interpreter's lock, else
    ``unexplained``.
    """
    expect_recording(recording)
    if by not in ("function", "activity"):
        raise DiagnosticError(f"by: expected 'function' or 'activity', found {by!r}")
    sums: dict[tuple[str, str], list[float]] = {}
    if len(recording.waits):
        ok = recording.tasks.outcome.where("ok")
        noncpu = np.nan_to_num(without_metered(recording, ok)[1])
        names: Categorical = recording.tasks.function
        exact, pools = _explained(recording, noncpu, ok)
        blocked = noncpu - exact
        for pool in pools:
            name = names[int(pool.tasks[0])] if by == "function" else ""
            _add(sums, (name, EXACT), float(exact[pool.tasks].sum()), 0, 0.0)
            seconds = float(blocked[pool.tasks].sum())
            for activity, share in pool.shares.items():
                samples, error = pool.samples.get(activity, 0), pool.errors.get(activity, 0.0)
                _add(sums, (name, activity), share * seconds, samples, (error * seconds) ** 2)
    rows = sorted(sums.items(), key=lambda item: -item[1][0])
    columns: dict[str, Any] = {
        "activity": Categorical.of(activity for (_, activity), _ in rows),
        "seconds": np.array([seconds for _, (seconds, _, _) in rows], dtype=float),
        "samples": np.array([samples for _, (_, samples, _) in rows], dtype=np.int64),
        "error": np.sqrt(np.array([variance for _, (_, _, variance) in rows], dtype=float)),
    }
    if by == "function":
        columns = {"function": Categorical.of(name for (name, _), _ in rows), **columns}
    return Table(columns)


def _add(sums: dict[Any, list[float]], where: Any, *numbers: float) -> None:
    before = sums.setdefault(where, [0.0, 0, 0.0])
    for position, number in enumerate(numbers):
        before[position] += number


def divided(
    recording: Recording, noncpu: Array, chosen: Array
) -> Iterator[tuple[str, Array, Array]]:
    """The non-CPU seconds of each chosen task, divided among activities as far as is known.

    With each activity come the seconds of all tasks, and which of the tasks have any of it. Those
    of tasks that nobody looked at stay ``thread-noncpu``.
    """
    not_looked_at = chosen.copy()
    if len(recording.waits):
        exact, pools = _explained(recording, noncpu, chosen)
        parts: dict[str, Array] = {EXACT: exact}
        for pool in pools:
            blocked = noncpu[pool.tasks] - exact[pool.tasks]
            for activity, share in pool.shares.items():
                part = parts.setdefault(activity, np.zeros(len(noncpu)))
                part[pool.tasks] = share * blocked
            not_looked_at[pool.tasks] = False
        for activity, seconds in parts.items():
            yield activity, seconds, seconds != 0
    yield "thread-noncpu", noncpu, not_looked_at


def _explained(recording: Recording, noncpu: Array, chosen: Array) -> tuple[Array, list[_Pool]]:
    """Seconds that each task waited for a processor, and what the others divide into."""
    table = recording.waits.rows(chosen[recording.waits.task])
    activity: Categorical = table["activity"]
    is_exact = activity.where(EXACT)
    exact = np.zeros(len(noncpu))
    np.add.at(exact, table["task"][is_exact], np.nan_to_num(table["seconds"][is_exact]))
    exact = np.clip(exact, 0.0, np.fmax(noncpu, 0.0))
    looked_at = np.unique(table["task"][is_exact])
    pool_of = _pool_codes(recording)
    sampled = table.rows(~is_exact)
    rows_of = rows_by_code(pool_of[sampled["task"]])
    wall = recording.tasks.stop - recording.tasks.start
    pools = []
    for code, positions in rows_by_code(pool_of[looked_at]).items():
        tasks = looked_at[positions]
        blocked = float((noncpu[tasks] - exact[tasks]).sum())
        rows = sampled.rows(rows_of.get(code, slice(0)))
        pools.append(_pool(tasks, blocked, float(np.nansum(wall[tasks])), rows))
    return exact, pools


def _pool_codes(recording: Recording) -> Array:
    """A number for each task, the same for those of one function in one computation."""
    function, computation = recording.tasks.function, recording.tasks.computation
    codes = function.codes.astype(np.int64) * len(computation.values) + computation.codes
    return np.asarray(codes)


def _pool(tasks: Array, blocked: float, wall: float, sampled: Table) -> _Pool:
    seconds: dict[str, float] = {}
    samples: dict[str, int] = {}
    names: Categorical = sampled["activity"]
    for activity in names.values:
        rows = names.where(activity)
        if rows.any():
            seconds[activity] = float(sampled["seconds"][rows].sum())
            samples[activity] = int(sampled["samples"][rows].sum())
    if blocked <= 0:
        return _Pool(tasks, {NOT_KNOWN: 1.0}, samples, {})
    stands_for = sum(seconds.values())
    shares = {name: value / max(stands_for, blocked) for name, value in seconds.items()}
    left = 1.0 - sum(shares.values())
    if left > 1e-12:
        rest = THE_REST if samples.get(THE_REST) else NOT_KNOWN
        shares[rest] = shares.get(rest, 0.0) + left
    return _Pool(tasks, shares, samples, _errors(seconds, samples, blocked, wall, shares))


def _errors(
    seconds: dict[str, float],
    samples: dict[str, int],
    blocked: float,
    wall: float,
    shares: dict[str, float],
) -> dict[str, float]:
    """Standard errors of shares, as if each sample were a chance of its own.

    What explains the rest has the error of all else together.
    """
    variances = {}
    for name, value in seconds.items():
        if name != THE_REST and samples[name]:
            seen = min(value / wall, 1.0) if wall else 1.0
            variances[name] = min(value / blocked, 1.0) ** 2 * (1 - seen) / samples[name]
    total = sum(variances.values())
    errors = {name: variance**0.5 for name, variance in variances.items()}
    errors.update({name: total**0.5 for name in (THE_REST, NOT_KNOWN) if name in shares})
    return errors
