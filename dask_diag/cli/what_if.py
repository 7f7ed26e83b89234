"""``dask-diag what-if``: what more workers, quicker functions or no waits would gain."""

from __future__ import annotations

import click

from dask_diag.cli.output import print_result
from dask_diag.cli.paths import FilePath

__all__ = ["what_if"]


@click.command("what-if")
@click.argument("file", type=FilePath())
@click.option(
    "-w",
    "--workers",
    type=click.IntRange(min=1),
    multiple=True,
    help="A number of workers to try, beside twice and four times as many; may be repeated.",
)
def what_if(file: str, workers: tuple[int, ...]) -> None:
    """Predict the wall time with more workers, quicker functions, or without waits."""
    from dask_diag.analysis.what_if import what_if as predict
    from dask_diag.storage import load
    from dask_diag.views.what_if import what_if_summary

    recording = load(file)
    print_result(what_if_summary(predict(recording, workers), recording))
