"""The live page in a real browser: it grows with the file, shares one axis, and lets nothing out."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.made_up import many_tasks
from dask_diag.storage.write import Writer

from .live_chunks import HOSTILE, chunk, provisional
from .opened_pages import is_a_problem, new_page, settled
from .recordings import NOTHING, filled_table
from .test_live_server import Running as Server
from .viewers import report_at

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]


class Running(Server):
    """A server that stays until its pages are closed: what they ask last is answered.

    Else they would ask in vain, at any moment until they are closed, and say so in the console.
    """

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.pages = []

    def __exit__(self, *args):
        for page in self.pages:
            page.close()
        super().__exit__(*args)


NUMBERS = "id => document.getElementById(id).textContent"


class Opened:
    """A page, what it asked for and what went wrong in it."""

    def __init__(self, window, **look):
        self.page = new_page(window, **look)
        self.problems, self.addresses = [], []
        self.page.on("console", lambda m: self.problems.append(m.text) if is_a_problem(m) else None)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append("a dialog"))
        self.page.on("request", lambda request: self.addresses.append(request.url))

    def open(self, server):
        server.pages.append(self.page)
        self.page.goto(server.server.url)
        return self

    def text(self, name):
        return self.page.evaluate(NUMBERS, name)

    def wait_for(self, name, text):
        self.page.wait_for_function(
            "([name, text]) => document.getElementById(name).textContent.includes(text)",
            arg=[name, text],
            timeout=15_000,
        )

    def model(self, name, attribute):
        return self.page.evaluate(
            "([name, attribute]) => Bokeh.documents[0].get_model_by_name(name)[attribute]",
            [name, attribute],
        )


@pytest.fixture
def opened(window):
    pages = []

    def open_page(server, **look):
        pages.append(Opened(window, **look))
        return pages[-1].open(server)

    yield open_page
    for open_one in pages:
        open_one.page.close()
        assert not open_one.problems
        assert all(url.startswith("http://127.0.0.1:") for url in open_one.addresses)


def test_the_page_grows_with_the_file_and_links_to_the_report(opened):
    with Writer("run.diag") as writer, Running() as server:
        writer.append(chunk(10, 12.0), provisional(10))
        page = opened(server)
        page.wait_for("progress", "10 of 50 tasks, 20%")
        assert "running" in page.text("state")
        assert page.page.locator("#done").get_attribute("aria-valuenow") == "20"
        assert page.page.title() == "running: 20%"
        assert HOSTILE[:20] in page.text("running")
        assert page.page.locator("img").count() == 0
        tasks, stripes = page.model("live_tasks", "data"), page.model("live_stripes", "data")
        assert tasks["name"] == ["inc"] * 10
        # None where less than half of a pixel would be striped.
        off_cpu = [n for n, share in enumerate(tasks["share"]) if share != "100%"]
        assert stripes["left"] == [tasks["left"][n] for n in off_cpu]
        assert len(page.model("live_running", "data")["left"]) == 1
        assert not page.page.locator("#report-link").is_visible()
        writer.append(chunk(20, 22.0), provisional(30))
        page.wait_for("progress", "30 of 50 tasks, 60%")
        assert "30" in page.text("functions")
        assert page.text("functions").startswith("inc")
        writer.append(chunk(20, 30.0))
        writer.close()
        page.wait_for("state", "complete")
        page.wait_for("progress", "50 tasks")
        assert page.page.title().startswith("complete: 50 tasks")
        page.page.click("#report")
        page.page.wait_for_selector("h1:has-text('29.5 s; 1 computation had not ended')")


ZOOMED = """async (key) => {
    const models = ["live_tasks", "live_images"].map((n) => Bokeh.documents[0].get_model_by_name(n))
    const began = performance.now()
    const drawn = new Promise((resolve) => models.map((m) => m.properties.data.change.connect(resolve)))
    document.dispatchEvent(new KeyboardEvent("keydown", {key}))
    await drawn
    await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))
    return performance.now() - began
}"""
SIZES = """() => performance.getEntriesByType("resource")
    .filter((each) => each.name.includes("data?")).map((each) => each.encodedBodySize)"""


def peak_memory(pid):
    """Bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])


