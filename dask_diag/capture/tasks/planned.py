"""How many tasks of each function a scheduler is to run, known before the first of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from operator import itemgetter

from dask_diag.capture.dask_internals import SchedulerState
from dask_diag.capture.tasks.keys import function_of, function_of_key

__all__ = ["PlannedTasks", "count_functions", "tasks_not_submitted"]


class PlannedTasks:
    """The tasks of a computation before it starts; counted by function when first asked.

    The scheduler's thread only copies references to the keys: the first reader counts them.

    Parameters
    ----------
    keys : list of hashable
    """

    __slots__ = ("_functions", "_keys", "total")

    def __init__(self, keys: list[Hashable]) -> None:
        self.total = len(keys)
        self._keys = keys
        self._functions: Mapping[str, int] | None = None

    def by_function(self, dsk: Mapping[Hashable, object]) -> Mapping[str, int]:
        """How many tasks of each function; `dsk` is the graph, which is read the first time."""
        if self._functions is None:
            self._functions = count_functions(self._keys, dsk)
            self._keys = []
        return self._functions


def tasks_not_submitted(state: SchedulerState) -> list[Hashable]:
    """The keys of the tasks that the scheduler has not handed out; it is the scheduler that asks.

    Before it has handed out any, these are all.
    """
    return [*state.get("waiting", ()), *state.get("ready", ())]


def count_functions(keys: Sequence[Hashable], dsk: Mapping[Hashable, object]) -> Mapping[str, int]:
    """How many of the keys each function has, as `tasks.function` names it."""
    # Collections give all keys of one function the same first item: few have to be split.
    tuples = [key for key in keys if type(key) is tuple and key]
    heads = Counter(map(itemgetter(0), tuples))
    counts: Counter[str] = Counter()
    for head, count in heads.items():
        counts[function_of_key((head,))] += count
    if len(tuples) < len(keys):
        others = [key for key in keys if type(key) is not tuple or not key]
        counts.update(function_of(key, dsk.get(key)) for key in others)
    return dict(counts)
