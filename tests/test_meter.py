"""Metering from inside tasks: exact, additive, and heard from distributed's meter too."""

from __future__ import annotations

import gc
import math
import threading
import time
import warnings
from unittest import mock

import cloudpickle
import dask.array as da
import dask.local
import dask.multiprocessing
import dask.threaded
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dask_diag import Profiler, activities, context_meter
from dask_diag.capture import metrics as metrics_module

from .interleaving import Thread, await_event
from .test_activities import assert_adds_up

SCHEDULERS = [dask.local.get_sync, dask.threaded.get, dask.multiprocessing.get]


@pytest.fixture(scope="module", autouse=True)
def nothing_is_collected():
    """A collection of garbage in a task would be metered as well."""
    gc.disable()
    yield
    gc.enable()


def spin(cpu_seconds):
    started = time.thread_time()
    while time.thread_time() - started < cpu_seconds:
        pass


def profiled(function, *args, get=dask.threaded.get, **options):
    with Profiler(**options) as prof:
        get({("work", 0): (function, *args)}, ("work", 0))
    assert_adds_up(prof.recording)
    return prof


def sums_of_the_same(_):
    for _ in range(3):
        da.arange(8, chunks=4).sum().compute(scheduler="sync")
    da.arange(9, chunks=3).sum().compute(scheduler="sync")


@pytest.mark.parametrize("get", SCHEDULERS)
def test_computations_inside_of_tasks_are_counted_and_those_with_the_same_inputs(get):
    own = dask.local.local_callbacks
    prof = profiled(sums_of_the_same, 0, get=get)
    assert dask.local.local_callbacks is own
    amounts = activities(prof, unit="computations").to_dicts()
    assert [(row["activity"], row["value"]) for row in amounts] == [("computations in tasks", 4.0)]
    assert activities(prof, unit="repeats of arange")["value"].tolist() == [2.0]
    assert seconds_of(prof)["computations in tasks"] > 0


def seconds_of(prof):
    rows = activities(prof.recording, functions=["work"]).to_dicts()
    return {row["activity"]: row["value"] for row in rows}


def metered(prof):
    """What each task metered, by key and label."""
    keys, amounts = prof.recording.tasks["key"].tolist(), {}
    for row in prof.recording.metrics.to_dicts():
        amounts.setdefault((keys[row["task"]], row["activity"]), []).append(row["value"])
    return amounts


def took(function, seconds):
    """How long it took, by the wall clock: on a busy machine a spin takes longer than its CPU."""
    started = time.perf_counter()
    function(seconds)
    return time.perf_counter() - started


def sleeps_and_spins():
    with context_meter.meter("I/O"):
        slept = took(time.sleep, 0.3)
    with context_meter.meter("maths"):
        spun = took(spin, 0.3)
    return slept, spun, took(time.sleep, 0.2) + took(spin, 0.4)


@pytest.mark.parametrize("get", SCHEDULERS)
def test_metered_seconds_are_taken_off_neither_the_cpu_nor_the_rest(get, retried):
    def measure():
        with Profiler() as prof:
            slept, spun, rest = get({("work", 0): (sleeps_and_spins,)}, ("work", 0))
        shares = seconds_of(prof)
        assert shares["I/O"] == pytest.approx(slept, abs=0.02)
        assert shares["maths"] == pytest.approx(spun, abs=0.02)
        assert shares["thread-cpu"] == pytest.approx(0.4, abs=0.02)
        assert shares["thread-noncpu"] == pytest.approx(rest - 0.4, abs=0.02)
        assert_adds_up(prof.recording)

    retried(measure)


def test_digested_seconds_are_taken_off_the_waiting_first(retried):
    def work():
        waited = took(time.sleep, 0.2) + took(spin, 0.2) - 0.2
        context_meter.digest_metric("device", 0.3, "seconds")
        return waited

    def measure():
        with Profiler() as prof:
            waited = dask.threaded.get({("work", 0): (work,)}, ("work", 0))
        shares = seconds_of(prof)
        assert shares["device"] == 0.3
        assert shares["thread-noncpu"] == pytest.approx(max(waited - 0.3, 0.0), abs=0.02)
        assert shares["thread-cpu"] == pytest.approx(0.2 - max(0.3 - waited, 0.0), abs=0.02)

    retried(measure)


