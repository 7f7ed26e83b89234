"""What a chunk may refer to in the chunks before it, which its writer and its reader both have."""

from __future__ import annotations

__all__ = ["Preceding"]


class Preceding:
    """What is remembered of the chunks of one file, up to the last one that stays.

    Attributes
    ----------
    head : bytes
        The head of the last one: that of the next is nearly the same.
    """

    def __init__(self) -> None:
        self.head = b""
