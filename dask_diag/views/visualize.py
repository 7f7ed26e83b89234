"""``visualize``: several plots in one picture, and a page about them, saved and shown."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from uuid import uuid4

from bokeh.io import show as bokeh_show
from bokeh.io.state import curstate
from bokeh.layouts import column
from bokeh.model import Model
from bokeh.models import LayoutDOM, Plot, Range1d
from bokeh.plotting import figure
from bokeh.resources import Resources
from bokeh.util.browser import view

from dask_diag.analysis.facts import Analysis
from dask_diag.errors import DiagnosticError
from dask_diag.files import as_path, check_target, write_text
from dask_diag.formatting import count
from dask_diag.model.recording import Recording, Sources, listed, recording_of
from dask_diag.views.drawings import (
    PLOTS,
    Drawing,
    drawings_of,
    figures_of,
    notices_of,
    over_time,
    recordings_in,
    stacked,
    with_rows,
)
from dask_diag.views.escaping import shown
from dask_diag.views.findings import incomplete
from dask_diag.views.page import Head, Page, Section, script
from dask_diag.views.plots.activities import plot_activities
from dask_diag.views.plots.figures import SIZES, Options, new_figure
from dask_diag.views.plots.layers import layers_of, plot_workers
from dask_diag.views.plots.lines import measured
from dask_diag.views.plots.time_axis import TimeAxis, overview
from dask_diag.views.report.components import Figure, Part, Text
from dask_diag.views.report.figures import WORKERS, Figures, add_shades
from dask_diag.views.report.header import head, head_of_memory
from dask_diag.views.report.sections import FINDINGS, allocated
from dask_diag.views.saved_picture import saved_picture

_ACTIVITIES = "activities"
_MOST_TASKS = 100_000
"""Tasks whose findings take no longer than the plots."""


def visualize(
    profilers: Sources,
    filename: str | os.PathLike[str] = "profile.html",
    show: bool = True,
    save: bool | None = None,
    mode: str | None = None,
    *,
    plots: Iterable[str] | None = None,
    **kwargs: Any,
) -> LayoutDOM:
    """Draw measurements with bokeh: plots over one time axis, as a page.

    The page begins with the wall time, its division and the findings. An overview and worker
    activity appear above the plots; below them, worker time by activity (filterable by function and
    unit) and the allocations in use at the peak of memory.

    Parameters
    ----------
    profilers : Recording, profiler, or list of these
        Measurements. Several are combined.
    filename : str or os.PathLike, default "profile.html"
        File to write. An existing file is replaced. With ``save=False``, a browser opens a
        temporary file.
    show : bool, default True
        Open the page in a browser. In a notebook, show the plots that are returned below the cell.
    save : bool, optional
        Write the file. Default: True, but False in a notebook.
    mode : {"inline", "cdn"}, default "inline"
        ``"inline"`` puts bokeh's code into the page; ``"cdn"`` makes a small page that needs the
        network.
    plots : list of {"tasks", "resources", "cache", "memory", "activities"}, optional
        Plots to draw. Default: all that were recorded.
    **kwargs
        ``palette`` (name of a bokeh palette), ``label_size`` (maximum number of characters of a
        label, 60), and keyword arguments of bokeh's figure for the plots over time. The plots of
        activities have the same width.

    Returns
    -------
    bokeh figure, grid of figures, or layout
        The plots over time, as dask.diagnostics returns them; with the plots of activities only if
        `plots` names them.

    Raises
    ------
    DiagnosticError
        If `profilers` cannot be drawn, `plots` names something that was not recorded, or the file
        cannot be written.
    UnknownKeywordError
        If bokeh's figure does not know a keyword argument; also an AttributeError.

    Warns
    -----
    RuntimeWarning
        If two plots cover times that do not overlap; the page also shows this warning.

    Notes
    -----
    The page follows the reader's light or dark mode. Figures fit the width of the window, unless
    `kwargs` give sizes.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_diag import Profiler, ResourceProfiler, visualize
    >>> with Profiler() as prof, ResourceProfiler(dt=0.1) as rprof:
    ...     total = da.ones((500, 500), chunks=(250, 250)).sum().compute()
    >>> figure = visualize([prof, rprof], "profile.html", show=False)
    """
    path = _path_of(filename, kwargs)
    if save:
        check_target(path, overwrite=True)
    drawings = drawings_of(listed(profilers))
    notices = notices_of(drawings)
    incompletes = dict.fromkeys(filter(None, (incomplete(recording) for _, recording in drawings)))
    chosen = _checked(plots)
    options = Options(**kwargs)
    picture = _picture(drawings, chosen, options)
    notebook = in_notebook()
    if save is None:
        save = not notebook
    drawn = Page(
        "dask_diag profile",
        warnings=[*incompletes, *notices],
        picture=picture,
        fitted=not SIZES & options.figure.keys(),
    )
    is_in_cell = show and notebook
    is_report = chosen is None and (save or (show and not notebook))
    with _as_report(drawn, drawings, options) if is_report else nullcontext(drawn) as page:
        if save:
            write_text(path, page.html(mode))
        if show and save and not is_in_cell:
            view(path.resolve().as_uri())
        elif show and not is_in_cell:
            _show_in_browser(page, mode)
    if is_in_cell:
        # Each figure costs the notebook's page time: a cell has those that are returned.
        _show_in_notebook(drawn, _saved(drawings, options))
    for notice in notices:
        warnings.warn(notice, RuntimeWarning, stacklevel=2)
    return picture


def _path_of(filename: str | os.PathLike[str], kwargs: dict[str, Any]) -> Path:
    """The file to write, also by the name that dask.diagnostics has for it."""
    if "file_path" in kwargs:
        warnings.warn(
            "The file_path keyword argument is deprecated and will be removed in a future "
            "release. Please use filename instead.",
            FutureWarning,
            stacklevel=3,
        )
        filename = kwargs.pop("file_path")
    if not isinstance(filename, (str, os.PathLike)):
        raise DiagnosticError(
            f"filename: expected a path, found {type(filename).__name__}; pass several profilers "
            "as a list"
        )
    return as_path(filename, "filename")


def _checked(plots: Iterable[str] | None) -> list[str] | None:
    if plots is None:
        return None
    names = [plots] if isinstance(plots, str) else list(plots)
    available = [*PLOTS, _ACTIVITIES]
    unknown = [name for name in names if name not in available]
    if unknown or not names:
        raise DiagnosticError(
            f"plots: expected some of {', '.join(map(repr, available))}, found "
            f"{', '.join(map(repr, unknown)) or 'none'}"
        )
    return names


def _picture(drawings: Sequence[Drawing], plots: list[str] | None, options: Options) -> LayoutDOM:
    """Plots over time, and pictures of activities if `plots` names them."""
    if plots is None:
        return stacked(figures_of(drawings, options))
    recorded = {name for name, _ in drawings}
    missing = [name for name in plots if name not in (*recorded, _ACTIVITIES)]
    if missing:
        raise DiagnosticError(
            f"plots: nothing was recorded for {', '.join(missing)}; choose among "
            f"{', '.join([*sorted(recorded), _ACTIVITIES])}"
        )
    figures = figures_of([drawing for drawing in drawings if drawing[0] in plots], options)
    if _ACTIVITIES not in plots:
        return stacked(figures)
    if figures:
        return column(stacked(figures), activities_of(recordings_in(drawings), options))
    # A keyword that bokeh's figure does not know is an error, whatever is drawn.
    new_figure(options, 1.0)
    return activities_of(recordings_in(drawings), options)


def activities_of(recordings: Sequence[Recording], options: Options) -> LayoutDOM:
    """Pictures of activities of the recordings with tasks."""
    return plot_activities(Analysis(recording_of(_with_tasks(recordings))), options)


def _with_tasks(recordings: Sequence[Recording]) -> Sequence[Recording]:
    """Recordings with tasks, if there are any.

    A computation that only another profiler recorded is left out: its workers would seem idle.
    """
    return [recording for recording in recordings if len(recording.tasks)] or recordings


@contextmanager
def _as_report(page: Page, drawings: Sequence[Drawing], options: Options) -> Iterator[Page]:
    """Make a page of sections; in this block its figures look as in a report."""
    assert page.picture is not None
    made = ProfilePage(drawings, page.picture, options)
    with made.in_a_report():
        yield replace(page, head=made.head, sections=made.sections())


class ProfilePage:
    """The page about the figures that ``visualize`` returns.

    Returned figures stay as they are: dask.diagnostics has one figure for CPU and memory, with two
    axes, and calls cached results a cache's size. The page has a figure for each, and a report's
    names.

    Parameters
    ----------
    drawings : sequence of Drawing
    picture : bokeh layout
        The layout that `stacked` made of them.
    options : Options
    """

    def __init__(self, drawings: Sequence[Drawing], picture: LayoutDOM, options: Options) -> None:
        self._picture = picture
        self._options = options
        self._recordings = recordings_in(drawings)
        # A figure and its drawing; flame graphs have no figure over the time axis.
        self._drawn: list[tuple[Plot, str, Recording]] = [
            (plot, *drawing)
            for plot, drawing in zip(
                over_time(picture), (d for d in drawings if d[0] != "flame"), strict=True
            )
        ]
        self._changed: list[tuple[Model, str, object]] = []
        self._has_tasks = any(len(recording.tasks) for recording in self._recordings)
        self._combined = recording_of(self._recordings)
        self._analysis = Analysis(self._combined)

    @cached_property
    def head(self) -> Head | None:
        """Top of the page; None if nothing was computed, nor memory sampled."""
        if any(len(recording.computations) for recording in self._recordings):
            return head(self._analysis)
        return head_of_memory(self._combined)

    @cached_property
    def layout(self) -> LayoutDOM:
        """Plots over one time axis, below a strip of all time."""
        if not self._drawn or not isinstance(self._drawn[0][0].x_range, Range1d):
            # The page names the figures that it shows.
            self._change(self._picture, name=self._picture.name)
            return self._picture
        axis = TimeAxis(self._drawn[0][0].x_range)
        rows = [*self._workers(axis), *self._measured(axis)]
        for plot in rows[:-1]:
            self._change(plot.xaxis[0], axis_label=None)
        # If several profilers recorded a computation, its phases would be shaded twice.
        computed = [recording for recording in self._recordings if len(recording.computations)][:1]
        start = self._combined.start
        strip = overview(computed, start, axis.range, self._options) if computed else None
        # ``fit_width.js`` makes a grid with this tag as wide as the window.
        return with_rows(self._picture, strip, rows, "fluid")

    @cached_property
    def activities(self) -> LayoutDOM | None:
        """Pictures of activities, if tasks were recorded."""
        return plot_activities(self._of_tasks, self._options) if self._has_tasks else None

    def sections(self) -> list[Section]:
        """Sections of the page."""
        parts: list[Part] = [Figure("plots", self.layout, "Plots over time")]
        sections = [Section("timeline", "Timeline", is_on_top=True, parts=parts)]
        if self._has_tasks and len(self._combined.tasks) > _MOST_TASKS:
            text = f"Findings of more than {count(_MOST_TASKS)} tasks are in a report."
            sections.insert(0, replace(FINDINGS, parts=[Text([text])]))
        elif self._has_tasks:
            sections.insert(0, FINDINGS.made(self._analysis, self._figures))
        if self.activities is not None:
            parts = [Figure("pictures", self.activities, "Where worker time went")]
            sections.append(Section("activities", "Activities", parts=parts))
        parts = [part for recording in self._recordings for part in allocated(recording)]
        sections.append(Section("allocations", "Allocations", parts=parts))
        return [section for section in sections if section.parts or section.error]

    @contextmanager
    def in_a_report(self) -> Iterator[None]:
        """Give the figures the names and the place of a report in this block."""
        for plot, name, recording in self._drawn:
            self._change(plot, toolbar_location=plot.toolbar_location)
            if name == "cache":
                label = f"Cached results ({shown(measured(recording), 40)})"
                self._change(plot.yaxis[0], axis_label=label)
        try:
            yield
        finally:
            for model, name, value in reversed(self._changed):
                setattr(model, name, value)

    def _change(self, model: Model, **values: object) -> None:
        for name, value in values.items():
            self._changed.append((model, name, getattr(model, name)))
            setattr(model, name, value)

    @cached_property
    def _of_tasks(self) -> Analysis:
        """Facts of the recordings with tasks."""
        recordings = _with_tasks(self._recordings)
        if len(recordings) == len(self._recordings):
            return self._analysis
        return Analysis(recording_of(recordings))

    @cached_property
    def _figures(self) -> Figures:
        return Figures(self._analysis)

    def _workers(self, axis: TimeAxis) -> Iterator[figure]:
        if not self._has_tasks:
            return
        analysis, combined = self._of_tasks, self._combined
        if analysis is not self._analysis:
            recording = replace(analysis.recording, start=combined.start, stop=combined.stop)
            analysis = Analysis(recording)
        plot = plot_workers(analysis, layers_of(analysis, self._options), self._options)
        plot.name = WORKERS
        add_shades(plot)
        yield _joined(plot, axis)

    def _measured(self, axis: TimeAxis) -> Iterator[Plot]:
        """Figures that were drawn; in place of one with two axes a figure for each measure."""
        for plot, name, _ in self._drawn:
            cpu = self._figures.plot_of_cpu(self._options) if name == "resources" else None
            if cpu is None:
                yield plot
                continue
            yield _joined(cpu, axis)
            yield _joined(self._figures.plot_of_memory(self._options), axis)


def _joined(plot: figure, axis: TimeAxis) -> figure:
    axis.join(plot)
    plot.title = None
    plot.min_border_top = plot.min_border_bottom = 10
    return plot


def in_notebook() -> bool:
    """Whether a picture can be shown below the cell that is running."""
    if curstate().notebook:
        return True
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return type(get_ipython()).__module__.startswith("ipykernel")


def _show_in_browser(page: Page, mode: str | None) -> None:
    """Show an unsaved page: the browser needs a file, but in no folder of the user's."""
    if curstate().file is not None:
        # The user chose bokeh's file.
        bokeh_show(page.picture)
        return
    path = Path(mkdtemp(prefix="dask_diag-")) / "profile.html"
    write_text(path, page.html(mode))
    view(path.resolve().as_uri())


