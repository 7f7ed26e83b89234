"""What the simulator changes in the work of a recording: the costs of moving data taken out."""

from dataclasses import replace

import numpy as np
import pytest

from dask_diag.analysis.simulation.change import (
    merged,
    side_by_side,
    with_fewer_turns,
    with_fewer_workers,
    without,
)
from dask_diag.analysis.simulation.replay import Timeline, contention, least_seconds
from dask_diag.analysis.simulation.schedulers import (
    BYTES_A_SECOND,
    COSTS,
    bytes_moved,
    result_sizes,
    startup_slowdown,
    startups,
    under,
)
from dask_diag.analysis.simulation.simulate import Simulator
from dask_diag.analysis.simulation.work import STEPS, Work
from dask_diag.analysis.task_times import TRANSFERS

from .recordings import with_columns, with_tables
from .virtual_dask import recording_of

pytestmark = pytest.mark.once

SMALL, LARGE = 1e3, 2e6
TASKS = 4


def with_moves(moves):
    """Four tasks, and what was moved: a task, the side, what was done, seconds and bytes."""
    rows = {f"t-{n}": [n, n + 1, n + 1] for n in range(TASKS)}
    recording = recording_of(rows, {key: set() for key in rows}, TASKS, 2)
    task, side, activity, seconds, size = zip(*moves, strict=True)
    transfers = {"task": task, "side": side, "activity": activity, "bytes": size}
    times = {"start": np.zeros(len(moves)), "stop": seconds}
    return with_tables(recording, transfers={**transfers, **times})


NOTHING = {"pool_cpu": 0.0, "cpu_children": 0.0, "others": 0.0, "startup": (), "after": 0.0}
NO_EDGES = {"task": np.zeros(0, np.int64), "depends_on": np.zeros(0, np.int64)}


def work_of(**columns):
    """Work of which each step takes a second, but for these."""
    each = {name: np.full(TASKS, 1.0) for name in (*STEPS, "seconds", "cpu")}
    return Work(
        rows=np.arange(TASKS),
        workers=2,
        batch=1,
        switching=0.1,
        submit=0.5,
        cpu_scheduler=0.2,
        graph=0.3,
        before=0.4,
        **NOTHING,
        **NO_EDGES,
        **each | {"gil": np.zeros(TASKS)} | {name: np.array(v) for name, v in columns.items()},
    )


def assert_steps(work, **steps):
    for name, expected in steps.items():
        np.testing.assert_allclose(getattr(work, name), expected, err_msg=name)


MOVES = [
    (0, "worker", "deserialize", 0.5, LARGE),
    (1, "scheduler", "serialize", 0.75, LARGE),
    (2, "worker", "serialize", 0.5, LARGE),
    (3, "scheduler", "deserialize", 0.25, LARGE),
    (2, "worker", "deserialize", 0.0, SMALL),
    (0, "worker", "serialize", 0.0, np.nan),
]
"""The first two tasks have large inputs, the others large results."""


def test_without_data_each_step_is_as_quick_as_for_tasks_that_move_little():
    work = work_of(
        wake=[0.9, 0.8, 0.2, 0.2], deliver=[0.1, 0.1, 0.7, 0.6], notice=[0.4, 0.4, 2.0, 3.0]
    )
    made = without(work, with_moves(MOVES), TRANSFERS)
    # Large inputs are on their way before a task, large results after it.
    assert_steps(made, wake=0.2, deliver=0.1, notice=0.4, gap=1.0)
    # What the scheduler pickled itself was measured.
    assert_steps(made, prepare=[1.0, 0.25, 1.0, 1.0], collect=[1.0, 1.0, 1.0, 0.75])
    assert_steps(made, submit=0.5, graph=0.3, before=0.4, switching=0.1)


def test_where_all_data_is_large_steps_are_as_quick_as_between_processes_elsewhere():
    moves = [
        (task, "worker", activity, 0.0, LARGE)
        for task in range(TASKS)
        for activity in ("serialize", "deserialize")
    ]
    made = without(work_of(wake=[1.0, 1.0, 1.0, 1e-6]), with_moves(moves), TRANSFERS)
    usual = COSTS["processes"]
    assert_steps(made, wake=[usual.wake] * 3 + [1e-6], deliver=usual.deliver)
    assert_steps(made, notice=usual.notice, submit=usual.submit)


