"""What a page shows of a pinned task beyond its rectangle: what it waited for, and its result.

Tasks are numbered as they are drawn: lane by lane, in order of time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np

from dask_diag.analysis.critical_path import last_dependencies
from dask_diag.analysis.groups import worker_order
from dask_diag.analysis.task_times import stop_times
from dask_diag.columns import (
    Array,
    Categorical,
    FloatArray,
    IntArray,
    PrefixStrings,
    smallest_integers,
)
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.views.escaping import shown
from dask_diag.views.plots.figures import Packed, pack, size_in_page, ticks

NUMBER = "\x1f"
"""In a pattern, where a number is. What is shown has no such characters."""
BETWEEN_PATTERNS = "\x1e"

_NUMBERS = re.compile(r"(?<![0-9A-Za-z])(0|[1-9][0-9]{0,14})(?![0-9A-Za-z])")
_LONGEST_PIECE = 200


def columns_of_keys(keys: PrefixStrings, groups: Array) -> dict[str, Array | str]:
    """What ``keys.js`` makes the keys of, in columns to be packed.

    Parameters
    ----------
    keys : PrefixStrings
    groups : array of int
        A group for each key, such as its function: keys of one group have few patterns.

    Returns
    -------
    dict
        ``patterns``, a text of all; ``pattern``, of each key, and ``numbers-0``, ``numbers-1``, ...
        of each key that has so many, as differences: to the key before it in its group, and to the
        key before it of its pattern.
    """
    heads, tails = keys.heads, keys.tails()
    text = "\n".join(tails)
    if text.count("\n") >= max(len(tails), 1) or NUMBER in text:
        tails = [shown(tail, _LONGEST_PIECE) for tail in tails]
        text = "\n".join(tails)
    pieces = _NUMBERS.split(text)
    stripped = NUMBER.join(pieces[::2]).split("\n") if tails else []
    numbers = np.array(pieces[1::2] or ["0"], "S").astype(np.int64)
    # Of each tail, the first row that has the same.
    rows_of_tails: dict[str, int] = {}
    first_alike = np.fromiter(
        map(rows_of_tails.setdefault, stripped, count()), np.int64, len(tails)
    )
    pairs = first_alike * max(len(heads.values), 1) + heads.codes
    _, first, pattern = np.unique(pairs, return_index=True, return_inverse=True)
    # Numbered as they come, so that patterns which never come again count up.
    first_rows = np.sort(first)
    pattern = np.searchsorted(first_rows, first)[pattern.reshape(-1)]
    counts = np.array([stripped[row].count(NUMBER) for row in first_rows.tolist()], np.int64)
    counts = counts[pattern]
    offsets = np.cumsum(counts) - counts
    columns: dict[str, Array | str] = {
        "patterns": BETWEEN_PATTERNS.join(_patterns(heads, stripped, first_rows)),
        "pattern": _differences(pattern, groups),
    }
    for slot in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > slot)
        columns[f"numbers-{slot}"] = _differences(numbers[offsets[rows] + slot], pattern[rows])
    return columns


def _patterns(heads: Categorical, tails: list[str], rows: IntArray) -> Iterator[str]:
    """The pattern of each of these rows, with nothing in it that cannot be shown."""
    beginnings = [shown(head, _LONGEST_PIECE) for head in heads.values]
    for row, head in zip(rows.tolist(), heads.codes[rows].tolist(), strict=True):
        pieces = tails[row].split(NUMBER)
        yield beginnings[head] + NUMBER.join(map(_as_shown, pieces))


def _as_shown(piece: str) -> str:
    if piece.isprintable() and len(piece) <= _LONGEST_PIECE:
        return piece
    return shown(piece, _LONGEST_PIECE)


def _differences(values: Array, groups: Array) -> Array:
    """Each value less the one before it in its group; the first as it is."""
    # Integers of 16 bits are sorted much faster.
    order = np.argsort(smallest_integers(groups, int(np.max(groups, initial=0))), kind="stable")
    ordered, grouped = values[order], groups[order]
    steps = np.diff(ordered, prepend=0)
    fresh = np.concatenate([[True], grouped[1:] != grouped[:-1]])[: len(order)]
    steps[fresh] = ordered[fresh]
    result = np.empty_like(steps)
    result[order] = steps
    return result


LANE = 320
"""Height of a lane on the y axis: a rectangle of `FULL`, and a gap."""
FULL = 255

_COLUMNS = (
    "key",
    "function",
    "start",
    "stop",
    "thread_cpu",
    "worker",
    "computation",
    "outcome",
    "error",
)
_COARSEST_TICK, _FINEST_TICK = 1e-6, 1e-9
_CPU_DIGITS = 9
"""Binary digits of packed CPU time: it is exact to 0.2% of the task's duration, or to a tick."""


