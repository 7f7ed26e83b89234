"""Colours: how well they are seen on both pages, and how much they differ for any vision."""

import itertools
import re
from pathlib import Path

import pytest

from dask_diag import load, summary
from dask_diag.analysis.facts import Analysis
from dask_diag.live.answer import answer
from dask_diag.live.background import FindingsSoFar
from dask_diag.live.model import LiveModel
from dask_diag.model.codes import ACTIVITIES, PHASES, Activity
from dask_diag.views.assets import text_of
from dask_diag.views.colors import (
    _AFTER_METERED,
    _BEFORE_METERED,
    _COLORS,
    CACHED,
    CPU_LAYERS,
    LIMIT,
    MEMORY,
    OTHER,
    FunctionColors,
    color_of,
    look_of,
    pale_color_of,
    stacking_order,
    text_color_on,
)
from dask_diag.views.comparison import comparison_page
from dask_diag.views.live import live_page
from dask_diag.views.plots.layers import layers_of_cpu
from dask_diag.views.report.figures import Figures
from dask_diag.views.report.header import head
from dask_diag.views.report.page import report_page

pytestmark = pytest.mark.once

coloraide = pytest.importorskip("coloraide")

STACKED = [look.color for look in (*_BEFORE_METERED.values(), *_AFTER_METERED.values())]
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
    assert look_of("I/O").color == color_of("I/O")
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
        assert distance(look_of(Activity.CPU).color, look_of(wait).color, vision) >= 20
        # The plot of workers has waits above functions.
        for function in (*_COLORS, OTHER):
            apart = distance(function, look_of(wait).color, vision)
            assert apart >= (10 if vision == "normal" else 4), (function, wait, apart)
    for one, other in itertools.pairwise(STACKED):
        assert distance(one, other, vision) >= 8, (one, other)


def others_of_the_page():
    """Colours of a page that are none of a function."""
    return {
        **{name: look_of(name).color for name in (*ACTIVITIES, *PHASES)},
        **{look.name: look.color for look in (*CPU_LAYERS.values(), MEMORY, CACHED, LIMIT)},
    }


def test_a_function_is_unlike_all_else_of_the_page_and_so_are_cached_results():
    others = others_of_the_page()
    for function, (name, color) in itertools.product((*_COLORS, CACHED.color), others.items()):
        assert function == color or distance(function, color, "normal") >= 10, (function, name)
    activities = {look_of(name) for name in (*ACTIVITIES, *PHASES)}
    of_cpu = {
        look for look in CPU_LAYERS.values() if look.color not in {x.color for x in activities}
    }
    for layer, look in itertools.product(of_cpu, activities):
        assert distance(layer.color, look.color, "normal") >= 10, (layer, look)


STORIES = sorted((Path(__file__).parents[1] / "docs" / "stories").glob("*.diag"))


def drawn_colors(recording):
    """The looks of what is drawn in each figure that has several colours."""
    analysis = Analysis(recording)
    figures = Figures(analysis)
    wall = head(analysis).wall.parts
    return {
        "wall": [part.look for part in wall],
        "workers": [layer.look for layer in figures.layers],
        "cpu": [layer.look for layer in layers_of_cpu(figures.cpu_layers)],
        "memory": [look for look in figures.process_memory.key() if look.color],
    }


@pytest.mark.parametrize("path", STORIES, ids=[path.stem for path in STORIES])
def test_no_two_colours_of_a_figure_look_alike(path):
    for figure, items in drawn_colors(load(path)).items():
        for one, other in itertools.combinations(items, 2):
            # What is hatched or dashed is known from what is not by that.
            if one.hatch != other.hatch:
                continue
            for vision in VISIONS:
                least = 10 if vision == "normal" else 5
                apart = distance(one.color, other.color, vision)
                assert apart >= least, (figure, one.name, other.name, vision, apart)


SWATCH = re.compile(r'class="swatch ([^"]*)" style="--color: ([^"]+)"></span>([^<]+)')
PIECE = re.compile(r'<span class="([^"]*)" style="[^"]*--color: ([^";]+)[^"]*" title="([^"]+): ')
AMOUNT = re.compile(r"(,? peak .*| [\d.,]+ .*| <?[\d.]+%)$")


def looks_in(page):
    """Names in a page with colour and style: of its legends, and of the pieces of its bars."""
    found = [*SWATCH.findall(page), *PIECE.findall(page)]
    return {(AMOUNT.sub("", name.strip()), color, style) for style, color, name in found}


def test_a_meaning_has_one_name_and_one_colour_on_all_pages():
    before, after = (load(path) for path in STORIES if path.stem.startswith("groupby"))
    model = LiveModel(STORIES[0].parent / "groupby.diag")
    model.poll()
    said = answer(model, FindingsSoFar(Path(model.name)), 0)["workers"]
    pages = {
        "report": looks_in(report_page(Analysis(before))),
        "comparison": looks_in(comparison_page(before, after, ("a", "b"))),
        "live": {*looks_in(live_page("a")), *((AMOUNT.sub("", n), c, s) for n, *_, c, s in said)},
    }
    functions = {*before.tasks.function.values, *after.tasks.function.values}
    looks = {look for page in pages.values() for look in page if look[0] not in functions}
    of_name = {name: {look[1] for look in looks if look[0] == name} for name, *_ in looks}
    assert {name: found for name, found in of_name.items() if len(found) > 1} == {}
    names = {name for name, *_ in looks}
    assert {"scheduling overhead", "no task to run", "graph preparation", "start-up"} <= names
    for name in ("tasks computing (CPU)", "tasks off the CPU"):
        assert name in {name for name, *_ in pages["live"]} & {name for name, *_ in pages["report"]}
    # What looks alike is alike: a name more is one that says whose it is, in the plot of CPUs.
    of_look = {
        look[1:]: {name.removeprefix("tasks ") for name, *rest in looks if look[1:] == tuple(rest)}
        for look in looks
    }
    assert {look: found for look, found in of_look.items() if len(found) > 1} == {}
    # The bar in a terminal has the same names.
    bar = re.search(r"(?m)^Wall time .*\n.*\n((?:  [^\n]+\n)+)", summary(before))[1]
    said = {AMOUNT.sub("", name.strip()) for name in re.split(r"[█▓▒░▚▞·]", bar)} - {""}
    assert {" ".join(name.split()) for name in said} <= names
