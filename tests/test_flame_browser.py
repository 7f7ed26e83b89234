"""The flame graph in a real browser: zoom, search, choice of function, kind and range."""

import time
from dataclasses import replace

import pytest

from dask_diag import report, visualize

from .opened_pages import DRAWN, colours, frames, settled, tooltip
from .recordings import CORE, LEAF, MAIN, known_stacks, recording_of_stacks
from .test_flame import many_stacks
from .test_flame_orders import SHARED, SLOW, called_from_two, libraries
from .test_views import recording_of

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]

STATE = """() => {
    const models = [...Bokeh.documents[0]._all_models.values()]
    const drawn = models.find((model) => model.flame_state != null)
    const graph = models.find((model) => model.type == "Figure" && model.y_range.start > model.y_range.end)
    const {data} = drawn
    const calls = [...data.left].map((_, i) => Object.fromEntries(
        Object.entries(data).map(([name, column]) => [name, column[i]])))
    const words = models.find((model) => model.data?.text != null).data.text
    const {status: {text: status}} = drawn.flame_state.models
    const bars = models.find((model) => model.data?.either != null).data
    return {calls, words: [...words], status, bars,
            x: [graph.x_range.start, graph.x_range.end], y: [graph.y_range.start, graph.y_range.end]}
}"""


class Flame:
    """A flame graph in a page, as its reader uses it."""

    def __init__(self, page):
        self.page = page
        page.wait_for_function(f"{DRAWN} && ({STATE})().calls.length > 0", timeout=20_000)

    @property
    def state(self):
        settled(self.page, 50)
        return self.page.evaluate(STATE)

    @property
    def totals(self):
        """The name of each call that is drawn, and its total as reported."""
        return {call["name"]: call["total"] for call in self.state["calls"]}

    @property
    def status(self):
        return self.page.evaluate(
            "text => { const d = document.createElement('div'); d.innerHTML = text; return d.innerText }",
            self.state["status"],
        )

    def middle_of(self, name):
        """Where on the page the visible part of the first call of that name is."""
        state, box = self.state, frames(self.page)[0]
        call = next(call for call in state["calls"] if call["name"] == name)
        (x0, x1), (bottom, top) = state["x"], state["y"]
        x = (max(call["left"], x0) + min(call["right"], x1)) / 2
        across, down = (x - x0) / (x1 - x0), (call["top"] + 0.5 - top) / (bottom - top)
        return box["x"] + box["width"] * across, box["y"] + box["height"] * down

    def click(self, name):
        self.page.mouse.click(*self.middle_of(name))

    def press(self, label):
        self.page.get_by_role("button", name=label, exact=True).click()

    def search(self, text):
        self.page.get_by_placeholder("search functions and files").fill(text)

    def choose_range(self, start, stop):
        """Drag over the timeline from one share of its width to another."""
        box = frames(self.page)[-1]
        height = box["y"] + box["height"] / 2
        self.page.mouse.move(box["x"] + box["width"] * start, height)
        self.page.mouse.down()
        self.page.mouse.move(box["x"] + box["width"] * (start + stop) / 2, height)
        self.page.mouse.move(box["x"] + box["width"] * stop, height)
        self.page.mouse.up()


def flame_of(opened, recording, **kwargs):
    return Flame(opened(recording, **kwargs))


def test_all_calls_are_drawn_with_their_totals_and_names(opened):
    flame = flame_of(opened, known_stacks())
    assert flame.totals == {
        "all": "7.50 s, 100%",
        "tasks": "7.50 s, 100% (100% of caller)",
        "sum": "4.00 s, 53% (53% of caller)",
        "load": "3.50 s, 47% (47% of caller)",
        "main": "3.50 s, 47% (100% of caller)",
        "sorted": "2.00 s, 27% (100% of caller)",
        "(not sampled)": "1.00 s, 13% (25% of caller)",
        "Array.sum": "3.00 s, 40% (86% of caller)",
        "encode": "500 ms, 7% (17% of caller)",
    }
    state = flame.state
    assert state["x"] == [0, 7.5]
    assert "Array.sum  (dask/array/core.py:100)" in state["words"]
    assert flame.status == "7.50 s in 60 samples · 13% could not be sampled"
    assert len(colours(flame.page, frames(flame.page)[0])) > 5


