"""Each function of capture on a cluster raises once: results stay, and nothing is left behind."""

from __future__ import annotations

import inspect
import io
import pkgutil
import sys
import threading
import time
from functools import partial, wraps
from importlib import import_module
from types import ModuleType

import pytest

pytest.importorskip("distributed")

from distributed import Client, Reschedule, secede
from distributed.metrics import context_meter

import dask_diag.cluster
from dask_diag import Profiler, ProgressBar, load, record
from dask_diag.analysis.activities import seconds_by_activity
from dask_diag.cluster import clocks, session
from dask_diag.cluster.wire import NAME
from dask_diag.sampling.probes import RunningTask
from dask_diag.sampling.sampler import running_tasks
from dask_diag.sampling.stacks import RemoteStackTaskProbe, StackProbe
from dask_diag.sampling.waits import WaitTaskProbe
from dask_diag.sampling.walker import Walker

from .clusters import (
    Counter,
    assert_adds_up,
    cluster,
    thread_seconds,
    until,
    what_is_there,
    workers_of,
)
from .clusters import client as client
from .clusters import two_workers as two_workers
from .clusters import unshipped as unshipped
from .test_chunks import FUNCTION, ITEMS, Compressing

MODULES = tuple(
    import_module(f"{dask_diag.cluster.__name__}.{module.name}")
    for module in pkgutil.iter_modules(dask_diag.cluster.__path__)
    if "table" not in module.name
)
"""All of the package: a class that is new is in a program, or is named below with its reason."""


def names_of(text):
    return set(text.split())


CALL_THE_USERS_FUNCTION = {
    *("ClusterTask.__call__", "ClusterTask.steps"),
    *("ClusterTask.__repr__", "ClusterTask.__reduce__", "ClusterTask.dependencies"),
    "_Reader.__call__",
}
"""What raises there is what the user's function raises: there is nothing else in them."""
READ_BY_THE_USER = names_of("""
    ClusterLog.notices ClusterLog._notices_on_workers ClusterRecorder.__init__
    ClusterRecorder.logs ClusterRecorder.pull
""")
"""Called before the block or after it, where the user asks for what was recorded."""
GUARDS = {
    *("ClusterSession._finish", "ClusterSession._leave", "ClusterSession._twice"),
    *("ClusterTask._end",),
    *("DaskDiagSchedulerPlugin.stop", "WorkerSide.stop"),
    *("Record.__init__", "SessionRegistry.reporting"),
}
"""They have nothing around them but distributed, or the import: what they call may raise."""
NOT_REPORTED = names_of("""
    ClusterSession._pull_regularly WorkerMonitor.sample_regularly
    WorkerProcesses._send_regularly WorkerSide.flush WorkerSide.transition WorkerSide._send_due
    WorkerClock._ping WorkerClock.stop DaskDiagSchedulerPlugin.log_event RunCollector.transition
    DaskDiagSchedulerPlugin.update_graph WorkerMonitor.sample DaskDiagSchedulerPlugin.add_worker
    DaskDiagSchedulerPlugin.remove_worker DaskDiagSchedulerPlugin.remove_client
    DaskDiagSchedulerPlugin.remove_plugins_of_workers DaskDiagSchedulerPlugin.remove_plugins
    WorkerMonitor.add_samples ChunkTask.read ChunkTask._sizes_of ClusterSession.attach
""")
"""They report what fails in them, but not that they fail themselves, or do so as a block ends. A
chunk without what cannot be read of it has no notice. A session that could not begin to join does so
when the block waits for it."""
OTHER_PROGRAMS = {
    *("ClusterLog.clear", "ClusterSession.pull"),
    *("ClusterRecorder.join", "ClusterRecorder.joined", "ClusterRecorder.leave"),
    *("ClusterRecorder.finish", "DaskDiagSchedulerPlugin.restart"),
    *("RunCollector.add", "RunCollector.add_with_dependents", "RunCollector.record_for_others"),
    *("RunCollector.add_other", "RunCollector.is_executing", "RunCollector.at_worker"),
    *("RecordedWorker.add_readings", "RunCollector.restart"),
    *("SessionRegistry.of_blocks", "SessionRegistry.program_of"),
    *("ComputationTracker.parent_of", "DaskDiagSchedulerPlugin.before_close"),
    "DaskDiagSchedulerPlugin.close",
    "ClusterSession._begin_again",
    *("ComputationTracker.worker_has_client", "WorkerMonitor.spilled"),
    *("WorkerMonitor.changed_status", "SessionRegistry.fault"),
    *("SessionRegistry.fault_of_worker", "WorkerSide._fault"),
}
"""What is called in other programs than those of this file: faults, files, other clients."""
COMING_AND_GOING = {
    *("DaskDiagSchedulerPlugin.add_worker", "DaskDiagSchedulerPlugin.remove_worker"),
    *("DaskDiagSchedulerPlugin.remove_client", "ComputationTracker.count_progress"),
    "RecordedComputation.count_of",
    *("RunCollector.is_running", "ClusterTask.stacks_so_far", "ClusterTask.occupied_until"),
    *("WorkerMonitor.leave", "ComputationTracker.worker_joined"),
}
"""What is called when workers and clients come and go, while a task runs on."""
WITH_ANOTHER_HOST = {"DaskDiagSchedulerPlugin.handle_clock"}
"""What is called where the scheduler's clock is another one."""
CLOCKS_OF_WORKERS = {"WorkerClock._compare", "WorkerClock._ping"}
"""What is called where a worker's clock is another one than the scheduler's."""
EXCLUDED = CALL_THE_USERS_FUNCTION | READ_BY_THE_USER | GUARDS | OTHER_PROGRAMS


