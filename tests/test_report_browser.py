"""The report in a real browser: on a phone and a desk, light and dark, by keyboard, offline."""

import pytest

from benchmarks.made_up import many_tasks
from dask_diag import performance_report, report

from .opened_pages import DRAWN, settled
from .recordings import known_stacks
from .test_report import GRAPH, hostile_recording

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]

SIZES = {"desk": (1280, 900), "phone": (390, 844), "wide": (1920, 1000)}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Some reports, by name."""
    import time

    import dask.threaded

    folder = tmp_path_factory.mktemp("reports")
    with performance_report(folder / "real.html", resource_interval=0.01):
        dask.threaded.get(GRAPH, ("c", 0))
        time.sleep(0.05)
    report(hostile_recording(), folder / "hostile.html")
    report(known_stacks(), folder / "stacks.html")
    report(many_tasks(20_000), folder / "many.html")
    return folder


@pytest.fixture
def opened(open_file, pages):
    """Open a report by its name."""

    def open_page(name, size="desk", scheme="light"):
        page = open_file(pages / f"{name}.html", *SIZES[size], scheme, within=("data:",))
        settled(page)
        return page

    return open_page


@pytest.mark.parametrize(
    ("name", "size"),
    [*((name, "phone") for name in ("real", "hostile", "stacks", "many")), ("real", "desk")],
)
def test_nothing_is_wider_than_the_window(opened, name, size):
    page = opened(name, size)
    for fold in page.query_selector_all("main details:not([open]) > summary"):
        fold.click()
    settled(page, 300)
    widths = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert widths[0] <= widths[1] == SIZES[size][0]
    figures = page.evaluate(
        """() => [...document.querySelectorAll(".figure:not(.scroll)")]
        .map((f) => [f.getBoundingClientRect().width, f.scrollWidth])"""
    )
    assert all(inside <= round(outside) for outside, inside in figures)
    if size == "phone":
        # Tables and code: every cell is in the window, none has to be scrolled to.
        tables = page.evaluate(
            """() => [...document.querySelectorAll(".scroll")].filter((e) => e.clientWidth > 0)
            .map((e) => [e.ariaLabel, e.scrollWidth - e.clientWidth])"""
        )
        assert tables
        assert [table for table in tables if table[1] > 0] == []
        cells = page.evaluate(
            """() => [...document.querySelectorAll("main tbody th, main td")].map((e) => {
                const {left, right} = e.getBoundingClientRect()
                return [e.textContent, left, right]
            })"""
        )
        assert [cell for cell in cells if not 0 <= cell[1] <= cell[2] <= widths[0]] == []


FOCUSED = """() => {
    const element = document.activeElement, style = getComputedStyle(element)
    const box = element.getBoundingClientRect()
    return {tag: element.tagName, text: element.textContent.trim().slice(0, 40),
            href: element.getAttribute("href"), label: element.getAttribute("aria-label"),
            ring: style.outlineStyle != "none" && parseFloat(style.outlineWidth) >= 2,
            figure: element.shadowRoot != null, seen: box.width > 0 && box.right > 0}
}"""


def test_everything_is_reached_by_keyboard_in_the_order_of_the_page(opened):
    page = opened("real")
    page.keyboard.press("Tab")
    first = page.evaluate(FOCUSED)
    assert first["text"].startswith("Skip")
    assert first["seen"]
    links, later = [], []
    for _ in range(80):
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED)
        if focused["tag"] == "BODY":
            break
        if focused["tag"] == "A":
            links.append(focused["href"])
        if not focused["figure"]:
            later.append(focused)
            assert focused["ring"], focused
    assert links == [
        "#findings",
        "#timeline",
        "#lines",
        "#functions",
        "#memory",
        "#flame",
        "#tasks",
    ]
    assert {"SUMMARY", "PRE"} <= {focused["tag"] for focused in later}
    assert "Time by function" in [focused["label"] for focused in later]


VIEW = """() => {
    const plot = Bokeh.documents[0].get_model_by_name("workers")
    const {left, right} = Bokeh.documents[0].get_model_by_name("shades").data
    const shaded = left.map((from, n) => [from, right[n]])
    return {shaded, view: [plot.x_range.start, plot.x_range.end]}
}"""


def test_pointing_at_a_finding_shades_its_times_and_its_button_zooms_there(opened):
    page = opened("many")
    all_of_it = page.evaluate(VIEW)["view"]
    cards = page.query_selector_all("[data-finding]")
    shown = [card for card in cards if card.query_selector("button:not([hidden])")]
    assert shown
    assert page.evaluate(VIEW)["shaded"] == []
    shown[0].hover()
    shaded = page.evaluate(VIEW)["shaded"]
    assert shaded
    assert all(0 <= left < right <= all_of_it[1] for left, right in shaded)
    button = shown[0].query_selector("button")
    button.focus()
    page.keyboard.press("Enter")
    start, end = page.evaluate(VIEW)["view"]
    assert start <= min(left for left, _ in shaded)
    assert end >= max(right for _, right in shaded)
    page.mouse.move(0, 0)
    button.evaluate("(element) => element.blur()")
    assert page.evaluate(VIEW)["shaded"] == []


FOCUS = """(name) => {
    const find = (views) => views.flatMap((view) => view.model.name === name
        ? [view] : find(view.child_views ?? []))
    find(Object.values(Bokeh.index))[0].canvas_view.events_el.focus()
}"""
SHOWN = """() => {
    const {start, end} = Bokeh.documents[0].get_model_by_name("workers").x_range
    return [start, end]
}"""


AXIS = "Bokeh.documents[0].get_model_by_name('time axis')"


def test_the_address_of_a_page_names_the_time_that_is_shown(opened, pages):
    page = opened("many")
    end = page.evaluate(f"{AXIS}.bounds[1]")
    shown = f"() => {{ const a = {AXIS}; return [a.start, a.end] }}"
    assert "#" not in page.url
    page.evaluate(f"{AXIS}.setv({{start: {end / 4}, end: {end / 2}}})")
    page.wait_for_url("**#time=*")
    address = page.url
    page.evaluate(f"{AXIS}.setv({{start: 0, end: {end / 8}}})")
    page.wait_for_function("before => location.href !== before", arg=address)
    page.go_back()
    assert page.evaluate(shown) == pytest.approx([end / 4, end / 2])
    page.go_back()
    assert page.evaluate(shown) == [0, end]
    # A section of the page says nothing of time.
    page.evaluate(f"{AXIS}.setv({{start: 0, end: {end / 8}}})")
    page.evaluate("() => { location.hash = 'flame' }")
    assert page.evaluate(shown) == [0, end / 8]

    other = opened("many")
    for part, expected in {
        address.partition("#")[2]: [end / 4, end / 2],
        f"time={end / 2}..1e9": [end / 2, end],
        "time=3..2": [0, end],
        "time=x..": [0, end],
    }.items():
        other.goto("about:blank")
        other.goto(f"{(pages / 'many.html').as_uri()}#{part}")
        other.wait_for_function(DRAWN)
        assert other.evaluate(shown) == pytest.approx(expected), part


def test_keys_move_the_time_axis_of_the_plot_that_has_the_focus(opened):
    page = opened("many")
    all_of_it = page.evaluate(SHOWN)
    page.keyboard.press("+")
    assert page.evaluate(SHOWN) == all_of_it
    page.evaluate(FOCUS, "tasks")
    page.keyboard.press("+")
    start, end = page.evaluate(SHOWN)
    assert all_of_it[0] < start < end < all_of_it[1]
    page.keyboard.press("ArrowRight")
    moved = page.evaluate(SHOWN)
    assert moved[0] > start
    assert moved[1] - moved[0] == pytest.approx(end - start)
    page.keyboard.press("Escape")
    assert page.evaluate(SHOWN) == all_of_it


def test_on_a_phone_a_swipe_scrolls_the_page_and_a_tap_shows_the_detail(browser, pages):
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True
    )
    page = context.new_page()
    page.goto((pages / "many.html").as_uri())
    page.wait_for_function(DRAWN, timeout=60_000)
    plot = page.locator('[aria-label="Plot of what the workers did over time"]')
    plot.scroll_into_view_if_needed()
    settled(page, 300)
    box = plot.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    assert page.locator(".bk-Tooltip:visible").count() == 0
    page.touchscreen.tap(x, y)
    page.locator(".bk-Tooltip:visible").first.wait_for(timeout=5000)
    before, shown = page.evaluate("window.scrollY"), page.evaluate(SHOWN)
    touch = context.new_cdp_session(page)
    touch.send(
        "Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]}
    )
    for step in range(1, 11):
        point = {"x": x, "y": y - 20 * step}
        touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [point]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    settled(page, 500)
    assert page.evaluate("window.scrollY") >= before + 100
    assert page.evaluate(SHOWN) == shown
    context.close()


@pytest.mark.parametrize("size", SIZES)
def test_a_phone_has_the_strip_and_the_workers_alone(opened, size):
    page = opened("real", size)
    shown = page.evaluate(
        "() => [...document.querySelectorAll('#timeline .figure')]"
        ".filter((figure) => figure.getClientRects().length > 0)"
        ".map((figure) => figure.getAttribute('aria-label'))"
    )
    assert [name.split()[-1] for name in shown[:2]] == ["shown", "time"]
    assert "what the workers did" in shown[1]
    assert len(shown) == (2 if size == "phone" else 5)


def test_the_wheel_scrolls_the_page_and_zooms_with_ctrl(opened):
    page = opened("many")
    all_of_it = page.evaluate(SHOWN)
    box = page.locator('[aria-label="Plot of what the workers did over time"]').bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.wheel(0, 60)
    settled(page, 300)
    assert page.evaluate("window.scrollY") > 0
    assert page.evaluate(SHOWN) == all_of_it
    page.keyboard.down("Control")
    page.mouse.wheel(0, -240)
    settled(page, 300)
    start, end = page.evaluate(SHOWN)
    assert end - start < all_of_it[1] - all_of_it[0]
    for _ in range(3):
        page.mouse.wheel(0, 2400)
    settled(page, 300)
    page.keyboard.up("Control")
    start, end = page.evaluate(SHOWN)
    assert all_of_it[0] <= start < end <= all_of_it[1]


ON_THE_WAY = """(() => {
    window.seen = {}
    const look = () => {
        const views = window.Bokeh?.index ? Object.values(Bokeh.index) : []
        if (views.find((view) => view.model.name === "workers")?.has_finished()) {
            window.seen.drawn ??= views.map((view) => view.model.name)
            window.seen.at ??= performance.now()
        }
        const title = document.getElementById("environment-title")
        if (title) window.seen.place ??= title.getBoundingClientRect().top
        requestAnimationFrame(look)
    }
    look()
})()"""


def test_the_first_screen_does_not_wait_for_the_sections_below(browser, pages):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.add_init_script(ON_THE_WAY)
    page.goto((pages / "real.html").as_uri())
    page.wait_for_function(DRAWN, timeout=60_000)
    seen = page.evaluate("window.seen")
    in_the_end = page.evaluate("Object.values(Bokeh.index).map((view) => view.model.name)")
    assert {"overview", "workers"} <= set(seen["drawn"])
    assert {"cache", "flame"} <= set(in_the_end) - set(seen["drawn"])
    painted = page.evaluate(
        "performance.getEntriesByName('first-contentful-paint').map((entry) => entry.startTime)"
    )
    assert painted[0] < seen["at"]
    # The page has space for what is not drawn yet.
    top = page.evaluate("document.getElementById('environment-title').getBoundingClientRect().top")
    assert abs(top - seen["place"]) < 40
    page.close()
