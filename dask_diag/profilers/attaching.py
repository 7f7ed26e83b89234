"""Comes to a program that runs, from another process."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dask_diag._version import __version__
from dask_diag.errors import DiagnosticError
from dask_diag.system.peers import (
    LINUX,
    credentials,
    listening_at,
    new_socket,
    path_of_listener,
    receive,
    send,
)
from dask_diag.system.remote_python import (
    ForbiddenError,
    NotThereError,
    Requests,
    RunningPython,
    started,
)

_LONGEST_WAIT = 10.0
"""Seconds in which a thread of the program has to run Python code."""
_LONGEST_START, _LONGEST_END = 60.0, 120.0
"""Seconds that the program may take to import dask_diag, and to close the recording."""
_ALONE, _PAUSE = 0.1, 0.05
"""Seconds that the main thread has before others are asked, and that one has to read the script."""
_FIRST_MINOR = 14
_SCRIPT = """
try:
    import _thread
    _thread.start_new_thread(exec, ({agent!r}, {{}}))
except BaseException:
    pass
"""
"""Runs between two steps of the program: it must wait for no lock, as imports would."""
_AGENT = """
try:
    import sys, socket
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.connect({path!r})
    why = ""
    if "dask" not in sys.modules:
        why = "it has not imported dask"
    else:
        try:
            from dask_diag.profilers.attached import start
        except ImportError:
            why = ("dask_diag {version} is not installed there; install it with "
                + sys.executable + " -m pip install dask-diag=={version}, the program may go on")
    if why:
        import json
        peer.send(json.dumps({{"why": why}}).encode())
    else:
        start(peer)
except BaseException:
    pass
"""


class AttachedProgram:
    """A program that has been attached to.

    Parameters
    ----------
    peer : socket.socket
    process : int

    Attributes
    ----------
    now : dict
        What runs in it.
    """

    def __init__(self, peer: socket.socket, process: int) -> None:
        self._peer = peer
        self._name = f"process {process}"
        self.now = self._answer()
        if self.now["version"] != __version__:
            raise DiagnosticError(
                f"{self._name} has dask_diag {self.now['version']}, and this is {__version__}: use "
                "the dask-diag of its environment"
            )

    def _answer(self) -> dict[str, Any]:
        try:
            answer = receive(self._peer, _LONGEST_START)
        except TimeoutError:
            raise DiagnosticError(f"{self._name} did not answer in time") from None
        if answer is None:
            raise DiagnosticError(f"{self._name} has ended, or has closed the connection")
        if answer.get("why"):
            raise DiagnosticError(f"cannot attach to {self._name}: {answer['why']}")
        return answer

    def record(self, path: str) -> None:
        """Have it recorded from now on."""
        send(self._peer, path=path)
        self._answer()

    def ends_within(self, seconds: float) -> bool:
        """Whether the program closes the recording within some seconds, as at its end."""
        try:
            receive(self._peer, seconds)
        except TimeoutError:
            return False
        return True

    def leave(self) -> None:
        """Have the recording closed."""
        with contextlib.suppress(OSError):
            send(self._peer, leave=True)
            receive(self._peer, _LONGEST_END)


@contextlib.contextmanager
def attached_to(process: int) -> Iterator[AttachedProgram]:
    """Attach to a process for a block.

    Raises
    ------
    DiagnosticError
        If that cannot be: it says why, and what to do.
    """
    with contextlib.ExitStack() as stack:
        try:
            peer = stack.enter_context(_connected(process))
        except NotThereError:
            raise DiagnosticError(f"there is no process {process}") from None
        except ForbiddenError:
            raise DiagnosticError(_why_forbidden(process)) from None
        except (DiagnosticError, OSError) as error:
            raise DiagnosticError(f"cannot attach to process {process}: {error}") from None
        yield AttachedProgram(peer, process)


@contextlib.contextmanager
def _connected(process: int) -> Iterator[socket.socket]:
    """A connection to the agent in a process."""
    if not LINUX:
        raise DiagnosticError(f"it needs Linux, and this is {sys.platform}")
    began = started(process)
    try:
        user = os.stat(f"/proc/{process}").st_uid
    except OSError:
        raise NotThereError(process) from None
    if os.geteuid() not in (0, user):
        raise DiagnosticError(
            f"it is of another user (uid {user}): attach as that user, or as root"
        )
    peer = new_socket()
    with peer:
        path = path_of_listener(process, user)
        if _is_of(os.path.dirname(path), user):
            with contextlib.suppress(OSError):
                peer.connect(path)
                if credentials(peer)[0] in (0, process):
                    yield peer
                    return
    python = RunningPython.of(process)
    if python is None:
        raise DiagnosticError("it is not a Python program")
    if python.minor < _FIRST_MINOR:
        raise DiagnosticError(
            f"it runs Python 3.{python.minor}, and this needs 3.{_FIRST_MINOR}: let the program "
            "call dask_diag.listen(), or start it with dask-diag run"
        )
    with _asked(python, began, user) as peer:
        if credentials(peer)[0] not in (0, process):
            raise DiagnosticError("another process has answered")
        yield peer


def _is_of(folder: str, user: int) -> bool:
    """Whether a folder is of this user alone."""
    with contextlib.suppress(OSError):
        found = os.lstat(folder)
        is_private = not stat.S_IMODE(found.st_mode) & 0o077
        return stat.S_ISDIR(found.st_mode) and found.st_uid == user and is_private
    return False


def _asked(python: RunningPython, began: str, user: int) -> socket.socket:
    """A connection to the agent that a thread of a program has started on request."""
    with contextlib.ExitStack() as stack:
        requests = stack.enter_context(contextlib.closing(Requests(python)))
        # Its memory is open: from here on it is that of the same process, if that is there.
        if started(python.process) != began:
            raise NotThereError(python.process)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dask_diag-", dir="/tmp"))
        stack.callback(requests.take_back)
        if os.geteuid() != user:
            os.chown(folder, user, -1)
        path, script = os.path.join(folder, "socket"), os.path.join(folder, "agent.py")
        agent = _AGENT.format(path=path, version=__version__)
        Path(script).write_text(_SCRIPT.format(agent=agent))
        server = stack.enter_context(listening_at(path))
        if os.geteuid() != user:
            os.chown(path, user, -1)
        requests.ask(script, all_threads=False)
        peer = _accepted(server, _ALONE)
        if peer is None:
            # Its main thread waits, as for the end of another one.
            requests.ask(script, all_threads=True)
            peer = _accepted(server, _LONGEST_WAIT)
            requests.take_back()
            # One may read the script just now.
            time.sleep(_PAUSE)
        if peer is None:
            if not started(python.process):
                raise NotThereError(python.process)
            raise DiagnosticError(
                f"none of its threads ran Python code for {_LONGEST_WAIT:g} s: they wait, or run C "
                "code; try again later"
            )
        return peer


def _accepted(server: socket.socket, seconds: float) -> socket.socket | None:
    server.settimeout(seconds)
    try:
        return server.accept()[0]
    except TimeoutError:
        return None


def _why_forbidden(process: int) -> str:
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    with contextlib.suppress(OSError, ValueError):
        if int(scope.read_text()) > 0:
            return (
                f"the kernel does not allow to attach to process {process} "
                f"(kernel.yama.ptrace_scope = {scope.read_text().strip()}): attach as root, or let "
                "the program call dask_diag.listen()"
            )
    return (
        f"the kernel does not allow to attach to process {process}, which has capabilities that "
        "this process lacks, or is protected: attach as root, in the same container, or let the "
        "program call dask_diag.listen()"
    )
