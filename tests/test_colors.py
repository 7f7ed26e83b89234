"""Colours: how well they are seen on both pages, and how much they differ for any vision."""

import itertools
import re

import numpy as np
import pytest

from dask_diag.analysis.cpu_layers import PROFILERS, THREADS, CpuLayers
from dask_diag.schema import Activity
from dask_diag.views.assets import text_of
from dask_diag.views.plots.cpu import layers_of_cpu
from dask_diag.views.plots.process_memory import CACHED, RESIDENT
from dask_diag.views.theme.colors import (
    _AFTER_METERED,
    _BEFORE_METERED,
    _COLORS,
    OTHER,
    FunctionColors,
    color_of,
    color_of_activity,
)

pytestmark = pytest.mark.once

coloraide = pytest.importorskip("coloraide")

VISIONS = ("normal", "protan", "deutan", "tritan")
WAITS = (
    *(Activity.NONCPU, Activity.CPU_WAIT, Activity.GIL_WAIT, Activity.LOCK_WAIT, Activity.IO_WAIT),
    *(Activity.SLEEP, Activity.DEVICE_WAIT, Activity.PAGE_FAULT, Activity.UNEXPLAINED),
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


@pytest.mark.parametrize("made", [THREADS, PROFILERS])
def test_the_plot_of_cpu_has_no_other_colour_of_the_page(made):
    """The same page has functions and activities: one colour has one meaning."""
    (layer,) = layers_of_cpu(CpuLayers(np.arange(2.0), {made: np.ones(1)}))
    for color in (*_COLORS, *_BEFORE_METERED.values(), *_AFTER_METERED.values()):
        assert distance(layer.color, color, "normal") >= 10, color


def test_cached_results_have_no_other_colour_of_the_page():
    for color in (*_COLORS, *_BEFORE_METERED.values(), *_AFTER_METERED.values(), RESIDENT):
        assert distance(CACHED, color, "normal") >= 10, color


def test_waits_are_warm():
    for wait in WAITS:
        red, _, blue = coloraide.Color(color_of_activity(wait)).convert("srgb").coords()
        assert red > blue, wait
