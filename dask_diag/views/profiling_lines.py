"""The lines of a summary on the profilers themselves: one on their cost, more if asked for."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.findings import Finding
from dask_diag.formatting import count, counted, percent, seconds
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
    in_hooks = "hooks in worker processes" if "processes" in analysis.schedulers else "hooks"
    unknown = [in_hooks] if np.isnan(analysis.recording.computations.hooks_cpu).any() else []
    costs = [] if isnan(hooks) else [f"{seconds(hooks)} of CPU in hooks"]
    if isnan(threads):
        unknown.append("threads")
    else:
        costs.append(f"{seconds(threads)} of CPU in threads")
    texts = []
    if costs:
        share = percent(analysis.share_of_profilers)
        texts.append(f"{' and '.join(costs)}: at most {share} of the wall time")
    if unknown:
        texts.append(f"not known: {' and '.join(unknown)}")
    return "; ".join(texts)


def _hooks(analysis: Analysis) -> Iterator[tuple[str, str]]:
    tasks = len(analysis.recording.tasks)
    if tasks and not isnan(analysis.cpu_of_hooks):
        yield (
            "Hooks",
            f"{seconds(analysis.cpu_of_hooks / tasks)} of CPU for each of {count(tasks)} tasks, "
            "as calibrated before the first computation",
        )


def _delays(analysis: Analysis) -> Iterator[tuple[str, str]]:
    delay = analysis.recording.resources.delay
    delay = delay[~np.isnan(delay)]
    if len(delay):
        yield (
            "Sampling",
            f"{counted(len(delay), 'sample')} of CPU and memory, later than planned by "
            f"{seconds(float(np.median(delay)))} (median), max {seconds(float(delay.max()))}",
        )
