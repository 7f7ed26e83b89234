"""Places of the user's program that call dask: read from the stack in few steps, as text later.

A place is known by the ids of code objects and by instructions. The line table of a code object is
read once per place, when a recording is made. Code objects are retained, and frames never, as a
frame would keep the user's arrays.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Collection, Iterator
from itertools import islice
from types import CodeType, FrameType
from typing import NamedTuple

from dask_diag.system.code import USER, owner_of_file

_SCRIPTS = sysconfig.get_path("scripts")
"""Folder of the commands that packages install, which run the user's program, as pytest."""
_LONGEST_KEY = 2 * 16
"""Two numbers for a frame: 16 callers of a line are noted at most; the innermost come first."""
_OUTERMOST = "<module>"
"""Below are programs that run the user's: IPython, pytest, ``runpy``."""
_OF_SHELLS = "<stdin>", "<ipython-input-", "<doctest ", "<input>", "<console>"
"""Beginnings of names of code without a file that a user has typed; a program generates other code,
as the methods of a class of `attrs`."""
_TYPED_OR_MADE = "<string>"
"""Name of the code of ``python -c``, and of methods that `dataclasses` makes."""


class SourceRange(NamedTuple):
    """A line of the user's, as `Lines` of a recording; columns are bytes from 0 on, -1 unknown."""

    file: str
    line: int
    end_line: int
    column: int
    end_column: int
    function: str


class Site:
    """A stack of the user's frames that called dask.

    Attributes
    ----------
    called : str
        Dask's function that the innermost line called; empty if its name says nothing.
    """

    __slots__ = ("_codes", "_instructions", "_places", "called")

    def __init__(self, codes: list[CodeType], instructions: list[int], called: str) -> None:
        self._codes = codes
        self._instructions = instructions
        self._places: list[SourceRange] | None = None
        self.called = called

    def places(self) -> list[SourceRange]:
        """The lines of the stack, the outermost first."""
        if self._places is None:
            pairs = zip(self._codes, self._instructions, strict=True)
            self._places = [_place(code, instruction) for code, instruction in pairs][::-1]
        return self._places


NOWHERE = Site([], [], "")
"""Of names that were made where no frame of the user's is on the stack, as on a pool's threads."""
_SAY_NOTHING = {"<lambda>", "wrapper", "wrapped", "inner", "<genexpr>", "<listcomp>"}


class _Owners(dict[str, object]):
    """Whether each file is the user's: true, false or `_MAYBE`, found when first asked for."""

    def __init__(self, packages: Collection[str]) -> None:
        super().__init__({_TYPED_OR_MADE: _MAYBE})
        self._packages = tuple(f"/{name}{end}" for name in packages for end in ("/", ".py"))

    def __missing__(self, file: str) -> bool:
        is_users = self[file] = self._owns(file)
        return is_users

    def _owns(self, file: str) -> bool:
        if file.startswith("<"):
            return file.startswith(_OF_SHELLS)
        path = file.replace("\\", "/")
        if any(name in path for name in self._packages):
            return True
        return owner_of_file(file) == USER and not file.startswith(_SCRIPTS)


_MAYBE = "maybe"


class Sites:
    """All sites, each once.

    Parameters
    ----------
    packages : collection of str
        Names of installed packages whose lines are the user's.
    """

    def __init__(self, packages: Collection[str] = ()) -> None:
        self._owners = _Owners(packages)
        self._sites: dict[tuple[int, ...], Site] = {}

    def here(self, frame: FrameType | None) -> Site:
        """The site of a frame and its callers; `NOWHERE` if none of them is the user's."""
        owners, called = self._owners, None
        # Each frame takes as few steps as it can: a loop for those of libraries comes first.
        while frame is not None:
            code = frame.f_code
            owner = owners[code.co_filename]
            if owner and (owner is True or _is_typed(frame)):
                break
            called = code
            frame = frame.f_back
        else:
            return NOWHERE
        key = [id(code), frame.f_lasti]
        caller = None if code.co_name == _OUTERMOST else frame.f_back
        while caller is not None:
            code = caller.f_code
            owner = owners[code.co_filename]
            if owner and (owner is True or _is_typed(caller)):
                key += (id(code), caller.f_lasti)
                if code.co_name == _OUTERMOST or len(key) == _LONGEST_KEY:
                    break
            caller = caller.f_back
        # By its numbers alone: to hash a code object would read all of it.
        numbers = tuple(key)
        return self._sites.get(numbers) or self._add(numbers, frame, called)

    def _add(self, key: tuple[int, ...], frame: FrameType | None, called: CodeType | None) -> Site:
        codes: list[CodeType] = []
        while frame is not None and len(codes) < len(key) // 2:
            if id(frame.f_code) == key[2 * len(codes)]:
                codes.append(frame.f_code)
            frame = frame.f_back
        name = "" if called is None else called.co_name
        name = "" if name in _SAY_NOTHING else name
        return self._sites.setdefault(key, Site(codes, list(key[1::2]), name))

    def is_users(self, frame: FrameType) -> bool:
        """Whether a frame is of the user's program."""
        owner = self._owners[frame.f_code.co_filename]
        return owner is True or (owner is _MAYBE and _is_typed(frame))


def _is_typed(frame: FrameType) -> bool:
    """Whether code without a file is that of ``python -c``, whose module has no file either.

    Methods that `dataclasses` makes for such a module are not typed.
    """
    variables, made = frame.f_globals, getattr(frame.f_code, "co_qualname", "")
    is_of_module = variables.get("__name__") == "__main__" and "__file__" not in variables
    return is_of_module and not made.startswith("__create_fn__.")


def _place(code: CodeType, instruction: int) -> SourceRange:
    line, end_line, column, end_column = _position(code, instruction)
    function = getattr(code, "co_qualname", code.co_name)
    line = line or code.co_firstlineno
    return SourceRange(code.co_filename, line, end_line or 0, column, end_column, function)


def _position(code: CodeType, instruction: int) -> tuple[int | None, int | None, int, int]:
    """Line, last line and columns of an instruction; -1 for columns that are not known."""
    if sys.version_info >= (3, 11):
        for place in islice(code.co_positions(), instruction // 2, None):
            line, end_line, column, end_column = place
            known = column is not None and end_column is not None
            return (
                line,
                end_line,
                (column or 0) if known else -1,
                (end_column or 0) if known else -1,
            )
    for start, stop, line in _lines_of(code):
        if start <= instruction < stop:
            return line, 0, -1, -1
    return None, 0, -1, -1


def _lines_of(code: CodeType) -> Iterator[tuple[int, int, int | None]]:
    return iter(code.co_lines())
