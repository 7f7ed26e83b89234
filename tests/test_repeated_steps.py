"""Steps in fused tasks that ran in an earlier computation: what is counted, and what it costs."""

import time

import dask
import dask.array as da
import dask.bag as db
import numpy as np
import pytest

from dask_diag import Profiler, findings
from dask_diag.capture.computation import SeenSteps
from dask_diag.model.codes import STORED_CHUNKS

from .recordings import by_code, check, in_rounds, with_stacks, with_tables

pytestmark = pytest.mark.once


SINCE_TASKS = pytest.mark.skipif(dask.__version__ < "2025.4", reason="graphs have other tasks")


def load(number):
    return number


def shared(block):
    return block + 1


def counted(recording):
    """Runs and repeats of each step, in the order of the computations that have repeats."""
    table = recording.repeated_steps.to_dicts()
    return [(row["step"], row["calls"], row["runs"], row["repeats"]) for row in table]


@pytest.mark.parametrize(
    "scheduler", ["sync", "threads", pytest.param("cluster", marks=SINCE_TASKS)]
)
def test_a_load_fused_into_two_consumers_counts(scheduler, client):
    scheduler = client if scheduler == "cluster" else scheduler
    lines = db.from_sequence(range(6), npartitions=6).map(load)
    with dask.config.set(scheduler=scheduler), Profiler() as prof:
        lines.sum().compute()
        assert counted(prof.recording) == []
        lines.max().compute()
    rows = counted(prof.recording)
    assert rows[0] == ("load", "map_chunk load", 6, 6)
    assert [repeats for _, _, _, repeats in rows[1:]] == [0]
    # What was forgotten is not repeated.
    prof.clear()
    with dask.config.set(scheduler=scheduler), prof:
        lines.min().compute()
    assert counted(prof.recording) == []


@pytest.mark.skipif(dask.__version__ < "2025.4", reason="tasks do not say what they read")
def test_text_that_is_parsed_again_for_other_columns_counts(tmp_path_factory):
    """Its tasks have other names. Other files are no repeats."""
    frames = pytest.importorskip("dask.dataframe")
    files = [tmp_path_factory.mktemp("text") / f"{number}.csv" for number in range(3)]
    for number, file in enumerate(files):
        file.write_text("a,b\n" + f"{number},1\n" * 20)
    two, another = frames.read_csv([*map(str, files[:2])]), frames.read_csv(str(files[2]))
    with dask.config.set(scheduler="sync"), Profiler() as prof:
        two.a.sum().compute()
        another.a.sum().compute()
        assert counted(prof.recording) == []
        two.b.max().compute()
    rows = [row for row in prof.recording.repeated_steps.to_dicts() if row["step"] == "read-csv"]
    assert [(row["function"], row["runs"], row["repeats"]) for row in rows] == [("read-csv", 2, 2)]


def test_other_keys_are_no_repeats_and_nothing_of_the_users_is_kept():
    array = da.ones((4, 4), chunks=(1, 4)).map_blocks(shared)
    with dask.config.set(scheduler="sync"), Profiler() as prof:
        for row in range(4):
            (array[row] * 2).compute()
        assert counted(prof.recording) == []
        (array[0] * 3).compute()
    assert {(step, again) for step, _, _, again in counted(prof.recording)} >= {("shared", 1)}
    ours = vars(type(prof.session.steps))["__slots__"]
    kept = [getattr(prof.session.steps, name) for name in ours]
    assert all(type(one) is int for one in kept[1])


def test_counting_takes_microseconds_a_step():
    lines = db.from_sequence(range(500), npartitions=500).map(load)
    (optimized,) = dask.optimize(lines.sum())
    graph = dict(optimized.__dask_graph__())
    seen = SeenSteps()
    seen.count(graph)
    took = []
    for _ in range(5):
        start = time.thread_time()
        seen.count(graph)
        took.append(time.thread_time() - start)
    assert min(took) < 500 * 2 * 5e-6


def fused(at_step):
    """Two computations whose fused tasks share a step, in which this share of the time passes."""
    lines = db.from_sequence(range(4), npartitions=4).map(load)
    with dask.config.set(scheduler="sync"), Profiler() as prof:
        lines.map(slow).sum().compute()
        lines.map(slow).max().compute()
        # A task of the same name parses no file for that.
        dask.delayed(load)(0).compute()
    recording = prof.recording
    function = recording.repeated_steps.function.values[0]
    own = ("main", "/home/someone/code/main.py", 5, 1)
    step = ("load", "/home/someone/code/main.py", 7, 7)
    span = (recording.start, recording.stop)
    rows = [
        (span, function, (own, step), at_step, at_step),
        (span, function, (own,), 1 - at_step, 0),
    ]
    return with_stacks(recording, [row for row in rows if row[3]])


def slow(number):
    time.sleep(0.03)
    return number


