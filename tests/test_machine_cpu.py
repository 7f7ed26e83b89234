"""CPU of other programs: neither of this process nor of what it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace

import dask.threaded
import numpy as np
import psutil
import pytest

from dask_diag import Profiler, ResourceProfiler, combine, findings, simulate
from dask_diag.formatting import percent
from dask_diag.system import periodic, usage
from dask_diag.system.usage import MachineCpu, UsageSoFar, used_since

from .recordings import Task, by_code, filled_table, run, two_at_once, with_columns, with_waits

SPIN = "import time\nwhile time.process_time() < {seconds}: pass"
# It ends itself: what has no parent any more is waited for by no one.
ORPHAN = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
sys.stdout.write(str(os.getpid()))
sys.stdout.close()
os.close(1)
end = time.time() + {seconds}
while time.time() < end: pass
"""


def spin(seconds):
    start = time.thread_time()
    while time.thread_time() - start < seconds:
        pass


class Machine:
    """Two CPUs, of which this process used so much."""

    def __init__(self, monkeypatch):
        self.now = self.idle = self.own = self.children = 0.0
        self.reads = 0
        monkeypatch.setattr(usage, "perf_counter", lambda: self.now)
        monkeypatch.setattr(periodic, "thread_time", lambda: self.reads * 0.001)
        monkeypatch.setattr(usage, "idle_seconds", self.read)
        monkeypatch.setattr(usage, "process_time", lambda: self.own)
        monkeypatch.setattr(usage, "children_seconds", lambda: self.children)

    def read(self):
        self.reads += 1
        return 2, self.idle

    def passes(self, seconds, own=0.0, others=0.0, children=0.0):
        self.now += seconds
        self.own += own
        self.children += children
        self.idle += 2 * seconds - own - children - others


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch)


@pytest.mark.parametrize(
    ("seconds", "used", "expected"),
    [
        (10.0, {"own": 4.0, "others": 7.0, "children": 2.0}, (0.2, 0.7)),
        # Counters that lag are no negative CPU; a second reading that is too soon says nothing.
        (1.0, {"own": 1.0, "others": -0.02}, (0.0, 0.0)),
        (0.04, {"others": 0.04}, (np.nan, np.nan)),
    ],
)
def test_others_have_what_is_neither_idle_nor_own(seconds, used, expected, machine):
    reader = MachineCpu()
    machine.passes(100.0)
    before = reader.read()
    machine.passes(seconds, **used)
    assert used_since(before, reader.read()) == pytest.approx(expected, nan_ok=True)
    # Reading takes a hundredth of the time.
    first = machine.reads
    for _ in range(1000):
        machine.passes(0.01)
        reader.read()
    assert 50 < machine.reads - first <= 102


def test_others_used_no_more_than_there_was_in_a_short_computation(machine, monkeypatch):
    """What was read a moment before it is no part of it."""
    monkeypatch.setattr(usage, "_machine", MachineCpu())
    monkeypatch.setattr(usage, "perf_counter", lambda: machine.now)
    machine.passes(1.0)
    usage.machine_cpu()
    machine.passes(0.09, others=0.18)
    before = UsageSoFar.now()
    machine.passes(0.11, others=0.22)
    assert before.until_now().cpu_other_processes == pytest.approx(0.22)


def test_what_cannot_be_read_is_not_known(machine, monkeypatch):
    def refuse():
        raise PermissionError("/proc/stat")

    monkeypatch.setattr(usage, "idle_seconds", refuse)
    machine.passes(1.0)
    reader = MachineCpu()
    before = reader.read()
    assert np.isnan(before.others)
    machine.passes(1.0)
    assert np.isnan(used_since(before, reader.read())).all()


def test_only_cpus_that_the_process_may_use_count(monkeypatch):
    times = psutil.cpu_times(percpu=True)[0]
    idle = times.idle + getattr(times, "iowait", 0.0)
    monkeypatch.setattr(usage.os, "sched_getaffinity", lambda pid: {0}, raising=False)
    assert usage.idle_seconds() == (1, pytest.approx(idle, abs=1.0))


