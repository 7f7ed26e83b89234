"""Rules on data that dask moves: between processes, and to shuffle them."""

from __future__ import annotations

import re
from math import inf, isnan, nan
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import (
    ESTIMATE,
    FOLDBY,
    WORTH_GAINING,
    Diagnosis,
    Evidence,
    Gain,
    evidence,
    rule,
    severity_of,
    simulated,
    sums_of_tasks,
    where_of_tasks,
)
from dask_diag.analysis.groups import lookup
from dask_diag.analysis.intervals import Intervals
from dask_diag.analysis.task_times import LARGE, TRANSFERS, transfer_times, transfers_of_tasks
from dask_diag.columns import BoolArray
from dask_diag.formatting import seconds
from dask_diag.model.codes import Activity

WORTH_REPORTING = 0.15
"""Least share of workers' time that moving data takes."""


@rule("serialization-bound", needs=("transfers",))
def serialization_bound(analysis: Analysis) -> Diagnosis | None:
    """Moving data between processes took long."""
    transfers = analysis.recording.transfers
    transfers = transfers.filter(~transfers.activity.eq(Activity.TRANSFER))
    if not len(transfers):
        return _slow_objects(analysis)
    if shuffles_a_bag(analysis):
        # What is moved is what is shuffled.
        return None
    # A new worker process imports modules as it unpickles its first task: once, not for each task.
    imports = _seconds_of_imports(analysis)
    pickling = analysis.spent(*TRANSFERS) - imports
    moving = pickling + overhead_in_transit(analysis)
    share = moving / analysis.available
    if share < WORTH_REPORTING:
        return None
    seconds_of_tasks = sums_of_tasks(
        analysis.recording, transfers.task, transfers.stop - transfers.start
    )
    saved, kind = simulated(
        analysis,
        analysis.wall_of_workers(moving),
        remove={Activity.SERIALIZE, Activity.DESERIALIZE},
    )
    if kind == ESTIMATE:
        saved = max(saved - analysis.wall_of_workers(imports), 0.0)
    where = where_of_tasks(analysis, seconds_of_tasks)
    return Diagnosis(
        severity_of(share),
        Gain(saved, kind),
        evidence(
            "Moving {moved:bytes} of tasks, inputs and results between processes took "
            "{moving:seconds} of worker time ({share:share}). Pickling and unpickling took "
            "{pickling:seconds} of it. Mostly in {functions}",
            moving=moving,
            share=share,
            moved=np.nansum(transfers.bytes) / 2,
            pickling=pickling,
            functions=where.functions,
        ),
        _advice_on_moving(analysis),
        where,
    )


SLOW_ON_A_HOST = 5e6
"""Largest bytes per second of transfers within a host, if pickling takes the time."""


def _slow_objects(analysis: Analysis) -> Diagnosis | None:
    """Results moved within a host of a cluster, much more slowly than it copies bytes."""
    moved = analysis.recording.transfers
    host = lookup(analysis.recording.workers.worker, analysis.recording.workers.host)
    source, destination = (
        np.array([host.get(name, name) for name in side.tolist()])
        for side in (moved.source, moved.destination)
    )
    moved = moved.filter(source == destination)
    took, size = moved.stop - moved.start, float(np.nansum(moved.bytes))
    waited = analysis.spent(Activity.TRANSFER)
    share = analysis.share_of_workers(waited)
    is_slow = size < SLOW_ON_A_HOST * float(took.sum())
    # A task that holds the GIL delays transfers of its worker, too.
    if share < WORTH_REPORTING or not is_slow or analysis.in_tasks > waited:
        return None
    seconds_of_tasks = sums_of_tasks(analysis.recording, moved.task, took)
    where = where_of_tasks(analysis, seconds_of_tasks)
    return Diagnosis(
        severity_of(share),
        Gain(waited / analysis.workers),
        evidence(
            "Worker threads waited {waited:seconds} for results of other workers ({share:share} of "
            "worker time). Within a host, {results:result} of {moved:bytes} in all moved at "
            "{rate:bytes}/s: pickling took the time. Mostly in {functions}",
            waited=waited,
            share=share,
            results=len(moved),
            moved=size,
            rate=size / float(took.sum()),
            functions=where.functions,
        ),
        "return arrays or tables instead of lists and dicts of many small objects, or reduce "
        "results in the tasks that create them",
        where,
    )


