"""The times of a sampling profiler: as given, else as dask's configuration has them."""

from __future__ import annotations

from math import isfinite

from dask.utils import parse_timedelta

from dask_diag.config import setting
from dask_diag.errors import DiagnosticError

__all__ = ["sample_times"]

_SHORTEST = 1e-4


def sample_times(interval: str | float | None, cycle: str | float | None) -> tuple[float, float]:
    """The seconds between two samples, and of a cycle; one that is not given is no shorter.

    Raises
    ------
    DiagnosticError
        If a time cannot be understood, is shorter than 0.1 ms, or a given cycle is shorter than
        the interval.
    """
    between, cycle_seconds = _seconds("interval", interval), _seconds("cycle", cycle)
    if cycle is None:
        return between, max(cycle_seconds, between)
    if cycle_seconds < between:
        raise DiagnosticError(
            f"cycle: expected at least the interval of {between:g} s, found {cycle_seconds:g} s"
        )
    return between, cycle_seconds


def _seconds(name: str, value: str | float | None) -> float:
    """A time that the user gave, or else what dask's configuration has."""
    where = name
    if value is None:
        where = f"diag.profile.{name} of dask's configuration"
        value = setting(f"diag.profile.{name}")
    message = (
        f"{where}: expected a time of 0.1 ms or more, as '10ms' or in seconds, found {value!r}"
    )
    try:
        seconds = float(parse_timedelta(value, default="s"))
    except Exception:
        raise DiagnosticError(message) from None
    if isinstance(value, bool) or not isfinite(seconds) or seconds < _SHORTEST:
        raise DiagnosticError(message)
    return seconds
