"""Clusters that several recordings are of: each worker once, under one name of its own.

The id of a cluster is the same in all of them, which may be of the same time or not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import starmap
from math import inf, isnan
from typing import NamedTuple, TypeVar

import numpy as np

from dask_diag.columns import BoolArray, Categorical
from dask_diag.model.measurements import Measurements
from dask_diag.model.table import Table, stack

__all__ = [
    "combined_rows_of_clusters",
    "combined_transfers",
    "combined_workers",
    "is_of_a_cluster",
    "with_one_name",
]

M = TypeVar("M", bound=Measurements)

_OF_WORKERS = ("other_tasks", "worker_events", "processes", "samples", "workers")
_NUMBERED = re.compile(r" \(\d+\)$")


class _Row(NamedTuple):
    """A worker, as one part has it."""

    computation: str
    address: str
    worker: str
    joined: float
    left: float
    pid: int


class _Worker:
    """One worker, as several parts know it; `left` is NaN as long as none knows when it left."""

    def __init__(self, cluster: str, label: str) -> None:
        self.cluster, self.label = cluster, label
        self.joined, self.left, self.until = inf, np.nan, -inf
        self.rows: dict[int, int] = {}
        """Its row in the table of each part that knows it."""
        self.best = (False, False, -inf), -1

    def add(self, index: int, row: int, facts: _Row, stop: float) -> None:
        """What another part knows of it."""
        self.rows[index] = row
        self.joined = min(self.joined, facts.joined)
        if not isnan(facts.left):
            self.left = facts.left
        self.until = max(self.until, stop if isnan(self.left) else self.left)
        self.best = max(self.best, ((not isnan(facts.left), facts.pid != 0, stop), index))

    def is_there(self, joined: float, until: float) -> bool:
        """Whether it is one that was there from then until then: at its address there is one."""
        return joined < self.until and self.joined < until


def is_of_a_cluster(workers: Table) -> BoolArray:
    """The rows of workers of clusters; those of local schedulers have no address."""
    addresses: Categorical = workers["address"]
    return np.array([bool(value) for value in addresses.values], bool)[addresses.codes]


def with_one_name(parts: Sequence[M]) -> tuple[list[M], list[_Worker]]:
    """The parts with a name for each worker that no other one has, and the workers."""
    workers: dict[tuple[str, str], list[_Worker]] = {}
    names: list[dict[str, _Worker]] = [{} for _ in parts]
    for index, part in enumerate(parts):
        columns = [part.workers[name].tolist() for name in _Row._fields]
        for row, facts in enumerate(starmap(_Row, zip(*columns, strict=True))):
            if not facts.address:
                continue
            at_address = workers.setdefault((facts.computation, facts.address), [])
            until = part.stop if isnan(facts.left) else facts.left
            # An address is used again by a worker that comes later: only lives that overlap are one
            # worker's.
            worker = next(
                (candidate for candidate in at_address if candidate.is_there(facts.joined, until)),
                None,
            )
            # Two rows of one part are two workers, however their times overlap.
            if worker is None or index in worker.rows:
                worker = _Worker(facts.computation, facts.worker)
                at_address.append(worker)
            worker.add(index, row, facts, part.stop)
            names[index][facts.worker] = worker
    all_workers = [worker for at_address in workers.values() for worker in at_address]
    labels: set[str] = set()
    for worker in all_workers:
        worker.label = _free(worker.label, labels)
        labels.add(worker.label)
        if isnan(worker.left):
            worker.left = _left_between(worker, parts, all_workers)
    return [
        _renamed(part, of_part) for part, of_part in zip(parts, names, strict=True)
    ], all_workers


def _free(label: str, labels: set[str]) -> str:
    usual, number = _NUMBERED.sub("", label), 1
    while label in labels:
        number += 1
        label = f"{usual} ({number})"
    return label


def _left_between(
    worker: _Worker, parts: Sequence[Measurements], workers: Sequence[_Worker]
) -> float:
    """When a worker left of which no part says so: a later part of its cluster lacks it."""
    # A cluster lists its workers in each part, so one that a later part lacks had left by then.
    of_cluster = {
        index for other in workers if other.cluster == worker.cluster for index in other.rows
    }
    is_lacking = any(parts[index].start >= worker.until for index in of_cluster)
    return worker.until if is_lacking else np.nan


def _renamed(part: M, workers: Mapping[str, _Worker]) -> M:
    names = {name: worker.label for name, worker in workers.items() if worker.label != name}
    if not names:
        return part
    columns = [(table, "worker") for table in _OF_WORKERS]
    columns += [("transfers", "source"), ("transfers", "destination"), ("tasks", "worker")]
    tables: dict[str, Table] = {}
    for name, column in columns:
        table = tables.get(name, getattr(part, name))
        labels: Categorical = table[column]
        values = [_renamed_label(value, names) for value in labels.values]
        changed = {column: Categorical(labels.codes, values)}
        tables[name] = type(table)({column: table[column] for column in table.columns} | changed)
    return replace(part, **tables)  # type: ignore[arg-type]


def _renamed_label(label: str, names: Mapping[str, str]) -> str:
    """The label of a worker, of one of its threads, or of several workers in a process."""
    worker, slash, thread = label.rpartition("/")
    if label not in names and worker in names:
        return f"{names[worker]}{slash}{thread}"
    return ", ".join(names.get(name, name) for name in label.split(", "))


def combined_workers(parts: Sequence[Measurements], workers: Sequence[_Worker]) -> Table:
    """A row for each worker, of the part that knows most of it."""
    workers = sorted(workers, key=lambda worker: worker.best[1])
    chosen = stack(
        [
            part.workers.rows(
                np.array([w.rows[index] for w in workers if w.best[1] == index], np.int64)
            )
            for index, part in enumerate(parts)
        ]
    )
    times = {
        "joined": np.array([worker.joined for worker in workers], float),
        "left": np.array([worker.left for worker in workers], float),
    }
    return type(chosen)({name: times.get(name, chosen[name]) for name in chosen.columns})


def combined_rows_of_clusters(parts: Sequence[Measurements], name: str) -> Table:
    """What happened on workers, from all parts; what a part has of the time of another one, once.

    A part has what has ended while it was recorded. What went on at its end may be there longer in
    another one.
    """
    tables: list[Table] = [getattr(part, name) for part in parts]
    filled = [part for part, table in zip(parts, tables, strict=True) if len(table)]
    if len(filled) < 2:
        return stack(tables)
    tables = []
    covers: list[tuple[set[str], float, float]] = []
    for part in filled:
        table = getattr(part, name)
        clusters = table["computation"].tolist()
        is_new = np.ones(len(table), bool)
        for clusters_before, start, stop in covers:
            # A part that recorded the time in which a row lies has the row, too: it would count
            # twice.
            is_shared = np.array([cluster in clusters_before for cluster in clusters], bool)
            is_new &= ~(is_shared & (start <= table["stop"]) & (table["stop"] <= stop))
        tables.append(table.rows(is_new))
        covers.append((set(clusters), part.start, part.stop))
    together = stack(tables)
    columns = [
        column
        for column in ("computation", "worker", "event", "start")
        if column in together.columns
    ]
    keys = zip(*(together[column].tolist() for column in columns), strict=True)
    stops = together["stop"].tolist()
    # What went on when a part ended is in both, and longer in the one that went on.
    longest: dict[tuple[object, ...], int] = {}
    for row, key in enumerate(keys):
        if stops[row] > stops[longest.setdefault(key, row)]:
            longest[key] = row
    return together.rows(np.array(sorted(longest.values()), np.int64))


def combined_transfers(transfers: Table) -> Table:
    """The transfers, of which each that no task made is there once, though several parts have it.

    What a task of another part made has that task.
    """
    if not len(transfers) or (transfers["task"] >= 0).all():
        return transfers
    columns = ("source", "destination", "start", "stop")
    made = transfers["task"] >= 0
    once: dict[tuple[object, ...], int] = {}
    moves = list(zip(*(transfers[name].tolist() for name in columns), strict=True))
    for row in (*np.flatnonzero(made).tolist(), *np.flatnonzero(~made).tolist()):
        once.setdefault(moves[row], row)
    chosen = made.copy()
    chosen[list(once.values())] = True
    return transfers.rows(chosen)
