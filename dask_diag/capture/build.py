"""Recordings made of tables: at once, or chunk by chunk while computations run."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from toolz import merge_with

from dask_diag.capture.computation import (
    NUMBERS,
    THROTTLED,
    ComputationSnapshot,
    Facts,
    run_id,
)
from dask_diag.capture.session import Session
from dask_diag.capture.workers_table import (
    TaskThreads,
    task_threads,
    threads_table,
    workers_table,
)
from dask_diag.cluster.workers_table import with_places
from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.model import tables
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table, stack
from dask_diag.system.control_groups import cpu_limit
from dask_diag.system.processes import memory_limit
from dask_diag.system.samplers import (
    MEMORY_COLUMNS,
    PROCESS_COLUMNS,
    SAMPLE_COLUMNS,
)
from dask_diag.system.usage import NOT_LISTED, processors

if TYPE_CHECKING:
    from dask_diag.cluster.log import ClusterLog

Tables = dict[str, Table]
Increment = tuple[Tables, Tables]
"""New rows that are final, and provisional ones, as of tasks that run: the next increment has them
again."""


class Source(Protocol):
    """Gives the tables of one profiler, increment by increment."""

    def take(self) -> Increment:
        """Return new final rows, and provisional rows."""


def joined(*parts: Tables) -> Tables:
    """Concatenate the rows of several parts, table by table."""
    made: Tables = merge_with(stack, *parts)
    return made


def build_recording(
    session: Session, notices: Sequence[str], made: Mapping[str, Table], **fields: Any
) -> Recording:
    """Make a recording of a profiler's tables, with the times of its session."""
    now = perf_counter()
    called, stopped = (
        made["computations"][name].tolist() if "computations" in made else []
        for name in ("called", "stop")
    )
    starts = [*([] if session.start is None else [session.start]), *called]
    stops = [*([] if session.stop is None else [session.stop]), *stopped]
    start = min(starts, default=now)
    return Recording(
        start=start,
        stop=max(stops, default=now),
        epoch=session.epoch,
        notices=tuple(notices),
        run_id=run_id(),
        **{"calls": calls_table(session.calls), **made, **fields},
    )


def calls_table(times: array[float]) -> tables.Calls:
    """The calls of dask, of which there are two times each."""
    return tables.Calls({"called": np.array(times[::2]), "returned": np.array(times[1::2])})


class ChunkBuilder:
    """Makes chunks of the tables of several profilers over one block.

    Parameters
    ----------
    sessions : sequence of Session
    sources : sequence of Source
    **fields
        Fields of the recording that are no tables, such as ``metric``.
    """

    def __init__(
        self, sessions: Sequence[Session], sources: Sequence[Source], **fields: Any
    ) -> None:
        self._sessions = sessions
        self._sources = sources
        self._fields = fields

    def first(self, environment: Table, notices: Sequence[str]) -> Recording:
        """The first chunk of a recording: the environment."""
        return self._chunk({"environment": environment}, notices)

    def take(self, notices: Sequence[str]) -> tuple[Recording, Recording | None]:
        """A chunk of final rows, and a chunk of provisional rows if any."""
        new, provisional = self._increment()
        is_filled = any(map(len, provisional.values()))
        return self._chunk(new, notices), self._chunk(provisional, notices) if is_filled else None

    def take_last(self, notices: Sequence[str], **others: Table) -> Recording:
        """A chunk of all new rows, and of other tables."""
        return self._chunk({**joined(*self._increment()), **others}, notices)

    def _increment(self) -> Increment:
        new: Tables = {}
        provisional: Tables = {}
        for source in self._sources:
            new_tables, provisional_tables = source.take()
            new.update(new_tables)
            provisional.update(provisional_tables)
        return new, provisional

    def _chunk(self, made: Tables, notices: Sequence[str]) -> Recording:
        now = perf_counter()
        stops = [session.stop for session in self._sessions]
        stop = now if None in stops else max(filter(None, stops))
        if "computations" in made and len(made["computations"]):
            # Those that did not end with the block.
            stop = max(stop, float(np.nanmax(made["computations"]["stop"])))
        return Recording(
            start=min(session.start or now for session in self._sessions),
            stop=stop,
            epoch=self._sessions[0].epoch,
            run_id=run_id(),
            notices=tuple(dict.fromkeys(notices)),
            **{**made, **self._fields},
        )


