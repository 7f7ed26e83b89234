"""SamplingProfiler: work whose answer is known, on every scheduler."""

from __future__ import annotations

import asyncio
import collections
import functools
import gc
import hashlib
import json
import math
import os
import re
import sys
import threading
import time
import weakref

import dask
import dask.config
import dask.local
import dask.multiprocessing
import dask.threaded
import numpy as np
import pytest

import dask_diag
from dask_diag import DiagnosticError, Profiler, Recording, SamplingProfiler, summary
from dask_diag.analysis.call_tree import NOT_SAMPLED
from dask_diag.capture.task import Line
from dask_diag.model.codes import Root
from dask_diag.sampling import call_tree, stacks
from dask_diag.sampling import sampler as sampler_module
from dask_diag.sampling.call_tree import Run, Stacks
from dask_diag.sampling.callers import CallerWalker, CallingThread
from dask_diag.sampling.sampler import Sampler, Ticks, running_now
from dask_diag.sampling.walker import Stack, Walker
from dask_diag.system.periodic import ticks_between, ticks_until

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
def test_30_to_70(get, retried):
    def measure():
        _, sprof = sampled({("work", 0): (some_and_more, 4.0)}, get, interval="5ms")
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


@pytest.mark.parametrize("get", SCHEDULERS)
def test_functions_of_tasks_never_mix(get):
    tasks = {}
    for n in range(10):
        tasks["one", n] = (some, 0.02)
        tasks["two", n] = (more, 0.02)
    _, sprof = sampled(tasks, get, interval="1ms")
    path = []
    for row in sprof.tree(root=Root.TASKS).to_dicts():
        del path[row["depth"] :]
        path.append(row["name"])
        if row["depth"] > 2 and row["name"] != "(not sampled)":
            assert path[3] == {"one": "some", "two": "more"}[path[2]], path
    assert {"some", "more"} <= names_of(sprof)
    one = {row["name"] for row in sprof.tree(function="one").to_dicts()}
    assert "more" not in one


@pytest.mark.parametrize("get", SCHEDULERS)
@pytest.mark.parametrize("interval", ["10ms", "1ms"])
def test_seconds_sum_to_those_of_tasks(get, interval):
    tasks = {("nap", n): (time.sleep, 0.003) for n in range(100)}
    tasks |= {("work", n): (some_and_more, 0.05) for n in range(6)}
    prof, sprof = sampled(tasks, get, interval)
    (every, *_) = sprof.tree(root=Root.TASKS).to_dicts()
    assert every["total_wall"] == pytest.approx(total(prof), rel=1e-6)
    if sys.platform == "linux":
        assert every["total_cpu"] == pytest.approx(total(prof, "thread_cpu"), rel=1e-6)
    table = prof.recording.tasks
    for function in ("nap", "work"):
        own = table.rows(table["function"].where(function))
        (_, _, row, *_) = sprof.tree(function=function).to_dicts()
        assert row["total_wall"] == pytest.approx((own["stop"] - own["start"]).sum(), rel=1e-6)


def match_for_long(letters):
    return re.match(r"(a+)+$", "a" * letters + "b")


def hash_small_inputs(seconds):
    """Hash in one call that never gives up the GIL."""
    few = 20_000
    started = time.perf_counter()
    hash_and_forget(few)
    hash_and_forget(int(few * (seconds / (time.perf_counter() - started) - 1)))


def hash_and_forget(count):
    # In one call of C. What is kept would take memory, and as long again to find it.
    collections.deque(map(hashlib.sha256, [b"x" * 1000] * count), maxlen=0)


def letters_for(seconds):
    """How many letters take so long: each doubles it."""
    letters, took = 18, 0.0
    while took < seconds / 2.2:
        letters += 1
        started = time.perf_counter()
        match_for_long(letters)
        took = time.perf_counter() - started
    return letters + (took < seconds)


@pytest.mark.once
@pytest.mark.truth
@pytest.mark.parametrize(("get", "expected"), [*zip(SCHEDULERS, [1.0, 1.5, 1.0], strict=True)])
def test_a_call_that_keeps_the_lock_is_seen(get, expected):
    prof, sprof = sampled({("re", 0): (match_for_long, letters_for(expected))}, get)
    seconds = seconds_by_name(sprof)
    assert total(prof) > expected / 2
    assert seconds["match_for_long"] >= 0.95 * total(prof)
    assert seconds["match"] >= 0.95 * total(prof)
    assert any("came late" in notice for notice in sprof.recording.notices) or (
        get is dask.multiprocessing.get
    )


