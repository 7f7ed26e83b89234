"""What a saved notebook shows where scripts do not run: a sentence, and a picture of when tasks ran."""

import base64
import re
from collections import defaultdict
from dataclasses import replace
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from dask_diag.views.saved_picture import saved_picture

from .kernels import run_notebook
from .recordings import NOTHING, with_tables

SVG = "{http://www.w3.org/2000/svg}"
MOST = 60_000
STRIPES = "tasks off the CPU"
HOSTILE = "</svg><script>alert(1)</script>&\"'\x00\x1b[2J\ud800"


def recorded(rows, stop=10.0):
    """A recording of rows (function, worker, start, stop, and CPU seconds if known), from 0 on."""
    names = ("function", "worker", "start", "stop", "thread_cpu")[: len(rows[0])]
    columns = dict(zip(names, zip(*rows, strict=True)))
    columns |= {"key": [f"task-{n}" for n in range(len(rows))], "outcome": ["ok"] * len(rows)}
    columns |= {"submitted": np.zeros(len(rows))}
    return with_tables(replace(NOTHING, start=0.0, stop=stop), tasks=columns)


def picture_of(recording):
    return saved_picture(recording)


class Drawn:
    """The picture as a reader sees it: rectangles in seconds and in lanes, by function."""

    def __init__(self, html, duration):
        assert len(html.encode()) < MOST
        self.root = ElementTree.fromstring(image_in(html))
        self.legend = {
            color: unescape(name)
            for color, name in re.findall(r"background-color: (#\w+)\"></span>(.*?)</span>", html)
        }
        self.texts = [element.text for element in self.root.iter(f"{SVG}text")]
        tags = {element.tag.removeprefix(SVG) for element in self.root.iter()}
        assert tags <= {"svg", "style", "rect", "text", "path", "g", "pattern"}
        self.lanes = [e for e in self.root.iter(f"{SVG}rect") if e.get("class") == "lane"]
        (group,) = self.root.iter(f"{SVG}g")
        top, x_unit, y_unit = map(float, re.findall(r"[\d.]+", group.get("transform"))[1:])
        seconds = x_unit * duration / float(self.lanes[0].get("width"))
        full = float(self.lanes[0].get("height"))
        tops = [float(lane.get("y")) for lane in self.lanes]
        self.rectangles = defaultdict(list)
        for path in group:
            x = y = 0
            for step in re.findall(r"m(-?\d+) (-?\d+)h(\d+)v(\d+)h-(\d+)", path.get("d")):
                right, down, width, height, back = map(int, step)
                assert width == back
                x, y = x + right, y + down
                above = top + y * y_unit
                lane = next(n for n, start in enumerate(tops) if above <= start + full)
                assert tops[lane] - 1e-6 <= above
                assert above + height * y_unit <= tops[lane] + full + 1e-6
                drawn = lane, x * seconds, (x + width) * seconds, height * y_unit / full
                self.rectangles[self.name_of(path.get("fill"))].append(drawn)
                y += height

    def name_of(self, color):
        """The text of the legend behind a square of this colour."""
        return STRIPES if color == "url(#off)" else self.legend[color]

    def worker_seconds(self):
        """Of each function, the seconds that its coloured area amounts to."""
        return {
            name: sum((right - left) * share for _, left, right, share in drawn)
            for name, drawn in self.rectangles.items()
        }


def test_the_coloured_area_of_a_function_is_the_seconds_of_its_tasks():
    recording = recorded(
        [
            ("load", "thread-0", 0.0, 4.0),
            ("sum", "thread-0", 4.0, 5.0),
            ("load", "thread-1", 1.0, 4.0),
            *(("short", "thread-1", 5 + n / 200, 5 + n / 200 + 0.0025) for n in range(800)),
        ]
    )
    drawn = Drawn(picture_of(recording).html, 10.0)
    expected = {"load 7.00 s": 7.0, "short 2.00 s": 2.0, "sum 1.00 s": 1.0}
    assert drawn.worker_seconds() == pytest.approx(expected, rel=0.02)
    (one,) = drawn.rectangles["sum 1.00 s"]
    assert one == pytest.approx((0, 4.0, 5.0, 1.0))
    # Half of the time of a lane is half of its height.
    assert {(lane, round(share, 1)) for lane, *_, share in drawn.rectangles["short 2.00 s"]} == {
        (1, 0.5)
    }
    assert drawn.texts[:2] == ["thread-0", "thread-1"]
    assert {"0 s", "2.00 s", "10.0 s"} <= set(drawn.texts)


