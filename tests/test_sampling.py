"""SamplingProfiler: work whose answer is known, on every scheduler."""

from __future__ import annotations

import asyncio
import functools
import gc
import math
import os
import pydoc
import random
import re
import signal
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import dask
import dask.config
import dask.local
import dask.multiprocessing
import dask.threaded
import numpy as np
import pytest

from dask_diag import DiagnosticError, Profiler, SamplingProfiler
from dask_diag.analysis.call_tree import NOT_SAMPLED
from dask_diag.capture.task import Line
from dask_diag.model.codes import Root
from dask_diag.sampling import call_tree, stacks
from dask_diag.sampling import waits as waits_module
from dask_diag.sampling.call_tree import Run, Stacks
from dask_diag.sampling.sampler import AVERAGED, Sampler, Ticks, running_now
from dask_diag.sampling.walker import Stack, Walker
from dask_diag.system.periodic import OwnThread, ticks_between, ticks_until

SCHEDULERS = [dask.local.get_sync, dask.threaded.get, dask.multiprocessing.get]
on_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="CPU time of others is reported on Linux"
)


def spin(seconds):
    """Use CPU time, however busy the machine is."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def some(seconds):
    spin(seconds)


def more(seconds):
    spin(seconds)


def some_and_more(seconds):
    """30% in `some`, 70% in `more`, in turns."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        some(0.003)
        more(0.007)


def sampled(tasks, get=dask.threaded.get, interval="10ms", cycle="1s", **kwargs):
    """Both profilers of a graph; `tasks` is by key."""
    if get is dask.multiprocessing.get:
        kwargs.setdefault("optimize_graph", False)
        kwargs.setdefault("chunksize", 1)
    with Profiler() as prof, SamplingProfiler(interval, cycle) as sprof:
        get(tasks, list(tasks), **kwargs)
    return prof, sprof


def seconds_by_name(sprof, measure="total_wall", **selection):
    """Of each function of tasks its seconds with what it called, where it is not below itself."""
    seconds = {}
    path = []
    for row in sprof.tree(root=Root.TASKS, **selection).to_dicts():
        del path[row["depth"] :]
        if row["name"] not in path:
            seconds[row["name"]] = seconds.get(row["name"], 0.0) + row[measure]
        path.append(row["name"])
    return seconds


def names_of(sprof):
    return set(sprof.tree(root=Root.TASKS)["name"].tolist())


def total(prof, column=None):
    tasks = prof.recording.tasks
    return float(np.sum(tasks[column] if column else tasks["stop"] - tasks["start"]))


def own_threads():
    return [t for t in threading.enumerate() if t.name.startswith("dask_diag")]


# Truth


@pytest.mark.once
@pytest.mark.parametrize("get", SCHEDULERS)
def test_30_to_70(get, retried, slowness):
    def measure():
        _, sprof = sampled({("work", 0): (some_and_more, 4.0 * slowness())}, get, interval="5ms")
        cpu = seconds_by_name(sprof, "total_cpu")
        wall = seconds_by_name(sprof)
        # How many samples there are depends on how quickly the machine takes one.
        samples = seconds_by_name(sprof, "total_count")["work"]
        assert samples > 100
        error = math.sqrt(0.3 * 0.7 / samples)
        for seconds in (cpu, wall):
            both = seconds["some"] + seconds["more"]
            assert seconds["some"] / both == pytest.approx(0.3, abs=2 * error)
            assert both > 0.97 * seconds["work"]

    retried(measure)


def match_for_long(letters):
    return re.match(r"(a+)+$", "a" * letters + "b")


def letters_for(seconds):
    """How many letters take so long: each doubles it."""
    letters, took = 18, 0.0
    while took < seconds / 2.2:
        letters += 1
        started = time.perf_counter()
        match_for_long(letters)
        took = time.perf_counter() - started
    return letters + (took < seconds)


def nap_in_python():
    time.sleep(0.5)


def nap_and_spin():
    for _ in range(4):
        nap_for_a_while()
        # Long, beside the time to the next sample: where a tick takes 0.5 ms, that is up to 25 ms.
        spin(0.25)


def nap_for_a_while():
    time.sleep(0.25)


