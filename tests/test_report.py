"""The report: findings first, everything in one page, and never at the cost of the user's block."""

from __future__ import annotations

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
from bokeh.document.models import DocumentModelManager
from bokeh.model import Model
from bokeh.models import ColumnDataSource, CustomJS, LinearAxis, Plot, Toolbar

from benchmarks.made_up import many_tasks
from dask_diag import (
    CacheProfiler,
    DiagnosticError,
    MemorySampler,
    Profiler,
    Recording,
    load,
    performance_report,
    record,
    report,
    summary,
    visualize,
)
from dask_diag.capture.build import environment_table
from dask_diag.model.table import Table
from dask_diag.system import environment as environment_module
from dask_diag.system.environment import calling_code, environment
from dask_diag.views.comparison import comparison_page
from dask_diag.views.report import figures as figures_module
from dask_diag.views.report import sections as sections_module

from .bokeh_defaults import DEFAULT, OVERRIDDEN, UNSTABLE
from .stacks import known_stacks
from .test_views import HOSTILE, recording_of

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
    with performance_report(path, interval=0.01):
        dask.threaded.get(GRAPH, ("c", 0))
        time.sleep(0.05)
    return path


def test_pages_pass_the_checks_of_bokeh(tmp_path, caplog, monkeypatch):
    monkeypatch.setenv("BOKEH_VALIDATE_DOC", "yes")
    with performance_report(tmp_path / "page.html", interval=0.01), CacheProfiler() as cprof:
        dask.threaded.get(GRAPH, ("c", 0))
    visualize(cprof, filename=tmp_path / "plot.html", show=False)
    comparison_page(known_stacks(), known_stacks(), ("before", "after"))
    assert caplog.messages == []


def test_what_tests_remember_of_bokehs_defaults_is_what_bokeh_finds():
    classes = Model.model_class_reverse_map.values()
    assert len(classes) > 300
    for model_class in classes:
        assert model_class._overridden_defaults() == OVERRIDDEN(model_class)
    for model in (Plot(), Toolbar(), LinearAxis(), ColumnDataSource(), CustomJS()):
        for name in model.properties():
            descriptor = model.lookup(name)
            assert descriptor.has_unstable_default(model) == UNSTABLE(descriptor, model)
            for _ in range(2):
                remembered = descriptor.instance_default(model)
            assert type(remembered) is type(DEFAULT(descriptor, model)), name
            if not isinstance(remembered, Model):
                assert repr(remembered) == repr(DEFAULT(descriptor, model)), name


def test_what_all_figures_share_is_in_the_page_once(page_of_a_block):
    """Every axis and tooltip formats numbers: each had all of that module."""
    text = page_of_a_block.read_text()
    figures = text.partition('type="application/json"')[2].partition("</script>")[0]
    assert figures.count("$formatting.") > 5
    assert "const $formatting" not in figures
    assert text.count("<script>const $formatting") == 1


def test_all_sections_are_there_findings_first(page_of_a_block):
    page = Page(page_of_a_block)
    assert list(page.sections) == ["header", *ALL]
    assert ALL[0] == "findings"
    assert "Nothing stood out" in page.sections["findings"]
    assert " in 1 computation: 2 tasks on " in page.sections["header"]
    assert "tasks computing (CPU)" in page.sections["functions"]
    assert "this process" in page.sections["memory"]
    assert "26 rules that were tried" in page.sections["findings"]
    assert "Critical path of each computation" in page.sections["critical-path"]
    # It has no name: the recording's identifier of it is none for a reader.
    assert not re.search(r"\b[0-9a-f]{16}-\d", page.sections["critical-path"])
    assert "dask.threaded.get(GRAPH" in page.sections["code"]
    assert dask.__version__ in page.sections["environment"]
    assert np.__version__ in page.sections["environment"]
    assert page.failed == []
    text = page_of_a_block.read_text()
    for name in ("tasks", "CPU", "memory", "cache"):
        assert f'aria-label="Plot of {name} over time"' in text


FAILED = [("f", 0.0, 4.0, 3.0, "thread-0", "failed", "OSError")]


