"""The progress bar."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, TextIO

from dask_diag.capture.computation import Computation
from dask_diag.profilers.bar_line import Bar, bar_line, fitted
from dask_diag.profilers.cluster_bars import ClusterBars, ClusterProgress
from dask_diag.profilers.cpu_share import CpuShare
from dask_diag.profilers.on_clusters import OnClusters
from dask_diag.profilers.progress_output import Place, ProgressOutput
from dask_diag.profilers.task_diagnostic import TaskDiagnostic
from dask_diag.profilers.timer import Timer
from dask_diag.profilers.users_bar import UsersBar
from dask_diag.validation import number

if TYPE_CHECKING:
    from dask_diag.capture.cluster.log import ClusterLog
    from dask_diag.capture.cluster.messages import Wants
    from dask_diag.model.recording import Recording

__all__ = ["ProgressBar"]

_LINES_IN_A_FILE = 10
_SECONDS_WITHOUT_LINES = 1.0
_SHORTEST_UPDATE = 0.001


class _Shown:
    """What was shown last in a file, where whole lines are written.

    Attributes
    ----------
    tenths : int
    at : float
    """

    __slots__ = ("at", "tenths")

    def __init__(self, at: float) -> None:
        self.tenths = 0
        self.at = at


class _Running:
    """A computation of this process that has a bar."""

    def __init__(self, computation: Computation, name: str) -> None:
        self.computation = computation
        self.name = name
        self.share = CpuShare(computation)
        self.shown = _Shown(computation.start)

    def state(self, now: float) -> Bar:
        """How far it is."""
        elapsed = now - self.computation.start
        return Bar(*self.computation.tasks_done(), elapsed, self.share.read())


class ProgressBar(OnClusters, TaskDiagnostic):
    """Show how far each computation is, and how much of its tasks' time is CPU time.

    Parameters
    ----------
    minimum : float, optional
        Seconds that a computation must take before anything is shown.
    width : int, optional
        Width of the bar in characters.
    dt : float, optional
        Seconds between updates.
    out : file, optional
        Where to write; by default whatever ``sys.stdout`` is when a line is drawn.
    label : str, optional
        Shown before the bar.
    bar : tqdm or rich.progress.Progress, optional
        A bar of yours to show it in; `width` and `out` are then not used.

    Attributes
    ----------
    last_duration : float
        Seconds that the computation which ended last took.

    Notes
    -----
    On a terminal and in a notebook one line is drawn over and over. On anything else, a log file
    for one, whole lines are written, one for each tenth that is done and not more often than `dt`;
    a computation of less than a second has one line.

    While a computation runs the line has the tasks that are done and all of them, and the seconds
    that have passed. From a second and a twentieth of the tasks on it has about how many are left,
    if tasks take as long as those before. The last field is the CPU share (thread CPU seconds of
    the tasks that are done, of their wall seconds), then which computation it is where there are
    several. At its end the line is dask's, with the CPU share, and whether it failed.

    On a client of distributed the bar is drawn by the client's own event loop, about twice a second
    and when a computation ends: no thread is started. A computation lasts from when the client
    submits tasks while it has none until all are done: a burst of ``submit`` has one bar.

    A bar of tqdm or rich starts again with each computation; those that overlap are added up in it.
    It has the CPU share as tqdm's postfix or as field ``cpu`` of rich's task. Where a computation
    fails it stays as it is, and says so. To start a ``Progress`` and to close either is left to
    you.

    Examples
    --------
    >>> from dask_diag import ProgressBar
    >>> from tqdm.auto import tqdm                      # doctest: +SKIP
    >>> with tqdm(unit="task") as bar, ProgressBar(bar=bar):    # doctest: +SKIP
    ...     array.compute()
    """

    def __init__(
        self,
        minimum: float = 0,
        width: int = 40,
        dt: float = 0.1,
        out: TextIO | Place | None = None,
        label: str = "",
        *,
        bar: object = None,
    ) -> None:
        super().__init__()
        self._minimum = number("minimum", minimum, "seconds", above=0, or_equal=True)
        self._width = int(number("width", width, "characters", above=1, or_equal=True))
        least = number("dt", dt, "seconds between updates", above=0, or_equal=True)
        self._dt = max(least, _SHORTEST_UPDATE)
        fault = partial(self._fault, "to write the bar")
        self._output: Place = out if isinstance(out, Place) else ProgressOutput(out, fault)
        self._label = " ".join(str(label or "").split())
        self._users_bar = None if bar is None else UsersBar(bar, self._label, fault)
        self._bars: dict[int, _Running] = {}
        self._count = 0
        self._cluster_bars = ClusterBars()
        self._shown: dict[int, _Shown] = {}
        self._timer: Timer | None = None
        self.last_duration: float = 0

    @property
    def recording(self) -> Recording:
        """The computations that run now and the one that ended last, with their tasks."""
        from dask_diag.builders.recording import build_recording
        from dask_diag.builders.tasks import tasks_tables

        computations = self.session.snapshots()
        return self._with_clusters(
            build_recording(
                self.session, computations, self.notices(), **tasks_tables(computations)
            )
        )

    @property
    def _running(self) -> bool:
        return bool(self._bars)

    def _began(self, computation: Computation) -> None:
        with self._lock:
            self.session.computations = [
                computation
                for computation in self.session.computations
                if computation.finished is None
            ]
            self._count += 1
            self._bars[computation.number] = _Running(computation, self._name_of_next())
            if len(self._bars) == 1:
                self._timer = Timer(self._dt, self._redraw)

    def _name_of_next(self) -> str:
        """Which compute it is, where there may be several."""
        if self._count == 1 and not self._registered:
            return ""
        return f"computation {self._count}"

    def _ended(self, computation: Computation, failed: bool) -> None:
        with self._lock:
            bar = self._bars.pop(computation.number, None)
            # A computation that starts from here on gets a timer of its own.
            timer = None if self._bars else self._timer
        if timer is not None:
            timer.stop()
        if bar is None:
            return
        now = computation.stop or perf_counter()
        self.last_duration = now - computation.start
        if self.last_duration >= self._minimum:
            with self._lock:
                done, total = bar.computation.tasks_done()
                done, total = (done, total) if failed else (total or 1, total or 1)
                state = Bar(done, total, self.last_duration, bar.share.read())
                if self._users_bar is not None:
                    self._users_bar.show(computation.number, state, "failed" if failed else "")
                    return
                name = f"{bar.name} failed".strip() if failed else bar.name
                self._output.write(self._line(name, state, has_ended=True), final=True)

    def _redraw(self) -> None:
        with self._lock:
            self._guarded("to draw", self._update)

    def _update(self) -> None:
        bars = list(self._bars.values())
        if not bars:
            return
        bar, now = bars[0], perf_counter()
        if self._users_bar is not None:
            for bar in bars:
                if now - bar.computation.start > self._minimum:
                    self._users_bar.show(bar.computation.number, bar.state(now))
            return
        if self._output.is_in_place():
            if now - bar.computation.start > self._minimum:
                more = f"+{len(bars) - 1} more" if len(bars) > 1 else ""
                name = " ".join(filter(None, (bar.name, more)))
                self._output.write(self._line(name, bar.state(now)))
            return
        for bar in bars:
            state = bar.state(now)
            if self._is_due(bar.shown, state):
                self._output.write(self._line(bar.name, state), final=True)

    def _is_due(self, shown: _Shown, bar: Bar) -> bool:
        """Whether another whole line is to be written."""
        tenths, now = int(bar.part * _LINES_IN_A_FILE), perf_counter()
        is_due = (
            tenths > shown.tenths
            and now - shown.at >= self._dt
            and bar.part < 1
            and bar.elapsed > max(self._minimum, _SECONDS_WITHOUT_LINES)
        )
        if is_due:
            shown.tenths, shown.at = tenths, now
        return is_due

    def _wants(self) -> Wants:
        return {"progress": True}

    def _received(self, log: ClusterLog) -> None:
        # Who waits for this event loop may hold the lock of this profiler: it is not taken here.
        progress = self._cluster_bars.update(log, self._count)
        if self._users_bar is not None:
            self._show_in_users_bar(self._users_bar, log.scheduler, progress)
            return
        running = [computation for computation in progress if computation.ending is None]
        for computation in progress:
            if computation.ending is not None:
                self._shown.pop(computation.number, None)
                self.last_duration = computation.bar.elapsed
                if computation.bar.elapsed >= self._minimum:
                    line = f"{self._cluster_line(computation)} {computation.ending}".rstrip()
                    self._output.write(line, final=True)
        if self._output.is_in_place():
            more = f" +{len(running) - 1} more" if len(running) > 1 else ""
            if running and running[0].bar.elapsed > self._minimum:
                self._output.write(self._cluster_line(running[0]) + more)
            return
        for computation in running:
            shown = self._shown.setdefault(
                computation.number, _Shown(perf_counter() - computation.bar.elapsed)
            )
            if self._is_due(shown, computation.bar):
                self._output.write(self._cluster_line(computation), final=True)

    def _show_in_users_bar(
        self, users_bar: UsersBar, cluster: str, progress: list[ClusterProgress]
    ) -> None:
        for computation in progress:
            if computation.ending is not None:
                self.last_duration = computation.bar.elapsed
            if computation.bar.elapsed >= self._minimum:
                users_bar.show((cluster, computation.number), computation.bar, computation.ending)

    def _cluster_line(self, progress: ClusterProgress) -> str:
        is_one = progress.number == 1 and not self._registered
        name = "" if is_one else f"computation {progress.number}"
        return self._line(name, progress.bar, progress.ending is not None)

    def _line(self, name: str, bar: Bar, has_ended: bool = False) -> str:
        def line(width: int) -> str:
            parts = self._label, bar_line(bar, width, has_ended), name
            return " ".join(filter(None, parts))

        columns = self._output.columns()
        return line(self._width) if columns is None else fitted(line, self._width, columns)
