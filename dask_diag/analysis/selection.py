"""Which samples of stacks to show: those of a range of time, a root, a function, or a task."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np

from dask_diag.analysis.functions import expect_functions
from dask_diag.columns import BoolArray, FloatArray
from dask_diag.errors import DiagnosticError
from dask_diag.model.tables import Samples
from dask_diag.schema import ROOTS, Root

__all__ = ["ALL_SAMPLES", "SAMPLES_OF_TASKS", "Selection"]


@dataclass(frozen=True)
class Selection:
    """Samples in a range of time, of a root, of the tasks of a function, of the task of a key.

    What is None is not restricted. Two selections are equal if they select the same.

    Parameters
    ----------
    start, stop : float, optional
        The range of time, in the recording's seconds.
    function : str, optional
        Only tasks of this function.
    key : object, optional
        Only the task of this key, as it is or as text; ``""`` for tasks that were not tracked
        individually.
    root : str, optional
        Only samples of this root, one of `dask_diag.schema.ROOTS`. With `function` or `key` only
        tasks are selected.

    Raises
    ------
    DiagnosticError
        If a time is no number, the range stops before it starts, or there is no such root.
    """

    start: float | None = None
    stop: float | None = None
    function: str | None = None
    key: object = None
    root: str | None = None

    def __post_init__(self) -> None:
        if self.root is not None and self.root not in ROOTS:
            raise DiagnosticError(f"root: expected one of {', '.join(ROOTS)}, found {self.root!r}")
        for name, time in (("start", self.start), ("stop", self.stop)):
            if time is not None and not _is_time(time):
                raise DiagnosticError(
                    f"{name}: expected a time in seconds of the recording, found {time!r}"
                )
        if self.start is not None and self.stop is not None and self.stop < self.start:
            raise DiagnosticError(
                f"stop: expected a time at or after start, {self.start} s, found {self.stop} s"
            )
        if (self.function is not None or self.key is not None) and self.root is None:
            object.__setattr__(self, "root", Root.TASKS)
        if self.key is not None:
            # Recordings have keys as text, so ("x", 0) and "('x', 0)" select the same task.
            object.__setattr__(self, "key", str(self.key))

    def shares(self, samples: Samples) -> FloatArray:
        """How much of each sample is selected, from 0 to 1: the share of its cycle in the range.

        Raises
        ------
        DiagnosticError
            If no sample is of that function, or has that key.
        """
        share = self._shares_of_time(samples)
        if self.root is not None:
            share = share * samples.root.where(self.root)
        if self.function is not None:
            of_tasks = samples.function[samples.root.where(Root.TASKS)]
            expect_functions([self.function], of_tasks, "function")
            share = share * samples.function.where(self.function)
        return share if self.key is None else share * self._has_key(samples)

    def _shares_of_time(self, samples: Samples) -> FloatArray:
        start = samples.start if self.start is None else np.maximum(samples.start, self.start)
        stop = samples.stop if self.stop is None else np.minimum(samples.stop, self.stop)
        length = samples.stop - samples.start
        # A cycle without length is in the range or not.
        inside = np.where(
            length > 0, (stop - start) / np.where(length > 0, length, 1.0), stop >= start
        )
        return np.clip(inside, 0.0, 1.0)

    def _has_key(self, samples: Samples) -> BoolArray:
        has_key: BoolArray = samples.key.where(self.key)
        if not has_key.any():
            raise DiagnosticError(
                f"key: no sample has {self.key!r}. Only tasks longer than a quarter of the cycle "
                "are attributed individually; shorten it with SamplingProfiler(cycle=...)"
            )
        return has_key


def _is_time(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and float(value) == value


ALL_SAMPLES = Selection()
SAMPLES_OF_TASKS = Selection(root=Root.TASKS)
