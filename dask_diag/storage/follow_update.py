"""What one poll of a file that is followed has found."""

from __future__ import annotations

from typing import NamedTuple

from dask_diag.storage.chunks import Chunk

__all__ = ["FollowState", "Update"]


class FollowState:
    """What a file that is followed can be."""

    WAITING = "waiting"
    """There is none yet, or nothing in it."""
    GROWING = "growing"
    COMPLETE = "complete"
    TRUNCATED = "truncated"
    """Its writer ended without closing it."""
    DAMAGED = "damaged"
    """It was closed and has changed since."""
    NOT_A_RECORDING = "not a recording"


class Update(NamedTuple):
    """What a poll found.

    Attributes
    ----------
    fresh : bool
        Whether the chunks are those of another recording, or of the same from its beginning: all
        that came before is to be forgotten.
    chunks : list of Chunk
        New rows that stay.
    provisional : Chunk or None
        Rows that are true for now, in place of those of the poll before.
    state : str
        One of `FollowState`.
    behind : bool
        Whether there is more to be read at once.
    quiet : float
        Seconds for which the file has not changed.
    problem : str
        Why it is not a recording; of one that grows, what keeps it from being read.
    """

    fresh: bool
    chunks: list[Chunk]
    provisional: Chunk | None
    state: str
    behind: bool = False
    quiet: float = 0.0
    problem: str = ""
