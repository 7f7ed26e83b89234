"""Combining: each computation once, whatever runs it is of, and nothing is dropped in silence."""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import shutil
from dataclasses import fields, replace
from operator import add
from pathlib import Path

import dask.local
import dask.threaded
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_diag import (
    CacheProfiler,
    DiagnosticError,
    Profiler,
    Recording,
    ResourceProfiler,
    SamplingProfiler,
    context_meter,
    load,
    record,
    summary,
)
from dask_diag.model.table import Table

from .recordings import NOTHING, with_tables

GOLDEN = Path(__file__).with_name("golden")
NAN = math.nan


def profiled(tasks=3):
    with Profiler() as prof:
        compute(tasks)
    return prof.recording


def rows(table):
    """As text, in which what is not known is equal."""
    return list(map(repr, table.to_dicts()))


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.diag")), ids=lambda path: path.stem)
def test_a_recording_combined_with_itself_or_nothing_else_is_itself(path):
    recording = load(path)
    for parts in ([recording], [recording, recording]):
        both = Recording.combine(parts)
        for field in fields(Recording):
            value = getattr(both, field.name)
            if isinstance(value, Table):
                # Samples refer to the frames and calls of the part that has them.
                if parts == [recording] or field.name not in ("frames", "call_tree", "lines"):
                    assert rows(value) == rows(getattr(recording, field.name)), field.name
            elif field.name != "notices":
                assert value == getattr(recording, field.name)
        assert both.notices[: len(recording.notices)] == recording.notices


def test_groups_and_rows_of_lines_move_with_the_tasks_that_a_combination_keeps():
    def part(name, text, caller_first):
        lines = {"caller": [-1, 0][: 1 + caller_first], "file": ["a.py"] * (1 + caller_first)}
        return with_tables(
            NOTHING,
            computations={"computation": [name]},
            tasks={"computation": [name] * 3, "group": [1, 0, -1], "key": ["x", "y", "z"]},
            lines=lines | {"text": ["", text][1 - caller_first :]},
            steps={"group": [0, 1, 1], "line": [-1, 0, caller_first], "function": ["y", "x", text]},
        )

    one, two = part("c", "one", True), part("d", "two", False)
    both = Recording.combine([one, two, one])
    # The third has no task of its own: neither has it steps.
    assert both.tasks.group.tolist() == [1, 0, -1, 3, 2, -1]
    steps = list(both.steps.tuples("group", "line", "function"))
    of_one = [(0, -1, "y"), (1, 0, "x"), (1, 1, "one")]
    assert steps == [*of_one, (2, -1, "y"), (3, 2, "x"), (3, 2, "two")]
    assert list(both.lines.tuples("caller", "text"))[:3] == [(-1, ""), (0, "one"), (-1, "two")]


def test_a_combination_has_the_times_and_the_worst_state_of_its_parts():
    parts = [
        replace(NOTHING, start=2.0, stop=5.0, epoch=1e9),
        replace(NOTHING, start=1.0, stop=4.0, epoch=1e9 + 0.5),
    ]
    both = Recording.combine(parts)
    assert (both.start, both.stop, both.epoch) == (1.0, 5.0, 1e9)
    of_state = {name: replace(NOTHING, state=name) for name in ("complete", "truncated", "damaged")}
    for names in (["complete"], ["complete", "truncated"], ["truncated", "damaged", "complete"]):
        worst = [name for name in of_state if name in names][-1]
        combined = Recording.combine([of_state[name] for name in [*names, names[0]]])
        assert (combined.state, combined.is_complete) == (worst, worst == "complete")
    with pytest.raises(DiagnosticError, match="found an empty list"):
        Recording.combine([])


