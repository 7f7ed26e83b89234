"""Lines of the program that a finding on sampled time names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from math import isnan

import numpy as np

from dask_diag.analysis.lines import ProgramLine, program_lines
from dask_diag.analysis.memory import MemoryHeadroom
from dask_diag.columns import BoolArray, FloatArray
from dask_diag.errors import DiagnosticError
from dask_diag.formatting import percent
from dask_diag.model import codes
from dask_diag.model.recording import Recording

MOST_INTERVALS = 20
"""Intervals of a finding at most: those that lie closest together become one."""

Intervals = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Where:
    """Where a finding is; what is empty is not known, or everywhere.

    Attributes
    ----------
    intervals : tuple of (float, float)
        When: start and stop in seconds of the recording's clock, as those of its tasks. In order,
        without overlap, and few: intervals that lie close together are joined.
    workers : tuple of str
        Names of workers, that with most of it first.
    functions : tuple of str
        Names of functions, that with most of it first.
    """

    intervals: Intervals = ()
    workers: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()


NOWHERE = Where()


def where_of_tasks(recording: Recording, weights: FloatArray | BoolArray) -> Where:
    """Where tasks are: `weights` has a number for each, 0 or NaN for those without a part in it."""
    tasks = recording.tasks
    filled: FloatArray = np.nan_to_num(np.asarray(weights, float))
    rows = np.flatnonzero(filled > 0)
    sums = np.bincount(tasks.worker.codes, filled, minlength=len(tasks.worker.values))
    order = np.argsort(-sums, kind="stable")
    return Where(
        merged_intervals(tasks.start[rows], tasks.stop[rows]),
        tuple(tasks.worker.values[n] for n in order if sums[n] >= WORTH_NAMING * sums.sum() > 0),
        tuple(top_functions(recording, filled)),
    )


def during(starts: FloatArray, stops: FloatArray) -> Where:
    """Only when."""
    return Where(merged_intervals(np.asarray(starts, float), np.asarray(stops, float)))


def merged_intervals(starts: FloatArray, stops: FloatArray) -> Intervals:
    """What these intervals cover together, as few; intervals that are not known are left out."""
    is_known = stops > starts
    order = np.argsort(starts[is_known], kind="stable")
    starts, stops = starts[is_known][order], np.maximum.accumulate(stops[is_known][order])
    if not len(starts):
        return ()
    gaps = starts[1:] - stops[:-1]
    widest = np.zeros(len(gaps), bool)
    widest[np.argsort(-gaps, kind="stable")[: MOST_INTERVALS - 1]] = True
    separate = widest & (gaps > 0)
    starts = starts[np.concatenate([[True], separate])]
    stops = stops[np.concatenate([separate, [True]])]
    return tuple(zip(starts.tolist(), stops.tolist(), strict=True))


SEVERITIES = ("high", "medium", "low")
KINDS = AT_MOST, ABOUT, MEASURED = "at most", "about", "measured"
"""What sort of number `Finding.seconds_lost` is."""
HIGH = 0.3
"""The share of the time from which on a loss is high."""
MEDIUM = 0.1
"""The share from which on it is medium; less is low."""


@dataclass(frozen=True)
class Finding:
    """Something that cost time or may mislead, and what to do about it.

    Attributes
    ----------
    code : str
        What it is; each code has a page in the documentation.
    severity : str
        ``high``, ``medium`` or ``low``.
    seconds_lost : float
        The wall seconds that the program would have been shorter; NaN if it costs no time or that
        is not known.
    evidence : str
        What was measured.
    advice : str
        What to do.
    kind : str
        What sort of number `seconds_lost` is. ``about``: the simulator predicts the program with
        the cause and without it, and this is the difference. ``at most``: no more than this can be
        gained; how much is not known. ``measured``: so many seconds of wall time were measured.
    where : Where
        When, on which workers and in which functions.
    """

    code: str
    severity: str
    seconds_lost: float
    evidence: str
    advice: str
    _: KW_ONLY
    kind: str
    where: Where = NOWHERE

    def __post_init__(self) -> None:
        for name, value, expected in (
            ("code", self.code, tuple(codes.FINDINGS)),
            ("severity", self.severity, SEVERITIES),
            ("kind", self.kind, KINDS),
        ):
            if value not in expected:
                raise DiagnosticError(
                    f"{name}: expected one of {', '.join(expected)}, found {value!r}"
                )

    def to_dict(self) -> dict[str, object]:
        """Plain data, as JSON takes it: an unknown `seconds_lost` is None."""
        seconds_lost = None if isnan(self.seconds_lost) else float(self.seconds_lost)
        return {**asdict(self), "seconds_lost": seconds_lost}

    @property
    def rank(self) -> tuple[bool, int, float]:
        """What findings are sorted by: the worst is the smallest.

        Without a result no other finding matters.
        """
        lost = 0.0 if isnan(self.seconds_lost) else self.seconds_lost
        return self.code != "failed-tasks", SEVERITIES.index(self.severity), -lost


def severity_of_share(share: float) -> str:
    """How severe it is to lose this share of the time."""
    return "high" if share >= HIGH else "medium" if share >= MEDIUM else "low"


def severity_of_guess(share: float) -> str:
    """The same if the reason is not known: never high."""
    return "low" if severity_of_share(share) == "low" else "medium"


MOST_NAMED = 3
"""Functions that a finding names at most."""
WORTH_NAMING = 0.05
"""Least share of a sum that a named function has."""


def top_functions(recording: Recording, weights: FloatArray) -> list[str]:
    """The functions that have most of the tasks' `weights`, the first one first."""
    functions = recording.tasks.function
    sums = np.bincount(functions.codes, weights, minlength=len(functions.values))
    order = np.argsort(-sums, kind="stable")[:MOST_NAMED]
    return [functions.values[n] for n in order if sums[n] >= WORTH_NAMING * sums.sum() > 0]


def in_words(names: Sequence[str]) -> str:
    """Names as in a sentence."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


FIND_OUT = "record what tasks wait for with Profiler(waits=True) (dask-diag run --waits)"
WORTH_GAINING = 0.1
"""Least share of the wall time of all computations that a remedy is predicted to gain."""


def memory_not_recorded(headroom: MemoryHeadroom) -> str:
    """What is said beside an advice to run more tasks at once that may not fit into memory."""
    return "" if headroom.is_known else "; each needs its memory, which was not recorded"


def together(computations: int) -> str:
    """How an advice starts if there were several computations."""
    if computations < 2:
        return ""
    return (
        "compute results that do not depend on each other together, dask.compute(a, b), so that "
        "their tasks run at once; "
    )


MOST_LINES = 3
"""Lines that are named at most."""


def seconds_sampled(recording: Recording, chosen: BoolArray) -> float:
    """What some samples represent."""
    return float(recording.samples.seconds[chosen].sum())


def lines_sampled(recording: Recording, chosen: BoolArray) -> list[ProgramLine]:
    """Lines of the program that have most of the time of some samples."""
    return program_lines(recording, recording.samples.seconds * chosen)


def named(lines: list[ProgramLine]) -> str:
    """The lines with most time, as the end of a sentence."""
    most = ", ".join(_most(lines))
    return f". Mostly: {most}" if most else ""


def _most(lines: list[ProgramLine]) -> Iterator[str]:
    total = sum(line.seconds for line in lines)
    for line in lines[:MOST_LINES]:
        if line.seconds >= WORTH_NAMING * total:
            yield f"{line} {percent(line.seconds / total)}"
