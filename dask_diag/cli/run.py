"""``dask-diag run``: profile all that an unchanged program computes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import click

from dask_diag.cli.metric import function_named
from dask_diag.cli.output import end_as, one_line, print_message, why_failed
from dask_diag.cli.paths import FilePath, check_free, check_page
from dask_diag.cli.repeat import numbered, run_repeatedly
from dask_diag.cli.runner import Program, end_of, print_as_python_does, wait_for_threads

if TYPE_CHECKING:
    from dask_diag.profilers.live_viewer import LiveViewer
    from dask_diag.profilers.record import record

__all__ = ["run"]

_LONGEST_WAIT = 10.0
_NOT_LIVE = "the live view could not be started"


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
    help="Measures each result that the scheduler holds; by default cachey:nbytes.",
)
@click.option("--metric-name", help="What it measures, for labels.")
@click.option("--unit", help="Its unit, such as bytes.")
@click.option("--no-code", is_flag=True, help="Leave the program's code out of the recording.")
@click.option("--live", is_flag=True, help="Show the recording in a browser while it is made.")
@click.option("--no-browser", is_flag=True, help="With --live: print the address alone.")
@click.option("-q", "--quiet", is_flag=True, help="Print no summary.")
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
    live: bool,
    no_browser: bool,
    quiet: bool,
    repeat: int | None,
    module: bool,
    code: bool,
    program: str,
    arguments: tuple[str, ...],
) -> None:
    """Run a program and record all that it computes on Dask's local schedulers.

    The program finds its arguments, stdout, __main__ and everything else as if run by python, and
    the exit status is its own. The recording is written while it runs, and the summary is printed
    to stderr when it ends: by itself, by an error, by sys.exit or by Ctrl-C. After os._exit,
    SIGTERM or SIGKILL there is no summary, and the recording is marked as truncated.
    """
    from dask_diag.profilers.record import record

    if module and code:
        raise click.UsageError("use either -m or -c, not both")
    if live and repeat is not None:
        raise click.UsageError("use either --live or --repeat, not both")
    kind = "module" if module else "code" if code else "script"
    runs = Program(kind, program, arguments)
    path = output if output is not None else f"{runs.name}.diag"
    files = _files(path, report, repeat)
    for recording, page in files:
        check_free(recording, force, runs.path)
        check_page(page, force, runs.path, recording)
    if repeat is not None:
        single: dict[str, str | float | None] = {
            "metric": metric,
            "metric_name": metric_name,
            "unit": unit,
            "no_code": no_code,
            "interval": interval,
            "force": force,
            "waits": waits,
        }
        selected = ["-m"] if module else ["-c"] if code else []
        run_repeatedly(files, [*_as_options(single), *selected, "--", program, *arguments], quiet)
    # Absolute, because the program may change its folder.
    path, report = os.path.abspath(path), report and os.path.abspath(report)
    runs.prepare()
    recorder = record(
        path,
        overwrite=force,
        interval=interval,
        waits=waits,
        # It is imported from where the program finds its modules; `prepare` has just set it.
        metric=None if metric is None else function_named(metric),
        metric_name=metric_name,
        unit=unit,
        code=not no_code,
    )
    viewers: list[LiveViewer] = []

    def start_viewer() -> None:
        if live:
            _guarded(_NOT_LIVE, lambda: viewers.append(_viewer(path, not no_browser)))

    def finish() -> None:
        for viewer in viewers:
            # Of a short program it would never be seen.
            viewer.wait_for_address(_LONGEST_WAIT)
        _report(recorder, path, report, quiet)

    _run(runs, recorder, start_viewer, finish)


def _viewer(path: str, opens_browser: bool) -> LiveViewer:
    from dask_diag.profilers.live_viewer import LiveViewer

    return LiveViewer(path, opens_browser=opens_browser, report=print_message)


def _files(path: str, report: str | None, repeat: int | None) -> list[tuple[str, str | None]]:
    """The recording of each run, and its page."""
    if repeat is None:
        return [(path, report)]
    pages = numbered(report, repeat) if report is not None else [None] * repeat
    return list(zip(numbered(path, repeat), pages, strict=True))


def _as_options(values: dict[str, str | float | None]) -> list[str]:
    """Options as they are written on the command line."""
    texts = []
    for name, value in values.items():
        option = f"--{name.replace('_', '-')}"
        if name == "waits":
            texts.append(option if value else "--no-waits")
        elif isinstance(value, bool):
            texts += [option] if value else []
        elif value is not None:
            texts.append(f"{option}={value}")
    return texts


def _run(
    program: Program,
    recorder: record,
    started: Callable[[], None],
    report: Callable[[], None],
) -> NoReturn:
    """Run the program, recorded, and end as it does."""
    from dask_diag.profilers.deferred_interrupts import DeferredInterrupts

    process = os.getpid()
    # Only the program can be interrupted: its recording is closed first.
    with DeferredInterrupts() as interrupts:
        with recorder:
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


def _report(recorder: record, path: str, report: str | None, quiet: bool) -> None:
    """The summary and the page; what fails is a line, and changes nothing of how it ends."""
    _guarded("stdout could not be written", _flush_stdout)
    if not quiet:
        _guarded("the summary could not be made", lambda: print_message(recorder.summary()))
    elif recorder.faults:
        _guarded("faults", lambda: print_message("\n".join(recorder.faults)))
    if report is not None:
        _guarded("the report could not be written", lambda: _write_report(recorder, report))
    if not os.path.exists(path):
        _guarded("where it was", lambda: print_message(f"{one_line(path)} has been removed"))
    elif not quiet:
        _guarded("where it is", lambda: print_message(f"recording: {one_line(path)}"))


def _flush_stdout() -> None:
    """Let what the program printed come before what is printed about it."""
    # What cannot be written the interpreter reports when it ends, as it does without us.
    with contextlib.suppress(Exception):
        sys.stdout.flush()


def _write_report(recorder: record, path: str) -> None:
    from dask_diag.views.report.page import report

    report(recorder.recording, path)


def _guarded(failing: str, work: Callable[[], None]) -> None:
    try:
        work()
    except (Exception, KeyboardInterrupt) as error:
        print_message(f"dask-diag: {failing}: {why_failed(error)}")
