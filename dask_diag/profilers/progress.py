"""The progress bar."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from html import escape
from itertools import starmap
from math import isnan
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO, cast, runtime_checkable

from dask.utils import format_time

from dask_diag.capture.computation import Computation
from dask_diag.capture.keys import count_functions
from dask_diag.capture.task import ROW
from dask_diag.cluster.log import ClusterLog
from dask_diag.cluster.wire import ClusterComputation
from dask_diag.cursor import ERASED, below_cursor, moves_cursor
from dask_diag.errors import ArgumentTypeError, ArgumentValueError, number
from dask_diag.formatting import seconds
from dask_diag.profilers.base import Diagnostic
from dask_diag.system.periodic import PeriodicThread

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from dask_diag.cluster.wire import Wants
    from dask_diag.model.recording import Recording


class CpuShare:
    """CPU share of tasks, updated from new rows."""

    def __init__(self, computation: Computation) -> None:
        self._compute = computation
        self._position = 0
        self._wall = self._cpu = 0.0

    def read(self) -> float | None:
        """CPU share from 0 to 1; None before the first finished task."""
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


class FunctionTasks(NamedTuple):
    """Tasks of a function: its name, how many are done, and how many there are, at least 1."""

    name: str
    done: int
    total: int


class DoneByFunction:
    """Tasks of each function, updated from new keys."""

    def __init__(self, computation: Computation) -> None:
        self._compute = computation
        self._position = 0
        self._done: Counter[str] = Counter()

    def read(self, are_all_done: bool) -> list[FunctionTasks]:
        """Tasks of each function; none before the scheduler has its state."""
        planned, dsk = self._compute.planned, self._compute.dsk
        keys = self._compute.keys[self._position :]
        self._position += len(keys)
        self._done.update(count_functions(keys, dsk))
        totals = {} if planned is None else planned.by_function(dsk)
        return [
            FunctionTasks(name, total if are_all_done else min(self._done[name], total), total)
            for name, total in totals.items()
        ]


_LEAST_DONE = 0.05
"""Share of the tasks below which nothing is said of the time that is left."""
_LEAST_PASSED = 1.0
"""Seconds before which nothing is said of the time that is left."""


class Bar(NamedTuple):
    """Progress of a computation.

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
        """Finished part, from 0 to 1."""
        return min(self.done / self.total, 1.0) if self.total else 0.0


def bar_line(bar: Bar, width: int, has_ended: bool) -> str:
    """Line of a bar; at the end it is that of dask's own progress bar."""
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
    """Line with a bar of this width, or a narrower one where columns are too few."""
    surplus = len(line(width)) - columns + 1
    return line(max(0, width - max(0, surplus)))


def largest(functions: Sequence[FunctionTasks], most: int) -> list[FunctionTasks]:
    """The functions with most tasks, and the others in one."""
    from dask_diag.views.escaping import shown

    ordered = [
        FunctionTasks(shown(name, _NAME), done, total)
        for name, done, total in sorted(functions, key=lambda function: -function.total)
    ]
    if len(ordered) <= most + 1:
        return ordered
    rest = ordered[most:]
    done, total = (sum(numbers) for numbers in zip(*(one[1:] for one in rest), strict=True))
    return [*ordered[:most], FunctionTasks(f"and {len(rest):,} more", done, total)]


