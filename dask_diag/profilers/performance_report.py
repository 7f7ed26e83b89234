"""A page about a block, as distributed makes one of its clusters."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from typing import TYPE_CHECKING

from dask_diag.capture.worker_starts import runs_main_again
from dask_diag.profilers.deferred_interrupts import DeferredInterrupts
from dask_diag.profilers.group import ProfilerGroup
from dask_diag.profilers.result_metric import ResultMetric

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["performance_report"]


class performance_report(ProfilerGroup):  # noqa: N801
    """Run all profilers over a block and write a page about it.

    The page needs no network. It shows findings first, then what was measured. It is written also
    if the block raises. If the report fails after the block has started, a warning says so; nothing
    is raised into the block.

    Parameters
    ----------
    filename : str or os.PathLike, optional
        The page to write. A file of that name is replaced.
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
    mode : str, optional
        ``"inline"``, the default, puts bokeh's own code into the page; ``"cdn"`` makes a small page
        that needs the network.

    Raises
    ------
    DiagnosticError
        On entering, if the page could not be written.

    Examples
    --------
    >>> from dask_diag import performance_report
    >>> with performance_report(filename="dask-report.html"):       # doctest: +SKIP
    ...     array.compute(scheduler="threads")
    """

    def __init__(
        self,
        filename: str | os.PathLike[str] = "dask-report.html",
        *,
        interval: float = 0.25,
        waits: bool = True,
        metric: ResultMetric | None = None,
        metric_name: str | None = None,
        unit: str | None = None,
        code: bool | str = True,
        trace_memory: bool = False,
        mode: str | None = None,
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
        self._filename = filename
        self._mode = mode

    def __enter__(self) -> Self:
        from dask_diag.atomic_files import as_path, check_writable

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
            _tell("performance_report: the page was not written: interrupted")
            raise
        except Exception as error:
            _tell(f"performance_report: the page could not be written: {error}")


def _tell(text: str) -> None:
    """Warn, also where warnings are errors: nothing is raised into the user's block."""
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=4)
    except Exception:
        # Without a stderr that can be written, nobody reads it.
        with contextlib.suppress(Exception):
            print(text, file=sys.stderr)  # noqa: T201
