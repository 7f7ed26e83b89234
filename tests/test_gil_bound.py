"""Waits for the GIL where CPUs are short: the thread that has it waits for a CPU, and all others for it."""

import numpy as np
import pytest

from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.interpreter import gil_bound
from dask_diag.analysis.simulation.schedulers import BYTES_A_SECOND, POOL_START

from .recordings import (
    MAIN,
    Task,
    advised,
    by_code,
    check,
    in_rounds,
    run,
    two_at_once,
    with_columns,
    with_stacks,
    with_tables,
    with_waits,
)

pytestmark = pytest.mark.once


def waiting(cpu, for_cpu, for_gil, workers=2, others=None, **columns):
    """Tasks of a second, as many at once as there are workers, and the shares of that second."""
    if others is not None:
        columns["cpu_other_processes"] = others
    recording = in_rounds(40 * workers, workers, cpu, **columns)
    every = np.arange(40 * workers)
    waits = {
        "task": [*every, *every],
        "activity": ["cpu-wait"] * len(every) + ["gil-wait"] * len(every),
        "seconds": [for_cpu] * len(every) + [for_gil] * len(every),
        "samples": [0] * len(every) + [100] * len(every),
    }
    return with_tables(recording, waits=waits)


def with_threads(**cpu_of_kinds):
    """The CPU seconds of threads, by kind."""
    kinds = list(cpu_of_kinds)
    groups = {
        "computation": ["c"] * len(kinds),
        "kind": kinds,
        "name": kinds,
        "threads": [1] * len(kinds),
        "cpu_seconds": list(cpu_of_kinds.values()),
    }
    return with_tables(waiting(0.5, 0.0, 0.5), threads=groups)


def sized(recording, size=8.0):
    """With results of so many bytes."""
    return with_columns(recording, "tasks", nbytes=[size] * len(recording.tasks))


def with_graph_bytes(recording, size):
    """With data of so many bytes that the graph gives to its tasks."""
    return with_columns(recording, "computations", graph_bytes=[size])


ADVISED = "scheduler='processes'{}, predicted to save"
MEASURE_AGAIN = (
    "upper_bound",
    "medium",
    "record again while CPUs are idle",
    "not: releases the GIL",
)


@pytest.mark.parametrize(
    "made, cases",
    [
        (
            waiting,
            {
                (0.5, 0.0, 0.5): ("estimate", "high", 20, {"cpus": None}),
                # Measured of tasks that release the GIL, on two CPUs beside five busy programs:
                # hashing on two and on six threads, and hashing and Python in equal parts.
                **dict.fromkeys(
                    [
                        (0.11, 0.77, 0.11, 2, 60.0),
                        (0.08, 0.64, 0.28, 6, 60.0),
                        (0.13, 0.57, 0.30, 6, 60.0),
                        (0.08, 0.86, 0.03, 6, 60.0),
                    ],
                    None,
                ),
                # Python loops on six threads beside the same programs, and what lies between:
                # where the cause is not certain nothing is advised but to measure again.
                (0.14, 0.15, 0.71, 6): (*MEASURE_AGAIN, {"cpus": 240 * 0.71 * 15 / 29}),
                (0.16, 0.14, 0.7, 6): (
                    *("estimate", "high", "not: record again", "releases the GIL"),
                    {"cpus": 240 * 0.7 * 14 / 30},
                ),
                (0.2, 0.3, 0.5, 6): (*MEASURE_AGAIN, {"cpus": 240 * 0.5 * 3 / 5}),
                # Half of the time is spent waiting for the GIL; of the other half so much has a
                # CPU.
                (0.152, 0.348, 0.5, 4): True,
                (0.148, 0.352, 0.5, 4): None,
                # Other programs may only use the CPUs that are left: at most all is saved that is
                # without them.
                (0.5, 0.0, 0.5, 2, 20.0): (20, "upper_bound"),
                (0.5, 0.0, 0.5, 2, 40.0): (20, "upper_bound"),
            },
        ),
        # Two tasks that use one CPU together and block often; other programs have the other CPU.
        (
            lambda others: two_at_once(
                cpu=0.5, voluntary_switches=1000.0, cpu_other_processes=others
            ),
            {0.0: "upper_bound", 0.6: "upper_bound", 0.75: None},
        ),
        # Waits for the scheduler's thread are not those for tasks: two tasks at once use 40 s of
        # CPU, so 20 s of other tasks compete with each task.
        (
            lambda scheduler: with_threads(tasks=40.0, scheduler=scheduler),
            {
                0.0: ("estimate", "high", {"scheduler": None}),
                5.0: ("estimate", "high", {"scheduler": 40 * 0.2}),
                20.0: ("estimate", "medium", {"scheduler": 40 * 0.5}),
                80.0: None,
            },
        ),
        # No more processes are advised than there are CPUs. Tasks compute for 40 s in all, one at
        # a time.
        (
            lambda workers: sized(waiting(1 / workers, 0.0, 1 - 1 / workers, workers)),
            {2: ADVISED.format(""), 16: ADVISED.format(", num_workers=2")},
        ),
        # Data in the graph are moved: two processes save 20 s, less the start; 10 s of 40 are
        # worth it. A GB takes four seconds.
        (
            lambda size: with_graph_bytes(sized(waiting(0.5, 0.0, 0.5)), size),
            {
                0.0: (f"compute with {ADVISED.format('')}", "not: of data in the graph"),
                1.8e9: (f"compute with {ADVISED.format('')}", "of data in the graph"),
                2.4e9: ("not: compute with", "of data in the graph", "not: if the program passes"),
            },
        ),
        (
            lambda cpu: sized(waiting(cpu, 0.0, 0.5)),
            {0.5: "if the program passes less than 1.92 GB of data"},
        ),
    ],
)
def test_gil_bound(made, cases):
    check("gil-bound", made, cases)


