"""The series of a MemorySampler: the times and sizes of each, and all in one DataFrame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from dask_diag.analysis.grouping import rows_by
from dask_diag.columns import FloatArray
from dask_diag.import_optional import import_optional
from dask_diag.model.recording import Recording
from dask_diag.model.tables import Memory

if TYPE_CHECKING:
    import pandas

__all__ = ["dataframe", "series_of"]


def series_of(
    recording: Recording, measures: Mapping[str, str] | None = None
) -> Iterator[tuple[str, FloatArray, FloatArray]]:
    """The label of each series, with the times (s) and bytes of its samples.

    Parameters
    ----------
    recording : Recording
    measures : mapping of str to {"process", "rss", "pss", "uss"}, optional
        Which measure of a series, by its label. By default ``"process"``: resident memory if there
        was one process, proportional memory if there were several.

    Notes
    -----
    Samples without that measure are left out.
    """
    table = recording.memory
    for label, rows in rows_by(table.label).items():
        series = table.rows(rows)
        sizes: FloatArray = series[_column((measures or {}).get(label, "process"), series)]
        is_read = ~np.isnan(sizes)
        yield label, series.time[is_read], sizes[is_read]


def _column(measure: str, series: Memory) -> str:
    if measure != "process":
        return measure
    # Resident memory of several processes counts the pages twice that they share. It is in every
    # sample, proportional memory is not.
    is_alone = (series.processes <= 1).all()
    return "rss" if is_alone or np.isnan(series.pss).all() else "pss"


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
        since_first = times - times[:1].sum()
        index = (
            pd.to_timedelta(since_first, unit="s")
            if align
            else pd.to_datetime(times + recording.epoch, unit="s")
        )
        series = pd.Series(sizes, index=index)
        columns[label] = series[~series.index.duplicated()]
    frame: pandas.DataFrame = pd.DataFrame(columns).sort_index()
    return frame.ffill().where(frame.bfill().notna())
