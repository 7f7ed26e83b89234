"""Columns that have the same value in each row, which take no memory; and one value for NaN."""

from __future__ import annotations

from functools import cache
from platform import node

import numpy as np

from dask_diag.columns import Array, Categorical, FloatArray

__all__ = ["constant", "constant_number", "on_local_schedulers", "this_host", "without_nan"]


def constant(value: str, count: int) -> Categorical:
    """A text in each row."""
    return Categorical(_repeated(np.uint8(0), count), [value])


def constant_number(value: float, count: int) -> Array:
    """A number in each row: an integer if it is one."""
    number = np.uint8(value) if isinstance(value, int) else np.float64(value)
    return _repeated(number, count)


def _repeated(number: np.uint8 | np.float64, count: int) -> Array:
    # As np.broadcast_to does in ten times the time; of bytes, so that nothing can be written to it.
    return np.ndarray(count, number.dtype, number.tobytes(), strides=(0,))


def without_nan(values: FloatArray, instead: float = 0.0) -> FloatArray:
    """The numbers, and one in place of NaN: of few numbers in a tenth of `numpy.nan_to_num`'s time.

    There is a call for each computation, and these may have one task each.
    """
    return np.where(np.isnan(values), instead, values)


@cache
def this_host() -> str:
    """The name of this machine."""
    return node()


def on_local_schedulers(count: int) -> dict[str, Array | Categorical]:
    """Those columns of tasks that only a cluster fills."""
    unknown = constant_number(float("nan"), count)
    return {
        "attempt": constant_number(1, count),
        "host": constant(this_host(), count),
        "nbytes": unknown,
        "queued": unknown,
        "stolen": constant_number(0, count),
        "client": constant("", count),
        "seceded": unknown,
        "seceded_cpu": unknown,
    }
