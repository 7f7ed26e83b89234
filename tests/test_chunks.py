"""Chunks of events: read from work items like coffea's, by dataset and file; branches; totals."""

import sys
import time
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("distributed")

from dask_diag import DiagnosticError, Profiler, findings, load, save, throughput
from dask_diag.analysis.chunks import rates_over_time
from dask_diag.coffea import attach, branches, chunks

from .clusters import cluster
from .recordings import NAN, NOTHING, columns_of, with_columns, with_tables


@dataclass(frozen=True)
class Item:
    """What coffea sends: its WorkItem has these attributes, and others."""

    dataset: str
    filename: str
    treename: str
    entrystart: int
    entrystop: int
    fileuuid: bytes = b"0"
    preload: object = None


@dataclass
class Branch:
    name: str
    compressed_bytes: int
    uncompressed_bytes: int


@dataclass
class Tree:
    branches: list = field(default_factory=list)

    def itervalues(self, recursive):
        return iter(self.branches)


class Compressing:
    """As coffea wraps its function, so that the result is bytes."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *args):
        return repr(self.function(*args)).encode()


Compressing.__module__ = "coffea.processor"
TREE = Tree(
    [Branch("pt", 60, 120), Branch("eta", 30, 60), Branch("group", 0, 0), Branch("n", 10, 80)]
)


def retries(count, function, item):
    return function(item)


def work(item, uproot_options):
    """Opens a file with a cache of objects, and returns what coffea's function does."""
    item = item[0] if isinstance(item, tuple) else item
    if item.filename == "bad":
        try:
            raise ValueError("no such trigger")
        except ValueError as error:
            raise Exception(f"Failed processing file: {item!r}") from error
    assert set(uproot_options) >= {"timeout"}
    uproot_options.get("object_cache", {})["0:1"] = TREE
    time.sleep(0.01)
    read = {"pt-data", "n-offsets"}
    return {"out": 1, "metrics": {"bytesread": 70.0, "columns": read, "entries": 5}}


PRELOADED = frozenset({"pt", "eta", "group"})
FUNCTION = partial(retries, 3, partial(work, uproot_options={"timeout": 5}))
ITEMS = [Item(*place, n * 10, n * 10 + 5) for n, place in enumerate([("A", "x", "T"), ("A", "x", "T"), ("B", "y", "T")])]  # fmt: skip
ITEMS[2] = replace(ITEMS[2], preload=PRELOADED)


@pytest.fixture
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@pytest.fixture
def coffea(monkeypatch):
    """Chunks are looked for where a module of that name is loaded, of which nothing is used."""
    monkeypatch.setitem(sys.modules, "coffea", ModuleType("coffea"))


def run(function, items, paired=False):
    with cluster(workers=1, processes=False) as client, Profiler() as prof:
        processor = client.submit(str, "the processor")
        sent = [(item, processor) for item in items] if paired else items
        futures = client.map(function, sent, pure=False, retries=1)
        results = [f.result() if f.exception() is None else f.exception() for f in futures]
    return prof.recording, results


@pytest.mark.parametrize("function", [FUNCTION, Compressing(FUNCTION)])
@pytest.mark.parametrize("paired", [False, True])
def test_a_chunk_is_read_from_the_work_item_and_the_result(coffea, folder, function, paired):
    recording, results = run(function, ITEMS, paired)
    assert results == [function(item) for item in ITEMS]
    save(recording, folder / "a.diag")
    for read in (recording, load(folder / "a.diag")):
        rows = sorted(chunks(read).to_dicts(), key=lambda row: row["first"])
        names = ("dataset", "file", "first", "last", "events", "bytes", "attempt", "outcome")
        assert [tuple(row[name] for name in names) for row in rows] == [
            (i.dataset, i.filename, i.entrystart, i.entrystop, 5, 70, 1, "ok") for i in ITEMS
        ]
        assert all(
            0.01 <= row["wall"] == pytest.approx(row["cpu"] + row["off_cpu"]) for row in rows
        )
        by_file = sorted(chunks(read, by="file").to_dicts(), key=lambda row: row["file"])
        assert [(r["file"], r["chunks"], r["events"], r["bytes"]) for r in by_file] == [
            ("x", 2, 10, 140),
            ("y", 1, 5, 70),
        ]
        table = branches(read)
        shown = zip(*(table[n].tolist() for n in ("branch", "branches", "files", "unused", "compressed", "ratio", "share")), strict=True)  # fmt: skip
        assert list(shown) == [
            ("pt", 1, 2, 0, 120, 2, 0.6),
            ("eta", 1, 1, 1, 30, 2, 0.15),
            ("n", 1, 2, 0, 20, 8, 0.1),
            ("all", 3, 2, 0, 200, 2.6, 1),
        ]
        assert "preloaded and not used: eta" in " ".join(str(read.summary(verbose=True)).split())
        (row,) = throughput(read).to_dicts()
        assert (row["events"], row["bytes"]) == (15, 210)
        by_dataset = throughput(read, by="dataset").to_dicts()
        assert {r["dataset"]: r["events"] for r in by_dataset} == {"A": 10, "B": 5}


