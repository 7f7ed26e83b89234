"""Clusters that lose workers, hooks that raise: results stay, rows are true."""

from __future__ import annotations

import ast
import asyncio
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import dask
import dask.config
import pytest

pytest.importorskip("distributed")

from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import WorkerPlugin

from dask_diag import (
    CacheProfiler,
    MemorySampler,
    Profiler,
    ProgressBar,
    ResourceProfiler,
    SamplingProfiler,
    load,
)
from dask_diag.capture.metrics import listening
from dask_diag.cluster import plugin as plugin_module
from dask_diag.cluster import session
from dask_diag.cluster import worker as worker_module
from dask_diag.cluster.shipping import BOOTSTRAP, Shipped, source_of_scheduler_plugin
from dask_diag.cluster.wire import NAME, Fault
from dask_diag.system.code import parsed

from .clusters import Counter, assert_adds_up, cluster, rows, spin


def increment(x):
    return x + 1


def test_what_is_shipped_to_a_scheduler_needs_nothing_of_the_package():
    code = """
import pickle, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        assert not name.startswith("dask_diag"), name
sys.meta_path.insert(0, Missing())
plugin = pickle.loads(sys.stdin.buffer.read())
print(type(plugin).__name__)
"""
    shipped = pickle.dumps(Shipped(source_of_scheduler_plugin(), "DaskDiagSchedulerPlugin"))
    done = subprocess.run([sys.executable, "-c", code], input=shipped, capture_output=True)
    assert done.stdout.decode() == "DaskDiagSchedulerPlugin\n", done.stderr.decode()


class Parses:
    """In a circle: when it is collected it parses code, as a traceback that is logged does."""

    def __init__(self):
        self.own = self

    def __del__(self):
        ast.parse("a + b")


@pytest.fixture
def parsing_while_parsing():
    """Up to Python 3.11.7 the outer parser fails: its depth is that of the inner one."""

    def attempts():
        for threshold in range(20, 220, 5):
            garbage = [Parses() for _ in range(3)]
            del garbage
            gc.set_threshold(threshold)
            yield

    before = gc.get_threshold()
    yield attempts()
    gc.set_threshold(*before)


def test_what_is_shipped_is_made_also_if_what_is_collected_meanwhile_parses(parsing_while_parsing):
    expected = source_of_scheduler_plugin()
    for _ in parsing_while_parsing:
        source_of_scheduler_plugin.cache_clear()
        assert source_of_scheduler_plugin() == expected


def test_code_is_parsed_also_if_what_is_collected_meanwhile_parses(parsing_while_parsing):
    code = "\n".join(f"def f{n}(a, b):\n    return [a + b, {{a: b}}, {n}]" for n in range(30))
    expected = ast.dump(parsed(code))
    for _ in parsing_while_parsing:
        assert ast.dump(parsed(code)) == expected
    for no_code in ("1 +", "\0", "(" * 1000):
        assert parsed(no_code) is None


def kill_once(path):
    """End the worker's process, the first time."""
    if not os.path.exists(path):
        open(path, "w").close()
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    return True


def test_a_worker_that_is_killed_takes_no_row_with_it(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("killed") / "done")
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as local,
        Client(local) as client,
        Profiler() as prof,
    ):
        doomed, _ = client.nthreads()
        before = client.map(increment, range(100), workers=[doomed])
        client.gather(before)
        del before
        assert client.submit(kill_once, path, workers=[doomed], allow_other_workers=True).result()
        client.gather(client.map(increment, range(100, 200)))
    recording = prof.recording
    increments = [row for row in rows(recording, "increment") if row["outcome"] == "ok"]
    assert len(increments) == 200
    assert all(row["thread_cpu"] == row["thread_cpu"] for row in increments)
    killed, again = rows(recording, "kill_once")
    assert (killed["outcome"], killed["attempt"]) == ("unfinished", 1)
    assert (again["outcome"], again["attempt"]) == ("ok", 2)
    (lost,) = [row for row in recording.workers.to_dicts() if row["left"] == row["left"]]
    assert lost["address"] == doomed
    assert lost["reason"]
    assert_adds_up(recording)


def test_executors_of_processes_are_not_measured_and_go_on():
    with ProcessPoolExecutor(1) as pool, cluster(workers=1) as client, Profiler() as prof:
        client.cluster.workers[0].executors["pool"] = pool
        with dask.annotate(executor="pool"):
            assert client.submit(increment, 1).result() == 2
        assert client.submit(increment, 2).result() == 3
    by_key = {
        row["thread_cpu"] == row["thread_cpu"]: row for row in rows(prof.recording, "increment")
    }
    assert by_key.keys() == {True, False}
    notice = "1 task ran in an executor that is no pool of threads"
    assert [text for text in prof.recording.notices if notice in text]
    unmeasured = by_key[False]
    assert unmeasured["submitted"] <= unmeasured["start"] <= unmeasured["stop"]
    assert_adds_up(prof.recording)


