"""Trace in Chrome's trace event format, for Perfetto and chrome://tracing.

Times are microseconds since recording began, with three digits after the point. Readers sort events
by time and keep the file's order at equal times: tasks come before their flows. Perfetto shows
escapes in arguments as written: arguments have few.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from math import isnan
from typing import NamedTuple

import numpy as np

from dask_diag._version import __version__
from dask_diag.analysis.groups import rows_by
from dask_diag.analysis.occupancy import ready_tasks
from dask_diag.analysis.task_times import computation_stops, start_times
from dask_diag.columns import Array, BoolArray, Categorical, FloatArray, IntArray
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.model.tables import Computations
from dask_diag.views.escaping import shown
from dask_diag.views.exports.tables import ROWS, chunks, with_lines


class Track(NamedTuple):
    """A line of a trace: process, thread and name."""

    pid: int
    tid: int
    name: str


class Tracks:
    """A track for each thread of each process that ran tasks.

    Threads have numbers of their own, different from those of processes: numbers of the operating
    system are too large for some readers, and a thread with its process's number is taken for the
    main thread.

    Attributes
    ----------
    workers : list of Track
    of_tasks : array of int, shape (tasks,)
        Position of each placed task's track in `workers`.
    placed : array of bool, shape (tasks,)
        Whether a task has a track. Start or worker of other tasks are unknown, for example of tasks
        in flight when their computation stopped.
    about : int
        A number that no process has, for events of no worker.
    """

    def __init__(self, recording: Recording) -> None:
        self._origin = recording.start
        tasks = recording.tasks
        self.workers: list[Track] = []
        self.of_tasks: IntArray = np.zeros(0, np.int64)
        self.placed: BoolArray = np.zeros(0, bool)
        self.about = 1
        if not len(tasks):
            return
        names = ("worker", "pid", "thread")
        pids = np.array(tasks["pid"].values, np.int64)
        self.placed = ~np.isnan(tasks["start"]) & (pids[tasks["pid"].codes] > 0)
        ran = np.flatnonzero(self.placed)
        numbers, rows = distinct([tasks[name][ran] for name in names])
        self.of_tasks = np.zeros(len(tasks), np.int64)
        self.of_tasks[ran] = numbers
        described = [tuple(tasks[name][int(row)] for name in names) for row in ran[rows]]
        self.about = max((int(pid) for _, pid, _ in described), default=0) + 1
        self.workers = [
            Track(int(pid), self.about + 1 + number, str(worker))
            for number, (worker, pid, _) in enumerate(described)
        ]

    def nanoseconds(self, times: FloatArray) -> IntArray:
        """Whole nanoseconds since recording began; the last one for unknown times."""
        since = np.nan_to_num((times - self._origin) * 1e9, nan=2**53)
        return np.asarray(np.rint(since).astype(np.int64))

    def microseconds(self, times: FloatArray, since: FloatArray | None = None) -> FloatArray:
        """Microseconds since recording began, or since other times, to the nanosecond."""
        nanoseconds = self.nanoseconds(times)
        if since is not None:
            nanoseconds = np.maximum(nanoseconds - self.nanoseconds(since), 0)
        return np.asarray(nanoseconds / 1000)

    def processes(self) -> Iterator[tuple[int, str]]:
        """The number and name of each process."""
        yield self.about, "dask_diag"
        for pid in dict.fromkeys(track.pid for track in self.workers):
            yield pid, f"process {pid}"


def bounds_of_tasks(recording: Recording) -> tuple[FloatArray, FloatArray]:
    """Start and stop of each task; if unknown, its submission and its computation's stop."""
    tasks = recording.tasks
    stops = np.where(np.isnan(tasks["start"]), tasks["collected"], tasks["stop"])
    unknown = np.isnan(stops)
    return start_times(recording), np.where(unknown, computation_stops(recording), stops)


