"""What profiling itself costs is measured, shown, and no evidence against the program."""

from __future__ import annotations

import cProfile
import gc
import itertools
import math
import sys
import threading
import time
import tracemalloc
from contextlib import ExitStack
from dataclasses import replace
from operator import add

import dask.array as da
import dask.local
import dask.multiprocessing
import dask.threaded
import numpy as np
import pytest
from click.testing import CliRunner

import dask_diag
from dask_diag import (
    CacheProfiler,
    Profiler,
    Recording,
    ResourceProfiler,
    SamplingProfiler,
    findings,
    save,
)
from dask_diag.analysis.facts import Analysis
from dask_diag.cli.main import main
from dask_diag.formatting import seconds
from dask_diag.hooks import calls
from dask_diag.model.codes import PROFILING
from dask_diag.profilers import base, engine
from dask_diag.system.periodic import OwnThread

from .recordings import NOTHING, with_tables


def trivial(tasks):
    return {("add", n): (add, n, 1) for n in range(tasks)}


def profiled(*profilers, tasks=50, get=dask.local.get_sync):
    dsk = trivial(tasks)
    for profiler in profilers:
        profiler.__enter__()
    try:
        get(dsk, list(dsk))
    finally:
        for profiler in profilers:
            profiler.__exit__()
    return profilers[-1].recording


@pytest.fixture
def calibrated(monkeypatch):
    """What each kind of hook takes for a task, in place of what it takes here."""
    measured = {"tasks": 1e-3, "waits": 5e-3, "stacks": 3e-3}
    measured |= {"results": 1e-4, "tasks and results": 1.1e-3}
    monkeypatch.setattr(engine, "_costs", measured)


@pytest.mark.parametrize(
    ("make", "per_task"),
    [
        (lambda: [Profiler()], 1e-3),
        (lambda: [CacheProfiler()], 1e-4),
        (lambda: [SamplingProfiler()], 3e-3),
        # Another profiler of tasks finds them measured already.
        (lambda: [Profiler(), Profiler()], 1e-3),
        (lambda: [Profiler(), SamplingProfiler(), CacheProfiler()], 3.1e-3),
        (lambda: [ResourceProfiler()], 0.0),
        (lambda: [Profiler(waits=True)], 5e-3 if sys.platform == "linux" else 1e-3),
    ],
)
def test_hooks_count_per_task_and_once(make, per_task, calibrated):
    recording = profiled(*make())
    assert recording.computations.cpu_hooks.tolist() == pytest.approx([50 * per_task])
    assert " in hooks and " in profiling_line(recording)


def test_a_calibration_is_done_once_and_its_failure_is_a_notice(monkeypatch):
    monkeypatch.setattr(engine, "_costs", {})
    measure, calls = engine.seconds_per_task, []

    def count(name, rehearse):
        return measure(name, lambda: calls.append(name) or rehearse())

    monkeypatch.setattr(base, "seconds_per_task", count)
    for _ in range(3):
        assert profiled(Profiler()).computations.cpu_hooks[0] > 0
    assert len(calls) == 1

    def fail(*args):
        raise ZeroDivisionError("no clock")

    monkeypatch.setattr(base, "seconds_per_task", fail)
    recording = profiled(Profiler())
    assert len(recording.tasks) == 50
    assert "failed to calibrate its hooks: ZeroDivisionError: no clock" in recording.notices[0]


class SlowAtEnds(Profiler):
    """Its hooks take 10 ms of CPU each: as a computation starts, has a state, and ends."""

    def _began(self, computation):
        burn(0.01)

    def tasks_start(self, watch):
        burn(0.01)

    def computation_ends(self, computation, failed):
        burn(0.01)


def test_what_hooks_take_as_computations_start_and_end_is_measured():
    # One of them has ended when the computation's end is published, the other one has not.
    first, second = SlowAtEnds(), SlowAtEnds()
    with first, second:
        for noting in (0.0, 0.0, 0.5):
            # What notices calls of dask counts, too.
            calls.spend_on_noting(time.thread_time() - noting)
            dask.delayed(int)(1).compute(scheduler="threads")
    for profiler in (first, second):
        spent = profiler.recording.computations.cpu_ends - [0.0, 0.0, 0.5]
        assert spent.min() >= 2 * 0.03
        assert spent.max() < 2 * 0.03 + 0.03
    assert Analysis(first.recording).cpu_of_hooks >= 3 * 2 * 0.03


