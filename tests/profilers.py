"""Every kind of profiler, made anew by its name; `record` writes run.diag."""

from __future__ import annotations

import io
from functools import partial

import dask_diag
from dask_diag import CacheProfiler, Profiler, ProgressBar, ResourceProfiler, SamplingProfiler

PROFILERS = {
    "Profiler": Profiler,
    "waits": partial(Profiler, waits=True),
    "sampling": SamplingProfiler,
    "cache": CacheProfiler,
    "resources": partial(ResourceProfiler, dt=10),
    "bar": lambda: ProgressBar(out=io.StringIO(), dt=10),
    "record": partial(dask_diag.record, "run.diag"),
}
