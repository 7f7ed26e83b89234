"""The tables of lines and steps, of the kinds of tasks of several computations."""

from __future__ import annotations

import linecache
from collections.abc import Iterable
from math import nan

import numpy as np

from dask_diag.capture.lines.sites import Site, SourceRange
from dask_diag.capture.lines.steps import EndedKinds, Kind, NamedKinds, StepSums, TaskKinds
from dask_diag.columns import IntArray
from dask_diag.model import tables
from dask_diag.model.table import Table
from dask_diag.system.code import name_of_cell
from dask_diag.system.secrets import redacted_source

_LONGEST_TEXT = 200
_MOST_LINES = 2000
"""Lines of a file that are masked as a whole; of a longer one each line is masked alone."""


class Sources:
    """Source text of lines, with secrets masked, each file read once."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[list[str], list[str]]] = {}

    def forget(self) -> None:
        """Release the text of files."""
        self._files.clear()

    def text(self, place: SourceRange) -> tuple[str, int, int]:
        """The text of a line, and the columns of the expression in characters, from 1 on.

        Columns are 0 if they are unknown, or if a secret is masked in the text.
        """
        if place.file not in self._files:
            plain = [line.rstrip() for line in linecache.getlines(place.file)]
            self._files[place.file] = plain, _masked(plain)
        plain, masked = self._files[place.file]
        raw = _line(plain, place.line)
        shown = _line(masked, place.line) if masked else redacted_source(raw)
        column = end_column = 0
        if raw == shown and place.column >= 0:
            column = _characters(raw, place.column)
            end_column = _characters(_line(plain, place.end_line), place.end_column)
        cut = shown if len(shown) <= _LONGEST_TEXT else shown[: _LONGEST_TEXT - 1] + "…"
        return cut, column, end_column


def _masked(lines: list[str]) -> list[str]:
    """All lines of a file, masked; none of a long file, each line of which is masked alone."""
    masked = redacted_source("\n".join(lines)).split("\n") if len(lines) <= _MOST_LINES else []
    return masked if len(masked) == len(lines) else []


def _line(lines: list[str], number: int) -> str:
    return lines[number - 1] if 0 < number <= len(lines) else ""


def _characters(line: str, column: int) -> int:
    """The character, from 1 on, of a column in bytes."""
    return len(line.encode()[:column].decode("utf-8", "ignore")) + 1 if line else 0


class LineTables:
    """Numbers kinds of tasks across computations, and makes their tables.

    Parameters
    ----------
    with_text : bool, optional
        Whether the source of lines is recorded.
    """

    def __init__(self, with_text: bool = True) -> None:
        self._sources = Sources() if with_text else None
        self._numbers: dict[Kind, int] = {}
        # By the ids of sums, which are retained with it.
        self._parts: dict[int, EndedKinds] = {}
        self._ended: dict[int, EndedKinds] = {}
        self._sums: dict[int, StepSums] = {}
        self._rows: dict[tuple[int, SourceRange, str], int] = {}
        self._lines: list[tuple[object, ...]] = []
        self._row_of_site: dict[Site, int] = {}
        self._made: dict[str, Table] = {
            "lines": tables.Lines.empty(),
            "steps": tables.Steps.empty(),
        }
        self._kinds_made = 0

    def groups(self, kinds: EndedKinds, positions: bytes) -> IntArray:
        """The column `group` for tasks with these positions of kinds of a computation."""
        numbers = [self._numbers.setdefault(kind, len(self._numbers)) for kind in kinds.kinds]
        if kinds.kinds and id(kinds.sums) not in self._ended:
            self._parts[id(kinds.sums)] = kinds
        return np.array([*numbers, -1], dtype=np.int64)[np.frombuffer(positions, np.int32)]

    def tables(self) -> dict[str, Table]:
        """The tables of all kinds so far."""
        if not self._parts and self._kinds_made == len(self._numbers):
            return self._made
        self._kinds_made = len(self._numbers)
        for key, kinds in list(self._parts.items()):
            if not isinstance(kinds, TaskKinds):
                self._add(self._sums, kinds)
                self._ended[key] = self._parts.pop(key)
        sums = dict(self._sums)
        for key, kinds in list(self._parts.items()):
            self._add(sums, kinds)
            if not isinstance(kinds, NamedKinds):
                # It is given again as long as the computation runs.
                del self._parts[key]
        steps = [
            row for kind, number in self._numbers.items() for row in self._steps(number, kind, sums)
        ]
        if self._sources is not None:
            self._sources.forget()
        self._made = {
            "lines": tables.Lines.of_rows(self._lines),
            "steps": tables.Steps.of_rows(steps),
        }
        return self._made

    def _add(self, sums: dict[int, StepSums], kinds: EndedKinds) -> None:
        """Add the seconds of a computation to those of each kind."""
        for position, of_kind in list(kinds.sums.items()):
            number = self._numbers[kinds.kinds[position]]
            before = [sums[number]] if number in sums else []
            sums[number] = StepSums.of([*before, of_kind])

    def _steps(
        self, number: int, kind: Kind, sums: dict[int, StepSums]
    ) -> Iterable[tuple[object, ...]]:
        measured = sums.get(number)
        for position, (function, (site, how)) in enumerate(kind):
            row = -1 if site is None else self._row(site)
            seconds = cpu = nan
            if measured is not None:
                seconds, cpu = measured.seconds[position], measured.cpu[position]
            yield number, function, row, how, seconds, cpu, measured.timed if measured else 0

    def _row(self, site: Site) -> int:
        row = self._row_of_site.get(site)
        if row is None:
            row, places = -1, site.places()
            for position, place in enumerate(places, 1):
                row = self._row_of(row, place, site.called if position == len(places) else "")
            self._row_of_site[site] = row
        return row

    def _row_of(self, caller: int, place: SourceRange, called: str) -> int:
        known = self._rows.get((caller, place, called))
        if known is not None:
            return known
        text, column, end_column = self._sources.text(place) if self._sources else ("", 0, 0)
        cell = name_of_cell(place.file) or ""
        where = place.file, cell, place.line, place.end_line, column, end_column
        self._lines.append((caller, *where, place.function, called, text))
        return self._rows.setdefault((caller, place, called), len(self._lines) - 1)
