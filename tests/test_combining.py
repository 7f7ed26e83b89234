"""Combining: each computation once, whatever runs it is of, and nothing is dropped in silence."""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import time
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
    Profiler,
    Recording,
    ResourceProfiler,
    SamplingProfiler,
    context_meter,
    load,
    record,
    save,
    summary,
)
from dask_diag.capture.computation import run_id
from dask_diag.columns import Categorical
from dask_diag.model.table import Table

from .tables import filled_table

GOLDEN = Path(__file__).with_name("golden")
EMPTY = Table({})
NOTHING = Recording(0.0, 1.0, 0.0, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY)
IN_A_CONTAINER = """
import os, random, sys
os.getpid = lambda: 1
random.seed(0)
import dask.local
from dask_diag import Profiler, save
with Profiler() as prof:
    dsk = {("f", n): (int,) for n in range(int(sys.argv[1]))}
    dask.local.get_sync(dsk, list(dsk))
save(prof.recording, sys.argv[2])
"""


def graph(tasks=3):
    return {("f", n): (add, n, 1) for n in range(tasks)}


def compute(tasks=3):
    dsk = graph(tasks)
    return dask.local.get_sync(dsk, list(dsk))


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
                if parts == [recording] or field.name not in ("frames", "call_tree"):
                    assert rows(value) == rows(getattr(recording, field.name)), field.name
            elif field.name != "notices":
                assert value == getattr(recording, field.name)
        assert both.notices[: len(recording.notices)] == recording.notices


def test_times_of_a_combination_are_those_of_its_parts():
    parts = [
        replace(NOTHING, start=2.0, stop=5.0, epoch=1e9),
        replace(NOTHING, start=1.0, stop=4.0, epoch=1e9 + 0.5),
    ]
    both = Recording.combine(parts)
    assert (both.start, both.stop, both.epoch) == (1.0, 5.0, 1e9)


def test_a_run_after_a_restart_is_placed_by_the_time_of_day():
    """Both clocks started with the machine: the second run was a day later, at the same times."""
    one, two = profiled(2), profiled(3)
    two = replace(two, epoch=one.epoch + 86_400, run_id="another")
    both = Recording.combine([one, two])
    assert both.epoch == one.epoch
    assert both.start == one.start
    assert both.stop == pytest.approx(two.stop + 86_400)
    expected = [*one.tasks["start"], *(two.tasks["start"] + 86_400)]
    assert both.tasks["start"].tolist() == pytest.approx(expected)
    assert both.tasks["thread_cpu"].tolist() == [
        *one.tasks["thread_cpu"],
        *two.tasks["thread_cpu"],
    ]
    assert both.notices == (
        "1 of 2 recordings have another clock, as after a restart of the machine; their times are "
        "placed by the time of day",
    )
    # The order in which they are given says which clock is that of the combination.
    other = Recording.combine([two, one])
    assert other.stop - other.start == pytest.approx(both.stop - both.start)


def test_the_time_of_day_may_be_set_while_one_program_runs():
    one, two = profiled(2), profiled(3)
    both = Recording.combine([one, replace(two, epoch=one.epoch + 3_600)])
    assert both.tasks["start"].tolist() == [*one.tasks["start"], *two.tasks["start"]]
    assert both.notices == ()


def test_a_combination_is_in_the_worst_state_of_its_parts():
    complete, truncated, damaged = (
        replace(NOTHING, state=state) for state in ("complete", "truncated", "damaged")
    )
    assert Recording.combine([complete, complete]).is_complete
    assert Recording.combine([complete, truncated, complete]).state == "truncated"
    assert Recording.combine([truncated, damaged, complete]).state == "damaged"


@pytest.mark.leaves_files
def test_runs_that_have_the_same_pid_are_separate():
    for tasks, path in ((3, "one.diag"), (5, "two.diag")):
        subprocess.run(
            [sys.executable, "-c", IN_A_CONTAINER, str(tasks), path],
            check=True,
            timeout=120,
        )
    one, two = load("one.diag"), load("two.diag")
    assert set(one.tasks["pid"].tolist()) == set(two.tasks["pid"].tolist()) == {1}
    both = Recording.combine([one, two])
    assert len(both.tasks) == 8
    assert len(both.computations) == 2
    assert both.notices == ()
    assert both.run_id == f"{one.run_id},{two.run_id}"


