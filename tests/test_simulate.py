"""The simulator: against dask's own scheduler on a virtual clock, by hand, and against bounds."""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_diag import DiagnosticError, critical_path, simulate
from dask_diag.analysis.simulation.schedulers import BYTES_A_SECOND, POOL_START
from dask_diag.analysis.simulation.simulate import Simulator
from dask_diag.columns import Categorical
from dask_diag.model.recording import Recording

from .tables import filled_table
from .virtual_dask import recording_of, run_virtually

pytestmark = pytest.mark.once


def first(*_):
    return None


@st.composite
def graphs(draw):
    """A graph for dask, and the seconds of its tasks."""
    count = draw(st.integers(1, 30))
    dsk, seconds = {}, {}
    for n in range(count):
        needs = draw(st.lists(st.integers(0, n - 1), max_size=3, unique=True)) if n else []
        dsk["t", n] = (first, *(("t", need) for need in needs))
        seconds["t", n] = draw(st.integers(1, 1000)) / 64
    return dsk, seconds


def random_graph(seed, count=200):
    """Keys are of numbers: dask breaks ties by their hashes, and those of texts are random."""
    chance = random.Random(seed)
    dsk, seconds = {}, {}
    for n in range(count):
        needs = chance.sample(range(n), min(n, chance.choice([0, 0, 1, 1, 2, 3])))
        dsk[0, n] = (first, *((0, need) for need in needs))
        seconds[0, n] = chance.random() + 0.1
    return dsk, seconds


