"""Planted programs whose tasks wait: for the GIL, locks, CPUs, sleeps and sockets."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection
from typing import IO

import dask

from tests.diagnosis.program import PROCESSES, SLEEPING, STARTUP, Program, threads
from tests.diagnosis.programs_tasks import computed
from tests.diagnosis.work import (
    ask,
    ask_for_many,
    compute,
    in_turn,
    loop,
    multiply,
    pause,
    polling,
    rate_limited,
    solve,
    write_row,
)

ANSWER_AFTER = 0.05
"""Seconds that the server lets each question wait."""


def python_loops(_: None, remedied: bool) -> int:
    return computed({("work", n): (compute if remedied else loop, 0.1) for n in range(12)})


def long_python_loops(_: None, remedied: bool) -> int:
    return computed({("work", n): (loop, 0.25) for n in range(24)})


def one_lock(_: None, remedied: bool) -> int:
    return computed({("work", n): (pause if remedied else in_turn, 0.05) for n in range(20)})


def lock_files(folder: str, remedied: bool) -> int:
    return computed(
        {
            ("work", n): (polling, os.path.join(folder, f"lock-{n * remedied}"), 0.05)
            for n in range(24)
        }
    )


def database(folder: str, remedied: bool) -> int:
    return computed(
        {
            ("work", n): (write_row, os.path.join(folder, f"{n * remedied}.db"), 0.05, n)
            for n in range(32)
        }
    )


def limited_downloads(port: int, remedied: bool) -> int:
    return computed({("work", n): (rate_limited, port, 0.1) for n in range(24)})


def matrix_products(_: None, remedied: bool) -> float:
    dsk = {("work", n): (multiply, n, 400, 30) for n in range(16)}
    return round(float(computed(dsk)), 3)


def systems_of_equations(_: None, remedied: bool) -> float:
    dsk = {("work", n): (solve, n, 800, 5) for n in range(12)}
    return round(float(computed(dsk)), 3)


def sleeping_tasks(_: None, remedied: bool) -> int:
    return computed({("work", n): (pause, 0.05) for n in range(24)})


def questions(port: int, remedied: bool) -> int:
    return computed({("work", n): (ask, port) for n in range(24)})


def one_at_a_time(port: int, remedied: bool) -> int:
    number = 8 if remedied else 1
    return computed({("work", n): (ask_for_many, port, number) for n in range(48 // number)})


def on_one_worker(_: None, remedied: bool) -> int:
    return computed({("work", n): (compute, 0.05) for n in range(24)})


class _Answer(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(1)
        time.sleep(ANSWER_AFTER)
        self.request.sendall(b"!")


class _AnswerInTurn(socketserver.BaseRequestHandler):
    turn = threading.Lock()

    def handle(self) -> None:
        asked = self.request.recv(64)
        with self.turn:
            time.sleep(ANSWER_AFTER)
        self.request.sendall(b"!" * len(asked))


class _Server(socketserver.ThreadingTCPServer):
    # A connection that finds no place in its queue is tried again after a second.
    request_queue_size = 64


def _serve(pipe: Connection, answer: type[socketserver.BaseRequestHandler]) -> None:
    with _Server(("127.0.0.1", 0), answer) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        pipe.send(server.server_address[1])
        pipe.recv()
        server.shutdown()


@contextlib.contextmanager
def server(answer: type[socketserver.BaseRequestHandler] = _Answer) -> Iterator[int]:
    """A server in another process, and its port."""
    context = multiprocessing.get_context("spawn")
    parent_end, child_end = context.Pipe()
    process = context.Process(target=_serve, args=(child_end, answer))
    process.start()
    try:
        yield parent_end.recv()
    finally:
        parent_end.send(None)
        process.join()


SPIN = "import select, sys\nwhile not select.select([sys.stdin], [], [], 0)[0]: sum(range(1000))"
"""Uses a CPU until the other end of a pipe is closed."""
START = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"
"""Starts it and ends, so that it is no descendant of this process."""


@contextlib.contextmanager
def neighbours() -> Iterator[list[IO[bytes]]]:
    """Two other programs that use CPUs; the body ends them if the remedy is applied."""
    reading, writing = os.pipe()
    for _ in range(2):
        subprocess.run([sys.executable, "-c", START, SPIN], stdin=reading, check=True)
    os.close(reading)
    with open(writing, "wb", buffering=0) as end:
        # They have started once they use the CPUs.
        time.sleep(0.3)
        yield [end]


def beside_neighbours(pipes: list[IO[bytes]], remedied: bool) -> int:
    if remedied:
        for pipe in pipes:
            pipe.close()
    return computed({("work", n): (compute, 0.05) for n in range(24)})


def two_computations(_: None, remedied: bool) -> int:
    graphs = [{("work", n + 100 * m): (compute, 0.05) for n in range(12)} for m in range(3)]
    if remedied:
        return computed({key: task for graph in graphs for key, task in graph.items()})
    results: list[int] = []
    config = dict(dask.config.config)

    def one(graph: dict[object, object]) -> None:
        with dask.config.set(config):
            results.append(computed(graph))

    threads = [threading.Thread(target=one, args=(graph,)) for graph in graphs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(results)


def healthy_sleeping(_: None, remedied: bool) -> int:
    return computed({("work", n): (pause, 0.3) for n in range(8)})


PROGRAMS = (
    Program("Python loops", python_loops, "gil-bound"),
    Program(
        "long Python loops",
        long_python_loops,
        "gil-bound",
        remedy={"scheduler": "processes", "chunksize": 1},
        remaining=STARTUP,
    ),
    Program("tasks that share a lock", one_lock, "lock-bound", remaining=SLEEPING),
    Program(
        "a lock file that tasks poll",
        lock_files,
        "lock-bound",
        settings=threads(4),
        remaining=SLEEPING,
        prepare=tempfile.TemporaryDirectory,
    ),
    Program(
        "a database that tasks write",
        database,
        "lock-bound",
        settings=threads(4),
        remaining=SLEEPING,
        prepare=tempfile.TemporaryDirectory,
    ),
    Program(
        "downloads that a server limits",
        limited_downloads,
        "too-few-threads",
        settings=threads(4),
        # As many as divide the 24 tasks: with 16, half would be idle in the second round.
        remedy={"num_workers": 12},
        remaining=frozenset({"io-bound", "too-few-threads"}),
        prepare=server,
    ),
    Program(
        "a server that answers one at a time",
        one_at_a_time,
        "io-bound",
        settings=threads(4),
        # Fewer questions are answered sooner, and still one after the other: some workers end first.
        remaining=frozenset({"io-bound", "imbalance"}),
        prepare=partial(server, _AnswerInTurn),
    ),
    Program(
        "computing on one worker",
        on_one_worker,
        "too-few-threads",
        settings={"scheduler": "synchronous"},
        remedy=threads(2),
    ),
    Program(
        "BLAS threads in four tasks",
        matrix_products,
        "thread-oversubscription",
        settings=threads(4),
        variables={"OPENBLAS_NUM_THREADS": "1"},
    ),
    Program(
        "BLAS threads that spin",
        systems_of_equations,
        "thread-oversubscription",
        settings=threads(4),
        variables={"OPENBLAS_NUM_THREADS": "1"},
    ),
    Program(
        "BLAS threads in two processes",
        systems_of_equations,
        "thread-oversubscription",
        true=STARTUP,
        remaining=STARTUP,
        settings={**PROCESSES, "chunksize": 1},
        variables={"OPENBLAS_NUM_THREADS": "1"},
    ),
    Program(
        "sleeping tasks on two threads",
        sleeping_tasks,
        "too-few-threads",
        remedy={"num_workers": 8},
        remaining=SLEEPING,
    ),
    Program(
        "a slow server",
        questions,
        "io-bound",
        true=SLEEPING,
        remedy={"num_workers": 8},
        remaining=frozenset({"io-bound", "too-few-threads"}),
        prepare=server,
    ),
    Program("spinning neighbours", beside_neighbours, "busy-machine", prepare=neighbours),
    Program(
        "three computations at once",
        two_computations,
        "overlapping-computations",
        gains=False,
    ),
    Program(
        "healthy: eight sleeping threads",
        healthy_sleeping,
        settings=threads(8),
    ),
)
