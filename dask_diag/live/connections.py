"""Where a viewer listens, and how many may connect: any program of this machine can."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import tornado.netutil
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerRequest

from dask_diag.errors import DiagnosticError

if TYPE_CHECKING:
    import socket

    from tornado.iostream import IOStream
    from tornado.web import Application

__all__ = ["ADDRESS", "MOST_STRANGERS", "LimitedServer", "PortTakenError", "bind", "silence"]

ADDRESS = "127.0.0.1"
MOST_STRANGERS = 64
"""Connections over which no question with the token has come."""
_LONGEST_SILENCE = 20.0
"""Seconds without a question after which a connection is closed; a page then opens another."""
_LONGEST_BODY = 5.0


class PortTakenError(DiagnosticError):
    """Another program listens at that port."""


def bind(port: int) -> list[socket.socket]:
    """A socket of this machine alone; any free port if it is 0.

    Raises
    ------
    PortTakenError
        If that port cannot be had.
    """
    try:
        return tornado.netutil.bind_sockets(port, ADDRESS)
    except OSError as error:
        raise PortTakenError(
            f"cannot listen at port {port} of {ADDRESS}: {error.strerror}; "
            "choose another, or leave --port out"
        ) from None


class LimitedServer(HTTPServer):
    """Closes connections of those who have no token, the oldest first, before files run out."""

    def __init__(self, application: Application) -> None:
        super().__init__(application)
        self._strangers: list[IOStream] = []

    def initialize(self, application: Application) -> None:  # type: ignore[override]
        """As tornado's, which makes it before it is initialized."""
        super().initialize(
            application,
            max_header_size=1 << 16,
            max_body_size=0,
            idle_connection_timeout=_LONGEST_SILENCE,
            body_timeout=_LONGEST_BODY,
        )

    def handle_stream(self, stream: IOStream, address: tuple[object, ...]) -> None:
        """Somebody has connected."""
        self._strangers = [stranger for stranger in self._strangers if not stranger.closed()]
        if len(self._strangers) >= MOST_STRANGERS:
            self._strangers.pop(0).close()
        self._strangers.append(stream)
        super().handle_stream(stream, address)

    def note_friend(self, request: HTTPServerRequest) -> None:
        """Somebody has the token."""
        stream = getattr(request.connection, "stream", None)
        self._strangers = [stranger for stranger in self._strangers if stranger is not stream]


def silence() -> None:
    """Print nothing: messages of tornado would hold addresses, and so the token.

    Those of asyncio come once for each connection that fails, as often as anybody likes.
    """
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    for name in ("tornado.access", "tornado.application", "tornado.general"):
        logger = logging.getLogger(name)
        logger.propagate = False
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
