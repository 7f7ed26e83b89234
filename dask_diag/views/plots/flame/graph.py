"""The flame graph: roots at the top, then functions of tasks, and calls, as wide as their time.

``flame.js`` draws it and answers the reader's clicks; this file gives it the data and the figures.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from bokeh.models import ColumnDataSource, Div, LayoutDOM

from dask_diag.analysis.call_tree import tree_and_nodes
from dask_diag.analysis.folded_tree import folded_tree
from dask_diag.analysis.function_lines import lines_of_nodes
from dask_diag.formatting import counted, percent
from dask_diag.model.recording import Recording
from dask_diag.views.plots.figures import Options
from dask_diag.views.plots.flame.calls_figure import calls_figure
from dask_diag.views.plots.flame.controls import ORDERS, controls_of, listen, panel_of
from dask_diag.views.plots.flame.data import (
    boxes_of,
    cells_of,
    code_of_lines,
    columns_of,
    is_missing,
    small,
    texts_of,
)
from dask_diag.views.plots.flame.short_calls import about_short_calls, merge_short_calls
from dask_diag.views.plots.flame.timeline import timeline_of

__all__ = ["flame_panel", "plot_flame"]

_MODES = ["Wall time", "CPU", "Waiting"]
_WORDS = ["", " of CPU", " of waiting"]
"""How the page calls the seconds of each mode."""
_FEW_SAMPLES = 100


def flame_panel(recording: Recording, options: Options, origin: float | None = None) -> LayoutDOM:
    """A flame graph with a timeline below, and widgets to choose a view, and to search.

    Parameters
    ----------
    recording : Recording
    options : Options
        With an ``x_range`` the timeline has it, and the graph counts what that shows.
    origin : float, optional
        What the timeline counts from, in the recording's seconds; by default its start.

    Returns
    -------
    bokeh layout
    """
    begin = recording.start if origin is None else origin
    nodes, node_of_sample = tree_and_nodes(recording)
    nodes, node_of_sample, merged = merge_short_calls(nodes, node_of_sample, is_missing(nodes))
    folded, folded_node = folded_tree(nodes)
    graph, drawing = calls_figure(nodes, options)
    timeline, spans, bars = timeline_of(recording, nodes, begin, options)
    (starts, stops), cells, keys = cells_of(recording, node_of_sample)
    lines = lines_of_nodes(recording, nodes)
    code, code_texts = code_of_lines(recording, nodes, lines)
    controls = controls_of(nodes, options, _MODES, keys=keys)
    models: dict[str, object] = {
        "nodes": ColumnDataSource(
            {
                **columns_of(nodes),
                "line": small(lines),
                "code": small(code),
                "folded": small(folded_node),
            }
        ),
        "boxes": ColumnDataSource(boxes_of(folded)),
        "cycles": ColumnDataSource({"start": starts - begin, "stop": stops - begin}),
        "cells": ColumnDataSource(cells),
        # The folded tree has all names of the other one, by the same codes, and more.
        "texts": {**texts_of(folded, options), "code": code_texts},
        "spans": spans,
        "bars": bars,
        "measured": _WORDS,
        "orders": list(ORDERS),
        "resolution": float(np.median(stops - starts)) if len(starts) else 0.0,
        **drawing,
    }
    listen(models, graph, timeline, controls)
    remark = [Div(text=about_short_calls(merged), disable_math=True)] if merged else []
    warnings = _warning(float(nodes["total_count"][0]))
    return panel_of(controls, graph, *remark, timeline, warnings=warnings)


def _warning(samples: float) -> list[Div]:
    """What to know of a graph of few samples: a share has a standard error of at most this."""
    if not 0 < samples < _FEW_SAMPLES:
        return []
    error = percent(0.5 / sqrt(samples))
    text = f"Only {counted(round(samples), 'sample')}: shares are uncertain by up to ±{error}."
    style = {"font-size": "14px", "font-weight": "bold", "border-left": "5px solid #b8860b"}
    return [Div(text=text, disable_math=True, styles={**style, "padding": "2px 8px"})]


def plot_flame(recording: Recording, origin: float, duration: float, options: Options) -> LayoutDOM:
    """The flame graph as one of the plots of a page, which all count time from `origin`."""
    return flame_panel(recording, options, origin)
