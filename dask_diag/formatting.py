"""Numbers with their units, as text: all numbers for readers are formatted here.

``views/formatting.js`` has the same rules for pages, and ``tests/formatting_cases.json`` holds both
to one table of cases. Measured numbers have three significant digits, zeros included, so that the
digits of a column align; counts are whole.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from math import isfinite, isnan

BYTES = "bytes"
"""The unit whose amounts are shown as sizes."""

# JavaScript rounds a tie away from zero, Python's own formats to even.
_THREE_DIGITS = Context(prec=3, rounding=ROUND_HALF_UP)
_PREFIXES = (("T", 12), ("G", 9), ("M", 6), ("k", 3))
"""Prefixes with their powers of ten."""
_UNITS_OF_TIME = (("s", 0), ("ms", -3), ("µs", -6), ("ns", -9))
_TENTH = Decimal("0.1")


def seconds(value: float) -> str:
    """A duration in seconds, as text in a suitable unit."""
    if not isfinite(value):
        return _not_finite(value, " s")
    exponent = _rounded(value).adjusted() if value else 0
    unit, power = next((u for u in _UNITS_OF_TIME if exponent >= u[1]), _UNITS_OF_TIME[-1])
    return f"{_digits(value, power) if value else '0'} {unit}"


def size(value: float) -> str:
    """Bytes, as text in a suitable unit of a power of a thousand."""
    return _prefixed(value, " ", "B")


def amount(value: float) -> str:
    """A number as text, with an SI prefix if it is large."""
    return _prefixed(value, "", "")


def quantity(value: float, unit: str) -> str:
    """An amount of any unit: bytes as a size, seconds as a duration, else with the unit."""
    if unit == BYTES:
        return size(value)
    if unit == "seconds":
        return seconds(value)
    text = amount(value)
    return text if not unit or isnan(value) else f"{text} {unit}"


def count(value: float) -> str:
    """A count as a whole number."""
    return f"{_rounded_half_up(value):,}" if isfinite(value) else _not_finite(value, "")


def counted(number: int, singular: str, plural: str = "") -> str:
    """A count with a noun: ``1 task``, ``2 tasks``, ``2 processes``."""
    several = plural or singular + ("es" if singular.endswith("s") else "s")
    return f"{count(number)} {singular if number == 1 else several}"


def percent(share: float) -> str:
    """A share as per cent: whole, or with a decimal below 1%."""
    if not isfinite(share):
        return _not_finite(share, "%")
    hundredths = 100 * float(share)
    if abs(hundredths) >= 0.95 or not share:
        return f"{_rounded_half_up(hundredths):,}%"
    if abs(hundredths) < 0.05:
        return "<0.1%" if share > 0 else ">-0.1%"
    return f"{Decimal(hundredths).quantize(_TENTH, ROUND_HALF_UP)}%"


def _prefixed(value: float, space: str, unit: str) -> str:
    if not isfinite(value):
        return _not_finite(value, space + unit)
    # Bytes and results are counted: 7, not 7.00.
    if abs(value) < 1000 and value == int(value):
        return f"{int(value)}{space}{unit}"
    exponent = _rounded(value).adjusted()
    prefix, power = next((p for p in _PREFIXES if exponent >= p[1]), ("", 0))
    return f"{_digits(value, power)}{space}{prefix}{unit}"


def _digits(value: float, power: int) -> str:
    """`value`, which is not zero, in units of ten to this power.

    Three significant digits; a whole number from a thousand on, an exponent below 0.001.
    """
    scaled = _rounded(value).scaleb(-power)
    exponent = scaled.adjusted()
    if exponent >= 3:
        return f"{_rounded_half_up(value / 10.0**power):,}"
    if exponent < -3:
        return f"{scaled.scaleb(-exponent):.2f}e{exponent}"
    return f"{scaled:.{2 - exponent}f}"


def _rounded(value: float) -> Decimal:
    """The three digits, found before the unit is: 999.6 ms is 1.00 s, never 1,000 ms."""
    return _THREE_DIGITS.create_decimal(Decimal(float(value)))


def _rounded_half_up(value: float) -> int:
    return int(Decimal(float(value)).to_integral_value(ROUND_HALF_UP))


def _not_finite(value: float, unit: str) -> str:
    if isnan(value):
        return "unknown"
    return f"{'-' if value < 0 else ''}∞{unit}"
