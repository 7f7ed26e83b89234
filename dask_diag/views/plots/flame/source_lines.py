"""The line of each function in which most of its time passed, with its text where that is sure."""

from __future__ import annotations

import linecache
import os

from dask_diag.analysis.call_tree import hottest_lines
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.views.escaping import shown

__all__ = ["source_lines", "texts_of_nodes"]

Function = tuple[str, str, int]
"""Its name and file, and the line where it starts."""
_MOST_TEXTS = 2000
"""So that pages stay small; the functions with most time come first."""
_LONGEST = 100


def source_lines(recording: Recording) -> dict[Function, str]:
    """Of each function the number of its line with most time, with what it called.

    The text of the line follows if its file was not changed since recording started.
    """
    frames = recording.frames
    starts = {
        (row["name"], row["file"], row["line"]): row["first_line"] for row in frames.to_dicts()
    }
    lines = hottest_lines(recording, len(frames))
    if not len(lines):
        return {}
    texts = _Texts(recording.epoch + recording.start)
    longest: dict[Function, str] = {}
    for row in sorted(lines.to_dicts(), key=lambda row: -row["total_wall"]):
        name, file, line = row["name"], row["file"], row["line"]
        function = name, file, starts[name, file, line]
        if line > 0 and function not in longest:
            text = texts.of(file, line) if len(longest) < _MOST_TEXTS else ""
            longest[function] = f"{line}: {text}" if text else str(line)
    return longest


def texts_of_nodes(nodes: Table, lines: dict[Function, str]) -> list[str]:
    """The text of each node; empty for those that are no function with a source."""
    names, files = nodes["name"].tolist(), nodes["file"].tolist()
    functions = zip(names, files, nodes["first_line"].tolist(), strict=True)
    return [lines.get(function, "") for function in functions]


class _Texts:
    """Lines of the files that were not changed since the recording started."""

    def __init__(self, recorded: float) -> None:
        self._recorded = recorded
        self._is_same: dict[str, bool] = {}

    def of(self, file: str, line: int) -> str:
        if file not in self._is_same:
            self._is_same[file] = self._is_unchanged(file)
        text = linecache.getline(file, line).strip() if self._is_same[file] else ""
        return shown(text, _LONGEST) if text else ""

    def _is_unchanged(self, file: str) -> bool:
        try:
            if os.stat(file).st_mtime > self._recorded:
                return False
        except (OSError, ValueError):
            return False
        linecache.checkcache(file)
        return True
