"""The text of a summary at several widths, in colour and plain, and its page."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import dask.array as da
import pytest

from dask_diag import Profiler, summary
from dask_diag.views.cell import make_summary, table_summary
from dask_diag.views.colors import look_of
from dask_diag.views.page import summary_page
from dask_diag.views.text import FindingText, SummaryParts, text_of

from .terminal import in_terminal

pytestmark = pytest.mark.once

ESCAPE = re.compile(r"\x1b\[[\d;]*m")
PARTS = SummaryParts(
    headline="10.0 s of wall time, 20% of it computing in tasks\n10 s in 1 computation",
    warning="",
    findings=[
        FindingText("tasks-too-small", "high", "could save about 6 s", "Many tasks. " * 12),
        FindingText("imbalance", "low", "", "Some."),
    ],
    bar_title="Wall time 20 s",
    bar=[(look_of("overhead"), 0.6), (look_of("thread-cpu"), 0.3), (look_of("gil-wait"), 0.1)],
    columns=("function", "tasks"),
    rows=[("inc", "10"), ("total", "10")],
    lines=[("Phases", "before 1 s, " * 12), ("CPU", "10%")],
    notices=["A notice."],
)


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("color", [False, True])
def test_lines_fit_the_width_and_use_it(width, color):
    lines = ESCAPE.sub("", text_of(PARTS, width, color)).splitlines()
    assert max(map(len, lines)) == width
    (bar,) = [line for line in lines if "█" in line and "%" not in line]
    assert len(bar) == width
    assert bar.count("█") == round(0.6 * (width - 2))


def test_colour_changes_no_letter():
    assert ESCAPE.sub("", text_of(PARTS, 100, color=True)) == text_of(PARTS, 100)
    assert not ESCAPE.search(text_of(PARTS, 100))


def test_severity_stands_out():
    high, low = (
        line
        for line in text_of(PARTS, 80, color=True).splitlines()
        if "tasks-too-small" in line or "imbalance" in line
    )
    assert high.startswith("\x1b[1;31m! tasks-too-small (high): could save about 6 s")
    assert low.startswith("\x1b[1m! imbalance (low)")


def test_a_summary_can_be_drawn_again():
    summary = make_summary(PARTS)
    assert summary == text_of(PARTS, 80)
    assert summary.for_terminal(120) == text_of(PARTS, 120)
    assert summary.for_terminal(120, color=True) == text_of(PARTS, 120, color=True)


def test_a_narrow_terminal_gets_sixty_columns():
    assert text_of(PARTS, 20) == text_of(PARTS, 60)


ROOT = Path(__file__).parents[1]
PRINTS = """
from dask_diag.cli.output import print_result
from tests.test_summary_text import PARTS
from dask_diag.views.cell import make_summary, table_summary
print_result(make_summary(PARTS))
"""


def printed(columns, **variables):
    """What a terminal of so many columns gets."""
    status, text = in_terminal([sys.executable, "-c", PRINTS], columns, cwd=ROOT, **variables)
    assert status == 0
    return text.rstrip("\n")


@pytest.mark.skipif(sys.platform == "win32", reason="terminals are made with pty")
@pytest.mark.parametrize(
    "columns, variables, width, color",
    [
        (100, {}, 100, True),
        (300, {}, 120, True),
        (100, {"NO_COLOR": "1"}, 100, False),
        (100, {"TERM": "dumb"}, 100, False),
    ],
)
def test_a_terminal_is_filled_and_in_colour(columns, variables, width, color, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert printed(columns, **variables) == text_of(PARTS, width, color)


@pytest.mark.parametrize(
    "columns, width", [("", 80), ("x", 80), ("0", 80), ("70", 70), ("150", 150)]
)
def test_a_pipe_is_plain_and_as_wide_as_columns_says(columns, width):
    environment = {**os.environ, "COLUMNS": columns}
    command = [sys.executable, "-c", PRINTS]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=True, cwd=ROOT
    )
    assert done.stdout.rstrip("\n") == text_of(PARTS, width)


def test_a_file_has_whole_names():
    long = [("f" * 90, "10", "1 s"), ("g", "1", "2 s")]
    table = make_summary(SummaryParts("1 s", ("function", "tasks", "time"), long))
    assert "…" in table
    whole = table.for_terminal(80, cuts_names=False)
    assert "f" * 90 in whole
    assert "…" not in whole
    short = make_summary(PARTS)
    assert short.for_terminal(80, cuts_names=False) == short


def test_both_sentences_of_a_headline_are_lines_in_a_notebook_too():
    table = table_summary("3 s in all: waiting <GIL>\n2 s in 1 computation", ("f",), [], [])
    assert (
        "<strong>3 s in all: waiting &lt;GIL&gt;</strong><br>2 s in 1 computation<"
        in table._repr_html_()
    )


def test_no_line_ends_between_a_number_and_its_unit():
    text = "Tasks waited 1.02 s, 3 ms, 20.5 kB, 7 MB, 4 GB, 9 µs, 5 B and 3 tasks. " * 4
    finding = FindingText("a", "high", "about 2 s lost", text)
    for width in range(60, 121):
        lines = text_of(SummaryParts(text, ("f",), [], findings=[finding]), width).splitlines()
        assert max(map(len, lines)) <= width
        assert not [line for line in lines if re.match(r"\s*(s|ms|µs|[kMG]?B)\b", line)]


HOSTILE = "<script>alert('x')</script>"
ROWS = [(HOSTILE, "1 s → 3 s", "slower"), ("g", "3 s", "faster"), ("total", "4 s", "unchanged")]
SUMMARY = table_summary(f"2 runs {HOSTILE}", ("function", "before", ""), ROWS, [HOSTILE])


def test_rows_are_marked_by_their_verdict_and_names_are_text():
    page = summary_page(SUMMARY, f"title {HOSTILE}", f"heading {HOSTILE}")
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 5
    assert re.findall(r'<tr class="(\w+)">', page) == ["slower", "faster"]


def test_it_has_the_frame_of_all_pages_and_needs_no_network():
    page = summary_page(SUMMARY, "title")
    assert '<meta name="referrer" content="no-referrer">' in page
    assert "var(--high)" in page
    assert "--high: " in page
    assert "://" not in page


def test_a_fused_task_says_which_step_takes_its_time():
    def slowly(block):
        time.sleep(0.02)
        return block

    array = da.random.random((20, 2), chunks=(10, 2)).persist(scheduler="sync")
    with Profiler() as prof:
        array.map_blocks(slowly, dtype=float).mean().compute(scheduler="sync")
    assert "slowly (in random_sample)" in str(summary(prof))
