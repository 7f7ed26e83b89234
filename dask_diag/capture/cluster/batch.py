"""What the scheduler sends of runs, computations and workers, as a client has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from dask_diag.capture.tasks.keys import Keys
from dask_diag.capture.tasks.metered import Metric

if TYPE_CHECKING:
    from dask_diag.capture.cluster.messages import Facts, SentBatch

__all__ = ["Batch", "ClusterComputation", "ClusterWorker", "RunDetails", "batch_of"]


class RunDetails(NamedTuple):
    """The type of an exception, what was metered, the span, what was waited for, and stacks."""

    error: str
    metrics: Sequence[Metric]
    span: str
    waits: Sequence[tuple[str, float, int, str]]
    stacks: bytes


class Batch(NamedTuple):
    """Runs of tasks, in the order in which the scheduler knew of their end.

    Attributes
    ----------
    ids : bytes
        A number for each run, ascending over all batches, as 64-bit integers.
    rows : bytes
        The numbers of each run: see `formats.RUN_FIELDS`.
    keys : Keys
    depends_on : bytes
        The ids of the runs that each depends on, one after the other.
    details : mapping
        By id, of the runs that have more than others.
    transfers : sequence
        Of each: the id of the run whose result was sent (-1 if that is not recorded), the numbers
        of the workers that it went from and to, start, stop, and bytes.
    others : bytes
        Of each task of a client that is not recorded: the number of its worker, start and stop, as
        64-bit floats.
    processes : sequence
        The number of a worker, and samples of its processes: see `formats.PROCESS`.
    result_keys, results : Keys, bytes
        Of each result that was in memory, its key and numbers: see `formats.RESULT`.
    events : sequence
        Of each time that a worker paused, or moved results to disk or back: its number, which of
        these, start, stop, and bytes.
    functions, result_functions : mapping
        The names of the functions of those whose keys have none: of runs by id, of results by
        position.
    """

    ids: bytes
    rows: bytes
    keys: Keys
    depends_on: bytes
    details: Mapping[int, RunDetails]
    transfers: Sequence[tuple[int, int, int, float, float, int]]
    others: bytes
    processes: Sequence[tuple[int, bytes]]
    result_keys: Keys
    results: bytes
    events: Sequence[tuple[int, str, float, float, float]]
    functions: Mapping[int, str] = MappingProxyType({})
    result_functions: Mapping[int, str] = MappingProxyType({})


class ClusterComputation(NamedTuple):
    """A computation, as the scheduler described it last; times are the scheduler's.

    Of its `total` tasks those are `done` whose result is there; `seconds`, and `cpu` of them, are
    what these took. They are counted where someone shows them.
    """

    number: int
    name: str
    client: str
    span: str
    start: float
    stop: float | None
    workers: int
    scheduler_cpu: float
    total: int
    done: int
    failed: int
    seconds: float
    cpu: float


class ClusterWorker(NamedTuple):
    """A worker, as the scheduler described it last; times are the scheduler's."""

    number: int
    name: str
    address: str
    host: str
    threads: int
    joined: float
    left: float | None
    reason: str
    facts: Facts


def batch_of(sent: SentBatch) -> Batch:
    """A batch as it was sent."""
    return Batch(
        sent["ids"],
        sent["rows"],
        Keys(list(sent["keys"])),
        sent["depends_on"],
        {row: RunDetails(*details) for row, details in sent["details"]},
        sent["transfers"],
        sent["others"],
        sent["processes"],
        Keys(list(sent["result_keys"])),
        sent["results"],
        sent["events"],
        dict(sent["functions"]),
        dict(sent["result_functions"]),
    )
