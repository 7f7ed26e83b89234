"""The breakdown: it adds up, and it says what is known of workloads by construction."""

import concurrent.futures
import multiprocessing
import time
from dataclasses import replace
from operator import add

import dask.local
import dask.multiprocessing
import dask.threaded
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_diag import DiagnosticError, Profiler, Recording, activities, context_meter
from dask_diag.analysis.activities import execute_metrics
from dask_diag.analysis.occupancy import occupancies
from dask_diag.model.table import NO_ROWS

from .recordings import NAN, with_columns, with_tables

SCHEDULERS = [dask.local.get_sync, dask.threaded.get, dask.multiprocessing.get]


def totals(recording, **kwargs):
    return {row["activity"]: row["value"] for row in activities(recording, **kwargs).to_dicts()}


def available(recording):
    return sum(o.workers * (o.times[-1] - o.times[0]) for o in occupancies(recording))


def assert_adds_up(recording):
    assert sum(totals(recording).values()) == pytest.approx(available(recording), rel=1e-6)
    for by in ("function", "worker", "computation"):
        values = activities(recording, by=by)["value"]
        assert values.sum() == pytest.approx(available(recording), rel=1e-6)


def sleep_after(_, seconds):
    time.sleep(seconds)


def chain(length, seconds):
    dsk = {("sleep", 0): (sleep_after, None, seconds)}
    for n in range(1, length):
        dsk["sleep", n] = (sleep_after, ("sleep", n - 1), seconds)
    return dsk


SLEEPS = {("sleep", n): (time.sleep, 0.01) for n in range(200)}
NO_OPS = {("no-op", n): (int,) for n in range(20_000)}
UNFUSED = {"optimize_graph": False}


@pytest.mark.parametrize(
    "get, dsk, options, shares",
    [
        # Bounds of what each activity has of the workers' seconds, without those of the graph.
        (dask.local.get_sync, chain(10, 0.05), {}, {"idle": (0, 0.02)}),
        (
            dask.threaded.get,
            chain(10, 0.05),
            {"num_workers": 2},
            {"idle": (0.49, 0.51), "overhead": (0, 0.02), "thread-noncpu": (0.45, 0.51)},
        ),
        (dask.multiprocessing.get, chain(10, 0.05), {"num_workers": 2, **UNFUSED}, {}),
        (dask.threaded.get, NO_OPS, {"num_workers": 2}, {"overhead": (0.6, 1), "idle": (0, 0.05)}),
        (dask.threaded.get, SLEEPS, {"num_workers": 4}, {"idle": (0, 0.03)}),
    ],
)
def test_activities_of_known_work(get, dsk, options, shares, retried):
    def measure():
        with Profiler() as prof:
            get(dsk, list(dsk), **options)
        assert_adds_up(prof.recording)
        seconds = totals(prof.recording)
        running = available(prof.recording) - seconds.get("graph", 0)
        for name, (least, most) in shares.items():
            assert least <= seconds.get(name, 0) / running <= most, name

    retried(measure)


def test_failed_tasks_have_an_activity_of_their_own():
    def fail(_):
        time.sleep(0.05)
        raise ValueError

    dsk = {("ok", 0): (time.sleep, 0.02), ("bad", 0): (fail, ("ok", 0))}
    with Profiler() as prof, pytest.raises(ValueError):
        dask.threaded.get(dsk, ("bad", 0), num_workers=2)
    assert_adds_up(prof.recording)
    assert totals(prof.recording)["failed"] == pytest.approx(0.05, abs=0.03)
    assert totals(prof.recording)["thread-noncpu"] == pytest.approx(0.02, abs=0.015)
    assert totals(prof.recording, functions=["ok"]).keys() == {"thread-cpu", "thread-noncpu"}


def test_nested_computes_do_not_inflate_the_total():
    def nested(x):
        return dask.threaded.get({("in", n): (time.sleep, 0.02) for n in range(4)}, [("in", 0)])

    with Profiler() as prof:
        dask.threaded.get({("out", 0): (nested, 1)}, ("out", 0), num_workers=2)
    assert_adds_up(prof.recording)
    assert len(occupancies(prof.recording)) == 1