@pytest.mark.usefixtures("without_plots")
def test_a_finding_names_its_page_of_the_documentation(tmp_path):
    page = page_of(recording_of(FAILED), tmp_path)
    assert "Documentation: findings/failed-tasks." in " ".join(page.sections["findings"].split())
    assert "failed-tasks.html" not in (tmp_path / "page.html").read_text()


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize("docs", ["https://example.org/docs", "https://example.org/docs/"])
def test_a_finding_links_to_the_documentation_where_its_address_is_configured(tmp_path, docs):
    with dask.config.set({"diag.docs": docs}):
        page_of(recording_of(FAILED), tmp_path)
    link = '<a href="https://example.org/docs/findings/failed-tasks.html">'
    assert link in (tmp_path / "page.html").read_text()


@pytest.mark.usefixtures("without_plots")
def test_a_script_is_no_address_of_the_documentation(tmp_path):
    with dask.config.set({"diag.docs": "javascript:alert(1)//"}):
        page_of(recording_of(FAILED), tmp_path)
    assert "javascript:alert" not in (tmp_path / "page.html").read_text()


@pytest.mark.usefixtures("without_plots")
def test_a_notice_about_profilers_is_shown_without_its_mark(tmp_path):
    recording = replace(recording_of(FAILED), notices=("profiling: samples came late",))
    assert "samples came late" in page_of(recording, tmp_path).sections["summary"]
    assert "profiling: " not in page_of(recording, tmp_path).sections["summary"]
    assert "- samples came late" in str(summary(recording, verbose=True))


@pytest.mark.usefixtures("without_plots")
def test_numbers_in_the_report_are_those_of_the_recording(tmp_path):
    rows = [
        ("f", 0.0, 4.0, 3.0, "thread-0"),
        ("g", 0.0, 2.0, 0.5, "thread-1", "failed", "OSError"),
    ]
    page = page_of(recording_of(rows), tmp_path)
    assert "failed-tasks" in page.sections["findings"]
    functions = " ".join(page.sections["functions"].split())
    assert "20.0 s of worker time" in functions
    assert "f 4.00 s 20% 3.00 s 1 4.00 s" in functions
    assert "g 2.00 s 10% 500 ms 1 2.00 s" in functions
    assert "total 6.00 s 30% 3.50 s 2 4.00 s" in functions
    assert "tasks computing (CPU) 3.00 s, 15%" in functions
    assert "tasks that failed 2.00 s, 10%" in functions


@pytest.mark.usefixtures("without_plots")
def test_the_bar_at_the_top_has_the_seconds_of_each_part(tmp_path):
    rows = [("f", 0.0, 4.0, 3.0, "thread-0"), ("g", 0.0, 2.0, 0.5, "thread-1")]
    recording = recording_of(rows)
    header = page_of(recording, tmp_path).sections["header"]
    parts = dict(re.findall(r"^ (\D+) ([\d.]+ \w+) \(.*%\)$", header, re.MULTILINE))
    # Of 10 s that two workers had, tasks computed for 3.5 of 20 worker-seconds.
    assert parts["tasks computing (CPU)"] == "1.75 s"
    assert parts["tasks off the CPU"] == "1.25 s"
    wall = recording.stop - recording.start
    units = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
    total = sum(float(n) * units[u] for n, u in (text.split() for text in parts.values()))
    assert total == pytest.approx(wall, rel=0.01)


def test_headings_are_in_order_and_every_link_has_its_place(page_of_a_block):
    page = Page(page_of_a_block)
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(page.headings, page.headings[1:]))
    linked = {link[1:] for link in page.links}
    assert linked == {"findings", "timeline", "functions", "memory", "flame", "tasks"}
    assert linked <= set(ALL)
    assert set(ALL) <= set(page.ids)
    assert page.loaded == []


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
    assert "is not in the recording" in page.sections["environment"]


@pytest.mark.usefixtures("without_plots")
def test_stacks_are_a_flame_graph_and_hottest_lines(tmp_path):
    page = page_of(known_stacks(), tmp_path)
    assert "The hottest lines" in page.sections["flame"]
    assert "samples" in page.sections["flame"]


def test_series_of_memory_are_drawn_and_named(tmp_path):
    sampler = MemorySampler()
    with sampler.sample("<b>before</b>", interval=0.01):
        time.sleep(0.05)
    page = page_of(sampler.recording, tmp_path)
    assert page.failed == []
    assert "<b>before</b>" in page.sections["memory"]


