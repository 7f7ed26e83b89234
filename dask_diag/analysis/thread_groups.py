"""The CPU of groups of threads, over all computations of a recording."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_diag.model.recording import Recording

__all__ = ["ThreadGroup", "thread_groups"]


class ThreadGroup(NamedTuple):
    """Threads of one kind and name: the most that there were at once, and CPU seconds of all."""

    kind: str
    name: str
    threads: int
    cpu: float


def thread_groups(recording: Recording) -> list[ThreadGroup]:
    """The groups of threads of the computing process, those with most CPU first.

    Empty if they are not known. Computations of one process that overlap have its threads in
    common: they are left out.
    """
    table = recording.threads
    if not len(table):
        return []
    names = table.computation
    alone = _computations_that_ran_alone(recording)
    mask = np.array([name in alone for name in names.values], dtype=bool)[names.codes]
    groups: dict[tuple[str, str], ThreadGroup] = {}
    for row in table.rows(mask).to_dicts():
        key = row["kind"], row["name"]
        before = groups.get(key, ThreadGroup(*key, 0, 0.0))
        threads = max(before.threads, row["threads"])
        groups[key] = ThreadGroup(*key, threads, before.cpu + row["cpu_seconds"])
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
