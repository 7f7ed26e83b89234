"""Metering from inside tasks: exact, additive, and heard from distributed's meter too."""

from __future__ import annotations

import math
import threading
import time
import warnings
from unittest import mock

import dask.local
import dask.multiprocessing
import dask.threaded
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dask_diag import Profiler, SamplingProfiler, activities, context_meter
from dask_diag.capture import metrics as metrics_module
from dask_diag.capture.metrics import listening
from dask_diag.sampling.waits import WaitTaskProbe

from .interleaving import Thread, await_event
from .test_activities import assert_adds_up

SCHEDULERS = [dask.local.get_sync, dask.threaded.get, dask.multiprocessing.get]


def spin(cpu_seconds):
    started = time.thread_time()
    while time.thread_time() - started < cpu_seconds:
        pass


def profiled(function, *args, get=dask.threaded.get):
    with Profiler() as prof:
        get({("work", 0): (function, *args)}, ("work", 0))
    return prof


def seconds_of(prof):
    rows = activities(prof.recording, functions=["work"]).to_dicts()
    return {row["activity"]: row["value"] for row in rows}


def seconds(function, *args):
    """How long it took, by the wall clock: on a busy machine a spin takes longer than its CPU."""
    started = time.perf_counter()
    function(*args)
    return time.perf_counter() - started


def sleep_metered_then_spin():
    with context_meter.meter("I/O"):
        slept = seconds(time.sleep, 0.5)
    return slept, seconds(spin, 0.5)


def spin_metered_then_sleep():
    with context_meter.meter("maths"):
        spun = seconds(spin, 0.3)
    return seconds(time.sleep, 0.3), spun


def profiled_and_reported(function, get):
    """What a profiler says, and what the task itself says of its sleep and its spin."""
    with Profiler() as prof:
        slept, spun = get({("work", 0): (function,)}, ("work", 0))
    assert_adds_up(prof.recording)
    return seconds_of(prof), slept, spun


@pytest.mark.parametrize("get", SCHEDULERS)
def test_metered_sleep_is_not_taken_off_the_cpu_seconds(get, retried):
    def measure():
        shares, slept, spun = profiled_and_reported(sleep_metered_then_spin, get)
        assert shares["I/O"] == pytest.approx(slept, abs=0.02)
        assert shares["thread-cpu"] == pytest.approx(0.5, abs=0.02)
        assert shares["thread-noncpu"] == pytest.approx(spun - 0.5, abs=0.02)

    retried(measure)


@pytest.mark.parametrize("get", SCHEDULERS)
def test_metered_cpu_is_not_taken_off_the_rest(get, retried):
    def measure():
        shares, slept, spun = profiled_and_reported(spin_metered_then_sleep, get)
        assert shares["maths"] == pytest.approx(spun, abs=0.02)
        assert shares["thread-noncpu"] == pytest.approx(slept, abs=0.02)
        assert abs(shares["thread-cpu"]) < 0.02

    retried(measure)


def nested():
    with context_meter.meter("outer"):
        time.sleep(0.1)
        with context_meter.meter("inner"):
            time.sleep(0.2)
        with context_meter.meter("inner"):
            time.sleep(0.1)
        time.sleep(0.1)


def test_nested_meters_add_up(retried):
    def measure():
        prof = profiled(nested)
        shares = seconds_of(prof)
        assert shares["outer"] == pytest.approx(0.2, abs=0.02)
        assert shares["inner"] == pytest.approx(0.3, abs=0.02)
        assert_adds_up(prof.recording)

    retried(measure)


@context_meter.meter("read")
def decorated(depth):
    time.sleep(0.05)
    return decorated(depth - 1) if depth else "result"


def test_a_decorated_function_may_call_itself(retried):
    def measure():
        prof = profiled(decorated, 2)
        assert seconds_of(prof)["read"] == pytest.approx(0.15, abs=0.02)

    assert decorated(0) == "result"
    assert decorated.__name__ == "decorated"
    retried(measure)


