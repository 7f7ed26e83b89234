"""Lines of the program that a finding on sampled time names."""

from __future__ import annotations

from collections.abc import Iterator

from dask_diag.analysis.findings.function_names import WORTH_NAMING
from dask_diag.analysis.program_lines import ProgramLine, program_lines
from dask_diag.columns import BoolArray
from dask_diag.formatting import percent
from dask_diag.model.recording import Recording

__all__ = ["lines_sampled", "named", "seconds_sampled"]

MOST_LINES = 3
"""Lines that are named at most."""


def seconds_sampled(recording: Recording, chosen: BoolArray) -> float:
    """What some samples represent."""
    return float(recording.samples.seconds[chosen].sum())


def lines_sampled(recording: Recording, chosen: BoolArray) -> list[ProgramLine]:
    """Lines of the program that have most of the time of some samples."""
    return program_lines(recording, recording.samples.seconds * chosen)


def named(lines: list[ProgramLine]) -> str:
    """The lines with most time, as the end of a sentence."""
    most = ", ".join(_most(lines))
    return f". Mostly: {most}" if most else ""


def _most(lines: list[ProgramLine]) -> Iterator[str]:
    total = sum(line.seconds for line in lines)
    for line in lines[:MOST_LINES]:
        if line.seconds >= WORTH_NAMING * total:
            yield f"{line} {percent(line.seconds / total)}"
