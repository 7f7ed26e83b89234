"""Everything of dask's internals that this package touches, in one folder.

Dask's local schedulers call callbacks with too little; what they lack is read here.

- ``callbacks`` lets callbacks see computations that overlap in several threads.
- ``calls`` notes when ``dask.compute`` was called, before there is a graph, and which line did.
- ``stack`` reads local variables of dask's functions: the number of workers, the sizes of what a
  worker process was sent and sent back, what ``dask.annotate`` said of the graph; and, in tasks,
  which calls are dask's own and which function they called.
- ``executors`` finds the kind of a scheduler by what it hands tasks to.
- ``graph`` has the types of what callbacks are given.

Each is guarded: where dask has changed, the diagnostics go on with what dask offers.
"""

from __future__ import annotations

from dask_diag.capture.dask_internals.callbacks import (
    distributed_client,
    hold,
    release,
    sees_overlapping_computes,
)
from dask_diag.capture.dask_internals.calls import (
    DaskCalls,
    call_site,
    calls_of_threads,
    codes_of_dask_calls,
    take_cpu_of_noting,
    when_called,
)
from dask_diag.capture.dask_internals.executors import SchedulerKind, scheduler_kind
from dask_diag.capture.dask_internals.graph import (
    Graph,
    GraphNode,
    SchedulerState,
    Task,
    contents_of_node,
    is_node,
    is_node_type,
)
from dask_diag.capture.dask_internals.stack import (
    annotations_of_graph,
    bytes_of_result,
    bytes_of_task,
    called_from,
    is_machinery,
    is_on_stack,
    requested_keys,
    scheduler_frame,
    scheduler_locals,
)

__all__ = [
    "DaskCalls",
    "Graph",
    "GraphNode",
    "SchedulerKind",
    "SchedulerState",
    "Task",
    "annotations_of_graph",
    "bytes_of_result",
    "bytes_of_task",
    "call_site",
    "called_from",
    "calls_of_threads",
    "codes_of_dask_calls",
    "contents_of_node",
    "distributed_client",
    "hold",
    "is_machinery",
    "is_node",
    "is_node_type",
    "is_on_stack",
    "release",
    "requested_keys",
    "scheduler_frame",
    "scheduler_kind",
    "scheduler_locals",
    "sees_overlapping_computes",
    "take_cpu_of_noting",
    "when_called",
]
