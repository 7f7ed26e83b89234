"""The state of a live view: its sums are those of the file, and its progress never falls."""

import io
import re
import threading
import time
from dataclasses import replace
from math import nan
from pathlib import Path

import dask
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dask_diag import load, record, save
from dask_diag.analysis.findings.rule import Finding
from dask_diag.analysis.functions import by_function
from dask_diag.formatting import amount
from dask_diag.live import background
from dask_diag.live.background import FindingsSoFar
from dask_diag.live.model import (
    ComputationProgress,
    FunctionSums,
    LiveModel,
)
from dask_diag.live.picture import picture
from dask_diag.live.screen import screen
from dask_diag.live.texts import (
    long_running_line,
    preparation_line,
    progress_lines,
    state_line,
)
from dask_diag.storage import write
from dask_diag.storage.follow import FollowState
from dask_diag.storage.write import Writer

from .live_chunks import Model, progress_of, running, tasks, update
from .recordings import NOTHING, example, filled_table

pytestmark = [pytest.mark.once, pytest.mark.leaves_files]


def test_a_chunk_that_does_not_fit_is_said_until_another_recording_comes(monkeypatch):
    """`load` refuses the file, however complete it is."""
    encode, texts = write.encode_chunk, {example(50, seed=2).stop}

    def encoded(recording, *arguments):
        made_up = replace(recording, start="x") if recording.stop in texts else recording
        return encode(made_up, *arguments)

    monkeypatch.setattr(write, "encode_chunk", encoded)
    model = LiveModel("run.diag")
    with Writer("run.diag") as writer:
        writer.append(example(30))
        writer.append(example(50, seed=2))
    for _ in range(3):
        model.poll()
        assert model.state == FollowState.NOT_A_RECORDING
        assert "are inconsistent" in model.problem
    monkeypatch.undo()
    save(example(7), "run.diag", overwrite=True)
    model.poll()
    assert (model.state, model.recorded) == (FollowState.COMPLETE, 7)


def test_tasks_that_run_for_more_than_a_minute_are_named():
    names = ("first-" + "x" * 90, "second", "third", "fourth", "fifth")
    rows = filled_table(
        "tasks", {"key": [*names], "start": [10.0, 20.0, 30.0, 40.0, 90.0], "stop": [nan] * 5}
    )
    model = Model()
    model.apply(update(NOTHING, fresh=True, provisional=replace(NOTHING, tasks=rows)))
    assert long_running_line(model.at(69.0)) == ""
    text = long_running_line(model.at(80.0))
    assert re.fullmatch(
        r"Running for more than a minute: first-x+…x+ for 1 min 10 s, second for 1 min 00 s", text
    )
    assert len(text) < 120
    assert long_running_line(model.at(110.0)).endswith("third for 1 min 20 s, and 1 more")
    model.state = FollowState.TRUNCATED
    assert long_running_line(model.at(110.0)) == ""


def test_a_real_recording_gives_the_numbers_of_its_summary():
    model = LiveModel("run.diag")
    model.poll()
    with record("run.diag"):
        dask.compute(*[dask.delayed(sum)([n, 1]) for n in range(50)], scheduler="threads")
    model.poll()
    recording = load("run.diag")
    (row,) = by_function(recording).to_dicts()
    sums = model.functions["sum"]
    assert (sums.tasks, sums.seconds) == (row["tasks"], pytest.approx(row["wall"]))
    assert model.planned() == {"sum": 50}
    assert model.ended == 1
    assert not model.running
    assert model.machine.cpus >= 1
    assert model.machine.memory > 1e8
    assert progress_lines(model) == ["50 tasks of 1 computation"]
    time = model.worker_time()
    assert sum(time) == pytest.approx(
        recording.computations.workers[0]
        * (recording.computations.stop[0] - recording.computations.prepared[0])
    )


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 40)), max_size=20))
def test_progress_is_never_above_all_and_never_falls(seen):
    model, shares = Model(), [0.0]
    for finished, total in seen:
        model.apply(update(provisional=running(total=max(total, 40), finished=finished)))
        shares.append(model.computations["c"].share)
    assert max(shares) <= 1.0
    assert shares == sorted(shares)


