"""Findings on uneven ends, of one computation and of several: who ran how long, and what it cost."""

from __future__ import annotations

import pytest

from .tables import with_columns, with_tables
from .test_finding_thresholds import NAN, Task, by_code, numbers, run

pytestmark = pytest.mark.once


def in_sequence(*computations, workers=2, **columns):
    """Computations of these tasks, each of which starts as the one before has stopped."""
    tasks, rows, names = [], [], []
    offset = 0.0
    for n, those in enumerate(computations):
        lasts = max(task.stop for task in those)
        rows.append((f"c{n}", offset, offset + lasts))
        names += [f"c{n}"] * len(those)
        tasks += [
            task._replace(start=task.start + offset, stop=task.stop + offset) for task in those
        ]
        offset += lasts
    recording = run(tasks, workers=workers, cpus=workers, **columns)
    times = dict(zip(("computation", "start", "stop"), map(list, zip(*rows)), strict=True))
    recording = with_columns(recording, "computations", len(rows), **times)
    return with_columns(recording, "tasks", computation=names)


def uneven(longer, shorter):
    """One worker runs a task for longer than the other, and not far longer."""
    return [Task(0, longer), Task(0, shorter, worker=1)]


def test_of_several_computations_the_most_uneven_is_described_and_all_are_added_up():
    # Idle for 0.5, 0.4, 0.6 and 0.1 s, of which two workers could have saved half.
    ran = (1.0, 0.5), (1.0, 0.6), (1.2, 0.6), (1.0, 0.9)
    recording = in_sequence(*(uneven(*seconds) for seconds in ran))
    finding = by_code(recording)["imbalance"]
    assert numbers(finding, "longest", "shortest") == (1.2, 0.6)
    assert finding.seconds_lost == pytest.approx(0.8)
    # 0.8 of 4.2 s.
    assert finding.severity == "medium"
    intervals = [(0.5, 1.0), (1.6, 2.0), (2.6, 3.2), (4.1, 4.2)]
    assert [end for pair in finding.where.intervals for end in pair] == pytest.approx(
        [end for pair in intervals for end in pair]
    )


def test_an_even_computation_has_no_uneven_end():
    finding = by_code(in_sequence(uneven(1.0, 0.2), uneven(0.3, 0.3)))["imbalance"]
    assert finding.where.intervals == ((0.2, 1.0),)
    assert finding.seconds_lost == pytest.approx(0.4)


@pytest.mark.parametrize(("shorter", "is_found"), [(1.42, False), (1.38, True)])
def test_imbalance_is_a_share_of_the_wall(shorter, is_found):
    # Half of the idle time, 0.29 or 0.31 s of two seconds.
    assert ("imbalance" in by_code(in_sequence(uneven(2.0, shorter)))) == is_found


@pytest.mark.parametrize(
    ("ran", "workers", "said"),
    [
        # From 0 on, one after the other on each worker.
        ([[0.5, 0.5], [0.4, 0.4], [0.3, 0.1]], 3, (1.0, 0.4)),
        # A worker that ran nothing is in no row.
        ([[0.5, 0.5], [0.4, 0.4]], 3, (1.0, 0.0)),
    ],
)
def test_the_most_and_the_least_busy_worker_are_named(ran, workers, said):
    tasks = [
        Task(sum(those[:n]), sum(those[: n + 1]), worker=worker)
        for worker, those in enumerate(ran)
        for n in range(len(those))
    ]
    finding = by_code(in_sequence(tasks, workers=workers))["imbalance"]
    assert numbers(finding, "longest", "shortest") == said


def one_for_long(others, seconds):
    tasks = [Task(0, stop, worker=worker) for worker, stop in enumerate(others)]
    return [*tasks, Task(0, seconds, worker=len(others))]


def test_of_several_stragglers_the_worst_is_named_and_all_are_added_up():
    computations = (
        one_for_long([0.4, 0.4, 0.4], 1.3),
        one_for_long([0.4, 0.5, 0.9], 2.0),
        one_for_long([0.4, 0.4, 0.4], 1.25),
    )
    finding = by_code(in_sequence(*computations, workers=4))["straggler"]
    assert finding.evidence == (
        "Task ('work', 7) took 2.00 s, other tasks of work 500 ms (median); other workers were "
        "idle until it stopped"
    )
    # Four workers that divide the work evenly take 0.625, 0.95 and 0.6125 s.
    assert finding.seconds_lost == pytest.approx(4.55 - (0.625 + 0.95 + 0.6125))
    assert (finding.severity, finding.kind) == ("high", "about")
    assert finding.where.intervals == ((1.3, 3.3),)


@pytest.mark.parametrize(("alone", "severity"), [(1.9, None), (2.1, "medium")])
def test_a_straggler_costs_a_share_of_the_wall(alone, severity):
    # Four workers save three quarters of what it runs alone: 1.43 or 1.58 of 10 s.
    tasks = one_for_long([0.1] * 3, 10.0)
    tasks += [Task(0.1, 10 - alone, function=f"other-{n}", worker=n) for n in range(3)]
    finding = by_code(in_sequence(tasks, workers=4)).get("straggler")
    assert (finding and finding.severity) == severity
    if finding:
        assert finding.seconds_lost == pytest.approx(0.75 * alone)


