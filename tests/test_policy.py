"""What a saved page may load: nothing, and of a small one bokeh's code."""

from __future__ import annotations

import re

import pytest
from bokeh.resources import Resources

from dask_diag import MemorySampler, compare, report, visualize
from dask_diag.views.compare import run_comparison_summary
from dask_diag.views.page import summary_page

from .opened_pages import new_page
from .recordings import known_stacks
from .test_compare import recording
from .test_tune_race import Simulated, settings

pytestmark = [pytest.mark.once, pytest.mark.leaves_files]

NOTHING_ELSE = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:"
)


def write_report(path):
    report(known_stacks(), path)


def write_plots(path):
    visualize(known_stacks(), filename=path, show=False)


def write_memory(path):
    sampler = MemorySampler()
    with sampler.sample("block", interval=0.01):
        pass
    sampler.visualize(filename=path, show=False)


def write_runs(path):
    runs = [[recording(f=[wall] * 8)] * 3 for wall in (1.0, 2.0)]
    text = summary_page(run_comparison_summary(compare(*runs)), "runs")
    path.write_text(text, encoding="utf-8")


def write_tuned(path):
    text = Simulated({"a": 5.0}).tune(settings("a", "b")).page("tuned")
    path.write_text(text, encoding="utf-8")


PAGES = [write_report, write_plots, write_memory, write_runs, write_tuned]


def policies(path):
    return re.findall(r'Content-Security-Policy" content="(.*?)">', path.read_text("utf-8"))


@pytest.mark.parametrize("write", PAGES)
def test_each_saved_page_has_a_policy(write, tmp_path):
    path = tmp_path / "page.html"
    write(path)
    assert policies(path) == [NOTHING_ELSE]


@pytest.mark.parametrize(
    ("mode", "source"),
    [
        ("cdn", "https://cdn.bokeh.org"),
        ("server", "http://localhost:5006"),
        ("absolute", "'self' file:"),
    ],
)
def test_a_small_page_may_load_code_from_where_bokeh_is(mode, source, tmp_path):
    expected = NOTHING_ELSE.replace("-eval'", f"-eval' {source}")
    expected = expected.replace("style-src 'unsafe-inline'", f"style-src 'unsafe-inline' {source}")
    report(known_stacks(), tmp_path / "page.html", mode=mode)
    assert policies(tmp_path / "page.html") == [expected]


REFUSED = """() => new Promise((resolve) => {
    const refused = []
    document.addEventListener("securitypolicyviolation", ({blockedURI, effectiveDirective}) => {
        refused.push([effectiveDirective, blockedURI])
        if (refused.length === 3) resolve(refused)
    })
    fetch("https://dask.example/a").catch(() => {})
    new Image().src = "https://dask.example/b"
    const script = document.createElement("script")
    script.src = "https://dask.example/c"
    document.head.append(script)
})"""


@pytest.mark.browser
@pytest.mark.parametrize("write", [write_report, write_runs])
def test_the_browser_refuses_what_the_policy_does_not_allow(write, window, tmp_path):
    path = tmp_path / "page.html"
    write(path)
    page = new_page(window)
    page.goto(path.as_uri())
    assert sorted(page.evaluate(REFUSED)) == [
        ["connect-src", "https://dask.example/a"],
        ["img-src", "https://dask.example/b"],
        ["script-src-elem", "https://dask.example/c"],
    ]
    page.close()


@pytest.mark.browser
def test_a_page_draws_with_bokeh_in_files_under_its_policy(open_file, tmp_path):
    """`open_file` sees that the browser complains of nothing, and loads no other file."""
    path = tmp_path / "page.html"
    report(known_stacks(), path, mode="absolute")
    files = Resources(mode="absolute").js_files
    page = open_file(path, within=("data:", "blob:", *(f"file://{file}" for file in files)))
    assert page.locator("canvas").count() > 0
