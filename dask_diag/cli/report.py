"""``dask-diag report``: one page about a recording."""

from __future__ import annotations

from pathlib import Path

import click

from dask_diag.cli.telling import check_free, one_line, tell

__all__ = ["report"]


@click.command()
@click.argument("file", type=click.Path())
@click.option("-o", "--output", type=click.Path(), help="The page; by default FILE with .html.")
@click.option("-f", "--force", is_flag=True, help="Replace the page if it is there.")
def report(file: str, output: str | None, force: bool) -> None:
    """Write a page about a recording, which needs no network."""
    from dask_diag.storage import load
    from dask_diag.views.report import report as write_report

    page = output or str(Path(file).with_suffix(".html"))
    check_free(page, force)
    tell(f"report: {one_line(write_report(load(file), page))}")
