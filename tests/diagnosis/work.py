"""What tasks of planted programs do; worker processes import it by name."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import hashlib
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import zlib

import numpy as np

BLOCK = bytes(1_000_000)
LOCK = threading.Lock()
RETAINED: list[np.ndarray] = []


def compute(seconds: float, *_: object) -> int:
    """So much CPU time, which does not need the GIL."""
    stop = time.thread_time() + seconds
    while time.thread_time() < stop:
        hashlib.sha256(BLOCK).digest()
    return 1


def loop(seconds: float, *_: object) -> int:
    """So much CPU time in Python code, which holds the GIL."""
    stop = time.thread_time() + seconds
    while time.thread_time() < stop:
        sum(range(200))
    return 1


def pause(seconds: float, *_: object) -> int:
    """No CPU time."""
    time.sleep(seconds)
    return 1


def add(*values: int) -> int:
    """A result of others."""
    return sum(values)


def in_turn(seconds: float, *_: object) -> int:
    """As `pause`, one task at a time."""
    with LOCK:
        return pause(seconds)


def polling(path: str, seconds: float, *_: object) -> int:
    """As `in_turn`, by a lock file that is polled."""
    while True:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            time.sleep(0.005)
        else:
            break
    try:
        return pause(seconds)
    finally:
        os.unlink(path)


def ask_loop(running: asyncio.AbstractEventLoop, seconds: float) -> int:
    """Wait for what an event loop in another thread does."""
    return asyncio.run_coroutine_threadsafe(asyncio.sleep(seconds, 1), running).result()


def ask_loop_and_wait(running: asyncio.AbstractEventLoop, seconds: float, more: float) -> int:
    """The same, and then something else."""
    return ask_loop(running, seconds) * pause(more)


def write_row(path: str, seconds: float, n: int) -> int:
    """Write into a database, which one connection at a time may do; others poll it."""
    # It waits for the database at whichever statement comes first.
    with contextlib.closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as database:
        database.execute("CREATE TABLE IF NOT EXISTS numbers (number INTEGER)")
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT INTO numbers VALUES (?)", (n,))
        time.sleep(seconds)
        database.execute("COMMIT")
    return 1


def compute_elsewhere(seconds: float) -> int:
    """So much CPU time of another program."""
    spin = f"import time\nwhile time.process_time() < {seconds}: pass"
    subprocess.run([sys.executable, "-S", "-c", spin], check=True)
    return 1


def checksums(texts: list[str], in_program: bool) -> int:
    """Add up checksums of texts, each by a program of its own or all in this one."""
    code = "import sys, zlib; print(zlib.crc32(sys.argv[1].encode()))"
    total = 0
    for text in texts:
        if in_program:
            done = subprocess.run(
                [sys.executable, "-c", code, text], check=True, capture_output=True
            )
            total += int(done.stdout)
        else:
            total += zlib.crc32(text.encode())
    return total


def rate_limited(port: int, seconds: float, *_: object) -> int:
    """A question to a server, after the time that it asks its clients to leave between two."""
    time.sleep(seconds)
    return ask(port)


def make_array(size: int, _: object = None) -> np.ndarray:
    """A large result."""
    return np.ones(size)


def sum_of_array(size: int, _: object = None) -> float:
    """The same array; only its sum is returned."""
    return float(make_array(size).sum())


def total(values: np.ndarray | float) -> float:
    """Of an array, or a sum, that another task made."""
    return float(np.sum(values))


def keep(size: int, *_: object) -> float:
    """A task that does not release its memory."""
    RETAINED.append(np.ones(size))
    time.sleep(0.02)
    return float(size)


def release(size: int, *_: object) -> float:
    """The same, released at the end."""
    values = np.ones(size)
    time.sleep(0.02)
    return float(len(values))


def multiply(seed: int, size: int, times: int) -> float:
    """Products of matrices, by BLAS."""
    matrix = np.random.default_rng(seed).random((size, size)) / size
    product = matrix
    for _ in range(times):
        product = product @ matrix
    return round(float(product.sum()), 6)


def solve(seed: int, size: int, times: int) -> float:
    """Systems of equations, by a native library that has threads of its own."""
    matrix = np.random.default_rng(seed).random((size, size)) + size * np.eye(size)
    total = 0.0
    for _ in range(times):
        total += float(np.linalg.solve(matrix, matrix[:, : size // 4]).sum())
    return round(total, 6)


def ask(port: int, _: object = None) -> int:
    """Ask a server, and wait for its answer."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"?")
        return len(connection.recv(1))


def ask_for_many(port: int, number: int) -> int:
    """Ask a server for so many answers at once."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"?" * number)
        return len(connection.recv(number))


def read_csv(path: str) -> float:
    """Read numbers as text, row by row."""
    with open(path, newline="") as file:
        return round(sum(float(row[1]) for row in csv.reader(file)), 6)
