"""Lines of many points: all are in the page, and what is drawn looks as if all were."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.made_up import many_tasks
from dask_diag import visualize
from dask_diag.analysis.memory import cached_levels
from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.views.plots.figures import letters

from .javascript import needs_node, run_javascript
from .opened_pages import settled
from .pages import arguments_of, unpacked
from .recordings import filled_table
from .test_many_tasks_browser import MODELS

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]


def with_samples(count):
    random = np.random.default_rng(0)
    time = np.cumsum(0.01 + random.exponential(2e-4, count))
    cpu = 50 + 30 * random.random(count)
    cpu[count // 3] = 311.0
    cpu[5::1000] = np.nan
    memory = 4096.0 * (1000 + np.abs(np.cumsum(random.integers(-50, 51, count))))
    samples = {
        "time": time,
        "cpu": cpu,
        "memory": memory,
        "memory_children": memory / 4,
        "read": np.cumsum(random.random(count) < 0.1) * 4096.0,
        "written": np.zeros(count),
        "threads": random.integers(8, 12, count),
        "delay": random.exponential(2e-4, count),
    }
    return replace(
        many_tasks(16), resources=filled_table("resources", samples), stop=float(time[-1])
    )


def with_results(count, metric=None):
    random = np.random.default_rng(0)
    start = np.cumsum(random.exponential(1e-4, count))
    which = random.integers(0, 3, count)
    held = {
        "key": PrefixStrings.of(f"k-{n}" for n in range(count)),
        "function": Categorical(which, ["a", "b", "c"]),
        "computation": Categorical(np.zeros(count, int), ["c-1"]),
        "metric": np.ones(count) if metric is None else metric(random, count),
        "start": start,
        "stop": start + random.exponential(1e-2, count),
    }
    return replace(
        many_tasks(16),
        cached_results=filled_table("cached_results", held),
        stop=float(start[-1]) + 1,
    )


def lines_of(recording, plot, tmp_path):
    path = tmp_path / "page.html"
    visualize(recording, filename=path, plots=[plot], show=False, mode="cdn")
    for line in arguments_of(path, "lines")["lines"]:
        columns = unpacked(line["packed"])
        values = {}
        for name, unit in line["units"].items():
            values[name] = np.cumsum(columns[name]) * unit
            values[name][columns["unknown " + name]] = np.nan
        yield values


def test_every_sample_is_in_the_page(tmp_path):
    recording = with_samples(20_000)
    samples = recording.resources
    (drawn,) = lines_of(recording, "resources", tmp_path)
    assert drawn["time"] == pytest.approx(samples["time"], abs=6e-7)
    assert drawn["cpu"] == pytest.approx(samples["cpu"], abs=0.051, nan_ok=True)
    assert drawn["memory"] == pytest.approx(1.25e-6 * samples["memory"], abs=1e-6)
    assert drawn["read"] == pytest.approx(1e-6 * samples["read"], abs=1e-6)
    assert drawn["threads"].tolist() == samples["threads"].tolist()
    assert drawn["delay"] == pytest.approx(1e3 * samples["delay"], abs=0.0051)


@pytest.mark.parametrize("metric", [None, lambda random, count: random.random(count) * 1e9])
def test_every_change_of_what_is_held_is_in_the_page(tmp_path, metric):
    recording = with_results(8000, metric)
    levels, total = cached_levels(recording)
    drawn = list(lines_of(recording, "cache", tmp_path))
    for line, level in zip(drawn, [total, *levels.values()], strict=True):
        assert line["time"] == pytest.approx(level.times, abs=6e-7)
        assert line["amount"] == pytest.approx(level.amounts, abs=1e-6 * level.peak)


@needs_node
def test_of_each_pixel_the_first_the_last_and_the_extremes_are_drawn():
    nan = float("nan")
    columns = {
        "time": [0.0, 0.1, 0.2, 0.3, 0.9, 1.0, 1.5, 2.5],
        "a": [5, 9, 1, 5, 5, 0, 0, 7],
        "b": [0, 0, 0, 8, 0, 1, 2, nan],
    }
    # A pixel is a second; the last row is out of view.
    everything, of_a, first_pixel = run_javascript(
        "plots/lines.js",
        "extremes",
        [columns, ["a", "b"], [0, 8], 0, 1],
        [columns, ["a"], [0, 7], 0, 1],
        [columns, ["a"], [1, 4], 0, 1],
    )
    assert everything == [0, 1, 2, 3, 4, 5, 6, 7]
    assert of_a == [0, 1, 2, 4, 5, 6]
    assert first_pixel == [1, 2, 3]


DRAWN = f"""() => {{
    {MODELS}
    const status = models.find((m) => m.type == "Title" && m.text.includes("in view"))
    if (status == null) return null
    const lines = models.filter((m) => m.type == "GlyphRenderer" && ["Step", "Line"].includes(m.glyph.type))
    const {{inner_width, x_range: {{start, end}}}} = models.find((m) => m.type == "Figure")
    return {{status: status.text, width: inner_width, start, end,
            data: lines.map((r) => Object.fromEntries(
                Object.entries(r.data_source.data).map(([n, c]) => [n, [...c]])))}}
}}"""


def drawn(page, start=None, end=None):
    page.wait_for_function(f"({DRAWN})() != null", polling=20, timeout=60_000)
    if start is not None:
        page.evaluate(
            f"""([start, end]) => {{ {MODELS}
            models.find((m) => m.type == "Figure").x_range.setv({{start, end}}) }}""",
            [start, end],
        )
    settled(page, 250)
    return page.evaluate(DRAWN)


def extremes(time, values, reported):
    """Lowest and highest of each pixel."""
    pixel = np.floor(
        (np.asarray(time) - reported["start"])
        / (reported["end"] - reported["start"])
        * reported["width"]
    )
    is_known = ~np.isnan(np.asarray(values, float))
    bounds = {}
    for p, value in zip(pixel[is_known], np.asarray(values, float)[is_known]):
        low, high = bounds.get(p, (value, value))
        bounds[p] = min(low, value), max(high, value)
    return bounds


@pytest.mark.browser
def test_of_many_samples_the_extremes_of_each_pixel_are_drawn_and_all_when_zoomed(opened):
    recording = with_samples(50_000)
    samples = recording.resources
    page = opened(recording, plots=["resources"])
    reported = drawn(page)
    assert reported["status"].startswith("50,000 samples in view, of each pixel")
    data = reported["data"][0]
    assert len(data["time"]) < 8 * reported["width"]
    missing = [float("nan") if v is None else v for v in data["cpu"]]
    of_drawn = extremes(data["time"], missing, reported)
    expected = extremes(samples["time"], samples["cpu"], reported)
    # A sample on the edge of two pixels may count to the other one.
    assert (
        np.mean([of_drawn.get(p) == pytest.approx(e, abs=0.06) for p, e in expected.items()]) > 0.99
    )
    assert max(high for _, high in of_drawn.values()) == 311
    begin, end = float(samples["time"][20_000]), float(samples["time"][22_000])
    reported = drawn(page, begin - 1e-4, end + 1e-4)
    assert "each drawn" in reported["status"]
    assert reported["data"][0]["time"][1:-1] == pytest.approx(
        samples["time"][20_000:22_001], abs=6e-7
    )


@pytest.mark.browser
def test_of_many_changes_all_are_drawn_when_zoomed(opened):
    recording = with_results(50_000)
    _, total = cached_levels(recording)
    page = opened(recording, plots=["cache"])
    reported = drawn(page)
    assert "changes in view, of each pixel" in reported["status"]
    assert max(reported["data"][0]["amount"]) == total.peak
    inside = (total.times > 2.0) & (total.times < 2.1)
    reported = drawn(page, 2.0, 2.1)
    assert reported["data"][0]["time"][1:-1] == pytest.approx(total.times[inside], abs=6e-7)
    assert reported["data"][0]["amount"][1:-1] == total.amounts[inside].tolist()


@needs_node
def test_bytes_of_any_number_are_the_same_after_they_were_text():
    sent = [bytes(range(256))[255 - size :] for size in range(9)] + [b"\0" * 7, b"\xff" * 6]
    texts = [letters(data) for data in sent]
    assert not set("&<>`\"'\\") & set("".join(texts))
    received = run_javascript("plots/binary_columns.js", "bytes_of", *([text] for text in texts))
    assert [bytes(map(int, data)) for data in received] == sent
