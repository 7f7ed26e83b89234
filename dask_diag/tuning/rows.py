"""What tuning found out of each setting: its gain and a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dask_diag.tuning.agreement import Agreement
from dask_diag.tuning.gains import LOOKS, MIN_RUNS, Gain
from dask_diag.tuning.race import Contestant
from dask_diag.tuning.settings import Changes, Setting

__all__ = ["Row", "best_of", "rows_of", "winners"]

_NAN = float("nan")
_AS_FAST = 1.05
"""More workers are worth their memory if they are that many times as fast."""


class Row(NamedTuple):
    """A setting, as it is shown.

    Attributes
    ----------
    setting : Setting
    walls : list of float
        Seconds of its runs.
    median : float
        Of the walls; NaN if there are none.
    gain : Gain or None
        None for the baseline, and if there were too few runs.
    predicted : float
        The gain that the recording of the baseline lets expect; NaN if it says nothing.
    verdict : str
    is_faster : bool
        Beyond chance, with the same result.
    is_right : bool
        Whether it ran to the end each time, with the same result as the baseline.
    ended_early : str
        Why it had fewer runs than others can have; empty if it was decided, or is not judged.
    """

    setting: Setting
    walls: list[float]
    median: float
    gain: Gain | None
    predicted: float
    verdict: str
    is_faster: bool
    is_right: bool = True
    ended_early: str = ""


def rows_of(
    baseline: Contestant,
    contestants: list[Contestant],
    gains: Mapping[Changes, Gain],
    predicted: Mapping[Changes, float],
    agreement: Agreement,
) -> list[Row]:
    """The baseline, and then the settings, the fastest first."""
    rows = []
    for contestant in contestants:
        gain = gains.get(contestant.setting.identity)
        objection = agreement.objection(contestant.trials.values())
        if baseline.dropped:
            objection = "but the program fails as it is"
        is_right = not contestant.dropped and not objection
        is_faster = gain is not None and gain.is_proven and is_right
        # Only a round that the baseline finished, too, says something of a gain.
        rounds = len(contestant.walls.keys() & baseline.walls.keys())
        verdict = contestant.dropped or _verdict(gain, rounds)
        if objection:
            verdict = f"{verdict}, {objection}"
        expected = predicted.get(contestant.setting.identity, _NAN)
        walls = list(contestant.walls.values())
        rows.append(
            Row(
                contestant.setting,
                walls,
                contestant.median,
                gain,
                expected,
                verdict,
                is_faster,
                is_right,
                "" if contestant.dropped else _ended_early(gain, contestant),
            )
        )
    rows.sort(key=_speed, reverse=True)
    walls = list(baseline.walls.values())
    first = Row(baseline.setting, walls, baseline.median, None, _NAN, "baseline", False)
    return [first, *rows]


def _verdict(gain: Gain | None, rounds: int) -> str:
    if gain is None:
        return f"too few runs ({rounds} of {MIN_RUNS})"
    if gain.is_proven:
        return "faster"
    if gain.low > 1:
        return "perhaps faster"
    return "slower" if gain.high < 1 else "no difference"


def _ended_early(gain: Gain | None, contestant: Contestant) -> str:
    """Why a setting that is neither faster nor slower beyond chance was run no more."""
    if gain is None or gain.is_proven or gain.high < 1 or len(contestant.walls) >= LOOKS[-1]:
        return ""
    runs = f"after {len(contestant.walls)} runs"
    if contestant.is_decided:
        return f"{runs}: at most {gain.high:.2f}x as fast, not worth more runs"
    return f"{runs}, as time was up: {gain.low:.2f}x to {gain.high:.2f}x as fast"


def winners(rows: Sequence[Row]) -> list[Row]:
    """Those that are faster beyond chance, with the same result; the best first.

    That is the fastest, or what is as fast with fewer workers and else the same.
    """
    faster = sorted((row for row in rows if row.is_faster), key=_speed, reverse=True)
    if not faster:
        return []
    fastest = faster[0]
    as_fast = [
        row
        for row in faster
        if row.setting.beside_workers == fastest.setting.beside_workers
        and (row.setting.workers is None) == (fastest.setting.workers is None)
        and _AS_FAST * _speed(row) >= _speed(fastest)
    ]
    best = min(as_fast, key=lambda row: row.setting.workers or 0)
    return [best, *(row for row in faster if row is not best)]


def best_of(rows: Sequence[Row]) -> Row | None:
    """The best of those that are faster beyond chance, with the same result."""
    return next(iter(winners(rows)), None)


def _speed(row: Row) -> float:
    return row.gain.estimate if row.gain else 0.0
