"""What was measured: the fields of a `Recording`, checked as they are set.

They are apart from `Recording` so that combining can use them: `Recording.combine` imports it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dask_diag.errors import DiagnosticError
from dask_diag.model import codes
from dask_diag.model.tables import (
    TABLES,
    Allocations,
    CachedResults,
    CallTree,
    Computations,
    Dependencies,
    Environment,
    Frames,
    Memory,
    Metrics,
    OtherTasks,
    Planned,
    Pools,
    Processes,
    Progress,
    Resources,
    Samples,
    Tasks,
    Threads,
    Transfers,
    Waits,
    WorkerEvents,
    Workers,
)

STATES = tuple(codes.STATES)
"""What `Measurements.state` may be, from good to bad."""


@dataclass(frozen=True, repr=False)
class Measurements:
    """The fields of a `Recording`, which describes them.

    Raises
    ------
    SchemaError
        If a table is not as the schema says.
    DiagnosticError
        If there is no such state.
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
    allocations: Allocations = field(default_factory=Allocations.empty)
    transfers: Transfers = field(default_factory=Transfers.empty)
    waits: Waits = field(default_factory=Waits.empty)
    pools: Pools = field(default_factory=Pools.empty)
    workers: Workers = field(default_factory=Workers.empty)
    other_tasks: OtherTasks = field(default_factory=OtherTasks.empty)
    worker_events: WorkerEvents = field(default_factory=WorkerEvents.empty)
    threads: Threads = field(default_factory=Threads.empty)
    frames: Frames = field(default_factory=Frames.empty)
    call_tree: CallTree = field(default_factory=CallTree.empty)
    samples: Samples = field(default_factory=Samples.empty)
    planned: Planned = field(default_factory=Planned.empty)
    progress: Progress = field(default_factory=Progress.empty)
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
