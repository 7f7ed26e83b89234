"""What runs in a program that ``dask-diag attach`` has come to.

A thread of its own answers one attachment: it says what runs, records, and takes everything back.
It never raises into the program, and ends when the other side has gone.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import sys
import threading
from time import perf_counter
from typing import Any

from dask_diag._version import __version__
from dask_diag.capture.keys import text_of_key
from dask_diag.errors import DiagnosticError
from dask_diag.formatting import counted
from dask_diag.hooks.callbacks import is_held
from dask_diag.hooks.calls import call_site
from dask_diag.hooks.joining import Variables, running_schedulers, why_not_joined
from dask_diag.hooks.stack import frames_from, key_of_task
from dask_diag.model.codes import ATTACHED
from dask_diag.profilers.engine import Watch, watch_of_frame
from dask_diag.profilers.record import record
from dask_diag.system.code import USER, current_frames, owner_of_file
from dask_diag.system.environment import environment, script_code
from dask_diag.system.peers import (
    LINUX,
    credentials,
    listen_here,
    path_of_listener,
    receive,
    send,
)
from dask_diag.system.periodic import OwnThread

_PERIOD = 0.1
"""Seconds between looks for computations that are put in order when the program is attached to."""
_LONGEST_SILENCE = 60.0
_LONGEST_END = 10.0
"""Seconds that the end of the program waits for the recording to be closed."""
_LONGEST_LEAVING = 1.0
_MOST_THREADS = 100


class AttachedRecord(record):
    """A recording of a program that runs already: its computations are joined, and left again."""

    def __init__(self, path: str) -> None:
        super().__init__(path, overwrite=True)
        self._told: list[str] = []

    def _note_environment(self) -> None:
        attached = (ATTACHED, "process", str(os.getpid()))
        self._environment = [*environment(), *script_code(sys.argv[0]), attached]

    def _notices_so_far(self) -> list[str]:
        return [*super()._notices_so_far(), *self._told]

    def begin_now(self) -> None:
        """Begin once all is prepared: that took no time of the program's."""
        for profiler in self.profilers:
            profiler.start_time = perf_counter()
        self.join_running()

    def join_running(self) -> None:
        """Measure computations that other threads run already.

        To be called again: one whose graph is put in order can be joined later.
        """
        if why_not := why_not_joined():
            self._note_fault(f"computations that ran already are not recorded: {why_not}")
            return
        with running_schedulers() as schedulers:
            for scheduler in schedulers:
                if watch_of_frame(scheduler) is None:
                    variables = Variables.of(scheduler.frame)
                    if variables is not None and variables.goes_on:
                        self._guarded(self._join, scheduler, variables)

    def _join(self, *scheduler: Any) -> None:
        watch = Watch(self.profilers)
        watch.join_running(*scheduler)
        computation = watch.computation
        if computation.joined is not None:
            finished, running = computation.joined
            self._told.append(
                f"the computation at {computation.call_site or 'an unknown line'} ran already: "
                f"{counted(finished, 'task')} had ended and {running} ran, whose times are unknown"
            )

    def leave_running(self) -> None:
        """End computations that go on in other threads, and take out all that was put into them."""
        with running_schedulers() as schedulers:
            for scheduler in schedulers:
                watch, variables = watch_of_frame(scheduler), Variables.of(scheduler.frame)
                if watch and variables and set(watch.profilers) <= set(self.profilers):
                    self._guarded(watch.leave_running, variables)
                    site = watch.computation.call_site or "an unknown line"
                    self._told.append(f"the computation at {site} went on after the recording")

    def __exit__(self, *args: object) -> None:
        self._guarded(self.leave_running)
        super().__exit__(*args)


