"""Colours: how well they are seen on both pages, and how much they differ for any vision."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from dask_diag import load
from dask_diag.analysis.cpu import PROFILERS, THREADS, CpuLayers
from dask_diag.analysis.facts import Analysis
from dask_diag.model.codes import ACTIVITIES, PHASES, Activity
from dask_diag.views.assets import text_of
from dask_diag.views.colors import (
    _AFTER_METERED,
    _BEFORE_METERED,
    _COLORS,
    OTHER,
    FunctionColors,
    color_of,
    color_of_activity,
    color_of_phase,
    pale_color_of,
    stacking_order,
    text_color_on,
)
from dask_diag.views.plots.layers import layers_of_cpu
from dask_diag.views.plots.lines import CACHED, LIMIT, MEMORY
from dask_diag.views.report.figures import Figures
from dask_diag.views.report.header import head

pytestmark = pytest.mark.once

coloraide = pytest.importorskip("coloraide")

STACKED = [*_BEFORE_METERED.values(), *_AFTER_METERED.values()]
VISIONS = ("normal", "protan", "deutan", "tritan")
WAITS = (
    *(Activity.NONCPU, Activity.CPU_WAIT, Activity.GIL_WAIT, Activity.LOCK_WAIT, Activity.IO_WAIT),
    *(Activity.CHILD_WAIT, Activity.SLEEP, Activity.DEVICE_WAIT, Activity.PAGE_FAULT),
    Activity.UNEXPLAINED,
)


def seen(color, vision):
    made = coloraide.Color(color)
    return made if vision == "normal" else made.filter(vision)


def distance(one, other, vision):
    return seen(one, vision).delta_e(seen(other, vision), method="2000")


def background(scheme):
    theme = text_of("theme/theme.css")
    light, dark = theme.split("prefers-color-scheme: dark")
    return re.search(r"--background: (#\w+)", dark if scheme == "dark" else light)[1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_functions_stand_out_from_the_page(scheme):
    for color in (*_COLORS, OTHER):
        assert coloraide.Color(color).contrast(background(scheme)) >= 3, color
    if scheme == "dark":
        for color in STACKED:
            assert coloraide.Color(color).contrast(background(scheme)) >= 3, color


def test_text_on_the_colours_of_a_flame_graph_is_legible():
    assert pale_color_of("dask", "a") == pale_color_of("dask", "a")
    for name in map(str, range(200)):
        for color in (color_of(name), pale_color_of(name, name)):
            assert coloraide.Color(color).contrast(text_color_on(color)) >= 4.5


def test_activities_are_stacked_in_an_order_and_labels_have_the_colour_of_their_name():
    assert color_of_activity("I/O") == color_of("I/O")
    names = ["idle", "I/O", "overhead", "failed", "thread-cpu", "gil-wait"]
    order = ["thread-cpu", "I/O", "gil-wait", "failed", "overhead", "idle"]
    assert sorted(names, key=stacking_order) == order


@pytest.mark.parametrize("vision", VISIONS)
def test_no_two_functions_look_alike(vision):
    least = 20 if vision == "normal" else 10
    for one, other in itertools.combinations(_COLORS, 2):
        assert distance(one, other, vision) >= least, (one, other)


def test_a_function_has_the_colour_that_its_name_wishes_for_unless_a_larger_one_has_it():
    names = [f"function-{n}" for n in range(40)]
    rivals = [name for name in names if color_of(name) == color_of(names[0])]
    assert len(rivals) > 1
    colors = FunctionColors(rivals)
    assert colors[rivals[0]] == color_of(rivals[0]) != colors[rivals[1]]
    assert FunctionColors(reversed(rivals))[rivals[-1]] == color_of(rivals[-1])
    # The ten largest have each its own.
    colors = FunctionColors(names)
    assert len({colors[name] for name in names[:10]} - {OTHER}) == 10
    assert {colors[name] for name in names[10:]} == {OTHER}


@pytest.mark.parametrize("vision", VISIONS)
def test_cpu_time_is_unlike_any_wait_and_neighbours_in_a_stack_differ(vision):
    for wait in WAITS:
        assert distance(color_of_activity(Activity.CPU), color_of_activity(wait), vision) >= 20
    for one, other in itertools.pairwise(STACKED):
        assert distance(one, other, vision) >= 8, (one, other)


LAYERS = CpuLayers(np.arange(2.0), {THREADS: np.ones(1), PROFILERS: np.ones(1)})


def others_of_the_page():
    """Colours of a page that are none of a function."""
    return {
        **{name: color_of_activity(name) for name in ACTIVITIES},
        **{name: color_of_phase(name) for name in PHASES},
        **{layer.name: layer.color for layer in layers_of_cpu(LAYERS)},
        "resident memory": MEMORY,
        "cached results": CACHED,
        "a limit": LIMIT,
    }


def test_a_function_is_unlike_all_else_of_the_page_and_so_are_cached_results():
    others = others_of_the_page()
    for function, (name, color) in itertools.product((*_COLORS, CACHED), others.items()):
        assert function == color or distance(function, color, "normal") >= 10, (function, name)
    for layer, activity in itertools.product(layers_of_cpu(LAYERS), ACTIVITIES):
        assert distance(layer.color, color_of_activity(activity), "normal") >= 10, activity


STORIES = sorted((Path(__file__).parents[1] / "docs" / "stories").glob("*.diag"))


def drawn_colors(recording):
    """Of each figure that has several colours: name, colour and hatch of what is drawn in it."""
    analysis = Analysis(recording)
    figures = Figures(analysis)
    wall = head(analysis).wall.parts
    return {
        "wall": [(part.name, part.color, part.is_hatched) for part in wall],
        "workers": [(layer.name, layer.color, layer.hatch) for layer in figures.layers],
        "cpu": [(x.name, x.color, x.hatch) for x in layers_of_cpu(figures.cpu_layers)],
        "memory": [
            (name, color, "dashed" if name.startswith("dashed") else "")
            for color, name in figures.process_memory.key()
        ],
    }


@pytest.mark.parametrize("path", STORIES, ids=[path.stem for path in STORIES])
def test_no_two_colours_of_a_figure_look_alike(path):
    for figure, items in drawn_colors(load(path)).items():
        for (name, color, hatch), (other, other_color, other_hatch) in itertools.combinations(
            items, 2
        ):
            # What is hatched or dashed is known from what is not by that.
            if hatch != other_hatch:
                continue
            for vision in VISIONS:
                least = 10 if vision == "normal" else 5
                apart = distance(color, other_color, vision)
                assert apart >= least, (figure, name, other, vision, apart)
