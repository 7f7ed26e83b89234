"""Calls in the program's code that load data or commit, and hashes of what is loaded.

Tasks that load the same file each are told from tasks with a file each by the values in the call:
``pickle.load(f)`` reads the file that is open as ``f``. Nothing of the program runs for it, and
where a value says too little, nothing is known.
"""

from __future__ import annotations

import builtins
import dis
import os
import re
import threading
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from inspect import CO_OPTIMIZED
from itertools import islice
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

from dask_diag.hooks.stack import clear_copy, frames_from
from dask_diag.model.codes import COMMITS
from dask_diag.system.interpreter import has_gil

_LOADS = re.compile(
    r"(?:safe_|full_)?(?:load|read|open|parse)|from(?:string|file|_pretrained)|XML$|imread|genfromtxt"
)
_MOST_TEXT = 16_000_000
"""Characters of a text that is compared: to hash it takes a hundredth of a second."""
_LONGEST_PATH = 4096
_MOST_ITEMS = 20
_CONSTANT = ModuleType, FunctionType, BuiltinFunctionType, type
_PLAIN = int, float, bool, type(None)
_FILES = {"FileIO", "BufferedReader", "TextIOWrapper", "GzipFile"}
_READ_OTHERWISE = {"seek", "locals", "vars", "eval", "exec"}
"""Names in code that may read a part of a file, or hold the mapping of local variables."""


class IOCall(NamedTuple):
    """A call as ``pickle.load``, and the names of the values in it, with their attributes.

    `names` is None where it is not known what is loaded.
    """

    name: str
    names: tuple[tuple[str, ...], ...] | None = None


NO_CALL = IOCall("")


def io_call(code: CodeType, instruction: int) -> IOCall:
    """The call that a function of the program is in; `NO_CALL` if it loads and commits nothing.

    A commit counts where it is repeated, in a loop, but not after many rows.
    """
    used = set(code.co_names)
    if "executemany" in used or not any(_LOADS.match(name) or name in COMMITS for name in used):
        return NO_CALL
    while instruction > 0 and dis.opname[code.co_code[instruction]] == "CACHE":
        instruction -= 2
    if "CALL" not in dis.opname[code.co_code[instruction]]:
        return NO_CALL
    steps = list(dis.get_instructions(code))
    ran = [step for step in steps if step.offset <= instruction]
    inside = _steps_of_call(code, instruction, ran)
    chains = _names_in(inside)
    function = chains[0][-1] if chains else ""
    if function in COMMITS:
        jumps = (step.argval for step in steps[len(ran) :] if "JUMP" in step.opname)
        return IOCall(".".join(chains[0])) if any(to <= instruction for to in jumps) else NO_CALL
    if not _LOADS.match(function):
        return NO_CALL
    name = ".".join(chains[0])
    is_known = code.co_flags & CO_OPTIMIZED and _READ_OTHERWISE.isdisjoint(used)
    # What a function in the call uses is not seen here.
    if not is_known or any(isinstance(step.argval, CodeType) for step in inside):
        return IOCall(name)
    first = chains[0][:-1] or chains[0]
    return IOCall(name, tuple(map(tuple, (first, *chains[1:]))))


def _steps_of_call(
    code: CodeType, instruction: int, steps: Sequence[dis.Instruction]
) -> list[dis.Instruction]:
    """The steps of an expression up to an instruction; none in Python 3.10, which has no places."""
    if not hasattr(code, "co_positions"):
        return []
    line, end_line, column, end = next(islice(code.co_positions(), instruction // 2, None))
    if line is None or column is None:
        return []
    found = []
    for step in steps:
        at: Any = step.positions
        if at is None or at.col_offset is None or (at.lineno, at.col_offset) < (line, column):
            continue
        if (at.end_lineno, at.end_col_offset) <= (end_line, end):
            found.append(step)
    return found


def _names_in(steps: Sequence[dis.Instruction]) -> list[list[str]]:
    """Names of values in an expression, each with its attributes; none if one has no name."""
    chains: list[list[str]] = []
    goes_on = False
    for step in steps:
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            if not chains:
                return []
            if goes_on:
                chains[-1].append(step.argval)
        elif step.opname.startswith("LOAD_") and step.opname != "LOAD_CONST":
            names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            chains += [[name] for name in names if type(name) is str]
            goes_on = True
        elif step.opname not in ("PUSH_NULL", "CACHE"):
            goes_on = False
    return chains


def values_in_call(innermost: FrameType, code: int, call: IOCall) -> Hashable:
    """Values in a load of the innermost frame with code of this ``id()``; None if not known."""
    frame = next((one for one in frames_from(innermost) if id(one.f_code) == code), None)
    if frame is None or call.names is None or not has_gil():
        return None
    # A debugger copies such a mapping back into the frame.
    if frame.f_trace or threading.gettrace() or threading.getprofile():
        return None
    variables = frame.f_locals
    try:
        return tuple(_value(chain, variables, frame) for chain in call.names)
    except LookupError:
        return None
    finally:
        clear_copy(variables)


def _value(chain: tuple[str, ...], variables: Mapping[str, Any], frame: FrameType) -> Hashable:
    name, *attributes = chain
    code = frame.f_code
    is_made_here = not attributes and name in code.co_varnames[code.co_argcount :]
    for names in (variables, frame.f_globals, vars(builtins)):
        if name in names:
            break
    value = names[name]
    for attribute in attributes:
        value = _attributes(value)[attribute]
    return _comparable(value, is_made_here)


def _attributes(value: object) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:
        raise LookupError from None
    return found


def _comparable(value: Any, is_made_here: bool = False) -> Hashable:
    """A small value by which a value is known in another task."""
    kind = type(value)
    known: Hashable = value
    if kind in _PLAIN or (kind in (str, bytes) and len(value) <= _MOST_TEXT):
        return known
    if issubclass(kind, _CONSTANT):
        return id(value)
    if issubclass(kind, PurePath):
        return str(value)
    if kind in (list, tuple) and len(value) <= _MOST_ITEMS:
        return tuple(map(_comparable, value))
    # A file that the caller has opened may be at another place in each task.
    if kind.__name__ in _FILES and is_made_here and type(value.name) is str:
        return str(value.name)
    raise LookupError


def hash_of_values(values: Hashable) -> int:
    """Hash of values in which paths stand for the files as they are now."""
    return hash(tuple(map(_state_of_file, values if isinstance(values, tuple) else (values,))))


def _state_of_file(value: Hashable) -> Hashable:
    with suppress(OSError, ValueError, TypeError):
        if isinstance(value, (str, bytes)) and len(value) < _LONGEST_PATH:
            found = os.stat(value)
            return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
    return value
