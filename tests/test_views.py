"""Pictures and tables, made from recordings whose content is known."""

from __future__ import annotations

import json
import re
import time
import warnings
from dataclasses import replace
from operator import add
from pathlib import Path

import bokeh.models as bm
import dask.local
import dask.threaded
import numpy as np
import pytest
from bokeh.io.state import curstate
from dask.diagnostics import Profiler as DasksProfiler

from dask_diag import (
    CacheProfiler,
    DiagnosticError,
    MemorySampler,
    Profiler,
    ProgressBar,
    Recording,
    ResourceProfiler,
    SamplingProfiler,
    summary,
    visualize,
)
from dask_diag.analysis.cpu import cpu_outside_tasks
from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.model.table import Table
from dask_diag.views.escaping import shown
from dask_diag.views.plots.figures import Options
from dask_diag.views.plots.lines import ProcessMemory, plot_process_memory

from .javascript import changed_by_javascript, needs_node
from .tables import filled_table
from .test_finding_thresholds import Task
from .test_finding_thresholds import run as made_up

pytestmark = pytest.mark.once

HOSTILE = [
    "<script>window.pwned = 1</script>",
    "</script><img src=x onerror='window.pwned = 1'>",
    "quotes\"'`${window.pwned = 1}",
    "new\nline\ttab\r\x1b[31m\x00",
    "x" * 10_000,
    "$$\\href{javascript:alert(1)}{x}$$",
    "\u202eright to left",
    "\ud800 lone surrogate",
    "ünï 🎉",
    "{{ template }} {% raw %} @key $name [bold red]",
    "",
]


def recording_of(rows, computations=(("c-1", 0.0, 10.0),), notices=()):
    """A recording by hand; a row is function, start, stop, cpu, worker, and maybe outcome, error."""
    rows = [(*row, "ok", "")[:7] if len(row) == 5 else row for row in rows]
    columns = list(zip(*rows, strict=True)) or [()] * 7
    functions, starts, stops, cpus, workers, outcomes, errors = columns
    start, stop, cpu = (np.array(column, float) for column in (starts, stops, cpus))
    worker = Categorical.of(workers)
    return Recording(
        start=0.0,
        stop=10.0,
        epoch=1.7e9,
        computations=filled_table(
            "computations",
            {
                "computation": Categorical.of(c[0] for c in computations),
                "start": np.array([c[1] for c in computations], float),
                "stop": np.array([c[2] for c in computations], float),
                "workers": np.full(len(computations), 2),
                "process_cpu": np.zeros(len(computations)),
                "scheduler_cpu": np.zeros(len(computations)),
                "voluntary_switches": np.zeros(len(computations)),
                "involuntary_switches": np.zeros(len(computations)),
                "cpus": np.full(len(computations), 2),
                "span": Categorical.of([""] * len(computations)),
                "scheduler": Categorical.of(["threads"] * len(computations)),
                "error": Categorical.of([""] * len(computations)),
            },
        ),
        tasks=filled_table(
            "tasks",
            {
                "key": PrefixStrings.of(f"('{name}', {n})" for n, name in enumerate(functions)),
                "function": Categorical.of(functions),
                "start": start,
                "stop": stop,
                "thread_cpu": cpu,
                "thread_noncpu": stop - start - cpu,
                "submitted": start - 0.1,
                "collected": stop + 0.1,
                "worker": worker,
                "pid": Categorical(worker.codes, [1] * len(worker.values) or [1]),
                "thread": Categorical(worker.codes, range(max(len(worker.values), 1))),
                "computation": Categorical.of(["c-1"] * len(rows)),
                "span": Categorical.of([""] * len(rows)),
                "outcome": Categorical.of(outcomes),
                "error": Categorical.of(errors),
            },
        ),
        dependencies=Table({}),
        metrics=Table({}),
        resources=Table({}),
        cached_results=Table({}),
        notices=tuple(notices),
    )


def run(*diagnostics, get=dask.threaded.get):
    import contextlib

    with contextlib.ExitStack() as stack:
        for diagnostic in diagnostics:
            stack.enter_context(diagnostic)
        get({"a": 1, ("b", 0): (add, "a", 1), ("c", 0): (add, ("b", 0), 1)}, ("c", 0))
    return list(diagnostics)


def quads(figure):
    return [r for r in figure.renderers if isinstance(r.glyph, bm.Quad)]