def test_actors_are_as_they_were():
    with cluster() as client, Profiler() as prof:
        counter = client.submit(Counter, actor=True).result()
        assert [counter.increment().result() for _ in range(3)] == [1, 2, 3]
        del counter
    assert len(rows(prof.recording, "Counter")) == 1
    notice = "calls of the methods of 1 actor are not measured"
    assert [text for text in prof.recording.notices if notice in text]
    assert_adds_up(prof.recording)


def test_workers_without_this_version_are_named(monkeypatch):
    monkeypatch.setattr(session, "__version__", "0.0")
    with cluster() as client, Profiler() as prof:
        assert client.submit(increment, 1).result() == 2
    recording = prof.recording
    (row,) = rows(recording, "increment")
    assert row["thread_cpu"] != row["thread_cpu"]
    assert row["submitted"] <= row["start"] <= row["stop"] <= row["collected"]
    assert recording.workers.measured.tolist() == [0, 0]
    (notice,) = recording.notices
    assert notice.startswith("2 of 2 workers (hosts ")
    (line,) = [line for line in str(prof.summary()).splitlines() if "increment" in line]
    assert "unknown" in line
    assert_adds_up(recording)


def test_the_workers_plugin_does_without_the_package(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "dask_diag"]:
        monkeypatch.setitem(sys.modules, name, None)
    names = {"__name__": "bootstrap"}
    exec(BOOTSTRAP, names)
    reported = []

    class Scheduler:
        async def dask_diag_worker(self, address, facts):
            reported.append((address, facts))

    class Worker:
        address = "tcp://there"
        scheduler = Scheduler()

    plugin = names["DaskDiagWorkerPlugin"]("1.0")
    assert isinstance(plugin, WorkerPlugin)
    preloads = ["another", "dask_diag.cluster.preload"]
    with dask.config.set({"distributed.client.preload": preloads}):
        with pytest.raises(StopIteration):
            plugin.setup(Worker()).send(None)
        # A task's client would fail to import it.
        assert dask.config.get("distributed.client.preload") == ["another"]
    ((address, facts),) = reported
    assert address == "tcp://there"
    assert facts["measured"] == 0
    assert "has no dask_diag" in facts["reason"]


@pytest.mark.parametrize("other", ["code", "source"])
def test_what_is_shipped_is_compiled_where_python_is_another_one(other):
    """As bytecode for this version of Python, and as source for all others."""
    rebuild, (expression, names) = Shipped("shout = str.upper", "shout", "a").__reduce__()
    assert rebuild(expression, dict(names)) == "A"
    if other == "source":
        assert rebuild(expression, {**names, "magic": b"another", "code": b"no bytecode"}) == "A"
    else:
        assert rebuild(expression, {**names, "source": "no source :"}) == "A"


def test_metering_around_a_task_is_no_tasks():
    """A worker meters for itself around each task, at the end of a long stack."""
    from dask_diag.capture import metrics

    def around():
        return metrics._hear("executor", 1.0, "seconds")

    class Task:
        metered = None

        def __call__(self):
            return around()

    task = Task()
    metrics.runs_a_task.add(id(Task.__call__.__code__))
    metrics.listening.add(task)
    try:
        task()
        assert len(task.metered.metrics) == 1
        metrics.runs_around_tasks.add(id(around.__code__))
        task()
        assert len(task.metered.metrics) == 1
    finally:
        metrics.listening.discard(task)
        metrics.runs_a_task.discard(id(Task.__call__.__code__))
        metrics.runs_around_tasks.discard(id(around.__code__))


HOOKS = [
    (plugin_module.RunCollector, "send"),
    (plugin_module.RunCollector, "record"),
    (plugin_module.ComputationTracker, "of_client"),
    (worker_module.WorkerSide, "_wrap"),
    (worker_module.WorkerSide, "_unwrap"),
    (worker_module.WorkerSide, "_flies"),
]


@pytest.mark.parametrize(("owner", "name"), HOOKS, ids=[name for _, name in HOOKS])
def test_a_hook_that_raises_changes_no_result_and_is_reported(owner, name, monkeypatch):
    original = getattr(owner, name)
    raised = []

    def raises_once(self, *args, **kwargs):
        if not raised:
            raised.append(name)
            raise RuntimeError(f"injected into {name}")
        return original(self, *args, **kwargs)

    # What is shipped as source is another class than the one that is imported here.
    monkeypatch.setattr(owner, name, raises_once)
    monkeypatch.setattr(
        session,
        "source_of_scheduler_plugin",
        lambda: "from dask_diag.cluster.plugin import DaskDiagSchedulerPlugin",
    )
    with cluster() as client, Profiler() as prof:
        first, second = (worker.address for worker in client.cluster.workers.values())
        numbers = client.map(increment, range(10), workers=[first])
        total = client.submit(sum, numbers, workers=[second])
        assert total.result() == 55
        assert client.submit(increment, 100).result() == 101
    assert raised == [name]
    recording = prof.recording
    assert any(f"injected into {name}" in notice for notice in recording.notices)
    assert len(recording.tasks) >= 1


