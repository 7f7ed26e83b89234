"""The page of ``visualize``: styled as a report is, about what was drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

from bokeh.model import Model
from bokeh.models import LayoutDOM, Plot, Range1d
from bokeh.plotting import figure

from dask_diag.analysis.facts import Analysis
from dask_diag.formatting import count
from dask_diag.model.recording import Recording
from dask_diag.views.drawings import Drawing, over_time, recordings_in, with_rows
from dask_diag.views.plots.activities import plot_activities
from dask_diag.views.plots.figures import Options
from dask_diag.views.plots.layers import layers_of, plot_cpu, plot_workers
from dask_diag.views.plots.lines import measured, plot_process_memory
from dask_diag.views.plots.time_axis import TimeAxis, overview
from dask_diag.views.report.components import Figure, Part, Text, safe
from dask_diag.views.report.figures import WORKERS, Figures, add_shades
from dask_diag.views.report.header import Head, head, head_of_memory
from dask_diag.views.report.page import MadeSection, made_section
from dask_diag.views.report.plots import allocated
from dask_diag.views.report.sections import SECTIONS
from dask_diag.views.sources import recording_of

_MOST_TASKS = 100_000
"""Findings of more take longer than the plots."""
_FLUID = "fluid"
"""The tag of a grid that ``fit_width.js`` makes as wide as the window."""


class ProfilePage:
    """What the page says and shows, made of the figures that ``visualize`` returns.

    These stay as they are: dask.diagnostics has one figure for CPU and memory, with two axes, and
    calls cached results a cache's size. The page has a figure for each, and a report's names.

    Parameters
    ----------
    drawings : sequence of Drawing
    picture : bokeh layout
        What `stacked` made of them.
    options : Options
    """

    def __init__(self, drawings: Sequence[Drawing], picture: LayoutDOM, options: Options) -> None:
        self._drawings = drawings
        self._picture = picture
        self._options = options
        self._recordings = recordings_in(drawings)
        self._changed: list[tuple[Model, str, object]] = []
        self._has_tasks = any(len(recording.tasks) for recording in self._recordings)

    @cached_property
    def head(self) -> Head | None:
        """What comes first; nothing if nothing was computed, nor memory sampled."""
        if any(len(recording.computations) for recording in self._recordings):
            return head(self._analysis)
        return head_of_memory(self._combined)

    @cached_property
    def layout(self) -> LayoutDOM:
        """The plots over one time axis, below a strip of all time."""
        if not self._plots or not isinstance(self._plots[0].x_range, Range1d):
            # The page names what it shows.
            self._change(self._picture, name=self._picture.name)
            return self._picture
        axis = TimeAxis(self._plots[0].x_range)
        workers = [self._workers(axis)] if self._has_tasks else []
        rows = [*workers, *self._measured(axis)]
        for plot in rows[:-1]:
            self._change(plot.xaxis[0], axis_label=None)
        return with_rows(self._picture, self._strip(axis), rows, _FLUID)

    @cached_property
    def activities(self) -> LayoutDOM | None:
        """The pictures of activities, if tasks were recorded."""
        return plot_activities(self._of_tasks, self._options) if self._has_tasks else None

    def sections(self) -> list[MadeSection]:
        """The sections of the page."""
        parts: list[tuple[str, str, Iterator[Part], bool]] = [
            ("timeline", "Timeline", self._timeline(), True),
            ("activities", "Activities", self._activities(), False),
            ("allocations", "Allocations", self._allocations(), False),
        ]
        made = [
            MadeSection(name, title, is_on_top, parts=list(shown))
            for name, title, shown, is_on_top in parts
        ]
        return [section for section in [*self._findings(), *made] if section.parts or section.error]

    @contextmanager
    def in_a_report(self) -> Iterator[None]:
        """Meanwhile the figures have the names and the place that they have in this page."""
        for plot, (name, recording) in zip(self._plots, self._drawn_over_time, strict=True):
            self._change(plot, toolbar_location=plot.toolbar_location)
            if name == "cache":
                label = f"Cached results ({safe(measured(recording), 40)})"
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
    def _plots(self) -> list[Plot]:
        return over_time(self._picture)

    @cached_property
    def _drawn_over_time(self) -> list[Drawing]:
        """What each of these figures draws."""
        return [drawing for drawing in self._drawings if drawing[0] != "flame"]

    @cached_property
    def _combined(self) -> Recording:
        return recording_of(self._recordings)

    @cached_property
    def _analysis(self) -> Analysis:
        return Analysis(self._combined)

    @cached_property
    def _of_tasks(self) -> Analysis:
        """The facts of those that recorded tasks."""
        recordings = _with_tasks(self._recordings)
        if len(recordings) == len(self._recordings):
            return self._analysis
        return Analysis(recording_of(recordings))

    @cached_property
    def _figures(self) -> Figures:
        return Figures(self._analysis)

    def _findings(self) -> list[MadeSection]:
        if not self._has_tasks:
            return []
        (section,) = (section for section in SECTIONS if section.name == "findings")
        if len(self._combined.tasks) <= _MOST_TASKS:
            return [made_section(section, self._analysis, self._figures)]
        text = f"Findings of more than {count(_MOST_TASKS)} tasks are in a report."
        return [MadeSection(section.name, section.title, section.is_on_top, parts=[Text([text])])]

    def _timeline(self) -> Iterator[Part]:
        yield Figure("plots", self.layout, "Plots over time")

    def _activities(self) -> Iterator[Part]:
        if self.activities is not None:
            yield Figure("pictures", self.activities, "Where worker time went")

    def _allocations(self) -> Iterator[Part]:
        for recording in self._recordings:
            yield from allocated(recording)

    def _strip(self, axis: TimeAxis) -> figure | None:
        """All time, if something was computed in it."""
        computed = [recording for recording in self._recordings if len(recording.computations)]
        if not computed:
            return None
        # Several that recorded the same computation would shade its phases twice.
        return overview(computed[:1], self._combined.start, axis.range, self._options)

    def _workers(self, axis: TimeAxis) -> figure:
        analysis, combined = self._of_tasks, self._combined
        if analysis is not self._analysis:
            recording = replace(analysis.recording, start=combined.start, stop=combined.stop)
            analysis = Analysis(recording)
        layers = layers_of(analysis, self._options)
        plot = plot_workers(analysis, layers, self._options)
        plot.name = WORKERS
        add_shades(plot)
        return _joined(plot, axis)

    def _measured(self, axis: TimeAxis) -> Iterator[Plot]:
        """The figures that were drawn; in place of one with two axes a figure for each measure."""
        for plot, (name, _) in zip(self._plots, self._drawn_over_time, strict=True):
            if name == "resources" and self._figures.cpu_layers is not None:
                yield self._cpu(axis)
                yield self._memory(axis)
            else:
                yield plot

    def _cpu(self, axis: TimeAxis) -> figure:
        made = self._figures.cpu_layers
        assert made is not None
        cpus = int(self._combined.computations.cpus.max(initial=0))
        plot = plot_cpu(made, cpus, self._combined.start, self._options)
        return _joined(plot, axis)

    def _memory(self, axis: TimeAxis) -> figure:
        memory = self._figures.process_memory
        duration = self._combined.stop - self._combined.start or 1.0
        plot = plot_process_memory(memory, self._combined.start, duration, self._options)
        return _joined(plot, axis)


def activities_of(recordings: Sequence[Recording], options: Options) -> LayoutDOM:
    """The pictures of activities of those that recorded tasks."""
    return plot_activities(Analysis(recording_of(_with_tasks(recordings))), options)


def _with_tasks(recordings: Sequence[Recording]) -> Sequence[Recording]:
    """Those that recorded tasks, if any did.

    A computation that only another profiler recorded is left out: its workers would seem idle.
    """
    return [recording for recording in recordings if len(recording.tasks)] or recordings


def _joined(plot: figure, axis: TimeAxis) -> figure:
    axis.join(plot)
    plot.title = None
    plot.min_border_top = plot.min_border_bottom = 10
    return plot
