"""Each finding on recordings written by hand: just above and just below what its page says."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dask_diag import FindingLocation, findings, simulate
from dask_diag.analysis.cpu import cpu_outside_tasks
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings import rules
from dask_diag.analysis.findings.rule import Diagnosis, Evidence, Gain, Rule, severity_of

from .recordings import (
    CORE,
    MAIN,
    MB,
    NAN,
    Task,
    advised,
    assert_found,
    by_code,
    check,
    in_rounds,
    run,
    two_at_once,
    with_columns,
    with_stacks,
    with_tables,
    with_waits,
)

# Files import it from here.

pytestmark = pytest.mark.once


def later_for(share):
    """How much later a task of a second starts if both run in that share of the time of any."""
    return (1 - share) / (1 + share)


def chain(steps, beside=0.0, period=0.25):
    tasks = [
        Task(n * period, (n + 1) * period, depends_on=(n - 1,) if n else ()) for n in range(steps)
    ]
    return [*tasks, Task(0, beside, function="other", worker=1)]


def of_functions(share):
    """Two functions wait, one of them in that share of the time of both."""
    return run([Task(0, 1, share, "most"), Task(0, 1, 1 - share, "few", 1)])


def four_functions():
    tasks = [Task(0, 1, n / 10, function=name, worker=n) for n, name in enumerate("abcd")]
    return with_waits(run(tasks, workers=4), "gil-wait")


def chain_of_functions():
    steps = [
        Task(n, n + 1 - n / 10, function=name, depends_on=(n - 1,) if n else ())
        for n, name in enumerate("abcd")
    ]
    return run(steps)


def for_gil(*args, **kwargs):
    return with_waits(two_at_once(*args, **kwargs), "gil-wait")


@pytest.mark.parametrize(
    "code, made, cases",
    [
        # Only what has a twentieth of the whole is named, and three functions at most.
        (
            "io-bound",
            lambda share: with_waits(of_functions(share), "io-wait"),
            {0.049: "Mostly in most; ", 0.051: "Mostly in most and few; "},
        ),
        ("gil-bound", four_functions, {(): "Mostly in a, b and c; "}),
        ("serial-chain", chain_of_functions, {(): "Mostly in a, b and c; "}),
        # No time is worth a finding below a tenth of a second.
        ("gil-bound", lambda lasts: for_gil(lasts, 0.0), {0.099: None, 0.101: True}),
        (
            "gil-bound",
            lambda waited: for_gil(cpu=1 - waited),
            {
                0.14: None,
                0.16: ("medium", 0.16, {"share": (0.16, "share")}, "processes"),
                0.29: ("medium", 0.29),
                0.31: ("high", 0.31),
            },
        ),
        # Threads must run at once.
        (
            "gil-bound",
            lambda share: for_gil(cpu=0.5, later=later_for(share)),
            {0.099: None, 0.101: True},
        ),
        ("gil-bound", lambda name: for_gil(cpu=0.5, scheduler=name), {"processes": None}),
        # Guessed of two tasks of a second: 4 switches of each and 250 a second are turns.
        (
            "gil-bound",
            lambda cpu, switches, cpus: two_at_once(
                cpu=cpu, cpus=cpus, voluntary_switches=switches
            ),
            {
                (0.5, 258.5, 2): ("medium", {"cpus": (1.0, "mean")}, "waits=True"),
                (0.5, 257.5, 2): None,
                (0.5, 259, 1): None,
                (0.31, 1000, 2): ("medium", {"cpus": 0.62}),
                (0.29, 1000, 2): None,
                (0.62, 1000, 2): "medium",
                (0.63, 1000, 2): None,
            },
        ),
        (
            "io-bound",
            lambda waited: with_waits(two_at_once(cpu=1 - waited), "io-wait"),
            {0.39: None, 0.41: {"lost": 0.82, "share": 0.41}},
        ),
        ("io-bound", lambda activity: with_waits(two_at_once(cpu=0.0), activity), {"sleep": None}),
        # A guess is of tasks that hardly compute, and not of what other programs took.
        ("io-bound", lambda cpu: two_at_once(cpu=cpu), {0.14: "medium", 0.16: None}),
        (
            "io-bound",
            lambda busy: two_at_once(cpu=0.1, cpu_other_processes=busy),
            {0: True, 1.7: None},
        ),
        # Six workers run six tasks at once; sixteen run twenty in two rounds, and twenty in one:
        # no more are advised than there are tasks.
        (
            "io-bound",
            lambda count, workers: with_waits(in_rounds(count, workers), "io-wait"),
            {(6, 2): (2.0, "num_workers=6"), (20, 4): (4.0, "num_workers=20")},
        ),
        (
            "io-bound",
            lambda: with_waits(
                run([Task(n, n + 1, 0.0, depends_on=(n - 1,) * (n > 0)) for n in range(4)]),
                "io-wait",
            ),
            {(): (NAN, "not: num_workers=")},
        ),
        # Tasks wait half of their time; on one CPU the other half takes as long as all did.
        (
            "io-bound",
            lambda cpus: with_waits(in_rounds(8, 2, 0.5, cpus=cpus), "io-wait"),
            {2: (2.0, "upper_bound"), 1: (NAN, "more workers cannot help")},
        ),
        # More workers must save a tenth.
        (
            "io-bound",
            lambda longest: with_waits(
                run([Task(0, longest, 0.0), Task(longest, 1, 0.0)], workers=1), "io-wait"
            ),
            {0.899: "run more tasks at once", 0.901: "more workers cannot help"},
        ),
        # The CPU of the profilers' own threads is none of the program.
        (
            "io-bound",
            lambda kind: with_threads(0.3, 0.99, kind, kind, activity="io-wait"),
            {"dask_diag": True},
        ),
    ],
)
def test_tasks_that_wait_for_the_gil_or_for_files(code, made, cases):
    check(code, made, cases)


def test_the_profilers_own_threads_are_no_cpu_of_the_program():
    for kind, outside in (("dask_diag", 0.0), ("python", 0.3)):
        recording = with_threads(0.3, 0.99, "x", kind, activity="io-wait")
        assert cpu_outside_tasks(recording) == pytest.approx(outside)


def test_no_other_finding_is_made_of_tasks_that_wait():
    for lasts, codes in ((0.099, set()), (0.101, {"gil-bound"})):
        assert set(by_code(for_gil(lasts, 0.0))) == codes
    for waited, codes in ((0.39, set()), (0.41, {"io-bound"})):
        assert set(by_code(with_waits(two_at_once(cpu=1 - waited), "io-wait"))) == codes


@pytest.mark.parametrize("share, severity", [(0.09, "low"), (0.11, "medium"), (0.9, "medium")])
def test_a_guess_is_never_severe(share, severity):
    assert severity_of(share, is_certain=False) == severity


def tasks_that_hold_the_gil(size=None, count=40):
    """On two threads; results of that many bytes, if they were measured."""
    recording = with_waits(in_rounds(count, 2, 0.5), "gil-wait")
    if size is None:
        return recording
    columns = {
        "computation": ["c"] * count,
        "key": recording.tasks.key.tolist(),
        "metric": [size] * count,
        "start": [0.0] * count,
        "stop": [count / 2] * count,
    }
    recording = with_tables(recording, cached_results=columns)
    return replace(recording, metric="nbytes", metric_unit="bytes")


def with_sizes(sizes):
    return with_columns(tasks_that_hold_the_gil(), "tasks", nbytes=sizes)


PROCESSES = "scheduler='processes', predicted to save"
LIBRARY = ("parse", "/opt/env/lib/python3.11/site-packages/pandas/io/parsers.py", 10, 1)
NO_PROCESSES = (
    "not: scheduler='processes'",
    "processes would hardly help",
    "release",
)


@pytest.mark.parametrize(
    "made, cases",
    [
        # Each of two processes has half of the work, less a batch, and both must start.
        (tasks_that_hold_the_gil, {1000: (10, "estimate", PROCESSES + " 7")}),
        # Nothing is passed from task to task: these are the results that the caller gets.
        (
            tasks_that_hold_the_gil,
            {
                (100 * MB, 40): NO_PROCESSES,
                (1000, 4): NO_PROCESSES,
                (None, 4): "processes would hardly help",
                None: "CacheProfiler",
            },
        ),
        # Sizes that tasks have are used, if they are those of nearly all.
        (
            with_sizes,
            [
                (([1000.0] * 40,), PROCESSES),
                (([100 * MB] * 40,), NO_PROCESSES),
                (([1000.0] * 30 + [NAN] * 10,), "CacheProfiler"),
            ],
        ),
        (
            lambda: for_gil(cpu=0.5, scheduler="distributed"),
            {
                (): "use code that releases the GIL in these functions, such as NumPy on whole "
                "arrays; or run more worker processes with fewer threads each: "
                "Client(n_workers=..., threads_per_worker=1); "
            },
        ),
    ],
)
def test_processes_are_advised_where_they_are_predicted_to_help(made, cases):
    check("gil-bound", made, cases)


@pytest.mark.parametrize("path, is_found", [(MAIN, True), (LIBRARY, False), (None, True)])
def test_the_gil_of_libraries_is_no_finding_where_processes_do_not_help(path, is_found):
    made = tasks_that_hold_the_gil(100 * MB, 40)
    stacks = [((0.0, 20.0), "work", [path], 40.0, 20.0)] if path else []
    assert ("gil-bound" in by_code(with_stacks(made, stacks) if path else made)) == is_found


@pytest.mark.parametrize("share, is_advised", [(0.2, False), (0.4, True)])
def test_times_that_python_parses_need_one_format(share, is_advised):
    strptime = ("_strptime", "/usr/lib/python3.11/_strptime.py", 309, 300)
    stacks = [
        ((0.0, 20.0), "work", [MAIN, line], 40.0 * part, 20.0 * part)
        for line, part in ((strptime, share), (LIBRARY, 1 - share))
    ]
    check(
        "gil-bound",
        lambda: with_stacks(tasks_that_hold_the_gil(1000), stacks),
        {(): f"{'' if is_advised else 'not: '}parse each column of times with one format"},
    )


def test_how_much_data_may_be_moved_follows_from_what_processes_save():
    # A quarter of 20 s must remain of what is saved. What the graph holds is not known.
    saved, limit = advised(
        tasks_that_hold_the_gil(1000), "gil-bound", "to save ", "passes less than "
    )
    assert limit == pytest.approx((saved - 5) * 250, rel=0.01)
    # Results, of which the sizes are not known, pass twice.
    saved, limit = advised(
        tasks_that_hold_the_gil(), "gil-bound", "save up to ", "tasks pass each other less than "
    )
    assert limit == pytest.approx((saved - 5) * 250 / 2, rel=0.02)
    # Half of 20 s of turns is saved; starting takes 1.3 s, and 40 results of 40 MB 6.4 s of it.
    made = tasks_that_hold_the_gil(40 * MB)
    in_processes = simulate(made, remove={"gil-wait"}, scheduler="processes").seconds
    less = simulate(made).seconds - in_processes
    assert less == pytest.approx(10 - 1.3 - 40 * 40 * MB / 0.25e9, abs=1.0)
    assert "processes would hardly help" in by_code(made)["gil-bound"].advice


@pytest.mark.parametrize(
    "scheduler, workers, advice",
    [
        (
            "synchronous",
            1,
            "several tasks at once, if the disk or server serves more: scheduler='threads', num_workers=4",
        ),
        ("threads", 2, "more tasks at once, if the disk or server serves more: num_workers=8"),
        # More processes would have to start.
        (
            "processes",
            2,
            "more tasks at once, if the disk or server serves more: scheduler='threads', num_workers=8",
        ),
        (
            "distributed",
            2,
            "more tasks at once, if the disk or server serves more: threads_per_worker=4 (dask worker "
            "--nthreads 4), 8 threads in all",
        ),
    ],
)
def test_more_tasks_at_once_are_advised_in_the_words_of_the_scheduler(scheduler, workers, advice):
    # Four rounds of a second; with four times the workers, one.
    recording = with_waits(in_rounds(4 * workers, workers, scheduler=scheduler), "io-wait")
    assert by_code(recording)["io-bound"].advice == (
        f"run {advice}; or move less data (fewer columns, compression, faster storage); memory was "
        "not recorded: check that more tasks fit"
    )


def tasks_with_overhead(count, work, overhead, workers=1):
    """One after the other; the result of each is collected so much later."""
    period = work + overhead
    return run(
        [Task(n * period, n * period + work, collected=(n + 1) * period) for n in range(count)],
        workers=workers,
        cpus=1,
    )


def divided(parts, joined=False, result="read"):
    """Each of 20 results is divided into so many parts; a step uses each part, or joins them."""
    recording = tasks_with_overhead(20 * (1 + 2 * parts), 0.0002, 0.0008)
    split, use = (np.arange(20 * parts) + start for start in (20, 20 + 20 * parts))
    users = use[np.arange(20 * parts) // parts] if joined else use
    functions = np.repeat([result, "split", "use"], [20, 20 * parts, 20 * parts])
    return with_tables(
        with_columns(recording, "tasks", function=functions.tolist()),
        dependencies={
            "task": [*split.tolist(), *users.tolist()],
            "depends_on": [*((split - 20) // parts).tolist(), *split.tolist()],
        },
    )


def test_a_step_that_divides_results_is_named_and_no_factor():
    named = ("estimate", "split divides 20 results into", "not: times as large")
    cases = {
        (7,): (*named, "fewer and larger parts in split"),
        (5,): ("not: divides", "times as large"),
        # As the edges of `map_overlap` are.
        (7, True): "not: divides",
        # Columns of tables.
        (7, False, "hashjoinp2p"): "not: divides",
    }
    check("tasks-too-small", divided, cases)


@pytest.mark.parametrize(("parts", "said"), [(7, "larger parts in split"), (5, "larger chunks;")])
def test_a_graph_with_many_parts_is_smaller_with_fewer_of_them(parts, said):
    made = divided(parts)
    made = with_columns(made, "computations", called=[-2.0], start=[-2.0], prepared=[0.0])
    made = with_stacks(made, [((-2.0, 0.0), "graph", [MAIN, CORE], 2.0, 2.0)])
    found = by_code(replace(made, start=-2.0))
    assert said in found["graph-preparation"].advice
    assert found["graph-preparation"].numbers["took"].value == pytest.approx(2.0, abs=0.01)


def shared_with(others):
    """The overhead is 30% of the time; others had the CPU for a share of what tasks needed."""
    recording = tasks_with_overhead(100, 0.007, 0.003)
    took = recording.tasks.stop - recording.tasks.start
    cpu = {"thread_cpu": took * (1 - others), "thread_noncpu": took * others}
    shared = with_columns(recording, "tasks", **cpu)
    return with_waits(
        with_columns(shared, "computations", cpu_other_processes=[others]), "cpu-wait"
    )


def one_independent():
    step = 1 / 256
    steps = [
        Task(
            n * step, (n + 0.25) * step, depends_on=(n - 1,) if n else (), collected=(n + 1) * step
        )
        for n in range(100)
    ]
    return run(steps, workers=1, cpus=1)


@pytest.mark.parametrize(
    "made, cases",
    [
        (
            tasks_with_overhead,
            {
                (100, 0.01, 0.0018): (
                    *("medium", "estimate"),
                    {"tasks": 100, "work": 0.01, "overhead": 0.0018},
                ),
                (99, 0.01, 0.0018): None,
                (100, 0.01, 0.0017): None,
                (100, 0.01, 0.0054): "high",
                # Its share is 0.31, what larger chunks gain is 0.29 of the time.
                (100, 0.01, 0.0044): "medium",
                (100, 0.019, 0.0035): "medium",
                (100, 0.021, 0.0050): None,
                # 3 ms are 5% of 60 ms, so 57 ms of work.
                (200, 0.001, 0.003): ("about 57 times as large", "so that tasks of 57.0 ms keep"),
            },
        ),
        # The advised size leaves chunks for each worker.
        (
            lambda count: tasks_with_overhead(count, 0.001, 0.003, workers=2),
            {
                100: ("about 16 times as large", "leaves 6 at once for 2 workers"),
                120: ("about 20 times as large", "leaves 6 at once for 2 workers"),
                1000: ("about 140 times as large", "not: which leaves"),
                10_000: ("about 140 times as large", "not: which leaves"),
            },
        ),
        (
            one_independent,
            {
                (): (
                    *("upper_bound", 75 / 256),
                    "do several successive steps in each task: at most 1 task of a function can run",
                    "at once, and 100 run one after the other",
                )
            },
        ),
        # Overhead in which other programs had the CPU does not count: of 80%, 15% are left.
        (shared_with, {0.0: True, 0.5: True, 0.8: None}),
    ],
)
def test_tasks_too_small(made, cases):
    check("tasks-too-small", made, cases)


@pytest.mark.parametrize("overhead", [0.0018, 0.0044, 0.0042])
def test_so_many_small_tasks_together_have_the_overhead_of_one(overhead):
    recording = tasks_with_overhead(100, 0.01, overhead)
    (factor,) = advised(recording, "tasks-too-small", "make chunks about ")
    fewer = 100 - math.ceil(100 / factor)
    lost = by_code(recording)["tasks-too-small"].potential_saving
    assert lost == pytest.approx(fewer * overhead, rel=0.02)


def of_which_one_is_most(longest):
    """Three tasks after each other, of which the second takes so long of a second."""
    first = (1 - longest) / 2
    second = Task(first, first + longest, depends_on=(0,))
    return run([Task(0, first), second, Task(first + longest, 1, depends_on=(1,))])


@pytest.mark.parametrize(
    "made, cases",
    [
        (
            lambda beside, stop: run(chain(4, beside), stop),
            {
                (0.3, 1.0): ("high", 1 - 1.3 / 2, {"tasks": 4}),
                # A serial chain of 59% of the wall time is not what bounds it.
                (0.3, 1.7): None,
                (0.3, 1.6): ("medium", 1 - 1.3 / 2),
                # 1.3 times of what both workers have to do is 0.97.
                (0.53, 1.0): ("medium", 1 - 1.53 / 2),
                (0.55, 1.0): None,
            },
        ),
        # A single task is no chain, nor is one of which a task is most.
        (lambda: run([Task(0, 1)], 1.0), {(): None}),
        (of_which_one_is_most, {0.49: True, 0.51: None}),
        # It loses no more than the CPUs could do.
        (lambda cpus: run(chain(4, 0.3), cpus=cpus), {2: True, 1: None}),
    ],
)
def test_serial_chain(made, cases):
    check("serial-chain", made, cases)


def moved(seconds, size=2e6, sent=None, tasks=3, submitted=None):
    """Tasks of a second in one process, of which each needs some of it to rebuild its inputs."""
    recording = run(
        [Task(n + seconds, n + 1, 0.1) for n in range(tasks)], workers=1, scheduler="processes"
    )
    rows = [
        (n, "worker", float(n if sent is None else n + sent), n + seconds) for n in range(tasks)
    ]
    if sent is not None:
        rows += [(n, "scheduler", n - 0.01, float(n)) for n in range(tasks)]
    task, side, start, stop = zip(*rows)
    transfers = {
        "task": task,
        "side": side,
        "activity": ["serialize" if by == "scheduler" else "deserialize" for by in side],
        "start": start,
        "stop": stop,
        "bytes": [size] * len(rows),
    }
    recording = with_tables(recording, transfers=transfers)
    if submitted is None:
        return recording
    return with_columns(recording, "tasks", submitted=np.arange(tasks) + submitted)


def moved_by_two(pickling, cpu, cpus=2, tasks=8):
    """Tasks of a second on two processes, each of which first unpickles its inputs."""
    recording = run(
        [Task(n // 2 + pickling, n // 2 + 1, cpu, worker=n % 2) for n in range(tasks)],
        scheduler="processes",
        cpus=cpus,
    )
    recording = with_columns(recording, "tasks", submitted=[n // 2 for n in range(tasks)])
    transfers = {
        "task": range(tasks),
        "side": ["worker"] * tasks,
        "activity": ["deserialize"] * tasks,
        "start": [n // 2 for n in range(tasks)],
        "stop": [n // 2 + pickling for n in range(tasks)],
        "bytes": [2e6] * tasks,
    }
    return with_tables(recording, transfers=transfers)


@pytest.mark.parametrize(
    "made, cases",
    [
        (
            moved,
            {
                0.14: None,
                0.16: ("medium", 0.48, {"moving": 0.48, "share": 0.16, "moved": 3e6}),
                0.29: ("medium", 0.87, {"pickling": 0.87}),
                0.31: ("high", 0.93),
                # The first small task of a process imports modules.
                (0.3, 0.99e6): 0.6,
                (0.3, 1.01e6): 0.9,
                # Time between processes counts for large data.
                (0.2, 0.99e6, 0.19): None,
                (0.2, 1.01e6, 0.19): True,
                # Also where no task had less, from which it is seen what it takes without any.
                (0.2, 2e6, 0.19, 6, -0.01): pytest.approx(1.2, rel=0.05),
                (0.2, 0.9e6, 0.19, 6, -0.01): None,
            },
        ),
        (
            moved_by_two,
            {
                # Without the pickling two threads take half of the time, and even one is quicker.
                (0.8, 0.2): (
                    *(3.2, "estimate"),
                    "scheduler='threads', predicted to save 3.20 s, or 2.40 s if these",
                ),
                # Two threads that hold the GIL take twice as long as two processes.
                (0.2, 0.8): "scheduler='threads' if these functions release the GIL",
                (0.2, 0.48, 1): "scheduler='threads' is not predicted to help",
            },
        ),
    ],
)
def test_serialization_bound(made, cases):
    check("serialization-bound", made, cases)


def test_what_moves_between_processes_for_a_shuffle_of_a_bag_is_its_cost():
    made = moved_by_two(0.8, 0.2)
    shuffling = with_columns(made, "tasks", function=["groupby-part"] * 8)
    found = by_code(shuffling)
    # Four seconds, in which two processes moved data for 3.2 s and tasks ran for 0.8 s.
    assert_found(found["disk-shuffle"], "high", 4.0, "use foldby", {"moving": 6.4, "took": 1.6})
    assert "serialization-bound" not in found
    assert "disk-shuffle" not in by_code(made)


def test_overhead_while_the_scheduler_pickles_is_the_time_of_that():
    recording = moved(0.2, sent=0.19)
    transfers = recording.transfers
    # A hundredth of a second for each task, after the worker became free.
    later = np.where(transfers.side.eq("scheduler"), 0.1, 0.0)
    times = {"start": transfers.start + later, "stop": transfers.stop + later}
    activities = Analysis(with_columns(recording, "transfers", **times)).activities
    assert activities["serialize"] == pytest.approx(0.03)
    assert activities["overhead"] == pytest.approx(3 * 0.19 - 0.03)
    assert sum(activities.values()) == pytest.approx(3.0)


def overlapping(seconds, workers=2, cpus=2, cpu=1.0):
    """Two computations of a second, so many seconds of them at once."""
    second = 1 - seconds
    recording = run([Task(0, 1, cpu), Task(second, second + 1, cpu)], workers=workers, cpus=cpus)
    times = {"computation": ["a", "b"], "start": [0.0, second], "stop": [1.0, second + 1]}
    recording = with_columns(recording, "computations", 2, **times)
    return with_columns(recording, "tasks", computation=["a", "b"])


@pytest.mark.parametrize(
    "cases",
    [
        {
            0.17: None,
            0.19: ("low", {"computations": 2, "lasted": 0.19, "workers": 4, "cpus": 2}),
            0.32: "low",
            0.34: "medium",
            0.7: "medium",
            0.8: "high",
        },
        # Their workers must outnumber the CPUs, and use them.
        {(0.5, 2, 4): None, (0.5, 2, 3): True, (0.5, 2, 2, 0.51): True, (0.5, 2, 2, 0.49): None},
    ],
)
def test_overlapping_computations(cases):
    check("overlapping-computations", overlapping, cases)


LAPACK = ("solve", "/opt/env/lib/python3.11/site-packages/numpy/linalg/_linalg.py", 451, 400)


def with_threads(
    outside,
    waited=0.12,
    name="openblas",
    kind="native",
    threads=1,
    activity="cpu-wait",
    lapack=0.0,
    others=None,
    **kwargs,
):
    """Two tasks of a second at once that waited for CPUs, and CPU time of other threads.

    So much of the tasks' CPU time as `lapack` says is in calls of it; None is not sampled.
    """
    cpu = 1 - waited
    if others is not None:
        kwargs["cpu_other_processes"] = others
    recording = two_at_once(cpu=cpu, cpu_process=2 * cpu + outside, **kwargs)
    groups = {
        "computation": ["c", "c"],
        "kind": ["tasks", kind],
        "name": ["pool", name],
        "threads": [2, threads],
        "cpu_seconds": [2 * cpu, outside],
    }
    recording = with_tables(recording, threads=groups)
    if lapack is not None:
        parts = ([MAIN], 1 - lapack), ([MAIN, LAPACK], lapack)
        rows = [((0.0, 1.0), "work", path, 2 * part, 2 * cpu * part) for path, part in parts]
        recording = with_stacks(recording, rows)
    return with_waits(recording, activity) if activity else recording


def with_mixed_waits(outside, waited, *seconds):
    """Each task waited so long for a CPU, and so long for a lock."""
    rows = [
        (task, activity, waited, samples)
        for task, pair in enumerate(seconds)
        for activity, waited, samples in zip(("cpu-wait", "lock-wait"), pair, (0, 100), strict=True)
    ]
    columns = dict(zip(("task", "activity", "seconds", "samples"), zip(*rows, strict=True)))
    return with_tables(with_threads(outside, waited=waited), waits=columns)


def with_pools(*pools):
    """Two tasks that waited half of their time, and pools of these names and sizes."""
    recording = with_waits(two_at_once(cpu=0.5, cpu_process=2.0), "cpu-wait")
    columns = {
        "computation": ["c"] * len(pools),
        "kind": ["native"] * len(pools),
        "name": [name for name, _ in pools],
        "threads": [threads for _, threads in pools],
        "cpu_seconds": [0.5] * len(pools),
    }
    return with_tables(recording, threads=columns)


def eight_while_others_spin():
    """Of a second on two CPUs, eight tasks had a sixth each, and their pool as much as two."""
    tasks = [Task(0, 1, 0.2, worker=worker) for worker in range(8)]
    groups = {"computation": ["c"], "kind": ["native"], "name": ["openblas"], "threads": [1]}
    recording = with_waits(run(tasks, workers=8, cpu_process=2.0), "cpu-wait")
    recording = with_tables(recording, threads={**groups, "cpu_seconds": [0.4]})
    return with_stacks(recording, [((0.0, 1.0), "work", [MAIN, LAPACK], 8.0, 1.6)])


def beside_profilers(cpu):
    """As above, and threads of profilers."""
    recording = with_threads(0.5, waited=0.5)
    own = {"computation": "c", "kind": "dask_diag", "name": "x", "threads": 1, "cpu_seconds": cpu}
    threads = recording.threads
    rows = {name: [*threads[name].tolist(), value] for name, value in own.items()}
    return with_tables(recording, threads=rows)


def called(outside, waited, name="openblas", activity="cpu-wait", others=0.0):
    return with_threads(outside, waited, name, activity=activity, others=others)


CALLED = (
    "Tasks and native threads competed for 2 CPUs: on average 2 tasks ran at once, and each called "
    "{} with up to 2 threads. The native threads used 500 ms of CPU time, the tasks' own threads "
    "1.00 s. Tasks "
)
OPENBLAS, UNKNOWN = map(CALLED.format, ("openblas", "an unknown native library"))
WHERE = FindingLocation(((0.0, 1.0),), ("thread-0", "thread-1"), ("work",))
FIND_OUT = "find out which library starts these threads; try OPENBLAS_NUM_THREADS=1 or OMP_NUM_THREADS=1 or "


@pytest.mark.parametrize(
    "made, cases",
    [
        # 10% of all CPU time on other threads are 0.196 s beside 1.76 s. Of each task, no more is
        # lost than the pool used on its CPU.
        (
            with_threads,
            [
                ({"outside": 0.2}, (0.1, "estimate", "set OPENBLAS_NUM_THREADS=1")),
                ({"outside": 0.19}, None),
                ({"outside": 1.0, "cpus": 3}, ("medium", 0.12)),
                ({"outside": 1.0, "cpus": 4}, None),
                ({"outside": 1.0, "cpus": 4, "threads": 2}, "medium"),
                ({"outside": 1.0, "waited": 0.07}, None),
                ({"outside": 1.0, "waited": 0.08}, ("low", 0.08)),
                ({"outside": 1.0, "waited": 0.31}, ("high", 0.31, "estimate")),
                ({"outside": 1.0, "waited": 0.31, "activity": "sleep"}, None),
                ({"outside": 1.0, "waited": 0.31, "activity": None}, ("high", 0.31, "upper_bound")),
                # The library is not known.
                (
                    {"outside": 1.0, "waited": 0.31, "name": ""},
                    ("medium", 0.31, "upper_bound", FIND_OUT),
                ),
                ({"outside": 0.33, "name": "", "activity": None}, ("medium", 0.12, "upper_bound")),
                # Threads that no such variable limits.
                ({"outside": 1.0, "waited": 0.31, "name": "jemalloc"}, None),
                *(
                    ({"outside": 1.0, "waited": 0.31, "kind": kind, "name": name}, None)
                    for kind, name in (
                        *(("python", "zarr_io"), ("python", ""), ("ended", "")),
                        ("dask_diag", "dask_diag-x"),
                    )
                ),
                # Of tasks that hardly compute it is little, whatever its share.
                ({"outside": 0.049, "waited": 0.9}, None),
                ({"outside": 0.051, "waited": 0.9}, True),
                # The pools took no more than they used: other programs had the rest.
                ({"outside": 0.18, "waited": 0.9}, ("low", 0.09)),
                # Tasks must run at once.
                ({"outside": 1.0, "waited": 0.31, "later": later_for(0.099)}, None),
                ({"outside": 1.0, "waited": 0.31, "later": later_for(0.101)}, True),
            ],
        ),
        # Half of what tasks' threads used in calls of lapack is spinning: the pool's one did as
        # much of the calls as both together. A quarter of a second for the pool's CPU, and as much
        # for the tasks' own on two CPUs. What the pool had of a call its own thread had, too.
        (
            lambda outside, lapack, threads=1: with_threads(
                outside, waited=0.5, lapack=lapack, threads=threads
            ),
            {
                (0.5, 1.0): (
                    *("estimate", 0.5),
                    {"own": (1.0, "seconds"), "spinning": (0.5, "seconds")},
                ),
                # Two libraries of a name may have a pool each: not all are in one call.
                (0.5, 1.0, 3): {"spinning": 0.5},
                (1.0, 1.0): {"spinning": None},
                (0.5, 0.5): {"spinning": None},
                (0.41, 0.5): {"spinning": None},
                (0.39, 0.5): {"spinning": 0.11},
                # Without stacks all tasks may have spun; no more than the pool's thread.
                (0.5, None): ("upper_bound", 0.5, {"spinning": None}),
                (1.0, None): "estimate",
            },
        ),
        # Eight share 0.4 s of CPU time on two CPUs while others spin.
        (
            eight_while_others_spin,
            {(): ("high", pytest.approx(0.8, abs=0.05), {"own": 1.6, "spinning": 1.2})},
        ),
        # The profilers have their part of the waits.
        (beside_profilers, {0.0: 0.25, 1.5: 0.125}),
        # Tasks wait for a library's threads as for a lock. The CPUs compute 1.6 s: two of them
        # take 0.8 s of the second.
        (
            lambda outside, waited: with_threads(outside, waited, activity="lock-wait"),
            {
                (0.6, 0.5): (0.2, {"locked": 1.0}),
                (0.4, 0.8): (0.6, {"locked": 1.6}),
                (1.0, 0.07): None,
                # Nothing important is gained, however long tasks waited.
                (0.5, 0.31): ("low", WHERE),
            },
        ),
        # Threads are not known.
        (
            lambda waited: with_tables(with_threads(1.0, waited), threads={}),
            {0.31: None},
        ),
        # The pool had no more of the waits for a CPU than it used, 0.12 s of each; and 0.1 s more.
        (
            with_mixed_waits,
            {
                (0.24, 0.4, (0.3, 0.1), (0.3, 0.1)): (
                    *(0.22, "medium", "estimate"),
                    "Tasks waited 600 ms for a CPU and 200 ms for native threads or locks; ",
                ),
                # Without the pool both are shorter; without either wait one is as long.
                (0.24, 0.4, (0.4, 0.0), (0.0, 0.4)): (0.24, WHERE),
            },
        ),
        (
            called,
            {
                (0.5, 0.5): f"{OPENBLAS}waited 1.00 s for a CPU; ",
                # Each has its part of the waits by the CPU it used: 9 of 100 are not worth a word.
                (0.5, 0.5, "openblas", "cpu-wait", 0.049): f"{OPENBLAS}waited 1.00 s for a CPU; ",
                (0.5, 0.5, "openblas", "cpu-wait", 0.5): (
                    f"{OPENBLAS}waited 1.00 s for a CPU (500 ms of it while other processes "
                    "used the CPUs); "
                ),
                (0.5, 0.5, "openblas", None, 0.5): (
                    f"{OPENBLAS}were off the CPU for 1.00 s (Profiler(waits=True) shows why) "
                    "(500 ms of it while other processes used the CPUs); "
                ),
                (0.5, 0.5, "openblas", "lock-wait", 0.5): (
                    f"{OPENBLAS}waited 1.00 s for native threads or locks; "
                ),
                (0.5, 0.5, ""): f"{UNKNOWN}waited 1.00 s for a CPU; ",
            },
        ),
        # Each library is named, and each variable once.
        (
            with_pools,
            {
                (("openblas", 1), ("openmp", 3)): (
                    "each called openblas and openmp with up to 4 threads",
                    "; set OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1 before Python starts, or "
                    "compute inside threadpoolctl.threadpool_limits(1)",
                ),
                (("openmp", 3), ("arrow", 2)): (
                    "each called arrow and openmp with up to 4 threads",
                    "; set OMP_NUM_THREADS=1 before Python starts, or call "
                    "pyarrow.set_cpu_count(1)",
                ),
                (("openmp", 1),): (
                    "each called openmp with up to 2 threads",
                    "; set OMP_NUM_THREADS=1 before Python",
                ),
                (("", 1),): (
                    "each called an unknown native library with up to 2 threads",
                    f"; {FIND_OUT}MKL_NUM_THREADS=1 before Python starts",
                ),
                (("mkl", 1), ("", 3)): (
                    "each called mkl with up to 4 threads",
                    "; set MKL_NUM_THREADS=1 before Python",
                ),
            },
        ),
    ],
)
def test_thread_oversubscription(made, cases):
    check("thread-oversubscription", made, cases)


def test_without_a_simulation_the_pools_part_of_the_waits_is_at_most_lost(monkeypatch):
    monkeypatch.setattr("dask_diag.analysis.facts.MOST_SIMULATED", 1)
    # The pool used 0.3 s; two tasks waited for it at once.
    cases = {(0.3, 0.5, (0.4, 0.1), (0.4, 0.1)): ("upper_bound", 0.15)}
    check("thread-oversubscription", with_mixed_waits, cases)


@pytest.mark.parametrize("share", [0.2, 0.8])
def test_a_task_that_spins_alone_takes_no_cpu_from_others(share):
    spun, only_waited = (
        by_code(with_threads(0.2, 0.5, lapack=lapack, later=later_for(share)))[
            "thread-oversubscription"
        ].potential_saving
        for lapack in (1.0, 0.0)
    )
    # Of both tasks' seconds, those in which both ran; 0.8 s of CPU time on two CPUs.
    both = 2 * share / (1 + share)
    assert spun - only_waited == pytest.approx(both * 0.8 / 2)


@pytest.mark.parametrize("others", [0.0, 0.5, 1.0])
def test_no_second_of_waiting_is_that_of_pools_and_of_other_programs(others):
    """Both used CPUs that two tasks waited for, half of their time."""
    both = by_code(with_threads(0.5, waited=0.5, others=others))
    pools = both["thread-oversubscription"].potential_saving
    programs = both["busy-machine"].potential_saving if others else 0.0
    # The waits are of one second, each competitor's share that of the CPU that it used.
    assert pools == pytest.approx(min(0.5, 0.5 / (0.5 + others)) / 2, abs=0.03)
    # Tasks and pools need three quarters of a second on two CPUs.
    assert programs == pytest.approx(min(others / (0.5 + others) / 2, 0.25), abs=0.03)
    assert pools + programs <= 0.5 + 1e-6


def growing(step=0.0, held=0, samples=10, at_first=100 * MB, steps=None, at_rest=(0, 99)):
    """Ten tasks; memory after each is larger by a step. It is read within tasks and between.

    A CacheProfiler measured what the scheduler held from the first second on, unless it is None.
    """
    times = np.arange(samples) + 0.5
    sizes = at_first + np.cumsum(np.full(samples, step) if steps is None else steps)
    recording = run([Task(n + 0.2, n + 0.8) for n in range(10)], stop=10.0, workers=1)
    resting = np.arange(samples + 1.0)
    is_read = np.r_[times > 0, (at_rest[0] <= resting) & (resting <= at_rest[1])]
    processes = {
        "time": np.r_[times, resting][is_read],
        "pid": [1] * int(is_read.sum()),
        "memory": np.r_[sizes, at_first, sizes][is_read],
    }
    resources = {"time": times, "memory": sizes, "memory_children": 0 * times, "delay": 0 * times}
    recording = with_tables(recording, resources=resources, processes=processes)
    if held is None:
        return recording
    columns = {
        "key": ["x"],
        "function": ["x"],
        "computation": ["other"],
        "metric": [held],
        "start": [0.9],
        "stop": [11.0],
    }
    recording = with_tables(recording, cached_results=columns)
    return replace(recording, metric="nbytes", metric_unit="bytes")


def after_imports(step):
    """There was less memory before the first computation."""
    recording = growing(step)
    rows = {name: recording.processes[name] for name in ("time", "pid", "memory")}
    before = dict(zip(rows, (-3.0, 1, 10 * MB), strict=True))
    rows = {name: [before[name], *values] for name, values in rows.items()}
    return replace(with_tables(recording, processes=rows), start=-3.0)


def with_garbage(found):
    """Memory grew, and collections in tasks found so many objects."""
    metrics = {"task": [3], "activity": ["gc"], "unit": ["objects"], "value": [float(found)]}
    return with_tables(growing(40 * MB), metrics={**metrics, "cpu": [NAN]})


def given_back(kept):
    recording = growing(40 * MB)
    memory = [*recording.processes.memory.tolist()[:-1], kept]
    return with_columns(recording, "processes", memory=memory)


def in_megabytes(*steps):
    return growing(steps=np.array(steps) * MB)


@pytest.mark.parametrize(
    "made, cases",
    [
        (
            lambda step, *others: growing(step * MB, *others),
            {
                9.9: None,
                10.1: "medium",
                99: "medium",
                101: "high",
                (101, None): "low",
                # What the scheduler holds is no growth.
                (20, 101 * MB): None,
                (20, 30 * MB): "medium",
                # Seven readings between tasks, and eight.
                (20, 0, 6): None,
                (20, 0, 7): "medium",
                # A fifth of the memory at first.
                (20, 0, 10, 1010 * MB): None,
                (20, 0, 10, 990 * MB): "medium",
            },
        ),
        # A tenth of the rise must be in each quarter of the samples, which start with the first,
        # fourth, seventh and ninth; fifths with every second.
        (
            in_megabytes,
            {
                (40,) * 10: True,
                (*[40] * 7, 12, 12, 40): None,
                (*[40] * 7, 14, 14, 40): True,
                (0, 0, 0, 60, 0, 0, 60, 0, 60, 0): True,
                (0, 0, 0, 0, 60, 0, 0, 60, 0, 0): None,
                # What workers load and cache in the first quarter is no growth.
                (0, 40, 40, 44, 0, 0, 50, 0, 50, 0): None,
                (0, 40, 40, 40, 0, 0, 50, 0, 50, 0): "medium",
            },
        ),
        # As many bytes are in use at most, the same usually, and some more least: by chance.
        (
            lambda *sizes: growing(at_first=74 * MB, steps=np.diff([74, *sizes]) * MB),
            {
                (221, 380, 337, 405, 406, 289, 402, 321, 421, 391): None,
                (221, 280, 337, 305, 356, 380, 340, 400, 391, 430): True,
            },
        ),
        # At rest, memory was read only between these times. The second quarter of the samples
        # starts at 3.5, the last one at 8.5.
        (
            lambda *at_rest: growing(40 * MB, at_rest=at_rest),
            {
                (0, 10): {"lasted": (10, "seconds")},
                (3, 9): {"lasted": (6, "seconds")},
                (4, 9): None,
                (3, 8): None,
            },
        ),
        # Imports before the first computation are no growth, nor is what is given back.
        (after_imports, {9 * MB: None}),
        (with_garbage, {999: "medium", 1000: "low"}),
        (growing, {11 * MB: True}),
        (given_back, {250 * MB: None, 270 * MB: True}),
    ],
)
def test_memory_growth(made, cases):
    check("memory-growth", made, cases)


def late(lasts, time, *delay):
    return with_tables(two_at_once(lasts, lasts), resources={"time": time, "delay": delay})


@pytest.mark.parametrize(
    "made, cases",
    [
        (
            lambda *delays: late(10.0, np.arange(10) + 0.5, *delays),
            {
                (0.24,) * 10: None,
                (0.26, *[0.0] * 9): ("low", {"longest": (0.26, "seconds")}),
                (0.26, 0.26, *[0.0] * 8): "medium",
                (*[0.26] * 6, *[0.0] * 4): "high",
            },
        ),
        # A sample is late for tasks that ran meanwhile.
        (
            lambda due, stop: late(1.0, [0.5, stop], 0.0, stop - due),
            {(0.8, 1.1): True, (1.1, 1.4): None},
        ),
    ],
)
def test_late_samples(made, cases):
    check("late-samples", made, cases)


@pytest.mark.parametrize(
    "wall, lost, is_noticed",
    [
        (10.0, 0.099, False),
        (10.0, 0.101, True),
        (0.2, 0.0049, False),
        (0.2, 0.0051, True),
        (10.0, NAN, True),
    ],
)
def test_what_lost_next_to_nothing_is_not_reported(monkeypatch, wall, lost, is_noticed):
    found = Diagnosis("low", Gain(lost), Evidence(), "")
    monkeypatch.setattr(rules, "RULES", (Rule("gil-bound", lambda _: found),))
    assert len(findings(run([Task(0, wall)]))) == is_noticed


@pytest.mark.parametrize(("lost", "is_noticed"), [(0.29, False), (0.31, True), (NAN, True)])
def test_what_lost_little_beside_the_largest_is_not_reported(monkeypatch, lost, is_noticed):
    """The other one lost all of ten seconds; it cannot save more than the recording took."""
    both = {"gil-bound": lost, "lock-bound": 15.0}
    monkeypatch.setattr(
        rules,
        "RULES",
        tuple(
            Rule(code, lambda _, seconds=seconds: Diagnosis("low", Gain(seconds), Evidence(), ""))
            for code, seconds in both.items()
        ),
    )
    assert len(findings(run([Task(0, 10.0)], stop=10.0))) == 1 + is_noticed


def two_failed(**texts):
    failed = [Task(n, n + 1, worker=1, outcome="failed", error="KeyError") for n in range(2)]
    columns = {name: ["", text, "of the second"] for name, text in texts.items()}
    return with_columns(run([Task(0, 1), *failed]), "tasks", **columns)


FAILED = "2 tasks failed after 2.00 s. The first was ('work', 1) of work: KeyError"


@pytest.mark.parametrize(
    "made, cases",
    [
        # Of a second that was lost with the result, not 5 ms; not where its time is not known.
        (
            lambda stop, collected: run(
                [Task(0, 1), Task(0, stop, None, "work", 1, (), collected, "failed", "KeyError")]
            ),
            {(0.01, None): ("high", NAN, "KeyError"), (NAN, 1.0): NAN},
        ),
        (
            two_failed,
            [
                ({}, (f"{FAILED}; ", {"failed": 2, "lasted": 2}, NAN)),
                ({"error_message": "'x'"}, f"{FAILED}: 'x'; "),
                (
                    {"error_location": "/code/load.py:7 in load"},
                    f"{FAILED}, at /code/load.py:7 in load; ",
                ),
            ],
        ),
        # Tasks that failed at once do not say what is lost.
        (
            lambda share: with_columns(overlapping(share, 1), "tasks", outcome=["failed"] * 2),
            {1.0: NAN},
        ),
    ],
)
def test_failed_tasks(made, cases):
    check("failed-tasks", made, cases)


def test_failed_tasks_come_first_and_others_in_the_order_of_what_they_cost():
    tasks = [Task(0, 1, 0.0), Task(0, 0.01, worker=1, outcome="failed", error="KeyError")]
    first, *others = findings(with_waits(run(tasks), "io-wait"))
    assert first.code == "failed-tasks"
    assert others
    tasks = [Task(n, n + 1, 0.5, depends_on=(n - 1,) if n else ()) for n in range(4)]
    ordered = findings(with_waits(run(tasks), "io-wait"))
    costs = [
        -1 if math.isnan(finding.potential_saving) else finding.potential_saving
        for finding in ordered
    ]
    assert len(ordered) == 2
    assert costs == sorted(costs, reverse=True)
