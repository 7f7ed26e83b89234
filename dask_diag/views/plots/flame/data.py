"""The columns and texts from which a page draws a flame graph."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.call_tree import NOT_SAMPLED, are_functions
from dask_diag.analysis.grouping import distinct_pairs
from dask_diag.analysis.sample_measures import MEASURES, measures, seconds_over_time
from dask_diag.analysis.source_paths import package_of, short_path
from dask_diag.columns import Array, BoolArray
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.schema import ROOTS, Root
from dask_diag.views.escaping import shown
from dask_diag.views.plots.figures import Options
from dask_diag.views.theme.colors import pale_color_of, text_color_on

__all__ = ["cells_of", "columns_of", "is_missing", "spans_of", "texts_of"]

_NAME = 100
_GREY = "#d4d4d4"


def columns_of(nodes: Table) -> dict[str, Array]:
    """What the page needs of each node, in types that browsers have."""
    return {
        **{name: nodes[name].astype(np.int32) for name in ("parent", "depth", "end", "first_line")},
        **{name: nodes[name].codes.astype(np.int32) for name in ("name", "file")},
        "color": _color_codes(nodes).astype(np.int32),
    }


def _color_codes(nodes: Table) -> Array:
    """Which of the colours in `texts_of` a node has: first those of files, then of functions."""
    files, names = nodes["file"], nodes["name"]
    of_names = len(files.values) + 1 + names.codes.astype(np.int64)
    codes = np.where(are_functions(nodes), of_names, files.codes)
    return np.where((nodes["depth"] < 2) | is_missing(nodes), len(files.values), codes)


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
    of_tasks = [
        color_of[tasks[code]] if code in tasks else _GREY
        for code in range(len(nodes["name"].values))
    ]
    colors = [*colors, _GREY, *of_tasks]
    return {
        "names": [shown(name, _NAME) for name in nodes["name"].values],
        "files": [shown(file, _NAME) for file in files],
        "colors": colors,
        "roots": dict(ROOTS),
        "text_colors": [text_color_on(color) for color in colors],
    }


def cells_of(
    recording: Recording, node_of_sample: Array
) -> tuple[tuple[Array, Array], dict[str, Array]]:
    """The bounds of each cycle, and what each node had in it."""
    samples = recording.samples
    seen = node_of_sample >= 0
    starts, stops, cycle = distinct_pairs(samples["start"][seen], samples["stop"][seen])
    in_cycle, nodes, cell = distinct_pairs(cycle, node_of_sample[seen])
    sums = np.zeros((len(nodes), len(MEASURES)))
    np.add.at(sums, cell, measures(samples, np.ones(len(samples)))[seen])
    numbers = {name: sums[:, n].astype(np.float32) for n, name in enumerate(MEASURES)}
    indices = {"cycle": in_cycle.astype(np.int32), "node": nodes.astype(np.int32)}
    return (starts, stops), {**indices, **numbers}


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
