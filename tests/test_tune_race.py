"""tune: which settings are run, how often, and what is said of them; by simulated programs."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dask_diag.analysis.findings.rule import Finding
from dask_diag.columns import Categorical
from dask_diag.errors import DiagnosticError
from dask_diag.tuning.candidates import candidates
from dask_diag.tuning.race import LOOKS, MIN_RUNS, Gain, gains
from dask_diag.tuning.result import Row
from dask_diag.tuning.settings import Setting
from dask_diag.tuning.trials import Trial
from dask_diag.tuning.tune import findings_with_gains, seconds_of_budget, tune_with

from .recordings import NOTHING
from .tables import filled_table

pytestmark = pytest.mark.once


def recorded(scheduler="threads", workers=2):
    computations = filled_table(
        "computations",
        {
            "computation": Categorical.of(["1-1"]),
            "start": [0.0],
            "stop": [1.0],
            "workers": [workers],
            "scheduler": Categorical.of([scheduler]),
        },
    )
    return replace(NOTHING, start=0.0, stop=1.0, computations=computations)


class Simulated:
    """A program that takes so many seconds with each setting, by a clock of its own."""

    def __init__(self, walls=None, noise=0.0, seed=0, default=10.0, **special):
        self.walls, self.noise, self.default = walls or {}, noise, default
        self.special = special
        self.rng = np.random.default_rng(seed)
        self.now = 0.0
        self.runs, self.records = [], []

    def clock(self):
        return self.now

    def wall(self, setting, timeout):
        wall = self.walls.get(setting.name, self.default) * self.rng.lognormal(0, self.noise)
        self.now += min(wall, timeout)
        return min(wall, timeout), wall > timeout

    def run(self, setting, timeout):
        self.runs.append(setting.name)
        wall, timed_out = self.wall(setting, timeout)
        trial = Trial(wall, -9 if timed_out else 0, timed_out, output="same")
        change = self.special.get("run", lambda setting, trial: trial)
        return change(setting, trial)

    def record(self, setting, timeout):
        self.records.append(setting.name)
        wall, timed_out = self.wall(setting, timeout)
        recording = recorded(setting.scheduler or "threads", setting.workers or 2)
        trial = Trial(wall, -9 if timed_out else 0, timed_out, recording=recording)
        return self.special.get("record", lambda setting, trial: trial)(setting, trial)

    def tune(self, settings=(), **kwargs):
        options = {"only": bool(settings), "budget": 1e6, **kwargs}
        return tune_with(self, list(settings), clock=self.clock, **options)


def settings(*names):
    return [Setting(name, {f"VARIABLE_{name}": "1"}) for name in names]


def verdicts(result):
    return dict(
        zip(result.table["setting"].tolist(), result.table["verdict"].tolist(), strict=True)
    )


def test_the_faster_setting_is_found_with_its_gain():
    program = Simulated({"a": 5.0, "b": 10.0, "c": 11.5}, noise=0.02)
    result = program.tune(settings("a", "b", "c"))
    assert result.best.name == "a"
    assert verdicts(result)["a"] == "faster"
    assert verdicts(result)["b"] == "no difference"
    assert verdicts(result)["c"] == "slower"
    row = result.rows[1]
    assert row.gain.low < 2.0 < row.gain.high
    assert row.median == pytest.approx(5.0, rel=0.05)
    assert result.best.shell_lines() == ["export VARIABLE_a=1"]


def test_a_setting_that_is_asked_for_twice_is_tried_once():
    program = Simulated(noise=0.05)
    result = program.tune([*settings("a", "b"), Setting("again", {"VARIABLE_a": "1"})])
    assert sorted(verdicts(result)) == ["a", "as it is", "b"]


def test_runs_are_interleaved_and_each_round_starts_with_another():
    program = Simulated(noise=0.05)
    program.tune(settings("a", "b"))
    assert program.runs[:9] == ["as it is", "a", "b", "a", "b", "as it is", "b", "as it is", "a"]


def test_what_is_hopeless_is_run_no_more():
    program = Simulated({"bad": 25.0, "slower": 13.0, "good": 9.0}, noise=0.02)
    result = program.tune(settings("bad", "slower", "good"))
    assert program.runs.count("bad") == 0
    assert verdicts(result)["bad"].startswith("slower (2.49 times, one recorded run)")
    assert program.runs.count("slower") == 3
    assert program.runs.count("good") > 3


def test_why_a_setting_without_a_difference_was_run_no_more_is_said():
    result = Simulated({"same": 10.05}, noise=0.003, seed=1).tune(settings("same"))
    row = result.rows[1]
    assert (row.verdict, len(row.walls)) == ("no difference", MIN_RUNS)
    assert row.ended_early == "after 3 runs: at most 1.01x as fast, not worth more runs"
    assert f"ended early: same ({row.ended_early})" in unwrapped(result)


def test_a_setting_that_had_no_more_time_is_said_to_be_undecided():
    # Four rounds of two runs of ten seconds, beside two that are recorded.
    result = Simulated({"b": 9.9}, noise=0.1, seed=1).tune(settings("b"), budget=100)
    row = result.rows[1]
    assert (row.verdict, len(row.walls)) == ("no difference", 4)
    assert row.ended_early == "after 4 runs, as time was up: 0.71x to 1.45x as fast"
    assert f"ended early: b ({row.ended_early})" in unwrapped(result)


def unwrapped(result):
    return " ".join(result.summary().split())


def test_names_of_settings_are_shown_whole():
    name = "array.chunk-size=64MiB and " + "a-word " * 12 + "end"
    text = Simulated().tune(settings(name)).summary()
    assert max(map(len, text.splitlines())) <= 80
    table = text.partition("─\n")[2].partition(" as it is")[0]
    cells = "".join(line[:16] for line in table.splitlines())
    assert cells.replace(" ", "") == name.replace(" ", "")


def test_no_setting_is_faster_where_none_changes_anything():
    # Twenty programs of every noise, eight settings each.
    for noise in (0.01, 0.05, 0.2):
        for seed in range(20):
            program = Simulated(noise=noise, seed=seed)
            result = program.tune(settings(*"abcdefgh"))
            assert result.best is None
            assert result.summary().startswith("No setting is faster: 8 settings tried")


def test_chance_makes_a_winner_in_1_of_100_tables_at_most():
    rng = np.random.default_rng(0)
    winners = 0
    for _ in range(300):
        # One setting varies more than the others: what they have in common hides that.
        noise = np.array([0.15, 0.03, 0.03, 0.03, 0.03])
        walls = np.exp(rng.normal(0, 1, (5, LOOKS[-1])) * noise[:, None])
        base = dict(enumerate(np.exp(rng.normal(0, 0.03, LOOKS[-1]))))
        tables = (
            gains(
                {n: base[n] for n in range(look)},
                {str(k): dict(enumerate(row[:look])) for k, row in enumerate(walls)},
            )
            for look in LOOKS
        )
        winners += any(gain.is_proven for table in tables for gain in table.values())
    assert winners <= 3


@pytest.mark.parametrize(("gain", "share"), [(1.2, 0.95), (1.5, 0.99), (3.0, 0.99)])
def test_gains_are_found_beside_3_percent_of_noise(gain, share):
    successes = 0
    for seed in range(40):
        program = Simulated({"a": 10.0 / gain}, noise=0.03, seed=seed)
        successes += program.tune(settings("a", "b", "c")).best is not None
    assert successes >= share * 40


def test_the_budget_is_not_exceeded():
    program = Simulated(noise=0.1)
    result = program.tune(settings(*"abcd"), budget=205.0)
    assert program.now <= 205.0
    assert "the budget was spent before every setting was decided" in result.notes
    short = Simulated()
    result = short.tune(settings(*"abcd"), budget=65.0)
    assert short.now <= 65.0
    assert set(verdicts(result).values()) == {"baseline", "too few runs (0 of 3)"}
    assert result.best is None
    assert result.summary().startswith("No setting is known to be faster: 4 of 4 settings had too")
    # Once for all of them, and not in a line each.
    assert result.summary().count("too few runs: ") == 1


def test_runs_count_that_the_baseline_had_too():
    """No setting has "too few runs (3 of 3)": a round without the baseline says nothing."""
    for budget in range(60, 240, 5):
        result = Simulated(noise=0.1).tune(settings(*"abcd"), budget=float(budget))
        assert "too few runs (3 of 3)" not in verdicts(result).values()


def test_a_program_that_takes_longer_than_the_budget_does_not_fail():
    with pytest.raises(DiagnosticError, match="takes longer than the budget; --budget gives more"):
        Simulated().tune(settings("a"), budget=5.0)


def test_a_run_that_hangs_is_ended():
    program = Simulated({"hangs": math.inf})
    result = program.tune(settings("hangs", "a"))
    assert verdicts(result)["hangs"].startswith("slower (ended after 55.0 s)")
    assert program.runs.count("a") >= 3


def test_ctrl_c_shows_what_is_known():
    def interrupt(setting, trial):
        if program.now > 110:
            raise KeyboardInterrupt
        return trial

    program = Simulated({"a": 4.0}, noise=0.02, run=interrupt)
    result = program.tune(settings("a", "b"))
    assert result.is_interrupted
    assert result.best.name == "a"
    assert "interrupted: this is what was measured until then" in result.summary()


def test_a_setting_that_crashes_is_reported_and_others_go_on():
    def crash(setting, trial):
        return replace(trial, status=3, error="Boom") if setting.name == "bad" else trial

    program = Simulated({"a": 5.0}, noise=0.01, record=crash)
    result = program.tune(settings("bad", "a"))
    assert verdicts(result)["bad"] == "fails (status 3)"
    assert "bad fails (status 3): Boom" in result.notes
    assert result.best.name == "a"
    # Also if it does so later on.
    program = Simulated({"bad": 2.0, "a": 5.0}, noise=0.01, run=crash)
    assert program.tune(settings("bad", "a")).best.name == "a"
    assert program.runs.count("bad") == 1


def test_a_program_that_fails_by_itself_is_not_tuned():
    program = Simulated(record=lambda setting, trial: replace(trial, status=1, error="KeyError: 3"))
    with pytest.raises(
        DiagnosticError, match=r"fails without any setting \(status 1\): KeyError: 3"
    ):
        program.tune(settings("a"))
    empty = Simulated(record=lambda setting, trial: replace(trial, recording=NOTHING))
    with pytest.raises(DiagnosticError, match="computed nothing on Dask's local schedulers"):
        empty.tune(settings("a"))


def test_a_faster_setting_with_another_result_is_not_used():
    def other(setting, trial):
        return replace(trial, output="other") if setting.name == "a" else trial

    result = Simulated({"a": 2.0, "b": 5.0}, noise=0.01, run=other).tune(settings("a", "b"))
    assert verdicts(result)["a"] == "faster, stdout differs"
    assert result.best.name == "b"
    assert "a: faster, stdout differs" in result.summary()


def test_results_that_always_differ_cannot_be_compared_and_that_is_said():
    def new(setting, trial):
        return replace(trial, output=str(program.now))

    program = Simulated({"a": 5.0}, noise=0.01, run=new)
    result = program.tune(settings("a"))
    assert result.best.name == "a"
    assert any("stdout differs from run to run without any setting" in n for n in result.notes)


def test_the_check_command_decides_instead():
    def checked(setting, trial):
        return replace(trial, output=str(program.now), check=int(setting.name == "a"))

    program = Simulated({"a": 2.0, "b": 5.0}, noise=0.01, run=checked)
    result = program.tune(settings("a", "b"))
    assert verdicts(result)["a"] == "faster, --check fails"
    assert result.best.name == "b"


def test_a_program_that_sets_its_own_scheduler_or_workers():
    own = Simulated(record=lambda setting, trial: replace(trial, recording=recorded("threads", 3)))
    result = own.tune()
    said = verdicts(result)
    assert said["scheduler=processes"] == "not applied: the script sets its own scheduler"
    assert said["6 workers"] == "not applied: the script sets its own number of workers"
    assert "scheduler=processes: not applied: the script sets its own" in result.summary()
    assert not {"scheduler=processes", "6 workers"} & set(own.runs)


def test_what_helps_is_tried_together_and_workers_are_doubled_while_that_helps():
    class Workers(Simulated):
        def wall(self, setting, timeout):
            speed = min((setting.workers or 2) / 2, 8) * (2 if setting.variables else 1)
            wall = 10.0 / speed * self.rng.lognormal(0, 0.01)
            self.now += wall
            return wall, False

    result = Workers().tune([Setting("one", {"THREADS": "1"})], only=False)
    assert {"8 workers", "16 workers", "32 workers"} <= set(verdicts(result))
    assert "64 workers" not in verdicts(result)
    assert result.best.environment == {
        "THREADS": "1",
        "DASK_NUM_WORKERS": result.best.config["num_workers"],
    }
    assert result.best.workers in (16, 32)
    assert f"    num_workers: {result.best.workers}" in result.summary()


def test_workers_that_gain_nothing_are_not_advised():
    class Eight(Simulated):
        def wall(self, setting, timeout):
            # Sixteen are faster by less than a test can care about, and never by chance.
            wall = 10.0 / min((setting.workers or 2) / 2, 4)
            self.now += wall - 0.01 * (setting.workers or 2)
            return wall - 0.01 * (setting.workers or 2), False

    result = Eight().tune([Setting("8 workers", config={"num_workers": "8"})])
    assert set(verdicts(result)) == {"as it is", "8 workers", "16 workers"}
    assert verdicts(result)["16 workers"] == "faster"
    assert result.best.workers == 8
    assert "8 workers: 4.1" in result.summary()
    other = Simulated({"16 workers": 2.0, "a": 2.04}).tune(
        [Setting("16 workers", config={"num_workers": "16"}), *settings("a")]
    )
    assert other.best.workers == 16


def test_the_summary_is_80_columns_wide():
    program = Simulated({"a" * 90: 5.0}, noise=0.01)
    result = program.tune(settings("a" * 90, "b"))
    table, _, lines = result.summary().partition("To use it")
    assert max(map(len, table.splitlines())) <= 80
    assert "export VARIABLE_aaa" in lines
    assert "<script>" not in Simulated().tune(settings("<script>")).page("<script>")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400), (20, 20), ("3 min", 180)]
)
def test_budgets(text, seconds):
    assert seconds_of_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "10x", "-1m", "0", "m"])
def test_budgets_that_are_none(text):
    with pytest.raises(DiagnosticError, match="budget: expected a time such as 90s, 10m or 1h"):
        seconds_of_budget(text)


def test_settings_of_one_name_are_identified_by_what_they_change():
    slow = Setting("n=1", config={"n": "1"})
    fast = Setting("n=1", parameters={"n": "1"})
    program = Simulated(noise=0.01)
    program.wall = lambda setting, timeout: (
        advance(program, 5.0 if setting is fast else 9.8),
        False,
    )
    result = program.tune([slow, fast])
    assert result.best is fast
    assert str(result.summary()).endswith("\n\nUse 1 for {n} in the arguments.")
    rows = {id(row.setting): row for row in result.rows}
    assert rows[id(fast)].gain.estimate == pytest.approx(9.8 / 5, rel=0.01)
    assert rows[id(slow)].gain.estimate == pytest.approx(1, rel=0.01)


def advance(program, wall):
    program.now += wall
    return wall


def test_what_the_budget_ended_is_not_said_to_be_slower():
    program = Simulated({"a": 14.0})
    result = program.tune(settings("a"), budget=21.0)
    assert "slower" not in verdicts(result)["a"]
    assert "the budget was spent before every setting was decided" in result.notes


def test_nothing_is_advised_against_a_program_that_fails_while_settings_are_tried():
    def crash(setting, trial):
        fails = setting.name == "as it is" and program.runs.count("as it is") > 4
        return replace(trial, status=1, error="KeyError: 3") if fails else trial

    # It is known that "a" is faster by then; "b" is not decided, so the program is run again.
    program = Simulated({"a": 5.0, "b": 9.8}, noise=0.02, run=crash)
    result = program.tune(settings("a", "b"))
    assert verdicts(result)["a"] == "faster, but the program fails as it is"
    assert result.best is None
    assert any("failed without any setting" in note for note in result.notes)
    assert any("KeyError: 3" in note for note in result.notes)


def test_what_only_ran_on_a_cluster_is_not_tuned():
    program = Simulated(
        record=lambda setting, trial: replace(trial, recording=recorded("distributed"))
    )
    with pytest.raises(DiagnosticError, match="nothing on Dask's local schedulers"):
        program.tune(settings("a"))


def test_fewer_workers_are_not_the_answer_to_a_finding_that_asks_for_more():
    advising = [SimpleNamespace(code="io-bound")]
    reasons = {
        setting.name: setting.reason for setting in candidates(recorded(workers=2), advising)
    }
    assert (reasons["4 workers"], reasons["1 worker"]) == ("io-bound", "")


def row(name, gain, reason="", is_right=True, median=4.0):
    measured = gain and Gain(gain, gain - 0.1, gain + 0.1, True)
    setting = Setting(name, reason=reason)
    return Row(setting, [median] * 3, median, measured, math.nan, "", True, is_right)


def test_findings_carry_what_their_remedy_was_measured_to_save():
    def finding(code):
        return Finding(code, "high", 9.0, "evidence", "advice", kind="about")

    rows = [
        row("as it is", None),
        row("threads: 8", 2.0, "too-few-threads"),
        row("processes", 4.0, "gil-bound", is_right=False),
        row("native threads: 1", 0.5, "thread-oversubscription"),
    ]
    codes = ("too-few-threads", "io-bound", "gil-bound", "thread-oversubscription", "imbalance")
    measured = findings_with_gains(map(finding, codes), rows)
    # Of two findings with one remedy both have its gain; one that changes the result is no remedy.
    kinds = {finding.code: (finding.kind, finding.seconds_lost, gain) for finding, gain in measured}
    assert kinds["too-few-threads"] == kinds["io-bound"] == ("measured", 2.0, 2.0)
    assert kinds["thread-oversubscription"] == ("measured", 0.0, 0.5)
    for code in ("gil-bound", "imbalance"):
        kind, seconds, gain = kinds[code]
        assert (kind, seconds) == ("about", 9.0)
        assert gain != gain
