"""Each finding on recordings written by hand: just above and just below what its page says."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from dask_diag import Recording, findings
from dask_diag.analysis.cpu import cpu_outside_tasks
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings import rules
from dask_diag.analysis.findings.rule import (
    Diagnosis,
    Evidence,
    Gain,
    Rule,
    severity_of,
    top_functions,
)

from .stacks import LEAF, MAIN, with_stacks
from .tables import filled_table, with_columns, with_tables

pytestmark = pytest.mark.once

MB = 1e6
NAN = math.nan


class Task(NamedTuple):
    """By default it computes all the time, and its result is collected at once."""

    start: float
    stop: float
    cpu: float | None = None
    function: str = "work"
    worker: int = 0
    depends_on: tuple[int, ...] = ()
    collected: float | None = None
    outcome: str = "ok"
    error: str = ""


def run(tasks, stop=None, workers=2, cpus=2, scheduler="threads", **columns):
    """A recording of one computation, from 0 to when its last task has stopped."""
    took = np.array([task.stop - task.start for task in tasks])
    cpu = np.array([took[n] if task.cpu is None else task.cpu for n, task in enumerate(tasks)])
    ends = [task.stop if task.collected is None else task.collected for task in tasks]
    stop = max(ends) if stop is None else stop
    pairs = [(row, other) for row, task in enumerate(tasks) for other in task.depends_on]
    computation = {
        "computation": ["c"],
        "start": [0.0],
        "stop": [stop],
        "workers": [workers],
        "cpus": [cpus],
        "scheduler": [scheduler],
        "process_cpu": [float(np.nansum(cpu))],
        "scheduler_cpu": [0.0],
        "voluntary_switches": [0.0],
        "involuntary_switches": [0.0],
        **{name: [value] for name, value in columns.items()},
    }
    return Recording(
        start=0.0,
        stop=stop,
        epoch=0.0,
        computations=filled_table("computations", computation),
        tasks=filled_table(
            "tasks",
            {
                "key": [f"('{task.function}', {row})" for row, task in enumerate(tasks)],
                "function": [task.function for task in tasks],
                "start": [task.start for task in tasks],
                "stop": [task.stop for task in tasks],
                "thread_cpu": cpu,
                "thread_noncpu": took - cpu,
                "submitted": [task.start for task in tasks],
                "collected": ends,
                "worker": [f"thread-{task.worker}" for task in tasks],
                "computation": ["c"] * len(tasks),
                "outcome": [task.outcome for task in tasks],
                "error": [task.error for task in tasks],
            },
        ),
        dependencies=filled_table(
            "dependencies",
            {"task": [task for task, _ in pairs], "depends_on": [other for _, other in pairs]},
        ),
    )


def with_waits(recording, activity):
    """All time that tasks were off the CPU was spent so."""
    noncpu = recording.tasks["thread_noncpu"]
    every = np.arange(len(noncpu))
    on_cpu_wait = activity == "cpu-wait"
    waits = {
        "task": [*every, *every],
        "activity": ["cpu-wait"] * len(every) + [activity] * len(every),
        "seconds": [
            *(noncpu if on_cpu_wait else 0 * noncpu),
            *(0 * noncpu if on_cpu_wait else noncpu),
        ],
        "samples": [0] * len(every) + [100] * len(every),
    }
    rows = slice(0, len(every) if on_cpu_wait else None)
    return replace(recording, waits=filled_table("waits", waits).rows(rows))


def by_code(recording):
    return {finding.code: finding for finding in findings(recording)}


def numbers(finding, *names):
    """Numbers of the evidence, to compare with others."""
    return pytest.approx(tuple(finding.numbers[name].value for name in names), rel=0.02)


def two_at_once(seconds=1.0, cpu=1.0, later=0.0, **kwargs):
    """Two tasks, of which the second may start later."""
    second = Task(later, later + seconds, cpu, worker=1)
    return run([Task(0, seconds, cpu, worker=0), second], **kwargs)


def later_for(share):
    """How much later a task of a second starts if both run in that share of the time of any."""
    return (1 - share) / (1 + share)


@pytest.mark.parametrize(("share", "is_named"), [(0.049, False), (0.051, True)])
def test_a_function_is_named_for_a_twentieth_of_the_whole(share, is_named):
    recording = run([Task(0, 1, function="most"), Task(0, 1, function="few", worker=1)])
    names = top_functions(recording, np.array([1 - share, share]))
    assert names == ("most", "few")[: 1 + is_named]


def test_findings_name_three_functions():
    names = ["a", "b", "c", "d"]
    tasks = [Task(0, 1, n / 10, function=name, worker=n) for n, name in enumerate(names)]
    recording = run(tasks, workers=4)
    assert top_functions(recording, np.array([1.0, 0.9, 0.8, 0.7])) == ("a", "b", "c")
    evidence = by_code(with_waits(recording, "gil-wait"))["gil-bound"].evidence
    assert evidence.endswith("Mostly: a, b and c")
    steps = [
        Task(n, n + 1 - n / 10, function=name, depends_on=(n - 1,) if n else ())
        for n, name in enumerate(names)
    ]
    assert by_code(run(steps))["serial-chain"].evidence.endswith("Functions: a, b and c")


@pytest.mark.parametrize(("share", "severity"), [(0.09, "low"), (0.11, "medium"), (0.9, "medium")])
def test_a_guess_is_never_severe(share, severity):
    assert severity_of(share, is_certain=False) == severity


def test_no_time_is_worth_a_finding_below_a_tenth_of_a_second():
    assert by_code(with_waits(two_at_once(0.099, 0.0), "gil-wait")) == {}
    assert set(by_code(with_waits(two_at_once(0.101, 0.0), "gil-wait"))) == {"gil-bound"}


@pytest.mark.parametrize(
    ("waited", "severity"),
    [(0.14, None), (0.16, "medium"), (0.29, "medium"), (0.31, "high")],
)
def test_gil_bound_by_recorded_waits(waited, severity):
    finding = by_code(with_waits(two_at_once(cpu=1 - waited), "gil-wait")).get("gil-bound")
    assert (finding and finding.severity) == severity
    if finding:
        assert finding.seconds_lost == pytest.approx(waited)
        assert finding.numbers["share"] == (pytest.approx(waited), "share")
        assert "processes" in finding.advice


def tasks_that_hold_the_gil(size=None, count=40):
    """On two threads; results of that many bytes, if they were measured."""
    tasks = [Task(n // 2, n // 2 + 1, 0.5, worker=n % 2) for n in range(count)]
    recording = with_waits(run(tasks), "gil-wait")
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


def test_processes_are_advised_where_they_are_predicted_to_help():
    finding = by_code(tasks_that_hold_the_gil(size=1000))["gil-bound"]
    # Each of two processes has half of the work, less a batch, and both must start.
    assert finding.seconds_lost == pytest.approx(10)
    assert finding.kind == "about"
    assert "scheduler='processes', predicted to save 7" in finding.advice
    # What the graph holds is not known. A quarter of 20 s must remain of what is saved.
    saved = float(finding.advice.split("predicted to save ")[1].split(" ")[0])
    limit = float(finding.advice.split("gives its tasks less than ")[1].split(" MB of data")[0])
    assert limit == pytest.approx((saved - 5) * 250, rel=0.01)


@pytest.mark.parametrize(
    ("count", "size", "moved"), [(40, 100 * MB, "4.00 GB"), (4, 1000, "4.00 kB")]
)
def test_processes_are_not_advised_where_data_or_their_start_takes_longer(count, size, moved):
    advice = by_code(tasks_that_hold_the_gil(size, count))["gil-bound"].advice
    assert "scheduler='processes'" not in advice
    # Nothing is passed from task to task: these are the results that the caller gets.
    assert f"they need time to start and to move {moved} of results" in advice
    assert "worker processes do not help" in advice
    assert "longer" in advice
    assert "release" in advice


def test_processes_that_save_little_are_not_advised_and_advice_says_how_little():
    """Half of 20 s of turns is saved; starting takes 1.3 s, and 40 results of 40 MB 6.4 s of it."""
    advice = by_code(tasks_that_hold_the_gil(40 * MB))["gil-bound"].advice
    assert advice.startswith("use code that releases the GIL")
    less = float(advice.split("predicted to take only ")[1].removesuffix(" s less"))
    assert less == pytest.approx(10 - 1.3 - 40 * 40 * MB / 0.25e9, abs=1.0)
    assert "scheduler='processes'" not in advice


def test_on_a_cluster_more_processes_with_fewer_threads_may_release_the_gil():
    recording = with_waits(two_at_once(cpu=0.5, scheduler="distributed"), "gil-wait")
    assert by_code(recording)["gil-bound"].advice == (
        "use code that releases the GIL in these functions, as NumPy does on whole arrays; or run "
        "more worker processes with fewer threads each: Client(n_workers=..., threads_per_worker=1)"
    )


@pytest.mark.parametrize(("size", "is_advised"), [(1000.0, True), (100 * MB, False)])
def test_sizes_of_results_that_tasks_have_are_used(size, is_advised):
    recording = with_columns(tasks_that_hold_the_gil(), "tasks", nbytes=[size] * 40)
    advice = by_code(recording)["gil-bound"].advice
    assert ("scheduler='processes', predicted to save" in advice) == is_advised
    assert ("worker processes do not help" in advice) != is_advised


def test_sizes_of_few_results_are_not_enough():
    sized = with_columns(tasks_that_hold_the_gil(), "tasks", nbytes=[1000.0] * 30 + [NAN] * 10)
    assert "CacheProfiler" in by_code(sized)["gil-bound"].advice


def test_where_result_sizes_are_not_known_advice_says_how_much_may_pass():
    advice = by_code(tasks_that_hold_the_gil())["gil-bound"].advice
    assert "scheduler='processes' if tasks pass each other less than" in advice
    # Five seconds, a quarter, must be gained of those that processes save; results pass twice.
    saved = float(advice.split("save up to ")[1].split(" ")[0])
    limit = float(advice.split("less than ")[1].split(" ")[0])
    assert limit == pytest.approx((saved - 5) * 250 / 2, rel=0.02)
    assert "CacheProfiler" in advice
    short = by_code(tasks_that_hold_the_gil(count=4))["gil-bound"].advice
    assert "worker processes do not help" in short


def test_gil_bound_needs_threads_that_run_at_once():
    for share in (0.099, 0.101):
        recording = with_waits(two_at_once(cpu=0.5, later=later_for(share)), "gil-wait")
        assert ("gil-bound" in by_code(recording)) == (share > 0.1)
    elsewhere = two_at_once(cpu=0.5, scheduler="processes")
    assert "gil-bound" not in by_code(with_waits(elsewhere, "gil-wait"))


# Two tasks of a second: 4 switches a task and 250 a second are what turns with the GIL have at least.
@pytest.mark.parametrize(
    ("cpu", "switches", "cpus", "severity"),
    [
        (0.5, 258.5, 2, "medium"),
        (0.5, 257.5, 2, None),
        (0.5, 259, 1, None),
        (0.31, 1000, 2, "medium"),
        (0.29, 1000, 2, None),
        (0.62, 1000, 2, "medium"),
        (0.63, 1000, 2, None),
    ],
)
def test_gil_bound_is_guessed_of_turns_with_one_cpu(cpu, switches, cpus, severity):
    recording = two_at_once(cpu=cpu, cpus=cpus, voluntary_switches=switches)
    finding = by_code(recording).get("gil-bound")
    assert (finding and finding.severity) == severity
    if finding:
        assert "waits=True" in finding.advice
        assert finding.numbers["cpus"] == (pytest.approx(2 * cpu), "mean")


@pytest.mark.parametrize("waited", [0.39, 0.41])
def test_io_bound_by_recorded_waits(waited):
    findings_of_it = by_code(with_waits(two_at_once(cpu=1 - waited), "io-wait"))
    assert set(findings_of_it) == ({"io-bound"} if waited > 0.4 else set())
    for finding in findings_of_it.values():
        assert numbers(finding, "lost", "share") == (2 * waited, waited)
    assert "io-bound" not in by_code(with_waits(two_at_once(cpu=0.0), "sleep"))


@pytest.mark.parametrize("cpu", [0.14, 0.16])
def test_io_bound_is_guessed_of_tasks_that_hardly_compute(cpu):
    finding = by_code(two_at_once(cpu=cpu)).get("io-bound")
    assert (finding and finding.severity) == ("medium" if cpu < 0.15 else None)


def test_what_other_programs_took_is_not_said_to_be_io():
    recording = two_at_once(cpu=0.1)
    assert "io-bound" in by_code(recording)
    busy = with_columns(recording, "computations", others_cpu=[1.7])
    assert "io-bound" not in by_code(busy)


@pytest.mark.parametrize(
    ("tasks", "workers", "won"),
    [
        # Eight workers have space for six tasks at once.
        ([Task(n // 2, n // 2 + 1, 0.0, worker=n % 2) for n in range(6)], 2, 2.0),
        # Sixteen run twenty in two rounds.
        ([Task(n // 4, n // 4 + 1, 0.0, worker=n % 4) for n in range(20)], 4, 3.0),
        # A chain is not faster with more.
        ([Task(n, n + 1, 0.0, depends_on=(n - 1,) if n else ()) for n in range(4)], 2, NAN),
    ],
)
def test_more_workers_win_no_more_than_there_is(tasks, workers, won):
    finding = by_code(with_waits(run(tasks, workers=workers), "io-wait"))["io-bound"]
    assert finding.seconds_lost == pytest.approx(won, nan_ok=True)
    assert (f"num_workers={4 * workers}" in finding.advice) != math.isnan(won)


def test_more_workers_are_not_advised_where_cpus_are_busy():
    # The tasks wait half of their time; on one CPU, the other half takes as long as all did.
    tasks = [Task(n // 2, n // 2 + 1, 0.5, worker=n % 2) for n in range(8)]
    idle = by_code(with_waits(run(tasks, cpus=2), "io-wait"))["io-bound"]
    assert idle.seconds_lost == pytest.approx(2.0)
    assert idle.kind == "about"
    busy = by_code(with_waits(run(tasks, cpus=1), "io-wait"))["io-bound"]
    assert math.isnan(busy.seconds_lost)
    assert "more workers cannot help" in busy.advice


@pytest.mark.parametrize(("longest", "is_worth_it"), [(0.899, True), (0.901, False)])
def test_more_workers_are_advised_if_they_save_a_tenth(longest, is_worth_it):
    tasks = [Task(0, longest, 0.0), Task(longest, 1, 0.0)]
    finding = by_code(with_waits(run(tasks, workers=1), "io-wait"))["io-bound"]
    assert ("could save up to" in finding.advice) == is_worth_it
    assert ("more workers cannot help" in finding.advice) != is_worth_it


@pytest.mark.parametrize(
    ("scheduler", "workers", "advice"),
    [
        (
            "synchronous",
            1,
            "run several tasks at once, as CPUs are free: scheduler='threads', num_workers=4 could "
            "save up to 3.00 s; or {less}",
        ),
        (
            "threads",
            2,
            "run more tasks at once, as CPUs are free: num_workers=8 could save up to 3.00 s; "
            "or {less}",
        ),
        # More processes would have to start.
        (
            "processes",
            2,
            "run more tasks at once, as CPUs are free: scheduler='threads', num_workers=8 could "
            "save up to 3.00 s; or {less}",
        ),
        (
            "distributed",
            2,
            "run more tasks at once, as CPUs are free: 8 threads in all, Client(n_workers=..., "
            "threads_per_worker=...) could save up to 3.00 s; or {less}",
        ),
    ],
)
def test_more_tasks_at_once_are_advised_in_the_words_of_the_scheduler(scheduler, workers, advice):
    # Four rounds of a second; with four times the workers, one.
    tasks = [
        Task(n // workers, n // workers + 1, 0.0, worker=n % workers) for n in range(4 * workers)
    ]
    recording = with_waits(run(tasks, workers=workers, scheduler=scheduler), "io-wait")
    less = "move less data (fewer columns, compression, faster storage)"
    memory = "; each needs its memory, which was not recorded"
    assert by_code(recording)["io-bound"].advice == advice.format(less=less) + memory


def tasks_with_overhead(count, work, overhead):
    """One after the other; the result of each is collected so much later."""
    period = work + overhead
    return run(
        [Task(n * period, n * period + work, collected=(n + 1) * period) for n in range(count)],
        workers=1,
        cpus=1,
    )


@pytest.mark.parametrize(
    ("count", "work", "overhead", "severity"),
    [
        (100, 0.01, 0.0018, "medium"),
        (99, 0.01, 0.0018, None),
        (100, 0.01, 0.0017, None),
        (100, 0.01, 0.0044, "high"),
        (100, 0.01, 0.0042, "medium"),
        (100, 0.019, 0.0035, "medium"),
        (100, 0.021, 0.0050, None),
    ],
)
def test_tasks_too_small(count, work, overhead, severity):
    finding = by_code(tasks_with_overhead(count, work, overhead)).get("tasks-too-small")
    assert (finding and finding.severity) == severity
    if finding:
        # So many tasks together have the overhead of one.
        factor = int(re.search(r"about (\d+) times as large", finding.advice)[1])
        fewer = count - math.ceil(count / factor)
        assert finding.seconds_lost == pytest.approx(fewer * overhead, rel=0.02)
        assert finding.kind == "about"
        assert numbers(finding, "tasks", "work", "overhead") == (count, work, overhead)


@pytest.mark.parametrize(
    ("count", "factor", "is_limited"),
    [(100, 16, True), (120, 20, True), (1000, 140, False), (10_000, 140, False)],
)
def test_the_advised_size_leaves_chunks_for_each_worker(count, factor, is_limited):
    recording = tasks_with_overhead(count, 0.001, 0.003)
    two = with_columns(recording, "computations", workers=[2])
    advice = by_code(two)["tasks-too-small"].advice
    assert f"about {factor} times as large" in advice
    assert ("fewer than 3 for each of 2 workers" in advice) == is_limited
    assert count / factor >= 2 * 3


def test_larger_chunks_are_not_advised_where_few_tasks_are_independent():
    step = 1 / 256
    steps = [
        Task(
            n * step, (n + 0.25) * step, depends_on=(n - 1,) if n else (), collected=(n + 1) * step
        )
        for n in range(100)
    ]
    finding = by_code(run(steps, workers=1, cpus=1))["tasks-too-small"]
    assert "no remedy is known: no more than 1 task of a function at a time" in finding.advice
    assert finding.kind == "at most"
    assert finding.seconds_lost == pytest.approx(75 * step)


# The overhead is 30% of the time; if others had the CPU for 60% of what tasks needed, 15% are left.
@pytest.mark.parametrize(("others", "is_found"), [(0.0, True), (0.5, True), (0.8, False)])
def test_overhead_in_which_other_programs_had_the_cpu_does_not_count(others, is_found):
    recording = tasks_with_overhead(100, 0.007, 0.003)
    took = recording.tasks.stop - recording.tasks.start
    cpu = {"thread_cpu": took * (1 - others), "thread_noncpu": took * others}
    shared = with_columns(recording, "tasks", **cpu)
    shared = with_columns(shared, "computations", others_cpu=[others])
    assert ("tasks-too-small" in by_code(with_waits(shared, "cpu-wait"))) == is_found


def test_the_advised_size_leaves_a_twentieth_of_overhead():
    finding = by_code(tasks_with_overhead(200, 0.001, 0.003))["tasks-too-small"]
    # 3 ms are 5% of 60 ms, so 57 ms of work.
    assert "about 57 times as large" in finding.advice
    assert "57.0 ms or more" in finding.advice


def chain(steps, beside=0.0, period=0.25):
    tasks = [
        Task(n * period, (n + 1) * period, depends_on=(n - 1,) if n else ()) for n in range(steps)
    ]
    return [*tasks, Task(0, beside, function="other", worker=1)]


@pytest.mark.parametrize(
    ("tasks", "stop", "severity"),
    [
        (chain(4, 0.3), 1.0, "high"),
        # A serial chain of 59% of the wall time is not what bounds it.
        (chain(4, 0.3), 1.7, None),
        (chain(4, 0.3), 1.6, "medium"),
        # 1.3 times of what both workers have to do is 0.97.
        (chain(4, 0.53), 1.0, "medium"),
        (chain(4, 0.55), 1.0, None),
        # A single task is not a chain.
        ([Task(0, 1)], 1.0, None),
    ],
)
def test_serial_chain(tasks, stop, severity):
    finding = by_code(run(tasks, stop)).get("serial-chain")
    assert (finding and finding.severity) == severity
    if finding:
        work = 1.0 + tasks[-1].stop
        assert finding.seconds_lost == pytest.approx(1.0 - work / 2)
        assert finding.numbers["tasks"].value == 4


def test_a_chain_loses_no_more_than_the_cpus_could_do():
    assert "serial-chain" in by_code(run(chain(4, 0.3), cpus=2))
    assert "serial-chain" not in by_code(run(chain(4, 0.3), cpus=1))


@pytest.mark.parametrize(("longest", "is_chain"), [(0.49, True), (0.51, False)])
def test_a_chain_of_which_one_task_is_most_is_no_serial_chain(longest, is_chain):
    seconds_besides = (1 - longest) / 2
    first = Task(0, seconds_besides)
    second = Task(seconds_besides, seconds_besides + longest, depends_on=(0,))
    third = Task(seconds_besides + longest, 1, depends_on=(1,))
    assert ("serial-chain" in by_code(run([first, second, third]))) == is_chain


def straggling(seconds, others=3, usual=0.4):
    tasks = [Task(0, usual, worker=0) for _ in range(others)]
    return run([*tasks, Task(0, seconds, worker=1)], workers=1 + others)


@pytest.mark.parametrize(
    ("seconds", "others", "code"),
    [(1.25, 3, "straggler"), (1.15, 3, "imbalance"), (1.25, 2, "imbalance")],
)
def test_a_straggler_takes_three_times_the_median_of_three_others(seconds, others, code):
    recording = straggling(seconds, others)
    assert set(by_code(recording)) & {"straggler", "imbalance"} == {code}
    lost = (seconds - 0.4) * others / (others + 1)
    assert by_code(recording)[code].seconds_lost == pytest.approx(lost)
    assert by_code(recording)[code].severity == "high"


def in_batches(sizes):
    """Tasks of a second, sent to a process each in batches of these sizes."""
    tasks = [
        Task(n, n + 1, 0.1, worker=worker, collected=size)
        for worker, size in enumerate(sizes)
        for n in range(size)
    ]
    recording = run(tasks, scheduler="processes")
    return with_columns(recording, "tasks", submitted=[0.0] * len(tasks))


def test_single_tasks_are_advised_where_batches_are_uneven():
    uneven = by_code(in_batches([6, 2]))["imbalance"]
    assert uneven.advice.startswith("set chunksize=1, predicted to save 2.00 s")
    assert uneven.kind == "about"
    assert uneven.seconds_lost == pytest.approx(2)
    assert uneven.where.intervals == ((2.0, 6.0),)
    single = by_code(in_batches([2, 1]))["imbalance"]
    assert "chunksize=1 alone is not predicted to help" in single.advice
    assert single.kind == "at most"


def test_a_straggler_is_simulated_in_parts(monkeypatch):
    finding = by_code(straggling(1.25))["straggler"]
    assert finding.kind == "about"
    assert finding.where.workers == ("thread-1",)
    assert finding.advice.startswith("check that task's input")
    # What is not simulated was measured: the idle time of others.
    monkeypatch.setattr("dask_diag.analysis.facts.MOST_SIMULATED", 3)
    measured = by_code(straggling(1.25))["straggler"]
    assert measured.kind == "at most"
    assert measured.seconds_lost == pytest.approx(finding.seconds_lost)


def test_a_straggler_is_as_severe_as_what_its_remedy_is_predicted_to_gain(monkeypatch):
    assert by_code(straggling(1.25))["straggler"].severity == "high"
    gain = 0.05 * Analysis(straggling(1.25)).wall
    monkeypatch.setattr(Analysis, "seconds_saved", lambda analysis, **changes: gain)
    finding = by_code(straggling(1.25))["straggler"]
    assert (finding.severity, finding.seconds_lost) == ("low", pytest.approx(gain))
    assert finding.advice.startswith("no remedy is known")


@pytest.mark.parametrize(("seen", "others"), [(10, 10), (9, 10), (10, 9)])
def test_the_hottest_line_of_a_straggler_needs_ten_samples(seen, others):
    recording = straggling(1.25)
    rows = [((0.0, 1.25), "work", [MAIN, LEAF], 1.0, 1.0), ((0.0, 1.25), "work", [MAIN], 0.25, 0.0)]
    rows += [((0.0, 1.25), "work", [MAIN], 1.2, 1.0)]
    sampled = with_stacks(recording, rows, keys=["('work', 3)", "('work', 3)", ""])
    sampled = with_columns(sampled, "samples", count=[seen - 1, 1, others])
    finding = by_code(sampled)["straggler"]
    shares = {name: number.value for name, number in finding.numbers.items() if "line" in name}
    assert ("time in encode (json/encoder.py:7)" in finding.evidence) == (seen >= 10)
    assert shares == (
        {}
        if seen < 10
        else {"in_line": 0.8, "others_in_line": 0}
        if others >= 10
        else {"in_line": 0.8}
    )


def test_the_hottest_line_may_be_one_of_the_coolest_of_other_tasks():
    lines = [("step", "/code/steps.py", line, 1) for line in range(1, 13)]
    rows = [((0.0, 1.25), "work", [line], 1.0, 1.0) for line in [*lines, *lines[1:]]]
    rows.append(((0.0, 1.25), "work", [LEAF], 0.5, 0.5))
    rows[0] = ((0.0, 1.25), "work", [LEAF], 1.25, 1.25)
    sampled = with_stacks(straggling(1.25), rows, ["('work', 3)"] + [""] * (len(rows) - 1))
    numbers = by_code(sampled)["straggler"].numbers
    assert numbers["in_line"].value == pytest.approx(1)
    assert numbers["others_in_line"].value == pytest.approx(0.02, abs=0.005)


def test_the_hottest_line_is_of_the_time_in_which_the_straggler_ran():
    recording = straggling(1.25)
    rows = [((2.0, 3.0), "work", [MAIN], 1.0, 1.0)]
    sampled = with_stacks(recording, rows, ["('work', 3)"])
    assert "in_line" not in by_code(sampled)["straggler"].numbers


@pytest.mark.parametrize(
    ("idle", "severity"), [(0.29, None), (0.31, "medium"), (0.59, "medium"), (0.61, "high")]
)
def test_imbalance_is_idle_time_at_the_end(idle, severity):
    # Of one second two workers could have shared what one of them does alone at the end.
    tasks = [Task(0, 0.38), Task(0.38, 1.0), Task(0, 1 - idle, worker=1)]
    finding = by_code(run(tasks)).get("imbalance")
    assert (finding and finding.severity) == severity
    if finding:
        assert finding.seconds_lost == pytest.approx(idle / 2)


@pytest.mark.parametrize(("scheduler", "is_uneven"), [("threads", False), ("processes", True)])
def test_a_thread_that_waits_for_the_scheduler_is_no_imbalance(scheduler, is_uneven):
    """All tasks were ready at once, and thread 1 could have had any: the scheduler was slow.

    A process may have had them all in one batch.
    """
    tasks = [Task(0, 0.1, worker=1), *(Task(n / 10, (n + 1) / 10) for n in range(10))]
    recording = run(tasks, scheduler=scheduler)
    assert ("imbalance" in by_code(recording)) == is_uneven


@pytest.mark.parametrize(("ready", "is_uneven"), [(0.44, True), (0.46, False)])
def test_an_end_of_tasks_that_were_not_ready_before_is_no_imbalance(ready, is_uneven):
    # Worker 1 is free from 0.4 on; what worker 0 runs until 1.0 waited for a result, or did not.
    tasks = [
        Task(0, 0.4),
        Task(0, 0.4, worker=1),
        Task(0.4, 0.72 if is_uneven else 0.68),
        Task(0.72 if is_uneven else 0.68, 1.0, depends_on=(2,)),
    ]
    assert ("imbalance" in by_code(run(tasks))) == is_uneven


def moved(seconds, size=2e6, sent=None, tasks=3):
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
    return with_tables(recording, transfers=transfers)


@pytest.mark.parametrize(
    ("seconds", "severity"), [(0.14, None), (0.16, "medium"), (0.29, "medium"), (0.31, "high")]
)
def test_serialization_bound(seconds, severity):
    finding = by_code(moved(seconds)).get("serialization-bound")
    assert (finding and finding.severity) == severity
    if finding:
        assert finding.seconds_lost == pytest.approx(3 * seconds)
        expected = (3 * seconds, seconds, 3e6, 3 * seconds)
        assert numbers(finding, "moving", "share", "moved", "pickling") == expected


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


def test_threads_are_advised_where_they_are_predicted_to_help():
    """Without the pickling, two threads take half of the time, and even one would be quicker."""
    sure = by_code(moved_by_two(0.8, 0.2))["serialization-bound"]
    assert sure.seconds_lost == pytest.approx(3.2)
    assert sure.kind == "about"
    assert "scheduler='threads', predicted to save 3.20 s, or 2.40 s if these" in sure.advice
    # Two threads that hold the GIL take twice as long as two processes.
    perhaps = by_code(moved_by_two(0.2, 0.8))["serialization-bound"]
    assert "scheduler='threads' if these functions release the GIL" in perhaps.advice


def test_threads_are_not_advised_where_cpus_bound_them():
    advice = by_code(moved_by_two(0.2, 0.48, cpus=1))["serialization-bound"].advice
    assert "scheduler='threads' is not predicted to help" in advice


def test_the_first_small_task_of_a_process_imports_modules():
    assert by_code(moved(0.3, 0.99e6))["serialization-bound"].seconds_lost == pytest.approx(0.6)
    assert by_code(moved(0.3, 1.01e6))["serialization-bound"].seconds_lost == pytest.approx(0.9)


@pytest.mark.parametrize(("size", "is_moving"), [(0.99e6, False), (1.01e6, True)])
def test_time_between_processes_counts_for_large_data(size, is_moving):
    recording = moved(0.2, size, sent=0.19)
    assert ("serialization-bound" in by_code(recording)) == is_moving


@pytest.mark.parametrize(("size", "lost"), [(2e6, 1.2), (0.9e6, None)])
def test_what_all_data_takes_between_processes_is_lost_to_it(size, lost):
    """Also where no task had less data, from which it is seen what it takes without any."""
    recording = moved(0.2, size, sent=0.19, tasks=6)
    recording = with_columns(recording, "tasks", submitted=np.arange(6) - 0.01)
    finding = by_code(recording).get("serialization-bound")
    assert (finding is not None) == (lost is not None)
    if finding:
        assert finding.seconds_lost == pytest.approx(lost, rel=0.05)


def test_overhead_while_the_scheduler_pickles_is_the_time_of_that():
    recording = moved(0.2, sent=0.19)
    transfers = recording.transfers
    # A hundredth of a second for each task, after the worker became free.
    later = np.where(transfers.side.where("scheduler"), 0.1, 0.0)
    times = {"start": transfers.start + later, "stop": transfers.stop + later}
    activities = Analysis(with_columns(recording, "transfers", **times)).activities
    assert activities["serialize"] == pytest.approx(0.03)
    assert activities["overhead"] == pytest.approx(3 * 0.19 - 0.03)
    assert sum(activities.values()) == pytest.approx(3.0)


def overlapping(seconds, workers=2, cpus=2, cpu=1.0):
    """Two computations of a second, so many seconds of them at once."""
    second = 1 - seconds
    columns = {
        "computation": ["a", "b"],
        "start": [0.0, second],
        "stop": [1.0, second + 1],
        "workers": [workers, workers],
        "cpus": [cpus, cpus],
        "scheduler": ["threads"] * 2,
    }
    tasks = [Task(0, 1), Task(second, second + 1)]
    return replace(
        run(tasks),
        computations=filled_table("computations", columns),
        tasks=filled_table(
            "tasks",
            {
                "key": ["x", "y"],
                "function": ["x", "y"],
                "start": [0.0, second],
                "stop": [1.0, second + 1],
                "thread_cpu": [cpu, cpu],
                "thread_noncpu": [1 - cpu, 1 - cpu],
                "collected": [1.0, second + 1],
                "worker": ["thread-0"] * 2,
                "computation": ["a", "b"],
                "outcome": ["ok"] * 2,
            },
        ),
    )


@pytest.mark.parametrize(
    ("seconds", "severity"),
    [(0.17, None), (0.19, "low"), (0.32, "low"), (0.34, "medium"), (0.7, "medium"), (0.8, "high")],
)
def test_overlapping_computations(seconds, severity):
    finding = by_code(overlapping(seconds)).get("overlapping-computations")
    assert (finding and finding.severity) == severity
    if finding:
        expected = (2, seconds, 4, 2)
        assert numbers(finding, "computations", "lasted", "workers", "cpus") == expected


def test_computations_overlap_where_their_workers_outnumber_the_cpus():
    assert "overlapping-computations" not in by_code(overlapping(0.5, cpus=4))
    assert "overlapping-computations" in by_code(overlapping(0.5, cpus=3))


def test_computations_overlap_where_they_use_the_cpus():
    assert "overlapping-computations" in by_code(overlapping(0.5, cpu=0.51))
    assert "overlapping-computations" not in by_code(overlapping(0.5, cpu=0.49))


def test_tasks_that_failed_at_once_do_not_say_what_is_lost():
    failed = with_columns(overlapping(1.0, workers=1), "tasks", outcome=["failed"] * 2)
    assert math.isnan(by_code(failed)["failed-tasks"].seconds_lost)


LAPACK = ("solve", "/opt/env/lib/python3.11/site-packages/numpy/linalg/_linalg.py", 451, 400)


def with_threads(outside, waited=0.12, name="openblas", kind="native", threads=1, **kwargs):
    """Two tasks of a second at once that waited for CPUs, and CPU time of other threads.

    So much of the tasks' CPU time as `lapack` says is in calls of it; None is not sampled.
    """
    activity, lapack = kwargs.pop("activity", "cpu-wait"), kwargs.pop("lapack", 0.0)
    cpu = 1 - waited
    recording = two_at_once(cpu=cpu, process_cpu=2 * cpu + outside, **kwargs)
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


# 10% of all CPU time on other threads are 0.196 s beside 1.76 s.
@pytest.mark.parametrize(
    ("arguments", "severity"),
    [
        ({"outside": 0.2}, "medium"),
        ({"outside": 0.19}, None),
        ({"outside": 1.0, "cpus": 3}, "medium"),
        ({"outside": 1.0, "cpus": 4}, None),
        ({"outside": 1.0, "cpus": 4, "threads": 2}, "medium"),
        ({"outside": 1.0, "waited": 0.07}, None),
        ({"outside": 1.0, "waited": 0.08}, "low"),
        ({"outside": 1.0, "waited": 0.31}, "high"),
        ({"outside": 1.0, "waited": 0.31, "activity": "sleep"}, None),
        ({"outside": 1.0, "waited": 0.31, "activity": None}, "high"),
        # The library is not known.
        ({"outside": 1.0, "waited": 0.31, "name": ""}, "medium"),
        ({"outside": 0.33, "name": "", "activity": None}, "medium"),
        # Threads that no such variable limits.
        ({"outside": 1.0, "waited": 0.31, "name": "jemalloc"}, None),
        ({"outside": 1.0, "waited": 0.31, "kind": "python", "name": "zarr_io"}, None),
        ({"outside": 1.0, "waited": 0.31, "kind": "python", "name": ""}, None),
        ({"outside": 1.0, "waited": 0.31, "kind": "ended", "name": ""}, None),
        ({"outside": 1.0, "waited": 0.31, "kind": "dask_diag", "name": "dask_diag-x"}, None),
    ],
)
def test_thread_oversubscription(arguments, severity):
    finding = by_code(with_threads(**arguments)).get("thread-oversubscription")
    assert (finding and finding.severity) == severity
    if finding:
        # Of each task, no more than the pool used on its CPU.
        waited = min(arguments.get("waited", 0.12), arguments["outside"] / 2)
        assert finding.seconds_lost == pytest.approx(waited)
        assert "OPENBLAS_NUM_THREADS=1" in finding.advice
        assert ("find out which library" in finding.advice) == (arguments.get("name") == "")
        is_known = arguments.get("name") != "" and arguments.get("activity", "") is not None
        assert finding.kind == ("about" if is_known else "at most")


def test_thread_oversubscription_needs_cpu_time_of_the_pool():
    # Of tasks that hardly compute it is little, whatever its share.
    assert "thread-oversubscription" not in by_code(with_threads(0.049, waited=0.9))
    assert "thread-oversubscription" in by_code(with_threads(0.051, waited=0.9))


def test_tasks_that_spin_in_calls_of_lapack_had_their_cpu_because_of_the_pool():
    """Half of what their threads used: the pool's one did as much of the calls as both together."""
    finding = by_code(with_threads(0.5, waited=0.5, lapack=1.0))["thread-oversubscription"]
    assert finding.numbers["own"] == (pytest.approx(1), "seconds")
    assert finding.numbers["spinning"] == (pytest.approx(0.5), "seconds")
    # A quarter of a second for the pool's CPU, and as much for the tasks' own on two CPUs.
    assert (finding.kind, finding.seconds_lost) == ("about", pytest.approx(0.5))


