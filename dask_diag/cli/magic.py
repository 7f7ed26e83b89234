"""``%load_ext dask_diag``: the cell magic ``%%diag``."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import http.client
import inspect
import os
import re
import sys
import threading
from collections.abc import Callable, Container, Iterator
from dataclasses import replace
from functools import partial
from html import escape, unescape
from keyword import iskeyword
from tempfile import TemporaryDirectory
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import click
from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class, needs_local_scope
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display
from IPython.utils.process import arg_split

from dask_diag.cli.output import (
    check_page,
    check_recording,
    print_message,
    why_failed,
)
from dask_diag.errors import DiagnosticError, number
from dask_diag.live.security import TOKEN_HEADER
from dask_diag.profilers.record import LiveViewer

if TYPE_CHECKING:
    from argparse import Namespace

    from IPython.core.interactiveshell import InteractiveShell

    from dask_diag.model.recording import Recording
    from dask_diag.profilers.record import ProfilerGroup


_PERIOD = 2.4
"""Seconds between pictures: each takes about a millisecond of the kernel."""
_LONGEST_ANSWER = 5.0
_LONGEST_START = 30.0


class LiveCell:
    """The picture below one cell.

    Parameters
    ----------
    path : str
        The file that the cell's recording is written to.
    """

    def __init__(self, path: str) -> None:
        self._viewer = LiveViewer(path, report=lambda text: None)
        starts = _with_text("<div>The live view starts.</div>")
        self._handle = display(starts, raw=True, display_id=True)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dask_diag-cell", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Show the last state, which the saved notebook keeps, without the token."""
        self._stopping.set()
        self._thread.join(_LONGEST_START)
        self._show(is_last=True)
        if not self._viewer.addresses:
            failed = _with_text("<div>The live view could not be started.</div>")
            self._handle.update(failed, raw=True)

    def _run(self) -> None:
        self._viewer.wait_for_address(_LONGEST_START)
        self._show()
        while not self._stopping.wait(_PERIOD):
            self._show()

    def _show(self, is_last: bool = False) -> None:
        """Ask the viewer for a picture; after a failure the picture before stays."""
        address = self._viewer.addresses.removeprefix("live: ").partition("\n")[0]
        if not address:
            return
        try:
            picture = _picture_at(address)
        except (OSError, http.client.HTTPException):
            return
        html = picture if is_last else picture + _link(self._viewer.addresses)
        self._handle.update(_with_text(html), raw=True)


def _with_text(html: str) -> dict[str, str]:
    """HTML, and its words for viewers without HTML, such as a PDF."""
    return {"text/html": html, "text/plain": unescape(re.sub(r"(\s*<[^>]*>)+", "\n", html)).strip()}


def _link(addresses: str) -> str:
    """Link to the page; on a hub this machine is not the reader's."""
    lines = dict(line.split(": ", 1) for line in addresses.splitlines() if ": " in line)
    address = lines.get("through the hub", lines["live"])
    if not address.startswith("http"):
        return f"<div>For a link to the live page, {escape(address)}.</div>"
    return f'<a href="{escape(address)}" target="_blank" rel="noreferrer">Open the live page</a>'


def _picture_at(address: str) -> str:
    parts = urlsplit(address)
    (token,) = parse_qs(parts.query)["token"]
    connection = http.client.HTTPConnection(parts.netloc, timeout=_LONGEST_ANSWER)
    try:
        connection.request("GET", "/picture", headers={TOKEN_HEADER: token})
        response = connection.getresponse()
        if response.status != 200:
            raise http.client.HTTPException(f"status {response.status}")
        return response.read().decode()
    finally:
        connection.close()


Names = dict[str, object]
"""A namespace of a cell."""

_NAME = "_diag"
_NO_AWAIT = (
    "%%diag does not support top-level await in notebooks; use `with "
    "dask_diag.record('run.diag'):` around the awaiting code in a plain cell"
)


def _started(arguments: Namespace, cell: str, name: str, written: Container[str]) -> ProfilerGroup:
    """Start recording a cell; files `written` by earlier cells, or by it, may be replaced."""
    from dask_diag.profilers.record import ProfilerGroup, record

    try:
        body = cell.partition("\n")[2]
        is_own = os.path.realpath(arguments.output or "") in written
        check_recording(
            arguments.output,
            arguments.force or is_own,
            # With other options it is the same cell.
            lambda _, recorded: recorded.partition("\n")[2] == body.rstrip(),
        )
        check_page(arguments.html, arguments.force, arguments.output)
        arguments.page = ""
        if arguments.html is not None:
            page = os.path.relpath(arguments.html)
            # Absolute, because the cell may change its folder.
            arguments.html, arguments.page = os.path.abspath(arguments.html), page
        code = False if arguments.no_code else cell
        waits = not arguments.no_waits
        interval = number("--interval", arguments.interval, "seconds between samples", above=0)
        make: Callable[..., ProfilerGroup] = ProfilerGroup
        if arguments.output is not None:
            # Whether it may be replaced was checked.
            make = partial(record, arguments.output, overwrite=True)
        trace = arguments.trace_memory
        group = make(resource_interval=interval, waits=waits, code=code, trace_memory=trace)
        group.code_name = name
        return group.__enter__()
    except (click.ClickException, DiagnosticError, ValueError, TypeError) as error:
        why = error.message if isinstance(error, click.ClickException) else str(error)
        raise UsageError(why) from None


