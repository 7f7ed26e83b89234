"""A run of coffea itself, where it is installed: chunks, bytes and branches as coffea counts them."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("coffea", reason="coffea is not installed: WITH_COFFEA=1 make test-matrix")

import uproot
from coffea import processor
from coffea.nanoevents import NanoAODSchema

from dask_diag import Profiler, throughput
from dask_diag.coffea import attach, branches, chunks

from .clusters import cluster

EXAMPLE = Path(__file__).parents[1] / "examples" / "nanoaod.py"


@pytest.fixture(scope="module")
def nanoaod():
    spec = importlib.util.spec_from_file_location("nanoaod", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def files(nanoaod, tmp_path_factory):
    folder = tmp_path_factory.mktemp("nanoaod")
    paths = [str(folder / f"{n}.root") for n in range(3)]
    for seed, path in enumerate(paths):
        nanoaod.write_events(path, seed, 1_000)
    return {
        "a": {"files": {paths[0]: "Events"}},
        "b": {"files": dict.fromkeys(paths[1:], "Events")},
    }


class Fails(processor.ProcessorABC):
    def process(self, events):
        if events.metadata["entrystart"] == 500 and events.metadata["dataset"] == "a":
            raise ValueError("no such trigger")
        return {"events": len(events)}

    def postprocess(self, accumulator):
        return accumulator


def runner(executor, **options):
    return processor.Runner(
        executor, schema=NanoAODSchema, chunksize=500, savemetrics=True, **options
    )


@pytest.mark.parametrize("compression", [1, None])
def test_chunks_bytes_and_branches_are_those_of_coffea(nanoaod, files, compression):
    with cluster() as client, Profiler() as run:
        executor = processor.DaskExecutor(client=client, status=False, compression=compression)
        output, metrics = runner(executor)(files, processor_instance=nanoaod.PairsOfJets())
    assert output["events"] == 3_000
    table = chunks(run)
    assert table["events"].sum() == metrics["entries"] == 3_000
    assert table["bytes"].sum() == metrics["bytesread"]
    by_dataset = throughput(run, by="dataset").to_dicts()
    assert {row["dataset"]: row["events"] for row in by_dataset} == {"a": 1_000, "b": 2_000}
    *read, whole = branches(run).to_dicts()
    tree = uproot.open(next(iter(files["a"]["files"])))["Events"]
    assert {row["branch"] for row in read} == {c.rpartition("-")[0] for c in metrics["columns"]}
    assert (whole["branches"], whole["files"]) == (len(tree.keys()), 3)
    of_first = [b.compressed_bytes for b in tree.values()]
    assert whole["compressed"] == pytest.approx(3 * sum(of_first), rel=0.05)


def test_a_failed_chunk_and_a_run_without_dask(files):
    with cluster() as client, Profiler() as run, pytest.raises(Exception, match="trigger"):
        executor = processor.DaskExecutor(client=client, status=False, retries=1)
        runner(executor)(files, processor_instance=Fails())
    failed = [row for row in chunks(run).to_dicts() if row["outcome"] == "failed"]
    assert {(row["dataset"], row["first"], row["error"]) for row in failed} == {
        ("a", 500, "ValueError: no such trigger")
    }
    some = {"b": files["b"]}
    with Profiler() as run:
        _, metrics = runner(processor.IterativeExecutor(status=False))(
            some, processor_instance=Fails()
        )
    (row,) = throughput(attach(run, metrics)).to_dicts()
    assert row["events_per_elapsed_second"] == pytest.approx(2_000 / row["elapsed"])
