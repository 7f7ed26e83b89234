"""``dask-diag explain`` prints the pages of findings, without a network."""

import re

import pytest
from click.testing import CliRunner

from dask_diag.analysis.findings.rules import CODES
from dask_diag.cli.main import main
from docs import explanations
from docs.thresholds import PAGES

pytestmark = pytest.mark.once


def explain(*words):
    result = CliRunner().invoke(main, ["explain", *words])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("code", CODES)
def test_a_page_is_printed_as_text(code):
    status, text, _ = explain(code)
    # Else the page has changed: python -m docs.explanations.
    assert (status, text) == (0, explanations.text_of(code))
    source = (PAGES / f"{code}.rst").read_text(encoding="utf-8")
    for heading in re.findall(r"^(.+)\n[-=]+$", source, flags=re.MULTILINE):
        assert f"{heading}\n{'=' if heading == code else '-'}" in text
    excerpt, prose = text.partition("\n\nFix\n")[::2]
    prose = re.sub(r"^    .*$", "", prose, flags=re.MULTILINE)
    assert max(map(len, f"{excerpt}\n{prose}".splitlines())) <= 80
    assert not re.search(r"`|\|\w|:doc:|\.\. |::|\*\w|\w\*(?!\w)", prose)


def test_all_findings_are_listed():
    status, text, _ = explain()
    assert (status, [line.split()[0] for line in text.splitlines()]) == (0, sorted(CODES))
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("code", "said"),
    [("gil-bond", "did you mean gil-bound or "), ("xyz", "; dask-diag explain lists all findings")],
)
def test_an_unknown_finding_names_close_ones(code, said):
    status, _, message = explain(code)
    assert status == 2
    assert message.startswith(f"Error: no finding '{code}'; ")
    assert said in message


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("*About* |late|, see :doc:`gil-bound`.", '"About" 0.25 s, see gil-bound.'),
        ("``a * b`` and ``**kwargs``", "a * b and **kwargs"),
        (":doc:`../what_if`", '"'),
    ],
)
def test_markup_becomes_text(source, expected):
    text = explanations.inline(source, {"late": "0.25 s"})
    assert text.startswith(expected)
    assert ":doc:" not in text
