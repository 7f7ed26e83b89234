"""The pictures of activities in a real browser: what the reader chooses is what is drawn."""

from dataclasses import replace

import pytest

from dask_diag import visualize
from dask_diag.analysis.facts import Analysis
from dask_diag.views.colors import look_of
from dask_diag.views.plots.activities import numbers_of

from .javascript import needs_node
from .opened_pages import DRAWN as PAGE_DRAWN
from .opened_pages import colours, frames, tooltip
from .paints import observe_paints, paints_of_half
from .test_activity_pictures import SEVERAL, laid_out
from .test_views import recording_of

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]

DRAWN = """() => {
    const models = [...Bokeh.documents[0]._all_models.values()]
    const plain = (columns) => Object.fromEntries(
        Object.entries(columns).map(([name, column]) => [name, Array.from(column)]))
    const pictures = {}
    for (const figure of models.filter((model) => model.type == "Figure")) {
        const pieces = figure.renderers[0].data_source
        const rows = figure.center.find((model) => model.type == "LabelSet").source
        pictures[figure.title.text] = {pieces: plain(pieces.data), rows: plain(rows.data),
            unit: figure.below[0].axis_label, height: figure.height, end: figure.x_range.end}
    }
    return pictures
}"""
TITLES = {
    "by_function": "Tasks by function",
    "of_cpu": "CPU and off-CPU",
    "by_activity": "By activity",
    "by_worker": "By worker",
}
CLICK = """(title) => {
    const walk = (root) => {
        for (const node of root.querySelectorAll("*")) {
            if (node.tagName == "LABEL" && node.textContent == title) return node.click() || true
            if (node.tagName == "BUTTON" && node.textContent == title) return node.click() || true
            if (node.shadowRoot && walk(node.shadowRoot)) return true
        }
        return false
    }
    return walk(document)
}"""


def panel(opened, source):
    return opened(source, plots=["activities"])


def choose_unit(page, name):
    page.locator("select").select_option(label=name)
    page.wait_for_function(PAGE_DRAWN)


def search(page, text):
    page.locator("input[type=text]").fill(text)
    page.wait_for_function(PAGE_DRAWN)


def click(page, title):
    assert page.evaluate(CLICK, title)
    page.wait_for_function(PAGE_DRAWN)


@needs_node
@pytest.mark.parametrize("recording", [SEVERAL, "many"], ids=["several", "many"])
def test_the_page_opens_and_changes_as_it_is_laid_out(opened, recording):
    if recording == "many":
        rows = [(f"f{n:03d}", 0.0, 1.0 + n / 99, 0.5, f"thread-{n % 40}") for n in range(400)]
        recording = recording_of(rows)
    numbers = numbers_of(Analysis(recording))
    named = [(look_of(name, is_free=free).name, free) for name, free in numbers.activities]
    numbers = replace(numbers, activities=named)
    page = panel(opened, recording)
    for index, unit in [(0, None), *enumerate(numbers.units), (0, "seconds")]:
        if unit is not None:
            choose_unit(page, unit)
        drawn = page.evaluate(DRAWN)
        for name, picture in laid_out(numbers, index).items():
            for part, columns in picture.items():
                for column, values in columns.items():
                    expected = values if column == "members" else pytest.approx(values, nan_ok=True)
                    assert drawn[TITLES[name]][part][column] == expected
            if name != "of_cpu":
                assert drawn[TITLES[name]]["unit"] == numbers.units[index]


# After each frame, how many pixels are drawn in each canvas of a figure that has any.
FRAMES = """
window.frames_drawn = []
const canvases = (root) => [...root.querySelectorAll("*")].flatMap((node) =>
    node.tagName == "CANVAS" ? [node] : node.shadowRoot ? canvases(node.shadowRoot) : [])
const pixels = ({width, height}, context) =>
    context.getImageData(0, 0, width, height).data.filter((value, i) => i % 4 == 3 && value > 0).length
const look = () => canvases(document).filter(({width, height}) => width * height > 10_000)
    .map((canvas) => pixels(canvas, canvas.getContext("2d"))).filter((drawn) => drawn > 0)
const after_frame = new MessageChannel()
after_frame.port1.onmessage = () => {
    const drawn = look()
    if (drawn.length > 0) window.frames_drawn.push(drawn)
    if (window.frames_drawn.length < 20) next()
}
const next = () => requestAnimationFrame(() => after_frame.port2.postMessage(null))
next()
"""


@pytest.mark.parametrize("plot", ["activities", "tasks"])
def test_the_first_frame_that_shows_a_figure_shows_all_of_it(open_file, tmp_path, plot):
    path = tmp_path / "page.html"
    visualize(SEVERAL, plots=[plot], filename=path, show=False)
    page = open_file(path, 1100, 1000, script=FRAMES, until="window.frames_drawn.length == 20")
    first, *_, last = page.evaluate("window.frames_drawn")
    assert first == last
    assert min(last) > 5000


def test_choosing_functions_changes_every_picture(opened):
    page = panel(opened, SEVERAL)
    before = page.evaluate(DRAWN)
    picture = colours(page, frames(page)[0])
    click(page, "g")
    after = page.evaluate(DRAWN)
    for title, names in [("Tasks by function", ["f"]), ("By worker", ["thread-0"])]:
        assert after[title]["rows"]["name"] == names
    assert after["Tasks by function"]["height"] < before["Tasks by function"]["height"]
    assert colours(page, frames(page)[0]) != picture
    assert page.get_by_text("tasks of 1 of 2 functions").is_visible()
    click(page, "g")
    assert page.evaluate(DRAWN) == before
    choose_unit(page, "bytes")
    box = frames(page)[0]
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.25 * box["height"])
    text = tooltip(page)
    for part in ("f", "read", "3.00 MB", "100% of this bar", "60% of all"):
        assert part in text
    assert "@" not in text


def test_no_bar_is_painted_before_its_colour_is_there(opened):
    page = panel(opened, SEVERAL)
    observe_paints(page)
    click(page, "g")
    choose_unit(page, "bytes")
    assert paints_of_half(page) == []


def test_a_search_narrows_the_list_and_the_buttons_choose_what_is_found(opened):
    names = [f"{kind}-{n}" for kind in ("load", "sum") for n in range(60)]
    page = panel(opened, recording_of([(name, 0.0, 1.0, 0.5, "thread-0") for name in names]))
    search(page, "LOAD-1")
    labels = [label.inner_text() for label in page.locator("label").all() if label.is_visible()]
    found = [f"load-{n}" for n in (1, *range(10, 20))]
    assert sorted(set(labels) & set(names)) == sorted(found)
    search(page, "")
    click(page, "Choose none")
    assert page.evaluate(DRAWN)["Tasks by function"]["rows"]["name"] == []
    assert page.get_by_text("nothing was measured").is_visible()
    search(page, "sum")
    click(page, "Choose all")
    drawn = page.evaluate(DRAWN)["Tasks by function"]["rows"]
    assert all(name.startswith("sum") for name in drawn["name"][:-1])
    assert drawn["name"][-1] == "(31 more functions) not to scale"
    assert sum(drawn["total"]) == pytest.approx(60)
