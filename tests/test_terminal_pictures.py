"""The moving pictures of the documentation show what they say, and are as tall all the time."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("rich")

from rich.text import Text

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture
def moving_picture(monkeypatch):
    if sys.platform == "win32":
        pytest.skip("pty is of POSIX")
    monkeypatch.syspath_prepend(str(DOCS))
    from terminal_pictures import moving_picture

    return moving_picture


def test_of_many_frames_some_are_shown_and_all_are_equally_tall(moving_picture):
    frames = [Text("\n".join(["line"] * (1 + n // 10)) + f" last{n}") for n in range(50)]
    svg = moving_picture(frames, "title", 40)
    assert svg.count('class="frame"') == 14
    assert "last0<" in svg
    assert "last49<" in svg
    heights = re.findall(r'viewBox="0 0 [\d.]+ ([\d.]+)"', svg)
    assert len(heights) == 15
    assert len(set(heights)) == 1
    assert moving_picture(frames[:1], "title", 40).count('class="frame"') == 1


@pytest.mark.parametrize("name", ["top", "run"])
def test_the_pictures_in_the_documentation_are_of_a_run_that_goes_on(name):
    svg = (DOCS / "_static" / f"{name}.svg").read_text(encoding="utf-8").replace("&#160;", " ")
    assert 10 <= svg.count('class="frame"') <= 14
    assert "truncated" not in svg
    done = [int(n.replace(",", "")) for n in re.findall(r"([\d,]+)(?:/| of )1,802", svg)]
    assert done == sorted(done)
    assert done[-1] > 1500