@pytest.mark.once
def test_another_thread_is_seen_where_it_waited_for_the_lock(retried):
    def measure():
        # The nap is over long after the lock is free: what ends at once may not be sampled.
        tasks = {("hash", 0): (hash_small_inputs, 1.0), ("nap", 0): (time.sleep, 2.5)}
        _, sprof = sampled(tasks, num_workers=2)
        seconds = seconds_by_name(sprof)
        assert seconds["hash_small_inputs"] >= 0.95 * seconds["hash"]
        assert seconds["sleep"] >= 0.95 * seconds["nap"]

    retried(measure)


def keep_the_lock_for_200_ms():
    list(map(hashlib.sha256, [b"x" * 1000] * 250_000))


@pytest.mark.once
@pytest.mark.truth
@pytest.mark.parametrize("get", SCHEDULERS)
def test_seconds_sum_while_tasks_keep_the_lock(get):
    tasks = {("keep", n): (keep_the_lock_for_200_ms,) for n in range(4)}
    prof, sprof = sampled(tasks, get, num_workers=4)
    (every, _, _, *below) = sprof.tree(root=Root.TASKS).to_dicts()
    assert every["total_wall"] == pytest.approx(total(prof), rel=0.05)
    names = {row["name"] for row in below}
    assert "keep_the_lock_for_200_ms" in names
    assert names <= {"keep_the_lock_for_200_ms", "(not sampled)"}


@pytest.mark.once
@on_linux
@pytest.mark.parametrize("get", SCHEDULERS)
def test_sleep_is_waiting_and_spinning_is_cpu(get, retried):
    def measure():
        tasks = {("nap", 0): (nap_in_python,), ("spin", 0): (spin, 0.5)}
        prof, sprof = sampled(tasks, get, num_workers=1)
        wall, cpu = seconds_by_name(sprof), seconds_by_name(sprof, "total_cpu")
        rows = prof.recording.tasks.to_dicts()
        (napped,) = (row["stop"] - row["start"] for row in rows if row["function"] == "nap")
        # All but what the start of the task takes, of which a sample may be due.
        assert wall["nap_in_python"] == pytest.approx(napped, rel=0.05)
        assert cpu["nap_in_python"] < 0.02
        assert cpu["spin"] == pytest.approx(0.5, abs=0.05)

    retried(measure)


def nap_in_python():
    time.sleep(0.5)


def nap_and_spin():
    for _ in range(4):
        nap_for_a_while()
        # Long, beside the time to the next sample: where a tick takes 0.5 ms, that is up to 25 ms.
        spin(0.25)


def nap_for_a_while():
    time.sleep(0.25)


@on_linux
def test_cpu_and_waiting_within_one_task(retried):
    def measure():
        _, sprof = sampled({("both", 0): (nap_and_spin,)}, interval="2ms")
        wall, cpu = seconds_by_name(sprof), seconds_by_name(sprof, "total_cpu")
        assert cpu["nap_for_a_while"] < 0.08 * wall["nap_for_a_while"]
        assert cpu["spin"] > 0.85 * min(wall["spin"], 1.0)

    retried(measure)


@pytest.mark.once
def test_tasks_shorter_than_the_interval(retried):
    def measure():
        tasks = {("short", n): (sleep_some_and_more,) for n in range(240)}
        _, sprof = sampled(tasks, num_workers=4, interval="50ms")
        wall = seconds_by_name(sprof)
        assert wall["sleep_some"] / wall["short"] == pytest.approx(0.3, abs=0.1)
        assert wall["sleep_more"] / wall["short"] == pytest.approx(0.7, abs=0.1)
        assert wall.get("(not sampled)", 0.0) < 0.15 * wall["short"]

    retried(measure)


def sleep_some_and_more():
    sleep_some()
    sleep_more()


def sleep_some():
    time.sleep(0.012)


def sleep_more():
    time.sleep(0.028)


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
    return recurse(depth - 1) if depth else spin(0.2)