def test_guesses_lose_no_more_than_what_other_programs_left():
    for others in (0.0, 0.6):
        recording = two_at_once(cpu=0.5, voluntary_switches=1000.0, cpu_other_processes=others)
        assert by_code(recording)["gil-bound"].potential_saving <= (1 - others) / 2 + 1e-6


def test_where_other_programs_have_all_cpus_processes_do_not_help():
    full = gil_bound(Analysis(waiting(0.5, 0.0, 0.5, others=40.0)))
    assert "processes would hardly help" in full.advice


def test_threads_of_a_library_that_hold_the_gil_are_part_of_the_tasks():
    assert gil_bound(Analysis(with_threads(tasks=40.0, scheduler=80.0))) is None
    assert gil_bound(Analysis(with_threads(tasks=40.0, scheduler=80.0, python=60.0)))


def in_processes(recording, **changes):
    simulator = Analysis(recording).simulator
    return simulator.simulate(scheduler="processes", result_bytes=0.0, **changes).seconds


@pytest.mark.parametrize("others, longer", [(0.0, 0.0), (1.0, 0.5), (2.0, 1.0)])
def test_processes_start_in_more_time_on_a_busy_machine(others, longer):
    """Tasks hardly compute, so that only the start takes longer."""
    recording = waiting(0.0, 0.0, 0.0, others=others * 40.0)
    took = in_processes(recording) - in_processes(recording, idle_machine=True)
    assert took == pytest.approx(longer * POOL_START, rel=0.1)


@pytest.mark.parametrize("workers", [2, 16])
def test_two_processes_save_half_of_what_all_threads_need(workers):
    recording = sized(waiting(1 / workers, 0.0, 1 - 1 / workers, workers))
    # Less up to a batch of six, which one of them runs alone.
    (saved,) = advised(recording, "gil-bound", "predicted to save ")
    assert saved == pytest.approx(40 - 20 - POOL_START, abs=1.1)
    # Sixteen would start at once, on two CPUs.
    seconds = in_processes(recording, chunksize=1)
    assert seconds == pytest.approx(20 + workers / 2 * POOL_START, abs=0.3)


@pytest.mark.parametrize("size", [1e9, 10e9])
def test_data_in_the_graph_take_time_of_the_one_thread_that_sends_them(size):
    none, some = (with_graph_bytes(waiting(0.5, 0.0, 0.5), bytes_) for bytes_ in (0.0, size))
    assert Analysis(some).simulator.bytes_of_graphs == size
    # Some of it while tasks compute.
    longer = in_processes(some) - in_processes(none)
    assert size / BYTES_A_SECOND / 4 <= longer <= size / BYTES_A_SECOND + 0.01


def at_once(recording, times=4):
    """The computation of a recording, run so many times at the same time."""

    def repeated(table, *rows):
        old = getattr(recording, table)
        shifted = {
            name: np.concatenate([old[name] + len(recording.tasks) * n for n in range(times)])
            for name in rows
        }
        return {table: {name: old[name].tolist() * times for name in old.columns} | shifted}

    names = [f"c{n}" for n in range(times)]
    of_tasks = np.repeat(names, len(recording.tasks)).tolist()
    made = with_tables(
        recording, **repeated("waits", "task"), **repeated("dependencies", "task", "depends_on")
    )
    made = with_columns(made, "computations", times, computation=names)
    return with_columns(made, "tasks", times, computation=of_tasks)


def test_findings_of_computations_at_once_lose_of_the_time_that_passed():
    # Processes save a third of each computation, which is a tenth of all of them added up.
    made = sized(waiting(0.5, 0.0, 0.5, cpus=8))
    check("gil-bound", at_once, {made: ADVISED.format("")})
    assert by_code(at_once(made))["gil-bound"].potential_saving <= 40
    # The second worker runs five tasks, the first one takes as long as four: a fifth is saved.
    tasks = [Task(0, 4, 0.0), *(Task(n, n + 1, 0.0, worker=1) for n in range(5))]
    found = by_code(at_once(with_waits(run(tasks), "io-wait")))["io-bound"]
    assert "num_workers=4; or move" in found.advice
    assert found.potential_saving == pytest.approx(1.0, abs=0.01)
    steps = run([Task(n, n + 1, 0.0, depends_on=(n - 1,) * (n > 0)) for n in range(10)])
    alone = by_code(steps)["serial-chain"]
    check("serial-chain", at_once, {steps: (alone.potential_saving, alone.severity)})


