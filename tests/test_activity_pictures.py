"""The pictures of activities show what `activities` says, of whatever was recorded."""

import time

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
from dask_diag.analysis.activities import cells
from dask_diag.analysis.facts import Analysis
from dask_diag.model.codes import WORKER_ACTIVITIES, Activity
from dask_diag.views.plots.activities import numbers_of

from .javascript import needs_node, run_javascript
from .recordings import with_columns, with_tables
from .test_views import HOSTILE, hostile_diagnostics, recording_of, run

pytestmark = [pytest.mark.once, pytest.mark.leaves_files]

ROWS = [
    ("f", 1.0, 3.0, 1.5, "thread-0"),
    ("g", 2.0, 6.0, 1.0, "thread-1"),
    ("f", 4.0, 5.0, 1.0, "thread-0"),
    ("f", 5.0, 5.5, 0.1, "thread-0", "failed", "ValueError"),
]


def metered(rows=ROWS, given=()):
    """By hand; `given` is of (task, activity, unit, value, CPU seconds of it)."""
    names = ("task", "activity", "unit", "value", "cpu")
    columns = zip(*given, strict=True) if given else [()] * 5
    return with_tables(recording_of(rows), metrics=dict(zip(names, columns)))


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


@needs_node
@pytest.mark.parametrize("unit", ["seconds", "bytes", "dollars"])
def test_bars_are_worth_what_activities_says(unit):
    def values_of(by):
        rows = activities(SEVERAL, by=by, unit=unit).to_dicts()
        return {(r[by], r["activity"]): r["value"] for r in rows if r["value"] and r[by]}

    numbers = numbers_of(Analysis(SEVERAL))
    assert numbers.units == ["seconds", "bytes", "dollars"]
    pictures = laid_out(numbers, numbers.units.index(unit))
    for by in ("function", "worker"):
        assert drawn(pictures[f"by_{by}"]) == pytest.approx(values_of(by))
    of_all = {row["activity"]: row["value"] for row in activities(SEVERAL, unit=unit).to_dicts()}
    by_activity = {name: value for (_, name), value in drawn(pictures["by_activity"]).items()}
    assert by_activity == pytest.approx({name: value for name, value in of_all.items() if value})


def test_cells_divide_by_everything_at_once_and_add_up():
    rows = cells(SEVERAL).to_dicts()
    assert {row["unit"] for row in rows} == {"seconds", "bytes", "dollars"}
    in_seconds = [row["value"] for row in rows if row["unit"] == "seconds"]
    assert sum(in_seconds) == pytest.approx(activities(SEVERAL)["value"].sum())
    free = {row["activity"] for row in rows if row["function"] is None}
    # No cluster: nothing is moved between workers, or to their disks, and no event loop is kept.
    of_clusters = {Activity.TRANSFER, Activity.SPILL, Activity.EVENT_LOOP}
    assert free == set(WORKER_ACTIVITIES) - of_clusters
    (read,) = (r for r in rows if (r["function"], r["activity"]) == ("g", "read"))
    assert (read["worker"], read["value"]) == ("thread-1", 1e6)


@needs_node
def test_a_function_without_a_name_is_not_taken_for_free_workers():
    recording = recording_of([("", 0.0, 1.0, 0.25, "thread-0")])
    picture = laid_out(numbers_of(Analysis(recording)))["by_function"]
    assert drawn(picture) == {("", "thread-cpu"): 0.25, ("", "thread-noncpu"): 0.75}


@needs_node
def test_the_longest_come_first_and_pieces_follow_one_another():
    numbers = numbers_of(Analysis(SEVERAL))
    pictures = laid_out(numbers)
    rows, pieces = map(pictures["by_function"].get, ("rows", "pieces"))
    assert rows["name"] == rows["label"] == ["g", "f"]
    assert rows["total"] == pytest.approx([4.0, 3.5])
    assert rows["text"] == ["4.00 s", "3.50 s"]
    columns = ("left", "right", "activity_name", "text", "share", "y")
    of_f = [row[:-1] for row in zip(*map(pieces.get, columns), strict=True) if row[-1] == 1]
    assert [row[0] for row in of_f] == pytest.approx([0.0, *(row[1] for row in of_f[:-1])])
    assert [row[2] for row in of_f] == ["thread-cpu", "I/O", "thread-noncpu", "failed"]
    assert of_f[0][3:] == ("2.40 s", "69% of this bar, 32% of all")
    in_bytes = laid_out(numbers, numbers.units.index("bytes"))["by_function"]["rows"]
    assert list(zip(in_bytes["name"], in_bytes["text"])) == [("f", "3.00 MB"), ("g", "2.00 MB")]
    # CPU counts what was metered.
    shares = pictures["of_cpu"]["rows"]
    assert dict(zip(shares["name"], shares["share"])) == pytest.approx({"g": 0.25, "f": 2.6 / 3.5})
    assert shares["text"] == ["25% CPU", "74% CPU"]
    # Free workers are rows of their own and come last.
    rows = pictures["by_activity"]["rows"]
    assert rows["name"][-2:] == ["idle", "overhead"]
    assert rows["total"][:-2] == sorted(rows["total"][:-2], reverse=True)
    assert sum(rows["share_of_all"]) == pytest.approx(1.0)
    assert rows["text"][0] == "3.40 s, 17%"
    # A label may be named as an activity of theirs.
    idle = numbers_of(Analysis(metered(given=[(0, "idle", "seconds", 0.25, 0.0)]))).activities
    assert {("idle", True), ("idle", False)} <= set(idle)


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
@pytest.mark.parametrize("count", [200, 500])
def test_of_many_functions_30_bars_are_drawn_and_the_rest_is_one(count):
    name = "a-name-of-a-function-that-is-far-too-long-🎉-for-its-axis"
    rows = [(f"f{n:03d}", 0.0, 1.0 + n / 1000, 0.5, "thread-0") for n in range(count - 1)]
    numbers = numbers_of(Analysis(recording_of([*rows, (name, 0.0, 2.0, 0.5, "thread-0")])))
    # So many can be chosen.
    assert len(numbers.functions) == min(count, 300)
    drawn_rows = laid_out(numbers)["by_function"]["rows"]
    assert len(drawn_rows["y"]) == 30
    assert drawn_rows["name"][:2] == [name, f"f{count - 2:03d}"]
    # The name is short at the axis only.
    start, end = drawn_rows["label"][0].split("…")
    assert (len(start) + len(end), name.startswith(start), name.endswith(end)) == (33, True, True)
    assert drawn_rows["name"][-1] == f"({count - 29} more functions) not to scale"
    assert drawn_rows["right"][-1] == pytest.approx(drawn_rows["right"][0])
    assert sum(drawn_rows["total"]) == pytest.approx(2 + sum(stop for _, _, stop, *_ in rows))


