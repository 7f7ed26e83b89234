"""The series of a MemorySampler, by what they measure, and beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_diag.analysis.grouping import rows_by
from dask_diag.columns import Array
from dask_diag.import_optional import import_optional
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table

if TYPE_CHECKING:
    import pandas

__all__ = ["dataframe", "series_of"]


def series_of(
    recording: Recording, measures: Mapping[str, str] | None = None
) -> Iterator[tuple[str, Array, Array]]:
    """The label of each series, with the times (s) and bytes of its samples.

    Parameters
    ----------
    recording : Recording
    measures : mapping of str to {"process", "rss", "pss", "uss"}, optional
        What to tell of a series, by its label; ``"process"`` of those that are not in it: the
        resident memory of a process alone, the proportional one if there were several.

    Notes
    -----
    Samples in which what is told was not read are left out.
    """
    table = recording.memory
    if not len(table):
        return
    for label, rows in rows_by(table.label).items():
        series = table.rows(rows)
        sizes = series[_column((measures or {}).get(label, "process"), series)]
        is_read = ~np.isnan(sizes)
        yield label, series.time[is_read], sizes[is_read]


def _column(measure: str, series: Table) -> str:
    if measure != "process":
        return measure
    # Of one process alone nothing is counted twice, and what is resident is in every sample.
    alone = (series["processes"] <= 1).all()
    return "rss" if alone or np.isnan(series["pss"]).all() else "pss"


def dataframe(
    recording: Recording, measures: Mapping[str, str] | None = None, align: bool = False
) -> pandas.DataFrame:
    """Bytes by time of day, or, with `align`, by time from the first sample of each series.

    Where only another series has a sample, the last one of this is repeated, up to its end.

    Raises
    ------
    MissingDependencyError
        If pandas is not installed.
    """
    pd = import_optional("pandas", "to_pandas()", "samples and recording need nothing")
    columns = {}
    for label, times, sizes in series_of(recording, measures):
        if align:
            index: Any = pd.to_timedelta(times - times[:1].sum(), unit="s")
        else:
            index = pd.to_datetime(times + recording.epoch, unit="s")
        series = pd.Series(sizes, index=index)
        columns[label] = series[~series.index.duplicated()]
    frame: pandas.DataFrame = pd.DataFrame(columns).sort_index()
    return frame.ffill().where(frame.bfill().notna())
