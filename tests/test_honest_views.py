"""What a reader must know before the numbers, and numbers that would mislead."""

import re
from dataclasses import replace
from types import SimpleNamespace

import bokeh.models as bm
import dask.threaded
import numpy as np
import pytest

from dask_diag import (
    CacheProfiler,
    MemorySampler,
    Profiler,
    Recording,
    compare,
    load,
    report,
    summary,
    visualize,
)
from dask_diag.analysis.facts import Analysis
from dask_diag.model.codes import STATES
from dask_diag.storage.write import save
from dask_diag.views.compare import comparison_summary
from dask_diag.views.findings import no_findings
from dask_diag.views.lines import bounded, memory_growth
from dask_diag.views.summary import outcome

from .recordings import (
    MAIN,
    NOTHING,
    filled_table,
    recording_of_stacks,
    with_columns,
    with_tables,
)
from .test_report import page_of
from .test_views import recording_of

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]
TASKS = [("f", 0.0, 4.0, 3.9, "thread-0"), ("g", 0.0, 4.0, 3.9, "thread-1")]


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize("state", STATES)
def test_a_recording_that_lost_a_part_says_so_before_any_number(state, tmp_path):
    is_complete = state == next(iter(STATES))
    recording = replace(recording_of(TASKS), state=state)
    sentence = f"This recording is {state}: "
    second = str(summary(recording)).split("\n\n")[1]
    assert second.startswith(f"! {sentence}") != is_complete
    assert (sentence in summary(recording)._repr_html_()) != is_complete
    for write in (report, lambda *args: visualize(*args, show=False)):
        write(recording, tmp_path / "page.html")
        text = (tmp_path / "page.html").read_text()
        if is_complete:
            assert "This recording is" not in text
        else:
            assert '<p class="notice" role="note">' + sentence in text
            assert text.index(sentence) < text.index("<main")


@pytest.mark.usefixtures("without_plots")
def test_nothing_stood_out_only_where_everything_was_examined(tmp_path):
    complete = recording_of(TASKS)
    truncated = replace(complete, state="truncated")
    empty = Recording(start=0.0, stop=1.0, epoch=0.0)
    assert no_findings(Analysis(complete)) == "Nothing stood out."
    assert no_findings(Analysis(truncated)).startswith("No findings in what could be loaded; ")
    assert no_findings(Analysis(empty)) == "No findings: no computations were recorded."
    for recording, expected in ((truncated, "No findings in what"), (empty, "No findings: no")):
        section = page_of(recording, tmp_path).sections["findings"]
        assert expected in section
        assert "Nothing stood out" not in section


def test_where_tasks_were_off_the_cpu_a_reader_learns_how_to_see_why():
    sleeping = replace(recording_of([("nap", 0.0, 1.0, 0.3, "a")]), start=0.0, stop=1.2)
    said = "Nothing stood out. Tasks were off the CPU for 70% of their time: record what tasks wait"
    on_cluster = {"scheduler": ["distributed"], "workers": [1]}
    for asleep in (sleeping, with_tables(sleeping, computations=on_cluster)):
        assert no_findings(Analysis(asleep)).startswith(said)
    waits = {"task": [0], "activity": ["sleep"], "seconds": [0.7]}
    working = recording_of([("work", 0.0, 1.0, 0.6, "a")])
    # What is a moment of all the time is not asked about.
    for other in (with_tables(sleeping, waits=waits), working, replace(sleeping, stop=10.0)):
        assert no_findings(Analysis(other)) == "Nothing stood out."


def test_a_file_that_is_cut_anywhere_has_a_summary_and_a_report(tmp_path):
    with Profiler() as profiler:
        import dask

        dask.delayed(sum)([1, 2]).compute(scheduler="sync")
    save(profiler.recording, tmp_path / "run.diag")
    complete = (tmp_path / "run.diag").read_bytes()
    for share in (0.6, 0.8, 0.9, 0.99):
        (tmp_path / "cut.diag").write_bytes(complete[: int(share * len(complete))])
        try:
            recording = load(tmp_path / "cut.diag")
        except Exception:
            continue
        assert "truncated" in summary(recording)
        assert page_of(recording, tmp_path).failed == []


def test_a_computation_that_had_not_ended_is_said():
    # As where the last chunk is lost: the row of a computation is written when it has ended.
    complete = recording_of(TASKS)
    cut = replace(complete, state="truncated", computations=NOTHING.computations)
    first, second = summary(cut).splitlines()[:2]
    assert first == "10.0 s; 1 computation had not ended, and its time is not known"
    assert second == (
        "1 computation, which had not ended: 2 tasks on 2 workers, 2 known to be done"
    )
    # Of computations that ended and one that had not all are counted.
    name = complete.computations.computation.tolist()[0]
    lost = {"computation": [name, "lost"], "outcome": ["ok", "unfinished"]}
    assert outcome(Analysis(with_columns(complete, "tasks", **lost))) == (
        "10.0 s in 2 computations, of which 1 had not ended: 2 tasks on 2 workers, "
        "1 known to be done, 1 unfinished"
    )
    # What one that goes on has done is what is known.
    goes_on = with_tables(complete, progress={"computation": [name], "total": [9]})
    assert outcome(Analysis(goes_on)) == (
        "10.0 s in 1 computation, which had not ended: 2 tasks on 2 workers, 2 known to be done"
    )


