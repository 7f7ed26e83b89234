"""Pages by the rules of WCAG that a machine can check, with axe-core, light and dark."""

from dataclasses import replace
from pathlib import Path

import dask.threaded
import pytest

from dask_diag import MemorySampler, compare, performance_report, visualize
from dask_diag.storage.write import Writer
from dask_diag.views.compare import run_comparison_summary
from dask_diag.views.comparison import comparison_page
from dask_diag.views.page import summary_page

from .live_chunks import chunk, provisional
from .opened_pages import new_page, settled
from .recordings import known_stacks
from .test_compare import recording
from .test_live_server import Running
from .test_report import GRAPH
from .test_tune_race import Simulated, settings

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]

AXE = Path(__file__).parent.parent / "node_modules" / "axe-core" / "axe.min.js"
if not AXE.exists():
    pytest.skip(
        "axe-core is not installed: make test-browser installs it where node is",
        allow_module_level=True,
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    with performance_report(folder / "report.html", resource_interval=0.01):
        dask.threaded.get(GRAPH, ("c", 0))
    stacks = known_stacks()
    visualize(stacks, filename=folder / "plots.html", show=False)
    sides = [recording(f=[1.0] * 6, g=[2.0] * 6), recording(f=[2.0] * 6, g=[2.0] * 6)]
    tables = {name: getattr(stacks, name) for name in ("frames", "call_tree", "samples")}
    sides = [replace(side, **tables) for side in sides]
    text = comparison_page(*sides, ("before", "after"))
    (folder / "comparison.html").write_text(text, encoding="utf-8")
    sampler = MemorySampler()
    with sampler.sample("block", interval=0.01):
        sum(range(10_000))
    sampler.visualize(filename=folder / "memory.html", show=False)
    runs = [[recording(f=[wall] * 8)] * 3 for wall in (1.0, 2.0)]
    text = summary_page(run_comparison_summary(compare(*runs)), "runs")
    (folder / "runs.html").write_text(text, encoding="utf-8")
    text = Simulated({"a": 5.0}).tune(settings("a", "b")).page("tuned")
    (folder / "tuned.html").write_text(text, encoding="utf-8")
    return folder


def violations(page, least=20):
    page.evaluate(AXE.read_text(encoding="utf-8"))
    outcome = page.evaluate("axe.run(document)")
    assert len(outcome["passes"]) > least
    return [
        (rule["id"], [node["html"][:120] for node in rule["nodes"]])
        for rule in outcome["violations"]
    ]


def in_both_schemes(page, least=20):
    """The violations of a page as it is, and when the system has changed to its other scheme."""
    in_light = violations(page, least)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("matchMedia('(prefers-color-scheme: dark)').matches")
    settled(page, 300)
    return in_light + violations(page, least)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["report", "plots", "comparison", "memory"])
def test_a_page_has_no_violation(open_file, pages, name, width):
    page = open_file(pages / f"{name}.html", width, 900, "light")
    settled(page, 300)
    if name == "report":
        assert page.locator("#what-if").count() == 1
        # What is folded is not examined: predictions, the export menu.
        page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
        settled(page, 300)
    assert in_both_schemes(page) == []


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["tuned", "runs"])
def test_a_page_without_figures_has_no_violation(open_file, pages, name, width):
    page = open_file(pages / f"{name}.html", width, 900, "light", until=None)
    assert in_both_schemes(page, 15) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_a_live_run_has_no_violation(window, scheme, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Writer("run.diag") as writer, Running() as server:
        writer.append(chunk(10, 12.0), provisional(10))
        page = new_page(window, scheme=scheme)
        page.goto(server.server.url)
        page.wait_for_function(
            "document.getElementById('progress').textContent.includes('10 of 50 tasks')",
            timeout=60_000,
        )
        settled(page, 300)
        # The page's own rules let no script in: this one is the test's.
        violated = violations(page)
        page.close()
    assert violated == []


def test_a_violation_is_found(open_file, pages):
    page = open_file(pages / "report.html")
    settled(page, 300)
    page.evaluate("document.querySelector('main').append(document.createElement('input'))")
    assert [rule for rule, _ in violations(page)] == ["label"]
