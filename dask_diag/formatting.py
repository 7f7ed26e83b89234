"""Numbers with their units, in words: one style, wherever a text has them."""

from __future__ import annotations

from math import isnan

__all__ = ["BYTES", "amount", "quantity", "seconds", "size"]

BYTES = "bytes"
"""The unit whose amounts are shown as sizes."""

_PREFIXES = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
_ROUNDED_UP = 0.9995
"""From this part of the next prefix on, three digits would be a thousand."""


def size(value: float) -> str:
    """Bytes with three digits, in the unit that suits them, of powers of a thousand."""
    return _short(value, " ", "B")


def amount(value: float) -> str:
    """A number with three digits, and an SI prefix if it is large."""
    return _short(value, "", "")


def quantity(value: float, unit: str) -> str:
    """An amount of any unit: bytes as a size, seconds as a duration, of others with the unit."""
    if unit == BYTES:
        return size(value)
    if unit == "seconds":
        return seconds(value)
    text = amount(value)
    return text if not unit or isnan(value) else f"{text} {unit}"


def seconds(value: float) -> str:
    """A duration in seconds with three digits, in the unit that suits it."""
    if isnan(value):
        return "unknown"
    if abs(value) >= _ROUNDED_UP * 1e3:
        return f"{value:,.0f} s"
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if abs(value) >= _ROUNDED_UP * factor:
            return f"{_digits(value / factor)} {unit}"
    return f"{_digits(value / 1e-6)} µs" if value else "0 s"


def _short(value: float, between: str, unit: str) -> str:
    if isnan(value):
        return "unknown"
    for prefix, factor in _PREFIXES:
        if abs(value) >= _ROUNDED_UP * factor:
            return f"{_digits(value / factor)}{between}{prefix}{unit}"
    return f"{_digits(value)}{between}{unit}"


def _digits(value: float) -> str:
    return f"{float(f'{value:.3g}'):g}"
