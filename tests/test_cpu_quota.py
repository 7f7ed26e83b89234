"""Limits of CPU time, as of containers: read from control groups, counted as CPUs, and a finding."""

import sys
from math import inf, isnan
from time import sleep

import dask
import pytest

from dask_diag import Profiler
from dask_diag.system import control_groups, usage
from dask_diag.system.control_groups import CpuLimit

from .recordings import by_code, check, in_rounds, with_tables, with_waits

OWN = {"v2": "0::/pod/box\n", "v1": "3:cpu,cpuacct:/pod/box\n", "cpuset": "3:cpuset:/\n"}
GROUPS = {
    "v2": ({"pod/box/cpu.max": "50000 100000", "pod/box/cpu.stat": "x 1\nthrottled_usec 2500000"}),
    "v1": (
        {
            "cpu/pod/box/cpu.cfs_quota_us": "50000",
            "cpu/pod/box/cpu.cfs_period_us": "100000",
            "cpu/pod/box/cpu.stat": "nr_periods 9\nthrottled_time 2500000000",
        }
    ),
}


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Writes files of control groups, which are those of this process."""

    def write(own, files):
        for name, text in {"own": own, **files}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    monkeypatch.setattr(control_groups, "_OWN_GROUPS", tmp_path / "own")
    # A reading just before had the limit of this machine.
    monkeypatch.setattr(usage, "_machine", usage.MachineCpu())
    with dask.config.set({"diag.control-groups": str(tmp_path)}):
        yield write


@pytest.mark.parametrize(
    "own, files, cpus, throttled",
    [
        (OWN["v2"], GROUPS["v2"], 0.5, 2.5),
        (OWN["v1"], GROUPS["v1"], 0.5, 2.5),
        # Of the group around it, and in a container where the path is that of the host.
        (OWN["v2"], {"pod/cpu.max": "150000 100000"}, 1.5, None),
        (OWN["v2"], {"cpu.max": "150000 100000", "cpu.stat": "throttled_usec 7"}, 1.5, 7e-6),
        # The smallest counts, with its own file.
        (OWN["v2"], {**GROUPS["v2"], "pod/cpu.max": "150000 100000"}, 0.5, 2.5),
        (OWN["v2"], {"pod/box/cpu.max": "max 100000"}, inf, None),
        (OWN["v1"], {"cpu/pod/box/cpu.cfs_quota_us": "-1"}, inf, None),
        (OWN["v2"], {"pod/box/cpu.max": "damaged"}, inf, None),
        (OWN["cpuset"], GROUPS["v1"], inf, None),
        ("", {}, inf, None),
    ],
)
@pytest.mark.leaves_files
def test_limits_of_cpu_time_are_read(groups, own, files, cpus, throttled):
    groups(own, files)
    limit = control_groups.cpu_limit()
    assert limit.cpus == cpus
    assert isnan(limit.throttled()) if throttled is None else limit.throttled() == throttled


@pytest.mark.leaves_files
@pytest.mark.skipif(sys.platform != "linux", reason="control groups are of Linux")
def test_a_computation_has_its_limit_and_the_time_that_it_was_throttled(groups):
    folder = groups(OWN["v2"], GROUPS["v2"])

    def task():
        (folder / "pod/box/cpu.stat").write_text("throttled_usec 2900000")
        sleep(0.2)

    with Profiler() as prof:
        dask.compute(dask.delayed(task)(), scheduler="threads")
    recording = prof.recording
    (row,) = recording.quotas.to_dicts()
    assert (row["cpus"], row["throttled"]) == (0.5, pytest.approx(0.4))
    assert row["computation"] == recording.computations.computation[0]
    # Wherever CPUs are counted these are they.
    assert recording.computations.cpus.tolist() == [1] == [usage.processors()]


@pytest.mark.leaves_files
def test_without_a_limit_there_is_no_row_and_a_process_has_the_cpus_of_its_affinity(groups):
    groups("", {})
    with Profiler() as prof:
        dask.compute(dask.delayed(int)(), scheduler="threads")
    assert not len(prof.recording.quotas)
    assert usage.processors() == len(usage.os.sched_getaffinity(0))
    assert isnan(CpuLimit().throttled())


def limited(throttled, cpus=0.5, others=0.0, used=0.5):
    """Eight tasks of a second at once that waited for CPUs; ten seconds, `used` CPUs in use."""
    recording = with_waits(
        in_rounds(80, 8, used / 8, cpus=1, cpu_other_processes=others), "cpu-wait"
    )
    quotas = {"computation": ["c"], "cpus": [cpus], "throttled": [throttled]}
    return with_tables(recording, quotas=quotas)


def test_what_a_limit_holds_back_is_found_and_no_other_program_is_blamed():
    cases = {
        # Two CPUs were used in a quarter of the time, and stood still in the rest.
        (15.0,): ("upper_bound", "high", 7.5, "limit of 0.5 CPUs", "7.50 s of 10.0 s"),
        # One CPU, half of the time.
        (5.0,): (5.0, "num_workers=1"),
        (0.9,): None,
        (float("nan"),): None,
        # A whole CPU is one.
        (5.0, 1.0): ("limit of 1 CPU held",),
    }
    check("cpu-quota", limited, cases)
    assert "busy-machine" in by_code(limited(0.0, others=5.0))
    assert "busy-machine" not in by_code(limited(15.0, others=5.0))
