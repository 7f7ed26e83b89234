"""Findings on what passes before tasks run, on recordings written by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dask_diag.analysis import lines as lines_module
from dask_diag.analysis.facts import Analysis
from dask_diag.sampling import callers

from .stacks import BUILT_IN, CORE, LEAF, MAIN, with_stacks
from .tables import filled_table, with_columns, with_tables
from .test_finding_thresholds import Task, by_code, numbers, run, tasks_with_overhead

pytestmark = pytest.mark.once

BOOTSTRAP = ("_find_and_load", "<frozen importlib._bootstrap>", 1176, 1165)
MODULE = ("<module>", "/opt/env/lib/python3.11/site-packages/pandas/__init__.py", 3, 1)


def moved(recording, seconds):
    """The recording started so many seconds before the computation."""
    return replace(recording, start=-seconds)


def sampled(recording, rows):
    """With stacks: a row is a root, a path and seconds."""
    stacks = [((-9.0, 0.0), root, path, seconds, seconds) for root, path, seconds in rows]
    return with_stacks(recording, stacks)


@pytest.mark.parametrize(
    ("before", "computing", "severity"),
    [
        (0.49, 0.5, None),
        (0.51, 0.5, "high"),
        (0.9, 2.11, None),
        (0.9, 2.09, "high"),
    ],
)
def test_slow_start(before, computing, severity):
    finding = by_code(moved(run([Task(0, computing)]), before)).get("slow-start")
    assert (finding and finding.severity) == severity
    if finding:
        assert finding.seconds_lost == pytest.approx(before)
        assert finding.kind == "at most"
        assert finding.where.intervals == ((-before, 0.0),)
        assert "SamplingProfiler" in finding.advice


def test_a_slow_start_is_found_however_short_the_computation():
    assert "slow-start" in by_code(moved(run([Task(0, 0.01)]), 1.0))


def test_a_recording_without_a_computation_has_no_slow_start():
    recording = run([Task(0, 1)])
    nothing = replace(recording, computations=recording.computations.rows(slice(0)))
    assert "slow-start" not in by_code(moved(nothing, 10.0))


def test_a_slow_start_names_the_line_outside_the_standard_library():
    rows = [("before computations", [MAIN, LEAF, BUILT_IN], 0.8)]
    finding = by_code(sampled(moved(run([Task(0, 1)]), 1.0), rows))["slow-start"]
    assert finding.evidence.endswith("Mostly: main (~/code/main.py:5) 100%")
    assert "dask.delayed" in finding.advice


@pytest.mark.parametrize(
    ("first", "seconds", "took"),
    [
        # The profilers started: on a busy machine they may take that long.
        (0.4, 0.6, 0.6),
        # A call kept the GIL: the first sample represents its time.
        (0.4, 1.0, 1.0),
        (0.0, 0.6, 1.0),
    ],
)
def test_a_slow_start_of_profilers_is_not_that_of_the_program(first, seconds, took):
    recording = moved(run([Task(0, 0.5)]), 1.0)
    stacks = [((first - 1.0, 0.0), "before computations", [MAIN], seconds, seconds)]
    finding = by_code(with_stacks(recording, stacks))["slow-start"]
    # One of two workers' part of it cannot be gained.
    assert finding.seconds_lost == pytest.approx(took / 2)


@pytest.mark.parametrize(("imports", "is_advised"), [(0.39, False), (0.41, True)])
def test_an_import_belongs_to_the_line_that_imports(imports, is_advised):
    rows = [
        ("before computations", [MAIN, BOOTSTRAP, MODULE, BUILT_IN], imports),
        ("before computations", [READ], 0.8 - imports),
    ]
    finding = by_code(sampled(moved(run([Task(0, 1)]), 1.0), rows))["slow-start"]
    assert "main (~/code/main.py:5)" in finding.evidence
    assert "pandas" not in finding.evidence
    assert ("importtime" in finding.advice) == is_advised


# The rest is divided between two workers, among the CPUs where there was one.
@pytest.mark.parametrize(
    ("imports", "workers", "cpus", "lost"),
    [(0.0, 2, 8, 0.5), (0.4, 2, 8, 0.75), (0.8, 2, 8, 1.0), (0.0, 4, 2, 0.75), (0.0, 1, 8, 0.875)],
)
def test_a_slow_start_loses_what_workers_would_not_take(imports, workers, cpus, lost):
    rows = [
        ("before computations", [MAIN, BOOTSTRAP, MODULE, BUILT_IN], imports),
        ("before computations", [READ], 0.8 - imports),
    ]
    rows = [row for row in rows if row[-1]]
    recording = moved(run([Task(0, 1)], workers=workers, cpus=cpus), 1.0)
    finding = by_code(sampled(recording, rows))["slow-start"]
    assert finding.seconds_lost == pytest.approx(lost)
    assert (finding.kind, finding.severity) == ("at most", "high")


READ = ("read", "/home/someone/code/main.py", 8, 7)
ORDER = ("order", "/opt/env/lib/python3.11/site-packages/dask/order.py", 7, 5)


@pytest.mark.parametrize(
    ("path", "before", "is_found"),
    [
        ([MAIN], 0.29, False),
        ([MAIN], 0.31, True),
        # Imports take as long for more data, and graphs are another finding's.
        ([MAIN, BOOTSTRAP, MODULE], 0.31, False),
        ([MAIN, CORE], 0.31, False),
        ([MAIN, CORE], 0.9, False),
    ],
)
def test_lines_that_read_may_be_found_sooner_than_imports(path, before, is_found):
    rows = [("before computations", path, before)]
    recording = sampled(moved(run([Task(0, 0.4)]), before), rows)
    assert ("slow-start" in by_code(recording)) == is_found


def test_making_a_graph_before_the_call_is_preparation():
    rows = [
        ("before computations", [MAIN, CORE, LEAF], 0.5),
        ("before computations", [MAIN, ORDER, BOOTSTRAP, MODULE], 0.3),
        # It may have collected results.
        ("between computations", [MAIN, CORE], 0.1),
        ("graph", [MAIN, ORDER], 0.2),
    ]
    codes = by_code(sampled(moved(prepared(0.2, 1.0), 0.8), rows))
    finding = codes["graph-preparation"]
    assert "slow-start" not in codes
    assert finding.seconds_lost == pytest.approx(0.7)
    assert numbers(finding, "took", "wall") == (0.7, 1.7)
    assert "Array.sum (dask/array/core.py:120) 71%" in finding.evidence
    # Samples are of cycles, which may end later.
    assert finding.where.intervals == ((-9.0, 0.2),)


def test_fewer_tasks_take_less_time_to_be_made_too():
    small = tasks_with_overhead(200, 0.001, 0.003)
    alone = by_code(small)["tasks-too-small"]
    rows = [("before computations", [MAIN, CORE], 0.57)]
    made = by_code(sampled(moved(small, 0.6), rows))["tasks-too-small"]
    # 57 of them are one afterwards.
    assert made.seconds_lost - alone.seconds_lost == pytest.approx(0.56)


def test_what_small_tasks_are_predicted_to_lose_makes_them_severe():
    small = tasks_with_overhead(200, 0.01, 0.0035)
    assert by_code(small)["tasks-too-small"].severity == "medium"
    rows = [("before computations", [MAIN, CORE], 2.57)]
    made = by_code(sampled(moved(small, 2.6), rows))["tasks-too-small"]
    # More of the time than the overhead of tasks, in which there are none yet.
    assert made.seconds_lost > 0.3 * 3.3
    assert made.severity == "high"


CONNECT = ("sync", "/opt/env/lib/python3.11/site-packages/distributed/utils.py", 425, 400)


def of_a_cluster(joined, rows=()):
    """A second before the computation, in which the workers of a cluster joined."""
    recording = moved(run([Task(0, 1)]), 1.0)
    workers = {
        "worker": [f"worker-{n}" for n in range(len(joined))],
        "address": [f"tcp://{n}" for n in range(len(joined))],
        "computation": ["cluster"] * len(joined),
        "joined": joined,
    }
    recording = with_tables(recording, workers=workers)
    return sampled(recording, rows) if rows else recording


@pytest.mark.parametrize(
    ("joined", "line", "is_of_cluster"),
    [
        ([-0.6, -0.3], None, True),
        ([-0.6], CONNECT, True),
        # It joined soon, or before the recording, or the program did something else meanwhile.
        ([-0.6], None, False),
        ([-1.2], CONNECT, False),
        ([-0.3], READ, False),
    ],
)
def test_a_cluster_that_starts_takes_time_before_tasks(joined, line, is_of_cluster):
    rows = [("before computations", [MAIN, line], 0.9)] if line else []
    joined = [time + 0.1 * (line is CONNECT) for time in joined]
    finding = by_code(of_a_cluster(joined, rows))["slow-start"]
    assert ("Client(address)" in finding.advice) == is_of_cluster
    assert ("in tasks" in finding.advice) != is_of_cluster
    assert ("SamplingProfiler" in finding.advice) == (line is None)
    joins = len([time for time in joined if time > -1])
    workers = finding.numbers.get("workers")
    assert (workers.value if workers else 0) == joins


def prepared(graph, computing, computations=1):
    """A graph that took so long before its one task ran."""
    task = Task(graph, graph + computing)
    return run([task], called=0.0, prepared=graph)


@pytest.mark.parametrize(
    ("graph", "computing", "severity"),
    [
        (0.09, 0.1, None),
        (0.11, 0.1, "high"),
        (0.24, 0.76, None),
        (0.26, 0.74, "medium"),
        (0.31, 0.69, "high"),
    ],
)
def test_graph_preparation(graph, computing, severity):
    recording = sampled(prepared(graph, computing), [("graph", [MAIN, ORDER], graph)])
    finding = by_code(recording).get("graph-preparation")
    assert (finding and finding.severity) == severity
    if finding:
        assert finding.seconds_lost == pytest.approx(graph)
        assert finding.where.intervals == ((0.0, graph),)
        assert "order (dask/order.py:7) 100%" in finding.evidence


def test_graphs_that_are_prepared_one_after_the_other_do_not_overlap():
    """Four computations: 0.4 s until the scheduler starts, and a task of 0.1 s."""
    calls = np.arange(4) * 0.5
    names = ["c", "d", "e", "f"]
    recording = run([Task(call + 0.4, call + 0.5) for call in calls.tolist()])
    start, stop = calls + 0.4, calls + 0.5
    times = {"called": calls, "prepared": start, "start": start, "stop": stop}
    recording = with_columns(recording, "computations", 4, computation=names, **times)
    recording = with_columns(recording, "tasks", computation=names, submitted=start, collected=stop)
    assert Analysis(recording).overlap == pytest.approx(1.0)
    finding = by_code(sampled(recording, [("graph", [MAIN, ORDER], 1.6)]))["graph-preparation"]
    assert numbers(finding, "graphs", "took", "wall") == (4, 1.6, 2)
    assert finding.seconds_lost == pytest.approx(1.6, rel=0.02)


@pytest.mark.parametrize(("graph", "is_found"), [(0.49, False), (0.51, True)])
def test_without_stacks_a_short_preparation_may_be_imports(graph, is_found):
    # Of 600 tasks a graph may take that long.
    tasks = [Task(graph + n / 1000, graph + (n + 1) / 1000) for n in range(600)]
    assert ("graph-preparation" in by_code(run(tasks, called=0.0, prepared=graph))) == is_found


@pytest.mark.parametrize(("tasks", "is_found"), [(1, False), (490, False), (510, True)])
def test_without_stacks_the_first_preparation_may_be_imports_whatever_it_takes(tasks, is_found):
    rows = [Task(1 + n / tasks, 1 + (n + 1) / tasks) for n in range(tasks)]
    finding = by_code(run(rows, called=0.0, prepared=1.0)).get("graph-preparation")
    assert (finding is not None) == is_found
    if finding:
        assert finding.seconds_lost == pytest.approx(0.51)


def test_without_stacks_a_later_preparation_is_that_of_a_graph():
    recording = run([Task(1.6, 2.6)], called=1.0, prepared=1.6)
    times = {"called": [0, 1], "prepared": [0.4, 1.6], "start": [0, 1], "stop": [0.5, 2.6]}
    recording = with_columns(recording, "computations", 2, computation=["before", "c"], **times)
    assert by_code(recording)["graph-preparation"].seconds_lost == pytest.approx(0.6)


def test_imports_are_no_graph_preparation():
    imports = [("graph", [ORDER, BOOTSTRAP, MODULE], 0.5), ("graph", [ORDER], 0.1)]
    assert "graph-preparation" not in by_code(sampled(prepared(0.6, 0.4), imports))


def test_fewer_tasks_have_as_many_imports():
    """Of 1 s before 100 tasks one half is imports; the rest is the graph's, and is a tenth."""
    tasks = [Task(1 + n / 100, 1 + (n + 1) / 100) for n in range(100)]
    recording = run(tasks, called=0.0, prepared=1.0, workers=1, cpus=1)
    imports = [
        ((0.0, 0.5), "graph", [ORDER, BOOTSTRAP, MODULE], 0.5, 0.5),
        ((0.5, 1.0), "graph", [ORDER], 0.5, 0.5),
    ]
    sampled = with_stacks(recording, imports)
    with_imports, saved = (
        Analysis(one).seconds_saved(merge_tasks=10) for one in (recording, sampled)
    )
    assert with_imports - saved == pytest.approx(0.9 * 0.5)
    assert Analysis(sampled).seconds_saved(remove={"graph"}) == pytest.approx(0.5)
    assert Analysis(sampled).simulator.simulate().seconds == pytest.approx(2.0)