def read_bytes():
    context_meter.digest_metric("S3", 1000, "bytes")
    context_meter.digest_metric("S3", 500, "bytes")
    context_meter.digest_metric("S3", 0.25, "dollars")


@pytest.mark.parametrize("get", SCHEDULERS)
def test_any_unit_is_counted(get):
    prof = profiled(read_bytes, get=get)
    assert prof.metrics["execute", "work", "S3", "bytes"] == 1500
    assert prof.metrics["execute", "work", "S3", "dollars"] == 0.25
    rows = activities(prof.recording, by="function", unit="bytes").to_dicts()
    moved = ["serialize", "deserialize"] if get is dask.multiprocessing.get else []
    assert sorted(row["activity"] for row in rows) == sorted(["S3", *moved])
    assert next(row for row in rows if row["activity"] == "S3") == {
        "function": "work",
        "activity": "S3",
        "unit": "bytes",
        "value": 1500.0,
    }
    assert "S3" not in seconds_of(prof)


def digest_seconds():
    slept, spun = seconds(time.sleep, 0.2), seconds(spin, 0.2)
    context_meter.digest_metric("device", 0.3, "seconds")
    return slept, spun


def test_digested_seconds_are_taken_off_the_waiting_first(retried):
    def measure():
        shares, slept, spun = profiled_and_reported(digest_seconds, dask.threaded.get)
        waited = slept + spun - 0.2
        assert shares["device"] == 0.3
        assert shares["thread-noncpu"] == pytest.approx(max(waited - 0.3, 0.0), abs=0.02)
        assert shares["thread-cpu"] == pytest.approx(0.2 - max(0.3 - waited, 0.0), abs=0.02)

    retried(measure)


def test_a_counter_can_be_metered():
    counter = iter(range(0, 1000, 7))

    def work():
        with context_meter.meter("ticks", unit="count", func=lambda: next(counter)):
            pass

    assert profiled(work).metrics["execute", "work", "ticks", "count"] == 7


def test_an_error_inside_a_meter_goes_through_and_closes_it():
    def work():
        with pytest.raises(ValueError), context_meter.meter("outer"):
            with context_meter.meter("inner"):
                raise ValueError
        with context_meter.meter("after"):
            time.sleep(0.05)

    prof = profiled(work)
    assert seconds_of(prof).keys() == {"outer", "inner", "after", "thread-cpu", "thread-noncpu"}
    assert_adds_up(prof.recording)


def test_threads_do_not_mix_what_they_meter():
    def work(n):
        with context_meter.meter(f"label-{n}"):
            time.sleep(0.01)
        context_meter.digest_metric("n", n, "count")

    names = "abcdefghijklmnopqrst"
    dsk = {(name, 0): (work, n) for n, name in enumerate(names)}
    with Profiler() as prof:
        dask.threaded.get(dsk, list(dsk), num_workers=4)
    for n, name in enumerate(names):
        assert prof.metrics["execute", name, "n", "count"] == n
        assert prof.metrics["execute", name, f"label-{n}", "seconds"] >= 0.01
    assert len(prof.recording.metrics) == 40


def test_outside_of_tasks_nothing_is_heard_and_nothing_is_left():
    prof = profiled(read_bytes)
    with context_meter.meter("late"):
        context_meter.digest_metric("late", 1, "bytes")
    assert "late" not in str(prof.metrics)
    assert listening == set()


def test_a_failing_task_keeps_its_counts_and_its_seconds_are_failed():
    def work():
        with context_meter.meter("I/O"):
            time.sleep(0.02)
        context_meter.digest_metric("read", 10, "bytes")
        raise ValueError

    with Profiler() as prof, pytest.raises(ValueError):
        dask.threaded.get({("work", 0): (work,)}, ("work", 0))
    assert set(seconds_of(prof)) == {"failed"}
    assert prof.metrics["execute", "work", "read", "bytes"] == 10
    assert_adds_up(prof.recording)


