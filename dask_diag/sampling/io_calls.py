"""Calls in the program's code that load, or that should not be in a loop; hashes of what is loaded.

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
from collections import ChainMap
from collections.abc import Hashable, Sequence
from contextlib import suppress
from functools import lru_cache
from inspect import CO_OPTIMIZED
from itertools import islice, takewhile
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

from dask_diag.hooks.stack import clear_copy, frames_from
from dask_diag.model.codes import COMMITS, GROWS, QUERIES
from dask_diag.system.interpreter import has_gil

_LOADS = re.compile(
    r"(?:safe_|full_)?(?:load|read|open|parse)|from(?:string|file|_pretrained)|XML$|imread|genfromtxt"
)
_MOST_TEXT = 16_000_000
"""Characters of a text that is compared: to hash it takes a hundredth of a second."""
_LONGEST_PATH = 4096
_CONSTANT = ModuleType, FunctionType, BuiltinFunctionType, type
_PLAIN = int, float, bool, type(None)
_FILES = {"FileIO", "BufferedReader", "TextIOWrapper", "GzipFile"}
_READ_OTHERWISE = {"seek", "locals", "vars", "eval", "exec"}
"""Names in code that may read a part of a file, or hold the mapping of local variables."""
LOADS_PARTS = frozenset(
    (
        *("choice", "choices", "default_rng", "integers", "permutation", "randint", "random"),
        *("randrange", "rng", "sample", "seek", "shuffle"),
    )
)
"""Names in the code of a function that may load another part each time."""
_IN_LOOPS = COMMITS | GROWS | QUERIES
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}


class IOCall(NamedTuple):
    """A call as ``pickle.load``, and names of the values in it, if these say what is loaded."""

    name: str = ""
    values: tuple[str, ...] = ()


@lru_cache(1024)
def io_call(code: CodeType, instruction: int) -> IOCall:
    """The call that a function of the program is in; it has a name if it loads, or is in a loop.

    To load, the program may call a function of its own, such as ``load_words(path)``.

    In a loop a commit counts, but not after many rows; a query; and a call that adds to a table or
    an array and puts the result in its place.
    """
    used = set(code.co_names)
    # Python 3.10 does not say which part of a line runs.
    is_candidate = any(_LOADS.match(name) or name in _IN_LOOPS for name in used)
    if not is_candidate or not hasattr(code, "co_positions"):
        return IOCall()
    steps: list[Any] = list(dis.get_instructions(code))
    ran = [step for step in steps if step.offset <= instruction]
    line, end_line, column, end = next(islice(code.co_positions(), instruction // 2, None))
    inside = [
        step
        for step in ran
        if None not in (column, step.positions.col_offset)
        and (line, column) <= step.positions[::2]
        and step.positions[1::2] <= (end_line, end)
        and step.opname != "PUSH_NULL"
    ]
    if not inside or "CALL" not in ran[-1].opname or inside[0].opname in _ATTRIBUTES:
        return IOCall()
    attributes = takewhile(lambda step: step.opname in _ATTRIBUTES, inside[1:])
    chain = [step.argval for step in (inside[0], *attributes)]
    name = ".".join(map(str, chain))
    if chain[-1] in _IN_LOOPS:
        later = steps[len(ran) :]
        is_meant = "executemany" not in used
        ends = (step for step in later if "JUMP" in step.opname and step.argval <= instruction)
        back = next(ends, None)
        if back is not None and chain[-1] in GROWS:
            loop = [step for step in steps if back.argval <= step.offset <= back.offset]
            is_meant = _grows(inside, later[:1], loop)
        return IOCall(name) if is_meant and back is not None else IOCall()
    if not _LOADS.match(str(chain[-1])):
        return IOCall()
    values: list[str] = []
    for step in inside:
        # What a function in the call uses is not seen here.
        if isinstance(step.argval, CodeType):
            return IOCall(name)
        if step.opname.startswith("LOAD_") and step.opname not in {"LOAD_CONST", *_ATTRIBUTES}:
            values += _names(step)
    is_known = code.co_flags & CO_OPTIMIZED and _READ_OTHERWISE.isdisjoint(used)
    return IOCall(name, tuple(values) if is_known else ())


def _names(step: dis.Instruction) -> list[str]:
    """The variables of an instruction: Python 3.13 has some for two."""
    names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
    return [name for name in names if isinstance(name, str)]


def _grows(
    call: Sequence[dis.Instruction],
    after: Sequence[dis.Instruction],
    loop: Sequence[dis.Instruction],
) -> bool:
    """Whether a call in a loop puts more than all of a value in place of the value.

    A part of the value is no growth, nor is a value that each round begins anew.
    """
    has_part = any("SUBSCR" in step.opname or step.argrepr == "[]" for step in call)
    stored = [name for step in loop for name in _stored(step)]
    used = [name for step in call for name in _names(step)]
    kept = [name for step in after for name in _stored(step)]
    return not has_part and any(name in used and stored.count(name) == 1 for name in kept)


def _stored(step: dis.Instruction) -> list[str]:
    """The variables that an instruction stores; one may store one and load another."""
    if not step.opname.startswith("STORE_"):
        return []
    return _names(step)[: 1 if "LOAD" in step.opname else None]


def values_in_call(
    innermost: FrameType, code: int, names: tuple[str, ...]
) -> tuple[Hashable, ...] | None:
    """Values with names in the innermost frame with code of this ``id()``; None if not known."""
    frame = next((one for one in frames_from(innermost) if id(one.f_code) == code), None)
    # A debugger copies such a mapping back into the frame.
    is_traced = threading.gettrace() or threading.getprofile() or not has_gil()
    if frame is None or frame.f_trace or is_traced:
        return None
    variables, made_here = frame.f_locals, frame.f_code.co_varnames[frame.f_code.co_argcount :]
    try:
        known = ChainMap(variables, frame.f_globals, vars(builtins))
        return tuple(_comparable(known[name], name in made_here) for name in names)
    except LookupError:
        return None
    finally:
        clear_copy(variables)


def _comparable(value: Any, is_made_here: bool) -> Hashable:
    """A small value by which a value is known in another task."""
    kind = type(value)
    if kind in _PLAIN or (kind in (str, bytes) and len(value) <= _MOST_TEXT):
        known: Hashable = value
        return known
    if issubclass(kind, _CONSTANT):
        return id(value)
    if issubclass(kind, PurePath):
        return str(value)
    # A file that the caller has opened may be at another place in each task.
    if kind.__name__ in _FILES and is_made_here and type(value.name) is str:
        return str(value.name)
    raise LookupError


def hash_of_load(values: tuple[Hashable, ...], is_function: bool) -> int | None:
    """Hash of values in which paths stand for the files as they are now.

    A function of the program loads something if a file is among its arguments: None if not.
    """
    states = tuple(map(_state_of_file, values))
    return None if is_function and states == values else hash(states)


def _state_of_file(value: Hashable) -> Hashable:
    with suppress(OSError, ValueError):
        if isinstance(value, (str, bytes)) and len(value) < _LONGEST_PATH:
            found = os.stat(value)
            return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
    return value
