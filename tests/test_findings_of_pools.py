"""What the finding on native thread pools says and predicts, on recordings made by hand."""

from __future__ import annotations

import pytest

from .tables import with_columns, with_tables
from .test_finding_thresholds import by_code, two_at_once, with_threads, with_waits

pytestmark = pytest.mark.once

CODE = "thread-oversubscription"


def the(recording):
    return by_code(recording)[CODE]


def beside_others(recording, cpu):
    """The same, while other programs used so many CPU seconds."""
    return with_columns(recording, "computations", others_cpu=[cpu])


def with_mixed_waits(recording, *seconds):
    """Each task waited so long for a CPU, and so long for a lock."""
    rows = [
        (task, activity, waited, samples)
        for task, pair in enumerate(seconds)
        for activity, waited, samples in zip(("cpu-wait", "lock-wait"), pair, (0, 100), strict=True)
    ]
    columns = dict(zip(("task", "activity", "seconds", "samples"), zip(*rows, strict=True)))
    return with_tables(recording, waits=columns)


def with_pools(*pools):
    """Two tasks that waited half of their time, and pools of these names and sizes."""
    recording = with_waits(two_at_once(cpu=0.5, process_cpu=2.0), "cpu-wait")
    columns = {
        "computation": ["c"] * len(pools),
        "kind": ["native"] * len(pools),
        "name": [name for name, _ in pools],
        "threads": [threads for _, threads in pools],
        "cpu_seconds": [0.5] * len(pools),
    }
    return with_tables(recording, threads=columns)


CALLED = (
    "2 concurrent tasks called {} (up to 2 threads) on 2 CPUs. Its threads used 500 ms of CPU "
    "time, the tasks' own threads 1.00 s; tasks "
)


@pytest.mark.parametrize(
    ("arguments", "others", "said"),
    [
        ({}, 0.0, "waited 1.00 s for a CPU"),
        # Each has its part of the waits by the CPU that it used: 9 of 100 are not worth a word.
        ({}, 0.049, "waited 1.00 s for a CPU"),
        ({}, 0.5, "waited 1.00 s for a CPU, 500 ms of it while other programs had the CPUs"),
        (
            {"activity": None},
            0.5,
            "were off-CPU for 1.00 s (Profiler(waits=True) shows why), 500 ms of it while other "
            "programs had the CPUs",
        ),
        ({"activity": "lock-wait"}, 0.0, "waited 1.00 s for these threads or for locks"),
        ({"activity": "lock-wait"}, 0.5, "waited 1.00 s for these threads or for locks"),
        ({"name": ""}, 0.0, "waited 1.00 s for a CPU"),
    ],
)
def test_evidence_says_what_tasks_waited_for(arguments, others, said):
    recording = beside_others(with_threads(0.5, waited=0.5, **arguments), others)
    library = arguments.get("name", "openblas") or "a native library whose name is not known"
    assert the(recording).evidence == CALLED.format(library) + said


def test_waits_for_a_cpu_and_for_the_pools_threads_are_added_up():
    recording = with_mixed_waits(with_threads(0.24, waited=0.4), (0.3, 0.1), (0.3, 0.1))
    finding = the(recording)
    assert finding.evidence.endswith(
        "tasks waited 600 ms for a CPU; 200 ms for these threads or for locks"
    )
    # The pool had no more of the waits for a CPU than it used, 0.12 s of each task; and 0.1 s more.
    assert finding.seconds_lost == pytest.approx(0.22)
    # 0.44 s of 2 s.
    assert finding.severity == "medium"
    assert finding.kind == "about"


def test_a_task_that_waits_for_a_cpu_beside_one_that_waits_for_the_pool():
    """Without the pool both are shorter; without either wait alone, one of them is as long."""
    recording = with_mixed_waits(with_threads(0.24, waited=0.4), (0.4, 0.0), (0.0, 0.4))
    # The pool had the CPU in 0.24 s of the first one's waits.
    finding = the(recording)
    assert finding.seconds_lost == pytest.approx(0.24)
    assert finding.where.workers == ("thread-0", "thread-1")


@pytest.mark.parametrize(("locked", "severity"), [(0.29, "medium"), (0.31, "high")])
def test_waits_for_the_pools_threads_are_severe(locked, severity):
    finding = the(with_threads(0.5, waited=locked, activity="lock-wait"))
    assert finding.severity == severity
    assert finding.where.intervals == ((0.0, 1.0),)
    assert finding.where.workers == ("thread-0", "thread-1")
    assert finding.where.functions == ("work",)


def test_without_a_simulation_the_pools_part_of_the_waits_is_at_most_lost(monkeypatch):
    monkeypatch.setattr("dask_diag.analysis.facts.MOST_SIMULATED", 1)
    finding = the(with_mixed_waits(with_threads(0.3, waited=0.5), (0.4, 0.1), (0.4, 0.1)))
    # The pool used 0.3 s; two tasks waited for it at once.
    assert (finding.kind, finding.seconds_lost) == ("at most", pytest.approx(0.15))


@pytest.mark.parametrize(
    ("pools", "called", "advice"),
    [
        (
            [("openblas", 1), ("openmp", 3)],
            "openblas and openmp (up to 4 threads)",
            "set OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1 before Python starts, or compute "
            "inside threadpoolctl.threadpool_limits(1)",
        ),
        (
            [("openmp", 3), ("arrow", 2)],
            "arrow and openmp (up to 4 threads)",
            "set OMP_NUM_THREADS=1 before Python starts, or call pyarrow.set_cpu_count(1)",
        ),
        ([("openmp", 1)], "openmp (up to 2 threads)", "set OMP_NUM_THREADS=1 before Python"),
        (
            [("", 1)],
            "a native library whose name is not known (up to 2 threads)",
            "find out which library it is; try OPENBLAS_NUM_THREADS=1 or OMP_NUM_THREADS=1 or "
            "MKL_NUM_THREADS=1 before Python starts",
        ),
        ([("mkl", 1), ("", 3)], "mkl (up to 4 threads)", "set MKL_NUM_THREADS=1 before Python"),
    ],
)
def test_each_library_is_named_and_each_variable_once(pools, called, advice):
    finding = the(with_pools(*pools))
    assert f"called {called} on 2 CPUs" in finding.evidence
    assert finding.advice.startswith(advice)
