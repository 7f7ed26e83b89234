"""What is different in a simulation: as it is asked for, and checked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from dask_diag.analysis.simulation.calibrate import QUICK
from dask_diag.analysis.simulation.schedulers import COSTS
from dask_diag.analysis.simulation.work import STEPS, Work
from dask_diag.analysis.task_times import LARGE, TRANSFERS
from dask_diag.analysis.waits import divided, seconds_of_workers, without_metered
from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray
from dask_diag.errors import DiagnosticError
from dask_diag.model.codes import ACTIVITIES, Activity, Outcome
from dask_diag.model.recording import Recording

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


def check(changes: Mapping[str, object]) -> None:
    """Refuse values of the wrong kind.

    Raises
    ------
    DiagnosticError
    """
    for name, (fits, expected) in _EXPECTED.items():
        value = changes.get(name)
        if value is not None and not fits(value):
            raise DiagnosticError(f"{name}: expected {expected}, found {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, (int, float)) and _is_number(value) and value >= 1 and value % 1 == 0


def is_number_of_workers(value: object) -> bool:
    """Whether there can be so many workers."""
    return value == inf or _is_count(value)


def _is_size(value: object) -> bool:
    return isinstance(value, (int, float)) and _is_number(value) and 0 <= value < inf


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_scheduler(value: object) -> bool:
    return isinstance(value, str) and value in COSTS


def _are_factors(value: object) -> bool:
    return isinstance(value, Mapping) and _are_texts(value) and all(map(_is_number, value.values()))


def _are_activities(value: object) -> bool:
    """Of a text, the letters are no activities: that is found where their names are known."""
    return _are_factors(value) if isinstance(value, Mapping) else _are_texts(value)


def _are_texts(value: object) -> bool:
    return isinstance(value, Collection) and all(isinstance(text, str) for text in value)


_EXPECTED: dict[str, tuple[Callable[[object], bool], str]] = {
    "workers": (is_number_of_workers, "a number from 1 on, or inf"),
    "merge_tasks": (_is_count, "a number from 1 on"),
    "chunksize": (_is_count, "a number from 1 on"),
    "scheduler": (_is_scheduler, f"one of {', '.join(COSTS)}"),
    "result_bytes": (_is_size, "a number of bytes"),
    "idle_machine": (_is_bool, "True or False"),
    "idle_pools": (_is_bool, "True or False"),
    "speedup": (_are_factors, "a mapping of names to numbers, such as {'function': 2.0}"),
    "remove": (_are_activities, "a set of activities, or a mapping of them to shares"),
}
"""Of each change, whether a value fits, and what was expected; None is as recorded."""


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
    """The activities that can be removed, those that tasks metered included."""
    metrics = recording.metrics
    metered = set(metrics.activity[metrics.unit.where("seconds")].tolist())
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
            f"remove: expected a set of activities among {', '.join(sorted(names))}; found "
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


def seconds_metered(recording: Recording) -> dict[str, FloatArray]:
    """Of each task the seconds of each label that tasks metered, but those named as activities."""
    metered = without_metered(recording, recording.tasks.outcome.where(Outcome.OK))[2]
    metered = metered.rows(~metered.activity.is_in(ACTIVITIES))
    sums: dict[str, FloatArray] = {}
    _add(sums, metered.activity, metered.task, metered.value, len(recording.tasks))
    return sums


def seconds_by_activity(recording: Recording) -> dict[str, FloatArray]:
    """Of each task the seconds of each activity, those of its worker's transfers included.

    Metered code is divided by what tasks did in it: see `seconds_metered` for its labels.
    """
    rows = len(recording.tasks)
    ok = recording.tasks.outcome.where(Outcome.OK)
    cpu, noncpu = seconds_of_workers(recording)
    sums: dict[str, FloatArray] = {Activity.CPU: np.where(ok, np.nan_to_num(cpu), 0.0)}
    for activity, seconds, chosen in divided(recording, np.nan_to_num(noncpu), ok):
        sums[activity] = sums.get(activity, np.zeros(rows)) + np.where(chosen, seconds, 0.0)
    transfers = recording.transfers
    moved = transfers.rows(transfers.side.where("worker"))
    _add(sums, moved.activity, moved.task, moved.stop - moved.start, rows)
    return sums


def _add(
    sums: dict[str, FloatArray], names: Categorical, tasks: IntArray, seconds: FloatArray, rows: int
) -> None:
    for name in dict.fromkeys(names.values):
        chosen = names.where(name)
        added = np.bincount(tasks[chosen], np.nan_to_num(seconds[chosen]), minlength=rows)
        sums[name] = sums.get(name, np.zeros(rows)) + added


def gil_shares(recording: Recording, waited: FloatArray) -> FloatArray:
    """Of each task the share of its CPU time in which it holds the GIL, by function.

    Of two tasks that need it in a share p of their time each waits about p² / 2 of it; of N tasks
    that always need it, (N - 1) / N. So the waits show the share, where several tasks ran at once.
    """
    tasks = recording.tasks
    took = np.nan_to_num(tasks.stop - tasks.start)
    functions = tasks.function
    count = len(functions.values)
    waits = np.bincount(functions.codes, waited, minlength=count)
    total = np.bincount(functions.codes, took, minlength=count)
    workers = _threads_of_a_process(recording)
    if workers < 2:
        return np.zeros(len(tasks))
    share = np.divide(waits, total, out=np.zeros(count), where=total > 0)
    return np.asarray(np.minimum(1.0, np.sqrt(share * workers / (workers - 1)))[functions.codes])


def _threads_of_a_process(recording: Recording) -> int:
    """How many workers share a GIL: of a local scheduler, or threads of a cluster's worker."""
    computations, workers = recording.computations, recording.workers
    local = computations.workers[~computations.scheduler.where("distributed")]
    threads = workers.threads[~workers.address.where("")]
    return max(int(local.max(initial=1)), int(threads.max(initial=1)))


