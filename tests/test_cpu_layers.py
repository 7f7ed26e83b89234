"""The CPU over time, by what used it: layers add up to what was sampled, and to what is known."""

import time
from dataclasses import replace

import dask
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_diag import Profiler, ResourceProfiler, report
from dask_diag.analysis.cpu import cpu_layers
from dask_diag.analysis.facts import Analysis
from dask_diag.views.report.figures import Figures

from .recordings import with_columns, with_tables
from .test_worker_layers import recording_of

pytestmark = pytest.mark.once


def sampled(tasks, samples, others=None, workers=2, stop=4.0, **tables):
    """One computation, with samples of CPU as pairs of a time and per cent."""
    times, cpu = zip(*samples, strict=True)
    resources = {"time": np.array(times), "cpu": np.array(cpu)}
    if others is not None:
        resources["cpu_other_processes"] = np.array(others)
    made = replace(recording_of(tasks, workers, stop), start=0.0)
    return with_tables(made, resources=resources, **tables)


def assert_layers(recording, edges=None, **cpus):
    made = cpu_layers(recording)
    if edges is not None:
        np.testing.assert_allclose(made.edges, edges)
    for name, expected in cpus.items():
        np.testing.assert_allclose(made.cpus[name.replace("_", " ")], expected)


def test_tasks_and_what_is_beside_them_add_up_to_what_was_sampled():
    recording = sampled(
        [("f", 0.0, 2.0, 1.0)],
        [(1.0, 100.0), (2.0, 80.0), (4.0, 50.0)],
        others=[10.0, 0.0, 0.0],
        threads={
            "computation": ["c", "c", "c"],
            "kind": ["scheduler", "native", "dask_diag"],
            "cpu_seconds": [0.9, 0.6, 0.3],
        },
    )
    # Besides tasks 0.5, 0.3 and 0.5 CPUs, in the proportion of the threads' totals.
    beside = np.array([0.5, 0.3, 0.5])
    assert_layers(
        recording,
        [0, 1, 2, 4],
        tasks=[0.5, 0.5, 0.0],
        other_programs=[0.1, 0.0, 0.0],
        scheduler=beside / 2,
        other_threads=beside / 3,
    )
    np.testing.assert_allclose(cpu_layers(recording).cpus["dask_diag"], beside / 6)


def test_what_threads_of_tasks_use_besides_tasks_is_scheduling():
    """Two pools of threads used 1.5 s, of which tasks had 1 s: the rest is between tasks."""
    recording = sampled(
        [("f", 0.0, 2.0, 1.0)],
        [(1.0, 100.0), (2.0, 100.0), (4.0, 0.0)],
        threads={
            "computation": ["c", "c", "c"],
            "kind": ["tasks", "tasks", "native"],
            "cpu_seconds": [0.75, 0.75, 0.5],
        },
    )
    # Of the other half of a CPU both have the same.
    half = [0.25, 0.25, 0.0]
    assert_layers(recording, tasks=[0.5, 0.5, 0.0], scheduler=half, other_threads=half)


def test_what_is_used_outside_computations_is_the_programs():
    recording = sampled([("f", 1.0, 2.0, 1.0)], [(1.0, 80.0), (2.0, 100.0), (3.0, 60.0)], stop=2.0)
    recording = replace(with_columns(recording, "computations", start=[1.0]), stop=3.0)
    outside = [0.8, 0.0, 0.6]
    assert_layers(recording, tasks=[0.0, 1.0, 0.0], program_outside_computations=outside)


def test_a_sample_too_soon_after_another_is_joined_to_it():
    """Over a few of the kernel's ticks two CPUs may seem to be many."""
    recording = sampled([("f", 0.0, 1.0, 0.0)], [(1.0, 100.0), (1.01, 900.0), (2.0, 100.0)])
    made = cpu_layers(recording)
    total = sum(made.cpus.values())
    assert total.max() < 1.2
    seconds = float((total * np.diff(made.edges)).sum())
    assert seconds == pytest.approx(1.0 + 0.09 + 0.99)


def test_nothing_is_drawn_of_cpu_that_was_not_sampled():
    assert cpu_layers(recording_of([("f", 0.0, 1.0, 1.0)], 1, 2.0)) is None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 4), st.floats(0, 2), st.floats(0, 1)), min_size=1, max_size=8),
    st.lists(st.floats(0, 400), min_size=1, max_size=30),
    st.integers(1, 40),
)
def test_layers_sum_to_the_samples_whatever_ran(tasks, percent, most):
    rows = [("f", start, start + length, cpu * length) for start, length, cpu in tasks]
    times = np.linspace(0.2, 6.0, len(percent))
    recording = sampled(rows, list(zip(times.tolist(), percent, strict=True)), stop=5.0)
    made = cpu_layers(recording, most)
    assert len(made.edges) <= most + 1 or len(made.edges) <= len(percent) + 1
    lengths = np.diff(made.edges)
    used = sum((cpus * lengths).sum() for cpus in made.cpus.values())
    expected = sum(p / 100 * dt for p, dt in zip(percent, np.diff(times, prepend=0.0), strict=True))
    assert used == pytest.approx(expected, abs=1e-9)
    assert all((cpus >= -1e-12).all() for cpus in made.cpus.values())


def spin(seconds):
    stop = time.thread_time() + seconds
    while time.thread_time() < stop:
        pass


@pytest.mark.truth
def test_a_spinning_task_is_most_of_the_cpu():
    with Profiler() as prof, ResourceProfiler(0.05) as rprof:
        dask.delayed(spin)(0.6).compute(scheduler="threads")
    made = cpu_layers(prof.recording.combine([prof.recording, rprof.recording]))
    seconds = {name: (cpus * np.diff(made.edges)).sum() for name, cpus in made.cpus.items()}
    assert seconds["tasks"] == pytest.approx(0.6, abs=0.1)


@pytest.mark.usefixtures("without_plots")
def test_the_report_has_cpu_and_memory_as_two_plots_over_the_same_time(tmp_path):
    recording = sampled(
        [("f", 0.0, 2.0, 1.0)],
        [(1.0, 100.0), (2.0, 80.0), (4.0, 50.0)],
    )
    memory = {"memory": [1e8, 2e8, 1e8], "memory_children": [0.0] * 3}
    recording = with_columns(recording, "resources", **memory)
    figures = Figures(Analysis(recording))
    plots = [figures.workers(), figures.over_time("tasks"), figures.cpu(), figures.memory()]
    assert len({id(plot.model.x_range) for plot in plots}) == 1
    assert len({(p.model.min_border_left, p.model.min_border_right) for p in plots}) == 1
    text = report(recording, tmp_path / "page.html").read_text()
    assert 'aria-label="Plot of CPU over time"' in text
    assert 'aria-label="Plot of memory over time"' in text
    assert "resident memory, peak 200 MB" in text
    (tmp_path / "page.html").unlink()
