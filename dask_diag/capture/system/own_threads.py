"""The threads of this package, whose CPU is known to the last also after they have ended."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from time import thread_time
from typing import NamedTuple

__all__ = ["OWN_THREADS", "OwnThread", "OwnThreads"]

OWN_THREADS = "dask_diag-"
"""How the names of all threads of this package start."""

_live: dict[int, str] = {}
_ended: dict[str, float] = {}
_lock = threading.Lock()


class OwnThread(threading.Thread):
    """A daemon thread of this package.

    Parameters
    ----------
    purpose : str
        What it is for, in one word: its name ends with it.
    target : callable
    args : iterable
        Passed to `target`.
    """

    def __init__(
        self, purpose: str, target: Callable[..., object], args: Iterable[object] = ()
    ) -> None:
        super().__init__(target=target, args=args, name=OWN_THREADS + purpose, daemon=True)

    def run(self) -> None:
        """Run the target, and note what it used."""
        native_id = threading.get_native_id()
        with _lock:
            _live[native_id] = self.name
        try:
            super().run()
        finally:
            with _lock:
                _ended[self.name] = _ended.get(self.name, 0.0) + thread_time()
                _live.pop(native_id, None)


class OwnThreads(NamedTuple):
    """Names of the live threads of this package by native id; CPU seconds of ended ones by name."""

    live: dict[int, str]
    ended: dict[str, float]

    @classmethod
    def now(cls) -> OwnThreads:
        """As it is now."""
        with _lock:
            return cls(dict(_live), dict(_ended))


def _after_fork() -> None:
    """The child of a fork has none of these threads; the lock may have been held."""
    global _lock
    _lock = threading.Lock()
    _live.clear()
    _ended.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
