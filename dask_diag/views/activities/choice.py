"""What a reader chooses in the page: functions from a list that can be searched, and a unit."""

from __future__ import annotations

from typing import Any

from bokeh.layouts import row
from bokeh.models import Button, CheckboxGroup, CustomJS, Select, TextInput

from dask_diag.units import count
from dask_diag.views.activities.bars import Numbers

__all__ = ["Choice"]

_ENTRY = 22
_MOST_LINES = 5
_ENTRIES_A_LINE = 4
_NARROWEST = 150
"""Pixels of an entry: where there is no room for so many in a line, there are less."""
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
_FOUND = """
const wanted = search.value_input.trim().toLowerCase()
const found = function_list.labels.map((label) => label.toLowerCase().includes(wanted))
"""
_SHOW_FOUND = """
const hidden = found.flatMap((is, i) => is ? [] : [`.bk-input-group > label:nth-child(${i + 1})`])
const style = hidden.length ? [`${hidden.join(",")} { display: none }`] : []
function_list.stylesheets = [function_list.stylesheets[0], ...style]
"""
_CHOOSE_FOUND = """
const chosen = new Set(function_list.active)
found.forEach((is, i) => { if (is) choose ? chosen.add(i) : chosen.delete(i) })
function_list.active = [...chosen].sort((a, b) => a - b)
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
            options=[(str(place), unit) for place, unit in enumerate(numbers.units)],
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
            placeholder="search; the buttons choose what is found",
            width=300,
        )
        self._when_searched()
        buttons = [self._button("Choose all", True), self._button("Choose none", False)]
        self.layout = [row(self.unit, self._search, *buttons, width=width), self.functions]

    def _when_searched(self) -> None:
        code = CustomJS(args=self._args(), code=_FOUND + _SHOW_FOUND)
        self._search.js_on_change("value_input", code)

    def _button(self, text: str, choose: bool) -> Any:
        # As low as the fields beside it, which have titles.
        button = Button(label=text, width=110, margin=(24, 5, 5, 5))
        code = CustomJS(args={**self._args(), "choose": choose}, code=_FOUND + _CHOOSE_FOUND)
        button.js_on_event("button_click", code)
        return button

    def _args(self) -> dict[str, Any]:
        return {"search": self._search, "function_list": self.functions}

    def when_changed(self, code: str, args: dict[str, Any]) -> None:
        """Run JavaScript when the reader has chosen otherwise."""
        callback = CustomJS(
            args={**args, "function_list": self.functions, "unit_select": self.unit}, code=code
        )
        self.functions.js_on_change("active", callback)
        self.unit.js_on_change("value", callback)
