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
def terminal_pictures(monkeypatch):
    if sys.platform == "win32":
        pytest.skip("pty is of POSIX")
    monkeypatch.syspath_prepend(str(DOCS))
    import terminal_pictures

    return terminal_pictures


@pytest.fixture
def moving_picture(terminal_pictures):
    return terminal_pictures.moving_picture


@pytest.mark.leaves_files
def test_a_command_runs_in_its_folder_and_is_shown_as_it_was_typed(terminal_pictures, tmp_path):
    (tmp_path / "program.py").write_text("print('in', __file__)")
    command = [sys.executable, "program.py"]
    *_, last = terminal_pictures.frames_of(command, "python program.py", 80, str(tmp_path))
    lines = terminal_pictures.picture(last, "title", 80).replace("&#160;", " ")
    assert "$ python program.py" in lines
    assert str(tmp_path) not in lines
    assert "in program.py" in lines


def test_each_picture_is_shown_and_made_by_a_command():
    root = DOCS.parent
    pages = "".join(
        path.read_text(encoding="utf-8") for path in (root / "README.rst", *DOCS.rglob("*.rst"))
    )
    commands = (root / "Makefile").read_text(encoding="utf-8")
    # The contact sheet is for those who work on the pages; docs.gallery makes it.
    pictures = {path.name for path in (DOCS / "_static").iterdir() if path.is_file()}
    for name in pictures - {"contact_sheet.png"}:
        assert f"_static/{name}" in pages
        assert f"docs/_static/{name}" in commands


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


@pytest.mark.leaves_files
def test_a_bar_below_the_output_is_in_the_picture_until_it_is_erased(terminal_pictures, tmp_path):
    program = """
import time, dask
print("starts", flush=True)
dask.compute([dask.delayed(time.sleep)(0.2) for _ in range(20)], scheduler="sync")
print("ends")
"""
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, "-m", "dask_diag", "run", "program.py"]
    frames = terminal_pictures.frames_of(command, "run", 80, str(tmp_path))
    pictures = [
        terminal_pictures.picture(frame, "title", 80).replace("&#160;", " ") for frame in frames
    ]
    *_, during = [text for text in pictures if "ends" not in text]
    assert re.search(r">starts<[\s\S]*>\[#+ *\] \d+% \| \d+/\d+ \| ", during)
    assert not re.search(r"\d+% \| \d+/", pictures[-1])
    assert ">ends<" in pictures[-1]


@pytest.mark.parametrize("name", ["top", "run"])
def test_the_pictures_in_the_documentation_are_of_a_run_that_goes_on(name):
    svg = (DOCS / "_static" / f"{name}.svg").read_text(encoding="utf-8").replace("&#160;", " ")
    assert 10 <= svg.count('class="frame"') <= 14
    assert "truncated" not in svg
    done = [int(n.replace(",", "")) for n in re.findall(r"([\d,]+)(?:/| of )1,802", svg)]
    assert done == sorted(done)
    assert done[-1] > 1500


@pytest.mark.parametrize("name", ["top", "run"])
def test_the_pictures_in_the_documentation_have_no_folder_of_a_machine(name):
    # Else they are older than the command that makes them: make screenshot.
    svg = (DOCS / "_static" / f"{name}.svg").read_text(encoding="utf-8").replace("&#160;", " ")
    lines = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert len(lines) > 20
    assert [line for line in lines if re.search(r"/(?:tmp|home|root|Users|var)/", line)] == []