def sample_memory():
    return MemorySampler().sample(interval=0.1)


@pytest.mark.parametrize(
    "profiler",
    [Profiler, CacheProfiler, ProgressBar, ResourceProfiler, SamplingProfiler, sample_memory],
)
def test_nothing_is_left_after_the_block(profiler):
    before = dask.config.get("distributed.client.preload")
    threads = set(threading.enumerate())
    with cluster() as client:
        scheduler = client.cluster.scheduler
        workers = list(client.cluster.workers.values())
        client.submit(increment, 1).result()
        handlers = set(scheduler.handlers), [set(worker.handlers) for worker in workers]
        plugins = set(scheduler.plugins), [set(worker.plugins) for worker in workers]
        threads_before = set(threading.enumerate())
        with profiler():
            assert NAME in scheduler.plugins
            assert dask.config.get("distributed.client.preload") != before
            results = client.map(increment, range(10))
            client.gather(results)
        assert (set(scheduler.handlers), [set(w.handlers) for w in workers]) == handlers
        assert (set(scheduler.plugins), [set(w.plugins) for w in workers]) == plugins
        assert NAME not in scheduler.worker_plugins
        assert not [topic for topic in scheduler.get_events() if NAME in topic]
        assert not [t for t in set(threading.enumerate()) - threads_before if NAME in t.name]
        assert not [ts for ts in scheduler.tasks.values() if ts.metadata]
        # Their results are there.
        assert scheduler.tasks
        assert not [ts for w in workers for ts in w.state.tasks.values() if ts.metadata]
    assert dask.config.get("distributed.client.preload") == before
    assert not listening
    del threads


def test_the_configuration_is_as_it_was_without_distributed():
    code = (
        "import dask.config, copy; before = copy.deepcopy(dask.config.config); "
        "from dask_diag import Profiler\n"
        "before = copy.deepcopy(dask.config.config)\n"
        "with Profiler(): assert dask.config.config != before\n"
        "assert dask.config.config == before, dask.config.config"
    )
    hidden = os.path.join(os.path.dirname(__file__), "without_distributed")
    root = os.path.dirname(os.path.dirname(__file__))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([hidden, root])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=60)


def test_a_restarted_cluster_goes_on_being_recorded():
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as local,
        Client(local) as client,
        Profiler() as prof,
    ):
        client.submit(increment, 1).result()
        client.restart()
        client.submit(increment, 2).result()
    increments = rows(prof.recording, "increment")
    assert [row["outcome"] for row in increments] == ["ok", "ok"]
    assert all(row["thread_cpu"] == row["thread_cpu"] for row in increments)
    assert len(prof.recording.workers) == 2
    assert_adds_up(prof.recording)


def test_a_reply_that_is_lost_comes_again(monkeypatch):
    """The scheduler has what was not acknowledged: a lost reply is sent again, a double ignored."""
    lost = []
    original = session.ClusterSession.pull

    async def loses_the_first(self, wait):
        if not lost:
            lost.append(await self._scheduler.dask_diag_pull(session=self._id, received=0))
        else:
            await original(self, wait)
            await original(self, wait)

    monkeypatch.setattr(session.ClusterSession, "pull", loses_the_first)
    monkeypatch.setattr(session, "_SECONDS_BETWEEN_PULLS", 0.05)
    with cluster() as client, Profiler() as prof:
        for start in range(0, 100, 10):
            client.gather(client.map(increment, range(start, start + 10)))
            time.sleep(0.05)
    assert lost
    keys = prof.recording.tasks.key.tolist()
    assert len(keys) == len(set(keys)) == 100


def test_what_is_not_pulled_is_dropped_and_counted(monkeypatch):
    monkeypatch.setattr(plugin_module, "LIMIT_BYTES", 3_000)
    monkeypatch.setattr(
        session,
        "source_of_scheduler_plugin",
        lambda: "from dask_diag.cluster.plugin import DaskDiagSchedulerPlugin",
    )
    monkeypatch.setattr(session, "_SECONDS_BETWEEN_PULLS", 1000)
    with cluster() as client, Profiler() as prof:
        assert sum(client.gather(client.map(increment, range(100)))) == 5050
    recording = prof.recording
    missing = 100 - len(recording.tasks)
    assert missing > 50
    assert any(f"{missing:,} runs of tasks are missing" in notice for notice in recording.notices)


