"""Libraries that not everyone has, imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dask_diag.errors import MissingDependencyError

__all__ = ["import_optional"]


def import_optional(module: str, by: str, instead: str) -> Any:
    """A module of an optional library.

    Parameters
    ----------
    module : str
    by : str
        What needs it, for the error.
    instead : str
        What does without it, for the error.

    Raises
    ------
    MissingDependencyError
        If it is not installed; the message has the line that installs it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise MissingDependencyError(
            f"{by} needs {library}: pip install {library}; {instead}"
        ) from error