def test_without_overhead_nothing_is_between_tasks():
    made = without(work_of(), with_moves(MOVES), {"overhead"})
    nothing = (*STEPS, "before", "submit", "switching", "cpu_scheduler", "after")
    assert_steps(made, **dict.fromkeys(nothing, 0.0), graph=0.3)
    assert without(work_of(), with_moves(MOVES), {"graph"}).graph == 0.0


MOVING = {"collect", "notice"}


def test_under_processes_each_result_passes_the_scheduler():
    """A chain of two tasks, which dask fuses, and two tasks alone."""
    chained = replace(work_of(gil=[0.5] * TASKS), task=np.array([1]), depends_on=np.array([0]))
    sizes = np.array([4.0, 1.0, 2.0, 0.0]) * BYTES_A_SECOND
    made, costs = under(chained, "processes", 2, sizes, startup=0.7), COSTS["processes"]
    own = np.array([1.0, 0.0, 1.0, 1.0])
    assert_steps(made, **{name: getattr(costs, name) * own for name in set(STEPS) - MOVING})
    # The first one's result stays in its process.
    moving = np.array([0.0, 1.0, 2.0, 0.0])
    assert_steps(made, **{name: getattr(costs, name) * own + moving for name in MOVING})
    assert_steps(made, startup=(0.7, 0.7), batch=costs.batch, submit=costs.submit, switching=0.0)
    # Nor is it sent to the task that became one with it; of three tasks alone nothing is sent.
    np.testing.assert_allclose(bytes_moved(chained, sizes), [[0.0] * 4, [0.0, *sizes[1:]]])
    needed = replace(chained, task=np.array([2, 3]), depends_on=np.array([0, 0]))
    np.testing.assert_allclose(bytes_moved(needed, sizes), [[0.0, 0.0, *sizes[[0, 0]]], sizes])
    # Three are sent, in batches.
    of_a_task = costs.prepare + costs.collect + costs.submit / costs.batch
    assert made.cpu_scheduler == pytest.approx(3.0 + 3 * of_a_task)
    assert not made.gil.any()


def test_only_tasks_of_a_function_side_by_side_are_merged():
    """Three tasks; after each one of another function, of which the last is followed by a third."""
    work = replace(
        work_of(),
        rows=np.arange(7),
        task=np.array([3, 4, 5, 6]),
        depends_on=np.array([0, 1, 2, 5]),
        **{name: np.arange(7.0) for name in (*STEPS, "seconds", "cpu", "gil")},
    )
    functions = np.array([0, 0, 0, 1, 1, 1, 1])
    made = merged(work, functions, 2)
    assert made.rows.tolist() == [0, 2, 3, 5, 6]
    assert made.seconds.tolist() == made.cpu.tolist() == made.gil.tolist() == [1, 2, 7, 5, 6]
    assert made.wake.tolist() == [0.5, 2, 3.5, 5, 6]
    assert [*zip(made.task.tolist(), made.depends_on.tolist())] == [(2, 0), (3, 1), (4, 3)]
    assert len(merged(work, functions, 100)) == 3
    # Three of seven are in a row of three, twice.
    assert side_by_side(work, functions) == 3


def test_no_task_is_merged_with_one_that_it_depends_on():
    """The last one depends on tasks one and two steps from the start."""
    work = replace(work_of(), task=np.array([1, 2, 3, 3]), depends_on=np.array([0, 0, 2, 0]))
    assert merged(work, np.zeros(TASKS, np.int64), 9).rows.tolist() == [0, 1, 3]
    # Side by side, two functions take turns; each is merged with its own.
    apart = merged(work_of(), np.array([0, 1, 0, 1]), 2)
    assert (apart.rows.tolist(), apart.seconds.tolist()) == ([0, 1], [2, 2])
    odd = {"rows": np.arange(8), **{name: np.ones(8) for name in (*STEPS, "seconds")}}
    eight = replace(work_of(), **odd)
    assert side_by_side(eight, np.array([1, 2, 3, 4, 4, 4, 4, 4])) == 5


