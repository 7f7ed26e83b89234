"""An error of what samples a task: the result is what it would be, and a notice says it."""

import time

import dask
import dask.threaded
import pytest
from dask._task_spec import Task
from dask.callbacks import Callback

from dask_diag import Profiler, SamplingProfiler
from dask_diag.capture.computation import Computation
from dask_diag.capture.task import RemoteTask
from dask_diag.sampling import probes as probes_module
from dask_diag.sampling.probes import WorkerSampling, attach_probe
from dask_diag.sampling.sampler import running_tasks, sampler
from dask_diag.sampling.stacks import StackProbe
from dask_diag.sampling.waits import WaitProbe
from dask_diag.system.periodic import OwnThread


def fails(*args):
    raise OSError("no such thing")


def add(one, other):
    return one + other


def broken():
    raise KeyError("the user's own")


GRAPH = {"one": (add, 1, 2), "two": (add, "one", 3)}


@pytest.mark.parametrize("get", [dask.get, dask.threaded.get])
@pytest.mark.parametrize("probe", [StackProbe, WaitProbe])
def test_the_end_of_sampling_raises(get, probe, monkeypatch):
    monkeypatch.setattr(probe, "stop", fails)
    with Profiler(waits=True) as prof, SamplingProfiler() as sprof:
        assert tuple(get(GRAPH, ["one", "two"])) == (3, 6)
        with pytest.raises(KeyError, match="the user's own"):
            get({"broken": (broken,)}, "broken")
    assert [row["outcome"] for row in prof.recording.tasks.to_dicts()] == ["ok", "ok", "failed"]
    notices = [*prof.recording.notices, *sprof.recording.notices]
    assert any("OSError: no such thing" in notice for notice in notices), notices


def no_thread(self):
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("profile", [SamplingProfiler, lambda: Profiler(waits=True)])
def test_the_sampler_cannot_start(profile, monkeypatch):
    before = set(Callback.active)
    with monkeypatch.context() as patch:
        patch.setattr(OwnThread, "start", no_thread)
        with profile() as prof:
            assert tuple(dask.get(GRAPH, ["one", "two"])) == (3, 6)
        assert any("can't start new thread" in notice for notice in prof.recording.notices)
    assert set(Callback.active) == before
    assert sampler._users == []
    assert sampler._thread is None
    # The next one samples.
    with SamplingProfiler("1ms") as sprof:
        dask.get({"sleeps": (time.sleep, 0.1)}, "sleeps")
    assert sprof.recording.samples.count.sum() > 0


def sent_back(monkeypatch, where):
    """What a worker process sends of a task whose sampling fails there: result, and errors."""
    errors = []
    computation = Computation({})
    probe = StackProbe(0.01, 1.0)
    attach_probe(computation, probe, errors.append)
    wrapper = computation.new_wrapper()
    wrapper.key, wrapper.task = "three", Task("three", add, 1, 2)
    remote = RemoteTask(0.0, wrapper.task, computation.number, "three", computation.start_run)
    # A worker process's sampler goes on for a second; this process is no worker.
    monkeypatch.setattr(WorkerSampling, "go_on", lambda self, probes: None)
    monkeypatch.setattr(*where, fails)
    delivery = remote({})
    assert not running_tasks
    wrapper.transfer = None
    wrapper.receive(delivery.measurement)
    return delivery.result, errors


@pytest.mark.parametrize(
    "where",
    [(StackProbe, "stop"), (WorkerSampling, "go_on"), (probes_module, "RunningTask")],
    ids=["stop", "sampler", "run"],
)
def test_it_raises_in_a_worker_process(where, monkeypatch):
    result, errors = sent_back(monkeypatch, where)
    assert result == 3
    assert [str(error) for error in errors] == ["in a worker process, OSError: no such thing"]
