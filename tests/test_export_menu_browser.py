"""The menu of exports of a report, in a real browser: what is saved is what was recorded."""

import csv
import io

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from benchmarks.made_up import many_tasks
from dask_diag import report, save
from dask_diag.analysis.facts import Analysis
from dask_diag.cli.main import main
from dask_diag.columns import Categorical
from dask_diag.views.report.page import write_report

from .recordings import known_stacks
from .test_many_tasks import with_task_columns

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]

FEW, MANY = 75, 6000
IS_OPEN = "document.getElementById('export').open"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A saved recording of few tasks, and its report."""
    folder = tmp_path_factory.mktemp("exports")
    recording = many_tasks(FEW, workers=5)
    save(recording, folder / "few tasks.diag")
    write_report(Analysis(recording), folder / "report.html", file=folder / "few tasks.diag")
    return recording, folder / "report.html"


def saved(page, what):
    """What the menu saves: the file's name, its bytes, and what the menu says of it."""
    if not page.evaluate(IS_OPEN):
        page.locator("#export summary").click()
    with page.expect_download() as download:
        page.locator(f"[data-export={what}]").click()
    page.wait_for_function("document.querySelector('#export [role=status]').textContent !== '…'")
    said = page.locator("#export [role=status]").text_content()
    return download.value.suggested_filename, download.value.path().read_bytes(), said


def rows_of(content):
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def by_key(recording):
    return {row["key"]: row for row in recording.tasks.to_dicts()}


def test_few_tasks_are_saved_as_they_were_measured(open_file, written):
    recording, path = written
    name, content, said = saved(open_file(path), "csv")
    assert name == "few tasks-tasks.csv"
    assert said == f"Saved as {name}. 75 tasks."
    rows, tasks = rows_of(content), by_key(recording)
    assert len(rows) == FEW
    for row in rows:
        task = tasks.pop(row["key"])
        for column in ("start", "stop", "thread_cpu"):
            assert float(row[column]) == pytest.approx(task[column], abs=1e-12)
        for column in ("function", "worker"):
            assert row[column] == task[column]
        assert row["outcome"] == ": ".join(filter(None, (task["outcome"], task["error"])))
    assert tasks == {}


def test_a_file_says_what_the_page_does_not_have(open_file, tmp_path, monkeypatch):
    recording = many_tasks(MANY)
    start = np.array(recording.tasks.start)
    start[:2] = np.nan
    outcome = Categorical(np.arange(len(start)) == 5, ["ok", "unfinished"])
    recording = with_task_columns(
        recording,
        start=start,
        outcome=outcome,
        error=Categorical(np.zeros(len(start), int), [""]),
    )
    report(recording, tmp_path / "rounded.html")
    name, content, said = saved(open_file(tmp_path / "rounded.html"), "csv")
    count = len(start)
    assert name == "dask-report-tasks-rounded-without-2-tasks.csv"
    assert (
        f"{count - 2:,} tasks; times to 1.00 µs, CPU times to that or 0.2%; 2 of {count:,}" in said
    )
    rows, tasks = rows_of(content), by_key(recording)
    assert len(rows) == count - 2
    for row in rows:
        task = tasks[row["key"]]
        assert abs(float(row["start"]) - task["start"]) <= 0.6e-6
        assert len(row["start"].partition(".")[2]) <= 6
        if task["outcome"] == "unfinished":
            assert row["stop"] == ""
        else:
            assert abs(float(row["stop"]) - task["stop"]) <= 0.6e-6
            cpu, length = task["thread_cpu"], task["stop"] - task["start"]
            assert abs(float(row["thread_cpu"]) - cpu) <= 2e-6 + 0.002 * length

    monkeypatch.setattr("dask_diag.views.plots.tasks._MOST_BYTES", 10_000)
    report(many_tasks(MANY, alike=False), tmp_path / "keyless.html")
    name, content, said = saved(open_file(tmp_path / "keyless.html"), "csv")
    assert name == "dask-report-tasks-rounded-without-keys.csv"
    assert "keys are left out" in said
    assert content.startswith(b"function,worker,start,stop,thread_cpu,outcome\r\n")


def test_what_a_spreadsheet_would_run_is_text(open_file, tmp_path):
    codes = np.arange(FEW) % 3
    names = ["=1+1", 'a "quoted", name', "x" * 100]
    recording = many_tasks(FEW, workers=5)
    report(with_task_columns(recording, function=Categorical(codes, names)), tmp_path / "page.html")
    name, content, said = saved(open_file(tmp_path / "page.html"), "csv")
    assert name == "dask-report-tasks-short-names.csv"
    assert "long names are cut" in said
    functions = {row["function"] for row in rows_of(content)}
    assert {"'=1+1", 'a "quoted", name'} < functions


def test_the_summary_is_saved_and_copied_as_text(open_file, written, browser):
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = open_file(written[1], context=context)
    name, content, _ = saved(page, "text")
    assert name == "few tasks.txt"
    text = content.decode()
    for selector in ("h1", ".finding h3", "#summary li", "#functions tbody th"):
        for said in page.locator(selector).all_text_contents():
            assert " ".join(said.split()) in text
    assert page.locator(".finding").count() > 0
    page.locator("[data-export=copy-text]").click()
    page.wait_for_function(
        "document.querySelector('#export [role=status]').textContent === 'Copied.'"
    )
    assert page.evaluate("navigator.clipboard.readText()") == text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_picture_has_the_figures_in_the_colours_of_the_page(open_file, written, scheme):
    page = open_file(written[1], scheme=scheme)
    name, content, _ = saved(page, "picture")
    assert name == "few tasks.png"
    picture = np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).astype(int)
    assert tuple(picture[3, 3]) == ((255, 255, 255) if scheme == "light" else (22, 24, 27))
    offset = page.evaluate(
        "Math.min(...['header', '#findings', '#timeline'].map((name) =>"
        " document.querySelector(name).getBoundingClientRect().top)) - 16"
    )
    left_edge = (
        page.evaluate("document.querySelector('#timeline').getBoundingClientRect().left") - 16
    )
    for figure in page.locator("#timeline .figure").all():
        box = figure.bounding_box()
        rows = slice(*(int(2 * (y - offset)) for y in (box["y"], box["y"] + box["height"])))
        columns = slice(*(int(2 * (x - left_edge)) for x in (box["x"], box["x"] + box["width"])))
        part = picture[rows, columns].reshape(-1, 3)
        assert len(np.unique(part, axis=0)) > 10, figure.get_attribute("aria-label")


def test_each_command_writes_what_it_says(open_file, written, tmp_path, monkeypatch):
    import shlex

    monkeypatch.chdir(tmp_path)
    recording = known_stacks()
    save(recording, "-stacks of 'a'.diag")
    write_report(Analysis(recording), tmp_path / "page.html", file="-stacks of 'a'.diag")
    save(written[0], "few tasks.diag")
    seen = set()
    for path in (written[1], tmp_path / "page.html"):
        page = open_file(path)
        for command in page.locator("[data-copy]").evaluate_all(
            "(all) => all.map((b) => b.dataset.copy)"
        ):
            program, *arguments = shlex.split(command)
            assert program == "dask-diag"
            result = CliRunner().invoke(main, arguments)
            assert result.exit_code == 0, (command, result.output)
            seen.add(arguments[-1])
    assert seen == {"perfetto", "speedscope", "collapsed", "json", "csv", "parquet"}
