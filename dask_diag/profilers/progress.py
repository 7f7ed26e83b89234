"""The progress bar."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from math import isnan
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO, cast, runtime_checkable

from dask.utils import format_time

from dask_diag.capture.computation import Computation
from dask_diag.capture.task import ROW
from dask_diag.cluster.log import ClusterLog
from dask_diag.cluster.messages import ClusterComputation
from dask_diag.errors import ArgumentTypeError, number
from dask_diag.formatting import seconds
from dask_diag.profilers.base import OnClusters
from dask_diag.profilers.task_profiler import TaskDiagnostic
from dask_diag.system.periodic import Timer

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from dask_diag.cluster.messages import Wants
    from dask_diag.model.recording import Recording


class CpuShare:
    """The share of the tasks' seconds that they spent on a processor, kept up to date."""

    def __init__(self, computation: Computation) -> None:
        self._compute = computation
        self._position = 0
        self._wall = self._cpu = 0.0

    def read(self) -> float | None:
        """A number from 0 to 1; None while no task has been done."""
        numbers = memoryview(self._new_rows()).cast("d")
        width = ROW.size // numbers.itemsize
        self._position += len(numbers) // width
        spent = zip(numbers[1::width], numbers[2::width], numbers[3::width], strict=True)
        for start, stop, cpu in spent:
            if not isnan(cpu):
                self._wall += stop - start
                self._cpu += cpu
        return self._cpu / self._wall if self._wall > 0 else None

    def _new_rows(self) -> bytes:
        rows, finished = self._compute.rows[self._position :], self._compute.finished
        if finished is None:
            return b"".join(rows)
        return finished.tasks.rows[self._position * ROW.size :]


_LEAST_DONE = 0.05
"""Share of the tasks below which nothing is said of the time that is left."""
_LEAST_PASSED = 1.0
"""Seconds before which nothing is said of the time that is left."""


class Bar(NamedTuple):
    """How far a computation is.

    Attributes
    ----------
    done, total : int
        Tasks.
    elapsed : float
        Seconds.
    share : float or None
        The CPU share of the tasks that are done, from 0 to 1.
    """

    done: int
    total: int
    elapsed: float
    share: float | None

    @property
    def part(self) -> float:
        """How much is done, from 0 to 1."""
        return min(self.done / self.total, 1.0) if self.total else 0.0


def bar_line(bar: Bar, width: int, has_ended: bool) -> str:
    """The line; of what has ended as dask's own progress bar writes it."""
    drawn = f"[{'#' * int(width * bar.part):<{width}}]"
    percent = f"{int(100 * bar.part)}%"
    if has_ended:
        cpu = f" ({bar.share:.0%} cpu)" if bar.share is not None else ""
        return f"{drawn} | {percent} Completed | {format_time(bar.elapsed)}{cpu}"
    cpu = f" | {bar.share:.0%} CPU" if bar.share is not None else ""
    return (
        f"{drawn} {percent} | {bar.done:,}/{bar.total:,} | "
        f"{seconds(bar.elapsed)}{_time_left(bar)}{cpu}"
    )


def fitted(line: Callable[[int], str], width: int, columns: int) -> str:
    """The line with a bar of this width, or of less where a terminal has too few columns for it."""
    surplus = len(line(width)) - columns + 1
    return line(max(0, width - max(0, surplus)))


def _time_left(bar: Bar) -> str:
    """As long again for each task as for those that are done; nothing while these are too few."""
    if bar.part < _LEAST_DONE or bar.elapsed < _LEAST_PASSED or bar.done >= bar.total:
        return ""
    return f", about {seconds(bar.elapsed * (bar.total - bar.done) / bar.done)} left"


_DESCRIPTION = "Computing"


