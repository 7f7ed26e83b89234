"""The finding on cached results near the limit of memory, and the limit."""

from __future__ import annotations

import sys
from dataclasses import replace

import dask
import numpy as np
import psutil
import pytest

from dask_diag import Profiler
from dask_diag.system.control_groups import limits_of_groups
from dask_diag.system.processes import memory_limit

from .recordings import MB, Task, by_code, numbers, run, with_tables


def caching(sizes, limit=1000 * MB, unit="bytes", stops=(5.0, 5.0)):
    """Results of these sizes, a second after the other."""
    columns = {
        "key": ["k0", "k1"],
        "function": ["first", "make"],
        "computation": ["c"] * 2,
        "metric": sizes,
        "start": [0.0, 1.0],
        "stop": stops,
    }
    recording = replace(run([Task(0, 5)], memory_limit=limit), metric="nbytes", metric_unit=unit)
    return with_tables(recording, cached_results=columns)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
def test_a_computation_notes_the_limit_of_the_machine_or_of_the_shell(monkeypatch):
    with Profiler() as prof:
        dask.compute(dask.delayed(int)(), scheduler="sync")
    (limit,) = prof.recording.computations.memory_limit.tolist()
    assert 0 < limit == memory_limit() <= psutil.virtual_memory().total
    monkeypatch.setattr("resource.getrlimit", lambda which: (12_345, 99_999))
    assert memory_limit() == 12_345
    # A limit on addresses leaves so much to data, whatever else is mapped.
    now = psutil.Process().memory_info()
    monkeypatch.setattr("resource.getrlimit", lambda which: (now.vms + 100 * MB, -1))
    assert memory_limit() == pytest.approx(now.rss + 100 * MB, rel=0.01)


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
        (None, {"memory.max": "700"}, []),
    ],
)
@pytest.mark.leaves_files
def test_limits_of_control_groups(tmp_path, line, files, limits):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    own = tmp_path / "own"
    if line is not None:
        own.write_text(line + "\n")
    assert list(limits_of_groups(own, tmp_path)) == limits


@pytest.mark.parametrize(
    ("sizes", "severity", "changes"),
    [
        ([200 * MB, 299 * MB], None, {}),
        ([200 * MB, 301 * MB], "medium", {}),
        ([200 * MB, 549 * MB], "medium", {}),
        ([200 * MB, 551 * MB], "high", {}),
        ([200 * MB, 551 * MB], None, {"limit": np.nan}),
        ([200 * MB, 551 * MB], None, {"unit": ""}),
        # One after the other.
        ([400 * MB, 400 * MB], None, {"stops": [0.9, 1.9]}),
    ],
)
def test_results_near_the_limit_are_a_finding(sizes, severity, changes):
    finding = by_code(caching(sizes, **changes)).get("cache-pressure")
    assert (finding and finding.severity) == severity
    if finding:
        assert numbers(finding, "peak", "allowed") == (sum(sizes), 1e9)
        assert finding.where.intervals == ((1.0, 5.0),)
        assert finding.where.functions == ("make", "first")
        assert np.isnan(finding.potential_saving)
