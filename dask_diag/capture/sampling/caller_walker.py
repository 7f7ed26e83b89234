"""From a thread outside tasks to the lines of code on its whole stack.

All calls are shown up to the outermost one, except for this package's own: one line takes their
place and that of all that they call, as it is the profilers' cost. Calls by which the command line
runs a program are left out.
"""

from __future__ import annotations

from array import array
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from dask_diag.capture.dask_internals import codes_of_dask_calls
from dask_diag.capture.sampling.stack_sample import Line
from dask_diag.capture.sampling.stack_walker import Stack, Walker

__all__ = ["OWN_CALLS", "CallerStack", "CallerWalker"]

OWN_CALLS = Line("(dask_diag)")
"""In place of this package's own calls, and of all that they called."""

_PACKAGE = Path(__file__).parents[2]
_RUNNERS = str(_PACKAGE / "cli")
"""What runs a program or a cell: the stacks of these begin with their first line."""
_WRAPPERS = (
    str(_PACKAGE / "capture" / "dask_internals"),
    str(_PACKAGE / "capture" / "tasks"),
    str(_PACKAGE / "capture" / "sampling" / "probed_task"),
    str(_PACKAGE / "capture" / "span"),
)
"""What passes calls on to the user's code and dask's."""


class CallerStack(NamedTuple):
    """A stack, and the ids of the frames on it in which dask was called, from the inside out."""

    stack: Stack
    dask_calls: list[int]


class CallerWalker(Walker):
    """Reads stacks up to the outermost call of a thread."""

    def __init__(self) -> None:
        super().__init__(frozenset())

    def stack_of_thread(self, innermost: FrameType) -> CallerStack | None:
        """The stack of a thread; None if it went on meanwhile."""
        instructions: list[int] = []
        dask_calls: list[int] = []
        add = instructions.append
        frame: FrameType | None = innermost
        while frame is not None:
            code = id(frame.f_code)
            if code in codes_of_dask_calls:
                dask_calls.append(id(frame))
            add(code)
            add(frame.f_lasti)
            frame = frame.f_back
        key = array("q", instructions).tobytes()
        stack = self._stacks.get(key) or self._read_thread(innermost, instructions, key)
        return None if stack is None else CallerStack(stack, dask_calls)

    def _read_thread(
        self, innermost: FrameType, instructions: list[int], key: bytes
    ) -> Stack | None:
        self._forget_if_full()
        lines: list[Line] = []
        frame: FrameType | None = innermost
        for code, instruction in zip(instructions[::2], instructions[1::2], strict=True):
            if frame is None or id(frame.f_code) != code or frame.f_lasti != instruction:
                return None
            # The key is of its code, whose id must not become that of another.
            self._keep(frame.f_code)
            file = frame.f_code.co_filename
            if file.startswith(_RUNNERS):
                break
            if _is_own(frame.f_code):
                lines = lines if file.startswith(_WRAPPERS) else [OWN_CALLS]
            else:
                lines.append(self._line_of(frame))
            frame = frame.f_back
        return self._store(key, Stack(tuple(lines[::-1]) or (OWN_CALLS,)))


def _is_own(code: CodeType) -> bool:
    return code.co_filename.startswith(str(_PACKAGE))