@context_meter.meter("read")
def decorated(depth):
    time.sleep(0.05)
    return decorated(depth - 1) if depth else "result"


def test_a_decorated_function_may_call_itself():
    assert decorated(0) == "result"
    assert decorated.__name__ == "decorated"
    (seconds,) = metered(profiled(decorated, 2)).values()
    assert 0.15 <= sum(seconds) < 0.3


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
    amounts = {row["activity"]: row["value"] for row in rows if row["function"] == "work"}
    moved = {"serialize", "deserialize"} if get is dask.multiprocessing.get else set()
    assert amounts.keys() == {"S3", *moved}
    assert amounts["S3"] == 1500
    assert "S3" not in seconds_of(prof)


def test_an_error_inside_a_meter_goes_through_and_closes_it():
    def work():
        with pytest.raises(ValueError), context_meter.meter("outer"):
            with context_meter.meter("inner"):
                raise ValueError
        with context_meter.meter("after"):
            time.sleep(0.05)

    shares = seconds_of(profiled(work))
    assert shares.keys() == {"outer", "inner", "after", "thread-cpu", "thread-noncpu"}


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


def test_what_no_task_meters_goes_to_distributeds_meter():
    metrics = pytest.importorskip("distributed.metrics")
    now, entered, has_left = threading.local(), threading.Event(), threading.Event()
    meter = context_meter.meter("I/O", func=lambda: now.seconds)

    def use(name, seconds):
        now.seconds, heard = 0.0, []
        with metrics.context_meter.add_callback(lambda *args: heard.append(args)), meter:
            if name == "first":
                entered.set()
                await_event(has_left)
            now.seconds += seconds
            context_meter.digest_metric("S3", 5, "bytes")
        return heard

    def work():
        thread = threading.Thread(target=context_meter.digest_metric, args=("x", 1, "count"))
        thread.start()
        thread.join()

    # A thread that a task starts is not the task.
    prof = profiled(work)
    first = Thread(use, "first", 2)
    await_event(entered)
    assert Thread(use, "second", 5).result() == [("S3", 5, "bytes"), ("I/O", 5.0, "seconds")]
    has_left.set()
    assert first.result() == [("S3", 5, "bytes"), ("I/O", 2.0, "seconds")]
    assert len(prof.recording.metrics) == 0
    assert metrics_module.listening == set()
    assert cloudpickle.loads(cloudpickle.dumps(context_meter)) is context_meter


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


@pytest.mark.parametrize("get", SCHEDULERS[:2])
def test_distributeds_meter_is_heard_unchanged(get):
    metrics = pytest.importorskip("distributed.metrics")

    def work():
        with metrics.context_meter.meter("I/O"):
            time.sleep(0.1)
        metrics.context_meter.digest_metric("S3", 7, "bytes")

    prof = profiled(work, get=get)
    assert 0.1 <= seconds_of(prof)["I/O"] < 0.3
    assert prof.metrics["execute", "work", "S3", "bytes"] == 7
    assert metrics.context_meter._callbacks.get() == {}


class Unshowable:
    """Raises whatever is done with it."""

    def __float__(self):
        raise KeyError("no")

    __repr__ = __str__ = __float__


def digest(value, unit):
    context_meter.digest_metric("x", value, unit)
    context_meter.digest_metric("fine", -2, "dollars")
    return 7


