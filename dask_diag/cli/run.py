"""``dask-diag run``: profile all that an unchanged program computations."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import click

from dask_diag.cli.metric import function_named
from dask_diag.cli.output import check_free, end_as, one_line, tell
from dask_diag.cli.runner import Program, end_of, print_as_python_does, wait_for_threads
from dask_diag.errors import DiagnosticError

__all__ = ["run"]


def check_seconds(context: click.Context, option: click.Parameter, value: float) -> float:
    """The value, if it can be a time to wait."""
    if not 0 < value < float("inf"):
        raise click.BadParameter(f"expected seconds, more than 0, found {value}")
    return value


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("-o", "--output", type=click.Path(), help="Where to write; by default NAME.diag.")
@click.option("--report", type=click.Path(), help="Write a page about it there, too.")
@click.option("-f", "--force", is_flag=True, help="Replace files that are there.")
@click.option(
    "--explain/--no-explain", help="Find out what tasks waited for (Linux). By default off."
)
@click.option(
    "--interval",
    type=float,
    callback=check_seconds,
    default=0.5,
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
@click.option("-q", "--quiet", is_flag=True, help="Print no summary.")
@click.option("-m", "module", is_flag=True, help="PROGRAM is a module, as for python -m.")
@click.option("-c", "code", is_flag=True, help="PROGRAM is code, as for python -c.")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    *,
    output: str | None,
    report: str | None,
    force: bool,
    explain: bool,
    interval: float,
    metric: str | None,
    metric_name: str | None,
    unit: str | None,
    quiet: bool,
    module: bool,
    code: bool,
    program: str,
    arguments: tuple[str, ...],
) -> None:
    """Run a program and record all that it computations on Dask's local schedulers.

    The program finds its arguments, stdout, __main__ and everything else as if run by python, and
    the exit status is its own. The recording is written as it goes, and the summary to stderr when
    it ends: by itself, by an error, by sys.exit or by Ctrl-C. os._exit, SIGTERM and SIGKILL leave
    no time for a summary; the recording is there, and says that it is truncated.
    """
    if module and code:
        raise click.UsageError("-m and -c: only one of them can be")
    kind = "module" if module else "code" if code else "script"
    runs = Program(kind, program, arguments)
    path = output or f"{runs.name}.diag"
    check_free(path, force, runs.path)
    check_free(report, force, runs.path, path)
    options = {"metric": metric, "metric_name": metric_name, "unit": unit}
    _run(runs, path, report, quiet, overwrite=force, explain=explain, dt=interval, **options)


def _run(program: Program, path: str, report: str | None, quiet: bool, **options: Any) -> None:
    from dask_diag.profilers.deferred_interrupts import DeferredInterrupts
    from dask_diag.profilers.record import record

    # Where it is now: the program may go elsewhere.
    path, report = os.path.abspath(path), report and os.path.abspath(report)
    program.prepare()
    if options["metric"] is not None:
        # Where the program finds its modules; `prepare` has just set it.
        options["metric"] = function_named(options["metric"])
    recorder = record(path, **options)
    process = os.getpid()
    # Only what is the program's can be interrupted: what is ours is closed first.
    with DeferredInterrupts() as interrupts:
        with recorder:
            error = end_of(program.run, interrupts)
            if error is not None and not isinstance(error, SystemExit):
                print_as_python_does(error)
            wait_for_threads(interrupts)
        if os.getpid() == process:
            # A child that the program forked comes here too; its parent tells.
            # It may take long, and the recording is safe: who insists may end it.
            interrupts.most = 2
            _tell(recorder, path, report, quiet)
        if isinstance(error, KeyboardInterrupt) or interrupts.noted:
            end_as(signal.SIGINT)
    if isinstance(error, SystemExit):
        raise error.with_traceback(None)
    sys.exit(0 if error is None else 1)


def _tell(recorder: Any, path: str, report: str | None, quiet: bool) -> None:
    """The summary and the page; what goes wrong is told, and changes nothing of how it ends."""
    if sys.stdout is not None:
        _guarded("stdout", sys.stdout.flush)
    if not quiet:
        _guarded("the summary could not be made", lambda: tell(recorder.summary(), sys.stderr))
    elif recorder.faults:
        _guarded("faults", lambda: tell("\n".join(recorder.faults), sys.stderr))
    if report is not None:
        _guarded("the report could not be written", lambda: _write_report(recorder, report))
    if not os.path.exists(path):
        _guarded("where it was", lambda: tell(f"{one_line(path)} has been removed", sys.stderr))
    elif not quiet:
        _guarded("where it is", lambda: tell(f"recording: {one_line(path)}", sys.stderr))


def _write_report(recorder: Any, path: str) -> None:
    from dask_diag.views.report.page import report

    report(recorder.recording, path)


def _guarded(failing: str, work: Callable[[], None]) -> None:
    try:
        work()
    except (Exception, KeyboardInterrupt) as error:
        why = str(error) if isinstance(error, DiagnosticError) else repr(error)
        try:
            click.echo(f"dask-diag: {failing}: {one_line(why)}", err=True)
        except Exception:
            # The program closed its stderr: there is nobody to tell.
            return