def _advice_on_moving(analysis: Analysis) -> str:
    """Advice to use threads, if predicted to help, and another remedy."""
    saved = analysis.seconds_saved(scheduler="threads")
    # If the tasks hold the GIL, threads run one of them at a time.
    cpu = analysis.cpu_in_tasks + analysis.cpu_beside_tasks
    in_turns = analysis.computing - cpu if analysis.has_gil else inf
    least = WORTH_GAINING * analysis.computing
    less = "load data in the tasks that use it, and return smaller results"
    if min(saved, in_turns) >= least:
        with_gil = f", or {seconds(in_turns)} if these functions hold the GIL" * (in_turns < saved)
        return f"use scheduler='threads', predicted to save {seconds(saved)}{with_gil}; or {less}"
    if saved < least:
        return f"{less}; scheduler='threads' is not predicted to help"
    return f"use scheduler='threads' if these functions release the GIL; otherwise {less}"


def _seconds_of_imports(analysis: Analysis) -> float:
    """Seconds in which workers rebuilt their first task, if small: the time of imports."""
    transfers = analysis.recording.transfers
    rebuilt = transfers.side.eq("worker") & transfers.activity.eq(Activity.DESERIALIZE)
    rows = transfers.filter(rebuilt & (transfers.bytes < LARGE))
    rows = rows.filter(np.argsort(rows.start, kind="stable"))
    workers = analysis.tasks.worker.codes[rows.task]
    _, first = np.unique(workers, return_index=True)
    return float((rows.stop - rows.start)[first].sum())


def overhead_in_transit(analysis: Analysis) -> float:
    """Worker-seconds of overhead while large data was between processes."""
    times = transfer_times(analysis.recording)
    transfers = transfers_of_tasks(analysis.recording)
    if Activity.SERIALIZE not in times.scheduler:
        return 0.0
    sizes = np.zeros(len(analysis.tasks))
    np.maximum.at(sizes, transfers.task, np.nan_to_num(transfers.bytes))
    sent, arrived = times.scheduler[Activity.SERIALIZE][1], times.scheduler[Activity.DESERIALIZE][0]
    overhead = 0.0
    for occupancy in analysis.occupancies:
        rows = occupancy.tasks.rows[sizes[occupancy.tasks.rows] >= LARGE]
        starts = np.concatenate([sent[rows], times.worker_stop[rows]])
        stops = np.concatenate([times.worker_start[rows], arrived[rows]])
        # What is in transit for two tasks blocks a worker once.
        in_transit = Intervals(starts, stops).union()
        overhead += float(occupancy.seconds_during(occupancy.overhead, *in_transit).sum())
    return overhead


SHUFFLING = ("shuffle-partition", "diskshuffle")
"""Functions of tasks of a shuffle through files: those that write parts, and that read them."""
OF_BAGS = re.compile(r"groupby-(?:part|collect|barrier)\b|partd$")
"""Functions of tasks that shuffle a bag."""
OF_MERGES = ("hash-join-transfer", "hashjoinp2p", "shuffle-barrier")
"""Functions of tasks with which the workers of a cluster shuffle both tables of a merge."""
EXCHANGES = (OF_MERGES[0], "shuffle-transfer")
"""Functions of tasks that send parts to the worker that needs them."""
WORTH_SHUFFLING = 0.3
"""Least share of the time in computations that a shuffle takes."""
COPIES = 3
"""Times the data that memory has to hold, so that it may be shuffled there."""
SMALL_TABLE = 0.05
"""Largest size of a small table of a merge, as a share of the other."""
FEW_BYTES = 100e6
"""Largest size of a small table, in bytes."""


class _Shuffle(NamedTuple):
    """What dask shuffled, and how to do without.

    Attributes
    ----------
    is_part : array of bool
        Tasks that shuffle.
    what : Evidence
        What they shuffle.
    advice : str
        What to do instead.
    moving : float
        Worker time that is lost besides, in seconds.
    besides : str
        What took that time.
    """

    is_part: BoolArray
    what: Evidence
    advice: str
    moving: float = 0.0
    besides: str = ""