def functions_of(owner):
    for name, value in vars(owner).items():
        own = value.fget if isinstance(value, property) else value
        if inspect.isfunction(own) and own.__module__ == owner.__module__:
            yield owner, name


def all_functions():
    for module in MODULES:
        for owner in vars(module).values():
            if inspect.isclass(owner) and owner.__module__ == module.__name__:
                yield from functions_of(owner)


SAMPLING = [
    (RunningTask, "__init__"),
    (Walker, "stack_of"),
    (RemoteStackTaskProbe, "_see"),
    (WaitTaskProbe, "sample"),
]
FUNCTIONS = {
    f"{owner.__name__}.{name}": (owner, name)
    for owner, name in (*all_functions(), *SAMPLING)
    if f"{owner.__name__}.{name}" not in EXCLUDED
}


def raising_once(function, raised, text):
    def raise_once():
        if not raised:
            raised.append(text)
            raise RuntimeError(text)

    @wraps(function)
    def raises_once(*args, **kwargs):
        raise_once()
        return function(*args, **kwargs)

    @wraps(function)
    async def raises_once_later(*args, **kwargs):
        raise_once()
        return await function(*args, **kwargs)

    return raises_once_later if inspect.iscoroutinefunction(function) else raises_once


ATTEMPTS = {ZeroDivisionError: 0, Reschedule: 0}
CANCELLED, GO_ON = threading.Event(), threading.Event()


def increment(x):
    return x + 1


def once(error, result):
    ATTEMPTS[error] += 1
    if ATTEMPTS[error] % 2:
        raise error
    return result


def fails_once():
    return once(ZeroDivisionError, "tried again")


def asks_once():
    return once(Reschedule, "asked")


def fails():
    raise KeyError("for good")


async def awaits(x):
    return x


def is_sampled(run):
    """Whether a stack of a run was sampled."""
    task_probe = run.task_probes.get(StackProbe)
    return task_probe is not None and bool(task_probe.samples())


def meters(x):
    """Sleep until the stack was sampled; a sampler that fails is waited for 0.3 s at most."""
    run = running_tasks.get(threading.get_ident())
    deadline = time.monotonic() + 0.3
    with context_meter.meter("read"):
        time.sleep(0.02)
        while run and not is_sampled(run) and time.monotonic() < deadline:
            time.sleep(0.01)
    return x


def secedes(x):
    secede()
    return x


def waits():
    CANCELLED.set()
    GO_ON.wait(5)


