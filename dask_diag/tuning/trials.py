"""Runs of a program with a setting, in child processes: wall times and results."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import IO, TYPE_CHECKING

import psutil

from dask_diag.errors import DiagnosticError
from dask_diag.tuning.function_program import read_result
from dask_diag.tuning.interpreters import THIS_ONE, Interpreter
from dask_diag.tuning.settings import Setting, filled

if TYPE_CHECKING:
    from dask_diag.model.recording import Recording


@dataclass(frozen=True)
class Trial:
    """A run of a program with its end and its result.

    Attributes
    ----------
    wall : float
        Seconds.
    status : int
        The exit status, or minus a signal's number.
    timed_out : bool
        Whether the run was ended for taking too long.
    output : str
        A digest of stdout, or of the result of the function.
    check : int or None
        The status of the check command, if given.
    error : str
        The last line of stderr of a failed run.
    recording : Recording or None
        Recording of a recorded run.
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
        """Whether the run has no result."""
        return self.timed_out or self.status != 0


def run_child(
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout: float,
    *,
    stdout: IO[bytes],
    stderr: IO[bytes],
    stdin: IO[bytes] | None = None,
) -> Trial:
    """Run a command to the end, or end it after a time; end all processes started by it.

    Standard input is empty by default. The command has a process group of its own: Ctrl-C ends it
    through this process only.
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
        # Also after the end of the command: processes that it started may still run.
        _kill(process)
        process.wait()
    return Trial(wall, process.returncode, timed_out.is_set())


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a process: `Popen.wait` with a timeout would look every 50 ms."""
    if hasattr(os, "waitid"):
        # Its pid is not given to another process before the process is waited for.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    else:
        process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and all descendants, in any process group."""
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
class Program:
    """A script, a module or code, with arguments.

    Attributes
    ----------
    kind : {"script", "module", "code"}
    what : str
        Path, name or code.
    arguments : sequence of str
        ``{name}`` in an argument is replaced by the parameter ``name``.
    defaults : mapping of str to str
        The values of parameters of the baseline.
    folder : Path or None
        The folder of a program calling a function, with the time and a digest of the result.
    interpreters : sequence of Interpreter
        The interpreter of the baseline, and others to try.
    """

    kind: str
    what: str
    arguments: Sequence[str] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    interpreters: Sequence[Interpreter] = (THIS_ONE,)

    def interpreter(self, setting: Setting) -> Interpreter:
        """The interpreter that runs the program with a setting."""
        first = self.interpreters[0]
        return next((one for one in self.interpreters if one.path == setting.python), first)

    @property
    def selection(self) -> list[str]:
        """The command line of python in front of the arguments."""
        return [*{"module": ["-m"], "code": ["-c"]}.get(self.kind, []), self.what]


class ChildRunner:
    """Runs a program in child processes.

    Parameters
    ----------
    program : Program
    check : str, optional
        A shell command with the program's stdout on stdin; status 0 if the output is right.
    """

    def __init__(self, program: Program, check: str | None = None) -> None:
        self._program = program
        self._check = check

    def run(self, setting: Setting, timeout: float) -> Trial:
        """Run the program once."""
        python = self._program.interpreter(setting)
        command = [python.path, *self._program.selection]
        return self._trial(command, setting, os.environ, timeout)

    def record(self, setting: Setting, timeout: float) -> Trial:
        """Run the program once with all profilers."""
        from dask_diag.storage.read import load

        with tempfile.TemporaryDirectory(prefix="dask_diag-tune-") as folder:
            path = os.path.join(folder, "run.diag")
            options = ["--quiet", f"--output={path}", *self._program.selection[:-1], "--"]
            python = self._program.interpreter(setting)
            command = [python.path, "-m", "dask_diag", "run", *options, self._program.what]
            trial = self._trial(command, setting, python.to_record(os.environ), timeout)
            try:
                recording = load(path)
            except DiagnosticError:
                # The program ended before it was recorded; its status says more.
                return trial
        return replace(trial, recording=recording)

    def _trial(
        self,
        command: Sequence[str],
        setting: Setting,
        variables: Mapping[str, str],
        timeout: float,
    ) -> Trial:
        parameters = {**self._program.defaults, **setting.parameters}
        command = [*command, *filled(self._program.arguments, parameters)]
        environment = {**variables, **setting.environment}
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            trial = run_child(command, environment, timeout, stdout=stdout, stderr=stderr)
            if trial.status:
                return replace(trial, error=_last_line(stderr))
            wall, output = trial.wall, _digest(stdout)
            if self._program.folder is not None:
                wall, output = read_result(self._program.folder)
            check = self._checked(stdout, environment, timeout)
        return Trial(wall, output=output, check=check)

    def _checked(
        self, stdout: IO[bytes], environment: Mapping[str, str], timeout: float
    ) -> int | None:
        """The status of the check command, if given."""
        if self._check is None:
            return None
        stdout.seek(0)
        shell = ["/bin/sh", "-c", self._check] if os.name == "posix" else self._check.split()
        with tempfile.TemporaryFile() as ignored:
            return run_child(
                shell, environment, timeout, stdout=ignored, stderr=ignored, stdin=stdout
            ).status


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
