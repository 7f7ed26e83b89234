"""Tasks that sleep at one line and go on from there one at a time, as where a lock file is polled.

A sleep says nothing of what it is for. But where many tasks run at once, each has slept at the same
line (or at two, as where two statements need the same database), and what they do otherwise never
overlaps and hardly ever pauses, something lets one of them pass at a time. Tasks that merely sleep,
as between two downloads, do the rest side by side.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.program_lines import ProgramLine, line_of_samples, program_lines
from dask_diag.columns import BoolArray, FloatArray
from dask_diag.model.recording import Recording
from dask_diag.schema import Activity, Root

__all__ = ["InTurns", "in_turns"]

FEWEST_TASKS = 10
"""Tasks of which it is said: of fewer it may be chance."""
MOST_SLEEP = 0.3
"""Least share of these tasks' seconds at the line where they sleep."""
BUSY = 0.7
"""Least share of the time in which one of them did something else."""
OVERLAP = 0.15
"""Largest share of what they do otherwise that overlaps: samples are a few milliseconds off."""
UNEVEN = 0.4
"""Least spread of the seconds that they sleep, over their mean: who polls waits for others."""
MOST_CPU = 0.1
"""Largest share of CPU in the seconds at the line: who computes there does not sleep."""
BESIDE_THE_FIRST = 2
"""Lines that are tried together with the one at which tasks slept longest."""


class InTurns(NamedTuple):
    """Where tasks slept until it was their turn.

    Attributes
    ----------
    lines : tuple of ProgramLine
        One, or two.
    slept : array of float
        By task of the recording: seconds at these lines.
    """

    lines: tuple[ProgramLine, ...]
    slept: FloatArray


def in_turns(analysis: Analysis) -> InTurns | None:
    """The lines at which tasks slept until it was their turn; None if they did not, or not surely.

    It needs samples of stacks by task: those of tasks that are too short for it are no evidence.
    """
    recording = analysis.recording
    asleep = analysis.seconds_waited.get(Activity.SLEEP, 0.0)
    if not asleep or asleep < MOST_SLEEP * analysis.in_tasks:
        return None
    samples = recording.samples
    of_tasks = samples.root.where(Root.TASKS) & (samples.node >= 0)
    waiting = np.nan_to_num(samples.seconds - samples.cpu_seconds) * of_tasks
    lines = program_lines(recording, waiting)[: BESIDE_THE_FIRST + 1]
    alone = [tuple(lines[:1])] if lines else []
    for chosen in [*alone, *((lines[0], other) for other in lines[1:])]:
        slept = _slept_in_turns(recording, chosen, of_tasks)
        if slept is not None:
            return InTurns(chosen, slept)
    return None


def _slept_in_turns(
    recording: Recording, lines: tuple[ProgramLine, ...], of_tasks: BoolArray
) -> FloatArray | None:
    """The seconds that each task slept at these lines; None if it was not until its turn."""
    samples, tasks = recording.samples, recording.tasks
    is_at_line = np.logical_or.reduce([line_of_samples(recording, line) for line in lines])
    is_at_line &= of_tasks
    cpu = np.nan_to_num(samples.cpu_seconds[is_at_line]).sum()
    if cpu > MOST_CPU * samples.seconds[is_at_line].sum():
        return None
    at_line, sampled = _by_task(recording, is_at_line), _by_task(recording, of_tasks)
    took = np.nan_to_num(tasks.stop - tasks.start)
    # What was not sampled is divided as the rest of the task is.
    slept: FloatArray = took * np.divide(
        at_line, sampled, out=np.zeros(len(tasks)), where=sampled > 0
    )
    is_known = (sampled > 0) & (took > 0)
    if _go_on_one_at_a_time(tasks.start[is_known], tasks.stop[is_known], slept[is_known]):
        return slept
    return None


def _by_task(recording: Recording, chosen: BoolArray) -> FloatArray:
    """The seconds of some samples, by the task whose key they have."""
    samples, tasks = recording.samples, recording.tasks
    row_of_key = {key: row for row, key in enumerate(tasks.key.tolist())}
    row_of_code = [row_of_key.get(key, -1) for key in samples.key.values]
    row = np.array(row_of_code, dtype=np.int64)[samples.key.codes[chosen]]
    seconds = np.zeros(len(tasks))
    np.add.at(seconds, row[row >= 0], samples.seconds[chosen][row >= 0])
    return seconds


def _go_on_one_at_a_time(start: FloatArray, stop: FloatArray, slept: FloatArray) -> bool:
    """Whether tasks that slept so long, and then went on, did so one at a time."""
    took = stop - start
    if len(took) < FEWEST_TASKS or slept.sum() < MOST_SLEEP * took.sum():
        return False
    if np.std(slept) < UNEVEN * np.mean(slept):
        return False
    went_on, remainder = start + slept, took - slept
    order = np.argsort(went_on)
    reached = np.maximum.accumulate(stop[order])
    before = np.concatenate([[-np.inf], reached[:-1]])
    alone = np.clip(stop[order] - np.maximum(went_on[order], before), 0.0, None).sum()
    return bool(
        alone >= BUSY * (stop.max() - start.min()) and alone >= (1 - OVERLAP) * remainder.sum()
    )
