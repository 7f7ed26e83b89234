"""Settings to try, by a recording of the baseline, and predictions of gains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import inf, nan

from dask_diag.analysis.findings.cpu_waits import USUAL, VARIABLES
from dask_diag.analysis.findings.moving import SHUFFLING
from dask_diag.analysis.findings.rule import Finding
from dask_diag.analysis.findings.waiting import MORE_WORKERS
from dask_diag.analysis.memory import memory_headroom
from dask_diag.analysis.simulation.schedulers import COSTS
from dask_diag.analysis.simulation.simulate import Simulator
from dask_diag.errors import DiagnosticError
from dask_diag.formatting import counted
from dask_diag.model.recording import Recording
from dask_diag.model.tables import Computations
from dask_diag.tuning.settings import Setting, is_set_already, parameter_setting, variable_of

_ADVISED_BY = {
    "native threads": ("thread-oversubscription",),
    "processes": ("gil-bound", "lock-bound"),
    "threads": ("serialization-bound", "pool-startup"),
    "sync": ("tasks-too-small", "scheduler-bound"),
    "more workers": ("too-few-threads", "io-bound"),
    "more threads": ("too-few-threads", "io-bound"),
    "fewer workers": (),
    "chunksize": ("batched-tasks",),
    "shuffle": ("disk-shuffle",),
}
"""The codes of the findings that a setting answers."""
_ONLY_IF_ADVISED = frozenset({"chunksize", "more threads", "shuffle"})


def candidates(recording: Recording, findings: Sequence[Finding]) -> list[Setting]:
    """Settings to try on a program; settings advised by a finding come first.

    Parameters
    ----------
    recording : Recording
        A recording of the unchanged program.
    findings : sequence of Finding
        The findings of the recording.
    """
    codes = {finding.code for finding in findings}
    settings = []
    for subject, setting in _worth_a_try(recording):
        reason = next((code for code in _ADVISED_BY[subject] if code in codes), "")
        if subject in _ONLY_IF_ADVISED and not reason:
            continue
        if not is_set_already(setting):
            settings.append(replace(setting, reason=reason))
    return sorted(settings, key=lambda setting: not setting.reason)


def codes_answered(reason: str) -> tuple[str, ...]:
    """The codes of findings with an equal remedy; empty for no reason."""
    return next((codes for codes in _ADVISED_BY.values() if reason in codes), ())


def requested(
    schedulers: Iterable[str],
    workers: Iterable[int],
    config: Iterable[tuple[str, str]],
    parameters: Mapping[str, Sequence[str]],
    arguments: Sequence[str],
) -> list[Setting]:
    """The settings asked for by the user: a setting for each value."""
    settings = [_scheduler(name) for name in schedulers]
    settings += [_workers(number) for number in workers]
    for key, value in config:
        # A key that dask reads from no variable is an error before anything runs.
        variable_of(key)
        settings.append(Setting(f"{key}={value}", config={key: value}))
    for name, values in parameters.items():
        settings += [parameter_setting(name, value, arguments) for value in values]
    return settings


def more_workers(
    tried: Iterable[Setting], winners: Sequence[Setting], most_that_fit: float = inf
) -> Setting | None:
    """A setting with twice the workers of the best, if untried and if memory suffices."""
    most = max((setting.workers or 0 for setting in tried), default=0)
    number, scheduler = (winners[0].workers, winners[0].scheduler) if winners else (None, None)
    if number is None or number < most or scheduler == "processes" or 2 * number > most_that_fit:
        return None
    if not set(winners[0].changes) <= {"dask scheduler", "dask num_workers"}:
        return None
    return _scheduler_with_workers(scheduler, 2 * number)


def _worth_a_try(recording: Recording) -> Iterator[tuple[str, Setting]]:
    """Settings worth a try, each with a subject."""
    if variables := _variables_of_pools(recording):
        single = dict.fromkeys(variables, "1")
        yield "native threads", Setting("native threads: 1", single)
    computations = recording.computations
    used = set(computations.scheduler.tolist())
    now = max(1, int(computations.workers.max(initial=1)))
    most_that_fit = memory_headroom(recording).most
    # A program that ran one task at a time gets a worker for each CPU.
    alone = used == {"synchronous"}
    then = max(now, int(computations.cpus.max(initial=1))) if alone else now
    for name, recorded in (
        ("processes", "processes"),
        ("threads", "threads"),
        ("sync", "synchronous"),
    ):
        if used != {recorded} and (name == "sync" or then <= most_that_fit):
            yield name, _processes(computations) if name == "processes" else _scheduler(name)
    if "processes" in used:
        yield "chunksize", Setting("chunksize=1", config={"chunksize": "1"})
    # Bags have no other way.
    if not set(SHUFFLING).isdisjoint(recording.tasks.function.values):
        yield "shuffle", Setting("shuffle in memory", config={"dataframe.shuffle.method": "tasks"})
    if used != {"threads"} and MORE_WORKERS * now <= most_that_fit:
        # Tasks that wait need no process, which would have to start.
        yield "more threads", _scheduler_with_workers("threads", MORE_WORKERS * now)
    if alone:
        return
    most = min(computations.cpus.max(initial=1) if "processes" in used else inf, most_that_fit)
    for number in dict.fromkeys((2 * now, 4 * now, max(1, now // 2))):
        if number < now or now < number <= most:
            yield "more workers" if number > now else "fewer workers", _workers(number)


def _variables_of_pools(recording: Recording) -> list[str]:
    """Variables to limit the native thread pools seen, or the usual pools if not known."""
    pools = recording.pools.to_dicts()
    if any(not row["library"] for row in pools):
        libraries: Iterable[str] = USUAL
    else:
        libraries = {row["library"] for row in pools if row["threads"] > 1}
    # Worker processes load libraries that the computing process may not have.
    threads = recording.threads
    used = set(threads.name[threads.kind.eq("native")].tolist())
    libraries = {*libraries, *used.intersection(VARIABLES)}
    return sorted({VARIABLES.get(name, "OMP_NUM_THREADS") for name in libraries})


def _scheduler(name: str) -> Setting:
    return Setting(f"scheduler={name}", config={"scheduler": name})


def _processes(computations: Computations) -> Setting:
    """A setting with worker processes, at most as many as CPUs: each has to start."""
    most = int(computations.cpus.max(initial=0))
    if not 0 < most < computations.workers.max(initial=1):
        return _scheduler("processes")
    return _scheduler_with_workers("processes", most)


def _workers(number: int) -> Setting:
    return Setting(counted(number, "worker"), config={"num_workers": str(number)})


def _scheduler_with_workers(scheduler: str | None, number: int) -> Setting:
    """A setting with a number of workers of a scheduler; None is the program's own."""
    if scheduler is None:
        return _workers(number)
    config = {"scheduler": scheduler, "num_workers": str(number)}
    return Setting(f"scheduler={scheduler}, {counted(number, 'worker')}", config=config)


