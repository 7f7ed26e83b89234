"""Units of what is measured: the unit decides how an amount is shown, never a metric's name."""

from __future__ import annotations

import json
import os
import re
import sys
from operator import add
from pathlib import Path

import cachey
import dask
import dask.sizeof
import dask.threaded
import numpy as np
import pytest
from click.testing import CliRunner

from dask_diag import (
    CacheProfiler,
    Profiler,
    Recording,
    compare,
    context_meter,
    export,
    load,
    performance_report,
    record,
    report,
    summary,
)
from dask_diag.analysis.memory import cached_at
from dask_diag.cli.main import main
from dask_diag.formatting import quantity
from dask_diag.storage.write import save
from dask_diag.views.compare import comparison_summary
from dask_diag.views.drawings import plot_of
from dask_diag.views.plots.figures import Options

from .test_cli_run import diag

pytestmark = pytest.mark.leaves_files

GRAPH = {("b", 0): (add, 1, 2), ("c", 0): (add, ("b", 0), 1)}
HOSTILE = "<img src=x>@name $x {custom}"


class Subclass(np.ndarray):
    """What is no array to cachey, by its name."""


@pytest.mark.parametrize(
    "result",
    [
        np.ones((3, 4)),
        np.ones(4, dtype=bool)[::2],
        np.array(5.0),
        np.zeros(3, dtype="M8[ns]"),
        np.zeros(3, dtype=[("a", "i4"), ("b", "f8")]),
        np.array(["text", None], dtype=object),
        np.array(["text", "more"]),
        np.ones(5).view(Subclass),
        np.float64(1.0),
        [1, 2],
        7,
    ],
    ids=lambda result: f"{type(result).__name__} {getattr(result, 'dtype', '')}",
)
def test_bytes_of_arrays_are_those_that_cachey_says(result):
    with CacheProfiler(cachey.nbytes) as cprof:
        dask.threaded.get({("result", 0): (lambda: result,)}, [("result", 0)])
    (row,) = cprof.results
    assert row.metric == cachey.nbytes(result)
    assert cprof.metric_name == "nbytes"
    assert cprof.metric_unit == "bytes"


def test_of_arrays_of_numbers_cachey_is_not_asked(monkeypatch):
    asked = []
    monkeypatch.setattr(cachey, "nbytes", lambda value: asked.append(value) or 1)
    with CacheProfiler(cachey.nbytes) as cprof:
        dsk = {("array", 0): (np.ones, 5), ("list", 0): (list, (1,))}
        dask.threaded.get(dsk, list(dsk))
    assert {row.key[0]: row.metric for row in cprof.results} == {"array": 40, "list": 1}
    assert asked == [[1]]


def megabytes(value):
    return 3.2


def lines(value):
    return 20_000_000


def profiled(*args, **kwargs):
    with CacheProfiler(*args, **kwargs) as cprof:
        dask.threaded.get(GRAPH, ("c", 0))
    return cprof


def text_of(source):
    return " ".join(summary(source).split())


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.2e6, "bytes", "3.20 MB"),
        (3.2, "megabytes", "3.20 megabytes"),
        (2e7, "", "20.0M"),
        (2e7, "rows", "20.0M rows"),
        (0.0025, "seconds", "2.50 ms"),
        (float("nan"), "bytes", "unknown"),
        (float("nan"), "rows", "unknown"),
    ],
)
def test_the_unit_decides_how_an_amount_is_shown(value, unit, text):
    assert quantity(value, unit) == text


@pytest.mark.parametrize("metric", [cachey.nbytes, dask.sizeof.sizeof, sys.getsizeof])
def test_functions_that_are_known_to_measure_bytes_do(metric):
    recording = profiled(metric).recording
    assert recording.metric_unit == "bytes"
    text = text_of(recording)
    assert re.search(r"Cached results peak \d+ B(?: \(\w+\))?: b \d+ B, c \d+ B", text)


