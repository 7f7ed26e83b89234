"""All profilers over one block: written to a file, or to a page."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, ParamSpec

from dask_diag.capture.results import ResultSizes
from dask_diag.capture.worker_starts import runs_main_again
from dask_diag.profilers.base import Diagnostic
from dask_diag.profilers.cache import CacheProfiler, ResultMetric
from dask_diag.profilers.interrupts import DeferredInterrupts
from dask_diag.profilers.profiler import Profiler
from dask_diag.profilers.resources import ResourceProfiler
from dask_diag.profilers.sampling import SamplingProfiler
from dask_diag.system.periodic import OwnThread

if TYPE_CHECKING:
    from typing_extensions import Self

    from dask_diag.analysis.findings.rule import Finding
    from dask_diag.capture.build import ChunkBuilder
    from dask_diag.model.recording import Recording
    from dask_diag.storage.write import Writer
    from dask_diag.system.allocations import AllocationSnapshot, AllocationTracer


P = ParamSpec("P")
_LONGEST_PAUSE = 0.5
"""Seconds between checks of the memory, where it is traced."""


class ProfilerGroup:
    """Runs all profilers over a block, and notes where.

    Parameters
    ----------
    resource_interval, waits, metric, metric_name, unit
        As the profilers have them; but results are measured in bytes by default: `ResultSizes`.
    code : bool or str
        Whether to note the code that calls, in which what looks like a secret is masked; or the
        code to note in its place, as that of a notebook's cell.
    trace_memory : bool
        Whether to trace who allocates, as `MemorySampler` does.

    Attributes
    ----------
    profilers : tuple of Diagnostic
    code_name : str
        Name of code that was given as text.
    """

    code_name = "as given"

    def __init__(
        self,
        *,
        resource_interval: float = 0.5,
        waits: bool = False,
        metric: ResultMetric | None = None,
        metric_name: str | None = None,
        unit: str | None = None,
        code: bool | str = True,
        trace_memory: bool = False,
    ) -> None:
        self.tasks = Profiler(waits)
        self.cache = CacheProfiler(ResultSizes() if metric is None else metric, metric_name, unit)
        self.resources = ResourceProfiler(resource_interval)
        self.stacks = SamplingProfiler()
        # Workers import this package meanwhile.
        self.tasks.waits_for_clusters = False
        for follower in (self.cache, self.resources, self.stacks):
            follower.follow(self.tasks)
        self.profilers: tuple[Diagnostic, ...] = (
            self.tasks,
            self.cache,
            self.resources,
            self.stacks,
        )
        self._code = code
        self._with_code = code is not False
        self._trace_memory = trace_memory
        self._tracer: AllocationTracer | None = None
        self._faults: list[str] = []
        self._environment: list[tuple[str, str, str]] = []
        self._entered: list[Diagnostic] = []
        self._pid = 0

    def __repr__(self) -> str:
        from dask_diag.profilers.base import short_text

        return short_text(self, self.tasks.session, is_active=self.tasks.is_active)

    def __enter__(self) -> Self:
        self._faults = []
        self._pid = os.getpid()
        self._entered = []
        self._guarded(self._note_environment)
        self._tracer = None
        for profiler in self.profilers:
            self._guarded(self._enter, profiler)
        self._begin_block()
        return self

    def __exit__(self, *args: object) -> None:
        if self._tracer is not None:
            self._guarded(self._tracer.stop)
        # While all are active, so that each has the last of what it wants.
        self._guarded(self.tasks.leave_clusters)
        for profiler in reversed(self._entered):
            self._guarded(profiler.__exit__, *args)

    def _begin_block(self) -> None:
        """Wait for clusters; and trace allocations, after all imports of the profilers."""
        if self.tasks.clusters.sessions:
            # For the end of the block: workers import their side meanwhile.
            import dask_diag.cluster.tables  # noqa: F401
        self._guarded(self.tasks.clusters.wait)
        if self._trace_memory:
            self._guarded(self._start_tracer)

    def _start_tracer(self) -> None:
        from dask_diag.system.allocations import AllocationTracer

        self._tracer = AllocationTracer(_LONGEST_PAUSE, self._tracing_failed)

    def _tracing_failed(self, error: Exception) -> None:
        self._faults.append(f"{type(self).__name__} failed to trace allocations: {error}")

    def _allocated(self) -> AllocationSnapshot | None:
        """Last snapshot of allocations; None if they are not traced."""
        return None if self._tracer is None else self._tracer.last

    async def __aenter__(self) -> Self:
        """Enter on the event loop of an asynchronous client."""
        self.__enter__()
        await self.tasks.clusters.joined()
        return self

    async def __aexit__(self, *args: object) -> None:
        """Wait until all is pulled from clusters, and leave."""
        try:
            await self.tasks.clusters.finish()
        finally:
            self.__exit__(*args)

    def _enter(self, profiler: Diagnostic) -> None:
        profiler.__enter__()
        self._entered.append(profiler)

    def _is_left_to_parent(self) -> bool:
        """Whether the parent process has entered the block, too, and records it.

        It was forked in the block, or is a worker that runs the main module again as it starts.
        """
        return os.getpid() != self._pid

    @property
    def faults(self) -> tuple[str, ...]:
        """Errors of profilers and of writing; they are also notices of `recording`."""
        return tuple(self._faults)

    @property
    def recording(self) -> Recording:
        """All measurements so far."""
        from dask_diag.capture.build import environment_table

        self.tasks.clusters.pull()
        environment = environment_table(self._environment)
        chunks = self._chunk_builder(lambda: False)
        return chunks.take_last(self._notices_so_far(), environment=environment)

    def _chunk_builder(self, goes_on: Callable[[], bool]) -> ChunkBuilder:
        from dask_diag.capture.build import ChunkBuilder
        from dask_diag.capture.increments import ResourceTables, StackTables, TaskTables
        from dask_diag.capture.results_table import AllocationTables

        clusters, cache, sampling = self.tasks.clusters, self.cache, self.stacks
        return ChunkBuilder(
            [profiler.session for profiler in self.profilers],
            [
                TaskTables(self.tasks.session, lambda: clusters.logs, cache, self._with_code),
                ResourceTables(self.resources.rows, lambda: clusters.logs),
                StackTables(
                    sampling.session,
                    sampling.stacks,
                    goes_on,
                    lambda: clusters.logs,
                ),
                AllocationTables(self._allocated, self._with_code),
            ],
            metric=cache.metric_name,
            metric_unit=cache.metric_unit,
        )

    def _notices_so_far(self) -> list[str]:
        notices = [text for profiler in self.profilers for text in profiler.notices()]
        return [*notices, *self._faults]

    def summary(self, *, verbose: bool = False, by: str = "function") -> str:
        """Table of the measurements, for a terminal or a notebook: see `dask_diag.summary`."""
        return self.recording.summary(verbose=verbose, by=by)

    def findings(self) -> list[Finding]:
        """Causes of lost time, the worst first: see `dask_diag.findings`."""
        return self.recording.findings()

    def report(
        self,
        path: str | os.PathLike[str] = "dask-report.html",
        mode: str | None = None,
        *,
        overwrite: bool = False,
    ) -> Path:
        """Write a report about the block: see `dask_diag.report`."""
        return self.recording.report(path, mode, overwrite=overwrite)

    def _note_environment(self) -> None:
        from dask_diag.system.environment import calling_code, environment, given_code

        self._environment = environment()
        if isinstance(self._code, str):
            self._environment += given_code(self._code, self.code_name)
        elif self._code:
            self._environment += calling_code(sys._getframe())

    def _guarded(self, work: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call, and record an error to show later: the user's computation comes first."""
        try:
            work(*args, **kwargs)
        except Exception as error:
            self._note_fault(f"some measurements are missing: {error}")

    def _note_fault(self, text: str) -> None:
        fault = f"{type(self).__name__}: {text}"
        if fault not in self._faults:
            self._faults.append(fault)