def test_no_remedy_is_known_where_another_task_takes_about_as_long():
    finding = by_code(in_sequence(one_for_long([0.4, 0.4, 1.2], 1.25), workers=4))["straggler"]
    assert finding.advice == "no remedy is known: splitting that task is not predicted to help"
    assert finding.seconds_lost == pytest.approx(0.05)
    assert finding.kind == "about"


@pytest.mark.parametrize("scheduler", ["threads", "processes", "distributed"])
@pytest.mark.parametrize("with_pool", [False, True])
@pytest.mark.parametrize("collected", [1.0, NAN])
def test_without_known_times_no_share_of_them_is_lost(scheduler, with_pool, collected):
    start = collected - 1
    tasks = [Task(start, NAN, None, "work", n, (), collected, "failed") for n in range(2)]
    recording = run(tasks, stop=1.0, scheduler=scheduler)
    if with_pool:
        pool = {"computation": "c", "kind": "native", "name": "openblas", "threads": 2}
        columns = {name: [value] for name, value in pool.items()}
        columns["cpu_seconds"] = [1.0]
        recording = with_tables(recording, threads=columns)
    assert set(by_code(recording)) == {"failed-tasks"}


def test_a_task_that_did_not_stop_is_no_end():
    unfinished = Task(1.25, NAN, worker=0, collected=1.25, outcome="unfinished")
    recording = run([*one_for_long([0.4] * 3, 1.25), unfinished], workers=4, stop=1.25)
    assert "('work', 3) took 1.25 s" in by_code(recording)["straggler"].evidence


@pytest.mark.parametrize("tail", [0.0, 0.2])
def test_stragglers_beside_each_other_are_divided_together(tail):
    """Two of four workers run them, for 1.2 s: all four would take half of that."""
    others = [Task(0, 0.3, worker=n) for n in range(4)]
    slow = [Task(0.3, 1.5, worker=0), Task(0.3, 1.5 - tail, worker=1)]
    finding = by_code(run([*others, *slow], workers=4))["straggler"]
    # Two are idle for 1.2 s, and a third at the end.
    assert finding.seconds_lost == pytest.approx((2 * 1.2 + tail) / 4, rel=0.1)
    assert "1 more beside it" in finding.evidence
    assert finding.advice.startswith("check the input of these tasks")
    assert set(finding.where.workers) == {"thread-0", "thread-1"}


def test_a_slow_task_of_another_time_is_no_straggler_beside_it():
    early = Task(0, 1.2, worker=0)
    # Three workers have enough to do beside the first of them, and nothing beside the second.
    others = [Task(n * 0.4, n * 0.4 + 0.4, worker=m) for n in range(3) for m in range(1, 4)]
    recording = run([*others, early, Task(1.2, 2.6, worker=1)], workers=4)
    finding = by_code(recording)["straggler"]
    assert "more" not in finding.numbers
    assert finding.seconds_lost == pytest.approx(1.4 * 3 / 4, rel=0.02)


def test_a_straggler_before_the_last_step_is_found():
    parts = one_for_long([0.4] * 3, 1.25)
    total = Task(1.25, 1.35, function="sum", depends_on=(0, 1, 2, 3))
    report = Task(1.35, 1.4, function="report", depends_on=(4,))
    results = by_code(run([*parts, total, report], workers=4))
    assert "imbalance" not in results
    assert results["straggler"].evidence.startswith("Task ('work', 3) took 1.25 s")
    # As if the last step was not there: 0.85 s, of which a quarter remains.
    assert results["straggler"].seconds_lost == pytest.approx(0.85 * 3 / 4)
    assert results["straggler"].where.workers == ("thread-3",)


def test_a_later_step_of_the_same_function_is_no_straggler():
    """As in a QR decomposition: of each block, and then of what these give together."""
    parts = [Task(0.0, 0.4, worker=n, function="qr") for n in range(4)]
    stacked = Task(0.4, 0.45, function="stack", depends_on=(0, 1, 2, 3))
    both = Task(0.45, 1.7, function="qr", depends_on=(4,))
    assert "straggler" not in by_code(run([*parts, stacked, both], workers=4))
    # The same, but it could have run beside the others.
    alone = Task(0.45, 1.7, function="qr")
    assert "straggler" in by_code(run([*parts, stacked, alone], workers=4))


def test_what_runs_alone_for_longer_hides_no_straggler():
    # One task that loads all data is no straggler: there are no others of its function.
    load = Task(0, 2.0, function="load")
    parts = [Task(2.0, 2.4, worker=n, depends_on=(0,)) for n in range(3)]
    slow = Task(2.0, 3.5, worker=3, depends_on=(0,))
    results = by_code(run([load, *parts, slow], workers=4))
    assert "('work', 4) took 1.50 s" in results["straggler"].evidence
    assert results["straggler"].seconds_lost == pytest.approx(1.1 * 3 / 4)


def test_a_slow_task_beside_busy_workers_is_no_straggler():
    others = [Task(n / 4, (n + 1) / 4, worker=w) for w in range(3) for n in range(5)]
    total = Task(1.25, 1.3, function="sum", depends_on=tuple(range(16)))
    assert "straggler" not in by_code(run([*others, Task(0, 1.25, worker=3), total], workers=4))
