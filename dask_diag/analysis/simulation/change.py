"""Check the changes of a simulation, and apply changes to the work of a computation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from dask_diag.analysis.simulation.calibrate import QUICK, ordinals
from dask_diag.analysis.simulation.schedulers import COSTS
from dask_diag.analysis.simulation.work import STEPS, Columns, Work
from dask_diag.analysis.task_times import LARGE, TRANSFERS
from dask_diag.columns import BoolArray, FloatArray, IntArray
from dask_diag.errors import DiagnosticError
from dask_diag.model.codes import ACTIVITIES, Activity
from dask_diag.model.recording import Recording

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, (int, float)) and _is_number(value) and value >= 1 and value % 1 == 0


def is_number_of_workers(value: object) -> bool:
    """Whether a value is a possible number of workers."""
    return value == inf or _is_count(value)


def _is_size(value: object) -> bool:
    return isinstance(value, (int, float)) and _is_number(value) and 0 <= value < inf


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _are_texts(value: object) -> bool:
    return isinstance(value, Collection) and all(isinstance(text, str) for text in value)


def _are_factors(value: object) -> bool:
    return isinstance(value, Mapping) and _are_texts(value) and all(map(_is_number, value.values()))


_EXPECTED: dict[str, tuple[Callable[[object], bool], str]] = {
    "workers": (is_number_of_workers, "a positive integer or inf"),
    "merge_tasks": (_is_count, "a positive integer"),
    "chunksize": (_is_count, "a positive integer"),
    "scheduler": (lambda value: value in list(COSTS), f"one of {', '.join(COSTS)}"),
    "result_bytes": (_is_size, "a number of bytes"),
    "idle_machine": (_is_bool, "True or False"),
    "idle_pools": (_is_bool, "True or False"),
    "speedup": (_are_factors, "a mapping of names to numbers, such as {'function': 2.0}"),
    "remove": (
        lambda value: _are_factors(value) if isinstance(value, Mapping) else _are_texts(value),
        "a set of activities, or a mapping of them to shares",
    ),
}
"""For each change, whether a value fits, and what is expected."""


class Changes(TypedDict, total=False):
    """Arguments of `dask_diag.simulate`; None is as recorded."""

    workers: float | None
    remove: Collection[str]
    speedup: Mapping[str, float] | None
    merge_tasks: int | None
    chunksize: int | None
    scheduler: str | None
    result_bytes: float | None
    idle_machine: bool
    idle_pools: bool


@dataclass(frozen=True)
class Change:
    """Checked `Changes`; equal changes give the same simulation.

    `remove` has pairs of an activity and its share, `speedup` of a function, or key, and a factor.
    """

    workers: float | None = None
    remove: tuple[tuple[str, float], ...] = ()
    speedup: tuple[tuple[str, float], ...] = ()
    merge_tasks: int = 1
    chunksize: int | None = None
    scheduler: str | None = None
    result_bytes: float | None = None
    idle_machine: bool = False
    idle_pools: bool = False

    @classmethod
    def of(cls, recording: Recording, **changes: Unpack[Changes]) -> Self:
        """Check changes.

        Raises
        ------
        DiagnosticError
            If they cannot be simulated.
        """
        asked: Columns = {name: v for name, v in changes.items() if v is not None}
        for name, value in asked.items():
            fits, expected = _EXPECTED[name]
            if not fits(value):
                raise DiagnosticError(f"{name}: expected {expected}, found {value!r}")
        if "scheduler" in asked and recording.computations.scheduler.eq("distributed").any():
            raise DiagnosticError(
                "scheduler: expected a recording of local schedulers, found one of a cluster; its "
                "time on a local scheduler cannot be predicted"
            )
        removed = shares_removed(recording, asked.get("remove") or ())
        pairs = {"remove": removed, "speedup": asked.get("speedup", {})}
        return cls(**{**asked, **{name: tuple(sorted(p.items())) for name, p in pairs.items()}})

    @property
    def shares(self) -> dict[str, float]:
        """The share of each activity that is removed."""
        return dict(self.remove)

    @property
    def is_of_tasks(self) -> bool:
        """Whether durations of tasks, or of steps between tasks, change."""
        removed = tuple(pair for pair in self.remove if pair[0] != Activity.GRAPH)
        return replace(self, remove=removed) != Change()

    def without(self, activity: str) -> bool:
        """Whether all of an activity is removed."""
        return self.shares.get(activity, 0.0) >= 1.0


NOT_REMOVABLE = {
    *(Activity.FAILED, Activity.UNFINISHED, Activity.IDLE, Activity.OTHER),
    Activity.PROFILERS,
}

BETWEEN_TASKS = {
    *(Activity.GRAPH, Activity.STARTUP, Activity.OVERHEAD),
    *(Activity.TRANSFER, *TRANSFERS),
}
"""What lies between tasks is removed as a whole."""


def removable(recording: Recording) -> set[str]:
    """Removable activities, including metered labels."""
    metrics = recording.metrics
    metered = set(metrics.activity[metrics.unit.eq("seconds")].tolist())
    return {*ACTIVITIES, *metered} - NOT_REMOVABLE


def shares_removed(recording: Recording, remove: Collection[str]) -> dict[str, float]:
    """The share of each activity that is removed.

    Raises
    ------
    DiagnosticError
        If there is no such activity, or a share is not one.
    """
    names = removable(recording)
    unknown = sorted(set(remove) - names)
    if isinstance(remove, str) or unknown:
        raise DiagnosticError(
            f"remove: expected a set of activities among {', '.join(sorted(names))}, found "
            f"{remove if isinstance(remove, str) else ', '.join(unknown)}"
        )
    if not isinstance(remove, Mapping):
        return dict.fromkeys(remove, 1.0)
    for name, share in remove.items():
        if not 0 <= share <= 1 or (share < 1 and name in BETWEEN_TASKS):
            raise DiagnosticError(
                f"remove: expected a share from 0 to 1 of an activity of tasks, found {share!r} of "
                f"{name}"
            )
    return dict(remove)


def speedups(recording: Recording, speedup: Mapping[str, float]) -> FloatArray:
    """Divisor of the seconds of each task.

    Raises
    ------
    DiagnosticError
        If a name is neither a function nor the key of a task, or a factor is not above zero.
    """
    tasks = recording.tasks
    factors = np.ones(len(tasks))
    for name, factor in speedup.items():
        if not (isinstance(factor, (int, float)) and factor > 0 and isfinite(factor)):
            raise DiagnosticError(
                f"speedup: expected a factor above 0 for {name!r}, such as 2.0, found {factor!r}"
            )
        chosen = tasks.function.eq(name)
        if not chosen.any():
            chosen = np.array([key == name for key in tasks.key.tolist()], dtype=bool)
        if not chosen.any():
            raise DiagnosticError(
                f"speedup: expected the name of a function or the key of a task, found {name!r}; "
                f"functions are {', '.join(map(str, tasks.function.values[:10]))}"
            )
        factors[chosen] = factor
    return factors


def with_fewer_workers(work: Work, workers: int) -> Work:
    """Work whose waking threads wait for fewer other threads."""
    others = (workers - 1) / max(work.workers - 1, 1)
    steps = Columns()
    for name in ("wake", "deliver", "notice"):
        seconds = getattr(work, name)
        # What the quickest steps took had nothing to wait for; the rest is due to the other
        # threads.
        alone = np.quantile(seconds, QUICK)
        steps[name] = np.where(seconds > alone, alone + (seconds - alone) * others, seconds)
    return replace(work, **steps)


def with_fewer_turns(work: Work, share: float) -> Work:
    """Work without a share of the steps' waits for the GIL.

    The scheduler, and a thread that wakes up, take turns with tasks that hold it. So a step that
    takes longer than those of tasks that do nothing waited.
    """
    usual, steps = COSTS["threads"], Columns()
    for name in ("prepare", "wake", "collect", "deliver", "notice"):
        seconds = getattr(work, name)
        steps[name] = seconds - share * np.maximum(seconds - getattr(usual, name), 0.0)
    submit = work.submit - share * max(work.submit - usual.submit, 0.0)
    return replace(work, submit=submit, **steps)


def without(work: Work, recording: Recording, remove: Collection[str]) -> Work:
    """Work without removed activities between tasks, and without the scheduler's transfers."""
    if Activity.GRAPH in remove:
        work = replace(work, graph=0.0)
    if Activity.STARTUP in remove:
        work = replace(work, startup=())
    if Activity.OVERHEAD in remove:
        steps: Columns = dict.fromkeys(STEPS, np.zeros(len(work)))
        work = replace(work, before=0.0, submit=0.0, switching=0.0, cpu_scheduler=0.0, **steps)
    if work.cluster is not None:
        if Activity.TRANSFER in remove:
            work = replace(work, cluster=replace(work.cluster, latency=0.0, bytes_a_second=inf))
        return work
    if Activity.OVERHEAD in remove:
        return work
    transfers = recording.transfers
    for activity, part in zip(TRANSFERS, ("prepare", "collect"), strict=True):
        if activity in remove and len(transfers):
            rows = transfers.filter(
                transfers.side.eq("scheduler") & transfers.activity.eq(activity)
            )
            moved = np.bincount(rows.task, rows.stop - rows.start, minlength=len(recording.tasks))
            seconds = np.maximum(getattr(work, part) - moved[work.rows], 0.0)
            columns: Columns = {part: seconds}
            work = replace(work, **columns)
    if len(transfers) and set(TRANSFERS) <= set(remove):
        work = _without_data(work, recording)
    return work


