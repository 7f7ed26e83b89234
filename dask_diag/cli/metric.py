"""A function that is named on the command line, as ``--metric`` names one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import cast

from dask_diag.cli.output import Failure, one_line

__all__ = ["function_named"]


def function_named(text: str) -> Callable[[object], float]:
    """The function of a module, named as ``module:function``; the module is imported.

    Raises
    ------
    Failure
        If there is none.
    """
    module, _, path = text.partition(":")
    if not module or not path:
        raise Failure(
            f"--metric: expected MODULE:FUNCTION, such as dask.sizeof:sizeof, found "
            f"{one_line(repr(text))}"
        )
    try:
        value: object = importlib.import_module(module)
        for name in path.split("."):
            value = getattr(value, name)
    except Exception as error:
        # A module that is imported may raise anything.
        why = f"{type(error).__name__}: {error}"
        raise Failure(f"--metric: cannot import {one_line(text)}: {one_line(why)}") from None
    if not callable(value):
        raise Failure(
            f"--metric: {one_line(text)} is not callable; name a function that takes a result and "
            "returns a number"
        )
    return cast("Callable[[object], float]", value)