@pytest.mark.usefixtures("without_plots")
def test_memory_of_functions_is_reported_as_exact_or_a_bound(tmp_path):
    def takes():
        block = bytearray(60_000_000)
        time.sleep(0.1)
        return len(block)

    with performance_report(tmp_path / "page.html", interval=0.01):
        dask.threaded.get({("takes", 0): (takes,)}, ("takes", 0))
    memory = " ".join(Page(tmp_path / "page.html").sections["memory"].split())
    row = re.search(r"takes 1 1 (≤ )?([\d.]+) MB (≤ )?([\d.]+) MB", memory)
    assert row, memory
    assert 50 < float(row[2]) < 80
    assert row[1] == row[3]
    assert "≤ is an upper bound" in memory


def test_a_section_that_fails_is_a_message_and_the_others_are_there(tmp_path, monkeypatch):
    def fails(analysis, figures):
        yield sections_module.Text(["half of it"])
        raise ValueError("<b>no such thing</b>")

    sections = [
        replace(section, make=fails) if section.name == "summary" else section
        for section in sections_module.SECTIONS
    ]
    monkeypatch.setattr("dask_diag.views.report.page.SECTIONS", sections)
    path = report(recording_of([("f", 0.0, 4.0, 3.0, "thread-0")]), tmp_path / "page.html")
    page = Page(path)
    assert (
        "This part could not be made. ValueError: <b>no such thing</b>" in page.sections["summary"]
    )
    assert "half of it" not in page.sections["summary"]
    assert "<b>no such" not in path.read_text()
    assert "worker time" in page.sections["functions"]


def test_a_figure_that_bokeh_cannot_write_fails_alone(tmp_path, monkeypatch):
    def broken(name, recording, options):
        from bokeh.models import ColumnDataSource
        from bokeh.plotting import figure

        if name != "tasks":
            return None
        plot = figure()
        plot.line("x", "y", source=ColumnDataSource({"x": [object()], "y": [1]}))
        return plot

    monkeypatch.setattr(figures_module, "plot_of", broken)
    page = page_of(recording_of([("f", 0.0, 4.0, 3.0, "thread-0")]), tmp_path)
    assert page.failed == ["timeline"]


class OwnError(Exception):
    pass


@pytest.mark.usefixtures("without_plots")
def test_an_exception_in_the_block_is_raised_as_it_is_and_the_page_is_written(tmp_path):
    error = OwnError("first")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(OwnError) as raised:
            with performance_report(tmp_path / "page.html", interval=0.01):
                dask.threaded.get({("a", 0): (time.sleep, 0)}, ("a", 0))
                raise error
    assert raised.value is error
    assert error.__cause__ is None
    assert error.__context__ is None
    assert " in 1 computation: 1 task on " in Page(tmp_path / "page.html").sections["header"]


@pytest.mark.usefixtures("without_plots")
def test_a_failed_task_is_in_the_report(tmp_path):
    def fails():
        raise OwnError("in a task")

    with pytest.raises(OwnError):
        with performance_report(tmp_path / "page.html", interval=0.01):
            dask.threaded.get({("a", 0): (fails,)}, ("a", 0))
    assert "OwnError" in Page(tmp_path / "page.html").sections["summary"]


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


@pytest.mark.parametrize("filters", ["always", "error"])
def test_a_page_that_cannot_be_written_is_a_warning_at_most(tmp_path, capsys, filters):
    with warnings.catch_warnings(record=filters == "always") as reported:
        warnings.simplefilter(filters)
        folder = tmp_path / "no"
        folder.mkdir()
        with performance_report(folder / "page.html", interval=0.01) as measured:
            folder.rmdir()
            result = dask.threaded.get(GRAPH, ("c", 0))
    assert result == 3
    text = str(reported[0].message) if filters == "always" else capsys.readouterr().err
    assert "the page could not be written" in text
    assert "make the directory" in text
    assert len(measured.recording.tasks) == 2


