"""Chunks of a Recording, while computations run: what `record` writes every now and then."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, Protocol

from dask_diag.capture.run_id import run_id
from dask_diag.capture.session import Session
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table, stack

__all__ = ["ChunkBuilder", "Increment", "Source", "Tables"]

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
