"""``dask-diag run``: profile all that an unchanged program computes."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

from dask_diag.cli.output import (
    FilePath,
    WholeNumber,
    check_free,
    check_page,
    check_recording,
    end_as,
    function_named,
    one_line,
    print_message,
    signals_handled,
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
    from dask_diag.profilers.record import record

_LONGEST_WAIT = 10.0
"""Seconds to wait for the live view of a short program."""
_LONG = 1.0
"""Seconds of a computation before its progress bar appears."""
_BAR = 30
_REDRAWN = 0.25
"""Seconds between redraws of a bar."""
_OF_A_SERIES = {"output", "page", "force", "quiet", "verbose", "repeat", "no_progress"}
"""Options that are not passed on to each run of a series."""


def seconds_between(context: click.Context, option: click.Parameter, value: str) -> float:
    """Seconds from one sample to the next."""
    try:
        interval = float(value)
    except ValueError:
        interval = 0.0
    if not 0 < interval < float("inf"):
        raise click.BadParameter(f"expected seconds above 0, such as 0.5, found {value!r}")
    return interval


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "-o",
    "--output",
    type=FilePath(),
    help="Write the recording to this path.  [default: NAME.diag]",
)
@click.option("--html", "page", type=FilePath(), help="Also write an HTML report to this path.")
@click.option(
    "-f",
    "--force",
    is_flag=True,
    help="Overwrite any file, not only earlier recordings of this script.",
)
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
    help="Function that measures each result, such as cachey:nbytes.  [default: size in bytes, "
    "where known]",
)
@click.option("--metric-name", help="Name of the metric, for labels.")
@click.option("--unit", help="Unit of the metric, such as bytes.")
@click.option("--no-code", is_flag=True, help="Leave the calling code out of the recording.")
@click.option(
    "--trace-memory",
    is_flag=True,
    help="Record which lines allocated the memory in use at the peak (slow).",
)
@click.option("--live", is_flag=True, help="Follow the run in a browser.")
@click.option(
    "--no-browser", is_flag=True, help="With --live, print the URL instead of opening a browser."
)
@click.option("--no-progress", is_flag=True, help="Do not show the progress bar.")
@click.option("-q", "--quiet", is_flag=True, help="Print neither summary nor progress bar.")
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Print all numbers: phases, waits, cached results, overhead of the profilers, ...",
)
@click.option(
    "--repeat",
    type=WholeNumber(min=1),
    metavar="RUNS",
    help="Run the program RUNS times, each in a fresh process with its own recording: NAME-1.diag, "
    "NAME-2.diag, ...",
)
@click.option("-m", "module", is_flag=True, help="PROGRAM is a module, as for python -m.")
@click.option("-c", "code", is_flag=True, help="PROGRAM is code, as for python -c.")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def run(
    context: click.Context,
    *,
    output: str | None,
    page: str | None,
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

    The program runs as under `python`: same sys.argv, standard streams, __main__ and exit status.
    The recording is written while the program runs. When the program ends (by itself, by an error,
    by sys.exit or by Ctrl-C), the summary is printed to stderr. After os._exit, SIGTERM or SIGKILL
    no summary is printed, and the recording is marked as truncated.
    """
    kind = kind_of_program(module, code)
    if live and repeat is not None:
        raise click.UsageError("use either --live or --repeat, not both")
    runner = ProgramRunner(kind, program, arguments)
    # Before anything imports NumPy.
    runner.limit_libraries()
    path = output if output is not None else f"{runner.name}.diag"
    files = [(path, page)] if repeat is None else _numbered_files(path, page, repeat)
    for recording, report in files:
        _check_output(recording, force, runner, is_default=output is None)
        check_page(report, force, runner.path, recording)
    if repeat is not None:
        run_repeatedly(files, [*_passed_on(context), "--", program, *arguments], quiet)
    # The user's shell stays in this folder; the program may go elsewhere.
    shown = one_line(path), one_line(page or "")
    path, page = os.path.abspath(path), page and os.path.abspath(page)
    # From here on the program's folder is searched first, also for the module of a metric.
    runner.prepare()
    from dask_diag.profilers.interrupts import DeferredInterrupts
    from dask_diag.profilers.record import LiveViewer, record

    recorder = record(
        path,
        # Whether it may be replaced was checked.
        overwrite=True,
        resource_interval=interval,
        waits=waits,
        metric=None if metric is None else function_named(metric),
        metric_name=metric_name,
        unit=unit,
        code=not no_code,
        trace_memory=trace_memory,
    )
    terminal = None if quiet or no_progress else _terminal()
    viewer = None
    process = os.getpid()
    # Only the program can be interrupted: its recording is closed first.
    with DeferredInterrupts() as interrupts:
        with terminal or contextlib.nullcontext():
            with recorder, _progress(terminal):
                if live:
                    with _guarded("the live view could not be started"):
                        viewer = LiveViewer(
                            path, opens_browser=not no_browser, report=print_message
                        )
                error = end_of(runner.run, interrupts)
                if error is not None and not isinstance(error, SystemExit):
                    print_as_python_does(error)
                wait_for_threads(interrupts)
            # A child that the program forked comes here too; only its parent reports.
            if os.getpid() == process:
                # The report may take long, and the recording is safe: a second Ctrl-C ends it.
                interrupts.most = 2
                if viewer is not None:
                    # A viewer that starts after the program's end would show nothing.
                    viewer.wait_for_address(_LONGEST_WAIT)
                _finish(recorder, path, page, shown, terminal, quiet=quiet, verbose=verbose)
        if isinstance(error, KeyboardInterrupt) or interrupts.noted:
            end_as(signal.SIGINT)
    if isinstance(error, SystemExit):
        raise error.with_traceback(None)
    sys.exit(0 if error is None else 1)