@pytest.mark.parametrize("name", ["nbytes", "bytes", "megabytes", "sizeof"])
def test_a_name_says_nothing_of_the_unit(name):
    recording = profiled(megabytes, name).recording
    assert recording.metric_unit == ""
    assert f"Cached results peak 3.20 ({name}): b 3.20, " in text_of(recording)
    assert np.isnan(cached_at(recording, np.zeros(1))).all()

    def nbytes(value):
        return 3.2

    assert profiled(nbytes).recording.metric_unit == ""
    assert profiled().recording.metric_unit == ""


def test_a_unit_that_is_given_holds():
    assert "peak 20.0 MB (lines): b 20.0 MB, " in text_of(profiled(lines, unit="bytes"))
    assert "peak 20.0M lines (lines): b 20.0M lines, " in text_of(profiled(lines, unit="lines"))
    assert "peak 3.20 s (megabytes): " in text_of(profiled(megabytes, unit="seconds"))
    # Also over what is known: `unit=""` is a plain number.
    assert profiled(sys.getsizeof, unit="").recording.metric_unit == ""
    assert profiled(unit="results").recording.metric_unit == "results"
    assert cached_at(profiled(lines, unit="bytes").recording, np.zeros(1)).tolist() == [0.0]


@pytest.mark.parametrize("unit", [3, b"bytes", ["bytes"], float])
@pytest.mark.parametrize("make", [CacheProfiler, performance_report, lambda **k: record("x", **k)])
def test_a_unit_that_is_no_text_is_refused(unit, make):
    with pytest.raises(TypeError, match="unit: expected text, such as 'bytes', found ") as caught:
        make(unit=unit)
    assert repr(unit) in str(caught.value)
    assert not os.listdir()


def test_the_unit_is_in_files_and_in_what_is_combined(tmp_path):
    cprof = profiled(lines, unit="lines")
    with Profiler() as prof:
        pass
    for parts in ([prof.recording, cprof.recording], [cprof.recording, prof.recording]):
        combined = Recording.combine(parts)
        assert (combined.metric, combined.metric_unit) == ("lines", "lines")
    # The unit is that of the metric, not of another recording.
    first = Recording.combine([profiled(megabytes).recording, cprof.recording])
    assert (first.metric, first.metric_unit) == ("megabytes", "")
    save(combined, tmp_path / "run.diag")
    loaded = load(tmp_path / "run.diag")
    assert loaded.metric_unit == "lines"
    assert "peak 20.0M lines (lines): " in text_of(loaded)


def test_record_takes_a_metric_with_its_unit_and_bytes_by_default(tmp_path):
    with record(tmp_path / "run.diag", metric=lines, metric_name="loc", unit="lines") as run:
        assert load(tmp_path / "run.diag").metric_unit == "lines"
        dask.threaded.get(GRAPH, ("c", 0))
    for recording in (load(tmp_path / "run.diag"), run.recording):
        assert (recording.metric, recording.metric_unit) == ("loc", "lines")
    with record(tmp_path / "bytes.diag"):
        dask.threaded.get(GRAPH, ("c", 0))
    loaded = load(tmp_path / "bytes.diag")
    assert (loaded.metric, loaded.metric_unit) == ("nbytes", "bytes")


@pytest.mark.parametrize(
    ("unit", "label"),
    [
        *(("bytes", "Cache Size (loc)"), ("loc", "Cache Size (loc)")),
        ("lines", "Cache Size (loc, lines)"),
    ],
)
def test_the_axis_of_the_plot_has_the_unit_that_its_ticks_have_not(unit, label):
    plot = plot_of("cache", profiled(lines, "loc", unit).recording, Options())
    assert plot.yaxis[0].axis_label == label
    assert plot.yaxis[0].formatter.code.endswith("'B')") == (unit == "bytes")