_HTML, _JAVASCRIPT, _TEXT = "text/html", "application/javascript", "text/plain"
_BOKEH = "application/vnd.bokehjs_exec.v0+json"


_NO_SCRIPTS = (
    "The interactive plots are drawn by scripts, and none ran here. To see them, trust the "
    "notebook or run the cell again."
)


def _saved(drawings: Sequence[Drawing], options: Options) -> tuple[str, str]:
    """HTML and text that a notebook shows if no scripts run."""
    picture = saved_picture(recording_of(recordings_in(drawings)), options.colors_of)
    if picture is None:
        return f"<p>{_NO_SCRIPTS}</p>", _NO_SCRIPTS
    text = f"{_NO_SCRIPTS} {picture.caption}"
    return f"<p>{text}</p>{picture.html}", f"{text}\n{picture.text}"


def _show_in_notebook(page: Page, saved: tuple[str, str]) -> None:
    """Show a picture below the cell that is running.

    `saved` is seen if no scripts run, as in a notebook that is opened again and not trusted: the
    script that draws the picture hides it.
    """
    saved_html, saved_text = saved
    _load_bokeh()
    # A kernel that was started again gives figures the ids of others.
    place = f"dask-diag-{uuid4().hex}"
    # JupyterLab removes the attribute `hidden` if it does not trust the output.
    plots = f'<div style="display: none"><div id="{place}" style="display: contents"></div></div>'
    said = f"<div>{saved_html}</div>{plots}"
    _publish({_HTML: f'<div class="dask-diag-cell">{said}</div>', _TEXT: saved_text})
    item, settings = page.item()
    # As bokeh publishes it: with an extension of its own, and without one.
    _publish(
        {
            _JAVASCRIPT: script("theme/cell.js", "show_in_cell", f'"{place}", {item}, {settings}'),
            _BOKEH: "",
        },
        {_BOKEH: {"id": place}},
    )


