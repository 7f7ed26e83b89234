"""What a chunk may refer to in the chunks before it, which its writer and its reader both have."""

from __future__ import annotations

from dask_diag.storage.recent_tasks import RecentTasks

__all__ = ["Preceding"]


class Preceding:
    """What is remembered of the chunks of one file, up to the last one that stays.

    Attributes
    ----------
    head : bytes
        The head of the last one: that of the next is nearly the same.
    tasks : RecentTasks
        To which the results of later ones refer.
    """

    def __init__(self) -> None:
        self.head = b""
        self.tasks = RecentTasks()

    def advance(self, head: bytes, tasks: RecentTasks) -> None:
        """Remember one more chunk, after which these are the tasks."""
        self.head, self.tasks = head, tasks.limited()
