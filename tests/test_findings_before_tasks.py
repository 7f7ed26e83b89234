"""Findings on what passes before tasks run, on recordings written by hand."""

from dataclasses import replace
from time import perf_counter

import dask
import dask.array as da
import numpy as np
import pytest

from dask_diag import FindingLocation, SamplingProfiler
from dask_diag.analysis import lines as lines_module
from dask_diag.analysis.facts import Analysis
from dask_diag.sampling import callers

from .recordings import (
    BUILT_IN,
    CORE,
    LEAF,
    MAIN,
    Task,
    by_code,
    check,
    run,
    with_columns,
    with_stacks,
    with_tables,
)
from .test_finding_thresholds import tasks_with_overhead

pytestmark = pytest.mark.once

SITE = "/opt/env/lib/python3.11/site-packages/"
BOOTSTRAP = ("_find_and_load", "<frozen importlib._bootstrap>", 1176, 1165)
MODULE = ("<module>", f"{SITE}pandas/__init__.py", 3, 1)
PLOTS = ("<module>", f"{SITE}plots/__init__.py", 3, 1)
PLOT = ("plot", f"{SITE}plots/lines.py", 30, 20)
READ = ("read", "/home/someone/code/main.py", 8, 7)
ORDER = ("order", f"{SITE}dask/order.py", 7, 5)
TO_CSV = ("NDFrame.to_csv", f"{SITE}pandas/core/generic.py", 3967, 3780)
MAKE, SCRIPT, WRITE_INPUT, CREATE = (
    (name, READ[1], 20, 19) for name in ("make", "<module>", "_write_input", "create_dataset")
)
READS, ORDERS = ((*line[:2], line[3], line[3]) for line in (READ, ORDER))
"""Where these functions begin: a thread that has kept the GIL gives it up there, too."""
COMPUTE = ("compute", f"{SITE}dask/base.py", 681, 640)
CONNECT = ("sync", f"{SITE}distributed/utils.py", 425, 400)
HASH = ("_hash_sha1", f"{SITE}dask/hashing.py", 67, 66)
SEQUENCE = ("_normalize_seq_func", f"{SITE}dask/tokenize.py", 154, 140)
ARRAY = ("register_numpy.<locals>.normalize_array", f"{SITE}dask/tokenize.py", 458, 440)
PICKLE = ("_normalize_pickle", f"{SITE}dask/tokenize.py", 245, 230)
TOKENIZED = ("tokenize", f"{SITE}dask/tokenize.py", 70, 47)
UNPACK = ("unpack", f"{SITE}dask/delayed.py", 211, 200)
SORT = ("nargsort", f"{SITE}pandas/core/sorting.py", 473, 430)
FROM_ARRAY = ("from_array", f"{SITE}dask/array/core.py", 3650, 3500)
EMULATE = ("emulate", f"{SITE}dask/dataframe/dask_expr/_expr.py", 4158, 4150)
OWN = (lines_module.OWN_CALLS, "", 0, 0)
IMPORT = (MAIN, BOOTSTRAP, PLOTS, BUILT_IN)
COMPUTED = ((MAIN,), 0.1, "tasks")


def moved(recording, seconds):
    """The recording started so many seconds before the computation."""
    return replace(recording, start=-seconds)


def sampled(recording, *rows, root="before computations", since=-9.0):
    """With stacks: a row is a path and seconds, and a root if it is another."""
    stacks = [
        ((since, 0.0), (*other, root)[0], path, seconds, seconds)
        for path, seconds, *other in rows
        if seconds
    ]
    return with_stacks(recording, stacks)


def started(before, computing, *rows, since=-9.0, **options):
    return sampled(moved(run([Task(0, computing)], **options), before), *rows, since=since)


def imported(imports, **options):
    """A library that nothing uses, and reading."""
    return started(1.0, 1.0, (IMPORT, imports), ((READ,), 0.8 - imports), COMPUTED, **options)


