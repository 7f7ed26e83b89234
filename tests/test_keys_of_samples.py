"""Samples of long tasks are tracked individually by their keys, and short tasks go together."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections import Counter

import dask.local
import dask.multiprocessing
import dask.threaded
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dask_diag
from dask_diag import DiagnosticError, Recording, SamplingProfiler, load
from dask_diag.analysis.call_tree import Selection, call_tree, hottest_lines, not_sampled
from dask_diag.capture.stacks_table import SeenBefore, stacks_as_seen, stacks_tables
from dask_diag.capture.task import Line
from dask_diag.model.codes import Root
from dask_diag.sampling import call_tree as sampled_tree
from dask_diag.sampling.call_tree import LONG, NO_NODE, Group, Run, Stacks
from dask_diag.storage.write import save

from .recordings import CORE, LEAF, MAIN, assert_same_table, recording_of_stacks
from .test_sampling import SCHEDULERS, a_stack, sampled, seconds_by_name, size_of, spin

FIRST, SECOND = ("work", 0), ("work", 1)
SHORT = [("work", n) for n in range(2, 10)]


def a(seconds):
    spin(seconds)


def b(seconds):
    spin(seconds)


def brief(seconds):
    spin(seconds)


def mostly_a(rounds=34):
    return share_of_a(rounds, 0.021, 0.009)


def mostly_b(rounds=34):
    return share_of_a(rounds, 0.009, 0.021)


def share_of_a(rounds, of_a, of_b):
    """The share of `a` in the wall time: how the wait for the GIL is shared is known only here."""
    walls = {a: 0.0, b: 0.0}
    for _ in range(rounds):
        for part, seconds in ((a, of_a), (b, of_b)):
            start = time.perf_counter()
            part(seconds)
            walls[part] += time.perf_counter() - start
    return walls[a] / sum(walls.values())


def two_long_tasks_and_short_ones():
    return {FIRST: (mostly_a,), SECOND: (mostly_b,), **dict.fromkeys(SHORT, (brief, 0.04))}


def seconds_of_tasks(prof):
    rows = prof.recording.tasks.to_dicts()
    return {row["key"]: row["stop"] - row["start"] for row in rows}


def by_key(recording):
    """Seconds of the samples of each function and key."""
    by_pair = {}
    samples = recording.samples
    for row in samples.filter(samples.root.eq(Root.TASKS)).to_dicts():
        pair = row["function"], row["key"]
        by_pair[pair] = by_pair.get(pair, 0.0) + row["seconds"]
    return by_pair


# Truth


@pytest.mark.parametrize("get", SCHEDULERS)
def test_two_tasks_of_a_function_are_tracked_individually(get, retried):
    def measure():
        # Beside another thread of Python code there are 25 samples in a second: 3 s of CPU give so
        # many that the bound is more than twice what chance explains.
        tasks = {**two_long_tasks_and_short_ones(), FIRST: (mostly_a, 100), SECOND: (mostly_b, 100)}
        in_processes = {"optimize_graph": False, "chunksize": 1}
        options = in_processes if get is dask.multiprocessing.get else {}
        with dask_diag.Profiler() as prof, SamplingProfiler("10ms", "1s") as sprof:
            shares = get(tasks, [FIRST, SECOND, *SHORT], num_workers=2, **options)[:2]
        took = seconds_of_tasks(prof)
        for key, share in zip((FIRST, SECOND), shares, strict=True):
            seconds = seconds_by_name(sprof, key=key)
            assert seconds["a"] / (seconds["a"] + seconds["b"]) == pytest.approx(share, abs=0.1)
            assert seconds["work"] == pytest.approx(took[str(key)], rel=0.1)
            assert "brief" not in seconds
            assert seconds == seconds_by_name(sprof, key=str(key), function="work")
        together = seconds_by_name(sprof, key="")
        assert not {"mostly_a", "mostly_b", "a", "b"} & set(together)
        assert together["work"] == pytest.approx(sum(took[str(key)] for key in SHORT), rel=0.25)
        assert sum(by_key(sprof.recording).values()) == pytest.approx(sum(took.values()), rel=1e-6)

    retried(measure)


@pytest.mark.once
def test_short_tasks_are_not_tracked_individually_unless_cycles_are_short(retried):
    def measure():
        tasks = {("work", n): (brief, 0.06) for n in range(4)}
        _, sprof = sampled(tasks, dask.local.get_sync)
        assert set(sprof.recording.samples["key"].tolist()) == {""}
        with pytest.raises(DiagnosticError, match=r"a quarter of the cycle.*cycle=\.\.\."):
            sprof.tree(key=("work", 0))
        _, sprof = sampled(tasks, dask.local.get_sync, "2ms", cycle="100ms")
        assert {key for _, key in by_key(sprof.recording)} == set(map(str, tasks))

    retried(measure)


@pytest.mark.once
def test_computes_with_the_same_key_add_up_and_profilers_have_cycles_of_their_own(retried):
    def measure():
        def compute(task):
            dask.threaded.get({FIRST: (task,)}, FIRST)

        fine, coarse = SamplingProfiler(cycle="100ms"), SamplingProfiler(cycle="60s")
        with dask_diag.Profiler() as prof, fine, coarse:
            threads = [threading.Thread(target=compute, args=(t,)) for t in (mostly_a, mostly_b)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        tasks = prof.recording.tasks
        seconds = seconds_by_name(fine, key=FIRST)
        assert {"mostly_a", "mostly_b"} <= set(seconds)
        assert seconds["work"] == pytest.approx((tasks["stop"] - tasks["start"]).sum(), rel=0.05)
        assert set(coarse.recording.samples["key"].tolist()) == {""}
        together = coarse.tree(key="")["total_wall"][0]
        assert fine.tree(key=FIRST)["total_wall"][0] == pytest.approx(together, rel=1e-6)

    retried(measure)


@pytest.mark.once
@pytest.mark.leaves_files
@pytest.mark.parametrize("get", [dask.threaded.get, dask.multiprocessing.get])
def test_files_summaries_and_exports_have_keys(get, tmp_path, retried):
    options = {"optimize_graph": False} if get is dask.multiprocessing.get else {}
    path, again = tmp_path / "run.diag", tmp_path / "again.diag"

    def measure():
        with dask_diag.record(path, overwrite=True) as run:
            get(two_long_tasks_and_short_ones(), [FIRST, SECOND, *SHORT], **options)
        recorded = load(path)
        assert recorded.is_complete
        for key, name in ((FIRST, "mostly_a"), (SECOND, "mostly_b")):
            assert name in call_tree(recorded, Selection(key=key))["name"].tolist()
        save(recorded, again, overwrite=True)
        assert_same_table(load(again).samples, recorded.samples)
        stacks, begin = run.stacks, recorded.start
        for name, text in (("first", str(FIRST)), ("both", None)):
            stacks.export(tmp_path / f"{name}.folded", key=text, overwrite=True)
        assert "mostly_b" not in (tmp_path / "first.folded").read_text()
        assert "mostly_b" in (tmp_path / "both.folded").read_text()
        seconds = stacks.tree(key=FIRST)["total_wall"][0]
        part = stacks.summary(begin, begin + 60, "work", FIRST)
        assert part.startswith(f"{seconds:.3g} s of tasks")

    retried(measure)


# Added up of what is known


def test_every_selection_takes_a_key(tmp_path):
    rows = [
        ((0.0, 1.0), "load", [MAIN, CORE], 1.0, 0.5),
        ((0.0, 1.0), "load", [MAIN, LEAF], 2.0, 0.5),
        ((1.0, 2.0), "sum", [MAIN], 4.0, 0.5),
        ((1.0, 2.0), "load", None, 8.0, 0.5),
    ]
    recording = recording_of_stacks(rows, keys=["x", "y", "y", ""])
    assert call_tree(recording, Selection(key="x"))["total_wall"][0] == 1.0
    assert call_tree(recording, Selection(key="y"))["total_wall"][0] == 6.0
    assert call_tree(recording, Selection(function="sum", key="y"))["total_wall"][0] == 4.0
    assert call_tree(recording, Selection(key="y", stop=0.5))["total_wall"][0] == 1.0
    assert not_sampled(recording, Selection(key="")) == 8.0
    assert not_sampled(recording, Selection(key="y")) == 0.0
    assert hottest_lines(recording, selection=Selection(key="x"))["name"].tolist() == [
        "Array.sum",
        "main",
    ]
    for ask in (call_tree, not_sampled, hottest_lines):
        with pytest.raises(DiagnosticError, match="no sample has 'z'"):
            ask(recording, selection=Selection(key="z"))
    both = Recording.combine([recording, recording_of_stacks(rows[:1], keys=["z"])])
    assert call_tree(both, Selection(key="z"))["total_wall"][0] == 1.0


# The parts, without a clock


STACK = a_stack("main")
OTHER = "other", 0


def collected_of(*looks, cycle=1.0):
    """What was seen in one stack; a look is when, at what run, and of how many seconds.

    A function and a key are a run of which this is the only look.
    """
    collected = Stacks(cycle)
    see(collected, *looks)
    return collected


def see(collected, *looks):
    for now, run, seconds in looks:
        run = run if isinstance(run, Run) else Run(*run)
        collected.see(now, run, STACK, seconds, seconds / 2)


def seconds_collected(collected):
    """Seconds by function, key and node, and by cycle."""
    by_cycle = {}
    for number, packed in collected.snapshot().cycles.items():
        for (group, node), (seconds, _, _) in packed.cells().items():
            by_cycle.setdefault((group.function, group.key, node), {})[number] = seconds
    return by_cycle


LONG_ONE, TOGETHER = ("sum", str(FIRST), 0), ("sum", "", 0)


def test_what_was_seen_of_a_task_before_it_was_long_is_reported_with_it():
    work = Run("sum", FIRST)
    collected = collected_of((0.9, ("sum", SECOND), 0.125), (0.9, work, 0.125))
    assert seconds_collected(collected) == {TOGETHER: {0: 0.25}}
    see(collected, (1.1, work, 0.125))
    collected.miss(1.5, work, 0.125)
    never_seen = "sum", str(FIRST), NO_NODE
    assert seconds_collected(collected) == {
        TOGETHER: {0: 0.125},
        LONG_ONE: {0: 0.125, 1: 0.125},
        never_seen: {1: 0.125},
    }
    (packed, _) = collected.snapshot().cycles.values()
    assert packed.cells()[Group("sum", ""), 0] == [0.125, 0.0625, 1]
    # One that was never seen, and what comes from another process, alike.
    collected = Stacks(1.0)
    collected.miss(3.5, Run("sum", FIRST), 2.0)
    assert seconds_collected(collected) == {never_seen: {1: 0.5, 2: 1.0, 3: 0.5}}
    collected, line = Stacks(1.0), (Line("main"),)
    collected.take("sum", FIRST, [(0.5, line, 0.125, 0.0, 1), (1.5, line, 0.125, 0.0, 1)])
    collected.take("sum", SECOND, [(0.5, line, 0.125, 0.0, 1)])
    assert seconds_collected(collected) == {LONG_ONE: {0: 0.125, 1: 0.125}, TOGETHER: {0: 0.125}}


looks = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from("xyz"), st.sampled_from([0.0625, 0.125, 0.5])),
    max_size=60,
)


@given(looks)
def test_nothing_is_lost_or_reported_twice(seen):
    collected, expected, lengths, summed = Stacks(1.0), Counter(), Counter(), Counter()
    runs = [Run(f"f{n % 2}", n) for n in range(5)]
    made = {name: a_stack(name) for name in "xyz"}
    for n, _, seconds in seen:
        lengths[n] += seconds
    for number, (n, name, seconds) in enumerate(seen):
        collected.see(number * 0.125 + 1, runs[n], made[name], seconds, seconds / 2)
        key = str(n) if lengths[n] >= LONG else ""
        for column, value in enumerate((seconds, seconds / 2, 1)):
            expected[f"f{n % 2}", key, name, column] += value
    snapshot = collected.snapshot()
    for packed in snapshot.cycles.values():
        for ((function, key, _), node), values in packed.cells().items():
            name = snapshot.lines[snapshot.line_of_node[node]].name
            for column, value in enumerate(values):
                summed[function, key, name, column] += value
    assert summed == {cell: pytest.approx(value) for cell, value in expected.items()}


def test_merged_cycles_merge_their_keys(monkeypatch):
    monkeypatch.setattr(sampled_tree, "MOST_CYCLES", 8)
    collected, work = Stacks(1.0), Run("sum", FIRST)
    for second in range(64):
        # Others last for half a cycle, as long as cycles are not merged.
        see(collected, (second + 0.5, work, 1.0), (second + 0.75, ("sum", second), 0.5))
    seconds = seconds_collected(collected)
    # What was spread over two cycles is not counted by looks, but it is all there.
    assert sum(seconds[LONG_ONE].values()) == 64.0
    assert sum(map(sum, (by_cycle.values() for by_cycle in seconds.values()))) == 96.0
    assert collected.snapshot().cycle == 16.0
    # Those of the latest cycles may be tracked individually until the next time.
    assert all(int(key) >= 32 for _, key, _ in seconds if key not in ("", str(FIRST)))
    assert sum(seconds[TOGETHER].values()) >= 16.0


def test_the_ends_of_a_long_task_keep_its_key_when_cycles_merge(monkeypatch):
    monkeypatch.setattr(sampled_tree, "MOST_CYCLES", 8)
    work = Run("sum", FIRST)
    collected = collected_of(*((tick / 16, work, 0.0625) for tick in range(25, 65)))
    see(collected, *((second, OTHER, 0.0625) for second in range(8, 15)))
    assert collected.snapshot().cycle == 2.0
    assert seconds_collected(collected)[LONG_ONE] == {0: 0.4375, 1: 2.0, 2: 0.0625}


def test_a_task_that_runs_while_cycles_merge_is_reported_whole(monkeypatch):
    monkeypatch.setattr(sampled_tree, "MOST_CYCLES", 4)
    work = Run("sum", FIRST)
    collected = collected_of(*((second, OTHER, 0.0625) for second in range(3)))
    see(collected, (3.5, work, 0.125), (4.25, OTHER, 0.0625))
    assert collected.snapshot().cycle == 2.0
    see(collected, (4.5, work, 0.125))
    assert LONG_ONE not in seconds_collected(collected)
    see(collected, (4.75, work, 0.25))
    assert sum(seconds_collected(collected)[LONG_ONE].values()) == 0.5
    assert TOGETHER not in seconds_collected(collected)


def test_a_long_task_that_may_still_run_keeps_its_key_when_cycles_merge(monkeypatch):
    """In the last two cycles: by what was sampled of it so far, it would be a short one now."""
    monkeypatch.setattr(sampled_tree, "MOST_CYCLES", 5)
    work = Run("sum", FIRST)
    collected = collected_of((0.5, ("sum", SECOND), 0.25))
    see(collected, *((second, OTHER, 0.0625) for second in range(5)))
    see(collected, (3.75, work, 0.125), (4.125, work, 0.125), (5.0, OTHER, 0.0625))
    assert collected.snapshot().cycle == 2.0
    see(collected, (5.25, work, 1.125))
    seconds = seconds_collected(collected)
    assert sum(seconds[LONG_ONE].values()) == 1.375
    # The other one is over, and too short for a cycle of two seconds.
    assert ("sum", str(SECOND), 0) not in seconds
    assert seconds[TOGETHER] == {0: 0.25}


def test_what_was_forgotten_is_not_reported_again():
    work = Run("sum", FIRST)
    collected = collected_of((0.5, work, 0.125))
    collected.forget(1.0)
    see(collected, (1.5, work, 0.125))
    assert seconds_collected(collected) == {LONG_ONE: {1: 0.125}}


@pytest.mark.once
def test_an_hour_of_tasks_with_keys_is_small():
    threads, seconds = 16, 0.4
    some_stacks = [a_stack("main", *(f"call{n}-{depth}" for depth in range(20))) for n in range(8)]
    collected = Stacks(1.0)
    for tick in range(int(3600 / seconds)):
        for thread in range(threads):
            run = Run("work", ("work-0123456789abcdef", tick, thread))
            for part in range(4):
                now = tick * seconds + part * 0.1
                collected.see(now, run, some_stacks[(tick + part) % 8], 0.1, 0.05)
        if tick % 2000 == 0:
            assert size_of(collected) < 50e6
    assert size_of(collected) < 50e6
    cycles = collected.snapshot().cycles.values()
    assert sum(sum(packed.seconds) for packed in cycles) == pytest.approx(3600 * 16)
    assert max(len(packed.distinct) for packed in cycles) <= 16 * 3 / LONG + 1


def test_while_it_goes_on_there_are_no_more_rows_than_asked_for():
    collected = Stacks(1.0)
    for n in range(400):
        run = Run("work", n)
        see(collected, *((n / 4 + part, run, 0.125) for part in (0.1, 0.2)))
    assert len(stacks_as_seen(collected, 500)["samples"]) == 400
    few = stacks_as_seen(collected, 150)["samples"]
    assert set(few["key"].tolist()) == {""}
    assert len(few) == len(np.unique(few["start"])) == 100
    # Cycles that are longer by powers of two, in which all seconds still are.
    fewest = stacks_as_seen(collected, 30)["samples"]
    assert len(fewest) == len(np.unique(fewest["start"])) == 25
    assert (fewest["stop"] - fewest["start"] == 4.0).all()
    assert fewest["seconds"].sum() == few["seconds"].sum() == 800 * 0.125
    assert len(stacks_tables(collected, [])["samples"]) == 400


@pytest.mark.parametrize("most", [10, 300], ids=["cycles merge", "none merge"])
def test_cells_of_cycles_that_are_remembered_are_those_that_there_are(most, monkeypatch):
    monkeypatch.setattr(sampled_tree, "MOST_CYCLES", most)
    collected, some_stacks = Stacks(1.0), [a_stack("main", name) for name in "abc"]
    remembered = SeenBefore()
    for n in range(100):
        run = Run(f"work{n % 7}", ("work", n))
        for part in range(4):
            collected.see(n / 4 + part / 10, run, some_stacks[n % 3], 0.125, 0.1)
        seen = stacks_as_seen(collected, 10_000, before=remembered)["samples"]
        assert seen.to_dicts() == stacks_as_seen(collected, 10_000)["samples"].to_dicts()
        for name in ("function", "key"):
            assert {"", *seen[name].tolist()} == {"", *seen[name].values}
    assert len(seen["key"].values) > 1


def test_keys_are_retained_as_texts():
    class Name(str):
        __slots__ = ("__weakref__",)

        def __str__(self):
            return "its text"

    class Strange:
        def __str__(self):
            raise OSError

    key = Name("work-1")
    seen = weakref.ref(key)
    collected = collected_of((0.5, Run("work", key), 0.5), (0.5, Run("work", Strange()), 0.5))
    collected.take("work", key, [(0.5, (), 0.5, 0.0, 1)])
    del key
    gc.collect()
    assert seen() is None
    assert {key for _, key, _ in seconds_collected(collected)} == {"its text", "<Strange>"}