def test_a_child_that_computes_is_no_other_program(retried):
    def measure():
        before = usage.children_seconds()
        child = subprocess.Popen([sys.executable, "-c", SPIN.format(seconds=0.4) + "\ninput()"],
                                 stdin=subprocess.PIPE)  # fmt: skip
        deadline = time.monotonic() + 60
        while usage.children_seconds() - before < 0.4 and time.monotonic() < deadline:
            time.sleep(0.01)
        running = usage.children_seconds() - before
        child.communicate(b"\n")
        ended = usage.children_seconds() - before
        assert 0.4 <= running
        # What it had counted is counted once, also after it was waited for.
        assert running <= ended + 0.03 < running + 0.3

    retried(measure)


@pytest.fixture
def busy_program():
    """Programs that spin on every CPU and are no descendants of this one."""
    pids = []
    try:
        for _ in range(len(os.sched_getaffinity(0))):
            done = subprocess.run(
                [sys.executable, "-c", ORPHAN.format(seconds=90)],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                check=True,
                timeout=60,
            )
            pids.append(int(done.stdout))
        yield pids
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="has processes without a parent")
def test_a_busy_machine(busy_program, retried):
    """Each of two workers has about half of a CPU."""
    cpus = len(os.sched_getaffinity(0))
    dsk = {("spin", n): (spin_without_the_lock, 0.1) for n in range(8 * cpus)}

    def measure():
        with Profiler(waits=True) as prof, ResourceProfiler(dt=0.2) as rprof:
            dask.threaded.get(dsk, list(dsk), num_workers=cpus)
        recording = combine([prof.recording, rprof.recording])
        wall = float((recording.computations.stop - recording.computations.start).sum())
        others = float(recording.computations.cpu_other_processes.sum())
        assert 0.25 * cpus * wall < others < 1.02 * cpus * wall
        finding = {f.code: f for f in findings(recording)}["busy-machine"]
        assert finding.potential_saving > 0.1 * wall
        assert "while other processes used" in finding.evidence
        sampled = recording.resources.cpu_other_processes
        assert np.nanmean(sampled) == pytest.approx(100 * others / wall, rel=0.3)

    retried(measure)


def spin_without_the_lock(seconds):
    import hashlib

    data = bytes(1_000_000)
    start = time.thread_time()
    while time.thread_time() - start < seconds:
        hashlib.sha256(data).digest()


def test_a_computation_that_is_short_has_nothing_known_of_others(monkeypatch):
    # Short beside this, also on a busy machine.
    monkeypatch.setattr(usage, "_SHORTEST", 60.0)
    usage.machine_cpu()
    with Profiler() as prof:
        dask.threaded.get({("x", 0): (int, 1)}, [("x", 0)])
    assert np.isnan(prof.recording.computations.cpu_other_processes).all()


def test_other_programs_are_found_only_where_tasks_waited_for_most_of_the_cpus():
    recording = busy(1.0, 0.4)
    unknown = replace(recording, tasks=recording.tasks.filter(slice(0)))
    # A computation that hardly had tasks.
    computations = recording.computations
    later = {
        "stop": computations.stop + 100,
        "cpu_other_processes": computations.cpu_other_processes + 100,
    }
    longer = with_columns(recording, "computations", **later)
    few = busy(1.0, 0.4, cpus=11)
    found = ["busy-machine" in by_code(one) for one in (recording, unknown, longer, few)]
    assert found == [True, False, False, False]
    assert "busy-machine" in by_code(busy(1.0, 0.4, cpus=9))


def busy(others, waited, activity="cpu-wait", cpu_process=None, **kwargs):
    """Two tasks of a second at once on two CPUs, that waited so long."""
    cpu = 1 - waited
    cpu_process = 2 * cpu if cpu_process is None else cpu_process
    recording = two_at_once(cpu=cpu, cpu_process=cpu_process, cpu_other_processes=others, **kwargs)
    return with_waits(recording, activity) if activity else recording


