"""One run on a cluster, as distributed, roastcoffea and dask_diag describe it.

``python docs/side_by_side.py`` runs tasks whose CPU and events are known by construction; it
writes the tables of the page. A test runs the same and compares.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dask.sizeof import sizeof
from distributed import Client, LocalCluster, span
from distributed.metrics import context_meter as meter_of_distributed

from dask_diag import Profiler, context_meter, throughput

PAGE = Path(__file__).with_name("side_by_side_tables.txt")
EVENTS = 1_000
CHUNKS = 6


def spin(seconds: float) -> None:
    """Use so many seconds of CPU."""
    start = time.thread_time()
    while time.thread_time() - start < seconds:
        pass


class Slow:
    """A result whose size takes CPU to find out, as that of a large table does."""


@sizeof.register(Slow)
def size_of_slow(value: Slow) -> int:
    spin(0.2)
    return 100


def spins() -> None:
    spin(0.6)


def sleeps() -> None:
    time.sleep(0.6)


def reads_then_spins() -> None:
    with meter_of_distributed.meter("read"):
        time.sleep(0.6)
    spin(0.6)


async def spins_in_steps() -> None:
    for _ in range(20):
        spin(0.02)
        await asyncio.sleep(0)


def makes_a_table() -> Slow:
    spin(0.1)
    return Slow()


def fails() -> None:
    spin(0.2)
    raise ValueError


class Truth(NamedTuple):
    """What one task takes by construction."""

    cpu: float
    noncpu: float
    why: str


TASKS: Mapping[Callable[[], Any], Truth] = {
    spins: Truth(0.6, 0.0, ""),
    sleeps: Truth(0.0, 0.6, ""),
    reads_then_spins: Truth(0.6, 0.0, "a task that meters has no ``thread-cpu``"),
    spins_in_steps: Truth(0.4, 0.0, "coroutines have none, either"),
    makes_a_table: Truth(0.1, 0.0, "the CPU of ``sizeof(result)`` is added to the task's"),
    fails: Truth(0.2, 0.0, "a failed task is one number, ``failed``"),
}
"""The tasks, with what distributed says of them otherwise; empty where it is right."""


def process(chunk: int) -> int:
    """A chunk of events: as much waiting as CPU."""
    context_meter.digest_metric("events", EVENTS, "events")
    time.sleep(0.2)
    spin(0.2)
    return EVENTS


class Measured(NamedTuple):
    """What each says of one run."""

    distributed: dict[tuple[str, ...], float]
    dask_diag: dict[tuple[str, str, str, str], float]
    failed_cpu: float
    report: dict[str, float]
    elapsed: float
    throughput: dict[str, float]


def measure() -> Measured:
    """Run all tasks, one after the other; then the chunks on both workers."""
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            protocol="inproc",
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        with Profiler() as prof, span("tasks") as tasks:
            for function in TASKS:
                client.submit(function, pure=False).exception()
        distributed = metrics_of_span(client, tasks)
        with Profiler() as chunks:
            start = time.perf_counter()
            client.gather(client.map(process, range(CHUNKS), pure=False))
            elapsed = time.perf_counter() - start
    table = chunks.recording.tasks
    failed = prof.recording.tasks
    (row,) = throughput(chunks.recording).to_dicts()
    return Measured(
        distributed,
        prof.metrics,
        float(failed.thread_cpu[failed.outcome.eq("failed")].sum()),
        # As the Runner of coffea makes it: the processing time is wall time.
        {
            "entries": CHUNKS * EVENTS,
            "processtime": float((table.stop - table.start).sum()),
            "chunks": CHUNKS,
        },
        elapsed,
        row,
    )


def metrics_of_span(client: Client, name: str) -> dict[tuple[str, ...], float]:
    """What workers have measured of a span, all of which have sent a heartbeat with it."""
    client.run(send_heartbeat)
    spans = client.cluster.scheduler.extensions["spans"].spans
    return dict(spans[name].cumulative_worker_metrics)


async def send_heartbeat(dask_worker: Any) -> None:
    """Have a worker send what it has measured now; on its own it does about twice a second."""
    await dask_worker.heartbeat()


def roastcoffea(report: Mapping[str, float], elapsed: float, cores: float) -> dict[str, float]:
    """The numbers of roastcoffea's tables, as its reference of metrics defines them."""
    events, cpu = report["entries"], report["processtime"]
    return {
        "Event Rate (Elapsed Time)": events / elapsed,
        "Event Rate (Total CPU)": events / cpu,
        "Event Rate (Core-Averaged)": events / (elapsed * cores),
        "Core Efficiency": cpu / (elapsed * cores),
        "Total CPU Time": cpu,
    }


COLUMNS = {
    "Event Rate (Elapsed Time)": "events_per_second",
    "Event Rate (Total CPU)": "events_per_cpu_second",
    "Event Rate (Core-Averaged)": "events_per_core",
    "Core Efficiency": "core_efficiency",
    "Total CPU Time": "cpu",
}
"""The columns of `throughput` that mean the same."""

TRUE = {
    "Event Rate (Total CPU)": EVENTS / 0.2,
    "Total CPU Time": 0.2 * CHUNKS,
}
"""What is so by construction."""


def tables(measured: Measured) -> str:
    """Both tables of the page."""
    lines = [
        ".. list-table:: CPU seconds of tasks",
        "   :header-rows: 1",
        "",
        *_row("task", "true", "distributed", "dask_diag", "why"),
    ]
    for function, truth in TASKS.items():
        name = function.__name__
        other = measured.distributed.get(("execute", name, "thread-cpu", "seconds"))
        own = measured.dask_diag.get(("execute", name, "thread-cpu", "seconds"), 0.0)
        own = measured.failed_cpu if function is fails else own
        shown = "none" if other is None else f"{other:.2f}"
        lines += _row(f"``{name}``", f"{truth.cpu:.2f}", shown, f"{own:.2f}", truth.why)
    lines += [
        "",
        f".. list-table:: {CHUNKS} chunks of {EVENTS:,} events on 2 workers, each 0.2 s of sleep "
        "and 0.2 s of CPU",
        "   :header-rows: 1",
        "",
        *_row("roastcoffea's name", "true", "roastcoffea", "dask_diag", "column of `throughput`"),
    ]
    other = roastcoffea(measured.report, measured.elapsed, 2)
    for name, column in COLUMNS.items():
        true = f"{TRUE[name]:,.2f}" if name in TRUE else ""
        own = f"{measured.throughput[column]:,.2f}"
        lines += _row(name, true, f"{other[name]:,.2f}", own, f"``{column}``")
    return "\n".join([*lines, ""])


def _row(*cells: str) -> list[str]:
    return [f"   {'* -' if n == 0 else '  -'} {cell}".rstrip() for n, cell in enumerate(cells)]


if __name__ == "__main__":
    PAGE.write_text(tables(measure()), encoding="utf-8")
