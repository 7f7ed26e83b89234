"""A function to tune, in a module that is imported soon: each try imports it in a new process."""

from __future__ import annotations

import time


def sleeping():
    import dask

    return dask.compute(*[dask.delayed(slept)(n) for n in range(8)])


def slept(number):
    # Two workers take 0.9 s longer than eight: as much as a program's start may vary by.
    time.sleep(0.3)
    return number
