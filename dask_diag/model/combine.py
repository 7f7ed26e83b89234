"""One recording of several: each computation once, and positions that refer to the right rows."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_diag.columns import Categorical
from dask_diag.model.recording import worst_state
from dask_diag.model.table import NO_ROWS, Table, stack
from dask_diag.schema import REFERENCES

if TYPE_CHECKING:
    from dask_diag.model.recording import Recording

__all__ = ["combined"]


def combined(parts: Sequence[Recording]) -> dict[str, Any]:
    """The fields of the recording that `Recording.combine` makes of these."""
    computations, cache, pools = (
        stack([part.rows(kept) for part, kept in _without_repeats(parts, name)])
        for name in ("computations", "cached_results", "pools")
    )
    tasks, references = _combined_tasks(parts)
    frames, stacks, samples = _combined_samples(parts)
    measured = next((part for part in parts if part.metric), parts[0])
    return dict(
        start=min(part.start for part in parts),
        stop=max(part.stop for part in parts),
        epoch=parts[0].epoch,
        computations=computations,
        tasks=tasks,
        resources=stack([part.resources for part in parts]),
        processes=stack([part.processes for part in parts]),
        memory=_combined_memory(parts),
        cached_results=cache,
        pools=pools,
        frames=frames,
        call_tree=stacks,
        samples=samples,
        environment=next((p.environment for p in parts if len(p.environment)), NO_ROWS),
        metric=measured.metric,
        metric_unit=measured.metric_unit,
        notices=tuple(dict.fromkeys(text for part in parts for text in part.notices)),
        state=worst_state(part.state for part in parts),
        **references,
    )


def _combined_tasks(parts: Sequence[Recording]) -> tuple[Table, dict[str, Table]]:
    """The tasks of all parts, and the tables that refer to them."""
    tables: list[Table] = []
    references: dict[str, list[Table]] = {name: [] for name in REFERENCES}
    before = 0
    for part, (table, kept) in zip(parts, _without_repeats(parts, "tasks"), strict=True):
        tables.append(table.rows(kept))
        place = np.cumsum(kept) - 1 + before
        for name, columns in REFERENCES.items():
            references[name].append(_moved(getattr(part, name), columns, kept, place))
        before += int(kept.sum())
    return stack(tables), {name: stack(found) for name, found in references.items()}


def _moved(table: Table, columns: tuple[str, ...], kept: Any, place: Any) -> Table:
    """The rows that refer to tasks which are kept, with the tasks' new positions."""
    if not len(table):
        return table
    there = table.rows(np.logical_and.reduce([kept[table[name]] for name in columns]))
    return Table(
        {name: place[there[name]] if name in columns else there[name] for name in there.columns}
    )


def _combined_memory(parts: Sequence[Recording]) -> Table:
    """The series of all parts. What starts at the same time with the same label is the same."""
    longest: dict[tuple[str, float], Table] = {}
    for part in parts:
        table = part.memory
        if not len(table):
            continue
        for code, label in enumerate(table["label"].values):
            series = table.rows(table["label"].codes == code)
            if len(series):
                known = longest.setdefault((label, float(series["time"][0])), series)
                if len(series) > len(known):
                    longest[label, float(series["time"][0])] = series
    labels: list[str] = []
    for label, _ in longest:
        labels.append(_unused(label, labels))
    named = [_labelled(*pair) for pair in zip(labels, longest.values(), strict=True)]
    return stack(named or [NO_ROWS])


def _labelled(label: str, series: Table) -> Table:
    columns = {name: series[name] for name in series.columns}
    return Table({**columns, "label": Categorical(np.zeros(len(series), np.uint8), [label])})


def _unused(label: str, used: Container[str]) -> str:
    """The label, with a number added if it is among those used."""
    name, count = label, 1
    while name in used:
        count += 1
        name = f"{label} ({count})"
    return name


def _combined_samples(parts: Sequence[Recording]) -> tuple[Table, Table, Table]:
    """The frames, stacks and samples of all parts, without time that an earlier part sampled."""
    frames, stacks, samples = [], [], []
    frames_before = stacks_before = 0
    for position, part in enumerate(parts):
        frames.append(part.frames)
        stacks.append(_shifted(part.call_tree, {"parent": stacks_before, "frame": frames_before}))
        fresh = _not_sampled_before(part, parts[:position])
        samples.append(_shifted(fresh, {"node": stacks_before}))
        frames_before += len(part.frames)
        stacks_before += len(part.call_tree)
    return stack(frames), stack(stacks), stack(samples)


def _shifted(table: Table, columns: Mapping[str, int]) -> Table:
    """The table with some of its positions moved on; -1 refers to nothing and stays."""
    if not len(table):
        return table
    return Table(
        {
            name: np.where(table[name] < 0, -1, table[name].astype(np.int64) + columns[name])
            if name in columns
            else table[name]
            for name in table.columns
        }
    )


def _not_sampled_before(part: Recording, earlier: Sequence[Recording]) -> Table:
    """The samples from outside the time in which an earlier part sampled the same computations."""
    samples = part.samples
    if not len(samples):
        return samples
    fresh = np.ones(len(samples), dtype=bool)
    middle = (samples["start"] + samples["stop"]) / 2
    for other in earlier:
        if len(other.samples) and _names_of_computes(part) & _names_of_computes(other):
            begun, ended = other.samples["start"].min(), other.samples["stop"].max()
            fresh &= (middle < begun) | (middle > ended)
    return samples.rows(fresh)


def _names_of_computes(part: Recording) -> set[str]:
    return set(part.computations["computation"].tolist()) if len(part.computations) else set()


def _without_repeats(
    parts: Sequence[Recording], name: str
) -> Iterator[tuple[Table, np.ndarray[Any, Any]]]:
    """The tables of that name, with a mask of the rows of computations not seen before."""
    seen: set[Any] = set()
    for part in parts:
        table: Table = getattr(part, name)
        if not len(table):
            yield table, np.zeros(0, dtype=bool)
            continue
        column: Categorical = table["computation"]
        present = {column.values[code] for code in np.unique(column.codes).tolist()}
        repeated = np.isin(column.codes, [column.values.index(v) for v in present & seen])
        seen |= present
        yield table, ~repeated
