"""``dask-diag run``: profile all that an unchanged program computes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from statistics import median
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

from dask_diag.cli.output import (
    FilePath,
    check_free,
    check_page,
    end_as,
    function_named,
    one_line,
    print_message,
    why_failed,
)
from dask_diag.cli.runner import (
    ProgramRunner,
    end_of,
    kind_of_program,
    print_as_python_does,
    wait_for_threads,
)
from dask_diag.cli.terminal import ProgramTerminal

if TYPE_CHECKING:
    from dask_diag.profilers.record import LiveViewer, record


@dataclass(frozen=True)
class RecordOptions:
    """What is recorded; each has the name of its option."""

    metric: str | None
    metric_name: str | None
    unit: str | None
    no_code: bool
    interval: float
    force: bool
    waits: bool
    trace_memory: bool

    def recorder(self, path: str) -> record:
        """What records into that file.

        The function of a metric is imported from where the program finds its modules.
        """
        from dask_diag.profilers.record import record

        return record(
            path,
            overwrite=self.force,
            interval=self.interval,
            waits=self.waits,
            metric=None if self.metric is None else function_named(self.metric),
            metric_name=self.metric_name,
            unit=self.unit,
            code=not self.no_code,
            trace_memory=self.trace_memory,
        )

    def arguments(self) -> list[str]:
        """The options as they are written on the command line."""
        texts = []
        for field in fields(self):
            name, value = f"--{field.name.replace('_', '-')}", getattr(self, field.name)
            if field.name == "waits":
                texts.append(name if value else "--no-waits")
            elif isinstance(value, bool):
                texts += [name] if value else []
            elif value is not None:
                texts.append(f"{name}={value}")
        return texts


def numbered(path: str, count: int) -> list[str]:
    """The names of so many files: ``run-1.diag`` of ``run.diag``; patterns list them in order."""
    stem, ending = os.path.splitext(path)
    digits = len(str(count))
    return [f"{stem}-{number:0{digits}}{ending}" for number in range(1, count + 1)]


def run_repeatedly(
    files: Sequence[tuple[str, str | None]], arguments: Sequence[str], quiet: bool
) -> NoReturn:
    """Run ``dask-diag run`` once for each recording, and end as a single run would.

    Parameters
    ----------
    files : sequence of (str, str or None)
        The recording of each run, and its report, if there is to be one.
    arguments : sequence of str
        What else a single run is given: options, the program and its arguments.
    quiet : bool
        Whether to print nothing about the runs.
    """
    status, finished = 0, 0
    with _Interrupts() as interrupts:
        for path, page in files:
            options = ["--quiet", f"--output={path}"]
            options += [] if page is None else [f"--report={page}"]
            command = [*_this_command(), "run", *options, *arguments]
            status = interrupts.wait_for(subprocess.Popen(command))
            if status or interrupts.noted:
                break
            finished += 1
    if finished < len(files):
        print_message(
            f"run {finished + 1} of {len(files)} {_ended(status)}; the runs after it were not "
            "started"
        )
    if finished and not quiet:
        _report([path for path, _ in files[:finished]])
    signal_number = interrupts.noted or -status
    if signal_number > 0:
        end_as(signal_number)
    sys.exit(status)


class _Interrupts:
    """Ctrl-C, SIGTERM and SIGHUP end the running child first, and then this process.

    Ctrl-C reaches the child from the terminal, which may take its time to close its recording.
    """

    _SIGNALS = tuple(
        getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
    )

    def __init__(self) -> None:
        self.noted = 0
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> _Interrupts:
        self._handlers = [
            (number, signal.signal(number, self._note))
            for number in self._SIGNALS
            if signal.getsignal(number) not in (signal.SIG_IGN, None)
        ]
        return self

    def __exit__(self, *args: object) -> None:
        for number, handler in self._handlers:
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.noted = number
        self._forward()

    def _forward(self) -> None:
        if self.noted not in (0, signal.SIGINT) and self._child is not None:
            self._child.send_signal(self.noted)

    def wait_for(self, child: subprocess.Popen[bytes]) -> int:
        """The status with which a process ends."""
        self._child = child
        self._forward()
        status = child.wait()
        self._child = None
        return status


def _this_command() -> list[str]:
    """What starts dask-diag as this process was started, up to the command's name.

    With the interpreter's options, and without what ``python -m`` would add to ``sys.path``.
    """
    given = len(sys.argv) - 1
    return [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - given]]


def _report(paths: Sequence[str]) -> None:
    from dask_diag.formatting import seconds
    from dask_diag.storage.read import load

    names = one_line(paths[0]) + (f" to {one_line(paths[-1])}" if len(paths) > 1 else "")
    try:
        walls = sorted(recording.stop - recording.start for recording in map(load, paths))
    except Exception as error:
        print_message(f"dask-diag: the runs could not be summarized: {why_failed(error)}")
        return
    print_message(
        f"{len(walls)} runs: wall {seconds(median(walls))} (median), {seconds(walls[0])} to "
        f"{seconds(walls[-1])}\nrecordings: {names}"
    )


def _ended(status: int) -> str:
    if status < 0:
        return f"was ended by signal {-status}"
    return f"ended with status {status}" if status else "was interrupted"


_LONGEST_WAIT = 10.0
_LONG = 1.0
"""Seconds from which on a computation has a progress bar."""
_BAR = 30
_REDRAWN = 0.25
"""Seconds after which a bar is drawn again."""
_FLAGS = {"module": ["-m"], "code": ["-c"], "script": []}
"""The option for each kind of program."""


def seconds_between(context: click.Context, option: click.Parameter, value: str) -> float:
    """The seconds from one sample to the next."""
    try:
        interval = float(value)
    except ValueError:
        interval = 0.0
    if not 0 < interval < float("inf"):
        raise click.BadParameter(f"expected seconds above 0, such as 0.5, found {value!r}")
    return interval


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("-o", "--output", type=FilePath(), help="Where to write; by default NAME.diag.")
@click.option("--report", type=FilePath(), help="Write a page about it there, too.")
@click.option("-f", "--force", is_flag=True, help="Replace files that are there.")
@click.option(
    "--waits/--no-waits",
    default=True,
    show_default=True,
    help="Record what tasks wait for (Linux).",
)
@click.option(
    "--interval",
    callback=seconds_between,
    metavar="SECONDS",
    default="0.5",
    show_default=True,
    help="Seconds between samples of CPU and memory.",
)
@click.option(
    "--metric",
    metavar="MODULE:FUNCTION",
    help="Measures each result, as cachey:nbytes does; by default its bytes, where known.",
)
@click.option("--metric-name", help="What it measures, for labels.")
@click.option("--unit", help="Its unit, such as bytes.")
@click.option("--no-code", is_flag=True, help="Leave the program's code out of the recording.")
@click.option(
    "--trace-memory",
    is_flag=True,
    help="Record who allocates the memory at its peak; slows down Python.",
)
@click.option("--live", is_flag=True, help="Show the recording in a browser while it is made.")
@click.option("--no-browser", is_flag=True, help="With --live: print the address alone.")
@click.option("--no-progress", is_flag=True, help="Show no progress bar on a terminal.")
@click.option("-q", "--quiet", is_flag=True, help="Print no summary, and no progress bar.")
@click.option("-v", "--verbose", is_flag=True, help="Summarize the profilers themselves, too.")
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    metavar="RUNS",
    help="Run it that many times, each in a process and with a recording of its own: NAME-1.diag, "
    "NAME-2.diag, ...",
)
@click.option("-m", "module", is_flag=True, help="PROGRAM is a module, as for python -m.")
@click.option("-c", "code", is_flag=True, help="PROGRAM is code, as for python -c.")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    *,
    output: str | None,
    report: str | None,
    force: bool,
    waits: bool,
    interval: float,
    metric: str | None,
    metric_name: str | None,
    unit: str | None,
    no_code: bool,
    trace_memory: bool,
    live: bool,
    no_browser: bool,
    no_progress: bool,
    quiet: bool,
    verbose: bool,
    repeat: int | None,
    module: bool,
    code: bool,
    program: str,
    arguments: tuple[str, ...],
) -> None:
    """Run a program and record all that it computes with Dask.

    The program finds its arguments, stdout, __main__ and everything else as if run by python, and
    the exit status is its own. The recording is written while it runs, and the summary is printed
    to stderr when it ends: by itself, by an error, by sys.exit or by Ctrl-C. After os._exit,
    SIGTERM or SIGKILL there is no summary, and the recording is marked as truncated.
    """
    # Here, and not later: the program's folder will be searched first.

    kind = kind_of_program(module, code)
    if live and repeat is not None:
        raise click.UsageError("use either --live or --repeat, not both")
    runs = ProgramRunner(kind, program, arguments)
    path = output if output is not None else f"{runs.name}.diag"
    files = _files(path, report, repeat)
    _check_free(files, force, runs.path)
    options = RecordOptions(
        metric=metric,
        metric_name=metric_name,
        unit=unit,
        no_code=no_code,
        interval=interval,
        force=force,
        waits=waits,
        trace_memory=trace_memory,
    )
    if repeat is not None:
        single = [*options.arguments(), *_FLAGS[kind], "--", program, *arguments]
        run_repeatedly(files, single, quiet)
    # Absolute, because the program may change its folder.
    path, report = os.path.abspath(path), report and os.path.abspath(report)
    runs.prepare()
    recorder = options.recorder(path)
    live_view = _LiveView(path, live, not no_browser)
    terminal = _terminal(shows_progress=not (quiet or no_progress))
    summary = None if quiet else partial(recorder.summary, verbose=verbose)
    announce = _announcing(terminal)
    finish = partial(_finish, live_view, recorder, path, report, summary=summary, announce=announce)
    _run(runs, recorder, terminal, live_view.start, finish)


class _LiveView:
    """The live view of a recording, if it is wanted and does not fail to start."""

    def __init__(self, path: str, is_wanted: bool, opens_browser: bool) -> None:
        self._path, self._is_wanted, self._opens_browser = path, is_wanted, opens_browser
        self._viewer: LiveViewer | None = None

    def start(self) -> None:
        """Start it, once there is a file to follow."""
        if self._is_wanted:
            _guarded("the live view could not be started", self._start)

    def _start(self) -> None:
        from dask_diag.profilers.record import LiveViewer

        self._viewer = LiveViewer(
            self._path, opens_browser=self._opens_browser, report=print_message
        )

    def wait(self) -> None:
        """Wait until it is there: of a short program it would never be seen."""
        if self._viewer is not None:
            self._viewer.wait_for_address(_LONGEST_WAIT)


def _files(path: str, report: str | None, repeat: int | None) -> list[tuple[str, str | None]]:
    """The recording of each run, and its page."""
    if repeat is None:
        return [(path, report)]
    pages = numbered(report, repeat) if report is not None else [None] * repeat
    return list(zip(numbered(path, repeat), pages, strict=True))


def _check_free(files: Sequence[tuple[str, str | None]], force: bool, program: str | None) -> None:
    for recording, page in files:
        check_free(recording, force, program)
        check_page(page, force, program, recording)


def _run(
    program: ProgramRunner,
    recorder: record,
    terminal: ProgramTerminal | None,
    started: Callable[[], None],
    report: Callable[[], None],
) -> NoReturn:
    """Run the program, recorded, and end as it does."""
    from dask_diag.profilers.interrupts import DeferredInterrupts

    process = os.getpid()
    # Only the program can be interrupted: its recording is closed first.
    with DeferredInterrupts() as interrupts:
        with terminal or contextlib.nullcontext():
            with recorder, _progress(terminal):
                started()
                error = end_of(program.run, interrupts)
                if error is not None and not isinstance(error, SystemExit):
                    print_as_python_does(error)
                wait_for_threads(interrupts)
            if os.getpid() == process:
                # A child that the program forked comes here too; only its parent reports.
                # It may take long, and the recording is safe: a second Ctrl-C ends it.
                interrupts.most = 2
                report()
        if isinstance(error, KeyboardInterrupt) or interrupts.noted:
            end_as(signal.SIGINT)
    if isinstance(error, SystemExit):
        raise error.with_traceback(None)
    sys.exit(0 if error is None else 1)


def _terminal(shows_progress: bool) -> ProgramTerminal | None:
    """Where a line can be shown in place, if there is such a terminal."""
    if shows_progress:
        with contextlib.suppress(OSError):
            return ProgramTerminal()
    return None


def _progress(terminal: ProgramTerminal | None) -> AbstractContextManager[object]:
    """A bar for each long computation."""
    if terminal is None:
        return contextlib.nullcontext()
    from dask_diag.profilers.progress import ProgressBar

    return ProgressBar(minimum=_LONG, width=_BAR, dt=_REDRAWN, out=terminal)


def _announcing(terminal: ProgramTerminal | None) -> Callable[[str], None]:
    """Say what is being made until the next thing is written."""
    return lambda what: None if terminal is None else terminal.announce(f"dask-diag: making {what}")


def _finish(
    live_view: _LiveView,
    recorder: record,
    path: str,
    report: str | None,
    *,
    summary: Callable[[], str] | None,
    announce: Callable[[str], None],
) -> None:
    """The summary and the page; what fails is a line, and changes nothing of how it ends."""
    live_view.wait()
    _guarded("stdout could not be written", _flush_stdout)
    if summary is not None:
        announce("the summary")
        _guarded("the summary could not be made", lambda: print_message(summary()))
    elif recorder.faults:
        _guarded("faults", lambda: print_message("\n".join(recorder.faults)))
    if report is not None:
        announce("the page")
        _guarded("the report could not be written", lambda: _write_report(recorder, path, report))
    if not os.path.exists(path):
        _guarded("where it was", lambda: print_message(f"{one_line(path)} has been removed"))
    elif summary is not None:
        _guarded("where it is", lambda: print_message(f"recording: {one_line(path)}"))


def _flush_stdout() -> None:
    """Let what the program printed come before what is printed about it."""
    # What cannot be written the interpreter reports when it ends, as it does without us.
    with contextlib.suppress(Exception):
        sys.stdout.flush()


def _write_report(recorder: record, path: str, page: str) -> None:
    from dask_diag.analysis.facts import Analysis
    from dask_diag.views.report.page import write_report

    # Whether it may be replaced was asked before the program began.
    write_report(Analysis(recorder.recording), Path(page), file=path)


def _guarded(failing: str, work: Callable[[], None]) -> None:
    try:
        work()
    except (Exception, KeyboardInterrupt) as error:
        print_message(f"dask-diag: {failing}: {why_failed(error)}")
