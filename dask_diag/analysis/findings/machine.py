"""The finding on other programs that use the CPUs."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.findings.cpu_waits import cpu_waits, seconds_saved_without
from dask_diag.analysis.findings.finding import (
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
    waits = cpu_waits(analysis)
    waited_for = "waited {} for"
    if not analysis.seconds_waited:
        used = np.nansum([others, *computations.process_cpu, *computations.children_cpu])
        if used < NO_CPU_LEFT * available:
            return None
        waited_for = "were off-CPU for {}, perhaps waiting for"
    share = waits.others / analysis.in_tasks if analysis.in_tasks else 0.0
    if share < WAITED_FOR_OTHERS:
        return None
    severity = severity_of_share(share) if analysis.seconds_waited else severity_of_guess(share)
    saved, kind = seconds_saved_without(analysis, waits.others, waits.waited, idle_machine=True)
    return Finding(
        "busy-machine",
        severity,
        saved,
        # Each of several computations at once has all of it.
        f"Other programs used {seconds(others / analysis.overlap)} of CPU meanwhile, "
        f"{percent(others / available)} of "
        f"{analysis.cpus} CPUs; tasks {waited_for.format(seconds(waits.waited))} a CPU",
        "measure again when the machine is idle; else use no more workers than there are free CPUs",
        kind=kind,
        where=where_of_tasks(analysis.recording, analysis.waits_of_tasks(Activity.CPU_WAIT)),
    )
