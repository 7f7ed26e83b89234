"""Pages by the rules of WCAG that a machine can check, with axe-core, light and dark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dask.threaded
import pytest

from dask_diag import performance_report, visualize
from dask_diag.views.comparison.page import comparison_page

from .opened_pages import settled
from .stacks import known_stacks
from .test_compare import recording
from .test_report import GRAPH

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]

AXE = Path(__file__).parent.parent / "node_modules" / "axe-core" / "axe.min.js"
if not AXE.exists():
    pytest.skip("axe-core is not installed (npm ci)", allow_module_level=True)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    with performance_report(folder / "report.html", interval=0.01):
        dask.threaded.get(GRAPH, ("c", 0))
    stacks = known_stacks()
    visualize(stacks, filename=folder / "plots.html", show=False)
    sides = [recording(f=[1.0] * 6, g=[2.0] * 6), recording(f=[2.0] * 6, g=[2.0] * 6)]
    tables = {name: getattr(stacks, name) for name in ("frames", "call_tree", "samples")}
    sides = [replace(side, **tables) for side in sides]
    text = comparison_page(*sides, ("before", "after"))
    (folder / "comparison.html").write_text(text, encoding="utf-8")
    return folder


def violations(page):
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document)")
    assert len(found["passes"]) > 20
    return [
        (rule["id"], [node["html"][:120] for node in rule["nodes"]]) for rule in found["violations"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["report", "plots", "comparison"])
def test_a_page_has_no_violation(open_file, pages, name, scheme):
    page = open_file(pages / f"{name}.html", 1280, 900, scheme)
    settled(page, 300)
    assert violations(page) == []


def test_a_violation_is_found(open_file, pages):
    page = open_file(pages / "report.html")
    settled(page, 300)
    page.evaluate("document.querySelector('main').append(document.createElement('input'))")
    assert [rule for rule, _ in violations(page)] == ["label"]