# Recordings without tasks: why there are none.
ENVIRONMENT = filled_table(
    "environment", {"section": ["machine"], "name": ["CPUs"], "value": ["2"]}
)
NO_TASKS = filled_table(
    "computations",
    {"computation": ["c"], "start": [0.5], "stop": [1.0], "workers": [2], "graph_bytes": [0.0]},
)
MEMORY = filled_table("memory", {"label": ["load"], "time": [1.0], "rss": [1e6]})
WITHOUT_DASK = "the program computed nothing on dask's local schedulers"


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize(
    "measured, first, second, timeline",
    [
        (
            {"computations": NO_TASKS},
            "1.00 s; the computation had no tasks",
            "500 ms in 1 computation",
            "No tasks: the computation had no tasks.",
        ),
        (
            {},
            "1.00 s without a computation",
            "No computations were recorded",
            "No tasks; record with Profiler.",
        ),
        (
            {"environment": ENVIRONMENT},
            "1.00 s without a computation",
            f"T{WITHOUT_DASK[1:]}",
            f"No tasks: {WITHOUT_DASK}.",
        ),
        (
            {"environment": ENVIRONMENT, "state": "truncated"},
            "1.00 s; the part that could be loaded has no computations",
            "The part that could be loaded has no computations",
            "No tasks; record with Profiler.",
        ),
        (
            {"memory": MEMORY},
            "1.00 s; only memory was sampled",
            "A MemorySampler records memory, and no computations",
            "No tasks; record with Profiler.",
        ),
    ],
    ids=["no tasks", "nothing", "no dask", "cut", "memory"],
)
def test_why_there_are_no_tasks(measured, first, second, timeline, tmp_path):
    recording = replace(NOTHING, **measured)
    assert summary(recording).splitlines()[:2] == [first, second]
    page = page_of(recording, tmp_path)
    assert timeline in page.sections["timeline"]
    assert page.failed == []


def test_a_graph_of_data_alone_is_a_computation_without_tasks():
    with Profiler() as profiler:
        dask.threaded.get({"a": 1}, "a")
    assert summary(profiler).splitlines()[0].endswith("; the computation had no tasks")


def test_memory_that_is_sampled_beside_a_profiler_is_not_all_that_was():
    with Profiler() as profiler:
        dask.threaded.get({"a": (sum, [1, 2])}, "a")
    sampler = MemorySampler()
    with sampler.sample("one"):
        pass
    assert "1 task" in summary([profiler, sampler])


def test_tasks_of_unknown_workers_are_no_worker():
    rows = [*TASKS, ("h", 0.0, 4.0, 3.9, "unknown")]
    assert "3 tasks on 2 workers" in summary(recording_of(rows))


@pytest.mark.parametrize("rows, expected", [(9, "Only 90 samples: "), (10, None)])
def test_a_flame_graph_of_few_samples_has_a_warning(rows, expected):
    # The recordings of `recording_of_stacks` have ten samples a row.
    recording = recording_of_stacks([((0.0, 1.0), "f", [MAIN], 1.0, 1.0)] * rows)
    panel = visualize(recording, plots=["flame"], show=False, save=False)
    texts = [div.text for div in panel.select({"type": bm.Div}) if div.text]
    assert texts == ([f"{expected}shares are uncertain by up to ±5%."] if expected else [])


def test_the_legend_of_the_timeline_names_what_is_drawn():
    def names(*times):
        recording = recording_of_stacks([((0.0, 1.0), "f", path, 1.0, cpu) for path, cpu in times])
        panel = visualize(recording, plots=["flame"], show=False, save=False)
        return {item.label.value for item in panel.select({"type": bm.LegendItem})}

    assert names(([MAIN], 1.0)) == {"computing (CPU)"}
    assert names(([MAIN], 0.25)) == {"computing (CPU)", "off the CPU"}
    assert "not known" in names(([MAIN], 0.5), ([MAIN], float("nan")))


def growth(name, sampled, peak, bound="upper"):
    return {"function": name, "sampled": sampled, "bound": bound, "peak_growth": peak}


FEW, LARGER = growth("e", 2, 90e6), growth("y", 9, 200e6)
ALIKE = [growth("f", 9, 59.4e6), growth("g", 9, 59.2e6), growth("h", 9, 54e6)]
EXACT = growth("x", 1, 58e6, "exact")


