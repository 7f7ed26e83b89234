"""All profilers over one block, written to a file while it runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from dask_diag.capture.system.own_threads import OwnThread
from dask_diag.capture.worker_starts import runs_main_again
from dask_diag.profilers.deferred_interrupts import DeferredInterrupts
from dask_diag.profilers.group import ProfilerGroup
from dask_diag.profilers.result_metric import ResultMetric

if TYPE_CHECKING:
    from typing_extensions import Self

    from dask_diag.builders.chunks import ChunkBuilder
    from dask_diag.profilers.live_viewer import LiveViewer
    from dask_diag.storage import Writer

__all__ = ["record"]

_PERIOD = 0.8
"""Seconds from one writing to the next, so that with what it takes no more than one is lost."""
_SHORTEST_PAUSE = 0.3
_LONGEST_START = 5.0
"""Seconds that the end of a block waits for the viewer that it started."""


class record(ProfilerGroup):  # noqa: N801
    """Run all profilers over a block and write what they measure to a file meanwhile.

    If this process is killed, the file has all but at most the last second, with the tasks that ran
    and the results that were cached then; its `state` is ``truncated``.

    Parameters
    ----------
    path : str or os.PathLike
    overwrite : bool, optional
        Whether a file that is there may be replaced.
    interval : float, optional
        Seconds between samples of CPU and memory.
    waits : bool, optional
        Find out what tasks waited for, as `Profiler` does.
    metric, metric_name, unit : optional
        What `CacheProfiler` measures of each result, by default its bytes, where they are known at
        little cost.
    code : bool or str, optional
        Whether to note the code that calls, or a text to note in its place. Literals and comments
        that look like secrets are masked in it, if names or shapes show them.
    trace_memory : bool, optional
        Find out who allocated the memory that is in use at the peak, which slows down Python: see
        `MemorySampler`.
    live : bool, optional
        Start a viewer, in a process of its own, and print the address of its page on stderr: it
        shows the recording while it is made, to this user of this machine. The end of a short block
        waits until the address is printed.

    Raises
    ------
    RecordingFileError
        On entering, if the file cannot be written. What fails later is never raised, but is among
        the notices of `recording`.

    Notes
    -----
    On the main thread Ctrl-C does not interrupt entering and leaving: `KeyboardInterrupt` is raised
    when the file is closed, unless one ended the block already.

    Examples
    --------
    >>> import dask_diag
    >>> with dask_diag.record("run.diag") as run:       # doctest: +SKIP
    ...     array.compute(scheduler="threads")
    >>> run.summary()                                   # doctest: +SKIP
    >>> dask_diag.load("run.diag")                      # doctest: +SKIP
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        interval: float = 0.5,
        waits: bool = True,
        metric: ResultMetric | None = None,
        metric_name: str | None = None,
        unit: str | None = None,
        code: bool | str = True,
        trace_memory: bool = False,
        live: bool = False,
    ) -> None:
        super().__init__(
            interval=interval,
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
        from dask_diag.builders.recording import environment_table
        from dask_diag.storage import Writer

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
                self._chunks = self._chunk_builder()
                environment = environment_table(self._environment)
                # A reader can open it at once.
                self._writer.append(self._chunks.first(environment, self._notices_so_far()))
                self._start_thread()
                undo.callback(self._stop_thread)
                super()._start_tracing()
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

    def _start_tracing(self) -> None:
        """Not yet: first all that writes is imported."""

    def _start_viewer(self) -> None:
        from dask_diag.profilers.live_viewer import LiveViewer

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

    def _chunk_builder(self) -> ChunkBuilder:
        from dask_diag.builders.allocations import IncrementalAllocations
        from dask_diag.builders.chunks import ChunkBuilder
        from dask_diag.builders.incremental_resources import IncrementalResources
        from dask_diag.builders.incremental_stacks import IncrementalStacks
        from dask_diag.builders.incremental_tasks import IncrementalTasks
        from dask_diag.builders.progress import IncrementalProgress

        cache, sampling = self.cache, self.stacks
        tasks = IncrementalTasks(self.tasks.session, lambda: self.tasks.clusters.logs, cache)
        stacks = IncrementalStacks(
            sampling.session,
            sampling.stacks,
            lambda: sampling.is_active,
            lambda: sampling.clusters.logs,
        )
        return ChunkBuilder(
            [profiler.session for profiler in self.profilers],
            [
                tasks,
                IncrementalResources(self.resources.rows, lambda: self.resources.clusters.logs),
                stacks,
                IncrementalAllocations(self._allocated, self._with_code),
                # Last, so that the functions of tasks are known.
                IncrementalProgress(self.tasks.session),
            ],
            metric=cache.metric_name,
            metric_unit=cache.metric_unit,
        )

    def _run(self) -> None:
        """Write every now and then, until the block ends or writing fails."""
        pause = _PERIOD
        while not self._writing_failed and not self._stopping.wait(pause):
            start = perf_counter()
            self._write(self._flush)
            pause = max(_PERIOD - (perf_counter() - start), _SHORTEST_PAUSE)

    def _flush(self) -> None:
        """Write what is new."""
        self._writer.append(*self._chunks.take(self._notices_so_far()))

    def _flush_last(self) -> None:
        """Write the remainder."""
        self._writer.append(self._chunks.take_last(self._notices_so_far()))

    def _notices_so_far(self) -> list[str]:
        notices = [text for profiler in self.profilers for text in profiler.notices()]
        return [*notices, *self._faults]

    def _end(self) -> None:
        """Write the remainder; if writing failed before, write everything again."""
        from dask_diag.storage import save

        self._write(self._flush_last)
        self._write(self._writer.close)
        if self._writing_failed:
            self._writer.abandon()
            save(self.recording, self._target, overwrite=True)

    def _write(self, work: Callable[[], None]) -> None:
        """Do it, unless writing failed before; other faults do not keep the file from growing."""
        if self._writing_failed:
            return
        try:
            work()
        except Exception as error:
            self._writing_failed = True
            self._note_fault(f"what was measured could not all be written: {error}")