def other_sleep_then_spin():
    from distributed.metrics import context_meter as peer

    with peer.meter("I/O"):
        time.sleep(0.3)
    peer.digest_metric("S3", 7, "bytes")
    spin(0.3)


@pytest.mark.parametrize("get", SCHEDULERS[:2])
def test_distributeds_meter_is_heard_unchanged(get, retried):
    metrics = pytest.importorskip("distributed.metrics")

    def measure():
        prof = profiled(other_sleep_then_spin, get=get)
        shares = seconds_of(prof)
        assert shares["I/O"] == pytest.approx(0.3, abs=0.03)
        assert shares["thread-cpu"] == pytest.approx(0.3, abs=0.03)
        assert prof.metrics["execute", "work", "S3", "bytes"] == 7
        assert_adds_up(prof.recording)

    retried(measure)
    assert metrics.context_meter._callbacks.get() == {}


def test_where_no_task_of_own_runs_distributeds_meter_is_reported():
    metrics = pytest.importorskip("distributed.metrics")
    reported = []
    with metrics.context_meter.add_callback(lambda *args: reported.append(args)):
        context_meter.digest_metric("S3", 5, "bytes")
        with context_meter.meter("I/O"):
            time.sleep(0.02)
    assert reported[0] == ("S3", 5, "bytes")
    assert reported[1][0] == "I/O"
    assert reported[1][1] >= 0.02


def test_a_meter_pickles():
    import cloudpickle

    assert cloudpickle.loads(cloudpickle.dumps(context_meter)) is context_meter


def test_a_thread_that_a_task_starts_is_not_the_task():
    def work():
        thread = threading.Thread(target=context_meter.digest_metric, args=("x", 1, "count"))
        thread.start()
        thread.join()

    assert "count" not in str(profiled(work).metrics)


class Unshowable:
    """Raises whatever is done with it."""

    def __float__(self):
        raise KeyError("no")

    __repr__ = __str__ = __float__


@pytest.mark.filterwarnings("always:context_meter")
@pytest.mark.parametrize("get", SCHEDULERS, ids=["sync", "threads", "processes"])
@pytest.mark.parametrize(
    ("value", "unit"),
    [("a text", "bytes"), (10**400, "bytes"), (float("nan"), "seconds"), (float("inf"), "count"),
     (None, "bytes"), (1j, "bytes"), (-1.0, "seconds"), (Unshowable(), "bytes")],
    ids=["text", "huge", "nan", "inf", "none", "complex", "negative", "unshowable"],
)  # fmt: skip
def test_a_metric_that_is_no_amount_is_left_out_and_does_not_end_the_compute(value, unit, get):
    def digest():
        context_meter.digest_metric("x", value, unit)
        context_meter.digest_metric("fine", -2, "dollars")
        return 7

    with Profiler() as prof, warnings.catch_warnings(record=True) as reported:
        assert get({("work", 0): (digest,)}, ("work", 0)) == 7
    assert prof.recording.metrics["activity"].tolist() == ["fine"]
    if get is not dask.multiprocessing.get:
        assert [
            f"expected {'seconds' if unit == 'seconds' else 'a finite'}" in str(w.message)
            for w in reported
        ] == [True]


@pytest.mark.filterwarnings("error:context_meter")
def test_a_metric_that_is_no_amount_does_not_end_the_compute_where_warnings_are_errors():
    def digest():
        context_meter.digest_metric("x", None, "bytes")
        return 7

    with Profiler():
        assert dask.threaded.get({("work", 0): (digest,)}, ("work", 0)) == 7


