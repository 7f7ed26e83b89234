"""Pages in a real browser: the fixtures that open them, and what tests ask of a page."""

from __future__ import annotations

import io
import shutil
import time

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-sync",
    # Tabs of files share a process, which has compiled bokeh's script for the first of them.
    "--process-per-site",
]

WITHIN = ("data:", "blob:")
"""How addresses begin that a page makes of what it has, as when it saves a file."""
DRAWN = "document.documentElement.dataset.figures === 'drawn'"
OF_OLD_BOKEH = "Canvas2D: Multiple readback"
"""What Chromium advises bokeh 3.4 to do, which later ones do."""
FORGETS = (
    "try { localStorage.clear() } catch { /* A page without storage has nothing to forget. */ }"
)


@pytest.fixture(scope="session")
def browser():
    """One for all tests of a process, as it takes a second to start.

    While it runs no other event loop can: `conftest.py` has its tests run after all others.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed (apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def window(browser, tmp_path_factory):
    """Where pages are tabs of one process, opened in a third of the time of one of its own.

    No page finds what another one has stored.
    """
    context = browser.new_context()
    context.add_init_script(FORGETS)
    first = tmp_path_factory.mktemp("window") / "first.html"
    first.write_text("<!doctype html><title>keeps the process of all others</title>")
    context.new_page().goto(first.as_uri())
    return context


def new_page(window, width=1280, height=800, scheme="light"):
    page = window.new_page()
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme)
    return page


@pytest.fixture
def open_file(browser, window):
    """Open a file and wait until it is drawn; in the end there was no error, and no request.

    Pages that are opened in the same ``context`` share what the browser remembers.
    """
    problems, pages = [], []

    def open_page(
        path,
        width=1280,
        height=800,
        scheme="light",
        script=None,
        context=None,
        until=DRAWN,
        within=WITHIN,
    ):
        page = new_page(context or window, width, height, scheme)
        pages.append(page)
        if script is not None:
            page.add_init_script(script)
        page.on("console", lambda m: is_a_problem(m) and problems.append(m.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda r: r.url.startswith(("file:", *within)) or problems.append(r.url))
        page.goto(path.as_uri())
        if until is not None:
            page.wait_for_function(until, timeout=60_000)
        return page

    yield open_page
    for page in pages:
        page.close()
    for context in browser.contexts:
        if context is not window:
            context.close()
    assert problems == [], problems


@pytest.fixture
def opened(open_file, tmp_path):
    """Open a picture of `visualize` in a page."""
    from dask_diag import visualize

    def open_picture(sources, **kwargs):
        path = tmp_path / "page.html"
        visualize(sources, filename=path, show=False, **kwargs)
        return open_file(path, 1100, 1000, within=())

    return open_picture


def settled(page, milliseconds=100):
    """Let a page do what it has put off for so long, and paint it.

    By the page's own clock: where the machine is slow, both are late.
    """
    page.evaluate(
        """(milliseconds) => new Promise((done) => {
            const painted = () => requestAnimationFrame(() => requestAnimationFrame(done))
            setTimeout(painted, milliseconds)
        })""",
        milliseconds,
    )


def is_a_problem(message):
    return message.type in ("error", "warning") and OF_OLD_BOKEH not in message.text


def colours(page, box):
    """How many colours there are in a part of the page, from its screenshot."""
    Image = pytest.importorskip("PIL.Image")
    image = Image.open(io.BytesIO(page.screenshot(clip=box))).convert("RGB")
    return {color for _, color in image.getcolors(1_000_000)}


def frames(page):
    """The frame of each plot, from the top, in pixels of the page."""
    return page.evaluate(
        """() => {
            const views = []
            const walk = (view) => {
                if (view.model.type == "Figure") {
                    const at = view.el.getBoundingClientRect(), box = view.frame.bbox
                    views.push({x: at.x + box.left, y: at.y + box.top,
                                width: box.width, height: box.height})
                }
                for (const child of view.child_views ?? []) walk(child)
            }
            for (const view of Object.values(Bokeh.index)) walk(view)
            return views.sort((a, b) => a.y - b.y)
        }"""
    )


def tooltip(page):
    for _ in range(50):
        text = page.evaluate(
            """() => {
                const found = []
                const walk = (root) => {
                    for (const node of root.querySelectorAll("*")) {
                        if (node.shadowRoot) {
                            if (node.classList.contains("bk-Tooltip")) found.push(
                                [...node.shadowRoot.children].filter(c => c.tagName != "STYLE")
                                .map(c => c.innerText ?? c.textContent).join(" "))
                            walk(node.shadowRoot)
                        }
                    }
                }
                walk(document)
                return found.join(" ")
            }"""
        )
        if text.strip():
            return text
        time.sleep(0.05)
    return ""
