"""Logs of pulled rows, without the user's objects, and labels of workers."""

from __future__ import annotations

import os
import threading
from array import array
from collections import Counter
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

from dask_diag.capture.keys import Keys
from dask_diag.capture.lines.steps import NO_KINDS, EndedKinds, NamedKinds
from dask_diag.cluster.wire import (
    COROUTINE,
    Batch,
    ClusterComputation,
    ClusterWorker,
    RunDetails,
    host_id,
)
from dask_diag.formatting import counted
from dask_diag.hooks.lines import capturing

if TYPE_CHECKING:
    from dask_diag.cluster.wire import PullReply, Wants


def is_below_this_process(host: str, pid: int) -> bool:
    """Return whether a process of a host is this process or a descendant."""
    import psutil

    if not host or host != host_id():
        return False
    try:
        process = psutil.Process(pid)
        return os.getpid() in (other.pid for other in (process, *process.parents()))
    except psutil.Error:
        return False


class WorkerNames:
    """Gives each worker a unique label, as long as a diagnostic is active.

    Two clusters may have workers of equal names. Several clients may know one worker.
    """

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        # Clients may have event loops on several threads.
        self._lock = threading.Lock()

    def label(self, worker: ClusterWorker) -> str:
        """The label of a worker: its name, with a number if the name was taken."""
        with self._lock:
            if worker.id not in self._labels:
                usual = f"worker-{worker.name}" if worker.name.isdigit() else worker.name
                self._counts[usual] += 1
                count = self._counts[usual]
                self._labels[worker.id] = f"{usual} ({count})" if count > 1 else usual
            return self._labels[worker.id]


class ClusterLog:
    """Pulled rows of one client.

    The client's event loop adds to the log, and any thread reads it: rows are never changed.

    Attributes
    ----------
    wants : Wants
        Kinds of collected rows.
    kinds : EndedKinds
        The steps of tasks, and the lines that built them.
    scheduler, address, pid : str, str, int
        Id, address and process of the scheduler.
    below : set of int
        Numbers of workers, or `wire.SCHEDULER`, in this process or a descendant.
    offset, error : float
        Offset from this process's clock to the scheduler's, and the largest error of the offset.
    batches : list of Batch
    computations, workers, labels : dict
        Computations, workers and labels by number.
    clients : list of str
        Ids of clients, by their position in runs.
    faults : dict of str to int
        Errors of hooks, with their counts.
    dropped, running : int
        Runs left out, as too many waited for a pull, and tasks that ran at the end.
    coroutines : int
        Runs without stacks.
    unmeasured : dict of str to int
        Numbers of tasks without full measurements, by the kind of the task.
    is_left, has_ended : bool
        Whether recording has ended, and whether all rows have been pulled.
    start, stop : float
        Start and end of the log, by the clock of this process.
    """

    def __init__(self, wants: Wants, names: WorkerNames | None = None) -> None:
        self.wants = wants
        self._names = names or WorkerNames()
        self.labels: dict[int, str] = {}
        self.start = perf_counter()
        self.stop = inf
        self.scheduler = self.address = ""
        self.pid = 0
        self.below: set[int] = set()
        self.offset = self.error = 0.0
        self.batches: list[Batch] = []
        self.computations: dict[int, ClusterComputation] = {}
        self.workers: dict[int, ClusterWorker] = {}
        self.clients: list[str] = []
        self.faults: dict[str, int] = {}
        self.unmeasured: dict[str, int] = {}
        self.dropped = self.running = 0
        self.received = self.coroutines = 0
        capture = capturing() if wants.get("lines") else None
        self.kinds: EndedKinds = NO_KINDS if capture is None else NamedKinds(capture)
        self.is_left = self.has_ended = False

    def receive(self, reply: PullReply) -> None:
        """Add the batches of a pull; a batch that was received before is left out."""
        for sent in reply.get("batches", ()):
            if sent["number"] <= self.received:
                continue
            self.received = sent["number"]
            for values in sent["computations"]:
                self.computations[values[0]] = ClusterComputation(*values)
            for facts in sent["workers"]:
                worker = ClusterWorker(*facts)
                # The label comes first: a thread that finds a worker asks for the label.
                self.labels[worker.number] = self._names.label(worker)
                self.workers[worker.number] = worker
                # While the process runs: when it has ended its parents are not known.
                host, pid = worker.facts.get("clock_host", ""), worker.facts.get("pid", 0)
                if is_below_this_process(host, pid):
                    self.below.add(worker.number)
            rows = sent["rows"]
            if any(rows.values()):
                batch = Batch(**rows)
                batch.details = {run: RunDetails(*row) for run, row in batch.details.items()}
                self.coroutines += sum(d.stacks == COROUTINE for d in batch.details.values())
                self._find_lines(batch)
                # Packed, keys do not keep the user's objects.
                batch.keys, batch.result_keys = (
                    Keys(list(batch.keys)),
                    Keys(list(batch.result_keys)),
                )
                self.batches.append(batch)
        self.clients = list(reply.get("clients", self.clients))
        self.faults = dict(reply.get("faults", self.faults))
        self.dropped = reply.get("dropped", self.dropped)
        self.unmeasured = dict(reply.get("unmeasured", self.unmeasured))
        self.running = reply.get("running", self.running)

    def _find_lines(self, batch: Batch) -> None:
        """Find the lines that built the tasks of a batch, while the names of lines are there."""
        kinds = self.kinds
        if isinstance(kinds, NamedKinds):
            kinds.learn(batch.names)
            runs = dict(zip(array("q", batch.ids), batch.keys, strict=True))
            for run, details in batch.details.items():
                if details.steps:
                    kinds.add_packed(runs[run], details.steps)
        batch.groups = kinds.numbers_of(batch.keys)

    @property
    def began(self) -> float:
        """Time of the first graph, by this process's clock; infinity without a graph."""
        starts = [computation.start for computation in tuple(self.computations.values())]
        return min(starts, default=inf) - self.offset

    def end(self) -> None:
        """Note that the client pulls no more."""
        self.has_ended, self.stop = True, perf_counter()

    def clear(self) -> None:
        """Forget all rows, except the computations that run now."""
        self.batches = []
        self.computations = {
            number: computation
            for number, computation in self.computations.items()
            if computation.stop is None
        }

    def notices(self) -> list[str]:
        """Texts that readers of the numbers must know."""
        notices = [
            f"on the cluster, {text}" + (f" ({count:,} times)" if count > 1 else "")
            for text, count in self.faults.items()
        ]
        if self.is_left and not self.has_ended:
            notices.append(
                "the last rows of a cluster are missing, because the block ended before they "
                "arrived; with an asynchronous client, use `async with`, or close the client in "
                "the block"
            )
        if self.dropped:
            what = counted(self.dropped, "task run" if self.wants.get("tasks") else "row")
            notices.append(f"{what} {'is' if self.dropped == 1 else 'are'} missing: {_OVERFLOW}")
        counts = {**self.unmeasured, "coroutine": self.coroutines}
        for kind, text in _UNMEASURED.items():
            number = counts.get(kind, 0)
            if number:
                notices.append(text[number > 1].format(f"{number:,}"))
        if self.running:
            tasks = "1 task was" if self.running == 1 else f"{self.running:,} tasks were"
            notices.append(f"{tasks} still running on the cluster when recording stopped")
        return [*notices, *self._notices_on_workers()]

    def _notices_on_workers(self) -> list[str]:
        workers = tuple(self.workers.values())
        reasons: dict[str, list[str]] = {}
        for worker in workers:
            if worker.facts and not worker.facts.get("measured"):
                reasons.setdefault(str(worker.facts.get("reason")), []).append(worker.host)
        what = _not_known(self.wants)
        return [
            f"{len(hosts):,} of {len(workers):,} workers (hosts {', '.join(sorted(set(hosts)))}) "
            f"did not measure: {reason}; {what}"
            for reason, hosts in reasons.items()
            if what
        ]


