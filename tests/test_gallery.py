"""The command behind the stories: what it measures and what it writes, with short programs."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("playwright")

from dask_diag import Finding, load
from docs.gallery import __main__ as gallery
from docs.gallery import pages
from docs.gallery.pages import Measured
from docs.gallery.stories import STORIES

pytestmark = [
    pytest.mark.once,
    pytest.mark.leaves_files,
    pytest.mark.skipif(sys.platform == "win32", reason="wait4 is of POSIX"),
]

NAMES = ("qr", "memory", "groupby", "images")
QR, MEMORY, GROUPBY, IMAGES = (next(s for s in STORIES if s.name == name) for name in NAMES)


def script(text):
    Path("program.py").write_text(text)
    return "python program.py"


def test_a_run_takes_its_time_and_memory_and_has_the_variables_before_it():
    command = script(
        "import os, sys, time\n"
        "kept = bytearray(b'.') * 150_000_000\n"
        "time.sleep(float(os.environ['SLEEP']))\n"
        "assert sys.argv[1:] == ['--days', '3']\n"
    )
    start = time.perf_counter()
    wall, peak = gallery.measured(f"SLEEP=0.3 {command} --days 3", Path.cwd())
    assert 0.3 < wall <= time.perf_counter() - start
    assert 150e6 < peak < 250e6
    assert "SLEEP" not in os.environ


def test_a_program_that_fails_is_an_error():
    with pytest.raises(RuntimeError, match=r"python program\.py ended with status 3"):
        gallery.measured(script("raise SystemExit(3)"), Path.cwd())


def test_a_recording_has_no_folder_of_this_machine():
    command = script(
        "import dask, time\n"
        "def work(n):\n"
        "    time.sleep(0.2)\n"
        "dask.delayed(work)(1).compute(scheduler='threads')\n"
    )
    target = Path.cwd() / "story.diag"
    gallery.recorded(command, Path.cwd(), target)
    files = load(target).frames.file.values
    assert "program.py" in files
    assert not [name for name in files if name.startswith(("/", sys.prefix))]
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["program.py", "story.diag"]


@pytest.mark.parametrize(
    ("story", "shown"),
    [(QR, ("2.00 s", "1.00 s", "9.00 s")), (MEMORY, ("200 MB", "100 MB", "300 MB"))],
)
def test_what_is_shown_is_the_median_and_the_extremes(story, shown):
    runs = [(1.0, 300e6), (9.0, 200e6), (2.0, 100e6)]
    assert Measured.of(story, runs).texts == shown


def test_a_page_has_both_commands_the_gain_and_the_summary(monkeypatch, tmp_path):
    for name in ("qr.diag", "qr_after.diag"):
        (tmp_path / name).symlink_to(pages.PAGES / name)
    monkeypatch.setattr(pages, "PAGES", tmp_path)
    before = Measured.of(QR, [(3.0, 0.0), (4.0, 0.0), (5.0, 0.0)])
    after = Measured.of(QR, [(2.0, 0.0)])
    pages.write_page(QR, before, after)
    text = (tmp_path / "qr.rst").read_text()
    assert "The program is 2.0 times as fast" in text
    assert f"    {QR.before}\n" in text
    assert f"    {QR.after}\n" in text
    assert "thread-oversubscription" in text
    assert "before  4.00 s  3.00 s  5.00 s" in text


@pytest.mark.parametrize(
    ("story", "factor", "command"),
    [
        (GROUPBY, 5, "python groupby.py --partitions 200"),
        # Tiles of 543 × 543 have 18.0 times the pixels of 128 × 128.
        (IMAGES, 18, "python images.py --tile 543"),
    ],
)
def test_the_change_that_a_finding_advises_is_run(story, factor, command):
    advice = f"make chunks about {factor} times as large: overhead is below 5% for larger ones"
    finding = Finding(story.code, "medium", 1.0, "evidence", advice, kind="about")
    assert story.advised_by(finding) == (factor, command)
    assert QR.advised_by(finding) is None
    other = Finding(story.code, "medium", 1.0, "evidence", "no remedy is known", kind="about")
    assert story.advised_by(other) is None


@pytest.mark.parametrize("story", [GROUPBY, IMAGES], ids=["groupby", "images"])
def test_the_stories_that_go_further_have_an_advice_to_compare_with(story):
    ((factor, command),) = gallery.advice_of(story)
    assert factor > 1
    assert command not in (story.before, story.after)


def test_a_story_without_such_a_finding_is_an_error():
    with pytest.raises(RuntimeError, match="groupby: no finding gil-bound that says"):
        gallery.advice_of(replace(GROUPBY, code="gil-bound"))


def test_what_the_advice_alone_gains_is_measured_beside_the_others(monkeypatch, tmp_path):
    for name in ("groupby.diag", "groupby_after.diag"):
        (tmp_path / name).symlink_to(pages.PAGES / name)
    monkeypatch.setattr(pages, "PAGES", tmp_path)
    monkeypatch.setattr(gallery, "recorded", lambda *args: None)
    ran = []
    ((factor, command),) = gallery.advice_of(GROUPBY)
    took = {GROUPBY.before: 9.0, GROUPBY.after: 1.0, command: 3.0}
    monkeypatch.setattr(
        gallery, "measured", lambda command, folder: ran.append(command) or (took[command], 0.0)
    )
    gallery.make(GROUPBY, 2)
    assert ran == [*took] * 2
    text = (tmp_path / "groupby.rst").read_text()
    assert f"chunks {factor} times as large and no\nmore: 3.0 times as fast" in text
    assert f"    {command}\n" in text
    assert "The program is 9.0 times as fast" in text
    rows = [line.split("  ")[0] for line in text.partition("lowest")[2].splitlines()[2:5]]
    assert rows == ["before", "as advised", "after"]


def test_every_story_has_its_script_recordings_page_and_finding():
    root = Path(pages.__file__).parents[2]
    for story in STORIES:
        assert (root / "examples" / story.script).is_file()
        assert (root / "docs" / "findings" / f"{story.code}.rst").is_file()
        assert (pages.PAGES / f"{story.name}.rst").is_file()
        for name in (story.name, f"{story.name}_after"):
            assert len(load(pages.PAGES / f"{name}.diag").tasks)


def test_the_contact_sheet_can_be_made_alone(monkeypatch):
    made = []
    monkeypatch.setattr(gallery, "write_contact_sheet", made.append)
    monkeypatch.setattr(gallery, "make", lambda *args: pytest.fail("a story was recorded"))
    monkeypatch.setattr(gallery, "write_index", lambda *args: pytest.fail("a page was written"))
    monkeypatch.setattr(sys, "argv", ["gallery", "--sheet"])
    gallery.main()
    assert made == [STORIES]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_the_summary_of_a_story_is_that_of_its_recording(story, monkeypatch):
    pages_in_docs, written = pages.PAGES, []
    monkeypatch.setattr(Path, "write_text", lambda path, text, **how: written.append(text))
    pages.renew_summary(story)
    # Else: python -m docs.gallery --summaries.
    assert written == [(pages_in_docs / f"{story.name}.rst").read_text(encoding="utf-8")]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
@pytest.mark.parametrize("side", ["", "_after"])
def test_the_recordings_of_a_story_know_the_line_that_computed(story, side):
    # Else they are older than what their reports say: make gallery.
    script = Path(story.script).name
    sites = load(pages.PAGES / f"{story.name}{side}.diag").computations.call_site.tolist()
    assert sites
    assert all(site.startswith(f"{script}:") for site in sites), sites
