"""Put the thresholds of findings into the pages of ``docs/findings``, as substitutions.

``|waited|`` is the value of ``WAITED`` with its unit. Each page has the constants that the rule of
its finding uses, and those that all findings share.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dask_diag.analysis import facts, memory
from dask_diag.analysis.findings import rule, rules, waiting

if TYPE_CHECKING:
    from sphinx.application import Sphinx

PAGES = Path(__file__).with_name("findings")
SHARED: Mapping[str, float] = {
    "LONG_ENOUGH": rules.LONG_ENOUGH,
    "NOTICED": rules.NOTICED,
    "NOTICED_SECONDS": rules.NOTICED_SECONDS,
    "OF_LARGEST": rules.OF_LARGEST,
    "USED_BY_OTHERS": rule.USED_BY_OTHERS,
    "HIGH": rule.HIGH,
    "MEDIUM": rule.MEDIUM,
    "WORTH_GAINING": rule.WORTH_GAINING,
    "REPLAYED_WITHIN": facts.REPLAYED_WITHIN,
    "MOST_SIMULATED": facts.MOST_SIMULATED,
    "MOST_OF_MEMORY": memory.MOST_OF_MEMORY,
}
"""Thresholds of several findings: the index lists them."""
TIMES_AS_MANY = ", ".join(map(str, waiting.TIMES_AS_MANY))
SECONDS = {
    "A_FREED_OBJECT",
    "LATE",
    "LONG_CLUSTER",
    "LONGER_THAN_IMPORTS",
    "LONG",
    "LONG_ENOUGH",
    "LONG_OWN",
    "LONG_PREPARATION",
    "LONG_READING",
    "LONG_START",
    "NOTICED_SECONDS",
    "OF_LONGER_TASKS",
    "PREPARED_PER_TASK",
    "SHORT",
    "SHORT_PROGRAM",
}
BYTES = {
    *(
        "BYTES_A_SECOND",
        "FEW_BYTES",
        "GROWN",
        "LARGE",
        "LARGE_ARGUMENT",
        "MUCH_BROUGHT",
        "MUCH_GIVEN",
    ),
    *("MUCH_MOVED", "SLOW_ON_A_HOST", "SLOW_TO_UNPICKLE", "SMALL", "VERY_LARGE"),
}
NUMBERS = {"LEAST_OF_ONE_CPU", "UNEVEN"}
"""Below 1, and not shares."""


def thresholds_of(code: str) -> dict[str, float]:
    """The constants, by name, that the rule of a finding and the functions that it calls use."""
    (examine,) = (one.examine for one in rules.RULES if one.code == code)
    functions = [examine]
    constants: dict[str, float] = {}
    for function in functions:
        for name in _names_in(function.__code__):
            value = function.__globals__.get(name)
            if isinstance(value, types.FunctionType):
                is_own = value.__module__.startswith("dask_diag.analysis.findings")
                if is_own and value not in functions:
                    functions.append(value)
            elif name.isupper() and isinstance(value, (int, float)):
                is_other = constants.setdefault(name, value) != value
                if is_other:
                    raise ValueError(f"{code}: expected one constant {name}, found two")
    return {
        name: value
        for name, value in constants.items()
        if name == "MOST_LINES" or name not in vars(rule)
    }


def _names_in(code: types.CodeType) -> Iterator[str]:
    """The names that a function, and what is defined in it, uses."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


def text_of(name: str, value: float) -> str:
    """A threshold with its unit."""
    if name in SECONDS:
        return f"{value:g} s" if value >= 0.1 else f"{1e3 * value:g} ms"
    if name in BYTES:
        return f"{value / 1e9:g} GB" if value >= 1e9 else f"{value / 1e6:g} MB"
    if value < 1 and name not in NUMBERS:
        return f"{100 * value:g}%"
    return f"{value:,g}" if value < 1e5 else f"{value:,}"


def substitutions(page: str) -> dict[str, str]:
    """Names and texts of the thresholds that a page may state: of a finding, or of the index."""
    thresholds = {**SHARED, **({} if page == "index" else thresholds_of(page))}
    texts = {name.lower(): text_of(name, value) for name, value in thresholds.items()}
    return {**texts, "times_as_many": TIMES_AS_MANY}


def _append(app: Sphinx, document: str, text: list[str]) -> None:
    folder, _, page = document.rpartition("/")
    if folder == PAGES.name:
        lines = [f".. |{name}| replace:: {value}" for name, value in app.config.thresholds[page]]
        text[0] += "\n" + "\n".join(lines) + "\n"


def setup(app: Sphinx) -> None:
    """Called by Sphinx. A page is read again if a threshold has changed."""
    pages = ["index", *rules.CODES]
    texts = {page: sorted(substitutions(page).items()) for page in pages}
    app.add_config_value("thresholds", texts, "env")
    app.connect("source-read", _append)