def test_a_chunk_that_fails_says_where_and_why(coffea):
    recording, _ = run(Compressing(FUNCTION), [ITEMS[0], Item("B", "bad", "T", 40, 45)])
    (by_file,) = (row for row in chunks(recording, by="file").to_dicts() if row["file"] == "bad")
    assert (by_file["chunks"], by_file["failed"], by_file["events"]) == (0, 2, 0)
    failed = [row for row in chunks(recording).to_dicts() if row["file"] == "bad"]
    assert {row["error"] for row in failed} == {"ValueError: no such trigger"}
    assert sorted(row["attempt"] for row in failed) == [1, 2]
    # What else failed in the meantime is not of the chunk.
    assert throughput(recording)["events"].tolist() == [5]


def test_nothing_is_looked_for_without_coffea(monkeypatch):
    # Another test may have imported it.
    monkeypatch.delitem(sys.modules, "coffea", raising=False)
    recording, results = run(FUNCTION, ITEMS[:1])
    assert results == [FUNCTION(ITEMS[0])]
    assert len(recording.chunks) == len(recording.branches) == len(chunks(recording)) == 0


def test_an_item_that_cannot_be_read_changes_nothing(coffea):
    recording, results = run(FUNCTION, [Item("A", "x", "T", "no number", 3)])
    assert results == [FUNCTION(ITEMS[0])]
    assert len(recording.chunks) == 0
    assert recording.notices == ()


def test_totals_of_coffea_are_those_of_a_recording_without_chunks(folder):
    metrics = {
        "entries": 1_000,
        "bytesread": 8_000,
        "processtime": 2.5,
        "columns": ["pt-data", "n"],
    }
    save(attach(attach(NOTHING, {"entries": 3}), metrics), folder / "a.diag")
    recording = load(folder / "a.diag")
    facts = recording.environment.to_dicts()
    assert {fact["name"]: fact["value"] for fact in facts} == {
        "entries": "1000",
        "bytesread": "8000",
        "processtime": "2.5",
        "columns": "2",
    }
    (row,) = throughput(recording).to_dicts()
    assert (row["events"], row["bytes"], row["events_per_elapsed_second"]) == (1000, 8000, 1000)
    assert np.isnan(row["events_per_second"])
    with pytest.raises(DiagnosticError, match="expected the metrics of a Runner"):
        attach(recording, {"bytesread": 3})
    with pytest.raises(DiagnosticError, match="expected one of dataset, file, found 'events'"):
        chunks(recording, by="events")


def made(*failures, slow=()):
    """Six files of two chunks each, of which the given ones are slow; and runs that failed."""
    runs = [(f"/data/{n}.root", k * 100, "ok", 6.0 if n in slow else 1.0) for n in range(6) for k in range(2)]  # fmt: skip
    runs += [(file, 0, "failed", 0.5) for file in failures]
    rows = [
        (f"p-{n}", "process", n, n + took, took / 4, took * 3 / 4, "worker-0/1", "c", result, "Exception" if result == "failed" else "", 1)
        for n, (_, _, result, took) in enumerate(runs)
    ]  # fmt: skip
    return with_tables(
        replace(NOTHING, start=0.0, stop=40.0),
        computations=columns_of(
            "computation called start prepared stop workers scheduler cluster",
            ("c", 0.0, 0.0, 0.0, 30.0, 1, "distributed", "one"),
        ),
        workers=columns_of(
            "computation worker joined threads measured", ("one", "worker-0", 0.0, 1, 1)
        ),
        tasks=columns_of(
            "key function start stop thread_cpu thread_noncpu worker computation outcome error attempt",
            *rows,
            ("reduce-0", "reduce", 20.0, 21.0, 0.5, 0.5, "worker-0/1", "c", "ok", "", 1),
        ),
        chunks=columns_of(
            "task dataset file first last error",
            *((n, "DY", file, first, first + 100, "ValueError: no such trigger" if result == "failed" else "")
              for n, (file, first, result, _) in enumerate(runs)),
        ),
    )  # fmt: skip


