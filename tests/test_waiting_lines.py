"""Lines that compute, lines that wait, and the lines of the reader's own code."""

import pytest

from dask_diag import summary
from dask_diag.analysis.call_tree import is_standard_library
from dask_diag.analysis.lines import computing_lines, waiting_lines
from dask_diag.views.hottest import flame_summary

from .recordings import BUILT_IN, CORE, LEAF, recording_of_stacks, with_tables

pytestmark = pytest.mark.once

WAIT = ("Condition.wait", "/usr/lib/python3.11/threading.py", 320, 288)
GET = ("Queue.get", "/usr/lib/python3.11/queue.py", 171, 154)
LOAD = ("load", "/prog/user.py", 12, 10)
SOLVE = ("solve", "/prog/user.py", 40, 38)


def waits_and_computes():
    return recording_of_stacks(
        [
            ((0, 10), "f", [LOAD, GET, WAIT], 8.0, 0.0),
            ((0, 10), "f", [SOLVE], 2.0, 2.0),
            ((0, 10), "f", [SOLVE, WAIT], 1.0, 0.0),
        ]
    )


def test_a_wait_is_named_by_the_innermost_line_of_no_standard_library():
    rows = waiting_lines(waits_and_computes()).to_dicts()
    assert [(row["name"], row["line"], row["waiting"], row["inner"]) for row in rows] == [
        ("load", 12, 8.0, "Condition.wait"),
        ("solve", 40, 1.0, "Condition.wait"),
    ]
    assert len(waiting_lines(waits_and_computes(), 1)) == 1


def test_the_hottest_line_computes():
    assert computing_lines(waits_and_computes())["name"].tolist() == ["solve"]


def test_the_summary_lists_both():
    text = flame_summary(waits_and_computes())
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "/prog/user.py:40 solve 2.00 s 18% 3.00 s 27%" in rows
    assert "(waiting) 9.00 s 82%" in rows
    assert "- waited 8.00 s (73%): /prog/user.py:12 load in Condition.wait" in rows
    assert not any(row.startswith("threading.py") for row in rows)


def test_the_summary_of_a_recording_names_the_line_that_waited_longest():
    text = " ".join(summary(waits_and_computes(), verbose=True).split())
    assert "Hottest line /prog/user.py:40 in solve, 2.00 s self time" in text
    assert "Longest wait /prog/user.py:12 in load, 8.00 s waiting (73%" in text


def test_a_line_that_computes_and_waits_longest_is_named_once():
    both = recording_of_stacks(
        [((0, 5), "f", [SOLVE], 2.0, 2.0), ((0, 5), "f", [SOLVE, WAIT], 3, 0)]
    )
    text = " ".join(summary(both, verbose=True).split())
    assert (
        "Hottest line /prog/user.py:40 in solve, 2.00 s self time (40% of 5.00 s sampled); longest "
        "wait, too: 3.00 s waiting (60% of 5.00 s sampled)"
    ) in text
    assert "Longest wait" not in text


RUN = ("run", "/home/someone/program/main.py", 7, 3)
SENT = ("parse", "<dynamic-code>", 9, 8)
MADE = ("Point.__new__", "<string>", 1, 1)


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        # The innermost own line has what libraries and Python do for it, waits included.
        (
            [([RUN, SOLVE, CORE, LEAF], 3.0), ([RUN, LOAD, CORE, GET], 4.0), ([RUN], 1.0)],
            "user.py:12 in load: 4.00 s with calls, 50% of task time",
        ),
        ([([CORE, SENT, LEAF], 1.0)], "line 9 in parse: 1.00 s with calls, 100% of task time"),
        # A line of little time, or none: the line that called dask.
        (
            [([CORE, LEAF], 97.0), ([CORE, SOLVE], 3.0)],
            "mean.py:4 computes (2.00 s); tasks spend 97% of their time in libraries",
        ),
        (
            [([CORE, MADE], 1.0), ([BUILT_IN], 1.0), (None, 1.0)],
            "mean.py:4 computes (2.00 s); tasks spend 100% of their time in libraries",
        ),
        # Where little was sampled, nothing is said of libraries.
        ([([CORE], 1.0), (None, 2.0)], "mean.py:4 computes (2.00 s)"),
    ],
)
def test_the_summary_names_the_line_of_own_code_with_most_task_time(rows, line):
    measured = recording_of_stacks([((0, 9), "f", path, time, 0.0) for path, time in rows])
    text = " ".join(summary(with_tables(measured, **COMPUTED)).split())
    assert f"Your code {line} Profiling" in text


COMPUTED = {
    "computations": {
        "computation": ["a", "b", "c"],
        "start": [0.0, 1.0, 2.0],
        "stop": [1.0, 2.0, 3.5],
        "call_site": ["mean.py:4", "mean.py:4", "mean.py:9"],
    }
}


def test_without_samples_or_call_sites_nothing_is_said_of_own_code():
    assert "Your code" not in summary(recording_of_stacks([((0, 9), "f", [CORE], 1.0, 0.0)]))
    assert "Your code" not in summary(with_tables(recording_of_stacks([]), **COMPUTED))


def test_a_wait_with_nothing_else_on_its_stack_is_named_by_itself():
    recording = recording_of_stacks([((0, 1), "f", [WAIT], 1.0, 0.0)])
    assert waiting_lines(recording)["name"].tolist() == ["Condition.wait"]


def test_nothing_waited():
    recording = recording_of_stacks([((0, 1), "f", [SOLVE], 1.0, 1.0)])
    assert len(waiting_lines(recording)) == 0


@pytest.mark.parametrize(
    "file, expected",
    [
        ("/usr/lib/python3.11/threading.py", True),
        ("/opt/conda/lib/python3.12/concurrent/futures/thread.py", True),
        ("C:\\Python311\\Lib\\threading.py", True),
        ("<frozen importlib._bootstrap>", True),
        ("", True),
        ("/usr/lib/python3.11/site-packages/numpy/core.py", False),
        ("/usr/lib/python3/dist-packages/numpy/core.py", False),
        ("C:\\Python311\\Lib\\site-packages\\dask\\base.py", False),
        ("/home/me/lib/user.py", False),
    ],
)
def test_what_belongs_to_python(file, expected):
    assert is_standard_library(file) is expected
