"""What several views need is computed once."""

from collections import Counter

import pytest
from click.testing import CliRunner

from dask_diag import report, save, summary
from dask_diag.analysis import critical_path, memory, occupancy, waits
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings import rules
from dask_diag.analysis.findings.rule import evidence
from dask_diag.analysis.simulation import simulate
from dask_diag.cli.main import main
from dask_diag.model import codes
from dask_diag.model.codes import Activity

from .recordings import example, run, two_at_once, with_waits
from .test_finding_thresholds import chain, overlapping

pytestmark = pytest.mark.once


@pytest.fixture
def calls(monkeypatch):
    """How often each of the functions ran that take most of the time."""
    counts = Counter()

    def count(module, name):
        original = getattr(module, name)

        def counted(*args, **kwargs):
            counts[name] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(module, name, counted)

    count(occupancy, "_states")
    count(critical_path, "_slowest_chains")
    count(memory, "_scopes")
    count(waits, "_totals")
    return counts


def recording():
    """One computation, a critical path of four tasks, and waits."""
    return with_waits(run(chain(4, 0.3)), "io-wait")


def by_report(recording, folder):
    return report(recording, folder / "page.html").read_text()


def by_command(recording, folder):
    """The page, and the line that is printed."""
    save(recording, folder / "run.diag")
    return CliRunner().invoke(main, ["report", str(folder / "run.diag")]).output


def by_summary(recording, folder):
    return summary(recording, verbose=True)


@pytest.mark.usefixtures("without_plots")
@pytest.mark.leaves_files
@pytest.mark.parametrize("show", [by_report, by_command, by_summary])
def test_workers_are_swept_over_once(calls, tmp_path, show):
    assert "serial-chain" in show(recording(), tmp_path)
    # By activity, and by function for the names in findings.
    assert calls.pop("_totals") <= 2
    assert calls == {"_states": 1, "_slowest_chains": 1, "_scopes": 1}


@pytest.mark.usefixtures("without_plots")
@pytest.mark.leaves_files
def test_a_report_simulates_nothing_twice(monkeypatch, tmp_path):
    changes = []
    simulated = simulate.Simulator._simulate
    monkeypatch.setattr(
        simulate.Simulator,
        "_simulate",
        lambda self, change: changes.append(change) or simulated(self, change),
    )
    report(with_waits(two_at_once(cpu=0.5), "gil-wait"), tmp_path / "page.html")
    assert ((Activity.GIL_WAIT, 1.0),) in [change.remove for change in changes]
    texts = list(map(str, changes))
    assert len(set(texts)) == len(texts)


def test_each_computation_is_swept_over_once(calls):
    summary(overlapping(0.5))
    assert calls["_states"] == 2


def test_tasks_of_computations_that_were_not_recorded_have_a_summary():
    tasks = example(20)
    assert len(tasks.dependencies)
    assert not len(tasks.computations)
    assert "20 tasks" in summary(tasks)


def test_findings_have_the_codes_of_the_schema():
    assert {rule.code for rule in rules.RULES} == set(codes.FINDINGS)


def test_the_facts_of_an_empty_recording_are_nothing():
    empty = Analysis(run([], stop=1.0))
    assert (empty.in_tasks, empty.busy_wall, empty.at_once) == (0.0, 0.0, 0.0)
    assert empty.activities == {"idle": 2.0}


def test_a_rule_comes_after_those_that_it_gives_way_to():
    names = [rule.code for rule in rules.RULES]
    for rule in rules.RULES:
        assert set(rule.unless) <= set(names[: names.index(rule.code)])


def test_evidence_is_written_from_numbers_with_names_and_units():
    clause = evidence(", {late:task} late", late=1)
    values = {"lost": 2.0, "names": ["a", "{b}"], "clause": clause}
    text, numbers = evidence("{lost:seconds} of {names}{clause}", **values)
    assert text == "2.00 s of a and {b}, 1 task late"
    assert numbers == {"lost": (2.0, "seconds"), "late": (1.0, "task")}
