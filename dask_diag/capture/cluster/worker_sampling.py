"""What samples the tasks of a worker: their stacks, and what they wait for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dask_diag.capture.sampling.linux_threads import why_not_here
from dask_diag.capture.sampling.probes import Probe
from dask_diag.capture.sampling.sampler import Subscription, sampler
from dask_diag.capture.sampling.stack_probe import StackProbe, forget_code, keep_code
from dask_diag.capture.sampling.wait_probe import WaitProbe

__all__ = ["WorkerSampling"]


class WorkerSampling:
    """The probes of the tasks of one worker.

    Parameters
    ----------
    fault : callable
        Called with what was done and the error: nothing is raised.

    Attributes
    ----------
    probes : list
        Empty if nothing is sampled.
    """

    def __init__(self, fault: Callable[[str, BaseException], None]) -> None:
        self.probes: list[Probe] = []
        self._fault = fault
        self._subscriptions: list[Subscription] = []

    def change(self, stacks: Sequence[float], waits: bool) -> None:
        """From now on sample stacks, by interval and cycle if any, and waits, or none of them."""
        self.stop()
        probes: list[Probe] = []
        if stacks:
            probes.append(StackProbe(*stacks))
            keep_code()
        if waits:
            why_not = why_not_here()
            if why_not:
                self._fault("recording waits", RuntimeError(why_not))
            else:
                probes.append(WaitProbe())
        self._subscriptions = [
            sampler.add(probe.sample, probe.interval, self._failed) for probe in probes
        ]
        self.probes = probes

    def stop(self) -> None:
        """Sample nothing."""
        if any(isinstance(probe, StackProbe) for probe in self.probes):
            forget_code()
        self.probes = []
        for subscription in self._subscriptions:
            sampler.remove(subscription)
        self._subscriptions = []

    def _failed(self, error: BaseException) -> None:
        self._fault("sampling tasks", error)