def test_it_is_a_table_by_what_is_asked_for():
    with Profiler() as prof:
        dask.local.get_sync({("x-a", 0): (add, 1, 2)}, ("x-a", 0))
    assert set(execute_metrics(prof.recording)) == {
        ("execute", "x-a", "thread-cpu", "seconds"),
        ("execute", "x-a", "thread-noncpu", "seconds"),
    }
    assert prof.metrics == execute_metrics(prof.recording)
    table = activities(prof.recording, by="function")
    assert table.columns == ("function", "activity", "unit", "value")
    text = str(table)
    assert "thread-cpu" in text
    assert len(text.splitlines()) == 1 + len(table)
    assert "<table>" in table._repr_html_()
    with pytest.raises(DiagnosticError, match="by: expected one of activity, function"):
        activities(prof.recording, by="colour")
    assert len(activities(Recording(0.0, 1.0, 0.0))) == 0


def recording_of(rows, workers, stop):
    """By hand: a row is start, stop, collected, outcome, needs (rows); the computation begins at 0."""
    starts, stops, collected, outcomes, needs = zip(*rows, strict=True)
    start, stops = np.array(starts, float), np.array(stops, float)
    cpu = (stops - start) * 0.25
    lanes = [f"thread-{n % workers}" for n in range(len(rows))]
    pairs = [(task, need) for task, of_task in enumerate(needs) for need in of_task]
    computation = {"computation": "c", "start": 0.0, "stop": stop, "workers": workers, "cpus": 2}
    return with_tables(
        Recording(start=0.0, stop=stop, epoch=0.0),
        computations={n: [v] for n, v in {**computation, "scheduler": "threads"}.items()},
        tasks={
            "key": [str(n) for n in range(len(rows))],
            "function": [f"f{n % 3}" for n in range(len(rows))],
            "start": start,
            "stop": stops,
            "submitted": start - 0.1,
            "collected": collected,
            "thread_cpu": cpu,
            "thread_noncpu": stops - start - cpu,
            "worker": lanes,
            "pid": lanes,
            "thread": lanes,
            "computation": ["c"] * len(rows),
            "outcome": outcomes,
        },
        dependencies={
            "task": [task for task, _ in pairs],
            "depends_on": [need for _, need in pairs],
        },
    )


def test_each_second_of_a_compute_by_hand():
    # Two workers, ten seconds. The first task begins at 1 (overhead, one worker: there is but one
    # task), runs to 4, is collected at 5 (overhead); the second is ready at 5, begins at 6, is not
    # finished. What the other worker does is idle.
    recording = recording_of([(1, 4, 5, "ok", ()), (6, NAN, NAN, "unfinished", (0,))], 2, 10)
    assert totals(recording) == {
        "thread-cpu": 0.75,
        "thread-noncpu": 2.25,
        "unfinished": 4.0,
        "overhead": 1 + 1 + 1,
        "idle": 10.0,
    }
    by_worker = {
        (row["worker"], row["activity"]): row["value"]
        for row in activities(recording, by="worker").to_dicts()
    }
    assert by_worker["thread-0", "overhead"] == pytest.approx(1.5)
    assert by_worker["thread-1", "overhead"] == pytest.approx(1.5)
    assert by_worker["thread-0", "idle"] == pytest.approx(5.5)
    assert by_worker["thread-1", "idle"] == pytest.approx(4.5)


def in_processes(recording, *, called, prepared, joined=0.5):
    """The same, called for earlier, with its graph in order later, in processes that joined."""
    recording = with_columns(recording, "computations", called=[called], prepared=[prepared])
    pids = sorted(set(recording.tasks.pid.tolist()))
    workers = {"computation": ["c"] * len(pids), "pid": pids, "joined": [joined] * len(pids)}
    return with_tables(recording, workers=workers)


