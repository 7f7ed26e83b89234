"""All profilers over one block, written to a file as they go."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from time import perf_counter
from typing import TYPE_CHECKING, Any

from dask_diag.profilers.deferred_interrupts import DeferredInterrupts
from dask_diag.profilers.group import ProfilerGroup

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["record"]

_PERIOD = 0.8
"""Seconds from one writing to the next, so that with what it takes no more than one is lost."""
_SHORTEST_PAUSE = 0.3


class record(ProfilerGroup):  # noqa: N801
    """Run all profilers over a block and write what they measure to a file as it goes.

    If this process is killed, the file has all but at most the last second, with the tasks that ran
    and the results that were held then; its `state` is ``truncated``.

    Parameters
    ----------
    path : str or os.PathLike
    overwrite : bool, optional
        Whether a file that is there may be replaced.
    dt : float, optional
        Seconds between samples of CPU and memory.
    explain : bool, optional
        Find out what tasks waited for, as `Profiler` does.
    metric, metric_name, unit : optional
        What `CacheProfiler` measures of each result, by default its bytes (``cachey.nbytes``).

    Raises
    ------
    RecordingFileError
        On entering, if the file cannot be written. What fails later is never raised: `recording`
        tells it in its notices.

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

    _failed = "what was measured could not all be written"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        dt: float = 0.5,
        explain: bool = False,
        metric: Any = None,
        metric_name: str | None = None,
        unit: str | None = None,
    ) -> None:
        super().__init__(dt=dt, explain=explain, metric=metric, metric_name=metric_name, unit=unit)
        self._path = path
        self._overwrite = overwrite
        self._stopping = threading.Event()
        self._streams: list[Any] = []
        self._writer: Any = None

    def __enter__(self) -> Self:
        from dask_diag.builders.incremental import without_rows
        from dask_diag.storage import Writer

        with ExitStack() as undo:
            with DeferredInterrupts():
                self._writer = Writer(self._path, overwrite=self._overwrite)
                undo.callback(self._writer.close)
                super().__enter__()
                undo.push(super().__exit__)
                # Opened at once by whoever looks, and with the columns of tables that stay empty.
                self._writer.append(without_rows(self.recording))
                self._streams = self._streams_of_profilers()
                self._start_thread()
                undo.callback(self._stop_thread)
            undo.pop_all()
        return self

    def __exit__(self, *args: object) -> None:
        if self._is_of_parent():
            return
        with DeferredInterrupts(args[0] if args else None):
            self._stop_thread()
            super().__exit__(*args)
            self._guarded(self._end)
            self._streams = []

    def _start_thread(self) -> None:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="dask_diag-record", daemon=True)
        self._thread.start()

    def _stop_thread(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _streams_of_profilers(self) -> list[Any]:
        from dask_diag.builders.incremental import IncrementalCachedResults, IncrementalResources
        from dask_diag.builders.incremental_stacks import IncrementalStacks
        from dask_diag.builders.incremental_tasks import IncrementalTasks

        tasks = IncrementalTasks(self.tasks)
        return [
            tasks,
            IncrementalCachedResults(self.cache, tasks.columns_of_keys),
            IncrementalResources(self.resources),
            IncrementalStacks(self.stacks),
        ]

    def _run(self) -> None:
        """Write every now and then, until the block ends or writing fails."""
        pause = _PERIOD
        while not self._faults and not self._stopping.wait(pause):
            begun = perf_counter()
            self._guarded(self._flush)
            pause = max(_PERIOD - (perf_counter() - begun), _SHORTEST_PAUSE)

    def _flush(self, last: bool = False) -> None:
        """Write what is new."""
        from dask_diag.builders.incremental import part_of
        from dask_diag.model.table import stack

        new: dict[str, Any] = {}
        so_far: dict[str, Any] = {}
        for stream in self._streams:
            for tables, taken in zip((new, so_far), stream.take(), strict=True):
                tables.update(taken)
        if last:
            new |= {
                name: stack([new[name], table]) if name in new else table
                for name, table in so_far.items()
            }
        parts = [part_of(self.profilers, tables, self._faults) for tables in (new, so_far)]
        self._writer.append(parts[0], None if last else parts[1])

    def _end(self) -> None:
        """Write what is left; if writing failed before, all of it anew."""
        if not self._faults:
            self._guarded(self._flush, True)
        if not self._faults:
            self._guarded(self._writer.close)
        if self._faults:
            self._writer.abandon()
            self.recording.save(self._path, overwrite=True)