@pytest.mark.parametrize("get", SCHEDULERS)
def test_a_thousand_deep(get):
    with_room = sys.getrecursionlimit()
    sys.setrecursionlimit(3000)
    try:
        _, sprof = sampled({("deep", 0): (recurse, 700 if get is SCHEDULERS[2] else 1000)}, get)
    finally:
        sys.setrecursionlimit(with_room)
    tree = sprof.tree().to_dicts()
    deepest = [row["name"] for row in tree].count("recurse")
    assert deepest >= (701 if get is SCHEDULERS[2] else 1001)
    assert "spin" in names_of(sprof)


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


@pytest.mark.parametrize("get", SCHEDULERS)
@pytest.mark.parametrize(
    ("task", "chain"),
    [
        (run_coroutine, ["run_coroutine", "coroutine", "spin"]),
        (consume, ["consume", "generator", "spin"]),
    ],
)
def test_coroutines_and_generators(get, task, chain):
    _, sprof = sampled({("work", 0): (task,)}, get, interval="2ms")
    tree = sprof.tree().to_dicts()
    paths = []
    for row in tree:
        paths.append(
            [*(paths[row["parent"]] if row["parent"] >= 0 else []), row["name"]],
        )
    assert any([name for name in path if name in chain] == chain for path in paths)


class Work:
    def method(self):
        spin(0.1)


def test_qualified_names_files_and_lines():
    _, sprof = sampled({("work", 0): (Work.method, Work())})
    rows = [row for row in sprof.tree().to_dicts() if row["name"].endswith("method")]
    (row,) = rows
    assert row["name"] == ("Work.method" if sys.version_info >= (3, 11) else "method")
    assert row["file"] == __file__
    assert row["first_line"] == Work.method.__code__.co_firstlineno
    frames = sprof.recording.frames.to_dicts()
    (line,) = {frame["line"] for frame in frames if frame["name"] == row["name"]} - {
        row["first_line"]
    }
    assert line == row["first_line"] + 1


@pytest.mark.parametrize("get", SCHEDULERS)
def test_functions_in_c_are_reported_by_name_if_dask_calls_them(get):
    tasks = {("nap", 0): (time.sleep, 0.3), ("sum", 0): (functools.partial(sum), range(5_000_000))}
    _, sprof = sampled(tasks, get)
    assert {"sleep", "sum"} <= names_of(sprof)
    assert not [name for name in names_of(sprof) if "call" in name]


def test_machinery_of_dask_is_cut():
    import dask.array as da

    array = da.ones((400, 400), chunks=100).map_blocks(slowly) + 1
    with SamplingProfiler("2ms") as sprof:
        array.compute(scheduler="threads")
    tree = sprof.tree(root=Root.TASKS).to_dicts()
    files = {row["file"] for row in tree if row["depth"] == 3}
    assert not [file for file in files if file.endswith("_task_spec.py")]
    assert "slowly" in names_of(sprof)


def slowly(block):
    spin(0.02)
    return block


def with_a_nested_compute():
    return dask.local.get_sync({("inner", 0): (some, 0.1)}, [("inner", 0)])


def test_a_nested_compute_is_part_of_the_outer_task():
    _, sprof = sampled({("outer", 0): (with_a_nested_compute,)})
    assert set(sprof.recording.samples["function"].tolist()) == {"outer", ""}
    assert {"with_a_nested_compute", "some"} <= names_of(sprof)


# How it is used


def fail():
    spin(0.1)
    raise ValueError("known")


@pytest.mark.parametrize("get", SCHEDULERS)
def test_a_failing_task(get):
    with pytest.raises(ValueError, match="known"), SamplingProfiler() as sprof:
        get(
            {("fail", 0): (fail,)},
            [("fail", 0)],
            **({"optimize_graph": False} if get is SCHEDULERS[2] else {}),
        )
    assert "fail" in names_of(sprof)
    assert not running_now()


@on_linux
@pytest.mark.parametrize("get", SCHEDULERS)
def test_explained_and_sampled_at_once(get, retried):
    seen = []

    def measure():
        samplers = threading.Timer(0.3, lambda: seen.append(len(own_threads())))
        samplers.start()
        tasks = {("nap", 0): (nap_in_python,), ("spin", 0): (spin, 0.5)}
        kwargs = {"optimize_graph": False, "chunksize": 1} if get is SCHEDULERS[2] else {}
        with Profiler(waits=True) as prof, SamplingProfiler() as sprof:
            get(tasks, list(tasks), num_workers=2, **kwargs)
        samplers.join()
        waited = {
            row["activity"]: row["seconds"]
            for row in dask_diag.waits(prof.recording, "activity").to_dicts()
        }
        assert waited["sleep"] == pytest.approx(0.5, abs=0.15)
        assert {"nap_in_python", "spin"} <= names_of(sprof)
        wall = seconds_by_name(sprof)
        assert wall["tasks"] == pytest.approx(total(prof), rel=1e-6)
        assert seen[-1] == 1

    retried(measure)
    assert not own_threads()