def test_graph_and_startup_by_hand():
    # Called at -2, in order at 1. Of two processes one starts its first task at 3, the other at 5;
    # both tasks could have run from 1 on. They run to 6 and 7; the end is at 10.
    rows = [(3, 6, 6, "ok", ()), (5, 7, 7, "ok", ())]
    recording = in_processes(recording_of(rows, 2, 10), called=-2.0, prepared=1.0)
    assert totals(recording) == {
        "graph": 2 * 3.0,
        "startup": 2 + 4,
        "thread-cpu": 0.75 + 0.5,
        "thread-noncpu": 2.25 + 1.5,
        "idle": 4 + 3,
    }
    assert_adds_up(recording)
    # Of a pool that was there before: what keeps tasks waiting is the scheduler.
    before = in_processes(recording, called=-2.0, prepared=1.0, joined=-3.0)
    assert totals(before) == {
        "graph": 2 * 3.0,
        "overhead": 2 + 4,
        "thread-cpu": 0.75 + 0.5,
        "thread-noncpu": 2.25 + 1.5,
        "idle": 4 + 3,
    }


def moved_and_metered():
    """On two processes: a task that moves data, one that fails, and one of which nothing is known.

    The first runs from 1 to 4 and is collected at 5, which lets the others be submitted; the second
    runs from 6 to 8 and is collected at 9.
    """
    rows = [(1, 4, 5, "ok", ()), (6, 8, 9, "failed", (0,)), (NAN, NAN, NAN, "unfinished", (0,))]
    recording = recording_of(rows, 2, 10)
    transfers = {
        "task": [0, 0, 0, 0, 2],
        "side": ["scheduler", "worker", "worker", "scheduler", "scheduler"],
        "activity": ["serialize", "deserialize", "serialize", "deserialize", "serialize"],
        "start": [0.1, 0.5, 4.0, 4.6, 9.2],
        "stop": [0.4, 1.0, 4.5, 4.9, 9.3],
        "bytes": [100, 100, 50, NAN, 1000],
    }
    metrics = {
        "task": [0, 0, 1, 2],
        "activity": ["disk"] * 4,
        "unit": ["bytes", "images", "images", "images"],
        "value": [7, 2, 3, 40],
    }
    return with_tables(recording, transfers=transfers, metrics=metrics)


def test_moving_data_by_hand():
    recording = moved_and_metered()
    assert totals(recording) == pytest.approx(
        {
            "idle": 6,
            "other": 5,
            # What the scheduler took for one task is not overhead beside that.
            "overhead": (0.5 - 0.3) + (0.5 - 0.3) + 1 + 1,
            "thread-noncpu": 2.25,
            "failed": 2,
            "deserialize": 0.5 + 0.3,
            "serialize": 0.5 + 0.3,
            "thread-cpu": 0.75,
        }
    )
    # On either side, of tasks that are known to have run; what failed counts with what it did.
    assert totals(recording, unit="bytes") == {"serialize": 150, "deserialize": 100, "disk": 7}
    assert totals(recording, unit="count") == {"serialize": 2, "deserialize": 2}
    assert totals(recording, unit="images") == {"disk": 5}
    # What the scheduler moved belongs to the task, and to none of the workers.
    of_first = {"thread-noncpu": 2.25, "deserialize": 0.8, "serialize": 0.8, "thread-cpu": 0.75}
    assert totals(recording, functions=["f0"]) == pytest.approx(of_first)
    on_worker = {**of_first, "deserialize": 0.5, "serialize": 0.5}
    assert totals(recording, functions=["f0"], by="worker") == pytest.approx(on_worker)
    assert totals(recording, functions="f1") == {"failed": 2}
    assert totals(recording, functions="f1", unit="images") == {"disk": 3}
    assert_adds_up(recording)