@pytest.mark.parametrize(
    ("outside", "lapack", "spun"),
    # Their threads had no more of the calls than the pool's; or have less of them than a tenth.
    [(1.0, 1.0, None), (0.5, 0.5, None), (0.41, 0.5, None), (0.39, 0.5, 0.11)],
)
def test_what_the_pools_threads_had_of_a_call_its_own_thread_had_too(outside, lapack, spun):
    finding = by_code(with_threads(outside, waited=0.5, lapack=lapack))["thread-oversubscription"]
    spinning = finding.numbers.get("spinning")
    assert (spinning and spinning.value) == (spun and pytest.approx(spun))


def test_without_stacks_all_tasks_may_have_spun():
    finding = by_code(with_threads(0.5, waited=0.5, lapack=None))["thread-oversubscription"]
    assert "spinning" not in finding.numbers
    assert (finding.kind, finding.seconds_lost) == ("at most", pytest.approx(0.5))
    # No more than the pool's thread: they did not.
    finding = by_code(with_threads(1.0, waited=0.5, lapack=None))["thread-oversubscription"]
    assert finding.kind == "about"


@pytest.mark.parametrize("share", [0.2, 0.8])
def test_a_task_that_spins_alone_takes_no_cpu_from_others(share):
    arguments = {"waited": 0.5, "later": later_for(share)}
    spun = by_code(with_threads(0.2, lapack=1.0, **arguments))["thread-oversubscription"]
    only_waited = by_code(with_threads(0.2, lapack=0.0, **arguments))["thread-oversubscription"]
    # Of both tasks' seconds, those in which both ran; 0.8 s of CPU time on two CPUs.
    both = 2 * share / (1 + share)
    gained = spun.seconds_lost - only_waited.seconds_lost
    assert gained == pytest.approx(both * 0.8 / 2)