def _check_output(path: str, force: bool, runner: ProgramRunner, *, is_default: bool) -> None:
    """Refuse to replace a file, except a recording of this script or of the default name."""
    from dask_diag.storage.read import is_recording

    script = None if runner.path is None else os.path.basename(runner.path)
    if is_default:
        check_free(path, force or is_recording(path), runner.path)
    else:
        check_recording(path, force, lambda name, _: name == script, runner.path)


def _terminal() -> ProgramTerminal | None:
    """The terminal of stderr, if a line can be shown there in place."""
    with contextlib.suppress(OSError):
        return ProgramTerminal()
    return None


def _progress(terminal: ProgramTerminal | None) -> AbstractContextManager[object]:
    """A bar for each long computation."""
    if terminal is None:
        return contextlib.nullcontext()
    from dask_diag.profilers.progress import ProgressBar

    return ProgressBar(minimum=_LONG, width=_BAR, dt=_REDRAWN, out=terminal)


def _finish(
    recorder: record,
    path: str,
    page: str | None,
    shown: tuple[str, str],
    terminal: ProgramTerminal | None,
    *,
    quiet: bool,
    verbose: bool,
) -> None:
    """Print the summary and write the page; a failure is a line, and the exit status stays.

    `shown` are the paths of the recording and the page for the user's shell.
    """

    def announce(making: str) -> None:
        if terminal is not None:
            terminal.announce(f"dask-diag: making {making}")

    # The program's output comes before the summary. The interpreter reports what cannot be
    # written when it ends, as it does without us.
    with _guarded("stdout could not be written"), contextlib.suppress(Exception):
        sys.stdout.flush()
    if not quiet:
        announce("the summary")
        with _guarded("the summary could not be made"):
            print_message(recorder.summary(verbose=verbose))
    elif recorder.faults:
        with _guarded("faults"):
            print_message("\n".join(recorder.faults))
    written = False
    if page is not None:
        announce("the report")
        with _guarded("the report could not be written"):
            from dask_diag.analysis.facts import Analysis
            from dask_diag.views.report.page import write_report

            # The page was found to be free before the program began.
            write_report(Analysis(recorder.recording), Path(page), file=path)
            written = True
    with _guarded("where it is"):
        is_there = os.path.exists(path)
        if not is_there:
            print_message(f"{shown[0]} has been removed")
        elif not quiet:
            print_message(f"recording: {shown[0]}")
        if written and not quiet:
            print_message(f"report: {shown[1]}")
        elif is_there and not quiet and page is None:
            print_message(f"report: dask-diag report {shlex.quote(shown[0])}")