@pytest.mark.parametrize(("seen", "is_found"), [(0.05, False), (0.5, True)])
def test_what_could_not_be_sampled_is_no_graph_preparation(seen, is_found):
    rows = [("graph", [MAIN, ORDER], seen), ("graph", None, 0.6 - seen)]
    finding = by_code(sampled(prepared(0.6, 0.4), rows)).get("graph-preparation")
    assert (finding is not None) == is_found
    if finding:
        assert finding.seconds_lost == pytest.approx(seen)


@pytest.mark.parametrize(("samples", "code"), [(10, "graph-preparation"), (2, "slow-start")])
def test_a_late_sample_does_not_say_that_a_graph_was_made(samples, code):
    """One call kept the GIL: the sample after it represents its time, and is of what came next."""
    recording = sampled(
        moved(run([Task(0, 1)]), 0.8), [("before computations", [MAIN, ORDER], 0.8)]
    )
    made = by_code(with_columns(recording, "samples", count=[samples] * len(recording.samples)))
    assert {"graph-preparation", "slow-start"} & made.keys() == {code}


@pytest.mark.parametrize(
    ("count", "lines", "lost"),
    [
        # One sample for half a second, right after a library was loaded.
        (1, [(READ, 0.5), (ORDER, 0.5)], 0.5),
        # As many as are due.
        (10, [(READ, 0.5), (ORDER, 0.5)], 1.0),
        # The machine is busy: the same line was sampled in time, too.
        (1, [(ORDER, 0.5), (ORDER, 0.5)], 1.0),
    ],
)
def test_a_late_sample_in_a_call_is_of_what_came_before(count, lines, lost):
    recording = sampled(prepared(1.0, 0.5), [("graph", [MAIN, line], took) for line, took in lines])
    recording = with_columns(recording, "samples", count=[count, 10])
    assert by_code(recording)["graph-preparation"].seconds_lost == pytest.approx(lost)


