"""Memory: series of a sampler, and what functions took, against allocations of known size."""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
import time
from dataclasses import replace

import dask.local
import dask.multiprocessing
import dask.threaded
import numpy as np
import pytest

import dask_diag
from dask_diag import (
    DiagnosticError,
    MemorySampler,
    Profiler,
    Recording,
    ResourceProfiler,
    summary,
    task_memory,
)
from dask_diag.errors import MissingDependencyError
from dask_diag.system.processes import LinuxReader, MemoryTree, ProcessReader

from .recordings import NOTHING, with_tables

pytestmark = pytest.mark.once

MB = 1_000_000
NAN = float("nan")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="PSS is reported on Linux")


def take(megabytes, seconds=0.3):
    block = np.ones(megabytes * MB // 8)
    time.sleep(seconds)
    return float(block[0])


def profiled(get, dsk, **kwargs):
    with Profiler() as prof, ResourceProfiler(dt=0.01) as rprof:
        get(dsk, list(dsk), **kwargs)
    return Recording.combine([prof.recording, rprof.recording])


SCHEDULERS = [dask.local.get_sync, dask.threaded.get, dask.multiprocessing.get]


@pytest.mark.parametrize("get", SCHEDULERS)
def test_what_a_task_took_alone_is_exact(get, retried):
    def measure():
        recording = profiled(get, {("take", 0): (take, 200)})
        (row,) = task_memory(recording).to_dicts()
        assert (row["function"], row["tasks"], row["sampled"]) == ("take", 1, 1)
        assert (row["exact"], row["bound"]) == (1, "exact")
        assert row["peak_growth"] == pytest.approx(200 * MB, rel=0.1)
        assert row["median_growth"] == row["peak_growth"]
        assert row["max_memory"] - row["min_memory"] <= 1.1 * 200 * MB
        assert re.search(
            r"Memory growth +take (1[89]|2[01])\d MB \(median \d+ MB, 90% of tasks\s+\d+ MB\)",
            str(summary(recording, verbose=True)),
        )

    retried(measure)


@pytest.mark.parametrize("get", SCHEDULERS[1:])
def test_tasks_that_overlap_are_upper_bounds_but_in_processes(get, retried):
    def measure():
        dsk = {("one", 0): (take, 200, 0.5), ("two", 0): (take, 100, 0.5)}
        pool = None
        if get is dask.multiprocessing.get:
            pool = multiprocessing.get_context("spawn").Pool(2)
        try:
            if pool:
                # Both have done something by then; their samples begin before the tasks do.
                pool.map(take, [1] * 4)
            recording = profiled(get, dsk, num_workers=2, pool=pool, chunksize=1)
        finally:
            if pool:
                pool.close()
                pool.join()
        tasks = recording.tasks
        assert min(tasks["stop"]) > max(tasks["start"])
        rows = {row["function"]: row for row in task_memory(recording).to_dicts()}
        growth = [rows[name]["peak_growth"] for name in ("one", "two")]
        if pool:
            assert {row["bound"] for row in rows.values()} == {"exact"}
            assert growth == pytest.approx([200 * MB, 100 * MB], rel=0.1)
        else:
            assert {row["bound"] for row in rows.values()} == {"upper"}
            assert [row["exact"] for row in rows.values()] == [0, 0]
            assert min(growth) >= 0.9 * 100 * MB
            assert 0.9 * 200 * MB <= max(growth) <= 1.1 * 300 * MB

    retried(measure)


def test_between_tasks_memory_is_noted_for_a_small_share_of_the_time():
    with ResourceProfiler(dt=1) as rprof:
        dask.local.get_sync(
            {("f", n): (int,) for n in range(5000)}, [("f", n) for n in range(5000)]
        )
    lasted = rprof.end_time - rprof.start_time
    moments = len(np.unique(rprof.recording.processes["time"]))
    # At the start, soon after it, at the end, every second, and ten times in that.
    assert moments <= 5 + lasted + 10 * lasted


def recording_of(tasks, samples, computations=((0.0, 1000.0),)):
    """Tasks are (pid, start, stop), samples (time, pid, memory); pid 1 computations."""
    pid, start, stop = zip(*tasks, strict=True)
    times, of, memory = zip(*samples, strict=True)
    starts, stops = zip(*computations, strict=True)
    count = len(tasks)
    return with_tables(
        replace(NOTHING, start=0.0, stop=1000.0),
        computations={
            "computation": [f"c{n}" for n in range(len(starts))],
            "start": starts,
            "stop": stops,
            "workers": [1] * len(starts),
        },
        tasks={
            "key": [f"('f', {n})" for n in range(count)],
            "function": ["fg"[n % 2] for n in range(count)],
            "start": start,
            "stop": stop,
            "submitted": np.nan_to_num(start),
            "pid": pid,
            "computation": ["c0"] * count,
        },
        processes={
            "time": times,
            "pid": of,
            "is_child": [number != 1 for number in of],
            "memory": memory,
        },
    )


@pytest.mark.parametrize(
    ("tasks", "bounds", "growth", "exact"),
    [
        ([(1, 1.0, 2.0), (1, 3.0, 4.8), (1, 3.1, 4.9)], [(0.0, 9.0)], [800, 880, 880], [1, 0, 0]),
        # What an earlier compute left is not in the bound of a later one.
        (
            [(1, 1.0, 2.0), (1, 3.0, 4.8), (1, 3.1, 4.9)],
            [(0.9, 2.1), (2.9, 5.0)],
            [800, 80, 80],
            [1, 0, 0],
        ),
        # A task whose end is not known runs beside all that follow.
        ([(1, 1.0, 2.0), (1, 2.7, NAN), (1, 4.1, 4.6)], [(0.0, 9.0)], None, [1, 0, 0]),
    ],
)
def test_the_growth_of_tasks_by_hand(tasks, bounds, growth, exact):
    samples = list(zip((0.5, 1.5, 2.5, 3.5, 4.5), (1,) * 5, (100, 900, 900, 950, 980)))
    usage = task_memory(recording_of(tasks, samples, bounds), by="task")
    assert growth is None or usage["growth"].tolist() == growth
    assert usage["exact"].tolist() == exact


def test_half_and_nine_of_ten_tasks_grow_by_no_more_than_is_said(tmp_path_factory):
    """Task n of 40 grows by n MB: those of f by 0, 2, …, 38, those of g by 1, 3, …, 39."""
    tasks = [(1, n + 0.1, n + 0.9) for n in range(40)]
    samples = [(n + t, 1, 100 * MB + n * MB * (t == 0.5)) for n in range(40) for t in (0.0, 0.5)]
    recording = recording_of(tasks, [*samples, (40.0, 1, 100 * MB)])
    rows = {row["function"]: row for row in task_memory(recording).to_dicts()}
    names = ("tasks", "exact", "median_growth", "p90_growth", "peak_growth")
    assert [rows["f"][name] for name in names] == [20, 20, 18 * MB, 34 * MB, 38 * MB]
    assert [rows["g"][name] for name in names] == [20, 20, 19 * MB, 35 * MB, 39 * MB]
    page = recording.report(tmp_path_factory.mktemp("page") / "page.html").read_text("utf-8")
    assert "g 39.0 MB (median 19.0 MB, 90% of tasks 35.0 MB), f 38.0 MB (median 18.0 MB" in page
    for largest in ("38.0 MB", "39.0 MB"):
        assert f'data-name="memory of a task">{largest}</td>' in page


def test_nothing_to_show_is_reported_as_such():
    with Profiler() as prof:
        dask.local.get_sync({("f", 0): (int,)}, ("f", 0))
    (row,) = task_memory(prof.recording).to_dicts()
    assert (row["sampled"], row["bound"]) == (0, "")
    assert np.isnan(row["peak_growth"])
    assert len(task_memory(ResourceProfiler().recording)) == 0
    with pytest.raises(DiagnosticError, match="'function' or 'task'"):
        task_memory(prof.recording, by="worker")


def task_by_task(tasks, samples, computations=((0.0, 1000.0),)):
    """The same by definition, one task after the other."""
    children = {pid for _, pid, _ in samples if pid != 1}
    together = {}
    for moment, _, memory in samples:
        together[moment] = together.get(moment, 0) + memory
    for position, (pid, start, stop) in enumerate(tasks):
        if pid in children:
            seen = sorted((moment, memory) for moment, of, memory in samples if of == pid)
            beside = [task for task in tasks if task[0] == pid]
        else:
            seen, beside = sorted(together.items()), list(tasks)
        beside.remove(tasks[position])
        before = [sample for sample in seen if sample[0] < start]
        within = [memory for moment, memory in seen if start <= moment <= stop]
        if not within:
            yield 0, NAN, NAN, NAN, False
            continue
        idle = [moment for moment, _ in seen if not any(a <= moment <= b for a, b in computations)]
        since = max([moment for moment in idle if moment <= stop], default=-1)
        so_far = [memory for moment, memory in seen if since <= moment <= stop]
        alone = bool(before) and not any(a < stop and b > before[-1][0] for _, a, b in beside)
        growth = NAN
        if before:
            growth = max(0, max(within) - (before[-1][1] if alone else min(so_far)))
        yield len(within), min(within), max(within), growth, alone


@pytest.mark.parametrize("seed", range(30))
def test_all_tasks_at_once_are_as_one_after_the_other(seed):
    random = np.random.default_rng(seed)
    moments = np.unique(random.uniform(0, 20, random.integers(2, 60)))
    samples = [
        (moment, pid, int(random.integers(1, 1000)))
        for moment in moments
        for pid in (1, 2, 3)
        if pid == 1 or random.random() < 0.9
    ]
    starts = random.uniform(-1, 21, random.integers(1, 30))
    lasts = random.exponential(random.choice([0.2, 2.0]), len(starts))
    pids = random.integers(1, 5, len(starts)).tolist()
    tasks = list(zip(pids, starts.tolist(), (starts + lasts).tolist()))
    bounds = np.sort(random.uniform(-1, 21, 2 * random.integers(1, 5))).reshape(-1, 2).tolist()
    recording = recording_of(tasks, samples, bounds)
    usage = task_memory(recording, by="task")
    names = ("samples", "min_memory", "max_memory", "growth", "exact")
    for name, expected in zip(names, zip(*task_by_task(tasks, samples, bounds)), strict=True):
        np.testing.assert_array_equal(usage[name], expected, err_msg=name)
    for row in task_memory(recording).to_dicts():
        growth = usage["growth"][usage["function"].eq(row["function"])]
        growth = growth[~np.isnan(growth)]
        expected = [NAN] * 3
        if len(growth):
            expected = np.quantile(growth, [0.5, 0.9, 1.0], method="inverted_cdf")
        found = [row[f"{name}_growth"] for name in ("median", "p90", "peak")]
        np.testing.assert_array_equal(found, expected)


def test_each_block_is_a_series_that_ends_with_it(tmp_path):
    sampler, names = MemorySampler(), []
    for label in ("a", "a", "a (2)", None, None, ""):
        with sampler.sample(label) as name:
            names.append(name)
    started = time.perf_counter()
    with pytest.raises(KeyError), sampler.sample("x", interval=3600):
        raise KeyError("first")
    assert time.perf_counter() - started < 2
    assert names == ["a", "a (2)", "a (2) (2)", "sample", "sample (2)", "sample (3)"]
    assert list(sampler.samples) == [*names, "x"]
    assert all(len(samples) >= 1 for samples in sampler.samples.values())
    assert len(sampler.samples["x"]) == 2
    pandas = pytest.importorskip("pandas")
    frame = sampler.to_pandas()
    assert list(frame.columns) == [*names, "x"]
    first = sampler.samples["a"][0]
    assert frame.index[0] == pandas.Timestamp(first[0], unit="s")
    assert frame["a"].dropna().tolist() == [size for _, size in sampler.samples["a"]]
    aligned = sampler.to_pandas(align=True)
    assert aligned.index[0].total_seconds() == 0
    assert aligned.iloc[0].notna().all()
    assert MemorySampler().to_pandas().empty
    drawn = sampler.plot(align=True).renderers
    times = [r.data_source.data["time"] for r in drawn if type(r.glyph).__name__ == "Line"]
    assert {time[0] for time in times} == {0}
    with (hostile := MemorySampler()).sample("</script><script>alert(1)</script>\x1b[2J"):
        pass
    dask_diag.visualize(hostile, tmp_path / "page.html", show=False)
    assert "<script>alert(1)" not in (tmp_path / "page.html").read_text()
    (tmp_path / "page.html").unlink()
    assert "\x1b" not in summary(hostile)
    # Combined with others they stay apart, and are there once.
    with (other := MemorySampler()).sample("a"):
        pass
    parts = [sampler.recording, other.recording, sampler.recording]
    both = Recording.combine(parts).memory
    assert len(both) == len(parts[0].memory) + len(parts[1].memory)
    assert "a (3)" in both["label"].values


@pytest.mark.parametrize(
    ("kwargs", "error", "reported"),
    [
        ({"label": 3}, TypeError, "label: expected text, found int"),
        ({"measure": "managed"}, ValueError, "'process', 'rss', 'pss', 'uss', found 'managed'"),
        ({"interval": 0}, ValueError, "interval: expected seconds between samples"),
    ],
)
def test_an_impossible_argument_is_refused(kwargs, error, reported):
    with pytest.raises(error, match=reported):
        MemorySampler().sample(**kwargs)


def test_a_fault_is_reported_and_does_not_reach_the_program(monkeypatch):
    def broken(self, waited_for=False):
        raise OSError("/proc has gone")

    monkeypatch.setattr(MemoryTree, "read", broken)
    sampler = MemorySampler()
    with sampler.sample("x"):
        pass
    assert sampler.samples == {}
    assert "/proc has gone" in sampler.summary()
    monkeypatch.setitem(sys.modules, "pandas", None)
    reported = (
        r"to_pandas\(\) needs pandas: pip install pandas; samples and recording work without it"
    )
    with pytest.raises(MissingDependencyError, match=reported):
        sampler.to_pandas()


def test_a_series_sees_what_is_taken_and_let_go(retried):
    def measure():
        sampler = MemorySampler()
        with sampler.sample("take", interval=0.02, measure="rss") as name:
            time.sleep(0.1)
            block = np.ones(200 * MB // 8)
            time.sleep(0.1)
            del block
        assert name == "take"
        (samples,) = sampler.samples.values()
        sizes = [size for _, size in samples]
        assert max(sizes) - sizes[0] == pytest.approx(200 * MB, rel=0.1)
        assert sizes[-1] - sizes[0] < 20 * MB
        assert abs(samples[0][0] - time.time()) < 10
        table = sampler.recording.memory
        assert (np.diff(table["time"]) > 0).all()
        assert table["processes"].min() >= 1
        assert 0 <= np.median(table["delay"]) < 0.02

    retried(measure)


def wait_in_child(shared, started, end):
    started.release()
    end.wait(30)
    return shared


@LINUX
def test_forked_pages_are_counted_once_in_the_proportional_memory(retried):
    def measure():
        shared = np.ones(300 * MB // 8)
        context = multiprocessing.get_context("fork")
        started, end = context.Semaphore(0), context.Event()
        sampler = MemorySampler()
        with sampler.sample("fork", interval=0.02):
            arguments = (shared, started, end)
            children = [context.Process(target=wait_in_child, args=arguments) for _ in range(3)]
            for child in children:
                child.start()
            for _ in children:
                started.acquire()
            time.sleep(1.0)
            end.set()
            for child in children:
                child.join()
        table = sampler.recording.memory
        full = table["processes"] >= table["processes"].max()
        rss, pss, uss = (table[name][full] for name in ("rss", "pss", "uss"))
        assert table["processes"].max() >= 4
        assert np.nanmax(rss) > 4 * 300 * MB
        assert np.isfinite(pss).any()
        own = table["pss"][0]
        assert own > 300 * MB
        assert np.nanmax(pss) < own + 100 * MB
        # Each page of the array is in four processes.
        assert np.nanmin(uss) < table["uss"][0] - 250 * MB
        reported = [size for _, size in sampler.samples["fork"]]
        assert max(reported) == np.nanmax(table["pss"])

    retried(measure)


@LINUX
def test_both_readers_show_the_same():
    linux, portable = LinuxReader(), ProcessReader()
    pid = os.getpid()
    for read in ("resident", "cpu"):
        first, other = (getattr(reader, read)(pid) for reader in (linux, portable))
        assert first == pytest.approx(other, rel=0.05, abs=0.1)
    rss, pss, uss = linux.memory(pid)
    assert rss >= pss >= uss > 0
    with pytest.raises(ProcessLookupError):
        linux.resident(2**22 + 1)


@LINUX
def test_what_is_shared_is_read_for_a_fiftieth_of_the_time(monkeypatch):
    clock, cpu, memory = [100.0], [0.0], LinuxReader.memory

    def slow(reader, pid):
        cpu[0] += 0.2
        clock[0] += 0.2
        return memory(reader, pid)

    monkeypatch.setattr("dask_diag.system.processes.perf_counter", lambda: clock[0])
    monkeypatch.setattr("dask_diag.system.periodic.thread_time", lambda: cpu[0])
    monkeypatch.setattr(LinuxReader, "memory", slow)
    tree, read = MemoryTree(), 0
    for _ in range(200):
        read += not np.isnan(tree.read().pss)
        clock[0] += 10.0
    assert cpu[0] <= 0.02 * (clock[0] - 100.0) + 1.0
    assert read > 5
    tree.read()
    assert np.isnan(tree.read(waited_for=True).pss), "nobody waits for what takes long"
