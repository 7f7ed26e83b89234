"""The capture of lines changes no result, no name and no function of dask for good."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import threading
import traceback
import weakref
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from types import SimpleNamespace

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.highlevelgraph import HighLevelGraph

import dask_diag
from dask_diag import Profiler, load, record
from dask_diag.capture.lines.names import Now
from dask_diag.hooks import lines
from tests.clusters import cluster, until


def _functions():
    """Functions of all loaded modules and classes of dask, by their owner and name."""
    owners = [
        module
        for name, module in sys.modules.items()
        if name.partition(".")[0] in ("dask", "distributed")
    ]
    owners += {
        id(value): value
        for module in owners
        for value in vars(module).values()
        if isinstance(value, type)
    }.values()
    return {
        (repr(owner), name): value
        for owner in owners
        for name, value in list(vars(owner).items())
        if callable(value) or isinstance(value, (classmethod, staticmethod, property))
    }


def _replaced(before):
    """Names of the functions that are others than before."""
    now = _functions()
    return [name for name, value in before.items() if now.get(name) is not value]


def _texts(recording):
    return {text.strip() for text in recording.lines.text.tolist()}


def _how(recording):
    return set(recording.steps.how.tolist())


def _fail(block):
    raise ArithmeticError("no")


def _add_one(block):
    return block + 1


def test_dask_is_as_before_afterwards_and_after_errors():
    before = _functions()
    with pytest.raises(ArithmeticError), Profiler():
        assert len(_replaced(before)) > 10
        with Profiler():
            da.ones(4, chunks=2).map_blocks(_fail, dtype=float).compute(scheduler="synchronous")
    assert _replaced(before) == []
    assert Now.capture is None


def test_another_tools_replacement_stays_and_is_heard_once():
    dasks = vars(HighLevelGraph)["from_collections"]
    heard = []

    def make(below):
        def from_collections(cls, *args, **kwargs):
            heard.append(1)
            return below(*args, **kwargs)

        return classmethod(from_collections)

    with Profiler():
        HighLevelGraph.from_collections = make(HighLevelGraph.from_collections)
    try:
        assert vars(HighLevelGraph)["from_collections"] is not dasks
        da.ones(4, chunks=2).sum().compute(scheduler="synchronous")
        without_profiler = len(heard)
        with Profiler() as again:
            assert vars(HighLevelGraph)["from_collections"].__func__ is not dasks.__func__
            total = da.ones(4, chunks=2).sum()
            total.compute(scheduler="synchronous")
        assert len(heard) == 2 * without_profiler > 0
        assert "total = da.ones(4, chunks=2).sum()" in _texts(again.recording)
    finally:
        HighLevelGraph.from_collections = dasks
    with Profiler() as last:
        (da.ones(4, chunks=2) * 3).compute(scheduler="synchronous")
    assert vars(HighLevelGraph)["from_collections"] is dasks
    assert _how(last.recording) == {"name"}


def _names():
    x = (da.ones((4, 4), chunks=2) + 1).rechunk(4).map_blocks(_add_one)
    bag = db.from_sequence(range(4), npartitions=2).map(abs)
    value = dask.delayed(abs, pure=True)(-1)
    frame = dd.from_pandas(pd.DataFrame({"x": range(4)}), npartitions=2)
    total = frame.x.sum()
    made = [x.name, bag.name, value.key, value.real.key, frame._name, total._name]
    made += [total.optimize()._name, dask.base.tokenize(x, bag, frame)]
    return [*made, *map(pickle.dumps, (x, bag, value))]


def test_names_tokens_and_pickles_are_those_without_capture():
    plain = _names()
    with Profiler():
        captured = _names()
    assert captured[:-3] == plain[:-3]
    for pickled in captured[-3:]:
        assert b"dask_diag" not in pickled


def test_nothing_of_the_program_is_kept_alive():
    class Held:
        pass

    def build():
        held = Held()
        x = da.from_array(np.ones(4), chunks=2)
        x.held = weakref.ref(held)
        x.map_blocks(_add_one).map_blocks(_add_one).sum().compute(scheduler="synchronous")
        return x.held, weakref.ref(x)

    with Profiler() as profiler:
        references = build()
        gc.collect()
        assert [reference() for reference in references] == [None, None]
    assert profiler.recording.steps.timed.max() > 0


def test_a_step_that_fails_has_the_traceback_that_it_has_without_profilers():
    x = da.ones(4, chunks=2).map_blocks(_add_one).map_blocks(_fail, dtype=float).sum()
    stacks = []
    for block in (Profiler(), None):
        with pytest.raises(ArithmeticError) as caught, dask.config.set(scheduler="synchronous"):
            if block is None:
                x.compute()
            else:
                with block:
                    x.compute()
        frames = traceback.extract_tb(caught.value.__traceback__)
        stacks.append([frame.name for frame in frames][2:])
    assert stacks[0][-8:] == stacks[1][-8:]
    assert not [name for name in stacks[0] if "timed" in name.lower()]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("scheduler", ["synchronous", "threads", "processes"])
def test_the_exception_of_a_failing_task_names_its_line_where_a_setting_says_so(scheduler, asked):
    pool = ProcessPoolExecutor(1, mp_context=get_context("fork"))
    with (
        pool,
        dask.config.set({"scheduler": scheduler, "diag.lines.notes": asked}),
        dask.config.set(pool=pool) if scheduler == "processes" else nullcontext(),
        Profiler() as profiler,
        pytest.raises(ArithmeticError, match=r"^no") as caught,
    ):
        added = da.ones(4, chunks=2).map_blocks(_add_one)
        failing = added.map_blocks(_fail, dtype=float)
        (failing + 1).map_blocks(_add_one).sum().compute()
    (note,) = getattr(caught.value, "__notes__", []) if asked else ("",)
    assert ("failing = added.map_blocks(_fail, dtype=float)" in note) == asked
    # Which step of a fused task failed is not known of another process.
    is_one = "This line built" in note and "added = da.ones" not in note
    assert is_one == (asked and scheduler != "processes")
    assert not hasattr(caught.value, "__notes__") or asked
    assert profiler.notices() == []


def test_a_dask_without_one_of_the_functions_is_recorded_without_lines(monkeypatch):
    monkeypatch.setattr(
        lines, "_REPLACED", [*lines._REPLACED, lines._Replaced("dask.core", "gone", lambda f: f)]
    )
    with Profiler() as profiler:
        da.ones(4, chunks=2).sum().compute(scheduler="synchronous")
    recording = profiler.recording
    assert len(recording.tasks)
    assert not len(recording.lines)
    assert set(recording.tasks.group.tolist()) == {-1}
    assert [notice for notice in profiler.notices() if "dask.core.gone" in notice]


def test_collections_that_are_imported_meanwhile_have_lines():
    program = """
