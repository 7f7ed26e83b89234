"""Chunks of events that coffea's Runner sends to workers, from the task's argument and result.

Nothing of coffea is imported, and the processor runs unchanged: an argument is a work item by its
attributes, and the result is looked at on its way to coffea's compression.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from math import nan
from typing import TYPE_CHECKING, Any

from dask_diag.capture.failures import failure_of, passes_errors_on
from dask_diag.cluster.wire import BranchSizes, ChunkOfEvents

if TYPE_CHECKING:
    from dask_diag.hooks.stack import GraphNode

_OF_A_WORK_ITEM = ("dataset", "filename", "treename", "entrystart", "entrystop", "fileuuid")


class ChunkTask:
    """Runs the task of a chunk and keeps what is known of the chunk.

    Attributes
    ----------
    run : callable
        The task; or a copy whose function passes the result on to be read.
    """

    def __init__(self, task: Any, item: Any) -> None:
        self._item = item
        self._metrics: Mapping[str, Any] = {}
        self._objects: dict[str, Any] = {}
        self.run = copy(task)
        self.run.func = self._reading(task.func)

    def _reading(self, function: Any) -> Any:
        """The task's function, or a copy of it, that shows its result and the file's tree."""
        if hasattr(function, "function") and type(function).__module__.startswith("coffea."):
            # Compresses what the function inside of it returns.
            compressing = copy(function)
            compressing.function = self._reading(function.function)
            return compressing
        return _Reader(_with_object_cache(function, self._objects), self)

    def read(self, result: object) -> None:
        """Keep the metrics of the result, which exist with ``savemetrics=True``."""
        metrics = result.get("metrics") if isinstance(result, dict) else None
        if isinstance(metrics, dict):
            self._metrics = metrics

    def end(self, error: BaseException | None) -> ChunkOfEvents | Sequence[object]:
        """Describe the chunk; `error` is the exception that its task raised.

        Nothing is raised, because the times of the task are known without it.
        """
        item, metrics = self._item, self._metrics
        try:
            # The name of a branch is followed by a dash and the kind of buffer.
            used = {str(column).rpartition("-")[0] for column in metrics.get("columns", ())}
            # Some may be read in advance, for all chunks of a dataset.
            preloaded = getattr(item, "preload", None) if used else None
            return ChunkOfEvents(
                dataset=str(item.dataset),
                file=str(item.filename),
                tree=str(item.treename),
                first=int(item.entrystart),
                last=int(item.entrystop),
                bytes=float(metrics.get("bytesread", nan)),
                branches=self._sizes_of(used, {*map(str, preloaded or ())}),
                error="" if error is None else _reason(error),
            )
        except Exception:
            return ()
        finally:
            self._objects.clear()

    def _sizes_of(self, used: set[str], preloaded: set[str]) -> Sequence[BranchSizes]:
        """The tree as a whole, and the branches that were read; nothing if no tree was seen."""
        # A file of the same name may be written again.
        file = str(self._item.filename), str(self._item.treename), self._item.fileuuid
        sizes = _trees.get(file)
        if sizes is None:
            trees = [o for o in self._objects.values() if hasattr(o, "itervalues")]
            sizes = _sizes_of_branches(trees[0]) if trees else {}
            if len(_trees) >= _MOST_TREES:
                _trees.clear()
            _trees[file] = sizes
        whole = [sum(numbers) for numbers in zip(*sizes.values(), strict=True)]
        named = [
            BranchSizes(name, 1, *sizes[name], int(name not in used))
            for name in sorted((used | preloaded) & sizes.keys())
        ]
        return [BranchSizes("", len(sizes), whole[0], whole[1], 0), *named] if whole else []


class _Reader:
    """Calls a function and shows the result to a chunk."""

    def __init__(self, function: Callable[..., object], chunk: ChunkTask) -> None:
        self._function = function
        self._chunk = chunk

    def __call__(self, *args: object, **kwargs: object) -> object:
        result = self._function(*args, **kwargs)
        # An error would be the task's failure.
        with suppress(Exception):
            self._chunk.read(result)
        return result


passes_errors_on.add(id(_Reader.__call__.__code__))


_MOST_TREES = 100
_trees: dict[tuple[str, str, Hashable], Mapping[str, tuple[int, int]]] = {}
"""Bytes of the branches of files: several chunks of a file run on one worker."""


def _sizes_of_branches(tree: Any) -> Mapping[str, tuple[int, int]]:
    """Compressed and uncompressed bytes of each branch with data, from the file's metadata."""
    return {
        str(branch.name): (int(branch.compressed_bytes), int(branch.uncompressed_bytes))
        for branch in tree.itervalues(recursive=True)
        if branch.compressed_bytes
    }


def _with_object_cache(function: Any, objects: dict[str, Any]) -> Any:
    """Copy of a function that opens a file so that `objects` receives the objects read from it.

    uproot would make such a cache for each file it opens, which nobody could reach.
    """
    if not isinstance(function, partial):
        return function
    keywords = function.keywords
    options = keywords.get("uproot_options", objects)
    if options is not objects and "object_cache" not in (options or {}):
        keywords = {**keywords, "uproot_options": {**(options or {}), "object_cache": objects}}
    inner = [_with_object_cache(argument, objects) for argument in function.args]
    return partial(function.func, *inner, **keywords)


def chunk_of(task: GraphNode) -> ChunkTask | None:
    """The chunk of a task; None if the task has no work item of coffea."""
    if "coffea" not in sys.modules:
        return None
    # coffea calls its function with the work item, or with a pair of it and the processor.
    item = _first(task)
    if not hasattr(item, "fileuuid"):
        item = _first(item)
    return ChunkTask(task, item) if all(hasattr(item, name) for name in _OF_A_WORK_ITEM) else None


def _first(node: Any) -> Any:
    """The first argument of a node of a graph, or the first part of a pair."""
    parts = getattr(node, "args", node)
    first = parts[0] if isinstance(parts, (tuple, list)) and parts else None
    return getattr(first, "value", first)


def _reason(error: BaseException) -> str:
    """Type and message of the exception in which the processor, or the opening of a file, ended."""
    while error.__cause__ is not None:
        error = error.__cause__
    message = failure_of(error).message
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