class UsersBar:
    """Shows how far computations are in a bar that belongs to the user, who closes it.

    The bar starts again with each computation. Computations that overlap are one in it: their tasks
    are added up.

    Parameters
    ----------
    bar : tqdm or rich.progress.Progress
    label : str
        The description, if any.
    fault : callable
        Called with the error if the bar raises one.

    Raises
    ------
    TypeError
        If it is neither.
    """

    def __init__(self, bar: object, label: str, fault: Callable[[Exception], None]) -> None:
        self._bar = _drawn_on(bar, label)
        self._fault = fault
        # Computations of clusters are shown by the threads of their clients.
        self._lock = threading.Lock()
        self._counts: dict[Hashable, Bar] = {}
        self._running: set[Hashable] = set()
        self._faults: list[str] = []

    def show(self, computation: Hashable, bar: Bar, ending: str | None = None) -> None:
        """Show how far a computation is; with an `ending`, empty if all is well, the last time."""
        with self._lock:
            try:
                self._show(computation, bar, ending)
            except Exception as error:
                self._fault(error)

    def _show(self, computation: Hashable, bar: Bar, ending: str | None) -> None:
        if not self._running:
            self._counts, self._faults = {}, []
            self._bar.restart(bar.total, bar.elapsed)
        self._counts[computation] = bar
        self._running.add(computation)
        bars = self._counts.values()
        share = bar.share if len(bars) == 1 else None
        cpu = "" if share is None else f"{share:.0%} CPU"
        self._bar.show(sum(bar.done for bar in bars), sum(bar.total for bar in bars), cpu)
        if ending is None:
            return
        self._running.discard(computation)
        self._faults += [ending] if ending else []
        if not self._running:
            self._bar.end(cpu, ", ".join(dict.fromkeys(self._faults)))


class _Drawn(Protocol):
    """What draws on a bar."""

    def restart(self, total: int, elapsed: float) -> None:
        """Begin with a computation that started `elapsed` seconds ago."""

    def show(self, done: int, total: int, cpu: str) -> None:
        """Show how many tasks are done."""

    def end(self, cpu: str, failure: str) -> None:
        """Show what was shown last, and what failed, if anything did."""


class _TqdmBar(Protocol):
    """What is used of a bar of tqdm."""

    n: float
    total: float | None
    initial: float
    disable: bool
    start_t: float
    last_print_t: float

    def reset(self, total: float) -> None: ...

    def update(self, n: float) -> object: ...

    def refresh(self) -> object: ...

    def set_description_str(self, desc: str, refresh: bool) -> None: ...

    def set_postfix_str(self, s: str, refresh: bool) -> None: ...


class _Tqdm:
    """Draws on a bar of tqdm."""

    def __init__(self, bar: _TqdmBar, label: str) -> None:
        self._bar = bar
        self._label = label

    def restart(self, total: int, elapsed: float) -> None:
        if self._label:
            self._bar.set_description_str(self._label, refresh=False)
        self._bar.set_postfix_str("", refresh=False)
        self._bar.initial = 0
        self._bar.reset(total=total)
        if not self._bar.disable:
            # Its rate is of the time from here on.
            self._bar.start_t -= elapsed
            self._bar.last_print_t -= elapsed

    def show(self, done: int, total: int, cpu: str) -> None:
        self._bar.total = total
        self._bar.set_postfix_str(cpu, refresh=False)
        self._bar.update(done - self._bar.n)

    def end(self, cpu: str, failure: str) -> None:
        self._bar.set_postfix_str(", ".join(filter(None, (cpu, failure))), refresh=False)
        self._bar.refresh()


class _Rich:
    """Draws a task of a Progress of rich; that of a computation that failed stays."""

    def __init__(self, progress: Progress, label: str) -> None:
        self._progress = progress
        self._label = label or _DESCRIPTION
        self._task: TaskID | None = None

    def restart(self, total: int, elapsed: float) -> None:
        if self._task is None or self._task not in self._progress.task_ids:
            self._task = self._progress.add_task(self._label, total=total, cpu="")
        else:
            self._progress.reset(self._task, total=total, description=self._label, cpu="")
        for task in self._progress.tasks:
            if task.id == self._task and task.start_time is not None:
                task.start_time -= elapsed

    def show(self, done: int, total: int, cpu: str) -> None:
        assert self._task is not None
        self._progress.update(self._task, total=total, completed=done, cpu=cpu)

    def end(self, cpu: str, failure: str) -> None:
        if failure and self._task is not None:
            self._progress.update(self._task, description=f"{self._label}: {failure}")
            self._progress.stop_task(self._task)
            self._task = None
        self._progress.refresh()


def _drawn_on(bar: object, label: str) -> _Drawn:
    if all(hasattr(bar, name) for name in ("add_task", "update", "reset", "stop_task")):
        return _Rich(cast("Progress", bar), label)
    if all(hasattr(bar, name) for name in ("reset", "update", "refresh", "set_postfix_str")):
        return _Tqdm(cast("_TqdmBar", bar), label)
    raise ArgumentTypeError(f"bar: expected a bar of tqdm or a Progress of rich, found {bar!r}")


@runtime_checkable
class Place(Protocol):
    """Where lines are written, over and over."""

    def is_in_place(self) -> bool:
        """Whether a line can be drawn over."""

    def columns(self) -> int | None:
        """How many there are; None if it is not known."""

    def write(self, line: str, final: bool = False) -> None:
        """Write a line; a final one is the last of its bar."""