@pytest.mark.parametrize("threads", [1, 3])
def test_on_two_processors_a_call_has_one_thread_of_a_pool(threads):
    """Two libraries of a name may have a pool each: all of them are not in one call."""
    recording = with_threads(0.5, waited=0.5, lapack=1.0, threads=threads)
    numbers = by_code(recording)["thread-oversubscription"].numbers
    assert numbers["spinning"].value == pytest.approx(0.5)


def test_eight_tasks_wait_at_once_while_others_spin():
    """Of a second on two CPUs, eight tasks had a sixth each, and their pool as much as two."""
    tasks = [Task(0, 1, 0.2, worker=worker) for worker in range(8)]
    recording = run(tasks, workers=8, process_cpu=2.0)
    groups = {"computation": ["c"], "kind": ["native"], "name": ["openblas"], "threads": [1]}
    threads = {**groups, "cpu_seconds": [0.4]}
    recording = with_tables(with_waits(recording, "cpu-wait"), threads=threads)
    recording = with_stacks(recording, [((0.0, 1.0), "work", [MAIN, LAPACK], 8.0, 1.6)])
    finding = by_code(recording)["thread-oversubscription"]
    assert finding.numbers["own"].value == pytest.approx(1.6)
    assert finding.numbers["spinning"].value == pytest.approx(1.2)
    # The eight share 0.4 s of CPU time on two CPUs then.
    assert (finding.severity, finding.seconds_lost) == ("high", pytest.approx(0.8, abs=0.05))


