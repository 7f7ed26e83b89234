"""How far computations are, and about how long the one that runs still takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from toolz import merge_with

from dask_diag.live.rows import LiveRows
from dask_diag.schema import ProgressPhase

__all__ = ["LEAST_SECONDS", "LEAST_SHARE", "ComputationProgress", "Progress", "seconds_left"]

LEAST_SHARE, LEAST_SECONDS = 0.05, 10.0
"""Of a computation, before there is an estimate."""


@dataclass
class ComputationProgress:
    """How far one computation is.

    Attributes
    ----------
    phase : str
        One of `ProgressPhase`.
    since : float
        When the phase started.
    total, finished, ready, waiting, running : int
        Of its tasks.
    planned : dict
        Tasks by function.
    done, seconds : dict
        Tasks that were recorded, and their seconds, by function.
    """

    phase: str = ProgressPhase.TASKS
    since: float = 0.0
    total: int = 0
    finished: int = 0
    ready: int = 0
    waiting: int = 0
    running: int = 0
    planned: dict[str, int] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return min(1.0, self.finished / self.total) if self.total else 0.0


class Progress:
    """The computations that run, by name; those that have ended are only counted."""

    def __init__(self) -> None:
        self.running: dict[str, ComputationProgress] = {}
        self.planned: dict[str, int] = {}
        self.ended = 0
        self._live: dict[str, ComputationProgress] = {}

    def add(self, chunk: LiveRows) -> None:
        """Rows that stay: tasks that were recorded, computations that have ended."""
        tasks = chunk.tasks
        if len(tasks):
            self._add_tasks(chunk)
        for row in chunk.planned.to_dicts():
            function = str(row["function"])
            self.planned[function] = self.planned.get(function, 0) + row["tasks"]
        for name in chunk.computations.computation.tolist():
            self.ended += 1
            self._live.pop(str(name), None)

    def _add_tasks(self, chunk: LiveRows) -> None:
        tasks = chunk.tasks
        names, functions = tasks.computation.values, tasks.function.values
        pairs = tasks.computation.codes.astype(np.int64) * len(functions) + tasks.function.codes
        counts = np.bincount(pairs)
        seconds = np.bincount(pairs, np.nan_to_num(tasks.stop - tasks.start))
        for pair in np.flatnonzero(counts).tolist():
            computation, function = divmod(pair, len(functions))
            live = self._live.setdefault(str(names[computation]), ComputationProgress())
            name = str(functions[function])
            live.done[name] = live.done.get(name, 0) + int(counts[pair])
            live.seconds[name] = live.seconds.get(name, 0.0) + float(seconds[pair])

    def show(self, provisional: LiveRows) -> None:
        """Rows that are true for now."""
        self.running = {}
        for row in provisional.progress.to_dicts():
            name = str(row["computation"])
            live = self._live.setdefault(name, ComputationProgress()) if name else None
            live = live or ComputationProgress()
            live.phase, live.since = str(row["phase"]), float(row["since"])
            live.total = int(row["total"])
            # It never falls, whenever what was read.
            live.finished = max(live.finished, int(row["finished"]))
            live.ready, live.waiting = int(row["ready"]), int(row["waiting"])
            live.running = int(row["running"])
            live.planned = {}
            self.running[name] = live
        for row in provisional.planned.to_dicts():
            name = str(row["computation"])
            if name in self.running:
                self.running[name].planned[str(row["function"])] = int(row["tasks"])

    def planned_by_function(self) -> Mapping[str, int]:
        """Tasks of all computations, those that have ended included."""
        running = (live.planned for live in self.running.values())
        planned: Mapping[str, int] = merge_with(sum, self.planned, *running)
        return planned


def seconds_left(progress: ComputationProgress, now: float) -> float | None:
    """About how long it still takes; None as long as that is a guess.

    The tasks that are left take as long as others of their function did. They are divided among
    workers as the tasks so far were: what the scheduler takes between tasks is so included.
    """
    elapsed = now - progress.since
    worked = sum(progress.seconds.values())
    if (
        progress.phase != ProgressPhase.TASKS
        or progress.share < LEAST_SHARE
        or elapsed < LEAST_SECONDS
        or worked <= 0
    ):
        return None
    usual = worked / sum(progress.done.values())
    seconds = 0.0
    for function, tasks in progress.planned.items():
        done = progress.done.get(function, 0)
        seconds_per_task = progress.seconds[function] / done if done else usual
        seconds += max(0, tasks - done) * seconds_per_task
    return seconds * elapsed / worked
