"""Comparing several runs with several: how often unchanged programs fail, and what is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from toolz import merge_with

from dask_diag import save
from dask_diag.analysis.compare import Variation, half_width_of_means
from dask_diag.analysis.compare_runs import compare_measures, compare_runs, measures_of
from dask_diag.cli.main import main
from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.errors import DiagnosticError

from .recordings import NOTHING
from .tables import filled_table

pytestmark = pytest.mark.once


def run(durations, factor=1.0, factors=None, outside=0.0):
    """A run of these tasks by function, one after the other; what is outside is no computation."""
    factors = factors or {}
    names = [name for name, took in durations.items() for _ in took]
    took = np.concatenate(
        [
            np.array(seconds, float) * factor * factors.get(name, 1.0)
            for name, seconds in durations.items()
        ]
    )
    stop = np.cumsum(took)
    computations = filled_table(
        "computations",
        {
            "computation": Categorical.of(["1-1"]),
            "start": [0.0],
            "stop": [float(stop[-1])],
            "workers": [1],
        },
    )
    columns = {
        "key": PrefixStrings.of(f"('{name}-1a2b', {n})" for n, name in enumerate(names)),
        "function": Categorical.of(names),
        "start": stop - took,
        "stop": stop,
        "thread_cpu": took / 2,
        "thread_noncpu": took / 2,
        "submitted": stop - took,
        "collected": stop,
        "computation": Categorical.of(["1-1"] * len(took)),
        "worker": Categorical.of(["thread-0"] * len(took)),
        "outcome": Categorical.of(["ok"] * len(took)),
    }
    return replace(
        NOTHING,
        start=0.0,
        stop=float(stop[-1]) + outside,
        computations=computations,
        tasks=filled_table("tasks", columns),
    )


WORK = {"load": [1.0, 2.0, 0.5], "sum": [0.3]}


def several(count, rng, noise=0.03, slower=1.0, **kwargs):
    return [run(WORK, slower * rng.lognormal(0.0, noise), **kwargs) for _ in range(count)]


def times(factor, measures):
    return {kind: {name: factor * s for name, s in of.items()} for kind, of in measures.items()}


def plus(one, other):
    return {kind: merge_with(sum, of, other[kind]) for kind, of in one.items()}


def measured(count, rng, noise=0.03, slower=1.0):
    """What is measured of `several`, of whose tasks all take so many times as long."""
    return [times(slower * rng.lognormal(0.0, noise), MEASURES_OF_WORK) for _ in range(count)]


MEASURES_OF_WORK = measures_of(run(WORK))


def rows_of(comparison):
    return {(row["kind"], row["name"]): row for row in comparison.changes.to_dicts()}


def test_wall_computing_functions_and_activities_are_compared():
    before = [run(WORK, outside=2.0), run(WORK, 1.02, outside=2.0)]
    after = [run(WORK, 1.01, {"sum": 10}, outside=2.0), run(WORK, 1.0, {"sum": 10}, outside=2.0)]
    rows = rows_of(compare_runs(before, after))
    assert [name for kind, name in rows if kind == "run"] == ["wall", "computing"]
    assert [name for kind, name in rows if kind == "function"] == ["sum", "load"]
    computing = rows["run", "computing"]
    assert computing["before"] == pytest.approx(3.8 * 1.01)
    assert computing["after"] == pytest.approx(6.5 * 1.005)
    assert rows["run", "wall"]["before"] == pytest.approx(computing["before"] + 2)
    assert rows["function", "sum"]["verdict"] == "slower"
    assert rows["function", "load"]["verdict"] == "unchanged"
    assert rows["activity", "thread-cpu"]["verdict"] == "more"
    assert rows["phase", "tasks"]["verdict"] == "slower"


def test_a_run_five_times_as_slow_is_never_within_the_spread_of_steady_runs():
    rng = np.random.default_rng(1)
    comparison = compare_runs(several(5, rng), several(5, rng, slower=4.6))
    assert comparison.regressions(0.1) == ["wall", "computing", "phase tasks", "load", "sum"]
    back = compare_runs(several(5, rng, slower=4.6), several(5, rng))
    assert back.regressions(0.0) == []
    assert rows_of(back)["run", "wall"]["verdict"] == "faster"


def test_tasks_of_different_sizes_are_no_sample():
    # One of twenty tasks takes 20 s more: among tasks that is chance, among runs it is not.
    sizes = {"f": np.geomspace(0.05, 1.0, 20)}
    slow = {"f": [*sizes["f"][:-1], 20.0]}
    rng = np.random.default_rng(2)
    before = [run(sizes, rng.lognormal(0.0, 0.03)) for _ in range(3)]
    after = [run(slow, rng.lognormal(0.0, 0.03)) for _ in range(3)]
    assert compare_runs(before, after).regressions(0.1) == ["wall", "computing", "phase tasks", "f"]


def test_a_slowdown_outside_computations_is_one_of_the_wall_alone():
    rng = np.random.default_rng(3)
    comparison = compare_runs(several(5, rng), several(5, rng, outside=4.0))
    assert comparison.regressions(0.1) == ["wall"]
    # A phase that was not there before is no slower one.
    assert rows_of(comparison)["phase", "after"]["verdict"] == "added"


def prepared(tasks, took):
    """A run of so many seconds of tasks, whose graph took these seconds."""
    one = run({"f": [tasks]})
    moved = {name: one.tasks[name] for name in one.tasks.columns}
    for name in ("start", "stop", "submitted", "collected"):
        moved[name] = moved[name] + took
    stop = one.stop + took
    columns = {name: one.computations[name] for name in one.computations.columns}
    columns |= {"stop": [stop], "called": [0.0], "prepared": [took]}
    return replace(
        one,
        stop=stop,
        tasks=filled_table("tasks", moved),
        computations=filled_table("computations", columns),
    )


def preparing(seconds, rng, noise=0.03):
    """What is measured of about ten seconds of tasks, whose graph takes about these seconds."""
    tasks = times(rng.lognormal(0.0, noise), TEN_SECONDS_OF_TASKS)
    return plus(tasks, times(seconds * rng.lognormal(0.0, noise), A_SECOND_OF_PREPARING))


TEN_SECONDS_OF_TASKS = measures_of(prepared(10.0, 0.0))
A_SECOND_OF_PREPARING = plus(measures_of(prepared(10.0, 1.0)), times(-1.0, TEN_SECONDS_OF_TASKS))


def test_what_is_simulated_is_what_is_measured():
    chance, again = np.random.default_rng(14), np.random.default_rng(14)
    assert flat(measured(1, chance, 0.3)[0]) == pytest.approx(
        flat(measures_of(*several(1, again, 0.3)))
    )
    expected = measures_of(
        prepared(10.0 * again.lognormal(0.0, 0.3), 3 * again.lognormal(0.0, 0.3))
    )
    assert flat(preparing(3.0, chance, 0.3)) == pytest.approx(flat(expected))


def flat(measures):
    return {
        (kind, name): s for kind, of in measures.items() for name, s in of.items() if abs(s) > 1e-9
    }


# Half as long again: 5 s are found in the wall, too; 0.5 s only as a phase; 0.1 s are no matter.
@pytest.mark.parametrize(
    ("seconds", "regressions"), [(10.0, ["wall", "computing"]), (1.0, []), (0.1, None)]
)
def test_a_phase_that_takes_longer_fails_a_build(seconds, regressions):
    rng = np.random.default_rng(11)
    before = [preparing(seconds, rng) for _ in range(5)]
    after = [preparing(1.5 * seconds, rng) for _ in range(5)]
    expected = [] if regressions is None else [*regressions, "phase preparing"]
    assert compare_measures(before, after).regressions(0.1) == expected
    assert compare_measures(after, before).regressions(0.0) == []


def test_a_phase_that_takes_a_tenth_longer_is_found_in_9_of_10_builds():
    rng = np.random.default_rng(12)
    builds = [
        compare_measures(
            [preparing(3.0, rng, 0.015) for _ in range(5)],
            [preparing(3.3, rng, 0.015) for _ in range(5)],
        ).regressions(0.1)
        for _ in range(100)
    ]
    assert sum("phase preparing" in build for build in builds) >= 90
    assert sum(bool({*build} - {"phase preparing", "wall", "computing"}) for build in builds) <= 2


@pytest.mark.parametrize("noise", [0.03, 0.3])
def test_phases_that_vary_on_their_own_fail_in_2_of_100_builds_at_most(noise):
    rng = np.random.default_rng(13)
    builds = [
        compare_measures(
            [preparing(5.0, rng, noise) for _ in range(4)],
            [preparing(5.0, rng, noise) for _ in range(4)],
        ).regressions(0.0)
        for _ in range(200)
    ]
    assert sum(map(bool, builds)) <= 0.02 * 200


def test_one_run_is_judged_by_the_spread_of_the_others():
    rng = np.random.default_rng(4)
    comparison = compare_runs(several(6, rng), several(1, rng, slower=1.5))
    assert comparison.runs == (6, 1)
    assert "wall" in comparison.regressions(0.1)
    values = np.array([1.0, 1.1, 0.9])
    # 2 degrees of freedom, of 1%: 6.965.
    width = half_width_of_means([Variation.of(values), Variation(1, np.nan)], 0.01)
    assert width == pytest.approx(6.965 * 0.1 * np.sqrt(1 / 3 + 1), rel=1e-3)


@pytest.mark.parametrize("sizes", [(1, 10), (2, 10), (2, 5), (10, 2), (2, 2), (3, 10), (5, 5)])
def test_chance_exceeds_the_width_as_often_as_the_risk_says_however_few_runs_a_side_has(sizes):
    rng, risk, times = np.random.default_rng(9), 0.02, 2_000
    exceeded = 0
    for _ in range(times):
        sides = [rng.normal(10.0, 0.3, size) for size in sizes]
        width = half_width_of_means([Variation.of(side) for side in sides], risk)
        exceeded += sides[1].mean() - sides[0].mean() > width
    # Three standard deviations of 2,000 draws: Welch's test alone had 0.039 with two beside ten.
    assert exceeded / times <= risk + 3 * np.sqrt(risk / times)


def test_one_run_each_is_not_judged():
    comparison = compare_runs([run(WORK)], [run(WORK, 9.0)])
    assert rows_of(comparison)["run", "wall"]["verdict"] == "too few runs"
    assert comparison.regressions(0.0) == []


def test_what_is_no_recording_is_refused():
    with pytest.raises(DiagnosticError, match="expected a Recording"):
        compare_runs([run(WORK)], ["a.diag"])


def of_run(run_id, computation, start=0.0):
    recording = run(WORK)
    columns = {"computation": [computation], "start": [0.0], "stop": [3.8], "workers": [1]}
    computations = filled_table("computations", columns)
    return replace(recording, run_id=run_id, start=start, computations=computations)


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        (of_run("a1", "a1-1"), True),  # a copy
        (of_run("a1", "a1-1", start=-1.0), True),  # of a profiler that was entered before
        (of_run("a1", "a1-2", start=-1.0), False),  # of another block of the same process
        (of_run("b2", "b2-1"), False),
    ],
)
def test_a_copy_is_no_run_of_its_own(other, is_same):
    copies = of_run("a1", "a1-1"), other
    for before, after in ((copies, [run(WORK)]), (copies[:1], copies[1:])):
        if is_same:
            with pytest.raises(DiagnosticError, match="two of the same run"):
                compare_runs(before, after)
        else:
            compare_runs(before, after)


def test_recordings_that_were_put_together_by_hand_are_runs_of_their_own():
    assert compare_runs([run(WORK), run(WORK)], [run(WORK)]).runs == (2, 1)


@pytest.mark.leaves_files
def test_the_command_names_the_copy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, run_id in (("a", "a1"), ("copy", "a1"), ("b", "b2")):
        save(of_run(run_id, f"{run_id}-1"), f"{name}.diag")
    arguments = ["compare", "--before", "a.diag", "copy.diag", "--after", "b.diag"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert "a.diag and copy.diag are recordings of the same run" in done.stderr


def failing(builds, seed, runs=5, noise=0.03, slower=1.0, above=0.1):
    rng = np.random.default_rng(seed)
    sides = (
        (measured(runs, rng, noise), measured(runs, rng, noise, slower)) for _ in range(builds)
    )
    return sum(bool(compare_measures(*side).regressions(above)) for side in sides)


# Of 1,000 builds each with 5 runs, 0.1% fail with 3% noise, 1.2% with 10% and 0.7% with 30%.
@pytest.mark.parametrize("noise", [0.03, 0.1, 0.3])
@pytest.mark.parametrize("runs", [2, 5])
def test_unchanged_programs_fail_in_2_of_100_builds_at_most(runs, noise):
    assert failing(100, seed=runs, runs=runs, noise=noise) <= 0.02 * 100


def test_also_at_zero_percent():
    assert failing(100, seed=7, above=0.0) <= 0.02 * 100


# Of 1,000: 97%.
def test_a_tenth_is_found_in_9_of_10_builds():
    assert failing(100, seed=8, slower=1.1) >= 0.92 * 100


def test_a_twentieth_fails_a_gate_of_a_tenth_less_often_with_more_runs():
    few, many = (failing(50, seed=9, runs=runs, slower=1.05) for runs in (5, 25))
    assert many == 0 < few < 0.5 * 50


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(10)
    for name, slower in (("a", 1.0), ("b", 1.0), ("c", 1.1)):
        for n, recording in enumerate(several(5, rng, slower=slower), start=1):
            save(recording, f"{name}-{n}.diag")


def names(letter):
    return [f"{letter}-{n}.diag" for n in range(1, 6)]


@pytest.mark.leaves_files
def test_the_command_takes_several_files_on_each_side(files):
    runner = CliRunner()
    arguments = ["compare", "--before", *names("a"), "--fail-above", "10%", "--after", *names("c")]
    done = runner.invoke(main, [*arguments, "--html", "page.html"])
    assert done.exit_code == 1
    assert (
        done.stderr == "slower, perhaps by 10% or more: wall, computing, phase tasks, load, sum\n"
    )
    assert done.stdout.startswith("5 runs before, 5 runs after: wall ")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "activity thread-cpu" in done.stdout
    assert '<tr class="slower">' in Path("page.html").read_text()
    same = runner.invoke(main, ["compare", "--before", *names("a"), "--after", *names("b")])
    assert same.exit_code == 0
    assert "unchanged" in same.stdout
    patterns = ["compare", "--before=a*.diag", "--after=c*.diag", "--fail-above", "10%"]
    assert runner.invoke(main, patterns).exit_code == 1


@pytest.mark.leaves_files
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a-1.diag"], "expected two recordings, BEFORE and AFTER"),
        (["--before", "a-1.diag", "b-1.diag"], "name the recordings of the other side: --after"),
        (["c-1.diag", "--before", "a-1.diag", "--after", "b-1.diag"], "c-1.diag: say on which"),
        (["--before", "a-1.diag", "a-2.diag", "--after", "a-1.diag"], "a-1.diag is named twice"),
        (["--before", "none*.diag", "--after", "a-1.diag", "a-2.diag"], "No such file"),
    ],
)
def test_arguments_that_make_no_two_sides_are_refused(files, arguments, message):
    done = CliRunner().invoke(main, ["compare", *arguments])
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


@pytest.mark.leaves_files
def test_one_recording_each_is_compared_task_by_task(files):
    done = CliRunner().invoke(main, ["compare", "--before", "a-1.diag", "--after", "c-1.diag"])
    assert done.exit_code == 0
    assert "a-1.diag → c-1.diag" in done.stdout


def test_sides_are_lists_of_recordings():
    one, other = (replace(NOTHING, run_id=name) for name in "ab")
    assert compare_runs(iter([one]), (other,)).runs == (1, 1)
    for wrong in (one, None, 5):
        with pytest.raises(
            DiagnosticError, match=r"^before: expected a list of recordings, found "
        ):
            compare_runs(wrong, [other])