def joined(line, *times, before=6.0):
    """Time before the computation, in which the workers of a cluster joined."""
    workers = {
        "worker": [f"worker-{n}" for n in range(len(times))],
        "address": [f"tcp://{n}" for n in range(len(times))],
        "computation": ["cluster"] * len(times),
        "joined": times,
    }
    rows = [((MAIN, line), before - 0.1)] if line else []
    return with_tables(started(before, 1.0, *rows), workers=workers)


def small_after_building(line):
    """Small tasks of which nine tenths of a second are overhead, and two seconds to make the graph."""
    made = tasks_with_overhead(1000, 0.0001, 0.0009)
    return sampled(moved(made, 2.0), ((MAIN, line), 2.0, "before computations"))


def test_larger_chunks_do_not_save_the_hashing_of_data():
    small = {
        line: by_code(small_after_building(line))["tasks-too-small"].potential_saving
        for line in (ORDER, TOKENIZED)
    }
    assert small[ORDER] - small[TOKENIZED] == pytest.approx(2.0, rel=0.1)


def nothing_computed(recording):
    return replace(recording, computations=recording.computations.filter(slice(0)))


OF_CLUSTER = ("Client(address)", "not: in tasks")
OF_PROGRAM = ("not: Client(address)", "in tasks")


@pytest.mark.parametrize(
    "made, cases",
    [
        (
            started,
            {
                (0.49, 0.5): None,
                (0.51, 0.5): (
                    *("high", "upper_bound", 0.51, FindingLocation(((-0.51, 0.0),))),
                    "SamplingProfiler",
                ),
                (0.9, 2.11): None,
                (0.9, 2.09): ("high", 0.9),
                (1.0, 0.01): True,
                # The line outside the standard library is named.
                (1.0, 1.0, ((MAIN, LEAF, BUILT_IN), 0.8)): (
                    *("Hottest line: main (~/code/main.py:5) 100%; ", "dask.delayed"),
                    "not: SamplingProfiler",
                ),
                # The start of profilers is no slow start.
                (1.0, 1.0, ((MAIN, OWN), 0.4), ((MAIN,), 0.6)): (
                    *(0.6, {"took": 0.6, "wall": 1.6}),
                ),
                (1.0, 1.0, ((MAIN, OWN), 0.6), ((MAIN,), 0.4)): None,
                # Lines that read may be found sooner than imports, which take as long for more
                # data; graphs are another finding's.
                (0.29, 0.4, ((MAIN,), 0.29)): None,
                (0.31, 0.4, ((MAIN,), 0.31)): True,
                (0.31, 0.4, ((MAIN, BOOTSTRAP, PLOTS), 0.31), COMPUTED): None,
                (0.31, 0.4, ((MAIN, CORE), 0.31)): None,
                (0.9, 0.4, ((MAIN, CORE), 0.9)): None,
            },
        ),
        (lambda before: nothing_computed(started(before, 1.0)), {10.0: None}),
        # On a busy machine profilers may start for 0.4 s; where a call kept the GIL, the first
        # sample represents its time.
        (
            lambda first, took: started(1.0, 0.5, ((MAIN,), took), since=first - 1.0),
            {(0.4, 0.6): 0.6, (0.4, 1.0): 1.0, (0.0, 0.6): 1.0},
        ),
        # An import belongs to the line that imports.
        (
            imported,
            {
                0.39: ("main (~/code/main.py:5)", "not: plots/", "not: importtime"),
                0.41: (
                    "main (~/code/main.py:5)",
                    "No sampled computation used plots",
                    "importtime",
                ),
            },
        ),
        # To import what computations use takes its time in any program; whether they do is not
        # known without samples of them. pandas is dask's.
        (
            lambda *rows: started(1.0, 1.0, *rows),
            {
                ((IMPORT, 0.9), COMPUTED): 1.0,
                ((IMPORT, 0.9), ((MAIN, PLOT), 0.1, "tasks")): None,
                ((IMPORT, 0.9), ((MAIN, PLOT), 0.1, "between computations")): None,
                ((IMPORT, 0.9),): None,
                (((MAIN, BOOTSTRAP, MODULE), 0.9), COMPUTED): None,
                (((MAIN, BOOTSTRAP, MODULE, BOOTSTRAP, PLOTS), 0.9), COMPUTED): None,
                (((MAIN, BOOTSTRAP, MODULE), 0.3), ((READ,), 0.6), COMPUTED): 0.7,
            },
        ),
        # What writes files makes data: a function in which that takes a quarter of the time, or that
        # is called so; of a script only the calls.
        (
            lambda *rows: started(1.0, 1.0, *rows),
            {
                (((MAKE, TO_CSV), 0.2), ((MAKE,), 0.5)): None,
                (((MAKE, TO_CSV), 0.1), ((MAKE,), 0.6)): 0.9,
                (((SCRIPT, TO_CSV), 0.2), ((SCRIPT,), 0.6)): 0.8,
                (((SCRIPT, TO_CSV), 0.2), ((SCRIPT, MAKE), 0.6)): 0.8,
                (((SCRIPT, WRITE_INPUT), 0.7),): None,
                # A library's function of this name writes; the program's may read.
                (((SCRIPT, CREATE), 0.7),): 1.0,
                # What a library writes for itself, as a cache, is a part of reading.
                (((READ, PLOT, TO_CSV), 0.7),): 1.0,
            },
        ),
        # A cluster that starts takes time before tasks: not if it joined soon, or before the
        # recording, or the program did something else meanwhile.
        (
            joined,
            {
                (None, -3.6, -1.8): ({"workers": 2}, *OF_CLUSTER, "SamplingProfiler"),
                (CONNECT, -2.9): ({"workers": 1}, *OF_CLUSTER, "not: SamplingProfiler"),
                (None, -3.6): ({"workers": 1}, *OF_PROGRAM),
                (CONNECT, -6.1): ({"workers": None}, *OF_PROGRAM),
                (READ, -1.8): ({"workers": 1}, *OF_PROGRAM),
            },
        ),
        # A local one takes so long in any program.
        (lambda: joined(CONNECT, -0.5, before=4.5), {(): None}),
    ],
)
def test_slow_start(made, cases):
    check("slow-start", made, cases)


