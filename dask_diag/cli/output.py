"""Output and arguments of all commands: results, errors in one line, paths, values, signals."""

from __future__ import annotations

import atexit
import codecs
import contextlib
import glob
import os
import pkgutil
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TextIO, cast

import click

from dask_diag.errors import DiagnosticError

_SIGNS = {
    "u": "µμ",
    "...": "…",
    "->": "→",
    "x": "×",
    "+-": "±",
    "<=": "≤",
    ">=": "≥",
    "inf": "∞",
    "-": "−–─▄░",  # noqa: RUF001
    ".": "·▂",
    " ": "\N{NO-BREAK SPACE}",
    "": "\N{ZERO WIDTH SPACE}",
    "_": "▁",
    ":": "▃",
    "=": "▅▓",
    "+": "▆▒",
    "*": "▇",
    "#": "█",
    "/": "▚",
    "%": "▞",
}
_IN_ASCII = {sign: text for text, signs in _SIGNS.items() for sign in signs}
"""Spellings of our own signs, where a question mark would change the meaning: ``5 ?s``, or a bar
whose parts all look the same."""

_WIDEST = 120
"""Columns of the widest summary on a terminal: long lines are hard to read."""
_OF_FILES = 80
"""Columns of text in files and pipes, if COLUMNS has no other number."""


class CommandFailure(click.ClickException):
    """Error of a command, shown in one line without a traceback."""

    exit_code = 2


class OneLineErrors(click.Group):
    """Group of commands that end with a line on stderr and status 2 after a failure.

    Status 1, the one of Python and click after an error, is reserved for a gate.
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
            # Ctrl-C came between the two methods below. Click would end with status 1.
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
        """Parse the arguments."""
        with _errors_in_one_line():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        with _errors_in_one_line():
            return super().invoke(ctx)


class WholeNumber(click.IntRange):
    """A whole number within limits."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; refuse others with a line that says what was expected."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            limits = f"from {self.min} to {self.max}" if self.max else f"of at least {self.min}"
            self.fail(f"expected a whole number {limits}, found {value!r}", param, ctx)


@contextlib.contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """Report an error that ends a command, also where stdout or stderr cannot be written."""
    try:
        try:
            yield
        except DiagnosticError as error:
            raise CommandFailure(one_line(error)) from None
        except BrokenPipeError:
            # The reader of a command's --help has had enough, as head does.
            _discard(sys.stdout)
            raise click.exceptions.Exit(0) from None
        except OSError as error:
            if error.filename is None:
                # Click itself prints the help; an error about a file has a name.
                raise _cannot_print(error) from None
            raise CommandFailure(one_line(error)) from None
        except KeyboardInterrupt:
            print_message("Aborted!")
            end_as(signal.SIGINT)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception:
            print_message(traceback.format_exc())
            raise CommandFailure(
                "this is a bug in dask-diag; please report it with the traceback above"
            ) from None
    except click.ClickException as error:
        print_message("\n".join(map(_visible, _text_of(error).split("\n"))))
        raise click.exceptions.Exit(error.exit_code) from None


def _text_of(error: click.ClickException) -> str:
    """A line that refers to the help of the command; without any arguments, the help itself."""
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
        return error.format_message()
    message = f"Error: {' '.join(error.format_message().split())}"
    # A message on a value says what is wrong; other messages refer to the help.
    is_value = isinstance(error, click.BadParameter) and not isinstance(
        error, click.MissingParameter
    )
    context = error.ctx if isinstance(error, click.UsageError) and not is_value else None
    return f"{message.rstrip('.')}; see {context.command_path} --help" if context else message


def end_as(signal_number: int) -> NoReturn:
    """End this process by a signal, visibly for the parent."""
    # The interpreter, which does so when it ends, does not get to it.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    signal.signal(signal_number, signal.SIG_DFL)
    os.kill(os.getpid(), signal_number)
    # A blocked signal ends no process.
    os._exit(128 + signal_number)