import dask, dask.bag
from dask.base import DaskMethodsMixin
from dask_diag import Profiler
if __name__ == "__main__":
    with Profiler() as profiler:
        bag = dask.bag.from_sequence([{"x": 1}, {"x": 2}], npartitions=2)
        frame = bag.to_dataframe(meta={"x": int})
        total = frame.x.sum()
        total.compute(scheduler="synchronous")
    recording = profiler.recording
    print(set(recording.steps.how.tolist()))
    print(set(recording.lines.file.tolist()), 9 in recording.lines.line.tolist())
    print("__init_subclass__" in vars(DaskMethodsMixin), profiler.notices())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    printed = done.stdout.splitlines()
    assert printed == ["{'name'}", "{'<string>'} True", "False []"], done.stderr


def test_what_was_built_before_is_not_guessed():
    x, value = da.ones(4, chunks=2).sum(), dask.delayed(abs)(-1)
    frame = dd.from_pandas(pd.DataFrame({"x": range(4)}), npartitions=2).x.sum()
    for before in (x, value, frame):
        with Profiler() as profiler:
            before.compute(scheduler="synchronous")
        recording = profiler.recording
        assert "built before" in _how(recording)
        # To hand the result over is what the line does that computes.
        assert _texts(recording) - {""} <= {'before.compute(scheduler="synchronous")'}
    with Profiler() as profiler:
        dask.get({"a": (abs, -1), "b": (abs, "a")}, "b")
    assert _how(profiler.recording) == {"computed at"}
    assert len(_texts(profiler.recording) - {""}) == 1


