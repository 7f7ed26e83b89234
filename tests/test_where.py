"""Where findings are, what sort of number they state, and how both are shown."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from dask_diag import Finding, FindingLocation, export, findings, report, summary
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import MOST_INTERVALS, merged_intervals
from dask_diag.errors import DiagnosticError
from dask_diag.views.findings import location

from .recordings import Task, run, two_at_once, with_columns, with_waits
from .test_finding_thresholds import chain

pytestmark = pytest.mark.once


def test_intervals_are_joined_where_they_meet_and_of_many_the_closest():
    for pairs, expected in (
        ([(3, 4), (0, 2), (1, 3)], ((0, 4),)),
        ([(3, 4), (0, 2)], ((0, 2), (3, 4))),
        ([(0, 9), (1, 2), (3, 4)], ((0, 9),)),
        ([], ()),
        ([(1, 1), (math.nan, 2)], ()),
    ):
        assert merged_intervals(*np.array(pairs, float).reshape(-1, 2).T) == expected
    # Gaps of 1, 2, 3, …: the widest remain.
    starts = np.cumsum(np.arange(30.0) + 1)
    joined = merged_intervals(starts, starts + 0.5)
    assert len(joined) == MOST_INTERVALS
    assert joined[0] == (starts[0], starts[10] + 0.5)
    assert joined[-1] == (starts[-1], starts[-1] + 0.5)


@pytest.mark.usefixtures("without_plots")
@pytest.mark.leaves_files
def test_a_finding_says_where_it_is_in_text_and_plain_data(tmp_path):
    recording = with_waits(two_at_once(cpu=0.5), "gil-wait")
    (finding,) = findings(recording)
    assert finding.where == FindingLocation(((0.0, 1.0),), ("thread-0", "thread-1"), ("work",))
    assert repr(finding.where) in repr(finding)
    assert f"certainty={finding.certainty!r}" in repr(finding)
    text = " ".join(summary(recording).split())
    assert finding.saving_in_words in text
    # There are no other workers.
    assert "Where: 0 s to 1.00 s." in text
    page = report(recording, tmp_path / "x.html").read_text()
    assert "0 s to 1.00 s." in page
    assert "; on thread-0" not in page
    (plain,) = json.loads(export(recording, tmp_path / "x.json").read_text())["findings"]
    assert plain == json.loads(json.dumps(finding.to_dict()))
    assert (plain["where"]["intervals"], plain["certainty"]) == ([[0.0, 1.0]], finding.certainty)
    assert replace(finding, potential_saving=math.nan).to_dict()["potential_saving"] is None


def test_a_location_names_times_and_workers_if_they_are_few():
    intervals = tuple((10.0 + n, 10.1 + n + n / 10) for n in range(5))
    workers = tuple(f"thread-{n}" for n in range(6))
    functions = ("named", "other\n", "one", "two", "three", "four")
    recording = replace(run([Task(0, 1, worker=n) for n in range(6)]), start=10.0)
    for where, expected in {
        FindingLocation(intervals, workers, functions): "in other\\n, one, two, three and 1 more",
        FindingLocation(intervals[:2], workers[:2], ("named",)): (
            "0 s to 100 ms, 1.00 s to 1.20 s; on thread-0, thread-1"
        ),
        FindingLocation(): "",
        FindingLocation(intervals[:1], ("unknown",)): "0 s to 100 ms",
        FindingLocation((), ("unknown", "thread-1")): "on thread-1",
        FindingLocation(((11.0, 12.0), (22.0, 22.0001))): "1.00 s to 2.00 s",
    }.items():
        finding = Finding(
            "straggler", "low", 1.0, "of named", "", certainty="estimate", where=where
        )
        assert location(finding, recording) == expected


@pytest.mark.parametrize(
    ("workers", "expected"), [(("worker-0",), "on worker-0"), (("worker-0", "worker-1"), "")]
)
def test_all_workers_of_a_cluster_are_no_location(workers, expected):
    lanes = ["worker-0/0", "worker-0/1", "worker-1/0"]
    recording = with_columns(run([Task(0, 1, worker=n) for n in range(3)]), "tasks", worker=lanes)
    finding = Finding(
        "straggler", "low", 1.0, "", "", certainty="estimate", where=FindingLocation((), workers)
    )
    assert location(finding, recording) == expected


def test_seconds_saved_are_the_difference_of_two_simulations():
    recording = run([Task(0, 1, 0.2), Task(1, 2, 0.2)], workers=1)
    analysis = Analysis(with_waits(recording, "io-wait"))
    for change, saved in (
        ({"remove": {"io-wait"}}, 1.6),
        ({"workers": 2}, 1.0),
        ({"speedup": {"work": 2.0}}, 1.0),
    ):
        for _ in range(2):
            assert analysis.seconds_saved(**change) == pytest.approx(saved)
    # Each change is simulated once, and what was recorded.
    assert analysis.simulator.tasks_replayed == 4 * 2


def test_what_cannot_be_simulated_is_not_known(monkeypatch):
    damaged = run([Task(0, 1, depends_on=(1,)), Task(1, 2, depends_on=(0,))])
    assert math.isnan(Analysis(damaged).seconds_saved(workers=4))
    with pytest.raises(DiagnosticError, match="dependencies are damaged"):
        findings(damaged)
    # Three tasks as recorded and with a change are six; what was simulated takes no time again,
    # and what is not of tasks needs no replay.
    monkeypatch.setattr("dask_diag.analysis.facts.MOST_SIMULATED", 6)
    few, many = Analysis(run(chain(2))), Analysis(run(chain(3)))
    assert few.seconds_saved(remove={"graph"}) == pytest.approx(0.0)
    assert few.simulator.tasks_replayed == 3
    for _ in range(2):
        assert few.seconds_saved(workers=4) == pytest.approx(0.0)
        assert few.simulator.tasks_replayed == 6
        assert math.isnan(few.seconds_saved(workers=8))
        assert math.isnan(many.seconds_saved(workers=4))
