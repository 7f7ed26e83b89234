"""How the command line tells what went wrong, and what it writes to terminals."""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import signal
import sys
from typing import Any, NoReturn, TextIO

import click

from dask_diag.errors import DiagnosticError

__all__ = ["Failure", "OneLineErrors", "check_free", "end_as", "one_line", "tell"]


class Failure(click.ClickException):
    """What ends a command: told in one line, without a traceback."""

    exit_code = 2


class OneLineErrors(click.Group):
    """A group of commands whose errors, if they are ours, are told in one line."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Understand the arguments."""
        try:
            return super().make_context(*args, **kwargs)
        except KeyboardInterrupt:
            _aborted()

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except DiagnosticError as error:
            raise Failure(one_line(error)) from None
        except OSError as error:
            if error.errno == errno.EPIPE:
                # Who reads has had enough, as head does.
                raise
            raise Failure(f"cannot write what is to be told: {one_line(error)}") from None
        except KeyboardInterrupt:
            _aborted()


def _aborted() -> NoReturn:
    """Click would end with status 1, which is that of a gate."""
    click.echo("Aborted!", err=True)
    end_as(signal.SIGINT)


def end_as(signal_number: int) -> NoReturn:
    """End this process as that signal ends one, so that who waits for it is told the truth."""
    # As the interpreter does, which is not to end it.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    signal.signal(signal_number, signal.SIG_DFL)
    os.kill(os.getpid(), signal_number)
    # It is blocked: no process can end by it then.
    os._exit(128 + signal_number)


def one_line(text: object) -> str:
    """Text in which nothing can move a terminal's cursor."""
    line = " ".join(str(text).split())
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def tell(text: str, file: TextIO | None = None) -> None:
    """Write text to stdout, or to a file, whatever characters that can show."""
    out = file or sys.stdout
    encoding = getattr(out, "encoding", None) or "utf-8"
    click.echo(text.encode(encoding, "replace").decode(encoding), file=out)


def check_free(
    path: str | os.PathLike[str] | None,
    force: bool,
    *others: str | None,
    folder_too: bool = False,
) -> None:
    """Refuse to write over what is there, unless told to, and where nothing can be written.

    Over one of the `others`, which are read, or written too, nothing is ever written.
    """
    if path is None:
        return
    place = os.path.realpath(path)
    if any(other is not None and os.path.realpath(other) == place for other in others):
        raise Failure(
            f"will not write over {one_line(path)}, which is also read or written; choose another "
            "name"
        )
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) and not folder_too:
        raise Failure(f"cannot write {one_line(path)}: it is a directory; name a file in it")
    if not os.path.isdir(folder):
        raise Failure(f"cannot write {one_line(path)}: make the directory {one_line(folder)} first")
    if not force and os.path.lexists(path):
        raise Failure(
            f"will not overwrite {one_line(path)}; pass --force to replace it, or choose another "
            "name"
        )
