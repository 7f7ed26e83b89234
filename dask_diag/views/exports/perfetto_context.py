"""What a trace shows besides tasks: computations, spans, and counters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from math import isnan

import numpy as np

from dask_diag.analysis.step_functions import ready_tasks, thinned
from dask_diag.columns import Array, FloatArray
from dask_diag.model.recording import Recording
from dask_diag.model.tables import Computations, Memory
from dask_diag.views.escaping import shown
from dask_diag.views.exports.cells import ROWS
from dask_diag.views.exports.tracks import Tracks, bounds_of_tasks

__all__ = ["computations", "counters"]

_LONGEST = 400
_MOST_STEPS = 100_000
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode


def computations(recording: Recording, tracks: Tracks) -> Iterator[list[str]]:
    """Computations, and the spans in each from its first task to its last."""
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

    ready = thinned(ready_tasks(recording), _MOST_STEPS)
    yield from lines("tasks", ready.times, ready=ready.amounts)
    samples = recording.resources
    if len(samples):
        # A sample's share of CPU is that of the interval that it ends.
        began = np.concatenate([[recording.start], samples["time"][:-1]])
        yield from lines("CPU", began, **{"%": samples["cpu"]})
        own, children = samples["memory"] / 1e6, samples["memory_children"] / 1e6
        both = {"this process (MB)": own, "child processes (MB)": children}
        yield from lines("memory", samples["time"], **both)
    for label, series in _series(recording.memory):
        for measure in ("rss", "pss", "uss"):
            measured = series.rows(~np.isnan(series[measure]))
            yield from lines(
                f"memory in {label}",
                measured["time"],
                **{f"{measure} (MB)": measured[measure] / 1e6},
            )


def _series(memory: Memory) -> Iterable[tuple[str, Memory]]:
    labels = memory.label
    return [(label, memory.rows(labels.codes == code)) for code, label in enumerate(labels.values)]