_SIMULATED = frozenset({"dask scheduler", "dask num_workers", "dask chunksize"})
"""Changes that the simulator knows. Findings that advise such a setting have the loss to a cause,
which other remedies may remove better."""


class Predictions:
    """Predictions of the gains of settings, by a recording of the baseline.

    Parameters
    ----------
    recording : Recording
    findings : sequence of Finding
        The findings of the recording.
    """

    def __init__(self, recording: Recording, findings: Sequence[Finding]) -> None:
        self._recording = recording
        self._findings = {finding.code: finding for finding in findings}

    @cached_property
    def _simulator(self) -> Simulator:
        return Simulator(self._recording)

    @cached_property
    def _as_it_was(self) -> float:
        # Simulated, not measured: an effect that the simulator misses is then missing in both.
        return self._simulator.simulate().seconds

    def gain(self, setting: Setting, wall: float) -> float:
        """The predicted gain for a program of `wall` seconds; NaN if not known."""
        saved = self._seconds_saved(setting)
        return wall / (wall - saved) if saved < wall else nan

    def _seconds_saved(self, setting: Setting) -> float:
        changes = set(setting.changes)
        if not changes & _SIMULATED:
            finding = self._findings.get(setting.reason)
            return finding.potential_saving if finding is not None else nan
        if changes - _SIMULATED or not self._is_known(setting):
            return nan
        chunksize = setting.config.get("chunksize")
        try:
            simulated = self._simulator.simulate(
                scheduler=setting.config.get("scheduler"),
                workers=setting.workers,
                chunksize=None if chunksize is None else int(chunksize),
            )
        except DiagnosticError:
            return nan
        return self._as_it_was - simulated.seconds

    def _is_known(self, setting: Setting) -> bool:
        """Whether the simulator knows the effect of a setting on the program."""
        config = setting.config
        scheduler, chunksize = config.get("scheduler"), config.get("chunksize")
        if scheduler is not None and scheduler not in COSTS:
            return False
        # Threads get one task at a time, whatever the chunksize.
        used = {scheduler} if scheduler else set(self._recording.computations.scheduler.tolist())
        if chunksize is not None and not (chunksize.isdecimal() and used == {"processes"}):
            return False
        return "num_workers" not in config or setting.workers is not None
