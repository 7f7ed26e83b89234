"""The finding on other programs that use the CPUs."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.findings.finding import (
    AT_MOST,
    Finding,
    severity_of_guess,
    severity_of_share,
)
from dask_diag.analysis.findings.where import where_of_tasks
from dask_diag.formatting import percent, seconds
from dask_diag.schema import Activity

__all__ = ["busy_machine"]

OTHERS = 0.1
"""Least share of the CPUs that other programs used."""
WAITED_FOR_OTHERS = 0.075
"""Least share of the tasks' time that they waited for CPUs which other programs used."""
NO_CPU_LEFT = 0.85
"""Without recorded waits: least share of the CPUs that was used, by whomever."""


def busy_machine(analysis: Analysis) -> Finding | None:
    """Other programs that took CPUs which tasks waited for."""
    computations = analysis.recording.computations
    others = float(np.nansum(computations.others_cpu))
    available = analysis.cpus * analysis.wall
    if others < OTHERS * available:
        return None
    if analysis.seconds_waited:
        waited, waited_for = analysis.seconds_waited.get(Activity.CPU_WAIT, 0.0), "waited {} for"
    elif others + float(np.nansum(computations.process_cpu)) < NO_CPU_LEFT * available:
        return None
    else:
        waited = max(0.0, float(np.nansum(analysis.recording.tasks.thread_noncpu)))
        waited_for = "were off-CPU for {}, perhaps waiting for"
    # What others did not use, they did not take.
    taken = min(waited, others)
    share = taken / analysis.in_tasks if analysis.in_tasks else 0.0
    if share < WAITED_FOR_OTHERS:
        return None
    severity = severity_of_share(share) if analysis.seconds_waited else severity_of_guess(share)
    return Finding(
        "busy-machine",
        severity,
        taken / analysis.at_once,
        f"Other programs used {seconds(others)} of CPU meanwhile, {percent(others / available)} of "
        f"{analysis.cpus} CPUs; tasks {waited_for.format(seconds(waited))} a CPU",
        "measure again when the machine is idle; else use no more workers than there are free CPUs",
        kind=AT_MOST,
        where=where_of_tasks(analysis.recording, analysis.waits_of_tasks(Activity.CPU_WAIT)),
    )