@pytest.mark.parametrize(
    "rows, shown",
    [
        # It is shown if it can tell functions apart: one of few samples proves nothing.
        ([growth("f", 4, 2e6)], []),
        ([growth("f", 5, 2e6)], [growth("f", 5, 2e6)]),
        ([growth("f", 1, 2e6, "exact")], [growth("f", 1, 2e6, "exact")]),
        ([growth("f", 0, 2e6, "")], []),
        # Bounds of 54 to 59 MB of each function are the process.
        ([FEW, *ALIKE], []),
        ([FEW, EXACT, *ALIKE], [EXACT]),
        ([LARGER, FEW, *ALIKE], [LARGER, *ALIKE]),
    ],
)
def test_growth_is_shown_if_it_can_tell_functions_apart(rows, shown):
    usage = SimpleNamespace(task_memory=SimpleNamespace(to_dicts=lambda: rows))
    assert memory_growth(usage) == shown


def test_cached_results_have_one_name_wherever_they_are_shown(tmp_path):
    graph = {("a", 0): (range, 5), ("b", 0): (len, ("a", 0)), ("c", 0): (abs, ("b", 0))}
    with CacheProfiler() as cache:
        dask.threaded.get(graph, ("c", 0))
    report(cache, tmp_path / "page.html", mode="cdn")
    compared = comparison_summary(compare(cache.recording, cache.recording), "a", "b")
    for text in (str(summary(cache)), (tmp_path / "page.html").read_text(), compared):
        assert re.search("cached results", text, re.IGNORECASE)
        assert not re.search("cache size|results held|held results|held by", text, re.IGNORECASE)


def test_a_bound_of_nothing_known_is_unknown():
    assert bounded("upper", 2e6) == "≤ 2.00 MB"
    assert bounded("exact", 2e6) == "2.00 MB"
    assert bounded("upper", float("nan")) == "unknown"


def test_the_peak_of_cpu_is_never_below_the_average():
    # One sample long enough to be a peak, and many short ones above it.
    time = np.array([0.1, *(0.1 + 0.01 * np.arange(1, 11))])
    cpu = np.array([50.0, *[150.0] * 10])
    resources = {"time": time, "cpu": cpu}
    line = summary(with_tables(recording_of(TASKS), resources=resources))
    average, peak = re.search(r"CPU +(\d+)% on average(?:, peak (\d+)%)?", line).groups()
    assert peak is None or int(peak) >= int(average)


@pytest.mark.parametrize(
    "times, unknown",
    [
        ([0.02, 0.5, 1.0, 1.02, 1.5], [0, 3]),
        ([0.01, 0.02, 0.03], []),
        ([0.02], []),
        ([0.3, 1.0, 2.0], []),
    ],
)
def test_cpu_of_an_interval_too_short_to_measure_is_not_drawn(times, unknown):
    cpu = np.where(np.isin(np.arange(len(times)), unknown), 214.0, 90.0)
    recording = with_tables(recording_of(TASKS), resources={"time": times, "cpu": cpu})
    figure = visualize(recording, plots=["resources"], show=False, save=False)
    (source,) = {r.data_source for r in figure.renderers}
    assert np.flatnonzero(np.isnan(source.data["cpu"])).tolist() == unknown
    assert figure.y_range.end == 100


@pytest.mark.usefixtures("without_plots")
def test_the_key_of_functions_names_what_can_be_seen(tmp_path):
    # Of 20 s of two workers 10 s are idle, and 1 ms of a task of 10 s is not CPU.
    rows = [("f", 0.0, 10.0, 9.999, "thread-0")]
    functions = page_of(recording_of(rows), tmp_path).sections["functions"]
    assert "tasks computing (CPU) 10.0 s, 50%" in functions
    assert "tasks off the CPU" not in functions
    assert "and 1 more" in functions
    # The same 1 ms is most of what tasks did here, so it is seen in the bars of functions.
    rows = [("f", 0.0, 0.0011, 0.0001, "thread-0")]
    functions = page_of(recording_of(rows), tmp_path).sections["functions"]
    assert "tasks off the CPU 1.00 ms, <0.1%" in functions


def test_the_plot_of_a_memory_sampler_has_its_peak_and_fits_the_window():
    sampler = MemorySampler()
    with sampler.sample("block", interval=0.01):
        sum(range(10_000))
    figure = sampler.plot()
    assert re.fullmatch(r"Memory, peak \d+(\.\d+)? MB", figure.title.text)
    assert (figure.sizing_mode, figure.max_width) == ("stretch_width", 1000)
    assert (sampler.plot(width=300).sizing_mode, sampler.plot(width=300).width) == (None, 300)
