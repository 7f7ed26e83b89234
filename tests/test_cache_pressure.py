"""The finding on cached results near the limit of memory, and the limit."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import psutil
import pytest

from dask_diag import Profiler
from dask_diag.system.processes import limits_of_groups, memory_limit

from .tables import filled_table, with_columns
from .test_finding_thresholds import MB, Task, by_code, numbers, run


def caching(sizes, limit=1000 * MB, unit="bytes"):
    """Results of these sizes, a second after the other, until the fifth second."""
    count = len(sizes)
    columns = {
        "key": [f"k{n}" for n in range(count)],
        "function": ["make" if n else "first" for n in range(count)],
        "computation": ["c"] * count,
        "metric": sizes,
        "start": np.arange(float(count)),
        "stop": [5.0] * count,
    }
    return replace(
        run([Task(0, 5)], memory_limit=limit),
        cached_results=filled_table("cached_results", columns),
        metric="nbytes",
        metric_unit=unit,
    )


@pytest.mark.parametrize(
    ("sizes", "severity"),
    [
        ([200 * MB, 299 * MB], None),
        ([200 * MB, 301 * MB], "medium"),
        ([200 * MB, 549 * MB], "medium"),
        ([200 * MB, 551 * MB], "high"),
    ],
)
def test_cache_pressure(sizes, severity):
    finding = by_code(caching(sizes)).get("cache-pressure")
    assert (finding and finding.severity) == severity
    if finding:
        assert numbers(finding, "peak", "allowed") == (sum(sizes), 1e9)
        assert finding.where.intervals == ((1.0, 5.0),)
        assert finding.where.functions == ("make", "first")
        assert np.isnan(finding.seconds_lost)


def test_cache_pressure_needs_bytes_and_a_limit():
    full = [900 * MB]
    assert "cache-pressure" in by_code(caching(full))
    assert "cache-pressure" not in by_code(caching(full, limit=np.nan))
    assert "cache-pressure" not in by_code(caching(full, unit=""))


def test_results_that_are_cached_one_after_the_other_are_not_cached_at_once():
    recording = caching([400 * MB, 400 * MB])
    released = with_columns(recording, "cached_results", stop=[0.9, 1.9])
    assert "cache-pressure" not in by_code(released)


def test_the_limit_is_what_the_machine_has_or_less():
    assert 0 < memory_limit() <= psutil.virtual_memory().total


def test_a_computation_notes_the_limit():
    import dask

    with Profiler() as prof:
        dask.compute(dask.delayed(int)(), scheduler="sync")
    assert prof.recording.computations.memory_limit.tolist() == [memory_limit()]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
def test_a_limit_of_the_shell_counts(monkeypatch):
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda which: (12_345, 99_999))
    assert memory_limit() == 12_345


@pytest.mark.parametrize(
    ("line", "files", "limits"),
    [
        ("0::/a/b", {"a/b/memory.max": "500", "a/memory.max": "max"}, [500]),
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "300"}, [300]),
        # A container sees its own group at the root.
        ("0::/docker/x", {"memory.max": "700"}, [700]),
        ("4:cpu,memory:/a", {"memory/a/memory.limit_in_bytes": "900"}, [900]),
        ("4:cpu:/a", {"a/memory.max": "100"}, []),
        ("0::/", {}, []),
    ],
)
def test_limits_of_control_groups(tmp_path, line, files, limits):
    root = tmp_path / "cgroup"
    root.mkdir()
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    own = tmp_path / "own"
    own.write_text(line + "\n")
    try:
        assert list(limits_of_groups(own, root)) == limits
    finally:
        own.unlink()
        for path in sorted(root.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        root.rmdir()


def test_a_system_without_control_groups_has_no_limits(tmp_path):
    assert list(limits_of_groups(tmp_path / "missing", tmp_path)) == []
