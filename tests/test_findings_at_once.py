"""Findings of computations that run at the same time: what each loses passes for all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from .tables import filled_table
from .test_finding_thresholds import Task, by_code, run, with_waits
from .test_gil_bound import sized, waiting

pytestmark = pytest.mark.once

AT_ONCE = 4


def at_once(recording):
    """The computation of a recording, run so many times at the same time."""

    def copies(name, **changed):
        table = getattr(recording, name)
        columns = {
            column: [value for _ in range(AT_ONCE) for value in table[column].tolist()]
            for column in table.columns
        }
        return filled_table(name, {**columns, **changed})

    tasks = len(recording.tasks)
    names = [f"c{n}" for n in range(AT_ONCE)]
    task = np.concatenate([recording.waits.task + n * tasks for n in range(AT_ONCE)])
    return replace(
        recording,
        computations=copies("computations", computation=names),
        tasks=copies("tasks", computation=np.repeat(names, tasks).tolist()),
        waits=copies("waits", task=task),
    )


def test_processes_are_advised_for_what_they_save_of_the_time_that_passed():
    """They save a third of each computation, which is a tenth of all of them added up."""
    recording = at_once(sized(waiting(0.5, 0.0, 0.5, cpus=8), 8.0))
    finding = by_code(recording)["gil-bound"]
    assert "scheduler='processes', predicted to save" in finding.advice
    assert finding.seconds_lost <= 40


def test_more_threads_are_advised_for_what_they_save_of_the_time_that_passed():
    """The second worker runs five tasks, the first one takes as long as four: a fifth is saved."""
    tasks = [Task(0, 4, 0.0), *(Task(n, n + 1, 0.0, worker=1) for n in range(5))]
    finding = by_code(at_once(with_waits(run(tasks), "io-wait")))["io-bound"]
    assert "num_workers=8 could save up to 1.00 s" in finding.advice
    assert finding.seconds_lost == pytest.approx(1.0, abs=0.01)


def test_a_chain_loses_no_more_than_the_time_that_passed():
    tasks = [Task(n, n + 1, 0.0, depends_on=(n - 1,) * (n > 0)) for n in range(10)]
    recording = run(tasks)
    dependencies = recording.dependencies
    chains = replace(
        at_once(recording),
        dependencies=filled_table(
            "dependencies",
            {
                name: np.concatenate([dependencies[name] + 10 * n for n in range(AT_ONCE)])
                for name in ("task", "depends_on")
            },
        ),
    )
    alone, beside = by_code(recording)["serial-chain"], by_code(chains)["serial-chain"]
    assert beside.seconds_lost == pytest.approx(alone.seconds_lost)
    assert beside.severity == alone.severity
