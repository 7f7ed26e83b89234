"""What profiling itself costs is measured, shown, and no evidence against the program."""

from __future__ import annotations

import gc
import itertools
import math
import threading
import time
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

from .commands import run
from .recordings import NOTHING
from .tables import filled_table


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
    ],
)
def test_hooks_count_per_task_and_once(make, per_task, calibrated):
    recording = profiled(*make())
    assert recording.computations.hooks_cpu.tolist() == pytest.approx([50 * per_task])


def test_waits_have_hooks_of_their_own(calibrated):
    prof = Profiler(waits=True)
    recording = profiled(prof)
    expected = 1e-3 if "waits=True" in " ".join(prof.notices()) else 5e-3
    assert recording.computations.hooks_cpu.tolist() == pytest.approx([50 * expected])


def test_calibration_is_done_once(monkeypatch):
    monkeypatch.setattr(engine, "_costs", {})
    done = []

    def rehearse():
        done.append("rehearsed")
        return done.append

    for _ in range(3):
        assert engine.seconds_per_task("x", rehearse) > 0
    assert done.count("rehearsed") == 1
    assert len(done) < 1_000


def test_a_calibration_that_fails_is_a_notice(monkeypatch):
    def fail(*args):
        raise ZeroDivisionError("no clock")

    monkeypatch.setattr(base, "seconds_per_task", fail)
    recording = profiled(Profiler())
    assert len(recording.tasks) == 50
    assert "failed to calibrate its hooks: ZeroDivisionError: no clock" in recording.notices[0]


def test_hooks_take_about_what_was_calibrated(retried):
    """Real tasks empty the caches, so that they take somewhat more."""
    dsk = trivial(3_000)

    def cpu(profilers):
        for profiler in profilers:
            profiler.__enter__()
        start = time.thread_time()
        dask.local.get_sync(dsk, list(dsk))
        spent = time.thread_time() - start
        for profiler in profilers:
            profiler.__exit__()
        return spent / len(dsk)

    def measure():
        with_hooks, without = [], []
        for _ in range(5):
            without.append(cpu([]))
            with_hooks.append(cpu([Profiler(waits=True), CacheProfiler()]))
        added = min(with_hooks) - min(without)
        prof, cache = Profiler(waits=True), CacheProfiler()
        recording = profiled(prof, cache, tasks=1)
        assert 0.3 < recording.computations.hooks_cpu[0] / added < 1.5

    retried(measure)


def test_hooks_in_worker_processes_are_not_known(calibrated):
    recording = profiled(Profiler(), tasks=3, get=dask.multiprocessing.get)
    assert np.isnan(recording.computations.hooks_cpu).all()
    line = profiling_line(recording)
    assert "not known: hooks in worker processes" in line
    # What is known is that of this process, as the computation started and ended.
    ends = recording.computations.ends_cpu.item()
    assert f"about {seconds(ends)} in hooks" in line


def burn(cpu):
    end = time.thread_time() + cpu
    while time.thread_time() < end:
        pass


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
    dsk = trivial(3)
    with first, second:
        for _ in range(3):
            dask.threaded.get(dsk, list(dsk))
    for profiler in (first, second):
        spent = profiler.recording.computations.ends_cpu
        assert len(spent) == 3
        assert spent.min() >= 2 * 0.03
        assert spent.max() < 2 * 0.03 + 0.03
    assert Analysis(first.recording).cpu_of_hooks >= 3 * 2 * 0.03


def test_what_notices_calls_of_dask_counts():
    with Profiler() as prof:
        calls.spend_on_noting(time.thread_time() - 0.5)
        dask.delayed(int)(1).compute(scheduler="sync")
        dask.delayed(int)(1).compute(scheduler="sync")
    first, second = prof.recording.computations.ends_cpu.tolist()
    assert first > 0.5
    assert second < 0.25


def test_own_threads_count_once_also_between_computations():
    def in_own_thread(cpu):
        thread = OwnThread("test", burn, (cpu,))
        thread.start()
        thread.join()

    in_own_thread(0.1)
    dsk = trivial(3)
    with Profiler() as prof:
        for _ in range(3):
            in_own_thread(0.02)
            dask.threaded.get(dsk, list(dsk))
    spent = prof.recording.computations.own_threads_cpu
    assert spent.min() >= 0.02
    assert spent.sum() < 0.06 + 0.03
    assert Analysis(prof.recording).cpu_of_own_threads == pytest.approx(spent.sum())


def test_a_thread_that_lives_on_counts_too():
    stop = threading.Event()

    def burn_and_wait():
        burn(0.05)
        burnt.set()
        stop.wait(10)

    burnt = threading.Event()
    with Profiler() as prof:
        thread = OwnThread("test", burn_and_wait)
        thread.start()
        assert burnt.wait(10)
        dask.local.get_sync(trivial(1), [("add", 0)])
        stop.set()
        thread.join()
    assert 0.05 <= prof.recording.computations.own_threads_cpu.item() < 0.08


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
    text = " ".join(str(dask_diag.summary(recording)).split())
    return text.partition("Profiling ")[2]


