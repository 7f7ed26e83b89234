"""The page of ``visualize``: styled as a report is, while what is returned is dask's."""

import html
import re
from dataclasses import replace

import pytest
from bokeh import models as bm
from bokeh.document import Document

from dask_diag import CacheProfiler, Profiler, Recording, ResourceProfiler, load, visualize
from dask_diag.analysis import facts
from dask_diag.views.drawings import drawings_of, figures_of, stacked
from dask_diag.views.plots.figures import Options
from dask_diag.views.report.header import head_of_memory
from dask_diag.views.visualize import ProfilePage

from .recordings import filled_table
from .test_gallery import pages as gallery_pages
from .test_views import run

pytestmark = [pytest.mark.once, pytest.mark.leaves_files]


@pytest.fixture(scope="module")
def groupby():
    """A recording with tasks, samples of CPU and memory, cached results and findings."""
    return load(gallery_pages.PAGES / "groupby.diag")


def profile_page_of(*sources):
    drawings, options = drawings_of(sources), Options()
    picture = stacked(figures_of(drawings, options))
    return ProfilePage(drawings, picture, options), picture


def labels(grid):
    return [plot.yaxis[0].axis_label for plot, *_ in grid.children]


def test_each_measure_has_an_axis_of_its_own(groupby):
    without_samples = replace(groupby, samples=groupby.samples.filter(slice(0, 0)))
    page, picture = profile_page_of(without_samples)
    assert labels(picture) == ["Worker", "% CPU", "Cache Size (nbytes)"]
    with page.in_a_report():
        expected = ["All time", "Workers", "Worker", "CPUs", "Memory", "Cached results (nbytes)"]
        assert labels(page.layout) == expected
        assert {len(plot.extra_y_ranges) for plot, *_ in page.layout.children} == {0}
        ranges = {plot.x_range.id for plot, *_ in page.layout.children[1:]}
        assert len(ranges) == 1
        (workers,) = page.layout.select({"name": "workers"})
        names = [item.label.value for item in workers.legend[0].items]
        assert {"graph preparation", "tasks waiting for the GIL"} <= set(names)


def looks(picture):
    """What a page changes of figures, for itself."""
    figures = picture.select({"type": bm.Plot})
    return sorted(
        (
            str([axis.axis_label for axis in (*figure.xaxis, *figure.yaxis)]),
            str(figure.toolbar_location),
            str(figure.name),
            str(figure.document),
        )
        for figure in figures
    )


@pytest.mark.parametrize("kinds", [[Profiler], [Profiler, ResourceProfiler, CacheProfiler]])
def test_what_is_returned_is_as_if_there_were_no_page(kinds, tmp_path):
    diagnostics = run(*(kind(0.01) if kind is ResourceProfiler else kind() for kind in kinds))
    without = visualize(diagnostics, show=False, save=False)
    picture = visualize(diagnostics, filename=tmp_path / "page.html", show=False)
    assert looks(picture) == looks(without)
    # The user can put it into a document.
    Document().add_root(picture)
    (tmp_path / "page.html").unlink()


def test_what_was_measured_is_made_into_a_recording_once(groupby, tmp_path, monkeypatch):
    """Of a million tasks it takes seconds: to ask whether there is one must not make it."""
    made, swept = [], []

    class Measured:
        draws = "tasks"

        @property
        def recording(self):
            made.append(None)
            return groupby

    def sweep(recording, in_series=False, function=facts.occupancies):
        swept.append(recording)
        return function(recording, in_series)

    monkeypatch.setattr(facts, "occupancies", sweep)
    visualize(Measured(), tmp_path / "page.html", show=False)
    assert len(made) == 1
    assert swept == [groupby]


def test_a_page_has_the_findings(groupby, tmp_path):
    visualize(groupby, filename=tmp_path / "page.html", show=False, mode="cdn")
    text = (tmp_path / "page.html").read_text()
    reported = re.findall(
        r'<article class="finding \w+".*?<span class="code">([\w-]+)<', text, re.DOTALL
    )
    assert reported == ["tasks-too-small"]
    (tmp_path / "page.html").unlink()


def test_of_very_many_tasks_a_page_says_where_the_findings_are(groupby, tmp_path, monkeypatch):
    monkeypatch.setattr("dask_diag.views.visualize._MOST_TASKS", 5_000)
    visualize(groupby, filename=tmp_path / "page.html", show=False, mode="cdn")
    text = (tmp_path / "page.html").read_text()
    assert "Findings of more than 5,000 tasks are in a report." in text
    assert '<article class="finding' not in text
    (tmp_path / "page.html").unlink()


def sampled(near):
    """Two series of a sampler; the second has the peak, and of it a snapshot near it."""
    lines = {
        "label": ["b", "b", "b"],
        "time": [12.0] * 3,
        "memory": [near * 90e6] * 3,
        "peak": [90e6] * 3,
        "function": ["load", "parse", ""],
        "file": ["/prog/read.py", "/prog/read.py", ""],
        "line": [12, 40, 0],
        "code": ["rows = [...]", "", ""],
        "bytes": [60_000_000, 25_000_000, 1_000_000],
        "blocks": [3, 40, 9],
    }
    samples = {
        "label": ["a", "a", "b", "b", "b"],
        "time": [10.0, 11.0, 11.5, 12.0, 13.0],
        "rss": [50e6, 80e6, 80e6, 164e6, 90e6],
        "processes": [1] * 5,
    }
    return replace(
        Recording(start=10.0, stop=13.0, epoch=0.0),
        memory=filled_table("memory", samples),
        allocations=filled_table("allocations", lines),
    )


@pytest.mark.parametrize(
    ("near", "more"),
    [(1.0, ": 60.0 MB allocated by load (/prog/read.py:12)"), (0.5, "")],
)
def test_a_page_of_memory_begins_with_the_peak(near, more):
    head = head_of_memory(sampled(near))
    assert head.title == f"Peak 164 MB at 2.00 s in b{more}."
    assert head.facts.startswith("2 series · 1970-01-01 00:00:10")


def test_a_page_of_memory_says_who_allocated_by_function_and_line(tmp_path):
    visualize(sampled(1.0), filename=tmp_path / "page.html", plots=None, show=False, mode="cdn")
    text = (tmp_path / "page.html").read_text()
    shown = [html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", text)]
    assert "Allocated at peak in b" in text
    row = shown.index("load")
    assert shown[row : row + 4] == ["load", "/prog/read.py", "60.0 MB", "3"]
    line = shown.index("/prog/read.py:12")
    assert shown[line - 1 : line + 4] == [
        "load",
        "/prog/read.py:12",
        "rows = [...]",
        "60.0 MB",
        "3",
    ]
    assert "allocations were read" in text
    (tmp_path / "page.html").unlink()