@pytest.mark.leaves_files
def test_a_copied_file_counts_once_and_a_notice_says_so():
    with record("one.diag", interval=0.01) as run:
        for _ in range(2):
            dask.threaded.get(graph(), ("f", 0))
    shutil.copy("one.diag", "copy.diag")
    one = load("one.diag")
    both = Recording.combine([one, load("copy.diag")])
    for name in (
        "computations",
        "tasks",
        "dependencies",
        "resources",
        "processes",
        "cached_results",
        "samples",
    ):
        assert rows(getattr(both, name)) == rows(getattr(one, name)), name
    assert "2 recordings recorded the same 2 computations; they are counted once" in both.notices
    assert both.run_id == one.run_id == run.recording.run_id
    assert "the same 2 computations" in str(summary(both)).replace("\n  ", " ")


def test_profilers_of_different_kinds_over_one_block_give_no_notice():
    with Profiler() as prof, CacheProfiler() as cprof, ResourceProfiler(0.01) as rprof:
        with SamplingProfiler() as sprof:
            compute()
    parts = [part.recording for part in (prof, cprof, rprof, sprof)]
    both = Recording.combine(parts)
    assert both.notices == sum((part.notices for part in parts), ())
    assert [len(both.computations), len(both.tasks), len(both.cached_results)] == [1, 3, 3]


def test_a_computation_that_two_profilers_recorded_is_there_once_with_a_notice():
    with Profiler() as one, Profiler() as two:
        compute()
        compute()
    both = Recording.combine([one.recording, two.recording])
    assert len(both.tasks) == 6
    assert both.notices == ("2 recordings recorded the same 2 computations; they are counted once",)


def test_all_recordings_of_a_process_are_of_one_run_and_name_computations_by_it():
    one, two = profiled(), profiled()
    assert one.run_id == two.run_id == run_id()
    assert len(one.run_id) == 16
    names = [*one.computations["computation"].tolist(), *two.tasks["computation"].tolist()]
    assert {name.rpartition("-")[0] for name in names} == {run_id()}
    both = Recording.combine([one, two])
    assert both.run_id == one.run_id
    assert len(both.computations) == 2


