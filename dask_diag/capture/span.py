"""Names for parts of a program, which every computation in them takes on."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

from dask_diag.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["current_span", "name_of_annotation", "span"]

SEPARATOR = "/"

_path: ContextVar[tuple[str, ...]] = ContextVar("dask_diag_span", default=())


@contextmanager
def span(name: str) -> Iterator[None]:
    """Name every computation that starts in a block; blocks may be nested.

    Parameters
    ----------
    name : str
        The name; in a block inside another it follows that one's, after a slash.

    Raises
    ------
    TypeError, ValueError
        If the name is not a text, or empty.

    Examples
    --------
    >>> from dask_diag import span
    >>> with span("load"):
    ...     with span("parse"):
    ...         pass        # computations here are in the span "load/parse"
    """
    if not isinstance(name, str):
        raise ArgumentTypeError(f"span: expected a name, found {name!r}")
    if not name:
        raise ArgumentValueError("span: expected a name, found an empty text")
    token = _path.set((*_path.get(), name))
    try:
        with _span_on_clusters(name):
            yield
    finally:
        _path.reset(token)


def _span_on_clusters(name: str) -> AbstractContextManager[object]:
    """The same for what is sent to a cluster, in a process that has a client."""
    distributed = sys.modules.get("distributed")
    try:
        if distributed is not None and distributed.default_client():
            context: AbstractContextManager[object] = distributed.span(name)
            return context
    except (ValueError, AttributeError):
        # There is no client.
        pass
    return nullcontext()


def name_of_annotation(annotation: object) -> str:
    """The name of the span that a task was annotated with, by ``dask.annotate`` or distributed."""
    if isinstance(annotation, Mapping) and isinstance(annotation.get("name"), (tuple, list)):
        return SEPARATOR.join(map(str, annotation["name"]))
    return str(annotation)


def current_span() -> str:
    """The name of the span that is open here, with those around it; empty if there is none."""
    return SEPARATOR.join(_path.get())
