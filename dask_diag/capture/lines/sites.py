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
MOST_FRAMES = 16
"""Callers of a line that are noted, at most; the innermost come first."""
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


_SAY_NOTHING = {"<lambda>", "wrapper", "wrapped", "inner", "<genexpr>", "<listcomp>"}


class Sites:
    """All sites, each once.

    Parameters
    ----------
    packages : collection of str
        Names of installed packages whose lines are the user's.
    """

    def __init__(self, packages: Collection[str] = ()) -> None:
        self._packages = tuple(f"/{name}{end}" for name in packages for end in ("/", ".py"))
        self._is_users: dict[str, bool | None] = {}
        self._sites: dict[tuple[int, ...], Site] = {}

    def here(self, frame: FrameType | None) -> Site | None:
        """The site of a frame and its callers; None if none of them is the user's."""
        is_users = self._is_users
        called = first = None
        key: list[int] = []
        left = MOST_FRAMES
        while frame is not None:
            code = frame.f_code
            is_user = is_users.get(code.co_filename)
            if is_user is None:
                is_user = self._look_at(frame)
            if is_user:
                key += (id(code), frame.f_lasti)
                if first is None:
                    first = frame
                left -= 1
                if not left or code.co_name == _OUTERMOST:
                    break
            elif first is None:
                called = code
            frame = frame.f_back
        if first is None:
            return None
        # By its numbers alone: to hash a code object would read all of it.
        site = self._sites.get(tuple(key))
        if site is None:
            site = self._add(tuple(key), first, called)
        return site

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
        known = self._is_users.get(frame.f_code.co_filename)
        return self._look_at(frame) if known is None else known

    def _look_at(self, frame: FrameType) -> bool:
        """Whether a frame of a file that was not seen yet is the user's."""
        file = frame.f_code.co_filename
        if file == _TYPED_OR_MADE:
            # Never noted for the file, which may be either.
            return _is_typed(frame)
        is_users = self._is_users[file] = self._owns(file)
        return is_users

    def _owns(self, file: str) -> bool:
        if file.startswith("<"):
            return file.startswith(_OF_SHELLS)
        path = file.replace("\\", "/")
        if any(name in path for name in self._packages):
            return True
        return owner_of_file(file) == USER and not file.startswith(_SCRIPTS)


def _is_typed(frame: FrameType) -> bool:
    """Whether code without a file is that of ``python -c``, whose module has no file either."""
    variables = frame.f_globals
    return variables.get("__name__") == "__main__" and "__file__" not in variables


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