def drawn_by_the_page(figure):
    """The rectangles of a figure of few tasks, and what is marked, as the page lays them out."""
    (script,) = [m for m in figure.select({"type": bm.CustomJS}) if "rectangles" in m.args]
    marks = [{} for _ in script.args["marks"]]
    given = {**script.args, "rectangles": {}, "marks": marks}
    (models,) = changed_by_javascript("plots/tasks/tasks.js", "draw_all", given)
    return models["rectangles"]["data"], [mark["data"] for mark in models["marks"]]


@needs_node
def test_a_task_is_drawn_where_and_when_it_ran():
    figure = visualize(
        recording_of(
            [
                ("f", 1.0, 3.0, 1.5, "thread-0"),
                ("g", 2.0, 4.0, 0.0, "thread-1"),
                ("f", 4.0, 5.0, 1.0, "thread-0"),
            ]
        ),
        show=False,
        save=False,
    )
    full, off_cpu = quads(figure)
    data, marks = drawn_by_the_page(figure)
    assert marks == []
    # At full strength, with stripes above the CPU time: strength means nothing.
    assert (full.glyph.fill_alpha, off_cpu.glyph.fill_color, full.glyph.top) == (1.0, None, "top")
    assert off_cpu.glyph.hatch_pattern == "left_diagonal_line"
    assert (off_cpu.glyph.top, off_cpu.glyph.hatch_color) == ("top", "white")
    assert off_cpu.data_source is full.data_source
    assert set(data) == set(full.data_source.data)
    assert data["key"] == ["('f', 0)", "('f', 2)", "('g', 1)"]
    assert data["left"] == [1.0, 4.0, 2.0]
    assert data["right"] == [3.0, 5.0, 4.0]
    height = 255
    assert [round(1 - part / height, 2) for part in data["off_cpu"]] == [0.75, 1, 0]
    assert data["top"] == [0, 0, 320]
    lanes = sorted(set(data["top"]))
    bottom, top = figure.y_range.start, figure.y_range.end
    assert top < lanes[0]
    assert lanes[-1] + height < bottom
    assert lanes[0] + height < lanes[1]
    names = [figure.yaxis[0].major_label_overrides[tick] for tick in figure.yaxis[0].ticker.ticks]
    assert names == ["thread-0", "thread-1"]
    assert (figure.x_range.start, figure.x_range.end) == (0, 10)


def test_lanes_are_in_order_and_make_the_figure_taller():
    workers = [f"thread-{n}" for n in range(30)]
    rows = [("f", 0.0, 1.0, 1.0, worker) for worker in reversed(workers)]
    figure = visualize(recording_of(rows), show=False, save=False)
    axis = figure.yaxis[0]
    assert [axis.major_label_overrides[tick] for tick in axis.ticker.ticks] == workers
    assert figure.height > 500
    assert visualize(recording_of(rows), height=200, show=False, save=False).height == 200


@needs_node
def test_tasks_not_ok_are_marked_and_those_not_started_are_not_drawn():
    nan = float("nan")
    rows = [
        ("f", 0.0, 1.0, 1.0, "thread-0"),
        ("f", 1.0, 2.0, 0.5, "thread-0", "failed", "ValueError"),
        ("g", 1.0, nan, nan, "thread-1", "unfinished", ""),
        ("g", nan, nan, nan, "unknown", "unfinished", ""),
    ]
    recording = recording_of(rows, computations=[("c-1", 0.0, 2.5)])
    figure = visualize(recording, show=False, save=False)
    data, (failed, unfinished) = drawn_by_the_page(figure)
    assert len(quads(figure)) == 4
    assert data["left"] == [0.0, 1.0, 1.0]
    assert data["outcome"] == [0, 1, 2]
    # Of the last one no CPU time is known: it is not said to have been off the CPU.
    assert data["off_cpu"] == [0, 128, 0]
    assert failed == {"left": [1.0], "right": [2.0], "top": [0]}
    assert unfinished == {"left": [1.0], "right": [2.5], "top": [320]}
    lines = summary(recording).splitlines()
    assert any(line.endswith("4 tasks on 2 workers, 1 failed, 2 unfinished") for line in lines)
    assert "Failed      1 task, first ('f', 1) with ValueError" in lines
    assert "Unfinished  2 tasks, of which 1 is known to have started" in lines


