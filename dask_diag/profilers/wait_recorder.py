"""Records what tasks waited for, while computations run: loaded if a profiler is to do it."""

from __future__ import annotations

from collections.abc import Callable

from dask_diag.capture.computation import Computation
from dask_diag.capture.sampling.linux_threads import why_not_here
from dask_diag.capture.sampling.probed_task import attach_probe
from dask_diag.capture.sampling.sampler import Subscription, sampler
from dask_diag.capture.sampling.wait_probe import WaitProbe

__all__ = ["WaitRecorder"]


class WaitRecorder:
    """Has the tasks of computations sampled by a `WaitProbe`.

    Parameters
    ----------
    failed : callable
        Called with an error of the sampler.

    Attributes
    ----------
    why_not : str
        Why waits are not recorded here, as of the last computation; empty if they are.
    """

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self.why_not = ""
        self._failed = failed
        self._subscriptions: dict[int, Subscription] = {}

    def probe(self) -> WaitProbe | None:
        """A probe, to measure what it costs; None where it cannot be used."""
        return None if why_not_here() else WaitProbe()

    def begin(self, computation: Computation) -> None:
        """Sample the tasks of a computation that starts."""
        self.why_not = why_not_here()
        if self.why_not:
            return
        probe = WaitProbe()
        attach_probe(computation, probe, self._failed)
        self._subscriptions[computation.number] = sampler.add(
            probe.sample, probe.interval, self._failed
        )

    def end(self, computation: Computation) -> None:
        """Stop; the computation has ended."""
        subscription = self._subscriptions.get(computation.number)
        if subscription is not None:
            sampler.remove(subscription)
            del self._subscriptions[computation.number]
