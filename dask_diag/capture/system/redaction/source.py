"""Python code with its secrets masked: lines keep their numbers, and it reads as code.

Literals are found by the parser and replaced by the tokenizer. What does not parse, as a cell with
magics or code that breaks off, is masked as text: then every string literal is, since nothing shows
what it is for. Of 1,000 lines it takes 0.1 s: a program that makes several recordings does it once.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from dask_diag.capture.system.parsing import parsed
from dask_diag.capture.system.redaction.syntax import secret_literals
from dask_diag.capture.system.redaction.text import MASK, is_secret_name, redacted_text

__all__ = ["redacted_source"]

Position = tuple[int, int]
"""A line, from 1 on, and a column, in characters from 0 on."""

_PREFIXES = "rbuftRBUFT"
"""What may stand before the quotes of a literal."""
_MAGIC = re.compile(r"(\s*)(?:[%!].*|[\w.]+\?{1,2}\s*|\?.*|[\w., ]+=\s*[%!].*)")
_TOKENS_OF_LOOSE_CODE = re.compile(
    r"""(?P<comment>\#[^\n]*)
    | [rbuftRBUFT]{0,3} (?: \"{3}.*?(?:\"{3}|\Z) | '{3}.*?(?:'{3}|\Z)
        | "(?:\\.|[^"\\\n])*(?:"|$) | '(?:\\.|[^'\\\n])*(?:'|$) )""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_BEGINS = re.compile(r"([^\W\d][\w.-]*)[\"')\]]{0,2}\s*[:=]\s*(?:[\"']*|[^)\]}]*[(\[{][^)\]}]*)$")


class _Piece(NamedTuple):
    """A piece of the source: a literal or a comment."""

    start: Position
    stop: Position
    text: str


@lru_cache(maxsize=8)
def redacted_source(text: str) -> str:
    """The code without string literals and comments that look like secrets.

    Parameters
    ----------
    text : str
        Python code, whole or in part.

    Returns
    -------
    str
        The same lines; what is masked reads ``'…'``.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    masked = _masked_as_code(text, text)
    if masked is None and not text.lstrip().startswith("%%"):
        masked = _masked_with_magics(text)
    return _masked_as_text(text) if masked is None else masked


def _masked_with_magics(text: str) -> str | None:
    """The code of a notebook, whose lines with magics are masked as text; None if it has none."""
    lines = text.split("\n")
    magics = {number for number, line in enumerate(lines) if _MAGIC.fullmatch(line)}
    plain = [
        _MAGIC.sub(r"\1pass", line) if number in magics else line
        for number, line in enumerate(lines)
    ]
    masked = _masked_as_code("\n".join(plain), text) if magics else None
    if masked is None:
        return None
    return "\n".join(
        _masked_as_text(line) if number in magics else line
        for number, line in enumerate(masked.split("\n"))
    )


def _masked_as_code(code: str, text: str) -> str | None:
    """`text` masked where `code`, which has the same lines, has secrets; None if it is no code.

    Nor is what cannot be understood, as syntax of a later Python.
    """
    tree = parsed(code)
    if tree is None:
        return None
    try:
        nodes = secret_literals(tree)
        literals, comments = _pieces(code)
    except Exception:
        return None
    lines = code.split("\n")
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    masked: dict[_Piece, str] = {}
    for node in nodes:
        pieces = _within(literals, *_span(node, lines))
        if not pieces:
            return None
        mask = _masked_prose if id(node) in prose and len(pieces) == 1 else _masked_literal
        masked |= {piece: mask(piece.text) for piece in pieces}
    named = {piece.start[0] for piece in comments if _names_a_secret(piece.text)}
    masked |= {piece: _masked_literal(piece.text) for piece in literals if piece.stop[0] in named}
    masked |= zip(comments, _masked_comments(comments, lines), strict=True)
    return _replaced(text, masked)


def _pieces(code: str) -> tuple[list[_Piece], list[_Piece]]:
    """The literals and the comments of code, in order; a formatted string is one literal."""
    lines = code.split("\n")
    literals, comments = [], []
    opened: list[Position] = []
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        kind = tokenize.tok_name[token.type]
        if kind.endswith("STRING_START"):
            opened.append(token.start)
        elif kind.endswith("STRING_END"):
            start = opened.pop()
            if not opened:
                literals.append(_Piece(start, token.end, _text_of(lines, start, token.end)))
        elif kind == "STRING" and not opened:
            literals.append(_Piece(token.start, token.end, token.string))
        elif kind == "COMMENT" and not opened:
            comments.append(_Piece(token.start, token.end, token.string))
    return literals, comments


def _text_of(lines: list[str], start: Position, stop: Position) -> str:
    text = "\n".join(lines[start[0] - 1 : stop[0]])
    return text[start[1] : len(text) - len(lines[stop[0] - 1]) + stop[1]]


def _span(node: ast.expr, lines: list[str]) -> tuple[Position, Position]:
    """Where a node is; the parser counts columns in bytes."""

    def position(line: int, column: int) -> Position:
        return line, len(lines[line - 1].encode()[:column].decode())

    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return position(node.lineno, node.col_offset), position(node.end_lineno, node.end_col_offset)


def _within(pieces: list[_Piece], start: Position, stop: Position) -> list[_Piece]:
    """The pieces, which are in order, that are between two positions, or the one around these."""
    first, last = (bisect_left(pieces, position, key=itemgetter(0)) for position in (start, stop))
    if first == last and first and pieces[first - 1].stop >= stop:
        return [pieces[first - 1]]
    return pieces[first:last]


def _masked_literal(text: str) -> str:
    """The mask of a literal: of as many lines, and of none if it is empty."""
    body = text.lstrip(_PREFIXES)
    if not body.strip(body[0]):
        return text
    breaks = text.count("\n")
    return f"'''{MASK}" + "\n" * breaks + "'''" if breaks else f"'{MASK}'"


def _masked_prose(text: str) -> str:
    """The mask of a literal that is a statement, as a docstring: it stays readable."""
    body = text.lstrip(_PREFIXES)
    quotes = body[:3] if body[:3] in ('"""', "'''") else body[:1]
    inner = body[len(quotes) : -len(quotes)]
    masked = redacted_text(inner)
    if masked == inner:
        # It looks secret only when its escapes are read.
        return _masked_literal(text)
    return text[: len(text) - len(body)] + quotes + masked + quotes


def _names_a_secret(comment: str) -> bool:
    """Whether a comment says that a secret is beside it, and has none itself."""
    return redacted_text(comment) == comment and any(
        is_secret_name(word, key_too=False) for word in re.findall(r"[\w-]+", comment)
    )


def _masked_comments(comments: list[_Piece], lines: list[str]) -> Iterator[str]:
    """The comments, masked; and the lines of a comment below one in which a secret begins."""
    last_line, hides = 0, False
    for piece in comments:
        line, column = piece.start
        alone = not lines[line - 1][:column].strip()
        if hides and alone and line == last_line + 1:
            masked = f"# {MASK}"
        else:
            masked = redacted_text(piece.text)
            begins = _BEGINS.search(piece.text)
            named = begins is not None and is_secret_name(begins[1], key_too=False)
            hides = alone and (named or piece.text.endswith("PRIVATE KEY-----"))
        last_line = line
        yield masked


def _replaced(text: str, masked: Mapping[_Piece, str]) -> str:
    """The text with other text in place of some of its pieces."""
    lines = text.split("\n")
    for piece, replacement in sorted(masked.items(), reverse=True):
        (first, start), (last, stop) = piece.start, piece.stop
        before, behind = lines[first - 1][:start], lines[last - 1][stop:]
        lines[first - 1 : last] = f"{before}{replacement}{behind}".split("\n")
    return "\n".join(lines)


def _masked_as_text(text: str) -> str:
    """Code of which it is not known what it means: every literal is masked, and what looks so."""
    comments: list[_Piece] = []
    masked: dict[_Piece, str] = {}
    begins = [0, *(match.end() for match in re.finditer("\n", text))]

    def position(offset: int) -> Position:
        line = bisect_right(begins, offset)
        return line, offset - begins[line - 1]

    for match in _TOKENS_OF_LOOSE_CODE.finditer(text):
        piece = _Piece(position(match.start()), position(match.end()), match[0])
        if match["comment"]:
            comments.append(piece)
        else:
            masked[piece] = _masked_literal(piece.text)
    masked |= zip(comments, _masked_comments(comments, text.split("\n")), strict=True)
    return redacted_text(_replaced(text, masked))