def test_a_function_has_the_same_colour_in_all_plots_of_a_page():
    prof, cprof = run(Profiler(), CacheProfiler())
    grid = visualize([prof, cprof], show=False, save=False)
    tasks, cache = (child[0] for child in grid.children)
    mapper = quads(tasks)[0].glyph.fill_color["transform"]
    functions = prof.recording.tasks["function"].values
    colors = dict(zip(functions, mapper.palette))
    lines = {r.name: r.glyph.line_color for r in cache.renderers if r.name != "total"}
    assert {name: lines[name] for name in colors} == colors
    assert len(set(colors.values())) == len(colors)


def test_a_palette_of_bokeh_can_be_chosen_and_an_unknown_one_is_refused():
    (prof,) = run(Profiler())
    from bokeh.palettes import Viridis256

    figure = visualize(prof, palette="Viridis", show=False, save=False)
    assert set(quads(figure)[0].glyph.fill_color["transform"].palette) <= set(Viridis256)
    with pytest.raises(DiagnosticError, match="expected the name of a bokeh palette"):
        visualize(prof, palette="Vermeer", show=False, save=False)


def test_the_cache_plot_has_a_step_line_for_each_function_and_a_total():
    _, cprof = run(Profiler(), CacheProfiler())
    figure = visualize(cprof, show=False, save=False)
    assert {renderer.name for renderer in figure.renderers} == {"total", "b", "c"}
    steps = [r for r in figure.renderers if isinstance(r.glyph, bm.Step)]
    dots = [r for r in figure.renderers if isinstance(r.glyph, bm.Scatter)]
    assert {r.glyph.mode for r in steps} == {"after"}
    assert [r.data_source for r in steps] == [r.data_source for r in dots]
    assert len(steps + dots) == len(figure.renderers)
    # Bokeh's steps do not feel the mouse.
    assert figure.select_one(bm.HoverTool).renderers == dots
    total = next(r for r in figure.renderers if r.name == "total").data_source.data
    assert total["amount"].tolist()[0] >= 1
    assert total["amount"].tolist()[-1] == 0


@needs_node
def test_stacked_plots_share_one_time_axis_and_one_origin():
    diagnostics = run(Profiler(), ResourceProfiler(0.01), CacheProfiler())
    grid = visualize(diagnostics, show=False, save=False)
    figures = [row[0] for row in grid.children]
    assert len({id(figure.x_range) for figure in figures}) == 1
    first = min(d.start_time for d in diagnostics)
    starts = drawn_by_the_page(figures[0])[0]["left"]
    start = np.sort(diagnostics[0].recording.tasks["start"])
    assert np.sort(starts) == pytest.approx(start - first, abs=1e-6)


def test_a_plot_of_resources_is_as_long_as_what_it_shows():
    columns = ("time", "cpu", "memory", "memory_children", "read", "written", "threads", "delay")
    samples = filled_table("resources", {name: np.array([0.0, 0.02, 0.05]) for name in columns})
    short = replace(
        recording_of([], computations=(("c-1", 0.0, 0.05),)), resources=samples, stop=0.05
    )
    figure = visualize(short, show=False, save=False)
    assert (figure.x_range.start, figure.x_range.end) == (0, 0.05)


def test_every_field_of_a_tooltip_is_a_column_of_what_it_is_over():
    memory = MemorySampler()
    with memory.sample("block", interval=0.01):
        profilers = run(Profiler(), ResourceProfiler(0.01), CacheProfiler(), SamplingProfiler())
        time.sleep(0.03)
    picture = visualize(
        [*profilers, memory],
        plots=["tasks", "resources", "cache", "memory", "flame", "activities"],
        show=False,
        save=False,
    )
    checked = 0
    for hover in picture.select({"type": bm.HoverTool}):
        fields = {
            field for _, text in hover.tooltips or [] for field in re.findall("@([a-z_]+)", text)
        }
        for renderer in hover.renderers if hover.renderers != "auto" else []:
            assert fields <= set(renderer.data_source.column_names)
            checked += 1
    assert checked >= 8


@pytest.mark.parametrize("make", [Profiler, CacheProfiler, ResourceProfiler, ProgressBar])
def test_nothing_measured_draws_an_empty_labelled_plot(make):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = make().visualize(show=False, save=False)
        make().summary()
    assert figure.xaxis[0].axis_label == "Time (s)"
    assert figure.yaxis[0].axis_label in ("Worker", "Cache Size (count)", "% CPU")


