"""CPU of the other threads of a worker process: those of BLAS, or of another library's pool.

A worker process runs one task at a time. What its process used and the thread of that task did not
is that of others. To read this takes one clock, after each task; thread by thread it is read only
when enough has come together.
"""

from __future__ import annotations

from threading import get_ident
from time import process_time, thread_time

from dask_diag.capture.system.thread_usage import ThreadCpu, ThreadUsage

__all__ = ["WorkerThreads"]

_WORTH_READING = 0.05
"""CPU seconds of other threads after which each of them is read: as many are needed to look up the
library of native ones."""


class WorkerThreads:
    """What threads of this process use, besides the one that runs tasks, in one computation.

    Nothing is raised: an error is for `fault`, and nothing is known then.

    Attributes
    ----------
    fault : str
        An error of reading clocks, of any computation; empty if there was none.
    """

    __slots__ = ("_computation", "_others", "_usage", "fault")

    def __init__(self) -> None:
        self._computation = 0
        self._others = 0.0
        self._usage: ThreadUsage | None = None
        self.fault = ""

    def start(self, computation: int) -> None:
        """Count from now on, if this is the first task here of that computation."""
        if computation == self._computation:
            return
        self._computation, self._usage = computation, None
        try:
            self._usage, self._others = ThreadUsage(), _cpu_of_others()
        except Exception as error:
            self.fault = f"{type(error).__name__}: {error}"

    def threads(self) -> tuple[ThreadCpu, ...]:
        """What each has used since then; nothing if it is hardly more than was last returned."""
        others = _cpu_of_others()
        if self._usage is None or others - self._others < _WORTH_READING:
            return ()
        this, threads = get_ident(), []
        try:
            threads = [thread for thread in self._usage.threads() if thread.ident != this]
        except Exception as error:
            self.fault = f"{type(error).__name__}: {error}"
        if threads:
            self._others = others
        return tuple(threads)


def _cpu_of_others() -> float:
    """CPU seconds so far of all threads of this process but the one that asks."""
    return process_time() - thread_time()
