"""Many tasks in a real browser: drawn soon, and each of them can be reached."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.made_up import FUNCTIONS, many_tasks, recording_of
from dask_diag import visualize
from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.model.codes import Activity
from dask_diag.model.table import Table
from dask_diag.views.colors import FunctionColors, look_of
from dask_diag.views.lanes import tasks_in_lanes
from dask_diag.views.plots.tasks import FULL, LANE

from .javascript import changed_by_javascript, needs_node
from .opened_pages import settled
from .paints import observe_paints, paints_of_half
from .recordings import filled_table
from .test_many_tasks import with_task_columns

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]

MODELS = "const models = [...Bokeh.documents[0]._all_models.values()]"
STATE = f"""() => {{
    {MODELS}
    const status = models.find((m) => m.type == "Title" && m.text.includes("in view"))
    if (status == null) return null
    const quads = models.filter((m) => m.type == "GlyphRenderer" && m.glyph.type == "Quad")
    const image = models.find((m) => m.type == "GlyphRenderer" && m.glyph.type == "ImageRGBA")
    const rows = (data) => Object.fromEntries(Object.entries(data).map(([n, c]) => [n, [...c]]))
    return {{
        status: status.text,
        tasks: rows(quads[0].data_source.data),
        marked: quads.slice(2).map((r) => rows(r.data_source.data)),
        images: image.data_source.data.image.map((i) => ({{shape: i.shape, pixels: [...i]}})),
        at: [...image.data_source.data.x, ...image.data_source.data.width],
    }}
}}"""


def state(page):
    page.wait_for_function(f"({STATE})() != null", polling=20, timeout=60_000)
    settled(page, 150)
    return page.evaluate(STATE)


def show(page, start, stop):
    page.evaluate(
        f"""([start, end]) => {{
            {MODELS}
            // The overview strip has an axis of its own.
            const ranges = models.filter((m) => m.type == "Figure").map((m) => m.x_range);
            (ranges.find((range) => range.min_interval != null) ?? ranges[0]).setv({{start, end}})
        }}""",
        [start, stop],
    )


def look_at(page, start, stop):
    show(page, start, stop)
    settled(page, 200)
    return state(page)


def drawn_with(page, key):
    """The rectangles, as soon as a task of this key is one of them."""
    page.wait_for_function(
        f"""key => {{
            {MODELS}
            const quads = models.find((m) => m.type == "GlyphRenderer" && m.glyph.type == "Quad")
            return [...quads.data_source.data.key].includes(key)
        }}""",
        arg=key,
        polling=20,
    )
    return page.evaluate(STATE)["tasks"]


@pytest.mark.long
def test_many_tasks_are_drawn_soon(open_file, browser, tmp_path, retried):
    for count in (10_000, 200_000):
        path = tmp_path / f"{count}.html"
        visualize(many_tasks(count), filename=path, plots=["tasks"], show=False)

    def opened_alone(count):
        """In a process of its own, as a reader opens it: until it is drawn, in ms."""
        page = open_file(tmp_path / f"{count}.html", 1100, 1000, context=browser.new_context())
        return state(page), page.evaluate("performance.now()")

    def measure():
        # A machine that is slow just now is slow with few tasks, too.
        _, of_few = opened_alone(10_000)
        reported, took = opened_alone(200_000)
        assert took < max(3000, 1.5 * of_few)
        assert reported["status"].startswith("200,000 tasks in view, aggregated")
        assert len(reported["images"]) == 16

    retried(measure)


def test_every_task_can_be_reached_with_its_own_times_and_key(opened):
    recording = many_tasks(100_000, workers=8)
    tasks = recording.tasks
    page = opened(recording, plots=["tasks"])
    state(page)
    keys = tasks["key"].tolist()
    random = np.random.default_rng(3)
    for row in [0, len(tasks) - 1, *random.integers(0, len(tasks), 12).tolist()]:
        start, stop = float(tasks["start"][row]), float(tasks["stop"][row])
        around = max(stop - start, 1e-3)
        show(page, start - around, stop + around)
        drawn = drawn_with(page, keys[row])
        index = drawn["key"].index(keys[row])
        assert drawn["left"][index] == pytest.approx(start, abs=1e-6)
        assert drawn["right"][index] == pytest.approx(stop, abs=1e-6)
        cpu = float(tasks["thread_cpu"][row])
        assert drawn["cpu"][index] == pytest.approx(cpu, abs=2e-6 + 0.002 * (stop - start))
        assert drawn["top"][index] == LANE * int(tasks["worker"][row].split("-")[1])
        assert FUNCTIONS[drawn["function"][index]] == tasks["function"][row]


@needs_node
def test_what_the_page_draws_of_packed_tasks_is_what_is_drawn_of_few(opened):
    recording = many_tasks(6000, workers=4)
    page = opened(recording, plots=["tasks"])
    stop = float(np.median(recording.tasks["stop"])) * 0.8
    reported = look_at(page, 0, stop)
    lanes = tasks_in_lanes(recording, 0.0)
    few = lanes._replace(table=lanes.table.filter(lanes.table["start"] <= stop))
    models = {"rectangles": {}, "marks": [], "marked": [], "lane_height": LANE, "full": FULL}
    arguments = {**models, "columns": few.columns, "keys": few.table["key"].tolist()}
    (changed,) = changed_by_javascript("plots/tasks/tasks.js", "draw_all", arguments)
    expected = changed["rectangles"]["data"]
    assert 1000 < len(reported["tasks"]["key"]) < 3000
    for name in ("key", "top", "function", "outcome"):
        assert reported["tasks"][name] == expected[name]
    for name, off in (("left", 1e-6), ("right", 1e-6), ("cpu", 3e-5)):
        assert reported["tasks"][name] == pytest.approx(expected[name], abs=off)
    ticks_long = np.subtract(expected["right"], expected["left"]) / 1e-6
    off = np.abs(np.subtract(reported["tasks"]["off_cpu"], expected["off_cpu"]))
    assert (off <= 1 + 255 * (0.002 + 2 / ticks_long)).all()
    assert reported["images"] == []
    look_at(page, 0, recording.stop)
    assert state(page)["tasks"]["key"] == []


def test_no_task_is_painted_before_its_colour_is_there(opened):
    recording = many_tasks(6000, workers=4)
    page = opened(recording, plots=["tasks"], sizing_mode="stretch_width")
    state(page)
    observe_paints(page)
    # The text below changes with the tasks, while the page is made narrower.
    for width, share in ((900, 0.3), (500, 1.0), (800, 0.01)):
        page.evaluate(f"document.body.style.width = '{width}px'")
        look_at(page, 0, share * recording.stop)
    assert paints_of_half(page) == []


def layers(count=6000):
    """One worker: first only `a`, all CPU, no gaps; then only `b`, no CPU, free half of the time."""
    half = count // 2
    start = np.arange(count) / half
    length = np.where(start < 1, 1 / half, 0.5 / half)
    label = Categorical(np.zeros(count, int), ["ok"])
    columns = {
        "key": PrefixStrings.of(f"k-{n}" for n in range(count)),
        "function": Categorical((start >= 1).astype(int), ["a", "b"]),
        "start": start,
        "stop": start + length,
        "thread_cpu": np.where(start < 1, length, 0.0),
        "worker": Categorical(label.codes, ["thread-0"]),
        "computation": Categorical(label.codes, ["c-1"]),
        "outcome": label,
        "error": Categorical(label.codes, [""]),
    }
    blank = many_tasks(16).tasks
    for name in set(blank.columns) - set(columns):
        columns[name] = blank[name][np.zeros(count, int)]
    return replace(recording_of(Table(columns), 1), stop=2.0)


def pixels_of(image):
    """A function that gives the colour and opacity at a row from above and a column."""
    rows, width = image["shape"]

    def pixel(row, column):
        value = image["pixels"][row * width + column]
        red, green, blue, alpha = (value >> shift & 255 for shift in (0, 8, 16, 24))
        return f"#{red:02x}{green:02x}{blue:02x}", round(alpha / 255, 2)

    return rows, width, pixel


def chain(count=40_000):
    """Tasks that depend each on the one before, in turns on two workers, for 1 s.

    A worker has a task for three sixteenths of its time, one of them off the CPU. For five the
    scheduler collects a result or hands out a task, and for eight no task is ready: it is idle.
    """
    cycle = 1 / count
    number = np.arange(count)
    start = number * cycle
    recording = with_task_columns(
        layers(count),
        function=Categorical(np.zeros(count, int), ["a"]),
        worker=Categorical(number % 2, ["thread-0", "thread-1"]),
        start=start,
        stop=start + 0.375 * cycle,
        thread_cpu=np.full(count, 0.25 * cycle),
        submitted=start,
        collected=start + 0.625 * cycle,
    )
    computations = {name: recording.computations[name] for name in recording.computations.columns}
    computations |= {"stop": np.ones(1), "workers": np.array([2])}
    return replace(
        recording,
        computations=filled_table("computations", computations),
        dependencies=filled_table("dependencies", {"task": number[1:], "depends_on": number[:-1]}),
        stop=1.0,
    )


@pytest.mark.parametrize("view", [(0.0, 1.0), (0.4, 0.6)])
def test_cpu_off_cpu_overhead_and_idle_have_their_shares_of_each_lane(opened, view):
    page = opened(chain(), plots=["tasks"])
    state(page)
    reported = look_at(page, *view)
    assert len(reported["images"]) == 2
    overhead = look_of(Activity.OVERHEAD).color
    for image in reported["images"]:
        rows, width, pixel = pixels_of(image)
        column = [[pixel(row, at) for row in range(rows)] for at in range(5, width - 5)]
        colors = [color if alpha else "" for pixels in column for color, alpha in pixels]
        shares = {color: count / len(colors) for color, count in Counter(colors).items()}
        assert shares == pytest.approx(
            {
                FunctionColors(["a"])["a"]: 2 / 16,
                look_of(Activity.NONCPU).color: 1 / 16,
                overhead: 5 / 16,
                look_of(Activity.IDLE).color: 8 / 16,
            },
            abs=0.02,
        )
        # It is hatched: some of it is strong, and the rest pale.
        strong = {alpha for pixels in column for color, alpha in pixels if color == overhead}
        assert strong == {0.25, 1.0}


@pytest.mark.parametrize("share", [0.03, 0.25, 1.0])
def test_the_height_is_the_share_of_time_and_one_task_is_seen(opened, share):
    """Up to 1 s 20,000 tasks are, all CPU, for `share` of the time; at 1.5 s one is alone."""
    count = 20_000
    start = np.append(np.arange(count) / count, 1.5)
    length = np.append(np.full(count, share / count), 1e-5)
    recording = with_task_columns(
        layers(count + 1), start=start, stop=start + length, thread_cpu=length
    )
    (image,) = state(opened(recording, plots=["tasks"]))["images"]
    rows, width = image["shape"]
    values = np.array(image["pixels"]).reshape(rows, width)
    alpha = (values >> 24 & 255) / 255
    for activity in (Activity.OVERHEAD, Activity.IDLE):
        red, green, blue = bytes.fromhex(look_of(activity).color[1:])
        alpha[values & 0xFFFFFF == red | green << 8 | blue << 16] = 0.0
    assert set(np.unique(alpha)) == {0.0, 1.0}
    heights = alpha.sum(axis=0)
    assert heights[5 : width // 2 - 5] == pytest.approx(max(1, share * rows), abs=1)
    assert (alpha == np.sort(alpha, axis=0)).all(), "columns stand on the ground"
    late = alpha[:, width // 2 + 5 :]
    (column,) = np.flatnonzero(late.any(axis=0))
    assert column == pytest.approx(width / 4 - 5, abs=2)
    assert late[:, column].sum() == 1


def test_a_browser_that_cannot_unpack_is_reported(open_file, tmp_path):
    visualize(many_tasks(5000), filename=tmp_path / "page.html", plots=["tasks"], show=False)
    reported = f"""() => {{
        {MODELS}
        return models.some((m) => m.type == "Title" && m.text.includes("no DecompressionStream"))
    }}"""
    script = "delete window.DecompressionStream"
    open_file(tmp_path / "page.html", script=script, until=reported)


def test_keys_that_are_left_out_are_reported(opened, monkeypatch):
    monkeypatch.setattr("dask_diag.views.plots.tasks._MOST_BYTES", 1_000_000)
    recording = many_tasks(100_000, alike=False)
    page = opened(recording, plots=["tasks"])
    assert "2.86 MB of keys are left out of this page" in state(page)["status"]
    reported = look_at(page, 0, 0.01)
    assert reported["tasks"]["key"]
    assert set(reported["tasks"]["key"]) == {"(2.86 MB of keys are left out of this page)"}
