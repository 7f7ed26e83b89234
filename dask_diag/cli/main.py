"""The command line; commands import other modules only when called."""

from __future__ import annotations

import click

from dask_diag._version import __version__
from dask_diag.cli.attach import attach
from dask_diag.cli.compare import compare
from dask_diag.cli.explain import explain
from dask_diag.cli.look import export, lines, live, report, summary, throughput, top, what_if
from dask_diag.cli.output import OneLineErrors
from dask_diag.cli.run import run
from dask_diag.cli.tune import tune

_STATUS = """\b
Exit status:
  0  success
  1  compare --fail-above: something is slower
  2  the command failed; a line on stderr gives the reason
`dask-diag run` ends with the program's status, once the program has started."""


@click.group(cls=OneLineErrors, epilog=_STATUS)
@click.version_option(__version__, prog_name="dask-diag")
def main() -> None:
    """Find out why a Dask program is slow."""


for _command in (
    run,
    attach,
    summary,
    lines,
    explain,
    report,
    throughput,
    what_if,
    compare,
    export,
    tune,
    live,
    top,
):
    main.add_command(_command)
