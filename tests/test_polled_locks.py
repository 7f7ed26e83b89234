"""Tasks that poll a lock: recordings of which it is known whether they went on one at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dask_diag import findings

from .stacks import recording_of_stacks
from .test_finding_thresholds import Task, run, with_waits

pytestmark = pytest.mark.once

POLLS = ("poll", "/home/someone/code/main.py", 7, 3)
POLLS_AGAIN = ("poll", "/home/someone/code/main.py", 8, 3)
HOLDS = ("hold", "/home/someone/code/main.py", 12, 10)


def recorded(tasks, slept, cpu_at_line=0.0, activity="sleep", elsewhere=0.0):
    """A recording of tasks of (worker, start, stop), which first slept so long, then held it.

    Of the time that they slept, that share is at another line.
    """
    recording = run(
        [Task(start, stop, cpu=0.0, worker=worker) for worker, start, stop in tasks],
        workers=1 + max(worker for worker, _, _ in tasks),
        cpus=8,
    )
    keys = recording.tasks.key.tolist()
    rows, of_rows = [], []
    for key, (_, start, stop), asleep in zip(keys, tasks, slept, strict=True):
        first = asleep * (1 - elsewhere)
        parts = [(POLLS, first, cpu_at_line * first), (HOLDS, stop - start - asleep, 0.0)]
        parts += [(POLLS_AGAIN, asleep * elsewhere, 0.0)] * (elsewhere > 0)
        for line, seconds, cpu in parts:
            rows.append(((start, stop), "work", [line], seconds, cpu))
            of_rows.append(key)
    stacks = recording_of_stacks(rows, keys=of_rows)
    recording = replace(
        recording, frames=stacks.frames, call_tree=stacks.call_tree, samples=stacks.samples
    )
    return with_waits(recording, activity)


def in_turn(count=20, workers=4, hold=0.05):
    """Who finds the lock free is one of those that wait, in an order without rule."""
    rng = np.random.default_rng(0)
    starts = dict.fromkeys(range(workers), 0.0)
    tasks, slept = [], []
    for turn in range(count):
        worker = int(rng.choice(list(starts)))
        start, stop = starts[worker], (turn + 1) * hold
        tasks.append((worker, start, stop))
        slept.append(stop - hold - start)
        starts[worker] = stop
        if turn + len(starts) >= count:
            del starts[worker]
    return tasks, slept


def side_by_side(sleeps, workers=4, hold=0.05):
    """Each sleeps and goes on, whatever the others do."""
    free = [0.0] * workers
    tasks = []
    for sleep in sleeps:
        worker = int(np.argmin(free))
        tasks.append((worker, free[worker], free[worker] + sleep + hold))
        free[worker] = tasks[-1][2]
    return tasks, list(sleeps)


def codes_of(recording):
    return {finding.code: finding for finding in findings(recording)}


def test_tasks_that_poll_a_lock_are_not_advised_more_threads():
    tasks, slept = in_turn()
    by_code = codes_of(recorded(tasks, slept))
    assert "too-few-threads" not in by_code
    finding = by_code["lock-bound"]
    assert "in poll (~/code/main.py:7)" in finding.evidence
    assert "one at a time" in finding.evidence
    # 20 tasks hold it for 50 ms each; four at a time, they would take a quarter of a second.
    assert finding.seconds_lost == pytest.approx(0.75, rel=0.1)
    assert finding.kind == "at most"


@pytest.mark.parametrize("elsewhere", [0.1, 0.3, 0.5])
def test_a_lock_may_be_polled_at_two_lines(elsewhere):
    """As where two statements need the same database, whichever of them waits for it."""
    tasks, slept = in_turn()
    by_code = codes_of(recorded(tasks, slept, elsewhere=elsewhere))
    assert "too-few-threads" not in by_code
    finding = by_code["lock-bound"]
    assert "main.py:7" in finding.evidence
    assert "main.py:8" in finding.evidence
    assert finding.seconds_lost == pytest.approx(0.75, rel=0.1)


@pytest.mark.parametrize("elsewhere", [0.3, 0.5])
def test_downloads_that_sleep_at_two_lines_do_not_poll(elsewhere):
    tasks, slept = side_by_side(np.random.default_rng(1).exponential(0.15, 40).tolist())
    assert "lock-bound" not in codes_of(recorded(tasks, slept, elsewhere=elsewhere))


@pytest.mark.parametrize(
    "sleeps",
    [
        [0.1] * 40,
        [0.1 + 0.05 * (n % 2) for n in range(40)],
        # Very different sleeps, as of a server that asks each client for another pause.
        np.random.default_rng(1).exponential(0.15, 40).tolist(),
    ],
    ids=["even", "two kinds", "random"],
)
def test_downloads_that_sleep_between_two_do_not_poll(sleeps):
    tasks, slept = side_by_side(sleeps)
    by_code = codes_of(recorded(tasks, slept))
    assert "lock-bound" not in by_code
    assert "too-few-threads" in by_code


def test_fewer_tasks_than_are_evidence():
    tasks, slept = in_turn(9)
    assert "lock-bound" not in codes_of(recorded(tasks, slept))


def test_who_computes_at_the_line_does_not_sleep_there():
    tasks, slept = in_turn()
    assert "lock-bound" not in codes_of(recorded(tasks, slept, cpu_at_line=0.2))


def test_who_waits_for_something_else_than_the_end_of_a_sleep_does_not_poll():
    tasks, slept = in_turn()
    assert "lock-bound" not in codes_of(recorded(tasks, slept, activity="io-wait"))


def test_tasks_of_one_worker_are_one_at_a_time_anyway():
    tasks, slept = side_by_side(np.random.default_rng(1).exponential(0.15, 40).tolist(), workers=1)
    assert "lock-bound" not in codes_of(recorded(tasks, slept))
