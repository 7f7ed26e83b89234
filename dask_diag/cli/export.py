"""``dask-diag export``: a recording in the formats of other programs."""

from __future__ import annotations

import click

from dask_diag.cli.output import one_line, print_result
from dask_diag.cli.paths import FilePath, beside, check_free

__all__ = ["export"]

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
    help="By default what the ending of --output says.",
)
@click.option(
    "-o",
    "--output",
    type=FilePath(),
    help="The file, or for csv and parquet a folder; by default FILE with the format's ending.",
)
@click.option("-f", "--force", is_flag=True, help="Replace what is there.")
def export(file: str, format_: str | None, output: str | None, force: bool) -> None:
    """Write a recording for another program to read.

    perfetto opens at https://ui.perfetto.dev, speedscope at https://www.speedscope.app. csv and
    parquet are the tasks alone, or all tables if --output is a folder's name.
    """
    from dask_diag.storage import load
    from dask_diag.views.exports import export as write_export

    if output is None and format_ is None:
        raise click.UsageError("say what to write: --format, or --output with a known ending")
    target = output if output is not None else beside(file, _ENDINGS[format_ or ""])
    check_free(target, force, file, folder_too=format_ in (None, "csv", "parquet"))
    recording = load(file)
    written = write_export(recording, target, format_, overwrite=force)
    empty = "" if len(recording.tasks) else " (there are no tasks)"
    print_result(f"export: {one_line(written)}{empty}")