def test_the_pools_took_no_more_than_they_used():
    # Two tasks waited 0.9 s each, the pool's threads used 0.18 s: other programs had the rest.
    finding = by_code(with_threads(0.18, waited=0.9))["thread-oversubscription"]
    assert finding.seconds_lost == pytest.approx(0.18 / 2)
    assert finding.severity == "low"


@pytest.mark.parametrize("others", [0.0, 0.5, 1.0])
def test_no_second_of_waiting_is_that_of_pools_and_of_other_programs(others):
    """Both used CPUs that two tasks waited for, half of their time."""
    recording = with_threads(0.5, waited=0.5)
    both = by_code(with_columns(recording, "computations", others_cpu=[others]))
    pools = both["thread-oversubscription"].seconds_lost
    programs = both["busy-machine"].seconds_lost if others else 0.0
    # The waits are of one second, each competitor's share that of the CPU that it used.
    assert pools == pytest.approx(min(0.5, 0.5 / (0.5 + others)) / 2, abs=0.03)
    # Tasks and pools need three quarters of a second on two CPUs.
    assert programs == pytest.approx(min(others / (0.5 + others) / 2, 0.25), abs=0.03)
    assert pools + programs <= 0.5 + 1e-6


def test_the_profilers_have_their_part_of_the_waits():
    recording = with_threads(0.5, waited=0.5)
    own = {"computation": "c", "kind": "dask_diag", "name": "x", "threads": 1, "cpu_seconds": 1.5}
    threads = recording.threads
    rows = {name: [*threads[name].tolist(), value] for name, value in own.items()}
    shared = with_tables(recording, threads=rows)
    alone = by_code(recording)["thread-oversubscription"].seconds_lost
    less = by_code(shared)["thread-oversubscription"].seconds_lost
    assert alone == pytest.approx(0.25)
    assert less == pytest.approx(0.125)