class ProgressOutput:
    """Writes lines, over and over in one place where that can be done.

    Parameters
    ----------
    out : file or None
        None is whatever ``sys.stdout`` is when a line is written.
    fault : callable
        Called with the error if a line cannot be written.

    Raises
    ------
    TypeError
        If it is no file open for writing text.
    """

    def __init__(self, out: TextIO | None, fault: Callable[[Exception], None]) -> None:
        if out is not None and not hasattr(out, "write"):
            raise ArgumentTypeError(f"out: expected a file open for writing text, found {out!r}")
        self._out = out
        self._fault = fault
        # Of what is written last: no lock is taken, and nothing is waited for, while it is held.
        self._writing = threading.RLock()
        self._drawn = 0
        self._displayed: Any = None

    def is_in_place(self) -> bool:
        """Whether a line can be drawn over: on a terminal, and in a notebook."""
        if self._in_notebook():
            return True
        stream = self._stream()
        try:
            return bool(stream is not None and stream.isatty())
        except Exception:
            return False

    def columns(self) -> int | None:
        """Of the terminal; None if it is none, or has no known size."""
        stream = self._stream()
        if stream is None or self._in_notebook() or not self.is_in_place():
            return None
        with suppress(KeyError, ValueError):
            return int(os.environ["COLUMNS"]) or None
        with suppress(OSError, ValueError, AttributeError):
            return os.get_terminal_size(stream.fileno()).columns or None
        return None

    def write(self, line: str, final: bool = False) -> None:
        """Write a line; a final one stays."""
        stream = self._stream()
        if stream is None:
            return
        try:
            with self._writing:
                if self._in_notebook():
                    self._display(line, final)
                    return
                if self.is_in_place():
                    columns = None if final else self.columns()
                    # What is drawn over must not take two lines of the terminal.
                    line = line if columns is None else line[: max(1, columns - 1)]
                    line, self._drawn = f"\r{line:<{self._drawn}}", len(line)
                if final:
                    line, self._drawn = line + "\n", 0
                stream.write(line)
                stream.flush()
        except Exception as error:
            self._fault(error)

    def _stream(self) -> TextIO | None:
        return sys.stdout if self._out is None else self._out

    def _in_notebook(self) -> bool:
        return type(self._stream()).__module__.startswith("ipykernel")

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


class ClusterProgress(NamedTuple):
    """How far one computation is.

    Attributes
    ----------
    number : int
        Which of all computations that were shown.
    bar : Bar
    ending : str or None
        How it ended, empty if all is well; None while it runs.
    """

    number: int
    bar: Bar
    ending: str | None


class ClusterBars:
    """Which computations of clusters have a bar, and which have been shown for the last time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[tuple[str, str], int] = {}
        self._ended: set[tuple[str, str]] = set()

    def update(self, log: ClusterLog, count: int) -> list[ClusterProgress]:
        """What is to be shown of a log, what has ended first.

        `count` is how many computations were seen before those of clusters.
        """
        now = perf_counter() + log.offset
        progress = []
        with self._lock:
            for computation in list(log.computations.values()):
                name = log.scheduler, computation.name
                if name in self._ended:
                    continue
                number = self._numbers.setdefault(name, count + len(self._numbers) + 1)
                ending = _ending_of(computation, log.has_ended)
                if ending is not None:
                    self._ended.add(name)
                progress.append(_progress_of(computation, number, now, ending))
        return sorted(
            progress, key=lambda computation: (computation.ending is None, computation.number)
        )


def _ending_of(computation: ClusterComputation, is_last: bool) -> str | None:
    if computation.stop is None:
        return "not finished" if is_last else None
    if computation.failed:
        return "failed"
    return "" if computation.done >= computation.total else "cancelled"


def _progress_of(
    computation: ClusterComputation, number: int, now: float, ending: str | None
) -> ClusterProgress:
    total, took = computation.total, computation.seconds
    stop = now if computation.stop is None else computation.stop
    return ClusterProgress(
        number,
        Bar(
            min(computation.done, total),
            total,
            max(stop - computation.start, 0.0),
            computation.cpu / took if took > 0 else None,
        ),
        ending,
    )


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
        from dask_diag.capture.build import build_recording
        from dask_diag.capture.increments import tasks_tables

        tables = tasks_tables(self.session)
        return self._with_clusters(build_recording(self.session, self.notices(), tables))

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
