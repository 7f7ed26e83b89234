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
from dask_diag.columns import Categorical
from dask_diag.views.assets import text_of
from dask_diag.views.plots.activities.bars import bars_by, bars_of_cpu, numbers_of
from dask_diag.views.theme.colors import (
    _AFTER_METERED,
    _BEFORE_METERED,
    color_of,
    color_of_activity,
    stacking_order,
)

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


def drawn(numbers, by, unit=0):
    """What the pieces of the bars are worth: (name of the bar, activity) to value."""
    pieces = bars_by(numbers, by, unit).pieces
    names = [numbers.activities[place][0] for place in pieces["activity"]]
    return dict(zip(zip(pieces["name"], names, strict=True), pieces["value"], strict=True))


def told(recording, by, unit):
    rows = activities(recording, by=by, unit=unit).to_dicts()
    return {(row[by], row["activity"]): row["value"] for row in rows if row["value"]}


@pytest.mark.parametrize("unit", ["seconds", "bytes", "dollars"])
def test_bars_are_worth_what_activities_says(unit):
    numbers = numbers_of(SEVERAL)
    assert numbers.units == ["seconds", "bytes", "dollars"]
    place = numbers.units.index(unit)
    of_functions = {key: value for key, value in told(SEVERAL, "function", unit).items() if key[0]}
    assert drawn(numbers, "function", place) == pytest.approx(of_functions)
    assert drawn(numbers, "worker", place) == pytest.approx(told(SEVERAL, "worker", unit))
    of_all = {row["activity"]: row["value"] for row in activities(SEVERAL, unit=unit).to_dicts()}
    by_activity = {
        activity: value for (_, activity), value in drawn(numbers, "activity", place).items()
    }
    assert by_activity == pytest.approx({name: value for name, value in of_all.items() if value})


def test_cells_divide_by_everything_at_once_and_add_up():
    rows = cells(SEVERAL).to_dicts()
    assert {row["unit"] for row in rows} == {"seconds", "bytes", "dollars"}
    in_seconds = [row["value"] for row in rows if row["unit"] == "seconds"]
    assert sum(in_seconds) == pytest.approx(activities(SEVERAL)["value"].sum())
    free = {row["activity"] for row in rows if row["function"] is None}
    assert free == {"overhead", "idle", "other"}
    (read,) = (r for r in rows if (r["function"], r["activity"]) == ("g", "read"))
    assert (read["worker"], read["value"]) == ("thread-1", 1e6)


def test_a_function_without_a_name_is_not_taken_for_free_workers():
    recording = recording_of([("", 0.0, 1.0, 0.25, "thread-0")])
    assert execute_metrics(recording) == {
        ("execute", "", "thread-cpu", "seconds"): 0.25,
        ("execute", "", "thread-noncpu", "seconds"): 0.75,
    }
    assert bars_by(numbers_of(recording), "function").rows["total"] == [1.0]


def test_the_longest_come_first_and_pieces_follow_one_another():
    numbers = numbers_of(SEVERAL)
    bars = bars_by(numbers, "function")
    assert bars.rows["name"] == ["g", "f"]
    assert bars.rows["total"] == pytest.approx([4.0, 3.5])
    of_f = [n for n, y in enumerate(bars.pieces["y"]) if y == 1]
    left, right = ([bars.pieces[side][n] for n in of_f] for side in ("left", "right"))
    assert left == pytest.approx([0.0, *right[:-1]])
    order = [numbers.activities[bars.pieces["activity"][n]][0] for n in of_f]
    assert order == ["thread-cpu", "I/O", "thread-noncpu", "failed"]
    in_bytes = bars_by(numbers, "function", numbers.units.index("bytes"))
    assert in_bytes.rows["name"] == ["f", "g"]


def test_free_workers_are_told_apart_and_come_last():
    rows = bars_by(numbers_of(SEVERAL), "activity").rows
    assert rows["name"][-2:] == ["idle (no task ran)", "overhead (no task ran)"]
    assert rows["total"][:-2] == sorted(rows["total"][:-2], reverse=True)
    assert sum(rows["of_all"]) == pytest.approx(1.0)


def test_the_share_of_cpu_counts_what_was_metered():
    numbers = numbers_of(SEVERAL)
    bars = bars_of_cpu(numbers, bars_by(numbers, "function").rows)
    shares = dict(zip(bars.rows["name"], bars.rows["share"], strict=True))
    assert shares == pytest.approx({"g": 1.0 / 4.0, "f": 2.6 / 3.5})


