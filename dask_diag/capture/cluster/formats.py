"""What is sent between the processes of a cluster, as `scheduler_plugin` packs it.

This module is shipped with that one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

__all__ = [
    "COROUTINE",
    "NAME",
    "OUTCOMES",
    "PROCESS",
    "RESULT",
    "RUN_FIELDS",
    "SCHEDULER",
    "SENT_OUTCOMES",
    "WORKER_ROW",
    "Sampled",
]

NAME: Final = "dask_diag"
"""Of the plugins, of the topic, and of the entry in a task's metadata."""

WORKER_ROW = struct.Struct("<dddddqq")
"""Start, stop, cpu, seceded, CPU after seceding; thread, run id."""

PROCESS = struct.Struct("<ddddd")
"""A sample of a process: time, pid, whether it is a child of a worker; memory, % CPU of a core."""

RESULT = struct.Struct("<dddd")
"""A result that was in memory: its computation, bytes, from when, until when."""

Sampled = tuple[Sequence[tuple[str, float, int, str]], bytes]
"""What a task waited for, as in `Wait`; and its stacks: see `packed_stacks`."""

COROUTINE: Final = b"coroutine"
"""In place of stacks: a coroutine has none of its own."""

SCHEDULER: Final = -1
"""The number of the scheduler, among those of workers."""

RUN_FIELDS = (
    *((name, "<f8") for name in ("start", "stop", "cpu", "seceded", "seceded_cpu")),
    *((name, "<i8") for name in ("thread", "run")),
    *((name, "<f8") for name in ("submitted", "collected", "queued", "nbytes")),
    *((name, "<i4") for name in ("worker", "computation", "attempt", "client", "dependencies")),
    *((name, "u1") for name in ("outcome", "stolen", "measured")),
)
"""Name and type of each field of a run, as numpy has them."""

OUTCOMES = ("ok", "failed", "unfinished", "cancelled", "rescheduled")
"""The outcomes of runs, by the code that is sent."""
SENT_OUTCOMES = {name: code for code, name in enumerate(OUTCOMES)}