def program(client):
    """Results that are known, of tasks of each kind."""
    first, second = (worker.address for worker in client.cluster.workers.values())
    numbers = client.map(increment, range(10), workers=[first], pure=False)
    total = client.submit(sum, numbers, workers=[second], pure=False)
    results = [total.result(10)]
    CANCELLED.clear()
    GO_ON.clear()
    cancelled = client.submit(waits, workers=[first], pure=False)
    assert CANCELLED.wait(5)
    never_ran = client.submit(increment, "never", workers=[first], pure=False)
    tasks = client.cluster.workers[0].state.tasks
    until(lambda: never_ran.key in tasks)
    never_ran.cancel()
    cancelled.cancel()
    until(lambda: never_ran.key not in tasks)
    GO_ON.set()
    client.submit(increment, "no worker has it", resources={"GPU": 1}, pure=False).cancel()
    failed = client.submit(fails, pure=False)
    others = [
        client.submit(fails_once, retries=1, pure=False),
        client.submit(asks_once, pure=False),
        client.submit(awaits, 7, pure=False),
        client.submit(meters, 8, pure=False),
        client.submit(secedes, 9, pure=False),
        client.submit(PROCESSOR, ITEMS[0], pure=False),
    ]
    results += [future.result(10) for future in others]
    counter = client.submit(Counter, actor=True, pure=False).result(10)
    results.append(counter.increment().result(10))
    return [*results, repr(failed.exception(10))]


PROCESSOR = Compressing(FUNCTION)
CHUNK = PROCESSOR(ITEMS[0])
EXPECTED = [55, "tried again", "asked", 7, 8, 9, CHUNK, 1, "KeyError('for good')"]


@pytest.fixture
def raising(monkeypatch, unshipped):
    """Have a function raise once: returns what it raised."""
    # Chunks are looked for where a module of that name is loaded, of which nothing is used.
    monkeypatch.setitem(sys.modules, "coffea", ModuleType("coffea"))

    def raise_in(qualified):
        owner, name = FUNCTIONS[qualified]
        original, raised = vars(owner)[name], []
        changed = raising_once(getattr(original, "fget", original), raised, f"into {qualified}")
        if isinstance(original, property):
            changed = property(changed, original.fset)
        monkeypatch.setattr(owner, name, changed)
        return raised

    return raise_in


def assert_said(run, path, raised, name):
    assert raised
    if name not in NOT_REPORTED:
        notices = (*run.recording.notices, *load(path).notices)
        assert [text for text in notices if raised[0] in text]


def test_each_function_is_in_one_program():
    names = {f"{owner.__name__}.{name}" for owner, name in all_functions()}
    assert names > EXCLUDED | COMING_AND_GOING | NOT_REPORTED


@pytest.mark.once
@pytest.mark.leaves_files
@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - COMING_AND_GOING))
def test_a_function_that_raises_once_changes_no_result(
    name, raising, client, tmp_path, monkeypatch
):
    if name in WITH_ANOTHER_HOST:
        monkeypatch.setattr(session, "host_id", lambda: "elsewhere")
    if name in CLOCKS_OF_WORKERS:
        monkeypatch.setattr(clocks, "host_id", lambda: "elsewhere")
        monkeypatch.setattr(clocks, "_SECONDS_TO_SECOND_READING", 0.01)
    before = what_is_there(client)
    raised = raising(name)
    with record(tmp_path / "run.diag", resource_interval=0.05) as run:
        assert program(client) == EXPECTED
    assert what_is_there(client) == before
    assert_said(run, tmp_path / "run.diag", raised, name)


@pytest.mark.once
@pytest.mark.leaves_files
@pytest.mark.parametrize("name", sorted(COMING_AND_GOING))
def test_nor_does_one_where_workers_and_clients_come_and_go(name, raising, tmp_path):
    CANCELLED.clear()
    GO_ON.clear()
    with cluster() as client:
        before = what_is_there(client)
        raised = raising(name)
        with (
            record(tmp_path / "run.diag", resource_interval=0.05) as run,
            ProgressBar(out=io.StringIO()),
        ):
            going = client.submit(waits)
            assert CANCELLED.wait(5)
            client.cluster.scale(3)
            client.wait_for_workers(3)
            assert client.gather(client.map(increment, range(10))) == list(range(1, 11))
            with Client(client.cluster, set_as_default=False) as other:
                assert other.submit(increment, 100).result() == 101
            idle = [w.address for w in client.cluster.workers.values() if not w.active_keys]
            client.retire_workers(idle[:1])
        GO_ON.set()
        going.result(5)
        after = what_is_there(client)
    for of_processes in ("plugins", "handlers"):
        for state in (before, after):
            state[of_processes] = set().union(*state[of_processes])
    assert after == before
    assert_said(run, tmp_path / "run.diag", raised, name)


def lose(send, loop, topic, messages):
    """Nothing arrives."""