@dataclass(frozen=True)
class TasksInLanes:
    """Tasks that are known to have started, and the lane of each.

    `start` and `stop` are seconds since the plot's origin; of a task that was not finished,
    `stop` is when its computation ended. `lane` is an index in `workers`, `row` one in the
    recording's tasks.
    """

    table: Table
    row: IntArray
    start: FloatArray
    stop: FloatArray
    lane: IntArray
    workers: list[str]
    outcome: Categorical

    def __len__(self) -> int:
        return len(self.table)

    def rows(self, chosen: Array | slice) -> TasksInLanes:
        """Some of the tasks, or all in another order."""
        return TasksInLanes(
            self.table.rows(chosen),
            self.row[chosen],
            self.start[chosen],
            self.stop[chosen],
            self.lane[chosen],
            self.workers,
            self.outcome[chosen],
        )

    def columns(self) -> dict[str, Array]:
        """The tasks, which are in order: ``decode.js`` takes this, or what is packed.

        ``count`` has a number for each lane, the others one for each task; times are seconds.
        """
        return {
            "count": self._count(),
            "start": self.start,
            "stop": self.stop,
            "cpu": self.table["thread_cpu"],
            "function": self.table["function"].codes.astype(np.int32),
            "outcome": self.outcome.codes.astype(np.int32),
        }

    def keys(self, size: int) -> list[str]:
        """The keys as they are shown, of at most so many letters."""
        return [shown(key, size) for key in self.table["key"].tolist()]

    def _count(self) -> Array:
        return np.bincount(self.lane, minlength=len(self.workers)).astype(np.int32)

    @cached_property
    def tick(self) -> float:
        """The unit of packed times: a hundredth of most tasks' durations, at most 1 µs."""
        typical = max(float(np.median(self.stop - self.start)) / 100, _FINEST_TICK)
        exponent = np.floor(np.log10(typical) + 1e-9)
        return float(np.clip(10.0**exponent, _FINEST_TICK, _COARSEST_TICK))

    def in_order(self) -> TasksInLanes:
        """Lane by lane, in order of time."""
        return self.rows(np.lexsort((self.start, self.lane)))

    def packed(self) -> Packed:
        """The tasks, which are in order, but for their keys.

        There are ``count``, a number for each lane, and for each task ``gap`` (ticks since the one
        before it in its lane), ``length`` (ticks), ``function``, ``outcome``, and ``rest``: what of
        its length was not CPU time, without its last digits. ``unknown`` are the indices of tasks
        whose CPU time is not known.
        """
        start, stop = (ticks(time, self.tick) for time in (self.start, self.stop))
        before = np.concatenate([[0], stop[:-1]])
        before[np.diff(self.lane, prepend=-1) != 0] = 0
        length = stop - start
        cpu = self.table["thread_cpu"]
        unknown = np.isnan(cpu)
        off_cpu = np.where(unknown, 0, length - ticks(np.nan_to_num(cpu), self.tick))
        return pack(
            {
                "count": self._count(),
                "gap": start - before,
                "length": length,
                "function": self.table["function"].codes,
                "outcome": self.outcome.codes,
                "rest": np.sign(off_cpu) * (np.abs(off_cpu) >> _digits_left_out(length)),
                "unknown": np.flatnonzero(unknown),
            }
        )

    def packed_keys(self) -> Packed:
        """The keys, in the same order."""
        return pack(columns_of_keys(self.table["key"], self.table["function"].codes))


def tasks_in_lanes(recording: Recording, origin: float) -> TasksInLanes:
    """The tasks of a recording; those that are not known to have started are left out."""
    tasks = recording.tasks
    if not len(tasks):
        nothing = np.zeros(0)
        none = nothing.astype(np.int64)
        return TasksInLanes(tasks, none, nothing, nothing, none, [], Categorical([], []))
    started = ~np.isnan(tasks["start"])
    all_started = bool(started.all())
    table = Table({name: tasks[name] if all_started else tasks[name][started] for name in _COLUMNS})
    workers = _workers_in_order(table["worker"], recording)
    lane_of = {name: lane for lane, name in enumerate(workers)}
    lanes = np.array([lane_of.get(name, 0) for name in table["worker"].values], np.int64)
    return TasksInLanes(
        table,
        np.flatnonzero(started),
        table["start"] - origin,
        stop_times(recording)[started] - origin,
        lanes[table["worker"].codes],
        workers,
        _outcomes(table),
    )