def test_a_failed_chunk_is_named_by_file_and_entries():
    recording = made(*["/data/bad.root"] * 4)
    (found,) = (one for one in findings(recording) if one.code == "failed-tasks")
    assert found.evidence.startswith(
        "Chunk DY /data/bad.root 0 to 100 failed 4 times: ValueError: no such trigger. In all, 4 "
        "tasks failed after 2.00 s. The first was p-12"
    )
    assert "recreate_error_locally" not in found.advice
    assert "IterativeExecutor" in found.advice
    assert found.numbers["times"].value == 4


def test_a_straggler_says_which_chunk_it_processed():
    """Eleven chunks of 1 s on two workers, and one of 20 s that the others wait for."""
    recording = made()
    took = [1.0] * 11 + [20.0, 0.1]
    start = [float(n // 2) for n in range(11)] + [6.0, 26.0]
    stop = [a + b for a, b in zip(start, took, strict=True)]
    lanes = [f"worker-{n % 2}/1" for n in range(13)]
    changed = with_columns(recording, "tasks", start=start, stop=stop, submitted=start)
    changed = with_columns(changed, "tasks", thread_cpu=took, thread_noncpu=[0.0] * 13)
    changed = with_columns(changed, "tasks", worker=lanes)
    changed = with_columns(changed, "computations", workers=[2])
    (found,) = (one for one in findings(changed) if one.code == "straggler")
    assert "It processed DY /data/5.root 100 to 200" in found.evidence


def test_the_summary_has_chunks_files_and_the_processor_beside_overhead():
    text = " ".join(made(slow=[3]).summary(verbose=True).split())
    assert (
        "Chunks 12 with 1.20k events, of 1 dataset in 6 files; the longest took 6.00 s: DY /data/3.root 0 to 100"
        in text
    )
    assert "Slow files /data/3.root: an event takes 6 times as long as in the median file" in text
    assert "Processor 5.50 s of CPU and 16.5 s off a CPU in chunks (25% on a CPU)" in text
    assert "Overhead 500 ms of CPU and 500 ms off a CPU in other tasks (50% on a CPU)" in text
    assert (
        "40 events/s in computations, 30 events/s of the elapsed time, 40 events/s per core" in text
    )
    assert "Slow files" not in made().summary()


def test_a_slow_site_is_named_in_place_of_its_files():
    """Files 3 to 5 are at a site of their own; an event of a slow one takes six times as long."""
    for near, far, slow, expected in (
        ("root://a.org/", "root://b.org/", [3, 4, 5], "root://b.org (3 files): an event takes 6 times"),
        ("root://a.org/", "https://b.org/", [4, 5], "https://b.org (3 files): an event takes 6 times"),
        ("root://a.org/", "https://b.org/", [0, 3, 4, 5], "https://b.org (3 files) and 1 more: an event"),
        ("", "root://b.org/", [3, 4, 5], "root://b.org (3 files): an event takes 6 times"),
        ("root://a.org/", "root://a.org/", [5], "root://a.org//data/5.root: an event takes 6 times"),
        # One slow file makes no slow site.
        ("root://a.org/", "root://b.org/", [5], "root://b.org//data/5.root: an event takes 6 times"),
        ("", "", [3, 4, 5], None),
    ):  # fmt: skip
        recording = made(slow=slow)
        names = recording.chunks.file.tolist()
        files = [(far if int(name[6]) > 2 else near) + name for name in names]
        recording = with_columns(recording, "chunks", file=files)
        text = " ".join(recording.summary().split())
        assert ("Slow files" in text) == (expected is not None)
        assert expected is None or f"Slow files {expected}" in text


def test_what_was_read_over_time_is_that_of_the_chunks_that_ran_then():
    """Chunk n has 100 events and runs from second n to n + 1, or longer; what failed read nothing."""
    for bytes_read, unit, amount in ((NAN, "events", 100), (5e6, "bytes", 5e6)):
        recording = made("/data/0.root", slow=[3])
        recording = with_columns(recording, "chunks", bytes=[bytes_read] * 13)
        found, edges, rates = rates_over_time(recording)
        assert found == unit
        assert (rates * np.diff(edges)).sum() == pytest.approx(12 * amount)
        middles = (edges[1:] + edges[:-1]) / 2
        at = {second: rates[np.abs(middles - second).argmin()] for second in (5.5, 9.5, 12.7, 20)}
        # The chunks 6 and 7 take 6 seconds each.
        assert at == pytest.approx(
            {5.5: amount, 9.5: amount * (1 + 2 / 6), 12.7: amount / 6, 20: 0}
        )


def test_a_chunk_has_the_waits_of_its_task():
    waits = columns_of(
        "task activity seconds", (3, "cpu-wait", 0.25), (3, "io-wait", 0.375), (12, "io-wait", 9.0)
    )
    table = chunks(with_tables(made(), waits=waits))
    (row,) = (
        row for row in table.to_dicts() if (row["file"], row["first"]) == ("/data/1.root", 100)
    )
    assert (row["off_cpu"], row["cpu_wait"], row["io_wait"]) == (0.75, 0.25, 0.375)
    assert table["io_wait"].sum() == 0.375
    assert np.isnan(chunks(made())["cpu_wait"]).all()


def test_without_dask_the_summary_says_what_to_use_and_has_the_programs_own_line():
    """As of a FuturesExecutor or an IterativeExecutor."""
    recording = with_tables(
        replace(attach(NOTHING, {"entries": 1_000, "bytesread": 8_000}), start=0.0, stop=10.0),
        frames=columns_of(
            "name file line first_line",
            ("Runner.run", "/v/lib/python3.12/site-packages/coffea/processor/executor.py", 9, 1),
            ("process", "/home/me/analysis.py", 5, 1),
        ),
        call_tree=columns_of("parent frame", (-1, 0), (0, 1)),
        samples=columns_of(
            "start stop root node seconds count",
            (0.0, 1.0, "before computations", 0, 2.0, 20),
            (0.0, 1.0, "before computations", 1, 8.0, 80),
        ),
    )
    text = " ".join(str(recording.summary()).split())
    assert "Coffea processed chunks without Dask" in text
    assert "processor.DaskExecutor(client=client)" in text
    assert "Your code analysis.py:5 in process: 8.00 s with calls, 80% of the sampled time" in text
    assert "Throughput 100 events/s of the elapsed time" in text


def test_the_report_has_runtimes_rates_and_tables_of_chunks(folder):
    """10,000 chunks are to take 2 MB of a page at most, which is 200 bytes each."""
    count, long = 2_000, "root://eospublic.cern.ch//eos/cms/store/data/Run2018/NANOAODSIM/file"
    rng = np.random.default_rng(0)
    start, took = np.arange(count) * 0.01, 1 + rng.exponential(5, count)
    took[7] = 100
    first = np.arange(count) % 10 * 100_000
    lanes = [f"worker-{n % 64}/1" for n in range(count)]
    tasks = {"key": [f"p-{n}" for n in range(count)], "function": ["p"] * count, "start": start}
    tasks |= {"submitted": start, "stop": start + took, "thread_cpu": took, "worker": lanes}
    tasks |= {"computation": ["c"] * count, "outcome": ["ok"] * count, "attempt": [1] * count}
    rows = {"task": np.arange(count), "dataset": [f"sample {n % 8}" for n in range(count)]}
    rows |= {"file": [f"{long}_{n // 10}.root" for n in range(count)], "first": first}
    rows |= {"last": first + 100_000 - rng.integers(0, 50_000, count)}
    rows |= {"error": ["ValueError: <none>" if n == 7 else "" for n in range(count)]}
    read = columns_of(
        "file tree branch branches compressed uncompressed",
        (f"{long}_0.root", "T", "", 21, 400.0, 800.0),
        (f"{long}_0.root", "T", "Jet_pt", 1, 100.0, 300.0),
    )
    recording = with_tables(made(), tasks=tasks, chunks=rows, branches=read)

    def page_of(recording):
        return recording.report(folder / "page.html", overwrite=True).read_text(encoding="utf-8")

    page = page_of(recording)
    for text in (
        'id="chunks"',
        "Plot of the runtime of chunks against their events",
        "Events read per second over time",
        "By dataset",
        "sample 7",
        "Longest chunks",
        "ValueError: &lt;none&gt;",
        "Jet_pt",
    ):
        assert text in page, text
    without = page_of(
        with_tables(recording, chunks=columns_of("task"), branches=columns_of("file"))
    )
    assert 'id="chunks"' not in without
    assert len(page) - len(without) < 200 * count
