"""How often something may be done that is to take no more than a share of the time."""

from __future__ import annotations

import gc
from time import thread_time

__all__ = ["ShareOfTime"]


class ShareOfTime:
    """Measures what is done in its block, and how long to pause for that.

    What counts is the CPU time of the thread: the rest of the time others had the CPU or the GIL.
    It may happen that in the block all objects of a large program are looked at for garbage. That
    takes a second, and is no reason for a pause of minutes: such a block says nothing of the next.

    Parameters
    ----------
    share : float
        Of the time, such as 0.02.
    seconds : float
        What it is expected to take at first.

    Attributes
    ----------
    seconds : float
        CPU seconds that it took when it was last known.
    """

    __slots__ = ("_cpu", "_share", "_younger", "seconds")

    def __init__(self, share: float, seconds: float = 0.0) -> None:
        self._share = share
        self.seconds = seconds
        self._cpu = 0.0
        self._younger = 0

    @property
    def pause(self) -> float:
        """Seconds from the start of a block to that of the next."""
        return self.seconds / self._share

    def __enter__(self) -> None:
        # A full collection sets the count of those of younger objects back to 0.
        self._younger, self._cpu = gc.get_count()[2], thread_time()

    def __exit__(self, *_: object) -> None:
        took = thread_time() - self._cpu
        if gc.get_count()[2] >= self._younger:
            self.seconds = took
