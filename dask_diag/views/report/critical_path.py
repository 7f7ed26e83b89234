"""The section of a report on the critical path: which tasks waited for which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from dask_diag.analysis.analysis import Analysis
from dask_diag.formatting import amount, count, counted, percent, seconds
from dask_diag.views.part_names import names_of_computations
from dask_diag.views.plots.tasks.plot import MOST_RECTANGLES
from dask_diag.views.report.components import Fold, Grid, Part, Text, of_first, safe
from dask_diag.views.report.figures import Figures

__all__ = ["CriticalPath", "longest_chains", "path_switch"]

_CHAIN = 200


@dataclass(frozen=True)
class CriticalPath(Part):
    """The switch that outlines the critical path among the tasks."""

    text: str
    paths: Sequence[Sequence[int]] = field(repr=False)
    """Of each computation the numbers of its tasks in the page, in order."""
    is_on: bool
    """Whether it is outlined when the page opens."""
    kind: ClassVar[str] = "critical-path"


def path_switch(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """The switch that outlines it, if it is known and short enough to be in the page."""
    if not len(analysis.recording.dependencies):
        return
    paths = figures.critical_paths()
    tasks = sum(map(len, paths))
    if 0 < tasks <= MOST_RECTANGLES:
        text = f"{seconds(analysis.critical_path.length)} in {counted(tasks, 'task')}"
        yield CriticalPath(text, paths, len(analysis.recording.tasks) <= MOST_RECTANGLES)


def longest_chains(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """The critical path."""
    if not len(analysis.recording.dependencies):
        yield Text(["No dependencies between tasks were recorded."])
        return
    path, recording = analysis.critical_path, analysis.recording
    computations = recording.computations.computation.tolist()
    names = dict(zip(computations, names_of_computations(recording), strict=True))
    yield Grid(
        "Critical path of each computation",
        (
            *("computation", "wall", "critical path", "scheduler CPU", "all tasks", "workers"),
            "max speedup",
        ),
        [
            (
                safe(names.get(row["computation"], "computation"), 40),
                seconds(row["wall"]),
                seconds(row["length"]),
                seconds(row["scheduler_cpu"]),
                seconds(row["work"]),
                str(row["workers"]),
                f"{amount(row['max_speedup'])}×",
            )
            for row in path.computations.to_dicts()
        ],
    )
    yield Grid(
        "Functions on it",
        ("function", "tasks", "time", "share"),
        [
            (
                safe(row["function"], 60),
                count(row["tasks"]),
                seconds(row["seconds"]),
                percent(row["share"]),
            )
            for row in path.functions.to_dicts()
        ],
    )
    yield Fold(
        f"Task by task ({counted(len(path.tasks), 'task')})",
        [
            Grid(
                "In order" + of_first(len(path.tasks), _CHAIN),
                ("key", "function", "time"),
                [
                    (safe(row["key"]), safe(row["function"], 60), seconds(row["seconds"]))
                    for row in path.tasks.rows(slice(_CHAIN)).to_dicts()
                ],
                texts=2,
            )
        ],
    )
