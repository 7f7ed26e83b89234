"""Chunks of events that coffea processed, by dataset and by file, and the branches it read."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from math import nan
from typing import Any

import numpy as np

from dask_diag.analysis.call_tree import short_path
from dask_diag.analysis.groups import (
    counts_by,
    extremes_by,
    rows_by,
    sums_by,
    table_by,
    table_of,
)
from dask_diag.analysis.intervals import Intervals, StepFunction, edges_of_bins
from dask_diag.analysis.memory import task_memory
from dask_diag.analysis.throughput import COFFEA, last_results
from dask_diag.analysis.waits import cpu_and_noncpu
from dask_diag.columns import Categorical, FloatArray, IntArray
from dask_diag.errors import DiagnosticError
from dask_diag.formatting import BYTES, count
from dask_diag.model.codes import Activity, Outcome
from dask_diag.model.recording import Recording, Sources, recording_of
from dask_diag.model.table import Table, stack
from dask_diag.model.tables import Environment

_WAITS = {"cpu_wait": Activity.CPU_WAIT, "io_wait": Activity.IO_WAIT}
_GROUPS = ("dataset", "file")
_FACTS = ("entries", "bytesread", "processtime", "chunks")


def chunks(source: Sources, by: str | None = None) -> Table:
    """Chunks of events that coffea's ``Runner`` processed on a cluster.

    Parameters
    ----------
    source : Recording, profiler, or list of these
        Measurements of a run of ``Runner(DaskExecutor(...))``. Several are combined.
    by : {"dataset", "file"}, optional
        One row per dataset or file. Default: one row per run of a chunk.

    Returns
    -------
    Table
        By chunk, the longest first:

        * ``dataset``, ``file``; ``first`` and ``last``: its entries, without the last one.
        * ``events``; ``bytes`` requested from the file (NaN without ``savemetrics=True``).
        * ``wall``, ``cpu``, ``off_cpu``: seconds of the task; ``cpu_wait``, ``io_wait``: parts of
          ``off_cpu`` (NaN without recorded waits).
        * ``growth``: upper bound of the growth of memory in bytes (NaN if not sampled).
        * ``worker``, ``attempt``, ``outcome``, ``error``.

        By dataset or file, the most seconds first:

        * *by*; ``chunks``: number of chunks with a result; ``failed``: number of failed runs.
        * ``events``, ``bytes``: of these chunks. ``wall``, ``cpu``, ``off_cpu``: seconds of
          all runs. ``longest``: seconds of the longest run.
        * ``events_per_second``, ``bytes_per_second``: of ``wall``, the time on one thread.

    Raises
    ------
    DiagnosticError
        If `by` is unknown.

    Examples
    --------
    >>> from dask_diag import Recording
    >>> from dask_diag.coffea import chunks
    >>> len(chunks(Recording(start=0.0, stop=1.0, epoch=0.0)))
    0
    """
    recording = recording_of(source)
    if by is not None and by not in _GROUPS:
        raise DiagnosticError(f"by: expected one of {', '.join(_GROUPS)}, found {by!r}")
    table = _by_chunk(recording)
    return table if by is None else _by_group(recording, table, by)


def _by_chunk(recording: Recording) -> Table:
    found, tasks = recording.chunks, recording.tasks
    runs = tasks.filter(found.task)
    cpu, off_cpu = (seconds[found.task] for seconds in cpu_and_noncpu(recording))
    growth = task_memory(recording, by="task")["growth"][found.task]
    wall = runs.stop - runs.start
    table = Table(
        {
            "dataset": found.dataset,
            "file": found.file,
            "first": found.first,
            "last": found.last,
            "events": (found.last - found.first).astype(float),
            "bytes": found.bytes,
            "wall": wall,
            "cpu": cpu,
            "off_cpu": off_cpu,
            **{name: _waited(recording, wait)[found.task] for name, wait in _WAITS.items()},
            "growth": growth,
            "worker": runs.worker,
            "attempt": runs.attempt,
            "outcome": runs.outcome,
            "error": found.error,
        }
    ).filter(_longest_first(recording))
    in_seconds = dict.fromkeys(("wall", "cpu", "off_cpu", *_WAITS), "s")
    return table.in_units(bytes="bytes", growth="bytes", **in_seconds)


def _waited(recording: Recording, activity: str) -> FloatArray:
    """Seconds of a wait of each task; NaN if waits were not recorded."""
    waits, count = recording.waits, len(recording.tasks)
    if not len(waits):
        return np.full(count, nan)
    rows = waits.filter(waits.activity.eq(activity))
    return np.bincount(rows.task, rows.seconds, minlength=count).astype(np.float64)


def _by_group(recording: Recording, table: Table, by: str) -> Table:
    labels: Categorical = table[by]
    sums = {
        name: sums_by(labels, np.nan_to_num(table[name])) for name in ("wall", "cpu", "off_cpu")
    }
    # A chunk whose result was lost was processed again, and counts once.
    is_done = last_results(recording)[recording.chunks.task][_longest_first(recording)]
    amounts = {
        name: sums_by(labels, np.where(is_done, table[name], 0.0)) for name in ("events", "bytes")
    }
    with np.errstate(invalid="ignore", divide="ignore"):
        rates = {f"{name}_per_second": made / sums["wall"] for name, made in amounts.items()}
    return table_by(
        labels,
        by,
        sums["wall"],
        chunks=counts_by(labels, is_done),
        failed=counts_by(labels, table["outcome"].eq(Outcome.FAILED)),
        **amounts,
        **sums,
        longest=extremes_by(np.fmax, labels, table["wall"]),
        **rates,
    ).in_units(
        bytes="bytes",
        bytes_per_second="bytes",
        **dict.fromkeys(("wall", "cpu", "off_cpu", "longest"), "s"),
    )


_BINS = 200


def rates_over_time(recording: Recording) -> tuple[str, FloatArray, FloatArray]:
    """The unit, ``bytes`` if known or ``events``; edges of bins of time; amounts per second.

    What a chunk read is spread evenly over the time of its task.
    """
    tasks = recording.tasks
    table = recording.chunks.filter(last_results(recording)[recording.chunks.task])
    unit = "events" if not len(table) or np.isnan(table.bytes).any() else BYTES
    read = table.bytes if unit == BYTES else (table.last - table.first).astype(float)
    start, stop = tasks.start[table.task], tasks.stop[table.task]
    lasted = np.maximum(stop - start, _SHORTEST)
    steps = StepFunction.of(Intervals(start, start + lasted), read / lasted)
    edges = edges_of_bins(recording, _BINS)
    return unit, edges, np.maximum(np.diff(steps.integral(edges)) / np.diff(edges), 0.0)


_SHORTEST = 1e-6
SLOW_FILE = 2.0
"""Least factor by which an event of a slow file takes longer than in the median file."""
_FEWEST_FILES = 4
_SITE = re.compile(r"\w+://[^/]+")
"""The host that serves a file."""


def slow_files(recording: Recording) -> list[tuple[str, float]]:
    """Files whose events take longer than those of the median file, and how many times as long.

    A site whose median file is slow beside those of other sites is one, in place of its files.
    """
    table = chunks(recording, by="file")
    files = table.filter(table["events"] > 0)
    names, per_event = files["file"].tolist(), files["wall"] / files["events"]
    if len(files) < _FEWEST_FILES:
        return []
    sites = np.array([found[0] if (found := _SITE.match(name)) else name for name in names])
    slow, is_told = [], np.zeros(len(files), bool)
    for site in dict.fromkeys(sites.tolist()):
        here = sites == site
        if here.sum() > 1 and (~here).sum() > 1:
            factor = float(np.median(per_event[here]) / np.median(per_event[~here]))
            if factor >= SLOW_FILE:
                slow.append((f"{site} ({here.sum()} files)", factor))
                is_told |= here
    factors = np.where(is_told, 0.0, per_event / np.median(per_event[~is_told]))
    slow += [(names[row], float(factors[row])) for row in np.flatnonzero(factors >= SLOW_FILE)]
    return sorted(slow, key=lambda item: -item[1])


def chunk_name(recording: Recording, row: int) -> str:
    """The dataset, file and entries of a row of the table of chunks."""
    chunks = recording.chunks
    file, first, last = chunks.file[row], chunks.first[row], chunks.last[row]
    return f"{chunks.dataset[row]} {short_path(file)} {count(first)} to {count(last)}"


def _longest_first(recording: Recording) -> IntArray:
    """The order of the rows of chunks, the longest run first."""
    tasks, rows = recording.tasks, recording.chunks.task
    return np.argsort(-np.nan_to_num((tasks.stop - tasks.start)[rows]), kind="stable")


def branches(source: Sources) -> Table:
    """Branches of files that coffea read on a cluster, with ``savemetrics=True``.

    Parameters
    ----------
    source : Recording, profiler, or list of these
        Measurements of a run of ``Runner(DaskExecutor(...))``. Several are combined.

    Returns
    -------
    Table
        The largest branch first; the last row is of all branches of these files, read or not:

        * ``branch``: its name, or ``all``; ``branches``: number of branches with data.
        * ``files``: number of files from which it was read; ``unused``: number of those of which no
          chunk used it, after coffea had preloaded it.
        * ``compressed``, ``uncompressed``: its bytes in these files; ``ratio``: of the two.
        * ``share``: of the compressed bytes of all branches.

        The sizes are those of whole files, even if only some chunks of a file were processed.

    Examples
    --------
    >>> from dask_diag import Recording
    >>> from dask_diag.coffea import branches
    >>> len(branches(Recording(start=0.0, stop=1.0, epoch=0.0)))
    0
    """
    found = recording_of(source).branches
    # The last row counts: if one chunk used a branch, it is used.
    found = found.filter(np.argsort(-found.unused, kind="stable"))
    # Recordings of one run may have the same file.
    places = zip(found.file.tolist(), found.tree.tolist(), found.branch.tolist(), strict=True)
    found = found.filter(
        np.array([*{place: row for row, place in enumerate(places)}.values()], int)
    )
    rows, whole = [], 0.0
    for name, of_branch in rows_by(found.branch).items():
        sizes = found.filter(of_branch)
        compressed, uncompressed = float(sizes.compressed.sum()), float(sizes.uncompressed.sum())
        number = int(sizes.branches.max())
        if not name:
            whole = compressed
        unused = int(sizes.unused.sum())
        rows.append((name or ALL_BRANCHES, number, len(sizes), unused, compressed, uncompressed))
    # The last row is larger than any other but is no branch.
    rows.sort(key=lambda row: (row[0] == ALL_BRANCHES, -row[4], row[0]))
    return table_of(
        (
            (*row, row[5] / row[4] if row[4] else nan, row[4] / whole if whole else nan)
            for row in rows
        ),
        branch=str,
        branches=np.int64,
        files=np.int64,
        unused=np.int64,
        compressed=float,
        uncompressed=float,
        ratio=float,
        share=float,
    ).in_units(compressed="bytes", uncompressed="bytes", share="share")


ALL_BRANCHES = "all"
"""Name of the row of `branches` with all branches of the files."""


def attach(recording: Sources, metrics: Mapping[str, Any]) -> Recording:
    """Add the metrics of coffea's ``Runner(savemetrics=True)`` to a recording.

    `throughput`, the summary, the report and exports of the result then contain the events and the
    bytes of the run, for any executor.

    Parameters
    ----------
    recording : Recording, profiler, or list of these
        Measurements of the run, such as ``record(...)`` after its block. Several are combined.
    metrics : mapping
        The second value that the runner returns, with ``entries`` and ``bytesread``.

    Returns
    -------
    Recording
        A new recording; `save` writes it to a file.

    Raises
    ------
    DiagnosticError
        If `metrics` is not a mapping with ``entries``.

    Examples
    --------
    >>> import dask
    >>> from dask_diag import Profiler, throughput
    >>> from dask_diag.coffea import attach
    >>> with Profiler() as prof:
    ...     done = dask.compute(dask.delayed(sum)([1, 2]))
    >>> recording = attach(prof, {"entries": 1000, "bytesread": 8000})
    >>> throughput(recording)["events"].tolist()
    [1000.0]
    """
    found = recording_of(recording)
    if not isinstance(metrics, Mapping) or "entries" not in metrics:
        raise DiagnosticError(
            "metrics: expected the metrics of a Runner with savemetrics=True, with 'entries', "
            f"found {type(metrics).__name__}"
        )
    facts = {name: metrics[name] for name in _FACTS if name in metrics}
    if isinstance(metrics.get("columns"), Collection):
        facts["columns"] = len(metrics["columns"])
    rows = [(COFFEA, name, str(value)) for name, value in facts.items()]
    kept = found.environment.filter(~found.environment.section.eq(COFFEA))
    return replace(found, environment=stack([kept, Environment.of_rows(rows)]))