def speedups(recording: Recording, speedup: Mapping[str, float]) -> FloatArray:
    """By what the seconds of each task are divided.

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
        chosen = tasks.function.where(name)
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
    """The work, in which threads that wake up have fewer others to wait for."""
    others = (workers - 1) / max(work.workers - 1, 1)
    steps: dict[str, Any] = {}
    for name in ("wake", "deliver", "notice"):
        seconds = getattr(work, name)
        # What the quickest steps took had nothing to wait for; the rest is due to the other
        # threads.
        alone = np.quantile(seconds, QUICK)
        steps[name] = np.where(seconds > alone, alone + (seconds - alone) * others, seconds)
    return replace(work, **steps)


def with_fewer_turns(work: Work, share: float) -> Work:
    """The work, in which that share of what its steps wait for the GIL is gone.

    The scheduler, and a thread that wakes up, take turns with tasks that hold it. So a step that
    takes longer than those of tasks that do nothing waited.
    """
    usual = COSTS["threads"]

    def shorter(seconds: FloatArray, least: float) -> FloatArray:
        return np.asarray(seconds - share * np.maximum(seconds - least, 0.0))

    return replace(
        work,
        prepare=shorter(work.prepare, usual.prepare),
        wake=shorter(work.wake, usual.wake),
        collect=shorter(work.collect, usual.collect),
        deliver=shorter(work.deliver, usual.deliver),
        notice=shorter(work.notice, usual.notice),
        submit=work.submit - share * max(work.submit - usual.submit, 0.0),
    )


def without(work: Work, recording: Recording, remove: Collection[str]) -> Work:
    """The work without what lies between tasks, and without transfers by the scheduler."""
    if Activity.GRAPH in remove:
        work = replace(work, graph=0.0)
    if Activity.STARTUP in remove:
        work = replace(work, startup=())
    if Activity.OVERHEAD in remove:
        steps: dict[str, Any] = dict.fromkeys(STEPS, np.zeros(len(work)))
        work = replace(work, before=0.0, submit=0.0, switching=0.0, scheduler_cpu=0.0, **steps)
    if work.cluster is not None:
        if Activity.TRANSFER in remove:
            work = replace(work, cluster=replace(work.cluster, latency=0.0, bytes_a_second=inf))
        return work
    if Activity.OVERHEAD in remove:
        return work
    transfers = recording.transfers
    for activity, part in zip(TRANSFERS, ("prepare", "collect"), strict=True):
        if activity in remove and len(transfers):
            rows = transfers.rows(
                transfers.side.where("scheduler") & transfers.activity.where(activity)
            )
            moved = np.bincount(rows.task, rows.stop - rows.start, minlength=len(recording.tasks))
            seconds = np.maximum(getattr(work, part) - moved[work.rows], 0.0)
            columns: dict[str, Any] = {part: seconds}
            work = replace(work, **columns)
    if len(transfers) and set(TRANSFERS) <= set(remove):
        work = _without_data(work, recording)
    return work


def _without_data(work: Work, recording: Recording) -> Work:
    """The work, in which nothing is longer on its way than what is quickest without data.

    Where all tasks have large data that was not recorded: it is what processes take elsewhere.
    """
    transfers, costs = recording.transfers, COSTS["processes"]
    transfers = transfers.rows(~transfers.activity.where(Activity.TRANSFER))
    of_inputs = transfers.side.where("worker") == transfers.activity.where(Activity.DESERIALIZE)

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


class Changes(TypedDict, total=False):
    """What can be different; `dask_diag.simulate` describes each. None is as recorded."""

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
    """What is different, checked; two that are equal give the same simulation.

    Attributes
    ----------
    workers : float or None
        None, here and below, is as recorded.
    removed : tuple of (str, float)
        Activities, and the share of each that is removed.
    factors : tuple of (str, float)
        Functions or keys, and how many times as fast their tasks are.
    merge : int
        How many tasks become one.
    chunksize : int or None
    scheduler : str or None
    result_bytes : float or None
        The size of each result.
    idle_machine : bool
        Whether no other program uses the CPUs.
    idle_pools : bool
        Whether threads of native libraries, and others that tasks use, do nothing.
    """

    workers: float | None
    removed: tuple[tuple[str, float], ...]
    factors: tuple[tuple[str, float], ...]
    merge: int
    chunksize: int | None
    scheduler: str | None
    result_bytes: float | None
    idle_machine: bool
    idle_pools: bool

    @classmethod
    def of(cls, recording: Recording, **changes: Unpack[Changes]) -> Self:
        """What is asked for.

        Raises
        ------
        DiagnosticError
            If it cannot be simulated.
        """
        check(changes)
        ran_on_cluster = recording.computations.scheduler.where("distributed").any()
        if changes.get("scheduler") is not None and ran_on_cluster:
            raise DiagnosticError(
                "scheduler: expected a recording of local schedulers; what a computation of a "
                "cluster would take on one of these is not known"
            )
        return cls(
            workers=changes.get("workers"),
            removed=tuple(sorted(shares_removed(recording, changes.get("remove") or ()).items())),
            factors=tuple(sorted((changes.get("speedup") or {}).items())),
            merge=changes.get("merge_tasks") or 1,
            chunksize=changes.get("chunksize"),
            scheduler=changes.get("scheduler"),
            result_bytes=changes.get("result_bytes"),
            idle_machine=changes.get("idle_machine", False),
            idle_pools=changes.get("idle_pools", False),
        )

    @property
    def shares(self) -> dict[str, float]:
        """The share of each activity that is removed."""
        return dict(self.removed)

    @property
    def is_of_tasks(self) -> bool:
        """Whether tasks, or what lies between them, take another time than was recorded."""
        as_recorded = Change(None, (), (), 1, None, None, None, False, False)
        return replace(self, removed=tuple(self._removed_of_tasks())) != as_recorded

    def _removed_of_tasks(self) -> Iterator[tuple[str, float]]:
        return (pair for pair in self.removed if pair[0] != Activity.GRAPH)

    def without(self, activity: str) -> bool:
        """Whether all of an activity is removed."""
        return self.shares.get(activity, 0.0) >= 1.0
