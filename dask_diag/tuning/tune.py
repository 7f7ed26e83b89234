"""`tune`: record a program, try settings in turn, and name the settings to use."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from math import nan
from pathlib import Path
from time import monotonic
from typing import Any

from toolz import unique

from dask_diag.analysis.findings.rule import MEASURED, Finding
from dask_diag.analysis.memory import memory_headroom
from dask_diag.errors import DiagnosticError
from dask_diag.model.recording import Recording
from dask_diag.tuning.candidates import (
    Predictions,
    candidates,
    codes_answered,
    more_workers,
    requested,
)
from dask_diag.tuning.function_program import write_function
from dask_diag.tuning.interpreters import differing_versions, interpreters
from dask_diag.tuning.race import Race
from dask_diag.tuning.result import Agreement, Row, TuneResult, rows_of, winners
from dask_diag.tuning.settings import Setting, combined
from dask_diag.tuning.trials import ChildRunner, Program
from dask_diag.views.summary import findings


def findings_with_gains(
    findings: Iterable[Finding], rows: Sequence[Row]
) -> tuple[tuple[Finding, float], ...]:
    """The findings, each with the gain of the best remedy, or NaN.

    `rows` has the baseline first. A failing setting, or a different result, is no remedy.
    """
    gains: dict[str, float] = {}
    for row in rows[1:]:
        if row.gain is not None and row.is_right:
            for code in codes_answered(row.setting.reason):
                gains[code] = max(row.gain.estimate, gains.get(code, 0.0))
    measured = []
    for finding in findings:
        gain = gains.get(finding.code)
        if gain is None:
            measured.append((finding, nan))
        else:
            saved = max(0.0, rows[0].median * (1 - 1 / gain))
            measured.append((replace(finding, potential_saving=saved, certainty=MEASURED), gain))
    return tuple(measured)


_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DOUBLINGS = 3
"""Most times that the number of workers is doubled, while the most workers are the best."""
_ENOUGH = 0.1
"""Seconds of a run below which settings are lost in the time that python takes to start."""


def tune(
    program: str | os.PathLike[str] | Callable[[], Any] | Program,
    arguments: Sequence[str] = (),
    *,
    schedulers: Iterable[str] = (),
    workers: int | Iterable[int] = (),
    config: Mapping[str, str | Iterable[str]] | None = None,
    parameters: Mapping[str, Sequence[str]] | None = None,
    python: str | Sequence[str] = (),
    only: bool = False,
    budget: float | str = "10m",
    check: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> TuneResult:
    """Try settings on an unchanged program and measure which are faster.

    The program runs in child processes: once to be recorded, and then repeatedly, without and with
    each setting in turn, until the gains are certain or the budget is spent. ``tune`` tries what
    findings advise and a few settings that often help: one native thread, each local scheduler,
    more and fewer workers. Finally, it tries all faster settings together.

    Parameters
    ----------
    program : path or callable
        A script, or a function without arguments. A function is pickled with cloudpickle, and only
        the time of its call counts.
    arguments : sequence of str, optional
        Arguments of the script. Default: none.
    schedulers : iterable of {"threads", "processes", "sync"}, optional
        Schedulers to try in addition. Default: none.
    workers : int, or iterable of int, optional
        Numbers of workers to try in addition. Default: none.
    config : mapping of str to iterable of str, optional
        Values to try for keys of dask's configuration, such as ``{"array.chunk-size": ["64MiB"]}``.
        Default: none.
    parameters : mapping of str to sequence of str, optional
        Values to try for ``{name}`` in the arguments; the first value is the baseline. If a name is
        not in the arguments, values of an environment variable. Default: none.
    python : str or sequence of str, optional
        Python interpreters, such as ``"venv/bin/python"``: the first runs the baseline, the others
        are tried, and versions of packages that differ are listed. Their environments need not
        have dask_diag. Default: the interpreter that runs this.
    only : bool, default False
        Try only the settings passed here.
    budget : float or str, default "10m"
        Maximum time: seconds, or text such as ``"90s"``, ``"10m"`` or ``"1h"``.
    check : str, optional
        Shell command that receives the script's stdout on stdin; exit status 0 means that the
        output is right. Default: the output (or the result of the function) must be the same with
        each setting.
    progress : callable, optional
        Called with a line of text before each run. Default: no output.

    Returns
    -------
    TuneResult
        The settings with their gains. After Ctrl-C, the results so far.

    Raises
    ------
    DiagnosticError
        If the program fails without any setting, takes longer than the budget, computes nothing on
        a local scheduler, or a value cannot be tried.

    See Also
    --------
    what_if : Predict changes without running the program.

    Examples
    --------
    >>> from dask_diag import tune
    >>> result = tune("script.py", budget="5m")         # doctest: +SKIP
    >>> result.best.shell_lines()                       # doctest: +SKIP
    ['export DASK_SCHEDULER=processes']
    """
    values = _values("parameters", parameters)
    pairs = [
        (key, value) for key, several in _values("config", config).items() for value in several
    ]
    given = _texts("arguments", arguments)
    paths = list(unique([python] if isinstance(python, str) else _texts("python", python)))
    with ExitStack() as stack:
        if callable(program):
            if paths:
                raise DiagnosticError(
                    "python: expected with a script, as a function belongs to the interpreter that "
                    "runs this; found a function"
                )
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dask_diag-")))
            write_function(program, folder)
            name = "dask_diag.tuning.function_program"
            program = Program("module", name, [str(folder)], folder=folder)
        elif not isinstance(program, (Program, str, os.PathLike)):
            raise DiagnosticError(f"program: expected a script or a function, found {program!r}")
        elif not isinstance(program, Program):
            program = Program("script", os.fspath(program), given)
        if program.kind == "script" and not os.path.exists(program.what):
            raise DiagnosticError(f"cannot run {program.what}: there is no such file")
        defaults = {}
        for name, several in values.items():
            is_in_arguments = any(f"{{{name}}}" in text for text in program.arguments)
            _check_values(name, several, is_in_arguments)
            if is_in_arguments:
                defaults[name], *values[name] = several
        asked_for = requested(
            _schedulers(schedulers), _numbers(workers), pairs, values, program.arguments
        )
        found = stack.enter_context(interpreters(paths))
        others = [Setting(f"python: {one.path}", python=one.path) for one in found[1:]]
        program = replace(program, defaults=defaults, interpreters=found)
        result = tune_with(
            ChildRunner(program, check),
            [*others, *asked_for],
            only=only,
            budget=seconds_of_budget(budget),
            progress=progress or (lambda line: None),
            subject="stdout" if program.folder is None else "what it returns",
        )
        return replace(result, versions=tuple(differing_versions(found)))


def tune_with(
    runner: ChildRunner,
    asked_for: Sequence[Setting],
    *,
    budget: float,
    only: bool = False,
    progress: Callable[[str], None] = lambda line: None,
    clock: Callable[[], float] = monotonic,
    subject: str = "stdout",
) -> TuneResult:
    """Try settings with a runner of the program, and a clock."""
    race = Race(runner, clock, budget, progress)
    notes: list[str] = []
    recorded = race.start()
    if recorded.timed_out:
        raise DiagnosticError(
            "one run of the program takes longer than the budget; --budget gives more"
        )
    if recorded.failed:
        how = f"status {recorded.status}"
        error = f": {recorded.error}" if recorded.error else ""
        raise DiagnosticError(f"the program fails without any setting ({how}){error}")
    recording = recorded.recording
    if recording is None or recording.computations.scheduler.eq("distributed").all():
        raise DiagnosticError(
            "nothing to tune: the program computed nothing on Dask's local schedulers"
        )
    advised = findings(recording)
    tried = [*asked_for, *([] if only else candidates(recording, advised))]
    settings = list(unique(tried, key=lambda setting: setting.identity))
    is_interrupted = False
    try:
        race.run(settings)
        _run_combinations(race, subject, memory_headroom(recording).most)
    except KeyboardInterrupt:
        is_interrupted = True
        notes.append("interrupted: this is what was measured until then")
    result = _result(race, recording, advised, subject, notes)
    return replace(result, is_interrupted=is_interrupted)


def _run_combinations(race: Race, subject: str, most_that_fit: float) -> None:
    """Try twice as many workers if workers helped, and then all winners together."""
    for _ in range(_DOUBLINGS):
        tried = [contestant.setting for contestant in race.contestants]
        more = more_workers(tried, _winners(race, subject), most_that_fit)
        if more is None or race.is_out_of_time:
            break
        race.run([more])
    both = combined(_winners(race, subject))
    if both is not None and not race.is_out_of_time:
        race.run([both])


def _winners(race: Race, subject: str) -> list[Setting]:
    """The faster settings, the best first."""
    agreement = Agreement(race.baseline.trials.values(), subject)
    return [row.setting for row in winners(rows_of(race, {}, agreement))]


def _result(
    race: Race, recording: Recording, advised: list[Finding], subject: str, notes: list[str]
) -> TuneResult:
    predictions = Predictions(recording, advised)
    predicted = {
        contestant.setting.identity: predictions.gain(contestant.setting, race.baseline.median)
        for contestant in race.contestants
    }
    agreement = Agreement(race.baseline.trials.values(), subject)
    rows = rows_of(race, predicted, agreement)
    if agreement.note:
        notes.append(agreement.note)
    if race.is_out_of_time:
        notes.append("the budget was spent before every setting was decided")
    if 0 < race.baseline.median < _ENOUGH:
        notes.append("a run is so short that little but the start of python is measured")
    if race.baseline.dropped:
        notes.append(
            "the program failed without any setting, while settings were tried: none is advised"
        )
    for contestant in (race.baseline, *race.contestants):
        trials = [*contestant.trials.values(), contestant.recorded]
        error = next((trial.error for trial in trials if trial and trial.error), "")
        if error and contestant.dropped.startswith("fails"):
            notes.append(f"{contestant.setting.name} {contestant.dropped}: {error}")
    return TuneResult(tuple(rows), recording, findings_with_gains(advised, rows), tuple(notes))


def seconds_of_budget(value: float | str) -> float:
    """Seconds, of text such as ``90s`` or ``10m``."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([a-z]*)\s*", str(value))
    if match is None or match[2] not in _UNITS or not float(match[1]):
        raise DiagnosticError(f"budget: expected a time such as 90s, 10m or 1h, found {value!r}")
    return float(match[1]) * _UNITS[match[2]]


