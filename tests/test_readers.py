"""Who reads from another thread, at whatever moment, sees all tasks, each once and whole."""

from __future__ import annotations

import threading
from operator import add, mul
from pathlib import Path

import dask.local
import dask.threaded
import pytest
from dask.callbacks import normalize_callback

from dask_diag import CacheProfiler, Profiler, ProgressBar, SamplingProfiler, context_meter
from dask_diag.capture.increments import TaskTables

from .interleaving import (
    PACKAGE,
    PATIENCE,
    HookedLock,
    Thread,
    at_each_line,
    at_every_line,
    await_event,
)


def hold(began, release):
    began.set()
    await_event(release)
    return 1


def fail(done, began):
    await_event(began)
    raise ZeroDivisionError


LOCKED = tuple(
    f"{file}:{function}"
    for file, functions in {
        "capture/log.py": ("extend", "close"),
        "sampling/call_tree.py": ("miss", "note_late", "snapshot"),
        "sampling/sampler.py": ("add", "remove"),
        "system/periodic.py": ("now", "run", "take_cpu_of_own_threads"),
    }.items()
    for function in functions
)
"""Functions that have a lock: another thread waits for them to end."""


def package_files(*names):
    return tuple(str(Path(PACKAGE) / name) for name in names)


READING = package_files(
    *("capture/computation", "capture/session", "capture/task.py", "capture/increments"),
    *("sampling/call_tree", "profilers/base", "profilers/cache", "profilers/engine"),
)
"""Files whose functions read what changes, and not only what they are given."""


CHANGING = package_files(
    *("capture/computation", "capture/session", "capture/task.py", "capture/log"),
    *("capture/results", "capture/metrics", "sampling/", "profilers/", "hooks/callbacks"),
)
"""Files whose functions change what others read: at the lines of other files it is as before."""


class Failing:
    """A computation of five tasks that fails while one of them runs.

    Three are done; the keys of two of them do not say their function.
    """

    held = {"a": "add", "b": "add", "('inc', 0)": "inc"}
    functions = {**held, "hold": "hold", "('fail', 0)": "fail"}

    def __init__(self):
        self.began, self.release = threading.Event(), threading.Event()

    def compute(self, **kwargs):
        graph = {
            "a": (add, 1, 2),
            "b": (add, "a", 2),
            ("inc", 0): (add, "b", 1),
            "hold": (hold, self.began, self.release),
            ("fail", 0): (fail, ("inc", 0), self.began),
        }
        try:
            with pytest.raises(ZeroDivisionError):
                dask.threaded.get(graph, ["hold", ("fail", 0)], num_workers=3, **kwargs)
        finally:
            self.release.set()


def functions_in(*tables):
    """The function of each key in tables put together; fails if a key is there twice."""
    tables = [table for table in tables if len(table)]
    keys = sum((table["key"].tolist() for table in tables), [])
    assert len(keys) == len(set(keys)), keys
    return dict(zip(keys, sum((t["function"].tolist() for t in tables), []), strict=True))


def functions_of(recording):
    return functions_in(recording.tasks)


@pytest.mark.once
@pytest.mark.parametrize("order", [1, -1], ids=["tasks first", "cache first"])
def test_who_reads_or_writes_at_any_line_of_the_end_sees_all_tasks(order):
    prof, cprof, sprof = Profiler(), CacheProfiler(), SamplingProfiler(interval=0.01)
    diagnostics = prof, cprof, sprof, ProgressBar(minimum=100)
    stream, reads = Stream(prof, cprof), []

    def read():
        reads.append(1)
        assert functions_of(prof.recording) == Failing.functions
        assert functions_in(cprof.recording.cached_results) == Failing.held
        assert stream.take() == (Failing.functions, Failing.held)
        assert "hold" in sprof.recording.samples["function"].tolist()
        assert len(prof.results) in (0, 3)
        assert len(cprof.results) in (0, 3)

    callbacks = [*map(normalize_callback, diagnostics)][::order]
    with at_every_line(read, inside="_finish", outside=LOCKED, files=CHANGING):
        Failing().compute(callbacks=callbacks)
    read()
    assert len(prof.results) == len(cprof.results) == 3
    assert {"add", "hold", "fail"} <= {*sprof.recording.samples["function"].tolist()}
    assert len(reads) > 50
    assert (sum(map(len, stream.tasks)), sum(map(len, stream.cache))) == (5, 3)
    # With the cost of the hooks of the profiler that ended last.
    assert repr(stream.computations) == repr(prof.recording.computations.to_dicts())
    for diagnostic in diagnostics:
        assert_no_fault(diagnostic)


