"""The user's text, made safe to show anywhere: whatever is in a key or a function's name."""

from __future__ import annotations

from math import isnan

__all__ = ["seconds", "shown"]


def shown(text: object, limit: int = 60) -> str:
    """`text` on one line, what cannot be printed spelled out, shortened in the middle.

    It is not HTML: escape it where it meets HTML.
    """
    line = "".join(_printable(character) for character in str(text)[: 4 * limit + 200])
    whole = len(line) <= limit and len(str(text)) <= 4 * limit + 200
    if whole:
        return line
    tail = str(text)[-limit:]
    end = "".join(_printable(character) for character in tail)
    keep = max(limit - 1, 1)
    return line[: keep - keep // 3] + "…" + end[len(end) - keep // 3 :]


def _printable(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]


def seconds(value: float) -> str:
    """A duration in seconds with three digits, in the unit that suits it."""
    if isnan(value):
        return "unknown"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(value) >= size:
            return f"{value / size:,.3g} {unit}" if abs(value) < 1000 else f"{value:,.0f} s"
    return f"{value / 1e-6:.3g} µs" if value else "0 s"
