"""The CPU of groups of threads, over all computations of a recording."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from dask_diag.model.recording import Recording

__all__ = ["ThreadGroup", "thread_groups"]


class ThreadGroup(NamedTuple):
    """Threads of one kind and name, of the computing process or of worker processes.

    Attributes
    ----------
    kind, name : str
    threads : int
        The most that one process had in a computation.
    cpu : float
        CPU seconds of all.
    processes : int
        How many worker processes of a computation had some, at most; 0 for the computing process.
    """

    kind: str
    name: str
    threads: int
    cpu: float
    processes: int = 0


def thread_groups(recording: Recording) -> list[ThreadGroup]:
    """The groups of threads, those with most CPU first.

    Empty if they are not known. Computations of one process that overlap have its threads in
    common: they are left out.
    """
    table = recording.threads
    if not len(table):
        return []
    names = table.computation
    alone = _computations_that_ran_alone(recording)
    mask = np.array([name in alone for name in names.values], dtype=bool)[names.codes]
    groups: dict[tuple[int, str, str], ThreadGroup] = {}
    processes: Counter[tuple[str, str, str]] = Counter()
    for row in table.rows(mask).to_dicts():
        is_child, kind, name = key = row["is_child"], row["kind"], row["name"]
        before = groups.get(key, ThreadGroup(kind, name, 0, 0.0))
        of_computation = row["computation"], kind, name
        processes[of_computation] += is_child
        groups[key] = ThreadGroup(
            kind,
            name,
            max(before.threads, row["threads"]),
            before.cpu + row["cpu_seconds"],
            max(before.processes, processes[of_computation] * is_child),
        )
    return sorted(groups.values(), key=lambda group: -group.cpu)


def _computations_that_ran_alone(recording: Recording) -> set[str]:
    """The names of those that overlap no other one of the same process."""
    alone: set[str] = set()
    latest: dict[str, tuple[float, str]] = {}
    rows = sorted(recording.computations.to_dicts(), key=lambda row: row["start"])
    for row in rows:
        name = row["computation"]
        # The digits before the count are those of the process.
        process = name.rpartition("-")[0]
        stop, last = latest.get(process, (-np.inf, ""))
        if row["start"] >= stop:
            alone.add(name)
        else:
            alone.discard(last)
        if row["stop"] > stop:
            latest[process] = row["stop"], name
    return alone