def test_only_the_file_that_was_named_is_written(tmp_path):
    (prof,), (other,) = run(Profiler()), run(Profiler())
    prof.visualize(filename=tmp_path / "one.html", show=False)
    first = (tmp_path / "one.html").read_text()
    other.visualize(filename=str(tmp_path / "two.html"), show=False)
    assert (tmp_path / "one.html").read_text() == first
    assert {path.name for path in tmp_path.iterdir()} == {"one.html", "two.html"}
    for path in tmp_path.iterdir():
        path.unlink()


def test_pages_need_no_network_unless_asked_to(tmp_path):
    (prof,) = run(Profiler())
    prof.visualize(filename=tmp_path / "page.html", show=False)
    page = (tmp_path / "page.html").read_text()
    addresses = re.findall(r'<(?:script|link)[^>]*(?:src|href)="([^"]*)"', page)
    # An empty icon, so that browsers do not ask for one.
    assert addresses == ["data:,"]
    prof.visualize(filename=tmp_path / "page.html", show=False, mode="cdn")
    page = (tmp_path / "page.html").read_text()
    assert re.findall(r'<script[^>]*src="https', page)
    (tmp_path / "page.html").unlink()


def test_a_page_that_takes_bokeh_from_the_network_is_small(tmp_path):
    # By hand: of tasks that ran, times have more digits on a busy machine.
    tasks = [Task(0, 1, worker=0), Task(0, 1, worker=1)]
    visualize(made_up(tasks), filename=tmp_path / "page.html", show=False, mode="cdn")
    page = (tmp_path / "page.html").read_text()
    # As in a program that draws this alone: bokeh's numbers are longer after thousands of others.
    size = len(re.sub(r"\bp\d{4,}\b", "p1001", page))
    assert size < 175_000
    (tmp_path / "page.html").unlink()


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    (prof,) = run(Profiler())
    with pytest.raises(DiagnosticError, match=r"make the directory .*no first"):
        prof.visualize(filename=tmp_path / "no" / "page.html", show=False)


def test_show_false_touches_no_browser(monkeypatch, tmp_path):
    import webbrowser

    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda *a, **k: opened.append(a))
    monkeypatch.setattr(webbrowser, "get", lambda *a, **k: opened.append(a))
    (prof,) = run(Profiler())
    prof.visualize(filename=tmp_path / "page.html", show=False)
    assert opened == []
    monkeypatch.setattr("dask_diag.views.visualize.view", opened.append)
    prof.visualize(filename=tmp_path / "page.html")
    assert opened == [(tmp_path / "page.html").as_uri()]
    (tmp_path / "page.html").unlink()


def test_in_a_notebook_the_figure_shows_inline_and_no_file_is_written(monkeypatch, tmp_path):
    published = []
    pytest.importorskip("IPython")
    monkeypatch.setattr("dask_diag.views.visualize.in_notebook", lambda: True)
    monkeypatch.setattr(curstate(), "_notebook", False)
    monkeypatch.setattr(
        "IPython.display.publish_display_data", lambda data, **more: published.append(data)
    )
    (prof,) = run(Profiler())
    figure = prof.visualize()
    bokeh, html, script = published
    assert "bokeh.__bokeh__" in bokeh["application/javascript"]
    assert figure.id in script["application/javascript"]
    assert "<details" not in html["text/html"]
    assert list(tmp_path.iterdir()) == []
    # A script makes it as wide as the cell, but none of the size that the user asked for.
    assert ", true, () =>" in script["application/javascript"]
    figure = prof.visualize(width=2000)
    assert len(published) == 5
    assert figure.id in published[-1]["application/javascript"]
    assert ", false, () =>" in published[-1]["application/javascript"]


def test_what_is_shown_and_not_saved_is_in_no_folder_of_the_users(monkeypatch, tmp_path):
    shown_in = []
    (tmp_path / "script").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.chdir(tmp_path / "script")
    monkeypatch.setattr("sys.argv", [str(tmp_path / "script" / "work.py")])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr("dask_diag.views.visualize.view", shown_in.append)
    (prof,) = run(Profiler())
    prof.visualize(save=False)
    assert list((tmp_path / "script").iterdir()) == []
    (page,) = (tmp_path / "temporary").rglob("*.html")
    assert shown_in == [page.as_uri()]
    page.unlink()
    page.parent.rmdir()
    for folder in tmp_path.iterdir():
        folder.rmdir()


