"""Names of computations, and recorded lines of code; no file is read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from dask_diag.analysis.groups import environment_rows
from dask_diag.model.recording import Recording


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
    """Text of recorded lines in files of frames, and in those of lines that built work.

    A recording names the files of its calling code without folders: if two files of frames have the
    same name, neither has these lines.
    """
    files: dict[str, list[str]] = {}
    for file in dict.fromkeys((*recording.frames.file.values, *recording.lines.file.values)):
        files.setdefault(os.path.basename(file), []).append(file)
    lines: Lines = {}
    for name, first, text in _pieces(recording):
        if len(files.get(name, ())) == 1:
            (file,) = files[name]
            numbered = enumerate(text.split("\n"), first)
            lines.update({(file, number): line for number, line in numbered})
    for table, code in ((recording.allocations, "code"), (recording.lines, "text")):
        for file, line, text in table.tuples("file", "line", code):
            if text:
                lines.setdefault((file, line), text)
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
    for location, text in environment_rows(recording, "calling code"):
        match = _LOCATION.match(location)
        if match:
            yield match["name"], first_line(location), text
