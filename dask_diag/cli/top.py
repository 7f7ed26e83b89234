"""``dask-diag top``: a recording while it is made, in a terminal."""

from __future__ import annotations

import click

from dask_diag.cli.output import print_result
from dask_diag.cli.paths import FilePath

__all__ = ["top"]


@click.command()
@click.argument("file", type=FilePath())
def top(file: str) -> None:
    """Show a recording while it is made: how far it is, and what runs longest.

    The file need not be there yet. `q` or Ctrl-C leaves, and the run goes on. Without a terminal,
    one frame is printed when the recording is over.
    """
    import io

    from rich.console import Console

    from dask_diag.live.top import WIDTH, show_in_terminal, show_last_frame
    from dask_diag.live.viewer import check_file

    check_file(file)
    console = Console(highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        show_in_terminal(file, console)
        return
    text = io.StringIO()
    show_last_frame(file, Console(file=text, width=WIDTH, highlight=False))
    print_result(text.getvalue().rstrip("\n"))
