"""Sources of views: profilers, recordings, or a list of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from inspect import getattr_static
from typing import TYPE_CHECKING, Protocol, cast

from dask_diag.errors import DiagnosticError
from dask_diag.model.recording import Recording

if TYPE_CHECKING:
    from typing import TypeAlias


class HasRecording(Protocol):
    """A profiler, as views need it."""

    draws: str
    """Name of the profiler's plot."""

    @property
    def recording(self) -> Recording:
        """Recording of the measurements so far."""


Source: TypeAlias = Recording | HasRecording
Sources: TypeAlias = Source | Iterable[Source]


def listed(sources: Sources) -> Sequence[Source]:
    """List one source or several sources.

    Raises
    ------
    DiagnosticError
        If the list is empty or holds something that cannot be shown.
    """
    if isinstance(sources, Iterable) and not _can_be_shown(sources):
        items = list(sources)
    else:
        items = [cast("Source", sources)]
    if not items:
        raise DiagnosticError("expected a profiler or a list of them, found an empty list")
    for item in items:
        if not _can_be_shown(item):
            raise DiagnosticError(
                f"expected a profiler, a Recording, or a list of them, found {type(item).__name__}"
            )
    return items


def _can_be_shown(item: object) -> bool:
    shown = has_recording(item) or hasattr(item, "visualize")
    return isinstance(item, Recording) or (shown and not isinstance(item, type))


def has_recording(item: object) -> bool:
    """Whether an item is a profiler of dask_diag. `hasattr` would make its recording."""
    return getattr_static(item, "recording", None) is not None


def recording_of(sources: Sources) -> Recording:
    """Recording of one source, or of several sources combined."""
    items = listed(sources)
    for item in items:
        if not isinstance(item, Recording) and not has_recording(item):
            raise DiagnosticError(
                f"expected a profiler of dask_diag, found {type(item).__module__}."
                f"{type(item).__name__}, which has no recording"
            )
    recordings = [item if isinstance(item, Recording) else item.recording for item in items]
    return recordings[0] if len(recordings) == 1 else Recording.combine(recordings)