HASH = ("_hash_sha1", "/opt/env/lib/python3.11/site-packages/dask/hashing.py", 67, 66)
UNPACK = ("unpack", "/opt/env/lib/python3.11/site-packages/dask/delayed.py", 211, 200)
SORT = ("nargsort", "/opt/env/lib/python3.11/site-packages/pandas/core/sorting.py", 473, 430)


@pytest.mark.parametrize("took", [0.3, 1.5])
@pytest.mark.parametrize("root", ["before computations", "graph"])
def test_a_graph_that_takes_long_is_found_however_short_the_computation(root, took):
    recording = prepared(took * (root == "graph"), 0.01)
    recording = moved(recording, took) if root != "graph" else recording
    finding = by_code(sampled(recording, [(root, [MAIN, ORDER], took)]))["graph-preparation"]
    assert finding.seconds_lost == pytest.approx(took)
    assert finding.severity == "high"


def test_a_recording_without_a_computation_prepares_no_graph():
    recording = sampled(run([Task(0, 1)]), [("graph", [MAIN, ORDER], 0.5)])
    nothing = replace(recording, computations=recording.computations.rows(slice(0)))
    assert "graph-preparation" not in by_code(nothing)


@pytest.mark.parametrize(
    ("line", "advised"),
    [
        (HASH, "hashing the data"),
        (UNPACK, "traverse=False"),
        (SORT, "sort=False"),
        (ORDER, "fewer and larger chunks"),
    ],
)
@pytest.mark.parametrize(("share", "is_most"), [(0.39, False), (0.41, True)])
def test_what_helps_depends_on_what_was_done_to_make_the_graph(line, advised, share, is_most):
    rows = [("graph", [MAIN, line], share), ("graph", [MAIN, ORDER], 1 - share)]
    advice = by_code(sampled(prepared(1.0, 0.1), rows))["graph-preparation"].advice
    assert (advised in advice) == (is_most or line == ORDER)


