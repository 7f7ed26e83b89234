"""dask-diag run on a terminal: its bar is below the program's output, which is as without it."""

import re
import sys
import textwrap
from pathlib import Path

import pytest

from .commands import COMMAND

if sys.platform == "win32":
    pytest.skip("terminals are made with pty", allow_module_level=True)

from .screen import Screen, seen_on_screen

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]

RUN = [*COMMAND, "run", "-f"]
BAR = re.compile(r"\[[# ]{0,30}\] \d+% \| \d+/\d+ \| ")
"""Ours while a computation runs."""
SUMMARY = re.compile(r"[\d.]+ m?s of wall time|dask-diag: making ")

BEGINS = """
import itertools, logging, os, subprocess, sys, threading, time
import dask
started = itertools.count()
def wait(n, work=lambda n: None):
    # Dask runs them in an order of its own.
    work(next(started))
    time.sleep(0.14)
    return n
def compute(work=lambda n: None, count=20, **options):
    tasks = [dask.delayed(wait)(n, work) for n in range(count)]
    return dask.compute(*tasks, **{"scheduler": "threads", "num_workers": 2, **options})
"""
"""A computation of 1.4 s: from a second on it has a bar."""


def program(body):
    Path("program.py").write_text(BEGINS + textwrap.dedent(body))
    return "program.py"


def shown(body, *options, **settings):
    """The screens of a program that dask-diag runs; it has to end well."""
    screens, status = seen_on_screen([*RUN, *options, program(body)], **settings)
    assert status == 0, "\n".join(screens[-1])
    return screens


def without_bar(lines):
    """The rows of a program: those above the bar, or above the summary."""
    rows = []
    for row in lines:
        if BAR.match(row) or SUMMARY.match(row):
            break
        rows.append(row)
    return rows


def had_bar(screens):
    return any(BAR.match(row) for rows in screens for row in rows)


