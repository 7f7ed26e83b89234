"""The stacks of one task in few bytes, as they are sent through the scheduler, which reads none."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence

from dask_diag.capture.sampling.stack_sample import Line, StackSample

__all__ = ["packed_stacks", "unpacked_stacks"]


def packed_stacks(samples: Sequence[StackSample]) -> bytes:
    """Samples as bytes, in which each line of code is once."""
    if not samples:
        return b""
    lines: dict[Line, int] = {}
    rows = [
        (time, [lines.setdefault(line, len(lines)) for line in stack], seconds, cpu, count)
        for time, stack, seconds, cpu, count in samples
    ]
    return zlib.compress(json.dumps([list(lines), rows]).encode(), 1)


def unpacked_stacks(data: bytes) -> list[StackSample]:
    """What was packed."""
    if not data:
        return []
    texts, rows = json.loads(zlib.decompress(data))
    lines = [Line(*text) for text in texts]
    return [
        (time, tuple(lines[line] for line in stack), seconds, cpu, count)
        for time, stack, seconds, cpu, count in rows
    ]
