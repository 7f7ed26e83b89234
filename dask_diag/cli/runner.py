"""Run a Python program in this process, as ``python`` would.

``__main__`` is a real module and stays: its definitions can be pickled, found by other processes
(multiprocessing imports the module by path or name), and used until the end.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib.util
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, cast

import click

from dask_diag.cli.output import CommandFailure, one_line, reason

if TYPE_CHECKING:
    from importlib.abc import InspectLoader

    from dask_diag.profilers.interrupts import DeferredInterrupts


_OWN_MODULES = (
    "dask_diag.profilers.interrupts",
    "dask_diag.cli",
    "dask_diag.capture.task",
    "dask_diag.sampling.probes",
)
"""Modules whose frames a traceback would not have without dask_diag."""


def kind_of_program(module: bool, code: bool) -> str:
    """Kind of a program, by the options -m and -c."""
    if module and code:
        raise click.UsageError("use either -m or -c, not both")
    return "module" if module else "code" if code else "script"


class ProgramRunner:
    """A script, a module or code, with its arguments.

    Parameters
    ----------
    kind : {"script", "module", "code"}
    what : str
        Path, name or code.
    arguments : sequence of str
        ``sys.argv`` of the program, behind the name.

    Attributes
    ----------
    name : str
        Name for the recording.

    Raises
    ------
    CommandFailure
        If the program does not exist.
    """

    def __init__(self, kind: str, what: str, arguments: Sequence[str]) -> None:
        self._kind, self._what, self._arguments = kind, what, arguments
        self._path = what
        if kind == "script":
            if os.path.isdir(what):
                self._path = os.path.join(what, "__main__.py")
                if not os.path.exists(self._path):
                    raise CommandFailure(
                        f"cannot run {what}: it is a directory without __main__.py; name a script"
                    )
            _check_readable(self._path)

    @property
    def path(self) -> str | None:
        """File of a script."""
        return self._path if self._kind == "script" else None

    @property
    def name(self) -> str:
        """The name of the script without its ending, or of the module."""
        if self._kind == "script":
            return os.path.splitext(os.path.basename(os.path.abspath(self._what)))[0]
        return self._what if self._kind == "module" else "code"

    def limit_libraries(self) -> None:
        """Set the numbers of threads that the program sets before it imports libraries.

        NumPy's libraries read these variables when they are loaded. Profilers load them before the
        program runs, which would make it slower than it is.
        """
        if self._kind == "module":
            return
        with contextlib.suppress(OSError, SyntaxError, ValueError):
            source: str | bytes = self._what
            if self._kind == "script":
                with open(self._path, "rb") as file:
                    source = file.read()
            for name, value, replaces in _thread_numbers(ast.parse(source).body):
                if replaces or name not in os.environ:
                    os.environ[name] = value

    def prepare(self) -> None:
        """Set ``sys.argv`` and ``sys.path``, and find the module.

        Raises
        ------
        CommandFailure
            If the module does not exist.
        """
        sys.argv = [self._what if self._kind == "script" else f"-{self._kind[0]}", *self._arguments]
        if not getattr(sys.flags, "safe_path", False):
            first = {"script": os.path.dirname(os.path.realpath(self._path)), "module": os.getcwd()}
            sys.path[0] = first.get(self._kind, "")
        if self._kind == "module":
            self._spec = _spec_of(self._what)

    def run(self) -> None:
        """Run the prepared program as ``__main__``; its errors are raised."""
        main = ModuleType("__main__")
        main.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = main
        exec(getattr(self, f"_{self._kind}")(main), main.__dict__)

    def _script(self, main: ModuleType) -> CodeType:
        path = os.path.abspath(self._path)
        main.__file__ = path
        main.__loader__ = SourceFileLoader("__main__", path)
        with open(path, "rb") as file:
            return compile(file.read(), path, "exec", dont_inherit=True)

    def _code(self, main: ModuleType) -> CodeType:
        return compile(self._what, "<string>", "exec", dont_inherit=True)

    def _module(self, main: ModuleType) -> CodeType:
        spec = self._spec
        main.__spec__ = spec
        main.__loader__ = spec.loader
        main.__package__ = spec.parent
        if spec.origin is not None:
            main.__file__ = sys.argv[0] = spec.origin
        # `_spec_of` refuses modules without code.
        return cast("CodeType", cast("InspectLoader", spec.loader).get_code(spec.name))


def _thread_numbers(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str, bool]]:
    """Variables of numbers of threads, their values, and whether each replaces what is set.

    Only statements at the start count, such as ``os.environ["OMP_NUM_THREADS"] = "1"``, up to the
    first import from outside of the standard library.
    """
    for statement in body:
        match statement:
            case ast.Import(names=names):
                imported = [name.name for name in names]
            case ast.ImportFrom(module=module):
                imported = [module or ""]
            case _:
                imported = []
        if any(name.partition(".")[0] not in sys.stdlib_module_names for name in imported):
            return
        match statement:
            case ast.Assign(
                targets=[
                    ast.Subscript(
                        value=ast.Attribute(attr="environ") | ast.Name(id="environ"),
                        slice=ast.Constant(value=str(name)),
                    )
                ],
                value=ast.Constant(value=str(value)),
            ):
                replaces = True
            case ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(
                        value=ast.Attribute(attr="environ") | ast.Name(id="environ"),
                        attr="setdefault",
                    ),
                    args=[ast.Constant(value=str(name)), ast.Constant(value=str(value))],
                )
            ):
                replaces = False
            case _:
                continue
        if name.endswith("_NUM_THREADS"):
            yield name, value, replaces


def _check_readable(path: str) -> None:
    try:
        status = os.stat(path)
        if stat.S_ISREG(status.st_mode):
            with open(path, "rb"):
                return
        # Reading a pipe would empty it, and would wait for its writer.
        why = "it is not a regular file"
    except FileNotFoundError:
        why = "there is no such file"
    except (OSError, ValueError) as error:
        why = reason(error)
    raise CommandFailure(
        f"cannot run {one_line(path) or repr(path)}: {why}; name a script, or use -m for a module"
    )


def _spec_of(name: str) -> ModuleSpec:
    """The spec of a module, or of the ``__main__`` of a package."""
    shown = one_line(name) or repr(name)
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except Exception as error:
        # Packages are imported to look into them, and may raise anything.
        why = f"{type(error).__name__}: {error}"
        raise CommandFailure(f"cannot run the module {shown}: {one_line(why)}") from None
    if spec is None or not hasattr(spec.loader, "get_code"):
        raise CommandFailure(
            f"cannot run the module {shown}: there is none that can be run; install it, or name a "
            "script"
        )
    return spec


def print_as_python_does(error: BaseException) -> None:
    """Print the traceback of a program's error, without the frames that run it."""
    seen: set[int] = set()
    linked: BaseException | None = error
    while linked is not None and id(linked) not in seen:
        seen.add(id(linked))
        linked.__traceback__ = _without_own_frames(linked.__traceback__)
        linked = linked.__cause__ or linked.__context__
    sys.excepthook(type(error), error, error.__traceback__)


