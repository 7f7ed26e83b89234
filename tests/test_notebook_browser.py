"""Cells in a real JupyterLab: while they run, in the dark, saved, opened again, and without trust."""

import json
from pathlib import Path

import pytest

pytest.importorskip("jupyterlab", reason="JupyterLab is not installed: pip install .[browser]")

from .jupyterlab import PANEL, Lab, jupyterlab, notebook

pytestmark = [
    pytest.mark.browser,
    pytest.mark.once,
    pytest.mark.leaves_files,
    pytest.mark.skipif(not Path("/proc").exists(), reason="sockets of kernels are files"),
]

COMPUTE = """import dask, time
_ = dask.compute(*[dask.delayed(time.sleep)(0.01) for _ in range(40)], num_workers=2, scheduler="threads")"""
CELLS = [
    "%load_ext dask_diag\nimport dask_diag",
    f"%%diag run\n{COMPUTE}",
    "dask_diag.visualize(run);",
]
DIAG, PLOTS = 1, 2
DRAWN = """() => {
    const roots = [...document.querySelectorAll(".dask-diag-cell .bk-GridPlot")]
    const views = Object.values(window.Bokeh?.index ?? {}).filter((view) => view.el.isConnected)
    return roots.length > 0 && views.every((view) => view.has_finished())
}"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with jupyterlab(tmp_path_factory.mktemp("lab")) as served:
        yield served


@pytest.fixture(scope="module")
def session(browser, lab):
    """A notebook that was run, saved, opened again, in the dark and without trust: what it showed."""
    address, folder = lab
    (folder / "run.ipynb").write_text(json.dumps(notebook(CELLS)))
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    seen, elsewhere, errors = {}, [], []
    page.on(
        "request",
        lambda r: r.url.startswith((address, "data:", "blob:", "ws:")) or elsewhere.append(r.url),
    )
    page.on("pageerror", lambda error: errors.append(str(error)))
    lab = Lab(page, address, folder)
    lab.open("run.ipynb")
    for number in range(len(CELLS)):
        lab.run(number)
    seen["diag"] = lab.shown(DIAG)
    first = [len(lab.outputs(number)) for number in (DIAG, PLOTS)]
    seen["plots"] = lab.shown(PLOTS)
    page.wait_for_function(DRAWN, timeout=60_000)
    for number in (DIAG, PLOTS):
        lab.run(number)
    lab.shown(PLOTS)
    page.wait_for_function(DRAWN, timeout=60_000)
    seen["outputs"] = first, [len(lab.outputs(number)) for number in (DIAG, PLOTS)]
    page.evaluate(
        "() => jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})"
    )
    page.wait_for_function(IS_DARK, timeout=30_000)
    seen["colors"] = page.evaluate(COLORS)
    lab.save()
    saved = json.loads((folder / "run.ipynb").read_text())
    seen["saved"] = saved
    lab.open("run.ipynb")
    seen["again"] = lab.shown(DIAG)
    lab.shown(PLOTS)
    page.wait_for_function(DRAWN, timeout=60_000)
    # With other contents than were signed.
    (folder / "copy.ipynb").write_text(
        json.dumps({**saved, "metadata": notebook(CELLS, copy=1)["metadata"]})
    )
    lab.open_beside("copy.ipynb", len(CELLS))
    seen["untrusted"] = lab.shown(DIAG), lab.shown(PLOTS)
    seen["errors"], seen["elsewhere"] = errors, elsewhere
    context.close()
    return seen


IS_DARK = f"""() => {{
    const {{node}} = {PANEL}.content.widgets[{DIAG}].outputArea
    const {{color}} = getComputedStyle(node.querySelector("strong"))
    const plots = document.querySelector(".dask-diag-cell [style*='--foreground']")
    return color.match(/\\d+/)[0] > 200 && getComputedStyle(plots).getPropertyValue("--foreground").includes("255")
}}"""
COLORS = """() => {
    const view = Object.values(Bokeh.index).findLast(({el}) => el.isConnected)
    const figures = [...view.model.references()].filter(({type}) => type === "Figure")
    return figures.map(({background_fill_color, left}) => [background_fill_color, left[0].major_label_text_color])
}"""


def test_a_cell_has_no_script_and_shows_all_again_trusted_or_not(session):
    shown = session["diag"]
    assert "40 tasks on 2 workers" in shown["text"]
    assert shown["images"] == 1
    again, (diag, plots) = session["again"], session["untrusted"]
    # It ran a second time before it was saved.
    for reopened in (again, diag):
        assert "40 tasks on 2 workers" in reopened["text"]
        assert reopened["images"] == 1
        assert reopened["text"] == again["text"]
    assert "The interactive plots are drawn by scripts, and none ran here." in plots["text"]
    assert plots["images"] == 1


def test_cells_that_run_again_have_as_many_outputs_and_bokeh_is_saved_once(session):
    before, after = session["outputs"]
    assert after == before
    text = json.dumps(session["saved"])
    assert text.count("bokeh.__bokeh__") == 1
    sizes = [len(json.dumps(cell["outputs"])) for cell in session["saved"]["cells"]]
    assert sizes[DIAG] < 100_000
    assert sizes[PLOTS] < 3_000_000


def test_plots_have_the_colours_of_a_dark_notebook(session):
    for background, letters in session["colors"]:
        assert background is None
        assert "255" in letters


def test_nothing_comes_from_elsewhere_and_nothing_fails(session):
    assert session["elsewhere"] == []
    assert session["errors"] == []
