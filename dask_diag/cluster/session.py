"""Session of one client, from when a diagnostic joins a cluster until one of the two ends."""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any

from dask_diag._version import __version__
from dask_diag.capture.computation import run_id
from dask_diag.cluster.clocks import compare_clocks
from dask_diag.cluster.log import ClusterLog, is_below_this_process
from dask_diag.cluster.shipping import BOOTSTRAP, Shipped, source_of_scheduler_plugin
from dask_diag.cluster.wire import NAME, SCHEDULER, host_id

if TYPE_CHECKING:
    from distributed import Client

    from dask_diag.cluster.wire import AttachReply, PullReply


_SECONDS_WITHOUT_SCHEDULER = 0.5


class ConnectionLostError(ConnectionError):
    """The scheduler does not know a session, as it took the client for gone."""


async def unless_lost(
    request: Coroutine[object, object, None], client: Client | None, seconds: float
) -> None:
    """Await a request of a client for some seconds, but not longer than its scheduler exists."""
    asked = asyncio.ensure_future(request)
    # What is cancelled may fail, and nobody asks how: asyncio would log that.
    asked.add_done_callback(lambda done: done.cancelled() or done.exception())
    start = perf_counter()
    while not asked.done():
        connection = getattr(client, "scheduler_comm", None)
        is_lost = connection is None or connection.closed()
        most = _SECONDS_WITHOUT_SCHEDULER if is_lost else seconds
        if perf_counter() - start > most:
            asked.cancel()
            raise TimeoutError(f"no answer in {most:g} s")
        await asyncio.wait([asked], timeout=_SECONDS_WITHOUT_SCHEDULER)
    await asked


_PINGS = 20
_ATTEMPTS = 3
_SECONDS_BETWEEN_PULLS = 0.1
_SECONDS_BETWEEN_NEWS = 0.02
_SECONDS_TO_WAIT_FOR_NEWS = 0.5
_SECONDS_TO_ATTACH = 10.0
_SECONDS_TO_REACH_WORKERS = 1.0
_SECONDS_TO_FINISH = 10.0
_SECONDS_TO_COMPARE = 1.0
_ONCE = {"name": NAME, "idempotent": True}
"""Arguments to register a plugin that may be registered already."""


Fault = Callable[[str, BaseException], None]


