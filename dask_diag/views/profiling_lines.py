"""The lines of a summary on the profilers themselves: one on their cost, more if asked for."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.findings import Finding
from dask_diag.formatting import counted, percent, seconds
from dask_diag.schema import PROFILING
from dask_diag.views.escaping import shown

__all__ = ["is_about_profilers", "notice_text", "profiling_lines", "without_profilers"]

_DIAGNOSTIC = "late-samples"
"""The finding that is about a profiler; if it is severe, numbers are not to be relied on."""


def is_about_profilers(finding: Finding) -> bool:
    """Whether it is about a profiler and changes little of what was measured."""
    return finding.code == _DIAGNOSTIC and finding.severity == "low"


def without_profilers(notices: tuple[str, ...]) -> list[str]:
    """The notices that are needed to read the numbers."""
    return [notice for notice in notices if not notice.startswith(PROFILING)]


def notice_text(notice: str) -> str:
    """A notice as a reader sees it, without the mark of those about profilers."""
    return shown(notice.removeprefix(PROFILING), 400)


def profiling_lines(
    analysis: Analysis, verbose: bool, hidden: int = 0
) -> Iterator[tuple[str, str]]:
    """What profiling itself cost, of every recording with computations.

    Parameters
    ----------
    analysis : Analysis
    verbose : bool
        Whether to add how hooks were calibrated, and how much later than planned samples came.
    hidden : int
        How many findings and notices about profilers are shown with ``verbose`` alone.
    """
    if not len(analysis.recording.computations):
        return
    more = f"; {counted(hidden, 'remark')} on sampling with --verbose" if hidden else ""
    yield "Profiling", f"{_cost(analysis)}{more}"
    if verbose:
        yield from _hooks(analysis)
        yield from _delays(analysis)


def _cost(analysis: Analysis) -> str:
    hooks, threads = analysis.cpu_of_hooks, analysis.cpu_of_own_threads
    computations, unknown = analysis.recording.computations, []
    if np.isnan(computations.hooks_cpu).any():
        in_workers = " in worker processes" if "processes" in analysis.schedulers else ""
        unknown.append(f"hooks{in_workers}")
    elif np.isnan(computations.ends_cpu).any():
        unknown.append("hooks at the start and the end of computations")
    if isnan(threads):
        unknown.append("threads")
    known = {"hooks": hooks, "threads": threads}
    costs = [f"{seconds(cpu)} in {name}" for name, cpu in known.items() if not isnan(cpu)]
    texts = []
    if costs:
        most, share = analysis.most_cpu_of_profilers, percent(analysis.share_of_profilers)
        texts.append(
            f"at most {seconds(most)} of CPU, {share} of the wall time (about {' and '.join(costs)}"
            ", and what these slow down)"
        )
    if unknown:
        texts.append(f"not known: {' and '.join(unknown)}")
    return "; ".join(texts)


def _hooks(analysis: Analysis) -> Iterator[tuple[str, str]]:
    tasks, computations = len(analysis.recording.tasks), len(analysis.recording.computations)
    parts = []
    if not isnan(analysis.cpu_at_ends):
        each = seconds(analysis.cpu_at_ends / computations)
        parts.append(f"{each} of CPU a computation, measured")
    if tasks and not isnan(analysis.cpu_of_task_hooks):
        parts.append(
            f"{seconds(analysis.cpu_of_task_hooks / tasks)} of CPU a task, as calibrated before "
            "the first computation"
        )
    if parts:
        yield "Hooks", "; ".join(parts)


def _delays(analysis: Analysis) -> Iterator[tuple[str, str]]:
    delay = analysis.recording.resources.delay
    delay = delay[~np.isnan(delay)]
    if len(delay):
        yield (
            "Sampling",
            f"{counted(len(delay), 'sample')} of CPU and memory, later than planned by "
            f"{seconds(float(np.median(delay)))} (median), max {seconds(float(delay.max()))}",
        )
