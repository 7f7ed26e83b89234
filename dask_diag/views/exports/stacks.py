"""Stacks in speedscope's format, and as collapsed stacks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import numpy as np

from dask_diag.analysis.call_tree import (
    ALL_SAMPLES,
    Selection,
    are_functions,
    short_path,
    tree_and_nodes,
)
from dask_diag.analysis.groups import distinct_pairs
from dask_diag.errors import DiagnosticError
from dask_diag.files import as_path, atomic_file, open_text
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.views.escaping import shown

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_LONGEST = 400


def export_stacks(
    recording: Recording,
    path: str | os.PathLike[str],
    selection: Selection = ALL_SAMPLES,
    *,
    overwrite: bool = False,
) -> None:
    """Write sampled stacks to a file for flame graph viewers.

    Parameters
    ----------
    recording : Recording
        Measurements with stack samples.
    path : str or os.PathLike
        ``*.speedscope.json`` for speedscope: a profile per function of tasks and per other root,
        weighted by seconds. ``*.collapsed`` or ``*.folded`` for lines of
        ``root;function;caller;callee weight``, weighted by whole microseconds.
    selection : Selection, optional
        Samples to use. Default: all.
    overwrite : bool, default False
        Replace an existing file.

    Raises
    ------
    DiagnosticError
        If the ending is unknown, the directory does not exist, the file exists and `overwrite` is
        false, or no sample is selected.
    """
    target = as_path(path, "path")
    kinds = {".speedscope.json": "speedscope", ".collapsed": "collapsed", ".folded": "collapsed"}
    kind = next((kinds[ending] for ending in kinds if target.name.endswith(ending)), None)
    if kind is None:
        raise DiagnosticError(
            "path: expected the ending .speedscope.json, .collapsed or .folded, found "
            f"{str(target)!r}"
        )
    with atomic_file(target, overwrite=overwrite) as temporary, open_text(temporary) as stream:
        stream.write(stacks_text(recording, kind, selection, target.name))


def stacks_text(
    recording: Recording,
    kind: str,
    selection: Selection = ALL_SAMPLES,
    name: str = "dask_diag",
) -> str:
    """Stacks as the content of a file: ``speedscope``, which has a name, or ``collapsed``."""
    nodes, weights = _weighted(recording, selection)
    if kind == "collapsed":
        return _as_collapsed(nodes, weights)
    return _as_speedscope(nodes, weights, name)


def _weighted(recording: Recording, selection: Selection) -> tuple[Table, list[tuple[int, float]]]:
    """The tree, and its nodes with their self seconds, in order of cycles.

    No samples are an error: viewers would show an empty file as a program that took no time.
    """
    if not len(recording.samples):
        raise DiagnosticError(
            "no stack samples to write: nothing was computed, or stacks were not sampled; "
            "record with SamplingProfiler, dask_diag.record or `dask-diag run`"
        )
    nodes, node = tree_and_nodes(recording, selection)
    samples = recording.samples
    seconds = samples.seconds * selection.shares(samples)
    asked = np.flatnonzero((node >= 0) & (seconds > 0))
    if not len(asked):
        raise DiagnosticError("no stack samples match: leave out function, key, or start and stop")
    _, nodes_then, row = distinct_pairs(samples["start"][asked], node[asked])
    summed = np.bincount(row, seconds[asked], minlength=len(nodes_then))
    return nodes, list(zip(nodes_then.tolist(), summed.tolist(), strict=True))


def _calls_down_to(nodes: Table) -> Callable[[int], list[int]]:
    """Make a function that returns the path from the root to a node."""
    parent = nodes["parent"].tolist()

    def calls(node: int) -> list[int]:
        path = []
        while node > 0:
            path.append(node)
            node = parent[node]
        return path[::-1]

    return calls


def _functions_and_roots(nodes: Table) -> list[int]:
    """The function of tasks above each node, or else the root."""
    tops = np.where((nodes["depth"] == 1) | are_functions(nodes), np.arange(len(nodes)), 0)
    top: list[int] = np.maximum.accumulate(tops).tolist()
    return top


def _as_speedscope(nodes: Table, weights: list[tuple[int, float]], filename: str) -> str:
    """A file in speedscope's format."""
    frames, frame_of_node = _frames(nodes)
    calls, top_of = _calls_down_to(nodes), _functions_and_roots(nodes)
    profiles: dict[int, tuple[list[list[int]], list[float]]] = {}
    for node, seconds in weights:
        stacks, values = profiles.setdefault(top_of[node], ([], []))
        path = [frame_of_node[call] for call in calls(node)]
        stacks.append([frame for frame in path if frame >= 0])
        values.append(seconds)
    content = {
        "$schema": _SCHEMA,
        "exporter": "dask_diag",
        "name": shown(filename, _LONGEST),
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
        "profiles": [
            {
                "type": "sampled",
                "name": shown(nodes["name"][top], _LONGEST),
                "unit": "seconds",
                "startValue": 0,
                "endValue": sum(values),
                "samples": stacks,
                "weights": values,
            }
            for top, (stacks, values) in sorted(profiles.items())
        ],
    }
    return json.dumps(content, separators=(",", ":"))


def _frames(nodes: Table) -> tuple[list[dict[str, str | int]], list[int]]:
    """Frames of speedscope's stacks, and the position of each node's frame.

    Functions of tasks are names of profiles, and have no frame (-1).
    """
    positions: dict[tuple[str, str, int], int] = {}
    is_frame_of_node = ((nodes["depth"] > 0) & ~are_functions(nodes)).tolist()
    positions_of_nodes = [
        positions.setdefault(described, len(positions)) if is_frame else -1
        for described, is_frame in zip(_described(nodes), is_frame_of_node, strict=True)
    ]
    frames: list[dict[str, str | int]] = [
        {"name": name, **({"file": file} if file else {}), **({"line": first} if first else {})}
        for name, file, first in positions
    ]
    return frames, positions_of_nodes


def _described(nodes: Table) -> list[tuple[str, str, int]]:
    """The name, file and first line of each node, fit to be shown."""
    names = [shown(name, _LONGEST) for name in nodes["name"].values]
    files = [shown(short_path(file), _LONGEST) for file in nodes["file"].values]
    return [
        (names[name], files[file], first)
        for name, file, first in zip(
            nodes["name"].codes.tolist(),
            nodes["file"].codes.tolist(),
            nodes["first_line"].tolist(),
            strict=True,
        )
    ]


def _as_collapsed(nodes: Table, weights: list[tuple[int, float]]) -> str:
    """The lines of collapsed stacks, each stack once; their weights sum to the seconds of all."""
    sums = np.zeros(len(nodes))
    np.add.at(sums, [node for node, _ in weights], [seconds for _, seconds in weights])
    # Cumulative sums are rounded, so that small weights are not lost.
    micros = np.diff(np.round(np.cumsum(sums) * 1e6), prepend=0).astype(np.int64).tolist()
    calls = _calls_down_to(nodes)
    words = [_word(*described) for described in _described(nodes)]
    lines = [
        ";".join(words[call] for call in calls(node)) + f" {weight}\n"
        for node, weight in enumerate(micros)
        if weight > 0
    ]
    return "".join(lines)


def _word(name: str, file: str, first: int) -> str:
    """A call as one part of a collapsed stack, without semicolons."""
    location = f" ({file}:{first})" if first else f" ({file})" if file else ""
    return (name + location).replace(";", ",").strip() or "(no name)"
