"""A cluster to measure on, and when it has nothing to do any more."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from distributed import Client, LocalCluster


@contextlib.contextmanager
def cluster(workers: int, processes: bool) -> Iterator[Client]:
    """A cluster of workers with a thread each, and its client."""
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=processes,
            protocol=None if processes else "inproc",
            dashboard_address=None,
            # Workers of one process each see the memory of all: with their share they would pause.
            memory_limit="auto" if processes else 1.0,
        ) as local,
        Client(local) as client,
    ):
        yield client


def await_forgotten(client: Client) -> None:
    """Wait until neither scheduler nor workers have a task, at the cost of few questions."""
    while client.cluster.scheduler.tasks:
        time.sleep(0.01)
    time.sleep(0.2)
    while any(client.run(count_tasks).values()):
        time.sleep(0.2)


def count_tasks(dask_worker: Any) -> int:
    """How many tasks a worker has."""
    return len(dask_worker.state.tasks)
