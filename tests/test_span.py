"""Spans: names of parts of a program, taken on by computations and by annotated tasks."""

import threading
from operator import add

import dask
import dask.array as da
import dask.local
import dask.threaded
import pytest

from dask_diag import Profiler, activities, span

from .test_activities import assert_adds_up, available

DSK = {("a", 0): (add, 1, 2)}


def spans(prof):
    return prof.recording.tasks["span"].tolist()


def test_a_compute_takes_on_the_span_it_starts_in():
    with Profiler() as prof:
        dask.threaded.get(DSK, ("a", 0))
        with span("load"):
            dask.threaded.get(DSK, ("a", 0))
            with span("parse"):
                dask.local.get_sync(DSK, ("a", 0))
            dask.threaded.get(DSK, ("a", 0))
        dask.threaded.get(DSK, ("a", 0))
    assert spans(prof) == ["", "load", "load/parse", "load", ""]
    assert prof.recording.computations["span"].tolist() == spans(prof)


def test_all_seconds_are_split_by_span():
    with Profiler() as prof:
        for name in ("one", "two"):
            with span(name):
                dask.threaded.get({("a", n): (sum, range(1000)) for n in range(50)}, [("a", 0)])
    assert_adds_up(prof.recording)
    rows = activities(prof.recording, by="span").to_dicts()
    assert {row["span"] for row in rows} == {"one", "two"}
    assert sum(row["value"] for row in rows) == pytest.approx(available(prof.recording))


def test_an_error_closes_a_span():
    with Profiler() as prof:
        with pytest.raises(ZeroDivisionError), span("bad"):
            1 / 0
        dask.threaded.get(DSK, ("a", 0))
    assert spans(prof) == [""]


def test_a_span_is_of_its_own_thread():
    with Profiler() as prof, span("main"):
        other = threading.Thread(target=dask.threaded.get, args=(DSK, ("a", 0)))
        other.start()
        other.join()
    assert spans(prof) == [""]


@pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
def test_annotated_tasks_have_the_span_they_were_given(scheduler):
    with dask.annotate(span="load"):
        x = da.ones(4, chunks=2)
    total = (x + 1).sum()
    with Profiler() as prof, span("all"):
        assert total.compute(scheduler=scheduler, optimize_graph=False) == 8
    of_function = {row["function"]: row["span"] for row in prof.recording.tasks.to_dicts()}
    assert of_function["ones_like"] == "load"
    assert of_function["add"] == "all"
    assert_adds_up(prof.recording)


def test_several_tags_are_nested_spans():
    with Profiler() as prof, span("load", "parse") as outer, span("x") as inner:
        dask.threaded.get(DSK, ("a", 0))
    assert (outer, inner, spans(prof)) == ("load/parse", "load/parse/x", ["load/parse/x"])


@pytest.mark.parametrize("bad", [(3,), (None,), ("",), ("load", ""), ()])
def test_a_tag_that_is_none_is_reported(bad):
    with pytest.raises((TypeError, ValueError), match="span: expected"), span(*bad):
        pass
