"""What would be gained: the table, and where it is shown."""

from pathlib import Path

import pytest

from dask_diag import DiagnosticError, Recording, load, report, save, simulate, what_if
from dask_diag.views.report import sections
from dask_diag.views.what_if import what_if_summary

from .recordings import with_columns, with_tables
from .test_cli import diag as run_command
from .virtual_dask import run_virtually

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]


STORIES = Path(__file__).parents[1] / "docs" / "stories"


def first(*_):
    return None


@pytest.fixture
def recording():
    """16 tasks of 1 s and 8 of 2 s, and one of 1 s that needs them all, on two workers."""
    dsk = {("short", n): (first,) for n in range(16)}
    dsk |= {("long", n): (first,) for n in range(8)}
    seconds = {key: 1.0 if key[0] == "short" else 2.0 for key in dsk}
    dsk["end", 0] = (first, *dsk)
    return run_virtually(dsk, {**seconds, ("end", 0): 1.0}, 2)


def predicted(table):
    return {(row["kind"], row["name"]): row["seconds"] for row in table.to_dicts()}


def test_workers_functions_and_activities(recording):
    table = what_if(recording, workers=[3, 8])
    rows = predicted(table)
    expected = {
        ("recorded", ""): 17,
        ("workers", "4"): 9,
        ("workers", "8"): 5,
        ("workers", "unlimited"): 3,
        # Two tasks of a function are one: as much for each of both workers, and the last one.
        ("chunks", "2"): 17,
        ("function", "long"): 13,
        ("function", "short"): 13,
        ("function", "end"): 16.5,
    }
    assert {name: rows[name] for name in expected} == pytest.approx(expected)
    assert 11 < rows["workers", "3"] < 13
    assert ("chunks", "10") not in rows
    assert table["gain"].tolist() == pytest.approx(
        [17 - seconds for seconds in rows.values()], abs=1e-6
    )
    assert table["speedup"].tolist() == pytest.approx([17 / seconds for seconds in rows.values()])
    assert table["name"].tolist()[1:5] == ["3", "4", "8", "unlimited"]
    assert rows["function", "long"] == simulate(recording, speedup={"long": 2.0}).seconds
    assert rows["workers", "8"] == simulate(recording, workers=8).seconds


def test_activities_that_took_no_time_are_not_tried(recording):
    waits = {
        "task": [*range(25)] * 2,
        "activity": ["io-wait"] * 25 + ["cpu-wait"] * 25,
        "seconds": [0.5] * 25 + [0.25] * 25,
        "samples": [50] * 25 + [0] * 25,
    }
    for made, expected in (
        (recording, {"thread-noncpu"}),
        (with_tables(recording, waits=waits), {"io-wait", "cpu-wait", "unexplained"}),
    ):
        rows = predicted(what_if(made))
        assert {name for kind, name in rows if kind == "activity"} == expected
    assert rows["activity", "cpu-wait"] < rows["recorded", ""]


def test_only_the_five_longest_functions():
    dsk = {(f"f{n}", 0): (first,) for n in range(7)}
    table = what_if(run_virtually(dsk, {key: 1.0 + int(key[0][1:]) for key in dsk}, 1))
    names = [row["name"] for row in table.to_dicts() if row["kind"] == "function"]
    assert names == ["f6", "f5", "f4", "f3", "f2"]


@pytest.mark.parametrize("seconds, is_tried", [(0.19, False), (0.21, True)])
def test_what_can_gain_less_than_a_hundredth_is_not_tried(seconds, is_tried):
    # Of ten seconds, half of a function, or all of a wait.
    dsk = {("long", 0): (first,), ("short", 0): (first,)}
    table = what_if(run_virtually(dsk, {("long", 0): 10 - seconds, ("short", 0): seconds}, 1))
    assert (("function", "short") in predicted(table)) == is_tried


