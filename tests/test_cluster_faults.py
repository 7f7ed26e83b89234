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
import time
import traceback
from concurrent.futures import ProcessPoolExecutor

import dask
import dask.config
import numpy as np
import pytest

pytest.importorskip("distributed")

from distributed import wait
from distributed.diagnostics.plugin import WorkerPlugin

from dask_diag import (
    CacheProfiler,
    MemorySampler,
    Profiler,
    ProgressBar,
    ResourceProfiler,
    SamplingProfiler,
    findings,
    load,
)
from dask_diag.cluster import plugin as plugin_module
from dask_diag.cluster import session
from dask_diag.cluster.shipping import BOOTSTRAP, Shipped, source_of_scheduler_plugin
from dask_diag.cluster.wire import NAME
from dask_diag.system.code import parsed

from .clusters import (
    GO_ON,
    STARTED,
    Counter,
    assert_adds_up,
    cluster,
    naps,
    rows,
    seconds_by_activity,
    thread_seconds,
    waits,
    what_is_there,
    workers_of,
)
from .clusters import client as client
from .clusters import events as events
from .clusters import two_workers as two_workers
from .clusters import unshipped as unshipped


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


def test_code_is_parsed_also_if_what_is_collected_meanwhile_parses(parsing_while_parsing):
    code = "\n".join(f"def f{n}(a, b):\n    return [a + b, {{a: b}}, {n}]" for n in range(30))
    expected, shipped = ast.dump(parsed(code)), source_of_scheduler_plugin()
    for _ in parsing_while_parsing:
        assert ast.dump(parsed(code)) == expected
        source_of_scheduler_plugin.cache_clear()
        assert source_of_scheduler_plugin() == shipped
    for no_code in ("1 +", "\0", "(" * 1000):
        assert parsed(no_code) is None


def kill_once(path):
    """End the worker's process, the first time."""
    if not os.path.exists(path):
        open(path, "w").close()
        time.sleep(1.3)
        os.kill(os.getpid(), signal.SIGKILL)
    return True


def test_a_worker_that_is_killed_takes_no_row_with_it(tmp_path_factory, monkeypatch):
    # On a busy machine, the workers' imports take longer than a program is to wait for them.
    monkeypatch.setattr(session, "_SECONDS_TO_REACH_WORKERS", 60.0)
    path = str(tmp_path_factory.mktemp("killed") / "done")
    with cluster(processes=True) as client, Profiler() as prof:
        doomed, other = client.nthreads()
        where = {"workers": [doomed], "allow_other_workers": True}
        client.gather(client.map(increment, range(100), workers=[doomed]))
        had = client.map(time.sleep, naps(0.1, 3), **where)
        wait(had)
        assert client.submit(kill_once, path, **where).result()
        # On a busy machine, the worker that takes its place may not measure yet.
        client.gather([*had, *client.map(increment, range(100, 200), workers=[other])])
    recording = prof.recording
    increments = [row for row in rows(recording, "increment") if row["outcome"] == "ok"]
    assert len(increments) == 200
    assert [row for row in increments if row["thread_cpu"] != row["thread_cpu"]] == []
    killed, again = rows(recording, "kill_once")
    assert (killed["outcome"], killed["attempt"]) == ("unfinished", 1)
    # Each half second a worker says what it runs.
    assert killed["start"] - killed["submitted"] == pytest.approx(0.0, abs=0.2)
    assert killed["stop"] != killed["stop"]
    assert (again["outcome"], again["attempt"]) == ("ok", 2)
    (lost,) = [row for row in recording.workers.to_dicts() if row["left"] == row["left"]]
    assert lost["address"] == doomed
    assert lost["reason"]
    # It ran for 1.3 s until it was killed, and results that no other worker had are made again.
    finding = {finding.code: finding for finding in findings(recording)}["worker-lost"]
    slept_again = [row for row in rows(recording, "sleep") if row["attempt"] > 1]
    seconds = sum(row["stop"] - row["start"] for row in slept_again)
    assert finding.numbers["cut_short"].value == 1
    assert finding.numbers["again"].value == len(slept_again)
    assert 1.3 + seconds <= finding.potential_saving * 2 <= 2.3 + seconds
    assert_adds_up(recording)


def test_a_task_with_which_workers_die_has_failed(tmp_path_factory):
    with cluster(1, processes=True) as client, Profiler() as prof:
        client.cluster.scheduler.allowed_failures = 0
        path = str(tmp_path_factory.mktemp("killed") / "done")
        future = client.submit(kill_once, path)
        wait(future)
    (row,) = rows(prof.recording, "kill_once")
    assert (row["outcome"], row["error"]) == ("failed", "KilledWorker")
    found = {finding.code: finding for finding in findings(prof.recording)}
    assert f"{future.key} of kill_once: KilledWorker" in found["failed-tasks"].evidence
    # Nobody is to run it in the client; and one cause is one finding.
    assert "recreate_error_locally" not in found["failed-tasks"].advice
    assert "worker-lost" not in found
    assert "1 task failed" in prof.recording.summary()


