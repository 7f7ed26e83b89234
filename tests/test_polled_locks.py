"""Tasks that poll a lock: recordings of which it is known whether they went on one at a time."""

from __future__ import annotations

import numpy as np
import pytest

from dask_diag import findings

from .recordings import Task, run, with_stacks, with_waits

pytestmark = pytest.mark.once

POLLS = ("poll", "/home/someone/code/main.py", 7, 3)
POLLS_AGAIN = ("poll", "/home/someone/code/main.py", 8, 3)
HOLDS = ("hold", "/home/someone/code/main.py", 12, 10)


def recorded(tasks, slept, cpu_at_line=0.0, activity="sleep", elsewhere=0.0):
    """A recording of tasks of (worker, start, stop), which first slept so long, then held it.

    Of the time that they slept, that share is at another line.
    """
    workers = 1 + max(worker for worker, _, _ in tasks)
    made = [Task(start, stop, cpu=0.0, worker=worker) for worker, start, stop in tasks]
    recording = run(made, workers=workers, cpus=8)
    rows, keys = [], []
    for key, (_, start, stop), asleep in zip(recording.tasks.key.tolist(), tasks, slept):
        first = asleep * (1 - elsewhere)
        parts = [(POLLS, first, cpu_at_line * first), (HOLDS, stop - start - asleep, 0.0)]
        parts += [(POLLS_AGAIN, asleep * elsewhere, 0.0)] * (elsewhere > 0)
        for line, seconds, cpu in parts:
            rows.append(((start, stop), "work", [line], seconds, cpu))
            keys.append(key)
    return with_waits(with_stacks(recording, rows, keys), activity)


@pytest.mark.parametrize("elsewhere", [0.0, 0.3, 0.5])
def test_tasks_that_poll_a_lock_are_not_advised_more_threads(elsewhere):
    """At one line or at two, as where two statements need the same database."""
    by_code = codes_of(recorded(*in_turn(), elsewhere=elsewhere))
    assert "too-few-threads" not in by_code
    finding = by_code["lock-bound"]
    assert "~/code/main.py:7" in finding.evidence
    assert ("main.py:8" in finding.evidence) == (elsewhere > 0)
    # 20 tasks hold it for 50 ms each; four at a time, they would take a quarter of a second.
    assert finding.potential_saving == pytest.approx(0.75, rel=0.1)
    assert finding.certainty == "upper_bound"


# Very different sleeps, as of a server that asks each client for another pause.
RANDOM = np.random.default_rng(1).exponential(0.15, 40).tolist()


def side_by_side(sleeps, workers=4, hold=0.05):
    """Each sleeps and goes on, whatever the others do."""
    free = [0.0] * workers
    tasks = []
    for sleep in sleeps:
        worker = int(np.argmin(free))
        tasks.append((worker, free[worker], free[worker] + sleep + hold))
        free[worker] = tasks[-1][2]
    return tasks, list(sleeps)


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


@pytest.mark.parametrize(
    ("tasks", "how", "too_few_threads"),
    [
        (side_by_side([0.1] * 40), {}, True),
        (side_by_side([0.1 + 0.05 * (n % 2) for n in range(40)]), {}, True),
        (side_by_side(RANDOM), {}, True),
        (side_by_side(RANDOM), {"elsewhere": 0.3}, None),
        (side_by_side(RANDOM), {"elsewhere": 0.5}, None),
        # Tasks of one worker are one at a time anyway.
        (side_by_side(RANDOM, workers=1), {}, None),
        # Fewer tasks than are evidence.
        (in_turn(9), {}, None),
        # Who computes at the line does not sleep there, and not all waits are sleeps.
        (in_turn(), {"cpu_at_line": 0.2}, None),
        (in_turn(), {"activity": "io-wait"}, None),
    ],
)
def test_tasks_that_sleep_and_go_on_do_not_poll(tasks, how, too_few_threads):
    by_code = codes_of(recorded(*tasks, **how))
    assert "lock-bound" not in by_code
    assert too_few_threads is None or "too-few-threads" in by_code


def codes_of(recording):
    return {finding.code: finding for finding in findings(recording)}
