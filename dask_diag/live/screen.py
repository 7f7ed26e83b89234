"""A live view in a terminal: drawn again with each poll, left with `q` or Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.style import Style
from rich.table import Table
from rich.text import Text

from dask_diag.columns import FloatArray
from dask_diag.formatting import count, percent, seconds, size
from dask_diag.live.background import FindingsSoFar
from dask_diag.live.model import LiveModel, RunningTask
from dask_diag.live.texts import (
    duration,
    preparation_line,
    progress_lines,
    running_title,
    state_line,
)
from dask_diag.live.viewer import PERIOD, Viewer
from dask_diag.storage.follow import FollowState
from dask_diag.views.escaping import shown
from dask_diag.views.findings import lost

_BARS = "▁▂▃▄▅▆▇█"
_NARROW = 60
_COLORS = {
    FollowState.COMPLETE: "green",
    FollowState.TRUNCATED: "red",
    FollowState.DAMAGED: "red",
    FollowState.NOT_A_RECORDING: "red",
}


def screen(viewer: Viewer, width: int, height: int, notice: str = "") -> RenderableType:
    """The present state.

    Parameters
    ----------
    viewer : Viewer
    width, height : int
        Of the terminal.
    notice : str
        What a finding says, if there is one.
    """
    model, now = viewer.model, viewer.now
    lines: list[RenderableType] = [
        Text(
            state_line(model, shown(viewer.name, 40), now),
            style=f"bold {_COLORS.get(model.state, '')}".strip(),
            no_wrap=True,
            overflow="ellipsis",
        )
    ]
    lines += [_progress(line, model, width) for line in progress_lines(model, now)[:2]]
    if preparation := preparation_line(model):
        lines.append(Text(preparation, no_wrap=True, overflow="ellipsis"))
    if model.has_rows:
        lines += [*_resources(model, width), _worker_time(model, width)]
        lines_free = height - len(lines) - 2 - bool(notice)
        running = model.running[: max(1, lines_free // 3)]
        lines += [_functions(model, width, max(1, lines_free - len(running) - 2 * bool(running)))]
        if running:
            lines.append(_running(running, running_title(model), now))
    if notice:
        lines.append(Text(notice, style="yellow", no_wrap=True, overflow="ellipsis"))
    return Group(*lines)


def _progress(line: str, model: LiveModel, width: int) -> Text:
    text = Text(line, no_wrap=True, overflow="ellipsis")
    shares = [progress.share for progress in model.progress.running.values() if progress.total]
    space = width - len(line) - 3
    if shares and space >= 10:
        filled = int(space * shares[0])
        text.append("  ")
        text.append("█" * filled, style="green")
        text.append("░" * (space - filled), style="bright_black")
    return text


def _resources(model: LiveModel, width: int) -> Iterator[Text]:
    """CPU and memory as lines of bars, up to the machine's limits."""
    space = max(10, width - 46)
    cpu = model.resources("cpu")
    if not len(cpu):
        return
    limit = 100.0 * model.machine.cpus
    others = float(np.nan_to_num(model.resources("cpu_others")[-1]))
    text = f"CPU {percent(float(cpu[-1]) / 100)}"
    text += f" of {percent(limit / 100)}" if limit else ""
    yield _labelled(text + f", others {percent(others / 100)}", sparkline(cpu, limit, space))
    memory = model.resources("memory") + model.resources("memory_children")
    limit = model.machine.memory
    text = f"memory {size(float(memory[-1]))}"
    text += f" of {size(limit)}" if limit else ""
    text += f", cached {size(model.cached_bytes)}" if model.cached_bytes else ""
    peak = float(memory.max(initial=0.0))
    # On a machine with much memory a line up to its limit would be flat.
    yield _labelled(text, sparkline(memory, peak, space))


def _labelled(text: str, line: str) -> Text:
    return Text(f"{text:<44.44} {line}", no_wrap=True, overflow="crop")


def sparkline(values: FloatArray, limit: float, width: int) -> str:
    """The last values, of which each is a bar."""
    last = np.nan_to_num(values[-width:])
    most = max(float(last.max(initial=0.0)), limit) or 1.0
    heights = np.minimum((last / most * len(_BARS)).astype(int), len(_BARS) - 1)
    return "".join(_BARS[height] for height in heights.tolist())


