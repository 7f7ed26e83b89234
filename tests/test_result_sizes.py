"""The bytes of results: as large as they are, or not known; and nothing of the program changes."""

from __future__ import annotations

import gc
import random
import sys
import weakref
from contextlib import ExitStack
from decimal import Decimal
from operator import add
from threading import get_ident
from types import SimpleNamespace

import dask
import dask.array as da
import dask.local
import dask.threaded
import numpy as np
import pytest

from dask_diag import CacheProfiler, Profiler, load, record
from dask_diag.capture.results import UNKNOWN, ResultSizes
from dask_diag.profilers import record as record_module
from dask_diag.profilers.engine import Watch


def size_of(value):
    return ResultSizes()(value)


@pytest.mark.parametrize("value", [None, True, 7, 10**40, 0.5, 1j, "text", b"bytes", bytearray(9)])
def test_plain_values_are_as_large_as_the_interpreter_says(value):
    assert size_of(value) == sys.getsizeof(value)


def test_collections_are_as_large_as_they_and_all_that_is_in_them():
    means = {"n": np.ones(2), ("total", 7): np.ones(3), 5: "text"}
    plain = [means, "n", ("total", 7), "total", 7, 5, "text"]
    assert size_of(means) == sum(map(sys.getsizeof, plain)) + 8 * (2 + 3)
    outer = {"a": {"b": np.ones(4)}}
    assert size_of(outer) == sum(map(sys.getsizeof, [outer, "a", outer["a"], "b"])) + 8 * 4
    assert size_of([[[[means]]]]) is UNKNOWN
    assert size_of([[[[{}]]]]) == sum(map(sys.getsizeof, [[[[[{}]]]], [[[{}]]], [[{}]], [{}], {}]))
    block = np.ones(10_000)
    for collection in ((block, block), [block, block], {"a": block, "b": block}):
        assert 160_000 <= size_of(collection) - sys.getsizeof(collection) < 160_200
    assert size_of({"n": (block, {"total": [block]})}) >= 160_000
    assert size_of({1, 2, 3}) == sys.getsizeof({1, 2, 3}) + 3 * sys.getsizeof(1)
    named = np.linalg.qr(np.ones((30, 4)))
    assert size_of(named) == sys.getsizeof(named) + 30 * 4 * 8 + 4 * 4 * 8


def test_a_typetracer_has_no_bytes():
    """dask-awkward looks for the needed columns with arrays of no data, whose length is unknown."""
    for backend, nbytes, expected in (("typetracer", object(), 0), ("cpu", 48, 48)):
        layout = SimpleNamespace(backend=SimpleNamespace(name=backend))
        kind = type("Array", (), {"__module__": "awkward.highlevel", "layout": layout})
        kind.nbytes = nbytes
        assert size_of(kind()) == expected


def test_of_long_collections_some_items_are_measured_from_all_over_them():
    records = [{"name": "x" * (n % 7), "value": float(n)} for n in range(50_000)]
    true = sys.getsizeof(records) + sum(map(size_of, records))
    assert size_of(records) == pytest.approx(true, rel=0.05)
    assert size_of(np.array(records, object)) == pytest.approx(true, rel=0.05)
    half = [b""] * 5000 + [bytes(1000)] * 5000
    assert size_of(half) == pytest.approx(sum(map(sys.getsizeof, half)), rel=0.05)


class Own:
    pass


class Raising:
    @property
    def nbytes(self):
        raise RuntimeError


class NoNumber:
    nbytes = "many"


