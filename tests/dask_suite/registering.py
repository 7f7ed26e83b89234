"""A plugin of pytest: callbacks are registered while each test runs; whose, REGISTERED says."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal

import dask
import pytest

OWN = os.environ["REGISTERED"] == "dask_diag"

# Dask's tests interrupt themselves, and would wait for ever in the background of a script, where
# Ctrl-C is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Worker processes are forked from one that has imported all, which takes each of them a second.
multiprocessing.set_forkserver_preload(
    ["dask.bag.tests.test_bag", "dask.tests.test_multiprocessing", "dask_diag.profilers.record"]
)


def callbacks():
    """All that may be registered, new for each test."""
    if not OWN:
        from dask.diagnostics import CacheProfiler, Profiler, ResourceProfiler

        return [Profiler(), ResourceProfiler(), CacheProfiler()]
    from dask_diag import CacheProfiler, Profiler, ProgressBar, ResourceProfiler, SamplingProfiler

    return [
        *(Profiler(waits=True), SamplingProfiler(), CacheProfiler(), ResourceProfiler()),
        ProgressBar(out=io.StringIO()),
    ]


@pytest.fixture(autouse=True)
def registered():
    """Profilers, active in every test; what failed in them is a failure of the test."""
    registered = callbacks()
    for callback in registered:
        callback.register()
    with dask.config.set({"multiprocessing.context": "forkserver"}):
        yield
    for callback in registered:
        callback.unregister()
    assert [fault for callback in registered if OWN for fault in callback.session.faults] == []
