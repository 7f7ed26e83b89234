"""What a reader takes away from a report: what is in the page, and commands for everything else."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import PurePath
from typing import NamedTuple

from dask_diag.model.recording import Recording
from dask_diag.views.escaping import shown

__all__ = ["Exports", "exports_of"]

_UNSAVED = "recording.diag"
_OF_TASKS = {
    "perfetto": "tasks and dependencies, for ui.perfetto.dev",
    "csv": "tasks, all columns as measured",
    "parquet": "the same, for pandas and other readers",
}
_OF_SAMPLES = {
    "speedscope": "sampled stacks, for speedscope.app",
    "collapsed": "sampled stacks, one in a line",
}
_OF_EVERYTHING = {"json": "all tables and findings"}


class Exports(NamedTuple):
    """What the menu of a report offers.

    Attributes
    ----------
    name : str
        What files that are saved from the page begin with.
    tasks : int
        How many the recording has; the page may have less.
    commands : list of (str, str, str)
        A format, what it is for, and the command line that writes it.
    is_saved : bool
        Whether the name of the recording's file is known.
    """

    name: str
    tasks: int
    commands: list[tuple[str, str, str]]
    is_saved: bool


def exports_of(recording: Recording, file: str | os.PathLike[str] = "") -> Exports:
    """The menu of a recording's report; `file` is the recording's, empty if it is not known."""
    name = PurePath(file).name or _UNSAVED
    # Not an option, and one word of a command line.
    argument = shlex.quote(f"./{name}" if name.startswith("-") else name)
    commands = [
        (format_, purpose, f"dask-diag export {argument} --format {format_}")
        for format_, purpose in _formats(recording)
        # What cannot be printed cannot be copied as a command either.
        if argument.isprintable()
    ]
    stem = shown(PurePath(name).stem, 80) if file else "dask-report"
    return Exports(stem, len(recording.tasks), commands, bool(file))


def _formats(recording: Recording) -> Iterator[tuple[str, str]]:
    if len(recording.tasks):
        yield from _OF_TASKS.items()
    if len(recording.samples):
        yield from _OF_SAMPLES.items()
    yield from _OF_EVERYTHING.items()
