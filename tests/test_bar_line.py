"""The line of a progress bar."""

import pytest

from dask_diag.profilers.progress import (
    Bar,
    FunctionTasks,
    bar_line,
    fitted,
    function_lines,
    largest,
)

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("bar", "line"),
    [
        (Bar(16, 40, 1.0, 0.74), "[####      ] 40% | 16/40 | 1.00 s, about 1.50 s left | 74% CPU"),
        (Bar(0, 40, 5.0, None), "[          ] 0% | 0/40 | 5.00 s"),
        # A twentieth, and a second, are the least that something is said from.
        (Bar(49, 1000, 9.0, 0.5), "[          ] 4% | 49/1,000 | 9.00 s | 50% CPU"),
        (
            Bar(50, 1000, 1.0, 0.5),
            "[          ] 5% | 50/1,000 | 1.00 s, about 19.0 s left | 50% CPU",
        ),
        (Bar(20, 40, 0.99, 0.5), "[#####     ] 50% | 20/40 | 990 ms | 50% CPU"),
        (Bar(40, 40, 2.0, 1.0), "[##########] 100% | 40/40 | 2.00 s | 100% CPU"),
    ],
)
def test_while_it_runs(bar, line):
    assert bar_line(bar, 10, has_ended=False) == line


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (53, "[#####     ] 50% | 20/40 | 8.00 s, about 8.00 s left"),
        (52, "[####     ] 50% | 20/40 | 8.00 s, about 8.00 s left"),
        (43, "[] 50% | 20/40 | 8.00 s, about 8.00 s left"),
    ],
)
def test_it_fits_into_one_line_of_a_terminal(columns, line):
    bar = Bar(20, 40, 8.0, None)
    text = fitted(lambda width: bar_line(bar, width, has_ended=False), 10, columns)
    assert text == line
    assert len(text) < columns


FUNCTIONS = [
    FunctionTasks("load", 1, 2),
    FunctionTasks("sum\n", 0, 1_000),
    *(FunctionTasks(f"f{n}", n, 5) for n in (1, 2)),
]


@pytest.mark.parametrize(
    ("most", "columns", "lines"),
    [
        (
            10,
            None,
            [
                "[          ] 0/1,000 sum\\n",
                "[##        ] 1/5 f1",
                "[####      ] 2/5 f2",
                "[#####     ] 1/2 load",
            ],
        ),
        # One more has its own line, and two have one.
        (
            3,
            None,
            [
                "[          ] 0/1,000 sum\\n",
                "[##        ] 1/5 f1",
                "[####      ] 2/5 f2",
                "[#####     ] 1/2 load",
            ],
        ),
        (
            2,
            None,
            ["[          ] 0/1,000 sum\\n", "[##        ] 1/5 f1", "[####      ] 3/7 and 2 more"],
        ),
        (
            2,
            20,
            ["[          ] 0/1,000 sum\\n", "[##        ] 1/5 f1", "[####      ] 3/7 and 2 more"],
        ),
    ],
)
def test_lines_of_functions_have_bars_of_one_width(most, columns, lines):
    assert function_lines(largest(FUNCTIONS, most), 10, columns) == lines


def test_bars_of_functions_are_narrower_where_columns_are_few():
    lines = function_lines(FUNCTIONS[:2], 40, 34)
    assert {line.index("]") for line in lines} == {1 + 34 - 2 - len("] 0/1,000 sum\n")}
    assert max(map(len, lines)) < 34
