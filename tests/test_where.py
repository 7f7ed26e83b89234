"""Where findings are, what sort of number they state, and how both are shown."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from dask_diag import Finding, Where, export, findings, report, summary
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import MOST_INTERVALS, merged_intervals, where_of_tasks
from dask_diag.errors import DiagnosticError
from dask_diag.views.findings import location

from .test_finding_thresholds import Task, chain, run, two_at_once, with_waits

pytestmark = pytest.mark.once


def intervals(*pairs):
    starts, stops = np.array(pairs, float).reshape(-1, 2).T
    return merged_intervals(starts, stops)


def test_intervals_are_joined_where_they_meet():
    assert intervals((3, 4), (0, 2), (1, 3)) == ((0.0, 4.0),)
    assert intervals((3, 4), (0, 2)) == ((0.0, 2.0), (3.0, 4.0))
    assert intervals((0, 9), (1, 2), (3, 4)) == ((0.0, 9.0),)
    assert intervals() == intervals((1, 1), (math.nan, 2)) == ()


def test_of_many_intervals_the_closest_are_joined():
    # Gaps of 1, 2, 3, …: the widest remain.
    starts = np.cumsum(np.arange(30.0) + 1)
    joined = merged_intervals(starts, starts + 0.5)
    assert len(joined) == MOST_INTERVALS
    assert joined[0] == (starts[0], starts[10] + 0.5)
    assert joined[-1] == (starts[-1], starts[-1] + 0.5)


def test_where_tasks_are():
    tasks = [Task(0, 1, function="f"), Task(1, 2, function="g", worker=1), Task(3, 4, worker=1)]
    where = where_of_tasks(run(tasks), np.array([1.0, 2.0, math.nan]))
    assert where == Where(((0.0, 2.0),), ("thread-1", "thread-0"), ("g", "f"))
    assert where_of_tasks(run(tasks), np.zeros(3)) == Where()


def gil_bound():
    return with_waits(two_at_once(cpu=0.5), "gil-wait")


@pytest.mark.usefixtures("without_plots")
@pytest.mark.leaves_files
def test_a_finding_says_where_it_is_in_text_and_plain_data(tmp_path):
    recording = gil_bound()
    (finding,) = findings(recording)
    assert finding.where == Where(((0.0, 1.0),), ("thread-0", "thread-1"), ("work",))
    assert repr(finding.where) in repr(finding)
    assert f"kind={finding.kind!r}" in repr(finding)
    text = " ".join(summary(recording).split())
    assert f"{finding.kind} " in text
    # There are no other workers.
    assert "Where: 0 s to 1.00 s." in text
    page = report(recording, tmp_path / "x.html").read_text()
    assert "0 s to 1.00 s." in page
    assert "; on thread-0" not in page
    content = json.loads(export(recording, tmp_path / "x.json").read_text())
    (plain,) = content["findings"]
    assert plain == json.loads(json.dumps(finding.to_dict()))
    assert plain["where"]["intervals"] == [[0.0, 1.0]]
    assert plain["kind"] == finding.kind


def test_an_unknown_loss_is_none_in_plain_data():
    finding = Finding("straggler", "low", math.nan, "evidence", "advice", kind="measured")
    assert finding.to_dict()["seconds_lost"] is None


def test_a_location_names_times_and_workers_if_they_are_few():
    intervals = tuple((10.0 + n, 10.1 + n + n / 10) for n in range(5))
    workers = tuple(f"thread-{n}" for n in range(6))
    functions = ("named", "other\n", "one", "two", "three", "four")
    recording = replace(run([Task(0, 1, worker=n) for n in range(6)]), start=10.0)
    many = Where(intervals, workers, functions)
    finding = Finding("straggler", "low", 1.0, "of named", "", kind="about", where=many)
    assert location(finding, recording) == "in other\\n, one, two, three and 1 more"
    few = Where(intervals[:2], workers[:2], ("named",))
    assert location(replace(finding, where=few), recording) == (
        "0 s to 100 ms, 1.00 s to 1.20 s; on thread-0, thread-1"
    )
    assert location(replace(finding, where=Where()), recording) == ""
    unknown = Where(intervals[:1], ("unknown",))
    assert location(replace(finding, where=unknown), recording) == "0 s to 100 ms"
    both = Where((), ("unknown", "thread-1"))
    assert location(replace(finding, where=both), recording) == "on thread-1"
    short = Where(intervals=((11.0, 12.0), (22.0, 22.0001)))
    assert location(replace(finding, where=short), recording) == "1.00 s to 2.00 s"


def test_seconds_saved_are_the_difference_of_two_simulations():
    recording = run([Task(0, 1, 0.2), Task(1, 2, 0.2)], workers=1)
    analysis = Analysis(with_waits(recording, "io-wait"))
    assert analysis.seconds_saved(remove={"io-wait"}) == pytest.approx(1.6)
    assert analysis.seconds_saved(workers=2) == pytest.approx(1.0)
    assert analysis.seconds_saved(speedup={"work": 2.0}) == pytest.approx(1.0)


def test_each_change_is_simulated_once():
    analysis = Analysis(gil_bound())
    for _ in range(3):
        analysis.seconds_saved(remove={"gil-wait"})
    assert analysis.simulator.tasks_replayed == 2 * len(analysis.recording.tasks)


def test_what_cannot_be_simulated_is_not_known(monkeypatch):
    damaged = run([Task(0, 1, depends_on=(1,)), Task(1, 2, depends_on=(0,))])
    assert math.isnan(Analysis(damaged).seconds_saved(workers=4))
    with pytest.raises(DiagnosticError, match="dependencies are damaged"):
        findings(damaged)
    # Three tasks as recorded and with a change are six; what was simulated takes no time again.
    monkeypatch.setattr("dask_diag.analysis.facts.MOST_SIMULATED", 6)
    few, many = Analysis(run(chain(2))), Analysis(run(chain(3)))
    for _ in range(2):
        assert few.seconds_saved(workers=4) == pytest.approx(0.0)
        assert math.isnan(few.seconds_saved(workers=8))
        assert math.isnan(many.seconds_saved(workers=4))


def test_a_change_that_is_not_of_tasks_needs_no_replay(monkeypatch):
    monkeypatch.setattr("dask_diag.analysis.facts.MOST_SIMULATED", 6)
    analysis = Analysis(run(chain(2)))
    assert analysis.seconds_saved(remove={"graph"}) == pytest.approx(0.0)
    assert analysis.simulator.tasks_replayed == 3
    assert analysis.seconds_saved(workers=4) == pytest.approx(0.0)
    assert analysis.simulator.tasks_replayed == 6
