"""The pages of findings have one order, and state the thresholds of the code by substitutions."""

import re

import pytest

from dask_diag.analysis.findings.rules import CODES
from docs import thresholds

pytestmark = pytest.mark.once

PAGES = thresholds.PAGES
HEADINGS = [
    "In the summary",
    "Fix",
    "Expected gain",
    "When not to follow it",
    "How it is detected",
]
VALUE = re.compile(r"[\d.,]*\d(?: ?%| (?:s|ms|[kMG]B)\b)")
"""A share, or an amount with a unit that a threshold may have."""


FACTS = {"5 ms", "100 MB"}
"""How often threads of Python hand over the GIL, and the memory of a program in an excerpt."""


def text_of(page):
    return (PAGES / f"{page}.rst").read_text(encoding="utf-8")


def prose(text):
    """A page without its code and excerpts."""
    return re.sub(r"^\.\. code-block::.*\n\n(?:   .*\n|\n)+", "", text, flags=re.M)


def listed(text):
    """The thresholds that a page lists, and the substitutions that are their values."""
    _, _, table = text.partition("\nThresholds\n----------\n")
    return dict(re.findall(r"^``(\w+)`` +\|(\w+)\| +\S", table, flags=re.M))


def typed(text):
    """Amounts in the prose of a page, but for those that are no thresholds."""
    without_literals = re.sub(r"``[^`]+``", "", prose(text))
    return [found for found in VALUE.findall(without_literals) if found not in FACTS]


def mentioned(text):
    return set(re.findall(r"\|(\w+)\|", prose(text)))


@pytest.mark.parametrize("code", CODES)
def test_a_page_lists_the_thresholds_of_its_finding(code):
    names = thresholds.thresholds_of(code)
    assert listed(text_of(code)) == {name: name.lower() for name in names}


@pytest.mark.parametrize("code", CODES)
def test_a_page_says_what_helps_before_it_says_how_it_knows(code):
    text = text_of(code)
    assert text.startswith(f"{code}\n{'=' * len(code)}\n")
    expected = [*HEADINGS, *["Thresholds"] * bool(thresholds.thresholds_of(code))]
    assert re.findall(r"^(.+)\n-+$", text, flags=re.M) == expected
    (first,) = re.findall(r"\n\nIn the summary\n-+\n\n\.\. code-block:: text\n\n   (.+)\n", text)
    assert re.fullmatch(
        rf"! {code} \((?:high|medium|low)\)(?:: could save (?:about|at most) .+)?", first
    )


@pytest.mark.parametrize("page", ["index", *CODES])
def test_a_page_types_no_threshold_and_names_only_those_that_exist(page):
    text = text_of(page)
    assert typed(text) == []
    assert mentioned(text) <= thresholds.substitutions(page).keys()


def test_there_is_a_page_for_each_finding_and_for_nothing_else():
    assert {path.stem for path in PAGES.glob("*.rst")} == {*CODES, "index"}


@pytest.mark.parametrize(
    ("page", "times"), [("README.rst", 2), ("CHANGELOG.rst", 1), ("docs/worker_time.rst", 1)]
)
def test_pages_say_how_many_findings_there_are(page, times):
    text = (PAGES.parents[1] / page).read_text(encoding="utf-8")
    said = re.findall(r"(\d+) (?:kinds\b|findings has a page)", text)
    assert said == [str(len(CODES))] * times


def test_the_index_has_each_finding_and_the_thresholds_that_findings_share():
    text = text_of("index")
    assert sorted(re.findall(r"\| :doc:`([\w-]+)`: ", text)) == sorted(CODES)
    assert sorted(re.findall(r"^   ([\w-]+)$", text.partition(".. toctree::")[2], re.M)) == sorted(
        CODES
    )
    assert listed(text) == {name: name.lower() for name in thresholds.SHARED}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("WAITED", 0.75, "75%"),
        ("WAITED", 0.075, "7.5%"),
        ("LATE", 0.25, "0.25 s"),
        ("SHORT", 0.02, "20 ms"),
        ("OF_LONGER_TASKS", 200e-6, "0.2 ms"),
        ("GROWN", 100e6, "100 MB"),
        ("VERY_LARGE", 1e9, "1 GB"),
        ("OUTLIER", 3.0, "3"),
        ("UNEVEN", 0.4, "0.4"),
        ("MOST_VISITED", 10_000, "10,000"),
        ("MOST_SIMULATED", 4_000_000, "4,000,000"),
    ],
)
def test_a_threshold_is_written_with_its_unit(name, value, text):
    assert thresholds.text_of(name, value) == text


def test_a_threshold_that_is_typed_or_missing_is_noticed():
    text = text_of("late-samples")
    assert listed(text) == {"LATE": "late"}
    assert listed(text.replace("|late|", "0.25 s")) == {}
    assert typed(text.replace("|late|", "0.25 s"))
    assert mentioned(text.replace("above |late|", "above |latest|")) == {"late", "latest"}


class App:
    """What a page is built with."""

    def __init__(self):
        thresholds.setup(self)

    def add_config_value(self, name, default, rebuild):
        assert rebuild == "env"
        self.config = type("Config", (), {name: default})

    def connect(self, event, read):
        assert event == "source-read"
        self.read = read


def test_pages_of_findings_get_the_values_and_other_pages_none():
    app = App()
    for document, expected in [("findings/late-samples", True), ("guide", False)]:
        source = ["text\n"]
        app.read(app, document, source)
        assert ("\n.. |late| replace:: 0.25 s\n" in source[0]) is expected
        assert (source == ["text\n"]) is not expected
