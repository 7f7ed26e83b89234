"""Profile a QR decomposition of a random array, and the product that gives the array back.

Run it with ``python examples/qr.py [PAGE]``: it prints a summary, writes a page with plots, and
ends with what cost most time.
"""

from __future__ import annotations

import sys

import dask.array as da
from cachey import nbytes

from dask_diag import (
    CacheProfiler,
    Profiler,
    ProgressBar,
    Recording,
    ResourceProfiler,
    findings,
    summary,
    visualize,
)


def main(page: str = "profile.html") -> None:
    a = da.random.random(size=(10_000, 1_000), chunks=(1_000, 1_000))
    q, r = da.linalg.qr(a)
    a2 = q.dot(r)

    prof = Profiler(explain=True)
    rprof, cprof = ResourceProfiler(dt=0.25), CacheProfiler(metric=nbytes)
    with prof, rprof, cprof, ProgressBar():
        a2.compute(scheduler="threads")

    print(summary([prof, rprof, cprof]))
    visualize([prof, rprof, cprof], filename=page, show=False)
    print(f"\nplots: {page}")
    found = findings(Recording.combine([prof.recording, rprof.recording]))
    for finding in found[:1]:
        print(f"\n{finding.code}: about {finding.seconds_lost:.1f} s lost. {finding.advice}")
    if not found:
        print("\nno findings")


if __name__ == "__main__":
    main(*sys.argv[1:])
