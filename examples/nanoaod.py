"""Masses of pairs of jets in NanoAOD files: coffea on a cluster, and dask-awkward on threads.

How fast each was is printed, and how fast with other numbers of workers and larger chunks.

The files are made here. Needs ``pip install 'dask_diag[coffea]'``; the second part needs
``pip install 'dask_diag[dask-awkward]'``, which installs an older dask.
"""

import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import uproot
from coffea import processor
from coffea.nanoevents import NanoAODSchema, NanoEventsFactory
from distributed import Client

from dask_diag import Profiler, throughput, what_if
from dask_diag.coffea import branches, chunks

FILES = 4
EVENTS = 20_000
CHUNK = 10_000
NanoAODSchema.warn_missing_crossrefs = False


def write_events(path: str, seed: int, events: int) -> None:
    """Write a file of events with jets, as NanoAOD has them."""
    chance = np.random.default_rng(seed)
    counts = chance.poisson(3, events)
    jets = int(counts.sum())
    columns = {
        "pt": chance.exponential(30, jets) + 15,
        "eta": chance.normal(0, 1.5, jets),
        "phi": chance.uniform(-np.pi, np.pi, jets),
        "mass": chance.exponential(8, jets),
    }
    jagged = {name: ak.unflatten(values.astype("f4"), counts) for name, values in columns.items()}
    branches = {
        "run": np.ones(events, "u4"),
        "luminosityBlock": np.ones(events, "u4"),
        "event": np.arange(events, dtype="u8"),
        "Jet": ak.zip(jagged),
    }
    types = {
        name: values.dtype if isinstance(values, np.ndarray) else values.type.content
        for name, values in branches.items()
    }
    with uproot.recreate(path) as file:
        file.mktree("Events", types).extend(branches)


class PairsOfJets(processor.ProcessorABC):
    """The mass of the two hardest jets of each event that has two."""

    def process(self, events: Any) -> Any:
        counts, _ = np.histogram(ak.to_numpy(masses(events)), bins=50, range=(0, 500))
        return {"counts": counts, "events": len(events)}

    def postprocess(self, accumulator: Any) -> Any:
        return accumulator


def masses(events: Any) -> Any:
    """The mass of the first two jets above 30 GeV, of events that have so many."""
    jets = events.Jet[events.Jet.pt > 30]
    pairs = jets[ak.num(jets) >= 2]
    first, second = pairs[:, 0], pairs[:, 1]
    angles = np.cosh(first.eta - second.eta) - np.cos(first.phi - second.phi)
    return np.sqrt(2 * first.pt * second.pt * angles)


def with_coffea(files: list[str]) -> None:
    """The Runner of coffea, with what its metrics say of events and bytes."""
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        run = processor.Runner(
            processor.DaskExecutor(client=client, status=False),
            schema=NanoAODSchema,
            chunksize=CHUNK,
            savemetrics=True,
        )
        with Profiler() as prof:
            datasets = {"jets": {"files": dict.fromkeys(files, "Events")}}
            output, _ = run(datasets, processor_instance=PairsOfJets())
        # The recording has coffea's chunks: their events and bytes need not be passed.
        show("coffea on a cluster", prof, output["counts"], None, threads=1)
        print(chunks(prof, by="file"))
        print(branches(prof))


def with_dask_awkward(files: list[str]) -> None:
    """The same with dask-awkward, in threads."""
    steps = [[start, start + CHUNK] for start in range(0, EVENTS, CHUNK)]
    trees = {path: {"object_path": "Events", "steps": steps} for path in files}
    events = NanoEventsFactory.from_root(trees, schemaclass=NanoAODSchema, mode="dask").events()
    with Profiler() as prof:
        pair_masses = masses(events).compute(scheduler="threads", num_workers=2)
    counts, _ = np.histogram(ak.to_numpy(pair_masses), bins=50, range=(0, 500))
    show("dask-awkward on threads", prof, counts, len(files) * EVENTS, workers=1)


def show(title: str, prof: Profiler, counts: Any, events: int | None, **one: int) -> None:
    """Print the histogram's sum, what was done in a second, and what other settings would do."""
    (row,) = throughput(prof, events).to_dicts()
    print(f"{title}: {int(counts.sum()):,} pairs in {row['events']:,.0f} events")
    print(f"  {row['events_per_second']:,.0f} events/s in {row['wall']:.2f} s", end="")
    print(f", {row['events_per_core']:,.0f} per core", end="")
    print(f", {row['events_per_cpu_second']:,.0f} per CPU second")
    print(f"  core efficiency {row['core_efficiency']:.0%} of {row['threads']:.1f} threads")
    questions = {
        "workers": "number of workers {}",
        "threads": "number of threads {}",
        "chunks": "chunks {} times as large",
    }
    unchanged, *changes = what_if(prof, **one).to_dicts()
    # All of the block, with what passed before the first task.
    print(f"  the whole block: {unchanged['seconds']:.2f} s")
    for change in changes:
        if change["kind"] in questions:
            changed = questions[change["kind"]].format(change["name"])
            print(f"  {changed}: {change['seconds']:.2f} s, {change['speedup']:.2f} times as fast")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / f"{number}.root") for number in range(FILES)]
        for seed, path in enumerate(files):
            write_events(path, seed, EVENTS)
        with_coffea(files)
        if find_spec("dask_awkward"):
            with_dask_awkward(files)


if __name__ == "__main__":
    main()