def with_own_cost(hooks=0.05, threads=0.15, wall=2.0, ends=0.2):
    computation = {
        "computation": ["c"],
        "start": [0.0],
        "stop": [wall],
        "workers": [1],
        "cpus": [1],
        "scheduler": ["threads"],
        "process_cpu": [1.0],
        "scheduler_cpu": [0.5],
        "hooks_cpu": [hooks],
        "ends_cpu": [ends],
    }
    groups = {
        "computation": ["c"] * 3,
        "kind": ["tasks", "dask_diag", "dask_diag"],
        "name": ["pool", "dask_diag-sampler", "dask_diag-record"],
        "threads": [1, 1, 1],
        "cpu_seconds": [0.5, threads - 0.05, 0.05],
    }
    return replace(
        NOTHING,
        start=0.0,
        stop=wall,
        notices=(),
        computations=filled_table("computations", computation),
        threads=filled_table("threads", groups),
        tasks=filled_table(
            "tasks",
            {
                "key": [f"x-{n}" for n in range(1000)],
                "function": ["x"] * 1000,
                "start": np.arange(1000) * 2e-3,
                "stop": np.arange(1000) * 2e-3 + 1e-4,
                "thread_cpu": [1e-4] * 1000,
                "thread_noncpu": [0.0] * 1000,
                "submitted": np.arange(1000) * 2e-3,
                "collected": np.arange(1000) * 2e-3 + 2e-3,
                "worker": ["thread-0"] * 1000,
                "computation": ["c"] * 1000,
                "outcome": ["ok"] * 1000,
            },
        ),
    )


def test_the_summary_says_what_profiling_cost():
    line = profiling_line(with_own_cost())
    assert line.startswith(
        # Five times what is calibrated, and half as much again as what is measured.
        "at most 775 ms of CPU, 39% of the wall time (about 250 ms in hooks and 150 ms in threads, "
        "and what these slow down)"
    )


def test_the_summary_says_what_is_not_known_of_it():
    unknown = with_own_cost(hooks=math.nan, ends=math.nan)
    unknown = replace(unknown, threads=filled_table("threads", {}))
    assert profiling_line(unknown) == "not known: hooks and threads"
    only_hooks = replace(with_own_cost(), threads=filled_table("threads", {}))
    assert profiling_line(only_hooks) == (
        "at most 550 ms of CPU, 28% of the wall time (about 250 ms in hooks, and what these slow "
        "down); not known: threads"
    )
    only_tasks = with_own_cost(hooks=0.25, ends=math.nan)
    assert profiling_line(only_tasks).endswith(
        "; not known: hooks at the start and the end of computations"
    )


def test_every_summary_of_computations_says_so():
    for profiler in (Profiler(), ResourceProfiler(), CacheProfiler(), SamplingProfiler()):
        assert " in hooks and " in profiling_line(profiled(profiler))
    assert "Profiling" not in dask_diag.summary(NOTHING)


def test_overhead_of_hooks_is_no_evidence_that_tasks_are_too_small():
    """Half of the wall was spent in hooks: half of the overhead is not the program's."""

    def evidence(hooks):
        return {f.code: f.evidence for f in findings(with_own_cost(hooks))}["tasks-too-small"]

    assert Analysis(with_own_cost(1.0)).activities["overhead"] == pytest.approx(1.9)
    assert "100 µs of work and 1.90 ms of overhead" in evidence(0.0)
    assert "100 µs of work and 950 µs of overhead" in evidence(1.0)
    assert "tasks-too-small" not in {f.code for f in findings(with_own_cost(2.0))}


def late_recording(late=1, samples=100):
    resources = {
        "time": np.linspace(0.1, 2.0, samples),
        "cpu": [50.0] * samples,
        "memory": [1e8] * samples,
        "memory_children": [0.0] * samples,
        "delay": [0.4] * late + [0.001] * (samples - late),
    }
    return replace(
        with_own_cost(),
        notices=(f"{PROFILING}SamplingProfiler came late once", "the sizes of 3 results"),
        resources=filled_table("resources", resources),
    )


def test_remarks_on_the_profilers_are_shown_if_asked_for():
    """One line on the cost is always there, and says that there is more."""
    plain = " ".join(dask_diag.summary(late_recording()).split())
    verbose = " ".join(dask_diag.summary(late_recording(), verbose=True).split())
    for remark in ("came late once", "late-samples", "later than planned", "as calibrated"):
        assert remark not in plain
        assert remark in verbose
    assert "the sizes of 3 results" in plain
    assert "150 ms in threads, and what these slow down); 2 remarks on sampling" in plain
    assert "remarks on sampling" not in verbose
    assert "200 ms of CPU a computation, measured; 50.0 µs" in verbose
    assert "50.0 µs of CPU a task" in verbose
    assert "100 samples of CPU and memory" in verbose
    assert "1.00 ms (median), max 400 ms" in verbose


def test_samples_too_late_to_be_relied_on_are_reported_unasked():
    assert "late-samples" in dask_diag.summary(late_recording(late=90))


@pytest.mark.leaves_files
def test_the_command_line_has_an_option_for_them(tmp_path):
    path = str(tmp_path / "late.diag")
    save(late_recording(), path)
    for options, is_shown in (([], False), (["-v"], True), (["--verbose"], True)):
        result = CliRunner().invoke(main, ["summary", *options, path])
        assert result.exit_code == 0
        assert ("came late once" in result.output) == is_shown


@pytest.mark.once
@pytest.mark.leaves_files
def test_run_has_the_option_too(tmp_path):
    program = "import dask; dask.delayed(int)(1).compute(scheduler='threads')"
    for options, is_shown in (([], False), (["--verbose"], True)):
        ended = run("run", "-f", *options, "-c", program, cwd=tmp_path, text=True)
        assert ended.returncode == 0
        assert "Profiling" in ended.stderr
        assert ("as calibrated" in ended.stderr) == is_shown
