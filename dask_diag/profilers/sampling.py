"""The statistical profiler: time by line of code, in tasks and between them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from math import inf, isfinite
from time import perf_counter
from typing import TYPE_CHECKING

from dask.utils import parse_timedelta

from dask_diag.capture.computation import Computation
from dask_diag.config import setting
from dask_diag.errors import DiagnosticError
from dask_diag.formatting import counted, seconds
from dask_diag.model.codes import PROFILING
from dask_diag.profilers.base import Diagnostic
from dask_diag.sampling.probes import attach_probe
from dask_diag.sampling.sampler import StandingSubscription
from dask_diag.sampling.stacks import StackProbe, forget_code, keep_code

if TYPE_CHECKING:
    from dask_diag.cluster.log import ClusterLog
    from dask_diag.cluster.wire import Wants
    from dask_diag.model.recording import Recording
    from dask_diag.model.table import Table
    from dask_diag.sampling.call_tree import Stacks
    from dask_diag.sampling.callers import CallerProbe
    from dask_diag.views.text import Summary


_SHORTEST = 1e-4


def sample_times(interval: str | float | None, cycle: str | float | None) -> tuple[float, float]:
    """Seconds between two samples, and of a cycle, which is no shorter by default.

    Raises
    ------
    DiagnosticError
        If a time cannot be understood, is shorter than 0.1 ms, or a given cycle is shorter than
        the interval.
    """
    between, cycle_seconds = _seconds("interval", interval), _seconds("cycle", cycle)
    if cycle is None:
        return between, max(cycle_seconds, between)
    if cycle_seconds < between:
        raise DiagnosticError(
            f"cycle: expected at least the interval of {between:g} s, found {cycle_seconds:g} s"
        )
    return between, cycle_seconds


def _seconds(name: str, value: str | float | None) -> float:
    """Seconds of a time given by the user or by dask's configuration."""
    where = name
    if value is None:
        where = f"diag.profile.{name} of dask's configuration"
        value = setting(f"diag.profile.{name}")
    message = (
        f"{where}: expected a time of at least 0.1 ms, such as '10ms' (a number is seconds), "
        f"found {value!r}"
    )
    try:
        seconds = float(parse_timedelta(value, default="s"))
    except Exception:
        raise DiagnosticError(message) from None
    if isinstance(value, bool) or not isfinite(seconds) or seconds < _SHORTEST:
        raise DiagnosticError(message)
    return seconds