COMPILE = ("compile", "/home/someone/code/main.py", 20, 20)
WAIT = ("kernel", "/home/someone/code/main.py", 31, 30)
WORK = ("kernel", "/home/someone/code/main.py", 32, 30)
NUMBA = ("compile", f"{SITE}numba/core/compiler.py", 20, 20)


def first_runs(first=1.0, at=COMPILE, beside=WAIT, later=0.1, processes=1, second=None, **rows):
    """Two threads of each process: a first run, one that starts with it, and ten later ones."""
    tasks, stacks, keys, pids = [], [], [], []
    runs = [(0.0, first, 0, at), (0.0, second or first + later, 1, beside)]
    runs += [(first + later * (1 + n // 2), None, n % 2, WORK) for n in range(10)]
    for process in range(processes):
        for start, took, thread, line in runs:
            stop = start + (later if took is None else took)
            keys.append(f"('work', {len(tasks)})" if took is not None else "")
            stacks.append(((start, stop), "work", (MAIN, line), stop - start, 0.0))
            tasks.append(Task(start, stop, worker=2 * process + thread))
            pids.append(str(process))
    recording = with_stacks(run(tasks, workers=2 * processes), stacks, keys)
    return with_columns(recording, "tasks", pid=pids)


def test_the_first_run_compiles_and_others_wait():
    cases = [
        (
            {},
            (
                *("high", "upper_bound", 0.9, "1 other run waited for it", "main.py:20"),
                {"first": 1.0, "later": 0.1, "processes": None},
            ),
        ),
        ({"processes": 3}, (0.9, {"processes": 3})),
        ({"later": 0.4}, None),
        # With more data the same lines take longer.
        ({"at": WORK, "beside": WORK}, None),
        # The other thread did not wait: the first task is slow, and a straggler.
        ({"second": 0.1}, None),
        ({"at": NUMBA, "beside": NUMBA}, True),
    ]
    check("first-call", first_runs, cases)
    check("straggler", first_runs, [({}, None)])
    # What the program's process has compiled, a worker process has not.
    in_threads = by_code(first_runs())["first-call"].advice
    in_processes = with_columns(first_runs(), "computations", scheduler=["processes"])
    assert "call the function once" in in_threads
    assert by_code(in_processes)["first-call"].advice.startswith(
        "compute in threads, or in one pool"
    )
    few = with_columns(first_runs(), "samples", count=[1] * 2 + [0] * 10)
    assert "first-call" not in by_code(few)
    few = with_columns(first_runs(at=NUMBA, beside=NUMBA), "samples", count=[1] * 2 + [0] * 10)
    assert "first-call" in by_code(few)


def test_first_runs_that_wait_for_a_cpu_start_at_the_same_time_only():
    """The run that ends first, of which so much is a wait."""

    def waiting(cpu_wait, task=0):
        waits = {"task": [task], "activity": ["cpu-wait"], "seconds": [cpu_wait], "samples": [1]}
        return with_tables(first_runs(), waits=waits)

    cases = {(0.0,): 0.9, (0.5,): (0.4, {"first": 0.5}), (0.75,): None, (0.75, 1): 0.9}
    check("first-call", waiting, cases)


def test_what_each_run_compiles_is_no_first_call():
    """All runs are in a compiler, for this share of the time of later ones."""

    def compiling(share, count=10):
        recording = first_runs(at=NUMBA, beside=NUMBA)
        rows = [
            ((1.0, 1.6), "work", (MAIN, NUMBA), share, 0.0),
            ((1.0, 1.6), "work", (MAIN, WORK), 1.0 - share, 0.0),
            ((0.0, 1.0), "work", (MAIN, NUMBA), 2.0, 0.0),
        ]
        made = with_stacks(recording, rows)
        return with_columns(made, "samples", count=[count] * 3)

    said = "compiled or imported in each run, not only in the first: 50% of their time"
    cases = {(0.5,): ("upper_bound", said, "define the compiled function outside")}
    # Few samples, or a little of the time.
    cases |= dict.fromkeys([(0.5, 9), (0.25,)])
    check("first-call", compiling, cases)
    # Each process has a first run.
    in_processes = with_columns(compiling(0.5), "computations", scheduler=["processes"])
    assert "first-call" not in by_code(in_processes)


def test_what_others_wait_for_is_no_run_with_more_data():
    """A first run holds a lock while it loads, and later runs are too short to be sampled."""

    def waiting(first, other, later, samples=0, **at):
        few = with_columns(first_runs(**at), "samples", count=[1] * 2 + [samples] * 10)
        seconds = [first, other, *[later] * 10]
        locks = {"task": [*range(12)], "activity": ["lock-wait"] * 12, "seconds": seconds}
        return with_tables(few, waits={**locks, "samples": [1] * 12})

    evidence = "1 other run waited for it to give up a lock, which later runs do not wait for"
    cases = {
        (0.0, 0.9, 0.0): evidence,
        (0.0, 0.4, 0.0): None,
        (0.0, 0.9, 0.01): None,
        # The run that waited may end before the one that loads.
        (0.9, 0.0, 0.0): evidence,
        # Both wait for a lock of something else.
        (0.9, 0.9, 0.0): None,
    }
    check("first-call", waiting, cases)
    assert "lock-bound" not in by_code(waiting(0.0, 0.9, 0.0))
    # Later runs are at the same line: the first one reads more data, under a lock.
    more_data = waiting(0.0, 0.9, 0.0, samples=10, at=WORK, beside=WORK)
    assert "first-call" not in by_code(more_data)
    where_lines_say_so = by_code(waiting(0.0, 0.9, 0.0, samples=10))["first-call"]
    assert "It passed where later runs spend no time" in where_lines_say_so.evidence


def prepared(graph, computing, *rows, counts=None):
    """A graph that took so long before its one task ran."""
    recording = run([Task(graph, graph + computing)], called=0.0, prepared=graph)
    recording = sampled(recording, *rows, root="graph")
    return with_columns(recording, "samples", count=counts) if counts else recording


def ordered(graph, computing):
    return prepared(graph, computing, ((MAIN, ORDER), graph))


def unsampled(graph, tasks, lasts):
    """The first graph, without stacks, of so many tasks that take so long."""
    rows = [Task(graph + n * lasts, graph + (n + 1) * lasts) for n in range(tasks)]
    return run(rows, called=0.0, prepared=graph)


def made_before_the_call():
    made = prepared(
        0.2,
        1.0,
        *(((MAIN, CORE, LEAF), 0.5, "before computations"),),
        *(((MAIN, ORDER, BOOTSTRAP, MODULE), 0.3, "before computations"),),
        # Between computations, too, but for the collection of results.
        ((MAIN, ORDER), 0.1, "between computations"),
        ((MAIN, COMPUTE, CORE), 0.1, "between computations"),
        ((MAIN, ORDER), 0.2),
    )
    return moved(made, 0.8)


def late_before(*own):
    """What passed before the first computation had one sample, in the last of two cycles.

    It is of the begin of a function that came next, or of the hook of a profiler there.
    """
    parts = [((MAIN, ORDERS, *own), took, "before computations") for took in (0.5, 0.3)]
    return moved(prepared(0.1, 1.0, *parts, ((MAIN, ORDER), 0.1), counts=[0, 1, 10]), 0.8)


def in_a_scheduler():
    """Before the first computation: the next sample came when it ran. Between: a pool ended."""
    runs = ("get_async", f"{SITE}dask/local.py", 469, 400)
    ends = ("get", f"{SITE}dask/multiprocessing.py", 251, 150)
    before, between = "before computations", "between computations"
    rows = ((MAIN, runs), 0.8, before), ((MAIN, ends), 0.8, between), ((MAIN, ORDER), 0.1)
    return moved(prepared(0.1, 1.0, *rows, counts=[10] * 3), 0.8)


def four_one_after_the_other():
    """Four computations: 0.4 s until the scheduler starts, and a task of 0.1 s."""
    calls = np.arange(4) * 0.5
    names = ["c", "d", "e", "f"]
    recording = run([Task(call + 0.4, call + 0.5) for call in calls.tolist()])
    start, stop = calls + 0.4, calls + 0.5
    times = {"called": calls, "prepared": start, "start": start, "stop": stop}
    recording = with_columns(recording, "computations", 4, computation=names, **times)
    recording = with_columns(recording, "tasks", computation=names, submitted=start, collected=stop)
    return sampled(recording, ((MAIN, ORDER), 1.6), root="graph")


def after_another():
    """Without stacks a later preparation is that of a graph, and no import."""
    times = {"called": [0, 1], "prepared": [0.4, 1.6], "start": [0, 1], "stop": [0.5, 2.6]}
    recording = run([Task(1.6, 2.6)], called=1.0, prepared=1.6)
    return with_columns(recording, "computations", 2, computation=["before", "c"], **times)


def with_a_computation_inside():
    """As by set_index, whose call takes 1 s: 0.3 s, then a computation of 0.6 s, then 0.1 s."""
    recording = run([Task(1.0, 1.2), Task(0.4, 0.9)])
    names = ["of quantiles", "c"]
    times = {"called": [0.3, 0], "prepared": [0.4, 1], "start": [0.4, 1], "stop": [0.9, 1.2]}
    recording = with_columns(recording, "computations", 2, computation=names, **times)
    recording = with_columns(recording, "tasks", computation=names[::-1])
    return sampled(recording, ((MAIN, ORDER), 0.5), root="graph")


def counted(samples):
    made = started(0.8, 1.0, ((MAIN, ORDERS), 0.8))
    return with_columns(made, "samples", count=[samples] * len(made.samples))


ORDERED = "order (dask/order.py:7) 100%"


@pytest.mark.parametrize(
    "made, cases",
    [
        (
            ordered,
            {
                (0.09, 0.1): None,
                (0.11, 0.1): ("high", 0.11, FindingLocation(((0.0, 0.11),)), ORDERED),
                (0.24, 0.76): None,
                (0.26, 0.74): ("medium", 0.26, ORDERED),
                (0.31, 0.69): ("high", 0.31, FindingLocation(((0.0, 0.31),))),
                # One that takes long is found however short the computation.
                (0.3, 0.01): ("high", 0.3),
                (1.5, 0.01): ("high", 1.5),
            },
        ),
        (
            lambda took: started(took, 0.01, ((MAIN, ORDER), took)),
            {0.3: ("high", 0.3), 1.5: ("high", 1.5)},
        ),
        (lambda: nothing_computed(ordered(0.5, 0.5)), {(): None}),
        # Making a graph before the call is preparation. Samples are of cycles, which end later.
        (
            made_before_the_call,
            {
                (): (
                    *(0.8, {"took": 0.8, "wall": 1.8}, FindingLocation(((-9.0, 0.2),))),
                    "Array.sum (dask/array/core.py:120) 63%",
                )
            },
        ),
        (
            four_one_after_the_other,
            {(): ({"graphs": 4, "took": 1.6, "wall": 2}, pytest.approx(1.6, rel=0.02))},
        ),
        # Without stacks the first preparation may be imports: of 600 tasks a graph may take half a
        # second.
        (
            unsampled,
            {
                (0.49, 600, 0.001): None,
                (0.51, 600, 0.001): True,
                (1.0, 1, 1): None,
                (1.0, 490, 1 / 490): None,
                (1.0, 510, 1 / 510): 0.51,
            },
        ),
        (after_another, {(): 0.6}),
        (
            prepared,
            {
                # Imports are none, nor is what could not be sampled, or the start of profilers.
                (0.6, 0.4, ((ORDER, BOOTSTRAP, MODULE), 0.5), ((ORDER,), 0.1)): None,
                (0.6, 0.4, ((MAIN, ORDER), 0.05), (None, 0.55)): None,
                (0.6, 0.4, ((MAIN, ORDER), 0.5), (None, 0.1)): 0.5,
                (0.4, 0.6, ((MAIN, ORDER), 0.4)): True,
                (0.4, 0.6, ((MAIN, ORDER, OWN), 0.3), ((MAIN, ORDER), 0.1)): None,
                # What helps depends on what was done to make the graph.
                **{
                    (1.0, 0.1, ((MAIN, line), share), ((MAIN, ORDER), 1 - share)): (
                        f"{'' if share > 0.4 or line is ORDER else 'not: '}{advice}"
                    )
                    for share in (0.39, 0.41)
                    for line, advice in (
                        (HASH, "hashing the data"),
                        (UNPACK, "traverse=False"),
                        (SORT, "sort=False"),
                        (FROM_ARRAY, "from_array copies an array"),
                        (EMULATE, "(meta=, for arrays with dtype=)"),
                        (ORDER, "fewer and larger chunks"),
                    )
                },
                # What was hashed, and who passed it.
                **{
                    (1.0, 0.1, ((MAIN, *calls), 1.0)): (
                        f". For 100% of the time dask hashed {what}, passed in main",
                        "not: Hottest",
                        "name=False",
                    )
                    for calls, what in (
                        ((ARRAY, PICKLE), "an array of objects"),
                        ((ARRAY, HASH), "an array"),
                        (
                            (SEQUENCE, PICKLE),
                            "pickled objects, such as functions that refer to data",
                        ),
                        ((SEQUENCE, HASH), "data"),
                    )
                },
            },
        ),
        # A late sample where a function begins is of what came before: one for half a second, right
        # after a library was loaded; not if as many are due, or in a function.
        (
            lambda count, line: prepared(
                1.0, 0.5, ((MAIN, line), 0.5), ((MAIN, ORDER), 0.5), counts=[count, 10]
            ),
            {(1, READS): 0.5, (10, READS): 1.0, (1, READ): 1.0},
        ),
        (with_a_computation_inside, {(): {"took": 0.5}}),
        # One call kept the GIL: the sample after it represents its time, and is of what came next.
        (counted, {10: True, 2: None}),
    ],
)
def test_graph_preparation(made, cases):

    check("graph-preparation", made, cases)


def test_what_passes_before_tasks_is_preparing_a_graph_or_a_slow_start():
    check("slow-start", made_before_the_call, {(): None})
    check("slow-start", counted, {10: None, 2: True})
    # Of which line that was is not known.
    check("slow-start", late_before, {(): (0.8, "not: Hottest"), (OWN,): (0.8, "not: Hottest")})
    check("graph-preparation", late_before, {(): None, (OWN,): None})
    check("graph-preparation", in_a_scheduler, {(): None})
    check("slow-start", in_a_scheduler, {(): 0.8})
    assert Analysis(four_one_after_the_other()).overlap == pytest.approx(1.0)
    assert callers.OWN_CALLS.name == lines_module.OWN_CALLS


def test_fewer_tasks_take_less_time_to_be_made_too():
    def made(work, overhead, graph):
        small = tasks_with_overhead(200, work, overhead)
        return sampled(moved(small, graph + 0.03), ((MAIN, CORE), graph)) if graph else small

    # 57 of them are one afterwards.
    alone, with_graph = (
        by_code(made(0.001, 0.003, graph))["tasks-too-small"].potential_saving
        for graph in (0, 0.57)
    )
    assert with_graph - alone == pytest.approx(0.56)
    # More of the time than the overhead of tasks, in which there are none yet, makes it severe.
    cases = {(0.01, 0.0035, 0): "medium", (0.01, 0.0035, 2.57): "high"}
    check("tasks-too-small", made, cases)
    assert by_code(made(0.01, 0.0035, 2.57))["tasks-too-small"].potential_saving > 0.3 * 3.3


def test_fewer_tasks_have_as_many_imports():
    """Of 1 s before 100 tasks one half is imports; the rest is the graph's, and is a tenth."""
    tasks = [Task(1 + n / 100, 1 + (n + 1) / 100) for n in range(100)]
    recording = run(tasks, called=0.0, prepared=1.0, workers=1, cpus=1)
    imports = [
        ((0.0, 0.5), "graph", [ORDER, BOOTSTRAP, MODULE], 0.5, 0.5),
        ((0.5, 1.0), "graph", [ORDER], 0.5, 0.5),
    ]
    seen = with_stacks(recording, imports)
    with_imports, saved = (Analysis(one).seconds_saved(merge_tasks=10) for one in (recording, seen))
    assert with_imports - saved == pytest.approx(0.9 * 0.5)
    assert Analysis(seen).seconds_saved(remove={"graph"}) == pytest.approx(0.5)
    assert Analysis(seen).simulator.simulate().seconds == pytest.approx(2.0)


def in_processes(startup, took, tasks=2, scheduler="processes", cpu=None):
    """Two processes, each of which starts for so long; then tasks run, one after the other."""
    rows = [
        Task(startup + n // 2 * took, startup + (n // 2 + 1) * took, cpu, worker=n % 2)
        for n in range(tasks)
    ]
    recording = run(rows, scheduler=scheduler, called=0.0, prepared=0.0)
    # All were submitted at the start, before the processes ran.
    pids = [str(n % 2) for n in range(tasks)]
    recording = with_columns(recording, "tasks", submitted=[0.0] * tasks, pid=pids)
    times = [*[0.0] * tasks, *recording.tasks.stop]
    transfers = {
        "task": [*range(tasks)] * 2,
        "activity": ["serialize"] * tasks + ["deserialize"] * tasks,
        "side": ["scheduler"] * (2 * tasks),
        "start": times,
        "stop": times,
        "bytes": [100.0] * (2 * tasks),
    }
    workers = {"computation": ["c"] * 2, "pid": ["0", "1"], "joined": [startup] * 2}
    return with_tables(recording, transfers=transfers, workers=workers)


def of_several_computations():
    """The other one ran no tasks, and took no time."""
    twice = {"computation": ["c", "d"], "stop": [1.9, 0.0]}
    return with_columns(in_processes(1.0, 0.9), "computations", 2, **twice)


def beside_python_threads(cpu):
    """Tasks that sleep beside an event loop in each process, which computes so long in all."""
    row = {"computation": ["c"], "kind": ["python"], "name": ["loop"], "is_child": [True]}
    numbers = {"threads": [1], "cpu_seconds": [cpu]}
    return with_tables(in_processes(1.0, 0.9, 2, "processes", 0.1), threads={**row, **numbers})


def small_tasks_in_processes(startup, work, overhead, tasks):
    """As of a word count: the pool starts, then each task is collected so much after it."""
    period = work + overhead
    start = startup + np.arange(tasks) // 2 * period
    columns = {"start": start, "stop": start + work, "collected": start + period}
    recording = in_processes(startup, work, tasks)
    recording = with_columns(recording, "tasks", thread_cpu=[work] * tasks, **columns)
    stop = startup + tasks / 2 * period
    recording = with_columns(recording, "computations", stop=[stop], workers=[2])
    # Only times matter here, not what was sent.
    return replace(with_tables(recording, transfers={}), stop=stop)


@pytest.mark.parametrize(
    "made, cases",
    [
        (
            in_processes,
            {
                (0.14, 0.86, 2, "processes", 0.1): None,
                (0.16, 0.84, 2, "processes", 0.1): (
                    *("medium", pytest.approx(0.16, rel=0.02), FindingLocation(((0.0, 0.16),))),
                    {"processes": 2, "computing": 1, "tasks": 1.68},
                ),
                (0.31, 0.69, 2, "processes", 0.1): ("high", pytest.approx(0.31, rel=0.02)),
                # Two tasks in turn save 1 - took of 1 + took seconds, which has to be 15% of it.
                (1.0, 0.73): ("scheduler='threads'", pytest.approx(0.27, rel=0.02)),
                # Nothing is known to help.
                (1.0, 0.75): None,
                # Tasks that sleep do not take turns in threads.
                (1.0, 1.5, 2, "processes", 0.1): "scheduler='threads'",
                (0.5, 0.5, 2, "threads"): None,
            },
        ),
        (of_several_computations, {(): "; use one pool for all computations"}),
        # Tasks that wait for a thread of their process take turns for one in threads.
        (beside_python_threads, {(0.2,): "scheduler='threads'", (1.6,): None}),
        # 4 ms of worker time for each task pass before the first one, as in the review's word count.
        (small_tasks_in_processes, {(0.24, 0.00157, 1e-6, 120): True}),
    ],
)
def test_pool_startup(made, cases):
    check("pool-startup", made, cases)


def test_what_cannot_be_simulated_is_at_most_what_workers_waited(monkeypatch):
    monkeypatch.setattr("dask_diag.analysis.facts.MOST_SIMULATED", 1)
    check("pool-startup", in_processes, {(0.5, 0.5, 2, "processes", 0.1): ("upper_bound", 0.5)})


def test_the_start_of_a_pool_and_preparing_are_no_overhead_of_small_tasks():
    cases = {
        (0.24, 0.00157, 1e-6, 120): None,
        # (0.43 ms x 95 / 5) / 1.57 ms is 5.2; with the start of the pool it would be 54.
        (0.24, 0.00157, 0.00043, 120): (
            {"work": 0.00157, "overhead": 0.00043},
            "make chunks about 6 times as large, so that tasks of",
        ),
        # 12 of these tasks for each of two workers: 4 times as large leaves 3.
        (0.24, 0.0005, 0.002, 100): (
            "make chunks about 16 times as large, which leaves 6 at once for 2 workers"
        ),
    }
    check("tasks-too-small", small_tasks_in_processes, cases)
    tasks = [Task(0.6 + n * 0.002, 0.6 + n * 0.002 + 0.0019) for n in range(120)]
    recording = run(tasks, workers=1, cpus=1, called=0.0, prepared=0.6)
    codes = by_code(sampled(recording, ((MAIN, ORDER), 0.6), root="graph"))
    assert "tasks-too-small" not in codes
    assert "graph-preparation" in codes


@pytest.mark.truth
def test_what_one_call_took_that_kept_the_gil_was_preparation(retried):
    objects = np.array([{"k": n, "v": [n]} for n in range(200_000)], dtype=object)

    def measure():
        with dask.config.set(scheduler="threads"), SamplingProfiler() as profiler:
            started = perf_counter()
            x = da.from_array(objects, chunks=50_000)
            hashed = perf_counter() - started
            x[:1].compute()
        found = by_code(profiler.recording)
        assert found["graph-preparation"].numbers["took"].value >= 0.8 * hashed
        assert "slow-start" not in found

    retried(measure)
