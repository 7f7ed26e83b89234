"""Predictions of the simulator as a table: for a terminal, a notebook, or a report."""

from __future__ import annotations

from collections.abc import Iterator

from dask_diag.analysis.memory import memory_headroom
from dask_diag.analysis.simulation.simulate import is_of_cluster
from dask_diag.formatting import amount, percent, seconds
from dask_diag.model.codes import Activity
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.views.cell import table_summary
from dask_diag.views.escaping import shown
from dask_diag.views.text import Summary

HEADINGS = ("what if", "predicted", "gain", "times as fast")
_NUMBERS = ("workers", "threads")
_NEGLIGIBLE = 0.0005
_NOTE = (
    "The recorded graph is replayed on the same machine: tasks that need a CPU share those that it "
    "has. Changes do not add up."
)
_NOTE_ON_CLUSTERS = (
    "Threads are those of all workers, with as many in each worker as recorded. Not predicted: "
    "memory and spilling, tasks of other clients, tasks that only some workers may run, and tasks "
    "that the client would submit earlier."
)
_NOTE_WITHOUT_CHUNKS = (
    "Larger chunks are not predicted: twice as large, they would leave a worker without a task "
    "(or the recording's dependencies are damaged)."
)


def notes(recording: Recording, table: Table) -> list[str]:
    """Sentences needed to read the table."""
    has_chunks = table["kind"].eq("chunks").any()
    return [
        _NOTE,
        *_note_on_memory(recording, table),
        *[_NOTE_ON_CLUSTERS] * is_of_cluster(recording),
        *[_NOTE_WITHOUT_CHUNKS] * (not has_chunks),
    ]


def _note_on_memory(recording: Recording, table: Table) -> list[str]:
    """Number of workers that fit into memory, if known and exceeded by the table."""
    numbers = table.filter(table["kind"].is_in(_NUMBERS))["name"].tolist()
    asked = [int(number) for number in numbers if number.isdecimal()]
    headroom = memory_headroom(recording)
    if headroom.most >= max(asked, default=0):
        return []
    return [f"By the recorded memory, {headroom}."]


def what_if_summary(table: Table, recording: Recording) -> Summary:
    """The table that `dask_diag.what_if` made of a recording, at most 80 columns wide."""
    measured = recording.stop - recording.start
    rows = list(prediction_rows(table))
    recorded = float(table["seconds"][0])
    heading = (
        f"Wall time measured: {seconds(measured)}; replayed as recorded: {seconds(recorded)} "
        f"({percent(recorded / measured) if measured else 'unknown'})"
    )
    return table_summary(heading, HEADINGS, rows, notes(recording, table) if len(rows) > 1 else [])


def prediction_rows(table: Table) -> Iterator[tuple[str, ...]]:
    """Cells of each change, and of the recording as it was."""
    first, *changes = table.to_dicts()
    for row in changes:
        share = row["gain"] / first["seconds"] if first["seconds"] else 0.0
        no_gain = abs(share) < _NEGLIGIBLE
        gain = "none" if no_gain else f"{seconds(row['gain'])} ({percent(share)})"
        label = _label(row["kind"], shown(row["name"], 24))
        yield label, seconds(row["seconds"]), gain, f"{amount(row['speedup'])}×"
    yield "as recorded", seconds(first["seconds"]), "", ""


def _label(kind: str, name: str) -> str:
    if kind in _NUMBERS:
        return f"{name} {kind[:-1] if name == '1' else kind}"
    if kind == "chunks":
        return f"chunks {name} times as large"
    if kind == "function":
        return f"{name} twice as fast"
    return "no unexplained waits" if name == Activity.UNEXPLAINED else f"no {name}"
