"""First runs of functions that took long because they compiled, imported or loaded something."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.call_tree import lines_of_frames
from dask_diag.analysis.groups import rows_by
from dask_diag.analysis.lines import samples_in_files, samples_of_tasks
from dask_diag.columns import BoolArray, FloatArray, IntArray
from dask_diag.model.codes import Activity
from dask_diag.model.recording import Recording

SLOWER = 3.0
"""Least factor by which first runs take longer than the median of later ones."""
FEWEST_LATER = 3
"""Least number of later runs."""
LONG = 0.05
"""Least seconds of a first run."""
ELSEWHERE = 0.5
"""Least share of first runs at lines where later runs hardly are: with more data all lines take
longer."""
HARDLY = 0.05
"""Largest share of later runs at such a line."""
FEWEST_SAMPLES = 10
"""Samples of later runs; with fewer only compilers, imports, and what others wait for are known to
be elsewhere."""
COMPILERS = re.compile(
    r"^<frozen importlib|/importlib/_bootstrap|(?:^|/)"
    r"(?:numba|llvmlite|jax|jaxlib|triton|torch/_dynamo|torch/_inductor|pythran|cython|pyximport)/",
    re.IGNORECASE,
)


class FirstCall(NamedTuple):
    """The first runs of a function in a process: until the first of them ended, others waited.

    Attributes
    ----------
    function : str
    rows : array of int
        Tasks that started before any of them ended.
    start, stop : float
        Seconds: the start of the first one, and the first end.
    took, later : float
        Seconds from this start to this end without waits for a CPU, which tasks that start at the
        same time have for another reason, and the median of later runs.
    elsewhere : array of bool
        Mask of the samples of these tasks at lines where later runs hardly are; of all of them, if
        it is only known that others waited for the first one.
    is_locked : bool
        Whether that is why it is known: another first run waited for a lock, for which later runs
        hardly wait.
    """

    function: str
    rows: IntArray
    start: float
    stop: float
    took: float
    later: float
    elsewhere: BoolArray
    is_locked: bool

    @property
    def lost(self) -> float:
        """Seconds by which they took longer than later runs."""
        return self.took - self.later


def first_calls(recording: Recording) -> list[FirstCall]:
    """First runs that took several times as long as later ones, and elsewhere."""
    tasks = recording.tasks
    pids, has_stopped = tasks.pid, ~np.isnan(tasks.stop)
    found: list[FirstCall] = []
    # Only functions with stacks of long tasks can be told.
    sampled = set(recording.samples.function[~recording.samples.key.eq("")].tolist())
    for function, rows in rows_by(tasks.function).items():
        if function not in sampled or len(rows) <= FEWEST_LATER:
            continue
        for pid in np.unique(pids.codes[rows]).tolist():
            is_chosen = has_stopped[rows] & (pids.codes[rows] == pid)
            found += _first_call(recording, function, rows[is_chosen])
    return found


def _first_call(recording: Recording, function: str, rows: IntArray) -> Iterator[FirstCall]:
    """The first runs among the runs of a function in a process, if they differ from later ones."""
    if not len(rows):
        return
    starts, stops = recording.tasks.start[rows], recording.tasks.stop[rows]
    start, stop = float(starts.min()), float(stops.min())
    is_first = starts < stop
    later = stops[~is_first] - starts[~is_first]
    took = stop - start - _waits(recording, Activity.CPU_WAIT)[rows[stops.argmin()]]
    if len(later) < FEWEST_LATER or took < max(SLOWER * np.median(later), LONG):
        return
    at_first, elsewhere, is_known = _samples_of(recording, function, rows[is_first], (start, stop))
    seconds = recording.samples.seconds
    is_elsewhere = seconds[elsewhere].sum() >= ELSEWHERE * seconds[at_first].sum() > 0
    is_locked = not (is_elsewhere or is_known) and _wait_for_one(recording, rows, is_first)
    if is_elsewhere or is_locked:
        seen = at_first if is_locked else elsewhere
        median = float(np.median(later))
        yield FirstCall(function, rows[is_first], start, stop, took, median, seen, is_locked)


def _wait_for_one(recording: Recording, rows: IntArray, is_first: BoolArray) -> bool:
    """Whether a first run mostly waited for a lock, another did not, and later runs hardly did.

    Either may end first: who has the lock gives it up before its run ends.
    """
    locked = _waits(recording, Activity.LOCK_WAIT)[rows]
    took = recording.tasks.stop[rows] - recording.tasks.start[rows]
    hardly = locked[~is_first].sum() < HARDLY * took[~is_first].sum()
    waits = (locked >= ELSEWHERE * took)[is_first]
    return bool(hardly and waits.any() and not waits.all())


def _waits(recording: Recording, activity: str) -> FloatArray:
    """Seconds of a wait, task by task."""
    rows = recording.waits.filter(recording.waits.activity.eq(activity))
    return np.asarray(np.bincount(rows.task, rows.seconds, len(recording.tasks)), float)


def _samples_of(
    recording: Recording, function: str, rows: IntArray, during: tuple[float, float]
) -> tuple[BoolArray, BoolArray, bool]:
    """Select the samples of first runs, and those where later runs hardly are.

    The last value says whether enough is known of later runs.
    """
    samples = recording.samples
    is_of_function = samples_of_tasks(recording) & samples.function.eq(function)
    start, stop = during
    at_first = is_of_function & (samples.start < stop) & (samples.stop > start)
    at_first &= samples.key.is_in(recording.tasks.key[rows].tolist())
    at_later = is_of_function & ~at_first & (samples.start >= stop)
    elsewhere = at_first & samples_in_files(recording, COMPILERS.search)
    is_known = bool(samples.count[at_later].sum() >= FEWEST_SAMPLES)
    if is_known:
        lines = lines_of_frames(recording)
        # Any line for samples without a stack, which are not chosen.
        line = np.append(lines.codes[recording.call_tree.frame], 0)[samples.node]
        later = np.bincount(line[at_later], samples.seconds[at_later], len(lines.values))
        elsewhere |= at_first & (later < HARDLY * later.sum())[line]
    return at_first, elsewhere, is_known