def test_of_several_computations_the_seconds_are_summed_and_the_largest_come_first():
    recording = recording_of([(1, 4, 4, "ok", ()), (12, 18, 18, "ok", ())], 2, 10)
    two = {"computation": ["c", "d"], "start": [0, 10], "stop": [10, 20], "workers": [2, 2]}
    recording = with_columns(recording, "computations", 2, **two)
    recording = replace(with_columns(recording, "tasks", computation=["c", "d"]), stop=20.0)
    expected = {
        "idle": (10 + 6) + (10 + 2),
        "thread-noncpu": 0.75 * (3 + 6),
        "overhead": 1 + 2,
        "thread-cpu": 0.25 * (3 + 6),
    }
    assert list(totals(recording).items()) == list(expected.items())
    for by in ("function", "worker", "computation"):
        values = activities(recording, by=by)["value"].tolist()
        assert values == sorted(values, reverse=True)


def test_a_process_without_a_task_to_run_does_not_start_up():
    # There is one task at first: the second process could not have run any until 6.
    rows = [(3, 6, 6, "ok", ()), (8, 9, 9, "ok", (0,))]
    recording = in_processes(recording_of(rows, 2, 10), called=0.0, prepared=1.0)
    assert totals(recording)["startup"] == 2 + 2
    assert_adds_up(recording)


@pytest.mark.spawned
def test_processes_that_start_are_not_overhead(retried):
    def measure():
        with Profiler() as prof:
            graph = {("x", n): (time.sleep, 0.2) for n in range(8)}
            dask.multiprocessing.get(graph, list(graph), num_workers=2)
        of = totals(prof.recording)
        row, tasks = prof.recording.computations, prof.recording.tasks
        pids = tasks.pid.tolist()
        waited = [
            min(start for start, pid in zip(tasks.start, pids) if pid == process) - row.prepared[0]
            for process in set(pids)
        ]
        assert min(waited) > 0.1
        assert of["startup"] == pytest.approx(sum(waited), rel=0.1)
        assert_adds_up(prof.recording)

    retried(measure)


def test_a_task_of_which_it_is_not_known_when_it_ran_is_other():
    recording = recording_of([(NAN, NAN, NAN, "failed", ())], 2, 10)
    assert totals(recording) == {"other": 10.0, "idle": 10.0}


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.integers(0, 100), max_size=3), min_size=1, max_size=25),
    st.sampled_from(SCHEDULERS[:2]),
    st.integers(1, 4),
)
def test_any_graph_adds_up(needs, get, workers):
    dsk = {("t", n): (len, [("t", need % n) for need in of if n]) for n, of in enumerate(needs)}
    with Profiler() as prof:
        get(dsk, list(dsk), num_workers=workers)
    assert_adds_up(prof.recording)


def many(count):
    start = np.arange(count) * 1e-3
    rows = zip(start, start + 5e-4, start + 7e-4, ["ok"] * count, [()] * count)
    return recording_of(list(rows), 4, count * 1e-3 + 1)


@pytest.mark.once
def test_a_hundred_thousand_tasks_are_broken_down_in_a_moment():
    recording = many(100_000)
    started = time.process_time()
    assert_adds_up(recording)
    assert time.process_time() - started < 10


def test_states_that_no_worker_was_in_take_no_memory():
    def bytes_of(array):
        """Those in memory: of an array that repeats one number, those of one."""
        return abs(array.strides[0]) * len(array) or array.itemsize

    (occupancy,) = occupancies(many(10_000))
    steps = occupancy.busy.nbytes
    for state in (occupancy.imports, occupancy.startup, occupancy.unknown, occupancy.backlog):
        assert (state.shape, state.any()) == (occupancy.busy.shape, False)
        assert bytes_of(state) < steps / 100
    assert set(occupancy.capacity.tolist()) == {4}
    assert bytes_of(occupancy.capacity) < steps / 100
    assert bytes_of(occupancy.overhead) == steps


class Slow:
    """Takes known seconds to pickle and to rebuild, by the process that does it."""

    def __init__(self, pickling, rebuilding, size=0):
        self.args = pickling, rebuilding, size

    def __reduce__(self):
        time.sleep(self.args[0])
        return rebuilt, (*self.args, bytes(self.args[2]))