@pytest.mark.parametrize(("total", "finished", "share"), [(1000, 999, 99), (9, 9, 100), (0, 0, 0)])
def test_all_tasks_but_one_are_not_100_percent(total, finished, share):
    model = Model()
    model.apply(update(NOTHING, provisional=running(total=total, finished=finished, since=130.0)))
    assert progress_lines(model)[0].endswith(f" tasks, {share}%")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"problem": "damaged"}, "but the file is damaged: nothing after 12.0 s can be read"),
        ({"quiet": 28.0}, "nothing written for 28 s"),
        ({"state": FollowState.WAITING}, "waiting: run.diag is gone"),
    ],
)
def test_what_happens_to_a_file_that_grows_is_said_and_its_rows_stay(change, line):
    model = Model()
    grown = replace(NOTHING, start=10.0, stop=22.0, tasks=tasks())
    model.apply(update(grown, fresh=True, provisional=running(total=9, finished=3)))
    model.apply(update()._replace(**change))
    assert state_line(model.at(40.0)).endswith(line)
    assert model.recorded == 10


def half_done(**changes):
    return ComputationProgress(
        **{
            "since": 100.0,
            "total": 40,
            "finished": 10,
            "planned": {"load": 20, "mean": 20},
            "recorded": {"load": FunctionSums(10, 40.0)},
            **changes,
        }
    )


@pytest.mark.parametrize(
    ("changes", "now", "left"),
    [
        # Two workers were busy for 20 s: 40 s of tasks. Left are 10 of 4 s, and 20 that take as long
        # as others, as none of them is done: 120 s of tasks, 60 s of two workers.
        ({}, 120.0, 60.0),
        (
            {"recorded": {"load": FunctionSums(10, 40.0), "mean": FunctionSums(5, 0.5)}},
            120.0,
            (40 + 15 * 0.1) * 20 / 40.5,
        ),
        # It would be a guess.
        ({}, 109.9, None),
        ({"finished": 1}, 120.0, None),
        ({"phase": "ordering"}, 120.0, None),
        ({"recorded": {}}, 120.0, None),
    ],
)
def test_what_is_left_is_the_seconds_of_planned_tasks_over_workers(changes, now, left):
    assert half_done(**changes).seconds_left(now) == (left and pytest.approx(left))


def test_what_dask_does_before_the_first_task_is_said():
    model = Model()
    graph = replace(NOTHING, progress=progress_of(computation="", phase="graph", since=10.0))
    model.apply(update(NOTHING, provisional=graph))
    assert progress_lines(model.at(11.3)) == ["dask makes a graph, 1.3 s so far"]
    assert progress_lines(model.at(22.5)) == ["dask makes a graph, 12 s so far"]
    ordering = running(phase="ordering", since=20.0, total=950_669)
    model.apply(update(provisional=ordering))
    assert progress_lines(model.at(75.0)) == ["ordering 950,669 tasks, 55 s so far"]
    assert state_line(model.at(75.5)) == "preparing for 1 min 15 s"
    model.apply(update(provisional=running(phase="ordering", since=20.0, total=1)))
    assert progress_lines(model.at(75.0)) == ["ordering 1 task, 55 s so far"]
    model.apply(update(provisional=running(total=34_338, finished=12_204, since=70.0)))
    assert progress_lines(model.at(75.0)) == ["12,204 of 34,338 tasks, 35%"]


def computation(name, called, start, prepared, stop):
    times = {"called": [called], "start": [start], "prepared": [prepared], "stop": [stop]}
    return filled_table("computations", {"computation": [name], **times})


def test_the_seconds_before_the_first_task_are_named_as_long_as_the_recording_is_shown():
    model = Model()
    for rows, provisional, line in [
        # What the computation does now, and since when, is in the line above.
        (None, ("c", 2.5, 20.0, 27.0, 27.0), "making the graph 17.5 s"),
        (None, ("c", 2.5, 20.0, 28.0, 29.0), "making the graph 17.5 s, ordering 8.00 s"),
        (("c", 2.5, 20.0, 28.0, 40.0), None, "making the graph 17.5 s, ordering 8.00 s"),
    ]:
        phase = "ordering" if line.endswith("17.5 s") else "tasks"
        now = running(total=9, since=20.0, phase=phase)
        if provisional:
            now = replace(now, computations=computation(*provisional))
        ended = [replace(NOTHING, computations=computation(*rows))] if rows else []
        model.apply(update(*ended, provisional=None if rows else now))
        assert preparation_line(model) == f"before the first task: {line}"
    second = replace(NOTHING, computations=computation("d", 50.0, 51.0, 53.0, 60.0))
    model.apply(update(second, state=FollowState.COMPLETE))
    text = "before the first tasks of 2 computations: making graphs 18.5 s, ordering 10.0 s"
    assert preparation_line(model) == text
    assert text in "\n".join(drawn(model))
    assert text in picture(model)