def test_several_profilers_share_a_look(retried):
    tasks = {("work", 0): (some_and_more, 1.0)}

    def measure():
        with SamplingProfiler("10ms", "1s") as coarse, SamplingProfiler("5ms", "100ms") as fine:
            dask.threaded.get(tasks, list(tasks))
            counts = [sprof.tree(root=Root.TASKS)["total_count"][0] for sprof in (coarse, fine)]
            # Two hundred ticks, of which the sampler takes those that it has CPU for: a fiftieth of
            # the time, the calling thread included.
            assert counts[0] == counts[1] > 20
        assert len(fine.recording.samples) > len(coarse.recording.samples)
        both = Recording.combine([coarse.recording, fine.recording])
        seconds = coarse.recording.samples["seconds"].sum()
        assert both.samples["seconds"].sum() == pytest.approx(seconds)

    retried(measure)


def test_overlapping_computes():
    def compute(name):
        dask.threaded.get({(name, n): (some, 0.1) for n in range(3)}, [(name, n) for n in range(3)])

    with Profiler() as prof, SamplingProfiler() as sprof:
        threads = [threading.Thread(target=compute, args=(f"work{n}",)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(sprof.recording.computations) == 3
    for n in range(3):
        table = prof.recording.tasks
        own = table.rows(table["function"].where(f"work{n}"))
        seconds = seconds_by_name(sprof, function=f"work{n}")
        assert seconds[f"work{n}"] == pytest.approx((own["stop"] - own["start"]).sum(), rel=1e-6)
        assert seconds["some"] > 0.5 * seconds[f"work{n}"]


def test_registered_for_several_computes_and_cleared():
    sprof = SamplingProfiler()
    sprof.register()
    try:
        for name in ("first", "second"):
            dask.threaded.get({(name, 0): (some, 0.1)}, [(name, 0)])
        assert {"first", "second", "some"} <= names_of(sprof)
        sprof.clear()
        assert names_of(sprof) == {"all"}
        dask.threaded.get({("third", 0): (some, 0.1)}, [("third", 0)])
    finally:
        sprof.unregister()
    assert "third" in names_of(sprof)
    assert "first" not in names_of(sprof)
    dask.threaded.get({("fourth", 0): (some, 0.05)}, [("fourth", 0)])
    assert "fourth" not in names_of(sprof)


def test_clearing_keeps_what_runs(retried):
    def measure():
        with SamplingProfiler(cycle="50ms") as sprof:
            dask.threaded.get({("before", 0): (some, 0.2)}, [("before", 0)])
            time.sleep(0.1)
            clearing = threading.Timer(0.2, sprof.clear)
            clearing.start()
            dask.threaded.get({("during", 0): (more, 0.4)}, [("during", 0)])
            clearing.join()
        # The last tick may have been due when the task was just about to end.
        assert names_of(sprof) - {NOT_SAMPLED} == {"all", "tasks", "during", "more", "spin"}
        samples = sprof.recording.samples
        samples = samples.rows(samples.root.where(Root.TASKS))
        assert samples["start"].min() < sprof.recording.computations["start"][0] + 0.1

    retried(measure)


def test_while_it_runs():
    trees = []
    with SamplingProfiler() as sprof:
        looking = threading.Timer(0.3, lambda: trees.append(sprof.tree().to_dicts()))
        looking.start()
        dask.threaded.get({("work", 0): (some, 0.5)}, [("work", 0)])
        looking.join()
    assert "some" in {row["name"] for row in trees[0]}
    assert 0.2 < trees[0][0]["total_wall"]


def interrupt():
    threading.Timer(0.1, os.kill, (os.getpid(), 2)).start()
    spin(0.3)


def test_an_interrupt():
    with pytest.raises(KeyboardInterrupt), SamplingProfiler() as sprof:
        dask.local.get_sync({("work", 0): (interrupt,)}, [("work", 0)])
    assert "interrupt" in names_of(sprof)
    assert not own_threads()


def die():
    spin(0.3)
    os._exit(1)


def test_a_worker_that_dies_loses_its_own_last_batch_only():
    tasks = {("live", n): (some, 0.1) for n in range(2)}
    tasks["die", 0] = (die_after, *tasks)
    with pytest.raises(Exception, match="process"), SamplingProfiler() as sprof:
        dask.multiprocessing.get(
            tasks, [("die", 0)], num_workers=2, chunksize=1, optimize_graph=False
        )
    assert "some" in names_of(sprof)


def die_after(*_):
    os._exit(1)


def test_nothing_of_the_users_is_retained():
    class Big:
        pass

    retained = []

    def hold(seconds):
        big = Big()
        retained.append(weakref.ref(big))
        spin(seconds)
        return

    gc.collect()
    gc.disable()
    try:
        _, sprof = sampled({("hold", n): (hold, 0.05) for n in range(6)}, interval="1ms")
        assert "hold" in str(names_of(sprof))
        assert len(retained) == 6
        assert not [ref for ref in retained if ref() is not None]
    finally:
        gc.enable()


def test_code_is_let_go():
    space = {"spin": spin}
    exec("def computation(): spin(0.1)", space)
    code = weakref.ref(space["computation"].__code__)
    _, sprof = sampled({("work", 0): (space.pop("computation"),)})
    assert "computation" in names_of(sprof)
    gc.collect()
    assert code() is None


def test_tasks_that_are_not_sampled_are_not_probed():
    with Profiler():
        wrapper_of = []
        dask.threaded.get({("see", 0): (lambda: wrapper_of.append(running_now()),)}, [("see", 0)])
    assert wrapper_of == [{}]


def threads_come_and_go(count):
    for _ in range(count):
        thread = threading.Thread(target=spin, args=(0.001,))
        thread.start()
        thread.join()


def test_threads_that_end_between_two_looks():
    prof, sprof = sampled(
        {("work", n): (threads_come_and_go, 50) for n in range(4)}, interval="1ms"
    )
    assert not [notice for notice in sprof.recording.notices if "failed" in notice]
    # A task's own threads are left out.
    assert "spin" not in names_of(sprof)
    assert seconds_by_name(sprof)["tasks"] == pytest.approx(total(prof), rel=1e-6)


# What is reported


@pytest.mark.once
def test_summary_export_and_picture(tmp_path, monkeypatch):
    prof, sprof = sampled({("work", 0): (some_and_more, 0.5), ("nap", 0): (time.sleep, 0.1)})
    assert "spin" in sprof.summary()
    assert "samples of their stacks" in sprof.summary()
    together = summary([prof, sprof])
    assert ": 2 tasks on " in together
    assert re.search(r"^Hottest line +\S", together, re.MULTILINE)
    for name in ("profile.speedscope.json", "profile.collapsed", "profile.folded"):
        sprof.export(tmp_path / name)
    content = json.loads((tmp_path / "profile.speedscope.json").read_text())
    assert {profile["name"] for profile in content["profiles"]} >= {"work", "nap"}
    sprof.export(tmp_path / "part.folded", function="nap")
    assert "some" not in (tmp_path / "part.folded").read_text()
    with pytest.raises(DiagnosticError, match="speedscope"):
        sprof.export(tmp_path / "profile.txt")
    with pytest.raises(DiagnosticError, match="overwrite=True"):
        sprof.export(tmp_path / "profile.folded", function="nap")
    assert "some" in (tmp_path / "profile.folded").read_text()
    sprof.export(tmp_path / "profile.folded", function="nap", overwrite=True)
    assert "some" not in (tmp_path / "profile.folded").read_text()
    sprof.visualize(show=False, filename=tmp_path / "flame.html")
    dask_diag.visualize([prof, sprof], show=False, filename=tmp_path / "both.html")
    for name in os.listdir(tmp_path):
        (tmp_path / name).unlink()


def test_an_empty_profile():
    with SamplingProfiler() as sprof:
        pass
    assert names_of(sprof) == {"all"}
    assert "0 samples" in sprof.summary()
    sprof.visualize(show=False, save=False)


def test_settings_come_from_dasks_configuration():
    assert dask.config.get("diag.profile.interval") == "10ms"
    assert dask.config.get("diag.profile.cycle") == "100ms"
    with dask.config.set({"diag.profile.interval": "20ms", "diag.profile.cycle": 2}):
        assert SamplingProfiler()._interval == 0.02
        assert SamplingProfiler()._cycle == 2.0
        assert SamplingProfiler("5ms")._interval == 0.005
        assert SamplingProfiler("3s")._cycle == 3.0
    with (
        dask.config.set({"diag.profile.interval": "often"}),
        pytest.raises(DiagnosticError, match=r"diag\.profile\.interval of dask's configuration"),
    ):
        SamplingProfiler()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"interval": "soon"}, "interval: expected a time"),
        ({"interval": 0}, "interval: expected a time"),
        ({"interval": -1}, "interval: expected a time"),
        ({"interval": "1us"}, "0.1 ms or more"),
        ({"interval": True}, "interval: expected a time"),
        ({"interval": float("nan")}, "interval: expected a time"),
        ({"interval": []}, "interval: expected a time"),
        ({"cycle": float("inf")}, "cycle: expected a time"),
        ({"interval": "2s", "cycle": "1s"}, "cycle: expected at least the interval"),
    ],
)
def test_impossible_settings(arguments, message):
    with pytest.raises(DiagnosticError, match=message):
        SamplingProfiler(**arguments)


