"""Plots of coffea's chunks: runtime against events, and what was read over time."""

from __future__ import annotations

import numpy as np
from bokeh.models import ColumnDataSource, Range1d
from bokeh.plotting import figure

from dask_diag.analysis.chunks import rates_over_time
from dask_diag.analysis.groups import rows_by
from dask_diag.formatting import BYTES
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.views.colors import FunctionColors
from dask_diag.views.plots.figures import Options, label, new_figure, number_ticks, set_hover

_SHOWN_OF_A_PATH = 50


def plot_runtimes(chunks: Table, colors: FunctionColors, options: Options) -> figure:
    """Draw a point for each run of a chunk, its seconds over its events, by dataset."""
    longest, most = (float(np.nanmax(chunks[name], initial=0.0)) for name in ("wall", "events"))
    options.figure |= {"x_range": Range1d(0, 1.05 * most or 1), "tools": "hover,pan,box_zoom,reset"}
    plot = new_figure(options, 1.0, y_range=Range1d(0, 1.05 * longest or 1))
    plot.xaxis.axis_label, plot.yaxis.axis_label = "Events of the chunk", "Runtime (s)"
    plot.axis.formatter = number_ticks()
    points = []
    for dataset, rows in rows_by(chunks["dataset"]).items():
        of_dataset = chunks.filter(rows)
        # Of a long path, the end names the file.
        files = [file[-_SHOWN_OF_A_PATH:] for file in of_dataset["file"].tolist()]
        columns = {
            "events": of_dataset["events"].astype(np.int32),
            "seconds": of_dataset["wall"].astype(np.float32),
            "first": of_dataset["first"].astype(np.int32),
            "file": options.shown(files),
        }
        look = {"color": colors[dataset], "size": 5, "alpha": 0.6}
        name = label(dataset, options.label_size)
        source = ColumnDataSource(columns)
        points.append(plot.scatter("events", "seconds", source=source, name=name, **look))
    tooltips = [
        ("dataset", "$name"),
        ("file", "@file"),
        ("from entry", "@first{count}"),
        ("events", "@events{count}"),
        ("runtime", "@seconds{seconds}"),
    ]
    set_hover(plot, points, tooltips)
    return plot


def plot_rates(recording: Recording, duration: float, options: Options) -> figure:
    """Draw the bytes per second that the chunks read, or their events, over time."""
    unit, edges, rates = rates_over_time(recording)
    plot = new_figure(
        options, duration, y_range=Range1d(0, 1.05 * float(rates.max(initial=0)) or 1)
    )
    plot.yaxis.formatter = number_ticks("B" if unit == BYTES else "")
    source = ColumnDataSource(
        {
            "left": edges[:-1] - recording.start,
            "right": edges[1:] - recording.start,
            "rate": rates,
        }
    )
    bars = plot.quad("left", "right", "rate", 0, source=source, color="#0072b2", alpha=0.6)
    rate = "@rate{size}" if unit == BYTES else "@rate{amount}"
    set_hover(plot, [bars], [("from", "@left{moment}"), (f"{unit}/s", rate)])
    return plot
