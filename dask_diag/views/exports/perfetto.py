"""A trace in Chrome's trace event format, which Perfetto and chrome://tracing open.

Times are microseconds from when recording began, with three digits after the point. Readers sort
events by time and keep the order of the file among those of one time: so tasks come before the
flows that are bound to them. Perfetto shows escapes in arguments as they are: so there are as few
as can be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import isnan
from pathlib import Path

import numpy as np

from dask_diag._version import __version__
from dask_diag.atomic_files import open_text
from dask_diag.columns import Categorical
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.views.escaping import shown
from dask_diag.views.exports.cells import ROWS, chunks
from dask_diag.views.exports.perfetto_context import computations, counters
from dask_diag.views.exports.tracks import Tracks, bounds_of_tasks, distinct

__all__ = ["write_file"]

_LONGEST = 400
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode


def write_file(recording: Recording, path: Path, compressed: bool) -> None:
    """Write the trace."""
    with open_text(path, compressed=compressed) as stream:
        stream.write(f'{{"displayTimeUnit":"ms","otherData":{_encode(_about(recording))},')
        stream.write('"traceEvents":[')
        # Every event is on a line of its own, and all but the first come after a comma.
        comma = ""
        for lines in _events(recording):
            stream.write(comma + "\n")
            stream.write(",\n".join(lines))
            comma = ","
        stream.write("\n]}\n")


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
    """Tasks on the tracks of their workers; without a track, those of unknown time or place."""
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
        _shared_arguments(tasks),
    )
    where = [f'"pid":{track.pid},"tid":{track.tid}' for track in tracks.workers]
    aside = f'"pid":{tracks.about},"tid":{tracks.about}'
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
                named = f'"name":"not placed: {name[1:]},"cat":"task",{aside}'
                named += f',"id2":{{"local":"{row}"}}'
                lines.append(f'{{"ph":"b",{named},"ts":{ts},{args}')
                lines.append(f'{{"ph":"e",{named},"ts":{round(ts + dur, 3)}}}')
        yield lines


def _names(functions: Categorical) -> Categorical:
    names = [_encode(shown(name, _LONGEST) or "(no name)") for name in functions.values]
    return Categorical(functions.codes, names)


def _shared_arguments(tasks: Table) -> Categorical:
    """The arguments that many tasks have in common, as text that is made once for all of them."""
    names = ("function", "computation", "span", "outcome", "error")
    codes, rows = distinct([tasks[name] for name in names])
    arguments = [
        {name: shown(tasks[name][int(row)], _LONGEST) for name in names} for row in rows.tolist()
    ]
    return Categorical(codes, [_encode(values)[1:-1] for values in arguments])


def _key(key: str) -> str:
    return _encode(key if key.isprintable() and len(key) <= _LONGEST else shown(key, _LONGEST))


def _flows(recording: Recording, tracks: Tracks) -> Iterator[list[str]]:
    """An arrow from the end of each task to the start of each that depends on it."""
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
