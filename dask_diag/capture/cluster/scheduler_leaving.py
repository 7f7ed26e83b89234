"""How sessions end at the scheduler: the last one takes all of this package off the cluster.

This module is shipped: see `scheduler_plugin`.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from dask_diag.capture.cluster.formats import NAME
from dask_diag.capture.cluster.handlers import forget_handlers
from dask_diag.capture.cluster.scheduler_runs import RunCollector

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler

__all__ = ["OPERATIONS", "Leaving", "LeavingCollector"]

OPERATIONS = ("attach", "ready", "pull", "detach", "left", "clock", "worker")
SECONDS_TO_STOP_WORKERS = 1.0
SECONDS_TO_LEAVE = 1.0
SECONDS_TO_REPLY = 0.05


class Leaving(NamedTuple):
    """The client of a session that has ended, and the last reply to it."""

    client: str
    reply: asyncio.Future[dict[str, object]]


class LeavingCollector(RunCollector):
    """Ends sessions, and removes the plugins.

    Attributes
    ----------
    removing : asyncio.Lock
        Held while plugins are removed: a session that comes meanwhile waits for that.
    leaving : dict
        The sessions that have ended and have not said that they got their last reply.
    is_closing : bool
        Whether the scheduler closes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.removing = asyncio.Lock()
        self.leaving: dict[str, Leaving] = {}
        self.is_closing = False

    def stop(self) -> None:
        """Be there for clients and workers no more."""
        for name in OPERATIONS:
            self.scheduler.handlers.pop(f"{NAME}_{name}", None)
        forget_handlers()
        self._stop_usage()

    async def before_close(self) -> None:
        """The scheduler closes: clients get the last rows, and leave, if they ask in time."""
        self.is_closing = True
        for session in self.sessions.values():
            session.news.set()
        start = perf_counter()
        while self.sessions and perf_counter() - start < SECONDS_TO_LEAVE:
            await asyncio.sleep(SECONDS_TO_REPLY / 5)
        await asyncio.sleep(SECONDS_TO_REPLY)

    async def close(self) -> None:
        """The scheduler closes, with what is there still."""
        self.stop()

    async def _end_session(self, name: str) -> None:
        """Forget a session, whatever fails."""
        self.sessions.pop(name, None)
        try:
            self._renew_sessions()
            if self.sessions:
                await self._settle()
        except Exception as error:
            self.fault("ending a session", error)

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """A client that goes without a word, as one that was killed, ends its sessions."""
        self.workers_of_clients.pop(client, None)
        ended = [name for name, session in self.sessions.items() if session.client == client]
        for name in ended:
            del self.sessions[name]
        unheard = [name for name, leaving in self.leaving.items() if leaving.client == client]
        for name in unheard:
            del self.leaving[name]
        self._renew_sessions()
        if ended or unheard:
            change = self._settle() if self.sessions else self._remove_plugins()
            self._change = asyncio.ensure_future(change)

    async def _remove_plugins(self) -> None:
        """Take all off the cluster, unless a session has come meanwhile."""
        scheduler = self.scheduler
        async with self.removing:
            if scheduler.plugins.get(NAME) is not self or self.sessions or self.leaving:
                return
            await self._remove_plugins_of_workers()
            if self.sessions or self.leaving:
                return
            # Nothing comes between these.
            try:
                self.stop()
            except Exception as error:
                self.fault("stopping", error)
            scheduler.remove_plugin(NAME)
            getattr(getattr(scheduler, "_broker", None), "_topics", {}).pop(NAME, None)
            # Of tasks of others, and those done while the workers' plugins were removed.
            self._forget_rows()

    async def _remove_plugins_of_workers(self) -> None:
        scheduler = self.scheduler
        if NAME not in scheduler.worker_plugins:
            return
        removal = asyncio.ensure_future(scheduler.unregister_worker_plugin(None, NAME))
        removal.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._removal = removal
        # Where one does not answer it goes on: the worker removes it when it does.
        await asyncio.wait([removal], timeout=SECONDS_TO_STOP_WORKERS)
        error = removal.exception() if removal.done() and not removal.cancelled() else None
        if isinstance(error, Exception):
            self.fault("removing the workers' plugins", error)
        for worker in self.workers.values():
            # It measures no more, until it says so again.
            worker.facts = {}
