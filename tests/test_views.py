"""Pictures and tables, made from recordings whose content is known."""

import contextlib
import re
import threading
import time
import warnings
from dataclasses import replace
from operator import add

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
from dask_diag.columns import Categorical
from dask_diag.model.codes import Activity
from dask_diag.views.colors import look_of
from dask_diag.views.escaping import shown
from dask_diag.views.plots.figures import Options
from dask_diag.views.plots.lines import ProcessMemory, plot_process_memory

from .javascript import changed_by_javascript, needs_node
from .recordings import Task, filled_table, with_tables
from .recordings import run as made_up

pytestmark = [pytest.mark.once, pytest.mark.leaves_files]

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
    names, began, ended = zip(*computations, strict=True) if computations else [()] * 3
    zeros = ("cpu_process", "cpu_scheduler", "voluntary_switches", "involuntary_switches")
    count = len(computations)
    empty = Recording(start=0.0, stop=10.0, epoch=1.7e9, notices=tuple(notices))
    return with_tables(
        empty,
        computations=dict.fromkeys(zeros, np.zeros(count))
        | dict.fromkeys(("workers", "cpus"), np.full(count, 2))
        | {"computation": names, "start": began, "stop": ended, "scheduler": ["threads"] * count},
        tasks={
            "key": [f"('{name}', {n})" for n, name in enumerate(functions)],
            "function": functions,
            "start": start,
            "stop": stop,
            "thread_cpu": cpu,
            "thread_noncpu": stop - start - cpu,
            "submitted": start - 0.1,
            "collected": stop + 0.1,
            "worker": worker,
            "pid": [1] * len(rows),
            "thread": worker.codes,
            "computation": ["c-1"] * len(rows),
            "outcome": outcomes,
            "error": errors,
        },
    )


def run(*diagnostics, get=dask.threaded.get):
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
    rows = [
        ("f", 1.0, 3.0, 1.5, "thread-0"),
        ("g", 2.0, 4.0, 0.0, "thread-1"),
        ("f", 4.0, 5.0, 1.0, "thread-0"),
    ]
    figure = visualize(recording_of(rows), show=False, save=False)
    full, off_cpu = quads(figure)
    data, marks = drawn_by_the_page(figure)
    assert marks == []
    # At full strength, with stripes above the CPU time in the colour of time off the CPU.
    assert (full.glyph.fill_alpha, off_cpu.glyph.fill_color, full.glyph.top) == (1.0, None, "top")
    assert off_cpu.glyph.hatch_pattern == "left_diagonal_line"
    assert (off_cpu.glyph.top, off_cpu.glyph.hatch_color) == ("top", look_of(Activity.NONCPU).color)
    assert off_cpu.data_source is full.data_source
    assert set(data) == set(full.data_source.data)
    height = 255
    data["off_cpu"] = [round(1 - part / height, 2) for part in data["off_cpu"]]
    drawn = zip(*(data[name] for name in ("key", "left", "right", "off_cpu", "top")))
    assert list(drawn) == [
        ("('f', 0)", 1.0, 3.0, 0.75, 0),
        ("('f', 2)", 4.0, 5.0, 1, 0),
        ("('g', 1)", 2.0, 4.0, 0, 320),
    ]
    assert figure.y_range.end < 0 < 320 + height < figure.y_range.start
    names = [figure.yaxis[0].major_label_overrides[tick] for tick in figure.yaxis[0].ticker.ticks]
    assert names == ["thread-0", "thread-1"]
    assert (figure.x_range.start, figure.x_range.end) == (0, 10)


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


def test_a_palette_of_bokeh_can_be_chosen():
    from bokeh.palettes import Viridis256

    figure = visualize(run(Profiler()), palette="Viridis", show=False, save=False)
    assert set(quads(figure)[0].glyph.fill_color["transform"].palette) <= set(Viridis256)


def test_a_plot_of_resources_is_as_long_as_what_it_shows():
    columns = ("time", "cpu", "memory", "memory_children", "read", "written", "threads", "delay")
    samples = {name: [0.0, 0.02, 0.05] for name in columns}
    nothing = replace(recording_of([], computations=(("c-1", 0.0, 0.05),)), stop=0.05)
    figure = visualize(with_tables(nothing, resources=samples), show=False, save=False)
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


def test_pages_need_no_network_unless_asked_to(tmp_path):
    # By hand: of tasks that ran, times have more digits on a busy machine.
    made = made_up([Task(0, 1, worker=0), Task(0, 1, worker=1)])
    visualize(made, filename=tmp_path / "page.html", show=False)
    page = (tmp_path / "page.html").read_text()
    addresses = re.findall(r'<(?:script|link)[^>]*(?:src|href)="([^"]*)"', page)
    # An empty icon, so that browsers do not ask for one.
    assert addresses == ["data:,"]
    visualize(made, filename=str(tmp_path / "small.html"), show=False, mode="cdn")
    small = (tmp_path / "small.html").read_text()
    assert re.findall(r'<script[^>]*src="https', small)
    # As in a program that draws this alone: bokeh's numbers are longer after thousands of others.
    assert len(re.sub(r"\bp\d{4,}\b", "p1001", small)) < 175_000
    assert {path.name for path in tmp_path.iterdir()} == {"page.html", "small.html"}
    assert (tmp_path / "page.html").read_text() == page


