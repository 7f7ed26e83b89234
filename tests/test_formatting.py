"""Numbers have one text in Python and in pages: both formatters against one table of cases."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dask_diag import formatting

from .javascript import needs_node, run_javascript

pytestmark = pytest.mark.once

CASES = json.loads(Path(__file__).with_name("formatting_cases.json").read_text(encoding="utf-8"))
KINDS = ("seconds", "size", "amount", "count", "percent", "quantity")


def arguments(case):
    """The value of a case, and its unit if it has one."""
    return [float(case["value"]), *([case["unit"]] if "unit" in case else [])]


@needs_node
@pytest.mark.parametrize("kind", ["seconds", "size", "amount", "count", "percent"])
def test_any_number_has_one_text_in_python_and_in_a_page(kind):
    random = np.random.default_rng(0)
    values = 10 ** random.uniform(-12, 16, 2000) * random.choice([-1, 1], 2000)
    # Many of those with few digits are ties, which the two languages round differently.
    values = np.concatenate([values, np.arange(2000) / 8, np.arange(1000) / 1e4]).tolist()
    in_python = [getattr(formatting, kind)(value) for value in values]
    assert run_javascript("formatting.js", kind, *([value] for value in values)) == in_python


@needs_node
@pytest.mark.parametrize(
    ("function", "calls", "texts"),
    [
        ("tick_text", ([0, 0.5e6, 1e6], "B"), ["0 B", "0.5 MB", "1.0 MB"]),
        ("tick_text", ([0, 500], "B"), ["0 B", "500 B"]),
        ("tick_text", ([0.05], ""), ["0.05"]),
        ("tick_text", ([0, 0.005, 0.01], ""), ["0", "0.005", "0.010"]),
        ("tick_text", ([0.1, 0.2, 0.30000000000000004], ""), ["0.1", "0.2", "0.3"]),
        ("tick_text", ([0, 5e5, 1e6], ""), ["0", "0.5M", "1.0M"]),
        ("tick_text", ([-2, 0, 2], ""), ["-2", "0", "2"]),
        ("tick_text", ([0, 2e15], "B"), ["0 B", "2000 TB"]),
        ("moment", [[12.3456784], [0], [2, 3]], ["12.345678 s", "0.000000 s", "2.000 s"]),
    ],
)
def test_the_numbers_at_an_axis_have_one_prefix_and_the_decimals_of_their_steps(
    function, calls, texts
):
    if function == "tick_text":
        ticks, unit = calls
        calls = [[tick, ticks, unit] for tick in ticks]
    assert run_javascript("formatting.js", function, *calls) == texts


@needs_node
@pytest.mark.parametrize("kind", KINDS)
def test_a_number_has_the_text_of_the_table_in_python_and_in_a_page(kind):
    cases = [case for case in CASES if case["kind"] == kind]
    texts = [case["text"] for case in cases]
    assert texts
    assert [getattr(formatting, kind)(*arguments(case)) for case in cases] == texts
    assert run_javascript("formatting.js", kind, *map(arguments, cases)) == texts
    if "unit" not in cases[0]:
        for number in (np.float32(0.5), np.int32(3), 10**30, True):
            assert getattr(formatting, kind)(number) == getattr(formatting, kind)(float(number))


def test_one_is_counted_without_an_s():
    texts = [formatting.counted(number, "task") for number in (0, 1, 12_000)]
    assert texts == ["0 tasks", "1 task", "12,000 tasks"]
    assert formatting.counted(1, "entry", "entries") == "1 entry"
    assert formatting.counted(3, "entry", "entries") == "3 entries"
