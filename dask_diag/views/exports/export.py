"""Recordings in the formats of other programs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from dask_diag.errors import DiagnosticError
from dask_diag.files import as_path, atomic_file, atomic_folder, open_text
from dask_diag.model.recording import Recording, Sources, recording_of
from dask_diag.model.table import Table
from dask_diag.views.exports import perfetto, tables
from dask_diag.views.exports.stacks import stacks_text

_PACKED = ".gz"


class Format(NamedTuple):
    """A format: endings of files, and the texts of a file, or what writes a file of one table."""

    endings: tuple[str, ...]
    texts: Callable[[Recording], Iterable[str]] = lambda _: ()
    write: Callable[[Table, Path, Recording, bool], None] | None = None


FORMATS = {
    "perfetto": Format((".perfetto.json", ".trace.json"), perfetto.texts_of_trace),
    "speedscope": Format((".speedscope.json",), lambda r: [stacks_text(r, "speedscope")]),
    "collapsed": Format((".collapsed", ".folded"), lambda r: [stacks_text(r, "collapsed")]),
    "json": Format((".json",), tables.texts_of_json),
    "csv": Format((".csv",), write=tables.write_csv),
    "parquet": Format((".parquet",), write=tables.write_parquet),
}


def export(
    source: Sources,
    path: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002
    *,
    overwrite: bool = False,
) -> Path:
    """Write measurements to a file for another program.

    Parameters
    ----------
    source : Recording, profiler, or list of these
        Measurements. Several are combined.
    path : str or os.PathLike
        File to write; compressed if the name ends in ``.gz``. For csv and parquet, a path with the
        ending of the format is a file with the tasks, any other path a directory with one file per
        table.
    format : {"perfetto", "speedscope", "collapsed", "json", "csv", "parquet"}, optional
        Default: by the ending of `path`: ``.perfetto.json`` or ``.trace.json``,
        ``.speedscope.json``, ``.collapsed`` or ``.folded``, any other ``.json``, ``.csv``,
        ``.parquet``.
    overwrite : bool, default False
        Replace an existing file. In a directory, replace the files of an earlier export and delete
        those of tables that the new export does not have; other files stay.

    Returns
    -------
    Path
        The file or directory. It is written atomically.

    Raises
    ------
    DiagnosticError
        If the format is unknown, the file exists and `overwrite` is false, the data for the format
        were not measured, or the file cannot be written.
    MissingDependencyError
        If pyarrow is not installed, for parquet.

    Notes
    -----
    The page *Exports* of the documentation describes the columns.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_diag import Profiler, export
    >>> with Profiler() as prof:
    ...     total = da.ones((500, 500), chunks=(250, 250)).sum().compute()
    >>> export(prof, "tasks.csv").name
    'tasks.csv'
    >>> export(prof, "run.perfetto.json").name
    'run.perfetto.json'
    """
    recording = recording_of(source)
    target = as_path(path)
    name = format if format is not None else _format_of(target)
    if name not in FORMATS:
        raise DiagnosticError(
            f"format: expected one of {', '.join(map(repr, FORMATS))}, found {name!r}"
        )
    chosen = FORMATS[name]
    packed = target.name.endswith(_PACKED)
    if packed and name == "parquet":
        raise DiagnosticError(f"path: {name} files are already compressed; drop {_PACKED!r}")
    if chosen.write is not None and _ending(target) not in chosen.endings:
        with atomic_folder(target, overwrite=overwrite) as folder:
            for part, table in tables.tables(recording):
                chosen.write(table, folder / f"{part}.{name}", recording, False)
            if name == "csv":
                text = json.dumps(tables.facts(recording), indent=1)
                (folder / "recording.json").write_text(text + "\n", encoding="utf-8")
        return target
    with atomic_file(target, overwrite=overwrite) as temporary:
        if chosen.write is not None:
            chosen.write(tables.tasks_of(recording), temporary, recording, packed)
        else:
            with open_text(temporary, compressed=packed) as stream:
                stream.writelines(chosen.texts(recording))
    return target


def _ending(path: Path) -> str:
    """The longest known ending of a path, before that of compression; or nothing."""
    name = path.name.removesuffix(_PACKED).lower()
    endings = [ending for chosen in FORMATS.values() for ending in chosen.endings]
    return max((ending for ending in endings if name.endswith(ending)), key=len, default="")


def _format_of(path: Path) -> str:
    ending = _ending(path)
    for name, chosen in FORMATS.items():
        if ending in chosen.endings:
            return name
    endings = "; ".join(f"{name}: {' or '.join(each.endings)}" for name, each in FORMATS.items())
    raise DiagnosticError(
        f"path: expected the ending of a format ({endings}), found {str(path)!r}; or name "
        f"the format: {', '.join(map(repr, FORMATS))}"
    )
