"""A column of a table, and a table as the columns that it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

if TYPE_CHECKING:
    from dask_diag.columns import Categorical, FloatArray, IntArray, PrefixStrings

__all__ = ["Column", "Schema", "category", "integer", "number", "seconds", "text", "time"]

Values = TypeVar("Values")


class Column(Generic[Values]):
    """One column of a table.

    Attributes
    ----------
    name : str
    kind : {"float", "integer", "category", "text"}
        What it is stored as: numbers, or text. A category has few distinct values; a text has many.
    unit : str
        ``s``, ``bytes``, ``%``, or empty for counts, positions and text.
    meaning : str
        One sentence.
    is_time : bool
        Whether it says when: seconds of a clock that started at any time.
    """

    def __init__(self, kind: str, unit: str, meaning: str, is_time: bool = False) -> None:
        self.name = ""
        self.is_time = is_time
        self.kind = kind
        self.unit = unit
        self.meaning = meaning

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, table: None, owner: type) -> Column[Values]: ...

    @overload
    def __get__(self, table: Schema, owner: type) -> Values: ...

    def __get__(self, table: Schema | None, owner: type) -> Column[Values] | Values:
        if table is None:
            return self
        values: Values = table[self.name]
        return values


class Schema:
    """A table's columns, as class attributes; an instance has the values, by the same names."""

    schema: ClassVar[Mapping[str, Column[Any]]] = {}

    def __init_subclass__(cls) -> None:
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Column)}
        cls.schema = {**cls.schema, **own}

    def __getitem__(self, name: str) -> Any:
        raise NotImplementedError


def seconds(meaning: str) -> Column[FloatArray]:
    """A column of seconds."""
    return Column("float", "s", meaning)


def time(meaning: str) -> Column[FloatArray]:
    """A column of times, in seconds of the recording's clock."""
    return Column("float", "s", meaning, is_time=True)


def number(unit: str, meaning: str) -> Column[FloatArray]:
    """A column of numbers with that unit."""
    return Column("float", unit, meaning)


def integer(meaning: str) -> Column[IntArray]:
    """A column of counts or positions."""
    return Column("integer", "", meaning)


def category(meaning: str) -> Column[Categorical]:
    """A column of texts, few of which are distinct."""
    return Column("category", "", meaning)


def text(meaning: str) -> Column[PrefixStrings]:
    """A column of texts, many of which are distinct."""
    return Column("text", "", meaning)
