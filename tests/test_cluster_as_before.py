"""Programs that use a cluster in every way that it offers: the same results, and nothing said."""

from __future__ import annotations

import threading
import time
import warnings

import dask
import numpy as np
import pytest

pytest.importorskip("distributed")

from distributed import Lock, Queue, Variable, fire_and_forget, get_client

from dask_diag import Profiler, record

from .clusters import Counter, cluster, what_is_there

pytestmark = [pytest.mark.once, pytest.mark.leaves_files]


@pytest.fixture(scope="module")
def client():
    with cluster(workers=2, threads=2) as made:
        yield made


def increment(x):
    return x + 1


def actors(client):
    counter = client.submit(Counter, actor=True, pure=False).result()
    return [counter.increment().result() for _ in range(3)]


def put(name, number):
    Queue(name).put(number)
    with Lock("one at a time"):
        return number


def queues_and_locks(client):
    queue = Queue("numbers", client=client)
    client.gather(client.map(put, ["numbers"] * 3, range(3), pure=False))
    return sorted(queue.get(timeout=10) for _ in range(3))


def variables(client):
    variable = Variable("answer", client=client)
    variable.set(client.submit(increment, 41, pure=False))
    return variable.get(timeout=10).result()


def annotated(client):
    first = next(iter(client.nthreads()))
    with dask.annotate(workers=[first], priority=3, retries=1):
        delayed = [dask.delayed(increment)(n) for n in range(4)]
    return dask.compute(*delayed, optimize_graph=False)


def scattered(client):
    data = client.scatter(np.arange(1000), broadcast=True)
    return client.gather(client.map(np.sum, [data] * 3, pure=False))


def gathered_later(client):
    total, ones = client.compute([dask.delayed(sum)([1, 2]), dask.delayed(increment)(0)])
    time.sleep(0.05)
    return client.gather([total, ones])


def a_mistake(client):
    future = client.submit(int, "x", pure=False)
    return type(future.exception()), str(future.exception())


class Mark:
    """Set by a task that no one waits for."""

    event = threading.Event()


def set_mark():
    Mark.event.set()


def no_one_waits(client):
    Mark.event.clear()
    fire_and_forget(client.submit(set_mark, pure=False))
    return Mark.event.wait(10)


def submits(n):
    client = get_client()
    return sum(client.gather(client.map(increment, range(n), pure=False)))


def tasks_of_tasks(client):
    return client.submit(submits, 5, pure=False).result()


def another_scheduler(client):
    with dask.config.set(scheduler="synchronous"):
        is_local = dask.delayed(threading.get_ident)().compute() == threading.get_ident()
    return is_local, dask.delayed(increment)(1).compute(scheduler="threads")


def in_a_thread(client):
    results = []

    def run():
        with client.as_current():
            results.append(client.submit(increment, 1, pure=False).result())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results


def shuffled(client):
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    frame = dd.from_pandas(pd.DataFrame({"a": np.arange(200) % 7, "b": range(200)}), npartitions=4)
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        return frame.shuffle("a").b.sum().compute(), frame.groupby("a").b.sum().compute().to_dict()


PROGRAMS = [
    *(actors, queues_and_locks, variables, annotated, scattered, gathered_later, a_mistake),
    *(no_one_waits, tasks_of_tasks, another_scheduler, in_a_thread, shuffled),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_does_what_it_does_without(program, client, tmp_path):
    """Recorded twice, one block in the other."""
    alone = program(client)
    before = what_is_there(client)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with record(tmp_path / "run.diag") as run, Profiler() as prof:
            recorded = program(client)
    assert recorded == alone
    assert what_is_there(client) == before
    assert run.recording.is_complete
    assert len(prof.recording.tasks) == len(run.recording.tasks) > 0
    assert program(client) == alone
