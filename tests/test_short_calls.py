"""Trees of very many calls: what no screen shows is merged, and seconds add up as before."""

from __future__ import annotations

import bokeh.models as bm
import numpy as np
import pytest

from dask_diag import visualize
from dask_diag.analysis.call_tree import MEASURES, depths, sums_below, tree_and_nodes
from dask_diag.views.plots import flame
from dask_diag.views.plots.figures import Options
from dask_diag.views.plots.flame import SHORT_CALLS, flame_panel, is_missing, merge_short_calls

from .stacks import CORE, LEAF, MAIN, known_stacks, recording_of_stacks
from .test_flame import many_stacks

pytestmark = [pytest.mark.once, pytest.mark.leaves_files]


def merged(recording):
    nodes, of_sample = tree_and_nodes(recording)
    return merge_short_calls(nodes, of_sample, is_missing(nodes))


def one_long_and_many_short(monkeypatch):
    """`main` calls two that are short, one of which calls a third, and one that is long."""
    monkeypatch.setattr(flame, "_MOST_CALLS", 3)
    other = ("other", "o.py", 3, 1)
    return recording_of_stacks(
        [
            ((0.0, 1.0), "f", [MAIN], 1.0, 1.0),
            ((0.0, 1.0), "f", [MAIN, LEAF], 1e-5, 0.0),
            ((0.0, 1.0), "f", [MAIN, other, LEAF], 2e-5, 2e-5),
            ((0.0, 1.0), "f", [MAIN, CORE], 98.0, 50.0),
            ((0.0, 1.0), "f", [MAIN, CORE, LEAF], 1e-3, 0.0),
        ]
    )


def test_short_calls_of_one_caller_are_one_call(monkeypatch):
    nodes, of_sample, count = merged(one_long_and_many_short(monkeypatch))
    assert count == 4
    names = nodes["name"].tolist()
    assert names == ["all", "tasks", "f", MAIN[0], CORE[0], SHORT_CALLS, SHORT_CALLS]
    assert nodes["parent"].tolist() == [-1, 0, 1, 2, 3, 4, 3]
    assert nodes["end"].tolist() == [7, 7, 7, 7, 6, 6, 7]
    assert nodes["total_wall"][[5, 6]].tolist() == pytest.approx([1e-3, 3e-5])
    assert [names[node] for node in of_sample] == [
        *(MAIN[0], SHORT_CALLS, SHORT_CALLS, CORE[0], SHORT_CALLS)
    ]
    assert of_sample[1] == of_sample[2] != of_sample[4]


def test_few_calls_are_all_there_however_short():
    recording = known_stacks()
    nodes, of_sample = tree_and_nodes(recording)
    same, of_same, count = merge_short_calls(nodes, of_sample, is_missing(nodes))
    assert (same, of_same, count) == (nodes, of_sample, 0)


def test_seconds_add_up_in_a_large_tree():
    recording = many_stacks()
    before, _ = tree_and_nodes(recording)
    nodes, of_sample, count = merged(recording)
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
    seen = before["total_wall"] > before["total_wall"][0] / 1000
    longest = before["total_wall"][seen]
    assert np.isin(
        longest, nodes["total_wall"][nodes["name"].codes < len(before["name"].values)]
    ).all()


def test_a_page_of_a_hundred_thousand_calls_is_small_and_says_what_is_merged(tmp_path):
    path = tmp_path / "page.html"
    panel = visualize(many_stacks(), filename=path, show=False, mode="cdn")
    texts = [div.text for div in panel.select({"type": bm.Div})]
    assert sum(SHORT_CALLS in text and "half a pixel" in text for text in texts) == 1
    assert path.stat().st_size < 1.8e6


def test_a_page_of_few_calls_has_no_such_sentence():
    panel = flame_panel(known_stacks(), Options())
    assert not any(SHORT_CALLS in div.text for div in panel.select({"type": bm.Div}))
