"""What pages show of clusters: lanes by host and worker, what was moved, and the table of workers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bokeh.models import GlyphRenderer, HoverTool

from dask_diag import report
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.groups import worker_order
from dask_diag.model.codes import Activity
from dask_diag.views.colors import color_of_activity
from dask_diag.views.plots.figures import Options
from dask_diag.views.plots.tasks import FULL, LANE, marks_in_lanes, plot_tasks, tasks_in_lanes
from dask_diag.views.report.sections import workers

from .tables import filled_table
from .test_cluster_findings import with_columns
from .test_cluster_occupancy import recording

pytestmark = pytest.mark.once

NAN = float("nan")


@pytest.fixture
def made():
    """Worker a of host two leaves at 6 s, b of host one joins at 1 s and has two threads."""
    tasks = [
        ("a/0", 0.0, 0.0, 5.0, 5.0),
        ("b/0", 1.0, 2.0, 4.0, 4.0),
        ("b/1", 1.0, 3.0, 4.0, 4.0),
    ]
    transfers = {
        "task": [0, 0, 0],
        "activity": ["transfer", "transfer", "serialize"],
        "side": ["network", "network", "worker"],
        "start": [1.0, 7.0, 8.0],
        "stop": [2.0, 7.5, 9.0],
        "bytes": [3e6, 2e6, 1e6],
        "source": ["a", "a", ""],
        "destination": ["b", "b", ""],
    }
    events = {
        "computation": ["s"] * 3,
        "worker": ["b", "a", "a"],
        "event": ["disk-write", "disk-read", "paused"],
        "start": [2.0, 1.0, 2.0],
        "stop": [2.5, 1.5, 3.0],
        "bytes": [4e6, 4e6, NAN],
    }
    made = recording(
        tasks,
        [("a", 1, 0.0, 6.0), ("b", 2, 1.0, NAN), ("c", 1, 0.0, NAN)],
        transfers=transfers,
        worker_events=events,
    )
    return with_columns(
        made,
        "workers",
        address=["tcp://two:1", "tcp://one:1", "tcp://one:2"],
        host=["two", "one", "one"],
        reason=["handle-worker-cleanup", "", ""],
        clock_offset=[12.5, 0.0, 0.0],
        clock_error=[0.001, 0.0, 0.0],
        version=["1.0", "1.0", ""],
        measured=np.array([1, 1, 0]),
        pid=[11, 12, 13],
    )


def test_threads_of_a_worker_are_next_to_each_other():
    names = ["worker-10/2", "worker-2/10", "worker-2/9", "worker-1/0", "thread-10", "thread-9"]
    assert sorted(names, key=worker_order) == [
        *("thread-9", "thread-10"),
        *("worker-1/0", "worker-2/9", "worker-2/10", "worker-10/2"),
    ]


def test_lanes_are_in_the_order_of_hosts_workers_and_threads(made):
    assert tasks_in_lanes(made, 0.0).workers == ["b/0", "b/1", "a/0"]


def drawn(recording, **options):
    """The plot, its strips and its times of absence, as columns; None if it has none."""
    plot = plot_tasks(recording, 0.0, recording.stop, Options(**options))
    sources = [glyph.data_source.data for glyph in plot.select(GlyphRenderer)]
    strips = [data for data in sources if "what" in data]
    absent = [data for data in sources if "bottom" in data and "what" not in data]
    assert max(len(strips), len(absent)) <= 1
    return plot, next(iter(strips), None), next(iter(absent), None)


def test_transfers_and_spills_are_under_the_first_lane_of_their_worker(made):
    _, strips, _ = drawn(made)
    rows = [dict(zip(strips, values, strict=True)) for values in zip(*strips.values(), strict=True)]
    assert [(row["worker"], row["left"], row["right"], row["what"]) for row in rows] == [
        ("b", 1.0, 2.0, "results arrive from other workers, 3.00 MB"),
        ("b", 7.0, 7.5, "results arrive from other workers, 2.00 MB"),
        ("b", 2.0, 2.5, "results go to disk, 4.00 MB"),
        ("a", 1.0, 1.5, "results come back from disk, 4.00 MB"),
        ("a", 2.0, 3.0, "paused"),
    ]
    first_lane = {"b": 0, "a": 2}
    for row in rows:
        top = LANE * first_lane[row["worker"]]
        assert top + FULL < row["top"] < row["bottom"] < top + LANE
    assert [row["color"] for row in rows[:4]] == [
        *2 * [color_of_activity(Activity.TRANSFER)],
        *2 * [color_of_activity(Activity.SPILL)],
    ]


def test_tasks_and_strips_have_a_tooltip_each(made):
    plot, *_ = drawn(made)
    tasks, strips = (tool for tool in plot.tools if isinstance(tool, HoverTool))
    assert [title for title, _ in strips.tooltips] == ["worker", "what", "from"]
    assert [title for title, _ in tasks.tooltips][:2] == ["key", "function"]
    assert not set(tasks.renderers) & set(strips.renderers)


def test_what_would_touch_is_one_rectangle_with_the_sum(made):
    starts = np.arange(1.0, 1.5, 0.001)
    many = {
        "task": np.zeros(len(starts), int),
        "activity": ["transfer"] * len(starts),
        "start": starts,
        "stop": starts + 0.0005,
        "bytes": np.full(len(starts), 1e6),
        "destination": ["b"] * len(starts),
    }
    _, strips, _ = drawn(replace(made, transfers=filled_table("transfers", many)))
    assert strips["what"][0] == "results arrive from other workers (500 times), 500 MB"
    assert strips["right"][0] == pytest.approx(1.4995)


def test_lanes_are_hatched_while_their_worker_was_not_there(made):
    _, _, absent = drawn(made)
    rows = zip(absent["left"], absent["right"], absent["top"], strict=True)
    assert sorted(rows) == [(0.0, 1.0, 0), (0.0, 1.0, LANE), (6.0, 10.0, 2 * LANE)]


def test_local_recordings_have_no_marks(made):
    local = replace(
        made,
        workers=made.workers.rows(slice(0)),
        transfers=made.transfers.rows(slice(0)),
        worker_events=made.worker_events.rows(slice(0)),
    )
    assert drawn(local)[1:] == (None, None)
    assert marks_in_lanes(local) == []
    assert list(workers(Analysis(local), None)) == []


def test_the_legend_names_what_is_drawn(made):
    assert [name for _, name in marks_in_lanes(made)] == [
        "results arrive from other workers",
        "results go to disk or come back",
        "paused",
        "hatched: the worker was not there",
    ]


def test_a_long_name_of_a_worker_does_not_move_the_plot(made):
    long = with_columns(made, "tasks", worker=["tcp://198.51.100.1:40001/0", "b/0", "b/1"])
    plot, *_ = drawn(long)
    labels = list(plot.yaxis[0].major_label_overrides.values())
    assert "…0.1:40001/0" in labels
    assert max(map(len, labels)) <= 12


def test_the_table_of_workers(made):
    (grid,) = workers(Analysis(made), None)
    rows = [dict(zip(grid.columns, row, strict=True)) for row in grid.rows]
    assert [row["worker"] for row in rows] == ["b", "c", "a"]
    assert rows[2] == {
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
    assert (rows[0]["joined"], rows[0]["clock offset"]) == ("1.00 s", "same clock")
    # Of 18 thread-seconds from when it joined.
    assert (rows[0]["tasks"], rows[0]["busy"]) == ("2", "17%")
    assert (rows[1]["tasks"], rows[1]["version"]) == ("0", "(did not measure)")


def test_hostile_names_are_escaped_in_the_page(made, tmp_path):
    hostile = with_columns(made, "workers", host=["<script>alert(1)</script>", "one", "one"])
    page = report(hostile, path=tmp_path / "page.html").read_text()
    (tmp_path / "page.html").unlink()
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "handle-worker-cleanup" in page