@pytest.mark.once
def test_tasks_shorter_than_the_interval(retried):
    def measure():
        # Of all lengths: threads in step would be seen in the same function, sample by sample.
        scale = random.Random(0).uniform
        tasks = {("short", n): (sleep_some_and_more, scale(0.6, 1.4)) for n in range(400)}
        # Longer than the pause of a sampler to which 2 ms of CPU are 2% of the time.
        _, sprof = sampled(tasks, num_workers=4, interval="100ms")
        wall = seconds_by_name(sprof)
        assert wall["sleep_some"] / wall["short"] == pytest.approx(0.3, abs=0.1)
        assert wall["sleep_more"] / wall["short"] == pytest.approx(0.7, abs=0.1)
        assert wall.get("(not sampled)", 0.0) < 0.15 * wall["short"]

    retried(measure)


def sleep_some_and_more(scale):
    sleep_some(scale)
    sleep_more(scale)


def sleep_some(scale):
    time.sleep(0.012 * scale)


def sleep_more(scale):
    time.sleep(0.028 * scale)


@pytest.mark.truth
def test_tasks_that_end_before_they_let_the_sampler_in_are_reported_as_not_sampled():
    tasks = {("short", n): (spin, 0.002) for n in range(500)}
    _, sprof = sampled(tasks, num_workers=1)
    wall = seconds_by_name(sprof)
    assert wall["(not sampled)"] > 0.6 * wall["short"]
    # When it looks it sees what is nearly over, or has just started: that is not the rest of it.
    assert wall.get("spin", 0) < 0.4 * wall["short"]


# What stacks there are


def recurse(depth):
    return recurse(depth - 1) if depth else spin(0.5)


async def coroutine():
    for _ in range(20):
        await asyncio.sleep(0.001)
        spin(0.01)


def run_coroutine():
    asyncio.run(coroutine())


def generator():
    for n in range(20):
        spin(0.01)
        yield n


def consume():
    return sum(generator())


class Work:
    def method(self):
        spin(0.1)


# How it is used


def fail():
    spin(0.1)
    raise ValueError("known")


def test_overlapping_computes():
    def compute(name):
        dask.threaded.get({(name, n): (some, 0.1) for n in range(3)}, [(name, n) for n in range(3)])

    names = [f"work{n}" for n in range(3)]
    with Profiler() as prof, SamplingProfiler() as sprof, ThreadPoolExecutor(3) as callers:
        list(callers.map(compute, names))
    table = prof.recording.tasks
    for name in names:
        own = table.filter(table["function"].eq(name))
        seconds = seconds_by_name(sprof, function=name)
        assert seconds[name] == pytest.approx((own["stop"] - own["start"]).sum(), rel=1e-6)
        assert seconds["some"] > 0.5 * seconds[name]


def test_registered_for_several_computes_and_cleared():
    sprof = SamplingProfiler()
    sprof.register()
    try:
        for name in ("first", "second"):
            dask.threaded.get({(name, 0): (some, 0.1)}, [(name, 0)])
        assert {"first", "second", "some"} <= names_of(sprof)
        sprof.clear()
        assert names_of(sprof) == {"all"}
        assert "0 samples" in sprof.summary()
        sprof.visualize(show=False, save=False)
        dask.threaded.get({("third", 0): (some, 0.1)}, [("third", 0)])
    finally:
        sprof.unregister()
    dask.threaded.get({("fourth", 0): (some, 0.05)}, [("fourth", 0)])
    assert "third" in names_of(sprof)
    assert not {"first", "fourth"} & names_of(sprof)


def test_clearing_keeps_what_runs(retried):
    seen = []

    def look_and_clear():
        seen.append({row["name"] for row in sprof.tree().to_dicts()})
        sprof.clear()

    def measure():
        nonlocal sprof
        with SamplingProfiler(cycle="50ms") as sprof:
            dask.threaded.get({("before", 0): (some, 0.2)}, [("before", 0)])
            time.sleep(0.1)
            clearing = threading.Timer(0.2, look_and_clear)
            clearing.start()
            dask.threaded.get({("during", 0): (more, 0.4)}, [("during", 0)])
            clearing.join()
        assert {"some", "more"} <= seen[-1]
        # The last tick may have been due when the task was just about to end.
        assert names_of(sprof) - {NOT_SAMPLED} == {"all", "tasks", "during", "more", "spin"}
        samples = sprof.recording.samples
        samples = samples.filter(samples.root.eq(Root.TASKS))
        assert samples["start"].min() < sprof.recording.computations["start"][0] + 0.1

    sprof = None
    retried(measure)