@contextlib.contextmanager
def _guarded(failing: str) -> Iterator[None]:
    """Report an error in a line and go on."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        print_message(f"dask-diag: {failing}: {why_failed(error)}")


def _numbered_files(path: str, page: str | None, count: int) -> list[tuple[str, str | None]]:
    """The recording and the page of each run."""
    pages = [None] * count if page is None else numbered(page, count)
    return list(zip(numbered(path, count), pages, strict=True))


def numbered(path: str, count: int) -> list[str]:
    """Names of several files: ``run-1.diag`` of ``run.diag``; patterns list them in order."""
    stem, ending = os.path.splitext(path)
    digits = len(str(count))
    return [f"{stem}-{number:0{digits}}{ending}" for number in range(1, count + 1)]


def _passed_on(context: click.Context) -> Iterator[str]:
    """Options of the command line that each run of a series gets, too."""
    for option in context.command.params:
        value = context.params[option.name or ""]
        if not isinstance(option, click.Option) or option.name in _OF_A_SERIES:
            continue
        if isinstance(value, bool):
            yield from (option.opts if value else option.secondary_opts)[-1:]
        elif value is not None:
            yield f"{option.opts[-1]}={value}"


def run_repeatedly(
    files: Sequence[tuple[str, str | None]], arguments: Sequence[str], quiet: bool
) -> NoReturn:
    """Run ``dask-diag run`` once for each recording, and end as a single run would.

    Ctrl-C, SIGTERM and SIGHUP end the running child first, and then this process. Ctrl-C reaches
    the child from the terminal; the other signals are forwarded.

    Parameters
    ----------
    files : sequence of (str, str or None)
        Recording and report of each run.
    arguments : sequence of str
        Other arguments of a single run: options, the program and its arguments.
    quiet : bool
        Whether to print nothing about the runs.
    """
    child: subprocess.Popen[bytes] | None = None
    noted = 0

    def forward(number: int, frame: FrameType | None = None) -> None:
        nonlocal noted
        noted = number
        if number != signal.SIGINT and child is not None:
            child.send_signal(number)

    # This command as it was started, with the interpreter's options, and without what
    # ``python -m`` would add to ``sys.path``.
    given = len(sys.argv) - 1
    command = [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - given], "run", "--quiet"]
    status, finished = 0, 0
    with signals_handled(("SIGINT", "SIGTERM", "SIGHUP"), forward):
        for path, page in files:
            pages = [] if page is None else [f"--html={page}"]
            # Whether the files may be replaced was checked.
            options = ["--force", f"--output={path}", *pages]
            child = subprocess.Popen([*command, *options, *arguments])
            if noted:
                # It came before there was a child.
                forward(noted)
            status = child.wait()
            child = None
            if status or noted:
                break
            finished += 1
    if finished < len(files):
        print_message(
            f"run {finished + 1} of {len(files)} {_ended(status)}; the runs after it were not "
            "started"
        )
    if finished and not quiet:
        _report_series([path for path, _ in files[:finished]])
    if (signal_number := noted or -status) > 0:
        end_as(signal_number)
    sys.exit(status)


def _ended(status: int) -> str:
    if status < 0:
        return f"was ended by signal {-status}"
    return f"ended with status {status}" if status else "was interrupted"


def _report_series(paths: Sequence[str]) -> None:
    from dask_diag.formatting import seconds
    from dask_diag.storage.read import load

    names = one_line(paths[0]) + (f" to {one_line(paths[-1])}" if len(paths) > 1 else "")
    with _guarded("the runs could not be summarized"):
        walls = sorted(recording.stop - recording.start for recording in map(load, paths))
        print_message(
            f"{len(walls)} runs: wall time {seconds(median(walls))} (median), {seconds(walls[0])} "
            f"to {seconds(walls[-1])}\nrecordings: {names}"
        )