class ClusterSession:
    """Pulls the rows of one client.

    Coroutines run on the client's event loop and do not raise.

    Parameters
    ----------
    client : Client
    log : ClusterLog
    fault : callable
        Called with an action and its error.
    received : callable
        Called with the log after new rows and at the end.
    rejoin : callable
        Called with the client after a new connection to the scheduler.
    """

    def __init__(
        self,
        client: Client,
        log: ClusterLog,
        fault: Fault,
        received: Callable[[ClusterLog], None],
        rejoin: Callable[[Client], Awaitable[None]],
    ) -> None:
        self.client: Client | None = client
        self._client_id = str(client.id)
        self._scheduler = client.scheduler
        self.log = log
        self._id = os.urandom(8).hex()
        self._fault = fault
        self._received = received
        self._rejoin = rejoin
        self._puller: asyncio.Task[None] | None = None
        self._reaching: asyncio.Task[None] | None = None
        self._attaching: asyncio.Task[None] | None = None
        self._finishing: asyncio.Task[None] | None = None

    async def attach(self) -> None:
        """Register the plugins at the cluster, and start to pull."""
        if self._attaching is None:
            self._attaching = asyncio.ensure_future(self._attach_or_report())
        await asyncio.shield(self._attaching)

    async def _attach_or_report(self) -> None:
        try:
            await asyncio.wait_for(self._attach(), _SECONDS_TO_ATTACH)
        except Exception as error:
            self._fault("to join a cluster", error)
            with suppress(Exception):
                # Plugins that have arrived by now are removed.
                await asyncio.wait_for(self._leave(), _SECONDS_TO_FINISH)
            return
        try:
            workers = asyncio.wait_for(self._attach_workers(), _SECONDS_TO_ATTACH)
            self._reaching = asyncio.ensure_future(workers)
            # A worker that does not answer, as its tasks hold the GIL, keeps no program waiting.
            await asyncio.wait([self._reaching], timeout=_SECONDS_TO_REACH_WORKERS)
            if self._reaching.done():
                self._reach_no_more()
        except Exception as error:
            # The recording goes on without the workers.
            self._fault("to reach the workers of a cluster", error)
        self._puller = asyncio.ensure_future(self._pull_regularly())

    async def finish(self) -> None:
        """Pull the last rows; the last session takes all of dask_diag off the cluster."""
        # The block and the client may end at the same time: both wait for the same end.
        if self._finishing is None:
            self._finishing = asyncio.ensure_future(self._finish())
        await asyncio.shield(self._finishing)

    async def _attach(self) -> None:
        scheduler = self._scheduler
        plugin = Shipped(source_of_scheduler_plugin(), "DaskDiagSchedulerPlugin")
        wants = {**self.log.wants, "program": run_id()}
        for _ in range(_ATTEMPTS):
            await scheduler.register_scheduler_plugin(plugin=pickle.dumps(plugin), **_ONCE)
            reply: AttachReply | None = await scheduler.dask_diag_attach(
                session=self._id, client=self._client_id, wants=wants
            )
            # None if the last session of another client has taken the plugin with it meanwhile.
            if reply is not None:
                break
        else:
            raise ConnectionLostError("other clients joined and left at the same time")
        log = self.log
        log.scheduler, log.address, log.pid = reply["scheduler"], reply["address"], reply["pid"]
        if is_below_this_process(reply["host"], reply["pid"]):
            self.log.below.add(SCHEDULER)
        if not reply["host"] or reply["host"] != host_id():
            reading = await compare_clocks(scheduler.dask_diag_clock, perf_counter, _PINGS)
            log.offset, log.error = reading.offset, reading.error

    async def _attach_workers(self) -> None:
        bootstrap = Shipped(BOOTSTRAP, "DaskDiagWorkerPlugin", __version__)
        await self._scheduler.register_worker_plugin(plugin=pickle.dumps(bootstrap), **_ONCE)
        # If another client registered them just before, registering neither acts nor waits.
        await self._scheduler.dask_diag_ready()

    async def _pull_regularly(self) -> None:
        # Progress bars have to know at once that a computation has ended. All sessions have to know
        # that a scheduler closes.
        progress = self.log.wants.get("progress", False)
        pause = _SECONDS_BETWEEN_NEWS if progress else _SECONDS_BETWEEN_PULLS
        while self._finishing is None:
            await asyncio.sleep(pause)
            if self._finishing is not None:
                # The scheduler may have no plugin any more; leaving brings the new rows.
                return
            try:
                await self.pull(_SECONDS_TO_WAIT_FOR_NEWS)
            except ConnectionLostError as error:
                client = self.client
                if client is not None and client.status == "running":
                    self._finishing = asyncio.ensure_future(self._begin_again(client, error))
            except Exception as error:
                # The next pull, or leaving, brings the rows.
                if self._finishing is None:
                    self._fault("to pull from a cluster", error)

    async def pull(self, wait: float = 0.0) -> None:
        """Pull new rows; wait some seconds for the end of a computation."""
        reply = await self._scheduler.dask_diag_pull(
            session=self._id, received=self.log.received, wait=wait
        )
        self._receive(reply)
        if reply.get("closing") and self._finishing is None:
            self._finishing = asyncio.ensure_future(self._finish())

    def _receive(self, reply: PullReply | None) -> None:
        if reply is None or reply.get("status") != "OK":
            raise ConnectionLostError("the connection broke; the last rows before that are missing")
        self.log.receive(reply)
        self._received(self.log)

    async def _finish(self) -> None:
        try:
            if self._attaching is not None:
                await self._attaching
            if self._puller is not None:
                if not self.log.wants.get("progress"):
                    self._puller.cancel()
                await unless_lost(self._leave(), self.client, _SECONDS_TO_FINISH)
                await asyncio.wait([self._puller], timeout=_SECONDS_TO_FINISH)
                self._reach_no_more()
        except Exception as error:
            self._fault("to pull the last rows from a cluster", error)
        finally:
            self._end()

    def _end(self) -> None:
        self.log.end()
        self.client = self._scheduler = None
        self._received(self.log)

    async def _begin_again(self, client: Client, error: Exception) -> None:
        """Rejoin a client after a new connection, with a new session."""
        self._fault("to pull from a cluster", error)
        self._end()
        try:
            await self._rejoin(client)
        except Exception as fault:
            self._fault("to join a cluster again", fault)

    def _reach_no_more(self) -> None:
        """Report workers out of reach; rows known to the scheduler are recorded."""
        reaching, self._reaching = self._reaching, None
        if reaching is None:
            return
        error: BaseException | None
        if reaching.done():
            error = reaching.exception()
        else:
            reaching.cancel()
            error = TimeoutError("some workers had not answered when the block ended")
        if error is not None:
            self._fault("to reach the workers of a cluster", error)

    async def _leave(self) -> None:
        """Receive the last rows, if rows were pulled, and have the scheduler forget the session."""
        scheduler, log = self._scheduler, self.log
        if log.error:
            # The clock is not the scheduler's: the drift since the start adds to the error.
            with suppress(Exception):
                comparing = compare_clocks(scheduler.dask_diag_clock, perf_counter, _PINGS)
                reading = await asyncio.wait_for(comparing, _SECONDS_TO_COMPARE)
                log.error += abs(reading.offset - log.offset)
        reply: Any = {}
        try:
            reply = await self._twice("detach", received=log.received) or {}
            if self._puller is not None:
                self._receive(reply)
        finally:
            if not reply.get("closing"):
                await self._twice("left")

    async def _twice(self, operation: str, **arguments: object) -> Any:
        """Ask the scheduler, again after an error: it still has what a lost reply had."""
        name, arguments = f"{NAME}_{operation}", {"session": self._id, **arguments}
        try:
            return await getattr(self._scheduler, name)(**arguments)
        except Exception as error:
            self._fault("to leave a cluster", error)
            return await getattr(self._scheduler, name)(**arguments)