@pytest.mark.parametrize(
    ("configured", "arguments", "cycle", "most"),
    [
        ({}, (), 0.1, 46),
        ({"interval": "50ms", "cycle": 0.2}, (), 0.2, 10),
        ({"interval": "50ms"}, ("100ms", "150ms"), 0.15, 6),
        ({}, ("200ms",), 0.2, 4),
    ],
)
def test_settings_come_from_arguments_or_dasks_configuration(configured, arguments, cycle, most):
    with dask.config.set({f"diag.profile.{name}": value for name, value in configured.items()}):
        sprof = SamplingProfiler(*arguments)
    with sprof:
        dask.local.get_sync({("nap", 0): (time.sleep, 0.45)}, ("nap", 0))
    samples = sprof.recording.samples
    assert max(samples["stop"] - samples["start"]) == pytest.approx(cycle)
    assert sprof.tree(root=Root.TASKS)["total_count"][0] <= most


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"interval": "soon"}, "interval: expected a time"),
        ({"interval": 0}, "interval: expected a time"),
        ({"interval": "1us"}, "at least 0.1 ms"),
        ({"interval": True}, "interval: expected a time"),
        ({"interval": float("nan")}, "interval: expected a time"),
        ({"interval": []}, "interval: expected a time"),
        ({"cycle": float("inf")}, "cycle: expected a time"),
        ({"interval": "2s", "cycle": "1s"}, "cycle: expected at least the interval"),
        ({}, r"diag\.profile\.interval of dask's configuration"),
    ],
)
def test_impossible_settings_are_refused(arguments, message):
    configured = {} if arguments else {"diag.profile.interval": "often"}
    with dask.config.set(configured), pytest.raises(DiagnosticError, match=message):
        SamplingProfiler(**arguments)


def interrupt():
    threading.Timer(0.1, os.kill, (os.getpid(), 2)).start()
    spin(0.3)


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("get", "work", "error"),
    [
        *((get, fail, ValueError) for get in SCHEDULERS),
        (dask.local.get_sync, interrupt, KeyboardInterrupt),
        (dask.multiprocessing.get, die, Exception),
    ],
)
def test_what_ran_before_a_failure_is_sampled(get, work, error):
    tasks = {("live", n): (some, 0.1) for n in range(2)}
    tasks["last", 0] = (lambda *_: work(), *tasks)
    how = {"optimize_graph": False, "chunksize": 1} if get is dask.multiprocessing.get else {}
    with pytest.raises(error), SamplingProfiler() as sprof:
        get(tasks, [("last", 0)], num_workers=2, **how)
    assert {"some"} | ({work.__name__} - {"die"}) <= names_of(sprof)
    assert not running_now()
    assert not own_threads()


def test_nothing_of_the_users_is_retained():
    class Big:
        pass

    retained = []
    space = {"Big": Big, "spin": spin, "retained": retained, "weakref": weakref}
    exec(
        "def hold(seconds):\n    big = Big()\n    retained.append(weakref.ref(big))\n    spin(seconds)",
        space,
    )
    code = weakref.ref(space["hold"].__code__)
    hold = space.pop("hold")
    gc.collect()
    gc.disable()
    try:
        _, sprof = sampled({("work", n): (hold, 0.05) for n in range(6)}, interval="1ms")
        assert "hold" in names_of(sprof)
        assert [ref() for ref in retained] == [None] * 6
    finally:
        gc.enable()
    del hold
    gc.collect()
    assert code() is None


# What is reported


# The parts, without a clock


def a_stack(*names):
    return Stack(tuple(Line(name, "file.py", 1, 1) for name in names))


def size_of(root):
    """Bytes of an object and of all that it alone refers to."""
    seen, size, waiting = set(), 0, [root]
    while waiting:
        item = waiting.pop()
        if id(item) not in seen and not isinstance(item, (type, type(sys))):
            seen.add(id(item))
            size += sys.getsizeof(item)
            waiting += gc.get_referents(item)
    return size


