"""Tasks as users of dask write them; worker processes import it by name."""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
import threading
import time

import numpy as np

PART = 250_000
"""Numbers that are looked at together."""
FILE_LOCK = threading.Lock()


def slow_statistics(values: np.ndarray) -> float:
    """Some work on a whole array, which releases the GIL for most of it."""
    return float(np.sort(np.sin(values)).sum())


def statistics_in_parts(values: np.ndarray) -> float:
    """As much CPU time for each number, however many there are: 10 ms for a part of them."""
    total = 0.0
    for first in range(0, len(values), PART):
        stop = time.thread_time() + 0.01
        while time.thread_time() < stop:
            of_part = slow_statistics(values[first : first + PART])
        total += of_part
    return total


def scaled_sum(table: np.ndarray, n: int) -> float:
    """A task with a large argument of which it uses little."""
    return float(table[n] * 2)


def own_scaled_sum(size: int, n: int) -> float:
    """The same: the task makes the table."""
    return scaled_sum(np.arange(size, dtype=float), n)


def spectrum(seed: int, size: int) -> float:
    """Work that needs arrays for a moment, which are released."""
    values = np.abs(np.fft.fft(np.random.default_rng(seed).random(size)))
    return round(float(np.sort(values)[:1000].sum()), 6)


def count_words(seed: int, words: int) -> int:
    """A loop in Python."""
    counts: dict[str, int] = {}
    state = seed
    for _ in range(words):
        state = (state * 1103515245 + 12345) % 2147483648
        word = f"word{state % 997}"
        counts[word] = counts.get(word, 0) + 1
    return max(counts.values())


def sorted_under_a_lock(seed: int, size: int) -> float:
    """Work of NumPy that is done while a lock is held, as libraries for files do."""
    with FILE_LOCK:
        return sorted_freely(seed, size)


def sorted_freely(seed: int, size: int) -> float:
    """The same without the lock: processors differ in how often they sort in that time."""
    values = np.random.default_rng(seed).random(size)
    stop = time.thread_time() + 0.05
    while time.thread_time() < stop:
        values = np.sort(values[::-1])
    return round(float(values[::1000].sum()), 6)


def poll(seconds: float, *_: object) -> int:
    """Ask again and again whether something is ready."""
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop:
        time.sleep(0.01)
    return 1


def merge(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Combine two sorted arrays."""
    time.sleep(0.03)
    return np.maximum(one, other)


def shell_out(seconds: float, *_: object) -> int:
    """Run another program and wait for it."""
    subprocess.run([sys.executable, "-S", "-c", f"import time; time.sleep({seconds})"], check=True)
    return 1


def with_pandas(n: int) -> int:
    """A task whose imports take longer than its work."""
    import pandas as pd

    return int(pd.Series([n, n]).sum())


def text_length(item: int) -> int:
    """Next to nothing."""
    return len(str(item))


def load_words(path: str) -> dict[str, int]:
    """Words with their numbers."""
    with open(path, "rb") as file:
        words: dict[str, int] = pickle.load(file)
    return words


load_words_once = functools.cache(load_words)


def look_up(path: str, n: int) -> int:
    """Load all words for one of them."""
    return load_words(path)[f"word {n}"]


def look_up_quickly(path: str, n: int) -> int:
    """Keep the words that were loaded."""
    return load_words_once(path)[f"word {n}"]
