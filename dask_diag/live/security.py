"""Who may ask a viewer: a page that has its token, from this machine, and nobody else.

Keys of tasks, code and paths are in a recording. Any page in the user's browser can send requests
to addresses of this machine, and any program on it can.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Iterator, Mapping
from hmac import compare_digest
from typing import NamedTuple
from urllib.parse import urlsplit

__all__ = [
    "HEADERS",
    "MOST_COLUMNS",
    "QUESTION",
    "TOKEN_HEADER",
    "Question",
    "allowed_hosts",
    "allowed_origins",
    "hub_origin",
    "is_token",
    "new_token",
    "question_of",
    "refusal",
]

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
