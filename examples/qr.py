"""Profile a QR decomposition of a random array, and the product that gives the array back.

Run it with ``python examples/qr.py [PAGE]``: it prints a summary and writes a page with plots.
"""

from __future__ import annotations

import sys

import dask.array as da
from cachey import nbytes

from dask_diag import CacheProfiler, Profiler, ProgressBar, ResourceProfiler, summary, visualize


def main(page: str = "profile.html") -> None:
    a = da.random.random(size=(10_000, 1_000), chunks=(1_000, 1_000))
    q, r = da.linalg.qr(a)
    a2 = q.dot(r)

    prof, rprof, cprof = Profiler(), ResourceProfiler(dt=0.25), CacheProfiler(metric=nbytes)
    with prof, rprof, cprof, ProgressBar():
        a2.compute(scheduler="threads")

    print(summary([prof, rprof, cprof]))
    visualize([prof, rprof, cprof], filename=page, show=False)
    print(f"\nplots: {page}")


if __name__ == "__main__":
    main(*sys.argv[1:])