def _schedulers(schedulers: Iterable[str]) -> list[str]:
    names = _texts("schedulers", schedulers)
    for name in names:
        if name not in ("threads", "processes", "sync"):
            raise DiagnosticError(
                f"schedulers: expected threads, processes or sync, found {name!r}"
            )
    return names


def _values(name: str, given: object) -> dict[str, list[str]]:
    """A mapping of names to lists of values to try; a single value is a list of one."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise DiagnosticError(f"{name}: expected a mapping of names to values, found {given!r}")
    return {
        key: [str(values)]
        if isinstance(values, str) or not isinstance(values, Iterable)
        else list(map(str, values))
        for key, values in given.items()
    }


def _texts(name: str, given: object) -> list[str]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise DiagnosticError(f"{name}: expected a list of texts, found {given!r}")
    return list(map(str, given))


def _check_values(name: str, values: Sequence[str], is_in_arguments: bool) -> None:
    if is_in_arguments and len(values) < 2:
        raise DiagnosticError(
            f"parameters: expected two or more values of {name!r}, of which the first is the "
            f"baseline's, found {len(values)}"
        )
    if not values:
        raise DiagnosticError(
            f"parameters: expected values of {name!r} to try, found none; give one or more"
        )


def _numbers(workers: int | Iterable[int]) -> list[int]:
    numbers = [workers] if isinstance(workers, int) else list(workers)
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise DiagnosticError(f"workers: expected whole numbers above 0, found {number!r}")
    return numbers
