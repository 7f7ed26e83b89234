"""The simulator: against dask's own scheduler on a virtual clock, by hand, and against bounds."""

import random
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_diag import DiagnosticError, Recording, critical_path, simulate
from dask_diag.analysis.simulation.schedulers import BYTES_A_SECOND, POOL_START
from dask_diag.analysis.simulation.simulate import Simulator

from .recordings import with_columns, with_tables
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


def in_rounds(count, workers=2, cpu=1.0, **columns):
    """Tasks of a second, as many at once as there are workers, on four CPUs; other columns."""
    rows = {("t", n): [n // workers, n // workers + 1, n // workers + 1] for n in range(count)}
    recording = recording_of(rows, {key: set() for key in rows}, count / workers, workers, cpu=cpu)
    return of_computation(recording, **columns)


def of_computation(recording, **columns):
    changed = {name: [value] for name, value in columns.items()}
    return with_columns(recording, "computations", **changed)


def with_overhead(count, period, before, work):
    """Tasks on one worker, one after the other, each of which starts so much after its turn."""
    rows = {
        ("t", n): [n * period + before, n * period + before + work, (n + 1) * period]
        for n in range(count)
    }
    return recording_of(rows, {key: set() for key in rows}, count * period, 1)


def with_threads(recording, kind, seconds, **columns):
    """CPU seconds of threads beside those of the tasks; what else differs in the computation."""
    groups = {"computation": ["c"], "kind": [kind], "name": ["x"], "threads": [1]}
    threads = {**groups, "cpu_seconds": [seconds]}
    return with_tables(of_computation(recording, **columns), threads=threads)


def waiting(recording, **waits):
    """Each task waits so long for the CPU, which is exact, and for what else is named."""
    count = len(recording.tasks)
    kinds = [name.replace("_", "-") for name in waits]
    columns = {
        "task": [*range(count)] * len(kinds),
        "activity": np.repeat(kinds, count).tolist(),
        "seconds": np.repeat([*waits.values()], count),
        "samples": np.repeat([0 if name == "cpu-wait" else 50 for name in kinds], count),
    }
    return with_tables(recording, waits=columns)


CHAIN = {("long", 0): 8.0, ("short", 0): 1.0, ("short", 1): 1.0, ("end", 0): 1.0}


def chain_and_others(workers):
    dsk = dict.fromkeys(CHAIN, (first,))
    dsk["end", 0] = (first, ("long", 0), ("short", 0), ("short", 1))
    return run_virtually(dsk, CHAIN, workers)


def waits_of_the_long_one():
    recording = chain_and_others(3)
    # The rows are in the order of submission, which dask chooses.
    long = int(np.flatnonzero(recording.tasks.function.eq("long"))[0])
    waits = {"task": [long] * 2, "activity": ["cpu-wait", "io-wait"], "seconds": [2.0, 6.0]}
    return with_tables(recording, waits={**waits, "samples": [0, 60]})


def made_before():
    """A hundred tasks without overhead, after two seconds in which their graph was made."""
    rows = {("t", n): [2 + n * 0.01, 2 + (n + 1) * 0.01, 2 + (n + 1) * 0.01] for n in range(100)}
    recording = recording_of(rows, {key: set() for key in rows}, 3.0, 1)
    return with_threads(recording, "tasks", 0.0, called=0.0, prepared=2.0)


def pairs_that_compute_and_sleep():
    """On one CPU, pairs of tasks that compute all the time, and then pairs that sleep."""
    cpu = {"thread_cpu": [1.0] * 8 + [0.0] * 8, "thread_noncpu": [0.0] * 8 + [1.0] * 8}
    return with_threads(with_columns(in_rounds(16), "tasks", **cpu), "tasks", 8.0, cpus=1)


def metered():
    metrics = {"task": [0, 1, 1, 2], "activity": ["disk"] * 4, "unit": ["seconds"] * 3 + ["bytes"]}
    metrics |= {"value": [0.5, 0.25, 0.25, 9.0], "cpu": [0.0] * 4}
    return with_tables(in_rounds(4, 1, cpu=0.0), metrics=metrics)


def several(starts, stops, recording_stop):
    """Computations of one task each, that takes all their time on one worker."""
    names = [f"c{n}" for n in range(len(starts))]
    computations = {"computation": names, "start": starts, "stop": stops}
    tasks = {
        "function": names,
        "computation": names,
        "outcome": ["ok"] * len(names),
        "submitted": starts,
        "start": starts,
        "stop": stops,
        "collected": stops,
    }
    return with_tables(
        Recording(start=0.0, stop=recording_stop, epoch=0.0),
        computations={**computations, "workers": [1] * len(names)},
        tasks=tasks,
    )


def at_any_time():
    return replace(several([6.0, 10.0], [8.0, 14.0], 15.0), start=5.0)


def beside_others(others):
    """Tasks take longer for programs that use so many of two CPUs."""
    took = 2 / (2 - others)
    rows = {("t", n): [n // 2 * took, (n // 2 + 1) * took, (n // 2 + 1) * took] for n in range(8)}
    alone = recording_of(rows, {key: set() for key in rows}, 4 * took, 2, cpu=1 / took)
    return with_threads(alone, "tasks", 8.0, cpus=2, cpu_other_processes=others * 4 * took)


def asleep(cpu, **for_cpu):
    """One at a time of sixteen tasks that mostly sleep, beside programs that use two CPUs."""
    made = with_threads(in_rounds(16, 1, cpu), "tasks", 16 * cpu, cpus=2, cpu_other_processes=32.0)
    return waiting(made, **for_cpu) if for_cpu else made


HALF = in_rounds(32, 2, 0.5)
POOL = with_threads(in_rounds(32), "native", 16.0, cpus=4)
ONE_CPU = with_threads(in_rounds(16), "tasks", 16.0, cpus=1)
SERIAL = with_threads(in_rounds(16, 2, 0.5), "tasks", 8.0, cpus=2, cpu_scheduler=6.0)
GIL = waiting(in_rounds(16, 2, 0.5), gil_wait=0.5, cpu_wait=0.0)
SHORT_OF_CPU = waiting(in_rounds(4, 1, 0.5), cpu_wait=0.5)
OVERLAPPING = several([1.0, 2.0, 8.0], [7.0, 4.0, 9.0], 10.0)


@pytest.mark.parametrize(
    "recording, seconds",
    [
        # The machine has no more CPUs for more workers: tasks that need one each take turns, tasks
        # that sleep do not.
        (in_rounds(32), {None: 16, 4: 8, 8: 8, 32: 8, inf: 8}),
        (in_rounds(32, 2, 0.1), {32: 1}),
        (HALF, {inf: 4}),
        # A library uses the CPUs, too.
        (POOL, {inf: 12}),
        # Both of two tasks are said to have had the one CPU: a clock is wrong, and none is thought
        # to be quicker.
        (ONE_CPU, {1: 16, 2: 8, 4: 8, inf: 8}),
        # Fewer workers gain nothing where tasks delayed each other.
        (pairs_that_compute_and_sleep(), {1: 16}),
        # Tasks of half a second of CPU call a library whose threads have the other half.
        *(
            (with_threads(in_rounds(16, 2, 0.5), kind, 8.0, cpus=2), {4: took, 8: took, inf: took})
            for kind, took in {"native": 8.0, "python": 8.0, "dask_diag": 4.0}.items()
        ),
        # The scheduler's CPU bounds the gain, too.
        (SERIAL, {inf: 7}),
        (with_threads(in_rounds(16, 2, 0.01), "tasks", 0.16, cpu_scheduler=3.0), {inf: 3}),
        # Linux shares CPUs among sessions, and not threads: hashing beside five busy programs,
        # which used 1.7 of 2 CPUs, took as long on four threads as on two.
        *(
            (beside_others(others), dict.fromkeys((None, 4, 8), 8 / (2 - others)))
            for others in (0.5, 1.0, 1.7)
        ),
        # Others that leave CPUs free hardly matter, nor if they are not known.
        (
            with_threads(in_rounds(16, 2, 0.05), "tasks", 0.8, cpus=2, cpu_other_processes=8.0),
            {16: 1},
        ),
        (with_threads(in_rounds(16, 2, 0.05), "tasks", 0.8), {16: 1}),
        # Tasks that slept share the CPUs with two programs that had all of them: 0.8 s of one.
        (asleep(0.05), {16: 1}),
        (asleep(0.05, cpu_wait=0.4), {16: 1}),
        # Those that waited for a CPU get no more: a twentieth of the two.
        (asleep(0.05, cpu_wait=0.5), {16: 8}),
        # It is not known whether they did: more threads are not predicted to be slower.
        (asleep(0.11), {16: 16}),
        # Two tasks at once wait for the GIL half of their time: it is never free.
        (GIL, {1: 8, 2: 8, 4: 8, 16: 8}),
        (at_any_time(), {None: 10}),
        (several([1.0, 5.0], [3.0, 9.0], 10.0), {None: 10}),
        # Nothing was computed.
        (Recording(start=1.0, stop=3.5, epoch=0.0), {inf: 2.5}),
        (with_tables(several([1.0], [3.0], 4.0), tasks={}), {None: 4}),
    ],
)
def test_what_numbers_of_workers_take(recording, seconds):
    predicted = {workers: simulate(recording, workers=workers).seconds for workers in seconds}
    assert predicted == pytest.approx(seconds, rel=1e-6)


@pytest.mark.parametrize(
    "recording, speedup, seconds",
    [
        # A quicker function, and a quicker task.
        (chain_and_others(3), {}, 9),
        (chain_and_others(3), {"long": 2.0}, 5),
        (chain_and_others(3), {"('long', 0)": 8}, 2),
        (chain_and_others(3), {"short": 100}, 9),
        (chain_and_others(3), {"end": 0.5}, 10),
        # Computations in sequence keep the time between them.
        (several([1.0, 5.0], [3.0, 9.0], 10.0), {"c0": 2}, 9),
        (several([1.0, 5.0], [3.0, 9.0], 10.0), {"c0": 2, "c1": 2}, 7),
        (at_any_time(), {"c0": 2}, 9),
        # Those that overlap do not wait for each other. The third one waits for the first, and
        # nothing waits for what had not ended.
        (OVERLAPPING, {}, 10),
        (OVERLAPPING, {"c1": 2}, 10),
        (OVERLAPPING, {"c0": 2}, 7),
        (OVERLAPPING, {"c1": 0.2}, 12),
        (OVERLAPPING, {"c0": 0.5}, 16),
        (several([1.0, 2.0], [7.0, 9.0], 10.0), {"c0": 2}, 10),
    ],
)
def test_what_is_quicker(recording, speedup, seconds):
    assert simulate(recording, speedup=speedup).seconds == pytest.approx(seconds, rel=1e-6)


@pytest.mark.parametrize(
    "recording, remove, seconds, changes",
    [
        (waits_of_the_long_one(), {"io-wait"}, 3, {}),
        (waits_of_the_long_one(), {"cpu-wait"}, 7, {}),
        (waits_of_the_long_one(), {"gil-wait"}, 9, {}),
        (metered(), {"disk"}, 3, {}),
        (GIL, {"gil-wait"}, 4, {}),
        # Half of the waits are half of the turns.
        (GIL, {"gil-wait": 0.5}, 6, {}),
        (SHORT_OF_CPU, {"cpu-wait": 0}, 4, {}),
        (SHORT_OF_CPU, {"cpu-wait": 0.5}, 3, {}),
        (SHORT_OF_CPU, {"cpu-wait": 1}, 2, {}),
        (SERIAL, {"overhead"}, 4, {"workers": inf}),
        # Where nothing waits for CPUs there are as many as it takes.
        (POOL, {"cpu-wait"}, 1, {"workers": inf}),
        # Tasks that are on a CPU for half of their time, and are to be there always.
        (with_threads(HALF, "native", 16.0, cpus=4), {"thread-noncpu"}, 4, {"workers": inf}),
        (HALF, {"thread-cpu"}, 0.5, {"workers": inf}),
        # Nothing is removed, and quicker tasks need less of the CPUs.
        (HALF, set(), 2, {"workers": inf, "speedup": {"t": 2}}),
        (in_rounds(32), set(), 4, {"workers": inf, "speedup": {"t": 2}}),
        (POOL, set(), 8, {"workers": inf, "idle_pools": True}),
        *(
            (beside_others(others), set(), took, {"workers": 8, "idle_machine": True})
            for others, took in {0.5: 4, 1.0: 4, 1.7: 2 / 0.3}.items()
        ),
        (made_before(), set(), 3.0, {}),
        (made_before(), set(), 1.2, {"merge_tasks": 10}),
    ],
)
def test_what_is_left_without(recording, remove, seconds, changes):
    predicted = simulate(recording, remove=remove, **changes).seconds
    assert predicted == pytest.approx(seconds, rel=1e-6)


def test_scheduling_is_serial_and_bounds_the_gain():
    """20 tasks of 10 ms on one worker, each 1 ms to submit and 2 ms to collect."""
    recording, cycle = with_overhead(20, 0.013, 0.001, 0.01), 0.013
    assert simulate(recording).seconds == pytest.approx(20 * cycle, rel=1e-6)
    unlimited = simulate(recording, workers=inf)
    assert unlimited.seconds >= unlimited.scheduling
    assert 0.01 + 20 * 0.001 <= unlimited.seconds < 20 * cycle / 2
    assert simulate(recording, remove={"overhead", "graph"}).seconds == pytest.approx(0.2)


def test_merged_tasks_are_handed_out_once():
    """100 tasks of 1 ms, each with 9 ms of scheduling, on one worker."""
    recording = with_overhead(100, 0.01, 0.004, 0.001)
    ten = simulate(recording, merge_tasks=10)
    assert ten.work == pytest.approx(0.1)
    assert ten.seconds == pytest.approx(0.1 + 10 * 0.009, rel=0.1)
    assert simulate(recording, merge_tasks=1).seconds == pytest.approx(1.0)


@given(graphs(), st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_merging_keeps_work_and_order(graph, factor):
    recording = run_virtually(*graph, 2)
    together = simulate(recording, merge_tasks=factor)
    assert together.work == pytest.approx(sum(graph[1].values()))
    assert together.seconds >= critical_path(recording).length * (1 - 1e-6)


@pytest.mark.parametrize(
    "recorded, workers, expected", [(8, inf, 8), (8, 3, 3), (8, None, 8), (2, inf, 4)]
)
def test_unlimited_workers_are_no_fewer_than_there_were(recorded, workers, expected):
    simulated = simulate(chain_and_others(recorded), workers=workers)
    assert simulated.computations["workers"].tolist() == [expected]


def test_what_was_simulated_is_not_simulated_again():
    simulator = Simulator(chain_and_others(3))
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


def test_the_computation_with_most_task_time_says_what_could_be_merged():
    """The first one is what dask-awkward does to find out which columns are needed."""
    assert Simulator(Recording(start=0.0, stop=1.0, epoch=0.0)).chunks() == (0, 1)
    tasks = {
        "computation": [*["c0"] * 10, *["c1"] * 3],
        "function": [*(f"columns-{n}" for n in range(10)), "g", "g", "h"],
        **{name: [*np.arange(10) / 10, 1.0, 2.0, 3.0] for name in ("submitted", "start")},
        **{name: [*np.arange(1, 11) / 10, 2.0, 3.0, 4.0] for name in ("stop", "collected")},
    }
    recording = with_columns(several([0.0, 1.0], [1.0, 4.0], 4.0), "computations", workers=[1, 5])
    assert Simulator(with_tables(recording, tasks=tasks)).chunks() == (2, 5)
    # The longest one may only wait for few tasks.
    short = {name: [*tasks[name][:10], 1.01, 2.01, 3.01] for name in ("stop", "collected")}
    assert Simulator(with_tables(recording, tasks=tasks | short)).chunks() == (1, 1)


def test_time_outside_computations_is_known():
    for recording, outside in (
        (at_any_time(), 1 + 2 + 1),
        (several([1.0, 5.0], [3.0, 9.0], 10.0), 4),
        (several([1.0, 2.0, 8.0], [7.0, 4.0, 9.0], 10.0), 1 + 1 + 1),
        # One that lasts longer than the recording.
        (several([0.0], [5.0], 4.0), 0.0),
    ):
        assert simulate(recording).outside == pytest.approx(outside)
    same = simulate(several([1.0, 5.0], [3.0, 9.0], 10.0))
    assert (same.measured, same.computations["seconds"].tolist()) == (10, pytest.approx([2, 4]))
    assert simulate(Recording(start=1.0, stop=3.5, epoch=0.0)).work == 0.0


@given(graphs(), st.integers(1, 8), st.integers(1, 30), st.sampled_from([0.3, 0.7, 1.0]))
@settings(max_examples=50, deadline=None)
def test_no_prediction_needs_more_cpus_than_there_are(graph, recorded, workers, cpu):
    virtual = run_virtually(*graph, recorded)
    took = virtual.tasks.stop - virtual.tasks.start
    computing = with_columns(virtual, "tasks", thread_cpu=cpu * took)
    least = min(cpu * sum(graph[1].values()) / 4, virtual.stop)
    assert simulate(computing, workers=workers).seconds >= least * (1 - 1e-6)


SIZE = 50e6


def spinning(sizes=None, **columns):
    """On two threads, eight tasks that hold the GIL for a second each, and one that needs all."""
    rows = {("t", n): [2 * (n // 2), 2 * (n // 2) + 2, 2 * (n // 2) + 2] for n in range(8)}
    rows["u", 0] = [8, 9, 9]
    needs = {key: set() for key in rows}
    needs["u", 0] = set(rows) - {("u", 0)}
    recording = of_computation(recording_of(rows, needs, 9.0, 2), **columns)
    cpu = {"thread_cpu": [1.0] * 9, "thread_noncpu": [1.0] * 8 + [0.0]}
    recording = with_columns(recording, "tasks", **cpu)
    waits = {"task": [*range(9)] * 2, "activity": ["gil-wait"] * 9 + ["cpu-wait"] * 9}
    waits |= {"seconds": [1.0] * 8 + [0.0] * 10, "samples": [100] * 9 + [0] * 9}
    recording = with_tables(recording, waits=waits)
    if sizes is None:
        return recording
    results = {
        "computation": ["c"] * 9,
        "key": [str(key) for key in rows],
        "metric": [sizes] * 9,
        "start": [0.0] * 9,
        "stop": [9.0] * 9,
    }
    recording = with_tables(recording, cached_results=results)
    return replace(recording, metric="nbytes", metric_unit="bytes")


def in_processes(recording, **changes):
    return simulate(recording, scheduler="processes", **changes).seconds


@pytest.mark.parametrize(
    "columns, changes, seconds",
    [
        ({}, {}, 9),
        # Eight tasks of a second on two processes, which must start, and one.
        ({}, {"scheduler": "processes", "chunksize": 1}, 5 + POOL_START),
        # In batches of six, one process has six of them.
        ({}, {"scheduler": "processes"}, 7 + POOL_START),
        # Of one CPU, nine tasks of a second take nine; and two processes must start on it.
        ({"cpus": 1}, {"scheduler": "processes", "chunksize": 1}, 9 + 2 * POOL_START),
        # In processes nothing waits for the GIL of others: eight of two seconds at once, and one.
        ({"scheduler": "processes"}, {"workers": 8, "chunksize": 1}, 3),
    ],
)
def test_processes_need_no_gil_and_take_cpus_and_time_to_start(columns, changes, seconds):
    predicted = simulate(spinning(0, **columns), **changes).seconds
    assert predicted == pytest.approx(seconds, abs=0.01)


def test_processes_start_as_those_of_the_recording_did():
    simulator = Simulator(spinning(0))
    simulator.works = {"c": replace(simulator.works["c"], startup=(0.5, 0.4))}
    predicted = simulator.simulate(scheduler="processes", chunksize=1).seconds
    assert predicted == pytest.approx(5.5, abs=0.01)


def test_results_pass_between_processes_through_the_scheduler():
    few, many = (in_processes(spinning(size), chunksize=1) for size in (0, SIZE))
    # Each result comes to the scheduler, and eight go to the last task: most while nothing runs.
    assert 8 * SIZE < (many - few) * BYTES_A_SECOND < 17 * SIZE
    assert Simulator(spinning(SIZE)).bytes_of_results == (9 + 8) * SIZE
    # Sizes that are not known may be given.
    assert np.isnan(Simulator(spinning()).bytes_of_results)
    assert in_processes(spinning(), result_bytes=0) == in_processes(spinning(0))
    with pytest.raises(DiagnosticError, match="CacheProfiler"):
        in_processes(spinning())


def test_the_results_of_a_chain_do_not_leave_their_process():
    rows = {("t", n): [n, n + 1, n + 1] for n in range(4)}
    needs = {("t", n): {("t", n - 1)} if n else set() for n in range(4)}
    recording = recording_of(rows, needs, 4.0, 2, cpu=1.0)
    alone, moved = (in_processes(recording, result_bytes=size) for size in (0, SIZE))
    # Only that of the last one does.
    assert moved - alone == pytest.approx(SIZE / BYTES_A_SECOND, rel=0.01)


def test_threads_move_nothing():
    rows = {("t", n): [n // 2, n // 2 + 1, n // 2 + 1.5] for n in range(8)}
    recording = recording_of(rows, {key: set() for key in rows}, 4.5, 2)
    at = np.arange(8) // 2
    transfers = {
        "task": [*range(8)] * 2,
        "side": ["worker"] * 16,
        "activity": ["deserialize"] * 8 + ["serialize"] * 8,
        "start": [*at, *(at + 0.75)],
        "stop": [*(at + 0.25), *(at + 1.0)],
        "bytes": [1e6] * 16,
    }
    recording = with_tables(of_computation(recording, scheduler="processes"), transfers=transfers)
    assert simulate(recording, scheduler="threads").seconds == pytest.approx(2, abs=0.01)


def test_what_is_not_known_and_what_failed():
    unknown = {"stop": [3.0, np.nan], "start": [np.nan, 5.0], "collected": [3.0, np.nan]}
    recording = several([1.0, 5.0], [3.0, 9.0], 10.0)
    damaged = with_columns(recording, "tasks", outcome=["ok", "unfinished"], **unknown)
    assert simulate(damaged).seconds == pytest.approx(10)
    assert np.isfinite(simulate(damaged, workers=4, remove={"overhead"}).seconds)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"workers": 0}, "^workers: expected a positive integer or inf, found 0$"),
        ({"workers": 1.5}, "found 1.5$"),
        ({"remove": {"gravity"}}, "^remove: expected a set of .* cpu-wait, .*, found gravity$"),
        ({"remove": "overhead"}, "expected a set of activities among .*, found overhead$"),
        ({"remove": {"idle"}}, "found idle$"),
        ({"speedup": {"none": 2}}, "the key of a task, found 'none'; functions are 0$"),
        ({"speedup": {"t": 0}}, "^speedup: .* a factor above 0 for 't', such as 2.0, found 0$"),
        ({"speedup": {"t": inf}}, "above 0"),
        ({"merge_tasks": 0}, "^merge_tasks: expected a positive integer, found 0$"),
        ({"chunksize": 0}, "^chunksize: expected a positive integer, found 0$"),
        ({"scheduler": "cluster"}, "expected one of processes, threads, found 'cluster'$"),
        ({"remove": {"gil-wait": 1.5}}, "a share from 0 to 1 of .*, found 1.5 of gil-wait$"),
        ({"remove": {"overhead": 0.5}}, "found 0.5 of overhead$"),
        *(
            ({change: value}, f"^{change}: expected .*found ")
            for change, values in {
                "workers": ["4", [2], True, float("nan")],
                "merge_tasks": ["2", inf],
                "chunksize": ["6"],
                "scheduler": [["threads"], "sync"],
                "result_bytes": ["1 MB", -1e12, float("nan")],
                "idle_machine": ["no"],
                "idle_pools": [1],
                "speedup": ["f", 2.0, ["f"], {5: 2.0}, {"f": "2"}, {"f": True}],
                "remove": [
                    *(5, [["overhead"]], {1, "overhead"}),
                    *({"overhead": "0.5"}, {"overhead": None}),
                ],
            }.items()
            for value in values
        ),
    ],
)
def test_what_is_refused(arguments, message):
    recording = run_virtually(*random_graph(0, 5), 2)
    with pytest.raises(DiagnosticError, match=message):
        simulate(recording, **arguments)


@pytest.mark.parametrize(
    "dependencies, changes, message",
    [
        ([(0, 1), (1, 0)], {}, "damaged"),
        ([(0, 1), (1, 0)], {"merge_tasks": 2}, "damaged"),
        ([(0, 1)], {"merge_tasks": 2}, "^merge_tasks: expected tasks that were submitted"),
    ],
)
def test_tasks_that_depend_on_later_ones(dependencies, changes, message):
    task, depends_on = zip(*dependencies)
    dependencies = {"task": task, "depends_on": depends_on}
    damaged = with_tables(in_rounds(2, 1), dependencies=dependencies)
    with pytest.raises(DiagnosticError, match=message):
        simulate(damaged, **changes)
    if len(task) == 1:
        assert simulate(damaged).seconds == pytest.approx(2)


def test_times_that_no_scheduler_has_make_no_step_negative():
    """Tasks that are said to start before others of their round were submitted."""
    rows = {("t", n): [n * 1e-3, n * 1e-3 + 5e-4, 1 + n * 1e-3] for n in range(100)}
    recording = recording_of(rows, {key: set() for key in rows}, 2.0, 4)
    for workers in (None, 2, 8):
        predicted = simulate(recording, workers=workers)
        assert 0 <= predicted.scheduling <= predicted.seconds
