"""The widgets of a flame graph, and the events at which its script is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from bokeh.events import DoubleTap, SelectionGeometry, Tap
from bokeh.layouts import column, row
from bokeh.models import (
    AutocompleteInput,
    Button,
    CustomJS,
    Div,
    LayoutDOM,
    RadioButtonGroup,
    Select,
    TextInput,
    Toggle,
    UIElement,
)
from bokeh.plotting import figure

from dask_diag.analysis.call_tree import are_functions
from dask_diag.model.table import Table
from dask_diag.views.assets import call
from dask_diag.views.plots.figures import Options, label

__all__ = ["ORDERS", "Controls", "controls_of", "listen", "panel_of"]

ORDERS = {"function": "By function", "time": "Time order", "sandwich": "Sandwich"}
"""The views of a flame graph: their names in the script, and in the page."""
_SMALL = {"font-size": "12px"}


@dataclass(frozen=True)
class Controls:
    """The widgets, by the names that the script has for them."""

    order: RadioButtonGroup
    mode: RadioButtonGroup
    folding: Toggle
    choice: Select
    search: TextInput
    key: AutocompleteInput
    up: Button
    reset: Button
    callee: Select
    status: Div
    detail: Div

    def models(self) -> dict[str, object]:
        """The widgets by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def rows(self) -> list[LayoutDOM]:
        """What stands above the graph."""
        first: list[UIElement] = [self.order, self.mode, self.folding, self.up, self.reset]
        second: list[UIElement] = [self.choice, self.search, self.key]
        return [row(*first, spacing=8), row(*second, spacing=8), self.callee, self.status]


def controls_of(
    nodes: Table,
    options: Options,
    modes: Sequence[str],
    orders: Sequence[str] = tuple(ORDERS),
    keys: Sequence[str] = (),
) -> Controls:
    """Widgets to choose a view, a root or a function, a unit, and a task, and to search.

    Parameters
    ----------
    nodes : Table
    options : Options
    modes : sequence of str
        The units of width, as the page calls them.
    orders : sequence of str, optional
        Which of `ORDERS` there are.
    keys : sequence of str, optional
        Of the tasks that can be chosen.
    """
    is_choice = (nodes["depth"] == 1) | are_functions(nodes)
    names = [
        (str(n), label(nodes["name"][n], options.label_size))
        for n in np.flatnonzero(is_choice).tolist()
    ]
    return Controls(
        order=RadioButtonGroup(
            labels=[ORDERS[order] for order in orders],
            active=0,
            width=270,
            visible=len(orders) > 1,
        ),
        mode=RadioButtonGroup(labels=list(modes), active=0, width=230),
        folding=Toggle(label="Fold libraries", width=120),
        choice=Select(value="0", options=[("0", "all"), *names], width=260),
        search=TextInput(placeholder="search functions and files", width=260),
        key=AutocompleteInput(
            placeholder="key of a task",
            completions=list(keys),
            restrict=False,
            case_sensitive=False,
            search_strategy="includes",
            min_characters=1,
            max_completions=20,
            width=260,
            visible=bool(keys),
        ),
        up=Button(label="Up", width=70),
        reset=Button(label="Reset", width=70),
        callee=Select(value="", options=[("", "")], width=796, visible=False),
        status=Div(text="", disable_math=True, min_height=20, styles=_SMALL),
        detail=Div(text="", disable_math=True, min_height=36, styles=_SMALL),
    )


def panel_of(
    controls: Controls, graph: figure, *others: LayoutDOM, warnings: Sequence[Div] = ()
) -> LayoutDOM:
    """The widgets, the graph, its detail, and what is below them; warnings above all."""
    parts = [*warnings, *controls.rows(), graph, controls.detail, *others]
    settings = {"sizing_mode": graph.sizing_mode} if graph.sizing_mode else {}
    return column(*parts, spacing=2, **settings)


def listen(
    models: Mapping[str, object], graph: figure, timeline: figure, controls: Controls
) -> None:
    """Call the script for each event with the name of what to do."""
    args = {**models, **controls.models(), "graph": graph, "timeline": timeline}
    names = ", ".join(args)
    # The numbers are in the page once: events go through one callback that has them.
    flame = CustomJS(
        args=args,
        code=call("plots/flame/flame.js", "act", f"{{{names}}}, cb_obj, cb_data.action"),
    )

    def does(action: str) -> CustomJS:
        code = f"return flame.execute(cb_obj, {{action: '{action}'}})"
        return CustomJS(args={"flame": flame}, code=code)

    graph.js_on_change("inner_width", does("resize"))
    for end in ("start", "end"):
        graph.x_range.js_on_change(end, does("move"))
        graph.y_range.js_on_change(end, does("move"))
        timeline.x_range.js_on_change(end, does("move_in_time"))
    timeline.js_on_event(SelectionGeometry, does("choose_range"))
    # The second of two quick clicks is a double one, wherever it is.
    for click in (Tap, DoubleTap):
        graph.js_on_event(click, does("zoom"))
        timeline.js_on_event(click, does("forget_range"))
    for widget, prop, action in (
        (controls.order, "active", "switch_order"),
        (controls.mode, "active", "switch_mode"),
        (controls.folding, "active", "fold"),
        (controls.choice, "value", "choose"),
        (controls.callee, "value", "choose_function"),
        (controls.search, "value_input", "find"),
        (controls.key, "value_input", "choose_key"),
    ):
        widget.js_on_change(prop, does(action))
    controls.up.js_on_click(does("go_up"))
    controls.reset.js_on_click(does("reset"))
