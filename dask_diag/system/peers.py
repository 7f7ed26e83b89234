"""Messages between a program and the command that attaches to it, over a socket of this machine."""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
import sys
from typing import Any

from dask_diag.errors import DiagnosticError

_CREDENTIALS = struct.Struct("3i")
_LARGEST = 1 << 20
LINUX = sys.platform == "linux"
"""Whether programs can be attached to here."""


def new_socket() -> socket.socket:
    """A socket whose messages arrive whole."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def listening_at(path: str) -> socket.socket:
    """A socket that listens at a path."""
    server = new_socket()
    try:
        server.bind(path)
        server.listen()
    except OSError:
        server.close()
        raise
    return server


def send(peer: socket.socket, **said: object) -> None:
    """Send a message."""
    peer.send(json.dumps(said).encode())


def receive(peer: socket.socket, seconds: float) -> dict[str, Any] | None:
    """The next message; None if the other side has gone.

    Raises
    ------
    TimeoutError
        If none comes in time.
    """
    peer.settimeout(seconds)
    try:
        data = peer.recv(_LARGEST)
    except ConnectionError:
        return None
    said: dict[str, Any] | None = json.loads(data) if data else None
    return said


def credentials(peer: socket.socket) -> tuple[int, int]:
    """Process and user of the other side, as the kernel knows them."""
    data = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(data)
    return process, user


def path_of_listener(process: int, user: int) -> str:
    """Where a process of a user listens."""
    return f"/tmp/dask_diag-{user}/{process}.sock"


def listen_here() -> socket.socket:
    """A socket at the place of this process, in a folder of its user alone.

    Raises
    ------
    DiagnosticError
        If another user made the folder, or the socket cannot be made.
    """
    path = path_of_listener(os.getpid(), os.geteuid())
    folder = os.path.dirname(path)
    try:
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            found = os.lstat(folder)
            is_open = found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077
            if is_open or not stat.S_ISDIR(found.st_mode):
                raise DiagnosticError(
                    f"listen: {folder} has to be a folder of this user alone; remove it"
                ) from None
        if os.path.lexists(path):
            # Of a process that had this number before.
            os.unlink(path)
        return listening_at(path)
    except OSError as error:
        raise DiagnosticError(f"listen: cannot listen at {path}: {error.strerror}") from None
