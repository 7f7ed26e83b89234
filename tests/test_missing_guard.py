"""Programs whose worker processes cannot start: what is said of them, and what their workers leave."""

import os
import textwrap
from pathlib import Path

import pytest

from dask_diag import findings, load

from .commands import environment, run
from .test_cli_run import python

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]


def written(body):
    Path("program.py").write_text(textwrap.dedent(body))
    return "program.py"


def failed(path):
    first = findings(load(path))[0]
    assert first.code == "failed-tasks"
    assert "4 tasks of f in flight; none is known to have started" in first.evidence
    assert "out-of-memory" not in first.advice
    return first


UNGUARDED = """
import dask
from dask_diag import performance_report, ProgressBar, record

def f(n):
    return n + 1

with record("run.diag"), performance_report("page.html"), ProgressBar():
    dask.compute(*[dask.delayed(f)(n) for n in range(4)], scheduler="processes", num_workers=2)

if __name__ == "__main__":
    print("this is not the place")
"""


def test_a_program_without_a_guard_is_told_so_and_its_workers_write_nothing():
    done = python(written(UNGUARDED))
    assert done.returncode == 1
    # The error that multiprocessing raises in each worker, and not one of dask_diag.
    assert "finished its bootstrapping phase" in " ".join(done.stderr.split())
    assert "RecordingFileError" not in done.stderr
    assert done.stdout.count("failed") == 1
    assert set(os.listdir()) == {"program.py", "run.diag", "page.html"}
    assert load("run.diag").is_complete
    assert load("run.diag").computations.pool_end.tolist() == ["unguarded"]
    first = failed("run.diag")
    assert first.evidence.startswith("Worker processes ended while they started: each runs")
    assert "if __name__ == '__main__':" in first.advice
    assert "__main__" in Path("page.html").read_text()


RECORDS_OUTSIDE = """
import dask
from dask_diag import record

def f(n):
    return n + 1

with record("run.diag") as run:
    if __name__ == "__main__":
        print(*dask.compute(*[dask.delayed(f)(n) for n in range(4)], scheduler="processes"))
print("tasks:", len(run.recording.tasks), flush=True)
"""


def test_workers_that_come_to_a_block_outside_of_the_guard_leave_it_to_their_parent():
    done = python(written(RECORDS_OUTSIDE))
    assert (done.returncode, done.stderr) == (0, "")
    *of_workers, results, last = done.stdout.splitlines()
    assert set(of_workers) == {"tasks: 0"}
    assert (results, last) == ("1 2 3 4", "tasks: 4")
    assert load("run.diag").tasks.outcome.tolist() == ["ok"] * 4


GUARDED = """
import dask

def f(n):
    return n + 1

if __name__ == "__main__":
    dask.compute(*[dask.delayed(f)(n) for n in range(4)], scheduler="processes")
else:
    import no_such_module
"""


def test_a_module_that_workers_cannot_import_is_no_missing_guard():
    done = run("run", written(GUARDED), text=True, env=environment())
    assert done.returncode == 1
    assert "No module named 'no_such_module'" in done.stderr
    first = failed("program.diag")
    assert first.evidence.startswith("A worker process ended with status 1, like a process that")
    assert "cannot be imported" in first.advice