@pytest.mark.parametrize(("when", "captured"), [("always", True), ("never", False)])
def test_capture_can_go_on_always_within_bounds_or_never(when, captured):
    with dask.config.set({"diag.lines.capture": when, "scheduler": "synchronous"}):
        try:
            # As %load_ext does.
            dask_diag.load_ipython_extension(SimpleNamespace(register_magics=lambda magics: None))
            x = da.ones(4, chunks=2).sum()
            with Profiler() as profiler:
                x.compute()
            assert ("x = da.ones(4, chunks=2).sum()" in _texts(profiler.recording)) == captured
            assert (Now.capture is not None) == captured
            if captured:
                names = Now.capture.names
                for number in range(100_000):
                    names.note(number, None)
                assert len(names) <= 40_000
        finally:
            dask.config.set({"diag.lines.capture": "active"})
            lines.stop_capturing()
    assert Now.capture is None


@pytest.mark.leaves_files
def test_secrets_in_lines_are_masked_and_lines_are_left_out_without_code(tmp_path):
    source = 'value = dask.delayed(dict)(password="hunter2")'
    program = tmp_path / "program.py"
    program.write_text(f"{source}\nvalue.compute()\n", encoding="utf-8")
    code = compile(program.read_text(encoding="utf-8"), str(program), "exec")
    for with_code in (True, False):
        path = tmp_path / f"run{with_code}.diag"
        with record(path, code=with_code), dask.config.set(scheduler="synchronous"):
            exec(code, {"dask": dask})
        text = "\n".join(load(path).lines.text.tolist())
        assert "hunter2" not in text
        assert ("dask.delayed(dict)" in text) == with_code


