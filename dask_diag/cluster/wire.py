"""Which processes share a clock, and which were started by this one."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

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


def forget_handlers() -> None:
    """Have distributed forget the handlers that it called: it looks at those that are left again.

    It keeps each for as long as its process runs, and with it all that the handler belongs to.
    """
    import distributed.core

    remembered = getattr(distributed.core, "_expects_comm", None)
    forget = getattr(remembered, "cache_clear", None)
    if forget is not None:
        forget()


@lru_cache(maxsize=1)
def host_id() -> str:
    """The same text in all processes that share a monotonic clock; empty if that is not known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        return boot.strip() + os.readlink("/proc/self/ns/time")
    except OSError:
        return ""


def is_below_this_process(host: str, pid: int) -> bool:
    """Whether a process of a host, as `host_id` names it, is this one or descends from it."""
    if not host or host != host_id():
        return False
    own = os.getpid()
    try:
        while pid > 1 and pid != own:
            # After the name, in which there may be brackets: the state, and the parent.
            words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            pid = int(words[1])
    except (OSError, LookupError, ValueError):
        return False
    return pid == own