def test_a_unit_is_data_everywhere(tmp_path):
    recording = profiled(lines, HOSTILE, HOSTILE).recording
    export(recording, tmp_path / "run.json")
    export(recording, tmp_path / "tables", format="csv")
    for name in ("run.json", "tables/recording.json"):
        assert json.loads((tmp_path / name).read_text())["metric_unit"] == HOSTILE
    page = report(recording, tmp_path / "page.html").read_text()
    assert "<img src=x>" not in page
    assert "<img" not in summary(recording)._repr_html_()


def compared(before, after):
    parts = [Recording.combine([part.recording for part in side]) for side in (before, after)]
    return " ".join(comparison_summary(compare(*parts), "a", "b").split())


def both(*args, **kwargs):
    with Profiler() as prof, CacheProfiler(*args, **kwargs) as cprof:
        dask.threaded.get(GRAPH, ("c", 0))
    return prof, cprof


def test_comparisons_show_the_unit_and_compare_only_what_has_the_same():
    kilo, mega = both(lambda _: 1e3, "a", "bytes"), both(lambda _: 1e6, "b", "bytes")
    # What it is called does not matter: both are bytes.
    text = compared(kilo, mega)
    assert "cached results: peak 1.00 kB → 1.00 MB" in text
    assert "b 1.00 kB → 1.00 MB" in text
    assert "peak 20.0M lines → 1" not in compared(both(lines, unit="lines"), both())
    assert (
        "cached results: peak 20.0M lines before, 1 results after; not compared, since the "
        "units differ" in compared(both(lines, unit="lines"), both(unit="results"))
    )
    # One of the two has no such measurement.
    assert "cached results: peak unknown → 1.00 kB" in compared(kilo[:1], kilo)


def meter(value):
    context_meter.digest_metric("read", 3_200_000, "bytes")
    context_meter.digest_metric("parsed", 1234, "rows")
    context_meter.digest_metric("megabytes", 5, "")
    return value


def test_the_summary_shows_what_was_metered_in_other_units_than_seconds():
    with Profiler() as prof:
        dask.threaded.get(
            {("meter", 0): (meter, 1), ("meter", 1): (meter, 1)}, [("meter", 0), ("meter", 1)]
        )
    assert "Metered read 6.40 MB, parsed 2.47k rows, megabytes 10" in text_of(prof)
    assert "Metered" not in text_of(profiled())


@pytest.mark.once
def test_the_command_line_takes_a_metric_with_its_unit(monkeypatch):
    Path("sizes.py").write_text("def rows(value):\n    return 7\n")
    Path("script.py").write_text(
        "import dask\nassert dask.delayed(sum)([1, 2]).compute(scheduler='sync') == 3\n"
    )

    def run(*options):
        return diag("run", *options, "script.py")

    assert re.search(r"^Cached results +peak [\d.]+ k?B: ", run("-v").stderr, re.MULTILINE)
    assert load("script.diag").metric_unit == "bytes"
    done = run("--metric", "sizes:rows", "--metric-name", "count of rows", "--unit", "rows")
    assert done.returncode == 0, done.stderr
    assert "peak 7 rows (count of rows): " in done.stderr
    recording = load("script.diag")
    assert (recording.metric, recording.metric_unit) == ("count of rows", "rows")
    assert run("--metric", "dask.sizeof:sizeof").returncode == 0
    assert load("script.diag").metric_unit == "bytes"
    # Where it is imported from, as `run` is to find it; it sets the arguments of its program.
    monkeypatch.syspath_prepend(".")
    monkeypatch.setattr(sys, "argv", sys.argv)
    for text, message in (
        ("sizes", "MODULE:FUNCTION"),
        ("absent:rows", "No module named 'absent'"),
        ("sizes:absent", "no attribute 'absent'"),
        ("sizes:__name__", "not callable"),
    ):
        done = CliRunner().invoke(main, ["run", "-f", "--metric", text, "script.py"])
        assert done.exit_code == 2
        assert message in done.stderr
