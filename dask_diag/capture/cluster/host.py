"""Which processes share a clock, and which were started by this one."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

__all__ = ["host_id", "is_below_this_process"]


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
