"""``dask-diag tune``: which settings make an unchanged program faster."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from types import FrameType

import click

from dask_diag.cli.output import (
    FilePath,
    check_page,
    end_as,
    one_line,
    print_message,
    print_result,
    replace_line,
    signals_handled,
)
from dask_diag.cli.runner import ProgramRunner, kind_of_program


def pairs(
    context: click.Context, option: click.Parameter, texts: Sequence[str]
) -> dict[str, list[str]]:
    """Names with their values, of ``name=a,b`` or of ``name=a`` given several times."""
    values: dict[str, list[str]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals or not value:
            raise click.BadParameter(f"expected NAME=VALUE, found {text!r}")
        several = value.split(",") if option.name == "parameters" else [value]
        values.setdefault(name, []).extend(several)
    return values


def numbers(context: click.Context, option: click.Parameter, text: str | None) -> list[int]:
    """Numbers of workers, separated by commas."""
    parts = [] if text is None else text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise click.BadParameter(f"expected numbers such as 2,4,8, found {text!r}")
    return [int(part) for part in parts]


def names(context: click.Context, option: click.Parameter, text: str | None) -> list[str]:
    """Schedulers, separated by commas."""
    parts = [] if text is None else [part.strip() for part in text.split(",")]
    if not set(parts) <= {"threads", "processes", "sync"}:
        raise click.BadParameter(f"expected threads, processes or sync, found {text!r}")
    return parts


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--scheduler", callback=names, metavar="NAME,...", help="Try threads, processes, sync."
)
@click.option("--workers", callback=numbers, metavar="N,...", help="Try these numbers of workers.")
@click.option(
    "--config",
    multiple=True,
    callback=pairs,
    metavar="KEY=VALUE",
    help="Value of dask's configuration to try; may be repeated.",
)
@click.option(
    "--set",
    "parameters",
    multiple=True,
    callback=pairs,
    metavar="NAME=A,B,...",
    help="Values to try for {NAME} in ARGUMENTS, the first as baseline; without {NAME} there, for "
    "the environment variable NAME.",
)
@click.option(
    "--python",
    multiple=True,
    metavar="PATH",
    help="Interpreter to run the program with, the first as baseline; may be repeated. Its "
    "environment need not have dask_diag.",
)
@click.option("--only", is_flag=True, help="Try only what these options name.")
@click.option(
    "--budget",
    metavar="TIME",
    default="10m",
    show_default=True,
    help="Time limit for all runs: 90s, 10m, 1h.",
)
@click.option(
    "--check",
    metavar="COMMAND",
    help="Command that gets the program's stdout on stdin; status 0 means that the result is "
    "correct.",
)
@click.option("--html", "page", type=FilePath(), help="Also write an HTML page.")
@click.option(
    "-f", "--force", is_flag=True, help="Overwrite any file, not only pages of dask-diag."
)
@click.option("-m", "module", is_flag=True, help="PROGRAM is a module, as for python -m.")
@click.option("-c", "code", is_flag=True, help="PROGRAM is code, as for python -c.")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def tune(
    *,
    scheduler: list[str],
    workers: list[int],
    config: dict[str, list[str]],
    parameters: dict[str, list[str]],
    python: tuple[str, ...],
    only: bool,
    budget: str,
    check: str | None,
    page: str | None,
    force: bool,
    module: bool,
    code: bool,
    program: str,
    arguments: tuple[str, ...],
) -> None:
    """Try settings on an unchanged program, and report which make the program faster.

    The program runs repeatedly in child processes, without and with each setting in turn: settings
    that the findings of its recording advise, a few settings that often help, and those that the
    options name. Its stdin is empty, and its output is not shown; output that differs from the
    baseline's is reported. Ctrl-C ends the trials and shows the results so far.
    """
    from dask_diag.files import write_text
    from dask_diag.tuning.trials import Program
    from dask_diag.tuning.tune import tune as tune_program

    kind = kind_of_program(module, code)
    check_page(page, force, ProgramRunner(kind, program, arguments).path)
    if only and not (scheduler or workers or config or parameters or python[1:]):
        raise click.UsageError("--only: name something to try: --scheduler, --workers, ...")
    with _ended_by_signals() as ended_by, _progress_line(budget) as progress:
        result = tune_program(
            Program(kind, program, arguments),
            schedulers=scheduler,
            workers=workers,
            config=config,
            parameters=parameters,
            python=python,
            only=only,
            budget=budget,
            check=check,
            progress=progress,
        )
    print_result(result.summary())
    if page is not None:
        write_text(page, result.page(one_line(program)))
        print_message(f"page: {one_line(page)}")
    if result.is_interrupted:
        end_as(ended_by[0] if ended_by else signal.SIGINT)


@contextmanager
def _ended_by_signals() -> Iterator[list[int]]:
    """Treat SIGTERM and SIGHUP as Ctrl-C: children are ended, and known results are shown."""
    received: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    with signals_handled(("SIGTERM", "SIGHUP"), interrupt):
        yield received


@contextmanager
def _progress_line(budget: str) -> Iterator[Callable[[str], None]]:
    """A line on a terminal that is replaced; elsewhere nothing."""
    start = monotonic()

    def show(line: str) -> None:
        text = f"{one_line(line)} ({monotonic() - start:.0f} s of {budget})"
        replace_line(text[:78])

    try:
        yield show
    finally:
        replace_line("")
