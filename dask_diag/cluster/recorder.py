"""Sessions of a diagnostic on the clusters of all clients of this process.

While a diagnostic is active, dask's configuration names a module of this package for clients to
load at their start: later clients are joined without replacing anything of distributed.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import dask.config

from dask_diag.hooks.lines import start_capturing

if TYPE_CHECKING:
    from distributed import Client
    from distributed.preloading import PreloadManager

    from dask_diag.cluster.log import ClusterLog, WorkerNames
    from dask_diag.cluster.session import ClusterSession, Fault
    from dask_diag.cluster.wire import Wants


_PRELOAD = "dask_diag.cluster.preload"
_OPTION = "distributed.client.preload"
_LOGGER = "distributed.preloading"
_lock = threading.RLock()
_active: list[ClusterRecorder] = []
_own_preloads: WeakKeyDictionary[Client, PreloadManager] = WeakKeyDictionary()
"""Preloads of clients that were open before a diagnostic was active."""


class ClusterRecorder:
    """Joins every client of this process from `start` to `stop`, each with a session.

    Parameters
    ----------
    fault : callable
        Called with an action and its error: nothing is raised.
    received : callable, optional
        Called with a log after new rows and at the end, on the event loop of the client, which must
        not have to wait.
    """

    def __init__(self, fault: Fault, received: Callable[[ClusterLog], None] | None = None) -> None:
        self._wants: Wants = {}
        self._fault = fault
        self._received = received
        self.sessions: list[ClusterSession] = []
        self._names: WorkerNames | None = None

    def start(self, wants: Wants) -> None:
        """Begin to join all clients that are open or start later, to collect the wanted rows."""
        self._wants = {**wants, "block": os.urandom(8).hex()}
        with _lock:
            _active.append(self)
            _set_preload()
        for client in open_clients():
            session = self._new_session(client)
            if session is not None:
                try:
                    _add_preload(client)
                except Exception as error:
                    self._fault("to know when a client closes", error)
                client.loop.add_callback(session.attach)

    def wait(self) -> None:
        """Wait until the clients are joined that are not asynchronous."""
        for session in list(self.sessions):
            client = session.client
            if client is not None and not client.asynchronous:
                self._run(client, session.attach)

    def stop(self) -> None:
        """Pull new rows, and leave."""
        with _lock:
            if self in _active:
                _active.remove(self)
            if not _active:
                _unset_preload()
        for session in self.sessions:
            if session.client is not None:
                session.log.is_left = True
                self._run(session.client, session.finish)

    async def joined(self) -> None:
        """Wait until clients are joined, if `start` was called on their event loop."""
        for session in self.sessions:
            await session.attach()

    async def finish(self) -> None:
        """Wait until all rows are pulled, if `stop` was called on the client's own event loop."""
        for session in self.sessions:
            await session.finish()

    async def join(self, client: Client) -> None:
        """Join a client, while the diagnostic is active, on the client's event loop.

        The client starts, or the scheduler has forgotten the client.
        """
        with _lock:
            session = self._new_session(client) if self in _active else None
        if session is not None:
            await session.attach()

    async def leave(self, client: Client) -> None:
        """Pull the last rows of a client that is about to close."""
        for session in self.sessions:
            if session.client is client:
                await session.finish()

    def clear(self) -> None:
        """Forget all recorded rows, except computations that run now."""
        self.sessions = [session for session in self.sessions if not session.log.has_ended]
        for session in self.sessions:
            session.log.clear()

    @property
    def logs(self) -> list[ClusterLog]:
        """Logs of the sessions."""
        return [session.log for session in self.sessions]

    def pull(self) -> None:
        """Pull new rows now from clients that are not asynchronous."""
        for session in self.sessions:
            client = session.client
            if client is not None and not client.asynchronous:
                try:
                    client.sync(session.pull)
                except Exception as error:
                    self._fault("to pull from a cluster", error)

    def _receive(self, log: ClusterLog) -> None:
        try:
            if self._received is not None:
                self._received(log)
        except Exception as error:
            self._fault("to show what was pulled from a cluster", error)

    def _run(self, client: Client, coroutine: Callable[[], Awaitable[None]]) -> None:
        """Run a coroutine on a client's event loop, and wait unless the caller runs the loop."""
        try:
            if client.asynchronous:
                client.loop.add_callback(coroutine)
            else:
                client.sync(coroutine)
        except Exception as error:
            self._fault("to reach a cluster", error)

    def _new_session(self, client: Client) -> ClusterSession | None:
        with _lock:
            if any(session.client is client for session in self.sessions):
                return None
            start_capturing()
            # The import of asyncio would double the import of this package; most have no client.
            from dask_diag.cluster.log import ClusterLog, WorkerNames
            from dask_diag.cluster.session import ClusterSession

            if self._names is None:
                self._names = WorkerNames()
            log = ClusterLog(self._wants, self._names)
            session = ClusterSession(client, log, self._fault, self._receive, self.join)
            self.sessions.append(session)
            return session


def active_recorders() -> list[ClusterRecorder]:
    """Recorders that are to join a client that starts now."""
    with _lock:
        return list(_active)


def open_clients() -> list[Client]:
    """Connected clients of this process, if distributed is imported."""
    module = sys.modules.get("distributed.client")
    clients = list(getattr(getattr(module, "Client", None), "_instances", ()))
    return [
        client for client in clients if client.status == "running" and not is_of_a_worker(client)
    ]


def is_of_a_worker(client: Client) -> bool:
    """Return whether a task uses a client: its graphs belong to the client of the task."""
    return str(getattr(client, "id", "")).startswith("Client-worker-")


def _is_of_others(record: logging.LogRecord) -> bool:
    """Return whether distributed logs about a preload of others.

    Distributed writes preloads to stderr, where a recorded program has to write the usual output.
    """
    return _PRELOAD not in record.getMessage()


def _set_preload() -> None:
    logging.getLogger(_LOGGER).addFilter(_is_of_others)
    modules = _preloads()
    if _PRELOAD not in modules:
        dask.config.set({_OPTION: [*modules, _PRELOAD]})


def _add_preload(client: Client) -> None:
    """Let an open client run the teardown of the preload before it closes."""
    preloading = sys.modules["distributed.preloading"]
    with _lock:
        if any(preload.name == _PRELOAD for preload in client.preloads):
            return
        own, more = client.preloads, preloading.Preload(client, _PRELOAD, (), None)
        client.preloads = preloading.PreloadManager([*own, more])
        _own_preloads[client] = own


def _unset_preload() -> None:
    logging.getLogger(_LOGGER).removeFilter(_is_of_others)
    for client, own in list(_own_preloads.items()):
        client.preloads = own
    _own_preloads.clear()
    modules = [module for module in _preloads() if module != _PRELOAD]
    if modules or "distributed" in sys.modules:
        dask.config.set({_OPTION: modules})
        return
    section = dask.config.config.get("distributed", {})
    section.get("client", {}).pop("preload", None)
    if not section.get("client", True):
        del section["client"]
    if not section:
        dask.config.config.pop("distributed", None)


def _preloads() -> list[str]:
    modules = dask.config.get(_OPTION, [])
    return [modules] if isinstance(modules, str) else list(modules)
