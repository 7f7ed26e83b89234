"""What the page about distributed and roastcoffea says is so: the run of the page, measured again."""

import importlib.util
import time
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from distributed import span

from dask_diag import Profiler

from .clusters import cluster, spin

DOCS = Path(__file__).parents[1] / "docs"


def _side_by_side():
    spec = importlib.util.spec_from_file_location("side_by_side", DOCS / "side_by_side.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGE = _side_by_side()


@pytest.mark.truth
@pytest.mark.once
def test_the_tables_of_the_page(retried):
    def measure():
        measured = PAGE.measure()
        for function, truth in PAGE.TASKS.items():
            name = function.__name__
            own = measured.dask_diag.get(("execute", name, "thread-cpu", "seconds"), 0.0)
            if function is PAGE.fails:
                own = measured.failed_cpu
            assert own == pytest.approx(truth.cpu, abs=0.02)
            # It is wrong of those tasks of which the page says why, and of no other.
            other = measured.distributed.get(("execute", name, "thread-cpu", "seconds"), 0.0)
            assert (other == pytest.approx(truth.cpu, abs=0.02)) is not bool(truth.why)
        rates = PAGE.roastcoffea(measured.report, measured.elapsed, 2)
        for name, true in PAGE.TRUE.items():
            assert measured.throughput[PAGE.COLUMNS[name]] == pytest.approx(true, rel=0.02)
            assert rates[name] != pytest.approx(true, rel=0.5)
        for name in ("Event Rate (Elapsed Time)", "Event Rate (Core-Averaged)"):
            assert measured.throughput[PAGE.COLUMNS[name]] == pytest.approx(rates[name], rel=0.05)

    retried(measure)


def test_the_page_has_what_the_script_writes():
    text = PAGE.PAGE.read_text(encoding="utf-8")
    for function, truth in PAGE.TASKS.items():
        assert f"* - ``{function.__name__}``\n     - {truth.cpu:.2f}" in text
        assert truth.why in text
    for name, column in PAGE.COLUMNS.items():
        assert f"* - {name}\n" in text
        assert f"``{column}``" in text


def test_the_names_of_roastcoffea_are_calculated_as_there():
    workflow = pytest.importorskip("roastcoffea.aggregation.workflow")
    efficiency = pytest.importorskip("roastcoffea.aggregation.efficiency")
    report = {"entries": 6_000, "processtime": 3.0, "chunks": 6, "bytesread": 1}
    of_workflow = workflow.aggregate_workflow_metrics(report, 0.0, 2.0)
    of_cores = efficiency.calculate_efficiency_metrics(of_workflow, {"total_cores": 4.0})
    assert PAGE.roastcoffea(report, 2.0, 4.0) == {
        "Event Rate (Elapsed Time)": 1e3 * of_workflow["event_rate_elapsed_khz"],
        "Event Rate (Total CPU)": 1e3 * of_workflow["event_rate_cpu_total_khz"],
        "Event Rate (Core-Averaged)": 1e3 * of_cores["event_rate_core_khz"],
        "Core Efficiency": of_cores["core_efficiency"],
        "Total CPU Time": of_workflow["total_cpu_time"],
    }


@pytest.mark.truth
def test_equal_to_the_metrics_of_a_span_where_distributed_is_right(retried):
    """CPU of what spins, the rest of what sleeps, and what tasks meter: to 1%."""
    from distributed.metrics import context_meter as meter_of_distributed

    def spins(seconds):
        spin(seconds)

    def sleeps(seconds):
        time.sleep(seconds)

    def meters(n):
        meter_of_distributed.digest_metric("events", n, "events")
        meter_of_distributed.digest_metric("read", 8 * n, "bytes")

    def measure():
        with cluster() as client, Profiler() as prof, span("all") as name:
            for function, arguments in ((spins, [0.5, 0.4]), (sleeps, [1.0]), (meters, [30, 12])):
                for argument in arguments:
                    client.submit(function, argument, pure=False).result()
            expected = PAGE.metrics_of_span(client, name)
        compared = [
            ("execute", "spins", "thread-cpu", "seconds"),
            ("execute", "sleeps", "thread-noncpu", "seconds"),
            ("execute", "meters", "events", "events"),
            ("execute", "meters", "read", "bytes"),
        ]
        for key in compared:
            assert prof.metrics[key] == pytest.approx(expected[key], rel=0.01), key

    retried(measure)
