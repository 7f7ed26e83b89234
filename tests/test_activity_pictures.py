"""The pictures of activities show what `activities` says, of whatever was recorded."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import bokeh.models as bm
import dask.local
import dask.threaded
import numpy as np
import pytest

from dask_diag import (
    CacheProfiler,
    DiagnosticError,
    Profiler,
    ResourceProfiler,
    activities,
    context_meter,
    visualize,
)
from dask_diag.analysis.activities import cells, execute_metrics
from dask_diag.analysis.facts import Analysis
from dask_diag.columns import Categorical
from dask_diag.model.codes import WORKER_ACTIVITIES, Activity
from dask_diag.views.assets import text_of
from dask_diag.views.colors import (
    _AFTER_METERED,
    _BEFORE_METERED,
    color_of,
    color_of_activity,
    stacking_order,
)
from dask_diag.views.plots.activities import numbers_of

from .javascript import needs_node, run_javascript
from .tables import filled_table
from .test_activities import recording_of as scheduled
from .test_flame import contrast
from .test_views import HOSTILE, hostile_diagnostics, recording_of, run

pytestmark = pytest.mark.once

ROWS = [
    ("f", 1.0, 3.0, 1.5, "thread-0"),
    ("g", 2.0, 6.0, 1.0, "thread-1"),
    ("f", 4.0, 5.0, 1.0, "thread-0"),
    ("f", 5.0, 5.5, 0.1, "thread-0", "failed", "ValueError"),
]


def metered(rows=ROWS, given=()):
    """By hand; `given` is of (task, activity, unit, value, CPU seconds of it)."""
    task, activity, unit, value, cpu = zip(*given, strict=True) if given else [()] * 5
    columns = {
        "task": np.array(task, int),
        "activity": Categorical.of(activity),
        "unit": Categorical.of(unit),
        "value": np.array(value, float),
        "cpu": np.array(cpu, float),
    }
    return replace(recording_of(rows), metrics=filled_table("metrics", columns))


SEVERAL = metered(
    given=[
        (0, "I/O", "seconds", 0.5, 0.1),
        (1, "I/O", "seconds", 2.0, 0.0),
        (0, "read", "bytes", 3e6, np.nan),
        (1, "read", "bytes", 1e6, np.nan),
        (1, "written", "bytes", 1e6, np.nan),
        (2, "paid", "dollars", 7.0, np.nan),
        (2, "refund", "dollars", -2.0, np.nan),
    ]
)


def laid_out(numbers, unit=0, chosen=None):
    """The pieces and rows of each picture, as the page lays them out."""
    if chosen is None:
        chosen = range(len(numbers.functions))
    given = [numbers.in_the_page(), list(chosen), unit]
    (pictures,) = run_javascript("plots/activities/bars.js", "lay_out", given)
    return pictures


def drawn(picture):
    """What the pieces of the bars are worth: (name of the bar, activity) to value."""
    pieces = picture["pieces"]
    keys = zip(pieces["name"], pieces["activity_name"], strict=True)
    return dict(zip(keys, pieces["value"], strict=True))


def values_of_activities(recording, by, unit):
    rows = activities(recording, by=by, unit=unit).to_dicts()
    return {(row[by], row["activity"]): row["value"] for row in rows if row["value"]}


@needs_node
@pytest.mark.parametrize("unit", ["seconds", "bytes", "dollars"])
def test_bars_are_worth_what_activities_says(unit):
    numbers = numbers_of(Analysis(SEVERAL))
    assert numbers.units == ["seconds", "bytes", "dollars"]
    pictures = laid_out(numbers, numbers.units.index(unit))
    of_functions = {
        key: value
        for key, value in values_of_activities(SEVERAL, "function", unit).items()
        if key[0]
    }
    assert drawn(pictures["by_function"]) == pytest.approx(of_functions)
    assert drawn(pictures["by_worker"]) == pytest.approx(
        values_of_activities(SEVERAL, "worker", unit)
    )
    of_all = {row["activity"]: row["value"] for row in activities(SEVERAL, unit=unit).to_dicts()}
    by_activity = {
        activity: value for (_, activity), value in drawn(pictures["by_activity"]).items()
    }
    assert by_activity == pytest.approx({name: value for name, value in of_all.items() if value})


def test_cells_divide_by_everything_at_once_and_add_up():
    rows = cells(SEVERAL).to_dicts()
    assert {row["unit"] for row in rows} == {"seconds", "bytes", "dollars"}
    in_seconds = [row["value"] for row in rows if row["unit"] == "seconds"]
    assert sum(in_seconds) == pytest.approx(activities(SEVERAL)["value"].sum())
    free = {row["activity"] for row in rows if row["function"] is None}
    # No cluster: nothing is moved between workers, or to their disks.
    assert free == set(WORKER_ACTIVITIES) - {Activity.TRANSFER, Activity.SPILL}
    (read,) = (r for r in rows if (r["function"], r["activity"]) == ("g", "read"))
    assert (read["worker"], read["value"]) == ("thread-1", 1e6)


def test_a_function_without_a_name_is_not_taken_for_free_workers():
    recording = recording_of([("", 0.0, 1.0, 0.25, "thread-0")])
    assert execute_metrics(recording) == {
        ("execute", "", "thread-cpu", "seconds"): 0.25,
        ("execute", "", "thread-noncpu", "seconds"): 0.75,
    }
    cells = numbers_of(Analysis(recording)).cells
    assert cells["value"][cells["function"] == 0].sum() == 1.0


@needs_node
def test_the_longest_come_first_and_pieces_follow_one_another():
    numbers = numbers_of(Analysis(SEVERAL))
    rows, pieces = map(laid_out(numbers)["by_function"].get, ("rows", "pieces"))
    assert rows["name"] == rows["label"] == ["g", "f"]
    assert rows["total"] == pytest.approx([4.0, 3.5])
    assert rows["text"] == ["4.00 s", "3.50 s"]
    of_f = [n for n, y in enumerate(pieces["y"]) if y == 1]
    left, right = ([pieces[side][n] for n in of_f] for side in ("left", "right"))
    assert left == pytest.approx([0.0, *right[:-1]])
    names = [pieces["activity_name"][n] for n in of_f]
    assert names == ["thread-cpu", "I/O", "thread-noncpu", "failed"]
    assert pieces["text"][of_f[0]] == "2.40 s"
    assert pieces["share"][of_f[0]] == "69% of this bar, 32% of all"
    in_bytes = laid_out(numbers, numbers.units.index("bytes"))["by_function"]
    assert in_bytes["rows"]["name"] == ["f", "g"]
    assert in_bytes["rows"]["text"] == ["3.00 MB", "2.00 MB"]


@needs_node
def test_only_functions_that_are_chosen_are_laid_out_and_free_workers_with_all_of_them():
    numbers = numbers_of(Analysis(SEVERAL))
    of_f = laid_out(numbers, chosen=[numbers.functions.index("f")])
    assert of_f["by_function"]["rows"]["name"] == of_f["of_cpu"]["rows"]["name"] == ["f"]
    assert of_f["by_worker"]["rows"]["name"] == ["thread-0"]
    expected = activities(SEVERAL, functions=["f"]).to_dicts()
    rows = of_f["by_activity"]["rows"]
    assert dict(zip(rows["name"], rows["total"], strict=True)) == pytest.approx(
        {row["activity"]: row["value"] for row in expected}
    )
    nothing = laid_out(numbers, chosen=[])
    assert all(picture["rows"]["y"] == [] for picture in nothing.values())


@needs_node
def test_free_workers_are_rows_of_their_own_and_come_last():
    rows = laid_out(numbers_of(Analysis(SEVERAL)))["by_activity"]["rows"]
    assert rows["name"][-2:] == ["idle (no task ran)", "overhead (no task ran)"]
    assert rows["total"][:-2] == sorted(rows["total"][:-2], reverse=True)
    assert sum(rows["share_of_all"]) == pytest.approx(1.0)
    assert rows["text"][0] == "3.40 s, 17%"


@needs_node
def test_the_share_of_cpu_counts_what_was_metered():
    picture = laid_out(numbers_of(Analysis(SEVERAL)))["of_cpu"]
    shares = dict(zip(picture["rows"]["name"], picture["rows"]["share"], strict=True))
    assert shares == pytest.approx({"g": 1.0 / 4.0, "f": 2.6 / 3.5})
    assert picture["rows"]["text"] == ["25% CPU", "74% CPU"]
    assert picture["pieces"]["text"][:2] == ["CPU: 1.00 s", "non-CPU: 3.00 s"]


@needs_node
def test_values_below_zero_are_stacked_to_the_left():
    numbers = numbers_of(Analysis(SEVERAL))
    picture = laid_out(numbers, numbers.units.index("dollars"))["by_function"]
    rows, pieces = picture["rows"], picture["pieces"]
    assert (pieces["left"], pieces["right"]) == ([0.0, -2.0], [7.0, 0.0])
    assert (rows["left"], rows["right"], rows["total"]) == ([-2.0], [7.0], [5.0])
    barely = laid_out(numbers_of(Analysis(recording_of([("f", 0.0, 1.0, 1.000003, "thread-0")]))))
    assert barely["by_function"]["rows"]["total"] == pytest.approx([1.0])
    assert barely["of_cpu"]["rows"]["share"] == [1.0]


@needs_node
def test_a_share_of_no_seconds_is_not_known():
    rows = [("f", 0.0, 1.0, np.nan, "thread-0")]
    recording = metered(rows, [(0, "read", "bytes", 1e6, np.nan)])
    picture = laid_out(numbers_of(Analysis(recording)), 1)["of_cpu"]
    assert picture["rows"]["text"] == ["unknown"]
    assert picture["pieces"]["y"] == []


@needs_node
def test_long_names_are_shortened_at_the_axis_only():
    name = "a-name-of-a-function-that-is-far-too-long-🎉-for-its-axis"
    rows = laid_out(numbers_of(Analysis(recording_of([(name, 0.0, 1.0, 0.5, "w")]))))[
        "by_function"
    ]["rows"]
    assert rows["name"] == [name]
    assert len(rows["label"][0]) == 34
    start, end = rows["label"][0].split("…")
    assert name.startswith(start)
    assert name.endswith(end)


@needs_node
def test_what_is_not_a_number_is_not_drawn():
    recording = metered(
        given=[(0, "x", "count", np.nan, np.nan), (0, "y", "count", np.inf, np.nan)]
    )
    assert numbers_of(Analysis(recording)).units == ["seconds", "count"]
    assert laid_out(numbers_of(Analysis(recording)), 1)["by_function"]["rows"]["y"] == []


@needs_node
def test_of_200_functions_30_bars_are_drawn_and_the_rest_is_one():
    rows = [(f"f{n:03d}", 0.0, 1.0 + n / 100, 0.5, "thread-0") for n in range(200)]
    drawn_rows = laid_out(numbers_of(Analysis(recording_of(rows))))["by_function"]["rows"]
    assert len(drawn_rows["y"]) == 30
    assert drawn_rows["name"][0] == "f199"
    assert drawn_rows["name"][-1] == "(171 more functions) not to scale"
    assert drawn_rows["right"][-1] == pytest.approx(drawn_rows["right"][0])
    assert drawn_rows["total"][-1] == pytest.approx(sum(1 + n / 100 for n in range(171)))


@needs_node
def test_functions_beyond_those_that_can_be_chosen_are_counted():
    rows = [(f"f{n:03d}", 0.0, 1.0 + n / 1000, 0.5, "thread-0") for n in range(500)]
    numbers = numbers_of(Analysis(recording_of(rows)))
    assert len(numbers.functions) == 300
    assert numbers.functions[-1] == "(201 more functions)"
    drawn_rows = laid_out(numbers)["by_function"]["rows"]
    assert drawn_rows["name"][-1] == "(471 more functions) not to scale"
    assert sum(drawn_rows["total"]) == pytest.approx(sum(1 + n / 1000 for n in range(500)))


@needs_node
def test_unused_workers_do_not_dwarf_the_others():
    recording = recording_of([("f", 0.0, 10.0, 9.0, "thread-0")])
    computations = {name: recording.computations[name] for name in recording.computations.columns}
    recording = replace(
        recording,
        computations=filled_table("computations", {**computations, "workers": np.array([50])}),
    )
    rows = laid_out(numbers_of(Analysis(recording)))["by_worker"]["rows"]
    assert rows["name"] == ["thread-0", "unused workers not to scale"]
    assert rows["total"] == pytest.approx([10.0, 490.0])
    assert rows["right"] == pytest.approx([10.0, 10.0])


@needs_node
def test_nothing_recorded_makes_no_bars():
    numbers = numbers_of(Analysis(recording_of([], computations=())))
    assert numbers.units == ["seconds"]
    for picture in laid_out(numbers).values():
        assert picture["rows"]["y"] == picture["pieces"]["y"] == []
    panel = visualize(Profiler(), plots=["activities"], show=False, save=False)
    assert len(list(panel.select({"type": bm.Plot}))) == 4


def test_colours_are_fixed_and_of_labels_follow_from_the_name():
    fixed = ["thread-cpu", "thread-noncpu", "serialize", "failed", "overhead", "other", "idle"]
    assert len({color_of_activity(name) for name in fixed}) == len(fixed)
    assert color_of_activity("I/O") == color_of("I/O")
    order = sorted(
        ["idle", "I/O", "overhead", "failed", "thread-cpu", "gil-wait"], key=stacking_order
    )
    assert order == ["thread-cpu", "I/O", "gil-wait", "failed", "overhead", "idle"]


def test_no_fixed_colour_is_lost_on_the_dark_background_of_a_page():
    dark = text_of("theme/theme.css").split("prefers-color-scheme: dark")[1]
    background = re.search(r"--background: (#\w+)", dark)[1]
    fixed = {**_BEFORE_METERED, **_AFTER_METERED}
    assert len(fixed) > 15
    assert {name: color for name, color in fixed.items() if contrast(color, background) < 3} == {}


def test_a_label_named_as_an_activity_of_free_workers_is_another_one():
    recording = metered(given=[(0, "idle", "seconds", 0.25, 0.0)])
    numbers = numbers_of(Analysis(recording))
    assert {("idle", True), ("idle", False)} <= set(numbers.activities)
    panel = visualize(recording, plots=["activities"], show=False, save=False)
    (legend,) = (d for d in panel.select({"type": bm.Div}) if "thread-cpu" in d.text)
    assert "idle (metered)" in legend.text


def panels_in(layout):
    return list(layout.select({"type": bm.CheckboxGroup}))


def test_what_is_returned_stays_what_dask_returns(tmp_path):
    diagnostics = run(Profiler(), ResourceProfiler(0.01), CacheProfiler())
    grid = visualize(diagnostics, filename=tmp_path / "page.html", show=False)
    assert len(grid.children) == 3
    assert not panels_in(grid)
    assert '"CheckboxGroup"' in (tmp_path / "page.html").read_text()
    visualize(diagnostics[1], filename=tmp_path / "page.html", show=False)
    assert '"name":"CheckboxGroup"' not in (tmp_path / "page.html").read_text()
    (tmp_path / "page.html").unlink()


def test_plots_are_chosen_by_name():
    diagnostics = run(Profiler(), ResourceProfiler(0.01), CacheProfiler())
    kwargs = {"show": False, "save": False}
    assert len(visualize(diagnostics, plots=["tasks", "cache"], **kwargs).children) == 2
    assert isinstance(visualize(diagnostics, plots="cache", **kwargs), bm.Plot)
    both = visualize(diagnostics, plots=["tasks", "activities"], **kwargs)
    assert isinstance(both.children[0], bm.Plot)
    assert len(panels_in(both)) == 1
    alone = visualize(diagnostics[0].recording, plots=["activities"], **kwargs)
    assert len(panels_in(alone)) == 1


@pytest.mark.parametrize(
    ("plots", "reported"),
    [
        (
            ["taks"],
            "plots: expected some of 'tasks', .*'memory', .*'activities', found 'taks'",
        ),
        ([], "plots: expected some of .* found none"),
        ([3], "found 3"),
        (["cache"], "plots: nothing was recorded for cache; choose among tasks, activities"),
    ],
)
def test_a_plot_that_there_is_not_is_reported(plots, reported):
    (prof,) = run(Profiler())
    with pytest.raises(DiagnosticError, match=reported):
        visualize(prof, plots=plots, show=False, save=False)


def test_keywords_are_those_of_the_plots_over_time():
    (prof,) = run(Profiler())
    panel = visualize(prof, plots=["activities"], width=1200, height=99, show=False, save=False)
    widths = [figure.width for figure in panel.select({"type": bm.Plot})]
    assert sum(widths) == 2 * 1200
    with pytest.raises(AttributeError, match="foo_bar"):
        visualize(prof, plots=["activities"], foo_bar=1, show=False, save=False)


def test_a_compute_that_another_diagnostic_heard_alone_is_not_idle():
    rprof, prof = ResourceProfiler(0.01), Profiler()
    with rprof:
        with prof:
            dask.threaded.get({"x": (time.sleep, 0.01)}, "x")
        dask.threaded.get({"y": (time.sleep, 0.3)}, "y", num_workers=2)
    panel = visualize([prof, rprof], plots=["activities"], show=False, save=False)
    (numbers,) = [
        script.args["numbers"]
        for script in panel.select({"type": bm.CustomJS})
        if "numbers" in script.args
    ]
    worker_time = numbers["cells"]["value"][numbers["cells"]["unit"] == 0].sum()
    assert worker_time == pytest.approx(activities(prof.recording)["value"].sum())


def test_hostile_text_is_text(tmp_path):
    def work(n):
        with context_meter.meter(HOSTILE[n]):
            context_meter.digest_metric(HOSTILE[n], 1.0, HOSTILE[n])

    with Profiler() as prof:
        dsk = {("w", n): (work, n) for n in range(len(HOSTILE))}
        dask.local.get_sync(dsk, list(dsk))
    for source in (prof, hostile_diagnostics()):
        visualize(source, filename=tmp_path / "page.html", show=False)
        page = (tmp_path / "page.html").read_text()
        assert "<script>window.pwned" not in page
        assert "<img src=x" not in page
        assert "x" * 1000 not in page
    (tmp_path / "page.html").unlink()


def test_there_are_no_rows_of_tasks_in_the_page(tmp_path):
    sizes = []
    for count in (100, 10_000):
        rows = [("f", n, n + 0.5, 0.4, f"thread-{n % 2}") for n in range(count)]
        visualize(
            recording_of(rows), plots=["activities"], filename=tmp_path / "page.html", show=False
        )
        sizes.append((tmp_path / "page.html").stat().st_size)
    assert abs(sizes[1] - sizes[0]) < 200
    (tmp_path / "page.html").unlink()


def test_two_hundred_thousand_tasks_are_added_up_in_a_moment():
    count = 200_000
    start = np.arange(count) * 1e-3
    rows = list(zip(start, start + 5e-4, start + 7e-4, ["ok"] * count, [()] * count))
    recording = scheduled(rows, 4, count * 1e-3 + 1)
    started = time.process_time()
    numbers = numbers_of(Analysis(recording))
    assert time.process_time() - started < 5
    assert numbers.cells["value"].sum() == pytest.approx(activities(recording)["value"].sum())
