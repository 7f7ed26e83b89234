"""A race of settings: rounds of runs until each is decided or time is up; and gains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, nan, sqrt
from statistics import median

import numpy as np

from dask_diag.analysis.compare import t_quantile
from dask_diag.columns import FloatArray
from dask_diag.formatting import amount, seconds
from dask_diag.tuning.settings import BASELINE, Changes, Setting
from dask_diag.tuning.trials import ChildRunner, Trial

MIN_RUNS = 3
LOOKS = (3, 4, 5, 7, 10)
"""Numbers of runs after which a setting may be decided; the last is the maximum."""
SHOWN_RISK = 0.025
"""Risk on either side of the interval of 95% that is shown."""
RISK_OF_FALSE_WINNER = 0.002
"""Risk of calling any setting faster if none changes anything, over all settings and looks."""
SMALLEST_GAIN = 1.02
"""A smaller gain is not worth a setting."""


@dataclass(frozen=True)
class SpeedUp:
    """The gain of a setting: 2 is twice as fast, half the time.

    Attributes
    ----------
    estimate : float
        The geometric mean of the rounds' ratios.
    low, high : float
        The interval of 95%, for the setting alone.
    is_proven : bool
        Whether the setting is faster beyond chance, though many settings were tried, and
        looked at several times.
    """

    estimate: float
    low: float
    high: float
    is_proven: bool

    @property
    def is_hopeless(self) -> bool:
        """Whether more runs would not make the setting a winner."""
        return self.high < SMALLEST_GAIN


def gains(
    baseline: Mapping[int, float], settings: Mapping[Changes, Mapping[int, float]]
) -> dict[Changes, SpeedUp]:
    """The gain of each setting with at least `MIN_RUNS` rounds beside the baseline.

    Parameters
    ----------
    baseline : mapping of int to float
        The wall time in each round.
    settings : mapping
        The wall times of each setting, by identity.
    """
    logs = {
        name: np.log([baseline[n] / walls[n] for n in sorted(walls) if n in baseline])
        for name, walls in settings.items()
    }
    logs = {name: values for name, values in logs.items() if len(values) >= MIN_RUNS}
    if not logs:
        return {}
    degrees = {name: len(values) - 1 for name, values in logs.items()}
    variances = {name: float(values.var(ddof=1)) for name, values in logs.items()}
    pooled = sum(variances[name] * degrees[name] for name in logs) / sum(degrees.values())
    # All ratios have the baseline's noise in common, so that they are not independent samples. If
    # all walls vary alike, the mean of k variances has this many degrees of freedom (Satterthwaite
    # 1946), from n - 1 for one setting to 4 (n - 1) for very many.
    freedom = sum(degrees.values()) * 4 / (len(logs) + 3)
    risk = RISK_OF_FALSE_WINNER / (len(settings) * (len(LOOKS) + 1))
    return {
        name: _gain(values, variances[name], degrees[name], risk)
        if variances[name] > pooled
        else _gain(values, pooled, freedom, risk)
        for name, values in logs.items()
    }


def _gain(logs: FloatArray, variance: float, freedom: float, risk: float) -> SpeedUp:
    error, mean = sqrt(variance / len(logs)), float(logs.mean())
    width = t_quantile(SHOWN_RISK, freedom) * error
    is_proven = exp(mean) >= SMALLEST_GAIN and mean > t_quantile(risk, freedom) * error
    return SpeedUp(exp(mean), exp(mean - width), exp(mean + width), is_proven)


NOT_APPLIED = "not applied: "
"""Beginning of the verdict on a setting that does not reach the program."""
_HOPELESS = 2.0
"""A setting whose recorded run took that many times as long as the baseline's is not run again."""
_PATIENCE = 5.0
"""A run is ended after that many times the time of the baseline, and some seconds."""
_PATIENCE_SECONDS = 5.0
_NARROW = 1.10
"""A proven gain needs no more runs if its interval ends within that ratio of the estimate."""


@dataclass
class Contestant:
    """A setting with runs.

    Attributes
    ----------
    setting : Setting
    recorded : Trial or None
        The first run, recorded and not counted: to see whether the setting reaches the program,
        and to fill the caches of files.
    trials : dict of int to Trial
        The runs by round.
    dropped : str
        The reason to run the setting no more; empty if nothing is wrong.
    """

    setting: Setting
    recorded: Trial | None = None
    trials: dict[int, Trial] = field(default_factory=dict)
    dropped: str = ""
    is_decided: bool = False

    @property
    def walls(self) -> dict[int, float]:
        """The wall times of runs with a result, by round."""
        return {n: trial.wall for n, trial in self.trials.items() if not trial.failed}

    @property
    def median(self) -> float:
        """The median of the wall times; NaN without any."""
        walls = list(self.walls.values())
        return median(walls) if walls else nan

    @property
    def is_running(self) -> bool:
        """Whether the setting is to be run again."""
        return not (self.dropped or self.is_decided)


