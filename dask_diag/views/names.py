"""Names of activities and computations, and recorded lines of code; no file is read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from dask_diag.model.codes import Activity
from dask_diag.model.recording import Recording

_NAMES = {
    "before": "before the first computation",
    "preparing": "preparing, no task yet",
    "tasks": "tasks, not recorded",
    "between": "between computations",
    "after": "after the last computation",
    Activity.CPU: "tasks computing (CPU)",
    Activity.NONCPU: "tasks off the CPU",
    Activity.CPU_WAIT: "tasks waiting for a CPU",
    Activity.GIL_WAIT: "tasks waiting for the GIL",
    Activity.LOCK_WAIT: "tasks waiting for locks",
    Activity.IO_WAIT: "tasks waiting for I/O",
    Activity.CHILD_WAIT: "tasks waiting for programs",
    Activity.SLEEP: "tasks sleeping",
    Activity.DEVICE_WAIT: "tasks waiting for a device",
    Activity.PAGE_FAULT: "tasks waiting for memory",
    Activity.UNEXPLAINED: "tasks off the CPU, cause not sampled",
    Activity.SERIALIZE: "pickling",
    Activity.DESERIALIZE: "unpickling",
    Activity.TRANSFER: "no task: results on the way",
    Activity.SPILL: "no task: results to disk or back",
    Activity.FAILED: "tasks that failed",
    Activity.UNFINISHED: "tasks that did not finish",
    Activity.OVERHEAD: "no task: scheduler at work",
    Activity.STARTUP: "imports, processes start",
    Activity.PROFILERS: "no task: profilers at work",
    Activity.GRAPH: "no task: graph prepared",
    Activity.IDLE: "no task to run",
    Activity.OTHER: "not known",
}


def name_of_part(part: str) -> str:
    """Name of a phase or an activity; an activity that tasks metered has the name they gave it."""
    return _NAMES.get(part, f"tasks in {part!r}")


def names_of_computations(recording: Recording) -> list[str]:
    """Names of computations: their spans, or numbers if there are several computations."""
    spans: list[str] = recording.computations.span.tolist()
    several = len(spans) > 1
    return [
        span or (f"computation {n}" if several else "computation")
        for n, span in enumerate(spans, 1)
    ]


_LOCATION = re.compile(r"^(?P<name>.*?\.py)(?::(?P<first>\d+), in .*)?$")
"""Location of calling code: a script from its first line on, or a part of a file."""

Lines = dict[tuple[str, int], str]
"""Text of a line, by file and number."""


def recorded_lines(recording: Recording) -> Lines:
    """Text of recorded lines in files of frames.

    A recording names the files of its calling code without folders: if two files of frames have the
    same name, neither has these lines.
    """
    files: dict[str, list[str]] = {}
    for file in recording.frames.file.values:
        files.setdefault(os.path.basename(file), []).append(file)
    lines: Lines = {}
    for name, first, text in _pieces(recording):
        if len(files.get(name, ())) == 1:
            (file,) = files[name]
            numbered = enumerate(text.split("\n"), first)
            lines.update({(file, number): line.strip() for number, line in numbered})
    allocated = recording.allocations
    for file, line, code in allocated.tuples("file", "line", "code"):
        if code:
            lines[file, line] = code.strip()
    return lines


def computing_lines(recording: Recording, location: str) -> list[int]:
    """Numbers of the lines that called dask, in the calling code from a location."""
    match = _LOCATION.match(location)
    name = match["name"] if match else location
    sites = (site.rpartition(":") for site in recording.computations.call_site.tolist())
    return sorted({int(line) for file, _, line in sites if file == name and line.isdigit()})


def first_line(location: str) -> int:
    """Number of the first line of calling code from a location."""
    match = _LOCATION.match(location)
    return int(match["first"] or 1) if match else 1


def _pieces(recording: Recording) -> Iterator[tuple[str, int, str]]:
    """Name of each file, number of its first recorded line, and the text from there on."""
    table = recording.environment
    rows = table.filter(table.section.eq("calling code"))
    for location, text in rows.tuples("name", "value"):
        match = _LOCATION.match(location)
        if match:
            yield match["name"], first_line(location), text
