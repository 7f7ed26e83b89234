"""A function that is named on the command line, as ``--metric`` names one."""

from __future__ import annotations

import atexit
import contextlib
import glob
import importlib
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO, cast

import click

from dask_diag.errors import DiagnosticError

_IN_ASCII = {
    "µ": "u",
    "μ": "u",
    "…": "...",
    "→": "->",
    "×": "x",
    "±": "+-",
    "≤": "<=",
    "≥": ">=",
    "∞": "inf",
    "−": "-",  # noqa: RUF001
    "–": "-",  # noqa: RUF001
    "─": "-",
    "·": ".",
    "\N{NO-BREAK SPACE}": " ",
    "\N{ZERO WIDTH SPACE}": "",
    "▁": "_",
    "▂": ".",
    "▃": ":",
    "▄": "-",
    "▅": "=",
    "▆": "+",
    "▇": "*",
    "█": "#",
    "▓": "=",
    "▒": "+",
    "░": "-",
    "▚": "/",
    "▞": "%",
}
"""Signs of our own texts, in which a question mark would change what is read: ``5 ?s``, or a bar
whose parts all look the same."""

_WIDEST = 120
"""Columns from which on a summary is no wider: long lines are hard to read."""


class Failure(click.ClickException):
    """What ends a command: reported in one line, without a traceback."""

    exit_code = 2


class OneLineErrors(click.Group):
    """A group of commands that end with a line on stderr and status 2 if they cannot do their work.

    Status 1, with which Python and click end by an error, is that of a gate.
    """

    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: object,
    ) -> int | None:
        """Run as a program, if in standalone mode; Ctrl-C ends it by the signal wherever it is."""
        try:
            status: int | None = super().main(args, prog_name, complete_var, False, **extra)
        except click.Abort:
            # A Ctrl-C that came between the two methods below. Click would end with status 1.
            print_message("Aborted!")
            end_as(signal.SIGINT)
        if standalone_mode:
            sys.exit(status)
        return status

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with the first sentence of each, whole: click cuts long ones."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(limit=formatter.width * 4))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Understand the arguments."""
        with _errors_in_one_line():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        with _errors_in_one_line():
            return super().invoke(ctx)


@contextlib.contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """Report what ends a command, also where stdout or stderr cannot be written."""
    try:
        try:
            yield
        except DiagnosticError as error:
            raise Failure(one_line(error)) from None
        except BrokenPipeError:
            # The reader of a command's --help has had enough, as head does.
            _discard(sys.stdout)
            raise click.exceptions.Exit(0) from None
        except OSError as error:
            if error.filename is None:
                # The help that click prints by itself; a file has a name.
                raise _cannot_print(error) from None
            raise Failure(one_line(error)) from None
        except KeyboardInterrupt:
            print_message("Aborted!")
            end_as(signal.SIGINT)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception:
            print_message(traceback.format_exc())
            raise Failure(
                "this is a defect of dask-diag; please report it with the lines above"
            ) from None
    except click.ClickException as error:
        print_message("\n".join(map(_visible, _text_of(error).split("\n"))))
        raise click.exceptions.Exit(error.exit_code) from None


def _text_of(error: click.ClickException) -> str:
    """A line, with the command whose help says more; without any arguments, that help."""
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
        return error.format_message()
    message = f"Error: {' '.join(error.format_message().split())}"
    # What is wrong with a value has been said; of what else there is, the help has a list.
    is_value = isinstance(error, click.BadParameter) and not isinstance(
        error, click.MissingParameter
    )
    context = error.ctx if isinstance(error, click.UsageError) and not is_value else None
    return f"{message.rstrip('.')}; see {context.command_path} --help" if context else message


def end_as(signal_number: int) -> NoReturn:
    """End this process as that signal ends one, which its parent can see."""
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
    return _visible(" ".join(str(text).split()))


def _visible(line: str) -> str:
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def why_failed(error: BaseException) -> str:
    """What an error says, in a line: with its type, unless dask_diag raised it."""
    try:
        return one_line(error if isinstance(error, DiagnosticError) else repr(error))
    except Exception:
        # A program's own error may fail to say what it is.
        return type(error).__name__


def print_result(text: str) -> None:
    """Write what was asked for to stdout.

    A reader who ends before it, as ``head`` does, is no failure: the rest is dropped.

    Raises
    ------
    Failure
        If stdout cannot be written.
    """
    if sys.stdout is None:
        raise Failure("cannot write output: stdout is closed")
    try:
        _print(text, sys.stdout)
    except BrokenPipeError:
        _discard(sys.stdout)
    except (OSError, ValueError) as error:
        raise _cannot_print(error) from None


def print_message(text: str) -> None:
    """Write a message to stderr; where that cannot be written, the exit status has to do."""
    if sys.stderr is None:
        return
    try:
        _print(text, sys.stderr)
    except Exception:
        # It may be a program's own stream, which raises anything.
        _discard(sys.stderr)


def replace_line(text: str) -> None:
    """Write a line on stderr in place of the one before; nothing where that is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        return
    try:
        _print(f"\r\x1b[2K{text}", sys.stderr, ends_line=False)
    except Exception:
        _discard(sys.stderr)


def _has_colors() -> bool:
    """Whether a terminal shows colours, and its user wants them."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _discard(stream: TextIO | None) -> None:
    """Drop what is left in a stream that cannot be written.

    The interpreter would try again when it ends, complain, and end with a status of 120.
    """
    with contextlib.suppress(AttributeError, OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nothing, stream.fileno())  # type: ignore[union-attr]
        finally:
            os.close(nothing)