@pytest.mark.parametrize("share", [0.099, 0.101])
def test_thread_oversubscription_needs_tasks_that_run_at_once(share):
    recording = with_threads(1.0, waited=0.31, later=later_for(share))
    assert ("thread-oversubscription" in by_code(recording)) == (share > 0.1)


@pytest.mark.parametrize(
    ("waited", "used", "lost"),
    [
        # The CPUs compute 1.6 s: two of them take 0.8 s of the second.
        (0.5, 0.6, 0.2),
        (0.8, 0.4, 0.6),
        (0.07, 1.0, None),
    ],
)
def test_tasks_wait_for_a_librarys_threads_as_for_a_lock(waited, used, lost):
    recording = with_threads(used, waited, activity="lock-wait")
    finding = by_code(recording).get("thread-oversubscription")
    assert (finding and finding.seconds_lost) == (lost and pytest.approx(lost))
    if finding:
        assert finding.numbers["locked"].value == pytest.approx(2 * waited)


def test_thread_oversubscription_is_not_found_where_threads_are_not_known():
    unknown = replace(with_threads(1.0, waited=0.31), threads=filled_table("threads", {}))
    assert "thread-oversubscription" not in by_code(unknown)


def test_the_profilers_own_threads_are_no_cpu_of_the_program():
    """A task that waits for files is found also if profilers are busy beside it."""
    own = with_threads(0.3, 0.99, name="dask_diag-x", kind="dask_diag", activity="io-wait")
    other = with_threads(0.3, 0.99, name="x", kind="python", activity="io-wait")
    assert "io-bound" in by_code(own)
    assert cpu_outside_tasks(own) == pytest.approx(0.0)
    assert cpu_outside_tasks(other) == pytest.approx(0.3)