@pytest.mark.long
@pytest.mark.truth
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux")
def test_a_million_tasks_are_zoomed_in_300_ms_with_50_kb_and_350_mb(browser, retried):
    tasks, rows_each = many_tasks(1_000_000).tasks, 10_000
    with Writer("run.diag") as writer:
        for first in range(0, len(tasks), rows_each):
            rows = tasks.filter(slice(first, first + rows_each))
            writer.append(replace(NOTHING, stop=float(rows.stop.max()), tasks=rows))
    command = [sys.executable, "-m", "dask_diag", "live", "--no-browser", "run.diag"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as viewer:
        page = browser.new_page()
        try:
            address = viewer.stderr.readline()
            page.goto(re.search(r"http://\S+", address)[0])
            page.wait_for_function("() => document.body.textContent.includes('complete')")

            def measure():
                took = [page.evaluate(ZOOMED, key) for key in ("0", *"++++++", "0")]
                assert np.median(took) <= 300, took

            retried(measure)
            sizes = page.evaluate(SIZES)
            assert 0 < max(sizes) <= 50_000
            # The report takes more than that, in a process of its own.
            assert "1,000,000 tasks" in report_at(address)
            assert peak_memory(viewer.pid) <= 350e6
        finally:
            page.close()
            viewer.terminate()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_has_all_of_it_without_scrolling_sideways(opened, scheme):
    with Writer("run.diag") as writer:
        writer.append(chunk(30, 40.0, "a_function_with_a_long_name_" * 4))
    with Running() as server:
        page = opened(server, width=390, scheme=scheme)
        page.wait_for("state", "complete")
        page.wait_for("functions", "30")
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 390
        background = page.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") is (scheme == "light")


HIDE = """(is_hidden) => {
    Object.defineProperty(document, "hidden", {get: () => is_hidden, configurable: true})
    document.dispatchEvent(new Event("visibilitychange"))
}"""
QUICK = """
const usual = window.setTimeout
window.setTimeout = (act, wait, ...rest) => usual(act, wait >= 5000 ? wait / 20 : wait, ...rest)
"""
"""Waits of many seconds take a twentieth."""


def test_a_hidden_page_asks_for_numbers_now_and_then_and_sees_the_end(window):
    page = Opened(window)
    page.page.add_init_script(QUICK)
    with Writer("run.diag") as writer, Running() as server:
        writer.append(chunk(10, 12.0), provisional(10))
        page.open(server).wait_for("progress", "10 of 50")
        page.wait_for("in-view", "11 tasks")
        page.page.evaluate(HIDE, True)
        asked, before = server.server._asked, len(page.addresses)
        writer.append(chunk(20, 22.0), provisional(30))
        page.wait_for("progress", "30 of 50")
        # The viewer ends a minute after the last question: this page is one that is open.
        assert server.server._asked > asked
        writer.append(chunk(20, 30.0))
        writer.close()
        page.wait_for("kind", "complete")
        assert page.page.title() == "complete: 50 tasks"
        assert page.page.locator("#report-link").is_visible()
        asked = [url for url in page.addresses[before:] if "data?" in url]
        assert asked
        assert all("p=0" in url for url in asked)
        # Nothing was drawn that nobody saw.
        assert len(page.model("live_tasks", "data")["left"]) == 10
        page.page.evaluate(HIDE, False)
        page.page.wait_for_function(
            "() => Bokeh.documents[0].get_model_by_name('live_tasks').data.left.length === 50"
        )
        page.page.close()


def test_a_viewer_that_does_not_answer_is_said_and_asked_again(window):
    page = Opened(window)
    page.page.add_init_script(QUICK)
    with Writer("run.diag") as writer, Running() as server:
        writer.append(chunk(10, 12.0), provisional(10))
        page.open(server).wait_for("progress", "10 of 50")
        page.page.route("**/data?*", lambda route: route.abort())
        writer.append(chunk(20, 22.0), provisional(30))
        page.wait_for("lost-viewer", "does not answer")
        assert "10 of 50" in page.text("progress")
        assert page.text("kind") == "not connected"
        # It may be complete by now.
        assert "goes on" not in page.text("lost-viewer")
        assert re.search(r"the state of \d?\d:\d\d:\d\d", page.text("lost-viewer"))
        assert "dask-diag live run.diag" in page.text("lost-viewer")
        page.page.unroute("**/data?*")
        page.wait_for("progress", "30 of 50")
        assert page.text("kind") == "running"
        assert not page.page.locator("#lost-viewer").is_visible()
        page.page.close()


def test_a_page_may_be_open_before_the_file_is_there_and_sees_it_replaced_and_cut(opened):
    with Running() as server:
        page = opened(server)
        page.wait_for("state", "waiting for run.diag")
        # Limits of a machine that is not known are not drawn.
        assert not page.model("live_cpu_limit", "visible")
        with Writer("run.diag") as writer:
            writer.append(chunk(10, 12.0), provisional(0))
            page.wait_for("progress", "0 of 50 tasks, 0%")
        with Writer("run.diag", overwrite=True) as writer:
            writer.append(chunk(20, 22.0, "other"), provisional(20))
            page.wait_for("progress", "20 of 50")
            assert page.text("running-title") == "Running longest"
            assert "inc" not in page.text("legend")
            writer.abandon()
        page.wait_for("state", "truncated")
        assert "20" in page.text("functions")
        assert page.text("running-title") == "Running at the end"
        with open("run.diag", "wb") as file:
            file.write(b"something else")
        page.wait_for("state", "not a recording")


COUNTED = """() => {
    const original = window.requestAnimationFrame.bind(window)
    window.counts = {frames: 0, drawings: 0, changes: 0}
    window.requestAnimationFrame = (callback) => { window.counts.frames++; return original(callback) }
    window.watch = () => {
        const tasks = Bokeh.documents[0].get_model_by_name("live_tasks")
        tasks.properties.data.change.connect(() => { window.counts.drawings++ })
        new MutationObserver((all) => { window.counts.changes += all.length })
            .observe(document.documentElement,
                     {childList: true, subtree: true, attributes: true, characterData: true})
    }
}"""
FEWEST_MILLISECONDS = 1500
"""From one drawing of the figures to the next, of a page that follows."""


def test_numbers_come_more_often_than_figures_are_drawn(opened):
    with Writer("run.diag") as writer, Running() as server:
        writer.append(chunk(1, 2.0), provisional(1))
        page = opened(server)
        page.wait_for("progress", "1 of 50")
        page.page.evaluate(f"({COUNTED})()")
        page.page.evaluate("() => { window.watch(); window.began = performance.now() }")
        steps = 9
        for done in range(2, 2 + steps):
            writer.append(chunk(1, 2.0 + done), provisional(done))
            page.wait_for("progress", f"{done} of 50")
        took = page.page.evaluate("performance.now() - window.began")
        counts = page.page.evaluate("window.counts")
        # However slow the machine is: the page sees to the time between two drawings itself.
        assert counts["drawings"] <= 1 + took / FEWEST_MILLISECONDS
        page.wait_for("in-view", "drawn every ")


def test_nothing_moves_while_nothing_is_new(opened):
    with Writer("run.diag") as writer, Running() as server:
        writer.append(chunk(10, 12.0), provisional(10))
        page = opened(server)
        page.wait_for("progress", "10 of 50")
        page.wait_for("in-view", "11 tasks")
        # On a slow machine the first findings come seconds after the tasks.
        page.wait_for("findings-note", "of the first")
        settled(page.page, 3000)
        page.page.evaluate(f"({COUNTED})()")
        page.page.evaluate("() => window.watch()")
        page.page.wait_for_timeout(3000)
        assert page.page.evaluate("window.counts") == {"frames": 0, "drawings": 0, "changes": 0}
        assert page.page.evaluate("document.getAnimations().length") == 0


def many_running(count):
    """Rows of tasks that run, of which the first runs longest."""
    rows = {
        "key": [f"slow-{n}" for n in range(count)],
        "function": ["slow"] * count,
        "start": [float(n) for n in range(count)],
        "worker": [f"thread-{n}" for n in range(count)],
    }
    return replace(provisional(10), tasks=filled_table("tasks", rows))


def test_the_keyboard_alone_reaches_the_tasks_that_run_longest(opened):
    with Writer("run.diag") as writer, Running() as server:
        writer.append(chunk(10, 12.0), many_running(14))
        page = opened(server, height=500)
        page.wait_for("running-more", "and 2 more")
        keys = page.page.locator("#running tr th").all_text_contents()
        assert (len(keys), keys[:3]) == (12, ["slow-0", "slow-1", "slow-2"])
        focused = """() => {
            const {id} = document.activeElement
            return document.activeElement.getAttribute("aria-labelledby") || id
        }"""
        passed = []
        while "running-title" not in passed and len(passed) < 40:
            page.page.keyboard.press("Tab")
            passed.append(page.page.evaluate(focused))
        buttons = ["follow", "everything", "zoom-in", "zoom-out", "earlier", "later"]
        assert [name for name in passed if name in buttons] == buttons
        # The list scrolls by itself where it is longer than its place.
        box = page.page.locator(".scroll[aria-labelledby='running-title']")
        for _ in range(5):
            page.page.keyboard.press("ArrowDown")
        settled(page.page, 300)
        assert box.evaluate("box => box.scrollTop") > 0


FOCUSED = """(name) => {
    const all = (views) => views.flatMap((v) => [v, ...all(v.child_views ?? [])])
    const view = all(Object.values(Bokeh.index)).find((v) => v.model.name === name)
    view.canvas_view.events_el.focus()
}"""
VIEW = """() => {
    const {start, end} = Bokeh.documents[0].get_model_by_name("live_view")
    return [start, end]
}"""
NEAR = f"expected => ({VIEW})().every((value, n) => Math.abs(value - expected[n]) < 0.1)"


@pytest.mark.parametrize("name", ["live_overview", "live_stream", "live_cpu", "live_memory"])
def test_keys_act_on_the_page_where_a_plot_has_the_focus(opened, name):
    with Writer("run.diag") as writer:
        writer.append(chunk(100, 120.0))
    with Running() as server:
        page = opened(server)
        page.wait_for("in-view", "60.0 s in view")
        page.page.evaluate(FOCUSED, name)
        start, end = page.page.evaluate(VIEW)
        for key, expected in [
            ("+", (start + 15, end - 15)),
            ("ArrowLeft", (start, end - 30)),
            ("ArrowRight", (start + 15, end - 15)),
            ("-", (start, end)),
            ("0", (0.0, end)),
            ("Escape", (start, end)),
        ]:
            page.page.keyboard.press(key)
            page.page.wait_for_function(NEAR, arg=expected, timeout=15_000)
            # Once, and not by the plot and the page.
            settled(page.page, 100)
            assert page.page.evaluate(VIEW) == pytest.approx(expected, abs=0.1), key


def has_namespaces():
    """Whether a process can be started that has no network but its own loopback."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return (
        subprocess.run([*WITHOUT_NETWORK, "true"], capture_output=True, check=False).returncode == 0
    )


WITHOUT_NETWORK = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


@pytest.mark.once
def test_the_page_needs_no_network():
    if not has_namespaces():
        pytest.skip("no network namespaces here")
    test = f"{__file__}::{test_the_page_grows_with_the_file_and_links_to_the_report.__name__}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [*WITHOUT_NETWORK, *command], capture_output=True, text=True, cwd=root, check=False
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