@pytest.mark.usefixtures("without_plots")
def test_what_ran_on_a_cluster_is_predicted_and_what_is_not_known_said(recording, tmp_path):
    on_cluster = with_columns(recording, "computations", scheduler=["distributed"])
    assert predicted(what_if(on_cluster, threads=8))["threads", "8"] == pytest.approx(5, rel=0.2)
    path = tmp_path / "run.diag"
    save(on_cluster, path)
    done = run_command("what-if", str(path), "--threads", "8")
    assert done.returncode == 0, done.stderr
    assert "8 threads" in done.stdout
    assert "Threads are those of all workers" in done.stdout
    page = report(on_cluster, tmp_path / "run.html").read_text(encoding="utf-8")
    assert "Threads are those of all workers" in page


def test_where_chunks_cannot_be_larger_the_page_says_why(recording):
    text = " ".join(what_if_summary(what_if(recording), recording).split())
    assert "chunks 2 times as large" in text
    assert "Larger chunks" not in text
    # Three tasks of a function at a time, on two workers.
    few = run_virtually(
        {("f", n): (first,) for n in range(3)}, {("f", n): 1.0 for n in range(3)}, 2
    )
    text = " ".join(what_if_summary(what_if(few), few).split())
    assert "times as large" not in text
    assert "twice as large, they would leave a worker without a task" in text


def test_nothing_was_computed():
    empty = Recording(start=0.0, stop=2.0, epoch=0.0)
    assert predicted(what_if(empty)) == {("recorded", ""): 2.0}
    assert "2.00 s" in what_if_summary(what_if(empty), empty)


def test_the_command_prints_a_table(recording, tmp_path):
    path = tmp_path / "run.diag"
    save(recording, path)
    done = run_command("what-if", str(path), "--workers", "16", "--workers", "1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "Wall time measured: 17.0 s; replayed as recorded: 17.0 s (100%)"
    (four,) = [line for line in lines if line.strip().startswith("4 workers")]
    assert four.split() == ["4", "workers", "9.00", "s", "8.00", "s", "(47%)", "1.89×"]
    assert any(line.strip().startswith("16 workers") for line in lines)
    assert any(line.strip().startswith("1 worker ") for line in lines)
    assert max(map(len, lines)) <= 80
    done = run_command("what-if", "run.diag", "--workers", "0")
    assert (done.returncode, "--workers" in done.stderr) == (2, True)


@pytest.mark.usefixtures("without_plots")
def test_a_report_shows_the_table(recording, tmp_path, monkeypatch):
    text = report(recording, tmp_path / "report.html", mode="cdn", overwrite=True).read_text()
    assert "Predicted wall time" in text
    assert "unlimited workers" in text
    monkeypatch.setattr(sections, "_TASKS_SIMULATED", 10)
    text = report(recording, tmp_path / "report.html", mode="cdn", overwrite=True).read_text()
    assert "Too many tasks to simulate here (25)" in text


def test_a_number_of_workers_is_as_good_as_a_list_of_one():
    recording = Recording(0.0, 1.0, 0.0)
    assert what_if(recording, 8).to_dicts() == what_if(recording, [8]).to_dicts()
    for wrong in ("8", ["8"], [0], [float("nan")], None):
        with pytest.raises(DiagnosticError, match=r"^workers: expected "):
            what_if(recording, wrong)


def test_as_many_processes_as_tasks_are_left_out_if_they_take_longer_to_start():
    names = [
        set(what_if(load(STORIES / f"{story}.diag"))["name"].tolist())
        for story in ("qr", "word_count")
    ]
    assert ["unlimited" in those for those in names] == [True, False]
    assert all({"4", "8"} & those for those in names)


def test_less_to_do_takes_no_longer():
    """In this program tasks run in a better order with their waits than without."""
    rows = what_if(load(STORIES / "groupby.diag")).to_dicts()
    kinds = {row["kind"] for row in rows if row["gain"] < 0}
    assert kinds <= {"workers"}
    assert {"activity", "function"} <= {row["kind"] for row in rows}