@pytest.mark.filterwarnings("always:context_meter")
@pytest.mark.parametrize("get", SCHEDULERS, ids=["sync", "threads", "processes"])
@pytest.mark.parametrize(
    ("value", "unit"),
    [("a text", "bytes"), (10**400, "bytes"), (float("nan"), "seconds"), (float("inf"), "count"),
     (None, "bytes"), (1j, "bytes"), (-1.0, "seconds"), (Unshowable(), "bytes")],
    ids=["text", "huge", "nan", "inf", "none", "complex", "negative", "unshowable"],
)  # fmt: skip
def test_a_metric_that_is_no_amount_is_left_out_and_does_not_end_the_compute(value, unit, get):
    with Profiler() as prof, warnings.catch_warnings(record=True) as reported:
        assert get({("work", 0): (digest, value, unit)}, ("work", 0)) == 7
    # A collection of garbage in the task has metrics, too.
    activities = prof.recording.metrics["activity"].tolist()
    assert [activity for activity in activities if activity != "gc"] == ["fine"]
    if get is not dask.multiprocessing.get:
        (warning,) = reported
        assert f"expected {'seconds' if unit == 'seconds' else 'a finite'}" in str(warning.message)
    with Profiler(), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dask.threaded.get({("work", 0): (digest, value, unit)}, ("work", 0)) == 7


@pytest.mark.parametrize("get", SCHEDULERS)
def test_seconds_that_are_more_than_a_task_took_are_cut(get):
    def work():
        time.sleep(0.05)
        context_meter.digest_metric("big", 3e9, "seconds")
        context_meter.digest_metric("small", 1e9, "seconds")

    prof = profiled(work, get=get)
    seconds = float((prof.recording.tasks["stop"] - prof.recording.tasks["start"])[0])
    shares = seconds_of(prof)
    assert shares["big"] == pytest.approx(0.75 * seconds)
    assert shares["small"] == pytest.approx(0.25 * seconds)
    assert shares["thread-cpu"] + shares["thread-noncpu"] == pytest.approx(0, abs=1e-9)


def test_one_meter_used_from_two_threads_does_not_mix_their_tasks():
    """a enters, b enters, a leaves, b leaves: all with one object."""
    entered = {name: threading.Event() for name in "ab"}
    has_left, now = threading.Event(), threading.local()
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
    assert metered(prof) == {("a", "I/O"): [3.0], ("b", "I/O"): [7.0]}


def test_one_meter_may_be_entered_again_inside_itself():
    times = iter([0.0, 1.0, 2.0, 4.0, 7.0, 11.0])
    meter = context_meter.meter("I/O", func=lambda: next(times))

    def work():
        with meter, meter, meter:
            pass

    assert metered(profiled(work)) == {("('work', 0)", "I/O"): [2.0, 4.0, 5.0]}


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

    with Profiler() as prof:
        dask.threaded.get({("work", 0): (work,)}, ("work", 0))
    metrics = prof.recording.metrics
    assert metrics["cpu"].tolist() == [seconds / 2 for seconds in metrics["value"].tolist()]
    return {label: sum(seconds) for (_, label), seconds in metered(prof).items()}


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
    with mock.patch.object(metrics_module, "thread_time", side_effect=lambda: now[0] / 2):
        apart = metered_in_turns(
            turns, lambda label: context_meter.meter(label, func=lambda: now[0]), now
        )
        one = context_meter.meter("I/O", func=lambda: now[0])
        shared = metered_in_turns(turns, lambda label: one, now)
    assert apart == seconds_by_block(turns)
    assert shared == {"I/O": sum(apart.values())}


@pytest.mark.truth
@pytest.mark.parametrize(("unit", "label"), [("seconds", "nap"), ("count", "")])
def test_waits_in_metered_seconds_have_their_label(unit, label):
    def work():
        with context_meter.meter("nap", unit=unit):
            time.sleep(0.3)

    waits = profiled(work, waits=True).recording.waits
    assert waits.filter(waits.activity.eq("sleep")).label.tolist() == [label]


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
            pytest.warns(RuntimeWarning, match="the value is ignored") as warned,
            context_meter.meter(label, func=clock_of(*times)),
            context_meter.meter("inside", func=clock_of(0.0, 2.0)),
        ):
            pass
        assert warned[0].filename == __file__
        return "result"

    with Profiler() as prof:
        assert dask.local.get_sync({"task": (task,)}, "task") == "result"
    assert metered(prof) == {("task", "around"): [6.0], ("task", "inside"): [2.0]}
    assert not any(math.isnan(row["value"]) for row in activities(prof.recording).to_dicts())
