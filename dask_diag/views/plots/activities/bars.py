"""The numbers behind the pictures of activities; ``bars.js`` lays them out as bars.

The page has the numbers, not the tasks, so that the reader can choose functions and a unit there.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.free_workers import UNUSED
from dask_diag.analysis.grouping import worker_order
from dask_diag.columns import Array
from dask_diag.formatting import count
from dask_diag.model.table import Table
from dask_diag.views.theme.colors import stacking_order

__all__ = ["MOST_BARS", "UNUSED_WORKERS", "Numbers", "numbers_of"]

MOST_BARS = 30
"""As many as can be read; those beyond are one bar."""
UNUSED_WORKERS = "unused workers"
"""All that ran no task, as one."""
_MOST_FUNCTIONS = 300
"""As many as a reader can choose from; the rest counts as one function."""

Columns = dict[str, Array]


@dataclass(frozen=True)
class Numbers:
    """What was measured, by function, worker, activity and unit.

    Attributes
    ----------
    functions : list of str
        The longest first; those beyond `_MOST_FUNCTIONS` are one, the last.
    unlisted : int
        How many functions that last one is of, beside one.
    workers, units : list of str
        Workers that ran no task at all are one, the last.
    activities : list of (str, bool)
        In stacking order; whether it is one of free workers.
    cells : dict of str to array
        ``function``, ``worker``, ``activity`` and ``unit`` are positions in the lists, the function
        of free workers the one after the last; ``value`` is the sum.
    cpu : dict of str to array
        ``cpu`` and ``noncpu``: seconds of each function, what it metered included.
    """

    functions: list[str]
    unlisted: int
    workers: list[str]
    units: list[str]
    activities: list[tuple[str, bool]]
    cells: Columns
    cpu: Columns

    def in_the_page(self) -> dict[str, object]:
        """What ``bars.js`` takes for its numbers."""
        return {**vars(self), "most_bars": MOST_BARS, "unused_workers": UNUSED_WORKERS}


def numbers_of(analysis: Analysis) -> Numbers:
    """Add up a recording for the page."""
    table, of_functions = analysis.cells, analysis.functions
    names = of_functions["function"].tolist()
    unlisted = max(len(names) - _MOST_FUNCTIONS, 0)
    functions = names[:_MOST_FUNCTIONS]
    if unlisted:
        functions[-1] = f"({count(unlisted + 1)} more functions)"
    of_workers = [UNUSED_WORKERS if w == UNUSED else w for w in table["worker"].tolist()]
    workers = sorted(
        set(of_workers),
        key=lambda name: (name == UNUSED_WORKERS, worker_order(name)),
    )
    free = [function is None for function in table["function"].tolist()]
    pairs = list(zip(table["activity"].tolist(), free, strict=True))
    activities = sorted(set(pairs), key=lambda pair: (*stacking_order(pair[0]), pair[1]))
    units = list(dict.fromkeys(["seconds", *table["unit"].tolist()]))
    code = {name: min(n, _MOST_FUNCTIONS - 1) for n, name in enumerate(names)}
    return Numbers(
        functions=functions,
        unlisted=unlisted,
        workers=workers,
        units=units,
        activities=activities,
        cells={
            "function": _codes(table["function"].tolist(), {**code, None: len(functions)}),
            "worker": _codes(of_workers, _index_of(workers)),
            "activity": _codes(pairs, _index_of(activities)),
            "unit": _codes(table["unit"].tolist(), _index_of(units)),
            "value": np.nan_to_num(table["value"], posinf=0.0, neginf=0.0),
        },
        cpu={
            name: _added_up(of_functions, column, list(code.values()), len(functions))
            for name, column in (("cpu", "thread_cpu"), ("noncpu", "thread_noncpu"))
        },
    )


def _index_of(values: Sequence[Hashable]) -> dict[Hashable, int]:
    return {value: index for index, value in enumerate(values)}


def _codes(values: Sequence[Hashable], index: Mapping[Hashable, int]) -> Array:
    return np.array([index[value] for value in values], dtype=np.int32)


def _added_up(table: Table, column: str, codes: Sequence[int], length: int) -> Array:
    values = np.nan_to_num(table[column]) if len(table) else np.zeros(0)
    return np.bincount(np.array(codes, dtype=np.int64), values, minlength=length)