def double(send, loop, topic, messages):
    """All of it arrives twice, the second time when the task may run again."""
    send(topic, messages)
    loop.call_later(0.01, send, topic, messages)


def reorder(send, loop, topic, messages):
    """It arrives backwards, and after what was sent later."""
    loop.call_later(0.01, send, topic, messages[::-1])


@pytest.mark.leaves_files
@pytest.mark.parametrize("mangle", [lose, double, reorder])
def test_messages_that_are_lost_doubled_or_reordered_change_no_result(mangle, client, monkeypatch):
    for worker in client.cluster.workers.values():
        send, loop = worker.log_event, worker.loop.asyncio_loop
        monkeypatch.setattr(worker, "log_event", partial(mangle, send, loop))
    before = what_is_there(client)
    with Profiler() as prof:
        assert program(client) == EXPECTED
        time.sleep(0.05)
    assert what_is_there(client) == before
    # Of a cluster that was not joined there are no rows either.
    assert not [text for text in prof.recording.notices if "a cluster" in text]
    tasks = prof.recording.tasks.to_dicts()
    attempts = {(row["key"], row["attempt"]) for row in tasks}
    assert len(attempts) == len(tasks)
    outcomes = {name: [] for name in ("increment", "sum", "fails", "fails_once", "asks_once")}
    for row in sorted(tasks, key=lambda row: row["attempt"]):
        outcomes.setdefault(row["function"], []).append(row["outcome"])
    assert outcomes["increment"].count("ok") == 10
    assert outcomes["sum"] == ["ok"]
    assert outcomes["fails"] == ["failed"]
    # Of a run that brought no result, how it ended is in a message only.
    unknown = "cancelled" if mangle is lose else None
    assert outcomes["fails_once"] == [unknown or "failed", "ok"]
    assert outcomes["asks_once"] == [unknown or "rescheduled", "ok"]


@pytest.mark.parametrize("operation", ["detach", "left"])
def test_a_reply_to_leaving_that_is_lost_loses_nothing(operation, client, monkeypatch):
    """The scheduler has done what it was asked for, and its client does not hear of it."""
    lost = []
    name = f"dask_diag_{operation}"
    ask = type(client.scheduler).__getattr__

    def getattr_of_rpc(rpc, key):
        request = ask(rpc, key)
        if key != name or lost:
            return request

        async def reply_is_lost(**kwargs):
            lost.append(await request(**kwargs))
            raise OSError("the reply was lost")

        return reply_is_lost

    monkeypatch.setattr(type(client.scheduler), "__getattr__", getattr_of_rpc)
    before = what_is_there(client)
    with Profiler() as prof:
        assert client.gather(client.map(increment, range(50), pure=False)) == list(range(1, 51))
        going = client.submit(time.sleep, 1.0, pure=False)
        until(lambda: any(going.key in worker.state.tasks for worker in workers_of(client)))
    assert len(lost) == 1
    assert what_is_there(client) == before
    outcomes = prof.recording.tasks.outcome.tolist()
    assert sorted(outcomes) == ["ok"] * 50 + ["unfinished"]
    assert any("the reply was lost" in text for text in prof.recording.notices)
    assert_adds_up(prof.recording)


def test_a_failure_that_is_heard_of_twice_is_not_the_next_attempts(client, monkeypatch):
    """Its second report comes while the next attempt runs."""
    (worker, _) = client.cluster.workers.values()
    send, sent = worker.log_event, []

    def note(topic, messages):
        sent.extend((topic, [message]) for message in messages if message[0] == "RunEnded")
        send(topic, messages)

    monkeypatch.setattr(worker, "log_event", note)
    RUNS.clear()
    GO_ON.clear()
    CANCELLED.clear()
    with Profiler() as prof:
        future = client.submit(fails_then_waits, retries=1, workers=[worker.address], pure=False)
        assert CANCELLED.wait(10)
        client.sync(send_all, send, sent)
        time.sleep(0.05)
        GO_ON.set()
        assert future.result(10) == "waited"
    rows = [(row["attempt"], row["outcome"]) for row in prof.recording.tasks.to_dicts()]
    assert rows == [(1, "failed"), (2, "ok")]


RUNS = []


def fails_then_waits():
    RUNS.append(1)
    if len(RUNS) == 1:
        raise ZeroDivisionError
    CANCELLED.set()
    GO_ON.wait(10)
    return "waited"


async def send_all(send, sent):
    for topic, messages in sent:
        send(topic, messages)


