"""What is below a cell while it computes: a picture that a viewer makes, and a link to its page."""

from __future__ import annotations

import http.client
import threading
from html import escape
from urllib.parse import parse_qs, urlsplit

from IPython.display import HTML, display

from dask_diag.live.security import TOKEN_HEADER
from dask_diag.profilers.live_viewer import LiveViewer

__all__ = ["LiveCell"]

_PERIOD = 2.4
"""Seconds between pictures: each takes about a millisecond of the kernel."""
_LONGEST_ANSWER = 5.0
_LONGEST_START = 30.0


class LiveCell:
    """The picture below one cell.

    Parameters
    ----------
    path : str
        The file that the cell's recording is written to.
    """

    def __init__(self, path: str) -> None:
        self._viewer = LiveViewer(path, report=lambda text: None)
        self._handle = display(HTML("<div>The live view starts.</div>"), display_id=True)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dask_diag-cell", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Show the last state, which the saved notebook keeps; the token is not in it."""
        self._stopping.set()
        self._thread.join(_LONGEST_START)
        self._show(is_last=True)
        if not self._viewer.addresses:
            self._handle.update(HTML("<div>The live view could not be started.</div>"))

    def _run(self) -> None:
        self._viewer.wait_for_address(_LONGEST_START)
        self._show()
        while not self._stopping.wait(_PERIOD):
            self._show()

    def _show(self, is_last: bool = False) -> None:
        """Ask the viewer for a picture; where that fails, the picture before stays."""
        address = self._viewer.addresses.removeprefix("live: ").partition("\n")[0]
        if not address:
            return
        try:
            picture = _picture_at(address)
        except (OSError, http.client.HTTPException):
            return
        self._handle.update(HTML(picture if is_last else picture + _link(self._viewer.addresses)))


def _link(addresses: str) -> str:
    """Where the reader opens the page: on a hub this machine is not the reader's."""
    lines = dict(line.split(": ", 1) for line in addresses.splitlines() if ": " in line)
    address = lines.get("through the hub", lines["live"])
    if not address.startswith("http"):
        return f"<div>For a link to the live page, {escape(address)}.</div>"
    return f'<a href="{escape(address)}" target="_blank" rel="noreferrer">Open the live page</a>'


def _picture_at(address: str) -> str:
    parts = urlsplit(address)
    (token,) = parse_qs(parts.query)["token"]
    connection = http.client.HTTPConnection(parts.netloc, timeout=_LONGEST_ANSWER)
    try:
        connection.request("GET", "/picture", headers={TOKEN_HEADER: token})
        response = connection.getresponse()
        if response.status != 200:
            raise http.client.HTTPException(f"status {response.status}")
        return response.read().decode()
    finally:
        connection.close()