def assert_no_fault(diagnostic):
    assert not [text for text in diagnostic.recording.notices if "failed" in text]


class Stream:
    """A recording that is written while computations run, as `record` does it; the parts so far."""

    def __init__(self, prof, cprof):
        self._source = TaskTables(prof.session, results=cprof)
        self.tasks, self.cache, self.computations = [], [], []

    def take(self):
        """Take what is new; all that is known now is of it and of what was taken before."""
        new, provisional = self._source.take()
        self.tasks += [table for table in (new["tasks"],) if len(table)]
        self.cache += [table for table in (new["cached_results"],) if len(table)]
        self.computations += new["computations"].to_dicts()
        return (
            functions_in(*self.tasks, provisional["tasks"]),
            functions_in(*self.cache, provisional["cached_results"]),
        )


@pytest.mark.once
def test_who_reads_at_any_line_of_a_computation_sees_all_tasks_that_were_submitted():
    """A task that was seen once is seen from then on, once, and no line raises."""
    diagnostics = prof, cprof, sprof = Profiler(), CacheProfiler(), SamplingProfiler(interval=0.01)
    functions = {"a": "add", "('inc', 0)": "inc", "c": "mul"}
    stream = Stream(prof, cprof)
    seen = {name: set() for name in ("tasks", "written", "in flight")}
    for diagnostic in diagnostics:
        diagnostic._lock = HookedLock(diagnostic._lock)

    def read():
        if any(diagnostic._lock.held for diagnostic in diagnostics):
            return
        recording = prof.recording
        for name, now in (("tasks", functions_of(recording)), ("written", stream.take()[0])):
            assert seen[name] <= now.keys(), name
            assert now.items() <= functions.items(), name
            seen[name] |= now.keys()
        assert_in_order(recording)
        unfinished = recording.tasks.filter(recording.tasks["outcome"].eq("unfinished"))
        seen["in flight"].update(unfinished["key"].tolist())
        functions_in(cprof.recording.cached_results)
        assert len(sprof.recording.computations) <= 1

    graph = {"a": (add, 1, 2), ("inc", 0): (add, "a", 1), "c": (mul, "a", 1)}
    with at_every_line(read, outside=LOCKED, files=CHANGING, times=3):
        dask.local.get_sync(
            graph, ["c", ("inc", 0)], callbacks=[*map(normalize_callback, diagnostics)]
        )
    read()
    assert seen == dict.fromkeys(seen, functions.keys())
    for diagnostic in diagnostics:
        assert_no_fault(diagnostic)


class EndsAtOnce:
    """A computation of two tasks, one of which runs until it is to end; then it has failed."""

    functions = {"a": "add", "hold": "hold"}

    def __init__(self, callbacks):
        self._began, self._release = threading.Event(), threading.Event()

        def hold(done):
            self._began.set()
            await_event(self._release)
            raise ZeroDivisionError

        graph = {"a": (add, 1, 2), "hold": (hold, "a")}
        self._thread = Thread(lambda: dask.local.get_sync(graph, "hold", callbacks=callbacks))
        await_event(self._began)

    def end(self):
        """It has ended on return."""
        self._release.set()
        with pytest.raises(ZeroDivisionError):
            self._thread.result()


@pytest.mark.once
@pytest.mark.parametrize("what", ["tasks", "stacks", "cache", "written", "results", "done"])
def test_a_computation_that_ends_at_any_line_of_a_read_is_read_whole(what):
    expected = {
        "tasks": (EndsAtOnce.functions,),
        "stacks": ({"add", "hold"},),
        "cache": (["add"],),
        "written": ((EndsAtOnce.functions, {"a": "add"}),),
        "results": (0, 1, 2),
        "done": ((1, 2),),
    }[what]

    def make():
        prof, cprof = Profiler(), CacheProfiler()
        sprof = SamplingProfiler() if what == "stacks" else None
        stream = Stream(prof, cprof)
        profilers = [profiler for profiler in (prof, cprof, sprof) if profiler is not None]
        computation = EndsAtOnce([*map(normalize_callback, profilers)])
        read = {
            "tasks": lambda: functions_of(prof.recording),
            "stacks": lambda: set(sprof.recording.samples["function"].tolist()) - {""},
            "cache": lambda: cprof.recording.cached_results["function"].tolist(),
            "written": stream.take,
            "results": lambda: len([*prof.results, *cprof.results]),
            "done": lambda: prof.session.computations[0].tasks_done(),
        }[what]

        def check(result):
            assert result in expected
            assert read() == expected[-1]

        return read, computation.end, check

    assert at_each_line(make, files=READING, outside=LOCKED) > 2


