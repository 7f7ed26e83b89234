"""What can be shown: profilers, recordings, or a list of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeGuard, TypeVar

from dask_diag.errors import DiagnosticError
from dask_diag.model.recording import Recording

__all__ = ["Sources", "listed", "recording_of"]


class Profiler(Protocol):
    """A profiler of dask_diag, as far as views are concerned."""

    @property
    def recording(self) -> Recording:
        """What it has measured so far."""


Source = Recording | Profiler
Sources = Source | Iterable[Source]