def test_time_off_the_cpu_is_striped_above_the_time_on_it():
    rows = [("spin", "thread-0", 0.0, 4.0, 3.0), ("sleep", "thread-1", 5.0, 9.0, 0.0)]
    picture = picture_of(recorded(rows))
    drawn = Drawn(picture.html, 10.0)
    seconds = {"spin 4.00 s": 4.0, "sleep 4.00 s": 4.0, STRIPES: 5.0}
    assert drawn.worker_seconds() == pytest.approx(seconds, rel=0.02)
    assert f"Striped: {STRIPES}." in picture.caption
    # Where the CPU time is not known, nothing is said of it.
    assert STRIPES not in picture_of(recorded([(*rows[0][:4], np.nan)])).caption


def test_of_many_workers_several_share_a_lane_and_the_sentence_says_so():
    rows = [(f"f{n % 3}", f"thread-{n}", 0.0, 1.0 + n / 10) for n in range(40)]
    picture = picture_of(recorded(rows))
    drawn = Drawn(picture.html, 10.0)
    assert len(drawn.lanes) == 14
    assert drawn.texts[:2] == ["3 workers", "3 workers"]
    assert "a lane for every 3 workers" in picture.caption
    # The last lane has one worker alone.
    workers_in_lane = [*[3] * 13, 1]
    seconds = sum(
        (right - left) * share * workers_in_lane[lane]
        for of_function in drawn.rectangles.values()
        for lane, left, right, share in of_function
    )
    assert seconds == pytest.approx(sum(stop for *_, stop in rows), rel=0.02)


@pytest.mark.parametrize("workers", [4, 200])
def test_a_hundred_thousand_tasks_are_as_small_and_text_of_the_user_is_text(workers):
    starts = np.sort(np.random.default_rng(0).random(100_000) * 10)
    rows = [
        (f"{HOSTILE}{n % 40}", f"{HOSTILE}-{n % workers}", start, start + 0.0002)
        for n, start in enumerate(starts.tolist())
    ]
    picture = picture_of(recorded(rows))
    drawn = Drawn(picture.html, 10.1)
    assert "<script" not in picture.html
    names = list(drawn.legend.values())
    assert any(text.startswith("</svg><script>") for text in names)
    assert max(map(len, [*names, *drawn.texts])) < 60
    assert picture.text.isprintable()
    # Ten have a colour of their own; all tasks took 0.2 ms.
    assert "30 other functions 15.0 s" in names
    assert picture.text.startswith(f"Timeline of 10.0 s: 100,000 tasks on {workers} workers; ")
    assert picture_of(NOTHING) is picture_of(recorded([("f", "w", np.nan, np.nan)])) is None


SAVED = """%load_ext dask_diag
import dask, dask_diag
###
%%diag run
dask.compute(*[dask.delayed(abs, pure=False)(n) for n in range(4)], scheduler="sync")
###
dask_diag.visualize(run);
###
dask_diag.visualize(run);
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """What the cells of a notebook show that was run and saved."""
    nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed")
    folder = tmp_path_factory.mktemp("saved")
    cells = [nbformat.v4.new_code_cell(text) for text in SAVED.split("###\n")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
        run_notebook(notebook, folder)
    return [[output.get("data", {}) for output in cell.outputs] for cell in notebook.cells]


def image_in(html):
    (data,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', html)
    return base64.b64decode(data).decode()


@pytest.mark.once
def test_a_cell_shows_all_without_scripts_and_stays_small(saved):
    (html,) = [data["text/html"] for data in saved[1] if "text/html" in data]
    assert len(str(saved[1])) < MOST
    # JupyterLab keeps these without trust: neither style sheets nor SVG.
    kept = "a br details div img li p span strong summary table tbody td th thead tr ul"
    assert set(re.findall(r"<(\w+)", html)) <= set(kept.split())
    for tag in ("<strong>", "<table>", "<details>"):
        assert tag in html
    assert "4 tasks on 1 worker, all done" in html
    assert "lane" in image_in(html)


@pytest.mark.once
def test_a_saved_plot_has_a_sentence_and_a_picture_and_bokeh_once(saved):
    (html,) = [d["text/html"] for d in saved[2] if "dask-diag-cell" in d.get("text/html", "")]
    assert len(html) < MOST
    assert "<script" not in html
    assert "<svg" not in html
    assert "The interactive plots are drawn by scripts, and none ran here." in html
    assert re.search(r"</span>abs [\d.]+ .?s</span>", html)
    # Where HTML is not shown either, there are the same words.
    (text,) = (d["text/plain"] for d in saved[2] if "lane" in d.get("text/plain", ""))
    assert "4 tasks on 1 worker" in text
    scripts = [str(text) for data in sum(saved, []) for text in data.values()]
    (script,) = [text for text in scripts if "bokeh.__bokeh__" in text]
    # It has no MathJax, which is as large as the rest.
    assert len(script) < 2_500_000
