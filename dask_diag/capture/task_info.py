"""Descriptions of tasks in `results`: the key and the function, without arguments."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NoReturn

from dask_diag.errors import TaskNotRetainedError
from dask_diag.hooks.stack import Task


class TaskInfo(Task):
    """Description of a task in `results`: the key and the name of the function.

    Attributes
    ----------
    key : hashable
        Key of the task.
    func : object
        Its ``__name__`` is the name of the function.

    Notes
    -----
    dask.diagnostics keeps the task itself, and all arrays among its arguments for as long as the
    profiler lives. A `TaskInfo` keeps none of them; calling it raises `TaskNotRetainedError`.
    """

    __slots__ = ()

    def __init__(self, key: Hashable, function: str) -> None:
        super().__init__(key, _NotRetained(function))

    def __repr__(self) -> str:
        return f"<Task {self.key!r} {self.func.__name__}(...)>"

    def __call__(self, values: object = ()) -> object:
        """Refuse: the arguments are gone."""
        return self.func()

    def __reduce__(self) -> tuple[object, ...]:
        return TaskInfo, (self.key, self.func.__name__)


class _NotRetained:
    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise TaskNotRetainedError(
            f"this only describes a task of {self.__name__}: profilers do not keep arguments, so "
            "it cannot be run; take the task from the graph you computed"
        )