def rebuilt(pickling, rebuilding, size, _):
    time.sleep(rebuilding)
    return Slow(pickling, rebuilding, size)


def consume(_):
    return 1


@pytest.fixture
def warm_pool():
    """Two worker processes that have imported what they need: importing is rebuilding, too."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, context) as pool:
        dsk = {("warm", n): (sleep_after, Slow(0, 0), 0.3) for n in range(2)}
        dask.multiprocessing.get(dsk, list(dsk), pool=pool, chunksize=1)
        yield pool


def test_moving_data_between_processes_is_reported(warm_pool, retried):
    # A result of 0.1 s and 0.3 s; it is pickled and rebuilt twice, once on each side.
    dsk = {("make", 0): (Slow, 0.1, 0.3, 1_000_000), ("use", 0): (consume, ("make", 0))}

    def measure():
        with Profiler() as prof:
            dask.multiprocessing.get(dsk, ("use", 0), pool=warm_pool, optimize_graph=False)
        recording = prof.recording
        assert_adds_up(recording)
        # While one side is at it, the other worker is idle: nothing else can be run.
        seconds = totals(recording)
        assert seconds["serialize"] == pytest.approx(0.2, abs=0.05)
        assert seconds["deserialize"] == pytest.approx(0.6, abs=0.05)
        assert totals(recording, unit="count") == {"serialize": 4, "deserialize": 4}
        size = totals(recording, unit="bytes")
        assert size["serialize"] == size["deserialize"] == pytest.approx(2e6, rel=0.01)
        metrics = prof.metrics
        made = metrics["execute", "make", "serialize", "seconds"]
        assert made == pytest.approx(0.1, abs=0.05)
        assert metrics["execute", "use", "deserialize", "bytes"] == pytest.approx(1e6, rel=0.01)
        function = recording.tasks["function"]
        took = {
            (function[row["task"]], row["activity"], row["side"]): row["stop"] - row["start"]
            for row in recording.transfers.to_dicts()
        }
        for step, seconds in {
            ("make", "serialize", "worker"): 0.1,
            ("make", "deserialize", "scheduler"): 0.3,
            ("use", "serialize", "scheduler"): 0.1,
            ("use", "deserialize", "worker"): 0.3,
        }.items():
            assert took[step] == pytest.approx(seconds, abs=0.03)

    retried(measure)


def test_threads_move_nothing():
    with Profiler() as prof:
        dask.threaded.get({("no-op", 0): (int,)}, [("no-op", 0)])
    assert not len(prof.recording.transfers)
    assert "serialize" not in totals(prof.recording)


def in_dollars():
    context_meter.digest_metric("fees", 2.0, "dollars\n")


def test_a_unit_that_nothing_has_is_reported_unless_it_is_well_known():
    with Profiler() as prof:
        dask.local.get_sync({("f", 0): (in_dollars,)}, ("f", 0))
    for unit in ("bytes", "count"):
        assert len(activities(prof.recording, unit=unit)) == 0
        assert activities(prof.recording, by="worker", unit=unit).columns[0] == "worker"
    assert totals(prof.recording, unit="dollars\n") == {"fees": 2.0}
    reported = (
        r"unit: expected one of 'seconds', 'bytes', 'count', 'dollars\\n', found 'second'; tasks "
        r"metered no other units$"
    )
    with pytest.raises(DiagnosticError, match=reported):
        activities(prof.recording, unit="second")


@pytest.mark.parametrize("functions", [5, "m", ["ok", "m"], [5], [[]]])
def test_functions_that_no_task_has_are_reported(functions):
    recording = recording_of([(1, 4, 5, "ok", ())], 2, 10)
    with pytest.raises(DiagnosticError, match=r"functions: expected .*, found "):
        activities(recording, functions=functions)
    with pytest.raises(DiagnosticError, match="there are no tasks"):
        activities(replace(recording, tasks=NO_ROWS), functions="m")