def drawn(viewer, width=80, height=24):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(screen(viewer, width, height))
    return console.file.getvalue().split("\n")


def busy_model(functions=30, long_name="f", stop=NOTHING.stop):
    model = Model()
    chunks = [
        replace(NOTHING, tasks=tasks(f"{long_name}{n}", count=n + 1)) for n in range(functions)
    ]
    keys = [f"slow-{n}" for n in range(9)]
    resources = {"time": np.arange(90.0), "cpu": np.arange(90.0), "memory": np.full(90, 1e9)}
    chunks.append(replace(NOTHING, stop=stop, resources=filled_table("resources", resources)))
    provisional = replace(
        running(total=2000, finished=465, since=100.0),
        tasks=filled_table("tasks", {"key": keys, "start": np.arange(9.0), "worker": ["w"] * 9}),
    )
    model.apply(update(*chunks, provisional=provisional, fresh=True))
    return model


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (40, 16)])
def test_a_frame_fits_the_terminal(width, height):
    model = busy_model(long_name="function_with_a_name_that_is_quite_long_for_a_terminal_" * 2)
    lines = drawn(model, width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert "465 of 2,000 tasks, 23%" in lines[1]


def test_a_frame_has_the_longest_running_task_and_functions_by_seconds():
    lines = drawn(busy_model())
    functions = [line.split()[0] for line in lines if line.startswith("f") and line[1].isdigit()]
    assert functions[:2] == ["f29", "f28"]
    running_lines = [line for line in lines if line.startswith("slow-")]
    assert running_lines[0].startswith("slow-0")
    assert "2 min 10 s" in running_lines[0]


def test_of_a_program_that_was_killed_no_time_is_left_and_nothing_runs_on():
    model = busy_model()
    model.computations["c"].planned = {"f1": 2000}
    assert "left" in progress_lines(model.at(300.0))[0]
    assert "running longest" in picture(model)
    model.state = FollowState.TRUNCATED
    assert progress_lines(model.at(300.0)) == ["465 of 2,000 tasks, 23%"]
    assert "running at the end" in picture(model)
    assert "running at the end" in "\n".join(drawn(model))
    assert "running longest" not in picture(model) + "\n".join(drawn(model))


def test_a_picture_has_start_end_and_rate_and_a_line_for_each_function():
    model = busy_model(functions=14, stop=120.0).at(120.0)
    model.epoch = 3600.0
    model.computations["c"].planned = {"f13": 28}
    html = picture(model)
    # Started at 0 s of the recording's clock; in the last 10 s two functions' tasks ended.
    ended = sum(1 for n in range(14) for task in range(n + 1) if 110 < 102 + task <= 120)
    left = model.computations["c"].seconds_left(120.0)
    clock = time.strftime("%H:%M:%S", time.gmtime(3720 + left))
    assert f"started 01:00:00, ends about {clock} (UTC), {amount(ended / 10)} tasks/s" in html
    assert "f13: 14 of 28" in html
    assert "width: 50.0%" in html
    assert "f12: 13<" in html
    assert "and 2 more functions" in html
    model.state = FollowState.COMPLETE
    assert "ended 01:02:00 (UTC)" in picture(model)


def test_keys_cannot_move_the_cursor():
    model = Model("\x1b[2J[red]")
    key = "\x1b[2Jboo[red]\n-1"
    hostile = {"key": [key], "function": [key], "start": [1.0], "worker": ["[bold]w"]}
    provisional = replace(NOTHING, tasks=filled_table("tasks", hostile))
    model.apply(update(replace(NOTHING, tasks=tasks(key)), provisional=provisional))
    text = "\n".join(drawn(model))
    assert "\x1b[2J" not in text
    assert "[red]" in text


class Watched:
    """Findings of a recording that grows, which are the times at which they were made."""

    def __init__(self, make=None):
        self.model, self.now, self.cpu, self.made = Model(), 0.0, 0.0, []
        self.findings = FindingsSoFar(
            "run.diag", make or self.make, lambda: self.now, lambda: self.cpu
        )

    def make(self, path):
        self.made.append(self.now)
        self.cpu += 0.06
        return [self.now]

    def add(self, *recordings, **settings):
        self.model.apply(update(*recordings, **settings))

    def add_tasks(self, stop, **settings):
        self.add(replace(NOTHING, tasks=tasks(), stop=stop), **settings)

    def refresh(self):
        self.findings.refresh(self.model)
        if self.findings._thread:
            self.findings._thread.join()
        return self.findings.findings

    @property
    def note(self):
        return self.findings.note(self.model)


def test_findings_are_made_rarely_and_once_at_the_end():
    watched = Watched()
    for _ in range(100):
        watched.add_tasks(watched.now)
        watched.refresh()
        watched.now += 0.8
    # None of the first 10 s; a thousandth of a core: 60 ms every minute.
    assert watched.made == pytest.approx([11.2, 71.2], abs=0.81)
    assert watched.note.startswith("of the first 1 min 1")
    watched.add(state=FollowState.COMPLETE)
    for _ in range(3):
        watched.findings.finish(watched.model)
    assert len(watched.made) == 3


def test_findings_of_a_recording_that_is_over_are_those_of_all_of_it_at_once():
    watched = Watched()
    watched.add_tasks(11.5)
    watched.refresh()
    # The recording ends a moment later, when the next ones would not be due for long.
    watched.add(state=FollowState.COMPLETE)
    assert watched.note == "of the first 11 s, so far"
    for _ in range(3):
        watched.refresh()
    assert len(watched.made) == 2
    assert watched.note == ""
    watched.add(state=FollowState.TRUNCATED)
    assert watched.note == "of the 11 s that were recorded"


def test_findings_of_a_recording_that_goes_on_say_their_age():
    watched = Watched()
    watched.add_tasks(12.0)
    watched.refresh()
    assert watched.findings.note(watched.model.at(12.5)) == "of the first 11 s, so far"
    assert watched.findings.note(watched.model.at(25.0)) == "of the first 11 s, 13 s ago"


def test_findings_of_another_recording_do_not_stay_when_it_is_replaced():
    texts, release = iter(["old", "slow old", "new"]), threading.Event()

    def make(path):
        text = next(texts)
        assert text != "slow old" or release.wait(20)
        return [text]

    watched = Watched(make)
    watched.add_tasks(1.0, fresh=True, state=FollowState.COMPLETE)
    assert watched.refresh() == ["old"]
    revision = watched.findings.revision
    # Replaced by rename, complete as well; and again, while its findings are made.
    for _ in range(2):
        watched.add_tasks(1.0, fresh=True, state=FollowState.COMPLETE)
        watched.findings.refresh(watched.model)
        assert (watched.findings.findings, watched.note) == ([], "so far")
    assert watched.findings.revision > revision
    release.set()
    watched.findings._thread.join()
    assert watched.findings.findings == []
    assert watched.refresh() == ["new"]
    assert watched.note == ""


def test_findings_of_very_many_tasks_are_left_to_the_report_and_to_the_end_of_top(monkeypatch):
    monkeypatch.setattr(background, "MOST_TASKS", 5)
    watched = Watched()
    watched.add_tasks(1.0, state=FollowState.COMPLETE)
    assert watched.refresh() == []
    assert watched.note == "of more than 5 tasks they are in the report, at the end"
    assert watched.findings.finish(watched.model) == [0.0]


def test_findings_that_cannot_be_made_are_no_error():
    watched = Watched(lambda path: {}["odd"])
    watched.add_tasks(1.0, state=FollowState.COMPLETE)
    assert watched.refresh() == []
    assert watched.note == "could not be made: 'odd'"


def test_findings_that_lost_most_come_first(monkeypatch):
    """A view shows the seconds, and not the severity, which is of other shares of the time."""

    def finding(code, severity, lost):
        return Finding(code, severity, lost, "evidence", "advice", certainty="estimate")

    in_a_report = [
        finding("failed-tasks", "high", nan),
        finding("spilling", "high", nan),
        finding("busy-machine", "medium", 0.378),
        finding("gil-bound", "low", 0.482),
        finding("imbalance", "low", 0.1),
    ]
    monkeypatch.setattr(background, "findings", lambda recording: in_a_report)
    save(example(3), "run.diag")
    model = LiveModel("run.diag")
    model.poll()
    shown = FindingsSoFar(Path("run.diag")).finish(model)
    codes = ["failed-tasks", "gil-bound", "busy-machine", "imbalance", "spilling"]
    assert [finding.code for finding in shown] == codes
