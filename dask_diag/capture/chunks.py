"""Chunks of a Recording, while computations run: what `record` writes every now and then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from dask_diag.capture.computation import Computation, ComputationSnapshot, run_id
from dask_diag.capture.session import ProgressInfo, Session, open_calls, progress_of
from dask_diag.capture.tasks_table import functions_of
from dask_diag.columns import Categorical
from dask_diag.model import tables
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table, stack

_Counts = tuple[str, Mapping[str, int]]
"""A computation, and how many tasks of each function it was to run."""


class IncrementalProgress:
    """What computations are to run, with their start; how far they are, until they end."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ended: set[int] = set()

    def take(self) -> Increment:
        """What computations that have ended since last asked were to run; and what goes on."""
        ended: list[_Counts] = []
        planned: list[_Counts] = []
        progress: list[ProgressInfo] = []
        computations = tuple(self._session.computations)
        for computation in computations:
            if computation.number in self._ended:
                continue
            info = progress_of(computation)
            counts = _planned_now(computation)
            finished = computation.finished
            if finished is not None:
                # If it ended meanwhile, what was read may lack what was released.
                self._ended.add(computation.number)
                ended.append((computation.name, _planned_of_ended(finished)))
            elif info is not None:
                progress.append(info)
                planned.append((computation.name, counts))
        progress += open_calls({computation.called for computation in computations})
        return (
            {"planned": _planned_table(ended)},
            {"planned": _planned_table(planned), "progress": _progress_table(progress)},
        )


def progress_tables(session: Session) -> dict[str, Table]:
    """`Recording.planned` and `Recording.progress` of all computations, as they are now."""
    lasting, provisional = IncrementalProgress(session).take()
    parts = [lasting["planned"], provisional["planned"]]
    return {**provisional, "planned": stack(parts)}


def _planned_now(computation: Computation) -> Mapping[str, int]:
    planned = computation.planned
    return {} if planned is None else planned.by_function(computation.dsk)


def _planned_of_ended(finished: ComputationSnapshot) -> Mapping[str, int]:
    """The tasks that were submitted, and those that it did not come to."""
    functions = functions_of(finished)
    counts = np.bincount(functions.codes, minlength=len(functions.values)).tolist()
    planned = dict(finished.info.not_run)
    for function, count in zip(functions.values, counts, strict=True):
        planned[function] = planned.get(function, 0) + count
    return planned


def _planned_table(counts: Iterable[_Counts]) -> tables.Planned:
    rows = [
        (computation, function, count)
        for computation, functions in counts
        for function, count in sorted(functions.items())
        if count
    ]
    return tables.Planned(
        {
            "computation": Categorical.of(row[0] for row in rows),
            "function": Categorical.of(row[1] for row in rows),
            "tasks": np.array([row[2] for row in rows], dtype=np.int64),
        }
    )


def _progress_table(infos: Iterable[ProgressInfo]) -> tables.Progress:
    rows = list(infos)
    numbers = ("total", "finished", "ready", "waiting", "running")
    return tables.Progress(
        {
            "computation": Categorical.of(info.computation for info in rows),
            "phase": Categorical.of(info.phase for info in rows),
            "since": np.array([info.since for info in rows], dtype=float),
            **{
                name: np.array([getattr(info, name) for info in rows], dtype=np.int64)
                for name in numbers
            },
        }
    )


Tables = dict[str, Table]
Increment = tuple[Tables, Tables]
"""What is new for good, and what is so only now and will be written again: what runs or is cached.
"""


class Source(Protocol):
    """What gives the tables of one diagnostic, row by row as they come."""

    def take(self) -> Increment:
        """The rows that are new for good, and the provisional ones."""


class ChunkBuilder:
    """Makes chunks of what several diagnostics capture over one block.

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
        """What a recording has before it starts: where it is made."""
        return self._chunk({"environment": environment}, notices)

    def take(self, notices: Sequence[str]) -> tuple[Recording, Recording | None]:
        """What is new for good, and what holds only until the next chunk: what runs, is cached."""
        new, provisional = self._tables()
        is_filled = any(map(len, provisional.values()))
        return self._chunk(new, notices), self._chunk(provisional, notices) if is_filled else None

    def take_last(self, notices: Sequence[str]) -> Recording:
        """All that is new; nothing is provisional any more."""
        new, provisional = self._tables()
        for name, table in provisional.items():
            new[name] = stack([new[name], table]) if name in new else table
        return self._chunk(new, notices)

    def _tables(self) -> Increment:
        new: Tables = {}
        provisional: Tables = {}
        for source in self._sources:
            tables, provisional_tables = source.take()
            new.update(tables)
            provisional.update(provisional_tables)
        return new, provisional

    def _chunk(self, tables: Tables, notices: Sequence[str]) -> Recording:
        now = perf_counter()
        return Recording(
            start=min(session.start or now for session in self._sessions),
            stop=now,
            epoch=self._sessions[0].epoch,
            run_id=run_id(),
            notices=tuple(dict.fromkeys(notices)),
            **{**tables, **self._fields},
        )
