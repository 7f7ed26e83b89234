"""What workers of clusters are called: one name for each, whichever client reports it."""

from __future__ import annotations

import threading
from collections.abc import Collection
from math import inf

__all__ = ["WorkerNames"]


class _Named:
    """A worker that has a label; times are this process's.

    Attributes
    ----------
    numbers : dict of str to int
        What plugins number it, by plugin.
    until : float
        When it left, or when the last client that saw it was gone; infinite while it is there.
    """

    __slots__ = ("joined", "label", "numbers", "until")

    def __init__(self, label: str, joined: float) -> None:
        self.label, self.joined = label, joined
        self.numbers: dict[str, int] = {}
        self.until = inf


class WorkerNames:
    """Gives each worker a label of its own, as long as a diagnostic is active.

    Each client numbers the workers that it knows, and two clusters may have workers of the same
    name: an address is what they do not share. A worker that is restarted may come back at the
    address of the one before.
    """

    def __init__(self) -> None:
        self._named: dict[tuple[str, str], list[_Named]] = {}
        self._counts: dict[str, int] = {}
        # Clients may have event loops on several threads.
        self._lock = threading.Lock()

    def label(
        self,
        scheduler: str,
        plugin: str,
        *,
        number: int,
        address: str,
        name: str,
        joined: float,
        left: float | None,
    ) -> str:
        """The label of a worker of a cluster: its name, and a number if that was taken."""
        with self._lock:
            at_address = self._named.setdefault((scheduler, address), [])
            until = inf if left is None else left
            named = _of(at_address, plugin, number, joined, until)
            if named is None:
                named = _Named(self._new_label(name), joined)
                at_address.append(named)
            if plugin:
                named.numbers[plugin] = number
            named.until = until
            return named.label

    def leave(self, labels: Collection[str], time: float) -> None:
        """A client is gone: whether these workers are still there is not known any more."""
        with self._lock:
            for at_address in self._named.values():
                for named in at_address:
                    if named.label in labels:
                        named.until = min(named.until, time)

    def _new_label(self, name: str) -> str:
        usual = f"worker-{name}" if name.isdigit() else name
        count = self._counts[usual] = self._counts.get(usual, 0) + 1
        return f"{usual} ({count})" if count > 1 else usual


def _of(
    at_address: list[_Named], plugin: str, number: int, joined: float, until: float
) -> _Named | None:
    """The one of the workers at an address that a plugin has by this number."""
    for named in at_address:
        if named.numbers.get(plugin) == number:
            return named
    for named in reversed(at_address):
        # Another plugin starts to number at 0: two workers at one address are not there at once.
        if plugin not in named.numbers and joined < named.until and named.joined < until:
            return named
    return None