_NOT_STARTED = "dask-diag: the live view could not be started"


class LiveViewer:
    """A process that shows a recording; its address is printed once it listens.

    It has its own session, so that Ctrl-C in the terminal and the program's end do not end it, and
    reads the file alone: nothing connects it with the program.

    Parameters
    ----------
    path : str
    opens_browser : bool, optional
        Whether it opens a browser, if there is a display.
    report : callable, optional
        Prints lines.
    """

    def __init__(
        self,
        path: str,
        *,
        opens_browser: bool = False,
        report: Callable[[str], object] | None = None,
    ) -> None:
        self._report = report or _print_on_stderr
        options = [] if opens_browser else ["--no-browser"]
        command = [sys.executable, "-m", "dask_diag", "live", "--child", *options]
        self.addresses = ""
        self._process = subprocess.Popen(
            [*command, os.path.abspath(path)],
            stdin=subprocess.DEVNULL,
            # Not the program's: who reads these would wait for the viewer's end, too.
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Modules beside the program must not take the place of others.
            cwd=os.path.abspath(os.sep),
            start_new_session=True,
        )
        self._thread = OwnThread("live", self._run)
        self._thread.start()

    def wait_for_address(self, seconds: float) -> None:
        """Wait until the address is printed, but not for long."""
        self._thread.join(seconds)

    def _run(self) -> None:
        # The process started here ends at once. The viewer goes on without it, and closes its
        # stdout once it listens.
        text = self._process.communicate()[0]
        self.addresses = text.decode("utf-8", "replace").strip()
        self._report(self.addresses or _NOT_STARTED)


