"""``%load_ext dask_diag``: the cell magic ``%%diag``."""

from __future__ import annotations

import ast
from typing import Any

import click
from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class, needs_local_scope
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display

from dask_diag.cli.telling import check_free
from dask_diag.errors import DiagnosticError

__all__ = ["DiagMagics"]

_NAME = "_diag"


def _started(arguments: Any) -> Any:
    from dask_diag.capture.all_profilers import AllProfilers
    from dask_diag.capture.record import record

    try:
        check_free(arguments.output, arguments.force)
        check_free(arguments.report, arguments.force, arguments.output)
        options = {"dt": arguments.interval, "explain": arguments.explain}
        if arguments.output is None:
            return AllProfilers(**options).__enter__()
        return record(arguments.output, overwrite=arguments.force, **options).__enter__()
    except (click.ClickException, DiagnosticError, ValueError, TypeError) as error:
        told = error.message if isinstance(error, click.ClickException) else str(error)
        raise UsageError(told) from None


@magics_class
class DiagMagics(Magics):
    """The cell magic ``%%diag``."""

    @cell_magic
    @magic_arguments()
    @argument("name", nargs="?", default=_NAME, help="the variable that gets the recording")
    @argument("-o", "--output", help="write the recording to this file as it goes")
    @argument("--report", help="write a page about it to this file")
    @argument("-f", "--force", action="store_true", help="replace files that are there")
    @argument("--explain", action="store_true", help="find out what tasks waited for (Linux)")
    @argument("--interval", type=float, default=0.5, help="seconds between samples, 0.5")
    @argument("--no-plots", action="store_true", help="show the summary alone")
    @argument("-q", "--quiet", action="store_true", help="show nothing")
    @needs_local_scope
    def diag(self, line: str, cell: str, local_ns: Any = None) -> Any:
        """Record all that a cell computes on Dask's local schedulers, and show it.

        The value of the cell's last expression is shown as without it.
        """
        # What the cell raises is shown without this frame.
        __tracebackhide__ = True
        arguments = parse_argstring(self.diag, line)
        if not arguments.name.isidentifier():
            raise UsageError(f"expected the name of a variable, found {arguments.name!r}")
        recorder = _started(arguments)
        try:
            return self._value_of(cell, local_ns)
        finally:
            recorder.__exit__()
            self._show(recorder, arguments)

    def _value_of(self, cell: str, local_ns: Any) -> Any:
        """Run a cell as IPython does, and return what its last expression is."""
        __tracebackhide__ = True
        shell = self.shell
        transformed = shell.transform_cell(cell)
        name = shell.compile.cache(transformed, raw_code=cell)
        tree = shell.transform_ast(shell.compile.ast_parse(transformed, filename=name))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(shell.compile(tree, name, "exec"), shell.user_ns, local_ns)
        if last is None:
            return None
        return eval(
            shell.compile(ast.Expression(last.value), name, "eval"), shell.user_ns, local_ns
        )

    def _show(self, recorder: Any, arguments: Any) -> None:
        from dask_diag.views.page import visualize
        from dask_diag.views.report.page import report

        recording = recorder.recording
        self.shell.user_ns[arguments.name] = recording
        if not arguments.quiet:
            display(recorder.summary())
        plots = not (arguments.quiet or arguments.no_plots) and len(recording.computes) > 0
        if plots:
            visualize(recording, show=True, save=False)
        if arguments.report:
            report(recording, arguments.report)