def growing(step, samples=10, at_first=100 * MB, held=None, steps=None):
    """Ten tasks; memory after each is larger by a step. It is read within tasks and between."""
    times = np.arange(samples) + 0.5
    sizes = at_first + np.cumsum(np.full(samples, step) if steps is None else steps)
    recording = run([Task(n + 0.2, n + 0.8) for n in range(10)], stop=10.0, workers=1)
    at_rest = np.arange(samples + 1.0)
    columns = {
        "time": [*times, *at_rest],
        "pid": [1] * (2 * samples + 1),
        "memory": [*sizes, at_first, *sizes],
    }
    resources = {"time": times, "memory": sizes, "memory_children": 0 * times, "delay": 0 * times}
    recording = with_tables(recording, resources=resources, processes=columns)
    return recording if held is None else holding(recording, held)


def holding(recording, bytes_held):
    """A CacheProfiler measured what the scheduler had from the first second to after the last."""
    columns = {
        "key": ["x"],
        "function": ["x"],
        "computation": ["other"],
        "metric": [bytes_held],
        "start": [0.9],
        "stop": [11.0],
    }
    recording = with_tables(recording, cached_results=columns)
    return replace(recording, metric="nbytes", metric_unit="bytes")


@pytest.mark.parametrize(
    ("recording", "severity"),
    [
        (growing(9.9 * MB, held=0), None),
        (growing(10.1 * MB, held=0), "medium"),
        (growing(99 * MB, held=0), "medium"),
        (growing(101 * MB, held=0), "high"),
        (growing(101 * MB), "low"),
        # A fifth of the memory at first.
        (growing(20 * MB, at_first=1010 * MB, held=0), None),
        (growing(20 * MB, at_first=990 * MB, held=0), "medium"),
        # What the scheduler holds is no growth.
        (growing(20 * MB, held=101 * MB), None),
        (growing(20 * MB, held=30 * MB), "medium"),
        # Seven readings between tasks, and eight.
        (growing(20 * MB, samples=6, held=0), None),
        (growing(20 * MB, samples=7, held=0), "medium"),
    ],
)
def test_memory_growth(recording, severity):
    finding = by_code(recording).get("memory-growth")
    assert (finding and finding.severity) == severity


