"""What clients of distributed load as they start, while a diagnostic is active.

A nanny passes the client's configuration to its workers: in a worker, or when no diagnostic is
active any more, this does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dask_diag.cluster.recorder import active_recorders, is_of_a_worker

if TYPE_CHECKING:
    from distributed import Client


async def dask_setup(client: Client) -> None:
    """Join a client that starts."""
    for recorder in () if is_of_a_worker(client) else active_recorders():
        await recorder.join(client)


async def dask_teardown(client: Client) -> None:
    """Pull the last rows before a client closes."""
    for recorder in active_recorders():
        await recorder.leave(client)
