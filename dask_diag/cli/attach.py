"""``dask-diag attach``: record a program that runs already."""

from __future__ import annotations

import os
import shlex
import time
from typing import TYPE_CHECKING, Any

import click

from dask_diag.cli.output import (
    FilePath,
    WholeNumber,
    check_free,
    one_line,
    print_message,
    print_result,
    replace_line,
    signals_handled,
)
from dask_diag.cli.run import seconds_between

if TYPE_CHECKING:
    from dask_diag.profilers.attaching import AttachedProgram

_PERIOD = 0.5
"""Seconds between looks at the progress."""


@click.command()
@click.option(
    "-o",
    "--output",
    type=FilePath(),
    help="Write the recording to this path.  [default: attach-PID.diag]",
)
@click.option("-f", "--force", is_flag=True, help="Overwrite an existing file.")
@click.option(
    "--seconds",
    callback=lambda *given: None if given[-1] is None else seconds_between(*given),
    metavar="N",
    help="Leave after N seconds.  [default: after Ctrl-C]",
)
@click.option("--live", is_flag=True, help="Follow the program in a browser.")
@click.option(
    "--no-browser", is_flag=True, help="With --live, print the URL instead of opening a browser."
)
@click.argument("process", metavar="PID", type=WholeNumber(min=1))
def attach(
    *,
    process: int,
    output: str | None,
    force: bool,
    seconds: float | None,
    live: bool,
    no_browser: bool,
) -> None:
    """Record a program that runs already, and leave it as it was.

    The threads and the tasks that run now are printed, then all that starts is recorded, until
    Ctrl-C, or the end of the program. The program needs Python 3.14 or later on Linux, or has to
    call `dask_diag.listen()`.
    """
    path = os.path.abspath(output if output is not None else f"attach-{process}.diag")
    check_free(path, force)
    from dask_diag.profilers.attaching import attached_to

    with attached_to(process) as program:
        print_message(_picture(process, program.now))
        signals: list[int] = []
        with signals_handled(("SIGINT", "SIGTERM", "SIGHUP"), lambda *got: signals.append(got[0])):
            program.record(path)
            print_message(f"recording to {one_line(path)}; Ctrl-C ends it, and the program goes on")
            if live:
                from dask_diag.profilers.record import LiveViewer

                LiveViewer(path, opens_browser=not no_browser, report=print_message)
            _follow(program, path, seconds, signals)
            program.leave()
    _finish(path)


def _picture(process: int, now: dict[str, Any]) -> str:
    """What runs in the program, in lines."""
    lines = [f"process {process}: {one_line(shlex.join(now['program']))}"]
    for site, finished, total, running in now["computations"]:
        what = f"{finished:,} of {total:,} tasks done, {running:,} run" if total else "graph"
        lines.append(f"  computation at {one_line(site) or 'an unknown line'}: {what}")
    if not now["computations"]:
        lines.append("  no computation runs")
    width = max((len(name) for name, _, _ in now["threads"]), default=0)
    for name, key, place in now["threads"]:
        task = f"  task {one_line(key)}" if key else ""
        lines.append(f"  {one_line(name):{width}}  {one_line(place)}{task}")
    return "\n".join(lines)


def _follow(program: AttachedProgram, path: str, seconds: float | None, signals: list[int]) -> None:
    """Show the progress until the time is over, a signal comes, or the program ends."""
    from dask_diag.live.model import LiveModel
    from dask_diag.live.texts import progress_lines

    model, end = LiveModel(path), time.monotonic() + (seconds or float("inf"))
    while not signals and (left := end - time.monotonic()) > 0:
        if program.ends_within(min(_PERIOD, left)):
            break
        model.poll()
        replace_line("; ".join(progress_lines(model)[:1]))
    replace_line("")


def _finish(path: str) -> None:
    from dask_diag.storage.read import load
    from dask_diag.views.summary import summary

    print_result(summary(load(path)))
    print_message(f"recording: {one_line(path)}")
    print_message(f"report: dask-diag report {shlex.quote(one_line(path))}")
