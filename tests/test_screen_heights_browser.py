"""What fits the first screen of a report, and what its strip of all time says."""

from dataclasses import replace
from pathlib import Path

import pytest

from dask_diag import load, report
from dask_diag.analysis.critical_path import critical_path

from .opened_pages import settled
from .recordings import NOTHING, filled_table
from .test_range_browser import value_of

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]

STORIES = Path(__file__).parent.parent / "docs" / "stories"
BOTTOM = (
    """(name) => document.querySelector(`[aria-label="${name}"]`).getBoundingClientRect().bottom"""
)
WIDTHS = """() => [...Bokeh.documents[0]._all_models.values()]
    .filter(({type, name}) => type === "Figure" && ["overview", "workers"].includes(name))
    .map((figure) => figure.inner_width)"""
SHOWN_LABELS = """() => Bokeh.documents[0].get_model_by_name("overview").center
    .filter(({type, visible}) => type === "Label" && visible).map(({text}) => text)"""


def page_of_story(open_file, tmp_path, story, width=1280):
    path = tmp_path / "page.html"
    report(load(STORIES / f"{story}.diag"), path)
    return open_file(path, width)


@pytest.mark.parametrize("story", ["climatology", "groupby", "qr", "word_count", "download"])
def test_all_plots_over_time_are_on_the_first_screen(open_file, tmp_path, story):
    page = page_of_story(open_file, tmp_path, story)
    assert page.evaluate(BOTTOM, "Plot of memory over time") <= 800


def test_a_phone_gives_plots_its_width_and_one_is_on_its_first_screen(open_file, tmp_path):
    page = page_of_story(open_file, tmp_path, "groupby", 390)
    assert min(page.evaluate(WIDTHS)) >= 300
    assert page.evaluate(BOTTOM, "The whole recording: move or resize the part shown") <= 800
    advice = page.locator(".finding p", has_text="Fix:")
    assert advice.count() == page.locator(".finding").count() > 0
    assert all(text.is_visible() for text in advice.all())
    axis = page.evaluate("Bokeh.documents[0].get_model_by_name('workers').below[0].visible")
    assert axis is True


BARS_OF_STRIP = """() => [...Bokeh.documents[0].get_model_by_name("overview").renderers]
    .filter(({data_source}) => data_source.data.name).map(({data_source: {data}, glyph}) =>
        [[...data.name], [...data.left], [...data.right], glyph.bottom.value])"""


def test_spans_of_tasks_have_bars_below_their_computation(open_file, tmp_path):
    one = recording_of(2.0, 3.0, 9.0, 10.0)
    task = one.tasks.to_dicts()[0]
    times = [("load", 3.0, 4.0), ("load", 4.0, 6.0), ("sum", 5.0, 8.0), ("", 8.0, 9.0)]
    tasks = {name: [value] * len(times) for name, value in task.items()}
    tasks["key"] = [f"x-{n}" for n in range(len(times))]
    tasks["span"], tasks["start"], tasks["stop"] = zip(*times, strict=True)
    path = tmp_path / "page.html"
    report(replace(one, tasks=filled_table("tasks", tasks)), path)
    page = open_file(path)
    page.wait_for_timeout(300)
    # From its call on, and each span from its first task to its last; neither hides the other.
    assert [row[:3] for row in page.evaluate(BARS_OF_STRIP)] == [
        [["computation"], [2], [9]],
        [["load"], [3], [6]],
        [["sum"], [5], [8]],
    ]
    bottoms = [row[3] for row in page.evaluate(BARS_OF_STRIP)]
    assert bottoms == sorted(bottoms, reverse=True)
    assert len(set(bottoms)) == 3
    assert {"before", "computation", "load", "sum"} <= set(page.evaluate(SHOWN_LABELS))


ROWS = """(column) => [...document.querySelectorAll("#functions tbody tr")]
    .map((row) => row.cells[column].innerText.trim())"""