def test_a_run_after_a_restart_is_placed_by_the_time_of_day():
    """Both clocks started with the machine: the second run was a day later, at the same times."""
    one, two = profiled(2), profiled(3)
    # The time of day may also be set while one program runs.
    both = Recording.combine([one, replace(two, epoch=one.epoch + 3_600)])
    assert both.tasks["start"].tolist() == [*one.tasks["start"], *two.tasks["start"]]
    assert both.notices == ()
    two = replace(two, epoch=one.epoch + 86_400, run_id="another")
    both = Recording.combine([one, two])
    assert (both.epoch, both.start) == (one.epoch, one.start)
    assert both.stop == pytest.approx(two.stop + 86_400)
    expected = [*one.tasks["start"], *(two.tasks["start"] + 86_400)]
    assert both.tasks["start"].tolist() == pytest.approx(expected)
    cpu = [*one.tasks["thread_cpu"], *two.tasks["thread_cpu"]]
    assert both.tasks["thread_cpu"].tolist() == cpu
    assert both.notices[0].startswith(
        "1 of 2 recordings has another clock, such as after a restart"
    )
    # The order in which they are given says which clock is that of the combination.
    other = Recording.combine([two, one])
    assert other.stop - other.start == pytest.approx(both.stop - both.start)


@pytest.mark.leaves_files
def test_a_copied_file_counts_once_and_a_notice_says_so():
    with record("one.diag", resource_interval=0.01) as run:
        for _ in range(2):
            compute()
    shutil.copy("one.diag", "copy.diag")
    one = load("one.diag")
    both = Recording.combine([one, load("copy.diag")])
    for name, table in one.tables().items():
        if name not in ("frames", "call_tree", "lines"):
            assert rows(getattr(both, name)) == rows(table), name
    assert "2 recordings recorded the same 2 computations; they are counted once" in both.notices
    assert both.run_id == one.run_id == run.recording.run_id
    assert "the same 2 computations" in str(summary(both)).replace("\n  ", " ")