@pytest.mark.once
def test_an_hour_of_samples_is_small():
    interval, threads, distinct = 0.01, 16, 2000
    some_stacks = [
        a_stack(
            *(f"call{n % 7}-{depth}-{n if depth > 18 else n % (depth + 1)}" for depth in range(20))
        )
        for n in range(distinct)
    ]
    collected = Stacks(1.0)
    # Every fortieth look, of forty times the seconds: a row each would be twice as many bytes.
    for tick in range(int(3600 / interval / 40)):
        now = tick * interval * 40
        for thread in range(threads):
            stack = some_stacks[(tick * 31 + thread * 7 + tick * tick) % distinct]
            collected.see(now, Run(f"function{thread % 5}", tick), stack, 0.4, 0.2)
        if tick % 4000 == 0 or now > 3599.5:
            assert size_of(collected) < 11e6
    expected = {"seconds": 3600 * 16, "cpu": 1800 * 16, "counts": 9_000 * 16}
    for column, summed in expected.items():
        cells = packed_cells(collected, column)
        assert len(cells) <= call_tree.MOST_CYCLES
        assert sum(cells.values()) == pytest.approx(summed)


def test_a_sampler_calls_each_listener_as_often_as_it_may():
    """Users of one share its calls; one that is slow is called less often; one that fails never."""
    sampler, calls, slow_calls, reported = Sampler(), [], [], []

    def slow(passed):
        slow_calls.append(passed)
        spin(0.004)

    once = sampler.add(calls.append, 0.01, reported.append)
    twice = sampler.add(calls.append, 0.005, reported.append)
    broken = sampler.add(lambda passed: 1 / 0, 0.001, reported.append)
    time.sleep(0.3)
    sampler.remove(twice)
    assert 1 <= len(calls) <= 0.3 / 0.005 + 10
    count = len(calls)
    time.sleep(0.2)
    assert len(calls) > count
    sampler.remove(once)
    sampler.remove(broken)
    assert not own_threads()
    assert [type(error) for error in reported] == [ZeroDivisionError]
    start = time.perf_counter()
    user = sampler.add(slow, 0.001, reported.append)
    time.sleep(1.0)
    sampler.remove(user)
    took = time.perf_counter() - start
    # A fiftieth of the time for calls of 4 ms: one in 0.2 s, once it is known that all take as long.
    # What follows the last is in none.
    assert len(slow_calls) <= took / 0.2 + AVERAGED + 1
    assert took - 0.25 < sum(slow_calls) <= took + 0.001


def test_ticks_are_spread_evenly_over_whatever_repeats():
    for period in (0.01, 0.02, 0.005, 0.0033, 0.0137):
        ticks = Ticks(print, 0.01, 0.0)
        seen, seconds, now = [], 0.0, 0.0
        while now < 50.0:
            now = ticks.due
            seconds += ticks.passed(now)
            seen.append(now % period < 0.3 * period)
        assert np.mean(seen) == pytest.approx(0.3, abs=0.01), period
        assert seconds == pytest.approx(now, abs=0.02)


def test_missed_ticks_count():
    ticks = Ticks(print, 0.01, 0.0)
    assert ticks.passed(0.2699999) == pytest.approx(0.26)
    assert 0.27 <= ticks.due < 0.28
    ticks.not_before(0.5)
    assert 0.5 <= ticks.due < 0.52
    assert ticks.passed(0.5199999) == pytest.approx(0.25)
    chance, start, interval = np.random.default_rng(0), 1000.0, 0.0033
    for gap, length in chance.exponential(interval / 4, (5000, 2)):
        start += gap
        expected = ticks_until(start + length, interval) - ticks_until(start, interval)
        assert ticks_between(start, start + length, interval) == expected
    # Threads do not ask in the order of time.
    assert ticks_between(1000.0, start, interval) == pytest.approx((start - 1000) / interval, abs=1)


@pytest.mark.truth
def test_a_collection_of_all_garbage_on_its_thread_makes_the_sampler_no_rarer(retried):
    heap = [[n] for n in range(500_000)]

    def measure():
        sampler, calls, took = Sampler(), [], []

        def listener(passed):
            calls.append(time.perf_counter())
            start = time.thread_time()
            if len(calls) == 3:
                # A full collection is known by the younger ones that it ends.
                gc.collect(1)
            elif len(calls) == 6:
                gc.collect()
                took.append(time.thread_time() - start)

        user = sampler.add(listener, 0.01, print)
        time.sleep(1.5)
        sampler.remove(user)
        # Its rest would be fifty times as long as the collection.
        assert took[0] > 0.02
        assert max(np.diff([*calls, time.perf_counter()])) < took[0] + 0.3

    retried(measure)
    assert len(heap) == 500_000