def test_hooks_in_worker_processes_are_not_known(calibrated):
    recording = profiled(Profiler(), tasks=3, get=dask.multiprocessing.get)
    assert np.isnan(recording.computations.cpu_hooks).all()
    line = profiling_line(recording)
    assert "not known: hooks in worker processes" in line
    # What is known is that of this process, as the computation started and ended.
    ends = recording.computations.cpu_ends.item()
    assert f"about {seconds(ends)} in hooks" in line


def burn(cpu):
    end = time.thread_time() + cpu
    while time.thread_time() < end:
        pass


def test_own_threads_count_once_also_between_computations():
    stop, burnt = threading.Event(), threading.Event()

    def in_own_thread(cpu, wait=False):
        burn(cpu)
        burnt.set()
        assert not wait or stop.wait(10)

    def start(*args):
        thread = OwnThread("test", in_own_thread, args)
        thread.start()
        return thread

    start(0.1).join()
    with Profiler() as prof:
        for lives_on in (False, False, True):
            burnt.clear()
            thread = start(0.02, lives_on)
            assert burnt.wait(10)
            if not lives_on:
                thread.join()
            dask.threaded.get(trivial(3), ("add", 0))
        stop.set()
        thread.join()
    spent = prof.recording.computations.cpu_own_threads
    assert spent.min() >= 0.02
    assert spent.sum() < 0.06 + 0.03
    assert Analysis(prof.recording).cpu_of_own_threads == pytest.approx(spent.sum())


def added_and_said(make, work, blocks):
    """CPU that profilers added in pairs of blocks, with and without, and what a summary said."""

    def spent(profilers):
        gc.collect()
        with ExitStack() as entered:
            for profiler in profilers:
                entered.enter_context(profiler)
            start = time.process_time()
            work()
            return time.process_time() - start

    spent(make())
    added, said = [], []
    for _ in range(blocks):
        for is_first in (True, False):
            profilers = make()
            parts = ([], profilers) if is_first else (profilers, [])
            by_number = {len(part): spent(part) for part in parts}
            added.append(by_number[len(profilers)] - by_number[0])
            recordings = [profiler.recording for profiler in profilers]
            said.append(Analysis(Recording.combine(recordings)).most_cpu_of_profilers)
    return np.array(added), np.array(said)


@pytest.mark.truth
@pytest.mark.leaves_files
@pytest.mark.parametrize("kind", ["Profiler", "three", "waits", "stacks", "record"])
def test_what_is_said_is_at_least_what_was_added(kind, tmp_path, retried):
    """Forty computations of fifty tasks, as interactive programs make them."""
    x = da.ones((600, 600), chunks=100).sum()
    numbers = itertools.count()
    makes = {
        "Profiler": lambda: [Profiler()],
        "three": lambda: [Profiler(), ResourceProfiler(), CacheProfiler()],
        "waits": lambda: [Profiler(waits=True)],
        "stacks": lambda: [SamplingProfiler()],
        "record": lambda: [dask_diag.record(tmp_path / f"{next(numbers)}.diag")],
    }

    def work():
        for _ in range(40):
            x.compute(scheduler="threads", num_workers=2)

    def measure():
        added, said = added_and_said(makes[kind], work, blocks=3)
        error = added.std(ddof=1) / len(added) ** 0.5
        assert said.mean() >= added.mean() - error
        # It is no bound that would hold for anything.
        assert said.mean() < 4 * added.mean() + 4 * error

    retried(measure)


def profiling_line(recording):
    text = " ".join(str(dask_diag.summary(recording, verbose=True)).split())
    return text.partition("Profiling ")[2]


def with_own_cost(hooks=0.05, threads=0.15, ends=0.2):
    """A computation of 1000 tasks in 2 s, and the CPU of its hooks, threads and ends."""
    groups = {
        "computation": ["c"] * 3,
        "kind": ["tasks", "dask_diag", "dask_diag"],
        "name": ["pool", "dask_diag-sampler", "dask_diag-record"],
        "cpu_seconds": [0.5, threads - 0.05, 0.05],
    }
    times = np.arange(1000) * 2e-3
    return with_tables(
        replace(NOTHING, start=0.0, stop=2.0),
        computations={
            "workers": [1],
            "cpus": [1],
            "computation": ["c"],
            "start": [0.0],
            "stop": [2.0],
            "scheduler": ["threads"],
            "cpu_process": [1.0],
            "cpu_scheduler": [0.5],
            "cpu_hooks": [hooks],
            "cpu_ends": [ends],
        },
        threads=groups if threads else {},
        tasks={
            "function": ["x"] * 1000,
            "start": times,
            "stop": times + 1e-4,
            "thread_cpu": [1e-4] * 1000,
            "thread_noncpu": [0.0] * 1000,
            "submitted": times,
            "collected": times + 2e-3,
            "worker": ["thread-0"] * 1000,
            "computation": ["c"] * 1000,
            "outcome": ["ok"] * 1000,
        },
    )