def _print(text: str, stream: TextIO, ends_line: bool = True) -> None:
    # A summary can be drawn again; its class is not imported for those that print none.
    fitted = getattr(text, "for_terminal", None)
    if fitted is not None and stream.isatty():
        text = fitted(min(shutil.get_terminal_size().columns, _WIDEST), _has_colors())
    # click flushes: an error comes here, and not when the interpreter ends.
    click.echo(
        _encodable(text, getattr(stream, "encoding", None) or "utf-8"), file=stream, nl=ends_line
    )


def _encodable(text: str, encoding: str) -> str:
    """Text without the characters that an encoding lacks."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = "".join(_IN_ASCII.get(c, c) if _lacks(encoding, c) else c for c in text)
        return text.encode(encoding, "replace").decode(encoding)
    return text


def _lacks(encoding: str, character: str) -> bool:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return True
    return False


def _cannot_print(error: Exception) -> Failure:
    _discard(sys.stdout)
    why = getattr(error, "strerror", None) or str(error)
    return Failure(f"cannot write output: {one_line(why)}")


class FilePath(click.Path):
    """A path as it is given, which shells complete; what is wrong with it is found by opening it.

    click looks at files itself, and knows nothing of names that no file can have.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Take any but the empty one as it is."""
        if value == "":
            self.fail("expected the name of a file, found ''", param, ctx)
        return value


def beside(file: str, ending: str) -> str:
    """The name of a file with another ending.

    Raises
    ------
    Failure
        If it cannot be that of a file.
    """
    try:
        return str(Path(file).with_suffix(ending))
    except ValueError:
        raise Failure(f"cannot read {one_line(repr(file))}: name a file") from None


def check_free(
    path: str | None, force: bool, *others: str | None, folder_too: bool = False
) -> None:
    """Refuse to write over what is there, unless forced to, and where nothing can be written.

    Over one of the `others`, which are read, or written too, nothing is ever written.

    Raises
    ------
    Failure, DiagnosticError
        If it is refused.
    """
    from dask_diag.files import check_target

    if path is None:
        return
    if not folder_too or not (os.path.isdir(path) or path.endswith(("/", os.sep))):
        check_target(path, overwrite=True)
    if any(other is not None and _are_the_same(path, other) for other in others):
        raise Failure(
            f"will not write over {one_line(path)}, which is also read or written; choose another "
            "name"
        )
    if not force and os.path.lexists(path):
        raise Failure(
            f"will not overwrite {one_line(path)}; pass --force to replace it, or choose another "
            "name"
        )


def check_page(path: str | None, force: bool, *others: str | None) -> None:
    """Refuse, as `check_free` does, a page that could not be written when it has been made.

    Raises
    ------
    Failure, DiagnosticError
        If it is refused.
    """
    from dask_diag.files import check_writable

    check_free(path, force, *others)
    if path is not None:
        check_writable(Path(path))


def distinct_names(one: str, other: str) -> tuple[str, str]:
    """The shortest ends of two paths that differ: names of files, with their folders if need be."""
    parts = [Path(path).parts for path in (one, other)]
    for count in range(1, max(map(len, parts)) + 1):
        first, second = (os.path.join(*part[-count:]) for part in parts)
        if first != second:
            return first, second
    return one, other


def reason(error: Exception) -> str:
    """What an error says, without the name of the file."""
    return one_line(getattr(error, "strerror", None) or error)


def _are_the_same(path: str, other: str) -> bool:
    try:
        return os.path.realpath(path) == os.path.realpath(other)
    except (OSError, ValueError):
        # No file can be at one of them: opening it fails with the reason.
        return False


class ManyValues(click.Command):
    """A command whose options of type `multiple` may be followed by several values each."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Understand the arguments: each of several values gets the option's name."""
        names = {
            name
            for option in self.params
            if isinstance(option, click.Option) and option.multiple
            for name in option.opts
        }
        return super().parse_args(ctx, list(_one_value_each(args, names)))


def _one_value_each(args: Iterable[str], names: set[str]) -> Iterator[str]:
    current, is_first = None, False
    for arg in args:
        if arg.startswith("-") and arg != "-":
            name, equals, _ = arg.partition("=")
            current, is_first = (name if name in names else None), not equals
            yield arg
        elif current is None or is_first:
            is_first = False
            yield arg
        else:
            yield from (current, arg)


def expanded(paths: Iterable[str]) -> list[str]:
    """The files that patterns match, in order, where no shell has done that; other paths as is."""
    files: list[str] = []
    for path in paths:
        is_pattern = glob.has_magic(path) and not os.path.lexists(path)
        files += (sorted(glob.glob(path)) or [path]) if is_pattern else [path]
    return files


def function_named(text: str) -> Callable[[object], float]:
    """The function of a module, named as ``module:function``; the module is imported.

    Raises
    ------
    Failure
        If there is none.
    """
    module, _, path = text.partition(":")
    if not module or not path:
        raise Failure(
            f"--metric: expected MODULE:FUNCTION, such as dask.sizeof:sizeof, found "
            f"{one_line(repr(text))}"
        )
    try:
        value: object = importlib.import_module(module)
        for name in path.split("."):
            value = getattr(value, name)
    except Exception as error:
        # A module that is imported may raise anything.
        why = f"{type(error).__name__}: {error}"
        raise Failure(f"--metric: cannot import {one_line(text)}: {one_line(why)}") from None
    if not callable(value):
        raise Failure(
            f"--metric: {one_line(text)} is not callable; name a function that takes a result and "
            "returns a number"
        )
    return cast("Callable[[object], float]", value)