@rule("disk-shuffle")
def disk_shuffle(analysis: Analysis) -> Diagnosis | None:
    """Dask shuffled data through files, and need not."""
    shuffle = _of_bag(analysis) or _of_merge(analysis) or _of_dataframe(analysis)
    if shuffle is None:
        return None
    seconds_of_tasks = analysis.task_seconds * shuffle.is_part
    took, moving = float(np.nansum(seconds_of_tasks)), shuffle.moving
    if not took:
        return None
    # Not the sum: the wall time of tasks has a share of what workers lose besides.
    lost = max(analysis.wall_of_tasks(took), analysis.wall_of_workers(took + moving))
    lost = min(lost, analysis.computing)
    if lost < WORTH_SHUFFLING * analysis.computing:
        return None
    return Diagnosis(
        severity_of(lost / analysis.computing),
        Gain(lost),
        evidence(
            "Dask shuffled {what} through files: {tasks:task} took {took:seconds} ({share:share} "
            "of the time of all tasks)"
            + "; {besides} took {moving:seconds} of worker time"
            # A shuffle between threads has none.
            * (moving > 0),
            what=shuffle.what,
            tasks=shuffle.is_part.sum(),
            took=took,
            share=took / analysis.in_tasks,
            besides=shuffle.besides,
            moving=moving,
        ),
        shuffle.advice,
        where_of_tasks(analysis, seconds_of_tasks),
    )


def shuffles_a_bag(analysis: Analysis) -> bool:
    """Whether there is such a finding on a bag."""
    return _of_bag(analysis) is not None and disk_shuffle(analysis) is not None


def _of_bag(analysis: Analysis) -> _Shuffle | None:
    functions = analysis.tasks.function
    of_bags = [name for name in functions.values if OF_BAGS.match(name)]
    if not functions.is_in(of_bags).any():
        return None
    is_part = functions.is_in([*of_bags, *SHUFFLING])
    # Each partition of a bag that foldby reduces first is hardly moved.
    moving = analysis.spent(*TRANSFERS) + overhead_in_transit(analysis)
    return _Shuffle(is_part, evidence("a bag"), FOLDBY, moving, "moving data between processes")


def _of_merge(analysis: Analysis) -> _Shuffle | None:
    """A merge with a small table of many parts."""
    functions, tables = analysis.tasks.function, _small_table(analysis)
    if tables is None:
        return None
    between_workers = functions.is_in(OF_MERGES)
    # Workers exchange parts meanwhile, those of other shuffles, too.
    exchanged = functions.is_in(EXCHANGES).sum()
    of_merge = functions.eq(OF_MERGES[0]).sum() / exchanged if exchanged else 0.0
    return _Shuffle(
        functions.is_in(SHUFFLING) | between_workers,
        evidence(
            "both tables of a merge, {small:bytes} and {large:bytes},",
            small=tables[0],
            large=tables[1],
        ),
        "make the small table one partition, .repartition(npartitions=1), or merge with a pandas "
        "DataFrame: then nothing is shuffled",
        float(analysis.spent(Activity.OVERHEAD) * of_merge),
        "the merge's share of scheduling overhead",
    )


def _small_table(analysis: Analysis) -> tuple[float, float] | None:
    """Bytes of the tables of the only merge, if both are shuffled and the first is small."""
    tasks, dependencies = analysis.tasks, analysis.recording.dependencies
    # Of a transfer its name says which table it is, of a merge that of its inputs.
    is_transfer = tasks.function.eq(OF_MERGES[0])
    merges = (is_transfer | tasks.function.eq("blockwisemerge"))[dependencies.task]
    task, needed = dependencies.task[merges], dependencies.depends_on[merges]
    names = tasks.key.heads.codes[np.where(is_transfer[task], task, needed)]
    tables, parts = np.unique(np.stack([names, needed]).astype(np.int64), axis=1)
    _, table, number = np.unique(tables, return_inverse=True, return_counts=True)
    # What is in one part is merged without a shuffle.
    if len(number) != 2 or number.min() < 2:
        return None
    small, large = sorted(np.bincount(table, tasks.nbytes[parts]).tolist())
    return (small, large) if small <= min(SMALL_TABLE * large, FEW_BYTES) else None


def _of_dataframe(analysis: Analysis) -> _Shuffle | None:
    """A dataframe that fits into memory, as far as is known."""
    tasks = analysis.tasks
    read = tasks.nbytes[tasks.function.eq(SHUFFLING[-1])]
    moved = nan if np.isnan(read).all() else float(np.nansum(read))
    # Neither holds of what is not known.
    if COPIES * moved > float(np.fmin.reduce(analysis.computations.memory_limit)):
        return None
    return _Shuffle(
        tasks.function.is_in(SHUFFLING),
        evidence("a dataframe" + " of {moved:bytes}" * (not isnan(moved)), moved=moved),
        "if the data fit into memory, shuffle there: "
        "dask.config.set({'dataframe.shuffle.method': 'tasks'}), or shuffle_method='tasks'; or set "
        "a sorted index once, for several steps",
    )