def test_a_table_is_sorted_by_its_columns(open_file, tmp_path):
    """By what numbers mean, whatever their unit; the total stays last."""
    page = page_of_story(open_file, tmp_path, "groupby")
    heading = page.query_selector("#functions thead th:last-child")
    assert page.evaluate(ROWS, 0)[:2] == ["mean_chunk", "operation"]
    page.click("#functions thead th:last-child button")
    *longest, of_total = page.evaluate(ROWS, 6)
    values = [value_of(text) for text in longest]
    assert values == sorted(values, reverse=True)
    assert of_total == longest[0]
    assert {text.split()[1] for text in longest} == {"ms", "µs"}
    assert heading.get_attribute("aria-sort") == "descending"
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    assert page.evaluate(ROWS, 6) == [*reversed(longest), of_total]
    page.click("#functions thead th:first-child button")
    names = page.evaluate(ROWS, 0)
    assert names[-1] == "total"
    assert names[:-1] == sorted(names[:-1])
    assert len(page.query_selector_all("#functions [aria-sort]")) == 1


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


@pytest.mark.parametrize(("width", "named"), [(1280, ["before", "after"]), (390, ["before"])])
def test_a_name_is_shown_where_its_phase_has_the_pixels(open_file, tmp_path, width, named):
    path = tmp_path / "page.html"
    report(recording_of(2.5, 3.6, 9.0, 10.0), path)
    page = names_in(open_file, path, width)
    assert shown_in(page) == [named]


def test_a_name_is_in_the_middle_of_what_is_in_view(open_file, tmp_path):
    path = tmp_path / "page.html"
    report(recording_of(2.0, 2.1, 2.2, 10.0), path)
    page = names_in(open_file, path, 1280)
    assert shown_in(page) == [["before", "after"]]
    page.evaluate("""() => {
        const plot = Bokeh.documents[0].roots().flatMap((root) => [...root.references()])
            .find((model) => model.type === "Figure" && model.left[0]?.axis_label === "Workers")
        plot.x_range.setv({start: 1.5, end: 2.5})
    }""")
    settled(page, 300)
    (names,) = page.evaluate(PHASES)
    assert {name: round(x, 3) for name, x, visible in names if visible} == {
        "before": 1.75,
        "after": 2.35,
    }


OUTLINED = """() => {
    const {data} = Bokeh.documents[0].get_model_by_name("tasks on the critical path")
    return [[...data.left], [...data.right], [...data.top]]
}"""
LINES = """() => {
    const {data} = Bokeh.documents[0].get_model_by_name("critical path")
    return [[...data.x0], [...data.x1]]
}"""
SWITCH = "#show-critical-path"


def opened(open_file, tmp_path, story, **settings):
    recording = load(STORIES / f"{story}.diag")
    page = open_file(report(recording, tmp_path / "page.html"), **settings)
    settled(page, 300)
    return recording, page


def test_tasks_on_the_path_are_outlined_in_their_lanes(open_file, tmp_path):
    recording, page = opened(open_file, tmp_path, "qr")
    rows = critical_path(recording).tasks["task"]
    start, stop = (recording.tasks[name][rows] - recording.start for name in ("start", "stop"))
    left, right, top = page.evaluate(OUTLINED)
    assert left == pytest.approx(start.tolist())
    assert right == pytest.approx(stop.tolist())
    lanes = [int(name.split("-")[1]) for name in recording.tasks.worker[rows].tolist()]
    assert top == [320 * lane for lane in lanes]
    # A line from the stop of each to the start of the next.
    assert page.evaluate(LINES) == [right[:-1], left[1:]]
    assert page.locator(SWITCH).get_attribute("aria-pressed") == "true"
    page.locator(SWITCH).focus()
    page.keyboard.press("Enter")
    assert page.evaluate(OUTLINED) == [[], [], []]
    assert page.evaluate(LINES) == [[], []]
    assert page.locator(SWITCH).get_attribute("aria-pressed") == "false"


def test_among_many_tasks_it_is_outlined_when_asked_for(open_file, tmp_path):
    recording, page = opened(open_file, tmp_path, "climatology")
    assert page.evaluate(OUTLINED) == [[], [], []]
    page.click(SWITCH)
    settled(page, 200)
    rows = critical_path(recording).tasks["task"]
    left, right, _ = page.evaluate(OUTLINED)
    # Times of many tasks are in ticks.
    start, stop = (recording.tasks[name][rows] - recording.start for name in ("start", "stop"))
    assert left == pytest.approx(start.tolist(), abs=1e-6)
    assert right == pytest.approx(stop.tolist(), abs=1e-6)
