"""Recording of a test by the pytest plugin, and the limits of the test."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from dask.utils import parse_bytes

from dask_diag.analysis.findings.rules import CODES
from dask_diag.analysis.memory import memory_of_all
from dask_diag.analysis.task_times import seconds_computing
from dask_diag.formatting import seconds, size
from dask_diag.profilers.record import ProfilerGroup, record
from dask_diag.views.summary import findings, summary

if TYPE_CHECKING:
    from typing_extensions import Self

    from dask_diag.model.recording import Recording


_INTERVAL = 0.05
"""Seconds between samples of memory: tests are short."""
_LONGEST_NAME = 120


@dataclass(frozen=True)
class Limits:
    """Limits of a test.

    Attributes
    ----------
    max_wall : float or None
        Seconds of the test itself, without its fixtures.
    max_memory : float or None
        Bytes by which resident memory, child processes included, may grow meanwhile.
    no : tuple of str
        Codes of findings that the test must not have.
    """

    max_wall: float | None = None
    max_memory: float | None = None
    no: tuple[str, ...] = ()

    def exceeded(self, recording: Recording) -> list[str]:
        """Sentences on each exceeded limit."""
        wall = recording.stop - recording.start
        reasons = []
        if self.max_wall is not None and wall > self.max_wall:
            reasons.append(f"wall {seconds(wall)} is above max_wall={self.max_wall:g} s")
        if self.max_memory is not None:
            sizes = memory_of_all(recording).sizes
            grown = float(sizes.max() - sizes[0]) if len(sizes) else 0.0
            if grown > self.max_memory:
                reasons.append(
                    f"memory grew by {size(grown)}, above max_memory={size(self.max_memory)}"
                )
        if self.no:
            shown = {finding.code for finding in findings(recording)}
            reasons += [f"it has the finding {code}" for code in self.no if code in shown]
        return reasons


def limits_of(marks: Iterable[pytest.Mark]) -> Limits:
    """The limits of a test's marks, the closest mark first, which has precedence.

    An unknown mark fails the test.
    """
    values: dict[str, Any] = {}
    for mark in marks:
        if mark.args:
            _refuse(f"expected keywords max_wall, max_memory and no, found {mark.args[0]!r}")
        for name, value in mark.kwargs.items():
            if name not in _CHECKS:
                _refuse(f"expected max_wall, max_memory or no, found {name!r}")
            values.setdefault(name, _CHECKS[name](value))
    return Limits(**values)


def _refuse(reason: str) -> NoReturn:
    pytest.fail(f"mark dask_diag: {reason}", pytrace=False)


def _wall(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        _refuse(f"max_wall: expected seconds, a number above 0, found {value!r}")
    return float(value)


def _memory(value: object) -> float:
    number: object = value
    if isinstance(value, str):
        try:
            number = parse_bytes(value)
        except ValueError:
            number = None
    if not isinstance(number, (int, float)) or isinstance(number, bool) or not 0 < number < inf:
        _refuse(f"max_memory: expected bytes, or text such as '2 GB' or '500 MiB', found {value!r}")
    return float(number)


def _codes(value: object) -> tuple[str, ...]:
    codes = (value,) if isinstance(value, str) else value
    if not isinstance(codes, (list, tuple, set, frozenset)):
        _refuse(f"no: expected codes of findings, such as ['tasks-too-small'], found {value!r}")
    for code in codes:
        if code not in CODES:
            _refuse(f"no: there is no finding {code!r}; there are {', '.join(CODES)}")
    return tuple(codes)


_CHECKS = {"max_wall": _wall, "max_memory": _memory, "no": _codes}


class RecordedTest:
    """Records a test, to a file if there is a folder for recordings.

    Attributes
    ----------
    path : Path or None
        The file of the recording; None without one, as for a test that computed nothing.
    seconds : float
        Seconds in which at least one computation ran.
    """

    def __init__(self, item: pytest.Item, mark: str, folder: Path | None) -> None:
        self._limits = limits_of(item.iter_markers(mark))
        self.path = None if folder is None else folder / f"{_file_name(item.nodeid)}.diag"
        self.seconds = 0.0
        self._recorder: ProfilerGroup | None = None
        self._recording: Recording | None = None

    def __enter__(self) -> Self:
        try:
            self._recorder = self._start()
        except Exception as error:
            # The test comes first: it runs without a recording.
            warnings.warn(pytest.PytestWarning(f"dask_diag: not recorded: {error}"), stacklevel=1)
            self.path = None
        return self

    def _start(self) -> ProfilerGroup:
        options: dict[str, Any] = {"resource_interval": _INTERVAL, "code": False}
        if self.path is not None:
            return record(self.path, overwrite=True, **options).__enter__()
        return ProfilerGroup(waits=True, **options).__enter__()

    def __exit__(self, *args: object) -> None:
        if self._recorder is None:
            return
        try:
            self._recorder.__exit__(*args)
            self._recording = self._recorder.recording
            self.seconds = seconds_computing(self._recording.computations)
        except Exception as error:
            warnings.warn(pytest.PytestWarning(f"dask_diag: not recorded: {error}"), stacklevel=1)
            return
        if self.path is not None and not len(self._recording.computations):
            self.path.unlink(missing_ok=True)
            self.path = None

    def judge(self) -> None:
        """Fail the test if it exceeded a limit."""
        __tracebackhide__ = True
        if self._recording is None:
            return
        reasons = self._limits.exceeded(self._recording)
        if reasons:
            where = f"\nrecording: {self.path}" if self.path is not None else ""
            text = "; ".join(reasons)
            pytest.fail(f"dask_diag: {text}\n\n{summary(self._recording)}{where}", pytrace=False)


def _file_name(nodeid: str) -> str:
    """A unique name for a test that is valid on any file system."""
    name = re.sub(r"[^\w.\-]+", "-", nodeid, flags=re.ASCII).strip("-")
    digest = hashlib.sha256(nodeid.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[-_LONGEST_NAME:]}-{digest}"