def test_memory_that_does_not_grow_all_the_time_is_no_growth():
    steady = [40 * MB] * 10
    assert "memory-growth" in by_code(growing(0, steps=steady, held=0))
    # A tenth of the rise must be in each quarter of the samples.
    for step, is_steady in ((12 * MB, False), (14 * MB, True)):
        steps = [40 * MB] * 7 + [step] * 2 + [40 * MB]
        assert ("memory-growth" in by_code(growing(0, steps=steps, held=0))) == is_steady


def test_memory_grows_steadily_if_each_quarter_of_the_samples_has_more():
    # They start with the first, fourth, seventh and ninth; fifths with every second.
    quarters = [60 * MB if n in (3, 6, 8) else 0 for n in range(10)]
    assert "memory-growth" in by_code(growing(0, steps=quarters, held=0))
    thirds = [60 * MB if n in (4, 7) else 0 for n in range(10)]
    assert "memory-growth" not in by_code(growing(0, steps=thirds, held=0))


def test_minima_that_rise_by_chance_are_no_growth():
    """Tasks come and go: as many bytes are in use at most, the same usually, and some more least."""
    in_use = [221, 380, 337, 405, 406, 289, 402, 321, 421, 391]
    leaking = [221, 280, 337, 305, 356, 380, 340, 400, 391, 430]
    for sizes, is_found in ((in_use, False), (leaking, True)):
        steps = np.diff([74, *sizes]) * MB
        recording = growing(0, at_first=74 * MB, steps=steps, held=0)
        assert ("memory-growth" in by_code(recording)) == is_found