def _workers_in_order(labels: Categorical, recording: Recording) -> list[str]:
    """The workers that ran something: on a cluster by host, then by kind, then by number."""
    names = [labels.values[code] for code in np.unique(labels.codes).tolist()]
    workers = recording.workers
    hosts = dict(zip(workers.worker.tolist(), workers.host.tolist(), strict=True))
    hosts.pop("", None)
    return sorted(
        names, key=lambda name: (hosts.get(name.rpartition("/")[0], ""), worker_order(name))
    )


def _outcomes(table: Table) -> Categorical:
    """How each task ended, with the error of those that failed."""
    outcomes, errors = table["outcome"], table["error"]
    pairs = outcomes.codes.astype(np.int64) * len(errors.values) + errors.codes
    kinds, codes = np.unique(pairs, return_inverse=True)
    names = [divmod(pair, len(errors.values)) for pair in kinds.tolist()]
    texts = [": ".join(filter(None, (outcomes.values[o], errors.values[e]))) for o, e in names]
    return Categorical(codes.reshape(-1), texts)


def _digits_left_out(length: IntArray) -> Array:
    """How many of the last binary digits of a task's CPU time are not worth their bytes."""
    _, digits = np.frexp(np.maximum(length, 0).astype(np.float64))
    return np.asarray(np.maximum(digits - 1 - _CPU_DIGITS, 0))


_LONGEST = 50
"""Tasks whose details are in every page: the report's table of the longest has as many."""
_MOST_ROWS = 1000
"""Tasks with details where not all of them fit."""


@dataclass(frozen=True)
class Details:
    """Of each task the number of its dependency that stopped last, or -1; and its result's bytes.

    Bytes are NaN where they were not measured, `duration` is in seconds.
    """

    last: IntArray
    nbytes: FloatArray
    duration: FloatArray


def details_of(recording: Recording, ordered: TasksInLanes) -> Details:
    """The details of tasks that are in order."""
    # Of -1, which is no task, the number is the last one: -1 again.
    number = np.full(len(recording.tasks) + 1, -1, np.int64)
    number[ordered.row] = np.arange(len(ordered))
    last = number[last_dependencies(recording)[ordered.row]]
    nbytes = np.asarray(recording.tasks.nbytes)[ordered.row]
    return Details(last, nbytes, ordered.stop - ordered.start)


def packed_details(details: Details, most_bytes: float = np.inf) -> Packed:
    """The details of all tasks if they take at most so many bytes, else of the longest ones.

    There are ``back``, how many numbers a task comes after its last dependency (0 if it has none),
    and ``size``, one more than the bytes of its result (0 if they are not known). With ``step``
    they are of some tasks only: each is so many numbers after the one before.
    """
    # Two bytes a task are the least that dependencies on other lanes take.
    if 2 * len(details.last) <= most_bytes:
        everything = pack(_columns(details, np.arange(len(details.last))))
        if size_in_page(everything) <= most_bytes:
            return everything
    chosen = _longest_with_paths(details)
    return pack({"step": np.diff(chosen, prepend=0), **_columns(details, chosen)})


def _columns(details: Details, chosen: IntArray) -> dict[str, Array]:
    last, nbytes = details.last[chosen], details.nbytes[chosen]
    size = np.where(np.isnan(nbytes), 0, np.nan_to_num(nbytes) + 1)
    return {"back": np.where(last < 0, 0, chosen - last), "size": size.astype(np.int64)}


def _longest_with_paths(details: Details) -> IntArray:
    """The numbers of the longest tasks, and of those on the paths that led to them."""
    step = np.argsort(-details.duration, kind="stable")[:_LONGEST]
    chosen = step
    # All paths one step back at a time: where not all fit, each has about as many.
    while len(step):
        before = details.last[step]
        step = np.setdiff1d(before[before >= 0], chosen)[: _MOST_ROWS - len(chosen)]
        chosen = np.concatenate([chosen, step])
    return np.sort(chosen)