@given(graphs(), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_as_recorded_it_takes_as_long_as_dasks_scheduler(graph, workers):
    recording = run_virtually(*graph, workers)
    assert simulate(recording).seconds == pytest.approx(recording.stop, rel=1e-6)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("recorded", [1, 3])
def test_other_numbers_of_workers_are_predicted_as_dask_schedules_them(seed, recorded):
    graph = random_graph(seed)
    recording = run_virtually(*graph, recorded)
    for workers in (1, 2, 4, 8, 16, 200):
        truth = run_virtually(*graph, workers).stop
        assert simulate(recording, workers=workers).seconds == pytest.approx(truth, rel=0.05)


@given(graphs(), st.integers(1, 6), st.integers(1, 40))
@settings(max_examples=50, deadline=None)
def test_no_prediction_is_below_its_bounds(graph, recorded, workers):
    recording = run_virtually(*graph, recorded)
    predicted = simulate(recording, workers=workers)
    work = sum(graph[1].values())
    bound = max(critical_path(recording).length, work / workers)
    assert bound * (1 - 1e-6) <= predicted.seconds <= work * (1 + 1e-6)
    assert predicted.work == pytest.approx(work)
    unlimited = simulate(recording, workers=inf).seconds
    assert unlimited == pytest.approx(critical_path(recording).length, rel=1e-6)
    assert unlimited <= predicted.seconds * (1 + 1e-6)


def test_scheduling_is_serial_and_bounds_the_gain():
    """20 tasks of 10 ms on one worker, each 1 ms to submit and 2 ms to collect."""
    cycle = 0.013
    rows = {("t", n): [n * cycle + 0.001, n * cycle + 0.011, (n + 1) * cycle] for n in range(20)}
    recording = recording_of(rows, {key: set() for key in rows}, 20 * cycle, 1)
    assert simulate(recording).seconds == pytest.approx(20 * cycle, rel=1e-6)
    unlimited = simulate(recording, workers=inf)
    assert unlimited.seconds >= unlimited.scheduling
    assert 0.01 + 20 * 0.001 <= unlimited.seconds < 20 * cycle / 2
    assert simulate(recording, remove={"overhead", "graph"}).seconds == pytest.approx(0.2)


def chain_and_others():
    dsk = {("long", 0): (first,), ("short", 0): (first,), ("short", 1): (first,)}
    dsk["end", 0] = (first, ("long", 0), ("short", 0), ("short", 1))
    seconds = {("long", 0): 8.0, ("short", 0): 1.0, ("short", 1): 1.0, ("end", 0): 1.0}
    return dsk, seconds


def test_a_quicker_function_and_a_quicker_task():
    recording = run_virtually(*chain_and_others(), 3)
    assert recording.stop == 9.0
    assert simulate(recording, speedup={"long": 2.0}).seconds == pytest.approx(5)
    assert simulate(recording, speedup={"('long', 0)": 8}).seconds == pytest.approx(2)
    assert simulate(recording, speedup={"short": 100}).seconds == pytest.approx(9)
    assert simulate(recording, speedup={"end": 0.5}).seconds == pytest.approx(10)


def test_waits_that_are_removed():
    recording = run_virtually(*chain_and_others(), 3)
    waits = filled_table(
        "waits",
        {
            "task": [0, 0],
            "activity": ["cpu-wait", "io-wait"],
            "seconds": [2.0, 6.0],
            "samples": [0, 60],
        },
    )
    # The rows are in the order of submission, which dask chooses.
    long = int(np.flatnonzero(recording.tasks.function.where("long"))[0])
    waits = type(waits)({**{n: waits[n] for n in waits.columns}, "task": np.array([long, long])})
    recording = replace(recording, waits=waits)
    assert simulate(recording, remove={"io-wait"}).seconds == pytest.approx(3)
    assert simulate(recording, remove={"cpu-wait"}).seconds == pytest.approx(7)
    assert simulate(recording, remove={"gil-wait"}).seconds == pytest.approx(9)


def test_merged_tasks_are_handed_out_once():
    """100 tasks of 1 ms, each with 9 ms of scheduling, on one worker."""
    rows = {("t", n): [n * 0.01 + 0.004, n * 0.01 + 0.005, (n + 1) * 0.01] for n in range(100)}
    recording = recording_of(rows, {key: set() for key in rows}, 1.0, 1)
    ten = simulate(recording, merge_tasks=10)
    assert ten.work == pytest.approx(0.1)
    assert ten.seconds == pytest.approx(0.1 + 10 * 0.009, rel=0.1)
    assert simulate(recording, merge_tasks=1).seconds == pytest.approx(1.0)


def test_a_graph_of_fewer_tasks_is_made_sooner():
    """A hundred tasks without overhead, after two seconds in which their graph was made."""
    rows = {("t", n): [2 + n * 0.01, 2 + (n + 1) * 0.01, 2 + (n + 1) * 0.01] for n in range(100)}
    recording = recording_of(rows, {key: set() for key in rows}, 3.0, 1)
    made = with_threads(recording, "tasks", 0.0, called=0.0, prepared=2.0)
    assert simulate(made).seconds == pytest.approx(3.0)
    assert simulate(made, merge_tasks=10).seconds == pytest.approx(1.2)


@given(graphs(), st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_merging_keeps_work_and_order(graph, factor):
    recording = run_virtually(*graph, 2)
    together = simulate(recording, merge_tasks=factor)
    assert together.work == pytest.approx(sum(graph[1].values()))
    assert together.seconds >= critical_path(recording).length * (1 - 1e-6)


def test_the_machine_has_no_more_cpus_for_more_workers():
    """Four CPUs: tasks that need one each take turns; tasks that sleep do not."""
    dsk = {("t", n): (first,) for n in range(32)}
    virtual = run_virtually(dsk, dict.fromkeys(dsk, 1.0), 2)
    rows = {("t", n): [n // 2, n // 2 + 1, n // 2 + 1] for n in range(32)}
    needs = {key: set() for key in rows}
    assert virtual.stop == 16
    computing = recording_of(rows, needs, 16.0, 2, cpu=1.0)
    assert simulate(computing).seconds == pytest.approx(16, rel=1e-6)
    for workers, seconds in ((4, 8), (8, 8), (32, 8), (inf, 8)):
        assert simulate(computing, workers=workers).seconds == pytest.approx(seconds, rel=1e-6)
    sleeping = recording_of(rows, needs, 16.0, 2, cpu=0.1)
    assert simulate(sleeping, workers=32).seconds == pytest.approx(1, rel=1e-6)


def with_threads(recording, kind, seconds, **columns):
    """CPU seconds of threads beside those of the tasks; what else differs in the computation."""
    groups = {
        "computation": ["c"],
        "kind": [kind],
        "name": ["x"],
        "threads": [1],
        "cpu_seconds": [seconds],
    }
    computations = recording.computations
    same = {name: computations[name] for name in computations.columns}
    changed = {name: [value] for name, value in columns.items()}
    return replace(
        recording,
        computations=filled_table("computations", {**same, **changed}),
        threads=filled_table("threads", groups),
    )


def test_where_nothing_waits_for_cpus_there_are_as_many_as_it_takes():
    """Two at a time of 32 tasks of a second; on four CPUs that a library uses, too."""
    rows = {("t", n): [n // 2, n // 2 + 1, n // 2 + 1] for n in range(32)}
    recording = recording_of(rows, {key: set() for key in rows}, 16.0, 2, cpu=1.0)
    pool = with_threads(recording, "native", 16.0, cpus=4)
    assert simulate(pool, workers=inf).seconds == pytest.approx(12, rel=1e-6)
    assert simulate(pool, workers=inf, idle_pools=True).seconds == pytest.approx(8, rel=1e-6)
    waits = simulate(pool, workers=inf, remove={"cpu-wait"})
    assert waits.seconds == pytest.approx(1, rel=1e-6)
    # Tasks that are on a CPU for half of their time, and are to be there always.
    half = recording_of(rows, {key: set() for key in rows}, 16.0, 2, cpu=0.5)
    half = with_threads(half, "native", 16.0, cpus=4)
    off = simulate(half, workers=inf, remove={"thread-noncpu"})
    assert off.seconds == pytest.approx(4, rel=1e-6)


def test_quicker_tasks_need_less_of_the_cpus():
    rows = {("t", n): [n // 2, n // 2 + 1, n // 2 + 1] for n in range(32)}
    recording = recording_of(rows, {key: set() for key in rows}, 16.0, 2, cpu=1.0)
    assert simulate(recording, workers=inf, speedup={"t": 2}).seconds == pytest.approx(4)
    half = recording_of(rows, {key: set() for key in rows}, 16.0, 2, cpu=0.5)
    assert simulate(half, workers=inf).seconds == pytest.approx(4)
    assert simulate(half, workers=inf, speedup={"t": 2}).seconds == pytest.approx(2)
    assert simulate(half, workers=inf, remove={"thread-cpu"}).seconds == pytest.approx(0.5)


def test_where_more_ran_at_once_than_there_are_cpus_none_is_thought_to_be_quicker():
    """Both of two tasks are said to have had the one CPU: a clock is wrong."""
    rows = {("t", n): [n // 2, n // 2 + 1, n // 2 + 1] for n in range(16)}
    recording = recording_of(rows, {key: set() for key in rows}, 8.0, 2, cpu=1.0)
    one = with_threads(recording, "tasks", 16.0, cpus=1)
    for workers, seconds in ((1, 16), (2, 8), (4, 8), (inf, 8)):
        assert simulate(one, workers=workers).seconds == pytest.approx(seconds, rel=1e-6)


def test_fewer_workers_gain_nothing_where_tasks_delayed_each_other():
    """On one CPU, pairs of tasks that compute all the time, and then pairs that sleep."""
    rows = {("t", n): [n // 2, n // 2 + 1, n // 2 + 1] for n in range(16)}
    recording = recording_of(rows, {key: set() for key in rows}, 8.0, 2, cpu=1.0)
    columns = {name: recording.tasks[name] for name in recording.tasks.columns}
    columns["thread_cpu"], columns["thread_noncpu"] = [1.0] * 8 + [0.0] * 8, [0.0] * 8 + [1.0] * 8
    tasks = filled_table("tasks", columns)
    one = replace(with_threads(recording, "tasks", 8.0, cpus=1), tasks=tasks)
    assert simulate(one, workers=1).seconds == pytest.approx(16)


def test_unlimited_workers_are_no_fewer_than_there_were():
    recording = run_virtually(*chain_and_others(), 8)
    for workers, expected in ((inf, 8), (3, 3), (None, 8)):
        assert simulate(recording, workers=workers).computations["workers"].tolist() == [expected]
    assert simulate(run_virtually(*chain_and_others(), 2), workers=inf).computations[
        "workers"
    ].tolist() == [4]


def test_tasks_that_depend_on_later_ones_cannot_be_merged():
    recording = run_virtually({("t", n): (first,) for n in range(2)}, {("t", 0): 1, ("t", 1): 1}, 1)
    later = filled_table("dependencies", {"task": [0], "depends_on": [1]})
    damaged = replace(recording, dependencies=later)
    with pytest.raises(DiagnosticError, match=r"^merge_tasks: expected tasks that were submitted"):
        simulate(damaged, merge_tasks=2)
    assert simulate(damaged).seconds == pytest.approx(2)


def test_what_tasks_metered_can_be_removed():
    rows = {("t", n): [n, n + 1, n + 1] for n in range(4)}
    recording = recording_of(rows, {key: set() for key in rows}, 4.0, 1)
    metrics = {"task": [0, 1, 1, 2], "activity": ["disk"] * 4, "unit": ["seconds"] * 3 + ["bytes"]}
    metrics |= {"value": [0.5, 0.25, 0.25, 9.0], "cpu": [0.0] * 4}
    recording = replace(recording, metrics=filled_table("metrics", metrics))
    assert simulate(recording, remove={"disk"}).seconds == pytest.approx(3)


def test_what_was_simulated_is_not_simulated_again():
    recording = run_virtually(*chain_and_others(), 3)
    simulator = Simulator(recording)
    one = simulator.simulate(speedup={"long": 2.0, "short": 3.0})
    assert simulator.is_simulated(speedup={"short": 3.0, "long": 2.0})
    assert simulator.simulate(speedup={"short": 3.0, "long": 2.0}) is one
    assert not simulator.is_simulated(speedup={"long": 3.0, "short": 2.0})
    assert not simulator.is_simulated(idle_pools=True)
    replayed = simulator.tasks_replayed
    simulator.simulate()
    # To make the graph has nothing to do with the tasks.
    simulator.simulate(remove={"graph"})
    assert simulator.tasks_replayed == replayed + 4


def test_the_longest_computation_says_what_could_be_merged():
    """The first one is what dask-awkward does to find out which columns are needed."""
    assert Simulator(Recording(start=0.0, stop=1.0, epoch=0.0)).chunks() == (0, 1)
    recording = several([0.0, 1.0], [1.0, 4.0], 4.0)
    tasks = {
        "computation": [*["c0"] * 10, *["c1"] * 3],
        "function": [*(f"columns-{n}" for n in range(10)), "g", "g", "h"],
        **{name: [*np.arange(10) / 10, 1.0, 2.0, 3.0] for name in ("submitted", "start")},
        **{name: [*np.arange(1, 11) / 10, 2.0, 3.0, 4.0] for name in ("stop", "collected")},
    }
    computations = {name: recording.computations[name] for name in recording.computations.columns}
    computations["workers"] = [1, 5]
    recording = replace(
        recording,
        tasks=filled_table("tasks", tasks),
        computations=filled_table("computations", computations),
    )
    assert Simulator(recording).chunks() == (2, 5)


def test_a_recording_may_start_at_any_time():
    recording = replace(several([6.0, 10.0], [8.0, 14.0], 15.0), start=5.0)
    assert simulate(recording).seconds == pytest.approx(10)
    assert simulate(recording).outside == pytest.approx(1 + 2 + 1)
    assert simulate(recording, speedup={"c0": 2}).seconds == pytest.approx(9)


def test_the_cpu_of_all_threads_bounds_the_gain():
    """Tasks of half a second of CPU call a library whose threads have the other half."""
    rows = {("t", n): [n // 2, n // 2 + 1, n // 2 + 1] for n in range(16)}
    recording = recording_of(rows, {key: set() for key in rows}, 8.0, 2, cpu=0.5)
    for kind, seconds in (("native", 8.0), ("python", 8.0), ("dask_diag", 4.0)):
        pool = with_threads(recording, kind, 8.0, cpus=2)
        for workers in (4, 8, inf):
            assert simulate(pool, workers=workers).seconds == pytest.approx(seconds, rel=1e-6)
    serial = with_threads(recording, "tasks", 8.0, cpus=2, scheduler_cpu=6.0)
    assert simulate(serial, workers=inf).seconds == pytest.approx(7, rel=1e-6)
    assert simulate(serial, remove={"overhead"}, workers=inf).seconds == pytest.approx(4, rel=1e-6)


# Linux shares CPUs among sessions, and not threads: hashing beside five busy programs, which used
# 1.7 of 2 CPUs, took as long on four threads as on two.
@pytest.mark.parametrize("others", [0.5, 1.0, 1.7])
def test_cpus_that_others_use_are_not_there_for_more_workers(others):
    took = 2 / (2 - others)
    rows = {("t", n): [n // 2 * took, (n // 2 + 1) * took, (n // 2 + 1) * took] for n in range(8)}
    alone = recording_of(rows, {key: set() for key in rows}, 4 * took, 2, cpu=1 / took)
    beside = with_threads(alone, "tasks", 8.0, cpus=2, others_cpu=others * 4 * took)
    for workers in (None, 4, 8):
        assert simulate(beside, workers=workers).seconds == pytest.approx(4 * took, rel=1e-6)
    without = simulate(beside, workers=8, idle_machine=True).seconds
    assert without == pytest.approx(max(4, took), rel=1e-6)


def test_others_that_leave_cpus_free_hardly_matter():
    rows = {("t", n): [n // 2, n // 2 + 1, n // 2 + 1] for n in range(16)}
    recording = recording_of(rows, {key: set() for key in rows}, 8.0, 2, cpu=0.05)
    beside = with_threads(recording, "tasks", 0.8, cpus=2, others_cpu=8.0)
    assert simulate(beside, workers=16).seconds == pytest.approx(1, rel=1e-6)
    assert "nan" not in str(simulate(with_threads(recording, "tasks", 0.8), workers=16).seconds)


@pytest.mark.parametrize(
    ("cpu", "for_cpu", "seconds"),
    [
        # Tasks that slept share the CPUs with two programs that had all of them: 0.8 s of one.
        (0.05, None, 1),
        (0.05, 0.4, 1),
        # Those that waited for a CPU get no more: a twentieth of the two.
        (0.05, 0.5, 8),
        # It is not known whether they did: more threads are not predicted to be slower.
        (0.11, None, 16),
    ],
)
def test_tasks_that_sleep_scale_also_on_a_busy_machine(cpu, for_cpu, seconds):
    rows = {("t", n): [n, n + 1, n + 1] for n in range(16)}
    recording = recording_of(rows, {key: set() for key in rows}, 16.0, 1, cpu=cpu)
    beside = with_threads(recording, "tasks", 16 * cpu, cpus=2, others_cpu=32.0)
    if for_cpu is not None:
        waits = {"task": range(16), "activity": ["cpu-wait"] * 16, "seconds": [for_cpu] * 16}
        beside = replace(beside, waits=filled_table("waits", {**waits, "samples": [0] * 16}))
    assert simulate(beside, workers=16).seconds == pytest.approx(seconds, rel=1e-6)


def test_no_prediction_is_below_the_cpu_of_the_scheduler():
    rows = {("t", n): [n // 2, n // 2 + 1, n // 2 + 1] for n in range(16)}
    recording = recording_of(rows, {key: set() for key in rows}, 8.0, 2, cpu=0.01)
    serial = with_threads(recording, "tasks", 0.16, scheduler_cpu=3.0)
    assert simulate(serial, workers=inf).seconds == pytest.approx(3, rel=1e-6)


@given(graphs(), st.integers(1, 8), st.integers(1, 30), st.sampled_from([0.3, 0.7, 1.0]))
@settings(max_examples=50, deadline=None)
def test_no_prediction_needs_more_cpus_than_there_are(graph, recorded, workers, cpu):
    virtual = run_virtually(*graph, recorded)
    columns = {name: virtual.tasks[name] for name in virtual.tasks.columns}
    columns["thread_cpu"] = cpu * (virtual.tasks.stop - virtual.tasks.start)
    computing = replace(virtual, tasks=filled_table("tasks", columns))
    least = min(cpu * sum(graph[1].values()) / 4, virtual.stop)
    assert simulate(computing, workers=workers).seconds >= least * (1 - 1e-6)


def test_waiting_for_the_gil_bounds_the_gain():
    """Two tasks at once wait for the GIL half of their time: it is never free."""
    rows = {("t", n): [n // 2, n // 2 + 1, n // 2 + 1] for n in range(16)}
    recording = recording_of(rows, {key: set() for key in rows}, 8.0, 2, cpu=0.5)
    waits = {"task": range(16), "activity": ["gil-wait"] * 16, "seconds": [0.5] * 16}
    exact = {"task": range(16), "activity": ["cpu-wait"] * 16, "seconds": [0.0] * 16}
    both = {name: [*waits[name], *exact[name]] for name in waits}
    both["samples"] = [50] * 16 + [0] * 16
    recording = replace(recording, waits=filled_table("waits", both))
    for workers in (1, 2, 4, 16):
        assert simulate(recording, workers=workers).seconds == pytest.approx(8, rel=1e-6)
    assert simulate(recording, remove={"gil-wait"}).seconds == pytest.approx(4, rel=1e-6)
    # Half of the waits are half of the turns.
    assert simulate(recording, remove={"gil-wait": 0.5}).seconds == pytest.approx(6, rel=1e-6)


SIZE = 50e6


def spinning(sizes=None):
    """On two threads, eight tasks that hold the GIL for a second each, and one that needs all."""
    rows = {("t", n): [2 * (n // 2), 2 * (n // 2) + 2, 2 * (n // 2) + 2] for n in range(8)}
    rows["u", 0] = [8, 9, 9]
    needs = {key: set() for key in rows}
    needs["u", 0] = set(rows) - {("u", 0)}
    recording = recording_of(rows, needs, 9.0, 2)
    tasks = recording.tasks
    columns = {name: tasks[name] for name in tasks.columns}
    columns["thread_cpu"] = np.ones(9)
    columns["thread_noncpu"] = np.array([1.0] * 8 + [0.0])
    waits = {"task": [*range(9)] * 2, "activity": ["gil-wait"] * 9 + ["cpu-wait"] * 9}
    waits |= {"seconds": [1.0] * 8 + [0.0] * 10, "samples": [100] * 9 + [0] * 9}
    recording = replace(
        recording, tasks=filled_table("tasks", columns), waits=filled_table("waits", waits)
    )
    if sizes is None:
        return recording
    results = {
        "computation": ["c"] * 9,
        "key": [str(key) for key in rows],
        "metric": [sizes] * 9,
        "start": [0.0] * 9,
        "stop": [9.0] * 9,
    }
    table = filled_table("cached_results", results)
    return replace(recording, cached_results=table, metric="nbytes", metric_unit="bytes")


def test_processes_need_no_gil_and_take_time_to_start():
    predicted = simulate(spinning(0), scheduler="processes", chunksize=1).seconds
    # Eight tasks of a second on two processes, and one.
    assert predicted == pytest.approx(5 + POOL_START, abs=0.01)
    assert simulate(spinning(0)).seconds == pytest.approx(9)
    # In batches of six, one process has six of them.
    batches = simulate(spinning(0), scheduler="processes").seconds
    assert batches == pytest.approx(7 + POOL_START, abs=0.01)
    assert simulate(spinning(), scheduler="processes", result_bytes=0).seconds == batches


def test_processes_need_the_cpus_that_there_are():
    """Of one CPU, nine tasks of a second take nine; and two processes must start on it."""
    recording = spinning(0)
    columns = {name: recording.computations[name] for name in recording.computations.columns}
    columns["cpus"] = [1]
    one = replace(recording, computations=filled_table("computations", columns))
    predicted = simulate(one, scheduler="processes", chunksize=1).seconds
    assert predicted == pytest.approx(9 + 2 * POOL_START, abs=0.01)


def test_in_processes_nothing_waits_for_the_gil_of_others():
    recording = spinning(0)
    columns = {name: recording.computations[name] for name in recording.computations.columns}
    columns["scheduler"] = ["processes"]
    recording = replace(recording, computations=filled_table("computations", columns))
    # Eight tasks of two seconds at once, and one.
    assert simulate(recording, workers=8, chunksize=1).seconds == pytest.approx(3, abs=0.01)


def test_bytes_of_results_are_those_that_go_to_the_scheduler_and_from_it():
    assert Simulator(spinning(SIZE)).bytes_of_results == (9 + 8) * SIZE
    assert np.isnan(Simulator(spinning()).bytes_of_results)


def test_processes_start_as_those_of_the_recording_did():
    work = replace(next(iter(Simulator(spinning(0)).works.values())), startup=(0.5, 0.4))
    simulator = Simulator(spinning(0))
    simulator.works = {"c": work}
    predicted = simulator.simulate(scheduler="processes", chunksize=1).seconds
    assert predicted == pytest.approx(5.5, abs=0.01)


def test_results_pass_between_processes_through_the_scheduler():
    few = simulate(spinning(0), scheduler="processes", chunksize=1).seconds
    many = simulate(spinning(SIZE), scheduler="processes", chunksize=1).seconds
    # Each result comes to the scheduler, and eight go to the last task: most while nothing runs.
    assert 8 * SIZE < (many - few) * BYTES_A_SECOND < 17 * SIZE
    with pytest.raises(DiagnosticError, match="CacheProfiler"):
        simulate(spinning(), scheduler="processes")


def test_the_results_of_a_chain_do_not_leave_their_process():
    rows = {("t", n): [n, n + 1, n + 1] for n in range(4)}
    needs = {("t", n): {("t", n - 1)} if n else set() for n in range(4)}
    recording = recording_of(rows, needs, 4.0, 2, cpu=1.0)
    alone = simulate(recording, scheduler="processes", result_bytes=0).seconds
    moved = simulate(recording, scheduler="processes", result_bytes=SIZE).seconds
    # Only that of the last one does.
    assert moved - alone == pytest.approx(SIZE / BYTES_A_SECOND, rel=0.01)


def test_threads_move_nothing():
    rows = {("t", n): [n // 2, n // 2 + 1, n // 2 + 1.5] for n in range(8)}
    recording = recording_of(rows, {key: set() for key in rows}, 4.5, 2)
    computations = recording.computations
    columns = {name: computations[name] for name in computations.columns}
    columns["scheduler"] = ["processes"]
    in_processes = replace(recording, computations=filled_table("computations", columns))
    transfers = {
        "task": [*range(8)] * 2,
        "side": ["worker"] * 16,
        "activity": ["deserialize"] * 8 + ["serialize"] * 8,
        "start": [n // 2 for n in range(8)] + [n // 2 + 0.75 for n in range(8)],
        "stop": [n // 2 + 0.25 for n in range(8)] + [n // 2 + 1.0 for n in range(8)],
        "bytes": [1e6] * 16,
    }
    in_processes = replace(in_processes, transfers=filled_table("transfers", transfers))
    assert simulate(in_processes, scheduler="threads").seconds == pytest.approx(2, abs=0.01)


def test_a_share_of_a_wait_is_removed():
    rows = {("t", n): [n, n + 1, n + 1] for n in range(4)}
    recording = recording_of(rows, {key: set() for key in rows}, 4.0, 1, cpu=0.5)
    waits = {"task": range(4), "activity": ["cpu-wait"] * 4, "seconds": [0.5] * 4}
    recording = replace(recording, waits=filled_table("waits", {**waits, "samples": [0] * 4}))
    for share, seconds in ((0, 4), (0.5, 3), (1, 2)):
        predicted = simulate(recording, remove={"cpu-wait": share}).seconds
        assert predicted == pytest.approx(seconds, rel=1e-6)


def several(starts, stops, recording_stop):
    """Computations of one task each, that takes all their time on one worker."""
    names = [f"c{n}" for n in range(len(starts))]
    return Recording(
        start=0.0,
        stop=recording_stop,
        epoch=0.0,
        computations=filled_table(
            "computations",
            {"computation": names, "start": starts, "stop": stops, "workers": [1] * len(names)},
        ),
        tasks=filled_table(
            "tasks",
            {
                "function": Categorical.of(names),
                "computation": Categorical.of(names),
                "outcome": ["ok"] * len(names),
                "submitted": starts,
                "start": starts,
                "stop": stops,
                "collected": stops,
            },
        ),
    )


def test_computations_in_sequence_keep_the_time_between_them():
    recording = several([1.0, 5.0], [3.0, 9.0], 10.0)
    same = simulate(recording)
    assert (same.seconds, same.measured) == (pytest.approx(10), 10)
    assert same.outside == pytest.approx(4)
    assert same.computations["seconds"].tolist() == pytest.approx([2, 4])
    assert simulate(recording, speedup={"c0": 2}).seconds == pytest.approx(9)
    assert simulate(recording, speedup={"c0": 2, "c1": 2}).seconds == pytest.approx(7)


def test_computations_that_overlap_do_not_wait_for_each_other():
    recording = several([1.0, 2.0, 8.0], [7.0, 4.0, 9.0], 10.0)
    assert simulate(recording).seconds == pytest.approx(10)
    assert simulate(recording).outside == pytest.approx(1 + 1 + 1)
    assert simulate(recording, speedup={"c1": 2}).seconds == pytest.approx(10)
    assert simulate(recording, speedup={"c0": 2}).seconds == pytest.approx(7)
    assert simulate(recording, speedup={"c1": 0.2}).seconds == pytest.approx(12)
    # The third one waits for the first, and nothing waits for what had not ended.
    assert simulate(recording, speedup={"c0": 0.5}).seconds == pytest.approx(16)
    two = several([1.0, 2.0], [7.0, 9.0], 10.0)
    assert simulate(two, speedup={"c0": 2}).seconds == pytest.approx(10)


def test_of_a_computation_that_lasts_longer_than_the_recording_nothing_is_outside():
    assert simulate(several([0.0], [5.0], 4.0)).outside == 0.0


def test_what_is_not_known_and_what_failed():
    recording = several([1.0, 5.0], [3.0, 9.0], 10.0)
    tasks = {name: recording.tasks[name] for name in recording.tasks.columns}
    tasks["stop"] = np.array([3.0, np.nan])
    tasks["start"] = np.array([np.nan, 5.0])
    tasks["collected"] = np.array([3.0, np.nan])
    tasks["outcome"] = Categorical.of(["ok", "unfinished"])
    damaged = replace(recording, tasks=type(recording.tasks)(tasks))
    assert simulate(damaged).seconds == pytest.approx(10)
    assert np.isfinite(simulate(damaged, workers=4, remove={"overhead"}).seconds)


def test_nothing_was_computed():
    empty = Recording(start=1.0, stop=3.5, epoch=0.0)
    assert simulate(empty, workers=inf).seconds == 2.5
    assert simulate(empty).work == 0.0
    without_tasks = replace(several([1.0], [3.0], 4.0), tasks=Recording(0.0, 1.0, 0.0).tasks)
    assert simulate(without_tasks).seconds == pytest.approx(4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": 0}, "workers: expected a number from 1 on, or inf, found 0$"),
        ({"workers": 1.5}, "workers: expected a number from 1 on, or inf, found 1.5$"),
        ({"remove": {"gravity"}}, "^remove: expected a set of .* cpu-wait, .*; found gravity$"),
        ({"remove": "overhead"}, "expected a set of activities among .*; found overhead$"),
        ({"remove": {"idle"}}, "found idle$"),
        (
            {"speedup": {"none": 2}},
            "expected the name of a function or the key of a task, found 'none'; functions are 0$",
        ),
        (
            {"speedup": {"t": 0}},
            "^speedup: expected a factor above 0 for 't', such as 2.0, found 0$",
        ),
        ({"speedup": {"t": inf}}, "above 0"),
        ({"merge_tasks": 0}, "^merge_tasks: expected a number from 1 on, found 0$"),
        ({"chunksize": 0}, "^chunksize: expected a number from 1 on, found 0$"),
        ({"scheduler": "cluster"}, "expected one of processes, threads, found 'cluster'$"),
        (
            {"remove": {"gil-wait": 1.5}},
            "expected a share from 0 to 1 of an activity of tasks, found 1.5 of gil-wait$",
        ),
        ({"remove": {"overhead": 0.5}}, "found 0.5 of overhead$"),
    ],
)
def test_what_is_refused(arguments, message):
    recording = run_virtually(*random_graph(0, 5), 2)
    with pytest.raises(DiagnosticError, match=message):
        simulate(recording, **arguments)


def test_times_that_no_scheduler_has_make_no_step_negative():
    """Tasks that are said to start before others of their round were submitted."""
    rows = {("t", n): [n * 1e-3, n * 1e-3 + 5e-4, 1 + n * 1e-3] for n in range(100)}
    recording = recording_of(rows, {key: set() for key in rows}, 2.0, 4)
    for workers in (None, 2, 8):
        predicted = simulate(recording, workers=workers)
        assert 0 <= predicted.scheduling <= predicted.seconds


def test_a_cycle_is_refused():
    recording = run_virtually(
        {("t", 0): (first,), ("t", 1): (first,)}, {("t", 0): 1, ("t", 1): 1}, 1
    )
    cycle = filled_table("dependencies", {"task": [0, 1], "depends_on": [1, 0]})
    for arguments in ({}, {"merge_tasks": 2}):
        with pytest.raises(DiagnosticError, match="damaged"):
            simulate(replace(recording, dependencies=cycle), **arguments)


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("workers", "4"),
        ("workers", [2]),
        ("workers", True),
        ("workers", float("nan")),
        ("merge_tasks", "2"),
        ("merge_tasks", 0),
        ("merge_tasks", float("inf")),
        ("chunksize", "6"),
        ("scheduler", ["threads"]),
        ("scheduler", "sync"),
        ("result_bytes", "1 MB"),
        ("result_bytes", -1e12),
        ("result_bytes", float("nan")),
        ("idle_machine", "no"),
        ("idle_pools", 1),
        ("speedup", "f"),
        ("speedup", 2.0),
        ("speedup", ["f"]),
        ("speedup", {5: 2.0}),
        ("speedup", {"f": "2"}),
        ("speedup", {"f": True}),
        ("remove", 5),
        ("remove", "overhead"),
        ("remove", [["overhead"]]),
        ("remove", {1, "overhead"}),
        ("remove", {"overhead": "0.5"}),
        ("remove", {"overhead": None}),
    ],
)
def test_a_change_of_the_wrong_kind_is_refused_with_what_was_expected(change, value):
    with pytest.raises(DiagnosticError, match=f"^{change}: expected .*found "):
        simulate(Recording(0.0, 1.0, 0.0), **{change: value})
