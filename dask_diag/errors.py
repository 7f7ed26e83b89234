"""Errors that users see, checks of arguments, and imports of optional libraries."""

from __future__ import annotations

from importlib import import_module
from math import isfinite
from typing import Any


class DiagnosticError(Exception):
    """Base class of every error that dask_diag raises on purpose."""

    def __str__(self) -> str:
        # `KeyError` would print its message in quotation marks.
        return Exception.__str__(self)


class ArgumentTypeError(DiagnosticError, TypeError):
    """An argument has the wrong type; the message names the expected type."""


class ArgumentValueError(DiagnosticError, ValueError):
    """An argument has an impossible value; the message says what was expected."""


class MissingDependencyError(DiagnosticError, ImportError):
    """An optional library is not installed; the message has the command that installs it."""


class NotRegisteredError(DiagnosticError, KeyError):
    """``unregister()`` was called on a profiler that is not registered."""


class RecordingFileError(DiagnosticError):
    """A file cannot be written, or is not a readable recording; the message gives the reason."""


class SchemaError(DiagnosticError, ValueError):
    """A table does not have the columns that the schema requires; the message names the columns."""


class TaskNotRetainedError(DiagnosticError, TypeError):
    """A described task was called; its arguments were released when its computation stopped."""


class UnknownColumnError(DiagnosticError, KeyError):
    """A table does not have the column; the message lists the columns of the table."""


class UnknownKeywordError(DiagnosticError, AttributeError):
    """An unknown keyword argument was passed to a plot."""


def number(name: str, value: float, meaning: str, above: float, or_equal: bool = False) -> float:
    """Return `value` if it is a finite number above a bound.

    Raises
    ------
    ArgumentTypeError
        If the value is not a number.
    ArgumentValueError
        If the value is not finite, or not above the bound.
    """
    bound = f"{'at least' if or_equal else 'above'} {above:g}"
    message = f"{name}: expected {meaning}, a number {bound}, found {value!r}"
    try:
        fits = isfinite(value) and (value >= above if or_equal else value > above)
    except (TypeError, OverflowError):
        raise ArgumentTypeError(message) from None
    if not fits:
        raise ArgumentValueError(message)
    return value


def text(name: str, value: object, example: str) -> str:
    """Return `value` if it is text.

    Raises
    ------
    ArgumentTypeError
        If the value is not text.
    """
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{name}: expected text, such as {example!r}, found {value!r}")
    return value


def import_optional(module: str, by: str, instead: str) -> Any:
    """A module of an optional library.

    Parameters
    ----------
    module : str
    by : str
        The feature that needs the module, for the error.
    instead : str
        A feature without it, for the error.

    Raises
    ------
    MissingDependencyError
        If the module is not installed; the message has the line that installs it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise MissingDependencyError(
            f"{by} needs {library}: pip install {library}; {instead}"
        ) from error
