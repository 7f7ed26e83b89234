"""Findings and rules: seconds lost, evidence in numbers, advice, and place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from math import isnan, nan
from string import Formatter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dask_diag.analysis.cpu import share_of_others
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.groups import sums_by
from dask_diag.analysis.intervals import Intervals
from dask_diag.analysis.lines import ProgramLine, own_lines, program_lines
from dask_diag.analysis.memory import MemoryHeadroom
from dask_diag.analysis.task_times import is_attached
from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray
from dask_diag.formatting import amount, count, counted, percent, seconds, size
from dask_diag.model.codes import Root
from dask_diag.model.recording import Recording

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from dask_diag.analysis.simulation.change import Changes

MOST_INTERVALS = 20
"""Intervals of a finding at most: those that lie closest together become one."""
MOST_NAMED = 3
"""Functions that a finding names at most."""
WORTH_NAMING = 0.05
"""Least share of a sum that a named function has."""
WORTH_A_LINE = 0.3
"""Least share of the loss of a line of the program that is named as having built the work."""
MOST_LINES = 3
"""Lines that are named at most."""
WORTH_GAINING = 0.1
"""Least share of the time in computations that a remedy is predicted to gain."""
HIGH = 0.3
"""The share of the time from which on a loss is high."""
MEDIUM = 0.1
"""The share from which on it is medium; less is low."""
SEVERITIES = ("high", "medium", "low")
UPPER_BOUND, ESTIMATE, MEASURED, UNKNOWN = "upper_bound", "estimate", "measured", "unknown"
"""What `Finding.potential_saving` may be."""
_SAID = {ESTIMATE: "about ", UPPER_BOUND: "at most "}
NO_FIX = "no fix found"
"""Begin of the advice of a finding without a fix."""
FOLDBY = "use foldby, or frequencies, in place of groupby: they reduce each partition first"
"""What helps against the shuffle of a bag."""
FIND_OUT = "record what tasks wait for with Profiler(waits=True) (dask-diag run --waits)"

Times = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class FindingLocation:
    """Location of a finding in time, on workers and in functions.

    A field is empty if it is unknown, or if the finding holds everywhere.

    Attributes
    ----------
    intervals : tuple of (float, float)
        Starts and stops in seconds of the recording's clock, such as those of its tasks; in order,
        without overlap, and few: intervals that lie close together are joined.
    workers : tuple of str
        Names of workers, the most affected worker first.
    functions : tuple of str
        Names of functions, the most affected function first; before that of fused tasks the steps
        that these mostly run: ``"parse (in flatten)"``.
    lines : tuple of str
        Lines of the program, such as ``"analysis.py:12"``, that built at least 30% of the affected
        work, the most affected line first.
    """

    intervals: Times = ()
    workers: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


NOWHERE = FindingLocation()


class Quantity(NamedTuple):
    """A number of a finding's evidence.

    `unit` is ``seconds``, ``bytes``, ``share`` (of 1), ``count``, ``mean``, or the noun of what is
    counted.
    """

    value: float
    unit: str


@dataclass(frozen=True)
class Finding:
    """A cause of lost time or of misleading numbers, with its evidence and a fix.

    Attributes
    ----------
    code : str
        Name of the finding, such as ``"gil-bound"``; each has a page in the documentation.
    severity : {"high", "medium", "low"}
        How much the finding matters for the wall time, or for the numbers.
    potential_saving : float
        Seconds of wall time that a fix of this cause alone would save; NaN if unknown. Savings
        of several findings overlap: do not add them.
    evidence : str
        The measurements that show the cause.
    advice : str
        The fix.
    certainty : {"estimate", "upper_bound", "measured", "unknown"}
        Kind of `potential_saving`. ``estimate``: the difference between two simulations of the
        program, with the cause and without the cause. ``upper_bound``: the fix saves at most this,
        and possibly nothing. ``measured``: `tune` ran the program with the fix and without it.
        ``unknown``: there is no number.
    where : FindingLocation
        When, on which workers and in which functions.
    numbers : dict of str to Quantity
        The numbers of `evidence` by name, each with its unit.

    See Also
    --------
    findings : Lists the findings of a recording.

    Examples
    --------
    >>> from dask_diag import Finding
    >>> finding = Finding("gil-bound", "high", 1.5, "evidence", "advice", certainty="estimate")
    >>> finding.to_dict()["potential_saving"]
    1.5
    """

    code: str
    severity: str
    potential_saving: float
    evidence: str
    advice: str
    _: KW_ONLY
    certainty: str
    where: FindingLocation = NOWHERE
    numbers: Mapping[str, Quantity] = field(default_factory=dict, compare=False, repr=False)

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON, without `numbers`: an unknown `potential_saving` is None."""
        data = asdict(self)
        del data["numbers"]
        data["potential_saving"] = (
            None if isnan(self.potential_saving) else float(self.potential_saving)
        )
        return data

    @property
    def saving_in_words(self) -> str:
        """Such as "about 1.04 s"; empty if there is no number."""
        if isnan(self.potential_saving):
            return ""
        return f"{_SAID.get(self.certainty, '')}{seconds(self.potential_saving)}"

    @property
    def rank(self) -> tuple[bool, int, float]:
        """Key to sort findings by, the worst first.

        Without a result no other finding matters.
        """
        lost = 0.0 if isnan(self.potential_saving) else self.potential_saving
        return self.code != "failed-tasks", SEVERITIES.index(self.severity), -lost


