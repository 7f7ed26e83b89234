"""What computations and the parts of the wall time and of workers' time are called in pictures."""

from __future__ import annotations

from dask_diag.model.recording import Recording
from dask_diag.schema import Activity

__all__ = ["name_of_part", "names_of_computations"]

_NAMES = {
    "before": "before the first computation",
    "preparing": "preparing, no task yet",
    "tasks": "tasks, not recorded",
    "between": "between computations",
    "after": "after the last computation",
    Activity.CPU: "tasks computing (CPU)",
    Activity.NONCPU: "tasks off the CPU",
    Activity.CPU_WAIT: "tasks waiting for a CPU",
    Activity.GIL_WAIT: "tasks waiting for the GIL",
    Activity.LOCK_WAIT: "tasks waiting for locks",
    Activity.IO_WAIT: "tasks waiting for I/O",
    Activity.CHILD_WAIT: "tasks waiting for programs",
    Activity.SLEEP: "tasks sleeping",
    Activity.DEVICE_WAIT: "tasks waiting for a device",
    Activity.PAGE_FAULT: "tasks waiting for memory",
    Activity.UNEXPLAINED: "tasks off the CPU, cause not sampled",
    Activity.SERIALIZE: "pickling",
    Activity.DESERIALIZE: "unpickling",
    Activity.TRANSFER: "no task: results on the way",
    Activity.SPILL: "no task: results to disk or back",
    Activity.FAILED: "tasks that failed",
    Activity.UNFINISHED: "tasks that did not finish",
    Activity.OVERHEAD: "no task: scheduler at work",
    Activity.STARTUP: "imports, processes start",
    Activity.PROFILERS: "no task: profilers at work",
    Activity.GRAPH: "no task: graph prepared",
    Activity.IDLE: "no task to run",
    Activity.OTHER: "not known",
}


def name_of_part(part: str) -> str:
    """The name of a phase or an activity; what tasks metered goes by the name they gave it."""
    return _NAMES.get(part, f"tasks in {part!r}")


def names_of_computations(recording: Recording) -> list[str]:
    """Computations by their spans; those without one are numbered, if there are several."""
    spans: list[str] = recording.computations.span.tolist()
    several = len(spans) > 1
    return [
        span or (f"computation {n}" if several else "computation")
        for n, span in enumerate(spans, 1)
    ]
