"""The flame graph of two recordings: as wide as both together, coloured by what changed."""

from __future__ import annotations

import numpy as np
from bokeh.models import ColumnDataSource, LayoutDOM
from bokeh.plotting import figure

from dask_diag.analysis.call_tree import folded_tree, merged_tree, short_path
from dask_diag.columns import Array, FloatArray, Values
from dask_diag.formatting import seconds
from dask_diag.model.codes import ROOTS
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.views.colors import text_color_on
from dask_diag.views.escaping import shown
from dask_diag.views.plots.figures import Options
from dask_diag.views.plots.flame import calls_figure, controls_of, empty_source, listen, panel_of
from dask_diag.views.plots.flame_data import small, structure_of

_MODES = ["Both", "Before", "After"]
_WORDS = [" before and after", " before", " after"]
_ORDERS = ["function"]
"""Merged callers would have the change of only one of them in their names and colours."""
_NAME = 100
_LESS, _SAME, _MORE = (33, 102, 172), (212, 212, 212), (178, 24, 43)
"""Blue, grey, and red, as channels."""
_STEPS = 5
"""Of colour, from no change to all of it, each way."""


def differential_panel(before: Recording, after: Recording, options: Options) -> LayoutDOM:
    """A flame graph of the calls of both, with widgets to choose, search and show one alone."""
    nodes = merged_tree(before, after)
    folded, folded_node = folded_tree(nodes)
    both = Table({**_columns(nodes), "total_wall": nodes["total_before"] + nodes["total_after"]})
    graph, drawing = calls_figure(both, options)
    # The script of flame graphs has one; here there is no common time.
    timeline = figure(visible=False, width=10, height=10, x_range=(0, 1), y_range=(0, 1))
    timeline.scatter([], [])
    controls = controls_of(both, options, _MODES, _ORDERS)
    models: dict[str, object] = {
        "nodes": ColumnDataSource({**_numbers(nodes), "folded": small(folded_node)}),
        "boxes": ColumnDataSource(_boxes(folded, first_name=len(nodes))),
        "cycles": ColumnDataSource({"start": np.zeros(1), "stop": np.ones(1)}),
        "cells": ColumnDataSource(_cells(nodes)),
        "texts": _texts_of(nodes, folded),
        "spans": empty_source("left right node cpu waiting unknown"),
        "bars": empty_source("left right cpu waiting either"),
        "measured": _WORDS,
        "orders": _ORDERS,
        "resolution": 0.0,
        **drawing,
    }
    listen(models, graph, timeline, controls)
    return panel_of(controls, graph, timeline)


def _columns(nodes: Table) -> dict[str, Values]:
    return {name: nodes[name] for name in ("parent", "depth", "end", "name", "file", "first_line")}


def _cells(nodes: Table) -> dict[str, Array]:
    """The seconds of both sides, by the names of what the script can show."""
    return {
        "cycle": np.zeros(len(nodes), dtype=np.int32),
        "node": np.arange(len(nodes), dtype=np.int32),
        "key": np.zeros(len(nodes), dtype=np.int32),
        "wall": (nodes["before"] + nodes["after"]).astype(np.float32),
        "cpu": nodes["before"].astype(np.float32),
        "waiting": nodes["after"].astype(np.float32),
        "count": nodes["count"].astype(np.float32),
    }


def _numbers(nodes: Table) -> dict[str, Array]:
    """Columns for the page, in which each node has a name of its own."""
    integers = {
        **{name: nodes[name] for name in ("parent", "depth", "end", "first_line")},
        "name": np.arange(len(nodes)),
        "file": nodes["file"].codes,
        "color": _color_codes(nodes),
        "line": np.zeros(len(nodes)),
        "code": np.zeros(len(nodes)),
    }
    return {
        **{name: small(column) for name, column in integers.items()},
        **structure_of(nodes),
    }


def _boxes(folded: Table, first_name: int) -> dict[str, Array]:
    """All nodes of the folded tree, as each changed by something else: names from that one on."""
    columns = {
        "node": np.arange(len(folded)),
        "name": first_name + np.arange(len(folded)),
        "color": _color_codes(folded),
        "frames": folded["frames"],
    }
    return {name: small(column) for name, column in columns.items()}


def _color_codes(nodes: Table) -> FloatArray:
    """0 is all before, `2 * _STEPS` is all after."""
    before, after = nodes["total_before"], nodes["total_after"]
    both = before + after
    change = np.divide(after - before, both, out=np.zeros(len(both)), where=both > 0)
    return np.asarray(np.round(_STEPS * change) + _STEPS)


def _texts_of(nodes: Table, folded: Table) -> dict[str, object]:
    colors = [_mixed(step / _STEPS) for step in range(-_STEPS, _STEPS + 1)]
    names = [_name_of(row) for row in (*nodes.to_dicts(), *folded.to_dicts())]
    return {
        "names": names,
        "files": [shown(short_path(file), _NAME) for file in nodes["file"].values],
        "colors": colors,
        "text_colors": [text_color_on(color) for color in colors],
        "roots": dict(ROOTS),
    }


def _name_of(row: dict[str, object]) -> str:
    """A call, and by how much longer it took."""
    name = shown(row["name"], _NAME)
    if int(str(row["depth"])) < 2:
        return name
    change = float(str(row["total_after"])) - float(str(row["total_before"]))
    return f"{name} {'+' if change >= 0 else '-'}{seconds(abs(change))}"


def _mixed(share: float) -> str:
    """From grey to red, or with a negative share to blue."""
    to = _MORE if share > 0 else _LESS
    channels = (a + (b - a) * abs(share) for a, b in zip(_SAME, to, strict=True))
    return "#" + "".join(f"{round(channel):02x}" for channel in channels)