class Steps:
    """Tasks one after the other in one wrapper, each of which meters its number; two at a step."""

    def __init__(self, callbacks):
        self._arrived, self._go = threading.Semaphore(0), threading.Semaphore(0)

        def first(text, before=None):
            self._arrived.release()
            assert self._go.acquire(timeout=PATIENCE)
            context_meter.digest_metric("number", int(text), "count")
            return int(text)

        def second(text, before):
            return first(text)

        def third(text, before):
            return first(text)

        # Keys from which no function can be read; the number itself would be a key. After a step
        # the wrapper holds a task of another function.
        functions = (first, second, third)
        graph = {n: (functions[n % 3], str(n), *([n - 1] if n else [])) for n in range(10)}
        self._thread = Thread(lambda: dask.local.get_sync(graph, [9], callbacks=callbacks))
        self._await()
        self.step()

    def _await(self):
        assert self._arrived.acquire(timeout=PATIENCE)

    def step(self):
        """Two tasks are collected; the next one runs on return."""
        for _ in range(2):
            self._go.release()
            self._await()

    def end(self):
        for _ in range(10):
            self._go.release()
        self._thread.result()


def assert_in_order(recording):
    """That the times of each task are its own: they never go back, and the last are not known."""
    for row in recording.tasks.to_dicts():
        times = [row[name] for name in ("submitted", "start", "stop", "collected")]
        measured = [time for time in times if time == time]
        assert measured == times[: len(measured)] == sorted(measured)


def assert_metered(recording):
    keys = recording.tasks["key"].tolist()
    rows = recording.metrics.to_dicts() if len(recording.metrics) else []
    # A task may collect garbage as well.
    metrics = [row for row in rows if row["activity"] != "gc"]
    assert [keys[row["task"]] for row in metrics] == [str(int(row["value"])) for row in metrics]
    done = [row["key"] for row in recording.tasks.to_dicts() if row["outcome"] == "ok"]
    assert len(metrics) >= len(done)


@pytest.mark.once
@pytest.mark.parametrize("what", ["tasks", "cache", "written"])
def test_tasks_that_are_collected_at_any_line_of_a_read_are_read_once_and_as_they_are(what):
    names = ("first", "second", "third")

    def make():
        prof, cprof = Profiler(), CacheProfiler(metric=int)
        stream = Stream(prof, cprof)
        steps = Steps([*map(normalize_callback, (prof, cprof))])
        read = {
            "tasks": lambda: prof.recording,
            "cache": lambda: cprof.recording,
            "written": stream.take,
        }[what]

        def check(result):
            for result in (result, read()):
                functions = result
                if what == "tasks":
                    functions = [functions_of(result)]
                    assert_in_order(result)
                    assert_metered(result)
                    assert len(result.dependencies) >= len(result.tasks) - 2
                elif what == "cache":
                    table = result.cached_results
                    functions = [functions_in(table)]
                    assert table["metric"].tolist() == [*map(int, functions[0])]
                for part in functions:
                    # None is left out, and each has its own function.
                    assert part == {str(n): names[n % 3] for n in range(len(part))}
            steps.end()

        return read, steps.step, check

    assert at_each_line(make, files=READING, outside=LOCKED) > 20


@pytest.mark.once
def test_errors_of_a_metric_may_be_counted_while_they_are_read():
    def refuse(number):
        raise ValueError(str(number))

    def make():
        cprof = CacheProfiler(metric=refuse)
        steps = Steps([normalize_callback(cprof)])

        def check(recording):
            assert 1 <= len(recording.notices) <= 4
            steps.end()

        return lambda: cprof.recording, steps.step, check

    files = package_files("profilers/", "capture/results")
    assert at_each_line(make, files=files, outside=LOCKED) > 20
