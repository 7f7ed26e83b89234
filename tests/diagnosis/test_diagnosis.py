"""What is found in planted programs: their cause, and nothing that is not true."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dask_diag.analysis.findings.rule import Finding
from dask_diag.analysis.findings.rules import CODES
from tests.diagnosis.program import Program
from tests.diagnosis.programs import PROGRAMS
from tests.diagnosis.table import page, scores
from tests.diagnosis.trials import Advice, Outcome, examine, settings_in

QUICK = (
    "one chunk",
    "tasks that share a lock",
    "healthy: threads",
)
"""Programs that are quick to run and hardly depend on what else the machine does.

Chains and sleeping tasks are in `test_findings`.
"""

OF_CLUSTERS = frozenset({"spilling", "transfer-bound", "unbalanced-workers", "worker-lost"})
"""Findings on clusters, which other tests start."""


def check(program):
    """It has the finding on its cause, and none of high severity that is not true."""
    outcome = examine(program, repeats=0)
    assert outcome.is_recalled or not program.code
    true = {program.code} | program.true
    high = {one.code for one in outcome.found if one.severity == "high"}
    assert high - {"busy-machine"} <= true
    assert program.code not in {one.code for one in outcome.remaining} - program.remaining


@pytest.mark.diagnosis
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_cause_is_found_and_gone_with_its_remedy(name):
    check(PROGRAMS[name])


@pytest.mark.parametrize("name", QUICK)
def test_the_cause_is_found_in_quick_programs(name, retried):
    retried(lambda: check(PROGRAMS[name]))


def finding(code, lost, severity="high"):
    return Finding(code, severity, lost, "evidence", "advice", certainty="estimate")


def outcome(faulty_findings, remaining=(), faulty=(3.0,), remedied=(1.0,), advice=(), **fields):
    program = Program("a program", print, "gil-bound", **fields)
    return Outcome(
        program, faulty_findings, list(remaining), list(faulty), list(remedied), list(advice)
    )


def test_enough_causes_are_planted():
    causes = {program.code for program in PROGRAMS.values()} - {""}
    assert len([program for program in PROGRAMS.values() if program.code]) >= 16
    # A limit of CPU time is one of the machine. What makes a scheduler busy are small tasks, which
    # have a finding of their own.
    elsewhere = {"failed-tasks", "late-samples", "cpu-quota", "scheduler-bound"}
    assert causes >= set(CODES) - elsewhere - OF_CLUSTERS
    assert len([program for program in PROGRAMS.values() if not program.code]) >= 3


def test_what_is_true_of_a_program_is_a_finding():
    for program in PROGRAMS.values():
        assert {program.code, *program.true, *program.remaining} <= {"", *CODES}


@pytest.mark.parametrize(
    ("lost", "is_within"), [(0.99, False), (1.01, True), (3.99, True), (4.01, False)]
)
def test_an_estimate_is_right_within_a_factor_of_two(lost, is_within):
    one = outcome([finding("gil-bound", lost)])
    assert one.gain == 2.0
    assert one.is_within_two == is_within
    assert scores([one]).within_two == is_within


def test_causes_that_are_not_found_count():
    right, missed = outcome([finding("gil-bound", 2.0)]), outcome([])
    assert scores([right, missed]).recall == 0.5
    # What was not found has no estimate.
    assert scores([right, missed]).within_two == 1.0


def test_findings_that_are_not_true_count():
    one = outcome([finding("gil-bound", 2.0), finding("io-bound", 1.0)])
    assert one.false == ["io-bound"]
    assert scores([one]).precision == 0.5
    true = outcome(
        [finding("gil-bound", 2.0), finding("io-bound", 1.0)], true=frozenset({"io-bound"})
    )
    assert scores([true]).precision == 1.0
    still = outcome([finding("gil-bound", 2.0)], [finding("gil-bound", 1.0)])
    assert still.false == ["gil-bound (with the remedy)"]
    assert scores([still]).precision == 0.5


def test_findings_on_the_machine_do_not_count():
    one = outcome([finding("gil-bound", 2.0), finding("busy-machine", 1.0)])
    assert (one.false, one.number_true) == ([], 1)


def test_advice_that_makes_a_program_slower_counts():
    advice = [Advice("gil-bound", "scheduler=processes", -1.0, True)]
    result = scores([outcome([finding("gil-bound", 2.0)], advice=advice)])
    assert (result.slower, result.tried) == (1, 1)


def test_settings_are_read_from_advice():
    assert settings_in("compute with scheduler='processes', or …") == (
        {"scheduler": "processes"},
        {},
    )
    assert settings_in(
        "if the disk or server serves more: scheduler='threads', num_workers=8; or"
    ) == (
        {"scheduler": "threads", "num_workers": 8},
        {},
    )
    assert settings_in("set OPENBLAS_NUM_THREADS=1 before") == ({}, {"OPENBLAS_NUM_THREADS": "1"})
    assert settings_in("set chunksize=1, as an argument of compute") == ({"chunksize": 1}, {})
    shuffle = "dask.config.set({'dataframe.shuffle.method': 'tasks'}), or shuffle_method='tasks'"
    assert settings_in(shuffle) == ({"dataframe.shuffle.method": "tasks"}, {})
    assert settings_in("look for caches") == ({}, {})
    # What is said of a scheduler is no advice to use it.
    assert settings_in("with scheduler='processes' also set chunksize=1") == ({}, {})


def test_the_page_has_a_row_for_each_program():
    text = page(
        [
            outcome([finding("gil-bound", 2.0), finding("io-bound", math.nan)]),
            Outcome(Program("healthy", print), [], []),
        ]
    )
    assert "a program  gil-bound  yes    2.00 s    2.00 s  io-bound (false)" in text
    assert "healthy" in text


def test_the_page_says_how_busy_the_machine_was():
    one = outcome([finding("gil-bound", 2.0)], advice=())
    text = page([replace(one, busy=[0.1, 0.4, 0.5])])
    assert "other programs used 40% of\nthe machine" in text


def test_the_page_says_what_its_numbers_do_not_show():
    right = outcome([finding("gil-bound", 2.0)])
    wrong = outcome([finding("gil-bound", 9.0)])
    text = " ".join(page([right] * 50 + [wrong]).split())
    assert f"1 of the {len(CODES)} findings occur as a cause." in text
    # 0.05 ** (1 / 51) = 0.943.
    assert "51 of 51 causes found means a recall of at least 94%" in text
    assert ":doc:`findings/gil-bound` 51 51 50 of 51" in text
    assert "outside a factor of two of the gain:" in text
    assert "a program 9.00 s 2.00 s" in text
