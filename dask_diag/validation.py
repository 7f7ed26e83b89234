"""Checks of what users pass in: what was expected, what was found, what to do."""

from __future__ import annotations

from math import isfinite

from dask_diag.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["number", "text"]


def number(name: str, value: float, meaning: str, above: float, or_equal: bool = False) -> float:
    """`value`, if it is a finite number above a bound.

    Raises
    ------
    ArgumentTypeError
        If it is not a number.
    ArgumentValueError
        If it is not finite, or not above the bound.
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
    """`value`, if it is text.

    Raises
    ------
    ArgumentTypeError
        If it is not.
    """
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{name}: expected text, such as {example!r}, found {value!r}")
    return value