def _without_data(work: Work, recording: Recording) -> Work:
    """Work in which every step is as quick as the quickest steps without data.

    Where all tasks have large data that was not recorded: it is what processes take elsewhere.
    """
    transfers, costs = recording.transfers, COSTS["processes"]
    transfers = transfers.filter(~transfers.activity.eq(Activity.TRANSFER))
    of_inputs = transfers.side.eq("worker") == transfers.activity.eq(Activity.DESERIALIZE)

    def quickest(seconds: FloatArray, is_moved: BoolArray, usual: float) -> FloatArray:
        largest = np.zeros(len(recording.tasks))
        np.maximum.at(largest, transfers.task[is_moved], np.nan_to_num(transfers.bytes)[is_moved])
        # Tasks with little data show what a step takes when nothing is moved.
        small = largest[work.rows] < LARGE
        return np.minimum(seconds, np.quantile(seconds[small], QUICK) if small.any() else usual)

    return replace(
        work,
        wake=quickest(work.wake, of_inputs, costs.wake),
        submit=float(quickest(np.full(len(work), work.submit), of_inputs, costs.submit).min()),
        deliver=quickest(work.deliver, ~of_inputs, costs.deliver),
        notice=quickest(work.notice, ~of_inputs, costs.notice),
    )


SUMMED = ("seconds", "cpu", "gil")


