"""Commands that read a recording, from summary to top."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import click

from dask_diag.cli.output import (
    FilePath,
    WholeNumber,
    check_free,
    check_page,
    one_line,
    print_message,
    print_result,
    with_ending,
)
from dask_diag.files import not_yet


@click.command()
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Print all numbers: phases, waits, cached results, overhead of the profilers, ...",
)
@click.argument("file", type=FilePath())
def summary(*, verbose: bool, file: str) -> None:
    """Print the findings, times by function and totals of a recording."""
    from dask_diag.storage.read import load
    from dask_diag.views.summary import summary as summary_of

    print_result(summary_of(load(file), verbose=verbose))


@click.command("lines")
@click.argument("file", type=FilePath())
@click.option("--source", is_flag=True, help="Print the source of the program, line by line.")
@click.option(
    "--by",
    type=click.Choice(["line", "script"]),
    default="line",
    show_default=True,
    help="Print the lines that called dask, or those of the script that called them.",
)
def lines(file: str, source: bool, by: str) -> None:
    """Show which lines of the program cost the time: those that built its tasks."""
    from dask_diag.storage.read import load
    from dask_diag.views.built_by import lines_summary

    print_result(lines_summary(load(file), by, source))


@click.command()
@click.argument("file", type=FilePath())
@click.option(
    "--html", type=FilePath(), help="Write the report to this path.  [default: FILE with .html]"
)
@click.option(
    "-f", "--force", is_flag=True, help="Overwrite any file, not only pages of dask-diag."
)
def report(file: str, html: str | None, force: bool) -> None:
    """Write an HTML report that works offline, and print the first finding."""
    from dask_diag.analysis.facts import Analysis
    from dask_diag.analysis.findings.rules import find
    from dask_diag.storage.read import load
    from dask_diag.views.cell import table_summary
    from dask_diag.views.findings import explained_by, in_a_line, no_findings
    from dask_diag.views.report.page import write_report

    page = html if html is not None else with_ending(file, ".html")
    check_page(page, force, file)
    analysis = Analysis(load(file))
    print_result(f"report: {one_line(write_report(analysis, Path(page), file=file))}")
    results = find(analysis)
    first = f"{in_a_line(results[0])} {explained_by(results)}" if results else ""
    text = one_line(first or no_findings(analysis))
    print_result(table_summary(text, (), (), ()))


_ENDINGS = {
    "perfetto": ".perfetto.json",
    "speedscope": ".speedscope.json",
    "collapsed": ".collapsed",
    "json": ".json",
    "csv": ".csv",
    "parquet": ".parquet",
}


@click.command()
@click.argument("file", type=FilePath())
@click.option(
    "--format",
    "format_",
    type=click.Choice(list(_ENDINGS)),
    help="The format.  [default: by the ending of --output]",
)
@click.option(
    "-o",
    "--output",
    type=FilePath(),
    help="The file, or a directory for csv and parquet.  [default: FILE with the format's ending]",
)
@click.option("-f", "--force", is_flag=True, help="Overwrite existing files.")
def export(file: str, format_: str | None, output: str | None, force: bool) -> None:
    """Convert a recording for another program.

    Open perfetto files at https://ui.perfetto.dev, speedscope files at https://www.speedscope.app.
    csv and parquet contain the tasks, or all tables if --output is a directory.
    """
    from dask_diag.storage.read import load
    from dask_diag.views.exports.export import export as write_export

    if output is None and format_ is None:
        raise click.UsageError("say what to write: --format, or --output with a known ending")
    target = output if output is not None else with_ending(file, _ENDINGS[format_ or ""])
    check_free(target, force, file, folder_too=format_ in (None, "csv", "parquet"))
    recording = load(file)
    written = write_export(recording, target, format_, overwrite=force)
    empty = "" if len(recording.tasks) else " (there are no tasks)"
    print_result(f"export: {one_line(written)}{empty}")


_AMOUNT = "The number of {0}, or the label under which tasks metered {0}."


@click.command("throughput")
@click.argument("file", type=FilePath())
@click.option("--events", metavar="N|LABEL", help=_AMOUNT.format("events"))
@click.option("--bytes", "read", metavar="N|LABEL", help=_AMOUNT.format("bytes"))
@click.option(
    "--by",
    type=click.Choice(["function", "worker"]),
    default="function",
    show_default=True,
    help="Print a row for each of these.",
)
def throughput(file: str, events: str | None, read: str | None, by: str) -> None:
    """Show events and bytes per second, per core and per CPU second."""
    from dask_diag.analysis.throughput import throughput as throughput_of
    from dask_diag.storage.read import load
    from dask_diag.views.lines import throughput_summary

    recording = load(file)
    amounts = _number_or_label(events), _number_or_label(read)
    total = throughput_of(recording, *amounts)
    parts = throughput_of(recording, *amounts, by=by)
    print_result(throughput_summary(recording, total, parts, by))


def _number_or_label(text: str | None) -> float | str | None:
    try:
        return text if text is None else float(text)
    except ValueError:
        return text


@click.command("what-if")
@click.argument("file", type=FilePath())
@click.option(
    "-w",
    "--workers",
    type=WholeNumber(min=1),
    metavar="N",
    multiple=True,
    help="Also predict with N workers, not only with twice and four times as many as recorded; may "
    "be repeated.",
)
@click.option(
    "--threads",
    type=WholeNumber(min=1),
    metavar="N",
    multiple=True,
    help="For a cluster: also predict with N threads, of all workers together.",
)
def what_if(file: str, workers: tuple[int, ...], threads: tuple[int, ...]) -> None:
    """Predict the wall time with more workers, larger chunks, faster functions, or no waits."""
    from dask_diag.storage.read import load
    from dask_diag.views.what_if import what_if as predict
    from dask_diag.views.what_if import what_if_summary

    recording = load(file)
    print_result(what_if_summary(predict(recording, workers, threads=threads), recording))


@click.command()
@click.argument("file", type=FilePath())
@click.option(
    "--port",
    type=WholeNumber(0, 65535),
    default=0,
    help="Port of the live view.  [default: any free port]",
)
@click.option("--no-browser", is_flag=True, help="Print the URL instead of opening a browser.")
@click.option("--child", is_flag=True, hidden=True)
def live(file: str, port: int, no_browser: bool, child: bool) -> None:
    """Follow a run in a browser on this machine.

    The file need not exist yet, and the recorded program needs no changes. Only this machine can
    open the page, at the URL that is printed. Ctrl-C ends the live view, not the run. The live view
    ends by itself a minute after the recording is complete and the last page is closed.
    """
    if child:
        _leave_parent()
    from dask_diag.live.command import serve
    from dask_diag.live.model import check_file

    if not child:
        check_file(file)
    report = _report_to_parent if child else print_message
    serve(file, port, opens_browser=not no_browser, waits=not child, report=report)


def _leave_parent() -> None:
    """Go on as a process of low priority that the program need not wait for."""
    if hasattr(os, "fork"):
        if os.fork():
            os._exit(0)
        os.setsid()
        os.nice(10)


def _report_to_parent(text: str) -> None:
    """Write to stdout, and close it: the parent reads up to the end."""
    # The parent may have ended.
    with contextlib.suppress(OSError):
        os.write(1, text.encode())
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    os.close(nothing)


@click.command()
@click.argument("file", type=FilePath())
def top(file: str) -> None:
    """Follow a run in the terminal: progress, and the tasks that run longest.

    The file need not exist yet. Press `q` or Ctrl-C to leave; the run goes on. Without a terminal,
    one frame is printed when the recording is complete.
    """
    import io

    from rich.console import Console

    from dask_diag.live.model import check_file
    from dask_diag.live.screen import WIDTH, show_in_terminal, show_last_frame

    check_file(file)
    console = Console(highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        show_in_terminal(file, console)
        return
    waiting = not_yet(file)
    if waiting:
        print_message(waiting)
    text = io.StringIO()
    show_last_frame(file, Console(file=text, width=WIDTH, highlight=False))
    print_result(text.getvalue().rstrip("\n"))