@pytest.mark.parametrize("filters", ["always", "error"])
def test_a_warning_that_fails_too_does_not_replace_what_the_block_raises(
    tmp_path, monkeypatch, filters
):
    def fails(*args, **kwargs):
        raise ValueError("I/O operation on closed file")

    folder = tmp_path / "no"
    folder.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter(filters)
        monkeypatch.setattr(warnings, "showwarning", fails)
        monkeypatch.setattr("sys.stderr.write", fails)
        with pytest.raises(OwnError) as raised:
            with performance_report(folder / "page.html", interval=0.01):
                folder.rmdir()
                raise OwnError("first")
    assert raised.value.__context__ is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_to_is_reported(tmp_path):
    with pytest.warns(RuntimeWarning, match="could not be written"):
        with performance_report(tmp_path / "page.html"):
            tmp_path.chmod(0o500)
    with pytest.raises(DiagnosticError, match="cannot write"):
        with performance_report(tmp_path / "page.html"):
            pass
    tmp_path.chmod(0o700)


@pytest.mark.usefixtures("without_plots")
def test_a_profiler_that_cannot_start_or_stop_is_reported_in_the_report(tmp_path, monkeypatch):
    block = performance_report(tmp_path / "page.html", interval=0.01)

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
def test_a_forked_child_that_leaves_the_block_writes_nothing(tmp_path):
    block = performance_report(tmp_path / "page.html", interval=0.01)
    with block:
        own, block._pid = block._pid, -1
        block.__exit__(None, None, None)
        assert not (tmp_path / "page.html").exists()
        block._pid = own
    assert (tmp_path / "page.html").exists()