def test_threads_wait_for_others_in_the_number_that_there_were():
    work = replace(work_of(wake=[0.1, 0.1, 0.1, 0.4]), cpu=np.zeros(TASKS), gil=np.zeros(TASKS))
    none = {name: np.zeros(TASKS) for name in STEPS if name != "wake"}
    work = replace(work, submit=0.0, switching=0.0, cpu_scheduler=0.0, **none)
    simulator = Simulator(with_moves(MOVES))
    simulator.works = {"c": work}
    # After 0.7 s in which the graph was made; on one worker no thread waits for another.
    for workers, seconds in ((1, 4 * 1.1), (2, 1.1 + 1.4), (4, 1.4)):
        predicted = simulator.simulate(workers=workers).computations["seconds"]
        assert predicted.tolist() == pytest.approx([0.7 + seconds])


def test_with_fewer_workers_threads_wake_up_sooner_in_proportion():
    """One of three others is left: a third of what the usual step took longer than the quickest."""
    work = replace(work_of(wake=[0.1, 0.1, 0.1, 0.4], gap=[0.1, 0.1, 0.1, 0.4]), workers=4)
    made = with_fewer_workers(work, 2)
    assert_steps(made, wake=[0.1, 0.1, 0.1, 0.2], gap=work.gap)
    assert_steps(with_fewer_workers(work, 1), wake=0.1)


def test_without_the_gil_steps_are_as_quick_as_of_tasks_that_do_nothing():
    usual = COSTS["threads"]
    work = work_of(**{name: [0.0, 1e-5, 0.1, 1.0] for name in STEPS})
    made = with_fewer_turns(work, 1.0)
    for name in set(STEPS) - {"gap"}:
        least = getattr(usual, name)
        assert_steps(made, **{name: [0.0, min(1e-5, least), least, least]})
    assert_steps(made, submit=usual.submit, gap=work.gap)
    wake = [0.0, 1e-5, (0.1 + usual.wake) / 2, (1 + usual.wake) / 2]
    assert_steps(with_fewer_turns(work, 0.5), wake=wake, submit=(0.5 + usual.submit) / 2)


def at_once(**columns):
    """Two tasks at once, from 0 to 2, that compute all the time; their timeline."""
    work = work_of(**{name: np.zeros(TASKS) for name in STEPS})
    arrays = {"rows": np.arange(2), "seconds": np.full(2, 2.0), "cpu": np.full(2, 2.0)}
    arrays |= {name: np.zeros(2) for name in (*STEPS, "gil")}
    idle = {"switching": 0.0, "cpu_scheduler": 0.0}
    work = replace(work, **{**idle, **arrays, **columns})
    return Timeline(np.zeros(2), np.full(2, 2.0), 2.0, 2.0), work


@pytest.mark.parametrize(
    "cpus, gils, columns, waiting, delay",
    [
        (2, 9, {}, 2.0, 0.0),
        # Both take twice as long.
        (1, 9, {}, 2.0, 2.0),
        # So they do where each needs the GIL always, or half of the time and two more halves.
        (9, 1, {"gil": np.full(2, 2.0)}, 2.0, 2.0),
        (9, 1, {"gil": np.full(2, 1.0)}, 2.0, 0.0),
        (9, 1, {"gil": np.full(2, 1.0), "switching": 1.0}, 2.0, 2.0),
        # The scheduler was busy for half of the time; it needs the GIL, too.
        (1, 9, {}, 1.0, 3.0),
        (9, 1, {"gil": np.full(2, 1.0)}, 1.0, 1.0),
        # Threads of a library had a CPU for half of the time, but not the GIL.
        (1, 9, {"pool_cpu": 1.0}, 2.0, 3.0),
        (9, 1, {"gil": np.full(2, 1.0), "pool_cpu": 1.0}, 2.0, 0.0),
        # Others had one of two CPUs; or both, of which a twentieth is thought to be free.
        (2, 9, {"others": 1.0}, 2.0, 2.0),
        (2, 9, {"others": 2.0}, 2.0, 2 * (2 / 0.1 - 1)),
        # Two thirds of three seconds each, with what comes before and after.
        (1, 9, {"wake": np.full(2, 0.5), "deliver": np.full(2, 0.5)}, 2.0, 3 * (4 / 3 - 1)),
        # No task needs more than one CPU.
        (1, 9, {"cpu": np.full(2, 8.0)}, 2.0, 2.0),
    ],
)
def test_tasks_that_need_more_than_there_is_delay_each_other(cpus, gils, columns, waiting, delay):
    timeline, work = at_once(**columns)
    timeline = replace(timeline, waiting=waiting)
    assert contention(timeline, work, cpus, gils) == pytest.approx(delay)
    # All in a tenth of the time; and beside a task that took none.
    times = ("start", "stop", "end", "waiting")
    timeline = replace(timeline, **{name: getattr(timeline, name) / 10 for name in times})
    seconds = ("cpu", "gil", "wake", "deliver", "switching", "pool_cpu")
    work = replace(work, **{name: getattr(work, name) / 10 for name in seconds})
    assert contention(timeline, work, cpus, gils) == pytest.approx(delay / 10)
    arrays = ("cpu", "gil", "wake", "deliver")
    work = replace(work, **{name: np.append(getattr(work, name), 0.0) for name in arrays})
    both = {name: np.append(getattr(timeline, name), 0.1) for name in ("start", "stop")}
    assert contention(replace(timeline, **both), work, cpus, gils) == pytest.approx(delay / 10)


