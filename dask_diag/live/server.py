"""Server of a live page, on this machine only; requests without the token are refused.

The server is tornado's. Bokeh's own server checks neither Host nor a missing Origin, and repeats
the token in addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Callable
from math import inf
from pathlib import Path
from time import monotonic, thread_time
from typing import TYPE_CHECKING

import tornado.web

from dask_diag.live.answer import answer, pictures
from dask_diag.live.background import FindingsSoFar, made_report
from dask_diag.live.model import PERIOD, LiveModel
from dask_diag.live.picture import picture
from dask_diag.live.security import (
    ADDRESS,
    HEADERS,
    QUESTION,
    TOKEN_HEADER,
    LimitedServer,
    allowed_hosts,
    question_of,
    refusal,
    silence,
)
from dask_diag.storage.follow import QUIET, FollowState
from dask_diag.views.live import live_page

if TYPE_CHECKING:
    import socket

    from tornado.httputil import HTTPServerRequest


IDLE = 60.0
"""Seconds without a question after which the server ends, if nothing more is to come."""
ABANDONED = 600.0
"""Seconds without a change after which nothing more is expected of a file that is not complete."""
UNASKED = 4.0
"""Seconds between polls of a file that grows, while no page asks."""
_JUST_NOW = 0.8
"""Age in seconds of a poll that is new enough for an answer."""
_MOST_POLLS = 10
"""Polls after which a question is answered without news."""


class LiveServer:
    """Server that follows a file.

    The file is read when a page asks, and while a page waits for news; without a page, only now and
    then.

    Parameters
    ----------
    path : str
    sockets : list of socket
        Sockets that listen, as `bind` makes them.
    waits : bool
        Whether to go on, with no page open, while there is no recording yet.
    clock : callable, optional
        Seconds.
    """

    def __init__(
        self,
        path: str,
        sockets: list[socket.socket],
        *,
        waits: bool = True,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.path = Path(path)
        self.model = LiveModel(path, clock=clock)
        self.findings = FindingsSoFar(self.path)
        self.token = secrets.token_urlsafe(24)
        self.port: int = sockets[0].getsockname()[1]
        self.hosts = allowed_hosts(self.port)
        self.stopped = asyncio.Event()
        self._making_report = asyncio.Lock()
        self._sockets = sockets
        self._waits = waits
        self._clock = clock
        self._asked = clock()
        self._polled = -inf
        self._server = LimitedServer(_application(self))

    @property
    def url(self) -> str:
        """Address of the page, with the token."""
        return f"http://{ADDRESS}:{self.port}/?token={self.token}"

    @property
    def revision(self) -> int:
        """Number that grows with each change of the page's content."""
        return self.model.revision + self.findings.revision

    def note_question(self, request: HTTPServerRequest | None = None) -> None:
        """Note that a page is open."""
        self._asked = self._clock()
        if request is not None:
            self._server.note_token(request)

    async def make_report(self) -> bytes | None:
        """The page of the report; one at a time, as each takes much memory."""
        async with self._making_report:
            return await made_report(self.path)

    async def serve(self) -> None:
        """Answer until stopped or idle."""
        silence()
        self._server.add_sockets(self._sockets)
        try:
            while not self.stopped.is_set() and not self.is_idle():
                self.look(UNASKED if self.model.is_growing else 0.0)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self.stopped.wait(), PERIOD)
        finally:
            self._server.stop()
            await self._server.close_all_connections()

    def look(self, oldest: float = 0.0) -> None:
        """Poll the file, unless the last poll is more recent than `oldest` seconds."""
        now = self._clock()
        if now - self._polled >= oldest:
            self._polled = now
            self.model.poll()
            self.findings.refresh(self.model)

    def is_idle(self) -> bool:
        """Whether no page is open and nothing more is to come.

        Where locks are not seen, the file of a killed program is never over.
        """
        more = self.model.is_growing and self.model.quiet < ABANDONED
        more |= self._waits and self.model.state == FollowState.WAITING
        is_busy = more or self._making_report.locked()
        return not is_busy and self._clock() - self._asked >= IDLE

    async def look_for_news(self, revision: int) -> None:
        """Poll until there is a newer revision, but not for long."""
        self.look(_JUST_NOW)
        for _ in range(_MOST_POLLS):
            if self.revision != revision:
                return
            # A file that has been quiet for long enough may be that of a killed program.
            until_quiet = QUIET - self.model.quiet
            pause = min(PERIOD, until_quiet) if until_quiet > 0 else PERIOD
            await asyncio.sleep(pause)
            self.look(_JUST_NOW * pause)


