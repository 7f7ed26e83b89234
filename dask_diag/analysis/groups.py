"""Groups of rows: by the labels of a column, or by pairs of numbers."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray, Values
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.model.tables import Workers

Number = TypeVar("Number", bound=np.generic)
Other = TypeVar("Other", bound=np.generic)

MANY = 1000
"""Computations from which on small ones are looked at together: each alone takes a millisecond."""


def rows_by_code(codes: npt.NDArray[np.integer]) -> dict[int, IntArray]:
    """The rows of each code, ascending."""
    if not len(codes):
        return {}
    # One stable sort for all codes; a mask for each would read the column as often as it has codes.
    order = np.argsort(codes, kind="stable")
    present, first = np.unique(codes[order], return_index=True)
    return dict(zip(present.tolist(), np.split(order, first[1:]), strict=True))


def rows_by(labels: Categorical) -> dict[str, IntArray]:
    """The rows of each value, ascending; values without rows are left out."""
    return {labels.values[code]: rows for code, rows in rows_by_code(labels.codes).items()}


def environment_rows(recording: Recording, section: str) -> list[tuple[str, str]]:
    """The names and values of a section of the environment."""
    table = recording.environment
    return list(table.filter(table.section.eq(section)).tuples("name", "value"))


def workers_of_clusters(recording: Recording) -> Workers:
    """The workers of clusters, which alone have addresses."""
    return recording.workers.filter(~recording.workers.address.eq(""))


def cpus_of_hosts(workers: Workers) -> float:
    """CPUs of the workers' hosts, which workers of a host share; infinite if not known."""
    cpus = [int(workers.cpus[rows].max()) for rows in rows_by(workers.host).values()]
    return float(sum(cpus)) if cpus and min(cpus) > 0 else inf


def workers_of(lanes: Categorical) -> Categorical:
    """The worker of each lane; on a cluster a lane is named by a worker and a thread."""
    names = (str(lane).rpartition("/")[0] or str(lane) for lane in lanes.values)
    workers: Categorical = Categorical.of(names)[lanes.codes]
    return workers


def rows_of_workers(lanes: Categorical) -> dict[str, IntArray]:
    """The rows of the tasks of each worker; a lane is named by a worker and a thread."""
    workers = Categorical.of(str(lane).rpartition("/")[0] for lane in lanes.values)
    return rows_by(workers[lanes.codes])


def counts_by(labels: Categorical, mask: BoolArray | None = None) -> IntArray:
    """Count the rows of each value, in the mask if given."""
    codes = labels.codes if mask is None else labels.codes[mask]
    return np.bincount(codes, minlength=len(labels.values))


def sums_by(labels: Categorical, amounts: npt.NDArray[np.number]) -> FloatArray:
    """The sum of the amounts of each value's rows."""
    return np.bincount(labels.codes, amounts, minlength=len(labels.values)).astype(np.float64)


def totals_by(labels: Categorical, amounts: npt.NDArray[np.number]) -> dict[Any, float]:
    """The sum of the amounts of each value, by value; values without rows are left out."""
    sums = sums_by(labels, amounts).tolist()
    present = np.flatnonzero(counts_by(labels)).tolist()
    return {labels.values[code]: sums[code] for code in present}


def extremes_by(extreme: np.ufunc, labels: Categorical, amounts: FloatArray) -> FloatArray:
    """The maximum or minimum (``np.fmax``, ``np.fmin``) of each value's rows; NaN if unknown."""
    extremes = np.full(len(labels.values), np.nan)
    extreme.at(extremes, labels.codes, amounts)
    return extremes


def quantiles_by(labels: Categorical, amounts: FloatArray, share: float) -> FloatArray:
    """The amount of each value's rows that a share of these do not exceed; NaN if unknown."""
    is_known = ~np.isnan(amounts)
    codes, amounts = labels.codes[is_known], amounts[is_known]
    counts = np.bincount(codes, minlength=len(labels.values))
    rank = np.cumsum(counts) - counts + np.ceil(share * counts).astype(np.int64) - 1
    quantiles = np.full(len(counts), np.nan)
    quantiles[counts > 0] = amounts[np.lexsort((amounts, codes))][rank[counts > 0]]
    return quantiles


def table_by(labels: Categorical, name: str, sizes: FloatArray, **columns: Values) -> Table:
    """A row for each label with rows, the largest size first; columns have a value per label."""
    present = np.flatnonzero(counts_by(labels))
    order = present[np.argsort(-sizes[present], kind="stable")]
    rows = {column: values[order] for column, values in columns.items()}
    return Table({name: Categorical(order, labels.values), **rows})


def lookup(keys: Values, values: Values) -> dict[Any, Any]:
    """The value of each key, of two columns of a table."""
    return dict(zip(keys.tolist(), values.tolist(), strict=True))


def distinct_pairs(
    first: npt.NDArray[Number], second: npt.NDArray[Other]
) -> tuple[npt.NDArray[Number], npt.NDArray[Other], IntArray]:
    """The distinct pairs, in order, as two arrays, and the position of each row in the two."""
    # One number for a pair sorts ten times as fast as rows of two.
    left, left_code = np.unique(first, return_inverse=True)
    right, right_code = np.unique(second, return_inverse=True)
    base = max(len(right), 1)
    codes, row = np.unique(left_code * base + right_code, return_inverse=True)
    return left[codes // base], right[codes % base], row


def table_of(rows: Iterable[tuple[object, ...]], **types: type) -> Table:
    """Make a table of rows, with names and types of columns; text becomes labels."""
    columns = list(zip(*rows, strict=True)) or [()] * len(types)
    return Table(
        {
            name: Categorical.of(column) if kind is str else np.array(column, kind)
            for (name, kind), column in zip(types.items(), columns, strict=True)
        }
    )


def worker_order(name: str) -> tuple[str, int, str, int, str]:
    """The sorting key of a worker: kind, then number; on a cluster, then the thread."""
    worker, slash, thread = name.rpartition("/")
    if not slash:
        worker, thread = name, ""
    # A longer number is a larger one: thread-10 after thread-9.
    return worker.partition("-")[0], len(worker), worker, len(thread), thread