def in_turns(for_lock, for_gil, cpu=0.5, samples=(70, 95)):
    """Two tasks at once that computed one at a time, and waited for a lock and for the GIL."""
    recording = in_rounds(80, 2, cpu)
    every = list(range(80))
    waits = {
        "task": every * 3,
        "activity": ["cpu-wait"] * 80 + ["lock-wait"] * 80 + ["gil-wait"] * 80,
        "seconds": [0.0] * 80 + [for_lock] * 80 + [for_gil] * 80,
        "samples": [1] * 80 + [samples[0]] * 80 + [samples[1]] * 80,
    }
    return with_tables(recording, waits=waits)


def test_a_lock_whose_holder_waits_for_the_gil_is_the_gil():
    cases = {
        # As pandas parses text: Python's own lock of a cache, held by code that holds the GIL.
        (0.4, 0.1): ("high", 20, "waited 40.0 s for the GIL", "releases the GIL"),
        # Nobody waits for the GIL: the holder releases it, or sleeps.
        (0.5, 0.0, 0.5, (100, 0)): None,
        # The holder releases it; a thread that takes turns with another waits for it now and then.
        (0.4, 0.1, 0.5, (65, 35)): None,
        (0.7, 0.1, 0.2): None,
        # Tasks compute at once.
        (0.2, 0.05, 0.75): None,
    }
    check("gil-bound", in_turns, cases)
    assert "lock-bound" not in by_code(in_turns(0.4, 0.1))
    assert "lock-bound" in by_code(in_turns(0.5, 0.0, 0.5, (100, 0)))
    assert "lock-bound" in by_code(in_turns(0.7, 0.1, 0.2))


def test_the_line_of_the_program_that_takes_most_time_is_to_be_vectorized():
    library = ("parse", "/usr/lib/python3/dist-packages/parser.py", 7, 1)
    stacks = [((0.0, 40.0), "work", [MAIN, library], 70.0, 35.0)]
    recording = with_stacks(sized(waiting(0.5, 0.0, 0.5)), stacks)
    advice = by_code(recording)["gil-bound"].advice
    assert "first of all in main (~/code/main.py:5), 100% of the time in own code" in advice


def test_of_a_program_that_processes_do_not_help_it_is_not_known_what_can_be_won():
    recording = sized(waiting(0.5, 0.0, 0.5), 5e9)
    assert by_code(recording)["gil-bound"].certainty == "upper_bound"
    assert by_code(sized(waiting(0.5, 0.0, 0.5)))["gil-bound"].certainty == "estimate"


def test_what_libraries_do_in_small_tasks_is_no_code_that_holds_the_gil():
    """Tasks of 5 ms wait for the GIL for half of it, and the scheduler takes 3 ms for each."""
    rows = [
        Task(0.008 * n, 0.008 * n + 0.005, 0.0025, worker=w) for n in range(400) for w in (0, 1)
    ]
    made = with_waits(run(rows), "gil-wait")
    library = ("isin", "/opt/env/lib/python3.11/site-packages/pandas/core/algorithms.py", 5, 1)
    for path, codes in (
        ([library], {"tasks-too-small"}),
        ([MAIN, library], {"tasks-too-small", "gil-bound"}),
    ):
        found = by_code(with_stacks(made, [((0.0, 3.2), "work", path, 4.0, 2.0)]))
        assert set(found) & {"gil-bound", "tasks-too-small"} == codes


def test_tasks_that_mostly_sleep_wait_for_the_gil_besides():
    """Of each second they sleep for a share, and wait for the GIL for a fifth."""

    def sleeping(share):
        made = in_rounds(80, 2, 0.8 - share)
        waits = {"cpu-wait": 0.0, "gil-wait": 0.2, "sleep": share}
        rows = [(task, name, one) for name, one in waits.items() for task in range(80)]
        columns = zip(("task", "activity", "seconds"), zip(*rows, strict=True), strict=True)
        return with_tables(made, waits={**dict(columns), "samples": [100] * len(rows)})

    check("gil-bound", sleeping, {0.29: True, 0.31: None})


def test_threads_that_tasks_start_hold_the_gil_for_them():
    """Tasks compute nothing themselves."""
    made = waiting(0.0, 0.1, 0.5)
    groups = {"computation": ["c"], "kind": ["ended"], "name": [""], "threads": [0]}
    for cpu, is_found in ((36.0, True), (0.1, False)):
        found = by_code(with_tables(made, threads={**groups, "cpu_seconds": [cpu]}))
        assert ("gil-bound" in found) == is_found
