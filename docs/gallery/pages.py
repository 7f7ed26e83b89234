"""The page of a story, and the list of all stories."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dask_diag import load, summary
from dask_diag.formatting import seconds, size
from docs.gallery.stories import Story

__all__ = ["Advised", "Measured", "write_index", "write_page"]

PAGES = Path(__file__).parents[1] / "stories"
MADE = ".. This page is written by ``make gallery``.\n"


@dataclass(frozen=True)
class Measured:
    """What several runs without a profiler took: the median and the extremes, as text."""

    median: float
    texts: tuple[str, str, str]

    @classmethod
    def of(cls, story: Story, runs: Sequence[tuple[float, float]]) -> Measured:
        """Of the wall seconds and the peak memory of each run, what the story compares."""
        values = [run[story.gains == "memory"] for run in runs]
        shown = size if story.gains == "memory" else seconds
        median = statistics.median(values)
        return cls(median, (shown(median), shown(min(values)), shown(max(values))))


@dataclass(frozen=True)
class Advised:
    """The change that the finding advises: how many times as large chunks are, what that took."""

    factor: int
    command: str
    measured: Measured


def write_page(
    story: Story, before: Measured, after: Measured, advised: Advised | None = None
) -> None:
    """Write what was seen, what the report says, what was changed, and what that gained.

    `advised` is what the finding's own change took, where the story goes further.
    """
    text = f"""{MADE}
{_heading(story.title, "=")}
{story.seen} ::

    {story.before}

{_heading("What the summary says", "-")}
``dask-diag run`` instead of ``python`` prints:

.. code-block:: text

{_indented(summary(load(PAGES / f"{story.name}.diag")))}

{_heading("The report", "-")}
{_frame(story.name, "The report before the change")}

{_heading("What was changed", "-")}
{story.changed} ::

    {story.after}

{_heading("What it gained", "-")}
{_gain(story, before, after)}

{_table(before, after, advised)}
{_of_advice(story, before, advised)}
{_frame(f"{story.name}_after", "The report after the change")}

The finding in detail: :doc:`/findings/{story.code}`.

{_heading("In your own program", "-")}
{story.recognized}

{_heading("The program", "-")}
.. literalinclude:: /../examples/{story.script}
"""
    (PAGES / f"{story.name}.rst").write_text(text, encoding="utf-8")


def renew_summary(story: Story) -> None:
    """Write the summary again as it is now, of the recording that there is."""
    path = PAGES / f"{story.name}.rst"
    before, start, old_summary = path.read_text(encoding="utf-8").partition(
        ".. code-block:: text\n\n"
    )
    _, end, after = old_summary.partition(f"\n\n{_heading('The report', '-')}")
    text = f"{before}{start}{_indented(summary(load(PAGES / f'{story.name}.diag')))}{end}{after}"
    path.write_text(text, encoding="utf-8")


def write_index(stories: Sequence[Story]) -> None:
    """Write the list of stories."""
    rows = "\n".join(f"   {story.name}" for story in stories)
    (PAGES / "index.rst").write_text(
        f"""{MADE}
{_heading("Worked examples", "=")}
Eight slow or memory-hungry programs, each with one cause. Each page shows the summary and the
report of the program, a change of the kind that the finding suggests, and the measured gain. Two
changes go further than the finding suggests; their pages also show the gain of the suggested change
alone. The programs are in ``examples``. ``make gallery`` runs them and writes these pages.

.. toctree::
   :maxdepth: 1

{rows}
""",
        encoding="utf-8",
    )


def _heading(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def _frame(name: str, title: str) -> str:
    """The report in the page; `make docs` makes it from the recording."""
    source = f"../_static/stories/{name}.html"
    return f""".. raw:: html

   <iframe src="{source}" title="{title}" loading="lazy"
     style="width: 100%; height: 800px; border: 1px solid #8888"></iframe>
   <p><a href="{source}">Open {title[0].lower()}{title[1:]} as a page</a></p>"""


def _gain(story: Story, before: Measured, after: Measured) -> str:
    ratio = before.median / after.median
    what = "Peak memory is" if story.gains == "memory" else "The program is"
    how = f"{ratio:.1f} times lower" if story.gains == "memory" else f"{ratio:.1f} times as fast"
    return f"{what} {how}, measured without a profiler, library imports included:"


def _of_advice(story: Story, before: Measured, advised: Advised | None) -> str:
    """What the advice alone gains, and why more is gained beyond it."""
    if advised is None:
        return ""
    ratio = before.median / advised.measured.median
    return f"""
*As advised* is the change that the finding suggests, chunks {advised.factor} times as large and no
more: {ratio:.1f} times as fast. {story.further} ::

    {advised.command}
"""


def _table(before: Measured, after: Measured, advised: Advised | None) -> str:
    rows = [("", "median", "lowest", "highest"), ("before", *before.texts), ("after", *after.texts)]
    if advised is not None:
        rows.insert(2, ("as advised", *advised.measured.texts))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    line = "  ".join("=" * width for width in widths)
    made = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    made[0] = "\\" + made[0][1:]
    return "\n".join([line, made[0], line, *made[1:], line])
