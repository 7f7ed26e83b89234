"""Write columns.rst, the page of tables and columns, from ``dask_diag/model/tables.py``."""

from __future__ import annotations

import re
from pathlib import Path

from dask_diag.model import codes, tables

PAGE = Path(__file__).with_name("columns.rst")
HEAD = """\
Tables and columns
==================

A ``Recording`` has these tables as attributes: ``recording.tasks`` is a table, and
``recording.tasks.start``, or ``recording.tasks["start"]``, a column. Exports use the same names.
Times are seconds of ``time.perf_counter()``; add ``recording.epoch`` for seconds since 1970. A
number that is not known is NaN. :doc:`numbers` says how each is measured.
"""
WORDS = {
    "States of a recording": codes.STATES,
    "Phases of a running computation": codes.PROGRESS_PHASES,
    "Kinds of threads": codes.THREAD_KINDS,
    "Outcomes of a task": codes.OUTCOMES,
    "Activities of a worker": codes.ACTIVITIES,
    "Events of a worker": codes.WORKER_EVENTS,
    "Roots of stack samples": codes.ROOTS,
    "Sources of lines": codes.LINE_SOURCES,
}


def page() -> str:
    """The text of the page."""
    sections = [HEAD]
    for name, table in tables.TABLES.items():
        rows = [(f"``{c.name}``", c.kind, c.unit, c.meaning) for c in table.schema.values()]
        grid = _grid(("column", "type", "unit", "meaning"), rows, "20 12 12 56")
        sections.append(f"{_title(name)}\n{table.__doc__}\n\n{grid}")
    for title, words in WORDS.items():
        rows = [(f"``{word}``", meaning) for word, meaning in words.items()]
        sections.append(f"{_title(title)}\n{_grid(('value', 'meaning'), rows, '20 80')}")
    return re.sub(r"(?<![`:])`([^`\n]+)`(?!`)", r"``\1``", "\n".join(sections))


def _title(text: str) -> str:
    return f"{text}\n{'-' * len(text)}\n"


def _grid(heads: tuple[str, ...], rows: list[tuple[str, ...]], widths: str) -> str:
    lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", ""]
    for row in (heads, *rows):
        lines += [f"   {'-' if n else '* -'} {cell}".rstrip() for n, cell in enumerate(row)]
    return "\n".join(lines).replace("\n   - ", "\n     - ").replace("\n   -\n", "\n     -\n") + "\n"


def main() -> None:
    """Write the page; not if it is the same, so that Sphinx need not read it again."""
    text = page()
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
