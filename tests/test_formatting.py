"""Numbers have one text in Python and in pages: both formatters against one table of cases."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import dask_diag
from dask_diag import formatting

from .javascript import needs_node, run_javascript

pytestmark = pytest.mark.once

CASES = json.loads(Path(__file__).with_name("formatting_cases.json").read_text(encoding="utf-8"))
KINDS = ("seconds", "size", "amount", "count", "percent", "quantity")
PACKAGE = Path(dask_diag.__file__).parent


def arguments(case):
    """The value of a case, and its unit if it has one."""
    return [float(case["value"]), *([case["unit"]] if "unit" in case else [])]


def test_every_kind_is_in_the_table():
    assert {case["kind"] for case in CASES} == set(KINDS)
    assert {
        name
        for name, value in vars(formatting).items()
        if callable(value)
        and name.islower()
        and getattr(value, "__module__", "") == formatting.__name__
        and not name.startswith("_")
    } - {"counted"} == set(KINDS)


def test_one_is_counted_without_an_s():
    texts = [formatting.counted(number, "task") for number in (0, 1, 2, 12_000)]
    assert texts == ["0 tasks", "1 task", "2 tasks", "12,000 tasks"]
    assert formatting.counted(1, "entry", "entries") == "1 entry"
    assert formatting.counted(3, "entry", "entries") == "3 entries"


SPELLED_OUT = re.compile(r"'s' \* |'s' if |'' if \w+ == 1 else")


def test_a_plural_is_made_in_one_place():
    for path in PACKAGE.rglob("*.py"):
        assert not SPELLED_OUT.findall(path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kind']}-{case['value']}")
def test_a_number_has_the_text_of_the_table(case):
    assert getattr(formatting, case["kind"])(*arguments(case)) == case["text"]


@needs_node
@pytest.mark.parametrize("kind", KINDS)
def test_a_number_has_the_same_text_in_a_page(kind):
    cases = [case for case in CASES if case["kind"] == kind]
    texts = run_javascript("formatting.js", kind, *map(arguments, cases))
    assert texts == [case["text"] for case in cases]


@needs_node
@pytest.mark.parametrize("kind", ["seconds", "size", "amount", "count", "percent"])
def test_any_number_has_one_text_in_python_and_in_a_page(kind):
    random = np.random.default_rng(0)
    values = 10 ** random.uniform(-12, 16, 2000) * random.choice([-1, 1], 2000)
    # Many of those with few digits are ties, which the two languages round differently.
    values = np.concatenate([values, np.arange(2000) / 8, np.arange(1000) / 1e4]).tolist()
    in_python = [getattr(formatting, kind)(value) for value in values]
    assert run_javascript("formatting.js", kind, *([value] for value in values)) == in_python


@pytest.mark.parametrize("number", [np.float32(0.5), np.float64(0.5), np.int32(3), 10**30, True])
def test_any_kind_of_number_has_a_text(number):
    for kind in ("seconds", "size", "amount", "count", "percent"):
        assert getattr(formatting, kind)(number) == getattr(formatting, kind)(float(number))


@needs_node
@pytest.mark.parametrize(
    ("ticks", "unit", "texts"),
    [
        ([0, 0.5e6, 1e6, 1.5e6], "B", ["0 B", "0.5 MB", "1.0 MB", "1.5 MB"]),
        ([0, 50e6, 100e6], "B", ["0 B", "50 MB", "100 MB"]),
        ([0, 500], "B", ["0 B", "500 B"]),
        ([0], "B", ["0 B"]),
        ([0.05], "", ["0.05"]),
        ([0, 5, 10], "", ["0", "5", "10"]),
        ([0, 0.005, 0.01], "", ["0", "0.005", "0.010"]),
        ([0.1, 0.2, 0.30000000000000004], "", ["0.1", "0.2", "0.3"]),
        ([0, 5e5, 1e6], "", ["0", "0.5M", "1.0M"]),
        ([-2, 0, 2], "", ["-2", "0", "2"]),
        ([0, 2e15], "B", ["0 B", "2000 TB"]),
    ],
)
def test_the_numbers_at_an_axis_have_one_prefix_and_the_decimals_of_their_steps(ticks, unit, texts):
    calls = [[tick, ticks, unit] for tick in ticks]
    assert run_javascript("formatting.js", "tick_text", *calls) == texts


@needs_node
def test_a_moment_has_microseconds():
    calls = [[12.3456784], [0], [2, 3]]
    texts = ["12.345678 s", "0.000000 s", "2.000 s"]
    assert run_javascript("formatting.js", "moment", *calls) == texts


def test_a_text_has_one_style_of_sizes():
    for path in PACKAGE.rglob("*.py"):
        if path.name != "formatting.py":
            assert not re.search(r"(?<!0)\} ?[kMGT]?B\b|/ 1e[69]:", path.read_text()), path


# A format in an f-string (not those of dates), bokeh's own in a tooltip, JavaScript's methods.
FORMATS = re.compile(
    r":\+?(?:,(?:\.\d+)?[efg%]?|(?:\.\d+)?[efg%])\}"
    r"|[@$]\w+\{0"
    r"|NumeralTickFormatter|PrintfTickFormatter"
    r"|\.to(?:Fixed|Precision|Exponential|LocaleString)\b|\bIntl\."
)


def test_views_and_analysis_format_no_number_themselves():
    files = [
        path
        for layer in ("views", "analysis")
        for path in (PACKAGE / layer).rglob("*")
        if path.suffix in (".py", ".js", ".html")
    ]
    assert len(files) > 50
    for path in files:
        name = path.relative_to(PACKAGE).as_posix()
        if name != "views/formatting.js":
            assert FORMATS.findall(path.read_text(encoding="utf-8")) == [], name