_OVERFLOW = "the scheduler's buffer overflowed before the client pulled all rows"
_OWN_TIMES = "only distributed's start and stop times are known, not CPU time"
_UNMEASURED = {
    "shuffle": (
        "transfers between workers in {} shuffle (p2p) are not measured; its tasks are",
        "transfers between workers in {} shuffles (p2p) are not measured; their tasks are",
    ),
    "executor": (
        f"{{}} task ran in an executor that is not a thread pool: {_OWN_TIMES}",
        f"{{}} tasks ran in executors that are not thread pools: {_OWN_TIMES}",
    ),
    "actor": (
        "method calls of {} actor are not measured: they are not tasks",
        "method calls of {} actors are not measured: they are not tasks",
    ),
    "coroutine": (
        "{} run of a coroutine was not sampled: it shares a thread with its worker",
        "{} runs of coroutines were not sampled: they share a thread with their worker",
    ),
    "Client-worker-": (
        "{} task submitted by another task is left out: its program is unknown",
        "{} tasks submitted by other tasks are left out: their program is unknown",
    ),
    "details": (
        f"metrics, waits and stacks of {{}} task run are missing: {_OVERFLOW}",
        f"metrics, waits and stacks of {{}} task runs are missing: {_OVERFLOW}",
    ),
    "rows": (
        f"{{}} row of transfers, results, samples or other tasks is missing: {_OVERFLOW}",
        f"{{}} rows of transfers, results, samples or other tasks are missing: {_OVERFLOW}",
    ),
    "cancelled": (
        "{} cancelled run has no times: its worker did not report in time how it ended",
        "{} cancelled runs have no times: their workers did not report in time how they ended",
    ),
}
"""Texts for one and for several, by kind."""


def _not_known(wants: Wants) -> str:
    """Text on missing measurements of workers that do not measure."""
    stacks = wants.get("stacks")
    texts = {
        # A profiler that samples only stacks shows no times.
        "for their tasks only distributed's start and stop times are known": wants.get("tasks")
        and ("waits" in wants or not stacks),
        "the stacks of their tasks are unknown": stacks,
        "their CPU and memory are unknown": wants.get("processes"),
    }
    return "; ".join(text for text, is_wanted in texts.items() if is_wanted)
