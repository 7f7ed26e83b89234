"""Where a viewer listens, and how many may connect: any program of this machine can."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import secrets
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


TOKEN_HEADER = "X-Dask-Diag-Token"
QUESTION = ("x0", "x1", "w", "r", "p")
"""What a page may ask with."""
MOST_COLUMNS = 4000
_LARGEST_TIME = 1e9

HEADERS: Mapping[str, str] = {
    # Bokeh needs inline scripts and eval; nothing leaves the page but questions to its own server.
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


def new_token() -> str:
    """192 random bits."""
    return secrets.token_urlsafe(24)


def is_token(given: str | None, token: str) -> bool:
    """Compare in a time that does not depend on where they differ."""
    return compare_digest((given or "").encode("utf-8", "replace"), token.encode())


def allowed_hosts(port: int, environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """The names by which a page may call the viewer.

    Any name can be made to lead to this machine (DNS rebinding): a page of that name would be of
    the viewer's origin. Behind a hub's proxy it is the hub's name.
    """
    hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
    if environ.get("JUPYTERHUB_SERVICE_PREFIX"):
        hosts |= {urlsplit(origin).netloc for origin in _hub_origins(environ)}
    return frozenset(hosts)


def hub_origin(environ: Mapping[str, str]) -> str:
    """Where a hub's pages are, as ``https://hub.example``; nothing if it is not known.

    A hub says so only if it was configured with its public address.
    """
    return next(_hub_origins(environ), "")


def _hub_origins(environ: Mapping[str, str]) -> Iterator[str]:
    for name in _HUB_VARIABLES:
        parts = urlsplit(environ.get(name, "").lower())
        if parts.scheme in ("http", "https") and parts.netloc:
            yield f"{parts.scheme}://{parts.netloc}"


def allowed_origins(hosts: frozenset[str]) -> frozenset[str]:
    """The pages that may ask."""
    return frozenset(f"{scheme}://{host}" for host in hosts for scheme in ("http", "https"))


def refusal(
    method: str, headers: Mapping[str, str], given: str | None, token: str, hosts: frozenset[str]
) -> int:
    """The status of a request that is refused; 0 if it is not."""
    if method != "GET":
        return 405
    if headers.get("Host", "").lower() not in hosts:
        return 403
    origin = headers.get("Origin")
    if origin is not None and origin.lower() not in allowed_origins(hosts):
        return 403
    return 0 if is_token(given, token) else 403


class Question(NamedTuple):
    """What a page asks for.

    Attributes
    ----------
    view : (float, float) or None
        Seconds since the recording started; None for the last ones.
    columns : int
        Pixels.
    revision : int
        What the page has.
    pictures : bool
        Whether with what is drawn, or numbers alone.
    """

    view: tuple[float, float] | None
    columns: int
    revision: int
    pictures: bool


def question_of(arguments: Mapping[str, str]) -> Question | None:
    """What is asked for; None if something is not a number in its bounds."""
    try:
        columns = int(arguments.get("w", "800"))
        revision = int(arguments.get("r", "-1"))
        pictures = int(arguments.get("p", "1"))
        interval = None
        if "x0" in arguments or "x1" in arguments:
            interval = (float(arguments["x0"]), float(arguments["x1"]))
    except (KeyError, ValueError):
        return None
    if not 1 <= columns <= MOST_COLUMNS or not -1 <= revision <= 2**53 or pictures not in (0, 1):
        return None
    if interval is not None and not all(
        math.isfinite(time) and abs(time) <= _LARGEST_TIME for time in interval
    ):
        return None
    return Question(interval, columns, revision, bool(pictures))


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