def _worker_time(model: LiveModel, width: int) -> Text:
    """What workers did, as one bar and in words."""
    time = model.worker_time()
    total = sum(time)
    if not total:
        return Text("")
    parts = (
        ("CPU", time.cpu, "█", "blue"),
        ("waiting", time.waiting, "▓", "yellow"),
        ("running", time.running, "▒", "cyan"),
        ("no task", time.no_task, "░", "bright_black"),
    )
    text = Text(no_wrap=True, overflow="crop")
    text.append("workers: ")
    for name, value, sign, color in parts:
        if value / total >= 0.005:
            text.append(sign, style=color)
            text.append(f" {name} {percent(value / total)}  ")
    space = width - text.cell_len
    for (_, _, sign, color), cells in zip(parts, _cells([p[1] for p in parts], space), strict=True):
        text.append(sign * cells, style=color)
    return text


def _cells(values: Sequence[float], space: int) -> list[int]:
    """Whole cells that sum to the space."""
    if space < 8:
        return [0] * len(values)
    ends = np.round(np.cumsum(values) / sum(values) * space).astype(int)
    return [int(cells) for cells in np.diff(ends, prepend=0)]


def _functions(model: LiveModel, width: int, rows: int) -> Table:
    """The functions that took most time, and how many of their tasks are done."""
    planned = model.progress.planned_by_function()
    colors = model.colors()
    table = Table(box=None, padding=(0, 1, 0, 0), expand=True, pad_edge=False)
    table.add_column("function", no_wrap=True, overflow="ellipsis", ratio=1)
    for title in ("done", "planned", "seconds", "CPU"):
        table.add_column(title, justify="right", no_wrap=True)
    total = sum(sums.seconds for sums in model.functions.values())
    table.add_column("", no_wrap=True, width=max(6, width // 6))
    for name in model.functions_by_time()[:rows]:
        sums = model.functions.get(name)
        took = sums.seconds if sums else 0.0
        cells = round(max(6, width // 6) * took / total) if total else 0
        table.add_row(
            Text(shown(name, 60)),
            count(sums.tasks if sums else 0),
            count(planned[name]) if name in planned else "",
            seconds(took) if sums else "",
            percent(sums.cpu / took) if sums and took else "",
            Text("█" * cells, style=Style(color=colors[name])),
        )
    return table


def _running(running: Sequence[RunningTask], title: str, now: float) -> Table:
    """The tasks that run longest."""
    table = Table(box=None, padding=(0, 1, 0, 0), expand=True, pad_edge=False)
    table.add_column(title, ratio=1, no_wrap=True)
    table.add_column("worker", no_wrap=True)
    table.add_column("for", justify="right", no_wrap=True)
    for task in running:
        table.add_row(Text(shown(task.key, 70)), shown(task.worker), duration(now - task.start))
    return table


WIDTH, HEIGHT = 80, 24


def show_in_terminal(path: str, console: Console) -> None:
    """Draw until the recording is over, then leave its last frame; or until the user leaves."""
    viewer, findings = Viewer(path), FindingsSoFar(Path(path))
    viewer.poll()
    with _keys() as key_within, contextlib.suppress(KeyboardInterrupt):
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while not viewer.is_over:
                size = console.size
                frame = screen(viewer, size.width, size.height - 1, _notice(findings))
                live.update(frame, refresh=True)
                findings.refresh(viewer)
                if key_within(PERIOD) == "q":
                    return
                viewer.poll()
        _print_end(viewer, findings, console)


def show_last_frame(
    path: str, console: Console, wait: Callable[[float], None] = time.sleep
) -> None:
    """One frame, when the recording is over; or as it is when the user leaves."""
    viewer, findings = Viewer(path), FindingsSoFar(Path(path))
    viewer.poll()
    with contextlib.suppress(KeyboardInterrupt):
        while not viewer.is_over:
            wait(PERIOD)
            viewer.poll()
    _print_end(viewer, findings, console)


def _print_end(viewer: Viewer, findings: FindingsSoFar, console: Console) -> None:
    if viewer.is_over:
        findings.finish(viewer)
    console.print(screen(viewer, console.width, HEIGHT - 1, _notice(findings)))


def _notice(findings: FindingsSoFar) -> str:
    """The largest finding, in a line."""
    if not findings.findings:
        return ""
    first = findings.findings[0]
    return ": ".join(filter(None, (first.code, lost(first), first.advice)))


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """A function that waits for a key, and returns it, or nothing after so many seconds."""
    if not _stdin_is_terminal() or sys.platform == "win32":
        yield _only_wait
        return
    import termios
    import tty

    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    try:
        tty.setcbreak(file)

        def key_within(seconds: float) -> str:
            ready = select.select([file], [], [], seconds)[0]
            return os.read(file, 1).decode("ascii", "replace") if ready else ""

        yield key_within
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)


def _only_wait(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _stdin_is_terminal() -> bool:
    with contextlib.suppress(AttributeError, OSError, ValueError):
        return os.isatty(sys.stdin.fileno())
    return False