@pytest.mark.parametrize(
    "value",
    [
        *(Own(), Raising(), NoNumber(), Decimal(1), iter([1]), [[[[[[1]]]]]], [Own()]),
        *({"a": Own()}, da.ones(1000), np.array([Own()], object), len),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_says_nothing_is_not_known(value):
    sizes = ResultSizes()
    assert sizes(value) is UNKNOWN
    assert sizes.unknown == {type(value).__qualname__: 1}


def test_tables_have_the_bytes_of_their_columns():
    pandas = pytest.importorskip("pandas")
    numbers = pandas.DataFrame({"a": np.ones(1000), "b": np.arange(1000), "c": ["x"] * 1000})
    deep = numbers[["a", "b"]].memory_usage(deep=True, index=False).sum()
    assert size_of(numbers[["a", "b"]]) == pytest.approx(deep, abs=300)
    assert size_of(numbers["a"]) == pytest.approx(8000, abs=300)
    texts = numbers["c"].astype(object)
    assert size_of(texts) == pytest.approx(texts.memory_usage(deep=True), rel=0.05)
    grouped = numbers.set_index(["b", "c"])
    # Some versions of pandas make its hash table at once; we do not.
    made = "_engine" in vars(grouped.index).get("_cache", ())
    assert 8000 < size_of(grouped) < 50_000
    assert ("_engine" in vars(grouped.index).get("_cache", ())) == made
    assert size_of(pandas.Index(np.arange(100))) == 800


def test_the_program_is_as_before():
    """Its random numbers, and where its iterators are."""
    random.seed(1)
    np.random.seed(1)
    before, iterator = (random.getstate(), np.random.get_state()[1].tolist()), iter([1, 2, 3])
    for value in ([*range(1000)], {*range(1000)}, np.array(["x"] * 1000, object), "x", iterator):
        size_of(value)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    assert list(iterator) == [1, 2, 3]


def test_no_result_and_no_type_of_the_programs_is_retained():
    class Local:
        nbytes = 5

    def local(n, kind=Local):
        return kind()

    with CacheProfiler(ResultSizes()) as cprof:
        dask.local.get_sync({("a", 0): (local, 1), ("b", 0): (type, ("a", 0))}, ("b", 0))
    assert cprof.results[0].metric == 5
    kind = weakref.ref(Local)
    cprof.clear()
    del Local, local, cprof
    gc.collect()
    assert kind() is None


def chain(count):
    dsk = {("block", n): (np.ones, n) for n in range(count)}
    dsk |= {("double", n): (add, ("block", n), ("block", n)) for n in range(count)}
    dsk["total", 0] = (len, [("double", n) for n in range(count)])
    return dsk


def assert_sizes_are_right(tasks):
    expected = {"block": 8.0, "double": 8.0}
    for row in tasks.to_dicts():
        number = int(row["key"].rpartition(" ")[2][:-1])
        size = expected.get(row["function"])
        assert row["nbytes"] == (sys.getsizeof(1) if size is None else size * number), row


@pytest.mark.parametrize("get", [dask.local.get_sync, dask.threaded.get])
@pytest.mark.parametrize("first", ["tasks", "sizes"])
def test_sizes_are_those_of_the_tasks_whichever_profiler_is_called_first(get, first):
    prof, cprof = Profiler(), CacheProfiler(ResultSizes())
    order = (prof, cprof) if first == "tasks" else (cprof, prof)
    get(chain(200), ("total", 0), callbacks=[profiler._callback for profiler in order])
    assert_sizes_are_right(prof.recording.tasks)


def test_a_task_that_could_not_be_recorded_has_no_share_in_the_sizes_of_others(monkeypatch):
    prof, cprof = Profiler(), CacheProfiler(ResultSizes())
    posttask = Watch.posttask

    def failing(self, key, *args):
        if key != ("block", 3):
            posttask(self, key, *args)

    monkeypatch.setattr(Watch, "posttask", failing)
    for order in ((prof, cprof), (cprof, prof)):
        callbacks = [profiler._callback for profiler in order]
        dask.local.get_sync(chain(9), ("total", 0), callbacks=callbacks)
    tasks = prof.recording.tasks
    collected = ~np.isnan(tasks.collected)
    assert (~collected).sum() == 2
    assert_sizes_are_right(tasks.filter(collected))


@pytest.mark.parametrize(
    ("metrics", "known"),
    [
        ([CacheProfiler()], ()),
        ([CacheProfiler(lambda value: 5)], ()),
        ([CacheProfiler(lambda value: 7, unit="bytes")], (7,)),
        (
            [CacheProfiler(lambda value: 7, unit="bytes"), CacheProfiler(ResultSizes())],
            (7, sys.getsizeof(3)),
        ),
    ],
)
def test_any_metric_in_bytes_gives_sizes_and_a_failed_task_has_none(metrics, known):
    dsk = {("a", 0): (add, 1, 2), ("bad", 0): (lambda x: 1 / 0, ("a", 0))}
    with Profiler() as prof, ExitStack() as stack, pytest.raises(ZeroDivisionError):
        for metric in metrics:
            stack.enter_context(metric)
        dask.local.get_sync(dsk, ("bad", 0))
    sizes = {row["function"]: row["nbytes"] for row in prof.recording.tasks.to_dicts()}
    assert sizes["a"] in known if known else np.isnan(sizes["a"])
    assert np.isnan(sizes["bad"])


@pytest.mark.leaves_files
@pytest.mark.parametrize("scheduler", ["synchronous", "threads", "processes"])
def test_record_has_the_sizes_of_all_results(scheduler, tmp_path, monkeypatch):
    monkeypatch.setattr(record_module, "_PERIOD", 0.002)
    monkeypatch.setattr(record_module, "_SHORTEST_PAUSE", 0.001)
    get = dask.base.get_scheduler(scheduler=scheduler)
    with record(tmp_path / "run.diag", waits=False) as run:
        for _ in range(2):
            get(chain(100), ("total", 0), num_workers=2, optimize_graph=False)
    for recording in (run.recording, load(tmp_path / "run.diag")):
        assert len(recording.tasks) == 402
        assert_sizes_are_right(recording.tasks)
        assert not any("sizes" in notice for notice in recording.notices)
        assert (recording.metric, recording.metric_unit) == ("nbytes", "bytes")


@pytest.mark.leaves_files
def test_record_measures_a_result_on_the_thread_that_made_it(tmp_path, monkeypatch):
    measured_on = []
    size_of = ResultSizes.size_of

    def noted(self, result):
        if type(result) is int:
            measured_on.append(get_ident())
        return size_of(self, result)

    with record(tmp_path / "run.diag") as run:
        monkeypatch.setattr(ResultSizes, "size_of", noted)
        dask.threaded.get({("f", n): (get_ident,) for n in range(9)}, [("f", n) for n in range(9)])
        monkeypatch.undo()
    threads = run.recording.tasks["thread"].tolist()
    assert sorted(measured_on) == sorted(threads)
    assert get_ident() not in measured_on


@pytest.mark.leaves_files
def test_two_that_record_at_once_have_all_sizes_and_say_what_is_not_known(tmp_path):
    dsk = {("own", n): (Own,) for n in range(3)} | {("one", n): (abs, n) for n in range(3)}
    with (
        record(tmp_path / "outer.diag") as outer,
        record(tmp_path / "inner.diag") as inner,
        CacheProfiler(ResultSizes()) as cprof,
    ):
        dask.threaded.get(dsk, list(dsk))
    assert sum(np.isnan([result.metric for result in cprof.results])) == 3
    for recording in (outer.recording, inner.recording, cprof.recording):
        sizes = recording.cached_results["metric"]
        assert (len(sizes), np.isnan(sizes).sum()) == (6, 3)
        text = "sizes are unknown for 3 of 6 results (50%), of type Own"
        assert text in "".join(recording.notices)
    assert np.isnan(outer.recording.tasks.nbytes).sum() == 3


@pytest.mark.leaves_files
def test_a_task_that_failed_and_is_run_again_has_not_the_size_of_another(tmp_path):
    failures = iter([True, False])

    def flaky(before):
        if next(failures):
            raise ValueError

    # One after the other in one wrapper. What dask caches of the second is its exception.
    dsk = {("large", 0): (np.zeros, 1000), ("flaky", 0): (flaky, ("large", 0))}
    with record(tmp_path / "run.diag") as run:
        dask.threaded.get(dsk, ("flaky", 0), num_workers=1, rerun_exceptions_locally=True)
    sizes = {row["key"]: row["nbytes"] for row in run.recording.tasks.to_dicts()}
    assert sizes["('large', 0)"] == 8000
    assert np.isnan(sizes["('flaky', 0)"])