def test_values_below_zero_are_stacked_to_the_left():
    numbers = numbers_of(SEVERAL)
    bars = bars_by(numbers, "function", numbers.units.index("dollars"))
    assert (bars.pieces["left"], bars.pieces["right"]) == ([0.0, -2.0], [7.0, 0.0])
    assert (bars.rows["left"], bars.rows["right"], bars.rows["total"]) == ([-2.0], [7.0], [5.0])
    barely = numbers_of(recording_of([("f", 0.0, 1.0, 1.000003, "thread-0")]))
    bars = bars_by(barely, "function")
    assert bars.rows["total"] == pytest.approx([1.0])
    assert bars_of_cpu(barely, bars.rows).rows["share"] == [1.0]


def test_what_is_not_a_number_is_not_drawn():
    recording = metered(
        given=[(0, "x", "count", np.nan, np.nan), (0, "y", "count", np.inf, np.nan)]
    )
    assert bars_by(numbers_of(recording), "function", 1).rows["y"] == []


def test_of_200_functions_30_bars_are_drawn_and_the_rest_is_one():
    rows = [(f"f{n:03d}", 0.0, 1.0 + n / 100, 0.5, "thread-0") for n in range(200)]
    bars = bars_by(numbers_of(recording_of(rows)), "function")
    assert len(bars.rows["y"]) == 30
    assert bars.rows["name"][0] == "f199"
    assert bars.rows["name"][-1] == "(171 more functions) not to scale"
    assert bars.rows["right"][-1] == pytest.approx(bars.rows["right"][0])
    assert bars.rows["total"][-1] == pytest.approx(sum(1 + n / 100 for n in range(171)))


def test_functions_beyond_those_that_can_be_chosen_are_counted():
    rows = [(f"f{n:03d}", 0.0, 1.0 + n / 1000, 0.5, "thread-0") for n in range(500)]
    numbers = numbers_of(recording_of(rows))
    assert len(numbers.functions) == 300
    assert numbers.functions[-1] == "(201 more functions)"
    bars = bars_by(numbers, "function")
    assert bars.rows["name"][-1] == "(471 more functions) not to scale"
    assert sum(bars.rows["total"]) == pytest.approx(sum(1 + n / 1000 for n in range(500)))


def test_unused_workers_do_not_dwarf_the_others():
    recording = recording_of([("f", 0.0, 10.0, 9.0, "thread-0")])
    computations = {name: recording.computations[name] for name in recording.computations.columns}
    recording = replace(
        recording,
        computations=filled_table("computations", {**computations, "workers": np.array([50])}),
    )
    rows = bars_by(numbers_of(recording), "worker").rows
    assert rows["name"] == ["thread-0", "unused workers not to scale"]
    assert rows["total"] == pytest.approx([10.0, 490.0])
    assert rows["right"] == pytest.approx([10.0, 10.0])


def test_nothing_recorded_makes_no_bars():
    numbers = numbers_of(recording_of([], computations=()))
    assert numbers.units == ["seconds"]
    for by in ("function", "worker", "activity"):
        bars = bars_by(numbers, by)
        assert bars.rows["y"] == bars.pieces["y"] == []
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


def test_no_fixed_colour_is_lost_on_the_dark_paper_of_a_page():
    dark = text_of("theme/theme.css").split("prefers-color-scheme: dark")[1]
    paper = re.search(r"--paper: (#\w+)", dark)[1]
    fixed = {**_BEFORE_METERED, **_AFTER_METERED}
    assert len(fixed) > 15
    assert {name: color for name, color in fixed.items() if contrast(color, paper) < 3} == {}


def test_a_label_named_as_an_activity_of_free_workers_is_another_one():
    recording = metered(given=[(0, "idle", "seconds", 0.25, 0.0)])
    numbers = numbers_of(recording)
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
    ("plots", "told"),
    [
        (
            ["taks"],
            "plots: expected some of 'tasks', .*'memory', .*'activities', found 'taks'",
        ),
        ([], "plots: expected some of .* found none"),
        ([3], "found 3"),
        (["cache"], "plots: there is nothing to draw of cache; there is of tasks, activities"),
    ],
)
def test_a_plot_that_there_is_not_is_told(plots, told):
    (prof,) = run(Profiler())
    with pytest.raises(DiagnosticError, match=told):
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
    worker_time = [
        sum(source.data["total"])
        for source in panel.select({"type": bm.ColumnDataSource})
        if "total" in source.data
    ]
    assert max(worker_time) == pytest.approx(activities(prof.recording)["value"].sum())


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
    begun = time.perf_counter()
    numbers = numbers_of(recording)
    assert time.perf_counter() - begun < 5
    assert numbers.cells["value"].sum() == pytest.approx(activities(recording)["value"].sum())
