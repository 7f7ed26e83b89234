"""Write the pages of findings as plain text, for ``dask-diag explain``.

``python -m docs.explanations`` writes them; thresholds have the values of the code.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import dask_diag
from dask_diag.analysis.findings.rules import CODES
from docs.thresholds import PAGES, substitutions

WIDTH = 80
TEXTS = Path(dask_diag.__file__).parent / "cli" / "explanations"
BULLET = re.compile(r" *[*-] ")
BORDER = re.compile(r"=+( +=+)+")


def text_of(code: str) -> str:
    """The page of a finding as text of at most 80 columns; code and excerpts are as they are."""
    source = (PAGES / f"{code}.rst").read_text(encoding="utf-8")
    values = substitutions(code)
    blocks = re.split(r"\n\n+", source.strip())
    return "\n\n".join(_rendered(blocks, values)) + "\n"


def _rendered(blocks: list[str], values: dict[str, str]) -> Iterator[str]:
    is_code, indent = False, ""
    for block in blocks:
        lines = block.split("\n")
        if block.startswith(".. code-block:: "):
            # The excerpt of a summary is as wide as the page.
            is_code, indent = True, "" if block.endswith("text") else "    "
        elif is_code and block.startswith("   "):
            yield textwrap.indent(textwrap.dedent(block), indent)
        elif len(lines) > 1 and BORDER.fullmatch(lines[0]):
            is_code = False
            yield _table(lines, values)
        elif len(lines) == 2 and set(lines[1]) in ({"="}, {"-"}):
            is_code = False
            yield block
        else:
            is_code = False
            yield "\n".join(
                textwrap.fill(
                    inline(item.strip(), values),
                    WIDTH,
                    initial_indent=(start := re.match(" *", item)[0]),
                    subsequent_indent=start + "  " * bool(BULLET.match(item)),
                    break_on_hyphens=False,
                    break_long_words=False,
                )
                for item in _items(lines)
            )


def _items(lines: list[str]) -> list[str]:
    """A paragraph, or the items of a list, each on one line."""
    items: list[str] = []
    for line in lines:
        if BULLET.match(line) or not items:
            items.append(line)
        else:
            items[-1] += f" {line.strip()}"
    return items


def _table(lines: list[str], values: dict[str, str]) -> str:
    """Columns of a table without a head, of which only the last has several lines."""
    starts = [match.start() for match in re.finditer("=+", lines[0])]
    rows: list[list[str]] = []
    for line in lines[1:-1]:
        cells = [line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
        if cells[0]:
            rows.append(cells)
        else:
            rows[-1][-1] += f" {cells[-1]}"
    rows = [[inline(cell, values) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    return "\n".join(
        textwrap.fill(
            row[-1],
            WIDTH,
            initial_indent="".join(
                f"{cell:{width}}  " for cell, width in zip(row[:-1], widths, strict=True)
            ),
            subsequent_indent=" " * (sum(widths) + 2 * len(widths)),
            break_on_hyphens=False,
        )
        for row in rows
    )


def inline(text: str, values: dict[str, str]) -> str:
    """Text without markup: values in place of thresholds, and titles in place of other pages."""
    text = re.sub(r"\|(\w+)\|", lambda match: values[match[1]], text)
    text = re.sub(r":doc:`(?:[^`<]+ <)?([^`>]+)>?`", lambda match: _title(match[1]), text)
    text = re.sub(r"(?<!\w)\*(\S[^*]*?)\*(?!\w)", r'"\1"', text)
    return re.sub(r"``(.+?)``", r"\1", text)


def _title(page: str) -> str:
    if page in CODES:
        return page
    text = (PAGES / f"{page}.rst").read_text(encoding="utf-8")
    (title, *_) = re.findall(r"^(.+)\n=+$", text, flags=re.MULTILINE)
    return f'"{title}"'


def main() -> None:
    """Write all texts."""
    TEXTS.mkdir(exist_ok=True)
    for code in CODES:
        (TEXTS / f"{code}.txt").write_text(text_of(code), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
