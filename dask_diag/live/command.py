"""Start of a live page: print the address, open a browser, serve pages."""

from __future__ import annotations

import asyncio
import contextlib
import html
import os
import signal
import socket
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from dask_diag.files import not_yet
from dask_diag.live.security import bind, hub_origin
from dask_diag.live.server import LiveServer

UNKNOWN_HUB = "set JUPYTERHUB_PUBLIC_URL to its address before the viewer starts"
_SNAPS, _BROWSERS = Path("/snap/bin"), ("firefox", "chromium", "brave", "opera")


def serve(
    path: str, port: int, *, opens_browser: bool, waits: bool, report: Callable[[str], None]
) -> None:
    """Serve pages about a file until Ctrl-C, or until the server is idle.

    Parameters
    ----------
    path : str
    port : int
        0 for any free port.
    opens_browser : bool
    waits : bool
        Whether to go on without an open page before the recording starts.
    report : callable
        Prints lines.

    Raises
    ------
    PortTakenError
    """
    sockets = bind(port)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(path, sockets, opens_browser, waits, report))


async def _serve(
    path: str,
    sockets: list[socket.socket],
    opens_browser: bool,
    waits: bool,
    report: Callable[[str], None],
) -> None:
    server = LiveServer(path, sockets, waits=waits)
    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError):
        loop.add_signal_handler(signal.SIGTERM, server.stopped.set)
    lines, file = addresses(server, os.environ), None
    with contextlib.ExitStack() as stack:
        if opens_browser and has_display(os.environ):
            try:
                file = stack.enter_context(_redirect(server.url))
            except OSError as error:
                # A full disk is no reason not to show the run.
                lines.append(f"open the address yourself: {error.strerror or error}")
        if waits and (waiting := not_yet(path)):
            lines.append(waiting)
        report("\n".join(lines))
        if file is not None:
            loop.run_in_executor(None, webbrowser.open, file.as_uri())
        await server.serve()


def addresses(server: LiveServer, environ: Mapping[str, str]) -> list[str]:
    """Addresses of the page, on this machine and from elsewhere."""
    lines = [f"live: {server.url}"]
    prefix = environ.get("JUPYTERHUB_SERVICE_PREFIX")
    if prefix and _has_proxy():
        # The viewer refuses unknown names, which could lead anywhere.
        hub = hub_origin(environ)
        page = f"{hub}{prefix}proxy/{server.port}/?token={server.token}"
        lines.append(f"through the hub: {page if hub else UNKNOWN_HUB}")
    if environ.get("SSH_CONNECTION"):
        host = environ["SSH_CONNECTION"].split()[2:3]
        machine = host[0] if host else "THIS-MACHINE"
        lines.append(f"from your machine: ssh -L {server.port}:127.0.0.1:{server.port} {machine}")
    return lines


def has_display(environ: Mapping[str, str]) -> bool:
    """Whether the user would see a browser."""
    if environ.get("SSH_CONNECTION"):
        return False
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


def _has_proxy() -> bool:
    from importlib.util import find_spec

    return find_spec("jupyter_server_proxy") is not None


@contextlib.contextmanager
def _redirect(url: str) -> Iterator[Path]:
    """Yield a file, readable by this user alone, with a redirection to the address.

    All users can read the command line of a browser, and the address has the token.
    """
    with tempfile.TemporaryDirectory(prefix="dask-diag-", dir=_folder_of_browsers()) as folder:
        file = Path(folder) / "live.html"
        with open(file, "x", encoding="utf-8", opener=_only_for_user) as out:
            out.write(
                '<!DOCTYPE html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
                f'<meta http-equiv="refresh" content="0; url={html.escape(url)}">'
            )
        yield file


def _folder_of_browsers() -> str | None:
    """Folder of files for a browser; None for the system's temporary folder.

    A snap has a /tmp of its own, and reads files in the home that are not hidden.
    """
    home = os.path.expanduser("~")
    is_snap = any((_SNAPS / name).exists() for name in _BROWSERS)
    return home if is_snap and os.access(home, os.W_OK | os.X_OK) else None


def _only_for_user(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