@contextlib.contextmanager
def _reported(failing: str) -> Iterator[None]:
    """Report an error of dask_diag in a line; the cell does not end by it."""
    try:
        yield
    except Exception as error:
        print_message(f"%%diag: {failing}: {why_failed(error)}")


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _awaited(codes: list[CodeType], *names: Names | None) -> tuple[object, Exception | None]:
    """The value of the last code, or the error that ended the cell.

    The error is raised outside, without frames of an event loop in its traceback.
    """
    __tracebackhide__ = True
    value = None
    try:
        for code in codes:
            value = eval(code, *names)
            if code.co_flags & inspect.CO_COROUTINE:
                value = await value
    except Exception as error:
        return None, error
    return value, None


def _number_of_cell(shell: InteractiveShell) -> int:
    """The number of the cell that is running, by the frame that called the magic."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        named = shell.compile.format_code_name(frame.f_code.co_filename)
        if named is not None:
            return int(named[1].removeprefix("In[").removesuffix("]"))
        frame = frame.f_back
    return 0


@magics_class
class DiagMagics(Magics):
    """The cell magic ``%%diag``."""

    _live_cell: LiveCell | None = None

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._written: set[str] = set()

    @cell_magic
    @magic_arguments()
    @argument("name", nargs="?", default=_NAME, help="the variable that gets the recording")
    @argument("-o", "--output", help="write the recording to this file while the cell runs")
    @argument("--html", help="also write an HTML report to this file")
    @argument("-f", "--force", action="store_true", help="overwrite existing files")
    @argument("--no-waits", action="store_true", help="do not record what tasks wait for")
    @argument(
        "--interval",
        type=float,
        default=0.5,
        help="seconds between samples of CPU and memory (default 0.5)",
    )
    @argument("--no-code", action="store_true", help="leave the calling code out of the recording")
    @argument(
        "--trace-memory",
        action="store_true",
        help="record what allocated the memory in use at the peak (slow)",
    )
    @argument("--live", action="store_true", help="show the progress and a link to the live view")
    @argument("-v", "--verbose", action="store_true", help="show all numbers in the summary")
    @argument("-q", "--quiet", action="store_true", help="show nothing")
    @argument("-h", "--help", action="store_true", help="show this help; the cell does not run")
    @needs_local_scope
    def diag(self, line: str, cell: str, local_ns: Names | None = None) -> object:
        """Record all that a cell computes with Dask, and show it.

        The value of the cell's last expression is shown as without it.
        """
        # What the cell raises is shown without this frame.
        __tracebackhide__ = True
        arguments = self._arguments(line)
        if arguments.help:
            # As argparse describes a line magic; `::` is for documents.
            text = self.diag.parser.format_help()
            print(text.replace("::\n\n  %diag", "%%diag", 1))  # noqa: T201
            return None
        if not arguments.name.isidentifier() or iskeyword(arguments.name):
            raise UsageError(f"expected the name of a variable, found {arguments.name!r}")
        codes = self._compiled(cell)
        awaits = any(code.co_flags & inspect.CO_COROUTINE for code in codes)
        if awaits and _in_event_loop():
            raise UsageError(_NO_AWAIT)
        if arguments.live and arguments.output is None:
            arguments.output = self._temporary_file()
        given = f"%%diag {line}".rstrip() + f"\n{cell}"
        name = f"In[{_number_of_cell(self.shell)}]"
        recorder = _started(arguments, given, name, self._written)
        if arguments.output is not None:
            self._written.add(os.path.realpath(arguments.output))
        self._live_cell = None
        if arguments.live:
            with _reported("the live view could not be started"):
                self._live_cell = LiveCell(os.path.abspath(arguments.output))
        try:
            value = self._value(codes, awaits, local_ns)
        except BaseException:
            # What the cell raised comes first, also where what follows is interrupted.
            self._start_traceback_at(codes[0].co_filename)
            with contextlib.suppress(KeyboardInterrupt):
                self._finish(recorder, arguments, *sys.exc_info())
            raise
        self._finish(recorder, arguments, None, None, None)
        return value

    def _arguments(self, line: str) -> Namespace:
        """Parse options, without the quotes of a path: IPython's own parser would keep them."""
        try:
            words = arg_split(line, posix=os.name != "nt")
        except ValueError as error:
            raise UsageError(f"{error}: {line}") from None
        arguments: Namespace = self.diag.parser.parse_args(words)
        return arguments

    def _start_traceback_at(self, file: str) -> None:
        """Show the traceback that comes next from the first line in a file on.

        Above it are the frames of IPython's call of the magic, with the whole cell in one line.
        """
        shell = self.shell
        before = shell.custom_exceptions, shell.CustomTB
        if issubclass(sys.exc_info()[0] or object, before[0]):
            return

        def restore(*result: object) -> None:
            shell.events.unregister("post_run_cell", restore)
            shell.custom_exceptions, shell.CustomTB = before

        def show(
            _: InteractiveShell,
            kind: type[BaseException],
            error: BaseException,
            traceback: TracebackType | None,
            **more: object,
        ) -> None:
            shell.custom_exceptions, shell.CustomTB = before
            first = traceback
            while first is not None and first.tb_frame.f_code.co_filename != file:
                first = first.tb_next
            shell.showtraceback((kind, error, first or traceback), tb_offset=0)

        shell.set_custom_exc((BaseException,), show)
        shell.events.register("post_run_cell", restore)

    def _temporary_file(self) -> str:
        """A file for a live view, which reads a file; it is removed with the kernel."""
        # Until the next one, for the page's link to the report.
        self._folder = TemporaryDirectory(prefix="dask-diag-", ignore_cleanup_errors=True)
        return os.path.join(self._folder.name, "cell.diag")

    def _value(self, codes: list[CodeType], awaits: bool, local_ns: Names | None) -> object:
        """Run a cell, and return the value of its last expression."""
        __tracebackhide__ = True
        names = self.shell.user_ns, local_ns
        if not awaits:
            value = None
            for code in codes:
                value = eval(code, *names)
            return value
        value, error = self.shell.loop_runner(_awaited(codes, *names))
        if error is not None:
            raise error
        return value

    def _compiled(self, cell: str) -> list[CodeType]:
        """Compile a cell as IPython does, with the last expression apart."""
        shell = self.shell
        # The cell's first line is the magic's.
        transformed = f"\n{shell.transform_cell(cell)}"
        name = shell.compile.cache(transformed, _number_of_cell(shell), raw_code=cell)
        tree = shell.transform_ast(shell.compile.ast_parse(transformed, filename=name))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        with shell.compile.extra_flags(ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if shell.autoawait else 0):
            codes = [shell.compile(tree, name, "exec")]
            if last is not None:
                codes.append(shell.compile(ast.Expression(last.value), name, "eval"))
        return codes

    def _finish(self, recorder: ProfilerGroup, arguments: Namespace, *ended_by: object) -> None:
        """End the recording and show it; a failure is a line, and the other steps still run."""
        from dask_diag.profilers.interrupts import DeferredInterrupts

        recording = None
        with DeferredInterrupts(ended_by[0]) as interrupts:
            with _reported("the recording could not be ended"):
                recorder.__exit__(*ended_by)
            # The recording may be large: a second Ctrl-C gives it up.
            interrupts.most = 2
            with _reported("the recording could not be made"):
                recording = self.shell.user_ns[arguments.name] = recorder.recording
            if self._live_cell is not None:
                with _reported("the live view could not be shown"):
                    self._live_cell.finish()
        if recording is None:
            return
        if not arguments.quiet:
            self._show_after_value(recording, arguments, ended_by[0] is not None)
        if arguments.html is not None:
            with _reported("the report could not be written"):
                from dask_diag.views.report.page import report

                page, arguments.page = arguments.page, ""
                report(recording, arguments.html, overwrite=True)
                arguments.page = page

    def _show_after_value(
        self, recording: Recording, arguments: Namespace, is_folded: bool
    ) -> None:
        """Show the summary below the value of the cell, or folded below the traceback."""

        def show(*result: object) -> None:
            from dask_diag.analysis.facts import Analysis
            from dask_diag.views.cell import make_summary
            from dask_diag.views.summary import summary_parts

            self.shell.events.unregister("post_run_cell", show)
            with _reported("the summary could not be shown"):
                parts = summary_parts(Analysis(recording), arguments.verbose)
                page = arguments.page
                display(make_summary(replace(parts, is_folded=is_folded, page=page)))

        self.shell.events.register("post_run_cell", show)