def in_child(send):
    recording = profiled()
    send.send((run_id(), recording.run_id, recording.computations["computation"].tolist()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_is_a_run_of_its_own():
    random.seed(0)
    own = profiled()
    seen = {own.run_id}
    context = multiprocessing.get_context("fork")
    for _ in range(2):
        random.seed(0)
        receive, send = context.Pipe(duplex=False)
        child = context.Process(target=in_child, args=(send,))
        child.start()
        drawn, recorded, (name,) = receive.recv()
        child.join()
        assert drawn == recorded
        assert name.startswith(f"{drawn}-")
        assert drawn not in seen
        seen.add(drawn)
    assert profiled().run_id == own.run_id


def test_a_block_that_forks_counts_what_both_recorded_once():
    with Profiler() as prof:
        compute()
        context = multiprocessing.get_context("fork")
        receive, send = context.Pipe(duplex=False)

        def go_on():
            compute(5)
            save(prof.recording, "child.diag")
            send.send("saved")

        child = context.Process(target=go_on)
        child.start()
        send.close()  # So that a child that fails ends the wait.
        assert receive.recv() == "saved"
        child.join()
    of_child = load("child.diag")
    os.unlink("child.diag")
    assert len(of_child.tasks) == 8
    both = Recording.combine([prof.recording, of_child])
    assert len(both.tasks) == 8
    assert len(both.computations) == 2
    assert both.notices == ("2 recordings recorded the same 1 computation; it is counted once",)


def meter_and_wait():
    context_meter.digest_metric("apples", 2, "count")


def test_a_computation_that_was_recorded_in_part_is_taken_where_there_is_most_of_it():
    parts = []

    def look():
        parts.append(prof.recording)

    dsk = {("a", 0): (meter_and_wait,), ("look", 0): (lambda _: look(), ("a", 0))}
    dsk["b", 0] = (lambda _: meter_and_wait(), ("look", 0))
    with Profiler() as prof:
        dask.local.get_sync(dsk, ("b", 0))
    (early,), complete = parts, prof.recording
    assert 0 < len(early.tasks) < len(complete.tasks) == 3
    for both in (Recording.combine([early, complete]), Recording.combine([complete, early])):
        for name in ("computations", "tasks", "dependencies", "metrics"):
            assert rows(getattr(both, name)) == rows(getattr(complete, name)), name
        assert len(both.notices) == 1


@given(st.lists(st.lists(st.integers(0, 5), max_size=4, unique=True), min_size=1, max_size=4))
def test_computations_of_any_parts_are_there_once_and_positions_refer_to_their_tasks(parts):
    """Each part has some of six computations, of 0 to 5 tasks that need the one before."""

    def part_of(computations):
        names = [f"c-{number}" for number in computations for _ in range(number)]
        keys = [f"k-{number}-{task}" for number in computations for task in range(number)]
        needs = [row for row, key in enumerate(keys) if not key.endswith("-0")]
        return replace(
            NOTHING,
            computations=filled_table(
                "computations", {"computation": [f"c-{number}" for number in computations]}
            ),
            tasks=filled_table("tasks", {"key": keys, "computation": names}),
            dependencies=filled_table(
                "dependencies", {"task": needs, "depends_on": [row - 1 for row in needs]}
            ),
        )

    both = Recording.combine([part_of(computations) for computations in parts])
    present = {number for computations in parts for number in computations}
    assert sorted(both.computations["computation"].tolist()) == [
        f"c-{number}" for number in sorted(present)
    ]
    keys = both.tasks["key"].tolist()
    assert sorted(keys) == [f"k-{n}-{task}" for n in sorted(present) for task in range(n)]
    pairs = {(keys[row["task"]], keys[row["depends_on"]]) for row in both.dependencies.to_dicts()}
    assert pairs == {(f"k-{n}-{t}", f"k-{n}-{t - 1}") for n in present for t in range(1, n)}
    filled = [set(computations) - {0} for computations in parts]
    repeated = {n for n in present if sum(n in computations for computations in filled) > 1}
    assert len(both.notices) == bool(repeated)
    assert not repeated or f"the same {len(repeated)} computation" in both.notices[0]


def sampled(times, run="one", start=None, memory=100.0, notes=()):
    """A recording of a ResourceProfiler that took a sample at each of these times."""
    times = np.array(times, dtype=float)
    first = times[0] if start is None else start
    read = np.unique(np.concatenate([[first], times, np.array(notes, dtype=float)]))
    return replace(
        NOTHING,
        start=first,
        stop=times[-1],
        run_id=run,
        resources=filled_table(
            "resources",
            {
                "time": times,
                "cpu": np.full(len(times), 50.0),
                "memory": np.full(len(times), memory),
            },
        ),
        processes=filled_table(
            "processes",
            {
                "time": np.repeat(read, 2),
                "pid": np.tile([1, 2], len(read)),
                "memory": np.full(2 * len(read), memory),
            },
        ),
    )


def times_of(recording):
    return recording.resources["time"].tolist()


def test_time_that_two_resource_profilers_sampled_is_counted_once():
    one = sampled([1, 2, 3, 4], start=0)
    two = sampled([0.4, 1.4, 2.4, 3.4, 4.4, 5.4], start=0.1)
    both = Recording.combine([one, two])
    # Of the second, the sample at 4.4 represents more time within the first than after it.
    assert times_of(both) == [1, 2, 3, 4, 5.4]
    assert both.processes["time"].tolist()[::2] == [0, 1, 2, 3, 4, 5.4]
    assert both.notices == (
        "left out 5 resource samples and 12 process samples: another recording has samples of "
        "that time",
    )
    other_way = Recording.combine([two, one])
    assert times_of(other_way) == times_of(two)


def test_samples_are_in_order_of_time_whichever_recording_comes_first():
    both = Recording.combine([sampled([11, 12, 13]), sampled([1, 2, 3], start=0, notes=[2.5])])
    assert times_of(both) == [1, 2, 3, 11, 12, 13]
    assert both.processes["time"].tolist()[::2] == [0, 1, 2, 2.5, 3, 11, 12, 13]
    assert both.notices == ()


def test_recordings_of_one_run_one_after_the_other_are_all_retained():
    both = Recording.combine([sampled([1, 2, 3], start=0), sampled([3.01, 4, 5], start=3.001)])
    assert times_of(both) == [1, 2, 3, 3.01, 4, 5]
    assert both.notices == ()


def test_recordings_of_different_runs_are_all_retained():
    after = Recording.combine([sampled([11, 12]), sampled([1, 2], run="two")])
    assert times_of(after) == [1, 2, 11, 12]
    assert after.notices == ()
    at_once = Recording.combine([sampled([1, 2, 3]), sampled([1.5, 2.5], run="two", start=0.5)])
    assert times_of(at_once) == [1, 1.5, 2, 2.5, 3]
    assert at_once.notices == (
        "resource samples of different runs overlap in time: each row is of one run, not of all "
        "together",
    )


def test_runs_are_known_in_a_combination_of_combinations():
    two_runs = Recording.combine([sampled([1, 2, 3]), sampled([11, 12, 13], run="two")])
    again = Recording.combine([two_runs, sampled([1.5, 2.5], run="one", start=1)])
    assert times_of(again) == [1, 2, 3, 11, 12, 13]
    assert again.run_id == "one,two"


def test_what_is_sampled_in_a_pause_of_another_profiler_is_retained():
    """A registered profiler samples while computations run, and not between them."""
    registered = sampled([1, 2, 3, 21, 22, 23], start=0, notes=[20])
    within = sampled([9, 10, 11, 12, 20.3], start=8, notes=[9.5])
    both = Recording.combine([registered, within])
    # At 20.3 the first one sampled again: the processes were read at 20.
    assert times_of(both) == [1, 2, 3, 9, 10, 11, 12, 21, 22, 23]
    assert 9.5 in both.processes["time"].tolist()
    assert both.notices[0].startswith("left out 1 resource sample and 2 process samples")


def test_the_same_samples_count_once_in_a_run_and_are_said_to_overlap_in_two():
    one, two = (sampled([1, 2, 3], run=run, start=0) for run in ("one", "two"))
    both = Recording.combine([one, one])
    assert rows(both.resources) == rows(one.resources)
    assert rows(both.processes) == rows(one.processes)
    assert both.notices[0].startswith("left out 3 resource samples and 8 process samples: ")
    assert len(both.notices) == 1
    (notice,) = Recording.combine([one, two]).notices
    assert notice.startswith("resource samples of different runs overlap in time")


def test_process_samples_without_resource_samples_count_once():
    processes = sampled([1, 2]).processes
    part = replace(NOTHING, processes=processes, run_id="one")
    assert rows(Recording.combine([part, part]).processes) == rows(processes)


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
def test_no_time_of_a_run_is_counted_twice_and_none_is_lost(blocks):
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
        begin, end = (stop - interval)[of_run], stop[of_run]
        # A sample is taken or not: at the edges half an interval may be there twice, or missing.
        overlap = np.maximum.accumulate(end)[:-1] - begin[1:]
        assert (overlap <= 0.5 + 1e-9).all()
        for part, (other, *_, width) in zip(parts, blocks):
            if other == run:
                middle = part.resources["time"] - width / 2
                assert all(
                    (((begin - 1e-9) <= moment) & (moment <= end + 1e-9)).any() for moment in middle
                )
    left_out = sum(len(part.resources) for part in parts) - len(both.resources)
    assert any(f"left out {left_out:,} resource" in text for text in both.notices) == bool(left_out)


def test_memory_read_before_a_late_sample_goes_with_the_sample():
    # The outer sampler was late at 6: a pause, until its own note a moment after the inner one's.
    outer = sampled([1, 2, 3, 6], start=0, notes=[3.51])
    inner = sampled([1.1, 2.1, 3.1, 5.9], start=0.1, notes=[3.5])
    both = Recording.combine([outer, inner])
    assert rows(both.resources) == rows(outer.resources)
    assert rows(both.processes) == rows(outer.processes)


def test_memory_read_after_the_last_samples_goes_with_them():
    outer = sampled([1, 2, 3], start=0, notes=[3.5])
    inner = sampled([1.1, 2.1, 2.9], start=0.1, notes=[3.51])
    both = Recording.combine([outer, inner])
    assert rows(both.processes) == rows(outer.processes)


def test_two_resource_profilers_over_one_block_give_one_series(retried):
    naps = {("nap", n): (time.sleep, 0.1) for n in range(4)}

    def measure():
        # A sampler that came late has a pause in its series, which the other then fills.
        with ResourceProfiler(0.1) as outer, ResourceProfiler(0.1) as inner:
            dask.local.get_sync(naps, list(naps))
        both = Recording.combine([outer.recording, inner.recording])
        assert rows(both.resources) == rows(outer.recording.resources)
        assert rows(both.processes) == rows(outer.recording.processes)
        assert any(text.startswith("left out ") for text in both.notices)

    retried(measure)


def held(metric, computations, run="one", size=1.0):
    names = [name for name in computations for _ in range(2)]
    return replace(
        NOTHING,
        metric=metric,
        run_id=run,
        computations=filled_table("computations", {"computation": list(computations)}),
        cached_results=filled_table(
            "cached_results",
            {
                "key": [f"{name}-{n}" for n, name in enumerate(names)],
                "computation": names,
                "metric": [size] * len(names),
            },
        ),
    )


def test_results_that_two_cache_profilers_measured_alike_count_once():
    with CacheProfiler() as one, CacheProfiler() as two:
        compute()
    both = Recording.combine([one.recording, two.recording])
    assert rows(both.cached_results) == rows(one.recording.cached_results)
    assert both.metric == "count"
    assert both.notices == ("2 recordings recorded the same 1 computation; it is counted once",)


def test_a_second_metric_is_left_out_and_a_notice_names_it():
    with CacheProfiler() as one, CacheProfiler(sys.getsizeof) as two:
        compute()
    both = Recording.combine([one.recording, two.recording])
    assert (both.metric, rows(both.cached_results)) == ("count", rows(one.recording.cached_results))
    assert both.notices == (
        "3 cached results measured as getsizeof are left out: a combination has one metric, here "
        "count; show the recording with getsizeof separately",
    )
    other_way = Recording.combine([two.recording, one.recording])
    assert (other_way.metric, rows(other_way.cached_results)) == (
        "getsizeof",
        rows(two.recording.cached_results),
    )
    assert "measured as count are left out" in other_way.notices[0]


def test_results_of_another_computation_in_another_metric_are_not_added_up():
    both = Recording.combine([held("nbytes", ["c-1"], size=1e6), held("count", ["c-2"])])
    assert both.cached_results["computation"].tolist() == ["c-1", "c-1"]
    assert len(both.notices) == 1
    alike = Recording.combine([held("nbytes", ["c-1", "c-2"]), held("nbytes", ["c-2", "c-3"])])
    assert sorted(alike.cached_results["computation"].tolist()) == [
        "c-1",
        "c-1",
        "c-2",
        "c-2",
        "c-3",
        "c-3",
    ]


def test_a_metric_without_results_does_not_name_those_of_another():
    both = Recording.combine([replace(NOTHING, metric="count"), held("nbytes", ["c-1"])])
    assert (both.metric, len(both.cached_results), both.notices) == ("nbytes", 2, ())


def test_stack_samples_of_a_time_that_two_profilers_sampled_are_left_out_with_a_notice():
    part = replace(
        NOTHING,
        computations=filled_table("computations", {"computation": ["c-1"]}),
        samples=filled_table(
            "samples",
            {
                "start": [0.0, 1.0],
                "stop": [1.0, 2.0],
                "node": [-1, -1],
                "seconds": [0.5, 0.5],
            },
        ),
    )
    both = Recording.combine([part, part])
    assert len(both.samples) == 2
    assert both.notices == ("2 recordings recorded the same 1 computation; it is counted once",)


def test_a_second_environment_is_said_to_differ():
    def made_in(python, code="x = 1"):
        facts = filled_table(
            "environment",
            {
                "section": ["versions", "calling code"],
                "name": ["python", "1"],
                "value": [python, code],
            },
        )
        return replace(NOTHING, environment=facts)

    one, two = made_in("3.11"), made_in("3.12")
    both = Recording.combine([NOTHING, one, two])
    assert rows(both.environment) == rows(one.environment)
    assert both.notices == ("environment: that of the first recording; in others differ: versions",)
    assert Recording.combine([one, one, NOTHING]).notices == ()


def measured(function):
    started = time.process_time()
    result = function()
    return result, time.process_time() - started


@pytest.mark.once
def test_combining_a_million_tasks_takes_no_time_a_task():
    count, parts = 100_000, []
    for number in range(10):
        names = Categorical(np.zeros(count, np.uint8), [f"c-{number}"])
        task = np.arange(1, count)
        parts.append(
            replace(
                NOTHING,
                computations=filled_table("computations", {"computation": [f"c-{number}"]}),
                tasks=filled_table("tasks", {"computation": names, "start": np.zeros(count)}),
                dependencies=filled_table("dependencies", {"task": task, "depends_on": task - 1}),
            )
        )
    # The better of two: neighbours clear the caches of one, but seldom of both.
    runs = [measured(lambda: Recording.combine([*parts, parts[0]])) for _ in range(2)]
    assert all(len(both.tasks) == 1_000_000 for both, _ in runs)
    # So long take twenty steps of a loop for each row, on this machine.
    _, of_loop = measured(lambda: sum(1 for _ in range(10_000_000)))
    assert min(seconds for _, seconds in runs) < 2 * of_loop + 0.2


def of_a_cluster(start, stop, workers, others=(), events=(), lanes=()):
    """A part: workers (label, address, joined, left), what happened (label, start, stop)."""

    def columns(rows, *names):
        return {name: [row[index] for row in rows] for index, name in enumerate(names)}

    return replace(
        NOTHING,
        start=start,
        stop=stop,
        computations=filled_table(
            "computations",
            {"computation": [f"c{start}"], "start": [start], "stop": [stop], "cluster": ["one"]},
        ),
        tasks=filled_table(
            "tasks",
            {
                "worker": list(lanes),
                "computation": [f"c{start}"] * len(lanes),
                "outcome": ["ok"] * len(lanes),
            },
        ),
        workers=filled_table(
            "workers",
            {
                "computation": ["one"] * len(workers),
                **columns(workers, "worker", "address", "joined", "left"),
                "threads": [2] * len(workers),
            },
        ),
        other_tasks=filled_table(
            "other_tasks",
            {"computation": ["one"] * len(others), **columns(others, "worker", "start", "stop")},
        ),
        worker_events=filled_table(
            "worker_events",
            {
                "computation": ["one"] * len(events),
                "event": ["paused"] * len(events),
                **columns(events, "worker", "start", "stop"),
            },
        ),
    )


def workers_of(recording):
    names = ("worker", "address", "joined", "left")
    return sorted(tuple(row[name] for name in names) for row in recording.workers.to_dicts())


def test_a_worker_that_a_later_block_of_its_cluster_lacks_left_before_it():
    first = of_a_cluster(
        0.0, 10.0, [("a", "tcp:1", -5.0, math.nan), ("b", "tcp:2", -5.0, math.nan)]
    )
    # As the scheduler has logged it for this block.
    second = of_a_cluster(20.0, 30.0, [("a", "tcp:1", -4.99, math.nan)])
    for parts in ([first, second], [second, first]):
        a, b = workers_of(Recording.combine(parts))
        assert a[:3] == ("a", "tcp:1", -5.0)
        assert math.isnan(a[3])
        assert b == ("b", "tcp:2", -5.0, 10.0)


def test_workers_of_two_blocks_have_names_of_their_own():
    """One name for two, one address for two, and two names for one."""
    first = of_a_cluster(
        0.0,
        10.0,
        [("x", "tcp:1", -5.0, 9.0), ("y (2)", "tcp:3", -5.0, math.nan)],
        others=[("x", 1.0, 2.0)],
        lanes=["x/0", "y (2)/0"],
    )
    second = of_a_cluster(
        20.0,
        30.0,
        [
            ("x", "tcp:2", 15.0, math.nan),
            ("z", "tcp:1", 12.0, math.nan),
            ("y", "tcp:3", -5.0, math.nan),
        ],
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
    workers = [("a", "tcp:1", -5.0, math.nan)]
    first = of_a_cluster(0.0, 10.0, workers, others=[("a", 1.0, 2.0), ("a", 8.0, 10.0)])
    same = of_a_cluster(0.5, 11.0, workers, others=[("a", 1.0, 2.0), ("a", 8.0, 11.0)])
    later = of_a_cluster(20.0, 30.0, workers, others=[("a", 21.0, 22.0)])
    others = Recording.combine([first, same, later]).other_tasks
    rows = list(zip(others.start.tolist(), others.stop.tolist(), strict=True))
    assert rows == [(1.0, 2.0), (8.0, 11.0), (21.0, 22.0)]


def test_programs_that_were_recorded_on_one_cluster_at_once_are_named_in_a_notice():
    workers = [("a", "tcp:1", -5.0, math.nan)]
    first = replace(of_a_cluster(0.0, 10.0, workers, others=[("a", 1.0, 4.0)]), run_id="one")
    second = replace(of_a_cluster(0.5, 12.0, workers), run_id="two")
    later = replace(of_a_cluster(20.0, 30.0, workers), run_id="two")
    (notice,) = Recording.combine([first, second]).notices
    assert notice.startswith("several programs were recorded on one cluster at the same time")
    for other in (later, replace(second, run_id="one")):
        assert Recording.combine([first, other]).notices == ()