def test_a_page_appears_when_it_is_complete(monkeypatch, tmp_path):
    (prof,) = run(Profiler())
    path = tmp_path / "page.html"
    path.write_text("older")

    def full(file):
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DiagnosticError, match=r"page.html: no space left$"):
        prof.visualize(filename=path, show=False)
    assert path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]
    path.unlink()


@pytest.mark.parametrize("bad", [3, "profile", [3], [Profiler(), None]])
def test_what_cannot_be_drawn_is_an_error(bad):
    with pytest.raises(DiagnosticError, match="expected a profiler"):
        visualize(bad, show=False, save=False)
    with pytest.raises(DiagnosticError, match="expected a profiler"):
        summary(bad)
    with pytest.raises(DiagnosticError, match="empty list"):
        summary([])


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"filename": 3}, "filename: expected a path"),
        ({"filename": "."}, "it is a directory; name a file in it"),
        ({"filename": "a\0b"}, "expected a path, found one with a null byte"),
        ({"filename": "x" * 300}, "^cannot write .*: File name too long$"),
        ({"palette": ["red"]}, "palette: expected the name"),
        ({"label_size": "x"}, "label_size: expected"),
    ],
)
def test_wrong_arguments_are_refused(kwargs, message):
    (prof,) = run(Profiler())
    with pytest.raises(DiagnosticError, match=message):
        visualize(prof, show=False, **kwargs)


def test_a_class_or_a_profiler_in_place_of_a_recording_is_refused():
    with pytest.raises(DiagnosticError, match="expected a profiler"):
        summary(Profiler)
    with pytest.raises(DiagnosticError, match=r"its \.recording"):
        Recording.combine([Profiler()])


def test_cpu_time_of_other_threads_is_shown(retried):
    import threading

    def spin(seconds):
        started = time.thread_time()
        while time.thread_time() - started < seconds:
            pass

    def spin_elsewhere():
        thread = threading.Thread(target=spin, args=(0.3,))
        thread.start()
        thread.join()

    def measure():
        with Profiler() as prof:
            dask.threaded.get({("s", 0): (spin_elsewhere,)}, ("s", 0))
        assert cpu_outside_tasks(prof.recording) == pytest.approx(0.3, abs=0.03)
        assert re.search(r"^Other threads +[23]\d\d ms of CPU", prof.summary(), re.MULTILINE)
        with Profiler() as prof:
            dask.threaded.get({("s", 0): (spin, 0.3)}, ("s", 0))
        assert cpu_outside_tasks(prof.recording) < 0.03
        assert "Other threads" not in prof.summary()

    retried(measure)


def test_dasks_own_profiler_is_refused():
    with pytest.raises(DiagnosticError, match="of dask_diag, found dask"):
        visualize(DasksProfiler(), show=False, save=False)


def test_an_unknown_keyword_is_refused():
    with pytest.raises(AttributeError, match=r"foo_bar.*expected palette") as refused:
        visualize(Profiler(), foo_bar=1, show=False, save=False)
    assert isinstance(refused.value, DiagnosticError)
    assert len(str(refused.value)) < 150


def hostile_diagnostics():
    dsk = {}
    for name in HOSTILE:

        def work():
            return None

        work.__name__ = name
        dsk[name or "empty"] = (work,)
        dsk[(name, 1)] = (work,)
        dsk[name + "-1"] = (work,)
    diagnostics = [
        Profiler(),
        CacheProfiler(metric_name=HOSTILE[0]),
        ResourceProfiler(0.01),
        ProgressBar(label=HOSTILE[0], minimum=99),
    ]
    run(*diagnostics, get=lambda *a: dask.local.get_sync(dsk, list(dsk)))
    return diagnostics


def test_hostile_names_are_data_everywhere(tmp_path):
    diagnostics = hostile_diagnostics()
    keys = diagnostics[0].recording.tasks["key"].tolist()
    assert len(keys) == 3 * len(HOSTILE)
    assert HOSTILE[0] in keys
    assert f"{HOSTILE[4]}-1" in keys
    text = summary(diagnostics)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "\x1b" not in text
    assert "\r" not in text
    for markup in (text._repr_html_(), diagnostics[0].recording._repr_html_()):
        assert "<script" not in markup
        assert "<img" not in markup
    visualize(diagnostics, filename=tmp_path / "page.html", show=False)
    page = (tmp_path / "page.html").read_text(errors="surrogatepass")
    assert "<script>window.pwned" not in page
    assert "<img src=x" not in page
    (tmp_path / "page.html").unlink()


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("limit", [1, 10, 60])
def test_shown_text_is_one_printable_line_of_bounded_length(text, limit):
    line = shown(text, limit)
    assert len(line) <= limit
    assert line.isprintable()
    line.encode()


