"""What workers of clusters are called: one name for each, whichever client reports it."""

from __future__ import annotations

import threading

__all__ = ["WorkerNames"]


class WorkerNames:
    """Gives each worker a label of its own, as long as a diagnostic is active.

    Each client numbers the workers that it knows, and two clusters may have workers of the same
    name: an address is what they do not share.
    """

    def __init__(self) -> None:
        self._labels: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        # Clients may have event loops on several threads.
        self._lock = threading.Lock()

    def label(self, scheduler: str, address: str, name: str) -> str:
        """The label of a worker of a cluster: its name, and a number if that was taken."""
        with self._lock:
            known = self._labels.get((scheduler, address))
            if known is not None:
                return known
            usual = f"worker-{name}" if name.isdigit() else name
            count = self._counts[usual] = self._counts.get(usual, 0) + 1
            label = f"{usual} ({count})" if count > 1 else usual
            self._labels[scheduler, address] = label
            return label
