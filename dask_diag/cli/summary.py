"""``dask-diag summary``: what was measured, in words and a table."""

from __future__ import annotations

import click

from dask_diag.cli.output import print_result
from dask_diag.cli.paths import FilePath

__all__ = ["summary"]


@click.command()
@click.option("-v", "--verbose", is_flag=True, help="Show more of the profilers themselves.")
@click.argument("file", type=FilePath())
def summary(*, verbose: bool, file: str) -> None:
    """Show what is in a recording, by function."""
    from dask_diag.storage import load
    from dask_diag.views.summary import summary as summary_of

    print_result(summary_of(load(file), verbose=verbose))