def test_the_screen_shows_what_a_terminal_shows():
    screen = Screen(columns=5, rows=3)
    screen.feed("a\r\nbcdefg\r\n")
    assert screen.lines == ["a", "bcdef", "g"]
    screen.feed("x\x1bD\x1b[A\x1b7\x1b[B\rbar\x1b8y")
    assert screen.lines == ["a", "bcdef", "g", "xy", "bar"]
    screen.feed("\x1b[Jz\rA\x1b[K\b\x1b[1mB")
    assert screen.lines == ["a", "bcdef", "g", "B"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_lines_of_the_program_are_whole_at_each_moment(unbuffered):
    """Also those of a handler that has the stream of before, and of what writes bytes."""
    body = """
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    sys.stderr = open(2, "w", buffering=1, closefd=False)
    lock, buffer = threading.Lock(), sys.stdout.buffer
    writers = [
        lambda n: print("line", n),
        lambda n: print("line", n, file=sys.__stderr__),
        lambda n: logging.warning("line %d", n),
        lambda n: (buffer.write(b"line %d\\n" % n), buffer.flush()),
    ]
    def write(n):
        # Without a buffer each part is written alone, and lines of two threads would mix.
        with lock:
            writers[n % len(writers)](n)
    print("starts")
    compute(write, count=30)
    print("ends")
    """
    screens = shown(body, rows=8, PYTHONUNBUFFERED=unbuffered)
    assert had_bar(screens)
    allowed = {"starts", "ends", *(f"line {n}" for n in range(30))}
    for rows in screens:
        *whole, last = without_bar(rows) or [""]
        assert set(whole) <= allowed
        assert any(line.startswith(last) for line in allowed)
    rows = without_bar(screens[-1])
    assert sorted(rows) == sorted(allowed)
    assert (rows[0], rows[-1]) == ("starts", "ends")


def test_the_bar_is_still_there_after_a_line_and_does_not_flicker():
    screens = shown("compute(lambda n: n % 4 or print('line', n), count=40)")
    bars = [any(map(BAR.match, rows)) for rows in screens]
    first, last = bars.index(True), len(bars) - bars[::-1].index(True)
    assert last - first > 5
    # Between being erased and drawn again, a piece may be read.
    assert sum(bars[first:last]) > 0.6 * (last - first)


OWN_BARS = {
    "dask's that comes late": "from dask.diagnostics import ProgressBar\n"
    "with ProgressBar(minimum=1.5): compute(count=30)",
    "ours": "from dask_diag import ProgressBar\nwith ProgressBar(out=sys.stdout): compute()",
    "tqdm": "from tqdm import tqdm\nwith tqdm(total=20) as bar: compute(lambda n: bar.update())",
    "rich": "from rich.progress import Progress\nwith Progress() as bar:\n"
    "    task = bar.add_task('Works', total=20)\n    compute(lambda n: bar.advance(task))",
    "spinner": "compute(lambda n: print('-\\b', end='', flush=True))\nprint('x')",
}
DRAWN = re.compile(r"Completed|it/s|Works|done: |^[-x]$|^\[[# ]{40}\]")


@pytest.mark.parametrize("body", OWN_BARS.values(), ids=OWN_BARS)
def test_where_the_program_draws_a_bar_there_is_none_of_ours(body):
    Path("program.py").write_text(BEGINS + body + "\nprint('ends')\n")
    screens, status = seen_on_screen([*RUN, "program.py"], columns=110)
    assert status == 0, screens[-1]
    drawn = [any(map(DRAWN.search, rows)) for rows in screens]
    assert any(drawn)
    assert not had_bar(screens[drawn.index(True) :])
    rows = without_bar(screens[-1])
    assert rows[-1] == "ends"
    assert len(rows) <= 3


def test_a_line_that_is_not_ended_is_not_broken():
    body = """
    print("Loading... ", end="", flush=True)
    compute()
    print("done")
    """
    screens = shown(body)
    assert without_bar(screens[-1]) == ["Loading... done"]
    below = [rows for rows in screens if had_bar([rows])]
    assert below
    assert all(rows[0] == "Loading..." and BAR.match(rows[1]) for rows in below)


@pytest.mark.parametrize("imports", ["", "import readline"])
def test_who_is_asked_sees_the_question_and_what_is_typed(imports):
    body = f"""
    {imports}
    thread = threading.Thread(target=compute)
    thread.start()
    name = input("Name: ")
    print("Hello", name)
    thread.join()
    """
    typed = []

    def types(rows):
        if rows[:1] == ["Name:"] and not typed:
            typed.append("Ada\n")
            return "Ada\n"
        return None

    screens = shown(body, does=types)
    assert without_bar(screens[-1]) == ["Name: Ada", "Hello Ada"]
    assert had_bar(screens)


def test_a_line_that_is_not_seen_coming_has_a_row_of_its_own():
    """Of a system call and of another process, some time after each other."""
    body = """
    def write(n):
        if n == 12:
            os.write(1, b"line 12\\n")
        elif n == 20:
            subprocess.run(["echo", "line 20"])
    compute(write, count=30)
    """
    screens = shown(body)
    assert had_bar(screens)
    assert without_bar(screens[-1]) == ["line 12", "line 20"]


def test_a_screen_that_gets_narrow_has_a_narrow_bar():
    resized = []

    def resizes(rows):
        if any(map(BAR.match, rows)) and not resized:
            resized.append(rows)
            return 30
        return None

    body = "compute(count=30)"
    screens = shown(body, does=resizes, columns=70)
    assert resized
    *_, last = [rows[-1] for rows in screens if rows and re.match(r"\[[# ]*\] \d", rows[-1])]
    assert 15 < len(last) < 30


def test_a_program_that_reads_keys_itself_is_left_alone():
    body = """
    import tty
    tty.setcbreak(0)
    compute()
    """
    assert not had_bar(shown(body))


@pytest.mark.parametrize(("option", "variables"), [("--no-progress", {}), ("-f", {"TERM": "dumb"})])
def test_who_wants_no_bar_has_the_summary(option, variables):
    screens = shown("compute()", option, **variables)
    assert not had_bar(screens)
    assert any("in 1 computation: 20 tasks on 2 workers" in row for row in screens[-1])
    assert "making" not in str(screens)


def test_the_streams_are_as_they_were_when_the_program_has_ended():
    body = """
    import atexit
    hooked = [name for name in ("write", "flush") if name in vars(sys.stdout.buffer)]
    atexit.register(lambda: print(hooked, vars(sys.stdout.buffer), vars(sys.stderr.buffer)))
    """
    screens = shown(body, PYTHONUNBUFFERED="")
    assert screens[-1][-1] == "['write', 'flush'] {} {}"
