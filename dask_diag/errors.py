"""What this package raises: one base class, so that a caller can catch it all."""

from __future__ import annotations

__all__ = [
    "DiagnosticError",
    "MissingDependencyError",
    "RecordingFileError",
    "SchemaError",
    "TaskNotRetainedError",
    "UnknownKeywordError",
]


class DiagnosticError(Exception):
    """Base class of every error that dask_diag raises on purpose."""


class MissingDependencyError(DiagnosticError, ImportError):
    """An optional library is needed and missing; the message has the line that installs it."""


class RecordingFileError(DiagnosticError):
    """A file cannot be written, or holds no recording that can be read; the message says more."""


class SchemaError(DiagnosticError, ValueError):
    """A table has not the columns that the schema names; the message says which."""


class TaskNotRetainedError(DiagnosticError, TypeError):
    """A described task was called; its arguments were released when its computation stopped."""


class UnknownKeywordError(DiagnosticError, AttributeError):
    """A keyword was given that neither a picture nor bokeh's figure knows."""
