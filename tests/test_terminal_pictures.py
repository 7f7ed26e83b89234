"""The moving pictures of the documentation show what they say, and are as tall all the time."""

import re
from pathlib import Path

import pytest

pytest.importorskip("rich")


DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("name", ["top", "run"])
def test_the_pictures_in_the_documentation_are_of_a_run_that_goes_on(name):
    svg = (DOCS / "_static" / f"{name}.svg").read_text(encoding="utf-8").replace("&#160;", " ")
    assert 10 <= svg.count('class="frame"') <= 14
    assert "truncated" not in svg
    done = [int(n.replace(",", "")) for n in re.findall(r"([\d,]+)(?:/| of )1,802", svg)]
    assert done == sorted(done)
    assert done[-1] > 1500
    # There is no folder of a machine, or they are older than the command: make screenshot.
    lines = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert len(lines) > 20
    assert [line for line in lines if re.search(r"/(?:tmp|home|root|Users|var)/", line)] == []
