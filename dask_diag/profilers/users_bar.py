"""A bar of the user's, of tqdm or rich, in place of the one that `ProgressBar` draws.

Neither library is imported: a bar is known by the methods that it has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Protocol, cast

from dask_diag.errors import ArgumentTypeError
from dask_diag.profilers.bar_line import Bar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["UsersBar"]

_DESCRIPTION = "Computing"


class UsersBar:
    """Shows how far computations are in a bar that belongs to the user, who closes it.

    The bar starts again with each computation. Computations that overlap are one in it: their tasks
    are added up.

    Parameters
    ----------
    bar : tqdm or rich.progress.Progress
    label : str
        The description, if any.
    fault : callable
        Called with the error if the bar raises one.

    Raises
    ------
    TypeError
        If it is neither.
    """

    def __init__(self, bar: object, label: str, fault: Callable[[Exception], None]) -> None:
        self._bar = _drawn_on(bar, label)
        self._fault = fault
        # Computations of clusters are shown by the threads of their clients.
        self._lock = threading.Lock()
        self._counts: dict[Hashable, Bar] = {}
        self._running: set[Hashable] = set()
        self._faults: list[str] = []

    def show(self, computation: Hashable, bar: Bar, ending: str | None = None) -> None:
        """Show how far a computation is; with an `ending`, empty if all is well, the last time."""
        with self._lock:
            try:
                self._show(computation, bar, ending)
            except Exception as error:
                self._fault(error)

    def _show(self, computation: Hashable, bar: Bar, ending: str | None) -> None:
        if not self._running:
            self._counts, self._faults = {}, []
            self._bar.restart(bar.total, bar.elapsed)
        self._counts[computation] = bar
        self._running.add(computation)
        bars = self._counts.values()
        share = bar.share if len(bars) == 1 else None
        cpu = "" if share is None else f"{share:.0%} CPU"
        self._bar.show(sum(bar.done for bar in bars), sum(bar.total for bar in bars), cpu)
        if ending is None:
            return
        self._running.discard(computation)
        self._faults += [ending] if ending else []
        if not self._running:
            self._bar.end(cpu, ", ".join(dict.fromkeys(self._faults)))


class _Drawn(Protocol):
    """What draws on a bar."""

    def restart(self, total: int, elapsed: float) -> None:
        """Begin with a computation that started `elapsed` seconds ago."""

    def show(self, done: int, total: int, cpu: str) -> None:
        """Show how many tasks are done."""

    def end(self, cpu: str, failure: str) -> None:
        """Show what was shown last, and what failed, if anything did."""


class _TqdmBar(Protocol):
    """What is used of a bar of tqdm."""

    n: float
    total: float | None
    initial: float
    disable: bool
    start_t: float
    last_print_t: float

    def reset(self, total: float) -> None: ...

    def update(self, n: float) -> object: ...

    def refresh(self) -> object: ...

    def set_description_str(self, desc: str, refresh: bool) -> None: ...

    def set_postfix_str(self, s: str, refresh: bool) -> None: ...


class _Tqdm:
    """Draws on a bar of tqdm."""

    def __init__(self, bar: _TqdmBar, label: str) -> None:
        self._bar = bar
        self._label = label

    def restart(self, total: int, elapsed: float) -> None:
        if self._label:
            self._bar.set_description_str(self._label, refresh=False)
        self._bar.set_postfix_str("", refresh=False)
        self._bar.initial = 0
        self._bar.reset(total=total)
        if not self._bar.disable:
            # Its rate is of the time from here on.
            self._bar.start_t -= elapsed
            self._bar.last_print_t -= elapsed

    def show(self, done: int, total: int, cpu: str) -> None:
        self._bar.total = total
        self._bar.set_postfix_str(cpu, refresh=False)
        self._bar.update(done - self._bar.n)

    def end(self, cpu: str, failure: str) -> None:
        self._bar.set_postfix_str(", ".join(filter(None, (cpu, failure))), refresh=False)
        self._bar.refresh()


class _Rich:
    """Draws a task of a Progress of rich; that of a computation that failed stays."""

    def __init__(self, progress: Progress, label: str) -> None:
        self._progress = progress
        self._label = label or _DESCRIPTION
        self._task: TaskID | None = None

    def restart(self, total: int, elapsed: float) -> None:
        if self._task is None or self._task not in self._progress.task_ids:
            self._task = self._progress.add_task(self._label, total=total, cpu="")
        else:
            self._progress.reset(self._task, total=total, description=self._label, cpu="")
        for task in self._progress.tasks:
            if task.id == self._task and task.start_time is not None:
                task.start_time -= elapsed

    def show(self, done: int, total: int, cpu: str) -> None:
        assert self._task is not None
        self._progress.update(self._task, total=total, completed=done, cpu=cpu)

    def end(self, cpu: str, failure: str) -> None:
        if failure and self._task is not None:
            self._progress.update(self._task, description=f"{self._label}: {failure}")
            self._progress.stop_task(self._task)
            self._task = None
        self._progress.refresh()


def _drawn_on(bar: object, label: str) -> _Drawn:
    if all(hasattr(bar, name) for name in ("add_task", "update", "reset", "stop_task")):
        return _Rich(cast("Progress", bar), label)
    if all(hasattr(bar, name) for name in ("reset", "update", "refresh", "set_postfix_str")):
        return _Tqdm(cast("_TqdmBar", bar), label)
    raise ArgumentTypeError(f"bar: expected a bar of tqdm or a Progress of rich, found {bar!r}")
