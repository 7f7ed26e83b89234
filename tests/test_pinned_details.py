"""What a page has of the longest tasks, where not all tasks fit: the paths that led to them."""

import numpy as np

from dask_diag.views.plots.tasks import Details, packed_details

from .pages import unpacked


def first_column(packed):
    name, *_ = packed["layout"][0]
    return unpacked(packed)[name]


def test_where_not_all_fit_each_path_has_as_many_tasks():
    paths, tasks = 50, 40
    number = np.arange(paths * tasks)
    is_first, is_last = number % tasks == 0, number % tasks == tasks - 1
    details = Details(
        last=np.where(is_first, -1, number - 1),
        nbytes=np.full(len(number), np.nan),
        duration=np.where(is_last, 2.0, 1.0),
    )
    chosen = np.cumsum(first_column(packed_details(details, most_bytes=0)))
    assert np.bincount(chosen // tasks).tolist() == [1000 // paths] * paths
    # The last ones, without a gap.
    assert chosen[:20].tolist() == list(range(20, 40))


def test_short_paths_are_whole():
    last = np.array([-1, 0, 1, -1, 1])
    details = Details(last, np.full(5, np.nan), np.array([1.0, 1.0, 3.0, 1.0, 2.0]))
    chosen = np.cumsum(first_column(packed_details(details, most_bytes=0)))
    assert chosen.tolist() == [0, 1, 2, 3, 4]