def test_one_key_that_is_cancelled_and_submitted_again_and_again(client):
    """Each run has one row, the last one has its result, and nothing stays."""
    before = what_is_there(client)
    rounds = 30
    with Profiler() as prof:
        for number in range(rounds):
            future = client.submit(time.sleep, 0.002 * (number % 3), key="again")
            time.sleep(0.001 * (number % 4))
            future.cancel()
            del future
        # The scheduler's word that it is cancelled may come when the client has it again: it has
        # come before the result of what was submitted after.
        client.submit(increment, 1, pure=False).result(10)
        future = client.submit(time.sleep, 0.001, key="again")
        assert future.result(10) is None
        plugin = client.cluster.scheduler.plugins[NAME]
        del future
        until(lambda: not client.cluster.scheduler.tasks)
        client.submit(increment, 1, pure=False).result()
        assert len(plugin.runs.orphans) <= rounds
    assert not plugin.runs.orphans
    assert what_is_there(client) == before
    rows = [row for row in prof.recording.tasks.to_dicts() if row["key"] == "again"]
    outcomes = [row["outcome"] for row in rows]
    assert set(outcomes) <= {"ok", "cancelled"}
    assert "ok" in outcomes
    # A run that the scheduler has sent has one row; it may send one again whose run was cancelled.
    assert len({(row["computation"], row["attempt"]) for row in rows}) == len(rows) >= rounds // 2
    started = sorted((row["start"], row["stop"]) for row in rows if row["stop"] == row["stop"])
    assert len(set(started)) == len(started)
    assert all(row["submitted"] <= row["start"] for row in rows if row["start"] == row["start"])
    assert_adds_up(prof.recording)


def left_on_a_worker(dask_worker):
    """What capture has in a worker's process, by kind."""
    loaded = sys.modules.get("dask_diag.capture.metrics")
    return [
        *(name for name in (*dask_worker.plugins, *dask_worker.handlers) if NAME in name),
        *(thread.name for thread in threading.enumerate() if NAME in thread.name),
        *(ts.key for ts in dask_worker.state.tasks.values() if ts.metadata),
        *getattr(loaded, "listening", ()),
        *getattr(loaded, "hearing", ()),
    ]


def hide_the_package(dask_worker):
    for name in [name for name in sys.modules if name.split(".")[0] == NAME]:
        del sys.modules[name]
    sys.modules[NAME] = None


def have_another_version():
    sys.modules["dask_diag._version"].__version__ = "0.0"


@pytest.mark.leaves_files
def test_workers_of_which_one_lacks_the_package_and_one_has_another_version(tmp_path):
    """Each in a process of its own; the third measures, and nothing stays on any of them."""
    with cluster(3, processes=True) as client:
        without, other, measuring = client.nthreads()
        client.run(import_module, "dask_diag._version")
        client.run(hide_the_package, workers=[without])
        client.run(have_another_version, workers=[other])
        with record(tmp_path / "run.diag", resource_interval=0.05) as run:
            for worker in (without, other, measuring):
                numbers = client.map(abs, range(-5, 0), workers=[worker], pure=False)
                assert client.gather(numbers) == [5, 4, 3, 2, 1]
        futures = client.map(abs, range(-5, 0), pure=False)
        assert client.gather(futures) == [5, 4, 3, 2, 1]
        assert list(client.run(left_on_a_worker).values()) == [[]] * 3
    recording = run.recording
    workers = {row["address"]: row for row in recording.workers.to_dicts()}
    measured = [workers[address]["measured"] for address in (without, other, measuring)]
    assert measured == [0, 0, 1]
    assert workers[other]["version"] == "0.0"
    assert [
        text
        for text in recording.notices
        if "dask_diag cannot be imported there (ModuleNotFound" in text
    ]
    assert [text for text in recording.notices if "dask_diag 0.0 is installed there" in text]
    rows = recording.tasks.to_dicts()
    assert [row["outcome"] for row in rows] == ["ok"] * 15
    assert sum(row["thread_cpu"] == row["thread_cpu"] for row in rows) == 5
    assert all(row["submitted"] <= row["start"] <= row["stop"] for row in rows)
    # Distributed's own times overlap by some microseconds: more threads than there are may be busy.
    surplus = sum(seconds_by_activity(recording).values()) - thread_seconds(recording)
    assert -1e-9 < surplus < 0.01
