"""What this package raises: one base class, so that a caller can catch it all."""

from __future__ import annotations

__all__ = [
    "ArgumentTypeError",
    "ArgumentValueError",
    "DiagnosticError",
    "MissingDependencyError",
    "NotRegisteredError",
    "RecordingFileError",
    "SchemaError",
    "TaskNotRetainedError",
    "UnknownColumnError",
    "UnknownKeywordError",
]


class DiagnosticError(Exception):
    """Base class of every error that dask_diag raises on purpose."""


class ArgumentTypeError(DiagnosticError, TypeError):
    """An argument is not of the type that was expected; the message says which."""


class ArgumentValueError(DiagnosticError, ValueError):
    """An argument has a value that makes no sense; the message says what was expected."""


class MissingDependencyError(DiagnosticError, ImportError):
    """An optional library is needed and missing; the message has the line that installs it."""


class NotRegisteredError(DiagnosticError, KeyError):
    """`unregister` was called of a profiler that is not registered, as dask raises KeyError."""


class RecordingFileError(DiagnosticError):
    """A file cannot be written, or holds no recording that can be read; the message says more."""


class SchemaError(DiagnosticError, ValueError):
    """A table has not the columns that the schema names; the message says which."""


class TaskNotRetainedError(DiagnosticError, TypeError):
    """A described task was called; its arguments were released when its computation stopped."""


class UnknownColumnError(DiagnosticError, KeyError):
    """A table has no such column; the message lists those that it has."""


class UnknownKeywordError(DiagnosticError, AttributeError):
    """A keyword was given that neither a picture nor bokeh's figure knows."""
