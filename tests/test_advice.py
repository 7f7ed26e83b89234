"""Advice that several findings give: what it says, and when it is given."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dask_diag import combine, findings

from .tables import filled_table
from .test_finding_thresholds import Task, by_code, chain, run
from .test_findings_of_workers import sleeping

pytestmark = pytest.mark.once

TOGETHER = (
    "compute results that do not depend on each other together, dask.compute(a, b), so that their "
    "tasks run at once; "
)


_TIMES = {"called", "prepared", "start", "stop", "submitted", "collected"}


def twice(recording):
    """The same program, and then the same again, as another computation."""
    tables = {}
    for name in ("computations", "tasks"):
        table = getattr(recording, name)
        columns = {column: table[column] for column in table.columns}
        later = {name: columns[name] + recording.stop for name in _TIMES & columns.keys()}
        of_it = {"computation": ["d"] * len(table)}
        tables[name] = filled_table(name, {**columns, **later, **of_it})
    times = {"start": recording.stop, "stop": 2 * recording.stop}
    both = combine([recording, replace(recording, run_id="again", **times, **tables)])
    assert both.computations.start.tolist() == [0.0, recording.stop]
    return both


@pytest.mark.parametrize(
    ("recording", "code", "advice"),
    [
        (run(chain(4, 0.3), 1.0), "serial-chain", "split the chain into independent parts"),
        (
            run([Task(0, 1), Task(0, 1, worker=1)], workers=4, cpus=4),
            "chunks-too-large",
            "make chunks smaller, so that there are several tasks for each worker",
        ),
    ],
)
def test_results_of_several_computations_may_be_computed_together(recording, code, advice):
    alone = by_code(recording)[code]
    assert alone.advice.startswith(advice)
    several = by_code(twice(recording))[code]
    assert several.advice.startswith(TOGETHER + advice)
    assert several.seconds_lost == pytest.approx(2 * alone.seconds_lost)


def test_where_waits_were_not_recorded_it_is_said_how_to_record_them():
    (finding,) = [advised for advised in findings(sleeping(16)) if "waits" in advised.advice]
    how = "record what tasks wait for with Profiler(waits=True) (dask-diag run --waits); "
    assert finding.advice.startswith(how)
