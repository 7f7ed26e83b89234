"""The base of all profilers: when they are active, their computations, and clusters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, ParamSpec

from dask_diag.capture.computation import Computation, ComputationSnapshot
from dask_diag.capture.session import Session
from dask_diag.cluster.recorder import ClusterRecorder
from dask_diag.errors import NotRegisteredError
from dask_diag.formatting import counted, seconds
from dask_diag.hooks.callbacks import (
    closed_clients,
    distributed_client,
    hold,
    release,
    sees_overlapping_computes,
)
from dask_diag.hooks.calls import returned_calls
from dask_diag.hooks.lines import why_no_lines
from dask_diag.profilers.engine import (
    Observer,
    end_left,
    is_over,
    rehearsal,
    seconds_per_task,
)
from dask_diag.system.periodic import take_cpu_of_own_threads

if TYPE_CHECKING:
    from typing_extensions import Self

    from dask_diag.cluster.log import ClusterLog
    from dask_diag.cluster.wire import Wants
    from dask_diag.model.recording import Recording
    from dask_diag.model.table import Table
    from dask_diag.sampling.probes import Probe
    from dask_diag.views.text import Summary


def short_text(
    owner: object, session: Session, *, is_active: bool = False, series: int | None = None
) -> str:
    """Class, amount and duration of a recording, in a line; never raises, and builds no table.

    Parameters
    ----------
    owner : object
        The profiler.
    session : Session
        Captured computations. Tasks of a cluster are not counted.
    is_active : bool, optional
        Whether its time goes on.
    series : int, optional
        Number of series of a sampler of memory.
    """
    name = type(owner).__name__
    try:
        facts = [counted(series, "series", "series")] if series is not None else _computed(session)
        if session.start is None:
            facts.append("not started")
        else:
            stop = perf_counter() if is_active or session.stop is None else session.stop
            facts.append(seconds(stop - session.start))
    except Exception:
        # A computation ends, and releases what it has, while it is read.
        facts = ["recording"]
    return f"<{name}: {', '.join(facts)}>"


def _computed(session: Session) -> list[str]:
    computations = tuple(session.computations)
    if not computations:
        return []
    tasks = sum(computation.tasks_done()[0] for computation in computations)
    return [f"{counted(tasks, 'task')} in {counted(len(computations), 'computation')}"]


P = ParamSpec("P")


class Diagnostic(Observer):
    """A callback that may be entered, registered, or both, any number of times over.

    While it is active, it joins every client of distributed in this process.

    Attributes
    ----------
    clusters : ClusterRecorder
    waits_for_clusters : bool
        Whether it is active only once clusters are joined; if not, others wait for that.
    start_time, end_time : float or None
        Start and last end of profiling, in seconds of ``time.perf_counter()``.
    """

    draws = "tasks"

    def __init__(self) -> None:
        self.session = Session()
        self.clusters = ClusterRecorder(self.fault, self._received)
        self.followers: list[Diagnostic] = []
        self.waits_for_clusters = True
        self._leader: Diagnostic | None = None
        self._results: list[Any] = []
        self._numbers_in_results: set[int] = set()
        self._entered = 0
        self._registered = False
        self._hooks: dict[str, float] = {}
        self._closed_clients = 0
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return short_text(self, self.session, is_active=self.is_active)

    @property
    def start_time(self) -> float | None:
        """Start of profiling, in seconds of ``time.perf_counter()``."""
        return self.session.start

    @start_time.setter
    def start_time(self, time: float | None) -> None:
        self.session.start = time

    @property
    def end_time(self) -> float | None:
        """Last end of profiling, in seconds of ``time.perf_counter()``."""
        return self.session.stop

    @end_time.setter
    def end_time(self, time: float | None) -> None:
        self.session.stop = time

    def __enter__(self) -> Self:
        with self._lock:
            if not self.is_active:
                self.clear()
                self._activate()
            self._entered += 1
        return self

    def __exit__(self, *args: object) -> None:
        try:
            end_left(is_over)
        finally:
            with self._lock:
                self._entered -= 1
                if not self.is_active:
                    self._deactivate()
                self.session.stop = perf_counter()

    async def __aenter__(self) -> Self:
        """Enter on the event loop of an asynchronous client."""
        self.__enter__()
        await self.clusters.joined()
        return self

    async def __aexit__(self, *args: object) -> None:
        """Leave, and wait until all is pulled from clusters."""
        self.__exit__(*args)
        await self.clusters.finish()

    def register(self) -> None:
        """Profile every computation of this process until `unregister` is called."""
        with self._lock:
            if not self.is_active:
                self._activate()
            self._registered = True

    def unregister(self) -> None:
        """Undo `register`. A block entered with ``with`` continues.

        Raises
        ------
        NotRegisteredError
            If the profiler is not registered. The error is also a KeyError.
        """
        end_left(is_over)
        with self._lock:
            if not self._registered:
                name = type(self).__name__
                raise NotRegisteredError(f"this {name} is not registered; call register() first")
            self._registered = False
            if not self.is_active:
                self._deactivate()
                self.session.stop = perf_counter()

    def clear(self) -> None:
        """Forget everything except running computations."""
        with self._lock:
            self.session.clear(perf_counter() if self.is_active else None)
            self._results = []
            self._numbers_in_results = set()
        if self._leader is None:
            self.clusters.clear()

    @property
    def results(self) -> list[Any]:
        """A namedtuple for each record of ended computations; made from the recording when read."""
        with self._lock:
            for computation in self.session.computations:
                snapshot = computation.finished
                if snapshot is None or computation.number in self._numbers_in_results:
                    continue
                results = self._results_of(snapshot)
                if results is not None:
                    self._results.extend(results)
                    self._numbers_in_results.add(computation.number)
            return self._results

    def _results_of(self, computation: ComputationSnapshot) -> list[Any] | None:
        """Results of a computation that has ended; None if they are incomplete."""
        return None

    @property
    def recording(self) -> Recording:
        """All measurements so far, as a frozen `Recording`."""
        raise NotImplementedError

    def summary(self) -> Summary:
        """Table of the measurements by function, for a terminal or a notebook.

        Returns
        -------
        Summary
            A string of at most 80 columns; an HTML table in a notebook.

        See Also
        --------
        dask_diag.summary : The same for several profilers over one block.
        """
        from dask_diag.views.summary import summary

        return summary(self)

    def visualize(self, **kwargs: Any) -> Any:
        """Draw the measurements with bokeh; the arguments are those of `dask_diag.visualize`."""
        from dask_diag.views.visualize import visualize

        return visualize(self, **kwargs)

    @property
    def is_active(self) -> bool:
        """Whether the profiler is entered or registered now."""
        return self._registered or self._entered > 0

    def _activate(self) -> None:
        if self.session.start is None:
            self.session.start = perf_counter()
            self._closed_clients = closed_clients()
        self.session.anchor()
        self._guarded("to calibrate its hooks", self._calibrate)
        returned_calls[id(self)] = self.session.calls
        if hold(self._callback):
            # What they used before is no cost of what is measured from now on.
            take_cpu_of_own_threads()
        if self._leader is None:
            self._guarded("to join clusters", self._join_clusters)

    def _deactivate(self) -> None:
        for text in why_no_lines() if self.session.computations else ():
            self.session.fault(text)
        if self._leader is None:
            self.leave_clusters()
        release(self._callback)
        returned_calls.pop(id(self), None)

    def note(self, text: str) -> None:
        """Show a sentence to the user."""
        self.session.fault(text)

    def fault(self, doing: str, error: BaseException) -> None:
        """Note an error of the diagnostic itself; the user's computation goes on."""
        text = f"{type(self).__name__} failed {doing}: {type(error).__name__}: {error}"
        self.session.fault(text)

    def notices(self) -> list[str]:
        """Sentences that a reader of the numbers should know."""
        notices = list(self.session.faults)
        client = distributed_client(self._closed_clients)
        if not self.session.computations and client and not self.clusters.logs:
            notices.append(
                f"no computation ran on dask's local schedulers: computations ran on {client}, "
                "which was not recorded"
            )
        if not sees_overlapping_computes():
            notices.append(
                "this version of dask exposes only the first of several overlapping computations; "
                "upgrade dask to record all of them"
            )
        if self.session.computations and self.is_active:
            notices += [text for text in why_no_lines() if text not in notices]
        logs = self.clusters.logs if self._leader is None else ()
        return notices + [text for log in logs for text in log.notices()]

    def _guarded(
        self, doing: str, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        try:
            work(*args, **kwargs)
        except Exception as error:
            self.fault(doing, error)

    def computation_starts(self, computation: Computation) -> None:
        """Begin a computation."""
        computation.hooks.update(self._hooks)
        with self._lock:
            # In one step: readers, and `clear`, find what a subclass has of it, too.
            self.session.computations.append(computation)
            self._began(computation)

    def computation_ended(self, computation: Computation) -> None:
        """Keep what a computation has published, which has ended for all profilers."""
        self.session.keep_end_of(computation)

    def _calibrate(self) -> None:
        """Measure the cost of the hooks for a task, by name, into `_hooks`."""
        if self.measures_tasks:
            self._hooks["tasks"] = seconds_per_task("tasks", rehearsal)

    def _calibrate_probe(self, name: str, probe: Probe) -> None:
        """Measure the cost of a probe for each task."""
        probed = seconds_per_task(name, partial(rehearsal, probe))
        self._hooks[name] = max(0.0, probed - self._hooks["tasks"])

    def _began(self, computation: Computation) -> None:
        """Start measuring a computation; the lock is held."""

    def follow(self, leader: Diagnostic) -> None:
        """Leave clusters to a leader, which pulls each row once for all.

        Parameters
        ----------
        leader : Diagnostic
            Is active whenever this profiler is.
        """
        self.clusters = leader.clusters
        leader.followers.append(self)
        self._leader = leader

    def _wants(self) -> Wants:
        """Return the measurements to make on clusters."""
        return {}

    def _received(self, log: ClusterLog) -> None:
        """Handle pulled rows, on the event loop of a client."""

    def _join_clusters(self) -> None:
        wants = self._wants()
        for follower in self.followers:
            wants.update(follower._wants())
        self.clusters.start(wants)
        if self.waits_for_clusters:
            self.clusters.wait()

    def leave_clusters(self) -> None:
        """Pull new rows and leave all clusters."""
        self._guarded("to leave clusters", self.clusters.stop)

    def _with_clusters(self, recording: Recording) -> Recording:
        """Add the rows of clusters to a recording of this process."""
        if not self.clusters.logs:
            return recording
        from dask_diag.cluster.tables import with_clusters

        self.clusters.pull()
        logs = self.clusters.logs
        return with_clusters(recording, logs, self._sampled_on_clusters(logs))

    def _sampled_on_clusters(self, logs: Sequence[ClusterLog]) -> dict[str, Table] | None:
        """Tables of samples from clusters; None if tasks are recorded there."""
        return None
