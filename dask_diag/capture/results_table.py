"""The tables of cached results and of allocations."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from time import perf_counter

import numpy as np

from dask_diag.capture.build import Increment
from dask_diag.capture.computation import ComputationSnapshot
from dask_diag.capture.workers_table import numbers_of
from dask_diag.columns import Categorical, FloatArray, IntArray, PrefixStrings
from dask_diag.formatting import counted
from dask_diag.model import tables
from dask_diag.model.table import NO_ROWS, Table, stack
from dask_diag.system.allocations import AllocationSnapshot
from dask_diag.system.code import parsed
from dask_diag.system.secrets import redacted_source

_FEW_NAMES = 200
"""Names of keys that need not be dropped: to have them costs less than to look for them."""
_NONE: IntArray = np.zeros(0, np.int64)
_NAMES: dict[str, type[PrefixStrings] | type[Categorical]] = {
    "key": PrefixStrings,
    "function": Categorical,
    "computation": Categorical,
}
_NO_STOPS: Mapping[str, float | None] = {}


class ResultCache:
    """The cached results of a running computation.

    Attributes
    ----------
    columns : Table
        Columns of the results that are cached now, in the order of arrival.
    """

    def __init__(self) -> None:
        self.columns: Table = NO_ROWS
        self._count = 0
        # Of each that is cached: its row among all, and how many tasks are to come that depend on
        # it.
        self._rows, self._to_come = _NONE, _NONE

    def add(
        self,
        columns: Table,
        sizes: Sequence[float],
        collected: FloatArray,
        dependents: Sequence[int],
        dependencies: tuple[Sequence[int], Sequence[int]],
        *,
        positions: IntArray | None = None,
    ) -> Table:
        """Add the next results; returns the released results, with ``stop``, in order.

        Parameters
        ----------
        columns : Table
            Further columns of each result.
        sizes
            As many as there are results: the first of the following rows.
        collected, dependents
            Of each row; `dependents` as `TaskRows` has them.
        dependencies : tuple of (sequence of int, sequence of int)
            On how many rows each row depends, if one does, and on which.
        positions : array of int, optional
            Ascending numbers by which rows depend on these; by default they are counted.
        """
        count = len(sizes)
        if not count:
            return NO_ROWS
        first = slice(count)
        new = columns.filter(first).replacing(
            {"metric": np.array(sizes, float), "start": collected[first]}
        )
        columns = stack([self.columns, new])
        if positions is None:
            positions = np.arange(self._count, self._count + count)
        rows = np.concatenate([self._rows, positions])
        to_come = np.concatenate([self._to_come, np.array(dependents[first], np.int64)])
        self._count += count
        counts = np.array(dependencies[0][first], np.int64)
        tasks = np.repeat(np.arange(len(counts)), counts)
        needed = np.array(dependencies[1][: len(tasks)], np.int64)
        # Rows are in order, and what a task depends on is cached until the task is done.
        at = np.searchsorted(rows, needed)
        came = np.bincount(at, minlength=len(rows))
        last = np.zeros(len(rows), np.int64)
        # Of several tasks the last one remains.
        last[at] = tasks
        is_released = (came > 0) & (came == to_come)
        released = np.flatnonzero(is_released)
        released = released[np.argsort(last[released], kind="stable")]
        stays = ~is_released
        self._rows = rows[stays]
        self._to_come = np.where(to_come, to_come - came, 0)[stays]
        self.columns = columns.filter(stays)
        return columns.filter(released).replacing({"stop": collected[last[released]]})

    def until(self, now: float, stops: Mapping[str, float | None] = _NO_STOPS) -> Table:
        """Cached results, as if all were released now, or when their computation stops."""
        columns = self.columns
        if not stops or not len(columns):
            return columns.replacing({"stop": np.full(len(columns), now)})
        names = columns["computation"]
        of_names = np.array([stops.get(name) or now for name in names.values])
        return columns.replacing({"stop": of_names[names.codes]})

    def forget(self, computations: Collection[str]) -> None:
        """Drop the results of computations that have ended."""
        if len(self.columns):
            stays = ~self.columns["computation"].is_in(computations)
            self.columns = self.columns.filter(stays)
            self._rows, self._to_come = self._rows[stays], self._to_come[stays]

    def drop_names(self) -> None:
        """Drop the names of keys, except of cached results."""
        table = self.columns
        if table.columns and len(table["key"].heads.values) > 2 * len(table) + _FEW_NAMES:
            self.columns = table.replacing(
                {
                    name: kind.of(table[name].tolist())
                    for name, kind in _NAMES.items()
                    if name in table.columns
                }
            )


def results_of(computation: ComputationSnapshot, sizes: Sequence[float]) -> Table:
    """The results of a computation, as ``row``, ``metric``, ``start`` and ``stop``.

    Those that were released come in that order, then those that were cached at the end, or are now.
    """
    tasks = computation.tasks
    collected = numbers_of(tasks.rows)[5]
    # Tasks in flight come last.
    count = min(len(sizes), int((~np.isnan(collected)).sum()))
    rows = Table({"row": np.arange(count)})
    results, stop = ResultCache(), computation.stop
    released = results.add(rows, sizes[:count], collected, tasks.dependents, tasks.dependencies)
    return stack([released, results.until(perf_counter() if stop is None else stop)])


_MOST_LINES = 50
_SMALLEST = 100e3
"""Bytes: to read and mask the source of a line takes long, so it has to be worth it."""
_LONGEST_LINE = 200


def allocations_table(
    snapshots: Mapping[str, AllocationSnapshot | None], with_code: bool
) -> tables.Allocations:
    """The table, from the last snapshot of each block by its label."""
    source = _Source(with_code)
    return tables.Allocations.of_rows(
        {
            "label": label,
            "time": snapshot.time,
            "memory": snapshot.memory,
            "peak": snapshot.peak,
            **row,
        }
        for label, snapshot in snapshots.items()
        if snapshot is not None
        for row in _rows(snapshot, source)
    )


def _rows(snapshot: AllocationSnapshot, source: _Source) -> Iterator[dict[str, object]]:
    """The lines with most bytes, and a row for the rest."""
    lines = sorted(snapshot.lines.items(), key=lambda item: -item[1][0])
    large = sum(size >= _SMALLEST for _, (size, _) in lines[:_MOST_LINES])
    others = [amounts for _, amounts in lines[large:]]
    for (file, line, name), (size, blocks) in lines[:large]:
        function, code = (name, "") if name else source.at(file, line)
        row = {"function": function, "file": file, "line": line, "code": code}
        yield {**row, "bytes": size, "blocks": blocks}
    if others:
        size, blocks = map(sum, zip(*others, strict=True))
        name = f"({counted(len(others), 'other line')})"
        row = {"function": name, "file": "", "line": 0, "code": ""}
        yield {**row, "bytes": size, "blocks": blocks}


class AllocationTables:
    """The last snapshot so far, while a file is written: each chunk replaces the one before.

    Parameters
    ----------
    last : callable
        Returns the last snapshot.
    with_code : bool
    """

    def __init__(self, last: Callable[[], AllocationSnapshot | None], with_code: bool) -> None:
        self._last = last
        self._with_code = with_code
        self._shown: AllocationSnapshot | None = None
        self._table = tables.Allocations.empty()

    def take(self) -> Increment:
        """Return the table, as provisional rows."""
        last = self._last()
        if last != self._shown:
            self._table = allocations_table({"": last}, self._with_code)
            self._shown = last
        return {}, {"allocations": self._table}


class _Source:
    """The functions of lines, and the lines, with masked secrets."""

    def __init__(self, with_code: bool) -> None:
        self._with_code = with_code
        self._files: dict[str, tuple[list[tuple[int, int, str]], list[str]]] = {}

    def at(self, file: str, line: int) -> tuple[str, str]:
        """The function of a line, empty if not known, and the code."""
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
