"""Faults in the processes of workers: results stay, there are rows or a notice, nothing is left."""

from __future__ import annotations

import functools
import importlib
import time

import pytest

pytest.importorskip("distributed")

from distributed import Client, LocalCluster

from dask_diag import Profiler, SamplingProfiler, load, record

from .clusters import assert_adds_up, rows

CLUSTER = "dask_diag.cluster"
SAMPLING = "dask_diag.sampling"

STARTS = {
    f"{CLUSTER}.worker:WorkerSide.start": "notice",
    f"{CLUSTER}.worker:WorkerSide.change_settings": "notice",
    f"{CLUSTER}.worker:WorkerProbes.change": "notice",
    f"{SAMPLING}.probes:RunningTask.__init__": "notice",
}
STOPS = {
    f"{CLUSTER}.worker:WorkerProbes.stop": "rows",
    f"{CLUSTER}.worker:WorkerProcesses.flush": "notice",
    f"{CLUSTER}.task:ClusterTask.end_sampling": "notice",
}
SAMPLES = {
    f"{SAMPLING}.walker:Walker.stack_of": "notice",
    f"{SAMPLING}.stacks:RemoteStackTaskProbe._see": "notice",
    f"{SAMPLING}.waits:WaitTaskProbe.sample": "notice",
}
SENDS = {
    f"{CLUSTER}.task:ClusterTask.measurements": "notice",
    f"{CLUSTER}.worker:WorkerSide._log_run": "notice",
    f"{CLUSTER}.worker:WorkerSide._send": "notice",
    f"{CLUSTER}.worker:WorkerSide._log_running": "notice",
    f"{CLUSTER}.worker:WorkerSide.flush": "rows",
}
FAULTS = {**STARTS, **STOPS, **SAMPLES, **SENDS}
"""What raises once on each worker, and whether the user reads of it or loses nothing by it."""

_RAISED: list[str] = []
_UNDO: list[tuple[type, str, object]] = []
"""Of a worker's process."""


def inject(qualified_name):
    """Have a function of this process raise once."""
    module, _, qualified = qualified_name.partition(":")
    owner, name = qualified.split(".")
    owner = getattr(importlib.import_module(module), owner)
    original = vars(owner)[name]

    def raise_once():
        if not _RAISED:
            _RAISED.append(qualified_name)
            raise RuntimeError(f"into {qualified}")

    if importlib.import_module("inspect").iscoroutinefunction(original):

        @functools.wraps(original)
        async def raises(*args, **kwargs):
            raise_once()
            return await original(*args, **kwargs)

    else:

        @functools.wraps(original)
        def raises(*args, **kwargs):
            raise_once()
            return original(*args, **kwargs)

    _RAISED.clear()
    _UNDO.append((owner, name, original))
    setattr(owner, name, raises)


def restore():
    """Undo `inject`; what was raised."""
    while _UNDO:
        setattr(*_UNDO.pop())
    return list(_RAISED)


def what_is_there(dask_worker):
    """What dask_diag might leave in the process of a worker."""
    import threading

    import dask.config

    from dask_diag.capture import metrics
    from dask_diag.cluster.task import ClusterTask
    from dask_diag.sampling.sampler import running_tasks

    return {
        "plugins": sorted(dask_worker.plugins),
        "handlers": sorted(dask_worker.handlers),
        "tasks": [
            key
            for key, state in dask_worker.state.tasks.items()
            if state.metadata or isinstance(state.run_spec, ClusterTask)
        ],
        "running": len(running_tasks),
        "threads": [thread.name for thread in threading.enumerate() if "dask_diag" in thread.name],
        "listening": [len(metrics.listening), len(metrics.hearing)],
        "config": dask.config.get("distributed.client.preload"),
    }


def work(n):
    """Long enough to be sampled."""
    end = time.perf_counter() + 0.03
    while time.perf_counter() < end:
        pass
    return n + 1


def fails():
    raise KeyError("for good")


def program(client):
    # Asks the scheduler; `scheduler_info` may be without workers just after it was updated.
    addresses = list(client.nthreads())
    numbers = [client.submit(work, n, workers=[addresses[n % 2]], pure=False) for n in range(6)]
    total = client.submit(sum, numbers, pure=False)
    failed = client.submit(fails, pure=False)
    return total.result(20), repr(failed.exception(20))


EXPECTED = 21, "KeyError('for good')"


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as local,
        Client(local) as client,
    ):
        client.run(what_is_there)
        yield client


@pytest.mark.leaves_files
@pytest.mark.parametrize(
    "qualified_name", sorted(FAULTS), ids=lambda qualified_name: qualified_name.partition(":")[2]
)
def test_a_worker_process_in_which_a_function_raises_once(qualified_name, client, tmp_path):
    before = client.run(what_is_there)
    client.run(inject, qualified_name)
    try:
        with record(tmp_path / "run.diag", resource_interval=0.01) as run:
            assert program(client) == EXPECTED
    finally:
        raised = client.run(restore)
    assert client.run(what_is_there) == before
    assert any(raised.values())
    recording = run.recording
    texts = [*recording.notices, *load(tmp_path / "run.diag").notices]
    said = [text for text in texts if f"into {qualified_name.partition(':')[2]}" in text]
    assert said or FAULTS[qualified_name] == "rows", (texts, recording.workers.to_dicts())
    # Each task has its row; where its worker did not measure, with distributed's times.
    assert len(rows(recording, "work")) == 6
    assert len(rows(recording, "fails")) == 1
    unmeasured = {
        row["function"] for row in recording.tasks.to_dicts() if not row["thread_cpu"] > 0
    }
    assert not unmeasured or FAULTS[qualified_name] != "rows"
    if not unmeasured:
        # distributed's own times may overlap with others.
        assert_adds_up(recording)


def test_what_goes_on_after_a_fault_is_measured(client):
    """The next block begins with workers that have no trace of it."""
    with Profiler() as prof, SamplingProfiler(interval=0.01) as sprof:
        assert program(client) == EXPECTED
    measured = rows(prof.recording, "work")
    assert measured
    assert all(row["thread_cpu"] > 0 for row in measured)
    assert not prof.recording.notices
    assert {"work", "fails"} & set(sprof.tree(root="tasks")["name"].tolist())
