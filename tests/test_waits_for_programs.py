"""Tasks that wait for programs that they started, which is no I/O."""

import ctypes
import os
import subprocess
import sys
from math import nan

import dask.threaded
import pytest

from dask_diag import Profiler, waits
from dask_diag.sampling import linux as linux_module
from dask_diag.sampling.linux import Pipes

from .recordings import by_code, check, in_rounds, with_tables, with_waits
from .test_machine_cpu import of_children
from .test_waits import read_a_pipe

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
SLEEP = ["sleep", "0.4"]


def wait_for_its_end():
    subprocess.run(SLEEP, check=True)


def read_all_that_it_writes():
    subprocess.check_output(SLEEP)


def poll_its_pipes():
    subprocess.run(SLEEP, check=True, capture_output=True)


def run_in_a_shell():
    os.system("sleep 0.4")


@linux
def test_waits_for_programs_are_no_waits_for_files(retried):
    functions = [
        *(wait_for_its_end, read_all_that_it_writes, poll_its_pipes, run_in_a_shell, read_a_pipe),
    ]

    def measure():
        dsk = {(function.__name__, 0): (function,) for function in functions}
        with Profiler(waits=True) as prof:
            dask.threaded.get(dsk, list(dsk), num_workers=len(dsk))
        rows = waits(prof.recording).to_dicts()
        most = {}
        for row in rows:
            most.setdefault(row["function"], (row["activity"], row["seconds"]))
        for function in functions:
            is_program = function is not read_a_pipe
            activity, seconds = most[function.__name__]
            assert activity == ("child-wait" if is_program else "io-wait"), function
            assert seconds > 0.3
        assert "io-bound" not in by_code(prof.recording)

    retried(measure)


@pytest.fixture
def cat():
    """A program with a pipe to it and one from it."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def pipe():
    """Both of its ends are here."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


@linux
def test_pipes_of_other_programs(cat, pipe):
    pipes, to_it, from_it = Pipes(), cat.stdin.fileno(), cat.stdout.fileno()
    for _ in range(2):
        assert pipes.end_elsewhere([from_it])
        assert pipes.end_elsewhere([to_it, from_it])
        assert not pipes.end_elsewhere([from_it, pipe[0]])
        assert not pipes.end_elsewhere([pipe[0]])
    with open(__file__) as file:
        assert not pipes.end_elsewhere([file.fileno()])
    assert not pipes.end_elsewhere([])
    assert not pipes.end_elsewhere([file_that_is_closed()])


def file_that_is_closed():
    return max(map(int, os.listdir("/proc/self/fd"))) + 1


@linux
def test_of_too_many_files_it_is_not_known(cat, monkeypatch):
    monkeypatch.setattr(linux_module, "_MOST_FILES", 2)
    assert not Pipes().end_elsewhere([cat.stdout.fileno()])


class Polled(ctypes.Structure):
    """``struct pollfd``."""

    _fields_ = (("file", ctypes.c_int), ("events", ctypes.c_short), ("result", ctypes.c_short))


@linux
def test_which_files_are_polled():
    array = (Polled * 3)(Polled(7, 1, 0), Polled(9, 3, 1), Polled(12, 1, 0))
    pipes, address = Pipes(), ctypes.addressof(array)
    assert pipes.polled(address, 3) == [7, 9, 12]
    assert pipes.polled(address, 2) == [7, 9]
    assert pipes.polled(address, 0) == pipes.polled(address, 100) == []
    # No memory is there.
    assert pipes.polled(8, 3) == []


def waiting(activity, tasks=16):
    return with_waits(in_rounds(tasks), activity)


def test_waits_for_programs_are_no_io():
    """As many tasks as threads: there is nothing to be gained, and nothing to be said."""
    program = "; Tasks waited for programs that they started for 100% of their time"
    slept = "; Tasks slept or waited for I/O for 100% of their time"
    cases = {"child-wait": program, "sleep": slept, ("child-wait", 2): None, ("sleep", 2): None}
    check("too-few-threads", waiting, {**cases, "io-wait": None})
    cases = {"child-wait": None, "io-wait": 6.0, ("child-wait", 2): None, ("io-wait", 2): nan}
    check("io-bound", waiting, cases)


def test_tasks_that_wait_for_programs_and_for_files():
    """Programs compute while tasks wait for them, and not while they wait for files."""
    waits = {
        "task": [*range(8)] * 3,
        "activity": ["cpu-wait"] * 8 + ["io-wait"] * 8 + ["child-wait"] * 8,
        "seconds": [0.0] * 8 + [0.6] * 8 + [0.4] * 8,
        "samples": [1] * 8 + [60] * 8 + [40] * 8,
    }
    found = by_code(with_tables(of_children(3.2), waits=waits))
    assert found["io-bound"].evidence.startswith("Tasks waited 4.80 s for files or sockets (60% ")