class QuickCompression(tornado.web.GZipContentEncoding):
    """Compression for an answer each second: little CPU, and some more bytes."""

    GZIP_LEVEL = 1


def _application(server: LiveServer) -> tornado.web.Application:
    routes = {"/": _Page, "/data": _Data, "/report": _Report, "/picture": _Picture}
    return tornado.web.Application(
        [(path, handler, {"server": server}) for path, handler in routes.items()],
        default_handler_class=_Nothing,
        default_handler_args={"server": server},
        transforms=[QuickCompression],
        # Addresses have the token.
        log_function=lambda handler: None,
    )


class _Handler(tornado.web.RequestHandler):
    """Handler that checks each request before anything else."""

    def initialize(self, server: LiveServer) -> None:
        self.server = server

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        for name, value in HEADERS.items():
            self.set_header(name, value)

    def token_given(self) -> str | None:
        return self.get_query_argument("token", None)

    def prepare(self) -> None:
        request, server = self.request, self.server
        status = refusal(
            request.method or "", request.headers, self.token_given(), server.token, server.hosts
        )
        if status:
            self.set_status(status)
            self.finish()
        else:
            server.note_question(request)

    def write_error(self, status_code: int, **kwargs: object) -> None:
        self.finish()

    def log_exception(self, *args: object) -> None:
        """Log nothing: a message would have the address."""


class _Nothing(_Handler):
    def get(self) -> None:
        self.set_status(404)


class _Page(_Handler):
    def get(self) -> None:
        self.finish(live_page(self.server.model.name))


class _TokenInHeader(_Handler):
    def token_given(self) -> str | None:
        return self.request.headers.get(TOKEN_HEADER)


class _Data(_TokenInHeader):
    _is_gone = False

    def on_connection_close(self) -> None:
        self._is_gone = True

    async def get(self) -> None:
        given = {name: self.get_query_argument(name, None) for name in QUESTION}
        question = question_of({name: value for name, value in given.items() if value is not None})
        if question is None:
            self.set_status(400)
            return
        server = self.server
        await server.look_for_news(question.revision)
        if self._is_gone:
            return
        began = thread_time()
        content = answer(server.model, server.findings, server.revision)
        if question.pictures:
            content |= pictures(server.model, question.view, question.columns)
        self.set_header("Content-Type", "application/json")
        # The page asks the less often the longer its drawings take.
        self.finish(json.dumps({**content, "took": thread_time() - began}))


class _Picture(_TokenInHeader):
    """Picture for a notebook, whose kernel asks for the present state without waiting for news."""

    async def get(self) -> None:
        self.server.look()
        self.finish(picture(self.server.model))


class _Report(_Handler):
    _making: asyncio.Future[bytes | None] | None = None

    def on_connection_close(self) -> None:
        if self._making is not None:
            self._making.cancel()

    async def get(self) -> None:
        page = None
        if self.server.model.is_over:
            self._making = asyncio.ensure_future(self.server.make_report())
            await asyncio.wait([self._making])
            if self._making.cancelled():
                return
            page = self._making.result()
        self.server.note_question()
        if page is None:
            self.set_status(404)
        else:
            self.finish(page)
