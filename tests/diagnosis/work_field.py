"""What tasks of programs after public reports do: worker processes import it."""

from __future__ import annotations

import threading
import time
import zlib
from typing import Any

import numpy as np


def load_frame(block_info: Any = None) -> Any:
    time.sleep(0.02)
    return np.random.default_rng(0).random((1, 200, 200))


def load_lines(number: int, lines: int = 400_000) -> int:
    total = 0
    for n in range(lines):
        total += n % 7
    return total + number


class Source:
    """An image that is read window by window."""

    shape, dtype, ndim = (4000, 4000), np.dtype("u1"), 2
    data = np.ones((4000, 4000), "u1")

    def __getitem__(self, index: Any) -> Any:
        return self.data[index].copy()


def sorted_window(number: int) -> float:
    return float(np.sort(np.random.default_rng(abs(number)).random(150_000))[number])


def part_of_table(number: int, rows: int = 40_000, keys: int = 20_000, text: bool = True) -> Any:
    """Rows of a key, a value, and text, in no order."""
    import pandas as pd

    random = np.random.default_rng(number)
    key = random.integers(0, keys, rows)
    table = pd.DataFrame({"key": key, "x": random.random(rows)})
    if text:
        table["name"] = np.char.add("station ", key.astype(str)).astype(object)
    return table


def smoothed(part: Any, times: int = 60) -> Any:
    """A part with other values, which takes its time."""
    for _ in range(times):
        part = part.assign(x=np.sort(part.x.to_numpy()))
    return part


def range_of(group: Any) -> float:
    """Between the largest and the smallest value of a group."""
    return float(group.x.max() - group.x.min())


def rest(seconds: float, *needs: float) -> float:
    time.sleep(seconds)
    return seconds


def slow_mean(group: Any) -> float:
    time.sleep(0.2)
    return float(group.value.mean())


def sleepy(number: int) -> int:
    time.sleep(0.05)
    return number


def lengths(block: Any) -> Any:
    return np.array([len(block)])


class Held:
    """An object that holds a list."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items


def number_of(number: int, held: Held) -> int:
    return len(held.items) + number


def sorted_often(block: Any) -> Any:
    for _ in range(40):
        made = np.sort(np.random.default_rng(0).permutation(block))
    return made


def sorted_random(size: int) -> float:
    return float(np.sort(np.random.default_rng(0).random(size))[-1])


class Kernel:
    """Compiles in its first call, as just-in-time compilers do."""

    def __init__(self) -> None:
        self.compiled = False
        self.lock = threading.Lock()

    def run(self, number: int) -> float:
        with self.lock:
            if not self.compiled:
                self.compile()
        return sorted_random(400_000)

    def compile(self) -> None:
        sum(n * n for n in range(25_000_000))
        self.compiled = True


class Model:
    """Is read in the first call."""

    def __init__(self) -> None:
        self.table: list[int] = []
        self.lock = threading.Lock()

    def predict(self, number: int) -> int:
        with self.lock:
            if not self.table:
                self.read()
        return sum(n % 7 for n in range(100_000)) + self.table[number % 7]

    def read(self) -> None:
        time.sleep(0.6)
        self.table = [0] * 7


class CompressedArray:
    """An array that is stored in compressed chunks, as in a file: any part needs whole chunks."""

    ndim, dtype = 2, np.dtype("f8")

    def __init__(self, rows: int, columns: int) -> None:
        self.shape, self.chunks = (8 * rows, columns), (rows, columns)
        values = np.arange(rows * columns, dtype="f8").reshape(self.chunks)
        self._stored = zlib.compress(values.tobytes(), 1)

    def __getitem__(self, part: tuple[slice, slice]) -> np.ndarray:
        rows, columns = part
        length = self.chunks[0]
        whole = range(rows.start // length, -(-rows.stop // length))
        read = [np.frombuffer(zlib.decompress(self._stored)).reshape(self.chunks) for _ in whole]
        first = rows.start - whole[0] * length
        return np.concatenate(read)[first : first + rows.stop - rows.start, columns]
