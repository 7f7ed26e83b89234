"""Tables of tasks, from what was captured: all at once, or in parts while computations run."""

from __future__ import annotations

from operator import add

import dask.local
import pytest

from dask_diag import CacheProfiler, Profiler, context_meter
from dask_diag.capture.increments import TaskTables
from dask_diag.model.tables import Tasks

pytestmark = pytest.mark.once


def nothing(*_):
    return None


def keys_of(tables):
    return Tasks.of(tables["tasks"])["key"].tolist()


def rows_of(table, *columns):
    """The values of these columns, row by row; a table without rows may have no columns."""
    return [tuple(row[name] for name in columns) for row in table.to_dicts()]


def edges_of(tables):
    return sorted(rows_of(tables["dependencies"], "task", "depends_on"))


def test_what_was_read_while_a_computation_ran_is_not_read_again():
    parts = []

    def read(*_):
        context_meter.digest_metric("read", len(parts), "bytes")
        parts.append(incremental.take())

    def fail(*_):
        read()
        raise ValueError("no")

    dsk = {"a-1": (nothing,), "b-1": (read, "a-1"), "c-1": (nothing, "b-1")}
    dsk |= {"d": (read, "c-1", "a-1"), "e": (fail, "d")}
    with Profiler() as prof:
        incremental = TaskTables(prof.session)
        with pytest.raises(ValueError, match="no"):
            dask.local.get_sync(dsk, "e")
        parts += [incremental.take(), incremental.take()]
    new, provisional = zip(*parts, strict=True)
    assert [*map(keys_of, new)] == [["a-1"], ["b-1", "c-1"], ["d"], ["e"], []]
    assert [*map(keys_of, provisional)] == [["b-1"], ["d"], ["e"], [], []]
    # Of what runs, too, it is known which rows it needed.
    assert [*map(edges_of, new)] == [[], [(1, 0), (2, 1)], [(3, 0), (3, 2)], [(4, 3)], []]
    assert [*map(edges_of, provisional)] == [[(1, 0)], [(3, 0), (3, 2)], [(4, 3)], [], []]
    metered = [rows_of(part["metrics"], "task", "value") for part in new]
    assert metered == [[], [(1, 0.0)], [(3, 1.0)], [(4, 2.0)], []]
    columns = ("function", "outcome")
    assert [row for part in new for row in rows_of(Tasks.of(part["tasks"]), *columns)] == [
        ("a", "ok"),
        ("b", "ok"),
        ("c", "ok"),
        ("read", "ok"),
        ("fail", "failed"),
    ]
    assert [len(part["computations"]) for part in new] == [0, 0, 0, 1, 0]


@pytest.mark.parametrize("order", [1, -1], ids=["row first", "size first"])
def test_a_result_whose_size_is_being_measured_comes_with_it_in_the_next_part(order):
    parts = []

    def size(result):
        if result == 2:
            parts.append(incremental.take())
        return 10 * result

    cache = CacheProfiler(metric=size, unit="bytes")
    prof = Profiler()
    incremental = TaskTables(prof.session)
    callbacks = [profiler._callback for profiler in (prof, cache)][::order]
    dask.local.get_sync({"b-1": (abs, 1), "c-1": (add, "b-1", 1)}, "c-1", callbacks=callbacks)
    parts.append(incremental.take())
    sizes = [rows_of(Tasks.of(part["tasks"]), "key", "nbytes") for part, _ in parts]
    assert sizes == [[("b-1", 10.0)], [("c-1", 20.0)]]
    assert [edges_of(part) for part, _ in parts] == [[], [(1, 0)]]
