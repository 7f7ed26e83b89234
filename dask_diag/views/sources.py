"""What can be shown: diagnostics, recordings, or a list of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dask_diag.errors import DiagnosticError
from dask_diag.model.recording import Recording

__all__ = ["listed", "recording_of"]


def listed(sources: Any) -> list[Any]:
    """`sources` as a list, whether it is one or several.

    Raises
    ------
    DiagnosticError
        If it is empty or holds something that cannot be shown.
    """
    several = isinstance(sources, Iterable) and not _can_be_shown(sources)
    items = list(sources) if several else [sources]
    if not items:
        raise DiagnosticError("expected a profiler or a list of them, found an empty list")
    for item in items:
        if not _can_be_shown(item):
            raise DiagnosticError(
                f"expected a profiler, a Recording, or a list of them, found {type(item).__name__}"
            )
    return items


def _can_be_shown(item: Any) -> bool:
    return isinstance(item, Recording) or (hasattr(item, "_plot") and not isinstance(item, type))


def recording_of(sources: Any) -> Recording:
    """The recording of one source, or of several combined."""
    items = listed(sources)
    for item in items:
        if not isinstance(item, Recording) and not hasattr(item, "recording"):
            raise DiagnosticError(
                f"expected a profiler of dask_diag, found {type(item).__module__}."
                f"{type(item).__name__}, which has no recording"
            )
    recordings = [item if isinstance(item, Recording) else item.recording for item in items]
    return recordings[0] if len(recordings) == 1 else Recording.combine(recordings)
