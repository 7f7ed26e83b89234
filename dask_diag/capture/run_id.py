"""The identity of a run: random text, for each process that records."""

from __future__ import annotations

import os

__all__ = ["run_id"]

_drawn: dict[str, str] = {}


def run_id() -> str:
    """16 hexadecimal digits, drawn when first asked for; a forked child draws its own.

    A pid does not identify a run: in containers every program has pid 1. The digits are the
    operating system's, so that a program which seeds `random` does not repeat them.
    """
    if not _drawn:
        # Of two threads that draw at the same time, the first decides.
        _drawn.setdefault("id", os.urandom(8).hex())
    return _drawn["id"]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drawn.clear)
