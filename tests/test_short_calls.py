"""Trees of very many calls: what no screen shows is merged, and seconds add up as before."""

from __future__ import annotations

import bokeh.models as bm
import numpy as np
import pytest

from dask_diag import visualize
from dask_diag.analysis.call_tree import MEASURES, depths, sums_below, tree_and_nodes
from dask_diag.views.plots import flame
from dask_diag.views.plots.flame import SHORT_CALLS, is_missing, merge_short_calls

from .recordings import CORE, LEAF, MAIN, known_stacks, recording_of_stacks
from .test_flame import many_stacks

pytestmark = [pytest.mark.once, pytest.mark.leaves_files]


def merged(recording):
    nodes, of_sample = tree_and_nodes(recording)
    return nodes, *merge_short_calls(nodes, of_sample, is_missing(nodes))


def test_short_calls_of_one_caller_are_one_call(monkeypatch):
    before, nodes, _, count = merged(known_stacks())
    assert (nodes, count) == (before, 0)
    # `main` calls two that are short, one of which calls a third, and one that is long.
    monkeypatch.setattr(flame, "_MOST_CALLS", 3)
    other = ("other", "o.py", 3, 1)
    rows = [
        ([MAIN], 1.0, 1.0),
        ([MAIN, LEAF], 1e-5, 0.0),
        ([MAIN, other, LEAF], 2e-5, 2e-5),
        ([MAIN, CORE], 98.0, 50.0),
        ([MAIN, CORE, LEAF], 1e-3, 0.0),
    ]
    recording = recording_of_stacks([((0.0, 1.0), "f", *row) for row in rows])
    _, nodes, of_sample, count = merged(recording)
    assert count == 4
    names = nodes["name"].tolist()
    assert names == ["all", "tasks", "f", MAIN[0], CORE[0], SHORT_CALLS, SHORT_CALLS]
    assert nodes["parent"].tolist() == [-1, 0, 1, 2, 3, 4, 3]
    assert nodes["end"].tolist() == [7, 7, 7, 7, 6, 6, 7]
    assert nodes["total_wall"][[5, 6]].tolist() == pytest.approx([1e-3, 3e-5])
    assert of_sample.tolist() == [3, 6, 6, 4, 5]


def test_seconds_add_up_in_a_large_tree_and_its_page_is_small(tmp_path):
    recording = many_stacks()
    before, nodes, of_sample, count = merged(recording)
    assert count > 50_000
    assert len(nodes) < len(before) / 2
    parent, depth = nodes["parent"], nodes["depth"]
    assert depth.tolist() == depths(parent.tolist()).tolist()
    for measure in MEASURES:
        own, total = nodes[measure], nodes[f"total_{measure}"]
        assert total[0] == pytest.approx(before[f"total_{measure}"][0])
        assert sums_below(parent, depth, own) == pytest.approx(total)
    of_nodes = np.bincount(of_sample, recording.samples.seconds, len(nodes))
    assert of_nodes == pytest.approx(nodes["wall"])
    size = sums_below(parent, depth, np.ones(len(nodes)))
    assert (nodes["end"] - np.arange(len(nodes)) == size).all()
    # What is long enough to be seen is there with its name.
    longest = before["total_wall"][before["total_wall"] > before["total_wall"][0] / 1000]
    named = nodes["name"].codes < len(before["name"].values)
    assert np.isin(longest, nodes["total_wall"][named]).all()
    path = tmp_path / "page.html"
    for stacks, said in ((recording, 1), (known_stacks(), 0)):
        panel = visualize(stacks, filename=path, show=False, mode="cdn")
        texts = [div.text for div in panel.select({"type": bm.Div})]
        assert sum(SHORT_CALLS in text and "half a pixel" in text for text in texts) == said
        assert path.stat().st_size < 1.8e6
        path.unlink()
