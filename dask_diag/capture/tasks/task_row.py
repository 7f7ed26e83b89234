"""The row of a task: its times, as numbers; and how it ended, if it was not simply done."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from dask_diag.capture.tasks.failure import NO_FAILURE, Failure

__all__ = ["ROW", "Exceptional", "pack_row", "ran_on_of_first"]

# Numbers are packed and keys are marshalled: an object per number would cost memory, and one that
# holds others time in every later run of the garbage collector.
ROW = Struct("6d")
pack_row = ROW.pack
"""A task's row: submitted, start, stop, thread CPU, what ran it, collected. NaN is not known.

What ran it is a thread's ident, as the worker gave it to the scheduler, or the pid of a worker
process (see `ComputationInfo.remote_workers`); 0 where the scheduler asks no worker who it is.
"""


def ran_on_of_first(rows: Sequence[bytes]) -> float:
    """What ran the first task; 0 if there is none, or it is not known."""
    ran_on: float = ROW.unpack(rows[0])[4] if rows else 0.0
    return ran_on


class Exceptional(NamedTuple):
    """How a task ended that was not simply done."""

    outcome: str
    error: str
    failure: Failure = NO_FAILURE