@contextlib.contextmanager
def signals_handled(
    names: Iterable[str], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    """Handle the named signals of this system, except ignored ones, and restore their handlers."""
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = [
        (number, signal.signal(number, handler))
        for number in numbers
        if signal.getsignal(number) not in (signal.SIG_IGN, None)
    ]
    try:
        yield
    finally:
        for number, former in before:
            signal.signal(number, former)


def one_line(text: object) -> str:
    """Text in which nothing can move a terminal's cursor."""
    return _visible(" ".join(str(text).split()))


def _visible(line: str) -> str:
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def why_failed(error: BaseException) -> str:
    """Message of an error in a line, with its type unless dask_diag raised it."""
    try:
        return one_line(error if isinstance(error, DiagnosticError) else repr(error))
    except Exception:
        # A program's own error may fail to describe itself.
        return type(error).__name__


def reason(error: Exception) -> str:
    """Message of an error, without the name of a file."""
    return one_line(getattr(error, "strerror", None) or error)


def print_result(text: str) -> None:
    """Write a result to stdout.

    After a reader has ended early, as ``head`` does, the rest is dropped.

    Raises
    ------
    CommandFailure
        If stdout cannot be written.
    """
    if sys.stdout is None:
        raise CommandFailure("cannot write output: stdout is closed")
    try:
        _print(text, sys.stdout)
    except BrokenPipeError:
        _discard(sys.stdout)
    except (OSError, ValueError) as error:
        raise _cannot_print(error) from None


def _cannot_print(error: Exception) -> CommandFailure:
    _discard(sys.stdout)
    return CommandFailure(f"cannot write output: {reason(error)}")


def print_message(text: str, ends_line: bool = True) -> None:
    """Write a message to stderr; where stderr cannot be written, the exit status remains."""
    if sys.stderr is None:
        return
    try:
        _print(text, sys.stderr, ends_line)
    except Exception:
        # A program's own stream raises anything.
        _discard(sys.stderr)


def replace_line(text: str) -> None:
    """Replace the last line on stderr, if stderr is a terminal."""
    if sys.stderr is not None and sys.stderr.isatty():
        print_message(f"\r\x1b[2K{text}", ends_line=False)


def _discard(stream: TextIO | None) -> None:
    """Drop the buffer of an unwritable stream.

    The interpreter would try to write it at exit, complain, and end with status 120.
    """
    with contextlib.suppress(AttributeError, OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nothing, stream.fileno())  # type: ignore[union-attr]
        finally:
            os.close(nothing)


def _print(text: str, stream: TextIO, ends_line: bool = True) -> None:
    # A summary can be drawn again; its class is not imported for commands that print none.
    fitted = getattr(text, "for_terminal", None)
    if fitted is not None and stream.isatty():
        has_colors = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        text = fitted(min(shutil.get_terminal_size().columns, _WIDEST), has_colors)
    elif fitted is not None:
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdecimal() else 0
        text = fitted(width or _OF_FILES, cuts_names=False)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    # Click flushes: an error comes here, and not when the interpreter ends.
    click.echo(text.encode(encoding, "dask_diag").decode(encoding), file=stream, nl=ends_line)


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    """Spell signs that an encoding lacks."""
    assert isinstance(error, UnicodeEncodeError)
    signs = error.object[error.start : error.end]
    return "".join(_IN_ASCII.get(sign, "?") for sign in signs), error.end


codecs.register_error("dask_diag", _in_ascii)


class FilePath(click.Path):
    """A path as given, completed by shells.

    Errors come when the file is opened: click's own checks fail on impossible names.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse the empty name."""
        if value == "":
            self.fail("expected the name of a file, found ''", param, ctx)
        return value


def with_ending(file: str, ending: str) -> str:
    """The name of a file with another ending.

    Raises
    ------
    CommandFailure
        If no file can have that name.
    """
    try:
        return str(Path(file).with_suffix(ending))
    except ValueError:
        raise CommandFailure(f"cannot read {one_line(repr(file))}: name a file") from None


def check_free(
    path: str | None, force: bool, *others: str | None, folder_too: bool = False
) -> None:
    """Refuse an existing path, unless forced to, and an unwritable path.

    The `others`, read or written by the same command, are never overwritten.

    Raises
    ------
    CommandFailure, DiagnosticError
        If it is refused.
    """
    from dask_diag.files import check_target

    if path is None:
        return
    if not folder_too or not (os.path.isdir(path) or path.endswith(("/", os.sep))):
        check_target(path, overwrite=True)
    if any(other is not None and _are_the_same(path, other) for other in others):
        raise CommandFailure(
            f"will not overwrite {one_line(path)}: this command also reads or writes it; choose "
            "another name"
        )
    if not force and os.path.lexists(path):
        raise CommandFailure(
            f"will not overwrite {one_line(path)}; pass --force to replace it, or choose another "
            "name"
        )


_PAGE = b'<meta name="generator" content="dask_diag">'
_HEAD = 4096
"""Bytes at the beginning of a page that say which program wrote it."""


def check_page(path: str | None, force: bool, *others: str | None) -> None:
    """Refuse a path as `check_free` does, and a page that would be unwritable later.

    A page of dask_diag may be replaced: it can be made again from its recording.

    Raises
    ------
    CommandFailure, DiagnosticError
        If it is refused.
    """
    from dask_diag.files import check_writable

    check_free(path, force or _is_page(path), *others)
    if path is not None:
        check_writable(Path(path))


def _is_page(path: str | None) -> bool:
    """Whether dask_diag wrote a page."""
    if path is None or not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            return _PAGE in file.read(_HEAD)
    except OSError:
        return False


def check_recording(
    path: str | None, force: bool, is_own: Callable[[str, str], bool], *others: str | None
) -> None:
    """Refuse a path as `check_free` does, but not a recording of the same program.

    Parameters
    ----------
    path : str or None
    force : bool
    is_own : callable
        Whether the name and the text of recorded code are those of the program.
    *others : str or None

    Raises
    ------
    CommandFailure, DiagnosticError
        If it is refused.
    """
    from dask_diag.storage.read import calling_code_in

    def is_replaced() -> bool:
        recorded = calling_code_in(path) if path is not None and os.path.isfile(path) else None
        return any(is_own(*code) for code in recorded or ())

    check_free(path, force or is_replaced(), *others)


def _are_the_same(path: str, other: str) -> bool:
    try:
        return os.path.realpath(path) == os.path.realpath(other)
    except (OSError, ValueError):
        # No file can have one of the names: opening it fails with the reason.
        return False


def distinct_names(one: str, other: str) -> tuple[str, str]:
    """The shortest different ends of two paths: names of files, with folders if needed."""
    parts = [Path(path).parts for path in (one, other)]
    for count in range(1, max(map(len, parts)) + 1):
        first, second = (os.path.join(*part[-count:]) for part in parts)
        if first != second:
            return first, second
    return one, other


class ManyValues(click.Command):
    """A command whose options of type `multiple` may be followed by several values each."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, with the option's name before each of its values."""
        options = [o for o in self.params if isinstance(o, click.Option) and o.multiple]
        names = {name for option in options for name in option.opts}
        each: list[str] = []
        current, has_value = None, False
        for arg in args:
            if arg.startswith("-") and arg != "-":
                name, equals, _ = arg.partition("=")
                current, has_value = (name if name in names else None), bool(equals)
            elif current is not None:
                each += [current] if has_value else []
                has_value = True
            each.append(arg)
        return super().parse_args(ctx, each)


def expanded(paths: Iterable[str]) -> list[str]:
    """Files of patterns, in order, where no shell has expanded patterns; other paths as is."""
    files: list[str] = []
    for path in paths:
        is_pattern = glob.has_magic(path) and not os.path.lexists(path)
        files += (sorted(glob.glob(path)) or [path]) if is_pattern else [path]
    return files


def function_named(text: str) -> Callable[[object], float]:
    """The function of a module, named as ``module:function``; the module is imported.

    Raises
    ------
    CommandFailure
        If there is none.
    """
    module, _, path = text.partition(":")
    if not module or not path:
        raise CommandFailure(
            f"--metric: expected MODULE:FUNCTION, such as dask.sizeof:sizeof, found "
            f"{one_line(repr(text))}"
        )
    try:
        value = pkgutil.resolve_name(text)
    except Exception as error:
        # A module that is imported may raise anything.
        why = f"{type(error).__name__}: {error}"
        raise CommandFailure(f"--metric: cannot import {one_line(text)}: {one_line(why)}") from None
    if not callable(value):
        raise CommandFailure(
            f"--metric: {one_line(text)} is not callable; name a function that takes a result and "
            "returns a number"
        )
    return cast("Callable[[object], float]", value)