def test_a_click_zooms_and_one_on_a_caller_or_up_goes_back(opened):
    flame = flame_of(opened, known_stacks())
    flame.click("Array.sum")
    assert flame.state["x"] == [4.0, 7.0]
    names = [call["name"] for call in flame.state["calls"]]
    assert names == ["all", "tasks", "load", "main", "Array.sum", "encode"]
    flame.press("Up")
    assert flame.state["x"] == [4.0, 7.5]
    flame.click("encode")
    assert flame.state["x"] == [4.0, 4.5]
    flame.click("load")
    assert flame.state["x"] == [4.0, 7.5]
    flame.click("all")
    assert flame.state["x"] == [0, 7.5]
    flame.press("Up")
    assert flame.state["x"] == [0, 7.5]


def test_hovering_a_call_shows_of_it(opened):
    flame = flame_of(opened, known_stacks())
    flame.page.mouse.move(*flame.middle_of("Array.sum"))
    text = tooltip(flame.page)
    for part in ("Array.sum", "dask/array/core.py:100", "3.00 s, 40%", "2.50 s, 33%"):
        assert part in text


def test_what_is_found_is_highlighted_and_its_total_counts_nested_calls_once(opened):
    again = ("again", "x/again.py", 2, 1)
    flame = flame_of(
        opened,
        recording_of_stacks(
            [
                ((0.0, 1.0), "t", [again, again, again], 2.0, 1.0),
                ((0.0, 1.0), "t", [MAIN, again], 1.0, 1.0),
                ((0.0, 1.0), "t", [MAIN], 5.0, 1.0),
            ]
        ),
    )
    flame.search("AGAIN")
    assert "found: 3.00 s, 38%" in flame.status
    looks = {
        (call["name"], call["fill"] == "#d6007a", call["alpha"]) for call in flame.state["calls"]
    }
    assert looks == {
        ("again", True, 1),
        ("main", False, 0.3),
        ("t", False, 0.3),
        ("tasks", False, 0.3),
        ("all", False, 0.3),
    }
    flame.search("code/main")
    assert "found: 6.00 s, 75%" in flame.status
    flame.search("nowhere")
    assert "found: 0 s, 0%" in flame.status
    flame.search("")
    assert "found" not in flame.status
    assert {call["alpha"] for call in flame.state["calls"]} == {1}


def test_one_function_of_tasks_is_shown_alone(opened):
    flame = flame_of(opened, known_stacks())
    flame.page.get_by_role("combobox").select_option(label="load")
    assert flame.totals == {
        "load": "3.50 s, 100%",
        "main": "3.50 s, 100% (100% of caller)",
        "Array.sum": "3.00 s, 86% (86% of caller)",
        "encode": "500 ms, 14% (17% of caller)",
    }
    assert flame.status == "3.50 s in 40 samples"
    assert list(flame.state["bars"]["left"]) == [0, 1]
    flame.press("Up")
    assert "all" not in flame.totals
    flame.press("Reset")
    assert flame.totals["all"] == "7.50 s, 100%"
    assert list(flame.state["bars"]["left"]) == [0, 1, 2]


def test_wall_time_cpu_and_waiting_can_be_switched(opened):
    flame = flame_of(opened, known_stacks())
    flame.press("CPU")
    assert flame.totals["all"] == "4.00 s, 100%"
    assert flame.totals["load"] == "2.25 s, 56% (56% of caller)"
    assert "(not sampled)" not in flame.totals
    assert flame.status.startswith("4.00 s of CPU in")
    flame.press("Waiting")
    assert flame.totals["all"] == "2.50 s, 100%"
    assert flame.totals["sorted"] == "1.00 s, 40% (100% of caller)"
    flame.press("Wall time")
    assert flame.totals["all"] == "7.50 s, 100%"


