"""compare_runs: risks, verdicts and their order, of seconds written by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dask_diag.analysis.compare import Variation, half_width_of_means
from dask_diag.analysis.compare_runs import compare_measures, compare_runs, measures_of
from dask_diag.errors import DiagnosticError

from .tables import filled_table
from .test_compare_runs import WORK, rows_of, run

pytestmark = pytest.mark.once

RISK_OF_RUNS, RISK_OF_PARTS = 0.012, 0.004


def around(seconds):
    """Three runs, whose variance is 0.04."""
    return np.array([seconds, seconds + 0.2, seconds - 0.2])


def compared(**quantities):
    """Three runs on each side: of each kind, the seconds of some names before and after."""
    kinds = {"run": {"wall": (around(10.0), around(10.0))}}
    for kind in ("phase", "function", "activity"):
        kinds[kind] = {}
    for kind, of in quantities.items():
        kinds[kind] |= of

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
    return half_width_of_means([Variation(3, 0.04), Variation(3, 0.04)], risk)


@pytest.mark.parametrize(
    ("wall", "computing", "risk"),
    [
        (13.0, 12.0, RISK_OF_RUNS),
        (7.0, 6.0, RISK_OF_RUNS),
        # Where they disagree each is one of two that might have changed by chance.
        (13.0, 9.0, RISK_OF_RUNS / 2),
        (13.0, 6.0, RISK_OF_RUNS / 2),
        (10.0, 9.0, RISK_OF_RUNS / 2),
    ],
)
def test_wall_and_computing_are_judged_at_the_full_risk_where_they_agree(wall, computing, risk):
    rows = rows_of(
        compared(
            run={
                "wall": (around(10.0), around(wall)),
                "computing": (around(9.0), around(computing)),
            }
        )
    )
    for name, before, after in (("wall", 10.0, wall), ("computing", 9.0, computing)):
        row = rows["run", name]
        assert row["spread"] == pytest.approx(width(risk))
        assert row["change"] == pytest.approx(after - before)
        changed = "slower" if after > before else "faster"
        assert row["verdict"] == ("unchanged" if after == before else changed)


def test_the_risk_is_divided_among_functions_that_may_be_slower():
    nothing, once = np.zeros(3), np.array([0.0, 0.0, 1.0])
    comparison = compared(
        function={
            "g": (around(4.0), around(6.0)),
            "f": (around(9.0), around(5.0)),
            "sometimes": (once, once),
            "old": (around(3.0), nothing),
            "new": (nothing, once),
            "not any more": (2 * once, nothing),
        }
    )
    rows = rows_of(comparison)
    verdicts = {
        "f": "faster",
        "old": "removed",
        "g": "slower",
        "not any more": "removed",
        "new": "added",
        "sometimes": "unchanged",
    }
    # The largest change first.
    assert {name: row["verdict"] for (kind, name), row in rows.items() if kind == "function"} == (
        verdicts
    )
    assert [name for kind, name in rows if kind == "function"] == list(verdicts)
    for name in ("f", "g"):
        assert rows["function", name]["spread"] == pytest.approx(width(RISK_OF_PARTS / 3))


def test_a_phase_is_judged_from_a_hundredth_of_the_wall_on():
    """The wall is 10 s: what is shorter than 0.1 s on both sides is no phase that may be slower."""
    rows = rows_of(
        compared(
            phase={
                "tasks": (around(8.0), around(8.0)),
                "between": (np.full(3, 0.05), np.full(3, 0.2)),
                "before": (np.full(3, 0.05), np.full(3, 0.14)),
                "after": (np.full(3, 0.05), np.full(3, 0.09)),
            }
        )
    )
    assert rows["phase", "tasks"]["spread"] == pytest.approx(width(RISK_OF_PARTS / 3))
    verdicts = [rows["phase", name]["verdict"] for name in ("tasks", "between", "before", "after")]
    assert verdicts == ["unchanged", "slower", "unchanged", "unchanged"]


def test_activities_are_more_or_less_and_never_slower():
    comparison = compared(
        activity={
            "thread-cpu": (around(3.0), around(5.0)),
            "idle": (around(6.0), around(3.0)),
            "other": (np.ones(3), np.ones(3)),
        }
    )
    rows = comparison.changes.to_dicts()[1:]
    assert [(row["name"], row["verdict"]) for row in rows] == [
        ("idle", "less"),
        ("thread-cpu", "more"),
        ("other", "unchanged"),
    ]
    assert comparison.regressions(0.0) == []


def test_a_function_alone_has_all_of_the_risk_and_a_regression_reaches_the_share():
    alone = compared(function={"f": (around(4.0), around(6.0))})
    assert rows_of(alone)["function", "f"]["spread"] == pytest.approx(width(RISK_OF_PARTS))
    same = {"function": {"f": (np.full(3, 1.0), np.full(3, 1.25))}}
    assert compared(**same).regressions(0.25) == ["f"]
    assert compared(**same).regressions(0.26) == []


def test_the_seconds_of_a_run_are_those_that_are_known():
    recording = run(WORK, outside=2.0)
    columns = {name: recording.tasks[name] for name in recording.tasks.columns}
    stop = np.where(np.arange(len(recording.tasks)) == 1, np.nan, recording.tasks.stop)
    unfinished = filled_table("tasks", {**columns, "stop": stop})
    measured = measures_of(replace(recording, start=-1.0, tasks=unfinished))
    # Tasks of 1, 2 and 0.5 s, the second of which did not stop, and of 0.3 s.
    assert measured["run"] == pytest.approx({"wall": 3.8 + 2.0 + 1.0, "computing": 3.8})
    assert measured["function"] == pytest.approx({"load": 1.5, "sum": 0.3})


def test_a_side_without_runs_is_refused():
    for name, sides in (("before", ([], [run(WORK)])), ("after", ([run(WORK)], []))):
        with pytest.raises(DiagnosticError, match=f"^{name}: expected at least one recording"):
            compare_runs(*sides)
