"""The pages of findings state the thresholds that the code has, and no others."""

import re
import types
from pathlib import Path

import pytest

from dask_diag.analysis.findings import rule as rule_module
from dask_diag.analysis.findings import rules
from dask_diag.analysis.findings.rules import CODES

pytestmark = pytest.mark.once

PAGES = Path(__file__).parent.parent / "docs" / "findings"
FINDERS = {rule.code: rule.examine for rule in rules.RULES}
UNITS = {"%": 0.01, "ms": 1e-3, "MB": 1e6, "GB": 1e9, "s": 1.0, "": 1.0}


def names_in(code):
    """The names that a function, and what is defined in it, uses."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)


def thresholds_of(finder):
    """The constants that a finder and the functions that it calls use, by name."""
    functions, constants = [finder], {}
    for function in functions:
        for name in names_in(function.__code__):
            value = function.__globals__.get(name)
            if isinstance(value, types.FunctionType):
                is_own = value.__module__.startswith("dask_diag.analysis.findings")
                if is_own and value not in functions:
                    functions.append(value)
            elif name.isupper() and isinstance(value, (int, float)):
                assert constants.setdefault(name, value) == value, f"two constants {name}"
    return {
        name: value
        for name, value in constants.items()
        if name == "MOST_LINES" or name not in vars(rule_module)
    }


def section(text, heading):
    """What a page says under a heading; nothing if it has none."""
    first, *parts = re.split(r"^(.+)\n-+\n", text, flags=re.M)
    return dict(zip(parts[::2], parts[1::2], strict=True), introduction=first).get(heading, "")


def stated(text):
    """The thresholds that a page lists, by name."""
    table = section(text, "Thresholds")
    rows = re.findall(r"^``(\w+)`` +([\d.]+) ?(\S*)  \S", table, flags=re.M)
    assert len(rows) == len(re.findall(r"^``", table, flags=re.M)), "a row is not understood"
    return {name: float(number) * UNITS[unit] for name, number, unit in rows}


@pytest.mark.parametrize("code", CODES)
def test_a_page_lists_the_thresholds_of_its_finding(code):
    page = (PAGES / f"{code}.rst").read_text()
    assert stated(page) == pytest.approx(thresholds_of(FINDERS[code]))
    assert page.startswith(f"{code}\n{'=' * len(code)}\n")
    for heading in ("What it means", "How it is found", "What to do"):
        assert heading in page


def test_there_is_a_page_for_each_finding_and_for_nothing_else():
    assert {path.stem for path in PAGES.glob("*.rst")} == {*CODES, "index"}


def test_the_index_lists_those_that_findings_share():
    expected = {
        "LONG_ENOUGH": rules.LONG_ENOUGH,
        "NOTICED": rules.NOTICED,
        "NOTICED_SECONDS": rules.NOTICED_SECONDS,
        "HIGH": rule_module.HIGH,
        "MEDIUM": rule_module.MEDIUM,
        "WORTH_GAINING": rule_module.WORTH_GAINING,
    }
    assert stated((PAGES / "index.rst").read_text()) == pytest.approx(expected)


def test_a_page_that_differs_from_the_code_is_noticed():
    page = (PAGES / "late-samples.rst").read_text()
    assert stated(page) == {"LATE": 0.25}
    assert stated(page.replace("0.25 s", "0.75 s")) == {"LATE": 0.75}
    with pytest.raises(AssertionError, match="not understood"):
        stated(page.replace("0.25 s", "a bit"))