def test_what_runs_after_a_task_is_no_part_of_its_stack():
    frames = []

    def user():
        frames.append(sys._getframe())

    def hand_over():
        frames.append(sys._getframe())

    def runner():
        user()
        hand_over()

    walker = Walker({id(runner.__code__)}, {id(hand_over.__code__)})
    runner()
    assert walker.stack_of(frames[1], None) is None
    walker = Walker({id(runner.__code__)})
    assert walker.stack_of(frames[1], None) is not None


def frames_below(sprof):
    """Names from the root of tasks to each node, and the rows of the nodes."""
    paths = []
    for row in sprof.tree().to_dicts():
        outer = paths[row["parent"]][0] if row["parent"] >= 0 else []
        paths.append(([*outer, row["name"]], row))
    return paths


@pytest.mark.parametrize("get", SCHEDULERS)
@pytest.mark.parametrize("interval", ["10ms", "1ms"])
def test_seconds_sum_to_those_of_tasks_and_functions_never_mix(get, interval):
    tasks = {("nap", n): (time.sleep, 0.003) for n in range(100)}
    for n in range(6):
        tasks |= {("one", n): (some, 0.03), ("two", n): (more, 0.03)}
    prof, sprof = sampled(tasks, get, interval)
    (every, *_) = sprof.tree(root=Root.TASKS).to_dicts()
    assert every["total_wall"] == pytest.approx(total(prof), rel=1e-6)
    if sys.platform == "linux":
        assert every["total_cpu"] == pytest.approx(total(prof, "thread_cpu"), rel=1e-6)
    table = prof.recording.tasks
    for function, called in (("nap", "sleep"), ("one", "some"), ("two", "more")):
        own = table.filter(table["function"].eq(function))
        (_, _, row, *below) = sprof.tree(function=function).to_dicts()
        assert row["total_wall"] == pytest.approx((own["stop"] - own["start"]).sum(), rel=1e-6)
        names = {row["name"] for row in below if row["depth"] == 3}
        assert called in names
        assert names <= {called, NOT_SAMPLED}


@pytest.mark.once
@pytest.mark.parametrize(("get", "expected"), [*zip(SCHEDULERS, [1.0, 1.5, 1.0], strict=True)])
def test_a_call_that_keeps_the_lock_is_seen_and_so_is_a_thread_that_waits_for_it(
    get, expected, retried
):
    def measure():
        # The nap is over long after the lock is free: what ends at once may not be sampled.
        tasks = {("re", 0): (match_for_long, letters_for(expected)), ("nap", 0): (time.sleep, 3.5)}
        prof, sprof = sampled(tasks, get, cycle="100ms", num_workers=2)
        seconds = seconds_by_name(sprof)
        assert seconds["tasks"] == pytest.approx(total(prof), rel=0.05)
        assert seconds["re"] > expected / 2
        for name in ("match_for_long", "match"):
            assert seconds[name] >= 0.95 * seconds["re"]
        assert seconds["sleep"] >= 0.95 * seconds["nap"]
        assert any("was late" in notice for notice in sprof.recording.notices) or (
            get is dask.multiprocessing.get
        )
        samples = sprof.recording.samples
        # No more threads at a time than there are.
        assert (samples["seconds"] / (samples["stop"] - samples["start"])).max() < 1.3

    retried(measure)


@pytest.mark.once
@on_linux
@pytest.mark.parametrize("get", SCHEDULERS)
def test_sleep_is_waiting_and_spinning_is_cpu_also_within_one_task(get, retried):
    def measure():
        tasks = {("nap", 0): (nap_in_python,), ("both", 0): (nap_and_spin,)}
        _, sprof = sampled(tasks, get, interval="2ms", num_workers=1)
        wall, cpu = seconds_by_name(sprof), seconds_by_name(sprof, "total_cpu")
        # All but what the start of the task takes, of which a sample may be due.
        assert wall["nap_in_python"] == pytest.approx(wall["nap"], rel=0.05)
        assert cpu["nap_in_python"] < 0.02
        assert cpu["nap_for_a_while"] < 0.08 * wall["nap_for_a_while"]
        assert 0.85 < cpu["spin"] < 1.05

    retried(measure)


