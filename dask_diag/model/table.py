"""Tables of columns, for recordings and analyses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dask_diag.columns import BoolArray, IntArray, Values, concatenate, read_only
from dask_diag.errors import DiagnosticError, UnknownColumnError, import_optional
from dask_diag.formatting import counted, percent, quantity, seconds

if TYPE_CHECKING:
    import pandas
    from typing_extensions import Self


T = TypeVar("T", bound="Table")

Several = slice | BoolArray | IntArray
"""A selection of rows: a slice, a mask or indices."""

_SHARE, _TIME = "share", "time"
ROWS_SHOWN = 60
ROWS_PRINTED = 40


class Table:
    """Immutable columns of equal length, by name.

    ``table["seconds"]`` is a column, ``len(table)`` the number of rows, and ``print(table)`` shows
    the first 40 rows. A table of a recording also has its columns as attributes:
    ``recording.tasks.start``.

    Parameters
    ----------
    columns : mapping of str to array, Categorical or PrefixStrings
        Arrays are not copied; the table has read-only views of them.

    Raises
    ------
    DiagnosticError
        If the columns differ in length.

    Examples
    --------
    >>> import numpy as np
    >>> from dask_diag.model.table import Table
    >>> table = Table({"name": np.array(["a", "b"]), "seconds": np.array([1.0, 2.5])})
    >>> table.filter(table["seconds"] > 2).to_dicts()
    [{'name': 'b', 'seconds': 2.5}]
    """

    __slots__ = ("_columns", "_units")

    def __init__(self, columns: Mapping[str, Values]) -> None:
        if len(set(map(len, columns.values()))) > 1:
            lengths = {name: len(column) for name, column in columns.items()}
            raise DiagnosticError(f"expected columns of one length, found {lengths}")
        self._columns: dict[str, Values] = {
            name: read_only(column) if isinstance(column, np.ndarray) else column
            for name, column in columns.items()
        }
        self._units: Mapping[str, str] = {}

    def in_units(self, **units: str) -> Self:
        """The table with units of columns: ``s``, ``bytes``, ``share``, or any other text.

        ``=column`` stands for the unit that this column has in the same row.
        """
        return self._of(self._columns, units)

    def unit_of(self, column: str) -> str:
        """The unit of a column; empty if there is none, or none is known."""
        return self._units.get(column, "")

    def _of(self, columns: Mapping[str, Values], units: Mapping[str, str]) -> Self:
        table = type(self)(columns)
        table._units = units
        return table

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __getitem__(self, name: str) -> Any:
        try:
            return self._columns[name]
        except KeyError:
            names = ", ".join(self._columns)
            raise UnknownColumnError(f"no column {name!r}; there are {names}") from None

    def filter(self, selection: Several) -> Self:
        """Select rows by a slice, a boolean mask or positions; returns a table."""
        columns = {name: column[selection] for name, column in self._columns.items()}
        return self._of(columns, self._units)

    def replacing(self, columns: Mapping[str, Values]) -> Self:
        """Return the table with other values in the columns of a mapping."""
        return self._of(self._columns | dict(columns), self._units)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a list with a dict per row."""
        names = self.columns
        values = [column.tolist() for column in self._columns.values()]
        return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]

    def tuples(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """Iterate over the rows, as tuples of the named columns."""
        return zip(*(self[name].tolist() for name in names), strict=True)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table as a pandas DataFrame.

        Raises
        ------
        MissingDependencyError
            If pandas is not installed.
        """
        frame: pandas.DataFrame = import_optional(
            "pandas", "to_pandas()", "to_dicts() works without it"
        ).DataFrame({name: self[name].tolist() for name in self.columns})
        return frame

    def __repr__(self) -> str:
        return f"<Table of {len(self)} rows: {', '.join(self.columns)}>"

    def __str__(self) -> str:
        rows = self.filter(slice(ROWS_PRINTED)).to_dicts()
        lines = [[_cell(value) for value in row] for row in (self.columns, *map(dict.values, rows))]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        if len(self) > ROWS_PRINTED:
            text.append(f"... {len(self) - ROWS_PRINTED:,} more rows")
        return "\n".join(text)

    def _repr_html_(self) -> str:
        rows = self.filter(slice(ROWS_SHOWN)).to_dicts()
        body = [[self._text(name, row) for name in self.columns] for row in rows]
        is_text = [not isinstance(self[name], np.ndarray) for name in self.columns]
        shown = f"the first {len(rows)} of " if len(rows) < len(self) else ""
        return f"{html_table(self.columns, body, is_text)}<p>{shown}{counted(len(self), 'row')}</p>"

    def _text(self, name: str, row: Mapping[str, object]) -> str:
        value, unit = row[name], self.unit_of(name)
        return _with_unit(value, str(row[unit[1:]]) if unit.startswith("=") else unit)


_NUMBER = "right;white-space:nowrap"


def html_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], is_text: Sequence[bool] = (True,)
) -> str:
    """A table for a notebook, numbers to the right; columns beyond `is_text` are numbers."""
    styles = ["left" if left else _NUMBER for left in is_text]
    styles += [_NUMBER] * (len(columns) - len(styles))

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f'<{tag} style="text-align:{style}">{escape(text)}</{tag}>'
            for style, text in zip(styles, row, strict=True)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    # A heading without a text would be read as one.
    headings = re.sub(r"<th( [^>]*)?></th>", r"<td\1></td>", cells("th", columns))
    return f"<table><thead><tr>{headings}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    """One line of at most 60 characters that do not move the cursor of a terminal."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)[:60]
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)[:60]


def _with_unit(value: object, unit: str) -> str:
    """A cell as text, with its unit."""
    if not isinstance(value, float):
        text = str(value) if unit or not isinstance(value, int) else f"{value:,}"
        return text[:200].encode("utf-8", "backslashreplace").decode("utf-8")
    if unit == _SHARE:
        return percent(value)
    if unit == _TIME:
        # Three digits would make times alike.
        return f"{value:,.6f} s" if isfinite(value) else seconds(value)
    return quantity(value, "seconds" if unit == "s" else unit)


NO_ROWS = Table({})


def stack(tables: Sequence[T]) -> T:
    """One table of several with the same columns; empty plain tables may have any."""
    filled = [table for table in tables if len(table)]
    if len(filled) < 2:
        return (filled or [table for table in tables if table.columns] or list(tables))[0]
    return type(filled[0])(
        {name: concatenate([table[name] for table in filled]) for name in filled[0].columns}
    )
