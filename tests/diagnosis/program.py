"""What a planted program is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Settings = Mapping[str, Any]
"""Of dask's configuration."""
PROCESSES: Settings = {"scheduler": "processes", "num_workers": 2}
STARTUP = frozenset({"pool-startup"})
"""What is true of short computations in processes."""
SLEEPING = frozenset({"too-few-threads"})
"""What is true of tasks that sleep, or wait, more than they compute."""


def threads(number: int) -> Settings:
    """Settings for this number of threads."""
    return {"scheduler": "threads", "num_workers": number}


def nothing() -> None:
    """Prepare nothing."""


@dataclass(frozen=True)
class Program:
    """A program with a known cause, and the same with its remedy.

    Attributes
    ----------
    name : str
    body : callable
        What is recorded and measured. It is called with what `prepare` returned and with whether
        the remedy is applied; both ways it returns the same result.
    code : str
        The finding that it must have, empty for a healthy program.
    true : frozenset of str
        Findings that are true of it besides.
    remaining : frozenset of str
        Findings that are true of it when the remedy is applied.
    settings, remedy : mapping
        Of dask, always, and with the remedy.
    variables : mapping
        Of the environment, with the remedy.
    prepare : callable
        What is needed before and not measured; a context manager, or nothing.
    gains : bool
        Whether the remedy makes it faster: else seconds are not compared.
    """

    name: str
    body: Callable[[Any, bool], Any]
    code: str = ""
    true: frozenset[str] = frozenset()
    remaining: frozenset[str] = frozenset()
    settings: Settings = field(default_factory=lambda: threads(2))
    remedy: Settings = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[], Any] = nothing
    gains: bool = True

    def settings_of(self, remedied: bool) -> dict[str, Any]:
        """Dask's configuration."""
        return {**self.settings, **(self.remedy if remedied else {})}
