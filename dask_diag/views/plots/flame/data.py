"""The columns and texts from which a page draws a flame graph."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.call_tree import NOT_SAMPLED, are_functions
from dask_diag.analysis.grouping import distinct_pairs
from dask_diag.analysis.sample_measures import MEASURES, measures, seconds_over_time
from dask_diag.analysis.source_paths import package_of, short_path
from dask_diag.columns import Array, BoolArray, IntArray
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.model.tables import Samples
from dask_diag.schema import ROOTS, Root
from dask_diag.views.escaping import shown
from dask_diag.views.plots.figures import Options
from dask_diag.views.recorded_code import recorded_lines
from dask_diag.views.theme.colors import pale_color_of, text_color_on

__all__ = [
    "cells_of",
    "code_of_lines",
    "columns_of",
    "is_missing",
    "small",
    "spans_of",
    "structure_of",
    "texts_of",
]

_NAME = 100
_MOST_KEYS = 2000
"""Of tasks that can be chosen, so that pages stay small."""
_MOST_CELLS = 80_000
"""Above this, neighbouring cycles merge."""
_DIGITS = 14
"""Binary digits of seconds in a page: each is exact to 1 in 16,000."""
_GREY = "#d4d4d4"


def columns_of(nodes: Table) -> dict[str, Array]:
    """What the page needs of each node, in types that browsers have."""
    numbers: dict[str, Array] = {
        **{name: nodes[name] for name in ("parent", "depth", "end", "first_line")},
        **{name: nodes[name].codes for name in ("name", "file")},
        "color": _color_codes(nodes),
    }
    return {
        **{name: small(column) for name, column in numbers.items()},
        **structure_of(nodes),
    }


def boxes_of(folded: Table) -> dict[str, Array]:
    """What the page needs of a folded tree: its nodes that represent several functions."""
    columns = {
        "node": np.arange(len(folded)),
        "name": folded["name"].codes,
        "color": _color_codes(folded),
        "frames": folded["frames"],
    }
    is_box = folded["frames"] > 1
    return {name: small(column[is_box]) for name, column in columns.items()}


def small(values: Array) -> Array:
    """Whole numbers in the smallest type that browsers have for all of them."""
    integers = values.astype(np.int64)
    fits = [
        kind
        for kind in (np.uint8, np.uint16, np.int32)
        if integers.min(initial=0) >= np.iinfo(kind).min
        and integers.max(initial=0) <= np.iinfo(kind).max
    ]
    return integers.astype(fits[0])


def structure_of(nodes: Table) -> dict[str, Array]:
    """Which nodes are functions of tasks, which were not sampled, and which are alike.

    ``kind`` is the same number for all calls of one function.
    """
    is_function = are_functions(nodes)
    columns = [nodes["name"].codes, nodes["file"].codes, nodes["first_line"], is_function]
    # A root, and a function of tasks, may be called like a function that was sampled.
    columns.append(np.where(nodes["depth"] < 2, nodes["depth"], 2))
    values = np.stack([np.asarray(column, dtype=np.int64) for column in columns], axis=1)
    _, kind = np.unique(values, axis=0, return_inverse=True)
    return {
        "kind": small(kind.reshape(-1)),
        "is_function": small(is_function),
        "missing": small(is_missing(nodes)),
        "frames": np.ones(len(nodes), dtype=np.uint8),
    }


def _color_codes(nodes: Table) -> Array:
    """Which of the colours in `texts_of` a node has: first those of files, then of functions."""
    files, names = nodes["file"], nodes["name"]
    # Those of tasks alone have a colour: there may be thousands of other names.
    of_names = len(files.values) + 1 + np.searchsorted(_tasks_names(nodes), names.codes)
    codes = np.where(are_functions(nodes), of_names, files.codes)
    return np.where((nodes["depth"] < 2) | is_missing(nodes), len(files.values), codes)


def _tasks_names(nodes: Table) -> IntArray:
    """The codes of the names of functions of tasks, in ascending order."""
    return np.unique(np.asarray(nodes["name"].codes[are_functions(nodes)], dtype=np.int64))


def is_missing(nodes: Table) -> BoolArray:
    """Which nodes represent time that could not be sampled."""
    below_root = nodes["depth"] == 2
    below_function = are_functions(nodes)[nodes["parent"]] & (nodes["depth"] == 3)
    unnamed: BoolArray = nodes["name"].where(NOT_SAMPLED) & nodes["file"].where("")
    missing: BoolArray = unnamed & (below_root & ~are_functions(nodes) | below_function)
    return missing


def texts_of(nodes: Table, options: Options) -> dict[str, list[str] | dict[str, str]]:
    """What the codes in the page mean: names, files and colours; and what the roots are."""
    files = [short_path(file) for file in nodes["file"].values]
    colors = [pale_color_of(package_of(file), file, options.palette) for file in files]
    functions = np.flatnonzero(are_functions(nodes))
    largest_first = functions[np.argsort(-nodes["total_count"][functions], kind="stable")]
    tasks = {nodes["name"].codes[node]: nodes["name"][int(node)] for node in largest_first}
    color_of = options.colors_of(tasks.values())
    of_tasks = [color_of[tasks[code]] for code in _tasks_names(nodes).tolist()]
    colors = [*colors, _GREY, *of_tasks]
    return {
        "names": [shown(name, _NAME) for name in nodes["name"].values],
        "files": [shown(file, _NAME) for file in files],
        "colors": colors,
        "roots": dict(ROOTS),
        "text_colors": [text_color_on(color) for color in colors],
    }


def code_of_lines(
    recording: Recording, nodes: Table, lines: IntArray
) -> tuple[IntArray, list[str]]:
    """For each node which of the texts is the code of its line; the first text is empty."""
    recorded = recorded_lines(recording)
    texts = {"": 0}
    lines_of_nodes = zip(nodes["file"].tolist(), lines.tolist(), strict=True)
    codes = [
        texts.setdefault(shown(recorded.get(line, ""), _NAME), len(texts))
        for line in lines_of_nodes
    ]
    return np.array(codes, dtype=np.int64), list(texts)


def cells_of(
    recording: Recording, node_of_sample: Array
) -> tuple[tuple[Array, Array], dict[str, Array], list[str]]:
    """The bounds of each cycle; what each node had in it, by task; and the keys of the tasks.

    The column ``key`` is a position among the keys, from 1 on: those with most time are in the
    page, and 0 is all other tasks. Wall seconds are those of ``cpu``, ``waiting`` and ``unknown``.
    """
    samples = recording.samples
    seen = node_of_sample >= 0
    starts, stops, cycle = distinct_pairs(samples["start"][seen], samples["stop"][seen])
    of_key, keys = _longest_keys(samples.rows(seen))
    while True:
        in_cycle, nodes, cell = distinct_pairs(cycle, node_of_sample[seen])
        of_cell, key, part = distinct_pairs(cell, of_key)
        if len(key) <= _MOST_CELLS or len(starts) < 2:
            break
        pairs = np.arange(0, len(starts), 2)
        starts, stops, cycle = starts[pairs], np.maximum.reduceat(stops, pairs), cycle // 2
    sums = np.zeros((len(key), len(MEASURES)))
    np.add.at(sums, part, measures(samples, np.ones(len(samples)))[seen])
    numbers = dict(zip(MEASURES, sums.T, strict=True))
    wall = numbers.pop("wall")
    numbers["unknown"] = np.round(wall - numbers["cpu"] - numbers["waiting"], 12)
    indices = {"cycle": in_cycle[of_cell], "node": nodes[of_cell], "key": key}
    columns = {name: small(column) for name, column in indices.items()}
    return (starts, stops), {**columns, **{n: _short(c) for n, c in numbers.items()}}, keys


def _short(values: Array) -> Array:
    """Whole numbers in the smallest type for them, others as precise as a picture shows."""
    if bool((values == np.round(values)).all()):
        return small(values)
    fraction, exponent = np.frexp(values)
    # The digits that are zero now take next to no bytes, as the page has them compressed.
    rounded = np.round(fraction * 2**_DIGITS) / 2**_DIGITS
    return np.asarray(np.ldexp(rounded, exponent), dtype=np.float32)


def _longest_keys(samples: Samples) -> tuple[IntArray, list[str]]:
    """For each sample the number of its key, and the keys by number; 0 is all others."""
    column = samples.key
    seconds = np.zeros(len(column.values))
    np.add.at(seconds, column.codes, samples.seconds)
    chosen = [code for code in np.argsort(-seconds, kind="stable") if column.values[code]]
    longest = [code for code in chosen if seconds[code] > 0][:_MOST_KEYS]
    number = np.zeros(len(column.values), dtype=np.int64)
    number[longest] = np.arange(len(longest)) + 1
    return number[column.codes], [shown(column.values[code], _NAME) for code in longest]


def spans_of(recording: Recording, nodes: Table, begin: float) -> dict[str, Array]:
    """Seconds per second, in order of time, and the node of the function or root that had them."""
    spans = seconds_over_time(recording)
    is_function = are_functions(nodes)
    node_of = {
        (bool(is_function[node]), nodes["name"][int(node)]): int(node)
        for node in np.flatnonzero(is_function | (nodes["depth"] == 1))
    }
    labels = zip(spans["root"].tolist(), spans["function"].tolist(), strict=True)
    of_span = [
        node_of.get((True, function) if root == Root.TASKS else (False, root), 0)
        for root, function in labels
    ]
    return {
        "left": spans["start"] - begin,
        "right": spans["stop"] - begin,
        "node": np.array(of_span, dtype=np.int32),
        **{name: spans[name].astype(np.float32) for name in ("cpu", "waiting", "unknown")},
    }