def test_threads_that_build_at_the_same_time_have_their_own_lines():
    def first():
        return da.ones(4, chunks=2).cumsum(axis=0)

    def second():
        return da.ones(4, chunks=2).cumprod(axis=0)

    made = {}
    with Profiler() as profiler, Profiler() as another:
        threads = [
            threading.Thread(target=lambda build=build: made.update({build.__name__: build()}))
            for build in (first, second)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        dask.compute(*made.values(), scheduler="threads")
    for one in (profiler, another):
        assert {"return da.ones(4, chunks=2).cumsum(axis=0)"} < _texts(one.recording)
        assert {"return da.ones(4, chunks=2).cumprod(axis=0)"} < _texts(one.recording)


def _deep(depth):
    return _deep(depth - 1) if depth else da.ones(4, chunks=2)


def test_lines_of_code_without_a_file_and_of_deep_recursion():
    made = {"da": da}
    with Profiler() as profiler, dask.config.set(scheduler="synchronous"):
        exec("x = da.ones(3, chunks=1)", made)
        made["x"].compute()
        _deep(40).compute()
    recording = profiler.recording
    # Where pytest runs several processes, they are started by python -c.
    assert set(recording.lines.file.tolist()) - {"<string>"} == {__file__}
    callers, depth = recording.lines.caller.tolist(), []
    for row in range(len(callers)):
        depth.append(1 if callers[row] < 0 else depth[callers[row]] + 1)
    assert max(depth) == 16
    assert 'exec("x = da.ones(3, chunks=1)", made)' in _texts(recording)


@pytest.mark.leaves_files
def test_a_package_can_be_the_users(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages" / "mine"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("def build(da):\n    return da.ones(4, chunks=2)\n")
    monkeypatch.syspath_prepend(folder.parent)
    import mine

    for packages, line in (
        ((), "built = mine.build(da)"),
        (("mine",), "return da.ones(4, chunks=2)"),
    ):
        with dask.config.set({"diag.lines.packages": packages}), Profiler() as profiler:
            built = mine.build(da)
            built.compute(scheduler="synchronous")
        recording = profiler.recording
        row = recording.steps.line.tolist()[recording.steps.function.tolist().index("ones_like")]
        assert recording.lines.text.tolist()[row].strip() == line


@pytest.mark.leaves_files
def test_a_live_file_has_lines_while_tasks_run(tmp_path):
    path, going_on = tmp_path / "run.diag", threading.Event()

    def wait(block):
        going_on.wait(20)
        return block

    with record(path, overwrite=True):
        x = da.ones(2, chunks=1).map_blocks(wait, meta=np.ones(0))
        thread = threading.Thread(target=x.compute)
        thread.start()
        try:
            until(lambda: len(load(path).steps) > 0)
            assert "x = da.ones(2, chunks=1).map_blocks(wait, meta=np.ones(0))" in _texts(
                load(path)
            )
        finally:
            going_on.set()
            thread.join()


def _spin_by_lines():
    x = da.ones((4, 4), chunks=(2, 4)).map_blocks(_add_one).map_blocks(abs)
    total = x.sum()
    return total.compute()


def test_processes_send_the_seconds_of_steps():
    pool = ProcessPoolExecutor(1, mp_context=get_context("fork"))
    with pool, Profiler() as profiler, dask.config.set(scheduler="processes", pool=pool):
        _spin_by_lines()
    recording = profiler.recording
    assert _how(recording) == {"name"}
    assert recording.steps.timed.max() == 2
    assert "x = da.ones((4, 4), chunks=(2, 4)).map_blocks(_add_one).map_blocks(abs)" in _texts(
        recording
    )


def _grouped():
    """Groups of a bag: tasks of its steps return iterators over iterators."""
    words = db.from_sequence([f"{n % 7} word" for n in range(2_000)], npartitions=6)
    return words.map(str.split).groupby(_first, shuffle="tasks", npartitions=3, max_branch=2)


def _first(words):
    return words[0]


def _lengths(group):
    return group[0], len(group[1])


@pytest.mark.spawned
def test_results_that_hold_iterators_are_sent_as_before():
    plain = sorted(_grouped().map(_lengths).compute(scheduler="sync"))
    with Profiler():
        assert (
            sorted(_grouped().map(_lengths).compute(scheduler="processes", num_workers=2)) == plain
        )
    with cluster(2) as client, Profiler():
        assert sorted(_grouped().map(_lengths).compute(scheduler=client)) == plain


def test_iterators_in_results_go_on_after_errors_and_pickle_as_without_profilers():
    with Profiler():
        results = [
            db.from_sequence(["1", "x", *["3"] * 40], npartitions=1)
            .map(int)
            .map_partitions(_held)
            .to_delayed(optimize_graph=True)[0]
            .compute(scheduler=scheduler)
            for scheduler in ("sync", "threads")
        ]
    for (items,) in results:
        assert next(items) == 1
        with pytest.raises(ValueError, match="x"):
            next(items)
        assert next(pickle.loads(pickle.dumps(items))) == 3
        assert sum(items) == 3 * 40


def _held(items):
    return [items]


def test_a_cluster_has_the_lines_of_its_client():
    with cluster() as client, Profiler() as profiler:
        _spin_by_lines()
        futures = client.map(abs, [-1, -2])
        client.gather(futures)
        frame = dd.from_pandas(pd.DataFrame({"k": [1, 2, 3], "v": [1, 2, 3]}), npartitions=2)
        merged = frame.merge(frame, on="k")
        merged.compute()
    recording = profiler.recording
    assert _how(recording) <= {"name", "token", "dependents"}
    assert recording.steps.timed.max() == 2
    texts = recording.lines.text.tolist()
    by_function = dict(
        zip(recording.steps.function.tolist(), recording.steps.line.tolist(), strict=True)
    )
    assert "futures = client.map(abs, [-1, -2])" in _texts(recording)
    assert texts[by_function["hash-join-transfer"]].strip() == 'merged = frame.merge(frame, on="k")'
