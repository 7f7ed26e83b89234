"""Keeps a model up to date with a file: what a terminal's view and a page's server share."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic

from dask_diag.errors import RecordingFileError
from dask_diag.live.model import COLUMNS, PROVISIONAL_COLUMNS, LiveModel
from dask_diag.storage.follow import Follower, FollowState

PERIOD = 1.0
"""Seconds from one poll to the next: a little more than from one write of `record` to the next, as
each poll that finds something has to decode it."""


def check_file(path: str) -> None:
    """Refuse what is no recording, or cannot be read: nobody wants to wait until it is replaced.

    Parameters
    ----------
    path : str

    Raises
    ------
    RecordingFileError
        If there is such a file. One that is empty, or that is still to come, is none.
    """
    update = Follower(path, columns={}, provisional_columns={}).poll()
    if update.state == FollowState.NOT_A_RECORDING:
        raise RecordingFileError(update.problem)


class Viewer:
    """A follower and its model.

    Parameters
    ----------
    path : str or os.PathLike
    clock : callable, optional
        Seconds.
    follower : Follower, optional
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], float] = monotonic,
        follower: Follower | None = None,
    ) -> None:
        self._clock = clock
        self._follower = follower or Follower(
            path, clock=clock, columns=COLUMNS, provisional_columns=PROVISIONAL_COLUMNS
        )
        self.model = LiveModel()
        self._seen = (0.0, clock())
        self._fits = True

    @property
    def name(self) -> str:
        """Of the file."""
        return self._follower.path.name

    def poll(self) -> None:
        """Read what is new, until there is no more."""
        while True:
            update = self._follower.poll()
            self._fits |= update.fresh
            if not self._fits and update.state != FollowState.WAITING:
                # What comes after a chunk that does not fit does not, either.
                return
            try:
                self.model.apply(update)
            except Exception as error:
                # Every chunk is as it was written: another program wrote them.
                self._fits = False
                self.model.revision += 1
                self.model.state = FollowState.NOT_A_RECORDING
                self.model.problem = f"its chunks do not fit together ({error})"
                return
            if not update.behind:
                break
        if self.model.stop != self._seen[0]:
            self._seen = (self.model.stop, self._clock())

    @property
    def now(self) -> float:
        """The present in the recording's seconds: what was written last, and the time since."""
        stop, seen = self._seen
        return stop + (self._clock() - seen if self.is_growing else 0.0)

    @property
    def is_growing(self) -> bool:
        """Whether more is to come."""
        return self.model.state == FollowState.GROWING

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come, unless another recording takes its place."""
        return self.model.is_over
