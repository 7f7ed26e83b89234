"""The frames of all threads can be read at any time, also while garbage is collected."""

import gc
import subprocess
import sys
import threading

import pytest

from dask_diag.system import code as code_module
from dask_diag.system.code import current_frames

DEADLOCK = """
import gc, sys, threading, time
import dask
from dask_diag import SamplingProfiler

class Circle:
    '''Garbage whose end waits for the lock of the list of threads.'''

    def __init__(self):
        self.circle = self
        self.local = threading.local()
        self.local.value = 1

def deep(depth):
    if depth:
        return deep(depth - 1)
    end = time.perf_counter() + 0.5
    while time.perf_counter() < end:
        Circle()
        short()
    return 1

def short():
    time.sleep(0.0002)

gc.set_threshold(1)
with SamplingProfiler("1ms") as sprof:
    done = sum(dask.compute(*[dask.delayed(deep)(60) for _ in range(4)], num_workers=4))
print(done, sprof.tree(root="tasks")["total_count"][0] > 0)
"""


def test_a_program_whose_garbage_wants_the_lock_of_the_threads_is_sampled_to_its_end():
    """Without care Python 3.11 stands still here; what is sampled must never do that."""
    program = subprocess.run(
        [sys.executable, "-c", DEADLOCK], capture_output=True, text=True, timeout=60
    )
    assert program.stdout.split() == ["4", "True"], program.stderr


@pytest.mark.skipif(sys.version_info < (3, 11), reason="reads them as Python does")
@pytest.mark.parametrize("collects", [True, False])
def test_the_collector_is_left_as_it_was_also_after_an_error(collects, monkeypatch):
    monkeypatch.setattr(code_module, "_COLLECTS_WHILE_IT_READS", True)
    was_on = []

    def fails():
        was_on.append(gc.isenabled())
        raise MemoryError("no frames")

    (gc.enable if collects else gc.disable)()
    try:
        assert threading.get_ident() in current_frames()
        assert gc.isenabled() is collects
        monkeypatch.setattr(sys, "_current_frames", fails)
        with pytest.raises(MemoryError):
            current_frames()
        assert was_on == [False]
        assert gc.isenabled() is collects
    finally:
        gc.enable()


def collections_in(code, work):
    """How often garbage was collected in a function while `work` ran."""
    seen = []

    def note(phase, info):
        if phase == "start" and sys._getframe(1).f_code is code:
            seen.append(info)

    threshold = gc.get_threshold()
    gc.callbacks.append(note)
    gc.set_threshold(1)
    try:
        work()
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(note)
    return len(seen)


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11),
    reason="before it all frames are objects, since then nothing is collected within a step",
)
@pytest.mark.parametrize("depth", [0, 30, 500])
def test_nothing_is_collected_while_the_calls_of_other_threads_are_read(depth):
    """Another thread could run meanwhile, and a frame of it be gone."""
    deep_enough, go_on = threading.Event(), threading.Event()

    def call(depth):
        if depth:
            call(depth - 1)
        else:
            deep_enough.set()
            go_on.wait(30)

    def depth_of(frame):
        """It makes nothing that is ever collected, but the frames that were not made before."""
        number = 0
        while frame is not None:
            number += 1
            frame = frame.f_back
        return number

    thread = threading.Thread(target=call, args=(depth,))
    thread.start()
    deep_enough.wait(30)
    depths = []

    def read():
        depths.append(depth_of(current_frames()[thread.ident]))

    seen = collections_in(depth_of.__code__, read)
    go_on.set()
    thread.join()
    assert depths[0] > depth
    # Without care each caller makes one.
    assert seen == 0
