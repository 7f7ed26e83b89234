"""The server of a live page: on this machine only, and it answers nobody without its token.

It is tornado alone. Bokeh's own server checks neither Host nor a missing Origin, and repeats its
token in addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from math import inf
from pathlib import Path
from time import monotonic, thread_time
from typing import TYPE_CHECKING

import tornado.web

from dask_diag.live.answer import QuickCompression, answer, pictures
from dask_diag.live.background import FindingsSoFar, made_report
from dask_diag.live.picture import picture
from dask_diag.live.security import (
    ADDRESS,
    HEADERS,
    QUESTION,
    TOKEN_HEADER,
    LimitedServer,
    allowed_hosts,
    new_token,
    question_of,
    refusal,
    silence,
)
from dask_diag.live.viewer import PERIOD, Viewer
from dask_diag.storage.follow import QUIET, FollowState
from dask_diag.views.live import live_page

if TYPE_CHECKING:
    import socket

    from tornado.httputil import HTTPServerRequest


IDLE = 60.0
"""Seconds without a question after which it ends, once nothing more is to come."""
ABANDONED = 600.0
"""Seconds without a change after which a file that is not complete keeps no viewer, either."""
UNASKED = 4.0
"""Seconds from one poll to the next of a file that grows, if no page asks."""
_JUST_NOW = 0.8
"""Seconds before a question within which a poll is new enough for its answer."""
_MOST_POLLS = 10
"""After which a question is answered, if nothing is new."""


class LiveServer:
    """Follows a file and answers pages.

    It reads the file when a page asks: what nobody would see costs nothing. While a page that has
    all there is waits, it goes on reading.

    Parameters
    ----------
    path : str
    sockets : list of socket
        Where it listens, as `bind` makes them.
    waits : bool
        Whether to go on, with no page open, as long as there is no recording yet.
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
        self.viewer = Viewer(path, clock=clock)
        self.findings = FindingsSoFar(self.path)
        self.token = new_token()
        self.port: int = sockets[0].getsockname()[1]
        self.hosts = allowed_hosts(self.port)
        self.stopped = asyncio.Event()
        self._making_report = asyncio.Lock()
        self._sockets = sockets
        self._waits = waits
        self._clock = clock
        self._asked = clock()
        self._looked = -inf
        self._server: LimitedServer | None = None

    @property
    def url(self) -> str:
        """The page's address, with the token."""
        return f"http://{ADDRESS}:{self.port}/?token={self.token}"

    @property
    def revision(self) -> int:
        """It changes with everything that a page shows."""
        return self.viewer.model.revision + self.findings.revision

    def note_question(self, request: HTTPServerRequest | None = None) -> None:
        """A page is open."""
        self._asked = self._clock()
        if request is not None and self._server is not None:
            self._server.note_friend(request)

    async def make_report(self) -> bytes | None:
        """The page of the report; one at a time, as each takes much memory."""
        async with self._making_report:
            return await made_report(self.path)

    async def serve(self) -> None:
        """Answer until it is stopped, or nobody has asked for long and nothing more is to come."""
        silence()
        server = self._server = LimitedServer(_application(self))
        server.add_sockets(self._sockets)
        try:
            while not self.stopped.is_set() and not self.is_idle():
                self.look(UNASKED if self.viewer.is_growing else 0.0)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self.stopped.wait(), PERIOD)
        finally:
            server.stop()
            await server.close_all_connections()

    def look(self, oldest: float = 0.0) -> None:
        """Read what is new, unless that was done less than so many seconds ago."""
        now = self._clock()
        if now - self._looked < oldest:
            return
        self._looked = now
        self.viewer.poll()
        self.findings.refresh(self.viewer)

    def is_idle(self) -> bool:
        """Whether it is of no more use.

        Where locks are not seen, the file of a killed program is never said to be over.
        """
        model = self.viewer.model
        more = self.viewer.is_growing and model.quiet < ABANDONED
        more |= self._waits and model.state == FollowState.WAITING
        is_busy = more or self._making_report.locked()
        return not is_busy and self._clock() - self._asked >= IDLE

    async def look_for_news(self, revision: int) -> None:
        """Read until there is something newer than that, but not for long."""
        self.look(_JUST_NOW)
        for _ in range(_MOST_POLLS):
            if self.revision != revision:
                return
            # As soon as a file has been quiet for long enough, its program may have been killed.
            until_quiet = QUIET - self.viewer.model.quiet
            pause = min(PERIOD, until_quiet) if until_quiet > 0 else PERIOD
            await asyncio.sleep(pause)
            self.look(_JUST_NOW * pause)


def _application(server: LiveServer) -> tornado.web.Application:
    routes = [(r"/", _Page), (r"/data", _Data), (r"/report", _Report), (r"/picture", _Picture)]
    return tornado.web.Application(
        [(path, handler, {"server": server}) for path, handler in routes],
        default_handler_class=_Nothing,
        default_handler_args={"server": server},
        transforms=[QuickCompression],
        # Addresses hold the token.
        log_function=lambda handler: None,
    )


class _Handler(tornado.web.RequestHandler):
    """Refuses before it does anything else."""

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
        """Not at all: a message would hold the address."""


class _Nothing(_Handler):
    def get(self) -> None:
        self.set_status(404)


class _Page(_Handler):
    def get(self) -> None:
        self.finish(live_page(self.server.viewer.name))


class _Data(_Handler):
    def token_given(self) -> str | None:
        return self.request.headers.get(TOKEN_HEADER)

    _is_gone = False

    def on_connection_close(self) -> None:
        """The page does not wait for the answer."""
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
        content: dict[str, object] = {**answer(server.viewer, server.findings, server.revision)}
        if question.pictures:
            content.update(pictures(server.viewer, question.view, question.columns))
        self.set_header("Content-Type", "application/json")
        # What it costs to draw the same again says how soon a page asks again.
        self.finish(json.dumps({**content, "took": thread_time() - began}))


class _Picture(_Handler):
    """For a notebook, which asks for the present state: it is the kernel that asks, and no page."""

    def token_given(self) -> str | None:
        return self.request.headers.get(TOKEN_HEADER)

    async def get(self) -> None:
        self.server.look()
        self.finish(picture(self.server.viewer))


class _Report(_Handler):
    _making: asyncio.Future[bytes | None] | None = None

    def on_connection_close(self) -> None:
        """Nobody waits for the page."""
        if self._making is not None:
            self._making.cancel()

    async def get(self) -> None:
        page = None
        if self.server.viewer.is_over:
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
