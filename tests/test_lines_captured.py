"""Each task says which line of the program built it, and each step of a fused task its seconds."""

from __future__ import annotations

import linecache
import sys
from operator import add

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask._task_spec import Task, TaskRef
from dask.graph_manipulation import bind, checkpoint, clone, wait_on

from dask_diag import Profiler

HOW_KNOWN = {"name", "token", "dependents"}


def _array():
    return da.ones((8, 8), chunks=(4, 4)) + 1


def _add_one(block):
    return block + 1


def _pair(block, other=0):
    return block


def _svd():
    u, s, v = da.linalg.svd(da.random.random((8, 4), chunks=(4, 4)))
    return u + s.sum() + v.sum()


def _setitem():
    x = _array()
    x[x > 3] = 0
    x[2:3] = 5
    return x


ARRAY = [
    lambda: _array().sum(axis=0),
    lambda: _array().mean(),
    lambda: _array().std(axis=1),
    lambda: _array().cumsum(axis=0),
    lambda: _array().cumsum(axis=0, method="blelloch"),
    lambda: _array().rechunk((2, 8)),
    lambda: _array().rechunk((8, 1)).rechunk((1, 8)),
    lambda: _array().T @ _array(),
    lambda: da.tensordot(_array(), _array(), axes=1),
    lambda: da.einsum("ij,jk->ik", _array(), _array()),
    lambda: _array().map_blocks(_add_one).map_blocks(_pair, other=2),
    lambda: _array().map_overlap(_add_one, depth=1, boundary="reflect"),
    lambda: da.concatenate([_array(), _array()]),
    lambda: da.stack([_array(), _array()]).max(axis=0),
    lambda: _array().reshape(64),
    lambda: _array()[::2, [1, 3]],
    lambda: _array()[_array() > 1],
    lambda: _array().vindex[[0, 1], [2, 3]],
    lambda: da.take(_array(), [5, 0, 7], axis=0),
    lambda: da.where(_array() > 1, _array(), 0),
    lambda: da.histogram(_array(), bins=3, range=(0, 3))[0],
    lambda: da.bincount(da.from_array(np.arange(8), chunks=4)),
    lambda: da.unique(da.from_array(np.arange(8) % 3, chunks=4)),
    lambda: da.percentile(da.from_array(np.arange(8.0), chunks=4), 50),
    lambda: da.topk(da.from_array(np.arange(8), chunks=4), 3),
    lambda: da.argmax(_array(), axis=0),
    lambda: da.random.default_rng(1).normal(size=(8, 8), chunks=4),
    lambda: da.random.RandomState(1).randint(0, 9, size=8, chunks=4),
    lambda: da.from_delayed(dask.delayed(np.ones)(3), (3,), float) * 2,
    lambda: da.from_array(np.ones((8, 8)), chunks=4).astype("f4"),
    lambda: da.linalg.qr(da.random.random((8, 4), chunks=(4, 4)))[0],
    lambda: da.linalg.norm(_array()),
    lambda: da.fft.fft(da.ones((8, 8), chunks=(8, 4)), axis=0),
    lambda: da.apply_along_axis(np.sum, 0, _array()),
    lambda: da.apply_gufunc(lambda rows: rows.mean(axis=-1), "(i)->()", _array().rechunk((4, 8))),
    lambda: da.blockwise(add, "ij", _array(), "ij", 1, None, dtype=float),
    lambda: da.coarsen(np.sum, _array(), {0: 2}),
    lambda: da.pad(_array(), 2, mode="constant"),
    lambda: da.roll(_array(), 3),
    lambda: da.tril(_array()),
    lambda: da.searchsorted(da.arange(8, chunks=4), da.arange(3, chunks=3)),
    lambda: da.cov(_array()),
    lambda: _array().to_delayed()[0, 0],
    lambda: _array().persist().sum(),
    lambda: _array().blocks[0, 1],
    lambda: _array().compute_chunk_sizes(),
    lambda: da.shuffle(_array(), [[0, 2], [4, 6]], 0),
    lambda: da.store(_array(), np.zeros((8, 8)), compute=False),
    _svd,
    _setitem,
]

