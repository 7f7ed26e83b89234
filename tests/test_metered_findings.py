"""A meter says what time was for. It does not change what is found to be slow, or why."""

import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import replace

import dask
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dask_diag import Profiler, activities, context_meter, findings, summary
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.headline import headline
from dask_diag.model.codes import ACTIVITIES, WAITS

from .diagnosis.programs_waits import server
from .diagnosis.work import ask, compute, rate_limited
from .recordings import Task, filled_table, run, with_tables, with_waits

LABELS = ["jet_selection", "I/O", *sorted({*ACTIVITIES} - {"gc"})]
"""Also names of activities: a user knows none of them. Only the collector meters ``gc``."""


def said(recording):
    """All that a reader is told of what is slow: findings and the headline."""
    # As mappings: a saving that is unknown is NaN, which is unequal to itself.
    found = [finding.to_dict() for finding in findings(recording)]
    return found, headline(Analysis(recording))


@settings(max_examples=40)
@example(None, 0.1, "processes", [(n, "serialize", 0.9, 0.0) for n in range(8)], True)
@example("gil-wait", 0.1, "threads", [(n, "gil-wait", 0.9, 0.0) for n in range(8)], True)
@given(
    waited=st.sampled_from([None, *WAITS]),
    cpu=st.floats(0, 1),
    scheduler=st.sampled_from(["threads", "processes", "synchronous"]),
    metered=st.lists(
        st.tuples(st.integers(0, 7), st.sampled_from(LABELS), st.floats(0, 1), st.floats(0, 1)),
        min_size=1,
        max_size=8,
    ),
    has_cpu=st.booleans(),
)
def test_metered_recordings_have_the_findings_of_those_that_are_not(
    waited, cpu, scheduler, metered, has_cpu
):
    tasks = [Task(n // 2, n // 2 + 1, cpu, worker=n % 2) for n in range(8)]
    plain = run(tasks, workers=2, scheduler=scheduler)
    if waited:
        plain = with_waits(plain, waited)
    metrics = {
        "task": [task for task, *_ in metered],
        "activity": [label for _, label, *_ in metered],
        "unit": ["seconds"] * len(metered),
        "value": [seconds for *_, seconds, _ in metered],
        "cpu": [seconds * share if has_cpu else np.nan for *_, seconds, share in metered],
    }
    assert said(with_tables(plain, metrics=metrics)) == said(plain)


def test_what_is_metered_stays_an_activity_of_its_own():
    recording = with_waits(run([Task(0, 1, 0.25), Task(0, 1, 0.25, worker=1)]), "gil-wait")
    metrics = {"task": [0], "activity": ["select"], "unit": ["seconds"], "value": [0.8]}
    waits = {name: recording.waits[name] for name in recording.waits.columns}
    # The first task waited in metered code only.
    labels = np.where((waits["task"] == 0) & (waits["samples"] > 0), "select", "")
    metered = replace(
        recording,
        metrics=filled_table("metrics", {**metrics, "cpu": [0.05]}),
        waits=filled_table("waits", {**waits, "label": labels.tolist()}),
    )
    seconds = {row["activity"]: row["value"] for row in activities(metered).to_dicts()}
    assert seconds["select"] == pytest.approx(0.8)
    assert seconds["gil-wait"] == pytest.approx(0.75)
    assert seconds["thread-cpu"] == pytest.approx(0.45)
    assert sum(seconds.values()) == pytest.approx(2.0)
    # Of 0.8 s one sixteenth was on a CPU.
    text = " ".join(f"{summary(metered)}".split())
    assert "Metered select 800 ms (6% on a CPU) Profiling" in text


def loop(n):
    total = 0
    for i in range(n):
        total += i * i
    return total


LOCK = threading.Lock()


def locked():
    with LOCK:
        time.sleep(0.03)


def wait_for_a_program():
    code = "import time; time.sleep(0.2)"
    subprocess.run([sys.executable, "-S", "-c", code], check=True)


def wait_for_a_thread():
    waited_for = threading.Timer(0.05, int)
    waited_for.start()
    waited_for.join()


PORT = "port"
"""Stands for the port of a server."""
PROGRAMS = {
    "holds the GIL": ({"gil-bound"}, "threads", 4, [(loop, 400_000)] * 16),
    "sleeps": ({"too-few-threads"}, "threads", 2, [(time.sleep, 0.05)] * 16),
    "locks": ({"lock-bound"}, "threads", 4, [(locked,)] * 16),
    "starts programs": (set(), "threads", 2, [(wait_for_a_program,)] * 6),
    "has one long task": (
        {"straggler"},
        "threads",
        2,
        [(time.sleep, 0.8), *[(time.sleep, 0.02)] * 10],
    ),
    "asks a server": ({"io-bound"}, "threads", 2, [(ask, PORT)] * 12),
    "waits for threads": (set(), "threads", 2, [(wait_for_a_thread,)] * 12),
    "asks a limited server": ({"io-bound"}, "threads", 2, [(rate_limited, PORT, 0.05)] * 12),
    "waits for CPUs": (set(), "threads", 4, [(compute, 0.05)] * 16),
    # Loops hold the GIL: nothing is known that saves the start of processes.
    "starts processes": (set(), "processes", 2, [(loop, 200_000)] * 12),
}
"""What is found, the scheduler, its workers, and calls; other findings depend on the machine."""


@pytest.fixture(scope="module")
def port():
    with server() as number:
        yield number


def run_one(metered, function, *args):
    with context_meter.meter("selection") if metered else nullcontext():
        return function(*args)


def codes_of(program, metered, port):
    _, scheduler, workers, calls = PROGRAMS[program]
    calls = [[port if part is PORT else part for part in call] for call in calls]
    tasks = [dask.delayed(run_one, pure=False)(metered, *call) for call in calls]
    with Profiler(waits=True) as prof:
        dask.compute(*tasks, scheduler=scheduler, num_workers=workers)
    # Other programs come and go between two runs.
    return {finding.code for finding in findings(prof.recording)} - {"busy-machine"}


@pytest.mark.truth
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_metered_program_has_the_same_findings(program, port, retried):
    def measure():
        codes = codes_of(program, True, port)
        assert codes == codes_of(program, False, port)
        assert codes >= PROGRAMS[program][0]

    retried(measure)
