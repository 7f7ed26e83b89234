"""Samples of the CPU and memory of a worker's process, and of those that it started."""

from __future__ import annotations

import asyncio
import threading
from array import array
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from dask_diag.capture.system.memory_limit import memory_limit
from dask_diag.capture.system.resource_sampler import ResourceRows, ResourceSampler

if TYPE_CHECKING:
    from distributed.worker import Worker

__all__ = ["WorkerProcesses", "memory_limit_of"]

_SECONDS_TO_SEND = 0.25

_lock = threading.Lock()
_of_this_process: list[WorkerProcesses] = []
"""Of the workers in this process the first samples it, as long as it is there."""


def memory_limit_of(worker: Worker) -> float:
    """Bytes that a worker may use: what distributed or the machine allows."""
    own = getattr(worker.memory_manager, "memory_limit", None) or inf
    return min(float(own), memory_limit())


class WorkerProcesses:
    """Samples the process of a worker, unless another worker of the same process does.

    All but sampling runs on the worker's event loop.

    Parameters
    ----------
    send : callable
        Called with new samples.
    fault : callable
        Called with what was done and the error: nothing is raised.
    """

    def __init__(
        self, send: Callable[[bytes], None], fault: Callable[[str, BaseException], None]
    ) -> None:
        self._send = send
        self._fault = fault
        self._rows = ResourceRows()
        self._dt = 0.0
        self._sampler: ResourceSampler | None = None
        self._sending: asyncio.Task[None] | None = None

    def sample_every(self, dt: float) -> None:
        """From now on sample so often, or not if it is 0."""
        if dt == self._dt:
            return
        self.stop()
        self._dt = dt
        if dt:
            with _lock:
                _of_this_process.append(self)
            self._sending = asyncio.ensure_future(self._send_regularly())

    def stop(self) -> None:
        """Sample no more, and send what was sampled."""
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        with _lock:
            if self in _of_this_process:
                _of_this_process.remove(self)
        self.flush()
        self._dt = 0.0

    def flush(self) -> None:
        """Take a last sample, send all, and go on if it is to."""
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.stop()
        self._send_new()
        self._start_if_first()

    async def _send_regularly(self) -> None:
        while True:
            # Another worker of this process may have left.
            self._start_if_first()
            await asyncio.sleep(max(self._dt, _SECONDS_TO_SEND))
            try:
                self._send_new()
            except Exception as error:
                self._failed(error)

    def _start_if_first(self) -> None:
        with _lock:
            is_first = bool(_of_this_process) and _of_this_process[0] is self
        if not is_first or self._sampler is not None:
            return
        try:
            self._sampler = ResourceSampler(self._dt, self._rows, self._failed)
        except Exception as error:
            self._failed(error)

    def _send_new(self) -> None:
        rows = self._rows.processes
        count = len(rows)
        if not count:
            return
        new: array[float] = rows[:count]
        # Samples are added on another thread, at the end.
        del rows[:count]
        del self._rows.samples[:]
        self._send(new.tobytes())

    def _failed(self, error: BaseException) -> None:
        self._fault("sampling processes", error)
