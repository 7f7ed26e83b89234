"""From samples of stacks to tables: cycles that merge, and seconds scaled to what was measured."""

from __future__ import annotations

import linecache
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from dask_diag import Recording
from dask_diag.analysis.call_tree import SAMPLES_OF_TASKS
from dask_diag.capture import stacks_table
from dask_diag.capture.task import Line
from dask_diag.sampling import call_tree
from dask_diag.sampling.call_tree import NO_NODE, Run, Stacks
from dask_diag.sampling.walker import Stack

from .recordings import filled_table

pytestmark = pytest.mark.once


def a_stack(*names):
    return Stack(tuple(Line(name, "file.py", 1, 1) for name in names))


@pytest.mark.leaves_files
def test_functions_of_the_main_module_have_its_file_or_that_of_their_cell(tmp_path, monkeypatch):
    """As cloudpickle sends them, their file is not known to other processes."""
    script = tmp_path / "script.py"
    script.write_text("import time\n\n@delayed\ndef nap(n):\n    time.sleep(n)\n")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(script), raising=False)
    for cell, text in (("<cell 1>", "def work(n):\n"), ("<cell 2>", "x = 1\n\ndef work(n):\n")):
        monkeypatch.setitem(linecache.cache, cell, (9, None, text.splitlines(True), cell))
    lines = [("nap", 3), ("work", 1), ("work", 3), ("elsewhere", 3), ("nap", 40)]
    stacks = Stacks(1.0)
    sent = tuple(Line(name, "<dynamic-code>", first + 1, first) for name, first in lines)
    stacks.take("f", "key", [(0.5, sent, 0.5, 0.0, 1)])
    files = [line.file for line in stacks.snapshot().lines]
    unknown = "<dynamic-code>"
    assert files == [str(script), "<cell 1>", "<cell 2>", unknown, unknown]


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
        number: {group.key for group in packed.distinct}
        for number, packed in snapshot.cycles.items()
    }
    assert keys == {0: {""}, 1: {"2", "3"}, 2: {"4", "5"}, 3: {""}}


def selected(tables):
    """The seconds that views show of tasks: those of samples that are in any range at all."""
    samples = Recording(start=0.0, stop=0.0, epoch=0.0, **tables).samples
    shares = SAMPLES_OF_TASKS.shares(samples)
    return dict(zip(samples.start.tolist(), (samples.seconds * shares).tolist(), strict=True))


@pytest.mark.parametrize(
    ("cpu", "of_seen", "of_missed"),
    [
        # What was seen had CPU for half of the time: the missed half may have had any.
        (1.0, 0.5, 0.5),
        (0.25, 0.25, 0.0),
        (1.5, 0.5, 1.0),
        (1.75, 0.75, 1.0),
        # Two clocks: the CPU time may be a little more than the time.
        (2.01, 1.0, 1.0),
        # If it was not measured it is what was seen.
        (np.nan, 0.5, np.nan),
    ],
)
def test_cpu_seconds_sum_to_those_measured_and_are_no_more_than_the_time(
    cpu, of_seen, of_missed, monkeypatch
):
    table, computations = one_task(0.0, 2.0, cpu)
    monkeypatch.setattr(stacks_table, "times_of_tasks", lambda computations: table)
    stacks, run = Stacks(10.0), Run("work", 0)
    stacks.see(1.0, run, a_stack("main"), 0.5, 0.25)
    stacks.miss(2.0, run, 0.5)
    rows = stacks_table.stacks_tables(stacks, computations)["samples"].to_dicts()
    by_node = {row["node"]: (row["seconds"], row["cpu_seconds"]) for row in rows}
    assert by_node[0] == pytest.approx((1.0, of_seen))
    assert by_node[NO_NODE] == pytest.approx((1.0, of_missed), nan_ok=True)


def one_task(start, stop, cpu):
    """The tables of times of a task, and its computation, which take the same time."""
    columns = {
        "function": ["work"],
        "start": [start],
        "stop": [stop],
        "thread_cpu": [cpu],
        "computation": ["c"],
    }
    table = filled_table("tasks", columns)
    facts = SimpleNamespace(thread=1, scheduler="synchronous")
    computation = SimpleNamespace(name="c", number=1, stop=stop, facts=facts)
    computation.called = computation.start = computation.prepared = start
    return table, [computation]


def test_samples_are_in_the_block_in_their_cycles(monkeypatch):
    table, computations = one_task(1.0, 2.5, 1.5)
    monkeypatch.setattr(stacks_table, "times_of_tasks", lambda computations: table)
    # A late one represents whole ticks: by that more than there was since its task started.
    late, of_process = Stacks(1.0), Stacks(1.0)
    late.see(2.5, Run("work", 0), a_stack("main"), 1.6, 1.6)
    # Those of another process come divided among cycles, each in the middle of its own.
    of_process.take("work", 0, [(1.5, (), 1.0, 1.0, 9), (2.5, (), 0.5, 0.5, 5)])
    for stacks, expected in (
        # Two cycles have seconds; that of the one before is none of the block's.
        (late, {1.0: 1.1 / 1.6 * 1.5, 2.0: 0.5 / 1.6 * 1.5}),
        (of_process, {1.0: 1.0, 2.0: 0.5}),
    ):
        tables = stacks_table.stacks_tables(stacks, computations, 1.0, 2.5)
        assert selected(tables) == pytest.approx(expected)
    # A worker's clock may put one after the block.
    stacks, (table, _) = Stacks(0.25), one_task(1.0, 2.0, 1.0)
    stacks.take("work", 0, [(2.3, (), 1.0, 1.0, 1)])
    tables = stacks_table.stacks_of_tasks(stacks, table, "worker", (1.0, 2.0))
    assert selected(tables) == pytest.approx({2.0: 1.0})
