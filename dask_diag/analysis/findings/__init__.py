"""What cost time, or may mislead, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable

from dask_diag.analysis.findings.facts import Facts
from dask_diag.analysis.findings.finding import Finding
from dask_diag.analysis.findings.growth import memory_growth
from dask_diag.analysis.findings.pools import thread_oversubscription
from dask_diag.analysis.findings.scheduling import (
    imbalance,
    overlapping_computations,
    serial_chain,
    straggler,
    tasks_too_small,
)
from dask_diag.analysis.findings.state import failed_tasks, late_samples
from dask_diag.analysis.findings.waiting import (
    gil_bound,
    io_bound,
    serialization_bound,
)
from dask_diag.model.recording import Recording, expect_recording

__all__ = ["CODES", "Finding", "findings"]

LONG_ENOUGH = 0.1
"""Seconds of all computations below which time is not worth a finding."""

_ON_TIME: dict[str, Callable[[Facts], Finding | None]] = {
    "gil-bound": gil_bound,
    "thread-oversubscription": thread_oversubscription,
    "tasks-too-small": tasks_too_small,
    "serial-chain": serial_chain,
    "straggler": straggler,
    "imbalance": imbalance,
    "io-bound": io_bound,
    "serialization-bound": serialization_bound,
    "overlapping-computations": overlapping_computations,
}
_ON_STATE: dict[str, Callable[[Facts], Finding | None]] = {
    "memory-growth": memory_growth,
    "failed-tasks": failed_tasks,
    "late-samples": late_samples,
}
CODES = (*_ON_TIME, *_ON_STATE)
"""All codes; each has a page in the documentation."""


def findings(recording: Recording) -> list[Finding]:
    """What went wrong in a recording, the worst first.

    Parameters
    ----------
    recording : Recording
        With what only some profilers measure, more can be found: ``Profiler(waits=True)`` tells
        waits for the interpreter's lock and for processors, `ResourceProfiler` memory.

    Returns
    -------
    list of Finding
        Empty if nothing is worth telling.
    """
    expect_recording(recording)
    facts = Facts(recording)
    finders = list(_ON_STATE.values())
    if len(recording.tasks) and facts.wall >= LONG_ENOUGH:
        finders += _ON_TIME.values()
    found = [finder(facts) for finder in finders]
    return sorted((one for one in found if one is not None), key=lambda one: one.rank)