def test_no_number_of_workers_takes_less_than_the_cpu_of_all():
    _, work = at_once(pool_cpu=3.0, switching=0.5, cpu_scheduler=1.0, gil=np.full(2, 0.5))
    # Tasks 4, the library 3, handing out 1 + 2 * 0.5: 9 CPU seconds.
    assert least_seconds(work, 2, 9) == pytest.approx(9 / 2)
    assert least_seconds(work, 99, 1) == pytest.approx(1 + 1 + 1)
    assert least_seconds(work, 99, 99) == pytest.approx(1)


def test_more_worker_processes_start_too_and_share_the_cpus():
    """Two of them were recorded on two CPUs: 0.6 and 0.5 s. Four have half a CPU each."""
    slowdowns = {(8, 0.0, 4): 2, (8, 2.0, 4): 2.5, (2, 2.0, 4): 1, (8, 0.0, 0): 8}
    for arguments, slower in slowdowns.items():
        assert startup_slowdown(*arguments) == slower
    _, work = at_once(startup=(0.6, 0.5))
    # Six that started with a third of a CPU; two of them start with a CPU each. Without two other
    # programs, which had half of the CPUs, in half the time.
    six, busy, none = (
        replace(work, **change) for change in ({"workers": 6}, {"others": 2.0}, {"startup": ()})
    )
    for before, after, workers, cpus, expected in (
        (work, work, 2, 2, (0.6, 0.5)),
        (work, work, 1, 2, (0.6,)),
        (work, work, 4, 2, (1.2, 1.0, 1.2, 1.2)),
        (work, work, 4, 4, (0.6, 0.5, 0.6, 0.6)),
        (six, six, 2, 2, (0.2, 0.5 / 3)),
        (work, busy, 2, 2, (0.3, 0.25)),
        (none, work, 4, 2, ()),
    ):
        assert startups(before, after, workers, cpus) == pytest.approx(expected)


@pytest.mark.parametrize("sized, are_known", [(20, True), (19, True), (18, False), (0, False)])
def test_sizes_are_known_if_those_of_nearly_all_results_are(sized, are_known):
    rows = {f"t-{n}": [n, n + 1, n + 1] for n in range(20)}
    recording = recording_of(rows, {key: set() for key in rows}, 20, 2)
    nbytes = [8.0] * sized + [np.nan] * (20 - sized)
    sizes = result_sizes(with_columns(recording, "tasks", nbytes=nbytes))
    assert (None if sizes is None else sizes.tolist()) == (
        [8.0] * sized + [0.0] * (20 - sized) if are_known else None
    )
    # Results that are cached have sizes, too: those of none are not known.
    assert result_sizes(replace(recording, metric_unit="bytes")) is None


@pytest.mark.parametrize("scheduler", ["processes", "threads"])
def test_the_scheduler_of_the_recording_changes_nothing(scheduler):
    recording = with_moves([(0, "worker", "serialize", 0.5, LARGE)])
    recording = with_columns(recording, "computations", scheduler=[scheduler])
    # Sizes of results, which are not known, do not matter.
    same = Simulator(recording).simulate(scheduler=scheduler)
    assert same.seconds == Simulator(recording).simulate().seconds
    other = "threads" if scheduler == "processes" else "processes"
    changed = Simulator(recording).simulate(scheduler=other, result_bytes=0)
    assert changed.seconds != same.seconds
