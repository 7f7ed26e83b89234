"""``dask-diag throughput``: events and bytes per second, per core, and per second of CPU."""

from __future__ import annotations

import click

from dask_diag.cli.output import print_result
from dask_diag.cli.paths import FilePath

__all__ = ["throughput"]

_AMOUNT = "How many in all, or the label under which tasks metered them."


@click.command("throughput")
@click.argument("file", type=FilePath())
@click.option("--events", metavar="N|LABEL", help=_AMOUNT)
@click.option("--bytes", "read", metavar="N|LABEL", help=_AMOUNT)
@click.option("--by", type=click.Choice(["function", "worker"]), default="function", help="Rows.")
def throughput(file: str, events: str | None, read: str | None, by: str) -> None:
    """Show events and bytes per second, per core and per second of CPU."""
    from dask_diag.analysis.throughput import throughput as throughput_of
    from dask_diag.storage import load
    from dask_diag.views.throughput import throughput_summary

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
