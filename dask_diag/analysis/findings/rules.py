"""All rules, and the findings of a recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isnan
from weakref import WeakKeyDictionary

from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings import (
    before,
    calls,
    client,
    cluster,
    computations,
    interpreter,
    locks,
    memory,
    moving,
    repeated,
    scheduling,
    state,
    uneven,
    waiting,
)
from dask_diag.analysis.findings.rule import Finding, Rule
from dask_diag.analysis.simulation.change import Changes
from dask_diag.model import codes
from dask_diag.model.codes import Activity
from dask_diag.model.recording import Recording

LONG_ENOUGH = 0.1
"""Seconds of all computations below which time is not worth a finding."""
NOTICED = 0.01
"""Least share of the time in computations that a finding has lost: less is noise."""
NOTICED_SECONDS = 0.005
"""Least seconds of it."""
OF_LARGEST = 0.03
"""Least share of the largest saving of all findings: less is not worth the reader's time."""
WITHOUT_TIME = frozenset({"failed-tasks", "worker-lost"})
"""Codes that matter whatever time was lost: a result is missing, or was computed twice."""

RULES: tuple[Rule, ...] = tuple(
    rule
    for subject in (
        *(repeated, computations, client, before, memory, scheduling, state),
        *(interpreter, calls, locks, waiting, moving, cluster, uneven),
    )
    for rule in vars(subject).values()
    if isinstance(rule, Rule) and rule.examine.__module__ == subject.__name__
)
"""Rules of all subjects, each after the rules that it gives way to."""
CODES = tuple(codes.FINDINGS)
"""Codes of all findings; each has a page in the documentation."""


_found: WeakKeyDictionary[Recording, list[Finding]] = WeakKeyDictionary()
"""Findings of recordings, while these are in use."""


def find(analysis: Analysis) -> list[Finding]:
    """Findings of a recording whose facts may be known already, the worst first; made once."""
    found = _found.get(analysis.recording)
    if found is None:
        found = _found[analysis.recording] = _find(analysis)
    return list(found)


def _find(analysis: Analysis) -> list[Finding]:
    is_long = len(analysis.tasks) > 0 and analysis.wall >= LONG_ENOUGH
    found: dict[str, Finding] = {}
    for rule in RULES:
        if (is_long or not rule.needs_tasks) and found.keys().isdisjoint(rule.unless):
            finding = rule(analysis)
            if finding is not None:
                found[rule.code] = finding
    savings = [one.potential_saving for one in found.values() if not isnan(one.potential_saving)]
    recorded = analysis.recording.stop - analysis.recording.start
    largest = min(max(savings, default=0.0), recorded)
    least = max(NOTICED * analysis.computing, NOTICED_SECONDS, OF_LARGEST * largest)
    noticed = (
        finding
        for finding in found.values()
        if finding.code in WITHOUT_TIME or not finding.potential_saving < least
    )
    return sorted(noticed, key=lambda finding: finding.rank)


_OUTSIDE = frozenset(
    {"slow-start", "graph-preparation", "small-computations", "large-results", "client-bound"}
)
"""Codes of findings on time in which no task runs."""
_CHANGES: Mapping[str, Changes] = {
    "gil-bound": {"remove": {Activity.GIL_WAIT}},
    "lock-bound": {"remove": {Activity.LOCK_WAIT}},
    "serialization-bound": {"remove": {Activity.SERIALIZE, Activity.DESERIALIZE}},
    "tasks-too-small": {"remove": {Activity.OVERHEAD}},
    "scheduler-bound": {"remove": {Activity.OVERHEAD}},
    "transfer-bound": {"remove": {Activity.TRANSFER}},
    "pool-startup": {"remove": {Activity.STARTUP}},
    "batched-tasks": {"chunksize": 1},
    "too-few-threads": {"workers": inf},
    "io-bound": {"workers": inf},
    "busy-machine": {"idle_machine": True},
    "thread-oversubscription": {"idle_pools": True},
}
"""Changes that remove the causes of findings, as far as these can be simulated together."""


def saved_together(analysis: Analysis, findings: Sequence[Finding]) -> float:
    """Seconds of wall time that all fixes of some findings together would save at most.

    The causes are removed in one simulation. Where one of them cannot be simulated, the work still
    needs its CPU seconds on the CPUs.
    """
    known = [finding for finding in findings if not isnan(finding.potential_saving)]
    outside = sum(one.potential_saving for one in known if one.code in _OUTSIDE)
    claimed = sum(one.potential_saving for one in known if one.code not in _OUTSIDE)
    inside = {one.code for one in known} - _OUTSIDE
    most = analysis.computing
    if "repeated-work" not in inside:
        most -= analysis.cpu_in_tasks / analysis.cpus_for_tasks
    if inside <= _CHANGES.keys():
        changes: Changes = {}
        removed: set[str] = set()
        for code in sorted(inside):
            changes |= _CHANGES[code]
            removed |= set(_CHANGES[code].get("remove", ()))
        changes["remove"] = removed
        saved = analysis.seconds_saved(**changes)
        most = min(most, inf if isnan(saved) else saved)
    together = outside + min(claimed, most)
    most_of_one = max((one.potential_saving for one in known), default=0.0)
    wall = analysis.recording.stop - analysis.recording.start
    return min(max(together, most_of_one), wall)
