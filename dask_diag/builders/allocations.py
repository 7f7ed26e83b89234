"""`Recording.allocations`: the lines that allocated at the peak, with their functions and code."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from dask_diag.builders.chunks import Increment
from dask_diag.capture.system.allocations import Allocations
from dask_diag.capture.system.parsing import parsed
from dask_diag.capture.system.redaction.source import redacted_source
from dask_diag.columns import Categorical
from dask_diag.formatting import counted
from dask_diag.model.tables import Allocations as AllocationsTable

__all__ = ["IncrementalAllocations", "allocations_table"]

_MOST_LINES = 50
_SMALLEST = 100e3
"""Bytes: to read and mask the source of a line takes long, so it has to be worth it."""
_LONGEST_LINE = 200


class _Row(NamedTuple):
    label: str
    function: str
    file: str
    line: int
    code: str
    bytes: int
    blocks: int
    snapshot: Allocations


def allocations_table(
    snapshots: Mapping[str, Allocations | None], with_code: bool
) -> AllocationsTable:
    """The table, from the last snapshot of each block by its label."""
    source = _Source(with_code)
    rows = [
        row
        for label, snapshot in snapshots.items()
        if snapshot is not None
        for row in _rows(label, snapshot, source)
    ]

    def numbers(value: Callable[[_Row], float]) -> np.ndarray:
        return np.array([value(row) for row in rows], dtype=float)

    return AllocationsTable(
        {
            "label": Categorical.of(row.label for row in rows),
            "time": numbers(lambda row: row.snapshot.time),
            "function": Categorical.of(row.function for row in rows),
            "file": Categorical.of(row.file for row in rows),
            "line": np.array([row.line for row in rows], dtype=np.int64),
            "code": Categorical.of(row.code for row in rows),
            "bytes": numbers(lambda row: row.bytes),
            "blocks": np.array([row.blocks for row in rows], dtype=np.int64),
            "memory": numbers(lambda row: row.snapshot.memory),
            "peak": numbers(lambda row: row.snapshot.peak),
        }
    )


def _rows(label: str, snapshot: Allocations, source: _Source) -> Iterator[_Row]:
    """The lines with most bytes, and one row for all others."""
    lines = sorted(snapshot.lines.items(), key=lambda item: -item[1][0])
    large = sum(size >= _SMALLEST for _, (size, _) in lines[:_MOST_LINES])
    for (file, line, name), amounts in lines[:large]:
        function, code = (name, "") if name else source.at(file, line)
        yield _Row(label, function, file, line, code, *amounts, snapshot)
    others = [amounts for _, amounts in lines[large:]]
    if others:
        size, blocks = map(sum, zip(*others, strict=True))
        name = f"({counted(len(others), 'other line')})"
        yield _Row(label, name, "", 0, "", size, blocks, snapshot)


class IncrementalAllocations:
    """The last snapshot so far, while a file is written: each chunk replaces the one before.

    Parameters
    ----------
    last : callable
        Returns the last snapshot.
    with_code : bool
    """

    def __init__(self, last: Callable[[], Allocations | None], with_code: bool) -> None:
        self._last = last
        self._with_code = with_code
        self._shown: Allocations | None = None
        self._table = AllocationsTable.empty()

    def take(self) -> Increment:
        """All of it is provisional."""
        last = self._last()
        if last != self._shown:
            self._table = allocations_table({"": last}, self._with_code)
            self._shown = last
        return {}, {"allocations": self._table}


class _Source:
    """The functions that lines belong to, and the lines, in which what looks secret is masked."""

    def __init__(self, with_code: bool) -> None:
        self._with_code = with_code
        self._files: dict[str, tuple[list[tuple[int, int, str]], list[str]]] = {}

    def at(self, file: str, line: int) -> tuple[str, str]:
        """The function of a line, empty if it is not known, and its code."""
        if file not in self._files:
            text = "".join(linecache.getlines(file))
            # All of the source is masked: what a part of it means depends on the rest.
            code = redacted_source(text).split("\n") if self._with_code else []
            self._files[file] = list(_functions(text)), code
        functions, code = self._files[file]
        around = [span for span in functions if span[0] <= line <= span[1]]
        name = max(around)[2] if around else "<module>" if linecache.getlines(file) else ""
        return name, code[line - 1].strip()[:_LONGEST_LINE] if 0 < line <= len(code) else ""


def _functions(text: str) -> Iterator[tuple[int, int, str]]:
    """First and last line of each function, and its qualified name."""
    tree = parsed(text)
    open_nodes: list[tuple[ast.AST, str]] = [] if tree is None else [(tree, "")]
    while open_nodes:
        node, before = open_nodes.pop()
        for child in ast.iter_child_nodes(node):
            inside = before
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield child.lineno, child.end_lineno or child.lineno, before + child.name
                inside = f"{before}{child.name}.<locals>."
            elif isinstance(child, ast.ClassDef):
                inside = f"{before}{child.name}."
            open_nodes.append((child, inside))