class Evidence(NamedTuple):
    """Sentence or clause, and the numbers in the text."""

    text: str = ""
    numbers: Mapping[str, Quantity] = {}


_UNITS: Mapping[str, Callable[[float], str]] = {
    "seconds": seconds,
    "bytes": size,
    "share": percent,
    "count": count,
    "mean": amount,
}
"""Units that a number in a sentence may have, and functions that write it."""


def evidence(sentence: str, **values: object) -> Evidence:
    """Write a sentence with its values.

    Parameters
    ----------
    sentence : str
        ``{lost:seconds}`` is a number with its unit, ``{tasks:task}`` a number of tasks. ``{name}``
        is a text, a sequence of names, or `Evidence`: a clause with further numbers.
    **values
        By name.
    """
    text = ""
    numbers: dict[str, Quantity] = {}
    for literal, name, unit, _ in Formatter().parse(sentence):
        text += literal
        if name is None:
            continue
        value = values[name]
        if isinstance(value, Evidence):
            text += value.text
            numbers |= value.numbers
        elif unit:
            number = float(value)  # type: ignore[arg-type]
            numbers[name] = Quantity(number, unit)
            text += _UNITS[unit](number) if unit in _UNITS else counted(int(number), unit)
        else:
            text += value if isinstance(value, str) else in_words(value)  # type: ignore[arg-type]
    return Evidence(text, numbers)


class Gain(NamedTuple):
    """Wall seconds by which the program would be shorter, and the kind of the number."""

    seconds: float
    certainty: str = UPPER_BOUND


NO_GAIN = Gain(nan, UNKNOWN)


USED_BY_OTHERS = 0.15
"""Share of the CPUs used by other programs from which on it is not known what they leave."""


def simulated(analysis: Analysis, otherwise: float, **changes: Unpack[Changes]) -> Gain:
    """Gain of a change by the simulator; at most `otherwise` where that cannot be simulated.

    The simulator leaves the CPUs that other programs used to them. They may only have used what the
    program left: at most, the change gains what it would gain without them.
    """
    saved = analysis.seconds_saved(**changes)
    if isnan(saved):
        return Gain(otherwise)
    if share_of_others(analysis.recording) >= USED_BY_OTHERS:
        alone: Changes = {**changes, "idle_machine": True}
        most = analysis.seconds_saved(**alone) - analysis.seconds_saved(idle_machine=True)
        if most > saved:
            return Gain(most)
    return Gain(max(saved, 0.0), ESTIMATE)


