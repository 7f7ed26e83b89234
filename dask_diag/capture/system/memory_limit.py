"""How much memory this process may use: what the machine has, or less."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

try:
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]

__all__ = ["memory_limit"]

_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")


def memory_limit() -> float:
    """Bytes; NaN if not known."""
    limits = [limit for limit in (_memory_of_machine(), *_limits()) if limit > 0]
    return float(min(limits, default=float("nan")))


@cache
def _memory_of_machine() -> float:
    import psutil

    return float(psutil.virtual_memory().total)


def _limits() -> Iterator[float]:
    """What the shell, and groups of processes such as containers, allow."""
    if resource is not None:
        for name in ("RLIMIT_AS", "RLIMIT_DATA"):
            soft = resource.getrlimit(getattr(resource, name))[0] if hasattr(resource, name) else -1
            if soft != resource.RLIM_INFINITY:
                yield float(soft)
    yield from _limits_of_own_groups()


@cache
def _limits_of_own_groups() -> tuple[float, ...]:
    """Read once: `record` asks with each chunk, and reading files gives the GIL up."""
    return tuple(limits_of_groups(_OWN_GROUPS, _CONTROL_GROUPS))


def limits_of_groups(own: Path, root: Path) -> Iterator[float]:
    """The limits of the control groups that a process is in, and of those around them."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            base, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = base / path.lstrip("/")
        # In a container the path may be that of the host: then only the root is there.
        for folder in (group, *group.parents):
            if folder == base.parent:
                break
            try:
                text = (folder / name).read_text().strip()
            except OSError:
                continue
            if text.isdecimal():
                yield float(text)