@pytest.mark.parametrize("get", SCHEDULERS)
def test_seconds_that_are_more_than_a_task_took_are_cut(get):
    def digest():
        time.sleep(0.05)
        context_meter.digest_metric("big", 3e9, "seconds")
        context_meter.digest_metric("small", 1e9, "seconds")

    with Profiler() as prof:
        get({("work", 0): (digest,)}, ("work", 0))
    tasks = prof.recording.tasks
    took = float((tasks["stop"] - tasks["start"])[0])
    reported = {row["activity"]: row["value"] for row in activities(prof.recording).to_dicts()}
    assert reported["big"] == pytest.approx(0.75 * took)
    assert reported["small"] == pytest.approx(0.25 * took)
    assert reported["thread-cpu"] + reported["thread-noncpu"] == pytest.approx(0, abs=1e-9)


def metered_seconds(prof, label="I/O"):
    """What each task metered under a label, by its key."""
    metrics, keys = prof.recording.metrics, prof.recording.tasks["key"].tolist()
    metered = {}
    for row in metrics.to_dicts():
        if row["activity"] == label:
            metered.setdefault(keys[row["task"]], []).append(row["value"])
    return metered


def test_one_meter_used_from_two_threads_does_not_mix_their_tasks():
    """a enters, b enters, a leaves, b leaves: all with one object."""
    entered = {name: threading.Event() for name in "ab"}
    has_left = threading.Event()
    now = threading.local()
    meter = context_meter.meter("I/O", func=lambda: now.seconds)

    def first():
        now.seconds = 100.0
        with meter:
            entered["a"].set()
            await_event(entered["b"])
            now.seconds += 3
        has_left.set()

    def second():
        now.seconds = 500.0
        await_event(entered["a"])
        with meter:
            entered["b"].set()
            await_event(has_left)
            now.seconds += 7

    with Profiler() as prof:
        dask.threaded.get({"a": (first,), "b": (second,)}, ["a", "b"], num_workers=2)
    assert metered_seconds(prof) == {"a": [3.0], "b": [7.0]}


def test_one_meter_may_be_entered_again_inside_itself():
    times = iter([0.0, 1.0, 2.0, 4.0, 7.0, 11.0])
    meter = context_meter.meter("I/O", func=lambda: next(times))

    def work():
        with meter, meter, meter:
            pass

    assert metered_seconds(profiled(work)) == {"('work', 0)": [2.0, 4.0, 5.0]}


def test_one_meter_used_inside_and_outside_of_tasks_at_once():
    inside, done = threading.Event(), threading.Event()
    now = threading.local()
    meter = context_meter.meter("I/O", func=lambda: now.seconds)

    def work():
        now.seconds = 10.0
        with meter:
            inside.set()
            await_event(done)
            now.seconds += 3

    def outside():
        await_event(inside)
        now.seconds = 0.0
        with meter:
            now.seconds += 50
        done.set()

    other = Thread(outside)
    prof = profiled(work)
    other.result()
    assert metered_seconds(prof) == {"('work', 0)": [3.0]}


def metered_in_turns(turns, make_meter, now):
    """Enter a block of each label at its first turn and leave it at its second, a second each."""

    def coroutine(label):
        with make_meter(label):
            yield

    def work():
        blocks = {label: coroutine(label) for label in turns}
        for second, label in enumerate(turns):
            now[0] = float(second)
            next(blocks[label], None)

    prof = profiled(work)
    metrics = prof.recording.metrics
    assert metrics["cpu"].tolist() == [seconds / 2 for seconds in metrics["value"].tolist()]
    return {
        label: sum(metered_seconds(prof, label).get("('work', 0)", []))
        for label in {*turns, "I/O"}
        if metered_seconds(prof, label)
    }


def seconds_by_block(turns):
    """Each second to the block that was entered last of those that have not been left."""
    opened, seconds = [], dict.fromkeys(turns, 0.0)
    for label in turns:
        if opened:
            seconds[opened[-1]] += 1.0
        opened.remove(label) if label in opened else opened.append(label)
    return seconds


