"""The command behind the stories: what it measures and what it writes, with short programs."""

import re
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("playwright")

from dask_diag import load
from docs.gallery import pages
from docs.gallery.stories import STORIES

pytestmark = [
    pytest.mark.once,
    pytest.mark.leaves_files,
    pytest.mark.skipif(sys.platform == "win32", reason="wait4 is of POSIX"),
]


def script(text):
    Path("program.py").write_text(text)
    return "python program.py"


def test_every_story_has_its_script_page_and_finding():
    root = Path(pages.__file__).parents[2]
    for story in STORIES:
        assert (root / "examples" / story.script).is_file()
        assert (root / "docs" / "findings" / f"{story.code}.rst").is_file()
        assert (pages.PAGES / f"{story.name}.rst").is_file()


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_the_summary_of_a_story_is_that_of_its_recording(story, monkeypatch):
    pages_in_docs, written = pages.PAGES, []
    monkeypatch.setattr(Path, "write_text", lambda path, text, **how: written.append(text))
    pages.renew_summary(story)
    # Else: python -m docs.gallery --summaries.
    assert written == [(pages_in_docs / f"{story.name}.rst").read_text(encoding="utf-8")]


def test_pages_of_findings_show_what_the_summaries_of_stories_say():
    found = 0
    for page in sorted(pages.PAGES.parent.glob("findings/*.rst")):
        pattern = r"code-block:: text\n\n((?:   .*\n)+)\nFrom :doc:`../stories/(\w+)`"
        for shown, story in re.findall(pattern, page.read_text()):
            summary = (pages.PAGES / f"{story}.rst").read_text()
            assert " ".join(shown.split()) in " ".join(summary.split()), page
            found += 1
    assert found > 5


def test_the_readme_shows_the_beginning_of_a_summary():
    readme = (pages.PAGES.parents[1] / "README.rst").read_text(encoding="utf-8")
    (shown,) = re.findall(r"\$ dask-diag run climatology.py\n(.*?)\n *\.\.\.\n", readme, re.DOTALL)
    page = (pages.PAGES / "climatology.rst").read_text(encoding="utf-8")
    (_, printed) = page.split(".. code-block:: text\n\n", 1)
    assert textwrap.dedent(printed[: printed.index("\n\nThe report")]).startswith(
        textwrap.dedent(shown)
    )


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
@pytest.mark.parametrize("side", ["", "_after"])
def test_the_recordings_of_a_story_know_the_line_that_computed(story, side):
    # Else they are older than what their reports say: make gallery.
    recording = load(pages.PAGES / f"{story.name}{side}.diag")
    sites = recording.computations.call_site.tolist()
    assert sites
    assert all(site.startswith(f"{Path(story.script).name}:") for site in sites), sites
    assert len(recording.lines)
    files = [*recording.frames.file.values, *recording.lines.file.values]
    assert not [name for name in files if name.startswith("/")]
    assert len(recording.tasks)