def merged(work: Work, functions: IntArray, factor: int) -> Work:
    """Work with every `factor` successive tasks of a function merged.

    Only tasks that are as many steps from the start of the graph are merged, since those cannot
    depend on each other. A merged task takes as long as its parts together, and is handed out once.
    A graph of fewer tasks is made and put in order in less time.

    Raises
    ------
    DiagnosticError
        If tasks depend on tasks that were submitted later.
    """
    if (work.depends_on >= work.task).any():
        raise DiagnosticError(
            "merge_tasks: expected tasks that were submitted after those they depend on; this "
            "recording's dependencies are damaged"
        )
    order, new = _levels(work, functions)
    groups = np.empty(len(work), np.int64)
    groups[order] = np.cumsum(ordinals(np.cumsum(new)) % factor == 0) - 1
    # Numbered by their first parts, so that they are preferred in the recorded order.
    _, first, groups = np.unique(groups, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    groups = rank[groups]
    count = len(first)
    # One number for a pair: parts of a merged task may share a dependency, which then counts once.
    edges = np.unique(groups[work.task] * count + groups[work.depends_on])
    parts = np.bincount(groups)

    def sums(values: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(groups, values, minlength=count), float)

    columns: Columns = {name: sums(getattr(work, name)) for name in SUMMED}
    # A merged task is handed out once, so it has the mean cost of its parts, not their sum.
    columns |= {name: sums(getattr(work, name)) / parts for name in STEPS}
    if work.cluster is not None:
        size, delay = sums(work.cluster.nbytes), sums(work.cluster.delay) / parts
        columns["cluster"] = replace(work.cluster, nbytes=size, delay=delay)
    columns |= {"task": edges // count, "depends_on": edges % count}
    return replace(
        work,
        rows=work.rows[np.sort(first)],
        cpu_scheduler=work.cpu_scheduler * count / len(work),
        graph=work.graph * count / len(work),
        before=work.before * count / len(work),
        **columns,
    )


def side_by_side(work: Work, functions: IntArray) -> int:
    """Largest number of mergeable tasks of a function, for the median task."""
    _, new = _levels(work, functions)
    sizes = np.diff(np.concatenate([np.flatnonzero(new), [len(work)]]))
    return int(np.median(np.repeat(sizes, sizes)))


def _levels(work: Work, functions: IntArray) -> tuple[IntArray, BoolArray]:
    """Tasks by level of the graph and function, and flags of the first task of each group."""
    depths = _depths(work)
    order = np.lexsort((np.arange(len(work)), functions, depths))
    new = np.ones(len(work), bool)
    new[1:] = (np.diff(depths[order]) != 0) | (np.diff(functions[order]) != 0)
    return order, new


def _depths(work: Work) -> IntArray:
    """Number of tasks on the longest path from the start of the graph to each task."""
    depths = [0] * len(work)
    order = np.argsort(work.task, kind="stable")
    for task, need in zip(work.task[order].tolist(), work.depends_on[order].tolist(), strict=True):
        depths[task] = max(depths[task], depths[need] + 1)
    return np.array(depths)
