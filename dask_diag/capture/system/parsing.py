"""Code as a syntax tree, where it is code."""

from __future__ import annotations

import ast

__all__ = ["parsed"]

_ATTEMPTS = 5


def parsed(code: str) -> ast.Module | None:
    """The syntax tree of some code; None if it is none.

    Up to Python 3.11.7 the parser fails where another thread parses, too, or what is collected
    meanwhile does, as tracebacks that are logged do: then it is asked again.
    """
    for _ in range(_ATTEMPTS):
        try:
            return ast.parse(code)
        except SystemError:
            continue
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    return None