def picture() -> dict[str, Any]:
    """What each thread runs now, and how far computations are."""
    computations: list[tuple[str, int, int, int]] = []
    with running_schedulers() as schedulers:
        for scheduler in schedulers:
            variables = None if why_not_joined() else Variables.of(scheduler.frame)
            state = {} if variables is None else variables.state
            names = "finished", "running", "ready", "waiting"
            finished, running, *others = (len(state.get(name, ())) for name in names)  # type: ignore[arg-type]
            total = finished + running + sum(others)
            computations.append((call_site(scheduler.frame), finished, total, running))
    threads = []
    frames = current_frames()
    try:
        for thread in threading.enumerate()[:_MOST_THREADS]:
            stack = list(frames_from(frames.get(thread.ident or 0)))
            if stack and not isinstance(thread, OwnThread):
                of_user = [f for f in stack if owner_of_file(f.f_code.co_filename) == USER]
                frame = (of_user or stack)[0]
                place = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
                key = key_of_task(stack[0])
                text = "" if key is None else text_of_key(key)
                threads.append((thread.name, text[:80], f"{place} {frame.f_code.co_name}"))
            del stack
    finally:
        frames.clear()
    return {"computations": computations, "threads": threads}


_attached = threading.Lock()
_sockets: list[socket.socket] = []


def _after_fork() -> None:
    """The sockets are the parent's."""
    global _attached
    _attached = threading.Lock()
    for one in _sockets:
        one.close()
    _sockets.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def start(peer: socket.socket) -> None:
    """Answer an attachment on a thread of its own."""
    OwnThread("attach", _serve, (peer,)).start()


def _serve(peer: socket.socket) -> None:
    # What is wrong here is no business of the program's.
    with contextlib.suppress(BaseException), peer:
        if credentials(peer)[1] not in (0, os.geteuid()):
            return
        # One that was killed leaves just now.
        if not _attached.acquire(timeout=_LONGEST_LEAVING):
            send(peer, why="another dask-diag attach records it; end that first")
            return
        try:
            if is_held():
                send(
                    peer,
                    why="a recording, or another profiler of dask_diag, is active in it; follow "
                    "the file of a recording with dask-diag top",
                )
                return
            _sockets.append(peer)
            _answer(peer)
        finally:
            if peer in _sockets:
                _sockets.remove(peer)
            _attached.release()


def _answer(peer: socket.socket) -> None:
    send(peer, version=__version__, pid=os.getpid(), program=sys.argv, **picture())
    asked = receive(peer, _LONGEST_SILENCE)
    if asked is None:
        return
    thread = threading.current_thread()

    def leave() -> None:
        """Close the recording before the program has ended."""
        with contextlib.suppress(Exception):
            peer.shutdown(socket.SHUT_RD)
            thread.join(_LONGEST_END)

    atexit.register(leave)
    try:
        run = AttachedRecord(asked["path"])
        try:
            run.__enter__()
        except DiagnosticError as error:
            send(peer, why=str(error))
            return
        try:
            run.begin_now()
            send(peer, why="")
            _wait_for_end(peer, run)
        finally:
            run.__exit__(None, None, None)
        send(peer, faults=run.faults)
    finally:
        atexit.unregister(leave)


def _wait_for_end(peer: socket.socket, run: AttachedRecord) -> None:
    while True:
        try:
            receive(peer, _PERIOD)
        except TimeoutError:
            run.join_running()
            continue
        return


def listen() -> None:
    """Let ``dask-diag attach`` come to this program while it runs.

    A sleeping thread listens at a socket that only the same user can open. It costs nothing until
    somebody attaches. From Python 3.14 on, ``dask-diag attach`` also comes to programs that do not
    listen.

    Raises
    ------
    DiagnosticError
        If the system is not Linux, or the socket cannot be made.

    See Also
    --------
    record : Records a block of the program from its start on.

    Examples
    --------
    >>> import dask_diag
    >>> dask_diag.listen()      # doctest: +SKIP
    """
    if not LINUX:
        raise DiagnosticError(f"listen: it needs Linux, and this is {sys.platform}")
    if _listening.get("pid") == os.getpid():
        return
    server = listen_here()
    _listening["pid"] = os.getpid()
    _sockets.append(server)
    atexit.register(_stop_listening, os.getpid())
    OwnThread("listen", _accept, (server,)).start()


_listening: dict[str, int] = {}


def _stop_listening(pid: int) -> None:
    if os.getpid() == pid:
        with contextlib.suppress(OSError):
            os.unlink(path_of_listener(pid, os.geteuid()))


def _accept(server: socket.socket) -> None:
    with contextlib.suppress(BaseException):
        while True:
            start(server.accept()[0])
