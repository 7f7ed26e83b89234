"""What is done once for a computation costs as little as what is done for a task."""

from __future__ import annotations

import gc
import os
import threading
import tracemalloc
from contextlib import nullcontext, suppress
from time import process_time, thread_time
from unittest import mock

import numpy as np
import pytest
from dask.delayed import delayed

import dask_diag
from dask_diag import Profiler, Recording
from dask_diag.analysis.activities import seconds_by_activity
from dask_diag.analysis.occupancy import occupancies
from dask_diag.analysis.simulation import simulate as simulation
from dask_diag.analysis.wall_time import wall_time
from dask_diag.capture.lines.names import NamedSites
from dask_diag.capture.lines.sites import Site
from dask_diag.model.codes import LineSource
from dask_diag.system.usage import thread_pools

from .recordings import with_tables

NUMBER = 10_000
LINUX = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")


def compute(times):
    result = delayed(abs)(delayed(abs)(-1))
    for _ in range(times):
        result.compute(scheduler="threads", num_workers=2)


def record(path):
    return dask_diag.record(path / "run.diag", overwrite=True, waits=True)


# Samples are of so many seconds, and not of so many computations.
OF_TIME = (
    "*sampl*",
    "*/stacks_table.py",
    "*/call_tree.py",
    "*/threads.py",
    "*importlib*",
    "*numpy*",
)


def bytes_kept(block):
    with block:
        compute(100)
        gc.collect()
        tracemalloc.start()
        try:
            compute(300)
            gc.collect()
            filters = [tracemalloc.Filter(False, pattern) for pattern in OF_TIME]
            kept = tracemalloc.take_snapshot().filter_traces(filters).traces
            return sum(trace.size for trace in kept) / 300
        finally:
            tracemalloc.stop()


# 1.3 and 2.5 kB; it was 7.5 and 9.7.
@pytest.mark.leaves_files
@pytest.mark.parametrize(
    ("make", "most"),
    [(lambda path: Profiler(), 1_500), (record, 3_500)],
    ids=["Profiler", "record"],
)
def test_little_is_kept_of_a_computation(make, most, tmp_path):
    # What imports a module, once, where a computation happens to take long.
    thread_pools()
    by_dask = bytes_kept(nullcontext())
    assert bytes_kept(make(tmp_path)) - by_dask < most


def files_of_threads():
    paths = set()
    for number in os.listdir("/proc/self/fd"):
        # That of the listing itself is closed by now.
        with suppress(OSError):
            paths.add(os.readlink(f"/proc/self/fd/{number}"))
    return {path for path in paths if "/task/" in path}


@LINUX
@pytest.mark.parametrize(
    "make", [lambda path: Profiler(waits=True), record], ids=["waits", "record"]
)
@pytest.mark.leaves_files
def test_nothing_is_started_or_opened_for_each_computation(make, tmp_path):
    """The sampler's thread and the files of threads are those of the computation before."""
    started = []
    start = threading.Thread.start

    def noted(thread):
        started.append(thread.name)
        start(thread)

    gc.collect()
    others = files_of_threads()
    with make(tmp_path):
        compute(5)
        files = files_of_threads()
        with mock.patch.object(threading.Thread, "start", noted):
            compute(20)
        assert not [name for name in started if name.startswith("dask_diag")]
        # A worker that ran no task before has two.
        assert len(files_of_threads()) <= len(files) + 2
    left = [thread.name for thread in threading.enumerate()]
    assert not [name for name in left if name.startswith("dask_diag-")]
    gc.collect()
    assert files_of_threads() <= others