def in_child(send):
    recording = profiled()
    send.send((recording.run_id, recording.computations["computation"].tolist()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_all_recordings_of_a_process_are_of_one_run_and_a_forked_child_is_a_run_of_its_own():
    random.seed(0)
    with Profiler() as prof, CacheProfiler() as cprof, ResourceProfiler(0.01) as rprof:
        with SamplingProfiler() as sprof:
            compute()
    parts = [part.recording for part in (prof, cprof, rprof, sprof)]
    both = Recording.combine(parts)
    assert both.notices == sum((part.notices for part in parts), ())
    assert [len(both.computations), len(both.tasks), len(both.cached_results)] == [1, 3, 3]
    seen = {profiled().run_id, *(part.run_id for part in parts)}
    assert len(seen) == 1
    context = multiprocessing.get_context("fork")
    for _ in range(2):
        random.seed(0)
        receive, send = context.Pipe(duplex=False)
        child = context.Process(target=in_child, args=(send,))
        child.start()
        run, (name,) = receive.recv()
        child.join()
        assert name.startswith(f"{run}-")
        assert run not in seen
        seen.add(run)
    again = Recording.combine([*parts, profiled()])
    assert {again.run_id} == {parts[0].run_id}
    assert len(again.computations) == 2


def meter_and_wait():
    context_meter.digest_metric("apples", 2, "count")


def test_a_computation_that_was_recorded_in_part_is_taken_where_there_is_most_of_it():
    parts = []
    dsk = {("a", 0): (meter_and_wait,)}
    dsk["look", 0] = (lambda _: parts.append(prof.recording), ("a", 0))
    dsk["b", 0] = (lambda _: meter_and_wait(), ("look", 0))
    with Profiler() as prof:
        dask.local.get_sync(dsk, ("b", 0))
    (early,), complete = parts, prof.recording
    assert 0 < len(early.tasks) < len(complete.tasks) == 3
    for both in (Recording.combine([early, complete]), Recording.combine([complete, early])):
        for name in ("computations", "tasks", "dependencies", "metrics"):
            assert rows(getattr(both, name)) == rows(getattr(complete, name)), name
        assert len(both.notices) == 1


def sampled(times, run="one", start=None, memory=100.0, notes=()):
    """A recording of a ResourceProfiler that took a sample at each of these times."""
    times = np.array(times, dtype=float)
    first = times[0] if start is None else start
    read = np.unique([first, *times, *notes])
    return with_tables(
        replace(NOTHING, start=first, stop=times[-1], run_id=run),
        resources={"time": times, "memory": np.full(len(times), memory)},
        processes={
            "time": np.repeat(read, 2),
            "pid": np.tile([1, 2], len(read)),
            "memory": np.full(2 * len(read), memory),
        },
    )


COMBINED = [
    # Of the second, the sample at 4.4 represents more time within the first than after it.
    (
        [sampled([1, 2, 3, 4], start=0), sampled([0.4, 1.4, 2.4, 3.4, 4.4, 5.4], start=0.1)],
        ([1, 2, 3, 4, 5.4], [0, 1, 2, 3, 4, 5.4]),
        "left out 5 resource samples and 12 process samples: another recording has samples of",
    ),
    (
        [sampled([1, 2, 3]), sampled([1.5, 2.5], run="two", start=0.5)],
        ([1, 1.5, 2, 2.5, 3], [0.5, 1, 1.5, 2, 2.5, 3]),
        "resource samples of different runs overlap in time: each row is of one run; do not",
    ),
    # Runs are known in a combination of combinations.
    (
        [
            Recording.combine([sampled([1, 2, 3]), sampled([11, 12, 13], run="two")]),
            sampled([1.5, 2.5], run="one", start=1),
        ],
        ([1, 2, 3, 11, 12, 13], [1, 2, 3, 11, 12, 13]),
        "left out 2 resource samples and 6 process samples",
    ),
    # A registered profiler samples while computations run, and not between them. At 20.3 it
    # sampled again: the processes were read at 20.
    (
        [
            sampled([1, 2, 3, 21, 22, 23], start=0, notes=[20]),
            sampled([9, 10, 11, 12, 20.3], start=8, notes=[9.5]),
        ],
        (
            [1, 2, 3, 9, 10, 11, 12, 21, 22, 23],
            [0, 1, 2, 3, 8, 9, 9.5, 10, 11, 12, 20, 21, 22, 23],
        ),
        "left out 1 resource sample and 2 process samples",
    ),
]


@pytest.mark.parametrize(("parts", "times", "notice"), COMBINED)
def test_time_that_a_run_sampled_twice_is_counted_once(parts, times, notice):
    both = Recording.combine(parts)
    assert both.resources["time"].tolist() == times[0]
    assert both.processes["time"].tolist()[::2] == times[1]
    assert len(both.notices) == bool(notice)
    assert notice == "" or both.notices[0].startswith(notice)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["one", "two"]),
            st.integers(0, 40),
            st.integers(1, 20),
            st.sampled_from([0.25, 0.5, 1.0]),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_no_time_of_a_run_is_sampled_twice_and_none_is_lost(blocks):
    parts = []
    for number, (run, start, count, interval) in enumerate(blocks):
        times = start + 0.01 * number + interval * np.arange(1, count + 1)
        parts.append(sampled(times, run=run, start=start + 0.01 * number, memory=float(number)))
    both = Recording.combine(parts)
    assert (np.diff(both.resources["time"]) >= 0).all()
    assert (np.diff(both.processes["time"]) >= 0).all()
    of_part = both.resources["memory"].astype(int)
    interval = np.array([block[3] for block in blocks])[of_part]
    stop = both.resources["time"]
    for run in ("one", "two"):
        of_run = np.array([blocks[number][0] == run for number in of_part], dtype=bool)
        begin, end = (stop - interval)[of_run] - 1e-9, stop[of_run] + 1e-9
        # A sample is taken or not: at the edges half an interval may be there twice, or missing.
        assert (np.maximum.accumulate(end)[:-1] - begin[1:] <= 0.5 + 1e-8).all()
        for part, (other, *_, width) in zip(parts, blocks):
            if other == run:
                middle = (part.resources["time"] - width / 2)[:, None]
                assert ((begin <= middle) & (middle <= end)).any(axis=1).all()
    left_out = sum(len(part.resources) for part in parts) - len(both.resources)
    assert any(f"left out {left_out:,} resource" in text for text in both.notices) == bool(left_out)


@given(st.lists(st.lists(st.integers(0, 5), max_size=4, unique=True), min_size=1, max_size=4))
def test_computations_of_any_parts_are_there_once_and_positions_refer_to_their_tasks(parts):
    """Each part has some of six computations, of 0 to 5 tasks that need the one before."""

    def part_of(numbers):
        keys = [f"k-{number}-{task}" for number in numbers for task in range(number)]
        needs = [row for row, key in enumerate(keys) if not key.endswith("-0")]
        return with_tables(
            NOTHING,
            computations={"computation": [f"c-{number}" for number in numbers]},
            tasks={"key": keys, "computation": [f"c-{n}" for n in numbers for _ in range(n)]},
            dependencies={"task": needs, "depends_on": [row - 1 for row in needs]},
        )

    both = Recording.combine([part_of(numbers) for numbers in parts])
    present = {number for numbers in parts for number in numbers}
    names = [f"c-{number}" for number in sorted(present)]
    assert sorted(both.computations["computation"].tolist()) == names
    keys = both.tasks["key"].tolist()
    assert sorted(keys) == [f"k-{n}-{task}" for n in sorted(present) for task in range(n)]
    pairs = {(keys[row["task"]], keys[row["depends_on"]]) for row in both.dependencies.to_dicts()}
    assert pairs == {(f"k-{n}-{t}", f"k-{n}-{t - 1}") for n in present for t in range(1, n)}
    repeated = [n for n in present - {0} if sum(n in numbers for numbers in parts) > 1]
    assert len(both.notices) == bool(repeated)
    assert not repeated or f"the same {len(repeated)} computation" in both.notices[0]


def held(metric, *computations, size=1.0):
    names = [name for name in computations for _ in range(2)]
    return with_tables(
        replace(NOTHING, metric=metric),
        computations={"computation": computations},
        cached_results={
            "key": [f"{name}-{n}" for n, name in enumerate(names)],
            "computation": names,
            "metric": [size] * len(names),
        },
    )


@pytest.mark.parametrize(
    ("parts", "metric", "results", "notice"),
    [
        ([held("count", "c-1")] * 2, "count", ["c-1"], "2 recordings recorded the same 1 comp"),
        (
            [held("nbytes", "c-1"), held("count", "c-2")],
            "nbytes",
            ["c-1"],
            "left out 2 cached results measured as count: a combination has one metric, here "
            "nbytes; look at the recording with count separately",
        ),
        ([held("a", "c-1", "c-2"), held("a", "c-2", "c-3")], "a", ["c-1", "c-2", "c-3"], "2 rec"),
        # A metric without results does not name those of another.
        ([replace(NOTHING, metric="count"), held("nbytes", "c-1")], "nbytes", ["c-1"], ""),
        (
            [
                with_tables(NOTHING, environment={"section": ["versions"], "value": [value]})
                for value in ("1", "1", "2")
            ],
            "",
            [],
            "the environment is that of the first recording; others differ in versions",
        ),
    ],
)
def test_cached_results_count_once_in_one_metric(parts, metric, results, notice):
    both = Recording.combine(parts)
    assert both.metric == metric
    assert sorted(both.cached_results["computation"].tolist()) == sorted(results * 2)
    assert len(both.notices) == bool(notice)
    assert notice == "" or both.notices[0].startswith(notice)


def of_a_cluster(start, stop, workers, others=(), events=(), lanes=()):
    """A part: workers (label, address, joined, left), what happened (label, start, stop)."""

    def columns(rows, *names, **same):
        table = {name: [row[index] for row in rows] for index, name in enumerate(names)}
        return table | {name: [value] * len(rows) for name, value in same.items()}

    one = {"computation": "one"}
    return with_tables(
        replace(NOTHING, start=start, stop=stop),
        computations=columns([()], computation=f"c{start}", start=start, stop=stop, cluster="one"),
        tasks={
            "worker": list(lanes),
            "computation": [f"c{start}"] * len(lanes),
            "outcome": ["ok"] * len(lanes),
        },
        workers=columns(workers, "worker", "address", "joined", "left", threads=2, **one),
        other_tasks=columns(others, "worker", "start", "stop", **one),
        worker_events=columns(events, "worker", "start", "stop", event="paused", **one),
    )


def test_a_worker_that_a_later_block_of_its_cluster_lacks_left_before_it():
    first = of_a_cluster(0.0, 10.0, [("a", "tcp:1", -5.0, NAN), ("b", "tcp:2", -5.0, NAN)])
    # As the scheduler has logged it for this block.
    second = of_a_cluster(20.0, 30.0, [("a", "tcp:1", -4.99, NAN)])
    for parts in ([first, second], [second, first]):
        assert repr(workers_of(Recording.combine(parts))) == repr(
            [("a", "tcp:1", -5.0, NAN), ("b", "tcp:2", -5.0, 10.0)]
        )


def workers_of(recording):
    names = ("worker", "address", "joined", "left")
    return sorted(tuple(row[name] for name in names) for row in recording.workers.to_dicts())


def test_workers_of_two_blocks_have_names_of_their_own():
    """One name for two, one address for two, and two names for one."""
    first = of_a_cluster(
        *(0.0, 10.0, [("x", "tcp:1", -5.0, 9.0), ("y (2)", "tcp:3", -5.0, NAN)]),
        others=[("x", 1.0, 2.0)],
        lanes=["x/0", "y (2)/0"],
    )
    second = of_a_cluster(
        *(20.0, 30.0),
        [("x", "tcp:2", 15.0, NAN), ("z", "tcp:1", 12.0, NAN), ("y", "tcp:3", -5.0, NAN)],
        others=[("x", 21.0, 22.0)],
        events=[("x", 23.0, 24.0), ("z", 23.0, 24.0)],
        lanes=["x/0", "z/0", "y/0"],
    )
    both = Recording.combine([first, second])
    assert [row[:2] for row in workers_of(both)] == [
        ("x", "tcp:1"),
        ("x (2)", "tcp:2"),
        ("y (2)", "tcp:3"),
        ("z", "tcp:1"),
    ]
    assert both.tasks.worker.tolist() == ["x/0", "y (2)/0", "x (2)/0", "z/0", "y (2)/0"]
    assert both.other_tasks.worker.tolist() == ["x", "x (2)"]
    assert both.worker_events.worker.tolist() == ["x (2)", "z"]


def test_what_happened_on_workers_is_there_once():
    """Two diagnostics over one block, of which one ended later, and one over the next block."""
    workers = [("a", "tcp:1", -5.0, NAN)]
    first = of_a_cluster(0.0, 10.0, workers, others=[("a", 1.0, 2.0), ("a", 8.0, 10.0)])
    same = of_a_cluster(0.5, 11.0, workers, others=[("a", 1.0, 2.0), ("a", 8.0, 11.0)])
    later = of_a_cluster(20.0, 30.0, workers, others=[("a", 21.0, 22.0)])
    others = Recording.combine([first, same, later]).other_tasks
    assert others.start.tolist() == [1.0, 8.0, 21.0]
    assert others.stop.tolist() == [2.0, 11.0, 22.0]
    # Of programs that were recorded at once a notice says so.
    first, second, later = (
        replace(part, run_id=run)
        for part, run in zip((first, same, later), ("one", "two", "two"), strict=True)
    )
    (notice,) = Recording.combine([first, second]).notices
    assert notice.startswith("several programs were recorded on one cluster at the same time")
    for other in (later, replace(second, run_id="one")):
        assert Recording.combine([first, other]).notices == ()


def compute(tasks=3):
    dsk = {("f", n): (add, n, 1) for n in range(tasks)}
    return dask.local.get_sync(dsk, list(dsk))