_loaded_by: tuple[object, object] = None, None
"""The cell whose output has bokeh's script, if the notebook names its cells, and its run."""


def _load_bokeh() -> None:
    """Load bokeh's script into the page, once for all cells.

    Bokeh's own `output_notebook` stores it twice in the notebook, and with it MathJax, which is as
    large as all the rest and which no plot here needs.
    """
    global _loaded_by
    cell, run = _running_cell()
    # A cell that runs again has lost the output that it had.
    is_lost = cell is not None and cell == _loaded_by[0] and run != _loaded_by[1]
    if curstate().notebook and not is_lost:
        return
    _loaded_by = cell, run
    curstate().output_notebook()
    components = ["bokeh", "bokeh-gl", "bokeh-widgets", "bokeh-tables"]
    scripts = "\n;".join(Resources(mode="inline", components=components).js_raw)
    _publish({_JAVASCRIPT: f"(function () {{\n{scripts}\n}}).call(window)"})


def _running_cell() -> tuple[object, object]:
    """Id of the cell, if the notebook names its cells, and of its run."""
    try:
        from IPython import get_ipython

        parent = get_ipython().get_parent()
        return parent["metadata"].get("cellId"), parent["header"]["msg_id"]
    except (ImportError, AttributeError, KeyError):
        return None, None


def _publish(data: dict[str, str], metadata: dict[str, dict[str, str]] | None = None) -> None:
    from IPython.display import publish_display_data

    publish_display_data(data, metadata=metadata)
