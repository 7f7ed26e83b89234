"""The row of a pinned task in a real browser: its numbers are those of the recording."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from benchmarks.made_up import many_tasks
from dask_diag import report
from dask_diag.formatting import count, percent, seconds, size
from dask_diag.model.table import Table

from .opened_pages import settled
from .test_many_tasks import with_task_columns

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]

FEW, MANY = 75, 6000
"""Of few tasks the page has their times as they were measured, of many in ticks of 1 µs."""
TICK = 1e-6
AXIS = "Bokeh.documents[0].get_model_by_name('time axis')"
TASK_AT = """([x, y]) => {
    const find = (views) => views.flatMap((view) => view.model.name === "tasks"
        ? [view] : find(view.child_views ?? []))
    const [view] = find(Object.values(Bokeh.index))
    view.el.scrollIntoView({block: "center"})
    const at = view.el.getBoundingClientRect()
    return [at.x + view.frame.x_scale.compute(x), at.y + view.frame.y_scale.compute(y)]
}"""
MARKED = """() => Object.fromEntries(["pinned tasks", "path to the pinned task"].map((name) =>
    [name, Bokeh.documents[0].get_model_by_name(name).get_length() ?? 0]))"""


def known_tasks(number):
    """Tasks whose durations differ, and up to three dependencies of each that stopped before it."""
    recording = many_tasks(number, workers=5)
    random = np.random.default_rng(1)
    tasks = recording.tasks
    start, stop = np.zeros(number), np.zeros(number)
    length = 4 * random.permutation(number) + 50
    for worker in range(5):
        rows = np.flatnonzero(tasks.worker.codes == worker)
        rows = rows[np.argsort(tasks.start[rows])]
        stop[rows] = np.cumsum(length[rows] + 20) + worker
        start[rows] = stop[rows] - length[rows]
    nbytes = np.where(np.arange(number) % 5, 1000.0 * np.arange(number), np.nan)
    recording = with_task_columns(
        recording,
        start=start * TICK,
        stop=stop * TICK,
        thread_cpu=length * TICK / 4,
        submitted=start * TICK,
        collected=stop * TICK,
        nbytes=nbytes,
    )
    by_stop = np.argsort(stop, kind="stable")
    earlier = np.searchsorted(stop[by_stop], start)
    pairs = [
        (task, by_stop[random.integers(max(0, earlier[task] - 40), earlier[task])])
        for task in np.flatnonzero(earlier > 0).tolist()
        for _ in range(task % 4)
    ]
    task, depends_on = np.unique(pairs, axis=0).T
    return replace(
        recording,
        stop=float(stop.max() * TICK) + 0.001,
        dependencies=Table({"task": task, "depends_on": depends_on}),
    )


def last_dependency(recording, row):
    """The row of the dependency that stopped last; None if there is none."""
    table = recording.dependencies
    of_task = table.depends_on[table.task == row]
    return max(of_task.tolist(), key=lambda other: recording.tasks.stop[other], default=None)


def name(tasks, row):
    return f"{tasks.function[row]} ({tasks.key[row].partition(', ')[2]}"


def expected(recording, row):
    """What the page should say of a task."""
    tasks = recording.tasks
    length = tasks.stop - tasks.start
    alike = length[tasks.function.eq(tasks.function[row])]
    longer = int((alike > length[row] + TICK / 2).sum())
    place = longer + 1
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(place % 10 if place % 100 // 10 != 1 else 0, "th")
    rank = "longest" if longer == 0 else f"{count(place)}{suffix} longest"
    share = percent(tasks.thread_cpu[row] / length[row])
    parts = [
        name(tasks, row),
        f"{seconds(length[row])} (CPU {share})",
        *([] if tasks.outcome[row] == "ok" else ["failed: ValueError"]),
        f"{rank} of {count(len(alike))}",
    ]
    last = last_dependency(recording, row)
    if last is not None:
        before = round((tasks.start[row] - tasks.stop[last]) / TICK) * TICK
        when = f", until {seconds(before)} before it started" if before else ""
        parts.append(f"waited for {name(tasks, last)}{when}")
    if not np.isnan(tasks.nbytes[row]):
        parts.append(f"result {size(tasks.nbytes[row])}")
    return " · ".join(parts)


def path_to(recording, row):
    path = [row]
    while (before := last_dependency(recording, path[0])) is not None:
        path.insert(0, before)
    return path


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """So many tasks, and their report."""
    folder = tmp_path_factory.mktemp("pinned")

    @cache
    def of(number):
        recording = known_tasks(number)
        return recording, report(recording, folder / f"{number}.html")

    return of


@pytest.fixture(params=[FEW, MANY])
def known_page(request, written):
    return written(request.param)


def show(page, recording, row):
    """Zoom to a task; the middle of its rectangle, in pixels of the window."""
    tasks = recording.tasks
    start, stop = float(tasks.start[row]), float(tasks.stop[row])
    around = stop - start
    page.evaluate(f"{AXIS}.setv({{start: {max(0, start - around)}, end: {stop + around}}})")
    settled(page, 300)
    lane = int(tasks.worker[row].split("-")[1])
    return page.evaluate(TASK_AT, [(start + stop) / 2, 320 * lane + 100])


def text_of(page):
    row = page.locator("#pinned p")
    row.wait_for(state="visible", timeout=10_000)
    return row.text_content()


def test_a_click_pins_a_task_with_the_numbers_of_the_recording(open_file, known_page):
    recording, path = known_page
    page = open_file(path)
    tasks, number = recording.tasks, len(recording.tasks)
    longest = int(np.argmax(tasks.stop - tasks.start))
    failed = int(np.flatnonzero(tasks.outcome.eq("failed"))[0])
    for row in (longest, failed, number // 2, number - 1):
        page.mouse.click(*show(page, recording, row))
        page.wait_for_function(
            "key => document.querySelector('#pinned b').title === key", arg=tasks.key[row]
        )
        assert text_of(page) == expected(recording, row)
        assert page.evaluate(MARKED)["pinned tasks"] == 1
    # Between two lanes there is no task.
    x, _ = show(page, recording, longest)
    page.mouse.click(x, page.evaluate(TASK_AT, [0, 290])[1])
    page.locator("#pinned").wait_for(state="hidden")
    assert page.evaluate(MARKED)["pinned tasks"] == 0


def test_zoom_and_path_lead_to_the_task_and_to_what_it_waited_for(open_file, known_page):
    recording, path = known_page
    tasks = recording.tasks
    page = open_file(path)
    lengths = [len(path_to(recording, row)) for row in range(FEW)]
    row = int(np.argmax(lengths))
    chain = path_to(recording, row)
    assert len(chain) > 2
    page.mouse.click(*show(page, recording, row))
    text_of(page)
    page.evaluate(f"{AXIS}.setv({{start: 0, end: {AXIS}.bounds[1]}})")
    page.get_by_role("button", name="Zoom").click()
    start, end = page.evaluate(f"[{AXIS}.start, {AXIS}.end]")
    assert start <= tasks.start[row] < tasks.stop[row] <= end
    assert end - start < 1.2 * (tasks.stop[row] - tasks.start[row])
    page.get_by_role("button", name="Path", exact=True).click()
    page.wait_for_function("document.querySelector('[data-path]').textContent !== ''")
    span = tasks.stop[row] - tasks.start[chain[0]]
    work = float((tasks.stop - tasks.start)[chain].sum())
    assert text_of(page) == (
        f"{expected(recording, row)} · path: {count(len(chain))} tasks in {seconds(span)}, "
        f"of it {seconds(work)} in tasks"
    )
    marked = {"pinned tasks": len(chain), "path to the pinned task": len(chain) - 1}
    assert page.evaluate(MARKED) == marked
    start, end = page.evaluate(f"[{AXIS}.start, {AXIS}.end]")
    assert start <= tasks.start[chain[0]]
    assert end >= tasks.stop[row]


def test_where_pixels_are_drawn_a_click_asks_to_zoom(open_file, written):
    page = open_file(written(MANY)[1])
    recording_end = page.evaluate(f"{AXIS}.end")
    settled(page, 500)
    page.mouse.click(*page.evaluate(TASK_AT, [recording_end / 2, 100]))
    assert "zoom in until each is drawn" in text_of(page)
    assert page.locator("#pinned button:visible").all_text_contents() == ["Unpin"]


def test_what_does_not_fit_into_the_page_is_reported(open_file, tmp_path, monkeypatch):
    monkeypatch.setattr("dask_diag.views.plots.tasks._MOST_WITH_DETAILS", 0)
    recording = known_tasks(MANY)
    report(recording, tmp_path / "report.html")
    page = open_file(tmp_path / "report.html")
    length = recording.tasks.stop - recording.tasks.start
    longest = np.argsort(-length, kind="stable")[:50].tolist()
    page.locator("#tasks .plain").last.click()
    page.locator("#tasks button[data-task]").last.click()
    assert text_of(page) == expected(recording, longest[-1])
    in_page = {task for row in longest for task in path_to(recording, row)}
    other = max(set(range(MANY)) - in_page)
    page.mouse.click(*show(page, recording, other))
    page.wait_for_function(
        "document.querySelector('#pinned p').textContent.includes('left out of this page')"
    )
    assert [*expected(recording, other).split(" · ")[:3]] == text_of(page).split(" · ")[:3]
    assert page.get_by_role("button", name="Path", exact=True).count() == 0
