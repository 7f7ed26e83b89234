"""Pages in a real browser: no error, no request, every plot drawn, zoom shared, text as text."""

import itertools
import time

import dask.array as da
import dask.threaded
import pytest

from dask_diag import CacheProfiler, Profiler, ResourceProfiler, report
from dask_diag.formatting import percent, seconds
from dask_diag.views.comparison import comparison_page

from .opened_pages import DRAWN, colours, frames, tooltip
from .test_activity_pictures import hostile_metrics
from .test_compare import recording
from .test_flame import hostile_stacks
from .test_report import hostile_recording
from .test_views import hostile_diagnostics

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]

OVER_TIME = ["tasks", "resources", "cache"]


def test_a_comparison_is_whole_on_a_phone_and_scrolls_by_keyboard(open_file, tmp_path):
    rows = {"f": [1.0] * 5000, "load_from_parquet_file": [1.0] * 800, "few": [1.0]}
    after = {"f": [1.5] * 6000, "load_from_parquet_file": [1.0] * 500, "few": [2.0]}
    recordings = recording(**rows, cpu=0.9), recording(**after, cpu=0.4)
    path = tmp_path / "page.html"
    path.write_text(comparison_page(*recordings, ("before.diag", "after.diag")), encoding="utf-8")
    for width in (390, 1280):
        page = open_file(path, width, 700)
        scroller = page.get_by_role("region", name="All functions")
        assert scroller.get_attribute("tabindex") == "0"
        assert scroller.evaluate("node => node.scrollWidth <= node.clientWidth")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        ends = page.locator("#functions tbody td:last-child").evaluate_all(
            "cells => cells.map(cell => cell.getBoundingClientRect().right)"
        )
        assert max(ends) <= width


def sum_of_blocks(chunks, split_every=8):
    x = (da.ones(chunks, chunks=1) + 1).sum(split_every=split_every)
    diagnostics = Profiler(), ResourceProfiler(0.01), CacheProfiler()
    with diagnostics[0], diagnostics[1], diagnostics[2]:
        x.compute(scheduler="threads", optimize_graph=False)
    return list(diagnostics)


@pytest.mark.parametrize("blocks", [10, 500, 5000])
def test_every_plot_is_drawn(opened, blocks):
    page = opened(sum_of_blocks(blocks), plots=OVER_TIME)
    boxes = frames(page)
    assert len(boxes) == 3
    for box in boxes:
        assert len(colours(page, box)) > 5
    assert len({round(box["x"]) for box in boxes}) == 1
    assert len({round(box["x"] + box["width"]) for box in boxes}) == 1


def test_hovering_a_task_shows_it(opened):
    prof = Profiler()
    with prof:
        dask.threaded.get({("slow", 7): (time.sleep, 0.2)}, ("slow", 7))
    page = opened(prof, plots=["tasks"])
    (box,) = frames(page)
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5)
    page.wait_for_function("document.body.innerText !== null")
    text = tooltip(page)
    assert "('slow', 7)" in text
    (task,) = prof.recording.tasks.to_dicts()
    took = task["stop"] - task["start"]
    share = percent(task["thread_cpu"] / took)
    for part in ("slow", "start", "duration", seconds(took), "off-CPU", f"({share})", "thread-0"):
        assert part in text


@pytest.mark.parametrize(
    ("source", "plots"),
    [(hostile_diagnostics, OVER_TIME), (hostile_metrics, ["activities"]), (hostile_stacks, None)],
)
def test_hostile_names_stay_text(opened, source, plots):
    page = opened(source(), plots=plots)
    assert_harmless(page)
    for select in page.locator("select").locator("visible=true").all():
        for index in range(select.locator("option").count()):
            select.select_option(index=index)
            page.wait_for_function(DRAWN)
            assert_harmless(page)


def test_a_hostile_report_stays_text(open_file, tmp_path):
    assert_harmless(open_file(report(hostile_recording(), tmp_path / "page.html")))


def assert_harmless(page):
    for box, across, down in itertools.product(frames(page), range(1, 12), (0.1, 0.5, 0.9)):
        page.mouse.move(box["x"] + box["width"] * across / 12, box["y"] + box["height"] * down)
    assert page.evaluate("window.pwned") is None
    assert page.evaluate("document.querySelectorAll('img[src=x]').length") == 0
    assert "mathjax" not in page.content().lower().split("</head>")[0][:2000]