def test_a_fault_of_the_sampler_is_reported_and_does_not_reach_the_task(monkeypatch):
    def fail(*_):
        raise OSError("strange")

    monkeypatch.setattr(Walker, "stack_of", fail)
    prof, sprof = sampled({("work", 0): (some, 0.1)})
    assert prof.recording.tasks["outcome"].tolist() == ["ok"]
    assert any("strange" in notice for notice in sprof.recording.notices)
    assert "(not sampled)" in names_of(sprof)


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
    # Every twentieth look, of twenty times the seconds: a row each would be twice as many bytes.
    for tick in range(int(3600 / interval / 20)):
        now = tick * interval * 20
        for thread in range(threads):
            stack = some_stacks[(tick * 31 + thread * 7 + tick * tick) % distinct]
            collected.see(now, Run(f"function{thread % 5}", tick), stack, 0.2, 0.1)
        if tick % 6000 == 0:
            assert size_of(collected) < 20e6
    assert size_of(collected) < 20e6
    snapshot = collected.snapshot()
    assert len(snapshot.cycles) <= call_tree.MOST_CYCLES
    assert sum(sum(packed.seconds) for packed in snapshot.cycles.values()) == pytest.approx(
        3600 * 16
    )
    assert sum(sum(packed.cpu) for packed in snapshot.cycles.values()) == pytest.approx(1800 * 16)
    assert sum(sum(packed.counts) for packed in snapshot.cycles.values()) == 18_000 * 16