BAG = [
    lambda: _bag().map(add, 1),
    lambda: _bag().filter(bool).map(str).frequencies(),
    lambda: _bag().fold(add),
    lambda: _bag().sum(),
    lambda: _bag().foldby(lambda v: v % 2, add, 0, add, 0),
    lambda: _bag().groupby(lambda v: v % 2, shuffle="tasks", npartitions=2),
    lambda: _bag().distinct(),
    lambda: _bag().topk(2),
    lambda: _bag().map_partitions(list),
    lambda: _bag().map_partitions(iter).map(abs),
    lambda: _bag().map(lambda v: [v, v]).flatten(),
    lambda: _bag().map(lambda v: (v, v)).pluck(0),
    lambda: _bag().accumulate(add),
    lambda: _bag().product(_bag()),
    lambda: _bag().join([1, 2], lambda v: v),
    lambda: _bag().repartition(1),
    lambda: _bag().take(1, compute=False),
    lambda: db.zip(_bag(), _bag()),
    lambda: db.concat([_bag(), _bag()]),
    lambda: _bag().var(),
    lambda: _bag().random_sample(0.5, random_state=1),
    lambda: _bag().to_delayed()[0],
    lambda: db.from_delayed([dask.delayed(list)([1, 2])]),
    lambda: _bag().reduction(sum, sum),
    lambda: _bag().remove(bool),
    lambda: _bag().map(lambda v: (v, v)).starmap(add),
    lambda: _bag().map(add, _bag()),
]


def _bag():
    return db.from_sequence(range(8), npartitions=2).map(abs)


@dask.delayed
def _increment(value):
    return value + 1


@dask.delayed(nout=2)
def _two(value):
    return value, value


DELAYED = [
    lambda: _increment(1),
    lambda: _increment(_increment(1)) + 1,
    lambda: _two(1)[0],
    lambda: sum([_increment(value) for value in range(3)]),
    lambda: dask.delayed("a b").split(),
    lambda: dask.delayed(complex)(1, 2).real,
    lambda: dask.delayed([_increment(1), {"a": _increment(2)}]),
    lambda: dask.delayed(sum)([_increment(1), _array().sum()]),
    lambda: dask.delayed(np.sum)(_array()),
    lambda: -_increment(2),
    lambda: 2 * _increment(2),
    lambda: _increment(dask.delayed(5)),
    lambda: _increment(1, dask_key_name="mine"),
    lambda: clone(_array()),
    lambda: bind(_array(), _increment(1)),
    lambda: wait_on(_array()),
    lambda: checkpoint(_array(), _bag()),
    lambda: dask.optimize(_array() + 1, _increment(1))[0],
]


def _frame():
    table = pd.DataFrame({"x": np.arange(16) % 5, "y": np.arange(16.0), "k": np.arange(16) % 3})
    return dd.from_pandas(table, npartitions=3)


def _twice(table):
    return table * 2


def _table_of(number):
    return pd.DataFrame({"x": [number]})