def computations_tables(
    computations: Sequence[ComputationSnapshot], threads: Sequence[TaskThreads], now: float
) -> Tables:
    """The tables of computations, without tasks; a running computation stops `now`.

    `threads` are those of the tasks of each computation.
    """
    made: Tables = {"computations": _computations_table(computations, now)}
    # Of many small ones there is nothing else.
    pairs = zip(computations, threads, strict=True)
    others = [(one, of_tasks) for one, of_tasks in pairs if any(one.facts[_PLAIN:])]
    made["pools"] = _pools_table(one for one, _ in others)
    made["quotas"] = _quotas_table(computations)
    made["repeated_steps"] = tables.RepeatedSteps.of_rows(
        (one.name, *step) for one, _ in others for step in one.facts.repeated_steps
    )
    made["joined"] = tables.Joined.of_rows(
        (one.name, one.start, *one.facts.joined) for one, _ in others if one.facts.joined
    )
    made["workers"] = workers_table(one for one, _ in others)
    return {**made, "threads": threads_table(others)}


_PLAIN = Facts._fields.index("threads")


def _computations_table(
    computations: Sequence[ComputationSnapshot], now: float
) -> tables.Computations:
    if not computations:
        return tables.Computations.empty()
    numbers = np.array([one.numbers for one in computations]).T
    made: dict[str, Any] = dict(zip(NUMBERS, numbers, strict=True))
    made["stop"] = np.where(np.isnan(made["stop"]), now, made["stop"])
    made["prepared"] = np.where(np.isnan(made["prepared"]), made["stop"], made["prepared"])
    facts = zip(*(one.facts[:_PLAIN] for one in computations), strict=True)
    made |= zip(Facts._fields, facts, strict=False)
    made["computation"] = [one.name for one in computations]
    count = len(computations)
    made |= {"cpus": [processors()] * count, "memory_limit": [memory_limit()] * count}
    made["cluster"] = [""] * count
    schema = tables.Computations.schema
    return tables.Computations({name: schema[name].values_of(made[name]) for name in schema})


def snapshots_tables(snapshots: Sequence[ComputationSnapshot]) -> Tables:
    """The tables of computations, made of snapshots."""
    threads = [task_threads(snapshot.tasks.rows) for snapshot in snapshots]
    return computations_tables(snapshots, threads, perf_counter())


def _pools_table(computations: Iterable[ComputationSnapshot]) -> tables.Pools:
    return tables.Pools.of_rows(
        {
            "computation": computation.name,
            "library": pool.library,
            "threads": pool.threads,
            "known": pool != NOT_LISTED,
        }
        for computation in computations
        for pool in computation.facts.pools
    )


def _quotas_table(computations: Iterable[ComputationSnapshot]) -> tables.Quotas:
    limit = cpu_limit().cpus
    if limit == inf:
        return tables.Quotas.empty()
    return tables.Quotas.of_rows((one.name, limit, one.numbers[THROTTLED]) for one in computations)


def resources_table(samples: array[float]) -> tables.Resources:
    """`Recording.resources`, in order of time."""
    if not samples:
        return tables.Resources.empty()
    numbers = np.array(samples, dtype=float).reshape(-1, len(SAMPLE_COLUMNS))
    return tables.Resources({name: numbers[:, n].copy() for n, name in enumerate(SAMPLE_COLUMNS)})


def processes_table(samples: array[float], logs: Sequence[ClusterLog] = ()) -> tables.Processes:
    """`Recording.processes` of this process and its descendants, in order of time."""
    if not samples:
        return tables.Processes.empty()
    numbers = np.array(samples, dtype=float).reshape(-1, len(PROCESS_COLUMNS))
    columns = {name: numbers[:, n].copy() for n, name in enumerate(PROCESS_COLUMNS)}
    integers = {name: columns[name].astype(np.int64) for name in ("pid", "is_child")}
    return with_places(Table({**columns, **integers}), logs)


def memory_table(series: Mapping[str, array[float]]) -> tables.Memory:
    """`Recording.memory`, series by series."""
    lengths = [len(rows) // len(MEMORY_COLUMNS) for rows in series.values()]
    arrays = [np.array(rows, dtype=float) for rows in series.values()]
    numbers = np.concatenate([np.zeros(0), *arrays]).reshape(-1, len(MEMORY_COLUMNS))
    columns = {name: numbers[:, n].copy() for n, name in enumerate(MEMORY_COLUMNS)}
    labels = Categorical(np.repeat(np.arange(len(lengths)), lengths), list(series))
    return tables.Memory({"label": labels, **columns})


def environment_table(rows: Sequence[tuple[str, str, str]]) -> tables.Environment:
    """`Recording.environment` of rows of section, name and value."""
    if not rows:
        return tables.Environment.empty()
    sections, names, values = zip(*rows, strict=True)
    return tables.Environment(
        {
            "section": Categorical.of(sections),
            "name": PrefixStrings(Categorical([0] * len(rows), [""]), names),
            "value": PrefixStrings(Categorical([0] * len(rows), [""]), values),
        }
    )