def test_a_spin_in_a_process_of_its_own():
    with Profiler() as prof:
        with Client(n_workers=1, threads_per_worker=2, dashboard_address=None) as client:
            client.submit(spin, 0.1).result()
    (row,) = rows(prof.recording, "spin")
    assert row["thread_cpu"] == pytest.approx(0.1, abs=0.02)
    assert row["pid"] not in (0, os.getpid())
    assert prof.recording.notices == ()
    assert_adds_up(prof.recording)


@pytest.mark.leaves_files
def test_dask_diag_run_records_the_cluster_that_a_script_starts():
    """On each supported version: where distributed cannot close its dashboard, it has none."""
    root = os.path.dirname(os.path.dirname(__file__))
    script = os.path.join(root, "examples", "cluster.py")
    command = [sys.executable, "-m", "dask_diag", "run", "--quiet", "-o", "run.diag", script]
    environ = {**os.environ, "PYTHONPATH": root}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environ}
    with (
        subprocess.Popen([sys.executable, script], **pipes) as plain,
        subprocess.Popen(command, **pipes) as recorded,
    ):
        (expected, plain_errors), (output, errors) = (
            process.communicate(timeout=120) for process in (plain, recorded)
        )
    assert plain.returncode == 0, plain_errors
    assert recorded.returncode == 0, errors
    assert output == expected
    assert "preload" not in errors
    recording = load("run.diag")
    assert recording.state == "complete"
    assert recording.tasks.outcome.tolist() == ["ok"] * 33
    assert len(recording.dependencies) == 32
    assert_adds_up(recording)


def raises(x):
    return raises_below(x)


def raises_below(x):
    raise ValueError(x)


async def raises_later(x):
    await asyncio.sleep(0)
    raises_below(x)


class NoAttributes(Exception):
    def __setattr__(self, name, value):
        raise TypeError(name)


def raises_what_cannot_be_changed(x):
    raise NoAttributes(x)


@pytest.mark.parametrize("function", [raises, raises_later, raises_what_cannot_be_changed])
@pytest.mark.parametrize("profiler", [Profiler, SamplingProfiler])
def test_the_traceback_of_a_task_has_the_users_frames_only(function, profiler):
    def traceback_of(client):
        future = client.submit(function, 1, pure=False)
        frames = [
            (frame.filename, frame.lineno, frame.name)
            for raised_at in (future.traceback(), future.exception().__traceback__)
            for frame in traceback.extract_tb(raised_at)
        ]
        return frames, repr(future.exception())

    with cluster(workers=1) as client:
        plain = traceback_of(client)
        with profiler():
            assert traceback_of(client) == plain
    assert function.__name__ in [name for _, _, name in plain[0]]


GO_ON = threading.Event()


def waits(n):
    GO_ON.wait(10)
    return n


def test_a_worker_that_does_not_answer_takes_nothing_of_the_others_with_it(monkeypatch):
    monkeypatch.setattr(plugin_module, "SECONDS_TO_FLUSH", 0.3)
    monkeypatch.setattr(
        session,
        "source_of_scheduler_plugin",
        lambda: "from dask_diag.cluster.plugin import DaskDiagSchedulerPlugin",
    )

    async def never(**kwargs):
        await asyncio.Event().wait()

    GO_ON.clear()
    with cluster() as client:
        silent, other = client.cluster.workers.values()
        with Profiler() as prof:
            silent.handlers[f"{NAME}_flush"] = never
            runs = client.submit(waits, 1, workers=[other.address])
            while not other.state.executing_count:
                time.sleep(0.01)
        GO_ON.set()
        assert runs.result() == 1
    recording = prof.recording
    (row,) = rows(recording, "waits")
    # When it started is what only its worker knows.
    assert (row["outcome"], row["start"] > row["submitted"]) == ("unfinished", True)
    assert any(f"no answer from {silent.address} in 0.3 s" in text for text in recording.notices)


def test_what_a_worker_has_to_say_after_the_block_is_not_said():
    """It would make the topic again that the scheduler has just removed."""
    with cluster() as client:
        scheduler, workers = client.cluster.scheduler, client.cluster.workers.values()
        with Profiler():
            client.submit(increment, 1).result()
            for worker in workers:
                plugin = worker.plugins[NAME]
                plugin.teardown = partial(end_late, plugin, plugin.teardown)
        assert NAME not in scheduler.get_events()


def end_late(plugin, teardown, worker):
    """Something happens just before the worker is asked to measure no more."""
    (side,) = [value for value in vars(plugin).values() if hasattr(value, "_messages")]
    side._messages.append(Fault("late"))
    return teardown(worker)
