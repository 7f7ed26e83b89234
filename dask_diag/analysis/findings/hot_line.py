"""The line of code in which a task spent most of its time, beside others of its function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dask_diag.analysis.call_tree import hottest_lines
from dask_diag.analysis.source_paths import short_path
from dask_diag.formatting import percent
from dask_diag.model.recording import Recording

__all__ = ["hottest_line_of"]

FEWEST_SAMPLES = 10
"""With less, it is chance where a task was seen."""


def hottest_line_of(recording: Recording, task: Mapping[str, Any]) -> str:
    """What to add to the evidence of a finding about the task; nothing if too little was seen.

    Parameters
    ----------
    recording : Recording
    task : mapping
        A row of its tasks, which has ended.
    """
    samples = recording.samples
    alike = samples["function"].where(task["function"])
    its_own = alike & samples["key"].where(task["key"])
    # Another computation may have a task of the same key.
    its_own &= (samples["stop"] > task["start"]) & (samples["start"] < task["stop"])
    lines, seconds, seen = _lines_of(recording, its_own)
    if seen < FEWEST_SAMPLES or not lines:
        return ""
    place, its_seconds = next(iter(lines.items()))
    name, file, line = place
    where = f" ({short_path(file)}:{line})" if file else ""
    text = f"; it spent {percent(its_seconds / seconds)} of its time in {name}{where}"
    lines, seconds, seen = _lines_of(recording, alike & ~samples["key"].where(task["key"]))
    if seen < FEWEST_SAMPLES:
        return text
    others = percent(lines.get(place, 0.0) / seconds)
    return f"{text}, other tasks of {task['function']} {others}"


def _lines_of(recording: Recording, asked: Any) -> tuple[dict[Any, float], float, float]:
    """The seconds of each line in some samples, the hottest first; those of all; how many."""
    samples = recording.samples.rows(asked)
    table = hottest_lines(replace(recording, samples=samples), len(recording.frames))
    lines = {(row["name"], row["file"], row["line"]): row["wall"] for row in table.to_dicts()}
    return lines, float(samples["seconds"].sum()), float(samples["count"].sum())