def test_cycles_merge_with_their_neighbours(monkeypatch):
    monkeypatch.setattr(call_tree, "MOST_CYCLES", 10)
    collected, stack = Stacks(1.0), a_stack("main", "work")
    for second in range(1000):
        collected.see(second + 0.5, Run("sum", 0), stack, 0.125, 0.0625)
    snapshot = collected.snapshot()
    assert len(snapshot.cycles) <= 10
    assert snapshot.cycle == 128.0
    for number, packed in snapshot.cycles.items():
        overlap = min(1000, (number + 1) * snapshot.cycle) - number * snapshot.cycle
        assert sum(packed.seconds) == overlap / 8
        assert list(packed.counts) == [overlap]
    # What comes late finds its cycle.
    collected.see(3.0, Run("sum", 0), stack, 0.125, 0.0625)
    assert list(collected.snapshot().cycles[0].counts) == [129]


@pytest.mark.parametrize("lasted", [5.0, 60.0, 700.0])
def test_a_timeline_has_a_bar_for_each_fiftieth_of_the_run(lasted):
    collected, stack = Stacks(SamplingProfiler()._cycle), a_stack("main", "work")
    for n in range(int(lasted / 0.05)):
        collected.see(n * 0.05 + 0.01, Run("sum", 0), stack, 0.05, 0.05)
    snapshot = collected.snapshot()
    assert snapshot.cycle <= lasted / 50
    assert 50 <= len(snapshot.cycles) <= call_tree.MOST_CYCLES