@pytest.mark.once
@settings(max_examples=25)
@given(st.permutations([*"aabbccdd"]))
@example(["a", "b", "c", "a", "c", "b", "d", "d"])
def test_seconds_of_coroutines_that_take_turns_are_counted_once(turns):
    now = [0.0]
    cpu = {"side_effect": lambda: now[0] / 2}
    with (
        mock.patch.object(metrics_module, "thread_time", **cpu),
        mock.patch.object(metrics_module, "thread_time", **cpu),
    ):
        metered = metered_in_turns(
            turns, lambda label: context_meter.meter(label, func=lambda: now[0]), now
        )
        one = context_meter.meter("I/O", func=lambda: now[0])
        shared = metered_in_turns(turns, lambda label: one, now)
    assert metered == seconds_by_block(turns)
    assert shared == {"I/O": sum(metered.values())}


def test_a_meter_entered_by_threads_outside_of_tasks_goes_to_distributeds_meter():
    metrics = pytest.importorskip("distributed.metrics")
    now = threading.local()
    meter = context_meter.meter("I/O", func=lambda: now.seconds)
    entered, has_left = threading.Event(), threading.Event()
    heard = {}

    def use(name, seconds):
        now.seconds = 0.0
        heard[name] = []
        with metrics.context_meter.add_callback(lambda *args: heard[name].append(args)), meter:
            if name == "first":
                entered.set()
                await_event(has_left)
            now.seconds += seconds
        return heard[name]

    first = Thread(use, "first", 2)
    await_event(entered)
    second = Thread(use, "second", 5)
    assert second.result() == [("I/O", 5.0, "seconds")]
    has_left.set()
    assert first.result() == [("I/O", 2.0, "seconds")]


class SleepingThread:
    """In place of a thread that runs tasks, as Linux sees it."""

    @property
    def linux(self):
        return self

    def waits_for(self):
        return "sleep"

    def cpu(self):
        return 0.0

    def read_schedstat(self):
        return b"0 0 0"


@pytest.mark.parametrize(
    ("unit", "sampled"),
    [
        ("seconds", [("sleep", 0.5, 1, "I/O"), ("sleep", 0.25, 1, "")]),
        ("count", [("sleep", 0.75, 2, "")]),
    ],
)
def test_a_sample_of_a_wait_has_the_label_of_metered_seconds(unit, sampled):
    def work():
        probe = WaitTaskProbe(current_task(), SleepingThread(), 0.0)
        with context_meter.meter("I/O", unit=unit):
            probe.sample(0.5)
        probe.sample(0.25)
        return probe.waits()

    def current_task():
        return metrics_module._current_task()

    with SamplingProfiler():
        assert dask.local.get_sync({("work", 0): (work,)}, ("work", 0)) == sampled


class Unprintable:
    def __str__(self):
        raise ValueError("the label's own")


def clock_of(*times):
    """A clock that shows these times, one after the other."""
    return iter(times).__next__


@pytest.mark.parametrize(
    ("label", "times"),
    [
        ("reads", [0.0, float("nan")]),
        ("reads", [16.0, 0.0]),
        ("reads", [0.0, float("inf")]),
        (Unprintable(), [0.0, 1.0]),
    ],
    ids=["no number", "runs back", "endless", "label"],
)
def test_a_block_that_is_no_amount_is_left_out_and_its_task_goes_on(label, times):
    def task():
        with (
            context_meter.meter("around", func=clock_of(0.0, 8.0)),
            pytest.warns(RuntimeWarning, match="it is left out") as warned,
            context_meter.meter(label, func=clock_of(*times)),
            context_meter.meter("inside", func=clock_of(0.0, 2.0)),
        ):
            pass
        assert warned[0].filename == __file__
        return "result"

    with Profiler() as prof:
        assert dask.local.get_sync({"task": (task,)}, "task") == "result"
    metered = {row["activity"]: row["value"] for row in prof.recording.metrics.to_dicts()}
    assert metered == {"around": 6.0, "inside": 2.0}
    assert not any(math.isnan(row["value"]) for row in activities(prof.recording).to_dicts())
