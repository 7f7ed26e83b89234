"""Expressions: whether their names say that they are secret, and what makes their values."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from dask_diag.capture.system.redaction.text import UNKNOWN, is_secret_name

__all__ = [
    "LOOKUPS",
    "Formatted",
    "base_name",
    "is_named_constant",
    "is_named_text",
    "is_secret",
    "name_of",
    "operands",
    "pairs_of",
    "text_of",
    "values_in",
]

_LIKE_A_NAME = re.compile(r"[-$]{0,2}[^\W\d][\w.-]{0,80}[:=]?")
LOOKUPS = frozenset({"get", "getenv", "pop", "getattr"})
"""Functions that look a name up, whose name is not secret itself."""
Formatted = tuple(getattr(ast, name) for name in ("JoinedStr", "TemplateStr") if hasattr(ast, name))
"""The formatted strings of this version of Python."""
_FIELDS = tuple(
    getattr(ast, name) for name in ("FormattedValue", "Interpolation") if hasattr(ast, name)
)
"""What they have between braces."""
_MAKE_ANOTHER_VALUE = (ast.UnaryOp, ast.Compare, ast.Lambda, ast.Slice, ast.Yield, ast.YieldFrom)
"""Expressions whose value is none of their parts'; what later Pythons add may pass it on."""


def values_in(node: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """The parts of an expression that make its value, and whether a name among them is a value."""
    if isinstance(node, ast.Dict):
        yield from ((value, True) for value in node.values)
    elif isinstance(node, (ast.Subscript, ast.Attribute)):
        yield node.value, False
    elif isinstance(node, ast.Call):
        yield node.func, False
        looks_up = name_of(node.func) in LOOKUPS
        makes_dict = name_of(node.func) == "dict"
        yield from ((argument, makes_dict) for argument in node.args[looks_up:])
        yield from ((keyword.value, makes_dict) for keyword in node.keywords)
    elif hasattr(node, "keys") and hasattr(node, "patterns"):
        yield from ((pattern, False) for pattern in node.patterns)
    elif isinstance(node, ast.BinOp):
        yield from ((operand, True) for operand in operands(node))
    elif isinstance(node, ast.comprehension):
        yield from ((child, child is node.iter) for child in ast.iter_child_nodes(node))
    else:
        passes_on = isinstance(node, ast.expr) and not isinstance(node, _MAKE_ANOTHER_VALUE)
        yield from ((child, passes_on) for child in ast.iter_child_nodes(node))


def operands(node: ast.BinOp) -> list[ast.expr]:
    """The operands of a chain of operations, without recursion: there may be thousands."""
    right = []
    operation: ast.expr = node
    while isinstance(operation, ast.BinOp):
        right.append(operation.right)
        operation = operation.left
    return [operation, *reversed(right)]


def pairs_of(targets: Sequence[ast.expr], value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """Targets and their values, if it is clear which is whose."""
    if not isinstance(value, (ast.Tuple, ast.List)) or len(value.elts) != len(targets):
        return []
    if any(isinstance(element, ast.Starred) for element in (*targets, *value.elts)):
        return []
    return list(zip(targets, value.elts, strict=True))


def is_secret(node: ast.expr, *, texts: bool = False, key_too: bool = True) -> bool:
    """Whether an expression has a secret name, or with `texts` is one.

    For `key_too` see `is_secret_name`.
    """
    if isinstance(node, ast.Name):
        return is_secret_name(node.id, key_too)
    if isinstance(node, ast.Attribute):
        return is_secret_name(node.attr, key_too) or is_secret(node.value, key_too=False)
    if isinstance(node, ast.Subscript):
        return (
            is_named_text(node.slice, key_too)
            or is_secret(node.slice, key_too=False)
            or is_secret(node.value, key_too=False)
        )
    if isinstance(node, ast.Call):
        looked_up = node.args[:1] if name_of(node.func) in LOOKUPS else []
        of_name = any(is_named_text(argument, key_too) for argument in looked_up)
        return of_name or is_secret(node.func, key_too=False)
    if isinstance(node, (ast.Tuple, ast.List)):
        return any(is_secret(element, texts=texts, key_too=key_too) for element in node.elts)
    if isinstance(node, ast.Starred):
        return is_secret(node.value, key_too=key_too)
    return texts and is_named_text(node, key_too)


def is_named_text(node: ast.expr, key_too: bool = True) -> bool:
    """Whether it is a text that is a secret name, as ``"--password"``, or texts with one."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return any(is_named_text(element, key_too=False) for element in node.elts)
    text = node.value if isinstance(node, ast.Constant) else None
    if not isinstance(text, str) or not _LIKE_A_NAME.fullmatch(text):
        return False
    return is_secret_name(text, key_too)


def is_named_constant(node: ast.expr) -> bool:
    """Whether it is a constant that names a secret, as ``API_KEY``."""
    name = name_of(node)
    return name.isupper() and is_secret_name(name)


def name_of(node: ast.expr) -> str:
    """The last part of a name, or empty."""
    return getattr(node, "id", "") or getattr(node, "attr", "")


def base_name(node: ast.expr) -> str:
    """The name of which an item, or an item of an item, is meant; or empty."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def text_of(node: ast.AST) -> str | None:
    """The text of an expression or None if it is none."""
    if isinstance(node, ast.Constant):
        value = node.value
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        return text if isinstance(text, str) else None
    if isinstance(node, Formatted):
        return "".join(text_of(value) or UNKNOWN for value in node.values)
    if isinstance(node, _FIELDS):
        return text_of(node.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mod)):
        texts = [text_of(operand) for operand in operands(node)]
        has_text = any(text is not None for text in texts)
        return "".join(text or UNKNOWN for text in texts) if has_text else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        separator = text_of(node.func.value) if node.func.attr == "join" else None
        parts = getattr(node.args[0], "elts", None) if len(node.args) == 1 else None
        if separator is not None and parts is not None:
            return separator.join(text_of(part) or UNKNOWN for part in parts)
    return None
