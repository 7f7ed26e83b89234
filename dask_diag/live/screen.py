"""Live view in a terminal: drawn again with each poll, left with `q` or Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.style import Style
from rich.table import Table
from rich.text import Text

from dask_diag.columns import FloatArray
from dask_diag.formatting import percent, size
from dask_diag.live.background import FindingsSoFar
from dask_diag.live.model import PERIOD, LiveModel
from dask_diag.live.texts import (
    duration,
    function_rows,
    line_rows,
    preparation_line,
    progress_lines,
    running_title,
    state_line,
)
from dask_diag.model.codes import Activity
from dask_diag.storage.follow import FollowState
from dask_diag.views.colors import NO_TASK, RUNNING, look_of
from dask_diag.views.escaping import shown
from dask_diag.views.findings import in_a_line

WIDTH, HEIGHT = 80, 24
_BARS = "▁▂▃▄▅▆▇█"
_COLORS = {
    FollowState.COMPLETE: "green",
    FollowState.TRUNCATED: "red",
    FollowState.DAMAGED: "red",
    FollowState.NOT_A_RECORDING: "red",
}


def screen(model: LiveModel, width: int, height: int, notice: str = "") -> RenderableType:
    """The present state.

    Parameters
    ----------
    model : LiveModel
    width, height : int
        Size of the terminal.
    notice : str
        Text of a finding.
    """
    style = f"bold {_COLORS.get(model.state, '')}".strip()
    lines: list[RenderableType] = [_line(state_line(model, 40), style)]
    lines += [_progress(line, model, width) for line in progress_lines(model)[:2]]
    if preparation := preparation_line(model):
        lines.append(_line(preparation))
    if model.has_rows:
        lines += [*_resources(model, width), _worker_time(model, width)]
        free = height - len(lines) - 2 - bool(notice)
        built = _built(model, free // 4)
        lines += built
        free -= sum(table.row_count + 1 for table in built)
        running = model.running[: max(1, free // 3)]
        lines.append(_functions(model, width, max(1, free - len(running) - 2 * bool(running))))
        if running:
            table = _table(running_title(model))
            table.add_column("worker", no_wrap=True)
            table.add_column("for", justify="right", no_wrap=True)
            for task in running:
                took = duration(model.now - task.start)
                table.add_row(Text(shown(task.key, 70)), shown(task.worker), took)
            lines.append(table)
    if notice:
        lines.append(_line(notice, "yellow"))
    return Group(*lines)


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _progress(line: str, model: LiveModel, width: int) -> Text:
    text = _line(line)
    space = width - len(line) - 3
    if model.share is not None and space >= 10:
        filled = int(space * model.share)
        text.append("  ")
        text.append("█" * filled, style="green")
        text.append("░" * (space - filled), style="bright_black")
    return text


def _resources(model: LiveModel, width: int) -> Iterator[Text]:
    """CPU and memory as sparklines."""
    cpu, memory, machine = model.resources["cpu"], model.memory, model.machine
    if not len(cpu):
        return
    others = float(np.nan_to_num(model.resources["cpu_other_processes"][-1]))
    limit = f" of {percent(machine.cpus)}" if machine.cpus else ""
    cpu_text = f"CPU {percent(float(cpu[-1]) / 100)}{limit}, others {percent(others / 100)}"
    limit = f" of {size(machine.memory)}" if machine.memory else ""
    cached = f", cached {size(model.cached_bytes)}" if model.cached_bytes else ""
    memory_text = f"memory {size(float(memory[-1]))}{limit}{cached}"
    # Up to the limit of a machine with much memory a line would be flat.
    most = float(memory.max(initial=0.0))
    lines = ((cpu_text, cpu, 100.0 * machine.cpus), (memory_text, memory, most))
    for label, values, upper in lines:
        line = sparkline(values, upper, max(10, width - 46))
        yield Text(f"{label:<44.44} {line}", no_wrap=True, overflow="crop")


def sparkline(values: FloatArray, limit: float, width: int) -> str:
    """The last values as bars."""
    last = np.nan_to_num(values[-width:])
    most = max(float(last.max(initial=0.0)), limit) or 1.0
    heights = np.minimum((last / most * len(_BARS)).astype(int), len(_BARS) - 1)
    return "".join(_BARS[height] for height in heights.tolist())


def _worker_time(model: LiveModel, width: int) -> Text:
    """Worker time by state, in words and as one bar."""
    time = model.worker_time()
    total = sum(time)
    text = Text(no_wrap=True, overflow="crop")
    if not total:
        return text
    names = ("CPU", "off the CPU", "still running", "no task")
    parts = (look_of(Activity.CPU), look_of(Activity.NONCPU), RUNNING, NO_TASK)
    looks = tuple((sign, part.terminal) for sign, part in zip("█▓▒░", parts, strict=True))
    text.append("workers: ")
    for name, value, (sign, color) in zip(names, time, looks, strict=True):
        if value / total >= 0.005:
            text.append(sign, style=color)
            text.append(f" {name} {percent(value / total)}  ")
    space = width - text.cell_len
    if space >= 8:
        ends = np.round(np.cumsum(time) / total * space).astype(int)
        for (sign, color), cells in zip(looks, np.diff(ends, prepend=0).tolist(), strict=True):
            text.append(sign * cells, style=color)
    return text


def _functions(model: LiveModel, width: int, rows: int) -> Table:
    """The functions that took most time, and progress of each."""
    bar = max(6, width // 6)
    table = _table("function")
    for title in ("done", "planned", "seconds", "CPU"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, width=bar)
    total = sum(sums.seconds for sums in model.functions.values())
    for row in islice(function_rows(model), rows):
        cells = round(bar * row.seconds / total) if total else 0
        texts = (row.done, row.planned, row.time, row.cpu)
        table.add_row(Text(row.name), *texts, Text("█" * cells, style=Style(color=row.color)))
    return table


def _built(model: LiveModel, rows: int) -> list[Table]:
    """The lines that built most task time, if known."""
    table = _table("line that built it")
    for title in ("share", "task time"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, *cells in line_rows(model, rows):
        table.add_row(Text(name), *cells)
    return [table] if table.row_count else []


def _table(first: str) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), expand=True, pad_edge=False)
    table.add_column(first, no_wrap=True, overflow="ellipsis", ratio=1)
    return table


def show_in_terminal(path: str, console: Console) -> None:
    """Draw until the recording is over, then print the last frame; or until the user leaves."""
    model, findings = LiveModel(path), FindingsSoFar(Path(path))
    model.poll()
    with _keys() as key_within, contextlib.suppress(KeyboardInterrupt):
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while not model.is_over:
                size = console.size
                frame = screen(model, size.width, size.height - 1, _notice(findings))
                live.update(frame, refresh=True)
                findings.refresh(model)
                if key_within(PERIOD) == "q":
                    return
                model.poll()
        _print_end(model, findings, console)


def show_last_frame(
    path: str, console: Console, wait: Callable[[float], None] = time.sleep
) -> None:
    """Print one frame, when the recording is over or the user leaves."""
    model = LiveModel(path)
    model.poll()
    with contextlib.suppress(KeyboardInterrupt):
        while not model.is_over:
            wait(PERIOD)
            model.poll()
    _print_end(model, FindingsSoFar(Path(path)), console)


def _print_end(model: LiveModel, findings: FindingsSoFar, console: Console) -> None:
    if model.is_over:
        findings.finish(model)
    console.print(screen(model, console.width, HEIGHT - 1, _notice(findings)))


def _notice(findings: FindingsSoFar) -> str:
    """The largest finding, in a line."""
    return in_a_line(findings.findings[0]) if findings.findings else ""


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Yield a function that returns the key pressed within some seconds, or an empty string."""

    def key_within(seconds: float) -> str:
        if file is None:
            time.sleep(seconds)
            return ""
        ready = select.select([file], [], [], seconds)[0]
        return os.read(file, 1).decode("ascii", "replace") if ready else ""

    file = None
    with contextlib.suppress(AttributeError, OSError, ValueError):
        if os.isatty(sys.stdin.fileno()) and sys.platform != "win32":
            file = sys.stdin.fileno()
    if file is None:
        yield key_within
        return
    import termios
    import tty

    before = termios.tcgetattr(file)
    try:
        tty.setcbreak(file)
        yield key_within
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)
