"""Builds without a GIL, as far as a build with one can tell: the tests pretend that it is off."""

from __future__ import annotations

import sys
import threading
import time

import dask
import numpy as np
import pytest

from dask_diag import load, record
from dask_diag.model.codes import GIL_ON, NO_GIL
from dask_diag.system import interpreter
from dask_diag.system.interpreter import LockedArray, growing_array

from .recordings import by_code, in_rounds, with_tables, with_waits


@pytest.fixture
def without_gil(monkeypatch):
    monkeypatch.setattr(interpreter, "_MAY_LACK_ONE", True)
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)


def work(n):
    time.sleep(0.002)
    return bytes(n)


@pytest.mark.leaves_files
@pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
def test_all_is_measured_without_a_gil(without_gil, tmp_path, scheduler):
    tasks = [dask.delayed(work)(n) for n in range(100)]
    with record(tmp_path / "run.diag"):
        results = dask.compute(*tasks, scheduler=scheduler, num_workers=4)
        assert [len(result) for result in results] == list(range(100))
    recording = load(tmp_path / "run.diag")
    table = recording.tasks
    assert len(table) == 100
    assert 0.2 <= np.sum(table.stop - table.start) < 20
    assert np.isfinite(table.nbytes).all()
    assert len(set(table.thread)) == (4 if scheduler == "threads" else 1)
    assert "unknown" not in set(table.worker)
    facts = {row["name"]: row["value"] for row in recording.environment.to_dicts()}
    assert facts["python"].endswith(", free-threaded, GIL off)")


def test_a_reader_of_a_growing_array_sees_whole_rows(without_gil):
    rows = growing_array("d")
    assert isinstance(rows, LockedArray)

    def grow():
        for n in range(3000):
            rows.extend([n, n, n])

    thread = threading.Thread(target=grow)
    thread.start()
    while thread.is_alive():
        read = rows[:]
        assert len(read) % 3 == 0
        assert list(read[::3]) == list(range(len(read) // 3))
    thread.join()
    rows.append(7.0)
    assert (rows[-1], len(rows)) == (7.0, 9001)
    del rows[:]
    assert not rows


def of_python(recording, build):
    facts = {"section": ["versions"], "name": ["python"], "value": [f"3.14.0 (CPython{build})"]}
    return with_tables(recording, environment=facts)


def test_findings_of_a_build_without_a_gil_do_not_name_it():
    waiting = with_waits(in_rounds(40, 2, 0.5), "gil-wait")
    with_gil = by_code(of_python(waiting, ""))["gil-bound"]
    assert "turned it on" not in with_gil.advice
    turned_on = by_code(of_python(waiting, f"{GIL_ON} (set so, or by a module)"))["gil-bound"]
    assert turned_on.advice.startswith("this Python can run without the GIL")
    assert "gil-bound" not in by_code(of_python(waiting, NO_GIL))
