"""Which task of one recording is which task of another, and by how much their durations differ."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_diag.columns import FloatArray, IntArray
from dask_diag.model.tables import Tasks

__all__ = ["NO_TASKS", "TimedTasks", "paired_seconds", "timed_tasks"]


class TimedTasks(NamedTuple):
    """Some tasks whose durations are known.

    `key` and `position` are hashes: of the whole key, and of what follows the first element of a
    key such as ``('x-token', 0, 1)``, which is the same in each run of a program whose tokens are
    not. Where two hashes collide, a task is paired with another of its function: `paired_seconds`
    says why that does no harm.
    """

    seconds: FloatArray
    start: FloatArray
    key: IntArray
    position: IntArray

    def rows(self, selection: IntArray) -> TimedTasks:
        """The tasks in these rows."""
        return TimedTasks(
            self.seconds[selection],
            self.start[selection],
            self.key[selection],
            self.position[selection],
        )


_NO_SECONDS, _NO_HASHES = np.zeros(0), np.zeros(0, np.int64)
NO_TASKS = TimedTasks(_NO_SECONDS, _NO_SECONDS, _NO_HASHES, _NO_HASHES)


def timed_tasks(tasks: Tasks) -> TimedTasks:
    """A row for each row of `Recording.tasks`; ``seconds`` are NaN if a duration is not known."""
    keys = tasks.key.tolist()
    positions = (key.partition(", ")[2] if key.startswith("(") else "" for key in keys)
    return TimedTasks(
        seconds=tasks.stop - tasks.start,
        start=tasks.start,
        key=np.fromiter(map(hash, keys), np.int64, len(keys)),
        position=np.fromiter(map(hash, positions), np.int64, len(keys)),
    )


def paired_seconds(before: TimedTasks, after: TimedTasks) -> tuple[FloatArray, FloatArray] | None:
    """The durations of each task of a function and of its counterpart.

    Tasks of one function may be meant to differ in size, so they are no sample of one distribution.
    The durations of one task in two runs are: if nothing changed, their difference is as likely to
    be positive as negative, whatever the size of the task. Student's test holds for such
    differences, and even errs on the safe side where they vary unequally, as one large task then
    dominates the change and the standard error alike (Efron 1969, Benjamini 1983).

    To pair the wrong tasks of a function does no harm either, as long as their durations do not
    decide it: the sum of the differences is the same, and they only vary more. So tasks are paired
    by key if the keys are the same in both runs, else by position, and what is then still alike
    by the order in which it started.

    Returns
    -------
    pair of arrays or None
        None if one recording has more tasks than the other.
    """
    if len(before.seconds) != len(after.seconds):
        return None
    for name in ("key", "position"):
        identities = getattr(before, name), getattr(after, name)
        orders = [
            np.lexsort((tasks.start, identity))
            for tasks, identity in zip((before, after), identities, strict=True)
        ]
        if np.array_equal(identities[0][orders[0]], identities[1][orders[1]]):
            break
    else:
        orders = [np.argsort(tasks.start, kind="stable") for tasks in (before, after)]
    return before.seconds[orders[0]], after.seconds[orders[1]]
