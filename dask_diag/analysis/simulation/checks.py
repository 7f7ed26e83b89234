"""Whether what is asked of a simulation is of the right kind, whatever annotations promise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import inf

from dask_diag.analysis.simulation.schedulers import COSTS
from dask_diag.errors import DiagnosticError

__all__ = ["check", "is_number_of_workers"]


def check(changes: Mapping[str, object]) -> None:
    """Refuse values of the wrong kind.

    Raises
    ------
    DiagnosticError
    """
    for name, (fits, expected) in _EXPECTED.items():
        value = changes.get(name)
        if value is not None and not fits(value):
            raise DiagnosticError(f"{name}: expected {expected}, found {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, (int, float)) and _is_number(value) and value >= 1 and value % 1 == 0


def is_number_of_workers(value: object) -> bool:
    """Whether there can be so many workers."""
    return value == inf or _is_count(value)


def _is_size(value: object) -> bool:
    return isinstance(value, (int, float)) and _is_number(value) and 0 <= value < inf


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_scheduler(value: object) -> bool:
    return isinstance(value, str) and value in COSTS


def _are_factors(value: object) -> bool:
    return isinstance(value, Mapping) and _are_texts(value) and all(map(_is_number, value.values()))


def _are_activities(value: object) -> bool:
    """Of a text, the letters are no activities: that is found where their names are known."""
    return _are_factors(value) if isinstance(value, Mapping) else _are_texts(value)


def _are_texts(value: object) -> bool:
    return isinstance(value, Collection) and all(isinstance(text, str) for text in value)


_EXPECTED: dict[str, tuple[Callable[[object], bool], str]] = {
    "workers": (is_number_of_workers, "a number from 1 on, or inf"),
    "merge_tasks": (_is_count, "a number from 1 on"),
    "chunksize": (_is_count, "a number from 1 on"),
    "scheduler": (_is_scheduler, f"one of {', '.join(COSTS)}"),
    "result_bytes": (_is_size, "a number of bytes"),
    "idle_machine": (_is_bool, "True or False"),
    "idle_pools": (_is_bool, "True or False"),
    "speedup": (_are_factors, "a mapping of names to numbers, such as {'function': 2.0}"),
    "remove": (_are_activities, "a set of activities, or a mapping of them to shares"),
}
"""Of each change, whether a value fits, and what was expected; None is as recorded."""