@pytest.mark.parametrize(
    ("arguments", "severity", "lost"),
    [
        ((0.21, 0.12), "medium", 0.105),
        ((0.19, 0.12), None, 0),
        ((1.0, 0.12), "medium", 0.12),
        ((1.0, 0.07), None, 0),
        ((1.0, 0.08), "low", 0.08),
        ((1.0, 0.4), "high", 0.4),
        # No more than others used can have been taken by them.
        ((0.4, 0.4), "medium", 0.2),
        # What tasks waited for was no CPU.
        ((1.0, 0.4, "io-wait"), None, 0),
        # Without waits: at least 1.7 s of CPU were used.
        ((1.0, 0.4, None), "medium", 0.4),
        ((0.51, 0.4, None), "medium", 0.255),
        ((0.49, 0.4, None), None, 0),
        ((float("nan"), 0.4), None, 0),
    ],
)
def test_busy_machine(arguments, severity, lost):
    finding = by_code(busy(*arguments)).get("busy-machine")
    assert (finding and finding.severity) == severity
    if finding:
        assert finding.potential_saving == pytest.approx(lost)
        assert "measure again when the machine is idle" in finding.advice


def spin_in_another_program(seconds):
    subprocess.run([sys.executable, "-S", "-c", SPIN.format(seconds=seconds)], check=True)


def test_cpu_of_programs_that_tasks_start(retried):
    """They used all of it within the computation, and what starts them little."""
    dsk = {("start", n): (spin_in_another_program, 0.15) for n in range(2)}

    def measure():
        # What children used before is not counted.
        spin_in_another_program(0.2)
        with Profiler() as prof:
            dask.threaded.get(dsk, list(dsk), num_workers=2)
        computations = prof.recording.computations
        assert 0.29 <= computations.cpu_children.item() <= 0.5
        assert computations.cpu_process.item() < 0.2

    retried(measure)


def of_children(cpu, others=0.0, workers=2, **kwargs):
    """Each of two workers ran four tasks of a second, which waited for programs that computed."""
    tasks = [Task(n // 2, n // 2 + 1, 0.0, worker=n % 2) for n in range(8)]
    columns = {"cpu_children": cpu, "cpu_other_processes": others, "workers": workers, **kwargs}
    return with_waits(run(tasks, **columns), "io-wait")


@pytest.mark.parametrize(
    ("cpu", "others", "is_found"),
    [
        (float("nan"), float("nan"), True),
        (0.0, 0.0, True),
        (4.7, 0.0, True),
        (4.9, 0.0, False),
        (8.0, 0.0, False),
        # Beside others, that have half of the CPUs, they take twice as long.
        (2.3, 4.0, True),
        (2.5, 4.0, False),
    ],
)
def test_waiting_for_programs_that_compute_is_no_io(cpu, others, is_found):
    assert ("io-bound" in by_code(of_children(cpu, others))) == is_found


def test_without_waits_children_that_compute_are_no_io():
    recording = replace(of_children(8.0), waits=filled_table("waits", {}))
    assert "io-bound" not in by_code(recording)
    assert "io-bound" in by_code(replace(of_children(0.0), waits=filled_table("waits", {})))


@pytest.mark.parametrize(
    ("cpu", "cpus", "lost", "waited"),
    [
        # Of the CPUs, three quarters are used: a fourth of the time can be gained.
        (6.0, 2, 1.0, "waited for programs that they started"),
        (7.0, 2, None, ""),
        (8.0, 8, 3.0, "waited for programs that they started"),
    ],
)
def test_more_threads_gain_what_programs_leave_of_the_cpus(cpu, cpus, lost, waited):
    finding = by_code(of_children(cpu, cpus=cpus)).get("too-few-threads")
    assert (finding is None) == (lost is None)
    if finding:
        assert finding.potential_saving == pytest.approx(lost, abs=0.01)
        assert f"Tasks {waited} for 100%" in finding.evidence
        idle = percent((cpus - cpu / 4) / cpus)
        assert f"while {cpus} CPUs were {idle} idle. " in finding.evidence


def test_simulated_programs_of_tasks_need_cpus():
    recording = of_children(8.0)
    assert simulate(recording, workers=8).seconds == pytest.approx(4.0, abs=0.01)
    assert simulate(of_children(0.0), workers=8).seconds == pytest.approx(1.0, abs=0.01)
    # What worker processes used is the CPU of their tasks, and of their start.
    columns = {"scheduler": "processes", "cpus": 8}
    assert simulate(of_children(8.0, **columns), workers=8).seconds < 3.0
