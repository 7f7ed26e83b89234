"""Loaded by distributed in each new client while a profiler is active: joins it to the cluster.

A nanny passes the client's configuration to its workers. In a worker, or after the last diagnostic,
this module does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dask_diag.cluster.recorder import active_recorders, is_of_a_worker

if TYPE_CHECKING:
    from distributed import Client


async def dask_setup(client: Client) -> None:
    """Let active diagnostics join a client that starts."""
    for recorder in () if is_of_a_worker(client) else active_recorders():
        await recorder.join(client)


async def dask_teardown(client: Client) -> None:
    """Pull the last rows before a client closes."""
    for recorder in active_recorders():
        await recorder.leave(client)
