"""What a reader chooses in the page: functions from a list that can be searched, and a unit."""

from __future__ import annotations

from bokeh.layouts import row
from bokeh.models import Button, CheckboxGroup, CustomJS, Select, TextInput

from dask_diag.formatting import count
from dask_diag.views.assets import callback
from dask_diag.views.plots.activities.bars import Numbers

__all__ = ["Choice"]

_ENTRY = 22
_MOST_LINES = 5
_ENTRIES_A_LINE = 4
_NARROWEST = 150
"""Pixels of an entry: a line has fewer entries where it is too narrow for so many."""
_LIST_STYLE = """
:host { overflow-y: auto; border: 1px solid #d5d5d5; border-radius: 3px; padding: 3px 6px;
        box-sizing: border-box; }
.bk-input-group { display: grid;
                  grid-template-columns: repeat(auto-fill, minmax(max(%dpx, %d%%), 1fr));
                  column-gap: 10px; row-gap: 0;
                  align-content: start; }
.bk-input-group > label { display: block; margin: 0; height: %dpx; overflow: hidden;
                          text-overflow: ellipsis; white-space: nowrap; font-size: 12px; }
"""


class Choice:
    """The widgets, in a layout; all functions are chosen, and seconds.

    Parameters
    ----------
    numbers : Numbers
    width : int
        Pixels.
    """

    def __init__(self, numbers: Numbers, width: int) -> None:
        functions = numbers.functions
        self.unit = Select(
            title="Unit",
            value="0",
            options=[(str(index), unit) for index, unit in enumerate(numbers.units)],
            width=150,
        )
        lines = -(-len(functions) // _ENTRIES_A_LINE)
        self.functions = CheckboxGroup(
            labels=functions,
            active=list(range(len(functions))),
            width=width - 10,
            height=_ENTRY * min(max(lines, 1), _MOST_LINES) + 8,
            stylesheets=[_LIST_STYLE % (_NARROWEST, 88 // _ENTRIES_A_LINE, _ENTRY)],
        )
        self._search = TextInput(
            title=f"Functions ({count(len(functions))}), the longest first",
            placeholder="search; the buttons choose what matches",
            width=300,
        )
        self._search.js_on_change("value_input", self._callback("show_matches"))
        buttons = [self._button("Choose all", True), self._button("Choose none", False)]
        self.layout = [row(self.unit, self._search, *buttons, width=width), self.functions]

    def _button(self, text: str, choose: bool) -> Button:
        # As low as the fields beside it, which have titles.
        button = Button(label=text, width=110, margin=(24, 5, 5, 5))
        button.js_on_event("button_click", self._callback("choose_matches", choose=choose))
        return button

    def _callback(self, function: str, **args: object) -> CustomJS:
        args = {"search": self._search, "function_list": self.functions, **args}
        return callback("plots/activities/controls.js", function, args)

    def when_changed(self, reaction: CustomJS) -> None:
        """Call a script when the reader has chosen otherwise."""
        self.functions.js_on_change("active", reaction)
        self.unit.js_on_change("value", reaction)