def test_a_range_that_is_chosen_on_the_timeline_is_what_is_shown(opened):
    flame = flame_of(opened, known_stacks())
    flame.choose_range(0.5, 0.75)
    shown = flame.totals
    assert shown["all"].startswith(("2.00 s", "1.99 s", "2.01 s"))
    assert "load" not in shown
    assert "from 2.000 s to 3.000 s" in flame.status
    box = frames(flame.page)[-1]
    flame.page.mouse.click(box["x"] + 20, box["y"] + 20)
    assert flame.totals["all"] == "7.50 s, 100%"


def test_calls_too_narrow_to_draw_are_reported_as_one(opened):
    rows = [((0.0, 1.0), "t", [(f"f{n}", "a.py", 1, 1)], 1e-4, 0.0) for n in range(500)]
    flame = flame_of(opened, recording_of_stacks([*rows, ((0.0, 1.0), "t", [CORE], 10.0, 1.0)]))
    assert flame.totals["500 calls"] == "50.0 ms, 0.5%"
    assert len(flame.state["calls"]) == 5


def test_deep_recursion_can_be_reached(opened):
    again = [(f"level_{n}", "a.py", n, n) for n in range(1, 1001)]
    flame = flame_of(opened, recording_of_stacks([((0.0, 1.0), "t", [*again, LEAF], 1.0, 1.0)]))
    before = flame.state["y"]
    assert before[1] == 0
    assert "deeper calls: turn the wheel, or drag" in flame.status
    box = frames(flame.page)[0]
    flame.page.mouse.move(box["x"] + 50, box["y"] + 50)
    flame.page.mouse.wheel(0, 400)
    assert flame.state["y"][1] > 0
    flame.click("level_20")
    y = flame.state["y"]
    assert y[1] < 21 < y[0]


@pytest.mark.long
def test_ten_thousand_functions_open_in_three_seconds(browser, tmp_path, retried):
    path = tmp_path / "page.html"
    visualize(many_stacks(), filename=path, show=False)

    def measure():
        page = browser.new_page(viewport={"width": 1100, "height": 1000})
        started = time.perf_counter()
        page.goto(path.as_uri())
        flame = Flame(page)
        took = time.perf_counter() - started
        assert len(flame.state["calls"]) > 1000
        page.close()
        assert took < 3

    retried(measure)


def focus(flame):
    """Give the graph the keyboard."""
    flame.page.evaluate(
        """() => {
            const walk = (view) => {
                if (view.model.type == "Figure" && view.model.y_range.start > view.model.y_range.end)
                    view.canvas_view.events_el.focus()
                for (const child of view.child_views ?? []) walk(child)
            }
            for (const view of Object.values(Bokeh.index)) walk(view)
        }"""
    )


def detail(flame):
    settled(flame.page)
    return flame.page.locator("[role=status]").evaluate(
        """(host) => [...host.shadowRoot.children].filter((child) => child.tagName != "STYLE")
            .map((child) => child.innerText).join(" ")"""
    )


def calls(flame):
    """Row, name and seconds of all that is drawn."""
    return [(c["top"], c["name"], c["total"].split(",")[0]) for c in flame.state["calls"]]


def option(flame, name):
    labels = flame.page.get_by_role("combobox").last.locator("option").all_inner_texts()
    return next(label for label in labels if f" {name} " in f" {' '.join(label.split())} ")


def test_a_sandwich_has_callers_above_and_a_click_goes_on_to_one(opened):
    flame = flame_of(opened, called_from_two())
    flame.press("Sandwich")
    flame.page.get_by_role("combobox").last.select_option(label=option(flame, "shared"))
    above = {(row, name, total) for row, name, total in calls(flame) if row >= -1}
    assert above == {(0, "shared", "1.00 s"), (-1, "slow", "500 ms"), (-1, "quick", "500 ms")}
    assert flame.state["y"][1] <= -5
    flame.click("quick")
    assert (1, "shared", "500 ms") in calls(flame)
    assert (0, "quick", "500 ms") in calls(flame)
    focus(flame)
    flame.page.keyboard.press("Escape")
    assert (0, "shared", "1.00 s") in calls(flame)