FRAME = [
    lambda: _frame()[_frame().x > 1].y,
    lambda: _frame().assign(z=_frame().x * 2).z.sum(),
    lambda: _frame().groupby("k").y.mean(),
    lambda: _frame().groupby("k").apply(len, meta=(None, int)),
    lambda: _frame().groupby("k").y.nunique(split_out=2),
    lambda: _frame().merge(_frame(), on="k", shuffle_method="tasks"),
    lambda: _frame().set_index("y").x.max(),
    lambda: _frame().set_index("y", sorted=True).loc[3:8],
    lambda: _frame().shuffle("k", shuffle_method="tasks"),
    lambda: _frame().repartition(npartitions=2),
    lambda: _frame().repartition(npartitions=6),
    lambda: _frame().repartition(partition_size="1kB"),
    lambda: _frame().map_partitions(_twice).map_partitions(len),
    lambda: _frame().map_overlap(_twice, 1, 1),
    lambda: _frame().rolling(2).sum(),
    lambda: _frame().y.cumsum(),
    lambda: _frame().x.value_counts(),
    lambda: _frame().x.unique(),
    lambda: _frame().y.quantile(0.5),
    lambda: _frame().fillna(0).astype("f4").dropna(),
    lambda: _frame().query("x > 1 and y < 9"),
    lambda: _frame().apply(sum, axis=1, meta=(None, float)),
    lambda: _frame().y.shift(1),
    lambda: _frame().y.isin([1, 2]).any(),
    lambda: _frame().reduction(len, sum),
    lambda: _frame().head(3, npartitions=2, compute=False),
    lambda: dd.concat([_frame(), _frame()]),
    lambda: dd.from_map(_table_of, range(2)),
    lambda: _frame().to_dask_array(lengths=True) + 1,
    lambda: _frame().to_bag().map(len),
    lambda: _frame().to_delayed()[0],
    lambda: dd.from_delayed([dask.delayed(_table_of)(1)]),
    lambda: dd.from_dask_array(_array()),
    lambda: dd.to_numeric(_frame().x),
    lambda: _frame().sample(frac=0.5, random_state=1),
    lambda: _frame().partitions[1],
    lambda: _frame().persist().x.sum(),
    lambda: _frame().map_partitions(_twice).optimize().x.sum(),
]


@pytest.mark.parametrize(
    "operations", [ARRAY, BAG, DELAYED, FRAME], ids=["array", "bag", "delayed", "dataframe"]
)
@pytest.mark.filterwarnings("ignore")
def test_every_task_of_every_operation_has_a_line(operations):
    with dask.config.set(scheduler="synchronous"), Profiler() as profiler:
        for operation in operations:
            operation().compute()
    recording = profiler.recording
    known = recording.lines.to_dicts()
    groups = set(recording.tasks.group.tolist())
    assert groups == set(recording.steps.group.tolist())
    for step in recording.steps.to_dicts():
        assert step["how"] in HOW_KNOWN, step
        assert known[step["line"]]["file"] == __file__, step
    assert profiler.notices() == []


def _lines_of(recording, function):
    """The texts of the lines that built the steps of a function, or how that is not known."""
    known = recording.lines.to_dicts()
    return {
        known[row["line"]]["text"].strip() if row["line"] >= 0 else row["how"]
        for row in recording.steps.to_dicts()
        if row["function"] == function
    }


def test_lines_of_expressions_go_with_what_the_optimizer_makes_of_them():
    """Filters and projections move, sums are divided, and an index is computed to be set."""
    before = _frame()
    with Profiler() as profiler, dask.config.set(scheduler="synchronous"):
        frame = dd.from_pandas(before.compute(), npartitions=4)
        some = frame[frame.x > 1]
        twice = some.map_partitions(_twice)
        grouped = twice.groupby("k").y.max()
        indexed = some.set_index("y")
        merged = some.merge(frame, on="k")
        merged.npartitions
        total = merged.y_x.sum()
        largest = indexed.x.nlargest(2)
        dask.compute(grouped, total, largest)
        old = before.y.min()
        old.compute()
    recording = profiler.recording
    assert _lines_of(recording, "twice") == {"twice = some.map_partitions(_twice)"}
    assert _lines_of(recording, "gt") == {"some = frame[frame.x > 1]"}
    assert _lines_of(recording, "sort_index") == {'indexed = some.set_index("y")'}
    assert _lines_of(recording, "repartitionquantiles") == {'indexed = some.set_index("y")'}
    assert _lines_of(recording, "blockwisemerge") == {'merged = some.merge(frame, on="k")'}
    assert _lines_of(recording, "max-tree") == {'grouped = twice.groupby("k").y.max()'}
    assert _lines_of(recording, "sum-tree") == {"total = merged.y_x.sum()"}
    assert _lines_of(recording, "min-tree") == {"old = before.y.min()"}
    of_largest = _lines_of(recording, "nlargest") | _lines_of(recording, "nlargest-tree")
    assert of_largest == {"largest = indexed.x.nlargest(2)"}


MADE = "import dataclasses, functools\nones = functools.partial(da.ones, 4, chunks=2)\n"
ONES = "x = da.ones(4, chunks=2)\n"


