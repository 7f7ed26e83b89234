"""Comparing several runs with several: how often unchanged programs fail, and what is found."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from toolz import merge_with

from dask_diag import compare, save
from dask_diag.analysis.compare import Variation, half_width_of_means
from dask_diag.analysis.compare_runs import compare_measures, measures_of
from dask_diag.cli.main import main
from dask_diag.errors import DiagnosticError
from dask_diag.views.compare import run_comparison_summary

from .recordings import NOTHING, with_columns, with_tables

pytestmark = pytest.mark.once

WORK = {"load": [1.0, 2.0, 0.5], "sum": [0.3]}


def run(durations=WORK, factor=1.0, factors=None, outside=0.0, prepared=0.0):
    """A run of these tasks by function, one after the other, after its graph was prepared; what is
    outside is no computation."""
    factors = factors or {}
    names = [name for name, took in durations.items() for _ in took]
    took = [
        np.array(seconds, float) * factor * factors.get(name, 1.0)
        for name, seconds in durations.items()
    ]
    took = np.concatenate(took)
    stop = prepared + np.cumsum(took)
    last = float(stop[-1])
    computation = {"computation": "1-1", "start": 0.0, "stop": last, "workers": 1}
    if prepared:
        computation |= {"called": 0.0, "prepared": prepared}
    tasks = {
        "key": [f"('{name}-1a2b', {n})" for n, name in enumerate(names)],
        "function": names,
        "start": stop - took,
        "stop": stop,
        "submitted": stop - took,
        "collected": stop,
        "thread_cpu": took / 2,
        "thread_noncpu": took / 2,
        "computation": ["1-1"] * len(took),
        "worker": ["thread-0"] * len(took),
        "outcome": ["ok"] * len(took),
    }
    return with_tables(
        replace(NOTHING, start=0.0, stop=last + outside),
        computations={name: [value] for name, value in computation.items()},
        tasks=tasks,
    )


def several(count, rng, noise=0.03, slower=1.0, **kwargs):
    return [run(WORK, slower * rng.lognormal(0.0, noise), **kwargs) for _ in range(count)]


def times(factor, measures):
    return {kind: {name: factor * s for name, s in of.items()} for kind, of in measures.items()}


def plus(one, other):
    return {kind: merge_with(sum, of, other[kind]) for kind, of in one.items()}


MEASURES_OF_WORK = measures_of(run())
TEN_SECONDS_OF_TASKS = measures_of(run({"f": [10.0]}))
A_SECOND_OF_PREPARING = plus(
    measures_of(run({"f": [10.0]}, prepared=1.0)), times(-1.0, TEN_SECONDS_OF_TASKS)
)


def measured(rng, noise=0.03, slower=1.0):
    """What is measured of one of `several`, of whose tasks all take so many times as long."""
    return times(slower * rng.lognormal(0.0, noise), MEASURES_OF_WORK)


def preparing(rng, noise=0.03, seconds=5.0):
    """What is measured of about ten seconds of tasks, whose graph takes about these seconds."""
    tasks = times(rng.lognormal(0.0, noise), TEN_SECONDS_OF_TASKS)
    return plus(tasks, times(seconds * rng.lognormal(0.0, noise), A_SECOND_OF_PREPARING))


def rows_of(comparison):
    return {(row["kind"], row["name"]): row for row in comparison.changes.to_dicts()}


def test_what_is_simulated_is_what_is_measured():
    def flat(measures):
        rows = ((kind, name, s) for kind, of in measures.items() for name, s in of.items())
        return {(kind, name): s for kind, name, s in rows if abs(s) > 1e-9}

    chance, again = np.random.default_rng(14), np.random.default_rng(14)
    (one,) = several(1, again, 0.3)
    assert flat(measured(chance, 0.3)) == pytest.approx(flat(measures_of(one)))
    tasks, graph = 10.0 * again.lognormal(0.0, 0.3), 3 * again.lognormal(0.0, 0.3)
    expected = measures_of(run({"f": [tasks]}, prepared=graph))
    assert flat(preparing(chance, 0.3, 3.0)) == pytest.approx(flat(expected))


def test_wall_computing_functions_and_activities_are_compared():
    before = [run(outside=2.0), run(factor=1.02, outside=2.0)]
    after = [run(WORK, factor, {"sum": 10}, outside=2.0) for factor in (1.01, 1.0)]
    rows = rows_of(compare(before, after))
    assert [name for kind, name in rows if kind == "run"] == ["wall", "computing"]
    assert [name for kind, name in rows if kind == "function"] == ["sum", "load"]
    computing = rows["run", "computing"]
    assert computing["before"] == pytest.approx(3.8 * 1.01)
    assert computing["after"] == pytest.approx(6.5 * 1.005)
    assert rows["run", "wall"]["before"] == pytest.approx(computing["before"] + 2)
    verdicts = {
        ("function", "sum"): "slower",
        ("function", "load"): "unchanged",
        ("activity", "thread-cpu"): "more",
        ("phase", "tasks"): "slower",
    }
    assert {name: rows[name]["verdict"] for name in verdicts} == verdicts


EVENLY = {"f": np.geomspace(0.05, 1.0, 20)}
ONE_SLOW = {"f": [*EVENLY["f"][:-1], 20.0]}


@pytest.mark.parametrize(
    "before, after, regressions, verdicts",
    [
        # A run five times as slow is never within the spread of steady runs.
        (
            lambda rng: several(5, rng),
            lambda rng: several(5, rng, slower=4.6),
            ["wall", "computing", "phase tasks", "load", "sum"],
            {},
        ),
        (
            lambda rng: several(5, rng, slower=4.6),
            lambda rng: several(5, rng),
            [],
            {("run", "wall"): "faster"},
        ),
        # One of twenty tasks takes 20 s more: among tasks that is chance, among runs it is not.
        (
            lambda rng: [run(EVENLY, rng.lognormal(0.0, 0.03)) for _ in range(3)],
            lambda rng: [run(ONE_SLOW, rng.lognormal(0.0, 0.03)) for _ in range(3)],
            ["wall", "computing", "phase tasks", "f"],
            {},
        ),
        # What is slower outside computations is so in the wall alone; a phase that was not there
        # before is no slower one.
        (
            lambda rng: several(5, rng),
            lambda rng: several(5, rng, outside=4.0),
            ["wall"],
            {("phase", "after"): "added"},
        ),
        # One run each is not judged.
        (
            lambda rng: [run()],
            lambda rng: [run(factor=9.0)],
            [],
            {("run", "wall"): "too few runs"},
        ),
    ],
)
def test_regressions_of_runs(before, after, regressions, verdicts):
    rng = np.random.default_rng(1)
    comparison = compare(before(rng), after(rng))
    assert comparison.regressions(0.1) == regressions
    assert {name: rows_of(comparison)[name]["verdict"] for name in verdicts} == verdicts


def test_cpu_time_of_runs_is_compared_alone():
    rng = np.random.default_rng(3)
    before, busy = several(5, rng), several(5, rng, slower=2.0)
    # Twice as long on a busy machine, with the CPU time of before.
    busy = [
        with_columns(after, "tasks", thread_cpu=[*one.tasks.thread_cpu])
        for one, after in zip(several(5, rng), busy, strict=True)
    ]
    assert "wall" in compare(before, busy).regressions(0.1)
    of_cpu = compare(before, busy, of="cpu")
    assert of_cpu.regressions(0.0) == []
    assert set(of_cpu.changes["kind"].tolist()) == {"run", "function"}
    assert rows_of(of_cpu)["run", "cpu"]["verdict"] == "unchanged"


def regressions_of(builds, seed, runs, above, before, after=None):
    """What fails in each of so many builds, in which so many runs are measured on each side."""
    rng = np.random.default_rng(seed)
    sides = (
        [[side(rng) for _ in range(runs)] for side in (before, after or before)]
        for _ in range(builds)
    )
    return [compare_measures(*side).regressions(above) for side in sides]


# Half as long again: 5 s are found in the wall, too; 0.5 s only as a phase; 0.1 s are no matter.
@pytest.mark.parametrize(
    "seconds, regressions",
    [(10.0, ["wall", "computing", "phase preparing"]), (1.0, ["phase preparing"]), (0.1, [])],
)
def test_a_phase_that_takes_longer_fails_a_build(seconds, regressions):
    def once(rng):
        return preparing(rng, seconds=seconds)

    def longer(rng):
        return preparing(rng, seconds=1.5 * seconds)

    assert regressions_of(1, 11, 5, 0.1, once, longer) == [regressions]
    assert regressions_of(1, 11, 5, 0.0, longer, once) == [[]]


def test_a_phase_that_takes_a_tenth_longer_is_found_in_9_of_10_builds():
    builds = regressions_of(
        *(100, 12, 5, 0.1),
        lambda rng: preparing(rng, 0.015, 3.0),
        lambda rng: preparing(rng, 0.015, 3.3),
    )
    assert sum("phase preparing" in build for build in builds) >= 90
    assert sum(bool({*build} - {"phase preparing", "wall", "computing"}) for build in builds) <= 2


# Of 1,000 builds each with 5 runs, 0.1% fail with 3% noise, 1.2% with 10% and 0.7% with 30%; of
# those that take a tenth longer, 97%.
@pytest.mark.parametrize(
    "seed, program, builds, runs, noise, slower, above, least, most",
    [
        *(
            (runs, measured, 100, runs, noise, 1, 0.1, 0, 2)
            for runs in (2, 5)
            for noise in (0.03, 0.1, 0.3)
        ),
        (7, measured, 100, 5, 0.03, 1, 0.0, 0, 2),
        *((13, preparing, 200, 4, noise, 5.0, 0.0, 0, 4) for noise in (0.03, 0.3)),
        (8, measured, 100, 5, 0.03, 1.1, 0.1, 92, 100),
        # A twentieth fails a gate of a tenth less often with more runs.
        (9, measured, 50, 5, 0.03, 1.05, 0.1, 1, 24),
        (9, measured, 50, 25, 0.03, 1.05, 0.1, 0, 0),
    ],
)
def test_how_many_builds_fail(seed, program, builds, runs, noise, slower, above, least, most):
    def before(rng):
        return program(rng, noise, *[slower] * (program is preparing))

    def after(rng):
        return program(rng, noise, slower)

    failed = regressions_of(builds, seed, runs, above, before, after)
    assert least <= sum(map(bool, failed)) <= most


def test_one_run_is_judged_by_the_spread_of_the_others():
    rng = np.random.default_rng(4)
    comparison = compare(several(6, rng), several(1, rng, slower=1.5))
    assert comparison.runs == (6, 1)
    assert "wall" in comparison.regressions(0.1)
    # 2 degrees of freedom, of 1%: 6.965.
    values = np.array([1.0, 1.1, 0.9])
    width = half_width_of_means([Variation.of(values), Variation(1, np.nan)], 0.01)
    assert width == pytest.approx(6.965 * 0.1 * np.sqrt(1 / 3 + 1), rel=1e-3)


@pytest.mark.parametrize("sizes", [(1, 10), (2, 10), (2, 5), (10, 2), (2, 2), (3, 10), (5, 5)])
def test_chance_exceeds_the_width_as_often_as_the_risk_says_however_few_runs_a_side_has(sizes):
    rng, risk, count = np.random.default_rng(9), 0.02, 2_000
    exceeded = 0
    for _ in range(count):
        sides = [rng.normal(10.0, 0.3, size) for size in sizes]
        width = half_width_of_means([Variation.of(side) for side in sides], risk)
        exceeded += sides[1].mean() - sides[0].mean() > width
    # Three standard deviations of 2,000 draws: Welch's test alone had 0.039 with two beside ten.
    assert exceeded / count <= risk + 3 * np.sqrt(risk / count)


RISK_OF_RUNS, RISK_OF_PARTS = 0.012, 0.004


def around(seconds):
    """Three runs, whose variance is 0.04."""
    return np.array([seconds, seconds + 0.2, seconds - 0.2])


def compared(**quantities):
    """Three runs on each side: of each kind, the seconds of some names before and after."""
    kinds = {"run": {}, "phase": {}, "function": {}, "activity": {}, "line": {}, **quantities}
    kinds["run"] = {"wall": (around(10.0), around(10.0)), **kinds["run"]}

    def side(which):
        return [
            {
                # What took no time in a run is not among its measures.
                kind: {name: pair[which][n] for name, pair in of.items() if pair[which][n]}
                for kind, of in kinds.items()
            }
            for n in range(3)
        ]

    return compare_measures(side(0), side(1))


def width(risk):
    return pytest.approx(half_width_of_means([Variation(3, 0.04), Variation(3, 0.04)], risk))


@pytest.mark.parametrize(
    "wall, computing, tests",
    # Where they disagree each is one of two that might have changed by chance.
    [(13.0, 12.0, 1), (7.0, 6.0, 1), (13.0, 9.0, 2), (13.0, 6.0, 2), (10.0, 9.0, 2)],
)
def test_wall_and_computing_are_judged_at_the_full_risk_where_they_agree(wall, computing, tests):
    measures = {"wall": (around(10), around(wall)), "computing": (around(9), around(computing))}
    rows = rows_of(compared(run=measures))
    for name, change in (("wall", wall - 10), ("computing", computing - 9)):
        row = rows["run", name]
        assert row["spread"] == width(RISK_OF_RUNS / tests)
        assert row["change"] == pytest.approx(change)
        verdict = "slower" if change > 0 else "faster" if change else "unchanged"
        assert row["verdict"] == verdict


NOTHING_RUN, ONE_RUN = np.zeros(3), np.array([0.0, 0.0, 1.0])


@pytest.mark.parametrize(
    "kind, measures, verdicts, judged",
    [
        # The largest change is first. The risk is divided among those that may be slower.
        (
            "function",
            {
                "g": (around(4.0), around(6.0)),
                "f": (around(9.0), around(5.0)),
                "sometimes": (ONE_RUN, ONE_RUN),
                "old": (around(3.0), NOTHING_RUN),
                "new": (NOTHING_RUN, ONE_RUN),
                "not any more": (2 * ONE_RUN, NOTHING_RUN),
            },
            {
                "f": "faster",
                "old": "removed",
                "g": "slower",
                "not any more": "removed",
                "new": "added",
                "sometimes": "unchanged",
            },
            {"f": 3, "g": 3},
        ),
        ("function", {"f": (around(4.0), around(6.0))}, {"f": "slower"}, {"f": 1}),
        # A phase is judged from a hundredth of the wall on: what is shorter than 0.1 s on both
        # sides may not be slower.
        (
            "phase",
            {
                "tasks": (around(8.0), around(8.0)),
                "between": (np.full(3, 0.05), np.full(3, 0.2)),
                "before": (np.full(3, 0.05), np.full(3, 0.14)),
                "after": (np.full(3, 0.05), np.full(3, 0.09)),
            },
            {
                "between": "slower",
                "before": "unchanged",
                "after": "unchanged",
                "tasks": "unchanged",
            },
            {"tasks": 3},
        ),
        # Activities are more or less, and never slower.
        (
            "activity",
            {
                "thread-cpu": (around(3.0), around(5.0)),
                "idle": (around(6.0), around(3.0)),
                "other": (np.ones(3), np.ones(3)),
            },
            {"idle": "less", "thread-cpu": "more", "other": "unchanged"},
            {},
        ),
    ],
)
def test_parts_of_runs_are_judged(kind, measures, verdicts, judged):
    comparison = compared(**{kind: measures})
    rows = {name: row for (of, name), row in rows_of(comparison).items() if of == kind}
    assert {name: row["verdict"] for name, row in rows.items()} == verdicts
    if kind != "phase":
        assert list(rows) == list(verdicts)
    for name, tests in judged.items():
        assert rows[name]["spread"] == width(RISK_OF_PARTS / tests)
    assert (comparison.regressions(0.0) == []) == (kind == "activity")


def test_a_regression_reaches_the_share():
    same = compared(function={"f": (np.full(3, 1.0), np.full(3, 1.25))})
    assert (same.regressions(0.25), same.regressions(0.26)) == (["f"], [])


def test_the_seconds_of_a_run_are_those_that_are_known():
    recording = run(outside=2.0)
    stop = np.where(np.arange(len(recording.tasks)) == 1, np.nan, recording.tasks.stop)
    unfinished = replace(with_columns(recording, "tasks", stop=stop), start=-1.0)
    measures = measures_of(unfinished)
    # Tasks of 1, 2 and 0.5 s, the second of which did not stop, and of 0.3 s.
    assert measures["run"] == pytest.approx({"wall": 3.8 + 2.0 + 1.0, "computing": 3.8})
    assert measures["function"] == pytest.approx({"load": 1.5, "sum": 0.3})


def of_run(run_id, computation, start=0.0):
    made = with_columns(run(), "computations", computation=[computation])
    return replace(made, run_id=run_id, start=start)


@pytest.mark.parametrize(
    "other, is_same",
    [
        (of_run("a1", "a1-1"), True),  # a copy
        (of_run("a1", "a1-1", start=-1.0), True),  # of a profiler that was entered before
        (of_run("a1", "a1-2", start=-1.0), False),  # of another block of the same process
        (of_run("b2", "b2-1"), False),
    ],
)
def test_a_copy_is_no_run_of_its_own(other, is_same):
    copies = of_run("a1", "a1-1"), other
    for before, after in ((copies, [run()]), (copies[:1], copies[1:])):
        if is_same:
            with pytest.raises(DiagnosticError, match="two of the same run"):
                compare(before, after)
        else:
            compare(before, after)


def test_sides_are_lists_of_recordings():
    one, other = (replace(NOTHING, run_id=name) for name in "ab")
    assert compare(iter([one]), (other,)).runs == (1, 1)
    # Recordings that were put together by hand are runs of their own.
    assert compare([run(), run()], run()).runs == compare([run(), run()], [run()]).runs == (2, 1)
    for sides, message in (
        *(((wrong, [other]), "^before: expected a Recording, .*, found ") for wrong in (None, 5)),
        (([], [other]), "^before: expected .*found an empty list"),
        (([one], []), "^after: expected .*found an empty list"),
        (([one], ["a.diag"]), "^after: expected a Recording.*load a file"),
    ):
        with pytest.raises(DiagnosticError, match=message):
            compare(*sides)
    with pytest.raises(DiagnosticError, match=r"^of: expected 'time' or 'cpu', found 'wall'"):
        compare([one], [other], of="wall")


def test_runs_without_a_function_in_common_are_said_to_be_of_different_programs():
    warning = "no function ran in both: these seem to be recordings of different programs"
    f, g = ([measures_of(run({name: [1.0] * 9}))] * 2 for name in "fg")
    for after, is_said in ((g, True), (f, False)):
        text = run_comparison_summary(compare_measures(f, after))
        assert (warning in " ".join(text.split())) == is_said


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(10)
    for name, slower in (("a", 1.0), ("b", 1.0), ("c", 1.1)):
        for n, recording in enumerate(several(5, rng, slower=slower), start=1):
            save(recording, f"{name}-{n}.diag")


def compared_by_command(*arguments):
    done = CliRunner().invoke(main, ["compare", *arguments])
    return done.exit_code, done.stdout, " ".join(done.stderr.split())


@pytest.mark.leaves_files
def test_the_command_takes_several_files_on_each_side(files):
    a, b, c = ([f"{letter}-{n}.diag" for n in range(1, 6)] for letter in "abc")
    status, text, error = compared_by_command(
        "--before", *a, "--fail-above", "10%", "--after", *c, "--html", "page.html"
    )
    said = "page: page.html slower, perhaps by 10% or more: wall, computing, phase tasks, load, sum"
    assert (status, error) == (1, said)
    assert text.startswith("5 runs before, 5 runs after: wall ")
    assert max(map(len, text.splitlines())) <= 80
    assert "activity thread-cpu" in text
    assert '<tr class="slower">' in Path("page.html").read_text()
    options = ["--of", "cpu", "--before", *a, "--after", *c, "--fail-above", "10%"]
    status, text, error = compared_by_command(*options)
    assert (status, error) == (1, "slower, perhaps by 10% or more: cpu, load, sum")
    assert text.startswith("5 runs before, 5 runs after: CPU time of tasks 1.87 s →")
    rows = text.partition("─\n")[2].splitlines()
    assert [line.split()[0] for line in rows[:3]] == ["load", "sum", "CPU"]
    status, text, _ = compared_by_command("--before", *a, "--after", *b)
    assert (status, "unchanged" in text) == (0, True)
    patterns = "--before=a*.diag", "--after=c*.diag", "--fail-above", "10%"
    assert compared_by_command(*patterns)[0] == 1
    # One recording each is compared task by task.
    status, text, _ = compared_by_command("--before", "a-1.diag", "--after", "c-1.diag")
    assert (status, "a-1.diag → c-1.diag" in text) == (0, True)


@pytest.mark.leaves_files
def test_a_gate_that_could_not_see_the_slowdown_says_so(files):
    rng = np.random.default_rng(15)
    for name, slower in (("d", 1.0), ("e", 1.2)):
        for n, recording in enumerate(several(5, rng, noise=0.3, slower=slower), start=1):
            save(recording, f"{name}-{n}.diag")
    quiet, noisy = (
        ["--before=a*.diag", "--after=b*.diag"],
        ["--before=d*.diag", "--after=e*.diag"],
    )
    assert compared_by_command(*quiet, "--fail-above", "10%")[0] == 0
    status, text, error = compared_by_command(*noisy, "--fail-above", "10%")
    advice = "a quieter machine, or --of cpu, may show one of 10%"
    assert (status, error) == (
        3,
        "CANNOT TELL: these runs differ so much that a slowdown by less than 115% looks like chance; "
        + advice,
    )
    assert advice in " ".join(text.split())
    status, _, error = compared_by_command(*noisy, "--fail-above", "40%")
    assert (status, error.rpartition("; ")[2]) == (3, "about 46 runs on each side show one of 40%")
    # A gate above what chance explains, and a comparison that is no gate, judge as before.
    assert compared_by_command(*noisy, "--fail-above", "120%")[0] == 0
    assert compared_by_command(*noisy)[0] == 0


def test_so_many_runs_show_a_slowdown_as_are_advised():
    rng, noise, share = np.random.default_rng(16), 0.1, 0.1
    runs = compare_measures(*([measured(rng, noise) for _ in range(60)] for _ in "ab"))
    needed = runs.runs_to_show(share)
    slower = partial(measured, noise=noise, slower=1 + share)
    found = regressions_of(60, 17, needed, share, partial(measured, noise=noise), slower)
    assert (needed, 0.7 < sum(map(bool, found)) / 60 < 0.95) == (25, True)


@pytest.mark.leaves_files
@pytest.mark.parametrize(
    "arguments, message",
    [
        (["a-1.diag"], "expected two recordings, BEFORE and AFTER"),
        (["--before", "a-1.diag", "b-1.diag"], "missing --after FILE"),
        (
            ["c-1.diag", "--before", "a-1.diag", "--after", "b-1.diag"],
            "c-1.diag: is it a --before or",
        ),
        (["--before", "a-1.diag", "a-2.diag", "--after", "a-1.diag"], "a-1.diag is named twice"),
        (["--before", "none*.diag", "--after", "a-1.diag", "a-2.diag"], "No such file"),
        (
            ["--before", "d.diag", "copy.diag", "--after", "b-1.diag"],
            "d.diag and copy.diag are recordings of the same run",
        ),
    ],
)
def test_arguments_that_make_no_two_sides_are_refused(files, arguments, message):
    for name in ("d", "copy"):
        save(of_run("a1", "a1-1"), f"{name}.diag")
    status, _, error = compared_by_command(*arguments)
    assert status == 2
    assert message in error
