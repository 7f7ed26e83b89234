"""A part of the time that is chosen: the table of functions has what tasks did then."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.made_up import many_tasks
from dask_diag import load, report
from dask_diag.formatting import count, seconds

from .opened_pages import settled

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]

STORIES = Path(__file__).parent.parent / "docs" / "stories"
BINS = 600
CHOOSE = """([start, end]) =>
    Bokeh.documents[0].get_model_by_name("workers").x_range.setv({start, end})"""
ROWS = """() => Object.fromEntries([...document.querySelectorAll("#functions tbody tr")].map((row) =>
    [row.cells[0].innerText.trim(), [...row.cells].slice(2).map((cell) => cell.innerText)]))"""
RANGES = """() => [...document.querySelectorAll("#functions [data-range]")]
    .map((place) => place.textContent)"""
BARS = """() => Object.fromEntries([...document.querySelectorAll("#functions tbody tr")].map((row) =>
    [row.cells[0].innerText.trim(),
     [...row.querySelectorAll(".bar span")].map(({title, style}) => [title, parseFloat(style.width)])]))"""


def in_range(recording, function, start, stop):
    """Of a function its seconds and CPU from one time to another, how many started, the longest."""
    tasks = recording.tasks
    rows = tasks.filter(tasks.function.eq(function))
    took = rows.stop - rows.start
    inside = np.clip(np.minimum(rows.stop, stop) - np.maximum(rows.start, start), 0, None)
    share = np.divide(inside, took, np.zeros(len(took)), where=took > 0)
    began = (rows.start >= start) & (rows.start < stop)
    cpu = float((share * rows.thread_cpu).sum())
    return float(inside.sum()), cpu, int(began.sum()), float(took[began].max(initial=0.0))


def chosen(page, recording, first, last):
    """Show some of the bins; returns the times that they begin and end."""
    length = (recording.stop - recording.start) / BINS
    # Beyond their edges by less than a bin: all of these bins are in the table.
    page.evaluate(CHOOSE, [(first + 0.4) * length, (last - 0.4) * length])
    page.wait_for_function("document.querySelector('#functions [data-part]').hidden === false")
    settled(page, 200)
    return recording.start + first * length, recording.start + last * length


@pytest.mark.parametrize(("story", "first", "last"), [("climatology", 300, 420), ("qr", 50, 51)])
def test_numbers_of_a_range_are_those_of_the_recording(open_file, tmp_path, story, first, last):
    recording = load(STORIES / f"{story}.diag")
    page = open_file(report(recording, tmp_path / "page.html"))
    in_all, at_first = page.evaluate(ROWS), page.evaluate(RANGES)
    start, stop = chosen(page, recording, first, last)
    rows = page.evaluate(ROWS)
    assert rows.keys() == in_all.keys()
    assert rows["total"] != in_all["total"]
    for function in rows.keys() - {"total"}:
        took, cpu, began, longest = in_range(recording, function, start, stop)
        time, _, cpu_text, tasks, longest_text, *memory = rows[function]
        # That of a part of the time is not known.
        assert memory == in_all[function][5:]
        expected = [seconds(took), seconds(cpu), count(began), seconds(longest)]
        # Rounded twice: times of the page are whole numbers of ticks.
        for text, value in zip((time, cpu_text, longest_text), (took, cpu, longest), strict=True):
            assert value_of(text) == pytest.approx(value, rel=0.006, abs=2e-6), (function, expected)
        assert tasks == count(began), function
    none = [name for name, cells in rows.items() if cells[0] == "0 s" and cells[3] == "0"]
    hidden = page.eval_on_selector_all(
        "#functions tr[hidden]", "(rows) => rows.map((row) => row.cells[0].innerText.trim())"
    )
    assert sorted(hidden) == sorted(none)
    texts = page.evaluate(RANGES)
    assert len(texts) == 2
    for text in texts:
        begins, ends = text.split("from ")[1].split(", in")[0].split(" to ")
        assert value_of(begins) == pytest.approx(start - recording.start, abs=6e-3)
        assert value_of(ends) == pytest.approx(stop - recording.start, abs=6e-3)
    page.click("#functions [data-whole]")
    page.wait_for_function("document.querySelector('#functions [data-part]').hidden")
    assert page.evaluate(ROWS) == in_all
    assert page.evaluate(RANGES) == at_first == [", of the whole run"] * 2


def value_of(text):
    number, unit = text.split()
    return float(number.replace(",", "")) * {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]


def test_bars_of_a_range_sum_to_its_times(open_file, tmp_path):
    recording = load(STORIES / "groupby.diag")
    page = open_file(report(recording, tmp_path / "page.html"))
    before = list(page.evaluate(ROWS))
    chosen(page, recording, 520, 590)
    rows, bars = page.evaluate(ROWS), page.evaluate(BARS)
    # Other functions ran then: the longest is first, and its bar is as wide as there is space.
    assert list(rows) != before
    times = [value_of(cells[0]) for name, cells in rows.items() if name != "total"]
    assert times == sorted(times, reverse=True)
    first = next(iter(rows))
    assert sum(width for _, width in bars[first]) == pytest.approx(100, abs=0.1)
    for name, pieces in bars.items():
        if name == "total":
            continue
        parts = sum(value_of(title.rpartition(": ")[2]) for title, _ in pieces)
        assert parts == pytest.approx(value_of(rows[name][0]), rel=0.02, abs=1e-6)


def test_a_range_of_many_tasks_is_summed_up_at_once(open_file, tmp_path):
    recording = many_tasks(200_000)
    page = open_file(report(recording, tmp_path / "page.html"))
    start, stop = chosen(page, recording, 100, 130)
    rows = page.evaluate(ROWS)
    for function in rows.keys() - {"total"}:
        took, cpu, began, _ = in_range(recording, function, start, stop)
        assert value_of(rows[function][0]) == pytest.approx(took, rel=0.006)
        assert value_of(rows[function][2]) == pytest.approx(cpu, rel=0.006)
        assert rows[function][3] == count(began)
