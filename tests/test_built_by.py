"""Seconds by the line that built the work: known tables, known sums, and each view of them."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import dask_diag
from dask_diag import DiagnosticError, Recording, lines
from dask_diag.live.model import LiveModel
from dask_diag.live.screen import show_last_frame
from dask_diag.live.texts import line_rows
from dask_diag.model.codes import Root
from dask_diag.model.tables import TABLES
from dask_diag.storage.write import Writer
from dask_diag.views.compare import comparison_summary, run_comparison_summary
from dask_diag.views.findings import location

from .recordings import (
    ANALYSIS,
    CORE,
    HELPERS,
    NAN,
    NOTHING,
    Task,
    columns_of,
    recording_with_lines,
    run,
    with_columns,
    with_stacks,
    with_tables,
)
from .test_cli import diag as run_command


def of_lines(recording, *names, by="line"):
    table = lines(recording, by=by)
    rows = zip(*(table[name].tolist() for name in names), strict=True)
    return dict(zip(table["line"].tolist(), rows, strict=True))


def test_a_fused_tasks_seconds_are_divided_as_its_steps_were_timed():
    table = lines(recording_with_lines())
    assert list(table.tuples("file", "line", "text", "tasks", "functions")) == [
        (ANALYSIS, 24, "z = y.map_blocks(slow)", 5, "slow"),
        (ANALYSIS, 25, "w = z.map_blocks(quick)", 5, "quick"),
        (HELPERS, 21, "return clean(raw)", 2, "clean"),
        (ANALYSIS, 26, "m = w.mean(axis=0)", 6, "mean_chunk, mean_agg"),
        ("", 0, "(built before the recording)", 1, "load"),
        ("", 0, "(line unknown)", 1, ""),
    ]
    assert table["seconds"] == pytest.approx([6.0, 3.0, 2.5, 2.0, 0.5, 0.25])
    # Of CPU and of waits each line has what its own steps had: 1 s of 5, 4 s of 5.
    assert table["cpu_seconds"] == pytest.approx([1.0, 3.0, 2.5, 2.0, 0.5, 0.25])
    assert table["waits"] == pytest.approx([5.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert all(np.isnan(table[name]).all() for name in ("bytes", "built_seconds"))


def test_lines_of_helpers_are_those_of_the_script_that_called_them():
    seconds = of_lines(recording_with_lines(), "seconds", "text", by="script")
    assert (seconds[30], seconds[31]) == ((1.0, "a = tidy(raw)"), (1.5, "b = tidy(other)"))
    assert sorted(seconds) == [0, 24, 25, 26, 30, 31]
    with pytest.raises(DiagnosticError, match="by: expected 'line' or 'script', found 'function'"):
        lines(recording_with_lines(), by="function")


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        # A step that was not timed divides the group evenly; so does one of which no time passed.
        ([("a", 0, 1.0), ("b", 1, NAN)], (1.0, 1.0)),
        ([("a", 0, 0.0), ("b", 1, 0.0)], (1.0, 1.0)),
        # Two steps of one line are one line.
        ([("a", 0, 1.0), ("c", 0, 2.0), ("b", 1, 1.0)], (1.5, 0.5)),
    ],
)
def test_steps_are_summed_before_they_divide(steps, expected):
    rows = [(0, name, line, "name", seconds, NAN, 1) for name, line, seconds in steps]
    recording = with_tables(
        NOTHING,
        tasks={"start": [0.0], "stop": [2.0], "group": [0]},
        lines={"caller": [-1, -1], "file": ["a.py"] * 2, "line": [1, 2]},
        steps=columns_of("group function line how seconds cpu_seconds timed", *rows),
    )
    seconds = of_lines(recording, "seconds")
    assert (*seconds[1], *seconds[2]) == pytest.approx(expected)


def test_what_a_line_built_is_what_was_sampled_on_and_below_it():
    def frame(file, line):
        return ("<module>", file, line, 1)

    helper, infer = ("tidy", HELPERS, 21, 20), ("slow", ANALYSIS, 7, 6)
    rows = [
        ((0.0, 1.0), Root.BEFORE, [frame(ANALYSIS, 24), CORE, infer], 0.5, 0.5),
        ((0.0, 1.0), Root.BETWEEN, [frame(ANALYSIS, 31), helper, CORE], 0.25, 0.25),
        # A line of the program that builds nothing, and a task.
        ((0.0, 1.0), Root.BEFORE, [frame(ANALYSIS, 31), infer], 0.125, 0.125),
        ((0.0, 1.0), "slow", [frame(ANALYSIS, 24), infer], 0.1, 0.1),
        ((0.0, 1.0), Root.GRAPH, None, 0.1, 0.1),
    ]
    recording = with_stacks(recording_with_lines(), rows)
    built = of_lines(recording, "built_seconds")
    assert (built[24], built[21], built[25]) == ((0.5,), (0.25,), (0.0,))
    by_script = of_lines(recording, "built_seconds", by="script")
    assert (by_script[24], by_script[31], by_script[30]) == ((0.5,), (0.25,), (0.0,))


def test_without_lines_there_are_no_rows_and_references_may_be_damaged():
    recording = recording_with_lines()
    assert len(lines(with_tables(recording, lines={}, steps={}))) == 0
    assert len(lines(Recording(start=0.0, stop=1.0, epoch=0.0))) == 0
    odd = with_columns(recording, "steps", line=[0, 99, -7, 2, 4, 6, -1, 0])
    odd = with_columns(odd, "lines", caller=[5, 1, -9, 99, 3, -1, 5])
    for by in ("line", "script"):
        assert lines(odd, by)["seconds"].sum() == pytest.approx(14.25)


@given(st.data())
def test_lines_sum_to_all_tasks(data):
    recording = recording_with_lines()
    groups = data.draw(st.lists(st.integers(-1, 6), min_size=10, max_size=10))
    amounts = st.sampled_from([0.0, 1e-9, 0.5, 3.0, NAN])
    steps = {
        name: data.draw(st.lists(amounts, min_size=8, max_size=8))
        for name in ("seconds", "cpu_seconds")
    }
    steps["group"] = data.draw(st.lists(st.integers(-1, 3), min_size=8, max_size=8))
    steps["line"] = data.draw(st.lists(st.integers(-1, 6), min_size=8, max_size=8))
    recording = with_columns(with_columns(recording, "tasks", group=groups), "steps", **steps)
    for by in ("line", "script"):
        table = lines(recording, by)
        assert table["seconds"].sum() == pytest.approx(14.25)
        assert np.nansum(table["cpu_seconds"]) == pytest.approx(9.25)
        assert np.nansum(table["waits"]) == pytest.approx(5.0)
    both = dask_diag.combine([recording, replace(recording, run_id="another")])
    assert lines(both)["seconds"].sum() == pytest.approx(14.25)


def test_the_summary_has_five_lines_above_the_functions_and_all_by_line(tmp_path):
    recording = recording_with_lines()
    text = str(dask_diag.summary(recording))
    table = text[text.index("line that built it") : text.index("\n function")]
    assert "analysis.py:24  z = y.map_blocks(slow)      42%       5      6.00 s" in table
    assert len(table.strip().splitlines()) == 2 + 5 + 1
    assert "(1 more line)" in table
    assert "total" not in table
    assert "<td" in dask_diag.summary(recording)._repr_html_().split("map_blocks(slow)")[0]
    by_script = str(recording.summary(by="script"))
    assert "analysis.py:30  a = tidy(raw)" in by_script
    assert "total                                      100%      10      14.3 s" in by_script
    assert "mean_chunk-quick" not in by_script
    with pytest.raises(DiagnosticError, match="by: expected one of function, line, script"):
        recording.summary(by="task")


def test_work_that_was_built_before_the_recording_says_what_to_do():
    recording = recording_with_lines()
    before = with_columns(recording, "steps", how=["built before"] * 8, line=[-1] * 8)
    text = " ".join(str(dask_diag.summary(before)).split())
    assert "(built before the recording) 98% 9 14.0 s" in text
    assert "98% of task time is work that was built before the recording: start recording" in text
    assert "Built before" not in str(dask_diag.summary(recording))


@pytest.mark.leaves_files
def test_the_command_prints_lines_or_the_source_with_them(tmp_path):
    recording = recording_with_lines()
    code = "import dask\n\ny = 1\n" + "\n" * 20 + "z = y.map_blocks(slow)\n"
    recording = with_tables(
        recording,
        environment={"section": ["calling code"], "name": ["analysis.py"], "value": [code]},
    )
    dask_diag.save(recording, tmp_path / "run.diag")
    printed = run_command("lines", str(tmp_path / "run.diag")).stdout
    assert "helpers.py:21  return clean(raw)            18%       2      2.50 s" in printed
    source = run_command("lines", str(tmp_path / "run.diag"), "--source", "--by", "script").stdout
    lines_ = [line.rstrip() for line in source.splitlines()]
    assert lines_[4:6] == [" analysis.py", "     1  import dask"]
    assert (
        "    24  z = y.map_blocks(slow)               42%       5      6.00 s    unknown" in lines_
    )
    assert "(built before the recording)                 4%" in source
    assert "(line unknown)" in source
    dask_diag.save(NOTHING, tmp_path / "none.diag")
    assert run_command("lines", str(tmp_path / "none.diag")).stdout.startswith(
        "This recording has no"
    )


@pytest.mark.parametrize(
    ("failed", "lines_", "text"),
    [
        # Of the fused task `slow` has 60%, `quick` 30%, `mean_chunk` 10%.
        ([0], ("analysis.py:24", "analysis.py:25"), "built at analysis.py:24, analysis.py:25"),
        ([6, 7], ("helpers.py:21",), "built at helpers.py:21"),
        ([8], (), ""),
    ],
)
def test_failed_tasks_name_the_line_that_built_them(failed, lines_, text):
    outcomes = ["failed" if row in failed else "ok" for row in range(10)]
    recording = with_columns(recording_with_lines(), "tasks", outcome=outcomes)
    (finding,) = [f for f in dask_diag.findings(recording) if f.code == "failed-tasks"]
    assert finding.where.lines == lines_
    assert finding.to_dict()["where"]["lines"] == lines_
    assert location(finding, recording).endswith(text)


def test_of_a_fused_task_the_line_of_the_step_that_raised_is_named():
    row = recording_with_lines().steps.to_dicts()[0]
    outcomes = ["failed", *["ok"] * 9]
    for function, named in ((row["function"], 1), ("somewhere_else", 2)):
        places = [f"/code/helpers.py:3 in {function}"] * 10
        recording = with_columns(
            recording_with_lines(), "tasks", outcome=outcomes, error_location=places
        )
        (finding,) = [f for f in dask_diag.findings(recording) if f.code == "failed-tasks"]
        assert len(finding.where.lines) == named


def test_small_tasks_name_the_line_that_sets_the_chunks():
    tasks = [Task(0.002 * n, 0.002 * n + 0.0005, worker=n % 2) for n in range(400)]
    recording = with_tables(
        with_columns(run(tasks), "tasks", group=[0] * 300 + [1] * 100),
        lines=columns_of(
            "caller file line called text",
            (-1, ANALYSIS, 4, "random", "x = da.random.random(10_000, chunks=10)"),
            (-1, ANALYSIS, 5, "sum", "y = (x + 1).sum()"),
        ),
        steps=columns_of("group function line how", (0, "a", 1, "name"), (1, "b", 0, "name")),
    )
    (finding,) = [f for f in dask_diag.findings(recording) if f.code == "tasks-too-small"]
    assert finding.advice.endswith("; analysis.py:4 sets them: chunks=10")
    assert finding.where.lines == ("analysis.py:5",)
    text = f"x = da.map_blocks(read, chunks={'(5, ' * 20}"
    recording = with_columns(recording, "lines", text=[text] * 2)
    (finding,) = [f for f in dask_diag.findings(recording) if f.code == "tasks-too-small"]
    assert finding.advice.endswith(f"sets them: chunks={'(5, ' * 6}…")


def test_slow_graphs_name_the_line_that_put_the_data_into_them():
    hashing = ("hash_buffer", "/opt/env/lib/python3.11/site-packages/dask/hashing.py", 5, 1)
    rows = [
        ((0.0, 0.5), Root.GRAPH, [("<module>", ANALYSIS, 26, 1), CORE], 0.1, 0.1),
        ((-2.0, 0.0), Root.BEFORE, [("<module>", ANALYSIS, 24, 1), CORE, hashing], 9.0, 9.0),
    ]
    recording = with_stacks(recording_with_lines(), rows)
    samples = with_columns(recording, "samples", count=[10, 900])
    recording = replace(with_columns(samples, "computations", called=[-0.1]), start=-2.0)
    (finding,) = [f for f in dask_diag.findings(recording) if f.code == "graph-preparation"]
    assert finding.where.lines == ("analysis.py:24",)


@pytest.mark.leaves_files
def test_exports_name_the_line_that_built_most_of_a_task():
    recording = with_columns(recording_with_lines(), "tasks", pid=[1] * 10, thread=[1] * 10)
    dask_diag.export(recording, "tasks.csv")
    with open("tasks.csv", newline="") as stream:
        named = [row["line"] for row in csv.DictReader(stream)]
    expected = ["analysis.py:24"] * 5 + ["analysis.py:26", "helpers.py:21", "helpers.py:21", "", ""]
    assert named == expected
    dask_diag.export(recording, "trace.perfetto.json")
    events = json.loads(Path("trace.perfetto.json").read_text())["traceEvents"]
    tasks = {e["args"]["task"]: e["args"]["line"] for e in events if "task" in e.get("args", {})}
    assert [tasks[row] for row in range(10)] == expected


def test_lines_are_compared_by_their_file_and_text():
    before = recording_with_lines()
    # The program was edited: lines moved, and `slow` was made quicker.
    moved = with_columns(before, "lines", line=[n + 10 for n in before.lines.line.tolist()])
    after = with_columns(moved, "steps", seconds=[0.1, 0.3, 0.1, *[NAN] * 5])
    stops = before.tasks.start + np.where(
        np.arange(10) < 5, 1.0, before.tasks.stop - before.tasks.start
    )
    after = with_columns(after, "tasks", stop=stops.tolist())
    changes = dask_diag.compare(before, after).lines.to_dicts()
    assert (changes[0]["line"], changes[0]["text"]) == (34, "z = y.map_blocks(slow)")
    rest = [row["seconds_after"] - row["seconds_before"] for row in changes[1:]]
    assert rest == pytest.approx([0.0] * 5)
    assert [round(changes[0][f"seconds_{when}"], 6) for when in ("before", "after")] == [6.0, 1.0]
    # A cell that runs again has another number.
    cells = [
        with_columns(side, "lines", cell=[f"In[{n}]" * (file == "analysis.py") for file in files])
        for n, side in ((2, before), (5, after))
        for files in [[Path(file).name for file in side.lines.file.tolist()]]
    ]
    again = dask_diag.compare(*cells).lines.to_dicts()
    assert [row["file"] for row in again].count("In[5]") > 1
    assert [{**row, "file": ""} for row in again] == [{**row, "file": ""} for row in changes]
    text = str(comparison_summary(dask_diag.compare(before, after), "a.diag", "b.diag"))
    assert re.search(r"analysis.py:34  z = y.map_blocks\(slow\) +6.00 s +1.00 s +-83%", text)
    assert "line that built it" not in str(
        comparison_summary(dask_diag.compare(NOTHING, after), "a.diag", "b.diag")
    )
    runs = dask_diag.compare([before, before], [after, after])
    of_lines = [row for row in runs.changes.to_dicts() if row["kind"] == "line"]
    assert of_lines[0]["name"] == "analysis.py: z = y.map_blocks(slow)"
    assert of_lines[0]["verdict"] == "less"
    assert (of_lines[0]["before"], of_lines[0]["after"]) == pytest.approx((6.0, 1.0))
    text = str(run_comparison_summary(runs))
    assert re.search(r"analysis.py: z = y.map_blocks\(slow\) +6.00 s +1.00 s +-83%.* less", text)
    assert not [name for name in runs.regressions(0.0) if "analysis" in name]
    without = dask_diag.compare([before, before], [after, replace(after, steps=NOTHING.steps)])
    assert "line" not in without.changes["kind"].tolist()


@pytest.mark.leaves_files
def test_a_live_view_has_the_lines_of_a_growing_recording():
    recording = recording_with_lines()
    parts = [
        replace(
            recording,
            tasks=recording.tasks.filter(slice(n, n + 5)),
            dependencies=recording.dependencies.filter(slice(0)),
            **({} if n else {name: TABLES[name].empty() for name in ("lines", "steps")}),
        )
        for n in (0, 5)
    ]
    with Writer("run.diag") as writer:
        writer.append(parts[0])
        model = LiveModel("run.diag")
        model.poll()
        assert list(line_rows(model, 5)) == []
        writer.append(parts[1])
    model.poll()
    assert list(line_rows(model, 2)) == [
        ("analysis.py:24  z = y.map_blocks(slow)", "42%", "6.00 s"),
        ("analysis.py:25  w = z.map_blocks(quick)", "21%", "3.00 s"),
    ]
    text = io.StringIO()
    show_last_frame("run.diag", Console(file=text, width=80, highlight=False))
    assert "line that built it" in text.getvalue()
    assert re.search(r"analysis.py:24  z = y.map_blocks\(slow\) +42% +6.00 s", text.getvalue())


@pytest.mark.leaves_files
def test_a_report_has_lines_that_ran_no_task():
    """A graph was built on the line, and no task of it ran: the line has seconds of building."""
    rows = [((0.0, 1.0), Root.GRAPH, [("<module>", ANALYSIS, 31, 1), CORE], 0.5, 0.5)]
    recording = with_stacks(recording_with_lines(), rows)
    recording = with_columns(recording, "lines", called=["", "", "", "", "x", "compute", "x"])
    report_ = dask_diag.report(recording, "run.html").read_text()
    assert "could not be made" not in report_
    assert of_lines(recording, "tasks", "built_seconds")[31] == (0, 0.5)
