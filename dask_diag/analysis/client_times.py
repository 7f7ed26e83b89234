"""What threads of the program did beside tasks, by samples: wait, make graphs, run own code."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.call_tree import innermost
from dask_diag.analysis.groups import distinct_pairs
from dask_diag.analysis.intervals import Intervals, StepFunction
from dask_diag.analysis.lines import (
    CLIENT,
    files_of_nodes,
    graphs_made_between,
    imports_and_profilers,
    late_samples,
    nodes_in_file,
    nodes_named,
    samples_below,
    waits_for_own_threads,
)
from dask_diag.analysis.phases import times_of_phases
from dask_diag.columns import FloatArray, ratio
from dask_diag.model.codes import Root
from dask_diag.model.recording import Recording

_WAITS = re.compile(r"(?:^|\.)(?:gather|result|exception|wait|__next__|next_batch|_get_and_raise)$")
"""The functions of a client that wait for results; Python 3.10 has no names of classes."""
POOL = "dask/multiprocessing.py"
"""File that ends worker processes."""
_DEPLOY = re.compile(r"/distributed/deploy/")
"""In the paths of the files that start and close clusters."""


class ClientTimes(NamedTuple):
    """Seconds of each row of samples, 0 if it is of something else; and when these may be lost.

    Attributes
    ----------
    waiting : array of float
        The thread waited for results of a cluster.
    bringing : array of float
        The part of it while no computation ran: results were on their way, or were unpickled.
    sending : array of float
        It made graphs for a cluster and sent them, in calls of a client.
    clusters : array of float
        A cluster started or closed, or its workers were restarted, while no computation ran.
    own : array of float
        It ran code of the program while no computation ran: neither imports nor dask making graphs
        or ending worker processes.
    between : Intervals
        Times between and after computations, until dask returned, too.
    """

    waiting: FloatArray
    bringing: FloatArray
    sending: FloatArray
    clusters: FloatArray
    own: FloatArray
    between: Intervals


def client_times(recording: Recording) -> ClientTimes:
    """Divide the samples of threads of the program."""
    samples, tree = recording.samples, recording.call_tree
    in_client = innermost(tree.parent, nodes_in_file(recording, CLIENT))
    call = np.append(in_client, -1)[samples.node]
    is_call = call >= 0
    waits = np.append(nodes_named(recording, _WAITS.search), False)[call]
    imports, profilers = imports_and_profilers(recording)
    of_program = (samples.node >= 0) & ~samples.root.is_in((Root.TASKS, Root.SCHEDULER))
    seconds = samples.seconds * of_program * ~profilers
    times = times_of_phases(recording)
    between = Intervals.join([times[phase] for phase in ("finishing", "between", "after")])
    idle = StepFunction.of(between)
    idle_of_rows = idle.integral(samples.stop) - idle.integral(samples.start)
    # Of a cycle of which a part is between, as much of its samples may be: first what is no wait.
    # Another thread may do that meanwhile.
    start, stop, cycle = distinct_pairs(samples.start, samples.stop)
    no_wait = np.bincount(cycle, seconds * (samples.root.eq(Root.BETWEEN) & ~waits))
    waited = np.bincount(cycle, seconds * waits)
    left = idle.integral(stop) - idle.integral(start)
    left -= np.minimum(no_wait, np.fmax(stop - start - waited, 0.0))
    share = ratio(left, waited)
    is_own = samples.root.eq(Root.BETWEEN) & ~is_call & ~imports & ~late_samples(recording)
    is_own &= ~graphs_made_between(recording) & ~waits_for_own_threads(recording)
    is_own &= ~samples_below(recording, POOL)
    in_cluster = innermost(tree.parent, files_of_nodes(recording, _DEPLOY.search))
    is_cluster = np.append(in_cluster >= 0, False)[samples.node]
    is_restart = samples_below(recording, CLIENT, "restart") & samples.root.eq(Root.BETWEEN)
    unused = np.minimum(seconds, idle_of_rows)
    return ClientTimes(
        waiting=seconds * waits,
        bringing=seconds * waits * np.clip(share, 0.0, 1.0)[cycle],
        sending=seconds * (is_call & ~waits & ~is_restart),
        clusters=unused * (is_restart | (is_own & is_cluster)),
        own=unused * (is_own & ~is_cluster),
        between=between,
    )
