"""A page in a real browser, in a window of some size and colours."""

from __future__ import annotations

import pytest

from .test_browser import DRAWN, is_a_problem

__all__ = ["open_file"]


@pytest.fixture
def open_file(browser):
    """Open a file and wait until it is drawn; in the end there was no error, and no request.

    A page opened in the ``context`` of another one shares what the browser remembers.
    """
    problems = []

    def new_context(width, height, scheme, script, **settings):
        viewport = {"width": width, "height": height}
        context = browser.new_context(viewport=viewport, color_scheme=scheme, **settings)
        context.add_init_script(script)
        context.on("console", lambda m: is_a_problem(m) and problems.append(m.text))
        context.on("weberror", lambda error: problems.append(str(error.error)))
        context.on("request", lambda r: is_asked_for(r.url) and problems.append(r.url))
        return context

    def open_page(
        path, width=1280, height=800, scheme="light", script="0", context=None, **settings
    ):
        context = context or new_context(width, height, scheme, script, **settings)
        page = context.new_page()
        page.goto(path.as_uri())
        page.wait_for_function(DRAWN, timeout=60_000)
        return page

    yield open_page
    assert problems == []
    for context in browser.contexts:
        context.close()


def is_asked_for(url):
    return not url.startswith(("file:", "data:", "blob:"))
