"""One run of the program with a setting: how long it took, and whether its result is right."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol

import psutil

from dask_diag.errors import DiagnosticError
from dask_diag.tuning.function_program import read_result
from dask_diag.tuning.settings import Setting, filled

if TYPE_CHECKING:
    from dask_diag.model.recording import Recording


class Ended(NamedTuple):
    """How a process ended.

    Attributes
    ----------
    wall : float
        Seconds from its start to its end.
    status : int
        Its exit status, or minus the number of the signal that ended it.
    timed_out : bool
        Whether it was ended for taking too long.
    """

    wall: float
    status: int
    timed_out: bool


def run_child(
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout: float,
    *,
    stdout: IO[bytes],
    stderr: IO[bytes],
    stdin: IO[bytes] | None = None,
) -> Ended:
    """Run a command to its end, or end it; nothing that it started stays behind.

    Its standard input is empty if none is given. It is in a group of its own, so that Ctrl-C
    reaches it through this process only, which then ends it.
    """
    timed_out = threading.Event()
    start = perf_counter()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=stdout,
        stderr=stderr,
        env=dict(environment),
        start_new_session=True,
    )

    def end() -> None:
        timed_out.set()
        _kill(process)

    timer = threading.Timer(timeout, end)
    timer.daemon = True
    try:
        timer.start()
        _wait(process)
        wall = perf_counter() - start
    finally:
        timer.cancel()
        timer.join()
        # Also after its end: the processes that it started and left.
        _kill(process)
        process.wait()
    return Ended(wall, process.returncode, timed_out.is_set())


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end, exactly: `Popen.wait` with a timeout would look every 50 ms."""
    if hasattr(os, "waitid"):
        # Its number is not given to another process before it is waited for.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    else:
        process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started, also those with a group of their own."""
    descendants: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        descendants = psutil.Process(process.pid).children(recursive=True)
    if hasattr(os, "killpg"):
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    elif process.returncode is None:
        with contextlib.suppress(OSError):
            process.kill()
    for descendant in descendants:
        with contextlib.suppress(psutil.Error):
            descendant.kill()


@dataclass(frozen=True)
class Trial:
    """What one run showed.

    Attributes
    ----------
    wall : float
        Seconds.
    status : int
        The exit status, or minus a signal's number.
    timed_out : bool
        Whether it was ended for taking too long.
    output : str
        A digest of what it printed to stdout, or of what the function returned.
    check : int or None
        The status of the check command, if there is one.
    error : str
        The last line of stderr, if it failed.
    recording : Recording or None
        Of a recorded run.
    """

    wall: float
    status: int = 0
    timed_out: bool = False
    output: str = ""
    check: int | None = None
    error: str = ""
    recording: Recording | None = None

    @property
    def failed(self) -> bool:
        """Whether it has no result."""
        return self.timed_out or self.status != 0


class TrialRunner(Protocol):
    """What runs the program: in child processes, or in a test by a made-up clock."""

    def run(self, setting: Setting, timeout: float) -> Trial:
        """Run it once, to measure it."""

    def record(self, setting: Setting, timeout: float) -> Trial:
        """Run it once with all profilers, to see what it does."""


@dataclass(frozen=True)
class Program:
    """What is run: a script, a module or code, and its arguments.

    Attributes
    ----------
    kind : {"script", "module", "code"}
    what : str
        Path, name or code.
    arguments : sequence of str
        ``{name}`` in them is replaced by the parameter of that name.
    defaults : mapping of str to str
        The values of parameters that a setting does not have.
    folder : Path or None
        Of a function's program: it leaves its time and the digest of its result there.
    """

    kind: str
    what: str
    arguments: Sequence[str] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None

    @property
    def selection(self) -> list[str]:
        """What python is given in front of the arguments."""
        return [*{"module": ["-m"], "code": ["-c"]}.get(self.kind, []), self.what]


class ChildRunner:
    """Runs a program in child processes, one after the other.

    Parameters
    ----------
    program : Program
    check : str, optional
        A shell command that gets the program's stdout on its stdin, and ends with status 0 if that
        is right.
    """

    def __init__(self, program: Program, check: str | None = None) -> None:
        self._program = program
        self._check = check

    def run(self, setting: Setting, timeout: float) -> Trial:
        """Run it once, to measure it."""
        return self._trial([sys.executable, *self._program.selection], setting, timeout)

    def record(self, setting: Setting, timeout: float) -> Trial:
        """Run it once with all profilers, to see what it does."""
        from dask_diag.storage.read import load

        with tempfile.TemporaryDirectory(prefix="dask_diag-tune-") as folder:
            path = os.path.join(folder, "run.diag")
            options = ["--quiet", f"--output={path}", *self._program.selection[:-1], "--"]
            command = [sys.executable, "-m", "dask_diag", "run", *options, self._program.what]
            trial = self._trial(command, setting, timeout)
            try:
                recording = load(path)
            except DiagnosticError:
                # It did not come to be recorded; its status says more.
                return trial
        return Trial(**{**vars(trial), "recording": recording})

    def _trial(self, command: Sequence[str], setting: Setting, timeout: float) -> Trial:
        parameters = {**self._program.defaults, **setting.parameters}
        command = [*command, *filled(self._program.arguments, parameters)]
        environment = {**os.environ, **setting.environment}
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            ended = run_child(command, environment, timeout, stdout=stdout, stderr=stderr)
            if ended.status:
                error = _last_line(stderr)
                return Trial(ended.wall, ended.status, ended.timed_out, error=error)
            wall, output = self._result(ended, stdout)
            check = self._checked(stdout, environment, timeout)
        return Trial(wall, output=output, check=check)

    def _result(self, ended: Ended, stdout: IO[bytes]) -> tuple[float, str]:
        """The wall time, and a digest of the result."""
        if self._program.folder is not None:
            wall, output = read_result(self._program.folder)
            return wall, output
        return ended.wall, _digest(stdout)

    def _checked(
        self, stdout: IO[bytes], environment: Mapping[str, str], timeout: float
    ) -> int | None:
        """The status of the check command, if there is one."""
        if self._check is None:
            return None
        stdout.seek(0)
        shell = ["/bin/sh", "-c", self._check] if os.name == "posix" else self._check.split()
        with tempfile.TemporaryFile() as ignored:
            ended = run_child(
                shell, environment, timeout, stdout=ignored, stderr=ignored, stdin=stdout
            )
        return ended.status


def _digest(file: IO[bytes]) -> str:
    file.seek(0)
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def _last_line(file: IO[bytes]) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - 10_000))
    lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip() if lines else ""