def read_at_rest(recording, first, last):
    """Between tasks, memory was read only from one of these times to the other."""
    time = recording.processes.time
    within_tasks = time % 1 > 0
    rows = within_tasks | ((first <= time) & (time <= last))
    return replace(recording, processes=recording.processes.rows(rows))


@pytest.mark.parametrize(
    # The second quarter of the samples starts at 3.5, the last one at 8.5.
    ("first", "last", "is_found"),
    [(0, 10, True), (3, 9, True), (4, 9, False), (3, 8, False)],
)
def test_memory_growth_needs_readings_at_rest_at_both_ends(first, last, is_found):
    recording = read_at_rest(growing(40 * MB, held=0), first, last)
    finding = by_code(recording).get("memory-growth")
    assert bool(finding) == is_found
    if finding:
        assert finding.numbers["lasted"] == (last - first, "seconds")


def test_imports_before_the_first_computation_are_no_growth():
    recording = growing(9 * MB, held=0)
    before = {"time": [-3.0], "pid": [1], "memory": [10 * MB]}
    columns = {name: recording.processes[name] for name in before}
    columns = {name: [*before[name], *values] for name, values in columns.items()}
    with_imports = replace(recording, start=-3.0, processes=filled_table("processes", columns))
    assert "memory-growth" not in by_code(with_imports)
    assert "memory-growth" in by_code(growing(11 * MB, held=0))


def test_memory_that_is_given_back_is_no_growth():
    recording = growing(40 * MB, held=0)
    for kept, is_found in ((250 * MB, False), (270 * MB, True)):
        memory = [*recording.processes.memory.tolist()[:-1], kept]
        given_back = with_columns(recording, "processes", memory=memory)
        assert ("memory-growth" in by_code(given_back)) == is_found


@pytest.mark.parametrize(
    ("delays", "severity"),
    [
        ([0.24] * 10, None),
        ([0.26] + [0.0] * 9, "low"),
        ([0.26] * 2 + [0.0] * 8, "medium"),
        ([0.26] * 6 + [0.0] * 4, "high"),
    ],
)
def test_late_samples(delays, severity):
    columns = {"time": np.arange(10) + 0.5, "delay": delays}
    recording = replace(two_at_once(10.0, 10.0), resources=filled_table("resources", columns))
    finding = by_code(recording).get("late-samples")
    assert (finding and finding.severity) == severity
    if finding:
        assert finding.numbers["longest"] == (0.26, "seconds")


@pytest.mark.parametrize(("due", "stop", "is_found"), [(0.8, 1.1, True), (1.1, 1.4, False)])
def test_a_sample_is_late_for_tasks_that_ran_meanwhile(due, stop, is_found):
    columns = {"time": [0.5, stop], "delay": [0.0, stop - due]}
    recording = replace(two_at_once(), resources=filled_table("resources", columns))
    assert ("late-samples" in by_code(recording)) == is_found


@pytest.mark.parametrize(
    ("wall", "lost", "is_noticed"),
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


def test_failed_tasks_come_first_however_short():
    tasks = [Task(0, 1, 0.0), Task(0, 0.01, worker=1, outcome="failed", error="KeyError")]
    first, *others = findings(with_waits(run(tasks), "io-wait"))
    assert (first.code, first.severity) == ("failed-tasks", "high")
    # Of a second that was lost with the result, not 5 ms.
    assert math.isnan(first.seconds_lost)
    assert "KeyError" in first.evidence
    assert others
    unknown = [Task(0, 1), Task(0, NAN, worker=1, outcome="failed", collected=1.0)]
    assert math.isnan(findings(run(unknown))[0].seconds_lost)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, "KeyError"),
        ({"error_message": "'x'"}, "KeyError: 'x'"),
        ({"error_location": "/code/load.py:7 in load"}, "KeyError, at /code/load.py:7 in load"),
    ],
)
def test_the_first_failure_has_its_message_and_location(columns, said):
    failed = [Task(n, n + 1, worker=1, outcome="failed", error="KeyError") for n in range(2)]
    recording = run([Task(0, 1), *failed])
    texts = {name: ["", text, "of the second"] for name, text in columns.items()}
    finding = by_code(with_columns(recording, "tasks", **texts))["failed-tasks"]
    failures = f"2 tasks failed after 2.00 s. First: ('work', 1) of work with {said}"
    assert finding.evidence == failures
    assert numbers(finding, "failed", "lasted") == (2, 2)
    assert math.isnan(finding.seconds_lost)


def test_findings_of_one_severity_are_in_the_order_of_what_they_cost():
    tasks = [Task(n, n + 1, 0.5, depends_on=(n - 1,) if n else ()) for n in range(4)]
    ordered = findings(with_waits(run(tasks), "io-wait"))
    costs = [
        -1 if math.isnan(finding.seconds_lost) else finding.seconds_lost for finding in ordered
    ]
    assert len(ordered) == 2
    assert costs == sorted(costs, reverse=True)
