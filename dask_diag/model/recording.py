"""The noun in the middle: what was measured, in frozen columns, without user data.

Capture makes a `Recording`, analysis and views read one. Nothing here measures, draws or reads a
file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dask_diag import schema
from dask_diag.errors import DiagnosticError
from dask_diag.model.combine import combined
from dask_diag.model.tables import (
    TABLES,
    CachedResults,
    CallTree,
    Computations,
    Dependencies,
    Environment,
    Frames,
    Memory,
    Metrics,
    Pools,
    Processes,
    RecordingTable,
    Resources,
    Samples,
    Tasks,
    Threads,
    Transfers,
    Waits,
    Workers,
)

__all__ = ["STATES", "Recording", "combine", "expect_recording"]

STATES = tuple(schema.STATES)
"""What `Recording.state` may be, from good to bad."""


@dataclass(frozen=True, repr=False)
class Recording:
    """What was measured in one block, or by one profiler since it was cleared.

    Times are seconds of ``time.perf_counter()``; add `epoch` for seconds since 1970. What could not
    be known is NaN.

    Attributes
    ----------
    start, stop : float
        When recording began and ended.
    epoch : float
        What to add to a time to get seconds since the epoch.
    computations : Table
        A row per computation: ``computation`` (its name: `run_id` and a number, so that no two have
        the
        same), ``start``, ``stop``, ``workers``, ``process_cpu`` and ``scheduler_cpu`` (CPU seconds
        of the computing process, all threads, and of the thread that called for it),
        ``voluntary_switches``
        and ``involuntary_switches`` (how often a thread of that process lost its processor, to wait
        or though
        it could have gone on), ``cpus`` (as many as it may use), ``span``, ``scheduler``,
        ``error`` (the exception's type, or empty).
    tasks : Table
        A row per task: ``key`` (text), ``function``, ``start``, ``stop``, ``thread_cpu``,
        ``thread_noncpu``, ``submitted``, ``collected`` (seconds), ``worker``, ``pid``, ``thread``,
        ``computation``, ``span``, ``outcome`` (``ok``, ``failed`` or ``unfinished``), ``error``.
    dependencies : Table
        A row per dependency: ``task`` and ``depends_on``, positions in `tasks` of a task and of one
        whose result it takes.
    metrics : Table
        A row per metric that a task gave: ``task`` (position in `tasks`), ``activity``, ``unit``,
        ``value``, and ``cpu``: of seconds, how many were CPU seconds (NaN if not known).
    resources : Table
        A row per sample: ``time`` (s), ``cpu`` (%), ``memory``, ``memory_children`` (bytes),
        ``read``, ``written`` (bytes since the first sample), ``threads``, ``delay`` (s).
    processes : Table
        A row per sample of `resources` and process, and more from when sampling began and from
        between tasks, when none ran: ``time`` (s), ``pid``, ``is_child`` (0 for the computing
        process, 1 for others), ``memory`` (resident bytes).
    memory : Table
        A row per sample of a `MemorySampler`: ``label`` (of its series, a block of the program),
        ``time`` (s), ``rss``, ``pss``, ``uss`` (bytes of this process and all its descendants:
        resident; with pages that several share counted in parts that sum to one; and pages of one
        alone. The latter two are NaN where they were not read), ``processes`` (how many), ``delay``
        (s).
    cached_results : Table
        A row per result that the scheduler held: ``key``, ``function``, ``computation``,
        ``metric``,
        ``start``, ``stop`` (s).
    transfers : Table
        A row each time that a task with its inputs, or its result, was pickled or rebuilt to pass
        between processes: ``task`` (position in `tasks`), ``activity`` (``serialize`` or
        ``deserialize``), ``side`` (``scheduler`` or ``worker``), ``start``, ``stop`` (s),
        ``bytes``.
    pools : Table
        A row per pool of threads that a native library had at the end of a computation:
        ``computation``,
        ``library`` (as threadpoolctl names it), ``threads``. Without threadpoolctl they are not
        known: one row, of no name and 0 threads.
    workers : Table
        A row per computation and worker process that ran its tasks: ``computation``, ``pid``,
        ``joined`` (when the process could first run tasks).
    threads : Table
        A row per computation and group of threads of the computing process: ``computation``,
        ``kind`` (``tasks``, ``scheduler``, ``dask_diag``, ``python``, ``native`` or ``ended``),
        ``name`` (of the threads, without numbers, or the native library), ``threads`` (how many),
        ``cpu_seconds``.
    waits : Table
        A row for each thing that a task waited for, if it was asked to be explained: ``task``
        (position in `tasks`), ``activity``, ``seconds``, ``samples``. Of ``cpu-wait`` the seconds
        are exact and no samples were needed; of the others they are what the samples stand for.
        Samples in which a task was seen to wait for the interpreter's lock, but had run shortly
        before, stand for none: the sampler may have taken the lock from it.
    frames : Table
        A row per line of code that was seen running: ``name`` (its function's qualified name),
        ``file``, ``line``, and ``first_line``, the line where the function starts (0 if not known,
        as of
        functions written in C).
    call_tree : Table
        A row per node of the tree of calls: ``parent``, the position in `call_tree` of its caller,
        which comes before it (-1 of an outermost one), and ``frame``, a position in `frames`.
    samples : Table
        A row per cycle, function of tasks, key and stack: ``start``, ``stop`` (of the cycle, s),
        ``function``, ``key`` (of a task of which a quarter of a cycle or more was seen; of shorter
        tasks, which go together, it is empty), ``node`` (position in `call_tree`; -1 for time that
        could not be sampled), ``seconds``, ``cpu_seconds`` (seconds for which the stack stands, its
        callees'
        not counted), ``count`` (samples).
    environment : Table
        Where it was made, a row per fact: ``section`` (``versions``, ``machine``,
        ``configuration``, ``calling code``), ``name``, ``value``, all text. Empty unless it was
        asked for. Entries of the configuration that look like secrets are left out; in values and
        in the calling code, text that looks like a secret is masked (``'…'``).
    metric : str
        What ``cache.metric`` measures.
    metric_unit : str
        The unit of ``cache.metric``, such as ``bytes``; empty for a number without one.
    notices : tuple of str
        What a reader must know beside the numbers.
    run_id : str
        Which run it is of: random digits of the process that recorded, the same for all recordings
        that it made. Of a combination of several runs: their ids, separated by commas.
    state : {"complete", "truncated", "damaged"}
        Whether it has all that was measured. `load` finds a file ``truncated`` that its writer did
        not close (it was killed, or writes still), and ``damaged`` if it has changed since it was
        closed; either way the rest is missing. Of a combination: the worst of its parts.
    """

    start: float
    stop: float
    epoch: float
    computations: Computations = field(default_factory=Computations.empty)
    tasks: Tasks = field(default_factory=Tasks.empty)
    dependencies: Dependencies = field(default_factory=Dependencies.empty)
    metrics: Metrics = field(default_factory=Metrics.empty)
    resources: Resources = field(default_factory=Resources.empty)
    cached_results: CachedResults = field(default_factory=CachedResults.empty)
    processes: Processes = field(default_factory=Processes.empty)
    memory: Memory = field(default_factory=Memory.empty)
    transfers: Transfers = field(default_factory=Transfers.empty)
    waits: Waits = field(default_factory=Waits.empty)
    pools: Pools = field(default_factory=Pools.empty)
    workers: Workers = field(default_factory=Workers.empty)
    threads: Threads = field(default_factory=Threads.empty)
    frames: Frames = field(default_factory=Frames.empty)
    call_tree: CallTree = field(default_factory=CallTree.empty)
    samples: Samples = field(default_factory=Samples.empty)
    environment: Environment = field(default_factory=Environment.empty)
    metric: str = ""
    metric_unit: str = ""
    notices: tuple[str, ...] = ()
    run_id: str = ""
    state: str = STATES[0]

    def __post_init__(self) -> None:
        for name, kind in TABLES.items():
            object.__setattr__(self, name, kind.of(getattr(self, name)))
        if self.state not in STATES:
            raise DiagnosticError(f"state: expected one of {STATES}, found {self.state!r}")

    @classmethod
    def combine(cls, recordings: Iterable[Recording]) -> Recording:
        """See `dask_diag.combine`."""
        return combine(recordings)

    @property
    def is_complete(self) -> bool:
        """Whether it has all that was measured: its `state` is ``complete``."""
        return self.state == STATES[0]

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}: {len(table):,}" for name, table in self.tables().items())
        state = "" if self.is_complete else f", {self.state}"
        return f"<Recording of {self.stop - self.start:.3g} s{state}; {counts}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{name}</td><td>{len(table):,}</td></tr>"
            for name, table in self.tables().items()
            if len(table)
        )
        return (
            f"<p>Recording of {self.stop - self.start:.3g} s; dask_diag.summary() shows more</p>"
            f"<table><tr><th>table</th><th>rows</th></tr>{rows}</table>"
        )

    def tables(self) -> dict[str, RecordingTable]:
        """All tables by their names."""
        return {name: getattr(self, name) for name in TABLES}


def combine(recordings: Iterable[Recording]) -> Recording:
    """One recording of several that were made over the same block, or one after the other.

    Each computation is in it once, and so is each series of memory; another series of the same
    label has a number added: ``"load (2)"``. What is left out is named in its notices.

    Parameters
    ----------
    recordings : iterable of Recording

    Raises
    ------
    DiagnosticError
        If there is none, or one is no `Recording`.
    """
    parts = list(recordings)
    if not parts:
        raise DiagnosticError("expected at least one recording to combine, found none")
    for part in parts:
        expect_recording(part)
    return Recording(**combined(parts))


def expect_recording(value: object) -> None:
    """Say what to do where something else is given.

    Raises
    ------
    DiagnosticError
        If it is no `Recording`.
    """
    if not isinstance(value, Recording):
        raise DiagnosticError(
            f"expected a Recording, found {type(value).__name__}; a profiler's is its .recording, "
            "and Recording.combine makes one of several"
        )
