"""What tasks of computations do again: counted as `cluster.repeated` does, and nothing kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from dask_diag.capture.keys import function_of_key
from dask_diag.hooks.stack import DataNode, Graph, Task, execute_subgraph
from dask_diag.model.codes import STORED_CHUNKS

if TYPE_CHECKING:
    from dask_diag.cluster.repeated import Again


class RepeatedStep(NamedTuple):
    """Steps of one name in the tasks of one function, and how many of them ran before.

    `calls` are the names of the functions that the step calls, separated by spaces.
    """

    function: str
    step: str
    calls: str
    runs: int
    repeats: int


class SeenSteps:
    """Hashes of the keys of steps in fused tasks, of all computations of a session."""

    __slots__ = ("_known", "_seen")

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._known: dict[tuple[RepeatedStep, ...], tuple[RepeatedStep, ...]] = {}

    def count(self, dsk: Graph) -> tuple[RepeatedStep, ...]:
        """Count steps that ran before, and reads of stored chunks, in the tasks of a graph."""
        # Without calls: most graphs have none, and it is asked for each task.
        found = [
            (key, task)
            for key, task in dsk.items()
            if type(task) is Task
            and (task.func is execute_subgraph or (task.args and type(task.args[0]) is Task))
        ]
        # One may be a stored array.
        has_data = any(type(node) is DataNode for node in dsk.values())
        if not found and not has_data:
            return ()
        from dask_diag.cluster.repeated import chunks_read_again, steps_again

        again = steps_again(found, self._seen)
        if has_data:
            again += chunks_read_again(dsk)
        rows = tuple(rows_of_steps(again))
        # Computations in a loop have equal counts: they share one object.
        return self._known.setdefault(rows, rows)


def rows_of_steps(found: Iterable[Again]) -> Iterator[RepeatedStep]:
    """Steps as rows, with the names of their functions."""
    for one in found:
        names = function_of_key((one.task,)), function_of_key((one.step,))
        yield RepeatedStep(*names, one.calls or STORED_CHUNKS, one.runs, one.repeats)
