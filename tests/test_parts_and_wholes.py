"""In what is said of a recording no part is larger than its whole, also where computations overlap."""

import re
import threading

import dask.array as da
import dask.threaded
import pytest
from hypothesis import given, settings

from dask_diag import Profiler, SamplingProfiler, findings, summary
from dask_diag.analysis.activities import activities
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.phases import not_of_graphs_while_preparing, phases, seconds_not_of_graphs
from dask_diag.analysis.wall_time import wall_time
from dask_diag.model.recording import Recording

from .random_recordings import recordings
from .recordings import CORE, MAIN, Task, numbers, run, with_columns, with_stacks, with_tables
from .test_imports_of_graphs import BOOTSTRAP

pytestmark = pytest.mark.once

_SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_TIME = r"(?P<{0}>[\d,.]+) (?P<{0}_unit>ns|µs|ms|s|min|h)\b"
_OF = re.compile(_TIME.format("part") + r" of (?:the )?" + _TIME.format("whole"))
_OF_IT = re.compile(_TIME.format("whole") + r" \(" + _TIME.format("part") + r" of it")
_PERCENT = re.compile(r"([\d,.]+)%")
_ROUNDED = 1.01
"""Three digits are shown."""


def parts_that_are_too_large(text):
    """Each part of a whole in a text that is larger than it."""
    text = " ".join(text.replace("\u00a0", " ").split())

    def value(found, name):
        return float(found[name].replace(",", "")) * _SECONDS[found[f"{name}_unit"]]

    for pattern in (_OF, _OF_IT):
        for found in pattern.finditer(text):
            if value(found, "part") > value(found, "whole") * _ROUNDED:
                yield text[max(0, found.start() - 60) : found.end() + 30]
    for found in _PERCENT.finditer(text):
        if float(found[1].replace(",", "")) > 100:
            yield text[max(0, found.start() - 60) : found.end() + 30]


def assert_parts_are_parts(recording):
    texts = [summary(recording, verbose=True)]
    texts += [text for found in findings(recording) for text in (found.evidence, found.advice)]
    assert [*map(list, map(parts_that_are_too_large, texts))] == [[] for _ in texts]


def test_what_is_looked_for_is_found():
    text = "preparing 156 ms (10.6 s of it imports), 5 s of 4 s, 3 of 5 ms, 12% and 1,002%"
    found = [*parts_that_are_too_large(text)]
    assert len(found) == 3
    assert not [*parts_that_are_too_large("4 s of 4 s: 100%; 10 s (9 s of it)")]


@settings(max_examples=60, deadline=None)
@given(recordings(most_computations=6, schedulers=("threads", "processes")))
def test_any_recording(recording):
    assert_parts_are_parts(recording)


def eight_at_once(graph=1.0, work=0.1, imports=0.5):
    """Each of eight threads prepares a graph, of which a part is imports, and runs a task."""
    number = 8
    names = [f"c{n}" for n in range(number)]
    stop = graph + work
    stacks = [
        ((0.0, graph), "graph", path, 0.1, 0.1)
        for path, seconds in (
            ([MAIN, CORE, BOOTSTRAP], number * imports),
            ([MAIN, CORE], number * (graph - imports)),
        )
        for _ in range(round(seconds / 0.1))
    ]
    tasks = [Task(graph, stop, work / 4, "f") for _ in names]
    recording = run(
        tasks, workers=1, cpus=2, called=0.0, prepared=graph, cpu_other_processes=1.9 * stop
    )
    recording = with_columns(recording, "computations", number, computation=names)
    recording = with_columns(recording, "tasks", computation=names)
    return with_stacks(recording, stacks)


def test_imports_while_eight_graphs_are_prepared_pass_once():
    recording = eight_at_once()
    assert seconds_not_of_graphs(recording).sum() == pytest.approx(8 * 0.5)
    assert not_of_graphs_while_preparing(recording) == pytest.approx(0.5)
    assert "preparing 1.00 s (500 ms of it imports and profilers)" in summary(
        recording, verbose=True
    )
    parts = {row["part"]: row["seconds"] for row in wall_time(recording).to_dicts()}
    assert parts["startup"] == pytest.approx(0.5)
    assert parts["preparing"] == pytest.approx(0.5)
    assert_parts_are_parts(recording)


def test_graphs_that_are_prepared_at_once_take_what_passed():
    recording = eight_at_once(imports=0.0)
    found = {finding.code: finding for finding in findings(recording)}["graph-preparation"]
    assert numbers(found, "graphs", "took", "wall") == (8, 1, 1.1)
    assert_parts_are_parts(recording)


def test_what_is_added_up_over_computations_that_overlap_is_named_so():
    recording = eight_at_once(graph=0.1, work=1.0, imports=0.0)
    dependencies = {"task": [1], "depends_on": [0]}
    recording = with_tables(recording, dependencies=dependencies)
    text = " ".join(summary(recording).split())
    assert "of 8.80 s (sum of 8 overlapping computations); at most" in text
    found = {finding.code: finding for finding in findings(recording)}
    # Each computation has all that other programs used meanwhile.
    assert numbers(found["busy-machine"], "others") == (2.09,)


@pytest.mark.parametrize("is_sampled", [False, True])
def test_eight_threads_that_compute(is_sampled):
    x = da.ones((600, 600), chunks=100).sum()

    def compute():
        for _ in range(5):
            x.compute(scheduler="threads", num_workers=2)

    profilers = [Profiler(), *[SamplingProfiler(interval="1ms")] * is_sampled]
    threads = [threading.Thread(target=compute) for _ in range(8)]
    for profiler in profilers:
        profiler.__enter__()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for profiler in profilers:
        profiler.__exit__()
    recording = Recording.combine([profiler.recording for profiler in profilers])
    assert len(recording.computations) == 40
    assert_parts_are_parts(recording)
    preparing = {row["phase"]: row["seconds"] for row in phases(recording).to_dicts()}["preparing"]
    assert not_of_graphs_while_preparing(recording) <= preparing * (1 + 1e-9)
    own = recording.computations.own_seconds
    assert (own > 0).all()
    # What profilers did is no start of the program's.
    seconds = {row["activity"]: row["value"] for row in activities(recording).to_dicts()}
    assert seconds["profilers"] > 0
    assert Analysis(recording).share_of_profilers <= 1.0


class WithWork(Profiler):
    """It has work to do for 50 ms as a computation starts, and for 20 ms once it has a state."""

    def _began(self, computation):
        self.wait(0.05)

    def tasks_start(self, watch):
        self.wait(0.02)

    @staticmethod
    def wait(seconds):
        threading.Event().wait(seconds)


def test_time_of_profilers_is_neither_the_graphs_nor_the_schedulers():
    with WithWork() as prof:
        dask.threaded.get({("x", 0): (int,)}, [("x", 0)], num_workers=2)
    recording = prof.recording
    assert 0.07 <= recording.computations.own_seconds.item() < 0.1
    seconds = {row["activity"]: row["value"] for row in activities(recording).to_dicts()}
    assert seconds["profilers"] == pytest.approx(2 * recording.computations.own_seconds.item())
    assert seconds.get("graph", 0.0) < 2 * 0.02
    assert seconds.get("overhead", 0.0) < 2 * 0.02
    parts = {row["part"]: row["seconds"] for row in wall_time(recording).to_dicts()}
    assert parts["profilers"] >= 0.07
