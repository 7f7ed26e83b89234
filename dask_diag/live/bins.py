"""What is in each pixel of a lane, if it has more tasks than pixels: as the saved page has it."""

from __future__ import annotations

import numpy as np

from dask_diag.columns import Array, FloatArray, IntArray

__all__ = ["NOTHING", "OFF_CPU", "ROWS", "dominant", "runs", "shares", "stacked"]

ROWS = 16
"""Of a lane's image, as in plots/tasks/binned.js: so many steps of the worker's time."""
OFF_CPU, NOTHING = 254, 255
"""Codes beside those of functions."""

Shape = tuple[int, int]


def shares(
    left: FloatArray, right: FloatArray, functions: IntArray, cpu: FloatArray, shape: Shape
) -> tuple[FloatArray, FloatArray]:
    """Of each function and pixel the share of its time: that tasks ran, and that they had a CPU.

    Parameters
    ----------
    left, right : array
        Start and stop of each task, in pixels.
    functions : array
        Their codes.
    cpu : array
        Of each task the share of its time that was CPU time.
    shape : (int, int)
        How many functions and pixels there are.
    """
    count, columns = shape
    wide = (count, columns + 2)
    busy, computing = np.zeros(wide), np.zeros(wide)
    # The time up to a moment, summed over tasks, is a ramp that begins with each task's start and
    # ends with its stop: what is in a pixel is what that adds there.
    for times, sign in ((left, 1.0), (right, -1.0)):
        inside = np.clip(times, 0, columns)
        pixel = np.minimum(inside.astype(np.int64), columns)
        part_of_pixel = 1.0 - (inside - pixel)
        cells = functions * wide[1] + pixel
        busy += sign * _ramps(cells, part_of_pixel, None, wide)
        computing += sign * _ramps(cells, part_of_pixel * cpu, cpu, wide)
    busy = busy[:, :columns]
    # A rounding error is no task.
    busy[busy < 1e-9] = 0.0
    return busy, np.clip(computing[:, :columns], 0.0, busy)


def _ramps(
    cells: IntArray, within: FloatArray, after: FloatArray | None, shape: Shape
) -> FloatArray:
    """What ramps that begin in these pixels add to them, and to all that come after."""
    size, total = shape[0] * shape[1], np.zeros(shape)
    total += np.bincount(cells, within, size).reshape(shape)
    total += np.cumsum(np.bincount(cells + 1, after, size).reshape(shape), axis=1)
    return total


def dominant(busy: FloatArray) -> IntArray:
    """The function with most time in each pixel; `NOTHING` where nothing ran."""
    if not len(busy):
        return np.full(busy.shape[1], NOTHING)
    return np.where(busy.any(axis=0), busy.argmax(axis=0), NOTHING)


def stacked(busy: FloatArray, cpu: FloatArray) -> Array:
    """The image of a lane, pixel by pixel, each from below: functions, tasks off the CPU, nothing.

    Parameters
    ----------
    busy, cpu : array
        As `shares` returns them.
    """
    count, columns = busy.shape
    parts = np.concatenate([cpu, (busy - cpu).sum(axis=0, keepdims=True)])
    # As in JavaScript, a half is rounded up.
    tops = np.minimum(np.floor(ROWS * np.cumsum(parts, axis=0) + 0.5), ROWS).astype(np.int64)
    # What was there for less than a row is the lowest one.
    small = np.flatnonzero((tops[-1] == 0) & busy.any(axis=0))
    for pixel, function in zip(small.tolist(), dominant(busy)[small].tolist(), strict=True):
        tops[function:, pixel] = 1
    heights = np.diff(tops, axis=0, prepend=0, append=ROWS)
    codes = np.array([*range(count), OFF_CPU, NOTHING], np.uint8)
    return np.repeat(np.tile(codes, columns), heights.T.ravel())


def runs(image: Array) -> tuple[Array, Array]:
    """The codes of an image, one where several in a row are the same; and how many these are."""
    first = np.flatnonzero(np.r_[True, image[1:] != image[:-1]])
    return image[first], np.diff(first, append=len(image))
