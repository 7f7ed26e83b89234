"""The report of a recording, made by a process of its own: its memory is not the viewer's.

A report of a million tasks needs several times the memory that a viewer may have, and the viewer
would not give it back. Nothing is written to disk: the page comes through a pipe.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

__all__ = ["made_report"]


async def made_report(path: str | os.PathLike[str]) -> bytes | None:
    """The page; None if none can be made. If it is not waited for, its process is killed.

    Parameters
    ----------
    path : str or os.PathLike
    """
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, os.path.abspath(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # Modules where the user is must not take the place of others.
        cwd=os.path.abspath(os.sep),
    )
    try:
        # In a thread: not every system's event loop can wait for processes.
        page, _ = await asyncio.get_running_loop().run_in_executor(None, process.communicate)
    finally:
        # Of a process that has ended nothing is killed.
        process.kill()
    return page if process.returncode == 0 else None


def main(path: str) -> None:
    """Write the page to stdout."""
    from dask_diag.analysis.analysis import Analysis
    from dask_diag.errors import DiagnosticError
    from dask_diag.storage import load
    from dask_diag.views.report.page import report_page

    try:
        page = report_page(Analysis(load(path)), file=path)
    except DiagnosticError:
        sys.exit(1)
    sys.stdout.buffer.write(page.encode())


if __name__ == "__main__":
    main(sys.argv[1])