class Race:
    """Runs settings beside the baseline, in rounds.

    Parameters
    ----------
    runner : ChildRunner
    clock : callable
        Seconds, such as ``time.monotonic``.
    budget : float
        Seconds until the race ends, and the last run with the race.
    progress : callable
        Called with a line before each run.

    Attributes
    ----------
    baseline : Contestant
    contestants : list of Contestant
        Without the baseline.
    is_out_of_time : bool
    """

    def __init__(
        self,
        runner: ChildRunner,
        clock: Callable[[], float],
        budget: float,
        progress: Callable[[str], None],
    ) -> None:
        self._runner, self._clock, self._progress = runner, clock, progress
        self._deadline = clock() + budget
        self._round = 0
        self.baseline = Contestant(BASELINE)
        self.contestants: list[Contestant] = []
        self.is_out_of_time = False

    def start(self) -> Trial:
        """Record the first run of the baseline."""
        self._progress(f"{self.baseline.setting.name}: recording")
        first = self._runner.record(self.baseline.setting, self._deadline - self._clock())
        self.baseline.recorded = first
        return first

    def run(self, settings: Sequence[Setting]) -> None:
        """Try settings until each is decided; the baseline has been recorded."""
        added = [Contestant(setting) for setting in settings]
        self.contestants += added
        for contestant in added:
            first = self.baseline.recorded
            if first is None or not self._has_time_for(first):
                return
            self._record(contestant, first)
        last = self._round + LOOKS[-1]
        while self._round < last and any(contestant.is_running for contestant in added):
            if not self._run_round([contestant for contestant in added if contestant.is_running]):
                return
            if len(self.baseline.walls) >= MIN_RUNS:
                self._decide(added)

    def gains(self) -> dict[Changes, SpeedUp]:
        """The gains of the settings with enough runs, by identity."""
        walls = {contestant.setting.identity: contestant.walls for contestant in self.contestants}
        return gains(self.baseline.walls, walls)

    def _attempt(
        self, contestant: Contestant, run: Callable[[Setting, float], Trial], what: str
    ) -> Trial | None:
        """Run a setting; drop a failing setting. Return None if time was up before the end."""
        self._progress(f"{contestant.setting.name}: {what}")
        trial = run(contestant.setting, self._timeout())
        if trial.timed_out and self._clock() >= self._deadline:
            self.is_out_of_time = True
            return None
        if trial.failed:
            contestant.dropped = _why_failed(trial)
        return trial

    def _record(self, contestant: Contestant, first: Trial) -> None:
        """Record the first run of a setting; drop a setting without effect, or a slow one."""
        trial = self._attempt(contestant, self._runner.record, "recording")
        contestant.recorded = trial
        if trial is None or trial.failed:
            return
        contestant.dropped = _not_applied(contestant.setting, trial)
        if not contestant.dropped and trial.wall > _HOPELESS * first.wall:
            times = amount(trial.wall / first.wall)
            contestant.dropped = f"slower ({times} times, one recorded run)"

    def _run_round(self, contestants: list[Contestant]) -> bool:
        """Run the baseline and each setting once; return False if time is up.

        Each round starts with another setting.
        """
        order = [self.baseline, *contestants]
        shift = self._round % len(order)
        for contestant in order[shift:] + order[:shift]:
            previous = next(reversed(contestant.trials.values()), contestant.recorded)
            if not self._has_time_for(previous):
                return False
            what = f"run {len(contestant.trials) + 1}"
            trial = self._attempt(contestant, self._runner.run, what)
            if trial is None:
                return False
            contestant.trials[self._round] = trial
        self._round += 1
        return not self.baseline.dropped

    def _decide(self, contestants: list[Contestant]) -> None:
        gain_of = self.gains()
        for contestant in contestants:
            gain = gain_of.get(contestant.setting.identity)
            runs = len(contestant.walls)
            if gain is None or runs not in LOOKS:
                continue
            # Judged again while others run: the variance of walls is known better then.
            is_narrow = gain.high <= _NARROW * gain.estimate
            contestant.is_decided = (
                gain.is_hopeless or (gain.is_proven and is_narrow) or runs >= LOOKS[-1]
            )

    def _timeout(self) -> float:
        trials = [*self.baseline.trials.values(), self.baseline.recorded]
        walls = [trial.wall for trial in trials if trial is not None]
        patience = _PATIENCE * max(walls) + _PATIENCE_SECONDS
        return max(0.01, min(patience, self._deadline - self._clock()))

    def _has_time_for(self, trial: Trial | None) -> bool:
        """Whether a run as long as `trial` would end within the budget."""
        expected = trial.wall if trial is not None else 0.0
        if self._clock() + expected > self._deadline:
            self.is_out_of_time = True
        return not self.is_out_of_time


def _why_failed(trial: Trial) -> str:
    if trial.timed_out:
        return f"slower (ended after {seconds(trial.wall)})"
    how = f"signal {-trial.status}" if trial.status < 0 else f"status {trial.status}"
    return f"fails ({how})"


def _not_applied(setting: Setting, trial: Trial) -> str:
    """The reason why a setting does not reach the program, by a recorded run; or nothing."""
    if trial.recording is None or not len(trial.recording.computations):
        return ""
    computations = trial.recording.computations
    wanted = setting.scheduler
    if wanted is not None and wanted not in computations.scheduler.tolist():
        return f"{NOT_APPLIED}the script sets its own scheduler"
    if setting.workers is None or wanted == "synchronous":
        return ""
    if setting.workers not in computations.workers.tolist():
        if set(computations.scheduler.tolist()) == {"synchronous"}:
            return f"{NOT_APPLIED}the script runs on one worker"
        return f"{NOT_APPLIED}the script sets its own number of workers"
    return ""
