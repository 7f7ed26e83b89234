"""The section of a report on lines: the program's source with a bar beside each line.

The page has the numbers of all measures, and shows those that the reader chooses.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import isnan

import numpy as np

from dask_diag.analysis.built_by import BY, BuiltBy, SourceLine, table_of_lines
from dask_diag.analysis.facts import MOST_SIMULATED, Analysis
from dask_diag.analysis.groups import lookup
from dask_diag.analysis.simulation.schedulers import result_sizes
from dask_diag.views.built_by import on_work_built_before, sources_of
from dask_diag.views.escaping import shown
from dask_diag.views.plots.figures import pack
from dask_diag.views.report.components import Part, SourceFile, SourceRow, SourceTable, Text
from dask_diag.views.report.figures import Figures

_AROUND = 2
"""Lines before and after a line that built work which are shown with it."""
_LONGEST = 200
_MEASURES = ("seconds", "cpu_seconds", "built_seconds", "bytes")


def lines(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """The source of the program, with the seconds that each line built."""
    recording, tasks = analysis.recording, analysis.tasks
    if not len(analysis.lines):
        return
    sizes = result_sizes(recording) if len(tasks) * 10 <= MOST_SIMULATED else None
    function_of = lookup(tasks.group, tasks.function)
    row_of: dict[SourceLine, int] = {}
    modes: dict[str, dict[int, list[object]]] = {by: {} for by in BY}
    for by, of_rows in modes.items():
        built = BuiltBy.of(recording, by)
        works = dict(zip(built.places, built.works(analysis.task_seconds), strict=True))
        for record in table_of_lines(recording, built, sizes).to_dicts():
            place = SourceLine.of_row(record)
            _, groups = works[place]
            of_rows[row_of.setdefault(place, len(row_of))] = [
                *(None if isnan(record[name]) else record[name] for name in _MEASURES),
                *(record["tasks"], shown(record["functions"], 60)),
                figures.colors[function_of[groups[0]]] if groups else "",
                groups,
            ]
    group = np.zeros(len(tasks), np.int64)
    numbers = figures.task_numbers
    group[numbers[numbers >= 0]] = tasks.group[numbers >= 0] + 1
    yield SourceTable(
        list(_files(analysis, row_of)), {"modes": modes, "groups": pack({"group": group})}
    )
    yield from (Text([text]) for _, text in on_work_built_before(analysis.lines))


def _files(analysis: Analysis, row_of: dict[SourceLine, int]) -> Iterator[SourceFile]:
    """The files, each with its lines in order; work without a line is in none."""
    sources, marks = sources_of(analysis.recording), _marks(analysis)
    for file in dict.fromkeys(file for file, _, _ in row_of):
        of_file = {line: row for (of, line, _), row in row_of.items() if of == file and line}
        source = dict.fromkeys(of_file, "") | sources.get(file, {})
        near = {line + n for line in of_file for n in range(-_AROUND, _AROUND + 1)}
        if file:
            rows = [
                SourceRow(of_file.get(line, -1), str(line), pieces, line not in near)
                for line, text in sorted(source.items())
                for pieces in [_pieces(text[:_LONGEST], marks.get((file, line), ()))]
            ]
            yield SourceFile(shown(os.path.basename(file), 60), rows)
    unknown = [(row, text) for (_, line, text), row in row_of.items() if not line]
    rows = [SourceRow(row, "", [(text, False)], False) for row, text in unknown]
    if rows:
        yield SourceFile("", rows)


def _marks(analysis: Analysis) -> dict[tuple[str, int], list[slice]]:
    """The parts of each line that are expressions which built work."""
    marks: dict[tuple[str, int], list[slice]] = {}
    table = analysis.recording.lines.filter(analysis.built_by.builders)
    names = ("file", "cell", "line", "end_line", "column", "end_column")
    for file, cell, first, last, start, stop in table.tuples(*names):
        if start > 0:
            part = slice(start - 1, stop - 1 if last == first else None)
            marks.setdefault((cell or file, first), []).append(part)
    return marks


def _pieces(text: str, marks: Iterable[slice]) -> list[tuple[str, bool]]:
    """Parts of a line, and whether each is marked."""
    is_marked = np.zeros(len(text), bool)
    for part in marks:
        is_marked[part] = True
    cuts = [0, *(1 + np.flatnonzero(np.diff(is_marked))).tolist(), len(text)]
    return [
        (shown(text[start:stop].replace("\t", "    "), _LONGEST), bool(is_marked[start]))
        for start, stop in pairwise(cuts)
        if start < stop
    ]
