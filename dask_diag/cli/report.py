"""``dask-diag report``: one page about a recording."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dask_diag.cli.output import one_line, print_result
from dask_diag.cli.paths import FilePath, beside, check_page

if TYPE_CHECKING:
    from dask_diag.analysis.findings import Finding

__all__ = ["report"]


@click.command()
@click.argument("file", type=FilePath())
@click.option("-o", "--output", type=FilePath(), help="The page; by default FILE with .html.")
@click.option("-f", "--force", is_flag=True, help="Replace the page if it is there.")
def report(file: str, output: str | None, force: bool) -> None:
    """Write a page about a recording, which needs no network, and print the largest finding."""
    from dask_diag.analysis.analysis import Analysis
    from dask_diag.analysis.findings import find
    from dask_diag.storage import load
    from dask_diag.views.findings import no_findings
    from dask_diag.views.report.page import write_report
    from dask_diag.views.summary_text import SummaryParts
    from dask_diag.views.text import make_summary

    page = output if output is not None else beside(file, ".html")
    check_page(page, force, file)
    analysis = Analysis(load(file))
    print_result(f"report: {one_line(write_report(analysis, Path(page), file=file))}")
    results = find(analysis)
    text = in_short(results[0]) if results else no_findings(analysis)
    print_result(make_summary(SummaryParts(text, (), ())))


def in_short(finding: Finding) -> str:
    """What, how bad, and what to do, in one sentence after the other."""
    from dask_diag.views.findings import lost

    parts = (lost(finding), f"To do: {finding.advice}")
    return one_line(f"{finding.code}: {'. '.join(filter(None, parts))}.")