@pytest.mark.usefixtures("without_plots")
def test_the_page_replaces_an_older_one_as_a_whole(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("older")
    monkeypatch.setattr("os.replace", lambda *a: (_ for _ in ()).throw(OSError))
    with pytest.raises(DiagnosticError, match="cannot write"):
        report(recording_of([]), path, overwrite=True)
    monkeypatch.undo()
    assert path.read_text() == "older"
    assert [entry.name for entry in tmp_path.iterdir()] == ["page.html"]
    report(recording_of([]), path, overwrite=True)
    assert "Dask report" in path.read_text()


def test_a_page_is_not_replaced_unasked(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("older")
    with pytest.raises(DiagnosticError, match=r"will not overwrite .*; pass overwrite=True"):
        report(recording_of([]), path)
    assert path.read_text() == "older"


def test_wrong_arguments_are_reported(tmp_path):
    with pytest.raises(DiagnosticError, match="expected a path"):
        report(recording_of([]), 3)
    with pytest.raises(DiagnosticError, match="expected a profiler"):
        report("profile", tmp_path / "page.html")
    with pytest.raises(DiagnosticError, match="it is a directory; name a file in it"):
        report(recording_of([]), tmp_path)
    for name, reported in (
        ("a\0b", "found one with a null byte"),
        ("x" * 300, "File name too long$"),
    ):
        with pytest.raises(DiagnosticError, match=reported):
            report(recording_of([]), name)


def hostile_recording():
    rows = [(name, n, n + 0.5, 0.2, f"thread-{n % 2}") for n, name in enumerate(HOSTILE)]
    facts = [("calling code", name, name + "\n    tail") for name in HOSTILE]
    facts += [
        (section, name, name) for name in HOSTILE for section in ("versions", "configuration")
    ]
    path = recording_of(rows)
    needs = Table({"task": np.arange(1, len(rows)), "depends_on": np.arange(len(rows) - 1)})
    return replace(
        path,
        dependencies=needs,
        environment=environment_table(facts),
        notices=tuple(HOSTILE),
        metric=HOSTILE[0],
    )


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


def test_versions_are_those_of_the_loaded_modules(monkeypatch):
    """Also where another one is installed; the metadata of packages take long to read."""
    monkeypatch.setattr(dask, "__version__", "1.2.3")
    monkeypatch.setattr(environment_module.metadata, "version", lambda name: f"{name}?")
    versions = {name: value for section, name, value in environment() if section == "versions"}
    assert versions["dask"] == "1.2.3"
    monkeypatch.delattr(dask, "__version__")
    versions = {name: value for section, name, value in environment() if section == "versions"}
    assert versions["dask"] == "dask?"


@pytest.mark.usefixtures("without_plots")
def test_where_it_was_recorded_is_in_the_file_and_in_its_report(tmp_path):
    with record(tmp_path / "run.diag", interval=0.01):
        dask.threaded.get(GRAPH, ("c", 0))
    loaded = load(tmp_path / "run.diag")
    facts = {(row["section"], row["name"]): row["value"] for row in loaded.environment.to_dicts()}
    assert facts["versions", "python"].startswith(".".join(map(str, sys.version_info[:3])))
    assert facts["versions", "dask"] == dask.__version__
    assert facts["machine", "processors"]
    assert [n for s, n in facts if s == "calling code"] == [
        next(n for s, n in facts if s == "calling code")
    ]
    page = page_of(loaded, tmp_path)
    assert 'record(tmp_path / "run.diag"' in page.sections["code"]
    again = Recording.combine([loaded, recording_of([])])
    assert again.environment.to_dicts() == loaded.environment.to_dicts()


def test_what_looks_like_a_secret_is_not_recorded():
    secret = "hunter2"
    names = [
        "token",
        "my.api-key",
        "db_password",
        "aws.secret_access_key",
        "tls.client.key",
        "AuthHeader",
    ]
    with dask.config.set(
        dict.fromkeys(names, secret), keyboard="qwerty", url=f"s3://user:{secret}@host/x"
    ):
        rows = environment()
    reported = {name: value for section, name, value in rows if section == "configuration"}
    assert secret not in str(rows)
    assert reported["keyboard"] == "'qwerty'"
    assert reported["url"] == "'s3://…@host/x'"
    assert all(
        name.split(".")[0].replace("_", "-") in reported["(left out)"].replace("_", "-")
        for name in names
    )


def block_of_its_own():
    return calling_code(sys._getframe())


def test_the_code_is_that_of_the_block_that_called(tmp_path):
    ((section, location, code),) = block_of_its_own()
    assert section == "calling code"
    assert re.fullmatch(r"test_report.py:\d+, in block_of_its_own", location)
    assert code.split("\n") == [
        "def block_of_its_own():",
        "    return calling_code(sys._getframe())",
    ]
    assert calling_code(None) == []
    namespace = {}
    exec(compile("frame = __import__('sys')._getframe()", "<gone>", "exec"), namespace)
    assert calling_code(namespace["frame"]) == []
    script = tmp_path / "script.py"
    long = (
        "x = 1\n" * 300 + "with open('script.py') as f:\n    frame = sys._getframe()\n    y = 2\n"
    )
    script.write_text("import sys\n" + long)
    exec(compile(script.read_text(), str(script), "exec"), namespace)
    ((_, location, code),) = calling_code(namespace["frame"])
    # A frame that has ended stands at its last line.
    assert location == "script.py:302, in a script"
    assert code.startswith("with open")
    assert code.count("\n") == 2


@pytest.mark.usefixtures("without_plots")
def test_an_environment_that_cannot_be_read_loses_nothing(tmp_path, monkeypatch):
    def fails(*args):
        raise RuntimeError("no platform")

    monkeypatch.setattr(environment_module, "_machine", fails)
    with performance_report(tmp_path / "page.html", interval=0.01):
        dask.threaded.get(GRAPH, ("c", 0))
    assert "no platform" in Page(tmp_path / "page.html").sections["summary"]


def test_a_report_of_many_tasks_is_small(tmp_path):
    many = report(many_tasks(20_000), tmp_path / "page.html", mode="cdn")
    few = report(many_tasks(100), tmp_path / "small.html", mode="cdn")
    assert many.stat().st_size - few.stat().st_size < 300_000


def test_bokeh_looks_through_the_figures_of_a_page_once(tmp_path, monkeypatch):
    """Not once for each of them: they are linked, so each time it finds the models of all."""
    roots = []
    recompute = DocumentModelManager.recompute

    def counted(models):
        roots.append(len(models._document().roots))
        recompute(models)

    monkeypatch.setattr(DocumentModelManager, "recompute", counted)
    report(many_tasks(100), tmp_path / "page.html", mode="cdn")
    # In the end none are left to be looked through.
    figures, remaining = roots
    assert figures >= 3
    assert remaining == 0


@pytest.mark.parametrize(
    ("tasks", "drawn"), [(2000, "a rectangle for each task"), (4000, "by what that did")]
)
def test_the_text_of_the_tasks_describes_what_is_drawn_as_the_page_opens(tmp_path, tasks, drawn):
    page = page_of(many_tasks(tasks), tmp_path)
    assert f"of a cluster for each of its threads, {drawn}" in page.sections["timeline"]