def test_computations_of_threads_at_once_each_have_a_task_whose_wait_was_read():
    with Profiler(waits=True) as prof:
        threads = [threading.Thread(target=compute, args=(20,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    recording = prof.recording
    assert len(recording.computations) == 80
    if len(recording.waits):
        read = recording.waits.task[recording.waits.activity.eq("cpu-wait")]
        assert len(set(recording.tasks.computation[read].tolist())) == 80


def many(number):
    """Computations of a load and a step on two threads, one of which overlaps the one before."""
    starts = np.arange(number) * 8e-3
    starts[-1] -= 7e-3
    names = [f"c-{n}" for n in range(number)]
    each = np.repeat(np.arange(number), 2)
    begins = np.repeat(starts, 2) + np.tile([2e-3, 4e-3], number)
    computations = {
        "computation": names,
        "called": starts,
        "start": starts + 5e-4,
        "prepared": starts + 1e-3,
        "stop": starts + 6e-3,
        "workers": [2] * number,
        "cpus": [2] * number,
        "scheduler": ["threads"] * number,
        "call_site": ["tiles.py:8"] * number,
        "cpu_scheduler": [1e-3] * number,
        "own_seconds": [2e-4] * number,
    }
    tasks = {
        "key": [f"{'step' if n % 2 else 'load'}-{n}" for n in range(2 * number)],
        "function": ["load", "step"] * number,
        "submitted": begins - 5e-4,
        "start": begins,
        "stop": begins + 1e-3 + np.tile([0.0, 4e-4], number),
        "collected": begins + 1.6e-3,
        "thread_cpu": [5e-4] * 2 * number,
        "thread_noncpu": 5e-4 + np.tile([0.0, 4e-4], number),
        "worker": ["thread-0", "thread-1"] * number,
        "computation": [names[n] for n in each],
        "outcome": ["ok"] * 2 * number,
    }
    steps = np.arange(1, 2 * number, 2)
    empty = Recording(start=0.0, stop=float(starts.max()) + 0.1, epoch=0.0)
    return with_tables(
        empty,
        computations=computations,
        tasks=tasks,
        dependencies={"task": steps, "depends_on": steps - 1},
    )


def test_series_have_the_seconds_of_their_computations():
    recording = many(1200)
    alone, joined = occupancies(recording), occupancies(recording, in_series=True)
    assert len(alone) == 1200
    # The one that overlaps is in no series.
    assert [each.is_series for each in joined] == [False, True]
    for of in (lambda each: each.wall, lambda each: each.worker_seconds):
        assert sum(map(of, joined)) == pytest.approx(sum(map(of, alone)))
    expected = seconds_by_activity(recording, alone)
    found = seconds_by_activity(recording, joined)
    assert found == pytest.approx(expected)
    expected, found = (wall_time(recording, None, each) for each in (alone, joined))
    assert found["part"].tolist() == expected["part"].tolist()
    assert found["seconds"].tolist() == pytest.approx(expected["seconds"].tolist())


@pytest.mark.parametrize("change", [{}, {"workers": 1}, {"remove": {"overhead"}}])
def test_of_many_computations_some_are_replayed(change, monkeypatch):
    recording = many(600)
    some = dask_diag.simulate(recording, **change)
    monkeypatch.setattr(simulation, "MOST_REPLAYED", 600)
    every = dask_diag.simulate(recording, **change)
    assert len(some.computations) == len(every.computations) == 600
    assert some.seconds == pytest.approx(every.seconds, rel=0.01)


@pytest.mark.leaves_files
def test_ten_thousand_computations_are_summed_up_soon(tmp_path):
    recording = many(NUMBER)
    start = process_time()
    recording.summary()
    recording.findings()
    # 1.4 s on an idle machine, 60 s once; then 2.5 s for a page of 1.7 MB.
    assert process_time() - start < 6
    path = recording.report(tmp_path / "page.html")
    assert process_time() - start < 20
    assert path.stat().st_size < 3e6
    assert "the 100 longest of 10,000" in path.read_text()


def test_a_name_is_found_as_quickly_among_many():
    def seconds(known):
        names, site = NamedSites(1_000_000), Site([], [], "")
        for n in range(known):
            names.note(f"known-{n:032x}", site)
        names.origin(f"other-{known + 1000:032x}")
        began = thread_time()
        for n in range(known, known + 200):
            names.note(f"new-{n:032x}", site)
            assert names.origin(f"of-new-{n:032x}") == (site, LineSource.TOKEN)
            assert names.origin(f"other-{known + 1000:032x}") is None
        return thread_time() - began

    assert seconds(50_000) < 20 * seconds(50)
