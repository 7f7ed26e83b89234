"""The progress bar."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from math import isnan
from time import perf_counter
from typing import TYPE_CHECKING, Any, TextIO

from dask.utils import format_time

from dask_diag.capture.computation import Computation
from dask_diag.capture.dask_internals import Graph
from dask_diag.capture.system.own_threads import OwnThread
from dask_diag.capture.tasks.task_row import ROW
from dask_diag.profilers.cluster_bars import ClusterBars, ClusterProgress
from dask_diag.profilers.on_clusters import OnClusters
from dask_diag.profilers.task_diagnostic import TaskDiagnostic
from dask_diag.validation import number

if TYPE_CHECKING:
    from dask_diag.capture.cluster.formats import Wants
    from dask_diag.capture.cluster.log import ClusterLog
    from dask_diag.model.recording import Recording

__all__ = ["CpuShare", "ProgressBar"]

_LINES_IN_A_FILE = 10
_SECONDS_WITHOUT_LINES = 1.0
_SHORTEST_UPDATE = 0.001


class CpuShare:
    """The share of the tasks' seconds that they spent on a processor, kept up to date."""

    def __init__(self, computation: Computation) -> None:
        self._compute = computation
        self._position = 0
        self._wall = self._cpu = 0.0

    def read(self) -> float | None:
        """A number from 0 to 1; None while no task has been done."""
        numbers = memoryview(bytes(self._compute.rows[self._position :])).cast("d")
        self._position += len(numbers) * numbers.itemsize
        width = ROW.size // numbers.itemsize
        spent = zip(numbers[1::width], numbers[2::width], numbers[3::width], strict=True)
        for start, stop, cpu in spent:
            if not isnan(cpu):
                self._wall += stop - start
                self._cpu += cpu
        return self._cpu / self._wall if self._wall > 0 else None