def test_calls_of_processes_and_actors_are_said_to_be_not_measured(client):
    with ProcessPoolExecutor(1) as pool, Profiler() as prof:
        worker = workers_of(client)[0]
        worker.executors["pool"] = pool
        with dask.annotate(executor="pool"):
            assert client.submit(increment, 1, workers=[worker.address]).result() == 2
        assert client.submit(increment, 2).result() == 3
        counter = client.submit(Counter, actor=True).result()
        assert [counter.increment().result() for _ in range(3)] == [1, 2, 3]
        del counter, worker.executors["pool"]
    increments = rows(prof.recording, "increment")
    by_cpu = {row["thread_cpu"] == row["thread_cpu"]: row for row in increments}
    assert by_cpu.keys() == {True, False}
    assert by_cpu[False]["submitted"] <= by_cpu[False]["start"] <= by_cpu[False]["stop"]
    assert len(rows(prof.recording, "Counter")) == 1
    text = " ".join(prof.recording.notices)
    assert "1 task ran in an executor that is not a thread pool" in text
    assert "method calls of 1 actor are not measured" in text
    assert_adds_up(prof.recording)


def test_workers_without_this_version_are_named(client, monkeypatch):
    monkeypatch.setattr(session, "__version__", "0.0")
    with Profiler() as prof:
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
    assert "cannot be imported there" in facts["reason"]


@pytest.mark.parametrize("other", ["code", "source"])
def test_what_is_shipped_is_compiled_where_python_is_another_one(other):
    """As bytecode for this version of Python, and as source for all others."""
    rebuild, (expression, names) = Shipped("shout = str.upper", "shout", "a").__reduce__()
    assert rebuild(expression, dict(names)) == "A"
    if other == "source":
        assert rebuild(expression, {**names, "magic": b"another", "code": b"no bytecode"}) == "A"
    else:
        assert rebuild(expression, {**names, "source": "no source :"}) == "A"


def sample_memory():
    return MemorySampler().sample(interval=0.1)


@pytest.mark.parametrize(
    "profiler",
    [Profiler, CacheProfiler, ProgressBar, ResourceProfiler, SamplingProfiler, sample_memory],
)
def test_nothing_is_left_after_the_block(profiler, client):
    result = client.submit(increment, 1)
    result.result()
    before = what_is_there(client)
    with profiler():
        client.gather(client.map(increment, range(10)))
        there = what_is_there(client)
        assert NAME in there["plugins"][0]
        assert there["config"] != before["config"]
    assert what_is_there(client) == before


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


def test_a_reply_that_is_lost_comes_again(client, monkeypatch):
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
    with Profiler() as prof:
        for start in range(0, 100, 10):
            client.gather(client.map(increment, range(start, start + 10)))
            time.sleep(0.05)
    assert lost
    keys = prof.recording.tasks.key.tolist()
    assert len(keys) == len(set(keys)) == 100


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
    if not np.isnan(recording.tasks.thread_cpu).any():
        assert_adds_up(recording)
    else:
        # Attempts that ran before their worker was prepared have the times that the scheduler was
        # told: late by as much as messages were, they may overlap other attempts.
        seconds = seconds_by_activity(recording)
        above = sum(seconds.values()) - thread_seconds(recording)
        assert -1e-9 < above < 1e-9 + seconds["other"]


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
def test_the_traceback_of_a_task_has_the_users_frames_only(function, profiler, client):
    def traceback_of(client):
        future = client.submit(function, 1, pure=False)
        frames = [
            (frame.filename, frame.lineno, frame.name)
            for raised_at in (future.traceback(), future.exception().__traceback__)
            for frame in traceback.extract_tb(raised_at)
        ]
        return frames, repr(future.exception())

    plain = traceback_of(client)
    with profiler():
        assert traceback_of(client) == plain
    assert function.__name__ in [name for _, _, name in plain[0]]


def test_a_worker_that_does_not_answer_takes_nothing_of_the_others_with_it(unshipped, monkeypatch):
    monkeypatch.setattr(plugin_module, "SECONDS_TO_FLUSH", 0.3)

    async def never(**kwargs):
        await asyncio.Event().wait()

    with cluster() as client:
        silent, other = client.cluster.workers.values()
        with Profiler() as prof:
            silent.handlers[f"{NAME}_flush"] = never
            runs = client.submit(waits, 1, workers=[other.address])
            assert STARTED.wait(10)
        GO_ON.set()
        assert runs.result() == 1
    recording = prof.recording
    (row,) = rows(recording, "waits")
    # When it started is what only its worker knows.
    assert (row["outcome"], row["start"] > row["submitted"]) == ("unfinished", True)
    assert any(f"no answer from {silent.address} in 0.3 s" in text for text in recording.notices)
