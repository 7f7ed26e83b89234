"""The names of phases in the plot of workers: where they fit, and in what is in view."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dask_diag import report

from .opened_pages import settled
from .recordings import NOTHING
from .tables import filled_table

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]

PHASES = """() => {
    const plots = Bokeh.documents[0].roots().flatMap((root) => [...root.references()])
        .filter((model) => model.type === "Figure" && model.left[0]?.axis_label === "Workers")
    return [...new Set(plots)].map((plot) => plot.center.filter((model) => model.type === "Label")
        .map(({text, x, visible}) => [text, x, visible]))
}"""


def recording_of(called, start, stop, wall):
    """One task from `start` to `stop` in a computation that was called at `called`."""
    computation = {
        "computation": ["c"],
        "called": [called],
        "start": [start],
        "stop": [stop],
        "workers": [1],
        "cpus": [1],
        "scheduler": ["threads"],
    }
    task = {
        "key": ["x"],
        "function": ["x"],
        "start": [start],
        "stop": [stop],
        "thread_cpu": [stop - start],
        "submitted": [start],
        "collected": [stop],
        "worker": ["thread-0"],
        "computation": ["c"],
        "outcome": ["ok"],
    }
    return replace(
        NOTHING,
        start=0.0,
        stop=wall,
        notices=(),
        computations=filled_table("computations", computation),
        tasks=filled_table("tasks", task),
    )


def names_in(open_file, path, width):
    page = open_file(path, width)
    settled(page, 300)
    return page


def shown_in(page):
    return [[name for name, _, visible in names if visible] for names in page.evaluate(PHASES)]


@pytest.mark.parametrize(("width", "named"), [(1280, ["before", "preparing"]), (390, ["before"])])
def test_a_name_is_shown_where_its_phase_has_the_pixels(open_file, tmp_path, width, named):
    path = tmp_path / "page.html"
    report(recording_of(2.5, 3.6, 10.0, 10.0), path)
    page = names_in(open_file, path, width)
    assert shown_in(page) == [named]


def test_a_name_is_in_the_middle_of_what_is_in_view(open_file, tmp_path):
    path = tmp_path / "page.html"
    report(recording_of(2.0, 2.1, 10.0, 10.0), path)
    page = names_in(open_file, path, 1280)
    assert shown_in(page) == [["before"]]
    page.evaluate("""() => {
        const plot = Bokeh.documents[0].roots().flatMap((root) => [...root.references()])
            .find((model) => model.type === "Figure" && model.left[0]?.axis_label === "Workers")
        plot.x_range.setv({start: 1.5, end: 2.5})
    }""")
    settled(page, 300)
    (names,) = page.evaluate(PHASES)
    assert {name: round(x, 3) for name, x, visible in names if visible} == {
        "before": 1.75,
        "preparing": 2.05,
    }
