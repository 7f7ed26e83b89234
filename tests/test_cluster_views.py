"""What pages show of clusters: lanes by host and worker, what was moved, and the table of workers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bokeh.models import GlyphRenderer, HoverTool

from dask_diag import report
from dask_diag.analysis.facts import Analysis
from dask_diag.model.codes import Activity
from dask_diag.views.colors import look_of
from dask_diag.views.plots.figures import Options
from dask_diag.views.plots.tasks import FULL, LANE, marks_in_lanes, plot_tasks
from dask_diag.views.report.sections import workers

from .recordings import columns_of, filled_table, with_columns
from .test_cluster_occupancy import EVENTS, MOVES, NAN, recording

pytestmark = pytest.mark.once


@pytest.fixture
def made():
    """Worker a of host two leaves at 6 s, b of host one joins at 1 s and has two threads."""
    transfers = columns_of(
        MOVES,
        (0, "transfer", "network", 1.0, 2.0, 3e6, "a", "b"),
        (0, "transfer", "network", 7.0, 7.5, 2e6, "a", "b"),
        (0, "serialize", "worker", 8.0, 9.0, 1e6, "", ""),
    )
    events = columns_of(
        EVENTS,
        ("s", "b", "disk-write", 2.0, 2.5, 4e6),
        ("s", "a", "disk-read", 1.0, 1.5, 4e6),
        ("s", "a", "paused", 2.0, 3.0, NAN),
    )
    made = recording(
        [("a/0", 0, 0, 5, 5), ("b/9", 1, 2, 4, 4), ("b/10", 1, 3, 4, 4)],
        [("a", 1, 0.0, 6.0), ("b", 2, 1.0, NAN), ("c", 1, 0.0, NAN)],
        transfers=transfers,
        worker_events=events,
    )
    facts = columns_of(
        "address host reason clock_offset clock_error version measured pid",
        ("tcp://two:1", "two", "handle-worker-cleanup", 12.5, 0.001, "1.0", 1, 11),
        ("tcp://one:1", "one", "", 0.0, 0.0, "1.0", 1, 12),
        ("tcp://one:2", "one", "", 0.0, 0.0, "", 0, 13),
    )
    return with_columns(made, "workers", **facts)


def drawn(recording):
    """The plot, its strips and its times of absence, as columns; None if it has none."""
    plot = plot_tasks(recording, 0.0, recording.stop, Options())
    sources = [glyph.data_source.data for glyph in plot.select(GlyphRenderer)]
    strips = [data for data in sources if "what" in data]
    absent = [data for data in sources if "bottom" in data and "what" not in data]
    assert max(len(strips), len(absent)) <= 1
    return plot, next(iter(strips), None), next(iter(absent), None)


def test_lanes_are_in_the_order_of_hosts_workers_and_threads(made):
    plot, _, absent = drawn(made)
    labels = plot.yaxis[0].major_label_overrides
    assert [labels[place] for place in sorted(labels)] == ["b/9", "b/10", "a/0"]
    # They are hatched while their worker was not there.
    rows = zip(absent["left"], absent["right"], absent["top"], strict=True)
    assert sorted(rows) == [(0.0, 1.0, 0), (0.0, 1.0, LANE), (6.0, 10.0, 2 * LANE)]
    tasks, strips = (tool for tool in plot.tools if isinstance(tool, HoverTool))
    assert [title for title, _ in strips.tooltips] == ["worker", "what", "from"]
    assert [title for title, _ in tasks.tooltips][:2] == ["key", "function"]
    assert not set(tasks.renderers) & set(strips.renderers)
    assert [look.name for look in marks_in_lanes(made)] == [
        "tasks off the CPU",
        "results in flight",
        "spilling",
        "worker paused",
        "worker not there",
    ]
    # A long name does not move the plot.
    long = with_columns(made, "tasks", worker=["tcp://198.51.100.1:40001/0", "b/0", "b/1"])
    labels = list(drawn(long)[0].yaxis[0].major_label_overrides.values())
    assert "…0.1:40001/0" in labels
    assert max(map(len, labels)) <= 12


def test_transfers_and_spills_are_under_the_first_lane_of_their_worker(made):
    _, strips, _ = drawn(made)
    rows = [dict(zip(strips, values, strict=True)) for values in zip(*strips.values(), strict=True)]
    assert [(row["worker"], row["left"], row["right"], row["what"]) for row in rows] == [
        ("b", 1.0, 2.0, "results in flight, 3.00 MB"),
        ("b", 7.0, 7.5, "results in flight, 2.00 MB"),
        ("b", 2.0, 2.5, "spilling, 4.00 MB"),
        ("a", 1.0, 1.5, "spilling, 4.00 MB"),
        ("a", 2.0, 3.0, "worker paused"),
    ]
    first_lane = {"b": 0, "a": 2}
    for row in rows:
        top = LANE * first_lane[row["worker"]]
        assert top + FULL < row["top"] < row["bottom"] < top + LANE
    transfer, spill = (look_of(name).color for name in (Activity.TRANSFER, Activity.SPILL))
    assert [row["color"] for row in rows[:4]] == [transfer, transfer, spill, spill]


def test_what_would_touch_is_one_rectangle_with_the_sum(made):
    starts = np.arange(1.0, 1.5, 0.001)
    rows = ((0, "transfer", "network", start, start + 0.0005, 1e6, "a", "b") for start in starts)
    many = filled_table("transfers", columns_of(MOVES, *rows))
    _, strips, _ = drawn(replace(made, transfers=many))
    assert strips["what"][0] == "results in flight (500 times), 500 MB"
    assert strips["right"][0] == pytest.approx(1.4995)


def test_local_recordings_have_no_marks(made):
    names = "workers", "transfers", "worker_events"
    local = replace(made, **{name: getattr(made, name).filter(slice(0)) for name in names})
    assert drawn(local)[1:] == (None, None)
    assert [look.name for look in marks_in_lanes(local)] == ["tasks off the CPU"]
    assert list(workers(Analysis(local), None)) == []


def test_the_table_of_workers(made):
    (grid,) = workers(Analysis(made), None)
    first, second, third = (dict(zip(grid.columns, row, strict=True)) for row in grid.rows)
    assert third == {
        "worker": "a",
        "host": "two",
        "address": "tcp://two:1",
        "version": "1.0",
        "left because of": "handle-worker-cleanup",
        "joined": "before",
        "left": "6.00 s",
        "pid": "11",
        "threads": "1",
        "clock offset": "12.5 s ± 1.00 ms",
        "tasks": "1",
        "CPU": "0 s",
        "busy": "83%",
    }
    # Of 18 thread-seconds from when it joined.
    expected = {"worker": "b", "joined": "1.00 s", "clock offset": "same clock"}
    assert first == {**first, **expected, "tasks": "2", "busy": "17%"}
    assert second == {**second, "worker": "c", "tasks": "0", "version": "(did not measure)"}


def test_hostile_names_are_escaped_in_the_page(made, tmp_path):
    hostile = with_columns(made, "workers", host=["<script>alert(1)</script>", "one", "one"])
    page = report(hostile, path=tmp_path / "page.html").read_text()
    (tmp_path / "page.html").unlink()
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "handle-worker-cleanup" in page
