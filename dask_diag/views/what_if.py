"""``what_if``, and its predictions as a table: for a terminal, a notebook, or a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dask_diag.analysis.memory import memory_headroom
from dask_diag.analysis.simulation.change import is_number_of_workers
from dask_diag.analysis.simulation.simulate import Simulator, is_of_cluster, number_of_workers
from dask_diag.analysis.what_if import predictions
from dask_diag.errors import DiagnosticError
from dask_diag.formatting import amount, percent, seconds
from dask_diag.model.codes import Activity
from dask_diag.model.recording import Recording, Sources
from dask_diag.model.table import Table
from dask_diag.views.cell import table_summary
from dask_diag.views.escaping import shown
from dask_diag.views.text import Summary

HEADINGS = ("what if", "predicted", "gain", "times as fast")
_NUMBERS = ("workers", "threads")
_REMOVED = {
    Activity.GRAPH: "graph preparation",
    Activity.STARTUP: "start-up",
    Activity.OVERHEAD: "scheduling overhead",
    Activity.SERIALIZE: "serialization",
    Activity.DESERIALIZE: "deserialization",
    Activity.TRANSFER: "transfers between workers",
    Activity.NONCPU: "time off the CPU",
    Activity.CPU_WAIT: "waits for CPUs",
    Activity.GIL_WAIT: "waits for the GIL",
    Activity.LOCK_WAIT: "waits for locks",
    Activity.THREAD_WAIT: "waits for other threads",
    Activity.IO_WAIT: "waits for I/O",
    Activity.CHILD_WAIT: "waits for programs",
    Activity.SLEEP: "sleeping",
    Activity.DEVICE_WAIT: "waits for a device",
    Activity.PAGE_FAULT: "waits for memory",
    Activity.UNEXPLAINED: "unexplained waits",
}
"""Activities as words behind "no"."""
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


class WhatIfTable(Table):
    """The table of `what_if`, which a notebook shows as the command line does."""

    recording: Recording | None = None

    def _repr_html_(self) -> str:
        # Of a part of the rows it is not known what they are compared with.
        if self.recording is None:
            return super()._repr_html_()
        return what_if_summary(self, self.recording)._repr_html_()


def what_if(
    source: Sources,
    workers: float | Iterable[float] = (),
    *,
    threads: float | Iterable[float] = (),
) -> WhatIfTable:
    """Predict the wall time for changes that are worth considering.

    Parameters
    ----------
    source : Recording, profiler, or list of these
        Measurements with tasks. Several are combined.
    workers : int, or iterable of int, optional
        Numbers of workers of a local scheduler to try, in addition to two times and four times the
        recorded number, and unlimited; of processes only if that is no slower. Default: none.
    threads : int, or iterable of int, optional
        The same for a cluster: numbers of threads of all workers together. Default: none.

    Returns
    -------
    Table
        A row per change, shown in a notebook in words. Columns:

        * ``kind``: ``recorded`` (no change), ``workers`` (on a cluster ``threads``), ``chunks``
          (larger chunks, merging several tasks into one), ``function`` (twice as fast) or
          ``activity`` (takes no time).
        * ``name``: the number of workers or of merged tasks, the function, or the activity.
        * ``seconds``: predicted wall time; ``gain``: seconds saved, compared with the prediction
          without a change; ``speedup``: their ratio.

    Raises
    ------
    DiagnosticError
        If a number of workers or threads is not a positive integer or ``math.inf``.

    See Also
    --------
    simulate : Predict one change of your own.

    Notes
    -----
    Only more workers may have a negative gain, such as of processes that have to start. Gains do
    not add up: two changes that each save 1 s may together save less than 2 s.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_diag import Profiler, what_if
    >>> with Profiler() as prof:
    ...     total = da.ones((500, 500), chunks=(250, 250)).sum().compute()
    >>> what_if(prof).columns
    ('kind', 'name', 'seconds', 'gain', 'speedup')
    """
    simulator = Simulator(source)
    given = number_of_workers(simulator.recording, workers, threads)
    numbers: list[float] = [*given] if isinstance(given, Iterable) else [given]
    # Before they are sorted, which not all values can be.
    wrong = [number for number in numbers if not is_number_of_workers(number)]
    if wrong:
        name = "threads" if is_of_cluster(simulator.recording) else "workers"
        raise DiagnosticError(f"{name}: expected positive integers, or inf, found {wrong[0]!r}")
    table = predictions(simulator, numbers)
    columns = {name: table[name] for name in table.columns}
    made = WhatIfTable(columns).in_units(seconds="s", gain="s")
    made.recording = simulator.recording
    return made


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
    return f"no {_REMOVED.get(name, name)}"