def test_libraries_fold_and_unfold(opened):
    flame = flame_of(opened, libraries())
    before = flame.totals
    flame.press("Fold libraries")
    assert flame.totals["pandas (2 frames)"] == "5.75 s, 100% (100% of caller)"
    assert flame.totals["slow"].startswith("4.25 s")
    assert "merge" not in flame.totals
    assert flame.status.startswith("5.75 s in")
    for order in ("Time order", "Sandwich"):
        flame.press(order)
        assert flame.state["calls"]
    flame.press("By function")
    flame.press("Fold libraries")
    assert flame.totals == before


def test_a_task_is_chosen_by_its_key(opened):
    rows = [((0.0, 1.0), "f", [call], seconds, 0.0) for call, seconds in ((SLOW, 1), (SHARED, 2))]
    flame = flame_of(opened, recording_of_stacks(rows, keys=["('f', 0)", "('f', 1)"]))
    key = flame.page.get_by_placeholder("key of a task")
    key.fill("('f', 1)")
    assert flame.totals["all"] == "2.00 s, 100%"
    assert "slow" not in flame.totals
    assert "of 1 task by key" in flame.status
    key.fill("'f'")
    assert "of 2 tasks by key" in flame.status
    key.fill("none")
    assert "nothing to draw" in flame.status
    key.fill("")
    assert flame.totals["all"] == "3.00 s, 100%"
    key.fill("('f', 0)")
    key.press("Escape")
    flame.press("Reset")
    assert flame.totals["all"] == "3.00 s, 100%"


def test_the_keyboard_walks_zooms_and_goes_back(opened):
    flame = flame_of(opened, called_from_two())
    focus(flame)
    for _ in range(4):
        flame.page.keyboard.press("ArrowDown")
    assert detail(flame).startswith("slow · ~/code/work.py:10 · most time at line 12 · 1.00 s, 67%")
    flame.page.keyboard.press("ArrowRight")
    assert detail(flame).startswith("quick")
    flame.page.keyboard.press("Enter")
    assert flame.state["x"] == [1.0, 1.5]
    flame.page.keyboard.press("Escape")
    assert flame.state["x"] == [0, 1.5]
    flame.page.keyboard.press("Escape")
    assert flame.state["x"] == [0, 1.5]


def test_in_a_report_the_graph_counts_what_the_other_plots_show(open_file, tmp_path):
    stacks = called_from_two()
    tasks = recording_of([("f", 0.0, 3.0, 1.5, "thread-0")])
    tables = {name: getattr(stacks, name) for name in ("frames", "call_tree", "samples")}
    report(replace(tasks, start=0.0, stop=3.0, **tables), tmp_path / "report.html")
    page = open_file(tmp_path / "report.html", 1280, 900)
    flame = Flame(page)
    page.evaluate(
        """() => [...Bokeh.documents[0]._all_models.values()].find((m) => m.name == "tasks")
        .x_range.setv({start: 2, end: 3})"""
    )
    page.wait_for_function(f"({STATE})().status.includes('from 2')")
    page.wait_for_function(f"({STATE})().calls.every((call) => call.name != 'slow')")
    assert flame.totals["all"] == "500 ms, 100%"
    assert "from 2.000 s to 3.000 s" in flame.status
    widths = page.evaluate(
        """() => {
            const {graph} = [...Bokeh.documents[0]._all_models.values()]
                .find((model) => model.flame_state != null).flame_state.models
            return [graph.inner_width, document.querySelector("#flame").clientWidth]
        }"""
    )
    assert widths[0] > 0.95 * widths[1]
