"""Calls too short for any screen, merged: a page of very many calls stays small."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.call_tree import (
    MEASURES,
    NOT_SAMPLED,
    are_functions,
    measures,
    package_of,
    preorder,
    seconds_over_time,
    short_path,
)
from dask_diag.analysis.groups import distinct_pairs
from dask_diag.columns import Array, BoolArray, Categorical, IntArray
from dask_diag.formatting import count
from dask_diag.model.codes import ROOTS, Root
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.model.tables import Samples
from dask_diag.views.colors import pale_color_of, text_color_on
from dask_diag.views.escaping import shown
from dask_diag.views.names import recorded_lines
from dask_diag.views.plots.figures import Options

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


SHORT_CALLS = "(short calls)"
_UNITS = ("wall", "cpu", "waiting")
"""What the page can draw as width."""
_MOST_CALLS = 20_000
"""Up to so many all are in the page."""
_LEAST_SHARE = 0.5 / 3840
"""Of all: half a pixel of a wide screen, as little as the page draws."""


def merge_short_calls(
    nodes: Table, node_of_sample: IntArray, is_missing: BoolArray
) -> tuple[Table, IntArray, int]:
    """Merge what is short below each call into one, if a tree has very many calls.

    Parameters
    ----------
    nodes : Table
        As `dask_diag.analysis.call_tree.tree_and_nodes` returns them.
    node_of_sample : array of int
        The node of each sample, or -1.
    is_missing : array of bool
        Which nodes represent time that was not sampled: the page counts them.

    Returns
    -------
    nodes : Table
        The same, with a node called `SHORT_CALLS` in place of what was merged below one call.
    node_of_sample : array of int
    merged : int
        How many nodes were merged. Seconds add up as before.
    """
    named = _are_shown(nodes) | (nodes["depth"] <= 2) | is_missing
    if len(nodes) <= _MOST_CALLS or named.all():
        return nodes, node_of_sample, 0
    above = _nearest(named, nodes["parent"])
    callers, caller = np.unique(above[~named], return_inverse=True)
    old = np.flatnonzero(named)
    row_of = np.full(len(nodes), -1, dtype=np.int64)
    row_of[old] = np.arange(len(old))
    row_of[~named] = len(old) + caller.reshape(-1)
    # Of each row: its caller's row, with the merged ones last.
    parent = np.concatenate([row_of[nodes["parent"][old]], row_of[callers]])
    parent[0] = -1
    depth = np.concatenate([nodes["depth"][old], nodes["depth"][callers] + 1])
    position, end = preorder(parent, depth, np.arange(len(parent)))
    order = np.argsort(position)
    parent = np.concatenate([nodes["parent"][:1], position[parent[order][1:]]])
    columns: dict[str, Array | Categorical] = {
        "parent": parent,
        "depth": depth[order],
        "end": end[order],
    }
    rows = nodes.rows(np.concatenate([old, callers])[order])
    is_merged = order >= len(old)
    for name in ("name", "file"):
        columns[name] = _renamed(rows[name], is_merged, SHORT_CALLS if name == "name" else "")
    columns["first_line"] = np.where(is_merged, 0, rows["first_line"])
    for measure in MEASURES:
        sums = np.bincount(caller.reshape(-1), nodes[measure][~named], len(callers))
        for name in (measure, f"total_{measure}"):
            columns[name] = np.concatenate([nodes[name][old], sums])[order]
    new = np.where(node_of_sample >= 0, position[row_of[node_of_sample]], -1)
    return Table(columns), new, int((~named).sum())


def about_short_calls(merged: int) -> str:
    """What a page says of what was merged."""
    return (
        f"{count(merged)} calls of less than half a pixel of a wide screen each are merged: below "
        f"each caller they are one call, {SHORT_CALLS}."
    )


def _are_shown(nodes: Table) -> BoolArray:
    """Which nodes have a share that a screen can show, in any of the units of width."""
    totals = [nodes[f"total_{unit}"] for unit in _UNITS]
    shown = [total >= _LEAST_SHARE * total[0] for total in totals if total[0] > 0]
    return np.any(shown, axis=0) if shown else np.ones(len(nodes), dtype=bool)


def _nearest(named: BoolArray, parent: Array) -> IntArray:
    """For each node the nearest that is not merged: itself, or a caller."""
    nearest = list(range(len(named)))
    for node, above in enumerate(parent.tolist()):
        if not named[node]:
            nearest[node] = nearest[above]
    return np.array(nearest, dtype=np.int64)


def _renamed(names: Categorical, rows: BoolArray, name: str) -> Categorical:
    """The same column with another value in some rows."""
    values = (*names.values, name) if name not in names.values else tuple(names.values)
    return Categorical(np.where(rows, values.index(name), names.codes), values)
