"""A profiler as the last line of a cell: one short line, at any time."""

from __future__ import annotations

import re

import dask
import dask.threaded
import pytest

import dask_diag

PROFILERS = ["Profiler", "ResourceProfiler", "CacheProfiler", "SamplingProfiler"]
GRAPH = {f"f-{n}": (sum, [n, 1]) for n in range(16)}


@pytest.mark.parametrize("name", PROFILERS)
def test_a_profiler_has_its_tasks_its_computations_and_seconds(name):
    profiler = getattr(dask_diag, name)()
    assert repr(profiler) == f"<{name}: not started>"
    with profiler:
        dask.threaded.get(GRAPH, list(GRAPH))
    profiler.start_time, profiler.end_time = 10.0, 11.2
    assert repr(profiler) == f"<{name}: 16 tasks in 1 computation, 1.20 s>"
    with profiler:
        for _ in range(2):
            dask.threaded.get({"x": (sum, [1, 2])}, "x")
    assert repr(profiler).startswith(f"<{name}: 2 tasks in 2 computations, ")


@pytest.mark.parametrize("name", PROFILERS)
def test_it_is_shown_while_a_computation_runs(name):
    seen = []
    profiler = getattr(dask_diag, name)()
    with profiler:
        dask.threaded.get({"a": 1, "b": (lambda x: seen.append(repr(profiler)), "a")}, "b")
    assert re.fullmatch(rf"<{name}: 0 tasks in 1 computation, [\d.]+ \S+>", seen[0])


def test_what_fails_while_it_is_read_is_not_raised(monkeypatch):
    profiler = dask_diag.Profiler()
    monkeypatch.setattr(profiler, "session", None)
    assert repr(profiler) == "<Profiler: recording>"


@pytest.mark.leaves_files
def test_a_recorder_has_what_its_profilers_have(tmp_path):
    run = dask_diag.record(tmp_path / "run.diag")
    assert repr(run) == "<record: not started>"
    with run:
        dask.threaded.get(GRAPH, list(GRAPH))
    assert repr(run).startswith("<record: 16 tasks in 1 computation, ")


def test_a_sampler_of_memory_has_its_series():
    sampler = dask_diag.MemorySampler()
    assert repr(sampler) == "<MemorySampler: 0 series, not started>"
    with sampler.sample("a", interval=0.01):
        assert repr(sampler).startswith("<MemorySampler: 1 series, ")
    sampler.session.start, sampler.session.stop = 1.0, 3.5
    assert repr(sampler) == "<MemorySampler: 1 series, 2.50 s>"
