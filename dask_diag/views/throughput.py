"""Throughput as a table, and in a line of the summary."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan

from dask_diag.analysis.step_functions import seconds_computing
from dask_diag.analysis.throughput import throughput
from dask_diag.formatting import amount, count, counted, percent, seconds, size
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.views.escaping import shown
from dask_diag.views.summary_text import SummaryParts
from dask_diag.views.text import Record, Summary, make_summary

__all__ = ["throughput_line", "throughput_summary"]

_HEADINGS = ("", "tasks", "threads", "CPU", "efficiency", "events/s", "bytes/s")
_SHOWN = 20


def throughput_summary(recording: Recording, total: Table, parts: Table, by: str) -> Summary:
    """What `dask_diag.throughput` says of all tasks of a recording, and by function or worker."""
    (all_tasks,) = total.to_dicts()
    rows = [_row(shown(row[by]), row) for row in parts.to_dicts()[:_SHOWN]]
    more = len(parts) - len(rows)
    return make_summary(
        SummaryParts(
            headline=f"{counted(all_tasks['tasks'], 'task')} done in {seconds(all_tasks['wall'])}",
            columns=(by, *_HEADINGS[1:]),
            rows=[*rows, _row("total", all_tasks)],
            lines=[("Wall", _wall(recording, all_tasks)), *_lines(all_tasks)],
            notices=[f"{counted(more, f'more {by}')} not shown"] if more else [],
        )
    )


def throughput_line(recording: Recording) -> Iterator[tuple[str, str]]:
    """The rates of events and bytes, where tasks metered them."""
    if not {"events", "bytes"} & set(recording.metrics.unit.tolist()):
        return
    (row,) = throughput(recording).to_dicts()
    rates = [text for unit in ("events", "bytes") for text in _rates(row, unit)]
    if rates:
        yield (
            "Throughput",
            "; ".join([*rates, f"core efficiency {percent(row['core_efficiency'])}"]),
        )


def _wall(recording: Recording, row: Record) -> str:
    """What the rates are of, beside the times that a summary has."""
    computing = seconds_computing(recording.computations)
    return (
        f"{seconds(row['wall'])} of computations and the preparation of their graphs, "
        f"{seconds(computing)} without it; the recording is of "
        f"{seconds(recording.stop - recording.start)}"
    )


def _lines(row: Record) -> Iterator[tuple[str, str]]:
    yield "Workers", f"{_mean(row['workers'])} on average, peak {count(row['peak_workers'])}"
    yield "Threads", f"{_mean(row['threads'])} on average, peak {count(row['peak_threads'])}"
    efficiency = percent(row["core_efficiency"])
    yield "Core efficiency", f"{efficiency}: {seconds(row['cpu'])} of CPU / (threads × wall)"
    if row["cpu_unknown"]:
        yield "CPU not known", f"of {seconds(row['cpu_unknown'])} of tasks, which are not in it"
    for unit in ("events", "bytes"):
        for text in _rates(row, unit):
            yield unit.capitalize(), f"{_quantity(row[unit], unit)}: {text}"


def _rates(row: Record, unit: str) -> Iterator[str]:
    if isnan(row[unit]):
        return
    rates = {
        "/s": f"{unit}_per_second",
        "/s per core": f"{unit}_per_core",
        " per CPU second": f"{unit}_per_cpu_second",
    }
    yield ", ".join(f"{_quantity(row[name], unit)}{text}" for text, name in rates.items())


def _quantity(value: float, unit: str) -> str:
    return size(value) if unit == "bytes" else f"{amount(value)} {unit}"


def _mean(value: float) -> str:
    return "unknown" if isnan(value) else amount(value)


def _row(name: str, row: Record) -> tuple[str, ...]:
    return (
        name,
        count(row["tasks"]),
        _mean(row["threads"]),
        seconds(row["cpu"]),
        percent(row["core_efficiency"]),
        "" if isnan(row["events_per_second"]) else amount(row["events_per_second"]),
        "" if isnan(row["bytes_per_second"]) else size(row["bytes_per_second"]),
    )