def test_steps_that_take_no_time_are_no_finding():
    recording = fused(0.9)
    found = by_code(recording)["repeated-work"]
    assert found.evidence.startswith("4 runs of load, a step in fused tasks, repeated earlier ones")
    (row, *_) = recording.repeated_steps.to_dicts()
    tasks = recording.tasks.filter(recording.tasks.computation.eq(row["computation"]))
    tasks = tasks.filter(tasks.function.eq(row["function"]))
    took = 0.9 * float((tasks.stop - tasks.start).sum())
    assert found.numbers["took"].value == pytest.approx(took)
    assert "repeated-work" not in by_code(fused(0.02))
    # Without stacks it is not known which step takes the time.
    with dask.config.set(scheduler="sync"), Profiler() as prof:
        lines = db.from_sequence(range(4), npartitions=4).map(load)
        lines.map(slow).sum().compute()
        lines.map(slow).max().compute()
    assert "repeated-work" not in {finding.code for finding in findings(prof)}


class Stored:
    """As an array in a file."""

    ndim, dtype = 2, np.dtype("f8")

    def __init__(self, shape, chunks):
        self.shape, self.chunks = shape, chunks

    def __getitem__(self, part):
        return np.ones([len(range(*one.indices(size))) for one, size in zip(part, self.shape)])


class Wrapped:
    """As what xarray gives to dask: it has the stored array, or a part of it."""

    ndim, dtype = 2, np.dtype("f8")

    def __init__(self, array, shape=None):
        self.array, self.shape = array, shape or array.shape

    def __getitem__(self, part):
        return self.array[part]


@pytest.fixture(scope="module")
def client():
    pytest.importorskip("distributed")
    from .clusters import cluster

    with cluster(1) as made:
        yield made


@SINCE_TASKS
@pytest.mark.parametrize("is_on_cluster", [False, True], ids=["local", "cluster"])
@pytest.mark.parametrize(
    ("source", "chunks", "read"),
    [
        # Two stored chunks, each of which four tasks read.
        (Stored((40, 40), (20, 40)), (40, 10), (8, 6)),
        (Wrapped(Wrapped(Stored((40, 40), (20, 40)))), (40, 10), (8, 6)),
        # Of three by three chunks the middle one is read by four tasks, and those beside by two.
        (Stored((36, 36), (12, 12)), (18, 18), None),
        (Stored((40, 40), (20, 40)), (20, 40), None),
        (Stored((40, 40), (20, 20)), (40, 40), None),
        # Others have no chunks, or no known ones.
        (Wrapped(Stored((60, 40), (20, 40)), (40, 40)), (40, 10), None),
        (np.ones((40, 40)), (40, 10), None),
    ],
)
def test_chunks_of_a_stored_array_that_tasks_read_again_count(
    source, chunks, read, is_on_cluster, client
):
    array = da.from_array(source, chunks=chunks, asarray=False)
    scheduler = client if is_on_cluster else "sync"
    for fused in (array + 1, array.std(axis=0), array):
        with Profiler() as prof:
            fused.compute(scheduler=scheduler)
        rows = prof.recording.repeated_steps.to_dicts()
        assert [(row["runs"], row["repeats"]) for row in rows] == ([read] if read else [])
        assert all(row["calls"] == STORED_CHUNKS and row["step"] == "array" for row in rows)
        assert {row["function"] for row in rows} <= set(prof.recording.tasks.function.tolist())


@SINCE_TASKS
def test_only_chunks_of_a_part_that_is_computed_count():
    array = da.from_array(Stored((400, 40), (200, 40)), chunks=(400, 10), asarray=False)
    with dask.config.set(scheduler="sync"), Profiler() as prof:
        (array[:100, :20] + 1).compute()
    assert [(row["runs"], row["repeats"]) for row in prof.recording.repeated_steps.to_dicts()] == [
        (2, 1)
    ]


def test_stored_chunks_that_are_read_again_are_a_finding():
    """Eight reads of two chunks take three quarters of the time of the tasks."""
    getter = ("getter", "/opt/env/lib/python3.11/site-packages/dask/array/core.py", 110, 90)
    own = ("main", "/home/someone/code/main.py", 5, 1)
    made = in_rounds(8, 2, 1.0)
    steps = {
        "computation": ["c"],
        "function": ["work"],
        "step": ["from-zarr"],
        "calls": [STORED_CHUNKS],
        "runs": [8],
        "repeats": [6],
    }
    made = with_tables(made, repeated_steps=steps)
    cases = {
        6.0: (
            *("high", "upper_bound", 4 * 0.75 * 0.75, "multiples of the stored ones"),
            {"chunks": (2, "chunk"), "times": 4, "took": 6, "share": 0.75},
            "Tasks of work read 2 chunks of a stored array 4 times each",
        ),
        1.0: None,
    }

    def reading(seconds):
        rows = [
            ((0.0, 4.0), "work", (own, getter), seconds, seconds),
            ((0.0, 4.0), "work", (own,), 8 - seconds, 8 - seconds),
        ]
        return with_stacks(made, rows)

    check("repeated-work", reading, cases)
