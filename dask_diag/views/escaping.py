"""Keys and names of functions, made safe to show anywhere."""

from __future__ import annotations

import re

_TOKEN = re.compile("[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}")


def shown(text: object, limit: int = 60) -> str:
    """`text` on one line, with unprintable characters spelled out, shortened in the middle.

    The result is not HTML: escape it where it meets HTML.
    """
    line = str(text)
    if len(line) > 2 * limit + 2:
        # Enough of both ends: a key may be of any length.
        line = line[: limit + 1] + line[-limit - 1 :]
    line = line if line.isprintable() else "".join(map(_printable, line))
    if len(line) <= limit:
        return line
    tail = (limit - 1) // 3
    return line[: limit - 1 - tail] + "…" + line[len(line) - tail :]


def short_key(key: str) -> str:
    """A key with hashes and identifiers shortened, whose digits say nothing to a reader."""
    return _TOKEN.sub(lambda match: f"{match[0][:6]}…", key)


def _printable(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]
