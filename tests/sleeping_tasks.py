"""A function to tune, in a module that is imported soon: each try imports it in a new process.

What the module imports is not in the time of the function.
"""

from __future__ import annotations

import time

import dask
import distributed as distributed  # What dask imports as it computes first.


def sleeping():
    return dask.compute(*[dask.delayed(slept)(n) for n in range(8)])


def slept(number):
    # Two workers take 0.6 s longer than eight: more than the calls vary by.
    time.sleep(0.2)
    return number