@pytest.mark.parametrize(
    ("file", "program", "expected"),
    [
        (
            "chain.py",
            "total = (da.ones(4, chunks=2)\n    .map_blocks(add_one)\n    .sum())\ntotal.compute()",
            {"add_one": ".map_blocks(add_one)", "sum": ".sum())"},
        ),
        (
            "later.py",
            "value = dask.delayed(complex)(1, 2)\nreal = value.real\nreal.compute()",
            {"complex": "value = dask.delayed(complex)(1, 2)", "getattr": "real = value.real"},
        ),
        # A cell that was edited and run again: the later line counts.
        (
            "<ipython-input-3-1a2b>",
            f"{ONES}again = da.ones(4, chunks=2)\nagain.compute()",
            {"ones_like": "again = da.ones(4, chunks=2)"},
        ),
        ("<doctest guide.rst[2]>", f"{ONES}x.compute()", {"ones_like": ONES.strip()}),
        ("<stdin>", f"{ONES}x.compute()", {"ones_like": ONES.strip()}),
        # Methods that a library writes are not the program's.
        (
            "made.py",
            f"{MADE}Made = dataclasses.make_dataclass("
            "'Made', [('x', object, dataclasses.field(default_factory=ones))])\n"
            "made = Made()\nmade.x.compute()",
            {"ones_like": "made = Made()"},
        ),
        ("clone.py", f"{ONES}y = clone(x)\ny.compute()", {"ones_like": ONES.strip()}),
        (
            "persisted.py",
            "x = da.ones(4, chunks=2).persist()\ntotal = x.sum()\ntotal.compute()",
            {"ones_like": "x = da.ones(4, chunks=2).persist()", "sum": "total = x.sum()"},
        ),
        (
            "fused.py",
            "a = dask.delayed(abs)(-1)\nb = dask.delayed(add_one)(a)\nx = da.ones(4, chunks=2)\n"
            "with dask.config.set({'optimization.fuse.delayed': True}):\n    b.compute()\n"
            "with dask.config.set({'optimization.fuse.active': True}):\n    x.compute()\n",
            {
                # An older dask does not keep its steps: one line has the task.
                "abs": ("a = dask.delayed(abs)(-1)", "b = dask.delayed(add_one)(a)"),
                "add_one": "b = dask.delayed(add_one)(a)",
                "ones_like": "x = da.ones(4, chunks=2)",
            },
        ),
    ],
)
def test_lines_of_programs(file, program, expected):
    linecache.cache[file] = len(program), None, program.splitlines(True), file
    names = {"__name__": "__main__", "__file__": file, "da": da, "dask": dask, "clone": clone}
    with dask.config.set(scheduler="synchronous"), Profiler() as profiler:
        exec(compile(program, file, "exec"), {**names, "add_one": _add_one})
    if file == "chain.py" and sys.version_info < (3, 11):
        pytest.skip("this Python knows only where a chain begins")
    for function, lines in expected.items():
        found = _lines_of(profiler.recording, function)
        assert set() < found <= ({lines} if isinstance(lines, str) else set(lines)), function


def test_fused_tasks_of_one_name_can_have_different_steps():
    def fused(number, second):
        first = Task(("first", number), abs, -1)
        then = Task((second, number), abs, TaskRef(first.key))
        return Task.fuse(first, then, key=("both", number))

    graph = {("both", number): fused(number, name) for number, name in enumerate("abb")}
    with Profiler() as profiler:
        assert dask.get(graph, list(graph)) == (1, 1, 1)
    recording = profiler.recording
    steps = {}
    for row in recording.steps.to_dicts():
        steps.setdefault(row["group"], []).append((row["function"], row["timed"]))
    keys, groups = recording.tasks.key.tolist(), recording.tasks.group.tolist()
    assert {key: sorted(steps[group]) for key, group in zip(keys, groups, strict=True)} == {
        "('both', 0)": [("a", 1), ("first", 1)],
        "('both', 1)": [("b", 2), ("first", 2)],
        "('both', 2)": [("b", 2), ("first", 2)],
    }
