"""Results as HTML for a notebook's cell: no script, and words that say all without styles.

Styles are inline and images have their data in them, since JupyterLab strips style sheets and SVG
from notebooks that it does not trust. Texts have the colors of the notebook's theme.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from urllib.parse import quote

from dask_diag.formatting import percent
from dask_diag.model.table import html_table
from dask_diag.views.colors import Look
from dask_diag.views.escaping import shown
from dask_diag.views.findings import folded
from dask_diag.views.text import FindingText, Summary, SummaryParts, text_of

_WIDTH = 900
_ANGLES = {
    "hatch-up": (135,),
    "hatch-down": (45,),
    "hatch-lines": (0,),
    "hatch-cross": (45, 135),
}
_SEVERITIES = {"high": "#d0303b", "medium": "#c47a00", "low": "#43904a"}
"""Colors of a card's edge, seen on a light and on a dark page."""


def make_summary(parts: SummaryParts) -> Summary:
    """Write a summary as text; its HTML is made when a notebook asks for it."""
    return Summary(text_of(parts), lambda: _as_html(parts), parts)


def table_summary(
    headline: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]], notices: Sequence[str]
) -> Summary:
    """A headline, a table whose first column is text and last row a total, and notices."""
    return make_summary(SummaryParts(headline, columns, rows, notices=notices))


def image_tag(svg: str, text: str, width: int) -> str:
    """HTML that shows SVG, also in notebooks that JupyterLab does not trust.

    Parameters
    ----------
    svg : str
    text : str
        Text in place of the image.
    width : int
        Pixels, if the page is as wide.
    """
    data = b64encode(svg.encode()).decode()
    return (
        f'<img alt="{escape(text)}" width="{width}" style="max-width: 100%" '
        f'src="data:image/svg+xml;base64,{data}">'
    )


def swatch(style: str) -> str:
    """A small square in a style."""
    size = "display: inline-block; width: 10px; height: 10px; margin-right: 4px"
    return f'<span style="{size}; {style}"></span>'


def progress_bar(share: float, color: str, height: int) -> str:
    """A bar that is filled to a share from 0 to 1."""
    return (
        f'<div style="height: {height}px; border: 1px solid #8888; border-radius: 4px; '
        f'overflow: hidden"><div style="height: 100%; width: {100 * share:.1f}%; '
        f'background-color: {color}"></div></div>'
    )


def function_progress(name: str, color: str, done: str, planned: str, share: float) -> str:
    """Tasks of a function that are done, and of how many, if that is known."""
    text = f"{swatch(f'background-color: {color}')}{escape(name)}: {done}"
    return f"{text} of {planned}{progress_bar(share, color, 4)}" if planned else text


def in_a_row(items: Iterable[str]) -> str:
    """Small texts, or HTML, beside each other."""
    spans = (f'<span style="display: inline-block">{item}</span>' for item in items)
    return f'<p style="font-size: 12px">{", ".join(spans)}</p>'


def _as_html(parts: SummaryParts) -> str:
    first, *others = map(escape, parts.headline.split("\n"))
    more = "".join(_below(parts))
    if parts.is_folded:
        more = _fold("Findings, timeline and functions", more)
    return (
        f'<div style="max-width: {_WIDTH}px">'
        f"<p>{'<br>'.join([f'<strong>{first}</strong>', *others])}</p>"
        f"{_paragraph(parts.warning, 'strong')}{_link(parts.page)}{more}</div>"
    )


def _link(page: str) -> str:
    if not page:
        return ""
    address = f'href="{escape(quote(page))}" target="_blank" rel="noreferrer"'
    return f"<p><a {address}>Open the interactive report</a> ({escape(shown(page, 80))})</p>"


def _below(parts: SummaryParts) -> Iterator[str]:
    """HTML below the first lines."""
    if parts.bar:
        yield from _bar(parts.bar_title, parts.bar)
    yield findings_html(parts.findings, parts.note_on_findings)
    yield _paragraph(parts.more)
    if parts.above[1]:
        yield html_table(*parts.above)
    if parts.rows:
        yield parts.picture()
        yield html_table(parts.columns, parts.rows)
    yield _list(map(escape, parts.notices))
    lines = _list(
        f"<strong>{escape(label)}</strong>: {escape(text)}" for label, text in parts.lines
    )
    # Below findings they are details.
    yield _fold("More numbers", lines) if parts.bar else lines


def _bar(title: str, bar: Sequence[tuple[Look, float]]) -> Iterator[str]:
    pieces = "".join(
        f'<span style="width: {100 * share:.2f}%; {_style_of(look)}"></span>' for look, share in bar
    )
    border = "border: 1px solid rgba(128, 128, 128, 0.5)"
    yield f'<div style="display: flex; height: 16px; {border}">{pieces}</div>'
    names = [
        f"{swatch(_style_of(look))}{escape(look.name)} {percent(share)}" for look, share in bar
    ]
    yield in_a_row([f"{escape(title)}: {names[0]}", *names[1:]])


def _style_of(look: Look) -> str:
    """Style of what has a look: a hatch is pale between its lines, or only pale without trust."""
    if not look.hatch:
        return f"background-color: {look.color}"
    red, green, blue = (int(look.color[at : at + 2], 16) for at in (1, 3, 5))
    style = f"background-color: rgba({red}, {green}, {blue}, 0.3)"
    if look.style == "hatch-dots":
        dots = f"radial-gradient({look.color} 1px, transparent 1.3px)"
        return f"{style}; background-image: {dots}; background-size: 4px 4px"
    lines = ", ".join(
        f"repeating-linear-gradient({angle}deg, {look.color} 0 1.5px, transparent 1.5px 4px)"
        for angle in _ANGLES.get(look.style, ())
    )
    return f"{style}; background-image: {lines}" if lines else style


def findings_html(findings: Sequence[FindingText], note: str) -> str:
    """A note and a card for each finding; low severity is folded if there are others."""
    first, low, title = folded(findings)
    cards = "".join(map(_card, first)) + _fold(title, "".join(map(_card, low)))
    return _paragraph(note) + cards


def _card(finding: FindingText) -> str:
    color = _SEVERITIES.get(finding.severity, "gray")
    style = (
        f"margin: 6px 0; padding: 4px 12px; border-left: 5px solid {color}; "
        "background-color: rgba(128, 128, 128, 0.12)"
    )
    title = f"<strong>{escape(finding.title)}</strong>"
    return f'<div style="{style}">{title}<br>{escape(finding.text)}</div>'


def _fold(title: str, content: str) -> str:
    if not content:
        return ""
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def _paragraph(text: str, tag: str = "span") -> str:
    return f"<p><{tag}>{escape(text)}</{tag}></p>" if text else ""


def _list(items: Iterable[str]) -> str:
    listed = "".join(f"<li>{item}</li>" for item in items)
    return f"<ul>{listed}</ul>" if listed else ""
