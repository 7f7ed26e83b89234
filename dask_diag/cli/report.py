"""``dask-diag report``: a page about a recording."""

from __future__ import annotations

import click

from dask_diag.cli.telling import Failure, check_free, one_line

__all__ = ["report"]


@click.command()
@click.argument("file", type=click.Path())
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    default="dask-report.html",
    show_default=True,
    help="The page to write.",
)
@click.option("-f", "--force", is_flag=True, help="Replace a file that is there.")
def report(file: str, output: str, force: bool) -> None:
    """Write a page about a recording: findings first, then all that was measured."""
    from dask_diag.storage import load
    from dask_diag.views.report import report as write_report

    check_free(output, force)
    recording = load(file)
    try:
        write_report(recording, output)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise Failure(f"cannot write {one_line(output)}: {one_line(why)}") from None