class SamplingProfiler(Diagnostic):
    """Profile the lines of code in which tasks spend their time, on local schedulers and clusters.

    Every `interval`, one thread per process samples the stacks of the threads that run tasks. It
    also samples the thread that entered or registered the profiler, and other threads while they
    compute, so that imports, graph construction and dask's scheduler show as lines, each under its
    root: see `dask_diag.model.codes.ROOTS`.

    Samples are summed in cycles, so that a long computation needs no more memory than a short one.
    The seconds sum to those that the tasks took; time without samples is labeled. Tasks longer than
    a quarter of the cycle are tracked by key, shorter ones by function.

    Parameters
    ----------
    interval : str or float, optional
        Time between samples: text such as ``"10ms"``, or seconds. Default:
        ``diag.profile.interval`` of dask's configuration, which is 10 ms.
    cycle : str or float, optional
        Time over which samples are summed. Default: ``diag.profile.cycle`` of dask's configuration,
        which is 100 ms. Whenever there are 300 cycles, pairs of them are merged: a cycle then
        lasts twice as long, and tasks must last twice as long to be tracked by key.

    Attributes
    ----------
    recording : Recording
        Samples, in the tables ``frames``, ``call_tree`` and ``samples``.

    Raises
    ------
    DiagnosticError
        If a time cannot be understood or is shorter than 0.1 ms, or if the cycle is shorter than
        the interval.

    See Also
    --------
    hottest_lines : The lines with the most self time.
    call_tree : All sampled calls as a tree.

    Notes
    -----
    On a cluster the workers sample their tasks. Coroutines are not sampled, because they share a
    thread with their worker; their time counts as not sampled.

    Threads that a task starts are not sampled. Calls of dask_diag, and everything that they call,
    show as one line, ``(dask_diag)``. A function that is not written in Python shows as the line
    that calls it, or by name if dask calls it directly. Sampling needs the GIL: code that often
    releases the GIL is sampled slightly too often. While a call holds the GIL, nothing is sampled.
    The next sample represents all that time, unless the task has ended by then: such time counts as
    not sampled.

    Examples
    --------
    >>> from dask.threaded import get
    >>> from dask_diag import SamplingProfiler
    >>> with SamplingProfiler(interval="1ms") as sprof:
    ...     get({"total": (sum, range(2_000_000))}, "total")
    1999999000000
    >>> [row["name"] for row in sprof.tree(root="tasks").to_dicts()][:3]
    ['all', 'tasks', 'sum']
    """

    draws = "flame"
    measures_tasks = True

    def __init__(
        self, interval: str | float | None = None, cycle: str | float | None = None
    ) -> None:
        self._interval, self._cycle = sample_times(interval, cycle)
        self._probe = StackProbe(self._interval, self._cycle)
        self._failed = partial(self.fault, "to sample stacks")
        self._subscription = StandingSubscription(
            lambda: self.is_active, self._failed, self._forget_code
        )
        self._keeps_code = False
        self._callers: CallerProbe | None = None
        self.stacks = self._no_stacks()
        super().__init__()

    @property
    def recording(self) -> Recording:
        """All samples so far, with their computations."""
        from dask_diag.capture.build import build_recording, snapshots_tables
        from dask_diag.capture.stacks_table import stacks_tables

        self.clusters.pull()
        began = min((log.began for log in self.clusters.logs), default=inf)
        computations = self.session.snapshots()
        block = self.session.start, None if self.is_active else self.session.stop
        tables = {
            **snapshots_tables(computations),
            **stacks_tables(self.stacks, computations, *block, began),
        }
        return self._with_clusters(build_recording(self.session, self.notices(), tables))

    def tree(
        self,
        start: float | None = None,
        stop: float | None = None,
        function: str | None = None,
        key: object = None,
        root: str | None = None,
    ) -> Table:
        """Sampled calls as a tree.

        Parameters
        ----------
        start, stop : float, optional
            Range of time, in seconds of ``time.perf_counter()``. Default: all.
        function : str, optional
            Only tasks of this function, the prefix of their keys. Default: all.
        key : object, optional
            Only the task with this key, given as it is or as text; ``""`` for tasks not tracked by
            key. Default: all.
        root : str, optional
            Only samples of this root, one of `dask_diag.model.codes.ROOTS`. Default: all.

        Returns
        -------
        Table
            One row per node, with the columns of `dask_diag.call_tree`.

        Raises
        ------
        DiagnosticError
            If no sample has that key or function, the root does not exist, or a time is not a
            number.
        """
        from dask_diag.analysis.call_tree import Selection, call_tree

        return call_tree(self.recording, Selection(start, stop, function, key, root))

    def summary(
        self,
        start: float | None = None,
        stop: float | None = None,
        function: str | None = None,
        key: object = None,
        root: str | None = None,
    ) -> Summary:
        """The ten lines that computed longest and the three that waited longest.

        Parameters
        ----------
        start, stop, function, key, root : optional
            Selection of samples, as in `tree`. The default root is ``tasks``.

        Returns
        -------
        Summary
            A string of at most 80 columns; an HTML table in a notebook.

        See Also
        --------
        dask_diag.summary : Everything that several profilers measured over one block.
        """
        from dask_diag.analysis.call_tree import Selection
        from dask_diag.views.hottest import flame_summary

        return flame_summary(self, selection=Selection(start, stop, function, key, root))

    def export(
        self,
        path: str | os.PathLike[str],
        start: float | None = None,
        stop: float | None = None,
        function: str | None = None,
        key: object = None,
        *,
        root: str | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write the stacks to a file for flame graph viewers.

        Parameters
        ----------
        path : str or os.PathLike
            ``*.speedscope.json``, ``*.collapsed`` or ``*.folded``. The ending selects the format.
        start, stop, function, key, root : optional
            Selection of samples, as in `tree`.
        overwrite : bool, default False
            Replace an existing file.

        Raises
        ------
        DiagnosticError
            If the ending is unknown, the directory does not exist, the file exists and `overwrite`
            is false, or no sample is selected.
        """
        from dask_diag.analysis.call_tree import Selection
        from dask_diag.views.exports.stacks import export_stacks

        selection = Selection(start, stop, function, key, root)
        export_stacks(self.recording, path, selection, overwrite=overwrite)

    def _wants(self) -> Wants:
        return {"tasks": True, "stacks": [self._interval, self._cycle]}

    def _sampled_on_clusters(self, logs: Sequence[ClusterLog]) -> dict[str, Table]:
        from dask_diag.cluster.tasks_table import ClusterStacks

        stacks, now = ClusterStacks(self._cycle), perf_counter()
        stacks.take(logs)
        return stacks.tables(self.start_time or now, self.end_time or now)

    def clear(self) -> None:
        """Forget everything except running computations."""
        with self._lock:
            super().clear()
            if self.session.computations:
                self.stacks.forget(
                    min(computation.start for computation in self.session.computations)
                )
            else:
                self.stacks = self._no_stacks()
                if self._callers is not None:
                    self._callers.restart(self.stacks)

    def _activate(self) -> None:
        super()._activate()
        self._guarded("to sample the calling thread", self._sample_callers)

    def _sample_callers(self) -> None:
        from dask_diag.sampling.callers import CallerProbe

        failed = partial(self.fault, "to sample the calling thread")
        self._callers = CallerProbe(self._interval, self.session, self.stacks, failed)

    def _deactivate(self) -> None:
        callers, self._callers = self._callers, None
        try:
            if callers is not None:
                callers.stop()
            self._subscription.end_if_unused()
        finally:
            super()._deactivate()

    def _no_stacks(self) -> Stacks:
        from dask_diag.sampling.call_tree import Stacks

        return Stacks(self._cycle)

    def _calibrate(self) -> None:
        super()._calibrate()
        self._calibrate_probe("stacks", self._probe)

    def _began(self, computation: Computation) -> None:
        probe = self._probe
        other = computation.probes.get(StackProbe)
        if other is not None:
            probe = StackProbe(*map(min, zip(probe, other, strict=True)))
        computation.stacks += (self.stacks,)
        attach_probe(computation, probe, self._failed)
        if self._callers is not None:
            self._callers.begin(computation)
        self._subscription.begin(computation.number, probe.sample, probe.interval)
        if not self._keeps_code:
            self._keeps_code = True
            keep_code()

    def computation_ends(self, computation: Computation, failed: bool) -> None:
        """Stop sampling the tasks of a computation."""
        self._subscription.end(computation.number)

    def _forget_code(self) -> None:
        if self._keeps_code:
            self._keeps_code = False
            forget_code()

    def notices(self) -> list[str]:
        """Sentences that a reader of the numbers should know."""
        notices = super().notices()
        stacks = self.stacks
        if stacks.late:
            times = "once" if stacks.late == 1 else f"{stacks.late:,} times"
            notices.append(
                f"{PROFILING}SamplingProfiler was late {times} (longest gap "
                f"{seconds(stacks.longest_gap)}): a task held the GIL, or released and took it "
                "without pause, or the machine was busy. The next sample represents the gap; if "
                "the task had ended by then, the gap is shown as not sampled"
            )
        if stacks.cut:
            notices.append(
                "SamplingProfiler reached its limit of distinct stacks: the innermost calls of "
                f"{counted(stacks.cut, 'sample')} count for their callers"
            )
        return notices