def test_a_look_that_stands_for_long_is_spread_over_cycles():
    collected = Stacks(1.0)
    collected.see(12.5, Run("sum", 0), a_stack("main"), 10.0, 5.0)
    collected.miss(14.75, Run("sum", 0), 0.5)
    collected.miss(15.0625, Run("sum", 0), 0.125)
    seconds = {n: sum(packed.seconds) for n, packed in collected.snapshot().cycles.items()}
    assert seconds == {2: 0.5, **dict.fromkeys(range(3, 12), 1.0), 12: 0.5, 14: 0.5, 15: 0.125}
    looks = {n: sum(packed.counts) for n, packed in collected.snapshot().cycles.items()}
    assert sum(looks.values()) == looks[12] == 1


@pytest.mark.once
@pytest.mark.parametrize("get", SCHEDULERS)
def test_no_more_threads_at_a_time_than_there_are(get, retried):
    def measure():
        _, sprof = sampled({("re", 0): (match_for_long, letters_for(1.0))}, get, cycle="100ms")
        samples = sprof.recording.samples
        threads = samples["seconds"] / (samples["stop"] - samples["start"])
        assert threads.max() < 1.3
        assert len(samples) > 5

    retried(measure)


def test_few_cycles_of_many_stacks_are_not_merged_for_ever(monkeypatch):
    monkeypatch.setattr(call_tree, "MOST_CELLS", 100)
    collected = Stacks(1.0)
    for second in range(200):
        for n in range(50):
            collected.see(second, Run("sum", 0), a_stack("main", f"call{n}"), 0.02, 0.0)
    snapshot = collected.snapshot()
    assert call_tree.FEWEST_CYCLES / 2 <= len(snapshot.cycles) <= call_tree.FEWEST_CYCLES + 1
    assert sum(sum(packed.seconds) for packed in snapshot.cycles.values()) == pytest.approx(200)


def test_calls_without_room_count_to_their_caller(monkeypatch):
    monkeypatch.setattr(call_tree, "MOST_NODES", 3)
    collected = Stacks(8.0)
    collected.see(0.0, Run("sum", 0), a_stack("main", "work"), 1.0, 0.0)
    collected.see(0.0, Run("sum", 0), a_stack("main", "other", "deep"), 1.0, 0.0)
    collected.see(0.0, Run("sum", 0), a_stack("main", "third"), 1.0, 0.0)
    snapshot = collected.snapshot()
    (packed,) = snapshot.cycles.values()
    assert dict(zip(packed.nodes, packed.seconds, strict=True)) == {1: 1.0, 2: 1.0, 0: 1.0}
    assert collected.cut == 2


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
    assert ticks_until(7.0, 0.01) - ticks_until(2.0, 0.01) == pytest.approx(500, abs=1)


def test_ticks_between_two_times_are_those_until_each():
    chance = np.random.default_rng(0)
    for interval in (0.01, 0.0033):
        start = 1000.0
        for gap, length in chance.exponential(interval / 4, (5000, 2)):
            start += gap
            expected = ticks_until(start + length, interval) - ticks_until(start, interval)
            assert ticks_between(start, start + length, interval) == expected
        # Threads do not ask in the order of time.
        assert ticks_between(1000.0, start, interval) == ticks_until(start, interval) - ticks_until(
            1000.0, interval
        )
        assert ticks_between(1000.0, 1000.0 + interval / 9, interval) in (0, 1)


def test_of_many_short_tasks_only_those_with_a_tick_are_probed(monkeypatch):
    made = []

    class CountedTaskProbe(stacks.LocalStackTaskProbe):
        __slots__ = ()

        def __init__(self, *args):
            made.append(args)
            super().__init__(*args)

    monkeypatch.setattr(stacks, "LocalStackTaskProbe", CountedTaskProbe)
    prof, sprof = sampled({("short", n): (int,) for n in range(2000)}, dask.local.get_sync)
    took = prof.recording.stop - prof.recording.start
    assert len(made) <= took / 0.01 + 2
    assert seconds_by_name(sprof)["tasks"] == pytest.approx(total(prof), rel=1e-6)


@pytest.mark.truth
def test_a_sampler_that_is_slow_looks_less_often():
    sampler, calls = Sampler(), []

    def slow(passed):
        calls.append(passed)
        spin(0.004)

    start = time.perf_counter()
    user = sampler.add(slow, 0.001, print)
    time.sleep(1.0)
    sampler.remove(user)
    took = time.perf_counter() - start
    # A fiftieth of the time for calls of 4 ms: one in 0.2 s. What follows the last is in none.
    assert len(calls) <= took / 0.2 + 2
    assert took - 0.25 < sum(calls) <= took + 0.001


