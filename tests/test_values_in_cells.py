"""What values show as the last expression of a cell: numbers with units, all rows or their number."""

import re

import dask
import numpy as np
import pytest

import dask_diag
from dask_diag.columns import Categorical
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table


@pytest.fixture(scope="module")
def recording():
    import time

    with dask_diag.Profiler(waits=True) as prof:
        dask.compute(
            *[dask.delayed(time.sleep)(0.05) for _ in range(8)], scheduler="threads", num_workers=2
        )
    return prof.recording


SHOWS = {
    "recording": (lambda run: run, ("8 tasks on 2 workers", "<strong>", "data:image/svg+xml")),
    "summary": (dask_diag.summary, ("8 tasks on 2 workers", "<details>")),
    "tasks": (lambda run: run.tasks, ("8 rows", "0.000000 s", ">sleep<")),
    "findings": (dask_diag.findings, ("too-few-threads (", "Fix: ")),
    "waits": (dask_diag.waits, (">sleep<", "samples")),
    "activities": (dask_diag.activities, (">thread-cpu<", ">seconds<")),
    "what_if": (
        dask_diag.what_if,
        ("unlimited workers", "as recorded", "Wall time measured: ", "Changes do not add up."),
    ),
    "what_if, some rows": (
        lambda run: dask_diag.what_if(run).filter(slice(2)),
        (">recorded<", "2 rows"),
    ),
    "compare": (
        lambda run: dask_diag.compare(run, run),
        ("wall time ", ">sleep<", ">before<", "total of tasks"),
    ),
    "compare, runs": (
        lambda run: dask_diag.compare([run], [Recording(0.0, 1.0, 0.0)]),
        ("1 run before, 1 run after", ">change<", "no verdicts: "),
    ),
    "critical_path": (dask_diag.critical_path, (">critical path<", "1 row")),
}


@pytest.mark.parametrize("name", SHOWS)
def test_a_value_shows_numbers_with_units_and_has_a_short_text(name, recording):
    make, expected = SHOWS[name]
    value = make(recording)
    html = value._repr_html_()
    words = re.sub(r"<img[^>]*>", "", html) if name not in ("recording", "summary") else html
    for text in expected:
        assert text in words
    # Times have microseconds.
    text = re.sub(r"\d\.\d{6} s|[\d.]+ s of the clock", "", re.sub(r"<[^>]*>", " ", html))
    assert not re.search(r"\d\.\d{4}", text)
    assert re.search(r"\d (s|ms|µs|ns)\b", html)
    for tag in ("<script", "<style", "<svg"):
        assert tag not in html
    if name != "summary":
        assert len(repr(value)) < 500


def test_findings_are_a_list(recording):
    found = dask_diag.findings(recording)
    assert isinstance(found, list)
    assert found == list(found)
    assert recording.findings() == found
    assert repr(found).startswith(f"<{len(found)} finding")
    empty = dask_diag.findings(Recording(0.0, 1.0, 0.0))
    assert empty == []
    assert repr(empty) == "<0 findings>"
    assert "No findings: " in empty._repr_html_()


def test_a_table_shows_a_bounded_number_of_rows_and_numbers_to_the_right():
    table = Table(
        {
            "name": Categorical.of([f"<{n}>" for n in range(100)]),
            "seconds": np.full(100, 0.25),
            "amount": np.full(100, 2.5e9),
            "in": Categorical.of(["bytes", "events"] * 50),
            "share": np.full(100, 0.125),
            "count": np.full(100, 12_345),
        }
    ).in_units(seconds="s", amount="=in", share="share")
    html = table.filter(slice(2, None))._repr_html_()
    assert "the first 60 of 98 rows" in html
    assert html.count("<tr>") == 61
    first = re.search(r"<tbody><tr>(.*?)</tr>", html)[1]
    assert re.findall(r"text-align:(\w+)[^>]*>(.*?)</td>", first) == [
        ("left", "&lt;2&gt;"),
        ("right", "250 ms"),
        ("right", "2.50 GB"),
        ("left", "bytes"),
        ("right", "13%"),
        ("right", "12,345"),
    ]
    assert "2.50G events" in html
