"""``dask-diag summary``: what was measured, in words and a table."""

from __future__ import annotations

import click

from dask_diag.cli.output import tell

__all__ = ["summary"]


@click.command()
@click.argument("file", type=click.Path())
def summary(file: str) -> None:
    """Tell what is in a recording, by function."""
    from dask_diag.storage import load
    from dask_diag.views.summary import summary as summary_of

    tell(summary_of(load(file)))
