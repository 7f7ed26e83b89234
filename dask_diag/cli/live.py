"""``dask-diag live``: a recording while it is made, as a page of this machine."""

from __future__ import annotations

import contextlib
import os

import click

from dask_diag.cli.output import print_message
from dask_diag.cli.paths import FilePath

__all__ = ["live"]


@click.command()
@click.argument("file", type=FilePath())
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Where to listen; by default any."
)
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@click.option("--child", is_flag=True, hidden=True)
def live(file: str, port: int, no_browser: bool, child: bool) -> None:
    """Show a recording while it is made, in a browser on this machine.

    The file need not be there yet, and the run need not know. Only this machine can open the page,
    by the address that is printed; Ctrl-C ends it, and the run goes on. It ends by itself when the
    recording is complete and no page has been open for a minute.
    """
    if child:
        _leave_parent()
    from dask_diag.live.command import serve
    from dask_diag.live.viewer import check_file

    if not child:
        check_file(file)
    report = _report_to_parent if child else print_message
    serve(file, port, opens_browser=not no_browser, waits=not child, report=report)


def _leave_parent() -> None:
    """Go on as a process that the program need not wait for, and that lets it go first."""
    if hasattr(os, "fork"):
        if os.fork():
            os._exit(0)
        os.setsid()
        os.nice(10)


def _report_to_parent(text: str) -> None:
    """Write to stdout, and close it: the parent reads up to its end."""
    # The parent may be gone.
    with contextlib.suppress(OSError):
        os.write(1, text.encode())
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    os.close(nothing)
