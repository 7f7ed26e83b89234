"""What a report draws first, and that it does not make models without need."""

from dataclasses import replace

import pytest
from bokeh.models import BoxAnnotation, ColumnDataSource
from bokeh.plotting import figure

from benchmarks.made_up import many_tasks
from dask_diag import report
from dask_diag.views.colors import look_of
from dask_diag.views.plots.figures import Options
from dask_diag.views.plots.time_axis import overview, shade_phases

from .recordings import known_stacks
from .test_screen_heights_browser import recording_of

TASKS_WHEN_BELOW_IS_DECODED = """
window.tasks_then = []
document.addEventListener("DOMContentLoaded", () => {
    const tasks_are_drawn = (bokeh) => bokeh.get_model_by_name("tasks").select(
        Bokeh.Models.get("Title")).some(({text}) => text.includes("in view"))
    const look = () => {
        const bokeh = window.Bokeh?.documents.at(-1)
        if (bokeh?.roots().length > 0) {
            window.at_first = bokeh.roots().map(({name}) => name)
            bokeh.on_change(({kind, model}) => {
                if (kind === "RootAdded") window.tasks_then.push([model.name, tasks_are_drawn(bokeh)])
            })
        } else setTimeout(look)
    }
    look()
})
"""


def tasks_and_calls():
    """The flame graph is below the first screen."""
    calls = known_stacks()
    return replace(
        many_tasks(20_000), frames=calls.frames, call_tree=calls.call_tree, samples=calls.samples
    )


@pytest.mark.browser
@pytest.mark.leaves_files
def test_tasks_are_drawn_before_what_is_below_is_decoded(open_file, tmp_path):
    path = report(tasks_and_calls(), tmp_path / "report.html")
    page = open_file(path, script=TASKS_WHEN_BELOW_IS_DECODED, within=("data:",))
    assert page.evaluate("window.at_first") == ["overview", "workers", "tasks"]
    assert page.evaluate("window.tasks_then") == [["flame", True]]


@pytest.mark.browser
@pytest.mark.leaves_files
def test_a_page_that_opens_further_below_has_all_its_figures(open_file, tmp_path):
    """Those above are decoded with the ones in view, and drawn after them."""
    path = report(tasks_and_calls(), tmp_path / "report.html")
    page = open_file(path, script="location.hash = 'flame'", within=("data:",))
    names = page.evaluate("Bokeh.documents[0].roots().map(({name}) => name)")
    assert names[0] == "flame"
    assert sorted(names) == ["flame", "overview", "tasks", "workers"]
    assert page.evaluate("Object.values(Bokeh.index).every((view) => view.has_finished())")


def rows_of(plot: figure) -> list[tuple[float, float, str]]:
    """What one glyph shades in the colours of phases."""
    (source,) = (r.data_source for r in plot.renderers if r.level == "underlay")
    assert isinstance(source, ColumnDataSource)
    columns = (source.data[name] for name in ("left", "right", "color"))
    return list(zip(*columns, strict=True))


def test_phases_are_rows_of_one_glyph():
    recording = recording_of(2.5, 3.6, 10.0, 10.0)
    expected = [(0.0, 2.5, look_of("before").color), (2.5, 3.6, look_of("preparing").color)]
    plot = figure(x_range=(0, 10), y_range=(0, 4))
    assert shade_phases(plot, [recording], 0.0) == [("before", 0.0, 2.5), ("preparing", 2.5, 3.6)]
    assert rows_of(plot) == expected
    strip = overview([recording], 0.0, plot.x_range, Options())
    assert rows_of(strip) == expected
    # The part that can be moved is one.
    assert len(list(strip.select(BoxAnnotation))) <= 1
