"""Lines of code on the stack of a running frame, as text, in few steps.

No frame is retained, as that would keep the user's arrays. Code objects are, until `Walker.forget`,
so that each distinct stack is made into text only once.
"""

from __future__ import annotations

from array import array
from collections.abc import Set
from types import CodeType, FrameType

from dask_diag.capture.keys import function_name, name_of_function
from dask_diag.capture.metrics import runs_in_collections
from dask_diag.capture.task import Line
from dask_diag.hooks.stack import called_from, clocks_around_steps, is_machinery
from dask_diag.sampling.io_calls import LOADS_PARTS, IOCall, io_call
from dask_diag.system.code import USER, owner_of_file
from dask_diag.system.interpreter import has_gil

_MAX_BYTES = 4_000_000


_DASK_ITSELF = Line("(dask itself)")
Load = tuple[int, int, tuple[str, ...], bool]
"""Number of a line from the inside, the ``id()`` of its code, names of values, and whether what is
called is a function of the program."""


class Stack:
    """The lines of a task's stack, the outermost first.

    Attributes
    ----------
    lines : tuple of Line
    nodes : dict
        Node of the stack in each `Stacks`.
    load : tuple or None
        If a line of the program loads data: see `Load`.
    """

    __slots__ = ("lines", "load", "nodes")

    def __init__(self, lines: tuple[Line, ...], load: Load | None = None) -> None:
        self.lines = lines
        self.load = load
        self.nodes: dict[object, int] = {}


class Walker:
    """Reads stacks up to where a task begins.

    Parameters
    ----------
    beginnings : set of int
        The ``id()`` of the code of functions that run a task; it may grow.
    endings : set of int
        That of functions which these call when the task has stopped; it may grow.
    """

    def __init__(self, beginnings: Set[int], endings: Set[int] = frozenset()) -> None:
        self._beginnings = beginnings
        self._endings = endings
        self.forget()

    def forget(self) -> None:
        """Release all code objects."""
        io_call.cache_clear()
        self._codes: dict[int, CodeType] = {}
        self._machinery: set[int] = set()
        self._lines: dict[tuple[int, int], Line] = {}
        self._stacks: dict[bytes, Stack] = {}
        self._size = 0

    def stack_of(self, innermost: FrameType, task: object) -> Stack | None:
        """Stack from the beginning of a task to a frame; None if no task runs there."""
        # Nothing is retained of a stack by which the next sample could stop halfway down. So a
        # recursion 1,000 calls deep takes 0.2 ms each time; the sampler's share of time is limited,
        # so such stacks are sampled less often.
        beginnings = self._beginnings
        instructions: list[int] = []
        add = instructions.append
        frame: FrameType | None = innermost
        while frame is not None:
            code = id(frame.f_code)
            if code in beginnings:
                break
            if code in runs_in_collections:
                instructions.clear()
                innermost = frame.f_back or frame
            else:
                add(code)
                add(frame.f_lasti)
            frame = frame.f_back
        else:
            return None
        # Of code and place by turns: the outermost call is that which the runner of the task made.
        if instructions and instructions[-2] in self._endings:
            return None
        key = array("q", instructions).tobytes()
        in_machinery = not instructions or instructions[0] in self._machinery
        if not in_machinery:
            stack = self._stacks.get(key)
            if stack is not None:
                return stack
            in_machinery = is_machinery(innermost.f_code)
        if not in_machinery:
            return self._read(innermost, instructions, key)
        # What runs has no frame: the stacks of different functions look alike.
        called = _called_without_frame(innermost, beginnings, task)
        key += repr(called).encode("utf-8", "surrogatepass")
        stack = self._stacks.get(key)
        if stack is None:
            stack = self._read(innermost, instructions, key, called)
            self._machinery.update(instructions[:1])
        return stack

    def _read(
        self, innermost: FrameType, instructions: list[int], key: bytes, called: Line | None = None
    ) -> Stack | None:
        self._forget_if_full()
        lines = [called] if called else []
        outermost = len(lines)
        call: IOCall | None = None
        load: Load | None = None
        used: set[str] = set()
        frame: FrameType | None = innermost
        for code, instruction in zip(instructions[::2], instructions[1::2], strict=True):
            # The thread may have gone on meanwhile.
            if frame is None or id(frame.f_code) != code or frame.f_lasti != instruction:
                return None
            if frame.f_code.co_filename not in clocks_around_steps:
                line = self._line_of(frame)
                if not (call and call.name) and owner_of_file(line.file) == USER:
                    is_function = call is not None
                    call = io_call(frame.f_code, instruction)
                    if is_function and (not call.values or not used.isdisjoint(LOADS_PARTS)):
                        # Only a load is looked for beyond the innermost function of the program.
                        call = IOCall()
                    used.update(frame.f_code.co_names)
                    line = line._replace(call=call.name)
                    if call.values:
                        load = len(lines), code, call.values, is_function
                lines.append(line)
            if not is_machinery(frame.f_code):
                outermost = len(lines)
            frame = frame.f_back
        return self._store(key, Stack(tuple(lines[:outermost][::-1]), load))

    def _line_of(self, frame: FrameType) -> Line:
        code = frame.f_code
        instruction = id(code), frame.f_lasti
        line = self._lines.get(instruction)
        if line is None:
            self._keep(code)
            line = self._lines[instruction] = _line_of_code(code, frame.f_lineno or 0)
        return line

    def _forget_if_full(self) -> None:
        if self._size > _MAX_BYTES:
            self.forget()

    def _keep(self, code: CodeType) -> None:
        self._codes[id(code)] = code

    def _store(self, key: bytes, stack: Stack) -> Stack:
        self._size += 2 * len(key) + 400
        self._stacks[key] = stack
        return stack


def _line_of_code(code: CodeType, line: int) -> Line:
    name = getattr(code, "co_qualname", code.co_name)
    return Line(name, code.co_filename, line, code.co_firstlineno)


def _called_without_frame(innermost: FrameType, beginnings: Set[int], task: object) -> Line | None:
    """The function called by dask that has no frame; None if the user's code has one.

    It is not written in Python; or it has not started, or has stopped, and held the GIL
    up to there.
    """
    # Without a GIL the local variables of another thread's frames must not be read.
    called = called_from(innermost) if has_gil() else None
    if called is not None:
        code = getattr(called, "__code__", None)
        if isinstance(code, CodeType) and is_machinery(code):
            return _DASK_ITSELF
        if isinstance(code, CodeType):
            return _line_of_code(code, code.co_firstlineno)
        return Line(name_of_function(called))
    frame: FrameType | None = innermost
    while frame is not None and id(frame.f_code) not in beginnings:
        if not is_machinery(frame.f_code):
            return None
        frame = frame.f_back
    return Line(function_name(task))