def _print_on_stderr(text: str) -> None:
    # A program may have closed it, or put anything in its place.
    with contextlib.suppress(Exception):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


_PERIOD = 0.8
"""Seconds from one writing to the next, so that with what it takes no more than one is lost."""
_SHORTEST_PAUSE = 0.3
_LONGEST_START = 5.0
"""Seconds that the end of a block waits for the viewer that it started."""


class record(ProfilerGroup):  # noqa: N801
    """Run all profilers over a block and write the measurements to a file during the block.

    If the process is killed, the file lacks at most the last second. It contains the tasks that ran
    and the results that were cached at the last write; its `state` is ``truncated``.

    Parameters
    ----------
    path : str or os.PathLike
        Recording file to write, such as ``"run.diag"``.
    overwrite : bool, default False
        Replace an existing file.
    resource_interval : float, default 0.5
        Seconds between samples of CPU and memory.
    waits : bool, default True
        Record why tasks were off the CPU, as `Profiler` does.
    metric : callable, optional
        Measures each result, as in `CacheProfiler`. Default: bytes, where they are cheap to
        determine.
    metric_name, unit : str, optional
        Name and unit of `metric`. Defaults: as in `CacheProfiler`.
    code : bool or str, default True
        Record the calling code (True), omit it (False), or store this text instead. Literals and
        comments that look like secrets are masked.
    trace_memory : bool, default False
        Record which functions and lines allocated the memory in use at the peak. Slows Python down:
        see `MemorySampler`.
    live : bool, default False
        Start a live view in a separate process and print its address on stderr. Only the same user
        on the same machine can open it. A short block ends only after the address is printed.

    Attributes
    ----------
    recording : Recording
        All measurements so far.
    faults : tuple of str
        Errors of profilers and of writing; they are also notices of `recording`.

    Raises
    ------
    RecordingFileError
        On entering, if the file cannot be written. Later failures are never raised; they become
        notices of `recording`.

    See Also
    --------
    performance_report : Writes a report instead of a recording file.

    Notes
    -----
    On the main thread, Ctrl-C does not interrupt entering and leaving the block:
    `KeyboardInterrupt` is raised after the file is closed, unless one has already ended the block.

    With an asynchronous client of distributed, use ``async with``.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_diag import load, record
    >>> with record("run.diag") as run:
    ...     total = da.ones((500, 500), chunks=(250, 250)).sum().compute()
    >>> print(run.summary())        # doctest: +SKIP
    >>> load("run.diag").state
    'complete'
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        resource_interval: float = 0.5,
        waits: bool = True,
        metric: ResultMetric | None = None,
        metric_name: str | None = None,
        unit: str | None = None,
        code: bool | str = True,
        trace_memory: bool = False,
        live: bool = False,
    ) -> None:
        super().__init__(
            resource_interval=resource_interval,
            waits=waits,
            metric=metric,
            metric_name=metric_name,
            unit=unit,
            code=code,
            trace_memory=trace_memory,
        )
        self._path = path
        self._overwrite = overwrite
        self._live = live
        self.viewer: LiveViewer | None = None
        self._stopping = threading.Event()
        self._writing_failed = False
        self._chunks: ChunkBuilder
        self._target: Path
        self._writer: Writer

    def __enter__(self) -> Self:
        from dask_diag.capture.build import environment_table
        from dask_diag.storage.write import Writer

        self._writing_failed = False
        if runs_main_again():
            return self
        with ExitStack() as undo:
            with DeferredInterrupts():
                self._writer = Writer(self._path, overwrite=self._overwrite)
                undo.callback(self._writer.close)
                # Where it is now: the block may go elsewhere.
                self._target = Path(self._path).absolute()
                super().__enter__()
                undo.push(super().__exit__)
                self._chunks = self._chunk_builder(lambda: self.stacks.is_active)
                environment = environment_table(self._environment)
                # A reader can open it at once.
                self._writer.append(self._chunks.first(environment, self._notices_so_far()))
                self._start_thread()
                undo.callback(self._stop_thread)
                super()._begin_block()
            undo.pop_all()
        if self._live:
            self._guarded(self._start_viewer)
        return self

    def __exit__(self, *args: object) -> None:
        if self._is_left_to_parent():
            return
        with DeferredInterrupts(args[0] if args else None):
            self._stop_thread()
            super().__exit__(*args)
            self._guarded(self._end)
            del self._chunks
        if self._live:
            self._guarded(self._wait_for_viewer)

    def _begin_block(self) -> None:
        """Do nothing yet: first the writer is imported."""

    def _start_viewer(self) -> None:

        self.viewer = LiveViewer(os.fspath(self._path))

    def _wait_for_viewer(self) -> None:
        """The address of a short block would be printed too late, or never."""
        if self.viewer is not None:
            self.viewer.wait_for_address(_LONGEST_START)

    def _start_thread(self) -> None:
        self._stopping.clear()
        self._thread = OwnThread("record", self._run)
        self._thread.start()

    def _stop_thread(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        """Write every now and then, until the block ends or writing fails."""
        pause = _PERIOD
        while not self._writing_failed and not self._stopping.wait(pause):
            start = perf_counter()
            self._write(self._flush)
            pause = max(_PERIOD - (perf_counter() - start), _SHORTEST_PAUSE)

    def _flush(self) -> None:
        """Write new rows."""
        self._writer.append(*self._chunks.take(self._notices_so_far()))

    def _flush_last(self) -> None:
        """Write the remainder."""
        self._writer.append(self._chunks.take_last(self._notices_so_far()))

    def _end(self) -> None:
        """Write the remainder; if writing failed before, write everything again."""
        from dask_diag.storage.write import save

        self._write(self._flush_last)
        self._write(self._writer.close)
        if self._writing_failed:
            self._writer.abandon()
            save(self.recording, self._target, overwrite=True)

    def _write(self, work: Callable[[], None]) -> None:
        """Call, unless writing failed before; other faults do not stop the file from growing."""
        if self._writing_failed:
            return
        try:
            work()
        except Exception as error:
            self._writing_failed = True
            self._note_fault(f"not everything could be written: {error}")


class performance_report(ProfilerGroup):  # noqa: N801
    """Run all profilers over a block and write a report about the block.

    The report is one HTML page, which shows findings first and needs no network. It is written even
    if the block raises. If the report fails after the block has started, a warning says so; nothing
    is raised into the block.

    Parameters
    ----------
    filename : str or os.PathLike, default "dask-report.html"
        Page to write. An existing file is replaced.
    resource_interval : float, default 0.5
        Seconds between samples of CPU and memory.
    waits : bool, default True
        Record why tasks were off the CPU, as `Profiler` does.
    metric : callable, optional
        Measures each result, as in `CacheProfiler`. Default: bytes, where they are cheap to
        determine.
    metric_name, unit : str, optional
        Name and unit of `metric`. Defaults: as in `CacheProfiler`.
    code : bool or str, default True
        Record the calling code (True), omit it (False), or store this text instead. Literals and
        comments that look like secrets are masked.
    trace_memory : bool, default False
        Record which functions and lines allocated the memory in use at the peak. Slows Python down:
        see `MemorySampler`.
    mode : {"inline", "cdn"}, default "inline"
        ``"inline"`` puts bokeh's code into the page; ``"cdn"`` makes a small page that needs the
        network.

    Raises
    ------
    DiagnosticError
        On entering, if the page cannot be written.

    See Also
    --------
    record : Writes a recording file, from which `report` makes the same page.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_diag import performance_report
    >>> with performance_report(filename="dask-report.html"):
    ...     total = da.ones((500, 500), chunks=(250, 250)).sum().compute()
    """

    def __init__(
        self,
        filename: str | os.PathLike[str] = "dask-report.html",
        *,
        resource_interval: float = 0.5,
        waits: bool = True,
        metric: ResultMetric | None = None,
        metric_name: str | None = None,
        unit: str | None = None,
        code: bool | str = True,
        trace_memory: bool = False,
        mode: str | None = None,
    ) -> None:
        super().__init__(
            resource_interval=resource_interval,
            waits=waits,
            metric=metric,
            metric_name=metric_name,
            unit=unit,
            code=code,
            trace_memory=trace_memory,
        )
        self._filename = filename
        self._mode = mode

    def __enter__(self) -> Self:
        from dask_diag.files import as_path, check_writable

        if runs_main_again():
            return self
        # Where it is now: the block may go elsewhere.
        self._path = as_path(self._filename, "filename").absolute()
        check_writable(self._path)
        return super().__enter__()

    def __exit__(self, *args: object) -> None:
        if self._is_left_to_parent():
            return
        with DeferredInterrupts(args[0] if args else None) as interrupts:
            super().__exit__(*args)
            # A page may take long: who presses Ctrl-C again does not want it.
            interrupts.most = 2
            self._write()

    def _write(self) -> None:
        try:
            from dask_diag.views.report.page import report

            report(self.recording, self._path, mode=self._mode)
        except KeyboardInterrupt:
            _tell("performance_report: the report was not written: interrupted")
            raise
        except Exception as error:
            _tell(f"performance_report: the report could not be written: {error}")


def _tell(text: str) -> None:
    """Warn, also where warnings are errors: nothing is raised into the user's block."""
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=4)
    except Exception:
        # Without a stderr that can be written, nobody reads it.
        with contextlib.suppress(Exception):
            print(text, file=sys.stderr)  # noqa: T201