class _Timer:
    """Calls `work` every `dt` seconds on a thread of its own, until it is stopped.

    Thread and event belong together: to stop a timer stops that one, and none that was started
    meanwhile.
    """

    def __init__(self, dt: float, work: Callable[[], object]) -> None:
        self._dt = dt
        self._work = work
        self._stopping = threading.Event()
        self._thread = OwnThread("progress", self._run)
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the thread; not to be called with a lock that `work` takes."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._dt):
            self._work()


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

    Attributes
    ----------
    last_duration : float
        Seconds that the computation which ended last took.

    Notes
    -----
    On a terminal and in a notebook one line is drawn over and over. On anything else, a log file
    for one, whole lines are written, one for each tenth that is done and not more often than `dt`;
    a computation of less than a second has one line.

    The last field shows the CPU share (thread CPU seconds of the tasks that are done, of their wall
    seconds), which computation it is where there are several, and whether it failed.

    On a client of distributed the bar is drawn by the client's own event loop, about twice a second
    and when a computation ends: no thread is started. A computation lasts from when the client
    submits tasks while it has none until all are done: a burst of ``submit`` has one bar.
    """

    def __init__(
        self,
        minimum: float = 0,
        width: int = 40,
        dt: float = 0.1,
        out: TextIO | None = None,
        label: str = "",
    ) -> None:
        super().__init__()
        self._minimum = number("minimum", minimum, "seconds", above=0, or_equal=True)
        self._width = int(number("width", width, "characters", above=1, or_equal=True))
        least = number("dt", dt, "seconds between updates", above=0, or_equal=True)
        self._dt = max(least, _SHORTEST_UPDATE)
        if out is not None and not hasattr(out, "write"):
            raise TypeError(f"out: expected a file open for writing text, found {out!r}")
        self._out = out
        self._label = " ".join(str(label or "").split())
        self._bars: dict[int, _Running] = {}
        self._count = 0
        self._cluster_bars = ClusterBars()
        self._shown: dict[int, _Shown] = {}
        # Of what is written last: no lock is taken, and nothing is waited for, while it is held.
        self._writing = threading.RLock()
        self._drawn = 0
        self._displayed: Any = None
        self._timer: _Timer | None = None
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
                each for each in self.session.computations if each.finished is None
            ]
            self._count += 1
            self._bars[computation.number] = _Running(computation, self._name_of_next())
            if len(self._bars) == 1:
                self._timer = _Timer(self._dt, self._redraw)

    def _name_of_next(self) -> str:
        """Which compute it is, where there may be several."""
        if self._count == 1 and not self._registered:
            return ""
        return f"computation {self._count}"

    def _ended(self, computation: Computation, dsk: Graph) -> None:
        with self._lock:
            bar = self._bars.pop(computation.number)
            # A computation that starts from here on gets a timer of its own.
            timer = None if self._bars else self._timer
        if timer is not None:
            timer.stop()
        now = computation.stop or perf_counter()
        self.last_duration = now - computation.start
        if self.last_duration >= self._minimum:
            with self._lock:
                failed = sys.exc_info()[1] is not None
                done = bar.computation.share_done() if failed else 1.0
                line = self._line(bar.name, done, self.last_duration, bar.share.read())
                self._write(line + (" failed" if failed else ""), final=True)

    def _redraw(self) -> None:
        with self._lock:
            self._guarded("to draw", self._update)

    def _update(self) -> None:
        bars = list(self._bars.values())
        if not bars:
            return
        bar, now = bars[0], perf_counter()
        if self._in_place():
            if now - bar.computation.start > self._minimum:
                more = f" +{len(bars) - 1} more" if len(bars) > 1 else ""
                done, elapsed = bar.computation.share_done(), now - bar.computation.start
                self._write(self._line(bar.name, done, elapsed, bar.share.read()) + more)
            return
        for bar in bars:
            elapsed = now - bar.computation.start
            done = bar.computation.share_done()
            if self._is_due(bar.shown, done, elapsed):
                line = self._line(bar.name, done, elapsed, bar.share.read())
                self._write(line, final=True)

    def _is_due(self, shown: _Shown, done: float, elapsed: float) -> bool:
        """Whether another whole line is to be written."""
        tenths, now = int(done * _LINES_IN_A_FILE), perf_counter()
        is_due = (
            tenths > shown.tenths
            and now - shown.at >= self._dt
            and done < 1
            and elapsed > max(self._minimum, _SECONDS_WITHOUT_LINES)
        )
        if is_due:
            shown.tenths, shown.at = tenths, now
        return is_due

    def _wants(self) -> Wants:
        return {"progress": True}

    def _received(self, log: ClusterLog) -> None:
        # Who waits for this event loop may hold the lock of this profiler: it is not taken here.
        progress = self._cluster_bars.update(log, self._count)
        running = [each for each in progress if each.ending is None]
        for each in progress:
            if each.ending is not None:
                self._shown.pop(each.number, None)
                self.last_duration = each.elapsed
                if each.elapsed >= self._minimum:
                    self._write(f"{self._cluster_line(each)} {each.ending}".rstrip(), final=True)
        if self._in_place():
            more = f" +{len(running) - 1} more" if len(running) > 1 else ""
            if running and running[0].elapsed > self._minimum:
                self._write(self._cluster_line(running[0]) + more)
            return
        for each in running:
            shown = self._shown.setdefault(each.number, _Shown(perf_counter() - each.elapsed))
            if self._is_due(shown, each.done, each.elapsed):
                self._write(self._cluster_line(each), final=True)

    def _cluster_line(self, progress: ClusterProgress) -> str:
        is_one = progress.number == 1 and not self._registered
        name = "" if is_one else f"computation {progress.number}"
        return self._line(name, progress.done, progress.elapsed, progress.share)

    def _line(self, name: str, done: float, elapsed: float, share: float | None) -> str:
        cpu = f" ({share:.0%} cpu)" if share is not None else ""
        before = f"{self._label} " if self._label else ""
        after = f" {name}" if name else ""
        filled = "#" * int(self._width * done)
        return (
            f"{before}[{filled:<{self._width}}] | {int(100 * done)}% Completed | "
            f"{format_time(elapsed)}{cpu}{after}"
        )

    def _stream(self) -> TextIO | None:
        return sys.stdout if self._out is None else self._out

    def _in_notebook(self) -> bool:
        return type(self._stream()).__module__.startswith("ipykernel")

    def _in_place(self) -> bool:
        """Whether a line can be drawn over: on a terminal, and in a notebook."""
        if self._in_notebook():
            return True
        stream = self._stream()
        try:
            return bool(stream is not None and stream.isatty())
        except Exception:
            return False

    def _write(self, line: str, final: bool = False) -> None:
        stream = self._stream()
        if stream is None:
            return
        try:
            with self._writing:
                if self._in_notebook():
                    self._display(line, final)
                    return
                if self._in_place():
                    line, self._drawn = f"\r{line:<{self._drawn}}", len(line)
                if final:
                    line, self._drawn = line + "\n", 0
                stream.write(line)
                stream.flush()
        except Exception as error:
            self._fault("to write the bar", error)

    def _display(self, line: str, final: bool) -> None:
        """Show the line as a cell's output, and replace it from then on: also in the saved file."""
        from IPython.display import display

        data = {"text/plain": line}
        if self._displayed is None:
            self._displayed = display(data, raw=True, display_id=True)
        else:
            self._displayed.update(data, raw=True)
        if final:
            self._displayed = None
