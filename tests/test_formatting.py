"""Numbers have one text: the formatter in Python, checked against the table of cases."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import dask_diag
from dask_diag import units

CASES = json.loads(Path(__file__).with_name("formatting_cases.json").read_text(encoding="utf-8"))
PACKAGE = Path(dask_diag.__file__).parent


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kind']}-{case['value']}")
def test_a_number_has_the_text_of_the_table(case):
    assert getattr(units, case["kind"])(float(case["value"])) == case["text"]


def test_every_kind_is_in_the_table():
    formatters = set(units.__all__) - {"quantity", "is_size"}
    assert {case["kind"] for case in CASES} == formatters


@pytest.mark.parametrize("number", [np.float32(0.5), np.float64(0.5), np.int32(3), 10**30, True])
def test_any_kind_of_number_has_a_text(number):
    for kind in ("seconds", "size", "amount", "count", "percent"):
        assert getattr(units, kind)(number) == getattr(units, kind)(float(number))


def test_a_quantity_of_bytes_is_a_size_and_another_is_an_amount():
    assert units.quantity(161.6e6, "nbytes") == "162 MB"
    assert units.quantity(161.6e6, "count") == "162M"


def test_a_text_has_one_style_of_sizes():
    for path in PACKAGE.rglob("*.py"):
        if path.name != "units.py":
            assert not re.search(r"(?<!0)\} ?[kMGT]?B\b|/ 1e[69]:", path.read_text()), path
