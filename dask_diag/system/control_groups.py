"""Limits of memory and of CPU time by control groups, such as containers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from math import nan
from pathlib import Path
from typing import NamedTuple

import dask.config

_OWN_GROUPS = Path("/proc/self/cgroup")


def root_of_groups() -> Path:
    """Folder of the control groups."""
    return _path(dask.config.get("diag.control-groups", "/sys/fs/cgroup"))


_path = cache(Path)


@cache
def own_memory_limits() -> tuple[float, ...]:
    """Read once: `record` asks with each chunk, and reading files gives the GIL up."""
    return tuple(limits_of_groups(_OWN_GROUPS, root_of_groups()))


def limits_of_groups(own: Path, root: Path) -> Iterator[float]:
    """Limits of memory of the control groups of a process, and of the enclosing groups."""
    for _, text in _texts_of_groups(own, root, "memory", "memory.max", "memory.limit_in_bytes"):
        if text.isdecimal():
            yield float(text)


def _texts_of_groups(
    own: Path, root: Path, controller: str, name: str, old_name: str
) -> Iterator[tuple[Path, str]]:
    """A file of each group of a process and of the enclosing groups, with its folder.

    The names are those in version 2 of control groups, and in version 1.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base, file = (root / controller, old_name) if controllers else (root, name)
        group = base / path.lstrip("/")
        # In a container the path may be that of the host: then only the root is there.
        for folder in (group, *group.parents):
            if folder == base.parent:
                break
            try:
                yield folder, (folder / file).read_text().strip()
            except OSError:
                continue


class CpuLimit(NamedTuple):
    """Largest CPU time per second, infinite without a limit, and the statistics of its group."""

    cpus: float = math.inf
    stat: Path | None = None

    def throttled(self) -> float:
        """Seconds so far in which CPUs of the group stood still; NaN if not known."""
        if self.stat is None:
            return nan
        try:
            # Each computation reads it twice: to decode text would take as long again.
            with open(self.stat, "rb", buffering=0) as file:
                numbers = dict(line.split() for line in file.read().splitlines())
            if b"throttled_usec" in numbers:
                return int(numbers[b"throttled_usec"]) / 1e6
            return int(numbers[b"throttled_time"]) / 1e9
        except (OSError, ValueError, KeyError):
            return nan


def cpu_limit() -> CpuLimit:
    """The smallest limit of CPU time of this process's groups."""
    return _cpu_limit(root_of_groups())


@cache
def _cpu_limit(root: Path) -> CpuLimit:
    limits = []
    for folder, text in _texts_of_groups(_OWN_GROUPS, root, "cpu", "cpu.max", "cpu.cfs_quota_us"):
        try:
            quota, *period = text.split()
            length = int(period[0] if period else (folder / "cpu.cfs_period_us").read_text())
            # "max" and -1 are no limit.
            if quota.isdecimal() and length > 0:
                limits.append(CpuLimit(int(quota) / length, folder / "cpu.stat"))
        except (OSError, ValueError):
            continue
    return min(limits, key=lambda limit: limit.cpus, default=CpuLimit())
