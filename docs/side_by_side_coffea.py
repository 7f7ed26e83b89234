"""One run of coffea on a cluster, as roastcoffea and dask_diag describe it.

``python docs/side_by_side_coffea.py`` writes the table of the page; it needs coffea and
roastcoffea.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from coffea import processor
from coffea.nanoevents import NanoAODSchema
from distributed import Client, LocalCluster
from roastcoffea import MetricsCollector, track_metrics

from dask_diag import record, throughput
from dask_diag.coffea import branches, chunks

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import nanoaod

PAGE = Path(__file__).with_name("side_by_side_coffea_table.txt")
WORKERS = 2
FILES, EVENTS, CHUNK = 6, 100_000, 50_000
ALIKE = 0.005
"""Largest relative difference of two numbers that are called equal."""


class Processor(nanoaod.PairsOfJets):
    """The processor of the example, with the decorator that roastcoffea needs."""

    @track_metrics
    def process(self, events: Any) -> Any:
        return super().process(events)


class Row(NamedTuple):
    """A number of roastcoffea, ours, where it is, and why they differ if they do."""

    name: str
    other: float
    own: float
    where: str
    why: str = ""


def measure() -> list[Row]:
    """Run once, with both."""
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / f"{number}.root") for number in range(FILES)]
        for seed, path in enumerate(files):
            nanoaod.write_events(path, seed, EVENTS)
        with (
            LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as local,
            Client(local) as client,
        ):
            client.wait_for_workers(WORKERS)
            run = processor.Runner(
                processor.DaskExecutor(client=client, status=False),
                schema=NanoAODSchema,
                chunksize=CHUNK,
                savemetrics=True,
            )
            instance = Processor()
            datasets = {"jets": {"files": dict.fromkeys(files, "Events")}}
            with MetricsCollector(client, processor_instance=instance) as collector:
                with record(Path(folder) / "run.diag") as recorded:
                    output, metrics = run(datasets, processor_instance=instance)
                collector.extract_metrics_from_output(output)
                collector.set_coffea_report(metrics)
            return compared(collector.get_metrics(), metrics, recorded.recording)


def compared(roast: dict[str, Any], metrics: dict[str, Any], recording: Any) -> list[Row]:
    """All numbers of both."""
    table, read = chunks(recording), branches(recording).to_dicts()
    (row,) = throughput(recording).to_dicts()
    tasks = recording.tasks
    is_chunk = np.isin(np.arange(len(tasks)), recording.chunks.task)
    cpu, off_cpu = tasks.thread_cpu, tasks.thread_noncpu
    processes = recording.processes
    of_workers = np.array([name.startswith("worker") for name in processes.worker.tolist()])
    own_branches = [one["branch"] for one in read[:-1]]
    block = "the recorded block; theirs includes what the collector does"
    wall = "theirs is wall time of the processor, summed over chunks"
    return [
        Row("Total Bytes Read", roast["total_bytes_read"], row["bytes"], "throughput: bytes"),
        Row(
            "Data Rate (MB/s)",
            roast["data_rate_gbps"] * 125,
            row["bytes_per_elapsed_second"] / 1e6,
            "throughput: bytes_per_elapsed_second",
            block,
        ),
        Row("Total Events", roast["total_events"], row["events"], "throughput: events"),
        Row(
            "Event Rate (Elapsed Time)",
            1e3 * roast["event_rate_elapsed_khz"],
            row["events_per_elapsed_second"],
            "throughput: events_per_elapsed_second",
            block,
        ),
        Row(
            "Event Rate (Total CPU)",
            1e3 * roast["event_rate_cpu_total_khz"],
            row["events_per_cpu_second"],
            "throughput: events_per_cpu_second",
            wall,
        ),
        Row(
            "Event Rate (Core-Averaged)",
            1e3 * roast["event_rate_core_khz"],
            row["events_per_elapsed_second"] / row["threads"],
            "events_per_elapsed_second / threads",
            block,
        ),
        Row("Workers (Time-Averaged)", roast["avg_workers"], row["workers"], "throughput: workers"),
        Row("Peak Workers", roast["peak_workers"], row["peak_workers"], "throughput: peak_workers"),
        Row("Total Cores", roast["total_cores"], row["peak_threads"], "throughput: peak_threads"),
        Row(
            "Core Efficiency",
            roast["core_efficiency"],
            row["core_efficiency"],
            "throughput: core_efficiency",
            "CPU time here; " + wall,
        ),
        Row(
            "Speedup Factor",
            roast["speedup_factor"],
            float(table["wall"].sum()) / row["elapsed"],
            "chunks: wall, over elapsed",
            "tasks here, theirs without opening files; " + block,
        ),
        Row(
            "Peak Memory (MB)",
            roast["peak_memory_bytes"] / 1e6,
            float(processes.memory[of_workers].max()) / 1e6,
            "table processes",
            "sampled at other times",
        ),
        Row(
            "Elapsed Time (s)",
            roast["elapsed_time_seconds"],
            row["elapsed"],
            "throughput: elapsed",
            block,
        ),
        Row("Total CPU Time (s)", roast["total_cpu_time"], row["cpu"], "throughput: cpu", wall),
        Row("Number of Chunks", roast["num_chunks"], len(table), "chunks"),
        Row(
            "Processor CPU Time (s)",
            roast["processor_cpu_time_seconds"],
            float(cpu[is_chunk].sum()),
            "summary: Processor",
            "distributed reads the clock around more than the task",
        ),
        Row(
            "Processor I/O & Waiting Time (s)",
            roast["processor_io_wait_time_seconds"],
            float(off_cpu[is_chunk].sum()),
            "summary: Processor",
            "as for CPU",
        ),
        Row(
            "Dask Overhead CPU Time (s)",
            roast["overhead_cpu_time_seconds"],
            float(cpu[~is_chunk].sum()),
            "summary: Overhead",
            "as for CPU",
        ),
        Row(
            "Mean Chunk Time (s)",
            roast["chunk_duration_mean"],
            float(table["wall"].mean()),
            "chunks: wall",
            "theirs begins when the file is open",
        ),
        Row(
            "Branches read",
            roast["total_branches_read"],
            len(own_branches),
            "branches",
        ),
        Row(
            "Bytes of branches read (%)",
            roast["avg_bytes_read_percent"],
            100 * sum(one["share"] for one in read[:-1]),
            "branches: share",
        ),
        Row(
            "Compression ratio",
            float(np.mean(roast["compression_ratios"])),
            1 / read[-1]["ratio"],
            "1 / branches: ratio",
        ),
        Row("coffea: entries", metrics["entries"], row["events"], "throughput: events"),
        Row("coffea: bytesread", metrics["bytesread"], row["bytes"], "throughput: bytes"),
        Row("coffea: chunks", metrics["chunks"], len(table), "chunks"),
        Row(
            "coffea: columns",
            len({name.rpartition("-")[0] for name in metrics["columns"]}),
            len(own_branches),
            "branches",
        ),
    ]


def is_alike(row: Row) -> bool:
    """Whether two numbers are equal but for half a percent."""
    return abs(row.other - row.own) <= ALIKE * max(abs(row.other), abs(row.own))


def table_of(rows: list[Row]) -> str:
    """The table of the page."""
    lines = [
        f".. list-table:: {FILES * EVENTS:,} events in {FILES} files on {WORKERS} workers",
        "   :header-rows: 1",
        "",
        *_cells("roastcoffea, coffea", "theirs", "dask_diag", "where", "why they differ"),
    ]
    for row in rows:
        numbers = (f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}" for value in row[1:3])
        lines += _cells(row.name, *numbers, row.where, "" if is_alike(row) else row.why)
    return "\n".join([*lines, ""])


def _cells(*cells: str) -> list[str]:
    return [f"   {'* -' if n == 0 else '  -'} {cell}".rstrip() for n, cell in enumerate(cells)]


if __name__ == "__main__":
    made = measure()
    unexplained = [row for row in made if not is_alike(row) and not row.why]
    print(table_of(made))
    if unexplained:
        sys.exit(f"not alike, and without a reason: {unexplained}")
    PAGE.write_text(table_of(made), encoding="utf-8")