@pytest.mark.truth
def test_a_collection_of_all_garbage_on_its_thread_makes_the_sampler_no_rarer(retried):
    heap = [[n] for n in range(500_000)]

    def measure():
        sampler, calls, took = Sampler(), [], []

        def listener(passed):
            calls.append(time.perf_counter())
            if len(calls) == 3:
                # A full collection is known by the younger ones that it ends.
                gc.collect(1)
            elif len(calls) == 6:
                start = time.thread_time()
                gc.collect()
                took.append(time.thread_time() - start)

        user = sampler.add(listener, 0.01, print)
        time.sleep(1.5)
        end = time.perf_counter()
        sampler.remove(user)
        # Its rest would be fifty times as long as the collection.
        assert took[0] > 0.02
        assert max(np.diff([*calls, end])) < took[0] + 0.3

    retried(measure)
    assert len(heap) == 500_000


def test_all_that_sample_at_a_tick_share_one_reading_of_the_frames(monkeypatch):
    rounds, readings = [], []
    share, read = sampler_module.share_frames, sampler_module.current_frames
    monkeypatch.setattr(sampler_module, "share_frames", lambda: (rounds.append(1), share()))

    def current_frames():
        # Other tests' leftovers, and the debugger, may read frames on other threads.
        if threading.current_thread().name.endswith("sampler"):
            readings.append(1)
        return read()

    monkeypatch.setattr(sampler_module, "current_frames", current_frames)
    with SamplingProfiler("2ms") as first, SamplingProfiler("2ms") as second:
        dask.threaded.get({("wait", 0): (time.sleep, 0.3)}, [("wait", 0)])
    for sprof in (first, second):
        assert sprof.tree(root=Root.TASKS)["total_count"][0] > 0
        assert sprof.tree(root=Root.SCHEDULER)["total_count"][0] > 0
    assert 0 < len(readings) <= len(rounds)


def test_frames_that_are_not_shared_are_read_each_time():
    first = sampler_module.thread_frames()
    sampler_module.share_frames()
    shared = sampler_module.thread_frames()
    assert shared is not first
    assert sampler_module.thread_frames() is shared
    sampler_module.forget_frames()
    assert sampler_module.thread_frames() is not shared
    assert threading.get_ident() not in shared.frames


def test_the_stack_of_a_thread_that_waits_is_read_once(monkeypatch):
    clock, readings = [1.0], []

    class CountingWalker(CallerWalker):
        def stack_of_thread(self, innermost):
            readings.append(1)
            return super().stack_of_thread(innermost)

    monkeypatch.setattr(CallingThread, "_cpu_now", lambda self: clock[0])
    thread, walker = CallingThread(threading.get_native_id(), 0.0, 0.01), CountingWalker()
    frame = sys._getframe(1)
    stack = thread.stack(frame, walker)
    assert thread.stack(frame, walker) is stack
    assert len(readings) == 1
    clock[0] = 1.001
    assert thread.stack(frame, walker) == stack
    assert len(readings) == 2
    # It was elsewhere and had no CPU: its clock is coarse.
    assert thread.stack(sys._getframe(), walker) != stack


@pytest.mark.truth
def test_users_of_one_listener_share_its_calls():
    sampler, calls, reported = Sampler(), [], []
    once = sampler.add(calls.append, 0.01, reported.append)
    twice = sampler.add(calls.append, 0.005, reported.append)
    time.sleep(0.3)
    sampler.remove(twice)
    assert len(calls) <= 0.3 / 0.005 + 10
    count = len(calls)
    time.sleep(0.2)
    assert len(calls) > count
    sampler.remove(once)
    assert not own_threads()
    assert not reported


def keep_the_lock_to_the_end():
    # One call that is all in C: the power of a long number.
    int("9" * 4000) ** 600


def test_of_a_task_that_keeps_the_lock_to_its_end_no_stack_is_claimed(retried):
    def measure():
        with SamplingProfiler() as sprof:
            dask.threaded.get({("keep", 0): (keep_the_lock_to_the_end,)}, [("keep", 0)])
        (notice,) = [text for text in sprof.recording.notices if "came late" in text]
        assert re.search(r"longest gap [\d.]+ m?s", notice)
        assert "if the task had ended by then, its time is shown as not sampled" in notice

    retried(measure)


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
