"""Many tasks in one page: all of them are in it, and it stays small."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.made_up import many_tasks
from dask_diag import visualize
from dask_diag.views.escaping import shown
from dask_diag.views.plots.figures import pack

from .javascript import needs_node, run_javascript
from .pages import arguments_of, keys_of, tasks_of, unpacked
from .recordings import with_columns
from .test_views import HOSTILE

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]


@pytest.mark.parametrize("mean", [1e-6, 2e-3, 1.0])
def test_every_task_is_in_the_page_as_exactly_as_it_says(tmp_path, mean):
    recording = many_tasks(20_000, mean=mean)
    tasks = recording.tasks
    args, order, lane, in_page = tasks_in_page(recording, tmp_path / "page.html")
    tick = args["tick"]
    assert tick <= 1e-6
    assert tick <= np.median(tasks["stop"] - tasks["start"]) / 100 or tick == 1e-9
    assert len(in_page["start"]) == 20_000
    assert in_page["lane"].tolist() == lane[order].tolist()
    for name in ("start", "stop"):
        assert np.abs(in_page[name] - tasks[name][order]).max() <= 0.51 * tick
    wall = (tasks["stop"] - tasks["start"])[order]
    off = np.abs(in_page["cpu"] - tasks["thread_cpu"][order])
    assert (off <= np.maximum(2 * tick, 0.002 * wall + tick)).all()
    for name in ("function", "outcome"):
        assert in_page[name].tolist() == tasks[name].codes[order].tolist()
    keys = tasks["key"].tolist()
    assert keys_of(args, in_page["function"]) == [keys[row] for row in order.tolist()]


def with_task_columns(recording, **columns):
    """The same recording, of any number of tasks, with other values in some columns of tasks."""
    return replace(recording, tasks=recording.tasks.replacing(columns))


def test_tasks_that_overlap_or_whose_times_are_not_known_are_in_the_page(tmp_path):
    recording = many_tasks(4000, workers=4)
    start, stop, cpu = (np.array(recording.tasks[name]) for name in ("start", "stop", "thread_cpu"))
    start -= 0.01 * np.random.default_rng(1).random(len(start))
    unfinished, not_started = np.arange(0, 4000, 50), np.arange(7, 4000, 100)
    stop[unfinished] = cpu[unfinished] = np.nan
    cpu[unfinished + 1] = (stop - start)[unfinished + 1] + 1e-3
    start[not_started] = stop[not_started] = cpu[not_started] = np.nan
    collected = np.where(np.isnan(stop), np.nan, recording.tasks.collected)
    odd = with_columns(
        recording, "tasks", start=start, stop=stop, thread_cpu=cpu, collected=collected
    )
    args, order, lane, in_page = tasks_in_page(odd, tmp_path / "page.html")
    ends = np.where(np.isnan(stop), recording.stop, stop)
    assert len(in_page["start"]) == 4000 - len(not_started)
    assert in_page["lane"].tolist() == lane[order].tolist()
    for name, true in (("start", start), ("stop", ends)):
        assert np.abs(in_page[name] - true[order]).max() <= 0.51 * args["tick"]
    assert np.isnan(in_page["cpu"]).tolist() == np.isnan(cpu[order]).tolist()
    is_known = ~np.isnan(cpu[order])
    off = np.abs(in_page["cpu"] - cpu[order]) - 0.002 * (ends - start)[order]
    assert off[is_known].max() <= 2 * args["tick"]


def test_any_key_is_in_the_page_as_it_is_shown(tmp_path):
    recording = many_tasks(3200)
    odd = [*HOSTILE, "('x', 007, 12)", "x-1234567890123456789", "('y', -3, 4.5)", "12", "x1-2a-3"]
    odd += ["a\x1fb\x1ec-5", "\n"]
    keys = [odd[n % len(odd)] + str(n // 7) for n in range(len(recording.tasks))]
    texts = with_columns(recording, "tasks", key=keys)
    args, order, _, in_page = tasks_in_page(texts, tmp_path / "page.html")
    expected = [keys[row] for row in order.tolist()]
    for reported, key in zip(keys_of(args, in_page["function"]), expected):
        if len(key) < 200:
            assert reported == shown(key, 10_000)
        else:
            assert reported.isprintable()
            assert len(reported) < 500
    assert "<script>window.pwned" not in (tmp_path / "page.html").read_text()


def test_a_million_tasks_have_room_and_keys_without_a_pattern_are_reported_to_be_left_out(
    tmp_path, monkeypatch
):
    count, path = 100_000, tmp_path / "page.html"

    def written(recording):
        args, order, _, in_page = tasks_in_page(recording, path)
        off = np.abs(in_page["start"] - recording.tasks["start"][order]).max()
        assert off <= 0.51 * args["tick"]
        return args, path.stat().st_size

    visualize(many_tasks(16), filename=path, plots=["tasks"], show=False, mode="cdn")
    without = path.stat().st_size
    args, size = written(many_tasks(count))
    assert (size - without) / count < 6.5
    assert args["packed_keys"] is not None
    monkeypatch.setattr("dask_diag.views.plots.tasks._MOST_BYTES", 8 * count)
    args, size = written(many_tasks(count, alike=False))
    assert args["packed_keys"] is None
    entropy = 16 * 5 / 4 * count
    assert entropy < args["size_of_keys"] < 2 * entropy
    assert (size - without) / count < 8


def test_columns_of_any_whole_numbers_and_texts_are_unpacked_as_they_were():
    columns = {
        "none": np.zeros(0, int),
        "bytes": np.array([0, 255, 7], np.uint8),
        "signed": np.array([0, -1, 1, -(2**40), 2**40]),
        "large": np.array([2**52]),
        "text": "ünï 🎉\ud800",
    }
    unpacked_columns = unpacked(pack(columns))
    for name in ("none", "bytes", "signed", "large"):
        assert unpacked_columns[name].tolist() == columns[name].tolist()
    assert unpacked_columns["text"] == "ünï 🎉\\ud800"


@needs_node
def test_pointing_at_a_lane_of_many_tasks_says_what_is_drawn_there():
    # A lane of 10 s: two tasks of 4 s and 2 s, one of which computed for 3 s and the other not
    # measured; 4 s without a task, of which the scheduler took a quarter.
    tasks = {
        "start": [0, 4, 20],
        "stop": [4, 6, 30],
        "cpu": [3, np.nan, 1],
        "function": [0, 1, 0],
        "unit": 1,
        "reach": [4, 6, 30],
        "lanes": [{"first": 0, "last": 3}],
    }
    models = {
        "functions": ["load", "sum"],
        "free": {
            "start": 0,
            "length": 10,
            "units": 1000,
            "names": ["scheduling overhead", "no task to run"],
            "shares": [[250], [750]],
        },
    }
    calls = ((0, (0, 10)), (0, (12, 14)), (1, (0, 10)))
    texts = run_javascript(
        "plots/tasks/binned.js",
        "text_of_bin",
        *([tasks, lane, *view, models] for lane, view in calls),
    )
    assert texts == [
        "2 tasks: load 40% (10% off the CPU), sum 20%, scheduling overhead 10%, no task to run 30%",
        # No computation had the worker.
        "0 tasks",
        "",
    ]


def tasks_in_page(recording, path):
    """The tasks of a recording in the order of the page, and what the page has of them."""
    visualize(recording, filename=path, plots=["tasks"], show=False, mode="cdn")
    args = arguments_of(path, "packed_tasks")
    tasks = recording.tasks
    lane = np.array([int(name.split("-")[1]) for name in tasks["worker"].tolist()])
    order = np.lexsort((tasks["start"], lane))
    return args, order[~np.isnan(tasks["start"][order])], lane, tasks_of(args)