def _without_own_frames(traceback: TracebackType | None) -> TracebackType | None:
    steps = []
    while traceback is not None:
        steps.append(traceback)
        traceback = traceback.tb_next
    shortened: TracebackType | None = None
    for step in reversed(steps):
        name = str(step.tb_frame.f_globals.get("__name__", ""))
        if not name.startswith(_OWN_MODULES):
            # Instructions that the compiler added are on no line.
            line = step.tb_lineno or step.tb_frame.f_code.co_firstlineno
            shortened = TracebackType(shortened, step.tb_frame, step.tb_lasti, line)
    return shortened


def end_of(work: Callable[[], object], interrupts: DeferredInterrupts) -> BaseException | None:
    """Run work of the program, which Ctrl-C may interrupt; return the error that ended it."""
    try:
        try:
            interrupts.let_through()
            work()
        finally:
            interrupts.hold()
    except BaseException as error:
        # Another Ctrl-C may have come before interrupts were held.
        interrupts.hold()
        return error
    return None


def wait_for_threads(interrupts: DeferredInterrupts) -> None:
    """Wait for the program's threads as the interpreter does before it ends.

    The interpreter's own function first lets executors end their threads (a join alone would wait
    forever), and has nothing to wait for when the interpreter calls it again.
    """
    # Afterwards these cannot be imported, and the summary and the report may need them.
    importlib.import_module("concurrent.futures.thread")
    importlib.import_module("concurrent.futures.process")
    error = end_of(getattr(threading, "_shutdown", _join_threads), interrupts)
    if error is not None:
        # Ctrl-C ends the wait; the exit status stays.
        print_as_python_does(error)
        if sys.version_info >= (3, 15):
            own = vars(threading)
            own["_shutdown"] = partial(_end_wait, own["_shutdown"], error)


def _end_wait(wait: Callable[[], None], error: BaseException) -> None:
    """End the interpreter's own wait by an error that has been printed already.

    From Python 3.15 on, the interpreter waits again for threads that run, until an error.
    """
    hook = sys.unraisablehook

    def hear(unraisable: sys.UnraisableHookArgs) -> None:
        sys.unraisablehook = hook
        if unraisable.exc_value is not error:
            hook(unraisable)

    vars(threading)["_shutdown"] = wait
    sys.unraisablehook = hear
    raise error


def _join_threads() -> None:
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