@pytest.mark.parametrize("get", SCHEDULERS)
def test_stacks_are_those_of_the_users_functions(get, retried):
    # A busy machine may leave a short task without a sample where it computes.
    retried(lambda: check_stacks(get))


def check_stacks(get):
    depth = 700 if get is dask.multiprocessing.get else 1000
    tasks = {
        ("deep", 0): (recurse, depth),
        ("coroutine", 0): (run_coroutine,),
        ("generator", 0): (consume,),
        ("method", 0): (Work.method, Work()),
        # Functions in C have their names if dask calls them.
        ("nap", 0): (time.sleep, 0.3),
        ("sum", 0): (functools.partial(sum), range(5_000_000)),
    }
    with_room = sys.getrecursionlimit()
    sys.setrecursionlimit(3000)
    try:
        _, sprof = sampled(tasks, get, interval="2ms", num_workers=1)
    finally:
        sys.setrecursionlimit(with_room)
    method = "Work.method" if sys.version_info >= (3, 11) else "method"
    frames = frames_below(sprof)
    for chain in (
        [*["recurse"] * (depth + 1), "spin"],
        ["run_coroutine", "coroutine", "spin"],
        ["consume", "generator", "spin"],
        [method, "spin"],
        ["sleep"],
        ["sum"],
    ):
        own = [path for path, row in frames if row["depth"] >= 3 and path[3] == chain[0]]
        assert any([name for name in path[3:] if name in chain] == chain for path in own), chain
    outermost = {
        row["name"] for path, row in frames if path[1:2] == ["tasks"] and row["depth"] == 3
    }
    assert outermost <= {"recurse", "run_coroutine", "consume", method, "sleep", "sum", NOT_SAMPLED}
    first = Work.method.__code__.co_firstlineno
    rows = [row for _, row in frames if row["name"] == method and row["file"] == __file__]
    assert {row["first_line"] for row in rows} == {first}
    own = [f for f in sprof.recording.frames.to_dicts() if f["file"] == __file__]
    assert {f["line"] for f in own if f["name"] == method} - {first} == {first + 1}


def fails(*args):
    raise OSError("no such thing")


def add(one, other):
    return one + other


GRAPH = {"one": (add, 1, 2), "two": (add, "one", 3)}


@pytest.mark.parametrize("get", [dask.get, dask.threaded.get])
@pytest.mark.parametrize(
    "where", [(stacks.StackProbe, "stop"), (waits_module.WaitProbe, "stop"), (Walker, "stack_of")]
)
def test_a_fault_of_sampling_is_a_notice_and_does_not_reach_the_task(get, where, monkeypatch):
    monkeypatch.setattr(*where, fails)
    with Profiler(waits=True) as prof, SamplingProfiler() as sprof:
        assert tuple(get(GRAPH, ["one", "two"])) == (3, 6)
        with pytest.raises(ValueError, match="known"):
            get({"broken": (fail,)}, "broken")
    assert prof.recording.tasks["outcome"].tolist() == ["ok", "ok", "failed"]
    notices = [*prof.recording.notices, *sprof.recording.notices]
    assert any("OSError: no such thing" in notice for notice in notices), notices


def breaks(owner, name):
    setattr(pydoc.locate(owner), name, fails)


@pytest.mark.parametrize(
    "where",
    [
        ("dask_diag.sampling.stacks.StackProbe", "stop"),
        ("dask_diag.sampling.probes.WorkerSampling", "go_on"),
        ("dask_diag.sampling.probes", "RunningTask"),
    ],
)
def test_a_fault_of_sampling_in_a_worker_process_is_a_notice(where):
    with (
        dask.config.set({"multiprocessing.initializer": partial(breaks, *where)}),
        SamplingProfiler() as sprof,
    ):
        assert dask.multiprocessing.get(GRAPH, "two", num_workers=1) == 6
    notices = " ".join(sprof.recording.notices)
    assert "in a worker process, OSError: no such thing" in notices


