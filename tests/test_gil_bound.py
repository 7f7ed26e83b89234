"""Waits for the GIL where CPUs are short: the thread that has it waits for a CPU, and all others for it."""

from __future__ import annotations

import numpy as np
import pytest

from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.interpreter import gil_bound
from dask_diag.analysis.simulation.schedulers import BYTES_A_SECOND, POOL_START

from .tables import with_columns, with_tables
from .test_finding_thresholds import Task, by_code, numbers, run

pytestmark = pytest.mark.once


def waiting(cpu, for_cpu, for_gil, workers=2, count=40, **columns):
    """Tasks of a second, as many at once as there are workers, and the shares of that second."""
    tasks = [
        Task(n // workers, n // workers + 1, cpu, worker=n % workers)
        for n in range(workers * count)
    ]
    recording = run(tasks, workers=workers, **columns)
    every = np.arange(len(tasks))
    waits = {
        "task": [*every, *every],
        "activity": ["cpu-wait"] * len(every) + ["gil-wait"] * len(every),
        "seconds": [for_cpu] * len(every) + [for_gil] * len(every),
        "samples": [0] * len(every) + [100] * len(every),
    }
    return with_tables(recording, waits=waits)


def test_waits_for_the_gil_alone_are_as_they_were():
    finding = by_code(waiting(0.5, 0.0, 0.5))["gil-bound"]
    assert (finding.kind, finding.severity) == ("about", "high")
    assert finding.seconds_lost == pytest.approx(20)
    assert "cpus" not in finding.numbers


# Measured of tasks that release the GIL, on two CPUs beside five busy programs: hashing on two and
# on six threads, and hashing and Python in equal parts.
@pytest.mark.parametrize(
    ("cpu", "for_cpu", "for_gil", "workers"),
    [(0.11, 0.77, 0.11, 2), (0.08, 0.64, 0.28, 6), (0.13, 0.57, 0.30, 6), (0.08, 0.86, 0.03, 6)],
)
def test_tasks_that_wait_for_cpus_are_not_said_to_be_bound_by_the_gil(
    cpu, for_cpu, for_gil, workers
):
    assert "gil-bound" not in by_code(waiting(cpu, for_cpu, for_gil, workers, others_cpu=60.0))


# Python loops on six threads beside the same programs, and what lies between.
@pytest.mark.parametrize(
    ("cpu", "for_cpu", "for_gil", "kind"),
    [(0.14, 0.15, 0.71, "at most"), (0.16, 0.14, 0.7, "about"), (0.2, 0.3, 0.5, "at most")],
)
def test_where_the_cause_is_not_certain_nothing_is_advised_but_to_measure_again(
    cpu, for_cpu, for_gil, kind
):
    finding = by_code(waiting(cpu, for_cpu, for_gil, 6))["gil-bound"]
    assert finding.kind == kind
    assert ("record again while CPUs are free" in finding.advice) == (kind == "at most")
    assert ("releases the GIL" in finding.advice) == (kind == "about")
    assert (finding.severity == "high") == (kind == "about")
    own = for_gil * cpu / (cpu + for_cpu)
    assert numbers(finding, "cpus") == (240 * (for_gil - own),)


@pytest.mark.parametrize(("cpu", "is_found"), [(0.152, True), (0.148, False)])
def test_what_is_left_of_the_waits_decides(cpu, is_found):
    # Half of the time is spent waiting for the GIL; of the other half so much has a CPU.
    assert ("gil-bound" in by_code(waiting(cpu, 0.5 - cpu, 0.5, 4))) == is_found


def test_processes_have_only_the_cpus_that_other_programs_leave():
    """On an idle machine two of them halve the time; with one and a half CPUs they save a third."""
    idle = by_code(waiting(0.5, 0.0, 0.5))["gil-bound"]
    assert "scheduler='processes'" in idle.advice
    assert idle.seconds_lost == pytest.approx(20)
    busy = by_code(waiting(0.5, 0.0, 0.5, others_cpu=20.0))["gil-bound"]
    assert busy.seconds_lost == pytest.approx(40 / 3)
    without_cpus = waiting(0.5, 0.0, 0.5, others_cpu=40.0)
    full = gil_bound(Analysis(without_cpus))
    assert full.seconds_lost == pytest.approx(0, abs=1e-3)
    assert "gil-bound" not in by_code(without_cpus)
    assert "worker processes do not help" in full.advice


@pytest.mark.parametrize(("others", "longer"), [(0.0, 0.0), (1.0, 0.5), (2.0, 1.0)])
def test_processes_start_in_more_time_on_a_busy_machine(others, longer):
    """Tasks hardly compute, so that only the start takes longer."""
    simulator = Analysis(waiting(0.0, 0.0, 0.0, others_cpu=others * 40.0)).simulator
    idle, busy = (
        simulator.simulate(scheduler="processes", result_bytes=0.0, idle_machine=is_idle).seconds
        for is_idle in (True, False)
    )
    assert busy - idle == pytest.approx(longer * POOL_START, rel=0.1)


# Two tasks that use one CPU together and block often; other programs have the other CPU.
@pytest.mark.parametrize(("others", "is_found"), [(0.0, True), (0.6, True), (0.75, False)])
def test_guesses_leave_out_what_other_programs_had(others, is_found):
    tasks = [Task(0, 1, 0.5), Task(0, 1, 0.5, worker=1)]
    recording = run(tasks, voluntary_switches=1000.0, others_cpu=others)
    finding = by_code(recording).get("gil-bound")
    assert (finding is not None) == is_found
    if finding:
        assert finding.kind == "at most"
        assert finding.seconds_lost <= (1 - others) / 2 + 1e-6


def with_threads(recording, **cpu_of_kinds):
    """The CPU seconds of threads, by kind."""
    kinds = list(cpu_of_kinds)
    groups = {
        "computation": ["c"] * len(kinds),
        "kind": kinds,
        "name": kinds,
        "threads": [1] * len(kinds),
        "cpu_seconds": list(cpu_of_kinds.values()),
    }
    return with_tables(recording, threads=groups)


# Two tasks at once use 40 s of CPU: 20 s of other tasks compete with each task.
@pytest.mark.parametrize(("scheduler", "own"), [(0.0, 1.0), (5.0, 0.8), (20.0, 0.5), (80.0, 0.2)])
def test_waits_for_the_schedulers_thread_are_not_those_for_tasks(scheduler, own):
    recording = with_threads(waiting(0.5, 0.0, 0.5), tasks=40.0, scheduler=scheduler)
    finding = by_code(recording).get("gil-bound")
    assert (finding is not None) == (0.5 * own >= 0.15)
    if finding:
        assert finding.kind == "about"
        assert finding.severity == ("high" if 0.5 * own >= 0.3 else "medium")
        assert ("scheduler" in finding.numbers) == (own < 1)
        if own < 1:
            assert numbers(finding, "scheduler") == (40 * (1 - own),)


def test_threads_of_a_library_that_hold_the_gil_are_part_of_the_tasks():
    alone = with_threads(waiting(0.5, 0.0, 0.5), tasks=40.0, scheduler=80.0)
    assert gil_bound(Analysis(alone)) is None
    beside = with_threads(waiting(0.5, 0.0, 0.5), tasks=40.0, scheduler=80.0, python=60.0)
    assert gil_bound(Analysis(beside)) is not None


def sized(recording, size):
    """With results of so many bytes."""
    return with_columns(recording, "tasks", nbytes=[size] * len(recording.tasks))


@pytest.mark.parametrize(
    ("workers", "advised"),
    [(2, "scheduler='processes', predicted"), (16, "scheduler='processes', num_workers=2, pre")],
)
def test_no_more_processes_are_advised_than_there_are_cpus(workers, advised):
    """The tasks compute for 40 s in all, one at a time; two processes need half of that."""
    share = 1 / workers
    recording = sized(waiting(share, 0.0, 1 - share, workers), 8.0)
    advice = by_code(recording)["gil-bound"].advice
    assert advised in advice
    saved = float(advice.split("predicted to save ")[1].split(" ")[0])
    # Less up to a batch of six, which one of them runs alone.
    assert saved == pytest.approx(40 - 20 - POOL_START, abs=1.1)
    # Sixteen would start at once, on two CPUs.
    all_of_them = Analysis(recording).simulator.simulate(scheduler="processes", chunksize=1)
    assert all_of_them.seconds == pytest.approx(20 + workers / 2 * POOL_START, abs=0.3)


def with_graph_bytes(recording, size):
    """With data of so many bytes that the graph gives to its tasks."""
    return with_columns(recording, "computations", graph_bytes=[size])


# Two processes save 20 s, less the start; 10 s of 40 are worth it. A GB takes four seconds.
@pytest.mark.parametrize(("size", "is_advised"), [(0.0, True), (1.8e9, True), (2.4e9, False)])
def test_data_in_the_graph_are_moved_to_processes(size, is_advised):
    recording = with_graph_bytes(sized(waiting(0.5, 0.0, 0.5), 8.0), size)
    advice = by_code(recording)["gil-bound"].advice
    assert ("compute with scheduler='processes', predicted to save" in advice) == is_advised
    assert ("of data in the graph" in advice) == (size > 0)
    assert "which is not known" not in advice


def test_unknown_data_in_the_graph_are_a_condition():
    advice = by_code(sized(waiting(0.5, 0.0, 0.5), 8.0))["gil-bound"].advice
    assert "less than 1.92 GB of data, which is not known" in advice


def test_data_in_the_graph_take_time_of_the_one_thread_that_sends_them():
    recording = waiting(0.5, 0.0, 0.5)
    for size in (0.0, 1e9, 10e9):
        simulator = Analysis(with_graph_bytes(recording, size)).simulator
        simulated = simulator.simulate(scheduler="processes", result_bytes=0.0)
        assert simulator.bytes_of_graphs == size
        nothing = Analysis(with_graph_bytes(recording, 0.0)).simulator
        without = nothing.simulate(scheduler="processes", result_bytes=0.0)
        longer = simulated.seconds - without.seconds
        # Some of it while tasks compute.
        assert size / BYTES_A_SECOND / 4 <= longer <= size / BYTES_A_SECOND + 0.01
