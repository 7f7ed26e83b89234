"""tune: which settings are run, how often, and what is said of them; by simulated programs."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dask_diag import DiagnosticError, Finding
from dask_diag.tuning.candidates import candidates
from dask_diag.tuning.race import LOOKS, SpeedUp, gains
from dask_diag.tuning.result import Row
from dask_diag.tuning.settings import Setting
from dask_diag.tuning.trials import Trial
from dask_diag.tuning.tune import findings_with_gains, seconds_of_budget, tune_with

from .recordings import NOTHING, with_tables

pytestmark = pytest.mark.once


def recorded(scheduler="threads", workers=2):
    row = {"computation": "1-1", "start": 0.0, "stop": 1.0}
    row |= {"workers": workers, "scheduler": scheduler}
    computations = {name: [value] for name, value in row.items()}
    return with_tables(replace(NOTHING, start=0.0, stop=1.0), computations=computations)


class Simulated:
    """A program that takes so many seconds with each setting, by a clock of its own.

    Seconds are by name, or a function of the setting. `run` and `record` change what is measured,
    by the setting, the trial and the program.
    """

    def __init__(self, walls=None, noise=0.0, seed=0, default=10.0, run=None, record=None):
        self.walls, self.noise, self.default = walls or {}, noise, default
        self.change_run, self.change_record = run, record
        self.rng = np.random.default_rng(seed)
        self.now = 0.0
        self.runs, self.records = [], []

    def trial(self, setting, timeout, change, **measured):
        if callable(self.walls):
            wall = self.walls(setting)
        else:
            wall = self.walls.get(setting.name, self.default)
        wall *= self.rng.lognormal(0, self.noise)
        self.now += min(wall, timeout)
        timed_out = wall > timeout
        trial = Trial(min(wall, timeout), -9 if timed_out else 0, timed_out, **measured)
        return replace(trial, **(change(setting, self) if change else {}))

    def run(self, setting, timeout):
        self.runs.append(setting.name)
        return self.trial(setting, timeout, self.change_run, output="same")

    def record(self, setting, timeout):
        self.records.append(setting.name)
        recording = recorded(setting.scheduler or "threads", setting.workers or 2)
        return self.trial(setting, timeout, self.change_record, recording=recording)

    def tune(self, settings=(), **kwargs):
        options = {"only": bool(settings), "budget": 1e6, **kwargs}
        return tune_with(self, list(settings), clock=lambda: self.now, **options)


def settings(*names):
    return [Setting(name, {f"VARIABLE_{name}": "1"}) for name in names]


def verdicts(result):
    return dict(
        zip(result.table["setting"].tolist(), result.table["verdict"].tolist(), strict=True)
    )


def of(name, **changed):
    """A change of what is measured with one setting."""
    return lambda setting, program: changed if setting.name == name else {}


def crash_later(setting, program):
    """It is known that "a" is faster by then; "b" is not decided, so the program is run again."""
    fails = setting.name == "as it is" and program.runs.count("as it is") > 4
    return {"status": 1, "error": "KeyError: 3"} if fails else {}


def always_new(setting, program):
    return {"output": str(program.now)}


def checked(setting, program):
    return {"output": str(program.now), "check": int(setting.name == "a")}


@pytest.mark.parametrize(
    "program, options, names, expected, best, said",
    [
        (
            {"walls": {"a": 5.0, "b": 10.0, "c": 11.5}, "noise": 0.02},
            {},
            "abc",
            {"a": "faster", "b": "no difference", "c": "slower"},
            "a",
            ["To use it", "export VARIABLE_a=1"],
        ),
        # A setting that crashes is reported, and others go on; also if it does so later on.
        (
            {"walls": {"a": 5.0}, "noise": 0.01, "record": of("x", status=3, error="Boom")},
            {},
            "xa",
            {"x": "fails (status 3)"},
            "a",
            ["x fails (status 3): Boom"],
        ),
        (
            {
                "walls": {"x": 2.0, "a": 5.0},
                "noise": 0.01,
                "run": of("x", status=3, error="Boom"),
            },
            {},
            "xa",
            {},
            "a",
            [],
        ),
        # A faster setting with another result is not used. Results that always differ cannot be
        # compared, and that is said; a command decides instead.
        (
            {"walls": {"a": 2.0, "b": 5.0}, "noise": 0.01, "run": of("a", output="other")},
            {},
            "ab",
            {"a": "faster, stdout differs"},
            "b",
            ["a: faster, stdout differs"],
        ),
        (
            {"walls": {"a": 5.0}, "noise": 0.01, "run": always_new},
            {},
            "a",
            {},
            "a",
            ["stdout already differs between runs of the baseline"],
        ),
        (
            {"walls": {"a": 2.0, "b": 5.0}, "noise": 0.01, "run": checked},
            {},
            "ab",
            {"a": "faster, --check fails"},
            "b",
            [],
        ),
        # Nothing is advised against a program that fails while settings are tried.
        (
            {"walls": {"a": 5.0, "b": 9.8}, "noise": 0.02, "run": crash_later},
            {},
            "ab",
            {"a": "faster, but the program fails as it is"},
            None,
            ["failed without any setting", "KeyError: 3"],
        ),
        # A run that hangs is ended; one that the budget ended is not said to be slower.
        (
            {"walls": {"h": math.inf}},
            {},
            "ha",
            {"h": "slower (ended after 55.0 s)"},
            None,
            [],
        ),
        (
            {"walls": {"a": 14.0}},
            {"budget": 21.0},
            "a",
            {"a": "too few runs (0 of 3)"},
            None,
            ["the budget was spent before every setting was decided"],
        ),
        # Why a setting without a difference was run no more is said.
        (
            {"walls": {"s": 10.05}, "noise": 0.003, "seed": 1},
            {},
            "s",
            {"s": "no difference"},
            None,
            ["ended early: s (after 3 runs: at most 1.01x as fast, not worth more runs)"],
        ),
        # Four rounds of two runs of ten seconds, beside two that are recorded.
        (
            {"walls": {"b": 9.9}, "noise": 0.1, "seed": 1},
            {"budget": 100},
            "b",
            {"b": "no difference"},
            None,
            ["ended early: b (after 4 runs, as time was up: 0.71x to 1.45x as fast)"],
        ),
        (
            {},
            {"budget": 65.0},
            "abcd",
            dict.fromkeys("abcd", "too few runs (0 of 3)"),
            None,
            ["No setting is known to be faster: 4 of 4 settings had too"],
        ),
    ],
)
def test_what_is_said_of_settings(program, options, names, expected, best, said):
    made = Simulated(**program)
    result = made.tune(settings(*names), **options)
    found = verdicts(result)
    assert {name: found[name] for name in expected} == expected
    assert (result.best and result.best.name) == best
    text = unwrapped(result)
    assert not [words for words in said if words not in text]
    assert made.now <= options.get("budget", math.inf)
    assert text.count("too few runs: ") <= 1


def test_a_gain_has_its_interval():
    row = Simulated({"a": 5.0, "b": 10.0}, noise=0.02).tune(settings("a", "b")).rows[1]
    assert row.gain.low < 2.0 < row.gain.high
    assert row.median == pytest.approx(5.0, rel=0.05)


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


def unwrapped(result):
    return " ".join(result.summary().split())


def test_names_of_settings_are_shown_whole():
    name = "array.chunk-size=64MiB and " + "a-word " * 12 + "end"
    text = Simulated().tune(settings(name, "scheduler=threads, 12 workers")).summary()
    assert max(map(len, text.splitlines())) <= 80
    table = text.partition("─\n")[2].partition(" as it is")[0]
    words = " ".join(line[:22] for line in table.splitlines()).split()
    # No word is broken but at the sign.
    assert " ".join(words).startswith("array.chunk-size= 64MiB and a-word a-word ")
    assert words[-3:] == ["scheduler=threads,", "12", "workers"]


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


@pytest.mark.parametrize("gain, share", [(1.2, 0.95), (1.5, 0.99), (3.0, 0.99)])
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


def test_runs_count_that_the_baseline_had_too():
    """No setting has "too few runs (3 of 3)": a round without the baseline says nothing."""
    for budget in range(60, 240, 5):
        result = Simulated(noise=0.1).tune(settings(*"abcd"), budget=float(budget))
        assert "too few runs (3 of 3)" not in verdicts(result).values()


def test_a_program_that_takes_longer_than_the_budget_does_not_fail():
    with pytest.raises(DiagnosticError, match="takes longer than the budget; --budget gives more"):
        Simulated().tune(settings("a"), budget=5.0)


def test_ctrl_c_shows_what_is_known():
    def interrupt(setting, program):
        if program.now > 110:
            raise KeyboardInterrupt
        return {}

    program = Simulated({"a": 4.0}, noise=0.02, run=interrupt)
    result = program.tune(settings("a", "b"))
    assert result.is_interrupted
    assert result.best.name == "a"
    assert "interrupted: this is what was measured until then" in result.summary()


def test_a_setting_that_crashes_is_run_no_more():
    crashes = of("bad", status=3, error="Boom")
    program = Simulated({"bad": 2.0, "a": 5.0}, noise=0.01, run=crashes)
    program.tune(settings("bad", "a"))
    assert program.runs.count("bad") == 1


@pytest.mark.parametrize(
    "record, message",
    [
        (
            {"status": 1, "error": "KeyError: 3"},
            r"fails without any setting \(status 1\): KeyError: 3",
        ),
        ({"recording": NOTHING}, "computed nothing on Dask's local schedulers"),
        ({"recording": recorded("distributed")}, "nothing on Dask's local schedulers"),
    ],
)
def test_a_program_that_fails_or_computes_nothing_by_itself_is_not_tuned(record, message):
    with pytest.raises(DiagnosticError, match=message):
        Simulated(record=lambda setting, program: record).tune(settings("a"))


def test_a_program_that_sets_its_own_scheduler_or_workers():
    own = Simulated(record=lambda setting, program: {"recording": recorded("threads", 3)})
    result = own.tune()
    said = verdicts(result)
    assert said["scheduler=processes"] == "not applied: the script sets its own scheduler"
    assert said["6 workers"] == "not applied: the script sets its own number of workers"
    text = result.summary()
    reason = "- not applied, the script sets its own scheduler: scheduler=processes; scheduler="
    assert reason in " ".join(text.split())
    table = text.partition("─\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in table.splitlines()] == ["as"]
    assert text.startswith("No setting is faster: 0 settings tried, 5 could not be\n")
    assert not {"scheduler=processes", "6 workers"} & set(own.runs)


def test_what_helps_is_tried_together_and_workers_are_doubled_while_that_helps():
    def wall(setting):
        return 10.0 / min((setting.workers or 2) / 2, 8) / (2 if setting.variables else 1)

    program = Simulated(wall, noise=0.01)
    result = program.tune([Setting("one", {"THREADS": "1"})], only=False)
    assert {"8 workers", "16 workers", "32 workers"} <= set(verdicts(result))
    assert "64 workers" not in verdicts(result)
    assert result.best.environment == {
        "THREADS": "1",
        "DASK_NUM_WORKERS": result.best.config["num_workers"],
    }
    assert result.best.workers in (16, 32)
    assert f"    num_workers: {result.best.workers}" in result.summary()


def test_workers_that_gain_nothing_are_not_advised():
    def wall(setting):
        # Sixteen are faster by less than a test can care about, and never by chance.
        return 10.0 / min((setting.workers or 2) / 2, 4) - 0.01 * (setting.workers or 2)

    result = Simulated(wall).tune([Setting("8 workers", config={"num_workers": "8"})])
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
    "text, seconds",
    [("90s", 90), ("10m", 600), ("1.5h", 5400), (20, 20), ("3 min", 180)]
    + [(text, None) for text in ("", "10x", "-1m", "0", "m")],
)
def test_budgets(text, seconds):
    if seconds:
        assert seconds_of_budget(text) == seconds
    else:
        with pytest.raises(DiagnosticError, match="budget: expected a time such as 90s, 10m or 1h"):
            seconds_of_budget(text)


def test_settings_of_one_name_are_identified_by_what_they_change():
    slow = Setting("n=1", config={"n": "1"})
    fast = Setting("n=1", parameters={"n": "1"})
    program = Simulated(lambda setting: 5.0 if setting is fast else 9.8, noise=0.01)
    result = program.tune([slow, fast])
    assert result.best is fast
    assert str(result.summary()).endswith("\n\nUse 1 for {n} in the arguments.")
    rows = {id(row.setting): row for row in result.rows}
    assert rows[id(fast)].gain.estimate == pytest.approx(9.8 / 5, rel=0.03)
    assert rows[id(slow)].gain.estimate == pytest.approx(1, rel=0.03)


def test_fewer_workers_are_not_the_answer_to_a_finding_that_asks_for_more():
    advising = [Finding("io-bound", "high", 1.0, "", "", certainty="estimate")]
    reasons = {one.name: one.reason for one in candidates(recorded(workers=2), advising)}
    assert (reasons["4 workers"], reasons["1 worker"]) == ("io-bound", "")


def row(name, gain, reason="", is_right=True, median=4.0):
    measured = gain and SpeedUp(gain, gain - 0.1, gain + 0.1, True)
    setting = Setting(name, reason=reason)
    return Row(setting, [median] * 3, median, measured, math.nan, "", True, is_right)


def test_findings_carry_what_their_remedy_was_measured_to_save():
    def finding(code):
        return Finding(code, "high", 9.0, "evidence", "advice", certainty="estimate")

    rows = [
        row("as it is", None),
        row("threads: 8", 2.0, "too-few-threads"),
        row("processes", 4.0, "gil-bound", is_right=False),
        row("native threads: 1", 0.5, "thread-oversubscription"),
    ]
    codes = ("too-few-threads", "io-bound", "gil-bound", "thread-oversubscription", "imbalance")
    measured = findings_with_gains(map(finding, codes), rows)
    # Of two findings with one remedy both have its gain; one that changes the result is no remedy.
    kinds = {
        finding.code: (finding.certainty, finding.potential_saving, gain)
        for finding, gain in measured
    }
    assert kinds["too-few-threads"] == kinds["io-bound"] == ("measured", 2.0, 2.0)
    assert kinds["thread-oversubscription"] == ("measured", 0.0, 0.5)
    for code in ("gil-bound", "imbalance"):
        kind, seconds, gain = kinds[code]
        assert (kind, seconds) == ("estimate", 9.0)
        assert gain != gain
