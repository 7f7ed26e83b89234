"""A task that was submitted and not collected, read while it may be collected at any moment."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from dask_diag.capture.tasks.metered import Metered
from dask_diag.capture.tasks.remote_task import Transfer
from dask_diag.capture.tasks.task_row import Exceptional, pack_row
from dask_diag.capture.tasks.timed_task import TimedTask
from dask_diag.schema import Outcome

__all__ = ["InFlight", "in_flight_of", "outcome_of"]

INTERRUPTIONS = {"KeyboardInterrupt", "SystemExit"}
"""Exceptions that end a task which did not fail."""

_NAN = float("nan")


class InFlight(NamedTuple):
    """A task that was submitted and not collected, as it was at one moment."""

    key: Hashable
    submitted: float
    start: float
    stop: float
    cpu: float
    ran_on: int
    outcome: Exceptional
    metered: Metered | None
    transfer: Transfer | None

    def row(self) -> bytes:
        """Its `ROW`."""
        return pack_row(self.submitted, self.start, self.stop, self.cpu, self.ran_on, _NAN)


def in_flight_of(wrapper: TimedTask, thread: int) -> InFlight | None:
    """The task in a wrapper, of which `thread` (if not 0) runs it now; None if it was collected."""
    task = wrapper.task
    start, stop = wrapper.start, wrapper.stop
    in_flight = InFlight(
        key=wrapper.key,
        submitted=wrapper.submitted,
        start=_NAN if start is None else start,
        stop=_NAN if stop is None else stop,
        cpu=_NAN if stop is None else wrapper.cpu,
        ran_on=0 if start is None else thread or wrapper.thread,
        outcome=outcome_of(wrapper),
        metered=wrapper.metered,
        transfer=wrapper.transfer,
    )
    # The task is the last that is put into a wrapper, and the first that is taken out: if it is the
    # same before and after, all that was read between is its own.
    return in_flight if task is not None and wrapper.task is task else None


def outcome_of(wrapper: TimedTask) -> Exceptional:
    """How a task ended that the scheduler has not collected."""
    if wrapper.error:
        is_interrupted = wrapper.error in INTERRUPTIONS
        outcome = Outcome.UNFINISHED if is_interrupted else Outcome.FAILED
        return Exceptional(outcome, wrapper.error, wrapper.failure)
    return Exceptional(Outcome.UNFINISHED if wrapper.stop is None else Outcome.OK, "")