def test_what_is_computed_to_prepare_a_graph_is_no_preparation_of_it():
    """As by set_index, whose call takes 1 s: 0.3 s, then a computation of 0.6 s, then 0.1 s."""
    recording = run([Task(1.0, 1.2), Task(0.4, 0.9)])
    names = ["of quantiles", "c"]
    times = {"called": [0.3, 0], "prepared": [0.4, 1], "start": [0.4, 1], "stop": [0.9, 1.2]}
    recording = with_columns(recording, "computations", 2, computation=names, **times)
    recording = with_columns(recording, "tasks", computation=names[::-1])
    finding = by_code(sampled(recording, [("graph", [MAIN, ORDER], 0.5)]))["graph-preparation"]
    assert numbers(finding, "took") == (0.5,)


def in_processes(startup, took, tasks=2, computations=1):
    """Two processes, each of which starts for so long; then tasks run, one after the other."""
    rows = [
        Task(startup + n // 2 * took, startup + (n // 2 + 1) * took, worker=n % 2)
        for n in range(tasks)
    ]
    recording = run(rows, scheduler="processes", called=0.0, prepared=0.0)
    columns = {name: recording.tasks[name] for name in recording.tasks.columns}
    # All were submitted at the start, before the processes ran.
    columns |= {
        "submitted": np.zeros(tasks),
        "pid": [str(n % 2) for n in range(tasks)],
    }
    stops = columns["stop"]
    moved = {
        "task": [*range(tasks), *range(tasks)],
        "activity": ["serialize"] * tasks + ["deserialize"] * tasks,
        "side": ["scheduler"] * (2 * tasks),
        "start": [*np.zeros(tasks), *stops],
        "stop": [*np.zeros(tasks), *stops],
        "bytes": [100.0] * (2 * tasks),
    }
    workers = {"computation": ["c"] * 2, "pid": ["0", "1"], "joined": [startup] * 2}
    return replace(
        recording,
        tasks=filled_table("tasks", columns),
        transfers=filled_table("transfers", moved),
        workers=filled_table("workers", workers),
    )


@pytest.mark.parametrize(
    ("startup", "took", "severity"),
    [(0.14, 0.86, None), (0.16, 0.84, "medium"), (0.31, 0.69, "high")],
)
def test_pool_startup(startup, took, severity):
    finding = by_code(in_processes(startup, took)).get("pool-startup")
    assert (finding and finding.severity) == severity
    if finding:
        assert finding.seconds_lost == pytest.approx(startup, rel=0.02)
        assert finding.where.intervals == ((0.0, startup),)
        assert numbers(finding, "processes", "computing", "tasks") == (2, 1, 2 * took)


@pytest.mark.parametrize(("took", "is_advised"), [(0.81, True), (0.83, False)])
def test_threads_are_advised_only_if_tasks_in_turn_are_quicker(took, is_advised):
    # Two tasks in turn save 1 - took of 1 + took seconds: a tenth of it, or less.
    finding = by_code(in_processes(1.0, took))["pool-startup"]
    assert ("scheduler='threads'" in finding.advice) == is_advised
    assert ("no remedy is known" in finding.advice) != is_advised


def test_where_threads_gain_little_several_computations_share_a_pool():
    recording = in_processes(1.0, 0.9)
    # The other one ran no tasks, and took no time.
    twice = {"computation": ["c", "d"], "stop": [1.9, 0.0]}
    recording = with_columns(recording, "computations", 2, **twice)
    assert by_code(recording)["pool-startup"].advice.startswith("use one pool for all computations")


def test_tasks_that_sleep_do_not_take_turns_in_threads():
    recording = in_processes(1.0, 1.5)
    finding = by_code(with_columns(recording, "tasks", thread_cpu=[0.1, 0.1]))["pool-startup"]
    assert "scheduler='threads'" in finding.advice


def test_threads_do_not_start_a_pool():
    recording = in_processes(0.5, 0.5)
    recording = with_columns(recording, "computations", scheduler=["threads"])
    assert "pool-startup" not in by_code(recording)


def test_what_cannot_be_simulated_is_at_most_what_workers_waited(monkeypatch):
    monkeypatch.setattr("dask_diag.analysis.facts.MOST_SIMULATED", 1)
    finding = by_code(in_processes(0.5, 0.5))["pool-startup"]
    assert finding.kind == "at most"
    assert finding.seconds_lost == pytest.approx(0.5)


def test_the_start_of_profilers_is_no_slow_start():
    own = ("(dask_diag)", "", 0, 0)
    rows = [("before computations", [MAIN, own], 0.4), ("before computations", [MAIN], 0.6)]
    finding = by_code(sampled(moved(run([Task(0, 1)]), 1.0), rows))["slow-start"]
    assert finding.seconds_lost == pytest.approx(0.6 / 2)
    assert numbers(finding, "took", "wall") == (0.6, 1.6)
    rows = [("before computations", [MAIN, own], 0.6), ("before computations", [MAIN], 0.4)]
    assert "slow-start" not in by_code(sampled(moved(run([Task(0, 1)]), 1.0), rows))


@pytest.mark.parametrize(("own", "is_found"), [(0.0, True), (0.3, False)])
def test_the_start_of_profilers_is_no_preparation(own, is_found):
    frame = ("(dask_diag)", "", 0, 0)
    rows = [("graph", [MAIN, ORDER, frame], own), ("graph", [MAIN, ORDER], 0.4 - own)]
    codes = by_code(sampled(prepared(0.4, 0.6), rows))
    assert ("graph-preparation" in codes) == is_found


def test_the_line_of_own_calls_is_that_of_stacks():
    assert callers.OWN_CALLS.name == lines_module.OWN_CALLS


def small_tasks_in_processes(startup, work, overhead, tasks):
    """As of a word count: the pool starts, then each task is collected so much after it."""
    period = work + overhead
    recording = in_processes(startup, work, tasks)
    start = startup + np.arange(tasks) // 2 * period
    columns = {"start": start, "stop": start + work, "collected": start + period}
    recording = with_columns(recording, "tasks", thread_cpu=[work] * tasks, **columns)
    stop = startup + tasks / 2 * period
    recording = with_columns(recording, "computations", stop=[stop], workers=[2])
    # Only times matter here, not what was sent.
    return replace(recording, transfers=filled_table("transfers", {}), stop=stop)


def test_the_start_of_a_pool_and_preparing_are_no_overhead_of_small_tasks():
    # 4 ms of worker time for each task pass before the first one, as in the review's word count.
    codes = by_code(small_tasks_in_processes(0.24, 0.00157, 1e-6, 120))
    assert "tasks-too-small" not in codes
    assert "pool-startup" in codes
    tasks = [Task(0.6 + n * 0.002, 0.6 + n * 0.002 + 0.0019) for n in range(120)]
    recording = run(tasks, workers=1, cpus=1, called=0.0, prepared=0.6)
    codes = by_code(sampled(recording, [("graph", [MAIN, ORDER], 0.6)]))
    assert "tasks-too-small" not in codes
    assert "graph-preparation" in codes


def test_the_advice_for_small_tasks_is_by_their_own_overhead_and_leaves_chunks_for_workers():
    finding = by_code(small_tasks_in_processes(0.24, 0.00157, 0.00043, 120))["tasks-too-small"]
    assert numbers(finding, "work", "overhead") == (0.00157, 0.00043)
    # (0.43 ms x 95 / 5) / 1.57 ms is 5.2; with the start of the pool it would be 54: one chunk.
    assert "make chunks about 6 times as large: overhead is below 5%" in finding.advice
    # 12 of these tasks for each of two workers: 4 times as large leaves 3.
    finding = by_code(small_tasks_in_processes(0.24, 0.0005, 0.002, 100))["tasks-too-small"]
    assert (
        "make chunks about 16 times as large: larger ones would leave fewer than 3 for each of "
        "2 workers" in finding.advice
    )
