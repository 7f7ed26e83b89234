"""The report: findings first, everything in one page, and never at the cost of the user's block."""

import contextlib
import os
import re
import sys
import time
import warnings
from dataclasses import replace
from html.parser import HTMLParser
from operator import add
from pathlib import Path

import dask
import dask.threaded
import numpy as np
import pytest
from bokeh.models import ColumnDataSource
from bokeh.plotting import figure

from dask_diag import (
    CacheProfiler,
    DiagnosticError,
    Profiler,
    Recording,
    load,
    performance_report,
    record,
    report,
    visualize,
)
from dask_diag.analysis.facts import Analysis
from dask_diag.model.codes import FINDINGS
from dask_diag.model.table import Table
from dask_diag.system import environment as environment_module
from dask_diag.system.environment import environment
from dask_diag.views.comparison import comparison_page
from dask_diag.views.report import sections as sections_module
from dask_diag.views.report.page import report_page

from .recordings import known_stacks, with_tables
from .test_views import HOSTILE, recording_of

STORIES = Path(__file__).parents[1] / "docs" / "stories"

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]

GRAPH = {("b", 0): (add, 1, 2), ("c", 0): (max, ("b", 0), 1)}
ALL = [one.name for one in sections_module.SECTIONS if not one.is_optional]


class Page(HTMLParser):
    """The elements of a page: text by section, headings, links, and what is loaded."""

    def __init__(self, path):
        super().__init__()
        self.sections, self.headings, self.links, self.loaded, self.ids = {}, [], [], [], []
        self.failed = []
        self._section = None
        self._skipping = 0
        self.feed(Path(path).read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        if tag in ("td", "th", "li") and self._section:
            self.sections[self._section] += " "
        self.ids += [named["id"]] if "id" in named else []
        if tag in ("script", "style"):
            self._skipping += 1
        if tag in ("header", "section"):
            self._section = named.get("id", "header")
            self.sections[self._section] = ""
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "a":
            self.links.append(named["href"])
        if named.get("class") == "failed":
            self.failed.append(self._section)
        if "src" in named or (tag == "link" and not named["href"].startswith("data:")):
            self.loaded.append((tag, named))

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._skipping -= 1
        if tag in ("header", "section"):
            self._section = None

    def handle_data(self, data):
        if self._section and not self._skipping:
            self.sections[self._section] += data


def page_of(recording, tmp_path):
    return Page(report(recording, tmp_path / "page.html", overwrite=True))


@pytest.fixture(scope="module")
def page_of_a_block(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    with performance_report(path, resource_interval=0.01):
        dask.threaded.get(GRAPH, ("c", 0))
        time.sleep(0.05)
    return path


def test_pages_pass_the_checks_of_bokeh(tmp_path, caplog, monkeypatch):
    monkeypatch.setenv("BOKEH_VALIDATE_DOC", "yes")
    with (
        performance_report(tmp_path / "page.html", resource_interval=0.01),
        CacheProfiler() as cprof,
    ):
        dask.threaded.get(GRAPH, ("c", 0))
    visualize(cprof, filename=tmp_path / "plot.html", show=False)
    comparison_page(known_stacks(), known_stacks(), ("before", "after"))
    assert caplog.messages == []


def test_all_sections_are_there_findings_first(page_of_a_block):
    page = Page(page_of_a_block)
    assert list(page.sections) == ["header", *ALL[:2], "lines", *ALL[2:]]
    assert ALL[0] == "findings"
    assert "Nothing stood out" in page.sections["findings"]
    assert f"{len(FINDINGS)} rules that were tried" in page.sections["findings"]
    assert " in 1 computation: 2 tasks on " in page.sections["header"]
    # It has no name: the recording's identifier of it is none for a reader.
    assert "Critical path of each computation" in page.sections["critical-path"]
    assert not re.search(r"\b[0-9a-f]{16}-\d", page.sections["critical-path"])
    assert "dask.threaded.get(GRAPH" in page.sections["code"]
    assert dask.__version__ in page.sections["environment"]
    assert page.failed == page.loaded == []
    assert page.headings[0] == page.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(page.headings, page.headings[1:]))
    linked = {link[1:] for link in page.links}
    assert linked == {"findings", "timeline", "lines", "functions", "memory", "flame", "tasks"}
    assert linked <= {"lines", *ALL} <= set(page.ids)
    text = page_of_a_block.read_text()
    for name in ("tasks", "CPU", "memory", "cache"):
        assert f'aria-label="Plot of {name} over time"' in text
    # Every axis and tooltip formats numbers: each had all of that module.
    figures = text.partition('type="application/json"')[2].partition("</script>")[0]
    assert figures.count("$formatting.") > 5
    assert "const $formatting" not in figures
    assert text.count("<script>const $formatting") == 1


FAILED = [("f", 0.0, 4.0, 3.0, "thread-0", "failed", "OSError")]


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize(
    ("docs", "shown"),
    [
        (None, "Documentation: dask-diag explain failed-tasks<"),
        ("https://example.org/docs", '"https://example.org/docs/findings/failed-tasks.html">'),
        ("https://example.org/docs/", '"https://example.org/docs/findings/failed-tasks.html">'),
        # A script is no address.
        ("javascript:alert(1)//", ""),
    ],
)
def test_a_finding_names_its_page_of_the_documentation_and_links_to_it(tmp_path, docs, shown):
    with dask.config.set({"diag.docs": docs} if docs else {}):
        page_of(recording_of(FAILED), tmp_path)
    text = " ".join((tmp_path / "page.html").read_text().split())
    assert shown in re.sub(r"</?code>", "", text)
    assert ("failed-tasks.html" in text) == ("https" in (docs or ""))
    assert "javascript:alert" not in text


@pytest.mark.usefixtures("without_plots")
def test_numbers_in_the_report_are_those_of_the_recording(tmp_path):
    rows = [
        ("f", 0.0, 4.0, 3.0, "thread-0"),
        ("g", 0.0, 2.0, 0.5, "thread-1", "failed", "OSError"),
    ]
    page = page_of(recording_of(rows), tmp_path)
    assert "failed-tasks" in page.sections["findings"]
    functions = " ".join(page.sections["functions"].split())
    for text in (
        "20.0 s of worker time",
        "f 4.00 s 20% 3.00 s 1 4.00 s",
        "g 2.00 s 10% 500 ms 1 2.00 s",
        "total 6.00 s 30% 3.50 s 2 4.00 s",
        "tasks computing (CPU) 3.00 s, 15%",
        "tasks that failed 2.00 s, 10%",
    ):
        assert text in functions
    # The bar at the top, of 10 s that two workers had.
    header = page.sections["header"]
    parts = re.findall(r"^ (\D+) ([\d.]+) (m?s) \(.*%\)$", header, re.MULTILINE)
    in_seconds = {name: float(n) / (1000 if unit == "ms" else 1) for name, n, unit in parts}
    assert in_seconds["tasks computing (CPU)"] == 1.5
    assert sum(in_seconds.values()) == pytest.approx(10.0, rel=0.01)


@pytest.mark.parametrize(
    ("story", "folded"),
    [
        ("word_count", ["1 finding of low severity: late-samples"]),
        ("groupby", ["At most 222 kB of 25.3 GB"]),
    ],
)
def test_what_is_hardly_worth_a_look_is_folded(story, folded):
    page = report_page(Analysis(load(STORIES / f"{story}.diag")))
    titles = re.findall(r"<details><summary>([^<]+)</summary>", page)
    assert [title for title in titles if "severity" in title or "At most" in title] == folded


@pytest.mark.parametrize(
    "recording",
    [
        lambda: recording_of([]),
        lambda: Profiler().recording,
        lambda: replace(recording_of([]), computations=Table({}), tasks=Table({})),
        known_stacks,
    ],
    ids=["no tasks", "nothing", "no columns", "stacks only"],
)
def test_what_was_not_measured_is_said(tmp_path, recording):
    page = page_of(recording(), tmp_path)
    assert list(page.sections) == ["header", *ALL]
    assert page.failed == []
    assert "No tasks; record with Profiler." in page.sections["timeline"]
    assert "No samples of CPU and memory" in page.sections["timeline"]
    assert "has no information on its environment" in page.sections["environment"]


@pytest.mark.usefixtures("without_plots")
def test_memory_of_functions_is_reported_as_exact_or_a_bound(tmp_path):
    def takes():
        block = bytearray(60_000_000)
        time.sleep(0.1)
        return len(block)

    with performance_report(tmp_path / "page.html", resource_interval=0.01):
        dask.threaded.get({("takes", 0): (takes,)}, ("takes", 0))
    memory = " ".join(Page(tmp_path / "page.html").sections["memory"].split())
    growth = r"(≤ )?([\d.]+) MB"
    text = rf"takes ?1 task, 1 seen median {growth}, 90% of tasks {growth}, largest {growth}"
    row = re.search(text, memory)
    assert row, memory
    assert 50 < float(row[2]) < 80
    assert row.group(1, 2) == row.group(3, 4) == row.group(5, 6)
    assert "≤ marks an upper bound" in memory


def test_a_section_that_fails_is_a_message_and_the_others_are_there(tmp_path, monkeypatch):
    def fails(analysis, figures):
        yield sections_module.Text(["half of it"])
        raise ValueError("<b>no such thing</b>")

    sections = [
        replace(section, make=fails) if section.name == "summary" else section
        for section in sections_module.SECTIONS
    ]
    monkeypatch.setattr("dask_diag.views.report.page.SECTIONS", sections)
    page = page_of(recording_of(FAILED), tmp_path)
    said = "This part could not be made. ValueError: <b>no such thing</b>"
    assert said in page.sections["summary"]
    assert "half of it" not in page.sections["summary"]
    assert "<b>no such" not in (tmp_path / "page.html").read_text()
    assert "worker time" in page.sections["functions"]


def test_a_figure_that_bokeh_cannot_write_fails_alone(tmp_path, monkeypatch):
    def broken(name, recording, options):
        if name != "tasks":
            return None
        plot = figure()
        plot.line("x", "y", source=ColumnDataSource({"x": [object()], "y": [1]}))
        return plot

    monkeypatch.setattr("dask_diag.views.report.figures.plot_of", broken)
    assert page_of(recording_of(FAILED), tmp_path).failed == ["timeline"]


class OwnError(Exception):
    pass


@pytest.mark.usefixtures("without_plots")
def test_an_exception_in_the_block_is_raised_as_it_is_and_the_page_is_written(tmp_path):
    error = OwnError("first")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(OwnError) as raised:
            with performance_report(tmp_path / "page.html", resource_interval=0.01):
                dask.threaded.get({("a", 0): (time.sleep, 0)}, ("a", 0))
                raise error
    assert raised.value is error
    assert error.__cause__ is None
    assert error.__context__ is None
    assert " in 1 computation: 1 task on " in Page(tmp_path / "page.html").sections["header"]


@pytest.mark.parametrize(
    ("filename", "reported"),
    [
        (None, "filename: expected a path, found NoneType"),
        ("no/page.html", "make the directory .*no first"),
        (".", "it is a directory; name a file in it"),
        ("/proc/page.html", "cannot write /proc/page.html"),
        ("x" * 300, "File name too long"),
    ],
)
def test_a_page_that_could_not_be_written_is_reported_before_anything_runs(filename, reported):
    before = sorted(os.listdir())
    ran = False
    with pytest.raises(DiagnosticError, match=reported):
        with performance_report(filename):
            ran = True
    assert not ran
    assert sorted(os.listdir()) == before


@pytest.mark.usefixtures("without_plots")
def test_the_page_is_where_it_was_said_wherever_the_block_goes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with performance_report("page.html"):
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
    assert (tmp_path / "page.html").exists()


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("filters", ["always", "error", "broken"])
def test_a_page_that_cannot_be_written_is_a_warning_at_most(
    tmp_path, capsys, monkeypatch, filters, raises
):
    def fails(*args, **kwargs):
        raise ValueError("I/O operation on closed file")

    folder, error = tmp_path / "no", OwnError("first")
    folder.mkdir()
    expected = pytest.raises(OwnError) if raises else contextlib.nullcontext()
    with warnings.catch_warnings(record=filters == "always") as reported:
        warnings.simplefilter(filters if filters != "broken" else "always")
        if filters == "broken":
            monkeypatch.setattr(warnings, "showwarning", fails)
            monkeypatch.setattr("sys.stderr.write", fails)
        with expected, performance_report(folder / "page.html", resource_interval=0.01) as measured:
            folder.rmdir()
            result = dask.threaded.get(GRAPH, ("c", 0))
            if raises:
                raise error
    monkeypatch.undo()
    assert (result, error.__context__) == (3, None)
    assert len(measured.recording.tasks) == 2
    if filters != "broken":
        text = str(reported[0].message) if reported else capsys.readouterr().err
        assert "the report could not be written" in text
        assert "make the directory" in text


@pytest.mark.usefixtures("without_plots")
def test_a_profiler_that_cannot_start_or_stop_is_reported_in_the_report(tmp_path, monkeypatch):
    block = performance_report(tmp_path / "page.html", resource_interval=0.01)

    def refuses(*args):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(block.resources, "_activate", refuses)
    with block:
        dask.threaded.get(GRAPH, ("c", 0))
    monkeypatch.undo()
    page = Page(tmp_path / "page.html")
    assert "can't start new thread" in page.sections["summary"]
    assert " in 1 computation: 2 tasks on " in page.sections["header"]


@pytest.mark.usefixtures("without_plots")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_forked_child_that_leaves_the_block_writes_nothing(tmp_path):
    block = performance_report(tmp_path / "page.html", resource_interval=0.01)
    with block:
        child = os.fork()
        if not child:
            try:
                block.__exit__(None, None, None)
            finally:
                os._exit((tmp_path / "page.html").exists())
        assert os.waitpid(child, 0) == (child, 0)
        assert not (tmp_path / "page.html").exists()
    assert (tmp_path / "page.html").exists()


@pytest.mark.usefixtures("without_plots")
def test_the_page_replaces_an_older_one_when_asked_and_as_a_whole(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("older")
    with pytest.raises(DiagnosticError, match=r"will not overwrite .*; pass overwrite=True"):
        report(recording_of([]), path)
    monkeypatch.setattr("os.replace", lambda *a: (_ for _ in ()).throw(OSError))
    with pytest.raises(DiagnosticError, match="cannot write"):
        report(recording_of([]), path, overwrite=True)
    monkeypatch.undo()
    assert path.read_text() == "older"
    assert [entry.name for entry in tmp_path.iterdir()] == ["page.html"]
    report(recording_of([]), path, overwrite=True)
    assert "Dask report" in path.read_text()


@pytest.mark.parametrize(
    ("source", "path", "reported"),
    [
        (recording_of([]), 3, "expected a path"),
        ("profile", "page.html", "expected a Recording, a profiler"),
        (recording_of([]), ".", "it is a directory; name a file in it"),
        (recording_of([]), "a\0b", "found one with a null byte"),
        (recording_of([]), "x" * 300, "File name too long$"),
    ],
)
def test_wrong_arguments_are_reported(source, path, reported):
    with pytest.raises(DiagnosticError, match=reported):
        report(source, path)


def hostile_recording():
    rows = [(name, n, n + 0.5, 0.2, f"thread-{n % 2}") for n, name in enumerate(HOSTILE)]
    facts = [("calling code", name, name + "\n    tail") for name in HOSTILE]
    facts += [(section, n, n) for n in HOSTILE for section in ("versions", "configuration")]
    needs = {"task": np.arange(1, len(rows)), "depends_on": np.arange(len(rows) - 1)}
    environment = dict(zip(("section", "name", "value"), zip(*facts)))
    hostile = replace(recording_of(rows, notices=HOSTILE), metric=HOSTILE[0])
    return with_tables(hostile, dependencies=needs, environment=environment)


def test_hostile_text_is_text_everywhere(tmp_path):
    path = report(hostile_recording(), tmp_path / "page.html")
    text = path.read_text(encoding="utf-8")
    assert "<script>window.pwned" not in text
    assert "<img src=x" not in text
    assert "\x1b" not in text
    page = Page(path)
    assert page.failed == []
    for section in ("summary", "functions", "critical-path", "code", "environment"):
        assert HOSTILE[0] in page.sections[section]
    assert "    tail" in page.sections["code"]


@pytest.mark.usefixtures("without_plots")
def test_where_it_was_recorded_is_in_the_file_and_in_its_report(tmp_path):
    with record(tmp_path / "run.diag", resource_interval=0.01):
        dask.threaded.get(GRAPH, ("c", 0))
    loaded = load(tmp_path / "run.diag")
    facts = {(row["section"], row["name"]): row["value"] for row in loaded.environment.to_dicts()}
    assert facts["versions", "python"].startswith(".".join(map(str, sys.version_info[:3])))
    assert facts["versions", "dask"] == dask.__version__
    assert facts["machine", "processors"]
    assert [section for section, _ in facts].count("calling code") == 1
    assert 'record(tmp_path / "run.diag"' in page_of(loaded, tmp_path).sections["code"]
    again = Recording.combine([loaded, recording_of([])])
    assert again.environment.to_dicts() == loaded.environment.to_dicts()


def test_what_looks_like_a_secret_is_not_recorded():
    names = "token my.api-key db_password aws.secret_access_key tls.client.key AuthHeader".split()
    url = "s3://user:hunter2@host/x"
    with dask.config.set(dict.fromkeys(names, "hunter2"), keyboard="qwerty", url=url):
        rows = environment()
    reported = {name: value for section, name, value in rows if section == "configuration"}
    assert "hunter2" not in str(rows)
    assert reported["keyboard"] == "'qwerty'"
    assert reported["url"] == "'s3://…@host/x'"
    left_out = reported["(left out)"].replace("_", "-")
    assert all(name.split(".")[0].replace("_", "-") in left_out for name in names)


@pytest.mark.usefixtures("without_plots")
def test_an_environment_that_cannot_be_read_loses_nothing(tmp_path, monkeypatch):
    def fails(*args):
        raise RuntimeError("no platform")

    monkeypatch.setattr(environment_module, "_machine", fails)
    with performance_report(tmp_path / "page.html", resource_interval=0.01):
        dask.threaded.get(GRAPH, ("c", 0))
    assert "no platform" in Page(tmp_path / "page.html").sections["summary"]