def distinct(columns: Sequence[Categorical]) -> tuple[Array, Array]:
    """A number for each row, equal for rows with equal columns; and a row of each number."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        combined = codes * len(column.values) + column.codes
        _, rows, codes = np.unique(combined, return_index=True, return_inverse=True)
    return codes, rows


_LONGEST = 400
_MOST_STEPS = 100_000
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode


def computations(recording: Recording, tracks: Tracks) -> Iterator[list[str]]:
    """Computations, and spans from the first task to the last within a computation."""
    intervals = (*_rows_of_computations(recording.computations), *_rows_of_spans(recording))
    for identity, (name, category, start, stop, args) in enumerate(intervals, 1):
        first, last = tracks.nanoseconds(np.array([start, stop])) / 1000
        event = {
            "name": name,
            "cat": category,
            "id2": {"local": f"{category} {identity}"},
            "pid": tracks.about,
            "tid": tracks.about,
        }
        yield [
            _encode({"ph": "b", **event, "ts": float(first), "args": args}),
            _encode({"ph": "e", **event, "ts": float(max(first, last))}),
        ]


Interval = tuple[str, str, float, float, dict[str, object]]
"""A name, a category, start and stop in seconds, and arguments."""


def _rows_of_computations(computations: Computations) -> Iterator[Interval]:
    for row in computations.to_dicts():
        args = {
            name: shown(value, _LONGEST) if isinstance(value, str) else value
            for name, value in row.items()
            if name not in ("start", "stop") and not (isinstance(value, float) and isnan(value))
        }
        yield "computation", "computation", row["start"], row["stop"], args


def _rows_of_spans(recording: Recording) -> Iterator[Interval]:
    tasks = recording.tasks
    if not len(tasks) or not any(tasks["span"].values):
        return
    starts, stops = bounds_of_tasks(recording)
    spans, computations = tasks["span"], tasks["computation"]
    both = spans.codes.astype(np.int64) * len(computations.values) + computations.codes
    for code in np.unique(both).tolist():
        span, computation = divmod(code, len(computations.values))
        if spans.values[span]:
            rows = both == code
            args = {
                "computation": shown(computations.values[computation]),
                "tasks": int(rows.sum()),
            }
            name = shown(spans.values[span], _LONGEST)
            yield name, "span", starts[rows].min(), stops[rows].max(), args


def counters(recording: Recording, tracks: Tracks) -> Iterator[list[str]]:
    """CPU and memory, and how many tasks were ready to run."""

    def lines(name: str, times: FloatArray, **series: Array) -> Iterator[list[str]]:
        head = f'{{"ph":"C","name":{_encode(shown(name))},"pid":{tracks.about},'
        names = [_encode(label) for label in series]
        for first in range(0, len(times), ROWS):
            part = slice(first, first + ROWS)
            yield [
                f'{head}"tid":{tracks.about},"ts":{ts},"args":{{'
                + ",".join(f"{label}:{value}" for label, value in zip(names, values, strict=True))
                + "}}"
                for ts, *values in zip(
                    tracks.microseconds(times[part]).tolist(),
                    *(values[part].tolist() for values in series.values()),
                    strict=True,
                )
            ]

    ready = ready_tasks(recording).thinned(_MOST_STEPS)
    yield from lines("tasks", ready.times, ready=ready.amounts)
    samples = recording.resources
    if len(samples):
        # A sample's share of CPU is that of the interval that it ends.
        began = np.concatenate([[recording.start], samples["time"][:-1]])
        yield from lines("CPU", began, **{"%": samples["cpu"]})
        own, children = samples["memory"] / 1e6, samples["memory_children"] / 1e6
        both = {"this process (MB)": own, "child processes (MB)": children}
        yield from lines("memory", samples["time"], **both)
    for label, rows in rows_by(recording.memory.label).items():
        series = recording.memory.filter(rows)
        for measure in ("rss", "pss", "uss"):
            measured = series.filter(~np.isnan(series[measure]))
            yield from lines(
                f"memory in {label}",
                measured["time"],
                **{f"{measure} (MB)": measured[measure] / 1e6},
            )


def texts_of_trace(recording: Recording) -> Iterator[str]:
    """The texts of the trace."""
    yield f'{{"displayTimeUnit":"ms","otherData":{_encode(_about(recording))},"traceEvents":['
    # Every event is on a line of its own, and all but the first come after a comma.
    comma = ""
    for lines in _events(recording):
        yield comma + "\n"
        yield ",\n".join(lines)
        comma = ","
    yield "\n]}\n"


def _about(recording: Recording) -> dict[str, object]:
    return {
        "made by": f"dask_diag {__version__}",
        "began (s since 1970)": recording.start + recording.epoch,
        "state": recording.state,
        "notices": [shown(notice, _LONGEST) for notice in recording.notices],
    }


def _events(recording: Recording) -> Iterator[list[str]]:
    """The events, many at a time."""
    tracks = Tracks(recording)
    yield list(_metadata(tracks))
    for part in (
        _tasks(recording, tracks),
        _flows(recording, tracks),
        computations(recording, tracks),
        counters(recording, tracks),
    ):
        yield from (lines for lines in part if lines)


def _metadata(tracks: Tracks) -> Iterator[str]:
    def event(what: str, pid: int, tid: int, **args: object) -> str:
        return _encode({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args})

    for position, (pid, name) in enumerate(tracks.processes()):
        yield event("process_name", pid, pid, name=name)
        yield event("process_sort_index", pid, pid, sort_index=position)
    for position, track in enumerate(tracks.workers):
        yield event("thread_name", track.pid, track.tid, name=shown(track.name))
        yield event("thread_sort_index", track.pid, track.tid, sort_index=position)


def _tasks(recording: Recording, tracks: Tracks) -> Iterator[list[str]]:
    """Tasks on the tracks of their workers; tasks of unknown time or place without a track."""
    tasks = recording.tasks
    if not len(tasks):
        return
    starts, stops = bounds_of_tasks(recording)
    columns = (
        np.arange(len(tasks)),
        tracks.placed,
        tracks.microseconds(starts),
        tracks.microseconds(stops, since=starts),
        tracks.of_tasks,
        tasks["thread_cpu"],
        tasks["key"],
        _names(tasks["function"]),
        _shared_arguments(with_lines(recording)),
    )
    where = [f'"pid":{track.pid},"tid":{track.tid}' for track in tracks.workers]
    no_track = f'"pid":{tracks.about},"tid":{tracks.about}'
    for values in zip(*(chunks(column) for column in columns), strict=True):
        lines = []
        for row, placed, ts, dur, track, cpu, key, name, alike in zip(*values, strict=True):
            args = (
                f'"args":{{"key":{_key(key)},"task":{row},'
                f'"thread_cpu (s)":{"null" if isnan(cpu) else cpu},{alike}}}}}'
            )
            if placed:
                named = f'{{"ph":"X","name":{name},"cat":"task",{where[track]}'
                lines.append(f'{named},"ts":{ts},"dur":{dur},{args}')
            else:
                named = f'"name":"not placed: {name[1:]},"cat":"task",{no_track}'
                named += f',"id2":{{"local":"{row}"}}'
                lines.append(f'{{"ph":"b",{named},"ts":{ts},{args}')
                lines.append(f'{{"ph":"e",{named},"ts":{round(ts + dur, 3)}}}')
        yield lines


def _names(functions: Categorical) -> Categorical:
    names = [_encode(shown(name, _LONGEST) or "(no name)") for name in functions.values]
    return Categorical(functions.codes, names)


def _shared_arguments(tasks: Table) -> Categorical:
    """Arguments that many tasks share, as text that is made once."""
    names = ("function", "line", "computation", "span", "outcome", "error")
    codes, rows = distinct([tasks[name] for name in names])
    arguments = [
        {name: shown(tasks[name][int(row)], _LONGEST) for name in names} for row in rows.tolist()
    ]
    return Categorical(codes, [_encode(values)[1:-1] for values in arguments])


def _key(key: str) -> str:
    return _encode(key if key.isprintable() and len(key) <= _LONGEST else shown(key, _LONGEST))


def _flows(recording: Recording, tracks: Tracks) -> Iterator[list[str]]:
    """An arrow from the end of each task to the start of each dependent task."""
    dependencies = recording.dependencies
    if not len(dependencies):
        return
    starts, stops = bounds_of_tasks(recording)
    first_ns = tracks.nanoseconds(starts)
    # In the task's last nanosecond: at its end the next one may have started.
    last_ns = np.maximum(tracks.nanoseconds(stops) - 1, first_ns)
    drawn = np.flatnonzero(
        tracks.placed[dependencies["task"]] & tracks.placed[dependencies["depends_on"]]
    )
    where = [f'"pid":{track.pid},"tid":{track.tid}' for track in tracks.workers]
    named = '"name":"dependencies","cat":"dependencies"'
    for first in range(0, len(drawn), ROWS):
        edges = drawn[first : first + ROWS]
        source, target = dependencies["depends_on"][edges], dependencies["task"][edges]
        lines = []
        for edge, origin, out, goal, into in zip(
            (edges + 1).tolist(),
            tracks.of_tasks[source].tolist(),
            (last_ns[source] / 1000).tolist(),
            tracks.of_tasks[target].tolist(),
            (first_ns[target] / 1000).tolist(),
            strict=True,
        ):
            lines.append(f'{{"ph":"s",{named},"id":{edge},{where[origin]},"ts":{out}}}')
            lines.append(f'{{"ph":"f","bp":"e",{named},"id":{edge},{where[goal]},"ts":{into}}}')
        yield lines
