"""The line of code in which a task spent most of its time, beside others of its function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dask_diag.analysis.call_tree import hottest_lines
from dask_diag.analysis.source_paths import short_path
from dask_diag.columns import BoolArray
from dask_diag.formatting import percent
from dask_diag.model.recording import Recording

__all__ = ["hottest_line_of"]

FEWEST_SAMPLES = 10
"""With fewer, it is chance which line was sampled."""

Line = tuple[str, str, int]
"""The name of a function, its file, and the line."""


def hottest_line_of(recording: Recording, row: int) -> str:
    """What to add to the evidence of a finding on a task; nothing if it has too few samples.

    Parameters
    ----------
    recording : Recording
    row : int
        Of `Recording.tasks`; the task has stopped.
    """
    tasks, samples = recording.tasks, recording.samples
    function = tasks.function[row]
    of_function = samples.function.where(function)
    of_key = of_function & samples.key.where(tasks.key[row])
    # Another computation may have a task of the same key.
    of_task = of_key & (samples.stop > tasks.start[row]) & (samples.start < tasks.stop[row])
    lines, seconds, count = _lines_of(recording, of_task)
    if count < FEWEST_SAMPLES or not lines:
        return ""
    hottest, hottest_seconds = next(iter(lines.items()))
    name, file, line = hottest
    location = f" ({short_path(file)}:{line})" if file else ""
    text = f"; it spent {percent(hottest_seconds / seconds)} of its time in {name}{location}"
    lines, seconds, count = _lines_of(recording, of_function & ~of_key)
    if count < FEWEST_SAMPLES:
        return text
    others = percent(lines.get(hottest, 0.0) / seconds)
    return f"{text}, other tasks of {function} {others}"


def _lines_of(recording: Recording, mask: BoolArray) -> tuple[Mapping[Line, float], float, float]:
    """The seconds of each line in some samples, the hottest first; their sum; how many samples."""
    samples = recording.samples.rows(mask)
    table = hottest_lines(replace(recording, samples=samples), len(recording.frames))
    lines = {(row["name"], row["file"], row["line"]): row["wall"] for row in table.to_dicts()}
    return lines, float(samples.seconds.sum()), float(samples.count.sum())