def severity_of(share: float, *, is_certain: bool = True) -> str:
    """Severity of losing this share of the time: never high if the reason is not certain."""
    if share < MEDIUM:
        return "low"
    return "high" if share >= HIGH and is_certain else "medium"


class Diagnosis(NamedTuple):
    """Finding without a code: the result of a rule's function."""

    severity: str
    gain: Gain
    evidence: Evidence
    advice: str
    where: FindingLocation = NOWHERE


Examine = Callable[[Analysis], Diagnosis | None]


@dataclass(frozen=True)
class Rule:
    """Rule that looks for a cause of lost time, or of misleading measurements.

    Attributes
    ----------
    code : str
        Code of the rule's findings.
    examine : function
        Returns a diagnosis, or None.
    needs : tuple of str
        Tables of the recording that must have rows.
    unless : tuple of str
        Codes of more specific rules. The rule is not applied if any of them made a finding.
    needs_start : bool
        Whether the rule applies only to recordings that began before the program computed.
    needs_tasks : bool
        Whether the rule applies only to recordings with tasks and with `LONG_ENOUGH` computations.
    """

    code: str
    examine: Examine
    needs: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    needs_start: bool = False
    needs_tasks: bool = True

    def __call__(self, analysis: Analysis) -> Finding | None:
        """Apply the rule, whatever others found."""
        recording = analysis.recording
        if not all(len(getattr(recording, table)) for table in self.needs):
            return None
        if self.needs_start and is_attached(recording):
            return None
        found = self.examine(analysis)
        if found is None:
            return None
        severity, (saving, certainty), (text, numbers), advice, where = found
        if not isnan(saving) and analysis.computing:
            # What gains little is not important, however much of their time tasks lose to it.
            severity = max(severity, severity_of(saving / analysis.computing), key=SEVERITIES.index)
        return Finding(
            self.code,
            severity,
            float(saving),
            text,
            advice,
            certainty=UNKNOWN if isnan(saving) else certainty,
            where=where,
            numbers=numbers,
        )


def rule(code: str, **conditions: Any) -> Callable[[Examine], Rule]:
    """Make a `Rule` of the function below; conditions are further attributes."""
    return lambda examine: Rule(code, examine, **conditions)


def largest(
    names: Categorical, amounts: FloatArray, most: int | None = MOST_NAMED, least: float = 0.0
) -> tuple[str, ...]:
    """Names with the largest sums of amounts, each at least a share of all, the largest first."""
    sums = sums_by(names, amounts)
    order = np.argsort(-sums, kind="stable")[:most]
    return tuple(names.values[n] for n in order if sums[n] > 0 and sums[n] >= least * sums.sum())


def top_functions(analysis: Analysis, weights: FloatArray) -> tuple[str, ...]:
    """Functions with most of the tasks' `weights` in words, the first one first."""
    return analysis.named(largest(analysis.tasks.function, weights, least=WORTH_NAMING))


def sums_of_tasks(recording: Recording, rows: IntArray, amounts: FloatArray) -> FloatArray:
    """Sum of amounts for each task, by rows of tasks; rows below 0 are of no task."""
    is_known = rows >= 0
    sums = np.bincount(rows[is_known], amounts[is_known], len(recording.tasks))
    return sums.astype(np.float64)


def where_of_tasks(analysis: Analysis, weights: FloatArray | BoolArray) -> FindingLocation:
    """Place of tasks with a weight above 0; NaN counts as 0."""
    tasks = analysis.tasks
    filled: FloatArray = np.nan_to_num(np.asarray(weights, float))
    rows = np.flatnonzero(filled > 0)
    return FindingLocation(
        merged_intervals(tasks.start[rows], tasks.stop[rows]),
        largest(tasks.worker, filled, None, WORTH_NAMING),
        top_functions(analysis, filled),
        largest_lines(analysis, analysis.built_by.sums(filled)),
    )


def where_of_rows(analysis: Analysis, rows: IntArray | Sequence[int]) -> FindingLocation:
    """Place of the tasks in some rows."""
    return where_of_tasks(analysis, np.isin(np.arange(len(analysis.tasks)), rows))


