"""Many tasks in one page: all of them are in it, and it stays small."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from benchmarks.made_up import many_tasks
from dask_diag import visualize
from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.views.escaping import shown
from dask_diag.views.plots.figures import pack

from .javascript import needs_node, run_javascript
from .pages import arguments_of, keys_of, tasks_of, unpacked
from .tables import filled_table
from .test_views import HOSTILE

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]


def with_columns(recording, **columns):
    tasks = {name: recording.tasks[name] for name in recording.tasks.columns}
    return dataclasses.replace(recording, tasks=filled_table("tasks", {**tasks, **columns}))


def page_of(recording, tmp_path, **kwargs):
    path = tmp_path / "page.html"
    visualize(recording, filename=path, plots=["tasks"], show=False, mode="cdn", **kwargs)
    return path, arguments_of(path, "packed_tasks")


def in_order(recording, args):
    """The tasks of a recording in the order of the page, and what the page has of them."""
    tasks = recording.tasks
    lane = np.array([int(name.split("-")[1]) for name in tasks["worker"].tolist()])
    return np.lexsort((tasks["start"], lane)), lane, tasks_of(args)


@pytest.mark.parametrize("mean", [1e-6, 2e-3, 1.0])
def test_every_task_is_in_the_page_as_exactly_as_it_says(tmp_path, mean):
    recording = many_tasks(20_000, mean=mean)
    tasks = recording.tasks
    _, args = page_of(recording, tmp_path)
    order, lane, unpacked_tasks = in_order(recording, args)
    tick = args["tick"]
    assert tick <= 1e-6
    assert tick <= np.median(tasks["stop"] - tasks["start"]) / 100 or tick == 1e-9
    assert len(unpacked_tasks["start"]) == 20_000
    assert unpacked_tasks["lane"].tolist() == lane[order].tolist()
    for name in ("start", "stop"):
        assert np.abs(unpacked_tasks[name] - tasks[name][order]).max() <= 0.51 * tick
    wall = (tasks["stop"] - tasks["start"])[order]
    off = np.abs(unpacked_tasks["cpu"] - tasks["thread_cpu"][order])
    assert (off <= np.maximum(2 * tick, 0.002 * wall + tick)).all()
    assert unpacked_tasks["function"].tolist() == tasks["function"].codes[order].tolist()
    assert unpacked_tasks["outcome"].tolist() == tasks["outcome"].codes[order].tolist()
    keys = tasks["key"].tolist()
    assert keys_of(args, unpacked_tasks["function"]) == [keys[row] for row in order.tolist()]


def test_tasks_that_overlap_or_whose_times_are_not_known_are_in_the_page(tmp_path):
    recording = many_tasks(4000, workers=4)
    tasks = recording.tasks
    start, stop, cpu = (np.array(tasks[name]) for name in ("start", "stop", "thread_cpu"))
    random = np.random.default_rng(1)
    start -= 0.01 * random.random(len(start))
    unfinished, not_started = np.arange(0, 4000, 50), np.arange(7, 4000, 100)
    stop[unfinished] = cpu[unfinished] = np.nan
    cpu[unfinished + 1] = (stop - start)[unfinished + 1] + 1e-3
    start[not_started] = stop[not_started] = cpu[not_started] = np.nan
    odd = with_columns(recording, start=start, stop=stop, thread_cpu=cpu)
    _, args = page_of(odd, tmp_path)
    order, lane, unpacked_tasks = in_order(odd, args)
    order = order[~np.isnan(start[order])]
    ends = np.where(np.isnan(stop), recording.stop, stop)
    assert len(unpacked_tasks["start"]) == 4000 - len(not_started)
    assert unpacked_tasks["lane"].tolist() == lane[order].tolist()
    assert np.abs(unpacked_tasks["start"] - start[order]).max() <= 0.51 * args["tick"]
    assert np.abs(unpacked_tasks["stop"] - ends[order]).max() <= 0.51 * args["tick"]
    assert np.isnan(unpacked_tasks["cpu"]).tolist() == np.isnan(cpu[order]).tolist()
    is_known = ~np.isnan(cpu[order])
    off = np.abs(unpacked_tasks["cpu"] - cpu[order]) - 0.002 * (ends - start)[order]
    assert off[is_known].max() <= 2 * args["tick"]


def test_any_key_is_in_the_page_as_it_is_shown(tmp_path):
    recording = many_tasks(3200)
    odd = [
        *HOSTILE,
        "('x', 007, 12)",
        "x-1234567890123456789",
        "('y', -3, 4.5)",
        "12",
        "x1-2a-3",
        "a\x1fb\x1ec-5",
        "\n",
    ]
    keys = [odd[n % len(odd)] + str(n // 7) for n in range(len(recording.tasks))]
    texts = with_columns(recording, key=PrefixStrings.of(keys))
    path, args = page_of(texts, tmp_path)
    order, _, unpacked_tasks = in_order(texts, args)
    expected = [keys[row] for row in order.tolist()]
    for reported, key in zip(keys_of(args, unpacked_tasks["function"]), expected):
        if len(key) < 200:
            assert reported == shown(key, 10_000)
        else:
            assert reported.isprintable()
            assert len(reported) < 500
    assert "<script>window.pwned" not in path.read_text()


def test_a_million_tasks_have_room_and_keys_without_a_pattern_are_reported_to_be_left_out(
    tmp_path, monkeypatch
):
    count = 100_000
    visualize(
        many_tasks(16), filename=tmp_path / "few.html", plots=["tasks"], show=False, mode="cdn"
    )
    without = (tmp_path / "few.html").stat().st_size
    path, args = page_of(many_tasks(count), tmp_path)
    assert (path.stat().st_size - without) / count < 6.5
    assert args["packed_keys"] is not None
    monkeypatch.setattr("dask_diag.views.plots.tasks._MOST_BYTES", 8 * count)
    different = many_tasks(count, alike=False)
    path, args = page_of(different, tmp_path)
    assert args["packed_keys"] is None
    entropy = 16 * 5 / 4 * count
    assert entropy < args["size_of_keys"] < 2 * entropy
    assert (path.stat().st_size - without) / count < 8
    order, _, unpacked_tasks = in_order(different, args)
    assert (
        np.abs(unpacked_tasks["start"] - different.tasks["start"][order]).max()
        <= 0.51 * args["tick"]
    )


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


def test_rows_of_texts_are_those_that_were_chosen():
    keys = [key for key in HOSTILE if len(key) < 100] * 3
    texts = PrefixStrings.of(keys)
    assert texts.tolist() == keys
    for rows in (slice(3, 9), np.array([5, 5, 0]), np.arange(len(keys)) % 2 == 0, slice(0, 0)):
        assert texts[rows].tolist() == np.asarray(keys, object)[rows].tolist()
    assert Categorical.of(keys)[np.array([1, 0])].tolist() == [keys[1], keys[0]]


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
            "names": ["scheduler"],
            "shares": [[250]],
        },
    }
    calls = ((0, (0, 10)), (0, (12, 14)), (1, (0, 10)))
    texts = run_javascript(
        "plots/tasks/binned.js",
        "text_of_bin",
        *([tasks, lane, *view, models] for lane, view in calls),
    )
    assert texts == [
        "2 tasks: load 40% (10% off the CPU), sum 20%, scheduler 10%, idle 30%",
        "0 tasks: idle 100%",
        "",
    ]