def function_lines(
    functions: Sequence[FunctionTasks], width: int, columns: int | None
) -> list[str]:
    """A bar for each function, all narrower where columns are too few."""
    texts = [f"] {done:,}/{total:,} {name}" for name, done, total in functions]
    if columns is not None:
        fitting = min((columns - 2 - len(text) for text in texts), default=width)
        width = min(width, max(_NARROWEST, fitting))
    bars = ["#" * (width * done // total) for _, done, total in functions]
    return [f"[{bar:<{width}}{text}" for bar, text in zip(bars, texts, strict=True)]


_MOST_FUNCTIONS, _NAME, _NARROWEST = 10, 40, 10
_ROWS, _OTHER_ROWS = 24, 3
"""Rows of a terminal of unknown size; rows for the program, the bar, and the other functions."""


def _time_left(bar: Bar) -> str:
    """Estimate from the finished tasks; empty while they are too few."""
    if bar.part < _LEAST_DONE or bar.elapsed < _LEAST_PASSED or bar.done >= bar.total:
        return ""
    return f", about {seconds(bar.elapsed * (bar.total - bar.done) / bar.done)} left"


class BarState(NamedTuple):
    """A computation as a display shows it.

    Attributes
    ----------
    key : hashable
        Identifies the computation.
    name : str
        Name of the computation where several are shown, else empty.
    bar : Bar
    ending : str or None
        Failure of the computation, empty if all is well; None while it runs.
    functions : sequence of FunctionTasks or None
        None if functions are not to be shown.
    """

    key: Hashable
    name: str
    bar: Bar
    ending: str | None = None
    functions: Sequence[FunctionTasks] | None = None


class UsersBar:
    """Shows computations in a bar that belongs to the user, who closes it.

    The bar starts again with each computation. Computations that overlap are added up in it.

    Parameters
    ----------
    label : str
        The description, if any.
    minimum : float
        Seconds that a computation must take before it is shown.
    fault : callable
        Called with the error if the bar raises one.
    """

    def __init__(self, label: str, minimum: float, fault: Callable[[Exception], None]) -> None:
        self.label = label
        self._minimum = minimum
        self._fault = fault
        # Computations of clusters are shown by the threads of their clients.
        self._lock = threading.Lock()
        self._bars: dict[Hashable, Bar] = {}
        self._running: set[Hashable] = set()
        self._failures: list[str] = []

    def show(self, states: Sequence[BarState]) -> None:
        """Show computations; ended ones for the last time."""
        for state in states:
            if state.bar.elapsed >= self._minimum:
                with self._lock:
                    try:
                        self._show(state)
                    except Exception as error:
                        self._fault(error)

    def _show(self, state: BarState) -> None:
        if not self._running:
            self._bars, self._failures = {}, []
            self.restart(state.bar.total, state.bar.elapsed)
        self._bars[state.key] = state.bar
        self._running.add(state.key)
        bars = self._bars.values()
        share = state.bar.share if len(bars) == 1 else None
        cpu = "" if share is None else f"{share:.0%} CPU"
        self.draw(sum(bar.done for bar in bars), sum(bar.total for bar in bars), cpu)
        if state.ending is None:
            return
        self._running.discard(state.key)
        self._failures += [state.ending] if state.ending else []
        if not self._running:
            self.end(cpu, ", ".join(dict.fromkeys(self._failures)))

    def restart(self, total: int, elapsed: float) -> None:
        """Begin with a computation that started `elapsed` seconds ago."""
        raise NotImplementedError

    def draw(self, done: int, total: int, cpu: str) -> None:
        """Draw the number of tasks that are done."""
        raise NotImplementedError

    def end(self, cpu: str, failure: str) -> None:
        """Draw the last state, and what failed, if anything did."""
        raise NotImplementedError


class TqdmBar(UsersBar):
    """Draws on a bar of tqdm."""

    def __init__(self, bar: Any, label: str, minimum: float, fault: Callable[..., None]) -> None:
        super().__init__(label, minimum, fault)
        self._bar = bar

    def restart(self, total: int, elapsed: float) -> None:
        """Reset the bar."""
        if self.label:
            self._bar.set_description_str(self.label, refresh=False)
        self._bar.set_postfix_str("", refresh=False)
        self._bar.initial = 0
        self._bar.reset(total=total)
        if not self._bar.disable:
            # tqdm computes its rate from here on.
            self._bar.start_t -= elapsed
            self._bar.last_print_t -= elapsed

    def draw(self, done: int, total: int, cpu: str) -> None:
        """Update the bar."""
        self._bar.total = total
        self._bar.set_postfix_str(cpu, refresh=False)
        self._bar.update(done - self._bar.n)

    def end(self, cpu: str, failure: str) -> None:
        """Write the failure into the postfix."""
        self._bar.set_postfix_str(", ".join(filter(None, (cpu, failure))), refresh=False)
        self._bar.refresh()


class RichBar(UsersBar):
    """Draws a task of a Progress of rich; the task of a computation that failed stays."""

    def __init__(
        self, progress: Progress, label: str, minimum: float, fault: Callable[..., None]
    ) -> None:
        super().__init__(label or "Computing", minimum, fault)
        self._progress = progress
        self._task: TaskID | None = None

    def restart(self, total: int, elapsed: float) -> None:
        """Add a task, or reset the one of the computation before."""
        if self._task is None or self._task not in self._progress.task_ids:
            self._task = self._progress.add_task(self.label, total=total, cpu="")
        else:
            self._progress.reset(self._task, total=total, description=self.label, cpu="")
        for task in self._progress.tasks:
            if task.id == self._task and task.start_time is not None:
                task.start_time -= elapsed

    def draw(self, done: int, total: int, cpu: str) -> None:
        """Update the task."""
        assert self._task is not None
        self._progress.update(self._task, total=total, completed=done, cpu=cpu)

    def end(self, cpu: str, failure: str) -> None:
        """Leave a task that failed as it is, with the failure in its description."""
        if failure and self._task is not None:
            self._progress.update(self._task, description=f"{self.label}: {failure}")
            self._progress.stop_task(self._task)
            self._task = None
        self._progress.refresh()


def _users_bar(
    bar: object, label: str, minimum: float, fault: Callable[[Exception], None]
) -> UsersBar:
    if all(hasattr(bar, name) for name in ("add_task", "update", "reset", "stop_task")):
        return RichBar(cast("Progress", bar), label, minimum, fault)
    if all(hasattr(bar, name) for name in ("reset", "update", "refresh", "set_postfix_str")):
        return TqdmBar(bar, label, minimum, fault)
    raise ArgumentTypeError(f"bar: expected a bar of tqdm or a Progress of rich, found {bar!r}")


@runtime_checkable
class Place(Protocol):
    """A place where lines are written over and over."""

    def is_in_place(self) -> bool:
        """Whether a line can be drawn over."""

    def columns(self) -> int | None:
        """Number of columns; None if it is not known."""

    def write(
        self, line: str, final: bool = False, functions: Sequence[FunctionTasks] | None = None
    ) -> None:
        """Write a line, and functions where they fit; a final line is the last of its bar."""


class ProgressOutput:
    """Writes lines to a file, a terminal or a notebook's cell.

    Parameters
    ----------
    out : file or None
        None is whatever ``sys.stdout`` is when a line is written.
    width : int
        Characters of the bars of functions.
    fault : callable
        Called with the error if a line cannot be written.

    Raises
    ------
    TypeError
        If `out` is no file open for writing text.
    """

    def __init__(self, out: TextIO | None, width: int, fault: Callable[[Exception], None]) -> None:
        if out is not None and not hasattr(out, "write"):
            raise ArgumentTypeError(f"out: expected a file open for writing text, found {out!r}")
        self._out = out
        self._width = width
        self._fault = fault
        # Guards `_drawn`: no other lock is taken, and nothing is waited for, while it is held.
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
        """Number of columns of the terminal; None without one, or if it is not known."""
        stream = self._stream()
        if stream is None or self._in_notebook() or not self.is_in_place():
            return None
        with suppress(KeyError, ValueError):
            return int(os.environ["COLUMNS"]) or None
        return _terminal_size(stream)[0]

    def write(
        self, line: str, final: bool = False, functions: Sequence[FunctionTasks] | None = None
    ) -> None:
        """Write a line, and functions below it where it can be drawn over; a final one stays."""
        stream = self._stream()
        if stream is None:
            return
        try:
            with self._writing:
                if self._in_notebook():
                    self._display(line, final, functions or ())
                    return
                if self.is_in_place() and functions is not None and moves_cursor():
                    stream.write(self._in_rows(line, final, functions))
                    stream.flush()
                    return
                if self.is_in_place():
                    columns = None if final else self.columns()
                    # A line that is drawn over must not take two lines of the terminal.
                    line = line if columns is None else line[: max(1, columns - 1)]
                    line, self._drawn = f"\r{line:<{self._drawn}}", len(line)
                if final:
                    line, self._drawn = line + "\n", 0
                stream.write(line)
                stream.flush()
        except Exception as error:
            self._fault(error)

    def _in_rows(self, line: str, final: bool, functions: Sequence[FunctionTasks]) -> str:
        """The program's output goes on at the cursor, above the bar, and is not drawn over."""
        columns, height = self.columns(), _terminal_size(self._stream())[1] or _ROWS
        most = max(0, min(_MOST_FUNCTIONS, height - _OTHER_ROWS))
        lines = [line, *function_lines(largest(functions, most), self._width, columns)]
        if final:
            return ERASED + "\n".join(lines) + "\n"
        return below_cursor([line[: columns and max(1, columns - 1)] for line in lines])

    def _stream(self) -> TextIO | None:
        return sys.stdout if self._out is None else self._out

    def _in_notebook(self) -> bool:
        return type(self._stream()).__module__.startswith("ipykernel")

    def _display(self, line: str, final: bool, functions: Sequence[FunctionTasks]) -> None:
        # One output of the cell is replaced each time: also in the saved file.
        from IPython.display import display

        rows = largest(functions, _MOST_FUNCTIONS)
        data = {"text/plain": "\n".join([line, *function_lines(rows, self._width, None)])}
        if rows:
            from dask_diag.views.cell import function_progress
            from dask_diag.views.colors import FunctionColors

            colors = FunctionColors(name for name, *_ in rows)
            html = [
                function_progress(name, colors[name], f"{done:,}", f"{total:,}", done / total)
                for name, done, total in rows
            ]
            data["text/html"] = f'<pre style="margin: 0">{escape(line)}</pre>' + "".join(html)
        if self._displayed is None:
            self._displayed = display(data, raw=True, display_id=True)
        else:
            self._displayed.update(data, raw=True)
        if final:
            self._displayed = None


def _terminal_size(stream: TextIO | None) -> tuple[int | None, int | None]:
    """Columns and rows, if they are known."""
    with suppress(OSError, ValueError, AttributeError):
        columns, rows = os.get_terminal_size(stream.fileno())  # type: ignore[union-attr]
        return columns or None, rows or None
    return None, None


_LINES_IN_A_FILE = 10
_SECONDS_WITHOUT_LINES = 1.0
_SHORTEST_UPDATE = 0.001


class BarLines:
    """Shows computations as lines: one drawn over and over where possible, else whole lines.

    Parameters
    ----------
    place : Place
    label : str
    width : int
        Characters of the bar.
    minimum : float
        Seconds that a computation must take before it is shown.
    dt : float
        Least seconds between two whole lines of a computation.
    """

    def __init__(self, place: Place, label: str, width: int, minimum: float, dt: float) -> None:
        self._place = place
        self._label = label
        self._width = width
        self._minimum = minimum
        self._dt = dt
        self._written: dict[Hashable, tuple[int, float]] = {}
        """Tenths done and time of the last whole line, by computation."""

    def show(self, states: Sequence[BarState]) -> None:
        """Show computations; ended ones for the last time."""
        running = [state for state in states if state.ending is None]
        for state in states:
            if state.ending is not None:
                self._written.pop(state.key, None)
                if state.bar.elapsed >= self._minimum:
                    line = self._line(state, state.ending)
                    self._place.write(line, final=True, functions=state.functions)
        if self._place.is_in_place():
            if running and running[0].bar.elapsed > self._minimum:
                more = f"+{len(running) - 1} more" if len(running) > 1 else ""
                first = running[0]
                self._place.write(self._line(first, more), functions=first.functions)
            return
        for state in running:
            if self._is_due(state):
                self._place.write(self._line(state), final=True)

    def _is_due(self, state: BarState) -> bool:
        """Whether another whole line is to be written."""
        now, bar = perf_counter(), state.bar
        tenths, written = self._written.setdefault(state.key, (0, now - bar.elapsed))
        done = int(bar.part * _LINES_IN_A_FILE)
        is_due = (
            done > tenths
            and now - written >= self._dt
            and bar.part < 1
            and bar.elapsed > max(self._minimum, _SECONDS_WITHOUT_LINES)
        )
        if is_due:
            self._written[state.key] = done, now
        return is_due

    def _line(self, state: BarState, ending: str = "") -> str:
        def line(width: int) -> str:
            drawn = bar_line(state.bar, width, state.ending is not None)
            return " ".join(filter(None, (self._label, drawn, state.name, ending)))

        columns = self._place.columns()
        return line(self._width) if columns is None else fitted(line, self._width, columns)


def _ending_of(computation: ClusterComputation, is_last: bool) -> str | None:
    if computation.stop is None:
        return "not finished" if is_last else None
    if computation.failed:
        return "failed"
    are_done = all(done >= total for _, done, total in computation.functions)
    return "" if are_done else "cancelled"


class _Running(NamedTuple):
    """A computation of this process that has a bar."""

    computation: Computation
    name: str
    share: CpuShare
    functions: DoneByFunction | None

    def state(self, elapsed: float, ending: str | None = None) -> BarState:
        """Return the state after so many seconds."""
        done, total = self.computation.tasks_done()
        if ending == "":
            # dask's own bar is full at the end, also of a graph without tasks.
            done, total = total or 1, total or 1
        bar = Bar(done, total, elapsed, self.share.read())
        functions = None if self.functions is None else self.functions.read(ending == "")
        return BarState(self.computation.number, self.name, bar, ending, functions)


class ProgressBar(Diagnostic):
    """Show the progress of each computation and the CPU share of its tasks.

    Parameters
    ----------
    minimum : float, default 0
        Show nothing for computations shorter than this, in seconds.
    width : int, default 40
        Width of the bar in characters.
    dt : float, default 0.1
        Seconds between updates.
    out : file, optional
        File to write to. Default: ``sys.stdout`` at the time of each update.
    label : str, default ""
        Text before the bar.
    bar : tqdm or rich.progress.Progress, optional
        Your own bar, to show the progress in; `width`, `out` and `by` are then ignored. Default: a
        bar of dask_diag.
    by : {"function"}, optional
        Show below the bar a line for each of the 10 functions with most tasks, on a terminal and in
        a notebook. Default: only the bar.

    Attributes
    ----------
    last_duration : float
        Seconds that the last finished computation took.

    Raises
    ------
    DiagnosticError
        If an argument is not as described.

    Notes
    -----
    On a terminal and in a notebook, one line is redrawn. In a log file, a whole line is written for
    each 10% of the tasks, at most every `dt` seconds; a computation shorter than 1 s has one line.

    While a computation runs, the line shows finished and total tasks and the elapsed time. After 1
    s and 5% of the tasks it also shows about how many seconds are left, if the remaining tasks take
    as long as the finished ones. The last fields are the CPU share (CPU time of the finished tasks
    divided by their task time) and, if several computations run, which one it is. At the end, the
    line is that of dask's bar, with the CPU share, and says if the computation failed.

    On a cluster of distributed, the client's event loop draws the bar, about twice per second and
    when a computation ends; no thread is started. A computation starts when an idle client submits
    tasks and ends when all its tasks have finished: a burst of ``submit`` calls shows one bar.

    A bar of tqdm or rich starts again with each computation and adds up computations that overlap.
    The CPU share is tqdm's postfix, or the field ``cpu`` of rich's task. If a computation fails,
    the bar stays as it is and says so. You must start a ``Progress``, and close either kind of bar,
    yourself.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_diag import ProgressBar
    >>> with ProgressBar():  # doctest: +ELLIPSIS
    ...     da.ones(1000, chunks=100).sum().compute()
    [###...#] | 100% Completed | ...
    >>> from tqdm.auto import tqdm
    >>> with tqdm(unit="task") as bar, ProgressBar(bar=bar):    # doctest: +SKIP
    ...     da.ones(1000, chunks=100).sum().compute()
    """

    measures_tasks = True

    def __init__(
        self,
        minimum: float = 0,
        width: int = 40,
        dt: float = 0.1,
        out: TextIO | Place | None = None,
        label: str = "",
        *,
        bar: object = None,
        by: str | None = None,
    ) -> None:
        super().__init__()
        least = number("minimum", minimum, "seconds", above=0, or_equal=True)
        columns = int(number("width", width, "characters", above=1, or_equal=True))
        between = number("dt", dt, "seconds between updates", above=0, or_equal=True)
        self._dt = max(between, _SHORTEST_UPDATE)
        if by not in (None, "function"):
            raise ArgumentValueError(f"by: expected 'function' or None, found {by!r}")
        self._by_function = by is not None
        fault = partial(self.fault, "to write the bar")
        text = " ".join(str(label or "").split())
        place = out if isinstance(out, Place) else ProgressOutput(out, columns, fault)
        self._display: BarLines | UsersBar
        if bar is None:
            self._display = BarLines(place, text, columns, least, self._dt)
        else:
            self._display = _users_bar(bar, text, least, fault)
        self._bars: dict[int, _Running] = {}
        self._count = 0
        self._cluster_lock = threading.Lock()
        self._cluster_numbers: dict[tuple[str, str], int] = {}
        self._cluster_ended: set[tuple[str, str]] = set()
        self._timer: PeriodicThread | None = None
        self.last_duration: float = 0

    @property
    def recording(self) -> Recording:
        """Running computations and the last finished one, with their tasks."""
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
            name = self._name(self._count)
            functions = DoneByFunction(computation) if self._by_function else None
            running = _Running(computation, name, CpuShare(computation), functions)
            self._bars[computation.number] = running
            if len(self._bars) == 1:
                fault = partial(self.fault, "to draw")
                self._timer = PeriodicThread("progress", self._dt, self._redraw, fault, self._dt)

    def _name(self, number: int) -> str:
        """Name of a computation; empty if there is only one."""
        return "" if number == 1 and not self._registered else f"computation {number}"

    def computation_ends(self, computation: Computation, failed: bool) -> None:
        """Draw the last state of a computation."""
        with self._lock:
            running = self._bars.pop(computation.number, None)
            # A computation that starts from here on gets a timer of its own.
            timer = None if self._bars else self._timer
        if timer is not None:
            timer.stop()
        if running is None:
            return
        self.last_duration = (computation.stop or perf_counter()) - computation.start
        with self._lock:
            state = running.state(self.last_duration, "failed" if failed else "")
            self._display.show([state])

    def _redraw(self, due: float) -> None:
        with self._lock:
            self._guarded("to draw", self._draw)

    def _draw(self) -> None:
        now = perf_counter()
        running = [
            running.state(now - running.computation.start) for running in self._bars.values()
        ]
        self._display.show(running)

    def _wants(self) -> Wants:
        return {"progress": True}

    def _received(self, log: ClusterLog) -> None:
        # A thread that waits for this event loop may hold the lock of this profiler: it is not
        # taken here.
        states = self._cluster_states(log, perf_counter() + log.offset)
        for state in states:
            if state.ending is not None:
                self.last_duration = state.bar.elapsed
        self._display.show(states)

    def _cluster_states(self, log: ClusterLog, now: float) -> list[BarState]:
        """States of the computations of a cluster, ended ones first and only once."""
        states = []
        with self._cluster_lock:
            for computation in log.computations.copy().values():
                key = log.scheduler, computation.name
                if key in self._cluster_ended:
                    continue
                number = self._count + len(self._cluster_numbers) + 1
                number = self._cluster_numbers.setdefault(key, number)
                ending = _ending_of(computation, log.has_ended)
                if ending is not None:
                    self._cluster_ended.add(key)
                functions = list(starmap(FunctionTasks, computation.functions))
                took = computation.seconds
                bar = Bar(
                    sum(function.done for function in functions),
                    sum(function.total for function in functions),
                    max((computation.stop or now) - computation.start, 0.0),
                    computation.cpu / took if took > 0 else None,
                )
                by_function = functions if self._by_function else None
                state = BarState(key, self._name(number), bar, ending, by_function)
                states.append((ending is None, number, state))
        return [state for *_, state in sorted(states, key=lambda state: state[:2])]