def test_a_page_is_shown_unless_asked_not_to(monkeypatch, tmp_path):
    opened = []
    for name in ("open", "get"):
        monkeypatch.setattr(f"webbrowser.{name}", lambda *a, **k: opened.append(a))
    (prof,) = run(Profiler())
    prof.visualize(filename=tmp_path / "page.html", show=False)
    assert opened == []
    monkeypatch.setattr("dask_diag.views.visualize.view", opened.append)
    prof.visualize(filename=tmp_path / "page.html")
    assert opened == [(tmp_path / "page.html").as_uri()]


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
    assert '"fitted": true' in script["application/javascript"]
    figure = prof.visualize(width=2000)
    assert len(published) == 5
    assert figure.id in published[-1]["application/javascript"]
    assert '"fitted": false' in published[-1]["application/javascript"]


def test_what_is_shown_and_not_saved_is_in_no_folder_of_the_users(monkeypatch, tmp_path):
    shown_in = []
    for name in ("script", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "script")
    monkeypatch.setattr("sys.argv", [str(tmp_path / "script" / "work.py")])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr("dask_diag.views.visualize.view", shown_in.append)
    run(Profiler())[0].visualize(save=False)
    assert list((tmp_path / "script").iterdir()) == []
    (page,) = (tmp_path / "temporary").rglob("*.html")
    assert shown_in == [page.as_uri()]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (3, "expected a Recording, a profiler"),
        ("profile", "expected a Recording, a profiler"),
        ([3], "expected a Recording, a profiler"),
        ([Profiler(), None], "expected a Recording, a profiler"),
        (Profiler, "expected a Recording, a profiler"),
        ([], "empty list"),
        (DasksProfiler(), "found dask.diagnostics"),
    ],
)
def test_what_cannot_be_drawn_is_an_error(bad, message):
    for show in (summary, lambda source: visualize(source, show=False, save=False)):
        with pytest.raises(DiagnosticError, match=message):
            show(bad)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"filename": 3}, "filename: expected a path"),
        ({"filename": "."}, "it is a directory; name a file in it"),
        ({"filename": "a\0b"}, "expected a path, found one with a null byte"),
        ({"filename": "x" * 300}, "^cannot write .*: File name too long$"),
        ({"filename": "no/page.html"}, r"make the directory .*no first"),
        ({"palette": ["red"]}, "palette: expected the name"),
        ({"palette": "Vermeer"}, "expected the name of a bokeh palette"),
        ({"label_size": "x"}, "label_size: expected"),
        ({"foo_bar": 1}, r"foo_bar.*expected palette.{,80}$"),
    ],
)
def test_wrong_arguments_are_refused(kwargs, message):
    with pytest.raises(DiagnosticError, match=message) as refused:
        visualize(Profiler(), show=False, **kwargs)
    assert isinstance(refused.value, AttributeError) == ("foo_bar" in kwargs)


def test_cpu_time_of_other_threads_is_shown(retried):
    def spin(seconds):
        started = time.thread_time()
        while time.thread_time() - started < seconds:
            pass

    def spin_elsewhere(seconds):
        thread = threading.Thread(target=spin, args=(seconds,))
        thread.start()
        thread.join()

    def summary_of(work):
        with Profiler() as prof:
            dask.threaded.get({("s", 0): (work, 0.3)}, ("s", 0))
        return prof.recording.summary(verbose=True)

    def measure():
        elsewhere = summary_of(spin_elsewhere)
        milliseconds = re.search(r"^Other threads +(\d+) ms of CPU", elsewhere, re.MULTILINE)[1]
        assert float(milliseconds) == pytest.approx(300, abs=30)
        assert "Other threads" not in summary_of(spin)

    retried(measure)


def hostile_diagnostics():
    dsk = {}
    for name in HOSTILE:

        def work():
            return None

        work.__name__ = name
        for key in (name or "empty", (name, 1), name + "-1"):
            dsk[key] = (work,)
    return run(
        Profiler(),
        CacheProfiler(metric_name=HOSTILE[0]),
        ResourceProfiler(0.01),
        ProgressBar(label=HOSTILE[0], minimum=99),
        get=lambda *a: dask.local.get_sync(dsk, list(dsk)),
    )


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
        assert "<img src=x" not in markup
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


def test_computing_time_counts_overlap_once():
    rows = [("f", 0.0, 1.0, 1.0, "thread-0")]
    computations = [("c-1", 0.0, 4.0), ("c-2", 2.0, 3.0), ("c-3", 8.0, 9.0)]
    text = summary(recording_of(rows, computations))
    assert "5.00 s in 3 computations: 1 task on 1 worker, all done" in text.splitlines()
    assert "Overlapping  1 computation started before another stopped" in text.splitlines()


def test_a_big_profile_makes_a_small_page(tmp_path):
    count = 20_000
    rows = [(f"f{n % 5}", n * 1e-3, n * 1e-3 + 5e-4, 4e-4, f"thread-{n % 4}") for n in range(count)]
    sizes = []
    for given in ([], rows):
        recording, started = recording_of(given), time.process_time()
        visualize(recording, filename=tmp_path / "page.html", plots=["tasks"], show=False)
        assert time.process_time() - started < 10
        sizes.append((tmp_path / "page.html").stat().st_size)
    assert sizes[1] - sizes[0] < 50 * count


@pytest.mark.parametrize("rows", [0, 2])
def test_memory_that_is_not_known_leaves_an_axis_that_can_be_drawn(rows):
    columns = {"time": range(rows), **dict.fromkeys(("memory", "memory_children"), [np.nan] * rows)}
    memory = filled_table("resources", columns)
    plot = plot_process_memory(ProcessMemory(memory, None, np.nan), 0.0, 1.0, Options())
    assert 0 < plot.y_range.end < np.inf
