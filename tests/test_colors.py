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
)
from dask_diag.views.plots.layers import layers_of_cpu
from dask_diag.views.plots.lines import CACHED, LIMIT, MEMORY
from dask_diag.views.report.figures import Figures
from dask_diag.views.report.header import head

pytestmark = pytest.mark.once

coloraide = pytest.importorskip("coloraide")

VISIONS = ("normal", "protan", "deutan", "tritan")
WAITS = (
    *(Activity.NONCPU, Activity.CPU_WAIT, Activity.GIL_WAIT, Activity.LOCK_WAIT, Activity.IO_WAIT),
    *(Activity.CHILD_WAIT, Activity.SLEEP, Activity.DEVICE_WAIT, Activity.PAGE_FAULT),
    Activity.UNEXPLAINED,
)
WORKLOADS = {
    "climatology": "moment_chunk open_dataset getitem rechunk-split-rechunk-merge "
    "moment_combine-partial shuffle-split rechunk-merge stack sub where mean_agg",
    "groupby": "read-parquet getitem-projection shuffle-transfer shuffle-barrier "
    "groupby-sum-chunk groupby-sum-agg repartition concat",
    "qr": "random_sample qr qr-stack qr-qr2 qr-split dot sum-aggregate getitem",
    "image": "imread gaussian_filter overlap-trim map_overlap stack mean_chunk",
    "wordcount": "read-block bag-from-delayed map flatten frequencies-chunk frequencies-agg",
    "nanoaod": "from-uproot broadcast num-equal getitem hist-on-block histreduce-agg sum",
    "wide": "add inc sum-tree double",
    "many": "inc",
    "download": "fetch parse merge",
    "svd": "normal matmul-transpose svd cholesky solve dot compress",
}


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


@pytest.mark.parametrize("vision", VISIONS)
def test_no_two_functions_look_alike(vision):
    least = 20 if vision == "normal" else 10
    for one, other in itertools.combinations(_COLORS, 2):
        assert distance(one, other, vision) >= least, (one, other)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_ten_largest_functions_of_a_workload_have_each_its_colour(workload):
    functions = WORKLOADS[workload].split()
    colors = FunctionColors(functions)
    assert len({colors[name] for name in functions[:10]}) == min(len(functions), 10)
    assert OTHER not in {colors[name] for name in functions[:10]}
    assert {colors[name] for name in functions[10:]} <= {OTHER}


def test_a_function_has_the_colour_that_its_name_wishes_for_unless_a_larger_one_has_it():
    names = [f"function-{n}" for n in range(40)]
    rivals = [name for name in names if color_of(name) == color_of(names[0])]
    assert len(rivals) > 1
    colors = FunctionColors(rivals)
    assert colors[rivals[0]] == color_of(rivals[0])
    assert colors[rivals[1]] != color_of(rivals[1])
    assert FunctionColors(reversed(rivals))[rivals[-1]] == color_of(rivals[-1])


@pytest.mark.parametrize("vision", VISIONS)
def test_cpu_time_is_unlike_any_wait(vision):
    for wait in WAITS:
        assert distance(color_of_activity(Activity.CPU), color_of_activity(wait), vision) >= 20, (
            wait
        )


@pytest.mark.parametrize("vision", VISIONS)
def test_neighbours_in_a_stack_of_activities_differ(vision):
    stacked = [*_BEFORE_METERED.values(), *_AFTER_METERED.values()]
    for one, other in itertools.pairwise(stacked):
        assert distance(one, other, vision) >= 8, (one, other)


def others_of_the_page():
    """Colours of a page that are none of a function."""
    layers = layers_of_cpu(CpuLayers(np.arange(2.0), {THREADS: np.ones(1), PROFILERS: np.ones(1)}))
    return {
        **{name: color_of_activity(name) for name in ACTIVITIES},
        **{name: color_of_phase(name) for name in PHASES},
        **{layer.name: layer.color for layer in layers},
        "resident memory": MEMORY,
        "cached results": CACHED,
        "a limit": LIMIT,
    }


def test_a_function_is_unlike_all_else_of_the_page():
    for function, (name, color) in itertools.product(_COLORS, others_of_the_page().items()):
        assert distance(function, color, "normal") >= 10, (function, name)


@pytest.mark.parametrize("made", [THREADS, PROFILERS])
def test_the_plot_of_cpu_has_no_other_colour_of_the_page(made):
    (layer,) = layers_of_cpu(CpuLayers(np.arange(2.0), {made: np.ones(1)}))
    for activity in ACTIVITIES:
        assert distance(layer.color, color_of_activity(activity), "normal") >= 10, activity


def test_cached_results_have_no_other_colour_of_the_page():
    for name, color in others_of_the_page().items():
        assert color == CACHED or distance(CACHED, color, "normal") >= 10, name


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


def test_waits_are_warm():
    for wait in WAITS:
        red, _, blue = coloraide.Color(color_of_activity(wait)).convert("srgb").coords()
        assert red > blue, wait
