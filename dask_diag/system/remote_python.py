"""Has a running CPython run a script at the next safe point of any of its threads: see PEP 768.

``sys.remote_exec`` asks the main thread alone, which may wait for another one, and needs the same
minor version. The interpreter documents the layout of its memory itself, so here each thread is
asked; once one has run the script, the request is taken back from the others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from dask_diag.errors import DiagnosticError

_WORDS = {(3, 14): 95, (3, 15): 111}
"""Number of words of ``_Py_DebugOffsets``, of which the last six are those on requests."""
_INTERPRETERS, _NEXT_INTERPRETER, _THREADS, _NEXT_THREAD = 5, 8, 9, 24
_COOKIE = b"xdebugpy"
_STOP = 1 << 5
"""The bit of a thread's ``eval_breaker`` that has it look for requests."""
_PYTHON = re.compile(r"(?:lib)?python3\.(\d+)")
_WORD, _INT = Struct("<Q"), Struct("<i")
_ELF, _SEGMENT, _SECTION = Struct("<40xQ10xHHH"), Struct("<II Q Q 32x"), Struct("<II Q Q QQ 24x")


class NotThereError(DiagnosticError):
    """The process has ended, or its number is that of another one."""


class ForbiddenError(DiagnosticError):
    """The kernel does not let this process write to the memory of the other."""


class RunningPython(NamedTuple):
    """A process with a Python: its minor version, and the file and the address that have it."""

    process: int
    minor: int
    file: str
    address: int

    @classmethod
    def of(cls, process: int) -> RunningPython | None:
        """That of a process; None if it has none."""
        try:
            maps = Path(f"/proc/{process}/maps").read_text()
        except PermissionError as error:
            raise ForbiddenError(str(error)) from None
        except OSError:
            raise NotThereError(f"there is no process {process}") from None
        found = None
        for line in maps.splitlines():
            addresses, _, offset, _, _, *file = line.split(maxsplit=5)
            named = _PYTHON.match(os.path.basename(file[0])) if file else None
            # Its first part. The library, if there is one, comes last, and has all of Python.
            if named and int(offset, 16) == 0:
                start = int(addresses.partition("-")[0], 16)
                found = cls(process, int(named[1]), file[0], start)
        return found


def started(process: int) -> str:
    """When a process started, which tells it from later ones of its number; empty if it ended."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    return ""


class Requests:
    """Requests to the threads of a Python to run a script.

    Parameters
    ----------
    python : RunningPython
    """

    def __init__(self, python: RunningPython) -> None:
        self._asked: list[int] = []
        try:
            self._memory = os.open(f"/proc/{python.process}/mem", os.O_RDWR | os.O_CLOEXEC)
        except PermissionError as error:
            raise ForbiddenError(str(error)) from None
        except OSError:
            raise NotThereError(f"there is no process {python.process}") from None
        try:
            self._read_layout(python)
        except BaseException:
            os.close(self._memory)
            raise

    def _read_layout(self, python: RunningPython) -> None:
        self._runtime = _address_of_runtime(python)
        words = _WORDS.get((3, python.minor), 0)
        raw = self._read(self._runtime, 8 * (words or 3))
        self._layout = Struct(f"<{len(raw) // 8}Q").unpack(raw)
        version = self._layout[1] >> 16
        if raw[:8] != _COOKIE or not words or version != (3 << 8) + python.minor:
            raise DiagnosticError(f"the memory of Python 3.{python.minor} is not known")
        *_, self._breaker, self._support, enabled, self._pending, self._script, size = self._layout
        self._size = size
        interpreter = self._word(self._runtime + self._layout[_INTERPRETERS])
        while following := self._word(interpreter + self._layout[_NEXT_INTERPRETER]):
            # The main one is the last.
            interpreter = following
        self._threads = interpreter + self._layout[_THREADS]
        if not _INT.unpack(self._read(interpreter + enabled, 4))[0]:
            raise DiagnosticError(
                "remote debugging is disabled in it (PYTHON_DISABLE_REMOTE_DEBUG, "
                "-X disable-remote-debug)"
            )

    def ask(self, script: str, *, all_threads: bool) -> None:
        """Ask the main thread to run a script, or all others.

        Few requests are best: what is written to a thread that ends at this moment is lost, or
        spoils what comes there.
        """
        path = os.fsencode(script) + b"\0"
        if len(path) > self._size:
            raise DiagnosticError(f"the path of {script} is too long")
        with suppress(OSError):
            *others, main = self._states()
            for thread in others if all_threads else [main]:
                self._asked.append(thread)
                support = thread + self._support
                self._write(support + self._script, path)
                self._write(support + self._pending, _INT.pack(1))
                breaker = self._read(thread + self._breaker, 1)[0]
                self._write(thread + self._breaker, bytes([breaker | _STOP]))

    def take_back(self) -> None:
        """Take back the requests that no thread has come to."""
        # The process may have ended.
        with suppress(OSError):
            states = set(self._states())
            for thread in self._asked:
                if thread in states:
                    self._write(thread + self._support + self._pending, _INT.pack(0))
        self._asked.clear()

    def close(self) -> None:
        """Take back all requests, and close the memory."""
        self.take_back()
        os.close(self._memory)

    def _states(self) -> Iterator[int]:
        thread = self._word(self._threads)
        while thread:
            yield thread
            thread = self._word(thread + self._layout[_NEXT_THREAD])

    def _read(self, address: int, size: int) -> bytes:
        return os.pread(self._memory, size, address)

    def _write(self, address: int, data: bytes) -> None:
        os.pwrite(self._memory, data, address)

    def _word(self, address: int) -> int:
        return int.from_bytes(self._read(address, 8), "little")


def _address_of_runtime(python: RunningPython) -> int:
    """Where a process has the section of its interpreter that begins with the layout."""
    with open(f"/proc/{python.process}/root{python.file}", "rb") as file:
        head = file.read(64)
        at, size, count, names_at = _ELF.unpack(head)
        first_segment, segment_size = _WORD.unpack_from(head, 32)[0], head[54] + 256 * head[55]
        file.seek(at)
        sections = [_SECTION.unpack(file.read(size)) for _ in range(count)]
        file.seek(sections[names_at][4])
        names = file.read(sections[names_at][5])
        # A library, and most programs, lie elsewhere than the file says.
        file.seek(first_segment)
        segments = [_SEGMENT.unpack(file.read(segment_size)) for _ in range(head[56])]
        lowest = min(address for kind, _, _, address in segments if kind == 1)
    for name, _, _, address, _, _ in sections:
        if names[name:].startswith(b".PyRuntime\0"):
            return int(address - (lowest & ~0xFFF)) + python.address
    raise DiagnosticError(f"Python 3.{python.minor} does not say where its state is")
