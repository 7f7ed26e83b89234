"""Pictures of a terminal: SVG files that move, made of what was on it at some times."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Sequence

from rich.ansi import AnsiDecoder
from rich.console import Console, Group, RenderableType
from rich.text import Text

SECONDS_A_FRAME = 1.2
SECONDS_OF_THE_LAST = 5.0
MOST_FRAMES = 14
"""A reader does not wait a minute for the last one."""
LINE_BELOW = re.compile(r"\x1b\[J\x1bD\x1b\[A\x1b7\x1b\[B\r(.*?)\x1b8")
"""What ``dask-diag run`` shows below the output of a program, until it is drawn again or erased."""


def picture(content: RenderableType, title: str, width: int, number: int = 0) -> str:
    """An SVG of a terminal that shows something."""
    console = Console(file=io.StringIO(), width=width, record=True, highlight=False)
    console.print(content)
    svg = console.export_svg(title=title, unique_id=f"frame{number}")
    # Fonts of the network, which a picture in a page does not load.
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    # Where another picture has more lines, this one is at its top.
    return svg.replace("<svg ", '<svg preserveAspectRatio="xMinYMin meet" ', 1)


def moving_picture(frames: Sequence[RenderableType], title: str, width: int) -> str:
    """An SVG that shows frames in turn, the last one longest; who wants no motion sees that one.

    Of many frames some are shown, evenly chosen, among them the first and the last.
    """
    count = min(len(frames), MOST_FRAMES)
    steps = max(1, count - 1)
    frames = [frames[n * (len(frames) - 1) // steps] for n in range(count)]
    frames = _equally_tall(frames, width)
    pictures = [picture(frame, title, width, number) for number, frame in enumerate(frames)]
    boxes = [re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', image) for image in pictures]
    size = [max(float(box[axis]) for box in boxes if box) for axis in (1, 2)]
    total = SECONDS_A_FRAME * (len(frames) - 1) + SECONDS_OF_THE_LAST
    parts = [_style(len(frames), total)]
    parts += [f'<g class="frame" id="shown{n}">{svg}</g>' for n, svg in enumerate(pictures)]
    return (
        f'<svg viewBox="0 0 {size[0]} {size[1]}" xmlns="http://www.w3.org/2000/svg">'
        + "\n".join(parts)
        + "</svg>\n"
    )


def _equally_tall(frames: Sequence[RenderableType], width: int) -> list[RenderableType]:
    """The same, with empty lines below: a terminal does not change its height."""
    console = Console(file=io.StringIO(), width=width)
    lines = [len(console.render_lines(frame)) for frame in frames]
    missing = [max(lines) - height for height in lines]
    return [
        Group(frame, Text("\n" * (count - 1))) if count else frame
        for frame, count in zip(frames, missing, strict=True)
    ]


def _style(count: int, total: float) -> str:
    rules = [".frame { visibility: hidden }"]
    for number in range(count):
        start = 100 * SECONDS_A_FRAME * number / total
        stop = 100 * SECONDS_A_FRAME * (number + 1) / total if number < count - 1 else 100
        rules += [
            f"@keyframes at{number} {{ 0%, 100% {{ visibility: hidden }} "
            f"{start:.2f}% {{ visibility: visible }} {stop:.2f}% {{ visibility: hidden }} }}",
            f"#shown{number} {{ animation: at{number} {total:g}s step-end infinite }}",
        ]
    rules += [
        "@media (prefers-reduced-motion: reduce) { .frame { animation: none !important } "
        f"#shown{count - 1} {{ visibility: visible }} }}"
    ]
    return f"<style>{' '.join(rules)}</style>"


def frames_of(command: Sequence[str], shown: str, width: int, folder: str) -> list[RenderableType]:
    """What a command shows on a terminal: at each `SECONDS_A_FRAME`, and in the end.

    Parameters
    ----------
    command : sequence of str
    shown : str
        What a user would have typed.
    width : int
        Columns of the terminal.
    folder : str
        Where it runs. It is left out of what is shown: readers have other folders.
    """
    terminal, side_of_program = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(width), "TERM": "xterm-256color"}
    process = subprocess.Popen(
        command,
        stdin=side_of_program,
        stdout=side_of_program,
        stderr=side_of_program,
        env=environment,
        cwd=folder,
        close_fds=True,
    )
    os.close(side_of_program)
    output, texts, due = "", [], time.monotonic() + SECONDS_A_FRAME
    while process.poll() is None or select.select([terminal], [], [], 0)[0]:
        if select.select([terminal], [], [], 0.05)[0]:
            try:
                output += os.read(terminal, 65_536).decode(errors="replace")
            except OSError:
                break
        if time.monotonic() >= due:
            due += SECONDS_A_FRAME
            texts.append(output)
    os.close(terminal)
    texts = [text.replace(f"{folder}/", "") for text in [*dict.fromkeys(texts), output]]
    return [_screen(shown, text) for text in texts]


def _screen(typed: str, output: str) -> RenderableType:
    """What a terminal shows after an output that overwrites its last line or the one below it."""
    *texts, text = parts = LINE_BELOW.split(output)
    output = "".join(parts[::2])
    if texts and "\x1b[J" not in text:
        output += f"\n{texts[-1]}"
    lines = [re.sub(r".*(?:\r|\x1b\[2K)(?=.)", "", line) for line in output.split("\n")]
    text = "\n".join(re.sub(r"\x1b\[\??\d*[A-KSThl]|\r", "", line) for line in lines)
    return Group(Text(f"$ {typed}"), *AnsiDecoder().decode(text))