def test_the_summary_adds_up():
    rows = [(f"f{n}", 0.0, 1.0 + n / 100, 0.5, "thread-0") for n in range(50)]
    text = summary(recording_of(rows))
    assert "10.0 s in 1 computation: 50 tasks on 1 worker, all done" in text.splitlines()
    assert "(30 more functions)" in text
    total = next(line for line in text.splitlines() if line.strip().startswith("total"))
    assert total.split() == [
        "total",
        "50",
        "62.3",
        "s",
        "25.0",
        "s",
        "37.3",
        "s",
        "40%",
        "1.49",
        "s",
    ]
    listed = [line for line in text.splitlines() if line.strip().startswith(("f", "("))]
    assert sum(int(line.split("  ")[-1] != "") for line in listed) >= 21


def test_the_summary_of_several_combines_them():
    text = summary(run(Profiler(), ResourceProfiler(0.01), CacheProfiler()))
    assert ", of which tasks computed for " in text.splitlines()[0]
    assert " in 1 computation: 2 tasks on " in text
    assert re.search(r"^Peak memory +\S+ MB \(", text, re.MULTILINE)
    assert re.search(r"^CPU  +", text, re.MULTILINE)
    assert re.search(r"^Cached results +peak 1 \(count\): b 1, c 1$", text, re.MULTILINE)
    assert str(text) == repr(text)
    assert text._repr_html_().count("<tr>") == 4


def test_computing_time_counts_overlap_once():
    rows = [("f", 0.0, 1.0, 1.0, "thread-0")]
    computations = [("c-1", 0.0, 4.0), ("c-2", 2.0, 3.0), ("c-3", 8.0, 9.0)]
    text = summary(recording_of(rows, computations))
    assert "5.00 s in 3 computations: 1 task on 1 worker, all done" in text.splitlines()
    assert "Overlapping  1 computation started before another stopped" in text.splitlines()


def test_a_big_profile_makes_a_small_page(tmp_path):
    count = 20_000
    rows = [(f"f{n % 5}", n * 1e-3, n * 1e-3 + 5e-4, 4e-4, f"thread-{n % 4}") for n in range(count)]
    recording = recording_of(rows)
    visualize(recording_of([]), filename=tmp_path / "empty.html", plots=["tasks"], show=False)
    started = time.process_time()
    visualize(recording, filename=tmp_path / "page.html", plots=["tasks"], show=False)
    assert time.process_time() - started < 10
    beyond = (tmp_path / "page.html").stat().st_size - (tmp_path / "empty.html").stat().st_size
    assert beyond < 50 * count
    for path in tmp_path.iterdir():
        path.unlink()


def test_the_page_holds_json_that_browsers_read(tmp_path):
    (prof,) = run(Profiler())
    path = Path(tmp_path / "page.html")
    prof.visualize(filename=path, show=False)
    page = path.read_text()
    body = page.split('<script type="application/json"')[1].split(">", 1)[1].split("</script>")[0]
    assert json.loads(body.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    path.unlink()


def test_in_a_notebook_a_summary_is_returned_and_not_printed(monkeypatch):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert " in 1 computation: 2 tasks on " in summary(run(Profiler()))


def test_the_summary_shows_how_worker_time_divides():
    rows = [("f", 0.0, 4.0, 3.0, "thread-0"), ("f", 0.0, 2.0, 1.0, "thread-1")]
    text = summary(recording_of(rows))
    title, bar, legend = text.split("\n\n")[1].splitlines()
    assert title == "Worker time 20.0 s"
    assert [bar.count(glyph) for glyph in "█▓▒"] == [54, 16, 8]
    assert legend.split("  ")[1:] == ["█ idle 69%", "▓ thread-cpu 20%", "▒ thread-noncpu 10%"]


def test_memory_that_is_not_known_leaves_an_axis_that_can_be_drawn():
    columns = {"time": [0.0, 1.0], "memory": [np.nan] * 2, "memory_children": [np.nan] * 2}
    samples = filled_table("resources", columns)
    for memory in (samples, samples.rows([])):
        plot = plot_process_memory(ProcessMemory(memory, None, np.nan), 0.0, 1.0, Options())
        assert 0 < plot.y_range.end < np.inf
