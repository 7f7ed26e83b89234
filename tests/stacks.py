"""Recordings of stacks, written by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dask_diag import Recording
from dask_diag.columns import Categorical
from dask_diag.model.codes import ROOTS, Root
from dask_diag.model.table import Table

from .tables import filled_table

EMPTY = Table({})
NAN = float("nan")


def recording_of_stacks(rows, notices=(), keys=None):
    """A Recording; a row is (start, stop), function, path, wall, cpu. Keys are those of the rows.

    In place of a function of tasks there may be another root. A path is a list of (name, file,
    line, first), the outermost first; None is not sampled.
    """
    frames, stacks, placed = {}, {}, []
    for _, _, path, _, _ in rows:
        stack = -1
        for frame in path or ():
            position = frames.setdefault(tuple(frame), len(frames))
            stack = stacks.setdefault((stack, position), len(stacks))
        placed.append(stack)
    starts = np.array([row[0][0] for row in rows], float)
    stops = np.array([row[0][1] for row in rows], float)
    return Recording(
        start=min(starts, default=0.0),
        stop=max(stops, default=1.0),
        epoch=0.0,
        computations=EMPTY,
        tasks=EMPTY,
        dependencies=EMPTY,
        metrics=EMPTY,
        resources=EMPTY,
        cached_results=EMPTY,
        frames=filled_table(
            "frames",
            {
                "name": Categorical.of(frame[0] for frame in frames),
                "file": Categorical.of(frame[1] for frame in frames),
                "line": np.array([frame[2] for frame in frames], np.int64),
                "first_line": np.array([frame[3] for frame in frames], np.int64),
            },
        ),
        call_tree=filled_table(
            "call_tree",
            {
                "parent": np.array([parent for parent, _ in stacks], np.int64),
                "frame": np.array([frame for _, frame in stacks], np.int64),
            },
        ),
        samples=filled_table(
            "samples",
            {
                "start": starts,
                "stop": stops,
                "root": Categorical.of(row[1] if row[1] in ROOTS else Root.TASKS for row in rows),
                "function": Categorical.of("" if row[1] in ROOTS else row[1] for row in rows),
                "key": Categorical.of(keys or [""] * len(rows)),
                "node": np.array(placed, np.int64),
                "seconds": np.array([row[3] for row in rows], float),
                "cpu_seconds": np.array([row[4] for row in rows], float),
                "count": np.array([0 if row[2] is None else 10 for row in rows]),
            },
        ),
        notices=tuple(notices),
    )


MAIN = ("main", "/home/someone/code/main.py", 5, 1)
MAIN_LATER = ("main", "/home/someone/code/main.py", 9, 1)
CORE = ("Array.sum", "/opt/env/lib/python3.11/site-packages/dask/array/core.py", 120, 100)
LEAF = ("encode", "/usr/lib/python3.12/json/encoder.py", 7, 3)
BUILT_IN = ("sorted", "", 0, 0)


def with_stacks(recording, rows, keys=None):
    """The same with sampled stacks, in rows as `recording_of_stacks` has them."""
    stacks = recording_of_stacks(rows, keys=keys)
    tables = {table: getattr(stacks, table) for table in ("frames", "call_tree", "samples")}
    return replace(recording, **tables)


def known_stacks():
    """Two functions of tasks in three cycles: 7.5 s, of which 4 s CPU, 2.5 s waiting."""
    first, second, third = (0.0, 1.0), (1.0, 2.0), (2.0, 4.0)
    return recording_of_stacks(
        [
            (first, "load", [MAIN, CORE], 1.0, 0.25),
            (first, "load", [MAIN, CORE, LEAF], 0.5, 0.5),
            (second, "load", [MAIN_LATER, CORE], 1.5, 1.5),
            (second, "load", [MAIN], 0.5, 0.0),
            (third, "sum", [MAIN, BUILT_IN], 2.0, 1.0),
            (third, "sum", [LEAF], 1.0, 0.75),
            (third, "sum", None, 1.0, NAN),
        ]
    )
