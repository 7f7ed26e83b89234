"""A report of 1,000,000 tasks and 100,000 calls is small enough to be sent and opened."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.made_up import many_tasks
from dask_diag import report
from dask_diag.model.table import Table

from .test_flame import many_stacks

pytestmark = [pytest.mark.once, pytest.mark.leaves_files]

MOST_BYTES = 7_700_000
"""That a page of so many tasks takes beyond bokeh's own code: 8 MB, and a margin."""
FEW, MANY, ALL = 20_000, 50_000, 1_000_000


def with_results(recording):
    """Each task takes the result of an earlier one, of some size."""
    random = np.random.default_rng(2)
    tasks = np.arange(1, len(recording.tasks))
    dependencies = {"task": tasks, "depends_on": random.integers(0, tasks)}
    nbytes = random.integers(0, 10**8, len(recording.tasks)).astype(float)
    tasks = recording.tasks.replacing({"nbytes": nbytes})
    return replace(recording, tasks=tasks, dependencies=Table(dependencies))


def test_a_million_tasks_with_all_that_is_known_of_them_take_less_than_8_mb(tmp_path, monkeypatch):
    # So many that not all of them have details.
    monkeypatch.setattr("dask_diag.views.plots.tasks._MOST_WITH_DETAILS", 0)
    # And what if is left to the command line.
    monkeypatch.setattr("dask_diag.views.report.sections._TASKS_SIMULATED", 0)

    def size(name, recording):
        return report(recording, tmp_path / name, mode="cdn").stat().st_size

    few = size("few.html", with_results(many_tasks(FEW)))
    many = size("many.html", with_results(many_tasks(MANY)))
    calls = many_stacks()
    tables = {name: getattr(calls, name) for name in ("frames", "call_tree", "samples")}
    with_all = size("calls.html", replace(with_results(many_tasks(FEW)), **tables))
    assert with_all > few + 500_000
    # Bytes of a task do not depend on how many there are: what all have in common is in both.
    of_a_task = (many - few) / (MANY - FEW)
    assert of_a_task > 3
    assert with_all + (ALL - FEW) * of_a_task < MOST_BYTES