@needs_node
def test_unused_workers_do_not_dwarf_the_others():
    recording = recording_of([("f", 0.0, 10.0, 9.0, "thread-0")])
    recording = with_columns(recording, "computations", workers=[50])
    rows = laid_out(numbers_of(Analysis(recording)))["by_worker"]["rows"]
    assert rows["name"] == ["thread-0", "unused workers not to scale"]
    assert rows["total"] == pytest.approx([10.0, 490.0])
    assert rows["right"] == pytest.approx([10.0, 10.0])


@needs_node
def test_nothing_recorded_makes_no_bars_nor_does_what_is_not_a_number():
    empty = numbers_of(Analysis(recording_of([], computations=())))
    assert empty.units == ["seconds"]
    odd = [(0, "x", "count", np.nan, np.nan), (0, "y", "count", np.inf, np.nan)]
    odd = numbers_of(Analysis(metered(given=odd)))
    assert odd.units == ["seconds", "count"]
    for picture in [*laid_out(empty).values(), laid_out(odd, 1)["by_function"]]:
        assert picture["rows"]["y"] == picture["pieces"]["y"] == []
    rows = [("f", 0.0, 1.0, np.nan, "thread-0")]
    unknown = numbers_of(Analysis(metered(rows, [(0, "read", "bytes", 1e6, np.nan)])))
    share = laid_out(unknown, 1)["of_cpu"]
    assert (share["rows"]["text"], share["pieces"]["y"]) == (["unknown"], [])
    panel = visualize(Profiler(), plots=["activities"], show=False, save=False)
    assert len(list(panel.select({"type": bm.Plot}))) == 4


def test_plots_are_chosen_by_name_and_what_is_returned_is_what_dask_returns(tmp_path):
    def panels_in(layout):
        return len(list(layout.select({"type": bm.CheckboxGroup})))

    diagnostics = run(Profiler(), ResourceProfiler(0.01), CacheProfiler())
    grid = visualize(diagnostics, filename=tmp_path / "page.html", show=False)
    assert (len(grid.children), panels_in(grid)) == (3, 0)
    assert '"CheckboxGroup"' in (tmp_path / "page.html").read_text()
    kwargs = {"show": False, "save": False}
    assert len(visualize(diagnostics, plots=["tasks", "cache"], **kwargs).children) == 2
    assert isinstance(visualize(diagnostics, plots="cache", **kwargs), bm.Plot)
    both = visualize(diagnostics, plots=["tasks", "activities"], **kwargs)
    assert (isinstance(both.children[0], bm.Plot), panels_in(both)) == (True, 1)
    alone = visualize(diagnostics[0], plots=["activities"], width=1200, height=99, **kwargs)
    assert panels_in(alone) == 1
    assert sum(figure.width for figure in alone.select({"type": bm.Plot})) == 2 * 1200


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
    for source in (hostile_metrics(), hostile_diagnostics()):
        visualize(source, filename=tmp_path / "page.html", show=False)
        page = (tmp_path / "page.html").read_text()
        assert "<script>window.pwned" not in page
        assert "<img src=x" not in page
        assert "x" * 1000 not in page


def hostile_metrics():
    def work(n):
        with context_meter.meter(HOSTILE[n]):
            context_meter.digest_metric(HOSTILE[n], 1.0, HOSTILE[n])

    with Profiler() as prof:
        dsk = {("w", n): (work, n) for n in range(len(HOSTILE))}
        dask.local.get_sync(dsk, list(dsk))
    return prof


def test_there_are_no_rows_of_tasks_in_the_page(tmp_path):
    path, sizes = tmp_path / "page.html", []
    for count in (100, 10_000):
        rows = [("f", n, n + 0.5, 0.4, f"thread-{n % 2}") for n in range(count)]
        visualize(recording_of(rows), plots=["activities"], filename=path, show=False)
        sizes.append(path.stat().st_size)
    assert abs(sizes[1] - sizes[0]) < 200
