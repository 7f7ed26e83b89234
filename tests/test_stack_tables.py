"""From samples of stacks to tables: cycles that merge, and seconds scaled to what was measured."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dask_diag.builders import stacks as builder
from dask_diag.capture.sampling import call_tree
from dask_diag.capture.sampling.bins import NOT_SAMPLED, Run
from dask_diag.capture.sampling.call_tree import Stacks
from dask_diag.capture.sampling.stack_sample import Line
from dask_diag.capture.sampling.stack_walker import Stack
from dask_diag.columns import Categorical
from dask_diag.model.table import Table

pytestmark = pytest.mark.once


def a_stack(*names):
    return Stack(tuple(Line(name, "file.py", 1, 1) for name in names))


def test_tasks_of_the_last_two_cycles_keep_their_keys_when_cycles_merge(monkeypatch):
    monkeypatch.setattr(call_tree, "MOST_CYCLES", 6)
    stacks, main = Stacks(1.0), a_stack("main")
    for second in range(6):
        # Long enough in a cycle of one second, and too short in one of two.
        stacks.see(second + 0.5, Run("work", second), main, 0.3, 0.0)
    stacks.see(6.5, Run("other", 0), main, 0.0625, 0.0)
    snapshot = stacks.snapshot()
    assert snapshot.cycle == 2.0
    keys = {
        number: {group.key for group in packed.of} for number, packed in snapshot.cycles.items()
    }
    assert keys == {0: {""}, 1: {"2", "3"}, 2: {"4", "5"}, 3: {""}}


def built(monkeypatch, wall, cpu, seen, cpu_seen, missed):
    """The samples of one task: what was measured, and what was seen of it and missed."""
    table = Table(
        {
            "function": Categorical.of(["work"]),
            "start": np.array([0.0]),
            "stop": np.array([wall]),
            "thread_cpu": np.array([cpu]),
            "computation": Categorical.of(["c"]),
        }
    )
    monkeypatch.setattr(builder, "times_of_tasks", lambda computations: table)
    stacks, run = Stacks(10.0), Run("work", 0)
    stacks.see(1.0, run, a_stack("main"), seen, cpu_seen)
    stacks.miss(2.0, run, missed)
    info = SimpleNamespace(
        name="c",
        number=1,
        thread=1,
        called=0.0,
        start=0.0,
        prepared=0.0,
        stop=wall,
        scheduler="synchronous",
    )
    computation = SimpleNamespace(info=info)
    rows = builder.stacks_tables(stacks, [computation])["samples"].to_dicts()
    by_node = {row["node"]: (row["seconds"], row["cpu_seconds"]) for row in rows}
    return by_node[0], by_node[NOT_SAMPLED]


@pytest.mark.parametrize(
    ("cpu", "of_seen", "of_missed"),
    [
        # What was seen had CPU for half of the time: the missed half may have had any.
        (1.0, 0.5, 0.5),
        (0.5, 0.5, 0.0),
        (0.25, 0.25, 0.0),
        (1.5, 0.5, 1.0),
        (1.75, 0.75, 1.0),
        # Two clocks: the CPU time may be a little more than the time.
        (2.01, 1.0, 1.0),
    ],
)
def test_cpu_seconds_sum_to_those_measured_and_are_no_more_than_the_time(
    cpu, of_seen, of_missed, monkeypatch
):
    seen, missed = built(monkeypatch, 2.0, cpu, 0.5, 0.25, 0.5)
    assert seen == pytest.approx((1.0, of_seen))
    assert missed == pytest.approx((1.0, of_missed))


def test_cpu_seconds_that_were_not_measured_are_those_seen(monkeypatch):
    seen, missed = built(monkeypatch, 2.0, np.nan, 0.5, 0.25, 0.5)
    assert seen == pytest.approx((1.0, 0.5))
    assert np.isnan(missed[1])
