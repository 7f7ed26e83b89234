"""Security of a viewer: address, token, and limits on connections."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Iterator, Mapping
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import tornado.netutil
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerRequest

from dask_diag.errors import DiagnosticError

if TYPE_CHECKING:
    import socket

    from tornado.iostream import IOStream
    from tornado.web import Application


ADDRESS = "127.0.0.1"
TOKEN_HEADER = "X-Dask-Diag-Token"
QUESTION = ("x0", "x1", "w", "r", "p")
"""Parameters of a page's question."""
MOST_COLUMNS = 4000
_LARGEST_TIME = 1e9
MOST_STRANGERS = 64
"""Connections without a token."""
_LONGEST_SILENCE = 20.0
"""Seconds after which a connection without questions is closed; a page then opens another."""
_LONGEST_BODY = 5.0

HEADERS: Mapping[str, str] = {
    # Bokeh needs inline scripts and eval; a page connects to its own server alone.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
        "img-src data: blob:; font-src data:; connect-src 'self'; frame-ancestors 'self'; "
        "base-uri 'none'; form-action 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_HUB_VARIABLES = ("JUPYTERHUB_PUBLIC_URL", "JUPYTERHUB_PUBLIC_HUB_URL", "JUPYTERHUB_HOST")


def allowed_hosts(port: int, environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """Names by which a page may call the viewer; behind a hub's proxy also the hub's name.

    Any name can be made to lead to this machine (DNS rebinding): a page of any such name would
    have the viewer's origin.
    """
    hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
    if environ.get("JUPYTERHUB_SERVICE_PREFIX"):
        hosts |= {urlsplit(origin).netloc for origin in _hub_origins(environ)}
    return frozenset(hosts)


def hub_origin(environ: Mapping[str, str]) -> str:
    """Origin of a hub's pages, as ``https://hub.example``; empty if unknown.

    A hub knows its public address only by configuration.
    """
    return next(_hub_origins(environ), "")


def _hub_origins(environ: Mapping[str, str]) -> Iterator[str]:
    for name in _HUB_VARIABLES:
        parts = urlsplit(environ.get(name, "").lower())
        if parts.scheme in ("http", "https") and parts.netloc:
            yield f"{parts.scheme}://{parts.netloc}"


def refusal(
    method: str, headers: Mapping[str, str], given: str | None, token: str, hosts: frozenset[str]
) -> int:
    """Status of a request that is refused; 0 if it is answered."""
    if method != "GET":
        return 405
    origin = headers.get("Origin")
    origins = {f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")}
    is_own = origin is None or origin.lower() in origins
    # The time of this comparison does not depend on the first difference.
    has_token = compare_digest((given or "").encode("utf-8", "replace"), token.encode())
    is_allowed = is_own and has_token and headers.get("Host", "").lower() in hosts
    return 0 if is_allowed else 403


class Question(NamedTuple):
    """Question of a page.

    Attributes
    ----------
    view : (float, float) or None
        Seconds since the recording started; None for the last minute.
    columns : int
        Pixels.
    revision : int
        Revision that the page shows.
    pictures : bool
        Whether drawings are wanted besides numbers.
    """

    view: tuple[float, float] | None
    columns: int
    revision: int
    pictures: bool


def question_of(arguments: Mapping[str, str]) -> Question | None:
    """Parse a question; None if a parameter is not a number within its bounds."""
    try:
        columns = int(arguments.get("w", "800"))
        revision = int(arguments.get("r", "-1"))
        pictures = int(arguments.get("p", "1"))
        view = None
        if "x0" in arguments or "x1" in arguments:
            view = (float(arguments["x0"]), float(arguments["x1"]))
    except (KeyError, ValueError):
        return None
    is_valid = 1 <= columns <= MOST_COLUMNS and -1 <= revision <= 2**53 and pictures in (0, 1)
    times = all(math.isfinite(time) and abs(time) <= _LARGEST_TIME for time in view or ())
    return Question(view, columns, revision, bool(pictures)) if is_valid and times else None


class PortTakenError(DiagnosticError):
    """Another program listens at the port."""


def bind(port: int) -> list[socket.socket]:
    """Sockets that listen on this machine alone, at any free port if `port` is 0.

    Raises
    ------
    PortTakenError
    """
    try:
        return tornado.netutil.bind_sockets(port, ADDRESS)
    except OSError as error:
        raise PortTakenError(
            f"cannot listen at port {port} of {ADDRESS}: {error.strerror}; "
            "choose another, or leave --port out"
        ) from None


class LimitedServer(HTTPServer):
    """Server that closes the oldest connections without a token before files run out."""

    def __init__(self, application: Application) -> None:
        super().__init__(application)
        self._strangers: list[IOStream] = []

    def initialize(self, application: Application) -> None:  # type: ignore[override]
        """Set limits; tornado calls this before `__init__`."""
        super().initialize(
            application,
            max_header_size=1 << 16,
            max_body_size=0,
            idle_connection_timeout=_LONGEST_SILENCE,
            body_timeout=_LONGEST_BODY,
        )

    def handle_stream(self, stream: IOStream, address: tuple[object, ...]) -> None:
        """Accept a connection."""
        self._strangers = [stranger for stranger in self._strangers if not stranger.closed()]
        if len(self._strangers) >= MOST_STRANGERS:
            self._strangers.pop(0).close()
        self._strangers.append(stream)
        super().handle_stream(stream, address)

    def note_token(self, request: HTTPServerRequest) -> None:
        """Keep the connection of a request that had the token."""
        stream = getattr(request.connection, "stream", None)
        self._strangers = [stranger for stranger in self._strangers if stranger is not stream]


def silence() -> None:
    """Print no messages: tornado's have addresses, and so the token.

    Messages of asyncio would come with each connection that fails, as often as anybody likes.
    """
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    for name in ("tornado.access", "tornado.application", "tornado.general"):
        logger = logging.getLogger(name)
        logger.propagate = False
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