@pytest.mark.parametrize("profile", [SamplingProfiler, lambda: Profiler(waits=True)])
def test_where_the_sampler_cannot_start_the_next_one_samples(profile, monkeypatch):
    def no_thread(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(OwnThread, "start", no_thread)
        with profile() as prof:
            assert tuple(dask.get(GRAPH, ["one", "two"])) == (3, 6)
        assert any("can't start new thread" in notice for notice in prof.recording.notices)
    with SamplingProfiler("1ms") as sprof:
        dask.get({"sleeps": (time.sleep, 0.1)}, "sleeps")
    assert sprof.recording.samples.count.sum() > 0


@pytest.mark.parametrize(
    ("module", "name", "profile"),
    [
        (stacks, "LocalStackTaskProbe", SamplingProfiler),
        (waits_module, "WaitTaskProbe", partial(Profiler, waits=True)),
    ],
)
def test_of_many_short_tasks_those_with_a_tick_are_probed(module, name, profile, monkeypatch):
    made, probe = [], getattr(module, name)

    class Counted(probe):
        __slots__ = ()

        def __init__(self, *args):
            made.append(args)
            super().__init__(*args)

    monkeypatch.setattr(module, name, Counted)
    tasks = {("short", n): (int,) for n in range(2000)} | {("nap", 0): (time.sleep, 0.2)}
    with profile() as prof:
        dask.local.get_sync(tasks, list(tasks))
    took = prof.recording.stop - prof.recording.start
    assert 1 <= len(made) <= took / 0.01 + 2


def packed_cells(collected, column):
    """Sums of a column of a snapshot's cycles, by their numbers."""
    cycles = collected.snapshot().cycles.items()
    return {number: sum(getattr(packed, column)) for number, packed in cycles}


def test_looks_are_spread_over_cycles_which_merge_with_their_neighbours(monkeypatch):
    collected, run = Stacks(1.0), Run("sum", 0)
    collected.see(12.5, run, a_stack("main"), 10.0, 5.0)
    collected.miss(14.75, run, 0.5)
    collected.miss(15.0625, run, 0.125)
    spread = dict.fromkeys(range(3, 12), 1.0) | {2: 0.5, 12: 0.5, 14: 0.5, 15: 0.125}
    assert packed_cells(collected, "seconds") == spread
    looks = packed_cells(collected, "counts")
    assert sum(looks.values()) == looks[12] == 1
    monkeypatch.setattr(call_tree, "MOST_CYCLES", 10)
    collected = Stacks(1.0)
    for second in range(1000):
        collected.see(second + 0.5, run, a_stack("main"), 0.125, 0.0625)
    assert collected.snapshot().cycle == 128.0
    lasted = dict.fromkeys(range(7), 128) | {7: 104}
    assert packed_cells(collected, "counts") == lasted
    assert packed_cells(collected, "seconds") == {n: count / 8 for n, count in lasted.items()}
    # What comes late finds its cycle.
    collected.see(3.0, run, a_stack("main"), 0.125, 0.0625)
    assert packed_cells(collected, "counts")[0] == 129


def test_what_has_no_room_is_counted(monkeypatch):
    monkeypatch.setattr(call_tree, "MOST_CELLS", 100)
    collected, run = Stacks(1.0), Run("sum", 0)
    for second in range(200):
        for n in range(50):
            collected.see(second, run, a_stack("main", f"call{n}"), 0.02, 0.0)
    cells = packed_cells(collected, "seconds")
    # Few cycles of many stacks are not merged for ever.
    assert call_tree.FEWEST_CYCLES / 2 <= len(cells) <= call_tree.FEWEST_CYCLES + 1
    assert sum(cells.values()) == pytest.approx(200)
    monkeypatch.setattr(call_tree, "MOST_NODES", 3)
    collected = Stacks(8.0)
    for names in (("main", "work"), ("main", "other", "deep"), ("main", "third")):
        collected.see(0.0, run, a_stack(*names), 1.0, 0.0)
    (packed,) = collected.snapshot().cycles.values()
    # Calls without room count to their caller.
    assert dict(zip(packed.nodes, packed.seconds, strict=True)) == {1: 1.0, 2: 1.0, 0: 1.0}
    assert collected.cut == 2