def samples_of(analysis: Analysis, where: FindingLocation) -> BoolArray:
    """Select the samples of tasks of the functions of a place."""
    samples = analysis.recording.samples
    names = [
        name for name in samples.function.values if analysis.named([name])[0] in where.functions
    ]
    return samples.root.eq(Root.TASKS) & samples.function.is_in(names)


def largest_lines(analysis: Analysis, losses: FloatArray) -> tuple[str, ...]:
    """Lines that built work with much of a loss, of the losses of each, the first one first."""
    places, least = analysis.built_by.places, WORTH_A_LINE * losses.sum()
    order = np.argsort(-losses, kind="stable").tolist()
    return tuple(places[n].name for n in order if places[n].line and losses[n] >= least > 0)


def where_of_intervals(starts: FloatArray, stops: FloatArray) -> FindingLocation:
    """Place in time, on any worker and in any function."""
    return FindingLocation(merged_intervals(starts, stops))


def merged_intervals(starts: FloatArray, stops: FloatArray) -> Times:
    """Union of the known intervals, with the narrowest gaps closed."""
    united = Intervals(starts, stops).union()
    gaps = united.start[1:] - united.stop[:-1]
    widest = np.sort(np.argsort(-gaps, kind="stable")[: MOST_INTERVALS - 1])
    starts = united.start[np.append(0, widest + 1)[: len(united.start)]]
    stops = united.stop[np.append(widest, len(gaps))[: len(united.stop)]]
    return tuple(zip(starts.tolist(), stops.tolist(), strict=True))


def in_words(names: Sequence[str]) -> str:
    """Names as in a sentence."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


MOST_ADVISED = 16
"""Times the present workers; where more fit, memory is not mentioned."""


def on_memory(headroom: MemoryHeadroom) -> str:
    """What to add to advice to run more tasks at once, of which only so many fit into memory."""
    if not headroom.is_known:
        return "; memory was not recorded: check that more tasks fit"
    return f"; {headroom}" if headroom.most < MOST_ADVISED * headroom.workers else ""


def compute_together(computations: int, on_cluster: bool = False) -> str:
    """Start of the advice if there were several computations."""
    if computations < 2:
        return ""
    futures = ", or client.map of all inputs and then distributed.as_completed" * on_cluster
    return (
        f"compute independent results together with dask.compute(a, b){futures}, so that their "
        "tasks run in parallel; "
    )


def seconds_sampled(recording: Recording, chosen: BoolArray) -> float:
    """Seconds represented by the chosen samples."""
    return float(recording.samples.seconds[chosen].sum())


def where_of_samples(analysis: Analysis, chosen: BoolArray) -> FindingLocation:
    """Place of the tasks of functions that have some of the chosen samples."""
    functions = analysis.recording.samples.function[chosen].tolist()
    weights = analysis.task_seconds * analysis.tasks.function.is_in(functions)
    return where_of_tasks(analysis, weights)


def lines_sampled(recording: Recording, chosen: BoolArray) -> list[ProgramLine]:
    """Lines of the program with most of the time of the chosen samples."""
    return program_lines(recording, recording.samples.seconds * chosen)


def line_clause(lines: Sequence[ProgramLine]) -> str:
    """Sentence on the lines with most time, after another sentence."""
    total = sum(line.seconds for line in lines)
    most = [
        f"{line} {percent(line.seconds / total)}"
        for line in lines[:MOST_LINES]
        if line.seconds >= WORTH_NAMING * total
    ]
    return f". Hottest line{'s' * (len(most) > 1)}: {', '.join(most)}" if most else ""


def at_line(analysis: Analysis, weights: FloatArray) -> str:
    """Clause on the line of the program with most of some seconds of samples; or empty."""
    lines = own_lines(analysis.recording, weights)
    return f", at {lines[0]}" if lines else ""


def mostly_in(functions: Sequence[str]) -> str:
    """Sentence on functions, if there are any, after another sentence."""
    return f". Mostly in {in_words(functions)}" if functions else ""