@pytest.mark.parametrize(
    ("costs", "line"),
    [
        # Five times what is calibrated, and half as much again as what is measured.
        (
            {},
            "at most 775 ms of CPU, 39% of the wall time (about 250 ms in hooks and 150 ms in "
            "threads, and what these slow down)",
        ),
        ({"hooks": math.nan, "ends": math.nan, "threads": 0}, "not known: hooks and threads"),
        (
            {"threads": 0},
            "at most 550 ms of CPU, 28% of the wall time (about 250 ms in hooks, and what these "
            "slow down); not known: threads",
        ),
        (
            {"hooks": 0.25, "ends": math.nan},
            "at most 1.48 s of CPU, 74% of the wall time (about 250 ms in hooks and 150 ms in "
            "threads, and what these slow down); not known: hooks at the start and the end of "
            "computations",
        ),
    ],
)
def test_the_summary_says_what_profiling_cost(costs, line):
    assert profiling_line(with_own_cost(**costs)).startswith(line)
    assert "Profiling" not in dask_diag.summary(NOTHING)


@pytest.mark.leaves_files
def test_remarks_on_the_profilers_are_shown_if_asked_for_or_too_many_samples_are_late():
    def late_recording(late):
        return with_tables(
            replace(
                with_own_cost(),
                notices=(f"{PROFILING}SamplingProfiler was late once", "the sizes of 3 results"),
            ),
            resources={
                "time": np.linspace(0.1, 2.0, 100),
                "cpu": [50.0] * 100,
                "memory": [1e8] * 100,
                "delay": [0.4] * late + [0.001] * (100 - late),
            },
        )

    save(late_recording(1), "late.diag")
    texts = []
    for options in ([], ["--verbose"]):
        result = CliRunner().invoke(main, ["summary", *options, "late.diag"])
        assert result.exit_code == 0
        texts.append(" ".join(result.output.split()))
    plain, verbose = texts
    for remark in (
        *("was late once", "late-samples", "later than planned", "as calibrated"),
        *("200 ms of CPU a computation, measured; 50.0 µs of CPU a task", "max 400 ms"),
    ):
        assert remark not in plain
        assert remark in verbose
    assert "the sizes of 3 results" in plain
    assert "39% of the wall time; more with --verbose" in plain
    assert "150 ms in threads, and what these slow down)" in verbose
    assert "late-samples" in dask_diag.summary(late_recording(90))


def test_overhead_of_hooks_is_no_evidence_that_tasks_are_too_small():
    """Half of the wall was spent in hooks: half of the overhead is not the program's."""

    def evidence(hooks):
        return {f.code: f.evidence for f in findings(with_own_cost(hooks))}["tasks-too-small"]

    assert Analysis(with_own_cost(1.0)).activities["overhead"] == pytest.approx(1.9)
    assert "100 µs of work and 1.90 ms of scheduling overhead" in evidence(0.0)
    assert "100 µs of work and 950 µs of scheduling overhead" in evidence(1.0)
    assert "tasks-too-small" not in {f.code for f in findings(with_own_cost(2.0))}


@pytest.mark.parametrize("name", ["tracemalloc", "a trace function", "cProfile"])
def test_a_tracer_that_was_on_is_said_once(name):
    profile = cProfile.Profile()
    start, stop = {
        "tracemalloc": (tracemalloc.start, tracemalloc.stop),
        "a trace function": (lambda: sys.settrace(lambda *_: None), lambda: sys.settrace(None)),
        "cProfile": (profile.enable, profile.disable),
    }[name]
    before = sys.gettrace()
    with Profiler() as prof:
        start()
        try:
            for _ in range(2):
                dask.compute(dask.delayed(int)(), scheduler="synchronous")
        finally:
            stop()
            sys.settrace(before)
    said = [notice for notice in prof.recording.notices if "durations include its cost" in notice]
    assert len(said) == 1 + (before is not None and name != "a trace function")
    assert name in " ".join(said)
