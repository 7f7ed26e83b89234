"""A profiler as the last line of a cell: one short line, at any time."""

from __future__ import annotations

import re

import dask
import dask.threaded
import pytest

import dask_diag

PROFILERS = ["Profiler", "ResourceProfiler", "CacheProfiler", "SamplingProfiler"]
GRAPH = {f"f-{n}": (sum, [n, 1]) for n in range(16)}


@pytest.mark.leaves_files
@pytest.mark.parametrize("name", [*PROFILERS, "record"])
def test_a_profiler_has_its_tasks_its_computations_and_seconds(name):
    profiler, seen = getattr(dask_diag, name)(*["run.diag"] * (name == "record")), []
    assert repr(profiler) == f"<{name}: not started>"
    with profiler:
        graph = {"f-1": GRAPH["f-1"], "x": (lambda x: seen.append(repr(profiler)), "f-1")}
        dask.threaded.get(graph, "x")
        dask.threaded.get(GRAPH, list(GRAPH))
    assert re.fullmatch(rf"<{name}: 1 task in 1 computation, [\d.]+ \S+>", seen[0])
    assert re.fullmatch(rf"<{name}: 18 tasks in 2 computations, [\d.]+ \S+>", repr(profiler))


def test_a_sampler_of_memory_has_its_series():
    sampler = dask_diag.MemorySampler()
    assert repr(sampler) == "<MemorySampler: 0 series, not started>"
    with sampler.sample("a", interval=0.01):
        assert repr(sampler).startswith("<MemorySampler: 1 series, ")
